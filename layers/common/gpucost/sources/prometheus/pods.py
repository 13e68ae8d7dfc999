"""GPU pods of one hour, built from the query results for requests, phases, owners and labels."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import combinations
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.amounts import is_amount
from gpucost.core.hours import HOUR, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.fraction_schedulers import FRACTION_RESOURCES
from gpucost.core.metering.gpu_shares import to_kubernetes_resource
from gpucost.core.metering.implausible_samples import MAX_LAG_MS, is_count, overlap_beyond_lag
from gpucost.core.metering.observations import (
    ContainerRequest,
    GpuFraction,
    PodObservation,
    SampleTimes,
    ScrapeTarget,
    Unexplained,
)
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.families import (
    NAMES_PER_QUERY,
    SAMPLES_PER_QUERY,
    ClusterMetrics,
    Family,
    HourReading,
    Query,
    SeriesByQuery,
    chunks,
)
from gpucost.sources.prometheus.fractions import is_reservation
from gpucost.sources.prometheus.memory_budget import pod_samples_size
from gpucost.sources.prometheus.pod_labels import LabelTable
from gpucost.sources.prometheus.queries import (
    COMPLETED,
    HOUR_WINDOW,
    INIT_REQUESTS,
    INIT_RUNNING,
    NO_STATISTIC_LABEL,
    PHASE,
    POD_LABELS,
    POD_OWNER,
    REQUESTS,
    SCHEDULED,
    PodMatcher,
    Queries,
    Window,
)
from gpucost.sources.prometheus.scrapes import HourScrapes, hour_scrapes
from gpucost.sources.prometheus.tables import (
    Labels,
    Rows,
    SampleCounts,
    exported_label,
    exported_label_name,
    parse_number,
    pod_name,
    rows_at,
    scrape_target,
)

CoversHour = Callable[[Mapping[ScrapeTarget, int]], bool]
_FINISHED = {"Succeeded", "Failed"}
_DEFAULT_UNITS = Decimal(1)
"""Units of a container for which no units were returned: queries return only values other than 1 at the hour's end."""
_Container = tuple[str, bool, str]
"""A container's name, whether it is an init container, and the resource."""
_RequestsKey = tuple[tuple[tuple[_Container, Decimal | None], ...], frozenset[str]]
"""Units by container, and the names of sidecars."""
_NO_SIDECARS: frozenset[str] = frozenset()
_TimesByTarget = dict[ScrapeTarget, set[int]]
_BoundsByTarget = dict[ScrapeTarget, tuple[int, int]]
"""The first and the last time."""
Owner = tuple[str, str]
"""Kind and name."""
_OWNED_OWNER_KINDS = (("replicaset", "ReplicaSet", "replicaset"), ("job", "Job", "job_name"))
SERIES_PER_POD = 7
"""Requests, three phases, owner, scheduled, and completed or labels."""


class Pods(Family):
    """Pods that request GPUs, with their phases, owners and labels.

    Args:
        pod_labels: whether the settings need pods' labels.
        namespace_labels: whether the settings need namespaces' labels.
    """

    def __init__(self, metrics: ClusterMetrics, *, pod_labels: bool, namespace_labels: bool) -> None:
        super().__init__(metrics)
        self._pod_labels = pod_labels
        self._namespace_labels = namespace_labels

    def queries(self) -> Mapping[str, Query]:
        """Requests, owners, pods that run all hour, and labels."""
        queries = {
            "requests": Query(lambda queries: queries.requests()),
            "owners": Query(Queries.owners),
            "running": Query(lambda queries: queries.running()),
        }
        if self._pod_labels or self._namespace_labels:
            unknown = "labels of pods and namespaces are unknown, so no cost has a unit or label by them"
            queries["labels"] = Query(self._labels_query, unknown)
        return queries

    def further_queries(self, results: SeriesByQuery, hours_with_gaps: Container[int]) -> Mapping[str, Query]:
        """Phases of pods that did not run all hour; if no phases are collected, completion times.

        Of hours with gaps, both are read from before the gap (`_extend_across_gaps`).
        """
        if "phases" not in results and (build := _phases_query(results, hours_with_gaps)):
            return {"phases": Query(build)}
        times = (time for series in results["requests"] for time, _ in series.samples)
        if _lacks_phases(results) and any(time not in hours_with_gaps for time in times):
            return {"completed": Query(Queries.completed)}
        return {}

    def read(self, reading: HourReading) -> None:
        """Read all pods, and single samples of those that did not exist unchanged for the whole hour."""
        self._extend_across_gaps(reading)
        rows = reading.pod_rows
        reading.pods = PodTable(
            rows["requests"],
            (labels for labels, _ in rows["running"].get(NO_STATISTIC_LABEL, [])),
            rows.get("phases", {}),
            (labels for labels, _ in rows.get("completed", {}).get(NO_STATISTIC_LABEL, ())),
        )
        reading.pods.add_owners(rows["owners"])
        reading.pods.labels.add(rows.get("labels", {}))
        reading.partial = self._read_changed(reading.pods, reading.allocation)

    def notes(self, reading: HourReading) -> Iterable[str]:
        """Notes on labels."""
        return reading.pods.labels.notes

    def unexplained(self, reading: HourReading) -> Iterable[Unexplained]:
        """Pods whose phases are unknown."""
        return reading.pods.unknown_phases()

    def read_samples(self, pods: "PodTable", uids: Sequence[str], matcher: PodMatcher, hour: datetime) -> None:
        """Add the raw samples of some pods; owners and labels only for those without uid."""
        selector = self._metrics.queries.pod_metrics(matcher, labels=self._pod_labels)
        with self._metrics.raw_samples_around(selector, hour, pod_samples_size) as series:
            pods.add_raw_samples(uids, series)

    def read_missing_owners(self, pods: "PodTable", names: Iterable[tuple[str, str]], hour: datetime) -> None:
        """Add the owners of ReplicaSets and Jobs that own some pods and do not exist at the hour's end."""
        for kind, owners in pods.missing_owners(names).items():
            stat: Literal["replicaset", "job"] = "replicaset" if kind == "replicaset" else "job"
            for some in chunks(sorted(owners)):
                selector = self._metrics.queries.owner_metrics(stat, some)
                with self._metrics.raw_samples_around(selector, hour) as series:
                    pods.add_owners({stat: [(labels, parse_number("1")) for labels, _ in series]})

    def _labels_query(self, queries: Queries) -> str:
        return queries.labels(of_pods=self._pod_labels, of_namespaces=self._namespace_labels) or ""

    def _extend_across_gaps(self, reading: HourReading) -> None:
        """If a scrape gap touches an edge of the hour, count samples up to the next scrapes beyond it.

        This takes two queries for all pods instead of raw samples of each, and two more if there are no samples at the
        hour's end, and one for the raw samples of nodes that appear in the gap.
        """
        reading.pod_rows = reading.rows
        wider = self._metrics.wider_window(reading.covered)
        if wider is None:
            return
        time, window = wider
        builders: dict[str, Callable[[Queries], str]] = {
            "requests": lambda queries: queries.requests(window),
            "running": lambda queries: queries.running(window),
        }
        if time > to_epoch_ms(reading.hour + HOUR):
            builders["owners"] = Queries.owners
            if "labels" in reading.rows:
                builders["labels"] = self._labels_query
        results = self._metrics.query_at(builders, time)
        if build := _phases_query(results, (), window):
            results |= self._metrics.query_at({"phases": build}, time)
        if _lacks_phases(results):
            results |= self._metrics.query_at({"completed": Queries.completed}, time)
        reading.allocation = hour_scrapes(reading.covered.scrapes, reading.hour, IntervalMs(time - window.length, time))
        reading.pod_rows = {**reading.rows, **{name: rows_at(series, time) for name, series in results.items()}}

    def _read_changed(self, pods: "PodTable", allocation: HourScrapes) -> list[str]:
        """Add raw samples of pods that started, ended or changed in the hour, and return their uids."""
        changed = pods.needing_raw_samples(allocation.covers_hour)
        size = _pods_per_query(allocation)
        for uids in chunks([uid for uid in changed if "/" not in uid], size):
            self.read_samples(pods, uids, PodMatcher("uid", tuple(uids)), allocation.hour)
        for uids in chunks([uid for uid in changed if "/" in uid], size):
            label: Literal["pod", "exported_pod"] = "pod" if pods.name_label == "pod" else "exported_pod"
            matcher = PodMatcher(label, tuple(uid.split("/")[1] for uid in uids))
            self.read_samples(pods, uids, matcher, allocation.hour)
        self.read_missing_owners(pods, pods.names(changed), allocation.hour)
        return changed


def _phases_query(
    results: SeriesByQuery, hours_with_gaps: Container[int], window: Window = HOUR_WINDOW
) -> Callable[[Queries], str] | None:
    """A query for the phases of pods that did not run at both ends; None if there are no such pods."""
    others = pods_not_running(results["requests"], results["running"], hours_with_gaps)
    by_uid = others if len(others) <= NAMES_PER_QUERY and not any("/" in uid for uid in others) else set()
    return (lambda queries: queries.phases(window, sorted(by_uid))) if others else None


def _lacks_phases(results: SeriesByQuery) -> bool:
    """Whether pods request GPUs, and none of them has a phase."""
    return bool(results["requests"]) and not (results["running"] or results.get("phases"))


def _pods_per_query(allocation: HourScrapes) -> int:
    """How many pods' raw samples fit into one query if every pod existed for the hour and the hours around it."""
    scrapes_around = 3 * max(allocation.expected.values(), default=1)
    return min(NAMES_PER_QUERY, max(1, SAMPLES_PER_QUERY // (SERIES_PER_POD * max(1, scrapes_around))))


# Owners: a pod's workload is the owner of its ReplicaSet or Job.


class OwnerTable:
    """Owners of pods, and owners of these owners."""

    def __init__(self) -> None:
        self._of_pods: dict[tuple[str, str], Owner] = {}
        self._of_owners: dict[tuple[str, str, str], Owner | None] = {}
        """None if the owner is known to have no owner itself."""

    def add(self, rows: Mapping[str, Rows]) -> None:
        """Add results of `Queries.owners`, by statistic."""
        self.add_pods(labels for labels, _ in rows.get(NO_STATISTIC_LABEL, []))
        for stat, kind, label in _OWNED_OWNER_KINDS:
            for labels, _ in rows.get(stat, []):
                key = (exported_label(labels, "namespace"), kind, labels.get(label, ""))
                self._of_owners[key] = _owner(labels) or self._of_owners.get(key)

    def add_pods(self, series: Iterable[Labels]) -> None:
        """Add owners of pods. Of several owners, the controller counts."""
        for labels in sorted(series, key=lambda labels: labels.get("owner_is_controller") == "true"):
            owner = _owner(labels)
            if owner:
                self._of_pods[pod_name(labels)] = owner

    def missing_owners(self, pods: Iterable[tuple[str, str]]) -> Mapping[str, set[str]]:
        """Names of ReplicaSets and Jobs that own pods and whose owners were not reported, by statistic."""
        missing: dict[str, set[str]] = {}
        for pod in pods:
            kind, name = self._of_pods.get(pod, ("", ""))
            for stat, owner_kind, _ in _OWNED_OWNER_KINDS:
                if kind == owner_kind and (pod[0], kind, name) not in self._of_owners:
                    missing.setdefault(stat, set()).add(name)
        return missing

    def top_owner(self, namespace: str, pod: str) -> Owner:
        """The workload that a pod belongs to: its topmost owner, or the pod itself if it has no owner."""
        owner = self._of_pods.get((namespace, pod), ("Pod", pod))
        return self._of_owners.get((namespace, *owner)) or owner


def _owner(labels: Labels) -> Owner | None:
    kind, name = labels.get("owner_kind", ""), labels.get("owner_name", "")
    return (kind, name) if kind and name and "<none>" not in {kind, name} else None


# Pods by their series.


class _Pod(Struct):
    namespace: str
    pod: str
    uid: str
    node: str
    units: dict[_Container, Decimal | None] = field(default_factory=dict)
    """None if no value was returned."""
    sample_counts: SampleCounts = field(default_factory=SampleCounts)
    sampled: "_SampledPod | None" = None
    """What the pod's raw samples show, if they were read."""
    reported_objects: set[tuple[str, str, str]] = field(default_factory=set)
    """Namespace, name and node that were reported with the uid. More than one is a contradiction."""
    requests_by_target: dict[ScrapeTarget, dict[_Container, Decimal | None]] = field(default_factory=dict)
    """The requests that each target reports. None if it reports no value other than 1 at the hour's end."""
    contradiction: str = ""
    reserves: bool = False
    """Whether it reserves a GPU for pods with fractions of it."""


class _RawPodSamples(Struct):
    """A pod's raw samples, which are not kept."""

    requested: _TimesByTarget = field(default_factory=dict)
    running: _TimesByTarget = field(default_factory=dict)
    finished: _TimesByTarget = field(default_factory=dict)
    has_phases: bool = False
    scheduled_at: int | None = None
    completed_at: int | None = None
    init_running: dict[str, _TimesByTarget] = field(default_factory=dict)
    units: dict[ScrapeTarget, dict[_Container, Decimal]] = field(default_factory=dict)


class _SampledPod(Struct, frozen=True):
    """What a pod's raw samples show."""

    requested: _BoundsByTarget
    held: _BoundsByTarget
    """When it was requested and not finished."""
    running: _BoundsByTarget | None
    """None if no target reports its phase."""
    finished: _BoundsByTarget
    scheduled_at: int | None
    completed_at: int | None
    sidecars: frozenset[str]
    """Init containers that ran while the pod did: kube-state-metrics does not distinguish them."""
    contradiction: str


class PodTable:
    """Builds `PodObservation`s. Pods that did not run unchanged for the whole hour need their raw samples.

    Args:
        requests: results of `Queries.requests`, by statistic.
        running: labels of the result of `Queries.running`.
        phases: results of `Queries.phases` for pods that are not in `running`, by statistic.
        completed: labels of the result of `Queries.completed`, where no phases are collected.
    """

    def __init__(
        self,
        requests: Mapping[str, Rows],
        running: Iterable[Labels],
        phases: Mapping[str, Rows],
        completed: Iterable[Labels] = (),
    ) -> None:
        self._pods: dict[str, _Pod] = {}
        self._owners = OwnerTable()
        self.labels = LabelTable()
        self.fractions: dict[str, GpuFraction] = {}
        """What pods get of reserved GPUs, by uid."""
        self.reserved_groups: dict[str, str] = {}
        """The groups of reservation pods, by uid."""
        self._shared_requests: dict[_RequestsKey, tuple[ContainerRequest, ...]] = {}
        all_hour = {labels.get("uid", ""): "Running" for labels in running}
        self._at_start = _phase_by_uid(phases.get("start", [])) | all_hour
        self._at_end = _phase_by_uid(phases.get("end", [])) | all_hour
        self._completed = {pod_identity(labels) for labels in completed}
        self._has_sampled_phases = self._has_sampled_ends = False
        """Whether raw samples have any: of pods that start and end within the hour, nothing else does."""
        all_labels = [labels for rows in requests.values() for labels, _ in rows]
        # Whether labels are renamed to `exported_…` depends on the target's scrape configuration.
        self._renaming = {labels.get("instance", "") for labels in all_labels if "exported_node" in labels}
        self.name_label = exported_label_name(all_labels, "pod")
        """The label that holds pods' names."""
        for stat in (NO_STATISTIC_LABEL, "init-count"):
            for labels, value in requests.get(stat, []):
                node = self._node_of(labels)
                if node:  # else the pod is not scheduled yet, and `node` is the exporter's own
                    target = scrape_target(labels)
                    self._request(labels, node, target, init=stat == "init-count").sample_counts.add(target, value)
        for stat in ("units", "init-units"):
            for labels, value in requests.get(stat, []):
                if pod_identity(labels) in self._pods:
                    pod = self._pods[pod_identity(labels)]
                    container = _container(labels, init=stat == "init-units")
                    pod.units[container] = pod.requests_by_target.setdefault(scrape_target(labels), {})[container] = (
                        value
                    )
        still_held = {pod_identity(labels) for labels, _ in phases.get("start", []) if labels.get("phase") == "Running"}
        for uid in [uid for uid in self._pods if self._at_start.get(uid) in _FINISHED and uid not in still_held]:
            del self._pods[uid]  # finished before the hour and not deleted yet

    def needing_raw_samples(self, covers_hour: CoversHour) -> list[str]:
        """Uids of pods that did not hold their GPUs and run at every scrape of the hour."""
        for pod in self._pods.values():
            if len(pod.requests_by_target) > 1 and len(pod.reported_objects) == 1:
                pod.contradiction = _request_contradiction(pod, covers_hour)
        return [uid for uid, pod in self._pods.items() if not self._is_unchanged(pod, covers_hour)]

    def node_names(self) -> set[str]:
        """Names of the nodes to which pods are bound."""
        return {pod.node for pod in self._pods.values()}

    def reported_nodes(self) -> set[str]:
        """Names of the nodes to which any target says that pods are bound."""
        return {node for pod in self._pods.values() for _, _, node in pod.reported_objects}

    def names(self, uids: Iterable[str]) -> set[tuple[str, str]]:
        """(namespace, pod) of some pods."""
        return {(self._pods[uid].namespace, self._pods[uid].pod) for uid in uids}

    def fully_held_nodes(self, uids: Iterable[str], advertised: Callable[[str], Mapping[str, Decimal]]) -> set[str]:
        """Names of nodes on which one of some pods may hold all GPUs.

        Args:
            uids: the pods' uids.
            advertised: returns a node's units per resource, by the node's name.
        """
        nodes = set()
        for pod in (self._pods[uid] for uid in uids):
            capacity, units = advertised(pod.node), Counter[str]()
            for (_, _, resource), count in pod.units.items():
                units[resource] += int(count) if count is not None and is_count(count) else 1
            if any(capacity.get(resource) == count for resource, count in units.items()):
                nodes.add(pod.node)
        return nodes

    def nodes_with_fractions(self, uids: Iterable[str], except_names: Container[tuple[str, str]]) -> set[str]:
        """Names of nodes on which some pods, except those with some names, request a fraction of a GPU."""
        return {
            pod.node
            for pod in (self._pods[uid] for uid in uids)
            if (pod.namespace, pod.pod) not in except_names
            and any(resource in FRACTION_RESOURCES for _, _, resource in pod.units)
        }

    def reservations(self) -> dict[str, str]:
        """The nodes of pods that reserve a GPU for fractions, by uid."""
        return {uid: pod.node for uid, pod in self._pods.items() if pod.reserves}

    def add_raw_samples(self, uids: Iterable[str], series: Sequence[Series]) -> None:
        """Add the raw samples of some pods, in place of earlier ones."""
        raw_by_uid = {uid: _RawPodSamples() for uid in uids}
        add = {
            REQUESTS: self._add_request,
            INIT_REQUESTS: self._add_request,
            PHASE: _add_phase,
            INIT_RUNNING: _add_init_running,
            SCHEDULED: _add_time,
            COMPLETED: _add_time,
        }
        by_metric: dict[str, list[Series]] = defaultdict(list)
        for pod_series in series:
            metric = pod_series.labels.get("__name__", "")
            by_metric[metric].append(pod_series)
            uid = pod_identity(pod_series.labels)
            if uid in raw_by_uid and metric in add:
                add[metric](raw_by_uid[uid], pod_series)
        self._owners.add_pods(labels for labels, _ in by_metric[POD_OWNER])
        self.labels.add_samples(by_metric[POD_LABELS])
        for uid, raw in raw_by_uid.items():
            _drop_phases_without_requests(raw)
            _add_end_without_phases(raw)
            self._has_sampled_phases |= raw.has_phases
            self._has_sampled_ends |= raw.completed_at is not None
            self._pods[uid].sampled = _summarize(raw)

    def add_owners(self, rows: Mapping[str, Rows]) -> None:
        """Add owners of pods and of ReplicaSets and Jobs."""
        self._owners.add(rows)

    def missing_owners(self, names: Iterable[tuple[str, str]]) -> Mapping[str, set[str]]:
        """Names of ReplicaSets and Jobs that own some pods and do not exist at the hour's end, by statistic."""
        return self._owners.missing_owners(names)

    def with_owner_and_labels(self, pod: PodObservation) -> PodObservation:
        """A pod that requests no GPU, with its owner and labels."""
        kind, name = self._owners.top_owner(pod.namespace, pod.pod)
        return replace(
            pod,
            workload_kind=kind,
            workload=name,
            labels=self.labels.of_pod(pod.namespace, pod.pod),
            namespace_labels=self.labels.of_namespace(pod.namespace),
        )

    def pods(self) -> tuple[PodObservation, ...]:
        """Every pod that held or may have held GPUs in the hour."""
        return tuple(
            self._observation(pod, namespace, name, node)
            for pod in self._pods.values()
            for namespace, name, node in sorted(pod.reported_objects)
        )

    def reporting_jobs(self) -> dict[str, tuple[frozenset[str], IntervalMs | None]]:
        """By uid, the jobs that report a pod, and when; None for the whole hour."""
        return {
            uid: (
                frozenset(target.partition("|")[0] for target in pod.requests_by_target),
                _first_to_last(pod.sampled.requested.values()) if pod.sampled else None,
            )
            for uid, pod in self._pods.items()
        }

    def nodes_by_name(self) -> dict[tuple[str, str], str]:
        """The nodes of all pods, by namespace and name."""
        return {(pod.namespace, pod.pod): pod.node for pod in self._pods.values()}

    def uids(self) -> Collection[str]:
        """The uids of all pods."""
        return self._pods.keys()

    def name_of(self, uid: str) -> str:
        """A pod's namespace and name."""
        return f"{self._pods[uid].namespace}/{self._pods[uid].pod}"

    def _is_unchanged(self, pod: _Pod, covers_hour: CoversHour) -> bool:
        if pod.contradiction or self.labels.has_contradictory_labels(pod.namespace, pod.pod):
            return False  # raw samples show whether the difference lasts longer than a target may lag
        if not covers_hour(pod.sample_counts.counts) or any(init for _, init, _ in pod.units):
            return False  # only raw samples show whether an init container is a sidecar
        start, end = self._at_start.get(pod.uid), self._at_end.get(pod.uid)
        return start == end == "Running" or (not self._has_phases and pod.uid not in self._completed)

    @property
    def _has_phases(self) -> bool:
        """Whether the phase of any pod is known at the hour's start or end."""
        return bool(self._at_start or self._at_end)

    @property
    def lacks_ends(self) -> bool:
        """Whether neither phases nor completion times say when pods finish."""
        return bool(self._pods) and not self._collects_phases and not self._collects_ends

    @property
    def _collects_phases(self) -> bool:
        return self._has_phases or self._has_sampled_phases

    @property
    def _collects_ends(self) -> bool:
        return bool(self._completed) or self._has_sampled_ends

    def unknown_phases(self) -> list[Unexplained]:
        """Pods whose phases are unknown because none are collected."""
        if self._collects_phases or not self._pods:
            return []
        if self._collects_ends:
            until = "and pods hold their GPUs until kube_pod_completion_time, or until they are deleted"
        else:
            until = (
                "and pods of nodes where dcgm-exporter names any hold their GPUs while it names them, since no pod has "
                "kube_pod_completion_time either. What they may hold later is unobserved"
            )
        change = (
            "kube-state-metrics: keep kube_pod_status_phase. Without it, pods that pull their image count as running, "
            f"{until}"
        )
        count = Decimal(len(self._pods))
        return [Unexplained("pods without samples of", PHASE, count, change=change, may_be_gpus=False)]

    def _node_of(self, labels: Labels) -> str:
        return labels.get("exported_node" if labels.get("instance", "") in self._renaming else "node", "")

    def _request(self, labels: Labels, node: str, target: ScrapeTarget, *, init: bool) -> _Pod:
        uid = pod_identity(labels)
        pod = self._pods.get(uid)
        namespace, name = pod_name(labels)
        if pod is None:
            pod = self._pods[uid] = _Pod(namespace, name, uid, node)
        pod.reported_objects.add((namespace, name, node))
        pod.reserves = pod.reserves or is_reservation(labels)
        container = _container(labels, init=init)
        pod.units.setdefault(container, None)
        pod.requests_by_target.setdefault(target, {}).setdefault(container, None)
        return pod

    def _add_request(self, raw: _RawPodSamples, series: Series) -> None:
        node = self._node_of(series.labels)
        if not node:
            return
        init = series.labels.get("__name__") == INIT_REQUESTS
        target = scrape_target(series.labels)
        pod = self._request(series.labels, node, target, init=init)
        container, value = _container(series.labels, init=init), parse_number(series.samples[-1][1])
        raw.units.setdefault(target, {})[container] = value
        pod.units[container] = _larger_request(pod.units.get(container), value)
        raw.requested.setdefault(target, set()).update(time for time, _ in series.samples)

    def _requests_of(self, pod: _Pod) -> tuple[ContainerRequest, ...]:
        """The requests of a pod's containers. Pods that request the same share one tuple."""
        key = tuple(pod.units.items()), pod.sampled.sidecars if pod.sampled else _NO_SIDECARS
        if key not in self._shared_requests:
            self._shared_requests[key] = _container_requests(*key)
        return self._shared_requests[key]

    def _observation(self, pod: _Pod, namespace: str, name: str, node: str) -> PodObservation:
        kind, workload = self._owners.top_owner(namespace, name)
        sampled = pod.sampled
        held: SampleTimes = None
        running: SampleTimes = None
        if sampled is not None:
            held = sampled.held
            running = held if sampled.running is None else sampled.running
        return PodObservation(
            namespace,
            name,
            pod.uid,
            node,
            self._requests_of(pod),
            held_samples=held,
            running_samples=running,
            scheduled_at=sampled.scheduled_at if sampled else None,
            completed_at=sampled.completed_at if sampled else None,
            finished_samples=sampled.finished if sampled else {},
            workload_kind=kind,
            workload=workload,
            labels=self.labels.of_pod(namespace, name),
            namespace_labels=self.labels.of_namespace(namespace),
            fraction=self.fractions.get(pod.uid),
            reserved_group=self.reserved_groups.get(pod.uid, "") if pod.reserves else None,
            contradiction=_object_contradiction(pod) or (sampled.contradiction if sampled else pod.contradiction),
        )


def _container_requests(
    units: Iterable[tuple[_Container, Decimal | None]], sidecars: Container[str]
) -> tuple[ContainerRequest, ...]:
    """The requests of some units, by container, without those of 0 units."""
    return tuple(
        ContainerRequest(
            container,
            "container" if not init else "sidecar" if container in sidecars else "init",
            resource,
            _DEFAULT_UNITS if container_units is None else container_units,
        )
        for (container, init, resource), container_units in units
        if container_units != 0
    )


# Contradictions between reporters of one pod, and what is left out of its samples.


def _object_contradiction(pod: _Pod) -> str:
    """How targets contradict each other about which pod has a uid; "" if they agree."""
    if len(pod.reported_objects) == 1:
        return ""
    (namespace, name, node), (other_namespace, other_name, other_node), *_ = sorted(pod.reported_objects)
    return (
        f"uid {pod.uid} is reported for pod {namespace}/{name} on node {node} and for pod "
        f"{other_namespace}/{other_name} on node {other_node}"
    )


def _request_contradiction(pod: _Pod, covers_hour: CoversHour) -> str:
    """How targets that reported a pod for the whole hour contradict each other about its requests; "" if they agree."""
    reported = [
        {container: _DEFAULT_UNITS if units is None else units for container, units in requests.items()}
        for target, requests in pod.requests_by_target.items()
        if covers_hour({target: pod.sample_counts.counts.get(target, 0)})
    ]
    return _difference(reported)


def _sample_contradiction(raw: _RawPodSamples) -> str:
    """How targets contradict each other about a pod's requests or its end, by raw samples; "" if they agree."""
    times = [(target, _first_to_last([bounds])) for target, bounds in _bounds(raw.requested).items()]
    for (target, time), (other, other_time) in combinations(times, 2):
        difference = _difference([raw.units.get(target, {}), raw.units.get(other, {})])
        if difference and overlap_beyond_lag(time, other_time):
            return difference
    for target, requested in raw.requested.items():
        held = requested - raw.finished.get(target, set())
        for other, finished in raw.finished.items():
            if held and finished and other != target and max(held) - min(finished) > MAX_LAG_MS:
                return f"{target} reports it as held long after {other} reports it as finished"
    return ""


def _difference(reported: Sequence[Mapping[_Container, Decimal]]) -> str:
    for requests in reported[1:]:
        if requests != reported[0]:
            first, second = sorted([_requests(reported[0]), _requests(requests)])
            return f"its requests are reported as {first} and as {second}"
    return ""


def _requests(requests: Mapping[_Container, Decimal]) -> str:
    texts = (f"{units} {to_kubernetes_resource(resource)} ({name})" for (name, _, resource), units in requests.items())
    return ", ".join(sorted(texts)) or "nothing"


def _drop_phases_without_requests(raw: _RawPodSamples) -> None:
    """Drop phases from targets that do not report the pod's requests, if another target reports both."""
    with_phases = raw.running.keys() | raw.finished.keys()
    if with_phases & raw.requested.keys():
        for times in (raw.running, raw.finished):
            for target in times.keys() - raw.requested.keys():
                del times[target]


def _add_end_without_phases(raw: _RawPodSamples) -> None:
    """Count the samples of a pod without phases as finished from its completion on."""
    if raw.has_phases or raw.completed_at is None:
        return
    for target, times in raw.requested.items():
        finished = {time for time in times if time >= raw.completed_at}
        if finished:
            raw.finished[target] = finished


def _summarize(raw: _RawPodSamples) -> _SampledPod:
    held = {target: times - raw.finished.get(target, set()) for target, times in raw.requested.items()}
    return _SampledPod(
        _bounds(raw.requested),
        _bounds(held),
        _bounds(raw.running) if raw.has_phases else None,
        _bounds(raw.finished),
        raw.scheduled_at,
        raw.completed_at,
        _sidecars(raw),
        _sample_contradiction(raw),
    )


def _bounds(times: _TimesByTarget) -> _BoundsByTarget:
    """The first and the last time by target, without targets that have none."""
    return {target: (min(run), max(run)) for target, run in times.items() if run}


def _sidecars(raw: _RawPodSamples) -> frozenset[str]:
    """The init containers that ran while the pod did; without phases, those that ran at its last sample."""
    running = raw.running
    if not raw.has_phases:
        running = {target: {max(times)} for target, times in raw.requested.items() if times}
    return frozenset(container for container, times in raw.init_running.items() if _have_common_times(times, running))


def _have_common_times(times: _TimesByTarget, other_times: _TimesByTarget) -> bool:
    """Whether a target has a sample of both at the same time."""
    return any(not run.isdisjoint(other_times.get(target, ())) for target, run in times.items())


def _first_to_last(bounds: Collection[tuple[int, int]]) -> IntervalMs:
    """From the first of some times to the last."""
    return IntervalMs(min((first for first, _ in bounds), default=0), max((last for _, last in bounds), default=0))


def pod_identity(labels: Labels) -> str:
    """A pod's uid, or `namespace/pod` if the target does not report it (uids contain no slash)."""
    return labels.get("uid") or f"{exported_label(labels, 'namespace')}/{exported_label(labels, 'pod')}"


def _larger_request(reported: Decimal | None, value: Decimal) -> Decimal:
    """The larger of two reports of a request; a value that is not finite wins, whatever the order."""
    if reported is None or not value.is_finite():
        return value
    return max(reported, value) if reported.is_finite() else reported


# Phases and containers of single samples.


def pods_not_running(requests: Iterable[Series], running: Iterable[Series], except_at: Container[int] = ()) -> set[str]:
    """Identities of pods that did not run at both the start and the end of an hour in which they held GPUs.

    Args:
        requests: the result of `Queries.requests`, for one or more hours.
        running: the result of `Queries.running`, for the same hours.
        except_at: ends of hours to ignore, in milliseconds.
    """
    running_at = {(labels.get("uid", ""), time) for labels, samples in running for time, _ in samples}
    return {
        uid
        for labels, samples in requests
        for time, _ in samples
        if time not in except_at and ((uid := pod_identity(labels)), time) not in running_at
    }


def _phase_by_uid(rows: Rows) -> dict[str, str]:
    """The phase by uid. If targets differ, the phase that is later in a pod's lifecycle, because one may lag."""
    phases: dict[str, str] = {}
    for labels, _ in rows:
        uid, phase = pod_identity(labels), labels.get("phase", "")
        if phases.get(uid) not in _FINISHED:
            phases[uid] = phase
    return phases


def _add_phase(raw: _RawPodSamples, series: Series) -> None:
    raw.has_phases = True
    phase = series.labels.get("phase", "")
    times = raw.finished if phase in _FINISHED else raw.running if phase == "Running" else None
    if times is not None:
        times.setdefault(scrape_target(series.labels), set()).update(
            time for time, value in series.samples if value == "1"
        )


def _add_init_running(raw: _RawPodSamples, series: Series) -> None:
    times = raw.init_running.setdefault(exported_label(series.labels, "container"), {})
    times.setdefault(scrape_target(series.labels), set()).update(time for time, value in series.samples if value == "1")


def _add_time(raw: _RawPodSamples, series: Series) -> None:
    value = parse_number(series.samples[-1][1])
    if not is_amount(value):
        return
    if series.labels.get("__name__") == SCHEDULED:
        raw.scheduled_at = int(value * 1000)
    else:
        raw.completed_at = int(value * 1000)


def _container(labels: Labels, *, init: bool) -> _Container:
    return exported_label(labels, "container"), init, labels.get("resource", "")
