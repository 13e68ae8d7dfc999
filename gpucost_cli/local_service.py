"""The service in one process, on a Prometheus and a folder: what the functions do on AWS, without AWS.

| on AWS | here |
| --- | --- |
| DynamoDB | `SqliteTable` in the folder |
| the queues and the topic | `LocalBus`, in memory: what is due follows from the ledger after a restart |
| EventBridge Scheduler | `LocalService.run_schedule`, hourly |
| API Gateway and the function `api` | an HTTP server on the loopback address |
| the bucket of exports | `ExportFolder` |
"""

import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from http import HTTPStatus
from threading import Lock
from types import SimpleNamespace
from typing import Any

from gpucost.api.app import build_app
from gpucost.api.events import handle_event
from gpucost.container import Container
from gpucost.core.errors import InvalidInputError, NotFoundError, SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.core.ledger import Manifest
from gpucost.features.alerting.notifiers import make_notifiers
from gpucost.features.alerting.ports import Notifier
from gpucost.features.alerting.settings import SettingsDocument
from gpucost.http.responses import JSON_CONTENT_TYPE, SECURITY_HEADERS
from gpucost.pipeline.attribute import SoFar
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.json_text import dumps
from gpucost.runtime.messages import (
    MAX_HOURS_PER_MESSAGE,
    AlertTick,
    AttributionOrigin,
    ExportDue,
    HourPublished,
    HoursDue,
    HoursToRestate,
    MessageBus,
    PricesDue,
    RecommendationsDue,
    ScheduledTick,
    UncheckedAlerts,
)
from gpucost.runtime.observability import logger
from gpucost.runtime.process import Environment
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost.settings_document import SettingsDocumentStore
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.connection import connect
from gpucost.sources.prometheus.reader import PrometheusReader
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.aws_access import AwsAccess
from gpucost_cli.discovery import oldest_hour
from gpucost_cli.export_folder import ExportFolder
from gpucost_cli.fresh_clusters import FreshClusters
from gpucost_cli.node_price_fetcher import FETCHED_SOURCES
from gpucost_cli.served_decisions import add_decision_routes
from gpucost_cli.served_doctor import ServedDoctor
from gpucost_devstack.http import serving_api
from gpucost_devstack.lambda_worker import LambdaContext
from gpucost_devstack.loopback import HOST, listen
from gpucost_devstack.template import REPOSITORY

PAGE_FOLDER = REPOSITORY / "functions/api/page"
FIRST_HOURS = 24
"""The newest hours, which are attributed first."""
QUERIES_SECONDS = 120.0
"""Limit of the time that finding a cluster's oldest hour may take."""
ANY_HOST = "0.0.0.0"
ANY_ROUTE = ("GET /{proxy+}", "GET /")
DECISIONS = "POST /serve/{proxy+}"
"""Only on the loopback address; see `served_decisions`."""
PRICES_HOUR = 3
"""The UTC hour in which all price lists are fetched, as the template schedules it."""
REVIEW_HOUR = 2
"""The UTC hour in which clusters are reviewed for recommendations, as the template schedules it."""
EXPORT_HOUR = 4
"""The UTC hour in which days are exported, after their last hours and prices have arrived."""
UNKNOWN_ACCOUNT = "unknown"
"""The billing account of exported rows: metrics do not say it."""


class LocalBus(MessageBus):
    """Queues and topic in memory. Messages that are lost with the process are due again at the next schedule."""

    def __init__(self) -> None:
        self.hours: dict[AttributionOrigin, deque[HoursDue | HoursToRestate]] = {
            "schedule": deque(),
            "backfill": deque(),
        }
        self.events: deque[HourPublished | AlertTick] = deque()

    def send_due(self, messages: Sequence[HoursDue | HoursToRestate]) -> None:
        """Queue each message by its origin."""
        for message in messages:
            self.hours[message.origin].append(message)

    def backlog(self, origin: AttributionOrigin) -> int:
        """Return how many messages of an origin wait."""
        return len(self.hours[origin])

    def publish(self, message: HourPublished | AlertTick | UncheckedAlerts) -> None:
        """Queue an event for the alert rules. Alerts of AMP do not come here."""
        if not isinstance(message, UncheckedAlerts):
            self.events.append(message)

    def send_to_dead_letter_queue(self, body: str, reason: str) -> None:
        """Log a message that can never be handled."""
        logger.error("message refused", reason=reason, body=body[:1_000])


class LocalService:
    """Attributes hours, evaluates alerts and answers requests, on one ledger.

    Args:
        table: the ledger's table.
        settings_text: the settings document; it becomes the newest version if it differs from that.
        author: who passes the document.
        clock: returns the current time.
        secret_value: reads a secret that the settings name.
        exports: where days are exported to; None: they are not.
        aws: for AWS's prices, and for what nodes without labels are; None: nothing asks AWS.
        doctor: answers the report of `gpucost doctor`; None: nothing does.

    Raises:
        SettingsError: the document is invalid.
    """

    def __init__(
        self,
        table: SqliteTable,
        settings_text: str,
        *,
        author: str,
        clock: Callable[[], datetime],
        secret_value: Callable[[str], str],
        exports: ExportFolder | None = None,
        aws: AwsAccess | None = None,
        doctor: ServedDoctor | None = None,
    ) -> None:
        self._clock = clock
        self._aws = aws
        self._bus = LocalBus()
        self._exports = exports
        self._container = Container(
            Environment(table="local", billing_account=UNKNOWN_ACCOUNT, price_sources="spot,on-demand,shapes"),
            clock=clock,
            client=aws.clients if aws else None,
            metrics_reader=self._metrics_reader,
            table=table,
            bus=self._bus,
            notifiers=_without_email(secret_value),
            secrets=SimpleNamespace(value=secret_value),
        )
        if exports:
            self._container.export_bucket = exports  # in place of the S3 bucket
        store: SettingsDocumentStore = self._container.settings_store
        history = store.history()
        if not history or history[0].text != settings_text:
            store.push(settings_text, author=author, now=clock())
        self.clusters = [cluster.name for cluster in store.current().settings.clusters]
        self.activity = ""
        """What is still going on, for the top of the page; "" for nothing."""
        self._fresh_clusters = FreshClusters(self._container, clock, aws)
        self._documents = {"/serve/so-far": self._fresh_clusters.document}
        if doctor:
            self._documents["/serve/doctor"] = doctor.document
        self._app = build_app(self._container.api_services, PAGE_FOLDER)
        add_decision_routes(self._app, self._container, author)
        self._takes_decisions = False
        self._app_lock = Lock()
        self._priced: datetime | None = None
        self._reviewed: datetime | None = None
        self._exported: datetime | None = None

    @property
    def settings_version(self) -> int:
        """The version of the settings in force."""
        return self._container.settings_store.current().version

    # ------------------------------------------------------------ hours

    def attribute_newest(self, hours: int = FIRST_HOURS) -> Iterator[tuple[str, datetime]]:
        """Attribute the newest hours that have no figures, the newest one first; yield cluster and hour of each.

        The newest one shows which nodes there are, whose prices the others need.
        """
        end = floor_hour(self._clock())
        for cluster in self.clusters:
            yield from self._attribute(cluster, end - HOUR, 1)
        self.refresh_prices()
        for cluster in self.clusters:
            yield from self._attribute(cluster, end - hours * HOUR, hours - 1)

    def attribute_earlier(self, oldest: Mapping[str, datetime]) -> Iterator[tuple[str, datetime]]:
        """Attribute the hours before the newest ones, back to the oldest hour of each cluster, day by day."""
        end = floor_hour(self._clock()) - FIRST_HOURS * HOUR
        while any(start < end for start in oldest.values()):
            for cluster, start in oldest.items():
                first = max(start, end - MAX_HOURS_PER_MESSAGE * HOUR)
                if first < end:
                    yield from self._attribute(cluster, first, (end - first) // HOUR)
            end -= MAX_HOURS_PER_MESSAGE * HOUR

    def so_far(self) -> Mapping[str, SoFar | SourceError]:
        """Return figures of the time so far of each cluster without an hour with figures, or why they are unknown."""
        return self._fresh_clusters.read()

    def partial_hours(self) -> Sequence[str]:
        """Say of how many minutes the figures of recent hours are in which the samples of a Prometheus begin."""
        return self._fresh_clusters.partial_hours()

    def refresh_prices(self) -> None:
        """Fetch AWS's prices of the nodes in use, all of them daily, and rate hours again whose prices have changed.

        Without AWS credentials, nothing.
        """
        pricing = self._container.settings_store.current().settings.pricing
        if self._aws is None or FETCHED_SOURCES.isdisjoint(pricing.ordered_sources) or self._aws.clients is None:
            return
        now = self._clock()
        is_daily = _is_due(self._priced, now, PRICES_HOUR)
        result = self._container.prices_service.refresh(PricesDue(new_only=not is_daily))
        if is_daily:
            self._priced = now
        for failure in result.failures if result else ():
            self._aws.warn(failure)
        self._container.repricing_service.send_hours_to_restate(now, f"prices-{now:%Y-%m-%dT%H:%M}")
        self.deliver()

    def run_schedule(self) -> None:
        """Do what the schedules do on AWS: fetch prices, send due hours, attribute them, evaluate alerts.

        Review and export daily.

        Raises:
            SourceError: metrics could not be read, or a day could not be exported. The next run tries again.
        """
        self.refresh_prices()
        now = self._clock()
        self._container.dispatch_service.dispatch(ScheduledTick(scheduled_time=now), f"tick-{now:%Y-%m-%dT%H:%M}")
        self.deliver()
        if _is_due(self._reviewed, now, REVIEW_HOUR):
            self._reviewed = now
            self._container.review_service.review_clusters(RecommendationsDue(scheduled_time=now), lambda: 300.0)
        if self._exports and _is_due(self._exported, now, EXPORT_HOUR):
            result = self._container.export_service.export(ExportDue(scheduled_time=now), lambda: math.inf)
            if result and result.failures:
                raise SourceError("; ".join(result.failures))
            self._exported = now

    def deliver(self) -> None:
        """Handle all messages that wait."""
        while True:
            queue = next((queue for queue in self._bus.hours.values() if queue), None)
            if queue is None:
                break
            self._handle(queue.popleft())
        while self._bus.events:
            self._alert(self._bus.events.popleft())

    def oldest_hours(self, limit: datetime) -> dict[str, datetime]:
        """Return the first hour since `limit` from which on each cluster has metrics.

        Raises:
            SourceError: a Prometheus did not answer.
        """
        secret_value = self._container.secrets.value
        return {
            cluster.name: oldest_hour(
                cluster, connect(cluster, Deadline(QUERIES_SECONDS), secret_value=secret_value), self._clock(), limit
            )
            for cluster in self._container.settings_store.current().settings.clusters
        }

    def manifest(self, cluster: str, hour: datetime) -> Manifest | None:
        """Return the current version of an hour."""
        return self._container.ledger.manifest(cluster, hour)

    def _attribute(self, cluster: str, first: datetime, count: int) -> Iterator[tuple[str, datetime]]:
        ledger = self._container.ledger
        published = {manifest.hour for manifest in ledger.manifests(cluster, first, first + count * HOUR)}
        due = [hour for hour in (first + number * HOUR for number in range(count)) if hour not in published]
        if due:
            self._handle(
                HoursDue(
                    cluster=cluster,
                    first_hour=due[0],
                    hours=(due[-1] - due[0]) // HOUR + 1,
                    settings_version=self.settings_version,
                    origin="backfill",
                    correlation_id=f"serve-{cluster}-{due[0]:%Y-%m-%dT%H}",
                )
            )
        yield from ((cluster, hour) for hour in reversed(due))

    def _metrics_reader(
        self, cluster: ClusterSettings, settings: CoreSettings, deadline: Deadline | None
    ) -> PrometheusReader:
        return metrics_reader(
            cluster,
            settings,
            deadline,
            clock=self._clock,
            secret_value=self._container.secrets.value,
            instances=self._aws.instances if self._aws else None,
        )

    def _handle(self, message: HoursDue | HoursToRestate) -> None:
        try:
            if isinstance(message, HoursDue):
                self._container.attribute_service.attribute(message)
            else:
                self._container.restate_service.restate(message)
        except (InvalidInputError, NotFoundError) as error:
            self._bus.send_to_dead_letter_queue(message.model_dump_json(), str(error))

    def _alert(self, message: HourPublished | AlertTick) -> None:
        alerts = self._container.alert_service
        try:
            if isinstance(message, HourPublished):
                alerts.handle_hour_published(message)
            else:
                alerts.handle_tick(message)
        except SourceError as error:  # the next hour tries again
            logger.warning("alerts could not be delivered", reason=str(error))

    # ------------------------------------------------------------ HTTP

    @contextmanager
    def serving(self, port: int, host: str = HOST) -> Iterator[str]:
        """Answer HTTP in the background, and yield the address for this machine.

        Raises:
            GpuCostError: the port is taken, or the host is no address of this machine.
        """
        listener = listen(port, host)
        self._takes_decisions = host == HOST
        with serving_api(self._answer, (*ANY_ROUTE, DECISIONS) if self._takes_decisions else ANY_ROUTE, listener):
            reached = HOST if host == ANY_HOST else host
            yield f"http://{reached}:{listener.getsockname()[1]}"

    def _answer(self, event: Mapping[str, Any]) -> dict[str, Any]:
        if document := self._documents.get(event["rawPath"]):
            headers = {"Content-Type": JSON_CONTENT_TYPE, **SECURITY_HEADERS}
            return {"statusCode": HTTPStatus.OK, "headers": headers, "body": dumps(document())}
        with self._app_lock:  # Powertools keeps the current event in the app
            answer = handle_event(self._app, event, LambdaContext("api"))  # type: ignore[arg-type]
        if event["rawPath"] == "/config.json":
            notice = " ".join(filter(None, (self.activity, self._fresh_clusters.notice)))
            more = {"serve": True, "decisions": self._takes_decisions, **({"notice": notice} if notice else {})}
            answer["body"] = dumps({**json.loads(answer["body"]), **more})
        return answer


def _is_due(last: datetime | None, now: datetime, hour: int) -> bool:
    """Whether a daily task is due: when the process starts, and then in its hour."""
    return last is None or (now.hour >= hour and now.date() > last.date())


def _without_email(secret_value: Callable[[str], str]) -> Callable[[SettingsDocument], Mapping[str, Notifier]]:
    """Make the notifiers of the settings' receivers. Email needs SNS: its receivers are reported as failed."""

    def client(service: str) -> Any:
        raise SourceError(f"{service} is only available on AWS: deploy gpucost to notify by email")

    def notifiers(settings: SettingsDocument) -> Mapping[str, Notifier]:
        return make_notifiers(settings, email_topic_arn="", public_url="", client=client, secret_value=secret_value)

    return notifiers


def wait_for_schedule(clock: Callable[[], datetime], sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until five minutes past the next hour, when the last hour's samples have arrived."""
    due = floor_hour(clock()) + HOUR + timedelta(minutes=5)
    while (remaining := (due - clock()).total_seconds()) > 0:
        sleep(min(remaining, 60.0))
