"""Refreshes of the bill over several months, with the real statements on DuckDB and DynamoDB Local."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpucost.core.amounts import to_decimal
from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR as HOUR_LENGTH
from gpucost.core.hours import HOUR_MS
from gpucost.core.pricing.bill import Bill, BillExtract, BillLine
from gpucost.pipeline.refresh_bill import BillRefresh, BillRefreshService
from gpucost.settings import CoreSettings
from gpucost.settings_document import parse_settings
from gpucost.storage.bill_store import BillStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ports import Table
from gpucost_devstack.bill.export import write_export
from gpucost_devstack.bill.items import (
    LineItem,
    on_demand,
    reserved_instance_fee,
    savings_plan_covered,
    savings_plan_fee,
    spot,
    unused_capacity_reservation,
)
from gpucost_devstack.dynamodb_local import create_table
from tests.bill_export import DuckDbBill, cur_settings
from tests.conftest import DynamoTable
from tests.records import amount

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
OCTOBER, NOVEMBER, DECEMBER = (datetime(2026, month, 1, tzinfo=UTC) for month in (10, 11, 12))
HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
PLAN, RI, ODCR = "arn:plan", "arn:ri", "arn:aws:ec2:eu-central-1:1:capacity-reservation/cr-0a"


def settings_of(**cur: Any) -> CoreSettings:
    """A document whose first source is the bill."""
    lines = "".join(f", {name}: {value}" for name, value in cur.items())
    return parse_settings(
        f"""
        clusters:
          - {{name: demo, prometheus: {{url: "http://127.0.0.1:9090"}}}}
        pricing:
          sources: [cur, constant]
          gpu_hourly_usd: 12
          cur: {{database: billing, table: bill{lines}}}
        """
    )


class BillEnvironment:
    """A bill export, a table and a clock."""

    def __init__(self, folder: Path, table: Table) -> None:
        self.folder = folder
        self.table = table
        self.now = NOW
        self.pools: dict[str, str] = {}
        self.node_pool_reads: list[datetime] = []
        self.reader = DuckDbBill(folder, cur_settings())

    @property
    def store(self) -> BillStore:
        return BillStore(self.table, clock=lambda: self.now)

    def node_pools(self, start: datetime, end: datetime) -> Mapping[str, str]:
        self.node_pool_reads.append(start)
        return self.pools

    def service(self, table: Table | None = None) -> BillRefreshService:
        store = BillStore(table or self.table, clock=lambda: self.now)
        return BillRefreshService(lambda _: self.reader, store, clock=lambda: self.now, node_pools=self.node_pools)

    def refresh(self, months: tuple[datetime, ...] = (), **cur: Any) -> BillRefresh:
        self.reader.reads.clear()
        self.reader.now = self.now
        return self.service().refresh(settings_of(**cur), months)

    def pays(self, hour: datetime = HOUR) -> dict[str, str]:
        bill = self.store.bill(hour)
        return (
            {}
            if bill is None
            else {name: f"{to_decimal(billed.amount):.2f}" for name, billed in bill.instances.items()}
        )


@pytest.fixture
def environment(tmp_path: Path, ledger_table: Table) -> BillEnvironment:
    return BillEnvironment(tmp_path, ledger_table)


def test_bill_is_stored_and_its_hours_are_recorded_as_changed(environment: BillEnvironment) -> None:
    items = [
        on_demand("i-0a", "p5.48xlarge", HOUR, "55"),
        *savings_plan_covered("i-0b", "p5.48xlarge", HOUR, "31", listed="55", plan=PLAN),
        spot("i-0c", "g5.xlarge", HOUR + HOUR_LENGTH, "0.3", hours="0.5"),
        savings_plan_fee(PLAN, HOUR, "40", "31"),
        *unused_capacity_reservation(ODCR, "p5.48xlarge", HOUR, "55"),
        on_demand("i-0a", "p5.48xlarge", OCTOBER, "55"),
    ]
    write_export(environment.folder, items)
    refresh = environment.refresh()
    assert refresh == BillRefresh(
        months=(OCTOBER, NOVEMBER), changed_hours=(OCTOBER, HOUR, HOUR + HOUR_LENGTH), bytes_scanned=2_000
    )
    assert environment.pays() == {"i-0a": "43.00", "i-0b": "43.00"}
    bill = environment.store.bill(HOUR)
    assert bill is not None
    assert {charge.kind: charge.amount for charge in bill.charges_to("demo")} == {
        "unused-savings-plan": amount(9),
        "unused-capacity-reservation": amount(55),
    }
    assert bill.instances["i-0a"].unblended_amount == amount(55)
    later = environment.store.bill(HOUR + HOUR_LENGTH)
    assert later is not None
    assert later.instances["i-0c"].billed_ms == HOUR_MS // 2
    changed = {hour for change in environment.store.pending_changes() for hour in change.hours}
    assert changed == {OCTOBER, HOUR, HOUR + HOUR_LENGTH}
    assert environment.node_pool_reads == [], "the ledger is read only with blend: node_pool"


def test_same_bill_again_changes_nothing(environment: BillEnvironment) -> None:
    write_export(environment.folder, [on_demand("i-0a", "p5.48xlarge", HOUR, "55")])
    environment.refresh()
    second_refresh = environment.refresh()
    assert second_refresh.changed_hours == ()
    assert environment.reader.reads == [OCTOBER, NOVEMBER], "open months are read again"


def test_only_changed_hours_are_restated(environment: BillEnvironment) -> None:
    first = [on_demand(f"i-0{number}", "p5.48xlarge", HOUR + number * HOUR_LENGTH, "55") for number in range(4)]
    write_export(environment.folder, first)
    environment.refresh()
    late = on_demand("i-0f", "p5.48xlarge", HOUR + HOUR_LENGTH, "11", hours="0.2")
    write_export(environment.folder, [*first[:3], late])
    assert environment.refresh().changed_hours == (HOUR + HOUR_LENGTH, HOUR + 3 * HOUR_LENGTH), (
        "one line was added and one removed"
    )
    assert environment.pays(HOUR + HOUR_LENGTH) == {"i-01": "55.00", "i-0f": "11.00"}
    assert environment.pays(HOUR + 3 * HOUR_LENGTH) == {}


def test_closed_bill_restates_its_month_once_and_is_not_read_again(environment: BillEnvironment) -> None:
    items = [
        on_demand("i-0a", "p5.48xlarge", HOUR, "55"),
        reserved_instance_fee(RI, "p5.48xlarge", NOVEMBER, unused="720", unused_hours="36"),
    ]
    write_export(environment.folder, items)
    assert environment.refresh().changed_hours == (HOUR,), "the unused part of the reservation is not known yet"
    environment.now = DECEMBER + timedelta(days=4)
    write_export(environment.folder, items, invoice="EUINDE26-1")
    refresh = environment.refresh()
    assert refresh.closed_months == (NOVEMBER,)
    assert len(refresh.changed_hours) == 720
    bill = environment.store.bill(HOUR)
    assert bill is not None
    assert bill.is_final
    assert [(charge.kind, charge.amount) for charge in bill.charges_to("demo")] == [("unused-reservation", amount(1))]
    month = environment.store.bills(NOVEMBER, DECEMBER)
    assert sum(charge.amount for bill in month.values() for charge in bill.charges_to("demo")) == amount(720)
    environment.refresh()
    assert NOVEMBER not in environment.reader.reads
    assert environment.refresh(months=(NOVEMBER,)).changed_hours == ()
    assert environment.reader.reads == [NOVEMBER], "a requested month is read"


def test_current_month_is_not_closed_by_final_lines(environment: BillEnvironment) -> None:
    write_export(environment.folder, [on_demand("i-0a", "p5.48xlarge", HOUR, "55")], invoice="EARLY")
    assert environment.refresh().closed_months == ()
    assert NOVEMBER in _reads_after(environment)


def test_bill_of_a_month_is_open_until_all_its_lines_are_final(environment: BillEnvironment) -> None:
    class LateBill(DuckDbBill):
        def lines(self, start: datetime, end: datetime) -> list[BillLine]:
            first, *others = super().lines(start, end)
            return [replace(first, is_final=False), *others]

    items = [on_demand("i-0a", "p5.48xlarge", HOUR + number * HOUR_LENGTH, "55") for number in range(2)]
    write_export(environment.folder, items, invoice="EUINDE26-1")
    environment.reader = LateBill(environment.folder, cur_settings())
    environment.now = DECEMBER + timedelta(days=4)
    assert environment.refresh(months=(NOVEMBER,)).closed_months == ()
    assert environment.store.months() == {NOVEMBER: False}


def _reads_after(environment: BillEnvironment) -> list[datetime]:
    environment.refresh()
    return environment.reader.reads


@pytest.mark.parametrize(
    ("now", "days", "months"),
    [
        (datetime(2026, 11, 1, 0, 30, tzinfo=UTC), 1, [OCTOBER, NOVEMBER]),
        (datetime(2026, 11, 2, tzinfo=UTC), 1, [NOVEMBER]),
        (NOW, 20, [NOVEMBER]),
        (NOW, 21, [OCTOBER, NOVEMBER]),
        (datetime(2027, 1, 3, tzinfo=UTC), 45, [NOVEMBER, DECEMBER, datetime(2027, 1, 1, tzinfo=UTC)]),
    ],
)
def test_open_and_recent_months_are_read(
    environment: BillEnvironment, now: datetime, days: int, months: list[datetime]
) -> None:
    write_export(environment.folder, [on_demand("i-0a", "p5.48xlarge", HOUR - timedelta(days=400), "55")])
    environment.now = now
    environment.refresh(refresh_days=days)
    assert environment.reader.reads == months


def test_open_month_is_read_until_its_bill_is_closed(environment: BillEnvironment) -> None:
    write_export(environment.folder, [on_demand("i-0a", "p5.48xlarge", OCTOBER, "55")])
    environment.refresh()
    environment.now = datetime(2027, 3, 1, tzinfo=UTC)
    environment.refresh(refresh_days=1)
    assert environment.reader.reads[0] == OCTOBER


def test_empty_bill_of_a_month_keeps_stored_bills(environment: BillEnvironment) -> None:
    """The export was created again, or the Athena table has another location."""
    write_export(environment.folder, [on_demand("i-0a", "p5.48xlarge", HOUR, "55")])
    environment.refresh()
    write_export(environment.folder, [on_demand("i-0a", "m5.large", HOUR, "55")])
    refresh = environment.refresh()
    assert (refresh.changed_hours, refresh.empty_months) == ((), (OCTOBER, NOVEMBER))
    assert environment.pays() == {"i-0a": "55.00"}


def test_node_pools_come_from_the_ledger(environment: BillEnvironment) -> None:
    items = [
        on_demand("i-0a", "p5.48xlarge", HOUR, "55"),
        *savings_plan_covered("i-0b", "p5.48xlarge", HOUR, "31", listed="55", plan=PLAN),
        *savings_plan_covered("i-0c", "p5.48xlarge", HOUR, "29", listed="55", plan=PLAN),
    ]
    write_export(environment.folder, items)
    environment.pools = {"i-0a": "train", "i-0b": "train", "i-0c": "serve"}
    environment.refresh(blend="node_pool")
    assert environment.pays() == {"i-0a": "43.00", "i-0b": "43.00", "i-0c": "29.00"}
    assert environment.node_pool_reads == [OCTOBER, NOVEMBER]
    environment.refresh(blend="none")
    assert environment.pays() == {"i-0a": "55.00", "i-0b": "31.00", "i-0c": "29.00"}


def test_instance_billed_in_two_currencies_uses_the_next_source_with_a_note(environment: BillEnvironment) -> None:
    class Mixed(DuckDbBill):
        def lines(self, start: datetime, end: datetime) -> list[BillLine]:
            return [
                line for original in super().lines(start, end) for line in (original, replace(original, currency="EUR"))
            ]

    write_export(environment.folder, [on_demand("i-0a", "p5.48xlarge", HOUR, "55")])
    environment.reader = Mixed(environment.folder, cur_settings())
    refresh = environment.refresh()
    assert environment.pays() == {}
    (note,) = refresh.notes
    assert "instance i-0a in two currencies" in note


def test_lines_out_of_order_are_refused(environment: BillEnvironment) -> None:
    class Shuffled(DuckDbBill):
        def lines(self, start: datetime, end: datetime) -> list[BillLine]:
            return super().lines(start, end)[::-1]

    items = [on_demand("i-0a", "p5.48xlarge", HOUR + number * timedelta(days=1), "55") for number in range(-3, 1)]
    write_export(environment.folder, items)
    environment.reader = Shuffled(environment.folder, cur_settings())
    with pytest.raises(SourceError, match="not in order"):
        environment.refresh()


def test_bill_is_not_read_if_it_is_no_price_source(environment: BillEnvironment) -> None:
    document = "clusters: [{name: demo, prometheus: {url: http://p}}]\npricing: {source: constant, gpu_hourly_usd: 1}"
    assert environment.service().refresh(parse_settings(document)) == BillRefresh()
    assert environment.reader.reads == []


class KilledError(Exception):
    """Stands for the end of the process."""


class KilledClient:
    """The real client, which raises at a call as if the process was killed."""

    def __init__(self, client: Any, at: int) -> None:
        self._client, self._at, self.calls = client, at, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                raise KilledError
            return getattr(self._client, name)(**arguments)

        return call


def first_days() -> list[LineItem]:
    """Two hours of each of the month's first three days."""
    return [
        item
        for day in range(3)
        for hour in range(2)
        for item in (
            on_demand("i-0a", "p5.48xlarge", NOVEMBER + timedelta(days=day, hours=hour), "55"),
            savings_plan_fee(PLAN, NOVEMBER + timedelta(days=day, hours=hour), "40", "31"),
        )
    ]


@pytest.mark.tools
def test_run_again_after_a_crash_at_any_call_ends_the_same(environment: BillEnvironment, table: DynamoTable) -> None:
    environment.now = NOVEMBER + timedelta(days=3)

    def start_over() -> None:
        table.client.delete_table(TableName=table.name)
        create_table(*table)
        write_export(environment.folder, first_days())
        environment.refresh(months=(NOVEMBER,))
        for change in environment.store.pending_changes():
            environment.store.settle(change)
        write_export(environment.folder, first_days()[2:], invoice="EUINDE26-1")

    def stored_state() -> tuple[dict[datetime, Bill], set[datetime], dict[datetime, bool]]:
        changed = {hour for change in environment.store.pending_changes() for hour in change.hours}
        return environment.store.bills(OCTOBER, DECEMBER), changed, environment.store.months()

    start_over()
    client = KilledClient(table.client, 0)
    environment.service(DynamoDBTable(client, table.name)).refresh(settings_of(), (NOVEMBER,))
    expected = stored_state()
    assert len(expected[1]) == 6, "an hour was removed, and the invoice makes the others final"
    assert expected[2] == {NOVEMBER: False}
    writes = 0
    for number in range(1, client.calls + 1):
        start_over()
        before = stored_state()
        killed = DynamoDBTable(KilledClient(table.client, number), table.name)
        with pytest.raises(KilledError):
            environment.service(killed).refresh(settings_of(), (NOVEMBER,))
        writes += stored_state() != before
        environment.service().refresh(settings_of(), (NOVEMBER,))
        assert stored_state() == expected, f"call {number}"
    assert writes, "some calls were killed in the middle"


def test_failure_while_reading_athena_rows_loses_nothing(environment: BillEnvironment) -> None:
    class Torn(DuckDbBill):
        def read(self, start: datetime, end: datetime) -> BillExtract:
            def some(lines: Iterator[BillLine]) -> Iterator[BillLine]:
                for _ in range(4):
                    yield next(lines)
                raise SourceError("Athena could not fetch the rows")

            return BillExtract(some(super().read(start, end).lines), 1)

    write_export(environment.folder, first_days())
    environment.reader = Torn(environment.folder, cur_settings())
    with pytest.raises(SourceError, match="fetch the rows"):
        environment.refresh(months=(NOVEMBER,))
    assert environment.store.months() == {}, "not marked as read"
    environment.reader = DuckDbBill(environment.folder, cur_settings())
    environment.refresh(months=(NOVEMBER,))
    changed = {hour for change in environment.store.pending_changes() for hour in change.hours}
    assert changed == set(environment.store.bills(OCTOBER, DECEMBER))
    assert len(changed) == 6


def test_amounts_of_a_month_equal_its_bill(environment: BillEnvironment) -> None:
    """Compares with a sum over the bill items: nothing is lost between export, statement, blend and store."""
    chance = [Decimal(number * 7919 % 5501) / 100 for number in range(300)]
    items = [
        on_demand(f"i-0{number % 7}", "p5.48xlarge", NOVEMBER + number * timedelta(hours=2), str(amount))
        for number, amount in enumerate(chance)
        if NOVEMBER + number * timedelta(hours=2) < NOW
    ]
    write_export(environment.folder, items)
    environment.refresh()
    stored = environment.store.bills(NOVEMBER, DECEMBER)
    total = sum(billed.amount for bill in stored.values() for billed in bill.instances.values())
    assert to_decimal(total) == sum(item.amortized_cost for item in items if item.amortized_cost)
    assert len(stored) == len([item for item in items if item.amortized_cost])
