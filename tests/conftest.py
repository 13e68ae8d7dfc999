"""Fixtures with real services for several kinds of tests."""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ports import Table
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_devstack.artefacts import sam_build
from gpucost_devstack.aws import local_client, running_aws
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb
from gpucost_devstack.prometheus import refusing_url
from tests import forked_gpucost
from tests.made_once import made_once

if TYPE_CHECKING:
    from tests.enforced_permissions import EnforcedAws
    from tests.system.running_demo import Demo

# A property test must not fail on a busy machine because of a deadline or slow generation.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


pytest_plugins = ("tests.rings",)

FILES_WITH_DEMO = ("tests/browser/test_page.py", "tests/system/test_demo.py")
"""They share a demo, so one worker runs them, in this order: the last one changes the demo's settings and hours."""
BROWSER = "tests/browser/"
"""Its other files share a browser, so one worker runs them."""
FILES_WITH_FLEET = (
    *(f"tests/system/test_{name}.py" for name in ("fleet", "fleet_labels", "fleet_racks", "fleet_units")),
    "tests/system/test_doctor_fleet.py",
)
"""They share a Prometheus, so one worker runs them."""
LONGEST = (FILES_WITH_DEMO[0], BROWSER, FILES_WITH_FLEET[0], "tests/golden/test_golden_answers.py")
"""They begin first. Otherwise one worker would run one of them at the end, and the others would have nothing to do."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first, or all files in a random order. Those that share a demo keep theirs."""
    ranks = {scope: rank for rank, scope in enumerate(LONGEST)}
    items.sort(key=lambda test: ranks.get(_scope(test.nodeid), len(ranks)))
    if (seed := config.getoption("order")) is not None:
        scopes = list(dict.fromkeys(_scope(test.nodeid) for test in items))
        Random(seed).shuffle(scopes)
        items.sort(key=lambda test: scopes.index(_scope(test.nodeid)))


def pytest_collection_finish() -> None:
    """Leave thousands of tests out of what the garbage collection of every test looks at."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Wait for the process that runs commands, so that its processor time counts."""
    forked_gpucost.stop()
    gc.unfreeze()  # DuckDB warns of objects that are left at the end


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file on one worker, and those of the files that share a server."""
    from xdist.scheduler import LoadFileScheduling

    if config.getoption("dist") != "loadfile":
        return None
    scheduling = LoadFileScheduling(config, log)
    scheduling._split_scope = _scope
    return scheduling


def _scope(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    for files in (FILES_WITH_DEMO, FILES_WITH_FLEET):
        if file in files:
            return files[0]
    return BROWSER if file.startswith(BROWSER) else file


class DynamoTable(NamedTuple):
    """A new table in DynamoDB Local."""

    client: Any
    name: str


@pytest.fixture(scope="session")
def dynamodb_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """Amazon's DynamoDB Local, shared by all tests."""
    with running_aws() if pytestconfig.getoption("ring") == "unit" else running_dynamodb() as url:
        yield url


@pytest.fixture(scope="session")
def enforced(dynamodb_url: str) -> Iterator["EnforcedAws"]:
    """DynamoDB Local behind the template's policies, which treat every table as the ledger."""
    from tests.enforced_permissions import enforcing

    with enforcing(dynamodb_url) as aws:
        yield aws


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Demo"]:
    """The demo, for `FILES_WITH_DEMO`. The last of them stops it, because it takes processor time."""
    from tests.system.running_demo import running_demo

    with running_demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture
def table(dynamodb_url: str) -> DynamoTable:
    """A new table with the template's keys."""
    client = local_client("dynamodb", dynamodb_url)
    name = f"ledger-{uuid4()}"
    create_table(client, name)
    return DynamoTable(client, name)


@pytest.fixture
def ledger_table(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Table:
    """A new table in SQLite; in DynamoDB Local for `--all-cases`, and for tests marked `tools`.

    `tests/storage/test_table_engines.py` shows that they answer the same.
    """
    if pytestconfig.getoption("all_cases") or request.node.get_closest_marker("tools"):
        return DynamoDBTable(*request.getfixturevalue("table"))
    sqlite: SqliteTable = request.getfixturevalue("sqlite_table")
    return sqlite


@pytest.fixture
def sqlite_table() -> Iterator[SqliteTable]:
    """A new table in SQLite, for services over many hours. `tests/storage` shows that it answers as DynamoDB does."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder, SqliteTable(Path(folder)) as table:
        yield table


@pytest.fixture
def prometheus() -> Iterator[Callable[[str], str]]:
    """A function that serves OpenMetrics text from a real Prometheus and returns its URL."""
    from tests.system.remote_write import running_prometheus_with

    with ExitStack() as running:
        yield lambda openmetrics: running.enter_context(running_prometheus_with(openmetrics))


@pytest.fixture(scope="session")
def new_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of `sam build` for this machine, shared by all tests. They only read it and run nothing in it."""
    return made_once(tmp_path_factory, "sam-build", sam_build) / "build"


@pytest.fixture
def refused_url() -> Iterator[str]:
    """A URL that refuses connections during the whole test."""
    with refusing_url() as url:
        yield url
