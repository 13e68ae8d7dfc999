"""The deployed system on one machine: the template's functions with their queues, topics, schedules and routes."""

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from queue import LifoQueue
from typing import Any

from samtranslator.yaml_helper import yaml_parse

import gpucost
from gpucost.core.hours import format_timestamp
from gpucost_devstack.aws import (
    ACCOUNT,
    Deployed,
    client_environment,
    create_stack,
    has_messages,
    local_client,
    running_aws,
)
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb
from gpucost_devstack.functions import FunctionError, LocalFunction
from gpucost_devstack.http import serving_api
from gpucost_devstack.iam.authorizer import Authorizer
from gpucost_devstack.iam.encryption import encryption_keys
from gpucost_devstack.iam.gateway import running_authorizing_proxy
from gpucost_devstack.iam.policies import policies_of
from gpucost_devstack.iam.services import AwsServicePermissions
from gpucost_devstack.loopback import listen
from gpucost_devstack.template import REPOSITORY, TEMPLATE

SCHEDULED_TIME = "<aws.scheduler.scheduled-time>"
LAYER = Path(gpucost.__file__).resolve().parents[1]
"""The folder from which the functions import the layer's package."""


class LocalStack:
    """Connects the embedded AWS and the functions' processes as the template declares.

    Attributes:
        endpoint: address of the embedded AWS.
        dynamodb: address of DynamoDB Local, which holds the table.
        outputs: the stack's outputs.
        functions: the functions by logical name.
        authorizer: the deployment's IAM.
        services: checks the permissions of AWS's own services.
        unavailable: functions that take no invocations, as with a reserved concurrency of 0.
        notice: shown at the top of the page; empty for none.

    """

    def __init__(
        self,
        endpoint: str,
        dynamodb: str,
        deployed: Deployed,
        functions: dict[str, LocalFunction],
        authorizer: Authorizer,
        further: Mapping[str, Sequence[LocalFunction]] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.dynamodb = dynamodb
        self.outputs = deployed.outputs
        self.functions = functions
        self._further = further or {}
        self._free_api_environments: LifoQueue[LocalFunction] = LifoQueue()
        for environment in (functions["ApiFunction"], *self._further.get("ApiFunction", ())):
            self._free_api_environments.put(environment)
        self.authorizer = authorizer
        self.unavailable: set[str] = set()
        self.notice = ""
        self.services = AwsServicePermissions(authorizer, deployed)
        self._deployed = deployed
        self._sqs = local_client("sqs", endpoint)
        self._sources = list(self._event_sources())
        self._bridges = list(self._subscriptions())
        self.mailbox = self._bridge_queue("mailbox", deployed.outputs["EmailTopicArn"])
        for name in functions:
            self.services.start_function(name)

    @property
    def access_keys(self) -> dict[str, str]:
        """The access keys of the functions' roles, by function."""
        return {name: self.authorizer.access_key(self._deployed.role_of(name)) for name in self.functions}

    def fire_schedule(self, scheduled_time: datetime) -> None:
        """Invoke the targets of the template's schedules in order, as EventBridge Scheduler would in that hour.

        Raises:
            FunctionError: a function failed.
            AccessDeniedError: a function, or a service that acts for it, was denied something.

        """
        for schedule in self._due_schedules(scheduled_time.hour):
            target = schedule["Target"]
            function = target["Arn"]["Fn::GetAtt"][0]
            event = target["Input"].replace(SCHEDULED_TIME, format_timestamp(scheduled_time))
            self.services.invoke_by_schedule(schedule)
            if function in self.unavailable:
                self.services.dead_letter_of_schedule(schedule)
                self._send_to_dead_letter_queue(target["DeadLetterConfig"]["Arn"], event)
            else:
                self.invoke_asynchronously(function, json.loads(event))

    def _due_schedules(self, hour: int) -> list[dict[str, Any]]:
        """The schedules that fire in an hour, by minute. Their form is `cron(<minute> <hour or *> * * ? *)`."""
        due = []
        for _, schedule in self._deployed.resources("AWS::Scheduler::Schedule"):
            minute, at, *_ = schedule["ScheduleExpression"].removeprefix("cron(").split()
            if at in ("*", str(hour)):
                due.append((int(minute), schedule))
        return [schedule for _, schedule in sorted(due, key=lambda due_schedule: due_schedule[0])]

    def invoke_asynchronously(self, function: str, event: Mapping[str, Any]) -> None:
        """Invoke a function as Lambda does asynchronously. The event of a failed invocation becomes a dead letter.

        Raises:
            FunctionError: the function failed. Lambda would retry twice first.
            AccessDeniedError: it was denied something.

        """
        try:
            self.functions[function].invoke(event)
        except FunctionError as error:
            self.authorizer.raise_denied()
            for _, config in self._deployed.resources("AWS::Lambda::EventInvokeConfig"):
                if config["FunctionName"]["Ref"] == function:
                    queue = config["DestinationConfig"]["OnFailure"]["Destination"]
                    body = {"requestPayload": event, "responsePayload": {"errorMessage": str(error)}}
                    self._send_to_dead_letter_queue(queue, json.dumps(body), as_function=function)
            raise
        self.authorizer.raise_denied()

    def _send_to_dead_letter_queue(self, queue: Mapping[str, Any], body: str, *, as_function: str = "") -> None:
        sqs = self._client_of(as_function) if as_function else self._sqs
        sqs.send_message(QueueUrl=self._deployed.physical[queue["Fn::GetAtt"][0]], MessageBody=body)

    def _client_of(self, function: str) -> Any:
        """An SQS client with a function's permissions, which Lambda uses on the function's behalf."""
        return local_client("sqs", self.endpoint, self.access_keys[function])

    def publish_alert(self, workspace_arn: str, message: str) -> None:
        """Publish a message to the topic of external alerts as an AMP workspace's alert manager."""
        self.services.publish("aps.amazonaws.com", "EventsTopic", workspace_arn)
        local_client("sns", self.endpoint).publish(TopicArn=self.outputs["EventsTopicArn"], Message=message)

    def publish_alarm(self, name: str) -> None:
        """Publish that a CloudWatch alarm fires, with the name that CloudFormation makes of its logical id."""
        region, stack = (self._deployed.resolver.ref(f"AWS::{parameter}") for parameter in ("Region", "StackName"))
        self.services.publish(
            "cloudwatch.amazonaws.com",
            "OperationsTopic",
            f"arn:aws:cloudwatch:{region}:{ACCOUNT}:alarm:{stack}-{name}-1A2B3C",
        )
        local_client("sns", self.endpoint).publish(TopicArn=self.outputs["OperationsTopicArn"], Message=name)

    def answer_request(self, event: Mapping[str, Any]) -> Any:
        """Let the API function answer an HTTP request, as API Gateway does.

        Raises:
            FunctionError: the function failed.

        """
        self.services.invoke_by_api("ApiFunction", "HttpApi", event["routeKey"])
        environment = self._free_api_environments.get()
        try:
            answer = environment.invoke(event)
        finally:
            self._free_api_environments.put(environment)
        if self.notice and event["rawPath"] == "/config.json":
            answer["body"] = json.dumps({**json.loads(answer["body"]), "notice": self.notice})
        return answer

    def deliver_once(self) -> int:
        """Deliver every waiting message once, and return their number.

        Raises:
            AccessDeniedError: a function, or a service that acts for it, was denied something.

        """
        try:
            handled = sum(self._pump_queue(*source) for source in self._sources)
            handled += sum(self._pump_topic(*bridge) for bridge in self._bridges)
        finally:  # polling itself may have been denied
            self.authorizer.raise_denied()
        return handled

    def deliver_all(self) -> int:
        """Deliver messages until none is left, and return their number."""
        handled = 0
        while moved := self.deliver_once():
            handled += moved
        return handled

    def emails(self) -> list[dict[str, Any]]:
        """Emails sent since the last call."""
        return [json.loads(message["Body"]) for message in self._receive_batch(self.mailbox, 10)]

    def dead_letters(self) -> list[dict[str, Any]]:
        """Messages that reached the dead-letter queue since the last call."""
        return list(self._receive_batch(self.outputs["DeadLetterQueueUrl"], 10))

    def _event_sources(self) -> Iterator[tuple[str, str, int, Any]]:
        """(queue, function, batch size, client) of every SQS event source."""
        for _, mapping in self._deployed.resources("AWS::Lambda::EventSourceMapping"):
            queue, function = mapping["EventSourceArn"]["Fn::GetAtt"][0], mapping["FunctionName"]["Ref"]
            self.services.poll_queue(function, queue)
            client = self._client_of(function)
            yield self._deployed.physical[queue], function, int(mapping["BatchSize"]), client

    def _subscriptions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(bridging queue, subscription) of every topic to which a function subscribes."""
        for name, subscription in self._deployed.resources("AWS::SNS::Subscription"):
            if subscription["Protocol"] == "lambda":
                topic = self._deployed.physical[subscription["TopicArn"]["Ref"]]
                yield self._bridge_queue(name, topic), subscription

    def _bridge_queue(self, name: str, topic_arn: str) -> str:
        """Create a queue that receives a topic's messages, because moto's topics cannot invoke processes."""
        url = str(self._sqs.create_queue(QueueName=f"bridge-{name}")["QueueUrl"])
        attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        local_client("sns", self.endpoint).subscribe(
            TopicArn=topic_arn, Protocol="sqs", Endpoint=attributes["QueueArn"]
        )
        return url

    def _pump_queue(self, queue: str, function: str, batch: int, sqs: Any) -> int:
        environments = [self.functions[function], *self._further.get(function, ())]
        batches: list[list[dict[str, Any]]] = []
        while len(batches) < len(environments) and has_messages(queue):
            answer = sqs.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=batch, AttributeNames=["All"], MessageAttributeNames=["All"]
            )
            if "Messages" not in answer:
                break
            batches.append(answer["Messages"])
        if len(batches) < 2:
            return sum(self._process_batch(queue, sqs, environments[0], messages) for messages in batches)
        with ThreadPoolExecutor(len(batches)) as threads:
            return sum(threads.map(partial(self._process_batch, queue, sqs), environments, batches))

    def _process_batch(self, queue: str, sqs: Any, function: LocalFunction, messages: list[dict[str, Any]]) -> int:
        records = [_sqs_record(message, queue) for message in messages]
        try:
            answer = function.invoke({"Records": records}) or {}
            failed = {failure["itemIdentifier"] for failure in answer.get("batchItemFailures", [])}
        except FunctionError:
            failed = {message["MessageId"] for message in messages}
        for message in messages:
            if message["MessageId"] not in failed:
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return len(messages)

    def _pump_topic(self, queue: str, subscription: Mapping[str, Any]) -> int:
        handled = 0
        function = subscription["Endpoint"]["Fn::GetAtt"][0]
        for message in self._receive_batch(queue, 1):
            handled += 1
            self.services.invoke_by_topic(function, subscription["TopicArn"]["Ref"])
            envelope = json.loads(message["Body"])
            if function in self.unavailable:
                self.services.dead_letter_of_subscription(subscription)
                # SNS sends the whole notification, with its topic.
                self._send_to_dead_letter_queue(subscription["RedrivePolicy"]["deadLetterTargetArn"], message["Body"])
                continue
            record = {
                "EventSource": "aws:sns",
                "EventVersion": "1.0",
                "EventSubscriptionArn": f"{envelope['TopicArn']}:local",
                "Sns": {**envelope, "MessageAttributes": envelope.get("MessageAttributes", {})},
            }
            self.invoke_asynchronously(function, {"Records": [record]})
        return handled

    def _receive_batch(self, queue: str, batch: int) -> Iterator[dict[str, Any]]:
        while has_messages(queue):
            answer = self._sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=batch, MessageAttributeNames=["All"])
            for message in answer.get("Messages", ()):
                yield message
                self._sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


@contextmanager
def running_stack(
    *,
    listener: socket.socket | None = None,
    parameters: dict[str, str] | None = None,
    template: Path = TEMPLATE,
    services: Mapping[str, str] | None = None,
    database: Path | None = None,
    workers: int = 1,
) -> Iterator[LocalStack]:
    """Run everything that the template declares. The API answers at the output `ApiUrl`.

    Every function has the permissions that the template gives it, and no others.

    Args:
        listener: socket on which the API listens. The default is any free port.
        parameters: template parameters that differ from their defaults.
        template: the template file.
        services: URLs of services that moto lacks, by the service names in their signatures.
        database: the folder in which the table is kept; None: it is in memory.
        workers: how many messages of a queue, and requests to the API, are processed at the same time.

    """
    with ExitStack() as running:
        listener = listener or running.enter_context(listen(0))
        aws = running.enter_context(running_aws())
        # moto copies its whole table for a transaction and scans it for a query, which would take minutes.
        engine = running.enter_context(running_dynamodb(database=database))
        deployed = create_stack(aws, f"http://127.0.0.1:{listener.getsockname()[1]}", parameters or {}, template)
        create_table(local_client("dynamodb", engine), deployed.outputs["TableName"])
        policies = policies_of(deployed.template, deployed.resolver)
        keys = encryption_keys(deployed.template, deployed.resolver)
        authorizer = Authorizer(policies, partial(_table_location, aws), keys)
        endpoint = running.enter_context(running_authorizing_proxy(aws, authorizer, services))
        dynamodb = running.enter_context(running_authorizing_proxy(engine, authorizer))
        folders = _code_folder_by_function(template)
        functions: dict[str, LocalFunction] = {}
        further: dict[str, list[LocalFunction]] = {}
        queue_functions = {
            mapping["FunctionName"]["Ref"] for _, mapping in deployed.resources("AWS::Lambda::EventSourceMapping")
        }
        for name, environment in deployed.environments.items():
            role = deployed.role_of(name)
            authorizer.names[role] = name
            variables = {**environment, **client_environment(endpoint, dynamodb, authorizer.access_key(role))}
            # A view of the page sends many requests at a time.
            count = workers if name in queue_functions or name == "ApiFunction" else 1
            environments = [LocalFunction(name, "app.handler", [folders[name], LAYER], variables) for _ in range(count)]
            for function in environments:
                running.callback(function.stop)
            functions[name], *further[name] = environments
        stack = LocalStack(endpoint, dynamodb, deployed, functions, authorizer, further)
        routes = [route["RouteKey"] for _, route in deployed.resources("AWS::ApiGatewayV2::Route")]
        running.enter_context(serving_api(stack.answer_request, routes, listener))
        yield stack


def _table_location(aws: str, database: str, table: str) -> str:
    answer = local_client("glue", aws).get_table(DatabaseName=database, Name=table)
    return str(answer["Table"]["StorageDescriptor"]["Location"])


def _code_folder_by_function(template: Path) -> dict[str, Path]:
    """The code folder of each function, by logical name."""
    template_document = yaml_parse(template.read_text())
    return {
        name: REPOSITORY / body["Properties"]["CodeUri"]
        for name, body in template_document["Resources"].items()
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
