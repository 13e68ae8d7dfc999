"""The stack can be deployed in every partition, including AWS GovCloud (US) and China."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from gpucost_devstack.template import REPOSITORY
from tests.infra.stacks import EVERYTHING_ON, Stack, read_template, stack, templates

ABROAD = ("us-gov-west-1", "us-gov-east-1", "cn-north-1", "cn-northwest-1")
NOT_THERE = {
    "dashboards/amp-rules.yaml": "cn-",
    "dashboards/amp-alerts.yaml": "cn-",
    "cluster/aws/observability.yaml": "",
}
"""Templates of services that some partitions lack, by the regions' prefix: nested, each under its own condition."""
PRINCIPAL = re.compile(r"^(pods\.)?[a-z]+\.amazonaws\.com$")
"""Names of services in trust policies, which are the same everywhere."""


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, element in value.items():
            yield key
            yield from texts(element)
    elif isinstance(value, list):
        for element in value:
            yield from texts(element)
    else:
        yield str(value)


@pytest.mark.parametrize("region", ABROAD)
def test_every_resource_type_exists_in_the_region(region: str) -> None:
    """CloudFormation refuses a template with a type that the region lacks, whatever its conditions say."""
    types = set(PROVIDER_SCHEMA_MANAGER.get_resource_types(region))
    for path in templates():
        used = {body["Type"] for body in read_template(REPOSITORY / path)["Resources"].values()}
        if path not in NOT_THERE or not region.startswith(NOT_THERE[path]):
            assert used <= types, path


def test_services_missing_in_a_partition_are_nested_under_a_condition() -> None:
    resources = read_template(REPOSITORY / "template.yaml")["Resources"]
    nested = {
        body["Properties"]["TemplateURL"]: body.get("Condition")
        for body in resources.values()
        if body["Type"] == "AWS::CloudFormation::Stack"
    }
    assert nested.keys() == NOT_THERE.keys()
    without = Stack("gpucost-dev", read_template(REPOSITORY / "template.yaml"))
    assert [condition for condition in nested.values() if condition is None or without.holds(condition)] == []


@pytest.mark.parametrize("region", ABROAD)
@pytest.mark.parametrize("path", templates())
def test_arns_have_the_stacks_partition(path: str, region: str) -> None:
    template = read_template(REPOSITORY / path, region)
    parameters = {
        name: "given by whoever deploys" if value.startswith("arn:") else value for name, value in EVERYTHING_ON.items()
    }
    deployed = stack("gpucost-dev", template, parameters, region)
    resolved = [text for _, _, properties in deployed.resources() for text in texts(properties)]
    resolved += [text for output in template.get("Outputs", {}).values() for text in texts(deployed.resolve(output))]
    for text in resolved:
        assert "arn:aws:" not in text, text
        for region_named in re.findall(r"\b(?:us|eu|ap|ca|sa)-[a-z]+-\d\b", text):
            assert region_named == region, text
        if "amazonaws.com" in text and not PRINCIPAL.match(text):
            assert text.startswith("https://aps-workspaces."), text
            assert ("amazonaws.com.cn" in text) == region.startswith("cn-"), text
