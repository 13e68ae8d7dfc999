"""Schemas of cost responses, and functions that make responses from cost reports."""

from decimal import Decimal
from typing import Any, Literal

from pydantic import Field

from gpucost.core.amounts import Costs, quantize
from gpucost.core.model import Line
from gpucost.core.query.cost_query import IDLE_FIGURES, CostQuery, IdlePolicy
from gpucost.core.query.grouping import Row
from gpucost.core.query.periods import Granularity
from gpucost.http.schemas import (
    Amount,
    CostFigures,
    FleetTotals,
    Instant,
    PeriodCoverageModel,
    PeriodResponse,
    ResponseModel,
    coverage_fields,
    default_window_fields,
    period_fields,
    totals_fields,
)
from gpucost.reports import CostReport
from gpucost.reports.records import PeriodComparison
from gpucost.reports.waste import TopWaster

_CURSOR = "Pass it as the parameter `cursor` to get the next page; null on the last page"
_ROW_COUNT = "Number of rows on all pages"
_CURRENCY = "Currency of every amount, also of fields named `_usd`"


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


class CostsResponse(PeriodResponse):
    """GET /v1/costs. A period in which no hour has figures has no row."""

    granularity: Granularity
    group_by: list[str]
    idle: IdlePolicy
    currency: str = Field(description=_CURRENCY, examples=["USD"])
    rows: list[CostRow]
    row_count: int = Field(description=_ROW_COUNT)
    totals: FleetTotals
    filtered_out: IdleFigures | None = Field(
        description="What the filters exclude. The rows of all pages and this add up to the totals. Null if "
        "nothing is filtered, or no hour has figures"
    )
    coverage: PeriodCoverageModel
    cursor: str | None = Field(description=_CURSOR)


class BusinessUnitRow(CostFigures):
    """One business unit's figures over the whole period."""

    business_unit: str


class BusinessUnitsResponse(PeriodResponse):
    """GET /v1/business-units."""

    currency: str = Field(description=_CURRENCY, examples=["USD"])
    rows: list[BusinessUnitRow]
    totals: FleetTotals
    coverage: PeriodCoverageModel
    cursor: None


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
    currency: str = Field(description=_CURRENCY, examples=["USD"])
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
    currency: str = Field(description=_CURRENCY, examples=["USD"])
    rows: list[WorkloadRow]
    row_count: int = Field(description=_ROW_COUNT)
    totals: NullableCosts
    coverage: PeriodCoverageModel
    cursor: str | None = Field(description=_CURSOR)


class TrendPeriod(ResponseModel):
    """One of the two periods."""

    start: Instant
    end: Instant
    costs: NullableCosts
    coverage: PeriodCoverageModel


class TrendResponse(ResponseModel):
    """GET /v1/business-units/{name}/trend."""

    business_unit: str
    currency: str = Field(description=_CURRENCY, examples=["USD"])
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
        description="First of the consecutive UTC days with waste that end with the last such day, but not before the "
        "period's start"
    )
    hour: Instant | None = Field(
        description="The newest hour with figures in the period's last two days. The pods are from this hour"
    )
    pods: list[WastingPod] = Field(description="Pods with waste in that hour, most waste first; at most ten")


class WasteResponse(PeriodResponse):
    """GET /v1/waste: workloads with waste, most waste first."""

    currency: str = Field(description=_CURRENCY, examples=["USD"])
    rows: list[TopWasterRow]
    row_count: int = Field(description=_ROW_COUNT)
    totals: FleetTotals
    coverage: PeriodCoverageModel
    cursor: str | None = Field(description=_CURSOR)


def costs_fields_before_rows(report: CostReport) -> dict[str, Any]:
    """Return the fields before the rows of `CostsResponse`."""
    query = report.query
    return {
        **period_fields(report.period),
        "granularity": query.granularity,
        "group_by": query.group_by,
        "idle": query.idle,
        "currency": report.currency,
    }


def costs_fields_after_rows(report: CostReport) -> dict[str, Any]:
    """Return the fields after the rows of `CostsResponse`."""
    filtered_out = report.filtered_out
    return {
        "row_count": report.row_count,
        "totals": totals_fields(report.totals),
        "filtered_out": None if filtered_out is None else _figures(filtered_out, report.query),
        "coverage": coverage_fields(report.coverage),
    }


def costs_table(report: CostReport) -> tuple[list[str], list[list[object]]]:
    """Return the header and the rows of the CSV download."""
    query = report.query
    has_idle = query.idle != "hidden"
    idle_columns = [["kind"], list(IDLE_FIGURES)] if has_idle else [[], []]
    header = ["start", "end", *idle_columns[0], *query.group_by, *Costs.names(), *idle_columns[1]]
    rows: list[list[object]] = [
        [row.start, row.end, *([row.kind] if has_idle else []), *row.group.values(), *_figures(row, query).values()]
        for row in report.rows
    ]
    return header, rows


def business_units_response(report: CostReport) -> dict[str, Any]:
    """Return the fields of `BusinessUnitsResponse`."""
    return {
        **period_fields(report.period),
        "currency": report.currency,
        "rows": [{**row.group, **row.costs.figures()} for row in report.rows],
        "totals": totals_fields(report.totals),
        "coverage": coverage_fields(report.coverage),
        "cursor": None,
    }


def business_unit_response(name: str, report: CostReport) -> dict[str, Any]:
    """Return the fields of `BusinessUnitResponse`."""
    return {
        **unit_fields_before_rows(name, report),
        "granularity": report.query.granularity,
        "rows": [{"start": row.start, "end": row.end, **row.costs.figures()} for row in report.rows],
        "totals": _cost_totals(report),
        "coverage": coverage_fields(report.coverage),
    }


def unit_fields_before_rows(name: str, report: CostReport) -> dict[str, Any]:
    """Return the fields before the rows of `WorkloadsResponse`."""
    return {"business_unit": name, **period_fields(report.period), "currency": report.currency}


def unit_fields_after_rows(report: CostReport) -> dict[str, Any]:
    """Return the fields after the rows of `WorkloadsResponse`."""
    return {
        "row_count": report.row_count,
        "totals": _cost_totals(report),
        "coverage": coverage_fields(report.coverage),
    }


def trend_response(name: str, trend: PeriodComparison) -> dict[str, Any]:
    """Return the fields of `TrendResponse`."""
    current, previous = _cost_totals(trend.current), _cost_totals(trend.previous)
    has_unpriced = any(totals["unpriced_gpu_hours"] for totals in (current, previous))
    change = {
        name: None if has_unpriced and name.endswith("_usd") else _difference(value, previous[name])
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


def waste_fields_before(report: CostReport) -> dict[str, Any]:
    """Return the fields before the rows of `WasteResponse`."""
    return {**period_fields(report.period), "currency": report.currency}


def waste_fields_after(report: CostReport) -> dict[str, Any]:
    """Return the fields after the rows of `WasteResponse`."""
    return {
        "row_count": report.row_count,
        "totals": totals_fields(report.totals),
        "coverage": coverage_fields(report.coverage),
    }


def top_waster_row(top_waster: TopWaster) -> dict[str, Any]:
    """Return the fields of `TopWasterRow`."""
    row = top_waster.row
    return {
        **row.group,
        **row.costs.figures(),
        "since": top_waster.since,
        "hour": top_waster.hour,
        "pods": [_pod(line) for line in top_waster.pods],
    }


def _pod(line: Line) -> dict[str, Any]:
    return {name: figure for name, figure in line.figures().items() if name in WastingPod.model_fields}


def _figures(row: Row, query: CostQuery) -> dict[str, Decimal | None]:
    return row.costs.figures() if query.idle == "hidden" else {**row.costs.figures(), **row.idle_figures()}


def _cost_totals(report: CostReport) -> dict[str, Decimal | None]:
    return dict.fromkeys(Costs.names()) if report.totals is None else report.totals.costs.figures()


def _trend_period(report: CostReport, costs: dict[str, Decimal | None]) -> dict[str, Any]:
    period = {"start": report.period.start, "end": report.period.end}
    return {**period, "costs": costs, "coverage": coverage_fields(report.coverage)}


def _difference(current: Decimal | None, previous: Decimal | None) -> Decimal | None:
    return None if current is None or previous is None else current - previous


def _percent(change: Decimal | None, previous: Decimal | None) -> Decimal | None:
    return None if change is None or not previous else quantize(100 * change / previous)
