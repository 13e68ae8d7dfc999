"""What commands need that follow a remedy: a folder with files, a deployment's ledger, and a stand-in for servers.

Lines such as `AWS_REGION=eu-west-1 gpucost report … > costs.txt && rm settings.yaml` run in this process.
"""

import json
import os
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from gpucost.container import Container
from gpucost.core.ledger import ClosedMonth
from gpucost.features.recommendations.model import Recommendation, RecommendationSubject
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.runtime import aws
from gpucost.runtime.messages import HoursDue
from gpucost.runtime.process import Environment
from gpucost.storage.hour_versions import HourVersions
from gpucost.storage.ports import Table
from gpucost.storage.sqlite_table import FILE, SqliteTable
from gpucost_cli.local_service import LocalBus
from gpucost_cli.main import main
from gpucost_devstack.loopback import LoopbackServer, serving_in_background
from gpucost_devstack.template import REPOSITORY
from tests.chaos.script import ScriptedReader, document
from tests.chaos.simulated_deployment import NoLimits
from tests.features.recommendations.sample_recommendations import PROPOSED

NOW = datetime(2026, 11, 20, 0, 5, tzinfo=UTC)
FIRST = datetime(2026, 11, 18, tzinfo=UTC)
"""The first of two whole days with figures."""
CLUSTERS = ("east", "west")
STACK_OUTPUTS = (
    "TableName",
    "HoursQueueUrl",
    "BackfillQueueUrl",
    "DeadLetterQueueUrl",
    "InternalEventsTopicArn",
    "EventsTopicArn",
    "EmailTopicArn",
    "PricesFunctionName",
    "ExportFunctionName",
    "ExportBucketName",
    "RecommendFunctionName",
)
PROFILES = "[default]\n[profile work]\nregion = eu-central-1\naws_access_key_id = key\naws_secret_access_key = secret\n"
CLUSTER = "- {{name: {name}, prometheus: {{url: {prometheus}}}}}\n"
AMP = "'https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1', auth: sigv4, region: us-east-1"
PARAMETERS = (REPOSITORY / "cluster" / "parameters.yaml").read_text().replace("111122223333", "210987654321")
FILES = {
    "local.yaml": "clusters:\n" + CLUSTER.format(name="demo", prometheus="$URL/prometheus"),
    "service.yaml": "clusters:\n" + CLUSTER.format(name="demo", prometheus="http://prometheus.monitoring.svc:9090"),
    "two.yaml": "clusters:\n" + "".join(CLUSTER.format(name=name, prometheus=f"$URL/{name}") for name in "ab"),
    "amp.yaml": "clusters:\n"
    + CLUSTER.format(name="gpu-cost-poc", prometheus=AMP)
    + "business_units:\n"
    + "".join(f"- {{name: bu-{unit}, namespaces: [bu-{unit}]}}\n" for unit in "abc"),
    "parameters.yaml": PARAMETERS,
    "account.yaml": "account_id: '210987654321'\n",
    "email.yaml": document(CLUSTERS),
    "euro.yaml": document(CLUSTERS).replace('"gpu_hourly_usd": 12', '"gpu_hourly_usd": 12, "currency": "EUR"'),
    "slack.yaml": document(CLUSTERS).replace('"type": "email"', '"type": "slack", "secret": "gpucost/slack"'),
    "bearer.yaml": "clusters:\n"
    + CLUSTER.format(name="demo", prometheus="$URL/prometheus, auth: bearer, secret: gpucost/token"),
    "token": "abc",
    "password": "xyz",
}
"""Files in the folder."""
PROMETHEUS_PATHS = {"prometheus": "team", "empty": "", "several": "team"}


class Output(NamedTuple):
    """How a line ended, and what it printed."""

    status: int | str | None
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """Both outputs, without line breaks."""
        return " ".join((self.stdout + self.stderr).split())


class _Servers(BaseHTTPRequestHandler):
    """AWS, and Prometheus servers below the paths of `PROMETHEUS_PATHS`."""

    secrets: Mapping[str, str]
    hooks: list[Callable[[], None]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        path = urlsplit(self.path).path
        form = {name: texts[0] for name, texts in parse_qs(body or urlsplit(self.path).query).items()}
        if path.startswith("/redirecting"):
            self.send_response(302)
            self.send_header("Location", "/prometheus")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path.endswith(("/query", "/query_range")):
            for hook in self.hooks:
                hook()
            self._answer(200, json.dumps({"status": "success", "data": _metrics(path, form)}))
        elif target := self.headers.get("X-Amz-Target"):
            name = json.loads(body)["SecretId"]
            assert target == "secretsmanager.GetSecretValue"
            self._answer(200, json.dumps({"Name": name, "SecretString": self.secrets.get(name, "")}))
        elif form.get("Action") == "DescribeStacks":
            self._answer(*_stack(form["StackName"]))
        elif "Action" in form:
            self._answer(403, "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>")
        elif path.startswith("/workspaces"):
            self._answer(200, json.dumps(_workspaces(path, f"http://{self.headers['Host']}")))
        elif "/functions/" in path:
            self._answer(
                200, json.dumps({"refreshed": {"spot": 1}, "exported": [], "reviewed": [], "clusters_left": 0})
            )
        else:
            self._answer(404, "{}")

    do_GET = do_POST  # noqa: N815 - the base class looks it up

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep the test's output clean."""


def _metrics(path: str, form: Mapping[str, str]) -> dict[str, Any]:
    """A namespace with pods that request GPUs at the beginning of each range, and nothing at an instant."""
    if path.endswith("/query"):
        return {"resultType": "matrix" if form["query"].rstrip(")").endswith("]") else "vector", "result": []}
    server = path.split("/")[1]
    clusters: tuple[dict[str, str], ...] = ({"cluster": "a"}, {"cluster": "b"}) if server == "several" else ({},)
    series = [
        {"metric": labels | {"__name__": "kube_pod_info", "namespace": "team"}, "values": [[float(form["start"]), "1"]]}
        for labels in clusters
    ]
    return {"resultType": "matrix", "result": series if PROMETHEUS_PATHS[server] else []}


def _stack(name: str) -> tuple[int, str]:
    if name not in {"gpucost", "other"}:
        message = f"Stack with id {name} does not exist"
        return (
            400,
            f"<ErrorResponse><Error><Code>ValidationError</Code><Message>{message}</Message></Error></ErrorResponse>",
        )
    outputs = {name: f"gpucost-{name}" for name in STACK_OUTPUTS} | {
        "ApiUrl": "http://127.0.0.1:9",
        "PriceSources": "spot",
    }
    if name == "other":
        del outputs["ExportBucketName"]
    members = "".join(
        f"<member><OutputKey>{key}</OutputKey><OutputValue>{text}</OutputValue></member>"
        for key, text in outputs.items()
    )
    stack = (
        f"<member><StackName>{name}</StackName><CreationTime>2026-11-01T00:00:00Z</CreationTime>"
        f"<StackStatus>CREATE_COMPLETE</StackStatus><Outputs>{members}</Outputs></member>"
    )
    result = f"<DescribeStacksResult><Stacks>{stack}</Stacks></DescribeStacksResult>"
    return (
        200,
        f'<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">{result}</DescribeStacksResponse>',
    )


def _workspaces(path: str, server: str) -> dict[str, Any]:
    workspaces = [
        {"workspaceId": f"ws-{number}", "alias": "metrics", "prometheusEndpoint": f"{server}/prometheus/"}
        for number in (1, 2)
    ]
    number = path.rstrip("/")[-1]
    return {"workspace": workspaces[int(number) - 1]} if number.isdigit() else {"workspaces": workspaces}


def container_of(table: Table, **parts: Any) -> Container:
    """A deployment with scripted metrics on a table, and queues in memory."""
    defaults: dict[str, Any] = {
        "table": table,
        "bus": LocalBus(),
        "clock": lambda: NOW,
        "sleep": lambda _: None,
        "metrics_reader": lambda cluster, *_: ScriptedReader(cluster.name, FIRST, lambda: NOW),
        "limits_reader": lambda *_: NoLimits(),
    }
    return Container(Environment(table="ledger"), **{**defaults, **parts})


RECOMMENDATION = Recommendation(
    replace(PROPOSED, subject=RecommendationSubject("east", "research", "research", "Deployment", "a")),
    "open",
    NOW,
    NOW,
    NOW,
)


def fill(table: Table) -> None:
    """Store two days of two clusters, a closed month and a recommendation."""
    container = container_of(table)
    container.settings_store.push(document(CLUSTERS), author="me", now=NOW)
    for cluster in CLUSTERS:
        for hour in (FIRST, FIRST + timedelta(days=1)):
            container.attribute_service.attribute(
                HoursDue(
                    cluster=cluster,
                    first_hour=hour,
                    hours=24,
                    settings_version=1,
                    origin="backfill",
                    correlation_id="x",
                )
            )
    HourVersions(table).close_month(ClosedMonth("2026-10", NOW, "me", "invoiced"))
    DynamoRecommendations(table).put(RECOMMENDATION)


class World:
    """A folder, in which lines run against a copy of a filled ledger and against the stand-ins.

    Attributes:
        folder: the folder.
        url: address of the stand-ins.
        bus: queues of the deployment; `deliver` handles their messages.
        secrets: texts of the secrets by name.
        hooks: what happens at each query of metrics.
        parts: of the container, as `Container` takes them.
    """

    def __init__(
        self, folder: Path, ledger: Path, url: str, secrets: dict[str, str], hooks: list[Callable[[], None]]
    ) -> None:
        self.folder = folder
        self.url = url
        self.secrets = secrets
        self.hooks = hooks
        self.bus = LocalBus()
        self.parts: dict[str, Any] = {"bus": self.bus}
        shutil.copytree(ledger, folder / "deployment")
        shutil.copytree(ledger, folder / "served")
        self.table = self._open()
        with SqliteTable(folder / "unused"):
            pass
        (folder / "foreign").mkdir()
        with closing(sqlite3.connect(folder / "foreign" / FILE)) as foreign:
            foreign.execute("CREATE TABLE notes (text TEXT)")
        for name in ("text", "empty"):
            (folder / name).mkdir()
        (folder / "text" / FILE).write_text("not SQLite" * 1000)
        (folder / "aws.ini").write_text(PROFILES)
        for name, text in FILES.items():
            (folder / name).write_text(text.replace("$URL", url))

    def close(self) -> None:
        """Close the deployment's ledger."""
        self.table.__exit__(None, None, None)

    def _open(self) -> SqliteTable:
        return SqliteTable(self.folder / "deployment").__enter__()

    def run(self, line: str) -> Output:
        """Run the parts of a line, and return how the last one ended."""
        out, err = StringIO(), StringIO()
        status: int | str | None = 0
        for part in line.replace("$URL", self.url).replace("$RECOMMENDATION", RECOMMENDATION.id).split(" && "):
            words, _, target = part.partition(" > ")
            out, err = StringIO(), StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                status = self._run_words(shlex.split(words))
            if target:
                Path(target).write_text(out.getvalue())
        return Output(status, out.getvalue(), err.getvalue())

    def _run_words(self, words: list[str]) -> int | str | None:
        variables: dict[str, str] = {}
        while "=" in words[0]:
            name, _, text = words.pop(0).partition("=")
            variables[name] = text
        command, *arguments = words
        if command == "rm":
            Path(arguments[0]).unlink()
        elif command == "forget":
            self.close()
            shutil.rmtree(self.folder / "deployment")
            self.table = self._open()
        elif command == "secret":
            self.secrets[arguments[0]] = arguments[1]
        elif command == "deliver":
            self._deliver()
        elif command == "write":
            Path(arguments[0]).write_text(arguments[1].replace("\\n", "\n"))
        elif command == "edit":
            path, old, new = arguments
            assert old in Path(path).read_text()
            Path(path).write_text(Path(path).read_text().replace(old, new.replace("\\n", "\n")))
        else:
            assert command == "gpucost", words
            with self._environment(variables):
                try:
                    main(arguments, container_of(self.table, **self.parts))
                except SystemExit as end:
                    return end.code
        return 0

    def _deliver(self) -> None:
        """Do what the functions do with the queued messages."""
        container = container_of(self.table, **self.parts)
        for messages in self.bus.hours.values():
            while messages:
                message = messages.popleft()
                if isinstance(message, HoursDue):
                    container.attribute_service.attribute(message)
                else:
                    container.restate_service.restate(message)

    @contextmanager
    def _environment(self, variables: Mapping[str, str]) -> Iterator[None]:
        before = dict(os.environ)
        os.environ.update(variables)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
            aws.use_profile(None)


@contextmanager
def serving(secrets: Mapping[str, str], hooks: list[Callable[[], None]]) -> Iterator[str]:
    """Run the stand-ins with these secrets, and yield their address. Each query of metrics first calls the hooks."""
    server = LoopbackServer(0, type("Servers", (_Servers,), {"secrets": secrets, "hooks": hooks}))
    with serving_in_background(server):
        yield server.url


def environment(url: str, folder: Path) -> dict[str, str]:
    """The environment of the lines: AWS is the stand-in, and nothing of this machine's user is read."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_PROFILE": "",
        "AWS_CONFIG_FILE": str(folder / "aws.ini"),
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "COLUMNS": "200",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "GPUCOST_PROMETHEUS_TOKEN": "",
        "GPUCOST_PROMETHEUS_PASSWORD": "",
    }
