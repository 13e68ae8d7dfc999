"""Who is told what, how often, when messages come twice, late, out of order, or the function dies half-way."""

from datetime import timedelta

import pytest

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR
from gpucost.core.model import Line
from gpucost.core.money import quantize
from gpucost.features.alerting.model import AlertGroup, Cursor
from tests.conftest import DynamoTable
from tests.features.alerting.service_harness import (
    DOCUMENT,
    START,
    FunctionKilledError,
    HookedAlertStates,
    ServiceHarness,
)


@pytest.fixture
def world(table: DynamoTable) -> ServiceHarness:
    return ServiceHarness(table, HookedAlertStates(table.client, table.name))


def test_fires_once_and_resolves_once_to_every_receiver(world: ServiceHarness) -> None:
    for number, waste in enumerate(["15", "15", "15", "1", "1"]):
        world.ledger.put(number, research=waste)
        world.close_hours(number)

    assert world.slack.received == world.email.received == ["firing research 1", "resolved research 3"]


def test_a_unit_has_its_own_thresholds(world: ServiceHarness) -> None:
    for number in range(3):
        world.ledger.put(number, research="15", patient="15")
        world.close_hours(number)

    assert world.slack.received == ["firing research 1", "firing patient 2"]


def test_a_unit_that_is_gone_wastes_nothing(world: ServiceHarness) -> None:
    for number in range(2):
        world.ledger.put(number, research="15")
    world.ledger.put(2)
    world.close_hours(0, 1, 2)

    assert world.slack.received == ["firing research 1", "resolved research 2"]


@pytest.mark.parametrize("status", ["incomplete", "unpriced", "missing"])
def test_an_hour_nobody_knows_neither_counts_nor_resolves(world: ServiceHarness, status: str) -> None:
    world.ledger.put(0, research="15")
    if status == "incomplete":
        world.ledger.put(1, "incomplete")
    elif status == "unpriced":
        world.ledger.put(1, "provisional", unpriced=1, research="0")
    world.ledger.put(2, research="15")
    world.close_hours(0, 1)
    assert world.slack.received == []

    world.close_hours(2)
    assert world.slack.received == ["firing research 2"]


def test_an_hour_whose_bill_is_still_to_come_counts(world: ServiceHarness) -> None:
    world.ledger.put(0, research="15")
    world.ledger.put(1, "provisional", research="15")
    world.ledger.put(2, "provisional", research="1")
    world.close_hours(0, 1, 2)
    assert world.slack.received == ["firing research 1", "resolved research 2"]


def test_duplicates_and_late_messages_change_nothing(world: ServiceHarness) -> None:
    for number, waste in enumerate(["15", "15", "15", "1", "15", "15"]):
        world.ledger.put(number, research=waste)
    world.close_hours(1, 1, 0, 3, 2, 1, 5, 5, 4, 0)

    assert world.slack.received == [
        "firing research 1", "resolved research 3", "firing research 5",
    ]  # fmt: skip


def test_a_late_hour_that_was_decided_without_does_not_fire(world: ServiceHarness) -> None:
    world.ledger.put(5, research="1")
    world.close_hours(5)
    for number in (2, 3, 4):
        world.ledger.put(number, research="15")
        world.close_hours(number)

    assert world.slack.received == []


def test_a_lost_message_is_made_up_for_by_the_next(world: ServiceHarness) -> None:
    for number, waste in enumerate(["1", "15", "15", "1"]):
        world.ledger.put(number, research=waste)
    world.close_hours(0, 3)

    assert world.slack.received == ["firing research 2", "resolved research 3"]


def test_after_a_long_silence_no_more_than_the_look_back_is_read(world: ServiceHarness) -> None:
    world.ledger.put(0, research="1")
    world.ledger.put(1000, research="1")
    world.close_hours(0, 1000)

    assert world.ledger.requested_periods[-1] == (START + HOUR * (1001 - 168), START + HOUR * 1001)


def test_a_backfill_tells_nobody(world: ServiceHarness) -> None:
    for number in range(3):
        world.ledger.put(number, research="15")
        world.close_hours(number, origin="backfill")

    assert world.slack.received == []
    assert world.states.load("demo").groups == ()


def test_before_the_first_settings_nothing_happens(world: ServiceHarness) -> None:
    world.store.text = None
    world.close_hours(0)
    world.tick()

    assert world.ledger.requested_periods == []


def test_one_broken_receiver_keeps_nobody_else_from_hearing_and_a_retry_sends_only_what_is_left(
    world: ServiceHarness,
) -> None:
    world.slack.fails = True
    world.ledger.put(0, research="15", other="15")
    world.ledger.put(1, research="15", other="15")
    with pytest.raises(SourceError, match="slack:gpucost/slack was not told: out of order"):
        world.close_hours(1)
    assert world.email.received == ["firing other 1", "firing research 1"]

    world.slack.fails = False
    world.close_hours(1)
    assert world.slack.received == world.email.received == ["firing other 1", "firing research 1"]
    assert world.outbox() == []


def test_the_tick_delivers_what_was_left(world: ServiceHarness) -> None:
    world.slack.fails = True
    world.ledger.put(0, research="15")
    world.ledger.put(1, research="15")
    with pytest.raises(SourceError):
        world.close_hours(1)
    world.slack.fails = False
    world.tick()
    world.tick()

    assert world.slack.received == world.email.received == ["firing research 1"]


@pytest.mark.parametrize("deadly", range(12))
def test_a_crash_at_any_write_loses_nothing_and_repeats_at_most_one_message(world: ServiceHarness, deadly: int) -> None:
    writes = 0

    def die(_book: AlertGroup | Cursor) -> None:
        nonlocal writes
        writes += 1
        if writes == deadly + 1:
            raise FunctionKilledError

    for number, waste in enumerate(["15", "15", "1"]):
        world.ledger.put(number, research=waste)
    world.states.before_save = die
    for number in (1, 2, 2):
        try:
            world.close_hours(number)
        except FunctionKilledError:
            world.now += timedelta(minutes=1)  # Lambda tries again after a minute
            world.close_hours(number)

    told = [*world.slack.received, *world.email.received]
    assert len(told) <= 5
    for person in (world.slack, world.email):
        assert sorted(set(person.received)) == ["firing research 1", "resolved research 2"]
        assert person.received[0] == "firing research 1"
    assert world.outbox() == []


def test_two_at_once_tell_it_once(world: ServiceHarness) -> None:
    """While one delivers, another handles the next hour: it neither repeats nor overtakes, and nothing stays behind."""
    for number, waste in enumerate(["15", "15", "1"]):
        world.ledger.put(number, research=waste)

    def another() -> None:
        world.slack.on_send = world.email.on_send = lambda: None
        world.close_hours(1, 2)

    world.slack.on_send = world.email.on_send = another
    world.close_hours(1)

    assert world.slack.received == world.email.received == ["firing research 1", "resolved research 2"]
    assert world.outbox() == []


def test_a_lost_race_is_decided_again(world: ServiceHarness) -> None:
    for number, waste in enumerate(["15", "15", "1"]):
        world.ledger.put(number, research=waste)

    def another(_book: AlertGroup | Cursor) -> None:
        world.states.before_save = lambda book: None
        world.close_hours(2)

    world.states.before_save = another
    world.close_hours(1)

    assert world.slack.received == world.email.received == ["firing research 1", "resolved research 2"]


def test_a_receiver_that_left_the_settings_is_forgotten(world: ServiceHarness) -> None:
    world.slack.fails = world.email.fails = True
    world.ledger.put(0, research="15")
    world.ledger.put(1, research="15")
    with pytest.raises(SourceError):
        world.close_hours(1)
    world.store.text = DOCUMENT.replace("[{type: slack, secret: gpucost/slack}, {type: email}]", "[]")
    world.tick()

    assert world.outbox() == []


def test_a_rule_that_left_the_settings_starts_afresh_when_it_comes_back(world: ServiceHarness) -> None:
    world.ledger.put(0, research="15")
    world.ledger.put(1, research="15")
    world.close_hours(1)
    without = DOCUMENT[: DOCUMENT.index("alerts:")]
    world.store.text = without
    world.ledger.put(2, research="1")
    world.close_hours(2)
    world.store.text = DOCUMENT
    for number in (3, 4):
        world.ledger.put(number, research="15")
        world.close_hours(number)

    assert world.slack.received == ["firing research 1", "firing research 4"]


@pytest.mark.parametrize(("source", "heard"), [("pod", ["firing research 1"]), ("cluster", [])])
def test_guessed_utilization_alerts_nobody(world: ServiceHarness, line: Line, source: str, heard: list[str]) -> None:
    world.store.text = DOCUMENT + "utilization: {sources: [pod, cluster]}\n"
    for number in range(2):
        world.ledger.put(number, research="15")
        lines = [line._replace(utilization_source="pod" if source == "pod" else "cluster")]
        world.ledger.lines_by_unit[START + HOUR * number, "research"] = lines
    world.close_hours(1)

    assert world.slack.received == heard


@pytest.fixture
def line() -> Line:
    zero = quantize(0)
    return Line(
        business_unit="research", namespace="research-ns", workload_kind="", workload="", pod="p", uid="u", node="n",
        node_pool="", instance_type="", capacity_type="", zone="", gpu_model="", resource="nvidia.com/gpu", units=1,
        gpu_share=quantize(1), gpu_share_source="whole", labels={}, split_policy="gpu-bears-all",
        allocated_gpu_hours=zero, effective_gpu_hours=zero, utilization=zero, utilization_source="pod",
        unmeasured_gpu_hours=zero, gpu_hourly_usd=zero, price_source="constant", allocated_usd=quantize(20),
        effective_usd=quantize(5), waste_usd=quantize(15), unmeasured_usd=zero,
    )  # fmt: skip
