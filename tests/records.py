"""Hour records for tests of the steps after attribution."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from gpucost.core.amounts import SCALE, CapacityCosts, Costs, Totals, to_fixed_point
from gpucost.core.hour_record import LINE_AMOUNTS, CompactLine, Coverage, HourRecord, Line, Status

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)


@lru_cache(maxsize=4096)
def amount(number: str | int | Decimal | Fraction) -> int:
    """A number of USD or GPU-hours as a fixed-point amount."""
    return to_fixed_point(Decimal(number) if isinstance(number, str) else number)


def line(unit: str = "research", namespace: str = "bu-a", pod: str = "p", usd: str = "1.714285714286") -> Line:
    """A line with 25% utilization."""
    allocated = amount(usd)
    effective = round(Fraction(allocated, 4))
    return Line(
        business_unit=unit,
        namespace=namespace,
        workload_kind="Deployment",
        workload="app",
        pod=pod,
        uid=f"uid-{pod}",
        node="n1",
        node_pool="pool",
        instance_type="p4d.24xlarge",
        capacity_type="spot",
        zone="a",
        gpu_model="A100",
        resource="nvidia.com/gpu",
        units=1,
        gpu_share=Decimal("0.142857142857"),
        gpu_share_source="product-label",
        labels={"team": "x"},
        split_policy="gpu-bears-all",
        allocated_gpu_hours=amount("0.142857142857"),
        effective_gpu_hours=amount("0.035714285714"),
        utilization=Decimal("0.25"),
        utilization_source="pod",
        unmeasured_gpu_hours=0,
        gpu_hourly_usd=Decimal(12),
        price_source="constant",
        allocated_usd=allocated,
        effective_usd=effective,
        waste_usd=allocated - effective,
        unmeasured_usd=0,
    )


def record(
    lines: Sequence[Line] = (),
    *,
    hour: datetime = HOUR,
    cluster: str = "demo",
    status: Status = "complete",
    notes: tuple[str, ...] = (),
) -> HourRecord:
    """A record with the totals of its lines."""
    if status == "incomplete":
        return HourRecord(cluster, hour, status, None, None, notes=notes or ("no scrape was seen",))
    costs = Costs.total(line.costs() for line in lines)
    capacity = CapacityCosts(node_cost_usd=costs.allocated_usd)
    coverage = Coverage(Decimal(1), Decimal("0.987654321"))
    return HourRecord(cluster, hour, status, coverage, Totals(costs, capacity), tuple(lines), notes)


def compact_line_of(line: Line) -> CompactLine:
    """A line as the recommendation review reads it, with amounts as floats."""

    def value(name: str) -> Any:
        field = getattr(line, name)
        if name in LINE_AMOUNTS:
            return None if field is None else field / SCALE
        return float(field) if isinstance(field, Decimal) else field

    return CompactLine._make(map(value, CompactLine._fields))


OF_MONEY = {"allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd"}
OF_ENERGY = {"energy_kwh", "energy_gpu_hours", "unused_energy_kwh", "energy_without_factor_kwh"}
OF_EMISSIONS = {"co2e_kg"}


def unknown_costs(costs: Costs) -> set[str]:
    """The amounts that must be published as None: those that need a price, energy or an emission factor."""
    unknown: set[str] = set()
    if 0 < costs.unpriced_gpu_hours == costs.allocated_gpu_hours:
        unknown |= OF_MONEY
    if not costs.energy_gpu_hours:
        return unknown | OF_ENERGY | OF_EMISSIONS
    has_no_factor = 0 < costs.energy_without_factor_kwh == costs.energy_kwh
    return unknown | (OF_EMISSIONS if has_no_factor else set())
