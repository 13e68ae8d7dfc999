"""The alert state machine, compared with a brute-force evaluation of the whole history."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.hours import HOUR
from gpucost.features.alerting.model import Alert
from gpucost.features.alerting.rule_kinds.base import FiringPolicy, Subject
from gpucost.features.alerting.scope_update import AlertChange, Transition, advance, reevaluate

START = datetime(2026, 11, 19, tzinfo=UTC)
SUBJECT = Subject("demo", "research")
Changes = list[tuple[AlertChange, int]]


class Machine:
    """One alert, hour by hour, by number."""

    def __init__(self, policy: FiringPolicy) -> None:
        self.policy = policy
        self.alert: Alert | None = None
        self.changes: Changes = []
        self.evaluated_through: int | None = None

    def evaluate(self, number: int, is_breach: bool | None) -> None:
        """Evaluate an hour once, as the service does."""
        if self.evaluated_through is not None and number <= self.evaluated_through:
            return
        previous = None if self.evaluated_through is None else START + HOUR * self.evaluated_through
        transition = advance(self.alert, "waste", SUBJECT, START + HOUR * number, is_breach, self.policy, previous)
        self.apply(transition, number)
        if is_breach is not None:
            self.evaluated_through = number

    def restate(self, number: int, is_breach: bool) -> None:
        if self.alert is not None:
            self.apply(reevaluate(self.alert, START + HOUR * number, is_breach, self.policy), number)

    def apply(self, transition: Transition, number: int) -> None:
        self.alert = transition.alert
        if transition.change is not None:
            self.changes.append((transition.change, number))

    @property
    def phase(self) -> str:
        return self.alert.phase if self.alert else "inactive"


def run(breaches: Sequence[bool | None], policy: FiringPolicy) -> Machine:
    machine = Machine(policy)
    for number, is_breach in enumerate(breaches):
        machine.evaluate(number, is_breach)
    return machine


B, Q, U = True, False, None


@pytest.mark.parametrize(
    ("breaches", "for_hours", "keep", "expected"),
    [
        ([B, B, B, Q, Q], 2, 0, [("firing", 1), ("resolved", 3)]),
        ([B, Q, B], 2, 0, []),
        ([B, U, B], 2, 0, [("firing", 2)]),  # unknown: the run is unchanged
        ([B, U, U, U], 1, 0, [("firing", 0)]),  # missing data never resolves
        ([B, Q, B, Q, Q, Q], 1, 2, [("firing", 0), ("resolved", 4)]),
        ([B, Q, U, Q], 1, 2, [("firing", 0), ("resolved", 3)]),
        ([B, B, B, Q, B, Q, Q, B, B, B], 3, 2, [("firing", 2), ("resolved", 6), ("firing", 9)]),
        ([Q, U, Q], 1, 0, []),
    ],
)
def test_evaluation_of_hours_in_order(
    breaches: list[bool | None], for_hours: int, keep: int, expected: Changes
) -> None:
    assert run(breaches, FiringPolicy(for_hours, keep)).changes == expected


def test_since_is_the_start_of_the_run() -> None:
    machine = run([B, Q, B, B], FiringPolicy(2))
    assert machine.alert is not None
    assert machine.alert.since == START + HOUR * 2
    long = run([B] * 30, FiringPolicy(2))
    assert long.alert is not None
    assert (long.alert.since, len(long.alert.evaluations)) == (START, FiringPolicy(2).evaluations_to_keep)


@pytest.mark.parametrize(
    ("breaches", "restated", "for_hours", "phase", "expected"),
    [
        ([B, B], (1, Q), 2, "inactive", [("firing", 1), ("resolved", 1)]),
        ([B, B, B], (0, Q), 2, "firing", [("firing", 1)]),  # two consecutive hours are left
        ([B, B], (0, Q), 2, "pending", [("firing", 1), ("resolved", 0)]),
        ([Q, B], (0, B), 2, "firing", [("firing", 0)]),
        ([B] * 9, (0, Q), 3, "firing", [("firing", 2)]),  # too long ago to matter
        ([B, B], (1, B), 2, "firing", [("firing", 1)]),  # the same again
    ],
)
def test_evaluation_of_a_restated_hour(
    breaches: list[bool], restated: tuple[int, bool], for_hours: int, phase: str, expected: Changes
) -> None:
    machine = run(breaches, FiringPolicy(for_hours))
    machine.restate(*restated)
    assert (machine.phase, machine.changes) == (phase, expected)


def test_alert_that_is_pending_again_is_no_longer_acknowledged() -> None:
    machine = run([B, B], FiringPolicy(2))
    assert machine.alert is not None
    machine.alert = replace(machine.alert, acknowledged_by="alice", acknowledged_at=START)
    machine.restate(0, Q)
    assert machine.alert is not None
    assert (machine.phase, machine.alert.acknowledged_by, machine.alert.acknowledged_at) == ("pending", "", None)


def brute_force(breaches: Sequence[bool | None], policy: FiringPolicy) -> tuple[str, Changes]:
    """Apply the definition to the whole history at every hour."""
    firing, changes = False, []
    evaluated: list[bool] = []
    for number, is_breach in enumerate(breaches):
        if is_breach is None:
            continue
        evaluated.append(is_breach)
        keep = max(1, policy.keep_firing_hours)
        if not firing and len(evaluated) >= policy.for_hours and all(evaluated[-policy.for_hours :]):
            firing = True
            changes.append(("firing", number))
        elif firing and len(evaluated) >= keep and not any(evaluated[-keep:]):
            firing = False
            changes.append(("resolved", number))
    phase = "firing" if firing else "pending" if evaluated and evaluated[-1] else "inactive"
    return phase, changes  # type: ignore[return-value]  # the literals


BREACHES = st.lists(st.sampled_from([True, True, False, None]), max_size=40)
POLICIES = st.builds(FiringPolicy, st.integers(1, 5), st.integers(0, 4))


@given(BREACHES, POLICIES)
def test_trimmed_evaluations_decide_like_the_whole_history(breaches: list[bool | None], policy: FiringPolicy) -> None:
    machine = run(breaches, policy)
    assert (machine.phase, machine.changes) == brute_force(breaches, policy)


@given(BREACHES, POLICIES, st.data())
def test_duplicated_and_reordered_hours_change_nothing(
    breaches: list[bool | None], policy: FiringPolicy, data: st.DataObject
) -> None:
    machine = Machine(policy)
    for number, is_breach in enumerate(breaches):
        machine.evaluate(number, is_breach)
        for older in data.draw(st.lists(st.integers(0, number), max_size=3)):
            if machine.evaluated_through is not None and older <= machine.evaluated_through:
                machine.evaluate(older, data.draw(st.booleans()))
    assert (machine.phase, machine.changes) == brute_force(breaches, policy)


@given(BREACHES, POLICIES, st.data())
def test_restated_hours_fire_and_resolve_alternately_and_only_on_breaches(
    breaches: list[bool | None], policy: FiringPolicy, data: st.DataObject
) -> None:
    """An alert that fires either resolves or still matches the current figures."""
    machine, current = Machine(policy), list[bool | None]()
    for number, is_breach in enumerate(breaches):
        machine.evaluate(number, is_breach)
        current.append(is_breach)
        kept = (
            []
            if machine.alert is None
            else [(evaluation.hour - START) // HOUR for evaluation in machine.alert.evaluations]
        )
        is_restated: bool = data.draw(st.booleans())
        if kept and is_restated:
            hour = data.draw(st.sampled_from(kept))
            restated = data.draw(st.booleans())
            machine.restate(hour, restated)
            current[hour] = restated
        changes = [change for change, _ in machine.changes]
        assert all(previous != change for previous, change in pairwise(changes))
        assert not changes or changes[0] == "firing"
        assert (machine.phase == "firing") == (bool(changes) and changes[-1] == "firing")
        if machine.phase == "firing":
            runs = "".join("B" if is_breach else "Q" for is_breach in current if is_breach is not None)
            assert "B" * policy.for_hours in runs
            assert not runs.endswith("Q" * max(1, policy.keep_firing_hours))
