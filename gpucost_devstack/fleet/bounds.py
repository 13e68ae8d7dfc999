"""Observation bounds: which times scrapes do not cover, and how far off each start and end may be, in minutes.

The bounds are derived from the scenario's edges, scrape intervals and gaps, never from measurements: one
interval for a start, a stop or an edge of a gap; the gap's length where a start or stop lies inside one and no metric
states its time; zero where nothing changes.
"""

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction

from gpucost_devstack.fleet.accelerator_exporters import VENDORS
from gpucost_devstack.fleet.instants import ZERO, PodAllocation
from gpucost_devstack.fleet.scenario import Exporter, Interval, Minutes, Node, Pod, Scenario
from gpucost_devstack.fleet.scraping import Scraping

LONG_GAP_MINUTES = 5
"""Minutes. GPUs that were free in a longer gap of the allocation source count as unobserved, else unallocated."""
Span = tuple[Fraction, Fraction]


class ObservationBounds:
    """What scrapes show of one hour, and how exactly."""

    def __init__(self, scenario: Scenario, window: Span) -> None:
        self.window = window
        self._exporter = scenario.dcgm
        self._monitor_interval = scenario.hami.scraping.longest_interval_minutes if scenario.hami else ZERO
        self._accelerators = scenario.accelerators
        self.interval = max(
            (instance.scraping.longest_interval_minutes for instance in scenario.ksm), default=Fraction(1)
        )
        # A shard may hold pods of any node, so a gap of one shard is a gap for all nodes.
        shards: dict[tuple[int, int], list[Scraping]] = {}
        for instance in scenario.ksm:
            shards.setdefault(instance.shard, []).append(instance.scraping)
        self.gaps = union(gap for targets in shards.values() for gap in common_gaps(targets))
        self._has_pod_times = any(instance.pod_times for instance in scenario.ksm)
        self._is_exact = is_aligned_with_scrapes(scenario)

    @property
    def long_gaps(self) -> list[Span]:
        """Gaps of the allocation source that are too long to infer which GPUs were free."""
        return [gap for gap in self.gaps if minutes_in(gap) > LONG_GAP_MINUTES]

    def is_unobserved(self, at: Minutes) -> bool:
        """Whether an instant lies in a long gap."""
        return any(start <= at < end for start, end in self.long_gaps)

    def edge_bound(self, at: Minutes, *, is_exact: bool = False, interval: Fraction = ZERO) -> Fraction:
        """Minutes by which an observed start or end may differ from the true time, within the hour."""
        interval = max(interval, self.interval)
        start, end = self.window
        near = interval if start - interval < at < end + interval and not self._is_exact else ZERO
        if is_exact:
            return near
        # The last scrape before a gap and the first one after it are up to one interval away from the gap.
        wide = ((gap[0] - interval, gap[1] + interval) for gap in self.gaps)
        return (
            max((minutes_in(overlap(gap, self.window)) for gap in wide if gap[0] <= at <= gap[1]), default=near) or near
        )

    def start_bound(self, allocation: PodAllocation) -> Fraction:
        """The bound for the time at which a pod starts to hold its GPUs."""
        return self.edge_bound(
            allocation.start, is_exact=self._has_pod_times and allocation.start == allocation.pod.bound_at
        )

    def running_bound(self, allocation: PodAllocation, interval: Fraction) -> Fraction:
        """The bound for the time at which a pod starts to run."""
        if allocation.running_from >= allocation.end:
            return ZERO
        is_exact = self._has_pod_times and allocation.running_from == allocation.pod.bound_at
        return self.edge_bound(allocation.running_from, is_exact=is_exact, interval=interval)

    def end_bound(self, allocation: PodAllocation, interval: Fraction = ZERO) -> Fraction:
        """The bound for the time at which a pod releases its GPUs."""
        return self.edge_bound(allocation.end, is_exact=self._has_exact_end(allocation), interval=interval)

    def is_invisible(self, allocation: PodAllocation) -> bool:
        """Whether a pod held its GPUs only inside a gap, and no later sample shows that it did."""
        inside = any(gap[0] <= allocation.start and allocation.end <= gap[1] for gap in self.gaps)
        return inside and not (self._has_pod_times and self._has_exact_end(allocation))

    def _has_exact_end(self, allocation: PodAllocation) -> bool:
        """Whether kube_pod_completion_time shows the end: the pod finished and still existed at the next scrape."""
        pod = allocation.pod
        if not self._has_pod_times or pod.finished_at is None or allocation.end != pod.finished_at:
            return False
        next_scrape = next((gap[1] for gap in self.gaps if gap[0] <= allocation.end <= gap[1]), allocation.end)
        return pod.deleted_at > next_scrape + self.interval

    def unobserved_use(self, node: Node) -> list[Span]:
        """Times for which no scrape shows the utilization of a node's devices."""
        if node.vendor in VENDORS and self._accelerators is not None:
            return [(Fraction(start), Fraction(end)) for start, end in self._accelerators.gaps]
        if not node.has_dcgm or self._exporter is None:
            return []
        scraping = self._scraping(node, self._exporter)
        exporter = self._exporter
        times = [*scraping.gaps, *exporter.intervals_without_devices, *exporter.nan_intervals, *exporter.restarts]
        times += [(-1e6, scraping.lifetime[0]), (scraping.lifetime[1], 1e6)]
        return [(Fraction(start), Fraction(end)) for start, end in times if start < end]

    def unknown_uid_times(self, pod: Pod) -> list[Span]:
        """Times in which the exporter does not know a pod's uid, and so does not show what its processes use."""
        times = self._exporter.unknown_uids.get(pod.name, ()) if self._exporter is not None else ()
        return [(Fraction(start), Fraction(end)) for start, end in times]

    def device_interval(self, node: Node) -> Fraction:
        """The longest time between two scrapes of a node's devices."""
        if self._exporter is None or not node.has_dcgm:
            return Fraction(1)
        return max(self._scraping(node, self._exporter).longest_interval_minutes, self._monitor_interval)

    def outage_bound(self, node: Node, window: Span) -> Fraction:
        """Minutes by which the observed time of devices may be off: one interval for each start or end of an outage.

        A single missed scrape may be bridged. Then there is no outage at all.
        """
        interval, bound = self.device_interval(node), ZERO
        for gap in self.unobserved_use(node):
            common = overlap(gap, window)
            if minutes_in(common):
                near = (interval for edge in gap if window[0] - interval < edge < window[1] + interval)
                bound += ZERO if self._is_exact else sum(near, ZERO)
                bound += minutes_in(common) if minutes_in(gap) < 2 * interval else ZERO
        return bound

    @staticmethod
    def _scraping(node: Node, exporter: Exporter) -> Scraping:
        return exporter.scraping_by_node.get(node.name, exporter.scraping)


def is_aligned_with_scrapes(scenario: Scenario) -> bool:
    """Whether every change coincides with a scrape, so that scrapes show it exactly.

    What starts at a scrape is in that scrape. What ends at a scrape is not. So the time from the first sample to one
    interval after the last sample is the lifetime, to the millisecond.
    """
    exporter = scenario.dcgm
    scrapings = [instance.scraping for instance in scenario.ksm]
    if exporter is not None:
        has_wrong_labels = exporter.label_linger_minutes or exporter.labels_pending_pods
        if has_wrong_labels or exporter.intervals_without_devices or exporter.nan_intervals or exporter.restarts:
            return False
        scrapings += [exporter.scraping, *exporter.scraping_by_node.values()]
    if scenario.hami is not None:
        scrapings.append(scenario.hami.scraping)
    regular = all(
        scraping.interval_seconds == 60
        and not (scraping.offset_seconds or scraping.jitter_ms or scraping.changed_interval)
        for scraping in scrapings
    )
    if scenario.accelerators is not None and scenario.accelerators.gaps:
        return False
    times = [edge for scraping in scrapings for interval in (scraping.lifetime, *scraping.gaps) for edge in interval]
    if exporter is not None:
        times += [edge for unknown in exporter.unknown_uids.values() for interval in unknown for edge in interval]
    times += [
        edge for node in scenario.nodes for edge in (*node.lifetime, *(e for g in node.geometries for e in g.lifetime))
    ]
    for pod in scenario.pods:
        times += [pod.bound_at, *pod.run_interval, pod.deleted_at, pod.released_at]
        times += [since for curve in (pod.use_by_device or [pod.use]) for since, _ in curve]
    return regular and all(Fraction(at).denominator == 1 for at in times)


def common_gaps(targets: Sequence[Scraping]) -> list[Span]:
    """Times in which none of several instances was scraped."""
    edges = sorted(
        {Fraction(edge) for target in targets for interval in (*target.gaps, target.lifetime) for edge in interval}
    )
    gaps: list[Span] = []
    for start, end in itertools.pairwise(edges):
        if all(_is_silent(target, start) for target in targets):
            begun = gaps.pop()[0] if gaps and gaps[-1][1] == start else start
            gaps.append((begun, end))
    return gaps


def union(spans: Iterable[Span]) -> list[Span]:
    """The union of spans, as sorted spans that do not overlap."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _is_silent(target: Scraping, at: Minutes) -> bool:
    return not target.lifetime[0] <= at < target.lifetime[1] or any(start <= at < end for start, end in target.gaps)


def overlap(*intervals: Interval | Span) -> Span:
    """The intersection of intervals. It is empty if its end is not after its start."""
    return Fraction(max(start for start, _ in intervals)), Fraction(min(end for _, end in intervals))


def minutes_in(interval: Interval | Span) -> Fraction:
    """The length in minutes, at least 0."""
    return max(ZERO, Fraction(interval[1]) - Fraction(interval[0]))


def split_at(interval: Span, edges: Iterable[Minutes]) -> list[Span]:
    """An interval, split at every edge inside it."""
    start, end = interval
    if start >= end:
        return []
    inside = (Fraction(edge) for edge in edges)
    return list(itertools.pairwise(sorted({start, end, *(edge for edge in inside if start < edge < end)})))


def subtract(interval: Span, holes: Iterable[Span]) -> list[Span]:
    """The parts of an interval that lie outside all holes."""
    holes = list(holes)
    edges = [edge for hole in holes for edge in hole]
    return [piece for piece in split_at(interval, edges) if not any(start <= piece[0] < end for start, end in holes)]
