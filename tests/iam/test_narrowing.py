"""Parameters, and the names of secrets, narrow what functions may read."""

from collections.abc import Mapping

import pytest

from gpucost_devstack.aws import ACCOUNT, STACK
from gpucost_devstack.iam.authorizer import PermissionUse, evaluate
from gpucost_devstack.iam.calls import PermissionNeeded
from gpucost_devstack.iam.intrinsics import Resolver
from gpucost_devstack.iam.policies import Policies, Statement, policies_of
from gpucost_devstack.template import REGION, transformed_template
from tests.iam.whole_deployment import OTHER_ACCOUNT

WORKSPACES = [f"arn:aws:aps:{REGION}:{ACCOUNT}:workspace/ws-{name}" for name in ("prod", "dev", "other")]
ROLES = [f"arn:aws:iam::{OTHER_ACCOUNT}:role/gpucost-query-{name}" for name in ("prod", "dev", "other")]
TRUST = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}}
TRUSTS = Policies(
    tuple(Statement(role, "trust", {**TRUST, "Resource": role}, is_resource_policy=True) for role in ROLES)
)


def allowed(parameters: Mapping[str, str], function: str, action: str, resources: list[str]) -> list[bool]:
    """Whether a function may call an action on each of some resources."""
    template = transformed_template()
    resolver = Resolver(template, {"BillPrices": "true", **parameters}, {}, stack=STACK, account=ACCOUNT, region=REGION)
    role = resolver.arn(f"{function}FunctionRole")
    uses = [PermissionUse(role, PermissionNeeded(action, resource)) for resource in resources]
    return evaluate(policies_of(template, resolver).joined_with(TRUSTS), uses)


SECRETS = [
    f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{name}-AbCdEf"
    for name in ("gpucost/metrics/token", "gpucost/receivers/slack", "gpucost/of-both", "other")
]


@pytest.mark.parametrize(
    ("function", "readable"),
    [
        ("Attribute", [True, False, True, False]),
        ("Recommend", [True, False, True, False]),
        ("Alert", [False, True, True, False]),
        ("Api", [False] * 4),
        ("Dispatch", [False] * 4),
        ("Export", [False] * 4),
        ("Prices", [False] * 4),
    ],
)
def test_functions_read_only_the_secrets_that_they_need(function: str, readable: list[bool]) -> None:
    assert allowed({}, function, "secretsmanager:GetSecretValue", SECRETS) == readable


@pytest.mark.parametrize("function", ["Attribute", "Recommend"])
def test_workspaces_are_narrowed(function: str) -> None:
    assert allowed({}, function, "aps:QueryMetrics", WORKSPACES) == [True] * 3
    narrowed = {"QueryWorkspaceArns": ",".join(WORKSPACES[:2])}
    assert allowed(narrowed, function, "aps:QueryMetrics", WORKSPACES) == [True, True, False]


@pytest.mark.parametrize("function", ["Attribute", "Prices", "Recommend"])
def test_roles_for_queries_are_narrowed(function: str) -> None:
    assert allowed({}, function, "sts:AssumeRole", ROLES) == [True] * 3
    narrowed = {"QueryRoleArns": ",".join(ROLES[:2])}
    assert allowed(narrowed, function, "sts:AssumeRole", ROLES) == [True, True, False]
