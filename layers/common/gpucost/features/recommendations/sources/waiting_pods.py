"""Reads pods that requested GPUs and had no node yet, by hour of a day: one query per day.

kube-state-metrics exposes requests with `node=""` until the pod is bound, and a pod is bound once. A pod waited for the
part of an hour's scrapes in which it appears so. `kube_node_info` counts the scrapes: its densest series is in each of
them. With several instances the maximum counts for both, so that an HA pair is not counted twice.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal

from gpucost.core.errors import MetricsResponseError
from gpucost.core.hours import HOUR, HOUR_MS, to_epoch_ms
from gpucost.core.metering.gpu_shares import to_kubernetes_resource
from gpucost.core.metering.implausible_samples import is_count
from gpucost.core.metering.resource_names import GPU_RESOURCES
from gpucost.features.recommendations.history import PodWait
from gpucost.sources.prometheus.connection import ClusterReader
from gpucost.sources.prometheus.pods import pod_identity
from gpucost.sources.prometheus.queries import INIT_REQUESTS, NODE_INFO, REQUESTS, STATISTIC_LABEL, quote, union
from gpucost.sources.prometheus.tables import Labels, exported_label, parse_number

_DAY = timedelta(days=1)
_ZERO = Decimal(0)
_LABELS = "namespace, pod, container, exported_namespace, exported_pod, exported_container, uid, resource"
_HOUR_RANGE = "[1h] offset 1ms"
PodResource = tuple[str, str, str, str]
"""Namespace, name, uid, resource."""


class PrometheusWaitingPods(ClusterReader):
    """Reads waiting pods of one cluster."""

    def waits(self, day: datetime) -> list[PodWait]:
        """The waits of pods on a UTC day, by name.

        Raises:
            MetricsResponseError: the number of scrapes of kube-state-metrics is unknown; or from the client.
            MetricsUnavailableError: from the client.
        """
        scrapes: dict[int, Decimal] = {}
        counts: dict[PodResource, dict[int, Decimal]] = {}
        units: dict[PodResource, dict[tuple[bool, str], Decimal]] = {}
        first = to_epoch_ms(day)
        for series in self._client.query_range(self._query(), day + HOUR, day + _DAY):
            labels = series.labels
            try:
                hourly_samples = [((at - first) // HOUR_MS - 1, parse_number(value)) for at, value in series.samples]
            except ValueError as error:
                raise MetricsResponseError(
                    f"cluster {self._cluster}: the response about waiting pods is invalid: {error}"
                ) from error
            values = {hour: value for hour, value in hourly_samples if is_count(value)}  # a request may be NaN
            init, _, stat = labels.get(STATISTIC_LABEL, "").rpartition("-")
            if stat == "scrapes":
                scrapes = values
            elif stat == "count":
                hourly_counts = counts.setdefault(_pod(labels), {})
                for hour, value in values.items():
                    hourly_counts[hour] = max(hourly_counts.get(hour, value), value)
            elif stat == "units":
                units.setdefault(_pod(labels), {})[bool(init), exported_label(labels, "container")] = max(
                    values.values(), default=_ZERO
                )
        if not scrapes:
            raise MetricsResponseError(
                f"cluster {self._cluster}: no samples of {NODE_INFO} on {day:%Y-%m-%d}, which count the scrapes"
            )
        return [
            PodWait(
                *pod,
                requested,
                tuple(
                    (hour, min(1.0, float(count / scrapes[hour])))
                    for hour, count in sorted(hourly_counts.items())
                    if scrapes.get(hour)
                ),
            )
            for pod, hourly_counts in sorted(counts.items())
            if (requested := _requested_units(units.get(pod, {}))) and all(pod[1:3])
        ]

    def _query(self) -> str:
        parts = {"scrapes": f"max(count_over_time({self._queries.series_selector(NODE_INFO)}{_HOUR_RANGE}))"}
        for name, metric in (("", REQUESTS), ("init-", INIT_REQUESTS)):
            selector = self._queries.series_selector(metric, f"resource=~{quote(GPU_RESOURCES)}", 'node=""')
            for stat, function in (("count", "count_over_time"), ("units", "max_over_time")):
                parts[f"{name}{stat}"] = f"max by ({_LABELS}) ({function}({selector}{_HOUR_RANGE}))"
        return union(parts)


def _pod(labels: Labels) -> PodResource:
    resource = to_kubernetes_resource(labels.get("resource", ""))
    return exported_label(labels, "namespace"), exported_label(labels, "pod"), pod_identity(labels), resource


def _requested_units(units: dict[tuple[bool, str], Decimal]) -> int:
    """The units of all containers together, or of the largest init container."""

    def of(*, init: bool) -> Iterable[Decimal]:
        return (value for (is_init, _), value in units.items() if is_init is init)

    return int(max(sum(of(init=False), _ZERO), max(of(init=True), default=_ZERO)))
