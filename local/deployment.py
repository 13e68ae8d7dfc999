"""A deployment by its stack's name: its outputs, and clients that reach it; `local` is the running demo."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucost.errors import GpuCostError, InvalidInputError
from local.aws import STACK, credentials
from local.iam.authorizer import ADMINISTRATOR

if TYPE_CHECKING:
    from gpucost.adapters.messaging import AwsBus

STATE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpucost" / "local.json"
"""Where a running demo leaves the address of its embedded AWS."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A stack's outputs."""

    table: str
    hours_queue_url: str
    backfill_queue_url: str
    dead_letter_queue_url: str
    events_topic_arn: str
    api_url: str
    email_topic_arn: str
    prices_function: str
    price_sources: tuple[str, ...]
    """What the price book is fetched from."""
    export_function: str = ""
    export_bucket: str = ""
    advise_function: str = ""

    def bus(self) -> "AwsBus":
        """Its queues and topic."""
        from gpucost.adapters.messaging import AwsBus

        return AwsBus(
            hours_queue_url=self.hours_queue_url,
            backfill_queue_url=self.backfill_queue_url,
            dead_letter_queue_url=self.dead_letter_queue_url,
            events_topic_arn=self.events_topic_arn,
        )


def find(stack: str) -> Deployment:
    """Look a stack up; afterwards this process's AWS clients reach it.

    Raises:
        InvalidInputError: there is no such stack, or it is not this product's.
        GpuCostError: AWS could not be asked.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    if stack == STACK:
        os.environ.update(local_credentials())
    try:
        (found,) = boto3.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        raise InvalidInputError(f"stack {stack!r} was not found: {error.response['Error']['Message']}") from error
    except BotoCoreError as error:
        if stack == STACK:
            raise GpuCostError("no demo is running on this machine; start one with: gpucost demo") from error
        raise GpuCostError(f"AWS could not be asked about stack {stack!r}: {error}") from error
    outputs: dict[str, str] = {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])}
    names = {
        "table": "TableName",
        "hours_queue_url": "HoursQueueUrl",
        "backfill_queue_url": "BackfillQueueUrl",
        "dead_letter_queue_url": "DeadLetterQueueUrl",
        "events_topic_arn": "EventsTopicArn",
        "api_url": "ApiUrl",
    }
    missing = [output for output in names.values() if output not in outputs]
    if missing:
        raise InvalidInputError(f"stack {stack!r} has no output {missing[0]}; is it a gpucost stack?")
    return Deployment(
        **{name: outputs[output] for name, output in names.items()},
        email_topic_arn=outputs.get("EmailTopicArn", ""),
        # Deployments of earlier versions have no price book and no exports.
        prices_function=outputs.get("PricesFunctionName", ""),
        price_sources=tuple(filter(None, outputs.get("PriceSources", "").split(","))),
        export_function=outputs.get("ExportFunctionName", ""),
        export_bucket=outputs.get("ExportBucketName", ""),
        advise_function=outputs.get("AdviseFunctionName", ""),
    )


@contextmanager
def announced(endpoint: str, dynamodb: str, access_keys: Mapping[str, str]) -> Iterator[None]:
    """Let other commands find a running demo: the embedded AWS, the engine of its table, the functions' access keys."""
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_text(json.dumps({"endpoint": endpoint, "dynamodb": dynamodb, "access_keys": dict(access_keys)}))
    try:
        yield
    finally:
        STATE.unlink(missing_ok=True)


def local_credentials(function: str = "") -> dict[str, str]:
    """Environment variables that lead AWS clients to the running demo, with the permissions of a function if named.

    Raises:
        GpuCostError: none is running.
    """
    try:
        state: dict[str, Any] = json.loads(STATE.read_text())
        access_key = state.get("access_keys", {}).get(function, ADMINISTRATOR)
        return credentials(str(state["endpoint"]), str(state["dynamodb"]), access_key)
    except (OSError, ValueError, KeyError) as error:
        raise GpuCostError("no demo is running on this machine; start one with: gpucost demo") from error
