"""`gpucost doctor`: checks which metrics and labels a Prometheus has, and says what to change."""

import sys
from datetime import UTC, datetime

import click

from gpucost.core.errors import GpuCostError
from gpucost_cli.metrics_options import DEFAULT_SETTINGS, MetricsAccess, metrics_options
from gpucost_cli.options import format_option


@click.command()
@metrics_options
@format_option("table", "json")
def doctor(access: MetricsAccess, output_format: str) -> None:
    """Check each cluster's Prometheus for the metrics and labels that attribution needs.

    For everything that is missing, the report names the line to change.

    \b
    Example:
      gpucost doctor --prometheus http://127.0.0.1:9090
      gpucost doctor --settings settings.yaml
    """
    from gpucost.settings_document import parse_settings
    from gpucost_cli.doctor import examine_clusters, render

    settings = parse_settings(access.settings_text())
    settings_file = str(access.path or DEFAULT_SETTINGS)
    reports = examine_clusters(settings, datetime.now(UTC), settings_file, access.secret_value)
    if output_format == "json":
        sys.stdout.write(render.as_json(reports) + "\n")
    else:
        from gpucost_cli.rendering import print_table

        for part in render.as_tables(reports):
            print_table(part)
    if sentence := render.problem_summary(reports, with_reasons=output_format == "json"):
        raise GpuCostError(sentence)
