"""Notifications when messages are duplicated, late or out of order, and when the function is killed."""

from datetime import timedelta
from decimal import Decimal

import pytest

from gpucost.core.errors import SourceError
from gpucost.core.hour_record import Line
from gpucost.core.hours import HOUR
from gpucost.features.alerting.model import AlertGroup, EvaluationCursor
from gpucost.storage.ports import Table
from tests.features.alerting.service_harness import (
    DOCUMENT,
    START,
    FunctionKilledError,
    HookedAlertStates,
    ServiceHarness,
)
from tests.records import amount


@pytest.fixture
def harness(ledger_table: Table) -> ServiceHarness:
    return ServiceHarness(ledger_table, HookedAlertStates(ledger_table))


def test_alert_fires_once_and_resolves_once_for_every_receiver(harness: ServiceHarness) -> None:
    for number, waste in enumerate(["15", "15", "15", "1", "1"]):
        harness.ledger.put(number, research=waste)
        harness.close_hours(number)

    assert harness.slack.received == harness.email.received == ["firing research 1", "resolved research 3"]


def test_override_changes_for_hours_of_a_business_unit(harness: ServiceHarness) -> None:
    for number in range(3):
        harness.ledger.put(number, research="15", patient="15")
        harness.close_hours(number)

    assert harness.slack.received == ["firing research 1", "firing patient 2"]


def test_alert_resolves_when_its_business_unit_is_gone(harness: ServiceHarness) -> None:
    for number in range(2):
        harness.ledger.put(number, research="15")
    harness.ledger.put(2)
    harness.close_hours(0, 1, 2)

    assert harness.slack.received == ["firing research 1", "resolved research 2"]


@pytest.mark.parametrize("status", ["incomplete", "unpriced", "missing"])
def test_unknown_hour_neither_fires_nor_resolves(harness: ServiceHarness, status: str) -> None:
    harness.ledger.put(0, research="15")
    if status == "incomplete":
        harness.ledger.put(1, "incomplete")
    elif status == "unpriced":
        harness.ledger.put(1, "provisional", unpriced=1, research="0")
    harness.ledger.put(2, research="15")
    harness.close_hours(0, 1)
    assert harness.slack.received == []

    harness.close_hours(2)
    assert harness.slack.received == ["firing research 2"]


def test_provisional_hour_counts(harness: ServiceHarness) -> None:
    harness.ledger.put(0, research="15")
    harness.ledger.put(1, "provisional", research="15")
    harness.ledger.put(2, "provisional", research="1")
    harness.close_hours(0, 1, 2)
    assert harness.slack.received == ["firing research 1", "resolved research 2"]


def test_duplicate_and_late_messages_change_nothing(harness: ServiceHarness) -> None:
    for number, waste in enumerate(["15", "15", "15", "1", "15", "15"]):
        harness.ledger.put(number, research=waste)
    harness.close_hours(1, 1, 0, 3, 2, 1, 5, 5, 4, 0)

    assert harness.slack.received == ["firing research 1", "resolved research 3", "firing research 5"]


def test_late_hour_before_the_evaluated_hour_does_not_fire(harness: ServiceHarness) -> None:
    harness.ledger.put(5, research="1")
    harness.close_hours(5)
    for number in (2, 3, 4):
        harness.ledger.put(number, research="15")
        harness.close_hours(number)

    assert harness.slack.received == []


def test_next_message_evaluates_hours_of_lost_messages(harness: ServiceHarness) -> None:
    for number, waste in enumerate(["1", "15", "15", "1"]):
        harness.ledger.put(number, research=waste)
    harness.close_hours(0, 3)

    assert harness.slack.received == ["firing research 2", "resolved research 3"]


def test_long_gap_reads_only_the_lookback_period(harness: ServiceHarness) -> None:
    harness.ledger.put(0, research="1")
    harness.ledger.put(1000, research="1")
    harness.close_hours(0, 1000)

    assert harness.ledger.requested_periods[-1] == (START + HOUR * (1001 - 168), START + HOUR * 1001)


def test_backfilled_hours_do_not_notify(harness: ServiceHarness) -> None:
    for number in range(3):
        harness.ledger.put(number, research="15")
        harness.close_hours(number, origin="backfill")

    assert harness.slack.received == []
    assert harness.states.load("demo").groups == ()


def test_without_settings_nothing_is_read(harness: ServiceHarness) -> None:
    harness.store.text = None
    harness.close_hours(0)
    harness.tick()

    assert harness.ledger.requested_periods == []


def test_failing_receiver_does_not_delay_others_and_retry_sends_the_rest(harness: ServiceHarness) -> None:
    harness.slack.fails = True
    harness.ledger.put(0, research="15", other="15")
    harness.ledger.put(1, research="15", other="15")
    with pytest.raises(SourceError, match="slack:gpucost/slack: not delivered: out of order"):
        harness.close_hours(1)
    assert harness.email.received == ["firing other 1", "firing research 1"]

    harness.slack.fails = False
    harness.close_hours(1)
    assert harness.slack.received == harness.email.received == ["firing other 1", "firing research 1"]
    assert harness.outbox() == []


def test_tick_delivers_remaining_messages(harness: ServiceHarness) -> None:
    harness.slack.fails = True
    harness.ledger.put(0, research="15")
    harness.ledger.put(1, research="15")
    with pytest.raises(SourceError):
        harness.close_hours(1)
    harness.slack.fails = False
    harness.tick()
    harness.tick()

    assert harness.slack.received == harness.email.received == ["firing research 1"]


@pytest.mark.tools
@pytest.mark.parametrize("fatal_write", range(12))
def test_crash_at_any_write_repeats_at_most_a_single_message(harness: ServiceHarness, fatal_write: int) -> None:
    writes = 0

    def kill(_written: AlertGroup | EvaluationCursor) -> None:
        nonlocal writes
        writes += 1
        if writes == fatal_write + 1:
            raise FunctionKilledError

    for number, waste in enumerate(["15", "15", "1"]):
        harness.ledger.put(number, research=waste)
    harness.states.before_save = kill
    for number in (1, 2, 2):
        try:
            harness.close_hours(number)
        except FunctionKilledError:
            harness.now += timedelta(minutes=1)  # Lambda tries again after a minute
            harness.close_hours(number)

    assert len([*harness.slack.received, *harness.email.received]) <= 5
    for notifier in (harness.slack, harness.email):
        assert sorted(set(notifier.received)) == ["firing research 1", "resolved research 2"]
        assert notifier.received[0] == "firing research 1"
    assert harness.outbox() == []


def test_concurrent_invocations_notify_once(harness: ServiceHarness) -> None:
    """While one delivers, another handles the next hour: no message is repeated, reordered or lost."""
    for number, waste in enumerate(["15", "15", "1"]):
        harness.ledger.put(number, research=waste)

    def another() -> None:
        harness.slack.on_send = harness.email.on_send = lambda: None
        harness.close_hours(1, 2)

    harness.slack.on_send = harness.email.on_send = another
    harness.close_hours(1)

    assert harness.slack.received == harness.email.received == ["firing research 1", "resolved research 2"]
    assert harness.outbox() == []


def test_conflict_is_evaluated_again(harness: ServiceHarness) -> None:
    for number, waste in enumerate(["15", "15", "1"]):
        harness.ledger.put(number, research=waste)

    def another(_written: AlertGroup | EvaluationCursor) -> None:
        harness.states.before_save = lambda written: None
        harness.close_hours(2)

    harness.states.before_save = another
    harness.close_hours(1)

    assert harness.slack.received == harness.email.received == ["firing research 1", "resolved research 2"]


def test_messages_of_removed_receivers_are_dropped(harness: ServiceHarness) -> None:
    harness.slack.fails = harness.email.fails = True
    harness.ledger.put(0, research="15")
    harness.ledger.put(1, research="15")
    with pytest.raises(SourceError):
        harness.close_hours(1)
    harness.store.text = DOCUMENT.replace("[{type: slack, secret: gpucost/slack}, {type: email}]", "[]")
    harness.tick()

    assert harness.outbox() == []


def test_removed_rule_starts_again_without_state(harness: ServiceHarness) -> None:
    harness.ledger.put(0, research="15")
    harness.ledger.put(1, research="15")
    harness.close_hours(1)
    without = DOCUMENT[: DOCUMENT.index("alerts:")]
    harness.store.text = without
    harness.ledger.put(2, research="1")
    harness.close_hours(2)
    harness.store.text = DOCUMENT
    for number in (3, 4):
        harness.ledger.put(number, research="15")
        harness.close_hours(number)

    assert harness.slack.received == ["firing research 1", "firing research 4"]


@pytest.mark.parametrize(("source", "expected"), [("pod", ["firing research 1"]), ("cluster", [])])
def test_estimated_utilization_does_not_fire(
    harness: ServiceHarness, line: Line, source: str, expected: list[str]
) -> None:
    harness.store.text = DOCUMENT + "utilization: {sources: [pod, cluster]}\n"
    for number in range(2):
        harness.ledger.put(number, research="15")
        lines = [line._replace(utilization_source="pod" if source == "pod" else "cluster")]
        harness.ledger.lines_by_unit[START + HOUR * number, "research"] = lines
    harness.close_hours(1)

    assert harness.slack.received == expected


@pytest.fixture
def line() -> Line:
    return Line(
        business_unit="research",
        namespace="research-ns",
        workload_kind="",
        workload="",
        pod="p",
        uid="u",
        node="n",
        node_pool="",
        instance_type="",
        capacity_type="",
        zone="",
        gpu_model="",
        resource="nvidia.com/gpu",
        units=1,
        gpu_share=Decimal(1),
        gpu_share_source="whole",
        labels={},
        split_policy="gpu-bears-all",
        allocated_gpu_hours=0,
        effective_gpu_hours=0,
        utilization=Decimal(0),
        utilization_source="pod",
        unmeasured_gpu_hours=0,
        gpu_hourly_usd=Decimal(0),
        price_source="constant",
        allocated_usd=amount(20),
        effective_usd=amount(5),
        waste_usd=amount(15),
        unmeasured_usd=0,
    )
