"""`gpucost backfill`: months of metrics that were there before the deployment."""

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost.core.hours import HOUR, format_instant
from gpucost_cli.options import HourType, settings_store, stack_option

if TYPE_CHECKING:
    from gpucost.pipeline.backfill import Backfill
    from gpucost.pipeline.backfill import Progress as Standing

POLL_SECONDS = 3.0
UNKNOWN = "-:--:--"
SETTLING = timedelta(minutes=5)
"""After an hour's end, until its last samples have arrived: the schedule's own wait."""


@click.command()
@stack_option
@click.option("--from", "--start", "start", required=True, type=HourType(), help="first hour")
@click.option("--to", "--end", "end", required=True, type=HourType(), help="end, itself not in it")
@click.option("--cluster", help="only this cluster; all where not given")
@click.option("--wait/--no-wait", default=True, show_default=True, help="follow until every hour is done")
def backfill(stack: str, start: datetime, end: datetime, cluster: str | None, *, wait: bool) -> None:
    """Attribute past hours through the deployment's own queue; nobody is notified.

    Hours that have figures are left as they are, so that running it again goes on where it was interrupted.
    """
    from gpucost.pipeline.attribute import check_hour, check_retention
    from gpucost.pipeline.backfill import Backfill
    from gpucost.runtime import aws
    from gpucost.sources.prometheus import metrics_reader
    from gpucost.storage.ledger import DynamoLedgerTmp
    from gpucost_cli import deployment

    if start >= end:
        raise InvalidInputError("--to must be after --from")
    now = datetime.now(UTC)
    check_hour(end - HOUR, now)
    if now < end + SETTLING:
        end -= HOUR
        click.echo(
            f"hour {format_instant(end)} has only just ended, and its last samples may be under way: it is left to the "
            "schedule",
            err=True,
        )
        if start >= end:
            return
    found = deployment.find(stack)
    stored = settings_store(stack).current()
    clusters = [one for one in stored.settings.clusters if cluster in {None, one.name}]
    if not clusters:
        names = ", ".join(one.name for one in stored.settings.clusters)
        raise InvalidInputError(f"cluster {cluster!r} is not in the settings; there are: {names}")
    for one in clusters:
        check_retention(start, one, metrics_reader(one, stored.settings), now)
    ledger = DynamoLedgerTmp(aws.client("dynamodb"), found.table)
    work = Backfill(ledger, found.bus(), [one.name for one in clusters], start, end, lambda: datetime.now(UTC))
    try:
        sent = work.send(stored.version, f"backfill-{format_instant(now)}")
    except KeyboardInterrupt:
        raise GpuCostError(
            "interrupted while hours were sent; those that were go on, and running the same command again sends what "
            "is left by then"
        ) from None
    click.echo(f"{sent} hours of {len(clusters)} clusters are under way")
    if wait and sent:
        _follow(work)


def _follow(work: "Backfill") -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("hours"), TimeElapsedColumn(),
        TextColumn("left: {task.fields[left]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("backfilling", total=None, left=UNKNOWN)

        def tell(now: "Standing") -> None:
            doing = f"waiting behind about {now.ahead} messages of others" if now.ahead else "backfilling"
            bar.update(task, total=now.wanted, completed=now.done, description=doing, left=_clock_face(now.remaining))

        try:
            last = work.follow(tell, lambda: time.sleep(POLL_SECONDS))
        except KeyboardInterrupt:
            raise GpuCostError(
                "no longer looked at; the hours sent go on, and running the same command again sends what is left by "
                "then, a second time where it still waits"
            ) from None
    click.echo(f"{last.done - last.incomplete} hours have figures, {last.incomplete} are incomplete")
    if last.incomplete == last.done:
        raise GpuCostError(
            "no hour of the period has figures; /v1/hours says why; to see what is missing, save the settings with "
            "gpucost settings show, and run: gpucost doctor --settings FILE"
        )


def _clock_face(remaining: timedelta | None) -> str:
    if remaining is None:
        return UNKNOWN
    minutes, seconds = divmod(round(remaining.total_seconds()), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
