"""The deployed system on one machine: the template's functions, fed by its queues, topics, schedule and routes."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from samtranslator.yaml_helper import yaml_parse

from gpucost.domain.hours import format_instant
from local.aws import Deployed, create_stack, credentials, local_client, running_aws
from local.dynamodb_local import create_table, running_dynamodb
from local.functions import FunctionError, LocalFunction
from local.http import serving
from local.loopback import listen
from local.template import REPOSITORY, TEMPLATE

SCHEDULED_TIME = "<aws.scheduler.scheduled-time>"
LAYER = REPOSITORY / "layers" / "common"


class LocalStack:
    """Joins the embedded AWS and the functions' processes as the template wires them.

    Attributes:
        endpoint: address of the embedded AWS.
        dynamodb: address of DynamoDB Local, which holds the table.
        outputs: the stack's outputs.
        functions: by logical name.
    """

    def __init__(self, endpoint: str, dynamodb: str, deployed: Deployed, functions: dict[str, LocalFunction]) -> None:
        self.endpoint = endpoint
        self.dynamodb = dynamodb
        self.outputs = deployed.outputs
        self.functions = functions
        self._deployed = deployed
        self._sqs = local_client("sqs", endpoint)
        self._sources = list(self._event_sources())
        self._bridges = list(self._subscriptions())
        self.mailbox = self._bridge("mailbox", deployed.outputs["EmailTopicArn"])

    def fire_schedule(self, scheduled_time: datetime) -> None:
        """Invoke what the template's schedules target, as EventBridge Scheduler would within that hour, in order."""
        for target in self._due(scheduled_time.hour):
            event = json.loads(target["Input"].replace(SCHEDULED_TIME, format_instant(scheduled_time)))
            self.functions[target["Arn"]["Fn::GetAtt"][0]].invoke(event)

    def _due(self, hour: int) -> list[dict[str, Any]]:
        """Targets of the schedules `cron(<minute> <hour or *> * * ? *)` of an hour, by minute."""
        due = []
        for _, schedule in self._deployed.resources("AWS::Scheduler::Schedule"):
            minute, at, *_ = schedule["ScheduleExpression"].removeprefix("cron(").split()
            if at in ("*", str(hour)):
                due.append((int(minute), schedule["Target"]))
        return [target for _, target in sorted(due, key=lambda one: one[0])]

    def pump(self) -> int:
        """Deliver every waiting message once; returns how many were handled."""
        return sum(self._pump_queue(*source) for source in self._sources) + sum(
            self._pump_topic(*bridge) for bridge in self._bridges
        )

    def pump_until_quiet(self) -> int:
        """Deliver until nothing is left; returns how many messages were handled."""
        handled = 0
        while moved := self.pump():
            handled += moved
        return handled

    def emails(self) -> list[dict[str, Any]]:
        """What the email topic sent since the last call."""
        return [json.loads(message["Body"]) for message in self._take(self.mailbox, 10)]

    def dead_letters(self) -> list[dict[str, Any]]:
        """What nobody could handle, since the last call."""
        return list(self._take(self.outputs["DeadLetterQueueUrl"], 10))

    def _event_sources(self) -> Iterator[tuple[str, str, int]]:
        """(queue, function, batch size) of every SQS event source."""
        for _, mapping in self._deployed.resources("AWS::Lambda::EventSourceMapping"):
            queue = mapping["EventSourceArn"]["Fn::GetAtt"][0]
            yield self._deployed.physical[queue], mapping["FunctionName"]["Ref"], int(mapping["BatchSize"])

    def _subscriptions(self) -> Iterator[tuple[str, str]]:
        """(bridging queue, function) of every topic that a function hears."""
        for name, subscription in self._deployed.resources("AWS::SNS::Subscription"):
            if subscription["Protocol"] == "lambda":
                topic = self._deployed.physical[subscription["TopicArn"]["Ref"]]
                yield self._bridge(name, topic), subscription["Endpoint"]["Fn::GetAtt"][0]

    def _bridge(self, name: str, topic_arn: str) -> str:
        """A queue that receives what a topic sends: moto's topics reach queues, not processes."""
        url = str(self._sqs.create_queue(QueueName=f"bridge-{name}")["QueueUrl"])
        attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        local_client("sns", self.endpoint).subscribe(
            TopicArn=topic_arn, Protocol="sqs", Endpoint=attributes["QueueArn"]
        )
        return url

    def _pump_queue(self, queue: str, function: str, batch: int) -> int:
        answer = self._sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=batch, AttributeNames=["All"], MessageAttributeNames=["All"]
        )
        messages = answer.get("Messages", [])
        if not messages:
            return 0
        records = [_sqs_record(message, queue) for message in messages]
        try:
            answer = self.functions[function].invoke({"Records": records}) or {}
            failed = {failure["itemIdentifier"] for failure in answer.get("batchItemFailures", [])}
        except FunctionError:
            failed = {message["MessageId"] for message in messages}
        for message in messages:
            if message["MessageId"] not in failed:
                self._sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return len(messages)

    def _pump_topic(self, queue: str, function: str) -> int:
        handled = 0
        for message in self._take(queue, 1):
            envelope = json.loads(message["Body"])
            record = {
                "EventSource": "aws:sns",
                "EventVersion": "1.0",
                "EventSubscriptionArn": f"{envelope['TopicArn']}:local",
                "Sns": {**envelope, "MessageAttributes": envelope.get("MessageAttributes", {})},
            }
            self.functions[function].invoke({"Records": [record]})
            handled += 1
        return handled

    def _take(self, queue: str, batch: int) -> Iterator[dict[str, Any]]:
        while messages := self._sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=batch, MessageAttributeNames=["All"]
        ).get("Messages", []):
            for message in messages:
                yield message
                self._sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


@contextmanager
def running_stack(
    *, listener: socket.socket | None = None, parameters: dict[str, str] | None = None
) -> Iterator[LocalStack]:
    """Run everything that the template declares; the API answers at the output `ApiUrl`.

    Args:
        listener: where the API listens; without, on any free port.
        parameters: of the template.
    """
    with ExitStack() as running:
        listener = listener or running.enter_context(listen(0))
        endpoint = running.enter_context(running_aws())
        # moto copies its whole table for a transaction and walks it for a query: three days would take minutes.
        dynamodb = running.enter_context(running_dynamodb())
        deployed = create_stack(endpoint, f"http://127.0.0.1:{listener.getsockname()[1]}", parameters or {})
        create_table(local_client("dynamodb", dynamodb), deployed.outputs["TableName"])
        folders = _code_folders()
        functions = {}
        for name, environment in deployed.environments.items():
            variables = {**environment, **credentials(endpoint, dynamodb)}
            function = LocalFunction(name, "app.handler", [folders[name], LAYER], variables)
            running.callback(function.stop)
            functions[name] = function
        stack = LocalStack(endpoint, dynamodb, deployed, functions)
        routes = [route["RouteKey"] for _, route in deployed.resources("AWS::ApiGatewayV2::Route")]
        running.enter_context(serving(functions["ApiFunction"].invoke, routes, listener))
        yield stack


def _code_folders() -> dict[str, Path]:
    """Where each function's code is, by logical name."""
    source = yaml_parse(TEMPLATE.read_text())
    return {
        name: REPOSITORY / body["Properties"]["CodeUri"]
        for name, body in source["Resources"].items()
        if body["Type"] == "AWS::Serverless::Function"
    }


def _sqs_record(message: dict[str, Any], queue: str) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": message.get("MessageAttributes", {}),
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:local:000000000000:{queue.rsplit('/', 1)[-1]}",
        "awsRegion": "local",
    }
