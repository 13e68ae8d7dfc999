"""Cost lines as recommendations read them, with fewer fields."""

from collections.abc import Mapping
from typing import NamedTuple


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
