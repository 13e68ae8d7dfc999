"""`gpucost what-if`: what the last days would have looked like, from the ledger."""

import re
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from gpucost.core.errors import InvalidInputError
from gpucost_cli.options import settings_store, stack_option

if TYPE_CHECKING:
    from gpucost.features.recommendations.what_if import Move, Outcome

_MOVE = re.compile(
    r"(?P<gpus>[1-9]\d{0,5})\s*x?\s+(?P<model>\S.*?)\s+to\s+(?P<profile>[1-7]g\.\d+gb(?:\+me)?)", re.IGNORECASE
)
_MONTH = Decimal(730)


@click.command("what-if")
@stack_option
@click.option("--business-unit", required=True, help="whose GPUs")
@click.option("--move", required=True, metavar="'10 A100 to 3g.20gb'", help="how many whole GPUs to which MIG profile")
@click.option("--days", default=30, show_default=True, type=click.IntRange(1, 100), help="the last whole UTC days")
@click.option("--cluster", help="only this cluster; all where not given")
@click.option("--format", "form", default="table", show_default=True, type=click.Choice(["table", "json"]))
def what_if(stack: str, business_unit: str, move: str, days: int, cluster: str | None, form: str) -> None:
    """What if a business unit moved GPUs to MIG slices, by the figures of the last days.

    Nothing is changed. What is freed is unallocated, and saves money once its nodes go.
    """
    from gpucost.features.recommendations.scenarios import WhatIfService
    from gpucost.features.recommendations.what_if import Move
    from gpucost.runtime import aws
    from gpucost.runtime.json_text import dumps
    from gpucost.storage.rollups import RollupStore
    from gpucost_cli import deployment

    match = _MOVE.fullmatch(move.strip())
    if match is None:
        raise InvalidInputError(f"--move {move!r} is not written like '10 A100 to 3g.20gb'")
    store, table = settings_store(stack), deployment.find(stack).table
    scenarios = WhatIfService(store, RollupStore(aws.client("dynamodb"), table), clock=lambda: datetime.now(UTC))
    wanted = Move(business_unit, int(match["gpus"]), match["model"], match["profile"].lower())
    outcome, currency = scenarios.what_if(wanted, days=days, cluster=cluster)
    if form == "json":
        sys.stdout.write(dumps(document(outcome, currency), indent=2) + "\n")
    else:
        _tables(outcome, currency, wanted)


def document(outcome: "Outcome", currency: str) -> dict[str, Any]:
    """An outcome as JSON has it, with all digits."""
    return {
        "days": outcome.days,
        "currency": currency,
        "before": outcome.before.figures(),
        "after": outcome.after.figures(),
        "fleet_before": outcome.capacity_before.figures(),
        "fleet_after": outcome.capacity_after.figures(),
        "moved_gpu_hours": outcome.moved_gpu_hours,
        "moved_gpus": outcome.moved_gpus,
        "freed_gpu_hours": outcome.freed_gpu_hours,
        "freed_usd": outcome.freed_usd,
        "slices_busy": outcome.busy,
        "conserved": outcome.is_conserved,
    }


def _tables(outcome: "Outcome", currency: str, wanted: "Move") -> None:
    from rich import box
    from rich.table import Table

    from gpucost_cli.rendering import money, print_table, printable

    table = Table(
        title=f"{printable(wanted.business_unit)}, {outcome.days} days", box=box.SIMPLE_HEAD, title_justify="left"
    )
    table.add_column("")
    for name in ("as it was", "as it would be", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [
        (name, getattr(outcome.before, f"{name}_usd"), getattr(outcome.after, f"{name}_usd"))
        for name in ("allocated", "effective", "waste", "unmeasured")
    ]
    before, after = outcome.capacity_before, outcome.capacity_after
    rows += [
        ("unallocated, all units", before.unallocated_usd, after.unallocated_usd),
        ("node cost, all units", before.node_cost_usd, after.node_cost_usd),
    ]
    for name, was, is_ in rows:
        table.add_row(name, money(was, currency), money(is_, currency), money(is_ - was, currency))
    print_table(table)
    if outcome.moved_gpus < wanted.gpus:
        click.echo(
            f"moved: {outcome.moved_gpus:.2f} GPUs on average, not {wanted.gpus}: these days have no more of the unit's"
        )
    monthly = outcome.freed_usd / outcome.days / 24 * _MONTH
    click.echo(
        f"freed: {outcome.freed_gpu_hours / outcome.days / 24:.2f} GPUs, {money(monthly, currency)} a month once their "
        "nodes go; unallocated until then"
    )
    if outcome.busy is None:
        click.echo("nobody observed how busy they were: whether the slices would do is not known")
    else:
        verdict = "they would not do the work" if outcome.busy > 1 else "on average; peaks and memory are not in this"
        click.echo(f"the slices would have been {outcome.busy:.0%} busy: {verdict}")
    click.echo("everything still adds up to what the nodes cost" if outcome.is_conserved else "figures do not add up")
