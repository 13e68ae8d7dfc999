"""Unallocated capacity by node pool: GPUs that are paid for and that nobody holds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gpucost.core.model import NodeHour
from gpucost.core.money import ZERO
from gpucost.features.alerting.formatting import for_hours, threshold_money


@dataclass(frozen=True, slots=True)
class NodePoolHour:
    """One node pool in one hour."""

    unallocated_usd: Decimal = ZERO
    unallocated_gpu_hours: Decimal = ZERO
    unpriced_gpu_hours: Decimal = ZERO
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class UnallocatedThreshold:
    """At least so much money an hour."""

    usd_per_hour: Decimal

    def breached_by(self, pool: NodePoolHour) -> bool | None:
        """Whether a pool's hour reaches it. Below it, and with nodes that have no price, nobody knows."""
        if pool.unallocated_usd >= self.usd_per_hour:
            return True
        return None if pool.unpriced_gpu_hours else False

    def describe(self, hours: int, currency: str) -> str:
        """The rule as people read it."""
        return f"unallocated ≥ {threshold_money(self.usd_per_hour, currency)} per hour, {for_hours(hours)}"


def by_node_pool(nodes: Iterable[NodeHour]) -> Mapping[str, NodePoolHour]:
    """Nodes summed by pool; those of none stand under ""."""
    pools: dict[str, NodePoolHour] = {}
    for node in nodes:
        before, own = pools.get(node.node_pool, NodePoolHour()), node.capacity
        pools[node.node_pool] = NodePoolHour(
            before.unallocated_usd + own.unallocated_usd,
            before.unallocated_gpu_hours + own.unallocated_gpu_hours,
            before.unpriced_gpu_hours + own.unpriced_capacity_gpu_hours,
            before.nodes + 1,
        )
    return pools


def figures(pool: NodePoolHour) -> dict[str, Decimal | None]:
    """What a notification says of an hour."""
    return {
        "unallocated_usd_per_hour": pool.unallocated_usd,
        "unallocated_gpus": pool.unallocated_gpu_hours,
        "nodes": Decimal(pool.nodes),
    }
