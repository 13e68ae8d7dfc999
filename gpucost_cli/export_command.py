"""`gpucost export`: exports days immediately, with the deployment's export function."""

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost.core.hours import floor_day, format_timestamp
from gpucost_cli.options import HourOption, check_period, stack_option

DAY = timedelta(days=1)
INVOCATION_SECONDS = 910
"""A little longer than the function's timeout."""
LOCAL_ACCOUNT = "123456789012"
"""Account ID of the demo's emulated AWS."""


@click.command()
@stack_option
@click.option(
    "--from", "--start", "start", required=True, type=HourOption(), help="First UTC day, for example 2026-10-01."
)
@click.option("--to", "--end", "end", required=True, type=HourOption(), help="End of the period, exclusive.")
@click.option("--cluster", help="Only this cluster; all clusters by default.")
def export(stack: str, start: datetime, end: datetime, cluster: str | None) -> None:
    """Export days as FOCUS rows to the deployment's bucket, whether or not they are due.

    The command can be repeated. The current day is exported with the hours computed so far.

    \b
    Example:
      gpucost export --stack gpucost --from 2026-10-01 --to 2026-11-01
    """
    from gpucost_cli import deployment

    now = datetime.now(UTC)
    for option, moment in (("--from", start), ("--to", end)):
        if floor_day(moment) != moment:
            raise InvalidInputError(
                f"{option} {format_timestamp(moment)} is not the start of a UTC day. Pass for example 2026-10-01"
            )
    check_period(start, end)
    if start > now:
        raise InvalidInputError(
            f"--from {format_timestamp(start)} is in the future. Pass today (UTC) or an earlier day"
        )
    outputs = deployment.find_deployment(stack)
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
            exported = _export_day(stack, outputs, event)
        except InvalidInputError:
            raise
        except GpuCostError as error:
            failures.append(str(error))
            click.echo(f"{day:%Y-%m-%d} failed: {error}", err=True)
        else:
            days += len(exported)
            for exported_day in exported:
                columns = (
                    exported_day["day"],
                    exported_day["cluster"],
                    f"{exported_day['rows']} rows",
                    exported_day["status"],
                )
                click.echo("\t".join(columns))
        day += DAY
    if failures:
        raise GpuCostError(f"{len(failures)} days failed, {days} were exported. Run the command again for the rest.")
    if not days:
        click.echo("nothing was exported, because the ledger has no hours of these days")


def _export_day(stack: str, outputs: Any, event: dict[str, Any]) -> list[dict[str, Any]]:
    from gpucost_cli.invocation import invoke, run_locally
    from gpucost_devstack.demo_records import is_demo

    if is_demo(stack):
        variables = {
            "GPUCOST_TABLE": outputs.table,
            "GPUCOST_EXPORT_BUCKET": outputs.export_bucket,
            "GPUCOST_BILLING_ACCOUNT": LOCAL_ACCOUNT,
        }
        return list(run_locally(stack, "ExportFunction", "export", variables, event)["exported"])
    return list(invoke(outputs.export_function, event, seconds=INVOCATION_SECONDS)["exported"])
