"""Stores spot prices by UTC day. Each day includes the prices in force at its start, so that it can be read alone."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from gpucost.core.hours import floor_day
from gpucost.core.intervals import IntervalMs
from gpucost.core.pricing.price_changes import PriceChange, changes_between
from gpucost.core.pricing.price_history import (
    FAR_FUTURE,
    PriceEvent,
    Timelines,
    clip_timelines,
    from_epoch_seconds,
    join_timelines,
    merge_response,
    to_epoch_seconds,
)
from gpucost.storage import compressed_documents, packed_items, price_items
from gpucost.storage.conditions import Before, Between, StartsWith
from gpucost.storage.packed_items import PackedDocument
from gpucost.storage.ports import Table
from gpucost.storage.price_types import PriceUpdate
from gpucost.storage.table import ConditionalDelete, ConditionalPut, Item, key, text

PARTITION = "PRICES#spot"
DAY_SECONDS = 86_400
MAX_TRANSACTION_BYTES, MAX_TRANSACTION_ITEMS = 3_000_000, 80
"""Limits of the days in one transaction, which takes 4 MB and 100 items."""
RETENTION = timedelta(days=5 * 366)
"""As long as the hours that were priced with them are kept."""


class StoredSpotDay(Struct, frozen=True):
    """A day as it is stored."""

    start: int
    """Midnight UTC of the day, in seconds since the epoch."""
    timelines: Timelines
    chunks: int


def join_days(days: Iterable[StoredSpotDay]) -> Timelines:
    """Join the timelines of several days. Each day's prices hold for that day only."""
    return join_timelines((day.start, _timelines_until_day_end(day)) for day in days)


def _timelines_until_day_end(day: StoredSpotDay) -> Timelines:
    end = PriceEvent(day.start + DAY_SECONDS, None)
    return {
        price_key: events if events[-1].amount is None else (*events, end)
        for price_key, events in day.timelines.items()
    }


class _Batch(Struct):
    """Days that are written in one transaction."""

    days: dict[int, list[bytes]]

    @property
    def start(self) -> int:
        return min(self.days)

    def fits(self, other: "_Batch") -> bool:
        """Whether both fit one transaction. A batch is within one week, so that a repeated call makes the same ones."""
        chunks = [chunk for batch in (self, other) for day_chunks in batch.days.values() for chunk in day_chunks]
        is_same_week = self.start // (7 * DAY_SECONDS) == other.start // (7 * DAY_SECONDS)
        return is_same_week and sum(map(len, chunks)) <= MAX_TRANSACTION_BYTES and len(chunks) <= MAX_TRANSACTION_ITEMS


class SpotDays:
    """The stored days of spot prices.

    Args:
        table: the ledger's table.
        chunk_bytes: size of the chunks that a day is stored in.
    """

    def __init__(self, table: Table, chunk_bytes: int) -> None:
        self._table = table
        self._chunk_bytes = chunk_bytes

    def read(self, first: int, last: int = FAR_FUTURE) -> list[StoredSpotDay]:
        """Read the days of a period (epoch seconds) in order; if the first is not stored, also the newest before it."""
        start = first // DAY_SECONDS * DAY_SECONDS
        end = "~" if last == FAR_FUTURE else f"{_day_name((last - 1) // DAY_SECONDS * DAY_SECONDS)}~"
        days = _days(self._table.query(PARTITION, Between(_day_name(start), end)))
        before = None if days and days[0].start == start else self.newest(_day_name(start))
        return [before, *days] if before else days

    def newest(self, before: str = "~") -> StoredSpotDay | None:
        """Read the newest stored day before a sort key."""
        newest = next(self._table.query(PARTITION, Before(before), limit=1, newest_first=True), None)
        if newest is None:
            return None
        items: Iterable[Item] = [newest]
        name, _, number = text(newest, "sk").partition("#")
        if int(number):
            items = self._table.query(PARTITION, StartsWith(name))
        return _days(items)[0]

    def merge_prices(
        self, response: Timelines, since: int, *, generation: int, rated_until: datetime, now: datetime
    ) -> PriceUpdate:
        """Merge a response of AWS into the days, week by week, oldest first. After a crash, running again continues.

        Args:
            response: all prices from `since` on, by what they apply to.
            since: seconds since the epoch.
            generation: the generation of the spot prices, as it was read before.
            rated_until: changes before this time are recorded in the change log.
            now: the current time.

        Raises:
            ConflictError: another writer wrote; some weeks may have been written.
        """
        first = since // DAY_SECONDS * DAY_SECONDS
        days = self.read(first)
        stored = {day.start: day for day in days if day.start >= first}
        old = join_days(days)
        new = merge_response(old, response, since)
        last = max([to_epoch_seconds(floor_day(now)), *stored])
        batches = _batches(new, first, last, stored, self._chunk_bytes)
        all_changes: list[PriceChange] = []
        limit = to_epoch_seconds(rated_until)
        for number, batch in enumerate(batches):
            begins = batch.start if number else first
            ends = batches[number + 1].start if number + 1 < len(batches) else limit
            changes = changes_between("spot", old, new, IntervalMs(begins, min(ends, limit)), now)
            self._write(batch, generation + number, stored, changes)
            all_changes += changes
        count = sum(old.get(price_key) != events for price_key, events in new.items()) if batches else 0
        return PriceUpdate(count, tuple(all_changes))

    def _write(
        self, batch: _Batch, generation: int, stored: Mapping[int, StoredSpotDay], changes: Iterable[PriceChange]
    ) -> None:
        puts: list[ConditionalPut] = packed_items.replacing_puts(price_items.BOOK, "spot", [b"0"], generation)
        deletes: list[ConditionalDelete] = []
        for start, chunks in batch.days.items():
            expires_at = start + int(RETENTION.total_seconds())
            items = packed_items.chunk_items(PARTITION, _day_name(start), chunks, generation + 1, expires_at)
            puts += [(item, None) for item in items]
            surplus = range(len(chunks), stored[start].chunks if start in stored else 0)
            deletes += [
                (key(PARTITION, packed_items.chunk_sort_key(_day_name(start), number)), None) for number in surplus
            ]
        self._table.transact([*puts, *map(price_items.change_put, changes)], deletes)


def _batches(
    timelines: Timelines, first: int, last: int, stored: Mapping[int, StoredSpotDay], chunk_bytes: int
) -> list[_Batch]:
    """Group the days that differ from what is stored into batches."""
    batches: list[_Batch] = []
    for start in range(first, last + DAY_SECONDS, DAY_SECONDS):
        of_day = clip_timelines(timelines, start, FAR_FUTURE if start == last else start + DAY_SECONDS)
        if not of_day or (start in stored and stored[start].timelines == of_day):
            continue
        document = price_items.timelines_document(of_day, start)
        batch = _Batch({start: compressed_documents.pack(document, chunk_bytes)})
        if batches and batches[-1].fits(batch):
            batches[-1].days |= batch.days
        else:
            batches.append(batch)
    return batches


def _days(items: Iterable[Item]) -> list[StoredSpotDay]:
    documents: dict[str, PackedDocument] = {}
    for item in items:
        documents.setdefault(text(item, "sk").partition("#")[0], PackedDocument()).add_chunk(item)
    days = []
    for name, document in documents.items():
        start = to_epoch_seconds(datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC))
        timelines = price_items.read_timelines(document.read(None), start)
        days.append(StoredSpotDay(start, timelines, len(document.chunks)))
    return days


def _day_name(start: int) -> str:
    return f"{from_epoch_seconds(start):%Y-%m-%d}"
