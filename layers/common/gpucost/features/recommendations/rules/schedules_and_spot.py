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
LEAST_WEEKS: Final = 2
"""How often an hour of the week must have been seen, and idle each time."""
SHORTEST: Final = 4
"""Hours on end: less is not worth a restart."""
LEAST_PART: Final = 0.25
"""Of the hours of a week."""
_LATE = "Whoever comes at another hour waits for a start."
_SHIFTS = (
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
_LABELLED = 0.999
"""Part of the GPU-hours held whose pods must carry the label."""
_LEAST_USD = 1.0
_KINDS = SERVICES | {"Notebook", "Pod"}
_REPLICAS = 3
"""So that losing one leaves two."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def recommend_off_hours(look_back: LookBack, one: WorkloadMeasures) -> RecommendationContent | None:
    """Hours of the week in which a workload never does anything, though it does in others.

    Jobs end by themselves; of pods without an owner nobody can start another, so they get words and no patch.
    """
    history, subject = one.history, workload_subject(look_back.cluster, one.history)
    if subject.workload_kind not in _KINDS or one.peak is None or one.peak < IDLE:
        return None
    slots = week_hours(look_back.start, look_back.hours, look_back.time_zone)
    quiet = _quiet(look_back, one, slots)
    if sum(quiet) < LEAST_PART * WEEK:
        return None

    def freed(index: int) -> tuple[float, float]:
        is_off = quiet[slots[index]]
        return (history.usd[index], history.held[index]) if is_off else (0.0, 0.0)

    saving = estimate_saving(
        look_back,
        one.first,
        freed,
        workload_cash_share(look_back, one, one.current_gpus),
        workload_list_ratio(look_back, history),
        history.unpriced,
    )
    if saving.usd < _LEAST_USD:
        return None
    on = list(_runs([not hour for hour in quiet]))
    zone, minute = (
        look_back.time_zone.key if look_back.time_zone else "UTC",
        look_back.start.astimezone(look_back.time_zone or UTC).minute,
    )
    words = ", ".join(f"{_moment(start, minute)} to {_moment(end, minute)}" for start, end in on)
    now = one.current_gpus * (1 - sum(quiet) / WEEK)
    return RecommendationContent(
        "off-hours",
        subject,
        f"Stop {subject.workload_kind} {subject.namespace}/{subject.workload} when it does nothing: {sum(quiet)} of 168 "
        "hours of the week were idle every time",
        saving,
        workload_evidence(look_back, one, {f"needed ({zone})": words, "peak": "mean of the busiest hour"}),
        confidence_level(one),
        "medium",
        _LATE if look_back.time_zone else f"{_LATE} {_SHIFTS}",
        "medium",
        schedule_patch(subject, on, history.max_concurrent_pods(), zone=zone, minute=minute),
        round_cents(one.current_gpus),
        round_ratio(now) or round_cents(0),
        round_cents(one.usd_hourly),
    )


@lru_cache(maxsize=8)
def week_hours(start: datetime, hours: int, zone: ZoneInfo | None) -> tuple[int, ...]:
    """The hour of the week, Monday 00:00 of the zone first, of each of some hours.

    An hour that begins at half past, as in India, is that of the clock's hour before.
    """
    local = ((start + timedelta(hours=index)).astimezone(zone or UTC) for index in range(hours))
    return tuple(moment.weekday() * 24 + moment.hour for moment in local)


def _quiet(look_back: LookBack, one: WorkloadMeasures, slots: Sequence[int]) -> list[bool]:
    """Hours of the week that were idle whenever they were seen, in runs that are worth it."""
    history = one.history
    seen, busy = [0] * WEEK, [False] * WEEK
    for index in range(one.first, look_back.hours):
        slot = slots[index]
        observed = history.observed[index]
        if not look_back.has_figures[index]:
            continue
        if history.held[index] and not observed:
            busy[slot] = True  # nobody knows
        else:
            seen[slot] += 1
            busy[slot] |= observed > 0 and history.used[index] >= IDLE * observed
    idle = [count >= LEAST_WEEKS and not was for count, was in zip(seen, busy, strict=True)]
    found = [False] * WEEK
    for start, end in _runs(idle):
        if end - start >= SHORTEST:
            for hour in range(start, end):
                found[hour % WEEK] = True
    return found


def _runs(hours: Sequence[bool]) -> Iterator[tuple[int, int]]:
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


def _moment(hour: int, minute: int) -> str:
    return f"{_DAYS[hour // 24 % 7]} {hour % 24:02d}:{minute:02d}"


def recommend_spot(look_back: LookBack, one: WorkloadMeasures) -> RecommendationContent | None:
    """What can be interrupted, at the look-back's mean spot price of its own instance type in the dearest zone.

    The range is widened to that zone's highest and lowest price.

    That is services that can lose a replica, and whatever says so itself by the label `gpucost/interruptible`, if
    something starts its pods again.
    """
    history, subject = one.history, workload_subject(look_back.cluster, one.history)
    why = _tolerates(one)
    if not why or not history.pools or {pool.capacity_type for pool in history.pools} != {"on-demand"}:
        return None
    costs = _on_spot(look_back, history)
    charged = sum(history.usd)
    if costs is None or not charged:
        return None
    part, at_highest, at_lowest = (1 - cost / charged for cost in (costs.usd, costs.high, costs.low))
    if part <= 0:
        return None

    def freed(index: int) -> tuple[float, float]:
        return history.usd[index] * part, 0.0

    saving = estimate_saving(
        look_back,
        one.first,
        freed,
        history.cash.cash_share(),
        workload_list_ratio(look_back, history),
        history.unpriced,
    )
    if saving.usd < _LEAST_USD:
        return None
    saving = replace(
        saving,
        low_usd=round_cents(max(0.0, float(saving.low_usd) * at_highest / part)),
        high_usd=round_cents(float(saving.high_usd) * at_lowest / part),
    )
    prices = {name: look_back.spot_prices[name] for name in sorted({pool.instance_type for pool in history.pools})}
    types = ", ".join(
        f"{name} ${one.usd:.3f} an hour ({one.low:.3f} to {one.high:.3f})" for name, one in prices.items()
    )
    return RecommendationContent(
        "spot",
        subject,
        f"Run {subject.workload_kind} {subject.namespace}/{subject.workload} on spot capacity: {why}, and spot costs "
        f"{part:.0%} less",
        saving,
        workload_evidence(look_back, one, {"spot": f"{types}: mean of the dearest zone"}),
        "medium",
        "high",
        _SPOT_RISK if subject.workload_kind in SERVICES else _BATCH_RISK,
        "medium",
        spot_patch(subject),
        round_cents(one.current_gpus),
        round_cents(0),
        round_cents(one.usd_hourly),
    )


def _on_spot(look_back: LookBack, history: WorkloadHistory) -> SpotPrice | None:
    """USD that what a workload held would have cost on spot; None where a price is not known."""
    costs = [0.0, 0.0, 0.0]
    for pool, gpu_hours in history.pools.items():
        own, price = look_back.pools[pool], look_back.spot_prices.get(pool.instance_type)
        capacity = sum(own.capacity)
        if price is None or not capacity:
            return None
        node_hours = gpu_hours / 1000 * sum(own.nodes) / capacity
        costs = [cost + node_hours * usd for cost, usd in zip(costs, price, strict=True)]
    priced = 1 - history.unpriced_gpu_hours / sum(history.held)
    return SpotPrice(*(cost * priced for cost in costs))


def _tolerates(one: WorkloadMeasures) -> str:
    """Why a workload may be interrupted, in words; "" where nothing says that it may."""
    history, kind = one.history, one.history.key.kind
    held = sum(history.held)
    if history.uninterruptible or kind == "Pod":  # nobody starts a pod again that no other object owns
        return ""
    if history.interruptible >= _LABELLED * held:
        return f"its pods say {INTERRUPTIBLE}"
    there = [count for count, own in zip(history.pods[one.first :], history.held[one.first :], strict=True) if own]
    return f"it has {min(there)} replicas at least" if kind in SERVICES and min(there) >= _REPLICAS else ""
