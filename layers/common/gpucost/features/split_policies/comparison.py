"""Compares what each split policy would charge for the same hours, from stored usage. Nothing is changed."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.access import Scope
from gpucost.core.amounts import CapacityCosts
from gpucost.core.attribution import AttributionRules, build_record
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.errors import InvalidInputError, ParameterError
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import DAY, format_timestamp
from gpucost.core.ledger import Manifest
from gpucost.core.pricing.prices import SPLIT_POLICIES
from gpucost.core.query.cost_query import check_cursor, etag_of_query, read_cursor, write_cursor
from gpucost.core.query.periods import Period, parse_period
from gpucost.features.split_policies import MAX_DAYS
from gpucost.pipeline.attribute import attribution_rules
from gpucost.pipeline.pricing import Pricer, split_policy_of
from gpucost.reports.parameters import PublishedUntil, QueryParameters, select_clusters
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Clock, SettingsStore

MAX_PAGE_PODS = 60_000
"""Pods that one response rates with each policy: a third of what can be rated in 29 seconds."""
PODS_PER_HOUR = 100
"""The requests for an hour's usage take as long as rating this many pods."""


class SplitSums(Struct):
    """The sums that one policy would charge."""

    policy_name: str
    costs_by_unit: CostsByKey[str] = field(default_factory=CostsByKey)
    capacity: CapacityCosts | None = field(default_factory=CapacityCosts)
    """None if the capacity of any hour is unknown."""
    hour_count: int = 0
    """Cluster-hours with figures."""
    currency: str = "USD"
    notes: dict[str, None] = field(default_factory=dict)
    """Which prices are missing under this policy, each once."""

    def add(self, record: HourRecord) -> None:
        """Add an hour. One without figures adds nothing.

        Raises:
            InvalidInputError: its currency differs from that of the hours before.
        """
        if record.totals is None:
            return
        if self.hour_count and record.currency != self.currency:
            raise InvalidInputError(
                f"the hours are in {self.currency} and {record.currency}, which cannot be added up; compare one "
                "cluster, or a period before or after the change of currency"
            )
        self.currency = record.currency
        self.costs_by_unit += record.by_business_unit()
        self.capacity = CapacityCosts.total_if_complete([self.capacity, record.totals.capacity])
        self.hour_count += 1

    def fields(self) -> dict[str, Any]:
        """Return the sums as published: amounts as decimals, None where they are unknown."""
        units = [{"business_unit": unit, **costs.figures()} for unit, costs in sorted(self.costs_by_unit.items())]
        return {
            "split_policy": self.policy_name,
            "hours": self.hour_count,
            "business_units": units,
            "capacity": self.capacity and self.capacity.figures(),
        }


class SplitPage(Struct, frozen=True):
    """The sums of the next hours of a period. Those of all pages add up to the period's."""

    period: Period
    in_force: str
    """The policy of the current settings."""
    policies: list[SplitSums]
    cursor: str | None


class SplitComparer:
    """Rates stored hours with every split policy.

    The policies are the built-in ones, and the one with own weights if the settings have it.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: Ledger,
        pricer: Pricer,
        clock: Clock,
        *,
        max_page_pods: int = MAX_PAGE_PODS,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._pricer = pricer
        self._clock = clock
        self._max_page_pods = max_page_pods
        self._published_until = PublishedUntil(settings_store, ledger, clock)

    def compare(self, clusters: Sequence[str], start: datetime, end: datetime) -> list[SplitSums]:
        """Return the sums of the hours in `[start, end)` for each policy, from the same usage, prices and settings.

        Raises:
            InvalidInputError: the hours have several currencies.
            SourceError: the ledger could not be read.
        """
        return self._rate(self._manifests(clusters, start, end))[0]

    def page(self, parameters: QueryParameters, *, scope: Scope) -> SplitPage:
        """Return the sums of as many hours as one response can rate.

        Raises:
            ParameterError: a parameter is wrong. The message says what is allowed.
            InvalidInputError: the hours have several currencies.
            SettingsMissingError: no settings yet.
        """
        stored = self._settings_store.current()
        period = parse_period(
            parameters.start, parameters.end, parameters.window, self._clock(), published_until=self._published_until
        )
        if period.end - period.start > MAX_DAYS * DAY:
            raise ParameterError(period.parameter, f"a comparison has at most {MAX_DAYS} days; shorten the period")
        check_cursor(parameters.cursor)
        clusters = select_clusters(parameters.cluster, stored, scope, period.start)
        manifests = self._manifests(clusters, period.start, period.end)
        etag = etag_of_query(
            f"split-policies {format_timestamp(period.start)} {clusters}",
            (f"{manifest.cluster} {manifest.hour.isoformat()} {manifest.version}" for manifest in manifests),
        )
        first = read_cursor(parameters.cursor, etag)
        sums, count = self._rate(manifests[first:], max_pods=self._max_page_pods)
        following = first + count
        cursor = write_cursor(following, etag) if following < len(manifests) else None
        return SplitPage(period, split_policy_of(stored.settings.pricing).name, sums, cursor)

    def _manifests(self, clusters: Sequence[str], start: datetime, end: datetime) -> list[Manifest]:
        """Return the published hours in order of time and cluster."""
        manifests = [manifest for name in clusters for manifest in self._ledger.manifests(name, start, end)]
        return sorted(manifests, key=lambda manifest: (manifest.hour, manifest.cluster))

    def _rate(self, manifests: Sequence[Manifest], max_pods: int | None = None) -> tuple[list[SplitSums], int]:
        """Rate hours until they have so many pods. Return the sums, and how many hours were rated."""
        configured = split_policy_of(self._settings_store.current().settings.pricing)
        sums = {policy: SplitSums(policy.name) for policy in {**SPLIT_POLICIES, configured.name: configured}.values()}

        @cache
        def rules_of_hours(version: int) -> dict[datetime, AttributionRules]:
            settings = self._settings_store.version(version).settings
            hours = [manifest.hour for manifest in manifests if manifest.settings_version == version]
            prices = self._pricer.pricing_of_hours(settings, hours)
            return {hour: attribution_rules(settings, pricing) for hour, pricing in prices.items()}

        pods = 0
        for count, manifest in enumerate(manifests):
            if max_pods is not None and pods >= max_pods:
                return [*sums.values()], count
            pods += PODS_PER_HOUR
            usage = self._ledger.usage(manifest)
            if usage is None:
                continue
            pods += len(usage.pods)
            rules = rules_of_hours(manifest.settings_version)[manifest.hour]
            for policy, sums_of_policy in sums.items():
                policy_rules = replace(rules, pricing=replace(rules.pricing, split_policy=policy))
                # What inference servers processed divides costs among models, not among business units.
                record = build_record(replace(usage, served=()), policy_rules)
                sums_of_policy.add(record)
                sums_of_policy.notes |= dict.fromkeys(note for note in record.notes if note not in usage.notes)
        return [*sums.values()], len(manifests)
