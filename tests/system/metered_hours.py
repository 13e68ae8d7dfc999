"""Hand-made clusters for the tests of metering, and checks of their hours."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from gpucost.core.amounts import SCALE, CapacityCosts
from gpucost.core.hour_record import HourRecord, Line
from tests.system.timeline import Timeline

Attribute = Callable[..., list[HourRecord]]
MINUTE = Fraction(1, 60)


def assert_identity(record: HourRecord) -> None:
    if record.totals is None:
        return
    costs, capacity = record.totals.costs, record.totals.capacity
    assert costs.allocated_usd == costs.effective_usd + costs.waste_usd + costs.unmeasured_usd
    if capacity is not None:
        parts = sum((getattr(capacity, part) for part in CapacityCosts.names() if part.endswith("_usd")), Decimal(0))
        assert costs.allocated_usd + parts - capacity.node_cost_usd == capacity.node_cost_usd


def hours(record: HourRecord) -> dict[str, float]:
    """Allocated GPU-hours by pod."""
    return {line.pod: line.allocated_gpu_hours / SCALE for line in record.lines}


def line(record: HourRecord, pod: str) -> Line:
    (matching_line,) = [line for line in record.lines if line.pod == pod]
    return matching_line


def minutes(*values: float) -> Fraction:
    return sum((Fraction(value) for value in values), Fraction(0)) * MINUTE


def fleet(**settings: object) -> Timeline:
    """A scraped cluster with one node of four whole GPUs."""
    timeline = Timeline(**settings)
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 4})
    for gpu in range(4):
        timeline.device(0.0, gpu=gpu)
    return timeline
