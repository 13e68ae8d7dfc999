"""Finds the clusters of a Prometheus without settings, by the label that differs between them."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR, floor_hour

if TYPE_CHECKING:
    from gpucost.settings import ClusterSettings
    from gpucost.sources.prometheus.client import PrometheusClient

WINDOW = timedelta(days=1)
"""Time in which a cluster must have metrics to be found."""
STEP = timedelta(days=7)
"""Time that is searched at once for the oldest metrics."""
ONLY_CLUSTER = "cluster"
"""Name of the only cluster of a Prometheus whose series do not name it."""


def find_clusters(
    prometheus: Mapping[str, object], client: "PrometheusClient", now: datetime
) -> list[dict[str, object]]:
    """Return `settings.clusters` for the clusters of a Prometheus.

    Args:
        prometheus: address and authentication, as `settings.clusters[].prometheus` has them.
        client: queries it.
        now: the current time.

    Raises:
        InvalidInputError: no series of kube-state-metrics is there.
        SourceError: Prometheus did not answer.
    """
    from gpucost.sources.prometheus.cluster_labels import CLUSTER_LABELS
    from gpucost_cli.doctor.parsing import values_by_label
    from gpucost_cli.doctor.queries import DoctorQueries

    series = client.query_range(DoctorQueries({}).cluster_labels(), now - WINDOW, now, timedelta(minutes=10))
    if not series:
        raise InvalidInputError(
            f"Prometheus at {prometheus['url']} has no metrics of kube-state-metrics of the last day. "
            "These say which pods hold GPUs. Pass the address of the Prometheus that scrapes kube-state-metrics"
        )
    values = values_by_label(series)
    names = next((values[label] for label in CLUSTER_LABELS if len(values.get(label, ())) > 1), None)
    if names is None:
        name = next((values[label][0] for label in CLUSTER_LABELS if values.get(label)), ONLY_CLUSTER)
        return [{"name": _cluster_name(name), "prometheus": dict(prometheus)}]
    label = next(label for label in CLUSTER_LABELS if values.get(label) == names)
    return [{"name": _cluster_name(name), "prometheus": dict(prometheus), "selector": {label: name}} for name in names]


def _cluster_name(text: str) -> str:
    """Turn a label's value, such as an ARN, into a cluster's name."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text.rpartition("/")[2]).strip("-_.")[:100]
    return name or ONLY_CLUSTER


def oldest_hour(cluster: "ClusterSettings", client: "PrometheusClient", now: datetime, limit: datetime) -> datetime:
    """Return the first hour since `limit` from which on a cluster has metrics, found week by week into the past.

    Raises:
        SourceError: Prometheus did not answer.
    """
    from gpucost_cli.doctor.queries import NODE_INFO, DoctorQueries

    query = f"count({DoctorQueries(cluster.selector).select(NODE_INFO)})"
    oldest = end = floor_hour(now)
    while end > limit:
        first = max(end - STEP, limit)
        times = [time for series in client.query_range(query, first, end, HOUR) for time, _ in series.samples]
        if not times:
            break
        oldest, end = floor_hour(datetime.fromtimestamp(min(times) / 1000, UTC)), first
    return oldest
