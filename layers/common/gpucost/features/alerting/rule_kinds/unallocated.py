"""Unallocated capacity by node pool: GPUs that are paid for and that no pod holds."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from msgspec import Struct

from gpucost.core.amounts import CapacityCosts, to_decimal
from gpucost.core.hour_record import NodeHour
from gpucost.features.alerting.formatting import format_for_hours, format_threshold


class UnallocatedThreshold(Struct, frozen=True):
    """At least this amount per hour."""

    usd_per_hour: Decimal

    def breached_by(self, capacity: CapacityCosts) -> bool | None:
        """Whether a pool's hour reaches the threshold; None if it does not, but some nodes have no price."""
        if to_decimal(capacity.unallocated_usd) >= self.usd_per_hour:
            return True
        return None if capacity.unpriced_capacity_gpu_hours else False

    def describe(self, hours: int, currency: str) -> str:
        """Describe the condition in plain text."""
        return f"unallocated ≥ {format_threshold(self.usd_per_hour, currency)} per hour, {format_for_hours(hours)}"


def capacity_by_node_pool(nodes: Iterable[NodeHour]) -> dict[str, list[CapacityCosts]]:
    """Group the nodes' capacity by pool; the key of nodes without a pool is empty."""
    pools: dict[str, list[CapacityCosts]] = {}
    for node in nodes:
        pools.setdefault(node.node_pool, []).append(node.capacity)
    return pools


def notification_figures(capacity: CapacityCosts, nodes: Sequence[CapacityCosts]) -> dict[str, Decimal | None]:
    """Return the figures of a notification on a pool, from its capacity and that of its nodes."""
    return {
        "unallocated_usd_per_hour": to_decimal(capacity.unallocated_usd),
        "unallocated_gpus": to_decimal(capacity.unallocated_gpu_hours),
        "nodes": Decimal(len(nodes)),
    }
