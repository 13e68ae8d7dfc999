"""`gpucost prices` as scripts call it, with a stack in the embedded AWS."""

import csv
import io
import json
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpucost.core.hours import floor_hour, format_timestamp
from gpucost.core.pricing.prices import Price
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.price_book import PriceStore
from gpucost_devstack.aws import create_stack, local_client, running_aws
from tests.gpucost_command import gpucost
from tests.single_cluster_settings import settings_text
from tests.system.demo_record import announced_in

NOW = datetime.now(UTC).replace(microsecond=0)
THIS_HOUR = floor_hour(NOW)
Run = Callable[..., subprocess.CompletedProcess[str]]


class Stack:
    """The embedded AWS with the template's table, found by the command line."""

    def __init__(self, endpoint: str, folder: Path, parameters: dict[str, str]) -> None:
        deployed = create_stack(endpoint, "http://127.0.0.1:1", parameters)
        client = local_client("dynamodb", endpoint)
        self.book = PriceStore(DynamoDBTable(client, deployed.outputs["TableName"]))
        self.store = SettingsDocumentStore(DynamoDBTable(client, deployed.outputs["TableName"]), clock=lambda: NOW)
        self.store.push(settings_text("http://127.0.0.1:1"), author="me", now=NOW)
        self.folder = folder

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command, *rest = arguments
        return gpucost("prices", command, "--stack", "local", *rest, XDG_CACHE_HOME=str(self.folder), COLUMNS="200")

    def rows(self, command: str, *arguments: str) -> list[dict[str, Any]]:
        done = self.run(command, *arguments, "--format", "json")
        assert (done.returncode, done.stderr) == (0, "")
        (rows,) = json.loads(done.stdout, parse_float=Decimal).values()
        return list(rows)


@pytest.fixture(params=[{"SpotPrices": "true", "OnDemandPrices": "true"}])
def stack(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    with running_aws() as endpoint, announced_in(tmp_path, endpoint):
        yield Stack(endpoint, tmp_path, request.param)


def set_price(stack: Stack, *more: str, amount: str = "98.32", unit: str = "node-hour", reason: str = "EDP") -> Any:
    return stack.run(
        "set", "--match", "instance_type=p5.48xlarge", "--amount", amount, "--unit", unit, "--reason", reason, *more
    )


def test_price_is_set_listed_dropped_and_listed_as_a_change(stack: Stack) -> None:
    began = format_timestamp(THIS_HOUR - timedelta(hours=5))
    done = set_price(stack, "--match", "cluster=demo", "--from", began)
    assert done.returncode == 0, done.stderr
    (row,) = stack.rows("list")
    names = ("source", "applies_to", "unit", "amount", "currency", "from", "to", "reason")
    assert {name: row[name] for name in names} == {
        "source": "override",
        "applies_to": {"instance_type": "p5.48xlarge", "cluster": "demo"},
        "unit": "node-hour",
        "amount": Decimal("98.32"),
        "currency": "USD",
        "from": began,
        "to": None,
        "reason": "EDP",
    }
    assert row["author"]
    assert row["id"] in done.stdout
    assert "p5.48xlarge" in stack.run("list").stdout
    assert stack.rows("list", "--instance-type", "g5.xlarge") == []
    assert stack.rows("list", "--source", "spot") == []
    assert stack.rows("list", "--from", "2026-01-01", "--to", "2026-01-02") == []

    done = stack.run("drop", row["id"], "--reason", "typo", "--at", began)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == f"override {row['id']} ends at {began}"
    assert "rated again" in done.stdout
    assert stack.rows("list") == []
    events = [(change["event"], change["why"]) for change in stack.rows("changes")]
    assert set(events) == {
        ("set", "EDP"),
        ("changed the past", f"override {row['id']} set: EDP"),
        ("dropped", "typo"),
        ("changed the past", f"override {row['id']} dropped: typo"),
    }
    table = list(csv.reader(io.StringIO(stack.run("changes", "--format", "csv").stdout)))
    assert len(table) == 5
    assert table[0][:2] == ["at", "event"]
    assert "typo" in stack.run("changes").stdout


def test_csv_of_the_price_book_is_exact(stack: Stack) -> None:
    applies_to = {"instance_type": "g5.xlarge", "region": "us-east-1", "operating_system": "linux"}
    price = Price("on-demand", "node-hour", Decimal("1.0060000000"), applies_to, "USD", THIS_HOUR, None, NOW)
    stack.book.merge_prices("on-demand", [price], rated_until=THIS_HOUR, now=NOW)
    done = stack.run("list", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert (row["amount"], row["to"], row["source"]) == ("1.006", "", "on-demand")
    assert json.loads(row["applies_to"]) == applies_to


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--amount", "0"), "--amount '0' is invalid"),
        (("--amount", "NaN"), "--amount 'NaN' is invalid"),
        (("--amount", "lots"), "--amount 'lots' is invalid"),
        (("--amount", "1e-13"), "at most 12 digits"),
        (("--unit", "gpu"), "'gpu' is not one of"),
        (("--reason", " "), "--reason has 0 characters. Pass 1 to 500"),
        (("--match", "type=p5"), "Allowed: cluster, node, instance_id"),
        (("--match", "instance_type=p4"), "names instance_type twice"),
        (("--match", "region"), "is not ATTRIBUTE=PATTERN"),
        (("--currency", "usd"), "is not a code of three capital letters"),
        (("--from", "2026-11-02", "--to", "2026-11-01"), "--to 2026-11-01T00:00:00Z is not after --from"),
        (("--from", "yesterday"), "'yesterday' is not a UTC time like 2026-11-19T10:00:00Z or a day like 2026-11-19"),
    ],
)
def test_invalid_input_is_explained_in_a_single_sentence(arguments: tuple[str, ...], says: str) -> None:
    done = gpucost(
        "prices",
        "set",
        "--stack",
        "local",
        "--match",
        "instance_type=p5",
        "--amount",
        "1",
        "--unit",
        "gpu-hour",
        "--reason",
        "why",
        *arguments,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_price_needs_nodes_and_a_reason() -> None:
    command = ("prices", "set", "--stack", "local", "--amount", "1", "--unit", "gpu-hour")
    done = gpucost(*command, "--reason", "why")
    assert (done.returncode, "--match is missing. Pass at least one" in done.stderr) == (2, True)
    done = gpucost(*command, "--match", "cluster=*")
    assert (done.returncode, "--reason" in done.stderr) == (2, True)


def test_dropping_an_unknown_price_is_an_error(stack: Stack) -> None:
    done = stack.run("drop", "nothing", "--reason", "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no override 'nothing'" in done.stderr


def test_long_period_is_refused(stack: Stack) -> None:
    done = stack.run("list", "--from", "2026-01-01", "--to", "2026-03-01")
    assert done.returncode == 2
    assert "at most 35 days" in done.stderr


def test_refresh_invokes_the_function(stack: Stack) -> None:
    done = stack.run("refresh")
    assert (done.returncode, done.stdout) == (
        0,
        "spot: 0 new or changed\non-demand: 0 new or changed\nshapes: 0 new or changed\n",
    ), done.stderr
    done = stack.run("refresh", "--source", "shapes")
    assert done.stdout == "shapes: 0 new or changed\n"


@pytest.mark.parametrize("stack", [{}], indirect=True)
def test_refresh_reports_disabled_sources(stack: Stack) -> None:
    done = stack.run("refresh")
    assert (done.returncode, "SpotPrices, OnDemandPrices" in done.stdout) == (0, True)
    done = stack.run("refresh", "--source", "spot")
    assert done.returncode != 0
    assert "the stack's parameters SpotPrices, OnDemandPrices" in done.stderr
