"""The truth about a scenario's hours, computed from it alone: no series is read, no code is shared with `gpucost`.

Amounts are GPU-hours of physical GPUs, exact, as the sum of what is true at each instant (`instants`). With each comes
how far off an observer may be who sees scrapes only (`sight`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction

from devstack.fleet.instants import ZERO, Devices, Holding, Parts, holdings, parts
from devstack.fleet.scenario import Minutes, Node, Pod, Scenario
from devstack.fleet.sight import Sight, Span, length, overlap, pieces, without


@dataclass(frozen=True)
class Amount:
    """An exact amount, and how far off an observer may be."""

    value: Fraction
    tolerance: Fraction = ZERO

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.value + other.value, self.tolerance + other.tolerance)


NOTHING = Amount(ZERO)


@dataclass(frozen=True)
class TrueLine:
    """A pod and one resource in an hour."""

    pod: Pod
    resource: str
    units: int
    gpu_share: Fraction
    source: str
    allocated: Amount
    effective: Amount | None
    """None where nobody could see any use."""
    unmeasured: Amount
    observed: Fraction = ZERO
    """GPU-hours of the time in which its use could be seen."""

    @property
    def may_be_missing(self) -> bool:
        """Whether it was so short that scrapes may have missed it."""
        return self.allocated.value <= self.allocated.tolerance


@dataclass
class TrueHour:
    """A cluster's hour."""

    lines: list[TrueLine] = field(default_factory=list)
    capacity: Amount = NOTHING
    unallocated: Amount = NOTHING
    stranded: Amount = NOTHING
    unobserved: Amount = NOTHING
    excess: Amount = NOTHING
    """Held beyond what there is."""


def hour(scenario: Scenario, number: int) -> TrueHour:
    """The truth about one hour, counted from the base."""
    return _Hour(scenario, number).all()


class _Hour:
    def __init__(self, scenario: Scenario, number: int) -> None:
        self._scenario = scenario
        self._window: Span = (Fraction(60 * number), Fraction(60 * number + 60))
        self._sight = Sight(scenario, self._window)
        held = holdings(scenario)
        self._devices = Devices(scenario, held)
        self._held = [one for one in held if not self._sight.is_invisible(one)]
        self._tells_capacity = any(one.capacity for one in scenario.ksm)

    def all(self) -> TrueHour:
        found = TrueHour(lines=[line for line in map(self._line, self._held) if line is not None])
        for node in self._scenario.nodes:
            self._add(node, found)
        return found

    # Pods

    def _line(self, of: Holding) -> TrueLine | None:
        held = overlap((of.begins, of.ends), self._window)
        off = of.gpus * (self._sight.begin(of) + self._sight.end(of)) / 60
        if not length(held) and (not off or of.begins >= of.ends):
            return None
        allocated = Amount(of.gpus * length(held) / 60, off)
        runs = overlap((of.runs, of.ends), self._window)
        source = self._source(of)
        off = of.gpus * self._use_edges(of) / 60
        seen = without(runs, self._sight.blind_to(of.node)) if source != "none" else []
        if not seen:
            unmeasured = Amount(of.gpus * length(runs) / 60, off)
            return TrueLine(of.pod, of.resource, of.units, of.share, "none", allocated, None, unmeasured)
        observed = sum(map(length, seen), ZERO)
        used = sum((self._used(of, place, seen, observed) for place in of.places), ZERO)
        unmeasured = Amount(of.gpus * (length(runs) - observed) / 60, off)
        return TrueLine(of.pod, of.resource, of.units, of.share, source, allocated, Amount(used / 60, off), unmeasured)

    def _source(self, of: Holding) -> str:
        told = self._scenario.sources.get(of.pod.name)
        nobody = self._scenario.dcgm is None and bool(of.node.model)
        if told or nobody or not of.places:
            return told or "none"
        return "shared" if of.geometry.replicas > 1 else "pod"

    def _used(self, of: Holding, place: int, seen: Iterable[Span], observed: Fraction) -> Fraction:
        """GPU-minutes used of one device in the time in which it was seen; never above what was allotted of it."""
        edges = self._changes(of)
        cut = [one for span in seen for one in pieces(span, edges)]
        used = sum((self._devices.part(of, place, start) * (end - start) for start, end in cut), ZERO)
        return min(used, self._devices.allotted(of, place) * observed)

    def _changes(self, of: Holding) -> set[Minutes]:
        """When the use of a pod's devices may change."""
        found: set[Minutes] = set()
        for other in {id(one): one for place in of.places for one in self._devices.sharers(of.node, place)}.values():
            found |= {other.runs, other.ends}
            found |= {since for curve in (other.pod.uses or [other.pod.use]) for since, _ in curve}
        return found

    def _use_edges(self, of: Holding) -> Fraction:
        """Minutes by which an observer may be off about a pod's use: every edge once, and outages of the exporter."""
        interval = self._sight.device_interval(of.node)
        runs = overlap((of.runs, of.ends), self._window)
        off = self._sight.run(of, interval) + self._sight.end(of, interval)
        for at in self._changes(of) - {of.runs, of.ends}:
            if of.runs < at < of.ends:
                off += self._sight.edge(at, interval=interval)
        off += sum((self._unplaced(of, other) for other in self._held if other is not of), ZERO)
        return off + self._sight.outages(of.node, runs)

    def _unplaced(self, of: Holding, other: Holding) -> Fraction:
        """Minutes in which a sharer ran so shortly in the hour that no scrape need have seen on which device."""
        if of.geometry.replicas == 1 or other.node is not of.node or not length((other.runs, other.ends)):
            return ZERO
        runs = overlap((other.runs, other.ends), self._window)
        lit = sum(map(length, without(runs, self._sight.blind_to(of.node))), ZERO)
        if lit > self._sight.device_interval(of.node) or (length(runs) and not lit):
            return ZERO
        return lit + self._sight.edge(other.runs) + self._sight.edge(other.ends)

    # Nodes

    def _add(self, node: Node, found: TrueHour) -> None:
        life = overlap(node.life, self._window)
        own = [one for one in self._held if one.node is node]
        changes = sorted({Fraction(at) for at in self._node_edges(node, own)})
        amounts = dict.fromkeys(_PARTS, ZERO)
        for start, end in pieces(life, changes):
            now = self._at(node, own, start)
            for part in _PARTS:
                amounts[part] += getattr(now, part) * (end - start) / 60
        off = self._off(node, own, changes)
        if not amounts["excess"]:
            off["excess"] = ZERO  # where nothing contradicts itself there is no residual, however short a hand-over
        for part in _PARTS:
            if part != "held":
                setattr(found, part, getattr(found, part) + Amount(amounts[part], off[part] / 60))
        edges = sum((self._sight.edge(at) for at in node.life), ZERO) if node.gpus else ZERO
        found.capacity += Amount(node.gpus * length(life) / 60, node.gpus * edges / 60)

    def _node_edges(self, node: Node, own: Sequence[Holding]) -> Iterator[Minutes]:
        yield from (edge for one in own for edge in (one.begins, one.ends))
        yield from (edge for gap in self._sight.long_gaps for edge in gap)
        yield from (edge for one in node.geometries for edge in one.life)
        yield from node.life

    def _at(self, node: Node, own: Iterable[Holding], at: Fraction, *, toggled: Holding | None = None) -> Parts:
        """A node's parts at an instant; with `toggled`, as if one pod held when it did not, or the other way round."""
        if not node.life[0] <= at < node.life[1]:
            return Parts()
        held = sum((one.gpus for one in own if one.is_held(at) != (one is toggled)), ZERO)
        return parts(node, at, held, is_dark=self._sight.is_dark(at), tells_capacity=self._tells_capacity)

    def _off(self, node: Node, own: Sequence[Holding], changes: Sequence[Fraction]) -> dict[str, Fraction]:
        """GPU-minutes by which each part may be off: the height of every step, times how far off its time may be."""
        off = dict.fromkeys(_PARTS, ZERO)
        instant = Fraction(1, 10**6)
        for at in changes:
            before, after = (self._at(node, own, side) for side in (at - instant, at))
            steps = {id(one): one for one in own if at in (one.begins, one.ends)}
            for one in steps.values():
                minutes = self._sight.begin(one) if at == one.begins else self._sight.end(one)
                for part in _PARTS:
                    heights = (
                        abs(getattr(self._at(node, own, side, toggled=one), part) - getattr(now, part))
                        for side, now in ((at - instant, before), (at, after))
                    )
                    off[part] += max(heights) * minutes
            if not steps or at in {Fraction(edge) for edge in self._node_edges(node, ())}:
                for part in _PARTS:
                    off[part] += abs(getattr(after, part) - getattr(before, part)) * self._sight.edge(at)
        return off


_PARTS = tuple(one.name for one in fields(Parts))
