"""The measures of workloads over the look-back, whether they suffice, and what subjects held and cost by hour."""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

from msgspec import Struct

from gpucost.core.hours import HOURS_PER_MONTH
from gpucost.features.recommendations.history import (
    LookBack,
    PoolHourlySeries,
    PoolKey,
    WorkloadHourlySeries,
    first_and_last_positive,
)
from gpucost.features.recommendations.model import (
    ConfidenceLevel,
    Evidence,
    RecommendationContent,
    RecommendationSubject,
    Saving,
    WorkloadFinding,
    round_cents,
    round_ratio,
)

MIN_HOURS = 168
"""A week. Shorter histories do not show weekends."""
MIN_COVERAGE = 0.9
"""Part of the allocated GPU-hours that must have observed utilization."""
MIN_DATA_SHARE = 0.9
"""Part of the hours since the workload's first hour that must have figures."""
MIN_PRICED_SHARE = 0.9
"""Part of the hours with figures that must have a price. Amounts leave the others out."""
NEWEST_HOURS = 24
"""The hours that show what a workload holds now."""
_WEEK, _DAY = 168, 24
_ENDED_HOURS = 6
"""Hours without GPUs that had some a week before: the workload has ended, this is no night or weekend."""
_SHRUNK_SHARE = 0.8
"""Part of the saving of the same hours of earlier weeks. Below it, only the newest day's saving is estimated."""
IDLE_UTILIZATION = 0.02
"""Utilization below which a GPU counts as idle. Drivers and health checks stay below it."""
LOW, TARGET, HIGH = 0.30, 0.70, 0.90
"""The usual bands: too many GPUs below the first, healthy up to the second, too little capacity above the last. The
second is also what recommendations leave in the busiest hour, as a reserve."""
SATURATED_HOURS_SHARE = 0.9
"""Part of the hours that must be above `HIGH` for a saturated workload."""
CERTAIN_HOURS, CERTAIN_COVERAGE = 336, 0.98
"""Confidence is high from two weeks and this coverage on."""
MIN_MONTHLY_SAVING_USD = 1.0
"""Smallest monthly saving of a recommendation."""
MIN_MEMORY_SHARE = 0.9
"""Part of the GPU-hours that must have observed memory."""
MEMORY_SPARE = 1.10
"""GPU memory ÷ the memory peak."""
GIB = 2**30
USABLE_MEMORY_RATIO = 0.9
"""Usable part of a GPU's nominal GB, in GiB: an A10G of 24 GB has 22.5, and each process needs memory of its own."""
SERVICE_KINDS = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "LeaderWorkerSet", "InferenceService", "RayService"}
)
"""Kinds that serve requests. A job at full utilization needs no change."""
_MIN_OBSERVED_SHARE = 0.05
"""Hours with a smaller observed part do not count for peaks."""


class WorkloadMeasures(Struct, frozen=True):
    """The measures of one workload over the look-back."""

    history: WorkloadHourlySeries
    first_held_index: int
    """Index of the first hour in which it held GPUs."""
    hours_with_figures: int
    """Hours with figures since then."""
    hours_held: int
    """Hours in which it held GPUs."""
    coverage: float
    mean_utilization: float | None
    """Mean utilization of the observed GPU-hours."""
    peak_utilization: float | None
    """Mean utilization of the busiest hour."""
    peak_used_gpus: float
    """Physical GPUs used in the busiest hour, with the observed utilization for unobserved parts."""
    pod_peak_utilization: float
    """Mean utilization of the busiest pod in its busiest hour; -1 without samples."""
    current_gpus: float
    """Mean physical GPUs held in the newest day, or in the newest week if that day has none; 0 if it has ended."""
    usd_hourly: float
    """Mean cost per hour, of the hours that have a price."""
    priced_share: float
    """Part of the hours with GPUs that are completely priced."""

    @property
    def missing_data_reason(self) -> str:
        """Why there can be no recommendation, as a sentence; empty if the measures suffice."""
        if self.current_gpus <= 0:
            return "holds no GPUs any more"
        if self.hours_with_figures < MIN_HOURS:
            return f"observed for {self.hours_with_figures} hours; a recommendation needs {MIN_HOURS}"
        if self.mean_utilization is None or self.coverage < MIN_COVERAGE:
            return (
                f"utilization was observed for {self.coverage:.0%} of its GPU-hours; a recommendation needs "
                f"{MIN_COVERAGE:.0%}"
            )
        if self.priced_share < MIN_PRICED_SHARE:
            return (
                f"{self.priced_share:.1%} of its hours are completely priced; a recommendation needs "
                f"{MIN_PRICED_SHARE:.0%}"
            )
        return ""


def measure_workload(look_back: LookBack, history: WorkloadHourlySeries, since: int = 0) -> WorkloadMeasures | None:
    """Calculate the measures of a workload.

    Args:
        look_back: the look-back.
        history: the workload's history.
        since: index of the first hour that counts. Hours before an applied recommendation do not show the present.

    Returns:
        None if it held no GPUs, or if too many hours since its first hour have no figures.
    """
    positive = first_and_last_positive(history.held_gpu_hours[since:])
    if positive is None:
        return None
    first = since + positive[0]
    hours_with_figures = sum(look_back.has_figures[first:])
    if hours_with_figures < MIN_DATA_SHARE * (look_back.hours - first):
        return None
    indexes = [index for index in range(first, look_back.hours) if history.held_gpu_hours[index] > 0]
    total_held = sum(history.held_gpu_hours[index] for index in indexes)
    total_observed = sum(history.observed_gpu_hours[index] for index in indexes)
    total_used = sum(history.used_gpu_hours[index] for index in indexes)
    peak, peak_gpus = None, 0.0
    for index in indexes:
        observed_gpu_hours = history.observed_gpu_hours[index]
        if observed_gpu_hours > _MIN_OBSERVED_SHARE * history.held_gpu_hours[index]:
            utilization = history.used_gpu_hours[index] / observed_gpu_hours
            peak = utilization if peak is None else max(peak, utilization)
            peak_gpus = max(peak_gpus, utilization * history.held_gpu_hours[index])
    current_gpus = 0.0
    if not _has_ended(look_back, history.held_gpu_hours, first):
        current_gpus = _mean_of_newest(look_back, history.held_gpu_hours, first, NEWEST_HOURS) or _mean_of_newest(
            look_back, history.held_gpu_hours, first, _WEEK
        )
    priced = look_back.priced_hour_indexes(history.is_unpriced, first)
    return WorkloadMeasures(
        history,
        first,
        hours_with_figures,
        len(indexes),
        min(1.0, total_observed / total_held),
        total_used / total_observed if total_observed > 0 else None,
        peak,
        peak_gpus,
        max(history.busiest_pod_utilization[index] for index in indexes),
        current_gpus,
        sum(history.cost_usd[index] for index in priced) / max(1, len(priced)),
        1 - sum(history.is_unpriced[index] for index in indexes) / len(indexes),
    )


def _mean_of_newest(look_back: LookBack, held: Sequence[float], first: int, hours: int) -> float:
    newest_hours = [
        index for index in range(max(first, look_back.hours - hours), look_back.hours) if look_back.has_figures[index]
    ]
    return sum(held[index] for index in newest_hours) / len(newest_hours) if newest_hours else 0.0


def _has_ended(look_back: LookBack, held: Sequence[float], first: int) -> bool:
    """Whether the newest hours have no GPUs, although the same hours of the week (or day) before had some."""
    last_held = max(index for index in range(first, look_back.hours) if held[index] > 0)
    missing_hours = 0
    for index in range(last_held + 1, look_back.hours):
        if look_back.has_figures[index]:
            earlier_hours = (index - _WEEK, *range(index - _DAY, first - 1, -_DAY))
            missing_hours += next(
                (
                    held[earlier] > 0
                    for earlier in earlier_hours
                    if first <= earlier <= last_held and look_back.has_figures[earlier]
                ),
                False,
            )
    return missing_hours >= _ENDED_HOURS


def classify_workload(measures: WorkloadMeasures) -> tuple[WorkloadFinding, str]:
    """The finding of a workload and its reason."""
    if measures.missing_data_reason or measures.mean_utilization is None or measures.peak_utilization is None:
        return "unknown", measures.missing_data_reason or "no utilization was observed"
    mean, peak = measures.mean_utilization, measures.peak_utilization
    reason = f"utilization {mean:.0%} on average, {peak:.0%} in the busiest hour"
    if peak < IDLE_UTILIZATION:
        return "idle", reason
    if mean < LOW:
        return ("low", reason) if peak < LOW else ("bursty", reason)
    if mean <= TARGET:
        return "healthy", reason
    return ("saturated", reason) if _is_sustained_high_use(measures) else ("busy", reason)


def _is_sustained_high_use(measures: WorkloadMeasures) -> bool:
    history = measures.history
    is_high = [
        history.used_gpu_hours[index] / history.observed_gpu_hours[index] >= HIGH
        for index in range(measures.first_held_index, len(history.held_gpu_hours))
        if history.observed_gpu_hours[index] > 0
    ]
    return sum(is_high) >= SATURATED_HOURS_SHARE * len(is_high)


def confidence_level(measures: WorkloadMeasures) -> ConfidenceLevel:
    """High or medium. With less than a week or little coverage there is no recommendation."""
    return (
        "high" if measures.hours_with_figures >= CERTAIN_HOURS and measures.coverage >= CERTAIN_COVERAGE else "medium"
    )


def workload_subject(cluster: str, history: WorkloadHourlySeries) -> RecommendationSubject:
    """The subject of recommendations for a workload."""
    key = history.key
    return RecommendationSubject(
        cluster, key.business_unit, key.namespace, key.kind, key.name, gpu_model=key.gpu_model, resource=key.resource
    )


def workload_evidence(look_back: LookBack, measured: WorkloadMeasures, facts: dict[str, str]) -> Evidence:
    """The evidence of a recommendation for a workload."""
    return Evidence(
        look_back.hour_at(measured.first_held_index),
        look_back.hour_at(look_back.hours - 1),
        measured.hours_held,
        look_back.hours - measured.first_held_index - measured.hours_with_figures,
        round_ratio(measured.coverage),
        round_ratio(measured.mean_utilization),
        round_ratio(measured.peak_utilization),
        facts | unpriced_facts(sum(measured.history.is_unpriced[measured.first_held_index :]), measured.hours_held),
    )


def unpriced_facts(unpriced_hours: int, hours: int) -> dict[str, str]:
    """A fact about the hours without a price; empty if there are none."""
    return {"without a price": f"{unpriced_hours} of {hours} hours, left out of the saving"} if unpriced_hours else {}


def estimate_saving(
    look_back: LookBack,
    first: int,
    freed_by_hour: Callable[[int], tuple[float, float]],
    cash: float | None,
    list_ratio: float | None,
    unpriced: Sequence[int],
) -> Saving:
    """Estimate the monthly saving from what each hour of the look-back would have saved.

    A subject that shrank or ended lately has less to save than the look-back's mean. Its mean is scaled by the newest
    day ÷ the same hours of earlier weeks.

    Args:
        look_back: the look-back.
        first: index of the first hour that counts.
        freed_by_hour: returns the USD and GPU-hours that an hour would have saved, by its index.
        cash: the part of the saving that is cash; None if it is not known.
        list_ratio: list price ÷ the rates charged; None if it is not known.
        unpriced: 1 for hours in which a part of the subject has no price. They do not count.
    """
    indexes = look_back.priced_hour_indexes(unpriced, first)
    hours = [freed_by_hour(index) for index in indexes]
    if not hours:
        return Saving(round_cents(0), round_cents(0), round_cents(0), None, None, round_cents(0))
    remaining_share = _remaining_share(dict(zip(indexes, (usd for usd, _ in hours), strict=True)), look_back.hours)
    hours = [(usd * remaining_share, gpu_hours * remaining_share) for usd, gpu_hours in hours]
    monthly = sum(usd for usd, _ in hours) / len(hours) * HOURS_PER_MONTH
    gpu_hours = sum(gpu_hours for _, gpu_hours in hours) / len(hours) * HOURS_PER_MONTH
    margin = 2 * _standard_error([usd for usd, _ in hours]) * HOURS_PER_MONTH
    low, high = monthly - margin, monthly + margin
    if monthly >= 0:
        low = max(0.0, low)
    return Saving(
        round_cents(monthly),
        round_cents(low),
        round_cents(high),
        None if list_ratio is None else round_cents(monthly * list_ratio),
        None if cash is None else round_cents(monthly * cash),
        round_cents(gpu_hours),
    )


def estimate_workload_saving(
    look_back: LookBack,
    measures: WorkloadMeasures,
    freed_by_hour: Callable[[int], tuple[float, float]],
    cash: float | None,
) -> Saving:
    """Estimate the saving of a workload; see `estimate_saving`."""
    history = measures.history
    list_ratio = workload_list_price_ratio(look_back, history)
    first = measures.first_held_index
    return estimate_saving(look_back, first, freed_by_hour, cash, list_ratio, history.is_unpriced)


def _remaining_share(usd: Mapping[int, float], end: int) -> float:
    """The newest day's saving ÷ that of the same hours of earlier weeks; 1 if it is about the same or larger."""
    newest_usd = usual_usd = 0.0
    for index in range(end - NEWEST_HOURS, end):
        earlier_weeks = [usd[earlier] for earlier in range(index - _WEEK, -1, -_WEEK) if earlier in usd]
        if index in usd and earlier_weeks:
            newest_usd += usd[index]
            usual_usd += sum(earlier_weeks) / len(earlier_weeks)
    remaining_share = newest_usd / usual_usd if usual_usd else 1.0
    return max(0.0, remaining_share) if remaining_share < _SHRUNK_SHARE else 1.0


def workload_list_price_ratio(look_back: LookBack, history: WorkloadHourlySeries) -> float | None:
    """List price ÷ what was charged for a workload; None if a list price of its instance types is not known.

    A GPU costs the node's list price ÷ the node's GPUs, as with the default split policy.
    """
    if history.spend.is_all_at_list_price:
        return 1.0
    charged_usd = sum(history.cost_usd)
    list_usd = 0.0
    for pool, gpu_hours in history.gpu_millihours_by_pool.items():
        node_hour = look_back.list_prices.get(pool.instance_type)
        pool_history = look_back.pools[pool]
        nodes = sum(pool_history.node_counts)
        if node_hour is None or not nodes or not sum(pool_history.capacity_gpu_hours):
            return None
        list_usd += gpu_hours / 1000 * node_hour * nodes / sum(pool_history.capacity_gpu_hours)
    list_usd *= 1 - history.unpriced_gpu_hours / sum(history.held_gpu_hours)
    return list_usd / charged_usd if charged_usd and list_usd else None


def _standard_error(hours: Sequence[float]) -> float:
    """The standard error of the mean hour, from whole days: hours of one day are not independent."""
    days = [sum(hours[start : start + 24]) / len(hours[start : start + 24]) for start in range(0, len(hours), 24)]
    if len(days) <= 1:
        return 0.0
    mean = sum(days) / len(days)
    return sqrt(sum((day - mean) ** 2 for day in days) / (len(days) - 1) / len(days))


# What the subjects of recommendations held and cost in the hours of the look-back.

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
