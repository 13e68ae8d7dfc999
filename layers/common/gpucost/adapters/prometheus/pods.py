"""GPU pods of one hour, put together from the answers about requests, phases, owners and labels."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gpucost.adapters.prometheus.client import Series
from gpucost.adapters.prometheus.owners import OwnerTable
from gpucost.adapters.prometheus.queries import (
    COMPLETED,
    INIT_REQUESTS,
    INIT_RUNNING,
    PHASE,
    POD_LABELS,
    POD_OWNER,
    REQUESTS,
    SCHEDULED,
    UNMARKED,
)
from gpucost.adapters.prometheus.tables import Labels, Rows, Seen, instance, label_of, number, own_labels, told
from gpucost.domain.observations import ContainerRequest, Instance, PodObservation, Sightings

IsWhole = Callable[[Mapping[Instance, int]], bool]
_FINISHED = {"Succeeded", "Failed"}
_ONE = Decimal(1)
"""What a container asks for whose units were not answered: only values other than 1 are, and a pod that is not looked
at more closely was there at the hour's end."""
_Container = tuple[str, bool, str]
"""Name, whether it is an init container, resource."""
_Times = dict[Instance, set[int]]


@dataclass(slots=True)
class _Pod:
    namespace: str
    pod: str
    uid: str
    node: str
    units: dict[_Container, Decimal | None] = field(default_factory=dict)
    """None where no value was seen."""
    held: Seen = field(default_factory=Seen)
    closely: "_Closely | None" = None
    """What its own samples say, where it was looked at closely."""


@dataclass(slots=True)
class _Closely:
    requested: _Times = field(default_factory=dict)
    running: _Times = field(default_factory=dict)
    finished: _Times = field(default_factory=dict)
    has_phases: bool = False
    scheduled_at: int | None = None
    completed_at: int | None = None
    init_running: dict[str, _Times] = field(default_factory=dict)


class PodTable:
    """Builds `PodObservation`s; pods that were not simply there all hour are looked at more closely in between.

    Args:
        requests: answers to `Queries.requests`, by statistic.
        running: labels of the answer to `Queries.running`.
        phases: answers to `Queries.phases` about pods that are not in it, by statistic.
    """

    def __init__(self, requests: Mapping[str, Rows], running: Iterable[Labels], phases: Mapping[str, Rows]) -> None:
        self._pods: dict[str, _Pod] = {}
        self._owners = OwnerTable()
        self._labels: dict[tuple[str, str], dict[str, str]] = {}
        self._namespace_labels: dict[str, dict[str, str]] = {}
        all_hour = {labels.get("uid", ""): "Running" for labels in running}
        self._at_start = _phase_of(phases.get("start", [])) | all_hour
        self._at_end = _phase_of(phases.get("end", [])) | all_hour
        asked = [labels for rows in requests.values() for labels, _ in rows]
        self._node_label = label_of(asked, "node")
        self.name_label = label_of(asked, "pod")
        """The label that holds pods' names."""
        for stat in (UNMARKED, "init-count"):
            for labels, value in requests.get(stat, []):
                if labels.get(self._node_label):  # else: not on a node yet, though the scrape says where it ran itself
                    self._request(labels, init=stat == "init-count").held.add(labels, value)
        for stat in ("units", "init-units"):
            for labels, value in requests.get(stat, []):
                if identity(labels) in self._pods:
                    pod = self._pods[identity(labels)]
                    pod.units[_container(labels, init=stat == "init-units")] = value
        for uid in [uid for uid in self._pods if self._at_start.get(uid) in _FINISHED]:
            del self._pods[uid]  # finished before the hour, and left lying

    def uncertain(self, is_whole: IsWhole) -> list[str]:
        """Uids of pods that were not seen, holding and running, at every scrape of the hour."""
        return [uid for uid, pod in self._pods.items() if not self._is_plain(pod, is_whole)]

    def names(self, uids: Iterable[str]) -> set[tuple[str, str]]:
        """(namespace, pod) of some pods."""
        return {(self._pods[uid].namespace, self._pods[uid].pod) for uid in uids}

    def look_closer(self, uids: Iterable[str], series: Sequence[Series]) -> None:
        """Take in the raw samples of some pods."""
        closely = {uid: _Closely() for uid in uids}
        take = {
            REQUESTS: self._take_request,
            INIT_REQUESTS: self._take_request,
            PHASE: _take_phase,
            INIT_RUNNING: _take_init_running,
            SCHEDULED: _take_time,
            COMPLETED: _take_time,
        }
        for one in series:
            uid, metric = identity(one.labels), one.labels.get("__name__", "")
            if uid in closely and metric in take:
                take[metric](closely[uid], one)
        self._owners.add_pods(one.labels for one in series if one.labels.get("__name__") == POD_OWNER)
        self.add_labels({"pod": [(one.labels, _ONE) for one in series if one.labels.get("__name__") == POD_LABELS]})
        for uid, seen in closely.items():
            self._pods[uid].closely = seen

    def add_owners(self, rows: Mapping[str, Rows]) -> None:
        """Take in who owns what."""
        self._owners.add(rows)

    def missing_owners(self, uids: Iterable[str]) -> Mapping[str, set[str]]:
        """Names of ReplicaSets and Jobs that own some pods and are gone by the hour's end, by statistic."""
        return self._owners.missing(self.names(uids))

    def add_labels(self, rows: Mapping[str, Rows]) -> None:
        """Take in labels of pods and namespaces."""
        for labels, _ in rows.get("pod", []):
            self._labels.setdefault((told(labels, "namespace"), told(labels, "pod")), {}).update(own_labels(labels))
        for stat in ("namespace-start", "namespace"):
            for labels, _ in rows.get(stat, []):
                self._namespace_labels.setdefault(told(labels, "namespace"), {}).update(own_labels(labels))

    def pods(self) -> tuple[PodObservation, ...]:
        """Every pod that held or may have held GPUs in the hour."""
        return tuple(self._observation(pod) for pod in self._pods.values())

    def _is_plain(self, pod: _Pod, is_whole: IsWhole) -> bool:
        if not is_whole(pod.held.counts) or any(init for _, init, _ in pod.units):
            return False  # whether an init container is a sidecar shows in its own samples only
        start, end = self._at_start.get(pod.uid), self._at_end.get(pod.uid)
        are_kept = bool(self._at_start or self._at_end)
        return start == end == "Running" or not are_kept

    def _request(self, labels: Labels, *, init: bool) -> _Pod:
        uid = identity(labels)
        pod = self._pods.get(uid)
        if pod is None:
            names = told(labels, "namespace"), told(labels, "pod")
            pod = self._pods[uid] = _Pod(*names, uid, labels.get(self._node_label, ""))
        pod.units.setdefault(_container(labels, init=init), None)
        return pod

    def _take_request(self, seen: _Closely, one: Series) -> None:
        node = one.labels.get(self._node_label)
        if not node:
            return
        init = one.labels.get("__name__") == INIT_REQUESTS
        pod = self._request(one.labels, init=init)
        pod.units[_container(one.labels, init=init)] = number(one.samples[-1][1])
        seen.requested.setdefault(instance(one.labels), set()).update(at for at, _ in one.samples)

    def _observation(self, pod: _Pod) -> PodObservation:
        kind, name = self._owners.top(pod.namespace, pod.pod)
        seen = pod.closely
        held: Sightings = None
        running: Sightings = None
        finished: Sightings = {}
        if seen is not None:
            held = _without(seen.requested, seen.finished)
            running = _without(seen.running, {}) if seen.has_phases else held
            finished = _without(seen.finished, {})
        return PodObservation(
            namespace=pod.namespace,
            pod=pod.pod,
            uid=pod.uid,
            node=pod.node,
            requests=tuple(
                ContainerRequest(
                    container, _kind(seen, container, init=init), resource, _ONE if units is None else units
                )
                for (container, init, resource), units in pod.units.items()
                if units != 0
            ),
            held=held,
            running=running,
            scheduled_at=seen.scheduled_at if seen else None,
            completed_at=seen.completed_at if seen else None,
            seen_finished=finished,
            workload_kind=kind,
            workload=name,
            labels=self._labels.get((pod.namespace, pod.pod), {}),
            namespace_labels=self._namespace_labels.get(pod.namespace, {}),
        )


def identity(labels: Labels) -> str:
    """A pod's uid; `namespace/pod` from sources that do not tell it (no uid holds a slash)."""
    return labels.get("uid") or f"{told(labels, 'namespace')}/{told(labels, 'pod')}"


def not_running(requests: Iterable[Series], running: Iterable[Series], but: Container[int] = ()) -> set[str]:
    """Uids (see `identity`) of pods that are not told to run at the start and the end of some hour they were seen in.

    Args:
        requests: the answer to `Queries.requests`, of one or more hours.
        running: the answer to `Queries.running`, of the same.
        but: ends of hours that are left out, in milliseconds.
    """
    known = {(one.labels.get("uid", ""), at) for one in running for at, _ in one.samples}
    return {
        uid
        for one in requests
        for at, _ in one.samples
        if at not in but and ((uid := identity(one.labels)), at) not in known
    }  # fmt: skip


def _phase_of(rows: Rows) -> dict[str, str]:
    """The phase per uid; of a pair of instances, of which one may lag, the later one in a pod's life."""
    found: dict[str, str] = {}
    for labels, _ in rows:
        uid, phase = identity(labels), labels.get("phase", "")
        if found.get(uid) not in _FINISHED:
            found[uid] = phase
    return found


def _take_phase(seen: _Closely, one: Series) -> None:
    seen.has_phases = True
    phase = one.labels.get("phase", "")
    into = seen.finished if phase in _FINISHED else seen.running if phase == "Running" else None
    if into is not None:
        into.setdefault(instance(one.labels), set()).update(at for at, value in one.samples if value == "1")


def _take_init_running(seen: _Closely, one: Series) -> None:
    times = seen.init_running.setdefault(told(one.labels, "container"), {})
    times.setdefault(instance(one.labels), set()).update(at for at, value in one.samples if value == "1")


def _take_time(seen: _Closely, one: Series) -> None:
    value = number(one.samples[-1][1])
    if not value.is_finite():
        return
    if one.labels.get("__name__") == SCHEDULED:
        seen.scheduled_at = int(value * 1000)
    else:
        seen.completed_at = int(value * 1000)


def _without(times: _Times, others: _Times) -> dict[Instance, tuple[int, ...]]:
    left = {who: tuple(sorted(run - others.get(who, set()))) for who, run in times.items()}
    return {who: run for who, run in left.items() if run}


def _kind(seen: _Closely | None, container: str, *, init: bool) -> str:
    """An init container that runs while its pod does is a sidecar; kube-state-metrics does not tell them apart."""
    if not init:
        return "container"
    beside = seen and any(
        times & seen.running.get(who, set()) for who, times in seen.init_running.get(container, {}).items()
    )
    return "sidecar" if beside else "init"


def _container(labels: Labels, *, init: bool) -> _Container:
    return told(labels, "container"), init, labels.get("resource", "")
