"""Intrinsic functions are resolved like CloudFormation does, compared with moto or with manual results."""

import pytest

from gpucost.core.errors import GpuCostError
from gpucost_devstack.aws import ACCOUNT, create_stack, running_aws
from gpucost_devstack.iam.intrinsics import Resolver
from gpucost_devstack.iam.policies import policies_of
from gpucost_devstack.template import REGION, transformed_template
from tests.iam.whole_deployment import PARAMETERS


@pytest.mark.parametrize(
    "parameters", [{}, PARAMETERS, {"ExistingTableName": "kept", "ExistingExportBucket": "exports"}]
)
def test_environments_and_conditions_are_those_of_cloudformation(parameters: dict[str, str]) -> None:
    with running_aws() as endpoint:
        deployed = create_stack(endpoint, "http://127.0.0.1:1", parameters)
    for name, environment in deployed.environments.items():
        variables = deployed.template["Resources"][name]["Properties"]["Environment"]["Variables"]
        assert deployed.resolver.resolve(variables) == environment
    assert {name: deployed.resolver.is_condition_true(name) for name in deployed.conditions} == deployed.conditions


def test_policies_follow_parameters() -> None:
    bodies = {}
    for parameters in ({}, {"BillPrices": "true", "ExistingTableName": "kept"}):
        resolver = Resolver(transformed_template(), parameters, {}, stack="s", account=ACCOUNT, region=REGION)
        statements = policies_of(transformed_template(), resolver).statements
        bodies[len(parameters)] = {statement.title: statement.body for statement in statements}
    bill = "BillPolicy/bill/AssumeQueryRoles"
    assert bill not in bodies[0]
    assert bodies[2][bill] == {
        "Sid": "AssumeQueryRoles",
        "Effect": "Allow",
        "Action": "sts:AssumeRole",
        "Resource": "arn:aws:iam::*:role/gpucost-query-*",
    }
    ledger = "ApiFunctionRole/ApiFunctionRolePolicy0/ReadLedger"
    tables = [bodies[ledger]["Resource"] for bodies in bodies.values()]
    assert tables == [f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}" for name in ("s-Table", "kept")]


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")])
def test_partition_follows_the_region(region: str, partition: str) -> None:
    resolver = Resolver(transformed_template(), {}, {}, stack="s", account=ACCOUNT, region=region)
    assert resolver.resolve({"Fn::Sub": "${AWS::Partition} ${!kept}"}) == f"{partition} ${{kept}}"
    assert resolver.arn("HoursQueue") == f"arn:{partition}:sqs:{region}:{ACCOUNT}:s-HoursQueue"


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"Fn::Select": [0, ["a"]]}, "Fn::Select is not known"),
        ({"Ref": "Nothing"}, "refers to 'Nothing', which it does not declare"),
        ({"Fn::GetAtt": ["HttpApi", "Arn"]}, "the ARN of a AWS::ApiGatewayV2::Api"),
        ({"Fn::GetAtt": ["Table", "StreamArn"]}, "attribute StreamArn of Table is not known"),
    ],
)
def test_unsupported_function_is_an_error(part: dict[str, object], problem: str) -> None:
    resolver = Resolver(transformed_template(), {}, {}, stack="s", account=ACCOUNT, region=REGION)
    with pytest.raises(GpuCostError, match=problem):
        resolver.resolve(part)
