"""Runs a deployment with every option, so that each permission of the template is used.

It is small and artificial: what the functions compute is tested elsewhere. What counts is what they ask AWS for.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests
from samtranslator.yaml_helper import yaml_parse

from gpucost.core.hours import DAY, HOUR, floor_day, floor_hour, format_timestamp
from gpucost.core.pricing.prices import Price
from gpucost.pipeline.dispatch import due_messages
from gpucost.pipeline.restate import PENDING_PERIOD, restate_messages
from gpucost.runtime.messages import AttributionOrigin
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.bill_store import BillStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.price_book import PriceStore
from gpucost_devstack.aws import ACCOUNT, STACK, local_client
from gpucost_devstack.functions import FunctionError
from gpucost_devstack.iam.calls import SECRET_SUFFIX
from gpucost_devstack.iam.gateway import PROTOCOL_HEADER, running_authorizing_proxy
from gpucost_devstack.iam.intrinsics import Resolver
from gpucost_devstack.iam.policies import Policies, Statement, policies_of
from gpucost_devstack.prometheus import running_prometheus
from gpucost_devstack.slack import running_slack
from gpucost_devstack.stack import LocalStack, running_stack
from gpucost_devstack.template import REGION, REPOSITORY
from tests.system.timeline import Timeline

OTHER_ACCOUNT = "210987654321"
QUERY_ROLE = f"arn:aws:iam::{OTHER_ACCOUNT}:role/gpucost-query-metrics"
BILLING_ROLE = f"arn:aws:iam::{OTHER_ACCOUNT}:role/gpucost-query-billing"
EXTERNAL_ID = "gpucost-1"
WORKSPACE = f"arn:aws:aps:{REGION}:{ACCOUNT}:workspace/ws-own"
KEYS = {
    name: f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{name}" for name in ("KmsKeyArn", "SecretsKmsKeyArn", "BillKmsKeyArn")
}
PARAMETERS = {
    **KEYS,
    "AmpWorkspaceArn": WORKSPACE,
    "BillBucket": "bill",
    "BillDatabase": "billing",
    "BillPrices": "true",
    "BillResultsBucket": "bill-results",
    "OnDemandPrices": "true",
    "SpotPrices": "true",
}
METRICS_SECRET, RECEIVER_SECRET = "gpucost/metrics/token", "gpucost/receivers/slack"
DATABASES = {"bill": "billing", "payer": "payer"}
"""By the buckets of the bills: the account's own, and that of the other account."""
NOW = datetime.now(UTC)
FIRST = floor_day(NOW) - timedelta(days=2) - HOUR
"""The first hour with metrics, which two whole days follow."""
CLUSTERS = ("own-workspace", "other-account", "bearer")


@contextmanager
def whole_run(folder: Path) -> Iterator[LocalStack]:
    """Run everything for which the deployment has policies."""
    metrics = folder / "metrics.om"
    metrics.write_text(_timeline().text())
    with ExitStack() as running:
        prometheus = running.enter_context(running_prometheus(metrics))
        slack = running.enter_context(running_slack())
        services = {"pricing": running.enter_context(_price_list())}  # moto has none
        stack = running.enter_context(running_stack(parameters=PARAMETERS, services=services))
        amp = running.enter_context(running_authorizing_proxy(prometheus, stack.authorizer))
        stack.authorizer.add(_other_account())
        stack.authorizer.add(_key_policies())
        token = json.dumps({"url": prometheus, "token": "token"})
        _create_secrets(stack, {METRICS_SECRET: token, RECEIVER_SECRET: slack.url})
        _create_bill(stack)
        document = _settings(prometheus, amp)
        _push(stack, document | _pricing("payer", role_arn=BILLING_ROLE))
        stack.unavailable.add("DispatchFunction")  # it would send all hours of three days, which takes a minute
        _attribute(stack)
        _fire(stack, 3)  # prices, of a bill in another account
        _push(stack, document | _pricing())
        stack.functions["PricesFunction"].restart()  # it would keep the settings for a minute
        _fire(stack, 3)
        _change_prices(stack)
        _dispatch(stack)
        _fire(stack, 2)  # exports
        _restate_and_export_again(stack)
        _fire(stack, 4)  # reviews
        _ask(stack)
        _download(stack)
        _read_secrets_of_others(stack)
        _refuse_messages(stack)
        _fail(stack)
        _publish(stack)
        stack.authorizer.raise_denied()
        assert slack.posts
        yield stack


@contextmanager
def _price_list() -> Iterator[str]:
    """A price list without offers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"FormatVersion": "aws_v1", "PriceList": []}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _timeline() -> Timeline:
    timeline = Timeline(base=FIRST, step=300)
    minutes = (NOW - FIRST) / timedelta(minutes=1)
    labels = {"node_kubernetes_io_instance_type": "g5.xlarge", "topology_kubernetes_io_zone": "eu-central-1a"}
    timeline.up(-65, minutes)
    timeline.node("n1", -65, minutes, capacity={"nvidia_com_gpu": 2}, labels=labels)
    timeline.pod("train", -65, minutes)
    quota = {"namespace": "team", "resourcequota": "gpus", "resource": "requests.nvidia.com/gpu", "type": "hard"}
    timeline.add("kube_resourcequota", -65, minutes, 4, **quota)
    return timeline


def _settings(prometheus: str, amp: str) -> dict[str, Any]:
    same_account, other_account = f"{amp}/workspaces/ws-own", f"{amp}/workspaces/ws-other"
    amp_settings = {"auth": "sigv4", "region": REGION}
    role = {"role_arn": QUERY_ROLE, "external_id": EXTERNAL_ID}
    clusters = (
        {"url": same_account, **amp_settings},
        {"url": other_account, **amp_settings, **role},
        {"url": prometheus, "auth": "bearer", "secret": METRICS_SECRET},
    )
    return {
        "clusters": [
            {"name": name, "prometheus": prometheus} for name, prometheus in zip(CLUSTERS, clusters, strict=True)
        ],
        "business_units": [{"name": "research", "namespaces": ["team"]}],
        "alerts": {
            "rules": [
                {"rule": "unallocated", "usd_per_hour": 0.01, "for_hours": 1},
                {"rule": "idle-workload", "gpus": 1, "utilization_percent": 10, "for_hours": 1},
                {"rule": "data"},
                {"rule": "budget", "monthly_usd": 100},
                {"rule": "spend-change", "percent": 50, "usd": 1},
            ],
            "receivers": [{"type": "slack", "secret": RECEIVER_SECRET, "host": "127.0.0.1"}, {"type": "email"}],
        },
    }


def _pricing(bill: str = "bill", **more: str) -> dict[str, Any]:
    cur = {
        "database": DATABASES[bill],
        "table": "cur",
        "output_location": f"s3://{bill}-results/gpucost/",
        "refresh_days": 1,
        "unused_commitments": [],
        **more,
    }
    return {"pricing": {"sources": ["cur", "spot", "on-demand", "constant"], "gpu_hourly_usd": 2, "cur": cur}}


def _other_account() -> Policies:
    """The documented role for metrics, and a role that reads a bill."""
    template = yaml_parse((REPOSITORY / "cluster" / "aws" / "query-role.yaml").read_text())
    name = QUERY_ROLE.rpartition("/")[2]
    parameters = {
        "RoleName": name,
        "DeploymentAccountId": ACCOUNT,
        "DeploymentStackName": STACK,
        "ExternalId": EXTERNAL_ID,
        "WorkspaceArn": f"arn:aws:aps:{REGION}:{OTHER_ACCOUNT}:workspace/ws-other",
    }
    physical = {"QueryRole": name}
    resolver = Resolver(template, parameters, physical, stack="other", account=OTHER_ACCOUNT, region=REGION)
    trust = {
        "Effect": "Allow",
        "Action": "sts:AssumeRole",
        "Resource": BILLING_ROLE,
        "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
    }
    reads = {"Effect": "Allow", "Action": ["athena:*", "glue:*", "s3:*"], "Resource": "*"}
    billing = (
        Statement(BILLING_ROLE, "billing/trust", trust, is_resource_policy=True),
        Statement(BILLING_ROLE, "billing/reads", reads),
    )
    return policies_of(template, resolver).joined_with(Policies(billing))


def _key_policies() -> Policies:
    """The key policy from docs/how-to/encryption.md. Only roles use the keys of secrets and bills.

    The simulator lacks the condition key of CloudWatch Logs' statement (tests/infra/test_encryption.py).
    """
    (text,) = re.findall(r"```json\n(.*?)```", (REPOSITORY / "docs/how-to/encryption.md").read_text(), re.DOTALL)
    text = text.replace("111122223333", ACCOUNT).replace("gpucost-dev-", f"{STACK}-")
    by_account, by_services, _ = json.loads(text)["Statement"]
    statements = [(KEYS["KmsKeyArn"], by_services), *((key, by_account) for key in KEYS.values())]
    return Policies(
        tuple(
            Statement(key, f"{key}/{body['Sid']}", {**body, "Resource": key}, is_resource_policy=True)
            for key, body in statements
        )
    )


def _create_secrets(stack: LocalStack, values: dict[str, str]) -> None:
    for name, value in values.items():
        local_client("secretsmanager", stack.endpoint).create_secret(Name=name, SecretString=value)
        arn = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{name}{SECRET_SUFFIX}"
        stack.authorizer.keys[arn] = KEYS["SecretsKmsKeyArn"]


def _create_bill(stack: LocalStack) -> None:
    glue = local_client("glue", stack.endpoint)
    for bucket, database in DATABASES.items():
        glue.create_database(DatabaseInput={"Name": database})
        descriptor = {"Location": f"s3://{bucket}/exports/gpucost/data/", "Columns": [{"Name": "a", "Type": "string"}]}
        glue.create_table(DatabaseName=database, TableInput={"Name": "cur", "StorageDescriptor": descriptor})
        for name in (bucket, f"{bucket}-results"):
            constraint: Any = {"LocationConstraint": REGION}
            local_client("s3", stack.endpoint).create_bucket(Bucket=name, CreateBucketConfiguration=constraint)
    stack.authorizer.keys |= {f"arn:aws:s3:::{name}": KEYS["BillKmsKeyArn"] for name in ("bill", "bill-results")}


def _push(stack: LocalStack, document: dict[str, Any]) -> None:
    dynamodb = local_client("dynamodb", stack.dynamodb)
    store = SettingsDocumentStore(DynamoDBTable(dynamodb, stack.outputs["TableName"]), clock=lambda: datetime.now(UTC))
    store.push(json.dumps(document), author="test", now=datetime.now(UTC))


def _fire(stack: LocalStack, hour: int) -> None:
    """Fire the schedules of an hour of yesterday, which is over."""
    stack.fire_schedule(floor_day(NOW) - DAY + HOUR * hour + timedelta(minutes=5))
    stack.deliver_all()


def _attribute(stack: LocalStack) -> None:
    """Attribute the whole days through the backfill queue, and the newest hours through the schedule's queue."""
    hours = [FIRST + HOUR * number for number in (0, 1, 25)]
    for cluster in CLUSTERS:
        for message in due_messages(cluster, hours, settings_version=1, origin="backfill", correlation_id="test"):
            _send(stack, "BackfillQueueUrl", message.model_dump_json())
        last = [floor_hour(NOW) - HOUR]
        for message in due_messages(cluster, last, settings_version=1, origin="schedule", correlation_id="test"):
            _send(stack, "HoursQueueUrl", message.model_dump_json())
    stack.deliver_all()
    in_flight = "ApproximateNumberOfMessagesNotVisible"
    for queue in ("BackfillQueueUrl", "HoursQueueUrl"):
        attributes = local_client("sqs", stack.endpoint).get_queue_attributes(
            QueueUrl=stack.outputs[queue], AttributeNames=[in_flight]
        )["Attributes"]
        assert attributes[in_flight] == "0", f"{queue}: failed messages have not been received again"


def _send(stack: LocalStack, output: str, body: str) -> None:
    local_client("sqs", stack.endpoint).send_message(QueueUrl=stack.outputs[output], MessageBody=body)


def _change_prices(stack: LocalStack) -> None:
    """Record a manual price and a read bill, long enough ago to be settled."""
    table, dynamodb = stack.outputs["TableName"], local_client("dynamodb", stack.dynamodb)
    before = floor_day(NOW) - DAY - 2 * PENDING_PERIOD
    applies_to = {"cluster": CLUSTERS[0]}
    price = Price("override", "node-hour", Decimal(3), applies_to, "USD", FIRST, None, before, "test", "test")
    PriceStore(DynamoDBTable(dynamodb, table)).set_override(price, now=before)
    BillStore(DynamoDBTable(dynamodb, table), clock=lambda: before).record_month(
        FIRST.replace(day=1, hour=0), is_closed=True
    )


def _dispatch(stack: LocalStack) -> None:
    """Run dispatch: queue due hours, settle price changes, and send a tick, without processing the queue."""
    stack.unavailable.clear()
    stack.fire_schedule(floor_day(NOW) - DAY + HOUR * 5 + timedelta(minutes=5))  # its newest hour is not attributed
    for queue in ("HoursQueueUrl", "BackfillQueueUrl"):
        local_client("sqs", stack.endpoint).purge_queue(QueueUrl=stack.outputs[queue])
    stack.deliver_all()
    stack.unavailable.add("DispatchFunction")


def _restate_and_export_again(stack: LocalStack) -> None:
    for message in restate_messages(
        CLUSTERS[0], [FIRST + HOUR], settings_version=2, reason="test", correlation_id="test"
    ):
        _send(stack, "BackfillQueueUrl", message.model_dump_json())
    stack.deliver_all()
    _fire(stack, 2)


def _ask(stack: LocalStack) -> None:
    """Request quotas, which are compared with the lines of their hour."""
    last = floor_hour(NOW)
    period = {"start": format_timestamp(last - HOUR), "end": format_timestamp(last)}
    answer = requests.get(f"{stack.outputs['ApiUrl']}/v1/quotas", period, timeout=60)
    assert answer.json()["rows"], answer.text


def _download(stack: LocalStack) -> None:
    """Use the API's presigned URLs. The bucket refuses them over plain HTTP."""
    period = {"start": f"{FIRST:%Y-%m-%d}", "end": f"{NOW:%Y-%m-%d}"}
    days = requests.get(f"{stack.outputs['ApiUrl']}/v1/exports", period, timeout=60).json()["rows"]
    for address in (days[0]["parquet_url"], days[0]["csv_url"], days[0]["inference_url"]):
        answer = requests.get(address, timeout=60)
        assert answer.status_code == 200, answer.text
        refused = requests.get(address, timeout=60, headers={PROTOCOL_HEADER: "http"})
        assert refused.status_code == 403, refused.text
    exporter = local_client("s3", stack.endpoint, stack.access_keys["ExportFunction"])
    exporter.meta.events.register(
        "before-send.s3", lambda request, **_: request.headers.update({PROTOCOL_HEADER: "http"})
    )
    with pytest.raises(exporter.exceptions.ClientError, match="AccessDenied"):
        exporter.list_objects_v2(Bucket=stack.outputs["ExportBucketName"], Prefix="focus/")
    stack.authorizer.denials.clear()


def _read_secrets_of_others(stack: LocalStack) -> None:
    """Each function may read only the secrets for its own connections."""
    for function, secret in (
        ("AttributeFunction", RECEIVER_SECRET),
        ("RecommendFunction", RECEIVER_SECRET),
        ("AlertFunction", METRICS_SECRET),
    ):
        client = local_client("secretsmanager", stack.endpoint, stack.access_keys[function])
        with pytest.raises(client.exceptions.ClientError, match="AccessDenied"):
            client.get_secret_value(SecretId=secret)
    stack.authorizer.denials.clear()


def _refuse_messages(stack: LocalStack) -> None:
    """Send messages that can never be handled, and work that is split after two failures."""
    _send(stack, "HoursQueueUrl", "not JSON")
    _send(stack, "BackfillQueueUrl", "not JSON")
    stack.publish_alert(WORKSPACE, "not JSON")
    stack.deliver_all()
    origins: tuple[tuple[AttributionOrigin, str], ...] = (
        ("schedule", "HoursQueueUrl"),
        ("backfill", "BackfillQueueUrl"),
    )
    for origin, queue in origins:
        (message,) = due_messages(
            CLUSTERS[0], [FIRST, FIRST + HOUR], settings_version=1, origin=origin, correlation_id="test"
        )
        record = {
            "messageId": "1",
            "body": message.model_dump_json(),
            "attributes": {"ApproximateReceiveCount": "3"},
            "eventSource": "aws:sqs",
            "eventSourceARN": queue,
            "receiptHandle": "1",
            "messageAttributes": {},
            "md5OfBody": "",
            "awsRegion": REGION,
        }
        stack.functions["AttributeFunction"].invoke({"Records": [record]})
    stack.deliver_all()


def _fail(stack: LocalStack) -> None:
    """Let functions fail or be unavailable, so that their events become dead letters."""
    for function in ("DispatchFunction", "PricesFunction", "AlertFunction", "ExportFunction", "RecommendFunction"):
        with pytest.raises(FunctionError):
            stack.invoke_asynchronously(function, {"version": 99})
    stack.unavailable.update(stack.functions)
    for hour in (2, 3, 4):
        _fire(stack, hour)
    stack.publish_alert(WORKSPACE, json.dumps({"version": "4"}))
    topic = stack.outputs["InternalEventsTopicArn"]
    local_client("sns", stack.endpoint).publish(TopicArn=topic, Message=json.dumps({"version": "4"}))
    stack.deliver_all()
    stack.unavailable.clear()


def _publish(stack: LocalStack) -> None:
    stack.publish_alarm("DeadLetterAlarm")
    stack.deliver_all()
