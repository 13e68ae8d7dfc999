"""The policy that keeps tenants from choosing who pays for their pods."""

from typing import Any

import pytest
import yaml

from gpucost.settings_document import parse_settings
from gpucost_cli.manifests.parameters import parse_existing_cluster_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.targets import PAYER_POLICY, TARGETS
from gpucost_cli.manifests.values import existing_cluster_values
from tests.manifests.rendered import ACCOUNT, settings_text
from tests.manifests.schema_checks import check

UNITS = """
business_units:
  - {name: vision, pod_labels: {example.com/team: vision, cost-center: "7"}}
  - {name: speech, pod_labels: {example.com/team: speech}}
  - {name: rest, namespaces: ["*"]}
"""


def rendered(units: str, target: str) -> dict[str, str]:
    text = settings_text().partition("business_units:")[0] + units
    parameters = parse_existing_cluster_parameters(f'account_id: "{ACCOUNT}"\n')
    return dict(render_files(existing_cluster_values(parse_settings(text), parameters, target), target=target))


@pytest.mark.parametrize("target", TARGETS)
def test_policy_compares_every_label_that_chooses_a_payer(target: str) -> None:
    documents: list[Any] = list(yaml.safe_load_all(rendered(UNITS, target)[PAYER_POLICY]))
    for document in documents:
        check(document)
    policy, binding = (document["spec"] for document in documents)
    assert binding == {"policyName": documents[0]["metadata"]["name"], "validationActions": ["Deny"]}
    first, second = (validation["expression"] for validation in policy["validations"])
    for label, expression in (("cost-center", first), ("example.com/team", second)):
        assert expression == (
            f'!has(object.metadata.labels) || !("{label}" in object.metadata.labels) || '
            f'(has(namespaceObject.metadata.labels) && "{label}" in namespaceObject.metadata.labels && '
            f'object.metadata.labels["{label}"] == namespaceObject.metadata.labels["{label}"])'
        )


def test_settings_without_labels_of_pods_need_no_policy() -> None:
    assert PAYER_POLICY not in rendered("business_units: [{name: rest, namespaces: ['*']}]\n", "prometheus")
