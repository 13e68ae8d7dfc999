"""Forecasts of simulated months: calibrated where the future is like the past, and honest about where it is not."""

import math
import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from gpucost.domain.advice.forecast import backtest, expect, forecast

START = datetime(2026, 9, 1, tzinfo=UTC)
DAY, WEEK = 24, 168
Series = list[float | None]


def weekly(hour: int) -> float:
    """Busy on weekdays by day; 1 September 2026 is a Tuesday."""
    day, clock = (hour // DAY + 1) % 7, hour % DAY
    return 160.0 if day < 5 and 8 <= clock < 20 else 100.0


def independent(chance: random.Random, hours: int) -> Series:
    """Every hour for itself."""
    return [weekly(hour) * (1 + chance.gauss(0, 0.1)) for hour in range(hours)]


def correlated(chance: random.Random, hours: int) -> Series:
    """Good days follow good days, as jobs and releases make them."""
    found: Series = []
    day = 0.0
    for hour in range(hours):
        day = 0.7 * day + chance.gauss(0, 0.08) if hour % DAY == 0 else day
        found.append(max(0.0, weekly(hour) * (1 + day + chance.gauss(0, 0.05))))
    return found


def wandering(chance: random.Random, hours: int) -> Series:
    """The level is a random walk of 3% a day."""
    level, found = 1.0, Series()
    for hour in range(hours):
        level *= math.exp(chance.gauss(0, 0.03)) if hour % DAY == 0 else 1.0
        found.append(level * weekly(hour))
    return found


def bursts(chance: random.Random, hours: int) -> Series:
    """Spot batches: now and then an hour costs four times as much (heavy tails, as public GPU cluster traces show)."""
    return [weekly(hour) * (4 if chance.random() < 0.02 else 1) for hour in range(hours)]


KINDS: list[Callable[[random.Random, int], Series]] = [independent, correlated, wandering, bursts]
TRIES = 10
"""Of each kind and length; `python -m benchmarks.forecast` makes more."""


def inside(kind: Callable[[random.Random, int], Series], ahead: int, seed: int) -> bool:
    series = kind(random.Random(seed), 8 * WEEK + ahead)
    found = forecast(series[: 8 * WEEK], START, ahead)
    assert found is not None
    return found.low <= sum(value or 0 for value in series[8 * WEEK :]) <= found.high


def test_80_percent_intervals_hold_about_80_percent_of_held_out_sums() -> None:
    held = {
        (kind.__name__, ahead): sum(inside(kind, ahead, seed) for seed in range(TRIES))
        for kind in KINDS
        for ahead in (7 * DAY, 15 * DAY)
    }
    assert 0.70 <= sum(held.values()) / (len(held) * TRIES) <= 0.90, held
    assert min(held.values()) >= 0.5 * TRIES, held


def test_a_pattern_without_noise_is_continued_exactly() -> None:
    history: Series = [weekly(hour) for hour in range(3 * WEEK + 50)]
    for ahead in (1, 30, 5 * WEEK + 7):
        actual = sum(weekly(hour) for hour in range(len(history), len(history) + ahead))
        assert expect(history, START, ahead) == pytest.approx(actual)


def test_a_level_that_moved_is_followed() -> None:
    history: Series = [weekly(hour) * (2 if hour >= 6 * WEEK else 1) for hour in range(8 * WEEK)]
    actual = sum(2 * weekly(hour) for hour in range(WEEK))
    told = expect(history, START, WEEK)
    assert told is not None
    assert 0.85 * actual < told < actual, "the two newest weeks count three quarters"


def test_the_backtest_only_knows_what_was_known() -> None:
    """A step that nobody could foresee falls outside the intervals that were made before it."""
    history: Series = [weekly(hour) * (3 if hour >= 7 * WEEK else 1) for hour in range(8 * WEEK)]
    found = backtest(history, START, WEEK)
    assert found is not None
    assert found.hours == WEEK
    assert 0 < found.inside < found.tried


def test_too_little_is_no_forecast() -> None:
    week: Series = [weekly(hour) for hour in range(WEEK)]
    assert forecast(week * 2, START, 24) is not None
    assert forecast((week * 2)[1:], START, 24) is None
    assert forecast([None if hour % 4 == 0 else value for hour, value in enumerate(week * 3)], START, 24) is None
    assert forecast([0.0] * (4 * WEEK), START, 24) is not None


def test_holes_are_not_zeros() -> None:
    history: Series = [None if 100 <= hour < 140 else weekly(hour) for hour in range(4 * WEEK)]
    told = expect(history, START, WEEK)
    assert told == pytest.approx(sum(weekly(hour) for hour in range(WEEK)), rel=0.03)
