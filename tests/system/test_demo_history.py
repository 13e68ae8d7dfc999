"""The demo's history: right after any end of the demo, and not computed twice."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gpucost.core.hours import HOUR, format_timestamp, hours_between
from gpucost_devstack.fleet import demo as fleet
from gpucost_devstack.metrics_segment import segments_of
from tests.listening_addresses import process_tree
from tests.system.running_demo import GPUCOST, Demo, running_demo, true_hours

pytestmark = pytest.mark.nightly
COMPLETE = " is there; the next start reuses it "


def wait_until(is_true: Callable[[], bool], failure: str, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, failure
        time.sleep(0.1)


def kill(demo: Demo) -> None:
    """Kill the demo, and the servers that it started, which are of no use without it."""
    for process in list(process_tree(demo.process.pid)):
        with suppress(ProcessLookupError):  # it has ended since it was listed
            os.kill(process, signal.SIGKILL)
    demo.process.wait()


def index_of(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("gpucost/demo/*/index.json")
    index: dict[str, Any] = json.loads(path.read_text())
    return index


def history(demo: Demo) -> tuple[datetime, datetime]:
    end = demo.end - timedelta(hours=demo.duration)
    return (end - timedelta(days=1)).replace(hour=0), end


def attributed_hours(demo: Demo) -> int:
    start, end = history(demo)
    answer = demo.ask(f"/v1/costs?start={format_timestamp(start)}&end={format_timestamp(end)}&granularity=total")
    return int(answer["coverage"]["hours_complete"])


def push_settings_of(demo: Demo, path: Path) -> None:
    """Put a new version of the demo's settings in force, with one more business unit, while the history loads."""
    shown, _ = gpucost(demo, "settings", "show", "--stack", "local")
    settings = json.loads(shown)
    settings["business_units"].append({"name": "pushed-while-loading", "namespaces": ["nothing-*"]})
    path.write_text(json.dumps(settings))
    pushed, _ = gpucost(demo, "settings", "push", str(path), "--stack", "local")
    (version,) = re.findall(r"^version (\d+) is in force$", pushed, re.MULTILINE)
    stored, _ = gpucost(demo, "settings", "show", "--version", version, "--stack", "local")
    assert stored.strip() == path.read_text()


def gpucost(demo: Demo, *arguments: str) -> tuple[str, str]:
    done = subprocess.run(
        [GPUCOST, *arguments], capture_output=True, text=True, check=False, env=demo.environment, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(("hours", "kills_before_attribution"), [(24, False), (72, True)])
def test_history_is_right_after_kills_and_not_computed_again(
    tmp_path: Path, hours: int, kills_before_attribution: bool
) -> None:
    flags = ("--history", "1")
    with running_demo(tmp_path, *flags, hours=hours) as demo:
        first_end = demo.end
        start, end = history(demo)
        assert attributed_hours(demo) == 0
        wait_until(lambda: "is loading: 0 of" in demo.ask("/config.json").get("notice", ""), "the page does not say so")
        if kills_before_attribution:
            segments = len([*segments_of(hours_between(start, end)), *segments_of(hours_between(end, first_end))])
            wait_until(lambda: len(index_of(tmp_path)["segments"]) == segments, "the history is not simulated")
        else:
            wait_until(lambda: attributed_hours(demo) > 0, "the history is not attributed")
        kill(demo)
    if kills_before_attribution:
        with running_demo(tmp_path, *flags, hours=hours) as demo:
            wait_until(lambda: attributed_hours(demo) > 0, "the history is not attributed")
            kill(demo)
    with running_demo(tmp_path, *flags, hours=hours) as demo:
        wait_until(lambda: "is loading" in demo.ask("/config.json").get("notice", ""), "it does not load the rest")
        push_settings_of(demo, tmp_path / "settings.json")
        wait_until(lambda: COMPLETE in (tmp_path / "out").read_text(), "the history is not complete")
        assert "notice" not in demo.ask("/config.json")
        assert "pushed-while-loading" in gpucost(demo, "settings", "show", "--stack", "local")[0]
        check_against_scenario(demo, start, first_end)
        restatements = demo.ask(f"/v1/restatements?start={format_timestamp(start)}&end={format_timestamp(end)}")
        assert len({row["hour"] for row in restatements["rows"]}) == 1
        assert restatements["rows"][0]["reason"] == "the invoice shows a credit of 10%"
        before, after = (restatements["rows"][0][when]["node_cost_usd"] for when in ("before", "after"))
        hour = datetime.fromisoformat(restatements["rows"][0]["hour"])
        query = f"start={format_timestamp(hour)}&end={format_timestamp(hour + HOUR)}"
        nodes = demo.ask(f"/v1/nodes?{query}&cluster={restatements['rows'][0]['cluster']}")["rows"]
        credited = sum(node["node_cost_usd"] for node in nodes if node["price_source"] == "override")
        assert before - after == pytest.approx(credited / 9)
        reviewed = {row["cluster"]: row["end"] for row in demo.ask("/v1/recommendations")["reviews"]}
        assert reviewed == dict.fromkeys(fleet.CLUSTERS, format_timestamp(demo.end)), "with the history"
    began = datetime.now(UTC)
    with running_demo(tmp_path, *flags, hours=hours) as demo:
        wait_until(lambda: "from an earlier start" in (tmp_path / "out").read_text(), "the history is not reused")
        rows = demo.ask(f"/v1/hours?start={format_timestamp(start)}&end={format_timestamp(first_end)}")["rows"]
        assert len(rows) == len(fleet.CLUSTERS) * ((first_end - start) // HOUR)
        complete = [row for row in rows if row["status"] != "incomplete"]  # the outage is tried again after each hour
        assert max(datetime.fromisoformat(row["published_at"]) for row in complete) < began
        assert "alerts, newest first" in demo.printed


def check_against_scenario(demo: Demo, start: datetime, end: datetime) -> None:
    """Compare the GPU-hours of every hour and cluster with the truth of the simulated clusters."""
    query = f"start={format_timestamp(start)}&end={format_timestamp(end)}&granularity=hour&group_by=cluster"
    rows = {(row["group"]["cluster"], row["start"]): row for row in demo.ask(f"/v1/costs?{query}&limit=1000")["rows"]}
    for cluster, hours in true_hours(start, end).items():
        for hour, true_hour in zip(hours_between(start, end), hours, strict=True):
            if true_hour is None:
                assert (cluster, format_timestamp(hour)) not in rows
                continue
            allocated = sum((line.allocated_gpu_hours.value for line in true_hour.lines), Fraction(0))
            row = rows[cluster, format_timestamp(hour)]
            assert float(row["allocated_gpu_hours"]) == pytest.approx(float(allocated), rel=1e-9), (cluster, hour)
