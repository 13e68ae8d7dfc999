"""Cost lines as reports on nodes and as recommendations read them, with fewer fields."""

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from msgspec import Struct


class Holder(Struct, frozen=True, gc=False):
    """The fields of a line that a report on nodes needs: which pod held GPUs of a node, and what they cost.

    Reading a `Line` takes twice as long.
    """

    node: str
    business_unit: str
    namespace: str
    workload_kind: str
    workload: str
    pod: str
    uid: str
    resource: str
    units: int
    gpu_share: Decimal
    utilization: Decimal | None
    utilization_source: str
    allocated_gpu_hours: int
    effective_gpu_hours: int | None
    unmeasured_gpu_hours: int
    energy_kwh: int | None
    energy_gpu_hours: int | None
    co2e_kg: int | None
    allocated_usd: int | None
    effective_usd: int | None
    waste_usd: int | None
    unmeasured_usd: int | None


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
