"""The documented commands that need a deployment, with what a reader of the demo puts in for its placeholders."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpucost.features.recommendations.model import Recommendation, RecommendationState
from gpucost_cli.deployment import find_deployment
from gpucost_devstack.fleet import demo
from tests.documentation.shell_commands import PAGES, script, tokens
from tests.features.recommendations.sample_recommendations import PROPOSED
from tests.gpucost_command import in_this_process

STACK_COMMAND = re.compile(r"(\S*/)?gpucost .*--(stack|api)\b")
ABBREVIATED = "--stack …"
"""Ends a command in a sentence that leaves out other options, too."""
ID = re.compile(r"ID|([a-z-]+-)?[0-9a-f]{12}")
REFUSALS = {
    "ledger copy --data ledger": "ledger has no ledger",
    "prices refresh --stack local --source spot": "spot is not fetched by this deployment",
    "prices refresh --stack local --month": "cur is not fetched by this deployment",
}
"""What the demo answers about price sources that it does not have; the reader's folder is not there."""


def stack_commands() -> Iterator[tuple[str, str]]:
    """(page, command) of the complete commands in blocks and sentences, in the order of the pages."""
    for page in PAGES:
        commands = re.sub(r"\\\n\s*", " ", script(page)).splitlines()
        commands += [token.content for token in tokens(page) if token.type == "code_inline"]
        for command in map(str.strip, commands):
            if STACK_COMMAND.match(command) and not command.endswith(ABBREVIATED):
                yield page, command


def arguments_for_demo(command: str, end: datetime) -> list[str]:
    """The arguments of a command, about the demo's last whole day and the month before the demo."""
    day = end.replace(hour=0) - timedelta(days=1)
    month = (end - timedelta(days=3)).replace(day=1) - timedelta(days=1)
    replacements: dict[str, Callable[[str], str]] = {
        "--stack": lambda _: "local",
        "--from": lambda text: _format_like(text, day),
        "--to": lambda text: "1" if text.isdigit() or text == "N" else _format_like(text, day + timedelta(days=1)),
        "--at": lambda text: _format_like(text, day + timedelta(days=1)),
        "--month": lambda _: f"{month:%Y-%m}",
        "--receiver": lambda text: text if text == "email" else "slack",
    }
    words = shlex.split(command.partition(" > ")[0], comments=True)[1:]
    return [replacements.get(option, str)(word) for option, word in zip(["", *words], words, strict=False)]


def _format_like(text: str, moment: datetime) -> str:
    is_day = re.fullmatch(r"\d{4}-\d\d-\d\d", text)
    return f"{moment:%Y-%m-%d}" if is_day else f"{moment:%Y-%m-%dT%H:00:00Z}"


def runs_for_demo(end: datetime) -> list[tuple[str, list[str]]]:
    """(page, arguments) of each documented command once. Those that undo others run last.

    Pages write a day as a date or as its midnight; `test_report_takes_times_as_the_api_does` shows that both are one.
    """
    runs: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    for page, command in stack_commands():
        arguments = arguments_for_demo(command, end)
        runs.setdefault(tuple(word.removesuffix("T00:00:00Z") for word in arguments), (page, arguments))
    return sorted(runs.values(), key=lambda run: run[1][:2] == ["months", "reopen"])


def write_settings_files(folder: Path) -> None:
    """Write the demo's settings to the files that pages name."""
    settings = in_this_process("settings", "show", "--stack", "local").stdout
    for name in ("settings.yaml", "mine/settings.yaml", "new.yaml", "FILE"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(settings)


def check_run(page: str, arguments: Sequence[str]) -> None:
    """Run a command against the demo.

    Raises:
        AssertionError: it failed, or a command that the demo refuses did not.
    """
    words = [_identifier(arguments) if ID.fullmatch(word) else word for word in arguments]
    line = shlex.join(words)
    if words[:2] == ["months", "close"]:  # several pages close the same month
        in_this_process("months", "reopen", *words[2:6])
        words = list(dict.fromkeys([*words, "--force"]))  # the demo has no hours of the month before it
    result = in_this_process(*words)
    refusal = next((text for start, text in REFUSALS.items() if line.startswith(start)), None)
    if refusal is not None:
        assert result.returncode in (1, 2), f"{page}: {line} succeeds: remove it from REFUSALS"
        assert refusal in result.stderr, f"{page}: {line}: {result.stderr}"
        return
    assert result.returncode in (0, None), f"{page}: {line}: {result.stderr}"
    assert result.stdout, f"{page}: {line} prints nothing"
    if "json" in words:
        json.loads(result.stdout)


def _identifier(arguments: Sequence[str]) -> str:
    """The ID of an alert, a silence, a price or a recommendation of the demo, as its lists show it."""
    match arguments[:2]:
        case ["alerts", "acknowledge"]:
            return next(row["id"] for row in _listed("alerts", "list") if row["phase"] == "firing")
        case ["alerts", "silence"]:
            return str(_listed("alerts", "silence", "list")[0]["id"])
        case ["prices", "drop"]:
            return next(row["id"] for row in _listed("prices", "changes") if row["event"] == "set")
        case ["recommendations", verb]:
            return _stored_recommendation("dismissed" if verb == "reopen" else "open")
    raise AssertionError(f"{shlex.join(arguments)} takes an ID that no list of the demo shows")


def _listed(*command: str) -> list[dict[str, str]]:
    document = json.loads(in_this_process(*command, "--stack", "local", "--format", "json").stdout)
    rows: list[dict[str, str]] = next(iter(document.values()))
    return rows


def _stored_recommendation(state: RecommendationState) -> str:
    """Store a recommendation, because three days are too few for a review to find any."""
    store = find_deployment("local").container().recommendation_store
    cluster = demo.CLUSTERS[0]
    content = replace(PROPOSED, subject=PROPOSED.subject._replace(cluster=cluster), patch="spec: {replicas: 0}")
    now = datetime.now(UTC)
    versions = {stored.id: stored.version for stored in store.recommendations(cluster)}
    stored = store.put(Recommendation(content, state, now, now, now, version=versions.get(content.id, 0)))
    return stored.id
