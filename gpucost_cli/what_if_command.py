"""`gpucost recommendations what-if`: the last days with some GPUs moved to MIG slices."""

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from gpucost.core.amounts import to_decimal
from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOURS_PER_MONTH
from gpucost_cli.options import container_of, format_option, stack_option

if TYPE_CHECKING:
    from gpucost.features.recommendations.what_if import MoveToSlices, SliceMoveOutcome

_MOVE = re.compile(
    r"(?P<gpus>[1-9]\d{0,5})\s*x?\s+(?P<model>\S.*?)\s+to\s+(?P<profile>[1-7]g\.\d+gb(?:\+me)?)", re.IGNORECASE
)


@click.command("what-if")
@stack_option
@click.option("--business-unit", required=True, help="The business unit that holds the GPUs.")
@click.option(
    "--move", required=True, metavar="'10 A100 to 3g.20gb'", help="Number of whole GPUs, GPU model and MIG profile."
)
@click.option(
    "--days", default=30, show_default=True, type=click.IntRange(1, 100), help="Number of whole UTC days to look back."
)
@click.option("--cluster", help="Only this cluster; otherwise all clusters.")
@format_option("table", "json")
def what_if(stack: str, business_unit: str, move: str, days: int, cluster: str | None, output_format: str) -> None:
    """Show what the last days would have cost if a business unit had moved GPUs to MIG slices.

    The command changes nothing. Freed GPUs become unallocated, and save money when their nodes are removed.

    \b
    Example:
      gpucost recommendations what-if --stack gpucost-prod --business-unit foundation-models --move '4 A100 to 3g.20gb'
    """
    from gpucost.features.recommendations.what_if import MoveToSlices, WhatIfService
    from gpucost.runtime.json_text import dumps

    match = _MOVE.fullmatch(move.strip())
    if match is None:
        raise InvalidInputError(f"--move {move!r} is invalid; write it like '10 A100 to 3g.20gb'")
    container = container_of(stack)
    service = WhatIfService(container.settings_store, container.rollups, clock=container.clock)
    move_request = MoveToSlices(business_unit, int(match["gpus"]), match["model"], match["profile"].lower())
    outcome, currency = service.what_if(move_request, days=days, cluster=cluster)
    if output_format == "json":
        sys.stdout.write(dumps(outcome_document(outcome, currency), indent=2) + "\n")
    else:
        _print_tables(outcome, currency, move_request)


def outcome_document(outcome: "SliceMoveOutcome", currency: str) -> dict[str, Any]:
    """Build the JSON document of an outcome, with all digits."""
    return {
        "days": outcome.days,
        "currency": currency,
        "before": outcome.costs_before.figures(),
        "after": outcome.costs_after.figures(),
        "fleet_before": outcome.capacity_before.figures(),
        "fleet_after": outcome.capacity_after.figures(),
        "moved_gpu_hours": to_decimal(outcome.moved_gpu_hours),
        "moved_gpus": outcome.moved_gpus,
        "freed_gpu_hours": outcome.freed_gpu_hours,
        "freed_usd": outcome.freed_usd,
        "slices_busy": outcome.slice_utilization,
        "conserved": outcome.is_conserved,
    }


def _print_tables(outcome: "SliceMoveOutcome", currency: str, move: "MoveToSlices") -> None:
    from rich import box
    from rich.table import Table

    from gpucost_cli.rendering import money, print_table, printable

    table = Table(
        title=f"{printable(move.business_unit)}, {outcome.days} days", box=box.SIMPLE_HEAD, title_justify="left"
    )
    table.add_column("")
    for name in ("actual", "what if", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [
        (name, getattr(outcome.costs_before, f"{name}_usd"), getattr(outcome.costs_after, f"{name}_usd"))
        for name in ("allocated", "effective", "waste", "unmeasured")
    ]
    before, after = outcome.capacity_before, outcome.capacity_after
    rows += [
        ("unallocated, all units", before.unallocated_usd, after.unallocated_usd),
        ("node cost, all units", before.node_cost_usd, after.node_cost_usd),
    ]
    for name, *amounts in rows:
        actual, projected = map(to_decimal, amounts)
        table.add_row(name, money(actual, currency), money(projected, currency), money(projected - actual, currency))
    print_table(table)
    if outcome.moved_gpus < move.gpus:
        click.echo(
            f"moved: {outcome.moved_gpus:.2f} GPUs on average instead of {move.gpus}, because the unit held no more"
        )
    monthly = outcome.freed_usd / outcome.days / 24 * HOURS_PER_MONTH
    click.echo(
        f"freed: {outcome.freed_gpu_hours / outcome.days / 24:.2f} GPUs, {money(monthly, currency)} a month when "
        "their nodes are removed; unallocated until then"
    )
    if outcome.slice_utilization is None:
        click.echo("no utilization was observed, so it is unknown whether the slices would be enough")
    else:
        note = "they would not be enough" if outcome.slice_utilization > 1 else "on average, without peaks and memory"
        click.echo(f"the slices would have been {outcome.slice_utilization:.0%} utilized: {note}")
    click.echo(
        "the parts add up to the node cost" if outcome.is_conserved else "the parts do not add up to the node cost"
    )
