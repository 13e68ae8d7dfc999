"""The share of a physical GPU or Neuron device that a requested unit stands for on a node."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property

from msgspec import Struct, field

from gpucost.core.amounts import quantize
from gpucost.core.metering.accelerators import AMD, accelerator_of_vendor, vendor_of
from gpucost.core.metering.gpu_models import (
    USUAL_COMPUTE_DIES,
    compute_share,
    memory_gb,
    partitions_per_gpu,
    profile_share,
)
from gpucost.core.metering.instance_types import NEURON_OF_INSTANCE
from gpucost.core.metering.kubernetes_labels import GPU_MEMORY_LABEL, mig_replicas, parse_whole_number

GPU = "nvidia_com_gpu"
GPU_SHARED = "nvidia_com_gpu_shared"
MIG_PREFIX = "nvidia_com_mig_"
SHARED_SUFFIX = "_shared"
NEURON_DEVICES = ("aws_amazon_com_neuron", "aws_amazon_com_neurondevice")
NEURON_CORE = "aws_amazon_com_neuroncore"
FRACTION = "fraction"
"""The source of shares that a scheduler allocates to pods by cores and memory."""
AMD_GPU = "amd_com_gpu"
"""A whole AMD GPU, or any partition of one if the device plugin names resources by the strategy `single`."""
DRA_GPU_DRIVER = "gpu.nvidia.com"
"""The DRA driver whose ResourceClaims dcgm-exporter reports; its GPUs are not in the capacity of nodes."""


class GpuShare(Struct, frozen=True, dict=True):
    """Physical GPUs per requested unit, and how that was determined."""

    gpus_per_unit: Fraction
    source: str
    replicas: int = 1
    """Units that one device provides under time-slicing or MPS."""

    @cached_property
    def rounded(self) -> Decimal:
        """The share rounded to 1e-12, as lines publish it."""
        return quantize(self.gpus_per_unit)

    @property
    def is_estimate(self) -> bool:
        """Whether the share is estimated, because the MIG profile or the AMD GPU is not in the catalog."""
        return self.source in {"mig-compute-slices", "node-average", "partition-name"}


class GpuNode(Struct, frozen=True, dict=True):
    """A node's facts from its labels, capacity and devices, for as long as they do not change."""

    name: str
    provider_id: str = ""
    instance_type: str = ""
    zone: str = ""
    zone_id: str = ""
    capacity_type: str = ""
    node_pool: str = ""
    gpu_model: str = ""
    mig_profile: str = ""
    """The profile of all slices if they are advertised as `nvidia.com/gpu` (MIG strategy single)."""
    partition: str = ""
    """How all AMD GPUs of the node are partitioned, such as `cpx_nps4`; "" if they are whole or differ."""
    replicas: int = 1
    """Replicas per GPU under time-slicing or MPS."""
    physical_gpus: int | Fraction | None = None
    """Physical GPUs, or Neuron devices; None if unknown."""
    capacity: Mapping[str, Decimal] = field(default_factory=dict)
    allocatable: Mapping[str, Decimal] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    mig_layouts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The MIG resources of each GPU, by UUID, from the MIG devices that exporters report."""
    gpus_per_unit: Mapping[str, Fraction] = field(default_factory=dict)
    """Physical GPUs per unit of some resources, from the settings."""
    reported_gpus: int | None = None
    """The GPUs that exporters report if they are fewer than the advertised ones, and no label explains it."""
    instance_type_source: str = ""
    """What says its instance type if no label does (`UnlabeledFacts`)."""

    @cached_property
    def gpu_fraction(self) -> Fraction:
        """The part of a physical GPU that each of its devices stands for."""
        return Fraction(self.physical_gpus) if self.physical_gpus and self.physical_gpus < 1 else Fraction(1)

    @property
    def gpu_memory_mib(self) -> Decimal | None:
        """The memory of each of its devices in MiB: from its label, else nominal; None if unknown."""
        labeled = parse_whole_number(GPU_MEMORY_LABEL.value_in(self.labels))
        nominal = memory_gb(self.gpu_model)
        return Decimal(labeled or 0) or (
            Decimal(nominal * 1024) * self.gpu_fraction.numerator / self.gpu_fraction.denominator if nominal else None
        )

    @cached_property
    def devices(self) -> int | None:
        """The number of GPU devices (GPUs or fractions of one) or Neuron devices; None if unknown."""
        return None if self.physical_gpus is None else int(self.physical_gpus / self.gpu_fraction)

    @cached_property
    def advertises_mig(self) -> bool:
        """Whether it advertises MIG slices by their profiles (MIG strategy mixed)."""
        return any(name.startswith(MIG_PREFIX) for name in self.capacity)

    @property
    def is_neuron(self) -> bool:
        """Whether its accelerators are AWS Inferentia or Trainium."""
        return self.instance_type in NEURON_OF_INSTANCE or any(is_neuron(name) for name in self.capacity)

    def share(self, resource: str, slices_per_gpu: int | None) -> GpuShare:
        """Return the share of one unit of a resource on this node.

        Args:
            resource: named as in kube-state-metrics.
            slices_per_gpu: from the settings, for nodes whose labels do not say it.
        """
        key = resource, slices_per_gpu
        if key not in self._shares:
            self._shares[key] = self._scaled_share(resource, slices_per_gpu)
        return self._shares[key]

    @cached_property
    def _shares(self) -> dict[tuple[str, int | None], GpuShare]:
        """The shares that were needed so far, because pods request the same resources."""
        return {}

    def _scaled_share(self, resource: str, slices_per_gpu: int | None) -> GpuShare:
        unscaled = self._unscaled_share(resource, slices_per_gpu)
        if self.physical_gpus is None or resource == DRA_GPU_DRIVER:
            return unscaled
        if self._has_complete_mig_layouts:
            return self._share_capped_on_gpus(
                unscaled,
                [
                    uuid
                    for uuid, layout in self.mig_layouts.items()
                    for slice_resource in layout
                    if slice_resource == resource
                ],
            )
        advertised = self._gpus_of_units(self.capacity, slices_per_gpu, scaled=False)
        # The shares of a MIG geometry can exceed the GPU (3g+2g+1g+1g is 15/14), so they are scaled down to it.
        if advertised > self.physical_gpus:
            return GpuShare(
                unscaled.gpus_per_unit * self.physical_gpus / advertised, unscaled.source, unscaled.replicas
            )
        return unscaled

    def mig_share_on(self, resource: str, gpus: Sequence[str]) -> GpuShare:
        """Return the share of one MIG slice on some GPUs (UUIDs), scaled down where a GPU's shares exceed it."""
        if not self._has_complete_mig_layouts:
            return self.share(resource, None)
        return self._share_capped_on_gpus(self._unscaled_share(resource, None), gpus)

    def _share_capped_on_gpus(self, unscaled: GpuShare, gpus: Sequence[str]) -> GpuShare:
        if not gpus:
            return unscaled
        scale = sum((self._scale_by_gpu[uuid] for uuid in gpus), Fraction(0)) / len(gpus)
        return GpuShare(unscaled.gpus_per_unit * scale, unscaled.source, unscaled.replicas)

    @cached_property
    def _has_complete_mig_layouts(self) -> bool:
        """Whether exporters report exactly the slices that the node advertises."""
        reported: dict[str, int] = {}
        for layout in self.mig_layouts.values():
            for slice_resource in layout:
                reported[slice_resource] = reported.get(slice_resource, 0) + 1
        advertised = {name: int(units) for name, units in self.capacity.items() if name.startswith(MIG_PREFIX)}
        return bool(advertised) and reported == advertised

    @cached_property
    def _scale_by_gpu(self) -> Mapping[str, Fraction]:
        """The factor for the shares on each GPU, so that they do not exceed the GPU."""
        sums = {
            uuid: sum(
                (self._unscaled_share(slice_resource, None).gpus_per_unit for slice_resource in layout), Fraction(0)
            )
            for uuid, layout in self.mig_layouts.items()
        }
        return {uuid: min(Fraction(1), 1 / total) if total else Fraction(1) for uuid, total in sums.items()}

    def gpus_of_units(self, units: Mapping[str, Decimal], slices_per_gpu: int | None) -> Fraction:
        """Return the physical GPUs of units by resource; Neuron devices and their cores are the same hardware."""
        return self._gpus_of_units(units, slices_per_gpu, scaled=True)

    def cores_per_device(self) -> int:
        """Return the NeuronCores per Neuron device, as the node advertises them; otherwise those of its type.

        On Trainium2 and later, a logical core is one, two or more physical cores, as the node is configured.
        """
        cores = self.capacity.get(NEURON_CORE, Decimal(0))
        advertised = max(self.capacity.get(name, Decimal(0)) for name in NEURON_DEVICES)
        devices = advertised or Decimal(self.devices or 0)
        if devices and cores and cores % devices == 0:
            return int(cores / devices)
        return NEURON_OF_INSTANCE.get(self.instance_type, (0, 1))[1]

    def _gpus_of_units(self, units: Mapping[str, Decimal], slices_per_gpu: int | None, *, scaled: bool) -> Fraction:
        share = self.share if scaled else self._unscaled_share
        gpus: list[Fraction] = []
        neuron: list[Fraction] = []
        for resource, count in units.items():
            devices = Fraction(count) * share(resource, slices_per_gpu).gpus_per_unit
            (neuron if is_neuron(resource) else gpus).append(devices)
        parts = [*gpus, max(neuron)] if neuron else gpus
        return parts[0] if len(parts) == 1 else sum(parts, Fraction(0))

    def _unscaled_share(self, resource: str, slices_per_gpu: int | None) -> GpuShare:
        if gpus := self.gpus_per_unit.get(resource):
            return GpuShare(gpus, "settings", max(1, int(1 / gpus)))
        device_share, fraction = self._share_of_resource(resource, slices_per_gpu), self.gpu_fraction
        return (
            device_share
            if fraction == 1
            else GpuShare(device_share.gpus_per_unit * fraction, device_share.source, device_share.replicas)
        )

    def _share_of_resource(self, resource: str, slices_per_gpu: int | None) -> GpuShare:
        """Return which part of one of the node's devices one unit of a resource stands for."""
        if resource.startswith(MIG_PREFIX):
            return self._mig_share(resource)
        partition = partition_type(resource) or (self.partition if resource == AMD_GPU else "")
        if partition:
            return self._partition_share(partition, resource)
        if is_neuron(resource):
            return GpuShare(Fraction(1, self.cores_per_device() if resource == NEURON_CORE else 1), "neuron")
        if resource == GPU and self.advertises_mig:
            return GpuShare(Fraction(1), "whole")
        if resource == GPU and self.capacity.get(GPU_SHARED):
            return GpuShare(Fraction(1), "whole")
        if resource == GPU and self.mig_profile:
            share = profile_share(self.mig_profile, self.gpu_model)
            if share is not None:
                return GpuShare(share / self.replicas, "product-label", self.replicas)
            share = compute_share(self.mig_profile)
            if share is not None and not self.devices:
                return GpuShare(share / self.replicas, "mig-compute-slices", self.replicas)
        if self.replicas > 1:
            return GpuShare(Fraction(1, self.replicas), "sharing", self.replicas)
        units = self.capacity.get(resource)
        if self.devices and units and units > self.devices:
            share = Fraction(self.devices) / Fraction(units)
            return GpuShare(share, "capacity", max(1, int(1 / share)))
        if self.devices and units == self.devices:
            return GpuShare(Fraction(1), "capacity")
        if resource == GPU and slices_per_gpu:
            return GpuShare(Fraction(1, slices_per_gpu), "settings")
        return GpuShare(Fraction(1), "whole")

    def _partition_share(self, partition: str, resource: str) -> GpuShare:
        """Return the share of a partition of an AMD GPU."""
        units = self.capacity.get(resource)
        if self.devices and units and len(self.capacity) == 1 and units % self.devices == 0:
            return GpuShare(Fraction(self.devices) / Fraction(units), "partition")
        parts = partitions_per_gpu(partition, self.gpu_model)
        if parts is not None:
            return GpuShare(Fraction(1, parts), "partition")
        return GpuShare(Fraction(1, USUAL_COMPUTE_DIES), "partition-name")

    def _mig_share(self, resource: str) -> GpuShare:
        profile = resource.removeprefix(MIG_PREFIX)
        replicas = 1
        if profile.endswith(SHARED_SUFFIX):
            profile = profile.removesuffix(SHARED_SUFFIX)
            replicas = parse_whole_number(mig_replicas(profile.replace("_", ".")).value_in(self.labels)) or 1
        share = profile_share(profile.replace("_", "."), self.gpu_model)
        if share is not None:
            return GpuShare(share / replicas, "mig-profile", replicas)
        # The profile is not in this model's catalog entry. Its name still has the number of compute slices.
        share = compute_share(profile.replace("_", "."))
        if share is not None:
            return GpuShare(share / replicas, "mig-compute-slices", replicas)
        units = sum((Fraction(count) for count in self.capacity.values()), Fraction(0))
        return GpuShare(min(Fraction(1), (self.devices or 1) / units) if units else Fraction(1), "node-average")


@cache
def partition_type(resource: str) -> str:
    """Return the partitions of AMD GPUs that a resource names, such as `cpx_nps4`; "" for other resources."""
    return (
        resource.removeprefix(AMD.resource_prefix) if vendor_of(resource) == AMD.vendor and resource != AMD_GPU else ""
    )


def is_neuron(resource: str) -> bool:
    """Whether a resource is an AWS Neuron device or core."""
    return resource.startswith("aws_amazon_com_neuron")


@cache
def to_kubernetes_resource(resource: str) -> str:
    """Return a resource's name in Kubernetes: `nvidia_com_mig_1g_5gb` → `nvidia.com/mig-1g.5gb`."""
    if resource.startswith(MIG_PREFIX):
        return "nvidia.com/mig-" + resource.removeprefix(MIG_PREFIX).replace("_", ".")
    if resource == "nvidia_com_gpumem_percentage":
        return "nvidia.com/gpumem-percentage"
    if resource.startswith(GPU):
        return "nvidia.com/gpu" + resource.removeprefix(GPU).replace("_", ".")
    accelerator = accelerator_of_vendor(vendor_of(resource))
    if accelerator is not None:
        return f"{accelerator.domain}/{resource.removeprefix(accelerator.resource_prefix)}"
    return resource
