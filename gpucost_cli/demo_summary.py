"""What `gpucost demo` prints: costs on one screen, then its alerts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gpucost.core.hours import format_timestamp
from gpucost_cli import report
from gpucost_cli.rendering import COST_COLUMNS, cost_cells, money, print_table, printable, waste_percent

UNITS_SHOWN = 6
WASTERS_SHOWN = 3
ALERTS_SHOWN = 10
PARTS = ("effective", "waste", "unmeasured", "unallocated", "stranded", "unobserved", "host", "residual")


@dataclass(frozen=True, slots=True)
class Summary:
    """The API's responses about a period."""

    units: Mapping[str, Any]
    waste: Mapping[str, Any]
    recommendations: Mapping[str, Any]
    alerts: Mapping[str, Any]


def read_summary(api: str, start: datetime, end: datetime) -> Summary:
    """Ask the API for the figures."""

    def ask(path: str, **parameters: str) -> dict[str, Any]:
        return report.parse_json_exactly(report.get_from_api(api, path, parameters, signed=False).text)

    period = {"start": format_timestamp(start), "end": format_timestamp(end)}
    return Summary(
        ask("/v1/business-units", **period),
        ask("/v1/waste", **period, limit=str(WASTERS_SHOWN)),
        ask("/v1/recommendations", state="open"),
        ask("/v1/alerts", **period),
    )


def print_summary(console: Console, summary: Summary, *, api: str = "") -> None:
    """Print the screen. Without an API that keeps serving, it has no links."""
    width = console.width
    print_table(units_table(summary.units), console)
    console.width = width  # a table that is wider widens the console
    console.print()
    console.print(identity_line(summary.units["totals"], summary.units["currency"]))
    for line in (*_waster_lines(summary.waste), _savings_line(summary.recommendations)):
        console.print(line)
    if api:
        for line in _links(summary, api):
            console.print(line, soft_wrap=True)  # so that the address can be copied whole


def units_table(response: Mapping[str, Any]) -> Table:
    """Build the table of the business units with most waste, and of all."""
    currency = response["currency"]
    title = f"{response['start']} to {response['end']}, {report.complete_hours(response)}"
    heading = Text(title, no_wrap=True, overflow="ignore")  # it may be wider than the table
    table = Table(title=heading, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("business unit", overflow="fold")
    for name in COST_COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    rows = sorted(response["rows"], key=lambda row: -(row["waste_usd"] or 0))
    for row in rows[:UNITS_SHOWN]:
        table.add_row(printable(row["business_unit"]), *cost_cells(row, currency))
    if len(rows) > UNITS_SHOWN:
        table.add_row(f"… {len(rows) - UNITS_SHOWN} more")
    table.add_row("all units", *cost_cells(response["totals"], currency), style="bold")
    return table


def identity_line(totals: Mapping[str, Any], currency: str) -> str:
    """Write the nodes' cost as the sum of its parts; parts of zero are left out."""
    amounts = {part: totals[f"{part}_usd"] for part in PARTS}
    difference = totals["node_cost_usd"] - sum(amount or 0 for amount in amounts.values())
    parts = " + ".join(f"{part} {money(amount, currency)}" for part, amount in amounts.items() if amount)
    check = "exact" if not difference else f"off by {difference}"
    return f"node cost {money(totals['node_cost_usd'], currency)} = {parts} (identity {check})"


def _waster_lines(response: Mapping[str, Any]) -> Iterator[str]:
    yield "most waste:"
    for row in response["rows"][:WASTERS_SHOWN]:
        workload = f"{row['namespace']}/{row['workload']} ({row['business_unit']}, {row['cluster']})"
        amount = money(row["waste_usd"], response["currency"])
        yield f"  {amount:>11} {waste_percent(row):>7}  {printable(workload)}"


def _savings_line(response: Mapping[str, Any]) -> str:
    count = len(response["rows"])
    if not count:
        return "savings: no recommendations yet; the nightly review needs a week of history"
    saving = money(response["totals"]["savings"]["usd"])
    count_text = f"{count} open recommendations" if count > 1 else "1 open recommendation"
    return f"savings on offer: {saving} per month; {count_text}"


def _links(summary: Summary, api: str) -> Iterator[str]:
    wasters: Sequence[Mapping[str, Any]] = summary.waste["rows"]
    yield f"open {api} in a browser"
    if wasters:
        unit = wasters[0]["business_unit"]
        yield f"  why {printable(unit)} wastes most: {report.unit_page(api, unit, summary.units)}"
    yield f"  every GPU by hour: {api}/#/nodes?window=24h"


def print_alerts(console: Console, response: Mapping[str, Any]) -> None:
    """Print the newest alerts, one per line."""
    events = sorted(response["history"], key=lambda event: str(event["hour"]), reverse=True)
    console.print(f"\n{len(events)} alerts, newest first")
    for event in events[:ALERTS_SHOWN]:
        subject = event["subject"]
        name = subject["workload"] or subject["node_pool"] or subject["business_unit"]
        about = " ".join(filter(None, (name, f"({subject['cluster']})" if subject["cluster"] else "")))
        line = f"  {str(event['hour'])[5:16].replace('T', ' ')}  {event['event']:<8}  {event['rule']:<14}  {about}"
        console.print(escape(line), overflow="ellipsis", no_wrap=True)
    if len(events) > ALERTS_SHOWN:
        console.print(f"  … {len(events) - ALERTS_SHOWN} more; all: gpucost demo --verbose, or /v1/alerts")


def print_slack_messages(console: Console, posts: Sequence[Mapping[str, Any]]) -> None:
    """Print messages as Slack shows them."""
    console.print(f"\n{len(posts)} messages of the last 24 hours, as Slack shows them:")
    for post in posts:
        console.print(Panel(escape(_slack_text(post)), width=78))


def _slack_text(post: Mapping[str, Any]) -> str:
    """Return the text of a Slack message as Slack shows it."""
    lines: list[str] = []
    for block in post.get("blocks", []):
        texts = [block["text"]] if "text" in block else []
        lines += [str(text["text"]) for text in texts + block.get("elements", [])]
        lines += [f"{title + ':':<22} {value}" for title, _, value in _fields_of_block(block)]
    shown = "\n".join(lines) or str(post.get("text", ""))
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _fields_of_block(block: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [str(field["text"]).partition("\n") for field in block.get("fields", [])]
