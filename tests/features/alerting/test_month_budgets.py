"""`/v1/budgets`: the month of every business unit against its budget, under the API's own permissions."""

import json
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from gpucost.container import Container
from gpucost.core.hours import HOUR
from gpucost.features.alerting.month_budgets import UnitBudget
from gpucost.runtime.process import Environment
from gpucost_devstack.template import REPOSITORY
from tests.conftest import DynamoTable
from tests.enforced_permissions import EnforcedAws
from tests.features.alerting.fleet import START, Fleet, pod, settings_with_rules
from tests.functions.api_requests import ApiResponse, iam_caller, request_as, serving

ACCESS = 'access: [{principal: "arn:aws:iam::123456789012:user/ann", roles: ["bu:research"]},\n' + (
    '  {principal: "arn:aws:iam::123456789012:user/fin", roles: [admin]}]\n'
)
RULES = (
    "rule: budget, name: all, monthly_usd: 2000, overrides: [{business_unit: train*, monthly_usd: 100000}]",
    "rule: budget, name: serving, monthly_usd: 9000, scope: {business_units: [serving]}",
    "rule: budget, name: one-cluster, monthly_usd: 1, scope: {clusters: [east]}",
)
UNITS = "business_units: [{name: planned, namespaces: [planned]}]\n"
HOURS = 40
PRICE = 12


@pytest.fixture
def fleet(table: DynamoTable, enforced: EnforcedAws) -> Iterator[Fleet]:
    alert_fleet = Fleet(table, settings_with_rules(*RULES, clusters=("east", "west")) + ACCESS + UNITS)
    client = enforced.client("dynamodb", "ApiFunction")
    with serving(
        Container(Environment(table=table.name), clock=lambda: alert_fleet.now, client=lambda _service: client)
    ):
        yield alert_fleet


def ask(user: str) -> ApiResponse:
    return request_as(iam_caller(f"arn:aws:iam::123456789012:user/{user}"), "/v1/budgets", {})


def rows(answer: ApiResponse) -> dict[str, dict[str, Any]]:
    listed = json.loads(answer.body, parse_float=Decimal)["rows"]
    return {row["business_unit"]: row for row in listed}


def publish(fleet: Fleet) -> None:
    """Research holds 4 GPUs in two clusters, serving and train 1 each. Two hours of west are incomplete."""
    for number in range(HOURS):
        fleet.publish(number, pod(gpus=2), pod("serving"), pod("train-a"), cluster="east")
        is_incomplete = number in (5, 6)
        fleet.publish(number, pod(gpus=2), cluster="west", status="incomplete" if is_incomplete else "complete")
    fleet.now = START + HOUR * (HOURS + 2)


def test_every_unit_is_compared_with_its_lowest_budget(fleet: Fleet) -> None:
    publish(fleet)
    answer = ask("fin")
    assert answer.status == 200, answer.body
    document = json.loads((REPOSITORY / "docs/reference/openapi.json").read_text())
    schema = {"$ref": "#/components/schemas/BudgetsResponse", "components": document["components"]}
    jsonschema.validate(json.loads(answer.body), schema)
    month_hours = 24 * monthrange(START.year, START.month)[1]
    east, west = 2 * PRICE * HOURS, 2 * PRICE * (HOURS - 2)
    projected = 2 * PRICE * month_hours * 2  # hours without figures cost as much as the others
    alone = PRICE * month_hours
    by_unit = rows(answer)
    assert list(by_unit) == ["research", "serving", "train-a", "planned"], "the largest share of a budget first"
    figures = {
        unit: (row["status"], row["budget_usd"], row["spent_usd"], row["projected_usd"])
        for unit, row in by_unit.items()
    }
    assert figures == {
        "research": ("projected", 2000, east + west, projected),
        "serving": ("projected", 2000, PRICE * HOURS, alone),
        "train-a": ("within", 100_000, PRICE * HOURS, alone),
        "planned": ("within", 2000, 0, 0),
    }


def test_spend_above_the_budget_is_exceeded(fleet: Fleet) -> None:
    for number in range(HOURS):
        fleet.publish(number, pod(gpus=8), cluster="east")
        fleet.publish(number, pod(), cluster="west")
    fleet.now = START + HOUR * (HOURS + 2)
    assert rows(ask("fin"))["research"]["status"] == "exceeded"


def test_a_unit_sees_only_its_budget(fleet: Fleet) -> None:
    publish(fleet)
    assert list(rows(ask("ann"))) == ["research"]


def test_too_few_hours_have_no_projection(fleet: Fleet) -> None:
    fleet.publish(0, pod(gpus=2), cluster="east")
    fleet.publish(0, pod(gpus=2), cluster="west")
    fleet.now = START + 3 * HOUR
    row = rows(ask("fin"))["research"]
    assert (row["status"], row["spent_usd"], row["projected_usd"]) == ("unknown", 4 * PRICE, None)


def test_month_whose_data_begin_late_exceeds_a_budget_but_is_not_known_to_stay_within(fleet: Fleet) -> None:
    """The hours before the data are unknown. What the rest of the month adds exceeds the budget whatever they cost."""
    late = 10 * 24
    for number in range(late, late + HOURS):
        fleet.publish(number, pod(gpus=2), pod("train-a"), cluster="east")
    fleet.now = START + HOUR * (late + HOURS + 2)
    by_unit = rows(ask("fin"))
    month_end = datetime(START.year + START.month // 12, START.month % 12 + 1, 1, tzinfo=UTC)
    least = 2 * PRICE * ((month_end - START) // HOUR - late)
    assert [(by_unit[unit]["status"], by_unit[unit]["projected_usd"]) for unit in ("research", "train-a")] == [
        ("projected", least),
        ("unknown", None),
    ]


@pytest.mark.parametrize("cluster", ["west", "east"])
def test_several_currencies_are_refused(fleet: Fleet, cluster: str) -> None:
    """In different clusters, or in one whose settings changed within the month."""
    fleet.publish(0, pod(), cluster="east")
    fleet.publish(1, pod(), cluster=cluster, currency="EUR")
    fleet.now = START + 3 * HOUR
    answer = ask("fin")
    assert answer.status == 400
    assert "EUR, USD" in answer.json["detail"]


def test_budgets_spent_exactly_are_kept() -> None:
    assert UnitBudget("a", Decimal(5), Decimal(5), Decimal(5)).status == "within"
    assert UnitBudget("a", Decimal(5), Decimal(5), Decimal("5.01")).status == "projected"
