"""The bill: what AWS charged for each instance in an hour, and for commitments that no instance used."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.amounts import split, to_decimal, to_fixed_point
from gpucost.core.hour_record import ClusterCharge
from gpucost.core.hours import HOUR, HOUR_MS, floor_hour, hours_between
from gpucost.core.metering.instance_types import devices_of_instance

# Billed hours and commitments.
#
# A bill's line is an *amount*: the cost of the instance-hour, regardless of how long the node was in Kubernetes. Billed
# time outside Kubernetes counts as stranded.


class BilledHour(Struct, frozen=True):
    """One instance in one hour of the bill, with fixed-point amounts."""

    amount: int
    """The net amortized cost of the instance-hour, blended if the settings say so."""
    currency: str
    billed_ms: int
    """The part of the hour that AWS charged for."""
    is_final: bool
    """Whether the month's bill is closed; until then amounts may change."""
    unblended_amount: int | None = None
    """The instance's amount in the bill, if `amount` is blended."""
    is_block_fee: bool = False
    """Whether it is the fee of an instance of a Capacity Block, whose price was paid in advance."""


def sagemaker_rate_id(instance_type: str, region: str) -> str:
    """Return the key of the mean cost of an instance-hour of SageMaker HyperPod, whose lines may name no instance."""
    return f"{instance_type} {region}"


class Bill(Struct, frozen=True):
    """One hour of the bill."""

    instances: Mapping[str, BilledHour] = field(default_factory=dict)
    """By instance id; and by `sagemaker_rate_id` the mean cost of an instance-hour."""
    charges: Mapping[str, Sequence[ClusterCharge]] = field(default_factory=dict)
    """By cluster."""
    is_final: bool = False
    """Whether the month's bill is closed, so that no instances are added to it."""

    def billed_hour_of(self, instance_id: str) -> BilledHour | None:
        """Return the bill of one instance; None if it is not in the bill (yet)."""
        return self.instances.get(instance_id) if instance_id else None

    def sagemaker_rate_of(self, instance_type: str, region: str) -> BilledHour | None:
        """Return the mean cost of an instance-hour of one type of SageMaker HyperPod; None if the bill has none."""
        rate = self.instances.get(sagemaker_rate_id(instance_type, region))
        return rate if rate is not None and rate.billed_ms else None

    def charges_to(self, cluster: str) -> Sequence[ClusterCharge]:
        """Return the charges of a cluster other than for its nodes."""
        return self.charges.get(cluster, ())


# From the bill's lines to the cost of each instance and each unused commitment in an hour.
#
# AWS applies Savings Plans and regional reservations to arbitrary instances, so two identical pods may pay differently
# by chance. Blending avoids that: the instances of a pool pay the same rate,
#
#     amount = Σ amounts of the pool × billed time of the instance ÷ Σ billed time of the pool
#
# rounded so that the parts sum to the pool's amounts to the last digit.

Blend = Literal["none", "instance_type", "node_pool"]
"""Which instances pay the same rate. `none`: each instance pays its own. `instance_type`: those of one type, account,
region and capacity type. `node_pool`: of these, those of one node pool."""
ChargeKind = Literal["savings-plan", "reservation", "capacity-reservation"]
LineKind = Literal["instance", "unused-savings-plan", "unused-reservation", "unused-capacity-reservation"]


SAGEMAKER = "sagemaker"


class BillLine(Struct, frozen=True):
    """One row that an Athena query of the bill returns."""

    kind: LineKind
    start: datetime
    end: datetime
    """`[start, end)`: an hour, or the month for a reservation's fee."""
    account: str
    region: str
    resource_id: str
    """The instance id, or the ARN of the unused commitment or reservation; `sagemaker` for a node of SageMaker HyperPod
    whose line does not name the instance."""
    instance_type: str
    capacity_type: str
    """`spot`, `capacity-block`, `reserved` (launched into a capacity reservation) or `on-demand`. Savings Plans and
    Reserved Instances are discounts on the last two, not types."""
    operation: str
    """AWS's code of the operating system and its licenses (`RunInstances:0002`); "" for spot."""
    instance_hours: Fraction | None
    """Instance-hours billed, or reserved and unused; None for a spend commitment."""
    amount: Decimal
    currency: str
    is_final: bool
    """Whether the row's bill is closed."""
    reservation_id: str = ""
    """The capacity reservation in which the instance ran, if the export has it."""


class BillSharing(Struct, frozen=True):
    """How the bill's amounts are shared.

    Args:
        blend: which instances pay the same rate.
        node_pools: node pool by instance id, for `blend: node_pool`; other instances form one pool.
        unused_charged_to: the cluster that pays for unused commitments; "" to leave them out.
        unused_kinds: the kinds of unused commitments that are charged.
        capacity_blocks: reservation ids of Capacity Blocks, whose instances have only fees in the bill.
    """

    blend: Blend = "instance_type"
    node_pools: Mapping[str, str] | None = None
    unused_charged_to: str = ""
    unused_kinds: Sequence[ChargeKind] = ("savings-plan", "reservation", "capacity-reservation")
    capacity_blocks: Set[str] = frozenset()

    def is_block_fee(self, line: BillLine) -> bool:
        """Whether a line is the fee of an instance whose Capacity Block was paid in advance."""
        return line.capacity_type == "capacity-block" or line.reservation_id in self.capacity_blocks


def split_by_hour(line: BillLine) -> list[tuple[datetime, BillLine]]:
    """Split a row into its hours, each with its part of the amount; the parts sum to the amount.

    The unused part of a reservation's monthly fee is known after the month's end. Until the bill is closed, the row
    has what is unused *so far*, all of it on the first of the month. So it counts only once the bill is closed.
    """
    hours = hours_between(floor_hour(line.start), line.end)
    if len(hours) <= 1:
        return [(floor_hour(line.start), line)]
    if not line.is_final:
        return []
    parts = split(to_fixed_point(line.amount), [1] * len(hours))
    hours_per_row = None if line.instance_hours is None else line.instance_hours / len(hours)
    return [
        (hour, replace(line, start=hour, end=hour + HOUR, amount=to_decimal(part), instance_hours=hours_per_row))
        for hour, part in zip(hours, parts, strict=True)
    ]


def build_bill(lines: Iterable[BillLine], sharing: BillSharing) -> Bill:
    """Build one hour's bill.

    Args:
        lines: of this hour, as returned by `split_by_hour`.
        sharing: how amounts are blended, and which cluster pays for unused commitments.

    Returns:
        The bill, without `instances_with_mixed_currencies`.
    """
    lines = list(lines)
    mixed = set(instances_with_mixed_currencies(lines))
    billed = [line for line in lines if line.kind == "instance" and line.resource_id not in mixed]
    unused = [
        line for line in lines if line.kind != "instance" and line.kind.removeprefix("unused-") in sharing.unused_kinds
    ]
    return Bill(
        instances=_billed_hours(billed, sharing),
        charges={sharing.unused_charged_to: _unused_charges(unused)} if sharing.unused_charged_to and unused else {},
        is_final=bool(lines) and all(line.is_final for line in lines),
    )


def instances_with_mixed_currencies(lines: Iterable[BillLine]) -> list[str]:
    """Return the instances with several currencies in one hour's bill; their amounts cannot be added."""
    currencies: dict[str, set[str]] = {}
    for line in lines:
        if line.kind == "instance":
            currencies.setdefault(line.resource_id, set()).add(line.currency)
    return sorted(
        instance_id for instance_id, instance_currencies in currencies.items() if len(instance_currencies) > 1
    )


def _billed_hours(lines: Sequence[BillLine], sharing: BillSharing) -> dict[str, BilledHour]:
    lines_by_instance: dict[str, list[BillLine]] = {}
    for line in lines:
        is_rate = line.resource_id == SAGEMAKER
        key = sagemaker_rate_id(line.instance_type, line.region) if is_rate else line.resource_id
        lines_by_instance.setdefault(key, []).append(line)
    hours: dict[str, BilledHour] = {}
    pools: dict[tuple[str, ...], list[str]] = {}
    for instance_id, rows in sorted(lines_by_instance.items()):
        longest = max(
            rows, key=lambda row: (row.instance_hours or 0, row.instance_type, row.capacity_type, row.operation)
        )
        amount = to_fixed_point(sum((row.amount for row in rows), Decimal(0)))
        if longest.resource_id == SAGEMAKER:
            hours[instance_id] = _rate_of_type(rows, amount)
            continue
        # A spot instance that AWS interrupts in its first hour is free, and must not lower other prices.
        is_interrupted = longest.capacity_type == "spot" and not amount
        is_block_fee = sharing.is_block_fee(longest)
        hours[instance_id] = BilledHour(
            amount=amount,
            currency=longest.currency,
            billed_ms=round(HOUR_MS * sum((row.instance_hours or 0 for row in rows), Fraction(0))),
            is_final=is_interrupted or all(row.is_final for row in rows),
            is_block_fee=is_block_fee,
        )
        is_alone = sharing.blend == "none" or is_interrupted or is_block_fee
        pool = (instance_id,) if is_alone else _blending_pool(longest, sharing)
        pools.setdefault(pool, []).append(instance_id)
    for instance_ids in pools.values():
        hours.update(zip(instance_ids, _blend([hours[instance_id] for instance_id in instance_ids]), strict=True))
    return hours


def _rate_of_type(rows: Sequence[BillLine], amount: int) -> BilledHour:
    """Return what an hour of an instance cost, as the mean over those whose lines do not name them."""
    hours = sum((row.instance_hours or 0 for row in rows), Fraction(0))
    return BilledHour(
        amount=round(amount / hours) if hours else 0,
        currency=rows[0].currency,
        billed_ms=HOUR_MS if hours else 0,
        is_final=all(row.is_final for row in rows),
    )


def _blending_pool(line: BillLine, sharing: BillSharing) -> tuple[str, ...]:
    pool = (line.account, line.region, line.instance_type, line.capacity_type, line.operation, line.currency)
    return (*pool, (sharing.node_pools or {}).get(line.resource_id, "")) if sharing.blend == "node_pool" else pool


def _blend(pool: Sequence[BilledHour]) -> list[BilledHour]:
    """Split the amount of a pool's instances by their billed time; unchanged if none of them has any."""
    if not any(hour.billed_ms for hour in pool):
        return [*pool]
    parts = split(sum(hour.amount for hour in pool), [hour.billed_ms for hour in pool])
    return [
        replace(hour, amount=part, unblended_amount=None if part == hour.amount else hour.amount)
        for hour, part in zip(pool, parts, strict=True)
    ]


def _unused_charges(lines: Sequence[BillLine]) -> list[ClusterCharge]:
    of_reference: dict[tuple[str, str, str], list[BillLine]] = {}
    for line in lines:
        of_reference.setdefault((line.kind, line.resource_id, line.currency), []).append(line)
    # Reserved Instances are a discount and reserve no capacity, so like Savings Plans they have no GPU-hours.
    return [
        ClusterCharge(
            kind=kind,
            reference=reference,
            amount=to_fixed_point(sum((row.amount for row in rows), Decimal(0))),
            currency=currency,
            gpu_hours=_gpu_hours(rows) if kind == "unused-capacity-reservation" else None,
        )
        for (kind, reference, currency), rows in sorted(of_reference.items())
    ]


def _gpu_hours(rows: Sequence[BillLine]) -> int | None:
    """Return the GPU-hours of reserved capacity; None if an instance type is not in the catalog."""
    gpu_hours = Fraction(0)
    for row in rows:
        gpus = devices_of_instance(row.instance_type)
        if not gpus:
            return None
        gpu_hours += gpus * (row.instance_hours or 0)
    return to_fixed_point(gpu_hours)


class BillExtract(Struct, frozen=True):
    """The bill's lines of some time."""

    lines: Iterator[BillLine]
    """In order of `start`; iterating may raise `SourceError`."""
    bytes_scanned: int
    """The bytes for which Athena charges."""
