"""`gpucost freeze`, `unfreeze` and `adjustments`: months closed for chargeback, and what came afterwards."""

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gpucost.core.model import Costs
from gpucost.runtime.json_text import csv_text, dumps
from gpucost_cli.options import author, settings_store, stack_option

if TYPE_CHECKING:
    from gpucost.pipeline.months import Adjustments, Freezing

month_option = click.option("--month", required=True, help="UTC month, as 2026-10")


@click.command()
@stack_option
@month_option
@click.option("--reason", default="closed for chargeback", show_default=True, help="why; people read it beside")
@click.option("--as-it-is", is_flag=True, help="although some hours may still move")
def freeze(stack: str, month: str, reason: str, *, as_it_is: bool) -> None:
    """Close a month: its figures stay, and what is found out later is recorded beside them."""
    frozen = _freezing(stack).freeze(month, author=author(), reason=reason, as_it_is=as_it_is)
    click.echo(f"{frozen.month} is frozen; gpucost adjustments shows what comes later")


@click.command()
@stack_option
@month_option
def unfreeze(stack: str, month: str) -> None:
    """Open a month again, and put what was recorded beside it in force."""
    done = _freezing(stack).unfreeze(month, lambda hours: click.echo(f"\r{hours} hours", nl=False, err=True))
    click.echo(err=True)
    click.echo(f"{month} is open; {done} hours changed")


@click.command()
@stack_option
@month_option
@click.option("--format", "form", default="table", show_default=True, type=click.Choice(["table", "json", "csv"]))
def adjustments(stack: str, month: str, form: str) -> None:
    """What a frozen month would say now, beside what it says, by cluster and business unit."""
    found = _freezing(stack).adjustments(month)
    if form == "json":
        sys.stdout.write(adjustments_json(found) + "\n")
    elif form == "csv":
        sys.stdout.write(adjustments_csv(found))
    else:
        _print(found)


def adjustments_json(found: "Adjustments") -> str:
    """All digits, every amount of both versions."""
    rows = [
        {
            "cluster": row.cluster,
            "business_unit": row.business_unit,
            "currency": row.currency,
            "frozen": row.frozen.figures(),
            "now": row.now.figures(),
        }
        for row in found.rows
    ]
    return dumps({**asdict(found.month), "hours": found.hours, "rows": rows}, indent=2)


def adjustments_csv(found: "Adjustments") -> str:
    """One row per cluster and unit: each amount as frozen, and as it would be now."""
    names = Costs.names()
    header = [
        "month",
        "cluster",
        "business_unit",
        "currency",
        *(f"{kind}_{name}" for kind in ("frozen", "now") for name in names),
    ]
    rows = [
        [found.month.month, row.cluster, row.business_unit, row.currency]
        + [side.figures()[name] for side in (row.frozen, row.now) for name in names]
        for row in found.rows
    ]
    return csv_text(header, rows)


def _print(found: "Adjustments") -> None:
    from rich import box
    from rich.table import Table

    from gpucost_cli.rendering import money, printable, put

    month = found.month
    title = f"{month.month}, frozen {month.closed_at:%Y-%m-%d} by {month.author}: {month.reason}"
    table = Table(
        "cluster", "business unit", title=printable(title), box=box.SIMPLE_HEAD, title_justify="left",
        caption=f"{found.hours} hours have a later version", caption_justify="left",
    )  # fmt: skip
    for name in ("allocated, frozen", "now", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found.rows:
        before, now = row.frozen.figures()["allocated_usd"], row.now.figures()["allocated_usd"]
        change = None if before is None or now is None else now - before
        amounts = (money(amount, row.currency) for amount in (before, now, change))
        table.add_row(printable(row.cluster), printable(row.business_unit), *amounts)
    put(table)


def _freezing(stack: str) -> "Freezing":
    from gpucost.pipeline.months import Freezing
    from gpucost.runtime import aws
    from gpucost.storage.ledger import DynamoLedgerTmp
    from gpucost.storage.rollups import DynamoRollups
    from gpucost_cli import deployment

    table, client = deployment.find(stack).table, aws.client("dynamodb")
    ledger = DynamoLedgerTmp(client, table)
    return Freezing(
        settings_store(stack), ledger, ledger.versions, DynamoRollups(client, table), lambda: datetime.now(UTC)
    )
