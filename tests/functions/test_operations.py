"""What the functions count about themselves: read from the log lines that CloudWatch makes metrics of."""

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

from functions.attribute import app as attribute
from gpucost.adapters.aws import count_units
from gpucost.observability import logger, metrics, tally
from local.aws import local_client, running_aws
from tests.chaos.script import AWAY
from tests.chaos.setting import start
from tests.chaos.world import Context, Endpoints, World
from tests.conftest import DynamoTable


@pytest.fixture
def world(dynamodb_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with running_aws() as aws:
        made = World(Endpoints(dynamodb_url, aws), start(), ("west",))
        count_units(made.dynamodb)
        yield made
        made.close()


def told(world: World, number: int, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What the attribute function writes for the hour of that number."""
    with world.active():
        world.tick(number)
        (message,) = world.take("hours")
        world.receives[message["MessageId"]] = 1
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("POWERTOOLS_METRICS_DISABLED")
            patch.setattr(metrics.provider, "service", "attribute")  # POWERTOOLS_SERVICE_NAME of the template
            tally.taken()
            metrics.clear_metrics()  # what other tests counted, with metrics disabled
            patch.setattr(logger.registered_handler, "stream", log := StringIO())
            capsys.readouterr()
            attribute.handler({"Records": [world._record(message, "hours")]}, Context())
    return [json.loads(line) for line in (capsys.readouterr().out + log.getvalue()).splitlines()]


def emitted(world: World, number: int, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The metrics of the attribute function for the hour of that number."""
    (found,) = [line for line in told(world, number, capsys) if "_aws" in line and "HoursClosed" in line]
    (emf,) = found["_aws"]["CloudWatchMetrics"]
    assert emf["Namespace"] == "GpuCost"
    assert emf["Dimensions"] == [["service"]], "no series per cluster"
    return {name["Name"]: sum(found[name["Name"]]) for name in emf["Metrics"]}


def test_a_closed_hour_is_counted_with_what_it_took(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    found = emitted(world, 0, capsys)
    counted = {name: found[name] for name in ("HoursClosed", "HoursIncomplete", "HoursGivenUp", "LinesWritten")}
    assert counted == {"HoursClosed": 1, "HoursIncomplete": 0, "HoursGivenUp": 0, "LinesWritten": 2}
    assert found["AllocationCoverage"] == 1
    assert found["LagSeconds"] == 300
    assert found["CapacityUnits"] >= 10
    assert found["MeterSeconds"] > 0
    assert found["PublishSeconds"] > 0


def test_a_clusters_figures_are_in_the_log(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {line["message"]: line for line in told(world, 0, capsys) if "message" in line}
    hour = lines["hour closed"]
    assert {name: hour[name] for name in ("cluster", "status", "version", "coverage", "lag_seconds", "lines")} == {
        "cluster": "west", "status": "complete", "version": 1, "coverage": 1.0, "lag_seconds": 300.0, "lines": 2,
    }  # fmt: skip
    spent = lines["spent"]
    assert spent["cluster"] == "west"
    assert spent["correlation_id"] == hour["correlation_id"]
    assert spent["capacity_units"] >= 10
    assert spent["meter_seconds"] > 0
    assert spent["publish_seconds"] > 0


def test_an_hour_without_metrics_is_counted_as_incomplete(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.run(*range(AWAY))
    found = emitted(world, AWAY, capsys)
    assert (found["HoursClosed"], found["HoursIncomplete"], found["HoursGivenUp"]) == (1, 1, 0)
    assert "LagSeconds" not in found
    assert "AllocationCoverage" not in found


def test_units_are_those_that_the_engine_reports(table: DynamoTable, dynamodb_url: str) -> None:
    watched = local_client("dynamodb", dynamodb_url)
    count_units(watched)
    tally.taken()
    item = {"pk": {"S": "p"}, "sk": {"S": "s"}, "b": {"B": b"x" * 5000}}
    watched.put_item(TableName=table.name, Item=item)
    assert tally.taken() == {"CapacityUnits": 5}
    watched.get_item(TableName=table.name, Key={"pk": {"S": "p"}, "sk": {"S": "s"}}, ConsistentRead=True)
    assert tally.taken() == {"CapacityUnits": 2}
    watched.batch_write_item(RequestItems={table.name: [{"PutRequest": {"Item": item}}]})
    assert tally.taken() == {"CapacityUnits": 5}
