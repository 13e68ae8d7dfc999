"""Documents that grow with the fleet, at sizes that one item of DynamoDB (400 KB) does not hold, in the real engine."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpucost.core.amounts import Costs
from gpucost.core.errors import ConflictError, SourceError
from gpucost.core.hours import HOUR
from gpucost.core.ledger import Limits, Quota
from gpucost.features.alerting.model import Alert, AlertGroup, Evaluation, OutboxEntry
from gpucost.features.alerting.ports import DayToDateSpend, PartialMonthSpend
from gpucost.features.alerting.rule_kinds.base import Subject, WastefulWorkload
from gpucost.features.alerting.storage import DynamoAlertStateStore, DynamoSpendStore
from gpucost.features.recommendations.storage import DailyItems
from gpucost.storage import chunked_documents as pieces
from gpucost.storage import compressed_documents
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.hour_items import _notes
from gpucost.storage.ledger import Ledger
from gpucost.storage.limits_store import LimitsStore
from gpucost.storage.rollups import RollupStore
from tests.conftest import DynamoTable
from tests.features.alerting.sample_notifications import notification
from tests.records import line, record

pytestmark = pytest.mark.tools

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
DAY = NOON.replace(hour=0)
ITEM = 400 * 1024
UNITS = 8_300


@pytest.fixture
def numbers() -> random.Random:
    return random.Random(20)


def random_usd(numbers: random.Random) -> Decimal:
    return Decimal(numbers.randrange(10**16)).scaleb(-12)


def idle_workloads(count: int, numbers: random.Random) -> Iterator[Alert]:
    """Alerts as the rule idle-workload makes them, of names and figures that hardly compress."""
    for number in range(count):
        name = f"train-{numbers.getrandbits(60):015x}"
        subject = Subject("demo", "research", f"team-{number % 50}", "Job", name)
        alert_notification = notification("idle-workload", since=NOON, hour=NOON, subject=subject)
        figures = {**alert_notification.figures, "waste_usd_per_hour": random_usd(numbers), "gpus": random_usd(numbers)}
        worst = (WastefulWorkload(subject.namespace, "Job", name, random_usd(numbers), random_usd(numbers)),)
        alert_notification = replace(
            alert_notification, id=f"demo/idle-workload/{name}", figures=figures, workloads=worst
        )
        yield Alert(
            "idle-workload",
            subject,
            "firing",
            NOON,
            (Evaluation(NOON, is_breach=True),),
            notified_at=NOON,
            notification=alert_notification,
        )


def sizes(table: DynamoTable, pk: str) -> list[int]:
    """Bytes of each item's document in a partition."""
    items = DynamoDBTable(table.client, table.name).query(pk)
    return [len(item["b"]["B"]) for item in items if "b" in item]


def test_alert_group_of_thousands_of_idle_workloads_is_stored(table: DynamoTable, numbers: random.Random) -> None:
    alerts = tuple(idle_workloads(10_000, numbers))
    receivers = ("history", "slack:gpucost/slack", "email")
    outbox = tuple(
        OutboxEntry(name, alert.notification) for alert in alerts if alert.notification for name in receivers
    )
    memory = DynamoAlertStateStore(DynamoDBTable(table.client, table.name))
    saved = memory.save_group(AlertGroup("demo", "research", outbox=outbox).with_alerts(alerts))
    assert sum(sizes(table, "C#demo#alerts")) > ITEM > max(sizes(table, "C#demo#alerts"))
    (loaded,) = DynamoAlertStateStore(DynamoDBTable(table.client, table.name)).load("demo").groups
    assert loaded == saved
    with pytest.raises(ConflictError):
        memory.save_group(replace(loaded, version=0))
    with pytest.raises(ConflictError):
        memory.save_group(replace(loaded, version=loaded.version + 1))
    (again,) = memory.load("demo").groups
    assert again == saved


def test_smaller_document_leaves_no_surplus_chunk(table: DynamoTable, numbers: random.Random) -> None:
    alerts = tuple(idle_workloads(6_000, numbers))
    saved = DynamoAlertStateStore(DynamoDBTable(table.client, table.name)).save_group(
        AlertGroup("demo", "research").with_alerts(alerts)
    )
    assert len(sizes(table, "C#demo#alerts")) > 1
    memory = DynamoAlertStateStore(DynamoDBTable(table.client, table.name))
    (loaded,) = memory.load("demo").groups
    small = memory.save_group(replace(loaded, alerts=loaded.alerts[:5]))
    assert len(sizes(table, "C#demo#alerts")) == 1
    assert memory.load("demo").groups == (small,)
    grown = memory.save_group(replace(small, alerts=saved.alerts))
    assert DynamoAlertStateStore(DynamoDBTable(table.client, table.name)).load("demo").groups == (grown,)
    empty = memory.save_group(replace(grown, alerts=()))
    assert memory.load("demo").groups == (empty,)
    assert len(sizes(table, "C#demo#alerts")) == 1


def test_reader_between_two_writes_of_a_large_document_reads_again(table: DynamoTable, numbers: random.Random) -> None:
    writer = DynamoAlertStateStore(DynamoDBTable(table.client, table.name))
    saved = writer.save_group(AlertGroup("demo", "research").with_alerts(idle_workloads(6_000, numbers)))
    readings = 0

    class Interrupted:
        """The real client, whose first query gets one chunk before the document is written again."""

        def query(self, **request: Any) -> Any:
            nonlocal readings, saved
            if "ExclusiveStartKey" in request:
                return table.client.query(**request)
            readings += 1
            if readings > 1:
                return table.client.query(**request)
            page = table.client.query(**request, Limit=1)
            saved = writer.save_group(replace(saved, evaluated_through=NOON))
            return page

    assert DynamoAlertStateStore(DynamoDBTable(Interrupted(), table.name)).load("demo").groups == (saved,)
    assert readings == 2


def test_document_too_large_for_a_transaction_is_refused(numbers: random.Random) -> None:
    data = numbers.randbytes(pieces.MAX_CHUNKS * compressed_documents.CHUNK_BYTES + 1)
    head = {"pk": {"S": "C#demo#alerts"}, "sk": {"S": "book#x"}}
    with pytest.raises(
        SourceError, match=r"item C#demo#alerts book#x is too large: 3,600,001 bytes compressed; at most 3,600,000"
    ):
        pieces.document_items(head, data, {})


def test_spend_sums_of_tens_of_thousands_of_units_are_stored(table: DynamoTable, numbers: random.Random) -> None:
    memory = DynamoSpendStore(DynamoDBTable(table.client, table.name))
    units = [f"team-{numbers.getrandbits(60):015x}" for _ in range(25_000)]
    part = PartialMonthSpend({unit: random_usd(numbers) for unit in units}, 100, "USD")
    memory.put_month_part("demo", NOON, 1, part)
    assert memory.month_part("demo", NOON, 1) == part
    small = PartialMonthSpend({"team": Decimal(1)}, 5, "EUR")
    memory.put_month_part("demo", NOON, 1, small)
    assert memory.month_part("demo", NOON, 1) == small
    first = DayToDateSpend(
        {
            unit: Costs(allocated_gpu_hours=numbers.randrange(10**16), allocated_usd=numbers.randrange(10**16))
            for unit in units
        },
        "spot",
    )
    memory.put_day_to_date("demo", NOON, first)
    memory.put_day_to_date("demo", NOON, DayToDateSpend({}, ""))
    assert memory.day_to_date("demo", NOON) == first
    assert max(sizes(table, "C#demo#spent")) < ITEM < sum(sizes(table, "C#demo#spent"))
    assert memory.day_to_date("demo", NOON + HOUR) is None


def test_day_of_thousands_of_business_units_is_summed(table: DynamoTable, numbers: random.Random) -> None:
    """A namespace that no business unit matches is one of its own."""
    lines = []
    for number in range(UNITS):
        unit, usd = f"team-{numbers.getrandbits(60):015x}", numbers.randrange(10**16)
        effective, unmeasured = usd // 3, usd // 7
        lines.append(
            line(unit, unit, f"pod-{number}")._replace(
                allocated_usd=usd,
                effective_usd=effective,
                unmeasured_usd=unmeasured,
                waste_usd=usd - effective - unmeasured,
                allocated_gpu_hours=numbers.randrange(10**16),
                effective_gpu_hours=numbers.randrange(10**16),
                unmeasured_gpu_hours=numbers.randrange(10**16),
            )
        )
    ledger, rollups = (
        Ledger(DynamoDBTable(table.client, table.name)),
        RollupStore(DynamoDBTable(table.client, table.name)),
    )
    ledger.publish(record(lines, hour=NOON), replacing=None, settings_version=1, now=NOON + HOUR)
    (expected,) = rollups.days("demo", DAY, DAY + timedelta(days=1))
    assert rollups.roll_up("demo", DAY, DAY + timedelta(days=2))
    assert not rollups.roll_up("demo", DAY, DAY + timedelta(days=2))
    assert sum(sizes(table, "C#demo#days")) > ITEM > max(sizes(table, "C#demo#days"))
    manifests = ledger.manifests("demo", DAY, DAY + timedelta(days=1))

    class WithoutHours:
        """The real client, for which hours cannot stand in for the day."""

        def query(self, **request: Any) -> Any:
            partition = request["ExpressionAttributeValues"][":pk"]["S"]
            assert partition not in {"C#demo#summaries", "C#demo#hours"}
            return table.client.query(**request)

    rolled_up = RollupStore(DynamoDBTable(WithoutHours(), table.name))
    (day,) = rolled_up.days_of(manifests)
    ((_, facts),) = rolled_up.facts_of(manifests)
    assert dict(day.costs.items()) == dict(expected.costs.items())
    assert day.totals == expected.totals
    assert len(day.costs) == len(facts) == UNITS
    # A day that has lost a piece is read from its hours.
    DynamoDBTable(table.client, table.name).delete_all([{"pk": {"S": "C#demo#days"}, "sk": {"S": "2026-11-19#01"}}])
    (day,) = rollups.days_of(manifests)
    assert dict(day.costs.items()) == dict(expected.costs.items())


def test_limits_of_ten_thousand_quotas_fit(table: DynamoTable, numbers: random.Random) -> None:
    store = LimitsStore(DynamoDBTable(table.client, table.name))
    quotas = tuple(
        Quota(
            f"team-{numbers.getrandbits(60):015x}",
            "gpus",
            "nvidia.com/gpu",
            Decimal(numbers.randrange(999)),
            Decimal(numbers.randrange(99)),
        )
        for _ in range(10_000)
    )
    limits = Limits("demo", NOON, (), quotas)
    store.put(limits, NOON + timedelta(days=3650))
    assert store.limits_between("demo", NOON, NOON + HOUR) == [limits]


@pytest.mark.parametrize("name", ["memory", "waiting", "latency"])
def test_day_with_ten_thousand_rows_is_stored(table: DynamoTable, numbers: random.Random, name: Any) -> None:
    days = DailyItems(DynamoDBTable(table.client, table.name), name)
    rows = [[f"{numbers.getrandbits(200):050x}", str(random_usd(numbers))] for _ in range(10_000)]
    days.put("demo", DAY, rows, NOON + timedelta(days=3650))
    assert days.read("demo", DAY, DAY + timedelta(days=1)) == {DAY: rows}


def test_notes_of_an_hour_are_bounded(numbers: random.Random) -> None:
    notes = [f"{numbers.getrandbits(4000):x}" for _ in range(10_000)]
    assert len(_notes(notes)) <= compressed_documents.CHUNK_BYTES
