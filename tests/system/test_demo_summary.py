"""The demo's summary: one screen, with the API's figures."""

import re
from collections.abc import Mapping
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from gpucost_cli.demo_summary import PARTS, Summary, identity_line, print_alerts, print_summary

SCREEN_LINES = 24


def costs(allocated: str, waste: str) -> dict[str, Decimal]:
    figures = {"allocated": Decimal(allocated), "waste": Decimal(waste), "unmeasured": Decimal(0)}
    figures["effective"] = figures["allocated"] - figures["waste"]
    hours = {"allocated_gpu_hours": Decimal(258), "unmeasured_gpu_hours": Decimal(0)}
    return {**hours, **{f"{name}_usd": amount for name, amount in figures.items()}}


def totals(**parts: str) -> dict[str, Decimal]:
    amounts = {f"{part}_usd": Decimal(parts.get(part, "0")) for part in PARTS}
    return {**costs("98765.43", "4214.28"), **amounts, "node_cost_usd": sum(amounts.values(), Decimal(0))}


def summary(unit_count: int) -> Summary:
    period = {"start": "2026-11-20T20:00:00Z", "end": "2026-11-23T20:00:00Z", "currency": "USD"}
    units = [{"business_unit": f"team-{i:02}", **costs("98765.43", str(i))} for i in range(unit_count)]
    wasters = [
        {"namespace": "chat", "workload": f"chat-{i}", "business_unit": "team-00", "cluster": "a", **costs("10", "5")}
        for i in range(3)
    ]
    alert = {
        "hour": "2026-11-23T20:00:00Z",
        "event": "firing",
        "rule": "waste",
        "subject": {"workload": "", "node_pool": "", "business_unit": "team-01", "cluster": "demo"},
    }
    fleet = totals(**{part: f"{12345 + number}.005" for number, part in enumerate(PARTS)})
    coverage = {"hours_complete": 216, "hours_expected": 216}
    return Summary(
        units={**period, "rows": units, "totals": fleet, "coverage": coverage},
        waste={**period, "rows": wasters},
        recommendations={
            "rows": [{}, {}],
            "totals": {"usd": Decimal("-765.5"), "savings": {"usd": Decimal("1234.5")}, "costs": {"usd": 2000}},
        },
        alerts={"history": [alert] * 40},
    )


def printed(shown: Summary, width: int) -> list[str]:
    text = StringIO()
    print_summary(Console(file=text, width=width), shown, api="http://127.0.0.1:8080")
    return text.getvalue().splitlines()


@pytest.mark.parametrize("unit_count", [1, 7, 8, 200])
@pytest.mark.parametrize("width", [80, 100])
def test_summary_of_any_fleet_fits_a_screen(unit_count: int, width: int) -> None:
    lines = printed(summary(unit_count), width)
    assert len(lines) <= SCREEN_LINES
    assert all(len(line) <= width for line in lines if "http" not in line)


def test_summary_shows_units_with_most_waste_and_counts_others() -> None:
    lines = printed(summary(12), 100)
    shown = [line.split()[0] for line in lines if line.startswith("team-")]
    assert shown == [f"team-{i:02}" for i in range(11, 5, -1)]
    assert [line.strip() for line in lines if "more" in line] == ["… 6 more"]


def test_cost_of_more_gpus_does_not_reduce_savings_on_offer() -> None:
    assert "savings on offer: $1,234.50 per month; 2 open recommendations" in printed(summary(12), 100)


def test_alerts_take_a_line_each_and_others_are_counted() -> None:
    text = StringIO()
    print_alerts(Console(file=text, width=80), summary(1).alerts)
    lines = text.getvalue().splitlines()
    assert sum("firing" in line for line in lines) == 10
    assert lines[-1].startswith("  … 30 more")


def identity_parts(line: str) -> Mapping[str, str]:
    return dict(re.findall(r"(?:^|[=+] )([a-z ]+) (\$[\d,.]+)", line))


def test_identity_line_names_every_part_that_is_not_zero() -> None:
    line = identity_line(totals(effective="1.5", waste="2.25", stranded="0.005"), "USD")
    assert identity_parts(line).keys() == {"node cost", "effective", "waste", "stranded"}
    assert line.endswith("(identity exact)")


def test_identity_line_shows_a_difference() -> None:
    wrong: dict[str, Any] = {**totals(effective="1.5", waste="2.25"), "node_cost_usd": Decimal("3.750000000001")}
    assert identity_line(wrong, "USD").endswith("(identity off by 1E-12)")
