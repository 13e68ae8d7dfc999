"""The words of advice as records: what to change, what it saves, how sure that is, and what became of it.

Amounts of advice are estimates: worked out in floating point from the ledger's exact figures and rounded to cents
(decision 0043). Everything is in the ledger's currency, whatever a field's name says.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

Kind = Literal[
    "idle",
    "fewer-gpus",
    "mig-slice",
    "mig-geometry",
    "sharing",
    "consolidate",
    "add-gpus",
    "pending",
    "off-hours",
    "spot",
    "commitment",
]
State = Literal["open", "applied", "verified", "dismissed", "withdrawn"]
Level = Literal["low", "medium", "high"]
HOURS_OF_MONTH = 730
"""8,760 hours of a year ÷ 12, as AWS's price pages count."""
CENT = Decimal("0.01")


class About(NamedTuple):
    """What advice is about: a workload, or a node pool of an instance type."""

    cluster: str
    business_unit: str = ""
    """ "" for a node pool, which no unit owns."""
    namespace: str = ""
    workload_kind: str = ""
    workload: str = ""
    node_pool: str = ""
    instance_type: str = ""
    """Of a commitment also a family, as `g5.*`."""
    capacity_type: str = ""
    gpu_model: str = ""
    resource: str = ""

    @property
    def is_workload(self) -> bool:
        """Whether a business unit can act on it alone."""
        return bool(self.workload)


@dataclass(frozen=True, slots=True)
class Saving:
    """Per month of 730 hours; negative where advice costs money."""

    usd: Decimal
    """At the rates that the ledger charged: what its reports will show less."""
    low_usd: Decimal
    high_usd: Decimal
    """The mean day of the look-back ∓ two standard errors."""
    list_usd: Decimal | None
    """At on-demand list prices; None where nobody knows them."""
    cash_usd: Decimal | None
    """What leaves the bill: 0 for capacity that is committed to, None where the ledger cannot tell."""
    gpu_hours: Decimal


@dataclass(frozen=True, slots=True)
class Evidence:
    """What advice rests on."""

    first_hour: datetime
    """The oldest hour in which the thing was seen."""
    last_hour: datetime
    hours_observed: int
    """Hours of the look-back in which the workload held GPUs, or the pool had nodes."""
    hours_unknown: int
    """Hours of that time without figures."""
    coverage: Decimal | None
    """Part of the GPU-hours held whose use was observed; None for advice that does not rest on use."""
    mean_utilization: Decimal | None
    peak_utilization: Decimal | None
    """The busiest hour's mean: the ledger knows no finer one."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else decided, by name, as people read it."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What one run of the advice function finds of one thing."""

    kind: Kind
    about: About
    summary: str
    """One sentence: what to do."""
    saving: Saving
    evidence: Evidence
    confidence: Level
    risk: Level
    risk_note: str
    effort: Level
    patch: str
    """A manifest to apply, or "" where none can be given."""
    gpus_now: Decimal
    """Physical GPUs held (of a pool or instance type: nodes) in the newest day of the look-back, on average."""
    gpus_then: Decimal
    """The same with the advice applied."""
    usd_hourly: Decimal
    """What the thing costs in an hour, mean of the look-back's hours that have a price."""
    currency: str = "USD"
    part_of: str = ""
    """Id of the advice that counts this saving too: the two are never added."""

    @property
    def id(self) -> str:
        """The same whenever the same thing is advised of the same subject."""
        return identity(self.kind, self.about)


def identity(kind: Kind, about: About) -> str:
    """A stable id: the kind and 12 hexadecimal digits of what it is about."""
    digest = hashlib.sha256("\0".join((kind, *about)).encode()).hexdigest()
    return f"{kind}-{digest[:12]}"


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Advice with its life: open → applied → verified, or dismissed with a reason, or withdrawn by newer figures."""

    advice: Advice
    state: State
    since: datetime
    """When it came into this state."""
    first_advised: datetime
    last_advised: datetime
    """The newest run whose figures are shown."""
    applied_at: datetime | None = None
    """The first hour without what was advised against."""
    verified_usd: Decimal | None = None
    """Per month: what the change alone explains of what costs less since (`verifying`), at most what was claimed."""
    reason: str = ""
    """Why it was dismissed or withdrawn."""
    author: str = ""
    """Who dismissed it."""
    version: int = 0
    """Counts the writes; 0: not stored yet."""

    @property
    def id(self) -> str:
        """The advice's."""
        return self.advice.id


Standing = Literal["idle", "low", "bursty", "healthy", "busy", "saturated", "unknown"]
"""How a workload uses what it holds. `healthy` is 30 to 70% on average."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A workload and how it stands: also of those that get no advice it is said why."""

    about: About
    standing: Standing
    gpus: Decimal
    """Held in the newest day, on average."""
    mean_utilization: Decimal | None
    peak_utilization: Decimal | None
    why: str
    """In words."""


@dataclass(frozen=True, slots=True)
class Review:
    """All that a run says of one cluster."""

    cluster: str
    start: datetime
    end: datetime
    reviewed_at: datetime
    hours_known: int
    advice: tuple[Advice, ...]
    judged: tuple[Judged, ...]
    currency: str = "USD"


def cents(amount: float | Decimal) -> Decimal:
    """An estimate of money, as it is published."""
    return Decimal(str(amount)).quantize(CENT) + 0


def ratio(value: float | None) -> Decimal | None:
    """An estimate of a share or a number of GPUs, as it is published."""
    return None if value is None else Decimal(str(value)).quantize(Decimal("0.0001"))


def counted(number: float) -> str:
    """A number of GPUs or nodes, as people read it: three digits tell enough, and never an exponent."""
    if abs(number) >= 99.95:  # noqa: PLR2004 - what three digits would round to 100
        return f"{number:,.0f}"
    return f"{float(f'{number:.3g}'):.6f}".rstrip("0").rstrip(".")
