"""The one composition root: joins services and adapters from the function's environment; clients are made lazily."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from gpucost.environment import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpucost.adapters.dynamodb.advice import DynamoAdvice
    from gpucost.adapters.dynamodb.alert_history import DynamoAlertHistory, DynamoSilences
    from gpucost.adapters.dynamodb.alert_memory import DynamoAlertMemory
    from gpucost.adapters.dynamodb.bill_store import DynamoBillStore
    from gpucost.adapters.dynamodb.exports import DynamoExports
    from gpucost.adapters.dynamodb.ledger import DynamoLedger
    from gpucost.adapters.dynamodb.limit_items import DynamoLimits
    from gpucost.adapters.dynamodb.price_book import DynamoPriceBook
    from gpucost.adapters.dynamodb.rollups import DynamoRollups
    from gpucost.adapters.dynamodb.settings_store import DynamoSettingsStore
    from gpucost.adapters.export_bucket import S3Bucket
    from gpucost.adapters.messaging import AwsBus
    from gpucost.alert_ports import Notifier
    from gpucost.api.app import Services
    from gpucost.api.page import SignIn
    from gpucost.services.access import AccessPolicy
    from gpucost.services.advice.desk import AdviceDesk
    from gpucost.services.advice.forecasts import Forecasts
    from gpucost.services.advice.service import AdviceService
    from gpucost.services.alerting.managing import AlertDesk
    from gpucost.services.alerting.service import AlertService
    from gpucost.services.allocations import AllocationService
    from gpucost.services.attribute import AttributeService
    from gpucost.services.bill import BillService
    from gpucost.services.dispatch import DispatchService
    from gpucost.services.export import ExportService
    from gpucost.services.export_listing import ExportListing
    from gpucost.services.limits import LimitReports
    from gpucost.services.price_listing import PriceListing
    from gpucost.services.prices import PricesService
    from gpucost.services.pricing import Pricer
    from gpucost.services.reports import ReportService
    from gpucost.services.repricing import RepricingService
    from gpucost.services.restate import RestateService
    from gpucost.settings import Settings


def utc_now() -> datetime:
    """The clock of the deployed system."""
    return datetime.now(UTC)


@cache
def ledger() -> "DynamoLedger":
    """The cost records."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.ledger import DynamoLedger

    return DynamoLedger(aws.client("dynamodb"), environment().table)


@cache
def rollups() -> "DynamoRollups":
    """Days, rolled up from the cost records."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.rollups import DynamoRollups

    return DynamoRollups(aws.client("dynamodb"), environment().table)


@cache
def settings_store() -> "DynamoSettingsStore":
    """The settings document, cached for a minute."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.settings_store import DynamoSettingsStore

    return DynamoSettingsStore(aws.client("dynamodb"), environment().table, clock=utc_now)


@cache
def price_book() -> "DynamoPriceBook":
    """Fetched prices and those set by hand."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.price_book import DynamoPriceBook

    return DynamoPriceBook(aws.client("dynamodb"), environment().table)


@cache
def pricer() -> "Pricer":
    """What is known about prices."""
    from gpucost.services.pricing import Pricer

    return Pricer(price_book(), bill_store())


@cache
def bill_store() -> "DynamoBillStore":
    """What the bill says of each hour."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.bill_store import DynamoBillStore

    return DynamoBillStore(aws.client("dynamodb"), environment().table, clock=utc_now)


@cache
def alert_memory() -> "DynamoAlertMemory":
    """What alerting remembers."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.alert_memory import DynamoAlertMemory

    return DynamoAlertMemory(aws.client("dynamodb"), environment().table)


@cache
def alert_history() -> "DynamoAlertHistory":
    """What people were told."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.alert_history import DynamoAlertHistory

    return DynamoAlertHistory(aws.client("dynamodb"), environment().table)


@cache
def silences() -> "DynamoSilences":
    """Who wants to hear nothing of what."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.alert_history import DynamoSilences

    return DynamoSilences(aws.client("dynamodb"), environment().table)


@cache
def bus() -> "AwsBus":
    """Queues and topic."""
    from gpucost.adapters.messaging import AwsBus

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
    from gpucost.services.dispatch import DispatchService

    return DispatchService(settings_store(), ledger(), ledger().versions, bus())


@cache
def attribute_service() -> "AttributeService":
    """For `functions/attribute`."""
    from gpucost.adapters.prometheus import limits, metrics_reader
    from gpucost.services.attribute import AttributeService
    from gpucost.services.limits import LimitsKeeper

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
    from gpucost.services.restate import RestateService

    return RestateService(settings_store(), ledger(), rollups(), bus(), pricer=pricer(), clock=utc_now)


@cache
def repricing_service() -> "RepricingService":
    """For `functions/dispatch`."""
    from gpucost.services.repricing import RepricingService

    return RepricingService(settings_store(), ledger(), price_book(), bill_store(), bus())


@cache
def prices_service() -> "PricesService":
    """For `functions/prices`."""
    from gpucost.adapters import aws
    from gpucost.adapters.prices.on_demand import AwsPriceList
    from gpucost.adapters.prices.shapes import Ec2InstanceTypes
    from gpucost.adapters.prices.spot import Ec2SpotHistory
    from gpucost.services.prices import PricesService

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
    from gpucost.adapters.bill.athena import bill_reader
    from gpucost.services.bill import BillService
    from gpucost.services.node_pools import LedgerNodePools

    return BillService(bill_reader, bill_store(), clock=utc_now, node_pools=LedgerNodePools(settings_store(), ledger()))


@cache
def alert_service() -> "AlertService":
    """For `functions/alert`."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.spend_memory import DynamoSpendMemory
    from gpucost.adapters.messaging import waiting_messages
    from gpucost.adapters.notifiers import notifiers
    from gpucost.alert_ports import AlertSources
    from gpucost.services.alerting.service import AlertService
    from gpucost.services.price_age import newest_price

    env = environment()

    def receivers(settings: "Settings") -> "Mapping[str, Notifier]":
        return notifiers(settings, email_topic_arn=env.email_topic_arn, public_url=env.public_url)

    sources = AlertSources(
        ledger(),
        rollups(),
        DynamoSpendMemory(aws.client("dynamodb"), env.table),
        newest_price=lambda: newest_price(price_book()),
        dead_letters=lambda: waiting_messages(env.dead_letter_queue_url),
        recommendations=advice_store().recommendations,
    )
    return AlertService(
        settings_store(), sources, alert_memory(), alert_history(), silences(), receivers, clock=utc_now
    )


@cache
def alert_desk() -> "AlertDesk":
    """For `functions/api`, which only lists."""
    from gpucost.services.alerting.managing import AlertDesk

    return AlertDesk(settings_store(), alert_memory(), alert_history(), silences(), clock=utc_now)


@cache
def access_policy() -> "AccessPolicy":
    """For `functions/api`."""
    from gpucost.services.access import AccessPolicy

    return AccessPolicy(settings_store())


@cache
def limits_store() -> "DynamoLimits":
    """Limits of node pools and quotas of namespaces."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.limit_items import DynamoLimits

    return DynamoLimits(aws.client("dynamodb"), environment().table)


@cache
def limit_reports() -> "LimitReports":
    """For `functions/api`."""
    from gpucost.services.limits import LimitReports

    return LimitReports(settings_store(), ledger(), limits_store(), clock=utc_now)


@cache
def report_service() -> "ReportService":
    """For `functions/api`."""
    from gpucost.services.reports import ReportService

    return ReportService(settings_store(), ledger(), rollups(), clock=utc_now)


@cache
def price_listing() -> "PriceListing":
    """For `functions/api`."""
    from gpucost.services.price_listing import PriceListing

    return PriceListing(price_book())


@cache
def allocation_service() -> "AllocationService":
    """For `functions/api`."""
    from gpucost.services.allocations import AllocationService

    return AllocationService(settings_store(), ledger(), rollups(), clock=utc_now)


@cache
def exports() -> "DynamoExports":
    """Which days are exported."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.exports import DynamoExports

    env = environment()
    return DynamoExports(aws.client("dynamodb"), env.table, timedelta(days=env.export_days))


@cache
def export_bucket() -> "S3Bucket":
    """Where exports lie."""
    from gpucost.adapters import aws
    from gpucost.adapters.export_bucket import S3Bucket

    return S3Bucket(aws.s3_client(), environment().export_bucket)


@cache
def export_service() -> "ExportService":
    """For `functions/export`."""
    from gpucost.adapters.export_files import DuckDbFiles
    from gpucost.services.export import ExportService

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
    from gpucost.services.export_listing import ExportListing

    return ExportListing(settings_store(), ledger(), exports(), export_bucket(), clock=utc_now)


@cache
def advice_store() -> "DynamoAdvice":
    """Recommendations."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.advice import DynamoAdvice

    return DynamoAdvice(aws.client("dynamodb"), environment().table)


@cache
def advice_service() -> "AdviceService":
    """For `functions/advise`."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.gpu_memory import DynamoGpuMemory
    from gpucost.adapters.dynamodb.waiting_pods import DynamoWaitingPods
    from gpucost.adapters.prometheus.disruption import PrometheusDisruption
    from gpucost.adapters.prometheus.memory import PrometheusMemory
    from gpucost.adapters.prometheus.waiting import PrometheusWaiting
    from gpucost.services.advice.asking_once import memory_keeper, waiting_keeper
    from gpucost.services.advice.service import AdviceService

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
    )


@cache
def advice_desk() -> "AdviceDesk":
    """For `functions/api`, which only lists."""
    from gpucost.services.advice.desk import AdviceDesk

    return AdviceDesk(settings_store(), advice_store(), clock=utc_now)


@cache
def forecasts() -> "Forecasts":
    """For `functions/api`."""
    from gpucost.services.advice.forecasts import Forecasts

    return Forecasts(settings_store(), rollups(), clock=utc_now)


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
        advice=advice_desk,
        forecasts=forecasts,
        access=access_policy,
        sign_in=sign_in,
    )
