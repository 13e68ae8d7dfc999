"""Series of inference servers' counters in one hour."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from operator import attrgetter

from gpucost.core.hours import HOUR, to_epoch_ms
from gpucost.core.metering.inference_servers import CounterKind, InferenceServer
from gpucost.core.metering.observations import CounterSeries, ScrapeTarget, ServerCounters
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.families import ClusterMetrics, chunks
from gpucost.sources.prometheus.queries import PARTIAL, STATISTIC_LABEL, InferenceLabels
from gpucost.sources.prometheus.tables import Labels, Rows, parse_number, rows_at, scrape_target

_SCRAPE_LABELS = frozenset(
    {
        "__name__",
        STATISTIC_LABEL,
        "job",
        "instance",
        "endpoint",
        "service",
        "container",
        "node",
        "prometheus",
        "prometheus_replica",
        "__replica__",
    }
)
"""Labels of how a process is scraped, which differ if several jobs scrape it."""
COPY_LABELS = ", ".join(sorted(_SCRAPE_LABELS - {"__name__", STATISTIC_LABEL, "instance"}))
"""For `max without`: labels in which the copies of a process' series differ. Other processes have another instance."""
SERVERS_PER_QUERY = 50
"""Pods of inference servers, each with about ten counters."""
_PodName = tuple[str, str]
_pod_of_series = attrgetter("namespace", "pod")


class Counters:
    """The counters of inference servers.

    Args:
        metrics: of the cluster.
        inference: the servers, and the labels of their counters.
    """

    def __init__(self, metrics: ClusterMetrics, inference: InferenceLabels) -> None:
        self._metrics = metrics
        self._inference = inference

    def of_hours(self, hours: Sequence[datetime]) -> list[tuple[ServerCounters, list[str]]]:
        """The counters of each hour, with raw samples of pods whose increases are not enough; and notes."""
        query = {"counters": lambda queries: queries.counters(self._inference)}
        (series,) = self._metrics.query_hours(query, hours).values()
        return [self._read(rows_at(series, to_epoch_ms(hour + HOUR)), hour) for hour in hours]

    def _read(self, rows: Mapping[str, Rows], hour: datetime) -> tuple[ServerCounters, list[str]]:
        table = CounterTable(rows, self._inference)
        for names in chunks(sorted({pod for _, pod in table.partial}), SERVERS_PER_QUERY):
            selector = self._metrics.queries.counters_of_pods(self._inference, names)
            with self._metrics.raw_samples_around(selector, hour) as series:
                table.add_raw_samples(series)
        notes = []
        if table.has_unnamed_pods:
            notes.append(
                f"counters of inference servers have no labels {self._inference.namespace} and {self._inference.pod}, "
                "so it is unknown which pods' tokens they count (inference of the settings)"
            )
        return table.counters(), notes


class CounterTable:
    """Collects counters, and determines of which pods the raw samples are needed.

    Args:
        rows: results of `Queries.counters`, by statistic.
        inference: the servers, and the labels of their counters.
    """

    def __init__(self, rows: Mapping[str, Rows], inference: InferenceLabels) -> None:
        self._inference = inference
        self._counters: dict[str, tuple[InferenceServer, CounterKind]] = {
            metric: (server, kind) for server in inference.sources for kind, metric in server.counters.items()
        }
        self._ignored_labels = {
            server.name: {
                *_SCRAPE_LABELS,
                inference.namespace,
                inference.pod,
                server.model_label,
                server.consumer_label,
            }
            for server in inference.sources
        }
        self.partial = {self._pod(labels) for labels, _ in rows.get(PARTIAL, [])}
        """Pods whose raw samples are needed, by namespace and name."""
        self._series: list[CounterSeries] = []
        self._scrapes: dict[ScrapeTarget, dict[int, bool]] = {}
        for metric, metric_rows in rows.items():
            if metric in self._counters:
                for labels, increase in metric_rows:
                    if increase < 0 or not increase.is_finite():
                        self.partial.add(self._pod(labels))
                    self._series.append(self._counter(metric, labels, increase))
        if self.partial:
            self._series = [series for series in self._series if (series.namespace, series.pod) not in self.partial]
        self.has_unnamed_pods = not all(map(all, {*self.partial, *map(_pod_of_series, self._series)}))
        self.partial = {name for name in self.partial if all(name)}

    def add_raw_samples(self, series: Iterable[Series]) -> None:
        """Add the raw samples of pods in `partial`. Those of others with the same name are ignored."""
        for labels, samples in series:
            if self._pod(labels) not in self.partial:
                continue
            metric = labels["__name__"]
            readings = tuple((time, parse_number(text)) for time, text in samples)
            if metric == "up":
                results = self._scrapes.setdefault(scrape_target(labels), {})
                results.update((time, reading == 1) for time, reading in readings)
            else:
                self._series.append(self._counter(metric, labels, None, readings))

    def counters(self) -> ServerCounters:
        """The counters for metering. Frontends count only in pods in which no other server does."""
        frontends = {server.name for server in self._inference.servers if server.is_frontend}
        if not frontends.isdisjoint({series.server for series in self._series}):
            pods = {(series.namespace, series.pod) for series in self._series if series.server not in frontends}
            self._series = [
                series
                for series in self._series
                if series.server not in frontends or (series.namespace, series.pod) not in pods
            ]
        gateway = self._inference.gateway
        if gateway is None:
            return ServerCounters(tuple(self._series), self._scrapes)
        of_gateways = tuple(series for series in self._series if series.server == gateway.name)
        of_servers = tuple(series for series in self._series if series.server != gateway.name)
        return ServerCounters(of_servers, self._scrapes, of_gateways)

    def _pod(self, labels: Labels) -> _PodName:
        return labels.get(self._inference.namespace, ""), labels.get(self._inference.pod, "")

    def _counter(
        self,
        metric: str,
        labels: Labels,
        increase: Decimal | None,
        samples: tuple[tuple[int, Decimal], ...] | None = None,
    ) -> CounterSeries:
        server, kind = self._counters[metric]
        namespace, pod = self._pod(labels)
        consumer = ""
        if server.consumer_label:
            consumer = labels.get(server.consumer_label, "")
            consumer = "" if consumer == server.no_consumer else consumer
        return CounterSeries(
            namespace,
            pod,
            server.name,
            labels.get(server.model_label, "") if server.model_label else "",
            kind,
            labels.get("instance", ""),
            scrape_target(labels),
            frozenset((name, labels[name]) for name in labels.keys() - self._ignored_labels[server.name]),
            increase,
            samples,
            consumer,
        )
