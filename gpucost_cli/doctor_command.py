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
    from gpucost.settings_document import SettingsDocument
    from gpucost_cli.aws_access import AwsAccess
    from gpucost_cli.doctor import ClusterReport


def examine(
    access: MetricsAccess, settings: "SettingsDocument", now: datetime, aws: "AwsAccess | None"
) -> "list[ClusterReport]":
    """Examine all clusters of the settings.

    Args:
        access: reads the secrets that the settings name.
        settings: the settings.
        now: the end of the window that is examined.
        aws: for AWS's prices of nodes that nothing else prices; None: AWS is not asked.

    Raises:
        InvalidInputError: the settings contain a placeholder of an example.
    """
    from gpucost_cli.doctor import examine_clusters
    from gpucost_cli.node_price_fetcher import price_fetcher_of

    def fetch_prices(nodes: Iterable[Mapping[str, str]]) -> "Sequence[Price]":
        fetcher = price_fetcher_of(settings.pricing, now - HOUR, now, aws) if aws else None
        return fetcher.prices_of(nodes) if fetcher else ()

    return examine_clusters(settings, now, str(access.path or DEFAULT_SETTINGS), access.secret_value, fetch_prices)


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
    from gpucost_cli.aws_access import AwsAccess
    from gpucost_cli.doctor import render

    def warn(sentence: str) -> None:
        click.echo(f"gpucost: {sentence}", err=True)

    reports = examine(access, access.settings(), datetime.now(UTC), AwsAccess(warn=warn))
    if output_format == "json":
        sys.stdout.write(render.as_json(reports) + "\n")
    else:
        from gpucost_cli.rendering import print_table

        for part in render.as_tables(reports, verbose=verbose):
            print_table(part)
    if sentence := render.problem_summary(reports, with_reasons=output_format == "json"):
        raise GpuCostError(sentence)
