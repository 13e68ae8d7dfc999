"""Days, rolled up from the ledger's hours; fulfils `ports.Rollups` (docs/ledger.md).

| item | pk | sk |
| --- | --- | --- |
| day | `C#<cluster>#days` | `<day>`, further pieces `<day>#<place>` |
| a unit's hours of a day | `C#<cluster>#unit#<hash of unit>` | `<day>` |
| facts of a bucket of units | `C#<cluster>#facts#<bucket>` | `<day>#<piece>` |
| head | `C#<cluster>#rollups` | `<day>` |

Every item marks which versions of the day's hours it sums, by their run ids. Readers believe the parts whose versions
are those of the manifests that they hold and sum the rest from the hours, so that what is written here, when, in which
order and by how many at once is a matter of cost alone. The head is written last: what it covers and is not there, is
nothing.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gpucost.core.errors import ConflictError, ExpiredError, IntegrityError
from gpucost.core.hours import HOUR, floor_day, hours_between
from gpucost.core.ledger import DEFAULT_RETENTION, HourSummary, Manifest, Retention
from gpucost.core.model import Costs
from gpucost.core.rollups import DAY, DaySummary, FactKey, UnitHour, costs_by_unit, merge_facts, sum_day, sum_facts
from gpucost.storage import chunked_documents as pieces
from gpucost.storage import compressed_documents, keys
from gpucost.storage.amount_columns import pack_table, unpack_sums, unpack_table
from gpucost.storage.compressed_documents import CHUNK_BYTES
from gpucost.storage.ledger import Ledger
from gpucost.storage.table import FORMAT, Item, Table, check_format, integer, key, text, verify_integrity

BUCKETS = 16
"""Facts of a sixteenth of all units are read together: one unit's month is one query, and items stay few."""
MARK = 6
"""Bytes of a run id's hash: what tells one version of an hour from every other one."""


class RollupStore:
    """Fulfils `ports.Rollups` and `ports.SummedVersions`.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._table = Table(client, table)
        self._ledger = Ledger(client, table)

    def days(self, cluster: str, start: datetime, end: datetime) -> list[DaySummary]:
        """Every UTC day of `[start, end)` that has a published hour, in order."""
        return self.days_of(self._ledger.manifests(cluster, start, end))

    def days_of(self, manifests: Sequence[Manifest]) -> list[DaySummary]:
        """The UTC days of these very versions of one cluster's hours, which are in order."""
        if not manifests:
            return []
        cluster, published = manifests[0].cluster, _by_day(manifests)
        stored = _pieces(self._over(_days(cluster), manifests))
        found = []
        for day, own in published.items():
            item = _day_of(stored.get(day, []))
            summed = None
            if item is not None and _marks(item) == marks_of(day, own):
                summed = _read_summary(cluster, day, own, item)
            if summed is None or (summed.totals is not None and not summed.totals.are_plausible()):
                summaries = self._ledger.summaries_of(own)
                # An hour whose figures cannot be used counts as incomplete, whatever its manifest says.
                kept = [
                    replace(one, status=summary.status)
                    for one, summary in zip(own, summaries, strict=True)
                    if _is_kept(summary)
                ]
                summed = sum_day(cluster, day, kept, summaries)
            found.append(summed)
        return found

    def unit_hours(self, cluster: str, business_unit: str, start: datetime, end: datetime) -> list[UnitHour]:
        """One unit in every published hour of `[start, end)`, in order."""
        return self.unit_hours_of(self._ledger.manifests(cluster, start, end), business_unit)

    def unit_hours_of(self, manifests: Sequence[Manifest], business_unit: str) -> list[UnitHour]:
        """One unit in each of these very versions of one cluster's hours, which are in order."""
        if not manifests:
            return []
        cluster = manifests[0].cluster
        heads = [item for item in self._over(_heads(cluster), manifests) if _tells_units(item)]
        rolled_up = {mark for item in heads for mark in _hour_marks(item)}
        known: dict[tuple[datetime, bytes], Costs] = {}
        days = set()
        for item in self._over(_unit(cluster, business_unit), manifests):
            known |= _read_unit_hours(item)
            days.add(_read_day(item))
        found: dict[datetime, Costs | None] = {}
        for manifest in manifests:
            own = manifest.hour, _mark(manifest)
            if manifest.status == "incomplete":
                found[manifest.hour] = None
            elif own in known:
                found[manifest.hour] = known[own] if known[own].are_plausible() else None
            elif own in rolled_up and floor_day(manifest.hour) not in days:
                found[manifest.hour] = Costs()
        for run in _by_day(manifest for manifest in manifests if manifest.hour not in found).values():
            for summary in self._ledger.summaries_of(run):
                found[summary.hour] = costs_by_unit(summary).get(business_unit, Costs()) if summary.totals else None
        return [UnitHour(manifest, found[manifest.hour]) for manifest in manifests]

    def facts(
        self, cluster: str, start: datetime, end: datetime, business_unit: str | None = None
    ) -> list[tuple[datetime, dict[FactKey, Costs]]]:
        """The facts of every UTC day of `[start, end)` that has a published hour, all or one unit's."""
        return self.facts_of(self._ledger.manifests(cluster, start, end), business_unit)

    def facts_of(
        self, manifests: Sequence[Manifest], business_unit: str | None = None
    ) -> list[tuple[datetime, dict[FactKey, Costs]]]:
        """The facts of the UTC days of these very versions of one cluster's hours, all or one unit's.

        Days that are not rolled up, the one under way for instance, are summed from their lines; they are left out
        where their lines are no longer kept.
        """
        if not manifests:
            return []
        cluster, published = manifests[0].cluster, _by_day(manifests)
        heads = {_read_day(item): item for item in self._over(_heads(cluster), manifests)}
        believed = {
            day for day, own in published.items()
            if day in heads and "f" in heads[day] and _marks(heads[day]) == marks_of(day, own)
        }  # fmt: skip
        rows: dict[datetime, dict[FactKey, Costs]] = {day: {} for day in believed}
        filled: dict[datetime, set[int]] = {}
        buckets = range(BUCKETS) if business_unit is None else [_bucket(business_unit)]
        for bucket in buckets if believed else ():
            for day, items in _pieces(self._over(_facts(cluster, bucket), manifests)).items():
                if day not in rows:
                    continue
                marks = marks_of(day, published[day])
                if _are_whole(items, marks):
                    rows[day] |= _read_facts(items, business_unit)
                    continue
                if day not in filled:
                    filled[day] = self._filled(cluster, day, marks)
                if bucket in filled[day]:
                    del rows[day]  # others are writing it
                # else what is there is left over: the last of its units was renamed, or holds nothing any more
        for day, own in published.items():
            if day not in rows or not all(costs.are_plausible() for costs in rows[day].values()):
                from_lines = self._facts_from_lines(own, business_unit)
                rows.pop(day, None)
                if from_lines is not None:
                    rows[day] = from_lines
        return [(day, rows[day]) for day in published if day in rows]

    def roll_up(self, cluster: str, day: datetime, now: datetime, retention: Retention = DEFAULT_RETENTION) -> bool:
        """Bring a UTC day's sums up to its hours, its facts only once the day is over; False where they were.

        Raises:
            ExpiredError: an hour's figures have expired or are damaged, so that the day cannot be summed; it stays as
                it was.
            SourceError: the table failed; rolling up again is safe.
        """
        manifests = self._ledger.manifests(cluster, day, day + DAY)
        try:
            return self._roll_up(cluster, day, manifests, now, retention) if manifests else False
        except IntegrityError as error:
            raise ExpiredError(f"{cluster} {_day(day)} cannot be summed: {error}") from error

    def _roll_up(
        self, cluster: str, day: datetime, manifests: Sequence[Manifest], now: datetime, retention: Retention
    ) -> bool:
        head = self._table.get(_heads(cluster), _day(day))
        is_over = now >= day + DAY
        is_current = head is not None and _marks(head) == marks_of(day, manifests)
        if is_current and (not is_over or (head is not None and "f" in head)):
            return False
        if not is_current:
            self.write_day(cluster, day, manifests, self._ledger.summaries_of(manifests), retention)
        facts = self._facts_from_lines(manifests, None) if is_over else None
        if facts is not None:
            self.write_facts(cluster, day, manifests, facts, retention)
        self.write_head(cluster, day, manifests, retention, with_facts=facts is not None)
        return True

    def write_day(
        self,
        cluster: str,
        day: datetime,
        manifests: Sequence[Manifest],
        summaries: Sequence[HourSummary],
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        """Write a day's sums and every unit's hours."""
        for manifest, summary in zip(manifests, summaries, strict=True):
            if manifest.status != "incomplete" and summary.totals is None:
                raise ExpiredError(
                    f"the figures of {cluster} {summary.hour} are gone, or beyond reason; its day cannot be summed"
                )
        self._put_if_newer(*_day_items(sum_day(cluster, day, manifests, summaries), retention))
        units: dict[str, list[tuple[tuple[str], Costs]]] = {}
        for summary in summaries:
            for unit, costs in costs_by_unit(summary).items():
                units.setdefault(unit, []).append(((f"{summary.hour:%H}",), costs))
        self._table.put_all(
            [
                _item(_unit(cluster, unit), _day(day), day, manifests, retention.hours, {"b": {"B": pack_table(rows)}})
                for unit, rows in units.items()
            ]
        )

    def write_facts(
        self,
        cluster: str,
        day: datetime,
        manifests: Sequence[Manifest],
        facts: dict[FactKey, Costs],
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        """Write a day's facts; buckets that have none any more are left as they are, and nobody believes them."""
        buckets: dict[int, list[tuple[list[str], Costs]]] = {}
        for fact, costs in facts.items():
            texts = [*fact[:-1], json.dumps(fact.labels, ensure_ascii=False)]
            buckets.setdefault(_bucket(fact.business_unit), []).append((texts, costs))
        items = []
        for bucket, rows in buckets.items():
            data = pack_table(rows)
            parts = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
            for place, part in enumerate(parts):
                more: Item = {"b": {"B": part}, "k": {"N": str(len(parts))}}
                sk = f"{_day(day)}#{place:04d}"
                items.append(_item(_facts(cluster, bucket), sk, day, manifests, retention.days, more))
        for item in items:
            self._put_if_newer(item)

    def write_head(
        self,
        cluster: str,
        day: datetime,
        manifests: Sequence[Manifest],
        retention: Retention = DEFAULT_RETENTION,
        *,
        with_facts: bool,
    ) -> None:
        """Say that everything of a day is written: what is not there, is nothing."""
        more: dict[str, dict[str, Any]] = {"u": {"N": str(_end(manifests, retention.hours))}}
        if with_facts:
            more["f"] = {"BOOL": True}
        self._put_if_newer(_item(_heads(cluster), _day(day), day, manifests, retention.days, more))

    def _filled(self, cluster: str, day: datetime, marks: bytes) -> set[int]:
        """The buckets that hold facts of these versions, as the day's own sums tell; all where these do not."""
        item = _day_of(list(self._table.query(_days(cluster), "begins_with(sk, :day)", day=_day(day))))
        if item is None or _marks(item) != marks:
            return set(range(BUCKETS))
        check_format(item)
        with verify_integrity(item):
            return {_bucket(unit) for unit in unpack_sums(item["b"]["B"])}

    def _facts_from_lines(
        self, manifests: Iterable[Manifest], business_unit: str | None
    ) -> dict[FactKey, Costs] | None:
        """None where an hour had lines that are no longer kept."""
        found = []
        for hour in (manifest for manifest in manifests if manifest.status != "incomplete"):
            lines = self._ledger.lines_of(hour, business_unit)
            if not lines:
                (summary,) = self._ledger.summaries_of([hour])
                if not _is_kept(summary) or any(business_unit in {None, unit} for unit, _ in summary.groups):
                    return None
            found.append(sum_facts(lines))
        return merge_facts(found)

    def _put_if_newer(self, *items: Item) -> None:
        """Of two that sum a day at once, the one that saw more stays. A version counts up with each publication."""
        try:
            pieces.put(self._table, items, "attribute_not_exists(pk) OR n <= :n", {":n": items[0]["n"]})
        except ConflictError:
            return

    def _over(self, pk: str, manifests: Sequence[Manifest]) -> Iterator[Item]:
        """The items of the hours' days."""
        # `~` sorts after every character of a key, so that all pieces of the last day are in.
        first, last = _day(manifests[0].hour), f"{_day(manifests[-1].hour)}~"
        for item in self._table.query(pk, "sk BETWEEN :first AND :last", first=first, last=last):
            check_format(item)
            yield item


def marks_of(day: datetime, manifests: Iterable[Manifest]) -> bytes:
    """One mark for each of the day's 24 hours, zeros where an hour was never published."""
    known = {manifest.hour: _mark(manifest) for manifest in manifests}
    return b"".join(known.get(hour, bytes(MARK)) for hour in hours_between(day, day + DAY))


def _mark(manifest: Manifest) -> bytes:
    return hashlib.sha256(manifest.run_id.encode()).digest()[:MARK]


def _is_kept(summary: HourSummary) -> bool:
    """Whether an hour that has figures has them still."""
    return summary.status == "incomplete" or summary.totals is not None


def _end(manifests: Sequence[Manifest], kept: timedelta) -> int:
    """When what sums these hours expires, in seconds since the epoch."""
    return keys.seconds(max(manifest.published_at for manifest in manifests) + kept)


def _tells_units(head: Item) -> bool:
    """Whether a unit without an item had nothing, rather than one that has expired."""
    return integer(head, "u") > time.time()


def _item(pk: str, sk: str, day: datetime, manifests: Sequence[Manifest], kept: timedelta, more: Item) -> Item:
    """An item with what it sums; the sum of the versions grows with every publication of an hour."""
    return {
        **key(pk, sk),
        "v": {"N": str(FORMAT)},
        "h": {"B": marks_of(day, manifests)},
        "n": {"N": str(sum(manifest.version for manifest in manifests))},
        "expires_at": {"N": str(_end(manifests, kept))},
        **more,
    }


def _day_items(summary: DaySummary, retention: Retention) -> list[Item]:
    """A day's sums: an item holds some 6,000 business units, and a namespace that no unit matches is one."""
    data = pack_table([((unit,), costs) for unit, costs in summary.units.items()])
    more: dict[str, dict[str, Any]] = (
        {"t": {"S": compressed_documents.totals_text(summary.totals)}} if summary.totals else {}
    )
    head = _item(_days(summary.cluster), _day(summary.day), summary.day, summary.hours, retention.days, more)
    return pieces.document_items(head, data, {"h": head["h"]})


def _day_of(items: Sequence[Item]) -> Item | None:
    """A day's item with all of its document; None where it is not there, or not all of one writing."""
    if not items or "#" in text(items[0], "sk"):
        return None
    try:
        return {**items[0], "b": {"B": pieces.joined_chunks(items[0], items[1:], "h")}}
    except ConflictError:
        return None


def _read_summary(cluster: str, day: datetime, manifests: Sequence[Manifest], item: Item) -> DaySummary:
    with verify_integrity(item):
        totals = compressed_documents.read_totals_text(text(item, "t")) if "t" in item else None
        return DaySummary(cluster, day, tuple(manifests), totals, unpack_sums(item["b"]["B"]))


def _read_unit_hours(item: Item) -> dict[tuple[datetime, bytes], Costs]:
    """By hour and mark; hours in which the unit held nothing are there, with zeros."""
    with verify_integrity(item):
        rows = {int(hour): costs for (hour,), costs in unpack_table(item["b"]["B"])}
    return {(hour, mark): rows.get(hour.hour, Costs()) for hour, mark in _hour_marks(item)}


def _are_whole(items: Sequence[Item], marks: bytes) -> bool:
    """Whether pieces are of one table, all there, and sum these versions."""
    count = integer(items[0], "k")
    return len(items) >= count and all(_marks(item) == marks for item in items[:count])


def _read_facts(items: Sequence[Item], business_unit: str | None) -> dict[FactKey, Costs]:
    found = {}
    with verify_integrity(items[0]):
        for texts, costs in unpack_table(b"".join([item["b"]["B"] for item in items[: integer(items[0], "k")]])):
            fact = FactKey._make([*texts[:-1], tuple((name, value) for name, value in json.loads(texts[-1]))])
            if business_unit is None or fact.business_unit == business_unit:
                found[fact] = costs
    return found


def _pieces(items: Iterable[Item]) -> dict[datetime, list[Item]]:
    found: dict[datetime, list[Item]] = {}
    for item in items:
        found.setdefault(_read_day(item), []).append(item)
    return found


def _by_day(manifests: Iterable[Manifest]) -> dict[datetime, list[Manifest]]:
    found: dict[datetime, list[Manifest]] = {}
    for manifest in manifests:
        found.setdefault(floor_day(manifest.hour), []).append(manifest)
    return found


def _marks(item: Item) -> bytes:
    return bytes(item.get("h", {}).get("B", b""))


def _hour_marks(item: Item) -> list[tuple[datetime, bytes]]:
    """The published hours that an item sums, each with its mark."""
    day, marks = _read_day(item), _marks(item)
    found = [(day + HOUR * hour, marks[hour * MARK : hour * MARK + MARK]) for hour in range(len(marks) // MARK)]
    return [(hour, mark) for hour, mark in found if any(mark)]


def _bucket(business_unit: str) -> int:
    return hashlib.sha256(business_unit.encode()).digest()[0] % BUCKETS


def _days(cluster: str) -> str:
    return keys.partition(cluster, "days")


def _heads(cluster: str) -> str:
    return keys.partition(cluster, "rollups")


def _unit(cluster: str, business_unit: str) -> str:
    return f"C#{cluster}#unit#{keys.unit(business_unit)}"


def _facts(cluster: str, bucket: int) -> str:
    return f"C#{cluster}#facts#{bucket:02d}"


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d")


def _read_day(item: Item) -> datetime:
    return datetime.fromisoformat(text(item, "sk")[:10]).replace(tzinfo=UTC)
