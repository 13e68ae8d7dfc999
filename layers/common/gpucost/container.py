"""The composition root: one object that joins services with sources and storage, each made when it is first used."""

import time
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from gpucost.runtime.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from decimal import Decimal

    from gpucost.api.app import Services
    from gpucost.api.dashboard_page import SignIn
    from gpucost.features.alerting.month_budgets import BudgetService
    from gpucost.features.alerting.ports import Notifier, ReadSavings
    from gpucost.features.alerting.queries import AlertQueries
    from gpucost.features.alerting.service import AlertService
    from gpucost.features.alerting.settings import SettingsWithAlerts
    from gpucost.features.alerting.storage.notification_history import AlertHistory, SilenceStore
    from gpucost.features.alerting.storage.spend import DynamoSpendStore
    from gpucost.features.alerting.storage.states import DynamoAlertStateStore
    from gpucost.features.exports.listing import ExportListing
    from gpucost.features.exports.ports import ExportBucket
    from gpucost.features.exports.service import ExportService
    from gpucost.features.exports.storage import DynamoExports
    from gpucost.features.opencost.assets import AssetService
    from gpucost.features.opencost.service import AllocationService
    from gpucost.features.recommendations.forecasts import ForecastService
    from gpucost.features.recommendations.queries import RecommendationQueries
    from gpucost.features.recommendations.service import ReviewService
    from gpucost.features.recommendations.storage.recommendations import DynamoRecommendations
    from gpucost.pipeline.attribute import AttributeService, MetricsReaderFactory
    from gpucost.pipeline.dispatch import DispatchService
    from gpucost.pipeline.limits import LimitsReaderFactory
    from gpucost.pipeline.pricing import Pricer
    from gpucost.pipeline.refresh_bill import BillRefreshService
    from gpucost.pipeline.refresh_prices import PriceRefreshService
    from gpucost.pipeline.reprice import RepricingService
    from gpucost.pipeline.restate import RestateService
    from gpucost.reports import ReportService
    from gpucost.reports.access import AccessPolicy
    from gpucost.reports.limits import LimitReports
    from gpucost.reports.prices import PriceBookListing
    from gpucost.runtime.aws import AwsClients
    from gpucost.runtime.deadline import Deadline
    from gpucost.runtime.messaging import MessageBus
    from gpucost.runtime.secrets import Secrets
    from gpucost.settings import ClusterSettings, CoreSettings
    from gpucost.settings_document import SettingsDocumentStore
    from gpucost.sources.prometheus.limits import NodePoolLimitsReader
    from gpucost.sources.prometheus.reader import PrometheusReader
    from gpucost.storage.bill_store import BillStore
    from gpucost.storage.ledger import Ledger
    from gpucost.storage.limits import LimitsStore
    from gpucost.storage.ports import Table
    from gpucost.storage.price_book import PriceStore
    from gpucost.storage.rollups import RollupStore


def utc_now() -> datetime:
    """The clock of the deployed system."""
    return datetime.now(UTC)


def workload_savings(recommendations: "DynamoRecommendations") -> "ReadSavings":
    """What open recommendations on workloads would save, as alerting's digests read it."""
    from gpucost.features.alerting.ports import WorkloadSaving

    def savings(cluster: str) -> "list[WorkloadSaving]":
        contents = [
            recommendation.content
            for recommendation in recommendations.recommendations(cluster)
            if recommendation.state == "open"
        ]
        return [
            WorkloadSaving(
                content.id,
                content.subject.business_unit,
                content.summary,
                content.saving.usd,
                content.currency,
                content.confidence,
            )
            for content in contents
            if content.subject.is_workload and content.saving.usd > 0
        ]

    return savings


class Container:
    """The parts of one process, each made when it is first used and then kept.

    A function makes one while it is initialized, so that a warm function and a snapshot keep it. A command makes one
    for its deployment, and a test makes one with parts of its own.

    Args:
        environment: the values that the template sets; read from the process's environment when it is first needed.
        clock: the time now.
        sleep: waits for some seconds.
        client: makes a client of a service (and region).
        **parts: parts by name that take the place of those that would be made.
    """

    def __init__(
        self,
        environment: Environment | None = None,
        *,
        clock: "Callable[[], datetime]" = utc_now,
        sleep: "Callable[[float], None]" = time.sleep,
        client: "Callable[..., Any] | None" = None,
        **parts: Any,
    ) -> None:
        self.clock = clock
        self.sleep = sleep
        if environment is not None:
            self.environment = environment
        if client is not None:
            self.client = client
        for name, part in parts.items():
            setattr(self, name, part)

    @cached_property
    def environment(self) -> Environment:
        """The values that the template sets."""
        return Environment.read()

    @cached_property
    def client(self) -> "Callable[..., Any]":
        """Makes the client of a service (and region) once."""
        return self.aws_clients

    @cached_property
    def aws_clients(self) -> "AwsClients":
        """The clients of one AWS session."""
        from gpucost.runtime.aws import AwsClients

        return AwsClients()

    @cached_property
    def s3_client(self) -> Any:
        """The boto3 client of S3."""
        return self.aws_clients.s3

    @cached_property
    def secrets(self) -> "Secrets":
        """The secrets that the settings name."""
        from gpucost.runtime.secrets import Secrets

        return Secrets(self.client)

    @cached_property
    def metrics_reader(self) -> "MetricsReaderFactory":
        """Reads a cluster's metrics. The HTTP client is imported for the first cluster: restating needs none."""

        def create_reader(
            cluster: "ClusterSettings", settings: "CoreSettings", deadline: "Deadline | None"
        ) -> "PrometheusReader":
            from gpucost.sources.prometheus import metrics_reader

            return metrics_reader(cluster, settings, deadline, secret_value=self.secrets.value)

        return create_reader

    @cached_property
    def limits_reader(self) -> "LimitsReaderFactory":
        """Reads a cluster's limits and quotas; see `metrics_reader`."""

        def create_reader(cluster: "ClusterSettings", deadline: "Deadline | None") -> "NodePoolLimitsReader":
            from gpucost.sources.prometheus.limits import NodePoolLimitsReader

            return NodePoolLimitsReader(cluster, deadline, secret_value=self.secrets.value)

        return create_reader

    @cached_property
    def table(self) -> "Table":
        """The ledger's table."""
        from gpucost.storage.dynamodb_table import DynamoDBTable

        return DynamoDBTable(self.client("dynamodb"), self.environment.table)

    @cached_property
    def ledger(self) -> "Ledger":
        """The cost records."""
        from gpucost.storage.ledger import Ledger

        return Ledger(self.table)

    @cached_property
    def rollups(self) -> "RollupStore":
        """Daily sums of the cost records."""
        from gpucost.storage.rollups import RollupStore

        return RollupStore(self.table)

    @cached_property
    def settings_store(self) -> "SettingsDocumentStore":
        """The settings document, cached for a minute."""
        from gpucost.settings_document import SettingsDocumentStore

        return SettingsDocumentStore(self.table, clock=self.clock)

    @cached_property
    def price_book(self) -> "PriceStore":
        """Fetched prices and those set by hand."""
        from gpucost.storage.price_book import PriceStore

        return PriceStore(self.table)

    @cached_property
    def pricer(self) -> "Pricer":
        """Prices of nodes, from the price book and the bill."""
        from gpucost.pipeline.pricing import Pricer

        return Pricer(self.price_book, self.bill_store)

    @cached_property
    def bill_store(self) -> "BillStore":
        """The bill, by hour."""
        from gpucost.storage.bill_store import BillStore

        return BillStore(self.table, clock=self.clock)

    @cached_property
    def alert_states(self) -> "DynamoAlertStateStore":
        """States of alerts."""
        from gpucost.features.alerting.storage.states import DynamoAlertStateStore

        return DynamoAlertStateStore(self.table)

    @cached_property
    def alert_history(self) -> "AlertHistory":
        """The history of notifications."""
        from gpucost.features.alerting.storage.notification_history import AlertHistory

        return AlertHistory(self.table)

    @cached_property
    def silences(self) -> "SilenceStore":
        """Silences of alerts."""
        from gpucost.features.alerting.storage.notification_history import SilenceStore

        return SilenceStore(self.table)

    @cached_property
    def bus(self) -> "MessageBus":
        """Queues and topic."""
        from gpucost.runtime.messaging import MessageBus

        env = self.environment
        return MessageBus(
            hours_queue_url=env.hours_queue_url,
            backfill_queue_url=env.backfill_queue_url,
            dead_letter_queue_url=env.dead_letter_queue_url,
            events_topic_arn=env.events_topic_arn,
            alerts_topic_arn=env.alerts_topic_arn,
            client=self.client,
        )

    @cached_property
    def dispatch_service(self) -> "DispatchService":
        """For `functions/dispatch`."""
        from gpucost.pipeline.dispatch import DispatchService

        return DispatchService(self.settings_store, self.ledger, self.ledger.versions, self.bus)

    @cached_property
    def attribute_service(self) -> "AttributeService":
        """For `functions/attribute`."""
        from gpucost.pipeline.attribute import AttributeService
        from gpucost.pipeline.limits import LimitsRecorder

        return AttributeService(
            self.settings_store,
            self.ledger,
            self.rollups,
            self.metrics_reader,
            self.bus,
            pricer=self.pricer,
            clock=self.clock,
            limits=LimitsRecorder(self.limits_reader, self.limits_store),
        )

    @cached_property
    def restate_service(self) -> "RestateService":
        """For `functions/attribute`."""
        from gpucost.pipeline.restate import RestateService

        return RestateService(
            self.settings_store, self.ledger, self.rollups, self.bus, pricer=self.pricer, clock=self.clock
        )

    @cached_property
    def repricing_service(self) -> "RepricingService":
        """For `functions/dispatch`."""
        from gpucost.pipeline.reprice import RepricingService

        return RepricingService(self.settings_store, self.ledger, self.price_book, self.bill_store, self.bus)

    @cached_property
    def prices_service(self) -> "PriceRefreshService":
        """For `functions/prices`."""
        from gpucost.pipeline.refresh_prices import PriceRefreshService
        from gpucost.sources.aws_prices.instance_types import Ec2InstanceTypes
        from gpucost.sources.aws_prices.on_demand import AwsPriceList
        from gpucost.sources.aws_prices.spot import Ec2SpotHistory

        return PriceRefreshService(
            self.settings_store,
            self.ledger,
            self.price_book,
            spot=Ec2SpotHistory(self.client),
            price_list=AwsPriceList(self.client),
            catalogue=Ec2InstanceTypes(self.client),
            bill=self.bill_service,
            fetched=frozenset(self.environment.price_sources.split(",")) - {""},
            clock=self.clock,
        )

    @cached_property
    def bill_service(self) -> "BillRefreshService":
        """For `functions/prices`, source `cur`."""
        from gpucost.pipeline.node_pools import LedgerNodePools
        from gpucost.pipeline.refresh_bill import BillRefreshService
        from gpucost.sources.bill.athena import bill_reader

        return BillRefreshService(
            partial(bill_reader, clients=self.aws_clients),
            self.bill_store,
            clock=self.clock,
            node_pools=LedgerNodePools(self.settings_store, self.ledger),
        )

    @cached_property
    def alert_spend(self) -> "DynamoSpendStore":
        """Spend by month and day, as alert rules on spend compare it."""
        from gpucost.features.alerting.storage.spend import DynamoSpendStore

        return DynamoSpendStore(self.table)

    @cached_property
    def notifiers(self) -> "Callable[[SettingsWithAlerts], Mapping[str, Notifier]]":
        """The notifiers of the settings' receivers, by the receivers' keys."""
        from gpucost.features.alerting.notifiers import make_notifiers

        return partial(
            make_notifiers,
            email_topic_arn=self.environment.email_topic_arn,
            public_url=self.environment.public_url,
            client=self.client,
            secret_value=self.secrets.value,
        )

    @cached_property
    def alert_service(self) -> "AlertService":
        """For `functions/alert`."""
        from gpucost.features.alerting.ports import RuleInputs
        from gpucost.features.alerting.rule_kinds.waste import estimates_check
        from gpucost.features.alerting.service import AlertService
        from gpucost.pipeline.price_age import last_spot_fetch
        from gpucost.runtime.messaging import count_waiting_messages

        env = self.environment

        rule_inputs = RuleInputs(
            self.ledger,
            self.rollups,
            self.alert_spend,
            read_spot_fetch_time=lambda: last_spot_fetch(self.price_book),
            count_dead_letters=lambda: count_waiting_messages(env.dead_letter_queue_url, client=self.client),
            allows_estimates=estimates_check(self.settings_store),
            read_savings=workload_savings(self.recommendation_store),
        )
        return AlertService(
            self.settings_store,
            rule_inputs,
            self.alert_states,
            self.alert_history,
            self.silences,
            self.notifiers,
            self.bus.send_to_dead_letter_queue,
            clock=self.clock,
        )

    @cached_property
    def alert_queries(self) -> "AlertQueries":
        """For `functions/api`, which only lists."""
        from gpucost.features.alerting.queries import AlertQueries

        return AlertQueries(self.settings_store, self.alert_states, self.alert_history, self.silences, clock=self.clock)

    @cached_property
    def access_policy(self) -> "AccessPolicy":
        """For `functions/api`."""
        from gpucost.reports.access import AccessPolicy

        return AccessPolicy(self.settings_store)

    @cached_property
    def limits_store(self) -> "LimitsStore":
        """Limits of node pools and quotas of namespaces."""
        from gpucost.storage.limits import LimitsStore

        return LimitsStore(self.table)

    @cached_property
    def limit_reports(self) -> "LimitReports":
        """For `functions/api`."""
        from gpucost.reports.limits import LimitReports

        return LimitReports(self.settings_store, self.ledger, self.limits_store, clock=self.clock)

    @cached_property
    def report_service(self) -> "ReportService":
        """For `functions/api`."""
        from gpucost.reports import ReportService

        return ReportService(
            self.settings_store, self.ledger, self.rollups, self.clock, self.ledger.versions.closed_months
        )

    @cached_property
    def price_book_listing(self) -> "PriceBookListing":
        """For `functions/api`."""
        from gpucost.reports.prices import PriceBookListing

        return PriceBookListing(self.price_book)

    @cached_property
    def allocation_service(self) -> "AllocationService":
        """For `functions/api`."""
        from gpucost.features.opencost.service import AllocationService

        return AllocationService(self.settings_store, self.ledger, self.rollups, clock=self.clock)

    @cached_property
    def asset_service(self) -> "AssetService":
        """For `functions/api`."""
        from gpucost.features.opencost.assets import AssetService

        return AssetService(self.settings_store, self.ledger)

    @cached_property
    def exports(self) -> "DynamoExports":
        """Which days are exported."""
        from gpucost.features.exports.storage import DynamoExports

        env = self.environment
        return DynamoExports(self.table, timedelta(days=env.export_days))

    @cached_property
    def export_bucket(self) -> "ExportBucket":
        """The bucket of exports."""
        from gpucost.features.exports.bucket import S3Bucket

        return S3Bucket(self.s3_client, self.environment.export_bucket)

    @cached_property
    def export_service(self) -> "ExportService":
        """For `functions/export`."""
        from gpucost.features.exports.files import DuckDbFiles
        from gpucost.features.exports.service import ExportService

        env = self.environment
        return ExportService(
            self.settings_store,
            self.ledger,
            self.exports,
            self.export_bucket,
            DuckDbFiles(),
            account=env.billing_account,
            retention=timedelta(days=env.export_days),
            clock=self.clock,
        )

    @cached_property
    def export_listing(self) -> "ExportListing":
        """For `functions/api`."""
        from gpucost.features.exports.listing import ExportListing

        return ExportListing(self.settings_store, self.ledger, self.exports, self.export_bucket, clock=self.clock)

    @cached_property
    def recommendation_store(self) -> "DynamoRecommendations":
        """Recommendations."""
        from gpucost.features.recommendations.storage.recommendations import DynamoRecommendations

        return DynamoRecommendations(self.table)

    @cached_property
    def review_service(self) -> "ReviewService":
        """For `functions/recommend`."""
        from gpucost.features.recommendations.daily_cache import (
            gpu_memory_cache,
            request_latency_cache,
            waiting_pods_cache,
        )
        from gpucost.features.recommendations.service import ReviewService
        from gpucost.features.recommendations.sources.gpu_memory import PrometheusGpuMemory
        from gpucost.features.recommendations.sources.karpenter_disruption import PrometheusDisruption
        from gpucost.features.recommendations.sources.waiting_pods import PrometheusWaitingPods
        from gpucost.features.recommendations.storage.gpu_memory import DynamoGpuMemory
        from gpucost.features.recommendations.storage.request_latency import DynamoRequestLatency
        from gpucost.features.recommendations.storage.waiting_pods import DynamoWaitingPods

        return ReviewService(
            self.settings_store,
            self.ledger,
            self.recommendation_store,
            self.price_book,
            gpu_memory_cache(PrometheusGpuMemory, DynamoGpuMemory(self.table), clock=self.clock),
            waiting_pods_cache(PrometheusWaitingPods, DynamoWaitingPods(self.table), clock=self.clock),
            PrometheusDisruption,
            clock=self.clock,
            latency=partial(request_latency_cache, store=DynamoRequestLatency(self.table), clock=self.clock),
            time_zone=lambda: self.settings_store.current().settings.alerts.time_zone,
        )

    @cached_property
    def recommendation_queries(self) -> "RecommendationQueries":
        """For `functions/api`, which only lists."""
        from gpucost.features.recommendations.queries import RecommendationQueries

        return RecommendationQueries(self.settings_store, self.recommendation_store, clock=self.clock)

    @cached_property
    def forecasts(self) -> "ForecastService":
        """For `functions/api`."""
        from gpucost.features.alerting.configured_budgets import lowest_budget
        from gpucost.features.recommendations.forecasts import ForecastService
        from gpucost.reports.published_until import PublishedUntil

        def budget_of(business_unit: str, months: int) -> "Decimal | None":
            return lowest_budget(self.settings_store.current().settings, business_unit, months)

        published_until = PublishedUntil(self.settings_store, self.ledger, self.clock)
        return ForecastService(self.settings_store, self.rollups, budget_of, published_until=published_until)

    @cached_property
    def budgets(self) -> "BudgetService":
        """For `functions/api`."""
        from gpucost.features.alerting.month_budgets import BudgetService

        return BudgetService(self.settings_store, self.rollups, self.ledger, clock=self.clock)

    @cached_property
    def sign_in(self) -> "SignIn | None":
        """For `functions/api`: how people sign in to the page; None without sign-in."""
        from gpucost.api.dashboard_page import SignIn

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
            access=lambda: self.access_policy,
            sign_in=lambda: self.sign_in,
        )
