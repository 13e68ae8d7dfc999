"""Reads observations from Prometheus: five to eight queries for an hour, and raw samples of what changed."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction

from msgspec.structs import replace

from gpucost.core.errors import HoursTooLargeError, MetricsResponseError, MetricsTooLargeError, MetricsUnavailableError
from gpucost.core.hours import HOUR, format_timestamp, to_epoch_ms
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE
from gpucost.core.metering.observations import Observation
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.client import PrometheusClient, Series
from gpucost.sources.prometheus.cluster_labels import Clusters
from gpucost.sources.prometheus.devices import Devices
from gpucost.sources.prometheus.energy import Energy
from gpucost.sources.prometheus.families import LOOK_AROUND, ClusterMetrics, Family, HourReading, Query
from gpucost.sources.prometheus.fractions import Fractions
from gpucost.sources.prometheus.memory_budget import MemoryBudget
from gpucost.sources.prometheus.node_hardware import InstanceLookup, NodeTypes
from gpucost.sources.prometheus.nodes import Nodes
from gpucost.sources.prometheus.pods import Pods
from gpucost.sources.prometheus.queries import Queries
from gpucost.sources.prometheus.resource_claims import Claims
from gpucost.sources.prometheus.scrape_times import ExporterScrapes
from gpucost.sources.prometheus.scrapes import HourScrapes, hour_scrapes
from gpucost.sources.prometheus.server_counters import Counters
from gpucost.sources.prometheus.sharding import ShardedClient
from gpucost.sources.prometheus.witnesses import ContradictedSignals


class PrometheusReader:
    """Reads the metrics of one cluster.

    Args:
        client: of the cluster's Prometheus.
        queries: the cluster's queries.
        cluster: the cluster's name.
        clock: the time now; queries never ask for the future.
        budget: the client's memory budget for all hours that are read together.
        per_process: whether the settings need the utilization of processes on shared GPUs.
        measures_contradicted: whether another signal measures GPUs whose signal of 0 it contradicts.
        pod_labels: whether the settings need pods' labels.
        namespace_labels: whether the settings need namespaces' labels.
        gpus_by_instance_type: the instance types with NVIDIA GPUs.
        instances: returns what EC2 says about nodes without labels, by provider id; None: only metrics are read.
    """

    def __init__(
        self,
        client: PrometheusClient,
        queries: Queries,
        *,
        cluster: str,
        clock: Callable[[], datetime],
        budget: MemoryBudget,
        per_process: bool = False,
        measures_contradicted: bool = False,
        pod_labels: bool = False,
        namespace_labels: bool = False,
        gpus_by_instance_type: Mapping[str, int | Fraction] = GPUS_OF_INSTANCE,
        instances: InstanceLookup | None = None,
    ) -> None:
        self._budget = budget
        self._retention = client.retention
        metrics = self._metrics = ClusterMetrics(ShardedClient(client, queries, budget), queries, cluster, clock)
        pods = Pods(metrics, pod_labels=pod_labels, namespace_labels=namespace_labels)
        self._families: Sequence[Family] = (  # each may use what those before it have read
            pods,
            Nodes(metrics, gpus_by_instance_type),
            Fractions(metrics, pods),
            Devices(metrics, per_process=per_process),
            Energy(metrics),
            NodeTypes(metrics, instances),
            Clusters(metrics),
            Claims(metrics, pods),
            ContradictedSignals(metrics, measures_contradicted=measures_contradicted),
        )
        self._counters = None if queries.inference is None else Counters(metrics, queries.inference)

    def retention(self) -> timedelta | None:
        """How long the server keeps samples; None if it does not say."""
        return self._retention()

    def observe(self, hours: Sequence[datetime]) -> list[Observation]:
        """Read the observations of consecutive hours with one set of range queries.

        Raises:
            MetricsUnavailableError, MetricsResponseError: see `PrometheusClient`. Partial responses are never used.
        """
        self._budget.reset()
        try:
            return self._observe(hours)
        except (ValueError, ArithmeticError, KeyError) as error:
            since = format_timestamp(hours[0])
            raise MetricsResponseError(
                f"cluster {self._metrics.cluster}: Prometheus' response for the hours from {since} is unusable: {error}"
            ) from error

    def _observe(self, hours: Sequence[datetime]) -> list[Observation]:
        # First what every hour needs. Devices take longest, and two queries are evaluated at once: they come first.
        results: dict[str, list[Series]] = {}
        notes: list[str] = []
        in_any_case: dict[str, Query] = {}
        for family in reversed(self._families):
            in_any_case |= family.queries()
        self._evaluate(in_any_case, hours, results, notes)

        # When kube-state-metrics was scraped: with how many samples an object was there all hour.
        scrapes = self._metrics.scrape_times.allocation_scrapes(
            [*results["requests"], *results["nodes"]], hours[0] - LOOK_AROUND, self._metrics.look_end(hours[-1])
        )
        allocation = [hour_scrapes(scrapes, hour) for hour in hours]
        with_gaps = {
            to_epoch_ms(around.hour + HOUR) for around in allocation if self._metrics.wider_window(around) is not None
        }

        # Then what the results call for, such as phases of pods that did not run all hour, until nothing is new.
        while further := {
            name: query
            for family in self._families
            for name, query in family.further_queries(results, with_gaps).items()
            if name not in results
        }:
            self._evaluate(further, hours, results, notes)
        devices = [*results["devices"], *results.get("device counts", [])]
        exporters = self._metrics.scrape_times.exporter_scrapes(devices, hours, self._metrics.clock())
        observations = [self._read(results, around, exporters, notes) for around in allocation]
        results.clear()
        return self._with_counters(observations, hours)

    def _evaluate(
        self,
        queries: Mapping[str, Query],
        hours: Sequence[datetime],
        results: dict[str, list[Series]],
        notes: list[str],
    ) -> None:
        """Add the results of queries. If one is too large that costs do not need, a note says what is unknown."""
        needed = {name: query.build for name, query in queries.items() if not query.unknown_without}
        if needed:
            results |= self._metrics.query_hours(needed, hours)
        for name in queries.keys() - needed.keys():
            try:
                results |= self._metrics.query_hours({name: queries[name].build}, hours)
            except (MetricsTooLargeError, HoursTooLargeError) as error:
                if isinstance(error, HoursTooLargeError) and len(hours) > 1:
                    raise
                notes.append(f"{queries[name].unknown_without}: {_without_query(error)}")
                results[name] = []

    def _read(
        self,
        results: Mapping[str, Sequence[Series]],
        allocation: HourScrapes,
        exporters: ExporterScrapes,
        query_notes: Sequence[str],
    ) -> Observation:
        end = to_epoch_ms(allocation.hour + HOUR)
        rows = {name: tables.rows_at(series, end) for name, series in results.items()}
        reading = HourReading(allocation.hour, rows, allocation, exporters)
        for family in self._families:
            family.read(reading)
        return reading.observation(
            self._metrics.cluster,
            [*query_notes, *(note for family in self._families for note in family.notes(reading))],
            (unexplained for family in self._families for unexplained in family.unexplained(reading)),
        )

    def _with_counters(self, observations: list[Observation], hours: Sequence[datetime]) -> list[Observation]:
        """Add the counters of inference servers.

        Any pod may expose counters, so they are read last, with the memory and time that are left. If they cannot be
        read, tokens are unknown, and costs are complete.
        """
        if self._counters is None:
            return observations
        try:
            counters = self._counters.of_hours(hours)
        except (MetricsResponseError, MetricsUnavailableError, ValueError, ArithmeticError, KeyError) as error:
            if isinstance(error, HoursTooLargeError) and len(hours) > 1:
                raise
            note = f"tokens of all models are unknown: {_without_query(error)}"
            return [replace(observation, notes=(*observation.notes, note)) for observation in observations]
        return [
            replace(observation, counters=of_hour, notes=(*observation.notes, *notes))
            for observation, (of_hour, notes) in zip(observations, counters, strict=True)
        ]


def _without_query(error: Exception) -> str:
    """An error's sentence without its query, which is long."""
    return str(error).partition(" (query: ")[0]
