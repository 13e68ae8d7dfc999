"""Price timelines compared with a table that has one price per second."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.intervals import IntervalMs
from gpucost.core.pricing.price_history import (
    FAR_FUTURE,
    PriceEvent,
    PriceKey,
    clip_timelines,
    differing_intervals,
    event_in_force,
    from_epoch_seconds,
    join_timelines,
    merge_response,
    prices_of,
    timelines_of,
)
from gpucost.core.pricing.prices import Price

KEY = PriceKey((("instance_type", "g5.xlarge"),), "node-hour")
LONG = 40
"""The table's length in seconds."""
Table = list[Decimal | None]


def price(start: int, end: int | None, amount: str, fetched: int = 0) -> Price:
    return Price(
        "spot",
        "node-hour",
        Decimal(amount),
        {"instance_type": "g5.xlarge"},
        "USD",
        from_epoch_seconds(start),
        None if end is None else from_epoch_seconds(end),
        from_epoch_seconds(fetched),
    )


def table(events: tuple[PriceEvent, ...]) -> Table:
    events_by_second = [event_in_force(events, second) for second in range(LONG)]
    return [None if event is None else event.amount for event in events_by_second]


@st.composite
def responses(draw: st.DrawFn) -> list[Price]:
    """An API's response: consecutive prices, the last with or without an end."""
    moments = sorted(draw(st.sets(st.integers(0, LONG - 1), min_size=2, max_size=8)))
    ends: list[int | None] = [*moments[1:]]
    if draw(st.booleans()):
        ends.append(None)
    return [
        price(start, end, draw(st.sampled_from(["1", "2", "3"])), draw(st.integers(0, 9)))
        for start, end in zip(moments, ends, strict=False)
    ]


def expected_merge(old: Table, answer: list[Price], since: int | None) -> Table:
    """Merge a response into a table second by second, from its first price on."""
    from_response: Table = [None] * LONG
    for response_price in answer:
        for second in range(LONG):
            moment = from_epoch_seconds(second)
            if (
                response_price.valid_from
                and response_price.valid_from <= moment
                and (response_price.valid_to is None or moment < response_price.valid_to)
            ):
                from_response[second] = response_price.amount if isinstance(response_price.amount, Decimal) else None
    begins = min(second for second in range(LONG) if from_response[second] is not None)
    first = begins if since is None else max(begins, since)
    # The first price of the response also applies before `since`, unless another price is known for that time.
    while (
        first > begins
        and from_response[first] is not None
        and from_response[first - 1] == from_response[first]
        and old[first - 1] is None
    ):
        first -= 1
    return [*old[:first], *from_response[first:]]


@given(first=responses(), second=responses(), since=st.none() | st.integers(0, LONG - 1))
def test_response_replaces_events_from_its_first_event_on(
    first: list[Price], second: list[Price], since: int | None
) -> None:
    old = timelines_of(first)
    assert table(old[KEY]) == expected_merge([None] * LONG, first, None)
    new = merge_response(old, timelines_of(second), since)
    assert table(new[KEY]) == expected_merge(table(old[KEY]), second, since)
    assert merge_response(new, timelines_of(second), since) == new, "the same response again changes nothing"


@given(first=responses(), second=responses(), start=st.integers(0, LONG), length=st.integers(0, LONG))
def test_differences_are_seconds_with_different_prices(
    first: list[Price], second: list[Price], start: int, length: int
) -> None:
    old, new = timelines_of(first)[KEY], timelines_of(second)[KEY]
    end = min(LONG, start + length)
    differing = differing_intervals(old, new, IntervalMs(start, end))
    seconds = {second for interval in differing for second in range(interval.start, interval.end)}
    assert seconds == {second for second in range(start, end) if table(old)[second] != table(new)[second]}


@given(answer=responses(), days=st.lists(st.integers(1, LONG - 1), max_size=4, unique=True))
def test_slices_join_to_whole_timeline(answer: list[Price], days: list[int]) -> None:
    timelines = timelines_of(answer)
    starts = [0, *sorted(days)]
    ends = [*starts[1:], FAR_FUTURE]
    parts = [(start, clip_timelines(timelines, start, end)) for start, end in zip(starts, ends, strict=True)]
    for (start, part), end in zip(parts, ends, strict=True):
        slice_table = table(part.get(KEY, ()))
        assert slice_table[start:end] == table(timelines[KEY])[start:end]
    assert table(join_timelines(parts).get(KEY, ())) == table(timelines[KEY])


def test_prices_keep_their_validity() -> None:
    prices = [price(0, 10, "1", 3), price(10, 20, "2", 4), price(30, None, "3", 5)]
    assert list(prices_of("spot", timelines_of(prices))) == prices
    assert list(prices_of("spot", timelines_of(prices), 10, 30)) == [prices[1]]


def test_first_event_with_same_price_is_kept() -> None:
    old = timelines_of([price(0, None, "1", 3)])
    assert merge_response(old, timelines_of([price(5, None, "1.0", 9)])) == old


@pytest.mark.parametrize("wrong", [Price("spot", "node-hour", Decimal(1)), price(0, None, "1")])
def test_fetched_price_without_beginning_is_rejected(wrong: Price) -> None:
    if wrong.valid_from is None:
        with pytest.raises(ValueError, match="needs valid_from"):
            timelines_of([wrong])
    else:
        assert timelines_of([wrong])[KEY] == (PriceEvent(0, Decimal(1)),)


def test_equal_amounts_in_different_currencies_differ() -> None:
    dollars = timelines_of([price(0, None, "1")])[KEY]
    yuan = tuple(event._replace(currency="CNY") for event in dollars)
    assert differing_intervals(dollars, yuan, IntervalMs(0, 10)) == [IntervalMs(0, 10)]
    assert from_epoch_seconds(0) + timedelta(seconds=1) == from_epoch_seconds(1)
