"""`gpucost backfill`: attribute hours of the past, such as those before the deployment."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost.core.hours import HOUR, format_timestamp
from gpucost_cli.options import HourOption, check_period, container_of, current_time, stack_option

if TYPE_CHECKING:
    from gpucost.pipeline.dispatch import Backfill, BackfillProgress

POLL_SECONDS = 3.0
UNKNOWN_TIME = "-:--:--"
SETTLING_TIME = timedelta(minutes=5)
"""How long after an hour's end its last samples may still arrive; the schedule waits as long."""


@click.command()
@stack_option
@click.option("--from", "--start", "start", required=True, type=HourOption(), help="First hour.")
@click.option("--to", "--end", "end", required=True, type=HourOption(), help="End of the period, exclusive.")
@click.option("--cluster", help="Only this cluster; all clusters by default.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Show progress until every hour is done.")
def backfill(stack: str, start: datetime, end: datetime, cluster: str | None, *, wait: bool) -> None:
    """Attribute past hours through the deployment's queue. No alerts are sent.

    Hours that have figures are skipped, so that running the command again continues where it was interrupted.

    \b
    Example:
      gpucost backfill --stack gpucost-prod --from 2026-10-01 --to 2026-11-01
    """
    from gpucost.pipeline.attribute import check_hour, check_retention
    from gpucost.pipeline.dispatch import Backfill

    check_period(start, end)
    now = current_time()
    check_hour(end - HOUR, now)
    if now < end + SETTLING_TIME:
        end -= HOUR
        click.echo(
            f"hour {format_timestamp(end)} has only just ended and its last samples may not have arrived; "
            "the schedule attributes it",
            err=True,
        )
        if start >= end:
            return
    container = container_of(stack)
    stored = container.settings_store.current()
    clusters = [candidate for candidate in stored.settings.clusters if cluster in {None, candidate.name}]
    if not clusters:
        configured_names = ", ".join(configured.name for configured in stored.settings.clusters)
        raise InvalidInputError(f"cluster {cluster!r} is not in the settings; allowed: {configured_names}")
    for selected in clusters:
        check_retention(start, selected, container.metrics_reader(selected, stored.settings, None), now)
    names = [selected.name for selected in clusters]
    work = Backfill(container.ledger, container.bus, names, start, end, container.clock)
    try:
        sent = work.send(stored.version, f"backfill-{format_timestamp(now)}")
    except KeyboardInterrupt:
        raise GpuCostError(
            "interrupted while hours were being queued; queued hours are still processed. Run the same command again "
            "to queue the others"
        ) from None
    click.echo(f"{sent} hours of {len(clusters)} clusters are queued")
    if wait and sent:
        _show_progress(work, container.sleep)


def _show_progress(work: "Backfill", sleep: Callable[[float], None]) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("hours"),
        TimeElapsedColumn(),
        TextColumn("left: {task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("backfilling", total=None, left=UNKNOWN_TIME)

        def show(progress: "BackfillProgress") -> None:
            waits = f"waiting behind about {progress.other_messages} other messages"
            bar.update(
                task,
                total=progress.total,
                completed=progress.done,
                description=waits if progress.other_messages else "backfilling",
                left=_hours_minutes_seconds(progress.remaining_time),
            )

        try:
            last = work.follow(show, lambda: sleep(POLL_SECONDS))
        except KeyboardInterrupt:
            raise GpuCostError(
                "progress is no longer shown; queued hours are still processed. Running the same command again queues "
                "all unfinished hours, also those that are still in the queue"
            ) from None
    click.echo(f"{last.done - last.incomplete} hours have figures, {last.incomplete} are incomplete")
    if last.incomplete == last.done:
        raise GpuCostError(
            "no hour of the period has figures. /v1/hours says why. To see what is missing, save the settings with "
            "gpucost settings show and run: gpucost doctor --settings FILE"
        )


def _hours_minutes_seconds(remaining: timedelta | None) -> str:
    if remaining is None:
        return UNKNOWN_TIME
    minutes, seconds = divmod(round(remaining.total_seconds()), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
