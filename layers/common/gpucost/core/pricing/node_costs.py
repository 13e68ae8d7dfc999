"""Node prices: what a node-hour costs and which part its GPUs bear, from the price book, the bill and the settings."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.amounts import SCALE, to_decimal, to_fixed_point
from gpucost.core.hour_record import ClusterCharge
from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.metering.instance_types import SAGEMAKER_PREFIX, devices_of_instance
from gpucost.core.pricing.bill import Bill, BilledHour
from gpucost.core.pricing.list_prices import list_price_label
from gpucost.core.pricing.prices import (
    LIST_PRICE_SOURCES,
    SPLIT_POLICIES,
    InstanceShape,
    Price,
    PriceBook,
    PriceSource,
    QuotedPiece,
    SplitPolicy,
    attributes_of_node,
)

# Capacity Blocks: they are prepaid and cost nothing in the bill's hours, so their fee is spread over their hours.
#
#     node-hour = fee ÷ (instances × hours of the block)
#
# Instance-hours of a block that no node used become a charge of the cluster and count as unallocated.


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
        gpus = devices_of_instance(block.instance_type)
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


# The cost of a node-hour, from the first price source that covers all of it.


class NodeCost(Struct, frozen=True):
    """The cost of a node's hour, exact and not rounded."""

    source: PriceSource
    split_policy: str
    gpus_cost: Fraction
    """The part that the GPUs bear."""
    host_cost: Fraction
    """The part that CPU and memory bear."""
    is_final: bool = True
    """Whether no preferred source will replace it."""
    is_per_gpu: bool = False
    """Whether it consists of prices per GPU-hour only."""
    billed_ms: int | None = None
    """The time of the hour that the bill has for the instance; None if a rate was applied to the observed time."""
    unblended_amount: int | None = None
    """The bill's amount for this instance, if its cost is blended."""
    note: str = ""
    """A note for the hour about the price."""

    @property
    def cost(self) -> Fraction:
        """The cost of the whole node."""
        return self.gpus_cost + self.host_cost


class Unpriced(Struct, frozen=True):
    """A node has no price, and why."""

    reason: str
    change: str = ""
    """What to do about it."""

    @property
    def note(self) -> str:
        """The reason and the change, for the hour's notes."""
        return f"{self.reason}. {self.change}" if self.change else self.reason


class Pricing(Struct, frozen=True):
    """The prices of one cluster-hour.

    Args:
        sources: the price sources, in order of preference.
        currency: the currency of all sums; prices in other currencies are ignored.
        bill: the hour's billed amounts; None if the bill is not among the sources.
    """

    book: PriceBook
    sources: Sequence[PriceSource]
    split_policy: SplitPolicy = SPLIT_POLICIES["gpu-bears-all"]
    instance_shapes: Mapping[str, InstanceShape] = field(default_factory=dict)
    currency: str = "USD"
    bill: Bill | None = None
    capacity_blocks: Sequence[CapacityBlock] = ()
    """Capacity Blocks, whose instance-hours are paid for even if they are unused."""
    awaits_spot_prices: bool = False
    """Whether an on-demand price of a spot node is provisional: it stands in for a spot price that is missing."""

    @classmethod
    def constant(cls, gpu_hourly: Decimal) -> "Pricing":
        """Return a pricing with one price for every GPU-hour."""
        return cls(PriceBook([Price("constant", "gpu-hour", gpu_hourly)]), ("constant",))

    def node_cost(self, node: GpuNode, cluster: str, time: IntervalMs, gpus: Fraction) -> NodeCost | Unpriced:
        """Return the cost of a node in an hour.

        Args:
            node: with its labels.
            cluster: the cluster's name.
            time: the time in the hour in which the node existed.
            gpus: the number of its physical GPUs.
        """
        # What the bill has for the instance. It has only an operating system fee of instances in a Capacity Block.
        facts = attributes_of_node(node, cluster)
        other_currencies: list[str] = []
        billed = self.bill.billed_hour_of(facts["instance_id"]) if self.bill else None
        is_in_block = self._is_in_block(facts, time)
        fee = billed if billed and (billed.is_block_fee or is_in_block) else None

        # The first source with a price in the hour's currency counts.
        for source in self.sources:
            if source == "cur":
                rate = self._sagemaker_rate(facts) if billed is None else None
                of_bill = billed or rate
                if of_bill is None or fee is not None:
                    continue
                if of_bill.currency != self.currency:
                    other_currencies.append(f"{source} has a price in {of_bill.currency}")
                    continue
                return self._cost_from_rate(node, rate, time) if rate else self._cost_from_bill(node, of_bill)
            paid = time
            if source == "capacity-block":
                paid = clip_to_blocks(self.capacity_blocks, cluster, facts["reservation_id"], time)
            quote = self.book.quote(source, facts, paid)
            if quote is None:
                continue
            if quote[0].currency != self.currency:
                other_currencies.append(f"{source} has a price in {quote[0].currency}")
                continue

            # The price, with notes on the sources that it stands in for, and on a fee that is in no sum.
            price = self._cost_from_quote(node, source, quote, gpus, fee)
            if isinstance(price, Unpriced):
                return price
            notes = (
                self._skipped_sources_note(node, other_currencies, source),
                _list_price_note(facts, source),
                self._missing_spot_price_note(facts, source),
                self._left_out_fee_note(node, fee, source, is_in_block=is_in_block),
            )
            return replace(price, note="; ".join(filter(None, notes))) if any(notes) else price
        return self._no_price(node, facts, other_currencies, has_fee_outside_block=bool(fee) and not is_in_block)

    def _no_price(
        self, node: GpuNode, facts: Mapping[str, str], other_currencies: Sequence[str], *, has_fee_outside_block: bool
    ) -> Unpriced:
        """Say why no source has a price of a node, and what to do about it."""
        sources = ", ".join(self.sources)
        hint = f"; {' and '.join(other_currencies)}, but the hour is in {self.currency}" if other_currencies else ""
        changes = []
        if has_fee_outside_block:
            hint += "; the bill has only a fee of its Capacity Block"
            changes.append("Add the block to pricing.capacity_blocks")
        if facts["instance_type"].startswith(SAGEMAKER_PREFIX):
            hint += "; EC2's price does not apply to SageMaker HyperPod"
            changes.append(
                "Use AWS credentials with pricing:GetProducts (in a stack: set the parameter OnDemandPrices), read the "
                f"bill, or add a price of {facts['instance_type']} in pricing.rates"
            )
        elif "list-price" in self.sources:
            hint += f"; the built-in list prices do not have this type in {facts['region'] or 'an unknown region'}"
            changes.append(
                "Use AWS credentials (in a stack: set the parameter OnDemandPrices), or add a price in pricing.rates"
            )
        return Unpriced(f"no price for {_node_label(node)} from {sources}{hint}", ". ".join(changes))

    def _is_in_block(self, facts: Mapping[str, str], time: IntervalMs) -> bool:
        """Whether a node's label names a Capacity Block of the settings. The bill's export may lack reservations."""
        return any(
            (block.cluster, block.reservation_id) == (facts["cluster"], facts["reservation_id"])
            and block.interval.overlap(time).length
            for block in self.capacity_blocks
        )

    def cluster_charges(
        self, cluster: str, hour: IntervalMs, nodes: Sequence[tuple[GpuNode, IntervalMs]]
    ) -> list[ClusterCharge]:
        """Return a cluster's charges in an hour other than for its nodes: unused commitments.

        Args:
            cluster: the cluster's name.
            hour: in milliseconds since the epoch.
            nodes: those whose price comes from a Capacity Block or an override.
        """
        used = [(attributes_of_node(node, cluster)["reservation_id"], time) for node, time in nodes]
        return [
            *unused_block_charges(self.capacity_blocks, cluster, hour, used),
            *(self.bill.charges_to(cluster) if self.bill else ()),
        ]

    def _skipped_sources_note(self, node: GpuNode, other_currencies: Sequence[str], source: str) -> str:
        if not other_currencies:
            return ""
        reasons = " and ".join(other_currencies)
        return f"{_node_label(node)} is priced by {source}, because {reasons}, but the hour is in {self.currency}"

    def _left_out_fee_note(
        self, node: GpuNode, fee: BilledHour | None, source: PriceSource, *, is_in_block: bool
    ) -> str:
        if fee is None or self._includes_fee(source, fee):
            return ""
        reason = f"{source} prices the node. Add its Capacity Block to pricing.capacity_blocks"
        if is_in_block:
            if source != "capacity-block":
                return ""  # a price set by hand stands for the whole node
            reason = f"the hour is in {self.currency}"
        amount = f"{to_decimal(fee.amount):.2f} {fee.currency}"
        return f"the bill's operating system fee of {_node_label(node)}, {amount}, is not in any sum: {reason}"

    def _includes_fee(self, source: PriceSource, fee: BilledHour) -> bool:
        return source == "capacity-block" and fee.currency == self.currency

    def _missing_spot_price_note(self, facts: Mapping[str, str], source: PriceSource) -> str:
        if not self._stands_in_for_spot_price(facts["capacity_type"], source):
            return ""
        return f"spot nodes of {facts['instance_type']} have no spot price and are provisionally priced by {source}"

    def _stands_in_for_spot_price(self, capacity_type: str, source: PriceSource) -> bool:
        return self.awaits_spot_prices and capacity_type == "spot" and source in LIST_PRICE_SOURCES

    def _cost_from_bill(self, node: GpuNode, billed: BilledHour) -> NodeCost | Unpriced:
        price = self._split_cost(node, "cur", Fraction(billed.amount, SCALE))
        if isinstance(price, Unpriced):
            return price
        return replace(
            price, is_final=billed.is_final, billed_ms=billed.billed_ms, unblended_amount=billed.unblended_amount
        )

    def _sagemaker_rate(self, facts: Mapping[str, str]) -> BilledHour | None:
        if self.bill is None or not facts["instance_type"].startswith(SAGEMAKER_PREFIX):
            return None
        return self.bill.sagemaker_rate_of(facts["instance_type"], facts["region"])

    def _cost_from_rate(self, node: GpuNode, rate: BilledHour, time: IntervalMs) -> NodeCost | Unpriced:
        price = self._split_cost(node, "cur", Fraction(rate.amount, SCALE) * time.length / HOUR_MS)
        return price if isinstance(price, Unpriced) else replace(price, is_final=rate.is_final)

    def _cost_from_quote(
        self, node: GpuNode, source: PriceSource, quote: Sequence[QuotedPiece], gpus: Fraction, fee: BilledHour | None
    ) -> NodeCost | Unpriced:
        prices = [(piece.hourly_price * piece.time.length, piece.is_per_gpu) for piece in quote]
        of_gpus = sum((price * gpus for price, per_gpu in prices if per_gpu), Fraction(0))
        of_node = sum((price for price, per_gpu in prices if not per_gpu), Fraction(0))
        fee = fee if fee and self._includes_fee(source, fee) else None
        if fee:
            of_node += Fraction(fee.amount * HOUR_MS, SCALE)
        split = self._split_cost(node, source, of_node / HOUR_MS) if of_node else None
        if isinstance(split, Unpriced):
            return split
        is_closed = self.bill is not None and self.bill.is_final
        waits = "cur" in self.sources and self.sources.index("cur") < self.sources.index(source) and not is_closed
        return NodeCost(
            source=source,
            # A price per GPU-hour leaves nothing to split.
            split_policy=split.split_policy if split else self.split_policy.name if not of_gpus else "gpu-bears-all",
            gpus_cost=of_gpus / HOUR_MS + (split.gpus_cost if split else 0),
            host_cost=split.host_cost if split else Fraction(0),
            is_final=not waits
            and not self._stands_in_for_spot_price(node.capacity_type, source)
            and (fee is None or fee.is_final),
            is_per_gpu=split is None,
        )

    def _split_cost(self, node: GpuNode, source: PriceSource, cost: Fraction) -> NodeCost | Unpriced:
        part = self.split_policy.gpu_part_of(self.instance_shapes.get(node.instance_type))
        if part is None:
            return Unpriced(
                f"no shape for {_node_label(node)}: split policy {self.split_policy.name} needs its vCPUs and memory; "
                "they are built in for EC2's accelerated types, and the stack parameter InstanceShapes fetches others"
            )
        return NodeCost(source, self.split_policy.name, cost * part, cost * (1 - part))


def _node_label(node: GpuNode) -> str:
    return f"node {node.name} ({node.instance_type or 'of unknown type'})"


def _list_price_note(facts: Mapping[str, str], source: PriceSource) -> str:
    if source != "list-price":
        return ""
    return f"{facts['instance_type']} is priced at the {list_price_label(facts['region'])}"
