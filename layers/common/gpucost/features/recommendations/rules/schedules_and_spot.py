"""Recommends schedules for workloads that are idle at nights and weekends, and spot capacity for interruptible ones."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from gpucost.core.metering.kubernetes_labels import INTERRUPTIBLE_LABEL
from gpucost.features.recommendations.history import LookBack, WorkloadHourlySeries
from gpucost.features.recommendations.measuring import (
    WorkloadMeasures,
    estimate_saving,
    workload_evidence,
    workload_list_price_ratio,
    workload_subject,
)
from gpucost.features.recommendations.model import RecommendationContent, round_cents, round_ratio
from gpucost.features.recommendations.node_prices import SpotPrice
from gpucost.features.recommendations.patches import schedule_patch, spot_patch
from gpucost.features.recommendations.rules.rightsizing import (
    IDLE_UTILIZATION,
    SERVICE_KINDS,
    confidence_level,
    workload_cash_share,
)

WEEK: Final = 168
MIN_WEEKS: Final = 2
"""Number of times that an hour of the week must have been observed, and idle each time."""
MIN_OBSERVED_SHARE: Final = 0.5
"""Part of an hour's GPU-hours that must be observed for the hour to be idle."""
MIN_HOURS_OFF: Final = 4
"""Consecutive idle hours. Shorter breaks are not worth a restart."""
MIN_SHARE_OFF: Final = 0.25
"""Part of the hours of a week that must be idle."""
MIN_SHARE_FREED: Final = 0.1
"""Part of the held GPU-hours that the schedule must free: a workload that stops by itself holds hardly any of them."""
_STOP_RISK = "Requests outside the schedule fail, because only the schedule starts the workload."
_STATE_RISK = "What is only in its memory is lost whenever it stops, and nothing else starts it outside the schedule."
_UTC_RISK = (
    "The schedule is in UTC, so it is an hour off in daylight saving time, unless alerts.time_zone in the settings "
    "names the time zone."
)
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
_MIN_MONTHLY_SAVING_USD = 1.0
_STATEFUL_KINDS = frozenset({"StatefulSet", "Notebook", "Pod"})
_STOPPABLE_KINDS = SERVICE_KINDS | {"Notebook", "Pod"}
_MIN_REPLICAS = 3
"""Replicas of a service: if one is lost, two remain."""
_DAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def recommend_off_hours(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    """Recommend a schedule for a workload that is always idle in some hours of the week.

    Jobs end by themselves and get none. Pods without an owner get no manifest, because nothing can start them again.
    """
    history, subject = measures.history, workload_subject(look_back.cluster, measures.history)
    if (
        subject.workload_kind not in _STOPPABLE_KINDS
        or measures.peak_utilization is None
        or measures.peak_utilization < IDLE_UTILIZATION
    ):
        return None
    slots = hours_of_week(look_back.start, look_back.hours, look_back.time_zone)
    quiet, is_observed = _idle_hours(look_back, measures, slots)
    if sum(quiet) < MIN_SHARE_OFF * WEEK:
        return None
    freed_gpu_hours = sum(held for held, slot in zip(history.held_gpu_hours, slots, strict=True) if quiet[slot])
    if freed_gpu_hours < MIN_SHARE_FREED * sum(history.held_gpu_hours):
        return None

    def freed(index: int) -> tuple[float, float]:
        is_off = quiet[slots[index]]
        return (history.cost_usd[index], history.held_gpu_hours[index]) if is_off else (0.0, 0.0)

    saving = estimate_saving(
        look_back,
        measures.first_held_index,
        freed,
        workload_cash_share(look_back, measures, measures.current_gpus),
        workload_list_price_ratio(look_back, history),
        history.is_unpriced,
    )
    if saving.usd < _MIN_MONTHLY_SAVING_USD:
        return None
    runs = list(_runs_of_hours([not hour for hour in quiet]))
    zone = look_back.time_zone.key if look_back.time_zone else "UTC"
    minute = look_back.start.astimezone(look_back.time_zone or UTC).minute
    schedule = ", ".join(
        f"{_format_hour(start, minute)} to {_format_hour(end, minute)}"
        + ("" if any(is_observed[hour % WEEK] for hour in range(start, end)) else " (no figures)")
        for start, end in runs
    )
    title = f"Stop {subject.workload_name} in {sum(quiet)} of 168 hours of the week"
    gpus_after = measures.current_gpus * (1 - sum(quiet) / WEEK)
    stop_risk = _STATE_RISK if subject.workload_kind in _STATEFUL_KINDS else _STOP_RISK
    return RecommendationContent(
        kind="off-hours",
        subject=subject,
        title=title,
        summary=f"{title}: it was idle in them every time",
        saving=saving,
        evidence=workload_evidence(
            look_back, measures, {f"needed ({zone})": schedule, "peak": "mean of the busiest hour"}
        ),
        confidence=confidence_level(measures),
        risk="medium",
        risk_note=stop_risk if look_back.time_zone else f"{stop_risk} {_UTC_RISK}",
        effort="medium",
        patch=schedule_patch(subject, runs, history.max_concurrent_pods(), zone=zone, minute=minute),
        current_gpus=round_cents(measures.current_gpus),
        recommended_gpus=round_ratio(gpus_after) or round_cents(0),
        usd_hourly=round_cents(measures.usd_hourly),
    )


@lru_cache(maxsize=8)
def hours_of_week(start: datetime, hours: int, zone: ZoneInfo | None) -> tuple[int, ...]:
    """The hour of the week of consecutive hours; 0 is Monday 00:00 in the time zone.

    In zones with half hours, such as India, an hour that starts at half past belongs to the hour before.
    """
    local = ((start + timedelta(hours=index)).astimezone(zone or UTC) for index in range(hours))
    return tuple(moment.weekday() * 24 + moment.hour for moment in local)


def _idle_hours(look_back: LookBack, measures: WorkloadMeasures, slots: Sequence[int]) -> tuple[list[bool], list[bool]]:
    """Whether each hour of the week was idle whenever it was observed, without short breaks; and whether it is known.

    An hour that was observed too rarely is neither: the schedule runs the workload then.
    """
    history = measures.history
    observations, busy = [0] * WEEK, [False] * WEEK
    for index in range(measures.first_held_index, look_back.hours):
        slot = slots[index]
        observed = history.observed_gpu_hours[index]
        if not look_back.has_figures[index] or observed < MIN_OBSERVED_SHARE * history.held_gpu_hours[index]:
            continue  # utilization is not known
        observations[slot] += 1
        busy[slot] |= observed > 0 and history.used_gpu_hours[index] >= IDLE_UTILIZATION * observed
    idle = [count >= MIN_WEEKS and not is_busy for count, is_busy in zip(observations, busy, strict=True)]
    quiet = [False] * WEEK
    for start, end in _runs_of_hours(idle):
        if end - start >= MIN_HOURS_OFF:
            for hour in range(start, end):
                quiet[hour % WEEK] = True
    return quiet, [count >= MIN_WEEKS for count in observations]


def _runs_of_hours(hours: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The runs of true hours of the week, as (first, end). The end may be in the next week."""
    if all(hours):
        yield 0, WEEK
        return
    for start in range(WEEK):
        if hours[start] and not hours[start - 1]:
            end = start
            while hours[end % WEEK]:
                end += 1
            yield start, end


def _format_hour(hour: int, minute: int) -> str:
    return f"{_DAY_NAMES[hour // 24 % 7]} {hour % 24:02d}:{minute:02d}"


def recommend_spot(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    """Recommend spot capacity for an interruptible workload.

    Interruptible are services that can lose a replica, and workloads with the label `gpucost/interruptible: "true"`
    whose pods are started again. The price is the mean spot price of the instance type in the most expensive zone. The
    range includes that zone's lowest and highest price.
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

    saving = estimate_saving(
        look_back,
        measures.first_held_index,
        freed,
        history.spend.avoidable_share(),
        workload_list_price_ratio(look_back, history),
        history.is_unpriced,
    )
    if saving.usd < _MIN_MONTHLY_SAVING_USD:
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
        kind="spot",
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
