"""Implausible samples: values out of bounds, and sources that contradict each other.

No business unit pays for what they report. The hour has a note that begins with `SUSPECT_PREFIX`, on which
alert rules of kind `data` fire.
"""

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from itertools import combinations

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.observations import ScrapeTarget

SUSPECT_PREFIX = "suspect samples: "
"""The prefix of notes about such samples."""
MAX_UNITS = Decimal(100_000)
"""GPU units that a container may request and a node may advertise: 16 GPUs in thousands of replicas are fewer."""
MAX_HOURLY_PRICE = Decimal(10**9)
"""The highest price of a node-hour or a GPU-hour that settings allow, in any currency."""
MAX_TIMES_FULL_USE = 10
"""A utilization of more than so many times full use does not measure utilization."""
MAX_SOURCES = 50
"""The most sources of one object in an hour, including restarts; more are fabricated and too slow to compare."""
MAX_LAG_MS = 300_000
"""Two sources that disagree for longer contradict each other; otherwise one of them lags behind."""


def format_sample_value(value: Decimal) -> str:
    """Format a sample's value in a few characters like Prometheus; VictoriaMetrics writes 1e308 with 309 digits."""
    if value.is_nan():
        return "NaN"
    return f"{value:+}".replace("Infinity", "Inf") if value.is_infinite() else f"{float(value):.6g}"


def is_count(value: Decimal, maximum: Decimal = MAX_UNITS) -> bool:
    """Whether a value is a whole number from 0 to `maximum`."""
    return value.is_finite() and 0 <= value <= maximum and value == value.to_integral_value()


def is_price(value: Decimal) -> bool:
    """Whether a value is plausible as a price per hour."""
    return value.is_finite() and 0 <= value <= MAX_HOURLY_PRICE


def is_utilization(value: Decimal, scale: Decimal) -> bool:
    """Whether a value is plausible as a utilization; `scale` is full use, which MIG devices sometimes exceed."""
    return value.is_finite() and 0 <= value <= MAX_TIMES_FULL_USE * scale


def are_utilizations(values: Sequence[Decimal], scale: Decimal) -> bool:
    """Whether all of some values are plausible as utilizations (`is_utilization`); faster than one by one."""
    if not values:
        return True
    are_finite = all(map(Decimal.is_finite, values))  # otherwise values could not be compared
    return are_finite and min(values) >= 0 and max(values) <= MAX_TIMES_FULL_USE * scale


def sources_contradict(values_by_source: Mapping[ScrapeTarget, Mapping[int, Hashable]]) -> bool:
    """Whether two sources report different values at the same time, for longer than one of them may lag.

    More than `MAX_SOURCES` sources always contradict each other.

    Args:
        values_by_source: for each source, values by the time of their sample in milliseconds.
    """
    sources = [(sorted(values), values) for values in values_by_source.values() if values]
    return len(sources) > MAX_SOURCES or any(_disagree(*first, *second) for first, second in combinations(sources, 2))


def _disagree(
    first_times: Sequence[int],
    first_values: Mapping[int, Hashable],
    second_times: Sequence[int],
    second_values: Mapping[int, Hashable],
) -> bool:
    since: int | None = None
    for time in first_times:
        if not second_times[0] <= time <= second_times[-1]:
            continue
        if first_values[time] == second_values[second_times[bisect_right(second_times, time) - 1]]:
            since = None
            continue
        since = time if since is None else since
        if time - since > MAX_LAG_MS:
            return True
    return False


def overlap_beyond_lag(first: IntervalMs, second: IntervalMs) -> bool:
    """Whether two intervals overlap for longer than a source may lag."""
    return first.overlap(second).length > MAX_LAG_MS
