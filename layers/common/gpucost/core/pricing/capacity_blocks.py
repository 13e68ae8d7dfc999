"""Capacity Blocks: they are prepaid and cost nothing in the bill's hours, so their fee is spread over their hours.

    node-hour = fee ÷ (instances × hours of the block)

Instance-hours of a block that no node used become a charge of the cluster and count as unallocated.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from msgspec import Struct

from gpucost.core.amounts import to_fixed_point
from gpucost.core.hour_record import ClusterCharge
from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.pricing.prices import Price


class CapacityBlock(Struct, frozen=True):
    """One Capacity Block of one cluster."""

    reservation_id: str
    cluster: str
    instance_type: str
    instances: int
    fee: Decimal
    """The upfront fee for the whole block."""
    currency: str
    valid_from: datetime
    valid_to: datetime

    @property
    def interval(self) -> IntervalMs:
        """The block's time, in milliseconds since the epoch."""
        return IntervalMs(to_epoch_ms(self.valid_from), to_epoch_ms(self.valid_to))

    @property
    def node_hourly(self) -> Fraction:
        """The cost of one instance for an hour."""
        return Fraction(self.fee) * HOUR_MS / (self.instances * self.interval.length)

    def price(self) -> Price:
        """Return the price of nodes that have the label of the block's reservation."""
        return Price(
            source="capacity-block",
            unit="node-hour",
            amount=self.node_hourly,
            applies_to={"reservation_id": self.reservation_id, "cluster": self.cluster},
            currency=self.currency,
            valid_from=self.valid_from,
            valid_to=self.valid_to,
        )


BLOCK_TOLERANCE_MS = 600_000
"""How much longer than its block a node may be observed: a scrape or two, and the time that termination takes."""


def clip_to_blocks(blocks: Iterable[CapacityBlock], cluster: str, reservation_id: str, time: IntervalMs) -> IntervalMs:
    """Clip a node's time to its Capacity Blocks, if it exceeds them by no more than the tolerance."""
    intervals = [
        block.interval for block in blocks if (block.cluster, block.reservation_id) == (cluster, reservation_id)
    ]
    if not intervals:
        return time
    paid = IntervalMs(
        min(interval.start for interval in intervals), max(interval.end for interval in intervals)
    ).overlap(time)
    return paid if paid.length and time.length - paid.length <= BLOCK_TOLERANCE_MS else time


def unused_block_charges(
    blocks: Iterable[CapacityBlock], cluster: str, hour: IntervalMs, nodes: Sequence[tuple[str, IntervalMs]]
) -> list[ClusterCharge]:
    """Return a cluster's charges for the unused instance-hours of its blocks in an hour.

    Args:
        blocks: of all clusters.
        cluster: the cluster's name.
        hour: in milliseconds since the epoch.
        nodes: reservation id and time in the hour of each node whose price comes from a block or an override.
    """
    charges = []
    for block in blocks:
        time = block.interval.overlap(hour)
        if block.cluster != cluster or not time.length:
            continue
        used_ms = sum(
            present.overlap(time).length for reservation, present in nodes if reservation == block.reservation_id
        )
        unused_ms = max(0, block.instances * time.length - used_ms)
        if not unused_ms:
            continue
        gpus = GPUS_OF_INSTANCE.get(block.instance_type) or NEURON_OF_INSTANCE.get(block.instance_type, (0, 0))[0]
        charges.append(
            ClusterCharge(
                kind="unused-capacity-block",
                reference=block.reservation_id,
                amount=to_fixed_point(block.node_hourly * unused_ms / HOUR_MS),
                currency=block.currency,
                gpu_hours=to_fixed_point(Fraction(gpus * unused_ms, HOUR_MS)) if gpus else None,
            )
        )
    return charges
