"""A ledger's folder, copied into another table: the same answers, and nothing lost or doubled by an interruption."""

import json
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gpucost.api.app import build_app
from gpucost.container import Container
from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR
from gpucost.core.ledger import ClosedMonth
from gpucost.features.exports.exported_days import ExportedDay
from gpucost.features.exports.storage import DynamoExports
from gpucost.features.recommendations.model import Recommendation
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.runtime.process import Environment
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.hour_versions import HourVersions
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost.storage.price_book import BOOK
from gpucost.storage.sqlite_table import SqliteTable
from gpucost.storage.table import Item, key, key_of, text
from gpucost_cli.ledger_copy import CopyResult, copy_ledger
from gpucost_cli.main import main
from gpucost_devstack.template import REPOSITORY
from tests.conftest import DynamoTable
from tests.contract.running import ADMIN, NOW, SETTINGS, fill, hour_of
from tests.features.recommendations.sample_recommendations import PROPOSED
from tests.functions.api_requests import iam_caller, request_as
from tests.golden.scenarios.building import requests

CLUSTERS = ("prod-eu", "prod-us-east-1")
START = NOW.replace(hour=0, minute=0) - timedelta(days=2)
PATHS = json.loads((REPOSITORY / "docs/reference/openapi.json").read_text())["paths"]
CALLER = iam_caller(f"arn:aws:iam::000000000000:user/{ADMIN}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ledger with two days of two clusters, a closed month, a recommendation, and the record of an exported day."""
    path = tmp_path / "ledger"
    with SqliteTable(path) as table:
        fill(table, days=2)
        DynamoRecommendations(table).put(Recommendation(PROPOSED, "open", NOW, NOW, NOW, version=0))
        HourVersions(table).close_month(ClosedMonth("2026-10", NOW, "me", "invoiced"))
        exported = ExportedDay("prod-eu", START, 1, "complete", 1, 1, 1, "USD", NOW, "", 1)
        DynamoExports(table, timedelta(days=400)).put(exported)
    return path


@pytest.fixture
def source(folder: Path) -> Iterator[SqliteTable]:
    with SqliteTable(folder) as table:
        yield table


@pytest.fixture
def target(tmp_path: Path) -> Iterator[SqliteTable]:
    with SqliteTable(tmp_path / "other") as table:
        yield table


def all_items(table: SqliteTable) -> list[Item]:
    return [item for partition in table.partitions() for item in table.items(partition)]


def assert_same(target: SqliteTable, source: SqliteTable) -> None:
    """The same items byte for byte, without the records of exports."""
    for partition in source.partitions():
        if not partition.endswith("#exports"):
            assert list(target.items(partition)) == list(source.items(partition)), partition


def answers(table: Table) -> dict[tuple[str, str], tuple[int, str]]:
    """What every route answers, with several sets of parameters; without the exports, which are not copied."""
    services = Container(Environment(table=""), table=table, clock=lambda: NOW).api_services
    app = build_app(services, REPOSITORY / "functions/api/page")
    period = {"start": f"{START:%Y-%m-%d}", "end": f"{NOW:%Y-%m-%d}"}
    asked: list[tuple[str, Any]] = [
        (path, query) for path, query, _ in requests(START, NOW.replace(minute=0), ("research", "assistant"))
    ]
    asked += [(path, period) for path in PATHS if "{" not in path and path.startswith("/v1/")]
    asked.append(("/v1/budgets", {}))
    asked += [(path, {"window": "2d"}) for path in PATHS if path.startswith(("/allocation", "/assets", "/getConfigs"))]
    responses = {}
    for path, query in asked:
        if path == "/v1/exports":
            continue
        response = request_as(CALLER, path, query, app=app)
        responses[path, json.dumps(query)] = response.status, response.body
    return responses


@pytest.mark.tools  # DynamoDB itself is what the answers are compared with
def test_every_route_answers_the_same_from_dynamodb(source: SqliteTable, table: DynamoTable) -> None:
    deployed = DynamoDBTable(*table)
    result = copy_ledger(source, deployed)
    assert (result.hours, result.clusters) == (96, CLUSTERS)
    assert (result.written, result.deleted) == (result.items, 0)
    before = answers(source)
    assert answers(deployed) == before
    answered = {path for (path, _), (status, _) in before.items() if status == 200}
    assert {path for path in PATHS if "{" not in path} - answered == {"/v1/exports"}
    assert len({body for _, body in before.values()}) > 100, "the answers have figures"


def test_exported_days_are_exported_again(source: SqliteTable, target: SqliteTable) -> None:
    copy_ledger(source, target)
    assert DynamoExports(target, timedelta(days=400)).days("prod-eu", START, NOW) == []
    assert_same(target, source)


class Killed(BaseException):
    """The process ends."""


class KilledTable:
    """Writes half of the items of a call, or all of them, before the process is killed."""

    def __init__(self, table: SqliteTable, *, half: bool) -> None:
        self._table, self._half = table, half

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def put_all(self, items: Sequence[Item]) -> None:
        self._table.put_all(items[: len(items) // 2] if self._half and len(items) > 1 else items)
        raise Killed

    def delete_all(self, keys: Sequence[Item]) -> None:
        self._table.delete_all(keys[: len(keys) // 2] if self._half and len(keys) > 1 else keys)
        raise Killed


def copy_with_kills(source: SqliteTable, target: SqliteTable, *, half: bool, replace: bool = False) -> int:
    """Copy until it succeeds, and return how often it was killed. What is published meanwhile is whole."""
    kills = 0
    while True:
        try:
            copy_ledger(source, KilledTable(target, half=half), replace=replace)  # type: ignore[arg-type]
        except Killed:
            kills += 1
            if not replace:
                assert_published_hours_are_whole(source, target)
                assert list(target.items("SETTINGS")) in ([], list(source.items("SETTINGS")))
        else:
            return kills


def assert_published_hours_are_whole(source: SqliteTable, target: SqliteTable) -> None:
    for cluster in CLUSTERS:
        for manifest in Ledger(target).manifests(cluster, START, NOW):
            assert Ledger(target).lines(cluster, manifest.hour) == Ledger(source).lines(cluster, manifest.hour)


@pytest.mark.tools  # seconds
@pytest.mark.parametrize("half", [False, True])
def test_kill_at_every_write_loses_and_doubles_nothing(source: SqliteTable, target: SqliteTable, *, half: bool) -> None:
    assert copy_with_kills(source, target, half=half) > 20
    assert_same(target, source)
    assert set(target.partitions()) == set(source.partitions()) - {"C#prod-eu#exports"}
    assert copy_ledger(source, target).written == 0


@pytest.mark.tools  # seconds
@pytest.mark.parametrize("half", [False, True])
def test_replacing_copy_is_exact_after_kills(source: SqliteTable, target: SqliteTable, *, half: bool) -> None:
    copy_ledger(source, target)
    change_target(target)
    copy_with_kills(source, target, half=half, replace=True)
    assert_same(target, source)


def change_target(target: SqliteTable) -> None:
    """Restate an hour, publish a later one, and lose a price."""
    ledger = Ledger(target)
    current = ledger.manifest("prod-eu", START)
    changed = hour_of("prod-us-east-1", START)
    ledger.publish(hour_of("prod-eu", NOW.replace(minute=0)), replacing=None, settings_version=1, now=NOW)
    ledger.publish(
        hour_of("prod-eu", START, *changed.lines[:1]), replacing=current, settings_version=1, now=NOW, reason="test"
    )
    target.delete_all([key_of(next(target.items(BOOK)))])


def test_other_figures_are_refused_without_consent(source: SqliteTable, target: SqliteTable) -> None:
    copy_ledger(source, target)
    change_target(target)
    before = all_items(target)
    with pytest.raises(InvalidInputError) as refused:
        copy_ledger(source, target)
    assert str(refused.value) == (
        "the deployment has other figures for 1 hours, the first 2026-11-18T00:00Z of prod-eu; 1 items differ from the "
        "folder's. Nothing was copied. --replace makes its ledger of these clusters that of the folder"
    )
    assert all_items(target) == before
    result = copy_ledger(source, target, replace=True)
    assert result.deleted > 0
    assert_same(target, source)


def test_items_without_figures_are_refused_too(source: SqliteTable, target: SqliteTable) -> None:
    price = next(source.items(BOOK))
    target.put_all([{**price, "v": {"N": "9"}}])
    with pytest.raises(InvalidInputError, match=r"the deployment has other entries; 1 items differ"):
        copy_ledger(source, target)


@pytest.mark.parametrize("replace", [False, True])
def test_settings_of_the_deployment_are_never_replaced(
    source: SqliteTable, target: SqliteTable, *, replace: bool
) -> None:
    SettingsDocumentStore(target, clock=lambda: NOW).push(f"{SETTINGS}\n", author="other", now=NOW)
    before = all_items(target)
    with pytest.raises(InvalidInputError, match=r"has settings of its own, .* before its first gpucost settings push"):
        copy_ledger(source, target, replace=replace)
    assert all_items(target) == before


def test_items_of_other_clusters_stay(source: SqliteTable, target: SqliteTable) -> None:
    other: Item = {**key("C#another#hours", "2026-11-18T00"), "n": {"N": "1"}}
    target.put_all([other])
    copy_ledger(source, target, replace=True)
    assert list(target.items("C#another#hours")) == [other]


def run(*arguments: str, table: Table | None = None) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    status = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments, Container(table=table))
        except SystemExit as end:
            status = int(end.code or 0)
    return status, out.getvalue(), err.getvalue()


def test_command_reports_what_it_copied(
    folder: Path, target: SqliteTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("ledger", "copy", "--stack", "gpucost-dev")
    status, out, _ = run(*arguments, "--data", str(folder), table=target)
    count = len(all_items(target))
    assert (status, out) == (
        0,
        f"96 hours of prod-eu, prod-us-east-1 are in the deployment: {count} of {count} items written, the others were "
        "there\nnext: push settings with an address of Prometheus that the functions reach, and the same names of "
        "clusters: gpucost settings push settings.yaml --stack gpucost-dev\n",
    )
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    home = tmp_path / "home" / "gpucost"
    assert run(*arguments, table=target)[2] == f"gpucost: {home} has 0 ledgers. Pass --data FOLDER\n"
    home.mkdir(parents=True)
    folder.rename(home / "a1")
    assert run(*arguments, table=target)[1].startswith(
        f"96 hours of prod-eu, prod-us-east-1 are in the deployment: 0 of {count} items written"
    )
    SqliteTable(home / "b2").close()
    assert run(*arguments, table=target)[2] == (
        f"gpucost: {home} has 2 ledgers: {home}/a1, {home}/b2. Pass --data FOLDER\n"
    )
    assert run(*arguments, "--data", str(home / "b2"), table=target)[2] == (
        "gpucost: the folder's ledger is empty. Pass the folder of another gpucost serve\n"
    )


def test_unusable_folders_are_refused(folder: Path, target: SqliteTable, tmp_path: Path) -> None:
    """The contract of `SqliteTable` has the sentences about newer versions and damage."""
    arguments = ("ledger", "copy", "--stack", "gpucost-dev", "--data")
    missing = tmp_path / "missing"
    assert run(*arguments, str(missing), table=target)[::2] == (
        2,
        f"gpucost: --data: {missing} has no ledger. Pass the folder of gpucost serve --data\n",
    )
    assert not missing.exists()
    with SqliteTable(folder):
        assert run(*arguments, str(folder), table=target)[::2] == (
            2,
            f"gpucost: another process uses the ledger in {folder}. Stop it, or choose another folder\n",
        )


def test_copy_result_counts_hours_of_each_cluster(source: SqliteTable, target: SqliteTable) -> None:
    items = len(all_items(source)) - 1  # the record of an exported day
    assert copy_ledger(source, target) == CopyResult(96, CLUSTERS, items, items, 0)
    assert text(next(target.items("C#prod-eu#hours")), "sk") == f"{START:%Y-%m-%dT%H}"
    assert NOW.replace(minute=0) - START == HOUR * 48
