"""Half-open time intervals of integer milliseconds, `[start, end)`, and the times that a scraped process covers."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from statistics import median_low
from typing import TypeVar

from msgspec import Struct

T = TypeVar("T")
Key = TypeVar("Key")
NEIGHBOR_DISTANCES = 3
"""How many distances on either side of a scrape determine its scrape interval.

The median of so many ignores a gap and follows a change of the interval.
"""


class IntervalMs(Struct, frozen=True, order=True, gc=False):  # integers form no reference cycles
    """One contiguous period; empty where `end <= start`."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """Milliseconds, never negative."""
        return self.end - self.start if self.end > self.start else 0

    def overlap(self, other: "IntervalMs") -> "IntervalMs":
        """Return the intersection with another interval."""
        return IntervalMs(max(self.start, other.start), min(self.end, other.end))

    def contains(self, time: int) -> bool:
        """Whether a time is in the interval."""
        return self.start <= time < self.end


def enclosing_interval(intervals: Sequence[IntervalMs]) -> IntervalMs:
    """Return the shortest interval that contains all of these, at least one."""
    return IntervalMs(min(interval.start for interval in intervals), max(interval.end for interval in intervals))


class Scrapes(Struct, frozen=True, dict=True):
    """The times of one process's successful scrapes, in sorted milliseconds."""

    times: tuple[int, ...]

    @cached_property
    def _distances(self) -> Sequence[int]:
        return [after - before for before, after in pairwise(self.times)]

    @cached_property
    def _is_steady(self) -> bool:
        """Whether the scrape interval never changed and no scrape is missing."""
        return bool(self._distances) and 2 * max(self._distances) < 3 * min(self._distances)

    @cached_property
    def _intervals(self) -> Sequence[int]:
        distances = self._distances
        if self._is_steady:
            return (median_low(distances),) * len(distances)
        return [
            median_low(distances[max(0, index - NEIGHBOR_DISTANCES) : index + NEIGHBOR_DISTANCES + 1])
            for index in range(len(distances))
        ]

    @property
    def has_two_scrapes(self) -> bool:
        """Whether there are at least two scrapes, so that the scrape interval can be determined."""
        return len(self.times) > 1

    @cached_property
    def typical_interval(self) -> int:
        """The median scrape interval; 0 where it cannot be determined."""
        return median_low(self._intervals) if self._intervals else 0

    @cached_property
    def is_regular(self) -> bool:
        """Whether the scrape interval never changed, gaps aside."""
        return self._is_steady or all(
            2 * abs(interval - self.typical_interval) < self.typical_interval for interval in self._intervals
        )

    def interval_at(self, time: int) -> int:
        """Return the scrape interval at a time, from the scrapes around it; 0 where it cannot be determined."""
        if self._is_steady or not self._intervals:
            return self.typical_interval
        index = bisect_right(self.times, time) - 1
        return self._intervals[min(max(index, 0), len(self._intervals) - 1)]

    def within(self, window: IntervalMs) -> tuple[int, ...]:
        """Return the scrapes in a window."""
        return self.times[bisect_left(self.times, window.start) : bisect_left(self.times, window.end)]

    def next_after(self, time: int) -> int | None:
        """Return the first scrape after a time."""
        index = bisect_right(self.times, time)
        return self.times[index] if index < len(self.times) else None

    def last_before(self, time: int) -> int | None:
        """Return the last scrape before a time."""
        index = bisect_left(self.times, time)
        return self.times[index - 1] if index else None

    def gap_after(self, time: int) -> IntervalMs | None:
        """Return the gap that follows a scrape, or None where the next one is on time (one lost scrape is no gap)."""
        interval, after = self.interval_at(time), self.next_after(time)
        if after is None or 2 * (after - time) > 5 * interval:
            return IntervalMs(time + interval, after if after is not None else time + interval)
        return None

    def coverage(self, window: IntervalMs, fallback: int = 0) -> list[IntervalMs]:
        """Return the time that the scrapes cover: each until the next, or for one interval where the next is missing.

        Args:
            window: the period to look at.
            fallback: scrape interval in milliseconds where it cannot be determined.
        """
        first = max(bisect_right(self.times, window.start) - 1, 0)
        stop = bisect_left(self.times, window.end)
        if self._is_steady:
            pieces = [IntervalMs(self.times[first], self._covers_until(stop - 1, fallback))] if first < stop else []
        else:
            pieces = [
                IntervalMs(self.times[index], self._covers_until(index, fallback)) for index in range(first, stop)
            ]
        return union(piece.overlap(window) for piece in pieces)

    def _covers_until(self, index: int, fallback: int) -> int:
        """Return the end of the time that one scrape covers."""
        time = self.times[index]
        interval = self._intervals[min(index, len(self._intervals) - 1)] if self._intervals else fallback
        after = self.times[index + 1] if index + 1 < len(self.times) else None
        return after if after is not None and 2 * (after - time) <= 5 * interval else time + interval


def union(intervals: Iterable[IntervalMs]) -> list[IntervalMs]:
    """Return the union of intervals as sorted disjoint intervals."""
    by_start = sorted(interval for interval in intervals if interval.end > interval.start)
    if not by_start:
        return []
    merged: list[IntervalMs] = []
    start, end = by_start[0].start, by_start[0].end
    for interval in by_start:
        if interval.start > end:
            merged.append(IntervalMs(start, end))
            start = interval.start
        end = max(end, interval.end)
    merged.append(IntervalMs(start, end))
    return merged


def gaps(covered: Sequence[IntervalMs], window: IntervalMs, shortest: int = 0) -> list[IntervalMs]:
    """Return the parts of a window that sorted disjoint intervals do not cover, if longer than `shortest` ms."""
    uncovered: list[IntervalMs] = []
    reached = window.start
    for interval in covered:
        uncovered.append(IntervalMs(reached, interval.start).overlap(window))
        reached = max(reached, interval.end)
    uncovered.append(IntervalMs(reached, window.end).overlap(window))
    return [gap for gap in uncovered if gap.length > shortest]


def overlapping(records: Sequence[T], time: IntervalMs, time_of: Callable[[T], IntervalMs]) -> Sequence[T]:
    """Return the records that overlap with some time, of records in order whose times are disjoint."""
    first = bisect_right(records, time.start, key=lambda record: time_of(record).end)
    return records[first : bisect_left(records, time.end, lo=first, key=lambda record: time_of(record).start)]


def overlap_length(intervals: Iterable[IntervalMs], other: IntervalMs) -> int:
    """Return how many milliseconds of an interval some disjoint intervals cover."""
    shared = 0
    other_start, other_end = other.start, other.end
    for interval in intervals:  # calls no function, because it runs several times per pod and device
        start = interval.start if interval.start > other_start else other_start
        end = interval.end if interval.end < other_end else other_end
        if end > start:
            shared += end - start
    return shared


def overlapping_keys(times: Mapping[Key, IntervalMs], tolerance_ms: int) -> frozenset[Key]:
    """Return the keys of the times that overlap with another one for longer than a tolerance."""
    by_start = sorted(times.items(), key=lambda key_and_time: key_and_time[1])
    long_times = [(key, time) for key, time in by_start if time.length > tolerance_ms]
    if not long_times:
        return frozenset()
    keys: set[Key] = set()
    last_key, last = long_times[0]
    # A time that overlaps earlier ones overlaps the one of them that ends last. The others of them overlap that one,
    # too, and so are in the result already.
    for key, time in long_times[1:]:
        if last.end - time.start > tolerance_ms:
            keys |= {key, last_key}
        if time.end > last.end:
            last_key, last = key, time
    return frozenset(keys)
