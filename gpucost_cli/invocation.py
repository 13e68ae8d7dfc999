"""Running a function of a deployment and waiting for it: in AWS, or here for the demo."""

import json
from collections.abc import Mapping
from typing import Any

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost_cli.aws_session import aws_session


def invoke(function: str, event: Mapping[str, Any], *, seconds: int) -> dict[str, Any]:
    """Run a deployed function.

    Args:
        function: its name.
        event: what it is sent.
        seconds: how long to wait; a little longer than the function may take.

    Raises:
        InvalidInputError: the function says that the input is wrong.
        GpuCostError: it failed, or could not be run.
    """
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    config = Config(read_timeout=seconds, retries={"total_max_attempts": 1})
    client = aws_session().client("lambda", config=config)
    try:
        answer = client.invoke(FunctionName=function, Payload=json.dumps(event))
        payload = json.loads(answer["Payload"].read())
    except (BotoCoreError, ClientError, ValueError) as error:
        raise GpuCostError(f"function {function} could not be run: {error}") from error
    if "FunctionError" in answer:
        kind = InvalidInputError if payload.get("errorType") == InvalidInputError.__name__ else GpuCostError
        raise kind(str(payload.get("errorMessage")))
    return dict(payload)


def run_here(
    stack: str, name: str, folder: str, variables: Mapping[str, str], event: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a function's code in a process of this machine: the demo's own belong to the demo's process.

    Args:
        stack: the demo, as `--stack` names it.
        name: of the function, whose permissions it has.
        folder: in `functions/`.
        variables: of its environment, beside those that lead to the running demo.
        event: what it is sent.

    Raises:
        GpuCostError: it failed, or no demo is running.
    """
    from devstack.functions import LocalFunction
    from devstack.stack import LAYER
    from devstack.template import REPOSITORY
    from gpucost_cli import deployment

    environment = {"POWERTOOLS_SERVICE_NAME": folder, **variables, **deployment.local_credentials(stack, name)}
    function = LocalFunction(name, "app.handler", [REPOSITORY / "functions" / folder, LAYER], environment)
    try:
        return dict(function.invoke(event))
    finally:
        function.stop()
