"""Compresses and stores rollups: sums of the ledger's hours by UTC day (docs/contributing/ledger.md).

| item | pk | sk |
| --- | --- | --- |
| day | `C#<cluster>#days` | `<day>`, further chunks `<day>#<number>` |
| a business unit's hours of a day | `C#<cluster>#unit#<hash of unit>` | `<day>` |
| facts of a bucket of business units | `C#<cluster>#facts#<bucket>` | `<day>#<chunk>` |
| head | `C#<cluster>#rollups` | `<day>` |

Each item holds digests of the run ids of the versions that it sums. Readers use the items whose digests match the
manifests that they read, and sum the rest from the hours. So rollups only make reading cheaper: figures are right
whichever rollups are written, in whatever order, and by however many writers at once. The head is written last: if it
covers a version and an item is missing, there was nothing to sum.
"""

import hashlib
import json
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

from msgspec.structs import asdict

from gpucost.core.amounts import Costs
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.errors import ConflictError, DataExpiredError, IntegrityError
from gpucost.core.hours import DAY, HOUR, floor_day
from gpucost.core.ledger import (
    DEFAULT_RETENTION,
    DaySummary,
    FactKey,
    HourSummary,
    Manifest,
    Retention,
    costs_by_unit,
    merge_facts,
    sum_day,
    sum_lines,
)
from gpucost.storage import chunked_documents, compressed_documents
from gpucost.storage.compressed_documents import CHUNK_BYTES
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost.storage.table import (
    SCHEMA_VERSION,
    Between,
    Comparison,
    Item,
    MissingOr,
    StartsWith,
    business_unit_hash,
    check_schema_version,
    integer,
    key,
    partition_key,
    text,
    to_epoch_seconds,
    verify_integrity,
)

# Compresses tables of exact amounts into few bytes, for rollups.
#
# A row has some texts (its key) and one `Costs`. Texts are stored once per column, with an index per row. Amounts are
# fixed-point numbers in columns of fixed width. Of amounts that follow from others, only the difference from the
# expected amount is stored: waste is what remains of allocated, and costs are about GPU-hours × the row's price.
# Nothing is rounded: a table reads back equal.

_WORD_BYTES = 8
_SIGN_EXTENSIONS = bytes([0] * 128 + [255] * 128)
"""Maps a number's first byte to the byte that extends its sign."""
Row = tuple[Sequence[str], Costs]


def pack_table(rows: Sequence[Row]) -> bytes:
    """Compress rows whose keys have the same length. They compress best if sorted by key."""
    keys = [*zip(*(key for key, _ in rows), strict=True)]
    dictionaries = [list(dict.fromkeys(column)) for column in keys]
    columns = [*zip(*(_deviations(costs) for _, costs in rows), strict=True)]
    while columns and not any(columns[-1]):
        del columns[-1]
    head = json.dumps(
        {"rows": len(rows), "texts": dictionaries, "amounts": len(columns)}, ensure_ascii=False, separators=(",", ":")
    ).encode()
    parts = [len(head).to_bytes(4, "big"), head]
    for column, texts in zip(keys, dictionaries, strict=True):
        positions = {text: position for position, text in enumerate(texts)}
        indexes = [positions[text] for text in column]
        # Differences: a sorted column becomes a few numbers that compress to almost nothing.
        parts.append(_pack([index - previous for index, previous in zip(indexes, [0, *indexes], strict=False)]))
    parts += [_pack(column) for column in columns]
    return zlib.compress(b"".join(parts), 9)


def unpack_table(data: bytes) -> CostsByKey[tuple[str, ...]]:
    """Read what `pack_table` returned. Amounts that it does not have are 0."""
    texts, amounts = _unpacked(data)
    return CostsByKey(zip(*texts, strict=True) if texts else [()] * len(amounts[0]), amounts)


def unpack_single_key_table(data: bytes) -> CostsByKey[str]:
    """Read a table whose keys are a single text."""
    (units,), amounts = _unpacked(data)
    return CostsByKey(units, amounts)


def _unpacked(data: bytes) -> tuple[list[list[str]], list[Sequence[int]]]:
    """Return columns of texts and columns of amounts."""
    content = zlib.decompress(data)
    size = int.from_bytes(content[:4], "big")
    head = json.loads(content[4 : 4 + size])
    if not head["rows"]:
        return [[]], [()] * len(Costs.names())
    columns = _columns(content[4 + size :], head["rows"])
    texts = []
    for dictionary in head["texts"]:
        texts.append([dictionary[index] for index in accumulate(next(columns))])
    names = Costs.names()[: head["amounts"]]  # new amounts are only ever added at the end
    return texts, _amounts({name: next(columns) for name in names}, head["rows"])


def _deviations(costs: Costs) -> list[int]:
    """Return a row's amounts, each minus the amount that is expected from the others."""
    amounts = asdict(costs)
    return [amounts[name] - _expected_amount(name, amounts) for name in amounts]


def _amounts(deviations: Mapping[str, Sequence[int]], rows: int) -> list[Sequence[int]]:
    """Return the amounts of `Costs`, column by column, by adding what is expected from the others."""
    amounts = {name: deviations.get(name) or [0] * rows for name in Costs.names()}
    for name in ("effective_usd", "unmeasured_usd"):
        part_hours = amounts[name.replace("_usd", "_gpu_hours")]
        columns = zip(amounts[name], part_hours, amounts["allocated_usd"], amounts["allocated_gpu_hours"], strict=True)
        amounts[name] = [
            deviation + hours * usd // total if hours and total else deviation
            for deviation, hours, usd, total in columns
        ]
    parts = ("waste_usd", "allocated_usd", "effective_usd", "unmeasured_usd")
    columns = zip(*(amounts[name] for name in parts), strict=True)
    amounts["waste_usd"] = [
        deviation + usd - effective - unmeasured for deviation, usd, effective, unmeasured in columns
    ]
    return [amounts[name] for name in Costs.names()]


def _expected_amount(name: str, amounts: dict[str, int]) -> int:
    if name == "waste_usd":
        return amounts["allocated_usd"] - amounts["effective_usd"] - amounts["unmeasured_usd"]
    if name in {"effective_usd", "unmeasured_usd"} and amounts["allocated_gpu_hours"]:
        hours = amounts[name.replace("_usd", "_gpu_hours")]
        return hours * amounts["allocated_usd"] // amounts["allocated_gpu_hours"]
    return 0


def _pack(column: Sequence[int]) -> bytes:
    """Write numbers at one width: first all first bytes, which are similar, then all second bytes, and so on."""
    width = max((number.bit_length() // 8 + 1 for number in column), default=1)
    plain = b"".join(number.to_bytes(width, "big", signed=True) for number in column)
    return bytes([width]) + b"".join(plain[position::width] for position in range(width))


def _columns(data: bytes, rows: int) -> Iterator[list[int]]:
    start = 0
    while start < len(data):
        width = data[start]
        planes = data[start + 1 : start + 1 + rows * width]
        if width <= _WORD_BYTES:
            yield _read_words(planes, rows, width)
        else:
            yield [int.from_bytes(planes[row::rows], "big", signed=True) for row in range(rows)]
        start += 1 + rows * width


def _read_words(planes: bytes, rows: int, width: int) -> list[int]:
    """Read numbers of at most eight bytes, all at once."""
    words = bytearray(rows * _WORD_BYTES)
    sign = planes[:rows].translate(_SIGN_EXTENSIONS)
    for position in range(_WORD_BYTES):
        plane = position - (_WORD_BYTES - width)
        words[position::_WORD_BYTES] = sign if plane < 0 else planes[plane * rows : (plane + 1) * rows]
    return list(struct.unpack(f">{rows}q", words))


# Rollups: sums by UTC day.

BUCKETS = 16
"""Facts of a sixteenth of all business units are stored together: a month of one unit is one query of few items."""
DIGEST_BYTES = 6
"""Length of the digest of a run id, by which versions of an hour are distinguished."""


class RollupStore:
    """Reads sums of hours by day, from rollups where they are up to date, and writes rollups."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._ledger = Ledger(table)

    def days(self, cluster: str, start: datetime, end: datetime) -> list[DaySummary]:
        """Return the sums of every UTC day of `[start, end)` that has a published hour, in order."""
        return self.days_of(self._ledger.manifests(cluster, start, end))

    def days_of(self, manifests: Sequence[Manifest]) -> list[DaySummary]:
        """Return the sums by UTC day of versions of one cluster's hours, which are in order."""
        if not manifests:
            return []
        cluster, published = manifests[0].cluster, _manifests_by_day(manifests)
        stored = _items_by_day(self._items(_days_partition(cluster), manifests))
        summaries_by_day = []
        for day, day_manifests in published.items():
            item = _joined_day_item(stored.get(day, []))
            summary_of_day = None
            if item is not None and _stored_digests(item) == run_digests(day_manifests):
                summary_of_day = _read_summary(cluster, day, day_manifests, item)
            if summary_of_day is None or (
                summary_of_day.totals is not None and not summary_of_day.totals.are_plausible()
            ):
                summary_of_day = sum_day(
                    cluster, day, [*filter(_has_its_figures, self._ledger.summaries_of(day_manifests))]
                )
            summaries_by_day.append(summary_of_day)
        return summaries_by_day

    def unit_hours(
        self, cluster: str, business_unit: str, start: datetime, end: datetime
    ) -> list[tuple[Manifest, Costs | None]]:
        """Return one business unit's costs in every published hour of `[start, end)`, in order."""
        return self.unit_hours_of(self._ledger.manifests(cluster, start, end), business_unit)

    def unit_hours_of(self, manifests: Sequence[Manifest], business_unit: str) -> list[tuple[Manifest, Costs | None]]:
        """Return one business unit's costs in versions of one cluster's hours, which are in order."""
        if not manifests:
            return []
        cluster = manifests[0].cluster
        heads = [item for item in self._items(_heads_partition(cluster), manifests) if _covers_unit_hours(item)]
        rolled_up = {hour_digest for item in heads for hour_digest in _hour_digests(item)}
        stored: dict[tuple[datetime, bytes], Costs] = {}
        days = set()
        for item in self._items(_unit_partition(cluster, business_unit), manifests):
            stored |= _read_unit_hours(item)
            days.add(_read_day(item))
        costs_by_hour: dict[datetime, Costs | None] = {}
        for manifest in manifests:
            version = manifest.hour, _run_digest(manifest)
            if manifest.status == "incomplete":
                costs_by_hour[manifest.hour] = None
            elif version in stored:
                costs_by_hour[manifest.hour] = stored[version] if stored[version].are_plausible() else None
            elif version in rolled_up and floor_day(manifest.hour) not in days:
                costs_by_hour[manifest.hour] = Costs()
        for run in _manifests_by_day(manifest for manifest in manifests if manifest.hour not in costs_by_hour).values():
            for summary in self._ledger.summaries_of(run):
                costs_by_hour[summary.start] = (
                    costs_by_unit(summary).get(business_unit, Costs()) if summary.totals else None
                )
        return [(manifest, costs_by_hour[manifest.hour]) for manifest in manifests]

    def facts(
        self, cluster: str, start: datetime, end: datetime, business_unit: str | None = None
    ) -> list[tuple[datetime, CostsByKey[FactKey]]]:
        """Return the facts of every UTC day of `[start, end)` that has a published hour, all or one business unit's."""
        return self.facts_of(self._ledger.manifests(cluster, start, end), business_unit)

    def facts_of(
        self, manifests: Sequence[Manifest], business_unit: str | None = None
    ) -> list[tuple[datetime, CostsByKey[FactKey]]]:
        """Return the facts by UTC day of versions of one cluster's hours, all or one business unit's.

        Days that are not rolled up, such as the current one, are summed from their lines. They are left out if their
        lines have expired.
        """
        if not manifests:
            return []
        cluster, published = manifests[0].cluster, _manifests_by_day(manifests)
        heads = {_read_day(item): item for item in self._items(_heads_partition(cluster), manifests)}
        rolled_up = {
            day
            for day, day_manifests in published.items()
            if day in heads and "f" in heads[day] and _stored_digests(heads[day]) == run_digests(day_manifests)
        }
        rows: dict[datetime, dict[FactKey, Costs]] = {day: {} for day in rolled_up}
        filled: dict[datetime, set[int]] = {}
        buckets = range(BUCKETS) if business_unit is None else [_bucket(business_unit)]
        for bucket in buckets if rolled_up else ():
            for day, items in _items_by_day(self._items(_facts_partition(cluster, bucket), manifests)).items():
                if day not in rows:
                    continue
                digests = run_digests(published[day])
                if _are_complete(items, digests):
                    rows[day] |= _read_facts(items, business_unit)
                    continue
                if day not in filled:
                    filled[day] = self._filled_buckets(cluster, day, digests)
                if bucket in filled[day]:
                    del rows[day]  # another writer is writing it
                # else the items are left over: the bucket's last business unit was renamed or has no costs any more
        for day, day_manifests in published.items():
            if day not in rows or not all(costs.are_plausible() for costs in rows[day].values()):
                from_lines = self._facts_from_lines(day_manifests, business_unit)
                rows.pop(day, None)
                if from_lines is not None:
                    rows[day] = from_lines.rows
        return [(day, CostsByKey.of(rows[day])) for day in published if day in rows]

    def roll_up(self, cluster: str, day: datetime, now: datetime, retention: Retention = DEFAULT_RETENTION) -> bool:
        """Update a UTC day's rollups, its facts only after the day has ended.

        Returns:
            False if they were up to date.

        Raises:
            DataExpiredError: an hour's figures have expired or are damaged, so that the day cannot be summed. Its
                rollups stay unchanged.
            SourceError: the table failed; rolling up again is safe.
        """
        manifests = self._ledger.manifests(cluster, day, day + DAY)
        try:
            return self._roll_up(cluster, day, manifests, now, retention) if manifests else False
        except IntegrityError as error:
            raise DataExpiredError(f"{cluster} {_day_text(day)} cannot be summed: {error}") from error

    def _roll_up(
        self, cluster: str, day: datetime, manifests: Sequence[Manifest], now: datetime, retention: Retention
    ) -> bool:
        head = self._table.get(_heads_partition(cluster), _day_text(day))
        is_over = now >= day + DAY
        is_current = head is not None and _stored_digests(head) == run_digests(manifests)
        if is_current and (not is_over or (head is not None and "f" in head)):
            return False
        if not is_current:
            self.write_day(cluster, day, manifests, self._ledger.summaries_of(manifests), retention)
        facts = self._facts_to_write(manifests, head) if is_over else None
        if facts is not None:
            self.write_facts(cluster, day, manifests, facts, retention)
        self.write_head(cluster, day, manifests, retention, with_facts=facts is not None)
        return True

    def _facts_to_write(self, manifests: Sequence[Manifest], head: Item | None) -> CostsByKey[FactKey] | None:
        """Sum a day's facts; None if lines of an hour have expired.

        Lines are read only of hours that the stored facts do not sum, so that hours that arrive one by one do not read
        those before them again.
        """
        summed = set(_hour_digests(head)) if head is not None and "f" in head else set()
        kept = [manifest for manifest in manifests if (manifest.hour, _run_digest(manifest)) in summed]
        stored = [facts for _, facts in self.facts_of(kept)]
        added = self._facts_from_lines([manifest for manifest in manifests if manifest not in kept], None)
        return None if added is None or (kept and not stored) else merge_facts([*stored, added])

    def write_day(
        self,
        cluster: str,
        day: datetime,
        manifests: Sequence[Manifest],
        summaries: Sequence[HourSummary],
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        """Write a day's sums, and the hours of each business unit.

        Raises:
            DataExpiredError: an hour's figures have expired or are implausibly large.
        """
        for manifest, summary in zip(manifests, summaries, strict=True):
            if manifest.status != "incomplete" and summary.totals is None:
                raise DataExpiredError(
                    f"the figures of {cluster} {manifest.hour} have expired or are implausibly large; "
                    "its day cannot be summed"
                )
        self._put_if_newer(*_day_items(sum_day(cluster, day, summaries), retention))
        units: dict[str, list[tuple[tuple[str], Costs]]] = {}
        for summary in summaries:
            for unit, costs in costs_by_unit(summary).items():
                units.setdefault(unit, []).append(((f"{summary.start:%H}",), costs))
        self._table.put_all(
            [
                _item(
                    _unit_partition(cluster, unit),
                    _day_text(day),
                    manifests,
                    retention.hours,
                    {"b": {"B": pack_table(rows)}},
                )
                for unit, rows in units.items()
            ]
        )

    def write_facts(
        self,
        cluster: str,
        day: datetime,
        manifests: Sequence[Manifest],
        facts: Mapping[FactKey, Costs],
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        """Write a day's facts. Buckets without any are left as they are, because their digests no longer match."""
        buckets: dict[int, list[tuple[list[str], Costs]]] = {}
        for fact, costs in facts.items():
            texts = [*fact[:-1], json.dumps(fact.labels, ensure_ascii=False)]
            buckets.setdefault(_bucket(fact.business_unit), []).append((texts, costs))
        items = []
        for bucket, rows in buckets.items():
            data = pack_table(rows)
            chunks = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
            for number, chunk in enumerate(chunks):
                attributes: Item = {"b": {"B": chunk}, "k": {"N": str(len(chunks))}}
                sk = f"{_day_text(day)}#{number:04d}"
                items.append(_item(_facts_partition(cluster, bucket), sk, manifests, retention.days, attributes))
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
        """Record that all rollups of a day are written, so that a missing item means that there was nothing to sum."""
        attributes: dict[str, dict[str, Any]] = {"u": {"N": str(_expiry(manifests, retention.hours))}}
        if with_facts:
            attributes["f"] = {"BOOL": True}
        self._put_if_newer(_item(_heads_partition(cluster), _day_text(day), manifests, retention.days, attributes))

    def _filled_buckets(self, cluster: str, day: datetime, digests: bytes) -> set[int]:
        """Return the buckets that have facts of these versions, by the day's sums; all if those are outdated."""
        item = _joined_day_item(list(self._table.query(_days_partition(cluster), StartsWith(_day_text(day)))))
        if item is None or _stored_digests(item) != digests:
            return set(range(BUCKETS))
        check_schema_version(item)
        with verify_integrity(item):
            return {_bucket(unit) for unit in unpack_single_key_table(item["b"]["B"])}

    def _facts_from_lines(self, manifests: Iterable[Manifest], business_unit: str | None) -> CostsByKey[FactKey] | None:
        """Sum the facts of hours from their lines; None if lines of an hour have expired."""
        facts_by_hour = []
        for hour in (manifest for manifest in manifests if manifest.status != "incomplete"):
            lines = self._ledger.lines_of(hour, business_unit)
            if not lines:
                (summary,) = self._ledger.summaries_of([hour])
                if not _has_its_figures(summary) or any(business_unit in {None, unit} for unit, _ in summary.costs):
                    return None
            facts_by_hour.append(sum_lines(lines))
        return merge_facts(facts_by_hour)

    def _put_if_newer(self, *items: Item) -> None:
        """Write items unless newer ones exist: of two concurrent writers, the one with more published versions wins."""
        try:
            chunked_documents.put_document(self._table, items, MissingOr(Comparison("n", "<=", integer(items[0], "n"))))
        except ConflictError:
            return

    def _items(self, pk: str, manifests: Sequence[Manifest]) -> Iterator[Item]:
        """Yield the items of a partition for the days of these hours."""
        # `~` sorts after every character of a key, so that all chunks of the last day are included.
        first, last = _day_text(manifests[0].hour), f"{_day_text(manifests[-1].hour)}~"
        for item in self._table.query(pk, Between(first, last)):
            check_schema_version(item)
            yield item


def run_digests(manifests: Iterable[Manifest]) -> bytes:
    """Return one digest for each of the 24 hours of a day, in order; zeros for an hour without figures.

    Args:
        manifests: of hours of one UTC day.
    """
    digests = {manifest.hour.hour: _run_digest(manifest) for manifest in manifests if manifest.status != "incomplete"}
    return b"".join(digests.get(hour, bytes(DIGEST_BYTES)) for hour in range(DAY // HOUR))


def _run_digest(manifest: Manifest) -> bytes:
    return hashlib.sha256(manifest.run_id.encode()).digest()[:DIGEST_BYTES]


def _has_its_figures(summary: HourSummary) -> bool:
    """Whether an hour's summary still has the figures that its status promises."""
    return summary.manifest.status == "incomplete" or summary.totals is not None


def _expiry(manifests: Sequence[Manifest], retention: timedelta) -> int:
    """When rollups of these hours expire, in seconds since the epoch."""
    return to_epoch_seconds(max(manifest.published_at for manifest in manifests) + retention)


def _covers_unit_hours(head: Item) -> bool:
    """Whether a business unit without an item had no costs. Later its item may have expired."""
    return integer(head, "u") > time.time()


def _item(pk: str, sk: str, manifests: Sequence[Manifest], retention: timedelta, attributes: Item) -> Item:
    """Build an item with the versions that it sums. Its `n` grows with every publication of an hour."""
    return {
        **key(pk, sk),
        "v": {"N": str(SCHEMA_VERSION)},
        "h": {"B": run_digests(manifests)},
        "n": {"N": str(sum(manifest.version for manifest in manifests))},
        "expires_at": {"N": str(_expiry(manifests, retention))},
        **attributes,
    }


def _day_items(summary: DaySummary, retention: Retention) -> list[Item]:
    """Return the items of a day's sums. One item holds about 6,000 business units and unmatched namespaces."""
    data = pack_table([((unit,), costs) for unit, costs in summary.costs.items()])
    attributes: dict[str, dict[str, Any]] = (
        {"t": {"S": compressed_documents.totals_text(summary.totals)}} if summary.totals else {}
    )
    head = _item(
        _days_partition(summary.cluster), _day_text(summary.start), summary.manifests, retention.days, attributes
    )
    return chunked_documents.document_items(head, data, {"h": head["h"]})


def _joined_day_item(items: Sequence[Item]) -> Item | None:
    """Return a day's item with its chunks joined; None if it is missing or its chunks are of different writes."""
    if not items or "#" in text(items[0], "sk"):
        return None
    try:
        return {**items[0], "b": {"B": chunked_documents.join_chunks(items[0], items[1:], "h")}}
    except ConflictError:
        return None


def _read_summary(cluster: str, day: datetime, manifests: Sequence[Manifest], item: Item) -> DaySummary:
    with verify_integrity(item):
        totals = compressed_documents.read_totals_text(text(item, "t")) if "t" in item else None
        return DaySummary(cluster, day, tuple(manifests), totals, unpack_single_key_table(item["b"]["B"]))


def _read_unit_hours(item: Item) -> dict[tuple[datetime, bytes], Costs]:
    """Return costs by hour and digest, with zeros for hours in which the business unit held nothing."""
    with verify_integrity(item):
        rows = {int(hour): costs for (hour,), costs in unpack_table(item["b"]["B"]).items()}
    return {(hour, digest): rows.get(hour.hour, Costs()) for hour, digest in _hour_digests(item)}


def _are_complete(items: Sequence[Item], digests: bytes) -> bool:
    """Whether all chunks are there and sum these versions."""
    count = integer(items[0], "k")
    return len(items) >= count and all(_stored_digests(item) == digests for item in items[:count])


def _read_facts(items: Sequence[Item], business_unit: str | None) -> dict[FactKey, Costs]:
    facts = {}
    with verify_integrity(items[0]):
        for texts, costs in unpack_table(
            b"".join([item["b"]["B"] for item in items[: integer(items[0], "k")]])
        ).items():
            fact = FactKey._make([*texts[:-1], tuple((name, label) for name, label in json.loads(texts[-1]))])
            if business_unit is None or fact.business_unit == business_unit:
                facts[fact] = costs
    return facts


def _items_by_day(items: Iterable[Item]) -> dict[datetime, list[Item]]:
    by_day: dict[datetime, list[Item]] = {}
    for item in items:
        by_day.setdefault(_read_day(item), []).append(item)
    return by_day


def _manifests_by_day(manifests: Iterable[Manifest]) -> dict[datetime, list[Manifest]]:
    by_day: dict[datetime, list[Manifest]] = {}
    for manifest in manifests:
        by_day.setdefault(floor_day(manifest.hour), []).append(manifest)
    return by_day


def _stored_digests(item: Item) -> bytes:
    return bytes(item.get("h", {}).get("B", b""))


def _hour_digests(item: Item) -> list[tuple[datetime, bytes]]:
    """Return the hours with figures that an item sums, each with its digest."""
    day, digests = _read_day(item), _stored_digests(item)
    by_hour = [
        (day + HOUR * hour, digests[hour * DIGEST_BYTES : hour * DIGEST_BYTES + DIGEST_BYTES])
        for hour in range(len(digests) // DIGEST_BYTES)
    ]
    return [(hour, digest) for hour, digest in by_hour if any(digest)]


def _bucket(business_unit: str) -> int:
    return hashlib.sha256(business_unit.encode()).digest()[0] % BUCKETS


def _days_partition(cluster: str) -> str:
    return partition_key(cluster, "days")


def _heads_partition(cluster: str) -> str:
    return partition_key(cluster, "rollups")


def _unit_partition(cluster: str, business_unit: str) -> str:
    return f"C#{cluster}#unit#{business_unit_hash(business_unit)}"


def _facts_partition(cluster: str, bucket: int) -> str:
    return f"C#{cluster}#facts#{bucket:02d}"


def _day_text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d")


def _read_day(item: Item) -> datetime:
    return datetime.fromisoformat(text(item, "sk")[:10]).replace(tzinfo=UTC)
