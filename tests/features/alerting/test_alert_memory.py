"""What alerting remembers, in the real database engine: conditions, and what is empty."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gpucost.core.errors import ConflictError
from gpucost.features.alerting.model import Alert, Base, Book, Cursor, Entry, Subject, Verdict
from gpucost.features.alerting.storage import states as alert_memory
from gpucost.features.alerting.storage.states import DynamoAlertMemory
from tests.conftest import DynamoTable
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
