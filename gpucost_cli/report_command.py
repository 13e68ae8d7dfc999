"""`gpucost report`: questions to a deployment's API from a terminal."""

from datetime import UTC, datetime, timedelta

import click

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import floor_hour, format_timestamp
from gpucost.core.query.dimensions import DIMENSIONS
from gpucost_cli.aws_session import aws_options
from gpucost_cli.options import STACK_HELP, HourType

FILTERS = (*(name for name in DIMENSIONS if name != "cluster"), "label")


@click.command()
@click.option("--stack", help=STACK_HELP)
@aws_options
@click.option("--api", help="address of an API that asks for no signature, as the demo's")
@click.option("--start", "--from", "start", type=HourType(), help="first hour or day; a day before the end by default")
@click.option("--end", "--to", "end", type=HourType(), help="end, itself not in it; the last full hour by default")
@click.option(
    "--window",
    help="instead of both: 24h (the default), 7d, today, yesterday, week, lastweek, month, lastmonth",
)
@click.option("--days", type=click.IntRange(1, 371), help="as --window: the last UTC days, today included")
@click.option("--group-by", help="dimensions with commas: business_unit,workload,label:team …")
@click.option("--granularity", type=click.Choice(["hour", "day", "week", "month", "total"]), help="length of a row")
@click.option("--filter", "filters", multiple=True, metavar="DIMENSION=VALUES",
              help="namespace=a,b or workload=train-* or zone=!x; may be given for several dimensions")  # fmt: skip
@click.option("--cluster", help="these clusters alone")
@click.option("--idle", type=click.Choice(["hidden", "separate", "shared-by-allocation", "shared-evenly"]),
              help="who bears what nobody held")  # fmt: skip
@click.option("--sort", help="figures with commas, - for the largest first: -waste_usd")
@click.option("--format", "form", default="table", show_default=True, type=click.Choice(["table", "json", "csv"]))
def report(
    stack: str | None,
    api: str | None,
    start: datetime | None,
    end: datetime | None,
    window: str | None,
    days: int | None,
    group_by: str | None,
    granularity: str | None,
    filters: tuple[str, ...],
    cluster: str | None,
    idle: str | None,
    sort: str | None,
    form: str,
) -> None:
    """What business units cost, or anything else, as the API of a deployment answers it."""
    from gpucost_cli import report as reports

    if (stack is None) == (api is None):
        raise InvalidInputError("exactly one of --stack and --api is needed")
    if api is not None and not api.startswith(("http://", "https://")):
        raise InvalidInputError(f"--api {api!r} is not an address like http://127.0.0.1:8080")
    question = _period(start, end, window, days) | ({"cluster": cluster} if cluster else {})
    asked = {"group_by": group_by, "granularity": granularity, "idle": idle, "sort": sort, **_filters(filters)}
    more = {name: value for name, value in asked.items() if value is not None}
    if not more and form != "csv":
        reports.show_units(stack=stack, api=api, question=question, form=form)
        return
    defaults = {"granularity": "total", "group_by": "business_unit"}
    reports.show_costs(stack=stack, api=api, question={**question, **defaults, **more}, form=form)


def _period(start: datetime | None, end: datetime | None, window: str | None, days: int | None) -> dict[str, str]:
    if sum((start is not None or end is not None, window is not None, days is not None)) > 1:
        raise InvalidInputError("give --start and --end, or --window, or --days")
    if days is not None:
        return {"window": f"{days}d"}
    if window is not None:
        return {"window": window}
    if start is None and end is None:
        return {}  # the API's default, which its answer names
    last = end or floor_hour(datetime.now(UTC))
    return {"start": format_timestamp(start or last - timedelta(days=1)), "end": format_timestamp(last)}


def _filters(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given:
        name, equals, values = one.partition("=")
        if not equals or name not in FILTERS:
            raise InvalidInputError(f"--filter {one!r} is not DIMENSION=VALUES; dimensions: {', '.join(FILTERS)}")
        if name in found:
            raise InvalidInputError(f"--filter {name} is given twice; name its values with commas")
        found[name] = values
    return found
