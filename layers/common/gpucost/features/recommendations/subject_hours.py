"""What the subjects of recommendations held and cost in the hours of the look-back."""

from collections.abc import Sequence
from typing import NamedTuple

from gpucost.features.recommendations.history import LookBack, PoolHourlySeries, PoolKey, WorkloadHourlySeries
from gpucost.features.recommendations.measuring import IDLE_UTILIZATION
from gpucost.features.recommendations.model import RecommendationContent

_GONE_HOURS = 6
"""Hours without GPUs after which a recommendation could count as applied, unless the workload runs elsewhere."""


class SubjectHour(NamedTuple):
    """The subject of a recommendation in one hour."""

    held: float
    """GPUs; for a pool or instance type: nodes."""
    usd: float | None
    """None if a part of it has no price."""
    demand: float
    """Running pods; for a pool to consolidate: the GPUs that they held."""
    used_gpu_hours: float
    """Observed effective GPU-hours."""


def held_by_hour(
    look_back: LookBack, content: RecommendationContent, *, keeps_resource: bool = True
) -> Sequence[float] | None:
    """The GPUs (for a pool: nodes) that the subject held in each hour; None if it is gone.

    Args:
        look_back: the look-back.
        content: the recommendation.
        keeps_resource: whether pods with another GPU model or resource are left out.
    """
    workloads, pools = series_of(look_back, content, keeps_resource=keeps_resource)
    series: list[Sequence[float]] = [history.held_gpu_hours for history in workloads]
    held = sum_by_hour(series + [pool.node_counts for pool in pools])
    is_gone = not any(held) or (not any(held[-_GONE_HOURS:]) and _is_elsewhere(look_back, content))
    return None if is_gone else held


def subject_hours(
    look_back: LookBack, content: RecommendationContent, *, keeps_resource: bool = True, counts_gpus: bool = False
) -> list[SubjectHour | None]:
    """The subject's hours, without a cost if a part has no price or the look-back has several currencies.

    Args:
        look_back: the look-back.
        content: the recommendation.
        keeps_resource: whether pods with another GPU model or resource are left out.
        counts_gpus: whether the demand of a pool is counted in GPUs, and not in pods.
    """
    workloads, pools = series_of(look_back, content, keeps_resource=keeps_resource)
    columns = [_workload_hours(history) for history in workloads]
    columns += [_pool_hours(pool, counts_gpus=counts_gpus) for pool in pools]
    has_single_currency = look_back.currencies <= {content.currency}
    hours: list[SubjectHour | None] = []
    for index, has_figures in enumerate(look_back.has_figures):
        parts = [part[index] for part in columns]
        usd = [part.usd for part in parts if part.usd is not None]
        is_priced = has_single_currency and len(usd) == len(parts)
        hours.append(
            SubjectHour(
                sum(part.held for part in parts),
                sum(usd) if is_priced else None,
                sum(part.demand for part in parts),
                sum(part.used_gpu_hours for part in parts),
            )
            if has_figures
            else None
        )
    return hours


def with_figures(look_back: LookBack, amounts: Sequence[float]) -> list[float | None]:
    """The amounts of hours; None for hours without figures."""
    return [amount if has_figures else None for amount, has_figures in zip(amounts, look_back.has_figures, strict=True)]


def series_of(
    look_back: LookBack, content: RecommendationContent, *, keeps_resource: bool = True
) -> tuple[list[WorkloadHourlySeries], list[PoolHourlySeries]]:
    """The workloads, or the pool, that a recommendation is about."""
    subject = content.subject
    if subject.is_workload:
        name = subject.business_unit, subject.namespace, subject.workload_kind, subject.workload
        workloads = [
            history
            for key, history in look_back.workloads.items()
            if key[:4] == name and (not keeps_resource or key[4:] == (subject.resource, subject.gpu_model))
        ]
        return workloads, []
    pool = look_back.pools.get(
        PoolKey(subject.node_pool, subject.instance_type, subject.capacity_type, subject.gpu_model)
    )
    return [], [] if pool is None else [pool]


def sum_by_hour(series: Sequence[Sequence[float]]) -> Sequence[float]:
    """The sums of several series, by hour."""
    return [sum(hour) for hour in zip(*series, strict=True)]


def _is_elsewhere(look_back: LookBack, content: RecommendationContent) -> bool:
    """Whether the same object runs under another business unit, or idle on another GPU model or resource."""
    subject, newest_hours = content.subject, range(max(0, look_back.hours - _GONE_HOURS), look_back.hours)
    return subject.is_workload and any(
        key[1:4] == (subject.namespace, subject.workload_kind, subject.workload)
        and any(history.held_gpu_hours[-_GONE_HOURS:])
        and (
            key.business_unit != subject.business_unit
            or all(
                history.used_gpu_hours[index] < IDLE_UTILIZATION * history.held_gpu_hours[index]
                for index in newest_hours
                if history.held_gpu_hours[index]
            )
        )
        for key, history in look_back.workloads.items()
    )


def _workload_hours(history: WorkloadHourlySeries) -> list[SubjectHour]:
    columns = zip(
        history.held_gpu_hours,
        history.cost_usd,
        history.is_unpriced,
        history.pod_counts,
        history.used_gpu_hours,
        strict=True,
    )
    return [
        SubjectHour(held, None if is_unpriced else usd, pods, used) for held, usd, is_unpriced, pods, used in columns
    ]


def _pool_hours(history: PoolHourlySeries, *, counts_gpus: bool) -> list[SubjectHour]:
    columns = zip(history.node_counts, history.cost_usd, history.is_unpriced, history.pod_sizes, strict=True)
    return [
        SubjectHour(
            nodes, None if is_unpriced else usd, sum((size if counts_gpus else 1) * count for size, count in pods), 0.0
        )
        for nodes, usd, is_unpriced, pods in columns
    ]
