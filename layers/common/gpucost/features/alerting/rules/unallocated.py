"""Unallocated capacity by node pool: GPUs that are paid for and that no pod holds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gpucost.core.amounts import to_decimal
from gpucost.core.model import NodeHour
from gpucost.features.alerting.formatting import for_hours, threshold_money


@dataclass(frozen=True, slots=True)
class NodePoolHour:
    """One node pool in one hour."""

    unallocated_usd: int = 0
    unallocated_gpu_hours: int = 0
    unpriced_gpu_hours: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class UnallocatedThreshold:
    """At least this amount per hour."""

    usd_per_hour: Decimal

    def breached_by(self, pool: NodePoolHour) -> bool | None:
        """Whether a pool's hour reaches the threshold; None if it does not, but some nodes have no price."""
        if to_decimal(pool.unallocated_usd) >= self.usd_per_hour:
            return True
        return None if pool.unpriced_gpu_hours else False

    def describe(self, hours: int, currency: str) -> str:
        """Describe the condition in plain text."""
        return f"unallocated ≥ {threshold_money(self.usd_per_hour, currency)} per hour, {for_hours(hours)}"


def by_node_pool(nodes: Iterable[NodeHour]) -> Mapping[str, NodePoolHour]:
    """Sum nodes by pool; the key of nodes without a pool is empty."""
    pools: dict[str, NodePoolHour] = {}
    for node in nodes:
        pool, capacity = pools.get(node.node_pool, NodePoolHour()), node.capacity
        pools[node.node_pool] = NodePoolHour(
            pool.unallocated_usd + capacity.unallocated_usd,
            pool.unallocated_gpu_hours + capacity.unallocated_gpu_hours,
            pool.unpriced_gpu_hours + capacity.unpriced_capacity_gpu_hours,
            pool.nodes + 1,
        )
    return pools


def figures(pool: NodePoolHour) -> dict[str, Decimal | None]:
    """Return the figures of a notification."""
    return {
        "unallocated_usd_per_hour": to_decimal(pool.unallocated_usd),
        "unallocated_gpus": to_decimal(pool.unallocated_gpu_hours),
        "nodes": Decimal(pool.nodes),
    }
