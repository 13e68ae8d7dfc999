"""Every statement of the template is needed: without it, an access of a whole run is evaluated differently."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpucost_devstack.iam.authorizer import PermissionUse
from gpucost_devstack.iam.policies import Policies
from gpucost_devstack.template import transformed_template
from tests.iam.removal import unnoticed_parts, unnoticed_statements
from tests.iam.whole_deployment import whole_run

PRICES = "PricesFunctionRole/PricesFunctionRolePolicy0/ReadLedgerWritePriceBook without dynamodb:"
EXPORT = "ExportFunctionRole/ExportFunctionRolePolicy0/ReadLedger without dynamodb:"
RECOMMEND = "RecommendFunctionRole/RecommendFunctionRolePolicy0"
ANSWER_LOST = "reads an item back when the answer to a conditional write was lost"
NOT_EXERCISED = {
    "SpotPricesPolicy/spot-prices/ReadSpotPrices without ec2:DescribeAvailabilityZones": "is called where prices name "
    "no zone id; moto's do",
    "OwnBillPolicy/own-bill/QueryBill without athena:StopQueryExecution": "stops a query that takes eight minutes",
    "EventsTopicPolicy/AlertManagerPublishes without sns:GetTopicAttributes": "AMP's documentation asks for it",
    f"{PRICES}BatchWriteItem": "marks a month whose bill has lines; moto's Athena answers none "
    "(tests/pipeline/test_bill.py)",
    f"{PRICES}DeleteItem": "deletes what a document needed when it was larger than 300 KB",
    f"{EXPORT}GetItem": ANSWER_LOST,
    f"{RECOMMEND}/ReadLedger without dynamodb:GetItem": ANSWER_LOST,
    f"{RECOMMEND}/WriteRecommendations without dynamodb:DeleteItem": "deletes what a review needed when it was larger "
    "than 300 KB",
    f"{RECOMMEND}/WriteRecommendations without dynamodb:LeadingKeys C#*#recommendations": "a week of hours gives "
    "recommendations; tests/features/recommendations/test_function.py writes some with these policies",
    f"{RECOMMEND}/WriteRecommendations without dynamodb:LeadingKeys C#*#latency": "the run has no inference servers; "
    "tests/features/recommendations/test_function.py reads their latencies with these policies",
}
"""Parts of statements that the run does not need, with their purpose."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Policies, list[PermissionUse]]]:
    """The run's policies, and all permissions that it needed."""
    with whole_run(tmp_path_factory.mktemp("metrics")) as stack:
        yield stack.authorizer.policies, sorted(stack.authorizer.accesses, key=repr)


def test_each_statement_is_noticed_when_it_is_removed(recorded: tuple[Policies, list[PermissionUse]]) -> None:
    assert unnoticed_statements(*recorded) == []


def test_each_action_resource_and_condition_value_is_noticed_when_it_is_removed(
    recorded: tuple[Policies, list[PermissionUse]],
) -> None:
    assert set(unnoticed_parts(*recorded)) == NOT_EXERCISED.keys()


def test_superfluous_statement_is_reported(recorded: tuple[Policies, list[PermissionUse]]) -> None:
    policies, accesses = recorded
    (dispatch,) = (statement for statement in policies.statements if statement.title.endswith("/SendWork"))
    twin = replace(dispatch, title="twin")
    unused = replace(dispatch, title="unused", body={**dispatch.body, "Action": "sqs:PurgeQueue"})
    unnoticed = unnoticed_statements(Policies((*policies.statements, twin, unused)), accesses)
    assert sorted(unnoticed) == sorted([dispatch.title, "twin", "unused"])


def test_no_statement_of_the_template_is_overlooked(recorded: tuple[Policies, list[PermissionUse]]) -> None:
    policies, _ = recorded
    resources = transformed_template()["Resources"]
    permissions = [body for body in resources.values() if body["Type"] == "AWS::Lambda::Permission"]
    written = [
        statement
        for statement in policies.statements
        if not statement.is_managed and statement.title.partition("/")[0] in resources
    ]
    declared = sum(
        len(list(_statements(resource))) * len(resource.get("Properties", {}).get("Roles", ["its own"]))
        for resource in resources.values()
    )
    assert len(written) == declared + len(permissions)


def _statements(part: Any) -> Iterator[dict[str, Any]]:
    """The statements and resources of a template that have an effect."""
    if isinstance(part, dict):
        if "Effect" in part:
            yield part
        for value in part.values():
            yield from _statements(value)
    elif isinstance(part, list):
        for value in part:
            yield from _statements(value)
