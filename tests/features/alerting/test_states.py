"""What alerting remembers, in the real database engine: conditions, and what is empty."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gpucost.core.errors import ConflictError
from gpucost.features.alerting.model import Alert, AlertGroup, Cursor, Evaluation, EvaluationState, OutboxEntry, Subject
from gpucost.features.alerting.storage import states as alert_memory
from gpucost.features.alerting.storage.states import DynamoAlertStates
from tests.conftest import DynamoTable
from tests.features.alerting.sample_notifications import notification

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
ALERT = Alert(
    "waste", Subject("demo", "research"), "firing", NOON, (Evaluation(NOON, is_breach=True),), EvaluationState(breach_run=3), NOON,
    notification(), "alice", NOON,
)  # fmt: skip
BOOK = AlertGroup(
    "demo", "research", (ALERT,), (OutboxEntry("email", notification("budget")),), NOON, (("weekly", "week x"),)
)


def test_what_is_written_is_read(table: DynamoTable) -> None:
    memory = DynamoAlertStates(table.client, table.name)
    saved = memory.save_group(BOOK)
    cursor = memory.save_cursor(Cursor("demo", NOON, ((NOON, 2),)))
    loaded = memory.load("demo")
    assert (loaded.cursor, loaded.groups) == (cursor, (saved,))
    assert memory.load("other").groups == ()


def test_who_writes_second_writes_nothing(table: DynamoTable) -> None:
    memory = DynamoAlertStates(table.client, table.name)
    first = memory.save_group(BOOK)
    with pytest.raises(ConflictError):
        memory.save_group(BOOK)
    memory.save_group(replace(first, alerts=()))
    with pytest.raises(ConflictError):
        memory.save_group(first)
    memory.save_cursor(Cursor("demo"))
    with pytest.raises(ConflictError):
        memory.save_cursor(Cursor("demo"))


def test_an_empty_book_is_remembered_for_a_while_and_then_makes_room(
    table: DynamoTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that somebody who read before it was filled and emptied cannot decide the same hours again."""
    memory = DynamoAlertStates(table.client, table.name)
    full = memory.save_group(BOOK)
    memory.save_group(replace(full, alerts=(), outbox=()))
    with pytest.raises(ConflictError):
        memory.save_group(BOOK)
    monkeypatch.setattr(alert_memory, "EMPTY_GROUP_RETENTION_SECONDS", -60)
    (empty,) = memory.load("demo").groups
    memory.save_group(empty)
    assert memory.load("demo").groups == ()
    assert memory.save_group(BOOK).version == 1
