"""Spans, scrape intervals and gaps."""

import pytest

from gpucost.domain.intervals import Interval, gaps, scrape_interval, span

HOUR = Interval(0, 3600)


def test_the_interval_is_read_off_whatever_is_missing() -> None:
    assert scrape_interval([[0, 60, 120, 600, 660]]) == 60
    assert scrape_interval([[0, 59, 121, 180], [30, 90, 151]]) in {59, 60, 61, 62}
    assert scrape_interval([[7], []]) is None


def test_a_span_reaches_one_interval_past_the_last_sample() -> None:
    assert span([600, 660, 1200], 60) == Interval(600, 1260)
    assert span([], 60).length == 0


@pytest.mark.parametrize(
    ("times", "found"),
    [
        (range(0, 3600, 60), []),
        (range(5, 3600, 60), []),
        (range(-300, 4000, 60), []),
        ([*range(0, 1200, 60), *range(1800, 3600, 60)], [Interval(1200, 1800)]),
        (range(600, 3600, 60), [Interval(0, 600)]),
        (range(0, 3000, 60), [Interval(3000, 3600)]),
        ([], [HOUR]),
        (range(7200, 9000, 60), [HOUR]),
    ],
)
def test_gaps(times: range | list[int], found: list[Interval]) -> None:
    assert gaps(list(times), 60, HOUR, 30) == found
