"""The true state of a cluster at one instant, from its scenario: allocations, use, and free GPUs.

Between two edges (a pod binds, a scrape gap begins, …) nothing changes, so an hour's true figures are the
sum over the pieces between edges: the state at the piece's start times its length. Amounts are physical GPUs, exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property

from gpucost_devstack.fleet.hardware import MODELS, placements, slice_of_gpu
from gpucost_devstack.fleet.scenario import (
    CORES,
    FRACTION_RESOURCES,
    MEMORY,
    MEMORY_PERCENTAGE,
    Device,
    Geometry,
    Minutes,
    Node,
    Pod,
    Scenario,
    Use,
)

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

    @cached_property
    def share(self) -> Fraction:
        """Physical GPUs in one unit: the mean over the pod's devices, as slices of one profile may differ in size."""
        if self.geometry.vgpus_per_gpu:
            return fraction_of_gpus(self.pod, self.geometry) / self.units
        if self.is_fraction:
            memory = self.geometry.memory_mib // 100 * 100  # KAI Scheduler rounds it down
            return Fraction(self.pod.fraction) if self.pod.fraction else Fraction(self.pod.fraction_mib, memory)
        factors = [oversubscription_factor(self.geometry, device_index) for device_index in self.device_indices] or [
            WHOLE_GPU
        ]
        return self.geometry.share[self.resource] * sum(factors, ZERO) / len(factors)

    @property
    def is_fraction(self) -> bool:
        """Whether it is a fraction of GPUs that other pods reserve."""
        return bool(self.pod.groups) and not self.pod.reserves

    @cached_property
    def gpus(self) -> Fraction:
        """Physical GPUs held."""
        return self.units * self.share

    @cached_property
    def start(self) -> Minutes:
        """When the allocation starts: at the binding, but not before the node joins."""
        return max(self.pod.bound_at, self.node.lifetime[0])

    @cached_property
    def running_from(self) -> Minutes:
        """When the pod starts to run. A pod whose image never arrives does not."""
        return max(self.pod.run_interval[0], self.node.lifetime[0])

    @cached_property
    def end(self) -> Minutes:
        """When the allocation ends: the pod finishes, is deleted, or its node leaves."""
        return min(self.pod.released_at, self.node.lifetime[1])

    @cached_property
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
                if resource in FRACTION_RESOURCES:
                    continue
                allocations_in_order.append(PodAllocation(pod, pod.node, geometry, resource, units))
    return allocations_in_order


def effective_request(pod: Pod) -> dict[str, int]:
    """Units by resource as the scheduler counts them: `max(Σ containers and sidecars, largest init container)`.

    A sidecar runs at the same time as the init containers after it. Scenarios with both list sidecars last.
    """
    if pod.groups and not pod.reserves:
        return {"nvidia_com_gpu": len(pod.groups)}
    requested: dict[str, int] = {}
    for units in (*pod.requests.values(), *pod.sidecar_requests.values()):
        for resource, count in units.items():
            requested[resource] = requested.get(resource, 0) + count
    for units in pod.init_requests.values():
        for resource, count in units.items():
            requested[resource] = max(requested.get(resource, 0), count)
    return {resource: count for resource, count in requested.items() if count}


def fraction_of_gpus(pod: Pod, geometry: Geometry) -> Fraction:
    """GPUs that HAMi gives to a pod: of each GPU the larger share, of the cores or of the memory."""
    containers = {**pod.requests, **pod.sidecar_requests}.values()
    init_containers = pod.init_requests.values()
    return max(
        sum((fraction_of_container(units, geometry) for units in containers), ZERO),
        max((fraction_of_container(units, geometry) for units in init_containers), default=ZERO),
    )


def fraction_of_container(units: Mapping[str, int], geometry: Geometry) -> Fraction:
    """GPUs that HAMi gives to a container. Without a request for memory, it gets all of it."""
    cores = Fraction(units.get(CORES, 0), geometry.cores)
    if MEMORY in units:
        memory = Fraction(units[MEMORY], geometry.memory_mib)
    else:
        memory = Fraction(units.get(MEMORY_PERCENTAGE, 100), 100)
    return units.get("nvidia_com_gpu", 0) * min(WHOLE_GPU, max(cores, memory))


class DeviceUse:
    """The true utilization of devices, and which pods cause it."""

    def __init__(self, scenario: Scenario, allocated: Iterable[PodAllocation]) -> None:
        self._scenario = scenario
        self._has_monitors = scenario.hami is not None and scenario.hami.exposes_monitors
        self._on_node: dict[int, list[PodAllocation]] = {}
        for allocation in allocated:
            self._on_node.setdefault(id(allocation.node), []).append(allocation)

    def allocations_of_device(self, node: Node, device_index: int) -> list[PodAllocation]:
        """All allocations that ever include a device, or a replica of it."""
        return [allocation for allocation in self._on_node.get(id(node), []) if device_index in allocation.pod.devices]

    def claim_sharers(self, allocation: PodAllocation) -> list[PodAllocation]:
        """The allocations on which depends what this one holds, itself included.

        These are pods with the same claims, and those on a GPU of HAMi whose shares may add up to more than it.
        """
        if allocation.geometry.vgpus_per_gpu:
            crowded = [index for index in allocation.device_indices if self._may_exceed(allocation.node, index)]
            sharers = [sharer for index in crowded for sharer in self.allocations_of_device(allocation.node, index)]
            return list({id(sharer): sharer for sharer in [allocation, *sharers]}.values())
        if not allocation.pod.claims:
            return [allocation]
        return [
            sharer
            for sharer in self._on_node[id(allocation.node)]
            if (sharer.pod.namespace, sharer.pod.claims) == (allocation.pod.namespace, allocation.pod.claims)
        ]

    def _may_exceed(self, node: Node, device_index: int) -> bool:
        shares = (allocation.share for allocation in self.allocations_of_device(node, device_index))
        return sum(shares, ZERO) > WHOLE_GPU

    def held_gpus(self, allocation: PodAllocation, at: Minutes) -> Fraction:
        """Physical GPUs that a pod holds at a time in which it holds any."""
        holding = [other for other in self._on_node[id(allocation.node)] if other.is_allocated(at)]
        return self.held_gpus_among(allocation, holding)

    def held_gpus_among(self, allocation: PodAllocation, holding: Sequence[PodAllocation]) -> Fraction:
        """Physical GPUs that a pod holds while some allocations exist.

        It holds its equal part of a shared claim. Of a GPU of HAMi whose pods' shares exceed it, it holds a part in
        proportion to its share.
        """
        sharers = [sharer for sharer in self.claim_sharers(allocation) if sharer in holding]
        if not allocation.geometry.vgpus_per_gpu:
            factor = partition_factor([other for other in self.partition_neighbors(allocation) if other in holding])
            return allocation.gpus * factor / max(1, len(sharers))
        held = ZERO
        for index in allocation.device_indices:
            on_device = sum((sharer.share for sharer in sharers if index in sharer.pod.devices), ZERO)
            held += allocation.share / max(WHOLE_GPU, on_device)
        return held

    def partition_factor(self, allocation: PodAllocation, at: Minutes) -> Fraction:
        """The factor on a partition's share, below 1 while the partitions of its GPU add up to more than the GPU."""
        neighbors = self.partition_neighbors(allocation)
        return partition_factor([neighbor for neighbor in neighbors if neighbor.is_allocated(at)])

    def partition_neighbors(self, allocation: PodAllocation) -> list[PodAllocation]:
        """The allocations that ever have a partition of the same GPU, including this one; none of a whole GPU."""
        gpu = gpu_of_partition(allocation)
        if gpu is None:
            return []
        return [other for other in self._on_node[id(allocation.node)] if gpu_of_partition(other) == gpu]

    def is_measured_by_container(self, allocation: PodAllocation) -> bool:
        """Whether HAMi measures the use of a pod, and of all others on its GPUs, because all limit their cores."""
        if not allocation.geometry.vgpus_per_gpu or not self._has_monitors:
            return False
        pods = [
            sharer.pod
            for index in allocation.device_indices
            for sharer in self.allocations_of_device(allocation.node, index)
        ]
        containers = [units for pod in pods for units in pod.requests.values() if units.get("nvidia_com_gpu")]
        return all(units.get(CORES) for units in containers)

    def utilization(self, node: Node, device_index: int, at: Minutes) -> Fraction:
        """A device's utilization, 0 to 1: the sum of what its running pods demand, at most 1."""
        return min(self._demand(node, device_index, at), WHOLE_GPU)

    def _demand(self, node: Node, device_index: int, at: Minutes) -> Fraction:
        demand = Fraction(self._scenario.unrequested_use.get((node.name, device_index), "0"))
        running = {
            allocation.pod.id: allocation
            for allocation in self.allocations_of_device(node, device_index)
            if allocation.is_running(at)
        }
        for allocation in running.values():
            demand += curve_value_at(allocation.pod.use_of(list(allocation.pod.devices).index(device_index)), at)
        return demand

    def used_gpus(self, allocation: PodAllocation, device_index: int, at: Minutes) -> Fraction:
        """Physical GPUs that a pod uses on a device.

        Use of a shared device is split by what processes use, and what is left by the replicas of the other pods.
        """
        device_gpus = gpus_of_device(allocation.geometry, device_index) * self.partition_factor(allocation, at)
        if allocation.is_fraction:
            fractions = [
                sharer.share
                for sharer in self.allocations_of_device(allocation.node, device_index)
                if sharer.is_running(at) and sharer.is_fraction
            ]
            total = sum(fractions, ZERO)
            return self.utilization(allocation.node, device_index, at) * allocation.share / total
        if self.is_measured_by_container(allocation) and allocation.share < 1:
            if not allocation.is_running(at):
                return ZERO
            return curve_value_at(allocation.pod.use_of(list(allocation.pod.devices).index(device_index)), at)
        if allocation.geometry.replicas == 1:
            running = sum(sharer.is_running(at) for sharer in self.claim_sharers(allocation))
            return device_gpus * self.utilization(allocation.node, device_index, at) / max(1, running)
        sharers = {
            sharer.pod.id: sharer
            for sharer in self.allocations_of_device(allocation.node, device_index)
            if sharer.is_running(at)
        }
        if allocation.geometry.vgpus_per_gpu:
            total = sum((sharer.share for sharer in sharers.values()), ZERO)
            return device_gpus * self.utilization(allocation.node, device_index, at) * allocation.share / total
        left = self.utilization(allocation.node, device_index, at)
        by_process = {
            uid: self._use_by_process(sharer, device_index, at)
            for uid, sharer in sharers.items()
            if self.is_measured_by_process(sharer, at)
        }
        if allocation.pod.id in by_process:
            return device_gpus * by_process[allocation.pod.id]
        left -= sum(by_process.values(), ZERO)
        replicas = {
            uid: list(sharer.pod.devices).count(device_index)
            for uid, sharer in sharers.items()
            if uid not in by_process
        }
        return device_gpus * left * replicas[allocation.pod.id] / sum(replicas.values())

    def is_measured_by_process(self, allocation: PodAllocation, at: Minutes) -> bool:
        """Whether the exporter shows what a pod's processes use of shared devices, and the settings use that."""
        exporter = self._scenario.dcgm
        if exporter is None or allocation.geometry.replicas == 1 or "process" not in self._scenario.sources:
            return False
        has_uid = not any(start <= at < end for start, end in exporter.unknown_uids.get(allocation.pod.name, ()))
        return has_uid and exporter.per_process.get(allocation.node.name, False)

    def _use_by_process(self, allocation: PodAllocation, device_index: int, at: Minutes) -> Fraction:
        """A device's utilization by one pod: its demand, or its part of a device of which more is demanded than 1."""
        pod = allocation.pod
        demand = curve_value_at(pod.use_of(list(pod.devices).index(device_index)), at)
        return demand / max(WHOLE_GPU, self._demand(allocation.node, device_index, at))

    def allocated_gpus(self, allocation: PodAllocation, device_index: int) -> Fraction:
        """Physical GPUs that a pod holds on one of its devices, which bounds its use of that device."""
        if allocation.geometry.replicas == 1 and not allocation.is_fraction:
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


def gpu_of_partition(allocation: PodAllocation) -> int | None:
    """The GPU of a partition that a DRA driver offers; None for anything else."""
    if not allocation.geometry.serves_claims or not allocation.device_indices:
        return None
    device = allocation.geometry.devices[allocation.device_indices[0]]
    return device.gpu if device.profile else None


def partition_factor(holding: Sequence[PodAllocation]) -> Fraction:
    """The factor on the shares of one GPU's partitions: together, they are at most the GPU."""
    shares = {index: allocation.share for allocation in holding for index in allocation.device_indices}
    return 1 / max(WHOLE_GPU, sum(shares.values(), ZERO))


def stranded_of_partitions(model: str, geometry: Geometry, holding: Iterable[PodAllocation]) -> Fraction:
    """Physical GPUs that no claim can have at an instant, of GPUs that are divided into partitions.

    Where partitions are created for claims, that is what remains next to the largest partitions in the ResourceSlices
    that can be added. Otherwise it is what no partition of the GPU covers.
    """
    by_gpu: dict[int, set[int]] = {}
    indices = (
        {index for allocation in holding for index in allocation.device_indices}
        if geometry.is_dynamic
        else range(len(geometry.devices))
    )
    for index in indices:
        if geometry.devices[index].profile:
            by_gpu.setdefault(geometry.devices[index].gpu, set()).add(index)
    stranded = ZERO
    if geometry.is_dynamic and not geometry.offers_whole_gpus:
        by_gpu = {device.gpu: by_gpu.get(device.gpu, set()) for device in geometry.devices}
    for partitions in by_gpu.values():
        devices = [geometry.devices[index] for index in partitions]
        rest = WHOLE_GPU - sum((slice_of_gpu(model, device.profile) for device in devices), ZERO)
        more = ZERO
        if geometry.is_dynamic:
            taken = frozenset().union(*(placements(model)[device.profile, device.start] for device in devices))
            more = _most_in(model, taken, tuple(geometry.offered_profiles))
        stranded += max(ZERO, rest - more)
    return stranded


@cache
def _most_in(model: str, taken: frozenset[int], profiles: tuple[str, ...]) -> Fraction:
    """The largest share that partitions can have next to some memory slices: every possibility is tried."""
    further = (
        slice_of_gpu(model, profile) + _most_in(model, taken | slices, profiles)
        for (profile, _), slices in placements(model).items()
        if not taken & slices and (not profiles or profile in profiles)
    )
    return max(further, default=ZERO)


def offered_partitions(node: Node, geometry: Geometry) -> list[Device]:
    """The partitions in the ResourceSlices of a DRA driver that creates them for claims: all that its GPUs can have."""
    return [
        Device(gpu, profile, start=start)
        for gpu in sorted({device.gpu for device in geometry.devices})
        for profile, start in placements(model_of(node))
        if not geometry.offered_profiles or profile in geometry.offered_profiles
    ]


def gpus_by_state(
    node: Node,
    at: Minutes,
    held: Fraction,
    *,
    is_unobserved: bool,
    exposes_capacity: bool,
    stranded_of_partitions: Fraction = ZERO,
    disputed: Fraction = ZERO,
) -> GpusByState:
    """Divide a node's GPUs at an instant.

    Args:
        node: a node that exists at that time.
        at: the instant.
        held: physical GPUs held by pods that scrapes show.
        is_unobserved: whether the instant is in a long gap of the allocation source.
        exposes_capacity: whether kube-state-metrics exposes the capacity. If not, all GPUs count as advertised.
        stranded_of_partitions: physical GPUs that no claim can have.
        disputed: physical GPUs that pods hold in unknown parts.
    """
    gpus = Fraction(node.gpus)
    if held > gpus:
        return GpusByState(held=held, excess=held - gpus)
    geometry = node.geometry_at(at)
    if not exposes_capacity or (geometry is not None and geometry.serves_claims):
        advertised = healthy = gpus - stranded_of_partitions
    elif geometry is None:
        advertised = healthy = ZERO
    else:
        advertised = min(gpus, advertised_gpus(geometry, geometry.units))
        healthy = min(gpus, advertised_gpus(geometry, {**geometry.units, **(geometry.allocatable or {})}))
    free = max(ZERO, advertised - held - disputed)
    unhealthy = min(free, advertised - healthy)
    if is_unobserved:
        return GpusByState(held=held, unobserved=disputed + free, stranded=gpus - held - disputed - free)
    return GpusByState(
        held=held, unallocated=free - unhealthy, stranded=gpus - held - disputed - free + unhealthy, unobserved=disputed
    )


def advertised_gpus(geometry: Geometry, units: Mapping[str, int]) -> Fraction:
    """Physical GPUs in the advertised units. Neuron devices and cores are the same hardware, counted once."""
    if geometry.share_factors:
        return sum((gpus_of_device(geometry, index) for index in range(len(geometry.devices))), ZERO)
    amounts = {resource: geometry.share[resource] * count for resource, count in units.items()}
    neuron = {resource: amount for resource, amount in amounts.items() if "neuron" in resource}
    others = sum((amount for resource, amount in amounts.items() if resource not in neuron), ZERO)
    return others + max(neuron.values(), default=ZERO)


def gpus_of_device(geometry: Geometry, device_index: int) -> Fraction:
    """Physical GPUs in one device: a GPU, a part of one (g6f), a MIG slice, an AMD partition or a Neuron core."""
    core = geometry.share.get("aws_amazon_com_neuroncore")
    if core is not None:
        return core
    profile = geometry.devices[device_index].profile
    amd_resource = next((name for name in (f"amd_com_{profile}", "amd_com_gpu") if name in geometry.share), "")
    if amd_resource:
        return geometry.share[amd_resource]
    if not profile:
        return geometry.share.get("nvidia_com_gpu", Fraction(1, geometry.replicas)) * geometry.replicas
    profile_share = geometry.share.get(_resource_of_device(profile))
    if profile_share is None:
        return geometry.share.get("nvidia_com_gpu", WHOLE_GPU)
    return profile_share * oversubscription_factor(geometry, device_index)


def model_of(node: Node) -> str:
    """The key of a node's GPU model in the hardware tables."""
    return next(key for key, (dcgm, *_) in MODELS.items() if dcgm == node.model)


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
    return _exact(value)


@cache
def _exact(use: str) -> Fraction:
    return Fraction(use)


def _is_allocated_through(geometry: Geometry, device_index: int, resource: str) -> bool:
    """Whether a device is allocated through a resource."""
    if "neuron" in resource:
        return True
    profile = geometry.devices[device_index].profile
    if resource.startswith("amd_com_"):
        return resource in {"amd_com_gpu", f"amd_com_{profile}"}
    is_mixed = bool(profile) and _resource_of_device(profile) in geometry.share
    return _resource_of_device(profile) == resource if is_mixed else not resource.startswith("nvidia_com_mig_")


@cache
def _resource_of_device(profile: str) -> str:
    return "nvidia_com_mig_" + profile.replace(".", "_").replace("+", "_")
