"""The records of one cluster-hour: cost lines, nodes, charges and their sums, in GPU-hours and USD.

GPU-hours count *physical* GPUs. Amounts are fixed-point integers of 1e-12 (`gpucost.core.amounts`); prices and ratios
are `Decimal`. `None` means unknown, never zero.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Annotated, Any, Literal, NamedTuple, get_args

from msgspec import Struct
from msgspec.structs import asdict

from gpucost.core.amounts import AmountField, CapacityCosts, Costs, Totals, described_fields, to_decimal
from gpucost.core.costs_by_key import CostsByKey, sum_by_key

Status = Literal["complete", "provisional", "incomplete"]
MeasuredSource = Literal["pod", "process", "shared"]
"""Where a pod's utilization comes from: its exclusive devices, or its part of devices that it shares."""
EstimatedSource = Literal["node", "cluster"]
"""Or the average of its node or cluster."""
UtilizationSource = Literal[MeasuredSource, EstimatedSource, "none"]
MEASURED_SOURCES: tuple[MeasuredSource, ...] = get_args(MeasuredSource)
ESTIMATED_SOURCES: tuple[EstimatedSource, ...] = get_args(EstimatedSource)
UTILIZATION_SOURCES: tuple[UtilizationSource, ...] = get_args(UtilizationSource)
"""All, the most precise first."""


class Coverage(Struct, frozen=True):
    """Scrapes seen ÷ scrapes expected, 0 to 1.

    `utilization` is None where there are no GPUs to measure.
    """

    allocation: Decimal
    utilization: Decimal | None


class Line(NamedTuple):
    """The cost of one pod's GPUs of one resource in one hour, with the sources of its figures.

    Amounts of GPU-hours and money are fixed-point integers (`gpucost.core.amounts`). It is a tuple, because a fleet's
    hour has tens of thousands of lines, and tuples are far faster to build and store.
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
    allocated_gpu_hours: int
    effective_gpu_hours: int | None
    utilization: Decimal | None
    """The mean observed utilization, 0 to 1."""
    utilization_source: UtilizationSource
    unmeasured_gpu_hours: int
    gpu_hourly_usd: Decimal | None
    """The price of one physical GPU of the node for an hour; like all money of the line None without a price."""
    price_source: str
    """The source of the price; "" without a price."""
    allocated_usd: int | None
    effective_usd: int | None
    waste_usd: int | None
    unmeasured_usd: int | None
    used_beyond_allocation_gpu_hours: Annotated[
        int,
        AmountField(
            "Use of a shared GPU beyond the allocated part. No sum includes it",
            needs="nothing",
            column="x_UsedBeyondAllocationGpuHours",
        ),
    ] = 0
    shared_from: str = ""
    """The shared business unit whose cost this line distributes; "" for a unit's direct cost."""
    resource_claim: str = ""
    """The ResourceClaim (DRA) in the namespace through which the pod holds the GPUs; "" for what it requests."""
    dra_driver: str = ""
    """The DRA driver of the claim's devices."""
    energy_kwh: int | None = None
    """What the line's GPUs drew while the pod held them, as far as it was measured; None where it was not."""
    energy_gpu_hours: int | None = None
    """The part of the allocated GPU-hours whose energy was measured."""
    co2e_kg: int | None = None
    """Location-based emissions of the energy; None without energy or emission factor."""
    instance_type_source: str = ""
    """What says the instance type if no label does: `karpenter`, `neuron-monitor`, `ec2`, or `hardware`: inferred."""

    def costs(self) -> Costs:
        """Return what the line adds to a sum.

        Unobserved use adds to unmeasured and not to effective. A line without a price adds its GPU-hours to unpriced
        and no money.
        """
        costs = Costs(
            allocated_gpu_hours=self.allocated_gpu_hours,
            effective_gpu_hours=self.effective_gpu_hours or 0,
            allocated_usd=self.allocated_usd or 0,
            effective_usd=self.effective_usd or 0,
            waste_usd=self.waste_usd or 0,
            unmeasured_usd=self.unmeasured_usd or 0,
            unmeasured_gpu_hours=self.unmeasured_gpu_hours,
            unpriced_gpu_hours=self.allocated_gpu_hours if self.allocated_usd is None else 0,
        )
        return costs if self.energy_kwh is None else costs + self._energy(self.energy_kwh)

    def _energy(self, kwh: int) -> Costs:
        is_unused = self.effective_gpu_hours == 0 and not self.unmeasured_gpu_hours
        return Costs(
            energy_kwh=kwh,
            energy_gpu_hours=self.energy_gpu_hours or 0,
            unused_energy_kwh=kwh if is_unused else 0,
            co2e_kg=self.co2e_kg or 0,
            energy_without_factor_kwh=kwh if self.co2e_kg is None else 0,
        )

    def figures(self) -> dict[str, Any]:
        """Return the fields as published, with amounts as decimals; some only if they are not blank."""
        amounts = {name: getattr(self, name) for name in LINE_AMOUNTS}
        fields = self._asdict()
        if not self.resource_claim:
            del fields["resource_claim"], fields["dra_driver"]
        if not self.instance_type_source:
            del fields["instance_type_source"]
        return fields | {name: None if amount is None else to_decimal(amount) for name, amount in amounts.items()}


_COST_FIELDS = {**Costs.fields(), **described_fields(Line.__annotations__)}
LINE_FIELDS: Mapping[str, AmountField] = {
    name: _COST_FIELDS[name]
    for name in sorted(Line._fields, key=lambda name: name.endswith("_usd"))
    if name in _COST_FIELDS
}
"""The fields of a line that are fixed-point amounts, money last; None is unknown."""
LINE_AMOUNTS = tuple(LINE_FIELDS)


class NodeHour(Struct, frozen=True):
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
    billed_usd: int | None
    """The bill's amount for this instance, where `capacity` uses a blended cost of similar instances."""
    allocated_usd: int
    """The sum of its lines."""
    capacity: CapacityCosts
    instance_type_source: str = ""
    """As in lines."""


class ClusterCharge(Struct, frozen=True):
    """A charge without a node: an unused commitment or unused reserved capacity."""

    kind: str
    """`unused-savings-plan`, `unused-reservation`, `unused-capacity-reservation`, `unused-capacity-block`."""
    reference: str
    """The id or ARN of the commitment or reservation."""
    amount: int
    currency: str = "USD"
    gpu_hours: int | None = None
    """Of reserved capacity; None for a commitment that reserves no capacity."""

    def figures(self) -> dict[str, Any]:
        """Return the fields as published, with amounts as decimals."""
        gpu_hours = None if self.gpu_hours is None else to_decimal(self.gpu_hours)
        return asdict(self) | {"amount": to_decimal(self.amount), "gpu_hours": gpu_hours}


class ModelKey(NamedTuple):
    """What the costs of a model are summed by."""

    business_unit: str
    namespace: str
    workload_kind: str
    workload: str
    gpu_model: str
    server: str
    """The inference server; "" for pods without one."""
    model: str
    """"" where it is unknown, or which part of the pods' costs is for which model."""
    consumer: str = ""
    """The business unit whose requests the server processed; "" where it is unknown or there were none."""


UNKNOWN_IF_EMPTY = ("server", "model", "consumer")
"""The fields of a model's key that are published as None if they are ""."""


class ModelHour(NamedTuple):
    """The costs and tokens of one model of one workload in one hour. None is unknown, never zero."""

    key: ModelKey
    costs: Costs
    prompt_tokens: int | None = None
    """With the cached ones."""
    generated_tokens: int | None = None
    cached_tokens: int | None = None
    requests: int | None = None

    def figures(self) -> dict[str, Any]:
        """Return the fields as published, with amounts as decimals; an unknown model, server or consumer is None."""
        names = self.key._asdict() | {name: getattr(self.key, name) or None for name in UNKNOWN_IF_EMPTY}
        return {**names, **self.costs.figures(), **dict(zip(self._fields[2:], self[2:], strict=True))}


class HourRecord(Struct, frozen=True):
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
    models: tuple[ModelHour, ...] = ()
    """The costs of the lines by model; empty if no inference server was seen."""

    def by_namespace(self) -> CostsByKey[tuple[str, str]]:
        """Sum the lines by (business unit, namespace), in order of name."""
        sums = sum_by_key(((line.business_unit, line.namespace), line.costs()) for line in self.lines)
        return sums.select(sorted(sums))

    def by_business_unit(self) -> CostsByKey[str]:
        """Sum the lines by business unit, in order of name."""
        return self.by_namespace().group_by(itemgetter(0))


# Cost lines as recommendations read them, with fewer fields.


class CompactLine(NamedTuple):
    """The fields of a line that recommendations need, with amounts as floats.

    Reading a `Line` takes three times as long.
    """

    business_unit: str
    namespace: str
    workload_kind: str
    workload: str
    pod: str
    uid: str
    node: str
    capacity_type: str
    gpu_model: str
    resource: str
    units: int
    gpu_share: float
    allocated_gpu_hours: float
    effective_gpu_hours: float | None
    utilization: float | None
    utilization_source: str
    unmeasured_gpu_hours: float
    price_source: str
    allocated_usd: float | None
    shared_from: str = ""
    labels: Mapping[str, str] | str = ""
    """The settings' `cost_labels` that the pod carries; "" where there are none."""
