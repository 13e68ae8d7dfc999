"""Time as half-open intervals of integer milliseconds, `[start, end)`, and what scrape times tell of it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median_low

NEIGHBORS = 3
"""Distances on either side of a scrape that tell the interval in force there: outvotes a gap, follows a change."""


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """One contiguous time; empty where `end <= start`."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """Milliseconds, never negative."""
        return self.end - self.start if self.end > self.start else 0

    def overlap(self, other: "Interval") -> "Interval":
        """What both share."""
        return Interval(max(self.start, other.start), min(self.end, other.end))

    def contains(self, time: int) -> bool:
        """Whether a moment lies in it."""
        return self.start <= time < self.end


@dataclass(frozen=True)
class Scrapes:
    """When one process was scraped with success: sorted milliseconds."""

    times: tuple[int, ...]

    @cached_property
    def _distances(self) -> Sequence[int]:
        return [after - before for before, after in pairwise(self.times)]

    @cached_property
    def _is_steady(self) -> bool:
        """Whether one interval was in force throughout, and no scrape is missing."""
        return bool(self._distances) and 2 * max(self._distances) < 3 * min(self._distances)

    @cached_property
    def _intervals(self) -> Sequence[int]:
        distances = self._distances
        if self._is_steady:
            return (median_low(distances),) * len(distances)
        return [median_low(distances[max(0, at - NEIGHBORS) : at + NEIGHBORS + 1]) for at in range(len(distances))]

    @property
    def has_interval(self) -> bool:
        """Whether there are two scrapes at least, so that an interval can be read off."""
        return len(self.times) > 1

    @cached_property
    def typical_interval(self) -> int:
        """The interval in force most of the time; 0 where none can be read off."""
        return median_low(self._intervals) if self._intervals else 0

    @cached_property
    def is_regular(self) -> bool:
        """Whether one interval was in force throughout, gaps aside."""
        return all(2 * abs(found - self.typical_interval) < self.typical_interval for found in self._intervals)

    def interval_at(self, time: int) -> int:
        """The scrape interval in force at a moment, never assumed: read off the scrapes around it."""
        if not self._intervals:
            return 0
        place = bisect_right(self.times, time) - 1
        return self._intervals[min(max(place, 0), len(self._intervals) - 1)]

    def within(self, window: Interval) -> tuple[int, ...]:
        """The scrapes in a window."""
        return self.times[bisect_left(self.times, window.start) : bisect_left(self.times, window.end)]

    def next_after(self, time: int) -> int | None:
        """The first scrape later than a moment."""
        place = bisect_right(self.times, time)
        return self.times[place] if place < len(self.times) else None

    def last_before(self, time: int) -> int | None:
        """The last scrape earlier than a moment."""
        place = bisect_left(self.times, time)
        return self.times[place - 1] if place else None

    def gap_after(self, time: int) -> Interval | None:
        """The gap that follows a scrape, or None where the next one comes in time (one lost scrape is no gap)."""
        interval, after = self.interval_at(time), self.next_after(time)
        if after is None or 2 * (after - time) > 5 * interval:
            return Interval(time + interval, after if after is not None else time + interval)
        return None

    def coverage(self, window: Interval, fallback: int = 0) -> list[Interval]:
        """The time that scrapes speak for: each until the next, or for one interval where that is lost.

        Args:
            window: what is asked about.
            fallback: interval in milliseconds where none can be read off.
        """
        first = max(bisect_right(self.times, window.start) - 1, 0)
        stop = bisect_left(self.times, window.end)
        if self._is_steady:
            pieces = [Interval(self.times[first], self._reach(stop - 1, fallback))] if first < stop else []
        else:
            pieces = [Interval(self.times[place], self._reach(place, fallback)) for place in range(first, stop)]
        return union(piece.overlap(window) for piece in pieces)

    def _reach(self, place: int, fallback: int) -> int:
        """Until when one scrape speaks."""
        time = self.times[place]
        interval = self._intervals[min(place, len(self._intervals) - 1)] if self._intervals else fallback
        after = self.times[place + 1] if place + 1 < len(self.times) else None
        return after if after is not None and 2 * (after - time) <= 5 * interval else time + interval


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """What any of them holds, sorted and disjoint."""
    merged: list[Interval] = []
    for interval in sorted(one for one in intervals if one.length):
        if merged and merged[-1].end >= interval.start:
            merged[-1] = Interval(merged[-1].start, max(merged[-1].end, interval.end))
        else:
            merged.append(interval)
    return merged


def gaps(covered: Sequence[Interval], window: Interval, shortest: int = 0) -> list[Interval]:
    """What sorted disjoint intervals leave of a window, in pieces longer than `shortest` milliseconds."""
    found: list[Interval] = []
    reached = window.start
    for interval in covered:
        found.append(Interval(reached, interval.start).overlap(window))
        reached = max(reached, interval.end)
    found.append(Interval(reached, window.end).overlap(window))
    return [gap for gap in found if gap.length > shortest]


def overlap_length(intervals: Iterable[Interval], other: Interval) -> int:
    """Milliseconds that disjoint intervals share with another."""
    shared = 0
    for one in intervals:  # without an object for each piece: asked several times of every pod and device
        start, end = max(one.start, other.start), min(one.end, other.end)
        if end > start:
            shared += end - start
    return shared
