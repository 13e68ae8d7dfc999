from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.intervals import IntervalMs, Scrapes, gaps, overlap_length, overlapping_keys, union

SECOND = 1000


def every(step: int, first: int, last: int) -> tuple[int, ...]:
    return tuple(range(first * SECOND, last * SECOND, step * SECOND))


def test_scrape_interval_ignores_gaps_and_jitter() -> None:
    assert Scrapes((0, 60, 120, 600, 660)).typical_interval == 60
    assert Scrapes((0, 59, 121, 180, 241)).typical_interval in {59, 60, 61, 62}
    assert Scrapes((7,)).typical_interval == 0
    assert not Scrapes((7,)).has_two_scrapes


def test_scrape_interval_follows_change_immediately() -> None:
    scrapes = Scrapes(every(30, 0, 1800) + every(60, 1800, 3600))
    assert {scrapes.interval_at(time * SECOND) for time in range(0, 1700, 7)} == {30 * SECOND}
    assert {scrapes.interval_at(time * SECOND) for time in range(1860, 3600, 7)} == {60 * SECOND}
    assert not scrapes.is_regular
    assert not Scrapes(every(30, 0, 900) + every(60, 900, 3600)).is_regular
    assert scrapes.coverage(IntervalMs(0, 3_600_000)) == [IntervalMs(0, 3_600_000)]


def test_single_lost_scrape_is_no_gap_but_two_are() -> None:
    window = IntervalMs(0, 3_600_000)
    single_missing = tuple(time for time in every(60, 0, 3600) if time != 600_000)
    two_missing = tuple(time for time in single_missing if time != 660_000)
    assert Scrapes(single_missing).coverage(window) == [window]
    assert gaps(Scrapes(two_missing).coverage(window), window) == [IntervalMs(600_000, 720_000)]
    assert Scrapes(two_missing).gap_after(540_000) == IntervalMs(600_000, 720_000)
    assert Scrapes(single_missing).gap_after(540_000) is None


def test_coverage_begins_with_last_scrape_before_window() -> None:
    window = IntervalMs(100_000, 200_000)
    assert Scrapes((0, 60_000, 120_000, 180_000)).coverage(window) == [window]
    assert Scrapes((150_000,)).coverage(window, 30_000) == [IntervalMs(150_000, 180_000)]
    assert Scrapes(()).coverage(window, 30_000) == []


def test_coverage_of_late_or_early_process_is_limited_to_its_scrapes() -> None:
    window = IntervalMs(0, 3_600_000)
    assert Scrapes(every(60, 1200, 3600)).coverage(window) == [IntervalMs(1_200_000, 3_600_000)]
    assert Scrapes(every(60, -600, 1200)).coverage(window) == [IntervalMs(0, 1_200_000)]
    assert Scrapes(every(60, -600, 0)).coverage(window) == []
    assert Scrapes(every(60, 3600, 4200)).coverage(window) == []


@given(
    st.lists(st.sampled_from([10, 14, 15, 16, 24, 25, 26, 37, 38, 40]), min_size=2, max_size=20),
    st.integers(-80, 200),
    st.integers(1, 300),
)
def test_coverage_is_union_of_times_covered_by_scrapes(distances: list[int], first: int, length: int) -> None:
    times = [0]
    for distance in distances:
        times.append(times[-1] + distance)
    scrapes, window = Scrapes(tuple(times)), IntervalMs(first, first + length)
    covered = scrapes.coverage(window)
    for moment in range(window.start - 1, window.end + 1):
        last = max((index for index, time in enumerate(times) if time <= moment), default=None)
        is_covered = False
        if last is not None and window.contains(moment):
            interval = scrapes.interval_at(times[last])
            is_next_in_time = last + 1 < len(times) and 2 * (times[last + 1] - times[last]) <= 5 * interval
            is_covered = is_next_in_time or moment < times[last] + interval
        assert any(piece.contains(moment) for piece in covered) == is_covered, moment


def test_gaps_are_complement_of_union() -> None:
    window = IntervalMs(0, 100)
    pieces = union([IntervalMs(50, 60), IntervalMs(10, 20), IntervalMs(15, 30), IntervalMs(30, 40), IntervalMs(70, 70)])
    assert pieces == [IntervalMs(10, 40), IntervalMs(50, 60)]
    assert gaps(pieces, window) == [IntervalMs(0, 10), IntervalMs(40, 50), IntervalMs(60, 100)]
    assert gaps(pieces, window, shortest=10) == [IntervalMs(60, 100)]
    assert overlap_length(pieces, IntervalMs(35, 55)) == 10


def test_scrapes_around_time() -> None:
    scrapes = Scrapes((10, 20, 30))
    assert (scrapes.last_before(20), scrapes.next_after(20)) == (10, 30)
    assert (scrapes.last_before(10), scrapes.next_after(30)) == (None, None)
    assert scrapes.within(IntervalMs(10, 30)) == (10, 20)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=8), st.integers(0, 3))
def test_overlapping_keys_are_those_of_pairs(starts_and_lengths: list[tuple[int, int]], tolerance: int) -> None:
    times = {i: IntervalMs(start, start + length) for i, (start, length) in enumerate(starts_and_lengths)}
    of_pairs = {pair[0] for pair in permutations(times, 2) if times[pair[0]].overlap(times[pair[1]]).length > tolerance}
    assert overlapping_keys(times, tolerance) == of_pairs
