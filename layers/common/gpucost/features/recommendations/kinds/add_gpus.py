"""More replicas for services that are always busy."""

from math import ceil

from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.kinds.base import RecommendationKind, replicas_patch
from gpucost.features.recommendations.measuring import (
    SATURATED_HOURS_SHARE,
    SERVICE_KINDS,
    TARGET,
    WorkloadMeasures,
    classify_workload,
    confidence_level,
    estimate_workload_saving,
    workload_evidence,
    workload_subject,
)
from gpucost.features.recommendations.model import RecommendationContent, format_count, round_cents
from gpucost.features.recommendations.pools import largest_node_gpus


class AddGpus(RecommendationKind):
    """Give a saturated service more replicas."""

    name = "add-gpus"
    title = "Add GPUs"
    when = "a service was at 90% or more in nine of ten hours"
    change = "replicas that bring the average to 70%. This costs money"
    verified = "the cost of what was added, as a negative figure"
    choice = "largest"

    @classmethod
    def recommend_for(cls, look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
        """Recommend more replicas of a saturated service."""
        history, subject = measures.history, workload_subject(look_back.cluster, measures.history)
        if classify_workload(measures)[0] != "saturated":
            return None
        if subject.workload_kind not in SERVICE_KINDS or history.gpus_per_pod <= 0 or measures.mean_utilization is None:
            return None
        pods = max(1, round(measures.current_gpus / history.gpus_per_pod))
        replicas = max(
            pods + 1,
            ceil(round(measures.mean_utilization * measures.current_gpus / (TARGET * history.gpus_per_pod), 9)),
        )
        added_share = replicas / pods - 1

        def freed(index: int) -> tuple[float, float]:
            return -history.cost_usd[index] * added_share, -history.held_gpu_hours[index] * added_share

        added, node_gpus = measures.current_gpus * added_share, largest_node_gpus(look_back, measures)
        # Not known with commitments, which may have room left, and for fewer GPUs than a node has.
        cash = 1.0 if history.spend.avoidable_share() == 1 and added >= node_gpus else None
        title = f"Give {subject.workload_name} {replicas} replicas instead of {pods}"
        facts = {"at 90% utilization or more": f"in at least {SATURATED_HOURS_SHARE:.0%} of the hours"}
        if added < node_gpus:
            facts["cash"] = (
                f"none while nodes have {format_count(added)} free GPUs; otherwise a node with {node_gpus} GPUs"
            )
        saving = estimate_workload_saving(look_back, measures, freed, cash)
        return RecommendationContent(
            kind=cls.name,
            subject=subject,
            title=title,
            summary=f"{title}: its GPUs "
            f"are {measures.mean_utilization:.0%} utilized on average, and demand above them is not visible",
            saving=saving,
            evidence=workload_evidence(look_back, measures, facts),
            confidence=confidence_level(measures),
            risk="low",
            risk_note="It costs money. These figures do not show how much work is waiting.",
            effort="low",
            patch=replicas_patch(subject, replicas),
            current_gpus=round_cents(measures.current_gpus),
            recommended_gpus=round_cents(measures.current_gpus * (1 + added_share)),
            usd_hourly=round_cents(measures.usd_hourly),
            pools=tuple(sorted({(pool.node_pool, pool.instance_type) for pool in history.gpu_millihours_by_pool})),
        )
