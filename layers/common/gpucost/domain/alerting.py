"""Alert rules as a pure state machine: `(previous state, observations) → (next state, notifications)`."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

Phase = Literal["inactive", "pending", "firing"]


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
    """(receiver, notification) pairs decided on and not yet known to be delivered."""
    version: int = 0
    """0: not stored yet."""
