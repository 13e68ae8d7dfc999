"""A part of `make chaos`: the crash points of a tick, the faster faults, and checks that errors are detected."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any

import pytest

from gpucost.container import Container
from gpucost.core.errors import SourceError
from gpucost.core.ledger import Manifest
from gpucost.runtime.messages import AlertTick, HourPublished, MessageBus, UncheckedAlerts
from gpucost.runtime.observability import logger
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.hour_versions import HourVersions
from gpucost.storage.ledger import Ledger
from gpucost.storage.table import Item
from tests.chaos import faults
from tests.chaos.bench import Bench, FaultCase
from tests.chaos.crash import Baseline, FaultReport, baselines, compare, enumerate_crashes
from tests.chaos.external_calls import Fault
from tests.chaos.services import first_hour
from tests.chaos.simulated_deployment import Endpoints, SimulatedDeployment

LAST_OF_DAY = 2
"""A tick that closes an hour and ends a day."""


def two_workers(bench: Bench) -> None:
    """At every fourth call."""
    faults.two_workers(bench, every=4)


QUICK = (
    faults.schedule_twice,
    two_workers,
    faults.schedule_late,
    faults.unreachable_cluster,
    faults.killing_hour,
    faults.large_item,
    faults.two_pushes,
)

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


@pytest.fixture(scope="module")
def endpoints(dynamodb_url: str) -> Iterator[Endpoints]:
    from gpucost_devstack.aws import running_aws

    level = logger.log_level
    logger.setLevel(logging.CRITICAL)
    with running_aws() as aws:
        yield Endpoints(dynamodb_url, aws)
    logger.setLevel(level)


def test_kill_at_any_call_loses_and_doubles_nothing(endpoints: Endpoints) -> None:
    report = FaultReport()
    ticks = range(LAST_OF_DAY, LAST_OF_DAY + 1)
    for _, report in enumerate_crashes(endpoints, first_hour(), ticks, ("east",), only_kills=True):
        assert report.is_clean(), report
    assert report.tried >= 20


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.__name__)
def test_fault_loses_and_doubles_nothing(endpoints: Endpoints, fault: FaultCase) -> None:
    bench = Bench(endpoints, first_hour(), "", first_hour())
    fault(bench)
    assert bench.report.is_clean(), bench.report


@pytest.fixture
def first_tick(endpoints: Endpoints) -> Iterator[tuple[SimulatedDeployment, Baseline]]:
    undisturbed, disturbed = (SimulatedDeployment(endpoints, first_hour(), ("east",)) for _ in range(2))
    ((_, expected, _),) = baselines(undisturbed, range(1))
    yield disturbed, expected
    undisturbed.close()
    disturbed.close()


def report_of(deployment: SimulatedDeployment, expected: Baseline, fault: Fault, *calls: str) -> FaultReport:
    report = FaultReport()
    for call_number, name in enumerate(expected.calls, start=1):
        if name in calls:
            deployment.restore(expected.before)
            deployment.external_calls.plan[call_number] = fault
            deployment.run(0, 1)
            compare(report, fault, deployment, expected)
    return report


class LateTable(DynamoDBTable):
    """Writes items only after the manifest."""

    def __init__(self, client: Any, name: str) -> None:
        super().__init__(client, name)
        self.later: list[Any] = []

    def put_all(self, items: Sequence[Item]) -> None:
        self.later += items

    def put_later(self) -> None:
        super().put_all(self.later)
        self.later.clear()


class ManifestFirst(HourVersions):
    def __init__(self, table: LateTable) -> None:
        super().__init__(table)
        self._late_table = table

    def put(self, manifest: Manifest, replacing: Manifest | None, expires_at: datetime) -> None:
        super().put(manifest, replacing, expires_at)
        self._late_table.put_later()


class ManifestFirstLedger(Ledger):
    def __init__(self, client: Any, table: str) -> None:
        super().__init__(DynamoDBTable(client, table))
        self._table = late_table = LateTable(client, table)
        self.versions = ManifestFirst(late_table)


class ManifestFirstContainer(Container):
    @cached_property
    def ledger(self) -> Ledger:
        return ManifestFirstLedger(self.client("dynamodb"), self.environment.table)


def test_manifest_written_before_its_items_is_detected(first_tick: tuple[SimulatedDeployment, Baseline]) -> None:
    deployment, expected = first_tick
    assert report_of(deployment, expected, "killed after", "batch_write_item").is_clean()
    deployment.container_class = ManifestFirstContainer
    # In the planted order, the manifest is written by the call that otherwise writes the items.
    assert not report_of(deployment, expected, "killed after", "batch_write_item").is_clean()


class CarelessBus(MessageBus):
    def publish(self, message: HourPublished | AlertTick | UncheckedAlerts) -> None:
        with suppress(SourceError):
            super().publish(message)


def test_dropped_message_is_detected(first_tick: tuple[SimulatedDeployment, Baseline]) -> None:
    deployment, expected = first_tick
    assert report_of(deployment, expected, "throttled", "publish").is_clean()

    class CarelessContainer(Container):
        @cached_property
        def bus(self) -> MessageBus:
            return deployment.bus(CarelessBus, self.client)

    deployment.container_class = CarelessContainer
    assert report_of(deployment, expected, "throttled", "publish").missing_messages
