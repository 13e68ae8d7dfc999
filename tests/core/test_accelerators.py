"""The catalog of accelerators: resources, devices in labels, and partitions of AMD GPUs."""

import re
from decimal import Decimal
from fractions import Fraction

import pytest

from gpucost.core.metering.accelerators import ACCELERATORS, AMD, GAUDI, INTEL_GPU, DeviceIdentity, vendor_of
from gpucost.core.metering.gpu_models import partitions_per_gpu
from gpucost.core.metering.gpu_shares import GpuNode, to_kubernetes_resource

MI300X = "AMD-Instinct-MI300X-OAM"
NEURON_DEVICE, NEURON_CORE = "aws_amazon_com_neuron", "aws_amazon_com_neuroncore"


@pytest.mark.parametrize(
    ("resource", "vendor", "in_kubernetes"),
    [
        ("nvidia_com_gpu", "nvidia", "nvidia.com/gpu"),
        ("aws_amazon_com_neuroncore", "neuron", "aws.amazon.com/neuroncore"),
        ("amd_com_gpu", "amd", "amd.com/gpu"),
        ("amd_com_cpx_nps4", "amd", "amd.com/cpx_nps4"),
        ("habana_ai_gaudi", "gaudi", "habana.ai/gaudi"),
        ("gpu_intel_com_i915", "intel", "gpu.intel.com/i915"),
        ("gpu_intel_com_xe", "intel", "gpu.intel.com/xe"),
    ],
)
def test_resources_belong_to_their_vendor(resource: str, vendor: str, in_kubernetes: str) -> None:
    assert vendor_of(resource) == vendor
    assert to_kubernetes_resource(resource) == in_kubernetes
    patterns = [accelerator.kubernetes_resource_pattern for accelerator in ACCELERATORS]
    assert any(re.fullmatch(pattern, in_kubernetes) for pattern in patterns) == (vendor != "nvidia")


@pytest.mark.parametrize("resource", ["amd_com_nic", "gpu_intel_com_xe_monitoring", "gpu_intel_com_monitoring"])
def test_resources_that_are_no_devices_are_not_metered(resource: str) -> None:
    assert not any(re.fullmatch(accelerator.resource_pattern, resource) for accelerator in ACCELERATORS)


def amd_labels(compute: str, partition: str, **more: str) -> dict[str, str]:
    return {
        "gpu_id": "9",
        "gpu_partition_id": partition,
        "gpu_compute_partition_type": compute,
        "gpu_memory_partition_type": "nps4",
        "card_model": "102-G30211-0C",
        **more,
    }


@pytest.mark.parametrize(
    ("labels", "identity"),
    [
        (amd_labels("spx", "0", serial_number="S1"), DeviceIdentity("S1", "", "", "102-G30211-0C")),
        (amd_labels("cpx", "3", serial_number="S1"), DeviceIdentity("S1", "3", "cpx_nps4", "102-G30211-0C")),
        (amd_labels("none", "NA"), DeviceIdentity("9", "", "", "102-G30211-0C")),
        (amd_labels("cpx", "3"), DeviceIdentity("", "9/3", "cpx_nps4", "102-G30211-0C")),
        (amd_labels("spx", "0", card_series="AMD Instinct MI300X"), DeviceIdentity("9", "", "", "AMD Instinct MI300X")),
    ],
)
def test_amd_devices_are_gpus_or_partitions(labels: dict[str, str], identity: DeviceIdentity) -> None:
    assert AMD.labels.identify(labels) == identity


def test_devices_of_intel_are_whole() -> None:
    assert GAUDI.labels.identify({"UUID": "01P0-1", "Serial": "AM1"}) == DeviceIdentity("01P0-1", "", "", "")
    assert INTEL_GPU.labels.identify({"pci_bdf": "0000:03:00.0"}) == DeviceIdentity("0000:03:00.0", "", "", "")


@pytest.mark.parametrize(
    ("partition", "model", "parts"),
    [
        ("spx_nps1", MI300X, 1),
        ("qpx", MI300X, 4),
        ("dpx_nps1", MI300X, 2),
        ("tpx_nps1", "AMD-Instinct-MI300A", 3),
        ("qpx_nps4", MI300X, 4),
        ("cpx_nps4", MI300X, 8),
        ("cpx_nps1", "AMD-Instinct-MI300A", 6),
        ("cpx_nps1", "", None),
    ],
)
def test_modes_divide_a_gpu(partition: str, model: str, parts: int | None) -> None:
    assert partitions_per_gpu(partition, model) == parts


def test_share_of_a_partition_of_an_unknown_model_is_estimated() -> None:
    node = GpuNode("n", capacity={"amd_com_cpx_nps1": Decimal(24), "amd_com_spx_nps1": Decimal(5)})
    share = node.share("amd_com_cpx_nps1", None)
    assert (share.gpus_per_unit, share.is_estimate) == (Fraction(1, 8), True)
    assert node.gpus_of_units(node.capacity, None) == 8


def test_partitions_divide_the_gpus_of_the_instance_type() -> None:
    node = GpuNode("n", capacity={"amd_com_cpx_nps1": Decimal(48)}, physical_gpus=8)
    assert node.share("amd_com_cpx_nps1", None).gpus_per_unit == Fraction(1, 6)


@pytest.mark.parametrize(
    ("instance_type", "physical", "capacity", "cores"),
    [
        # Trainium2 has eight physical cores a device; two of them are a logical one, unless the node says otherwise.
        ("trn2.3xlarge", 1, {NEURON_DEVICE: 1, NEURON_CORE: 4}, 4),
        ("trn2.48xlarge", 16, {NEURON_DEVICE: 16, NEURON_CORE: 64}, 4),
        ("trn2.48xlarge", 16, {NEURON_DEVICE: 16, NEURON_CORE: 128}, 8),
        ("trn2.48xlarge", 16, {NEURON_DEVICE: 16, NEURON_CORE: 32}, 2),
        ("trn2.48xlarge", 16, {"aws_amazon_com_neurondevice": 16, NEURON_CORE: 64}, 4),
        ("trn2.48xlarge", 16, {NEURON_CORE: 128}, 8),
        ("trn2.48xlarge", 16, {NEURON_DEVICE: 16}, 4),
        ("trn1.32xlarge", 16, {NEURON_DEVICE: 16}, 2),
        ("trn9.48xlarge", 16, {NEURON_DEVICE: 16, NEURON_CORE: 256}, 16),
        ("trn9.48xlarge", 16, {NEURON_DEVICE: 16}, 1),
    ],
)
def test_advertised_ratio_decides_how_many_cores_a_device_has(
    instance_type: str, physical: int, capacity: dict[str, int], cores: int
) -> None:
    units = {name: Decimal(count) for name, count in capacity.items()}
    node = GpuNode("n", instance_type=instance_type, physical_gpus=physical, capacity=units)
    assert node.share(NEURON_CORE, None).gpus_per_unit == Fraction(1, cores)
    assert node.gpus_of_units({NEURON_CORE: Decimal(physical * cores)}, None) == physical


def test_advertised_partitions_overrule_the_catalog_of_modes() -> None:
    """A model whose CPX mode has four partitions: its two GPUs advertise eight."""
    capacity = {"amd_com_gpu": Decimal(8)}
    node = GpuNode("n", gpu_model=MI300X, partition="cpx_nps1", physical_gpus=2, capacity=capacity)
    assert node.share("amd_com_gpu", None).gpus_per_unit == Fraction(1, 4)
    uneven = GpuNode("n", gpu_model=MI300X, partition="cpx_nps1", physical_gpus=3, capacity=capacity)
    assert uneven.share("amd_com_gpu", None).gpus_per_unit == Fraction(1, 8), "an exporter misses a GPU"
