"""Estimates of a backfill's remaining time. A message publishes all its hours at its end."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import cast

import pytest

from gpucost.core.hours import HOUR
from gpucost.core.ledger import Manifest
from gpucost.pipeline.dispatch import Backfill, BackfillProgress
from gpucost.runtime.messages import AttributionOrigin, HoursDue, HoursToRestate, MessageBus
from gpucost.storage.ledger import Ledger

pytestmark = pytest.mark.tools

START = datetime(2026, 10, 2, 5, tzinfo=UTC)
NOW = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
POLL = timedelta(seconds=3)


@cache
def manifest_of(cluster: str, hour: datetime) -> Manifest:
    return Manifest(cluster, hour, "complete", 1, "1-a", 1, None, 0, None, NOW)


class Workers(MessageBus):
    """Queue, workers and ledger: each message is metered for so long, and then published hour by hour.

    Args:
        metering: seconds to meter a message of 24 hours.
        publishing: seconds to publish its hours.
        workers: how many there are.
        busy: how long they process other messages first.
        interval: seconds between the starts of two workers.
    """

    def __init__(
        self,
        metering: float,
        publishing: float,
        *,
        workers: int = 2,
        busy: timedelta = timedelta(0),
        interval: float = 0,
    ) -> None:
        self.now = NOW
        self.metering, self.publishing = metering, publishing
        self.busy_until = NOW + busy
        self.free = [self.busy_until + timedelta(seconds=interval * number) for number in range(workers)]
        self.closed: dict[datetime, datetime] = {}
        """When each hour is published."""

    def send_due(self, messages: Sequence[HoursDue | HoursToRestate]) -> None:
        for message in messages:
            at = max(min(self.free), self.now)
            self.free.remove(min(self.free))
            starts = message.hour_starts()
            for number, hour in enumerate(starts, start=1):
                spent = self.metering * len(starts) / 24 + self.publishing * number / 24
                self.closed[hour] = at + timedelta(seconds=spent)
            self.free.append(self.closed[starts[-1]])

    def backlog(self, origin: AttributionOrigin) -> int:
        return 1000 if self.now < self.busy_until else 1

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        return [
            manifest_of(cluster, hour) for hour, at in self.closed.items() if start <= hour < end and at <= self.now
        ]

    def adjustments(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        return []


def estimates(work: Workers, days: int) -> list[tuple[timedelta | None, timedelta]]:
    """The estimate at each poll, with the actual remaining time."""
    run = Backfill(cast("Ledger", work), work, ["blue"], START, START + timedelta(days=days), lambda: work.now)
    run.send(1, "why")
    estimates: list[tuple[datetime, BackfillProgress]] = []

    def pause() -> None:
        work.now += POLL

    run.follow(lambda now: estimates.append((work.now, now)), pause)
    return [(progress.remaining_time, work.now - at) for at, progress in estimates]


def wrong_estimates(
    work: Workers, estimates: Sequence[tuple[timedelta | None, timedelta]]
) -> list[tuple[timedelta, timedelta]]:
    """Estimates that are wrong by more than 50% and by more than a message. At the end, fewer workers are busy."""
    message = timedelta(seconds=work.metering + work.publishing)
    return [
        (estimate, took)
        for estimate, took in estimates
        if estimate is not None and not took / 1.5 <= estimate <= took * 1.5 and abs(estimate - took) > message
    ]


@pytest.mark.parametrize(
    "work",
    [
        Workers(18, 6),
        Workers(50, 10),
        Workers(90, 30, interval=40),
        Workers(360, 120, interval=100),
        Workers(7, 3),
        Workers(110, 10, workers=5),
        Workers(50, 10, busy=timedelta(hours=2)),
        Workers(0, 20, workers=1),
    ],
    ids=["24 s", "a minute", "apart", "8 minutes", "10 s", "five at once", "behind others", "hour by hour"],
)
def test_estimate_is_within_50_percent(work: Workers) -> None:
    estimates_seen = estimates(work, 40)
    waited = (work.busy_until - NOW) // POLL
    assert {estimate for estimate, _ in estimates_seen[:waited]} <= {None}, (
        "there is no estimate while other messages are processed"
    )
    later = estimates_seen[waited:]
    assert sum(estimate is not None for estimate, _ in later) > len(later) * 0.7
    assert wrong_estimates(work, later) == []
    assert later[-1] == (timedelta(0), timedelta(0))


def test_hours_done_before_do_not_affect_the_estimate() -> None:
    work = Workers(50, 10)
    work.closed = {START + HOUR * number: NOW - timedelta(days=1) for number in range(24 * 20)}
    estimates_seen = estimates(work, 40)
    assert sum(estimate is not None for estimate, _ in estimates_seen) > len(estimates_seen) * 0.7
    assert wrong_estimates(work, estimates_seen) == []


def test_hanging_message_keeps_an_estimate() -> None:
    """While a message waits for its timeout, the estimate does not fall to zero."""
    work = Workers(50, 10)
    run = Backfill(cast("Ledger", work), work, ["blue"], START, START + timedelta(days=20), lambda: work.now)
    run.send(1, "why")
    hangs = max(at for at in work.closed.values() if at < NOW + timedelta(minutes=4))
    work.closed = {hour: at + timedelta(minutes=30) * (at > hangs) for hour, at in work.closed.items()}
    estimates: list[timedelta] = []

    def pause() -> None:
        work.now += POLL

    run.follow(lambda now: estimates.append(now.remaining_time) if now.remaining_time is not None else None, pause)
    assert min(estimate for estimate in estimates[: len(estimates) // 2]) > timedelta(minutes=4)
