"""What alerting remembers, in the real database engine: conditions, what is empty, and items of older versions."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from gpucost.core.errors import ConflictError
from gpucost.core.hours import HOUR
from gpucost.features.alerting.model import Alert, Base, Book, Cursor, Entry, Subject, Verdict
from gpucost.features.alerting.storage import states as alert_memory
from gpucost.features.alerting.storage.states import DynamoAlertMemory
from tests.conftest import DynamoTable
from tests.features.alerting.alerting_world import START, Fleet, document, pod
from tests.features.alerting.alerts import notification

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
ALERT = Alert(
    "waste", Subject("demo", "research"), "firing", NOON, (Verdict(NOON, breaches=True),), Base(run=3), NOON,
    notification(), "alice", NOON,
)  # fmt: skip
BOOK = Book("demo", "research", (ALERT,), (Entry("email", notification("budget")),), NOON, (("weekly", "week x"),))


def test_what_is_written_is_read(table: DynamoTable) -> None:
    memory = DynamoAlertMemory(table.client, table.name)
    saved = memory.save_book(BOOK)
    cursor = memory.save_cursor(Cursor("demo", NOON, ((NOON, 2),)))
    loaded = memory.load("demo")
    assert (loaded.cursor, loaded.books) == (cursor, (saved,))
    assert memory.load("other").books == ()


def test_who_writes_second_writes_nothing(table: DynamoTable) -> None:
    memory = DynamoAlertMemory(table.client, table.name)
    first = memory.save_book(BOOK)
    with pytest.raises(ConflictError):
        memory.save_book(BOOK)
    memory.save_book(replace(first, alerts=()))
    with pytest.raises(ConflictError):
        memory.save_book(first)
    memory.save_cursor(Cursor("demo"))
    with pytest.raises(ConflictError):
        memory.save_cursor(Cursor("demo"))


def test_an_empty_book_is_remembered_for_a_while_and_then_makes_room(
    table: DynamoTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that somebody who read before it was filled and emptied cannot decide the same hours again."""
    memory = DynamoAlertMemory(table.client, table.name)
    full = memory.save_book(BOOK)
    memory.save_book(replace(full, alerts=(), outbox=()))
    with pytest.raises(ConflictError):
        memory.save_book(BOOK)
    monkeypatch.setattr(alert_memory, "EMPTY_KEPT", -60)
    (empty,) = memory.load("demo").books
    memory.save_book(empty)
    assert memory.load("demo").books == ()
    assert memory.save_book(BOOK).version == 1


OLD_NEWS = {
    "id": "demo/waste-2/research/2026-11-19T10:00:00Z/firing", "event": "firing", "rule": "waste-2", "cluster": "demo",
    "business_unit": "research", "since": "2026-11-19T09:00:00Z", "hour": "2026-11-19T10:00:00Z",
    "waste_usd_per_hour": "15", "allocated_usd_per_hour": "20", "waste_percent": "75.0", "threshold": "waste ≥ $10",
}  # fmt: skip


def old(table: DynamoTable, sk: str, **state: object) -> None:
    """An item as the version before wrote it."""
    known: dict[str, object] = {"rule": "waste", "cluster": "demo", "business_unit": "research", "phase": "inactive"}
    known |= {"since": None, "breaches": 0, "decided_through": None, "outbox": [], "version": 3, "sending_until": None}
    table.client.put_item(
        TableName=table.name,
        Item={"pk": {"S": "C#demo#alerts"}, "sk": {"S": sk}, "v": {"N": "1"}, "n": {"N": "3"},
              "state": {"S": json.dumps({**known, **state}, default=str)}},
    )  # fmt: skip


def test_states_of_the_version_before_go_on(table: DynamoTable) -> None:
    """A firing alert of the second rule, then named by its place, is resolved under the name that it has now."""
    rules = "rule: waste, {}waste_usd_per_hour: {}, waste_percent: 50, for_hours: 2"
    fleet = Fleet(table, document(rules.format("name: strict, ", 5), rules.format("name: lax, ", 10)))
    since, through = START.isoformat(), (START + HOUR).isoformat()
    news = {**OLD_NEWS, "since": since, "hour": through}
    old(table, "0" * 32, rule="*", business_unit="", decided_through=through)
    old(table, "1" * 32, rule="waste", phase="pending", since=through, breaches=1, decided_through=through)
    old(table, "2" * 32, rule="waste-2", phase="firing", since=since, breaches=2, decided_through=through,
        outbox=[["email", news]])  # fmt: skip
    old(table, "3" * 32, business_unit="quiet", decided_through=through)
    memory = fleet.memory.load("demo")
    (book,) = memory.books
    assert [(one.rule, one.phase) for one in book.alerts] == [("waste", "pending"), ("waste-2", "firing")]
    assert book.outbox[0].notification.figures["waste_usd_per_hour"] == Decimal(15)
    heard = fleet.hour(2, pod(gpus=2, use="0.05"))
    assert heard == ["firing waste-2 research", "firing strict research"]
    assert sorted(fleet.hour(3, pod(gpus=2, use="1"))) == ["resolved lax research", "resolved strict research"]
    items = table.client.query(
        TableName=table.name,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": "C#demo#alerts"}},
    )["Items"]
    assert [item["sk"]["S"] for item in items if "state" in item] == []
    assert fleet.memory.load("demo").outdated == ()
