"""The composition root: one object that joins services with sources and storage, each made when it is first used."""

from functools import cached_property
from typing import TYPE_CHECKING

from gpucost.features.alerting.parts import AlertingParts
from gpucost.features.exports.parts import ExportParts
from gpucost.features.opencost.parts import OpenCostParts
from gpucost.features.recommendations.parts import RecommendationParts
from gpucost.features.split_policies.parts import SplitPolicyParts
from gpucost.pipeline.parts import PipelineParts
from gpucost.reports.parts import ReportParts

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from gpucost.api.app import Services
    from gpucost.api.html_pages import SignIn
    from gpucost.features.alerting.ports import ReadSavings
    from gpucost.features.recommendations.storage import DynamoRecommendations
    from gpucost.settings_document import SettingsDocumentStore


def workload_savings(recommendations: "DynamoRecommendations") -> "ReadSavings":
    """Recommendations as alerting reads them: features do not know each other."""
    from gpucost.features.alerting.ports import WorkloadSaving

    return lambda cluster: [
        WorkloadSaving(
            id=content.id,
            business_unit=content.subject.business_unit,
            summary=content.summary,
            monthly_usd=content.saving.usd,
            currency=content.currency,
            confidence=content.confidence,
        )
        for content in recommendations.open_savings_on_workloads(cluster)
    ]


class Container(
    SplitPolicyParts, PipelineParts, ReportParts, AlertingParts, ExportParts, OpenCostParts, RecommendationParts
):
    """All parts of one process. Each base has those of a feature; what they need of one another is here.

    A function makes one while it is initialized, so that a warm function and a snapshot keep it. A command makes one
    for its deployment, and a test makes one with parts of its own.
    """

    @cached_property
    def settings_store(self) -> "SettingsDocumentStore":
        """The settings document, cached for a minute."""
        from gpucost.settings_document import SettingsDocumentStore

        return SettingsDocumentStore(self.table, clock=self.clock)

    @cached_property
    def read_savings(self) -> "ReadSavings":
        """What recommendations would save, for alerting's digests."""
        return workload_savings(self.recommendation_store)

    @cached_property
    def budget_of(self) -> "Callable[[str, int], Decimal | None]":
        """The lowest budget that alert rules set for a business unit and 1 or 3 months."""
        from gpucost.features.alerting.rule_kinds.budget import lowest_budget

        return lambda unit, months: lowest_budget(self.settings_store.current().settings.alerts.rules, unit, months)

    @cached_property
    def time_zone(self) -> "Callable[[], str]":
        """The time zone that the settings have for people."""
        return lambda: self.settings_store.current().settings.alerts.time_zone

    @cached_property
    def sign_in(self) -> "SignIn | None":
        """For `functions/api`: how people sign in to the page; None without sign-in."""
        from gpucost.api.html_pages import SignIn

        env = self.environment
        if not (env.sign_in_issuer and env.sign_in_client):
            return None
        return SignIn(env.sign_in_issuer, env.sign_in_client, env.sign_in_scopes, tuple(env.sign_in_hosts.split()))

    @cached_property
    def api_services(self) -> "Services":
        """The services of the routes, each made when a route first needs it."""
        from gpucost.api.app import Services

        return Services(
            reports=lambda: self.report_service,
            prices=lambda: self.price_book_listing,
            allocations=lambda: self.allocation_service,
            assets=lambda: self.asset_service,
            exports=lambda: self.export_listing,
            limits=lambda: self.limit_reports,
            alerts=lambda: self.alert_queries,
            budgets=lambda: self.budgets,
            recommendations=lambda: self.recommendation_queries,
            forecasts=lambda: self.forecasts,
            fleet_forecasts=lambda: self.fleet_forecasts,
            split_policies=lambda: self.split_comparer,
            access=lambda: self.access_policy,
            sign_in=lambda: self.sign_in,
        )
