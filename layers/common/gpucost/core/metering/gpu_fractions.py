"""Fractions of GPUs, and how pods on one GPU divide it.

By a scheduler of the catalog (`fraction_schedulers`), a container gets a number of vGPUs, each on another GPU, with the
same cores (percent) and memory (MiB or percent) of each. Without a request for memory it gets all of the GPU's. Every
GPU is advertised several times. KAI Scheduler reserves GPUs for several pods, whose annotations say what they get.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter

from msgspec import Struct

from gpucost.core.intervals import IntervalMs, enclosing_interval, overlapping, union
from gpucost.core.metering.capacity import DisputedHolding, cut_at_interval_edges, present_by_piece
from gpucost.core.metering.device_use import DeviceHour, GpusOfPod, uuids_of_fractions
from gpucost.core.metering.fraction_schedulers import FRACTION_RESOURCES, FRACTION_SCHEDULERS, HAMI
from gpucost.core.metering.gpu_shares import FRACTION, GPU, GpuNode, GpuShare
from gpucost.core.metering.observations import ContainerRequest, GpuFraction, GpuLimits, Observation, PodObservation
from gpucost.core.metering.usage import Holding

MAX_MEMORY_MIB = Decimal(10**7)
"""The most memory of one GPU that is plausible."""
_ALL_CORES = Decimal(100)
_ROUNDED_MIB = Decimal(100)
_ZERO, _WHOLE = Fraction(0), Fraction(1)


def nodes_with_vgpus(observation: Observation) -> set[str]:
    """Return the names of nodes whose `nvidia.com/gpu` are vGPUs."""
    requesting = {
        pod.node for pod in observation.pods for request in pod.requests if request.resource in FRACTION_RESOURCES
    }
    return requesting | observation.vgpus.limits.keys()


def limits_of(node: GpuNode, reported: GpuLimits | None) -> GpuLimits | None:
    """Return what is divided of each of a node's GPUs: as the scheduler reports it, else the memory of its labels.

    Reported limits count first, because a scheduler may allocate more memory than there is (deviceMemoryScaling).
    """
    if reported is not None:
        return reported
    return GpuLimits(_ALL_CORES, node.gpu_memory_mib) if node.gpu_memory_mib else None


def requested_gpus(requests: Iterable[ContainerRequest], limits: GpuLimits | None) -> Fraction | None:
    """Return the GPUs that a pod's containers request: `max(Σ containers and sidecars, largest init)`.

    Each vGPU counts with the larger of its shares of the cores and of the memory, as MIG profiles do.

    Returns:
        None if a container requests memory in MiB of GPUs whose memory is unknown.
    """
    by_container: dict[tuple[str, str], dict[str, Decimal]] = {}
    for request in requests:
        by_container.setdefault((request.container, request.kind), {})[request.resource] = request.units
    together, largest_init = _ZERO, _ZERO
    for (_, kind), units in by_container.items():
        share = _dominant_share(units, limits)
        if share is None:
            return None
        gpus = Fraction(units.get(GPU, Decimal(0))) * share
        if kind == "init":
            largest_init = max(largest_init, gpus)
        else:
            together += gpus
    return max(together, largest_init)


def _dominant_share(units: Mapping[str, Decimal], limits: GpuLimits | None) -> Fraction | None:
    """Return the share of each GPU that a container gets, at most 1; None if the GPU's memory is unknown."""
    scheduler = next((entry for entry in FRACTION_SCHEDULERS if not entry.resources.isdisjoint(units)), HAMI)
    cores = Fraction(units.get(scheduler.cores, Decimal(0))) / Fraction(limits.cores if limits else _ALL_CORES)
    if units.get(scheduler.memory):
        if limits is None:
            return _WHOLE if cores >= 1 else None
        memory = Fraction(units[scheduler.memory]) / Fraction(limits.memory_mib)
    else:
        memory = Fraction(units.get(scheduler.memory_percentage or "") or Decimal(100)) / 100
    return min(_WHOLE, max(cores, memory))


def fraction_share(gpus: Fraction, units: int, node: GpuNode) -> GpuShare:
    """Return the mean share of some vGPUs, which together are `gpus` of a node's devices."""
    share = gpus / units
    return GpuShare(share * node.gpu_fraction, FRACTION, 1 if share == 1 else max(2, int(1 / share)))


def share_of_reserved_gpu(fraction: GpuFraction, limits: GpuLimits | None) -> Fraction | None:
    """Return the share of each of its GPUs that a pod gets; None if it is unknown.

    KAI Scheduler rounds the memory of a GPU down to hundreds of MiB (getNodeGpuMemory in its node_info.go).
    """
    if fraction.share is not None:
        return Fraction(fraction.share)
    if fraction.memory_mib is None or limits is None or limits.memory_mib < _ROUNDED_MIB:
        return None
    return min(_WHOLE, Fraction(fraction.memory_mib) / Fraction(limits.memory_mib - limits.memory_mib % _ROUNDED_MIB))


class ReservedTime(Struct, frozen=True):
    """When a reserved GPU was held, or a pod with an unknown fraction was on it."""

    groups: frozenset[str]
    """Groups of pods; "" is one that is unknown."""
    node: GpuNode
    time: IntervalMs


def disputed_parts_of_reserved_gpus(
    reserved: Collection[ReservedTime], unknown: Sequence[ReservedTime], holdings: Iterable[Holding]
) -> Iterator[tuple[GpuNode, DisputedHolding]]:
    """Yield what pods may have held of reserved GPUs, beyond what is known.

    That is all of a GPU of an unknown group, and the rest of a GPU while a pod with an unknown fraction is on it.
    """
    if not reserved:
        return
    on_group: dict[str, list[Holding]] = {}
    for holding in holdings:
        for group in holding.pod.fraction.groups if holding.pod.fraction else ():
            on_group.setdefault(group, []).append(holding)
    for reservation in reserved:
        (group,) = reservation.groups
        gpus = reservation.node.gpu_fraction
        if not group:
            yield reservation.node, DisputedHolding(reservation.time, gpus)
            continue
        unknown_times = union(pod.time.overlap(reservation.time) for pod in unknown if group in pod.groups)
        sharers = on_group.get(group, [])
        for time, (present, unknown_present) in present_by_piece(
            reservation.time, [sharer.held for sharer in sharers], unknown_times
        ):
            if unknown_present:
                held = sum((sharers[index].share.gpus_per_unit for index in present), _ZERO)
                yield reservation.node, DisputedHolding(time, max(_ZERO, gpus - held))


def gpus_of_groups(
    pods: Collection[PodObservation], devices: Iterable[DeviceHour], gpus_of_pod: GpusOfPod
) -> dict[tuple[str, str], frozenset[str]]:
    """Add the GPUs of pods with fractions of reserved GPUs, which are those in the labels of their reservation pods.

    A GPU that no label names has the name of its group.
    """
    sharers = {(pod.namespace, pod.pod): pod.fraction.groups for pod in pods if pod.fraction is not None}
    if not sharers:
        return dict(gpus_of_pod)
    groups = {(pod.namespace, pod.pod): pod.reserved_group for pod in pods if pod.reserved_group}
    uuids = {
        groups[label[:2]]: device.key[1] for device in devices for label in device.labeled_pods if label[:2] in groups
    }
    named = {pod: frozenset(uuids.get(group, group) for group in names) for pod, names in sharers.items()}
    return {**gpus_of_pod, **named}


def limit_to_gpus(holdings: list[Holding], gpus_of_pod: GpusOfPod) -> list[Holding]:
    """Scale down what pods hold of a GPU while their shares add up to more than it, in proportion.

    A pod with most of a GPU's cores and one with most of its memory fit on it together. Where the GPU of a pod is
    unknown, the pods of its node are compared with all of its GPUs. A holding that is scaled for a part of its time
    is replaced by one for each time in which nothing changes.
    """
    on_gpu: dict[tuple[str, str, str], list[int]] = {}
    for index, holding in enumerate(holdings):
        for uuid in uuids_of_fractions(holding, gpus_of_pod):
            on_gpu.setdefault((holding.node.name, holding.node.provider_id, uuid), []).append(index)
    gpus = [(holdings[indexes[0]].node.gpu_fraction, indexes) for indexes in on_gpu.values()]
    limited = _limit(holdings, gpus, per_unit=True)
    unknown = {
        (holding.node.name, holding.node.provider_id)
        for holding in limited
        if holding.share.source == FRACTION and not uuids_of_fractions(holding, gpus_of_pod)
    }
    if not unknown:
        return limited
    on_node: dict[tuple[str, str], list[int]] = {}
    for index, holding in enumerate(limited):
        key = (holding.node.name, holding.node.provider_id)
        if key in unknown and holding.share.source == FRACTION:
            on_node.setdefault(key, []).append(index)
    nodes = [
        (Fraction(physical), indexes)
        for indexes in on_node.values()
        if (physical := limited[indexes[0]].node.physical_gpus) is not None
    ]
    return _limit(limited, nodes, per_unit=False)


_Factors = list[tuple[IntervalMs, Fraction]]


def _limit(
    holdings: list[Holding], groups: Iterable[tuple[Fraction, Sequence[int]]], *, per_unit: bool
) -> list[Holding]:
    """Scale down holdings while those of a group exceed its GPUs.

    Args:
        holdings: all holdings.
        groups: the GPUs of each group, and the indexes of its holdings.
        per_unit: whether each group is one of several GPUs on which a holding has a unit.
    """
    factors_of: dict[int, list[_Factors]] = {}
    for gpus, indexes in groups:
        held_of = {
            index: holdings[index].share.gpus_per_unit if per_unit else holdings[index].gpus for index in indexes
        }
        if sum(held_of.values(), _ZERO) <= gpus:
            continue
        times = [holdings[index].held for index in indexes]
        factors: _Factors = []
        for time, (present,) in present_by_piece(enclosing_interval(times), times):
            held = sum((held_of[indexes[position]] for position in present), _ZERO)
            if held > gpus:
                factors.append((time, gpus / held))
        for index in indexes:
            factors_of.setdefault(index, []).append(factors)
    if not factors_of:
        return holdings
    limited: list[Holding] = []
    for index, holding in enumerate(holdings):
        limited.extend(_scaled(holding, factors_of[index], per_unit) if index in factors_of else [holding])
    return limited


def _scaled(holding: Holding, factors_by_gpu: Sequence[_Factors], per_unit: bool) -> Iterable[Holding]:
    """Cut a holding into pieces, each with the mean of the factors on its GPUs."""
    count = holding.units if per_unit else 1
    time_of = itemgetter(0)
    edges = [time for factors in factors_by_gpu for time, _ in overlapping(factors, holding.held, time_of)]
    for time in cut_at_interval_edges(holding.held, edges):
        lost = sum(
            (1 - factor for factors in factors_by_gpu for _, factor in overlapping(factors, time, time_of)), _ZERO
        )
        share = holding.share
        scaled = GpuShare(share.gpus_per_unit * (1 - lost / count), FRACTION, max(2, share.replicas)) if lost else share
        yield holding.during(time, scaled)
