"""`gpucost attribute`: the cost of hours, straight from a Prometheus, without a deployment."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucost.core.errors import GpuCostError, SourceError
from gpucost.core.hours import HOUR, format_instant
from gpucost.runtime.deadline import Deadline
from gpucost_cli.aws_session import aws_options
from gpucost_cli.options import HourType, read_settings_file

if TYPE_CHECKING:
    from gpucost.core.model import HourRecord
    from gpucost.settings import ClusterSettings, Settings

QUERIES_SECONDS = 300.0
"""For all queries of a batch of hours together."""
HOURS_PER_BATCH = 24
"""How many hours are queried together, so that a month's samples are never in memory at once."""


@click.command()
@click.option("--settings", "path", required=True, type=click.Path(path_type=Path), help="settings file, YAML or JSON")
@click.option("--hour", required=True, type=HourType(), help="first hour, as 2026-11-19T10:00:00Z")
@click.option("--hours", default=1, show_default=True, type=click.IntRange(1, 24 * 31), help="how many, from there on")
@click.option("--format", "form", default="table", show_default=True, type=click.Choice(["table", "json", "csv"]))
@aws_options
def attribute(path: Path, hour: datetime, hours: int, form: str) -> None:
    """Attribute hours from any Prometheus; nothing else is needed, and nothing is stored.

    Ends with status 1 where a cluster could not be read, or no cluster has figures for any of the hours.
    """
    from gpucost.pipeline.attribute import check_hour
    from gpucost.settings_document import parse_settings
    from gpucost_cli import rendering as render

    settings = parse_settings(read_settings_file(path))
    now = datetime.now(UTC)
    starts = [hour + HOUR * i for i in range(hours)]
    check_hour(starts[0], now)
    check_hour(starts[-1], now)
    records: list[HourRecord] = []
    findings: list[str] = []
    all_were_read = True
    for cluster in settings.clusters:
        cluster_records, finding, was_read = _attribute_cluster(cluster, settings, starts, now)
        records += cluster_records
        all_were_read = all_were_read and was_read
        if finding is not None:
            findings.append(finding)
    records.sort(key=lambda record: (record.hour, record.cluster))
    if form == "table":
        for part in render.hours_tables(records):
            render.put(part)
    elif records or not findings:
        sys.stdout.write(render.hours_json(records) + "\n" if form == "json" else render.hours_csv(records))
    if findings:
        sys.stdout.flush()
        message = f"{'; '.join(findings)}; to see what is missing, run: gpucost doctor --settings {path}"
        if not all_were_read or all(record.totals is None for record in records):
            raise GpuCostError(message)
        click.echo(f"gpucost: {message}", err=True)


def _attribute_cluster(
    cluster: "ClusterSettings", settings: "Settings", starts: Sequence[datetime], now: datetime
) -> tuple[list["HourRecord"], str | None, bool]:
    """The records of a cluster's hours, why none has figures or some are missing, and whether it could be read."""
    from gpucost.pipeline.attribute import attribute_hours, check_retention
    from gpucost.sources.prometheus import metrics_reader

    records: list[HourRecord] = []
    try:
        check_retention(starts[0], cluster, metrics_reader(cluster, settings), now)
        for first in range(0, len(starts), HOURS_PER_BATCH):
            batch = starts[first : first + HOURS_PER_BATCH]
            reader = metrics_reader(cluster, settings, Deadline(QUERIES_SECONDS))
            records += attribute_hours(reader, cluster, settings, batch, now=now)
    except SourceError as error:
        return records, str(error), False
    if any(record.totals is not None for record in records):
        return records, None, True
    newest = records[-1]
    reasons = "; ".join(newest.notes)
    return records, f"cluster {cluster.name} has no figures: hour {format_instant(newest.hour)}: {reasons}", True
