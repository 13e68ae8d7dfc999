"""Billed hours on Amazon's own DynamoDB engine: what is stored is read, changes can't be lost, reads are cheap."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.errors import ConflictError, SourceError
from gpucost.core.hour_record import ClusterCharge
from gpucost.core.hours import HOUR as ONE_HOUR
from gpucost.core.hours import HOUR_MS
from gpucost.core.pricing.bill import Bill, BilledHour
from gpucost.storage.bill_store import BillStore, bill_day_document, read_bill_day
from gpucost.storage.compressed_documents import CHUNK_BYTES, pack, unpack
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost_devstack.dynamodb_local import create_table
from tests.conftest import DynamoTable
from tests.records import amount

DAY = datetime(2026, 11, 19, tzinfo=UTC)
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ONE_DAY = timedelta(days=1)
SMALL_CHUNK_BYTES = 3_000


class WatchedClient:
    """The real client, counting what it consumes, refusing inconsistent reads, and failing before or after a call."""

    def __init__(self, client: Any, fail_at: int = 0, *, after: bool = False) -> None:
        self._client = client
        self._fail_at = fail_at
        self._after = after
        self.calls: list[str] = []
        self.units: dict[str, float] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            self.calls.append(name)
            is_last = len(self.calls) == self._fail_at
            if is_last and not self._after:
                raise KeyboardInterrupt("killed")
            assert name not in {"get_item", "query"} or arguments.get("ConsistentRead") is True
            answer = getattr(self._client, name)(**arguments, ReturnConsumedCapacity="TOTAL")
            spent = answer.get("ConsumedCapacity", [])
            for units in spent if isinstance(spent, list) else [spent]:
                self.units[name] = self.units.get(name, 0.0) + units["CapacityUnits"]
            if is_last:
                raise KeyboardInterrupt("killed")
            return answer

        return call


def billed(usd: str = "55.04", **changes: Any) -> BilledHour:
    return replace(BilledHour(amount(usd), "USD", HOUR_MS, False), **changes)


def bill(*amounts: str, is_final: bool = False) -> Bill:
    return Bill({f"i-{number}": billed(usd) for number, usd in enumerate(amounts)}, {}, is_final)


def store_of(table: DynamoTable, client: Any = None, chunk_bytes: int = CHUNK_BYTES) -> BillStore:
    return BillStore(DynamoDBTable(client or table.client, table.name), clock=lambda: NOW, chunk_bytes=chunk_bytes)


def small_chunks(table: DynamoTable, client: Any = None) -> BillStore:
    """A store in which a day of several chunks need not be large."""
    return store_of(table, client, SMALL_CHUNK_BYTES)


def hours_of_day(*hours: int) -> list[datetime]:
    return [DAY + hour * ONE_HOUR for hour in hours]


FULL = Bill(
    instances={
        "i-a": billed("0.000000000001", currency="EUR", billed_ms=1, is_final=True, unblended_amount=amount("1.5")),
        "i-b": billed("12345678.123456789012"),
        "i-c": billed("0.000000000000"),
    },
    charges={
        "demo": [
            ClusterCharge("unused-capacity-reservation", "arn:cr", amount("110.08"), "USD", amount(16)),
            ClusterCharge("unused-capacity-reservation", "arn:cr-0", amount(1), "USD", 0),
            ClusterCharge("unused-savings-plan", "arn:sp", amount(3), "EUR"),
            ClusterCharge("unused-savings-plan", "arn:sp", amount("19.5")),
        ],
        "eu": [ClusterCharge("unused-reservation", "arn:ri", amount(2), "EUR")],
    },
    is_final=True,
)


def test_stored_bills_are_read_unchanged(table: DynamoTable) -> None:
    store = store_of(table, WatchedClient(table.client))
    assert store.store(DAY, {hours_of_day(9)[0]: FULL, hours_of_day(10)[0]: bill("1", "2")}) == hours_of_day(9, 10)
    assert store.bills(DAY, DAY + ONE_DAY) == {hours_of_day(9)[0]: FULL, hours_of_day(10)[0]: bill("1", "2")}
    assert store.bill(hours_of_day(9)[0]) == FULL
    assert store.bill(hours_of_day(11)[0]) is None
    assert store.bill(DAY - ONE_DAY) is None


def test_only_requested_hours_are_read_across_days_and_months(table: DynamoTable) -> None:
    store = store_of(table)
    hours = [datetime(2026, 10, 31, 22, tzinfo=UTC) + number * ONE_HOUR for number in range(30)]
    for day in sorted({hour.replace(hour=0) for hour in hours}):
        store.store(day, {hour: bill(str(hour.hour)) for hour in hours if hour.replace(hour=0) == day})
    assert list(store.bills(hours[1], hours[27])) == hours[1:27]
    assert list(store.bills(hours[3], hours[4])) == [hours[3]]
    assert list(store.bills(hours[0] - 70 * ONE_DAY, hours[0] + 70 * ONE_DAY)) == hours
    assert store.bills(hours[2], hours[2]) == {}


def test_same_prices_again_write_nothing(table: DynamoTable) -> None:
    store_of(table).store(DAY, {hours_of_day(9)[0]: FULL, hours_of_day(10)[0]: bill("1")})
    watched = WatchedClient(table.client)
    assert store_of(table, watched).store(DAY, {hours_of_day(10)[0]: bill("1"), hours_of_day(9)[0]: FULL}) == []
    assert watched.calls == ["query"]
    assert len(store_of(table).pending_changes()) == 1


BILLED = st.builds(
    BilledHour,
    amount=st.sampled_from(["1", "2.5", "0.000000000001"]).map(amount),
    currency=st.sampled_from(["USD", "EUR"]),
    billed_ms=st.sampled_from([HOUR_MS, 7]),
    is_final=st.booleans(),
    unblended_amount=st.sampled_from([None, amount(3)]),
    is_block_fee=st.booleans(),
)
CHARGES = st.lists(
    st.builds(
        ClusterCharge,
        kind=st.just("unused-capacity-reservation"),
        reference=st.sampled_from(["arn:a", "arn:b"]),
        amount=st.sampled_from([amount(1), amount(2)]),
        currency=st.just("USD"),
        gpu_hours=st.sampled_from([None, amount(8)]),
    ),
    max_size=2,
    unique_by=lambda charge: charge.reference,
).map(lambda charges: sorted(charges, key=lambda charge: charge.reference))
BILLS = st.builds(
    Bill,
    instances=st.dictionaries(st.sampled_from(["i-a", "i-b"]), BILLED),
    charges=st.dictionaries(st.sampled_from(["demo", "eu"]), CHARGES.filter(bool)),
    is_final=st.booleans(),
)


@given(st.dictionaries(st.integers(0, 23), BILLS))
def test_any_day_is_read_as_stored(day: dict[int, Bill]) -> None:
    assert unpack([{"b": {"B": piece}} for piece in pack(bill_day_document(day))], read_bill_day) == day


@pytest.mark.parametrize(
    "changed",
    [
        bill("1", "2.000000000001"),
        bill("1"),
        bill("1", "2", "3"),
        bill("1", "2", is_final=True),
        Bill({"i-0": billed("1"), "i-1": billed("2", is_final=True)}),
        Bill({"i-0": billed("1"), "i-1": billed("2", billed_ms=HOUR_MS - 1)}),
        Bill({"i-0": billed("1"), "i-1": billed("2", unblended_amount=amount(3))}),
        Bill({"i-0": billed("1"), "i-1": billed("2", currency="EUR")}),
        replace(bill("1", "2"), charges={"demo": [ClusterCharge("unused-savings-plan", "arn:sp", amount(1))]}),
    ],
)
def test_changed_hours_are_listed_until_settled(table: DynamoTable, changed: Bill) -> None:
    store = store_of(table)
    first = {hour: bill("1", "2") for hour in hours_of_day(8, 9, 10)}
    store.store(DAY, first)
    (change,) = store.pending_changes()
    assert change.hours == tuple(hours_of_day(8, 9, 10))
    store.settle(change)
    assert store.pending_changes() == []
    assert store.store(DAY, first | {hours_of_day(9)[0]: changed}) == hours_of_day(9)
    (change,) = store.pending_changes()
    assert change.hours == tuple(hours_of_day(9))
    assert store.bill(hours_of_day(9)[0]) == changed
    store.settle(change)
    store.settle(change)
    assert store.pending_changes() == []


def test_hour_removed_from_the_bill_counts_as_changed(table: DynamoTable) -> None:
    store = store_of(table)
    store.store(DAY, {hour: bill("1") for hour in hours_of_day(8, 9)})
    assert store.store(DAY, {hours_of_day(8)[0]: bill("1")}) == hours_of_day(9)
    assert store.bill(hours_of_day(9)[0]) is None
    assert store.store(DAY, {}) == hours_of_day(8)
    assert store.bills(DAY, DAY + ONE_DAY) == {}


def test_changes_of_one_day_are_kept_separately_even_if_reverted(table: DynamoTable) -> None:
    store = store_of(table)
    for usd in ("1", "2", "1", "2"):
        store.store(DAY, {hours_of_day(8)[0]: bill(usd), hours_of_day(9)[0]: bill("7")})
    changes = store.pending_changes()
    assert len(changes) == 3, "first, 1 → 2 (twice the same), 2 → 1"
    assert {hour for change in changes for hour in change.hours} == set(hours_of_day(8, 9))


def test_one_of_two_concurrent_writers_wins_and_the_other_gets_a_conflict(table: DynamoTable) -> None:
    class Interfering(WatchedClient):
        """Somebody else stores the day between reading and writing."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name == "transact_write_items":
                store_of(table).store(DAY, {hours_of_day(8)[0]: bill("9")})
            return super().__getattr__(name)

    with pytest.raises(ConflictError):
        store_of(table, Interfering(table.client)).store(DAY, {hours_of_day(8)[0]: bill("5")})
    assert store_of(table).bill(hours_of_day(8)[0]) == bill("9")
    store_of(table).store(DAY, {hours_of_day(8)[0]: bill("5")})
    with pytest.raises(ConflictError):
        store_of(table, Interfering(table.client)).store(DAY, {hours_of_day(8)[0]: bill("6")})
    assert store_of(table).bill(hours_of_day(8)[0]) == bill("9")


@pytest.mark.tools
@pytest.mark.parametrize("after", [False, True])
def test_run_again_after_a_crash_at_any_call_ends_the_same(table: DynamoTable, after: bool) -> None:
    before, later = large(60), large(40, seed=5) | {hours_of_day(23)[0]: bill("1")}

    def start_over() -> None:
        table.client.delete_table(TableName=table.name)
        create_table(table.client, table.name)
        small_chunks(table).store(DAY, before)
        for change in small_chunks(table).pending_changes():
            small_chunks(table).settle(change)

    def everything(client: Any) -> None:
        store = small_chunks(table, client)
        store.store(DAY, later)
        store.record_month(DAY.replace(day=1), is_closed=True)

    def seen() -> tuple[Any, ...]:
        store = small_chunks(table)
        hours = {hour for change in store.pending_changes() for hour in change.hours}
        return store.bills(DAY, DAY + ONE_DAY), hours, store.months()

    start_over()
    old = seen()[0]
    moved = set(small_chunks(table).store(DAY, later))
    start_over()
    watched = WatchedClient(table.client)
    everything(watched)
    expected = seen()
    assert expected[1], "something changed"
    assert len(watched.calls) >= 3
    for number in range(1, len(watched.calls) + 1):
        start_over()
        with pytest.raises(KeyboardInterrupt):
            everything(WatchedClient(table.client, number, after=after))
        bills, changed, _ = seen()
        assert (bills == old and not changed) or (bills == expected[0] and changed >= moved), "both or neither"
        everything(table.client)
        assert seen() == expected, f"call {number}"


def large(size: int, seed: int = 1) -> dict[datetime, Bill]:
    """A day of so many instances an hour, whose amounts do not compress."""
    chance = random.Random(seed)
    return {
        hour: Bill(
            {
                f"i-{chance.getrandbits(68):017x}": billed(f"{chance.randrange(10**14)}e-12", unblended_amount=None)
                for _ in range(size)
            }
        )
        for hour in hours_of_day(*range(12))
    }


def test_day_of_several_chunks_grows_and_shrinks(table: DynamoTable) -> None:
    store = store_of(table)
    many, few = large(2000), {hours_of_day(3)[0]: bill("1")}
    store.store(DAY, many)
    pieces = [item for item in items(table) if item["pk"]["S"] == "BILL#2026-11"]
    assert len(pieces) > 1
    assert max(len(item["b"]["B"]) for item in pieces) <= 300_000
    assert store.bills(DAY, DAY + ONE_DAY) == many
    store.store(DAY, few)
    assert store.bills(DAY, DAY + ONE_DAY) == few
    assert len([item for item in items(table) if item["pk"]["S"] == "BILL#2026-11"]) == 1


def items(table: DynamoTable) -> list[dict[str, Any]]:
    return [
        item for page in table.client.get_paginator("scan").paginate(TableName=table.name) for item in page["Items"]
    ]


def test_chunks_of_two_versions_are_never_joined(table: DynamoTable) -> None:
    """A reader that catches the first page of one version and the second of the next reads again."""
    small_chunks(table).store(DAY, large(40))

    class Overtaken(WatchedClient):
        """After the first page somebody stores other figures, once."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            real = super().__getattr__(name)

            def call(**arguments: Any) -> Any:
                answer = real(**(arguments | {"Limit": 1}))
                if len(self.calls) == 1:
                    small_chunks(table).store(DAY, large(40, seed=9))
                return answer

            return call

    bills = small_chunks(table, Overtaken(table.client)).bills(DAY, DAY + ONE_DAY)
    assert bills == large(40, seed=9)


def test_day_with_chunks_of_two_versions_raises_an_error(table: DynamoTable) -> None:
    small_chunks(table).store(DAY, large(40))
    table.client.delete_item(TableName=table.name, Key={"pk": {"S": "BILL#2026-11"}, "sk": {"S": "19#01"}})
    with pytest.raises(SourceError, match="2026-11 changed each time"):
        small_chunks(table).bill(hours_of_day(3)[0])


def test_day_too_large_for_a_transaction_is_refused(table: DynamoTable) -> None:
    with pytest.raises(SourceError, match=r"2026-11-19 is too large: \d+ chunks"):
        store_of(table, chunk_bytes=SMALL_CHUNK_BYTES // 10).store(DAY, large(40))


def test_read_months_are_stored(table: DynamoTable) -> None:
    store = store_of(table)
    october, november = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
    assert store.months() == {}
    store.record_month(october, is_closed=False)
    store.record_month(november, is_closed=False)
    store.record_month(october, is_closed=True)
    assert store.months() == {october: True, november: False}


@pytest.mark.tools  # the engine counts the units
def test_reading_prices_stays_within_its_budget(table: DynamoTable) -> None:
    """50 instances all month, half of them spot with another price each hour: a month is read for few units."""
    chance = random.Random(3)
    names = [f"i-{chance.getrandbits(68):017x}" for _ in range(50)]
    store = store_of(table)
    for day in range(1, 31):
        start = datetime(2026, 11, day, tzinfo=UTC)
        store.store(
            start,
            {
                start + hour * ONE_HOUR: Bill(
                    {
                        name: billed("55.04" if number % 2 else f"{chance.randrange(10**11)}e-10")
                        for number, name in enumerate(names)
                    }
                )
                for hour in range(24)
            },
        )
    month, hour, changes = WatchedClient(table.client), WatchedClient(table.client), WatchedClient(table.client)
    november = datetime(2026, 11, 1, tzinfo=UTC)
    assert len(store_of(table, month).bills(november, november + 30 * ONE_DAY)) == 720
    assert store_of(table, hour).bill(DAY) is not None
    assert len(store_of(table, changes).pending_changes()) == 30
    assert month.calls == ["query"]
    assert month.units["query"] <= 60
    assert hour.units["query"] <= 2
    assert changes.units["query"] <= 3
