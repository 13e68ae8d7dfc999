"""An hour's record as items: all but its manifest, under the id of the run that writes them."""

import hashlib
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpucost.core.errors import IntegrityError
from gpucost.core.ledger import HourSummary, Manifest, Retention, content_digest, summarize
from gpucost.core.model import HourRecord, Line
from gpucost.runtime.observability import logger
from gpucost.storage import compressed_documents as blobs
from gpucost.storage import keys
from gpucost.storage.line_items import line_items
from gpucost.storage.table import FORMAT, Item, key, text, verify_integrity


def hour_items(record: HourRecord, run: str, version: int, now: datetime, retention: Retention) -> list[Item]:
    """Everything but the manifest; `run` is the id that `run_id_of` gives."""
    hour, cluster = keys.hour(record.hour), record.cluster
    items: list[Item] = []
    lines_end, hours_end = now + retention.lines, now + retention.hours
    if record.status != "incomplete":
        items += _summary_items(summarize(record, version), run, hours_end)
        if record.nodes or record.charges:
            items += pieces(keys.partition(cluster, "nodes"), record.hour, run, blobs.nodes_document(record), lines_end)
        by_unit: dict[str, list[Line]] = {}
        for line in record.lines:
            by_unit.setdefault(line.business_unit, []).append(line)
        for unit, lines in by_unit.items():
            pk = keys.lines(cluster, record.hour)
            items += line_items(pk, f"{run}#{keys.unit(unit)}", lines, keys.seconds(lines_end))
    if record.notes:
        items.append(_item(keys.partition(cluster, "notes"), f"{hour}#{run}", _notes(record.notes), hours_end))
    return items


def pieces(pk: str, hour: datetime, run: str, document: Any, expires: datetime) -> list[Item]:
    """A document of an hour as items."""
    return [
        _item(pk, f"{keys.hour(hour)}#{run}#{place:04d}", piece, expires)
        for place, piece in enumerate(blobs.pack(document))
    ]


def _summary_items(summary: HourSummary, run: str, expires: datetime) -> list[Item]:
    """A summary; its totals are beside the groups, for those who want nothing else."""
    document = blobs.summary_document(summary)
    first, *others = pieces(keys.partition(summary.cluster, "summaries"), summary.hour, run, document, expires)
    totals: Item = {"t": {"S": blobs.totals_text(summary.totals)}} if summary.totals else {}
    return [{**first, **totals}, *others]


def read_summary(manifest: Manifest, items: Sequence[Item]) -> HourSummary:
    """A version's summary from its items, in order; where there are none, it has no figures any more.

    An hour whose figures are beyond reason has none and counts as incomplete.

    Raises:
        IntegrityError: what is there cannot be read, or nothing is and it cannot have expired.
    """
    totals = None
    if items:
        with verify_integrity(items[0]):
            totals = blobs.read_totals_text(text(items[0], "t"))
    elif manifest.status != "incomplete" and not _has_expired(manifest):
        raise IntegrityError(
            f"the figures of {manifest.cluster} {keys.hour(manifest.hour)} are missing from the ledger, though they "
            "have not expired; restating the hour writes them anew"
        )
    usable = totals is None or totals.are_reasonable()
    if not usable:
        logger.warning("an hour's figures are beyond reason", cluster=manifest.cluster, hour=manifest.hour)
    return HourSummary(
        cluster=manifest.cluster,
        hour=manifest.hour,
        status=manifest.status if usable else "incomplete",
        version=manifest.version,
        coverage=manifest.coverage,
        totals=totals if usable else None,
        groups=blobs.read_groups(items if usable else ()),
        currency=manifest.currency,
    )


def _has_expired(manifest: Manifest) -> bool:
    """Whether a version's summary can have expired; a manifest of figures that does not say when is damaged."""
    return manifest.figures_until is not None and keys.seconds(manifest.figures_until) <= time.time()


def run_id_of(record: HourRecord, version: int, *told: object) -> str:
    """Stable for one content: `3-9f2c…`.

    Args:
        record: the content.
        version: that it wants to become.
        told: what a restatement says beside the figures. Two that say it otherwise are two runs (`3-9f2c…-07ab…`), so
            that the one that loses does not overwrite what the other says.
    """
    run = f"{version}-{content_digest(record)}"
    return f"{run}-{hashlib.sha256(repr(told).encode()).hexdigest()[:8]}" if told else run


def _item(pk: str, sk: str, blob: bytes, expires: datetime) -> Item:
    return {
        **key(pk, sk),
        "v": {"N": str(FORMAT)},
        "b": {"B": blob},
        "expires_at": {"N": str(keys.seconds(expires))},
    }


def _notes(notes: Sequence[str]) -> bytes:
    """As many notes as one item holds, and how many more there were."""
    kept = [note[:1000] for note in notes[:1000]]
    while True:
        left = len(notes) - len(kept)
        pieces = blobs.pack([*kept, f"and {left} more notes"] if left else kept)
        if len(pieces) == 1:
            return pieces[0]
        kept = kept[: len(kept) // 2]


def read_notes(item: Item) -> tuple[str, ...]:
    """What an item of notes says."""
    return blobs.unpack([item], tuple)
