"""Workloads that could stop at nights and weekends, and workloads that could run on spot capacity."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from gpucost.core.metering.kubernetes_labels import INTERRUPTIBLE
from gpucost.features.recommendations.history import LookBack, WorkloadHistory
from gpucost.features.recommendations.measuring import Measured, about_workload, evidence_of, list_ratio_of, saving_of
from gpucost.features.recommendations.model import Advice, cents, ratio
from gpucost.features.recommendations.node_prices import SpotPrice
from gpucost.features.recommendations.patches import schedule_patch, spot_patch
from gpucost.features.recommendations.rules.rightsizing import IDLE, SERVICES, cash_share, confidence_of

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


def off_hours(look: LookBack, one: Measured) -> Advice | None:
    """Hours of the week in which a workload never does anything, though it does in others.

    Jobs end by themselves; of pods without an owner nobody can start another, so they get words and no patch.
    """
    history, about = one.history, about_workload(look.cluster, one.history)
    if about.workload_kind not in _KINDS or one.peak is None or one.peak < IDLE:
        return None
    slots = week_hours(look.start, look.hours, look.zone)
    quiet = _quiet(look, one, slots)
    if sum(quiet) < LEAST_PART * WEEK:
        return None

    def freed(place: int) -> tuple[float, float]:
        is_off = quiet[slots[place]]
        return (history.usd[place], history.held[place]) if is_off else (0.0, 0.0)

    saving = saving_of(
        look, one.first, freed, cash_share(look, one, one.now), list_ratio_of(look, history), history.unpriced
    )
    if saving.usd < _LEAST_USD:
        return None
    on = list(_runs([not hour for hour in quiet]))
    zone, minute = look.zone.key if look.zone else "UTC", look.start.astimezone(look.zone or UTC).minute
    words = ", ".join(f"{_moment(start, minute)} to {_moment(end, minute)}" for start, end in on)
    now = one.now * (1 - sum(quiet) / WEEK)
    return Advice(
        "off-hours", about,
        f"Stop {about.workload_kind} {about.namespace}/{about.workload} when it does nothing: {sum(quiet)} of 168 "
        "hours of the week were idle every time",
        saving,
        evidence_of(look, one, {f"needed ({zone})": words, "peak": "mean of the busiest hour"}), confidence_of(one),
        "medium",
        _LATE if look.zone else f"{_LATE} {_SHIFTS}", "medium",
        schedule_patch(about, on, history.pods_at_once(), zone=zone, minute=minute),
        cents(one.now), ratio(now) or cents(0), cents(one.usd_hourly),
    )  # fmt: skip


@lru_cache(maxsize=8)
def week_hours(start: datetime, hours: int, zone: ZoneInfo | None) -> tuple[int, ...]:
    """The hour of the week, Monday 00:00 of the zone first, of each of some hours.

    An hour that begins at half past, as in India, is that of the clock's hour before.
    """
    local = ((start + timedelta(hours=place)).astimezone(zone or UTC) for place in range(hours))
    return tuple(moment.weekday() * 24 + moment.hour for moment in local)


def _quiet(look: LookBack, one: Measured, slots: Sequence[int]) -> list[bool]:
    """Hours of the week that were idle whenever they were seen, in runs that are worth it."""
    history = one.history
    seen, busy = [0] * WEEK, [False] * WEEK
    for place in range(one.first, look.hours):
        slot = slots[place]
        observed = history.observed[place]
        if not look.known[place]:
            continue
        if history.held[place] and not observed:
            busy[slot] = True  # nobody knows
        else:
            seen[slot] += 1
            busy[slot] |= observed > 0 and history.used[place] >= IDLE * observed
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


def spot(look: LookBack, one: Measured) -> Advice | None:
    """What can be interrupted, at the look-back's mean spot price of its own instance type in the dearest zone.

    The range is widened to that zone's highest and lowest price.

    That is services that can lose a replica, and whatever says so itself by the label `gpucost/interruptible`, if
    something starts its pods again.
    """
    history, about = one.history, about_workload(look.cluster, one.history)
    why = _tolerates(one)
    if not why or not history.pools or {pool.capacity_type for pool in history.pools} != {"on-demand"}:
        return None
    costs = _on_spot(look, history)
    charged = sum(history.usd)
    if costs is None or not charged:
        return None
    part, at_highest, at_lowest = (1 - cost / charged for cost in (costs.usd, costs.high, costs.low))
    if part <= 0:
        return None

    def freed(place: int) -> tuple[float, float]:
        return history.usd[place] * part, 0.0

    saving = saving_of(look, one.first, freed, history.cash.share(), list_ratio_of(look, history), history.unpriced)
    if saving.usd < _LEAST_USD:
        return None
    saving = replace(
        saving,
        low_usd=cents(max(0.0, float(saving.low_usd) * at_highest / part)),
        high_usd=cents(float(saving.high_usd) * at_lowest / part),
    )
    prices = {name: look.spot_prices[name] for name in sorted({pool.instance_type for pool in history.pools})}
    types = ", ".join(
        f"{name} ${one.usd:.3f} an hour ({one.low:.3f} to {one.high:.3f})" for name, one in prices.items()
    )
    return Advice(
        "spot", about,
        f"Run {about.workload_kind} {about.namespace}/{about.workload} on spot capacity: {why}, and spot costs "
        f"{part:.0%} less",
        saving,
        evidence_of(look, one, {"spot": f"{types}: mean of the dearest zone"}), "medium", "high",
        _SPOT_RISK if about.workload_kind in SERVICES else _BATCH_RISK,
        "medium", spot_patch(about), cents(one.now), cents(0), cents(one.usd_hourly),
    )  # fmt: skip


def _on_spot(look: LookBack, history: WorkloadHistory) -> SpotPrice | None:
    """USD that what a workload held would have cost on spot; None where a price is not known."""
    costs = [0.0, 0.0, 0.0]
    for pool, gpu_hours in history.pools.items():
        own, price = look.pools[pool], look.spot_prices.get(pool.instance_type)
        capacity = sum(own.capacity)
        if price is None or not capacity:
            return None
        node_hours = gpu_hours / 1000 * sum(own.nodes) / capacity
        costs = [cost + node_hours * usd for cost, usd in zip(costs, price, strict=True)]
    priced = 1 - history.unpriced_gpu_hours / sum(history.held)
    return SpotPrice(*(cost * priced for cost in costs))


def _tolerates(one: Measured) -> str:
    """Why a workload may be interrupted, in words; "" where nothing says that it may."""
    history, kind = one.history, one.history.key.kind
    held = sum(history.held)
    if history.uninterruptible or kind == "Pod":  # nobody starts a pod again that no other object owns
        return ""
    if history.interruptible >= _LABELLED * held:
        return f"its pods say {INTERRUPTIBLE}"
    there = [count for count, own in zip(history.pods[one.first :], history.held[one.first :], strict=True) if own]
    return f"it has {min(there)} replicas at least" if kind in SERVICES and min(there) >= _REPLICAS else ""
