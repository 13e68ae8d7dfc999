"""When sources were scraped: the heartbeat against which everything else is counted (design §3)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpucost.domain.hours import HOUR, HOUR_MS, to_ms
from gpucost.domain.intervals import scrape_interval
from gpucost.domain.observations import EDGE_MS, Instance

Scrapes = Mapping[Instance, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class HourBeats:
    """The scrapes around one hour, and what they say about a thing's sample counts."""

    hour: datetime
    scrapes: Scrapes
    """Within the look-around of the hour."""
    expected: Mapping[Instance, int]
    """Scrapes in the window, per instance."""
    reaching: Mapping[Instance, tuple[bool, bool]]
    """Whether an instance was scraped before the hour began, and up to its end."""

    def is_whole(self, counts: Mapping[Instance, int]) -> bool:
        """Whether samples at every scrape of a thing's own instances show that it was there all hour."""
        if not counts or any(count < self.expected.get(who, 1) for who, count in counts.items()):
            return False
        before, after = zip(*(self.reaching.get(who, (False, False)) for who in counts), strict=True)
        return any(before) and any(after)


def around(scrapes: Scrapes, hour: datetime) -> HourBeats:
    """What scrapes say about one hour."""
    start, end = to_ms(hour), to_ms(hour + HOUR)
    near = {who: _between(times, start - HOUR_MS, end + HOUR_MS) for who, times in scrapes.items()}
    near = {who: times for who, times in near.items() if times}
    interval = scrape_interval(near.values()) or 0
    window = {who: _between(times, start - EDGE_MS, end - 1) for who, times in near.items()}
    return HourBeats(
        hour=hour,
        scrapes=near,
        expected={who: len(times) for who, times in window.items()},
        reaching={
            who: (times[0] <= start, times[-1] + interval * 3 / 2 >= end) for who, times in window.items() if times
        },
    )


def merge(runs: Iterable[tuple[Instance, Iterable[int]]]) -> dict[Instance, tuple[int, ...]]:
    """Scrape times by instance, sorted, each once."""
    times: dict[Instance, set[int]] = {}
    for who, run in runs:
        times.setdefault(who, set()).update(run)
    return {who: tuple(sorted(run)) for who, run in times.items()}


def _between(times: Sequence[int], first: int, last: int) -> tuple[int, ...]:
    return tuple(times[bisect_left(times, first) : bisect_right(times, last)])
