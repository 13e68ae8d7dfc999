"""When sources were scraped: the heartbeat against which everything else is counted (design §3)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpucost.core.hours import HOUR, to_ms
from gpucost.core.intervals import Interval, Scrapes
from gpucost.core.metering.observations import EDGE_MS, LOOK_AROUND_MS, Instance
from gpucost.core.metering.spans import DEFAULT_INTERVAL_MS
from gpucost.sources.prometheus.queries import Window

ScrapesByInstance = Mapping[Instance, Scrapes]


@dataclass(frozen=True, slots=True)
class HourScrapes:
    """The scrapes around one hour, and what they say about a thing's sample counts."""

    hour: datetime
    scrapes: ScrapesByInstance
    """Within the look-around of the hour."""
    window: Interval
    """The time in which samples were counted: the hour, and as much before and after as reaches beyond its edges."""
    expected: Mapping[Instance, int]
    """Scrapes in the time counted, per instance."""
    reaches_edges: Mapping[Instance, tuple[bool, bool]]
    """Whether an instance was scraped before the hour began, and up to its end."""

    def covers_hour(self, counts: Mapping[Instance, int]) -> bool:
        """Whether samples at every scrape of a thing's own instances show that it was there all hour."""
        if not counts or any(count < self.expected.get(who, 1) for who, count in counts.items()):
            return False
        before, after = zip(*(self.reaches_edges.get(who, (False, False)) for who in counts), strict=True)
        return any(before) and any(after)

    def wider_window(self, look_end: int) -> tuple[int, Window] | None:
        """Where to evaluate, and how far to look back, so that gaps at the hour's edges are looked across.

        Returns:
            None where no instance's scrapes end short of an edge, or where nothing lies beyond it.
        """
        start, end = to_ms(self.hour), to_ms(self.hour + HOUR)
        times = [time for run in self.scrapes.values() for time in run.times]
        before, after = start, end
        if not any(early for early, _ in self.reaches_edges.values()):
            before = max((time for time in times if time <= start), default=start)
        if not any(late for _, late in self.reaches_edges.values()):
            after = min((time + 1 for time in times if end <= time < look_end), default=end)
        if before == start and after == end:
            return None
        return after, Window(length=after - min(before, start - EDGE_MS), start=after - before)


def hour_scrapes(scrapes: ScrapesByInstance, hour: datetime, counted: Interval | None = None) -> HourScrapes:
    """What scrapes say about one hour.

    Args:
        scrapes: all that is known.
        hour: which hour.
        counted: where samples were counted; the hour and `EDGE_MS` before it where not given.
    """
    start, end = to_ms(hour), to_ms(hour + HOUR)
    own = {who: run for who, run in scrapes_near(scrapes, hour, timedelta(milliseconds=LOOK_AROUND_MS)).items() if run.times}
    counted = counted or Interval(start - EDGE_MS, end)
    inside = {who: run.within(counted) for who, run in own.items()}
    return HourScrapes(
        hour=hour,
        scrapes=own,
        window=counted,
        expected={who: len(times) for who, times in inside.items()},
        reaches_edges={
            who: (times[0] <= start, 2 * (end - times[-1]) <= 3 * (own[who].typical or DEFAULT_INTERVAL_MS))
            for who, times in inside.items()
            if times
        },
    )


def scrapes_near(scrapes: ScrapesByInstance, hour: datetime, edge: timedelta) -> dict[Instance, Scrapes]:
    """The scrapes in an hour, and so far beyond its edges."""
    window = Interval(to_ms(hour - edge), to_ms(hour + HOUR + edge) + 1)
    return {who: Scrapes(run.within(window)) for who, run in scrapes.items()}


def merge_scrapes(runs: Iterable[tuple[Instance, Iterable[int]]]) -> dict[Instance, Scrapes]:
    """Scrapes by instance, sorted, each once."""
    times: dict[Instance, set[int]] = {}
    for who, run in runs:
        times.setdefault(who, set()).update(run)
    return {who: Scrapes(tuple(sorted(run))) for who, run in times.items() if run}
