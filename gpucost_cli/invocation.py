"""Invoke a function of a deployment and wait for its answer, in AWS or on this machine for the demo."""

import json
from collections.abc import Mapping
from typing import Any

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost_cli.aws_session import aws_session


def invoke(function: str, event: Mapping[str, Any], *, seconds: int) -> dict[str, Any]:
    """Invoke a deployed function and return its answer.

    Args:
        function: the function's name.
        event: the event to send.
        seconds: how long to wait; a little longer than the function's time-out.

    Raises:
        InvalidInputError: the function raised it.
        GpuCostError: the function failed or could not be invoked.
    """
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    config = Config(read_timeout=seconds, retries={"total_max_attempts": 1})
    client = aws_session().client("lambda", config=config)
    try:
        answer = client.invoke(FunctionName=function, Payload=json.dumps(event))
        payload = json.loads(answer["Payload"].read())
    except (BotoCoreError, ClientError, ValueError) as error:
        raise GpuCostError(f"function {function} could not be invoked: {error}") from error
    if "FunctionError" in answer:
        kind = InvalidInputError if payload.get("errorType") == InvalidInputError.__name__ else GpuCostError
        raise kind(str(payload.get("errorMessage")))
    return dict(payload)


def run_locally(
    stack: str, name: str, folder: str, variables: Mapping[str, str], event: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a function's code in a process on this machine, because the demo's functions belong to the demo's process.

    Args:
        stack: the demo, as `--stack` names it.
        name: the function's name, whose permissions it gets.
        folder: its folder in `functions/`.
        variables: environment variables, in addition to those that connect to the running demo.
        event: the event to send.

    Raises:
        GpuCostError: the function failed, or no demo is running.
    """
    from gpucost_cli import deployment
    from gpucost_devstack.functions import LocalFunction
    from gpucost_devstack.stack import LAYER
    from gpucost_devstack.template import REPOSITORY

    environment = {"POWERTOOLS_SERVICE_NAME": folder, **variables, **deployment.local_credentials(stack, name)}
    function = LocalFunction(name, "app.handler", [REPOSITORY / "functions" / folder, LAYER], environment)
    try:
        return dict(function.invoke(event))
    finally:
        function.stop()
