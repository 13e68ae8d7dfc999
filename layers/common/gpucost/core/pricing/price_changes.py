"""What changed in the price book: overrides with their history, and changes of times that may have been rated."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal

from gpucost.core.hours import format_timestamp
from gpucost.core.intervals import Interval
from gpucost.core.pricing.price_history import PriceKey, Timelines, differences, from_epoch_seconds
from gpucost.core.pricing.prices import Price, PriceSource

MIN_SEPARATION_SECONDS = 24 * 3600
"""Seconds between two changes of a refresh that make them two: hours in between would be rated again for nothing."""
MAX_VALUES = 50
"""Of one fact in a change's summary; with more it says nothing of the fact."""


@dataclass(frozen=True, slots=True)
class PriceChange:
    """What is in force at some time that may have been rated is no longer what it was."""

    id: str
    source: PriceSource | Literal["shapes"]
    applies_to: Mapping[str, Sequence[str]]
    """Which nodes may be concerned: of each fact named here, one of its values (shell patterns) must match."""
    start: datetime | None
    """None: since ever."""
    end: datetime
    """At most the end of the newest hour that may have been rated."""
    reason: str
    author: str
    at: datetime
    settled_at: datetime | None = None

    def affects(self, facts: Mapping[str, str]) -> bool:
        """Whether a node of these facts may have another price now."""
        return all(
            any(fnmatchcase(facts.get(name, ""), value) for value in values) for name, values in self.applies_to.items()
        )


@dataclass(frozen=True, slots=True)
class Override:
    """A price set by hand; dropped, it stays in the history."""

    id: str
    price: Price
    """With author, reason, and in `fetched_at` when it was set; its validity is as it is now."""
    set_to: datetime | None = None
    """The end of its validity as it was set."""
    dropped_at: datetime | None = None
    """When somebody dropped it."""
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
    """A change of the prices of some things; the same one has the same id.

    Args:
        source: whose prices.
        keys: what they apply to.
        time: when they are in force.
        reason: one sentence.
        author: who changed them.
        at: when.
    """
    applies_to = common_facts(keys)
    content = repr((source, sorted(applies_to.items()), time, reason, author))
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return PriceChange(
        f"{format_timestamp(at)}-{digest}", source, applies_to, *time, reason=reason, author=author, at=at
    )


def common_facts(keys: Iterable[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """Things with prices in short: the facts that all of them name, each with its values."""
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
    return {name: tuple(sorted(distinct)) for name, distinct in sorted(values.items()) if len(distinct) <= MAX_VALUES}


def changes_between(
    source: PriceSource, old: Timelines, new: Timelines, time: Interval, at: datetime
) -> list[PriceChange]:
    """The changes that a refresh makes within a time (seconds), times far apart as changes of their own."""
    differing: list[tuple[Interval, PriceKey]] = []
    for key, events in new.items():
        before = old.get(key, ())
        if before != events:
            differing += [(interval, key) for interval in differences(before, events, time)]
    differing.sort(key=lambda interval_and_key: interval_and_key[0])
    groups: list[tuple[Interval, list[PriceKey]]] = []
    for interval, key in differing:
        if groups and interval.start <= groups[-1][0].end + MIN_SEPARATION_SECONDS:
            reached = Interval(groups[-1][0].start, max(groups[-1][0].end, interval.end))
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
    override: Override,
    time: tuple[datetime | None, datetime | None],
    until: datetime,
    *,
    reason: str,
    author: str,
    at: datetime,
) -> PriceChange | None:
    """The change of past times that setting or dropping a price makes; None where it is about the future alone."""
    start, end = time
    last = until if end is None else min(end, until)
    if start is not None and start >= last:
        return None
    return new_change("override", [override.price.applies_to], (start, last), reason=reason, author=author, at=at)


def new_override(price: Price, earlier: Sequence[Override]) -> Override:
    """A price as an override; set twice in a row it is the one that is there.

    An earlier one of the same content, after which others were set, is another: what was set last wins.
    """
    content = repr(
        (sorted(price.applies_to.items()), price.unit, str(price.amount), price.currency, price.valid_from,
         price.valid_to, price.author, price.reason)
    )  # fmt: skip
    times = 0
    while True:
        digest = hashlib.sha256(f"{content}{times}".encode()).hexdigest()[:10]
        existing = next((override for override in earlier if override.id == digest), None)
        if existing is None:
            return Override(digest, price, set_to=price.valid_to)
        if existing.dropped_at is None and existing is earlier[-1]:
            return existing
        times += 1


def drop_override(override: Override, *, at: datetime, author: str, reason: str, now: datetime) -> Override:
    """An override whose validity ends at a moment: earlier than it began, it was never in force."""
    price = override.price
    end = at if price.valid_from is None else max(at, price.valid_from)
    valid_to = end if price.valid_to is None else min(end, price.valid_to)
    return replace(override, price=replace(price, valid_to=valid_to), dropped_at=now, dropped_by=author, drop_reason=reason)
