"""Schemas of responses for the OpenAPI document, and functions that make responses from reports.

`gpucost.runtime.json_text` writes the responses, because pydantic would write Decimals as strings. Tests validate
responses against these schemas.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Unpack

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from gpucost.core.amounts import Capacity, Costs, Totals
from gpucost.core.model import Line, Status
from gpucost.core.query.periods import DEFAULT_WINDOW, Period
from gpucost.reports import HourRow, PeriodCoverage

Amount = Annotated[Decimal, WithJsonSchema({"type": "number"})]
"""An exact decimal with up to 12 digits after the point. Parse it with a decimal type."""
Instant = Annotated[datetime, WithJsonSchema({"type": "string", "format": "date-time"})]

FLEET_AMOUNTS = (*Costs.names(), *Capacity.names())
LINE_AMOUNTS = tuple(name for name in Line._fields if name in Costs.names())

_AMOUNT_DESCRIPTIONS = {
    "allocated_gpu_hours": "GPU-hours allocated to pods",
    "effective_gpu_hours": "Allocated GPU-hours × utilization, where utilization was measured",
    "allocated_usd": "Cost of the allocated GPU-hours",
    "effective_usd": "Part of the allocated cost that was used",
    "waste_usd": "Part of the allocated cost that was measured and not used",
    "unmeasured_usd": "Part of the allocated cost without a utilization measurement",
    "unmeasured_gpu_hours": "Allocated GPU-hours without a utilization measurement",
    "unpriced_gpu_hours": "Allocated GPU-hours on nodes without a price. No amount includes them. Amounts are null if "
    "these are all allocated GPU-hours",
}
_AMOUNT_EXAMPLES = {"allocated_gpu_hours": [5.142857142857], "allocated_usd": [61.714285714286]}


class ResponseModel(BaseModel):
    """Base of all response models. Undeclared fields are errors."""

    model_config = ConfigDict(extra="forbid")

    def __init_subclass__(
        cls, amounts: Iterable[str] = (), nullable: Collection[str] = (), **config: Unpack[ConfigDict]
    ) -> None:
        """Declare the named amounts after the class's other fields.

        Money is always nullable, because a price may be unknown. GPU-hours are nullable if `nullable` names them.
        """
        for name in amounts:
            is_nullable = name.endswith("_usd") or name in nullable
            cls.__annotations__[name] = Amount | None if is_nullable else Amount
            setattr(cls, name, Field(description=_AMOUNT_DESCRIPTIONS.get(name), examples=_AMOUNT_EXAMPLES.get(name)))
        super().__init_subclass__(**config)


class PeriodResponse(ResponseModel):
    """Base of responses about a period."""

    start: Instant
    end: Instant
    default_window: Literal["24h"] | None = Field(
        description="24h if the request had no start, end or window: the period is the last 24 ended hours. Null "
        "otherwise"
    )


class CostFigures(ResponseModel, amounts=Costs.names()):
    """Costs of allocated GPUs: allocated = effective + waste + unmeasured."""


class FleetTotals(ResponseModel, amounts=FLEET_AMOUNTS, nullable=FLEET_AMOUNTS):
    """Sums over the period. All are null if no hour has figures. Capacity figures are null if one hour's capacity is
    unknown. Amounts are null if nothing has a price.

    effective + waste + unmeasured + unallocated + stranded + unobserved + host + residual = node cost.
    """


class PeriodCoverageModel(ResponseModel):
    """How much of the period has been measured."""

    hours_expected: int = Field(description="Cluster-hours of the period that have ended")
    hours_complete: int = Field(description="Those of them that are complete. Other hours add nothing to any figure")
    allocation: Amount | None = Field(description="Allocation scrapes seen ÷ expected, 0 to 1, mean of published hours")
    utilization: Amount | None = Field(description="The same for utilization; null if it is not measured")


class HourCoverage(ResponseModel):
    """Scrapes seen ÷ scrapes expected in one hour, 0 to 1."""

    allocation: Amount
    utilization: Amount | None


class HourRowModel(ResponseModel):
    """The state of one cluster-hour. `missing` means that it was never published."""

    cluster: str
    hour: Instant
    status: Literal["complete", "provisional", "incomplete", "missing"]
    coverage: HourCoverage | None
    version: int | None
    settings_version: int | None
    published_at: Instant | None
    attempts: int
    next_attempt_at: Instant | None
    notes: list[str] = Field(description="Explanations of the status and of the figures")


class HoursResponse(PeriodResponse):
    """GET /v1/hours."""

    rows: list[HourRowModel]
    coverage: PeriodCoverageModel
    cursor: None


class Health(ResponseModel):
    """GET /health: the function runs. The database is not checked."""

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
    detail: str = Field(description="What is wrong, what is allowed, and what to do")
    instance: str = Field(description="The requested path")
    errors: list[ParameterProblem] | None = Field(default=None, description="The wrong parameters, if any")


def period_fields(period: Period) -> dict[str, Any]:
    """Return the fields of `PeriodResponse`."""
    return {"start": period.start, "end": period.end, **default_window_fields(period)}


def default_window_fields(period: Period) -> dict[str, str | None]:
    """Return the field `default_window`, which says whether the period is the default one."""
    return {"default_window": DEFAULT_WINDOW if period.parameter == "default" else None}


def hours_response(period: Period, rows: list[HourRow], coverage: PeriodCoverage) -> dict[str, Any]:
    """Return the fields of `HoursResponse`."""
    return {
        **period_fields(period),
        "rows": [_hour_row(row) for row in rows],
        "coverage": coverage_fields(coverage),
        "cursor": None,
    }


def totals_fields(totals: Totals | None) -> dict[str, Decimal | None]:
    """Return the fields of `FleetTotals`."""
    costs = None if totals is None else totals.costs
    capacity = None if totals is None else totals.capacity
    fields = dict.fromkeys(FLEET_AMOUNTS) if costs is None else costs.figures()
    return fields | (dict.fromkeys(Capacity.names()) if capacity is None else capacity.figures())


def coverage_fields(coverage: PeriodCoverage) -> dict[str, Any]:
    """Return the fields of `Coverage`."""
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
