"""Records what clusters let people have, hour by hour."""

from collections.abc import Sequence
from datetime import datetime

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.observability import logger
from gpucost.settings import ClusterSettings, Settings
from gpucost.storage.limits import LimitsStore
from gpucost.storage.ports import LimitsReaders


class LimitsRecorder:
    """Asks for the limits of hours that were published, and keeps them.

    Args:
        readers: of each cluster's metrics.
        store: where they are kept.
    """

    def __init__(self, readers: LimitsReaders, store: LimitsStore) -> None:
        self._readers = readers
        self._store = store

    def record(
        self,
        cluster: ClusterSettings,
        settings: Settings,
        hours: Sequence[datetime],
        now: datetime,
        deadline: Deadline | None = None,
    ) -> None:
        """Keep the limits of hours. An hour's figures do not wait for them: what cannot be had is logged and left out.

        Hours that have some are not asked for again; those of a delivery that was killed after publishing are.

        Args:
            cluster: whose hours.
            settings: say how long they are kept.
            hours: any, in order.
            now: the time.
            deadline: for the queries.
        """
        if not hours:
            return
        expires_at = now + settings.retention.periods().lines
        try:
            known = {one.hour for one in self._store.limits(cluster.name, hours[0], hours[-1] + HOUR)}
            for run in _runs([hour for hour in hours if hour not in known]):
                for one in self._readers(cluster, deadline).at_ends(run):
                    if one.pools or one.quotas:
                        self._store.put(one, expires_at)
        except SourceError as error:
            logger.warning("limits were not kept", cluster=cluster.name, reason=str(error))


def _runs(hours: Sequence[datetime]) -> list[list[datetime]]:
    """Consecutive hours together."""
    runs: list[list[datetime]] = []
    for hour in hours:
        if runs and runs[-1][-1] + HOUR == hour:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    return runs
