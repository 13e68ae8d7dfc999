"""Rows of the exports: FOCUS 1.3, with each node's cost split among its pods, and the table `inference`.

The origin charge is a node-hour. It has one row for each ledger line on the node, and one row without an
`AllocatedResourceId` for each part that no pod held. The rows of a node-hour add up to its cost exactly.

FOCUS's `EffectiveCost` is the cost after discounts. This product's *effective* cost is the column `x_UsedCost`.

Columns and rules: FinOps Open Cost and Usage Specification 1.3, Cost and Usage dataset. docs/decisions/0034 explains
the choice of values.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from gpucost.core.amounts import CapacityCosts, Costs, quantize, to_decimal
from gpucost.core.costs_by_model import ModelSum, TokenWeights
from gpucost.core.hour_record import (
    LINE_FIELDS,
    UNKNOWN_IF_EMPTY,
    ClusterCharge,
    HourRecord,
    Line,
    ModelHour,
    ModelKey,
    NodeHour,
)
from gpucost.core.hours import HOUR
from gpucost.core.ledger import Manifest

# Columns of the export: those of FOCUS 1.3 (Cost and Usage dataset) and custom ones, which start with `x_`.
#
# docs/how-to/exports.md describes each column.

ColumnType = Literal["text", "amount", "whole", "time"]
"""`amount` is DECIMAL(38,12), `time` a UTC timestamp."""
ColumnTypes = Mapping[str, ColumnType]
"""By name, in the order of the columns."""
ColumnValue = str | Decimal | int | datetime | None
Row = dict[str, ColumnValue]
"""A missing column is null."""


def column_types(*, text: str, amounts: str, whole: str, times: str) -> ColumnTypes:
    """Return the type of each column by name, from the names of each type; FOCUS columns first, then custom ones."""
    types: dict[str, ColumnType] = {}
    types |= dict.fromkeys(text.split(), "text")
    types |= dict.fromkeys(amounts.split(), "amount")
    types |= dict.fromkeys(whole.split(), "whole")
    types |= dict.fromkeys(times.split(), "time")
    return dict(sorted(types.items()))


COLUMN_OF_LINE_AMOUNT = {name: field.column for name, field in LINE_FIELDS.items() if field.column}
"""By name of the line's field."""
COLUMNS = column_types(
    text="""
AllocatedMethodDetails AllocatedMethodId AllocatedResourceId AllocatedResourceName AllocatedTags AvailabilityZone
BillingAccountId BillingAccountName BillingCurrency CapacityReservationId CapacityReservationStatus ChargeCategory
ChargeClass ChargeDescription ChargeFrequency CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName
CommitmentDiscountStatus CommitmentDiscountType CommitmentDiscountUnit ConsumedUnit HostProviderName InvoiceId
InvoiceIssuerName PricingUnit ProviderName PublisherName RegionId RegionName ResourceId ResourceName ResourceType
ServiceCategory ServiceName ServiceProviderName ServiceSubcategory Tags
x_BusinessUnit x_CapacityType x_Cluster x_CostPart x_GpuModel x_GpuResource x_GpuShareSource x_HourStatus
x_InferenceServer x_InstanceType x_Model x_Namespace x_NodePool x_Pod x_PriceSource x_SharedFrom x_SplitPolicy
x_UtilizationSource x_Workload x_WorkloadKind
""",
    amounts="""
BilledCost CommitmentDiscountQuantity ConsumedQuantity ContractedCost ListCost PricingQuantity
x_AllocationCoverage x_GpuHourlyPrice x_GpuShare x_Utilization x_UtilizationCoverage
"""
    + " ".join(COLUMN_OF_LINE_AMOUNT.values()),
    whole="x_GpuUnits x_HourVersion x_SettingsVersion",
    times="BillingPeriodEnd BillingPeriodStart ChargePeriodEnd ChargePeriodStart",
)
"""Type of each column, in the order of the columns."""


# Rows: each node's cost is split among the pods that held its GPUs.

_WorkloadKey = tuple[str, str, str, str, str]
"""Business unit, namespace, kind, workload and GPU model: what costs by model have in common with lines."""
_OriginRow = tuple[Row, int | None, int]
"""A row of an origin charge, its cost and its GPU-hours."""

ALLOCATED_METHOD_ID = "gpucost-gpu-time-1"
"""Allocated method: a node's cost is split by the GPU time that pods held (docs/how-to/exports.md)."""
GPU_HOURS = "GPU-Hours"

_AWS = "Amazon Web Services"
_CONSTANT_COLUMNS: Row = {
    "BilledCost": Decimal(0),  # FOCUS, BilledCost: an entity that does not invoice reports 0
    "ChargeCategory": "Usage",
    "ChargeFrequency": "Usage-Based",
    "HostProviderName": _AWS,
    "InvoiceIssuerName": _AWS,
    "ProviderName": _AWS,
    "PublisherName": _AWS,
    "ServiceCategory": "Compute",
    "ServiceName": "Amazon Elastic Compute Cloud",
    "ServiceProviderName": _AWS,
    "ServiceSubcategory": "Virtual Machines",
}
_PART_DESCRIPTIONS = {
    "unallocated": "GPUs that no pod held",
    "stranded": "GPUs that no pod could hold",
    "unobserved": "GPUs without allocation metrics",
    "host": "CPU and memory part of the node's price",
    "residual": "Remainder of the node's cost",
}
_REGION_PATTERN = re.compile(r"^([a-z]{2}(?:-[a-z]+)+-\d+)(?:-[a-z]+-\d+)?[a-z]$")
_CAPACITY_RESERVATION_KINDS = {"unused-capacity-reservation", "unused-capacity-block"}
_COMMITMENT_KINDS = {
    "unused-savings-plan": ("Spend", "Savings Plan"),
    "unused-reservation": ("Usage", "Reserved Instance"),
}


def focus_rows(manifest: Manifest, record: HourRecord, account: str) -> Iterator[Row]:
    """Yield the rows of a published hour that has figures.

    Their `EffectiveCost` adds up to the hour's node cost if the capacity is known. Rows with `x_CostPart`
    *allocated* add up to the allocated cost. Costs without a price are null, also in FOCUS's columns.

    Args:
        manifest: the hour's version.
        record: a complete or provisional hour.
        account: ID of the billing account.
    """
    common = _common_columns(manifest, account)
    served = _served_columns(record.models)
    nodes_by_name: dict[str, list[NodeHour]] = {}
    for node in record.nodes:
        nodes_by_name.setdefault(node.node, []).append(node)
    lines_by_node: dict[str, list[Line]] = {}
    for line in record.lines:
        lines_by_node.setdefault(line.node, []).append(line)
    for name in sorted(nodes_by_name.keys() | lines_by_node.keys()):
        yield from _node_rows(common, name, nodes_by_name.get(name, []), lines_by_node.get(name, []), served)
    for charge in record.charges:
        yield common | _charge_columns(charge)
    yield from _hour_remainder_rows(common, record)


def instance_id(provider_id: str) -> str:
    """Return the instance ID as on the bill: `aws:///eu-central-1a/i-0123` → `i-0123`."""
    return provider_id.rpartition("/")[2]


def region_of(zone: str) -> str | None:
    """Return the region of an availability zone or local zone; None for other names."""
    match = _REGION_PATTERN.match(zone)
    return match.group(1) if match else None


def _common_columns(manifest: Manifest, account: str) -> Row:
    month = manifest.hour.replace(day=1, hour=0)
    coverage = manifest.coverage
    return _CONSTANT_COLUMNS | {
        "BillingAccountId": account,
        "BillingCurrency": manifest.currency,
        "BillingPeriodStart": month,
        "BillingPeriodEnd": month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1),
        "ChargePeriodStart": manifest.hour,
        "ChargePeriodEnd": manifest.hour + HOUR,
        "x_AllocationCoverage": coverage.allocation if coverage else None,
        "x_Cluster": manifest.cluster,
        "x_HourStatus": manifest.status,
        "x_HourVersion": manifest.version,
        "x_SettingsVersion": manifest.settings_version,
        "x_UtilizationCoverage": coverage.utilization if coverage else None,
    }


def _served_columns(models: Sequence[ModelHour]) -> dict[_WorkloadKey, Row]:
    """Return the server and model of each workload's lines, each only if there is exactly one.

    Costs by model are sums of workloads. If they have a single model, each line served it.
    """
    servers: dict[_WorkloadKey, set[str]] = {}
    names: dict[_WorkloadKey, set[str]] = {}
    for model in models:
        key = model.key[:5]
        servers.setdefault(key, set()).add(model.key.server)
        names.setdefault(key, set()).add(model.key.model)
    return {key: {"x_InferenceServer": _single(servers[key]), "x_Model": _single(names[key])} for key in servers}


def _single(names: set[str]) -> str | None:
    return (*names,)[0] or None if len(names) == 1 else None


def _node_rows(
    common: Row, name: str, nodes: Sequence[NodeHour], lines: Sequence[Line], served: Mapping[_WorkloadKey, Row]
) -> Iterator[Row]:
    """Yield the rows of one node-hour. Instances with the same node name in an hour are one origin charge."""
    resource = instance_id(nodes[0].provider_id) if len(nodes) == 1 else ""
    origin = common | {
        "ResourceId": resource or name,
        # FOCUS requires that the name does not repeat the ID.
        "ResourceName": name if resource and resource != name else None,
        "ResourceType": "Instance",
    }
    parts = [_line_row(origin, line, served) for line in lines] + [
        part for node in nodes for part in _rows_without_pod(origin, node)
    ]
    ratios = _origin_ratios(parts)
    for (row, _, gpu_hours), ratio in zip(parts, ratios, strict=True):
        row["AllocatedMethodDetails"] = None if ratio is None else _method_details(ratio, gpu_hours)
        yield row


def _line_row(origin: Row, line: Line, served: Mapping[_WorkloadKey, Row]) -> _OriginRow:
    row = origin | _location_columns(line) | _cost_columns(line.allocated_usd, line.allocated_gpu_hours)
    figures = line.figures()
    row |= {column: figures[name] for name, column in COLUMN_OF_LINE_AMOUNT.items()}
    row |= {
        "AllocatedMethodId": ALLOCATED_METHOD_ID,
        "AllocatedResourceId": line.uid or f"{line.namespace}/{line.pod}",
        "AllocatedResourceName": f"{line.namespace}/{line.pod}",
        "AllocatedTags": json.dumps(line.labels, sort_keys=True),
        "ChargeDescription": f"{line.units} x {line.resource} held by a pod",
        "x_BusinessUnit": line.business_unit,
        "x_CostPart": "allocated",
        "x_GpuHourlyPrice": line.gpu_hourly_usd,
        "x_GpuResource": line.resource,
        "x_GpuShare": line.gpu_share,
        "x_GpuShareSource": line.gpu_share_source,
        "x_GpuUnits": line.units,
        "x_Namespace": line.namespace,
        "x_Pod": line.pod,
        "x_SharedFrom": line.shared_from or None,
        "x_Utilization": line.utilization,
        "x_UtilizationSource": line.utilization_source,
        "x_Workload": line.workload,
        "x_WorkloadKind": line.workload_kind,
    }
    key = line.business_unit, line.namespace, line.workload_kind, line.workload, line.gpu_model
    return row | served.get(key, {}), line.allocated_usd, line.allocated_gpu_hours


def _rows_without_pod(origin: Row, node: NodeHour) -> Iterator[_OriginRow]:
    node_columns = origin | _location_columns(node) | {"AllocatedMethodId": ALLOCATED_METHOD_ID}
    for part, gpu_hours, amount in _parts_without_pod(node.capacity):
        cost = amount if node.price_source else None
        columns = _part_columns(part) | _energy_columns(part, node.capacity) | _cost_columns(cost, gpu_hours)
        yield node_columns | columns, cost, gpu_hours


def _hour_remainder_rows(common: Row, record: HourRecord) -> Iterator[Row]:
    """Yield rows for what the hour's totals have beyond its nodes and charges, so that rows add up to the totals."""
    capacity = record.totals.capacity if record.totals else None
    if capacity is None:
        return
    charged = [
        CapacityCosts(unallocated_gpu_hours=charge.gpu_hours or 0, unallocated_usd=charge.amount)
        for charge in record.charges
    ]
    remainder = capacity - CapacityCosts.total([*(node.capacity for node in record.nodes), *charged])
    for part, gpu_hours, amount in _parts_without_pod(remainder):
        yield common | _part_columns(part) | _cost_columns(amount, gpu_hours)


def _parts_without_pod(capacity: CapacityCosts) -> Iterator[tuple[str, int, int]]:
    """Yield the parts that no pod held, as (part, GPU-hours, amount), without empty parts."""
    for part in _PART_DESCRIPTIONS:
        amount: int = getattr(capacity, f"{part}_usd")
        gpu_hours: int = getattr(capacity, f"{part}_gpu_hours", 0)
        if amount or gpu_hours or _energy_without_pod(part, capacity)[0]:
            yield part, gpu_hours, amount


def _energy_without_pod(part: str, capacity: CapacityCosts) -> tuple[int, int]:
    """Return the energy that no line carries, and its emissions: idle in the part *unallocated*, else *unobserved*."""
    if part == "unallocated":
        return capacity.idle_energy_kwh, capacity.idle_co2e_kg
    if part == "unobserved":
        return capacity.unattributed_energy_kwh, capacity.unattributed_co2e_kg
    return 0, 0


def _energy_columns(part: str, capacity: CapacityCosts) -> Row:
    energy_kwh, co2e_kg = _energy_without_pod(part, capacity)
    if not energy_kwh:
        return {}
    has_factor = not capacity.device_energy_without_factor_kwh
    return {"x_Co2eKg": to_decimal(co2e_kg) if has_factor else None, "x_EnergyKwh": to_decimal(energy_kwh)}


def _part_columns(part: str) -> Row:
    return {"ChargeDescription": _PART_DESCRIPTIONS[part], "x_CostPart": part}


def _charge_columns(charge: ClusterCharge) -> Row:
    """Return the columns of an unused commitment or reservation, which FOCUS has columns for and which is not split."""
    quantity = charge.amount if charge.gpu_hours is None else charge.gpu_hours
    unit = charge.currency if charge.gpu_hours is None else GPU_HOURS
    row = _cost_columns(charge.amount, charge.gpu_hours or 0)
    row |= {
        "ChargeDescription": charge.kind.replace("-", " ").capitalize(),
        "PricingQuantity": to_decimal(quantity),
        "PricingUnit": unit,
        "x_CostPart": charge.kind,
    }
    if charge.kind in _CAPACITY_RESERVATION_KINDS:
        return row | {
            "CapacityReservationId": charge.reference,
            "CapacityReservationStatus": "Unused",
            "ConsumedQuantity": Decimal(0),
        }
    category, kind = _COMMITMENT_KINDS.get(charge.kind, ("Spend", charge.kind))
    return row | {
        "CommitmentDiscountCategory": category,
        "CommitmentDiscountId": charge.reference,
        "CommitmentDiscountQuantity": to_decimal(quantity),
        "CommitmentDiscountStatus": "Unused",
        "CommitmentDiscountType": kind,
        "CommitmentDiscountUnit": unit,
        "ConsumedQuantity": None,
        "ConsumedUnit": None,
    }


def _cost_columns(amount: int | None, held_gpu_hours: int) -> Row:
    cost, gpu_hours = None if amount is None else to_decimal(amount), to_decimal(held_gpu_hours)
    return {
        "ConsumedQuantity": gpu_hours,
        "ConsumedUnit": GPU_HOURS,
        # The ledger has one price per node-hour, so list prices and savings are not known.
        "ContractedCost": cost,
        "EffectiveCost": cost,
        "ListCost": cost,
        "PricingQuantity": gpu_hours,
        "PricingUnit": GPU_HOURS,
        "x_GpuHours": gpu_hours,
    }


def _location_columns(record: Line | NodeHour) -> Row:
    region = region_of(record.zone)
    return {
        "AvailabilityZone": record.zone or None,
        "RegionId": region,
        "RegionName": region,
        "x_CapacityType": record.capacity_type,
        "x_GpuModel": record.gpu_model,
        "x_InstanceType": record.instance_type,
        "x_NodePool": record.node_pool,
        "x_PriceSource": record.price_source or None,
        "x_SplitPolicy": record.split_policy or None,
    }


def _origin_ratios(parts: Sequence[_OriginRow]) -> list[Decimal | None]:
    """Return each part's ratio of the origin charge, in sum 1: by cost, or by GPU time if costs are 0 or unknown."""
    costs = [cost for _, cost, _ in parts if cost is not None]
    if len(costs) < len(parts) or not sum(costs):
        costs = [gpu_hours for _, _, gpu_hours in parts]
    total = sum(costs)
    if not total:
        return [None] * len(parts)
    ratios = [quantize(Fraction(cost, total)) for cost in costs]
    largest = max(range(len(costs)), key=lambda index: abs(costs[index]))
    ratios[largest] += 1 - sum(ratios, Decimal(0))
    return [*ratios]


def _method_details(ratio: Decimal, gpu_hours: int) -> str:
    """Return `AllocatedMethodDetails` with exact numbers."""
    return (
        f'{{"Elements": [{{"AllocatedRatio": {_json_number(ratio)}, "UsageUnit": "{GPU_HOURS}", '
        f'"UsageQuantity": {_json_number(to_decimal(gpu_hours))}}}]}}'
    )


def _json_number(value: Decimal) -> str:
    text = format(quantize(value), "f").rstrip("0").rstrip(".")
    return text or "0"


# Rows of the table `inference`: the costs and tokens of each model in one cluster-hour.
#
# They are apart from the FOCUS rows, because a pod that serves several models is one charge there. The rows of an hour
# add up to its FOCUS rows with `x_CostPart` *allocated*. Columns with the same meaning have the same name.
#
# docs/how-to/exports.md describes each column, and docs/decisions/0091 explains the choice.

_COLUMN_OF_FIGURE = {
    **{name: field.column for name, field in Costs.fields().items() if field.column},
    "unknown_tokens_usd": "x_UnknownTokensCost",
    "prompt_tokens": "x_PromptTokens",
    "generated_tokens": "x_GeneratedTokens",
    "cached_tokens": "x_CachedTokens",
    "requests": "x_Requests",
    "usd_per_million_tokens": "x_CostPerMillionTokens",
    "usd_per_million_prompt_tokens": "x_CostPerMillionPromptTokens",
    "usd_per_million_generated_tokens": "x_CostPerMillionGeneratedTokens",
    "usd_per_million_cached_tokens": "x_CostPerMillionCachedTokens",
    "usd_per_request": "x_CostPerRequest",
}
"""Column of each figure of `/v1/inference`."""
_COLUMN_OF_KEY = {
    "business_unit": "x_BusinessUnit",
    "namespace": "x_Namespace",
    "workload_kind": "x_WorkloadKind",
    "workload": "x_Workload",
    "gpu_model": "x_GpuModel",
    "server": "x_InferenceServer",
    "model": "x_Model",
    "consumer": "x_Consumer",
}
_WHOLE_COLUMNS = "x_CachedTokens x_GeneratedTokens x_HourVersion x_PromptTokens x_Requests x_SettingsVersion"

INFERENCE_COLUMNS = column_types(
    text=f"BillingCurrency x_Cluster x_HourStatus {' '.join(_COLUMN_OF_KEY.values())}",
    amounts=" ".join(["x_WeightedTokens", *(set(_COLUMN_OF_FIGURE.values()) - set(_WHOLE_COLUMNS.split()))]),
    whole=_WHOLE_COLUMNS,
    times="ChargePeriodEnd ChargePeriodStart",
)
"""Type of each column, in the order of the columns."""


def inference_rows(manifest: Manifest, models: Sequence[ModelHour], weights: TokenWeights | None) -> Iterator[Row]:
    """Yield a row for each key of an hour's models, in order.

    Args:
        manifest: the hour's version.
        models: its costs by model.
        weights: by which its costs were split; None if they are not known. Then columns that depend on them are null.
    """
    hours_by_key: dict[ModelKey, list[ModelHour]] = {}
    for model in models:
        hours_by_key.setdefault(model.key, []).append(model)
    for key in sorted(hours_by_key):
        total = ModelSum.of(hours_by_key[key])
        figures = total.figures(weights or TokenWeights())
        row: Row = {column: figures[name] for name, column in _COLUMN_OF_FIGURE.items()}
        if weights is None:
            row |= dict.fromkeys(f"x_CostPerMillion{kind}Tokens" for kind in ("Prompt", "Generated", "Cached"))
        weighted = None if weights is None or total.prompt_tokens is None else total.weighted_tokens(weights)
        yield row | {
            "BillingCurrency": manifest.currency,
            "ChargePeriodStart": manifest.hour,
            "ChargePeriodEnd": manifest.hour + HOUR,
            "x_Cluster": manifest.cluster,
            "x_HourStatus": manifest.status,
            "x_HourVersion": manifest.version,
            "x_SettingsVersion": manifest.settings_version,
            "x_WeightedTokens": None if weighted is None else quantize(weighted),
            **{column: getattr(key, name) for name, column in _COLUMN_OF_KEY.items()},
            **{_COLUMN_OF_KEY[name]: getattr(key, name) or None for name in UNKNOWN_IF_EMPTY},
        }
