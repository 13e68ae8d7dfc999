"""Workloads that could stop at nights and weekends, and workloads that could run on spot capacity."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from gpucost.core.metering.kubernetes_labels import INTERRUPTIBLE
from gpucost.features.recommendations.history import LookBack, WorkloadHistory
from gpucost.features.recommendations.measuring import (
    WorkloadMeasures,
    estimate_saving,
    workload_evidence,
    workload_list_ratio,
    workload_subject,
)
from gpucost.features.recommendations.model import RecommendationContent, round_cents, round_ratio
from gpucost.features.recommendations.node_prices import SpotPrice
from gpucost.features.recommendations.patches import schedule_patch, spot_patch
from gpucost.features.recommendations.rules.rightsizing import IDLE, SERVICES, confidence_level, workload_cash_share

WEEK: Final = 168
MIN_WEEKS: Final = 2
"""How often an hour of the week must have been seen, and idle each time."""
MIN_HOURS_OFF: Final = 4
"""Hours on end: less is not worth a restart."""
MIN_SHARE_OFF: Final = 0.25
"""Of the hours of a week."""
_START_RISK = "Whoever comes at another hour waits for a start."
_UTC_RISK = (
    "The schedule is in UTC: where people change to summer time it is an hour off from then on, unless the settings' "
    "alerts.time_zone names their zone."
)
_SPOT_RISK = (
    "Two minutes' notice, and capacity may be missing for hours: keep a part on demand, spread replicas over zones, "
    "and set a PodDisruptionBudget."
)
_BATCH_RISK = (
    "Two minutes' notice, and capacity may be missing for hours: what was done since the last checkpoint is done again."
)
_LABELED_SHARE = 0.999
"""Part of the GPU-hours held whose pods must carry the label."""
_MIN_USD = 1.0
_STOPPABLE_KINDS = SERVICES | {"Notebook", "Pod"}
_MIN_REPLICAS = 3
"""So that losing one leaves two."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def recommend_off_hours(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    """Hours of the week in which a workload never does anything, though it does in others.

    Jobs end by themselves; of pods without an owner nobody can start another, so they get words and no patch.
    """
    history, subject = measures.history, workload_subject(look_back.cluster, measures.history)
    if subject.workload_kind not in _STOPPABLE_KINDS or measures.peak is None or measures.peak < IDLE:
        return None
    slots = week_hours(look_back.start, look_back.hours, look_back.time_zone)
    quiet = _idle_hours(look_back, measures, slots)
    if sum(quiet) < MIN_SHARE_OFF * WEEK:
        return None

    def freed(index: int) -> tuple[float, float]:
        is_off = quiet[slots[index]]
        return (history.usd[index], history.held[index]) if is_off else (0.0, 0.0)

    saving = estimate_saving(
        look_back,
        measures.first,
        freed,
        workload_cash_share(look_back, measures, measures.current_gpus),
        workload_list_ratio(look_back, history),
        history.unpriced,
    )
    if saving.usd < _MIN_USD:
        return None
    runs = list(_runs_of_hours([not hour for hour in quiet]))
    zone, minute = (
        look_back.time_zone.key if look_back.time_zone else "UTC",
        look_back.start.astimezone(look_back.time_zone or UTC).minute,
    )
    schedule = ", ".join(f"{_format_hour(start, minute)} to {_format_hour(end, minute)}" for start, end in runs)
    gpus_after = measures.current_gpus * (1 - sum(quiet) / WEEK)
    return RecommendationContent(
        "off-hours",
        subject,
        f"Stop {subject.workload_kind} {subject.namespace}/{subject.workload} when it does nothing: {sum(quiet)} of 168 "
        "hours of the week were idle every time",
        saving,
        workload_evidence(look_back, measures, {f"needed ({zone})": schedule, "peak": "mean of the busiest hour"}),
        confidence_level(measures),
        "medium",
        _START_RISK if look_back.time_zone else f"{_START_RISK} {_UTC_RISK}",
        "medium",
        schedule_patch(subject, runs, history.max_concurrent_pods(), zone=zone, minute=minute),
        round_cents(measures.current_gpus),
        round_ratio(gpus_after) or round_cents(0),
        round_cents(measures.usd_hourly),
    )


@lru_cache(maxsize=8)
def week_hours(start: datetime, hours: int, zone: ZoneInfo | None) -> tuple[int, ...]:
    """The hour of the week, Monday 00:00 of the zone first, of each of some hours.

    An hour that begins at half past, as in India, is that of the clock's hour before.
    """
    local = ((start + timedelta(hours=index)).astimezone(zone or UTC) for index in range(hours))
    return tuple(moment.weekday() * 24 + moment.hour for moment in local)


def _idle_hours(look_back: LookBack, measures: WorkloadMeasures, slots: Sequence[int]) -> list[bool]:
    """Hours of the week that were idle whenever they were seen, in runs that are worth it."""
    history = measures.history
    observations, busy = [0] * WEEK, [False] * WEEK
    for index in range(measures.first, look_back.hours):
        slot = slots[index]
        observed = history.observed[index]
        if not look_back.has_figures[index]:
            continue
        if history.held[index] and not observed:
            busy[slot] = True  # nobody knows
        else:
            observations[slot] += 1
            busy[slot] |= observed > 0 and history.used[index] >= IDLE * observed
    idle = [count >= MIN_WEEKS and not is_busy for count, is_busy in zip(observations, busy, strict=True)]
    quiet = [False] * WEEK
    for start, end in _runs_of_hours(idle):
        if end - start >= MIN_HOURS_OFF:
            for hour in range(start, end):
                quiet[hour % WEEK] = True
    return quiet


def _runs_of_hours(hours: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Runs of true hours around the week, as (first, end); the end may lie in the week after."""
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
    return f"{_DAYS[hour // 24 % 7]} {hour % 24:02d}:{minute:02d}"


def recommend_spot(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    """What can be interrupted, at the look-back's mean spot price of its own instance type in the dearest zone.

    The range is widened to that zone's highest and lowest price.

    That is services that can lose a replica, and whatever says so itself by the label `gpucost/interruptible`, if
    something starts its pods again.
    """
    history, subject = measures.history, workload_subject(look_back.cluster, measures.history)
    reason = _why_interruptible(measures)
    if not reason or not history.pools or {pool.capacity_type for pool in history.pools} != {"on-demand"}:
        return None
    costs = _cost_on_spot(look_back, history)
    charged_usd = sum(history.usd)
    if costs is None or not charged_usd:
        return None
    saved_share, at_highest, at_lowest = (1 - cost / charged_usd for cost in (costs.usd, costs.high, costs.low))
    if saved_share <= 0:
        return None

    def freed(index: int) -> tuple[float, float]:
        return history.usd[index] * saved_share, 0.0

    saving = estimate_saving(
        look_back,
        measures.first,
        freed,
        history.cash.cash_share(),
        workload_list_ratio(look_back, history),
        history.unpriced,
    )
    if saving.usd < _MIN_USD:
        return None
    saving = replace(
        saving,
        low_usd=round_cents(max(0.0, float(saving.low_usd) * at_highest / saved_share)),
        high_usd=round_cents(float(saving.high_usd) * at_lowest / saved_share),
    )
    prices = {name: look_back.spot_prices[name] for name in sorted({pool.instance_type for pool in history.pools})}
    types = ", ".join(
        f"{name} ${measures.usd:.3f} an hour ({measures.low:.3f} to {measures.high:.3f})" for name, measures in prices.items()
    )
    return RecommendationContent(
        "spot",
        subject,
        f"Run {subject.workload_kind} {subject.namespace}/{subject.workload} on spot capacity: {reason}, and spot costs "
        f"{saved_share:.0%} less",
        saving,
        workload_evidence(look_back, measures, {"spot": f"{types}: mean of the dearest zone"}),
        "medium",
        "high",
        _SPOT_RISK if subject.workload_kind in SERVICES else _BATCH_RISK,
        "medium",
        spot_patch(subject),
        round_cents(measures.current_gpus),
        round_cents(0),
        round_cents(measures.usd_hourly),
    )


def _cost_on_spot(look_back: LookBack, history: WorkloadHistory) -> SpotPrice | None:
    """USD that what a workload held would have cost on spot; None where a price is not known."""
    costs = [0.0, 0.0, 0.0]
    for pool, gpu_hours in history.pools.items():
        pool_history, price = look_back.pools[pool], look_back.spot_prices.get(pool.instance_type)
        capacity = sum(pool_history.capacity)
        if price is None or not capacity:
            return None
        node_hours = gpu_hours / 1000 * sum(pool_history.nodes) / capacity
        costs = [cost + node_hours * usd for cost, usd in zip(costs, price, strict=True)]
    priced_share = 1 - history.unpriced_gpu_hours / sum(history.held)
    return SpotPrice(*(cost * priced_share for cost in costs))


def _why_interruptible(measures: WorkloadMeasures) -> str:
    """Why a workload may be interrupted, in words; "" where nothing says that it may."""
    history, kind = measures.history, measures.history.key.kind
    total_held = sum(history.held)
    if history.uninterruptible or kind == "Pod":  # nobody starts a pod again that no other object owns
        return ""
    if history.interruptible >= _LABELED_SHARE * total_held:
        return f"its pods say {INTERRUPTIBLE}"
    replicas = [count for count, held in zip(history.pods[measures.first :], history.held[measures.first :], strict=True) if held]
    return f"it has {min(replicas)} replicas at least" if kind in SERVICES and min(replicas) >= _MIN_REPLICAS else ""
