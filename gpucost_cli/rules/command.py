"""`gpucost rules`: write the rules that dashboards read."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from gpucost_cli.options import read_settings_file


@click.command()
@click.option("--settings", "path", required=True, type=click.Path(path_type=Path), help="settings file, YAML or JSON")
@click.option("--cluster", help="only this one; needed where clusters are in several workspaces")
@click.option(
    "--format",
    "form",
    default="prometheus",
    show_default=True,
    type=click.Choice(["prometheus", "operator", "cloudformation"]),
    help="a rule file, a PrometheusRule, or a template that loads recording rules into AMP",
)
def rules(path: Path, cluster: str | None, form: str) -> None:
    """Print recording and alerting rules for Prometheus or AMP: GPUs by business unit, namespace, pool, cluster."""
    from gpucost.settings_document import parse_settings
    from gpucost_cli.rules import documents

    settings = parse_settings(read_settings_file(path))
    now = datetime.now(UTC)
    recording = documents.recording_groups(settings, documents.clusters_of(settings, cluster), now)
    # The template has the alerts about pools, quotas and provisioning already.
    alerts = documents.alerting_groups(of_template=form != "cloudformation")
    sys.stdout.write(documents.document(form, [*recording, *alerts]))
    for note in documents.notes(settings, now):
        click.echo(f"note: {note}", err=True)
