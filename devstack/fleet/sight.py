"""How well scrapes let an observer see: which times nobody saw, and how far off any edge may be, in minutes.

The bounds are derived from the scenario's edges, scrape intervals and gaps, never from what anybody measured: one
interval for a start, a stop or an edge of a gap; the gap's length where a start or stop lies inside one and no metric
tells its time; nothing where nothing happens.
"""

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction

from devstack.fleet.instants import ZERO, Holding
from devstack.fleet.scenario import Exporter, Life, Minutes, Node, Scenario
from devstack.fleet.scraping import Scraping

LONG_GAP = 5
"""Minutes: what was free in a longer gap of the allocation source is unobserved, else unallocated."""
Span = tuple[Fraction, Fraction]


class Sight:
    """What an observer can know of one hour."""

    def __init__(self, scenario: Scenario, window: Span) -> None:
        self.window = window
        self._exporter = scenario.dcgm
        self.interval = max((one.scraping.longest for one in scenario.ksm), default=Fraction(1))
        # A shard that is silent alone may have known of pods on any node: its gap is everybody's.
        shards: dict[tuple[int, int], list[Scraping]] = {}
        for one in scenario.ksm:
            shards.setdefault(one.shard, []).append(one.scraping)
        self.gaps = union(gap for targets in shards.values() for gap in common_gaps(targets))
        self._tells_times = any(one.times for one in scenario.ksm)
        self._is_exact = is_on_the_grid(scenario)

    @property
    def long_gaps(self) -> list[Span]:
        """Gaps of the allocation source in which nobody knows what was free."""
        return [gap for gap in self.gaps if length(gap) > LONG_GAP]

    def is_dark(self, at: Minutes) -> bool:
        """Whether an instant lies in a long gap."""
        return any(start <= at < end for start, end in self.long_gaps)

    def edge(self, at: Minutes, *, told: bool = False, interval: Fraction = ZERO) -> Fraction:
        """How far off an observer may be about a time at which something began or ended, within the hour."""
        interval = max(interval, self.interval)
        start, end = self.window
        near = interval if start - interval < at < end + interval and not self._is_exact else ZERO
        if told:
            return near
        # The scrapes that saw the last of before and the first of after are up to an interval away from the gap.
        wide = ((gap[0] - interval, gap[1] + interval) for gap in self.gaps)
        return max((length(overlap(gap, self.window)) for gap in wide if gap[0] <= at <= gap[1]), default=near) or near

    def begin(self, of: Holding) -> Fraction:
        """The edge at which a pod begins to hold."""
        return self.edge(of.begins, told=self._tells_times and of.begins == of.pod.start)

    def run(self, of: Holding, interval: Fraction) -> Fraction:
        """The edge at which a pod begins to run."""
        if of.runs >= of.ends:
            return ZERO
        told = self._tells_times and of.runs == of.pod.start
        return self.edge(of.runs, told=told, interval=interval)

    def end(self, of: Holding, interval: Fraction = ZERO) -> Fraction:
        """The edge at which a pod ends to hold."""
        return self.edge(of.ends, told=self._tells_end(of), interval=interval)

    def is_invisible(self, of: Holding) -> bool:
        """Whether a pod held and let go while nobody looked, and nothing told of it afterwards."""
        inside = any(gap[0] <= of.begins and of.ends <= gap[1] for gap in self.gaps)
        return inside and not (self._tells_times and self._tells_end(of))

    def _tells_end(self, of: Holding) -> bool:
        """Whether kube_pod_completion_time tells an end: the pod finished, and lay there when it was looked at next."""
        pod = of.pod
        if not self._tells_times or pod.finished is None or of.ends != pod.finished:
            return False
        seen_again = next((gap[1] for gap in self.gaps if gap[0] <= of.ends <= gap[1]), of.ends)
        return pod.deleted > seen_again + self.interval

    def blind_to(self, node: Node) -> list[Span]:
        """Times in which nobody saw how busy a node's devices were."""
        if not node.model or self._exporter is None:
            return []
        target = self._target(node, self._exporter)
        exporter = self._exporter
        times = [*target.gaps, *exporter.blank, *exporter.nan, *exporter.restarts]
        times += [(-1e6, target.life[0]), (target.life[1], 1e6)]
        return [(Fraction(start), Fraction(end)) for start, end in times if start < end]

    def device_interval(self, node: Node) -> Fraction:
        """The longest time between two scrapes of a node's devices."""
        if self._exporter is None or not node.model:
            return Fraction(1)
        return self._target(node, self._exporter).longest

    def outages(self, node: Node, during: Span) -> Fraction:
        """How far off an observer may be about how long devices were seen: an interval per edge of an outage.

        One missed scrape may be bridged: then the outage was none.
        """
        interval, off = self.device_interval(node), ZERO
        for gap in self.blind_to(node):
            hit = overlap(gap, during)
            if length(hit):
                near = (interval for edge in gap if during[0] - interval < edge < during[1] + interval)
                off += ZERO if self._is_exact else sum(near, ZERO)
                off += length(hit) if length(gap) < 2 * interval else ZERO
        return off

    @staticmethod
    def _target(node: Node, exporter: Exporter) -> Scraping:
        return exporter.by_node.get(node.name, exporter.scraping)


def is_on_the_grid(scenario: Scenario) -> bool:
    """Whether all happens at the very moment of a scrape: then whoever sees the scrapes sees it exactly.

    Something that begins with a scrape is in it, something that ends with a scrape is not: the time from the first
    sample to one interval after the last is its life, to the millisecond.
    """
    exporter = scenario.dcgm
    scrapings = [one.scraping for one in scenario.ksm]
    if exporter is not None:
        if exporter.lingers or exporter.early or exporter.blank or exporter.nan or exporter.restarts:
            return False
        scrapings += [exporter.scraping, *exporter.by_node.values()]
    regular = all(one.seconds == 60 and not (one.phase or one.jitter or one.then) for one in scrapings)
    times = [edge for one in scrapings for life in (one.life, *one.gaps) for edge in life]
    times += [edge for node in scenario.nodes for edge in (*node.life, *(e for g in node.geometries for e in g.life))]
    for pod in scenario.pods:
        times += [pod.start, *pod.runs, pod.deleted, pod.stops]
        times += [since for curve in (pod.uses or [pod.use]) for since, _ in curve]
    return regular and all(Fraction(at).denominator == 1 for at in times)


def common_gaps(targets: Sequence[Scraping]) -> list[Span]:
    """Times in which not one of several instances was scraped."""
    edges = sorted({Fraction(edge) for one in targets for life in (*one.gaps, one.life) for edge in life})
    found: list[Span] = []
    for start, end in itertools.pairwise(edges):
        if all(_is_silent(one, start) for one in targets):
            begun = found.pop()[0] if found and found[-1][1] == start else start
            found.append((begun, end))
    return found


def union(spans: Iterable[Span]) -> list[Span]:
    """Times that are in any of some, each once."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _is_silent(target: Scraping, at: Minutes) -> bool:
    return not target.life[0] <= at < target.life[1] or any(start <= at < end for start, end in target.gaps)


def overlap(*lives: Life | Span) -> Span:
    """What is common to some times; empty where its end is not after its start."""
    return Fraction(max(start for start, _ in lives)), Fraction(min(end for _, end in lives))


def length(life: Life | Span) -> Fraction:
    """Minutes."""
    return max(ZERO, Fraction(life[1]) - Fraction(life[0]))


def pieces(life: Span, edges: Iterable[Minutes]) -> list[Span]:
    """A time cut at every edge in it."""
    start, end = life
    if start >= end:
        return []
    inside = (Fraction(edge) for edge in edges)
    return list(itertools.pairwise(sorted({start, end, *(edge for edge in inside if start < edge < end)})))


def without(life: Span, holes: Iterable[Span]) -> list[Span]:
    """A time without some others."""
    holes = list(holes)
    edges = [edge for hole in holes for edge in hole]
    return [one for one in pieces(life, edges) if not any(start <= one[0] < end for start, end in holes)]
