"""Time series, which every exporter of the simulated fleet yields."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpucost_devstack.fleet.scraping import MINUTE_MS

Minutes = float | Fraction


@dataclass(frozen=True)
class SimulatedSeries:
    """A series with its samples, as (milliseconds from the base, value)."""

    metric: str
    labels: Mapping[str, str]
    samples: Sequence[tuple[int, str]]


def scrapes_during(times: Sequence[int], start: Minutes, end: Minutes) -> Sequence[int]:
    """The scrape times in `[start, end)` minutes."""
    return times[bisect_left(times, start * MINUTE_MS) : bisect_left(times, end * MINUTE_MS)]


def constant(times: Sequence[int], start: Minutes, end: Minutes, value: object) -> list[tuple[int, str]]:
    """Samples of a constant value in `[start, end)` minutes."""
    return [(at, str(value)) for at in scrapes_during(times, start, end)]
