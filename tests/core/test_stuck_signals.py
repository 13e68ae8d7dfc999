"""What contradicts a signal of 0: a use of 10% or more, or twice the power of the lowest hour, and no less."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from gpucost.core.metering.contradictions import PowerByHour, contradicted_gpus, gpus_at_zero
from gpucost.core.metering.observations import DeviceSeries
from tests.core.single_node_cluster import device, pod

GPU = ("n1", "GPU-0")


def in_percent(total: str, samples: int = 60) -> DeviceSeries:
    return replace(device(samples, total), scale=Decimal(100))


@pytest.mark.parametrize(("total", "is_contradiction"), [("600", True), ("599.9", False), ("0", False), ("NaN", False)])
def test_mean_use_of_ten_percent_contradicts_a_signal_of_0(total: str, is_contradiction: bool) -> None:
    contradicted = contradicted_gpus({GPU}, [("DCGM_FI_DEV_GPU_UTIL", in_percent(total))], {})
    assert (GPU in contradicted) is is_contradiction


@pytest.mark.parametrize(("watts", "is_contradiction"), [("140", True), ("139.9", False)])
def test_twice_the_power_of_the_lowest_hour_contradicts_a_signal_of_0(watts: str, is_contradiction: bool) -> None:
    power = {GPU: PowerByHour(Decimal(watts), Decimal(70))}
    assert (GPU in contradicted_gpus({GPU}, [], power)) is is_contradiction


def test_gpus_with_another_signal_than_0_are_not_contradicted() -> None:
    others = {("n1", "GPU-1"): PowerByHour(Decimal(700), Decimal(70))}
    assert contradicted_gpus({GPU}, [], others) == {}


@pytest.mark.parametrize(
    ("devices", "at_zero"),
    [
        ([device(total="0")], {GPU}),
        ([device(total="0.001")], set()),
        ([device(0, "0")], set()),
        ([device(total="0"), replace(device(total="6"), uuid="GPU-1")], set()),
        ([device(total="0"), replace(device(total="6", labeled=False), uuid="GPU-1")], {GPU}),
        ([device(total="0"), replace(device(total="6"), node="n2")], {GPU}),
        ([device(total="0", labeled=False)], {GPU}),
        ([device(total="0", labeled=False), replace(device(total="6", labeled=False), uuid="GPU-1")], set()),
    ],
    ids=[
        "0",
        "hardly used",
        "no samples",
        "a held one is in use",
        "another one is in use",
        "another node",
        "no labels of pods",
        "no labels of pods, and one in use",
    ],
)
def test_only_nodes_whose_held_gpus_are_all_at_0_are_doubted(
    devices: list[DeviceSeries], at_zero: set[tuple[str, str]]
) -> None:
    assert gpus_at_zero(devices, [pod()]).keys() == at_zero


def test_idle_gpus_of_a_node_on_which_no_pod_holds_any_are_not_doubted() -> None:
    assert gpus_at_zero([device(total="0", labeled=False)], [replace(pod(), node="n2")]) == {}


@pytest.mark.parametrize(("vendor", "is_doubted"), [("amd", True), ("gaudi", True), ("intel", True), ("neuron", False)])
def test_vendors_with_a_metric_of_power_are_doubted(vendor: str, is_doubted: bool) -> None:
    of_vendor = replace(device(total="0"), vendor=vendor)
    other = replace(device(total="30"), uuid="GPU-1")
    assert gpus_at_zero([of_vendor, other], [pod()]) == ({GPU: vendor} if is_doubted else {})
