"""Schemas of cost responses, and functions that make responses from cost reports."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field

from gpucost.core.amounts import Costs, quantize
from gpucost.core.hour_record import Line
from gpucost.core.query.cost_query import IDLE_FIGURES, CostQuery, IdlePolicy
from gpucost.core.query.grouping import GroupRow
from gpucost.core.query.periods import Granularity
from gpucost.http.schemas import (
    Amount,
    CostFigures,
    FleetTotals,
    Instant,
    NextCursor,
    NullCursor,
    PeriodCoverageModel,
    PeriodResponse,
    ResponseModel,
    coverage_fields,
    default_window_fields,
    period_fields,
    totals_fields,
)
from gpucost.reports.records import CostReport, PeriodComparison
from gpucost.reports.waste import TopWaster

Currency = Annotated[str, Field(description="Currency of every amount, also of fields named `_usd`", examples=["USD"])]
RowCount = Annotated[int, Field(description="Number of rows on all pages")]
RowCountOfParts = Annotated[
    int | None,
    Field(
        description="Number of rows on all pages. Null if the report is large and read in parts: each part is sorted "
        "by itself, and a group can have a row in each. Add those of equal start, kind and group"
    ),
]


class CostReportResponse(PeriodResponse):
    """Base of responses about the fleet's costs."""

    currency: Currency
    totals: FleetTotals
    coverage: PeriodCoverageModel


class IdleFigures(CostFigures, amounts=IDLE_FIGURES, nullable=IDLE_FIGURES, optional=IDLE_FIGURES):
    """Allocated costs, and their share of idle costs."""


class CostRow(IdleFigures):
    """One group's figures in one period. Idle figures and `kind` are present unless `idle` is `hidden`."""

    start: Instant
    end: Instant
    group: dict[str, str] = Field(
        description='Dimension → name, for the dimensions of group_by; "" if there is no name',
        examples=[{"business_unit": "research"}],
    )
    kind: Literal["held", "idle"] = Field(
        default="held", description="idle: costs that no pod held, or that cannot be shared"
    )


class CostsResponse(CostReportResponse):
    """GET /v1/costs. A period in which no hour has figures has no row."""

    granularity: Granularity
    group_by: list[str]
    idle: IdlePolicy
    rows: list[CostRow]
    row_count: RowCountOfParts
    filtered_out: IdleFigures | None = Field(
        description="What the filters exclude. The rows of all pages and this add up to the totals. Null if nothing "
        "is filtered, no hour has figures, or the report is read in parts"
    )
    cursor: NextCursor


class BusinessUnitRow(CostFigures):
    """One business unit's figures over the whole period."""

    business_unit: str


class BusinessUnitsResponse(CostReportResponse):
    """GET /v1/business-units."""

    rows: list[BusinessUnitRow]
    cursor: NullCursor


class NullableCosts(ResponseModel, amounts=Costs.names(), nullable=Costs.names()):
    """Costs of one business unit: allocated = effective + waste + unmeasured. All are null if no hour has figures."""


class PeriodRow(CostFigures):
    """Costs of one period."""

    start: Instant
    end: Instant


class BusinessUnitResponse(PeriodResponse):
    """GET /v1/business-units/{name}. A period without allocated GPUs has no row."""

    business_unit: str
    granularity: Granularity
    currency: Currency
    rows: list[PeriodRow]
    totals: NullableCosts
    coverage: PeriodCoverageModel


class WorkloadRow(CostFigures):
    """One workload over the whole period."""

    cluster: str
    namespace: str
    workload_kind: str
    workload: str


class WorkloadsResponse(PeriodResponse):
    """GET /v1/business-units/{name}/workloads."""

    business_unit: str
    currency: Currency
    rows: list[WorkloadRow]
    row_count: RowCount
    totals: NullableCosts
    coverage: PeriodCoverageModel
    cursor: NextCursor


class TrendPeriod(ResponseModel):
    """One of the two periods."""

    start: Instant
    end: Instant
    costs: NullableCosts
    coverage: PeriodCoverageModel


class TrendResponse(ResponseModel):
    """GET /v1/business-units/{name}/trend."""

    business_unit: str
    currency: Currency
    default_window: Literal["24h"] | None = Field(description="As in `/v1/costs`, for the current period")
    current: TrendPeriod
    previous: TrendPeriod
    change: NullableCosts = Field(
        description="current − previous; null if one of the two is not known. Amounts are also null if one of the two "
        "has unpriced_gpu_hours"
    )
    percent: NullableCosts = Field(
        description="100 × change ÷ previous, rounded to 1e-12; null if previous is 0 or change is null"
    )


class WastingPod(ResponseModel, amounts=("allocated_gpu_hours", "waste_usd"), examples={}):
    """One pod in one hour."""

    pod: str
    uid: str
    node: str
    resource: str
    utilization: Amount | None = Field(description="Mean measured utilization, 0 to 1")
    utilization_source: str = Field(examples=["pod"])


class TopWasterRow(WorkloadRow):
    """One workload with waste."""

    business_unit: str
    since: Instant | None = Field(
        description="First day of the newest series of consecutive UTC days with waste, but not before the "
        "period's start"
    )
    hour: Instant | None = Field(
        description="The newest hour with figures in the period's last two days. The pods are from this hour"
    )
    pods: list[WastingPod] = Field(description="Pods with waste in that hour, most waste first; at most ten")


class WasteResponse(CostReportResponse):
    """GET /v1/waste: workloads with waste, most waste first."""

    rows: list[TopWasterRow]
    row_count: RowCountOfParts
    cursor: NextCursor


def fields_before_rows(report: CostReport, **fields: object) -> dict[str, Any]:
    """Return the fields before the rows of a cost report; `fields` come before the currency."""
    return {**period_fields(report.period), **fields, "currency": report.currency}


def fields_after_rows(report: CostReport, **fields: object) -> dict[str, Any]:
    """Return the fields after the rows of a cost report; `fields` come after the totals, or replace them."""
    return {"totals": totals_fields(report.totals), **fields, "coverage": coverage_fields(report.coverage)}


def page_fields_after_rows(report: CostReport, **fields: object) -> dict[str, Any]:
    """Return the same for a page, without the cursor."""
    row_count = None if report.has_parts() else report.row_count
    return {"row_count": row_count, **fields_after_rows(report, **fields)}


def filtered_out_figures(report: CostReport) -> dict[str, Decimal | None] | None:
    """Return what the filters exclude, as `IdleFigures`."""
    return (
        None if report.filtered_out is None or report.has_parts() else _row_figures(report.filtered_out, report.query)
    )


def cost_totals(report: CostReport) -> dict[str, Decimal | None]:
    """Return the totals without capacity, as `NullableCosts`."""
    return dict.fromkeys(Costs.names()) if report.totals is None else report.totals.costs.figures()


def costs_table(report: CostReport) -> tuple[list[str], list[list[object]]]:
    """Return the header and the rows of the CSV download."""
    query = report.query
    has_idle = query.idle != "hidden"
    idle_columns = [["kind"], list(IDLE_FIGURES)] if has_idle else [[], []]
    header = ["start", "end", *idle_columns[0], *query.group_by, *Costs.names(), *idle_columns[1]]
    rows: list[list[object]] = [
        [row.start, row.end, *([row.kind] if has_idle else []), *row.group.values(), *_row_figures(row, query).values()]
        for row in report.rows
    ]
    return header, rows


def trend_response(name: str, trend: PeriodComparison) -> dict[str, Any]:
    """Return the fields of `TrendResponse`."""
    current, previous = cost_totals(trend.current), cost_totals(trend.previous)
    has_unpriced = any(totals["unpriced_gpu_hours"] for totals in (current, previous))
    change = {
        name: None if has_unpriced and Costs.fields()[name].needs == "price" else _difference(value, previous[name])
        for name, value in current.items()
    }
    return {
        "business_unit": name,
        "currency": trend.current.currency,
        **default_window_fields(trend.current.period),
        "current": _trend_period(trend.current, current),
        "previous": _trend_period(trend.previous, previous),
        "change": change,
        "percent": {name: _percent(value, previous[name]) for name, value in change.items()},
    }


def top_waster_row(top_waster: TopWaster) -> dict[str, Any]:
    """Return the fields of `TopWasterRow`."""
    row = top_waster.row
    return {
        **row.group,
        **row.costs.figures(),
        "since": top_waster.since,
        "hour": top_waster.hour,
        "pods": [_wasting_pod(line) for line in top_waster.pods],
    }


def _wasting_pod(line: Line) -> dict[str, Any]:
    return {name: figure for name, figure in line.figures().items() if name in WastingPod.model_fields}


def _row_figures(row: GroupRow, query: CostQuery) -> dict[str, Decimal | None]:
    return row.costs.figures() if query.idle == "hidden" else {**row.costs.figures(), **row.idle_figures()}


def _trend_period(report: CostReport, costs: dict[str, Decimal | None]) -> dict[str, Any]:
    period = {"start": report.period.start, "end": report.period.end}
    return {**period, "costs": costs, "coverage": coverage_fields(report.coverage)}


def _difference(current: Decimal | None, previous: Decimal | None) -> Decimal | None:
    return None if current is None or previous is None else current - previous


def _percent(change: Decimal | None, previous: Decimal | None) -> Decimal | None:
    return None if change is None or not previous else quantize(100 * change / previous)
