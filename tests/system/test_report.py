"""`gpucost report` prints the API's answers; GPU-hours without a price are reported and not shown as free."""

import io
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from gpucost.core.amounts import CapacityCosts, Costs
from gpucost_cli.rendering import print_table
from gpucost_cli.report import business_unit_tables, complete_hours, costs_tables
from tests.records import amount


def answer(costs: Costs, capacity: CapacityCosts) -> dict[str, Any]:
    return {
        "start": "2026-11-19T00:00:00Z",
        "end": "2026-11-20T00:00:00Z",
        "currency": "EUR",
        "default_window": None,
        "rows": [{"business_unit": "a", **costs.figures()}],
        "totals": costs.figures() | capacity.figures(),
        "coverage": {"hours_complete": 0, "hours_expected": 1},
    }


def rendered(costs: Costs, capacity: CapacityCosts) -> str:
    console = Console(width=200, file=io.StringIO(), record=True)
    for part in business_unit_tables(answer(costs, capacity)):
        console.print(part)
    return console.export_text()


def test_missing_prices_are_reported() -> None:
    partly = rendered(
        Costs(allocated_gpu_hours=amount(9), allocated_usd=amount(2), unpriced_gpu_hours=amount(8)),
        CapacityCosts(capacity_gpu_hours=amount(9), node_cost_usd=amount(2), unpriced_capacity_gpu_hours=amount(8)),
    )
    assert "2.00 EUR" in partly
    assert (
        "8.000 of these GPU-hours and 8.000 of the nodes' GPU-hours have no price and are not included in any amount"
        in partly
    )


def test_hour_without_prices_shows_its_gpu_hours() -> None:
    unknown = rendered(
        Costs(allocated_gpu_hours=amount(9), unpriced_gpu_hours=amount(9)),
        CapacityCosts(capacity_gpu_hours=amount(9), unpriced_capacity_gpu_hours=amount(9)),
    )
    assert "9.000" in unknown
    assert "0.00" not in unknown.replace("9.000", "")
    assert "have no price" in unknown


def test_priced_hours_have_no_note() -> None:
    report_text = rendered(
        Costs(allocated_gpu_hours=amount(9), allocated_usd=amount(2)),
        CapacityCosts(capacity_gpu_hours=amount(9), node_cost_usd=amount(2)),
    )
    assert "no price" not in report_text


def test_costs_by_any_dimension_as_a_table() -> None:
    costs = Costs(allocated_gpu_hours=amount(9), allocated_usd=amount(2)).figures()
    idle = {"idle_gpu_hours": Decimal(1), "idle_usd": Decimal(3), "cost_usd": Decimal(5)}
    start = "2026-11-19T00:00:00Z"
    idle_costs = {**Costs().figures(), **idle, "cost_usd": Decimal(3)}
    document = {
        **answer(Costs(allocated_gpu_hours=amount(9), allocated_usd=amount(2)), CapacityCosts(node_cost_usd=amount(5))),
        "granularity": "day",
        "group_by": ["cluster", "workload"],
        "idle": "separate",
        "filtered_out": {**Costs().figures(), **idle},
        "rows": [
            {"start": start, "kind": "held", "group": {"cluster": "a", "workload": "[b]x\x1b"}, **costs, **idle},
            {"start": start, "kind": "idle", "group": {"cluster": "a", "workload": ""}, **idle_costs},
        ],
    }
    console = Console(width=200, file=io.StringIO(), record=True)
    for part in costs_tables(document):
        console.print(part)
    lines = [" ".join(line.split()) for line in console.export_text().splitlines() if line.strip()]
    assert lines[1] == "waste %"
    assert lines[2] == "from cluster workload GPU-hours allocated effective waste unmeasured of cost idle cost"
    assert lines[4] == "2026-11-19T00:00:00Z a [b]x� 9.000 2.00 EUR 0.00 EUR 0.00 EUR 0.00 EUR 0.0% 3.00 EUR 5.00 EUR"
    assert lines[5].startswith("2026-11-19T00:00:00Z a (idle) 0.000")
    assert lines[-3].startswith("filtered out 0.000")
    assert lines[-2].startswith("all 9.000 2.00 EUR")
    assert lines[-2].endswith("3.00 EUR 5.00 EUR")


def test_narrow_terminal_shortens_neither_amounts_nor_names() -> None:
    """Rich assumes 80 columns for a pipe."""
    costs = Costs(allocated_gpu_hours=amount(160000), allocated_usd=amount("1131234.56")).figures()
    idle = {"idle_gpu_hours": Decimal(1), "idle_usd": Decimal("375540.25"), "cost_usd": Decimal("1506774.81")}
    document = {
        **answer(Costs(allocated_usd=amount("1131234.56")), CapacityCosts(node_cost_usd=amount("1506774.81"))),
        "granularity": "total",
        "group_by": ["workload"],
        "idle": "separate",
        "filtered_out": None,
        "currency": "USD",
        "rows": [
            {"start": "2026-11-19T00:00:00Z", "kind": "held", "group": {"workload": "llm-finetune-7b"}, **costs, **idle}
        ],
    }
    document["totals"] = document["totals"] | {"allocated_gpu_hours": Decimal(160000)}
    for width in (40, 80, 200):
        file = io.StringIO()
        for part in costs_tables(document):
            print_table(part, Console(width=width, file=file))
        (row,) = [line for line in file.getvalue().splitlines() if "llm-finetune-7b" in line]
        assert "$1,131,234.56" in row
        assert "$1,506,774.81" in row
        assert "…" not in file.getvalue()


@pytest.mark.parametrize(
    ("expected", "text"),
    [("72", "70 of 72 cluster-hours complete"), ("24", "70 of 24 hours complete"), ("0", "70 of 0 hours complete")],
)
def test_hours_of_several_clusters_are_named_as_such(expected: str, text: str) -> None:
    coverage = {"hours_complete": Decimal(70), "hours_expected": Decimal(expected)}
    response = {"start": "2026-11-19T00:00:00Z", "end": "2026-11-20T00:00:00Z", "coverage": coverage}
    assert complete_hours(response) == text


@pytest.mark.parametrize(("complete", "notes"), [("72", 0), ("71", 1)])
def test_incomplete_hours_say_where_their_reasons_are(complete: str, notes: int) -> None:
    document = answer(Costs(allocated_usd=amount("10")), CapacityCosts(node_cost_usd=amount("10")))
    document["coverage"] = {"hours_complete": Decimal(complete), "hours_expected": Decimal(72)}
    parts = business_unit_tables({**document, "rows": [], "currency": "USD"})
    assert [str(part).startswith("Why hours are not complete: GET /v1/hours") for part in parts].count(True) == notes
