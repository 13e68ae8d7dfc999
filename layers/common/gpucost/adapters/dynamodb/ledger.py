"""The ledger: an hour is published by writing its items under a run id, then flipping its manifest (design §5).

| item | pk | sk |
| --- | --- | --- |
| manifest | `C#<cluster>#hours` | `<hour>` |
| notes | `C#<cluster>#notes` | `<hour>#<run>` |
| summary | `C#<cluster>#summaries` | `<hour>#<run>#<piece>` |
| lines of a business unit | `C#<cluster>#lines#<hour>` | `<run>#<unit>#<piece>` |

A run id is the version that it wants to become and a hash of its content: running again after a crash writes the same
items, another content never touches them, and a version once taken can never be taken by a run that lost.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gpucost.adapters.dynamodb import blobs
from gpucost.adapters.dynamodb.table import FORMAT, Item, Table, check_format, key, key_of, text, whole
from gpucost.domain.hours import HOUR
from gpucost.domain.ledger import HourSummary, Manifest, next_attempt, summarize
from gpucost.domain.model import Coverage, HourRecord, Line, Status
from gpucost.errors import ConflictError

LINES_KEPT = timedelta(days=400)
HOURS_KEPT = timedelta(days=5 * 366)
SUPERSEDED_KEPT = timedelta(days=1)
"""Readers that follow the old manifest finish long before."""
_STATUS: dict[str, Status] = {"c": "complete", "p": "provisional", "i": "incomplete"}
_CODE = {status: code for code, status in _STATUS.items()}


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
        item = self._table.get(_hours(cluster), _hour(hour))
        return None if item is None else self._with_notes(_read_manifest(cluster, item))

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """Those in `[start, end)`, oldest first, without their notes: one small query however much they say."""
        return [_read_manifest(cluster, item) for item in self._range(_hours(cluster), start, end)]

    def latest(self, cluster: str) -> Manifest | None:
        """The newest hour that was ever published, without its notes."""
        item = next(self._table.query(_hours(cluster), limit=1, newest_first=True), None)
        return None if item is None else _read_manifest(cluster, item)

    def notes(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, tuple[str, ...]]:
        """Notes of the hours in `[start, end)` that have some."""
        in_force = {manifest.hour: manifest.run_id for manifest in self.manifests(cluster, start, end)}
        found = {}
        for item in self._range(_notes(cluster), start, end):
            hour, run = _parts(item)
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
        last_attempt: datetime | None = None,
    ) -> Manifest:
        """Write a record's items, then put it in force by a conditional write of its manifest.

        Raises:
            ConflictError: the manifest in force is not the one to be replaced, or it has figures and the record has
                none: an incomplete attempt never replaces them. Readers see no change.
            SourceError: the table failed; publishing again is safe.
        """
        if record.status == "incomplete" and replacing is not None and replacing.status != "incomplete":
            raise ConflictError(f"{record.cluster} {record.hour}: an incomplete attempt does not replace figures")
        version = replacing.version + 1 if replacing else 1
        attempts = (replacing.attempts if replacing else 0) + 1 if record.status == "incomplete" else 0
        items = _items(record, version, now)
        manifest = Manifest(
            cluster=record.cluster,
            hour=record.hour,
            status=record.status,
            version=version,
            run_id=_run_id(record, version),
            settings_version=settings_version,
            coverage=record.coverage,
            attempts=attempts,
            next_attempt_at=next_attempt(attempts, now, last_attempt) if attempts else None,
            published_at=now.replace(microsecond=0),
            notes=record.notes,
        )
        self._table.put_all(items)
        try:
            self._flip(manifest, replacing)
        except ConflictError:
            self._clean_up(manifest, items)
            raise
        if replacing is not None:
            self._table.expire(self._keys_of(replacing), int((now + SUPERSEDED_KEPT).timestamp()))
        return manifest

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        """Published hours in `[start, end)`, oldest first; incomplete ones without figures."""
        return self.summaries_of(self.manifests(cluster, start, end))

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        """The summaries of these very versions of one cluster's hours, which are in order."""
        pieces: dict[tuple[datetime, str], list[bytes]] = {}
        known = [manifest for manifest in manifests if manifest.status != "incomplete"]
        if known:
            for item in self._range(_summaries(known[0].cluster), known[0].hour, known[-1].hour + HOUR):
                pieces.setdefault(_parts(item), []).append(item["b"]["B"])
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
                )
            )
        return found

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        """An hour's lines, all or one unit's, in the order in which they were published within a unit."""
        item = self._table.get(_hours(cluster), _hour(hour))
        return [] if item is None else self.lines_of(_read_manifest(cluster, item), business_unit)

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        """The lines of this very version of an hour."""
        start = f"{manifest.run_id}#" + (f"{_unit(business_unit)}#" if business_unit is not None else "")
        pieces: dict[str, list[bytes]] = {}
        partition = _lines(manifest.cluster, manifest.hour)
        for piece in self._table.query(partition, "begins_with(sk, :start)", start=start):
            check_format(piece)
            pieces.setdefault(text(piece, "sk").rsplit("#", 1)[0], []).append(piece["b"]["B"])
        return [line for own in pieces.values() for line in blobs.read_lines(blobs.unpack(own))]

    def _flip(self, manifest: Manifest, replacing: Manifest | None) -> None:
        item = _write_manifest(manifest)
        if replacing is None:
            self._table.put(item, "attribute_not_exists(pk)")
            return
        condition = "n = :version AND r = :run"
        self._table.put(item, condition, {":version": {"N": str(replacing.version)}, ":run": {"S": replacing.run_id}})

    def _clean_up(self, manifest: Manifest, items: Iterable[Item]) -> None:
        """Remove what a lost publication wrote. Its version is taken, so no other run can ever need these items."""
        in_force = self._table.get(_hours(manifest.cluster), _hour(manifest.hour))
        if in_force is not None and text(in_force, "r") != manifest.run_id:
            self._table.delete_all(key_of(item) for item in items)

    def _keys_of(self, manifest: Manifest) -> list[Item]:
        cluster, hour, run = manifest.cluster, _hour(manifest.hour), manifest.run_id
        items = [
            *self._table.query(_summaries(cluster), "begins_with(sk, :start)", start=f"{hour}#{run}#"),
            *self._table.query(_lines(cluster, manifest.hour), "begins_with(sk, :start)", start=f"{run}#"),
            *self._table.query(_notes(cluster), "begins_with(sk, :start)", start=f"{hour}#{run}"),
        ]
        return [key_of(item) for item in items]

    def _with_notes(self, manifest: Manifest) -> Manifest:
        from dataclasses import replace

        item = self._table.get(_notes(manifest.cluster), f"{_hour(manifest.hour)}#{manifest.run_id}")
        return manifest if item is None else replace(manifest, notes=_read_notes(item))

    def _range(self, pk: str, start: datetime, end: datetime) -> Iterable[Item]:
        if start >= end:
            return
        # `~` sorts after every character of a key, so that all items of the last hour are in.
        last = f"{_hour(end - HOUR)}~"
        for item in self._table.query(pk, "sk BETWEEN :first AND :last", first=_hour(start), last=last):
            check_format(item)
            yield item


def _items(record: HourRecord, version: int, now: datetime) -> list[Item]:
    """Everything but the manifest."""
    run, hour, cluster = _run_id(record, version), _hour(record.hour), record.cluster
    items: list[Item] = []
    lines_end, hours_end = _seconds(now + LINES_KEPT), _seconds(now + HOURS_KEPT)
    if record.status != "incomplete":
        document = blobs.summary_document(summarize(record, version))
        for place, piece in enumerate(blobs.pack(document)):
            items.append(_item(_summaries(cluster), f"{hour}#{run}#{place:04d}", piece, hours_end))
        by_unit: dict[str, list[Line]] = {}
        for line in record.lines:
            by_unit.setdefault(line.business_unit, []).append(line)
        for unit, lines in by_unit.items():
            for place, piece in enumerate(blobs.pack(blobs.lines_document(lines))):
                items.append(_item(_lines(cluster, record.hour), f"{run}#{_unit(unit)}#{place:04d}", piece, lines_end))
    if record.notes:
        (piece, *_) = blobs.pack([note[:1000] for note in record.notes[:1000]])
        items.append(_item(_notes(cluster), f"{hour}#{run}", piece, hours_end))
    return items


def _run_id(record: HourRecord, version: int) -> str:
    """Stable for one content: `3-9f2c…`."""
    digest = hashlib.sha256(repr((record.status, record.coverage, record.totals, record.lines, record.notes)).encode())
    return f"{version}-{digest.hexdigest()[:16]}"


def _item(pk: str, sk: str, blob: bytes, expires_at: int) -> Item:
    return {
        **key(pk, sk),
        "v": {"N": str(FORMAT)},
        "b": {"B": blob},
        "expires_at": {"N": str(expires_at)},
    }


def _write_manifest(manifest: Manifest) -> Item:
    item: dict[str, dict[str, str]] = {
        **key(_hours(manifest.cluster), _hour(manifest.hour)),
        "v": {"N": str(FORMAT)},
        "s": {"S": _CODE[manifest.status]},
        "n": {"N": str(manifest.version)},
        "r": {"S": manifest.run_id},
        "x": {"N": str(manifest.settings_version)},
        "p": {"N": str(_seconds(manifest.published_at))},
        "expires_at": {"N": str(_seconds(manifest.published_at + HOURS_KEPT))},
    }
    if manifest.coverage is not None:
        item["ca"] = {"N": str(manifest.coverage.allocation)}
        if manifest.coverage.utilization is not None:
            item["cu"] = {"N": str(manifest.coverage.utilization)}
    if manifest.attempts:
        item["a"] = {"N": str(manifest.attempts)}
    if manifest.next_attempt_at is not None:
        item["t"] = {"N": str(_seconds(manifest.next_attempt_at))}
    return item


def _read_manifest(cluster: str, item: Item) -> Manifest:
    check_format(item)
    coverage = None
    if "ca" in item:
        coverage = Coverage(Decimal(item["ca"]["N"]), Decimal(item["cu"]["N"]) if "cu" in item else None)
    return Manifest(
        cluster=cluster,
        hour=_read_hour(text(item, "sk")),
        status=_STATUS[text(item, "s")],
        version=whole(item, "n"),
        run_id=text(item, "r"),
        settings_version=whole(item, "x"),
        coverage=coverage,
        attempts=whole(item, "a"),
        next_attempt_at=_read_instant(whole(item, "t")) if "t" in item else None,
        published_at=_read_instant(whole(item, "p")),
    )


def _read_notes(item: Item) -> tuple[str, ...]:
    return tuple(blobs.unpack([item["b"]["B"]]))


def _parts(item: Item) -> tuple[datetime, str]:
    hour, run, *_ = text(item, "sk").split("#")
    return _read_hour(hour), run


def _unit(business_unit: str) -> str:
    """A unit in a key: its name may be long and hold anything."""
    return hashlib.sha256(business_unit.encode()).hexdigest()[:24]


def _hours(cluster: str) -> str:
    return f"C#{cluster}#hours"


def _notes(cluster: str) -> str:
    return f"C#{cluster}#notes"


def _summaries(cluster: str) -> str:
    return f"C#{cluster}#summaries"


def _lines(cluster: str, hour: datetime) -> str:
    return f"C#{cluster}#lines#{_hour(hour)}"


def _hour(hour: datetime) -> str:
    return hour.astimezone(UTC).strftime("%Y-%m-%dT%H")


def _read_hour(text_: str) -> datetime:
    return datetime.strptime(text_, "%Y-%m-%dT%H").replace(tzinfo=UTC)


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def _read_instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
