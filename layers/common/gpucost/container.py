"""The one composition root: joins services and adapters from the function's environment; clients are made lazily."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from gpucost.runtime.environment import environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from gpucost.api.app import Services
    from gpucost.api.page import SignIn
    from gpucost.features.alerting.ports import Notifier, WorkloadSavings
    from gpucost.features.alerting.queries import AlertDesk
    from gpucost.features.alerting.service import AlertService
    from gpucost.features.alerting.settings import AlertingSettings
    from gpucost.features.alerting.storage.history import DynamoAlertHistory, DynamoSilences
    from gpucost.features.alerting.storage.states import DynamoAlertMemory
    from gpucost.features.exports.bucket import S3Bucket
    from gpucost.features.exports.listing import ExportListing
    from gpucost.features.exports.service import ExportService
    from gpucost.features.exports.storage import DynamoExports
    from gpucost.features.opencost.service import AllocationService
    from gpucost.features.recommendations.forecasts import Forecasts
    from gpucost.features.recommendations.queries import AdviceDesk
    from gpucost.features.recommendations.service import AdviceService
    from gpucost.features.recommendations.storage.recommendations import DynamoAdvice
    from gpucost.pipeline.attribute import AttributeService
    from gpucost.pipeline.dispatch import DispatchService
    from gpucost.pipeline.pricing import Pricer
    from gpucost.pipeline.refresh_bill import BillService
    from gpucost.pipeline.refresh_prices import PricesService
    from gpucost.pipeline.reprice import RepricingService
    from gpucost.pipeline.restate import RestateService
    from gpucost.reports import ReportService
    from gpucost.reports.access import AccessPolicy
    from gpucost.reports.limits import LimitReports
    from gpucost.reports.prices import PriceListing
    from gpucost.runtime.messaging import AwsBus
    from gpucost.settings_document import DocumentStore
    from gpucost.storage.bill_store import DynamoBillStore
    from gpucost.storage.ledger import DynamoLedgerTmp
    from gpucost.storage.limits import DynamoLimits
    from gpucost.storage.price_book import DynamoPriceBook
    from gpucost.storage.rollups import DynamoRollups


def utc_now() -> datetime:
    """The clock of the deployed system."""
    return datetime.now(UTC)


@cache
def ledger() -> "DynamoLedgerTmp":
    """The cost records."""
    from gpucost.runtime import aws
    from gpucost.storage.ledger import DynamoLedgerTmp

    return DynamoLedgerTmp(aws.client("dynamodb"), environment().table)


@cache
def rollups() -> "DynamoRollups":
    """Days, rolled up from the cost records."""
    from gpucost.runtime import aws
    from gpucost.storage.rollups import DynamoRollups

    return DynamoRollups(aws.client("dynamodb"), environment().table)


@cache
def settings_store() -> "DocumentStore":
    """The settings document, cached for a minute."""
    from gpucost.runtime import aws
    from gpucost.settings_document import DocumentStore

    return DocumentStore(aws.client("dynamodb"), environment().table, clock=utc_now)


@cache
def price_book() -> "DynamoPriceBook":
    """Fetched prices and those set by hand."""
    from gpucost.runtime import aws
    from gpucost.storage.price_book import DynamoPriceBook

    return DynamoPriceBook(aws.client("dynamodb"), environment().table)


@cache
def pricer() -> "Pricer":
    """What is known about prices."""
    from gpucost.pipeline.pricing import Pricer

    return Pricer(price_book(), bill_store())


@cache
def bill_store() -> "DynamoBillStore":
    """What the bill says of each hour."""
    from gpucost.runtime import aws
    from gpucost.storage.bill_store import DynamoBillStore

    return DynamoBillStore(aws.client("dynamodb"), environment().table, clock=utc_now)


@cache
def alert_memory() -> "DynamoAlertMemory":
    """What alerting remembers."""
    from gpucost.features.alerting.storage.states import DynamoAlertMemory
    from gpucost.runtime import aws

    return DynamoAlertMemory(aws.client("dynamodb"), environment().table)


@cache
def alert_history() -> "DynamoAlertHistory":
    """What people were told."""
    from gpucost.features.alerting.storage.history import DynamoAlertHistory
    from gpucost.runtime import aws

    return DynamoAlertHistory(aws.client("dynamodb"), environment().table)


@cache
def silences() -> "DynamoSilences":
    """Who wants to hear nothing of what."""
    from gpucost.features.alerting.storage.history import DynamoSilences
    from gpucost.runtime import aws

    return DynamoSilences(aws.client("dynamodb"), environment().table)


@cache
def bus() -> "AwsBus":
    """Queues and topic."""
    from gpucost.runtime.messaging import AwsBus

    env = environment()
    return AwsBus(
        hours_queue_url=env.hours_queue_url,
        backfill_queue_url=env.backfill_queue_url,
        dead_letter_queue_url=env.dead_letter_queue_url,
        events_topic_arn=env.events_topic_arn,
    )


@cache
def dispatch_service() -> "DispatchService":
    """For `functions/dispatch`."""
    from gpucost.pipeline.dispatch import DispatchService

    return DispatchService(settings_store(), ledger(), ledger().versions, bus())


@cache
def attribute_service() -> "AttributeService":
    """For `functions/attribute`."""
    from gpucost.pipeline.attribute import AttributeService
    from gpucost.pipeline.limits import LimitsKeeper
    from gpucost.sources.prometheus import limits, metrics_reader

    return AttributeService(
        settings_store(),
        ledger(),
        rollups(),
        metrics_reader,
        bus(),
        pricer=pricer(),
        clock=utc_now,
        limits=LimitsKeeper(limits.PrometheusLimits, limits_store()),
    )


@cache
def restate_service() -> "RestateService":
    """For `functions/attribute`."""
    from gpucost.pipeline.restate import RestateService

    return RestateService(settings_store(), ledger(), rollups(), bus(), pricer=pricer(), clock=utc_now)


@cache
def repricing_service() -> "RepricingService":
    """For `functions/dispatch`."""
    from gpucost.pipeline.reprice import RepricingService

    return RepricingService(settings_store(), ledger(), price_book(), bill_store(), bus())


@cache
def prices_service() -> "PricesService":
    """For `functions/prices`."""
    from gpucost.pipeline.refresh_prices import PricesService
    from gpucost.runtime import aws
    from gpucost.sources.aws_prices.instance_types import Ec2InstanceTypes
    from gpucost.sources.aws_prices.on_demand import AwsPriceList
    from gpucost.sources.aws_prices.spot import Ec2SpotHistory

    return PricesService(
        settings_store(),
        ledger(),
        price_book(),
        spot=Ec2SpotHistory(aws.client),
        price_list=AwsPriceList(aws.client),
        catalogue=Ec2InstanceTypes(aws.client),
        bill=bill_service(),
        fetched=frozenset(environment().price_sources.split(",")) - {""},
        clock=utc_now,
    )


@cache
def bill_service() -> "BillService":
    """For `functions/prices`, source `cur`."""
    from gpucost.pipeline.node_pools import LedgerNodePools
    from gpucost.pipeline.refresh_bill import BillService
    from gpucost.sources.bill.athena import bill_reader

    return BillService(bill_reader, bill_store(), clock=utc_now, node_pools=LedgerNodePools(settings_store(), ledger()))


def workload_savings(recommendations: "DynamoAdvice") -> "WorkloadSavings":
    """What open recommendations on workloads would save, as alerting's digests read it."""
    from gpucost.features.alerting.ports import WorkloadSaving

    def savings(cluster: str) -> "list[WorkloadSaving]":
        recommended = [one.advice for one in recommendations.recommendations(cluster) if one.state == "open"]
        return [
            WorkloadSaving(
                advice.id,
                advice.about.business_unit,
                advice.summary,
                advice.saving.usd,
                advice.currency,
                advice.confidence,
            )
            for advice in recommended
            if advice.about.is_workload and advice.saving.usd > 0
        ]

    return savings


@cache
def alert_service() -> "AlertService":
    """For `functions/alert`."""
    from gpucost.features.alerting.notifiers import notifiers
    from gpucost.features.alerting.ports import AlertSources
    from gpucost.features.alerting.service import AlertService
    from gpucost.features.alerting.storage.spend import DynamoSpendMemory
    from gpucost.pipeline.price_age import newest_price
    from gpucost.runtime import aws
    from gpucost.runtime.messaging import waiting_messages

    env = environment()

    def receivers(settings: "AlertingSettings") -> "Mapping[str, Notifier]":
        return notifiers(settings, email_topic_arn=env.email_topic_arn, public_url=env.public_url)

    sources = AlertSources(
        ledger(),
        rollups(),
        DynamoSpendMemory(aws.client("dynamodb"), env.table),
        newest_price=lambda: newest_price(price_book()),
        dead_letters=lambda: waiting_messages(env.dead_letter_queue_url),
        savings=workload_savings(advice_store()),
    )
    return AlertService(
        settings_store(), sources, alert_memory(), alert_history(), silences(), receivers, clock=utc_now
    )


@cache
def alert_desk() -> "AlertDesk":
    """For `functions/api`, which only lists."""
    from gpucost.features.alerting.queries import AlertDesk

    return AlertDesk(settings_store(), alert_memory(), alert_history(), silences(), clock=utc_now)


@cache
def access_policy() -> "AccessPolicy":
    """For `functions/api`."""
    from gpucost.reports.access import AccessPolicy

    return AccessPolicy(settings_store())


@cache
def limits_store() -> "DynamoLimits":
    """Limits of node pools and quotas of namespaces."""
    from gpucost.runtime import aws
    from gpucost.storage.limits import DynamoLimits

    return DynamoLimits(aws.client("dynamodb"), environment().table)


@cache
def limit_reports() -> "LimitReports":
    """For `functions/api`."""
    from gpucost.reports.limits import LimitReports

    return LimitReports(settings_store(), ledger(), limits_store(), clock=utc_now)


@cache
def report_service() -> "ReportService":
    """For `functions/api`."""
    from gpucost.reports import ReportService

    return ReportService(settings_store(), ledger(), rollups(), clock=utc_now)


@cache
def price_listing() -> "PriceListing":
    """For `functions/api`."""
    from gpucost.reports.prices import PriceListing

    return PriceListing(price_book())


@cache
def allocation_service() -> "AllocationService":
    """For `functions/api`."""
    from gpucost.features.opencost.service import AllocationService

    return AllocationService(settings_store(), ledger(), rollups(), clock=utc_now)


@cache
def exports() -> "DynamoExports":
    """Which days are exported."""
    from gpucost.features.exports.storage import DynamoExports
    from gpucost.runtime import aws

    env = environment()
    return DynamoExports(aws.client("dynamodb"), env.table, timedelta(days=env.export_days))


@cache
def export_bucket() -> "S3Bucket":
    """Where exports lie."""
    from gpucost.features.exports.bucket import S3Bucket
    from gpucost.runtime import aws

    return S3Bucket(aws.s3_client(), environment().export_bucket)


@cache
def export_service() -> "ExportService":
    """For `functions/export`."""
    from gpucost.features.exports.files import DuckDbFiles
    from gpucost.features.exports.service import ExportService

    env = environment()
    return ExportService(
        settings_store(),
        ledger(),
        exports(),
        export_bucket(),
        DuckDbFiles(),
        account=env.billing_account,
        kept=timedelta(days=env.export_days),
        clock=utc_now,
    )


@cache
def export_listing() -> "ExportListing":
    """For `functions/api`."""
    from gpucost.features.exports.listing import ExportListing

    return ExportListing(settings_store(), ledger(), exports(), export_bucket(), clock=utc_now)


@cache
def advice_store() -> "DynamoAdvice":
    """Recommendations."""
    from gpucost.features.recommendations.storage.recommendations import DynamoAdvice
    from gpucost.runtime import aws

    return DynamoAdvice(aws.client("dynamodb"), environment().table)


@cache
def advice_service() -> "AdviceService":
    """For `functions/advise`."""
    from gpucost.features.recommendations.daily_cache import memory_keeper, waiting_keeper
    from gpucost.features.recommendations.service import AdviceService
    from gpucost.features.recommendations.sources.disruption import PrometheusDisruption
    from gpucost.features.recommendations.sources.gpu_memory import PrometheusMemory
    from gpucost.features.recommendations.sources.waiting_pods import PrometheusWaiting
    from gpucost.features.recommendations.storage.gpu_memory import DynamoGpuMemory
    from gpucost.features.recommendations.storage.waiting_pods import DynamoWaitingPods
    from gpucost.runtime import aws

    dynamodb, table = aws.client("dynamodb"), environment().table

    return AdviceService(
        settings_store(),
        ledger(),
        advice_store(),
        price_book(),
        memory_keeper(PrometheusMemory, DynamoGpuMemory(dynamodb, table), clock=utc_now),
        waiting_keeper(PrometheusWaiting, DynamoWaitingPods(dynamodb, table), clock=utc_now),
        PrometheusDisruption,
        clock=utc_now,
        time_zone=lambda: settings_store().current().settings.alerts.time_zone,
    )


@cache
def advice_desk() -> "AdviceDesk":
    """For `functions/api`, which only lists."""
    from gpucost.features.recommendations.queries import AdviceDesk

    return AdviceDesk(settings_store(), advice_store(), clock=utc_now)


@cache
def forecasts() -> "Forecasts":
    """For `functions/api`."""
    from gpucost.features.alerting.budgets import tightest_budget
    from gpucost.features.recommendations.forecasts import Forecasts

    def budget_of(business_unit: str, months: int) -> "Decimal | None":
        return tightest_budget(settings_store().current().settings, business_unit, months)

    return Forecasts(settings_store(), rollups(), budget_of, clock=utc_now)


@cache
def sign_in() -> "SignIn | None":
    """For `functions/api`: how people sign in to the page; None where they do not."""
    from gpucost.api.page import SignIn

    env = environment()
    if not (env.sign_in_issuer and env.sign_in_client):
        return None
    return SignIn(env.sign_in_issuer, env.sign_in_client, env.sign_in_scopes, tuple(env.sign_in_hosts.split()))


@cache
def api_services() -> "Services":
    """What the routes of `functions/api` ask, each made when it is first asked."""
    from gpucost.api.app import Services

    return Services(
        reports=report_service,
        prices=price_listing,
        allocations=allocation_service,
        exports=export_listing,
        limits=limit_reports,
        alerts=alert_desk,
        recommendations=advice_desk,
        forecasts=forecasts,
        access=access_policy,
        sign_in=sign_in,
    )
