"""Region and profile of the command line, as AWS receives them in request signatures."""

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from gpucost_devstack.loopback import LoopbackServer, serving_in_background
from tests import forked_gpucost
from tests.gpucost_command import CommandResult

CONFIG = """
[default]
region = eu-south-1
[profile with-region]
region = ca-central-1
[profile without-region]
output = json
[profile role-of-environment]
region = ca-central-1
role_arn = arn:aws:iam::123456789012:role/deployer
credential_source = Environment
"""
CREDENTIALS = "\n".join(
    f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"
    for name, key in (("default", "KEYDEFAULT"), ("with-region", "KEYWITH"), ("without-region", "KEYWITHOUT"))
)
SIGNATURE = re.compile(r"Credential=(\w+)/\d{8}/([\w-]+)/([\w-]+)/aws4_request")
ENVIRONMENT_KEYS = {"AWS_ACCESS_KEY_ID": "KEYENV", "AWS_SECRET_ACCESS_KEY": "secret"}
WEB_IDENTITY = {"AWS_WEB_IDENTITY_TOKEN_FILE": os.devnull, "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/pod"}
"""The configuration of pods in EKS and of CI jobs."""


class Aws(LoopbackServer):
    """Answers that no stack exists, and records the callers: (access key, region, service)."""

    def __init__(self) -> None:
        super().__init__(0, _Handler)
        self.callers: list[tuple[str, ...]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Aws

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.callers += [match.groups() for match in [SIGNATURE.search(self.headers["Authorization"])] if match]
        body = (
            b"<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code>"
            b"<Message>Stack with id gpucost-dev does not exist</Message></Error></ErrorResponse>"
        )
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep the test's output clean."""


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    server = Aws()
    with serving_in_background(server):
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "credentials").write_text(CREDENTIALS)
    return tmp_path


def gpucost(aws: Aws, home: Path, *arguments: str, **environment: str) -> CommandResult:
    """Run the command without the machine's AWS configuration."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    aws_variables = {
        "AWS_CONFIG_FILE": str(home / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(home / "credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": aws.url,
    }
    aws.callers.clear()
    done = forked_gpucost.run(*arguments, env={**clean, **aws_variables, **environment})
    return CommandResult(done.returncode, done.stdout, done.stderr)


SHOW = ("settings", "show", "--stack", "gpucost-dev")


@pytest.mark.parametrize(
    ("arguments", "environment", "key", "region"),
    [
        ([], {}, "KEYDEFAULT", "eu-south-1"),
        ([], {"AWS_REGION": "eu-central-1"}, "KEYDEFAULT", "eu-central-1"),
        ([], {"AWS_DEFAULT_REGION": "us-east-2"}, "KEYDEFAULT", "us-east-2"),
        ([], {"AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "us-east-2"}, "KEYDEFAULT", "eu-central-1"),
        ([], {"AWS_REGION": "", "AWS_DEFAULT_REGION": "us-east-2"}, "KEYDEFAULT", "us-east-2"),
        (["--region", "sa-east-1"], {"AWS_REGION": "eu-central-1"}, "KEYDEFAULT", "sa-east-1"),
        ([], {"AWS_PROFILE": "with-region"}, "KEYWITH", "ca-central-1"),
        ([], {"AWS_PROFILE": "with-region", "AWS_DEFAULT_PROFILE": "default"}, "KEYWITH", "ca-central-1"),
        ([], {"AWS_PROFILE": "with-region", "AWS_REGION": "eu-central-1"}, "KEYWITH", "eu-central-1"),
        (["--profile", "with-region"], {"AWS_PROFILE": "without-region"}, "KEYWITH", "ca-central-1"),
        (["--profile", "with-region"], ENVIRONMENT_KEYS, "KEYWITH", "ca-central-1"),
        (["--profile", "with-region"], WEB_IDENTITY, "KEYWITH", "ca-central-1"),
        ([], {"AWS_PROFILE": "with-region"} | ENVIRONMENT_KEYS, "KEYENV", "ca-central-1"),
    ],
)
def test_region_and_profile_are_those_of_the_aws_command_line(
    aws: Aws, home: Path, arguments: list[str], environment: dict[str, str], key: str, region: str
) -> None:
    done = gpucost(aws, home, *SHOW, *arguments, **environment)
    assert done.stderr == ("gpucost: stack 'gpucost-dev' was not found: Stack with id gpucost-dev does not exist\n")
    assert aws.callers == [(key, region, "cloudformation")]


def test_named_profile_may_take_its_credentials_from_the_environment(aws: Aws, home: Path) -> None:
    """The profile's role is assumed with the environment's keys, as its `credential_source` says."""
    gpucost(aws, home, *SHOW, "--profile", "role-of-environment", **ENVIRONMENT_KEYS)
    assert set(aws.callers) == {("KEYENV", "ca-central-1", "sts")}


@pytest.mark.parametrize(
    "command",
    [
        SHOW,
        ("report", "--stack", "gpucost-dev"),
        ("prices", "refresh", "--stack", "gpucost-dev"),
        ("dashboard", "--stack", "gpucost-dev"),
        ("backfill", "--stack", "gpucost-dev", "--from", "2026-10-01T00:00:00Z", "--to", "2026-10-01T01:00:00Z"),
    ],
)
def test_every_command_of_a_stack_says_that_no_region_is_set(aws: Aws, home: Path, command: tuple[str, ...]) -> None:
    done = gpucost(aws, home, *command, AWS_PROFILE="without-region")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpucost: no AWS region is set. Pass --region, set AWS_REGION, or ")
    assert len(done.stderr.splitlines()) == 1
    assert aws.callers == []


def test_profile_that_does_not_exist_is_named(aws: Aws, home: Path) -> None:
    done = gpucost(aws, home, *SHOW, "--profile", "nope")
    assert done.returncode == 2
    assert done.stderr.startswith("gpucost: AWS profile 'nope' does not exist. ")


def test_missing_credentials_are_explained_in_a_single_sentence(aws: Aws, home: Path) -> None:
    (home / "credentials").unlink()
    done = gpucost(aws, home, *SHOW)
    assert done.returncode == 1
    assert done.stderr.startswith("gpucost: no AWS credentials were found")
    assert len(done.stderr.splitlines()) == 1


def test_workspace_role_is_assumed_in_the_workspaces_region_by_default(aws: Aws, home: Path) -> None:
    settings = home / "settings.json"
    prometheus = {
        "url": "https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1",
        "auth": "sigv4",
        "region": "eu-west-1",
        "role_arn": "arn:aws:iam::123456789012:role/gpucost-query-a",
        "retention_days": 150,
    }
    settings.write_text(
        json.dumps(
            {
                "clusters": [{"name": "a", "prometheus": prometheus}],
                "pricing": {"source": "constant", "gpu_hourly_usd": 1},
            }
        )
    )
    hour = ("--hour", f"{datetime.now(UTC) - timedelta(days=2):%Y-%m-%dT%H:00:00Z}")
    command = ("attribute", "--settings", str(settings), *hour)
    done = gpucost(aws, home, *command, AWS_PROFILE="without-region")
    assert done.returncode == 1
    assert "could not be signed" in done.stderr
    assert set(aws.callers) == {("KEYWITHOUT", "eu-west-1", "sts")}
    gpucost(aws, home, *command, "--region", "eu-central-1", "--profile", "with-region", **WEB_IDENTITY)
    assert set(aws.callers) == {("KEYWITH", "eu-central-1", "sts")}
