"""`gpucost restate` and `compare-splits`: hours rated again from stored usage, in force or just to see."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR, format_instant
from gpucost.core.model import Costs
from gpucost.runtime.json_text import csv_text, dumps
from gpucost_cli.options import HourType, author, settings_store, stack_option

if TYPE_CHECKING:
    from gpucost.pipeline.split_comparison import SplitSums
    from gpucost.storage.ports import StoredSettings

MOST_HOURS = 31 * 24


def _period(start: datetime, end: datetime) -> None:
    if start >= end:
        raise InvalidInputError("--to must be after --from")


@click.command()
@stack_option
@click.option("--from", "--start", "start", required=True, type=HourType(), help="first hour")
@click.option("--to", "--end", "end", required=True, type=HourType(), help="end, itself not in it")
@click.option("--cluster", help="only this cluster; all where not given")
@click.option(
    "--settings",
    "which",
    default="published",
    show_default=True,
    type=click.Choice(["published", "current"]),
    help="business units and pricing: as each hour was published with, or those in force now",
)
@click.option("--reason", required=True, help="why; people read it beside the changed figures")
def restate(stack: str, start: datetime, end: datetime, cluster: str | None, which: str, reason: str) -> None:
    """Rate past hours again from their stored usage, through the deployment's own queue; nobody is notified."""
    from gpucost.pipeline.reprice import to_restate
    from gpucost.runtime import aws
    from gpucost.storage.ledger import DynamoLedgerTmp
    from gpucost_cli import deployment

    _period(start, end)
    if not 1 <= len(reason.strip()) <= 500:
        raise InvalidInputError("--reason must have 1 to 500 characters")
    found = deployment.find(stack)
    stored = settings_store(stack).current()
    ledger = DynamoLedgerTmp(aws.client("dynamodb"), found.table)
    version = stored.version if which == "current" else None
    why, correlation_id = f"{reason.strip()} ({author()})"[:500], f"restate-{format_instant(datetime.now(UTC))}"
    for name in _clusters(stored, cluster, start):
        newest = [*ledger.manifests(name, start, end), *ledger.adjustments(name, start, end)]
        hours = sorted({one.hour for one in newest if one.status != "incomplete"})
        work = to_restate(name, hours, settings_version=version, why=why, correlation_id=correlation_id)
        found.bus().send_due(work)
        click.echo(f"{len(hours)} hours of cluster {name} are under way")


@click.command(name="compare-splits")
@stack_option
@click.option("--from", "--start", "start", required=True, type=HourType(), help="first hour")
@click.option("--to", "--end", "end", required=True, type=HourType(), help="end, itself not in it")
@click.option("--cluster", help="only this cluster; all where not given")
@click.option("--format", "form", default="table", show_default=True, type=click.Choice(["table", "json", "csv"]))
def compare_splits(stack: str, start: datetime, end: datetime, cluster: str | None, form: str) -> None:
    """What each split policy would charge each business unit for the same hours; nothing is changed."""
    from gpucost.pipeline.pricing import Pricer
    from gpucost.pipeline.split_comparison import SplitComparison
    from gpucost.runtime import aws
    from gpucost.storage.bill_store import DynamoBillStore
    from gpucost.storage.ledger import DynamoLedgerTmp
    from gpucost.storage.price_book import DynamoPriceBook
    from gpucost_cli import deployment

    _period(start, end)
    if end - start > HOUR * MOST_HOURS:
        raise InvalidInputError(f"at most {MOST_HOURS // 24} days can be compared at once")
    table = deployment.find(stack).table
    client = aws.client("dynamodb")
    store = settings_store(stack)
    bills = DynamoBillStore(client, table, clock=lambda: datetime.now(UTC))
    pricer = Pricer(DynamoPriceBook(client, table), bills)
    comparison = SplitComparison(store, DynamoLedgerTmp(client, table), pricer)
    found = comparison.compare(_clusters(store.current(), cluster, start), start, end)
    if not any(one.hours for one in found):
        raise InvalidInputError(f"no hour from {format_instant(start)} to {format_instant(end)} has stored usage")
    units = sorted({unit for one in found for unit in one.units})
    if form == "json":
        document = {"start": start, "end": end, "policies": [_policy(one) for one in found]}
        sys.stdout.write(dumps(document, indent=2) + "\n")
    elif form == "csv":
        header = ["business_unit", *(one.policy for one in found)]
        sys.stdout.write(csv_text(header, [[unit, *amounts(found, unit)] for unit in units]))
    else:
        title = f"{format_instant(start)} to {format_instant(end)}, {found[0].hours} cluster-hours"
        _print(found, units, title, found[0].currency)


def _policy(one: "SplitSums") -> dict[str, Any]:
    rows = [{"business_unit": unit, **costs.figures()} for unit, costs in sorted(one.units.items())]
    return {
        "split_policy": one.policy,
        "hours": one.hours,
        "business_units": rows,
        "capacity": one.capacity and one.capacity.figures(),
    }


def amounts(found: Sequence["SplitSums"], unit: str) -> list[Decimal | None]:
    """What each policy would charge a unit; None where nothing of it has a price."""
    return [one.units.get(unit, Costs()).figures()["allocated_usd"] for one in found]


def _print(found: Sequence["SplitSums"], units: Sequence[str], title: str, currency: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from gpucost_cli.rendering import money, printable

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column(currency, overflow="fold")
    for one in found:
        table.add_column(one.policy, justify="right", no_wrap=True)
    for unit in units:
        table.add_row(printable(unit), *(money(amount, currency) for amount in amounts(found, unit)))
    table.add_section()
    for part in ("unallocated_usd", "stranded_usd", "unobserved_usd", "host_usd", "residual_usd", "node_cost_usd"):
        name = part.removesuffix("_usd").replace("_", " ")
        values = [None if one.capacity is None else one.capacity.figures()[part] for one in found]
        table.add_row(
            name, *(money(value, currency) for value in values), style="bold" if part == "node_cost_usd" else None
        )
    Console().print(table)
    for note in dict.fromkeys(note for one in found for note in one.notes):
        Console().print(f"note: {printable(note)}")


def _clusters(stored: "StoredSettings", cluster: str | None, start: datetime) -> list[str]:
    names = stored.clusters(start)
    if cluster is not None and cluster not in names:
        raise InvalidInputError(f"cluster {cluster!r} is not in the settings; there are: {', '.join(names)}")
    return [cluster] if cluster else names
