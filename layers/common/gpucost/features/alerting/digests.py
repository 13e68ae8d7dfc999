"""Weekly and monthly digests: what a business unit's GPUs cost and wasted, how that changed, where to begin."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

from gpucost.core.hours import HOUR, floor_day, month_bounds
from gpucost.core.model import Costs
from gpucost.core.rollups import DAY, DaySummary
from gpucost.features.alerting.formatting import percent_of, threshold_money
from gpucost.features.alerting.muting import time_zone_of
from gpucost.features.alerting.model import Notification, Subject, TopWaster
from gpucost.features.alerting.ports import AlertSources, WorkloadSaving
from gpucost.features.alerting.rules.idle_workload import MEASURED_SOURCES
from gpucost.features.alerting.scope_update import notification_id
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.settings.rules import DigestRule, RuleSettings

MAX_DELAY = timedelta(days=2)
"""A digest that could not be made so long is left out: nobody wants last week's on Friday."""
TOP_WASTERS_LISTED = 3
DueDigest = tuple[str, str, Notification]
"""Rule, period, what to tell."""


class Digests:
    """Makes digests.

    Args:
        sources: what they are made from.
        settings: the document.
    """

    def __init__(self, sources: AlertSources, settings: AlertingSettings) -> None:
        self._sources = sources
        self._settings = settings

    def due(
        self, rules: Mapping[str, RuleSettings], at: datetime, reported: Callable[[str], Mapping[str, str]]
    ) -> Iterator[DueDigest]:
        """The digests that are due at a tick and that a unit was not told yet.

        Args:
            rules: by name; those of other kinds are left out.
            at: the tick's full hour.
            reported: which periods a unit was last told of.
        """
        for name, rule in rules.items():
            if not isinstance(rule, DigestRule):
                continue
            start, end = last_period(rule, at)
            hour, minute = map(int, rule.at.split(":"))
            opens = datetime.combine(end.date(), time(hour, minute), time_zone_of(self._settings.alerts, rule))
            if opens <= at < opens + MAX_DELAY:
                yield from self._period(name, rule, start, end, reported)

    def _period(
        self, name: str, rule: DigestRule, start: datetime, end: datetime, reported: Callable[[str], Mapping[str, str]]
    ) -> Iterator[DueDigest]:
        period = f"{rule.every} {start:%Y-%m-%d}"
        before = (start - (end - start)) if rule.every == "week" else month_bounds(start - HOUR)[0]
        clusters = [one.name for one in self._settings.clusters if rule.scope.has_cluster(one.name)]
        days = [day for cluster in clusters for day in self._sources.rollups.days(cluster, before, end)]
        now, past = [day for day in days if day.day >= start], [day for day in days if day.day < start]
        if len(_currencies(now)) > 1:
            return
        sums, sums_before = _sums(now), _sums(past)
        wanted = [unit for unit in sorted(sums) if rule.scope.has_unit(unit) and reported(unit).get(name) != period]
        if not wanted:
            return
        worst, advised = self._worst(clusters, start, end), self._advised(clusters)
        unknown = len(clusters) * ((end - start) // HOUR) - _hours(now)
        comparable = _currencies(now) == _currencies(past)
        for unit in wanted:
            costs, earlier = sums[unit], sums_before.get(unit)
            yield name, period, Notification(
                id=notification_id(name, Subject(business_unit=unit), start, "digest"),
                event="digest", kind="digest", rule=name, severity=rule.effective_severity, subject=Subject(business_unit=unit),
                since=start, hour=end - HOUR, threshold="",
                figures={
                    "cost_usd": costs.allocated_usd,
                    "waste_usd": costs.waste_usd,
                    "waste_percent": percent_of(costs.waste_usd, costs.allocated_usd),
                    "before_usd": earlier.allocated_usd if earlier and comparable else None,
                    "hours_unknown": Decimal(unknown),
                },
                currency=next(iter(_currencies(now)), self._settings.pricing.currency),
                workloads=worst.get(unit, ()), note=advised.get(unit, ""),
            )  # fmt: skip

    def _worst(self, clusters: Sequence[str], start: datetime, end: datetime) -> dict[str, tuple[TopWaster, ...]]:
        """The workloads that wasted most, by unit; none where settings allow guessed utilization."""
        if not set(self._settings.utilization.sources) <= MEASURED_SOURCES:
            return {}
        sums: dict[tuple[str, str, str, str], tuple[Decimal, Decimal]] = {}
        for cluster in clusters:
            for _, facts in self._sources.rollups.facts(cluster, start, end):
                for fact, costs in facts.items():
                    key = (
                        fact.business_unit,
                        fact.namespace,
                        fact.workload_kind or "Pod",
                        fact.workload or "(no owner)",
                    )
                    gpu, usd = sums.get(key, (Decimal(0), Decimal(0)))
                    sums[key] = gpu + costs.allocated_gpu_hours, usd + costs.waste_usd
        found: dict[str, list[TopWaster]] = {}
        for (unit, namespace, kind, name), (gpu, usd) in sorted(sums.items(), key=lambda one: (-one[1][1], one[0])):
            own = found.setdefault(unit, [])
            if usd > 0 and len(own) < TOP_WASTERS_LISTED:
                own.append(TopWaster(namespace, kind, name, gpu, usd))
        return {unit: tuple(own) for unit, own in found.items()}

    def _advised(self, clusters: Sequence[str]) -> dict[str, str]:
        """What to do first, by unit: the open recommendation that saves most."""
        if self._sources.savings is None:
            return {}
        savings: dict[str, list[WorkloadSaving]] = {}
        for cluster in clusters:
            for saving in self._sources.savings(cluster):
                savings.setdefault(saving.business_unit, []).append(saving)
        return {unit: _largest_saving(of_unit) for unit, of_unit in savings.items()}


def _largest_saving(savings: Sequence[WorkloadSaving]) -> str:
    first = max(savings, key=lambda saving: (saving.monthly_usd, saving.id))
    more = f"; {len(savings) - 1} more with `gpucost advise list`" if len(savings) > 1 else ""
    saves = threshold_money(first.monthly_usd, first.currency)
    return f"{first.summary}: {saves} a month ({first.confidence} confidence, {first.id}){more}"


def last_period(rule: DigestRule, at: datetime) -> tuple[datetime, datetime]:
    """The newest whole week or month before a moment."""
    if rule.every == "month":
        end = month_bounds(at.astimezone(UTC))[0]
        return month_bounds(end - HOUR)[0], end
    end = floor_day(at) - DAY * (at.isoweekday() - 1)
    return end - 7 * DAY, end


def _sums(days: Sequence[DaySummary]) -> dict[str, Costs]:
    parts: dict[str, list[Costs]] = {}
    for day in days:
        for unit, costs in day.units.items():
            parts.setdefault(unit, []).append(costs)
    return {unit: Costs.total(own) for unit, own in parts.items()}


def _hours(days: Sequence[DaySummary]) -> int:
    return sum(1 for day in days for hour in day.hours if hour.status != "incomplete")


def _currencies(days: Sequence[DaySummary]) -> set[str]:
    return {hour.currency for day in days for hour in day.hours if hour.status != "incomplete"}
