"""The deployed functions' own handlers in one process, over real DynamoDB and moto, run as AWS runs them."""

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from devstack.aws import credentials, local_client
from devstack.dynamodb_local import create_table
from gpucost.container import Container
from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR, floor_day, format_timestamp
from gpucost.core.limits import Limits
from gpucost.core.rollups import DAY
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.storage.states import DynamoAlertStates
from gpucost.runtime.environment import Environment
from gpucost.runtime.messages import HourClosed, read_alert_input
from gpucost.settings import ClusterSettings, Settings
from gpucost.settings_document import DocumentStore
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import MetricsReader
from gpucost.storage.rollups import RollupStore
from gpucost.storage.table import Table
from tests.chaos.external_calls import KilledError, Outside
from tests.chaos.script import NOBODY, ScriptedReader, document
from tests.enforced import enforcing

RECEIVES = 4
"""`maxReceiveCount` of the template's queues."""
TRIES = 3
"""A first call and the two retries of an asynchronous one."""
VISIBILITY = timedelta(minutes=30)
RETRY = timedelta(seconds=61)
Readers = Callable[[ClusterSettings, Settings], MetricsReader]


class Context:
    """What Lambda tells a handler."""

    function_name = "chaos"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:chaos"
    aws_request_id = "1"

    def get_remaining_time_in_millis(self) -> int:
        """As at the start of an invocation."""
        return 300_000


class NoLimits:
    """Clusters without quotas and without Karpenter: nothing is kept beside their hours."""

    def at_ends(self, _hours: Sequence[datetime]) -> list[Limits]:
        return []


@dataclass
class Endpoints:
    """Addresses of the real parts."""

    dynamodb: str
    aws: str


@dataclass
class Saved:
    """A moment of a world."""

    now: datetime
    items: list[Any]


@dataclass
class World:
    """One deployment, from its first settings push on.

    Attributes:
        first: the first hour that closes.
        clusters: by name, see `script`.
        deliveries: how often each message is delivered.
        skew: of the functions' clock.
        prometheus: address of a real one that every cluster has; scripted metrics where it is empty.
        outside: every call of the functions goes through it.
        heard: messages that reached the alert function.
        told: notifications that reached people, repeats included.
        dead: what ended in dead letters.
    """

    endpoints: Endpoints
    first: datetime
    clusters: tuple[str, ...] = ("east", "west")
    outside: Outside = field(default_factory=Outside)
    readers: Readers | None = None
    deliveries: int = 1
    skew: timedelta = timedelta(0)
    prometheus: str = ""
    heard: list[HourClosed] = field(default_factory=list)
    told: list[Notification] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    receives: dict[str, int] = field(default_factory=dict)

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
        self.ledger = Ledger(self.dynamodb, self.table)
        self.rollups = RollupStore(self.dynamodb, self.table)
        self.push(document(self.clusters, self.prometheus or NOBODY))

    def _queue(self, name: str) -> str:
        """At once visible again: the time that AWS would wait is added to the clock."""
        answer = self.sqs.create_queue(QueueName=f"{name}-{self.table}", Attributes={"VisibilityTimeout": "0"})
        return str(answer["QueueUrl"])

    def _physical(self) -> dict[str, str]:
        """Its queues and topic, by the template's names."""
        return {
            "HoursQueue": self.queues["hours"],
            "BackfillQueue": self.queues["backfill"],
            "DeadLetterQueue": self.queues["dead"],
            "EventsTopic": self.topic,
        }

    @contextmanager
    def acting_as(self, handler: Callable[..., Any]) -> Iterator[None]:
        """Give the clients the permissions of the function that a handler belongs to, and only these."""
        _, name, _ = handler.__module__.split(".")
        access_key = self.enforced.access_key(f"{name.title()}Function")
        credentials_of_clients = [client._request_signer._credentials for client in self.clients.values()]
        before = [one.access_key for one in credentials_of_clients]
        for one in credentials_of_clients:
            one.access_key = access_key
        try:
            yield
        finally:  # another function may be in the middle of a call
            for one, previous in zip(credentials_of_clients, before, strict=True):
                one.access_key = previous

    def push(self, text: str) -> None:
        """Put settings in force."""
        store = DocumentStore(self.dynamodb, self.table, clock=lambda: self.now)
        store.push(text, author="chaos", now=self.now)

    def saved(self) -> "Saved":
        """This moment, to come back to; nothing may wait in a queue."""
        return Saved(self.now, self.dynamodb.scan(TableName=self.table)["Items"])

    def restore(self, saved: "Saved") -> None:
        """Come back to a moment, in a table of its own, with nothing said yet."""
        self.dynamodb.delete_table(TableName=self.table)
        self.table = f"chaos-{uuid4()}"
        create_table(self.dynamodb, self.table)
        self.ledger = Ledger(self.dynamodb, self.table)
        self.rollups = RollupStore(self.dynamodb, self.table)
        Table(self.dynamodb, self.table).put_all(saved.items)
        self.now, self.outside = saved.now, Outside()
        for heap in (self.heard, self.told, self.dead):
            heap.clear()

    def close(self) -> None:
        """Drop what is kept outside this process."""
        self.dynamodb.delete_table(TableName=self.table)
        for url in self.queues.values():
            self.sqs.delete_queue(QueueUrl=url)
        self.sns.delete_topic(TopicArn=self.topic)
        self._running.close()

    # ------------------------------------------------------------ as AWS runs it

    def run(self, *hours: int, fired: int = 1) -> None:
        """Let hours pass, by number: the schedule fires after each, and all that follows from it is delivered."""
        with self.active():
            for number in hours:
                for _ in range(fired):
                    self.tick(number)
                self.drain()

    def tick(self, number: int) -> None:
        """The schedule fires for the hour of that number; Lambda tries again when the function fails."""
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
        """Deliver what waits until nothing does."""
        while self._attribute("hours") or self._attribute("backfill") or self._alert():
            pass

    def take(self, queue: str) -> list[dict[str, Any]]:
        """Everything that waits, to be delivered in another order."""
        found = []
        while (message := self._receive(queue)) is not None:
            self._delete(queue, message)
            found.append(message)
        return found

    def deliver(self, queue: str, messages: list[dict[str, Any]]) -> None:
        """Deliver what was taken."""
        for message in messages:
            if queue == "events":
                self._alert(message)
            else:
                self._attribute(queue, message)

    def _attribute(self, queue: str, taken: dict[str, Any] | None = None) -> bool:
        from functions.attribute import app

        message = taken or self._receive(queue)
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

    def _alert(self, taken: dict[str, Any] | None = None) -> bool:
        from functions.alert import app

        message = taken or self._receive("events")
        if message is None:
            return False
        envelope = json.loads(message["Body"])
        read = read_alert_input(envelope["Message"])
        if isinstance(read, HourClosed):
            self.heard.append(read)
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
        """What a handler answers, {} for nothing, None where it raised or was killed; then its sandbox is gone."""
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
        """The functions find this world: its environment, clock, clients, metrics and people."""
        variables = {"POWERTOOLS_METRICS_DISABLED": "true", **credentials(self.endpoints.aws)}
        with self._real_metrics() if self.prometheus else nullcontext(), patch.dict(os.environ, variables):
            self.start_execution_environment()
            yield

    def start_execution_environment(self) -> None:
        """Lose what a function kept in memory, as Lambda does after a failure."""
        environment = Environment(
            table=self.table,
            hours_queue_url=self.queues["hours"],
            backfill_queue_url=self.queues["backfill"],
            dead_letter_queue_url=self.queues["dead"],
            events_topic_arn=self.topic,
            email_topic_arn=self.topic,
        )
        clients = {name: self.outside.wrap(client) for name, client in self.clients.items()}
        person = Person(self.outside.wrap(self))
        scripted = {} if self.prometheus else {"metrics_reader": self._scripted_reader, "limits_reader": _no_limits}
        self.container = Container(
            environment,
            clock=lambda: self.now + self.skew,
            client=lambda service: clients[service],
            notifiers=lambda _settings: {"email": person},
            **scripted,
        )

    def _scripted_reader(self, cluster: ClusterSettings, settings: Settings, _deadline: object = None) -> Any:
        if self.readers is not None:
            return self.readers(cluster, settings)
        return self.outside.wrap(ScriptedReader(cluster.name, self.first, lambda: self.now))

    @contextmanager
    def _real_metrics(self) -> Iterator[None]:
        """Every single query is a call over the line."""
        ask = PrometheusClient._send_query

        def through(client: PrometheusClient, path: str, form: Mapping[str, str]) -> Any:
            return self.outside.through("ask", lambda: ask(client, path, form), {})

        with patch.object(PrometheusClient, "_send_query", through):
            yield

    def send(self, notifications: Sequence[Notification]) -> None:
        """Fulfils `alert_ports.Notifier`."""
        self.told += notifications

    # ------------------------------------------------------------ what there is to see

    def seen(self) -> dict[str, Any]:
        """Everything that readers see, and what alerting remembers; without what tells only when it was written."""
        found: dict[str, Any] = {}
        for cluster in self.clusters:
            try:
                found |= self._seen_of(cluster)
            except SourceError as error:
                found[f"{cluster} cannot be read"] = str(error)
        return found

    def _seen_of(self, cluster: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        end = self.first + 3 * DAY
        for manifest in self.ledger.manifests(cluster, self.first - DAY, end):
            own = replace(manifest, published_at=self.first, next_attempt_at=None, figures_until=None)
            found[f"{cluster} {manifest.hour:%dT%H} manifest"] = own
            lines = self.ledger.lines(cluster, manifest.hour)
            found[f"{cluster} {manifest.hour:%dT%H} lines"] = sorted(lines, key=lambda line: line.uid)
        for summary in self.ledger.summaries(cluster, self.first - DAY, end):
            found[f"{cluster} {summary.hour:%dT%H} summary"] = summary
        for day in self.rollups.days(cluster, floor_day(self.first), end):
            found[f"{cluster} {day.day:%d} day"] = day.totals, day.units
        for day_start, facts in self.rollups.facts(cluster, floor_day(self.first), end):
            found[f"{cluster} {day_start:%d} facts"] = facts
        for hour in self.rollups.unit_hours(cluster, "research", self.first - DAY, end):
            found[f"{cluster} {hour.manifest.hour:%dT%H} unit"] = hour.costs
        memory = DynamoAlertStates(self.dynamodb, self.table).load(cluster)
        found[f"{cluster} alert cursor"] = replace(memory.cursor, version=0)
        for book in memory.groups:
            found[f"{cluster} alert {book.owner}"] = replace(book, version=0, delivery_lease_until=None)
        return found

    def messages(self) -> set[tuple[str, datetime, int]]:
        """What the alert function heard of, each once."""
        return {(message.cluster, message.hour, message.record_version) for message in self.heard}

    def notifications(self) -> set[str]:
        """What people were told, each once."""
        return {notification.id for notification in self.told}


class Person:
    """Somebody who is told by way of the world's line to the outside."""

    max_batch_size = 10
    needs_resend = False

    def __init__(self, outside: Any) -> None:
        self._outside = outside

    def send(self, notifications: Sequence[Notification]) -> None:
        """Fulfils `alert_ports.Notifier`."""
        self._outside.send(notifications=notifications)


def _no_limits(_cluster: ClusterSettings, _deadline: object = None) -> NoLimits:
    return NoLimits()
