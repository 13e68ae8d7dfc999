"""Splits a GPU node's time into held, unallocated, stranded and unobserved; what exceeds the node is reported."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from math import lcm

from msgspec import Struct

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.metering.nodes import NodeLifecycle, physical_or_advertised_gpus
from gpucost.core.metering.nvlink_domains import FreeGpus
from gpucost.core.metering.usage import Holding, NodeUsage

ZERO = Fraction(0)


class AdvertisedGpus(Struct, frozen=True):
    """The physical GPUs that a node advertises for some time: all of them, and the healthy ones."""

    time: IntervalMs
    gpus: Fraction
    healthy_gpus: Fraction


class DisputedHolding(Struct, frozen=True):
    """GPUs that a pod may have held, according to samples that are contradictory or implausible."""

    time: IntervalMs
    gpus: Fraction | None
    """Physical GPUs that may have been held; None where their number is unknown."""


def advertised_gpus(
    lifecycle: NodeLifecycle, slices_per_gpu: int | None, *, collects_capacity: bool
) -> list[AdvertisedGpus]:
    """Return what a node advertised, and when; its physical GPUs where no node's capacity is collected."""
    if not collects_capacity:
        physical = physical_or_advertised_gpus(lifecycle.node, slices_per_gpu)
        return [AdvertisedGpus(lifecycle.present, physical, physical)]
    return [_advertised_at(time, node, slices_per_gpu) for time, node in lifecycle.states]


def _advertised_at(time: IntervalMs, node: GpuNode, slices_per_gpu: int | None) -> AdvertisedGpus:
    gpus = node.gpus_of_units(node.capacity, slices_per_gpu)
    is_healthy = node.allocatable == node.capacity
    return AdvertisedGpus(time, gpus, gpus if is_healthy else node.gpus_of_units(node.allocatable, slices_per_gpu))


def split_node_time(
    lifecycle: NodeLifecycle,
    advertised: Sequence[AdvertisedGpus],
    holdings: Sequence[Holding],
    unobserved: Sequence[IntervalMs],
    slices_per_gpu: int | None,
    disputed: Sequence[DisputedHolding] = (),
    free: list[FreeGpus] | None = None,
) -> NodeUsage:
    """Split a node's physical-GPU time into held, unallocated, stranded and unobserved.

    Args:
        lifecycle: the node's facts and its time in the hour.
        advertised: the GPUs that it advertised, by time.
        holdings: what pods held on the node.
        unobserved: times without scrapes of the allocation source.
        slices_per_gpu: from the settings, for nodes whose labels do not say it.
        disputed: what other pods may have held on the node.
        free: collects the unallocated GPUs by time.
    """
    physical = _physical_or_max_advertised_gpus(lifecycle, advertised, slices_per_gpu)
    usage = NodeUsage(lifecycle.node, lifecycle.present, total_gpu_ms=physical * lifecycle.present.length)
    for piece, (held_indexes, advertised_indexes, unobserved_indexes, disputed_indexes) in present_by_piece(
        lifecycle.present,
        [holding.held for holding in holdings],
        [state.time for state in advertised],
        unobserved,
        [dispute.time for dispute in disputed],
    ):
        held_gpus = _sum_of_gpus([holdings[index].gpus for index in held_indexes])
        disputed_or_none = (disputed[index].gpus for index in disputed_indexes)
        disputed_gpus = sum((physical if gpus is None else gpus for gpus in disputed_or_none), ZERO)
        current = advertised[advertised_indexes[0]] if advertised_indexes else None
        is_unobserved = bool(unobserved_indexes)
        unallocated = _add_piece(
            usage, piece.length, physical, held_gpus, disputed_gpus, current, is_unobserved=is_unobserved
        )
        if free is not None and unallocated:
            free.append(FreeGpus(piece, unallocated))
    return usage


def _sum_of_gpus(gpus: Sequence[Fraction]) -> Fraction:
    """Add fractions of GPUs. Unlike `sum`, this reduces only the result to lowest terms."""
    denominator = lcm(*[part.denominator for part in gpus])
    return Fraction(sum([part.numerator * (denominator // part.denominator) for part in gpus]), denominator)


def cut_at_interval_edges(window: IntervalMs, *cuts: Iterable[IntervalMs]) -> list[IntervalMs]:
    """Cut a window wherever one of the intervals starts or ends, so that nothing changes within a piece."""
    if not window.length:
        return []
    edges = {window.start, window.end}
    for intervals in cuts:
        for interval in intervals:
            if window.start < interval.start < window.end:
                edges.add(interval.start)
            if window.start < interval.end < window.end:
                edges.add(interval.end)
    return [IntervalMs(start, end) for start, end in pairwise(sorted(edges))]


def present_by_piece(
    window: IntervalMs, *groups: Sequence[IntervalMs]
) -> Iterator[tuple[IntervalMs, tuple[list[int], ...]]]:
    """Cut a window at the edges of all groups of intervals, and return which intervals contain each piece.

    Each piece comes with a list for each group: the ascending indexes of the intervals that contain it.
    """
    pieces = cut_at_interval_edges(window, *groups)
    if len(pieces) == 1:  # nothing changes on most nodes
        present = tuple([index for index, time in enumerate(times) if time.contains(window.start)] for times in groups)
        return iter([(window, present)])
    starts = [piece.start for piece in pieces]
    present_by_group = [_present_at(starts, intervals) for intervals in groups]
    return zip(pieces, zip(*present_by_group, strict=True), strict=True)


def _present_at(times: Iterable[int], intervals: Sequence[IntervalMs]) -> Iterator[list[int]]:
    """For each time, in ascending order, yield the ascending indexes of the intervals that contain it."""
    waiting = sorted(range(len(intervals)), key=lambda index: intervals[index].start, reverse=True)
    present: list[int] = []
    for time in times:
        while waiting and intervals[waiting[-1]].start <= time:
            present.append(waiting.pop())
        present = sorted([index for index in present if intervals[index].end > time])
        yield present


def _add_piece(
    usage: NodeUsage,
    length: int,
    physical: Fraction,
    held: Fraction,
    disputed: Fraction,
    advertised: AdvertisedGpus | None,
    *,
    is_unobserved: bool,
) -> Fraction:
    """Add a piece of time in which nothing changed to the node's totals, and return the unallocated GPUs."""
    if held >= physical:
        usage.excess_gpu_ms += (held - physical) * length
        return ZERO
    contested = min(disputed, physical - held)
    usage.unobserved_gpu_ms += contested * length
    held += contested
    remaining = physical - held
    if advertised is None or not advertised.gpus:
        if is_unobserved:
            usage.unobserved_gpu_ms += remaining * length
        else:
            usage.not_ready_gpu_ms += remaining * length
        return ZERO
    available = min(max(ZERO, min(advertised.gpus, physical) - held), remaining)
    usage.geometry_gpu_ms += (remaining - available) * length
    if is_unobserved:
        usage.unobserved_gpu_ms += available * length
        return ZERO
    unhealthy = min(available, max(ZERO, advertised.gpus - advertised.healthy_gpus))
    usage.unhealthy_gpu_ms += unhealthy * length
    usage.unallocated_gpu_ms += (available - unhealthy) * length
    return available - unhealthy


def _physical_or_max_advertised_gpus(
    lifecycle: NodeLifecycle, advertised: Sequence[AdvertisedGpus], slices_per_gpu: int | None
) -> Fraction:
    """Return a node's physical GPUs; without other information, the most that it ever advertised."""
    if lifecycle.node.physical_gpus is not None:
        return Fraction(lifecycle.node.physical_gpus)
    from_node = physical_or_advertised_gpus(lifecycle.node, slices_per_gpu)
    return max([from_node, *(state.gpus for state in advertised)])


def is_overcommitted(node: GpuNode, holdings: Sequence[Holding]) -> bool:
    """Whether pods hold more units or more physical GPUs than a node has at a time."""
    if node.physical_gpus is not None and sum((holding.gpus for holding in holdings), ZERO) > node.physical_gpus:
        return True
    units: dict[str, int] = {}
    for holding in holdings:
        units[holding.resource] = units.get(holding.resource, 0) + holding.units
    return any(units[name] > node.capacity[name] for name in units if name in node.capacity)
