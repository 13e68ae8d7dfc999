"""Changes of the price book: overrides with their history, and price changes of hours that may have been rated."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gpucost.core.hours import format_timestamp
from gpucost.core.intervals import IntervalMs
from gpucost.core.pricing.price_history import PriceKey, Timelines, differing_intervals, from_epoch_seconds
from gpucost.core.pricing.prices import Price, PriceSource

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
