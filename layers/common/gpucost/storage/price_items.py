"""Writes prices, overrides, shapes and changes as compressed documents, and reads them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from gpucost.core.decimals import parse_decimal, parse_fraction
from gpucost.core.hours import format_timestamp, parse_timestamp
from gpucost.core.pricing.price_changes import PriceChange, PriceOverride
from gpucost.core.pricing.price_history import PriceEvent, PriceKey, Timeline, Timelines, from_epoch_seconds
from gpucost.core.pricing.price_split import InstanceShape
from gpucost.core.pricing.prices import Price
from gpucost.storage import compressed_documents
from gpucost.storage.table import SCHEMA_VERSION, ConditionalPut, Item, check_schema_version, integer, key

BOOK, PENDING, SETTLED = "PRICES", "PRICES#pending", "PRICES#settled"


def timelines_document(timelines: Timelines, base: int = 0) -> dict[str, Any]:
    """Return timelines as JSON types, with times relative to `base` and each time of fetching stored once."""
    fetched = sorted({event.fetched_at for events in timelines.values() for event in events})
    positions = {time: position for position, time in enumerate(fetched)}
    return {
        "fetched": fetched,
        "prices": [
            [dict(key.applies_to), key.unit, [_event(event, base, positions) for event in events]]
            for key, events in sorted(timelines.items())
        ],
    }


def read_timelines(document: Mapping[str, Any], base: int = 0) -> dict[PriceKey, Timeline]:
    """Read what `timelines_document` returned."""
    fetched = document["fetched"]
    return {
        PriceKey(tuple(sorted(applies_to.items())), unit): tuple(_read_event(row, base, fetched) for row in events)
        for applies_to, unit, events in document["prices"]
    }


def _event(event: PriceEvent, base: int, positions: Mapping[int, int]) -> list[Any]:
    row = [event.at - base, None if event.amount is None else str(event.amount), positions[event.fetched_at]]
    return row if event.currency == "USD" else [*row, event.currency]


def _read_event(row: Sequence[Any], base: int, fetched: Sequence[int]) -> PriceEvent:
    start, amount, position, *currencies = row
    currency = currencies[0] if currencies else "USD"
    return PriceEvent(start + base, None if amount is None else parse_decimal(amount), currency, fetched[position])


def overrides_document(overrides: Iterable[PriceOverride]) -> list[dict[str, Any]]:
    """Return overrides as JSON types, in order."""
    return [
        {
            "id": override.id,
            "applies_to": dict(override.price.applies_to),
            "unit": override.price.unit,
            "amount": str(override.price.amount),
            "currency": override.price.currency,
            "from": _time_text(override.price.valid_from),
            "to": _time_text(override.price.valid_to),
            "set_at": _time_text(override.price.fetched_at),
            "set_to": _time_text(override.original_valid_to),
            "author": override.price.author,
            "reason": override.price.reason,
            "dropped_at": _time_text(override.dropped_at),
            "dropped_by": override.dropped_by,
            "drop_reason": override.drop_reason,
        }
        for override in overrides
    ]


def read_overrides(document: Iterable[Mapping[str, Any]]) -> list[PriceOverride]:
    """Read what `overrides_document` returned."""
    return [
        PriceOverride(
            id=row["id"],
            price=Price(
                source="override",
                unit=row["unit"],
                amount=parse_decimal(row["amount"]),
                applies_to=row["applies_to"],
                currency=row["currency"],
                valid_from=_read_time(row["from"]),
                valid_to=_read_time(row["to"]),
                fetched_at=_read_time(row["set_at"]),
                author=row["author"],
                reason=row["reason"],
            ),
            original_valid_to=_read_time(row["set_to"]),
            dropped_at=_read_time(row["dropped_at"]),
            dropped_by=row["dropped_by"],
            drop_reason=row["drop_reason"],
        )
        for row in document
    ]


def shapes_document(shapes: Mapping[str, InstanceShape]) -> list[list[Any]]:
    """Return shapes as rows of JSON types."""
    return [
        [
            shape.instance_type,
            shape.gpus if isinstance(shape.gpus, int) else str(shape.gpus),
            shape.vcpus,
            shape.memory_mib,
        ]
        for _, shape in sorted(shapes.items())
    ]


def read_shapes(document: Iterable[Sequence[Any]]) -> dict[str, InstanceShape]:
    """Read what `shapes_document` returned."""
    return {
        row[0]: InstanceShape(row[0], gpus if isinstance(gpus := row[1], int) else parse_fraction(gpus), *row[2:])
        for row in document
    }


def change_document(change: PriceChange) -> dict[str, Any]:
    """Return a change as JSON types."""
    return {
        "id": change.id,
        "source": change.source,
        "applies_to": {name: list(options) for name, options in change.applies_to.items()},
        "from": _time_text(change.start),
        "to": _time_text(change.end),
        "reason": change.reason,
        "author": change.author,
        "at": _time_text(change.changed_at),
    }


def read_change(document: Mapping[str, Any], settled_at: datetime | None) -> PriceChange:
    """Read what `change_document` returned."""
    return PriceChange(
        id=document["id"],
        source=document["source"],
        applies_to={name: tuple(options) for name, options in document["applies_to"].items()},
        start=_read_time(document["from"]),
        end=parse_timestamp(document["to"]),
        reason=document["reason"],
        author=document["author"],
        changed_at=parse_timestamp(document["at"]),
        settled_at=settled_at,
    )


def change_put(change: PriceChange) -> ConditionalPut:
    """Return the write of a pending change. The same change is the same item."""
    data = b"".join(compressed_documents.pack(change_document(change)))
    return {**key(PENDING, change.id), "v": {"N": str(SCHEMA_VERSION)}, "b": {"B": data}}, None


def read_change_item(item: Item) -> PriceChange:
    """Read a change from its item, settled or pending."""
    check_schema_version(item)
    settled_at = from_epoch_seconds(integer(item, "t")) if "t" in item else None
    return compressed_documents.unpack([item], lambda document: read_change(document, settled_at))


def _time_text(time: datetime | None) -> str | None:
    return None if time is None else format_timestamp(time)


def _read_time(text: str | None) -> datetime | None:
    return None if text is None else parse_timestamp(text)
