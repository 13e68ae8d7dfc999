"""Nodes of one hour, built from the query results for their presence, labels, capacity and hardware."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import chain, combinations
from typing import TYPE_CHECKING

from msgspec import Struct, field

from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.accelerators import NVIDIA, vendor_of
from gpucost.core.metering.contradictions import exporter_of
from gpucost.core.metering.gpu_shares import GPU, MIG_PREFIX
from gpucost.core.metering.implausible_samples import (
    MAX_LAG_MS,
    SUSPECT_PREFIX,
    format_sample_value,
    is_count,
    overlap_beyond_lag,
    sources_contradict,
)
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE, instance_id_of
from gpucost.core.metering.kubernetes_labels import (
    GPU_COUNT_LABEL,
    GPU_LABEL_PREFIXES,
    GPU_PRODUCT_LABEL,
    GPU_REPLICAS_LABEL,
    INSTANCE_TYPE_LABEL,
    parse_whole_number,
)
from gpucost.core.metering.nodes import NodeHardware, ReportedNode, describe_unlabeled_nodes
from gpucost.core.metering.observations import NodeObservation, NodeState, ScrapeTarget, Unexplained
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.families import (
    ClusterMetrics,
    Family,
    HourReading,
    Query,
    RowsByStatistic,
    SeriesByQuery,
    chunks,
)
from gpucost.sources.prometheus.pod_labels import ExportedNames, LabelSpan, contradictory_labels, differing_labels
from gpucost.sources.prometheus.queries import (
    ADVERTISED,
    ALLOCATABLE,
    CAPACITY,
    NODE_INFO,
    NODE_LABELS,
    REQUESTED,
    STATISTIC_LABEL,
    Queries,
)
from gpucost.sources.prometheus.scrapes import HourScrapes
from gpucost.sources.prometheus.tables import (
    Labels,
    Rows,
    SampleCounts,
    exported_label,
    exported_label_names,
    host_name,
    object_labels,
    parse_number,
    scrape_target,
    take_turns,
)

if TYPE_CHECKING:
    from gpucost.sources.prometheus.pods import PodTable

CoversHour = Callable[[Mapping[ScrapeTarget, int]], bool]
ExpectedSamples = Mapping[ScrapeTarget, int]
NODE_METRICS = (NODE_INFO, NODE_LABELS, CAPACITY, ALLOCATABLE)
_GPU_LABELS = (*GPU_LABEL_PREFIXES, *INSTANCE_TYPE_LABEL.exported_names)
"""Labels that describe a node's GPUs. Changes of other labels are ignored."""
_NOT_A_NUMBER = Decimal("NaN")
_Units = dict[str, Decimal]


class Nodes(Family):
    """Nodes: when they existed, their labels, and the GPUs that they advertised.

    Args:
        gpus_by_instance_type: the instance types with NVIDIA GPUs.
    """

    def __init__(self, metrics: ClusterMetrics, gpus_by_instance_type: Mapping[str, int | Fraction]) -> None:
        super().__init__(metrics)
        self._gpus_by_instance_type = gpus_by_instance_type

    def queries(self) -> Mapping[str, Query]:
        """Nodes, with their labels and capacity."""
        return {"nodes": Query(Queries.nodes)}

    def read(self, reading: HourReading) -> None:
        """Read all nodes, and single samples of those that started, ended or changed, or that appear in a gap."""
        with_gpus = _nodes_with_gpus(reading.rows["devices"], reading.rows["requests"])
        nodes = reading.nodes = NodeTable(reading.rows["nodes"], with_gpus, self._gpus_by_instance_type)
        covered = reading.covered
        self._read_samples(nodes, nodes.needing_raw_samples(covered.covers_hour, covered.expected), reading.hour)
        if reading.allocation is not covered and reading.rows["nodes"].get("info"):
            self._read_samples(nodes, nodes.add_missing(reading.pods.node_names()), reading.hour)

    def notes(self, reading: HourReading) -> Iterable[str]:
        """Notes on targets, and on nodes and pods that contradict each other."""
        for target in reading.nodes.targets_in_turn():
            yield (
                f"one target ({exporter_of(target)}) reports other nodes in each scrape: its Service sends each scrape "
                "to another shard of kube-state-metrics. Scrape every shard's pod, not the Service's address"
            )
        if not self._metrics.queries.trusted_series.has_matchers("kube_state_metrics"):
            yield from notes_on_missing_objects(reading.nodes, reading.pods, reading.allocation)
        yield from reading.nodes.notes

    def unexplained(self, reading: HourReading) -> Iterable[Unexplained]:
        """Resources that are not known."""
        return unknown_resources(reading.rows["nodes"], self._metrics.cluster)

    def _read_samples(self, nodes: "NodeTable", all_names: Sequence[str], hour: datetime) -> None:
        for names in chunks(all_names):
            for label in nodes.name_labels:
                selector = self._metrics.queries.node_metrics(names, NODE_METRICS, label)
                with self._metrics.raw_samples_around(selector, hour) as series:
                    nodes.add_raw_samples(names, series)


def _nodes_with_gpus(devices: RowsByStatistic, requests: RowsByStatistic) -> set[str]:
    """Names of nodes on which exporters report GPUs, or on which pods request GPUs."""
    of_devices = {host_name(labels) for labels, _ in chain.from_iterable(devices.values())}
    return of_devices | {exported_label(labels, "node") for labels, _ in chain.from_iterable(requests.values())}


class _ResourceSamples(Struct):
    """One resource's units at the hour's end, and the sum of its samples in the window, by target."""

    units: Decimal | None = None
    sums: dict[ScrapeTarget, Decimal] = field(default_factory=dict)

    def is_constant(self, expected: ExpectedSamples) -> bool:
        """Whether every sample of the hour has the value at its end."""
        return self.units is not None and all(
            total == self.units * expected.get(target, -1) for target, total in self.sums.items()
        )


class _Node(Struct):
    name: str
    info_sample_counts: dict[str, SampleCounts] = field(default_factory=dict)
    """By provider id."""
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """At the hour's start and end."""
    labels_by_target: dict[tuple[str, ScrapeTarget], dict[str, str]] = field(default_factory=dict)
    """The same, by the target that reports them."""
    jobs: set[str] = field(default_factory=set)
    """Jobs of the targets that report the node."""
    capacity: dict[str, _ResourceSamples] = field(default_factory=dict)
    allocatable: dict[str, _ResourceSamples] = field(default_factory=dict)
    raw_samples: "_RawNodeSamples | None" = None
    """Only of nodes that started, ended or changed within the hour."""

    @property
    def counts(self) -> Mapping[ScrapeTarget, int]:
        """Samples of `kube_node_info` by target, if the node had only one provider id."""
        return next(iter(self.info_sample_counts.values())).counts if len(self.info_sample_counts) == 1 else {}

    def has_contradictory_labels(self, exported: ExportedNames) -> bool:
        """Whether targets report different values of a label at one end of the hour."""
        pairs = combinations(self.labels_by_target.items(), 2)
        return any(
            end == other_end
            and differing_labels(labels, other_labels, exported.get(target, ()), exported.get(other_target, ()))
            for ((end, target), labels), ((other_end, other_target), other_labels) in pairs
        )


class _RawNodeSamples(Struct):
    """A node's raw samples. Keys hold the sample's time and target."""

    present: dict[str, dict[ScrapeTarget, set[int]]] = field(default_factory=dict)
    """Times of `kube_node_info`, by provider id and target."""
    labels: list[LabelSpan] = field(default_factory=list)
    capacity: dict[tuple[int, ScrapeTarget], _Units] = field(default_factory=dict)
    allocatable: dict[tuple[int, ScrapeTarget], _Units] = field(default_factory=dict)
    unusable_scrapes: set[tuple[int, ScrapeTarget]] = field(default_factory=set)
    """Scrapes with a value that was left out."""


class NodeTable:
    """Builds `NodeObservation`s of the nodes that may have GPUs.

    Args:
        rows: results of `Queries.nodes`, by statistic.
        with_gpus: names of nodes on which an exporter reports GPUs, or on which pods request GPUs.
        gpus_by_instance_type: the instance types with NVIDIA GPUs.
    """

    def __init__(
        self,
        rows: Mapping[str, Rows],
        with_gpus: Container[str] = (),
        gpus_by_instance_type: Mapping[str, int | Fraction] = GPUS_OF_INSTANCE,
    ) -> None:
        self._gpus_by_instance_type = gpus_by_instance_type
        self._nodes: dict[str, _Node] = {}
        self._with_gpus = with_gpus
        self._exported: dict[ScrapeTarget, set[str]] = {}
        """The labels that each target reports of any node."""
        self.notes: list[str] = []
        all_labels = (labels for stat_rows in rows.values() for labels, _ in stat_rows)
        self.name_labels = exported_label_names(all_labels, "node")
        """The labels that hold nodes' names."""
        for labels, value in rows.get("info", []):
            node = self._node(labels)
            node.info_sample_counts.setdefault(labels.get("provider_id", ""), SampleCounts()).add(
                scrape_target(labels), value
            )
            node.jobs.add(labels.get("job", ""))
        for end in ("labels-start", "labels-end"):
            for labels, _ in rows.get(end, []):
                node, node_labels = self._node(labels), object_labels(labels)
                node.labels.setdefault(end, {}).update(node_labels)
                target = scrape_target(labels)
                node.labels_by_target.setdefault((end, target), {}).update(node_labels)
                self._exported.setdefault(target, set()).update(node_labels)
        for metric in ("capacity", "allocatable"):
            for labels, value in rows.get(metric, []):
                self._resource(metric, labels).units = self._units(metric, labels, value)
            for labels, value in rows.get(f"{metric}-sum", []):
                sums, target = self._resource(metric, labels).sums, scrape_target(labels)
                largest = sums.get(target, value)
                # NaN equals no expected sum, so that the raw samples are read.
                sums[target] = max(value, largest) if value.is_finite() and largest.is_finite() else _NOT_A_NUMBER

    def by_instance_id(self) -> dict[str, str]:
        """Names of nodes, by name and by EC2 instance id."""
        names = {name: name for name in self._nodes}
        for node in self._nodes.values():
            names.update(
                (instance_id_of(provider_id), node.name) for provider_id in node.info_sample_counts if provider_id
            )
        return names

    def with_missing_gpus(self, gpus_by_node: Mapping[str, Collection[str]]) -> set[str]:
        """Names of nodes that have more NVIDIA GPUs, by instance type, labels or capacity, than have a signal.

        Args:
            gpus_by_node: UUIDs of the GPUs that have one, by node.
        """
        names = set()
        for node in self._nodes.values():
            vendors = {vendor_of(name) for name, resource in node.capacity.items() if resource.sums}
            has_gpu_type = any(
                _has_instance_type(labels, self._gpus_by_instance_type) for labels in node.labels.values()
            )
            measured = len(gpus_by_node.get(node.name, ()))
            if (NVIDIA in vendors or (has_gpu_type and not vendors)) and (
                not measured or measured < self._gpu_devices(node)
            ):
                names.add(node.name)
        return names

    def _gpu_devices(self, node: _Node) -> int:
        """The number of a node's NVIDIA GPUs; 0 if it is unknown, because MIG or sharing divides them."""
        labels = node.labels.get("labels-end") or node.labels.get("labels-start", {})
        of_type = self._gpus_by_instance_type.get(INSTANCE_TYPE_LABEL.value_in(labels))
        if of_type:
            return max(1, int(of_type))
        product = GPU_PRODUCT_LABEL.value_in(labels)
        if "-MIG-" in product or any(name.startswith(MIG_PREFIX) for name in node.capacity):
            return 0
        if labeled := parse_whole_number(GPU_COUNT_LABEL.value_in(labels)):
            return labeled
        is_shared = product.endswith("-SHARED") or GPU_REPLICAS_LABEL.value_in(labels) not in {"", "0", "1"}
        whole = node.capacity.get(GPU)
        return 0 if is_shared or whole is None or whole.units is None else int(whole.units)

    def targets_in_turn(self) -> list[ScrapeTarget]:
        """Targets of which each scrape has only some of the nodes that they report, each time others.

        Such a target is a Service that sends each scrape to another shard of kube-state-metrics.
        """
        times: dict[ScrapeTarget, set[frozenset[int]]] = {}
        for node in self._nodes.values():
            if node.raw_samples is not None:  # nodes that lack samples, as all nodes of such a target do
                for by_target in node.raw_samples.present.values():
                    for target, of_node in by_target.items():
                        times.setdefault(target, set()).add(frozenset(of_node))
        return sorted(target for target, of_nodes in times.items() if take_turns([*of_nodes]))

    def needing_raw_samples(self, covers_hour: CoversHour, expected: ExpectedSamples) -> list[str]:
        """Names of GPU nodes that started, ended or changed within the hour, by samples, labels or capacity."""
        return [node.name for node in self._nodes.values() if not self._is_unchanged(node, covers_hour, expected)]

    def add_missing(self, node_names: Iterable[str]) -> list[str]:
        """Add nodes of which the hour has no sample, and return the names of those that are new."""
        names = sorted(set(node_names) - self._nodes.keys())
        self._nodes.update((name, _Node(name)) for name in names)
        return names

    def add_raw_samples(self, node_names: Iterable[str], series: Sequence[Series]) -> None:
        """Add raw samples of some nodes. Nodes without any are not in the hour."""
        for name in node_names:
            self._nodes[name].raw_samples = self._nodes[name].raw_samples or _RawNodeSamples()
        for labels, samples in series:
            node = self._nodes.get(exported_label(labels, "node"))
            if node is None or node.raw_samples is None:
                continue
            metric, target, raw = labels.get("__name__", ""), scrape_target(labels), node.raw_samples
            if metric == NODE_INFO:
                times = raw.present.setdefault(labels.get("provider_id", ""), {}).setdefault(target, set())
                times.update(time for time, _ in samples)
            elif metric == NODE_LABELS:
                span = LabelSpan(target, object_labels(labels), IntervalMs(samples[0][0], samples[-1][0]))
                raw.labels.append(span)
                self._exported.setdefault(target, set()).update(span.labels)
            elif metric in {CAPACITY, ALLOCATABLE}:
                advertised = raw.capacity if metric == CAPACITY else raw.allocatable
                for time, text in samples:
                    units = self._units(metric, labels, parse_number(text))
                    if units is None:
                        raw.unusable_scrapes.add((time, target))
                    else:
                        advertised.setdefault((time, target), {})[labels.get("resource", "")] = units

    def nodes(self) -> tuple[NodeObservation, ...]:
        """All nodes, including those without GPUs."""
        return tuple(
            observation
            for node in self._nodes.values()
            for observation in (
                [self._unchanged(node)]
                if node.raw_samples is None
                else _from_raw_samples(node, node.raw_samples, self._exported, self.notes)
            )
        )

    def advertised_units(self, name: str) -> Mapping[str, Decimal]:
        """Units per resource that a node advertises at the end of the hour."""
        node = self._nodes.get(name)
        return {key: resource.units for key, resource in node.capacity.items() if resource.units} if node else {}

    def reporting_jobs(self) -> dict[str, frozenset[str]]:
        """By the name of a node with GPUs, the jobs that report it."""
        return {
            node.name: frozenset(node.jobs)
            for node in self._nodes.values()
            if node.jobs and (node.capacity or any(self._has_gpus(labels) for labels in node.labels.values()))
        }

    def _is_unchanged(self, node: _Node, covers_hour: CoversHour, expected: ExpectedSamples) -> bool:
        end = node.labels.get("labels-end", {})
        start = node.labels.get("labels-start", end)
        if not (node.capacity or node.name in self._with_gpus or self._has_gpus(start) or self._has_gpus(end)):
            return True
        resources = [*node.capacity.values(), *node.allocatable.values()]
        return (
            covers_hour(node.counts)
            and not node.has_contradictory_labels(self._exported)
            and _gpu_labels(start) == _gpu_labels(end)
            and all(resource.is_constant(expected) for resource in resources)
        )

    def _unchanged(self, node: _Node) -> NodeObservation:
        provider_id = next(iter(node.info_sample_counts), "")
        labels = {**node.labels.get("labels-start", {}), **node.labels.get("labels-end", {})}
        capacity = {name: resource.units for name, resource in node.capacity.items() if resource.units}
        allocatable = {
            name: resource.units for name, resource in node.allocatable.items() if resource.units is not None
        }
        states = (NodeState(None, capacity, allocatable, labels),) if capacity else ()
        return NodeObservation(node.name, provider_id, None, labels, states)

    def _has_gpus(self, labels: Labels) -> bool:
        return _has_instance_type(labels, self._gpus_by_instance_type) or _has_instance_type(labels, NEURON_OF_INSTANCE)

    def _node(self, labels: Labels) -> _Node:
        name = exported_label(labels, "node")
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node(name)
        return node

    def _resource(self, metric: str, labels: Labels) -> _ResourceSamples:
        node = self._node(labels)
        resources = node.capacity if metric == "capacity" else node.allocatable
        name = labels.get("resource", "")
        if name not in resources:
            resources[name] = _ResourceSamples()
        return resources[name]

    def _units(self, metric: str, labels: Labels, value: Decimal) -> Decimal | None:
        if is_count(value):
            return value
        subject = f"{metric.removeprefix('kube_node_status_')} of node {exported_label(labels, 'node')!r}"
        self.notes.append(
            f"{SUSPECT_PREFIX}{subject} is reported as {format_sample_value(value)}; the value is left out"
        )
        return None


def _from_raw_samples(
    node: _Node, raw: _RawNodeSamples, exported: ExportedNames, notes: list[str]
) -> Iterable[NodeObservation]:
    """Build observations from raw samples: one for each provider id, with a state for each change of capacity."""
    contradiction = _keep_least_advertised(node.name, raw)
    _drop_contradictory_labels(node.name, raw, exported, notes)
    present = _without_simultaneous_instances(node.name, raw.present, notes)
    if not present:  # Prometheus keeps no `kube_node_info`: capacity shows when the node existed
        times: dict[ScrapeTarget, set[int]] = {}
        for time, target in raw.capacity.keys() | raw.unusable_scrapes:
            times.setdefault(target, set()).add(time)
        present = {"": times}
    states = _node_states(raw)
    for provider_id, by_instance in present.items():
        sample_times = {target: tuple(sorted(run)) for target, run in by_instance.items() if run}
        if not sample_times:
            continue
        first, last = _first_and_last(sample_times)
        yield NodeObservation(
            node.name,
            provider_id,
            sample_times,
            _labels_between(raw.labels, first, last),
            tuple(state for start, end, state in states if start <= last and end >= first),
            contradiction,
        )


def _keep_least_advertised(name: str, raw: _RawNodeSamples) -> str:
    """If targets contradict each other about a node's units, keep the smallest number that any of them reports.

    Returns:
        A sentence about the first contradiction; "" if there is none.
    """
    contradiction = ""
    for metric, advertised in (("capacity", raw.capacity), ("allocatable", raw.allocatable)):
        for resource in sorted({resource for units in advertised.values() for resource in units}):
            by_instance: dict[ScrapeTarget, dict[int, Decimal]] = {}
            for (time, target), units in advertised.items():
                if resource in units:
                    by_instance.setdefault(target, {})[time] = units[resource]
            if not sources_contradict(by_instance):
                continue
            reported = sorted({count for run in by_instance.values() for count in run.values()})
            numbers = " and as ".join(map(str, reported))
            contradiction = contradiction or f"{metric} of {resource} on node {name} is reported as {numbers}"
            for units in advertised.values():
                if resource in units:
                    units[resource] = reported[0]
    return contradiction


def _drop_contradictory_labels(name: str, raw: _RawNodeSamples, exported: ExportedNames, notes: list[str]) -> None:
    names = contradictory_labels(raw.labels, exported)
    if not names:
        return
    raw.labels = [
        LabelSpan(span.target, {key: value for key, value in span.labels.items() if key not in names}, span.time)
        for span in raw.labels
    ]
    notes += [
        f"{SUSPECT_PREFIX}sources report different values of {key} for node {name}; the label is left out"
        for key in sorted(names)
    ]


def _without_simultaneous_instances(
    name: str, present: Mapping[str, dict[ScrapeTarget, set[int]]], notes: list[str]
) -> Mapping[str, dict[ScrapeTarget, set[int]]]:
    """Drop the provider ids if targets report two at the same time: then it is unknown which one is right."""
    spans = [
        (provider_id, target, IntervalMs(min(run), max(run)))
        for provider_id, by_instance in present.items()
        for target, run in by_instance.items()
        if run
    ]
    for (provider_id, target, time), (other_id, other_target, other_time) in combinations(spans, 2):
        if provider_id != other_id and target != other_target and overlap_beyond_lag(time, other_time):
            notes.append(
                f"{SUSPECT_PREFIX}node {name} is reported as instance {provider_id} and as {other_id}; neither is used"
            )
            merged: dict[ScrapeTarget, set[int]] = {}
            for by_instance in present.values():
                for reporter, run in by_instance.items():
                    merged.setdefault(reporter, set()).update(run)
            return {"": merged}
    return present


def _first_and_last(sample_times: Mapping[ScrapeTarget, Sequence[int]]) -> tuple[int, int]:
    return min(run[0] for run in sample_times.values()), max(run[-1] for run in sample_times.values())


def _node_states(raw: _RawNodeSamples) -> list[tuple[int, int, NodeState]]:
    """What a node advertised, with its first and last sample, in order of time: one state until its units change."""
    scrapes = {
        (time, target) for by_instance in raw.present.values() for target, run in by_instance.items() for time in run
    }
    runs: list[tuple[_Units, _Units, dict[ScrapeTarget, list[int]]]] = []
    continues = False
    for time, target in sorted(scrapes | raw.capacity.keys()):
        if continues and (time, target) in raw.unusable_scrapes:
            runs[-1][2].setdefault(target, []).append(time)  # an unusable value is no change
            continue
        capacity = {name: units for name, units in raw.capacity.get((time, target), {}).items() if units}
        allocatable = raw.allocatable.get((time, target), {})
        if not capacity:
            continues = False  # the node was scraped and advertised nothing
            continue
        if not (continues and runs[-1][:2] == (capacity, allocatable)):
            runs.append((capacity, allocatable, {}))
        runs[-1][2].setdefault(target, []).append(time)
        continues = True
    states = []
    for capacity, allocatable, times in runs:
        first, last = _first_and_last(times)
        sampled = {target: tuple(run) for target, run in times.items()}
        labels = _labels_between(raw.labels, first, last)
        states.append((first, last, NodeState(sampled, capacity, allocatable, labels)))
    return states


def _labels_between(spans: Sequence[LabelSpan], first: int, last: int) -> dict[str, str]:
    """Labels in a time. If they changed in it, the values that lasted longest.

    A node that boots gets its labels late: if it has no GPU labels in that time, later ones are used.
    """
    overlapping = [span for span in spans if span.time.start <= last and span.time.end >= first]
    overlapping.sort(key=lambda span: (min(span.time.end, last) - max(span.time.start, first), span.time.end))
    has_gpu_labels = any(name.startswith(GPU_LABEL_PREFIXES) for span in overlapping for name in span.labels)
    labels: dict[str, str] = {}
    for span in sorted(spans, key=lambda span: span.time.end):
        labels.update(
            {
                name: value
                for name, value in span.labels.items()
                if not (has_gpu_labels and name.startswith(GPU_LABEL_PREFIXES))
            }
        )
    for span in overlapping:
        labels.update(span.labels)
    return labels


def _has_instance_type(labels: Labels, instance_types: Container[str]) -> bool:
    return any(labels.get(name, "") in instance_types for name in INSTANCE_TYPE_LABEL.exported_names)


def _gpu_labels(labels: Labels) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name.startswith(_GPU_LABELS)}


# What metrics other than labels say about nodes: their size, and what controllers and exporters report.

InstanceLookup = Callable[[Collection[str]], Mapping[str, ReportedNode]]
"""Returns what EC2 says about nodes, by provider id."""


class NodeTypes(Family):
    """The types of nodes whose labels are not exported.

    Args:
        instances: returns what EC2 says about nodes without labels, by provider id; None: only metrics are read.
    """

    def __init__(self, metrics: ClusterMetrics, instances: InstanceLookup | None) -> None:
        super().__init__(metrics)
        self._instances = instances

    def further_queries(self, results: SeriesByQuery, hours_with_gaps: Container[int]) -> Mapping[str, Query]:
        """What else says the types of nodes, if a node with GPUs has no label of it."""
        if has_unlabeled_nodes(results["nodes"], lambda: _gpu_nodes(results)):
            return {"hardware": Query(Queries.hardware)}
        return {}

    def read(self, reading: HourReading) -> None:
        """Describe the nodes, once their devices are read."""
        reading.described_nodes = reading.nodes.nodes()
        if "hardware" not in reading.rows:
            return
        hardware = node_hardware(reading.rows["hardware"], reading.nodes.by_instance_id())
        with_pods = reading.pods.reported_nodes()
        if self._instances is not None:
            unlabeled = {
                node.provider_id: node.name
                for node in reading.described_nodes
                if (node.states or node.name in with_pods) and not INSTANCE_TYPE_LABEL.value_in(node.labels)
            }
            for provider_id, reported in self._instances(unlabeled).items():
                hardware.setdefault(unlabeled[provider_id], NodeHardware()).reported.append(reported)
        reading.described_nodes, reading.type_notes = describe_unlabeled_nodes(
            reading.described_nodes, reading.devices, hardware, with_pods
        )

    def notes(self, reading: HourReading) -> Iterable[str]:
        """Notes on types that are not known from labels."""
        return reading.type_notes


def _gpu_nodes(results: SeriesByQuery) -> set[str]:
    """Names of nodes on which exporters report GPUs, or on which pods request GPUs, in any hour."""
    hosts = {host_name(labels) for labels, _ in results["devices"]}
    return hosts | {exported_label(labels, "node") for labels, _ in results["requests"]}


def has_unlabeled_nodes(nodes: Iterable[Series], gpu_nodes: Callable[[], Collection[str]]) -> bool:
    """Whether a node with GPUs has no label of its instance type.

    Args:
        nodes: results of `Queries.nodes`.
        gpu_nodes: returns the nodes on which an exporter reports GPUs, or on which pods request GPUs.
    """
    unlabeled, labeled, with_capacity = set[str](), set[str](), set[str]()
    for labels, _ in nodes:
        match labels.get(STATISTIC_LABEL, ""):
            case "labels-end" | "labels-start":
                if INSTANCE_TYPE_LABEL.value_in(labels):
                    labeled.add(exported_label(labels, "node"))
            case "info":
                unlabeled.add(exported_label(labels, "node"))
            case "capacity-sum":
                with_capacity.add(exported_label(labels, "node"))
    unlabeled -= labeled
    return not labeled.issuperset(with_capacity) or (bool(unlabeled) and not unlabeled.isdisjoint(gpu_nodes()))


def node_hardware(rows: Mapping[str, Rows], names: Mapping[str, str]) -> dict[str, NodeHardware]:
    """Return the hardware of nodes by name.

    Args:
        rows: results of `Queries.hardware`, by statistic.
        names: names of nodes, by name and by EC2 instance id.
    """
    nodes: dict[str, NodeHardware] = {}

    def of_node(name: str) -> NodeHardware:
        return nodes.setdefault(names.get(name, name), NodeHardware())

    for statistic in ("largest", "smallest"):
        for labels, amount in rows.get(statistic, ()):
            hardware = of_node(exported_label(labels, "node"))
            if amount.is_finite():
                (hardware.cpus if labels.get("resource") == "cpu" else hardware.memory_bytes).add(amount)
    for labels, amount in rows.get("gpu-memory", ()):
        if amount.is_finite():
            of_node(host_name(labels)).gpu_memory_mib = amount
    for labels, _ in rows.get("karpenter", ()):
        reported = ReportedNode(
            "karpenter",
            labels.get("instance_type", ""),
            zone=labels.get("zone", ""),
            capacity_type=labels.get("capacity_type", ""),
            node_pool=labels.get("nodepool", ""),
        )
        of_node(labels.get("node_name", "")).reported.append(reported)
    for labels, _ in rows.get("neuron-monitor", ()):
        name = labels.get("instance_name", "")
        reported = ReportedNode(
            "neuron-monitor", labels.get("instance_type", ""), zone=labels.get("availability_zone", "")
        )
        of_node(name if name in names else labels.get("instance_id", "")).reported.append(reported)
    return nodes


# Pods and nodes that one job reports and another, which reports the same kinds of objects, does not.

MAX_JOBS = 10
"""Jobs whose reports are compared with those of other jobs."""
_ReportedObject = tuple[str, frozenset[str], IntervalMs]
"""An object's name, the jobs that report it, and when."""


def notes_on_missing_objects(nodes: "NodeTable", pods: "PodTable", allocation: HourScrapes) -> list[str]:
    """A note for each job that reports pods or GPU nodes that a larger job does not report.

    A tenant whose own exporter is scraped can invent pods and nodes. They cannot be distinguished from those of a
    second kube-state-metrics that watches other objects, unless the settings name the trusted jobs.
    """
    if len(_scrape_times_by_job(allocation)) == 1:
        return []
    start = to_epoch_ms(allocation.hour)
    hour = IntervalMs(start, start + HOUR_MS)
    of_pods = [(pods.name_of(uid), jobs, time or hour) for uid, (jobs, time) in pods.reporting_jobs().items()]
    of_nodes = [(name, jobs, hour) for name, jobs in nodes.reporting_jobs().items()]
    return [*_notes("pods", of_pods, allocation), *_notes("nodes", of_nodes, allocation)]


def _notes(kind: str, reported: Sequence[_ReportedObject], allocation: HourScrapes) -> list[str]:
    reports = Counter(job for _, jobs, _ in reported for job in jobs)
    scrapes = _scrape_times_by_job(allocation)
    # A tenant that invents samples can also invent jobs: compare each object with the few jobs that report most.
    by_reports = sorted(reports, key=lambda job: (-reports[job], job))
    largest = [job for job in by_reports if _outlasts_lag(scrapes.get(job, []))][:MAX_JOBS]
    missing: dict[tuple[str, str], list[str]] = {}
    for name, jobs, time in reported:
        others = (other for other in largest if other not in jobs and _outlasts_lag(scrapes[other], time))
        other = next(others, None)
        if other is not None:
            missing.setdefault((" and ".join(sorted(jobs)), other), []).append(name)
    return [
        f"{SUSPECT_PREFIX}{len(names)} GPU {kind} ({min(names)} is the first) are reported by job {jobs!r} and not by "
        f"job {other!r}: name the jobs to trust in the settings, sources.kube_state_metrics of the cluster"
        for (jobs, other), names in sorted(missing.items())
    ]


def _outlasts_lag(times: Sequence[int], within: IntervalMs | None = None) -> bool:
    """Whether sorted scrape times span more than one target may lag behind another."""
    if within is not None:
        times = times[bisect_left(times, within.start) : bisect_left(times, within.end)]
    return bool(times) and times[-1] - times[0] > MAX_LAG_MS


def _scrape_times_by_job(allocation: HourScrapes) -> Mapping[str, Sequence[int]]:
    times: dict[str, set[int]] = {}
    for target, target_scrapes in allocation.scrapes.items():
        times.setdefault(target.partition("|")[0], set()).update(target_scrapes.times)
    return {job: sorted(job_times) for job, job_times in times.items()}


# Extended resources of which metering does not know whether they are GPUs, by node.

_DESCRIPTIONS = {ADVERTISED: "advertised units of", REQUESTED: "requested units of"}


def unknown_resources(rows: Mapping[str, Rows], cluster: str) -> list[Unexplained]:
    """What nodes advertise and pods request of resources that are not known.

    Args:
        rows: results of `unknown_resource_queries`, by statistic.
        cluster: the cluster's name in the settings.
    """
    return [
        Unexplained(
            description,
            resource,
            amount,
            node,
            f"Settings, cluster {cluster}: units: {{{resource}: N}}, where a unit is N GPUs: 1, a part such as 0.25, "
            "or 0 if it is no GPU",
        )
        for statistic, description in _DESCRIPTIONS.items()
        if statistic in rows
        for (node, resource), amount in _by_node(rows[statistic]).items()
    ]


def _by_node(rows: Iterable[tuple[Labels, Decimal]]) -> dict[tuple[str, str], Decimal]:
    """Amounts by node and resource; each shard of a query has a part."""
    amounts: dict[tuple[str, str], Decimal] = {}
    for labels, amount in rows:
        key = exported_label(labels, "node"), labels.get("resource", "")
        if amount.is_finite() and amount > 0:
            amounts[key] = amounts.get(key, Decimal(0)) + amount
    return amounts
