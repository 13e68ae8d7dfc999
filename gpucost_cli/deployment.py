"""Finds a deployment by the name of its stack; `local` is the running demo."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost_cli.aws_session import aws_credentials, aws_session, clear_aws_configuration
from gpucost_devstack.aws import STACK, client_environment
from gpucost_devstack.demo_records import find_demo, is_demo
from gpucost_devstack.iam.authorizer import ADMINISTRATOR

if TYPE_CHECKING:
    from gpucost.container import Container


@dataclass(frozen=True, slots=True)
class Deployment:
    """The outputs of a stack."""

    table: str
    hours_queue_url: str
    backfill_queue_url: str
    dead_letter_queue_url: str
    events_topic_arn: str
    alerts_topic_arn: str
    """On which AMP's alert manager publishes."""
    api_url: str
    email_topic_arn: str
    prices_function: str
    price_sources: tuple[str, ...]
    """Sources from which the price book is fetched."""
    export_function: str
    export_bucket: str
    recommend_function: str

    def container(self, **parts: Any) -> "Container":
        """Compose the parts of the deployment, with clients that have the caller's credentials.

        Args:
            parts: as `Container` takes them.
        """
        from gpucost.container import Container
        from gpucost.runtime.process import Environment

        environment = Environment(
            table=self.table,
            hours_queue_url=self.hours_queue_url,
            backfill_queue_url=self.backfill_queue_url,
            dead_letter_queue_url=self.dead_letter_queue_url,
            events_topic_arn=self.events_topic_arn,
            alerts_topic_arn=self.alerts_topic_arn,
            email_topic_arn=self.email_topic_arn,
            export_bucket=self.export_bucket,
        )
        return Container(environment, **parts)


def find_deployment(stack: str) -> Deployment:
    """Look up a stack. From then on, the AWS clients of this process reach it.

    Raises:
        InvalidInputError: the stack does not exist or belongs to another product, or no region is set.
        GpuCostError: AWS could not be reached, or there are no credentials.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    if is_demo(stack):
        clear_aws_configuration()
        os.environ.update(local_credentials(stack))
    session = aws_session()
    aws_credentials(session)
    try:
        name = STACK if is_demo(stack) else stack
        (description,) = session.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        raise InvalidInputError(f"stack {stack!r} was not found: {error.response['Error']['Message']}") from error
    except BotoCoreError as error:
        if is_demo(stack):
            raise GpuCostError(
                f"the demo of stack {stack!r} does not respond. Start it again with: gpucost demo"
            ) from error
        raise GpuCostError(f"AWS did not respond about stack {stack!r}: {error}") from error
    outputs: dict[str, str] = {output["OutputKey"]: output["OutputValue"] for output in description.get("Outputs", [])}
    names = {
        "table": "TableName",
        "hours_queue_url": "HoursQueueUrl",
        "backfill_queue_url": "BackfillQueueUrl",
        "dead_letter_queue_url": "DeadLetterQueueUrl",
        "events_topic_arn": "InternalEventsTopicArn",
        "alerts_topic_arn": "EventsTopicArn",
        "api_url": "ApiUrl",
        "email_topic_arn": "EmailTopicArn",
        "prices_function": "PricesFunctionName",
        "export_function": "ExportFunctionName",
        "export_bucket": "ExportBucketName",
        "recommend_function": "RecommendFunctionName",
    }
    missing = [output for output in (*names.values(), "PriceSources") if output not in outputs]
    if missing:
        raise InvalidInputError(
            f"stack {stack!r} has no output {missing[0]}. Name a stack that was deployed from gpucost's template"
        )
    return Deployment(
        **{name: outputs[output] for name, output in names.items()},
        price_sources=tuple(filter(None, outputs["PriceSources"].split(","))),
    )


def local_credentials(stack: str, function: str = "") -> dict[str, str]:
    """Return the environment variables that lead AWS clients to a running demo.

    Args:
        stack: `local`, or `local:` and the port of the demo.
        function: the function whose permissions the clients get; an administrator's if empty.

    Raises:
        As `find_demo`.
    """
    demo = find_demo(stack)
    return client_environment(demo.endpoint, demo.dynamodb, demo.access_keys.get(function, ADMINISTRATOR))
