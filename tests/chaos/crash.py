"""Every crash point: the function is killed before or after its k-th external call, and AWS runs it again.

No message waits between two ticks. So a crash is compared from the saved state before its tick to the end of the next
tick. If all figures and the alert state are equal there, the rest of the day is equal, too.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tests.chaos.external_calls import RESENT, WRITES, Fault
from tests.chaos.simulated_deployment import Endpoints, SavedState, SimulatedDeployment

RECOVERED_AFTER = 5
"""Ticks until an hour whose second attempt failed has been attempted again."""


@dataclass
class FaultReport:
    """The effects of faults.

    Attributes:
        tried: number of faults.
        lost: hours, or sums of hours, that are missing.
        doubled: those that are too many, or whose figures differ.
        missing_messages: messages or notifications that were not sent.
        dead: unexpected dead letters.

    """

    tried: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    missing_messages: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)

    def is_clean(self) -> bool:
        """Whether no fault had an effect."""
        return self.tried > 0 and not (self.lost or self.doubled or self.missing_messages or self.dead)


@dataclass(frozen=True)
class Baseline:
    """The expected state after two ticks, from an undisturbed run."""

    before: SavedState
    calls: tuple[str, ...]
    """The external calls of the first tick."""
    state: dict[str, Any]
    messages: set[tuple[Any, ...]]
    notifications: set[str]
    first_calls: frozenset[int] = frozenset()
    """Numbers of each invocation's first call."""


def baselines(
    deployment: SimulatedDeployment, ticks: range, *, with_later: bool = False
) -> Iterator[tuple[int, Baseline, Baseline]]:
    """Run the day undisturbed. Yields (tick, baseline after the next tick, baseline after several ticks)."""
    deployment.run(*range(ticks.start))
    before = deployment.save()
    for number in ticks:
        deployment.restore(before)
        deployment.run(number)
        calls, after = tuple(deployment.external_calls.calls), deployment.save()
        first_calls = frozenset(deployment.external_calls.first_calls)
        deployment.run(number + 1)
        after_next_tick = Baseline(
            before, calls, deployment.visible_state(), {*deployment.messages()}, deployment.notifications(), first_calls
        )
        if with_later:
            deployment.run(*range(number + 2, number + 1 + RECOVERED_AFTER))
        yield (
            number,
            after_next_tick,
            replace(
                after_next_tick,
                state=deployment.visible_state(),
                messages={*deployment.messages()},
                notifications=deployment.notifications(),
            ),
        )
        before = after


def compare(
    report: FaultReport,
    fault: str,
    deployment: SimulatedDeployment,
    expected: Baseline,
    *,
    delayed: bool = False,
    state_of: Callable[[SimulatedDeployment], dict[str, Any]] = SimulatedDeployment.visible_state,
) -> None:
    """Add the differences between a disturbed run and the baseline to a report.

    If an attempt may legitimately come an hour later, versions and attempts differ. Then figures are compared,
    messages by their hour, and notifications by their count.
    """
    if delayed:
        expected = replace(
            expected, state=figures(expected.state), messages={message[:2] for message in expected.messages}
        )
    report.tried += 1
    actual = figures(deployment.visible_state()) if delayed else state_of(deployment)
    received: set[tuple[Any, ...]] = {message[:2] if delayed else message for message in deployment.messages()}
    for name, value in expected.state.items():
        if name not in actual:
            report.lost.append(f"{fault}: {name}")
        elif actual[name] != value:
            report.doubled.append(f"{fault}: {name}: {actual[name]} instead of {value}")
    report.doubled += [f"{fault}: {name}" for name in actual.keys() - expected.state.keys()]
    report.doubled += [f"{fault}: {message}" for message in received - expected.messages]
    report.missing_messages += [f"{fault}: {message}" for message in expected.messages - received]
    sent, expected_ids = (
        Counter(map(_undated, ids) if delayed else ids) for ids in (deployment.notifications(), expected.notifications)
    )
    report.missing_messages += [f"{fault}: {notification}" for notification in expected_ids - sent]
    report.doubled += [f"{fault}: {notification}" for notification in sent - expected_ids]
    report.dead += [f"{fault}: {message}" for message in deployment.dead]


def _undated(notification: str) -> str:
    """A notification's ID without its hour, because a late hour delays the detection of waste."""
    cluster, rule, unit, _, event = notification.split("/")
    return f"{cluster}/{rule}/{unit}/{event}"


def figures(state: dict[str, Any]) -> dict[str, Any]:
    """All figures, without versions, attempts and alert state."""
    return {name: value for name, value in state.items() if not name.endswith("manifest") and " alert " not in name}


def faults_of(calls: tuple[str, ...], first_calls: frozenset[int]) -> Iterator[tuple[int, Fault]]:
    """All faults of all calls.

    A kill before a call equals a kill after the previous one. After a call without effect, it equals the kill at the
    previous call of the same invocation.
    """
    yield 1, "killed before"
    for number, name in enumerate(calls, start=1):
        if name in WRITES or number in first_calls:
            yield number, "killed after"
    for number, name in enumerate(calls, start=1):
        yield number, "throttled"
        if name in WRITES:
            yield number, "timed out after"
        if name in RESENT:
            yield number, "sent twice"
        if name == "batch_write_item":
            yield number, "half taken"


def enumerate_crashes(
    endpoints: Endpoints, start: datetime, ticks: range, clusters: tuple[str, ...], *, only_kills: bool = False
) -> Iterator[tuple[str, FaultReport]]:
    """Try every fault at every call of these ticks. Yields (crash point, report so far)."""
    report = FaultReport()
    undisturbed, deployment = (
        SimulatedDeployment(endpoints, start, clusters),
        SimulatedDeployment(endpoints, start, clusters),
    )
    try:
        for number, next_tick, later in baselines(undisturbed, ticks, with_later=not only_kills):
            for call_number, fault in faults_of(next_tick.calls, next_tick.first_calls):
                if only_kills and not fault.startswith("killed"):
                    continue
                delayed = fault == "throttled"
                crash_point = f"hour {number}, call {call_number} ({next_tick.calls[call_number - 1]}) {fault}"
                deployment.restore(next_tick.before)
                deployment.external_calls.plan[call_number] = fault
                deployment.run(*range(number, number + (RECOVERED_AFTER + 1 if delayed else 2)))
                compare(report, crash_point, deployment, later if delayed else next_tick, delayed=delayed)
                yield crash_point, report
    finally:
        undisturbed.close()
        deployment.close()
