"""The waste rule as a state machine: told once, resolved once, whatever the order of the news."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.domain.alerting import AlertState, HourWaste, Notification, WasteThresholds, decide
from gpucost.domain.hours import HOUR

START = datetime(2026, 11, 19, tzinfo=UTC)
TWO_HOURS = WasteThresholds(Decimal(10), Decimal(50), for_hours=2)
FRESH = AlertState.fresh("waste", "demo", "research")


def hour(number: int, allocated: str, waste: str) -> HourWaste:
    return HourWaste(START + HOUR * number, Decimal(allocated), Decimal(waste))


def bad(number: int) -> HourWaste:
    return hour(number, "20", "15")


def good(number: int) -> HourWaste:
    return hour(number, "20", "1")


def events(told: list[Notification]) -> list[tuple[str, datetime]]:
    return [(notification.event, notification.hour) for notification in told]


def test_fires_once_after_enough_hours_and_resolves_once() -> None:
    state, told = decide(FRESH, [bad(0), bad(1), bad(2), good(3), good(4)], TWO_HOURS)

    assert events(told) == [("firing", START + HOUR), ("resolved", START + HOUR * 3)]
    assert [notification.since for notification in told] == [START, START]
    assert (state.phase, state.breaches, state.since) == ("inactive", 0, None)
    assert state.decided_through == START + HOUR * 4


def test_one_good_hour_starts_the_count_anew() -> None:
    state, told = decide(FRESH, [bad(0), good(1), bad(2)], TWO_HOURS)

    assert told == []
    assert (state.phase, state.breaches, state.since) == ("pending", 1, START + HOUR * 2)


def test_an_unknown_hour_leaves_the_run_as_it_is() -> None:
    _, told = decide(FRESH, [bad(0), bad(2)], TWO_HOURS)

    assert events(told) == [("firing", START + HOUR * 2)]
    assert told[0].since == START


def test_a_decided_hour_changes_nothing_any_more() -> None:
    state, _ = decide(FRESH, [good(5)], TWO_HOURS)

    assert decide(state, [bad(3), bad(4), bad(5)], TWO_HOURS) == (state, [])


def test_a_notification_says_who_how_much_and_why() -> None:
    _, (told,) = decide(FRESH, [hour(0, "30", "20")], replace(TWO_HOURS, for_hours=1))

    assert (told.cluster, told.business_unit, told.rule) == ("demo", "research", "waste")
    assert (told.waste_usd_per_hour, told.allocated_usd_per_hour) == (Decimal(20), Decimal(30))
    assert told.waste_percent == Decimal("66.7")
    assert told.threshold == "waste ≥ $10 per hour and ≥ 50% of allocated, for 1 hour"


@pytest.mark.parametrize(
    ("allocated", "waste", "breaches"),
    [
        ("20", "10", True),  # both thresholds just reached
        ("20", "9.999999999999", False),
        ("20.000000000001", "10", False),  # a hair under 50%
        ("0", "0", False),
    ],
)
def test_both_thresholds_must_be_reached(allocated: str, waste: str, *, breaches: bool) -> None:
    assert TWO_HOURS.breached_by(hour(0, allocated, waste)) is breaches


def test_a_unit_that_holds_nothing_never_breaches_even_with_thresholds_of_zero() -> None:
    assert not WasteThresholds(Decimal(0), Decimal(0), 1).breached_by(hour(0, "0", "0"))


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[HourWaste], list[list[HourWaste]]]:
    """A history with holes, and what the rule hears of it: batches up to some hour, some twice, in any order."""
    history = [
        bad(number) if kind == "bad" else good(number)
        for number, kind in enumerate(draw(st.lists(st.sampled_from(["bad", "good", "unknown"]), max_size=24)))
        if kind != "unknown"
    ]
    ends = draw(st.lists(st.integers(0, len(history)), max_size=30))
    batches = [draw(st.permutations(history[:end] * draw(st.integers(1, 2)))) for end in ends]
    return history, batches


@given(deliveries(), st.integers(1, 4))
def test_duplicated_and_reordered_news_come_to_the_same_as_each_hour_once(
    heard: tuple[list[HourWaste], list[list[HourWaste]]], for_hours: int
) -> None:
    history, batches = heard
    thresholds = replace(TWO_HOURS, for_hours=for_hours)
    state, told = FRESH, []
    for batch in [*batches, history]:
        state, more = decide(state, batch, thresholds)
        told += more

    assert (state, told) == decide(FRESH, history, thresholds)
    assert [notification.event for notification in told] == (["firing", "resolved"] * len(told))[: len(told)]
    assert len({notification.id for notification in told}) == len(told)


@given(deliveries(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_never_two_firings_without_a_resolve_between(
    heard: tuple[list[HourWaste], list[list[HourWaste]]], for_hours: int, random: Random
) -> None:
    """Even where hours come late, after newer ones were decided."""
    history, _ = heard
    late = list(history)
    random.shuffle(late)
    state, told = FRESH, []
    for seen in late:
        before = state.decided_through
        state, more = decide(state, [seen], replace(TWO_HOURS, for_hours=for_hours))
        told += more
        assert before is None or (state.decided_through is not None and state.decided_through >= before)

    assert [notification.event for notification in told] == (["firing", "resolved"] * len(told))[: len(told)]
