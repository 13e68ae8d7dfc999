"""GPU pods of one hour, put together from the answers about requests, phases, owners and labels."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import combinations

from gpucost.adapters.prometheus.client import Series
from gpucost.adapters.prometheus.owners import OwnerTable
from gpucost.adapters.prometheus.pod_labels import LabelTable
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
from gpucost.adapters.prometheus.tables import Labels, Rows, Seen, instance, label_of, number, told
from gpucost.domain.intervals import Interval
from gpucost.domain.observations import ContainerRequest, Instance, PodObservation, Sightings
from gpucost.domain.shares import kubernetes_resource
from gpucost.domain.suspicion import LASTING_MS, is_amount, is_count, overlap_lastingly

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
    objects: set[tuple[str, str, str]] = field(default_factory=set)
    """Namespace, name and node under which the uid was seen: one, or sources contradict each other."""
    by_instance: dict[Instance, dict[_Container, Decimal | None]] = field(default_factory=dict)
    """What each instance says that it requests; None where no value other than 1 is told at the hour's end."""
    contradiction: str = ""


@dataclass(slots=True)
class _Closely:
    requested: _Times = field(default_factory=dict)
    running: _Times = field(default_factory=dict)
    finished: _Times = field(default_factory=dict)
    has_phases: bool = False
    scheduled_at: int | None = None
    completed_at: int | None = None
    init_running: dict[str, _Times] = field(default_factory=dict)
    units: dict[Instance, dict[_Container, Decimal]] = field(default_factory=dict)


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
        self.labels = LabelTable()
        all_hour = {labels.get("uid", ""): "Running" for labels in running}
        self._at_start = _phase_of(phases.get("start", [])) | all_hour
        self._at_end = _phase_of(phases.get("end", [])) | all_hour
        asked = [labels for rows in requests.values() for labels, _ in rows]
        # Told by each source for itself: what one calls `exported_node` says nothing of another's labels.
        self._renaming = {labels.get("instance", "") for labels in asked if "exported_node" in labels}
        self.name_label = label_of(asked, "pod")
        """The label that holds pods' names."""
        for stat in (UNMARKED, "init-count"):
            for labels, value in requests.get(stat, []):
                if self._node_of(labels):  # else: not on a node yet, though the scrape says where it ran itself
                    who = instance(labels)
                    self._request(labels, who, init=stat == "init-count").held.add(who, value)
        for stat in ("units", "init-units"):
            for labels, value in requests.get(stat, []):
                if identity(labels) in self._pods:
                    pod = self._pods[identity(labels)]
                    container = _container(labels, init=stat == "init-units")
                    pod.units[container] = pod.by_instance.setdefault(instance(labels), {})[container] = value
        still_held = {identity(labels) for labels, _ in phases.get("start", []) if labels.get("phase") == "Running"}
        for uid in [uid for uid in self._pods if self._at_start.get(uid) in _FINISHED and uid not in still_held]:
            del self._pods[uid]  # finished before the hour, and left lying

    def uncertain(self, is_whole: IsWhole) -> list[str]:
        """Uids of pods that were not seen, holding and running, at every scrape of the hour."""
        for pod in self._pods.values():
            if len(pod.by_instance) > 1 and len(pod.objects) == 1:
                pod.contradiction = _of_requests(pod, is_whole)
        return [uid for uid, pod in self._pods.items() if not self._is_plain(pod, is_whole)]

    def names(self, uids: Iterable[str]) -> set[tuple[str, str]]:
        """(namespace, pod) of some pods."""
        return {(self._pods[uid].namespace, self._pods[uid].pod) for uid in uids}

    def on_whole_nodes(self, uids: Iterable[str], advertised: Callable[[str], Mapping[str, Decimal]]) -> set[str]:
        """Names of nodes of which one of some pods may hold all GPUs.

        Args:
            uids: of the pods.
            advertised: units per resource of a node, by its name.
        """
        found = set()
        for pod in (self._pods[uid] for uid in uids):
            known, units = advertised(pod.node), Counter[str]()
            for (_, _, resource), count in pod.units.items():
                units[resource] += int(count) if count is not None and is_count(count) else 1
            if any(known.get(resource) == count for resource, count in units.items()):
                found.add(pod.node)
        return found

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
        self.labels.add_samples(one for one in series if one.labels.get("__name__") == POD_LABELS)
        for uid, seen in closely.items():
            self._pods[uid].closely = seen
            _trust_who_tells_requests(seen)

    def add_owners(self, rows: Mapping[str, Rows]) -> None:
        """Take in who owns what."""
        self._owners.add(rows)

    def missing_owners(self, uids: Iterable[str]) -> Mapping[str, set[str]]:
        """Names of ReplicaSets and Jobs that own some pods and are gone by the hour's end, by statistic."""
        return self._owners.missing(self.names(uids))

    def pods(self) -> tuple[PodObservation, ...]:
        """Every pod that held or may have held GPUs in the hour."""
        return tuple(self._observation(pod, *place) for pod in self._pods.values() for place in sorted(pod.objects))

    def jobs(self) -> dict[str, tuple[frozenset[str], Interval | None]]:
        """By uid, the jobs that tell of a pod, and from when to when; None for the whole hour."""
        return {
            uid: (
                frozenset(who.partition("|")[0] for who in pod.by_instance),
                _time(pod.closely.requested) if pod.closely else None,
            )
            for uid, pod in self._pods.items()
        }

    def uids(self) -> Iterable[str]:
        """Of all pods."""
        return self._pods.keys()

    def name_of(self, uid: str) -> str:
        """A pod's namespace and name."""
        return f"{self._pods[uid].namespace}/{self._pods[uid].pod}"

    def _is_plain(self, pod: _Pod, is_whole: IsWhole) -> bool:
        if pod.contradiction or self.labels.differ(pod.namespace, pod.pod):
            return False  # whether for longer than one source may lag, shows in their samples
        if not is_whole(pod.held.counts) or any(init for _, init, _ in pod.units):
            return False  # whether an init container is a sidecar shows in its own samples only
        start, end = self._at_start.get(pod.uid), self._at_end.get(pod.uid)
        are_kept = bool(self._at_start or self._at_end)
        return start == end == "Running" or not are_kept

    def _node_of(self, labels: Labels) -> str:
        return labels.get("exported_node" if labels.get("instance", "") in self._renaming else "node", "")

    def _request(self, labels: Labels, who: Instance, *, init: bool) -> _Pod:
        uid = identity(labels)
        pod = self._pods.get(uid)
        place = told(labels, "namespace"), told(labels, "pod"), self._node_of(labels)
        if pod is None:
            pod = self._pods[uid] = _Pod(place[0], place[1], uid, place[2])
        pod.objects.add(place)
        container = _container(labels, init=init)
        pod.units.setdefault(container, None)
        pod.by_instance.setdefault(who, {}).setdefault(container, None)
        return pod

    def _take_request(self, seen: _Closely, one: Series) -> None:
        if not self._node_of(one.labels):
            return
        init = one.labels.get("__name__") == INIT_REQUESTS
        who = instance(one.labels)
        pod = self._request(one.labels, who, init=init)
        container, value = _container(one.labels, init=init), number(one.samples[-1][1])
        seen.units.setdefault(who, {})[container] = value
        pod.units[container] = _larger(pod.units.get(container), value)
        seen.requested.setdefault(who, set()).update(at for at, _ in one.samples)

    def _observation(self, pod: _Pod, namespace: str, pod_name: str, node: str) -> PodObservation:
        kind, name = self._owners.top(namespace, pod_name)
        seen = pod.closely
        held: Sightings = None
        running: Sightings = None
        finished: Sightings = {}
        if seen is not None:
            held = _without(seen.requested, seen.finished)
            running = _without(seen.running, {}) if seen.has_phases else held
            finished = _without(seen.finished, {})
        return PodObservation(
            namespace=namespace,
            pod=pod_name,
            uid=pod.uid,
            node=node,
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
            labels=self.labels.of_pod(namespace, pod_name),
            namespace_labels=self.labels.of_namespace(namespace),
            contradiction=_of_objects(pod) or (pod.contradiction if seen is None else _of_samples(seen)),
        )


def _larger(known: Decimal | None, value: Decimal) -> Decimal:
    """The larger of two reports of a request; one that is no number, where there is such a one."""
    if known is None or not value.is_finite():
        return value
    return max(known, value) if known.is_finite() else known


def _of_objects(pod: _Pod) -> str:
    """How sources contradict each other about which pod a uid is; "" where they do not."""
    if len(pod.objects) == 1:
        return ""
    one, other, *_ = sorted(pod.objects)
    return (
        f"uid {pod.uid} is reported for pod {one[0]}/{one[1]} on node {one[2]} and for pod {other[0]}/{other[1]} on "
        f"node {other[2]}"
    )


def _of_requests(pod: _Pod, is_whole: IsWhole) -> str:
    """The same about what it requests, of sources that saw it all hour."""
    told = [
        {container: _ONE if units is None else units for container, units in requests.items()}
        for who, requests in pod.by_instance.items()
        if is_whole({who: pod.held.counts.get(who, 0)})
    ]
    return _differing(told)


def _of_samples(seen: _Closely) -> str:
    """The same of sources of which every sample was looked at, and whether it has finished."""
    times = [(who, _time({who: run})) for who, run in seen.requested.items() if run]
    for (one, time), (other, other_time) in combinations(times, 2):
        found = _differing([seen.units.get(one, {}), seen.units.get(other, {})])
        if found and overlap_lastingly(time, other_time):
            return found
    for one, run in seen.requested.items():
        held = run - seen.finished.get(one, set())
        for other, finished in seen.finished.items():
            if held and finished and other != one and max(held) - min(finished) > LASTING_MS:
                return f"{one} reports it as held long after {other} reports it as finished"
    return ""


def _differing(told: Sequence[Mapping[_Container, Decimal]]) -> str:
    for requests in told[1:]:
        if requests != told[0]:
            first, second = sorted([_requests(told[0]), _requests(requests)])
            return f"its requests are reported as {first} and as {second}"
    return ""


def _requests(requests: Mapping[_Container, Decimal]) -> str:
    each = (f"{units} {kubernetes_resource(resource)} ({name})" for (name, _, resource), units in requests.items())
    return ", ".join(sorted(each)) or "nothing"


def _trust_who_tells_requests(seen: _Closely) -> None:
    """Take no phase from sources that know nothing of the pod's requests, where another knows of both."""
    phases = seen.running.keys() | seen.finished.keys()
    if phases & seen.requested.keys():
        for times in (seen.running, seen.finished):
            for who in times.keys() - seen.requested.keys():
                del times[who]


def _time(times: _Times) -> Interval:
    """From the first sample of all to the last."""
    seen = [at for run in times.values() for at in run]
    return Interval(min(seen, default=0), max(seen, default=0))


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
    if not is_amount(value):
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
