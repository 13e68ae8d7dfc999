"""`gpucost doctor`: checks which metrics and labels a Prometheus has, and says what to change."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from gpucost.core.errors import GpuCostError
from gpucost_cli.aws_session import aws_options
from gpucost_cli.options import format_option, read_settings_file, settings_option


@click.command()
@settings_option
@format_option("table", "json")
@aws_options
def doctor(path: Path, output_format: str) -> None:
    """Check each cluster's Prometheus for the metrics and labels that attribution needs.

    For everything that is missing, the report names the line to change.

    \b
    Example:
      gpucost doctor --settings settings.yaml
    """
    from gpucost.settings_document import parse_settings
    from gpucost_cli.doctor import examine_clusters, render

    settings = parse_settings(read_settings_file(path))
    reports = examine_clusters(settings, datetime.now(UTC), str(path))
    if output_format == "json":
        sys.stdout.write(render.as_json(reports) + "\n")
    else:
        from gpucost_cli.rendering import print_table

        for part in render.as_tables(reports):
            print_table(part)
    if sentence := render.problem_summary(reports, with_reasons=output_format == "json"):
        raise GpuCostError(sentence)
