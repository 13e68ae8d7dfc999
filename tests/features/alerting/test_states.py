"""Alert states in the real database engine: conditional writes and empty groups."""

import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gpucost.core.errors import ConflictError
from gpucost.features.alerting.model import (
    Alert,
    AlertGroup,
    Evaluation,
    EvaluationCursor,
    EvaluationState,
    OutboxEntry,
)
from gpucost.features.alerting.rule_kinds.base import Subject
from gpucost.features.alerting.storage import DynamoAlertStateStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ports import Table
from tests.conftest import DynamoTable
from tests.features.alerting.sample_notifications import notification

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
ALERT = Alert(
    "waste",
    Subject("demo", "research"),
    "firing",
    NOON,
    (Evaluation(NOON, is_breach=True),),
    EvaluationState(consecutive_breach_hours=3),
    NOON,
    notification(),
    "alice",
    NOON,
)
GROUP = AlertGroup(
    "demo", "research", (ALERT,), (OutboxEntry("email", notification("budget")),), NOON, (("weekly", "week x"),)
)


def test_saved_group_and_cursor_are_loaded(ledger_table: Table) -> None:
    states = DynamoAlertStateStore(ledger_table)
    saved = states.save_group(GROUP)
    cursor = states.save_cursor(EvaluationCursor("demo", NOON, ((NOON, 2),)))
    loaded = states.load("demo")
    assert (loaded.cursor, loaded.groups) == (cursor, (saved,))
    assert states.load("other").groups == ()


def test_second_writer_of_a_version_fails(ledger_table: Table) -> None:
    states = DynamoAlertStateStore(ledger_table)
    first = states.save_group(GROUP)
    with pytest.raises(ConflictError):
        states.save_group(GROUP)
    states.save_group(replace(first, alerts=()))
    with pytest.raises(ConflictError):
        states.save_group(first)
    states.save_cursor(EvaluationCursor("demo"))
    with pytest.raises(ConflictError):
        states.save_cursor(EvaluationCursor("demo"))


def test_empty_group_keeps_its_version_until_it_expires(table: DynamoTable) -> None:
    """A process that read the group before it was filled and emptied cannot evaluate the same hours again."""
    states = DynamoAlertStateStore(DynamoDBTable(table.client, table.name))
    full = states.save_group(GROUP)
    states.save_group(replace(full, alerts=(), outbox=()))
    with pytest.raises(ConflictError):
        states.save_group(GROUP)
    (item,) = table.client.scan(TableName=table.name)["Items"]
    table.client.put_item(TableName=table.name, Item={**item, "expires_at": {"N": str(int(time.time()) - 60)}})
    assert states.load("demo").groups == ()
    assert states.save_group(GROUP).version == 1
