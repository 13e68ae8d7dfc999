"""`gpucost` as scripts call it: exit status, one sentence on stderr, exact JSON on stdout."""

import csv
import io
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from gpucost.core.hours import format_timestamp
from tests.gpucost_command import gpucost, in_this_process
from tests.system.timeline import HOUR, Timeline

NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., str]:
    def write(text: str = "", *, url: str = "http://127.0.0.1:9", pricing: str = "gpu_hourly_usd: 12") -> str:
        path = tmp_path / f"settings-{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(
            text
            or f'clusters: [{{name: demo, prometheus: {{url: "{url}"}}, slices_per_gpu: 7}}]\n'
            f"pricing: {{source: constant, {pricing}}}\n"
            "business_units: [{name: '=cmd|calc', namespaces: [bu-*]}]\n"
        )
        return str(path)

    return write


@pytest.fixture
def cluster(prometheus: Callable[[str], str]) -> str:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 7})
    for i in range(3):
        timeline.pod(f"a-{i}", namespace="bu-a")
    timeline.device(0.25, exported_pod="a-0", exported_namespace="bu-a")
    return prometheus(timeline.text())


def test_json_has_the_documented_shape_and_exact_numbers(settings: Callable[..., str], cluster: str) -> None:
    done = gpucost(
        "attribute", "--settings", settings(url=cluster), "--hour", format_timestamp(HOUR), "--format", "json"
    )
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout, parse_float=Decimal)
    (hour,) = document["hours"]
    assert (hour["cluster"], hour["hour"], hour["status"]) == ("demo", format_timestamp(HOUR), "complete")
    assert hour["coverage"]["allocation"] == 1
    assert {"capacity_gpu_hours", "unallocated_usd", "residual_usd", "unmeasured_gpu_hours"} <= hour["totals"].keys()
    assert hour["totals"]["capacity_gpu_hours"] == 1
    assert len(hour["lines"]) == 3
    line = hour["lines"][0]
    assert (line["pod"], line["effective_gpu_hours"], line["utilization_source"]) == (
        "a-0",
        Decimal("0.035714285714"),
        "pod",
    )
    assert hour["lines"][1]["effective_usd"] is None
    assert sum(Decimal(line["allocated_usd"]) for line in hour["lines"]) == hour["totals"]["allocated_usd"]
    assert "E-" not in done.stdout


def test_csv_of_several_hours(settings: Callable[..., str], cluster: str) -> None:
    done = gpucost(
        "attribute",
        "--settings",
        settings(url=cluster),
        "--hour",
        format_timestamp(HOUR),
        "--hours",
        "2",
        "--format",
        "csv",
    )
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 6
    assert {row["hour"] for row in rows} == {format_timestamp(HOUR), format_timestamp(HOUR + timedelta(hours=1))}
    assert {row["business_unit"] for row in rows} == {"'=cmd|calc"}


@pytest.mark.parametrize("hours", [1, 3])
def test_newest_hours_that_have_ended_are_the_default(settings: Callable[..., str], cluster: str, hours: int) -> None:
    started = datetime.now(UTC)
    done = gpucost("attribute", "--settings", settings(url=cluster), "--hours", str(hours), "--format", "json")
    shown = [hour["hour"] for hour in json.loads(done.stdout)["hours"]]
    expected = []
    for now in (started, datetime.now(UTC)):  # the hour may end during the command
        expected.append([f"{now - timedelta(hours=n):%Y-%m-%dT%H:00:00Z}" for n in range(hours, 0, -1)])
    assert shown in expected


def test_attribute_table_shows_business_units_and_node_cost_parts(settings: Callable[..., str], cluster: str) -> None:
    done = gpucost("attribute", "--settings", settings(url=cluster), "--hour", format_timestamp(HOUR), COLUMNS="100")
    assert done.returncode == 0
    rows = {cells[0]: cells[1:] for line in done.stdout.splitlines() if (cells := line.split())}
    assert (rows["=cmd|calc"][0], rows["=cmd|calc"][-2]) == ("0.429", "$5.14")
    assert rows["allocated"][:3] == ["0.429", "$5.14", "42.9%"]
    assert rows["unallocated"][:3] == ["0.571", "$6.86", "57.1%"]
    assert rows["stranded"][:3] == ["0.000", "$0.00", "0.0%"]
    assert rows["host"][:2] == rows["residual"][:2] == ["$0.00", "0.0%"]
    assert rows["node"] == ["cost", "1.000", "$12.00", "100.0%", *ADD_UP]
    assert "sum of" not in done.stdout
    assert max(len(text) for text in done.stdout.splitlines() if not text.startswith(SENTENCES)) <= 100


def test_attribute_names_labels_that_no_pod_has(settings: Callable[..., str], cluster: str) -> None:
    units = "[{name: chat, pod_labels: {team: chat}}, {name: research, namespace_labels: {team: research}}]"
    path = settings(
        f"clusters: [{{name: demo, prometheus: {{url: {cluster}}}}}]\n{PRICING}"
        f"business_units: {units}\ncost_labels: [team]\n"
    )
    done = gpucost("attribute", "--settings", path, "--hour", format_timestamp(HOUR))
    assert done.returncode == 0
    assert done.stderr == (
        "gpucost: no pod has the labels of the business units chat, research and no pod has the cost labels team. "
        f"If pods have the labels, run: gpucost doctor --settings {path}\n"
    )


def test_attribute_names_units_whose_namespaces_no_pod_has(settings: Callable[..., str], cluster: str) -> None:
    units = "[{name: chat, namespaces: ['*']}, {name: research, namespaces: ['research-.*', r2]}]"
    path = settings(f"clusters: [{{name: demo, prometheus: {{url: {cluster}}}}}]\n{PRICING}business_units: {units}\n")
    done = gpucost("attribute", "--settings", path, "--hour", format_timestamp(HOUR))
    assert done.returncode == 0
    assert done.stderr == (
        "gpucost: no pod with GPUs is in the namespaces of the business units research (research-.*, r2). If there are "
        f"such pods, correct the shell patterns; gpucost settings check {path} notes some mistakes\n"
    )


def test_attribute_table_begins_with_the_sum_over_the_hours_with_figures(
    settings: Callable[..., str], cluster: str
) -> None:
    first = format_timestamp(HOUR - timedelta(hours=3))  # two hours without samples, the rest with the same figures
    arguments = ("attribute", "--settings", settings(url=cluster), "--hour", first, "--hours", "5")
    done = gpucost(*arguments, COLUMNS="200")
    assert done.returncode == 0
    end = format_timestamp(HOUR + timedelta(hours=2))
    assert done.stdout.startswith(f"demo  {first} to {end}  sum of 3 of 5 hours")
    rows = {cells[0]: cells[1:] for line in done.stdout.splitlines() if (cells := line.split())}
    assert (rows["=cmd|calc"][0], rows["=cmd|calc"][-2]) == ("1.286", "$15.43")
    assert rows["unallocated"][:2] == ["1.714", "$20.57"]
    assert rows["node"] == ["cost", "3.000", "$36.00", "100.0%", *ADD_UP]
    assert "Prometheus has no samples of kube-state-metrics in this hour" in done.stdout
    assert "(3 of 5 hours)" in done.stdout
    each_hour = gpucost(*arguments, "--each-hour", COLUMNS="200").stdout
    assert each_hour.startswith(done.stdout)
    assert each_hour.count("business unit") == 4
    assert f"demo  {first} to {format_timestamp(HOUR - timedelta(hours=2))}  incomplete" in each_hour


def test_attribute_table_has_rows_by_any_fields_of_lines(settings: Callable[..., str], cluster: str) -> None:
    arguments = ("attribute", "--settings", settings(url=cluster), "--hour", format_timestamp(HOUR), "--group-by")
    done = gpucost(*arguments, "namespace, pod", COLUMNS="120")
    assert done.returncode == 0
    header, *rows = [line.split() for line in done.stdout.splitlines() if line.strip()][2:]
    assert header[:3] == ["namespace", "pod", "GPU-hours"]
    pods = rows[1 : [row[0] for row in rows].index("all")]
    assert {row[0] for row in pods} == {"bu-a"}
    assert sum(Decimal(row[2]) for row in pods) == Decimal("0.429")
    assert len({row[1] for row in pods}) == len(pods) == 3
    wrong = gpucost(*arguments, "namespaces")
    assert wrong.returncode == 2
    assert wrong.stderr == (
        "gpucost: --group-by: 'namespaces' is not one of business_unit, namespace, workload_kind, workload, pod, node, "
        "node_pool, instance_type, capacity_type, zone, gpu_model, resource. Did you mean namespace?\n"
    )


def test_attribute_table_marks_unknown_node_cost(
    settings: Callable[..., str], prometheus: Callable[[str], str]
) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.pod("a-0", namespace="bu-a")
    url = prometheus(timeline.text())
    done = gpucost("attribute", "--settings", settings(url=url), "--hour", format_timestamp(HOUR), COLUMNS="200")
    assert done.returncode == 0
    assert "— node cost, unallocated, stranded and host cost: no metric says what the nodes have" in done.stdout
    assert "unallocated  " not in done.stdout


@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
def test_attribute_without_any_figures_is_a_failure_that_names_doctor(
    settings: Callable[..., str], cluster: str, output_format: str
) -> None:
    path = settings(
        f'clusters: [{{name: demo, prometheus: {{url: "{cluster}"}}, selector: {{cluster: wrong}}}}]\n{PRICING}'
    )
    done = gpucost(
        "attribute", "--settings", path, "--hour", format_timestamp(HOUR), "--hours", "2", "--format", output_format
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("gpucost: cluster demo has no figures")
    # Once in all: a table shows the reason of each hour itself, on stdout.
    shown = done.stdout if output_format == "table" else done.stderr
    assert "Prometheus has no samples of kube-state-metrics in this hour" in shown
    assert ("no samples" in done.stderr) == (output_format != "table")
    assert done.stderr.endswith(f"run: gpucost doctor --settings {path}\n")
    if output_format == "json":
        hours = json.loads(done.stdout)["hours"]
        assert [hour["status"] for hour in hours] == ["incomplete", "incomplete"]
        assert [set(hour["totals"].values()) for hour in hours] == [{None}, {None}]
        assert [hour["lines"] for hour in hours] == [[], []]


def test_cluster_scaled_to_zero_costs_zero(settings: Callable[..., str], prometheus: Callable[[str], str]) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={})
    path = settings(url=prometheus(timeline.text()))
    done = gpucost("attribute", "--settings", path, "--hour", format_timestamp(HOUR), "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    (hour,) = json.loads(done.stdout)["hours"]
    assert (hour["status"], hour["totals"]["node_cost_usd"]) == ("complete", 0)


def test_unreachable_cluster_leaves_figures_of_others(
    settings: Callable[..., str], cluster: str, refused_url: str
) -> None:
    unreachable = refused_url
    path = settings(
        f'clusters: [{{name: unreachable, prometheus: {{url: "{unreachable}", retention_days: 30}}}}, '
        f'{{name: demo, prometheus: {{url: "{cluster}"}}}}]\n{PRICING}'
    )
    done = gpucost("attribute", "--settings", path, "--hour", format_timestamp(HOUR), "--format", "json")
    assert done.returncode == 1
    assert [hour["cluster"] for hour in json.loads(done.stdout)["hours"]] == ["demo"]
    assert "cluster unreachable: Prometheus at" in done.stderr
    assert "gpucost doctor" in done.stderr


def test_clusters_without_figures_are_named_on_stderr(settings: Callable[..., str], cluster: str) -> None:
    path = settings(
        f'clusters: [{{name: misspelled, prometheus: {{url: "{cluster}"}}, selector: {{cluster: nothing}}}}, '
        f'{{name: demo, prometheus: {{url: "{cluster}"}}}}]\n{PRICING}'
    )
    done = gpucost("attribute", "--settings", path, "--hour", format_timestamp(HOUR), "--format", "json")
    assert done.returncode == 0
    assert [hour["cluster"] for hour in json.loads(done.stdout)["hours"]] == ["demo", "misspelled"]
    assert done.stderr.startswith("gpucost: cluster misspelled has no figures: hour ")
    assert f"gpucost doctor --settings {path}" in done.stderr


ATTRIBUTE = ["attribute", "--settings", "{}", "--hour"]
OK = "2026-11-19T10:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["attribute", "--hour", OK], "pass --prometheus URL, such as http://127.0.0.1:9090, or --settings FILE"),
        ([*ATTRIBUTE, "2026-11-19T10:15:00Z"], "not on the full hour"),
        ([*ATTRIBUTE, "yesterday"], "not a UTC time like 2026-11-19T10:00:00Z"),
        ([*ATTRIBUTE, "2026-11-19T10:00:00"], "not a UTC time"),
        ([*ATTRIBUTE, format_timestamp(NOW + timedelta(hours=1))], "has not ended"),
        ([*ATTRIBUTE, "2099-01-01T00:00:00Z"], "has not ended"),
        ([*ATTRIBUTE, "9999-12-31T23:00:00Z"], "of 1971 to 9998"),
        (["report", "--api", "foo"], "is not a URL"),
        ([*ATTRIBUTE, OK, "--hours", "0"], "0 is not in the range"),
        ([*ATTRIBUTE, OK, "--format", "xml"], "'table', 'json', 'csv'"),
        (["attribute", "--settings", "/nowhere", "--hour", OK], "cannot be read: No such file"),
        (["nonsense"], "No such command 'nonsense'"),
        (["report"], "Without a deployment, run gpucost attribute --prometheus URL, or gpucost serve --prometheus URL"),
        (["report", "--stack", "x", "--days", "7", "--window", "7d"], "Pass --start and --end, or --window, or --days"),
        (["report", "--stack", "x", "--filter", "team=a"], "is not DIMENSION=VALUES. Dimensions: business_unit, "),
        (["report", "--stack", "x", "--filter", "zone=a", "--filter", "zone=b"], "--filter zone is passed twice"),
        (["backfill", "--stack", "local", "--from", OK, "--to", OK], "is not after"),
    ],
)
def test_invalid_input_exits_2_with_a_single_sentence(
    settings: Callable[..., str], arguments: list[str], says: str
) -> None:
    command = [settings() if argument == "{}" else argument for argument in arguments]
    done = in_this_process(*command)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("gpucost: ")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_bad_input_ends_the_script_with_status_2(settings: Callable[..., str]) -> None:
    done = gpucost("attribute", "--settings", settings(), "--hour", "yesterday")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpucost: ")
    assert len(done.stderr.splitlines()) == 1


def test_day_stands_for_its_first_hour(settings: Callable[..., str]) -> None:
    day = f"{NOW + timedelta(days=1):%Y-%m-%d}"
    done = in_this_process("attribute", "--settings", settings(), "--hour", day)
    assert done.returncode == 2
    assert f"hour {day}T00:00:00Z has not ended" in done.stderr
    done = in_this_process("backfill", "--stack", "local", "--start", "2026-11-02", "--end", "2026-11-01T00:00:00Z")
    assert (done.returncode, done.stderr) == (
        2,
        "gpucost: --to 2026-11-01T00:00:00Z is not after --from 2026-11-02T00:00:00Z. Pass a later --to\n",
    )


CLUSTERS = "clusters: [{name: a, prometheus: {url: 'http://x'}}]\n"
SENTENCES = ("note: ", "most waste: ", "— ")
ADD_UP = ["the", "parts", "add", "up", "exactly"]
PRICING = "pricing: {source: constant, gpu_hourly_usd: 1}\n"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("clusters: []\n" + PRICING, "clusters"),
        (
            PRICING + "clusters: [{name: a, prometheus: {url: 'http://x', auht: none}}]",
            "unknown key 'clusters[0].prometheus.auht'; allowed there: url, auth",
        ),
        (
            CLUSTERS + PRICING.replace("constant", "magic"),
            "pricing.source: must be 'override', 'capacity-block', 'cur'",
        ),
        (CLUSTERS + PRICING.replace(": 1}", ": 0}"), "pricing.gpu_hourly_usd: must be greater than 0"),
        (CLUSTERS.replace("http", "ftp") + PRICING, "clusters[0].prometheus.url"),
        ("clusters: [unclosed", "not valid YAML"),
        ("[" * 3000, "nested too deeply"),
        (CLUSTERS.replace("//x", "//user:secret@x") + PRICING, "must not contain credentials"),
        (CLUSTERS.replace("//x", "//[::1") + PRICING, "not an address"),
        (CLUSTERS + PRICING + "utilization: {sources: pod}", "utilization.sources: must be a list"),
        (CLUSTERS + PRICING + "utilization: {sources: [pod, pod]}", "contains pod twice; name each source once"),
        (
            CLUSTERS + PRICING + "alerts: {receivers: [{secret: gpucost/x}]}",
            "type is required: slack, email or alertmanager",
        ),
        ("just text", "settings must be a mapping. Required keys: clusters. Allowed keys: clusters, pricing"),
        ("a: 1\na: 2", "key 'a' appears twice"),
    ],
)
def test_invalid_settings_message_names_key_and_allowed_values(
    settings: Callable[..., str], document: str, says: str
) -> None:
    done = in_this_process("attribute", "--settings", settings(document), "--hour", "2026-11-19T10:00:00Z")
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Run a server that gives every request the same answer, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - a name that the base class looks up

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Keep the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def assert_no_figures(done: subprocess.CompletedProcess[str], says: str) -> None:
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
    assert "run: gpucost doctor --settings " in done.stderr


def test_unreachable_prometheus_is_a_failure(settings: Callable[..., str], refused_url: str) -> None:
    path = settings(url=refused_url)
    done = gpucost("attribute", "--settings", path, "--hour", format_timestamp(HOUR), "--format", "json")
    assert_no_figures(done, "could not be reached")


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (403, b"no", "answered 403 Forbidden"),
        (200, b"rubbish", "incomplete or invalid JSON"),
        (200, b'{"status":"success","data":{}}', "a format that is not Prometheus'"),
    ],
)
def test_refusing_or_broken_prometheus_is_a_failure(
    settings: Callable[..., str], status: int, body: bytes, says: str
) -> None:
    with answering(status, body) as url:
        done = gpucost("attribute", "--settings", settings(url=url), "--hour", format_timestamp(HOUR))
    assert_no_figures(done, says)


def test_hour_before_the_retention_is_refused(settings: Callable[..., str], cluster: str) -> None:
    old = format_timestamp(NOW - timedelta(days=500))
    done = gpucost("attribute", "--settings", settings(url=cluster), "--hour", old)
    assert done.returncode == 2
    assert "is older than the metrics of cluster demo" in done.stderr


def test_local_stack_without_running_demo_is_an_error(tmp_path: Path) -> None:
    done = gpucost("settings", "show", "--stack", "local", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "no demo is running" in done.stderr
