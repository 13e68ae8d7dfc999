"""Alerts as a pure state machine: `(previous, observation) → (next, event)`.

| hour | phase |
| --- | --- |
| breaches | `pending`, then `firing` (told once) when the run of breaching hours is as long as the rule's `for` |
| does not | pending ends untold; firing ends (told once) after `keep_firing_for` quiet hours on end, at least one |
| unknown: missing, incomplete, not priced | as it was: what nobody knows says nothing, and ends no run |

The phase is a fold over verdicts, hour by hour. An alert keeps the newest verdicts, so that a restated hour is a
verdict replaced and the fold made again; what lies further back is summed up in `Base`. Prometheus's `for` and
`keep_firing_for` in hours. An hour at or before the newest verdict is decided: repeated or late, it changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from gpucost.features.alerting.model import Alert, EvaluationState, Phase, Subject, Evaluation

Change = Literal["firing", "resolved"]


@dataclass(frozen=True, slots=True)
class FiringPolicy:
    """How long a condition must hold, and be over."""

    for_hours: int = 1
    keep_firing_hours: int = 0

    @property
    def window(self) -> int:
        """Verdicts kept one by one: a run that starts an alert and one that ends it, and the hour before."""
        return self.for_hours + max(1, self.keep_firing_hours) + 1


@dataclass(frozen=True, slots=True)
class Transition:
    """What an observation led to."""

    alert: Alert | None
    """None: neither pending nor firing; nothing is to be remembered."""
    change: Change | None = None


def advance(
    alert: Alert | None,
    rule: str,
    subject: Subject,
    hour: datetime,
    breaches: bool | None,
    policy: FiringPolicy,
    previous: datetime | None = None,
) -> Transition:
    """Take one more hour into account.

    Args:
        alert: as it was.
        rule: the rule's name.
        subject: what is watched.
        hour: start of the hour.
        breaches: whether it does; None: nobody knows.
        policy: the rule's patience.
        previous: the newest hour in which the subject was seen quiet, for an alert that begins here.
    """
    if breaches is None or (alert is not None and alert.evaluations and hour <= alert.evaluations[-1].hour):
        return Transition(alert)
    if alert is None:
        if not breaches:
            return Transition(None)
        before = (Evaluation(previous, is_breach=False),) if previous is not None and previous < hour else ()
        alert = Alert(rule, subject, "inactive", hour, before)
    return _transition(alert, (*alert.evaluations, Evaluation(hour, breaches)), policy)


def reevaluate(alert: Alert, hour: datetime, breaches: bool | None, policy: FiringPolicy) -> Transition:
    """Replace the verdict on an hour that was decided; one that is no longer kept changes nothing."""
    if breaches is None:
        return Transition(alert)
    evidence = tuple(Evaluation(hour, breaches) if one.hour == hour else one for one in alert.evaluations)
    return Transition(alert) if evidence == alert.evaluations else _transition(alert, evidence, policy)


def fold_evaluations(base: EvaluationState, evidence: Iterable[Evaluation], policy: FiringPolicy) -> EvaluationState:
    """The state after some hours."""
    firing, run, quiet = base
    for verdict in evidence:
        run, quiet = (run + 1, 0) if verdict.is_breach else (0, quiet + 1)
        if run >= policy.for_hours:
            firing = True
        elif quiet >= max(1, policy.keep_firing_hours):
            firing = False
    return EvaluationState(firing, run, quiet)


def phase_of(state: EvaluationState) -> Phase:
    """What a state is called."""
    if state.firing:
        return "firing"
    return "pending" if state.breach_run else "inactive"


def _transition(alert: Alert, evidence: tuple[Evaluation, ...], policy: FiringPolicy) -> Transition:
    """The alert with this evidence, trimmed, and what changed."""
    phase = phase_of(fold_evaluations(alert.earlier_state, evidence, policy))
    change: Change | None = None
    if phase == "firing" and alert.phase != "firing":
        change = "firing"
    elif alert.phase == "firing" and phase != "firing":
        change = "resolved"
    if phase == "inactive":
        return Transition(None, change)
    since = alert.since if phase == "firing" and alert.phase == "firing" else _since(alert, evidence)
    over = max(0, len(evidence) - policy.window)
    base = fold_evaluations(alert.earlier_state, evidence[:over], policy)
    after = replace(alert, phase=phase, since=since, evaluations=evidence[over:], earlier_state=base)
    if change == "resolved":  # a run goes on that is too short by now
        after = replace(after, notified_at=None, notification=None, acknowledged_by="", acknowledged_at=None)
    return Transition(after, change)


def _since(alert: Alert, evidence: tuple[Evaluation, ...]) -> datetime:
    """Start of the newest run; one that reaches further back than the evidence began when the alert says."""
    since = None
    for verdict in reversed(evidence):
        if not verdict.is_breach:
            break
        since = verdict.hour
    else:
        return min(alert.since, since) if since else alert.since
    return since or alert.since
