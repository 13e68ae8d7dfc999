"""Backfill: past hours through the queue of their own, a UTC day per message, as often as it takes.

The ledger itself says what is left to do, so that a backfill that was interrupted goes on where it stood: hours with
figures are not asked for again, incomplete ones are tried anew.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from gpucost.core.errors import GpuCostError
from gpucost.core.hours import floor_day, hours_between
from gpucost.core.ledger import Manifest
from gpucost.pipeline.dispatch import due_messages, split_hours
from gpucost.runtime.messages import HoursDue
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Clock, WorkQueue

STALLED = timedelta(minutes=65)
"""With nothing in the queue and no hour done for so long, nobody is at work: a message that failed twice is delivered
again after twice the queue's visibility time-out, and its hours have then the function's own time-out."""
FIRST_MESSAGES = 3
"""Done before an estimate is made; the newest day's is often a short one."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a backfill stands, in hours of all its clusters."""

    total: int
    done: int
    incomplete: int
    """Of those done: their metrics could not be had."""
    ahead: int = 0
    """About how many messages of others are in the queue while no hour of this backfill is done."""
    remaining: timedelta | None = None
    """How long it will take; None where nothing tells yet."""


class Pace:
    """How fast hours are done.

    They come in bursts: hours of one message are metered together, and then published. So the time is counted from the
    start to the last burst's end, and the quiet since then is taken off what is left.

    Args:
        began: when the work was sent.
        done: hours that were done before.
    """

    def __init__(self, began: datetime, done: int) -> None:
        self._began = began
        self._before = self._done = done
        self._last = began
        self._first: datetime | None = None
        self._bursts: tuple[datetime, int] | None = None
        """When the last whole burst ended, and what was done by then."""

    def record(self, done: int, at: datetime) -> None:
        """So many hours are done by now."""
        if done != self._done:
            self._first = self._first or at
            self._done, self._last = done, at
        elif self._first is not None and at - self._last > (self._first - self._began) / 4:
            self._bursts = self._last, self._done  # between two hours of a burst less time passes

    def record_waiting(self, at: datetime) -> None:
        """Others were worked on until now, so that the time of ours begins only here, if nothing of it is done."""
        if self._first is None:
            self._began = self._last = at

    def remaining(self, total: int, at: datetime) -> timedelta | None:
        """What is left at the pace so far; None within the first three bursts, where half of one misleads."""
        if self._first is None:
            return None
        burst = self._first - self._began
        if at - self._began < 3 * burst:
            return None
        # Within a burst the time before it counts in full and its hours in part; but one may never end.
        return max(
            timedelta(0),
            min(
                (last - self._began) * (total - done) / (done - self._before) - min(at - last, burst)
                for last, done in {(self._last, self._done), self._bursts or (self._last, self._done)}
            ),
        )


class Backfill:
    """One period of some clusters.

    Args:
        ledger: says which hours have figures.
        queue: takes the work, and knows how much of it waits.
        clusters: by name.
        start: the first hour.
        end: itself not in the period.
        clock: the time now.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: WorkQueue,
        clusters: Sequence[str],
        start: datetime,
        end: datetime,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._clusters = clusters
        self._hours = hours_between(start, end)
        self._clock = clock
        self._tried_before: set[tuple[str, datetime, str]] = set()
        """Cluster, hour and run of what was incomplete when it was sent."""
        self._sent: list[HoursDue] = []
        self._pace = Pace(clock(), 0)

    def send(self, settings_version: int, correlation_id: str) -> int:
        """Send every hour that has no figures yet, newest days first: people look at those first.

        A message holds hours of one UTC day, so that each day is summed once; fewer where they were tried in vain.

        Returns:
            The hours sent.

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
            for portion in (one for hours in reversed(days) for one in split_hours(hours, versions)):
                messages += due_messages(cluster, portion, settings_version=settings_version, origin="backfill", correlation_id=correlation_id)
            self._queue.send_due(messages)
            self._sent += messages
            sent += len(missing)
        self._pace = Pace(began, self._total() - sent)
        return sent

    def progress(self) -> Progress:
        """What the ledger says by now; an hour that was tried since it was sent and stayed incomplete is done, too.

        Told by its run and not by the time: functions have a clock of their own.
        """
        return self._progress(self._done())

    def follow(self, report: Callable[[Progress], None], pause: Callable[[], None]) -> Progress:
        """Wait until every hour is done, however long others' work that was sent before takes.

        Raises:
            GpuCostError: nothing is in the queue, and nothing has moved for a long time.
            SourceError: the ledger or the queue could not be asked.
        """
        quiet_since, last_done, ahead = self._clock(), -1, 0
        while True:
            done, at = self._done(), self._clock()
            progress = self._progress(done)
            self._pace.record(progress.done, at)
            if progress.done >= progress.total:
                report(replace(progress, remaining=timedelta(0)))
                return progress
            unfinished = self._unfinished(done)
            if progress.done != last_done:
                quiet_since, last_done, ahead = at, progress.done, 0
            else:
                queued = self._queue.backlog("backfill")
                ahead = max(0, queued - unfinished)
                if ahead:
                    self._pace.record_waiting(at)
                if queued:
                    quiet_since = at
                elif at - quiet_since > STALLED:
                    raise _stalled(progress)
            has_estimate = len(self._sent) - unfinished >= FIRST_MESSAGES
            remaining = self._pace.remaining(progress.total, at) if has_estimate else None
            report(replace(progress, ahead=ahead, remaining=remaining))
            pause()

    def _total(self) -> int:
        return len(self._hours) * len(self._clusters)

    def _done(self) -> dict[tuple[str, datetime], Manifest]:
        return {
            (cluster, hour): manifest
            for cluster in self._clusters
            for hour, manifest in self._newest_versions(cluster).items()
            if manifest.status != "incomplete" or (cluster, hour, manifest.run_id) not in self._tried_before
        }

    def _progress(self, done: Mapping[tuple[str, datetime], Manifest]) -> Progress:
        incomplete = sum(manifest.status == "incomplete" for manifest in done.values())
        return Progress(self._total(), len(done), incomplete)

    def _unfinished(self, done: Container[tuple[str, datetime]]) -> int:
        """How many of the messages sent are not worked off, as far as the ledger tells."""
        return sum(any((one.cluster, hour) not in done for hour in one.starts()) for one in self._sent)

    def _newest_versions(self, cluster: str) -> dict[datetime, Manifest]:
        if not self._hours:
            return {}
        first, last = self._hours[0], self._hours[-1]
        hours = set(self._hours)
        end = last + timedelta(hours=1)
        manifests = [*self._ledger.manifests(cluster, first, end), *self._ledger.adjustments(cluster, first, end)]
        return {manifest.hour: manifest for manifest in manifests if manifest.hour in hours}


def _stalled(now: Progress) -> GpuCostError:
    return GpuCostError(
        f"nothing is in the backfill queue and no hour was closed for {STALLED.total_seconds() / 60:g} minutes, "
        f"{now.total - now.done} are left; look at the dead letters and the log of attribute, then run the same "
        "command again"
    )
