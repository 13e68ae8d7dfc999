"""Schedules for workloads that are idle at nights and weekends."""

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.kinds.base import API_VERSION_OF_SCALABLE_KIND, RecommendationKind, quoted
from gpucost.features.recommendations.measuring import (
    IDLE_UTILIZATION,
    MIN_MONTHLY_SAVING_USD,
    SERVICE_KINDS,
    SubjectHour,
    WorkloadMeasures,
    confidence_level,
    estimate_workload_saving,
    held_by_hour,
    workload_evidence,
    workload_subject,
)
from gpucost.features.recommendations.model import (
    RecommendationContent,
    RecommendationSubject,
    round_cents,
    round_ratio,
)
from gpucost.features.recommendations.pools import workload_cash_share

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
_STATEFUL_KINDS = frozenset({"StatefulSet", "Notebook", "Pod"})
_STOPPABLE_KINDS = SERVICE_KINDS | {"Notebook", "Pod"}
_DAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class OffHours(RecommendationKind):
    """Stop a workload in hours of the week in which it is always idle."""

    name = "off-hours"
    title = "Stop outside working hours"
    when = (
        "at least a quarter of the hours of the week were idle each time they were observed (twice or more), in runs "
        "of four hours or more, and held at least a tenth of the workload's GPU-hours. At other times the workload "
        "was in use. Hours of the week without figures are named and count as needed"
    )
    change = "stop in these hours: a KEDA schedule in the settings' `alerts.time_zone`"
    verified = "hours in which nothing ran the week before"
    not_verified = "hours of work"
    choice = "largest"
    shows_in_week = True

    @classmethod
    def recommend_for(cls, look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
        """Recommend a schedule for a workload that is always idle in some hours of the week.

        Jobs end by themselves and get none. Pods without an owner get no manifest, because nothing can start them
        again.
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

        saving = estimate_workload_saving(
            look_back, measures, freed, workload_cash_share(look_back, measures, measures.current_gpus)
        )
        if saving.usd < MIN_MONTHLY_SAVING_USD:
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
            kind=cls.name,
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

    @classmethod
    def hourly_gpus(cls, look_back: LookBack, content: RecommendationContent) -> Sequence[float | None] | None:
        """The mean of the week that ends with each hour: a schedule lowers the mean of a week, not of every hour."""
        held = held_by_hour(look_back, content)
        if held is None:
            return None
        means: list[float | None] = []
        week: deque[float] = deque(maxlen=WEEK)
        for amount, has_figures in zip(held, look_back.has_figures, strict=True):
            if has_figures:
                week.append(amount)
            means.append(sum(week) / WEEK if has_figures and len(week) == WEEK else None)
        return means

    @classmethod
    def expected_amount(cls, content: RecommendationContent, current: SubjectHour, before: SubjectHour) -> float:
        """What it held if it was idle, because a schedule does not stop hours of work."""
        return before.held if before.used_gpu_hours < IDLE_UTILIZATION * before.held else 0.0


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


def schedule_patch(
    subject: RecommendationSubject,
    running_hours: Sequence[tuple[int, int]],
    replicas: int,
    *,
    zone: str = "UTC",
    minute: int = 0,
) -> str:
    """A KEDA ScaledObject that runs a workload in some hours of the week; empty for kinds without replicas.

    Args:
        subject: the workload.
        running_hours: (first, end) in hours since Monday 00:00. The end may be in the next week.
        replicas: number of replicas in these hours.
        zone: IANA name of the time zone of these hours.
        minute: the minute at which these hours start.
    """
    version = API_VERSION_OF_SCALABLE_KIND.get(subject.workload_kind)
    if version is None:
        return ""
    lines = [
        "# if KEDA is installed",
        "apiVersion: keda.sh/v1alpha1",
        "kind: ScaledObject",
        "metadata:",
        f"  name: {quoted(subject.workload)}",
        f"  namespace: {quoted(subject.namespace)}",
        "spec:",
        f"  scaleTargetRef: {{apiVersion: {version}, kind: {subject.workload_kind}, name: {quoted(subject.workload)}}}",
        "  minReplicaCount: 0",
        f"  maxReplicaCount: {replicas}",
        "  triggers:",
    ]
    for first, end in running_hours:
        start, stop = (f"{minute} {hour % 24} * * {(hour // 24 + 1) % 7}" for hour in (first, end))
        lines.append(
            f'    - {{type: cron, metadata: {{timezone: {zone}, start: "{start}", end: "{stop}", '
            f'desiredReplicas: "{replicas}"}}}}'
        )
    return "\n".join(lines) + "\n"
