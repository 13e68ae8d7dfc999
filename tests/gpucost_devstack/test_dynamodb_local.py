"""DynamoDB Local as the demo, the tests and the benchmarks run it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from gpucost.core.errors import GpuCostError
from gpucost_devstack.dynamodb_local import running_dynamodb
from gpucost_devstack.template import REPOSITORY
from tests.listening_addresses import listening_addresses


def test_dynamodb_local_listens_on_the_loopback_address_only(dynamodb_url: str) -> None:
    assert requests.get(dynamodb_url, timeout=10).status_code == 400  # unsigned
    assert listening_addresses(os.getpid()) == {"127.0.0.1"}


def test_dynamodb_local_ends_with_a_killed_parent() -> None:
    script = (
        "import os, signal\n"
        "from gpucost_devstack.dynamodb_local import running_dynamodb\n"
        "with running_dynamodb() as url:\n"
        "    print(url, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == -9, done.stderr
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            requests.get(done.stdout.strip(), timeout=10)
        except requests.ConnectionError:
            return
        time.sleep(0.1)
    pytest.fail("the engine still answers")


def test_dynamodb_local_that_does_not_start_says_why(tmp_path: Path) -> None:
    jar = tmp_path / "lib" / "dynamodb_local_1" / "DynamoDBLocal.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"no archive")
    says = r"DynamoDB Local did not start: (.|\n)*ServerRunner"
    with pytest.raises(GpuCostError, match=says), running_dynamodb(tmp_path):
        pass
