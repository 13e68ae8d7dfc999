"""Spans: the contiguous time in which a pod or a node existed, derived from its samples.

What a uid or a provider id names exists once and without interruption, from its first sample to one scrape interval
after its last one. So gaps in scraping, restarts and replicas of a source change nothing.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field

from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.observations import LOOK_AROUND_MS, Observation, PodObservation, SampleTimes, ScrapeTarget

DEFAULT_INTERVAL_MS = 60_000
"""The scrape interval of a source with fewer than two scrapes, for which none can be determined."""
EMPTY_INTERVAL = IntervalMs(0, 0)
_NOT_SCRAPED = Scrapes(())


class Span(Struct, frozen=True):
    """When a pod or node existed, clipped to the hour."""

    time: IntervalMs
    last_sample_ms: int
    """The last sample. The span continues for at most one scrape interval, in which it may have existed unseen."""
    first_sample_ms: int = 0
    """The first sample, even if before the hour; the hour's start for a sample at every scrape of the hour."""


class SpanReader(Struct, frozen=True):
    """Derives spans from sample times.

    Args:
        scrapes: of the allocation source, by instance.
        window: the hour.
    """

    scrapes: Mapping[ScrapeTarget, Scrapes]
    window: IntervalMs
    exporter_scrapes: Mapping[ScrapeTarget, Scrapes] = field(default_factory=dict)
    """Scrapes of exporters, which are the only source of DRA claims."""

    def full_span(self) -> Span:
        """Return the span of a pod or node with a sample at every scrape of the hour."""
        return Span(self.window, self.window.end, self.window.start - self.window.start % HOUR_MS)

    def span(self, sample_times: SampleTimes) -> Span:
        """Return the span of sample times; empty without samples."""
        if sample_times is None:
            return self.full_span()
        if not any(sample_times.values()):
            return Span(EMPTY_INTERVAL, 0)
        first = min(times[0] for times in sample_times.values() if times)
        last = max(times[-1] for times in sample_times.values() if times)
        return Span(IntervalMs(first, self._end_of_span(sample_times, last)).overlap(self.window), last, first)

    def held_span(self, pod: PodObservation) -> Span:
        """Return when a pod held its GPUs; within a gap, the pod's reported start and completion times count."""
        if pod.held_samples is None:
            return self.full_span()
        if not any(pod.held_samples.values()):
            return self._span_within_gap(pod)
        first = min(times[0] for times in pod.held_samples.values() if times)
        last = max(times[-1] for times in pod.held_samples.values() if times)
        start, end = first, self._end_of_span(pod.held_samples, last)
        before = self.gap_before(pod.held_samples)
        if pod.scheduled_at is not None and before.start < pod.scheduled_at < first:
            start = pod.scheduled_at
        after = self._next_scrape(pod.held_samples, last)
        if pod.completed_at is not None and end < pod.completed_at and (after is None or pod.completed_at <= after):
            end = pod.completed_at
            last = end
        return Span(IntervalMs(start, end).overlap(self.window), last, start)

    def running_time(self, pod: PodObservation, held: Span) -> IntervalMs:
        """Return the part of the time in which a pod held its GPUs that it was running."""
        if pod.running_samples is None:
            return held.time
        if not any(pod.running_samples.values()):
            # No sample shows it running. A pod that only has samples after it finished ran during the gap.
            return held.time if not any((pod.held_samples or {}).values()) else IntervalMs(held.time.end, held.time.end)
        first = min(times[0] for times in pod.running_samples.values() if times)
        # It runs until it stops holding GPUs, because no other phase follows Running before the pod is finished.
        start = held.time.start if self._runs_from_first_sample(pod, first) else first
        return IntervalMs(start, held.time.end).overlap(held.time)

    def scrape_interval_of(self, sample_times: SampleTimes) -> int:
        """Return the scrape interval at the last sample."""
        if not sample_times or not any(sample_times.values()):
            return (
                max((scrapes.typical_interval for scrapes in self.scrapes.values()), default=0) or DEFAULT_INTERVAL_MS
            )
        last, instance = max((times[-1], instance) for instance, times in sample_times.items() if times)
        return self._scrapes_of(instance).interval_at(last) or DEFAULT_INTERVAL_MS

    def _runs_from_first_sample(self, pod: PodObservation, first_running: int) -> bool:
        held = pod.held_samples or {}
        return first_running <= min((times[0] for times in held.values() if times), default=first_running)

    def _end_of_span(self, sample_times: Mapping[ScrapeTarget, tuple[int, ...]], last: int) -> int:
        """Return the end of a span: the next scrape, if it is on time, or one interval after the last sample."""
        interval = self.scrape_interval_of(sample_times)
        after = self._next_scrape(sample_times, last)
        return after if after is not None and 2 * (after - last) <= 3 * interval else last + interval

    def _next_scrape(self, sample_times: Mapping[ScrapeTarget, tuple[int, ...]], last: int) -> int | None:
        """Return the next scrape of the instances that had samples; others, such as another shard, have none anyway."""
        next_scrapes = (
            self._scrapes_of(instance).next_after(last) for instance, times in sample_times.items() if times
        )
        return min((time for time in next_scrapes if time is not None), default=None)

    def gap_before(self, sample_times: SampleTimes) -> IntervalMs:
        """Return the gap in scraping before the first sample; empty if the previous scrape was an interval earlier.

        The instances with samples count if they were scraped before; others, such as another shard, may have none.
        """
        if not sample_times or not any(sample_times.values()):
            return EMPTY_INTERVAL
        first = min(times[0] for times in sample_times.values() if times)
        for instances in (sample_times, self.scrapes):
            earlier_scrapes = ((self._scrapes_of(instance).last_before(first), instance) for instance in instances)
            last, instance = max(
                ((time, instance) for time, instance in earlier_scrapes if time is not None), default=(None, "")
            )
            if last is not None:
                interval = self._scrapes_of(instance).interval_at(last) or DEFAULT_INTERVAL_MS
                return IntervalMs(last, first) if 2 * (first - last) > 5 * interval else EMPTY_INTERVAL
        return IntervalMs(0, first)

    def _span_within_gap(self, pod: PodObservation) -> Span:
        """Return the span of a pod that started and finished within a gap, from its reported times."""
        finished = [times[0] for times in (pod.finished_samples or {}).values() if times]
        if not finished or pod.scheduled_at is None or pod.completed_at is None:
            return Span(EMPTY_INTERVAL, 0)
        gap = self.gap_before(pod.finished_samples)
        if not gap.start < pod.scheduled_at < pod.completed_at <= gap.end:
            return Span(EMPTY_INTERVAL, 0)
        lifetime = IntervalMs(pod.scheduled_at, pod.completed_at)
        return Span(lifetime.overlap(self.window), lifetime.end, lifetime.start)

    def _scrapes_of(self, instance: ScrapeTarget) -> Scrapes:
        return self.scrapes.get(instance) or self.exporter_scrapes.get(instance, _NOT_SCRAPED)


# Outages of a metrics source that are not over at the hour's end.
#
# Spans bridge a gap if there are samples on both sides of it (`spans`). During an outage there are none after it yet.
# Everything would then end with its last sample: an hour of $80 came to $27. Such hours wait for the next scrape.

MAX_REPLACEMENT_OVERLAP_MS = 300_000
"""A process replaced another if its first scrape is later than so long before the other's last scrape."""


def last_scrape_before_outage(observation: Observation, now: int) -> int | None:
    """Return the time of the last scrape before an outage that continues past the hour's end, in milliseconds.

    Args:
        observation: of the hour.
        now: the end of the time for which samples were queried, in milliseconds.

    Returns:
        None if no pod or node is affected by such an outage, or if the look-around is over, so that waiting longer
        does not change the hour.
    """
    end = to_epoch_ms(observation.hour) + HOUR_MS
    if now >= end + LOOK_AROUND_MS:
        return None
    silent = {
        instance: scrapes.times[-1]
        for instance, scrapes in observation.allocation_scrapes.items()
        if _is_silent(scrapes, end)
    }
    if len(silent) <= _count_replacements(silent.values(), observation.allocation_scrapes.values()):
        return None
    if silent.keys() == {instance for instance, scrapes in observation.allocation_scrapes.items() if scrapes.times}:
        return max(silent.values())
    return min(
        (
            silent[instance]
            for last_samples in _last_samples_before_silence(observation, silent)
            for instance in last_samples
        ),
        default=None,
    )


def _is_silent(scrapes: Scrapes, end: int) -> bool:
    """Whether more than one scrape before the hour's end is missing, and there is none after it."""
    if not scrapes.times or scrapes.times[-1] >= end:
        return False
    return 2 * (end - scrapes.times[-1]) > 5 * (scrapes.interval_at(scrapes.times[-1]) or DEFAULT_INTERVAL_MS)


def _count_replacements(silences: Collection[int], all_scrapes: Iterable[Scrapes]) -> int:
    """Return how many processes began around the time of these last scrapes or later, and were scraped after them."""
    first, last = min(silences, default=0), max(silences, default=0)
    return sum(
        scrapes.times[0] > first - MAX_REPLACEMENT_OVERLAP_MS and scrapes.times[-1] > last
        for scrapes in all_scrapes
        if scrapes.times
    )


def _last_samples_before_silence(
    observation: Observation, silent: dict[ScrapeTarget, int]
) -> Iterable[Iterable[ScrapeTarget]]:
    """Yield the instances of pods and nodes that only silent processes reported, until their last scrape."""
    sample_times: list[SampleTimes] = [pod.held_samples for pod in observation.pods]
    sample_times += [node.sample_times for node in observation.nodes]
    for times_by_instance in sample_times:
        last_samples = {instance: times[-1] for instance, times in (times_by_instance or {}).items() if times}
        if last_samples and all(
            instance in silent and last >= silent[instance] for instance, last in last_samples.items()
        ):
            yield last_samples
