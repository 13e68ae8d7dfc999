"""Reads the request latency of inference servers by pod and hour: one query per day, only where `inference` is enabled.

It is the servers' own histogram of the latency of whole requests, for example `vllm:e2e_request_latency_seconds`. The
p95 is Prometheus' `histogram_quantile`, so it is as exact as the histogram's buckets.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from gpucost.core.errors import MetricsResponseError
from gpucost.core.hours import HOUR, HOUR_MS, to_epoch_ms
from gpucost.features.recommendations.history import PodLatency
from gpucost.runtime.deadline import Deadline
from gpucost.settings import ClusterSettings
from gpucost.settings.inference import InferenceSettings
from gpucost.sources.prometheus.connection import ClusterReader
from gpucost.sources.prometheus.queries import STATISTIC_LABEL, union
from gpucost.sources.prometheus.server_counters import COPY_LABELS
from gpucost.sources.prometheus.tables import parse_number

_DAY = timedelta(days=1)


class PrometheusRequestLatency(ClusterReader):
    """Reads request latency of one cluster."""

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
