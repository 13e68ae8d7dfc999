"""The API matches its OpenAPI document, and the examples of the documentation run as written.

Schemathesis runs small here (`python -m tests.contract` runs large, over a month); curl, awscurl and a client that was
generated ask what the examples ask. What they ask is the real handler behind the HTTP adapter, which checks signatures as API Gateway does.
"""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from gpucost_cli.signing_proxy import serve_proxy, signer
from gpucost_devstack.signatures import HttpRequest
from gpucost_devstack.template import REPOSITORY
from tests.contract.running import ADMIN, running_api
from tests.contract.schemathesis_run import run
from tests.signatures import CREDENTIALS, REGION, check_signature

DEPLOYED = "https://a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com"
LOCAL = ("http://127.0.0.1:8080", "http://127.0.0.1:8081")
BIN = Path(sys.executable).parent
OPENAPI = REPOSITORY / "docs" / "reference" / "openapi.json"
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("**/*.md"))]


def examples() -> list[str]:
    """Every command of the documentation that sends a request to the API."""
    return [
        line.split("    #")[0].strip()
        for page in PAGES
        for line in page.read_text().splitlines()
        if re.match(r"(curl|awscurl) ", line.strip()) and any(host in line for host in (DEPLOYED, *LOCAL))
    ]


EXAMPLES = sorted(set(examples()))


def identify_signer(request: HttpRequest) -> dict[str, Any]:
    """The administrator, for requests with a valid signature or token."""
    if request.headers.get("authorization") != f"Bearer {ADMIN}":
        check_signature(request)
    return {"iam": {"userArn": f"arn:aws:iam::000000000000:user/{ADMIN}"}}


@pytest.fixture(scope="module")
def api(dynamodb_url: str) -> Iterator[str]:
    with running_api(dynamodb_url, days=2, identify=identify_signer) as address:
        yield address


@pytest.fixture(scope="module")
def proxy(api: str) -> Iterator[str]:
    with serve_proxy(api, signer(CREDENTIALS, REGION), 0) as address:
        yield address


def test_schemathesis_finds_nothing(api: str) -> None:
    done = run(api, ADMIN, examples=4, phases="examples,fuzzing")
    assert done.status == 0, done.output
    assert done.cases >= 60, done.output


def test_documentation_has_examples_of_every_kind() -> None:
    text = "\n".join(EXAMPLES)
    assert len(EXAMPLES) >= 8
    for kind in ("awscurl ", "--aws-sigv4", "Bearer", "/allocation/compute", "/v1/costs", "X-Act-As"):
        assert kind in text


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run_as_written(example: str, api: str, proxy: str) -> None:
    command = example.replace(DEPLOYED, api)
    for host in LOCAL:
        command = command.replace(host, proxy)
    credentials = CREDENTIALS.get_frozen_credentials()
    environment = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": "/nonexistent",
        "TOKEN": ADMIN,
        "LANG": "C.UTF-8",
        "AWS_ACCESS_KEY_ID": str(credentials.access_key),
        "AWS_SECRET_ACCESS_KEY": str(credentials.secret_key),
        "AWS_SESSION_TOKEN": str(credentials.token),
    }
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    if "format=" in example:  # a download has a header, or a line with totals
        assert re.match(r'start,|{"', done.stdout), done.stdout
        assert '"status": 4' not in done.stdout
        return
    body = json.loads(done.stdout)
    assert body.get("status") in (None, "success"), done.stdout


@pytest.mark.parametrize("signed", [["awscurl", "--service", "execute-api", "--region", "us-east-1"], ["curl", "-s"]])
def test_wrong_signatures_are_rejected(signed: list[str], api: str) -> None:
    environment = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": "/nonexistent",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_SESSION_TOKEN": "z",
        "LANG": "C.UTF-8",
    }
    done = subprocess.run(
        [*signed, f"{api}/v1/hours?window=24h"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=60,
    )
    assert done.stdout.strip() == '{"message":"Forbidden"}'


def request_of(example: str) -> tuple[str, dict[str, str]]:
    """Path and parameters of an example."""
    expanded = subprocess.run(["bash", "-c", f"printf '%s\\n' {example}"], capture_output=True, text=True, check=True)
    words = expanded.stdout.splitlines() if "$(" in example else shlex.split(example)
    address = urlsplit(next(word for word in words if word.startswith("http")))
    data = [words[index + 1] for index, word in enumerate(words) if word in ("-d", "--data-urlencode")]
    return address.path, dict(parse_qsl("&".join([address.query, *data])))


@pytest.fixture(scope="module")
def client(api: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("generated")
    config = folder / "config.yaml"
    config.write_text("post_hooks: []\n")
    done = subprocess.run(
        [
            BIN / "openapi-python-client",
            "generate",
            "--path",
            OPENAPI,
            "--config",
            config,
            "--meta",
            "none",
            "--output-path",
            folder / "gpucost_client",
            "--fail-on-warning",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        client = importlib.import_module("gpucost_client").AuthenticatedClient(base_url=api, token=ADMIN)
        with client:
            yield client
    for name in [name for name in sys.modules if name.partition(".")[0] == "gpucost_client"]:
        del sys.modules[name]


def operation_of(path: str) -> tuple[str, str, dict[str, str]]:
    """Tag, name and path parameters of the operation of a path."""
    for pattern, methods in json.loads(OPENAPI.read_text())["paths"].items():
        match = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern), path)
        if match:
            return methods["get"]["tags"][0], methods["get"]["operationId"], match.groupdict()
    raise AssertionError(f"no operation answers {path}")


@pytest.mark.parametrize("example", [example for example in EXAMPLES if "format=" not in example])
def test_generated_client_sends_the_requests_of_the_examples(example: str, client: Any) -> None:
    path, query = request_of(example)
    tag, name, parts = operation_of(path)
    module = importlib.import_module(f"gpucost_client.api.{tag}.{name}")
    snake = {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", key).lower(): value for key, value in query.items()}
    enums = {
        key: next(
            (
                kind(value)
                for kind in vars(module).values()
                if isinstance(kind, type)
                and kind.__name__.lower().endswith(key.replace("_", ""))
                and issubclass(kind, str)
            ),
            int(value) if key == "limit" else value,
        )
        for key, value in snake.items()
    }
    answer = module.sync_detailed(**parts, **enums, client=client)
    assert answer.status_code == 200, answer.content
    plain = json.loads(answer.content)
    assert json.loads(json.dumps(answer.parsed.to_dict()).replace('+00:00"', 'Z"')) == plain
    if path in ("/v1/costs", "/v1/business-units", "/v1/hours") and "window" in query:
        assert plain["rows"], "there is something to compare"
