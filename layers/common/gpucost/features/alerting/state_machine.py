"""Alerts as a pure state machine: `(alert, evaluated hour) → (alert, change)`.

| hour | phase |
| --- | --- |
| breach | `pending`, then `firing` (one notification) once the run of breaches is as long as the rule's `for_hours` |
| no breach | pending ends silently; firing ends (one notification) after `keep_firing_hours` clear hours, at least 1 |
| unknown: missing, incomplete, unpriced | unchanged; an unknown hour ends no run |

The phase is a fold over the evaluations, hour by hour. An alert keeps its newest evaluations. When an hour is restated,
its evaluation is replaced and the fold is repeated. Older evaluations are summarized in an `EvaluationState`.
`for_hours` and `keep_firing_hours` are Prometheus's `for` and `keep_firing_for`, in hours. An hour at or before the
newest evaluation was evaluated before: a repeated or late message for it changes nothing.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Literal

from msgspec import Struct

from gpucost.features.alerting.findings import FiringPolicy, Subject
from gpucost.features.alerting.model import Alert, AlertPhase, Evaluation, EvaluationState

AlertChange = Literal["firing", "resolved"]


class Transition(Struct, frozen=True):
    """An alert after an evaluation, and what changed."""

    alert: Alert | None
    """None: neither pending nor firing, so that nothing is stored."""
    change: AlertChange | None = None


def advance(
    alert: Alert | None,
    rule_name: str,
    subject: Subject,
    hour: datetime,
    is_breach: bool | None,
    policy: FiringPolicy,
    last_clear_hour: datetime | None = None,
) -> Transition:
    """Apply the evaluation of one more hour.

    Args:
        alert: the alert before; None where it is inactive.
        rule_name: the rule's name.
        subject: the subject of the alert.
        hour: start of the evaluated hour.
        is_breach: whether the hour breaches the rule; None: unknown.
        policy: the rule's durations.
        last_clear_hour: the newest hour known to be without a breach, for an alert that starts here.
    """
    if is_breach is None or (alert is not None and alert.evaluations and hour <= alert.evaluations[-1].hour):
        return Transition(alert)
    if alert is None:
        if not is_breach:
            return Transition(None)
        earlier: tuple[Evaluation, ...] = ()
        if last_clear_hour is not None and last_clear_hour < hour:
            earlier = (Evaluation(last_clear_hour, is_breach=False),)
        alert = Alert(rule_name, subject, "inactive", hour, earlier)
    return _transition(alert, (*alert.evaluations, Evaluation(hour, is_breach)), policy)


def reevaluate(alert: Alert, hour: datetime, is_breach: bool | None, policy: FiringPolicy) -> Transition:
    """Replace the evaluation of a restated hour; an hour whose evaluation is no longer kept changes nothing."""
    if is_breach is None:
        return Transition(alert)
    evaluations = tuple(
        Evaluation(hour, is_breach) if evaluation.hour == hour else evaluation for evaluation in alert.evaluations
    )
    return Transition(alert) if evaluations == alert.evaluations else _transition(alert, evaluations, policy)


def fold_evaluations(
    state: EvaluationState, evaluations: Iterable[Evaluation], policy: FiringPolicy
) -> EvaluationState:
    """Return the state after a sequence of evaluations."""
    firing, breach_run, clear_run = state
    for evaluation in evaluations:
        breach_run, clear_run = (breach_run + 1, 0) if evaluation.is_breach else (0, clear_run + 1)
        if breach_run >= policy.for_hours:
            firing = True
        elif clear_run >= max(1, policy.keep_firing_hours):
            firing = False
    return EvaluationState(firing, breach_run, clear_run)


def phase_of(state: EvaluationState) -> AlertPhase:
    """Return the phase of a state."""
    if state.is_firing:
        return "firing"
    return "pending" if state.consecutive_breach_hours else "inactive"


def _transition(alert: Alert, evaluations: tuple[Evaluation, ...], policy: FiringPolicy) -> Transition:
    """Evaluate an alert with these evaluations, and keep only the newest of them."""
    phase = phase_of(fold_evaluations(alert.earlier_state, evaluations, policy))
    change: AlertChange | None = None
    if phase == "firing" and alert.phase != "firing":
        change = "firing"
    elif alert.phase == "firing" and phase != "firing":
        change = "resolved"
    if phase == "inactive":
        return Transition(None, change)
    since = alert.since if phase == "firing" and alert.phase == "firing" else _start_of_run(alert, evaluations)
    excess = max(0, len(evaluations) - policy.evaluations_to_keep)
    earlier_state = fold_evaluations(alert.earlier_state, evaluations[:excess], policy)
    next_alert = replace(alert, phase=phase, since=since, evaluations=evaluations[excess:], earlier_state=earlier_state)
    if change == "resolved":  # a restatement left a run that is too short to fire: the alert is pending again
        next_alert = replace(next_alert, notified_at=None, notification=None, acknowledged_by="", acknowledged_at=None)
    return Transition(next_alert, change)


def _start_of_run(alert: Alert, evaluations: tuple[Evaluation, ...]) -> datetime:
    """Return the start of the newest run of breaches, which may be older than the evaluations that are kept."""
    start = None
    for evaluation in reversed(evaluations):
        if not evaluation.is_breach:
            break
        start = evaluation.hour
    else:
        return min(alert.since, start) if start else alert.since
    return start or alert.since
