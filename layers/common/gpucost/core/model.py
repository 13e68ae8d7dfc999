"""The records of one cluster-hour: cost lines, nodes, charges and their sums, in GPU-hours and USD.

GPU-hours count *physical* GPUs. Amounts are `Decimal`, quantized to 1e-12. `None` means unknown, never zero.
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
    """Base class of records that consist of amounts only and are added field by field."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the field names in their published order."""
        return cls.__match_args__

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Add records field by field."""
        rows = [*map(attrgetter(*cls.names()), parts)]
        return cls(*map(sum, zip(*rows, strict=True), repeat(ZERO))) if rows else cls()

    def are_plausible(self) -> bool:
        """Whether every amount is within the bounds of a cluster-hour."""
        return all(map(is_amount, attrgetter(*self.names())(self)))


@dataclass(frozen=True, slots=True)
class Costs(Amounts):
    """The cost of allocated GPUs: `allocated = effective + waste + unmeasured`, exact."""

    allocated_gpu_hours: Decimal = ZERO
    effective_gpu_hours: Decimal = ZERO
    allocated_usd: Decimal = ZERO
    effective_usd: Decimal = ZERO
    waste_usd: Decimal = ZERO
    unmeasured_usd: Decimal = ZERO
    unmeasured_gpu_hours: Decimal = ZERO
    unpriced_gpu_hours: Decimal = ZERO
    """Allocated on nodes without a price: not part of any amount of money."""

    def figures(self) -> dict[str, Decimal | None]:
        """Return the fields as published: money is None where no allocated GPU-hour has a price."""
        return _figures(self, is_unpriced=ZERO < self.unpriced_gpu_hours == self.allocated_gpu_hours)


@dataclass(frozen=True, slots=True)
class Capacity(Amounts):
    """The cost of nodes that no pod's line carries.

    Together with `Costs` it adds up to the nodes' cost:
    `effective + waste + unmeasured + unallocated + stranded + unobserved + host + residual = node cost`.
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
    """Of nodes without a price: not part of any amount of money."""

    def figures(self) -> dict[str, Decimal | None]:
        """Return the fields as published: money is None where no capacity has a price."""
        unpriced = ZERO < self.unpriced_capacity_gpu_hours == self.capacity_gpu_hours
        return _figures(self, is_unpriced=unpriced and not self.node_cost_usd)


def _figures(amounts: Amounts, *, is_unpriced: bool) -> dict[str, Decimal | None]:
    names = amounts.names()
    figures: dict[str, Decimal | None] = dict(zip(names, attrgetter(*names)(amounts), strict=True))
    if is_unpriced:
        figures |= dict.fromkeys(name for name in names if name.endswith("_usd"))
    return figures


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of a cluster-hour or of a period; `capacity` is None where it is unknown."""

    costs: Costs
    capacity: Capacity | None

    def are_plausible(self) -> bool:
        """Whether every amount is within the bounds of a cluster-hour."""
        return self.costs.are_plausible() and (self.capacity is None or self.capacity.are_plausible())


@dataclass(frozen=True, slots=True)
class Coverage:
    """Scrapes seen ÷ scrapes expected, 0 to 1.

    `utilization` is None where there are no GPUs to measure.
    """

    allocation: Decimal
    utilization: Decimal | None


class Line(NamedTuple):
    """The cost of one pod's GPUs of one resource in one hour, with the sources of its figures.

    It is a tuple, because a fleet's hour has tens of thousands of lines, and tuples are far faster to build and store.
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
    """How the share was determined: `product-label`, `mig-profile`, `sharing`, `capacity`, `settings`, `whole`,
    `neuron`; `mig-compute-slices` and `node-average` are estimates."""
    labels: dict[str, str]
    split_policy: str
    allocated_gpu_hours: Decimal
    effective_gpu_hours: Decimal | None
    utilization: Decimal | None
    """The mean observed utilization, 0 to 1."""
    utilization_source: UtilizationSource
    unmeasured_gpu_hours: Decimal
    gpu_hourly_usd: Decimal | None
    """The price of one physical GPU of the node for an hour; like all money of the line None without a price."""
    price_source: str
    """The source of the price; "" without a price."""
    allocated_usd: Decimal | None
    effective_usd: Decimal | None
    waste_usd: Decimal | None
    unmeasured_usd: Decimal | None
    used_beyond_allocation_gpu_hours: Decimal = ZERO
    """Use of a shared device beyond the pod's part: for information, not part of any sum."""
    shared_from: str = ""
    """The shared business unit whose cost this line distributes; "" for a unit's direct cost."""

    def costs(self) -> Costs:
        """Return what the line adds to a sum.

        Unobserved use adds to unmeasured and not to effective. A line without a price adds its GPU-hours to unpriced
        and no money.
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
    """One GPU node in one hour: its cost, the price's source, and the parts of the cost that no pod's line carries."""

    node: str
    provider_id: str
    node_pool: str
    instance_type: str
    capacity_type: str
    zone: str
    gpu_model: str
    price_source: str
    """"" without a price; `capacity` then has GPU-hours and no money."""
    split_policy: str
    billed_usd: Decimal | None
    """The bill's amount for this instance, where `capacity` uses a blended cost of similar instances."""
    allocated_usd: Decimal
    """The sum of its lines."""
    capacity: Capacity


@dataclass(frozen=True, slots=True)
class ClusterCharge:
    """A charge without a node: an unused commitment or unused reserved capacity."""

    kind: str
    """`unused-savings-plan`, `unused-reservation`, `unused-capacity-reservation`, `unused-capacity-block`."""
    reference: str
    """The id or ARN of the commitment or reservation."""
    amount: Decimal
    currency: str = "USD"
    gpu_hours: Decimal | None = None
    """Of reserved capacity; None for a commitment that reserves no capacity."""


@dataclass(frozen=True, slots=True)
class HourRecord:
    """One cluster-hour as it is published.

    An incomplete hour has no totals and no lines; its `notes` say why.
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
    """The currency of all amounts, even of fields whose names end in `_usd`."""

    def by_namespace(self) -> dict[tuple[str, str], Costs]:
        """Sum the lines by (business unit, namespace), in order of name."""
        groups: dict[tuple[str, str], list[Costs]] = {}
        for line in self.lines:
            groups.setdefault((line.business_unit, line.namespace), []).append(line.costs())
        return {key: Costs.total(parts) for key, parts in sorted(groups.items())}

    def by_business_unit(self) -> dict[str, Costs]:
        """Sum the lines by business unit, in order of name."""
        groups: dict[str, list[Costs]] = {}
        for (unit, _), costs in self.by_namespace().items():
            groups.setdefault(unit, []).append(costs)
        return {unit: Costs.total(parts) for unit, parts in groups.items()}
