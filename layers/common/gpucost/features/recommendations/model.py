"""The records of recommendations: what to change, what it saves, how certain that is, and what became of it.

Amounts are estimates: calculated in floating point from the ledger's exact figures and rounded to cents
(decision 0043). All amounts are in the ledger's currency, also in fields whose names end in `usd`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from gpucost.core.decimals import parse_decimal

RecommendationState = Literal["open", "applied", "verified", "dismissed", "withdrawn"]
ConfidenceLevel = Literal["low", "medium", "high"]
CENT = Decimal("0.01")


class RecommendationSubject(NamedTuple):
    """What a recommendation is about: a workload, or a node pool of an instance type."""

    cluster: str
    business_unit: str = ""
    """Empty for a node pool, which no business unit owns."""
    namespace: str = ""
    workload_kind: str = ""
    workload: str = ""
    node_pool: str = ""
    instance_type: str = ""
    """For a commitment also a family, such as `g5.*`."""
    capacity_type: str = ""
    gpu_model: str = ""
    resource: str = ""

    @property
    def workload_name(self) -> str:
        """A workload's kind, namespace and name, as in summaries."""
        return f"{self.workload_kind} {self.namespace}/{self.workload}"

    @property
    def is_workload(self) -> bool:
        """Whether it is a workload, so that its business unit can act alone."""
        return bool(self.workload)


@dataclass(frozen=True, slots=True)
class Saving:
    """An estimated monthly saving (730 hours). It is negative if the recommendation costs money."""

    usd: Decimal
    """At the rates that the ledger charged: by this much, reports will show less."""
    low_usd: Decimal
    high_usd: Decimal
    """The mean day of the look-back, minus and plus two standard errors."""
    list_usd: Decimal | None
    """At on-demand list prices; None if they are not known."""
    cash_usd: Decimal | None
    """Reduction of the AWS bill: 0 for committed capacity, None if the ledger does not show it."""
    gpu_hours: Decimal


@dataclass(frozen=True, slots=True)
class Evidence:
    """The figures that a recommendation is based on."""

    first_hour: datetime
    """The oldest hour in which the subject was seen."""
    last_hour: datetime
    hours_observed: int
    """Hours of the look-back in which the workload held GPUs, or the pool had nodes."""
    hours_unknown: int
    """Hours of that time without figures."""
    coverage: Decimal | None
    """Part of the allocated GPU-hours with observed utilization; None if the recommendation does not depend on it."""
    mean_utilization: Decimal | None
    peak_utilization: Decimal | None
    """The mean of the busiest hour. The ledger has no finer resolution."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further facts by name, formatted for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationContent:
    """One change that a review recommends for one subject."""

    kind: str
    """The name of its kind (`kinds`)."""
    subject: RecommendationSubject
    title: str = ""
    """What to do, in a few words. Empty in what was stored before there were titles."""
    summary: str
    """One sentence: what to do, and why."""
    saving: Saving
    evidence: Evidence
    confidence: ConfidenceLevel
    risk: ConfidenceLevel
    risk_note: str
    effort: ConfidenceLevel
    patch: str
    """A manifest or commands to apply; empty if there is none."""
    current_gpus: Decimal
    """Physical GPUs (for a pool or instance type: nodes) in the newest day of the look-back, on average."""
    recommended_gpus: Decimal
    """The same after the recommendation is applied."""
    usd_hourly: Decimal
    """What the subject costs per hour: the mean of the look-back's hours that have a price."""
    currency: str = "USD"
    part_of: str = ""
    """Id of the recommendation that already counts this saving. Never add the two."""
    worth_usd: Decimal | None = None
    """What a change that costs money is worth per month; None if that is not known."""
    pools: tuple[tuple[str, str], ...] = ()
    """(Node pool, instance type) of the nodes that a workload needs, if the change adds GPUs to it."""

    @property
    def id(self) -> str:
        """Stable: the same kind and subject always have the same id."""
        return recommendation_id(self.kind, self.subject)


def recommendation_id(kind: str, subject: RecommendationSubject) -> str:
    """The stable id of a recommendation: its kind and 12 hexadecimal digits of its subject's hash."""
    digest = hashlib.sha256("\0".join((kind, *subject)).encode()).hexdigest()
    return f"{kind}-{digest[:12]}"


Offer = Literal["plan", "after-plan", "alternative", "cost"]
"""How an open recommendation is offered; see the plan in `lifecycle.py`."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A recommended change and its lifecycle: open → applied → verified, or dismissed, or withdrawn."""

    content: RecommendationContent
    state: RecommendationState
    since: datetime
    """When it entered this state."""
    first_recommended: datetime
    last_recommended: datetime
    """The newest review that recommended it; its figures are shown."""
    applied_at: datetime | None = None
    """The first hour in which the change is visible."""
    verified_usd: Decimal | None = None
    """Measured monthly saving that the change alone explains (`lifecycle`), at most the estimate."""
    reason: str = ""
    """Why it was dismissed or withdrawn."""
    author: str = ""
    """The person who dismissed it."""
    version: int = 0
    """Number of writes; 0 if it is not stored yet."""
    offer: Offer | None = None
    """How it is offered next to the other open recommendations, as `lifecycle.offered` sets it; never stored."""
    alternative_to: str = ""
    """Id of the offered recommendation that it would contradict; never stored."""

    @property
    def id(self) -> str:
        """The id of its content."""
        return self.content.id


WorkloadFinding = Literal["idle", "low", "bursty", "healthy", "busy", "saturated", "unknown"]
"""How a workload uses the GPUs that it holds. `healthy` is 30 to 70% on average."""


@dataclass(frozen=True, slots=True)
class WorkloadAssessment:
    """How one workload uses its GPUs, and why it got that finding; also for workloads without a recommendation."""

    subject: RecommendationSubject
    finding: WorkloadFinding
    gpus: Decimal
    """GPUs held in the newest day, on average."""
    mean_utilization: Decimal | None
    peak_utilization: Decimal | None
    reason: str
    """A sentence for people."""


@dataclass(frozen=True, slots=True)
class Review:
    """Everything that one review found out about one cluster."""

    cluster: str
    start: datetime
    end: datetime
    reviewed_at: datetime
    hours_known: int
    recommendations: tuple[RecommendationContent, ...]
    assessments: tuple[WorkloadAssessment, ...]
    currency: str = "USD"


def round_cents(amount: float | Decimal) -> Decimal:
    """Round an estimated amount to cents."""
    return parse_decimal(str(amount)).quantize(CENT) + 0


def round_ratio(number: float | None) -> Decimal | None:
    """Round an estimated ratio or number of GPUs to four digits."""
    return None if number is None else parse_decimal(str(number)).quantize(Decimal("0.0001"))


def format_gpus(number: float) -> str:
    """Format a number of GPUs with its unit."""
    count = format_count(number)
    return f"{count} GPU" if count == "1" else f"{count} GPUs"


def format_count(number: float) -> str:
    """Format a number of GPUs or nodes for people: three significant digits, never with an exponent."""
    if abs(number) >= 99.95:  # noqa: PLR2004 - three digits would round it to 100
        return f"{number:,.0f}"
    return f"{float(f'{number:.3g}'):.6f}".rstrip("0").rstrip(".")
