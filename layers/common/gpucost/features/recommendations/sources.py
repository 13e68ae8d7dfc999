"""Reads from Prometheus what only recommendations need and the ledger does not hold."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from gpucost.core.errors import MetricsResponseError
from gpucost.core.hours import HOUR, HOUR_MS, to_epoch_ms
from gpucost.core.metering.accelerators import GPU_RESOURCES
from gpucost.core.metering.gpu_shares import to_kubernetes_resource
from gpucost.core.metering.implausible_samples import is_count
from gpucost.core.metering.signals import SUCCESSORS
from gpucost.features.recommendations.history import KarpenterDisruption, PodLatency, PodWait
from gpucost.runtime.deadline import Deadline
from gpucost.settings import ClusterSettings
from gpucost.settings.inference import InferenceSettings
from gpucost.sources.prometheus.connection import ClusterReader
from gpucost.sources.prometheus.devices import labeled_pod
from gpucost.sources.prometheus.pods import pod_identity
from gpucost.sources.prometheus.queries import INIT_REQUESTS, NODE_INFO, REQUESTS, STATISTIC_LABEL, quote, union
from gpucost.sources.prometheus.server_counters import COPY_LABELS
from gpucost.sources.prometheus.tables import Labels, exported_label, parse_number

_DAY = timedelta(days=1)
_MIB = 2**20
_FRAMEBUFFER_USED = "DCGM_FI_DEV_FB_USED"
GPU_MEMORY_METRICS: Mapping[str, int] = {_FRAMEBUFFER_USED: _MIB, SUCCESSORS[_FRAMEBUFFER_USED]: 1}
"""The metrics of the memory in use, and the bytes of their unit."""
MAX_GPU_MEMORY_MIB = 10**8
"""Of one GPU: 100 TiB. Larger samples are implausible and ignored."""
_MEMORY_LABELS = "namespace, pod, exported_namespace, exported_pod, pod_namespace, pod_name"


class PrometheusGpuMemory(ClusterReader):
    """Reads GPU memory of one cluster: one query per day.

    A day of 10,000 pods scraped every 30 seconds is 29 million samples, 0.3 cents at AMP's price.
    """

    def peaks(self, day: datetime) -> dict[tuple[str, str], float]:
        """The largest GPU memory of each pod (namespace, name) on a UTC day in bytes. Pods without samples are absent.

        Raises:
            MetricsUnavailableError, MetricsResponseError: from the client.
        """
        query = union(
            {
                name: f"max by ({_MEMORY_LABELS}) (max_over_time({self._queries.series_selector(name)}[1d] offset 1ms))"
                for name in GPU_MEMORY_METRICS
            }
        )
        peaks: dict[tuple[str, str], float] = {}
        for series in self._client.query(query, day + _DAY):
            try:
                used = parse_number(series.samples[-1][1]) * GPU_MEMORY_METRICS[series.labels[STATISTIC_LABEL]]
            except (ValueError, KeyError) as error:
                raise MetricsResponseError(
                    f"cluster {self._cluster}: the response about GPU memory is invalid: {error}"
                ) from error
            pod = labeled_pod(series.labels)
            if all(pod) and used.is_finite() and 0 <= used <= MAX_GPU_MEMORY_MIB * _MIB:
                peaks[pod] = max(peaks.get(pod, 0.0), float(used))
        return peaks


ELIGIBLE_NODES = "karpenter_voluntary_disruption_eligible_nodes"
ALLOWED_DISRUPTIONS = "karpenter_nodepools_allowed_disruptions"
_REASONS = 'reason=~"(?i)underutilized|empty"'
_WEEK_RANGE = "[7d] offset 1ms"
MAX_NODES = Decimal(10**6)


class PrometheusDisruption(ClusterReader):
    """Reads from Karpenter's metrics which nodes it could have removed: one query for a week.

    - `karpenter_voluntary_disruption_eligible_nodes{reason}`: nodes that its settings, pods' annotations and
      PodDisruptionBudgets let it take into account, for the whole cluster;
    - `karpenter_nodepools_allowed_disruptions{nodepool, reason}`: how many a pool's budgets allow at once, exposed
      while there are eligible nodes.

    No metric shows `consolidationPolicy` or `consolidateAfter`. Reasons are `Underutilized` or `underutilized`, by
    version.
    """

    def week(self, end: datetime) -> KarpenterDisruption:
        """The maximum of the seven days before a time. Reasons without samples are absent.

        Raises:
            MetricsUnavailableError, MetricsResponseError: from the client.
        """

        def weekly_maximum(metric: str, by: str) -> str:
            return f"max by ({by}) (max_over_time({self._queries.series_selector(metric, _REASONS)}{_WEEK_RANGE}))"

        query = union(
            {
                "eligible": weekly_maximum(ELIGIBLE_NODES, "reason"),
                "allowed": weekly_maximum(ALLOWED_DISRUPTIONS, "nodepool, reason"),
            }
        )
        eligible: dict[str, int] = {}
        allowed: dict[tuple[str, str], int] = {}
        for series in self._client.query(query, end):
            try:
                sample = parse_number(series.samples[-1][1])
            except ValueError as error:
                raise MetricsResponseError(
                    f"cluster {self._cluster}: the response about Karpenter is invalid: {error}"
                ) from error
            if not is_count(sample.to_integral_value() if sample.is_finite() else sample, MAX_NODES):
                continue
            count = int(sample)
            reason = series.labels.get("reason", "").lower()
            if series.labels.get(STATISTIC_LABEL) == "eligible":
                eligible[reason] = max(eligible.get(reason, 0), count)
            else:
                key = series.labels.get("nodepool", ""), reason
                allowed[key] = max(allowed.get(key, 0), count)
        return KarpenterDisruption(eligible, allowed)


class PrometheusRequestLatency(ClusterReader):
    """Reads the request latency of inference servers: one query per day, only where `inference` is enabled.

    It is the servers' own histogram of the latency of whole requests, for example
    `vllm:e2e_request_latency_seconds`. The p95 is Prometheus' `histogram_quantile`, so it is as exact as the
    histogram's buckets.
    """

    def latencies(self, day: datetime, inference: InferenceSettings) -> list[PodLatency]:
        """The requests and the p95 of each pod on a UTC day, by hour; without hours that have no requests.

        Raises:
            MetricsUnavailableError, MetricsResponseError: from the client.
        """
        columns: dict[str, dict[tuple[str, str], dict[int, float]]] = {"requests": {}, "p95": {}}
        first = to_epoch_ms(day)
        for series in self._client.query_range(self._query(inference), day + HOUR, day + _DAY):
            labels = series.labels
            pod = labels.get(inference.namespace_label, ""), labels.get(inference.pod_label, "")
            try:
                samples = [((at - first) // HOUR_MS - 1, parse_number(sample)) for at, sample in series.samples]
            except ValueError as error:
                raise MetricsResponseError(
                    f"cluster {self._cluster}: the response about request latency is invalid: {error}"
                ) from error
            column = columns.get(labels.get(STATISTIC_LABEL, ""))
            if column is not None and all(pod):
                of_pod = column.setdefault(pod, {})
                of_pod.update((hour, float(sample)) for hour, sample in samples if sample.is_finite() and sample > 0)
        return [
            PodLatency(*pod, tuple((hour, requests[hour], p95[hour]) for hour in sorted(requests.keys() & p95.keys())))
            for pod, requests in sorted(columns["requests"].items())
            if (p95 := columns["p95"].get(pod))
        ]

    def _query(self, inference: InferenceSettings) -> str:
        pod = f"{inference.namespace_label}, {inference.pod_label}"
        histograms = dict.fromkeys(server.latency for server in inference.all_servers() if server.latency)

        def increase(suffix: str, by: str) -> str:
            return " or ".join(
                f"sum by ({by}) (max without ({COPY_LABELS}) "
                f"(increase({self._queries.series_selector(histogram + suffix)}[1h] offset 1ms)))"
                for histogram in histograms
            )

        quantile = f"histogram_quantile(0.95, {increase('_bucket', f'{pod}, le')})"
        return union({"requests": f"({increase('_count', pod)})", "p95": quantile})


def latency_reader(
    inference: InferenceSettings,
) -> Callable[[ClusterSettings, Deadline | None], Callable[[datetime], list[PodLatency]]]:
    """Make the function that reads a cluster's days with these settings."""

    def reader(cluster: ClusterSettings, deadline: Deadline | None) -> Callable[[datetime], list[PodLatency]]:
        source = PrometheusRequestLatency(cluster, deadline)
        return lambda day: source.latencies(day, inference)

    return reader


_ZERO = Decimal(0)
_REQUEST_LABELS = "namespace, pod, container, exported_namespace, exported_pod, exported_container, uid, resource"
_HOUR_RANGE = "[1h] offset 1ms"
PodResource = tuple[str, str, str, str]
"""Namespace, name, uid, resource."""


class PrometheusWaitingPods(ClusterReader):
    """Reads pods that requested GPUs and had no node yet, by hour of a day: one query per day.

    kube-state-metrics exposes requests with `node=""` until the pod is bound, and a pod is bound once. A pod waited for
    the part of an hour's scrapes in which it appears so. `kube_node_info` counts the scrapes: its densest series is in
    each of them. With several instances the maximum counts for both, so that an HA pair is not counted twice.
    """

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
                parts[f"{name}{stat}"] = f"max by ({_REQUEST_LABELS}) ({function}({selector}{_HOUR_RANGE}))"
        return union(parts)


def _pod(labels: Labels) -> PodResource:
    resource = to_kubernetes_resource(labels.get("resource", ""))
    return exported_label(labels, "namespace"), exported_label(labels, "pod"), pod_identity(labels), resource


def _requested_units(units: dict[tuple[bool, str], Decimal]) -> int:
    """The units of all containers together, or of the largest init container."""

    def of(*, init: bool) -> Iterable[Decimal]:
        return (value for (is_init, _), value in units.items() if is_init is init)

    return int(max(sum(of(init=False), _ZERO), max(of(init=True), default=_ZERO)))
