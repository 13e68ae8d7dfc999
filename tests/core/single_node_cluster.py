"""An observation of a node that advertises seven GPUs, of which a pod holds one all hour; tests replace parts of it."""

from datetime import UTC, datetime
from decimal import Decimal

from gpucost.core.hours import to_epoch_ms
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.observations import (
    ContainerRequest,
    DeviceSeries,
    NodeObservation,
    NodeState,
    Observation,
    PodObservation,
)

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
START = to_epoch_ms(HOUR)
MINUTE = 60_000
ALWAYS = Scrapes(tuple(START + minute * MINUTE for minute in range(-60, 120)))
GPU = "nvidia_com_gpu"
WHOLE = {"label_nvidia_com_gpu_replicas": "1"}
"""Labels of a node whose GPUs are not shared."""


def minutes(first: int, last: int) -> tuple[int, ...]:
    return tuple(START + minute * MINUTE for minute in range(first, last))


def node(units: int = 7, labels: dict[str, str] | None = None) -> NodeObservation:
    labels = WHOLE if labels is None else labels
    state = NodeState(None, {GPU: Decimal(units)}, {}, labels)
    return NodeObservation("n1", "i-1", None, labels, (state,) if units else ())


def pod(units: int = 1) -> PodObservation:
    return PodObservation("team", "p", "u", "n1", (ContainerRequest("main", "container", GPU, Decimal(units)),), None)


def device(sample_count: int = 60, total: str = "30", *, labeled: bool = True) -> DeviceSeries:
    pod_labels = ("team", "p") if labeled else ("", "")
    return DeviceSeries(
        "n1",
        "GPU-0",
        "",
        "",
        "NVIDIA H100",
        *pod_labels,
        "",
        "",
        "",
        "d",
        Decimal(1),
        0,
        sample_count,
        Decimal(total),
        None,
    )


def observation(*, devices: tuple[DeviceSeries, ...] = (), nodes: tuple[NodeObservation, ...] = ()) -> Observation:
    return Observation("c", HOUR, {"k": ALWAYS}, (pod(),), nodes or (node(),), devices, {"d": ALWAYS}, notes=("first",))
