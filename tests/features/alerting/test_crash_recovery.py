"""The alert function killed in the middle, tried again as Lambda does: who hears what then.

At every message it sends and every fourth write; CRASH_ALL=1 tries all of them.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from gpucost.features.alerting.model import Notification
from tests.chaos.external_calls import ExternalCalls, KilledError
from tests.conftest import DynamoTable
from tests.features.alerting.fleet import Fleet, RecordingNotifier, describe, node, pod, settings_with_rules

RULES = (
    "rule: waste, waste_usd_per_hour: 10, waste_percent: 50",
    "rule: idle-workload, gpus: 2",
    "rule: unallocated, usd_per_hour: 10",
    "rule: data, overdue_hours: 1",
)
IDLE = (pod(gpus=2, use="0"), pod(name="other", gpus=3, use="0.01"))
Calls = Callable[[Fleet], None]


class Wired(RecordingNotifier):
    """Somebody reached over the line that can be cut; the same again is the same to an idempotent one."""

    def __init__(self, outside: ExternalCalls) -> None:
        super().__init__()
        self._outside = outside

    def send(self, notifications: Sequence[Notification]) -> None:
        self._outside.through("send", lambda: self.messages.append(list(notifications)), {})


def told(fleet: Fleet) -> Counter[str]:
    """By person and message: how often each notification was heard."""
    return Counter(f"{key} {news.id}" for key, person in fleet.notifiers.items() for news in person.notifications)


def played(table: DynamoTable, kill_at: int, fault: Any) -> tuple[Fleet, ExternalCalls]:
    """Two hours and a tick, the function killed at one call; whatever fails is tried again after a minute."""
    outside = ExternalCalls(plan={kill_at: fault} if kill_at else {})
    fleet = Fleet(table, settings_with_rules(*RULES))
    fleet.notifiers = {"email": Wired(outside)}
    plain = fleet.service
    fleet.service = lambda client=None: plain(outside.wrap(fleet.table.client))  # type: ignore[method-assign]

    def survive(step: Callable[[], Any]) -> None:
        for _ in range(3):
            try:
                step()
            except KilledError:
                fleet.now += timedelta(minutes=1)
                continue
            return
        raise AssertionError("killed once only")

    fleet.publish(0, *IDLE, nodes=[node("gpu", "24")])
    survive(lambda: fleet.close_hour(0))
    fleet.publish(1, pod(use="1"))
    survive(lambda: fleet.close_hour(1))
    survive(lambda: _tick(fleet))
    return fleet, outside


def _tick(fleet: Fleet) -> None:
    from gpucost.runtime.messages import ClusterState, Tick
    from tests.features.alerting.fleet import START

    state = ClusterState(cluster="demo", last_complete_hour=None, hours_overdue=2)
    at = START + timedelta(hours=3, minutes=5)
    fleet.now = max(fleet.now, at)
    fleet.service().tick(Tick(scheduled_time=at, clusters=(state,), correlation_id="t"))


def test_killed_at_any_call_at_most_one_message_comes_twice_and_none_is_lost(table: DynamoTable) -> None:
    quiet, outside = played(table, 0, None)
    expected, calls = told(quiet), list(outside.calls)
    assert {describe(news) for news in quiet.email.notifications} == {
        "firing waste research", "firing idle-workload research train", "firing idle-workload research other",
        "firing unallocated gpu", "resolved waste research", "resolved idle-workload research train",
        "resolved idle-workload research other", "resolved unallocated gpu", "firing data overdue",
    }  # fmt: skip
    assert max(expected.values()) == 1
    # One message per business unit, whatever the number of its alerts.
    assert len(quiet.email.messages) == 5
    history = [one.id for scope in ("demo", "*") for one in _history(quiet, scope)]
    assert len(history) == len(set(history)) == 9
    assert calls.count("send") == 5
    doubled = 0
    # Nothing is changed by asking: killed after it is killed before what comes next.
    writes = [place for place, name in enumerate(calls, start=1) if name not in {"query", "get_item"}]
    others = [place for place in writes if calls[place - 1] != "send"]
    for place in sorted({*writes} - {*others} | {*others[:: 1 if os.environ.get("CRASH_ALL") else 4]}):
        _empty(table)
        disturbed, _ = played(table, place, "killed after")
        heard = told(disturbed)
        what = f"call {place} ({calls[place - 1]})"
        assert heard.keys() == expected.keys(), what
        repeated = {one for one, times in heard.items() if times > 1}
        assert max(heard.values()) <= 2, what
        messages = [message for person in disturbed.notifiers.values() for message in person.messages]
        assert len(messages) <= calls.count("send") + 1, what
        assert bool(repeated) == (calls[place - 1] == "send"), what
        doubled += bool(repeated)
        again = [one.id for scope in ("demo", "*") for one in _history(disturbed, scope)]
        assert sorted(again) == sorted(history), what
        assert all(not book.outbox for scope in ("demo", "*") for book in disturbed.alert_states.load(scope).groups), (
            what
        )
    assert doubled == 5


def _history(fleet: Fleet, scope: str) -> list[Notification]:
    from tests.features.alerting.fleet import START

    return fleet.history.between(scope, START, START + timedelta(days=2))


def _empty(table: DynamoTable) -> None:
    for item in table.client.scan(TableName=table.name, ProjectionExpression="pk, sk")["Items"]:
        table.client.delete_item(TableName=table.name, Key=item)
