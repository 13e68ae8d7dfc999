"""Forecasts of simulated months, whose intervals must cover held-out costs as often as they claim."""

import random
from collections.abc import Callable

import pytest

from gpucost.features.recommendations.forecasts import backtest, expected_sum, forecast
from tests.spend_series import DAY, KINDS, SHAPES, START, WEEK, Series, growth, launch, weekly

TRIES = 10
"""Tries of each kind and length; `python -m benchmarks.forecast` runs more."""


def is_inside_interval(series_of: Callable[[random.Random, int], Series], ahead: int, seed: int) -> bool:
    series = series_of(random.Random(seed), 8 * WEEK + ahead)
    projection = forecast(series[: 8 * WEEK], START, ahead)
    assert projection is not None
    return projection.low <= sum(usd or 0 for usd in series[8 * WEEK :]) <= projection.high


@pytest.mark.tools  # seconds
def test_80_percent_intervals_hold_about_80_percent_of_held_out_sums() -> None:
    covered = {
        (kind.__name__, ahead): sum(is_inside_interval(kind, ahead, seed) for seed in range(TRIES))
        for kind in KINDS
        for ahead in (7 * DAY, 15 * DAY)
    }
    assert 0.70 <= sum(covered.values()) / (len(covered) * TRIES) <= 0.90, covered
    assert min(covered.values()) >= 0.5 * TRIES, covered


STEADY = [shape for shape in SHAPES if shape not in {launch, growth}]


def coverage(tries: int, shapes: list[Callable[[random.Random, int], Series]]) -> dict[str, float]:
    """Share of the held-out weeks and fortnights whose sum is inside the interval."""
    return {
        shape.__name__: sum(
            is_inside_interval(shape, ahead, seed) for seed in range(tries) for ahead in (7 * DAY, 15 * DAY)
        )
        / (2 * tries)
        for shape in shapes
    }


@pytest.mark.tools  # seconds
def test_intervals_for_shapes_of_public_traces_have_the_stated_coverage() -> None:
    """The benchmark has more tries of each shape (`python -m benchmarks.forecast`)."""
    covered = coverage(4, STEADY)
    assert 0.65 <= sum(covered.values()) / len(covered) <= 0.95, covered
    assert min(covered.values()) >= 0.5, covered


@pytest.mark.nightly
def test_intervals_of_public_shapes_with_many_tries() -> None:
    covered = coverage(40, SHAPES)
    assert all(0.7 <= covered[shape.__name__] <= 0.95 for shape in STEADY), covered
    assert covered["growth"] >= 0.8, "the forecast has no trend, so its errors and intervals are large"
    assert 0.4 <= covered["launch"] < 0.8, "a step cannot be foreseen; docs/explanation/recommendations.md says so"


def test_a_pattern_without_noise_is_continued_exactly() -> None:
    history: Series = [weekly(hour) for hour in range(3 * WEEK + 50)]
    for ahead in (1, 30, 5 * WEEK + 7):
        actual = sum(weekly(hour) for hour in range(len(history), len(history) + ahead))
        assert expected_sum(history, START, ahead) == pytest.approx(actual)


def test_interval_of_a_constant_cost_has_a_minimum_width() -> None:
    """A node is replaced for half an hour next week: 0.3% of the week's cost."""
    projection = forecast([5.0] * (8 * WEEK), START, WEEK)
    assert projection is not None
    assert projection.low < 5 * (WEEK - 0.5) < projection.expected < projection.high
    assert projection.high - projection.low == pytest.approx(0.02 * projection.expected)


def test_forecast_follows_a_level_change() -> None:
    history: Series = [weekly(hour) * (2 if hour >= 6 * WEEK else 1) for hour in range(8 * WEEK)]
    actual = sum(2 * weekly(hour) for hour in range(WEEK))
    expected = expected_sum(history, START, WEEK)
    assert expected is not None
    assert 0.85 * actual < expected < actual, "the two newest weeks have three quarters of the weight"


def test_backtest_uses_only_earlier_hours() -> None:
    """A step falls outside the intervals that were computed before it."""
    history: Series = [weekly(hour) * (3 if hour >= 7 * WEEK else 1) for hour in range(8 * WEEK)]
    result = backtest(history, START, WEEK)
    assert result is not None
    assert result.hours == WEEK
    assert 0 < result.covered < result.evaluated


def test_forecast_needs_two_weeks_with_few_gaps() -> None:
    week: Series = [weekly(hour) for hour in range(WEEK)]
    assert forecast(week * 2, START, 24) is not None
    assert forecast((week * 2)[1:], START, 24) is None
    assert forecast([None if hour % 4 == 0 else usd for hour, usd in enumerate(week * 3)], START, 24) is None
    assert forecast([0.0] * (4 * WEEK), START, 24) is not None


def test_missing_hours_do_not_count_as_zero() -> None:
    history: Series = [None if 100 <= hour < 140 else weekly(hour) for hour in range(4 * WEEK)]
    expected = expected_sum(history, START, WEEK)
    assert expected == pytest.approx(sum(weekly(hour) for hour in range(WEEK)), rel=0.03)


def test_hour_of_the_day_without_data_costs_the_mean() -> None:
    """A Prometheus that is down every night from 02:00 to 04:00."""
    history: Series = [None if hour % 24 in {2, 3} else 10.0 for hour in range(8 * WEEK)]
    assert expected_sum(history, START, WEEK + 3) == pytest.approx(10 * (WEEK + 3))
