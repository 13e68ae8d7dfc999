"""Backfill: sends past hours to the backfill queue, at most a UTC day per message.

The ledger shows what remains to be done. So running an interrupted backfill again continues it: hours with figures are
skipped, incomplete ones are tried again.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from gpucost.core.errors import GpuCostError
from gpucost.core.hours import floor_day, hours_between
from gpucost.core.ledger import Manifest
from gpucost.pipeline.dispatch import due_messages, split_hours
from gpucost.runtime.messages import HoursDue
from gpucost.runtime.messaging import MessageBus
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Clock

STALL_TIMEOUT = timedelta(minutes=65)
"""If the queue is empty and no hour is done for this long, the backfill has stopped. A message that failed twice is
delivered again after twice the queue's visibility time-out, and may then take the function's time-out."""
MIN_MESSAGES_FOR_ESTIMATE = 3
"""How many messages must be done before there is an estimate; the newest day's is often short."""


class BackfillProgress(Struct, frozen=True):
    """Progress of a backfill, in cluster-hours."""

    total: int
    done: int
    incomplete: int
    """Of those done: their metrics were unavailable."""
    other_messages: int = 0
    """About how many other messages are in the queue, while no hour of this backfill is being done."""
    remaining_time: timedelta | None = None
    """Estimated time to the end; None if there is no estimate yet."""


class BackfillPace:
    """Estimates the remaining time of a backfill.

    Hours are done in bursts, because the hours of a message are metered together and then published. So the pace is
    measured from the start to the end of the last burst, and the time since then is subtracted from the estimate.

    Args:
        began: when the messages were sent.
        done: hours that were done before.
    """

    def __init__(self, began: datetime, done: int) -> None:
        self._began = began
        self._before = self._done = done
        self._last = began
        self._first: datetime | None = None
        self._bursts: tuple[datetime, int] | None = None
        """When the last complete burst ended, and how many hours were done by then."""

    def record(self, done: int, at: datetime) -> None:
        """Record how many hours are done at a time."""
        if done != self._done:
            self._first = self._first or at
            self._done, self._last = done, at
        elif self._first is not None and at - self._last > (self._first - self._began) / 4:
            self._bursts = self._last, self._done  # hours of the same burst follow each other faster

    def record_waiting(self, at: datetime) -> None:
        """Record that other messages were processed until now; if no hour is done yet, the pace counts from now."""
        if self._first is None:
            self._began = self._last = at

    def remaining_time(self, total: int, at: datetime) -> timedelta | None:
        """Estimate the remaining time from the pace so far; None within the first three bursts, which are too few."""
        if self._first is None:
            return None
        burst = self._first - self._began
        if at - self._began < 3 * burst:
            return None
        # During a burst, its time counts in full and its hours in part, so the last complete burst is used, too.
        return max(
            timedelta(0),
            min(
                (last - self._began) * (total - done) / (done - self._before) - min(at - last, burst)
                for last, done in {(self._last, self._done), self._bursts or (self._last, self._done)}
            ),
        )


class Backfill:
    """Backfill of a period of some clusters.

    Args:
        ledger: shows which hours have figures.
        queue: sends the messages, and counts those that wait.
        clusters: names of the clusters.
        start: the first hour.
        end: end of the period, exclusive.
        clock: returns the current time.
    """

    def __init__(
        self, ledger: Ledger, queue: MessageBus, clusters: Sequence[str], start: datetime, end: datetime, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._clusters = clusters
        self._hours = hours_between(start, end)
        self._clock = clock
        self._tried_before: set[tuple[str, datetime, str]] = set()
        """Cluster, hour and run of versions that were incomplete when their hours were sent."""
        self._sent: list[HoursDue] = []
        self._pace = BackfillPace(clock(), 0)

    def send(self, settings_version: int, correlation_id: str) -> int:
        """Send all hours without figures, newest days first, because people look at those first.

        A message has hours of one UTC day, so that each day's rollups are updated once. Hours that failed before are in
        smaller messages.

        Returns:
            How many hours were sent.

        Raises:
            SourceError: the ledger or the queue failed; sending again is safe.
        """
        began, sent = self._clock(), 0
        for cluster in self._clusters:
            versions = self._newest_versions(cluster)
            missing = [hour for hour in self._hours if hour not in versions or versions[hour].status == "incomplete"]
            self._tried_before |= {(cluster, hour, versions[hour].run_id) for hour in missing if hour in versions}
            days = [list(hours) for _, hours in groupby(missing, floor_day)]
            messages: list[HoursDue] = []
            for portion in (group for hours in reversed(days) for group in split_hours(hours, versions)):
                messages += due_messages(
                    cluster,
                    portion,
                    settings_version=settings_version,
                    origin="backfill",
                    correlation_id=correlation_id,
                )
            self._queue.send_due(messages)
            self._sent += messages
            sent += len(missing)
        self._pace = BackfillPace(began, self._hour_count() - sent)
        return sent

    def progress(self) -> BackfillProgress:
        """Return the progress that the ledger shows. An hour that was tried again and is still incomplete is done.

        Such an hour is recognized by its run and not by its time, because the functions' clocks may differ.
        """
        return self._progress(self._done_hours())

    def follow(self, report: Callable[[BackfillProgress], None], pause: Callable[[], None]) -> BackfillProgress:
        """Wait until every hour is done, however long messages that were sent earlier take.

        Args:
            report: called with the progress at each check.
            pause: waits between checks.

        Raises:
            GpuCostError: the queue is empty and no hour was done for a long time.
            SourceError: the ledger or the queue could not be read.
        """
        quiet_since, last_done, other_messages = self._clock(), -1, 0
        while True:
            done, at = self._done_hours(), self._clock()
            progress = self._progress(done)
            self._pace.record(progress.done, at)
            if progress.done >= progress.total:
                report(replace(progress, remaining_time=timedelta(0)))
                return progress
            unfinished = self._count_unfinished_messages(done)
            if progress.done != last_done:
                quiet_since, last_done, other_messages = at, progress.done, 0
            else:
                queued = self._queue.backlog("backfill")
                other_messages = max(0, queued - unfinished)
                if other_messages:
                    self._pace.record_waiting(at)
                if queued:
                    quiet_since = at
                elif at - quiet_since > STALL_TIMEOUT:
                    raise _stalled_error(progress)
            has_estimate = len(self._sent) - unfinished >= MIN_MESSAGES_FOR_ESTIMATE
            remaining_time = self._pace.remaining_time(progress.total, at) if has_estimate else None
            report(replace(progress, other_messages=other_messages, remaining_time=remaining_time))
            pause()

    def _hour_count(self) -> int:
        return len(self._hours) * len(self._clusters)

    def _done_hours(self) -> dict[tuple[str, datetime], Manifest]:
        return {
            (cluster, hour): manifest
            for cluster in self._clusters
            for hour, manifest in self._newest_versions(cluster).items()
            if manifest.status != "incomplete" or (cluster, hour, manifest.run_id) not in self._tried_before
        }

    def _progress(self, done: Mapping[tuple[str, datetime], Manifest]) -> BackfillProgress:
        incomplete = sum(manifest.status == "incomplete" for manifest in done.values())
        return BackfillProgress(self._hour_count(), len(done), incomplete)

    def _count_unfinished_messages(self, done: Container[tuple[str, datetime]]) -> int:
        """Return how many of the sent messages have hours that are not done."""
        return sum(any((message.cluster, hour) not in done for hour in message.hour_starts()) for message in self._sent)

    def _newest_versions(self, cluster: str) -> dict[datetime, Manifest]:
        if not self._hours:
            return {}
        first, last = self._hours[0], self._hours[-1]
        hours = set(self._hours)
        end = last + timedelta(hours=1)
        manifests = [*self._ledger.manifests(cluster, first, end), *self._ledger.adjustments(cluster, first, end)]
        return {manifest.hour: manifest for manifest in manifests if manifest.hour in hours}


def _stalled_error(now: BackfillProgress) -> GpuCostError:
    return GpuCostError(
        f"the backfill queue is empty and no hour was done for {STALL_TIMEOUT.total_seconds() / 60:g} minutes, but "
        f"{now.total - now.done} hours are missing. Check the dead-letter queue (gpucost hours redrive --dry-run) and "
        "the log of the attribute function, then run the same command again"
    )
