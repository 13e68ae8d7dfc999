"""`gpucost` as a script would call it: exit status, one sentence on stderr, exact JSON on stdout."""

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pytest

from gpucost.domain.hours import format_instant
from local.cli import main
from local.prometheus import free_port
from local.template import REPOSITORY
from tests.system.timeline import HOUR, Timeline

GPUCOST = REPOSITORY / ".venv" / "bin" / "gpucost"
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def gpucost(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(GPUCOST), *arguments]
    own = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=own, timeout=120)


class Said(NamedTuple):
    """What a command said and ended with."""

    returncode: int | str | None
    stdout: str
    stderr: str


def in_this_process(*arguments: str) -> Said:
    """The same without a process of its own, which takes most of a second: for the many ways to be wrong."""
    out, err = io.StringIO(), io.StringIO()
    status: int | str | None = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            status = end.code
    return Said(status, out.getvalue(), err.getvalue())


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


def test_json_is_the_documented_shape_and_exact(settings: Callable[..., str], cluster: str) -> None:
    done = gpucost("attribute", "--settings", settings(url=cluster), "--hour", format_instant(HOUR), "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout, parse_float=Decimal)
    (hour,) = document["hours"]
    assert (hour["cluster"], hour["hour"], hour["status"]) == ("demo", format_instant(HOUR), "complete")
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
    assert sum(Decimal(one["allocated_usd"]) for one in hour["lines"]) == hour["totals"]["allocated_usd"]
    assert "E-" not in done.stdout


def test_several_hours_and_csv(settings: Callable[..., str], cluster: str) -> None:
    done = gpucost("attribute", "--settings", settings(url=cluster), "--hour", format_instant(HOUR), "--hours", "2",
                   "--format", "csv")  # fmt: skip
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 6
    assert {row["hour"] for row in rows} == {format_instant(HOUR), format_instant(HOUR + timedelta(hours=1))}
    assert {row["business_unit"] for row in rows} == {"'=cmd|calc"}


def test_the_table_is_for_people(settings: Callable[..., str], cluster: str) -> None:
    done = gpucost("attribute", "--settings", settings(url=cluster), "--hour", format_instant(HOUR), COLUMNS="100")
    assert done.returncode == 0
    assert "=cmd|calc" in done.stdout
    assert "$5.14" in done.stdout


def test_no_heartbeat_is_an_incomplete_hour_with_null_figures(settings: Callable[..., str], cluster: str) -> None:
    long_ago = format_instant(HOUR - timedelta(days=2))
    done = gpucost("attribute", "--settings", settings(url=cluster), "--hour", long_ago, "--format", "json")
    assert done.returncode == 0
    (hour,) = json.loads(done.stdout)["hours"]
    assert hour["status"] == "incomplete"
    assert set(hour["totals"].values()) == {None}
    assert hour["lines"] == []


ATTRIBUTE = ["attribute", "--settings", "{}", "--hour"]
OK = "2026-11-19T10:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["attribute", "--hour", OK], "Missing option '--settings'"),
        ([*ATTRIBUTE, "2026-11-19T10:15:00Z"], "not on the full hour"),
        ([*ATTRIBUTE, "yesterday"], "not a UTC time like 2026-11-19T10:00:00Z"),
        ([*ATTRIBUTE, "2026-11-19T10:00:00"], "not a UTC time"),
        ([*ATTRIBUTE, format_instant(NOW + timedelta(hours=1))], "not over yet"),
        ([*ATTRIBUTE, "2099-01-01T00:00:00Z"], "not over yet"),
        ([*ATTRIBUTE, "9999-12-31T23:00:00Z"], "outside the years"),
        (["report", "--api", "foo"], "not an address"),
        ([*ATTRIBUTE, OK, "--hours", "0"], "0 is not in the range"),
        ([*ATTRIBUTE, OK, "--format", "xml"], "'table', 'json', 'csv'"),
        (["attribute", "--settings", "/nowhere", "--hour", OK], "cannot be read: No such file"),
        (["nonsense"], "No such command 'nonsense'"),
        (["report"], "exactly one of --stack and --api is needed"),
        (["report", "--stack", "x", "--days", "7", "--window", "7d"], "give --start and --end, or --window, or --days"),
        (["report", "--stack", "x", "--filter", "team=a"], "is not DIMENSION=VALUES; dimensions: business_unit, "),
        (["report", "--stack", "x", "--filter", "zone=a", "--filter", "zone=b"], "--filter zone is given twice"),
        (["backfill", "--stack", "local", "--from", OK, "--to", OK], "must be after"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(settings: Callable[..., str], arguments: list[str], says: str) -> None:
    given = [settings() if argument == "{}" else argument for argument in arguments]
    done = in_this_process(*given)
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


CLUSTERS = "clusters: [{name: a, prometheus: {url: 'http://x'}}]\n"
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
            "pricing.source: Input should be 'override', 'capacity-block', 'cur'",
        ),
        (CLUSTERS + PRICING.replace(": 1}", ": 0}"), "pricing.gpu_hourly_usd: Input should be greater than 0"),
        (CLUSTERS.replace("http", "ftp") + PRICING, "clusters[0].prometheus.url"),
        ("clusters: [unclosed", "not valid YAML"),
        ("[" * 3000, "nested too deeply"),
        (CLUSTERS.replace("//x", "//user:secret@x") + PRICING, "must not hold credentials"),
        (CLUSTERS.replace("//x", "//[::1") + PRICING, "not an address"),
        (CLUSTERS + PRICING + "utilization: {ladder: pod}", "utilization.ladder: must be a list"),
        (CLUSTERS + PRICING + "utilization: {ladder: [pod, pod]}", "names a rung twice"),
        (
            CLUSTERS + PRICING + "alerts: {receivers: [{secret: gpucost/x}]}",
            "type is needed: slack, email or alertmanager",
        ),
        ("just text", "settings must be a mapping with the keys clusters, pricing"),
        ("a: 1\na: 2", "key 'a' stands twice"),
    ],
)
def test_wrong_settings_name_the_key_and_what_is_allowed(
    settings: Callable[..., str], document: str, says: str
) -> None:
    done = in_this_process("attribute", "--settings", settings(document), "--hour", "2026-11-19T10:00:00Z")
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_prometheus_away_is_a_failure_and_no_figure(settings: Callable[..., str]) -> None:
    path = settings(url=f"http://127.0.0.1:{free_port()}")
    done = gpucost("attribute", "--settings", path, "--hour", format_instant(HOUR), "--format", "json")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "could not be reached" in done.stderr


def test_an_hour_past_the_retention_is_refused_with_the_reason(settings: Callable[..., str], cluster: str) -> None:
    old = format_instant(NOW - timedelta(days=500))
    done = gpucost("attribute", "--settings", settings(url=cluster), "--hour", old)
    assert done.returncode == 2
    assert "past the retention" in done.stderr


def test_without_a_running_demo_the_local_stack_is_not_found(tmp_path: Path) -> None:
    done = gpucost("settings", "show", "--stack", "local", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "no demo is running" in done.stderr
