"""The alert function's real handler with moto over HTTP and a web server as Slack."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest

from functions.alert import app as function
from gpucost.container import Container
from gpucost.core.amounts import Totals
from gpucost.core.errors import SourceError
from gpucost.core.hour_record import Coverage, HourRecord, Line
from gpucost.core.hours import HOUR, format_timestamp
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost_devstack.aws import client_environment, running_aws
from tests.enforced_permissions import enforcing
from tests.records import amount

pytestmark = pytest.mark.tools

HOUR_10 = datetime(2026, 11, 19, 10, tzinfo=UTC)
DOCUMENT = """
clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9090"}}]
pricing: {source: constant, gpu_hourly_usd: 12}
alerts:
  rules: [{rule: waste, waste_usd_per_hour: 10, waste_percent: 50}]
  receivers: [{type: slack, secret: gpucost/slack}, {type: email}]
"""


class Context:
    function_name = "alert"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:alert"
    aws_request_id = "1"


class Deployment:
    """The AWS resources and the Slack server that the function uses."""

    def __init__(self) -> None:
        self.slack: list[str] = []
        self.slack_status = 200
        self.sqs = boto3.client("sqs")
        sns = boto3.client("sns")
        self.table = "ledger"
        self.dynamodb = boto3.client("dynamodb")
        self.dynamodb.create_table(
            TableName=self.table,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        )
        self.dead_letters = self.sqs.create_queue(QueueName="dead-letters")["QueueUrl"]
        self.mailbox = self.sqs.create_queue(QueueName="mailbox")["QueueUrl"]
        self.topic = sns.create_topic(Name="email")["TopicArn"]
        arn = self.sqs.get_queue_attributes(QueueUrl=self.mailbox, AttributeNames=["QueueArn"])["Attributes"][
            "QueueArn"
        ]
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn)

    def read(self, queue: str) -> list[dict[str, Any]]:
        response = self.sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        return [dict(message) for message in response.get("Messages", [])]


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    class Slack(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if around.slack_status == 200:
                around.slack.append(body["text"])
            self.send_response(around.slack_status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    with ExitStack() as running:
        moto = running.enter_context(running_aws())
        for name, value in client_environment(moto).items():
            monkeypatch.setenv(name, value)
        web = running.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Slack))
        thread = threading.Thread(target=web.serve_forever, daemon=True)
        thread.start()
        around = Deployment()
        boto3.client("secretsmanager").create_secret(
            Name="gpucost/slack", SecretString=f"http://127.0.0.1:{web.server_port}/hook"
        )
        monkeypatch.setenv("GPUCOST_TABLE", around.table)
        monkeypatch.setenv("GPUCOST_DEAD_LETTER_QUEUE_URL", around.dead_letters)
        monkeypatch.setenv("GPUCOST_EMAIL_TOPIC_ARN", around.topic)
        monkeypatch.setenv("GPUCOST_ALERTS_TOPIC_ARN", ALERTS)
        physical = {"DeadLetterQueue": around.dead_letters, "EmailTopic": around.topic}
        enforced = running.enter_context(enforcing(moto, moto, physical=physical))
        for name, value in enforced.environment("AlertFunction").items():
            monkeypatch.setenv(name, value)
        yield around
        web.shutdown()
        thread.join()


def publish(deployment: Deployment, hour: datetime, waste: str) -> str:
    """Publish an hour, and return the message that reports it."""
    allocated, wasted = amount(20), amount(waste)
    line = Line(
        business_unit="research",
        namespace="r1",
        workload_kind="",
        workload="",
        pod="p",
        uid="u",
        node="n",
        node_pool="",
        instance_type="",
        capacity_type="",
        zone="",
        gpu_model="",
        resource="nvidia.com/gpu",
        units=1,
        gpu_share=Decimal(1),
        gpu_share_source="whole",
        labels={},
        split_policy="gpu-bears-all",
        allocated_gpu_hours=amount(1),
        effective_gpu_hours=0,
        utilization=Decimal(0),
        utilization_source="pod",
        unmeasured_gpu_hours=0,
        gpu_hourly_usd=Decimal(20),
        price_source="constant",
        allocated_usd=allocated,
        effective_usd=allocated - wasted,
        waste_usd=wasted,
        unmeasured_usd=0,
    )
    record = HourRecord("demo", hour, "complete", Coverage(Decimal(1), None), Totals(line.costs(), None), (line,))
    ledger = Ledger(DynamoDBTable(deployment.dynamodb, deployment.table))
    ledger.publish(record, replacing=None, settings_version=1, now=hour + HOUR)
    return json.dumps(
        {
            "version": 1,
            "kind": "hour-published",
            "cluster": "demo",
            "hour": format_timestamp(hour),
            "status": "complete",
            "record_version": 1,
            "settings_version": 1,
            "origin": "schedule",
            "correlation_id": "c",
        }
    )


def tick() -> str:
    state = {"cluster": "demo", "last_complete_hour": None, "hours_overdue": 0}
    return json.dumps(
        {
            "version": 1,
            "kind": "tick",
            "scheduled_time": "2026-11-19T12:05:00Z",
            "clusters": [state],
            "correlation_id": "c",
        }
    )


EVENTS, ALERTS = (f"arn:aws:sns:eu-central-1:123456789012:{name}" for name in ("InternalEventsTopic", "EventsTopic"))


def deliver(*bodies: str, topic: str = EVENTS) -> None:
    records = [
        {"EventSource": "aws:sns", "EventVersion": "1.0", "Sns": {"TopicArn": topic, "Message": body}}
        for body in bodies
    ]
    function.handler({"Records": records}, Context(), container=Container())  # type: ignore[arg-type]  # a reduced Lambda context


def push_settings(deployment: Deployment) -> None:
    store = SettingsDocumentStore(DynamoDBTable(deployment.dynamodb, deployment.table), clock=lambda: HOUR_10)
    store.push(DOCUMENT, author="test", now=HOUR_10)


def test_alert_reaches_slack_and_email_once_and_resolves_once(deployment: Deployment) -> None:
    push_settings(deployment)
    fired, resolved = publish(deployment, HOUR_10, "15"), publish(deployment, HOUR_10 + HOUR, "1")
    for body in (fired, fired, resolved, fired, resolved, tick()):
        deliver(body)

    assert deployment.slack == [
        "GPU waste alert: research in cluster demo wastes $15.00 per hour, 75.0% of the cost of its GPUs",
        "GPU waste alert resolved: research in cluster demo is below its waste threshold again: $1.00 per hour, "
        "5.0% of the cost of its GPUs",
    ]
    mails = [json.loads(message["Body"])["Subject"] for message in deployment.read(deployment.mailbox)]
    assert sorted(mails) == ["GPU waste alert resolved: research in demo", "GPU waste alert: research in demo"]


def test_failed_receiver_fails_the_invocation_and_is_notified_later(deployment: Deployment) -> None:
    push_settings(deployment)
    deployment.slack_status = 500
    body = publish(deployment, HOUR_10, "15")
    with pytest.raises(SourceError, match="slack:gpucost/slack: not delivered"):
        deliver(body)

    deployment.slack_status = 200
    deliver(tick(), tick())
    assert len(deployment.slack) == 1
    assert len(deployment.read(deployment.mailbox)) == 1


def test_unreadable_message_goes_to_the_dead_letter_queue(deployment: Deployment) -> None:
    push_settings(deployment)
    deliver("{not json", '{"kind": "hour-published", "version": 2}', publish(deployment, HOUR_10, "15"))

    letters = deployment.read(deployment.dead_letters)
    assert [letter["Body"] for letter in letters] == ["{not json", '{"kind": "hour-published", "version": 2}']
    assert "version" in letters[1]["MessageAttributes"]["reason"]["StringValue"]
    assert len(deployment.slack) == 1


def external_alert() -> str:
    labels = {"alertname": "GPUNodePoolNearLimit", "cluster": "demo", "gpucost": "true"}
    alert = {"status": "firing", "labels": labels, "startsAt": "2026-11-19T11:00:00Z"}
    return json.dumps({"kind": "amp-alerts", "alerts": [alert]})


def test_alerts_are_accepted_only_from_their_topic(deployment: Deployment) -> None:
    """An alert manager can publish any text, but only the alerts in it count."""
    store = SettingsDocumentStore(DynamoDBTable(deployment.dynamodb, deployment.table), clock=lambda: HOUR_10)
    store.push(DOCUMENT.replace("rules: [", "rules: [{rule: external}, "), author="test", now=HOUR_10)
    hour = publish(deployment, HOUR_10, "15")
    deliver(hour, tick(), topic=ALERTS)
    deliver(external_alert())
    assert deployment.slack == []
    letters = [
        (letter["Body"], letter["MessageAttributes"]["reason"]["StringValue"])
        for letter in deployment.read(deployment.dead_letters)
    ]
    assert [reason.partition(":")[0] for _, reason in letters] == [
        "not a valid UncheckedAlerts",
        "not a valid UncheckedAlerts",
        "not a valid AlertInput",
    ]
    forged = [json.loads(body) for body, _ in letters[:2]]
    assert [(letter["Type"], letter["TopicArn"], letter["Message"]) for letter in forged] == [
        ("Notification", ALERTS, hour),
        ("Notification", ALERTS, tick()),
    ], "a redrive must see where they came from"

    deliver(external_alert(), topic=ALERTS)
    deliver(hour)
    assert len(deployment.slack) == 2
    assert deployment.read(deployment.dead_letters) == []


def test_without_settings_nothing_is_sent(deployment: Deployment) -> None:
    deliver(publish(deployment, HOUR_10, "15"), tick())

    assert deployment.slack == []
    assert deployment.read(deployment.mailbox) == []
