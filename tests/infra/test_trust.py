"""A service assumes a role of a stack only for resources of the stack's account."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpucost_devstack.template import REPOSITORY
from tests.infra.conftest import Template
from tests.infra.stacks import ACCOUNT, EVERYTHING_ON, Stack, read_template, stack, templates

SERVICES = {"grafana.amazonaws.com", "lambda.amazonaws.com", "pods.eks.amazonaws.com", "scheduler.amazonaws.com"}
"""Every service that assumes roles. Each documents aws:SourceAccount in trust policies."""


def trusts(stack: Stack) -> Iterator[tuple[str, dict[str, Any]]]:
    """(role, statement) of each statement that lets a service assume a role, in nested stacks, too."""
    for logical, kind, properties in stack.resources():
        if kind == "AWS::IAM::Role":
            document = properties["AssumeRolePolicyDocument"]
            for statement in (json.loads(document) if isinstance(document, str) else document)["Statement"]:
                if "Service" in statement["Principal"]:
                    yield logical, statement
    for nested in stack.nested():
        yield from trusts(nested)


def services(statement: dict[str, Any]) -> list[str]:
    named = statement["Principal"]["Service"]
    return named if isinstance(named, list) else [named]


def unbound(stack: Stack) -> list[str]:
    """Roles that a service may assume for a resource of any account."""
    return [
        role
        for role, statement in trusts(stack)
        if statement.get("Condition", {}).get("StringEquals", {}).get("aws:SourceAccount") != ACCOUNT
    ]


@pytest.mark.parametrize("path", templates())
def test_services_assume_roles_only_for_the_account(path: str) -> None:
    template = read_template(REPOSITORY / path)
    assert unbound(stack("gpucost-dev", template, EVERYTHING_ON)) == []


def test_every_role_of_the_template_is_checked(template: Template) -> None:
    roles = {name for name, body in template["Resources"].items() if body["Type"] == "AWS::IAM::Role"}
    checked = dict(trusts(stack("gpucost-dev", template, EVERYTHING_ON)))
    assert checked.keys() == roles | {"GrafanaRole"}
    assert {service for statement in checked.values() for service in services(statement)} < SERVICES


def test_schedules_assume_roles_only_for_their_group(template: Template) -> None:
    """EventBridge Scheduler names the group of a schedule, not the schedule itself."""
    deployed = stack("gpucost-dev", template, EVERYTHING_ON)
    groups = {
        properties.get("GroupName", "default")
        for _, kind, properties in deployed.resources()
        if kind == "AWS::Scheduler::Schedule"
    }
    (group,) = groups
    arn = f"arn:aws:scheduler:eu-central-1:{ACCOUNT}:schedule-group/{group}"
    conditions = [
        statement["Condition"]["ArnEquals"]["aws:SourceArn"]
        for _, statement in trusts(deployed)
        if services(statement) == ["scheduler.amazonaws.com"]
    ]
    assert conditions == [arn] * 4


@pytest.mark.parametrize(
    "condition", [None, {"StringEquals": {"aws:SourceAccount": "210987654321"}}, {"StringLike": {"aws:SourceArn": "*"}}]
)
def test_new_role_without_the_condition_is_detected(condition: dict[str, Any] | None) -> None:
    statement = {"Effect": "Allow", "Principal": {"Service": "scheduler.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = {"Statement": [statement | ({"Condition": condition} if condition else {})]}
    template = {"Resources": {"New": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": document}}}}
    assert unbound(Stack("a", template)) == ["New"]
