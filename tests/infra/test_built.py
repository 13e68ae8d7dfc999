"""Runs each handler from the built artifacts only, with the event of its trigger."""

import ast
import base64
import gzip
import json
import marshal
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

import pytest
from samtranslator.yaml_helper import yaml_parse

from gpucost.core.hours import format_timestamp
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost_devstack.artefacts import LAYERS, function_entry
from gpucost_devstack.aws import STACK, Deployed, client_environment, create_stack, local_client, running_aws
from gpucost_devstack.functions import WORKER, LocalFunction
from gpucost_devstack.template import REPOSITORY
from tests.single_cluster_settings import settings_text
from tests.system.timeline import HOUR, Timeline

MEGABYTE = 1_000_000
FUNCTIONS = (
    "DispatchFunction",
    "AttributeFunction",
    "AlertFunction",
    "ApiFunction",
    "PricesFunction",
    "ExportFunction",
    "RecommendFunction",
)
MODULES = {
    "DispatchFunction": 274,
    "AttributeFunction": 278,
    "AlertFunction": 274,
    "ApiFunction": 562,
    "PricesFunction": 274,
    "ExportFunction": 274,
    "RecommendFunction": 274,
}
"""The largest number of modules in a process that has imported the handler."""
UNZIPPED = {"DependenciesLayer": 34.5, "CommonLayer": 6.01}
"""Megabytes of this machine's build at most: four fifths of the dependencies are their bytecode and compiled parts."""
UNCHECKED_HASH = 1
"""Flags of bytecode that Python uses without checking its source (PEP 552). SAM and zip change file times."""


def event(name: str) -> Any:
    return json.loads((REPOSITORY / "events" / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def aws() -> Iterator[tuple[str, Deployed]]:
    with running_aws() as endpoint:
        yield endpoint, create_stack(endpoint, "http://127.0.0.1:1", {})


@pytest.fixture(scope="module")
def run(built: Path, aws: tuple[str, Deployed]) -> Iterator[Any]:
    endpoint, deployed = aws
    with ExitStack() as running:
        functions = {}
        for name, environment in deployed.environments.items():
            handler, folders = function_entry(built, name)
            functions[name] = LocalFunction(
                name,
                handler,
                folders,
                {**environment, **client_environment(endpoint)},
                interpreter=sys.executable,
                isolated=True,
            )
            running.callback(functions[name].stop)
        yield lambda name, event: functions[name].invoke(event)


def push(aws: tuple[str, Deployed], text: str) -> None:
    endpoint, deployed = aws
    client = local_client("dynamodb", endpoint)
    store = SettingsDocumentStore(DynamoDBTable(client, deployed.outputs["TableName"]), clock=lambda: datetime.now(UTC))
    store.push(text, author="test", now=datetime.now(UTC))


def metrics_of_a_tick(built: Path, aws: tuple[str, Deployed]) -> list[dict[str, Any]]:
    """The metrics of dispatch in CloudWatch's embedded metric format."""
    endpoint, deployed = aws
    handler, folders = function_entry(built, "DispatchFunction")
    done = subprocess.run(
        [sys.executable, "-I", "-S", WORKER, handler, *folders],
        input=json.dumps(event("schedule")) + "\n",
        env={**deployed.environments["DispatchFunction"], **client_environment(endpoint)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "hours_sent" in done.stdout.splitlines()[-1], done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    return [line for line in lines if "_aws" in line]


def test_package_contains_the_bill_statements(built: Path) -> None:
    def statements(package: Path) -> dict[str, str]:
        return {path.name: path.read_text() for path in (package / "sources" / "bill" / "statements").iterdir()}

    committed = statements(REPOSITORY / "layers" / "common" / "gpucost")
    assert len(committed) == 4
    assert statements(built / "CommonLayer" / "python" / "gpucost") == committed


def test_package_contains_the_workspace_template(built: Path) -> None:
    nested = yaml_parse((built / "template.yaml").read_text())["Resources"]["Observability"]["Properties"][
        "TemplateURL"
    ]
    resources = yaml_parse((built / nested).read_text())["Resources"]
    assert resources.keys() == {"Workspace", "GrafanaRole", "GrafanaWorkspace"}


@pytest.mark.parametrize(("logical", "file"), [("AmpRules", "amp-alerts"), ("AmpRecordingRules", "amp-rules")])
def test_package_contains_the_rules_for_amp(built: Path, logical: str, file: str) -> None:
    resources = yaml_parse((built / "template.yaml").read_text())["Resources"]
    nested = built / resources[logical]["Properties"]["TemplateURL"]
    committed = yaml_parse((REPOSITORY / "dashboards" / f"{file}.yaml").read_text())
    assert yaml_parse(nested.read_text())["Resources"] == committed["Resources"]


def test_handlers_do_nothing_before_the_first_push(run: Any, built: Path, aws: tuple[str, Deployed]) -> None:
    assert run("DispatchFunction", event("schedule")) == {"hours_sent": 0, "hours_to_restate": 0}
    assert metrics_of_a_tick(built, aws) == [], "alarms stay silent"
    assert run("AlertFunction", event("tick")) is None
    assert run("PricesFunction", event("prices")) == {"refreshed": {}}
    assert run("ExportFunction", event("export")) == {"exported": [], "days_left": 0}
    assert run("RecommendFunction", event("recommend")) == {"reviewed": [], "clusters_left": 0}
    answer = run("ApiFunction", event("api-costs"))
    assert answer["statusCode"] == 503
    assert "settings push" in answer["body"]


def test_each_handler_works_with_only_the_built_artifacts(run: Any, aws: tuple[str, Deployed], prometheus: Any) -> None:
    timeline = Timeline(cluster="demo")
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.pod("p")
    push(aws, settings_text(prometheus(timeline.text())))

    hours = event("hours")
    body = json.loads(hours["Records"][0]["body"]) | {"first_hour": format_timestamp(HOUR)}
    hours["Records"][0]["body"] = json.dumps(body)
    assert run("AttributeFunction", hours) == {"batchItemFailures": []}
    # The recorded hour is before all samples, so it is incomplete, and not a dead letter.
    assert run("AttributeFunction", event("hours")) == {"batchItemFailures": []}

    costs = event("api-costs")
    costs["queryStringParameters"] = {
        "start": format_timestamp(HOUR),
        "end": format_timestamp(HOUR + timedelta(hours=1)),
        "group_by": "namespace",
    }
    answer = run("ApiFunction", costs)
    assert answer["statusCode"] == 200, answer
    assert [row["allocated_usd"] for row in json.loads(answer["body"])["rows"]] == [12]

    assert run("AlertFunction", event("hour-published")) is None
    assert run("PricesFunction", event("prices")) == {"refreshed": {}}, "no source is on"
    due = {**event("recommend"), "scheduled_time": format_timestamp(HOUR + timedelta(hours=1))}
    assert run("RecommendFunction", due) == {
        "reviewed": [{"cluster": "demo", "recommendations": 0, "workloads": 1}],
        "clusters_left": 0,
    }, "an hour is too little for recommendations"
    day = format_timestamp(HOUR.replace(hour=0))
    request = {**event("export"), "first_day": day, "days": 1}
    (exported,) = run("ExportFunction", request)["exported"]
    assert exported == {"cluster": "demo", "day": day[:10], "status": "incomplete", "rows": 2}, "a pod, and a free GPU"
    # At the scheduled time the recorded hour has just closed and waits for its retry, so nothing else is due.
    assert run("DispatchFunction", event("schedule")) == {"hours_sent": 0, "hours_to_restate": 0}


def test_only_the_api_function_contains_the_page(run: Any, built: Path) -> None:
    committed = event("api-costs")
    request = {**committed, "routeKey": "GET /", "rawPath": "/", "rawQueryString": ""}
    request["requestContext"] = {
        **request["requestContext"],
        "http": {**request["requestContext"]["http"], "path": "/"},
    }
    answer = run("ApiFunction", {**request, "queryStringParameters": {}})
    assert answer["statusCode"] == 200, answer
    (script,) = (built / "ApiFunction" / "page" / "assets").glob("index-*.js")
    body = base64.b64decode(answer["body"]) if answer["isBase64Encoded"] else answer["body"].encode()
    text = gzip.decompress(body) if answer["headers"].get("Content-Encoding") == "gzip" else body
    assert script.name.encode() in text
    assert not list((built / "CommonLayer").rglob("*.js"))


def test_invalid_message_goes_to_the_dead_letter_queue_with_the_reason(run: Any, aws: tuple[str, Deployed]) -> None:
    endpoint, deployed = aws
    broken = event("hours")
    broken["Records"][0]["body"] = broken["Records"][0]["body"].replace('"hours":1', '"hours":99')
    assert run("AttributeFunction", broken) == {"batchItemFailures": []}
    sqs = local_client("sqs", endpoint)
    queue = deployed.outputs["DeadLetterQueueUrl"]
    (letter,) = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"])["Messages"]
    assert "hours: Input should be less than or equal to 24" in letter["MessageAttributes"]["reason"]["StringValue"]
    assert '"hours":99' in letter["Body"]


def test_overdue_alarm_watches_the_metric_of_dispatch(
    built: Path, aws: tuple[str, Deployed], template: dict[str, Any]
) -> None:
    push(aws, settings_text("http://127.0.0.1:1"))
    (line,) = metrics_of_a_tick(built, aws)
    alarm = template["Resources"]["HoursOverdueAlarm"]["Properties"]
    (declared,) = line["_aws"]["CloudWatchMetrics"]
    assert declared["Namespace"] == alarm["Namespace"]
    assert alarm["MetricName"] in {metric["Name"] for metric in declared["Metrics"]}
    watched = {
        dimension["Name"]: STACK if dimension["Value"] == {"Ref": "AWS::StackName"} else dimension["Value"]
        for dimension in alarm["Dimensions"]
    }
    assert [sorted(names) for names in declared["Dimensions"]] == [sorted(watched)]
    assert watched.items() <= line.items()


def test_lambda_layer_is_small_and_of_a_single_architecture(built_for_lambda: Path, built: Path) -> None:
    files = [path for path in built_for_lambda.rglob("*") if path.is_file()]
    core = sum(path.stat().st_size for path in files)
    assert core <= 50 * MEGABYTE
    libraries = [path for path in files if path.suffix == ".so"]
    assert libraries
    for library in libraries:
        assert "aarch64" in library.name or library.read_bytes()[18:20] == b"\xb7\x00", library.name
    for name in FUNCTIONS:
        size = sum(
            path.stat().st_size
            for part in (name, "CommonLayer")
            for path in (built / part).rglob("*")
            if path.is_file()
        )
        assert core + size <= 200 * MEGABYTE


def test_export_with_its_layer_fits_lambda(built_for_lambda: Path, duckdb_for_lambda: Path, built: Path) -> None:
    parts = (built_for_lambda, duckdb_for_lambda, built / "CommonLayer", built / "ExportFunction")
    sizes = [sum(path.stat().st_size for path in part.rglob("*") if path.is_file()) for part in parts]
    assert sum(sizes) <= 200 * MEGABYTE
    (engine,) = duckdb_for_lambda.rglob("_duckdb*.so")
    assert engine.read_bytes()[18:20] == b"\xb7\x00", "for arm64"


def imported(built: Path, name: str, code: str = "print(*sys.modules)") -> list[str]:
    """The modules of a process that has imported a handler, or what other code prints there."""
    _, folders = function_entry(built, name)
    script = f"import sys; sys.path[:0] = {[str(folder) for folder in folders]!r}; import app; {code}"
    environment = {
        "GPUCOST_TABLE": "t",
        "POWERTOOLS_SERVICE_NAME": "x",
        "POWERTOOLS_METRICS_NAMESPACE": "GpuCost",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.split()


def test_functions_import_no_more_modules_than_before(built: Path) -> None:
    for name in FUNCTIONS:
        modules = imported(built, name)
        assert len(modules) <= MODULES[name], f"{name}: if this is intended, raise the bound"
        assert "boto3" not in modules, f"{name} creates its clients lazily"
        assert not {"duckdb", "requests"} & {*modules}, name
        if name != "ApiFunction":
            assert "aws_lambda_powertools.event_handler" not in modules, name


@pytest.mark.parametrize("service", ["dispatch", "attribute"])
def test_services_import_no_http_client_and_no_records_of_alerts(built: Path, service: str) -> None:
    modules = imported(built, f"{service.title()}Function", f"app.CONTAINER.{service}_service; print(*sys.modules)")
    assert f"gpucost.pipeline.{service}" in modules
    assert "gpucost.settings_document" in modules
    assert not {"requests", "gpucost.features.alerting.model", "difflib", "yaml"} & {*modules}


def test_no_function_looks_for_plugins_of_pydantic(built: Path, aws: tuple[str, Deployed]) -> None:
    """Pydantic would open the metadata of every package."""
    script = (
        "import sys; opened = []; "
        "sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == 'open' else None); "
        "sys.path[:0] = {folders!r}; import app; print(*(path for path in opened if path.endswith('entry_points.txt')))"
    )
    for name in FUNCTIONS:
        folders = [str(folder) for folder in function_entry(built, name)[1]]
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-c", script.format(folders=folders)],
            capture_output=True,
            text=True,
            check=True,
            env=aws[1].environments[name],
        )
        assert done.stdout.split() == [], name


@pytest.mark.parametrize("function", ["DispatchFunction", "ApiFunction"])
def test_no_validator_of_settings_is_built_before_a_document_is_read(built: Path, function: str) -> None:
    code = (
        "from gpucost.settings_document import SettingsDocument as document; "
        "defaults = [field.default for field in document.model_fields.values()]; "
        "print(*(type(each).__name__ for each in defaults if getattr(each, '__pydantic_complete__', False)))"
    )
    assert imported(built, function, code) == []


@pytest.mark.parametrize("layer", UNZIPPED)
def test_no_layer_is_larger_than_before(built: Path, layer: str) -> None:
    size = sum(path.stat().st_size for path in (built / layer).rglob("*") if path.is_file()) / MEGABYTE
    assert size <= UNZIPPED[layer], "if this is intended, raise the bound"


@pytest.mark.parametrize("layer", LAYERS)
def test_every_module_has_unchecked_bytecode(built: Path, layer: str) -> None:
    """Lambda cannot write to /opt, so modules without bytecode are compiled in every cold start."""
    sources = list((built / layer / "python").rglob("*.py"))
    assert len(sources) > 150
    for source in sources:
        compiled = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        content = compiled.read_bytes()
        assert content[:4] == MAGIC_NUMBER, source
        assert struct.unpack("<I", content[4:8]) == (UNCHECKED_HASH,), source
        if source.name == "bootstrap.py":
            assert marshal.loads(content[16:]).co_filename == "/opt/python/gpucost/container.py", "as tracebacks say"


def test_only_called_aws_services_are_kept(built: Path) -> None:
    called = set()
    for source in (REPOSITORY / "layers" / "common" / "gpucost").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                makes_client = re.fullmatch(r"_?clients?|create_client|client_in_role|self", name)
                if makes_client and isinstance(node.args[0].value, str):
                    called.add(node.args[0].value)
    data = built / "DependenciesLayer" / "python" / "botocore" / "data"
    assert {path.name for path in data.iterdir() if path.is_dir()} == called
    assert json.loads((data / "endpoints.json").read_text())["partitions"]
