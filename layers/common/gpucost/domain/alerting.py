"""Alert rules as a pure state machine: `(previous state, observations) → (next state, notifications)`.

| hour | run of breaches | phase |
| --- | --- | --- |
| breaches | one longer | `pending`, then `firing` (told once) when it is as long as the rule asks |
| does not breach | over | `inactive`; a firing rule is resolved (told once) |
| missing, incomplete, or not all of the unit priced | as it was | as it was: what nobody knows says nothing |

A provisional hour in which all of a unit has a price counts like a complete one: its bill may come a month later.

Hours are taken in order and once: one at or before `decided_through` changes nothing any more.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Literal

from gpucost.domain.hours import format_instant

Phase = Literal["inactive", "pending", "firing"]
_WIDE = Context(prec=60, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Notification:
    """What people are told: who wastes how much, since when. Amounts in USD per hour."""

    id: str
    """The same for every attempt to deliver it."""
    event: Literal["firing", "resolved"]
    rule: str
    cluster: str
    business_unit: str
    since: datetime
    """Start of the first hour of the breach."""
    hour: datetime
    """Start of the hour that decided it."""
    waste_usd_per_hour: Decimal
    allocated_usd_per_hour: Decimal
    waste_percent: Decimal
    threshold: str
    """The rule in words, as it applied."""


@dataclass(frozen=True, slots=True)
class AlertState:
    """What a rule remembers of one business unit in one cluster."""

    rule: str
    cluster: str
    business_unit: str
    phase: Phase
    since: datetime | None
    """Start of the first hour of the present run of breaching hours."""
    breaches: int
    """Breaching hours in that run."""
    decided_through: datetime | None
    """Start of the newest hour taken into account; that hour and older ones change nothing any more."""
    outbox: tuple[tuple[str, Notification], ...] = ()
    """(receiver, notification) pairs decided on and not yet known to be delivered, oldest first."""
    version: int = 0
    """0: not stored yet."""
    sending_until: datetime | None = None
    """Until then somebody is delivering the outbox, and others leave it alone."""

    @classmethod
    def fresh(cls, rule: str, cluster: str, business_unit: str) -> "AlertState":
        """A rule that has seen nothing of a unit yet."""
        return cls(rule, cluster, business_unit, phase="inactive", since=None, breaches=0, decided_through=None)


@dataclass(frozen=True, slots=True)
class WasteThresholds:
    """When a unit wastes too much: at least so much money, and so much of what it holds, for so many hours on end."""

    waste_usd_per_hour: Decimal
    waste_percent: Decimal
    for_hours: int

    def breached_by(self, seen: "HourWaste") -> bool:
        """Whether one hour reaches both thresholds; a unit that holds nothing wastes nothing."""
        return (
            seen.allocated_usd > 0
            and seen.waste_usd >= self.waste_usd_per_hour
            and seen.waste_usd * 100 >= self.waste_percent * seen.allocated_usd
        )

    def __str__(self) -> str:
        hours = "1 hour" if self.for_hours == 1 else f"{self.for_hours} hours on end"
        return f"waste ≥ ${self.waste_usd_per_hour:f} per hour and ≥ {self.waste_percent:f}% of allocated, for {hours}"


@dataclass(frozen=True, slots=True)
class HourWaste:
    """What one unit held and wasted in one complete hour, in USD."""

    hour: datetime
    allocated_usd: Decimal
    waste_usd: Decimal

    @property
    def percent(self) -> Decimal:
        """Waste as a part of allocated, 0 to 100, to a tenth; 0 where nothing was held."""
        if self.allocated_usd <= 0:
            return Decimal("0.0")
        return _WIDE.divide(self.waste_usd * 100, self.allocated_usd).quantize(Decimal("0.1"), context=_WIDE)


def decide(
    state: AlertState, hours: Iterable[HourWaste], thresholds: WasteThresholds
) -> tuple[AlertState, list[Notification]]:
    """Take a unit's complete hours into account, in any order and however often they are given.

    Returns:
        The next state (outbox and version untouched) and what people are to be told, oldest first.
    """
    told: list[Notification] = []
    for seen in sorted(hours, key=lambda seen: seen.hour):
        if state.decided_through is not None and seen.hour <= state.decided_through:
            continue
        state, notification = _step(state, seen, thresholds)
        if notification is not None:
            told.append(notification)
    return state, told


def _step(state: AlertState, seen: HourWaste, thresholds: WasteThresholds) -> tuple[AlertState, Notification | None]:
    if not thresholds.breached_by(seen):
        quiet = replace(state, phase="inactive", since=None, breaches=0, decided_through=seen.hour)
        return quiet, _notification("resolved", state, seen, thresholds) if state.phase == "firing" else None
    run = replace(
        state, since=state.since or seen.hour, breaches=state.breaches + 1, decided_through=seen.hour, phase="pending"
    )
    if state.phase == "firing":
        return replace(run, phase="firing"), None
    if run.breaches < thresholds.for_hours:
        return run, None
    firing = replace(run, phase="firing")
    return firing, _notification("firing", firing, seen, thresholds)


def _notification(
    event: Literal["firing", "resolved"], state: AlertState, seen: HourWaste, thresholds: WasteThresholds
) -> Notification:
    return Notification(
        id=f"{state.cluster}/{state.rule}/{state.business_unit}/{format_instant(seen.hour)}/{event}",
        event=event,
        rule=state.rule,
        cluster=state.cluster,
        business_unit=state.business_unit,
        since=state.since or seen.hour,
        hour=seen.hour,
        waste_usd_per_hour=seen.waste_usd,
        allocated_usd_per_hour=seen.allocated_usd,
        waste_percent=seen.percent,
        threshold=str(thresholds),
    )
