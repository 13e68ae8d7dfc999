"""An observation of a node that advertises seven GPUs, of which a pod holds one all hour; tests replace parts of it."""

from datetime import UTC, datetime
from decimal import Decimal

from msgspec.structs import replace

from gpucost.core.hours import to_epoch_ms
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import (
    ContainerRequest,
    CounterSeries,
    DeviceSeries,
    NodeObservation,
    NodeState,
    Observation,
    PodObservation,
    ServerCounters,
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


TARGET = "servers|/10.0.0.1:8000"


def counter(*readings: tuple[float, int], target: str = TARGET) -> CounterSeries:
    """A counter of prompt tokens with (minute, value) readings."""
    samples = tuple((START + round(minute * MINUTE), Decimal(count)) for minute, count in readings)
    return CounterSeries("team", "p", "vllm", "m", "prompt", "10.0.0.1:8000", target, frozenset(), None, samples)


def tokens_of(
    *series: CounterSeries, scrapes: dict[float, bool] | None = None, held: tuple[int, int] | None = None
) -> tuple[tuple[ServedTokens, ...], tuple[str, ...]]:
    """What metering reads from counters, and its notes about tokens."""
    times = {TARGET: {START + round(minute * MINUTE): success for minute, success in (scrapes or {}).items()}}
    hour = replace(observation(), counters=ServerCounters(series, times))
    if held is not None:
        pod = replace(hour.pods[0], held_samples={"k": minutes(*held)}, running_samples={"k": minutes(*held)})
        hour = replace(hour, pods=(pod,))
    usage = meter(hour, MeteringRules())
    return usage.served, tuple(note for note in usage.notes if "tokens" in note)
