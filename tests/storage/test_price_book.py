"""The price book on Amazon's own DynamoDB engine: packed, idempotent, with every change of past hours in its log."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from gpucost.core.errors import ConflictError, InvalidInputError, NotFoundError, SourceError
from gpucost.core.hours import floor_hour
from gpucost.core.pricing.price_history import PriceChange
from gpucost.core.pricing.prices import InstanceShape, Price
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ports import Table
from gpucost.storage.price_book import PriceStore
from gpucost_devstack.dynamodb_local import create_table
from tests.conftest import DynamoTable
from tests.metered_client import MeteredClient
from tests.prices import DAY, G5, HOUR, NOON, NOW, P5, RATED, listed, spot


def by_hand(amount: str, start: datetime, end: datetime | None = None, why: str = "negotiated", **facts: str) -> Price:
    return Price("override", "gpu-hour", Decimal(amount), facts, "USD", start, end, NOW, "ann", why)


def history(moves: str = "0.30 0.35 0.40", start: datetime = NOON - 40 * HOUR, kind: str = G5) -> list[Price]:
    """Prices that change every ten hours."""
    amounts = moves.split()
    starts = [start + 10 * HOUR * number for number in range(len(amounts))]
    ends = [*starts[1:], NOON.replace(hour=0) + 2 * DAY]
    return [spot(kind, begins, stops, amount) for begins, stops, amount in zip(starts, ends, amounts, strict=True)]


@pytest.fixture
def book(ledger_table: Table) -> PriceStore:
    return PriceStore(ledger_table)


def amounts(book: PriceStore, start: datetime, hours: int = 1) -> set[tuple[str, str]]:
    return {(price.source, str(price.amount)) for price in book.in_force(start, start + hours * HOUR).prices}


def contents(table: DynamoTable) -> list[Any]:
    """Everything in the table but generations, which count the writes."""
    items = table.client.scan(TableName=table.name, ConsistentRead=True)["Items"]
    return sorted(({name: value for name, value in item.items() if name != "n"} for item in items), key=str)


def periods(changes: tuple[PriceChange, ...] | list[PriceChange]) -> list[tuple[str, datetime | None, datetime]]:
    return [(change.source, change.start, change.end) for change in changes]


def test_fetched_prices_are_in_force_from_their_time(book: PriceStore) -> None:
    book.merge_prices("spot", history(), since=NOON - 41 * HOUR, rated_until=RATED, now=NOW)
    begins = NOON - 40 * HOUR
    assert amounts(book, begins) == {("spot", "0.30")}
    assert amounts(book, begins - HOUR) == set()
    assert amounts(book, begins + 9 * HOUR, 2) == {("spot", "0.30"), ("spot", "0.35")}
    assert amounts(book, begins, 24) == {("spot", "0.30"), ("spot", "0.35"), ("spot", "0.40")}
    (price,) = book.in_force(NOON - HOUR, NOON).prices
    assert price == history()[-1], "source, unit, currency, amount, validity and time of fetching"


def test_day_without_fetched_prices_continues_the_last_price_until_it_expires(book: PriceStore) -> None:
    book.merge_prices("spot", history(), since=NOON - 41 * HOUR, rated_until=RATED, now=NOW)
    tomorrow = NOON.replace(hour=0) + DAY
    assert amounts(book, tomorrow + 23 * HOUR) == {("spot", "0.40")}
    assert amounts(book, tomorrow + 24 * HOUR) == set()
    assert amounts(book, tomorrow + 20 * HOUR, 24) == {("spot", "0.40")}


def test_same_response_again_writes_nothing(table: DynamoTable) -> None:
    def refresh(client: Any, now: datetime) -> Any:
        book = PriceStore(DynamoDBTable(client, table.name))
        shape = InstanceShape(G5, 1, 4, 16384)
        again = [replace(price, fetched_at=now) for price in history()]
        return [
            book.merge_prices("spot", again, since=NOON - 41 * HOUR, rated_until=floor_hour(now), now=now),
            book.merge_prices("on-demand", [listed(G5, NOON - 30 * DAY, "1.006", now)], rated_until=NOON, now=now),
            book.update_shapes([shape], rated_until=NOON, now=now),
        ]

    assert [update.changed_count for update in refresh(table.client, NOW)] == [1, 1, 1]
    before, changes = contents(table), PriceStore(DynamoDBTable(table.client, table.name)).pending_changes()
    watched = MeteredClient(table.client)
    second = refresh(watched, NOW + 5 * HOUR)
    assert [(update.changed_count, update.changes) for update in second] == [(0, ())] * 3
    assert set(watched.calls) == {"query"}
    assert contents(table) == before
    assert len(changes) == 3


def test_first_price_is_a_change_and_its_continuation_is_none(book: PriceStore) -> None:
    first = book.merge_prices("spot", history("0.30"), since=NOON - 41 * HOUR, rated_until=RATED, now=NOW)
    assert periods(first.changes) == [("spot", NOON - 40 * HOUR, RATED)]
    later = NOW + DAY
    longer = [spot(G5, NOON - 40 * HOUR, NOON.replace(hour=0) + 3 * DAY, "0.30", at=later)]
    second = book.merge_prices("spot", longer, since=NOON - 2 * HOUR, rated_until=RATED + DAY, now=later)
    assert (second.changed_count, second.changes) == (1, ())
    assert amounts(book, NOON + 2 * DAY) == {("spot", "0.30")}


def test_new_price_is_a_change_only_within_rated_hours(book: PriceStore) -> None:
    book.merge_prices("spot", history("0.30"), since=NOON - 41 * HOUR, rated_until=RATED, now=NOW)
    ends = NOON.replace(hour=0) + 2 * DAY
    fresh = [
        spot(G5, NOON - 40 * HOUR, RATED + 20 * timedelta(minutes=1), "0.30"),
        spot(G5, RATED + 20 * timedelta(minutes=1), ends, "0.31"),
    ]
    made = book.merge_prices("spot", fresh, since=RATED - HOUR, rated_until=RATED, now=NOW)
    assert (made.changed_count, made.changes) == (1, ()), "the hour that it lies in was not rated yet"
    late = [spot(G5, NOON - 40 * HOUR, RATED - 4 * HOUR, "0.30"), spot(G5, RATED - 4 * HOUR, ends, "0.31")]
    made = book.merge_prices("spot", late, since=RATED - 10 * HOUR, rated_until=RATED, now=NOW)
    assert periods(made.changes) == [("spot", RATED - 4 * HOUR, RATED)]
    assert made.changes[0] in book.pending_changes()
    assert made.changes[0].affects(
        {"instance_type": G5, "zone_id": "use1-az1", "capacity_type": "spot", "operating_system": "linux"}
    )
    assert not made.changes[0].affects(
        {"instance_type": P5, "zone_id": "use1-az1", "capacity_type": "spot", "operating_system": "linux"}
    )


def test_prices_fetched_after_an_outage_change_hours_without_a_price(book: PriceStore) -> None:
    book.merge_prices("spot", history("0.30"), since=NOON - 41 * HOUR, rated_until=RATED, now=NOW)
    ended, later = NOON.replace(hour=0) + 2 * DAY, NOW + 5 * DAY
    back = [spot(G5, NOON - 40 * HOUR, NOON.replace(hour=0) + 7 * DAY, "0.30", at=later)]
    made = book.merge_prices("spot", back, since=NOON - 2 * HOUR, rated_until=RATED + 5 * DAY, now=later)
    assert periods(made.changes) == [("spot", ended, RATED + 5 * DAY)]
    assert amounts(book, NOON + 3 * DAY) == {("spot", "0.30")}


def test_distant_changes_are_separate(book: PriceStore) -> None:
    flat = [spot(kind, NOON - 60 * DAY, NOON + DAY, "1") for kind in (G5, P5)]
    book.merge_prices("spot", flat, since=NOON - 60 * DAY, rated_until=RATED, now=NOW)
    answer = [
        spot(G5, NOON - 60 * DAY, NOON - 6 * HOUR, "1"),
        spot(G5, NOON - 6 * HOUR, NOON + DAY, "2"),
        spot(P5, NOON - 60 * DAY, NOON - 58 * HOUR, "1"),
        spot(P5, NOON - 58 * HOUR, NOON - 57 * HOUR, "2"),
        spot(P5, NOON - 57 * HOUR, NOON + DAY, "1"),
    ]
    made = book.merge_prices("spot", answer, since=NOON - 3 * DAY, rated_until=RATED, now=NOW)
    assert periods(made.changes) == [("spot", NOON - 58 * HOUR, NOON - 57 * HOUR), ("spot", NOON - 6 * HOUR, RATED)]
    assert [change.applies_to["instance_type"] for change in made.changes] == [(P5,), (G5,)]


def test_price_missing_from_a_response_stays(book: PriceStore) -> None:
    book.merge_prices("spot", history("0.30"), since=NOON - 41 * HOUR, rated_until=RATED, now=NOW)
    book.merge_prices("spot", history("9", kind=P5), since=NOON - 41 * HOUR, rated_until=RATED, now=NOW)
    assert amounts(book, NOON) == {("spot", "0.30"), ("spot", "9")}
    book.merge_prices("on-demand", [listed(G5, NOON - 9 * DAY, "1.006")], rated_until=RATED, now=NOW)
    book.merge_prices("on-demand", [listed(P5, NOON - 9 * DAY, "55.04")], rated_until=RATED, now=NOW)
    assert amounts(book, NOON) == {("spot", "0.30"), ("spot", "9"), ("on-demand", "1.006"), ("on-demand", "55.04")}
    listed_only = book.in_force(NOON, NOON + HOUR, sources=["on-demand"]).prices
    assert {price.source for price in listed_only} == {"on-demand"}, "unrequested sources are not read"


def test_list_price_changes_from_its_effective_date(book: PriceStore) -> None:
    june, july = NOON - 30 * DAY, NOON - 9 * DAY
    book.merge_prices("on-demand", [listed(G5, june, "1.006")], rated_until=RATED, now=NOW)
    same = book.merge_prices("on-demand", [listed(G5, july, "1.0060")], rated_until=RATED, now=NOW)
    assert (same.changed_count, same.changes) == (0, ()), "published again at the same price"
    made = book.merge_prices("on-demand", [listed(G5, july, "0.9")], rated_until=RATED, now=NOW)
    assert periods(made.changes) == [("on-demand", july, RATED)]
    assert amounts(book, july - HOUR) == {("on-demand", "1.006")}
    assert amounts(book, july) == {("on-demand", "0.9")}


def test_new_shape_makes_hours_ratable(book: PriceStore) -> None:
    shape = InstanceShape(P5, 8, 192, 2 * 1024 * 1024)
    made = book.update_shapes([shape], rated_until=RATED, now=NOW)
    assert periods(made.changes) == [("shapes", None, RATED)]
    assert book.in_force(NOON, NOON + HOUR).shapes == {P5: shape}


def test_override_is_set_dropped_and_kept_in_history(book: PriceStore) -> None:
    price = by_hand("2.5", NOON - 5 * HOUR, instance_type="p5.*")
    override = book.set_override(price, now=NOW)
    assert book.in_force(NOON - HOUR, NOON).prices == [price]
    assert amounts(book, NOON - 6 * HOUR) == set()
    (change,) = book.pending_changes()
    assert (change.start, change.end, change.author) == (NOON - 5 * HOUR, NOON, "ann")
    assert "negotiated" in change.reason
    ended = book.drop_override(override.id, at=NOON - 2 * HOUR, author="bob", reason="typo", now=NOW + HOUR)
    assert amounts(book, NOON - 3 * HOUR) == {("override", "2.5")}
    assert amounts(book, NOON - 2 * HOUR) == set()
    assert book.overrides() == [ended]
    assert (ended.price.author, ended.dropped_by, ended.drop_reason, ended.original_valid_to) == (
        "ann",
        "bob",
        "typo",
        None,
    )
    assert periods(book.pending_changes())[1:] == [("override", NOON - 2 * HOUR, NOON + HOUR)]
    assert book.drop_override(override.id, at=NOON, author="eve", reason="again", now=NOW + 2 * HOUR) == ended


def test_override_dropped_from_its_start_was_never_in_force(book: PriceStore) -> None:
    override = book.set_override(by_hand("2.5", NOON - 5 * HOUR), now=NOW)
    book.drop_override(override.id, at=NOON - 9 * DAY, author="bob", reason="typo", now=NOW)
    assert amounts(book, NOON - 9 * HOUR, 24) == set()
    assert periods(book.pending_changes())[1:] == [("override", NOON - 5 * HOUR, NOON)]
    assert len(book.overrides()) == 1


def test_override_set_twice_is_stored_once_and_again_after_a_drop(book: PriceStore) -> None:
    price = by_hand("2.5", NOON)
    first = book.set_override(price, now=NOW)
    assert book.set_override(price, now=NOW) == first
    book.drop_override(first.id, at=NOON, author="bob", reason="no", now=NOW)
    second = book.set_override(price, now=NOW)
    assert [override.id for override in book.overrides()] == [first.id, second.id]
    assert first.id != second.id


def test_future_override_changes_nothing_yet(book: PriceStore) -> None:
    override = book.set_override(by_hand("2.5", NOON + DAY), now=NOW)
    book.drop_override(override.id, at=NOON + 2 * DAY, author="bob", reason="no", now=NOW)
    assert book.pending_changes() == []
    with pytest.raises(NotFoundError, match="there is no override 'x'"):
        book.drop_override("x", at=NOON, author="bob", reason="no", now=NOW)


def test_change_is_pending_until_settled(book: PriceStore) -> None:
    for hours in (1, 2, 3):
        book.set_override(by_hand(str(hours), NOON - hours * HOUR), now=NOW + hours * HOUR)
    first, *others = book.pending_changes()
    assert book.pending_changes(limit=1) == [first]
    for _ in range(2):
        book.settle(first.id, now=NOW + 9 * HOUR)
    assert book.pending_changes() == others
    (settled, *_) = changes = book.changes(NOW, NOW + DAY)
    assert (settled.id, settled.settled_at, len(changes)) == (first.id, NOW + 9 * HOUR, 3)
    assert book.changes(NOW + 2 * HOUR, NOW + 3 * HOUR) == [others[0]]
    assert book.changes(NOW + 2 * HOUR, NOW + 2 * HOUR + timedelta(microseconds=1)) == [others[0]]
    assert book.changes(NOW + HOUR, NOW + 2 * HOUR) == [settled]
    with pytest.raises(NotFoundError):
        book.settle("nothing", now=NOW)


Steps = Callable[[Any, str], None]


def _refresh(client: Any, name: str) -> None:
    book = PriceStore(DynamoDBTable(client, name))
    month = history("0.30 0.35 0.40 0.45 0.50", start=NOON - 33 * DAY)
    month = [*month[:-1], *history("0.50 0.60", start=NOON - 20 * HOUR)]
    book.merge_prices("spot", month, since=NOON - 33 * DAY, rated_until=RATED, now=NOW)
    book.merge_prices("on-demand", [listed(G5, NOON - 9 * DAY, "0.9")], rated_until=RATED, now=NOW)
    book.update_shapes([InstanceShape(G5, 1, 4, 16384)], rated_until=RATED, now=NOW)


def _set(client: Any, name: str) -> None:
    PriceStore(DynamoDBTable(client, name)).set_override(by_hand("2.5", NOON - 5 * HOUR), now=NOW)


def _drop(client: Any, name: str) -> None:
    book = PriceStore(DynamoDBTable(client, name))
    (override,) = book.overrides()
    book.drop_override(override.id, at=NOON - 3 * HOUR, author="bob", reason="no", now=NOW)


def _settle(client: Any, name: str) -> None:
    book = PriceStore(DynamoDBTable(client, name))
    for change in book.pending_changes():
        book.settle(change.id, now=NOW)


@pytest.mark.tools
@pytest.mark.parametrize(("prepare", "run"), [(None, _refresh), (None, _set), (_set, _drop), (_refresh, _settle)])
def test_price_book_is_the_same_after_a_crash_at_any_call_and_a_second_run(
    table: DynamoTable, prepare: Steps | None, run: Steps
) -> None:
    def start_over() -> None:
        table.client.delete_table(TableName=table.name)
        create_table(table.client, table.name)
        if prepare is not None:
            prepare(table.client, table.name)

    start_over()
    before = contents(table)
    watched = MeteredClient(table.client)
    run(watched, table.name)
    after = contents(table)
    assert after != before
    assert len(watched.calls) > 1
    for k in range(1, len(watched.calls) + 1):
        start_over()
        with pytest.raises(KeyboardInterrupt):
            run(MeteredClient(table.client, fail_at=k), table.name)
        run(table.client, table.name)
        assert contents(table) == after, f"call {k}"


class RivalClient:
    """The real client, in front of which somebody else writes before each of the first transactions."""

    def __init__(self, client: Any, interfere: Callable[[int], None], times: int) -> None:
        self._client, self._interfere, self._left = client, interfere, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def transact_write_items(self, **arguments: Any) -> Any:
        if self._left:
            self._left -= 1
            self._interfere(self._left)
        return self._client.transact_write_items(**arguments)


@pytest.mark.parametrize("times", [1, 4])
def test_changes_of_two_concurrent_writers_are_kept(table: DynamoTable, times: int) -> None:
    direct = PriceStore(DynamoDBTable(table.client, table.name))

    def interfere(left: int) -> None:
        direct.set_override(by_hand(f"{left + 1}", NOON), now=NOW)
        direct.merge_prices("on-demand", [listed(f"g{left}", NOON, "1")], rated_until=RATED, now=NOW)
        direct.merge_prices("spot", history("1", kind=f"g{left}"), since=NOON - DAY * 3, rated_until=RATED, now=NOW)

    def other() -> PriceStore:
        return PriceStore(DynamoDBTable(RivalClient(table.client, interfere, times), table.name))

    other().set_override(by_hand("2.5", NOON), now=NOW)
    other().merge_prices("on-demand", [listed(P5, NOON, "55")], rated_until=RATED, now=NOW)
    other().merge_prices("spot", history("9", kind=P5), since=NOON - 3 * DAY, rated_until=RATED, now=NOW)
    assert len({override.price.amount for override in direct.overrides()}) == times + 1
    assert len(direct.newest("on-demand")) == times + 1
    assert len(direct.newest("spot")) == times + 1


PAST = NOON - DAY


def test_last_override_wins_even_if_set_before(ledger_table: Table) -> None:
    book = PriceStore(ledger_table)
    for number, amount in enumerate(("40", "50", "40")):
        book.set_override(by_hand(amount, PAST), now=NOW + timedelta(minutes=number))
    assert [str(override.price.amount) for override in book.overrides()] == ["40", "50", "40"]
    assert len({override.id for override in book.overrides()}) == 3
    assert len(book.pending_changes()) == 3


def test_ended_override_can_still_be_dropped(ledger_table: Table) -> None:
    book = PriceStore(ledger_table)
    wrong = book.set_override(replace(by_hand("40", PAST), valid_to=PAST + HOUR), now=NOW)
    book.drop_override(wrong.id, at=NOW, author="me", reason="too late to matter", now=NOW)
    assert book.in_force(PAST, PAST + HOUR).prices
    taken_back = book.drop_override(wrong.id, at=PAST, author="me", reason="typo", now=NOW)
    assert taken_back.price.valid_to == PAST
    assert not book.in_force(PAST, PAST + HOUR).prices
    assert {(change.start, change.end) for change in book.pending_changes()} == {(PAST, PAST + HOUR)}
    assert book.drop_override(wrong.id, at=NOW, author="me", reason="again", now=NOW) == taken_back


def test_writer_that_always_loses_raises_a_conflict(table: DynamoTable) -> None:
    direct = PriceStore(DynamoDBTable(table.client, table.name))
    rival = RivalClient(
        table.client, lambda left: ignore(direct.set_override(by_hand(f"{left + 1}", NOON), now=NOW)), 99
    )
    with pytest.raises(ConflictError):
        PriceStore(DynamoDBTable(rival, table.name)).set_override(by_hand("2.5", NOON), now=NOW)
    assert "2.5" not in {str(override.price.amount) for override in direct.overrides()}


def ignore(_: object) -> None:
    return None


def test_document_of_several_chunks_is_read_again_if_it_changes(table: DynamoTable) -> None:
    book = PriceStore(DynamoDBTable(table.client, table.name), chunk_bytes=100)
    many = [by_hand(f"{number}.5", NOON, why=f"{number}" * 9) for number in range(1, 30)]
    for price in many:
        book.set_override(price, now=NOW)
    assert [override.price for override in book.overrides()] == many
    assert book.merge_prices("spot", history(), since=NOON - 41 * HOUR, rated_until=RATED, now=NOW).changed_count == 1
    assert amounts(book, NOON - 40 * HOUR) == {("spot", "0.30")}
    assert {str(price.amount) for price in book.newest("spot")} == {"0.40"}
    book = PriceStore(DynamoDBTable(table.client, table.name))
    book.set_override(by_hand("99", NOON), now=NOW)
    flat = [spot(G5, NOON - 40 * HOUR, NOON + DAY, "1")]
    book.merge_prices("spot", flat, since=NOON - 41 * HOUR, rated_until=RATED, now=NOW)
    assert len(book.overrides()) == 30
    assert ("spot", "1") in amounts(book, NOON)
    left = [item["sk"]["S"] for item in table.client.scan(TableName=table.name)["Items"]]
    assert all(sk.endswith("#0000") for sk in left if sk.count("#")), "no piece is left over"
    piece = next(
        item for item in table.client.scan(TableName=table.name)["Items"] if item["sk"]["S"] == "override#0000"
    )
    table.client.put_item(TableName=table.name, Item={**piece, "sk": {"S": "override#0001"}, "n": {"N": "7"}})
    with pytest.raises(ConflictError, match="being written"):
        book.in_force(NOON, NOON + HOUR)


def test_item_of_a_newer_release_is_refused(table: DynamoTable) -> None:
    book = PriceStore(DynamoDBTable(table.client, table.name))
    book.set_override(by_hand("1", NOON), now=NOW)
    (item,) = [
        scanned for scanned in table.client.scan(TableName=table.name)["Items"] if scanned["pk"]["S"] == "PRICES"
    ]
    table.client.put_item(TableName=table.name, Item={**item, "v": {"N": "99"}})
    with pytest.raises(SourceError, match="schema version 99"):
        book.in_force(NOON, NOON + HOUR)


def test_period_of_one_read_is_limited(book: PriceStore) -> None:
    with pytest.raises(InvalidInputError, match="35 days"):
        book.in_force(NOON, NOON + 36 * DAY)
