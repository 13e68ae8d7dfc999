"""Fractions of GPUs by cores and memory: the larger share counts, and pods never hold more than their GPU."""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.claims import merge_pieces
from gpucost.core.metering.gpu_fractions import (
    ReservedTime,
    disputed_parts_of_reserved_gpus,
    fraction_share,
    limit_to_gpus,
    limits_of,
    requested_gpus,
)
from gpucost.core.metering.gpu_shares import GPU, GpuNode, to_kubernetes_resource
from gpucost.core.metering.nodes import describe_node
from gpucost.core.metering.observations import (
    ContainerRequest,
    DeviceSeries,
    GpuFraction,
    GpuLimits,
    NodeObservation,
    PodObservation,
)
from gpucost.core.metering.usage import Holding, PodUsage

MINUTE = 60_000
CORES, MEMORY, MEMORY_PERCENTAGE = "nvidia_com_gpucores", "nvidia_com_gpumem", "nvidia_com_gpumem_percentage"
NODE = GpuNode("n1", instance_type="g5.12xlarge", physical_gpus=4)
LIMITS = GpuLimits(Decimal(100), Decimal(24_000))


def requests(units: Mapping[str, int], container: str = "main", kind: str = "container") -> list[ContainerRequest]:
    return [ContainerRequest(container, kind, resource, Decimal(count)) for resource, count in units.items()]


@pytest.mark.parametrize(
    ("units", "gpus"),
    [
        ({GPU: 1, CORES: 25, MEMORY_PERCENTAGE: 25}, Fraction(1, 4)),
        ({GPU: 1, CORES: 60, MEMORY: 2400}, Fraction(3, 5)),
        ({GPU: 1, CORES: 10, MEMORY: 18_000}, Fraction(3, 4)),
        ({GPU: 2, CORES: 50, MEMORY: 6000}, Fraction(1)),
        ({GPU: 1, MEMORY: 6000, MEMORY_PERCENTAGE: 90}, Fraction(1, 4)),  # MiB count before percent
        ({GPU: 1, CORES: 30}, Fraction(1)),  # all of the memory
        ({GPU: 3}, Fraction(3)),
        ({GPU: 1, MEMORY_PERCENTAGE: 0, CORES: 10}, Fraction(1)),
        ({GPU: 1, CORES: 400, MEMORY_PERCENTAGE: 10}, Fraction(1)),
        ({CORES: 30}, Fraction(0)),  # HAMi gives no GPU to a container without nvidia.com/gpu
    ],
)
def test_larger_share_of_cores_and_memory_counts(units: Mapping[str, int], gpus: Fraction) -> None:
    assert requested_gpus(requests(units), LIMITS) == gpus


def test_init_container_counts_only_if_it_is_larger() -> None:
    main = requests({GPU: 1, CORES: 25, MEMORY_PERCENTAGE: 10}) + requests({GPU: 1, MEMORY_PERCENTAGE: 50}, "side")
    init = requests({GPU: 1, CORES: 80, MEMORY_PERCENTAGE: 10}, "loads", "init")
    assert requested_gpus(main, LIMITS) == Fraction(3, 4)
    assert requested_gpus(main + init, LIMITS) == Fraction(4, 5)


def test_memory_of_unknown_gpus_is_unknown_and_not_zero() -> None:
    units = {GPU: 1, CORES: 10, MEMORY: 6000}
    assert requested_gpus(requests(units), None) is None
    assert requested_gpus(requests({**units, CORES: 100}), None) == 1


def test_reported_limits_count_before_labels_and_data_sheets() -> None:
    label = {"label_nvidia_com_gpu_memory": "23028"}
    assert limits_of(GpuNode("n", gpu_model="NVIDIA-A10G", labels=label), LIMITS) == LIMITS
    assert limits_of(GpuNode("n", gpu_model="NVIDIA-A10G", labels=label), None) == GpuLimits(
        Decimal(100), Decimal(23028)
    )
    assert limits_of(GpuNode("n", gpu_model="NVIDIA-A10G"), None) == GpuLimits(Decimal(100), Decimal(24 * 1024))
    assert limits_of(GpuNode("n", gpu_model="Quadro"), None) is None


def test_vgpus_of_a_node_with_only_a_model_are_counted_by_its_devices() -> None:
    """A scheduler that divides GPUs by cores and memory advertises more units than there are GPUs."""
    labels = {"label_nvidia_com_gpu_product": "NVIDIA-A30"}
    devices = [
        DeviceSeries("n1", uuid, "", "", "NVIDIA A30", "", "", "", "", "", "d/x", Decimal(1), 0)
        for uuid in ("GPU-0", "GPU-1")
    ]
    observed = NodeObservation("n1", "", None, labels, ())
    units = {GPU: Decimal(8)}
    assert describe_node(observed, labels, devices, units, units, has_vgpus=True).physical_gpus == 2
    assert describe_node(observed, labels, devices, units, units).physical_gpus is None, "unknown"


def test_resources_have_their_names_in_kubernetes() -> None:
    assert to_kubernetes_resource(MEMORY_PERCENTAGE) == "nvidia.com/gpumem-percentage"
    assert to_kubernetes_resource(CORES) == "nvidia.com/gpucores"


def holding(name: str, share: Fraction, held: IntervalMs, units: int = 1) -> Holding:
    pod = PodObservation("team", name, f"uid-{name}", "n1", (), None)
    return Holding(pod, NODE, GPU, units, fraction_share(share * units, units, NODE), held, held, held.end, held.start)


def test_pods_that_exceed_their_gpu_divide_it_in_proportion() -> None:
    """0.75 and 0.5 of a GPU fit on it, by cores and by memory. For 30 minutes they are 0.6 and 0.4 of it."""
    first, second = (
        holding("first", Fraction(3, 4), IntervalMs(0, 60 * MINUTE)),
        holding("second", Fraction(1, 2), IntervalMs(30 * MINUTE, 60 * MINUTE)),
    )
    gpus = {("team", "first"): frozenset({"GPU-0"}), ("team", "second"): frozenset({"GPU-0"})}
    limited = limit_to_gpus([first, second], gpus)
    lines = {line.pod.pod: line for line in merge_pieces([PodUsage.of(piece) for piece in limited])}
    assert lines["first"].gpu_ms == 30 * MINUTE * (Fraction(3, 4) + Fraction(3, 5))
    assert lines["second"].gpu_ms == 30 * MINUTE * Fraction(2, 5)
    apart = {("team", "first"): frozenset({"GPU-0"}), ("team", "second"): frozenset({"GPU-1"})}
    assert limit_to_gpus([first, second], apart) == [first, second]


@st.composite
def pods_with_fractions(draw: st.DrawFn) -> tuple[list[Holding], dict[tuple[str, str], frozenset[str]]]:
    """Up to eight pods on four GPUs; of some, the GPU is not known."""
    holdings, gpus = list[Holding](), dict[tuple[str, str], frozenset[str]]()
    for number in range(draw(st.integers(1, 8))):
        start, end = sorted(draw(st.lists(st.integers(0, 60), min_size=2, max_size=2, unique=True)))
        uuids = draw(st.sets(st.sampled_from(["GPU-0", "GPU-1", "GPU-2", "GPU-3"]), min_size=1, max_size=2))
        share = Fraction(draw(st.integers(1, 100)), 100)
        holdings.append(holding(f"p{number}", share, IntervalMs(start * MINUTE, end * MINUTE), len(uuids)))
        if draw(st.booleans()):
            gpus["team", f"p{number}"] = frozenset(uuids)
    return holdings, gpus


@given(pods_with_fractions())
def test_no_gpu_and_no_node_is_held_more_than_once(
    drawn: tuple[list[Holding], dict[tuple[str, str], frozenset[str]]],
) -> None:
    holdings, gpus = drawn
    limited = limit_to_gpus(holdings, gpus)
    for minute in range(60):
        held = [piece for piece in limited if piece.held.contains(minute * MINUTE)]
        assert sum(piece.gpus for piece in held) <= 4
        before = [usage for usage in holdings if usage.held.contains(minute * MINUTE)]
        assert {piece.pod.pod for piece in held} == {usage.pod.pod for usage in before}
        for uuid in ("GPU-0", "GPU-1", "GPU-2", "GPU-3"):
            single = [usage for usage in before if gpus.get(("team", usage.pod.pod), frozenset()) == frozenset({uuid})]
            names = {usage.pod.pod for usage in single}
            assert sum(piece.gpus for piece in held if piece.pod.pod in names) <= 1
        if sum(usage.gpus for usage in before) <= 1:
            assert sum(piece.gpus for piece in held) == sum(usage.gpus for usage in before)


@given(pods_with_fractions())
def test_merging_keeps_the_gpu_time_of_each_pod(
    drawn: tuple[list[Holding], dict[tuple[str, str], frozenset[str]]],
) -> None:
    holdings, gpus = drawn
    limited = limit_to_gpus(holdings, gpus)
    lines = merge_pieces([PodUsage.of(piece) for piece in limited])
    assert len(lines) == len({piece.pod.pod for piece in limited})
    assert sum(line.gpu_ms for line in lines) == sum(piece.gpu_ms for piece in limited)


def test_share_of_a_node_depends_on_the_slices_per_gpu() -> None:
    node = GpuNode("n", gpu_model="NVIDIA-A100-SXM4-80GB", physical_gpus=None, capacity={GPU: Decimal(7)})
    assert [node.share(GPU, slices).gpus_per_unit for slices in (7, None, 7)] == [Fraction(1, 7), 1, Fraction(1, 7)]


def test_only_the_rest_of_a_reserved_gpu_is_disputed_while_a_pod_has_an_unknown_fraction() -> None:
    """A pod has a quarter for half an hour; another one has an unknown part from minute 20 to 50."""

    def reserved(start: int, end: int) -> ReservedTime:
        return ReservedTime(frozenset({"group"}), NODE, IntervalMs(start * MINUTE, end * MINUTE))

    quarter = holding("quarter", Fraction(1, 4), IntervalMs(0, 30 * MINUTE))
    sharer = replace(quarter, pod=replace(quarter.pod, fraction=GpuFraction(None, None, frozenset({"group"}))))
    parts = [part for _, part in disputed_parts_of_reserved_gpus([reserved(0, 60)], [reserved(20, 50)], [sharer])]
    assert [(part.time.start // MINUTE, part.time.end // MINUTE, part.gpus) for part in parts] == [
        (20, 30, Fraction(3, 4)),
        (30, 50, 1),
    ]
