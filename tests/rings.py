"""The rings of tests: which tests each selects, and what they may start. docs/contributing/testing.md has the table.

`pytest --ring unit` runs what needs only Python packages. It starts no process and connects to no other machine.
`--ring test`, the default, is everything but `@pytest.mark.nightly`; `--ring nightly` is these.
"""

import ipaddress
import json
import os
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.cases import VARIABLE, tried

TESTS = Path(__file__).parent
UNIT_FOLDERS = (
    "authoring",
    "core",
    "features",
    "functions",
    "gpucost_cli",
    "lint",
    "pipeline",
    "reports",
    "runtime",
    "settings",
    "sources",
    "storage",
)
"""Folders with tests that need only Python packages."""
FIXTURES_WITH_PROCESSES = {"chromium", "demo", "enforced", "new_build", "prometheus"}
SELECTED = {"unit": "not nightly and not tools", "test": "not nightly", "nightly": "nightly"}
MARKED_FILE = re.compile(r"^pytestmark = \[?pytest\.mark\.(tools|nightly)\b", re.MULTILINE)
"""In the text of a file whose tests are all marked."""
RECORD = TESTS / "starts.json"
STARTS = pytest.StashKey[Counter[str]]()
BEGINNING = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ring", choices=tuple(SELECTED), default="test", help="the tests to select")
    parser.addoption("--all-cases", action="store_true", help="try all random cases, on DynamoDB Local")
    parser.addoption("--order", type=int, metavar="SEED", help="run the files in this random order")


def pytest_configure(config: pytest.Config) -> None:
    ring = ring_of(config)
    config.option.markexpr = config.option.markexpr or SELECTED[ring]
    if config.getoption("all_cases"):
        os.environ[VARIABLE] = "1"
    config.stash[BEGINNING] = time.monotonic()
    config.stash[STARTS] = Counter()
    os.environ.setdefault("GOGC", "400")  # by default, Prometheus spends a quarter of its processor time on its memory
    if ring == "unit":
        os.environ["AWS_EC2_METADATA_DISABLED"] = "true"  # otherwise clients without keys look for a machine's role


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Watch this process from now on; xdist starts a process before."""
    if _runs_tests(session.config):
        starts = session.config.stash[STARTS]
        sys.addaudithook(refuse_tools(starts) if ring_of(session.config) == "unit" else count_starts(starts))


def ring_of(config: pytest.Config) -> str:
    """The selected ring."""
    return "nightly" if config.option.markexpr == "nightly" else str(config.getoption("ring"))


def _runs_tests(config: pytest.Config) -> bool:
    """Whether this process runs tests; with xdist, its workers do."""
    return hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None)


def refuse_tools(starts: Counter[str]) -> Any:
    """An audit hook that refuses processes and connections to other machines, and records them."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        refused = ""
        if event in {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}:
            refused = f"{event} {arguments[0] if arguments else ''}".rstrip()
        elif event == "socket.connect" and not _is_local(arguments[1]):
            refused = f"{event} {arguments[1]}"
        if refused:
            starts[refused] += 1
            raise RuntimeError(
                f"a test of `make unit` may not do this: {refused}. Replace it, or mark the test with pytest.mark.tools"
            )

    return hook


def _is_local(address: Any) -> bool:
    """Whether an address of a socket is on this machine."""
    if not isinstance(address, tuple):
        return True
    try:
        return bool(ipaddress.ip_address(address[0]).is_loopback)
    except ValueError:
        return bool(address[0] == "localhost")


def count_starts(starts: Counter[str]) -> Any:
    """An audit hook that counts the expensive programs that are started."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and (program := program_of([os.fspath(part) for part in arguments[1]])):
            starts[program] += 1

    return hook


def program_of(command: list[str]) -> str:
    """The expensive program that a command runs; "" for any other."""
    programs = [Path(os.fsdecode(part)).name for part in command]
    if programs[0] == "prometheus":
        return "Prometheus"
    if "dynamodb_server.py" in programs:
        return "DynamoDB Local"
    if "run-driver" in programs:
        return "browser"
    return "demo" if {"gpucost", "demo"} <= set(programs) else ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the other folders, and the files that are marked as a whole."""
    if config.getoption("ring") != "unit" or not collection_path.is_relative_to(TESTS):
        return None
    if collection_path.suffix == ".py" and MARKED_FILE.search(collection_path.read_text("utf-8")):
        return True
    folder = collection_path.relative_to(TESTS).parts[:1]
    return True if folder and (TESTS / folder[0]).is_dir() and folder[0] not in UNIT_FOLDERS else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests with fixtures that start processes out of the unit ring, and limit the examples of properties."""
    if config.getoption("ring") == "unit":
        tools = {test for test in items if FIXTURES_WITH_PROCESSES.intersection(getattr(test, "fixturenames", ()))}
        config.hook.pytest_deselected(items=list(tools))
        items[:] = [test for test in items if test not in tools]
    for test in items:
        limit_examples(getattr(test, "obj", None))


def limit_examples(function: Any) -> None:
    """Let a property test try only some of its examples, and the same in each run, so that no failure is by chance.

    Mutation testing has several runs in one process, so a function may be limited already.
    """
    chosen = getattr(function, "_hypothesis_internal_use_settings", None)
    if isinstance(chosen, settings) and not hasattr(function, "are_examples_limited"):
        function.are_examples_limited = True
        function._hypothesis_internal_use_settings = settings(
            chosen, max_examples=tried(chosen.max_examples), derandomize=VARIABLE not in os.environ
        )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker started."""
    node.config.stash[STARTS].update(getattr(node, "workeroutput", {}).get("starts", {}))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that started more than it may."""
    config = session.config
    starts = config.stash[STARTS]
    if hasattr(config, "workeroutput"):
        config.workeroutput["starts"] = dict(starts)
    elif excesses(starts, allowed(ring_of(config))) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def allowed(ring: str) -> dict[str, int]:
    """How often each program may be started in a ring."""
    recorded: dict[str, dict[str, int]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return recorded.get(ring, {})


def excesses(starts: Mapping[str, int], most: Mapping[str, int]) -> list[str]:
    """A sentence for each program that was started more often than recorded."""
    return [
        f"{program} was started {count} times, {most.get(program, 0)} allowed. Share a fixture, or record it in "
        f"{RECORD.relative_to(TESTS.parent)} with the reason in the commit."
        for program, count in sorted(starts.items())
        if count > most.get(program, 0)
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what the run took, and what it started."""
    usages = [resource.getrusage(processes) for processes in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    used = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    starts, ring = config.stash[STARTS], ring_of(config)
    terminalreporter.write_line(
        f"ring {ring}: {time.monotonic() - config.stash[BEGINNING]:.0f} s, {used:.0f} s of processor time; started "
        + (", ".join(f"{count} {program}" for program, count in sorted(starts.items())) or "nothing")
    )
    for sentence in excesses(starts, allowed(ring)):
        terminalreporter.write_line(sentence, red=True)
