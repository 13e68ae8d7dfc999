"""With hundreds of clusters in several accounts and regions, a failing cluster delays only itself."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.pipeline.attribute import AttributeService
from gpucost.pipeline.dispatch import DispatchService
from gpucost.pipeline.pricing import Pricer
from gpucost.runtime.aws import AwsClients
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.messages import AlertTick, HoursDue, MessageBus, ScheduledTick, read_message
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost.settings_document import SettingsDocumentStore, parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.reader import PrometheusReader
from gpucost.storage.bill_store import BillStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.price_book import PriceStore
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import client_environment, local_client, running_aws
from tests.chaos.script import ScriptedReader
from tests.conftest import DynamoTable
from tests.prometheus_clients import client_without_waits
from tests.recording_server import GOOD, answering

CLUSTERS = 300
NOW = floor_hour(datetime.now(UTC)) + timedelta(minutes=5)
NEWEST = NOW.replace(minute=0) - HOUR
UNREAD = {7, 150, 299}
"""Clusters whose partition cannot be read when the schedule fires."""
AWAY, NO_ROLE = 20, 21
DENIED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>AccessDenied</Code><Message>User: me is not authorized to perform: sts:AssumeRole</Message></Error>
<RequestId>1</RequestId></ErrorResponse>"""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with running_aws() as address:
        for name, value in client_environment(address).items():
            monkeypatch.setenv(name, value)
        yield address


def name(number: int) -> str:
    return f"cluster-{number:03d}"


def document() -> str:
    clusters = [
        {
            "name": name(n),
            "prometheus": {
                "url": "http://127.0.0.1:9",
                "auth": "sigv4",
                "region": "eu-central-1",
                "role_arn": f"arn:aws:iam::{100_000_000_000 + n}:role/gpucost-query-metrics",
            },
        }
        for n in range(CLUSTERS)
    ]
    return json.dumps({"clusters": clusters, "pricing": {"source": "constant", "gpu_hourly_usd": 12}})


class FailingLedger(Ledger):
    """The real ledger, in which reads of some clusters fail."""

    def manifests(self, cluster: str, start: datetime, end: datetime) -> Any:
        if int(cluster[-3:]) in UNREAD:
            raise SourceError("the ledger's table failed: query items: ThrottlingException")
        return super().manifests(cluster, start, end)


@pytest.mark.nightly
def test_failing_clusters_delay_none_of_three_hundred_others(
    endpoint: str, table: DynamoTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqs, sns = local_client("sqs", endpoint), local_client("sns", endpoint)
    queues = {
        queue: sqs.create_queue(QueueName=f"{queue}-{table.name}")["QueueUrl"] for queue in ("hours", "dead", "events")
    }
    topic = sns.create_topic(Name=table.name)["TopicArn"]
    arn = sqs.get_queue_attributes(QueueUrl=queues["events"], AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    bus = MessageBus(
        hours_queue_url=queues["hours"],
        backfill_queue_url=queues["hours"],
        dead_letter_queue_url=queues["dead"],
        events_topic_arn=topic,
        client=AwsClients(),
    )
    store = SettingsDocumentStore(DynamoDBTable(table.client, table.name), clock=lambda: NOW)
    store.push(document(), author="me", now=NOW)
    ledger = FailingLedger(DynamoDBTable(*table))
    result = DispatchService(store, ledger, ledger.versions, bus).dispatch(ScheduledTick(scheduled_time=NOW), "why")
    assert result is not None
    assert {failure.split(":")[0] for failure in result.failures} == {name(n) for n in UNREAD}
    assert result.hours_sent == CLUSTERS - len(UNREAD)
    (tick,) = _taken(sqs, queues["events"])
    assert len(read_message(AlertTick, json.loads(tick)["Message"], NOW).clusters) == result.hours_sent, (
        "a single message has all hours"
    )
    due = {
        message.cluster: message
        for message in (read_message(HoursDue, body, NOW) for body in _taken(sqs, queues["hours"]))
    }
    assert set(due) == {name(n) for n in range(CLUSTERS)} - {name(n) for n in UNREAD}

    def reader(cluster: ClusterSettings, settings: CoreSettings, _deadline: Deadline | None = None) -> PrometheusReader:
        if cluster.name in {name(AWAY), name(NO_ROLE)}:
            return metrics_reader(
                cluster, settings, make_client=client_without_waits
            )  # no server listens at its address
        return ScriptedReader(cluster.name, NEWEST, lambda: NOW)

    real, rollups = (
        Ledger(DynamoDBTable(table.client, table.name)),
        RollupStore(DynamoDBTable(table.client, table.name)),
    )
    bills = BillStore(DynamoDBTable(table.client, table.name), clock=lambda: NOW)
    pricer = Pricer(PriceStore(DynamoDBTable(table.client, table.name)), bills)
    attribute = AttributeService(store, real, rollups, reader, bus, pricer=pricer, clock=lambda: NOW)
    around = range(AWAY - 2, AWAY + 4)
    with answering((403, DENIED, {"Content-Type": "text/xml"})) as refusing:
        for n in around:
            with monkeypatch.context() as patched:
                if n == NO_ROLE:
                    patched.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{refusing.server_port}")
                attribute.attribute(due[name(n)])
    manifests = {n: real.manifest(name(n), NEWEST) for n in around}
    assert {n: manifest and manifest.status for n, manifest in manifests.items()} == {
        18: "complete",
        19: "complete",
        AWAY: "incomplete",
        NO_ROLE: "incomplete",
        22: "complete",
        23: "complete",
    }
    for n, why in ((AWAY, "could not be reached"), (NO_ROLE, "is not authorized to perform: sts:AssumeRole")):
        manifest = manifests[n]
        assert manifest is not None
        assert why in manifest.notes[0]
    assert list(_taken(sqs, queues["dead"])) == [], "neither is a bug"


def _taken(sqs: Any, queue: str) -> Iterator[str]:
    while received := sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
        yield from (message["Body"] for message in received)


def test_workspaces_of_other_accounts_and_regions_are_queried_with_their_roles(endpoint: str) -> None:
    queried: dict[str, tuple[str, str]] = {}
    with answering((200, GOOD, {})) as server:
        for account, region in (("111122223333", "eu-central-1"), ("444455556666", "us-east-1")):
            prometheus = {
                "url": f"http://127.0.0.1:{server.server_port}",
                "auth": "sigv4",
                "region": region,
                "role_arn": f"arn:aws:iam::{account}:role/gpucost-query-metrics",
                "external_id": "shared",
            }
            settings = parse_settings(
                json.dumps(
                    {
                        "clusters": [{"name": "c", "prometheus": prometheus}],
                        "pricing": {"source": "constant", "gpu_hourly_usd": 1},
                    }
                )
            )
            client = metrics_reader(settings.clusters[0], settings)._metrics._client._client
            client.query_range("up", NEWEST, NEWEST)
            _, headers, _ = server.requests[-1]
            scope = headers["Authorization"].split("Credential=")[1].split(",")[0].split("/")
            assert headers["x-amz-security-token"]
            queried[account] = scope[0], scope[2]
    assert {account: region for account, (_, region) in queried.items()} == {
        "111122223333": "eu-central-1",
        "444455556666": "us-east-1",
    }
    for account, (key_id, _) in queried.items():
        as_signed = boto3.client(
            "sts",
            endpoint_url=endpoint,
            region_name="eu-central-1",
            aws_access_key_id=key_id,
            aws_secret_access_key="x",
        )
        caller = as_signed.get_caller_identity()["Arn"]
        assert caller == f"arn:aws:sts::{account}:assumed-role/gpucost-query-metrics/gpucost"
