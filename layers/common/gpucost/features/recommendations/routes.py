"""The route of recommendations, which only reads. Dismissing one is a command (`gpucost recommendations dismiss`)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from msgspec.structs import asdict as to_dict
from pydantic import Field

from gpucost.core.errors import ParameterError
from gpucost.core.query.dimensions import parse_filter
from gpucost.features.recommendations.forecasts import (
    Backtest,
    FleetForecastService,
    ForecastService,
    GroupBy,
    GroupForecast,
    PeriodForecast,
)
from gpucost.features.recommendations.kinds import KindName
from gpucost.features.recommendations.model import (
    ConfidenceLevel,
    Evidence,
    Offer,
    Recommendation,
    RecommendationContent,
    RecommendationState,
    Review,
    Saving,
    WorkloadAssessment,
)
from gpucost.features.recommendations.queries import RecommendationQueries
from gpucost.http import report_parameters as parameters
from gpucost.http.responses import describe_responses, json_response
from gpucost.http.routes import open_to, scope_of_caller
from gpucost.http.schemas import Amount, Instant, ResponseModel

KindParameter = Annotated[KindName | None, Query(description="Only recommendations of this kind", examples=["idle"])]
StateParameter = Annotated[
    Literal[RecommendationState, "all"],
    Query(description="Only recommendations in this state, or `all`", examples=["open"]),
]


class RecommendationSubjectModel(ResponseModel):
    """A workload or a node pool. Fields that do not apply to it are null."""

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


_SAVING_DESCRIPTIONS = {
    "usd": "At the rates that the ledger charged: reports will show this much less",
    "low_usd": "The mean day of the look-back minus two standard errors",
    "list_usd": "At on-demand list prices; null if they are not known",
    "cash_usd": "Reduction of the AWS bill: 0 for committed capacity, null if the ledger does not show it",
}


class SavingFigures(ResponseModel, record=Saving, descriptions=_SAVING_DESCRIPTIONS):
    """Estimated monthly saving (730 hours), rounded to cents; negative if the recommendation costs money."""


_EVIDENCE_DESCRIPTIONS = {
    "hours_observed": "Hours in which the workload held GPUs, or the pool had nodes",
    "hours_unknown": "Hours of the same period without figures",
    "coverage": "Part of the allocated GPU-hours with observed utilization",
    "peak_utilization": "The mean of the busiest hour. The ledger has no finer resolution",
    "facts": "Further facts, by name",
}


class EvidenceFigures(ResponseModel, record=Evidence, descriptions=_EVIDENCE_DESCRIPTIONS):
    """The figures that a recommendation is based on."""


class RecommendationRow(ResponseModel, amounts=("verified_usd",)):
    """What to change, what it saves, how certain that is, and its state."""

    id: str = Field(description="Stable id, as for `gpucost recommendations dismiss`", examples=["idle-3f9a1c0d2b4e"])
    kind: KindName
    state: RecommendationState
    subject: RecommendationSubjectModel
    title: str = Field(
        description="What to do, in a few words", examples=["Run h100-serving with 1 node in 28% of hours"]
    )
    summary: str = Field(description="What to do and why, in one sentence")
    offer: Offer | None = Field(
        description="How it is offered; null if it is not open. `plan`: all these changes can be made, and their "
        "savings add up. `after-plan`: a commitment to what remains. `cost`: it adds GPUs. `alternative`: not offered, "
        "because it contradicts the plan of its pool or costs more than it is worth"
    )
    alternative_to: str | None = Field(description="Id of the offered recommendation that it contradicts")
    worth_usd: Amount | None = Field(description="What added nodes are worth per month: the waiting that they save")
    saving: SavingFigures
    currency: str = Field(examples=["USD"])
    evidence: EvidenceFigures
    confidence: ConfidenceLevel
    risk: ConfidenceLevel
    risk_note: str
    effort: ConfidenceLevel
    patch: str | None = Field(description="A manifest or commands to apply; null if there is none")
    current_gpus: Amount = Field(
        description="Physical GPUs in the newest day (for pools: nodes; for spot and families: on demand)"
    )
    recommended_gpus: Amount = Field(description="Physical GPUs, or nodes, after the recommendation is applied")
    part_of: str | None = Field(description="Id of the recommendation that already counts this saving. Never add both")
    since: Instant = Field(description="When it entered its state")
    first_recommended: Instant
    last_recommended: Instant
    applied_at: Instant | None = Field(description="The first hour in which the change is visible")
    reason: str | None = Field(description="Why it was dismissed or withdrawn")
    author: str | None = Field(description="Who dismissed it")


_FINDING_DESCRIPTIONS = {"finding": "`healthy` is 30 to 70% on average. For `unknown`, `reason` says what is missing"}


class FindingRow(ResponseModel, record=WorkloadAssessment, descriptions=_FINDING_DESCRIPTIONS):
    """How a workload uses its GPUs; also for workloads without a recommendation."""

    subject: RecommendationSubjectModel


class ReviewRow(ResponseModel):
    """When a cluster was reviewed, and which hours the review used."""

    cluster: str
    start: Instant
    end: Instant
    reviewed_at: Instant
    hours_known: int
    workloads: dict[str, int] = Field(
        description="Number of workloads by finding", examples=[{"healthy": 12, "idle": 2}]
    )


_SUMMED_AMOUNTS = ("usd", "list_usd", "cash_usd")


class SavingTotals(ResponseModel, amounts=_SUMMED_AMOUNTS, nullable=_SUMMED_AMOUNTS):
    """Sums over some rows, never negative; null if a row's amount is null or currencies differ."""


class RecommendationTotals(SavingTotals):
    """Savings minus costs of the offered rows; null if a row's amount is null or currencies differ.

    They leave out rows that another row already counts (`part_of`), alternatives, and commitments, which save less
    after the others are applied.
    """

    savings: SavingTotals = Field(description="Sums of the plan: rows whose `offer` is `plan`")
    costs: SavingTotals = Field(description="Sums of the rows that add GPUs (`offer` is `cost`): their cost")


class RecommendationsResponse(ResponseModel):
    """GET /v1/recommendations."""

    rows: list[RecommendationRow] = Field(description="Open recommendations first, largest saving first")
    totals: RecommendationTotals
    reviews: list[ReviewRow]
    findings: list[FindingRow]


def add_recommendation_routes(app: APIGatewayHttpResolver, queries: Callable[[], RecommendationQueries]) -> None:
    """Add the route to an app; `queries` is called at the first request."""

    @app.get(
        "/v1/recommendations",
        summary="What to change, and what it saves",
        tags=["recommendations"],
        responses=describe_responses(RecommendationsResponse),
    )
    @open_to("bu")
    def recommendations(
        cluster: parameters.Cluster = None,
        business_unit: parameters.BusinessUnit = None,
        kind: KindParameter = None,
        state: StateParameter = "open",
    ) -> Response[str]:
        """What the newest reviews recommend, and a finding for every workload.

        A caller who may see only some business units sees only their workloads, and no node pools.
        """
        scope = scope_of_caller(app)
        units = None if business_unit is None else parse_filter("business_unit", business_unit)
        for name in (units and units.exact_names()) or ():
            scope.require(name)

        def is_selected(name: str) -> bool:
            return units is None or units.matches(name)

        all_rows, reviews = queries().recommendations(cluster=cluster, scope=scope)
        rows = [
            recommendation
            for recommendation in all_rows
            if (kind is None or recommendation.content.kind == kind)
            and (state in {"all", recommendation.state})
            and is_selected(recommendation.content.subject.business_unit)
        ]
        return json_response(
            build_response(rows, reviews, is_selected), remedy="Select one cluster, business_unit or kind."
        )


def build_response(
    rows: Sequence[Recommendation], reviews: Sequence[Review], is_selected: Callable[[str], bool]
) -> dict[str, Any]:
    """Build the `RecommendationsResponse`."""
    return {
        "rows": [build_row(recommendation) for recommendation in rows],
        "totals": recommendation_totals(rows),
        "reviews": [_build_review(review) for review in reviews],
        "findings": [
            _build_finding(assessment)
            for review in reviews
            for assessment in review.assessments
            if is_selected(assessment.subject.business_unit)
        ],
    }


def build_row(recommendation: Recommendation) -> dict[str, Any]:
    """Build a `RecommendationRow`."""
    content = recommendation.content
    return {
        "id": recommendation.id,
        "kind": content.kind,
        "state": recommendation.state,
        "subject": _build_subject(content),
        "title": content.title or content.summary,
        "summary": content.summary,
        "offer": recommendation.offer,
        "alternative_to": recommendation.alternative_to or None,
        "worth_usd": content.worth_usd,
        "saving": asdict(content.saving),
        "currency": content.currency,
        "evidence": asdict(content.evidence),
        "confidence": content.confidence,
        "risk": content.risk,
        "risk_note": content.risk_note,
        "effort": content.effort,
        "patch": content.patch or None,
        "current_gpus": content.current_gpus,
        "recommended_gpus": content.recommended_gpus,
        "part_of": content.part_of or None,
        "since": recommendation.since,
        "first_recommended": recommendation.first_recommended,
        "last_recommended": recommendation.last_recommended,
        "applied_at": recommendation.applied_at,
        "verified_usd": recommendation.verified_usd,
        "reason": recommendation.reason or None,
        "author": recommendation.author or None,
    }


def _build_subject(described: RecommendationContent | WorkloadAssessment) -> dict[str, str | None]:
    return {name: text or None for name, text in described.subject._asdict().items()}


def _build_review(review: Review) -> dict[str, Any]:
    counts = Counter(assessment.finding for assessment in review.assessments)
    return {
        "cluster": review.cluster,
        "start": review.start,
        "end": review.end,
        "reviewed_at": review.reviewed_at,
        "hours_known": review.hours_known,
        "workloads": dict(sorted(counts.items())),
    }


def _build_finding(assessment: WorkloadAssessment) -> dict[str, Any]:
    return {**asdict(assessment), "subject": _build_subject(assessment)}


def recommendation_totals(rows: Sequence[Recommendation]) -> dict[str, Any]:
    """Build `RecommendationTotals` from the offered rows."""
    # A slice saves nothing by itself, also if its pool's plan is not among the rows.
    counted = [row for row in rows if row.offer in {"plan", "cost"} and not row.content.part_of]
    if len({row.content.currency for row in counted}) > 1:
        nulls = dict.fromkeys(_SUMMED_AMOUNTS)
        return {**nulls, "savings": nulls, "costs": nulls}
    return {
        **_sum_savings(1, [row.content.saving for row in counted]),
        "savings": _sum_savings(1, [row.content.saving for row in counted if row.offer == "plan"]),
        "costs": _sum_savings(-1, [row.content.saving for row in counted if row.offer == "cost"]),
    }


def _sum_savings(sign: int, savings: Sequence[Saving]) -> dict[str, Decimal | None]:
    sums: dict[str, Decimal | None] = {}
    for name in _SUMMED_AMOUNTS:
        parts = [getattr(saving, name) for saving in savings]
        sums[name] = None if None in parts else sum((sign * part for part in parts), Decimal(0))
    return sums


# The route of forecasts.

BusinessUnitParameter = Annotated[
    str | None,
    Query(
        description="The business unit; the whole fleet without one",
        examples=["research"],
        min_length=1,
        max_length=200,
    ),
]
GroupByParameter = Annotated[
    GroupBy | None,
    Query(description="What the rows of the whole fleet are. Default: `business_unit`", examples=["cluster"]),
]
PeriodParameter = Annotated[Literal["month", "quarter"], Query(description="The current UTC month or quarter")]


_BACKTEST_DESCRIPTIONS = {
    "hours": "Length of each forecast, in hours",
    "evaluated": "Number of past forecasts",
    "covered": "Number of past forecasts whose interval contains the actual cost",
}


class BacktestFigures(ResponseModel, record=Backtest, descriptions=_BACKTEST_DESCRIPTIONS):
    """Past forecasts, each made from earlier hours only, and how many of them covered the actual cost."""


_DESCRIPTIONS = {
    "business_unit": "Null for the whole fleet",
    "spent_usd": "Cost so far with a price, exact: the allocated cost of a business unit, the node cost of the fleet",
    "hours_known": "Hours so far that are completely priced",
    "hours_unknown": "Hours so far without figures or with a missing price. The projection uses the mean of the others",
    "projected_usd": "Cost at the period's end by the pattern of past weeks; null with less than two weeks of history",
    "interval_percent": "How often the actual cost should be between low and high",
    "run_rate_usd": "Cost at the period's end if hours without figures cost as much as the others; null with less "
    "than a day of hours, or without half of them",
    "budget_usd": "From the settings' budget rules; three months' for a quarter. Of the fleet, the sum of all business "
    "units' budgets; null if any has none",
    "estimated_usd": "The part of run_rate_usd that is of hours so far without figures; null without a run rate",
}
_EXAMPLES = {"interval_percent": [80], "currency": ["USD"]}


class GroupForecastRow(ResponseModel):
    """A business unit's or node pool's allocated cost, or a cluster's node cost."""

    name: str
    spent_usd: Amount
    hours_known: int
    hours_unknown: int
    projected_usd: Amount | None
    low_usd: Amount | None
    high_usd: Amount | None
    run_rate_usd: Amount | None


class ForecastResponse(ResponseModel, record=PeriodForecast, descriptions=_DESCRIPTIONS, examples=_EXAMPLES):
    """GET /v1/forecasts."""

    backtest: BacktestFigures | None = Field(
        description="How often the actual cost was between low and high; null if the history is too short"
    )
    rows: list[GroupForecastRow] = Field(
        description="What the fleet's cost consists of: at most 10 groups, the largest first; empty for a business unit"
    )


def add_forecast_routes(
    app: APIGatewayHttpResolver,
    service: Callable[[], ForecastService],
    fleet_service: Callable[[], FleetForecastService],
) -> None:
    """Add the route to an app; the services are made at the first request."""

    @app.get(
        "/v1/forecasts",
        summary="The expected cost of a month or quarter",
        tags=["forecasts"],
        responses=describe_responses(ForecastResponse, can_be_missing=True),
    )
    @open_to("bu")
    def forecast(
        business_unit: BusinessUnitParameter = None,
        period: PeriodParameter = "month",
        group_by: GroupByParameter = None,
    ) -> Response[str]:
        """The expected cost of a business unit's period, or of the fleet's, with an interval, and the budget.

        The forecast repeats the last eight weeks' pattern at the newest weeks' level, without trend and holidays.
        """
        scope = scope_of_caller(app)
        if business_unit is not None:
            if group_by is not None:
                raise ParameterError("group_by", "is not allowed with business_unit; it groups the whole fleet")
            unit_forecast = service().forecast(business_unit, period, scope=scope)
            return json_response({**asdict(unit_forecast), "rows": []}, remedy="Select period=month.")
        forecast = fleet_service().forecast(period, group_by or "business_unit", scope=scope)
        rows = [_group_fields(row) for row in forecast.rows]
        return json_response({**asdict(forecast.fleet), "rows": rows}, remedy="Select period=month.")


def _group_fields(row: GroupForecast) -> dict[str, Any]:
    """Return the fields of `GroupForecastRow`."""
    projection = {name: figure for name, figure in to_dict(row.projection).items() if name != "backtest"}
    return {"name": row.name, "spent_usd": row.spent_usd, **projection, "run_rate_usd": row.run_rate_usd}
