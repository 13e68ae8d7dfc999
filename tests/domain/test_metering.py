"""What metering says of an hour beside its lines: coverage, notes, capacity that only settings tell."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from gpucost.domain.hours import HOUR_MS, to_ms
from gpucost.domain.intervals import Scrapes
from gpucost.domain.metering import MeteringRules, meter
from gpucost.domain.observations import (
    ContainerRequest,
    DeviceSeries,
    NodeObservation,
    NodeState,
    Observation,
    PodObservation,
)

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
START = to_ms(HOUR)
MINUTE = 60_000
ALWAYS = Scrapes(tuple(START + at * MINUTE for at in range(-60, 120)))
GPU = "nvidia_com_gpu"


def node(units: int = 7, labels: dict[str, str] | None = None) -> NodeObservation:
    state = NodeState(None, {GPU: Decimal(units)}, {}, labels or {})
    return NodeObservation("n1", "i-1", None, labels or {}, (state,) if units else ())


def pod(units: int = 1) -> PodObservation:
    return PodObservation("team", "p", "u", "n1", (ContainerRequest("main", "container", GPU, Decimal(units)),), None)


def device(samples: int = 60, total: str = "30", *, labelled: bool = True) -> DeviceSeries:
    own = ("team", "p") if labelled else ("", "")
    return DeviceSeries(
        "n1", "GPU-0", "", "", "NVIDIA H100", *own, "", "", "", "d", Decimal(1), 0, samples, Decimal(total), None
    )


def seen(*, devices: tuple[DeviceSeries, ...] = (), nodes: tuple[NodeObservation, ...] = ()) -> Observation:
    return Observation("c", HOUR, {"k": ALWAYS}, (pod(),), nodes or (node(),), devices, {"d": ALWAYS}, notes=("first",))


def test_an_hour_names_its_cluster_and_keeps_what_was_noted_before() -> None:
    odd = device()._replace(values=((START, Decimal("NaN")),), pod="", namespace="")
    usage = meter(
        replace(seen(devices=(device(), odd)), pods=(pod(), replace(pod(), uid="v", node="n9"))), MeteringRules()
    )
    assert (usage.cluster, usage.hour) == ("c", HOUR)
    assert usage.notes[0] == "first"
    assert any("no numbers" in note for note in usage.notes)
    assert any("how many GPUs node 'n9' has" in note for note in usage.notes)
    assert usage.nodes is None


def test_a_pod_on_a_node_that_is_not_there_is_noted_once() -> None:
    pods = (replace(pod(), node="n9"), replace(pod(), node="n9", uid="v"))
    usage = meter(replace(seen(), pods=pods, nodes_are_kept=True), MeteringRules())
    assert usage.pods == ()
    assert usage.notes == ("first", "node 'n9' is not there: pods that are still listed on it hold nothing")


def test_a_gap_is_noted_with_its_times() -> None:
    scrapes = Scrapes(tuple(at for at in ALWAYS.times if not START + 10 * MINUTE <= at < START + 25 * MINUTE))
    usage = meter(replace(seen(), allocation={"k": scrapes}), MeteringRules())
    assert usage.coverage.allocation == Decimal("0.75")
    assert usage.notes == (
        "first",
        "nobody saw who held GPUs from 2026-11-19T10:10:00Z to 2026-11-19T10:25:00Z: what came and went within that "
        "time is not known",
    )


def test_one_scrape_speaks_for_a_minute() -> None:
    usage = meter(replace(seen(), allocation={"k": Scrapes((START,))}), MeteringRules())
    assert usage.coverage.allocation == Decimal("0.016666666667")


def test_what_settings_say_of_units_counts_for_pods_and_for_nodes() -> None:
    usage = meter(seen(), MeteringRules(slices_per_gpu=7))
    assert usage.nodes is not None
    assert usage.nodes[0].total_gpu_ms == HOUR_MS
    assert usage.nodes[0].unallocated_gpu_ms == Fraction(6 * HOUR_MS, 7)
    assert usage.pods[0].holding.gpu_ms == Fraction(HOUR_MS, 7)
    plain = meter(seen(), MeteringRules())
    assert plain.nodes is not None
    assert plain.nodes[0].total_gpu_ms == 7 * HOUR_MS


def test_utilization_is_covered_by_devices_seen() -> None:
    assert meter(seen(devices=(device(),)), MeteringRules()).coverage.utilization == 1
    assert meter(seen(), MeteringRules()).coverage.utilization == 0
    half = device()._replace(values=tuple((START + at * MINUTE, Decimal(1)) for at in range(30)))
    assert meter(seen(devices=(half,)), MeteringRules()).coverage.utilization == Decimal("0.5")
    elsewhere = device(labelled=False)._replace(node="n7")
    assert meter(seen(devices=(elsewhere,)), MeteringRules()).coverage.utilization == Decimal("0.5")


def test_a_cluster_without_gpus_is_not_asked_for_utilization() -> None:
    cpu = NodeObservation("cpu", "i-2", None, {}, ())
    empty = replace(seen(nodes=(cpu,)), pods=())
    assert meter(empty, MeteringRules()).coverage.utilization is None
    assert meter(empty, MeteringRules()).nodes == ()
    idle = replace(seen(nodes=(node(),)), pods=())
    assert meter(idle, MeteringRules()).coverage.utilization == 0
