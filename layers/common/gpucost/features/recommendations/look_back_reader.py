"""Reads the look-back from the ledger, one hour at a time."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from gpucost.core.hours import HOUR
from gpucost.features.recommendations.history import LookBack, PodLatency, PodWait
from gpucost.features.recommendations.node_prices import SpotPrice
from gpucost.features.recommendations.price_lists import built_in_list_prices
from gpucost.runtime.observability import logger
from gpucost.storage.ledger import Ledger

LOOK_BACK = timedelta(days=30)
MAX_WORKLOADS = 20_000
"""Per cluster; each needs 43 KB for 30 days. Beyond it, those that ended longest ago are dropped."""


def read_look_back(
    ledger: Ledger,
    cluster: str,
    end: datetime,
    *,
    list_prices: Mapping[str, float],
    spot_prices: Mapping[str, SpotPrice],
    memory: Mapping[datetime, Mapping[tuple[str, str], float]],
    waits: Mapping[datetime, Sequence[PodWait]],
    latencies: Mapping[datetime, Sequence[PodLatency]] | None = None,
    length: timedelta = LOOK_BACK,
    max_workloads: int = MAX_WORKLOADS,
) -> LookBack:
    """Read the hours before `end` from the ledger.

    Args:
        ledger: reads the hours.
        cluster: the cluster's name.
        end: a full hour, exclusive.
        list_prices: USD per node-hour by instance type, as far as they are known.
        spot_prices: spot prices of these hours by instance type, as far as they are known.
        memory: GPU memory peaks in bytes by UTC day and pod, as far as they are known.
        waits: pods that waited for GPUs by UTC day, as far as they are known.
        latencies: latency of inference servers' requests by UTC day, as far as it is known.
        length: length of the look-back.
        max_workloads: number of workloads that are kept.

    Raises:
        SourceError: the ledger could not be read.
    """
    start = end - length
    look_back = LookBack(cluster, start, length // HOUR)
    look_back.memory_peaks.update(memory)
    look_back.add_waits(waits)
    look_back.add_latencies(latencies or {})
    dropped = 0
    for manifest in ledger.manifests(cluster, start, end):
        if manifest.status != "incomplete":
            nodes, _ = ledger.nodes_and_charges_of(manifest)
            look_back.add_hour(manifest.hour, ledger.compact_lines_of(manifest), nodes, manifest.currency)
            dropped += look_back.drop_oldest_workloads(max_workloads)
    if dropped:
        logger.warning("dropped the workloads that ended longest ago", cluster=cluster, workloads=dropped)
    if look_back.currencies == {"USD"}:  # AWS lists no other currency
        look_back.list_prices.update(built_in_list_prices(look_back) | {**list_prices})
        look_back.spot_prices.update(spot_prices)
    return look_back
