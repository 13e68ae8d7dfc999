"""Timelines of prices, against a table of one price per second kept by brute force."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.intervals import Interval
from gpucost.core.pricing.price_history import (
    FAR_FUTURE,
    PriceEvent,
    PriceKey,
    differences,
    event_at,
    from_epoch_seconds,
    join_slices,
    merge_response,
    prices_of,
    slice_timelines,
    timelines_of,
)
from gpucost.core.pricing.prices import Price

KEY = PriceKey((("instance_type", "g5.xlarge"),), "node-hour")
LONG = 40
"""Seconds of the table."""
Table = list[Decimal | None]


def price(start: int, end: int | None, amount: str, fetched: int = 0) -> Price:
    return Price(
        "spot", "node-hour", Decimal(amount), {"instance_type": "g5.xlarge"}, "USD",
        from_epoch_seconds(start), None if end is None else from_epoch_seconds(end), from_epoch_seconds(fetched),
    )  # fmt: skip


def table(events: tuple[PriceEvent, ...]) -> Table:
    found = [event_at(events, second) for second in range(LONG)]
    return [None if event is None else event.amount for event in found]


@st.composite
def responses(draw: st.DrawFn) -> list[Price]:
    """What an API may say: consecutive prices, the last of them bounded or open."""
    moments = sorted(draw(st.sets(st.integers(0, LONG - 1), min_size=2, max_size=8)))
    ends: list[int | None] = [*moments[1:]]
    if draw(st.booleans()):
        ends.append(None)
    return [
        price(start, end, draw(st.sampled_from(["1", "2", "3"])), draw(st.integers(0, 9)))
        for start, end in zip(moments, ends, strict=False)
    ]


def expected_merge(old: Table, answer: list[Price], since: int | None) -> Table:
    """By brute force: from its first moment on, the answer's second by second."""
    told: Table = [None] * LONG
    for one in answer:
        for second in range(LONG):
            moment = from_epoch_seconds(second)
            if one.valid_from and one.valid_from <= moment and (one.valid_to is None or moment < one.valid_to):
                told[second] = one.amount if isinstance(one.amount, Decimal) else None
    begins = min(second for second in range(LONG) if told[second] is not None)
    first = begins if since is None else max(begins, since)
    # What is in force then, is so since it began, where nothing better is known.
    while first > begins and told[first] is not None and told[first - 1] == told[first] and old[first - 1] is None:
        first -= 1
    return [*old[:first], *told[first:]]


@given(first=responses(), second=responses(), since=st.none() | st.integers(0, LONG - 1))
def test_an_answer_replaces_all_from_its_first_moment_on(
    first: list[Price], second: list[Price], since: int | None
) -> None:
    old = timelines_of(first)
    assert table(old[KEY]) == expected_merge([None] * LONG, first, None)
    new = merge_response(old, timelines_of(second), since)
    assert table(new[KEY]) == expected_merge(table(old[KEY]), second, since)
    assert merge_response(new, timelines_of(second), since) == new, "the same answer again changes nothing"


@given(first=responses(), second=responses(), start=st.integers(0, LONG), length=st.integers(0, LONG))
def test_differences_are_the_seconds_that_differ(
    first: list[Price], second: list[Price], start: int, length: int
) -> None:
    old, new = timelines_of(first)[KEY], timelines_of(second)[KEY]
    end = min(LONG, start + length)
    found = differences(old, new, Interval(start, end))
    seconds = {second for interval in found for second in range(interval.start, interval.end)}
    assert seconds == {second for second in range(start, end) if table(old)[second] != table(new)[second]}


@given(answer=responses(), days=st.lists(st.integers(1, LONG - 1), max_size=4, unique=True))
def test_days_stand_alone_and_join_to_the_whole(answer: list[Price], days: list[int]) -> None:
    timelines = timelines_of(answer)
    starts = [0, *sorted(days)]
    ends = [*starts[1:], FAR_FUTURE]
    parts = [(start, slice_timelines(timelines, start, end)) for start, end in zip(starts, ends, strict=True)]
    for (start, part), end in zip(parts, ends, strict=True):
        own = table(part.get(KEY, ()))
        assert own[start:end] == table(timelines[KEY])[start:end]
    assert table(join_slices(parts).get(KEY, ())) == table(timelines[KEY])


def test_prices_come_back_with_their_validity() -> None:
    given_ = [price(0, 10, "1", 3), price(10, 20, "2", 4), price(30, None, "3", 5)]
    assert list(prices_of("spot", timelines_of(given_))) == given_
    assert list(prices_of("spot", timelines_of(given_), 10, 30)) == [given_[1]]


def test_the_first_to_say_a_price_is_kept() -> None:
    old = timelines_of([price(0, None, "1", 3)])
    assert merge_response(old, timelines_of([price(5, None, "1.0", 9)])) == old


@pytest.mark.parametrize("wrong", [Price("spot", "node-hour", Decimal(1)), price(0, None, "1")])
def test_a_fetched_price_has_a_beginning(wrong: Price) -> None:
    if wrong.valid_from is None:
        with pytest.raises(ValueError, match="needs valid_from"):
            timelines_of([wrong])
    else:
        assert timelines_of([wrong])[KEY] == (PriceEvent(0, Decimal(1)),)


def test_currencies_differ_though_amounts_do_not() -> None:
    dollars = timelines_of([price(0, None, "1")])[KEY]
    yuan = tuple(event._replace(currency="CNY") for event in dollars)
    assert differences(dollars, yuan, Interval(0, 10)) == [Interval(0, 10)]
    assert from_epoch_seconds(0) + timedelta(seconds=1) == from_epoch_seconds(1)
