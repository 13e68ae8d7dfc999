"""Reads observations from Prometheus: five to eight queries for an hour, and raw samples of what changed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import chain

from msgspec.structs import replace

from gpucost.core.errors import HoursTooLargeError, MetricsResponseError, MetricsTooLargeError, MetricsUnavailableError
from gpucost.core.hours import HOUR, HOUR_MS, format_timestamp, to_epoch_ms
from gpucost.core.metering.accelerators import accelerator_of_power
from gpucost.core.metering.contradictions import (
    Gpu,
    PowerByHour,
    contradicted_gpus,
    gpus_at_zero,
    says_in_use,
    stuck_signal_notes,
)
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE
from gpucost.core.metering.observations import DeviceSeries, Observation
from gpucost.core.metering.signals import Signal
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.client import PrometheusClient, Series
from gpucost.sources.prometheus.cluster_labels import Clusters
from gpucost.sources.prometheus.devices import Devices, DeviceTable, Energy, gpu_uuid, node_name, read_device_samples
from gpucost.sources.prometheus.families import (
    LOOK_AROUND,
    NAMES_PER_QUERY,
    ClusterMetrics,
    Family,
    HourReading,
    Query,
    RowsByStatistic,
)
from gpucost.sources.prometheus.fractions import Fractions
from gpucost.sources.prometheus.memory_budget import MemoryBudget
from gpucost.sources.prometheus.nodes import InstanceLookup, Nodes, NodeTypes
from gpucost.sources.prometheus.pods import Pods
from gpucost.sources.prometheus.queries import NO_STATISTIC_LABEL, POWER, Queries
from gpucost.sources.prometheus.resource_claims import Claims
from gpucost.sources.prometheus.scrapes import ExporterScrapes, HourScrapes, hour_scrapes
from gpucost.sources.prometheus.server_counters import Counters
from gpucost.sources.prometheus.sharding import ShardedClient
from gpucost.sources.prometheus.tables import first_common_label_name, rows_at


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


HOURS_OF_DAY = 24
"""The hours in which the lowest power is searched, the last of which is the hour itself."""


class ContradictedSignals(Family):
    """GPUs whose signal is 0 while other signals, or their power, say that they are in use.

    Args:
        measures_contradicted: whether another signal measures GPUs whose signal of 0 it contradicts.
    """

    def __init__(self, metrics: ClusterMetrics, *, measures_contradicted: bool) -> None:
        super().__init__(metrics)
        self._measures_contradicted = measures_contradicted

    def read(self, reading: HourReading) -> None:
        """Compare GPUs whose signal is 0 with other witnesses, and replace their series where another signal counts."""
        at_zero = gpus_at_zero(reading.devices, (*reading.pod_observations, *reading.claiming))
        if not at_zero:
            return
        nodes, label = sorted({node for node, _ in at_zero}), _host_label(reading.rows["devices"])
        only = nodes if label and len(nodes) <= NAMES_PER_QUERY else []
        day = [reading.hour - number * HOUR for number in reversed(range(HOURS_OF_DAY))]
        build = {"witnesses": lambda queries: queries.witnesses({*at_zero.values()}, only, label)}
        (series,) = self._metrics.query_hours(build, day).values()
        signals, names = self._metrics.queries.signals, reading.nodes.by_instance_id()
        witnesses = Witnesses(series, to_epoch_ms(reading.hour + HOUR), signals, names)
        contradicted = contradicted_gpus(at_zero.keys(), witnesses.series(), witnesses.power())
        measured: dict[Gpu, list[DeviceSeries]] = {}
        for table in witnesses.tables if self._measures_contradicted and contradicted else ():
            of_table = {(device.node, device.uuid) for device in table.series() if says_in_use(device)}
            table.keep_gpus((of_table & contradicted.keys()) - measured.keys())
            read_device_samples(self._metrics, table, reading.scrapes, reading.partial_pods, reading.hour)
            for device in table.series():
                measured.setdefault((device.node, device.uuid), []).append(device)
        if measured:
            others = (device for device in reading.devices if (device.node, device.uuid) not in measured)
            reading.devices = (*others, *chain.from_iterable(measured.values()))
        reading.contradicted_gpus = contradicted.keys() - measured.keys()
        reading.device_notes += stuck_signal_notes(contradicted, measured, at_zero)

    def notes(self, reading: HourReading) -> Iterable[str]:
        """All notes on devices, after those on pods and nodes."""
        return reading.device_notes


def _host_label(devices: RowsByStatistic) -> str:
    """The label that holds nodes' names in the series of NVIDIA's GPUs; "" if they have none in common."""
    of_gpus = (labels for labels, _ in chain.from_iterable(devices.values()) if "UUID" in labels)
    return first_common_label_name(of_gpus, ("Hostname", "hostname"))


class Witnesses:
    """Reads the results of `Queries.witnesses`.

    Args:
        series: the result at the ends of the hours of a day.
        end_ms: the end of the hour.
        signals: of all ranks, the best first.
        nodes: names of nodes, by name and by EC2 instance id.
    """

    def __init__(
        self, series: Sequence[Series], end_ms: int, signals: Sequence[Sequence[Signal]], nodes: Mapping[str, str]
    ) -> None:
        self._series = series
        self._end_ms = end_ms
        self._nodes = nodes
        rows = rows_at(series, end_ms)
        self.tables: list[DeviceTable] = []
        """The GPUs by the signals of each lower rank."""
        for rank in range(1, len(signals)):
            first = f"sum {signals[rank][0].name}"
            of_rank = {NO_STATISTIC_LABEL if name == first else name: some for name, some in rows.items()}
            self.tables.append(DeviceTable(rank, signals[rank], of_rank, nodes))

    def series(self) -> Iterable[tuple[str, DeviceSeries]]:
        """The series of the other signals, each with its signal's name, those of better signals first."""
        for table in self.tables:
            name = table.signal_names()
            yield from ((name, device) for device in table.series())

    def power(self) -> dict[Gpu, PowerByHour]:
        """The power of each GPU that has some in the hour and in another one of the day."""
        watts: dict[Gpu, dict[int, Decimal]] = {}
        for number in range(HOURS_OF_DAY):
            end_ms = self._end_ms - number * HOUR_MS
            for statistic, rows in rows_at(self._series, end_ms).items():
                kind, _, metric = statistic.partition(" ")
                if kind != POWER:
                    continue
                accelerator = accelerator_of_power(metric)
                for labels, mean in rows:
                    if mean.is_finite() and mean > 0:
                        uuid = gpu_uuid(labels) if accelerator is None else accelerator.labels.identify(labels).uuid
                        gpu = node_name(labels, self._nodes), uuid
                        by_hour = watts.setdefault(gpu, {})
                        by_hour[end_ms] = max(mean, by_hour.get(end_ms, mean))
        return {
            gpu: PowerByHour(by_hour[self._end_ms], min(by_hour.values()))
            for gpu, by_hour in watts.items()
            if self._end_ms in by_hour and len(by_hour) > 1
        }
