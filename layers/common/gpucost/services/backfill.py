"""Backfill: past hours through the queue of their own, a UTC day per message, as often as it takes.

The ledger itself says what is left to do, so that a backfill that was interrupted goes on where it stood: hours with
figures are not asked for again, incomplete ones are tried anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from gpucost.domain.hours import floor_day, hours_between
from gpucost.domain.ledger import Manifest
from gpucost.errors import GpuCostError
from gpucost.messages import HoursDue
from gpucost.ports import AdjustableHours, Bus, Clock
from gpucost.services.dispatch import messages

STALLED = timedelta(minutes=45)
"""Without any hour done for so long, nobody is at work: a message that failed is delivered again after 30 minutes."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a backfill stands, in hours of all its clusters."""

    wanted: int
    done: int
    incomplete: int
    """Of those done: their metrics could not be had."""


class Backfill:
    """One period of some clusters.

    Args:
        ledger: says which hours have figures.
        bus: takes the work.
        clusters: by name.
        start: the first hour.
        end: itself not in the period.
        clock: the time now.
    """

    def __init__(
        self, ledger: AdjustableHours, bus: Bus, clusters: Sequence[str], start: datetime, end: datetime, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._bus = bus
        self._clusters = clusters
        self._hours = hours_between(start, end)
        self._clock = clock
        self._tried_before: set[tuple[str, datetime, str]] = set()
        """Cluster, hour and run of what was incomplete when it was sent."""

    def send(self, settings_version: int, why: str) -> int:
        """Send every hour that has no figures yet, newest days first: people look at those first.

        A message holds hours of one UTC day, so that each day is summed once.

        Returns:
            The hours sent.

        Raises:
            SourceError: the ledger or the queue failed; sending again is safe.
        """
        sent = 0
        for cluster in self._clusters:
            known = self._known(cluster)
            left = [hour for hour in self._hours if hour not in known or known[hour].status == "incomplete"]
            self._tried_before |= {(cluster, hour, known[hour].run_id) for hour in left if hour in known}
            days = [list(hours) for _, hours in groupby(left, floor_day)]
            work: list[HoursDue] = []
            for hours in reversed(days):
                work += messages(cluster, hours, settings_version=settings_version, origin="backfill", why=why)
            self._bus.send_due(work)
            sent += len(left)
        return sent

    def progress(self) -> Progress:
        """What the ledger says by now; an hour that was tried since it was sent and stayed incomplete is done, too.

        Told by its run and not by the time: functions have a clock of their own.
        """
        done = incomplete = 0
        for cluster in self._clusters:
            for manifest in self._known(cluster).values():
                if manifest.status != "incomplete":
                    done += 1
                elif (cluster, manifest.hour, manifest.run_id) not in self._tried_before:
                    done += 1
                    incomplete += 1
        return Progress(len(self._hours) * len(self._clusters), done, incomplete)

    def follow(self, tell: Callable[[Progress], None], pause: Callable[[], None]) -> Progress:
        """Wait until every hour is done.

        Raises:
            GpuCostError: nothing has moved for a long time.
        """
        moved_at, before = self._clock(), -1
        while True:
            now = self.progress()
            tell(now)
            if now.done >= now.wanted:
                return now
            if now.done != before:
                moved_at, before = self._clock(), now.done
            elif self._clock() - moved_at > STALLED:
                raise GpuCostError(
                    f"no hour was closed for {STALLED.total_seconds() / 60:g} minutes, {now.wanted - now.done} are "
                    "left; look at the dead letters and the log of attribute, then run the same command again"
                )
            pause()

    def _known(self, cluster: str) -> dict[datetime, Manifest]:
        if not self._hours:
            return {}
        first, last = self._hours[0], self._hours[-1]
        wanted = set(self._hours)
        end = last + timedelta(hours=1)
        found = [*self._ledger.manifests(cluster, first, end), *self._ledger.beside(cluster, first, end)]
        return {manifest.hour: manifest for manifest in found if manifest.hour in wanted}
