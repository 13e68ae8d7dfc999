"""Which devices a pod's GPUs are: what exporters label, and what follows from it."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from gpucost.core.intervals import Interval
from gpucost.core.metering.device_use import DeviceHour, DeviceKey, PodLabel
from gpucost.core.metering.gpu_shares import GPU, GPU_SHARED, MIG_PREFIX, NEURON_CORE, SHARED_SUFFIX, is_neuron
from gpucost.core.metering.usage import Holding


@dataclass(slots=True)
class DeviceAssignments:
    """Devices by holding, and holdings by device."""

    devices_of: dict[int, list[DeviceHour]] = field(default_factory=dict)
    """By the place of the holding."""
    holders_of: dict[DeviceKey, list[int]] = field(default_factory=dict)
    """Places of holdings, by device."""

    def add(self, place: int, device: DeviceHour) -> None:
        """A holding's units include this device, or replicas of it."""
        self.devices_of.setdefault(place, []).append(device)
        self.holders_of.setdefault(device.key, []).append(place)


def assign_devices(
    holdings: Sequence[Holding], devices: Iterable[DeviceHour], window: Interval, suspect_nodes: Container[str] = ()
) -> DeviceAssignments:
    """Join holdings and devices by the pods that devices are labelled with while these run.

    A label outside of a pod's running time may linger after the finish, come before the start, or be of a namesake: it
    tells on which device the pod is only where no label within that time does, and there is no namesake. Where a node
    has one device only, whoever holds a unit of it is on that device, labelled or not. Who holds all of a node's GPUs
    alone is on all of them, where no label tells of anybody.

    Args:
        holdings: all of the hour.
        devices: all of the hour.
        window: the hour.
        suspect_nodes: names of nodes on which others may have held GPUs.
    """
    by_name: dict[tuple[str, str], list[int]] = {}
    for place, one in enumerate(holdings):
        by_name.setdefault((one.pod.namespace, one.pod.pod), []).append(place)
    labelled: dict[int, list[_Labelled]] = {}
    on_node: dict[str, list[DeviceHour]] = {}
    for device in devices:
        on_node.setdefault(device.node, []).append(device)
        for place, found in _labels(device, holdings, by_name).items():
            labelled.setdefault(place, []).append(found)
    claims = DeviceAssignments()
    neighbors: dict[str, list[Holding]] = {}
    for one in holdings:
        neighbors.setdefault(one.node.name, []).append(one)
    mapped = {
        device.node for devices in on_node.values() for device in devices
        if any(label[:2] in by_name for label in device.labels)
    }  # fmt: skip
    for place, one in enumerate(holdings):
        named = by_name[one.pod.namespace, one.pod.pod]
        has_namesakes = len(named) > 1 and len({holdings[other].pod.uid for other in named}) > 1
        own = _own(one, labelled.get(place, []), has_namesakes=has_namesakes)
        there = on_node.get(one.node.name, [])
        own = own or _only_device(one, there)
        if not own and one.node.name not in mapped and one.node.name not in suspect_nodes:
            own = _all_devices(one, there, neighbors[one.node.name], window)
        for device in own:
            claims.add(place, device)
    return claims


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A device with a pod's label, and for how long of the pod's running time."""

    device: DeviceHour
    while_running_ms: int


def _labels(
    device: DeviceHour, holdings: Sequence[Holding], by_name: Mapping[tuple[str, str], Sequence[int]]
) -> dict[int, _Labelled]:
    """The holdings whose pod a device is labelled with, by their places."""
    times: dict[int, int] = {}
    for label in device.labels:
        for place in by_name.get(label[:2], ()):
            one = holdings[place]
            if (not label[2] or label[2] == one.pod.uid) and is_compatible(one, device):
                times[place] = times.get(place, 0) + device.labeled_ms(label, one.running)
    return {place: _Labelled(device, time) for place, time in times.items()}


def _own(one: Holding, found: Sequence[_Labelled], *, has_namesakes: bool) -> list[DeviceHour]:
    """The devices that are a holding's, of those with its pod's label."""
    running = [labelled for labelled in found if labelled.while_running_ms]
    if not running:
        return [] if has_namesakes else [labelled.device for labelled in found]
    most = devices_expected(one)
    if has_namesakes and len(running) > most:
        # A namesake's label lingers on its device: the pod's own are those that were its for longest.
        running = sorted(running, key=lambda labelled: (-labelled.while_running_ms, labelled.device.key))[:most]
    return [labelled.device for labelled in running]


def _only_device(one: Holding, devices: Sequence[DeviceHour]) -> list[DeviceHour]:
    """The one device that a sharer can be on, whatever labels say."""
    if not is_shared_resource(one) or one.node.devices != 1:
        return []
    only = [device for device in devices if is_compatible(one, device)]
    return only if len(only) == 1 else []


def _all_devices(
    one: Holding, devices: Sequence[DeviceHour], neighbors: Sequence[Holding], window: Interval
) -> list[DeviceHour]:
    """All devices of a node that one pod holds whole; none where a sample may speak of another pod as well.

    Means over the hour are the pod's where it ran all hour. Of single samples those in its time are, where nobody
    else held GPUs of the node within two intervals of it: a sample speaks of the interval before it.
    """
    whole = one.resource in {GPU, GPU_SHARED} or is_neuron(one.resource)
    if not whole or is_shared_resource(one) or one.node.mig_profile or one.gpus != one.node.physical:
        return []
    fitting = [device for device in devices if not device.is_part and is_compatible(one, device)]
    if len(fitting) != len(devices) or len(devices) != devices_expected(one):
        return []
    near = 2 * max((device.interval for device in devices), default=0)
    around = Interval(one.held.start - near, one.held.end + near)
    if any(other is not one and other.held.overlap(around).length for other in neighbors):
        return []
    is_separable = one.running == window or not any(device.is_plain for device in devices)
    return fitting if is_separable else []


def scale_to_gpus(holdings: Sequence[Holding], claims: DeviceAssignments) -> list[Holding]:
    """Holdings of slices with the share that these are on the very GPUs that they are known to be on."""
    found = list(holdings)
    for place, devices in claims.devices_of.items():
        one = found[place]
        if one.resource.startswith(MIG_PREFIX) and one.node.layouts:
            gpus = [device.key[1] for device in devices if device.key[1] in one.node.layouts]
            share = one.node.share_on(one.resource, gpus) if gpus else one.share
            if share.gpus_per_unit != one.share.gpus_per_unit:
                found[place] = replace(one, share=share)
    return found


def is_compatible(holding: Holding, device: DeviceHour) -> bool:
    """Whether a device can be of the kind that a holding asks for: slices of its profile, whole GPUs, NeuronCores."""
    resource = holding.resource
    if is_neuron(resource) != device.is_neuron:
        return False
    if resource.startswith(MIG_PREFIX):
        wanted = resource.removeprefix(MIG_PREFIX).removesuffix(SHARED_SUFFIX)
        profiles = {one.mig_profile for one in device.series}
        return device.is_part and (not any(profiles) or wanted in {_sanitised(profile) for profile in profiles})
    if resource in {GPU, GPU_SHARED} and any(name.startswith(MIG_PREFIX) for name in holding.node.capacity):
        return not device.is_part
    return device.is_part or not holding.node.mig_profile


def is_shared_resource(holding: Holding) -> bool:
    """Whether units are replicas of devices (time-slicing, MPS)."""
    return holding.share.replicas > 1


def replicas_per_device(holding: Holding, device: DeviceHour) -> int:
    """Units that one device is handed out as; a slice whose share follows from counting slices is no replica."""
    return 1 if holding.share.source == "capacity" and device.is_part else holding.share.replicas


def gpus_of_device(holding: Holding, device: DeviceHour) -> Fraction:
    """Physical GPUs that a device is."""
    if device.is_neuron and holding.resource != NEURON_CORE:
        return holding.share.gpus_per_unit / holding.node.cores_per_device()
    count = replicas_per_device(holding, device)
    return holding.share.gpus_per_unit if count == 1 else holding.share.gpus_per_unit * count


def devices_expected(holding: Holding) -> int:
    """How many devices an exclusive holding is."""
    per_unit = holding.node.cores_per_device() if is_neuron(holding.resource) else 1
    return holding.units * (1 if holding.resource == NEURON_CORE else per_unit)


def replicas_held(holding: Holding, device: DeviceHour, devices: int) -> Fraction:
    """Replicas that a holding has of one of its devices: told by slots, else spread evenly over its devices."""
    told = max((device.slot_count(label) for label in labels_of_holding(holding, device)), default=0)
    return Fraction(min(told, holding.units)) if told else Fraction(holding.units, max(1, devices))


def labels_of_holding(holding: Holding, device: DeviceHour) -> list[PodLabel]:
    """The labels on a device that are the holding's pod."""
    labels = device.labels_by_pod.get((holding.pod.namespace, holding.pod.pod), ())
    return [label for label in labels if label[2] in {"", holding.pod.uid}]


def _sanitised(profile: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", profile.lower())
