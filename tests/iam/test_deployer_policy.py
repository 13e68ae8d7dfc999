"""The deployer's policy allows everything that the template's resources need, and nothing of another stack."""

import json
from dataclasses import replace

import pytest
from cfnlint.api import lint_file

from gpucost_devstack.iam.authorizer import PermissionUse, evaluate
from gpucost_devstack.iam.calls import PermissionNeeded
from gpucost_devstack.template import transformed_template
from tests.iam.deployer import (
    HANDLERS,
    MANAGED_POLICY,
    NOT_IN_IAM,
    ONLY_FOR,
    POLICY,
    ROLE,
    STACK,
    decide,
    deployer_policies,
    iam_action,
    is_matched,
    required_permissions,
    simulated,
)
from tests.iam.removal import unnoticed_parts, unnoticed_statements
from tests.infra.stacks import ACCOUNT, Stack, read_template

NOT_SIMULATED = ["StackPolicy/Transform", "ServicesPolicy/Api"]
"""Statements whose actions or resources the simulator's reference lacks."""
ALLOWED_TWICE = ["StackPolicy/CheckTemplates without cloudformation:GetTemplateSummary"]
"""Of a stack, the action is also allowed by `Get*`; of a template that no stack has yet, only here."""
MAX_POLICY_CHARACTERS = 6144
"""Of a managed policy, without white space (IAM quotas)."""
MAX_ROLE_NAME, RANDOM_SUFFIX = 64, 12


@pytest.fixture(scope="module")
def uses() -> list[PermissionUse]:
    return list(dict.fromkeys(required_permissions()))


def denied(uses: list[PermissionUse], **parameters: str) -> list[str]:
    decisions = decide(deployer_policies(**parameters), uses)
    return [
        f"{use.call.action} on {use.call.resource}" for use, allowed in zip(uses, decisions, strict=True) if not allowed
    ]


def test_everything_that_the_template_needs_is_allowed(uses: list[PermissionUse]) -> None:
    assert len(uses) > 250
    assert denied(uses) == []


def test_each_statement_is_needed(uses: list[PermissionUse]) -> None:
    assert unnoticed_statements(deployer_policies(), simulated(uses)) == NOT_SIMULATED


def test_each_action_and_resource_is_needed(uses: list[PermissionUse]) -> None:
    unnoticed = unnoticed_parts(deployer_policies(), simulated(uses))
    assert [part for part in unnoticed if part.partition(" ")[0] not in NOT_SIMULATED] == ALLOWED_TWICE


def test_removed_action_is_missed(uses: list[PermissionUse]) -> None:
    policies = deployer_policies()
    (table,) = [statement for statement in policies.statements if statement.title == "ServicesPolicy/Table"]
    actions = [action for action in table.body["Action"] if action != "dynamodb:UpdateTimeToLive"]
    smaller = policies.replacing(table, {**table.body, "Action": actions})
    decisions = dict(zip((use.call.action for use in uses), decide(smaller, uses), strict=True))
    assert not decisions["dynamodb:UpdateTimeToLive"]


def test_resources_of_another_stack_are_denied(uses: list[PermissionUse]) -> None:
    """Only requests that name a stack count: some resources have random IDs, and some actions have no resource."""
    calls = {use.call for use in uses}
    others = [use for use in dict.fromkeys(required_permissions("other")) if use.call not in calls]
    assert len(others) > 120
    assert decide(deployer_policies(), others) == [False] * len(others)


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("iam:PassRole", f"role/{STACK}-ApiFunctionRole-1", {"iam:PassedToService": "ec2.amazonaws.com"}),
        ("iam:PassRole", "role/admin", {"iam:PassedToService": "lambda.amazonaws.com"}),
        ("iam:CreateRole", "role/admin", {}),
        ("iam:AttachRolePolicy", f"role/{STACK}-A-1", {"iam:PolicyARN": "arn:aws:iam::aws:policy/AdministratorAccess"}),
        ("iam:DeleteRolePermissionsBoundary", f"role/{STACK}-A-1", {}),
        ("iam:CreateUser", "user/someone", {}),
    ],
)
def test_roles_are_limited(action: str, resource: str, context: dict[str, str]) -> None:
    pairs = tuple((key, (text,)) for key, text in context.items())
    use = PermissionUse(ROLE, PermissionNeeded(action, f"arn:aws:iam::{ACCOUNT}:{resource}", pairs))
    assert evaluate(deployer_policies(), [use]) == [False]


def test_roles_must_have_the_boundary(uses: list[PermissionUse]) -> None:
    boundary = f"arn:aws:iam::{ACCOUNT}:policy/boundary"
    without = denied(uses, PermissionsBoundaryArn=boundary)
    assert {refusal.partition(" ")[0] for refusal in without} == {
        "iam:CreateRole",
        "iam:DeleteRolePolicy",
        "iam:PutRolePermissionsBoundary",
        "iam:PutRolePolicy",
    }
    bounded = [
        replace(use, call=replace(use.call, context=(*use.call.context, ("iam:PermissionsBoundary", (boundary,)))))
        for use in uses
    ]
    assert denied(bounded, PermissionsBoundaryArn=boundary) == []


def test_every_managed_policy_of_a_role_may_be_attached() -> None:
    roles = [body for body in transformed_template()["Resources"].values() if body["Type"] == "AWS::IAM::Role"]
    arns = {arn for role in roles for arn in role["Properties"].get("ManagedPolicyArns", [])}
    assert MANAGED_POLICY in arns
    role = f"arn:aws:iam::{ACCOUNT}:role/{STACK}-ApiFunctionRole-1"
    attached = [
        PermissionUse(ROLE, PermissionNeeded("iam:AttachRolePolicy", role, (("iam:PolicyARN", (arn,)),)))
        for arn in arns
    ]
    assert evaluate(deployer_policies(), attached) == [True] * len(attached)


def test_longest_name_of_a_role_keeps_the_whole_name_of_the_stack() -> None:
    """CloudFormation shortens names that are too long, and the policy recognizes roles by the stack's name."""
    pattern = read_template(POLICY)["Parameters"]["StackName"]["AllowedPattern"]
    longest = int(pattern.partition(",")[2].partition("}")[0]) + 1
    resources = transformed_template()["Resources"]
    names = [name for name, body in resources.items() if body["Type"] in {"AWS::IAM::Role", "AWS::Lambda::Function"}]
    assert longest + len(max(names, key=len)) + RANDOM_SUFFIX + len("--") <= MAX_ROLE_NAME


def test_policies_fit_into_managed_policies() -> None:
    stack = Stack(
        "gpucost-deployer", read_template(POLICY), {"StackName": "g" * 23, "PermissionsBoundaryArn": "b" * 100}
    )
    for logical, _, properties in stack.resources():
        text = json.dumps(properties["PolicyDocument"], separators=(",", ":"))
        assert len(text) <= MAX_POLICY_CHARACTERS, logical


def test_cfn_lint_finds_nothing() -> None:
    assert [str(match) for match in lint_file(POLICY)] == []


def test_excuses_are_actions_of_the_schemas() -> None:
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

    from gpucost_devstack.template import REGION

    for (kind, pattern), _ in ONLY_FOR.items():
        handlers = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, kind).schema["handlers"]
        actions = {action for name in HANDLERS for action in handlers.get(name, {}).get("permissions", ())}
        assert any(is_matched(action, pattern) for action in actions), (kind, pattern)
    assert [action for action in NOT_IN_IAM if iam_action(action)] == []
