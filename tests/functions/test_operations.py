"""The functions' logs, and the metrics in CloudWatch's embedded metric format."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TextIO

import pytest

from functions.attribute import app as attribute
from functions.dispatch import app as dispatch
from gpucost.container import Container
from gpucost.core.hours import HOUR, format_timestamp
from gpucost.runtime.aws import register_capacity_unit_hooks
from gpucost.runtime.observability import logger, metrics, tally
from gpucost_devstack.aws import local_client, running_aws
from tests.chaos.script import UNREACHABLE_HOUR, ScriptedReader
from tests.chaos.services import first_hour
from tests.chaos.simulated_deployment import Context, Endpoints, SimulatedDeployment
from tests.conftest import DynamoTable
from tests.newer_settings import push_newer_format

pytestmark = pytest.mark.tools


@pytest.fixture
def deployment(dynamodb_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedDeployment]:
    with running_aws() as aws:
        simulated = SimulatedDeployment(Endpoints(dynamodb_url, aws), first_hour(), ("west",))
        register_capacity_unit_hooks(simulated.clients["dynamodb"])
        yield simulated
        simulated.close()


class Invocation(NamedTuple):
    """The log and metrics of an event."""

    metrics: dict[str, float]
    log: list[dict[str, Any]]

    @property
    def errors(self) -> list[tuple[str, str]]:
        return [(line["message"], line.get("reason", "")) for line in self.log if line["level"] == "ERROR"]


@contextmanager
def logging_to(stream: TextIO) -> Iterator[None]:
    handler = logger.logger_handler
    assert isinstance(handler, logging.StreamHandler)
    previous = handler.setStream(stream)
    try:
        yield
    finally:
        handler.setStream(previous)


def invoke(
    service: str,
    handler: Callable[..., Any],
    event: dict[str, Any],
    container: Container,
    capsys: pytest.CaptureFixture[str],
) -> Invocation:
    """Call a function like Lambda, and read its log."""
    with pytest.MonkeyPatch.context() as patch, logging_to(sys.stdout):
        patch.delenv("POWERTOOLS_METRICS_DISABLED")
        tally.drain()
        metrics.clear_metrics()  # metrics that other tests counted
        metrics.add_dimension("service", service)  # POWERTOOLS_SERVICE_NAME of the template
        metrics.add_dimension("stack", "gpucost-test")  # GPUCOST_STACK
        capsys.readouterr()
        handler(event, Context(), container=container)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (emf_line,) = [line for line in lines if "_aws" in line]
    (counted,) = emf_line["_aws"]["CloudWatchMetrics"]
    assert counted["Namespace"] == "GpuCost"
    assert [sorted(names) for names in counted["Dimensions"]] == [["service", "stack"]], "no series per cluster"
    assert (emf_line["service"], emf_line["stack"]) == (service, "gpucost-test")
    return Invocation(
        {name["Name"]: sum(emf_line[name["Name"]]) for name in counted["Metrics"]},
        [line for line in lines if "_aws" not in line],
    )


def attributed(deployment: SimulatedDeployment, number: int, capsys: pytest.CaptureFixture[str]) -> Invocation:
    """The log and metrics of attributing an hour, by its number."""
    with deployment.active():
        deployment.tick(number)
        (message,) = deployment.take("hours")
        deployment.receives[message["MessageId"]] = 1
        with deployment.acting_as(attribute.handler):
            return invoke(
                "attribute",
                attribute.handler,
                {"Records": [deployment._record(message, "hours")]},
                deployment.container,
                capsys,
            )


def dispatched(deployment: SimulatedDeployment, number: int, capsys: pytest.CaptureFixture[str]) -> Invocation:
    """The log and metrics of the tick after an hour, by its number."""
    deployment.now = scheduled = deployment.first + HOUR * (number + 1) + timedelta(minutes=5)
    with deployment.active(), deployment.acting_as(dispatch.handler):
        return invoke(
            "dispatch", dispatch.handler, {"scheduled_time": format_timestamp(scheduled)}, deployment.container, capsys
        )


def test_complete_hour_is_counted_with_its_duration(
    deployment: SimulatedDeployment, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = attributed(deployment, 0, capsys).metrics
    counted = {name: metrics[name] for name in ("HoursPublished", "HoursIncomplete", "HoursGivenUp", "LinesWritten")}
    assert counted == {"HoursPublished": 1, "HoursIncomplete": 0, "HoursGivenUp": 0, "LinesWritten": 2}
    assert metrics["AllocationCoverage"] == 1
    assert metrics["LagSeconds"] == 300
    assert metrics["CapacityUnits"] >= 10
    assert metrics["AttributeSeconds"] > 0
    assert metrics["PublishSeconds"] > 0


def test_a_clusters_figures_are_in_the_log(deployment: SimulatedDeployment, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {line["message"]: line for line in attributed(deployment, 0, capsys).log}
    hour = lines["hour published"]
    assert {name: hour[name] for name in ("cluster", "status", "version", "coverage", "lag_seconds", "lines")} == {
        "cluster": "west",
        "status": "complete",
        "version": 1,
        "coverage": 1.0,
        "lag_seconds": 300.0,
        "lines": 2,
    }
    used = lines["resources used"]
    assert used["cluster"] == "west"
    assert used["correlation_id"] == hour["correlation_id"]
    assert used["capacity_units"] >= 10
    assert used["attribute_seconds"] > 0
    assert used["publish_seconds"] > 0


def test_an_hour_without_metrics_is_counted_as_incomplete(
    deployment: SimulatedDeployment, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment.run(*range(UNREACHABLE_HOUR))
    metrics = attributed(deployment, UNREACHABLE_HOUR, capsys).metrics
    assert (metrics["HoursPublished"], metrics["HoursIncomplete"], metrics["HoursGivenUp"]) == (1, 1, 0)
    assert "LagSeconds" not in metrics
    assert "AllocationCoverage" not in metrics


def test_hour_beyond_look_back_is_reported(deployment: SimulatedDeployment, capsys: pytest.CaptureFixture[str]) -> None:
    deployment.run(*range(UNREACHABLE_HOUR))
    deployment.skew = timedelta(days=8)
    deployment.readers = lambda cluster, _: ScriptedReader(cluster.name, deployment.first, lambda: deployment.first)
    outcome = attributed(deployment, UNREACHABLE_HOUR, capsys)
    assert (outcome.metrics["HoursGivenUp"], outcome.metrics["HoursIncomplete"]) == (1, 1)
    (line,) = [line for line in outcome.log if line["level"] == "ERROR"]
    assert (line["message"], line["notes"]) == ("an hour stays incomplete and is not tried again", ["out of reach"])
    assert line["hour"].startswith(f"{deployment.first + UNREACHABLE_HOUR * HOUR:%Y-%m-%d %H}")


def test_rejected_settings_are_reported_with_the_reason(
    deployment: SimulatedDeployment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatched(deployment, 0, capsys).metrics["SettingsVersionsUnreadable"] == 0
    reason = push_newer_format(deployment.dynamodb, deployment.table, 2)
    outcome = dispatched(deployment, 1, capsys)
    assert outcome.metrics["SettingsVersionsUnreadable"] == 1
    assert outcome.errors == [("newer settings are not in force", reason)]


def test_unsent_cluster_is_reported_with_the_reason(
    deployment: SimulatedDeployment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dispatched(deployment, 0, capsys).metrics["ClustersFailed"] == 0
    deployment.external_calls.rule = lambda name, _: "throttled" if name == "send_message_batch" else None
    outcome = dispatched(deployment, 1, capsys)
    assert (outcome.metrics["ClustersFailed"], outcome.metrics["HoursSent"]) == (1, 0)
    assert outcome.errors == [("a cluster could not be checked", "west: could not send messages: ThrottlingException")]


def test_hours_that_an_earlier_tick_missed_are_counted(
    deployment: SimulatedDeployment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [dispatched(deployment, number, capsys).metrics["HoursOverdue"] for number in (0, 2)] == [0, 2]


def test_correlation_id_connects_all_logs_of_a_tick(deployment: SimulatedDeployment) -> None:
    push_newer_format(deployment.dynamodb, deployment.table, 2)  # so that dispatch logs a warning
    written = io.StringIO()
    with logging_to(written):
        deployment.run(0)
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    tick = f"tick-{deployment.first + HOUR:%Y-%m-%dT%H}:05"
    assert {(line["message"], line.get("correlation_id")) for line in lines} == {
        ("newer settings are not in force", tick),  # dispatch
        ("resources used", tick),  # attribute
        ("hour published", tick),
        ("alert changed", tick),  # alert
    }


def test_units_match_the_engines_report(table: DynamoTable, dynamodb_url: str) -> None:
    watched = local_client("dynamodb", dynamodb_url)
    register_capacity_unit_hooks(watched)
    tally.drain()
    item = {"pk": {"S": "p"}, "sk": {"S": "s"}, "b": {"B": b"x" * 5000}}
    watched.put_item(TableName=table.name, Item=item)
    assert tally.drain() == {"CapacityUnits": 5}
    watched.get_item(TableName=table.name, Key={"pk": {"S": "p"}, "sk": {"S": "s"}}, ConsistentRead=True)
    assert tally.drain() == {"CapacityUnits": 2}
    watched.batch_write_item(RequestItems={table.name: [{"PutRequest": {"Item": item}}]})
    assert tally.drain() == {"CapacityUnits": 5}
