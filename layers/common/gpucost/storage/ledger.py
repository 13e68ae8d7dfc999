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

Which versions of hours are in force, and which months are frozen, is `versions`' business.

A run id is the version that it wants to become and a hash of its content: running again after a crash writes the same
items, and another content never touches them. What a run that lost has written stays until it expires: another run of
the same content may have put these very items in force, or be about to.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from gpucost.core.errors import ConflictError, IntegrityError
from gpucost.core.hours import HOUR, month_of
from gpucost.core.ledger import (
    DEFAULT_RETENTION,
    HourSummary,
    Manifest,
    Restatement,
    Retention,
    changed_business_units,
    next_attempt,
)
from gpucost.core.line_use import LineUse
from gpucost.core.metering.usage import Usage
from gpucost.core.model import ClusterCharge, Costs, HourRecord, Line, NodeHour, Totals
from gpucost.core.money import MAX_AMOUNT, ZERO, is_amount
from gpucost.storage import compressed_documents as blobs
from gpucost.storage import keys
from gpucost.storage.hour_items import hour_items, pieces, read_notes, read_summary, run_id_of
from gpucost.storage.hour_versions import NO_RUN, HourVersions
from gpucost.storage.line_items import IncompleteLinesError, read_line_items, read_line_uses
from gpucost.storage.manifests import read_manifest
from gpucost.storage.restatements import chained, restatement_items
from gpucost.storage.table import Item, Table, check_format
from gpucost.storage.usage_blobs import read_usage, usage_document

T = TypeVar("T")
LATE = "figures that came after the month was frozen"
READINGS = 4
"""Of lines of which a piece was missing or damaged."""
SUPERSEDED_KEPT = timedelta(days=1)
"""Readers that follow the old manifest finish long before."""


class Ledger:
    """Fulfils `ports.Ledger`.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._table = Table(client, table)
        self.versions = HourVersions(self._table)
        """Which version of each hour is in force, and which months are frozen."""

    def manifest(self, cluster: str, hour: datetime) -> Manifest | None:
        """The version of an hour that is in force, with its notes."""
        found = self.versions.in_force(cluster, hour)
        return None if found is None else self._with_notes(found)

    def newest(self, cluster: str, hour: datetime) -> Manifest | None:
        """The version that the next one replaces, with its notes: where a month is frozen, it may stand beside."""
        found = self.versions.newest(cluster, hour)
        return None if found is None else self._with_notes(found)

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """Those in `[start, end)`, oldest first, without their notes: one small query however much they say."""
        return [read_manifest(cluster, item) for item in self._range(keys.partition(cluster, "hours"), start, end)]

    def adjustments(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """The versions recorded beside frozen hours of `[start, end)`, oldest first, without their notes."""
        items = list(self._range(keys.partition(cluster, "beside"), start, end))
        return self.versions.adjustments(cluster, items, self.manifests(cluster, start, end)) if items else []

    def latest(self, cluster: str) -> Manifest | None:
        """The newest hour that was ever published, without its notes."""
        item = next(self._table.query(keys.partition(cluster, "hours"), limit=1, newest_first=True), None)
        return None if item is None else read_manifest(cluster, item)

    def notes_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[str, ...]]:
        """The notes of those versions of one cluster's hours, which are in order, that have some."""
        if not manifests:
            return {}
        meant, found = {(manifest.hour, manifest.run_id) for manifest in manifests}, {}
        partition = keys.partition(manifests[0].cluster, "notes")
        for item in self._range(partition, manifests[0].hour, manifests[-1].hour + HOUR):
            if keys.parts(item) in meant:
                found[keys.parts(item)[0]] = read_notes(item)
        return found

    def publish(
        self,
        record: HourRecord,
        *,
        replacing: Manifest | None,
        settings_version: int,
        now: datetime,
        usage: Usage | None = None,
        reason: str = "",
        last_attempt: datetime | None = None,
        retention: Retention = DEFAULT_RETENTION,
        backfilled: bool = False,
    ) -> Manifest:
        """Write a record's items, then put it in force by a conditional write of its manifest.

        Where the hour's month is frozen, it is recorded beside the version in force, which stays.

        Args:
            record: what is to be in force.
            replacing: the newest version so far, if any.
            settings_version: under which the record was made.
            now: the time.
            usage: what the record was rated from; None keeps the usage of the version before.
            why: of a restatement; it is kept with what changed.
            last_attempt: from when on an incomplete hour is not to be tried again.
            retention: how long it is kept.
            backfilled: a backfill asks for it; counts for an hour's first version.

        Raises:
            ConflictError: the newest version is not the one to be replaced, or it has figures and the record has
                none: an incomplete attempt never replaces them, unless they are beyond reason. Readers see no change.
            SourceError: the table failed; publishing again is safe.
        """
        if record.status == "incomplete" and replacing is not None and self._has_figures(replacing):
            raise ConflictError(f"{record.cluster} {record.hour}: an incomplete attempt does not replace figures")
        version = replacing.version + 1 if replacing else 1
        attempts = (replacing.attempts if replacing else 0) + 1 if record.status == "incomplete" else 0
        is_frozen = self.versions.closed_month(month_of(record.hour)) is not None
        told = (reason, settings_version, is_frozen, replacing and replacing.run_id) if is_frozen or reason else ()
        run_id = run_id_of(record, version, *told)
        items, end = hour_items(record, run_id, version, now, retention), now + retention.days
        if usage is not None:
            pk = keys.partition(record.cluster, "usage")
            items += pieces(pk, record.hour, run_id, usage_document(usage), now + retention.lines)
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
            is_adjustment=is_frozen,
            backfilled=replacing.backfilled if replacing else backfilled,
            figures_until=None if record.status == "incomplete" else now.replace(microsecond=0) + retention.hours,
        )
        if told:
            items += self._restated(record, replacing, manifest, reason or LATE, end)
        base = self.versions.in_force(record.cluster, record.hour) if replacing and replacing.is_adjustment else replacing
        self._table.put_all(items)
        try:
            self.versions.put(manifest, replacing, end)
        except ConflictError:
            if (self.versions.closed_month(month_of(record.hour)) is not None) != is_frozen:
                return self.publish(
                    record, replacing=replacing, settings_version=settings_version, now=now, usage=usage, reason=reason,
                    last_attempt=last_attempt, retention=retention, backfilled=backfilled,
                )  # fmt: skip
            raise
        self._supersede(manifest, replacing, base, now)
        return manifest

    def _has_figures(self, manifest: Manifest) -> bool:
        """Whether a version has figures that nothing incomplete may replace; damaged ones may be whole elsewhere."""
        if manifest.status == "incomplete":
            return False
        try:
            (summary,) = self.summaries_of([manifest])
        except IntegrityError:
            return True
        return summary.status != "incomplete"

    def is_readable(self, manifest: Manifest) -> bool:
        """Whether a version's sums and nodes are there, and whole; else the same figures are worth writing anew."""
        try:
            (summary,) = self.summaries_of([manifest])
            len(summary.groups)  # they are unpacked when somebody looks
            self.nodes_of(manifest)
        except IntegrityError:
            return False
        return summary.status == manifest.status

    def apply_adjustment(self, manifest: Manifest, now: datetime, retention: Retention = DEFAULT_RETENTION) -> Manifest:
        """Put a version in force that was recorded beside, once its month is open again.

        Raises:
            ConflictError: it is no longer the newest, or the month is frozen.
        """
        base = self.versions.in_force(manifest.cluster, manifest.hour)
        adopted = replace(manifest, is_adjustment=False)
        self.versions.put(adopted, manifest, now + retention.days)
        self._supersede(adopted, manifest, base, now)
        return adopted

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        """Published hours in `[start, end)`, oldest first; incomplete ones without figures."""
        return self.summaries_of(self.manifests(cluster, start, end))

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        """The summaries of these very versions of one cluster's hours, which are in order."""
        items: dict[tuple[datetime, str], list[Item]] = {}
        known = [manifest for manifest in manifests if manifest.status != "incomplete"]
        if known:
            partition = keys.partition(known[0].cluster, "summaries")
            for item in self._range(partition, known[0].hour, known[-1].hour + HOUR):
                items.setdefault(keys.parts(item), []).append(item)
        return [read_summary(manifest, items.get((manifest.hour, manifest.run_id), [])) for manifest in manifests]

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        """An hour's lines, all or one unit's, in the order in which they were published within a unit."""
        item = self._table.get(keys.partition(cluster, "hours"), keys.hour(hour))
        return [] if item is None else self.lines_of(read_manifest(cluster, item), business_unit)

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        """The lines of this very version of an hour; none where the amounts of any are beyond reason."""
        start = f"{manifest.run_id}#" + (f"{keys.unit(business_unit)}#" if business_unit is not None else "")
        lines = self._read_lines(manifest, start, read_line_items)
        amounts = (amount or ZERO for line in lines for amount in (line.allocated_gpu_hours, line.allocated_usd))
        return lines if all(map(is_amount, amounts)) else []

    def uses_of(self, manifest: Manifest) -> list[LineUse]:
        """The lines of this very version of an hour, as advice looks at them; none as `lines_of`."""
        uses = self._read_lines(manifest, f"{manifest.run_id}#", read_line_uses)
        amounts = (amount or 0 for use in uses for amount in (use.allocated_gpu_hours, use.allocated_usd))
        return uses if all(abs(amount) <= MAX_AMOUNT for amount in amounts) else []

    def _read_lines(self, manifest: Manifest, start: str, read: Callable[[Iterable[Item]], list[T]]) -> list[T]:
        partition = keys.lines(manifest.cluster, manifest.hour)
        for _ in range(READINGS - 1):
            with suppress(IncompleteLinesError):
                return read(self._table.query(partition, "begins_with(sk, :start)", start=start))
        return read(self._table.query(partition, "begins_with(sk, :start)", start=start))

    def nodes(self, cluster: str, hour: datetime) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """What each node of an hour cost, and what was paid for without one."""
        manifest = self.manifest(cluster, hour)
        return self.nodes_of(manifest) if manifest else ((), ())

    def nodes_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """The nodes of this very version of an hour, and what was paid for without one."""
        own = self._pieces_of(keys.partition(manifest.cluster, "nodes"), manifest.hour, manifest.run_id)
        nodes, charges = blobs.unpack(own, blobs.read_nodes) if own else ((), ())
        return (nodes, charges) if all(node.capacity.are_reasonable() for node in nodes) else ((), ())

    def all_nodes(self, cluster: str, start: datetime, end: datetime) -> Iterator[NodeHour]:
        """The nodes of every hour in `[start, end)`, one query for each day."""
        while start < end:
            until = min(start + timedelta(days=1), end)
            in_force = {manifest.hour: manifest.run_id for manifest in self.manifests(cluster, start, until)}
            items: dict[datetime, list[Item]] = {}
            for item in self._range(keys.partition(cluster, "nodes"), start, until):
                hour, run = keys.parts(item)
                if in_force.get(hour) == run:
                    items.setdefault(hour, []).append(item)
            for own in items.values():
                yield from blobs.unpack(own, blobs.read_nodes)[0]
            start = until

    def usage(self, manifest: Manifest) -> Usage | None:
        """The usage that a version was rated from; None where it is not (or no longer) kept."""
        if not manifest.usage_id:
            return None
        own = self._pieces_of(keys.partition(manifest.cluster, "usage"), manifest.hour, manifest.usage_id)
        return blobs.unpack(own, partial(read_usage, manifest.cluster, manifest.hour)) if own else None

    def restatements(self, cluster: str, start: datetime, end: datetime) -> list[Restatement]:
        """What replaced figures in hours of `[start, end)`, or stands beside frozen ones.

        Oldest hour first, its versions in their order.
        """
        in_force = {manifest.hour: manifest for manifest in self.manifests(cluster, start, end)}
        items: dict[tuple[datetime, str], list[Item]] = {}
        for item in self._range(keys.partition(cluster, "restatements"), start, end):
            items.setdefault(keys.parts(item), []).append(item)
        found = [one for manifest in in_force.values() for one in chained(items, manifest)]
        for late in self.adjustments(cluster, start, end) if items else ():
            own = in_force.get(late.hour)
            found += chained(items, late, until=own.run_id if own else None)
        return sorted(found, key=lambda one: (one.hour, one.version))

    def _restated(
        self, record: HourRecord, replacing: Manifest | None, manifest: Manifest, reason: str, end: datetime
    ) -> list[Item]:
        """What a version changes, as items; where nothing had figures, it is told only beside a frozen hour."""
        before = self._replaced(replacing) if replacing else None
        had_figures = before is not None and before.totals is not None
        if record.totals is None or not (had_figures or manifest.is_adjustment):
            return []
        restatement = Restatement(
            cluster=record.cluster,
            hour=record.hour,
            version=manifest.version,
            restated_at=manifest.published_at,
            settings_version=manifest.settings_version,
            reason=reason,
            before=before.totals if before else None,
            after=record.totals,
            units=changed_business_units(before.groups if before else {}, record),
            currency=record.currency,
            currency_before=replacing.currency if replacing and had_figures else record.currency,
        )
        return restatement_items(restatement, manifest.run_id, replacing.run_id if replacing else NO_RUN, end)

    def _replaced(self, manifest: Manifest) -> HourSummary:
        """A version's summary; made of its lines, without a capacity, where it is damaged: restating mends that."""
        try:
            (summary,) = self.summaries_of([manifest])
            len(summary.groups)
        except IntegrityError:
            groups: dict[tuple[str, str], list[Costs]] = {}
            for line in self.lines_of(manifest):
                groups.setdefault((line.business_unit, line.namespace), []).append(line.costs())
            sums = {key: Costs.total(parts) for key, parts in groups.items()}
            totals = Totals(Costs.total(sums.values()), None)
            return HourSummary(
                manifest.cluster, manifest.hour, manifest.status, manifest.version, manifest.coverage, totals, sums,
                manifest.currency,
            )  # fmt: skip
        return summary

    def _pieces_of(self, pk: str, hour: datetime, run: str) -> list[Item]:
        pieces = list(self._table.query(pk, "begins_with(sk, :start)", start=f"{keys.hour(hour)}#{run}#"))
        for piece in pieces:
            check_format(piece)
        return pieces

    def _supersede(self, manifest: Manifest, replacing: Manifest | None, base: Manifest | None, now: datetime) -> None:
        """Let what nobody reads any more expire: what a version replaced, and what that stood beside.

        Args:
            manifest: the version that was put.
            replacing: what it replaced.
            base: what is, or was until now, in force.
            now: the time.
        """
        kept = {manifest.run_id, base.run_id if manifest.is_adjustment and base else ""}
        usages = {manifest.usage_id, base.usage_id if manifest.is_adjustment and base else ""}
        gone = {one.run_id: one for one in (replacing, base) if one is not None and one.run_id not in kept}
        for one in gone.values():
            self._table.expire(self._items_of(one, usages), int((now + SUPERSEDED_KEPT).timestamp()))

    def _items_of(self, manifest: Manifest, usages_kept: Set[str]) -> list[Item]:
        """The items of a superseded version; its usage only where no other version goes on using it."""
        cluster, hour, run = manifest.cluster, keys.hour(manifest.hour), manifest.run_id
        items = [
            *self._table.query(keys.partition(cluster, "summaries"), "begins_with(sk, :start)", start=f"{hour}#{run}#"),
            *self._table.query(keys.lines(cluster, manifest.hour), "begins_with(sk, :start)", start=f"{run}#"),
            *self._table.query(keys.partition(cluster, "nodes"), "begins_with(sk, :start)", start=f"{hour}#{run}#"),
            *self._table.query(keys.partition(cluster, "notes"), "sk = :start", start=f"{hour}#{run}"),
        ]
        if manifest.usage_id and manifest.usage_id not in usages_kept:
            start = f"{hour}#{manifest.usage_id}#"
            items += self._table.query(keys.partition(cluster, "usage"), "begins_with(sk, :start)", start=start)
        return items

    def _with_notes(self, manifest: Manifest) -> Manifest:
        item = self._table.get(
            keys.partition(manifest.cluster, "notes"), f"{keys.hour(manifest.hour)}#{manifest.run_id}"
        )
        return manifest if item is None else replace(manifest, notes=read_notes(item))

    def _range(self, pk: str, start: datetime, end: datetime) -> Iterable[Item]:
        if start >= end:
            return
        # `~` sorts after every character of a key, so that all items of the last hour are in.
        last = f"{keys.hour(end - HOUR)}~"
        for item in self._table.query(pk, "sk BETWEEN :first AND :last", first=keys.hour(start), last=last):
            check_format(item)
            yield item
