"""Forecasts of simulated months: calibrated where the future is like the past, and honest about where it is not."""

import random
from collections.abc import Callable

import pytest

from gpucost.features.recommendations.forecast import backtest, expect, forecast
from tests.spend_series import DAY, KINDS, SHAPES, START, WEEK, Series, growth, launch, weekly

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


STEADY = [shape for shape in SHAPES if shape not in {launch, growth}]


def coverage(tries: int, shapes: list[Callable[[random.Random, int], Series]]) -> dict[str, float]:
    """Part of the held-out weeks and fortnights that fell into their interval."""
    return {
        shape.__name__: sum(inside(shape, ahead, seed) for seed in range(tries) for ahead in (7 * DAY, 15 * DAY))
        / (2 * tries)
        for shape in shapes
    }


def test_intervals_for_shapes_of_public_traces_have_the_stated_coverage() -> None:
    """Few tries here; the benchmark's table has more of each (benchmarks/README.md)."""
    held = coverage(4, STEADY)
    assert 0.65 <= sum(held.values()) / len(held) <= 0.95, held
    assert min(held.values()) >= 0.5, held


@pytest.mark.heavy
def test_intervals_of_public_shapes_with_many_tries() -> None:
    held = coverage(40, SHAPES)
    assert all(0.7 <= held[shape.__name__] <= 0.95 for shape in STEADY), held
    assert held["growth"] >= 0.8, "a trend that it does not know makes its errors, and so its intervals, large"
    assert 0.4 <= held["launch"] < 0.8, "nobody can foresee a step; docs/recommendations.md says so"


def test_a_pattern_without_noise_is_continued_exactly() -> None:
    history: Series = [weekly(hour) for hour in range(3 * WEEK + 50)]
    for ahead in (1, 30, 5 * WEEK + 7):
        actual = sum(weekly(hour) for hour in range(len(history), len(history) + ahead))
        assert expect(history, START, ahead) == pytest.approx(actual)


def test_a_level_that_moved_is_followed() -> None:
    history: Series = [weekly(hour) * (2 if hour >= 6 * WEEK else 1) for hour in range(8 * WEEK)]
    actual = sum(2 * weekly(hour) for hour in range(WEEK))
    message = expect(history, START, WEEK)
    assert message is not None
    assert 0.85 * actual < message < actual, "the two newest weeks count three quarters"


def test_backtest_uses_only_earlier_hours() -> None:
    """A step that nobody could foresee falls outside the intervals that were made before it."""
    history: Series = [weekly(hour) * (3 if hour >= 7 * WEEK else 1) for hour in range(8 * WEEK)]
    found = backtest(history, START, WEEK)
    assert found is not None
    assert found.hours == WEEK
    assert 0 < found.covered < found.evaluated


def test_too_little_is_no_forecast() -> None:
    week: Series = [weekly(hour) for hour in range(WEEK)]
    assert forecast(week * 2, START, 24) is not None
    assert forecast((week * 2)[1:], START, 24) is None
    assert forecast([None if hour % 4 == 0 else value for hour, value in enumerate(week * 3)], START, 24) is None
    assert forecast([0.0] * (4 * WEEK), START, 24) is not None


def test_holes_are_not_zeros() -> None:
    history: Series = [None if 100 <= hour < 140 else weekly(hour) for hour in range(4 * WEEK)]
    message = expect(history, START, WEEK)
    assert message == pytest.approx(sum(weekly(hour) for hour in range(WEEK)), rel=0.03)


def test_hour_of_the_day_without_data_costs_the_mean() -> None:
    """A Prometheus that is down every night from 02:00 to 04:00."""
    history: Series = [None if hour % 24 in {2, 3} else 10.0 for hour in range(8 * WEEK)]
    assert expect(history, START, WEEK + 3) == pytest.approx(10 * (WEEK + 3))
