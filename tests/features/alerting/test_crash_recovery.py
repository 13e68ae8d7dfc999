"""The alert function is killed and retried as by Lambda: each notification arrives once or twice, and none is lost.

It is killed at every message and every fourth write; CRASH_ALL=1 tries all writes.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from gpucost.features.alerting.model import Notification
from gpucost.runtime.messages import AlertTick, ClusterState
from tests.chaos.external_calls import ExternalCalls, KilledError
from tests.conftest import DynamoTable
from tests.features.alerting.fleet import START, Fleet, RecordingNotifier, describe, node, pod, settings_with_rules

pytestmark = pytest.mark.tools

RULES = (
    "rule: waste, waste_usd_per_hour: 10, waste_percent: 50",
    "rule: idle-workload, gpus: 2",
    "rule: unallocated, usd_per_hour: 10",
    "rule: data, overdue_hours: 1",
)
IDLE = (pod(gpus=2, use="0"), pod(name="other", gpus=3, use="0.01"))


class CrashingNotifier(RecordingNotifier):
    """Records notifications, and crashes when the plan of external calls says so."""

    def __init__(self, external_calls: ExternalCalls) -> None:
        super().__init__()
        self._external_calls = external_calls

    def send(self, notifications: Sequence[Notification]) -> None:
        self._external_calls.call("send", lambda: self.messages.append(list(notifications)), {})


def delivery_counts(fleet: Fleet) -> Counter[str]:
    """Count how often each receiver got each notification."""
    return Counter(
        f"{receiver} {notification.id}"
        for receiver, notifier in fleet.notifiers.items()
        for notification in notifier.notifications
    )


def run_scenario(table: DynamoTable, kill_at: int, fault: Any) -> tuple[Fleet, ExternalCalls]:
    """Run two hours and a tick, crash at one call, and retry after a minute, as Lambda does."""
    external_calls = ExternalCalls(plan={kill_at: fault} if kill_at else {})
    fleet = Fleet(table, settings_with_rules(*RULES))
    fleet.notifiers = {"email": CrashingNotifier(external_calls)}
    make_service = fleet.service
    fleet.service = lambda client=None: make_service(external_calls.wrap(table.client))  # type: ignore[method-assign]

    def retry(step: Callable[[], Any]) -> None:
        for _ in range(3):
            try:
                step()
            except KilledError:
                fleet.now += timedelta(minutes=1)
                continue
            return
        raise AssertionError("the function was killed more than once")

    fleet.publish(0, *IDLE, nodes=[node("gpu", "24")])
    retry(lambda: fleet.close_hour(0))
    fleet.publish(1, pod(use="1"))
    retry(lambda: fleet.close_hour(1))
    retry(lambda: _tick(fleet))
    return fleet, external_calls


def _tick(fleet: Fleet) -> None:
    state = ClusterState(cluster="demo", last_complete_hour=None, hours_overdue=2)
    at = START + timedelta(hours=3, minutes=5)
    fleet.now = max(fleet.now, at)
    fleet.service().handle_tick(AlertTick(scheduled_time=at, clusters=(state,), correlation_id="t"))


def test_crash_at_any_call_repeats_at_most_a_single_message(table: DynamoTable) -> None:
    undisturbed, calls_log = run_scenario(table, 0, None)
    expected, calls = delivery_counts(undisturbed), list(calls_log.calls)
    assert {describe(notification) for notification in undisturbed.email.notifications} == {
        "firing waste research",
        "firing idle-workload research train",
        "firing idle-workload research other",
        "firing unallocated gpu",
        "resolved waste research",
        "resolved idle-workload research train",
        "resolved idle-workload research other",
        "resolved unallocated gpu",
        "firing data overdue",
    }
    assert max(expected.values()) == 1
    # One message per business unit, whatever the number of its alerts.
    assert len(undisturbed.email.messages) == 5
    history = _history_ids(undisturbed)
    assert len(history) == len(set(history)) == 9
    assert calls.count("send") == 5
    repeated_deliveries = 0
    # Reads change nothing: a crash after a read is a crash before the next call.
    writes = [number for number, name in enumerate(calls, start=1) if name not in {"query", "get_item"}]
    sends = {number for number in writes if calls[number - 1] == "send"}
    other_writes = [number for number in writes if number not in sends]
    for number in sorted(sends | {*other_writes[:: 1 if os.environ.get("CRASH_ALL") else 4]}):
        _delete_all_items(table)
        disturbed, _ = run_scenario(table, number, "killed after")
        counts = delivery_counts(disturbed)
        crash = f"call {number} ({calls[number - 1]})"
        assert counts.keys() == expected.keys(), crash
        assert max(counts.values()) <= 2, crash
        messages = [message for notifier in disturbed.notifiers.values() for message in notifier.messages]
        assert len(messages) <= calls.count("send") + 1, crash
        has_repeated = max(counts.values()) > 1
        assert has_repeated == (number in sends), crash
        repeated_deliveries += has_repeated
        assert sorted(_history_ids(disturbed)) == sorted(history), crash
        groups = [group for scope in ("demo", "*") for group in disturbed.alert_states.load(scope).groups]
        assert all(not group.outbox for group in groups), crash
    assert repeated_deliveries == 5


def _history_ids(fleet: Fleet) -> list[str]:
    end = START + timedelta(days=2)
    return [notification.id for scope in ("demo", "*") for notification in fleet.history.between(scope, START, end)]


def _delete_all_items(table: DynamoTable) -> None:
    for item in table.client.scan(TableName=table.name, ProjectionExpression="pk, sk")["Items"]:
        table.client.delete_item(TableName=table.name, Key=item)
