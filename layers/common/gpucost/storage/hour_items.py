"""Writes an hour's record as items under the id of a run, all but its manifest, and reads them."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Literal

from msgspec.structs import replace

from gpucost.core.amounts import SCALE
from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import IntegrityError, SourceError
from gpucost.core.hour_record import LINE_AMOUNTS, CompactLine, HourRecord, Line
from gpucost.core.ledger import HourSummary, Manifest, Retention, content_digest
from gpucost.runtime.observability import logger
from gpucost.storage import compressed_documents
from gpucost.storage.table import (
    SCHEMA_VERSION,
    Item,
    business_unit_hash,
    check_schema_version,
    format_hour,
    integer,
    key,
    lines_partition_key,
    partition_key,
    text,
    to_epoch_seconds,
    verify_integrity,
)

# Writes one business unit's lines of an hour as items, and reads them.
#
# A document has a column per field, by the field's name, or a single cell if all rows have the same. So fields may
# change their order, and later versions may add fields. Each item says how many chunks there are, so that a missing
# chunk is noticed.

LINES_SCHEMA_VERSION = 2
_FIELD_NAMES = Line._fields
_OPTIONAL_FIELDS = {
    "resource_claim",
    "dra_driver",
    "instance_type_source",
    *(name for name in LINE_AMOUNTS if Line._field_defaults.get(name, 0) is None),
}
"""Fields that are stored only if a line has them, so that lines without claims and energy are no larger."""
_DECIMAL_FIELDS = {name for name, kind in Line.__annotations__.items() if "Decimal" in str(kind)}
_columns_of_line = itemgetter(*_FIELD_NAMES)
_new_line = partial(tuple.__new__, Line)
"""Makes a line of the cells of all its fields, faster than `Line._make`."""


class IncompleteLinesError(SourceError):
    """Chunks of a business unit's lines are missing or damaged; reading again may help."""


def line_items(pk: str, group: str, lines: Sequence[Line], expires_at: int) -> list[Item]:
    """Return one business unit's lines as items.

    Args:
        pk: the partition of the hour's lines.
        group: run and business unit, with which the sort keys begin.
        lines: the business unit's lines.
        expires_at: expiry in seconds since the epoch.
    """
    columns = {name: _column(cells) for name, cells in zip(_FIELD_NAMES, zip(*lines, strict=True), strict=True)}
    document = {
        "rows": len(lines),
        "columns": {name: column for name, column in columns.items() if _is_stored(name, column)},
    }
    chunks = compressed_documents.pack(document)
    return [
        {
            **key(pk, f"{group}#{number:04d}"),
            "v": {"N": str(LINES_SCHEMA_VERSION)},
            "k": {"N": str(len(chunks))},
            "b": {"B": chunk},
            "expires_at": {"N": str(expires_at)},
        }
        for number, chunk in enumerate(chunks)
    ]


def read_line_items(items: Iterable[Item]) -> list[Line]:
    """Read the lines in items.

    Raises:
        IncompleteLinesError: a chunk is missing or damaged.
        SourceError: a newer version wrote them.
    """
    return [*map(_new_line, chain.from_iterable(map(_rows, _documents(items))))]


def read_compact_lines(items: Iterable[Item]) -> list[CompactLine]:
    """Read the fields of lines that recommendations need, in a third of the time of `read_line_items`.

    Raises:
        As `read_line_items`.
    """
    return [*chain.from_iterable(map(_read_compact_lines, _documents(items)))]


def _documents(items: Iterable[Item]) -> Iterator[Any]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        check_schema_version(item, LINES_SCHEMA_VERSION)
        groups.setdefault(_group_of(item), []).append(item)
    return map(_document, groups.values())


def _group_of(item: Item) -> str:
    """Return the run and business unit in an item's sort key."""
    return text(item, "sk").rsplit("#", 1)[0]


def _document(items: Sequence[Item]) -> Any:
    """Read one business unit's document."""
    chunks = integer(items[0], "k")
    if len(items) != chunks:
        raise IncompleteLinesError(f"lines {text(items[0], 'pk')!r} are incomplete: {len(items)} of {chunks} chunks")
    try:
        return compressed_documents.unpack(items)
    except IntegrityError:
        raise IncompleteLinesError(f"lines {text(items[0], 'pk')!r} are damaged") from None


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Read the fields of lines. Fields that a later version added are ignored."""
    rows, stored = document["rows"], {**Line._field_defaults, **document["columns"]}
    for name in _DECIMAL_FIELDS:
        column = stored[name]
        stored[name] = [*map(_decimal, column)] if isinstance(column, list) else _decimal(column)
    columns = [column if type(column) is list else repeat(column, rows) for column in _columns_of_line(stored)]
    return zip(*columns, strict=True)


def _read_compact_lines(document: Mapping[str, Any]) -> Iterator[CompactLine]:
    """Read the columns that recommendations need, as floats (docs/decisions/0043)."""
    rows, stored = document["rows"], document["columns"]
    columns: list[Iterable[Any]] = []
    for name in CompactLine._fields:
        column, convert = stored[name], _FLOATS.get(name)
        if not isinstance(column, list):
            columns.append(repeat(convert(column) if convert else column, rows))
        else:
            columns.append(map(convert, column) if convert else column)
    return map(CompactLine, *columns)


def _ratio(number: str | None) -> float | None:
    return None if number is None else float(number)


def _amount(amount: int | None) -> float | None:
    return None if amount is None else amount / SCALE


_FLOATS: dict[str, Callable[[Any], float | None]] = {
    **dict.fromkeys(_DECIMAL_FIELDS, _ratio),
    **dict.fromkeys(LINE_AMOUNTS, _amount),
}


def _is_stored(name: str, column: Any) -> bool:
    """Whether a column is stored: not if no line has an optional field."""
    return name not in _OPTIONAL_FIELDS or (column is not None and column != "")


def _column(cells: Sequence[Any]) -> Any:
    """Return all cells, or a single one if all have the same text. (`1.0` equals `1`, but its text differs.)"""
    first = cells[0]
    if cells.count(first) < len(cells) or (isinstance(first, Decimal) and len({*map(str, cells)}) > 1):
        return cells
    return first


def _decimal(number: str | None) -> Decimal | None:
    return None if number is None else parse_decimal(number)


# All items of an hour but its manifest, under the id of a run.

DocumentKind = Literal["summaries", "nodes", "models", "usage"]
"""What a version of an hour writes in chunks, each kind into a partition of its own."""


def hour_items(record: HourRecord, run: str, now: datetime, retention: Retention) -> list[Item]:
    """Return all items of a record except its manifest; `run` is the id that `run_id_of` returns."""
    hour, cluster = format_hour(record.hour), record.cluster
    items: list[Item] = []
    lines_end, hours_end = now + retention.lines, now + retention.hours
    if record.status != "incomplete":
        items += _summary_items(record, run, hours_end)
        if record.nodes or record.charges:
            document = compressed_documents.nodes_document(record)
            items += hour_chunk_items(cluster, "nodes", record.hour, run, document, lines_end)
        if record.models:
            models = compressed_documents.models_document(record.models)
            items += hour_chunk_items(cluster, "models", record.hour, run, models, hours_end)
        by_unit: dict[str, list[Line]] = {}
        for line in record.lines:
            by_unit.setdefault(line.business_unit, []).append(line)
        for unit, lines in by_unit.items():
            pk = lines_partition_key(cluster, record.hour)
            items += line_items(pk, f"{run}#{business_unit_hash(unit)}", lines, to_epoch_seconds(lines_end))
    if record.notes:
        items.append(_item(partition_key(cluster, "notes"), f"{hour}#{run}", _notes(record.notes), hours_end))
    return items


def hour_chunk_items(
    cluster: str, kind: DocumentKind, hour: datetime, run: str, document: Any, expires_at: datetime
) -> list[Item]:
    """Return an hour's document as items, one per chunk."""
    return [
        _item(partition_key(cluster, kind), f"{format_hour(hour)}#{run}#{number:04d}", chunk, expires_at)
        for number, chunk in enumerate(compressed_documents.pack(document))
    ]


def _summary_items(record: HourRecord, run: str, expires_at: datetime) -> list[Item]:
    """A summary's items. The totals are an attribute of their own, for readers that need only them."""
    document = compressed_documents.groups_document(record.by_namespace())
    first, *others = hour_chunk_items(record.cluster, "summaries", record.hour, run, document, expires_at)
    totals: Item = {"t": {"S": compressed_documents.totals_text(record.totals)}} if record.totals else {}
    return [{**first, **totals}, *others]


def read_summary(manifest: Manifest, items: Sequence[Item]) -> HourSummary:
    """Read a version's summary from its items, which are in order.

    Without items, the summary has expired and has no figures. An hour with implausibly large amounts has no figures
    either, and its manifest counts as incomplete.

    Raises:
        IntegrityError: the items are damaged, or missing although they cannot have expired.
    """
    totals = None
    if items:
        with verify_integrity(items[0]):
            totals = compressed_documents.read_totals_text(text(items[0], "t"))
    elif manifest.status != "incomplete" and not _has_expired(manifest):
        raise IntegrityError(
            f"the figures of {manifest.cluster} {format_hour(manifest.hour)} are missing from the ledger, though "
            "they have not expired. Restate the hour to write them again: gpucost hours restate"
        )
    if totals is not None and not totals.are_plausible():
        logger.warning("an hour's figures are implausibly large", cluster=manifest.cluster, hour=manifest.hour)
        manifest, totals, items = replace(manifest, status="incomplete"), None, ()
    costs = compressed_documents.read_summary_costs(items)
    return HourSummary(manifest.cluster, manifest.hour, (manifest,), totals, costs)


def _has_expired(manifest: Manifest) -> bool:
    """Whether a version's summary may have expired. A manifest with figures that does not say when is damaged."""
    return manifest.summary_expires_at is not None and to_epoch_seconds(manifest.summary_expires_at) <= time.time()


def run_id_of(record: HourRecord, version: int, *restatement: object) -> str:
    """Return the id of the run that publishes a record, such as `3-9f2c…`. The same content has the same id.

    Args:
        record: the content.
        version: the number that the version will have.
        restatement: facts of a restatement in addition to the figures. Runs whose facts differ have different ids
            (`3-9f2c…-07ab…`), so that a run that loses a race does not overwrite the restatement of the winner.
    """
    run = f"{version}-{content_digest(record)}"
    return f"{run}-{hashlib.sha256(repr(restatement).encode()).hexdigest()[:8]}" if restatement else run


def _item(pk: str, sk: str, chunk: bytes, expires_at: datetime) -> Item:
    return {
        **key(pk, sk),
        "v": {"N": str(SCHEMA_VERSION)},
        "b": {"B": chunk},
        "expires_at": {"N": str(to_epoch_seconds(expires_at))},
    }


def _notes(notes: Sequence[str]) -> bytes:
    """Compress as many notes as fit one item, and say how many more there are."""
    kept = [note[:1000] for note in notes[:1000]]
    while True:
        omitted = len(notes) - len(kept)
        chunks = compressed_documents.pack([*kept, f"and {omitted} more notes"] if omitted else kept)
        if len(chunks) == 1:
            return chunks[0]
        kept = kept[: len(kept) // 2]


def read_notes(item: Item) -> tuple[str, ...]:
    """Read the notes in an item."""
    return compressed_documents.unpack([item], tuple)
