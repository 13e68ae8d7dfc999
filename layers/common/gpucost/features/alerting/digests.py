"""Weekly and monthly digests: a business unit's cost and waste, their change, its top wasters, what to do first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple

from gpucost.core.amounts import to_decimal
from gpucost.core.costs_by_key import CostsByKey, sum_by_key
from gpucost.core.hours import HOUR, floor_day, month_bounds
from gpucost.core.ledger import DaySummary
from gpucost.core.rollups import DAY, FactKey
from gpucost.features.alerting.formatting import format_threshold, rounded_percent
from gpucost.features.alerting.model import Notification, WastefulWorkload
from gpucost.features.alerting.muting import time_zone_of
from gpucost.features.alerting.ports import RuleInputs, WorkloadSaving
from gpucost.features.alerting.scope_update import notification_id
from gpucost.features.alerting.settings import SettingsWithAlerts
from gpucost.features.alerting.settings.rules import DigestRule, RuleSettings
from gpucost.features.alerting.subjects import Subject
from gpucost.storage.ports import StoredSettings

MAX_DIGEST_DELAY = timedelta(days=2)
"""A digest that could not be sent for this long is skipped: last week's figures are of no use on Friday."""
MAX_WAIT_FOR_HOURS = timedelta(hours=12)
"""A digest is sent without hours that are not published by then, and names their number."""
TOP_WASTERS_LISTED = 3


class DueDigest(NamedTuple):
    """A digest to send."""

    rule_name: str
    period: str
    notification: Notification


class _ClusterDays:
    """One cluster's days in a digest's period and in the period before."""

    def __init__(self, start: datetime, end: datetime, days: Sequence[DaySummary], *, has_left: bool) -> None:
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


class Digests:
    """Makes the weekly and monthly digests of business units.

    Args:
        inputs: what rules read.
        stored_settings: the document, and the clusters that left it.
    """

    def __init__(self, inputs: RuleInputs, stored_settings: StoredSettings[SettingsWithAlerts]) -> None:
        self._inputs = inputs
        self._stored_settings = stored_settings
        self._settings = stored_settings.settings

    def due_digests(
        self,
        rules: Mapping[str, RuleSettings],
        at: datetime,
        reported_digest_periods: Callable[[str], Mapping[str, str]],
    ) -> Iterator[DueDigest]:
        """Make the digests that are due at a tick and were not sent yet.

        A business unit's digest waits until its clusters have published all hours of the period, or given them up, but
        not for longer than `MAX_WAIT_FOR_HOURS`.

        Args:
            rules: by name; rules of other kinds are ignored.
            at: the tick's full hour.
            reported_digest_periods: the last period of each rule that a business unit got.
        """
        for name, rule in rules.items():
            if not isinstance(rule, DigestRule):
                continue
            start, end = last_period(rule, at)
            hour, minute = map(int, rule.at.split(":"))
            due_at = datetime.combine(end.date(), time(hour, minute), time_zone_of(self._settings.alerts, rule))
            if due_at <= at < due_at + MAX_DIGEST_DELAY:
                is_last_call = at >= max(due_at, end) + MAX_WAIT_FOR_HOURS
                yield from self._digests_of_period(
                    name, rule, start, end, reported_digest_periods, is_last_call=is_last_call
                )

    def _digests_of_period(
        self,
        rule_name: str,
        rule: DigestRule,
        start: datetime,
        end: datetime,
        reported_digest_periods: Callable[[str], Mapping[str, str]],
        *,
        is_last_call: bool,
    ) -> Iterator[DueDigest]:
        period = f"{rule.every} {start:%Y-%m-%d}"
        previous_start = (start - (end - start)) if rule.every == "week" else month_bounds(start - HOUR)[0]
        clusters = {
            cluster: _ClusterDays(
                start, end, self._inputs.rollups.days(cluster, previous_start, end),
                has_left=self._settings.cluster(cluster) is None,
            )
            for cluster in self._stored_settings.clusters(previous_start)
            if rule.scope.has_cluster(cluster)
        }  # fmt: skip
        all_days = [day for cluster in clusters.values() for day in cluster.days]
        days = [day for day in all_days if day.start >= start]
        previous_days = [day for day in all_days if day.start < start]
        sums, previous_sums = _costs_by_unit(days), _costs_by_unit(previous_days)
        of_unit = {unit: [cluster for cluster in clusters.values() if unit in cluster.units] for unit in sums}
        units = [
            unit
            for unit in sorted(sums)
            if rule.scope.has_unit(unit)
            and reported_digest_periods(unit).get(rule_name) != period
            and (is_last_call or not any(cluster.hours_awaited for cluster in of_unit[unit]))
            and len(_currencies(days, unit)) == 1
        ]
        if not units:
            return
        names = [*clusters]
        top_wasters = self._top_wasters(days, names, start, end)
        recommendations = self._recommendation_notes(names)
        for unit in units:
            costs, previous = sums[unit], previous_sums.get(unit)
            is_comparable = _currencies(days, unit) == _currencies(previous_days, unit)
            unknown_hours = sum(cluster.hours_unknown for cluster in of_unit[unit])
            subject = Subject(business_unit=unit)
            notification = Notification(
                id=notification_id(rule_name, subject, start, "digest"),
                event="digest", rule_kind="digest", rule=rule_name, severity=rule.effective_severity, subject=subject,
                since=start, hour=end - HOUR, threshold="",
                figures={
                    "allocated_usd": to_decimal(costs.allocated_usd),
                    "waste_usd": to_decimal(costs.waste_usd),
                    "waste_percent": rounded_percent(costs.waste_usd, costs.allocated_usd),
                    "previous_usd": to_decimal(previous.allocated_usd) if previous and is_comparable else None,
                    "hours_unknown": Decimal(unknown_hours),
                },
                currency=next(iter(_currencies(days, unit))),
                workloads=top_wasters.get(unit, ()), note=recommendations.get(unit, ""),
            )  # fmt: skip
            yield DueDigest(rule_name, period, notification)

    def _top_wasters(
        self, days: Sequence[DaySummary], clusters: Sequence[str], start: datetime, end: datetime
    ) -> dict[str, tuple[WastefulWorkload, ...]]:
        """Return the top wasters by business unit; none if settings of any hour allow estimated utilization."""
        settings_versions = {manifest.settings_version for day in days for manifest in day.manifests}
        if any(map(self._inputs.allows_estimates, settings_versions)):
            return {}
        sums = sum_by_key(
            (_unit_and_workload(fact), costs)
            for cluster in clusters
            for _, facts in self._inputs.rollups.facts(cluster, start, end)
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

    def _recommendation_notes(self, clusters: Sequence[str]) -> dict[str, str]:
        """Describe the open recommendation with the largest saving, by business unit."""
        if self._inputs.read_savings is None:
            return {}
        by_unit: dict[str, list[WorkloadSaving]] = {}
        for cluster in clusters:
            for saving in self._inputs.read_savings(cluster):
                by_unit.setdefault(saving.business_unit, []).append(saving)
        return {unit: _describe_largest_saving(savings) for unit, savings in by_unit.items()}


def _describe_largest_saving(savings: Sequence[WorkloadSaving]) -> str:
    first = max(savings, key=lambda saving: (saving.monthly_usd, saving.id))
    more = f"; {len(savings) - 1} more with `gpucost recommendations list`" if len(savings) > 1 else ""
    saves = format_threshold(first.monthly_usd, first.currency)
    return f"{first.summary}: {saves} a month ({first.confidence} confidence, {first.id}){more}"


def last_period(rule: DigestRule, at: datetime) -> tuple[datetime, datetime]:
    """Return start and end of the newest week or month that is over."""
    if rule.every == "month":
        end = month_bounds(at.astimezone(UTC))[0]
        return month_bounds(end - HOUR)[0], end
    end = floor_day(at) - DAY * (at.isoweekday() - 1)
    return end - 7 * DAY, end


def _unit_and_workload(fact: FactKey) -> tuple[str, str, str, str]:
    return fact.business_unit, fact.namespace, fact.workload_kind or "Pod", fact.workload or "(no owner)"


def _costs_by_unit(days: Sequence[DaySummary]) -> CostsByKey[str]:
    return sum_by_key(costs for day in days for costs in day.costs.items())


def _currencies(days: Sequence[DaySummary], unit: str) -> set[str]:
    return set[str]().union(*(day.currencies for day in days if unit in day.costs))
