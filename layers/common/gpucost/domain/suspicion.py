"""Samples that cannot be true: numbers beyond reason, and sources that contradict each other.

What they say is billed to no one. The hour carries a note that begins with `SUSPECT`, and rules of kind `data` fire on
such a note.
"""

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from itertools import combinations

from gpucost.domain.intervals import Interval
from gpucost.domain.money import MOST_AMOUNT, is_amount
from gpucost.domain.observations import Instance

__all__ = [
    "LASTING_MS", "MOST_AMOUNT", "MOST_PRICE", "MOST_UNITS", "SUSPECT", "contradict", "is_amount", "is_count",
    "is_price", "is_utilization", "overlap_lastingly", "short",
]  # fmt: skip
SUSPECT = "suspect samples: "
"""How the notes about such samples begin."""
MOST_UNITS = Decimal(100_000)
"""GPU units that a container may request and a node may advertise: 16 GPUs in thousands of replicas are fewer."""
MOST_PRICE = Decimal(10**9)
"""Of a node-hour or a GPU-hour, in any currency; as settings allow."""
MOST_TIMES_FULL_USE = 10
"""A utilization above so many times the value of full use measures something else, or nothing."""
MOST_SOURCES = 50
"""Of one object in an hour, restarts included. More are made up, and comparing each with each would take too long."""
LASTING_MS = 300_000
"""Two sources that disagree for longer contradict each other; for less, one of them lags."""


def short(value: Decimal) -> str:
    """A sample's value in a few characters, as Prometheus writes it; VictoriaMetrics writes 1e308 as 309 digits."""
    if value.is_nan():
        return "NaN"
    return f"{value:+}".replace("Infinity", "Inf") if value.is_infinite() else f"{float(value):.6g}"


def is_count(value: Decimal, most: Decimal = MOST_UNITS) -> bool:
    """Whether a value is a whole number from 0 to `most`."""
    return value.is_finite() and 0 <= value <= most and value == value.to_integral_value()


def is_price(value: Decimal) -> bool:
    """Whether a value can be the price of an hour."""
    return value.is_finite() and 0 <= value <= MOST_PRICE


def is_utilization(value: Decimal, scale: Decimal) -> bool:
    """Whether a value can be a utilization whose full use is `scale`; MIG devices are at times seen above it."""
    return value.is_finite() and 0 <= value <= MOST_TIMES_FULL_USE * scale


def contradict(tellings: Mapping[Instance, Mapping[int, Hashable]]) -> bool:
    """Whether two sources tell different values at the same time, for longer than one of them may lag.

    More sources than can be contradict each other, whatever they tell.

    Args:
        tellings: values by the time of their sample, in milliseconds, for each source.
    """
    runs = [(sorted(values), values) for values in tellings.values() if values]
    return len(runs) > MOST_SOURCES or any(_disagree(*one, *other) for one, other in combinations(runs, 2))


def _disagree(
    times: Sequence[int], values: Mapping[int, Hashable], others: Sequence[int], told: Mapping[int, Hashable]
) -> bool:
    since: int | None = None
    for time in times:
        if not others[0] <= time <= others[-1]:
            continue
        if values[time] == told[others[bisect_right(others, time) - 1]]:
            since = None
            continue
        since = time if since is None else since
        if time - since > LASTING_MS:
            return True
    return False


def overlap_lastingly(one: Interval, other: Interval) -> bool:
    """Whether two times share more than a lag."""
    return one.overlap(other).length > LASTING_MS
