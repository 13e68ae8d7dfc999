"""Sends hours as messages: the due hours of every cluster with the tick, and past hours to the backfill queue."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from itertools import groupby

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.errors import GpuCostError, SettingsMissingError, SourceError
from gpucost.core.hours import HOUR, floor_day, floor_hour, hours_between, month_of
from gpucost.core.ledger import Manifest, due_hours
from gpucost.runtime.messages import (
    MAX_HOURS_PER_MESSAGE,
    AlertTick,
    AttributionOrigin,
    ClusterState,
    HoursDue,
    MessageBus,
    ScheduledTick,
)
from gpucost.runtime.observability import logger
from gpucost.storage.hour_versions import HourVersions
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Clock, SettingsStore, StoredSettings

# Sends the due hours of every cluster as messages, and the tick with the state of every cluster.

CATCH_UP_PERIOD = timedelta(days=7)
"""How far before the look-back missing hours are searched, in case the schedule did not fire."""
MAX_PUBLICATION_GAP = timedelta(days=30)
"""How far back missing hours are due after a time without any publication; older ones need a backfill."""


class DispatchResult(Struct, frozen=True):
    """The result of a tick."""

    hours_sent: int
    hours_overdue: int
    """Due hours that should have been complete at an earlier tick."""
    failures: tuple[str, ...]
    """One sentence per cluster that could not be checked."""
    unreadable_settings: tuple[str, ...] = ()
    """Why newer settings are not in force."""


class _ScheduledCluster(Struct, frozen=True):
    """A cluster that may have due hours."""

    name: str
    settings_version: int
    """Version of the settings that its hours are attributed with."""
    pushed_at: datetime
    newest_hour: datetime
    """The last hour that may be due: the one that just ended, or the one in which the cluster left the settings."""
    has_left: bool = False


class DueHours(Struct, frozen=True):
    """The due hours of one cluster."""

    scheduled_manifests: Sequence[Manifest]
    """Of the checked hours that the schedule requested."""
    by_origin: Mapping[AttributionOrigin, Sequence[datetime]]
    """In order, by the queue that they go to: hours that a backfill requested are retried in the backfill queue."""
    previous_manifests: Mapping[datetime, Manifest] = field(default_factory=dict)
    """Manifests of hours that were tried before."""


class DispatchService:
    """Handles the hourly schedule. Called twice for the same time, it sends the same hours twice, which is harmless."""

    def __init__(self, settings_store: SettingsStore, ledger: Ledger, versions: HourVersions, bus: MessageBus) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._versions = versions
        self._bus = bus

    def dispatch(self, tick: ScheduledTick, correlation_id: str) -> DispatchResult | None:
        """Send the hours that are due at the schedule's time; return None before the first settings push.

        Raises:
            SourceError: the settings could not be read or the topic failed; the schedule's retry sends all again.
        """
        try:
            stored = self._settings_store.current()
        except SettingsMissingError:
            return None
        newest = floor_hour(tick.scheduled_time) - HOUR
        reach = timedelta(hours=stored.settings.lookback_hours) + CATCH_UP_PERIOD
        closed = {month.month for month in self._versions.closed_months()}
        states, failures, sent, overdue = [], [], 0, 0
        for cluster in _scheduled_clusters(stored, newest, reach):
            try:
                due = self._due_hours(cluster, reach, tick.scheduled_time, closed)
                for origin, hours_of_origin in due.by_origin.items():
                    self._bus.send_due(
                        [
                            message
                            for hours in split_hours(hours_of_origin, due.previous_manifests)
                            for message in due_messages(
                                cluster.name,
                                hours,
                                settings_version=cluster.settings_version,
                                origin=origin,
                                correlation_id=correlation_id,
                            )
                        ]
                    )
            except SourceError as error:  # a failing cluster delays only itself
                failures.append(f"{cluster.name}: {error}")
                continue
            except Exception as error:  # and so does a bug that its data triggers
                logger.exception("a cluster's hours were not sent", cluster=cluster.name)
                failures.append(f"{cluster.name}: {type(error).__name__}: {error}")
                continue
            sent += sum(map(len, due.by_origin.values()))
            if cluster.has_left:
                continue  # its state is of no interest any more
            state = _cluster_state(cluster.name, due.scheduled_manifests, due.by_origin["schedule"], newest)
            states.append(state)
            overdue += state.hours_overdue
        tick_message = AlertTick(
            scheduled_time=tick.scheduled_time, clusters=tuple(states), correlation_id=correlation_id
        )
        self._bus.publish(tick_message)
        return DispatchResult(sent, overdue, tuple(failures), stored.refused)

    def _due_hours(self, cluster: _ScheduledCluster, reach: timedelta, now: datetime, closed: Set[str]) -> DueHours:
        """Find the due hours of a cluster; hours of `closed` months are never due."""
        newest = cluster.newest_hour
        begin = newest - reach + HOUR
        manifests = self._ledger.manifests(cluster.name, begin, newest + HOUR)
        seen = [*self._earlier_manifests(cluster.name, manifests, newest, reach), *manifests]
        scheduled = [manifest.hour for manifest in seen if not manifest.is_backfilled]
        latest = None if scheduled else self._ledger.newest_published_hour(cluster.name)
        if latest is not None:  # hours that waited when the last publication was made
            seen += self._ledger.manifests(cluster.name, latest.hour - reach, min(latest.hour + HOUR, begin))
            scheduled = [latest.hour] if not latest.is_backfilled else []
        # A new cluster begins with the hour of the push, so that a failing first tick loses nothing.
        oldest = min(begin, newest + HOUR - MAX_PUBLICATION_GAP)
        since = max(scheduled[0], oldest) if scheduled else floor_hour(max(cluster.pushed_at, begin))
        backfilled = {manifest.hour for manifest in seen if manifest.is_backfilled}
        if cluster.has_left and all(manifest.status == "incomplete" for manifest in seen):
            return DueHours([], {"schedule": [], "backfill": []})  # for example, a misspelled name never has metrics
        hours = [hour for hour in due_hours(seen, min(since, newest), newest, now) if month_of(hour) not in closed]
        return DueHours(
            scheduled_manifests=[
                manifest
                for manifest in manifests
                if month_of(manifest.hour) not in closed and not manifest.is_backfilled
            ],
            by_origin={
                "schedule": [hour for hour in hours if hour not in backfilled],
                "backfill": [hour for hour in hours if hour in backfilled],
            },
            previous_manifests={manifest.hour: manifest for manifest in seen},
        )

    def _earlier_manifests(
        self, cluster: str, manifests: Sequence[Manifest], newest: datetime, reach: timedelta
    ) -> list[Manifest]:
        """Return manifests from before the reach, where hours may still be due.

        They are read after a time without publications, and once a day for other causes: a month that was reopened, a
        look-back that was shortened, or messages that a queue did not take.
        """
        recent = newest - CATCH_UP_PERIOD
        if newest.hour and any(manifest.hour >= recent and not manifest.is_backfilled for manifest in manifests):
            return []
        oldest = newest - reach + HOUR
        return self._ledger.manifests(cluster, oldest - MAX_PUBLICATION_GAP, oldest)


def _scheduled_clusters(
    stored: StoredSettings, newest: datetime, search_period: timedelta
) -> Iterator[_ScheduledCluster]:
    """Yield the clusters of the settings, then those that left them within the search period."""
    for cluster in stored.settings.clusters:
        yield _ScheduledCluster(cluster.name, stored.version, stored.pushed_at, newest)
    for name, departure in stored.departed_clusters.items():
        last = floor_hour(departure.left_at)
        if last > newest - search_period:
            yield _ScheduledCluster(
                name, departure.last_settings_version, departure.left_at, min(last, newest), has_left=True
            )


def due_messages(
    cluster: str, hours: Sequence[datetime], *, settings_version: int, origin: AttributionOrigin, correlation_id: str
) -> list[HoursDue]:
    """Build the messages for hours of one cluster, each with at most 24 consecutive hours.

    Args:
        cluster: the cluster's name.
        hours: the hours, in order.
        settings_version: version of the settings to attribute them with.
        origin: decides the queue, and whether alerts are sent.
        correlation_id: identifies the work in logs, from the message to the alert.
    """
    runs: list[list[datetime]] = []
    for hour in hours:
        if runs and runs[-1][-1] + HOUR == hour and len(runs[-1]) < MAX_HOURS_PER_MESSAGE:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    return [
        HoursDue(
            cluster=cluster,
            first_hour=run[0],
            hours=len(run),
            settings_version=settings_version,
            origin=origin,
            correlation_id=correlation_id,
        )
        for run in runs
    ]


def split_hours(hours: Sequence[datetime], previous: Mapping[datetime, Manifest]) -> list[list[datetime]]:
    """Group hours for messages, in order. Hours that failed before are in smaller groups, and finally alone.

    Hours may fail only together, because they take too long for one invocation or too much of its memory.
    """
    groups: list[list[datetime]] = []
    limit = 0
    for hour in hours:
        hour_limit = _max_hours_after_attempts(previous.get(hour))
        if groups and len(groups[-1]) < min(limit, hour_limit):
            groups[-1].append(hour)
            limit = min(limit, hour_limit)
        else:
            groups.append([hour])
            limit = hour_limit
    return groups


def _max_hours_after_attempts(previous_manifest: Manifest | None) -> int:
    return (
        max(1, MAX_HOURS_PER_MESSAGE >> 2 * previous_manifest.attempts) if previous_manifest else MAX_HOURS_PER_MESSAGE
    )


def _cluster_state(
    cluster: str, manifests: Sequence[Manifest], due: Sequence[datetime], newest: datetime
) -> ClusterState:
    complete = [manifest.hour for manifest in manifests if manifest.status == "complete"]
    waiting = [
        manifest.hour for manifest in manifests if manifest.status == "incomplete" and not manifest.is_abandoned()
    ]
    return ClusterState(
        cluster=cluster,
        last_complete_hour=max(complete, default=None),
        hours_overdue=len({hour for hour in (*due, *waiting) if hour < newest}),
    )


# Backfill: sends past hours to the backfill queue, at most a UTC day per message.
#
# The ledger shows what remains to be done. So running an interrupted backfill again continues it: hours with figures
# are skipped, incomplete ones are tried again.

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
