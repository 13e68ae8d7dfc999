"""`gpucost export`: days exported at once, by the deployment's own function."""

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost.core.hours import floor_day, format_timestamp
from gpucost_cli.options import HourType, stack_option

DAY = timedelta(days=1)
INVOCATION_SECONDS = 910
"""A little longer than the function may take."""
LOCAL_ACCOUNT = "123456789012"
"""The embedded AWS's."""


@click.command()
@stack_option
@click.option("--from", "--start", "start", required=True, type=HourType(), help="first UTC day, as 2026-10-01")
@click.option("--to", "--end", "end", required=True, type=HourType(), help="end, itself not in it")
@click.option("--cluster", help="only this cluster; all where not given")
def export(stack: str, start: datetime, end: datetime, cluster: str | None) -> None:
    """Export days as FOCUS rows to the deployment's bucket, whether they are due or not.

    Running it again changes nothing but what was restated meanwhile; a day under way is exported as far as it is known.
    """
    from gpucost_cli import deployment

    now = datetime.now(UTC)
    for option, moment in (("--from", start), ("--to", end)):
        if floor_day(moment) != moment:
            raise InvalidInputError(f"{option} {format_timestamp(moment)} is not the start of a UTC day")
    if start >= end:
        raise InvalidInputError("--to must be after --from")
    if start > now:
        raise InvalidInputError(f"--from {format_timestamp(start)} has not come yet")
    found = deployment.find(stack)
    days, failures = 0, []
    day = start
    while day < min(end, now):
        event = {
            "version": 1,
            "scheduled_time": format_timestamp(now),
            "first_day": format_timestamp(day),
            "cluster": cluster,
        }
        try:
            exported = _run(stack, found, event)
        except InvalidInputError:
            raise
        except GpuCostError as error:
            failures.append(str(error))
            click.echo(f"{day:%Y-%m-%d} failed: {error}", err=True)
        else:
            days += len(exported)
            for one in exported:
                click.echo(f"{one['day']}\t{one['cluster']}\t{one['rows']} rows\t{one['status']}")
        day += DAY
    if failures:
        raise GpuCostError(
            f"{len(failures)} days failed, {days} days of clusters are exported; run it again for the rest"
        )
    if not days:
        click.echo("nothing was exported: the ledger has no hours of these days")


def _run(stack: str, found: Any, event: dict[str, Any]) -> list[dict[str, Any]]:
    from devstack.demo_records import is_demo
    from gpucost_cli.invocation import invoke, run_locally

    if is_demo(stack):
        variables = {
            "GPUCOST_TABLE": found.table,
            "GPUCOST_EXPORT_BUCKET": found.export_bucket,
            "GPUCOST_BILLING_ACCOUNT": LOCAL_ACCOUNT,
        }
        return list(run_locally(stack, "ExportFunction", "export", variables, event)["exported"])
    return list(invoke(found.export_function, event, seconds=INVOCATION_SECONDS)["exported"])
