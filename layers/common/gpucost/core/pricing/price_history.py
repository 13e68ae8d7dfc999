"""The history of fetched prices: for each priced item, a timeline of the times at which its price changed.

A timeline is a list of events in order of time; each applies until the next. From an event without an amount on, there
is no price. Responses of an API are merged into the history; merging the same prices again changes nothing.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import NamedTuple

from gpucost.core.intervals import IntervalMs, union
from gpucost.core.pricing.prices import Price, PriceSource, PriceUnit

FAR_FUTURE = 2**40
"""Seconds since the epoch, later than any event."""


class PriceEvent(NamedTuple):
    """The price from a time on; without an amount, there is no price."""

    at: int
    """Seconds since the epoch."""
    amount: Decimal | None
    currency: str = "USD"
    fetched_at: int = 0


class PriceKey(NamedTuple):
    """A priced item: the facts of nodes in order of name, and the unit."""

    applies_to: tuple[tuple[str, str], ...]
    unit: PriceUnit


Timeline = tuple[PriceEvent, ...]
Timelines = Mapping[PriceKey, Timeline]


def key_of(price: Price) -> PriceKey:
    """Return the item to which a price applies."""
    return PriceKey(tuple(sorted(price.applies_to.items())), price.unit)


def timelines_of(prices: Iterable[Price]) -> dict[PriceKey, Timeline]:
    """Group prices into timelines.

    Raises:
        ValueError: a price without `valid_from`, or whose amount is not a `Decimal`.
    """
    by_key: dict[PriceKey, list[Price]] = {}
    for price in prices:
        if price.valid_from is None or not isinstance(price.amount, Decimal):
            raise ValueError(f"a fetched price needs valid_from and a decimal amount: {price}")
        by_key.setdefault(key_of(price), []).append(price)
    timelines = {}
    for key, key_prices in by_key.items():
        events: list[PriceEvent] = []
        for price in sorted(key_prices, key=lambda price: to_epoch_seconds(price.valid_from)):
            start, amount = to_epoch_seconds(price.valid_from), price.amount
            if not isinstance(amount, Decimal):  # for mypy: other types were rejected above
                continue
            while events and events[-1].at >= start:
                events.pop()
            events.append(PriceEvent(start, amount, price.currency, to_epoch_seconds(price.fetched_at)))
            if price.valid_to is not None:
                events.append(PriceEvent(to_epoch_seconds(price.valid_to), None))
        timelines[key] = _without_redundant_events(events)
    return timelines


def prices_of(
    source: PriceSource, timelines: Timelines, start: int = -FAR_FUTURE, end: int = FAR_FUTURE
) -> Iterator[Price]:
    """Yield the prices that apply at any time in `[start, end)`, with their validity as far as it is known."""
    for key, events in timelines.items():
        applies_to = dict(key.applies_to)
        for event, after in pairwise((*events, PriceEvent(FAR_FUTURE, None))):
            if event.amount is not None and event.at < end and after.at > start:
                yield Price(
                    source=source,
                    unit=key.unit,
                    amount=event.amount,
                    applies_to=applies_to,
                    currency=event.currency,
                    valid_from=from_epoch_seconds(event.at),
                    valid_to=None if after.at == FAR_FUTURE else from_epoch_seconds(after.at),
                    fetched_at=from_epoch_seconds(event.fetched_at),
                )


def merge_response(old: Timelines, new: Timelines, since: int | None = None) -> dict[PriceKey, Timeline]:
    """Merge an API's response into timelines: for each item in it, it replaces all events from its first event on.

    Args:
        old: the previous timelines.
        new: the response.
        since: from when on the response is complete; its earlier events only say since when a price has applied.
    """
    result = dict(old)
    for key, events in new.items():
        before = old.get(key, ())
        start = events[0].at if since is None else max(events[0].at, since)
        kept = [event for event in before if event.at < start]
        first = event_in_force(events, start)
        if first is None:
            kept.append(PriceEvent(start, None))
        else:
            has_price = kept and kept[-1].amount is not None
            starts_at = start if has_price else max(first.at, kept[-1].at if kept else first.at)
            kept.append(first._replace(at=starts_at))
        previous_events = {event[:3]: event for event in before}
        merged = [*kept, *(event for event in events if event.at > start)]
        result[key] = _without_redundant_events(previous_events.get(event[:3], event) for event in merged)
    return result


def event_in_force(events: Sequence[PriceEvent], at: int) -> PriceEvent | None:
    """Return the event that applies at a time; None before the first event, or if there is no price."""
    index = bisect_right(events, at, key=lambda event: event.at)
    return events[index - 1] if index and events[index - 1].amount is not None else None


def differing_intervals(old: Sequence[PriceEvent], new: Sequence[PriceEvent], time: IntervalMs) -> list[IntervalMs]:
    """Return when, within an interval of seconds, the prices of two timelines differ."""
    edges = {event.at for event in (*old, *new) if time.start < event.at < time.end}
    differing = []
    for start, end in pairwise([time.start, *sorted(edges), max(time.start, time.end)]):
        if end > start and _price(event_in_force(old, start)) != _price(event_in_force(new, start)):
            differing.append(IntervalMs(start, end))
    return union(differing)


def clip_timelines(timelines: Timelines, start: int, end: int) -> dict[PriceKey, Timeline]:
    """Return the events of `[start, end)`, including the one that applies at the start."""
    slices = {}
    for key, events in timelines.items():
        first = event_in_force(events, start)
        events_in_slice = (*([first] if first else []), *(event for event in events if start < event.at < end))
        if any(event.amount is not None for event in events_in_slice):
            slices[key] = events_in_slice
    return slices


def join_timelines(parts: Iterable[tuple[int, Timelines]]) -> dict[PriceKey, Timeline]:
    """Join the results of `clip_timelines`, in order of their starts, each of which applies until the next."""
    joined: dict[PriceKey, list[PriceEvent]] = {}
    for start, timelines in parts:
        for key, joined_events in joined.items():
            while joined_events and joined_events[-1].at >= start:
                joined_events.pop()
            if key not in timelines:
                joined_events.append(PriceEvent(start, None))
        for key, events in timelines.items():
            joined_events = joined.setdefault(key, [])
            if joined_events and events[0].at < start:
                events = (events[0]._replace(at=max(events[0].at, joined_events[-1].at)), *events[1:])  # noqa: PLW2901
                while joined_events and joined_events[-1].at >= events[0].at:
                    joined_events.pop()
            joined_events.extend(events)
    return {key: _without_redundant_events(events) for key, events in joined.items()}


def to_epoch_seconds(moment: datetime | None) -> int:
    """Return seconds since the epoch; 0 for None."""
    return 0 if moment is None else int(moment.timestamp())


def from_epoch_seconds(at: int) -> datetime:
    """Convert seconds since the epoch to a time in UTC."""
    return datetime.fromtimestamp(at, UTC)


def _without_redundant_events(events: Iterable[PriceEvent]) -> Timeline:
    """Remove events that change nothing; of several events with the same price, the first is kept."""
    merged: list[PriceEvent] = []
    for event in events:
        if merged and _price(merged[-1]) == _price(event):
            continue
        if not merged and event.amount is None:
            continue
        merged.append(event)
    return tuple(merged)


def _price(event: PriceEvent | None) -> tuple[Decimal | None, str]:
    return (None, "") if event is None or event.amount is None else (event.amount, event.currency)
