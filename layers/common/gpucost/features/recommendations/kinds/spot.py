"""Spot capacity for interruptible workloads."""

from collections.abc import Sequence
from dataclasses import replace

from gpucost.core.metering.kubernetes_labels import INTERRUPTIBLE_LABEL
from gpucost.features.recommendations.history import LookBack, SpotPrice, WorkloadHourlySeries
from gpucost.features.recommendations.kinds.base import RecommendationKind, affinity_patch
from gpucost.features.recommendations.measuring import (
    MIN_MONTHLY_SAVING_USD,
    SERVICE_KINDS,
    WorkloadMeasures,
    estimate_workload_saving,
    held_by_hour,
    series_of,
    sum_by_hour,
    with_figures,
    workload_evidence,
    workload_subject,
)
from gpucost.features.recommendations.model import RecommendationContent, RecommendationSubject, round_cents

_SPOT_RISK = (
    "Spot nodes end with two minutes' notice, and capacity may be missing for hours: keep a part on demand, "
    "spread replicas over zones, and set a PodDisruptionBudget."
)
_BATCH_RISK = (
    "Spot nodes end with two minutes' notice, and capacity may be missing for hours: work since the last checkpoint is "
    "repeated."
)
_LABELED_SHARE = 0.999
"""Part of the allocated GPU-hours whose pods must have the label."""
_MIN_REPLICAS = 3
"""Replicas of a service: if one is lost, two remain."""
_DAY = 24


class Spot(RecommendationKind):
    """Run an interruptible workload on spot capacity."""

    name = "spot"
    title = "Use spot nodes"
    when = (
        "the workload runs on demand, and the spot price of its instance type is available and lower. It is a service "
        'that always has three replicas or more, or it has the label `gpucost/interruptible: "true"`'
    )
    change = "prefer spot nodes"
    verified = "the lower price per GPU-hour, for GPUs that are still held"
    not_verified = "GPUs that are no longer held"
    choice = "otherwise"
    lowers_price = True

    @classmethod
    def recommend_for(cls, look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
        """Recommend spot capacity for an interruptible workload.

        Interruptible are services that can lose a replica, and workloads with the label `gpucost/interruptible: "true"`
        whose pods are started again. The price is the mean spot price of the instance type in the most expensive zone.
        The range includes that zone's lowest and highest price.
        """
        history, subject = measures.history, workload_subject(look_back.cluster, measures.history)
        reason = _why_interruptible(measures)
        if (
            not reason
            or not history.gpu_millihours_by_pool
            or {pool.capacity_type for pool in history.gpu_millihours_by_pool} != {"on-demand"}
        ):
            return None
        costs = _cost_on_spot(look_back, history)
        charged_usd = sum(history.cost_usd)
        if costs is None or not charged_usd:
            return None
        saved_share, at_highest, at_lowest = (1 - cost / charged_usd for cost in (costs.usd, costs.high, costs.low))
        if saved_share <= 0:
            return None

        def freed(index: int) -> tuple[float, float]:
            return history.cost_usd[index] * saved_share, 0.0

        saving = estimate_workload_saving(look_back, measures, freed, history.spend.avoidable_share())
        if saving.usd < MIN_MONTHLY_SAVING_USD:
            return None
        saving = replace(
            saving,
            low_usd=round_cents(max(0.0, float(saving.low_usd) * at_highest / saved_share)),
            high_usd=round_cents(float(saving.high_usd) * at_lowest / saved_share),
        )
        prices = {
            name: look_back.spot_prices[name]
            for name in sorted({pool.instance_type for pool in history.gpu_millihours_by_pool})
        }
        title = f"Run {subject.workload_name} on spot capacity"
        types = ", ".join(
            f"{name} ${price.usd:.3f} an hour ({price.low:.3f} to {price.high:.3f})" for name, price in prices.items()
        )
        return RecommendationContent(
            kind=cls.name,
            subject=subject,
            title=title,
            summary=f"{title}: {reason}, and spot costs {saved_share:.0%} less",
            saving=saving,
            evidence=workload_evidence(look_back, measures, {"spot": f"{types}: mean of the most expensive zone"}),
            confidence="medium",
            risk="high",
            risk_note=_SPOT_RISK if subject.workload_kind in SERVICE_KINDS else _BATCH_RISK,
            effort="medium",
            patch=spot_patch(subject),
            current_gpus=round_cents(measures.current_gpus),
            recommended_gpus=round_cents(0),
            usd_hourly=round_cents(measures.usd_hourly),
        )

    @classmethod
    def hourly_gpus(cls, look_back: LookBack, content: RecommendationContent) -> Sequence[float | None] | None:
        """The GPUs that it held on anything but spot; None also if it ended."""
        held = held_by_hour(look_back, content)
        if held is None or not any(held[-_DAY:]):
            return None
        workloads, _ = series_of(look_back, content)
        return with_figures(look_back, sum_by_hour([history.non_spot_gpu_hours for history in workloads]))


def _cost_on_spot(look_back: LookBack, history: WorkloadHourlySeries) -> SpotPrice | None:
    """What the workload would have cost on spot, in USD; None if a price is not known."""
    costs = [0.0, 0.0, 0.0]
    for pool, gpu_hours in history.gpu_millihours_by_pool.items():
        pool_history, price = look_back.pools[pool], look_back.spot_prices.get(pool.instance_type)
        capacity = sum(pool_history.capacity_gpu_hours)
        if price is None or not capacity:
            return None
        node_hours = gpu_hours / 1000 * sum(pool_history.node_counts) / capacity
        costs = [cost + node_hours * usd for cost, usd in zip(costs, price, strict=True)]
    priced_share = 1 - history.unpriced_gpu_hours / sum(history.held_gpu_hours)
    return SpotPrice(*(cost * priced_share for cost in costs))


def _why_interruptible(measures: WorkloadMeasures) -> str:
    """Why a workload may be interrupted, as a phrase; empty if it may not."""
    history, kind = measures.history, measures.history.key.kind
    total_held = sum(history.held_gpu_hours)
    if history.uninterruptible_gpu_hours or kind == "Pod":  # nothing restarts a pod without an owner
        return ""
    if history.interruptible_gpu_hours >= _LABELED_SHARE * total_held:
        return f"its pods have the label {INTERRUPTIBLE_LABEL}"
    replicas = [
        count
        for count, held in zip(
            history.pod_counts[measures.first_held_index :],
            history.held_gpu_hours[measures.first_held_index :],
            strict=True,
        )
        if held
    ]
    return (
        f"it always has {min(replicas)} replicas or more"
        if kind in SERVICE_KINDS and min(replicas) >= _MIN_REPLICAS
        else ""
    )


def spot_patch(subject: RecommendationSubject) -> str:
    """A preference for spot nodes, which does not require them; empty for kinds without a pod template."""
    terms = [
        "preferredDuringSchedulingIgnoredDuringExecution:",
        "  - weight: 100",
        "    preference:",
        "      matchExpressions:",
        "        - {key: karpenter.sh/capacity-type, operator: In, values: [spot]}",
    ]
    return affinity_patch(subject, terms, "# if Karpenter's node pool allows both capacity types\n")
