"""Backfills with DynamoDB Local send each hour once, a day per message, and continue after an interruption."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from samtranslator.yaml_helper import yaml_parse

from gpucost.core.errors import GpuCostError, SourceError
from gpucost.core.hour_record import Status
from gpucost.core.hours import HOUR
from gpucost.core.ledger import ClosedMonth
from gpucost.pipeline.dispatch import STALL_TIMEOUT, Backfill, BackfillProgress
from gpucost.runtime.messages import AttributionOrigin, HoursDue, HoursToRestate, MessageBus
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost_devstack.template import TEMPLATE
from tests.conftest import DynamoTable
from tests.records import line, record

pytestmark = pytest.mark.tools

START = datetime(2026, 11, 2, 5, tzinfo=UTC)
END = START + 70 * HOUR
NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)


class Queue(MessageBus):
    """A queue in memory, which may have a maximum length."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.sent: list[HoursDue] = []
        self.most = 1000
        self.now = NOW
        self.skew = timedelta(0)
        """By how much the functions' clock is ahead of the command's."""
        self.out_of_reach: set[datetime] = set()
        self.most_hours = 24
        """Number of hours above which a query is too slow."""

    def send_due(self, messages: Sequence[HoursDue | HoursToRestate]) -> None:
        for message in messages:
            if len(self.sent) >= self.most:
                raise SourceError("the queue is away")
            assert isinstance(message, HoursDue)
            self.sent.append(message)

    def publish(self, message: object) -> None:
        raise AssertionError("a backfill sends no alerts")

    def send_to_dead_letter_queue(self, body: str, reason: str) -> None:
        raise AssertionError("nothing goes to the dead-letter queue")

    def backlog(self, origin: AttributionOrigin) -> int:
        assert origin == "backfill"
        return len(self.sent)

    def idle(self) -> None:
        """Advance the clock by a minute."""
        self.now += timedelta(minutes=1)

    def work(self) -> None:
        """Attribute the hours of one message."""
        self.idle()
        if self.sent:
            message = self.sent.pop(0)
            for hour in message.hour_starts():
                is_away = hour in self.out_of_reach or message.hours > self.most_hours
                status: Status = "incomplete" if is_away else "complete"
                hour_record = record(
                    [] if status == "incomplete" else [line()], cluster=message.cluster, hour=hour, status=status
                )
                old = self.ledger.newest_version_of_hour(message.cluster, hour)
                self.ledger.publish(hour_record, replacing=old, settings_version=1, now=self.now + self.skew)


@pytest.fixture
def queue(table: DynamoTable) -> Queue:
    return Queue(Ledger(DynamoDBTable(table.client, table.name)))


def backfill(queue: Queue, *clusters: str) -> Backfill:
    return Backfill(queue.ledger, queue, clusters or ("blue",), START, END, lambda: queue.now)


def sent_hours(queue: Queue) -> list[tuple[str, datetime]]:
    return [(message.cluster, hour) for message in queue.sent for hour in message.hour_starts()]


def test_hours_are_sent_once_by_day_with_newest_days_first(queue: Queue) -> None:
    assert backfill(queue, "blue", "green").send(3, "why") == 140
    assert sorted(sent_hours(queue)) == [(name, START + i * HOUR) for name in ("blue", "green") for i in range(70)]
    for message in queue.sent:
        assert len({hour.date() for hour in message.hour_starts()}) == 1
        assert (message.origin, message.settings_version, message.correlation_id) == ("backfill", 3, "why")
    days = [message.first_hour for message in queue.sent if message.cluster == "blue"]
    assert days == sorted(days, reverse=True)
    assert len(days) == 4


def test_interrupted_backfill_continues(queue: Queue) -> None:
    queue.most = 2
    with pytest.raises(SourceError):
        backfill(queue).send(1, "why")
    queue.work()
    queue.sent.clear()
    queue.most = 1000
    done = {manifest.hour for manifest in queue.ledger.manifests("blue", START, END)}
    assert len(done) == 3, "the newest day has three hours in the period"
    assert backfill(queue).send(1, "why") == 67
    assert {hour for _, hour in sent_hours(queue)} == {START + i * HOUR for i in range(70)} - done


def test_progress_is_followed_to_the_end(queue: Queue) -> None:
    queue.out_of_reach = {START + HOUR}
    run = backfill(queue)
    run.send(1, "why")
    reported: list[BackfillProgress] = []
    last = run.follow(reported.append, queue.work)
    assert last == BackfillProgress(70, 70, 1)
    assert [progress.done for progress in reported] == [0, 3, 27, 51, 70]
    assert backfill(queue).send(1, "why") == 1, "an incomplete hour is tried again"


def test_hours_that_failed_together_are_tried_in_smaller_groups(queue: Queue) -> None:
    """Queries over a day can always be too slow for a Prometheus that answers queries over an hour."""
    queue.most_hours = 3
    together = []
    for _ in range(3):
        run = backfill(queue)
        run.send(1, "why")
        together.append(max(message.hours for message in queue.sent))
        last = run.follow(lambda _: None, queue.work)
    assert together == [24, 6, 1]
    assert last == BackfillProgress(70, 70, 0)


def test_hours_of_a_month_closed_meanwhile_become_adjustments(queue: Queue) -> None:
    """The hours fail before the month is closed, fail again, and then succeed. Each attempt counts for its run."""
    start = datetime(2026, 10, 31, 20, tzinfo=UTC)
    out_of_reach = {start + HOUR, start + 2 * HOUR}
    for closes_month, missing, sent in ((False, out_of_reach, 10), (True, {start + HOUR}, 2), (False, set(), 1)):
        if closes_month:
            queue.ledger.versions.close_month(ClosedMonth("2026-10", NOW, "me", "chargeback"))
        queue.out_of_reach = missing
        run = Backfill(queue.ledger, queue, ["blue"], start, start + 10 * HOUR, lambda: queue.now)
        assert run.send(1, "why") == sent
        assert run.follow(lambda _: None, queue.work) == BackfillProgress(10, 10, len(missing))
    in_force = queue.ledger.manifests("blue", start, start + 10 * HOUR)
    assert {manifest.hour for manifest in in_force if manifest.status == "incomplete"} == out_of_reach, (
        "figures of a closed month stay"
    )
    assert Backfill(queue.ledger, queue, ["blue"], start, start + 10 * HOUR, lambda: queue.now).send(1, "why") == 0


@pytest.mark.parametrize("minutes", [-5, 5])
def test_progress_is_right_with_different_clocks(queue: Queue, minutes: int) -> None:
    queue.skew = timedelta(minutes=minutes)
    queue.out_of_reach = {START + HOUR, START + 2 * HOUR, END - HOUR}
    for _ in range(2):  # the second time, all three have earlier attempts
        run = backfill(queue)
        sent = run.send(1, "why")
        before = run.progress()
        assert before == BackfillProgress(70, 70 - sent, 0), "an earlier attempt does not count"
        assert run.follow(lambda _: None, queue.work) == BackfillProgress(70, 70, 3)
        assert not queue.sent
    assert sent == 3


def test_stalled_backfill_raises_an_error(queue: Queue) -> None:
    run = backfill(queue)
    run.send(1, "why")
    queue.sent = queue.sent[:2]
    with pytest.raises(
        GpuCostError, match="the backfill queue is empty and no hour was done for 65 minutes, but 43 hours are missing"
    ):
        run.follow(lambda _: None, queue.work)
    assert queue.now - NOW == timedelta(minutes=68)


def test_backfill_waits_for_earlier_messages(queue: Queue) -> None:
    """Another backfill's messages are processed first. Each takes longer than the timeout for an empty queue."""
    others = Backfill(queue.ledger, queue, ["other"], START, END, lambda: queue.now)
    others.send(1, "others")
    run = backfill(queue)
    run.send(1, "why")
    reports: list[BackfillProgress] = []

    def slowly() -> None:
        for _ in range(70):
            queue.idle()
        queue.work()

    assert run.follow(reports.append, slowly) == BackfillProgress(70, 70, 0)
    reported = [(progress.done, progress.other_messages) for progress in reports]
    assert reported == [(0, 0), (0, 3), (0, 2), (0, 1), (0, 0), (3, 0), (27, 0), (51, 0), (70, 0)]


def test_backfill_waits_for_a_message_that_fails_repeatedly(queue: Queue) -> None:
    """Its hours are not in the ledger until it is split after two visibility timeouts, or dead-lettered after four."""
    run = backfill(queue)
    run.send(1, "why")
    failing = queue.sent.pop()
    reports: list[BackfillProgress] = []

    def work() -> None:
        queue.work()
        if queue.now - NOW == timedelta(minutes=3):
            queue.sent.append(failing)
            queue.work = queue.idle  # type: ignore[method-assign]
        if queue.now - NOW == timedelta(minutes=120):
            del queue.work

    assert run.follow(reports.append, work) == BackfillProgress(70, 70, 0)
    assert {progress.other_messages for progress in reports} == {0}, "its own messages are not counted as others'"
    assert queue.now - NOW > timedelta(minutes=120)


def test_stall_timeout_covers_a_message_that_fails_twice() -> None:
    resources = yaml_parse(TEMPLATE.read_text())["Resources"]
    visible = resources["BackfillQueue"]["Properties"]["VisibilityTimeout"]
    assert timedelta(seconds=2 * visible + resources["AttributeFunction"]["Properties"]["Timeout"]) == STALL_TIMEOUT
