"""Shapes of answers as the OpenAPI document describes them, and how reports become them.

`gpucost.runtime.json_text` writes answers, not pydantic, which would turn Decimals into strings. Tests compare every
answer with these schemas.
"""

from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from gpucost.core.model import Capacity, Costs, Status, Totals
from gpucost.core.query.periods import DEFAULT_WINDOW, Period
from gpucost.reports import HourRow, PeriodCoverage

Amount = Annotated[Decimal, WithJsonSchema({"type": "number"})]
"""An exact decimal: up to 12 digits after the point, all of them written. Parse with a decimal type."""
Instant = Annotated[datetime, WithJsonSchema({"type": "string", "format": "date-time"})]


class ResponseModel(BaseModel):
    """Base of all answers: nothing in them that is not described."""

    model_config = ConfigDict(extra="forbid")


class PeriodResponse(ResponseModel):
    """Base of answers about a period."""

    start: Instant
    end: Instant
    default_window: Literal["24h"] | None = Field(
        description="24h where neither start and end nor window was passed: the period is the last 24 hours that have "
        "ended. Null where one was"
    )


class CostFigures(ResponseModel):
    """What holders of GPUs cost: allocated = effective + waste + unmeasured."""

    allocated_gpu_hours: Amount = Field(description="Hours of physical GPU held", examples=[5.142857142857])
    effective_gpu_hours: Amount = Field(description="Hours of physical GPU used, as far as observed")
    allocated_usd: Amount | None = Field(description="Cost of what was held", examples=[61.714285714286])
    effective_usd: Amount | None = Field(description="Cost of what was used")
    waste_usd: Amount | None = Field(description="Cost of what was held and not used")
    unmeasured_usd: Amount | None = Field(description="Cost of what was held while nobody observed the use")
    unmeasured_gpu_hours: Amount = Field(description="GPU-hours held while nobody observed the use")
    unpriced_gpu_hours: Amount = Field(
        description="GPU-hours held on nodes whose price nobody knows: in no amount. Amounts are null where that is all"
    )


class CapacityFigures(ResponseModel):
    """What the GPUs that were there cost, and what became of those that nobody held."""

    capacity_gpu_hours: Amount | None
    unallocated_gpu_hours: Amount | None
    stranded_gpu_hours: Amount | None
    unobserved_gpu_hours: Amount | None
    node_cost_usd: Amount | None
    unallocated_usd: Amount | None
    stranded_usd: Amount | None
    unobserved_usd: Amount | None
    host_usd: Amount | None
    residual_usd: Amount | None


class FleetTotals(CapacityFigures):
    """Sums over the period. All null where no hour has figures; capacity's null where one hour's is not known; money's
    null where nothing has a price.

    effective + waste + unmeasured + unallocated + stranded + unobserved + host + residual = node cost.
    """

    allocated_gpu_hours: Amount | None
    effective_gpu_hours: Amount | None
    allocated_usd: Amount | None
    effective_usd: Amount | None
    waste_usd: Amount | None
    unmeasured_usd: Amount | None
    unmeasured_gpu_hours: Amount | None
    unpriced_gpu_hours: Amount | None
    unpriced_capacity_gpu_hours: Amount | None


class Coverage(ResponseModel):
    """How much of the period is known."""

    hours_expected: int = Field(description="Cluster-hours of the period that have ended")
    hours_complete: int = Field(description="Those of them that are complete; the others add nothing to any figure")
    allocation: Amount | None = Field(description="Mean share of allocation scrapes seen, 0 to 1, of published hours")
    utilization: Amount | None = Field(description="The same for utilization; null where it was not asked for")


class HourCoverage(ResponseModel):
    """Scrapes seen ÷ scrapes expected in one hour, 0 to 1."""

    allocation: Amount
    utilization: Amount | None


class HourRowModel(ResponseModel):
    """Where one cluster-hour stands; `missing`: never published."""

    cluster: str
    hour: Instant
    status: Literal["complete", "provisional", "incomplete", "missing"]
    coverage: HourCoverage | None
    version: int | None
    settings_version: int | None
    published_at: Instant | None
    attempts: int
    next_attempt_at: Instant | None
    notes: list[str] = Field(description="Why the hour is as it is")


class HoursResponse(PeriodResponse):
    """GET /v1/hours."""

    rows: list[HourRowModel]
    coverage: Coverage
    cursor: None


class Health(ResponseModel):
    """GET /health: the function runs. It asks nothing of the database."""

    status: Literal["ok"]


class ParameterProblem(ResponseModel):
    """One wrong parameter."""

    parameter: str
    detail: str


class Problem(BaseModel):
    """RFC 9457 problem document."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Bad Request"])
    status: int = Field(examples=[400])
    detail: str = Field(description="One sentence that says what is wrong and what is allowed")
    instance: str = Field(description="The path asked for")
    errors: list[ParameterProblem] | None = Field(default=None, description="The wrong parameters, where it is them")


def period_fields(period: Period) -> dict[str, Any]:
    """As `PeriodAnswer`."""
    return {"start": period.start, "end": period.end, **default_window_fields(period)}


def default_window_fields(period: Period) -> dict[str, str | None]:
    """Says whether a period is the default one."""
    return {"default_window": DEFAULT_WINDOW if period.parameter == "default" else None}


def hours_response(period: Period, rows: list[HourRow], coverage: PeriodCoverage) -> dict[str, Any]:
    """As `HoursAnswer`."""
    return {
        **period_fields(period),
        "rows": [_hour_row(row) for row in rows],
        "coverage": coverage_fields(coverage),
        "cursor": None,
    }


def totals_fields(totals: Totals | None) -> dict[str, Decimal | None]:
    """As `FleetTotals`."""
    costs = None if totals is None else totals.costs
    capacity = None if totals is None else totals.capacity
    fields = dict.fromkeys((*Costs.names(), *Capacity.names())) if costs is None else costs.figures()
    return fields | (dict.fromkeys(Capacity.names()) if capacity is None else capacity.figures())


def coverage_fields(coverage: PeriodCoverage) -> dict[str, Any]:
    """As `Coverage`."""
    return asdict(coverage)


def _hour_row(row: HourRow) -> dict[str, Any]:
    manifest = row.manifest
    status: Status | Literal["missing"] = "missing" if manifest is None else manifest.status
    return {
        "cluster": row.cluster,
        "hour": row.hour,
        "status": status,
        "coverage": None if manifest is None or manifest.coverage is None else asdict(manifest.coverage),
        "version": None if manifest is None else manifest.version,
        "settings_version": None if manifest is None else manifest.settings_version,
        "published_at": None if manifest is None else manifest.published_at,
        "attempts": 0 if manifest is None else manifest.attempts,
        "next_attempt_at": None if manifest is None else manifest.next_attempt_at,
        "notes": row.notes,
    }
