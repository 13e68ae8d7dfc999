"""Prices, overrides, shapes and changes as compressed documents of the ledger's table."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from gpucost.core.hours import format_timestamp, parse_timestamp
from gpucost.core.pricing.price_changes import Override, PriceChange
from gpucost.core.pricing.price_history import PriceEvent, PriceKey, Timeline, Timelines, from_epoch_seconds
from gpucost.core.pricing.price_split import InstanceShape
from gpucost.core.pricing.prices import Price
from gpucost.storage import compressed_documents
from gpucost.storage.table import FORMAT, ConditionalPut, Item, check_format, integer, key

BOOK, PENDING, SETTLED = "PRICES", "PRICES#pending", "PRICES#settled"


def timelines_document(timelines: Timelines, base: int = 0) -> dict[str, Any]:
    """Timelines with their times as distances from a base, and each name and moment of fetching once."""
    fetched = sorted({event.fetched_at for events in timelines.values() for event in events})
    places = {moment: place for place, moment in enumerate(fetched)}
    return {
        "fetched": fetched,
        "prices": [
            [dict(key.applies_to), key.unit, [_event(event, base, places) for event in events]]
            for key, events in sorted(timelines.items())
        ],
    }


def read_timelines(document: Mapping[str, Any], base: int = 0) -> dict[PriceKey, Timeline]:
    """Back from `timelines_document`."""
    fetched = document["fetched"]
    return {
        PriceKey(tuple(sorted(applies_to.items())), unit): tuple(_read_event(row, base, fetched) for row in events)
        for applies_to, unit, events in document["prices"]
    }


def _event(event: PriceEvent, base: int, places: Mapping[int, int]) -> list[Any]:
    row = [event.at - base, None if event.amount is None else str(event.amount), places[event.fetched_at]]
    return row if event.currency == "USD" else [*row, event.currency]


def _read_event(row: Sequence[Any], base: int, fetched: Sequence[int]) -> PriceEvent:
    at, amount, place, *foreign = row
    currency = foreign[0] if foreign else "USD"
    return PriceEvent(at + base, None if amount is None else Decimal(amount), currency, fetched[place])


def overrides_document(overrides: Iterable[Override]) -> list[dict[str, Any]]:
    """Overrides in order."""
    return [
        {
            "id": one.id,
            "applies_to": dict(one.price.applies_to),
            "unit": one.price.unit,
            "amount": str(one.price.amount),
            "currency": one.price.currency,
            "from": _moment(one.price.valid_from),
            "to": _moment(one.price.valid_to),
            "set_at": _moment(one.price.fetched_at),
            "set_to": _moment(one.set_to),
            "author": one.price.author,
            "reason": one.price.reason,
            "dropped_at": _moment(one.dropped_at),
            "dropped_by": one.dropped_by,
            "drop_reason": one.drop_reason,
        }
        for one in overrides
    ]


def read_overrides(document: Iterable[Mapping[str, Any]]) -> list[Override]:
    """Back from `overrides_document`."""
    return [
        Override(
            id=one["id"],
            price=Price(
                source="override",
                unit=one["unit"],
                amount=Decimal(one["amount"]),
                applies_to=one["applies_to"],
                currency=one["currency"],
                valid_from=_read_moment(one["from"]),
                valid_to=_read_moment(one["to"]),
                fetched_at=_read_moment(one["set_at"]),
                author=one["author"],
                reason=one["reason"],
            ),
            set_to=_read_moment(one["set_to"]),
            dropped_at=_read_moment(one["dropped_at"]),
            dropped_by=one["dropped_by"],
            drop_reason=one["drop_reason"],
        )
        for one in document
    ]


def shapes_document(shapes: Mapping[str, InstanceShape]) -> list[list[Any]]:
    """Shapes as rows."""
    return [
        [one.instance_type, one.gpus if isinstance(one.gpus, int) else str(one.gpus), one.vcpus, one.memory_mib]
        for _, one in sorted(shapes.items())
    ]


def read_shapes(document: Iterable[Sequence[Any]]) -> dict[str, InstanceShape]:
    """Back from `shapes_document`."""
    return {
        row[0]: InstanceShape(row[0], gpus if isinstance(gpus := row[1], int) else Fraction(gpus), *row[2:])
        for row in document
    }


def change_document(change: PriceChange) -> dict[str, Any]:
    """One change."""
    return {
        "id": change.id,
        "source": change.source,
        "applies_to": {name: list(values) for name, values in change.applies_to.items()},
        "from": _moment(change.start),
        "to": _moment(change.end),
        "why": change.reason,
        "author": change.author,
        "at": _moment(change.at),
    }


def read_change(document: Mapping[str, Any], settled_at: datetime | None) -> PriceChange:
    """Back from `change_document`."""
    return PriceChange(
        id=document["id"],
        source=document["source"],
        applies_to={name: tuple(values) for name, values in document["applies_to"].items()},
        start=_read_moment(document["from"]),
        end=parse_timestamp(document["to"]),
        reason=document["why"],
        author=document["author"],
        at=parse_timestamp(document["at"]),
        settled_at=settled_at,
    )


def put_change(change: PriceChange) -> ConditionalPut:
    """A change as one to be rated again; the same one is the same item."""
    piece = b"".join(compressed_documents.pack(change_document(change)))
    return {**key(PENDING, change.id), "v": {"N": str(FORMAT)}, "b": {"B": piece}}, "", None


def change_of(item: Item) -> PriceChange:
    """Back from its item, settled or not."""
    check_format(item)
    settled_at = from_epoch_seconds(integer(item, "t")) if "t" in item else None
    return compressed_documents.unpack([item], lambda document: read_change(document, settled_at))


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_timestamp(moment)


def _read_moment(text: str | None) -> datetime | None:
    return None if text is None else parse_timestamp(text)
