"""Weekly and monthly digests: a business unit's cost and waste, their change, its top wasters, what to do first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from gpucost.core.amounts import Costs, to_decimal
from gpucost.core.costs_by_key import sum_by_key
from gpucost.core.hours import DAY, HOUR, floor_day, month_bounds
from gpucost.core.ledger import FactKey
from gpucost.features.alerting.formatting import FigureFormatter, format_threshold, rounded_percent
from gpucost.features.alerting.rule_kinds.base import ClockTime, Digest, Figure, Subject, TickRule, WastefulWorkload

if TYPE_CHECKING:
    from gpucost.core.ledger import DaySummary
    from gpucost.features.alerting.ports import WorkloadSaving
    from gpucost.features.alerting.tick_figures import TickFigures

MAX_DIGEST_DELAY = timedelta(days=2)
"""A digest that could not be sent for this long is skipped: last week's figures are of no use on Friday."""
MAX_WAIT_FOR_HOURS = timedelta(hours=12)
"""A digest is sent without hours that are not published by then, and names their number."""
TOP_WASTERS_LISTED = 3


class DigestRule(TickRule):
    """Sends each business unit a summary of cost, waste and what to do."""

    kind = "digest"
    default_severity = "info"
    title = "GPU cost digest"
    action = "Start with the first workload listed: it has the most waste."
    figures = (
        Figure("Cost", "allocated_usd"),
        Figure("Wasted", "waste_usd"),
        Figure("Waste", "waste_percent"),
        Figure("Previous period", "previous_usd"),
        Figure("Hours without figures", "hours_unknown"),
    )
    days_in_link = 31
    fires_when = (
        "never; it sends a summary of each business unit's last week (Monday to Sunday) or month, UTC: cost, waste, "
        "trend, the top three wasters"
    )
    subjects = "a business unit"
    example = """
    rule: digest
    every: week
    at: "08:00"
    """

    rule: Literal["digest"]
    """The kind of the rule."""
    every: Literal["week", "month"] = "week"
    """The period: a week from Monday to Sunday, or a calendar month, UTC. The digest is sent after it ended."""
    at: ClockTime = "08:00"
    """The earliest time to send it, in the rule's time zone, on the first day after the period."""

    @classmethod
    def predicate(cls, figures: FigureFormatter, detail: str, *, is_resolved: bool) -> str:
        """Return what the sentence of a notification says about its subject."""
        cost, previous = figures.amount("allocated_usd"), figures.amount("previous_usd")
        trend = ""
        if cost is not None and previous:
            change = ((cost - previous) * 100 / previous).quantize(Decimal(1))
            trend = f"; cost {change:+f}% vs. the previous period"
        return f"cost {figures.money('allocated_usd')}, of which {figures.money('waste_usd')} was wasted{trend}"

    def digests(self, tick: "TickFigures", reported_period: Callable[[str], str | None]) -> Iterator[Digest]:
        """Make the digests that are due and were not sent yet.

        A business unit's digest waits until its clusters have published all hours of the period, or given them up, but
        not for longer than `MAX_WAIT_FOR_HOURS`.

        Args:
            tick: the tick.
            reported_period: returns the last period that a business unit got.
        """
        start, end = self.last_period(tick.at)
        due_at = datetime.combine(end.date(), time.fromisoformat(self.at), tick.time_zone_of(self))
        if not due_at <= tick.at < due_at + MAX_DIGEST_DELAY:
            return
        is_last_call = tick.at >= max(due_at, end) + MAX_WAIT_FOR_HOURS
        period = f"{self.every} {start:%Y-%m-%d}"
        previous_start = (start - (end - start)) if self.every == "week" else month_bounds(start - HOUR)[0]
        clusters = {
            cluster: _ClusterDays(
                start,
                end,
                tick.inputs.rollups.days(cluster, previous_start, end),
                has_left=tick.settings.cluster(cluster) is None,
            )
            for cluster in tick.clusters_since(self.scope, previous_start)
        }
        all_days = [day for cluster in clusters.values() for day in cluster.days]
        days = [day for day in all_days if day.start >= start]
        previous_days = [day for day in all_days if day.start < start]
        sums = sum_by_key(costs for day in days for costs in day.costs.items())
        previous_sums = sum_by_key(costs for day in previous_days for costs in day.costs.items())
        of_unit = {unit: [cluster for cluster in clusters.values() if unit in cluster.units] for unit in sums}
        units = [
            unit
            for unit in sorted(sums)
            if self.scope.has_unit(unit)
            and reported_period(unit) != period
            and (is_last_call or not any(cluster.hours_awaited for cluster in of_unit[unit]))
            and len(_currencies(days, unit)) == 1
        ]
        if not units:
            return
        top_wasters = _top_wasters(tick, days, [*clusters], start, end)
        recommendations = _recommendation_notes(tick, [*clusters])
        for unit in units:
            currencies = _currencies(days, unit)
            is_comparable = unit in previous_sums and currencies == _currencies(previous_days, unit)
            yield Digest(
                period,
                Subject(business_unit=unit),
                start,
                end - HOUR,
                {
                    **_figures(sums[unit], previous_sums[unit] if is_comparable else None),
                    "hours_unknown": Decimal(sum(cluster.hours_unknown for cluster in of_unit[unit])),
                },
                next(iter(currencies)),
                top_wasters.get(unit, ()),
                recommendations.get(unit, ""),
            )

    def last_period(self, at: datetime) -> tuple[datetime, datetime]:
        """Return start and end of the newest week or month that is over."""
        if self.every == "month":
            end = month_bounds(at.astimezone(UTC))[0]
            return month_bounds(end - HOUR)[0], end
        end = floor_day(at) - DAY * (at.isoweekday() - 1)
        return end - 7 * DAY, end


class _ClusterDays:
    """One cluster's days in a digest's period and in the period before."""

    def __init__(self, start: datetime, end: datetime, days: "Sequence[DaySummary]", *, has_left: bool) -> None:
        self.days = days
        self.units = {unit for day in days for unit in day.costs}
        manifests = {manifest.hour: manifest for day in days for manifest in day.manifests}
        # A cluster has hours from when it joined until it left the settings.
        first = max(start, min(manifests, default=end))
        last = min(end, max(manifests, default=end) + HOUR) if has_left else end
        self._manifests = [manifests.get(first + HOUR * number) for number in range(max(0, (last - first) // HOUR))]

    @property
    def hours_unknown(self) -> int:
        """The number of hours without figures."""
        return sum(1 for manifest in self._manifests if manifest is None or manifest.status == "incomplete")

    @property
    def hours_awaited(self) -> int:
        """The number of these hours that may still get figures."""
        return sum(
            1
            for manifest in self._manifests
            if manifest is None or (manifest.status == "incomplete" and not manifest.is_abandoned())
        )


def _figures(costs: Costs, previous: Costs | None) -> Mapping[str, Decimal | None]:
    return {
        "allocated_usd": to_decimal(costs.allocated_usd),
        "waste_usd": to_decimal(costs.waste_usd),
        "waste_percent": rounded_percent(costs.waste_usd, costs.allocated_usd),
        "previous_usd": None if previous is None else to_decimal(previous.allocated_usd),
    }


def _top_wasters(
    tick: "TickFigures", days: "Sequence[DaySummary]", clusters: Sequence[str], start: datetime, end: datetime
) -> dict[str, tuple[WastefulWorkload, ...]]:
    """Return the top wasters by business unit; none if settings of any hour allow estimated utilization."""
    settings_versions = {manifest.settings_version for day in days for manifest in day.manifests}
    if any(map(tick.inputs.allows_estimates, settings_versions)):
        return {}
    sums = sum_by_key(
        (_unit_and_workload(fact), costs)
        for cluster in clusters
        for _, facts in tick.inputs.rollups.facts(cluster, start, end)
        for fact, costs in facts.items()
    )
    by_unit: dict[str, list[WastefulWorkload]] = {}
    ranked = sorted(sums.items(), key=lambda workload: (-workload[1].waste_usd, workload[0]))
    for (unit, namespace, kind, name), costs in ranked:
        top_wasters = by_unit.setdefault(unit, [])
        if costs.waste_usd > 0 and len(top_wasters) < TOP_WASTERS_LISTED:
            gpu_hours, waste_usd = to_decimal(costs.allocated_gpu_hours), to_decimal(costs.waste_usd)
            top_wasters.append(WastefulWorkload(namespace, kind, name, gpu_hours, waste_usd))
    return {unit: tuple(top_wasters) for unit, top_wasters in by_unit.items()}


def _unit_and_workload(fact: FactKey) -> tuple[str, str, str, str]:
    return fact.business_unit, fact.namespace, fact.workload_kind or "Pod", fact.workload or "(no owner)"


def _recommendation_notes(tick: "TickFigures", clusters: Sequence[str]) -> dict[str, str]:
    """Describe the open recommendation with the largest saving, by business unit."""
    if tick.inputs.read_savings is None:
        return {}
    by_unit: dict[str, list[WorkloadSaving]] = {}
    for cluster in clusters:
        for saving in tick.inputs.read_savings(cluster):
            by_unit.setdefault(saving.business_unit, []).append(saving)
    return {unit: _describe_largest_saving(savings) for unit, savings in by_unit.items()}


def _describe_largest_saving(savings: "Sequence[WorkloadSaving]") -> str:
    first = max(savings, key=lambda saving: (saving.monthly_usd, saving.id))
    more = f"; {len(savings) - 1} more with `gpucost recommendations list`" if len(savings) > 1 else ""
    saves = format_threshold(first.monthly_usd, first.currency)
    return f"{first.summary}: {saves} a month ({first.confidence} confidence, {first.id}){more}"


def _currencies(days: "Sequence[DaySummary]", unit: str) -> set[str]:
    return set[str]().union(*(day.currencies for day in days if unit in day.costs))
