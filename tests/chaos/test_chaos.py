"""A cut of `make chaos`: the crash points of one tick, the quicker rows of the table, and that it would tell."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from gpucost.core.errors import SourceError
from gpucost.runtime.messaging import MessageBus
from gpucost.runtime.observability import logger
from gpucost.storage.hour_versions import HourVersions
from gpucost.storage.table import Table
from tests.chaos import faults
from tests.chaos.bench import Bench, Faulty
from tests.chaos.crash import Undisturbed, Verdict, compare, enumerate_crashes, undisturbed
from tests.chaos.external_calls import Fault
from tests.chaos.setting import start
from tests.chaos.world import Endpoints, World

LAST_OF_DAY = 2
"""Closes an hour and ends a day."""


def two_workers(bench: Bench) -> None:
    """At some calls."""
    faults.two_workers(bench, every=4)


QUICK = (
    faults.schedule_twice, two_workers, faults.schedule_late, faults.one_cluster_away, faults.deadly_hour,
    faults.large_item, faults.two_pushes,
)  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


@pytest.fixture(scope="module")
def endpoints(dynamodb_url: str) -> Iterator[Endpoints]:
    from devstack.aws import running_aws

    level = logger.log_level
    logger.setLevel(logging.CRITICAL)
    with running_aws() as aws:
        yield Endpoints(dynamodb_url, aws)
    logger.setLevel(level)


def test_killed_at_any_call_nothing_is_lost_or_doubled(endpoints: Endpoints) -> None:
    verdict = Verdict()
    ticks = range(LAST_OF_DAY, LAST_OF_DAY + 1)
    for _, verdict in enumerate_crashes(endpoints, start(), ticks, ("east",), only_kills=True):
        assert verdict.is_clean(), verdict
    assert verdict.tried >= 25


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.__name__)
def test_a_row_of_the_table(endpoints: Endpoints, fault: Faulty) -> None:
    bench = Bench(endpoints, start(), "", start())
    fault(bench)
    assert bench.verdict.is_clean(), bench.verdict


@pytest.fixture
def first_tick(endpoints: Endpoints) -> Iterator[tuple[World, Undisturbed]]:
    quiet, disturbed = (World(endpoints, start(), ("east",)) for _ in range(2))
    ((_, expected, _),) = undisturbed(quiet, range(1))
    yield disturbed, expected
    quiet.close()
    disturbed.close()


def verdict_of(world: World, expected: Undisturbed, fault: Fault, *calls: str) -> Verdict:
    verdict = Verdict()
    for place, name in enumerate(expected.calls, start=1):
        if name in calls:
            world.restore(expected.before)
            world.outside.plan[place] = fault
            world.run(0, 1)
            compare(verdict, fault, world, expected)
    return verdict


def test_a_manifest_before_its_items_would_be_found(
    first_tick: tuple[World, Undisturbed], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, expected = first_tick
    assert verdict_of(world, expected, "killed after", "batch_write_item").is_clean()
    later: list[Any] = []
    put_all, flip = Table.put_all, HourVersions.put

    def flip_first(self: HourVersions, manifest: Any, replacing: Any, expires_at: Any) -> None:
        items = list(later)
        later.clear()  # a killed function takes what it remembers with it
        flip(self, manifest, replacing, expires_at)
        put_all(self._table, items)

    with monkeypatch.context() as planted:
        planted.setattr(HourVersions, "put", flip_first)
        planted.setattr(Table, "put_all", lambda _, items: later.extend(items))
        restore, planted_put = World.restore, Table.put_all

        def restored(self: World, saved: Any) -> None:
            Table.put_all = put_all  # type: ignore[method-assign]  # the harness itself writes as it should
            restore(self, saved)
            Table.put_all = planted_put  # type: ignore[method-assign]

        planted.setattr(World, "restore", restored)
        # The planted order has its calls exchanged: what was the items' place is the manifest's.
        assert not verdict_of(world, expected, "killed after", "batch_write_item").is_clean()


def test_a_message_that_is_dropped_would_be_found(
    first_tick: tuple[World, Undisturbed], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, expected = first_tick
    assert verdict_of(world, expected, "throttled", "publish").is_clean()
    publish = MessageBus.publish

    def careless(self: MessageBus, message: Any) -> None:
        with suppress(SourceError):
            publish(self, message)

    monkeypatch.setattr(MessageBus, "publish", careless)
    assert verdict_of(world, expected, "throttled", "publish").unsaid
