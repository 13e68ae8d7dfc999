"""Nodes of one hour, put together from the answers about their presence, labels and capacity."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import combinations

from gpucost.adapters.prometheus.client import Series
from gpucost.adapters.prometheus.pod_labels import LabelSpan, contradictory, differing
from gpucost.adapters.prometheus.queries import ALLOCATABLE, CAPACITY, NODE_INFO, NODE_LABELS
from gpucost.adapters.prometheus.tables import Labels, Rows, Seen, instance, labels_of, number, own_labels, told
from gpucost.domain.devices import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.domain.intervals import Interval
from gpucost.domain.kubernetes_labels import INSTANCE_TYPE, NVIDIA_PREFIX
from gpucost.domain.observations import Instance, NodeObservation, NodeState
from gpucost.domain.suspicion import SUSPECT, contradict, is_count, overlap_lastingly, short

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
    reported: dict[tuple[str, Instance], dict[str, str]] = field(default_factory=dict)
    """The same by the source that reports them."""
    jobs: set[str] = field(default_factory=set)
    """Of the sources that report it."""
    capacity: dict[str, _Answer] = field(default_factory=dict)
    allocatable: dict[str, _Answer] = field(default_factory=dict)
    closely: "_Closely | None" = None

    @property
    def counts(self) -> Mapping[Instance, int]:
        """Samples in which it was there, where one provider id was seen all along."""
        return next(iter(self.info.values())).counts if len(self.info) == 1 else {}

    @property
    def has_contradictory_labels(self) -> bool:
        """Whether sources give different values to a label at one end of the hour."""
        pairs = combinations(self.reported.items(), 2)
        return any(end == other_end and differing(one, other) for ((end, _), one), ((other_end, _), other) in pairs)


@dataclass(slots=True)
class _Closely:
    """A node's own samples: what stood when, by who saw it."""

    present: dict[str, dict[Instance, set[int]]] = field(default_factory=dict)
    """By provider id."""
    labels: list[LabelSpan] = field(default_factory=list)
    capacity: dict[tuple[int, Instance], _Units] = field(default_factory=dict)
    allocatable: dict[tuple[int, Instance], _Units] = field(default_factory=dict)
    unusable: set[tuple[int, Instance]] = field(default_factory=set)
    """Looks of which a figure was left out."""


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
        self.name_labels = labels_of(asked, "node")
        """The labels that hold nodes' names."""
        for labels, value in rows.get("info", []):
            node = self._node(labels)
            node.info.setdefault(labels.get("provider_id", ""), Seen()).add(instance(labels), value)
            node.jobs.add(labels.get("job", ""))
        for end in ("labels-start", "labels-end"):
            for labels, _ in rows.get(end, []):
                node, own = self._node(labels), own_labels(labels)
                node.labels.setdefault(end, {}).update(own)
                node.reported.setdefault((end, instance(labels)), {}).update(own)
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
                time = Interval(one.samples[0][0], one.samples[-1][0])
                seen.labels.append(LabelSpan(who, own_labels(one.labels), time))
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
            for one in ([self._plain(node)] if node.closely is None else _closely(node, node.closely, self.notes))
        )

    def advertised(self, name: str) -> Mapping[str, Decimal]:
        """Units per resource that a node advertises at the end of the hour."""
        node = self._nodes.get(name)
        return {resource: answer.units for resource, answer in node.capacity.items() if answer.units} if node else {}

    def jobs(self) -> dict[str, frozenset[str]]:
        """By the name of a node with GPUs, the jobs that report it."""
        return {
            node.name: frozenset(node.jobs)
            for node in self._nodes.values()
            if node.jobs and (node.capacity or any(_has_gpus(labels) for labels in node.labels.values()))
        }

    def _is_plain(self, node: _Node, is_whole: IsWhole, expected: Expected) -> bool:
        end = node.labels.get("labels-end", {})
        start = node.labels.get("labels-start", end)
        if not (node.capacity or node.name in self._with_gpus or _has_gpus(start) or _has_gpus(end)):
            return True
        answers = [*node.capacity.values(), *node.allocatable.values()]
        return (
            is_whole(node.counts)
            and not node.has_contradictory_labels
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
        if is_count(value):
            return value
        what = f"{metric.removeprefix('kube_node_status_')} of node {told(labels, 'node')!r}"
        self.notes.append(f"{SUSPECT}{what} is told as {short(value)}; left out")
        return None


def _closely(node: _Node, seen: _Closely, notes: list[str]) -> Iterable[NodeObservation]:
    """A node whose samples are at hand: each provider id is a node of its own, each change a state."""
    contradiction = _least_advertised(node.name, seen)
    _drop_contradictory_labels(node.name, seen, notes)
    present = _one_at_a_time(node.name, seen.present, notes)
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
            contradiction,
        )


def _least_advertised(name: str, seen: _Closely) -> str:
    """Where sources contradict each other about what a node advertises, keep the least that any of them reports.

    Returns:
        What they report; "" where they agree.
    """
    found = ""
    for what, looks in (("capacity", seen.capacity), ("allocatable", seen.allocatable)):
        for resource in sorted({resource for units in looks.values() for resource in units}):
            by_instance: dict[Instance, dict[int, Decimal]] = {}
            for (at, who), units in looks.items():
                if resource in units:
                    by_instance.setdefault(who, {})[at] = units[resource]
            if not contradict(by_instance):
                continue
            told = sorted({units for run in by_instance.values() for units in run.values()})
            found = found or f"{what} of {resource} on node {name} is reported as {' and as '.join(map(str, told))}"
            for units in looks.values():
                if resource in units:
                    units[resource] = told[0]
    return found


def _drop_contradictory_labels(name: str, seen: _Closely, notes: list[str]) -> None:
    names = contradictory(seen.labels)
    if not names:
        return
    seen.labels = [
        LabelSpan(span.who, {key: value for key, value in span.labels.items() if key not in names}, span.time)
        for span in seen.labels
    ]
    notes += [
        f"{SUSPECT}sources report different values of {key} for node {name}; the label is left out"
        for key in sorted(names)
    ]


def _one_at_a_time(
    name: str, present: Mapping[str, dict[Instance, set[int]]], notes: list[str]
) -> Mapping[str, dict[Instance, set[int]]]:
    """Instances that followed each other under one name; where sources report two at the same time, the node's own
    instance is unknown."""
    spans = [
        (provider_id, who, Interval(min(run), max(run)))
        for provider_id, by_instance in present.items()
        for who, run in by_instance.items()
        if run
    ]
    for (one, who, time), (other, other_who, other_time) in combinations(spans, 2):
        if one != other and who != other_who and overlap_lastingly(time, other_time):
            notes.append(f"{SUSPECT}node {name} is reported as instance {one} and as {other}; neither is used")
            together: dict[Instance, set[int]] = {}
            for by_instance in present.values():
                for source, run in by_instance.items():
                    together.setdefault(source, set()).update(run)
            return {"": together}
    return present


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


def _labels_between(sets: Sequence[LabelSpan], first: int, last: int) -> dict[str, str]:
    """Labels as of some time: of sets that changed within it the one seen longest has the last word.

    Labels come late on a node that boots: where none of its time say anything of GPUs, those of later on do.
    """
    own = [one for one in sets if one.time.start <= last and one.time.end >= first]
    own.sort(key=lambda one: (min(one.time.end, last) - max(one.time.start, first), one.time.end))
    say = any(name.startswith(NVIDIA_PREFIX) for one in own for name in one.labels)
    labels: dict[str, str] = {}
    for one in sorted(sets, key=lambda one: one.time.end):
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
