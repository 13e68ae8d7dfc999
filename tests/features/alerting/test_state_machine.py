"""Alerts as a state machine: told once, resolved once, in whatever order; compared with a brute force."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.hours import HOUR
from gpucost.features.alerting.model import Alert, Subject
from gpucost.features.alerting.state_machine import Change, FiringPolicy, Transition, advance, reevaluate

START = datetime(2026, 11, 19, tzinfo=UTC)
WHO = Subject("demo", "research")
Told = list[tuple[Change, int]]


class Machine:
    """One alert, hour by hour, by number."""

    def __init__(self, policy: FiringPolicy) -> None:
        self.policy = policy
        self.alert: Alert | None = None
        self.told: Told = []
        self.decided: int | None = None

    def see(self, number: int, verdict: bool | None) -> None:
        """As the service does: what is decided is not given again."""
        if self.decided is not None and number <= self.decided:
            return
        previous = None if self.decided is None else START + HOUR * self.decided
        step = advance(self.alert, "waste", WHO, START + HOUR * number, verdict, self.policy, previous)
        self.take(step, number)
        if verdict is not None:
            self.decided = number

    def restate(self, number: int, verdict: bool) -> None:
        if self.alert is not None:
            self.take(reevaluate(self.alert, START + HOUR * number, verdict, self.policy), number)

    def take(self, step: Transition, number: int) -> None:
        self.alert = step.alert
        if step.change is not None:
            self.told.append((step.change, number))

    @property
    def phase(self) -> str:
        return self.alert.phase if self.alert else "inactive"


def run(verdicts: Sequence[bool | None], policy: FiringPolicy) -> Machine:
    machine = Machine(policy)
    for number, verdict in enumerate(verdicts):
        machine.see(number, verdict)
    return machine


B, Q, U = True, False, None


@pytest.mark.parametrize(
    ("verdicts", "for_hours", "keep", "told"),
    [
        ([B, B, B, Q, Q], 2, 0, [("firing", 1), ("resolved", 3)]),
        ([B, Q, B], 2, 0, []),
        ([B, U, B], 2, 0, [("firing", 2)]),  # nobody knows: the run is as it was
        ([B, U, U, U], 1, 0, [("firing", 0)]),  # missing data never resolves
        ([B, Q, B, Q, Q, Q], 1, 2, [("firing", 0), ("resolved", 4)]),
        ([B, Q, U, Q], 1, 2, [("firing", 0), ("resolved", 3)]),
        ([B, B, B, Q, B, Q, Q, B, B, B], 3, 2, [("firing", 2), ("resolved", 6), ("firing", 9)]),
        ([Q, U, Q], 1, 0, []),
    ],
)
def test_hours_in_order(verdicts: list[bool | None], for_hours: int, keep: int, told: Told) -> None:
    assert run(verdicts, FiringPolicy(for_hours, keep)).told == told


def test_since_is_the_start_of_the_run() -> None:
    machine = run([B, Q, B, B], FiringPolicy(2))
    assert machine.alert is not None
    assert machine.alert.since == START + HOUR * 2
    long = run([B] * 30, FiringPolicy(2))
    assert long.alert is not None
    assert (long.alert.since, len(long.alert.evaluations)) == (START, FiringPolicy(2).window)


@pytest.mark.parametrize(
    ("verdicts", "restated", "for_hours", "phase", "told"),
    [
        ([B, B], (1, Q), 2, "inactive", [("firing", 1), ("resolved", 1)]),
        ([B, B, B], (0, Q), 2, "firing", [("firing", 1)]),  # two hours on end are left
        ([B, B], (0, Q), 2, "pending", [("firing", 1), ("resolved", 0)]),
        ([Q, B], (0, B), 2, "firing", [("firing", 0)]),
        ([B] * 9, (0, Q), 3, "firing", [("firing", 2)]),  # too long ago to matter
        ([B, B], (1, B), 2, "firing", [("firing", 1)]),  # the same again
    ],
)
def test_a_restated_hour(
    verdicts: list[bool], restated: tuple[int, bool], for_hours: int, phase: str, told: Told
) -> None:
    machine = run(verdicts, FiringPolicy(for_hours))
    machine.restate(*restated)
    assert (machine.phase, machine.told) == (phase, told)


def brute_force(verdicts: Sequence[bool | None], policy: FiringPolicy) -> tuple[str, Told]:
    """The definition, looked up in the whole history at every hour."""
    firing, told = False, []
    known: list[bool] = []
    for number, verdict in enumerate(verdicts):
        if verdict is None:
            continue
        known.append(verdict)
        keep = max(1, policy.keep_firing_hours)
        if not firing and len(known) >= policy.for_hours and all(known[-policy.for_hours :]):
            firing = True
            told.append(("firing", number))
        elif firing and len(known) >= keep and not any(known[-keep:]):
            firing = False
            told.append(("resolved", number))
    phase = "firing" if firing else "pending" if known and known[-1] else "inactive"
    return phase, told  # type: ignore[return-value]  # the literals


VERDICTS = st.lists(st.sampled_from([True, True, False, None]), max_size=40)
POLICIES = st.builds(FiringPolicy, st.integers(1, 5), st.integers(0, 4))


@given(VERDICTS, POLICIES)
def test_an_alert_that_forgets_decides_as_one_that_remembers_everything(
    verdicts: list[bool | None], policy: FiringPolicy
) -> None:
    machine = run(verdicts, policy)
    assert (machine.phase, machine.told) == brute_force(verdicts, policy)


@given(VERDICTS, POLICIES, st.data())
def test_duplicated_and_reordered_hours_change_nothing_decided(
    verdicts: list[bool | None], policy: FiringPolicy, data: st.DataObject
) -> None:
    machine = Machine(policy)
    for number, verdict in enumerate(verdicts):
        machine.see(number, verdict)
        for older in data.draw(st.lists(st.integers(0, number), max_size=3)):
            if machine.decided is not None and older <= machine.decided:
                machine.see(older, data.draw(st.booleans()))
    assert (machine.phase, machine.told) == brute_force(verdicts, policy)


@given(VERDICTS, POLICIES, st.data())
def test_a_restated_history_never_fires_twice_without_a_resolve_and_fires_only_on_evidence(
    verdicts: list[bool | None], policy: FiringPolicy, data: st.DataObject
) -> None:
    """Every firing ends, or is still true of the figures in force."""
    machine, in_force = Machine(policy), list[bool | None]()
    for number, verdict in enumerate(verdicts):
        machine.see(number, verdict)
        in_force.append(verdict)
        kept = [] if machine.alert is None else [(one.hour - START) // HOUR for one in machine.alert.evaluations]
        is_restated: bool = data.draw(st.booleans())
        if kept and is_restated:
            place = data.draw(st.sampled_from(kept))
            again = data.draw(st.booleans())
            machine.restate(place, again)
            in_force[place] = again
        changes = [change for change, _ in machine.told]
        assert all(one != other for one, other in pairwise(changes))
        assert not changes or changes[0] == "firing"
        assert (machine.phase == "firing") == (bool(changes) and changes[-1] == "firing")
        if machine.phase == "firing":
            known = [one for one in in_force if one is not None]
            runs = "".join("B" if one else "Q" for one in known)
            assert "B" * policy.for_hours in runs
            assert not runs.endswith("Q" * max(1, policy.keep_firing_hours))
