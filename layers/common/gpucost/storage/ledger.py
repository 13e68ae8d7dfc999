"""The ledger. An hour is published by writing its items under a run id, and then its manifest.

| item | pk | sk |
| --- | --- | --- |
| manifest | `C#<cluster>#hours` | `<hour>` |
| notes | `C#<cluster>#notes` | `<hour>#<run>` |
| summary | `C#<cluster>#summaries` | `<hour>#<run>#<chunk>` |
| lines of a business unit | `C#<cluster>#lines#<hour>` | `<run>#<unit>#<chunk>` |
| nodes | `C#<cluster>#nodes` | `<hour>#<run>#<chunk>` |
| costs by model | `C#<cluster>#models` | `<hour>#<run>#<chunk>`, only of hours with inference servers |
| usage | `C#<cluster>#usage` | `<hour>#<run that metered>#<chunk>` |
| restatement | `C#<cluster>#restatements` | `<hour>#<run>` |

`HourVersions` keeps which version of each hour is current and which months are closed.

A run id consists of the version's number and a hash of the content. Running again after a crash writes the same items,
and other content never overwrites them. The items of a run that lost a race stay until they expire, because another run
of the same content may have published these items, or may be about to.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from msgspec.structs import replace

from gpucost.core.amounts import MAX_AMOUNT, MAX_FIXED_POINT, Totals
from gpucost.core.costs_by_key import CostsByKey, sum_by_key
from gpucost.core.errors import ConflictError, IntegrityError
from gpucost.core.hour_record import ClusterCharge, CompactLine, HourRecord, Line, ModelHour, NodeHour
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
from gpucost.storage import compressed_documents
from gpucost.storage.hour_items import (
    DocumentKind,
    IncompleteLinesError,
    hour_chunk_items,
    hour_items,
    read_compact_lines,
    read_line_items,
    read_notes,
    read_summary,
    run_id_of,
)
from gpucost.storage.hour_versions import NO_RUN, HourVersions, read_manifest
from gpucost.storage.ports import Table
from gpucost.storage.table import (
    Between,
    Item,
    PartitionKind,
    StartsWith,
    business_unit_hash,
    check_schema_version,
    format_hour,
    from_epoch_seconds,
    lines_partition_key,
    parse_hour_and_run,
    partition_key,
    to_epoch_seconds,
)

if TYPE_CHECKING:
    from gpucost.core.metering.usage import Usage

from gpucost.core.amounts import Costs
from gpucost.core.ledger import digest_in_run_id
from gpucost.storage.table import SCHEMA_VERSION, integer, key, text

T = TypeVar("T")
CLOSED_MONTH_REASON = "figures that arrived after the month was closed"
MAX_LINE_READS = 4
"""How often lines are read if a chunk is missing or damaged."""
SUPERSEDED_KEPT = timedelta(days=1)
"""How long superseded items are kept. Readers that follow the previous manifest finish long before."""


class Ledger:
    """The published hours of all clusters."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.versions = HourVersions(self._table)
        """Which version of each hour is current, and which months are closed."""

    def manifest(self, cluster: str, hour: datetime) -> Manifest | None:
        """Return the current version of an hour, with its notes."""
        manifest = self.versions.current(cluster, hour)
        return None if manifest is None else self._with_notes(manifest)

    def newest_version_of_hour(self, cluster: str, hour: datetime) -> Manifest | None:
        """Return the version that the next one replaces, with its notes. In a closed month it may be an adjustment."""
        manifest = self.versions.newest(cluster, hour)
        return None if manifest is None else self._with_notes(manifest)

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """Return the current versions of the hours in `[start, end)`, oldest first, without notes; one small query."""
        manifests = self._query_hours(partition_key(cluster, "hours"), start, end)
        return [read_manifest(cluster, item) for item in manifests]  # which checks the schema version

    def adjustments(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """Return the pending adjustments of hours in `[start, end)`, oldest first, without notes."""
        items = list(self._checked_hours(partition_key(cluster, "adjustments"), start, end))
        return self.versions.adjustments(cluster, items, self.manifests(cluster, start, end)) if items else []

    def newest_published_hour(self, cluster: str) -> Manifest | None:
        """Return the newest published hour, without its notes."""
        item = next(self._table.query(partition_key(cluster, "hours"), limit=1, newest_first=True), None)
        return None if item is None else read_manifest(cluster, item)

    def notes_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[str, ...]]:
        """Return the notes, by hour, of versions of one cluster, which are in order; only of those with notes."""
        return {hour: read_notes(item) for (hour, _), [item] in self._items_of_versions("notes", manifests).items()}

    def publish(
        self,
        record: HourRecord,
        *,
        replacing: Manifest | None,
        settings_version: int,
        now: datetime,
        usage: "Usage | None" = None,
        reason: str = "",
        last_attempt: datetime | None = None,
        retention: Retention = DEFAULT_RETENTION,
        backfilled: bool = False,
    ) -> Manifest:
        """Publish a record: write its items, then its manifest on condition that nothing else was published meanwhile.

        All readers see either the previous version or the new one, never a mixture. In a closed month, the record
        becomes a pending adjustment and the current version stays.

        Args:
            record: the hour's record.
            replacing: the newest version so far, as `newest_version_of_hour` returns it; None for the first.
            settings_version: version of the settings that the record was made with.
            now: the current time.
            usage: the usage that the record was rated from; None keeps the usage of the previous version.
            reason: reason of a restatement, stored with the changes.
            last_attempt: time from which an incomplete hour is not tried again.
            retention: how long the items are kept.
            backfilled: whether a backfill requested the hour; stored with an hour's first version.

        Raises:
            ConflictError: `replacing` is no longer the newest version, or an incomplete record would replace figures.
                (Only implausibly large figures are replaced by an incomplete record.) Readers see no change.
            SourceError: the table failed; publishing again is safe.
        """
        if record.status == "incomplete" and replacing is not None and self._has_figures(replacing):
            raise ConflictError(f"{record.cluster} {record.hour}: an incomplete attempt does not replace figures")
        attempts = (replacing.attempts if replacing else 0) + 1 if record.status == "incomplete" else 0
        published_at = now.replace(microsecond=0)
        manifest = Manifest(
            cluster=record.cluster,
            hour=record.hour,
            status=record.status,
            version=replacing.version + 1 if replacing else 1,
            run_id="",
            settings_version=settings_version,
            coverage=record.coverage,
            attempts=attempts,
            next_attempt_at=next_attempt(attempts, now, last_attempt) if attempts else None,
            published_at=published_at,
            notes=record.notes,
            usage_id=replacing.usage_id if replacing else "",
            currency=record.currency,
            is_backfilled=replacing.is_backfilled if replacing else backfilled,
            summary_expires_at=None if record.status == "incomplete" else published_at + retention.hours,
        )
        # The month may be closed or reopened while the items are written. They are then written again for what it is.
        while True:
            is_closed = self._is_closed(record.hour)
            try:
                return self._write(
                    replace(manifest, is_adjustment=is_closed), record, usage, replacing, reason, now, retention
                )
            except ConflictError:
                if self._is_closed(record.hour) == is_closed:
                    raise

    def _write(
        self,
        manifest: Manifest,
        record: HourRecord,
        usage: "Usage | None",
        replacing: Manifest | None,
        reason: str,
        now: datetime,
        retention: Retention,
    ) -> Manifest:
        """Write a version's items, then its manifest, which is complete but for the run; return it with its run."""
        is_adjustment, end = manifest.is_adjustment, now + retention.days
        restates = is_adjustment or bool(reason)
        facts = (reason, manifest.settings_version, is_adjustment, replacing and replacing.run_id) if restates else ()
        run_id = run_id_of(record, manifest.version, *facts)
        manifest = replace(manifest, run_id=run_id, usage_id=manifest.usage_id if usage is None else run_id)
        items = hour_items(record, run_id, now, retention)
        if usage is not None:
            items += _usage_items(record, usage, run_id, now + retention.lines)
        if restates:
            items += self._restatement_items(record, replacing, manifest, reason or CLOSED_MONTH_REASON, end)
        current = replacing
        if replacing and replacing.is_adjustment:
            current = self.versions.current(record.cluster, record.hour)
        self._table.put_all(items)
        self.versions.put(manifest, replacing, end)
        self._supersede(manifest, replacing, current, now)
        return manifest

    def _is_closed(self, hour: datetime) -> bool:
        return self.versions.closed_month(month_of(hour)) is not None

    def _has_figures(self, manifest: Manifest) -> bool:
        """Whether a version has figures, which an incomplete one must not replace; damaged figures count as figures."""
        if manifest.status == "incomplete":
            return False
        try:
            (summary,) = self.summaries_of([manifest])
        except IntegrityError:
            return True
        return summary.manifest.status != "incomplete"

    def is_intact(self, manifest: Manifest) -> bool:
        """Whether a version's summary and nodes can be read; if not, it is worth publishing the same figures again."""
        try:
            (summary,) = self.summaries_of([manifest])
            len(summary.costs)  # decompresses them
            self.nodes_and_charges_of(manifest)
        except IntegrityError:
            return False
        return summary.manifest.status == manifest.status

    def apply_adjustment(self, manifest: Manifest, now: datetime, retention: Retention = DEFAULT_RETENTION) -> Manifest:
        """Make a pending adjustment the current version, after its month was reopened.

        Raises:
            ConflictError: it is no longer the newest version, or the month is closed.
        """
        current = self.versions.current(manifest.cluster, manifest.hour)
        applied = replace(manifest, is_adjustment=False)
        self.versions.put(applied, manifest, now + retention.days)
        self._supersede(applied, manifest, current, now)
        return applied

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        """Return the summaries of published hours in `[start, end)`, oldest first; incomplete ones have no figures."""
        return self.summaries_of(self.manifests(cluster, start, end))

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        """Return the summaries of versions of one cluster's hours, which are in order."""
        items = self._items_of_versions("summaries", _with_figures(manifests))
        return [read_summary(manifest, items.get((manifest.hour, manifest.run_id), [])) for manifest in manifests]

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        """Return an hour's lines, all or those of one business unit, in the order in which they were published."""
        item = self._table.get(partition_key(cluster, "hours"), format_hour(hour))
        return [] if item is None else self.lines_of(read_manifest(cluster, item), business_unit)

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        """Return the lines of a version; none if any amount is implausibly large."""
        start = f"{manifest.run_id}#" + (f"{business_unit_hash(business_unit)}#" if business_unit is not None else "")
        lines = self._read_lines(manifest, start, read_line_items)
        return lines if all(_is_plausible(line, MAX_FIXED_POINT) for line in lines) else []

    def compact_lines_of(self, manifest: Manifest) -> list[CompactLine]:
        """Return a version's lines in the form that recommendations read; none if any amount is implausibly large."""
        lines = self._read_lines(manifest, f"{manifest.run_id}#", read_compact_lines)
        return lines if all(_is_plausible(line, MAX_AMOUNT) for line in lines) else []

    def _read_lines(self, manifest: Manifest, start: str, read: Callable[[Iterable[Item]], list[T]]) -> list[T]:
        pk = lines_partition_key(manifest.cluster, manifest.hour)
        for _ in range(MAX_LINE_READS - 1):
            with suppress(IncompleteLinesError):
                return read(self._table.query(pk, StartsWith(start)))
        return read(self._table.query(pk, StartsWith(start)))

    def nodes_and_charges(self, cluster: str, hour: datetime) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """Return what each node of an hour cost, and charges that belong to no node."""
        manifest = self.manifest(cluster, hour)
        return self.nodes_and_charges_of(manifest) if manifest else ((), ())

    def nodes_and_charges_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """Return a version's nodes, and the charges that belong to no node; none if amounts are implausibly large."""
        items = self._chunks(partition_key(manifest.cluster, "nodes"), manifest.hour, manifest.run_id)
        nodes, charges = compressed_documents.unpack(items, compressed_documents.read_nodes) if items else ((), ())
        return (nodes, charges) if all(node.capacity.are_plausible() for node in nodes) else ((), ())

    def all_nodes(self, cluster: str, start: datetime, end: datetime) -> Iterator[NodeHour]:
        """Yield the nodes of every hour in `[start, end)`, with one query per day."""
        while start < end:
            until = min(start + timedelta(days=1), end)
            for chunks in self._items_of_versions("nodes", self.manifests(cluster, start, until)).values():
                yield from compressed_documents.unpack(chunks, compressed_documents.read_nodes)[0]
            start = until

    def models_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[ModelHour, ...]]:
        """Return the costs by model, by hour, of versions of one cluster, which are in order; only of those with some.

        Hours with implausibly large amounts have none.
        """
        models = {
            hour: compressed_documents.unpack(chunks, compressed_documents.read_models)
            for (hour, _), chunks in self._items_of_versions("models", _with_figures(manifests)).items()
        }
        return {
            hour: of_hour for hour, of_hour in models.items() if all(model.costs.are_plausible() for model in of_hour)
        }

    def usage(self, manifest: Manifest) -> "Usage | None":
        """Return the usage that a version was rated from; None if it was not stored or has expired."""
        if not manifest.usage_id:
            return None
        from gpucost.storage.usage_documents import read_usage

        items = self._chunks(partition_key(manifest.cluster, "usage"), manifest.hour, manifest.usage_id)
        return (
            compressed_documents.unpack(items, partial(read_usage, manifest.cluster, manifest.hour)) if items else None
        )

    def restatements(self, cluster: str, start: datetime, end: datetime) -> list[Restatement]:
        """Return the restatements of hours in `[start, end)`, pending adjustments included, by hour and version."""
        current_versions = {manifest.hour: manifest for manifest in self.manifests(cluster, start, end)}
        items = self._items_by_version("restatements", cluster, start, end)
        restatements = [
            restatement for manifest in current_versions.values() for restatement in restatement_chain(items, manifest)
        ]
        for adjustment in self.adjustments(cluster, start, end) if items else ():
            current = current_versions.get(adjustment.hour)
            restatements += restatement_chain(items, adjustment, until=current.run_id if current else None)
        return sorted(restatements, key=lambda restatement: (restatement.hour, restatement.version))

    def _restatement_items(
        self, record: HourRecord, replacing: Manifest | None, manifest: Manifest, reason: str, end: datetime
    ) -> list[Item]:
        """Items that record what a version changes; none for a first version with figures, except for an adjustment."""
        before = self._replaced_summary(replacing) if replacing else None
        replaces_figures = before is not None and before.totals is not None
        if record.totals is None or not (replaces_figures or manifest.is_adjustment):
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
            changed_units=changed_business_units(before.costs if before else CostsByKey(), record),
            currency=record.currency,
            currency_before=replacing.currency if replacing and replaces_figures else record.currency,
        )
        return restatement_items(restatement, manifest.run_id, replacing.run_id if replacing else NO_RUN, end)

    def _replaced_summary(self, manifest: Manifest) -> HourSummary:
        """Read a version's summary. If it is damaged, sum the lines instead, without a capacity."""
        try:
            (summary,) = self.summaries_of([manifest])
            len(summary.costs)
        except IntegrityError:
            sums = sum_by_key(((line.business_unit, line.namespace), line.costs()) for line in self.lines_of(manifest))
            return HourSummary(manifest.cluster, manifest.hour, (manifest,), Totals(sums.total(), None), sums)
        return summary

    def _chunks(self, pk: str, hour: datetime, run: str) -> list[Item]:
        items = list(self._table.query(pk, StartsWith(f"{format_hour(hour)}#{run}#")))
        for item in items:
            check_schema_version(item)
        return items

    def _supersede(
        self, manifest: Manifest, replacing: Manifest | None, current: Manifest | None, now: datetime
    ) -> None:
        """Let the items of superseded versions expire.

        Args:
            manifest: the version that was written.
            replacing: the version that it replaced.
            current: the version that was current before.
            now: the current time.
        """
        kept = {manifest.run_id, current.run_id if manifest.is_adjustment and current else ""}
        usages = {manifest.usage_id, current.usage_id if manifest.is_adjustment and current else ""}
        superseded = {
            version.run_id: version
            for version in (replacing, current)
            if version is not None and version.run_id not in kept
        }
        for version in superseded.values():
            self._table.expire(self._items_of(version, usages), int((now + SUPERSEDED_KEPT).timestamp()))

    def _items_of(self, manifest: Manifest, usages_kept: Set[str]) -> list[Item]:
        """The items of a superseded version, its usage only if no other version uses it."""
        cluster, hour, run = manifest.cluster, format_hour(manifest.hour), manifest.run_id
        runs = dict.fromkeys(get_args(DocumentKind), run)
        runs["usage"] = "" if manifest.usage_id in usages_kept else manifest.usage_id
        return [
            *self._table.query(lines_partition_key(cluster, manifest.hour), StartsWith(f"{run}#")),
            *self._table.query(partition_key(cluster, "notes"), Between(f"{hour}#{run}", f"{hour}#{run}")),
            *chain.from_iterable(
                self._table.query(partition_key(cluster, kind), StartsWith(f"{hour}#{run_of_kind}#"))
                for kind, run_of_kind in runs.items()
                if run_of_kind
            ),
        ]

    def _with_notes(self, manifest: Manifest) -> Manifest:
        item = self._table.get(
            partition_key(manifest.cluster, "notes"), f"{format_hour(manifest.hour)}#{manifest.run_id}"
        )
        return manifest if item is None else replace(manifest, notes=read_notes(item))

    def _items_of_versions(
        self, kind: PartitionKind, manifests: Sequence[Manifest]
    ) -> dict[tuple[datetime, str], list[Item]]:
        """Return the items of versions of one cluster, which are in order, by hour and run; only of those with some."""
        if not manifests:
            return {}
        items = self._items_by_version(kind, manifests[0].cluster, manifests[0].hour, manifests[-1].hour + HOUR)
        versions = ((manifest.hour, manifest.run_id) for manifest in manifests)
        return {version: items[version] for version in versions if version in items}

    def _items_by_version(
        self, kind: PartitionKind, cluster: str, start: datetime, end: datetime
    ) -> dict[tuple[datetime, str], list[Item]]:
        """Return the items of a kind of the hours in `[start, end)`, by hour and run."""
        items: dict[tuple[datetime, str], list[Item]] = {}
        for item in self._checked_hours(partition_key(cluster, kind), start, end):
            items.setdefault(parse_hour_and_run(item), []).append(item)
        return items

    def _checked_hours(self, pk: str, start: datetime, end: datetime) -> Iterable[Item]:
        for item in self._query_hours(pk, start, end):
            check_schema_version(item)
            yield item

    def _query_hours(self, pk: str, start: datetime, end: datetime) -> Iterable[Item]:
        if start >= end:
            return ()
        # `~` sorts after every character of a key, so that all items of the last hour are in.
        last = f"{format_hour(end - HOUR)}~"
        return self._table.query(pk, Between(format_hour(start), last))


def _with_figures(manifests: Sequence[Manifest]) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest.status != "incomplete"]


def _is_plausible(line: Line | CompactLine, limit: Decimal | int) -> bool:
    return abs(line.allocated_gpu_hours) <= limit and abs(line.allocated_usd or 0) <= limit


def _usage_items(record: HourRecord, usage: "Usage", run_id: str, expiry: datetime) -> list[Item]:
    from gpucost.storage.usage_documents import usage_document

    return hour_chunk_items(record.cluster, "usage", record.hour, run_id, usage_document(usage), expiry)


# Restatements: an item each, which names the run that it replaced.


def restatement_items(restatement: Restatement, run: str, replaced: str, expires_at: datetime) -> list[Item]:
    """Return a restatement's items: one, and further chunks if thousands of business units changed."""
    pk = partition_key(restatement.cluster, "restatements")
    sort_key = f"{format_hour(restatement.hour)}#{run}"
    first, *others = compressed_documents.pack(compressed_documents.restatement_document(restatement))
    shared: Item = {"v": {"N": str(SCHEMA_VERSION)}, "expires_at": {"N": str(to_epoch_seconds(expires_at))}}
    facts: Item = {
        "b4": {"S": replaced},
        "n": {"N": str(restatement.version)},
        "x": {"N": str(restatement.settings_version)},
        "p": {"N": str(to_epoch_seconds(restatement.restated_at))},
        "c": {"S": restatement.currency},
        "c4": {"S": restatement.currency_before},
    }
    return [
        {**key(pk, sort_key), **shared, "b": {"B": first}, **facts},
        *(
            {**key(pk, f"{sort_key}#{number:04d}"), **shared, "b": {"B": chunk}}
            for number, chunk in enumerate(others, start=1)
        ),
    ]


def restatement_chain(
    items: Mapping[tuple[datetime, str], Sequence[Item]], manifest: Manifest, *, until: str | None = None
) -> list[Restatement]:
    """Return the restatements that led to a version, oldest first. Each names the run that it replaced.

    Items of runs that lost a race are not in the chain. A run that published the same figures under other settings is
    in the chain, but it is not a restatement.

    Args:
        items: the items of all restatements of the hour, by hour and run, in order.
        manifest: the version.
        until: the run at which the chain ends, itself not included.
    """
    restatements, run = [], manifest.run_id
    while run != until and (run_items := items.get((manifest.hour, run))):
        replaced = text(run_items[0], "b4")
        if digest_in_run_id(run) != digest_in_run_id(replaced):
            restatements.append(_read_restatement(manifest, run_items))
        run = replaced
    return restatements[::-1]


def _read_restatement(manifest: Manifest, items: Sequence[Item]) -> Restatement:
    item = items[0]
    return compressed_documents.unpack(items, lambda document: _restatement(manifest, item, document))


def _restatement(manifest: Manifest, item: Item, document: dict[str, Any]) -> Restatement:
    return Restatement(
        cluster=manifest.cluster,
        hour=manifest.hour,
        version=integer(item, "n"),
        restated_at=from_epoch_seconds(integer(item, "p")),
        settings_version=integer(item, "x"),
        reason=document["reason"],
        before=compressed_documents.read_totals(document["before"]),
        after=compressed_documents.read_totals(document["after"]) or Totals(Costs(), None),
        changed_units=compressed_documents.read_changed_units(document),
        currency=text(item, "c"),
        currency_before=text(item, "c4"),
        is_adjustment=manifest.is_adjustment,
    )
