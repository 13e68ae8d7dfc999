"""Schemas of responses for the OpenAPI document, and functions that make responses from reports.

`gpucost.runtime.json_text` writes the responses, because pydantic would write Decimals as strings. Tests validate
responses against these schemas.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Unpack, get_type_hints

from msgspec.structs import asdict
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from gpucost.core.amounts import CapacityCosts, Costs, Idle, Totals
from gpucost.core.hour_record import LINE_FIELDS
from gpucost.core.query.periods import DEFAULT_WINDOW, Period
from gpucost.reports.records import HourRow, PeriodCoverage

Amount = Annotated[Decimal, WithJsonSchema({"type": "number"})]
"""An exact decimal with up to 12 digits after the point. Parse it with a decimal type."""
Instant = Annotated[datetime, WithJsonSchema({"type": "string", "format": "date-time"})]
_SCHEMA_TYPES = {Decimal: Amount, Decimal | None: Amount | None, datetime: Instant}
"""By type of a record's field; other types are published as they are."""

FLEET_AMOUNTS = (*Costs.names(), *CapacityCosts.names())

_AMOUNT_FIELDS = {**CapacityCosts.fields(), **Idle.fields(), **Costs.fields(), **LINE_FIELDS}
_AMOUNT_DESCRIPTIONS = {name: field.meaning for name, field in _AMOUNT_FIELDS.items()} | {
    "cost_usd": "allocated + idle; the sum of all rows is the node cost",
    "gpu_hourly_usd": "Hourly price of one physical GPU of the node; null if unknown",
    "billed_usd": "Amount on the bill for this instance, if its cost is a blended price",
    "verified_usd": "Monthly saving as measured over a week after it was applied: the part that the change explains, "
    "at most the estimate; negative if GPUs were added",
}
_AMOUNT_EXAMPLES: Mapping[str, list[Any]] = {
    "allocated_gpu_hours": [5.142857142857],
    "allocated_usd": [61.714285714286],
}


class ResponseModel(BaseModel):
    """Base of all response models. Undeclared fields are errors."""

    # Validators are built at first use: a process that starts for one request needs the models of one route.
    model_config = ConfigDict(extra="forbid", defer_build=True)

    def __init_subclass__(
        cls,
        record: type | None = None,
        amounts: Iterable[str] = (),
        nullable: Collection[str] = (),
        optional: Collection[str] = (),
        descriptions: Mapping[str, str] = _AMOUNT_DESCRIPTIONS,
        examples: Mapping[str, list[Any]] = _AMOUNT_EXAMPLES,
        **config: Unpack[ConfigDict],
    ) -> None:
        """Declare fields in addition to those that the class declares itself.

        Args:
            record: the class of the published records. Its fields come first, in its order and with its types. A field
                that the class declares too replaces that of the record.
            amounts: names of amounts; these fields come last. Those that need a price or energy are always nullable,
                and so is all other money.
            nullable: names of other amounts that are nullable.
            optional: names of amounts that may be absent; their default is null.
            descriptions: by name of a field of `record` or `amounts`.
            examples: by name, as the descriptions.
            config: settings of pydantic.
        """
        declared = dict(cls.__annotations__)
        derived = {name: _SCHEMA_TYPES.get(kind, kind) for name, kind in get_type_hints(record or object).items()}
        annotations = derived | declared
        for name in amounts:
            annotations[name] = Amount | None if name in nullable or _may_be_unknown(name) else Amount
        for name in annotations.keys() - declared.keys():
            default = None if name in optional else ...
            setattr(cls, name, Field(default, description=descriptions.get(name), examples=examples.get(name)))
        cls.__annotations__.clear()
        cls.__annotations__.update(annotations)
        super().__init_subclass__(**config)


def _may_be_unknown(name: str) -> bool:
    field = _AMOUNT_FIELDS.get(name)
    return name.endswith("_usd") if field is None else field.needs != "nothing"


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
    hours_complete: int = Field(
        description="Complete hours among them. Provisional hours are in the figures, too; other hours are not"
    )
    allocation: Amount | None = Field(description="Allocation scrapes seen ÷ expected, 0 to 1, mean of published hours")
    utilization: Amount | None = Field(
        description="Utilization scrapes seen ÷ expected; null if utilization is not measured"
    )


NextCursor = Annotated[
    str | None, Field(description="Pass it as the parameter `cursor` to get the next page; null on the last page")
]
NullCursor = Annotated[None, Field(description="Always null: the response is not paged")]


class HourCoverage(ResponseModel):
    """Scrapes seen ÷ scrapes expected in one hour, 0 to 1."""

    allocation: Amount
    utilization: Amount | None


class HourRowModel(ResponseModel):
    """The state of one cluster-hour.

    `pending`: the newest ended hour, which is still computed; `missing`: an older hour without a result. In a closed
    month, a result that arrives later changes no figure.
    """

    cluster: str
    hour: Instant
    status: Literal["complete", "provisional", "incomplete", "pending", "missing"]
    coverage: HourCoverage | None
    version: int | None
    settings_version: int | None
    published_at: Instant | None
    attempts: int
    next_attempt_at: Instant | None
    notes: list[str] = Field(description="Explanations of the status and of the figures")
    closed: bool = Field(description="Whether its month is closed: later figures are adjustments, in no report")


class HoursResponse(PeriodResponse):
    """GET /v1/hours."""

    rows: list[HourRowModel]
    coverage: PeriodCoverageModel
    cursor: NextCursor


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


def totals_fields(totals: Totals | None) -> dict[str, Decimal | None]:
    """Return the fields of `FleetTotals`."""
    costs = None if totals is None else totals.costs
    capacity = None if totals is None else totals.capacity
    fields = dict.fromkeys(FLEET_AMOUNTS) if costs is None else costs.figures()
    return fields | (dict.fromkeys(CapacityCosts.names()) if capacity is None else capacity.figures())


def coverage_fields(coverage: PeriodCoverage) -> dict[str, Any]:
    """Return the fields of `PeriodCoverageModel`."""
    return asdict(coverage)


def hour_fields(row: HourRow) -> dict[str, Any]:
    """Return the fields of `HourRowModel`."""
    manifest = row.manifest
    unpublished: Literal["pending", "missing"] = "pending" if row.is_newest else "missing"
    return {
        "cluster": row.cluster,
        "hour": row.hour,
        "status": unpublished if manifest is None else manifest.status,
        "coverage": None if manifest is None or manifest.coverage is None else asdict(manifest.coverage),
        "version": None if manifest is None else manifest.version,
        "settings_version": None if manifest is None else manifest.settings_version,
        "published_at": None if manifest is None else manifest.published_at,
        "attempts": 0 if manifest is None else manifest.attempts,
        "next_attempt_at": None if manifest is None else manifest.next_attempt_at,
        "notes": row.notes,
        "closed": row.is_closed,
    }
