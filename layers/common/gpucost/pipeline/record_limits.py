"""Records the limits of node pools and the quotas of namespaces, hour by hour."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR, consecutive_runs
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.observability import logger
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost.storage.limits_store import LimitsStore

if TYPE_CHECKING:
    from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader

LimitsReaderFactory = Callable[[ClusterSettings, Deadline | None], "NodePoolLimitsReader"]
"""Creates the reader of a cluster's limits; the deadline applies to all of its queries together."""


class LimitsRecorder:
    """Reads the limits of published hours from a cluster's metrics, and stores them.

    Args:
        create_reader: creates a reader of a cluster's limits.
        store: where limits are stored.
    """

    def __init__(self, create_reader: LimitsReaderFactory, store: LimitsStore) -> None:
        self._create_reader = create_reader
        self._store = store

    def record(
        self,
        cluster: ClusterSettings,
        settings: CoreSettings,
        hours: Sequence[datetime],
        now: datetime,
        deadline: Deadline | None = None,
    ) -> None:
        """Record the limits of hours that have none yet.

        An hour's figures do not depend on limits: if they are unavailable, this is logged.

        Args:
            cluster: the cluster.
            settings: the settings, which say how long limits are kept.
            hours: the hours, in order.
            now: the current time.
            deadline: limit for the queries.
        """
        if not hours:
            return
        expires_at = now + settings.retention.periods().lines
        try:
            stored = {limits.hour for limits in self._store.limits_between(cluster.name, hours[0], hours[-1] + HOUR)}
            for run in consecutive_runs([hour for hour in hours if hour not in stored]):
                for limits in self._create_reader(cluster, deadline).read(run):
                    if limits.pools or limits.quotas:
                        self._store.put(limits, expires_at)
        except SourceError as error:
            logger.warning("limits were not recorded", cluster=cluster.name, reason=str(error))
        except Exception:  # the hours are published already, and their rollups must still be updated
            logger.exception("limits were not recorded", cluster=cluster.name)
