"""Writes allocations and assets as OpenCost does."""

from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from pydantic.alias_generators import to_camel

from gpucost.core.amounts import SCALE, quantize, to_decimal
from gpucost.core.hours import HOUR
from gpucost.features.opencost.allocation_service import Allocation
from gpucost.features.opencost.assets import CATEGORY, NODE_TYPE, PROVIDER, Asset
from gpucost.features.opencost.properties import Properties
from gpucost.features.opencost.schemas import AllocationSummary, OpenCostAllocation

_ZERO_FIELDS = dict.fromkeys(
    to_camel(name) for name, field in OpenCostAllocation.model_fields.items() if field.annotation is Decimal
)
_SUMMARY_FIELDS = tuple(map(to_camel, AllocationSummary.model_fields))


def allocation_fields(allocation: Allocation, *, labels: bool = False) -> dict[str, Any]:
    """Return the fields of `OpenCostAllocation`."""
    hours = Fraction((allocation.end - allocation.start) / HOUR)
    costs, idle = allocation.costs, allocation.idle_costs
    measured = costs.allocated_gpu_hours - costs.unmeasured_gpu_hours
    cost = to_decimal(costs.allocated_usd + idle.idle_usd) if idle is not None and costs.has_price() else None
    efficiency = quantize(Fraction(costs.effective_gpu_hours, measured)) if measured > 0 else None
    usage = quantize(Fraction(costs.effective_gpu_hours, SCALE) / hours) if measured > 0 else None
    held: int | None = costs.allocated_gpu_hours
    if allocation.is_idle:
        held = idle.idle_gpu_hours if idle is not None and allocation.has_idle_gpu_hours else None
        efficiency, usage = Decimal(0), Decimal(0)
    request = None if held is None else quantize(Fraction(held, SCALE) / hours)
    shared_idle = None if idle is None else to_decimal(idle.idle_usd)
    return {
        **dict.fromkeys(_ZERO_FIELDS, Decimal(0)),
        "name": allocation.name,
        "properties": _property_fields(allocation.properties, labels=labels),
        "window": {"start": allocation.start, "end": allocation.end},
        "start": allocation.start,
        "end": allocation.end,
        "minutes": quantize(hours * 60),
        "gpuCount": request,
        "gpuRequestAverage": request,
        "gpuUsageAverage": usage,
        "gpuHours": None if held is None else to_decimal(held),
        "gpuCost": cost,
        "gpuCostIdle": Decimal(0) if allocation.is_idle else shared_idle,
        "gpuEfficiency": efficiency,
        "pvs": None,
        "totalCost": cost,
        "totalEfficiency": efficiency,
        "rawAllocationOnly": None,
        "lbAllocations": None,
        "gpuAllocation": {"isGPUShared": None, "gpuUsageAverage": usage, "gpuRequestAverage": request},
    }


def _property_fields(properties: Properties, *, labels: bool) -> dict[str, Any]:
    fields = {
        "cluster": properties.cluster,
        "node": properties.node,
        "controller": properties.controller,
        "controllerKind": properties.controller_kind,
        "namespace": properties.namespace,
        "pod": properties.pod,
        "labels": dict(properties.labels) if labels else {},
    }
    return {name: value for name, value in fields.items() if value}


def summary_fields(allocation: Allocation) -> dict[str, Any]:
    """Return the fields of `AllocationSummary`."""
    fields = allocation_fields(allocation)
    return {name: fields[name] for name in _SUMMARY_FIELDS}


def asset_fields(asset: Asset, start: datetime, end: datetime) -> dict[str, Any]:
    """Return the fields of `OpenCostAsset`."""
    properties, capacity = asset.properties, asset.capacity
    cost = to_decimal(capacity.node_cost_usd) if capacity.has_price() else None
    labels = {
        "node_kubernetes_io_instance_type": properties.instance_type,
        "topology_kubernetes_io_zone": properties.zone,
        "topology_kubernetes_io_region": properties.zone.rstrip("abcdefghijklmnopqrstuvwxyz"),
    }
    zeros = ("cpuCores", "ramBytes", "cpuCoreHours", "ramByteHours", "discount", "cpuCost", "ramCost", "adjustment")
    return {
        **dict.fromkeys(zeros, Decimal(0)),
        "type": NODE_TYPE,
        "properties": {
            "category": CATEGORY,
            "provider": PROVIDER,
            "service": "Kubernetes",
            "cluster": properties.cluster,
            "name": properties.name,
            "providerID": properties.provider_id,
        },
        "labels": {name: text for name, text in labels.items() if text},
        "window": {"start": start, "end": end},
        "start": start,
        "end": end,
        "minutes": Decimal(60 * asset.hours),
        "nodeType": properties.instance_type,
        "pool": properties.node_pool,
        "GPUHours": to_decimal(capacity.capacity_gpu_hours),
        "gpuCount": quantize(Fraction(capacity.capacity_gpu_hours, SCALE) / asset.hours),
        "preemptible": Decimal(properties.capacity_type == "spot"),
        "gpuCost": cost,
        "totalCost": cost,
    }
