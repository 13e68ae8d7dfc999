"""Outages of a metrics source that are not over at the hour's end.

Spans bridge a gap if there are samples on both sides of it (`spans`). During an outage there are none after it yet.
Everything would then end with its last sample: an hour of $80 came to $27. Such hours wait for the next scrape.
"""

from collections.abc import Collection, Iterable

from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.observations import LOOK_AROUND_MS, Observation, SampleTimes, ScrapeTarget
from gpucost.core.metering.spans import DEFAULT_INTERVAL_MS

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
