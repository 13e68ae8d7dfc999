"""`gpucost manifests rules`: prints the rules whose series the dashboards query."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from gpucost_cli.options import parse_settings_file, settings_option


@click.command()
@settings_option
@click.option("--cluster", help="Only this cluster. Required if the clusters use several workspaces.")
@click.option(
    "--format",
    "output_format",
    default="prometheus",
    show_default=True,
    type=click.Choice(["prometheus", "operator", "cloudformation"]),
    help="A rule file, a PrometheusRule object, or a template that loads recording rules into AMP.",
)
def rules(path: Path, cluster: str | None, output_format: str) -> None:
    """Print recording and alerting rules for Prometheus or AMP.

    They record GPUs by business unit, namespace, node pool and cluster.

    \b
    Example:
      gpucost manifests rules --settings settings.yaml > rules.yaml
    """
    from gpucost_cli.rules import documents

    settings = parse_settings_file(path)
    now = datetime.now(UTC)
    recording = documents.recording_groups(settings, documents.select_clusters(settings, cluster), now)
    # The stack's template already contains the alerts about pools, quotas and provisioning.
    alerts = documents.alerting_groups(include_template=output_format != "cloudformation")
    sys.stdout.write(documents.render_groups(output_format, [*recording, *alerts]))
    for sentence in documents.limitations(settings, now):
        click.echo(f"note: {sentence}", err=True)
