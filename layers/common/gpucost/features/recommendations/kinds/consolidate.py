"""Recommends consolidation for node pools whose pods would fit on fewer nodes, by bin packing of every hour.

Only GPUs are packed: the ledger does not hold CPU and memory requests, affinities and disruption budgets. First fit
decreasing is exact if each size divides the next larger one and the node (1, 2, 4, 8). Otherwise it finds a valid
packing on at most 11/9 of the fewest nodes (Dósa 2007), so the saving is never overestimated.
"""

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Final

from gpucost.core.hours import HOURS_PER_MONTH
from gpucost.features.recommendations.history import LookBack, PoolHourlySeries
from gpucost.features.recommendations.kinds.base import RecommendationKind, ReviewedCluster, quoted, single_line
from gpucost.features.recommendations.measuring import (
    MIN_DATA_SHARE,
    MIN_HOURS,
    MIN_MONTHLY_SAVING_USD,
    NEWEST_HOURS,
    SubjectHour,
    subject_hours,
)
from gpucost.features.recommendations.model import RecommendationContent, format_count, round_cents
from gpucost.features.recommendations.pools import (
    enough_nodes_fact,
    estimate_pool_saving,
    fewer_nodes_phrase,
    gpus_per_node,
    has_enough_prices,
    mean_pool_cost,
    pool_evidence,
    pool_subject,
    regular_hours,
)

MIN_SPARE_NODES: Final = 0.25
"""Nodes that must be spare on average: one for six hours a day."""
_SAME_SHARE = 0.95
"""Part of the look-back's mean above which the saving is that of the whole look-back, and not only of its end."""
_TOLERANCE = 1e-6


class Consolidate(RecommendationKind):
    """Run a pool on fewer nodes."""

    name = "consolidate"
    title = "Use fewer nodes"
    when = (
        "a pool's pods would fit on fewer nodes, by a quarter of a node or more on average: one node for six hours a "
        "day. In pools of slices, that many nodes held no pod"
    )
    change = "let Karpenter consolidate pods"
    verified = "nodes, for the GPUs that are still held"
    not_verified = "nodes that were removed with their pods"

    @classmethod
    def recommend(cls, cluster: ReviewedCluster) -> Iterator[RecommendationContent | None]:
        """Recommend consolidation for the pools whose pods fit on fewer nodes."""
        pools = cluster.look_back.pools
        return (cls._consolidate_pool(cluster.look_back, pools[key]) for key in sorted(pools))

    @classmethod
    def _consolidate_pool(cls, look_back: LookBack, pool: PoolHourlySeries) -> RecommendationContent | None:
        gpus = gpus_per_node(pool)
        indexes = [
            index for index in range(look_back.hours) if look_back.has_figures[index] and pool.node_counts[index]
        ]
        if not gpus or not indexes or not has_enough_prices(look_back, pool) or len(indexes) < MIN_HOURS:
            return None
        first = indexes[0]
        data_share = sum(look_back.has_figures[first:]) / (look_back.hours - first)
        needed = needed_nodes(look_back, pool, gpus) if data_share >= MIN_DATA_SHARE else None
        if needed is None:
            return None
        # A node counts for the time it was there: after ten minutes it has a sixth of its GPU-hours.
        spare = [max(0.0, pool.capacity_gpu_hours[index] / gpus - needed[index]) for index in range(look_back.hours)]
        newest = [index for index in indexes if index >= look_back.hours - NEWEST_HOURS]
        current_nodes = sum(pool.node_counts[index] for index in newest) / max(1, len(newest))
        spare_now = sum(spare[index] for index in newest) / max(1, len(newest))
        mean = sum(spare[index] for index in indexes) / len(indexes)

        def freed(index: int) -> tuple[float, float]:
            hour_nodes = pool.capacity_gpu_hours[index] / gpus
            spare_share = spare[index] / hour_nodes if hour_nodes else 0.0
            return pool.cost_usd[index] * spare_share, pool.capacity_gpu_hours[index] * spare_share

        saving = estimate_pool_saving(look_back, pool, first, freed)
        empty_nodes = float(saving.gpu_hours) / HOURS_PER_MONTH / gpus  # fewer than the mean if the pool shrank lately
        if saving.usd < MIN_MONTHLY_SAVING_USD or empty_nodes < MIN_SPARE_NODES:
            return None
        key = pool.key
        can_pack = holds_whole_gpus(pool)
        reason = "underutilized" if can_pack else "empty"
        allowed = look_back.disruption.allowed_disruptions.get((key.node_pool, reason))
        patch = consolidation_patch(key.node_pool, blocks_disruption=allowed == 0)
        capacity = sum(pool.capacity_gpu_hours) / len(indexes)
        unallocated = sum(pool.unallocated_gpu_hours[index] for index in indexes) / len(indexes)
        is_usual = empty_nodes > _SAME_SHARE * mean
        hours = indexes if is_usual else newest
        befores = [round(pool.capacity_gpu_hours[index] / gpus) for index in hours]
        afters = [before - int(spare[index] + _TOLERANCE) for before, index in zip(befores, hours, strict=True)]
        when = (
            regular_hours(
                look_back.start,
                hours,
                (after < before for before, after in zip(befores, afters, strict=True)),
                look_back.time_zone,
            )
            if is_usual
            else "as in the newest day"
        )
        title = f"Run {key.node_pool or 'the nodes without a node pool'} {fewer_nodes_phrase(befores, afters)}"
        reason_text = (
            f"its pods fit on fewer {key.instance_type} nodes then"
            if can_pack
            else f"its other {key.instance_type} nodes held no pod then"
        )
        return RecommendationContent(
            kind=cls.name,
            subject=pool_subject(look_back, pool),
            title=title,
            summary=f"{title}: {reason_text}{f', {when}' if when else ''}",
            saving=saving,
            evidence=pool_evidence(
                look_back,
                pool,
                first,
                {
                    "packing": "GPUs only; CPU, memory, affinities and disruption budgets are not known"
                    if can_pack
                    else "none; the MIG geometry of each GPU is not known",
                    "nodes": enough_nodes_fact(befores, afters) + ("" if is_usual else " of the newest day"),
                    **({"hours": when} if when else {}),
                    "spare nodes": "a node that is needed in the hour before or after is not spare",
                    "unallocated": f"{format_count(unallocated)} of {format_count(capacity)} GPUs, on average",
                    "GPUs per node": str(gpus),
                    **_karpenter_facts(look_back, key.node_pool, reason),
                },
            ),
            confidence="medium",
            risk="medium",
            risk_note="Pods are moved. Pods that must not be interrupted need the annotation "
            "karpenter.sh/do-not-disrupt.",
            effort="low",
            patch=patch,
            current_gpus=round_cents(current_nodes),
            # When the pool's newest hours reach it, it counts as applied. The newest day may need more nodes than
            # usual.
            recommended_gpus=round_cents(current_nodes - max(spare_now, empty_nodes)),
            usd_hourly=round_cents(mean_pool_cost(look_back, pool, first)),
        )

    @classmethod
    def hourly_use_and_cost(cls, look_back: LookBack, content: RecommendationContent) -> Sequence[SubjectHour | None]:
        """What the pool held and cost, and the GPUs that its pods held."""
        return subject_hours(look_back, content, counts_gpus=True)


def pack_nodes(pods: Sequence[tuple[float, int]], gpus: int) -> int | None:
    """The nodes that pods need, by first fit decreasing; None if a pod is larger than a node.

    Args:
        pods: (GPUs of a pod, number of such pods), largest first.
        gpus: GPUs of a node.
    """
    free: list[float] = []
    for size, count in pods:
        if size > gpus + _TOLERANCE:
            return None
        index = 0  # a node without room for a pod has none for the next pod of that size
        for _ in range(count):
            while index < len(free) and free[index] < size - _TOLERANCE:
                index += 1
            if index == len(free):
                free.append(gpus)
            free[index] -= size
    return len(free)


def needed_nodes(look_back: LookBack, pool: PoolHourlySeries, gpus: int) -> list[int] | None:
    """The nodes that the pods of each hour and its neighboring hours need: nodes take minutes to start and stop.

    Pools with slices or shared GPUs are not packed, because a GPU's geometry is not known. There, the nodes that held
    a pod are needed.

    Returns:
        None if a pod is larger than a node.
    """
    packed: list[int] = []
    packed_by_pods: dict[tuple[tuple[float, int], ...], int | None] = {}
    for pods in pool.pod_sizes:
        if pods not in packed_by_pods:
            packed_by_pods[pods] = pack_nodes(pods, gpus)
        count = packed_by_pods[pods]
        if count is None:
            return None
        packed.append(count)
    if not holds_whole_gpus(pool):
        packed = list(pool.busy_nodes)
    return [max(packed[max(0, index - 1) : index + 2]) for index in range(look_back.hours)]


def holds_whole_gpus(pool: PoolHourlySeries) -> bool:
    """Whether all its pods hold whole GPUs."""
    return all(abs(size - round(size)) <= _TOLERANCE for pods in set(pool.pod_sizes) for size, _ in pods)


def _karpenter_facts(look_back: LookBack, node_pool: str, reason: str) -> dict[str, str]:
    """Facts from Karpenter's metrics about why nodes were not removed."""
    if not node_pool:
        return {}
    eligible, allowed = (
        look_back.disruption.eligible_nodes.get(reason),
        look_back.disruption.allowed_disruptions.get((node_pool, reason)),
    )
    if eligible is None:
        eligibility = "its metrics do not show why nodes were not removed"
    elif not eligible:
        eligibility = (
            f"no node of the cluster was eligible as {reason} in the last week, because of settings, pods or PDBs"
        )
    else:
        budgets = "" if allowed is None else f"; the pool's disruption budgets allow {allowed or 'none'} at once"
        eligibility = f"up to {eligible} nodes of the cluster were eligible as {reason} in the last week{budgets}"
    command = karpenter_settings_command(node_pool)
    return {"Karpenter": eligibility, "Karpenter's settings": f"not in its metrics; to print them: {command}"}


def karpenter_settings_command(node_pool: str) -> str:
    """The command that prints how Karpenter may disrupt a node pool."""
    return f"kubectl get nodepool {quote(single_line(node_pool))} -o jsonpath='{{.spec.disruption}}'"


def consolidation_patch(node_pool: str, *, blocks_disruption: bool = False) -> str:
    """A Karpenter node pool that consolidates its nodes; empty if the pool has no name.

    Args:
        node_pool: the pool's name.
        blocks_disruption: whether its budgets allow no disruption. Then the patch includes Karpenter's default budget.
    """
    if not node_pool:
        return ""
    return (
        f"# if Karpenter manages the pool; its current settings:\n"
        f"#   {karpenter_settings_command(node_pool)}\n"
        "# pods that forbid disruption (kube-state-metrics exposes annotations only from its allow-list):\n"
        "#   kubectl get pods -A -o jsonpath='{range .items[?(@.metadata.annotations."
        'karpenter\\.sh/do-not-disrupt=="true")]}{.metadata.namespace}/{.metadata.name} {end}\'\n'
        f"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: {quoted(node_pool)}\n"
        "spec:\n  disruption:\n    consolidationPolicy: WhenEmptyOrUnderutilized\n    consolidateAfter: 5m\n"
        + ('    budgets: [{nodes: "10%"}]\n' if blocks_disruption else "")
    )
