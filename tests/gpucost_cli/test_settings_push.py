"""`gpucost settings push` on a terminal, and while someone else pushes settings."""

import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest

from gpucost.container import Container
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.main import main

NOW = datetime(2026, 11, 20, tzinfo=UTC)
SETTINGS = 'clusters: [{{name: {}, prometheus: {{url: "http://127.0.0.1:9"}}}}]\n'
QUESTION = "Put it in force?"


class Terminal(StringIO):
    """A terminal at which an answer was typed."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def store(sqlite_table: SqliteTable) -> Iterator[SettingsDocumentStore]:
    """A deployment's settings with the cluster `old`."""
    store = SettingsDocumentStore(sqlite_table, clock=lambda: NOW)
    store.push(SETTINGS.format("old"), author="me", now=NOW)
    yield store


def push(container: Container, path: Path, *options: str) -> tuple[int | str | None, str]:
    """Push a file, and return exit status and output."""
    output, status = StringIO(), 0
    with redirect_stdout(output), redirect_stderr(output):
        try:
            main(["settings", "push", str(path), "--stack", "local", *options], container)
        except SystemExit as end:
            return end.code, output.getvalue()
    return status, output.getvalue()


@pytest.mark.parametrize(
    ("options", "answer", "is_asked", "name"),
    [((), "y", True, "new"), ((), "n", True, "old"), (("--yes",), "", False, "new"), (("--yes",), "n", False, "new")],
)
def test_terminal_asks_only_without_yes(
    store: SettingsDocumentStore,
    sqlite_table: SqliteTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    answer: str,
    *,
    is_asked: bool,
    name: str,
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(SETTINGS.format("new"))
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    status, output = push(Container(table=sqlite_table), path, *options)
    assert (QUESTION in output) == is_asked
    assert (status == 0) == (name == "new")
    assert store.newest().settings.clusters[0].name == name


def test_printed_version_is_the_stored_one_after_another_push(
    store: SettingsDocumentStore, sqlite_table: SqliteTable, tmp_path: Path
) -> None:
    """A demo that loads its history pushes settings, too."""
    container = Container(table=sqlite_table)
    assert container.settings_store.current().version == 1
    assert store.push(SETTINGS.format("old") + "# the demo\n", author="demo", now=NOW).version == 2
    text = SETTINGS.format("old") + "# mine\n"
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    status, output = push(container, path)
    assert status == 0, output
    (number,) = re.findall(r"^version (\d+) is in force$", output, re.MULTILINE)
    assert store.version(int(number)).text == store.newest().text == text


def test_document_is_loaded_once(store: SettingsDocumentStore, sqlite_table: SqliteTable, tmp_path: Path) -> None:
    """A document of 500 business units takes half a second to load."""
    path = tmp_path / "settings.yaml"
    path.write_text(SETTINGS.format("old") + "cost_labels: [team]\n")
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        status, output = push(Container(table=sqlite_table), path)
    finally:
        sys.setprofile(None)
    assert status == 0, output
    assert calls.count("load_yaml") == 1
    assert store.newest().settings.cost_labels == ("team",)
