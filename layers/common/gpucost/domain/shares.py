"""GPU nodes and what a requested unit is on them: which share of a physical GPU (design §3)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from gpucost.domain.devices import GPUS_OF_INSTANCE, compute_share, profile_share
from gpucost.domain.money import quantize
from gpucost.domain.observations import DeviceObservation, NodeObservation

GPU = "nvidia_com_gpu"
MIG_PREFIX = "nvidia_com_mig_"
SHARED_SUFFIX = "_shared"

_INSTANCE_TYPE = ("label_node_kubernetes_io_instance_type", "label_beta_kubernetes_io_instance_type")
_ZONE = ("label_topology_kubernetes_io_zone", "label_failure_domain_beta_kubernetes_io_zone")
_NODE_POOL = (
    "label_karpenter_sh_nodepool",
    "label_karpenter_sh_provisioner_name",
    "label_eks_amazonaws_com_nodegroup",
    "label_alpha_eksctl_io_nodegroup_name",
)
_CAPACITY_TYPE = (
    "label_karpenter_sh_capacity_type",
    "label_eks_amazonaws_com_capacity_type",
    "label_node_lifecycle",
    "label_lifecycle",
)
_CAPACITY_TYPES = {"spot": "spot", "ec2spot": "spot", "on-demand": "on-demand", "ondemand": "on-demand"}


@dataclass(frozen=True)
class Share:
    """Physical GPUs per requested unit, and which way it was found."""

    of_gpu: Fraction
    source: str

    @cached_property
    def published(self) -> Decimal:
        """The share as it stands on lines, rounded to 1e-12."""
        return quantize(self.of_gpu)


@dataclass(frozen=True, slots=True)
class GpuNode:
    """What a node's labels, its capacity and its devices say about its GPUs."""

    name: str
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    node_pool: str = ""
    gpu_model: str = ""
    mig_profile: str = ""
    """The one profile of all slices where they are advertised as `nvidia.com/gpu` (MIG strategy single)."""
    replicas: int = 1
    """Holders per GPU under time-slicing or MPS."""
    physical: int | None = None
    """Physical GPUs; None where nothing tells."""
    capacity: Mapping[str, Decimal] | None = None
    labels: Mapping[str, str] | None = None

    def share(self, resource: str, slices_per_gpu: int | None) -> Share | None:
        """What one unit of a resource is on this node; None where a MIG profile is not known for the model.

        Args:
            resource: as kube-state-metrics writes it.
            slices_per_gpu: the settings' word for nodes that say nothing.
        """
        found = self._unscaled(resource, slices_per_gpu)
        if found is None or self.physical is None:
            return found
        advertised = Fraction(0)
        for name, units in (self.capacity or {}).items():
            share = self._unscaled(name, slices_per_gpu)
            advertised += Fraction(units) * share.of_gpu if share else 0
        # Dominant shares of a geometry can sum above the GPU (3g+2g+1g+1g is 15/14): its holders share it, not more.
        if advertised > self.physical:
            return Share(found.of_gpu * self.physical / advertised, found.source)
        return found

    def _unscaled(self, resource: str, slices_per_gpu: int | None) -> Share | None:
        if resource.startswith(MIG_PREFIX):
            return self._mig_share(resource)
        capacity = self.capacity or {}
        if resource == GPU and any(name.startswith(MIG_PREFIX) for name in capacity):
            return Share(Fraction(1), "whole")
        if resource == GPU and self.mig_profile:
            share = profile_share(self.mig_profile, self.gpu_model)
            if share is not None:
                return Share(share / self.replicas, "product-label")
            share = compute_share(self.mig_profile)
            if share is not None and not self.physical:
                return Share(share / self.replicas, "mig-compute-slices")
        if self.replicas > 1:
            return Share(Fraction(1, self.replicas), "sharing")
        units = capacity.get(resource)
        if self.physical and units and units >= self.physical:
            return Share(Fraction(self.physical) / Fraction(units), "capacity")
        if resource == GPU and slices_per_gpu:
            return Share(Fraction(1, slices_per_gpu), "settings")
        return Share(Fraction(1), "whole")

    def _mig_share(self, resource: str) -> Share | None:
        profile = resource.removeprefix(MIG_PREFIX)
        replicas = 1
        if profile.endswith(SHARED_SUFFIX):
            profile = profile.removesuffix(SHARED_SUFFIX)
            label = (self.labels or {}).get(f"label_nvidia_com_mig_{profile}_replicas", "1")
            replicas = int(label) if label.isdigit() and int(label) > 0 else 1
        share = profile_share(profile.replace("_", "."), self.gpu_model)
        if share is not None:
            return Share(share / replicas, "mig-profile")
        # A profile that no table knows for this model: its compute slices are in its name, and better than nothing.
        share = compute_share(profile.replace("_", "."))
        return None if share is None else Share(share / replicas, "mig-compute-slices")


def describe(node: NodeObservation, devices: Sequence[DeviceObservation]) -> GpuNode:
    """Read a node's facts off its labels, capacity and DCGM devices.

    How many physical GPUs: the instance type's catalogue entry, else the distinct DCGM UUIDs, else the label
    `nvidia.com/gpu.count` unless slices are advertised as GPUs (there it counts slices). Exporters leave idle GPUs
    out at times, so UUIDs count only where GPUs are sliced or shared, or no capacity is known.
    """
    labels = node.labels
    product = labels.get("label_nvidia_com_gpu_product", "")
    shared = product.endswith("-SHARED")
    base, _, profile = product.removesuffix("-SHARED").partition("-MIG-")
    instance_type = _first(labels, _INSTANCE_TYPE)
    replicas = labels.get("label_nvidia_com_gpu_replicas", "")
    sharing = labels.get("label_nvidia_com_gpu_sharing_strategy", "time-slicing" if shared else "")
    count = labels.get("label_nvidia_com_gpu_count", "")
    sliced = bool(profile) or replicas not in {"", "0", "1"} or any(device.mig_instance for device in devices)
    sliced = sliced or any(name.startswith(MIG_PREFIX) for name in node.capacity)
    uuids = len({device.uuid for device in devices if device.uuid}) if sliced or not node.capacity else 0
    counted = int(count) if count.isdigit() and not profile else 0
    return GpuNode(
        name=node.name,
        instance_type=instance_type,
        zone=_first(labels, _ZONE),
        capacity_type=_capacity_type(_first(labels, _CAPACITY_TYPE)),
        node_pool=_first(labels, _NODE_POOL),
        gpu_model=base or next((re.sub(r"\s+", "-", device.model) for device in devices if device.model), ""),
        mig_profile=profile,
        replicas=int(replicas) if replicas.isdigit() and int(replicas) > 1 and sharing != "none" else 1,
        physical=GPUS_OF_INSTANCE.get(instance_type) or uuids or counted or None,
        capacity=node.capacity,
        labels=labels,
    )


def kubernetes_resource(resource: str) -> str:
    """A resource's name as Kubernetes writes it: `nvidia_com_mig_1g_5gb` → `nvidia.com/mig-1g.5gb`."""
    if resource.startswith(MIG_PREFIX):
        return "nvidia.com/mig-" + resource.removeprefix(MIG_PREFIX).replace("_", ".")
    if resource.startswith(GPU):
        return "nvidia.com/gpu" + resource.removeprefix(GPU).replace("_", ".")
    return resource


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _capacity_type(value: str) -> str:
    plain = value.lower().replace("_", "-")
    return _CAPACITY_TYPES.get(plain, plain)
