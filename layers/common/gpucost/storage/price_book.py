"""The price book, packed so that an hour is priced with two small queries; fulfils `price_ports.PriceStore`.

| item | pk | sk |
| --- | --- | --- |
| on-demand prices, overrides, shapes | `PRICES` | `<name>#<piece>` |
| generation of the spot prices | `PRICES` | `spot#0000` |
| a UTC day's spot prices | `PRICES#spot` | `<day>#<piece>` |
| change to be rated again | `PRICES#pending` | `<id>` |
| change whose hours were rated again | `PRICES#settled` | `<id>` |

A day of spot prices stands alone: it begins with what was in force at its first moment. Every write is a transaction
on condition of its source's generation, and holds the changes that it makes to past times.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from gpucost.core.errors import InvalidInputError, NotFoundError
from gpucost.core.hours import floor_hour, format_timestamp
from gpucost.core.intervals import Interval
from gpucost.core.pricing.price_changes import (
    Override,
    PriceChange,
    changes_between,
    drop_override,
    new_change,
    new_override,
    override_change,
)
from gpucost.core.pricing.price_history import (
    FAR_FUTURE,
    PriceKey,
    Timeline,
    merge_response,
    prices_of,
    timelines_of,
    to_epoch_seconds,
)
from gpucost.core.pricing.price_split import InstanceShape
from gpucost.core.pricing.prices import Price, PriceSource
from gpucost.storage import compressed_documents, price_items
from gpucost.storage import packed_items as packed
from gpucost.storage.packed_items import PackedDocument, retry_conflicts
from gpucost.storage.price_items import BOOK, PENDING, SETTLED
from gpucost.storage.price_ports import FetchedSource, PricesInForce, PriceUpdate
from gpucost.storage.spot_days import KEPT, SpotDays, whole
from gpucost.storage.table import Item, Table, key, text

LONGEST = timedelta(days=35)
"""Of one reading."""
Name = Literal["on-demand", "override", "shapes", "spot"]


class PriceStore:
    """Prices of all sources but the settings' own.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._table = Table(client, table)
        self._spot = SpotDays(self._table)

    def in_force(
        self, start: datetime, end: datetime, *, sources: Collection[PriceSource] | None = None
    ) -> PricesInForce:
        """All that is in force at some time of `[start, end)`.

        Raises:
            InvalidInputError: more than 35 days.
            SourceError: the table failed.
        """
        if end - start > LONGEST:
            raise InvalidInputError(f"prices are read for {LONGEST.days} days at most")
        first, last = to_epoch_seconds(start), to_epoch_seconds(end)

        def once() -> PricesInForce:
            documents = self._documents()
            prices = list(prices_of("on-demand", _timelines(documents["on-demand"]), first, last))
            prices += [
                one.price
                for one in price_items.read_overrides(documents["override"].read([]))
                if _overlaps(one.price, start, end)
            ]
            if documents["spot"].generation and (sources is None or "spot" in sources):
                prices += prices_of("spot", whole(self._spot.read(first, last)), first, last)
            return PricesInForce(prices, price_items.read_shapes(documents["shapes"].read([])))

        return retry_conflicts(once)

    def newest(self, source: FetchedSource) -> list[Price]:
        """The newest known prices of a source."""
        if source == "on-demand":
            return list(prices_of("on-demand", _timelines(self._documents()["on-demand"])))
        newest = retry_conflicts(self._spot.newest)
        return [] if newest is None else list(prices_of("spot", whole([newest])))

    def overrides(self) -> list[Override]:
        """Every price ever set by hand, in the order in which they were set."""
        return price_items.read_overrides(self._documents()["override"].read([]))

    def replace(
        self,
        source: FetchedSource,
        prices: Sequence[Price],
        *,
        since: datetime | None = None,
        rated_until: datetime,
        now: datetime,
    ) -> PriceUpdate:
        """Lay an answer of AWS over what is known.

        Raises:
            ConflictError: somebody else kept writing.
            SourceError: the table failed.
        """
        answer = timelines_of(prices)
        if source == "spot":
            begins = to_epoch_seconds(since) if since else min((events[0].at for events in answer.values()), default=0)

            def spot() -> PriceUpdate:
                generation = self._documents()["spot"].generation
                return self._spot.replace(answer, begins, generation=generation, rated_until=rated_until, now=now)

            return retry_conflicts(spot) if answer else PriceUpdate(0, ())

        def once() -> PriceUpdate:
            document = self._documents()["on-demand"]
            old = _timelines(document)
            new = merge_response(old, answer, to_epoch_seconds(since) if since else None)
            count = sum(old.get(one) != events for one, events in new.items())
            changes = changes_between("on-demand", old, new, Interval(-FAR_FUTURE, to_epoch_seconds(rated_until)), now)
            return self._write("on-demand", document, price_items.timelines_document(new), changes, count)

        return retry_conflicts(once)

    def replace_shapes(self, shapes: Sequence[InstanceShape], *, rated_until: datetime, now: datetime) -> PriceUpdate:
        """Add shapes of instance types, or correct them."""

        def once() -> PriceUpdate:
            document = self._documents()["shapes"]
            old = price_items.read_shapes(document.read([]))
            new = [one for one in shapes if old.get(one.instance_type) != one]
            changes = []
            if new:
                keys = [{"instance_type": one.instance_type} for one in new]
                why = f"{len(new)} shape{'s' if len(new) > 1 else ''} of instance types new or changed"
                changes = [new_change("shapes", keys, (None, rated_until), reason=why, author="prices", at=now)]
            known = {**old, **{one.instance_type: one for one in new}}
            return self._write("shapes", document, price_items.shapes_document(known), changes, len(new))

        return retry_conflicts(once)

    def set_override(self, price: Price, *, now: datetime) -> Override:
        """Set a price by hand; the same one again is the one that is there.

        Raises:
            ConflictError: somebody else kept writing.
        """

        def once(known: list[Override]) -> tuple[Override, PriceChange | None]:
            override = new_override(price, known)
            if override not in known:
                known.append(override)
            time = (price.valid_from, price.valid_to)
            why = f"override {override.id} set: {price.reason}"
            return override, override_change(override, time, floor_hour(now), reason=why, author=price.author, at=now)

        return self._change_overrides(once)

    def drop_override(self, override_id: str, *, at: datetime, author: str, reason: str, now: datetime) -> Override:
        """End a price's validity at a moment; dropped before, it may end earlier still.

        Raises:
            NotFoundError: there is none of that id.
            ConflictError: somebody else kept writing.
        """

        def once(known: list[Override]) -> tuple[Override, PriceChange | None]:
            place = next((place for place, one in enumerate(known) if one.id == override_id), None)
            if place is None:
                raise NotFoundError(f"there is no override {override_id!r}; `gpucost prices history` lists them")
            before = known[place]
            if before.dropped_at is not None and before.price.valid_to is not None and at >= before.price.valid_to:
                return before, None
            known[place] = drop_override(before, at=at, author=author, reason=reason, now=now)
            time = (known[place].price.valid_to, before.price.valid_to)
            why = f"override {override_id} dropped: {reason}"
            return known[place], override_change(before, time, floor_hour(now), reason=why, author=author, at=now)

        return self._change_overrides(once)

    def changes(self, start: datetime, end: datetime) -> list[PriceChange]:
        """Changes made in `[start, end)`, settled or not, oldest first."""
        first, last = format_timestamp(start), format_timestamp(end)
        found = [
            price_items.change_of(item)
            for pk in (SETTLED, PENDING)
            for item in self._table.query(pk, "sk BETWEEN :first AND :last", first=first, last=last)
        ]
        return sorted(found, key=lambda one: one.id)

    def pending_changes(self, limit: int = 0) -> list[PriceChange]:
        """Changes whose hours were not rated again yet, oldest first."""
        return [price_items.change_of(item) for item in self._table.query(PENDING, limit=limit)]

    def settle(self, change_id: str, *, now: datetime) -> None:
        """The hours of a change were rated again.

        Raises:
            NotFoundError: there is no such change.
        """

        def once() -> None:
            item = self._table.get(PENDING, change_id)
            if item is None:
                if self._table.get(SETTLED, change_id) is None:
                    raise NotFoundError(f"there is no change {change_id!r} of prices")
                return
            settled: Item = {
                **item,
                **key(SETTLED, change_id),
                "t": {"N": str(to_epoch_seconds(now))},
                "expires_at": {"N": str(to_epoch_seconds(now + KEPT))},
            }
            self._table.transact([(settled, "", None)], [(key(PENDING, change_id), "attribute_exists(pk)")])

        retry_conflicts(once)

    def _change_overrides(self, edit: Callable[[list[Override]], tuple[Override, PriceChange | None]]) -> Override:
        def once() -> Override:
            document = self._documents()["override"]
            known = price_items.read_overrides(document.read([]))
            before = list(known)
            override, made = edit(known)
            if known != before:
                changes = [made] if made else []
                self._write("override", document, price_items.overrides_document(known), changes, 1)
            return override

        return retry_conflicts(once)

    def _write(
        self, name: Name, document: PackedDocument, content: Any, changes: Sequence[PriceChange], count: int
    ) -> PriceUpdate:
        """Put a document in place of the one that was read, with the changes that this makes."""
        if not count:
            return PriceUpdate(0, ())
        pieces = compressed_documents.pack(content)
        self._table.transact(
            [*packed.puts(BOOK, name, pieces, document.generation), *map(price_items.put_change, changes)],
            [(key(BOOK, packed.sk(name, place)), "") for place in range(len(pieces), len(document.chunks))],
        )
        return PriceUpdate(count, tuple(changes))

    def _documents(self) -> dict[Name, PackedDocument]:
        """Everything but the spot prices: one query."""
        found: dict[Name, PackedDocument] = {name: PackedDocument() for name in get_args(Name)}
        for item in self._table.query(BOOK):
            name = text(item, "sk").partition("#")[0]
            for known, document in found.items():
                if known == name:
                    document.add(item)
        return found


def _timelines(document: PackedDocument) -> dict[PriceKey, Timeline]:
    return price_items.read_timelines(document.read({"fetched": [], "prices": []}))


def _overlaps(price: Price, start: datetime, end: datetime) -> bool:
    begins = price.valid_from is None or price.valid_from < end
    return begins and (price.valid_to is None or price.valid_to > max(start, price.valid_from or start))
