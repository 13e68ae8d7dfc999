"""Nodes of one hour, put together from the answers about their presence, labels and capacity."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gpucost.adapters.prometheus.client import Series
from gpucost.adapters.prometheus.queries import ALLOCATABLE, CAPACITY, NODE_INFO, NODE_LABELS
from gpucost.adapters.prometheus.tables import Labels, Rows, Seen, instance, label_of, number, own_labels, told
from gpucost.domain.devices import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.domain.kubernetes_labels import INSTANCE_TYPE, NVIDIA_PREFIX
from gpucost.domain.observations import Instance, NodeObservation, NodeState

IsWhole = Callable[[Mapping[Instance, int]], bool]
Expected = Mapping[Instance, int]
METRICS = (NODE_INFO, NODE_LABELS, CAPACITY, ALLOCATABLE)
_OF_GPUS = (NVIDIA_PREFIX, *INSTANCE_TYPE.exported)
"""Labels that say what a node's GPUs are; others may come and go."""
_NO_NUMBER = Decimal("NaN")
_Units = dict[str, Decimal]


@dataclass(slots=True)
class _Answer:
    """One resource's figure at the hour's end, and its sum over the samples counted, by instance."""

    units: Decimal | None = None
    sums: dict[Instance, Decimal] = field(default_factory=dict)

    def is_constant(self, expected: Expected) -> bool:
        """Whether every sample of the hour had the value of its end."""
        return self.units is not None and all(
            total == self.units * expected.get(who, -1) for who, total in self.sums.items()
        )


@dataclass(slots=True)
class _Node:
    name: str
    info: dict[str, Seen] = field(default_factory=dict)
    """By provider id."""
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    """At the hour's start and end."""
    capacity: dict[str, _Answer] = field(default_factory=dict)
    allocatable: dict[str, _Answer] = field(default_factory=dict)
    closely: "_Closely | None" = None

    @property
    def counts(self) -> Mapping[Instance, int]:
        """Samples in which it was there, where one provider id was seen all along."""
        return next(iter(self.info.values())).counts if len(self.info) == 1 else {}


@dataclass(slots=True)
class _Closely:
    """A node's own samples: what stood when, by who saw it."""

    present: dict[str, dict[Instance, set[int]]] = field(default_factory=dict)
    """By provider id."""
    labels: list["_LabelSet"] = field(default_factory=list)
    capacity: dict[tuple[int, Instance], _Units] = field(default_factory=dict)
    allocatable: dict[tuple[int, Instance], _Units] = field(default_factory=dict)
    unusable: set[tuple[int, Instance]] = field(default_factory=set)
    """Looks of which a figure was left out."""


@dataclass(frozen=True, slots=True)
class _LabelSet:
    """Labels that stood together, from when to when."""

    labels: dict[str, str]
    first: int
    last: int


@dataclass(slots=True)
class _State:
    """What a node advertised for a time."""

    capacity: _Units
    allocatable: _Units
    times: dict[Instance, list[int]] = field(default_factory=dict)

    @property
    def first(self) -> int:
        return min(run[0] for run in self.times.values())

    @property
    def last(self) -> int:
        return max(run[-1] for run in self.times.values())


class NodeTable:
    """Builds `NodeObservation`s of the nodes that may have GPUs.

    Args:
        rows: answers to `Queries.nodes`, by statistic.
        with_gpus: names of nodes on which an exporter saw GPUs, or pods request some.
    """

    def __init__(self, rows: Mapping[str, Rows], with_gpus: Container[str] = ()) -> None:
        self._nodes: dict[str, _Node] = {}
        self._with_gpus = with_gpus
        self.notes: list[str] = []
        asked = [labels for some in rows.values() for labels, _ in some]
        self.name_label = label_of(asked, "node")
        """The label that holds nodes' names."""
        for labels, value in rows.get("info", []):
            self._node(labels).info.setdefault(labels.get("provider_id", ""), Seen()).add(labels, value)
        for end in ("labels-start", "labels-end"):
            for labels, _ in rows.get(end, []):
                self._node(labels).labels.setdefault(end, {}).update(own_labels(labels))
        for metric in ("capacity", "allocatable"):
            for labels, value in rows.get(metric, []):
                self._answer(metric, labels).units = self._units(metric, labels, value)
            for labels, value in rows.get(f"{metric}-sum", []):
                sums, who = self._answer(metric, labels).sums, instance(labels)
                known = sums.get(who, value)
                # A sum that is no number equals none: the samples themselves are looked at.
                sums[who] = max(value, known) if value.is_finite() and known.is_finite() else _NO_NUMBER

    def by_instance_id(self) -> dict[str, str]:
        """Names of nodes, by themselves and by the EC2 instance behind them (`aws:///us-east-2a/i-0123` → `i-0123`)."""
        names = {name: name for name in self._nodes}
        for node in self._nodes.values():
            names.update((provider_id.rsplit("/", 1)[-1], node.name) for provider_id in node.info if provider_id)
        return names

    def with_gpus(self) -> set[str]:
        """Names of nodes with NVIDIA GPUs, by what they advertise or by instance type."""
        return {
            node.name
            for node in self._nodes.values()
            if any(name.startswith("nvidia") and answer.sums for name, answer in node.capacity.items())
            or any(_has_gpus(labels, GPUS_OF_INSTANCE) for labels in node.labels.values())
        }

    def uncertain(self, is_whole: IsWhole, expected: Expected) -> list[str]:
        """Names of GPU nodes that came, went or changed within the hour; by samples, labels or capacity."""
        return [node.name for node in self._nodes.values() if not self._is_plain(node, is_whole, expected)]

    def look_closer(self, names: Iterable[str], series: Sequence[Series]) -> None:
        """Take in raw samples of some nodes."""
        for name in names:
            self._nodes[name].closely = _Closely()
        for one in series:
            node = self._nodes.get(told(one.labels, "node"))
            if node is None or node.closely is None:
                continue
            metric, who, seen = one.labels.get("__name__", ""), instance(one.labels), node.closely
            if metric == NODE_INFO:
                times = seen.present.setdefault(one.labels.get("provider_id", ""), {}).setdefault(who, set())
                times.update(at for at, _ in one.samples)
            elif metric == NODE_LABELS:
                seen.labels.append(_LabelSet(own_labels(one.labels), one.samples[0][0], one.samples[-1][0]))
            elif metric in {CAPACITY, ALLOCATABLE}:
                into = seen.capacity if metric == CAPACITY else seen.allocatable
                for at, text in one.samples:
                    units = self._units(metric, one.labels, number(text))
                    if units is None:
                        seen.unusable.add((at, who))
                    else:
                        into.setdefault((at, who), {})[one.labels.get("resource", "")] = units

    def nodes(self) -> tuple[NodeObservation, ...]:
        """All nodes; the caller tells GPU nodes from others."""
        return tuple(
            one
            for node in self._nodes.values()
            for one in ([self._plain(node)] if node.closely is None else _closely(node, node.closely))
        )

    def _is_plain(self, node: _Node, is_whole: IsWhole, expected: Expected) -> bool:
        end = node.labels.get("labels-end", {})
        start = node.labels.get("labels-start", end)
        if not (node.capacity or node.name in self._with_gpus or _has_gpus(start) or _has_gpus(end)):
            return True
        answers = [*node.capacity.values(), *node.allocatable.values()]
        return (
            is_whole(node.counts)
            and _of_gpus(start) == _of_gpus(end)
            and all(answer.is_constant(expected) for answer in answers)
        )

    def _plain(self, node: _Node) -> NodeObservation:
        provider_id = next(iter(node.info), "")
        labels = {**node.labels.get("labels-start", {}), **node.labels.get("labels-end", {})}
        capacity = {name: answer.units for name, answer in node.capacity.items() if answer.units}
        allocatable = {name: answer.units for name, answer in node.allocatable.items() if answer.units is not None}
        states = (NodeState(None, capacity, allocatable, labels),) if capacity else ()
        return NodeObservation(node.name, provider_id, None, labels, states)

    def _node(self, labels: Labels) -> _Node:
        name = told(labels, "node")
        return self._nodes.setdefault(name, _Node(name))

    def _answer(self, metric: str, labels: Labels) -> _Answer:
        node = self._node(labels)
        answers = node.capacity if metric == "capacity" else node.allocatable
        return answers.setdefault(labels.get("resource", ""), _Answer())

    def _units(self, metric: str, labels: Labels, value: Decimal) -> Decimal | None:
        if value.is_finite() and value >= 0:
            return value
        what = f"{metric.removeprefix('kube_node_status_')} of node {told(labels, 'node')!r}"
        self.notes.append(f"{what} is told as {value}; left out")
        return None


def _closely(node: _Node, seen: _Closely) -> Iterable[NodeObservation]:
    """A node whose samples are at hand: each provider id is a node of its own, each change a state."""
    present = seen.present
    if not present:  # nodes themselves are not kept: what is advertised shows that they are there
        times: dict[Instance, set[int]] = {}
        for at, who in seen.capacity.keys() | seen.unusable:
            times.setdefault(who, set()).add(at)
        present = {"": times}
    states = _states(seen)
    for provider_id, by_instance in present.items():
        sightings = {who: tuple(sorted(run)) for who, run in by_instance.items() if run}
        if not sightings:
            continue
        first = min(run[0] for run in sightings.values())
        last = max(run[-1] for run in sightings.values())
        own = [state for state in states if state.first <= last and state.last >= first]
        yield NodeObservation(
            node.name,
            provider_id,
            sightings,
            _labels_between(seen.labels, first, last),
            tuple(
                NodeState(
                    {who: tuple(run) for who, run in state.times.items()},
                    state.capacity,
                    state.allocatable,
                    _labels_between(seen.labels, state.first, state.last),
                )
                for state in own
            ),
        )


def _states(seen: _Closely) -> list[_State]:
    """What it advertised, in order of time: one state for as long as that did not change."""
    looks = {(at, who) for by_instance in seen.present.values() for who, run in by_instance.items() for at in run}
    states: list[_State] = []
    goes_on = False
    for at, who in sorted(looks | seen.capacity.keys()):
        if goes_on and (at, who) in seen.unusable:
            states[-1].times.setdefault(who, []).append(at)  # a figure that is none is no change
            continue
        capacity = {name: units for name, units in seen.capacity.get((at, who), {}).items() if units}
        allocatable = seen.allocatable.get((at, who), {})
        if not capacity:
            goes_on = False  # the node was looked at, and advertised nothing
            continue
        if not (goes_on and states[-1].capacity == capacity and states[-1].allocatable == allocatable):
            states.append(_State(capacity, allocatable))
        states[-1].times.setdefault(who, []).append(at)
        goes_on = True
    return states


def _labels_between(sets: Sequence[_LabelSet], first: int, last: int) -> dict[str, str]:
    """Labels as of some time: of sets that changed within it the one seen longest has the last word.

    Labels come late on a node that boots: where none of its time say anything of GPUs, those of later on do.
    """
    own = [one for one in sets if one.first <= last and one.last >= first]
    own.sort(key=lambda one: (min(one.last, last) - max(one.first, first), one.last))
    say = any(name.startswith(NVIDIA_PREFIX) for one in own for name in one.labels)
    labels: dict[str, str] = {}
    for one in sorted(sets, key=lambda one: one.last):
        labels.update(
            {name: value for name, value in one.labels.items() if not (say and name.startswith(NVIDIA_PREFIX))}
        )
    for one in own:
        labels.update(one.labels)
    return labels


def _has_gpus(labels: Labels, catalogue: Container[str] = GPUS_OF_INSTANCE | NEURON_OF_INSTANCE) -> bool:
    return any(labels.get(name, "") in catalogue for name in INSTANCE_TYPE.exported)


def _of_gpus(labels: Labels) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name.startswith(_OF_GPUS)}
