"""The true state of a cluster at one instant, from its scenario: allocations, use, and free GPUs.

Between two edges (a pod binds, a scrape gap begins, …) nothing changes, so an hour's true figures are the
sum over the pieces between edges: the state at the piece's start times its length. Amounts are physical GPUs, exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpucost_devstack.fleet.scenario import Geometry, Minutes, Node, Pod, Scenario, Use

ZERO, WHOLE_GPU = Fraction(0), Fraction(1)


@dataclass(frozen=True)
class PodAllocation:
    """A pod's units of one resource, from its binding to its end."""

    pod: Pod
    node: Node
    geometry: Geometry
    """The node's geometry when the pod was bound. A slice keeps its size after that."""
    resource: str
    units: int

    @property
    def share(self) -> Fraction:
        """Physical GPUs in one unit: the mean over the pod's devices, as slices of one profile may differ in size."""
        factors = [oversubscription_factor(self.geometry, device_index) for device_index in self.device_indices] or [
            WHOLE_GPU
        ]
        return self.geometry.share[self.resource] * sum(factors, ZERO) / len(factors)

    @property
    def gpus(self) -> Fraction:
        """Physical GPUs held."""
        return self.units * self.share

    @property
    def start(self) -> Minutes:
        """When the allocation starts: at the binding, but not before the node joins."""
        return max(self.pod.bound_at, self.node.lifetime[0])

    @property
    def running_from(self) -> Minutes:
        """When the pod starts to run. A pod whose image never arrives does not."""
        return max(self.pod.run_interval[0], self.node.lifetime[0])

    @property
    def end(self) -> Minutes:
        """When the allocation ends: the pod finishes, is deleted, or its node leaves."""
        return min(self.pod.released_at, self.node.lifetime[1])

    @property
    def device_indices(self) -> Sequence[int]:
        """The pod's devices of this resource, without duplicates."""
        indices = dict.fromkeys(self.pod.devices)
        return [index for index in indices if _is_allocated_through(self.geometry, index, self.resource)]

    def is_allocated(self, at: Minutes) -> bool:
        """Whether the pod holds its units at a time."""
        return self.start <= at < self.end

    def is_running(self, at: Minutes) -> bool:
        """Whether the pod runs. Before that it pulls its image, and its GPUs count as waste."""
        return self.running_from <= at < self.end


def allocations(scenario: Scenario) -> list[PodAllocation]:
    """All allocations, in the order of the scenario's pods."""
    allocations_in_order = []
    for pod in scenario.pods:
        if pod.node is not None and pod.node.geometries:
            geometry = pod.node.geometry_at(max(pod.bound_at, pod.node.lifetime[0])) or pod.node.geometries[0]
            for resource, units in effective_request(pod).items():
                allocations_in_order.append(PodAllocation(pod, pod.node, geometry, resource, units))
    return allocations_in_order


def effective_request(pod: Pod) -> dict[str, int]:
    """Units by resource as the scheduler counts them: `max(Σ containers and sidecars, largest init container)`.

    A sidecar runs at the same time as the init containers after it. Scenarios with both list sidecars last.
    """
    requested: dict[str, int] = {}
    for units in (*pod.requests.values(), *pod.sidecar_requests.values()):
        for resource, count in units.items():
            requested[resource] = requested.get(resource, 0) + count
    for units in pod.init_requests.values():
        for resource, count in units.items():
            requested[resource] = max(requested.get(resource, 0), count)
    return {resource: count for resource, count in requested.items() if count}


class DeviceUse:
    """The true utilization of devices, and which pods cause it."""

    def __init__(self, scenario: Scenario, allocated: Iterable[PodAllocation]) -> None:
        self._unrequested_use = scenario.unrequested_use
        self._on_node: dict[int, list[PodAllocation]] = {}
        for allocation in allocated:
            self._on_node.setdefault(id(allocation.node), []).append(allocation)

    def allocations_of_device(self, node: Node, device_index: int) -> list[PodAllocation]:
        """All allocations that ever include a device, or a replica of it."""
        return [allocation for allocation in self._on_node.get(id(node), []) if device_index in allocation.pod.devices]

    def claim_sharers(self, allocation: PodAllocation) -> list[PodAllocation]:
        """The allocations of all pods with the same claims, including this one."""
        if not allocation.pod.claims:
            return [allocation]
        return [
            sharer
            for sharer in self._on_node[id(allocation.node)]
            if (sharer.pod.namespace, sharer.pod.claims) == (allocation.pod.namespace, allocation.pod.claims)
        ]

    def held_gpus(self, allocation: PodAllocation, at: Minutes) -> Fraction:
        """Physical GPUs that a pod holds at a time in which it holds any: its equal part of a shared claim."""
        sharers = self.claim_sharers(allocation)
        return allocation.gpus / max(1, sum(sharer.is_allocated(at) for sharer in sharers))

    def utilization(self, node: Node, device_index: int, at: Minutes) -> Fraction:
        """A device's utilization, 0 to 1: the sum of what its running pods demand, at most 1."""
        demand = Fraction(self._unrequested_use.get((node.name, device_index), "0"))
        running = {
            allocation.pod.id: allocation
            for allocation in self.allocations_of_device(node, device_index)
            if allocation.is_running(at)
        }
        for allocation in running.values():
            demand += curve_value_at(allocation.pod.use_of(list(allocation.pod.devices).index(device_index)), at)
        return min(demand, WHOLE_GPU)

    def used_gpus(self, allocation: PodAllocation, device_index: int, at: Minutes) -> Fraction:
        """Physical GPUs that a pod uses on a device. Use of a shared device is split by the replicas that run on it."""
        device_gpus = gpus_of_device(allocation.geometry, device_index)
        if allocation.geometry.replicas == 1:
            running = sum(sharer.is_running(at) for sharer in self.claim_sharers(allocation))
            return device_gpus * self.utilization(allocation.node, device_index, at) / max(1, running)
        pods = {
            sharer.pod.id: sharer.pod
            for sharer in self.allocations_of_device(allocation.node, device_index)
            if sharer.is_running(at)
        }
        replicas = sum(list(pod.devices).count(device_index) for pod in pods.values())
        return (
            device_gpus
            * self.utilization(allocation.node, device_index, at)
            * list(allocation.pod.devices).count(device_index)
            / replicas
        )

    def allocated_gpus(self, allocation: PodAllocation, device_index: int) -> Fraction:
        """Physical GPUs that a pod holds on one of its devices, which bounds its use of that device."""
        if allocation.geometry.replicas == 1:
            return gpus_of_device(allocation.geometry, device_index)
        return allocation.share * list(allocation.pod.devices).count(device_index)


@dataclass(frozen=True)
class GpusByState:
    """How a node's physical GPUs are divided at an instant. Apart from `excess`, the parts add up to all of them."""

    held: Fraction = ZERO
    unallocated: Fraction = ZERO
    stranded: Fraction = ZERO
    unobserved: Fraction = ZERO
    excess: Fraction = ZERO
    """GPUs held beyond those that the node has."""


def gpus_by_state(
    node: Node, at: Minutes, held: Fraction, *, is_unobserved: bool, exposes_capacity: bool
) -> GpusByState:
    """Divide a node's GPUs at an instant.

    Args:
        node: a node that exists at that time.
        at: the instant.
        held: physical GPUs held by pods that scrapes show.
        is_unobserved: whether the instant is in a long gap of the allocation source.
        exposes_capacity: whether kube-state-metrics exposes the capacity. If not, all GPUs count as advertised.
    """
    gpus = Fraction(node.gpus)
    if held > gpus:
        return GpusByState(held=held, excess=held - gpus)
    geometry = node.geometry_at(at)
    if not exposes_capacity or (geometry is not None and geometry.serves_claims):
        advertised = healthy = gpus
    elif geometry is None:
        advertised = healthy = ZERO
    else:
        advertised = min(gpus, advertised_gpus(geometry, geometry.units))
        healthy = min(gpus, advertised_gpus(geometry, {**geometry.units, **(geometry.allocatable or {})}))
    free = max(ZERO, advertised - held)
    unhealthy = min(free, advertised - healthy)
    if is_unobserved:
        return GpusByState(held=held, unobserved=free, stranded=gpus - held - free)
    return GpusByState(held=held, unallocated=free - unhealthy, stranded=gpus - held - free + unhealthy)


def advertised_gpus(geometry: Geometry, units: Mapping[str, int]) -> Fraction:
    """Physical GPUs in the advertised units. Neuron devices and cores are the same hardware, counted once."""
    if geometry.share_factors:
        return sum((gpus_of_device(geometry, index) for index in range(len(geometry.devices))), ZERO)
    amounts = {resource: geometry.share[resource] * count for resource, count in units.items()}
    neuron = {resource: amount for resource, amount in amounts.items() if "neuron" in resource}
    others = sum((amount for resource, amount in amounts.items() if resource not in neuron), ZERO)
    return others + max(neuron.values(), default=ZERO)


def gpus_of_device(geometry: Geometry, device_index: int) -> Fraction:
    """Physical GPUs in one device: a whole GPU, a MIG slice, an AMD partition or a Neuron core."""
    core = geometry.share.get("aws_amazon_com_neuroncore")
    if core is not None:
        return core
    profile = geometry.devices[device_index].profile
    amd_resource = next((name for name in (f"amd_com_{profile}", "amd_com_gpu") if name in geometry.share), "")
    if amd_resource:
        return geometry.share[amd_resource]
    if not profile:
        return WHOLE_GPU
    profile_share = geometry.share.get(_resource_of_device(profile))
    if profile_share is None:
        return geometry.share.get("nvidia_com_gpu", WHOLE_GPU)
    return profile_share * oversubscription_factor(geometry, device_index)


def oversubscription_factor(geometry: Geometry, device_index: int) -> Fraction:
    """The factor on a slice's share, below 1 if the slices of its GPU add up to more than the GPU."""
    return geometry.share_factors.get(geometry.devices[device_index].gpu, WHOLE_GPU)


def curve_value_at(curve: Use, at: Minutes) -> Fraction:
    """The value of a use curve at a time."""
    value = "0"
    for since, use in curve:
        if since > at:
            break
        value = use
    return Fraction(value)


def _is_allocated_through(geometry: Geometry, device_index: int, resource: str) -> bool:
    """Whether a device is allocated through a resource."""
    if "neuron" in resource:
        return True
    profile = geometry.devices[device_index].profile
    if resource.startswith("amd_com_"):
        return resource in {"amd_com_gpu", f"amd_com_{profile}"}
    is_mixed = bool(profile) and _resource_of_device(profile) in geometry.share
    return _resource_of_device(profile) == resource if is_mixed else not resource.startswith("nvidia_com_mig_")


def _resource_of_device(profile: str) -> str:
    return "nvidia_com_mig_" + profile.replace(".", "_").replace("+", "_")
