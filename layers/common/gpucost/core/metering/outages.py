"""An outage that is still open at an hour's end: what it ends cannot be told from what goes on unseen.

Spans bridge a gap where something is seen on both of its sides (`spans`). As long as nobody has looked again, nothing
stands on the other side, and what was there would end with the last scrape: an hour of $80 came to $27.
"""

from collections.abc import Collection, Iterable

from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.observations import LOOK_AROUND_MS, Instance, Observation, SampleTimes
from gpucost.core.metering.spans import DEFAULT_INTERVAL_MS

REPLACEMENT_MS = 300_000
"""A process that is first scraped so long before another falls silent, or later, replaced it."""


def silent_since(observation: Observation, now: int) -> int | None:
    """Since when an hour waits for somebody to look again; milliseconds.

    Args:
        observation: of the hour.
        now: until then samples could be looked for; milliseconds.

    Returns:
        None where nothing is cut by a silence that goes on past the hour's end, and where all the time in which samples
        that would bridge it are looked for has passed: the hour is what it is then.
    """
    end = to_epoch_ms(observation.hour) + HOUR_MS
    if now >= end + LOOK_AROUND_MS:
        return None
    silent = {who: run.times[-1] for who, run in observation.allocation.items() if _is_silent(run, end)}
    if len(silent) <= _taken_over(silent.values(), observation.allocation.values()):
        return None
    if silent.keys() == {who for who, run in observation.allocation.items() if run.times}:
        return max(silent.values())
    return min((silent[who] for seen in _cut(observation, silent) for who in seen), default=None)


def _is_silent(run: Scrapes, end: int) -> bool:
    """Whether more than one scrape before the hour's end is missing, and none came since."""
    if not run.times or run.times[-1] >= end:
        return False
    return 2 * (end - run.times[-1]) > 5 * (run.interval_at(run.times[-1]) or DEFAULT_INTERVAL_MS)


def _taken_over(silences: Collection[int], runs: Iterable[Scrapes]) -> int:
    """How many processes began about when these fell silent, or later, and outlived them."""
    first, last = min(silences, default=0), max(silences, default=0)
    return sum(run.times[0] > first - REPLACEMENT_MS and run.times[-1] > last for run in runs if run.times)


def _cut(observation: Observation, silent: dict[Instance, int]) -> Iterable[Iterable[Instance]]:
    """Who saw what only silent processes saw, and saw it to their last scrape: a shard's pods and nodes."""
    sightings: list[SampleTimes] = [pod.held for pod in observation.pods]
    sightings += [node.present for node in observation.nodes]
    for seen in sightings:
        saw = {who: times[-1] for who, times in (seen or {}).items() if times}
        if saw and all(who in silent and last >= silent[who] for who, last in saw.items()):
            yield saw
