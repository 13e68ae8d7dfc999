"""GPU nodes over an hour: their life, and what they were at each time of it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gpucost.core.intervals import Interval
from gpucost.core.metering.gpu_models import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.metering.gpu_shares import MIG_PREFIX, GpuNode, is_neuron
from gpucost.core.metering.kubernetes_labels import (
    CAPACITY_TYPE,
    GPU_COUNT,
    GPU_PRODUCT,
    GPU_REPLICAS,
    GPU_SHARING,
    INSTANCE_TYPE,
    NODE_POOL,
    ZONE,
    ZONE_ID,
    whole_number,
)
from gpucost.core.metering.observations import DeviceSeries, NodeObservation

_CAPACITY_TYPES = {"spot": "spot", "ec2spot": "spot", "on-demand": "on-demand", "ondemand": "on-demand"}


@dataclass(frozen=True, slots=True)
class NodeLifecycle:
    """A node's hour: when it was there, and what it was while it advertised GPUs."""

    node: GpuNode
    """What it is in general: its labels, and what it advertised last."""
    present: Interval
    states: tuple[tuple[Interval, GpuNode], ...]
    """When it advertised GPUs, and as what; disjoint, in order."""

    def state_during(self, time: Interval) -> GpuNode:
        """What it was for most of a time; what it is in general where it advertised nothing then."""
        best = max(self.states, key=lambda state: state[0].overlap(time).length, default=None)
        return best[1] if best is not None and best[0].overlap(time).length else self.node


def describe_node(
    seen: NodeObservation,
    labels: Mapping[str, str],
    devices: Sequence[DeviceSeries],
    capacity: Mapping[str, Decimal],
    allocatable: Mapping[str, Decimal],
) -> GpuNode:
    """Read a node's facts off its labels, capacity and devices, at one time.

    How many physical GPUs: the instance type's catalogue entry, else the distinct DCGM UUIDs at one instant, else the
    label `nvidia.com/gpu.count` unless slices are advertised as GPUs (there it counts slices). Exporters leave idle
    GPUs out at times, so UUIDs count only where GPUs are sliced or shared, or no capacity is known.
    """
    product = GPU_PRODUCT.value(labels)
    shared = product.endswith("-SHARED")
    base, _, profile = product.removesuffix("-SHARED").partition("-MIG-")
    profile = "" if profile == "INVALID" else profile
    instance_type = INSTANCE_TYPE.value(labels)
    replicas = GPU_REPLICAS.value(labels)
    sharing = GPU_SHARING.value(labels) or ("time-slicing" if shared else "")
    count = GPU_COUNT.value(labels)
    sliced = bool(profile) or replicas not in {"", "0", "1"} or any(device.mig_instance for device in devices)
    sliced = sliced or any(name.startswith(MIG_PREFIX) for name in capacity)
    uuids = max_simultaneous_devices(devices) if sliced or not capacity else 0
    counted = 0 if profile else whole_number(count)
    neuron, _ = NEURON_OF_INSTANCE.get(instance_type, (0, 0))
    return GpuNode(
        name=seen.name,
        provider_id=seen.provider_id,
        instance_type=instance_type,
        zone=ZONE.value(labels),
        zone_id=ZONE_ID.value(labels),
        capacity_type=capacity_type(labels),
        node_pool=NODE_POOL.value(labels),
        gpu_model=base or next((re.sub(r"\s+", "-", device.model) for device in devices if device.model), ""),
        mig_profile=profile,
        replicas=1 if sharing == "none" else max(1, whole_number(replicas)),
        physical=GPUS_OF_INSTANCE.get(instance_type) or neuron or uuids or counted or _neuron_devices(capacity),
        capacity=capacity,
        allocatable={**capacity, **allocatable},
        labels=labels,
        layouts=_layouts(devices),
    )


def _layouts(devices: Iterable[DeviceSeries]) -> dict[str, list[str]]:
    """The resources of MIG devices, by UUID of their GPU."""
    parts = {(one.uuid, one.mig_instance): one.mig_profile for one in devices if one.mig_instance and one.mig_profile}
    found: dict[str, list[str]] = {}
    for (uuid, _), profile in sorted(parts.items()):
        found.setdefault(uuid, []).append(MIG_PREFIX + re.sub(r"[^a-z0-9]+", "_", profile.lower()))
    return found


def max_simultaneous_devices(devices: Iterable[DeviceSeries]) -> int:
    """The most distinct UUIDs at one instant: a GPU that was replaced within the hour is not one more."""
    whole: set[str] = set()
    times: dict[str, tuple[int, int]] = {}
    for device in devices:
        if not device.uuid:
            continue
        if device.samples is None:
            whole.add(device.uuid)
        elif device.samples:
            first, last = device.samples[0][0], device.samples[-1][0]
            before = times.get(device.uuid, (first, last))
            times[device.uuid] = (min(first, before[0]), max(last, before[1]))
    passing = [span for uuid, span in times.items() if uuid not in whole]
    at_once = (sum(start <= moment <= end for start, end in passing) for moment, _ in passing)
    return len(whole) + max(at_once, default=0)


def is_gpu_node(life: NodeLifecycle) -> bool:
    """By instance type or devices, not only by what it advertises: a node that boots costs money too."""
    return bool(life.node.physical) or bool(life.states)


def physical_gpus(node: GpuNode, slices_per_gpu: int | None) -> Fraction:
    """Physical GPUs; what it advertises where nothing else tells."""
    if node.physical is not None:
        return Fraction(node.physical)
    return node.advertised(node.capacity, slices_per_gpu)


def _neuron_devices(capacity: Mapping[str, Decimal]) -> int | None:
    units = [int(count) for name, count in capacity.items() if is_neuron(name)]
    # Devices and cores of the same hardware: there are at most as many devices as the smaller number.
    return min(units) if units else None


def capacity_type(labels: Mapping[str, str]) -> str:
    """Return a node's capacity type in one spelling: `spot`, `on-demand`, `reserved`, `capacity-block` or ""."""
    plain = CAPACITY_TYPE.value(labels).lower().replace("_", "-")
    return _CAPACITY_TYPES.get(plain, plain)
