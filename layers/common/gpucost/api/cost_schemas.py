"""Shapes of the answers about costs, and how reports become them."""

from decimal import Decimal
from typing import Any, Literal

from pydantic import Field

from gpucost.core.model import Costs, Line
from gpucost.core.money import quantize
from gpucost.core.query.cost_query import IDLE_FIGURES, CostQuery, IdlePolicy
from gpucost.core.query.grouping import Row
from gpucost.core.query.periods import Granularity
from gpucost.http.schemas import (
    Amount,
    CostFigures,
    Coverage,
    FleetTotals,
    Instant,
    PeriodResponse,
    ResponseModel,
    coverage_fields,
    default_window_fields,
    period_fields,
    totals_fields,
)
from gpucost.reports import CostReport
from gpucost.reports.records import Trend
from gpucost.reports.waste import TopWaster

_CURSOR = "To go on with, as parameter `cursor`; null: these are the last rows"
_ROW_COUNT = "Rows of all pages together"
_CURRENCY = "Of every amount, whatever their names say"


class IdleFigures(CostFigures):
    """What holders cost, and their part of what nobody held."""

    idle_gpu_hours: Amount | None = Field(default=None, description="GPU-hours that nobody held; null: not known")
    idle_usd: Amount | None = Field(
        default=None, description="unallocated + stranded + unobserved + host + residual; null: not known"
    )
    cost_usd: Amount | None = Field(default=None, description="allocated + idle: over all rows, the nodes' cost")


class CostRow(IdleFigures):
    """One group's figures in one period. Idle figures and `kind` are there where `idle` is not `hidden`."""

    start: Instant
    end: Instant
    group: dict[str, str] = Field(
        description='Dimension → name, for the dimensions of group_by; "" where something has none',
        examples=[{"business_unit": "research"}],
    )
    kind: Literal["held", "idle"] = Field(default="held", description="idle: what nobody held, or can be made to bear")


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
        description="What the filters leave out: with the rows of all pages it adds up to the totals. Null where "
        "nothing is filtered, or no hour has figures"
    )
    coverage: Coverage
    cursor: str | None = Field(description=_CURSOR)


class BusinessUnitRow(CostFigures):
    """One business unit's figures over the whole period."""

    business_unit: str


class BusinessUnitsResponse(PeriodResponse):
    """GET /v1/business-units."""

    currency: str = Field(description=_CURRENCY, examples=["USD"])
    rows: list[BusinessUnitRow]
    totals: FleetTotals
    coverage: Coverage
    cursor: None


class NullableCosts(ResponseModel):
    """What one business unit cost: allocated = effective + waste + unmeasured. All null where no hour has figures."""

    allocated_gpu_hours: Amount | None
    effective_gpu_hours: Amount | None
    allocated_usd: Amount | None
    effective_usd: Amount | None
    waste_usd: Amount | None
    unmeasured_usd: Amount | None
    unmeasured_gpu_hours: Amount | None
    unpriced_gpu_hours: Amount | None


class PeriodRow(CostFigures):
    """Figures of one period."""

    start: Instant
    end: Instant


class BusinessUnitResponse(PeriodResponse):
    """GET /v1/business-units/{name}. A period in which it held nothing has no row."""

    business_unit: str
    granularity: Granularity
    currency: str = Field(description=_CURRENCY, examples=["USD"])
    rows: list[PeriodRow]
    totals: NullableCosts
    coverage: Coverage


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
    coverage: Coverage
    cursor: str | None = Field(description=_CURSOR)


class TrendPeriod(ResponseModel):
    """One of the two periods."""

    start: Instant
    end: Instant
    costs: NullableCosts
    coverage: Coverage


class TrendResponse(ResponseModel):
    """GET /v1/business-units/{name}/trend."""

    business_unit: str
    currency: str = Field(description=_CURRENCY, examples=["USD"])
    default_window: Literal["24h"] | None = Field(description="As in `/v1/costs`; of the current period")
    current: TrendPeriod
    before: TrendPeriod
    change: NullableCosts = Field(
        description="current − before; null where one of the two is not known, and in money where a part of one has no "
        "price (its unpriced_gpu_hours are above 0)"
    )
    percent: NullableCosts = Field(
        description="100 × change ÷ before, rounded to 1e-12; null where before is 0 or the change is"
    )


class WastingPod(ResponseModel):
    """One pod in one hour."""

    pod: str
    uid: str
    node: str
    resource: str
    allocated_gpu_hours: Amount
    utilization: Amount | None = Field(description="Mean observed utilization, 0 to 1")
    utilization_source: str = Field(examples=["pod"])
    waste_usd: Amount | None


class TopWasterRow(WorkloadRow):
    """One workload that wasted money."""

    business_unit: str
    since: Instant | None = Field(
        description="The UTC day from which on it wasted something on every day, up to the last day it did; at the "
        "earliest the period's start"
    )
    hour: Instant | None = Field(description="The newest hour with figures in the period's last two days: the pods'")
    pods: list[WastingPod] = Field(description="Those that wasted in that hour, the worst first; at most ten")


class WasteResponse(PeriodResponse):
    """GET /v1/waste: workloads that wasted money, the worst first."""

    currency: str = Field(description=_CURRENCY, examples=["USD"])
    rows: list[TopWasterRow]
    row_count: int = Field(description=_ROW_COUNT)
    totals: FleetTotals
    coverage: Coverage
    cursor: str | None = Field(description=_CURSOR)


def costs_fields_before(report: CostReport) -> dict[str, Any]:
    """What stands before the rows of `CostsAnswer`."""
    query = report.query
    return {
        **period_fields(report.period),
        "granularity": query.granularity,
        "group_by": query.group_by,
        "idle": query.idle,
        "currency": report.currency,
    }


def costs_fields_after(report: CostReport) -> dict[str, Any]:
    """What stands after the rows of `CostsAnswer`."""
    filtered_out = report.filtered_out
    return {
        "row_count": report.row_count,
        "totals": totals_fields(report.totals),
        "filtered_out": None if filtered_out is None else _figures(filtered_out, report.query),
        "coverage": coverage_fields(report.coverage),
    }


def costs_table(report: CostReport) -> tuple[list[str], list[list[object]]]:
    """The rows as a table with a header, for CSV."""
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
    """As `BusinessUnitsAnswer`."""
    return {
        **period_fields(report.period),
        "currency": report.currency,
        "rows": [{**row.group, **row.costs.figures()} for row in report.rows],
        "totals": totals_fields(report.totals),
        "coverage": coverage_fields(report.coverage),
        "cursor": None,
    }


def business_unit_response(name: str, report: CostReport) -> dict[str, Any]:
    """As `BusinessUnitAnswer`."""
    return {
        **unit_fields_before(name, report),
        "granularity": report.query.granularity,
        "rows": [{"start": row.start, "end": row.end, **row.costs.figures()} for row in report.rows],
        "totals": _cost_totals(report),
        "coverage": coverage_fields(report.coverage),
    }


def unit_fields_before(name: str, report: CostReport) -> dict[str, Any]:
    """What stands before the rows of `WorkloadsAnswer`."""
    return {"business_unit": name, **period_fields(report.period), "currency": report.currency}


def unit_fields_after(report: CostReport) -> dict[str, Any]:
    """What stands after the rows of `WorkloadsAnswer`."""
    return {
        "row_count": report.row_count,
        "totals": _cost_totals(report),
        "coverage": coverage_fields(report.coverage),
    }


def trend_response(name: str, trend: Trend) -> dict[str, Any]:
    """As `TrendAnswer`."""
    current, previous = _cost_totals(trend.current), _cost_totals(trend.previous)
    has_unpriced = any(one["unpriced_gpu_hours"] for one in (current, previous))
    change = {
        name: None if has_unpriced and name.endswith("_usd") else _difference(value, previous[name])
        for name, value in current.items()
    }
    return {
        "business_unit": name,
        "currency": trend.current.currency,
        **default_window_fields(trend.current.period),
        "current": _trend_period(trend.current, current),
        "before": _trend_period(trend.previous, previous),
        "change": change,
        "percent": {name: _percent(value, previous[name]) for name, value in change.items()},
    }


def waste_fields_before(report: CostReport) -> dict[str, Any]:
    """What stands before the rows of `WasteAnswer`."""
    return {**period_fields(report.period), "currency": report.currency}


def waste_fields_after(report: CostReport) -> dict[str, Any]:
    """What stands after the rows of `WasteAnswer`."""
    return {
        "row_count": report.row_count,
        "totals": totals_fields(report.totals),
        "coverage": coverage_fields(report.coverage),
    }


def top_waster_row(top_waster: TopWaster) -> dict[str, Any]:
    """As `OffenderRow`."""
    row = top_waster.row
    return {
        **row.group,
        **row.costs.figures(),
        "since": top_waster.since,
        "hour": top_waster.hour,
        "pods": [_pod(line) for line in top_waster.pods],
    }


def _pod(line: Line) -> dict[str, Any]:
    return {name: getattr(line, name) for name in WastingPod.model_fields}


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
