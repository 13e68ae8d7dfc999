"""The commands backfill, hours and months, run against a stack as people run them."""

import itertools
import json
import os
import pty
import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from samtranslator.yaml_helper import yaml_parse

from gpucost.core.hours import DAY, HOUR, floor_hour, format_timestamp
from gpucost.core.metering.observations import Observation
from gpucost.runtime.messages import HoursDue, HoursToRestate, MessageBus
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost_cli.backfill_command import SETTLING_TIME
from gpucost_devstack.template import TEMPLATE
from tests.chaos.script import ScriptedReader, document
from tests.system.deployed import FIRST, Stack, running


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running(tmp_path) as running_stack:
        yield running_stack


class Reader(ScriptedReader):
    """The script's metrics, with an unexpected error in one hour."""

    failing_hour: datetime | None = None
    kept: timedelta | None = None

    def observe(self, hours: Sequence[datetime]) -> list[Observation]:
        if self.failing_hour in hours:
            raise ZeroDivisionError("unexpected")
        return super().observe(hours)

    def retention(self) -> timedelta | None:
        return self.kept


def readers(stack: Stack, **facts: Any) -> None:
    def create(cluster: ClusterSettings, settings: CoreSettings) -> Reader:
        reader = Reader(cluster.name, stack.first, lambda: stack.now)
        for name, value in facts.items():
            setattr(reader, name, value)
        return reader

    stack.readers = create


def period(start: datetime, hours: int) -> tuple[str, ...]:
    return "--from", format_timestamp(start), "--to", format_timestamp(start + hours * HOUR)


def states(stack: Stack) -> list[str]:
    return [manifest.status for manifest in stack.ledger.manifests("east", FIRST - DAY, FIRST + DAY)]


def test_dead_letter_hour_is_listed_and_redriven(stack: Stack) -> None:
    readers(stack, failing_hour=FIRST + HOUR)
    assert stack.gpucost("backfill", *period(FIRST, 3), "--no-wait").stdout == "3 hours of 1 clusters are queued\n"
    with stack.active():
        stack.drain()
    assert states(stack) == ["complete", "incomplete", "complete"]
    dry_run = stack.gpucost("hours", "redrive", "--dry-run")
    assert dry_run.stdout == "1 would be sent again, 0 would be dropped, 0 stay in the dead-letter queue\n"
    dead_letter = f"hours-due east {FIRST + HOUR:%Y-%m-%dT%HZ}, 1 h: ZeroDivisionError: unexpected"
    assert dead_letter in dry_run.stderr
    readers(stack)
    sent = stack.gpucost("hours", "redrive")
    assert (sent.returncode, sent.stdout) == (0, "1 were sent again, 0 were dropped, 0 stay in the dead-letter queue\n")
    with stack.active():
        stack.drain()
    assert states(stack) == ["complete"] * 3
    again = stack.gpucost("backfill", *period(FIRST, 3))
    assert again.stdout == "0 hours of 1 clusters are queued\n"


def test_backfill_is_followed_to_its_end(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(_seconds: float) -> None:
        stack.now = datetime.now(UTC)
        stack.drain()

    monkeypatch.setenv("COLUMNS", "120")
    readers(stack, failing_hour=FIRST + HOUR)
    done = stack.gpucost("backfill", *period(FIRST, 3), sleep=meanwhile)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2 hours have figures, 1 are incomplete")
    assert re.search(r"backfilling .* 3/3 hours \d:\d\d:\d\d left: 0:00:00", done.stderr)


def test_backfill_without_any_figures_is_a_failure(stack: Stack) -> None:
    def meanwhile(_seconds: float) -> None:
        stack.now = datetime.now(UTC)
        stack.drain()

    readers(stack, failing_hour=FIRST)
    done = stack.gpucost("backfill", *period(FIRST, 1), sleep=meanwhile)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "0 hours have figures, 1 are incomplete")
    assert "no hour of the period has figures" in done.stderr
    assert "gpucost doctor --settings FILE" in done.stderr


def test_backfill_reports_waiting_behind_another(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.gpucost("backfill", *period(FIRST - 9 * HOUR, 9), "--no-wait")
    checks = itertools.count(1)

    def meanwhile(_seconds: float) -> None:
        if next(checks) > 1:  # from the second check on, other messages count
            time.sleep(1)  # until the terminal shows the progress
            stack.now = datetime.now(UTC)
            stack.drain()

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    done = stack.gpucost("backfill", *period(FIRST, 3), sleep=meanwhile)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "3 hours have figures, 0 are incomplete")
    assert "waiting behind about 1 other messages" in done.stderr


def test_interrupted_backfill_reports_that_sent_hours_continue(stack: Stack) -> None:
    class InterruptedBus(MessageBus):
        def send_due(self, messages: Sequence[HoursDue | HoursToRestate]) -> None:
            super().send_due(messages[:1])
            raise KeyboardInterrupt

    bus = stack.bus(InterruptedBus, lambda _service: stack.sqs)
    interrupted = stack.gpucost("backfill", *period(FIRST, 4), bus=bus)
    assert (interrupted.returncode, interrupted.stdout, interrupted.stderr.count("\n")) == (1, "", 1)
    assert "queued hours are still processed. Run the same command again to queue the others" in interrupted.stderr
    stack.gpucost("backfill", *period(FIRST, 4), "--no-wait")
    with stack.active():
        stack.drain()
    manifests = stack.ledger.manifests("east", FIRST - DAY, FIRST + DAY)
    assert [(manifest.hour, manifest.version) for manifest in manifests] == [(FIRST + i * HOUR, 1) for i in range(4)]


def test_backfill_skips_hours_before_their_scheduled_attribution(stack: Stack) -> None:
    """The last samples of such an hour may still arrive, and the figures would stay too low."""
    newest = floor_hour(datetime.now(UTC)) - HOUR
    fires = yaml_parse(TEMPLATE.read_text())["Resources"]["DispatchFunction"]["Properties"]["Events"]["Hourly"]
    assert fires["Properties"]["ScheduleExpression"] == f"cron({SETTLING_TIME // timedelta(minutes=1)} * * * ? *)"
    for after, sent in ((timedelta(0), 1), (SETTLING_TIME - timedelta(seconds=1), 1), (SETTLING_TIME, 2)):
        at = newest + HOUR + after
        done = stack.gpucost("backfill", *period(newest - HOUR, 2), "--no-wait", clock=lambda at=at: at)
        assert done.stdout.startswith(f"{sent} hours of 1 clusters"), done.stderr
        assert (f"hour {format_timestamp(newest)} has only just ended" in done.stderr) == (sent == 1)

    def clock() -> datetime:
        return newest + HOUR

    refused = stack.gpucost("backfill", *period(newest, 1), clock=clock)
    assert (refused.returncode, refused.stdout) == (0, "")
    assert stack.gpucost("backfill", *period(newest - HOUR, 1), "--no-wait", clock=clock).returncode == 0


def test_unavailable_hours_are_refused_with_a_single_sentence(stack: Stack) -> None:
    amp = {"auth": "sigv4", "region": "eu-central-1"}
    for days, kept, prometheus in (
        (15, timedelta(days=15), {}),
        (150, None, amp),
        (400, None, {**amp, "retention_days": 400}),
    ):
        readers(stack, kept=kept)
        settings = json.loads(document(("east",)))
        settings["clusters"][0]["prometheus"] |= prometheus
        stack.push(json.dumps(settings))
        oldest = floor_hour(datetime.now(UTC)) - timedelta(days=days)
        refused = stack.gpucost("backfill", *period(oldest, 2), "--no-wait")
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert f"is older than the metrics of cluster east, which are kept for {days} days" in refused.stderr
        assert stack.gpucost("backfill", *period(oldest + 2 * HOUR, 1), "--no-wait").returncode == 0
    for arguments, says in (
        (period(FIRST, 0), "is not after --from"),
        (period(floor_hour(datetime.now(UTC)), 2), "has not ended"),
        ((*period(FIRST, 2), "--cluster", "atlantis"), "cluster 'atlantis' is not in the settings; allowed: east"),
    ):
        refused = stack.gpucost("backfill", *arguments)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert says in refused.stderr


def test_notes_on_settings_are_printed_when_they_are_pushed(stack: Stack, tmp_path: Path) -> None:
    settings = json.loads(document(("east",))) | {"business_units": [{"name": "ml", "namespaces": ["research-.*"]}]}
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(settings))
    done = stack.gpucost("settings", "push", str(path))
    assert re.fullmatch(r"version \d+ is in force\n", done.stdout)
    assert "note: business_units[0].namespaces: 'research-.*'" in done.stderr
    assert "no longer" not in done.stderr
    path.write_text(document(("west",)))
    done = stack.gpucost("settings", "push", str(path))
    assert (done.returncode, done.stderr) == (
        2,
        "gpucost: none of the clusters in force (east) is in this document: their new hours would not be attributed. "
        "If that is meant, pass --yes\n",
    )
    done = stack.gpucost("settings", "push", str(path), "--yes")
    assert done.stderr == "note: no longer in the settings, so new hours are not attributed: east\n"
    refused = stack.gpucost("settings", "rollback", "--to", "1")
    assert "none of the clusters in force (west) is in this document" in refused.stderr


def test_push_that_drops_all_clusters_asks_on_a_terminal(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.json"
    path.write_text(document(("north",)))
    before = stack.gpucost("settings", "show").stdout
    for answer, status in (("n", 1), ("", 1), ("y", 0)):
        controller, terminal = pty.openpty()
        os.write(controller, f"{answer}\n".encode())
        with os.fdopen(terminal) as stdin, monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", stdin)
            done = stack.gpucost("settings", "push", str(path))
        os.close(controller)
        assert "would not be attributed. Put it in force? [y/N]: " in done.stderr
        assert done.returncode == status, done.stderr
        assert (stack.gpucost("settings", "show").stdout == before) == (answer != "y")
    assert json.loads(stack.gpucost("settings", "show").stdout)["clusters"][0]["name"] == "north"


def test_month_is_closed_adjusted_and_reopened(stack: Stack) -> None:
    """The test uses the previous month."""
    stack.first = FIRST.replace(day=1, hour=0) - 3 * HOUR
    month = f"{stack.first:%Y-%m}"
    stack.gpucost("backfill", *period(stack.first, 3), "--no-wait")
    with stack.active():
        stack.drain()
    assert stack.gpucost("months", "close", "--month", "2031-01").returncode == 2
    refused = stack.gpucost("months", "close", "--month", month)
    assert refused.returncode == 2
    assert f"{month} is not complete: 3 hours have figures (72.00 USD allocated), " in refused.stderr
    closed = stack.gpucost("months", "close", "--month", month, "--force")
    assert (closed.returncode, closed.stdout.partition(":")[0]) == (0, f"{month} is closed")
    assert "These figures no longer change." in closed.stdout
    assert "closed already" in stack.gpucost("months", "close", "--month", month).stderr
    before = stack.figures()
    stack.push(document(("east",)).replace(": 12}", ": 15}"))
    stack.gpucost("hours", "restate", *period(stack.first, 2), "--settings", "current", "--reason", "new price")
    with stack.active():
        stack.drain()
    assert stack.figures() == before
    adjustments = json.loads(
        stack.gpucost("months", "adjustments", "--month", month, "--format", "json").stdout, parse_float=Decimal
    )
    rows = {
        row["business_unit"]: (row["closed"]["allocated_usd"], row["now"]["allocated_usd"])
        for row in adjustments["rows"]
    }
    assert (adjustments["hours"], rows) == (2, {"chat": (24, 30), "research": (24, 30)})
    table = stack.gpucost("months", "adjustments", "--month", month).stdout
    assert "$6.00" in table
    opened = stack.gpucost("months", "reopen", "--month", month)
    assert (opened.returncode, opened.stdout) == (0, f"{month} is open; 2 hours changed\n")
    assert "\r" not in opened.stderr, "progress is for terminals"
    assert stack.figures() != before
    missing = stack.gpucost("months", "adjustments", "--month", month)
    assert (missing.returncode, missing.stderr) == (
        1,
        f"gpucost: {month} is not closed. Only closed months have adjustments\n",
    )
