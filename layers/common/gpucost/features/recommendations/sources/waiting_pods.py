"""Pods that asked for GPUs and had no node yet, by hour of a day: one query a day, asked once.

kube-state-metrics tells of requests with `node=""` until the pod is bound, and a pod is bound once. A pod waited the
part of an hour's scrapes in which it was seen so. The scrapes are counted by `kube_node_info`, whose densest series is
there at each of them; of several instances the most counts on both sides, so that an HA pair is not counted twice.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal

from gpucost.core.errors import MetricsResponseError
from gpucost.core.hours import HOUR, HOUR_MS, to_epoch_ms
from gpucost.core.metering.gpu_shares import kubernetes_resource
from gpucost.core.metering.implausible_samples import is_count
from gpucost.features.recommendations.history import Wait
from gpucost.sources.prometheus.connection import ClusterReader
from gpucost.sources.prometheus.pods import pod_identity
from gpucost.sources.prometheus.queries import GPU_RESOURCES, INIT_REQUESTS, NODE_INFO, REQUESTS, STAT, quote, union
from gpucost.sources.prometheus.tables import Labels, exported_label, number

_DAY = timedelta(days=1)
_ZERO = Decimal(0)
_LABELS = "namespace, pod, container, exported_namespace, exported_pod, exported_container, uid, resource"
_HOUR = "[1h] offset 1ms"
Pod = tuple[str, str, str, str]
"""Namespace, name, uid, resource."""


class PrometheusWaitingPods(ClusterReader):
    """Fulfils `advice_ports.WaitingReader` for one cluster."""

    def waits(self, day: datetime) -> list[Wait]:
        """What pods waited on a UTC day, in order of name.

        Raises:
            MetricsResponseError: nothing tells how often kube-state-metrics was scraped; or as the client.
            MetricsUnavailableError: as the client.
        """
        scrapes: dict[int, Decimal] = {}
        counts: dict[Pod, dict[int, Decimal]] = {}
        units: dict[Pod, dict[tuple[bool, str], Decimal]] = {}
        first = to_epoch_ms(day)
        for series in self._client.query_range(self._query(), day + HOUR, day + _DAY):
            labels = series.labels
            try:
                told_at = [((at - first) // HOUR_MS - 1, number(value)) for at, value in series.samples]
            except ValueError as error:
                raise MetricsResponseError(f"cluster {self._cluster}: who waited cannot be read: {error}") from error
            values = {hour: value for hour, value in told_at if is_count(value)}  # a request may be told as NaN
            init, _, stat = labels.get(STAT, "").rpartition("-")
            if stat == "scrapes":
                scrapes = values
            elif stat == "count":
                own = counts.setdefault(_pod(labels), {})
                for hour, value in values.items():
                    own[hour] = max(own.get(hour, value), value)
            elif stat == "units":
                units.setdefault(_pod(labels), {})[bool(init), exported_label(labels, "container")] = max(
                    values.values(), default=_ZERO
                )
        if not scrapes:
            raise MetricsResponseError(f"cluster {self._cluster}: no {NODE_INFO} on {day:%Y-%m-%d} to count scrapes by")
        return [
            Wait(
                *pod,
                wanted,
                tuple((hour, min(1.0, float(own[hour] / scrapes[hour]))) for hour in sorted(own) if scrapes.get(hour)),
            )
            for pod, own in sorted(counts.items())
            if (wanted := _effective(units.get(pod, {}))) and all(pod[1:3])
        ]

    def _query(self) -> str:
        parts = {"scrapes": f"max(count_over_time({self._queries.select(NODE_INFO)}{_HOUR}))"}
        for name, metric in (("", REQUESTS), ("init-", INIT_REQUESTS)):
            selector = self._queries.select(metric, f"resource=~{quote(GPU_RESOURCES)}", 'node=""')
            for stat, function in (("count", "count_over_time"), ("units", "max_over_time")):
                parts[f"{name}{stat}"] = f"max by ({_LABELS}) ({function}({selector}{_HOUR}))"
        return union(parts)


def _pod(labels: Labels) -> Pod:
    resource = kubernetes_resource(labels.get("resource", ""))
    return exported_label(labels, "namespace"), exported_label(labels, "pod"), pod_identity(labels), resource


def _effective(units: dict[tuple[bool, str], Decimal]) -> int:
    """Of all containers together, or of the largest init container."""

    def of(*, init: bool) -> Iterable[Decimal]:
        return (value for (is_init, _), value in units.items() if is_init is init)

    return int(max(sum(of(init=False), _ZERO), max(of(init=True), default=_ZERO)))
