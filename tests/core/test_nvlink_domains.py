"""Free GPUs of NVLink domains in which no whole job fits."""

from fractions import Fraction

import pytest

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.metering.nvlink_domains import (
    FreeGpus,
    MinimumJob,
    StrandedDomain,
    minimum_job_gpus,
    strand_free_gpus,
)
from gpucost.core.metering.usage import NodeUsage

HOUR = IntervalMs(0, 60)


def node(name: str, clique: str = "c.1", pool: str = "gb200") -> GpuNode:
    labels = {"label_nvidia_com_gpu_clique": clique} if clique else {}
    return GpuNode(name, node_pool=pool, physical_gpus=4, labels=labels)


def free(node: GpuNode, *pieces: tuple[int, int, int]) -> tuple[NodeUsage, list[FreeGpus]]:
    """A node with free GPUs from a time to another."""
    free_gpus = [FreeGpus(IntervalMs(start, end), Fraction(gpus)) for start, end, gpus in pieces]
    unallocated = sum((piece.gpus * piece.time.length for piece in free_gpus), Fraction(0))
    return NodeUsage(node, HOUR, Fraction(4 * 60), unallocated_gpu_ms=unallocated), free_gpus


def test_free_gpus_of_all_nodes_count_together() -> None:
    first, second = free(node("a"), (0, 60, 4)), free(node("b"), (0, 30, 4), (30, 60, 1))
    (domain,) = strand_free_gpus([first, second], [MinimumJob(6)])
    # Until 30, a job of 6 fits in 8 free GPUs; then 5 are free.
    assert domain == StrandedDomain("c.1", 6, Fraction(5 * 30))
    assert [usage.unallocated_gpu_ms for usage, _ in (first, second)] == [120, 120]
    assert [usage.stranded_gpu_ms for usage, _ in (first, second)] == [120, 30]


def test_exactly_the_smallest_job_fits() -> None:
    assert strand_free_gpus([free(node("a"), (0, 60, 4)), free(node("b"), (0, 60, 4))], [MinimumJob(8)]) == []


def test_domains_count_apart() -> None:
    first, second = free(node("a"), (0, 60, 4)), free(node("b", "c.2"), (0, 60, 4))
    assert [domain.clique for domain in strand_free_gpus([first, second], [MinimumJob(8)])] == ["c.1", "c.2"]


def test_smallest_job_of_a_domains_pools_counts() -> None:
    jobs = [MinimumJob(2, "inference"), MinimumJob(8)]
    assert strand_free_gpus([free(node("a"), (0, 60, 4)), free(node("b", pool="inference"))], jobs) == []


@pytest.mark.parametrize(
    ("clique", "pool", "gpus"), [("c.1", "gb200-a", 36), ("c.1", "other", 72), ("", "gb200-a", None)]
)
def test_first_entry_that_matches_the_pool_counts(clique: str, pool: str, gpus: int | None) -> None:
    jobs = [MinimumJob(36, "gb200-*"), MinimumJob(72)]
    assert minimum_job_gpus(node("a", clique, pool), jobs) == gpus


def test_pool_without_entry_has_no_smallest_job() -> None:
    assert minimum_job_gpus(node("a"), [MinimumJob(36, "inference-*")]) is None
