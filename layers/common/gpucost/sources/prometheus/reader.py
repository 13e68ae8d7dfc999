"""Reads observations from Prometheus: five to eight queries for an hour, and raw samples of what changed."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import chain
from typing import Literal, NamedTuple

from msgspec.structs import replace

from gpucost.core.errors import HoursTooLargeError, MetricsResponseError, MetricsTooLargeError, MetricsUnavailableError
from gpucost.core.hours import HOUR, format_timestamp, to_epoch_ms
from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.exporter_conflicts import exporter_of
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.metering.kubernetes_labels import INSTANCE_TYPE_LABEL
from gpucost.core.metering.observations import (
    LOOK_AROUND_MS,
    DeviceSeries,
    EnergySeries,
    NodeObservation,
    Observation,
    PodObservation,
    ScrapeTarget,
    ServerCounters,
    VirtualGpus,
)
from gpucost.core.metering.signals import PROCESS_FAMILY, SIGNALS, VGPU_SIGNALS
from gpucost.core.metering.stuck_signals import Gpu, contradicted_gpus, gpus_at_zero, says_in_use, stuck_signal_notes
from gpucost.core.metering.unlabeled_nodes import NodeHardware, ReportedNode, describe_unlabeled_nodes
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.client import PrometheusClient, Series
from gpucost.sources.prometheus.cluster_labels import multiple_clusters
from gpucost.sources.prometheus.device_counts import instances_with_uneven_counts
from gpucost.sources.prometheus.devices import DeviceTable, batches_of_label_values
from gpucost.sources.prometheus.energy import EnergyTable
from gpucost.sources.prometheus.gpu_reservations import (
    as_requests,
    fractions_of_pods,
    groups_of_pods,
    has_reservations,
)
from gpucost.sources.prometheus.inference import CounterTable
from gpucost.sources.prometheus.memory_budget import (
    MemoryBudget,
    device_samples_size,
    pod_samples_size,
    raw_samples_size,
)
from gpucost.sources.prometheus.multiple_jobs import notes_on_missing_objects
from gpucost.sources.prometheus.node_hardware import has_unlabeled_nodes, node_hardware
from gpucost.sources.prometheus.nodes import NODE_METRICS, NodeTable
from gpucost.sources.prometheus.pods import PodTable, pods_not_running
from gpucost.sources.prometheus.queries import (
    ADMIN_NAMESPACES,
    HOUR_WINDOW,
    NO_STATISTIC_LABEL,
    InferenceLabels,
    PodMatcher,
    Queries,
    Window,
)
from gpucost.sources.prometheus.resource_claims import (
    claiming_pods,
    ended_pods_with_claims,
    unreported_claims,
    vendors_of_silent_nodes,
)
from gpucost.sources.prometheus.resource_slices import ClaimTable
from gpucost.sources.prometheus.scrape_times import SCRAPE_MARGIN, ExporterScrapes, ScrapeTimesReader
from gpucost.sources.prometheus.scrapes import HourScrapes, hour_scrapes
from gpucost.sources.prometheus.sharding import KeptSize, ShardedClient
from gpucost.sources.prometheus.unknown_resources import unknown_resources
from gpucost.sources.prometheus.vgpus import has_fractions, virtual_gpus
from gpucost.sources.prometheus.witnesses import HOURS_OF_DAY, Witnesses

LOOK_AROUND = timedelta(milliseconds=LOOK_AROUND_MS)
NAMES_PER_QUERY = 400
SERIES_PER_POD = 7
"""Requests, three phases, owner, scheduled, and completed or labels."""
SERVERS_PER_QUERY = 50
"""Pods of inference servers, each with about ten counters."""
SAMPLES_PER_QUERY = 400_000
"""About 10 MB of response: far below AMP's limit of 50 MB, and little memory."""

_OPTIONAL = {
    "labels": "labels of pods and namespaces are unknown, so no cost has a unit or label by them",
    "sharers": "fractions of reserved GPUs are unknown",
}
"""What is unknown without a query's answer, which may be too large because of what tenants write."""

RowsByStatistic = Mapping[str, tables.Rows]
QueryBuilders = dict[str, Callable[[Queries], str]]
"""Queries by name."""


InstanceLookup = Callable[[Collection[str]], Mapping[str, ReportedNode]]
"""Returns what EC2 says about nodes, by provider id."""


class PartialHourPods(NamedTuple):
    """Pods that held GPUs for a part of the hour only."""

    names: set[tuple[str, str]]
    """Namespace and name."""
    fully_held_nodes: set[str]
    """Nodes on which one of them may hold all GPUs."""
    all_gpu_pods: set[tuple[str, str]]
    """All pods that request GPUs; empty if there are no such nodes."""
    gpus: Set[str] = frozenset()
    """UUIDs of GPUs on which one of them had a fraction."""


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
        self._gpus_by_instance_type = gpus_by_instance_type
        self._instances = instances
        self._client = ShardedClient(client, queries, budget)
        self._budget = budget
        self._retention = client.retention
        self._scrape_times = ScrapeTimesReader(self._client, queries)
        self._queries = queries
        self._cluster = cluster
        self._clock = clock
        self._per_process = per_process
        self._measures_contradicted = measures_contradicted
        self._pod_labels = pod_labels
        self._namespace_labels = namespace_labels

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
                f"cluster {self._cluster}: Prometheus' response for the hours from {since} is unusable: {error}"
            ) from error

    def _observe(self, hours: Sequence[datetime]) -> list[Observation]:
        builders: QueryBuilders = {  # the slowest first, because two are evaluated at once
            "devices": lambda queries: queries.devices(0),
            "requests": lambda queries: queries.requests(),
            "owners": lambda queries: queries.owners(),
            "running": lambda queries: queries.running(),
            "nodes": lambda queries: queries.nodes(),
        }
        results = self._client.query_hours(builders, hours)
        notes: list[str] = []
        if self._pod_labels or self._namespace_labels:
            results |= self._optional("labels", self._labels_query, hours, notes)
        scrapes = self._scrape_times.allocation_scrapes(
            [*results["requests"], *results["nodes"]], hours[0] - LOOK_AROUND, self._look_end(hours[-1])
        )
        allocation = [hour_scrapes(scrapes, hour) for hour in hours]
        with_gaps = {to_epoch_ms(around.hour + HOUR) for around in allocation if self._wider_window(around)}
        further_builders = self._phases_query(results, with_gaps)
        further_builders |= self._device_counts_query(0, results["devices"], "device counts")
        if has_fractions(results["requests"]):
            further_builders["vgpus"] = lambda queries: queries.vgpus()
            further_builders["containers"] = lambda queries: queries.of_containers().devices(0)
            further_builders["container counts"] = lambda queries: queries.of_containers().device_counts(0)
        results |= self._client.query_hours(further_builders, hours)
        if has_unlabeled_nodes(results["nodes"], lambda: _gpu_nodes(results)):
            results |= self._client.query_hours({"hardware": lambda queries: queries.hardware()}, hours)
        if has_reservations(results["requests"]):
            results |= self._optional("sharers", lambda queries: queries.sharers(), hours, notes)
        # Of hours with gaps, phases are read from before the gap (`_extend_across_gaps`).
        if len(with_gaps) < len(hours) and _lacks_phases(results):
            results |= self._client.query_hours({"completed": Queries.completed}, hours)
        devices = [*results["devices"], *results.get("device counts", [])]
        exporters = self._scrape_times.exporter_scrapes(devices, hours, self._clock())
        observations = [
            self._build_observation(
                {name: tables.rows_at(series, to_epoch_ms(around.hour + HOUR)) for name, series in results.items()},
                around,
                exporters,
                notes,
            )
            for around in allocation
        ]
        results.clear()
        return self._with_counters(observations, hours)

    def _optional(
        self, name: str, build: Callable[[Queries], str], hours: Sequence[datetime], notes: list[str]
    ) -> dict[str, list[Series]]:
        """Evaluate a query that allocation, utilization and costs do not need.

        If its answer for an hour is too large, a note says what is unknown.
        """
        try:
            return self._client.query_hours({name: build}, hours)
        except (MetricsTooLargeError, HoursTooLargeError) as error:
            if isinstance(error, HoursTooLargeError) and len(hours) > 1:
                raise
            notes.append(f"{_OPTIONAL[name]}: {_without_query(error)}")
            return {name: []}

    def _build_observation(
        self,
        rows: dict[str, RowsByStatistic],
        allocation: HourScrapes,
        exporters: ExporterScrapes,
        query_notes: Sequence[str],
    ) -> Observation:
        hour = allocation.hour
        with_gpus = _nodes_with_gpus(rows["devices"], rows["requests"])
        nodes = NodeTable(rows["nodes"], with_gpus, self._gpus_by_instance_type)
        self._read_changed_nodes(nodes, allocation)
        covered = allocation
        allocation, rows = self._extend_across_gaps(allocation, rows)
        pods = PodTable(
            rows["requests"],
            (labels for labels, _ in rows["running"].get(NO_STATISTIC_LABEL, [])),
            rows.get("phases", {}),
            (labels for labels, _ in rows.get("completed", {}).get(NO_STATISTIC_LABEL, ())),
        )
        pods.add_owners(rows["owners"])
        pods.labels.add(rows.get("labels", {}))
        if allocation is not covered and rows["nodes"].get("info"):
            self._read_raw_samples(nodes, nodes.add_missing(pods.node_names()), hour)
        partial = [
            *self._read_changed_pods(pods, allocation),
            *self._read_fractions(pods, rows.get("sharers"), allocation.hour),
        ]
        self._read_ended_pods_with_claims(pods, rows["owners"], allocation.hour)
        fully_held_nodes = pods.fully_held_nodes(partial, nodes.advertised_units)
        vgpus, container_scrapes = self._virtual_gpus(rows, pods, partial, hour)
        partial_gpus = {uuid for name in pods.names(partial) for uuid in vgpus.gpus_of_pod.get(name, ())}
        fully_held_nodes |= pods.nodes_with_fractions(partial, except_names=vgpus.gpus_of_pod)
        partial_pods = PartialHourPods(
            pods.names(partial),
            fully_held_nodes,
            pods.names(pods.uids()) if fully_held_nodes else set(),
            partial_gpus,
        )
        devices, process_devices, scrapes, device_notes = self._devices(
            {**rows["devices"], **rows.get("device counts", {})},
            nodes,
            partial_pods,
            hour,
            dict(exporters.around_hour(hour)),
        )
        energy = self._energy(rows["devices"], devices, nodes.by_instance_id(), hour)
        pod_observations, node_observations = pods.pods(), nodes.nodes()
        node_observations, type_notes = self._describe_unlabeled(
            node_observations, rows, devices, pod_observations, nodes
        )
        claiming = [
            pods.with_owner_and_labels(pod)
            for pod in claiming_pods(devices, rows["owners"].get("claim", []), pod_observations)
        ]
        silent_nodes = _silent_nodes(node_observations, devices) if rows["nodes"].get("kept") else set()
        collected, admin_namespaces = self._read_claim_objects(rows["owners"].get("claim", []), silent_nodes, hour)
        if collected:
            of_claims = {
                (tables.exported_label(labels, "namespace"), labels.get("resourceclaim_name", ""))
                for labels, _ in rows["owners"].get("claim", [])
            }
            claiming += [
                pods.with_owner_and_labels(pod)
                for pod in collected.claiming_pods(of_claims, claiming, pod_observations)
            ]
            scrapes |= collected.scrapes
        if claiming and admin_namespaces is None:  # only the exporter's labels say that there are claims
            (series,) = self._client.query_hours({"namespaces": Queries.admin_namespaces}, [hour]).values()
            admin_namespaces = _namespaces(series)
        cluster_notes, unexplained = multiple_clusters(
            (labels for labels, _ in rows["nodes"].get("info") or rows["nodes"].get("capacity") or []), rows["nodes"]
        )
        unexplained += unknown_resources(rows["nodes"], self._cluster)
        unexplained += pods.unknown_phases()
        vendors = vendors_of_silent_nodes(node_observations) if rows["owners"].get("claim") else set()
        unexplained += unreported_claims(rows["owners"].get("claim", []), claiming, vendors)
        unexplained += collected.unknown_drivers() if collected else []
        contradicted: set[Gpu] = set()
        if at_zero := gpus_at_zero(devices, (*pod_observations, *claiming)):
            devices, contradicted, stuck_notes = self._check_with_witnesses(
                devices, at_zero, _host_label(rows["devices"]), nodes.by_instance_id(), partial_pods, hour, scrapes
            )
            device_notes += stuck_notes
        notes = [*query_notes, *pods.labels.notes]
        notes += [
            f"one target ({exporter_of(target)}) reports other nodes in each scrape: its Service sends each scrape to "
            "another shard of kube-state-metrics. Scrape every shard's pod, not the Service's address"
            for target in nodes.targets_in_turn()
        ]
        if not self._queries.trusted_series.has_matchers("kube_state_metrics"):
            notes += notes_on_missing_objects(nodes, pods, allocation)
        return Observation(
            cluster=self._cluster,
            hour=hour,
            allocation_scrapes=allocation.scrapes,
            pods=(*pod_observations, *claiming),
            nodes=node_observations,
            devices=devices,
            utilization_scrapes=scrapes | container_scrapes,
            vgpus=vgpus,
            collects_nodes=bool(rows["nodes"].get("info")),
            collects_capacity=bool(rows["nodes"].get("kept")),
            lacks_ends_of_pods=pods.lacks_ends,
            contradicted_gpus=frozenset(contradicted),
            process_devices=process_devices,
            notes=tuple(dict.fromkeys([*notes, *nodes.notes, *type_notes, *cluster_notes, *device_notes])),
            unexplained=tuple(unexplained),
            admin_namespaces=admin_namespaces if claiming else None,
            offered_devices=collected.offered_devices() if collected else (),
            energy=energy,
        )

    def _with_counters(self, observations: list[Observation], hours: Sequence[datetime]) -> list[Observation]:
        """Add the counters of inference servers.

        Any pod may expose counters, so they are read last, with the memory and time that are left. If they cannot be
        read, tokens are unknown, and costs are complete.
        """
        inference = self._queries.inference
        if inference is None:
            return observations
        try:
            builders: QueryBuilders = {"counters": lambda queries: queries.counters(inference)}
            (series,) = self._client.query_hours(builders, hours).values()
            counters = [
                self._counters(tables.rows_at(series, to_epoch_ms(hour + HOUR)), inference, hour) for hour in hours
            ]
        except (MetricsResponseError, MetricsUnavailableError, ValueError, ArithmeticError, KeyError) as error:
            if isinstance(error, HoursTooLargeError) and len(hours) > 1:
                raise
            counters = [(ServerCounters(), [f"tokens of all models are unknown: {_without_query(error)}"])] * len(hours)
        return [
            replace(observation, counters=of_hour, notes=(*observation.notes, *notes))
            for observation, (of_hour, notes) in zip(observations, counters, strict=True)
        ]

    def _extend_across_gaps(
        self, allocation: HourScrapes, rows: dict[str, RowsByStatistic]
    ) -> tuple[HourScrapes, dict[str, RowsByStatistic]]:
        """If a scrape gap touches an edge of the hour, count samples up to the next scrapes beyond it.

        This takes two queries for all pods instead of raw samples of each, and two more if there are no samples at the
        hour's end, and one for the raw samples of nodes that appear in the gap.
        """
        wider = self._wider_window(allocation)
        if wider is None:
            return allocation, rows
        time, window = wider
        builders: QueryBuilders = {
            "requests": lambda queries: queries.requests(window),
            "running": lambda queries: queries.running(window),
        }
        if time > to_epoch_ms(allocation.hour + HOUR):
            builders["owners"] = lambda queries: queries.owners()
            if "labels" in rows:
                builders["labels"] = self._labels_query
        results = self._client.query_at(builders, time)
        results |= self._client.query_at(self._phases_query(results, set(), window), time)
        if _lacks_phases(results):
            results |= self._client.query_at({"completed": Queries.completed}, time)
        allocation = hour_scrapes(allocation.scrapes, allocation.hour, IntervalMs(time - window.length, time))
        return allocation, rows | {name: tables.rows_at(series, time) for name, series in results.items()}

    def _wider_window(self, allocation: HourScrapes) -> tuple[int, Window] | None:
        return allocation.wider_window(to_epoch_ms(self._look_end(allocation.hour)))

    def _phases_query(
        self, results: Mapping[str, Sequence[Series]], except_at: Container[int], window: Window = HOUR_WINDOW
    ) -> QueryBuilders:
        """A query for the phases of pods that did not run at both ends; none if there are no such pods.

        Args:
            results: of the queries `requests` and `running`.
            except_at: ends of hours to ignore, in milliseconds.
            window: of the queries.
        """
        others = pods_not_running(results["requests"], results["running"], except_at)
        by_uid = others if len(others) <= NAMES_PER_QUERY and not any("/" in uid for uid in others) else set()
        return {"phases": lambda queries: queries.phases(window, sorted(by_uid))} if others else {}

    def _device_counts_query(self, rank: int, devices: Iterable[Series], name: str) -> QueryBuilders:
        """A query for the sample counts of exporters whose series differ in them; none if no exporter does."""
        uneven = instances_with_uneven_counts(devices)
        instances = sorted(uneven) if len(uneven) <= NAMES_PER_QUERY else []
        return {name: lambda queries: queries.device_counts(rank, instances)} if uneven else {}

    def _labels_query(self, queries: Queries) -> str:
        return queries.labels(of_pods=self._pod_labels, of_namespaces=self._namespace_labels) or ""

    def _read_changed_nodes(self, nodes: NodeTable, allocation: HourScrapes) -> None:
        """Add raw samples of nodes that started, ended or changed in the hour."""
        changed = nodes.needing_raw_samples(allocation.covers_hour, allocation.expected)
        self._read_raw_samples(nodes, changed, allocation.hour)

    def _read_raw_samples(self, nodes: NodeTable, all_names: Sequence[str], hour: datetime) -> None:
        for names in _chunks(all_names):
            for label in nodes.name_labels:
                selector = self._queries.node_metrics(names, NODE_METRICS, label)
                with self._raw_samples_around(selector, hour) as series:
                    nodes.add_raw_samples(names, series)

    def _read_changed_pods(self, pods: PodTable, allocation: HourScrapes) -> Sequence[str]:
        """Add raw samples of pods that started, ended or changed in the hour, and return their uids."""
        changed = pods.needing_raw_samples(allocation.covers_hour)
        size = _pods_per_query(allocation)
        for uids in _chunks([uid for uid in changed if "/" not in uid], size):
            self._read_pods(pods, uids, PodMatcher("uid", tuple(uids)), allocation.hour)
        for uids in _chunks([uid for uid in changed if "/" in uid], size):
            label: Literal["pod", "exported_pod"] = "pod" if pods.name_label == "pod" else "exported_pod"
            matcher = PodMatcher(label, tuple(uid.split("/")[1] for uid in uids))
            self._read_pods(pods, uids, matcher, allocation.hour)
        self._read_missing_owners(pods, pods.names(changed), allocation.hour)
        return changed

    def _read_fractions(self, pods: PodTable, rows: RowsByStatistic | None, hour: datetime) -> Sequence[str]:
        """Add pods with fractions of reserved GPUs; returns their uids and those of the reservation pods."""
        if rows is None:
            return []
        groups = groups_of_pods(rows)
        reservations = pods.reservations()
        pods.reserved_groups = {uid: group for uid in reservations for group in groups.get(uid, ())}
        node_of_group = {group: reservations[uid] for uid, group in pods.reserved_groups.items()}
        sharing = {
            uid: names for uid, names in groups.items() if uid not in reservations and names & node_of_group.keys()
        }
        fractions = fractions_of_pods(rows, sharing)
        for uids in _chunks(sorted(fractions)):
            selector = self._queries.pod_metrics(PodMatcher("uid", tuple(uids)), labels=True)
            with self._raw_samples_around(selector, hour) as series:
                requests = as_requests(series, fractions, node_of_group)
                with_samples = {request.labels["uid"] for request in requests}
                pods.add_raw_samples(with_samples, [*series, *requests])
            pods.fractions |= {uid: fractions[uid] for uid in with_samples}
        self._read_missing_owners(pods, pods.names(pods.fractions), hour)
        return [*pods.fractions, *reservations]

    def _read_ended_pods_with_claims(self, pods: PodTable, owners: RowsByStatistic, hour: datetime) -> None:
        """Add owners and labels of pods that held GPUs through claims and do not exist at the hour's end."""
        ended = ended_pods_with_claims(owners, pods.uids())
        for uids in _chunks(list(ended)):
            self._read_pods(pods, (), PodMatcher("uid", tuple(uids)), hour)
        self._read_missing_owners(pods, ended.values(), hour)

    def _read_claim_objects(
        self, claims: tables.Rows, silent_nodes: Collection[str], hour: datetime
    ) -> tuple[ClaimTable | None, frozenset[str] | None]:
        """ResourceSlices and claims, if there is a collector, and the namespaces whose claims may have admin access.

        Most clusters have no DRA driver, and need no query.

        Args:
            claims: `kube_pod_resourceclaim_info`.
            silent_nodes: nodes with GPUs that advertise none, as those of a DRA driver.
            hour: the hour.
        """
        if not claims and not silent_nodes:
            return None, None
        builders: QueryBuilders = {"claims": lambda queries: queries.claim_objects()}
        (series,) = self._client.query_hours(builders, [hour]).values()
        end = to_epoch_ms(hour + HOUR)
        rows = tables.rows_at(series, end)
        admin_namespaces = _namespaces(rows.get(ADMIN_NAMESPACES, ()))
        table = ClaimTable(rows)
        if not table:
            return None, admin_namespaces
        scrapes = self._scrape_times.collector_scrapes(
            table.densest_series(), table.collector.devices, hour - LOOK_AROUND, self._look_end(hour)
        )
        table.set_scrapes(scrapes, IntervalMs(end - HOUR_WINDOW.length, end))
        for (metric, label), values in table.needing_raw_samples().items():
            for some in _chunks(values):
                selector = self._queries.claim_object_metrics(metric, label, some)
                with self._raw_samples_around(selector, hour) as series_of_objects:
                    table.add_raw_samples(metric, series_of_objects)
        return table, admin_namespaces

    def _read_missing_owners(self, pods: PodTable, names: Iterable[tuple[str, str]], hour: datetime) -> None:
        for kind, owners in pods.missing_owners(names).items():
            stat: Literal["replicaset", "job"] = "replicaset" if kind == "replicaset" else "job"
            for some in _chunks(sorted(owners)):
                with self._raw_samples_around(self._queries.owner_metrics(stat, some), hour) as series:
                    pods.add_owners({stat: [(labels, tables.parse_number("1")) for labels, _ in series]})

    def _read_pods(self, pods: PodTable, uids: Sequence[str], matcher: PodMatcher, hour: datetime) -> None:
        selector = self._queries.pod_metrics(matcher, labels=self._pod_labels)
        with self._raw_samples_around(selector, hour, pod_samples_size) as series:
            pods.add_raw_samples(uids, series)

    def _devices(
        self,
        rows: RowsByStatistic,
        nodes: NodeTable,
        partial: PartialHourPods,
        hour: datetime,
        exporters: dict[ScrapeTarget, Scrapes],
    ) -> tuple[tuple[DeviceSeries, ...], tuple[DeviceSeries, ...], dict[ScrapeTarget, Scrapes], list[str]]:
        """Series of the best signal, and of the next best for devices without it; of processes; scrapes; notes."""
        series: list[DeviceSeries] = []
        notes: list[str] = []
        names = nodes.by_instance_id()
        table = DeviceTable(0, self._queries.signals[0], rows, names)
        gpus_by_node = table.gpus_by_node()
        label = tables.first_common_label_name(table.labels, ("Hostname", "hostname"))
        self._read_partial_devices(table, exporters, partial, hour)
        series.extend(table.series())
        notes += _notes_on_services(table)
        by_rank = {0: table}
        for rank in range(1, len(self._queries.signals)):
            without = nodes.with_missing_gpus(gpus_by_node)
            if not without:
                break
            has_names = label and gpus_by_node and len(without) <= NAMES_PER_QUERY
            table = self._fallback_devices(rank, sorted(without) if has_names else [], label, names, hour)
            table.keep_missing_gpus(without, gpus_by_node)
            exporters |= self._scrape_times.rank_scrapes(table.rank, table.densest_series(), [hour], self._clock())
            self._read_partial_devices(table, exporters, partial, hour)
            series.extend(table.series())
            notes += _fallback_notes(table, gpus_by_node, self._queries.signals[0][0].name)
            by_rank[rank] = table
            for node, gpus in table.gpus_by_node().items():
                gpus_by_node.setdefault(node, set()).update(gpus)
        processes = tuple(self._process_devices(by_rank, label, names, partial, hour, exporters))
        return tuple(series), processes, exporters, notes

    def _check_with_witnesses(
        self,
        devices: tuple[DeviceSeries, ...],
        at_zero: Mapping[Gpu, str],
        label: str,
        names: Mapping[str, str],
        partial: PartialHourPods,
        hour: datetime,
        exporters: Mapping[ScrapeTarget, Scrapes],
    ) -> tuple[tuple[DeviceSeries, ...], set[Gpu], Sequence[str]]:
        """The devices, the GPUs whose signal of 0 another witness contradicts and that no signal measures, and notes.

        Args:
            devices: the series of every device.
            at_zero: GPUs whose signal is 0, with their vendors.
            label: that of nodes' names; "" if the GPUs' series have none in common.
            names: names of nodes, by name and by EC2 instance id.
            partial: pods that held GPUs for a part of the hour.
            hour: the hour.
            exporters: the scrapes of the exporters.
        """
        nodes = sorted({node for node, _ in at_zero})
        only = nodes if label and len(nodes) <= NAMES_PER_QUERY else []
        builders: QueryBuilders = {"witnesses": lambda queries: queries.witnesses({*at_zero.values()}, only, label)}
        day = [hour - number * HOUR for number in reversed(range(HOURS_OF_DAY))]
        (series,) = self._client.query_hours(builders, day).values()
        witnesses = Witnesses(series, to_epoch_ms(hour + HOUR), self._queries.signals, names)
        contradicted = contradicted_gpus(at_zero.keys(), witnesses.series(), witnesses.power())
        measured: dict[Gpu, list[DeviceSeries]] = {}
        for table in witnesses.tables if self._measures_contradicted and contradicted else ():
            of_table = {(device.node, device.uuid) for device in table.series() if says_in_use(device)}
            table.keep_gpus((of_table & contradicted.keys()) - measured.keys())
            self._read_partial_devices(table, exporters, partial, hour)
            for device in table.series():
                measured.setdefault((device.node, device.uuid), []).append(device)
        if measured:
            others = (device for device in devices if (device.node, device.uuid) not in measured)
            devices = (*others, *chain.from_iterable(measured.values()))
        return devices, contradicted.keys() - measured.keys(), stuck_signal_notes(contradicted, measured, at_zero)

    def _process_devices(
        self,
        by_rank: Mapping[int, DeviceTable],
        label: str,
        names: Mapping[str, str],
        partial: PartialHourPods,
        hour: datetime,
        exporters: Mapping[ScrapeTarget, Scrapes],
    ) -> Iterable[DeviceSeries]:
        """Series of the signal that exporters report per process, of nodes with shared GPUs."""
        hosts: dict[str, str] = {}
        for table in by_rank.values() if self._per_process else ():
            hosts |= table.hosts_with_slots(label)
        if not hosts:
            return
        rank = next(
            rank
            for rank, signals in enumerate(self._queries.signals)
            if any(signal.family == PROCESS_FAMILY and signal.name in SIGNALS for signal in signals)
        )
        # A table of a lower rank lacks the devices that have a better signal.
        of_better_ranks = {node for better in by_rank if better < rank for node in by_rank[better].nodes()}
        whole = by_rank[rank].nodes() - of_better_ranks if rank in by_rank else set[str]()
        if whole:
            yield from by_rank[rank].series(whole & hosts.keys())
        others = hosts.keys() - whole
        if others:
            only = sorted({hosts[node] for node in others}) if label and len(others) <= NAMES_PER_QUERY else []
            table = self._fallback_devices(rank, only, label, names, hour)
            table.keep_nodes(others)
            self._read_partial_devices(table, exporters, partial, hour)
            yield from table.series()

    def _virtual_gpus(
        self, rows: Mapping[str, RowsByStatistic], pods: PodTable, partial: Sequence[str], hour: datetime
    ) -> tuple[VirtualGpus, dict[ScrapeTarget, Scrapes]]:
        """What HAMi reports, and the scrapes of its monitors; nothing where no pod requests a fraction of a GPU."""
        if "vgpus" not in rows:
            return VirtualGpus(), {}
        queries = self._queries.of_containers()
        table = DeviceTable(0, VGPU_SIGNALS, {**rows["containers"], **rows["container counts"]}, {})
        scrapes = ScrapeTimesReader(self._client, queries).rank_scrapes(
            0, table.densest_series(), [hour], self._clock()
        )
        self._read_partial_devices(table, scrapes, PartialHourPods(pods.names(partial), set(), set()), hour, queries)
        return virtual_gpus(rows["vgpus"], tuple(table.series()), pods.nodes_by_name()), scrapes

    def _fallback_devices(
        self, rank: int, only: Sequence[str], label: str, names: Mapping[str, str], hour: datetime
    ) -> DeviceTable:
        """Devices by a signal of a lower rank, of some nodes or of all."""
        builders: QueryBuilders = {f"devices {rank}": lambda queries: queries.devices(rank, only, label)}
        (devices,) = self._client.query_hours(builders, [hour]).values()
        count_builders = self._device_counts_query(rank, devices, f"device counts {rank}")
        counts = self._client.query_hours(count_builders, [hour])
        rows = tables.rows_at(chain(devices, *counts.values()), to_epoch_ms(hour + HOUR))
        return DeviceTable(rank, self._queries.signals[rank], rows, names)

    def _read_partial_devices(
        self,
        table: DeviceTable,
        exporters: Mapping[ScrapeTarget, Scrapes],
        partial: PartialHourPods,
        hour: datetime,
        queries: Queries | None = None,
    ) -> None:
        """Add raw samples of devices whose sums and counts are not enough."""
        window = IntervalMs(to_epoch_ms(hour), to_epoch_ms(hour + HOUR))
        unlabeled_nodes = partial.fully_held_nodes - table.nodes_with_pods(partial.all_gpu_pods)
        needed = table.needing_raw_samples(exporters, window, partial.names, unlabeled_nodes, partial.gpus)
        for label, samples in needed.items():
            for names in batches_of_label_values(samples, SAMPLES_PER_QUERY, NAMES_PER_QUERY):
                for selector in (queries or self._queries).device_selectors(table.rank, label, names):
                    with self._client.raw_samples(
                        selector, hour - SCRAPE_MARGIN, hour + HOUR, device_samples_size
                    ) as series:
                        table.add_raw_samples(series, window)

    def _energy(
        self, rows: RowsByStatistic, devices: Sequence[DeviceSeries], names: Mapping[str, str], hour: datetime
    ) -> tuple[EnergySeries, ...]:
        """The energy of GPUs; nothing more is queried where no exporter measures it."""
        table = EnergyTable(rows, names)
        for label, samples in table.needing_raw_samples(devices).items():
            for values in batches_of_label_values(samples, SAMPLES_PER_QUERY, NAMES_PER_QUERY):
                selector = self._queries.energy_selector(label, values)
                with self._client.raw_samples(selector, hour - SCRAPE_MARGIN, hour + HOUR) as series:
                    table.add_raw_samples(series)
        return tuple(table.series())

    def _counters(
        self, rows: RowsByStatistic, inference: InferenceLabels, hour: datetime
    ) -> tuple[ServerCounters, list[str]]:
        """The counters of inference servers, with raw samples of pods whose increases are not enough; and notes."""
        table = CounterTable(rows, inference)
        for names in _chunks(sorted({pod for _, pod in table.partial}), SERVERS_PER_QUERY):
            with self._raw_samples_around(self._queries.counters_of_pods(inference, names), hour) as series:
                table.add_raw_samples(series)
        notes = []
        if table.has_unnamed_pods:
            notes.append(
                f"counters of inference servers have no labels {inference.namespace} and {inference.pod}, so it is "
                "unknown which pods' tokens they count (inference of the settings)"
            )
        return table.counters(), notes

    def _raw_samples_around(
        self, selector: str, hour: datetime, kept_size: KeptSize = raw_samples_size
    ) -> AbstractContextManager[list[Series]]:
        """Read the raw samples of an hour and of the time around it (`LOOK_AROUND`), as in `ShardedClient`."""
        return self._client.raw_samples(selector, hour - LOOK_AROUND, self._look_end(hour), kept_size)

    def _look_end(self, hour: datetime) -> datetime:
        return max(hour + HOUR, min(hour + HOUR + LOOK_AROUND, self._clock()))

    def _describe_unlabeled(
        self,
        observations: tuple[NodeObservation, ...],
        rows: Mapping[str, RowsByStatistic],
        devices: Iterable[DeviceSeries],
        pods: Iterable[PodObservation],
        nodes: NodeTable,
    ) -> tuple[tuple[NodeObservation, ...], list[str]]:
        """The nodes, with what other sources say if their labels are not exported, and notes about their types."""
        if "hardware" not in rows:
            return observations, []
        hardware = node_hardware(rows["hardware"], nodes.by_instance_id())
        with_pods = {pod.node for pod in pods}
        if self._instances is not None:
            unlabeled = {
                node.provider_id: node.name
                for node in observations
                if (node.states or node.name in with_pods) and not INSTANCE_TYPE_LABEL.value_in(node.labels)
            }
            for provider_id, reported in self._instances(unlabeled).items():
                hardware.setdefault(unlabeled[provider_id], NodeHardware()).reported.append(reported)
        return describe_unlabeled_nodes(observations, devices, hardware, with_pods)


def _namespaces(rows: Iterable[tuple[tables.Labels, object]]) -> frozenset[str]:
    return frozenset(tables.exported_label(labels, "namespace") for labels, _ in rows)


def _without_query(error: Exception) -> str:
    """An error's sentence without its query, which is long."""
    return str(error).partition(" (query: ")[0]


def _lacks_phases(results: Mapping[str, Sequence[Series]]) -> bool:
    """Whether pods request GPUs, and none of them has a phase."""
    return bool(results["requests"]) and not (results["running"] or results.get("phases"))


def _gpu_nodes(results: Mapping[str, Sequence[Series]]) -> set[str]:
    """Names of nodes on which exporters report GPUs, or on which pods request GPUs, in any hour."""
    hosts = {labels.get("Hostname") or labels.get("hostname", "") for labels, _ in results["devices"]}
    return hosts | {tables.exported_label(labels, "node") for labels, _ in results["requests"]}


def _nodes_with_gpus(devices: RowsByStatistic, requests: RowsByStatistic) -> set[str]:
    """Names of nodes on which exporters report GPUs, or on which pods request GPUs."""
    of_devices = {labels.get("Hostname") or labels.get("hostname", "") for labels, _ in _all_rows(devices)}
    return of_devices | {tables.exported_label(labels, "node") for labels, _ in _all_rows(requests)}


def _silent_nodes(nodes: Iterable[NodeObservation], devices: Iterable[DeviceSeries]) -> set[str]:
    """Names of nodes that existed all hour and advertise nothing, although they have devices.

    These are nodes whose GPUs an exporter reports, and those with Neuron devices: their exporter reports none.
    """
    silent = [node for node in nodes if node.sample_times is None and not node.states]
    if not silent:
        return set()
    reported = {device.node for device in devices}
    return {
        node.name
        for node in silent
        if node.name in reported
        or (INSTANCE_TYPE_LABEL.value_in(node.labels) or node.unlabeled.instance_type) in NEURON_OF_INSTANCE
    }


def _notes_on_services(table: DeviceTable) -> list[str]:
    """A note for each target whose scrapes are answered by the exporters of several nodes in turn."""
    return [
        f"one target ({exporter_of(target)}) reports the devices of {len(nodes)} nodes in turn (the first is "
        f"{min(nodes)!r}), so that most of their use is unmeasured: its Service sends each scrape to another pod. "
        "Scrape the exporter's pods (PodMonitor, or kubernetes_sd_configs with role: pod), not the Service's address"
        for target, nodes in sorted(table.nodes_in_turn().items())
    ]


def _fallback_notes(table: DeviceTable, better: Mapping[str, Container[str]], signal: str) -> list[str]:
    """Which nodes and devices are measured by another signal.

    Args:
        table: the devices of the other signal.
        better: the GPUs that have a better signal, by node.
        signal: the signal that the settings name.
    """
    gpus = table.gpus_by_node()
    whole = [node for node in gpus if node not in better]
    parts = {node: len(gpus[node]) for node in gpus if node in better}
    notes = []
    if whole:
        notes.append(f"utilization of {len(whole)} nodes is from {table.signal_names()}, because they have no {signal}")
    if parts:
        first = min(parts)
        others = f" and {len(parts) - 1} other nodes" if len(parts) > 1 else ""
        notes.append(
            f"utilization of {sum(parts.values())} GPUs of node {first!r}{others} is from {table.signal_names()}, "
            f"because they have no {signal}, which other GPUs of the same node have"
        )
    return notes


def _host_label(devices: RowsByStatistic) -> str:
    """The label that holds nodes' names in the series of NVIDIA's GPUs."""
    of_gpus = (labels for labels, _ in _all_rows(devices) if "UUID" in labels)
    return tables.first_common_label_name(of_gpus, ("Hostname", "hostname"))


def _all_rows(rows: RowsByStatistic) -> Iterable[tuple[tables.Labels, object]]:
    return chain.from_iterable(rows.values())


def _pods_per_query(allocation: HourScrapes) -> int:
    """How many pods' raw samples fit into one query if every pod existed for the hour and the hours around it."""
    scrapes_around = 3 * max(allocation.expected.values(), default=1)
    return min(NAMES_PER_QUERY, max(1, SAMPLES_PER_QUERY // (SERIES_PER_POD * max(1, scrapes_around))))


def _chunks(names: Sequence[str], size: int = NAMES_PER_QUERY) -> Iterable[list[str]]:
    return (list(names[first : first + size]) for first in range(0, len(names), size))
