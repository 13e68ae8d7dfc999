"""A changed price restates the hours that were rated with it. The tests use DynamoDB Local."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from gpucost.core.pricing.bill import Bill, BilledHour
from gpucost.core.pricing.prices import Price
from gpucost.pipeline.restate import PENDING_PERIOD, RepricingService, restate_messages
from gpucost.runtime.messages import HoursDue, HoursToRestate
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.bill_store import BillStore
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost.storage.price_book import PriceStore
from tests.records import amount, record

NOW = datetime.now(UTC).replace(minute=5, second=0, microsecond=0)
HOUR = timedelta(hours=1)
NEWEST = NOW.replace(minute=0) - HOUR
SETTINGS = """
clusters: [{name: blue, prometheus: {url: "http://x"}}, {name: green, prometheus: {url: "http://x"}}]
pricing: {source: on-demand}
"""


class Queue:
    def __init__(self) -> None:
        self.sent: list[tuple[str, datetime, int, str]] = []
        self.is_down = False

    def send_due(self, messages: list[HoursDue | HoursToRestate]) -> None:
        if self.is_down:
            raise ConnectionError
        for message in messages:
            assert isinstance(message, HoursToRestate)
            assert message.settings_version is None
            self.sent.append((message.cluster, message.first_hour, message.hours, message.reason))


class RepricingSystem:
    def __init__(self, table: Table) -> None:
        self.ledger = Ledger(table)
        self.book = PriceStore(table)
        self.bills = BillStore(table, clock=lambda: NOW)
        store = SettingsDocumentStore(table, clock=lambda: NOW)
        store.push(SETTINGS, author="me", now=NOW)
        self.queue = Queue()
        self.service = RepricingService(store, self.ledger, self.book, self.bills, self.queue)  # type: ignore[arg-type]

    def publish(self, cluster: str, *back: int, status: str = "complete") -> None:
        for hours in back:
            hour_record = record(cluster=cluster, hour=NEWEST - HOUR * hours, status=status)  # type: ignore[arg-type]
            self.ledger.publish(hour_record, replacing=None, settings_version=1, now=NOW)

    def set(self, start: int | None, end: int | None = None, **applies_to: str) -> None:
        first = None if start is None else NEWEST - HOUR * start
        last = None if end is None else NEWEST - HOUR * end
        price = Price(
            "override", "node-hour", Decimal(7), applies_to, valid_from=first, valid_to=last, author="me", reason="deal"
        )
        self.book.set_override(price, now=NOW)


@pytest.fixture
def repricing(ledger_table: Table) -> RepricingSystem:
    return RepricingSystem(ledger_table)


def test_without_changes_nothing_is_sent(repricing: RepricingSystem) -> None:
    repricing.publish("blue", 0, 1)
    assert repricing.service.send_hours_to_restate(NOW, "c") == 0


def test_published_hours_of_a_change_are_sent_of_every_cluster(repricing: RepricingSystem) -> None:
    repricing.publish("blue", 0, 1, 2, 3, 5)
    repricing.publish("blue", 4, status="incomplete")
    repricing.publish("green", 2)
    repricing.set(5, 1)
    assert repricing.service.send_hours_to_restate(NOW, "c") == 4
    assert sorted((cluster, hours) for cluster, _, hours, _ in repricing.queue.sent) == [
        ("blue", 1),
        ("blue", 2),
        ("green", 1),
    ]
    assert {first for cluster, first, _, _ in repricing.queue.sent} == {
        NEWEST - HOUR * 5,
        NEWEST - HOUR * 3,
        NEWEST - HOUR * 2,
    }
    assert all(why for *_, why in repricing.queue.sent)


def test_price_change_affects_only_its_cluster(repricing: RepricingSystem) -> None:
    repricing.publish("blue", 0)
    repricing.publish("green", 0)
    repricing.set(None, cluster="gr*")
    assert repricing.service.send_hours_to_restate(NOW, "c") == 1
    assert [cluster for cluster, *_ in repricing.queue.sent] == ["green"]


def test_hours_are_sent_again_until_no_attribution_can_have_read_the_old_price(repricing: RepricingSystem) -> None:
    repricing.publish("blue", 0)
    repricing.set(None)
    assert repricing.service.send_hours_to_restate(NOW, "c") == 1
    assert repricing.service.send_hours_to_restate(NOW + PENDING_PERIOD, "c") == 1
    assert repricing.service.send_hours_to_restate(NOW + 2 * PENDING_PERIOD, "c") == 0


def test_hours_kept_longer_than_the_default_are_sent_as_long_as_they_are_kept(
    repricing: RepricingSystem, ledger_table: Table
) -> None:
    repricing.publish("blue", 24 * 500)
    repricing.set(None)
    store = SettingsDocumentStore(ledger_table, clock=lambda: NOW)
    store.push(SETTINGS + "retention: {pods: 600}", author="me", now=NOW)
    service = RepricingService(store, repricing.ledger, repricing.book, repricing.bills, repricing.queue)  # type: ignore[arg-type]
    assert service.send_hours_to_restate(NOW, "c") == 1


def test_change_is_not_settled_if_the_queue_fails(repricing: RepricingSystem) -> None:
    repricing.publish("blue", 0)
    repricing.set(None)
    repricing.queue.is_down = True
    with pytest.raises(ConnectionError):
        repricing.service.send_hours_to_restate(NOW + PENDING_PERIOD, "c")
    repricing.queue.is_down = False
    assert repricing.service.send_hours_to_restate(NOW + PENDING_PERIOD, "c") == 1


def test_hours_of_a_cluster_that_left_the_settings_are_sent(repricing: RepricingSystem, ledger_table: Table) -> None:
    repricing.publish("green", 0)
    repricing.set(None)
    store = SettingsDocumentStore(ledger_table, clock=lambda: NOW)
    store.push(SETTINGS.replace("green", "west"), author="me", now=NOW)
    service = RepricingService(store, repricing.ledger, repricing.book, repricing.bills, repricing.queue)  # type: ignore[arg-type]
    assert service.send_hours_to_restate(NOW, "c") == 1


def test_hours_whose_bill_arrived_are_sent_until_it_is_settled(repricing: RepricingSystem) -> None:
    day = NEWEST.replace(hour=0) - timedelta(days=2)
    hours = [day + HOUR * at for at in (3, 4, 9)]
    for hour in [*hours, day]:
        repricing.ledger.publish(record(cluster="blue", hour=hour), replacing=None, settings_version=1, now=NOW)
    billed = Bill({"i-1": BilledHour(amount(1), "USD", 3_600_000, is_final=False)})
    repricing.bills.store(day, dict.fromkeys([*hours, day + HOUR * 20], billed))
    assert repricing.service.send_hours_to_restate(NOW, "c") == 3
    why = f"the bill of {day:%Y-%m-%d} is new or changed"
    assert sorted(repricing.queue.sent) == [("blue", hours[0], 2, why), ("blue", hours[2], 1, why)]
    assert repricing.service.send_hours_to_restate(NOW + PENDING_PERIOD, "c") == 3
    assert repricing.service.send_hours_to_restate(NOW + PENDING_PERIOD, "c") == 0


def test_backfill_of_a_month_fits_the_queue() -> None:
    hours = [NEWEST - HOUR * at for at in reversed(range(30 * 24))]
    messages = restate_messages("blue", hours, settings_version=3, reason="x" * 600, correlation_id="c")
    assert [message.hours for message in messages] == [24] * 30
    assert [hour for message in messages for hour in message.hour_starts()] == hours
    assert {len(message.reason) for message in messages} == {500}
