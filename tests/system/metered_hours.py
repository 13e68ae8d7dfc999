"""Hand-made clusters for the tests of metering, and checks of their hours."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from gpucost.core.amounts import SCALE, CapacityCosts
from gpucost.core.hour_record import HourRecord, Line
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from tests.system.timeline import HOUR, Timeline

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


BUSY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
L4 = {"nvidia_com_gpu_product": "NVIDIA-L4", "node_kubernetes_io_instance_type": "g6.12xlarge"}


def cluster(pods: int, *, start: float = -65, gap: tuple[float, float] | None = None, signal: str = BUSY) -> Timeline:
    """Nodes of four GPUs, all held; pods with hexadecimal uids, as Kubernetes makes them."""
    timeline = Timeline(gaps=[gap] if gap else [])
    timeline.up(start)
    for n in range(pods // 4):
        timeline.node(f"n{n}", start, capacity={"nvidia_com_gpu": 4}, labels=L4)
        timeline.up(start, job="dcgm-exporter", instance=f"n{n}:9400")
    for i in range(pods):
        node, gpu = f"n{i // 4}", i % 4
        timeline.pod(f"p{i}", start, node=node, uid=f"0a1b-{i * 7919:04x}")
        pod_labels = {"exported_pod": f"p{i}", "exported_namespace": "team"}
        timeline.device((i % 8) / 8, start, node=node, gpu=gpu, signal=signal, **pod_labels)
    return timeline


def attribute(url: str, hours: int = 1, more: str = "") -> list[HourRecord]:
    settings = parse_settings(
        f'clusters: [{{name: test, prometheus: {{url: "{url}"}}}}]\n'
        f"pricing: {{source: constant, gpu_hourly_usd: 10}}\n{more}"
    )
    reader = metrics_reader(settings.clusters[0], settings)
    hour_starts = [HOUR + timedelta(hours=i - hours + 1) for i in range(hours)]
    return attribute_hours(reader, settings.clusters[0], settings, hour_starts, now=datetime.now(UTC))
