"""The ledger: an hour is published by writing its items under a run id, then flipping its manifest (design §5).

| item | pk | sk |
| --- | --- | --- |
| manifest | `C#<cluster>#hours` | `<hour>` |
| notes | `C#<cluster>#notes` | `<hour>#<run>` |
| summary | `C#<cluster>#summaries` | `<hour>#<run>#<piece>` |
| lines of a business unit | `C#<cluster>#lines#<hour>` | `<run>#<unit>#<piece>` |
| nodes | `C#<cluster>#nodes` | `<hour>#<run>#<piece>` |
| usage | `C#<cluster>#usage` | `<hour>#<run that metered>#<piece>` |
| restatement | `C#<cluster>#restatements` | `<hour>#<run>` |

A run id is the version that it wants to become and a hash of its content: running again after a crash writes the same
items, another content never touches them, and a version once taken can never be taken by a run that lost.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpucost.adapters.dynamodb import blobs, keys
from gpucost.adapters.dynamodb.manifests import HOURS_KEPT, read_manifest, write_manifest
from gpucost.adapters.dynamodb.restated import chained, restatement_item
from gpucost.adapters.dynamodb.table import FORMAT, Item, Table, check_format, key, key_of, text
from gpucost.adapters.dynamodb.usage_blobs import read_usage, usage_document
from gpucost.domain.hours import HOUR
from gpucost.domain.ledger import (
    HourSummary,
    Manifest,
    Restatement,
    changes,
    content_digest,
    next_attempt,
    summarize,
)
from gpucost.domain.model import ClusterCharge, HourRecord, Line, NodeHour
from gpucost.domain.usage import Usage
from gpucost.errors import ConflictError

LINES_KEPT = timedelta(days=400)
SUPERSEDED_KEPT = timedelta(days=1)
"""Readers that follow the old manifest finish long before."""


class DynamoLedger:
    """Fulfils `ports.Ledger`.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._table = Table(client, table)

    def manifest(self, cluster: str, hour: datetime) -> Manifest | None:
        """The version of an hour that is in force, with its notes."""
        item = self._table.get(keys.partition(cluster, "hours"), keys.hour(hour))
        return None if item is None else self._with_notes(read_manifest(cluster, item))

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """Those in `[start, end)`, oldest first, without their notes: one small query however much they say."""
        return [read_manifest(cluster, item) for item in self._range(keys.partition(cluster, "hours"), start, end)]

    def latest(self, cluster: str) -> Manifest | None:
        """The newest hour that was ever published, without its notes."""
        item = next(self._table.query(keys.partition(cluster, "hours"), limit=1, newest_first=True), None)
        return None if item is None else read_manifest(cluster, item)

    def notes(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, tuple[str, ...]]:
        """Notes of the hours in `[start, end)` that have some."""
        in_force = {manifest.hour: manifest.run_id for manifest in self.manifests(cluster, start, end)}
        found = {}
        for item in self._range(keys.partition(cluster, "notes"), start, end):
            hour, run = keys.parts(item)
            if in_force.get(hour) == run:
                found[hour] = _read_notes(item)
        return found

    def publish(
        self,
        record: HourRecord,
        *,
        replacing: Manifest | None,
        settings_version: int,
        now: datetime,
        usage: Usage | None = None,
        why: str = "",
        last_attempt: datetime | None = None,
    ) -> Manifest:
        """Write a record's items, then put it in force by a conditional write of its manifest.

        Args:
            record: what is to be in force.
            replacing: the version in force so far, if any.
            settings_version: under which the record was made.
            now: the time.
            usage: what the record was rated from; None keeps the usage of the version before.
            why: of a restatement; it is kept beside the hour with what changed.

        Raises:
            ConflictError: the manifest in force is not the one to be replaced, or it has figures and the record has
                none: an incomplete attempt never replaces them. Readers see no change.
            SourceError: the table failed; publishing again is safe.
        """
        if record.status == "incomplete" and replacing is not None and replacing.status != "incomplete":
            raise ConflictError(f"{record.cluster} {record.hour}: an incomplete attempt does not replace figures")
        version = replacing.version + 1 if replacing else 1
        attempts = (replacing.attempts if replacing else 0) + 1 if record.status == "incomplete" else 0
        run_id = _run_id(record, version)
        items = _items(record, version, now)
        if usage is not None:
            items += _pieces(
                keys.partition(record.cluster, "usage"), record.hour, run_id, usage_document(usage), now + LINES_KEPT
            )
        if why and replacing is not None and record.totals is not None:
            items += self._restated(record, replacing, run_id, why, settings_version, now)
        manifest = Manifest(
            cluster=record.cluster,
            hour=record.hour,
            status=record.status,
            version=version,
            run_id=run_id,
            settings_version=settings_version,
            coverage=record.coverage,
            attempts=attempts,
            next_attempt_at=next_attempt(attempts, now, last_attempt) if attempts else None,
            published_at=now.replace(microsecond=0),
            notes=record.notes,
            usage_id=run_id if usage is not None else replacing.usage_id if replacing else "",
            currency=record.currency,
        )
        self._table.put_all(items)
        try:
            self._flip(manifest, replacing)
        except ConflictError:
            self._clean_up(manifest, items)
            raise
        if replacing is not None:
            self._table.expire(self._keys_of(replacing, manifest.usage_id), int((now + SUPERSEDED_KEPT).timestamp()))
        return manifest

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        """Published hours in `[start, end)`, oldest first; incomplete ones without figures."""
        return self.summaries_of(self.manifests(cluster, start, end))

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        """The summaries of these very versions of one cluster's hours, which are in order."""
        pieces: dict[tuple[datetime, str], list[bytes]] = {}
        known = [manifest for manifest in manifests if manifest.status != "incomplete"]
        if known:
            partition = keys.partition(known[0].cluster, "summaries")
            for item in self._range(partition, known[0].hour, known[-1].hour + HOUR):
                pieces.setdefault(keys.parts(item), []).append(item["b"]["B"])
        found = []
        for manifest in manifests:
            own = pieces.get((manifest.hour, manifest.run_id))
            document = blobs.unpack(own) if own else {"costs": None, "capacity": None, "groups": []}
            found.append(
                HourSummary(
                    cluster=manifest.cluster,
                    hour=manifest.hour,
                    status=manifest.status,
                    version=manifest.version,
                    coverage=manifest.coverage,
                    totals=blobs.read_totals(document),
                    groups=blobs.read_groups(document),
                    currency=manifest.currency,
                )
            )
        return found

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        """An hour's lines, all or one unit's, in the order in which they were published within a unit."""
        item = self._table.get(keys.partition(cluster, "hours"), keys.hour(hour))
        return [] if item is None else self.lines_of(read_manifest(cluster, item), business_unit)

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        """The lines of this very version of an hour."""
        start = f"{manifest.run_id}#" + (f"{keys.unit(business_unit)}#" if business_unit is not None else "")
        pieces: dict[str, list[bytes]] = {}
        partition = keys.lines(manifest.cluster, manifest.hour)
        for piece in self._table.query(partition, "begins_with(sk, :start)", start=start):
            check_format(piece)
            pieces.setdefault(text(piece, "sk").rsplit("#", 1)[0], []).append(piece["b"]["B"])
        return [line for own in pieces.values() for line in blobs.read_lines(blobs.unpack(own))]

    def nodes(self, cluster: str, hour: datetime) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """What each node of an hour cost, and what was paid for without one."""
        manifest = self.manifest(cluster, hour)
        return self.nodes_of(manifest) if manifest else ((), ())

    def nodes_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """The nodes of this very version of an hour, and what was paid for without one."""
        own = self._pieces_of(keys.partition(manifest.cluster, "nodes"), manifest.hour, manifest.run_id)
        return blobs.read_nodes(blobs.unpack(own)) if own else ((), ())

    def all_nodes(self, cluster: str, start: datetime, end: datetime) -> Iterator[NodeHour]:
        """The nodes of every hour in `[start, end)`, one query for each day."""
        while start < end:
            until = min(start + timedelta(days=1), end)
            in_force = {manifest.hour: manifest.run_id for manifest in self.manifests(cluster, start, until)}
            pieces: dict[datetime, list[bytes]] = {}
            for item in self._range(keys.partition(cluster, "nodes"), start, until):
                hour, run = keys.parts(item)
                if in_force.get(hour) == run:
                    pieces.setdefault(hour, []).append(item["b"]["B"])
            for own in pieces.values():
                yield from blobs.read_nodes(blobs.unpack(own))[0]
            start = until

    def usage(self, manifest: Manifest) -> Usage | None:
        """The usage that a version was rated from; None where it is not (or no longer) kept."""
        if not manifest.usage_id:
            return None
        own = self._pieces_of(keys.partition(manifest.cluster, "usage"), manifest.hour, manifest.usage_id)
        return read_usage(manifest.cluster, manifest.hour, blobs.unpack(own)) if own else None

    def restatements(self, cluster: str, start: datetime, end: datetime) -> list[Restatement]:
        """What replaced figures in hours of `[start, end)`: oldest hour first, its versions in their order."""
        in_force = {manifest.hour: manifest.run_id for manifest in self.manifests(cluster, start, end)}
        items = {keys.parts(item): item for item in self._range(keys.partition(cluster, "restatements"), start, end)}
        return [one for hour, run in in_force.items() for one in chained(items, cluster, hour, run)]

    def _restated(
        self, record: HourRecord, replacing: Manifest, run_id: str, why: str, settings_version: int, now: datetime
    ) -> list[Item]:
        """What a restatement changes, as items; none where the version before had no figures."""
        (before,) = self.summaries(record.cluster, record.hour, record.hour + HOUR)
        if before.version != replacing.version or before.totals is None or record.totals is None:
            return []
        restatement = Restatement(
            cluster=record.cluster,
            hour=record.hour,
            version=replacing.version + 1,
            restated_at=now.replace(microsecond=0),
            settings_version=settings_version,
            why=why,
            before=before.totals,
            after=record.totals,
            units=changes(before.groups, record),
            currency=record.currency,
            currency_before=replacing.currency,
        )
        return [restatement_item(restatement, run_id, replacing.run_id, now + HOURS_KEPT)]

    def _pieces_of(self, pk: str, hour: datetime, run: str) -> list[bytes]:
        pieces = list(self._table.query(pk, "begins_with(sk, :start)", start=f"{keys.hour(hour)}#{run}#"))
        for piece in pieces:
            check_format(piece)
        return [piece["b"]["B"] for piece in pieces]

    def _flip(self, manifest: Manifest, replacing: Manifest | None) -> None:
        item = write_manifest(manifest)
        if replacing is None:
            self._table.put(item, "attribute_not_exists(pk)")
            return
        condition = "n = :version AND r = :run"
        self._table.put(item, condition, {":version": {"N": str(replacing.version)}, ":run": {"S": replacing.run_id}})

    def _clean_up(self, manifest: Manifest, items: Iterable[Item]) -> None:
        """Remove what a lost publication wrote. Its version is taken, so no other run can ever need these items."""
        in_force = self._table.get(keys.partition(manifest.cluster, "hours"), keys.hour(manifest.hour))
        if in_force is not None and text(in_force, "r") != manifest.run_id:
            self._table.delete_all(key_of(item) for item in items)

    def _keys_of(self, manifest: Manifest, usage_kept: str) -> list[Item]:
        """The items of a superseded version; its usage only where the next version does not go on using it."""
        cluster, hour, run = manifest.cluster, keys.hour(manifest.hour), manifest.run_id
        items = [
            *self._table.query(keys.partition(cluster, "summaries"), "begins_with(sk, :start)", start=f"{hour}#{run}#"),
            *self._table.query(keys.lines(cluster, manifest.hour), "begins_with(sk, :start)", start=f"{run}#"),
            *self._table.query(keys.partition(cluster, "nodes"), "begins_with(sk, :start)", start=f"{hour}#{run}#"),
            *self._table.query(keys.partition(cluster, "notes"), "begins_with(sk, :start)", start=f"{hour}#{run}"),
        ]
        if manifest.usage_id and manifest.usage_id != usage_kept:
            start = f"{hour}#{manifest.usage_id}#"
            items += self._table.query(keys.partition(cluster, "usage"), "begins_with(sk, :start)", start=start)
        return [key_of(item) for item in items]

    def _with_notes(self, manifest: Manifest) -> Manifest:
        from dataclasses import replace

        item = self._table.get(
            keys.partition(manifest.cluster, "notes"), f"{keys.hour(manifest.hour)}#{manifest.run_id}"
        )
        return manifest if item is None else replace(manifest, notes=_read_notes(item))

    def _range(self, pk: str, start: datetime, end: datetime) -> Iterable[Item]:
        if start >= end:
            return
        # `~` sorts after every character of a key, so that all items of the last hour are in.
        last = f"{keys.hour(end - HOUR)}~"
        for item in self._table.query(pk, "sk BETWEEN :first AND :last", first=keys.hour(start), last=last):
            check_format(item)
            yield item


def _items(record: HourRecord, version: int, now: datetime) -> list[Item]:
    """Everything but the manifest."""
    run, hour, cluster = _run_id(record, version), keys.hour(record.hour), record.cluster
    items: list[Item] = []
    lines_end, hours_end = keys.seconds(now + LINES_KEPT), keys.seconds(now + HOURS_KEPT)
    if record.status != "incomplete":
        document = blobs.summary_document(summarize(record, version))
        items += _pieces(keys.partition(cluster, "summaries"), record.hour, run, document, now + HOURS_KEPT)
        if record.nodes or record.charges:
            items += _pieces(
                keys.partition(cluster, "nodes"), record.hour, run, blobs.nodes_document(record), now + LINES_KEPT
            )
        by_unit: dict[str, list[Line]] = {}
        for line in record.lines:
            by_unit.setdefault(line.business_unit, []).append(line)
        for unit, lines in by_unit.items():
            for place, piece in enumerate(blobs.pack(blobs.lines_document(lines))):
                items.append(
                    _item(keys.lines(cluster, record.hour), f"{run}#{keys.unit(unit)}#{place:04d}", piece, lines_end)
                )
    if record.notes:
        (piece, *_) = blobs.pack([note[:1000] for note in record.notes[:1000]])
        items.append(_item(keys.partition(cluster, "notes"), f"{hour}#{run}", piece, hours_end))
    return items


def _pieces(pk: str, hour: datetime, run: str, document: Any, expires: datetime) -> list[Item]:
    """A document of an hour as items."""
    return [
        _item(pk, f"{keys.hour(hour)}#{run}#{place:04d}", piece, keys.seconds(expires))
        for place, piece in enumerate(blobs.pack(document))
    ]


def _run_id(record: HourRecord, version: int) -> str:
    """Stable for one content: `3-9f2c…`."""
    return f"{version}-{content_digest(record)}"


def _item(pk: str, sk: str, blob: bytes, expires_at: int) -> Item:
    return {
        **key(pk, sk),
        "v": {"N": str(FORMAT)},
        "b": {"B": blob},
        "expires_at": {"N": str(expires_at)},
    }


def _read_notes(item: Item) -> tuple[str, ...]:
    return tuple(blobs.unpack([item["b"]["B"]]))
