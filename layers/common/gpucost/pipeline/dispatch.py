"""Dispatch: what is due for work now, for every cluster, as messages; and the tick that says where each one stands."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpucost.core.errors import SettingsMissingError, SourceError
from gpucost.core.hours import HOUR, floor_hour, month_of
from gpucost.core.ledger import Manifest, due_hours
from gpucost.runtime.messages import MAX_HOURS_PER_MESSAGE, ClusterState, HoursDue, Origin, ScheduledTick, Tick
from gpucost.storage.hour_versions import HourVersions
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Bus, SettingsStore, StoredSettings

CATCH_UP = timedelta(days=7)
"""How far beyond the look-back hours are looked for that nobody closed, because the schedule did not fire."""
MAX_SILENCE = timedelta(days=30)
"""Hours that nobody closed are owed so far back; what is older is for people to backfill."""


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """What one tick led to."""

    hours_sent: int
    hours_overdue: int
    """Hours due that an earlier tick should have seen complete."""
    failures: tuple[str, ...]
    """One sentence per cluster that could not be looked at."""
    settings_refused: tuple[str, ...] = ()
    """Why newer settings are not in force."""


@dataclass(frozen=True, slots=True)
class _Cluster:
    """One that hours are owed to."""

    name: str
    version: int
    """Of the settings that name it, under which its hours are attributed."""
    pushed_at: datetime
    newest: datetime
    """The last hour that may be owed: the one just closed, or that in which it left."""
    has_left: bool = False


@dataclass(frozen=True, slots=True)
class DueHours:
    """What a tick found of one cluster."""

    manifests: Sequence[Manifest]
    """Within reach, of the schedule's own hours."""
    by_origin: Mapping[Origin, Sequence[datetime]]
    """In order, by the queue that they go to: what a backfill asked for first is tried again on its own."""
    previous: Mapping[datetime, Manifest] = field(default_factory=dict)
    """What became of hours that were tried before."""


class DispatchService:
    """Handles the hourly schedule; called twice for one time, it sends the same work twice, which changes nothing."""

    def __init__(self, settings_store: SettingsStore, ledger: Ledger, months: HourVersions, bus: Bus) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._months = months
        self._bus = bus

    def dispatch(self, tick: ScheduledTick, correlation_id: str) -> DispatchResult | None:
        """Send what is due at the schedule's own time; None before the first settings push.

        Raises:
            SourceError: the settings could not be read or the topic failed; the schedule's retry sends all again.
        """
        try:
            stored = self._settings_store.current()
        except SettingsMissingError:
            return None
        newest = floor_hour(tick.scheduled_time) - HOUR
        reach = timedelta(hours=stored.settings.lookback_hours) + CATCH_UP
        closed = {frozen.month for frozen in self._months.closed_months()}
        states, failures, sent, overdue = [], [], 0, 0
        for cluster in _clusters(stored, newest, reach):
            try:
                due_hours_of_cluster = self._due_hours(cluster, reach, tick.scheduled_time, closed)
                for origin, due in due_hours_of_cluster.by_origin.items():
                    self._bus.send_due([
                        message
                        for hours in split_hours(due, due_hours_of_cluster.previous)
                        for message in due_messages(
                            cluster.name, hours, settings_version=cluster.version, origin=origin, correlation_id=correlation_id
                        )
                    ])  # fmt: skip
            except SourceError as error:  # one cluster's trouble delays only itself
                failures.append(f"{cluster.name}: {error}")
                continue
            sent += sum(map(len, due_hours_of_cluster.by_origin.values()))
            if cluster.has_left:
                continue  # nobody asks any more where it stands
            state = _state(cluster.name, due_hours_of_cluster.manifests, due_hours_of_cluster.by_origin["schedule"], newest)
            states.append(state)
            overdue += state.hours_overdue
        tick_message = Tick(scheduled_time=tick.scheduled_time, clusters=tuple(states), correlation_id=correlation_id)
        self._bus.publish(tick_message)
        return DispatchResult(sent, overdue, tuple(failures), stored.refused)

    def _due_hours(self, cluster: _Cluster, reach: timedelta, now: datetime, closed: Set[str]) -> "DueHours":
        """What a cluster's hours are due for; hours of `closed` months for nothing."""
        newest = cluster.newest
        begin = newest - reach + HOUR
        manifests = self._ledger.manifests(cluster.name, begin, newest + HOUR)
        manifests_known = [*self._earlier_manifests(cluster.name, manifests, newest, reach), *manifests]
        scheduled = [manifest.hour for manifest in manifests_known if not manifest.backfilled]
        latest = None if scheduled else self._ledger.latest(cluster.name)
        if latest is not None:  # what waited when the silence began
            manifests_known += self._ledger.manifests(cluster.name, latest.hour - reach, min(latest.hour + HOUR, begin))
            scheduled = [latest.hour] if not latest.backfilled else []
        # A new one begins with the hour of the push, so that a failing first tick loses nothing.
        oldest = min(begin, newest + HOUR - MAX_SILENCE)
        since = max(scheduled[0], oldest) if scheduled else floor_hour(max(cluster.pushed_at, begin))
        backfilled = {manifest.hour for manifest in manifests_known if manifest.backfilled}
        if cluster.has_left and all(manifest.status == "incomplete" for manifest in manifests_known):
            return DueHours([], {"schedule": [], "backfill": []})  # of a name that was misspelt, say, nothing will come
        wanted = [hour for hour in due_hours(manifests_known, min(since, newest), newest, now) if month_of(hour) not in closed]
        return DueHours(
            manifests=[one for one in manifests if month_of(one.hour) not in closed and not one.backfilled],
            by_origin={
                "schedule": [hour for hour in wanted if hour not in backfilled],
                "backfill": [hour for hour in wanted if hour in backfilled],
            },
            previous={manifest.hour: manifest for manifest in manifests_known},
        )

    def _earlier_manifests(
        self, cluster: str, manifests: Sequence[Manifest], newest: datetime, reach: timedelta
    ) -> list[Manifest]:
        """What is known of the time before the reach, where hours may have left it that are owed still.

        Looked for after a silence, and once a day for what left it otherwise: a month that was frozen and is opened, a
        look-back that was shortened, work that a queue did not take.
        """
        if newest.hour and any(one.hour >= newest - CATCH_UP and not one.backfilled for one in manifests):
            return []
        oldest = newest - reach + HOUR
        return self._ledger.manifests(cluster, oldest - MAX_SILENCE, oldest)


def _clusters(stored: StoredSettings, newest: datetime, reach: timedelta) -> Iterator[_Cluster]:
    """The clusters of the settings, then those that left them within the reach."""
    for one in stored.settings.clusters:
        yield _Cluster(one.name, stored.version, stored.pushed_at, newest)
    for name, departure in stored.departed.items():
        last = floor_hour(departure.left_at)
        if last > newest - reach:
            yield _Cluster(name, departure.version, departure.left_at, min(last, newest), has_left=True)


def due_messages(
    cluster: str, hours: Sequence[datetime], *, settings_version: int, origin: Origin, correlation_id: str
) -> list[HoursDue]:
    """Hours of one cluster as messages, each of at most 24 consecutive ones.

    Args:
        cluster: its name.
        hours: in order.
        settings_version: under which they are to be attributed.
        origin: decides the queue, and whether anybody is told.
        why: the correlation id that follows them to the alert.
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
    """Hours that go together, in order; those tried in vain at most six, then alone.

    What failed may be all of them together: too slow for one invocation, or too large for its memory.
    """
    groups: list[list[datetime]] = []
    limit = 0
    for hour in hours:
        hour_limit = _max_hours(previous.get(hour))
        if groups and len(groups[-1]) < min(limit, hour_limit):
            groups[-1].append(hour)
            limit = min(limit, hour_limit)
        else:
            groups.append([hour])
            limit = hour_limit
    return groups


def _max_hours(previous: Manifest | None) -> int:
    return max(1, MAX_HOURS_PER_MESSAGE >> 2 * previous.attempts) if previous else MAX_HOURS_PER_MESSAGE


def _state(cluster: str, manifests: Sequence[Manifest], due: Sequence[datetime], newest: datetime) -> ClusterState:
    complete = [manifest.hour for manifest in manifests if manifest.status == "complete"]
    waiting = [one.hour for one in manifests if one.status == "incomplete" and not one.is_abandoned()]
    return ClusterState(
        cluster=cluster,
        last_complete_hour=max(complete, default=None),
        hours_overdue=len({hour for hour in (*due, *waiting) if hour < newest}),
    )
