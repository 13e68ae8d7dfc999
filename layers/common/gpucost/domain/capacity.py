"""Where a GPU node's time went: held, unallocated, stranded, unobserved; nothing is clamped in silence (design §1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gpucost.domain.intervals import Interval
from gpucost.domain.observations import NodeObservation
from gpucost.domain.shares import GpuNode
from gpucost.domain.usage import Holding, NodeUsage


@dataclass(frozen=True, slots=True)
class NodeTime:
    """When a node was there and when it advertised its GPUs, clipped to the hour."""

    present: Interval
    advertised: Interval


@dataclass(frozen=True, slots=True)
class Offer:
    """Physical GPUs that a node puts on offer: in all, and those of them that are healthy."""

    advertised: Fraction
    healthy: Fraction


def offer(node: GpuNode, seen: NodeObservation, slices_per_gpu: int | None, *, capacity_is_kept: bool) -> Offer:
    """What a node advertises; its physical GPUs where the metrics keep no capacity of any node."""
    if not capacity_is_kept:
        return Offer(Fraction(node.physical or 0), Fraction(node.physical or 0))
    advertised = _gpus(node, seen.capacity, slices_per_gpu)
    return Offer(advertised, _gpus(node, {**seen.capacity, **seen.allocatable}, slices_per_gpu))


def account(
    node: GpuNode,
    provider_id: str,
    time: NodeTime,
    on_offer: Offer,
    holdings: Sequence[Holding],
    blind: Sequence[Interval],
) -> NodeUsage:
    """Split a node's physical-GPU time by what became of it.

    Args:
        node: the node's facts.
        provider_id: the instance behind its name.
        time: its life in the hour.
        on_offer: GPUs advertised.
        holdings: what pods held on it.
        blind: times in which nobody saw who held what.
    """
    physical = Fraction(node.physical) if node.physical is not None else on_offer.advertised
    total = physical * time.present.length
    advertised = min(on_offer.advertised * time.advertised.length, total)
    held = sum((holding.gpu_ms for holding in holdings), Fraction(0))
    free = max(Fraction(0), advertised - held)
    dark = min(free, sum((_free_in(gap, on_offer, time, holdings) for gap in blind), Fraction(0)))
    unhealthy = min(free - dark, max(Fraction(0), on_offer.advertised - on_offer.healthy) * time.advertised.length)
    unallocated = free - dark - unhealthy
    stranded = max(Fraction(0), total - max(advertised, held)) + unhealthy
    return NodeUsage(
        node=node,
        provider_id=provider_id,
        present=time.present,
        total_gpu_ms=total,
        unallocated_gpu_ms=unallocated,
        stranded_gpu_ms=stranded,
        unobserved_gpu_ms=dark,
        excess_gpu_ms=held + unallocated + stranded + dark - total,
    )


def _gpus(node: GpuNode, units: Mapping[str, Decimal], slices_per_gpu: int | None) -> Fraction:
    """Physical GPUs in advertised units."""
    shares = ((node.share(resource, slices_per_gpu), count) for resource, count in units.items())
    return sum((Fraction(count) * share.of_gpu for share, count in shares if share is not None), Fraction(0))


def _free_in(gap: Interval, on_offer: Offer, time: NodeTime, holdings: Sequence[Holding]) -> Fraction:
    held = sum((holding.gpus * holding.held.overlap(gap).length for holding in holdings), Fraction(0))
    return max(Fraction(0), on_offer.advertised * time.advertised.overlap(gap).length - held)
