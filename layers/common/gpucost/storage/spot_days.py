"""Spot prices by UTC day, each day packed with what was in force at its first moment, so that it stands alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gpucost.core.hours import floor_day
from gpucost.core.intervals import Interval
from gpucost.core.pricing.price_changes import PriceChange, changes_between
from gpucost.core.pricing.price_history import (
    FAR_FUTURE,
    PriceEvent,
    Timelines,
    from_epoch_seconds,
    join_slices,
    merge_response,
    slice_timelines,
    to_epoch_seconds,
)
from gpucost.storage import compressed_documents, price_items
from gpucost.storage import packed_items as packed
from gpucost.storage.packed_items import PackedDocument
from gpucost.storage.price_ports import PriceUpdate
from gpucost.storage.table import ConditionalDelete, ConditionalPut, Item, Table, key, text

PARTITION = "PRICES#spot"
DAY = 86_400
MOST_BYTES, MOST_ITEMS = 3_000_000, 80
"""Of the days in one transaction, which takes 4 MB and 100 items."""
KEPT = timedelta(days=5 * 366)
"""As long as the hours that were priced with them."""


@dataclass(frozen=True)
class Day:
    """One day as it is stored."""

    start: int
    """Seconds since the epoch."""
    timelines: Timelines
    pieces: int


def whole(days: Iterable[Day]) -> Timelines:
    """Several days as one; a day speaks for itself alone, but where it tells until when its last prices count."""
    return join_slices((day.start, _closed(day)) for day in days)


def _closed(day: Day) -> Timelines:
    end = PriceEvent(day.start + DAY, None)
    return {one: events if events[-1].amount is None else (*events, end) for one, events in day.timelines.items()}


@dataclass
class _Chunk:
    """Days that are written together."""

    days: dict[int, list[bytes]]

    @property
    def start(self) -> int:
        return min(self.days)

    def takes(self, other: "_Chunk") -> bool:
        """Whether a transaction holds both; of one week, so that it holds the same ones when it is tried again."""
        pieces = [piece for chunk in (self, other) for own in chunk.days.values() for piece in own]
        one_week = self.start // (7 * DAY) == other.start // (7 * DAY)
        return one_week and sum(map(len, pieces)) <= MOST_BYTES and len(pieces) <= MOST_ITEMS


class SpotDays:
    """The days of one table.

    Args:
        table: the ledger's.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def read(self, first: int, last: int = FAR_FUTURE) -> list[Day]:
        """The days of a time (seconds), in order; and the one before where the first day is not held."""
        start = first // DAY * DAY
        end = "~" if last == FAR_FUTURE else f"{_name((last - 1) // DAY * DAY)}~"
        days = _days(self._table.query(PARTITION, "sk BETWEEN :first AND :last", first=_name(start), last=end))
        before = None if days and days[0].start == start else self.newest(_name(start))
        return [before, *days] if before else days

    def newest(self, before: str = "~") -> Day | None:
        """The newest day that is held before a sort key."""
        newest = next(self._table.query(PARTITION, "sk < :sk", limit=1, newest_first=True, sk=before), None)
        if newest is None:
            return None
        items: Iterable[Item] = [newest]
        name, _, piece = text(newest, "sk").partition("#")
        if int(piece):
            items = self._table.query(PARTITION, "begins_with(sk, :name)", name=name)
        return _days(items)[0]

    def replace(
        self, answer: Timelines, since: int, *, generation: int, rated_until: datetime, now: datetime
    ) -> PriceUpdate:
        """Lay an answer over the days, week by week, oldest first: killed in between, running again goes on.

        Args:
            answer: of each thing everything since.
            since: seconds since the epoch.
            generation: of the source, as it was read before.
            rated_until: changes before it enter the change log.
            now: the time now.

        Raises:
            ConflictError: somebody else wrote; whole weeks may have been written.
        """
        first = since // DAY * DAY
        days = self.read(first)
        stored = {day.start: day for day in days if day.start >= first}
        old = whole(days)
        new = merge_response(old, answer, since)
        chunks = _chunks(new, first, max([to_epoch_seconds(floor_day(now)), *stored]), stored)
        made: list[PriceChange] = []
        limit = to_epoch_seconds(rated_until)
        for place, chunk in enumerate(chunks):
            begins = chunk.start if place else first
            ends = chunks[place + 1].start if place + 1 < len(chunks) else limit
            changes = changes_between("spot", old, new, Interval(begins, min(ends, limit)), now)
            self._write(chunk, generation + place, stored, changes)
            made += changes
        count = sum(old.get(one) != events for one, events in new.items()) if chunks else 0
        return PriceUpdate(count, tuple(made))

    def _write(self, chunk: _Chunk, generation: int, stored: Mapping[int, Day], changes: Iterable[PriceChange]) -> None:
        puts: list[ConditionalPut] = packed.puts(price_items.BOOK, "spot", [b"0"], generation)
        deletes: list[ConditionalDelete] = []
        for start, pieces in chunk.days.items():
            expires_at = start + int(KEPT.total_seconds())
            own = packed.items(PARTITION, _name(start), pieces, generation + 1, expires_at)
            puts += [(item, "", None) for item in own]
            surplus = range(len(pieces), stored[start].pieces if start in stored else 0)
            deletes += [(key(PARTITION, packed.sk(_name(start), place)), "") for place in surplus]
        self._table.transact([*puts, *map(price_items.put_change, changes)], deletes)


def _chunks(timelines: Timelines, first: int, last: int, stored: Mapping[int, Day]) -> list[_Chunk]:
    """The days that are not stored as they are now, as they are written together."""
    chunks: list[_Chunk] = []
    for start in range(first, last + DAY, DAY):
        own = slice_timelines(timelines, start, FAR_FUTURE if start == last else start + DAY)
        if not own or (start in stored and stored[start].timelines == own):
            continue
        chunk = _Chunk({start: compressed_documents.pack(price_items.timelines_document(own, start))})
        if chunks and chunks[-1].takes(chunk):
            chunks[-1].days |= chunk.days
        else:
            chunks.append(chunk)
    return chunks


def _days(items: Iterable[Item]) -> list[Day]:
    documents: dict[str, PackedDocument] = {}
    for item in items:
        documents.setdefault(text(item, "sk").partition("#")[0], PackedDocument()).add(item)
    found = []
    for name, document in documents.items():
        start = to_epoch_seconds(datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC))
        timelines = price_items.read_timelines(document.read(None), start)
        found.append(Day(start, timelines, len(document.chunks)))
    return found


def _name(start: int) -> str:
    return f"{from_epoch_seconds(start):%Y-%m-%d}"
