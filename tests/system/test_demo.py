"""The whole system on one machine, compared with true figures computed from the scenario."""

import os
import re
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cache
from pathlib import Path
from unittest.mock import patch

import duckdb
import pytest
import requests
import simplejson

from gpucost_cli import demo as demo_command
from gpucost_cli.demo_summary import PARTS, UNITS_SHOWN
from gpucost_devstack.fleet import demo, truth
from gpucost_devstack.fleet.scenario import Pod
from gpucost_devstack.loopback import listen
from tests import forked_gpucost
from tests.documentation.shell_commands import HOST, PAGES, script, tokens
from tests.listening_addresses import listening_addresses
from tests.system.demo_record import another_demo
from tests.system.documented_stack_commands import check_run, runs_for_demo, write_settings_files
from tests.system.running_demo import GPUCOST, HOURS, Demo, true_hours


@pytest.fixture(scope="module")
def running(demo: Demo) -> Iterator[Demo]:
    yield demo
    demo.stop()


def run_to_end(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    if arguments[0] == "demo":
        command = [str(GPUCOST), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=240)
    return forked_gpucost.run(*arguments, env=environment)


def every_hour(end: datetime, count: int = HOURS) -> list[truth.TrueHour]:
    """The true figures of all clusters' hours in which something was scraped."""
    return [
        hour for hours in true_hours(end - timedelta(hours=count), end).values() for hour in hours if hour is not None
    ]


def unit_of(pod: Pod) -> str:
    """The business unit of a pod, by the patterns of the settings."""
    units = demo.settings_document(dict.fromkeys(demo.CLUSTERS, ""))["business_units"]
    matching = (
        unit["name"] for unit in units if any(fnmatchcase(pod.namespace, pattern) for pattern in unit["namespaces"])
    )
    return next(matching, pod.namespace)


@cache
def expected(end: datetime, count: int = HOURS) -> dict[str, tuple[Fraction, Fraction]]:
    """(allocated, effective) GPU-hours by business unit, from the scenario."""
    units: dict[str, tuple[Fraction, Fraction]] = {}
    for hour in every_hour(end, count):
        for line in hour.lines:
            held, used = units.get(unit_of(line.pod), (Fraction(0), Fraction(0)))
            effective = line.effective_gpu_hours.value if line.effective_gpu_hours else Fraction(0)
            units[unit_of(line.pod)] = held + line.allocated_gpu_hours.value, used + effective
    return units


def test_ledger_matches_scenario(running: Demo) -> None:
    answer = running.ask(f"/v1/business-units?{running.period}")
    rows = {row["business_unit"]: row for row in answer["rows"]}
    assert rows.keys() == expected(running.end).keys()
    for unit, (held, used) in expected(running.end).items():
        assert float(rows[unit]["allocated_gpu_hours"]) == pytest.approx(float(held), rel=1e-9), unit
        assert float(rows[unit]["effective_gpu_hours"]) == pytest.approx(float(used), rel=1e-9), unit
    assert answer["coverage"]["hours_complete"] == len(every_hour(running.end))
    assert answer["coverage"]["hours_expected"] == HOURS * len(demo.CLUSTERS)


def test_cost_identity_holds_to_the_last_digit(running: Demo) -> None:
    totals = running.ask(f"/v1/costs?{running.period}&granularity=hour&group_by=business_unit")["totals"]
    assert sum(totals[f"{part}_usd"] for part in PARTS) == totals["node_cost_usd"] > 0
    capacity = sum((hour.capacity.value for hour in every_hour(running.end)), Fraction(0))
    assert float(totals["capacity_gpu_hours"]) == pytest.approx(float(capacity), rel=1e-9)
    assert totals["residual_usd"] == 0


def test_printed_summary_fits_a_screen_and_matches_api(running: Demo) -> None:
    screen = running.printed.partition(" alerts, newest first")[0].strip().splitlines()[:-1]
    assert len(screen) <= 24
    assert all(len(line) <= 100 for line in screen if "http" not in line)
    answer = running.ask(f"/v1/business-units?{running.period}")
    rows = sorted(answer["rows"], key=lambda row: -row["waste_usd"])
    for row in rows[:UNITS_SHOWN]:
        (line,) = [line for line in screen if line.split()[:1] == [row["business_unit"]]]
        assert [f"${row[f'{part}_usd']:,.2f}" for part in ("allocated", "effective", "waste")] == line.split()[2:5]
    assert any(line.strip() == f"… {len(rows) - UNITS_SHOWN} more" for line in screen)
    shown = " ".join(" ".join(screen).split())
    totals = answer["totals"]
    identity = [f"{part} ${totals[f'{part}_usd']:,.2f}" for part in PARTS if totals[f"{part}_usd"]]
    assert f"node cost ${totals['node_cost_usd']:,.2f} = {' + '.join(identity)} (identity exact)" in shown
    for row in running.ask(f"/v1/waste?{running.period}&limit=3")["rows"]:
        assert f"{row['namespace']}/{row['workload']} ({row['business_unit']}, {row['cluster']})" in shown


def idle_workloads(end: datetime, number: int) -> set[tuple[str, str]]:
    """(cluster, workload) of those that hold a GPU and use less than 2% of what is measured, in an hour."""
    idle = set()
    for cluster, hours in true_hours(end - timedelta(hours=HOURS), end).items():
        lines_by_workload: dict[str, list[truth.TrueLine]] = defaultdict(list)
        hour = hours[number]
        for line in () if hour is None else hour.lines:
            if not line.pod.namespace.startswith("dev"):  # the settings have another limit for these
                name = line.pod.owners[-1][1] if line.pod.owners else line.pod.name
                lines_by_workload[name].append(line)
        for name, lines in lines_by_workload.items():
            gpus = sum((line.allocated_gpu_hours.value for line in lines), Fraction(0))
            measured = gpus - sum((line.unmeasured_gpu_hours.value for line in lines), Fraction(0))
            used = sum((line.effective_gpu_hours.value for line in lines if line.effective_gpu_hours), Fraction(0))
            if gpus >= 1 and used * 50 < measured:
                idle.add((cluster, name))
    return idle


def test_alerts_fire_for_workloads_that_idle_for_a_day(running: Demo) -> None:
    answer = running.ask(f"/v1/alerts?{running.period}")
    firing = {
        (alert["subject"]["cluster"], alert["subject"]["workload"])
        for alert in answer["active"]
        if alert["rule"] == "idle-workload" and alert["phase"] == "firing"
    }
    last_day = [idle_workloads(running.end, number) for number in range(HOURS - 24, HOURS)]
    assert set.intersection(*last_day) <= firing
    assert firing <= set.union(*last_day)
    assert firing


def test_every_alert_is_in_messages_and_in_the_printed_list(running: Demo) -> None:
    history = running.ask(f"/v1/alerts?{running.period}")["history"]
    assert f"{len(history)} alerts, newest first" in running.printed
    titles = {
        "waste": "GPU waste alert",
        "idle-workload": "Idle GPU workload",
        "unallocated": "Unallocated GPU capacity",
    }
    for rule, title in titles.items():
        events = [event["event"] for event in history if event["rule"] == rule]
        assert running.printed.count(title) == len(events)
        assert running.printed.count(f"{title} resolved") == events.count("resolved")
    (messages,) = re.findall(r"^(\d+) messages of the last 24 hours", running.printed, re.MULTILINE)
    assert f"{messages} emails, 0 dead letters" in running.printed


def test_other_commands_reach_the_running_demo(running: Demo) -> None:
    def gpucost(*arguments: str) -> str:
        done = run_to_end(arguments, running.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "the parts add up exactly" in gpucost("report", "--stack", "local")
    assert simplejson.loads(gpucost("report", "--api", running.url, "--format", "json"))["rows"]
    document = gpucost("settings", "show", "--stack", "local")
    assert document.endswith("}\n")
    assert simplejson.loads(document)["clusters"][0]["name"] == demo.CLUSTERS[0]
    path = Path(running.environment["XDG_CACHE_HOME"]) / "settings.json"
    path.write_text(document)
    assert gpucost("settings", "push", str(path), "--stack", "local") == "version 2 is in force\n"
    versions = simplejson.loads(gpucost("settings", "history", "--stack", "local", "--format", "json"))["versions"]
    assert [version["version"] for version in versions] == [2, 1]
    assert "version 3" in gpucost("settings", "rollback", "--stack", "local", "--to", "1")
    assert "1970" not in gpucost("prices", "list", "--stack", "local")
    reviewed = gpucost("recommendations", "run", "--stack", "local").splitlines()
    assert [line.partition("\t")[0] for line in reviewed] == sorted(demo.CLUSTERS)
    assert "no recommendations" in gpucost("recommendations", "list", "--stack", "local"), (
        "two days are too few for recommendations"
    )


def test_api_refuses_unknown_paths_and_invalid_parameters(running: Demo) -> None:
    assert requests.get(running.url + "/v1/nothing", timeout=30).status_code == 404
    wrong = requests.get(running.url + "/v1/costs?start=yesterday&end=2026-11-19T00:00:00Z", timeout=30)
    assert wrong.status_code == 400
    assert wrong.headers["content-type"].startswith("application/problem+json")
    assert requests.get(running.url + "/health", timeout=30).json() == {"status": "ok"}
    assert requests.get(running.url + "/openapi.json", timeout=30).json()["openapi"].startswith("3.1")


def test_demo_once_ends_and_leaves_no_files(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "AWS_PROFILE": "not-there"}
    with listen(0) as listener:  # it needs no port, so a port in use does not matter
        done = run_to_end(["demo", "--once", "--hours", "1", "--port", str(listener.getsockname()[1])], environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "identity exact" in " ".join(done.stdout.split())
    assert not [*tmp_path.rglob("*.json")]


def test_demo_checks_its_port_before_it_works(running: Demo, tmp_path: Path) -> None:
    port = running.url.rpartition(":")[2]
    done = run_to_end(["demo", "--port", port], {**running.environment, "XDG_CACHE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gpucost: port {port} is taken; choose another with --port, or with PORT of make demo\n"
    assert not [*tmp_path.iterdir()], "it made files"


def test_demo_servers_listen_on_loopback_only(running: Demo) -> None:
    assert listening_addresses(running.process.pid) == {"127.0.0.1"}


def test_commands_reach_the_demo_that_they_name(running: Demo) -> None:
    port = running.url.rpartition(":")[2]
    names = ", ".join(sorted([f"local:{port}", "local:1"], key=lambda name: int(name[6:])))
    with another_demo(Path(running.environment["XDG_CACHE_HOME"]), 1) as other:
        completed = run_to_end(["settings", "show", "--stack", "local"], running.environment)
        assert (completed.returncode, completed.stdout) == (2, "")
        assert completed.stderr == f"gpucost: 2 demos are running on this machine; name one with --stack: {names}\n"
        named = run_to_end(["report", "--stack", f"local:{port}", "--group-by", "namespace"], running.environment)
        assert (named.returncode, named.stderr) == (0, "")
        silent = run_to_end(["settings", "show", "--stack", "local:1"], running.environment)
        assert silent.returncode == 1
        assert "the demo of stack 'local:1' does not respond" in silent.stderr
        other.kill()
    assert run_to_end(["settings", "show", "--stack", "local"], running.environment).returncode == 0


def test_exported_days_sum_to_api_totals(running: Demo, tmp_path: Path) -> None:
    today = running.end.replace(hour=0)
    days = f"start={today - timedelta(days=3):%Y-%m-%dT00:00:00Z}&end={today + timedelta(days=1):%Y-%m-%dT00:00:00Z}"
    cluster = demo.CLUSTERS[0]
    rows = running.ask(f"/v1/exports?{days}&cluster={cluster}")["rows"]
    scheduled = [row for row in rows if row["is_current"]]
    assert scheduled, "at 02:40, one of the last 24 hours"
    day = datetime.fromisoformat(scheduled[-1]["day"])
    done = run_to_end(
        [
            "export",
            "--stack",
            "local",
            "--from",
            f"{day:%Y-%m-%dT00:00:00Z}",
            "--to",
            f"{day + timedelta(days=1):%Y-%m-%dT00:00:00Z}",
            "--cluster",
            cluster,
        ],
        running.environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\t")[:2] == [f"{day:%Y-%m-%d}", cluster]
    path = tmp_path / "rows.parquet"
    (again,) = (
        row
        for row in running.ask(f"/v1/exports?{days}&cluster={cluster}")["rows"]
        if row["day"] == scheduled[-1]["day"]
    )
    assert again["version"] == scheduled[-1]["version"] + 1
    path.write_bytes(requests.get(again["parquet_url"], timeout=10).content)
    period = f"start={day:%Y-%m-%dT00:00:00Z}&end={day + timedelta(days=1):%Y-%m-%dT00:00:00Z}"
    report = running.ask(f"/v1/costs?{period}&granularity=day&group_by=business_unit&cluster={cluster}")
    with duckdb.connect() as connection:
        sql = f"SELECT x_BusinessUnit, sum(EffectiveCost) FROM '{path}' WHERE x_CostPart = 'allocated' GROUP BY 1"
        in_parquet = dict(connection.execute(sql).fetchall())
        ((fleet,),) = connection.execute(f"SELECT sum(EffectiveCost) FROM '{path}'").fetchall()
    assert in_parquet == {row["group"]["business_unit"]: row["allocated_usd"] for row in report["rows"]}
    assert fleet == report["totals"]["node_cost_usd"]


def test_every_curl_example_runs_as_written(running: Demo) -> None:
    """Requests to a deployment, too, without signatures and tokens, which the demo does not have."""
    examples = [
        line
        for page in PAGES
        for line in script(page).splitlines()
        if re.match(r"(aws)?curl ", line) and HOST.search(line)
    ]
    assert len(examples) >= 25
    for example in examples:
        signer = (
            r"^awscurl --service execute-api --region \S+|^curl -H \"Authorization: [^\"]*\""
            r"|^curl --aws-sigv4 \S+ --user \S+ -H \"X-Amz-Security-Token: [^\"]*\""
        )
        request = re.sub(signer, "curl", HOST.sub(running.url + "/", example))
        done = subprocess.run(
            ["bash", "-c", f"{request} --silent --show-error --fail-with-body"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=running.environment,
        )
        assert done.returncode == 0, (example, done.stdout[-500:], done.stderr)


def test_terminal_report_by_workload_matches_api(running: Demo) -> None:
    question = ["--days", "2", "--group-by", "workload", "--idle", "shared-by-allocation", "--sort=-cost_usd"]
    shown = run_to_end(["report", "--stack", "local", *question], running.environment)
    assert shown.returncode == 0, shown.stderr
    path = "/v1/costs?window=2d&granularity=total&group_by=workload&idle=shared-by-allocation&sort=-cost_usd"
    answer = running.ask(path)
    assert sum(row["cost_usd"] for row in answer["rows"]) == answer["totals"]["node_cost_usd"] > 0
    for row in answer["rows"]:
        assert f"${row['cost_usd']:,.2f}" in shown.stdout
    table = run_to_end(["report", "--stack", "local", *question, "--format", "csv"], running.environment).stdout
    assert len(table.splitlines()) == 1 + len(answer["rows"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--from", "2026-11-23", "--to", "2026-11-20"], "--end: must be after start (2026-11-23T00:00:00Z)"),
        (["--group-by", "foo"], "--group-by: 'foo' is not a dimension; allowed: business_unit, "),
        (["--filter", "namespace=!"], "--filter namespace: '!' is not a name"),
    ],
)
def test_report_names_the_option_of_a_bad_parameter(running: Demo, arguments: list[str], sentence: str) -> None:
    done = run_to_end(["report", "--stack", "local", *arguments], running.environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gpucost: {sentence}")


def test_report_without_a_period_covers_the_last_24_hours(running: Demo) -> None:
    for more in ([], ["--group-by", "namespace"]):
        shown = run_to_end(["report", "--stack", "local", *more], running.environment)
        assert shown.returncode == 0, shown.stderr
        assert "last 24 hours (default); select another period" in " ".join(shown.stdout.split())
        # Just after a full hour, the three clusters' newest hours are not attributed yet. On Wednesdays, one cluster
        # has an outage.
        assert re.search(r"\b(72|71|69|68) of 72 cluster-hours complete", " ".join(shown.stdout.split()))
    named = run_to_end(["report", "--stack", "local", "--window", "24h"], running.environment)
    assert "(default)" not in named.stdout


def test_report_takes_times_as_the_api_does(running: Demo) -> None:
    day = f"{running.end - timedelta(days=1):%Y-%m-%d}"
    start, end = f"{running.end - timedelta(days=2):%Y-%m-%d}", f"{day}T00:00:00Z"
    answer = running.ask(f"/v1/business-units?start={start}&end={day}")
    for names in (("--start", "--end"), ("--from", "--to")):
        for last in (day, end):
            command = ["report", "--stack", "local", names[0], start, names[1], last, "--format", "json"]
            shown = run_to_end(command, running.environment)
            assert simplejson.loads(shown.stdout, use_decimal=True) == answer


def test_node_pools_are_compared_with_karpenters_limits(running: Demo) -> None:
    """Over a day, because the batch pool's nodes join and leave with the time of day."""
    rows = running.ask("/v1/nodepools?window=24h")["rows"]
    assert all(0 <= row["used"] <= row["limit"] for row in rows)
    assert {row["cluster"] for row in rows if row["used"]} == set(demo.CLUSTERS)


def test_dashboard_command_serves_the_demo(running: Demo) -> None:
    command = ["env", "--default-signal=INT", GPUCOST, "dashboard", "--stack", "local", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=running.environment) as process:
        try:
            assert process.stderr is not None
            (address,) = re.findall(r"Forwarding (\S+) to", process.stderr.readline())
            assert requests.get(address + "/v1/hours?window=24h", timeout=30).status_code == 200
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)


def test_replay_prints_nothing_but_json(running: Demo) -> None:
    """In a new process: the log must not go to stdout."""
    period = ["--from", f"{running.hours[0]:%Y-%m-%d}", "--to", f"{running.end:%Y-%m-%d}"]
    done = run_to_end(["alerts", "replay", *period, "--stack", "local", "--format", "json"], running.environment)
    assert simplejson.loads(done.stdout)["rows"]
    assert done.stderr.startswith("would have fired: ")


def test_every_documented_command_for_a_stack_runs_against_the_demo(running: Demo, tmp_path: Path) -> None:
    """The last test of the demo, because the commands change its settings, prices and hours."""
    runs = runs_for_demo(running.end)
    assert len(runs) >= 60
    with patch.dict(os.environ, running.environment), chdir(tmp_path):
        write_settings_files(tmp_path)
        for page, arguments in runs:
            if arguments[0] != "dashboard":  # it runs until Ctrl-C
                with patch.dict(os.environ):
                    check_run(page, arguments)


def test_page_of_the_demo_shows_figures_of_a_demo_that_ends_at_midnight() -> None:
    (shown,) = (
        token.content for token in tokens("docs/tutorials/demo.md") if token.content.startswith("$ gpucost demo")
    )
    rows = [cells for line in shown.splitlines()[3:] if len(cells := line.split()) > 1]
    assert rows
    units = expected(datetime(2026, 11, 24, tzinfo=UTC), demo_command.HOURS)
    for unit, gpu_hours, *amounts, waste_percent in rows:
        assert gpu_hours == f"{float(units[unit][0]):,.3f}", unit
        allocated, effective, waste, unmeasured = (Decimal(amount[1:].replace(",", "")) for amount in amounts)
        assert abs(effective + waste + unmeasured - allocated) <= Decimal("0.01"), unit
        share = 100 * waste / allocated
        least = share.quantize(Decimal("0.1"), ROUND_FLOOR)
        assert waste_percent == (f"≥{least}%" if unmeasured else f"{share:.1f}%"), unit
