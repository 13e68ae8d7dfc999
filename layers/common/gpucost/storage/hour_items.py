"""Writes an hour's record as items under the id of a run, all but its manifest, and reads them."""

import hashlib
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec.structs import replace

from gpucost.core.errors import IntegrityError
from gpucost.core.hour_record import HourRecord, Line
from gpucost.core.ledger import HourSummary, Manifest, Retention, content_digest
from gpucost.runtime.observability import logger
from gpucost.storage import compressed_documents, keys
from gpucost.storage.line_items import line_items
from gpucost.storage.table import SCHEMA_VERSION, Item, key, text, verify_integrity

DocumentKind = Literal["summaries", "nodes", "models", "usage"]
"""What a version of an hour writes in chunks, each kind into a partition of its own."""


def hour_items(record: HourRecord, run: str, now: datetime, retention: Retention) -> list[Item]:
    """Return all items of a record except its manifest; `run` is the id that `run_id_of` returns."""
    hour, cluster = keys.format_hour(record.hour), record.cluster
    items: list[Item] = []
    lines_end, hours_end = now + retention.lines, now + retention.hours
    if record.status != "incomplete":
        items += _summary_items(record, run, hours_end)
        if record.nodes or record.charges:
            document = compressed_documents.nodes_document(record)
            items += chunk_items(cluster, "nodes", record.hour, run, document, lines_end)
        if record.models:
            models = compressed_documents.models_document(record.models)
            items += chunk_items(cluster, "models", record.hour, run, models, hours_end)
        by_unit: dict[str, list[Line]] = {}
        for line in record.lines:
            by_unit.setdefault(line.business_unit, []).append(line)
        for unit, lines in by_unit.items():
            pk = keys.lines_partition(cluster, record.hour)
            items += line_items(pk, f"{run}#{keys.business_unit_hash(unit)}", lines, keys.to_epoch_seconds(lines_end))
    if record.notes:
        items.append(_item(keys.partition(cluster, "notes"), f"{hour}#{run}", _notes(record.notes), hours_end))
    return items


def chunk_items(
    cluster: str, kind: DocumentKind, hour: datetime, run: str, document: Any, expires_at: datetime
) -> list[Item]:
    """Return an hour's document as items, one per chunk."""
    return [
        _item(keys.partition(cluster, kind), f"{keys.format_hour(hour)}#{run}#{number:04d}", chunk, expires_at)
        for number, chunk in enumerate(compressed_documents.pack(document))
    ]


def _summary_items(record: HourRecord, run: str, expires_at: datetime) -> list[Item]:
    """A summary's items. The totals are an attribute of their own, for readers that need only them."""
    document = compressed_documents.groups_document(record.by_namespace())
    first, *others = chunk_items(record.cluster, "summaries", record.hour, run, document, expires_at)
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
            f"the figures of {manifest.cluster} {keys.format_hour(manifest.hour)} are missing from the ledger, though "
            "they have not expired. Restate the hour to write them again: gpucost hours restate"
        )
    if totals is not None and not totals.are_plausible():
        logger.warning("an hour's figures are implausibly large", cluster=manifest.cluster, hour=manifest.hour)
        manifest, totals, items = replace(manifest, status="incomplete"), None, ()
    costs = compressed_documents.read_summary_costs(items)
    return HourSummary(manifest.cluster, manifest.hour, (manifest,), totals, costs)


def _has_expired(manifest: Manifest) -> bool:
    """Whether a version's summary may have expired. A manifest with figures that does not say when is damaged."""
    return manifest.summary_expires_at is not None and keys.to_epoch_seconds(manifest.summary_expires_at) <= time.time()


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
        "expires_at": {"N": str(keys.to_epoch_seconds(expires_at))},
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
