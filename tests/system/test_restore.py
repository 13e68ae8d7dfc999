"""Rehearses the runbook's restore: point-in-time recovery, and a total loss of the ledger."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucost.core.hours import HOUR, format_timestamp
from tests.chaos.script import document
from tests.system.deployed import Stack, running

HOURS = 5


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running(tmp_path) as running_stack:
        yield running_stack


def backfill(stack: Stack) -> str:
    """Run the runbook's command and process all resulting messages."""
    end = stack.first + HOURS * HOUR
    completed = stack.gpucost(
        "backfill", "--from", format_timestamp(stack.first), "--to", format_timestamp(end), "--no-wait"
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    with stack.active():
        stack.drain()
    return completed.stdout


@pytest.mark.nightly
def test_restored_and_backfilled_ledger_equals_an_undisturbed_ledger(stack: Stack) -> None:
    stack.run(*range(3))
    lost = stack.table
    stack.dynamodb.restore_table_to_point_in_time(
        SourceTableName=lost, TargetTableName="restored", UseLatestRestorableTime=True
    )
    stack.run(*range(3, HOURS))
    undisturbed = stack.figures()
    assert len([name for name in undisturbed if name.endswith("manifest")]) == HOURS
    stack.dynamodb.delete_table(TableName=lost)
    stack.deploy({"ExistingTableName": "restored"})
    assert stack.table == "restored"
    notified = len(stack.notified)
    assert stack.figures() != undisturbed
    assert backfill(stack) == "2 hours of 1 clusters are queued\n"
    assert stack.figures() == undisturbed
    assert stack.backfilled_hours() == set(range(3, HOURS))
    assert len(stack.notified) == notified, "a backfill sends no notifications"


@pytest.mark.nightly
def test_settings_lost_in_a_restore_are_enabled_as_in_the_runbook(stack: Stack) -> None:
    stack.dynamodb.restore_table_to_point_in_time(
        SourceTableName=stack.table, TargetTableName="restored", UseLatestRestorableTime=True
    )
    ttl = {"Enabled": True, "AttributeName": "expires_at"}
    stack.dynamodb.update_time_to_live(TableName="restored", TimeToLiveSpecification=ttl)
    recovery = {"PointInTimeRecoveryEnabled": True}
    stack.dynamodb.update_continuous_backups(TableName="restored", PointInTimeRecoverySpecification=recovery)
    time_to_live = stack.dynamodb.describe_time_to_live(TableName="restored")["TimeToLiveDescription"]
    assert time_to_live == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}


@pytest.mark.nightly
def test_lost_ledger_is_rebuilt_from_metrics(stack: Stack) -> None:
    stack.run(*range(HOURS))
    undisturbed = stack.figures()
    stack.dynamodb.delete_table(TableName=stack.table)
    stack.deploy({})
    assert stack.figures() == {}
    stack.push(document(stack.clusters))
    assert backfill(stack) == f"{HOURS} hours of 1 clusters are queued\n"
    assert stack.figures() == undisturbed
    assert stack.backfilled_hours() == set(range(HOURS))
