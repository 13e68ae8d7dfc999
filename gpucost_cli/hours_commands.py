"""`gpucost hours`: restate past hours from stored usage, compare split policies, and redrive dead letters."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from gpucost.core.amounts import Costs
from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import format_timestamp
from gpucost.runtime.json_text import csv_text, dumps
from gpucost_cli.options import HourOption, check_period, container_of, current_user, format_option, stack_option
from gpucost_cli.redrive_command import redrive

if TYPE_CHECKING:
    from gpucost.features.split_policies.comparison import SplitSums
    from gpucost.storage.ports import StoredSettings


@click.group()
def hours() -> None:
    """Restate past hours, compare split policies, and redrive dead letters."""


hours.add_command(redrive)


@hours.command()
@stack_option
@click.option("--from", "--start", "start", required=True, type=HourOption(), help="First hour.")
@click.option("--to", "--end", "end", required=True, type=HourOption(), help="End of the period, exclusive.")
@click.option("--cluster", help="Only this cluster; all clusters by default.")
@click.option(
    "--settings",
    "settings_source",
    default="published",
    show_default=True,
    type=click.Choice(["published", "current"]),
    help="Settings to rate with: those that each hour was published with, or the current ones.",
)
@click.option("--reason", required=True, help="Reason, shown with the changed figures.")
def restate(stack: str, start: datetime, end: datetime, cluster: str | None, settings_source: str, reason: str) -> None:
    """Rate past hours again from their stored usage, through the deployment's queue. No alerts are sent.

    \b
    Example:
      gpucost hours restate --stack gpucost-prod --from 2026-10-01 --to 2026-10-08 --reason "new GPU price"
    """
    from gpucost.pipeline.restate import restate_messages

    check_period(start, end)
    if not 1 <= len(reason.strip()) <= 500:
        raise InvalidInputError(f"--reason has {len(reason.strip())} characters. Pass 1 to 500")
    container = container_of(stack)
    stored, ledger = container.settings_store.current(), container.ledger
    version = stored.version if settings_source == "current" else None
    reason = f"{reason.strip()} ({current_user()})"[:500]
    correlation_id = f"restate-{format_timestamp(datetime.now(UTC))}"
    for name in _clusters_to_restate(stored, cluster, start):
        manifests = [*ledger.manifests(name, start, end), *ledger.adjustments(name, start, end)]
        to_restate = sorted({manifest.hour for manifest in manifests if manifest.status != "incomplete"})
        messages = restate_messages(
            name, to_restate, settings_version=version, reason=reason, correlation_id=correlation_id
        )
        container.bus.send_due(messages)
        click.echo(f"{len(to_restate)} hours of cluster {name} are queued")


@hours.command(name="compare-splits")
@stack_option
@click.option("--from", "--start", "start", required=True, type=HourOption(), help="First hour.")
@click.option("--to", "--end", "end", required=True, type=HourOption(), help="End of the period, exclusive.")
@click.option("--cluster", help="Only this cluster; all clusters by default.")
@format_option("table", "json", "csv")
def compare_splits(stack: str, start: datetime, end: datetime, cluster: str | None, output_format: str) -> None:
    """Show what each split policy would charge each business unit for the same hours. Changes nothing.

    \b
    Example:
      gpucost hours compare-splits --stack gpucost-prod --from 2026-10-01 --to 2026-10-02 --format json
    """
    from gpucost.features.split_policies import MAX_DAYS

    check_period(start, end)
    if end - start > timedelta(days=MAX_DAYS):
        raise InvalidInputError(f"the period has more than {MAX_DAYS} days. Compare a shorter one")
    container = container_of(stack)
    splits = container.split_comparer.compare(
        _clusters_to_restate(container.settings_store.current(), cluster, start), start, end
    )
    if not any(split.hour_count for split in splits):
        raise InvalidInputError(
            f"no hour from {format_timestamp(start)} to {format_timestamp(end)} has stored usage. Compare other hours, "
            "or attribute these first: gpucost backfill"
        )
    units = sorted({unit for split in splits for unit in split.costs_by_unit})
    if output_format == "json":
        document = {"start": start, "end": end, "policies": [split.fields() for split in splits]}
        sys.stdout.write(dumps(document, indent=2) + "\n")
    elif output_format == "csv":
        header = ["business_unit", *(split.policy_name for split in splits)]
        sys.stdout.write(csv_text(header, [[unit, *amounts_by_policy(splits, unit)] for unit in units]))
    else:
        title = f"{format_timestamp(start)} to {format_timestamp(end)}, {splits[0].hour_count} cluster-hours"
        _print_split_comparison(splits, units, title, splits[0].currency)


def amounts_by_policy(splits: Sequence["SplitSums"], unit: str) -> list[Decimal | None]:
    """What each policy would charge a business unit; None where none of its hours has a price."""
    return [split.costs_by_unit.get(unit, Costs()).figures()["allocated_usd"] for split in splits]


def _print_split_comparison(splits: Sequence["SplitSums"], units: Sequence[str], title: str, currency: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from gpucost_cli.rendering import money, printable

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column(currency, overflow="fold")
    for split in splits:
        table.add_column(split.policy_name, justify="right", no_wrap=True)
    for unit in units:
        table.add_row(printable(unit), *(money(amount, currency) for amount in amounts_by_policy(splits, unit)))
    table.add_section()
    for part in ("unallocated_usd", "stranded_usd", "unobserved_usd", "host_usd", "residual_usd", "node_cost_usd"):
        name = part.removesuffix("_usd").replace("_", " ")
        costs = [None if split.capacity is None else split.capacity.figures()[part] for split in splits]
        table.add_row(
            name, *(money(cost, currency) for cost in costs), style="bold" if part == "node_cost_usd" else None
        )
    Console().print(table)
    for note in dict.fromkeys(note for split in splits for note in split.notes):
        Console().print(f"note: {printable(note)}")


def _clusters_to_restate(stored: "StoredSettings", cluster: str | None, start: datetime) -> list[str]:
    names = stored.clusters(start)
    if cluster is not None and cluster not in names:
        raise InvalidInputError(f"cluster {cluster!r} is not in the settings; allowed: {', '.join(names)}")
    return [cluster] if cluster else names
