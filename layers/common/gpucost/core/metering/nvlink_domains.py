"""Strands free GPUs of NVLink domains in which no whole job fits.

A job that spans nodes needs its GPUs in one NVLink domain, such as a GB200 NVL72 rack. Where fewer of a domain's GPUs
are free than the smallest job needs, no job can take them.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from gpucost.core.intervals import IntervalMs, overlap_length
from gpucost.core.metering.kubernetes_labels import GPU_CLIQUE_LABEL

if TYPE_CHECKING:  # the settings import `MinimumJob`, and most functions with settings meter nothing
    from gpucost.core.metering.gpu_shares import GpuNode
    from gpucost.core.metering.usage import NodeUsage


class MinimumJob(Struct, frozen=True):
    """The smallest job that runs on the nodes of some pools, in physical GPUs."""

    gpus: int
    node_pool: str = "*"
    """Shell pattern of the node pool's name."""


class FreeGpus(Struct, frozen=True):
    """Physical GPUs of a node that any pod could have held for some time."""

    time: IntervalMs
    gpus: Fraction


class StrandedDomain(Struct, frozen=True):
    """GPU time of a domain that is stranded."""

    clique: str
    minimum_gpus: int
    gpu_ms: Fraction


def minimum_job_gpus(node: "GpuNode", jobs: Iterable[MinimumJob]) -> int | None:
    """Return the smallest job that runs on a node; None if it is in no NVLink domain, or no entry has its pool."""
    if not GPU_CLIQUE_LABEL.value_in(node.labels):
        return None
    return next((job.gpus for job in jobs if fnmatchcase(node.node_pool, job.node_pool)), None)


def strand_free_gpus(
    free: "Sequence[tuple[NodeUsage, Sequence[FreeGpus]]]", jobs: Iterable[MinimumJob]
) -> list[StrandedDomain]:
    """Turn unallocated into stranded GPU time while fewer of a domain's GPUs are free than the smallest job needs.

    If the nodes of a domain have different smallest jobs, the smallest of them counts.

    Args:
        free: the usage of nodes of NVLink domains, which is changed, and their free GPUs.
        jobs: the smallest jobs by node pool.
    """
    jobs = list(jobs)
    domains: dict[str, list[tuple[NodeUsage, Sequence[FreeGpus]]]] = {}
    for usage, pieces in free:
        domains.setdefault(GPU_CLIQUE_LABEL.value_in(usage.node.labels), []).append((usage, pieces))
    stranded = []
    for clique, nodes in sorted(domains.items()):
        minimum = min(gpus for usage, _ in nodes if (gpus := minimum_job_gpus(usage.node, jobs)) is not None)
        too_few = _times_below(minimum, [piece for _, pieces in nodes for piece in pieces])
        moved = [
            sum((piece.gpus * overlap_length(too_few, piece.time) for piece in pieces), Fraction(0))
            for _, pieces in nodes
        ]
        for (usage, _), gpu_ms in zip(nodes, moved, strict=True):
            usage.unallocated_gpu_ms -= gpu_ms
            usage.domain_gpu_ms += gpu_ms
        if total := sum(moved, Fraction(0)):
            stranded.append(StrandedDomain(clique, minimum, total))
    return stranded


def _times_below(minimum: int, pieces: Iterable[FreeGpus]) -> list[IntervalMs]:
    """Return the times in which the pieces have fewer GPUs together."""
    changes: dict[int, Fraction] = {}
    for piece in pieces:
        for time, gpus in ((piece.time.start, piece.gpus), (piece.time.end, -piece.gpus)):
            changes[time] = changes.get(time, Fraction(0)) + gpus
    times, free = [], Fraction(0)
    for start, end in pairwise(sorted(changes)):
        free += changes[start]
        if free < minimum:
            times.append(IntervalMs(start, end))
    return times
