"""Schemas of reports' responses, and functions that make them: costs, prices and nodes, lines, models, limits."""

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import Field

from gpucost.core.amounts import CapacityCosts, Costs, Totals, quantize
from gpucost.core.hour_record import LINE_AMOUNTS, ClusterCharge, Line, NodeHour
from gpucost.core.ledger import Manifest, Restatement
from gpucost.core.pricing.prices import PriceSource, PriceUnit
from gpucost.core.query.cost_query import IDLE_FIGURES, CostQuery, IdlePolicy
from gpucost.core.query.grouping import GroupRow
from gpucost.core.query.periods import Granularity, Period
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
from gpucost.reports.limit_reports import PoolRow, QuotaRow
from gpucost.reports.model_costs import MODEL_FIGURES, ROW_FIGURES, InferenceReport
from gpucost.reports.pages import ListedPrice, NodeRow, PricePage
from gpucost.reports.records import CostReport, PeriodComparison
from gpucost.reports.waste import TopWaster
from gpucost.runtime.json_text import dumps_row, figures_template, fixed_point_text, row_writer, value_writer

# Costs, business units, workloads, trends and waste.

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


def _percent(part: Decimal | None, whole: Decimal | None) -> Decimal | None:
    return None if part is None or not whole else quantize(100 * part / whole)


# Prices, node costs and restatements.

INSTANCE_TYPE_SOURCE = (
    "What says the instance type if no label does: karpenter, neuron-monitor, ec2 (its API), or hardware if it is "
    "inferred from the node's GPUs, CPUs and memory; only without a label"
)


class PriceRow(ResponseModel):
    """One price of the price book, in force for `[from, to)`."""

    id: str | None = Field(description="ID of a price set by hand, for `gpucost prices drop`; null for other prices")
    source: PriceSource
    applies_to: dict[str, str] = Field(
        description="Node attributes that must match, as shell patterns. Empty matches every node",
        examples=[{"instance_type": "p5.48xlarge", "region": "us-east-1"}],
    )
    unit: PriceUnit = Field(description="Money per hour of a node or of one physical GPU, or a factor")
    amount: Amount
    currency: str = Field(examples=["USD"])
    since: Instant | None = Field(alias="from", description="Null if it has no start")
    until: Instant | None = Field(alias="to", description="Null if it has no end")
    fetched_at: Instant | None = Field(description="When it was fetched from AWS, or set by hand")
    author: str
    reason: str


class PricesResponse(ResponseModel):
    """GET /v1/prices."""

    start: Instant
    end: Instant
    rows: list[PriceRow]
    cursor: NextCursor


_HOLDER_AMOUNTS = tuple(name for name in LINE_AMOUNTS if name != "used_beyond_allocation_gpu_hours")


class HolderModel(ResponseModel, amounts=_HOLDER_AMOUNTS, nullable=("effective_gpu_hours",)):
    """One pod and one GPU resource on a node in one hour."""

    business_unit: str
    namespace: str
    workload_kind: str
    workload: str
    pod: str
    uid: str
    resource: str = Field(examples=["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"])
    units: int = Field(description="Requested units of the resource")
    gpu_share: Amount = Field(description="Physical GPUs per unit", examples=[0.142857142857])
    utilization: Amount | None = Field(description="Mean measured utilization, 0 to 1")
    utilization_source: str = Field(
        description="Source of the utilization: pod, process, shared, node, cluster, or none", examples=["pod"]
    )


_NODE_AMOUNTS = (*CapacityCosts.names(), "billed_usd", *(name for name in _HOLDER_AMOUNTS if name.endswith("_usd")))
_NULLABLE_NODE_AMOUNTS = {*CapacityCosts.names()} - {"unpriced_capacity_gpu_hours"}


class NodeRowModel(ResponseModel, amounts=_NODE_AMOUNTS, nullable=_NULLABLE_NODE_AMOUNTS):
    """A GPU node in one hour. Its cost is effective + waste + unmeasured of its holders, plus the parts no pod held.

    A row with a `kind` other than `node` is a charge without a node: an unused commitment or reserved capacity.
    effective_usd, waste_usd and unmeasured_usd are null if `holders` is null.
    """

    cluster: str
    hour: Instant
    currency: str = Field(examples=["USD"])
    kind: str = Field(examples=["node", "unused-capacity-block", "unused-savings-plan"])
    node: str = Field(description="Name of the node; for other kinds, ID of the commitment or reservation")
    provider_id: str
    node_pool: str
    instance_type: str
    capacity_type: str
    zone: str
    gpu_model: str
    price_source: str = Field(description='Source of its price; "" if it has no price', examples=["spot"])
    split_policy: str
    holders: list[HolderModel] | None = Field(
        description="Pods that held its GPUs; null if two nodes had this name in the hour"
    )
    instance_type_source: str = Field("", description=INSTANCE_TYPE_SOURCE, examples=["hardware"])


class NodesResponse(PeriodResponse):
    """GET /v1/nodes: in order of hour, cluster and node."""

    rows: list[NodeRowModel]
    cursor: NextCursor


class UnitChange(ResponseModel):
    """What a restatement changed for one business unit."""

    business_unit: str
    before: CostFigures
    after: CostFigures


class RestatementRow(ResponseModel):
    """A version of an hour that replaced figures."""

    cluster: str
    hour: Instant
    version: int = Field(description="Version of the hour with this restatement", examples=[2])
    restated_at: Instant
    settings_version: int
    reason: str = Field(examples=["3 spot prices new or changed"])
    currency: str = Field(examples=["USD"])
    currency_before: str = Field(examples=["USD"])
    before: FleetTotals
    after: FleetTotals
    business_units: list[UnitChange] = Field(description="Those whose costs changed")
    adjustment: bool = Field(
        description="Pending adjustment of a closed month: not part of any figure of /v1/costs", examples=[False]
    )


class RestatementsResponse(PeriodResponse):
    """GET /v1/restatements."""

    rows: list[RestatementRow]
    cursor: NextCursor


def prices_response(start: datetime, end: datetime, page: PricePage, cursor: str | None) -> dict[str, Any]:
    """Return the fields of `PricesResponse`."""
    return {"start": start, "end": end, "rows": [price_row(row) for row in page.rows], "cursor": cursor}


def price_row(row: ListedPrice) -> dict[str, Any]:
    """Return the fields of `PriceRow`."""
    price = row.price
    return {
        "id": row.id,
        "source": price.source,
        "applies_to": dict(price.applies_to),
        "unit": price.unit,
        "amount": price.amount,
        "currency": price.currency,
        "from": price.valid_from,
        "to": price.valid_to,
        "fetched_at": price.fetched_at,
        "author": price.author,
        "reason": price.reason,
    }


def node_row_json(row: NodeRow) -> str:
    """Write a row as `NodeRowModel`."""
    row_key = {"cluster": row.manifest.cluster, "hour": row.manifest.hour, "currency": row.manifest.currency}
    record = row.node_or_charge
    if not isinstance(record, NodeHour):
        return dumps_row({**row_key, **_charge_fields(record)})
    node_fields = {**row_key, "kind": "node", **{name: getattr(record, name) for name in _NODE_FIELDS}}
    if record.instance_type_source:
        node_fields["instance_type_source"] = record.instance_type_source
    has_price = bool(record.price_source)
    figures = (
        record.billed_usd,
        record.allocated_usd if has_price else None,
        *_sums_of_holders(row.holders if has_price else None),
        *record.capacity.published_amounts(),
    )
    figures_text = _NODE_FIGURES_TEMPLATE % tuple(map(fixed_point_text, figures))
    holders = "null" if row.holders is None else f"[{', '.join(map(_holder_json, row.holders))}]"
    return f'{dumps_row(node_fields)[:-1]}{figures_text}, "holders": {holders}}}'


def _charge_fields(record: ClusterCharge) -> dict[str, Any]:
    """Return the fields of `NodeRowModel` for a charge without a node."""
    empty_fields = dict.fromkeys(
        ("provider_id", "node_pool", "instance_type", "capacity_type", "zone", "gpu_model"), ""
    )
    capacity = CapacityCosts(
        capacity_gpu_hours=record.gpu_hours or 0,
        unallocated_gpu_hours=record.gpu_hours or 0,
        node_cost_usd=record.amount,
        unallocated_usd=record.amount,
    ).figures()
    if record.gpu_hours is None:  # a commitment of money alone
        capacity |= {"capacity_gpu_hours": None, "unallocated_gpu_hours": None}
    source = "capacity-block" if record.kind == "unused-capacity-block" else "cur"
    charge_fields = {"kind": record.kind, "node": record.reference, "price_source": source, "split_policy": ""}
    cost_fields: dict[str, Any] = {
        "billed_usd": None,
        **dict.fromkeys(("allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd"), Decimal(0)),
    }
    return {**empty_fields, **charge_fields, **cost_fields, **capacity, "holders": []}


_NODE_FIELDS = tuple(
    name
    for name in NodeHour.__struct_fields__
    if name not in {"billed_usd", "allocated_usd", "capacity", "instance_type_source"}
)
_SUMS_OF_HOLDERS = ("effective_usd", "waste_usd", "unmeasured_usd")
_NODE_FIGURES_TEMPLATE = figures_template(("billed_usd", "allocated_usd", *_SUMS_OF_HOLDERS, *CapacityCosts.names()))
_summed_amounts = attrgetter(*_SUMS_OF_HOLDERS)
_holder_json: Callable[[Line], str] = row_writer(
    {
        name: fixed_point_text if name in _HOLDER_AMOUNTS else value_writer(field.annotation)
        for name, field in HolderModel.model_fields.items()
    }
)


def _sums_of_holders(holders: Sequence[Line] | None) -> list[int | None]:
    """Sum the holders' effective, waste and unmeasured costs; None if the holders or the price are unknown."""
    if holders is None:
        return [None] * len(_SUMS_OF_HOLDERS)
    columns = zip(*map(_summed_amounts, holders), strict=True) if holders else [()] * len(_SUMS_OF_HOLDERS)
    return [sum(filter(None, column)) for column in columns]


def restatement_fields(restatement: Restatement) -> dict[str, Any]:
    """Return the fields of `RestatementRow`."""
    return {
        "cluster": restatement.cluster,
        "hour": restatement.hour,
        "version": restatement.version,
        "restated_at": restatement.restated_at,
        "settings_version": restatement.settings_version,
        "reason": restatement.reason,
        "currency": restatement.currency,
        "currency_before": restatement.currency_before,
        "before": totals_fields(restatement.before),
        "after": totals_fields(restatement.after),
        "business_units": [
            {"business_unit": unit, "before": before.figures(), "after": after.figures()}
            for unit, (before, after) in restatement.changed_units.items()
        ],
        "adjustment": restatement.is_adjustment,
    }


# Parts of the node cost, and single lines.


class FleetPeriod(FleetTotals):
    """The parts of the node cost in one period."""

    start: Instant
    end: Instant


class FleetResponse(CostReportResponse):
    """GET /v1/fleet. A period in which no hour has figures has no row."""

    granularity: Granularity
    rows: list[FleetPeriod]


_AMOUNTS_IN_ADDITION = (*(name for name in LINE_AMOUNTS if name not in HolderModel.model_fields), "gpu_hourly_usd")


class LineRowModel(HolderModel, amounts=_AMOUNTS_IN_ADDITION):
    """One pod and one GPU resource in one hour.

    allocated_gpu_hours = units × gpu_share × hours held; allocated_usd = allocated_gpu_hours × gpu_hourly_usd.
    effective_gpu_hours is null if utilization was not measured.
    """

    cluster: str
    hour: Instant
    currency: str = Field(examples=["USD"])
    node: str
    node_pool: str
    instance_type: str
    capacity_type: str
    zone: str
    gpu_model: str
    gpu_share_source: str = Field(
        description="Source of the share: product-label, mig-profile, sharing, fraction, capacity, settings, whole, "
        "neuron; mig-compute-slices and node-average are estimates",
        examples=["mig-profile"],
    )
    labels: dict[str, str] = Field(description="Labels listed in the settings' cost_labels")
    split_policy: str = Field(description="Which part of a node's price its GPUs bear", examples=["gpu-bears-all"])
    price_source: str = Field(description='"" if there is no price', examples=["constant", "spot", "cur"])
    shared_from: str = Field(description='The business unit whose shared cost this is a part of; "" otherwise')
    resource_claim: str = Field(
        "", description="The ResourceClaim (DRA) that holds the GPUs; only if the pod does not request them"
    )
    dra_driver: str = Field("", description="The DRA driver of the claim; only with `resource_claim`")
    instance_type_source: str = Field("", description=INSTANCE_TYPE_SOURCE, examples=["hardware"])


class LinesResponse(PeriodResponse):
    """GET /v1/lines: in order of hour and cluster."""

    rows: list[LineRowModel]
    cursor: NextCursor


def fleet_period_fields(period: Period, totals: Totals) -> dict[str, Any]:
    """Return a row of the fleet report."""
    return {"start": period.start, "end": period.end, **totals_fields(totals)}


def line_fields(hour: Manifest, line: Line) -> dict[str, Any]:
    """Return a row of the report of lines."""
    return {"cluster": hour.cluster, "hour": hour.hour, "currency": hour.currency, **line.figures()}


# Costs and tokens by model.

TOKEN_COUNTS = ("prompt_tokens", "generated_tokens", "cached_tokens", "requests")
UNIT_COSTS = tuple(name for name in MODEL_FIGURES if name not in (*Costs.names(), *TOKEN_COUNTS))
_MODEL_DESCRIPTIONS = {
    "unknown_tokens_usd": "The part of allocated_usd of pods whose tokens are unknown. Unit costs leave it out",
    "usd_per_million_tokens": "Allocated cost of 1,000,000 prompt and generated tokens, as it was",
    "usd_per_million_prompt_tokens": "Of prompt tokens that are not from a cache, by the weights of the settings",
    "usd_per_million_generated_tokens": "Of generated tokens, by the weights of the settings; null without any",
    "usd_per_million_cached_tokens": "Of prompt tokens from a cache; null without any, or if they are not counted",
    "usd_per_request": "Allocated cost of a request, as it was",
    "usd_per_million_tokens_at_full_use": "Without the cost of GPUs that waited: what it would be at full use",
    "tokens_per_gpu_second": "Prompt and generated tokens ÷ allocated GPU-seconds",
    "tokens_per_kwh": "Prompt and generated tokens ÷ energy of the GPUs; null if it was not measured",
}


class ModelFigures(CostFigures, amounts=UNIT_COSTS, nullable=UNIT_COSTS, descriptions=_MODEL_DESCRIPTIONS, examples={}):
    """Costs and tokens. effective_usd is the cost of serving, waste_usd the cost of waiting.

    Unit costs are null without tokens, requests or a price.
    """

    prompt_tokens: int | None = Field(description="Including those from a cache; null if unknown", examples=[360000])
    generated_tokens: int | None = Field(description="Null if unknown", examples=[72000])
    cached_tokens: int | None = Field(description="Prompt tokens from a cache; null if unknown", examples=[108000])
    requests: int | None = Field(description="Null if unknown", examples=[720])


class ModelRowModel(ModelFigures):
    """One group's figures in one period."""

    tokens_per_gpu_second_p50: Amount | None = Field(
        description="Median of the hours' tokens per GPU-second, by nearest rank, each hour once. Only hours whose "
        "tokens are known; hours without tokens have the load 0",
        examples=[812.5],
    )
    tokens_per_gpu_second_p95: Amount | None = Field(description="The 95th percentile of the hours", examples=[2140])
    start: Instant
    end: Instant
    group: dict[str, str | None] = Field(
        description="Dimension → name, for the dimensions of group_by; null for pods without an inference server, and "
        "for the model of pods whose tokens are unknown. The consumer is null where it is unknown, or no requests came",
        examples=[{"model": "meta-llama/Llama-3.1-8B-Instruct"}],
    )


class InferenceResponse(PeriodResponse):
    """GET /v1/inference. Hours in which no inference server was seen add nothing."""

    granularity: Granularity
    group_by: list[str]
    currency: Currency
    rows: list[ModelRowModel]
    row_count: RowCount
    totals: ModelFigures | None = Field(description="Sums over the period; null if no hour has inference servers")
    filtered_out: ModelFigures | None = Field(
        description="What the filters exclude. The rows of all pages and this add up to the totals"
    )
    coverage: PeriodCoverageModel
    hours_with_servers: int = Field(description="Cluster-hours in which inference servers were seen")
    cursor: NextCursor


def models_table(report: InferenceReport) -> tuple[list[str], list[list[Any]]]:
    """Return the header and the rows of a CSV file of models."""
    header = ["start", "end", *report.query.group_by, *ROW_FIGURES]
    return header, [[row.start, row.end, *row.group.values(), *row.figures.values()] for row in report.rows]


# Limits of node pools and resource quotas.


class NodePoolRow(ResponseModel):
    """A node pool's resource at the end of an hour, in units of the resource."""

    cluster: str
    hour: Instant
    node_pool: str
    resource: str = Field(examples=["nvidia.com/gpu"])
    used: Amount | None = Field(
        description="Units on the pool's nodes, allocated or not; null if Karpenter reports none"
    )
    limit: Amount | None = Field(description="Null if the pool has no limit")
    percent: Amount | None = Field(
        description="100 × used ÷ limit, rounded to 1e-12; null if one of them is null or the limit is 0"
    )


class NodePoolsResponse(PeriodResponse):
    """GET /v1/nodepools. Hours without Karpenter metrics have no row."""

    rows: list[NodePoolRow]
    cursor: NullCursor


class QuotaRowModel(ResponseModel):
    """A GPU quota at the end of an hour, in units of its resource, with means over that hour."""

    cluster: str
    hour: Instant
    namespace: str
    quota: str = Field(description="Name of the ResourceQuota")
    resource: str = Field(description="Without `requests.`", examples=["nvidia.com/gpu"])
    hard: Amount | None = Field(description="What the quota allows")
    requested: Amount | None = Field(
        description="The quota's status.used at the end of the hour: requests of all pods, also pending ones"
    )
    held: Amount = Field(description="Mean units allocated to the namespace's pods during the hour")
    used: Amount | None = Field(description="Mean units used, where utilization was measured; null if it was not")


class QuotasResponse(PeriodResponse):
    """GET /v1/quotas. Hours without quota metrics have no row."""

    rows: list[QuotaRowModel]
    cursor: NullCursor


def pool_fields(row: PoolRow) -> dict[str, Any]:
    """Return a row of the report of node pool limits."""
    pool = row.limit
    return {
        "cluster": row.cluster,
        "hour": row.hour,
        "node_pool": pool.node_pool,
        "resource": pool.resource,
        "used": pool.used,
        "limit": pool.limit,
        "percent": _percent(pool.used, pool.limit),
    }


def quota_fields(row: QuotaRow) -> dict[str, Any]:
    """Return a row of the report of quotas."""
    quota = row.quota
    return {
        "cluster": row.cluster,
        "hour": row.hour,
        "namespace": quota.namespace,
        "quota": quota.name,
        "resource": quota.resource,
        "hard": quota.hard,
        "requested": quota.used,
        "held": row.held,
        "used": row.used,
    }
