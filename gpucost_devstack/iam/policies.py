"""The policies of a deployment: those of roles, and those of resources."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from gpucost_devstack.iam.intrinsics import Resolver

LAMBDA_PERMISSION_SOURCES = {
    "SourceArn": ("ArnLike", "aws:SourceArn"),
    "SourceAccount": ("StringEquals", "aws:SourceAccount"),
}


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of one policy.

    Attributes:
        holder: ARN of the role that the statement grants something to, or of the resource that it is about.
        title: path in the template, such as `AttributeFunctionRole/AttributeFunctionRolePolicy0/WriteLedger`.
        body: the statement, with intrinsic functions resolved.
        is_resource_policy: whether it belongs to a resource. Trust policies belong to roles as resources.
        is_managed: whether it comes from an AWS managed policy.
    """

    holder: str
    title: str
    body: Mapping[str, Any] = field(hash=False)
    is_resource_policy: bool = False
    is_managed: bool = False


@dataclass(frozen=True, slots=True)
class Policies:
    """The statements of all roles and resources of a deployment."""

    statements: tuple[Statement, ...]

    def of_role(self, arn: str) -> list[Statement]:
        """The identity-based statements of a role."""
        return [
            statement for statement in self.statements if statement.holder == arn and not statement.is_resource_policy
        ]

    def of_resource(self, arn: str) -> list[Statement]:
        """The statements of a resource's policy. An S3 object has the policy of its bucket."""
        holder = arn.partition("/")[0] if arn.split(":")[2:3] == ["s3"] else arn
        return [
            statement for statement in self.statements if statement.holder == holder and statement.is_resource_policy
        ]

    def without(self, statement: Statement) -> "Policies":
        """These policies without a statement."""
        return Policies(
            tuple(statement_in_force for statement_in_force in self.statements if statement_in_force is not statement)
        )

    def replacing(self, statement: Statement, body: Mapping[str, Any]) -> "Policies":
        """These policies with a statement's body replaced."""
        changed = replace(statement, body=body)
        return Policies(
            tuple(
                changed if statement_in_force is statement else statement_in_force
                for statement_in_force in self.statements
            )
        )

    def joined_with(self, other: "Policies") -> "Policies":
        """These policies and those of another deployment."""
        return Policies(self.statements + other.statements)


def policies_of(template: Mapping[str, Any], resolver: Resolver) -> Policies:
    """The policies of a transformed template whose conditions are true."""
    statements: list[Statement] = []
    for logical, resource in template["Resources"].items():
        if resolver.is_condition_true(resource.get("Condition")):
            statements += _statements_of_resource(logical, resource["Type"], resource.get("Properties", {}), resolver)
    return Policies(tuple(statements))


def _statements_of_resource(logical: str, kind: str, raw: Mapping[str, Any], resolver: Resolver) -> Iterator[Statement]:
    def properties(*names: str) -> dict[str, Any]:
        """Resolve only the named properties. Others use functions that the resolver lacks."""
        return dict(resolver.resolve({name: raw[name] for name in names if name in raw}))

    if kind == "AWS::IAM::Role":
        role, arn = properties("AssumeRolePolicyDocument", "ManagedPolicyArns", "Policies"), resolver.arn(logical)
        trust = Statement(arn, f"{logical}/trust", {}, is_resource_policy=True)
        for statement in _statements(role["AssumeRolePolicyDocument"], trust):
            yield replace(statement, body={**statement.body, "Resource": arn})
        for policy in role.get("Policies", []):
            yield from _statements(policy["PolicyDocument"], Statement(arn, f"{logical}/{policy['PolicyName']}", {}))
        for managed in role.get("ManagedPolicyArns", []):
            name = managed.rpartition("/")[2]
            yield from _statements(
                _managed_policy_document(name), Statement(arn, f"{logical}/{name}", {}, is_managed=True)
            )
    elif kind == "AWS::IAM::Policy":
        policy = properties("PolicyDocument", "PolicyName")
        references = (_referenced_resource(reference, resolver) for reference in raw["Roles"])
        role_names = [reference for reference in references if reference != "AWS::NoValue"]
        for role_name in role_names:
            title = f"{logical}/{policy['PolicyName']}" + (f"/{role_name}" if len(role_names) > 1 else "")
            yield from _statements(policy["PolicyDocument"], Statement(resolver.arn(role_name), title, {}))
    elif kind in ("AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy", "AWS::S3::BucketPolicy"):
        document = properties("PolicyDocument")["PolicyDocument"]
        holders = [raw["Bucket"]] if kind == "AWS::S3::BucketPolicy" else raw.get("Queues", raw.get("Topics"))
        for holder in holders:
            yield from _statements(
                document, Statement(resolver.arn(holder["Ref"]), logical, {}, is_resource_policy=True)
            )
    elif kind == "AWS::Lambda::Permission":
        permission = properties(*raw)
        name = permission["FunctionName"]
        function = (
            name if name.startswith("arn:") else resolver.arn(_referenced_resource(raw["FunctionName"], resolver))
        )
        body = {
            "Effect": "Allow",
            "Principal": {"Service": permission["Principal"]},
            "Action": permission["Action"],
            "Resource": function,
        }
        for source, (operator, key) in LAMBDA_PERMISSION_SOURCES.items():
            if source in permission:
                body.setdefault("Condition", {})[operator] = {key: permission[source]}
        yield Statement(function, logical, body, is_resource_policy=True)


def _referenced_resource(reference: Any, resolver: Resolver) -> str:
    """The logical name of a `Ref`, which may be nested in `Fn::If`."""
    while "Fn::If" in reference:
        condition, true, false = reference["Fn::If"]
        reference = true if resolver.is_condition_true(condition) else false
    return str(reference["Ref"])


def _statements(document: Mapping[str, Any], template: Statement) -> Iterator[Statement]:
    bodies = document["Statement"] if isinstance(document["Statement"], list) else [document["Statement"]]
    for number, body in enumerate(bodies):
        title = f"{template.title}/{body.get('Sid', number)}"
        yield replace(template, title=title, body=body)


@cache
def _managed_policy_document(name: str) -> Mapping[str, Any]:
    """The document of an AWS managed policy, from moto."""
    from moto.iam.aws_managed_policies import aws_managed_policies_data

    document: Mapping[str, Any] = json.loads(aws_managed_policies_data)[name]["Document"]
    return document
