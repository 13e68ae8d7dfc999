"""Time as half-open intervals of integer milliseconds, `[start, end)`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

EMPTY_AT = 0


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """One contiguous time; empty where `end <= start`."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """Milliseconds, never negative."""
        return max(0, self.end - self.start)

    def overlap(self, other: "Interval") -> "Interval":
        """What both share."""
        return Interval(max(self.start, other.start), min(self.end, other.end))


def span(times: Sequence[int], interval: int) -> Interval:
    """The time covered by samples of something that is there once and without a break (design §3).

    From the first sample to the last one plus one scrape interval: whatever ended did so before its next scrape.
    """
    return Interval(min(times), max(times) + interval) if times else Interval(EMPTY_AT, EMPTY_AT)


def scrape_interval(times: Iterable[Sequence[int]]) -> int | None:
    """The scrape interval in milliseconds, read off the scrape times of one or more instances; None below two scrapes.

    The median of the distances: gaps lengthen some of them and jitter changes all, but neither moves the middle.
    """
    distances = [after - before for run in times for before, after in pairwise(run) if after > before]
    return median_low(distances) if distances else None


def gaps(times: Sequence[int], interval: int, window: Interval, tolerance: int) -> list[Interval]:
    """Times in the window not covered by scrapes: each scrape covers one interval, plus a tolerance for jitter.

    Args:
        times: sorted scrape times, of all instances together; those outside the window tell of its edges.
        interval: the scrape interval.
        window: where to look.
        tolerance: how much later than an interval the next scrape may come without a gap.
    """
    found: list[Interval] = []
    covered_to = window.start
    for time in times:
        reach = time + interval
        if reach + tolerance <= window.start:
            continue
        if time > covered_to + tolerance:
            found.append(Interval(covered_to, time).overlap(window))
        covered_to = max(covered_to, reach)
        if covered_to >= window.end:
            break
    if covered_to + tolerance < window.end:
        found.append(Interval(covered_to, window.end))
    return [gap for gap in found if gap.length]
