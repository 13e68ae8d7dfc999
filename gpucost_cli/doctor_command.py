"""`gpucost doctor`: checks which metrics and labels a Prometheus has, and says what to change."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gpucost.core.errors import GpuCostError
from gpucost.core.hours import HOUR
from gpucost_cli.metrics_options import DEFAULT_SETTINGS, MetricsAccess, metrics_options
from gpucost_cli.options import format_option

if TYPE_CHECKING:
    from gpucost.core.pricing.prices import Price


@click.command()
@metrics_options
@click.option("--verbose", is_flag=True, help="Also list all checks.")
@format_option("table", "json")
def doctor(access: MetricsAccess, output_format: str, *, verbose: bool) -> None:
    """Check each cluster's Prometheus for the metrics and labels that attribution needs.

    The report says first what can be attributed now, and for everything that is missing the line to change, most
    important first.

    \b
    Example:
      gpucost doctor --prometheus http://127.0.0.1:9090
      gpucost doctor --settings settings.yaml
    """
    from gpucost_cli.aws_lookups import AwsAccess
    from gpucost_cli.doctor import examine_clusters, render
    from gpucost_cli.node_price_fetcher import price_fetcher_of

    settings = access.settings()
    settings_file = str(access.path or DEFAULT_SETTINGS)
    now = datetime.now(UTC)

    def warn(sentence: str) -> None:
        click.echo(f"gpucost: {sentence}", err=True)

    aws = AwsAccess(warn=warn)

    def fetch_prices(nodes: Iterable[Mapping[str, str]]) -> "Sequence[Price]":
        fetcher = price_fetcher_of(settings.pricing, now - HOUR, now, aws)
        return fetcher.prices_of(nodes) if fetcher else ()

    reports = examine_clusters(settings, now, settings_file, access.secret_value, fetch_prices)
    if output_format == "json":
        sys.stdout.write(render.as_json(reports) + "\n")
    else:
        from gpucost_cli.rendering import print_table

        for part in render.as_tables(reports, verbose=verbose):
            print_table(part)
    if sentence := render.problem_summary(reports, with_reasons=output_format == "json"):
        raise GpuCostError(sentence)
