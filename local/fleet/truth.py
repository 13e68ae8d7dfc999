"""The truth about a scenario, computed from it alone: no series is read, no code is shared with `gpucost`.

Amounts are GPU-hours of physical GPUs, exact. With each comes how far an observer may be off who sees scrapes only: one
interval for every start, stop and edge of a gap that lies in the hour, and nothing where there is none.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from local.fleet.dcgm_exporter import targets, used
from local.fleet.scenario import Geometry, Life, Node, Pod, Scenario
from local.fleet.scraping import Scraping

ZERO = Fraction(0)
SHORT_GAP = 5
"""Minutes: free capacity of longer gaps is unobserved."""


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
        self.scenario = scenario
        self.window: Life = (Fraction(60 * number), Fraction(60 * number + 60))
        self.interval = max((one.scraping.longest for one in scenario.ksm), default=Fraction(1))
        self.gaps = _common_gaps([one.scraping for one in scenario.ksm])
        self.knows_times = any(one.times for one in scenario.ksm)
        self.exporters = {id(node): scraping for node, scraping in targets(scenario)}

    def all(self) -> TrueHour:
        found = TrueHour()
        for pod in self.scenario.pods:
            found.lines += self._lines(pod)
        for node in self.scenario.nodes:
            self._node(node, found)
        return found

    # Pods

    def held(self, pod: Pod) -> Life:
        """When a pod held its GPUs, within the hour and its node's life."""
        if pod.node is None:
            return (ZERO, ZERO)
        return _overlap((pod.start, pod.stops), pod.node.life, self.window)

    def _lines(self, pod: Pod) -> Iterable[TrueLine]:
        held = self.held(pod)
        if pod.node is None or _length(held) <= 0 or self._is_invisible(pod):
            return
        geometry = pod.node.at(max(pod.start, held[0])) or pod.node.at(held[0]) or pod.node.geometries[0]
        for resource, units in _requested(pod).items():
            share = geometry.share[resource]
            gpus = share * units
            allocated = Amount(gpus * _length(held) / 60, gpus * self._edges(pod.start, pod.stops, pod.node, pod) / 60)
            yield self._measured(pod, geometry, resource, units, allocated)

    def _measured(self, pod: Pod, geometry: Geometry, resource: str, units: int, allocated: Amount) -> TrueLine:
        share = geometry.share[resource]
        runs = _overlap(self.held(pod), pod.runs)
        shared = geometry.replicas > 1
        source = self.scenario.sources.get(pod.name, "shared" if shared else "pod")
        own = [place for place in dict.fromkeys(pod.devices) if _is_of(geometry, place, resource)]
        dark = self._dark(pod)
        seen = [piece for piece in _without(runs, dark) if _length(piece) > 0]
        running = _total([runs])
        if not own or source == "none" or self.scenario.dcgm is None or not seen:
            unmeasured = Amount(share * units * running / 60, self._slack(pod, share * units))
            return TrueLine(pod, resource, units, share, "none", allocated, None, unmeasured)
        observed = _total(seen)
        gpus = share * units
        used_minutes = ZERO
        for place in own:
            of_device = _gpus_of(geometry, place)
            used_minutes += sum((self._use(pod, geometry, place, piece) for piece in seen), ZERO) * of_device
        slack = self._slack(pod, gpus)
        effective = Amount(min(used_minutes, gpus * observed) / 60, slack)
        unseen = Amount(gpus * (running - observed) / 60, slack)
        return TrueLine(pod, resource, units, share, source, allocated, effective, unseen)

    def _use(self, pod: Pod, geometry: Geometry, place: int, piece: Life) -> Fraction:
        """A pod's part of what a device did in a piece of time, in device-minutes."""
        total = ZERO
        for start, end in _pieces(piece, self._changes(pod)):
            use = used(self.scenario, pod.node, place, start) if pod.node else ZERO
            if geometry.replicas > 1:
                there = [one for one in self.scenario.pods if one.node is pod.node and place in one.devices]
                running = [one for one in there if one.runs[0] <= start < one.runs[1]]
                use = use * pod.devices.count(place) / sum(one.devices.count(place) for one in running)
            total += use * (end - start)
        return total

    def _changes(self, pod: Pod) -> set[Fraction]:
        """Times at which the use of a pod's devices may change."""
        found: set[Fraction] = set()
        for other in self.scenario.pods:
            if other.node is pod.node and set(other.devices) & set(pod.devices):
                found |= {Fraction(edge) for edge in other.runs}
                curves = other.uses or [other.use]
                found |= {Fraction(since) for curve in curves for since, _ in curve}
        return found

    def _dark(self, pod: Pod) -> list[Life]:
        """Times in which nobody saw the use of a pod's devices."""
        exporter = self.scenario.dcgm
        scraping = self.exporters.get(id(pod.node)) if pod.node else None
        if exporter is None or scraping is None:
            return []
        gaps = [*scraping.gaps, *exporter.blank, *exporter.nan]
        gaps += [(-1e6, scraping.life[0]), (scraping.life[1], 1e6)]
        return [(Fraction(a), Fraction(b)) for a, b in gaps]

    def _slack(self, pod: Pod, gpus: Fraction) -> Fraction:
        """How far off a pod's use may be: for its edges, for gaps, and for curves that bend between scrapes."""
        scraping = self.exporters.get(id(pod.node)) if pod.node else None
        interval = max(self.interval, scraping.longest if scraping else ZERO)
        edges = self._edges(*pod.runs, pod.node, pod) + self._edges(pod.start, pod.stops, pod.node, pod)
        inside = [edge for edge in self._changes(pod) if self.window[0] < edge < self.window[1]]
        lit = _overlap(self.held(pod), pod.runs)
        for gap in self._dark(pod):
            inside += [edge for edge in _overlap(gap, lit) if _length(_overlap(gap, lit)) > 0]
        return gpus * (edges + len(inside) * interval) / 60

    def _edges(
        self, start: float | Fraction, end: float | Fraction, node: Node | None, pod: Pod | None = None
    ) -> Fraction:
        """Minutes that a time's start and end may be off in the hour."""
        life = _overlap((start, end), node.life) if node else (Fraction(start), Fraction(end))
        return self._edge(life[0], told=pod is not None) + self._edge(life[1], told=pod is not None and self._told(pod))

    def _told(self, pod: Pod) -> bool:
        """Whether a pod's end is told after a gap: it finished, and its object was left lying until then."""
        gap = self._gap_at(Fraction(pod.stops))
        return pod.finished is not None and (gap is None or pod.deleted > gap[1])

    def _edge(self, edge: Fraction, *, told: bool) -> Fraction:
        near = 2 * self.interval
        gap = None if told and self.knows_times else self._gap_at(edge)
        unseen = _length(_overlap(gap, self.window)) if gap else ZERO
        if not self.window[0] - near < edge < self.window[1] + near:
            return unseen
        return unseen + self.interval

    def _gap_at(self, edge: Fraction) -> Life | None:
        return next((gap for gap in self.gaps if gap[0] - self.interval <= edge <= gap[1]), None)

    def _is_invisible(self, pod: Pod) -> bool:
        """Whether a pod came and went while nobody looked."""
        inside = any(gap[0] <= pod.start and pod.stops <= gap[1] for gap in self.gaps)
        return inside and not (self.knows_times and self._told(pod))

    # Nodes

    def _node(self, node: Node, found: TrueHour) -> None:
        life = _overlap(node.life, self.window)
        if _length(life) <= 0:
            return
        pods = [pod for pod in self.scenario.pods if pod.node is node and not self._is_invisible(pod)]
        holders = [(self.held(pod), self._gpus(pod)) for pod in pods]
        long_gaps = [gap for gap in self.gaps if _length(gap) > SHORT_GAP]
        edges = {Fraction(edge) for held, _ in holders for edge in held}
        edges |= {Fraction(edge) for gap in long_gaps for edge in gap}
        edges |= {Fraction(edge) for one in node.geometries for edge in one.life}
        parts = {"unallocated": ZERO, "stranded": ZERO, "unobserved": ZERO, "excess": ZERO}
        for start, end in _pieces(life, edges):
            held = sum((gpus for span, gpus in holders if span[0] <= start < span[1]), ZERO)
            for part, gpus in self._parts(node, start, held, long_gaps):
                parts[part] += gpus * (end - start) / 60
        slack = self._node_slack(node, pods, long_gaps)
        whole = node.gpus * self._edges(*node.life, None) / 60
        found.capacity += Amount(node.gpus * _length(life) / 60, whole)
        found.unallocated += Amount(parts["unallocated"], slack)
        found.stranded += Amount(parts["stranded"], slack)
        found.unobserved += Amount(parts["unobserved"], slack)
        found.excess += Amount(parts["excess"], slack if parts["excess"] else ZERO)

    def _parts(
        self, node: Node, at: Fraction, held: Fraction, long_gaps: Sequence[Life]
    ) -> Iterable[tuple[str, Fraction]]:
        if held > node.gpus:
            return [("excess", held - node.gpus)]
        geometry = node.at(at) if any(one.capacity for one in self.scenario.ksm) else _everything(node)
        dark = any(gap[0] <= at < gap[1] for gap in long_gaps)
        if geometry is None:
            return [("unobserved" if dark else "stranded", node.gpus - held)]
        offered = min(Fraction(node.gpus), _offered(geometry, geometry.units))
        free = max(ZERO, offered - held)
        beyond = node.gpus - held - free
        if dark:
            return [("unobserved", free), ("stranded", beyond)]
        healthy = _offered(geometry, {**geometry.units, **(geometry.allocatable or {})})
        sick = min(free, max(ZERO, offered - healthy))
        return [("unallocated", free - sick), ("stranded", beyond + sick)]

    def _node_slack(self, node: Node, pods: Sequence[Pod], long_gaps: Sequence[Life]) -> Fraction:
        slack = sum((self._gpus(pod) * self._edges(pod.start, pod.stops, node, pod) for pod in pods), ZERO)
        slack += node.gpus * self._edges(*node.life, None)
        for one in node.geometries:
            slack += node.gpus * self._edges(*one.life, None)
        for gap in long_gaps:
            slack += node.gpus * self._edges(*gap, None)
        return slack / 60

    def _gpus(self, pod: Pod) -> Fraction:
        if pod.node is None:
            return ZERO
        geometry = pod.node.at(pod.start) or pod.node.at(self.held(pod)[0]) or pod.node.geometries[0]
        return sum((geometry.share[resource] * units for resource, units in _requested(pod).items()), ZERO)


def _requested(pod: Pod) -> Mapping[str, int]:
    """Units as the scheduler counts them."""
    together: dict[str, int] = {}
    for units in (*pod.requests.values(), *pod.sidecars.values()):
        for resource, count in units.items():
            together[resource] = together.get(resource, 0) + count
    for units in pod.init.values():
        for resource, count in units.items():
            together[resource] = max(together.get(resource, 0), count)
    return {resource: count for resource, count in together.items() if count}


def _offered(geometry: Geometry, units: Mapping[str, int]) -> Fraction:
    amounts = {resource: geometry.share[resource] * count for resource, count in units.items()}
    neuron = [amount for resource, amount in amounts.items() if "neuron" in resource]
    return sum(amounts.values(), ZERO) - sum(neuron, ZERO) + max(neuron, default=ZERO)


def _everything(node: Node) -> Geometry:
    whole = node.geometries[0]
    return Geometry(units={"all": node.gpus}, share={"all": Fraction(1)}, devices=whole.devices)


def _is_of(geometry: Geometry, place: int, resource: str) -> bool:
    if "neuron" in resource:
        return True
    device = geometry.devices[place]
    sliced = resource.startswith("nvidia_com_mig_")
    profile = "nvidia_com_mig_" + device.profile.replace(".", "_").replace("+", "_")
    return profile == resource if sliced else not (device.profile and any("mig" in name for name in geometry.units))


def _gpus_of(geometry: Geometry, place: int) -> Fraction:
    """Physical GPUs that one device is."""
    if "aws_amazon_com_neuroncore" in geometry.share:
        return geometry.share["aws_amazon_com_neuroncore"]
    if geometry.replicas > 1:
        return Fraction(1)
    profile = geometry.devices[place].profile
    resource = "nvidia_com_mig_" + profile.replace(".", "_").replace("+", "_")
    return geometry.share.get(resource) or geometry.share.get("nvidia_com_gpu", Fraction(1))


def _common_gaps(targets: Sequence[Scraping]) -> list[Life]:
    """Times in which no instance was scraped."""
    edges = {Fraction(edge) for one in targets for gap in one.gaps for edge in gap}
    edges |= {Fraction(edge) for one in targets for edge in one.life}
    found: list[Life] = []
    ordered = sorted(edges)
    for start, end in itertools.pairwise(ordered):
        if all(_is_away(one, start) for one in targets):
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
    return found


def _is_away(target: Scraping, minute: Fraction) -> bool:
    return not target.life[0] <= minute < target.life[1] or any(a <= minute < b for a, b in target.gaps)


def _overlap(*lives: Life) -> tuple[Fraction, Fraction]:
    return Fraction(max(start for start, _ in lives)), Fraction(min(end for _, end in lives))


def _length(life: Life) -> Fraction:
    return max(ZERO, Fraction(life[1]) - Fraction(life[0]))


def _total(lives: Iterable[Life]) -> Fraction:
    return sum((_length(life) for life in lives), ZERO)


def _pieces(life: Life, edges: Iterable[Fraction]) -> list[tuple[Fraction, Fraction]]:
    start, end = Fraction(life[0]), Fraction(life[1])
    inside = sorted({start, end, *(edge for edge in edges if start < edge < end)})
    return list(itertools.pairwise(inside))


def _without(life: Life, holes: Iterable[Life]) -> list[Life]:
    """A time without some others."""
    left = [life]
    for hole in holes:
        left = [
            piece
            for start, end in left
            for piece in ((start, min(end, hole[0])), (max(start, hole[1]), end))
            if piece[1] > piece[0]
        ]
    return left
