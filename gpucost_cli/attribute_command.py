"""`gpucost attribute`: computes the cost of hours from a Prometheus, without a deployment."""

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING

import click

from gpucost.core.errors import GpuCostError, InvalidInputError, SourceError, did_you_mean
from gpucost.core.hours import HOUR, floor_hour, format_timestamp
from gpucost.runtime.deadline import Deadline
from gpucost_cli.metrics_options import MetricsAccess, metrics_options
from gpucost_cli.options import HourOption, format_option
from gpucost_cli.settings_notes import units_without_namespace

if TYPE_CHECKING:
    from gpucost.core.hour_record import HourRecord
    from gpucost.pipeline.attribute import SoFar
    from gpucost.settings import ClusterSettings, CoreSettings
    from gpucost_cli.aws_access import AwsAccess
    from gpucost_cli.node_price_fetcher import NodePriceFetcher

DIMENSIONS = (
    "business_unit",
    "namespace",
    "workload_kind",
    "workload",
    "pod",
    "node",
    "node_pool",
    "instance_type",
    "capacity_type",
    "zone",
    "gpu_model",
    "resource",
)
"""What rows can be grouped by."""
QUERIES_SECONDS = 300.0
"""Limit of the time that all queries of a batch of hours take together."""
HOURS_PER_BATCH = 24
"""Hours that are queried together. A month's samples at once would not fit in memory."""


@click.command()
@metrics_options
@click.option(
    "--hour", type=HourOption(), help="First hour, for example 2026-11-19T10:00:00Z.  [default: newest hours]"
)
@click.option("--hours", default=1, show_default=True, type=click.IntRange(1, 24 * 31), help="Number of hours.")
@click.option(
    "--group-by",
    default="business_unit",
    show_default=True,
    help=f"Rows of the table: one or more of {', '.join(DIMENSIONS)}, separated by commas.",
)
@click.option("--each-hour", is_flag=True, help="Also print a table of each hour.")
@format_option("table", "json", "csv")
def attribute(
    access: MetricsAccess, hour: datetime | None, hours: int, group_by: str, output_format: str, *, each_hour: bool
) -> None:
    """Compute and print the cost of hours from any Prometheus, without a deployment.

    The table has the sum of all hours, what wastes most first; JSON and CSV have each hour with its lines. Without
    --hour, these are the newest hours that have ended. Nothing is stored. The exit status is 1 if a cluster could not
    be read, or if no cluster has figures.

    \b
    Example:
      gpucost attribute --prometheus http://127.0.0.1:9090
      gpucost attribute --prometheus http://127.0.0.1:9090 --hours 24 --group-by namespace,workload
      gpucost attribute --settings settings.yaml --hour 2026-11-19T10:00:00Z --hours 24
    """
    from gpucost.pipeline.attribute import check_hour
    from gpucost_cli import rendering, usage_tables
    from gpucost_cli.aws_access import AwsAccess
    from gpucost_cli.node_price_fetcher import price_fetcher_of

    dimensions = _dimensions(group_by)
    settings = access.settings()
    now = datetime.now(UTC)
    first = hour or floor_hour(now) - HOUR * hours
    starts = [first + HOUR * i for i in range(hours)]
    check_hour(starts[0], now)
    check_hour(starts[-1], now)
    records: list[HourRecord] = []
    of_fresh_clusters: list[SoFar] = []
    problems: list[str] = []
    all_clusters_read = True
    aws = AwsAccess(warn=_warn)
    price_fetcher = price_fetcher_of(settings.pricing, starts[0], now, aws)
    for cluster in settings.clusters:
        cluster_records, problem, was_read = _attribute_cluster(
            cluster, settings, starts, now, price_fetcher, access, aws, with_reasons=output_format != "table"
        )
        so_far_of_cluster = None
        if problem is not None and was_read and hour is None and output_format == "table":
            so_far_of_cluster = _so_far(cluster, settings, access, aws, price_fetcher, now)
        if so_far_of_cluster is not None:
            of_fresh_clusters.append(so_far_of_cluster)
            continue
        records += cluster_records
        all_clusters_read = all_clusters_read and was_read
        if problem is not None:
            problems.append(problem)
    records.sort(key=lambda record: (record.hour, record.cluster))
    if output_format == "table":
        _print_tables(records, of_fresh_clusters, dimensions, access.doctor_command, each_hour=each_hour)
    elif records or not problems:
        sys.stdout.write(
            rendering.hours_json(records) + "\n" if output_format == "json" else rendering.hours_csv(records)
        )
    sys.stdout.flush()
    for so_far in of_fresh_clusters:
        _warn(usage_tables.first_whole_hour_sentence(so_far))
    records += [so_far.record for so_far in of_fresh_clusters]
    _warn_of_absences(settings, records, access)
    if problems:
        message = f"{'; '.join(problems)}. To see what is missing, run: {access.doctor_command}"
        if not all_clusters_read or all(record.totals is None for record in records):
            raise GpuCostError(message)
        click.echo(f"gpucost: {message}", err=True)


def _print_tables(
    records: Sequence["HourRecord"],
    of_fresh_clusters: Sequence["SoFar"],
    dimensions: Sequence[str],
    doctor: str,
    *,
    each_hour: bool,
) -> None:
    from gpucost_cli import rendering, usage_tables

    for part in usage_tables.hours_tables(records, dimensions, doctor=doctor, each_hour=each_hour):
        rendering.print_table(part)
    for so_far in of_fresh_clusters:
        for part in usage_tables.so_far_tables(so_far, dimensions, doctor=doctor):
            rendering.print_table(part)


def _warn_of_absences(settings: "CoreSettings", records: Sequence["HourRecord"], access: MetricsAccess) -> None:
    """Name labels and namespaces of the settings that no pod with GPUs has."""
    if absences := list(_absent_labels(settings, records)):
        _warn(f"{' and '.join(absences)}. If pods have the labels, run: {access.doctor_command}")
    if absent_units := _absent_units(settings, records):
        _warn(
            f"no pod with GPUs is in the namespaces of the business units {', '.join(absent_units)}. If there are such "
            f"pods, correct the shell patterns; gpucost settings check {quote(str(access.path))} notes some mistakes"
        )


def _dimensions(group_by: str) -> list[str]:
    """Return the names in --group-by.

    Raises:
        InvalidInputError: a name is unknown.
    """
    names = [name.strip() for name in group_by.split(",") if name.strip()]
    for name in names:
        if name not in DIMENSIONS:
            problem = f"--group-by: {name!r} is not one of {', '.join(DIMENSIONS)}."
            raise InvalidInputError(f"{problem} {did_you_mean(name, DIMENSIONS)}".rstrip())
    if not names:
        raise InvalidInputError(f"--group-by: pass one or more of {', '.join(DIMENSIONS)}, separated by commas")
    return list(dict.fromkeys(names))


def _attribute_cluster(
    cluster: "ClusterSettings",
    settings: "CoreSettings",
    starts: Sequence[datetime],
    now: datetime,
    price_fetcher: "NodePriceFetcher | None",
    access: MetricsAccess,
    aws: "AwsAccess",
    *,
    with_reasons: bool,
) -> tuple[list["HourRecord"], str | None, bool]:
    """Return the records of a cluster's hours, a sentence if figures are missing, and whether it could be read.

    Args:
        cluster: the cluster.
        settings: its settings.
        starts: the hours.
        now: the current time.
        price_fetcher: fetches AWS's prices; None if they are not needed or not available.
        access: reads the secrets that the settings name.
        aws: says what nodes without labels are.
        with_reasons: whether the sentence says why figures are missing, which tables show already.
    """
    from gpucost.pipeline.attribute import attribute_hours, check_retention
    from gpucost.sources.prometheus import metrics_reader

    records: list[HourRecord] = []
    try:
        check_retention(starts[0], cluster, metrics_reader(cluster, settings, secret_value=access.secret_value), now)
        for first in range(0, len(starts), HOURS_PER_BATCH):
            batch = starts[first : first + HOURS_PER_BATCH]
            reader = metrics_reader(
                cluster, settings, Deadline(QUERIES_SECONDS), secret_value=access.secret_value, instances=aws.instances
            )
            records += attribute_hours(reader, cluster, settings, batch, now=now, fetch_prices=price_fetcher)
    except SourceError as error:
        return records, str(error).partition(" (query: ")[0], False
    if any(record.totals is not None for record in records):
        return records, None, True
    newest = records[-1]
    reasons = f": hour {format_timestamp(newest.hour)}: {'; '.join(newest.notes)}" if with_reasons else ""
    return records, f"cluster {cluster.name} has no figures{reasons}", True


def _so_far(
    cluster: "ClusterSettings",
    settings: "CoreSettings",
    access: MetricsAccess,
    aws: "AwsAccess",
    price_fetcher: "NodePriceFetcher | None",
    now: datetime,
) -> "SoFar | None":
    """Return the figures of a Prometheus that has no whole hour yet; None if it has one."""
    from gpucost.pipeline.attribute import attribute_so_far
    from gpucost.sources.prometheus import metrics_reader

    reader = metrics_reader(
        cluster, settings, Deadline(QUERIES_SECONDS), secret_value=access.secret_value, instances=aws.instances
    )
    try:
        return attribute_so_far(reader, cluster, settings, now=now, fetch_prices=price_fetcher)
    except SourceError:
        return None


def _absent_labels(settings: "CoreSettings", records: Sequence["HourRecord"]) -> Iterator[str]:
    """Yield what no pod with GPUs matches: business units by labels, and cost labels.

    kube-state-metrics exports labels only with a flag. Without it, their pods silently go to other business units.
    """
    lines = [line for record in records for line in record.lines]
    if not lines:
        return
    units = {line.business_unit for line in lines}
    by_labels = [unit.name for unit in settings.business_units if unit.namespace_labels or unit.pod_labels]
    if absent_units := [name for name in by_labels if name not in units]:
        yield f"no pod has the labels of the business units {', '.join(absent_units)}"
    labels = {name for line in lines for name in line.labels}
    if absent_labels := [name for name in settings.cost_labels if name not in labels]:
        yield f"no pod has the cost labels {', '.join(absent_labels)}"


def _absent_units(settings: "CoreSettings", records: Sequence["HourRecord"]) -> list[str]:
    """Return the business units with patterns of namespaces of which none matches a pod's, with these patterns."""
    namespaces = {line.namespace for record in records for line in record.lines}
    if not namespaces:
        return []
    return [
        f"{unit.name} ({', '.join(unit.namespaces)})"
        for unit in units_without_namespace(settings, namespaces, records[-1].hour)
    ]


def _warn(sentence: str) -> None:
    click.echo(f"gpucost: {sentence}", err=True)
