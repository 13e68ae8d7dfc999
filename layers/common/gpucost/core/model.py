"""The words of the system as records: what one cluster-hour says, in GPU-hours and USD (design §1).

All GPU-hours are of *physical* GPU. All amounts are `Decimal`, quantized to 1e-12. `None` means unknown, never zero.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import repeat
from operator import attrgetter
from typing import ClassVar, Literal, NamedTuple, Self

from gpucost.core.money import ZERO, is_amount

Status = Literal["complete", "provisional", "incomplete"]
UtilizationSource = Literal["pod", "shared", "node", "cluster", "none"]


class Amounts:
    """Base of records that are nothing but amounts, which add up field by field."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The fields in their published order."""
        return cls.__match_args__

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """The sum of many."""
        rows = [*map(attrgetter(*cls.names()), parts)]
        return cls(*map(sum, zip(*rows, strict=True), repeat(ZERO))) if rows else cls()

    def are_reasonable(self) -> bool:
        """Whether every amount is a number that a cluster-hour can have."""
        return all(map(is_amount, attrgetter(*self.names())(self)))


@dataclass(frozen=True, slots=True)
class Costs(Amounts):
    """What holders of GPUs cost: `allocated = effective + waste + unmeasured`, in USD and exact."""

    allocated_gpu_hours: Decimal = ZERO
    effective_gpu_hours: Decimal = ZERO
    allocated_usd: Decimal = ZERO
    effective_usd: Decimal = ZERO
    waste_usd: Decimal = ZERO
    unmeasured_usd: Decimal = ZERO
    unmeasured_gpu_hours: Decimal = ZERO
    unpriced_gpu_hours: Decimal = ZERO
    """Allocated on nodes whose price nobody knows: in no amount of money."""

    def figures(self) -> dict[str, Decimal | None]:
        """As published: money is None where nothing of what was allocated has a price."""
        return _figures(self, nobody_knows=ZERO < self.unpriced_gpu_hours == self.allocated_gpu_hours)


@dataclass(frozen=True, slots=True)
class Capacity(Amounts):
    """The rest of a fleet's identity (design §1): what was paid for and no pod's line carries.

    With `Costs`: `effective + waste + unmeasured + unallocated + stranded + unobserved + host + residual = node cost`.
    """

    capacity_gpu_hours: Decimal = ZERO
    unallocated_gpu_hours: Decimal = ZERO
    stranded_gpu_hours: Decimal = ZERO
    unobserved_gpu_hours: Decimal = ZERO
    node_cost_usd: Decimal = ZERO
    unallocated_usd: Decimal = ZERO
    stranded_usd: Decimal = ZERO
    unobserved_usd: Decimal = ZERO
    host_usd: Decimal = ZERO
    residual_usd: Decimal = ZERO
    unpriced_capacity_gpu_hours: Decimal = ZERO
    """Of nodes whose price nobody knows: in no amount of money."""

    def figures(self) -> dict[str, Decimal | None]:
        """As published: money is None where nothing of the capacity has a price."""
        unpriced = ZERO < self.unpriced_capacity_gpu_hours == self.capacity_gpu_hours
        return _figures(self, nobody_knows=unpriced and not self.node_cost_usd)


def _figures(amounts: Amounts, *, nobody_knows: bool) -> dict[str, Decimal | None]:
    names = amounts.names()
    found: dict[str, Decimal | None] = dict(zip(names, attrgetter(*names)(amounts), strict=True))
    if nobody_knows:
        found |= dict.fromkeys(name for name in names if name.endswith("_usd"))
    return found


@dataclass(frozen=True, slots=True)
class Totals:
    """A cluster-hour's (or a period's) figures. `capacity` is None where nothing tells it."""

    costs: Costs
    capacity: Capacity | None

    def are_reasonable(self) -> bool:
        """Whether every amount is a number that a cluster-hour can have."""
        return self.costs.are_reasonable() and (self.capacity is None or self.capacity.are_reasonable())


@dataclass(frozen=True, slots=True)
class Coverage:
    """Scrapes seen ÷ scrapes expected, 0 to 1; None where the source was not asked (no GPUs to measure)."""

    allocation: Decimal
    utilization: Decimal | None


class Line(NamedTuple):
    """One pod and one GPU resource in one hour: what it held, used and cost, and how each figure was found.

    A tuple: a fleet's hour has tens of thousands, which are made and kept by columns far faster.
    """

    business_unit: str
    namespace: str
    workload_kind: str
    workload: str
    pod: str
    uid: str
    node: str
    node_pool: str
    instance_type: str
    capacity_type: str
    zone: str
    gpu_model: str
    resource: str
    units: int
    gpu_share: Decimal
    """Physical GPUs per unit."""
    gpu_share_source: str
    """Which way the share was found: `product-label`, `mig-profile`, `sharing`, `capacity`, `settings`, `whole`,
    `neuron`; `mig-compute-slices` and `node-average` are estimates."""
    labels: dict[str, str]
    split_policy: str
    allocated_gpu_hours: Decimal
    effective_gpu_hours: Decimal | None
    utilization: Decimal | None
    """Mean observed utilization, 0 to 1."""
    utilization_source: UtilizationSource
    unmeasured_gpu_hours: Decimal
    gpu_hourly_usd: Decimal | None
    """What a physical GPU of the node costs for an hour; like all of the line's money None where nobody knows."""
    price_source: str
    """Which source the price came from; "" where there is none."""
    allocated_usd: Decimal | None
    effective_usd: Decimal | None
    waste_usd: Decimal | None
    unmeasured_usd: Decimal | None
    used_beyond_allocation_gpu_hours: Decimal = ZERO
    """Use of a shared device beyond the pod's part: a memo, in no sum."""
    shared_from: str = ""
    """The shared unit whose cost this is a part of; "" for a unit's own."""

    def costs(self) -> Costs:
        """The line's part of a sum.

        A use nobody observed adds nothing to effective (it is in unmeasured), and what nobody can price adds no money
        (its GPU-hours are in unpriced).
        """
        return Costs(
            allocated_gpu_hours=self.allocated_gpu_hours,
            effective_gpu_hours=self.effective_gpu_hours or ZERO,
            allocated_usd=self.allocated_usd or ZERO,
            effective_usd=self.effective_usd or ZERO,
            waste_usd=self.waste_usd or ZERO,
            unmeasured_usd=self.unmeasured_usd or ZERO,
            unmeasured_gpu_hours=self.unmeasured_gpu_hours,
            unpriced_gpu_hours=self.allocated_gpu_hours if self.allocated_usd is None else ZERO,
        )


@dataclass(frozen=True, slots=True)
class NodeHour:
    """One GPU node in one hour: what it cost, from which source, and what became of it."""

    node: str
    provider_id: str
    node_pool: str
    instance_type: str
    capacity_type: str
    zone: str
    gpu_model: str
    price_source: str
    """"" where nobody knows a price; `capacity` then holds GPU-hours and no money."""
    split_policy: str
    billed_usd: Decimal | None
    """What the bill says of this very instance, where its cost is a blend over instances of a kind."""
    allocated_usd: Decimal
    """What all the holders of its GPUs pay."""
    capacity: Capacity


@dataclass(frozen=True, slots=True)
class ClusterCharge:
    """Paid for and without a node: unused commitment or reserved capacity."""

    kind: str
    """`unused-savings-plan`, `unused-reservation`, `unused-capacity-reservation`, `unused-capacity-block`."""
    reference: str
    """The commitment's or reservation's id or ARN."""
    amount: Decimal
    currency: str = "USD"
    gpu_hours: Decimal | None = None
    """Of reserved capacity; None for a commitment of money alone."""


@dataclass(frozen=True, slots=True)
class HourRecord:
    """One cluster-hour as it is published.

    An incomplete hour has no totals and no lines, and says why in `notes`.
    """

    cluster: str
    hour: datetime
    status: Status
    coverage: Coverage | None
    totals: Totals | None
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    nodes: tuple[NodeHour, ...] = ()
    charges: tuple[ClusterCharge, ...] = ()
    currency: str = "USD"
    """Of all amounts, whatever the names of their fields say."""

    def by_namespace(self) -> dict[tuple[str, str], Costs]:
        """The lines' sums per (business unit, namespace), in order of name."""
        groups: dict[tuple[str, str], list[Costs]] = {}
        for line in self.lines:
            groups.setdefault((line.business_unit, line.namespace), []).append(line.costs())
        return {key: Costs.total(parts) for key, parts in sorted(groups.items())}

    def by_business_unit(self) -> dict[str, Costs]:
        """The lines' sums per business unit, in order of name."""
        groups: dict[str, list[Costs]] = {}
        for (unit, _), costs in self.by_namespace().items():
            groups.setdefault(unit, []).append(costs)
        return {unit: Costs.total(parts) for unit, parts in groups.items()}
