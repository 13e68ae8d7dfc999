"""GPU pods of one hour, put together from the answers about requests, phases, owners and labels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gpucost.adapters.prometheus.client import Series
from gpucost.adapters.prometheus.tables import (
    Labels,
    Rows,
    Seen,
    instance,
    label_of,
    number,
    own_labels,
    told,
    whole_number,
)
from gpucost.domain.observations import ContainerRequest, Instance, PodObservation, Presence

IsWhole = Callable[[Mapping[Instance, int]], bool]
_FINISHED = {"Succeeded", "Failed"}
_ONE = Decimal(1)
"""What a container asks for whose units were not answered: only values other than 1 are, and a pod that is not looked
at more closely was there at the hour's end, or its phases would not have been answered either."""


@dataclass(slots=True)
class _Pod:
    namespace: str
    pod: str
    uid: str
    node: str
    units: dict[tuple[str, bool, str], Decimal | None] = field(default_factory=dict)
    """By (container, whether it is an init container, resource); None where no value was seen."""
    held: Seen = field(default_factory=Seen)
    phases: dict[str, Seen] = field(default_factory=dict)
    held_times: tuple[int, ...] | None = None
    running_times: tuple[int, ...] | None = None
    phases_are_kept: bool = True


class PodTable:
    """Builds `PodObservation`s; pods that were not simply there all hour are looked at more closely in between."""

    def __init__(self, requests: Mapping[str, Rows], phases: Rows) -> None:
        self._pods: dict[str, _Pod] = {}
        self._owners: dict[tuple[str, str], tuple[str, str]] = {}
        self._owners_of_owners: dict[tuple[str, str, str], tuple[str, str]] = {}
        self._labels: dict[tuple[str, str], dict[str, str]] = {}
        self._namespace_labels: dict[str, dict[str, str]] = {}
        asked = [labels for rows in requests.values() for labels, _ in rows]
        self._node_label = label_of(asked, "node")
        self.name_label = label_of(asked, "pod")
        """The label that holds pods' names."""
        for stat in ("count", "init-count"):
            for labels, value in requests.get(stat, []):
                if labels.get(self._node_label):  # else: not on a node yet, though the scrape says where it ran itself
                    self._request(labels, init=stat == "init-count").held.add(labels, value)
        for stat in ("units", "init-units"):
            for labels, value in requests.get(stat, []):
                if identity(labels) in self._pods:
                    self._set_units(labels, value, init=stat == "init-units")
        for labels, value in phases:
            if identity(labels) in self._pods:
                seen = self._pods[identity(labels)].phases
                seen.setdefault(labels.get("phase", ""), Seen()).add(labels, value)

    def uncertain(self, is_whole: IsWhole) -> list[str]:
        """Uids of pods that were not seen, holding and running, at every scrape of the hour."""
        return [uid for uid, pod in self._pods.items() if not self._is_plain(pod, is_whole)]

    def look_closer(
        self, uids: Iterable[str], requests: Mapping[bool, Sequence[Series]], phases: Sequence[Series]
    ) -> None:
        """Take in the raw samples of some pods: `requests` of init containers (True) and others (False), and phases."""
        held: dict[str, set[tuple[Instance, int]]] = {}
        for init, series in requests.items():
            for one in series:
                uid = identity(one.labels)
                if uid not in self._pods or not one.labels.get(self._node_label):
                    continue
                self._request(one.labels, init=init)
                self._set_units(one.labels, number(one.samples[-1][1]), init=init)
                who = instance(one.labels)
                held.setdefault(uid, set()).update((who, at) for at, _ in one.samples)
        in_phase: dict[str, dict[bool, set[tuple[Instance, int]]]] = {}
        for one in phases:
            finished = one.labels.get("phase") in _FINISHED
            who = instance(one.labels)
            times = in_phase.setdefault(identity(one.labels), {True: set(), False: set()})[finished]
            times.update((who, at) for at, value in one.samples if value == "1")
        for uid in uids:
            pod = self._pods[uid]
            pod.phases_are_kept = uid in in_phase
            phase_times = in_phase.get(uid, {True: set(), False: set()})
            holding = held.get(uid, set()) - phase_times[True]
            pod.held_times = tuple(sorted(at for _, at in holding))
            pod.running_times = tuple(sorted(at for _, at in holding & phase_times[False]))

    def add_owners(self, rows: Mapping[str, Rows]) -> None:
        """Take in who owns what."""
        for labels, _ in rows.get("pod", []):
            owner = (labels.get("owner_kind", ""), labels.get("owner_name", ""))
            if all(owner) and "<none>" not in owner:
                self._owners[told(labels, "namespace"), told(labels, "pod")] = owner
        for stat, kind, name in (("replicaset", "ReplicaSet", "replicaset"), ("job", "Job", "job_name")):
            for labels, _ in rows.get(stat, []):
                owner = (labels.get("owner_kind", ""), labels.get("owner_name", ""))
                if all(owner) and "<none>" not in owner:
                    self._owners_of_owners[told(labels, "namespace"), kind, labels.get(name, "")] = owner

    def add_labels(self, rows: Mapping[str, Rows]) -> None:
        """Take in labels of pods and namespaces."""
        for labels, _ in rows.get("pod", []):
            self._labels.setdefault((told(labels, "namespace"), told(labels, "pod")), {}).update(own_labels(labels))
        for labels, _ in rows.get("namespace", []):
            self._namespace_labels.setdefault(told(labels, "namespace"), {}).update(own_labels(labels))

    def pods(self) -> tuple[PodObservation, ...]:
        """Every pod that held or may have held GPUs in the hour."""
        return tuple(self._observation(pod) for pod in self._pods.values() if pod.held_times != ())

    def _is_plain(self, pod: _Pod, is_whole: IsWhole) -> bool:
        running = pod.phases.get("Running", Seen()).counts
        return (
            is_whole(pod.held.counts)
            and not any(pod.phases[phase].counts for phase in _FINISHED & pod.phases.keys())
            and running == pod.held.counts
        )

    def _request(self, labels: Labels, *, init: bool) -> _Pod:
        uid = identity(labels)
        pod = self._pods.get(uid)
        if pod is None:
            names = told(labels, "namespace"), told(labels, "pod")
            pod = self._pods[uid] = _Pod(*names, uid, labels.get(self._node_label, ""))
        pod.units.setdefault(_container(labels, init=init), None)
        return pod

    def _set_units(self, labels: Labels, value: Decimal, *, init: bool) -> None:
        pod = self._request(labels, init=init)
        what = f"the GPU request of pod {pod.namespace}/{pod.pod}"
        pod.units[_container(labels, init=init)] = whole_number(value, what)

    def _observation(self, pod: _Pod) -> PodObservation:
        kind, name = self._owners.get((pod.namespace, pod.pod), ("Pod", pod.pod))
        kind, name = self._owners_of_owners.get((pod.namespace, kind, name), (kind, name))
        running = None
        if pod.phases_are_kept:
            running = Presence(pod.phases.get("Running", Seen()).counts, pod.running_times)
        return PodObservation(
            namespace=pod.namespace,
            pod=pod.pod,
            uid=pod.uid,
            node=pod.node,
            requests=tuple(
                ContainerRequest(pod.namespace, pod.pod, pod.uid, pod.node, container, init, resource, units or _ONE)
                for (container, init, resource), units in pod.units.items()
                if units != 0
            ),
            held=Presence(pod.held.counts, pod.held_times),
            running=running,
            workload_kind=kind,
            workload=name,
            labels=self._labels.get((pod.namespace, pod.pod), {}),
            namespace_labels=self._namespace_labels.get(pod.namespace, {}),
        )


def identity(labels: Labels) -> str:
    """A pod's uid; `namespace/pod` from sources that do not tell it (no uid holds a slash)."""
    return labels.get("uid") or f"{told(labels, 'namespace')}/{told(labels, 'pod')}"


def _container(labels: Labels, *, init: bool) -> tuple[str, bool, str]:
    return told(labels, "container"), init, labels.get("resource", "")
