"""The handlers of the deployed functions in one process, on DynamoDB Local and moto, invoked as by AWS."""

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from msgspec import structs

from gpucost.container import Container
from gpucost.core.errors import SourceError
from gpucost.core.hours import DAY, HOUR, floor_day, format_timestamp
from gpucost.core.ledger import Limits
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.storage import DynamoAlertStateStore
from gpucost.runtime.messages import HourPublished, MessageBus, read_alert_input
from gpucost.runtime.process import Environment
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost.settings_document import SettingsDocumentStore
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.client import PrometheusClient, QueryResponse
from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import client_environment, local_client
from gpucost_devstack.dynamodb_local import create_table
from tests.chaos.external_calls import ExternalCalls, KilledError
from tests.chaos.script import UNUSED_URL, ScriptedReader, document
from tests.enforced_permissions import enforcing

RECEIVES = 4
"""`maxReceiveCount` of the template's queues."""
TRIES = 3
"""An asynchronous invocation and its two retries."""
VISIBILITY = timedelta(minutes=30)
RETRY = timedelta(seconds=61)
Readers = Callable[[ClusterSettings, CoreSettings], Any]


class Context:
    """Lambda's context object."""

    function_name = "chaos"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:chaos"
    aws_request_id = "1"

    def get_remaining_time_in_millis(self) -> int:
        """The time at the start of an invocation."""
        return 300_000


class NoLimits:
    """A reader of limits for clusters without quotas and without Karpenter."""

    def read(self, _hours: Sequence[datetime]) -> list[Limits]:
        return []


@dataclass
class Endpoints:
    """URLs of the real services."""

    dynamodb: str
    aws: str


@dataclass
class SavedState:
    """The saved state of a deployment."""

    now: datetime
    items: list[Any]


@dataclass
class SimulatedDeployment:
    """A simulated deployment, from its first settings push on.

    Attributes:
        first: the first hour.
        clusters: names of the clusters, see `script`.
        deliveries: how often each message is delivered.
        skew: offset of the functions' clock.
        prometheus: URL of a real Prometheus for every cluster. If empty, metrics are scripted.
        external_calls: counts every external call of the functions.
        container_class: composes the functions' parts.
        received: messages that reached the alert function.
        notified: sent notifications, including repetitions.
        dead: bodies of dead letters.

    """

    endpoints: Endpoints
    first: datetime
    clusters: tuple[str, ...] = ("east", "west")
    external_calls: ExternalCalls = field(default_factory=ExternalCalls)
    readers: Readers | None = None
    deliveries: int = 1
    skew: timedelta = timedelta(0)
    prometheus: str = ""
    received: list[HourPublished] = field(default_factory=list)
    notified: list[Notification] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    receives: dict[str, int] = field(default_factory=dict)
    container_class: type[Container] = Container

    def __post_init__(self) -> None:
        self.now = self.first
        self.table = f"chaos-{uuid4()}"
        self.dynamodb = local_client("dynamodb", self.endpoints.dynamodb)
        create_table(self.dynamodb, self.table)
        self.sqs, self.sns = (local_client(name, self.endpoints.aws) for name in ("sqs", "sns"))
        self.queues = {name: self._queue(name) for name in ("hours", "backfill", "dead", "events")}
        self.topic = self.sns.create_topic(Name=self.table)["TopicArn"]
        arn = self.sqs.get_queue_attributes(QueueUrl=self.queues["events"], AttributeNames=["QueueArn"])["Attributes"]
        self.sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn["QueueArn"])
        self._running = ExitStack()
        self.enforced = self._running.enter_context(
            enforcing(self.endpoints.dynamodb, self.endpoints.aws, physical=self._physical())
        )
        self.clients = self.enforced.administrator("dynamodb", "sqs", "sns")
        self.ledger = Ledger(DynamoDBTable(self.dynamodb, self.table))
        self.rollups = RollupStore(DynamoDBTable(self.dynamodb, self.table))
        self.push(document(self.clusters, self.prometheus or UNUSED_URL))

    def _queue(self, name: str) -> str:
        """Create a queue without visibility timeout. The timeout is added to the clock instead."""
        answer = self.sqs.create_queue(QueueName=f"{name}-{self.table}", Attributes={"VisibilityTimeout": "0"})
        return str(answer["QueueUrl"])

    def _physical(self) -> dict[str, str]:
        """Queue URLs and topic ARN by their names in the template."""
        return {
            "HoursQueue": self.queues["hours"],
            "BackfillQueue": self.queues["backfill"],
            "DeadLetterQueue": self.queues["dead"],
            "InternalEventsTopic": self.topic,
        }

    @contextmanager
    def acting_as(self, handler: Callable[..., Any]) -> Iterator[None]:
        """Give the clients exactly the permissions of a handler's function."""
        _, name, _ = handler.__module__.split(".")
        access_key = self.enforced.access_key(f"{name.title()}Function")
        credentials_of_clients = [client._request_signer._credentials for client in self.clients.values()]
        before = [client_credentials.access_key for client_credentials in credentials_of_clients]
        for client_credentials in credentials_of_clients:
            client_credentials.access_key = access_key
        try:
            yield
        finally:  # another function may be in the middle of an invocation
            for client_credentials, previous in zip(credentials_of_clients, before, strict=True):
                client_credentials.access_key = previous

    def push(self, text: str) -> None:
        """Push a settings document."""
        store = SettingsDocumentStore(DynamoDBTable(self.dynamodb, self.table), clock=lambda: self.now)
        store.push(text, author="chaos", now=self.now)

    def save(self) -> "SavedState":
        """Save the state. All queues must be empty."""
        return SavedState(self.now, self.dynamodb.scan(TableName=self.table)["Items"])

    def restore(self, saved: "SavedState") -> None:
        """Restore a saved state in a new table, without messages or notifications."""
        self.dynamodb.delete_table(TableName=self.table)
        self.table = f"chaos-{uuid4()}"
        create_table(self.dynamodb, self.table)
        self.ledger = Ledger(DynamoDBTable(self.dynamodb, self.table))
        self.rollups = RollupStore(DynamoDBTable(self.dynamodb, self.table))
        DynamoDBTable(self.dynamodb, self.table).put_all(saved.items)
        self.now, self.external_calls = saved.now, ExternalCalls()
        for heap in (self.received, self.notified, self.dead):
            heap.clear()

    def close(self) -> None:
        """Delete the table, queues and topic."""
        self.dynamodb.delete_table(TableName=self.table)
        for url in self.queues.values():
            self.sqs.delete_queue(QueueUrl=url)
        self.sns.delete_topic(TopicArn=self.topic)
        self._running.close()

    # ------------------------------------------------------------ invocations as by AWS

    def run(self, *hours: int, fired: int = 1) -> None:
        """Fire the schedule after each hour, and deliver all resulting messages."""
        with self.active():
            for number in hours:
                for _ in range(fired):
                    self.tick(number)
                self.drain()

    def tick(self, number: int) -> None:
        """Fire the schedule for an hour by its number. Lambda retries a failed function."""
        from functions.dispatch import app

        scheduled = self.first + HOUR * (number + 1) + timedelta(minutes=5)
        self.now = max(self.now, scheduled)
        event = {"version": 1, "scheduled_time": format_timestamp(scheduled)}
        for _ in range(TRIES):
            if self._succeeds(app.handler, event):
                return
            self.now += RETRY
        self.dead.append(json.dumps(event))

    def drain(self) -> None:
        """Deliver messages until none is waiting."""
        while self._attribute("hours") or self._attribute("backfill") or self._alert():
            pass

    def take(self, queue: str) -> list[dict[str, Any]]:
        """Take all waiting messages, to deliver them in another order."""
        messages = []
        while (message := self._receive(queue)) is not None:
            self._delete(queue, message)
            messages.append(message)
        return messages

    def deliver(self, queue: str, messages: list[dict[str, Any]]) -> None:
        """Deliver messages that were taken."""
        for message in messages:
            if queue == "events":
                self._alert(message)
            else:
                self._attribute(queue, message)

    def _attribute(self, queue: str, message: dict[str, Any] | None = None) -> bool:
        from functions.attribute import app

        message = message or self._receive(queue)
        if message is None:
            return False
        for _ in range(self.deliveries - 1):
            self.receives[message["MessageId"]] = 1
            self._succeeds(app.handler, {"Records": [self._record(message, queue)]})
        self.receives[message["MessageId"]] = self.receives.get(message["MessageId"], 0) + 1
        answer = self._succeeds(app.handler, {"Records": [self._record(message, queue)]})
        if answer and not answer["batchItemFailures"]:
            self._delete(queue, message)
            return True
        self.now += VISIBILITY
        if self.receives[message["MessageId"]] >= RECEIVES:
            self.dead.append(message["Body"])
            self._delete(queue, message)
        return True

    def _alert(self, message: dict[str, Any] | None = None) -> bool:
        from functions.alert import app

        message = message or self._receive("events")
        if message is None:
            return False
        envelope = json.loads(message["Body"])
        read = read_alert_input(envelope["Message"], self.now)
        if isinstance(read, HourPublished):
            self.received.append(read)
        for _ in range(self.deliveries - 1):
            self._succeeds(app.handler, {"Records": [{"Sns": envelope}]})
        for _ in range(TRIES):
            if self._succeeds(app.handler, {"Records": [{"Sns": envelope}]}) is not None:
                break
            self.now += RETRY
        else:
            self.dead.append(envelope["Message"])
        self._delete("events", message)
        return True

    def _succeeds(self, handler: Callable[..., Any], event: dict[str, Any]) -> Any:
        """A handler's response ({} for none). None if it raised or was killed, and its environment is replaced."""
        self.external_calls.begin()
        try:
            with contextlib.redirect_stdout(io.StringIO()), self.acting_as(handler):
                return handler(event, Context(), container=self.container) or {}
        except KilledError:
            self.start_execution_environment()
        except Exception as error:
            if os.environ.get("CHAOS_DEBUG"):
                raise
            self.last_error = error
            self.start_execution_environment()
        return None

    def _receive(self, queue: str) -> dict[str, Any] | None:
        answer = self.sqs.receive_message(QueueUrl=self.queues[queue], MaxNumberOfMessages=1, AttributeNames=["All"])
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        return messages[0] if messages else None

    def _delete(self, queue: str, message: dict[str, Any]) -> None:
        self.sqs.delete_message(QueueUrl=self.queues[queue], ReceiptHandle=message["ReceiptHandle"])

    def _record(self, message: dict[str, Any], queue: str) -> dict[str, Any]:
        count = {"ApproximateReceiveCount": str(self.receives[message["MessageId"]])}
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": {**message.get("Attributes", {}), **count},
            "messageAttributes": {},
            "md5OfBody": message["MD5OfBody"],
            "eventSource": "aws:sqs",
            "eventSourceARN": f"arn:aws:sqs:eu-west-1:123456789012:{queue}",
            "awsRegion": "eu-west-1",
        }

    # ------------------------------------------------------------ the functions' surroundings

    @contextmanager
    def active(self) -> Iterator[None]:
        """Connect the functions to this deployment: environment, clock, clients, metrics and notifier."""
        variables = {"POWERTOOLS_METRICS_DISABLED": "true", **client_environment(self.endpoints.aws)}
        with patch.dict(os.environ, variables):
            self.start_execution_environment()
            yield

    def bus(self, bus_class: type[MessageBus], client: Callable[[str], Any]) -> MessageBus:
        """A message bus of this deployment's queues and topic."""
        return bus_class(
            hours_queue_url=self.queues["hours"],
            backfill_queue_url=self.queues["backfill"],
            dead_letter_queue_url=self.queues["dead"],
            events_topic_arn=self.topic,
            client=client,
        )

    def start_execution_environment(self) -> None:
        """Discard a function's memory, as Lambda does after a failure."""
        environment = Environment(
            table=self.table,
            hours_queue_url=self.queues["hours"],
            backfill_queue_url=self.queues["backfill"],
            dead_letter_queue_url=self.queues["dead"],
            events_topic_arn=self.topic,
            email_topic_arn=self.topic,
        )
        clients = {name: self.external_calls.wrap(client) for name, client in self.clients.items()}
        person = RecordingNotifier(self.external_calls.wrap(self))
        metrics = self._real_metrics() if self.prometheus else self._scripted_metrics()
        self.container = self.container_class(
            environment,
            clock=lambda: self.now + self.skew,
            client=lambda service: clients[service],
            notifiers=lambda _settings: {"email": person},
            **metrics,
        )

    def _scripted_reader(self, cluster: ClusterSettings, settings: CoreSettings, _deadline: object = None) -> Any:
        if self.readers is not None:
            return self.readers(cluster, settings)
        return self.external_calls.wrap(ScriptedReader(cluster.name, self.first, lambda: self.now))

    def _scripted_metrics(self) -> dict[str, Any]:
        return {"metrics_reader": self._scripted_reader, "limits_reader": _no_limits}

    def _real_metrics(self) -> dict[str, Any]:
        """Readers whose every query counts as an external call."""
        external_calls = self.external_calls

        class CountedClient(PrometheusClient):
            def _send_query(self, path: str, form: Mapping[str, str]) -> QueryResponse:
                send = super()._send_query
                response: QueryResponse = external_calls.call("ask", lambda: send(path, form), {})
                return response

        return {
            "metrics_reader": partial(metrics_reader, make_client=CountedClient),
            "limits_reader": partial(NodePoolLimitsReader, client=CountedClient),
        }

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        """Put ten notifications into a message (`Notifier`)."""
        return min(len(notifications), 10)

    def send(self, notifications: Sequence[Notification]) -> None:
        """Send notifications (`Notifier`)."""
        self.notified += notifications

    # ------------------------------------------------------------ visible state

    def visible_state(self) -> dict[str, Any]:
        """All figures and alert state, without fields that only depend on the time of writing."""
        state: dict[str, Any] = {}
        for cluster in self.clusters:
            try:
                state |= self._state_of(cluster)
            except SourceError as error:
                state[f"{cluster} is unreadable"] = str(error)
        return state

    def _state_of(self, cluster: str) -> dict[str, Any]:
        state: dict[str, Any] = {}
        end = self.first + 3 * DAY
        for manifest in self.ledger.manifests(cluster, self.first - DAY, end):
            comparable = structs.replace(
                manifest, published_at=self.first, next_attempt_at=None, summary_expires_at=None
            )
            state[f"{cluster} {manifest.hour:%dT%H} manifest"] = comparable
            lines = self.ledger.lines(cluster, manifest.hour)
            state[f"{cluster} {manifest.hour:%dT%H} lines"] = sorted(lines, key=lambda line: line.uid)
        for summary in self.ledger.summaries(cluster, self.first - DAY, end):
            state[f"{cluster} {summary.start:%dT%H} summary"] = summary.totals, summary.costs
        for day in self.rollups.days(cluster, floor_day(self.first), end):
            state[f"{cluster} {day.start:%d} day"] = day.totals, day.costs
        for day_start, facts in self.rollups.facts(cluster, floor_day(self.first), end):
            state[f"{cluster} {day_start:%d} facts"] = facts
        for manifest, costs in self.rollups.unit_hours(cluster, "research", self.first - DAY, end):
            state[f"{cluster} {manifest.hour:%dT%H} unit"] = costs
        memory = DynamoAlertStateStore(DynamoDBTable(self.dynamodb, self.table)).load(cluster)
        state[f"{cluster} alert cursor"] = replace(memory.cursor, version=0)
        for group in memory.groups:
            state[f"{cluster} alert {group.owner}"] = replace(group, version=0, delivery_lease_until=None)
        return state

    def messages(self) -> set[tuple[str, datetime, int]]:
        """Distinct messages that reached the alert function."""
        return {(message.cluster, message.hour, message.record_version) for message in self.received}

    def notifications(self) -> set[str]:
        """IDs of distinct notifications."""
        return {notification.id for notification in self.notified}


class RecordingNotifier:
    """A notifier whose sends count as external calls."""

    needs_resend = False

    def __init__(self, outside: Any) -> None:
        self._outside = outside

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        """Put ten notifications into a message (`Notifier`)."""
        return min(len(notifications), 10)

    def send(self, notifications: Sequence[Notification]) -> None:
        """Send notifications (`Notifier`)."""
        self._outside.send(notifications=notifications)


def _no_limits(_cluster: ClusterSettings, _deadline: object = None) -> NoLimits:
    return NoLimits()
