"""Two stacks in one account and region have no physical name in common."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from gpucost_devstack.template import REPOSITORY
from tests.infra.stacks import EVERYTHING_ON, Stack, read_template, stack, templates

NAMED_WITHIN = {
    "AWS::Lambda::Alias": "FunctionName",
    "AWS::IAM::Policy": "Roles",
    "AWS::APS::RuleGroupsNamespace": "Workspace",
}
"""The scope of a name's uniqueness, if the schema's primary identifier is an ARN."""
NAMES_OF_OTHERS = {("AWS::CloudWatch::Alarm", "MetricName"), ("AWS::SNS::Topic", "DisplayName")}
"""Properties that end in `Name` and are not the resource's name."""


def name_paths(kind: str) -> tuple[set[str], set[str]]:
    """Paths of the properties of a type that may name a resource, and of those that identify it together.

    Both are what people can set, from the resource provider's schema.
    """
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("eu-central-1", kind).schema
    read_only = set(schema.get("readOnlyProperties", ()))
    identifiers = {
        path.removeprefix("/properties/") for path in schema.get("primaryIdentifier", ()) if path not in read_only
    }
    names = {name for name in schema["properties"] if name.endswith(("Name", "Alias", "Identifier"))}
    names |= {
        f"{outer}/Name"
        for outer, body in schema["properties"].items()
        if "Name" in schema.get("definitions", {}).get(body.get("$ref", "").split("/")[-1], {}).get("properties", {})
    }
    names = {name for name in names if (kind, name) not in NAMES_OF_OTHERS and f"/properties/{name}" not in read_only}
    return names, identifiers


def value_at(properties: Mapping[str, Any], path: str) -> Any:
    resolved: Any = properties
    for part in path.split("/"):
        resolved = resolved.get(part) if isinstance(resolved, Mapping) else None
    return resolved


def shared_names(first: Stack, second: Stack) -> Iterator[str]:
    """Names that two stacks of a template, or their nested stacks, have in common."""
    theirs = {logical: properties for logical, _, properties in second.resources()}
    for logical, kind, properties in first.resources():
        names, identifiers = name_paths(kind)
        others = theirs[logical]
        scope = identifiers | {NAMED_WITHIN[kind]} if kind in NAMED_WITHIN else identifiers
        differing = {path for path in scope if value_at(properties, path) != value_at(others, path)}
        for path in sorted(names | identifiers):
            value = value_at(properties, path)
            if value is not None and value == value_at(others, path) and not differing:
                yield f"{first.name}: {logical} ({kind}): {path}: {value}"
    for nested, other in zip(first.nested(), second.nested(), strict=True):
        yield from shared_names(nested, other)


@pytest.mark.parametrize("parameters", [{}, EVERYTHING_ON], ids=["defaults", "everything on"])
@pytest.mark.parametrize("path", templates())
def test_two_stacks_share_no_physical_name(path: str, parameters: Mapping[str, Any]) -> None:
    template = read_template(REPOSITORY / path)
    first, second = (stack(name, template, parameters) for name in ("gpucost-dev", "gpucost-prod"))
    assert list(shared_names(first, second)) == []


def test_every_resource_is_compared() -> None:
    """With all options, every resource's condition is true, in nested stacks, too."""
    template = read_template(REPOSITORY / "template.yaml")
    full_stack = stack("gpucost-dev", template, EVERYTHING_ON)
    assert {logical for logical, _, _ in full_stack.resources()} == template["Resources"].keys()
    assert [nested.name for nested in full_stack.nested()] == [
        "gpucost-dev-Observability",
        "gpucost-dev-AmpRules",
        "gpucost-dev-AmpRecordingRules",
    ]


def test_alarms_and_dashboard_show_only_their_stack() -> None:
    """Metrics with the same name and dimensions in both stacks would trigger both stacks' alarms."""
    template = read_template(REPOSITORY / "template.yaml")
    first, second = (stack(name, template, EVERYTHING_ON) for name in ("gpucost-dev", "gpucost-prod"))
    watched = [
        {
            logical: json.dumps([properties.get(key) for key in ("Namespace", "MetricName", "Dimensions", "Metrics")])
            for logical, kind, properties in each.resources()
            if kind == "AWS::CloudWatch::Alarm"
        }
        for each in (first, second)
    ]
    assert [logical for logical in watched[0] if watched[0][logical] == watched[1][logical]] == []
    for widget in json.loads(first.properties("Dashboard")["DashboardBody"])["widgets"]:
        series: list[str] = []
        for metric in widget["properties"]["metrics"]:
            parts = [part for part in metric if isinstance(part, str)]
            series = [series[index] if part == "." else part for index, part in enumerate(parts)]
            assert "gpucost-dev" in " ".join(series), series


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        ("AWS::SQS::Queue", {"QueueName": "hours"}),
        ("AWS::DynamoDB::Table", {"TableName": "ledger"}),
        ("AWS::S3::Bucket", {"BucketName": "exports"}),
        ("AWS::Glue::Database", {"CatalogId": "1", "DatabaseInput": {"Name": "gpucost"}}),
        ("AWS::Lambda::LayerVersion", {"LayerName": "deps"}),
        ("AWS::KMS::Alias", {"AliasName": "alias/gpucost", "TargetKeyId": {"Fn::GetAtt": ["Key", "Arn"]}}),
        ("AWS::SecretsManager::Secret", {"Name": "gpucost/token"}),
        ("AWS::Scheduler::Schedule", {"Name": "Hourly", "Target": {"Arn": {"Fn::GetAtt": ["F", "Arn"]}}}),
    ],
)
def test_new_resource_with_a_fixed_name_is_detected(kind: str, properties: dict[str, Any]) -> None:
    template = {"Resources": {"New": {"Type": kind, "Properties": properties}}}
    assert len(list(shared_names(Stack("a", template), Stack("b", template)))) >= 1


def test_names_fit_with_the_longest_stack_name() -> None:
    """CloudFormation allows stack names of 128 characters."""
    name = "a" * 128
    for path in templates():
        template = read_template(REPOSITORY / path)
        stacks = [stack(name, template, EVERYTHING_ON)] if path == "template.yaml" else [Stack(name, template)]
        stacks += [
            nested for parent in stacks for nested in parent.nested() if not nested.name.endswith("-Observability")
        ]
        for deployed in stacks:
            for logical, kind, properties in deployed.resources():
                declared = PROVIDER_SCHEMA_MANAGER.get_resource_schema("eu-central-1", kind).schema["properties"]
                for path_of_name in name_paths(kind)[0]:
                    value, limit = value_at(properties, path_of_name), declared.get(path_of_name, {}).get("maxLength")
                    if limit and isinstance(value, str) and not value.startswith("<"):
                        assert len(value) <= limit, (logical, path_of_name)
