"""Where a GPU node's time went: held, unallocated, stranded, unobserved; nothing is clamped in silence (design §1)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from gpucost.core.intervals import Interval
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.metering.nodes import NodeLifecycle, physical_gpus
from gpucost.core.metering.usage import Holding, NodeUsage

ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class AdvertisedGpus:
    """Physical GPUs that a node puts on offer for a time: in all, and those of them that are healthy."""

    time: Interval
    advertised: Fraction
    healthy: Fraction


@dataclass(frozen=True, slots=True)
class DisputedHolding:
    """GPUs of which nobody knows who held them, because the samples that tell contradict each other or reason."""

    time: Interval
    gpus: Fraction | None
    """Physical GPUs that may have been held; None where that is not known either."""


@dataclass(slots=True)
class _Parts:
    """Physical-GPU milliseconds by what became of them."""

    unallocated: Fraction = ZERO
    not_ready: Fraction = ZERO
    geometry: Fraction = ZERO
    unhealthy: Fraction = ZERO
    unobserved: Fraction = ZERO
    excess: Fraction = ZERO


def advertised_gpus(life: NodeLifecycle, slices_per_gpu: int | None, *, collects_capacity: bool) -> list[AdvertisedGpus]:
    """What a node advertised, and when; its physical GPUs where the metrics keep no capacity of any node."""
    if not collects_capacity:
        physical = physical_gpus(life.node, slices_per_gpu)
        return [AdvertisedGpus(life.present, physical, physical)]
    return [_offer(time, node, slices_per_gpu) for time, node in life.states]


def _offer(time: Interval, node: GpuNode, slices_per_gpu: int | None) -> AdvertisedGpus:
    advertised = node.advertised(node.capacity, slices_per_gpu)
    is_healthy = node.allocatable == node.capacity
    return AdvertisedGpus(time, advertised, advertised if is_healthy else node.advertised(node.allocatable, slices_per_gpu))


def split_node_time(
    life: NodeLifecycle,
    on_offer: Sequence[AdvertisedGpus],
    holdings: Sequence[Holding],
    blind: Sequence[Interval],
    slices_per_gpu: int | None,
    disputed: Sequence[DisputedHolding] = (),
) -> NodeUsage:
    """Split a node's physical-GPU time by what became of it.

    Args:
        life: the node's facts and its time in the hour.
        on_offer: GPUs advertised, by time.
        holdings: what pods held on it, within its life.
        blind: times in which nobody saw who held what.
        slices_per_gpu: the settings' word for nodes that say nothing.
        disputed: what may have been held on it beside that.
    """
    physical = _physical(life, on_offer, slices_per_gpu)
    parts = _Parts()
    cuts = [[offer.time for offer in on_offer], blind, [one.held for one in holdings], [one.time for one in disputed]]
    for piece in cut_at_edges(life.present, *cuts):
        held = sum((one.gpus for one in holdings if one.held.contains(piece.start)), ZERO)
        offer = next((offer for offer in on_offer if offer.time.contains(piece.start)), None)
        is_blind = any(gap.contains(piece.start) for gap in blind)
        claims = [physical if one.gpus is None else one.gpus for one in disputed if one.time.contains(piece.start)]
        _split(parts, piece.length, physical, held, sum(claims, ZERO), offer, is_blind=is_blind)
    return NodeUsage(
        node=life.node,
        present=life.present,
        total_gpu_ms=physical * life.present.length,
        unallocated_gpu_ms=parts.unallocated,
        not_ready_gpu_ms=parts.not_ready,
        geometry_gpu_ms=parts.geometry,
        unhealthy_gpu_ms=parts.unhealthy,
        unobserved_gpu_ms=parts.unobserved,
        excess_gpu_ms=parts.excess,
    )


def cut_at_edges(whole: Interval, *cuts: Iterable[Interval]) -> list[Interval]:
    """A time, cut wherever any of some intervals starts or ends: within a piece nothing changes."""
    if not whole.length:
        return []
    edges = {whole.start, whole.end}
    for intervals in cuts:
        for one in intervals:
            edges.update(edge for edge in (one.start, one.end) if whole.start < edge < whole.end)
    return [Interval(start, end) for start, end in pairwise(sorted(edges))]


def _split(
    parts: _Parts,
    length: int,
    physical: Fraction,
    held: Fraction,
    disputed: Fraction,
    offer: AdvertisedGpus | None,
    *,
    is_blind: bool,
) -> None:
    """Say what became of a node's GPUs over a piece of time in which nothing changed."""
    if held > physical:
        parts.excess += (held - physical) * length
        return
    contested = min(disputed, physical - held)
    parts.unobserved += contested * length
    held += contested
    rest = physical - held
    if offer is None or not offer.advertised:
        if is_blind:
            parts.unobserved += rest * length
        else:
            parts.not_ready += rest * length
        return
    free = min(max(ZERO, min(offer.advertised, physical) - held), rest)
    parts.geometry += (rest - free) * length
    if is_blind:
        parts.unobserved += free * length
        return
    unhealthy = min(free, max(ZERO, offer.advertised - offer.healthy))
    parts.unhealthy += unhealthy * length
    parts.unallocated += (free - unhealthy) * length


def _physical(life: NodeLifecycle, on_offer: Sequence[AdvertisedGpus], slices_per_gpu: int | None) -> Fraction:
    """Physical GPUs; the most that it ever advertised where nothing else tells."""
    if life.node.physical is not None:
        return Fraction(life.node.physical)
    known = physical_gpus(life.node, slices_per_gpu)
    return max([known, *(offer.advertised for offer in on_offer)])


def is_overcommitted(node: GpuNode, holdings: Sequence[Holding]) -> bool:
    """Whether pods hold more than a node can have at one moment, by units or by physical GPUs."""
    if node.physical is not None and sum((one.gpus for one in holdings), ZERO) > node.physical:
        return True
    units: dict[str, int] = {}
    for one in holdings:
        units[one.resource] = units.get(one.resource, 0) + one.units
    return any(units[name] > node.capacity[name] for name in units if name in node.capacity)
