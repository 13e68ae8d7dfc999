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

from gpucost.features.alerting.model import Alert, Base, Phase, Subject, Verdict

Change = Literal["firing", "resolved"]


@dataclass(frozen=True, slots=True)
class Policy:
    """How long a condition must hold, and be over."""

    for_hours: int = 1
    keep_firing_hours: int = 0

    @property
    def window(self) -> int:
        """Verdicts kept one by one: a run that starts an alert and one that ends it, and the hour before."""
        return self.for_hours + max(1, self.keep_firing_hours) + 1


@dataclass(frozen=True, slots=True)
class Step:
    """What an observation led to."""

    alert: Alert | None
    """None: neither pending nor firing; nothing is to be remembered."""
    change: Change | None = None


def observe(
    alert: Alert | None,
    rule: str,
    subject: Subject,
    hour: datetime,
    breaches: bool | None,
    policy: Policy,
    previous: datetime | None = None,
) -> Step:
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
    if breaches is None or (alert is not None and alert.evidence and hour <= alert.evidence[-1].hour):
        return Step(alert)
    if alert is None:
        if not breaches:
            return Step(None)
        before = (Verdict(previous, breaches=False),) if previous is not None and previous < hour else ()
        alert = Alert(rule, subject, "inactive", hour, before)
    return _settled(alert, (*alert.evidence, Verdict(hour, breaches)), policy)


def restate(alert: Alert, hour: datetime, breaches: bool | None, policy: Policy) -> Step:
    """Replace the verdict on an hour that was decided; one that is no longer kept changes nothing."""
    if breaches is None:
        return Step(alert)
    evidence = tuple(Verdict(hour, breaches) if one.hour == hour else one for one in alert.evidence)
    return Step(alert) if evidence == alert.evidence else _settled(alert, evidence, policy)


def fold(base: Base, evidence: Iterable[Verdict], policy: Policy) -> Base:
    """The state after some hours."""
    firing, run, quiet = base
    for verdict in evidence:
        run, quiet = (run + 1, 0) if verdict.breaches else (0, quiet + 1)
        if run >= policy.for_hours:
            firing = True
        elif quiet >= max(1, policy.keep_firing_hours):
            firing = False
    return Base(firing, run, quiet)


def phase_of(state: Base) -> Phase:
    """What a state is called."""
    if state.firing:
        return "firing"
    return "pending" if state.run else "inactive"


def _settled(alert: Alert, evidence: tuple[Verdict, ...], policy: Policy) -> Step:
    """The alert with this evidence, trimmed, and what changed."""
    phase = phase_of(fold(alert.base, evidence, policy))
    change: Change | None = None
    if phase == "firing" and alert.phase != "firing":
        change = "firing"
    elif alert.phase == "firing" and phase != "firing":
        change = "resolved"
    if phase == "inactive":
        return Step(None, change)
    since = alert.since if phase == "firing" and alert.phase == "firing" else _since(alert, evidence)
    over = max(0, len(evidence) - policy.window)
    base = fold(alert.base, evidence[:over], policy)
    after = replace(alert, phase=phase, since=since, evidence=evidence[over:], base=base)
    if change == "resolved":  # a run goes on that is too short by now
        after = replace(after, told_at=None, news=None, acknowledged_by="", acknowledged_at=None)
    return Step(after, change)


def _since(alert: Alert, evidence: tuple[Verdict, ...]) -> datetime:
    """Start of the newest run; one that reaches further back than the evidence began when the alert says."""
    since = None
    for verdict in reversed(evidence):
        if not verdict.breaches:
            break
        since = verdict.hour
    else:
        return min(alert.since, since) if since else alert.since
    return since or alert.since
