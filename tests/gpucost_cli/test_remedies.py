"""Whoever does what a message of the command line says gets further: every remedy that a message names is tried."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
import yaml

from gpucost.core.errors import MetricsUnavailableError
from gpucost.core.metering.observations import Observation
from gpucost.runtime.messages import HoursDue, HoursToRestate
from gpucost.storage.sqlite_table import SqliteTable
from gpucost.storage.table import key_of, text
from gpucost_cli.local_service import LocalBus
from gpucost_devstack.demo_records import registered_demo
from tests.chaos.script import ScriptedReader
from tests.gpucost_cli import remedy_world
from tests.gpucost_cli.remedy_sentences import messages
from tests.gpucost_cli.remedy_world import World
from tests.gpucost_cli.settings_remedies import REMEDIES as DOCUMENTS

pytestmark = pytest.mark.tools  # seconds


class Remedy(NamedTuple):
    """A line that is refused, a part of the message, and lines that follow it, with the message that each gets to."""

    name: str
    refused: str
    message: str
    followed: tuple[tuple[str, str], ...]
    """A line without a message succeeds."""


def read_remedies() -> Iterator[Remedy]:
    """Read the file's remedies."""
    for name, remedy in yaml.safe_load((Path(__file__).parent / "remedies.yaml").read_text()).items():
        followed = tuple((step["line"], step.get("then", "")) for step in remedy["followed"])
        yield Remedy(name, remedy["refused"], remedy["message"], followed)


REMEDIES = tuple(read_remedies())
FOUND = "kube_pod_container_resource_requests"
"""A metric that `gpucost doctor` misses in the stand-in, which has answered."""
INIT = "gpucost init --yes --region us-east-1 --cluster demo"
COPY = "gpucost ledger copy --stack test"
EXPORT = "gpucost export --from 2020-10-01 --to 2020-10-02 --stack"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ledger") / "ledger"
    with SqliteTable(folder) as table:
        remedy_world.fill(table)
    return folder


@pytest.fixture
def world(tmp_path: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    secrets: dict[str, str] = {}
    hooks: list[Callable[[], None]] = []
    with (
        remedy_world.serving(secrets, hooks) as url,
        patch.dict(os.environ, remedy_world.environment(url, tmp_path)),
        closing(World(tmp_path, ledger, url, secrets, hooks)) as world,
    ):
        yield world


@pytest.mark.parametrize("remedy", REMEDIES, ids=[remedy.name for remedy in REMEDIES])
def test_line_that_follows_a_message_gets_further(world: World, remedy: Remedy) -> None:
    refused = world.run(remedy.refused)
    assert refused.status in {1, 2}, refused
    assert remedy.message in refused.text
    for line, message in remedy.followed:
        done = world.run(line)
        assert remedy.message not in done.text, line
        assert message in done.text, line
        assert message or done.status == 0, (line, done)


INTERRUPTED = (
    "interrupted while hours were being queued; queued hours are still processed. Run the same command again to queue "
    "the others"
)
NO_HOUR_HAS_FIGURES = (
    "To see what is missing, save the settings with gpucost settings show and run: gpucost doctor --settings FILE"
)
NO_GPUS = "then gpucost doctor --settings settings.yaml prints the commands"
CREATED_MEANWHILE = "it was created meanwhile. Nothing was written. Pass another folder as --out"
LOST_FIGURES = "Restate the hour to write them again: gpucost hours restate"
LEDGER_IN_USE = "another process uses the ledger in "
SEVERAL_DEMOS = "2 demos are running on this machine; name one with --stack: local:1, local:2"
BACKFILL = "gpucost backfill --stack test --from 2026-11-16 --to 2026-11-17"


class InterruptedBus(LocalBus):
    """Is interrupted by Ctrl-C after the first message."""

    def send_due(self, messages: Sequence[HoursDue | HoursToRestate]) -> None:
        raise KeyboardInterrupt


class UnreachableReader(ScriptedReader):
    """A Prometheus that the functions do not reach."""

    def observe(self, hours: Sequence[datetime]) -> list[Observation]:
        raise MetricsUnavailableError("out of reach")


def test_interrupted_backfill_queues_the_others_when_it_runs_again(world: World) -> None:
    world.parts["bus"] = InterruptedBus()
    assert INTERRUPTED in world.run(f"{BACKFILL} --no-wait").text
    world.parts["bus"] = world.bus
    done = world.run(f"{BACKFILL} --no-wait")
    assert (done.status, done.stdout) == (0, "48 hours of 2 clusters are queued\n")


def test_doctor_runs_on_the_settings_of_a_backfill_without_figures(world: World) -> None:
    world.run("gpucost settings push local.yaml --stack local --yes")
    world.parts |= {
        "sleep": lambda _seconds: world.run("deliver"),
        "metrics_reader": lambda cluster, *_: UnreachableReader(
            cluster.name, remedy_world.FIRST, lambda: remedy_world.NOW
        ),
    }
    refused = world.run("gpucost backfill --stack test --from 2026-11-16 --to 2026-11-16T02:00:00Z")
    assert NO_HOUR_HAS_FIGURES in refused.text, refused
    assert FOUND in world.run("gpucost settings show --stack test > FILE && gpucost doctor --settings FILE").text


def test_doctor_prints_commands_for_the_line_that_init_proposes(world: World) -> None:
    refused = world.run(f"{INIT} --prometheus-url $URL/empty")
    assert NO_GPUS in refused.text
    assert refused.status == 1
    (line,) = re.findall(r"of this line: (clusters: .*); then", refused.text)
    Path("settings.yaml").write_text(line)
    assert "helm " in world.run("gpucost doctor --settings settings.yaml").text


def test_init_writes_another_folder_if_the_settings_were_created_meanwhile(world: World) -> None:
    world.hooks.append(Path("settings.yaml").touch)
    refused = world.run(f"{INIT} --prometheus-url $URL/prometheus")
    assert CREATED_MEANWHILE in refused.text, refused
    assert world.run(f"{INIT} --prometheus-url $URL/prometheus --out other").status == 0


def test_restated_hour_has_its_lost_figures_again(world: World) -> None:
    replay = "gpucost alerts replay --stack test --from 2026-11-18 --to 2026-11-19"
    stored = [key_of(item) for item in world.table.query("C#east#summaries")]
    world.table.delete_all([key for key in stored if text(key, "sk").startswith("2026-11-18T03")])
    assert LOST_FIGURES in world.run(replay).text
    hour = "--from 2026-11-18T03:00:00Z --to 2026-11-18T04:00:00Z"
    assert world.run(f"gpucost hours restate --stack test --reason lost {hour} && deliver").status == 0
    assert world.run(replay).status == 0


def test_ledger_in_use_is_copied_when_the_other_process_has_stopped(world: World) -> None:
    with SqliteTable(world.folder / "served"):
        refused = world.run(f"{COPY} --data served")
        assert LEDGER_IN_USE + "served. Stop it, or choose another folder" in refused.text, refused
        world.run("forget")
    assert world.run(f"{COPY} --data served").status == 0


def test_one_of_several_demos_is_named(world: World) -> None:
    with ExitStack() as running:
        for port in (1, 2):
            running.enter_context(registered_demo(port=port, endpoint=world.url, dynamodb=world.url))
        assert SEVERAL_DEMOS in world.run(f"{EXPORT} local").text
        for stack in ("local:1", "local:2"):
            assert "stack 'local:" in world.run(f"{EXPORT} {stack}").text


IMPOSSIBLE = {
    "shell \0 has no completion": "the option's type refuses other shells before",
    "the demo needs the Python package": "the extra is installed where tests run",
    "the demo of stack \0 does not respond": "a demo takes a minute to start",
    "no demo is running on this machine": "a demo takes a minute to start",
    "--exports: the Python package duckdb is not installed": "the extra is installed where tests run",
    "\0 is only available on AWS: deploy gpucost": "needs an account of AWS",
    "--simulated has its own Prometheus": "serves until Ctrl-C; tests/system/test_serve_simulated.py runs it",
    "the region of \0 is not known": "sessions without a region are refused before, with the same remedy",
    "the settings have an email receiver, but": "every stack has the topic",
    "start: must be": "of the API; tests/functions/test_remedies.py",
    "this forecast covers all": "of the API; tests/features/recommendations/test_fleet_forecasts.py",
    "a forecast by node pool would": "of the API; tests/features/recommendations/test_fleet_forecasts.py",
    "the alert function kept changing the alert": "a race with a function",
    "\0 was changed by someone else at the same time": "a race with a function",
    ". \0 matches \0; name one of them": "tests/features/recommendations/kinds/test_what_if.py names one",
    "hour \0 is not on the full hour. Pass": "the option's type refuses it before, as in full-hour",
    "the backfill queue is empty and no hour was done": "needs the log of a function",
    "AWS Price List has no endpoint": "of a function in AWS's partition of China",
    "\0 has format \0, which a newer release wrote": "there is no newer release",
    "item \0 of the ledger has schema version": "there is no newer release",
}
"""Beginnings of messages whose remedy cannot be followed here, and why."""
FOLLOWED_ABOVE = (
    INTERRUPTED,
    NO_HOUR_HAS_FIGURES,
    NO_GPUS,
    CREATED_MEANWHILE,
    LOST_FIGURES,
    LEDGER_IN_USE,
    SEVERAL_DEMOS,
)


def test_every_message_that_names_a_remedy_is_followed() -> None:
    printed = [*(remedy.message for remedy in REMEDIES), *(remedy.message for remedy in DOCUMENTS), *FOLLOWED_ABOVE]
    with_remedies = messages()
    assert len(with_remedies) > 120
    missing = [message for message in with_remedies if not any(message.is_in(text) for text in printed)]
    assert [message for message in missing if not message.text.startswith(tuple(IMPOSSIBLE))] == []
    assert [begin for begin in IMPOSSIBLE if not any(message.text.startswith(begin) for message in missing)] == []
