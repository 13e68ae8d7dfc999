"""Schemas of responses about prices, node costs and restatements, and functions that make them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any

from pydantic import Field

from gpucost.core.amounts import CapacityCosts
from gpucost.core.hour_record import LINE_AMOUNTS, ClusterCharge, Line, NodeHour
from gpucost.core.ledger import Restatement
from gpucost.core.pricing.prices import PriceSource, PriceUnit
from gpucost.http.schemas import (
    Amount,
    CostFigures,
    FleetTotals,
    Instant,
    NextCursor,
    PeriodResponse,
    ResponseModel,
    totals_fields,
)
from gpucost.reports.nodes import NodeRow
from gpucost.reports.prices import ListedPrice, PricePage
from gpucost.runtime.json_text import dumps_row, figures_template, fixed_point_text, row_writer, value_writer

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
