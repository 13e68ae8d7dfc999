"""Dispatch with DynamoDB Local and moto's queues sends due hours, at most 24 in a message."""

import json
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.errors import SourceError
from gpucost.core.hour_record import HourRecord, Status
from gpucost.core.hours import DAY, HOUR
from gpucost.core.ledger import ClosedMonth, due_hours
from gpucost.pipeline.dispatch import MAX_PUBLICATION_GAP, DispatchService, due_messages
from gpucost.runtime.aws import AwsClients
from gpucost.runtime.messages import AlertTick, HoursDue, MessageBus, ScheduledTick, read_message
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost_devstack.aws import client_environment, running_aws
from tests.records import line, record

LATER = datetime(2027, 1, 1, tzinfo=UTC)
TICK = ScheduledTick(scheduled_time=datetime(2026, 11, 19, 11, 5, tzinfo=UTC))
NEWEST = datetime(2026, 11, 19, 10, tzinfo=UTC)
SETTINGS = json.dumps(
    {
        "clusters": [{"name": name, "prometheus": {"url": "http://127.0.0.1:9"}} for name in ("blue", "green")],
        "pricing": {"source": "constant", "gpu_hourly_usd": 12},
    }
)


class Fleet:
    """A dispatch service with real stores and queues."""

    def __init__(self, clients: AwsClients, table: Table) -> None:
        self.ledger = Ledger(table)
        self.store = SettingsDocumentStore(table, clock=lambda: datetime.now(UTC))
        number = uuid4()
        self._sqs, sns = clients("sqs"), clients("sns")
        self._queues = {
            name: self._sqs.create_queue(QueueName=f"{name}-{number}")["QueueUrl"]
            for name in ("hours", "backfill", "dead", "events")
        }
        topic = sns.create_topic(Name=f"events-{number}")["TopicArn"]
        arn = self._sqs.get_queue_attributes(QueueUrl=self._queues["events"], AttributeNames=["QueueArn"])
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn["Attributes"]["QueueArn"])
        bus = MessageBus(
            hours_queue_url=self._queues["hours"],
            backfill_queue_url=self._queues["backfill"],
            dead_letter_queue_url=self._queues["dead"],
            events_topic_arn=topic,
            client=clients,
        )
        self.service = DispatchService(self.store, self.ledger, self.ledger.versions, bus)
        self.bus = bus

    def taken(self, queue: str) -> list[str]:
        bodies: list[str] = []
        while answer := self._sqs.receive_message(QueueUrl=self._queues[queue], MaxNumberOfMessages=10).get("Messages"):
            bodies += [message["Body"] for message in answer]
            entries = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(answer)]
            self._sqs.delete_message_batch(QueueUrl=self._queues[queue], Entries=entries)
        return bodies

    def work(self, queue: str = "hours") -> list[tuple[str, datetime, int]]:
        sent = [read_message(HoursDue, body, LATER) for body in self.taken(queue)]
        return sorted((message.cluster, message.first_hour, message.hours) for message in sent)

    def ticks(self) -> list[AlertTick]:
        return [read_message(AlertTick, json.loads(body)["Message"], LATER) for body in self.taken("events")]

    def publish(self, hour_record: HourRecord, now: datetime = TICK.scheduled_time) -> None:
        old = self.ledger.manifest(hour_record.cluster, hour_record.hour)
        self.ledger.publish(hour_record, replacing=old, settings_version=1, now=now)


@pytest.fixture(scope="module")
def clients() -> Iterator[AwsClients]:
    with running_aws() as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in client_environment(endpoint).items():
            patch.setenv(name, value)
        yield AwsClients()


@pytest.fixture
def fleet(clients: AwsClients, ledger_table: Table) -> Fleet:
    return Fleet(clients, ledger_table)


def test_nothing_is_sent_before_the_first_push(fleet: Fleet) -> None:
    assert fleet.service.dispatch(TICK, "why") is None
    assert fleet.work() == []
    assert fleet.ticks() == []


def test_new_cluster_starts_with_the_last_hour(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    result = fleet.service.dispatch(TICK, "why")
    assert result is not None
    assert (result.hours_sent, result.hours_overdue, result.failures) == (2, 0, ())
    assert fleet.work() == [("blue", NEWEST, 1), ("green", NEWEST, 1)]
    (tick,) = fleet.ticks()
    assert {state.cluster for state in tick.clusters} == {"blue", "green"}


def test_first_hour_of_a_new_cluster_survives_a_failed_first_tick(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time - 3 * HOUR)
    fleet.service.dispatch(TICK, "why")
    assert fleet.work() == [(name, NEWEST - 2 * HOUR, 3) for name in ("blue", "green")]


def test_missing_and_waiting_hours_are_sent_when_they_are_due(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    fleet.publish(record([line()], cluster="blue", hour=NEWEST - 40 * HOUR))
    fleet.publish(record([line()], cluster="blue", hour=NEWEST - 2 * HOUR))
    early = TICK.scheduled_time - 3 * HOUR
    fleet.publish(record(cluster="blue", hour=NEWEST - 4 * HOUR, status="incomplete"), early)  # due: 1 h after
    fleet.publish(record(cluster="blue", hour=NEWEST - HOUR, status="incomplete"))  # not due before the next tick
    provisional = record([line()], cluster="blue", hour=NEWEST - 3 * HOUR, status="provisional")
    fleet.publish(provisional, early)  # metered; only prices are missing
    result = fleet.service.dispatch(TICK, "why")
    assert result is not None
    assert [work for work in fleet.work() if work[0] == "blue"] == [
        ("blue", NEWEST - 39 * HOUR, 24),
        ("blue", NEWEST - 15 * HOUR, 11),
        ("blue", NEWEST - 4 * HOUR, 1),  # tried before, so separate from new hours
        ("blue", NEWEST, 1),
    ]
    assert result.hours_overdue == 37
    (tick,) = fleet.ticks()
    (blue,) = [state for state in tick.clusters if state.cluster == "blue"]
    assert blue.last_complete_hour == NEWEST - 2 * HOUR


def test_second_tick_for_the_same_time_sends_the_same_hours(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    fleet.service.dispatch(TICK, "why")
    first = fleet.taken("hours")
    fleet.service.dispatch(TICK, "why")
    assert sorted(fleet.taken("hours")) == sorted(first)


@pytest.mark.parametrize("error", [SourceError("the table is away"), TypeError("unhashable type: 'list'")])
def test_failing_cluster_delays_only_itself(fleet: Fleet, error: Exception) -> None:
    class FailingLedger(Ledger):
        def manifests(self, cluster: str, start: datetime, end: datetime) -> Any:
            if cluster == "blue":
                raise error
            return super().manifests(cluster, start, end)

    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    troubled = FailingLedger(fleet.ledger._table)
    result = DispatchService(fleet.store, troubled, fleet.ledger.versions, fleet.bus).dispatch(TICK, "why")
    assert result is not None
    assert [failure.partition(": ")[0] for failure in result.failures] == ["blue"]
    assert str(error) in result.failures[0]
    assert fleet.work() == [("green", NEWEST, 1)]


def test_damaged_item_delays_only_its_cluster(fleet: Fleet, ledger_table: Table) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    fleet.publish(record([line()], cluster="blue", hour=NEWEST - HOUR))
    (item,) = ledger_table.query("C#blue#hours")
    ledger_table.put_all([{name: item[name] for name in item if name != "s"}])
    result = fleet.service.dispatch(TICK, "why")
    assert result is not None
    (failure,) = result.failures
    assert re.match(r"blue: the ledger's item C#blue#hours \S+ is damaged: ", failure)
    assert fleet.work() == [("green", NEWEST, 1)]


BACKFILLED: tuple[tuple[int, Status], ...] = ((20, "complete"), (9, "complete"), (5, "incomplete"), (2, "complete"))
"""Attempts of some days ago."""


def test_backfilled_hours_do_not_move_the_start_of_the_schedule(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    for days, status in BACKFILLED:
        hour_record = record([line()], cluster="blue", hour=NEWEST - days * DAY, status=status)
        fleet.ledger.publish(
            hour_record, replacing=None, settings_version=1, now=TICK.scheduled_time - DAY, backfilled=True
        )
    fleet.service.dispatch(TICK, "why")
    assert fleet.work() == [("blue", NEWEST, 1), ("green", NEWEST, 1)]
    assert fleet.work("backfill") == [("blue", NEWEST - 5 * DAY, 1)], "tried again, and no alert is sent"
    assert [(state.cluster, state.hours_overdue) for state in fleet.ticks()[0].clusters] == [("blue", 0), ("green", 0)]
    fleet.publish(record([line()], cluster="blue", hour=NEWEST - 3 * HOUR))
    fleet.service.dispatch(TICK, "why")
    assert fleet.work()[0] == ("blue", NEWEST - 2 * HOUR, 3), "since its own first hour"


def test_backfill_without_recent_publications_keeps_due_hours(fleet: Fleet) -> None:
    fleet.publish(record([line()], cluster="blue", hour=NEWEST - 16 * DAY))
    for hours in range(1, 25):
        hour_record = record([line()], cluster="blue", hour=NEWEST - hours * HOUR)
        fleet.ledger.publish(hour_record, replacing=None, settings_version=1, now=TICK.scheduled_time, backfilled=True)
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time - HOUR)
    fleet.service.dispatch(TICK, "why")
    blue = [(first, hours) for cluster, first, hours in fleet.work() if cluster == "blue"]
    assert sum(hours for _, hours in blue) == 16 * 24 - 24
    assert (blue[0][0], blue[-1]) == (NEWEST - 16 * DAY + HOUR, (NEWEST, 1))


def test_hours_that_left_the_reach_are_searched_once_a_day(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    left = NEWEST - 20 * DAY
    fleet.publish(record(cluster="blue", hour=left, status="incomplete"), now=left + 2 * HOUR)
    fleet.publish(record([line()], cluster="blue", hour=NEWEST - HOUR))
    assert left not in sent_of_blue(fleet, TICK.scheduled_time)
    assert left in sent_of_blue(fleet, TICK.scheduled_time + 14 * HOUR)


@pytest.mark.parametrize("first", [29, 31], ids=["a young cluster", "an old one"])
def test_missing_hours_beyond_the_reach_are_searched_once_a_day(fleet: Fleet, first: int) -> None:
    """The queue did not accept them, or the month was closed without them and reopened."""
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time - 60 * DAY)
    there = [NEWEST - days * DAY for days in (first, 20, 12, 1)]
    for hour in there:
        fleet.publish(record([line()], cluster="blue", hour=hour))
    assert min(sent_of_blue(fleet, TICK.scheduled_time)) == NEWEST - 12 * DAY + HOUR
    midnight = TICK.scheduled_time + 14 * HOUR
    oldest = max(there[0], NEWEST + 15 * HOUR - MAX_PUBLICATION_GAP)
    hours = [oldest + n * HOUR for n in range((NEWEST + 15 * HOUR - oldest) // HOUR)]
    assert sent_of_blue(fleet, midnight) == {*hours} - {*there}


def test_hours_that_waited_before_a_pause_of_months_are_tried_once_more(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time - 200 * DAY)
    last = NEWEST - 100 * DAY
    fleet.publish(record([line()], cluster="blue", hour=last), last + HOUR)
    fleet.publish(record(cluster="blue", hour=last - 3 * DAY, status="incomplete"), last)
    sent = sent_of_blue(fleet, TICK.scheduled_time)
    assert {hour for hour in sent if hour <= last} == {last - 3 * DAY}
    assert len(sent) == 1 + 720


def test_due_hours_of_a_departed_cluster_are_sent_until_published(fleet: Fleet) -> None:
    """Its last settings are used, up to the hour of its removal. The tick keeps no state of it."""
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time - 5 * DAY)
    fleet.publish(record([line()], cluster="blue", hour=NEWEST - 3 * HOUR))
    fleet.publish(record(cluster="blue", hour=NEWEST - HOUR, status="incomplete"), TICK.scheduled_time - HOUR)
    fleet.publish(record(cluster="green", hour=NEWEST - HOUR, status="incomplete"), TICK.scheduled_time - HOUR)
    left = TICK.scheduled_time - timedelta(minutes=20)
    fleet.store.push(SETTINGS.replace("blue", "red").replace("green", "white"), author="me", now=left)
    later = ScheduledTick(scheduled_time=TICK.scheduled_time + 2 * HOUR)
    fleet.service.dispatch(later, "why")
    sent = [read_message(HoursDue, body, LATER) for body in fleet.taken("hours")]
    (blue,) = [message for message in sent if message.cluster == "blue"]
    assert (blue.first_hour, blue.hours, blue.settings_version, blue.origin) == (NEWEST - 2 * HOUR, 3, 1, "schedule")
    assert not [message for message in sent if message.cluster == "green"], "it never had any figures"
    assert {state.cluster for state in fleet.ticks()[0].clusters} == {"red", "white"}
    for hours in range(3):
        fleet.publish(record([line()], cluster="blue", hour=NEWEST - hours * HOUR))
    assert sent_of_blue(fleet, later.scheduled_time) == set()


def test_late_tick_sends_no_hour_before_a_clusters_first(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time - 5 * DAY)
    fleet.publish(record([line()], cluster="blue", hour=NEWEST + 2 * HOUR))
    assert sent_of_blue(fleet, TICK.scheduled_time) == {NEWEST}


def sent_of_blue(fleet: Fleet, at: datetime) -> set[datetime]:
    fleet.service.dispatch(ScheduledTick(scheduled_time=at), "why")
    return {hour for cluster, first, hours in fleet.work() if cluster == "blue" for hour in hours_from(first, hours)}


def test_backfill_uses_a_separate_queue(fleet: Fleet) -> None:
    hours = [NEWEST - i * HOUR for i in range(50)][::-1]
    fleet.bus.send_due(due_messages("blue", hours, settings_version=1, origin="backfill", correlation_id="me"))
    assert fleet.work() == []
    assert [hours for _, _, hours in fleet.work("backfill")] == [24, 24, 2]


@pytest.mark.nightly
def test_incomplete_hour_is_tried_at_the_end_of_its_look_back_and_then_abandoned(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    hour, end = NEWEST, NEWEST + 168 * HOUR
    fleet.publish(record([line()], cluster="blue", hour=NEWEST - HOUR))
    at = NEWEST + HOUR
    tried = []
    while at <= end + 30 * HOUR:
        fleet.service.dispatch(ScheduledTick(scheduled_time=at + timedelta(minutes=5)), "why")
        if any(work[0] == "blue" and work[1] <= hour < work[1] + work[2] * HOUR for work in fleet.work()):
            tried.append((at - NEWEST) // HOUR)
            old = fleet.ledger.manifest("blue", hour)
            fleet.ledger.publish(
                record(cluster="blue", hour=hour, status="incomplete"),
                replacing=old,
                settings_version=1,
                now=at + timedelta(minutes=6),
                last_attempt=end,
            )
        # The later hours are published, so that only this one is due.
        fleet.ledger.publish(
            record([line()], cluster="blue", hour=at), replacing=None, settings_version=1, now=at + HOUR
        )
        at += HOUR
    assert tried == [1, 2, 4, 8, 16, 32, 64, 128, 168]
    manifest = fleet.ledger.manifest("blue", hour)
    assert manifest is not None
    assert manifest.is_abandoned()
    assert manifest.attempts == 9


def test_hour_still_waiting_beyond_the_look_back_is_tried_once_more(fleet: Fleet) -> None:
    """No schedule fired for days. Hours that left the look-back in this time are closed, too."""
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    long_ago = NEWEST - 171 * HOUR
    fleet.publish(record(cluster="blue", hour=long_ago, status="incomplete"), long_ago + HOUR)
    fleet.publish(record([line()], cluster="blue", hour=long_ago + 2 * HOUR), long_ago + 3 * HOUR)
    fleet.service.dispatch(TICK, "why")
    sent = {hour for cluster, first, hours in fleet.work() if cluster == "blue" for hour in hours_from(first, hours)}
    assert sent == {NEWEST - i * HOUR for i in range(172)} - {long_ago + 2 * HOUR}


def test_all_hours_since_the_last_publication_are_sent(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    fleet.publish(record([line()], cluster="blue", hour=NEWEST - 500 * HOUR))
    fleet.publish(record([line()], cluster="green", hour=NEWEST - 5000 * HOUR))
    fleet.service.dispatch(TICK, "why")
    work = fleet.work()
    blue = [hour for cluster, first, hours in work if cluster == "blue" for hour in hours_from(first, hours)]
    assert sorted(blue) == [NEWEST - i * HOUR for i in range(500)][::-1]
    assert sum(hours for cluster, _, hours in work if cluster == "green") == 720, "no more than a month"


@pytest.mark.parametrize("backfilled", [0, 3], ids=["nothing since", "a backfill since"])
def test_hour_that_waited_before_a_long_pause_is_tried_once_more(fleet: Fleet, backfilled: int) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time - 60 * DAY)
    last = NEWEST - MAX_PUBLICATION_GAP
    waiting = {last - 13 * DAY, last}
    for hour in waiting:
        fleet.publish(record(cluster="blue", hour=hour, status="incomplete"), last + HOUR)
    for hour, last_attempt in ((last - DAY, None), (last - 2 * DAY, last)):  # the second hour is abandoned
        hour_record = record(cluster="blue", hour=hour, status="incomplete")
        fleet.ledger.publish(
            hour_record, replacing=None, settings_version=1, now=last + HOUR, last_attempt=last_attempt, backfilled=True
        )
    for days in range(1, backfilled + 1):
        hour_record = record([line()], cluster="blue", hour=NEWEST - days * DAY)
        fleet.ledger.publish(hour_record, replacing=None, settings_version=1, now=TICK.scheduled_time, backfilled=True)
    fleet.service.dispatch(TICK, "why")
    sent = {hour for cluster, first, hours in fleet.work() if cluster == "blue" for hour in hours_from(first, hours)}
    assert {hour for hour in sent if hour <= last} == waiting
    assert fleet.work("backfill") == [("blue", last - DAY, 1)], "tried again, and no alert is sent"
    assert fleet.ticks()[0].clusters[0].hours_overdue == len(sent) - 1


def test_tick_after_others_reads_only_its_reach(fleet: Fleet) -> None:
    class RecordingLedger(Ledger):
        starts: ClassVar[list[datetime]] = []

        def manifests(self, cluster: str, start: datetime, end: datetime) -> Any:
            self.starts.append(start)
            return super().manifests(cluster, start, end)

    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    reach = 14 * DAY - HOUR
    for name, silent in (("blue", 7 * DAY), ("green", 7 * DAY + HOUR)):
        fleet.publish(record([line()], cluster=name, hour=NEWEST - silent))
    ledger = RecordingLedger(fleet.ledger._table)
    DispatchService(fleet.store, ledger, fleet.ledger.versions, fleet.bus).dispatch(TICK, "why")
    assert ledger.starts == [NEWEST - reach, NEWEST - reach, NEWEST - reach - MAX_PUBLICATION_GAP]


def test_damaged_settings_leave_the_last_valid_ones_in_force(fleet: Fleet, ledger_table: Table) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time)
    (item,) = ledger_table.query("SETTINGS")
    damages: list[dict[str, Any]] = [
        {"v": {"N": "99"}},
        {"b": {"B": b"rubbish"}},
        {"b": {"B": zlib.compress(b"clusters: 7")}},
    ]
    for number, damage in enumerate(damages, start=2):
        newer = {**item, "sk": {"S": f"{number:08d}"}, "n": {"N": str(number)}, **damage}
        ledger_table.put_all([newer])
    fresh = SettingsDocumentStore(ledger_table, clock=lambda: datetime.now(UTC))
    result = DispatchService(fresh, fleet.ledger, fleet.ledger.versions, fleet.bus).dispatch(TICK, "why")
    assert result is not None
    assert [reason.split(":")[0] for reason in result.unreadable_settings] == [
        f"version {n} of the settings" for n in (4, 3, 2)
    ]
    assert "must be a list" in result.unreadable_settings[0]
    assert "damaged" in result.unreadable_settings[1]
    assert "schema version 99" in result.unreadable_settings[2]
    assert result.hours_sent == 2
    assert [stored.version for stored in fresh.history()] == [1]
    assert fresh.push(SETTINGS, author="me", now=TICK.scheduled_time).version == 5
    assert fresh.current().refused == ()


def hours_from(first: datetime, hours: int) -> list[datetime]:
    return [first + HOUR * i for i in range(hours)]


@given(st.sets(st.integers(0, 400)), st.integers(1, 200))
def test_messages_name_every_hour_once(offsets: set[int], version: int) -> None:
    hours = sorted(NEWEST - offset * HOUR for offset in offsets)
    sent = due_messages("c", hours, settings_version=version, origin="schedule", correlation_id="x")
    assert [hour for message in sent for hour in message.hour_starts()] == hours
    assert all(1 <= message.hours <= 24 for message in sent)


@given(st.sets(st.integers(0, 300)), st.integers(1, 300))
def test_all_missing_hours_within_the_look_back_are_sent(published: set[int], lookback: int) -> None:
    from tests.records import record as make

    manifests = []
    for offset in published:
        hour = NEWEST - offset * HOUR
        manifests.append(_manifest(make([line()], hour=hour)))
    due = due_hours(manifests, NEWEST - lookback * HOUR, NEWEST, TICK.scheduled_time)
    assert set(due) == {NEWEST - i * HOUR for i in range(lookback + 1) if i not in published}
    assert due == sorted(due)


def _manifest(hour_record: HourRecord) -> Any:
    from gpucost.core.ledger import Manifest

    return Manifest(
        "demo", hour_record.hour, "complete", 1, "1-x", 1, hour_record.coverage, 0, None, TICK.scheduled_time
    )


def test_hours_of_a_closed_month_are_not_sent(fleet: Fleet) -> None:
    fleet.store.push(SETTINGS, author="me", now=TICK.scheduled_time - 3 * HOUR)
    tick = ScheduledTick(scheduled_time=datetime(2026, 11, 1, 1, 5, tzinfo=UTC))
    first = datetime(2026, 10, 31, 20, tzinfo=UTC)
    for name in ("blue", "green"):
        fleet.publish(record([line()], cluster=name, hour=first), tick.scheduled_time)
        fleet.publish(record(cluster=name, hour=first + HOUR, status="incomplete"), tick.scheduled_time - 2 * HOUR)
    fleet.ledger.versions.close_month(ClosedMonth("2026-10", tick.scheduled_time, "me", "why"))
    result = fleet.service.dispatch(tick, "why")
    assert result is not None
    assert fleet.work() == [(name, datetime(2026, 11, 1, tzinfo=UTC), 1) for name in ("blue", "green")]
    assert result.hours_overdue == 0
    fleet.ledger.versions.reopen_month("2026-10")
    fleet.service.dispatch(tick, "why")
    assert fleet.work() == [(name, first + HOUR, 4) for name in ("blue", "green")]
