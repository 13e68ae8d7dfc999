"""What a caller may see, and the ledger restricted to it. All reports read through it, so none can forget the filter.

Callers who may not see the whole fleet get only their business units: hours, days and sums contain nothing else, and
no capacity. Their figures add up to allocated = effective + waste + unmeasured.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Never

from msgspec import Struct
from msgspec.structs import replace

from gpucost.core.access import FULL_ACCESS, Caller, IamCaller, Scope, scope_of_roles
from gpucost.core.amounts import Costs, Totals
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.errors import AccessDeniedError
from gpucost.core.hour_record import ClusterCharge, Line, ModelHour, NodeHour
from gpucost.core.hours import HOUR
from gpucost.core.ledger import DaySummary, FactKey, HourSummary, Manifest, Restatement
from gpucost.storage.ports import PublishedHours, RollupReader, SettingsStore


def scoped_hours(ledger: PublishedHours, scope: Scope, *, models_by_consumer: bool = False) -> PublishedHours:
    """Return the hours that a scope covers.

    Args:
        ledger: all hours.
        scope: what the caller may see.
        models_by_consumer: whether the costs by model are those that the scope's business units used, instead of those
            of their pods.
    """
    return ledger if scope.is_fleet else _ScopedHours(ledger, scope, models_by_consumer)


def scoped_rollups(rollups: RollupReader, scope: Scope) -> RollupReader:
    """Return the rollups that a scope covers."""
    return rollups if scope.is_fleet else _ScopedRollups(rollups, scope)


def _deny_fleet_report() -> Never:
    raise AccessDeniedError("this report covers all business units. It needs the role viewer or admin.")


class _ScopedHours(Struct, frozen=True):
    """`PublishedHours` restricted to some business units."""

    ledger: PublishedHours
    scope: Scope
    models_by_consumer: bool = False

    def manifest(self, cluster: str, hour: datetime) -> Manifest | None:
        manifest = self.ledger.manifest(cluster, hour)
        return None if manifest is None else replace(manifest, notes=())

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        return [replace(manifest, notes=()) for manifest in self.ledger.manifests(cluster, start, end)]

    def newest_published_hour(self, cluster: str) -> Manifest | None:
        manifest = self.ledger.newest_published_hour(cluster)
        return None if manifest is None else replace(manifest, notes=())

    def notes_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[str, ...]]:
        return {}  # notes name nodes, pods and namespaces of other business units

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        return self.summaries_of(self.manifests(cluster, start, end))

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        return [self._summary(summary) for summary in self.ledger.summaries_of(manifests)]

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        manifests = self.manifests(cluster, hour, hour + HOUR)
        return [line for manifest in manifests for line in self.lines_of(manifest, business_unit)]

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        if business_unit is not None:
            self.scope.require(business_unit)
            return self.ledger.lines_of(manifest, business_unit)
        return [
            line for unit in sorted(self.scope.business_units or ()) for line in self.ledger.lines_of(manifest, unit)
        ]

    def models_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[ModelHour, ...]]:
        return {
            hour: visible
            for hour, models in self.ledger.models_of(manifests).items()
            if (visible := tuple(model for model in models if self.scope.covers(self._unit_of(model))))
        }

    def _unit_of(self, model: ModelHour) -> str:
        return model.key.consumer if self.models_by_consumer else model.key.business_unit

    def nodes_and_charges_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        _deny_fleet_report()

    def nodes_and_charges(self, cluster: str, hour: datetime) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        _deny_fleet_report()

    def all_nodes(self, cluster: str, start: datetime, end: datetime) -> Iterator[NodeHour]:
        _deny_fleet_report()

    def restatements(self, cluster: str, start: datetime, end: datetime) -> list[Restatement]:
        _deny_fleet_report()

    def _summary(self, summary: HourSummary) -> HourSummary:
        costs = summary.costs.select(key for key in summary.costs if self.scope.covers(key[0]))
        return replace(summary, costs=costs, totals=_visible_totals(summary.totals, costs.total()))


class _ScopedRollups(Struct, frozen=True):
    """`RollupReader` restricted to some business units. Versions of hours are passed on unchanged."""

    rollups: RollupReader
    scope: Scope

    def days_of(self, manifests: Sequence[Manifest]) -> list[DaySummary]:
        return [self._day(day) for day in self.rollups.days_of(manifests)]

    def unit_hours_of(self, manifests: Sequence[Manifest], business_unit: str) -> list[tuple[Manifest, Costs | None]]:
        self.scope.require(business_unit)
        return self.rollups.unit_hours_of(manifests, business_unit)

    def facts_of(
        self, manifests: Sequence[Manifest], business_unit: str | None = None
    ) -> list[tuple[datetime, CostsByKey[FactKey]]]:
        if business_unit is not None:
            self.scope.require(business_unit)
        return [
            (day, facts.select(key for key in facts if self.scope.covers(key.business_unit)))
            for day, facts in self.rollups.facts_of(manifests, business_unit)
        ]

    def _day(self, day: DaySummary) -> DaySummary:
        costs = day.costs.select(filter(self.scope.covers, day.costs))
        return replace(day, costs=costs, totals=_visible_totals(day.totals, costs.total()))


def _visible_totals(totals: Totals | None, visible_costs: Costs) -> Totals | None:
    """Return visible costs as totals, without capacity; None if the hours have no figures."""
    return None if totals is None else Totals(visible_costs, None)


# Reads what a caller may see from the settings' `access` section. Without a grant, access is denied.

_HOW_TO_GET_A_ROLE = "Ask an administrator for one."


class AccessPolicy:
    """Maps callers to scopes, with the grants of the current settings.

    Args:
        settings_store: source of the settings document with the grants.
    """

    def __init__(self, settings_store: SettingsStore) -> None:
        self._settings_store = settings_store

    def scope_of(self, caller: Caller | None) -> Scope:
        """Return what a caller may see.

        If the settings have no `access` section, every IAM caller sees everything: the policy that allows
        `execute-api:Invoke` is the grant. A token identifies a caller and grants nothing by itself.

        Raises:
            AccessDeniedError: the caller has no role. The message says what is missing and contains no identity.
            SettingsMissingError: no settings yet.
        """
        if caller is None:
            raise AccessDeniedError("the request has no identity. Sign it with SigV4, or send a bearer token.")
        grants = self._settings_store.current().settings.access
        if grants is None:
            if isinstance(caller, IamCaller):
                return FULL_ACCESS
            raise AccessDeniedError(
                "a bearer token grants no access without roles, and the settings have no access section. "
                + _HOW_TO_GET_A_ROLE
            )
        scope = scope_of_roles(role for grant in grants if grant.applies_to(caller) for role in grant.roles)
        if scope is None:
            is_iam = isinstance(caller, IamCaller)
            reason = "your IAM user or role has no role" if is_iam else "none of your token's claims has a role"
            raise AccessDeniedError(f"{reason} in the settings' access section. {_HOW_TO_GET_A_ROLE}")
        return scope
