"""Forecasts the cost of a period: the pattern of past weeks at the level of the newest weeks.

    cost of a future hour = level × shape of its hour of the week

- shape: the mean over the weeks of (hour's cost ÷ its week's mean). With fewer than two values for an hour of the
  week, the same hour of all days; without any value, the week's mean.
- level: the mean of the weeks' levels, each counting half as much as the one after it.
- interval: the same forecast is made from every past day, for as long ahead as the history allows, and compared with
  the actual cost. The root mean square of these relative errors × Student's t is the half width. For longer forecasts
  it grows with the square root of time, like a random walk of the level. It is never narrower than 1% to either side:
  a unit that cost the same every week says nothing about its next release.

The model has no trend, holidays or release days. Every forecast reports how often past intervals were right.
"""

from collections.abc import Sequence
from datetime import datetime
from math import sqrt
from typing import Final

from msgspec import Struct

WEEK: Final = 168
MIN_HISTORY_HOURS: Final = 2 * WEEK
"""Hours of history that a forecast needs."""
_DAY = 24
_MIN_DATA_SHARE = 0.8
"""Part of the history's hours that must have a cost."""
_MIN_ERRORS = 4
"""Number of past forecasts that an estimate of errors needs."""
_MIN_RELATIVE_MARGIN: Final = 0.01
"""Least half-width of the interval, as a share of the cost: even constant costs change some day."""
STUDENT_T_80 = (3.08, 1.89, 1.64, 1.53, 1.48, 1.44, 1.41, 1.40, 1.38, 1.37)
"""Student's t at 80%, two-sided, for 1 to 10 degrees of freedom."""
STUDENT_T_80_MANY_DEGREES = 1.32
CONFIDENCE_LEVEL_PERCENT = 80
"""Of the interval."""


class Backtest(Struct, frozen=True):
    """Past forecasts compared with the actual cost."""

    hours: int
    """Length of each forecast, in hours."""
    evaluated: int
    covered: int
    """Number of past forecasts whose interval contains the actual cost."""


class Forecast(Struct, frozen=True):
    """A forecast of the sum of future hours."""

    expected: float
    low: float
    high: float
    backtest: Backtest | None
    """None if the history is too short."""


def forecast(history: Sequence[float | None], first_hour: datetime, hours_ahead: int) -> Forecast | None:
    """Forecast the sum of the hours that follow a history.

    Args:
        history: cost of every hour, oldest first; None if unknown.
        first_hour: of the history.
        hours_ahead: number of hours to forecast.

    Returns:
        None with less than two weeks of history, or if more than a fifth of it is unknown.
    """
    past = _CostHistory(history, first_hour)
    interval = past.interval(len(history), hours_ahead)
    if interval is None:
        return None
    expected, margin = interval
    return Forecast(expected, max(0.0, expected - margin), expected + margin, _backtest(past, hours_ahead))


def backtest(history: Sequence[float | None], first_hour: datetime, hours_ahead: int) -> Backtest | None:
    """Count how often past intervals contain the actual cost; None if there are none."""
    return _backtest(_CostHistory(history, first_hour), hours_ahead)


def _backtest(past: "_CostHistory", hours_ahead: int) -> Backtest | None:
    hours = min(hours_ahead, max(0, len(past.history) - 2 * MIN_HISTORY_HOURS))
    hours -= hours % _DAY
    evaluated = covered = 0
    for origin in _origins(len(past.history), MIN_HISTORY_HOURS + 2 * _DAY, hours):
        actual, interval = past.actual(origin, hours), past.interval(origin, hours)
        if actual is not None and interval is not None:
            evaluated += 1
            covered += abs(actual - interval[0]) <= interval[1]
    return Backtest(hours, evaluated, covered) if evaluated else None


class _CostHistory:
    """A history and the forecasts from its earlier times, each calculated once."""

    def __init__(self, history: Sequence[float | None], first_hour: datetime) -> None:
        self.history = history
        self._first_hour = first_hour
        self._errors: dict[tuple[int, int], float | None] = {}

    def actual(self, origin: int, hours_ahead: int) -> float | None:
        """The cost of the hours after an origin; None if too few are known."""
        return _extrapolated_sum(self.history[origin : origin + hours_ahead])

    def interval(self, origin: int, hours_ahead: int) -> tuple[float, float] | None:
        """The expected sum and the half width of its interval, from the hours before an origin."""
        expected = expected_sum(self.history[:origin], self._first_hour, hours_ahead)
        if not expected:
            return None if expected is None else (0.0, 0.0)
        tested_hours = min(hours_ahead, max(_DAY, origin - MIN_HISTORY_HOURS - _MIN_ERRORS * _DAY))
        tested_hours -= tested_hours % _DAY if tested_hours > _DAY else 0
        all_errors = [self._error(at, tested_hours) for at in _origins(origin, MIN_HISTORY_HOURS, tested_hours)]
        errors = [error for error in all_errors if error is not None]
        if len(errors) < _MIN_ERRORS:
            return expected, expected  # the interval is as wide as the sum: practically unknown
        spread = sqrt(sum(error**2 for error in errors) / len(errors))
        # Forecasts made a day apart overlap, so they count about twice as much as those that fit without overlap.
        freedom = max(2, round(2 * len(errors) * _DAY / max(tested_hours, _DAY)))
        student_t = STUDENT_T_80[freedom - 1] if freedom <= len(STUDENT_T_80) else STUDENT_T_80_MANY_DEGREES
        margin = spread * student_t * sqrt(max(1.0, hours_ahead / tested_hours))
        return expected, expected * max(margin, _MIN_RELATIVE_MARGIN)

    def _error(self, origin: int, hours_ahead: int) -> float | None:
        """The relative error of the forecast made at an origin."""
        key = origin, hours_ahead
        if key not in self._errors:
            actual, expected = (
                self.actual(origin, hours_ahead),
                expected_sum(self.history[:origin], self._first_hour, hours_ahead),
            )
            self._errors[key] = actual / expected - 1 if actual is not None and expected else None
        return self._errors[key]


def expected_sum(history: Sequence[float | None], first_hour: datetime, hours_ahead: int) -> float | None:
    """The expected sum of the hours that follow a history."""
    hours_with_cost = sum(cost is not None for cost in history)
    if len(history) < MIN_HISTORY_HOURS or hours_with_cost < _MIN_DATA_SHARE * len(history):
        return None
    first = (first_hour.weekday() * _DAY + first_hour.hour) % WEEK
    weeks = [history[max(0, end - WEEK) : end] for end in range(len(history), 0, -WEEK)]
    levels, shape = _weekly_levels(weeks), [[0.0, 0.0] for _ in range(WEEK)]
    for number, week in enumerate(weeks):
        level = levels[number]
        if level is None or level <= 0:
            continue
        begin = len(history) - number * WEEK - len(week)
        for offset, cost in enumerate(week):
            if cost is not None:
                slot = shape[(first + begin + offset) % WEEK]
                slot[0] += cost / level
                slot[1] += 1
    level = _weighted_level(levels)
    if level is None:
        return None
    by_hour = [_shape_of(shape, hour) for hour in range(WEEK)]
    whole, rest = divmod(hours_ahead, WEEK)
    begin = (first + len(history)) % WEEK
    return level * (whole * sum(by_hour) + sum(by_hour[(begin + hour) % WEEK] for hour in range(rest)))


def _shape_of(shape: Sequence[Sequence[float]], hour: int) -> float:
    total, count = shape[hour]
    if count > 1:
        return total / count
    same_hours = [shape[day * _DAY + hour % _DAY] for day in range(7)]
    observations = sum(count for _, count in same_hours)
    return sum(total for total, _ in same_hours) / observations if observations else 1.0


def _weekly_levels(weeks: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Mean cost per hour by week, newest first; None for partial weeks and mostly unknown ones."""
    levels: list[float | None] = []
    for week in weeks:
        week_costs = [cost for cost in week if cost is not None]
        levels.append(sum(week_costs) / len(week_costs) if len(week) == WEEK and len(week_costs) > WEEK / 2 else None)
    return levels


def _weighted_level(levels: Sequence[float | None]) -> float | None:
    weighted = [(0.5**age, level) for age, level in enumerate(levels) if level is not None]
    total = sum(weight for weight, _ in weighted)
    return sum(weight * level for weight, level in weighted) / total if total else None


def _origins(end: int, least: int, hours_ahead: int) -> range:
    """Indexes at which a history can end and still leave `hours_ahead` hours to compare with."""
    last = end - hours_ahead
    return range(last - (last - least) // _DAY * _DAY, last + 1, _DAY) if hours_ahead and last >= least else range(0)


def _extrapolated_sum(hours: Sequence[float | None]) -> float | None:
    available_costs = [cost for cost in hours if cost is not None]
    return (
        sum(available_costs) * len(hours) / len(available_costs)
        if len(available_costs) >= _MIN_DATA_SHARE * len(hours) and available_costs
        else None
    )
