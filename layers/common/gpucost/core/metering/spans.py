"""From when to when something was there, read off the samples that show it (design §3).

What a uid or a provider id names is there once and without a break: from its first sample to its last one plus one
scrape interval. Gaps in scraping, restarted and doubled sources therefore change nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpucost.core.hours import HOUR_MS
from gpucost.core.intervals import Interval, Scrapes
from gpucost.core.metering.observations import Instance, PodObservation, SampleTimes

DEFAULT_INTERVAL_MS = 60_000
"""Taken only where a source was scraped less than twice, so that no distance can be read off it."""
NEVER = Interval(0, 0)
_NOT_SCRAPED = Scrapes(())


@dataclass(frozen=True, slots=True)
class Span:
    """When something was there, clipped to the hour."""

    time: Interval
    last_sample_ms: int
    """The last sample; what follows, at most one scrape interval, is how long it may have stayed unseen."""
    first_sample_ms: int = 0
    """The first sample, be it before the hour; the hour's start of what was seen at every scrape of it."""


@dataclass(frozen=True, slots=True)
class SpanReader:
    """Reads spans off sightings.

    Args:
        scrapes: of the source, by instance.
        window: the hour.
    """

    scrapes: Mapping[Instance, Scrapes]
    window: Interval
    exporter_scrapes: Mapping[Instance, Scrapes] = field(default_factory=dict)
    """Of sources that tell of some things beside: exporters, where claims are told by nobody else."""

    def full_window(self) -> Span:
        """Seen at every scrape of the hour."""
        return Span(self.window, self.window.end, self.window.start - self.window.start % HOUR_MS)

    def span(self, sightings: SampleTimes) -> Span:
        """When something was there; empty where it was not seen."""
        if sightings is None:
            return self.full_window()
        if not any(sightings.values()):
            return Span(NEVER, 0)
        first = min(times[0] for times in sightings.values() if times)
        last = max(times[-1] for times in sightings.values() if times)
        return Span(Interval(first, self._end(sightings, last)).overlap(self.window), last, first)

    def held(self, pod: PodObservation) -> Span:
        """When a pod held its GPUs; a start or finish that fell into a gap is where its own times say."""
        if pod.held is None:
            return self.full_window()
        if not any(pod.held.values()):
            return self._life_in_a_gap(pod)
        first = min(times[0] for times in pod.held.values() if times)
        last = max(times[-1] for times in pod.held.values() if times)
        start, end = first, self._end(pod.held, last)
        before = self.gap_before(pod.held)
        if pod.scheduled_at is not None and before.start < pod.scheduled_at < first:
            start = pod.scheduled_at
        after = self._next(pod.held, last)
        if pod.completed_at is not None and end < pod.completed_at and (after is None or pod.completed_at <= after):
            end = pod.completed_at
            last = end
        return Span(Interval(start, end).overlap(self.window), last, start)

    def running(self, pod: PodObservation, held: Span) -> Interval:
        """When a pod ran, of the time in which it held its GPUs."""
        if pod.running is None:
            return held.time
        if not any(pod.running.values()):
            # Nobody saw it run; but one that was found finished after a gap did, all that time for all we know.
            return held.time if not any((pod.held or {}).values()) else Interval(held.time.end, held.time.end)
        first = min(times[0] for times in pod.running.values() if times)
        # It holds no longer than it runs: between the last Running sample and the finish there is no other phase.
        start = held.time.start if self._is_first_sight(pod, first) else first
        return Interval(start, held.time.end).overlap(held.time)

    def interval_of(self, sightings: SampleTimes) -> int:
        """The scrape interval in force at the last sighting."""
        if not sightings or not any(sightings.values()):
            return max((scrapes.typical_interval for scrapes in self.scrapes.values()), default=0) or DEFAULT_INTERVAL_MS
        last, who = max((times[-1], who) for who, times in sightings.items() if times)
        return self._of(who).interval_at(last) or DEFAULT_INTERVAL_MS

    def _is_first_sight(self, pod: PodObservation, first_running: int) -> bool:
        held = pod.held or {}
        return first_running <= min((times[0] for times in held.values() if times), default=first_running)

    def _end(self, sightings: Mapping[Instance, tuple[int, ...]], last: int) -> int:
        """One interval after the last sample, or the very scrape that no longer saw it."""
        interval = self.interval_of(sightings)
        after = self._next(sightings, last)
        return after if after is not None and 2 * (after - last) <= 3 * interval else last + interval

    def _next(self, sightings: Mapping[Instance, tuple[int, ...]], last: int) -> int | None:
        """The next scrape of those who had seen it: others, such as another shard, would not see it anyway."""
        later = (self._of(who).next_after(last) for who, times in sightings.items() if times)
        return min((time for time in later if time is not None), default=None)

    def gap_before(self, sightings: SampleTimes) -> Interval:
        """The time before a first sight in which nobody looked; empty where somebody did an interval earlier.

        Those who saw it first tell, where they were there before; others, such as another shard, may never see it.
        """
        if not sightings or not any(sightings.values()):
            return NEVER
        first = min(times[0] for times in sightings.values() if times)
        for whose in (sightings, self.scrapes):
            looks = ((self._of(who).last_before(first), who) for who in whose)
            last, who = max(((time, who) for time, who in looks if time is not None), default=(None, ""))
            if last is not None:
                interval = self._of(who).interval_at(last) or DEFAULT_INTERVAL_MS
                return Interval(last, first) if 2 * (first - last) > 5 * interval else NEVER
        return Interval(0, first)

    def _life_in_a_gap(self, pod: PodObservation) -> Span:
        """A pod seen only when it was finished: its whole life was in the gap before, where its times are kept."""
        finished = [times[0] for times in (pod.finished or {}).values() if times]
        if not finished or pod.scheduled_at is None or pod.completed_at is None:
            return Span(NEVER, 0)
        gap = self.gap_before(pod.finished)
        if not gap.start < pod.scheduled_at < pod.completed_at <= gap.end:
            return Span(NEVER, 0)
        life = Interval(pod.scheduled_at, pod.completed_at)
        return Span(life.overlap(self.window), life.end, life.start)

    def _of(self, who: Instance) -> Scrapes:
        return self.scrapes.get(who) or self.exporter_scrapes.get(who, _NOT_SCRAPED)
