"""`gpucost report`: cost reports of a deployment's API in a terminal."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click

from gpucost.core.errors import InvalidInputError, did_you_mean
from gpucost.core.hours import floor_hour, format_timestamp
from gpucost.core.query.dimensions import DIMENSIONS, MODEL_DIMENSIONS
from gpucost_cli.aws_session import aws_options
from gpucost_cli.options import STACK_HELP, HourOption

FILTERS = (*(name for name in DIMENSIONS if name != "cluster"), "label")
MODEL_FILTERS = tuple(name for name in MODEL_DIMENSIONS if name != "cluster")


@click.command()
@click.option("--stack", help=STACK_HELP)
@aws_options
@click.option("--api", help="URL of an API that needs no signature, such as the demo's.")
@click.option(
    "--start",
    "--from",
    "start",
    type=HourOption(),
    help="Start of the period: an hour or a day; by default one day before the end.",
)
@click.option(
    "--end", "--to", "end", type=HourOption(), help="End of the period, exclusive; by default the last full hour."
)
@click.option(
    "--window",
    help="Instead of --start and --end: 24h (the default), 7d, today, yesterday, week, lastweek, month, lastmonth.",
)
@click.option("--days", type=click.IntRange(1, 371), help="Instead of --window: the last UTC days, including today.")
@click.option("--group-by", help="Comma-separated dimensions: business_unit,workload,label:team …")
@click.option(
    "--granularity", type=click.Choice(["hour", "day", "week", "month", "total"]), help="Length of each row's period."
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="DIMENSION=VALUES",
    help="namespace=a,b or workload=train-* or zone=!x. May be repeated for other dimensions.",
)
@click.option("--cluster", help="Only these clusters.")
@click.option(
    "--inference", "is_inference", is_flag=True, help="Costs and tokens of models that inference servers serve."
)
@click.option(
    "--idle",
    type=click.Choice(["hidden", "separate", "shared-by-allocation", "shared-evenly"]),
    help="How to report idle costs.",
)
@click.option("--sort", help="Comma-separated figures, with - for descending order: -waste_usd.")
@click.option(
    "--format",
    "form",
    default="table",
    show_default=True,
    type=click.Choice(["table", "json", "csv"]),
    help="Format of the output.",
)
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
    is_inference: bool,
    idle: str | None,
    sort: str | None,
    form: str,
) -> None:
    """Report costs by business unit, or by other dimensions.

    \b
    Example:
      gpucost report --stack gpucost --window 7d --group-by namespace,workload
      gpucost report --stack gpucost --window 7d --inference
    """
    from gpucost_cli import report as reports

    if (stack is None) == (api is None):
        raise InvalidInputError(
            "pass --stack NAME of a deployment, or --stack local for the running demo. Without a deployment, run "
            "gpucost attribute --prometheus URL, or gpucost serve --prometheus URL and then gpucost report --api "
            "http://127.0.0.1:8080"
            if stack is None
            else "--stack and --api are both set. Pass one of them"
        )
    if api is not None and not api.startswith(("http://", "https://")):
        raise InvalidInputError(f"--api {api!r} is not a URL. Pass for example http://127.0.0.1:8080")
    parameters = _period_parameters(start, end, window, days) | ({"cluster": cluster} if cluster else {})
    options = {
        "group_by": group_by,
        "granularity": granularity,
        "idle": idle,
        "sort": sort,
        **_filter_parameters(filters, MODEL_FILTERS if is_inference else FILTERS),
    }
    sent_options = {name: value for name, value in options.items() if value is not None}
    if is_inference:
        if idle is not None:
            raise InvalidInputError("--idle is not available with --inference. Idle costs belong to no model")
        models = {"granularity": "total", "group_by": "model", **sent_options}
        reports.show_models(stack=stack, api=api, parameters={**parameters, **models}, output_format=form)
        return
    if not sent_options and form != "csv":
        reports.show_units(stack=stack, api=api, parameters=parameters, output_format=form)
        return
    defaults = {"granularity": "total", "group_by": "business_unit"}
    reports.show_costs(stack=stack, api=api, parameters={**parameters, **defaults, **sent_options}, output_format=form)


def _period_parameters(
    start: datetime | None, end: datetime | None, window: str | None, days: int | None
) -> dict[str, str]:
    if sum((start is not None or end is not None, window is not None, days is not None)) > 1:
        raise InvalidInputError("the period is set in several ways. Pass --start and --end, or --window, or --days")
    if days is not None:
        return {"window": f"{days}d"}
    if window is not None:
        return {"window": window}
    if start is None and end is None:
        return {}  # the API's default window
    last = end or floor_hour(datetime.now(UTC))
    return {"start": format_timestamp(start or last - timedelta(days=1)), "end": format_timestamp(last)}


def _filter_parameters(texts: tuple[str, ...], dimensions: Sequence[str]) -> dict[str, str]:
    filters: dict[str, str] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or name not in dimensions:
            meant = did_you_mean(name, dimensions) if name not in dimensions else ""
            hint = " ".join(filter(None, (meant, f"Dimensions: {', '.join(dimensions)}")))
            raise InvalidInputError(f"--filter {text!r} is not DIMENSION=VALUES. {hint}")
        if name in filters:
            raise InvalidInputError(f"--filter {name} is passed twice. Pass it once, with comma-separated values")
        filters[name] = values
    return filters
