"""The whole system on one machine, against the fleet's truth, which is computed from its scenario alone."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path

import duckdb
import pytest
import requests
import simplejson

from local.fleet import demo, truth
from local.template import REPOSITORY
from tests.system.running_demo import GPUCOST, Demo, running_demo

UNITS = {"training": "research", "notebooks": "research", "chat": "assistant"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running_demo(tmp_path_factory.mktemp("demo")) as demo_of_its_own:
        yield demo_of_its_own


def run_to_end(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(GPUCOST), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=240)


def expected(running: Demo) -> dict[str, tuple[Fraction, Fraction]]:
    """(allocated, effective) USD by business unit, from the scenario alone."""
    units: dict[str, tuple[Fraction, Fraction]] = {}
    for hour in by_hour(running.end):
        for unit, (held, used) in hour.items():
            before = units.get(unit, (Fraction(0), Fraction(0)))
            units[unit] = (before[0] + held, before[1] + used)
    return units


@cache
def by_hour(end: datetime) -> list[dict[str, tuple[Fraction, Fraction]]]:
    """(allocated, effective) USD by business unit, hour by hour, from the scenario alone."""
    found = []
    for number in range(demo.HOURS):
        units: dict[str, tuple[Fraction, Fraction]] = {}
        for line in truth.hour(demo.scenario(end), number).lines:
            unit = UNITS.get(line.pod.namespace, line.pod.namespace)
            held, used = units.get(unit, (Fraction(0), Fraction(0)))
            effective = line.effective.value if line.effective else Fraction(0)
            price = Fraction(demo.GPU_HOURLY_USD)
            units[unit] = (held + line.allocated.value * price, used + effective * price)
        found.append(units)
    return found


def test_the_ledger_says_what_the_scenario_says(running: Demo) -> None:
    answer = running.ask(f"/v1/business-units?{running.period}")
    rows = {row["business_unit"]: row for row in answer["rows"]}
    assert rows.keys() == expected(running).keys()
    for unit, (held, used) in expected(running).items():
        assert float(rows[unit]["allocated_usd"]) == pytest.approx(float(held), rel=1e-9), unit
        assert float(rows[unit]["effective_usd"]) == pytest.approx(float(used), rel=1e-9), unit
    assert answer["coverage"]["hours_complete"] == answer["coverage"]["hours_expected"] == 72


def test_the_identity_holds_to_the_last_digit(running: Demo) -> None:
    totals = running.ask(f"/v1/costs?{running.period}&granularity=hour&group_by=business_unit")["totals"]
    parts = ("effective", "waste", "unmeasured", "unallocated", "stranded", "unobserved", "host", "residual")
    assert sum(totals[f"{part}_usd"] for part in parts) == totals["node_cost_usd"]
    scenario = demo.scenario(running.end)
    capacity = sum((truth.hour(scenario, number).capacity.value for number in range(demo.HOURS)), Fraction(0))
    assert float(totals["node_cost_usd"]) == pytest.approx(float(capacity * Fraction(demo.GPU_HOURLY_USD)), rel=1e-9)
    assert totals["residual_usd"] == 0


def test_what_is_printed_is_what_the_api_answers(running: Demo) -> None:
    for unit, (held, used) in expected(running).items():
        (row,) = [line for line in running.printed.splitlines() if line.split()[:1] == [unit]]
        assert f"${float(held):,.2f}" in row
        assert f"${float(held - used):,.2f}" in row
    assert "identity exact" in running.printed
    assert "unallocated" in running.printed


def test_alerts_are_those_that_the_scenario_calls_for(running: Demo) -> None:
    """By hand: a unit fires when waste ≥ $3 (assistant: $30) and ≥ 60% for three hours on end.

    The schedule runs for the last 24 hours; the first of them looks at the two before it, from the ledger.
    """
    fired = resolved = 0
    for unit in expected(running):
        limit = 30 if unit == "assistant" else 3
        run, firing = 0, False
        for hour in by_hour(running.end)[-26:]:
            held, used = hour.get(unit, (Fraction(0), Fraction(0)))
            wasted = held - used
            run = run + 1 if held and wasted >= limit and wasted >= held * Fraction(60, 100) else 0
            if firing and run == 0:
                resolved, firing = resolved + 1, False
            elif not firing and run >= 3:
                fired, firing = fired + 1, True
    assert fired > 2
    assert f"{fired + resolved} alerts of the last 24 hours" in running.printed
    assert running.printed.count("GPU waste alert resolved") == resolved
    assert f"{fired + resolved} emails, 0 dead letters" in running.printed


def test_other_commands_reach_the_running_demo(running: Demo) -> None:
    def gpucost(*arguments: str) -> str:
        done = subprocess.run(
            [GPUCOST, *arguments], capture_output=True, text=True, check=False, env=running.environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "identity exact" in gpucost("report", "--stack", "local")
    assert simplejson.loads(gpucost("report", "--api", running.url, "--format", "json"))["rows"]
    document = gpucost("settings", "show", "--stack", "local")
    assert simplejson.loads(document)["clusters"][0]["name"] == "demo"
    path = Path(running.environment["XDG_CACHE_HOME"]) / "settings.json"
    path.write_text(document)
    assert gpucost("settings", "push", str(path), "--stack", "local") == "version 2 is in force\n"
    assert len(gpucost("settings", "history", "--stack", "local").splitlines()) == 2
    assert "version 3" in gpucost("settings", "rollback", "--stack", "local", "--to", "1")


def test_the_api_refuses_what_is_not_there_or_wrong(running: Demo) -> None:
    assert requests.get(running.url + "/v1/nothing", timeout=30).status_code == 404
    wrong = requests.get(running.url + "/v1/costs?start=yesterday&end=2026-11-19T00:00:00Z", timeout=30)
    assert wrong.status_code == 400
    assert wrong.headers["content-type"].startswith("application/problem+json")
    assert requests.get(running.url + "/health", timeout=30).json() == {"status": "ok"}
    assert requests.get(running.url + "/openapi.json", timeout=30).json()["openapi"].startswith("3.1")


def test_once_ends_by_itself_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = run_to_end(["demo", "--once", "--port", "0"], environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "identity exact" in done.stdout
    assert not (tmp_path / "gpucost" / "local.json").exists()


def test_days_are_exported_and_sum_to_what_the_api_says(running: Demo, tmp_path: Path) -> None:
    today = running.end.replace(hour=0)
    days = f"start={today - timedelta(days=3):%Y-%m-%dT00:00:00Z}&end={today + timedelta(days=1):%Y-%m-%dT00:00:00Z}"
    rows = running.ask(f"/v1/exports?{days}")["rows"]
    scheduled = [row for row in rows if row["is_current"]]
    assert scheduled, "at 02:40, one of the last 24 hours"
    day = datetime.fromisoformat(scheduled[-1]["day"])
    done = run_to_end(
        ["export", "--stack", "local", "--from", f"{day:%Y-%m-%dT00:00:00Z}",
         "--to", f"{day + timedelta(days=1):%Y-%m-%dT00:00:00Z}"],
        running.environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\t")[:2] == [f"{day:%Y-%m-%d}", "demo"]
    path = tmp_path / "rows.parquet"
    (again,) = (row for row in running.ask(f"/v1/exports?{days}")["rows"] if row["day"] == scheduled[-1]["day"])
    assert again["version"] == scheduled[-1]["version"] + 1
    path.write_bytes(requests.get(again["parquet_url"], timeout=10).content)
    period = f"start={day:%Y-%m-%dT00:00:00Z}&end={day + timedelta(days=1):%Y-%m-%dT00:00:00Z}"
    asked = running.ask(f"/v1/costs?{period}&granularity=day&group_by=business_unit")
    with duckdb.connect() as connection:
        sql = f"SELECT x_BusinessUnit, sum(EffectiveCost) FROM '{path}' WHERE x_CostPart = 'allocated' GROUP BY 1"
        in_parquet = dict(connection.execute(sql).fetchall())
        ((fleet,),) = connection.execute(f"SELECT sum(EffectiveCost) FROM '{path}'").fetchall()
    assert in_parquet == {row["group"]["business_unit"]: row["allocated_usd"] for row in asked["rows"]}
    assert fleet == asked["totals"]["node_cost_usd"]


def test_every_curl_example_runs_as_written(running: Demo) -> None:
    pages = ("README.md", "docs/api.md")
    examples = [
        line
        for page in pages
        for line in re.findall(r"^curl .*127\.0\.0\.1:8080.*$", (REPOSITORY / page).read_text(), re.MULTILINE)
    ]
    assert len(examples) >= 15
    for example in examples:
        command = example.replace("http://127.0.0.1:8080", running.url) + " --silent --show-error --fail-with-body"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, (example, done.stdout[-500:], done.stderr)


def test_a_report_by_workload_in_a_terminal_is_the_apis(running: Demo) -> None:
    question = ["--days", "2", "--group-by", "workload", "--idle", "shared-by-allocation", "--sort=-cost_usd"]
    shown = run_to_end(["report", "--stack", "local", *question], running.environment)
    assert shown.returncode == 0, shown.stderr
    asked = "/v1/costs?window=2d&granularity=total&group_by=workload&idle=shared-by-allocation&sort=-cost_usd"
    answer = running.ask(asked)
    assert sum(row["cost_usd"] for row in answer["rows"]) == answer["totals"]["node_cost_usd"] > 0
    for row in answer["rows"]:
        assert f"${row['cost_usd']:,.2f}" in shown.stdout
    table = run_to_end(["report", "--stack", "local", *question, "--format", "csv"], running.environment).stdout
    assert len(table.splitlines()) == 1 + len(answer["rows"])


def test_node_pools_stand_against_karpenters_limits(running: Demo) -> None:
    rows = running.ask("/v1/nodepools?window=2h")["rows"]
    assert rows
    assert {row["limit"] for row in rows} == {64}
    assert all(0 < row["used"] <= 64 for row in rows)
