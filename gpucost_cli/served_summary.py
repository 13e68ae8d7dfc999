"""What `gpucost serve` prints of its own API: who wastes most and why, and what to change."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR, floor_hour, format_timestamp
from gpucost.features.recommendations.measuring import MIN_HOURS
from gpucost_cli import report
from gpucost_cli.local_service import LocalService
from gpucost_cli.rendering import money, print_table, printable
from gpucost_cli.usage_tables import (
    WORKLOAD,
    figures_tables,
    first_by_waste,
    first_whole_hour_sentence,
    so_far_tables,
    top_waster_sentence,
)

RECOMMENDATIONS_SHOWN = 3


def print_period(url: str, doctor: str) -> None:
    """Print who held and used the GPUs in the last 24 hours, and what that cost where the nodes have prices.

    Without any figures, nothing.
    """
    end = floor_hour(datetime.now(UTC))
    for part in period_tables(url, end - 24 * HOUR, end, doctor):
        print_table(part)


def period_tables(url: str, start: datetime, end: datetime, doctor: str) -> Iterator[Table | str]:
    """Yield the tables of a period, and which workload is behind the most waste.

    Args:
        url: address of the API and the page.
        start: start of the period.
        end: end of the period, exclusive.
        doctor: the command that says why figures are unknown.
    """
    period = {"start": format_timestamp(start), "end": format_timestamp(end)}
    units = _ask(url, "/v1/business-units", period)
    totals, currency = units["totals"], units["currency"]
    if not units["rows"] or totals["allocated_gpu_hours"] is None:
        return
    rows: dict[tuple[str, ...], Mapping[str, Any]] = {(row["business_unit"],): row for row in units["rows"]}
    title = f"{period['start']} to {period['end']}, {_hours_with_figures(_ask(url, '/v1/hours', period)['rows'])}"
    yield from figures_tables(title, ["business_unit"], rows, totals, currency, doctor)
    if (top := first_by_waste(rows)) is None:
        return
    (unit,) = top
    workloads = _ask(
        url,
        "/v1/costs",
        {
            **period,
            "granularity": "total",
            "group_by": ",".join(WORKLOAD),
            "business_unit": re.sub(r"([,!*\\])", r"\\\1", unit),
            "sort": "-waste_usd,-allocated_gpu_hours",
        },
    )
    of_unit = {tuple(row["group"][name] for name in WORKLOAD): row for row in workloads["rows"]}
    for sentence in top_waster_sentence(top, rows[top], of_unit, currency):
        yield sentence
        yield f"why: {report.unit_page(url, unit, period)}"


def recommendation_lines(url: str) -> Iterator[str]:
    """Yield the open recommendations that save most, and the page that has their evidence.

    Without any, say how many hours reviews still need; nothing if they have enough.
    """
    answer = _ask(url, "/v1/recommendations", {"state": "open"})
    rows = [row for row in answer["rows"] if row["part_of"] is None and row["offer"] == "plan"]
    if not rows:
        hours = max((review["hours_known"] for review in answer["reviews"]), default=MIN_HOURS)
        if hours < MIN_HOURS:
            yield f"what to change, and what it saves, follows after {MIN_HOURS} hours with figures; there are {hours}"
        return
    yield "what to change, and what it saves per month:"
    for row in rows[:RECOMMENDATIONS_SHOWN]:
        yield f"  {money(row['saving']['usd'], row['currency'])}  {printable(row['summary'])}"
    yield f"all {len(rows)}, with evidence and risk: {url}/#/savings" if len(rows) > 1 else f"why: {url}/#/savings"


def print_so_far(service: LocalService, doctor: str, console: Console) -> None:
    """Print the figures of clusters that have no whole hour yet, and when they are on the page."""
    for result in service.so_far().values():
        if isinstance(result, SourceError):
            console.print(f"gpucost: {result}", soft_wrap=True, markup=False)
            continue
        for part in so_far_tables(result, ["business_unit"], doctor=doctor):
            print_table(part)
        sentence = first_whole_hour_sentence(result)
        console.print(f"{sentence}, and is on the page five minutes later", soft_wrap=True, markup=False)


def _hours_with_figures(hours: Sequence[Mapping[str, Any]]) -> str:
    """Say how many hours are in the sums: also those with nodes whose price is unknown."""
    count = sum(hour["status"] in {"complete", "provisional"} for hour in hours)
    unit = "cluster-hours" if len({hour["cluster"] for hour in hours}) > 1 else "hours"
    return f"{count} of {len(hours)} {unit} with figures"


def _ask(url: str, path: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    return report.parse_json_exactly(report.get_from_api(url, path, parameters, signed=False).text)
