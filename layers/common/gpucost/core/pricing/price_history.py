"""The history of prices: timelines of fetched prices, overrides, and changes of hours that may have been rated."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gpucost.core.hours import format_timestamp
from gpucost.core.intervals import IntervalMs, union
from gpucost.core.pricing.prices import Price, PriceSource, PriceUnit

# The history of fetched prices: for each priced item, a timeline of the times at which its price changed.
#
# A timeline is a list of events in order of time; each applies until the next. From an event without an amount on,
# there is no price. Responses of an API are merged into the history; merging the same prices again changes nothing.

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


# Changes of the price book: overrides with their history, and price changes of hours that may have been rated.

MIN_CHANGE_SEPARATION_SECONDS = 24 * 3600
"""How many seconds separate two changes of a refresh; merged, the hours in between would be rated again needlessly."""
MAX_ATTRIBUTE_VALUES = 50
"""The most values of one fact in a change; a fact with more values is left out, so that the change affects all."""


class PriceChange(Struct, frozen=True):
    """A change of the prices at times that may have been rated."""

    id: str
    source: PriceSource | Literal["shapes"]
    applies_to: Mapping[str, Sequence[str]]
    """Which nodes may be affected: those that match one of the values (shell patterns) of each fact."""
    start: datetime | None
    """None for all times before `end`."""
    end: datetime
    """At most the end of the newest hour that may have been rated."""
    reason: str
    author: str
    changed_at: datetime
    settled_at: datetime | None = None

    def affects(self, facts: Mapping[str, str]) -> bool:
        """Whether the price of a node with these facts may have changed."""
        return all(
            any(fnmatchcase(facts.get(name, ""), value) for value in values) for name, values in self.applies_to.items()
        )


class PriceOverride(Struct, frozen=True):
    """A price set by hand; after it is dropped it remains in the history."""

    id: str
    price: Price
    """With author, reason and current validity; `fetched_at` is when it was set."""
    original_valid_to: datetime | None = None
    """The end of its validity when it was set."""
    dropped_at: datetime | None = None
    dropped_by: str = ""
    drop_reason: str = ""


def new_change(
    source: PriceSource | Literal["shapes"],
    keys: Iterable[Mapping[str, str]],
    time: tuple[datetime | None, datetime],
    *,
    reason: str,
    author: str,
    at: datetime,
) -> PriceChange:
    """Create a price change; the same change has the same id.

    Args:
        source: the source of the prices.
        keys: the facts of nodes to which each price applies.
        time: the validity of the changed prices.
        reason: one sentence.
        author: who changed the prices.
        at: when the prices were changed.
    """
    applies_to = common_attributes(keys)
    content = repr((source, sorted(applies_to.items()), time, reason, author))
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return PriceChange(
        f"{format_timestamp(at)}-{digest}", source, applies_to, *time, reason=reason, author=author, changed_at=at
    )


def common_attributes(keys: Iterable[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """Summarize what prices apply to: the facts that all of them name, each with its values."""
    values: dict[str, set[str]] = {}
    for number, key in enumerate(keys):
        if number == 0:
            values = {name: {value} for name, value in key.items()}
            continue
        for name in [*values]:
            if name in key:
                values[name].add(key[name])
            else:
                del values[name]
    return {
        name: tuple(sorted(distinct))
        for name, distinct in sorted(values.items())
        if len(distinct) <= MAX_ATTRIBUTE_VALUES
    }


def changes_between(
    source: PriceSource, old: Timelines, new: Timelines, time: IntervalMs, at: datetime
) -> list[PriceChange]:
    """Return the changes that a refresh makes within an interval of seconds; distant times become separate changes."""
    differing: list[tuple[IntervalMs, PriceKey]] = []
    for key, events in new.items():
        before = old.get(key, ())
        if before != events:
            differing += [(interval, key) for interval in differing_intervals(before, events, time)]
    differing.sort(key=lambda interval_and_key: interval_and_key[0])
    groups: list[tuple[IntervalMs, list[PriceKey]]] = []
    for interval, key in differing:
        if groups and interval.start <= groups[-1][0].end + MIN_CHANGE_SEPARATION_SECONDS:
            reached = IntervalMs(groups[-1][0].start, max(groups[-1][0].end, interval.end))
            groups[-1] = (reached, [*groups[-1][1], key])
        else:
            groups.append((interval, [key]))
    return [
        new_change(
            source,
            [dict(key.applies_to) for key in keys],
            (from_epoch_seconds(interval.start), from_epoch_seconds(interval.end)),
            reason=f"{len(set(keys))} {source} price{'s' if len(set(keys)) > 1 else ''} new or changed",
            author="prices",
            at=at,
        )
        for interval, keys in groups
    ]


def override_change(
    override: PriceOverride,
    time: tuple[datetime | None, datetime | None],
    until: datetime,
    *,
    reason: str,
    author: str,
    at: datetime,
) -> PriceChange | None:
    """Return the change of past prices when an override is set or dropped; None if only future prices change."""
    start, end = time
    last = until if end is None else min(end, until)
    if start is not None and start >= last:
        return None
    return new_change("override", [override.price.applies_to], (start, last), reason=reason, author=author, at=at)


def new_override(price: Price, earlier: Sequence[PriceOverride]) -> PriceOverride:
    """Create an override of a price; setting the same price twice in a row returns the existing override.

    If other overrides were set since, an equal price becomes a new override, because the latest override wins.
    """
    content = repr(
        (
            sorted(price.applies_to.items()),
            price.unit,
            str(price.amount),
            price.currency,
            price.valid_from,
            price.valid_to,
            price.author,
            price.reason,
        )
    )
    times = 0
    while True:
        digest = hashlib.sha256(f"{content}{times}".encode()).hexdigest()[:10]
        existing = next((override for override in earlier if override.id == digest), None)
        if existing is None:
            return PriceOverride(digest, price, original_valid_to=price.valid_to)
        if existing.dropped_at is None and existing is earlier[-1]:
            return existing
        times += 1


def drop_override(override: PriceOverride, *, at: datetime, author: str, reason: str, now: datetime) -> PriceOverride:
    """End the validity of an override at a time; at or before its beginning, the override never applies."""
    price = override.price
    end = at if price.valid_from is None else max(at, price.valid_from)
    valid_to = end if price.valid_to is None else min(end, price.valid_to)
    return replace(
        override, price=replace(price, valid_to=valid_to), dropped_at=now, dropped_by=author, drop_reason=reason
    )
