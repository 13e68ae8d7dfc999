"""When targets were scraped around an hour: the number of samples that every series is expected to have."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct, field

from gpucost.core.hours import HOUR, to_epoch_ms
from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.observations import LOOK_AROUND_MS, MARGIN_BEFORE_HOUR_MS, ScrapeTarget
from gpucost.core.metering.spans import DEFAULT_INTERVAL_MS
from gpucost.sources.prometheus.queries import Window

ScrapesByTarget = Mapping[ScrapeTarget, Scrapes]


class HourScrapes(Struct, frozen=True):
    """The scrapes around one hour, to compare the sample counts of series with."""

    hour: datetime
    scrapes: ScrapesByTarget
    """From `LOOK_AROUND_MS` before the hour to `LOOK_AROUND_MS` after it."""
    window: IntervalMs
    """The time in which samples were counted: the hour and a margin at its edges."""
    expected: Mapping[ScrapeTarget, int]
    """Scrapes in the window, by instance."""
    reaches_edges: Mapping[ScrapeTarget, tuple[bool, bool]]
    """Whether an instance was scraped before the hour began, and up to its end."""
    _covers_hour: dict[tuple[tuple[ScrapeTarget, int], ...], bool] = field(default_factory=dict)
    """Results of `covers_hour`, because nearly all objects have the same sample counts."""

    def covers_hour(self, counts: Mapping[ScrapeTarget, int]) -> bool:
        """Whether an object with these sample counts, by instance, existed for the whole hour."""
        key = tuple(counts.items())
        if key not in self._covers_hour:
            self._covers_hour[key] = self._existed_all_hour(counts)
        return self._covers_hour[key]

    def _existed_all_hour(self, counts: Mapping[ScrapeTarget, int]) -> bool:
        if not counts or any(count < self.expected.get(target, 1) for target, count in counts.items()):
            return False
        edges = [self.reaches_edges.get(target, (False, False)) for target in counts]
        return any(before for before, _ in edges) and any(after for _, after in edges)

    def wider_window(self, look_end: int) -> tuple[int, Window] | None:
        """The evaluation time (ms) and window that span scrape gaps at the hour's edges.

        Args:
            look_end: the last time to consider, in milliseconds.

        Returns:
            None if no gap touches an edge of the hour, or if there are no scrapes beyond it.
        """
        start, end = to_epoch_ms(self.hour), to_epoch_ms(self.hour + HOUR)
        times = [time for target_scrapes in self.scrapes.values() for time in target_scrapes.times]
        before, after = start, end
        if not any(reaches_start for reaches_start, _ in self.reaches_edges.values()):
            before = max((time for time in times if time <= start), default=start)
        if not any(reaches_end for _, reaches_end in self.reaches_edges.values()):
            after = min((time + 1 for time in times if end <= time < look_end), default=end)
        if before == start and after == end:
            return None
        return after, Window(length=after - min(before, start - MARGIN_BEFORE_HOUR_MS), start=after - before)


def hour_scrapes(scrapes: ScrapesByTarget, hour: datetime, window: IntervalMs | None = None) -> HourScrapes:
    """Select the scrapes around one hour and count them.

    Args:
        scrapes: all scrapes, by instance.
        hour: the start of the hour.
        window: where samples were counted; by default the hour and `MARGIN_BEFORE_HOUR_MS` before it.
    """
    start, end = to_epoch_ms(hour), to_epoch_ms(hour + HOUR)
    nearby = {
        target: target_scrapes
        for target, target_scrapes in scrapes_near(scrapes, hour, timedelta(milliseconds=LOOK_AROUND_MS)).items()
        if target_scrapes.times
    }
    window = window or IntervalMs(start - MARGIN_BEFORE_HOUR_MS, end)
    times_in_window = {target: target_scrapes.within(window) for target, target_scrapes in nearby.items()}
    return HourScrapes(
        hour=hour,
        scrapes=nearby,
        window=window,
        expected={target: len(times) for target, times in times_in_window.items()},
        reaches_edges={
            target: (
                times[0] <= start,
                2 * (end - times[-1]) <= 3 * (nearby[target].typical_interval or DEFAULT_INTERVAL_MS),
            )
            for target, times in times_in_window.items()
            if times
        },
    )


def scrapes_near(scrapes: ScrapesByTarget, hour: datetime, edge: timedelta) -> dict[ScrapeTarget, Scrapes]:
    """The scrapes in an hour and up to `edge` before and after it."""
    window = IntervalMs(to_epoch_ms(hour - edge), to_epoch_ms(hour + HOUR + edge) + 1)
    return {target: Scrapes(target_scrapes.within(window)) for target, target_scrapes in scrapes.items()}


def merge_scrapes(runs: Iterable[tuple[ScrapeTarget, Iterable[int]]]) -> dict[ScrapeTarget, Scrapes]:
    """Merge scrape times by instance: sorted, without duplicates."""
    times: dict[ScrapeTarget, set[int]] = {}
    for target, target_times in runs:
        times.setdefault(target, set()).update(target_times)
    return {target: Scrapes(tuple(sorted(target_times))) for target, target_times in times.items() if target_times}
