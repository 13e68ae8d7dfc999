"""Reads the look-back out of the ledger, one hour at a time."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from gpucost.core.hours import HOUR
from gpucost.features.recommendations.history import LookBack, Wait
from gpucost.features.recommendations.node_prices import SpotPrice
from gpucost.features.recommendations.ports import LedgerHours
from gpucost.runtime.observability import logger

LOOK_BACK = timedelta(days=30)
MAX_WORKLOADS = 20_000
"""Of a cluster: each takes 43 KB over 30 days. Beyond, those that ended longest ago are left out."""


def read_look_back(
    ledger: LedgerHours,
    cluster: str,
    end: datetime,
    *,
    list_prices: Mapping[str, float],
    spot_prices: Mapping[str, SpotPrice],
    memory: Mapping[datetime, Mapping[tuple[str, str], float]],
    waits: Mapping[datetime, Sequence[Wait]],
    length: timedelta = LOOK_BACK,
    max_workloads: int = MAX_WORKLOADS,
) -> LookBack:
    """The hours before a moment, as advice looks at them.

    Args:
        ledger: the hours.
        cluster: whose.
        end: a full hour, itself not in it.
        list_prices: USD per node-hour by instance type, where known.
        spot_prices: what nodes cost on spot in these hours, by instance type, where known.
        memory: the most bytes that pods used on UTC days, where known.
        waits: who waited for GPUs on UTC days, where known.
        length: how far back.
        most: workloads that are kept.

    Raises:
        SourceError: the ledger could not be read.
    """
    start = end - length
    look_back = LookBack(cluster, start, length // HOUR)
    look_back.memory_peaks.update(memory)
    look_back.add_waits(waits)
    dropped = 0
    for manifest in ledger.manifests(cluster, start, end):
        if manifest.status != "incomplete":
            nodes, _ = ledger.nodes_of(manifest)
            look_back.add(manifest.hour, ledger.uses_of(manifest), nodes, manifest.currency)
            dropped += look_back.drop_oldest_workloads(max_workloads)
    if dropped:
        logger.warning("workloads that ended longest ago are left out", cluster=cluster, workloads=dropped)
    if look_back.currencies == {"USD"}:  # what AWS lists is in no other
        look_back.list_prices.update(list_prices)
        look_back.spot_prices.update(spot_prices)
    return look_back
