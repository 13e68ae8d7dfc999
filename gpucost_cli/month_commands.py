"""`gpucost months`: close a month for chargeback, reopen it, and show its pending adjustments."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from msgspec.structs import asdict

from gpucost.core.amounts import Costs
from gpucost.runtime.json_text import csv_text, dumps
from gpucost_cli.options import container_of, current_user, format_option, stack_option

if TYPE_CHECKING:
    from gpucost.pipeline.months import Adjustments, MonthService

month_option = click.option("--month", required=True, help="UTC month, for example 2026-10.")


@click.group()
def months() -> None:
    """Close months for chargeback, and reopen them."""


@months.command()
@stack_option
@month_option
@click.option("--reason", default="closed for chargeback", show_default=True, help="Stored with the closed month.")
@click.option("--force", is_flag=True, help="Close the month even if some hours have no figures, or no final ones.")
def close(stack: str, month: str, reason: str, *, force: bool) -> None:
    """Close a month: its figures no longer change, and later changes are recorded as adjustments.

    A month with missing, incomplete or provisional hours is refused without --force.

    \b
    Example:
      gpucost months close --stack gpucost-prod --month 2026-10 --reason "invoiced"
    """
    closed, coverage = _month_service(stack).close(month, author=current_user(), reason=reason, force=force)
    click.echo(f"{closed.month} is closed: {coverage}")
    click.echo(
        "These figures no longer change. Later ones are adjustments: gpucost months adjustments shows them, and "
        "gpucost months reopen applies them"
    )


@months.command()
@stack_option
@month_option
def reopen(stack: str, month: str) -> None:
    """Reopen a closed month and apply its pending adjustments.

    \b
    Example:
      gpucost months reopen --stack gpucost-prod --month 2026-10
    """
    applied = _month_service(stack).reopen(month, _progress())
    if sys.stderr.isatty():
        click.echo(err=True)
    click.echo(f"{month} is open; {applied} hours changed")


@months.command("adjustments")
@stack_option
@month_option
@format_option("table", "json", "csv")
def show_adjustments(stack: str, month: str, output_format: str) -> None:
    """Compare a closed month's figures with what they would be now, by cluster and business unit.

    \b
    Example:
      gpucost months adjustments --stack gpucost-prod --month 2026-10 --format csv
    """
    adjustments = _month_service(stack).adjustments(month)
    if output_format == "json":
        sys.stdout.write(adjustments_json(adjustments) + "\n")
    elif output_format == "csv":
        sys.stdout.write(adjustments_csv(adjustments))
    else:
        _print_adjustments(adjustments)


def _progress() -> Callable[[int], None]:
    """Print a count that replaces itself; nothing if stderr is not a terminal, such as a log."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda hours: click.echo(f"\r{hours} hours", nl=False, err=True)


def adjustments_json(adjustments: "Adjustments") -> str:
    """All amounts of both versions, with all digits."""
    rows = [
        {
            "cluster": row.cluster,
            "business_unit": row.business_unit,
            "currency": row.currency,
            "closed": row.closed_costs.figures(),
            "now": row.current_costs.figures(),
        }
        for row in adjustments.rows
    ]
    return dumps({**asdict(adjustments.month), "hours": adjustments.hour_count, "rows": rows}, indent=2)


def adjustments_csv(adjustments: "Adjustments") -> str:
    """One row per cluster and business unit: each amount as closed, and as it would be now."""
    names = Costs.names()
    header = [
        "month",
        "cluster",
        "business_unit",
        "currency",
        *(f"{kind}_{name}" for kind in ("closed", "now") for name in names),
    ]
    rows = [
        [adjustments.month.month, row.cluster, row.business_unit, row.currency]
        + [costs.figures()[name] for costs in (row.closed_costs, row.current_costs) for name in names]
        for row in adjustments.rows
    ]
    return csv_text(header, rows)


def _print_adjustments(adjustments: "Adjustments") -> None:
    from rich import box
    from rich.table import Table

    from gpucost_cli.rendering import money, print_table, printable

    month = adjustments.month
    title = f"{month.month}, closed {month.closed_at:%Y-%m-%d} by {month.author}: {month.reason}"
    table = Table(
        "cluster",
        "business unit",
        title=printable(title),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption=f"{adjustments.hour_count} hours have a pending adjustment",
        caption_justify="left",
    )
    for name in ("allocated, closed", "now", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in adjustments.rows:
        closed, now = (row.closed_costs.figures()["allocated_usd"], row.current_costs.figures()["allocated_usd"])
        change = None if closed is None or now is None else now - closed
        amounts = (money(amount, row.currency) for amount in (closed, now, change))
        table.add_row(printable(row.cluster), printable(row.business_unit), *amounts)
    print_table(table)


def _month_service(stack: str) -> "MonthService":
    from gpucost.pipeline.months import MonthService

    container = container_of(stack)
    ledger = container.ledger
    return MonthService(container.settings_store, ledger, ledger.versions, container.rollups, container.clock)
