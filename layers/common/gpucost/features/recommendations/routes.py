"""Routes of advice; dismissing is a command under the caller's own IAM (`gpucost advise dismiss`)."""

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import Field

from gpucost.core.query.filters import parse_filter
from gpucost.features.recommendations.model import (
    Finding,
    Level,
    Recommendation,
    RecommendationContent,
    RecommendationKind,
    RecommendationState,
    Saving,
    WorkloadAssessment,
)
from gpucost.features.recommendations.queries import RecommendationList, RecommendationQueries, ReviewSummary
from gpucost.http import report_parameters as given
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.responses import json_response, responses
from gpucost.http.schemas import Amount, Instant, ResponseModel

WantedKind = Annotated[RecommendationKind | None, Query(description="Only advice of this kind", examples=["idle"])]
WantedState = Annotated[
    Literal[RecommendationState, "all"], Query(description="Only recommendations in this state, or `all`", examples=["open"])
]


class RecommendationSubject(ResponseModel):
    """A workload, or a node pool; null where it is not of its kind."""

    cluster: str
    business_unit: str | None
    namespace: str | None
    workload_kind: str | None
    workload: str | None
    node_pool: str | None
    instance_type: str | None
    capacity_type: str | None
    gpu_model: str | None
    resource: str | None


class SavingFigures(ResponseModel):
    """Per month of 730 hours, an estimate rounded to cents; negative where advice costs money."""

    usd: Amount = Field(description="At the rates that the ledger charged: what reports will show less")
    low_usd: Amount = Field(description="Mean day of the look-back less two standard errors")
    high_usd: Amount
    list_usd: Amount | None = Field(description="At on-demand list prices; null where they are not known")
    cash_usd: Amount | None = Field(
        description="What leaves the bill: 0 while a commitment binds, null where the ledger cannot tell"
    )
    gpu_hours: Amount


class EvidenceFigures(ResponseModel):
    """What advice rests on."""

    first_hour: Instant
    last_hour: Instant
    hours_observed: int = Field(description="Hours in which the workload held GPUs, or the pool had nodes")
    hours_unknown: int = Field(description="Hours of that time without figures")
    coverage: Amount | None = Field(description="Part of the GPU-hours held whose use was observed")
    mean_utilization: Amount | None
    peak_utilization: Amount | None = Field(description="Of the busiest hour's mean: the ledger knows no finer one")
    facts: dict[str, str] = Field(description="What else decided, by name")


class RecommendationRow(ResponseModel):
    """What to change, what it saves, how sure that is, and what became of it."""

    id: str = Field(description="Stable; `gpucost advise dismiss` takes it", examples=["idle-3f9a1c0d2b4e"])
    kind: RecommendationKind
    state: RecommendationState
    subject: RecommendationSubject
    summary: str = Field(description="What to do, in one sentence")
    saving: SavingFigures
    currency: str = Field(examples=["USD"])
    evidence: EvidenceFigures
    confidence: Level
    risk: Level
    risk_note: str
    effort: Level
    patch: str | None = Field(description="A manifest or commands to apply; null where none can be given")
    current_gpus: Amount = Field(
        description="Physical GPUs (of a pool: nodes; of spot and of a family: on demand), newest day"
    )
    recommended_gpus: Amount
    part_of: str | None = Field(description="Id of the recommendation that counts this saving too; never add both")
    since: Instant = Field(description="When it came into its state")
    first_recommended: Instant
    last_recommended: Instant
    applied_at: Instant | None = Field(description="First hour without what was advised against")
    verified_usd: Amount | None = Field(
        description="Saving per month as measured over a week after it was applied: what its own change explains, at "
        "most what was claimed; negative where GPUs were added"
    )
    reason: str | None = Field(description="Why it was dismissed or withdrawn")
    author: str | None = Field(description="Who dismissed it")


class FindingRow(ResponseModel):
    """How a workload uses what it holds: also those are here that nothing is advised of."""

    subject: RecommendationSubject
    finding: Finding = Field(description="`healthy` is 30 to 70% on average; `unknown` says why in `why`")
    gpus: Amount
    mean_utilization: Amount | None
    peak_utilization: Amount | None
    reason: str


class ReviewRow(ResponseModel):
    """When a cluster was reviewed, and on which hours."""

    cluster: str
    start: Instant
    end: Instant
    reviewed_at: Instant
    hours_known: int
    workloads: dict[str, int] = Field(description="How many stand how", examples=[{"healthy": 12, "idle": 2}])


class SavingTotals(ResponseModel):
    """Of some rows, never negative; null where a row's is, or currencies differ."""

    usd: Amount | None
    list_usd: Amount | None
    cash_usd: Amount | None


class RecommendationTotals(ResponseModel):
    """Sums over the open rows; null where a row's is, or currencies differ.

    Left out are rows that another one counts too (`part_of`), and commitments: they are worth less once the others are
    done.
    """

    usd: Amount | None = Field(description="What is saved less what is spent; so are `list_usd` and `cash_usd`")
    list_usd: Amount | None
    cash_usd: Amount | None
    savings: SavingTotals = Field(description="Of the rows that save")
    costs: SavingTotals = Field(description="Of the rows that add GPUs: what they cost")


class RecommendationsAnswer(ResponseModel):
    """GET /v1/recommendations."""

    rows: list[RecommendationRow] = Field(description="Open ones first, what saves most first")
    totals: RecommendationTotals
    reviews: list[ReviewRow]
    findings: list[FindingRow]


def add_recommendation_routes(app: APIGatewayHttpResolver, desk: Callable[[], RecommendationQueries]) -> None:
    """Put the routes on an app; the desk is made when it is first asked."""

    @app.get(
        "/v1/recommendations",
        summary="What to change, and what it saves",
        tags=["advice"],
        responses=responses(RecommendationsAnswer),
    )
    @open_to("bu")
    def recommendations(
        cluster: given.Cluster = None,
        business_unit: given.BusinessUnit = None,
        kind: WantedKind = None,
        state: WantedState = "open",
    ) -> Response[str]:
        """What the newest reviews advise, and how every workload stands; unknown workloads say what is missing.

        Who may see some business units only sees their workloads, and no node pools.
        """
        scope = scope_of_caller(app)
        units = None if business_unit is None else parse_filter("business_unit", business_unit)
        for name in (units and units.exact_names()) or ():
            scope.require(name)

        def is_wanted(unit: str) -> bool:
            return units is None or units.matches(unit)

        found = desk().recommendations(cluster=cluster, scope=scope)
        rows = [
            one
            for one in found.rows
            if (kind is None or one.content.kind == kind)
            and (state in {"all", one.state})
            and is_wanted(one.content.subject.business_unit)
        ]
        return json_response(recommendations_answer(rows, found, is_wanted))


def recommendations_answer(
    rows: list[Recommendation], found: RecommendationList, is_wanted: Callable[[str], bool]
) -> dict[str, Any]:
    """As `RecommendationsAnswer`."""
    judged = [one for review in found.reviews for one in review.assessments if is_wanted(one.subject.business_unit)]
    return {
        "rows": [recommendation_row(one) for one in rows],
        "totals": recommendation_totals(rows),
        "reviews": [_review(one) for one in found.reviews],
        "standings": [_standing(one) for one in judged],
    }


def recommendation_row(one: Recommendation) -> dict[str, Any]:
    """As `RecommendationRow`."""
    advice = one.content
    return {
        "id": one.id,
        "kind": advice.kind,
        "state": one.state,
        "about": _about(advice),
        "summary": advice.summary,
        "saving": {name: getattr(advice.saving, name) for name in SavingFigures.model_fields},
        "currency": advice.currency,
        "evidence": {
            **{name: getattr(advice.evidence, name) for name in EvidenceFigures.model_fields},
            "facts": dict(advice.evidence.facts),
        },
        "confidence": advice.confidence,
        "risk": advice.risk,
        "risk_note": advice.risk_note,
        "effort": advice.effort,
        "patch": advice.patch or None,
        "gpus_now": advice.current_gpus,
        "gpus_then": advice.recommended_gpus,
        "part_of": advice.part_of or None,
        "since": one.since,
        "first_advised": one.first_recommended,
        "last_advised": one.last_recommended,
        "applied_at": one.applied_at,
        "verified_usd": one.verified_usd,
        "reason": one.reason or None,
        "author": one.author or None,
    }


def _about(advice: RecommendationContent | WorkloadAssessment) -> dict[str, str | None]:
    return {name: value or None for name, value in advice.subject._asdict().items()}


def _review(one: ReviewSummary) -> dict[str, Any]:
    counts = Counter(judged.finding for judged in one.assessments)
    return {
        "cluster": one.cluster,
        "start": one.start,
        "end": one.end,
        "reviewed_at": one.reviewed_at,
        "hours_known": one.hours_known,
        "workloads": dict(sorted(counts.items())),
    }


def _standing(one: WorkloadAssessment) -> dict[str, Any]:
    return {
        "about": _about(one),
        "standing": one.finding,
        "gpus": one.gpus,
        "mean_utilization": one.mean_utilization,
        "peak_utilization": one.peak_utilization,
        "why": one.reason,
    }


def recommendation_totals(rows: Sequence[Recommendation]) -> dict[str, Any]:
    """As `AdviceTotals`."""
    # A slice saves nothing by itself: not where its plan is filtered out, dismissed, or of a pool that is not seen.
    own = [
        one.content for one in rows if one.state == "open" and not one.content.part_of and one.content.kind != "commitment"
    ]
    if len({one.currency for one in own}) > 1:
        nothing = dict.fromkeys(SavingTotals.model_fields)
        return {**nothing, "savings": nothing, "costs": nothing}
    return {
        **_sum(1, [one.saving for one in own]),
        "savings": _sum(1, [one.saving for one in own if one.saving.usd >= 0]),
        "costs": _sum(-1, [one.saving for one in own if one.saving.usd < 0]),
    }


def _sum(sign: int, savings: Sequence[Saving]) -> dict[str, Decimal | None]:
    found: dict[str, Decimal | None] = {}
    for name in SavingTotals.model_fields:
        parts = [getattr(one, name) for one in savings]
        found[name] = None if None in parts else sum((sign * part for part in parts), Decimal(0))
    return found
