"""Stores the price book, so that an hour is priced with two small queries.

| item | pk | sk |
| --- | --- | --- |
| on-demand prices, overrides, shapes | `PRICES` | `<name>#<chunk>` |
| generation of the spot prices | `PRICES` | `spot#0000` |
| a UTC day's spot prices | `PRICES#spot` | `<day>#<chunk>` |
| change whose hours are to be rated again | `PRICES#pending` | `<id>` |
| change whose hours were rated again | `PRICES#settled` | `<id>` |

A day of spot prices can be read alone, because it includes the prices in force at its start. Every write is a
transaction on the condition that its source's generation is unchanged. It includes the changes that it makes to past
times.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from msgspec import Struct, field

from gpucost.core.decimals import parse_decimal, parse_fraction
from gpucost.core.errors import InvalidInputError, NotFoundError
from gpucost.core.hours import floor_day, floor_hour, format_timestamp, parse_timestamp
from gpucost.core.intervals import IntervalMs
from gpucost.core.pricing.price_history import (
    FAR_FUTURE,
    PriceChange,
    PriceEvent,
    PriceKey,
    PriceOverride,
    Timeline,
    Timelines,
    changes_between,
    clip_timelines,
    drop_override,
    from_epoch_seconds,
    join_timelines,
    merge_response,
    new_change,
    new_override,
    override_change,
    prices_of,
    timelines_of,
    to_epoch_seconds,
)
from gpucost.core.pricing.prices import InstanceShape, Price, PriceSource
from gpucost.storage import chunked_documents, compressed_documents
from gpucost.storage.chunked_documents import PackedDocument, retry_conflicts
from gpucost.storage.ports import Table
from gpucost.storage.table import (
    PRESENT,
    SCHEMA_VERSION,
    Before,
    Between,
    ConditionalDelete,
    ConditionalPut,
    Item,
    StartsWith,
    check_schema_version,
    integer,
    key,
    text,
)

# Prices, overrides, shapes and changes as compressed documents.

BOOK, PENDING, SETTLED = "PRICES", "PRICES#pending", "PRICES#settled"


def timelines_document(timelines: Timelines, base: int = 0) -> dict[str, Any]:
    """Return timelines as JSON types, with times relative to `base` and each time of fetching stored once."""
    fetched = sorted({event.fetched_at for events in timelines.values() for event in events})
    positions = {time: position for position, time in enumerate(fetched)}
    return {
        "fetched": fetched,
        "prices": [
            [dict(key.applies_to), key.unit, [_event(event, base, positions) for event in events]]
            for key, events in sorted(timelines.items())
        ],
    }


def read_timelines(document: Mapping[str, Any], base: int = 0) -> dict[PriceKey, Timeline]:
    """Read what `timelines_document` returned."""
    fetched = document["fetched"]
    return {
        PriceKey(tuple(sorted(applies_to.items())), unit): tuple(_read_event(row, base, fetched) for row in events)
        for applies_to, unit, events in document["prices"]
    }


def _event(event: PriceEvent, base: int, positions: Mapping[int, int]) -> list[Any]:
    row = [event.at - base, None if event.amount is None else str(event.amount), positions[event.fetched_at]]
    return row if event.currency == "USD" else [*row, event.currency]


def _read_event(row: Sequence[Any], base: int, fetched: Sequence[int]) -> PriceEvent:
    start, amount, position, *currencies = row
    currency = currencies[0] if currencies else "USD"
    return PriceEvent(start + base, None if amount is None else parse_decimal(amount), currency, fetched[position])


def overrides_document(overrides: Iterable[PriceOverride]) -> list[dict[str, Any]]:
    """Return overrides as JSON types, in order."""
    return [
        {
            "id": override.id,
            "applies_to": dict(override.price.applies_to),
            "unit": override.price.unit,
            "amount": str(override.price.amount),
            "currency": override.price.currency,
            "from": _time_text(override.price.valid_from),
            "to": _time_text(override.price.valid_to),
            "set_at": _time_text(override.price.fetched_at),
            "set_to": _time_text(override.original_valid_to),
            "author": override.price.author,
            "reason": override.price.reason,
            "dropped_at": _time_text(override.dropped_at),
            "dropped_by": override.dropped_by,
            "drop_reason": override.drop_reason,
        }
        for override in overrides
    ]


def read_overrides(document: Iterable[Mapping[str, Any]]) -> list[PriceOverride]:
    """Read what `overrides_document` returned."""
    return [
        PriceOverride(
            id=row["id"],
            price=Price(
                source="override",
                unit=row["unit"],
                amount=parse_decimal(row["amount"]),
                applies_to=row["applies_to"],
                currency=row["currency"],
                valid_from=_read_time(row["from"]),
                valid_to=_read_time(row["to"]),
                fetched_at=_read_time(row["set_at"]),
                author=row["author"],
                reason=row["reason"],
            ),
            original_valid_to=_read_time(row["set_to"]),
            dropped_at=_read_time(row["dropped_at"]),
            dropped_by=row["dropped_by"],
            drop_reason=row["drop_reason"],
        )
        for row in document
    ]


def shapes_document(shapes: Mapping[str, InstanceShape]) -> list[list[Any]]:
    """Return shapes as rows of JSON types."""
    return [
        [
            shape.instance_type,
            shape.gpus if isinstance(shape.gpus, int) else str(shape.gpus),
            shape.vcpus,
            shape.memory_mib,
        ]
        for _, shape in sorted(shapes.items())
    ]


def read_shapes(document: Iterable[Sequence[Any]]) -> dict[str, InstanceShape]:
    """Read what `shapes_document` returned."""
    return {
        row[0]: InstanceShape(row[0], gpus if isinstance(gpus := row[1], int) else parse_fraction(gpus), *row[2:])
        for row in document
    }


def change_document(change: PriceChange) -> dict[str, Any]:
    """Return a change as JSON types."""
    return {
        "id": change.id,
        "source": change.source,
        "applies_to": {name: list(options) for name, options in change.applies_to.items()},
        "from": _time_text(change.start),
        "to": _time_text(change.end),
        "reason": change.reason,
        "author": change.author,
        "at": _time_text(change.changed_at),
    }


def read_change(document: Mapping[str, Any], settled_at: datetime | None) -> PriceChange:
    """Read what `change_document` returned."""
    return PriceChange(
        id=document["id"],
        source=document["source"],
        applies_to={name: tuple(options) for name, options in document["applies_to"].items()},
        start=_read_time(document["from"]),
        end=parse_timestamp(document["to"]),
        reason=document["reason"],
        author=document["author"],
        changed_at=parse_timestamp(document["at"]),
        settled_at=settled_at,
    )


def change_put(change: PriceChange) -> ConditionalPut:
    """Return the write of a pending change. The same change is the same item."""
    data = b"".join(compressed_documents.pack(change_document(change)))
    return {**key(PENDING, change.id), "v": {"N": str(SCHEMA_VERSION)}, "b": {"B": data}}, None


def read_change_item(item: Item) -> PriceChange:
    """Read a change from its item, settled or pending."""
    check_schema_version(item)
    settled_at = from_epoch_seconds(integer(item, "t")) if "t" in item else None
    return compressed_documents.unpack([item], lambda document: read_change(document, settled_at))


def _time_text(time: datetime | None) -> str | None:
    return None if time is None else format_timestamp(time)


def _read_time(text: str | None) -> datetime | None:
    return None if text is None else parse_timestamp(text)


# The book: an hour is priced with two small queries.

MAX_PERIOD = timedelta(days=35)
"""Longest period that one read covers."""
DocumentName = Literal["on-demand", "override", "shapes", "spot"]


SPOT_PARTITION = "PRICES#spot"
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


FetchedSource = Literal["spot", "on-demand"]


class PricesInForce(Struct, frozen=True):
    """The price book's content for some hours: fetched prices, prices set by hand, and shapes of instance types."""

    prices: Sequence[Price] = ()
    shapes: Mapping[str, InstanceShape] = field(default_factory=dict)


class PriceUpdate(Struct, frozen=True):
    """What a write changed in the price book."""

    changed_count: int
    """How many keys (such as instance type and zone) have changed prices, validity or shapes."""
    changes: tuple[PriceChange, ...]
    """Changes of times that may have been rated; each is in the change log."""


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
        days = _days(self._table.query(SPOT_PARTITION, Between(_day_name(start), end)))
        before = None if days and days[0].start == start else self.newest(_day_name(start))
        return [before, *days] if before else days

    def newest(self, before: str = "~") -> StoredSpotDay | None:
        """Read the newest stored day before a sort key."""
        newest = next(self._table.query(SPOT_PARTITION, Before(before), limit=1, newest_first=True), None)
        if newest is None:
            return None
        items: Iterable[Item] = [newest]
        name, _, number = text(newest, "sk").partition("#")
        if int(number):
            items = self._table.query(SPOT_PARTITION, StartsWith(name))
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
        puts: list[ConditionalPut] = chunked_documents.replacing_puts(BOOK, "spot", [b"0"], generation)
        deletes: list[ConditionalDelete] = []
        for start, chunks in batch.days.items():
            expires_at = start + int(RETENTION.total_seconds())
            items = chunked_documents.chunk_items(SPOT_PARTITION, _day_name(start), chunks, generation + 1, expires_at)
            puts += [(item, None) for item in items]
            surplus = range(len(chunks), stored[start].chunks if start in stored else 0)
            deletes += [
                (key(SPOT_PARTITION, chunked_documents.chunk_sort_key(_day_name(start), number)), None)
                for number in surplus
            ]
        self._table.transact([*puts, *map(change_put, changes)], deletes)


def _batches(
    timelines: Timelines, first: int, last: int, stored: Mapping[int, StoredSpotDay], chunk_bytes: int
) -> list[_Batch]:
    """Group the days that differ from what is stored into batches."""
    batches: list[_Batch] = []
    for start in range(first, last + DAY_SECONDS, DAY_SECONDS):
        of_day = clip_timelines(timelines, start, FAR_FUTURE if start == last else start + DAY_SECONDS)
        if not of_day or (start in stored and stored[start].timelines == of_day):
            continue
        document = timelines_document(of_day, start)
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
        timelines = read_timelines(document.read(None), start)
        days.append(StoredSpotDay(start, timelines, len(document.chunks)))
    return days


def _day_name(start: int) -> str:
    return f"{from_epoch_seconds(start):%Y-%m-%d}"


class PriceStore:
    """Prices of all sources except those in the settings. Every read is consistent.

    Args:
        table: the ledger's table.
        chunk_bytes: size of the chunks that a document is stored in.
    """

    def __init__(self, table: Table, *, chunk_bytes: int = compressed_documents.CHUNK_BYTES) -> None:
        self._table = table
        self._chunk_bytes = chunk_bytes
        self._spot = SpotDays(self._table, chunk_bytes)

    def in_force(
        self, start: datetime, end: datetime, *, sources: Collection[PriceSource] | None = None
    ) -> PricesInForce:
        """Return all prices that are in force at some time of `[start, end)`, with a few requests.

        Args:
            start: start of the period.
            end: end of the period, at most 35 days later.
            sources: the sources that are needed; None for all.

        Raises:
            InvalidInputError: the period is longer than 35 days.
            SourceError: the table failed.
        """
        if end - start > MAX_PERIOD:
            raise InvalidInputError(
                f"the period is longer than {MAX_PERIOD.days} days, the most that prices are read for"
            )
        first, last = to_epoch_seconds(start), to_epoch_seconds(end)

        def read() -> PricesInForce:
            documents = self._documents()
            prices = list(prices_of("on-demand", _timelines(documents["on-demand"]), first, last))
            prices += [
                override.price
                for override in read_overrides(documents["override"].read([]))
                if _overlaps(override.price, start, end)
            ]
            if documents["spot"].generation and (sources is None or "spot" in sources):
                prices += prices_of("spot", join_days(self._spot.read(first, last)), first, last)
            return PricesInForce(prices, read_shapes(documents["shapes"].read([])))

        return retry_conflicts(read)

    def newest(self, source: FetchedSource) -> list[Price]:
        """Return the newest stored prices of a source, from which a refresh continues."""
        if source == "on-demand":
            return list(prices_of("on-demand", _timelines(self._documents()["on-demand"])))
        newest = retry_conflicts(self._spot.newest)
        return [] if newest is None else list(prices_of("spot", join_days([newest])))

    def overrides(self) -> list[PriceOverride]:
        """Return all prices that were ever set by hand, dropped ones included, in the order in which they were set."""
        return read_overrides(self._documents()["override"].read([]))

    def merge_prices(
        self,
        source: FetchedSource,
        prices: Sequence[Price],
        *,
        since: datetime | None = None,
        rated_until: datetime,
        now: datetime,
    ) -> PriceUpdate:
        """Merge prices that AWS returned into the stored ones. The same prices again write nothing.

        Args:
            source: source of the prices.
            prices: all prices from the first one on, for each key (such as instance type and zone). Other keys keep
                their stored prices.
            since: time from which the prices are complete; None: from each key's first price on.
            rated_until: hours that end by then may have been rated; changes before it are recorded in the change log.
            now: the current time.

        Raises:
            ConflictError: other writers kept interfering; nothing is lost, calling again is safe.
            SourceError: the table failed; calling again is safe.
        """
        response = timelines_of(prices)
        if source == "spot":
            begins = (
                to_epoch_seconds(since) if since else min((events[0].at for events in response.values()), default=0)
            )

            def replace_spot() -> PriceUpdate:
                generation = self._documents()["spot"].generation
                return self._spot.merge_prices(
                    response, begins, generation=generation, rated_until=rated_until, now=now
                )

            return retry_conflicts(replace_spot) if response else PriceUpdate(0, ())

        def replace_on_demand() -> PriceUpdate:
            document = self._documents()["on-demand"]
            old = _timelines(document)
            new = merge_response(old, response, to_epoch_seconds(since) if since else None)
            count = sum(old.get(price_key) != events for price_key, events in new.items())
            changes = changes_between(
                "on-demand", old, new, IntervalMs(-FAR_FUTURE, to_epoch_seconds(rated_until)), now
            )
            return self._write("on-demand", document, timelines_document(new), changes, count)

        return retry_conflicts(replace_on_demand)

    def update_shapes(self, shapes: Sequence[InstanceShape], *, rated_until: datetime, now: datetime) -> PriceUpdate:
        """Add or correct shapes of instance types; others are kept. Arguments as in `replace_on_demand`."""

        def write() -> PriceUpdate:
            document = self._documents()["shapes"]
            old = read_shapes(document.read([]))
            new = [shape for shape in shapes if old.get(shape.instance_type) != shape]
            changes = []
            if new:
                keys = [{"instance_type": shape.instance_type} for shape in new]
                reason = f"{len(new)} shape{'s' if len(new) > 1 else ''} of instance types new or changed"
                changes = [new_change("shapes", keys, (None, rated_until), reason=reason, author="prices", at=now)]
            all_shapes = {**old, **{shape.instance_type: shape for shape in new}}
            return self._write("shapes", document, shapes_document(all_shapes), changes, len(new))

        return retry_conflicts(write)

    def set_override(self, price: Price, *, now: datetime) -> PriceOverride:
        """Set a price by hand, with its author and reason. Setting the same price again returns the existing override.

        Raises:
            ConflictError: other writers kept interfering; nothing was written.
        """

        def add(overrides: list[PriceOverride]) -> tuple[PriceOverride, PriceChange | None]:
            override = new_override(price, overrides)
            if override not in overrides:
                overrides.append(override)
            period = (price.valid_from, price.valid_to)
            reason = f"override {override.id} set: {price.reason}"
            change = override_change(override, period, floor_hour(now), reason=reason, author=price.author, at=now)
            return override, change

        return self._change_overrides(add)

    def drop_override(
        self, override_id: str, *, at: datetime, author: str, reason: str, now: datetime
    ) -> PriceOverride:
        """End the validity of a price that was set by hand. A dropped one may end earlier, and never later.

        Raises:
            NotFoundError: there is no override with this id.
            ConflictError: other writers kept interfering; nothing was written.
        """

        def drop(overrides: list[PriceOverride]) -> tuple[PriceOverride, PriceChange | None]:
            index = next((index for index, override in enumerate(overrides) if override.id == override_id), None)
            if index is None:
                raise NotFoundError(f"there is no override {override_id!r}; `gpucost prices changes` lists them")
            before = overrides[index]
            if before.dropped_at is not None and before.price.valid_to is not None and at >= before.price.valid_to:
                return before, None
            after = overrides[index] = drop_override(before, at=at, author=author, reason=reason, now=now)
            period = (after.price.valid_to, before.price.valid_to)
            change_reason = f"override {override_id} dropped: {reason}"
            change = override_change(before, period, floor_hour(now), reason=change_reason, author=author, at=now)
            return after, change

        return self._change_overrides(drop)

    def changes(self, start: datetime, end: datetime) -> list[PriceChange]:
        """Return the changes that were made in `[start, end)`, settled or pending, oldest first.

        Changes have whole seconds, so an end within a second includes those of this second.
        """
        first, last = format_timestamp(start), format_timestamp(end + timedelta(microseconds=999_999))
        changes = [
            read_change_item(item) for pk in (SETTLED, PENDING) for item in self._table.query(pk, Between(first, last))
        ]
        return sorted(changes, key=lambda change: change.id)

    def pending_changes(self, limit: int = 0) -> list[PriceChange]:
        """Return changes whose hours were not rated again yet, oldest first; at most `limit`, 0 for all.

        An attribution that was running when a change was made may have read the book before it. So an hour published up
        to the attribute function's time-out later may still have the old prices.
        """
        return [read_change_item(item) for item in self._table.query(PENDING, limit=limit)]

    def settle(self, change_id: str, *, now: datetime) -> None:
        """Mark a change as settled, because its hours were rated again. Settling twice is harmless.

        Raises:
            NotFoundError: there is no such change.
        """

        def move() -> None:
            item = self._table.get(PENDING, change_id)
            if item is None:
                if self._table.get(SETTLED, change_id) is None:
                    raise NotFoundError(f"there is no change {change_id!r} of prices")
                return
            settled: Item = {
                **item,
                **key(SETTLED, change_id),
                "t": {"N": str(to_epoch_seconds(now))},
                "expires_at": {"N": str(to_epoch_seconds(now + RETENTION))},
            }
            self._table.transact([(settled, None)], [(key(PENDING, change_id), PRESENT)])

        retry_conflicts(move)

    def _change_overrides(
        self, edit: Callable[[list[PriceOverride]], tuple[PriceOverride, PriceChange | None]]
    ) -> PriceOverride:
        def write() -> PriceOverride:
            document = self._documents()["override"]
            overrides = read_overrides(document.read([]))
            before = list(overrides)
            override, change = edit(overrides)
            if overrides != before:
                changes = [change] if change else []
                self._write("override", document, overrides_document(overrides), changes, 1)
            return override

        return retry_conflicts(write)

    def _write(
        self, name: DocumentName, document: PackedDocument, content: Any, changes: Sequence[PriceChange], count: int
    ) -> PriceUpdate:
        """Replace the document that was read, and record the changes to past times."""
        if not count:
            return PriceUpdate(0, ())
        chunks = compressed_documents.pack(content, self._chunk_bytes)
        self._table.transact(
            [*chunked_documents.replacing_puts(BOOK, name, chunks, document.generation), *map(change_put, changes)],
            [
                (key(BOOK, chunked_documents.chunk_sort_key(name, number)), None)
                for number in range(len(chunks), len(document.chunks))
            ],
        )
        return PriceUpdate(count, tuple(changes))

    def _documents(self) -> dict[DocumentName, PackedDocument]:
        """Read all documents except the spot prices, with one query."""
        documents: dict[DocumentName, PackedDocument] = {name: PackedDocument() for name in get_args(DocumentName)}
        for item in self._table.query(BOOK):
            name = text(item, "sk").partition("#")[0]
            for document_name, document in documents.items():
                if document_name == name:
                    document.add_chunk(item)
        return documents


def _timelines(document: PackedDocument) -> dict[PriceKey, Timeline]:
    return read_timelines(document.read({"fetched": [], "prices": []}))


def _overlaps(price: Price, start: datetime, end: datetime) -> bool:
    begins = price.valid_from is None or price.valid_from < end
    return begins and (price.valid_to is None or price.valid_to > max(start, price.valid_from or start))


def last_spot_fetch(book: PriceStore) -> datetime | None:
    """Return when spot prices were last fetched; None if never. (Price lists are stored only when they change.)"""
    return max((price.fetched_at for price in book.newest("spot") if price.fetched_at is not None), default=None)
