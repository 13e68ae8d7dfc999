"""The route `/allocation/compute` of the OpenCost API, for tools that read OpenCost.

Names and meanings are those of OpenCost's source and API document: core/pkg/opencost/allocation_json.go and
docs/swagger.json at 5f65333 (October 2024). Responses of 2025 have `gpuAllocation` instead of `gpuRequestAverage` and
`gpuUsageAverage`; this route returns both. CPU, memory, disks and network are 0, as OpenCost reports resources that it
does not see. Unknown amounts are null. See docs/how-to/opencost.md.
"""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeVar

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gpucost.core.amounts import SCALE, quantize, to_decimal
from gpucost.core.errors import ParameterError
from gpucost.core.hours import HOUR
from gpucost.features.opencost.filters import parse_filter
from gpucost.features.opencost.properties import AGGREGATIONS, Properties, parse_aggregate
from gpucost.features.opencost.service import Allocation, AllocationQuery, AllocationService
from gpucost.features.opencost.windows import WINDOW_FORMATS, parse_duration, parse_window
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.responses import describe_responses, json_response
from gpucost.http.schemas import Amount, Instant

Parsed = TypeVar("Parsed")
Flag = Literal["true", "false"]
Window = Annotated[
    str,
    Query(
        description=f"Period, in full UTC hours, at most 35 days: {WINDOW_FORMATS} (RFC 3339, or Unix "
        "seconds). As in OpenCost, 7d ends with today, and weeks start on Sunday",
        examples=["7d", "lastmonth", "2026-11-18T00:00:00Z,2026-11-19T00:00:00Z", "1795046400,1795132800"],
    ),
]
Aggregate = Annotated[
    str,
    Query(
        description=f"Comma-separated: {', '.join(AGGREGATIONS)}. Labels must be listed in the settings' "
        "cost_labels. Default: cluster,node,namespace,pod. By node or pod at most 48 hours",
        examples=["namespace", "cluster,controller", "label:team"],
    ),
]
Step = Annotated[
    str | None, Query(description="Length of a set, in full hours. Default: the whole window", examples=["1d", "12h"])
]
FilterText = Annotated[
    str,
    Query(
        alias="filter",
        description="OpenCost's filter language, version 2, over cluster, node, namespace, controllerName, "
        "controllerKind, pod and label[name]",
        examples=['namespace:"bu-a","bu-b"+controllerKind!:"job"'],
    ),
]
IncludeIdle = Annotated[Flag, Query(alias="includeIdle", description="Add `__idle__`: node costs that no pod held")]
ShareIdle = Annotated[
    Flag,
    Query(
        alias="shareIdle",
        description="Share idle costs among the cluster's allocations by cost. Requires includeIdle=true",
    ),
]
Accumulate = Annotated[Flag, Query(description="Sum all sets into one")]
Resolution = Annotated[
    str | None,
    Query(description="Accepted and ignored: costs do not depend on a resolution", examples=["1m"], max_length=20),
]
Metadata = Annotated[
    Flag,
    Query(
        alias="includeAggregatedMetadata", description="Add the labels that all pods of an allocation have in common"
    ),
]
FalseOnly = Literal["false"]
IdleByNode = Annotated[
    FalseOnly,
    Query(
        alias="idleByNode",
        description="Only false is supported: idle costs are computed by cluster",
        examples=["false"],
    ),
]
ShareLoadBalancers = Annotated[
    Flag, Query(alias="sharelb", description="Accepted and ignored: load balancers have no costs here")
]
AssetCosts = Annotated[
    FalseOnly,
    Query(alias="includeProportionalAssetResourceCosts", description="Only false is supported", examples=["false"]),
]


class _OpenCostModel(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True, defer_build=True)


class AllocationProperties(_OpenCostModel):
    """Properties that all pods of the allocation have in common. Others are omitted."""

    cluster: str = ""
    node: str = ""
    controller: str = ""
    controller_kind: str = Field(default="", examples=["deployment"])
    namespace: str = ""
    pod: str = ""
    labels: dict[str, str] = Field(default_factory=dict)


class AllocationWindow(_OpenCostModel):
    """The window of the set."""

    start: Instant
    end: Instant


class GpuAllocation(_OpenCostModel):
    """GPUs, as in OpenCost's responses of 2025."""

    is_gpu_shared: bool | None = Field(alias="isGPUShared", description="Always null")
    gpu_usage_average: Amount | None
    gpu_request_average: Amount | None


class OpenCostAllocation(_OpenCostModel):
    """The GPUs that the pods of one allocation held. Everything except GPUs is 0."""

    name: str
    properties: AllocationProperties
    window: AllocationWindow
    start: Instant
    end: Instant
    minutes: Amount = Field(description="Length of the window")
    cpu_cores: Amount
    cpu_core_request_average: Amount
    cpu_core_usage_average: Amount
    cpu_core_hours: Amount
    cpu_cost: Amount
    cpu_cost_adjustment: Amount
    cpu_cost_idle: Amount
    cpu_efficiency: Amount
    gpu_count: Amount | None = Field(description="Mean physical GPUs held over the window")
    gpu_request_average: Amount | None = Field(description="As gpuCount")
    gpu_usage_average: Amount | None = Field(
        description="Mean physical GPUs used over the window, where utilization was measured; null if it was not"
    )
    gpu_hours: Amount | None = Field(description="GPU-hours held: a 1/7 MIG slice for 7 hours is 1")
    gpu_cost: Amount | None = Field(description="Allocated cost plus shared idle cost; null without a price")
    gpu_cost_adjustment: Amount
    gpu_cost_idle: Amount | None = Field(description="Shared idle cost in gpuCost")
    gpu_efficiency: Amount | None = Field(
        description="Used ÷ held, 0 to 1, for the time in which utilization was measured"
    )
    network_transfer_bytes: Amount
    network_receive_bytes: Amount
    network_cost: Amount
    network_cross_zone_cost: Amount
    network_cross_region_cost: Amount
    network_internet_cost: Amount
    network_cost_adjustment: Amount
    load_balancer_cost: Amount
    load_balancer_cost_adjustment: Amount
    pv_bytes: Amount
    pv_byte_hours: Amount
    pv_cost: Amount
    pvs: None
    pv_cost_adjustment: Amount
    ram_bytes: Amount
    ram_byte_request_average: Amount
    ram_byte_usage_average: Amount
    ram_byte_hours: Amount
    ram_cost: Amount
    ram_cost_adjustment: Amount
    ram_cost_idle: Amount
    ram_efficiency: Amount
    external_cost: Amount
    shared_cost: Amount
    total_cost: Amount | None = Field(description="As gpuCost")
    total_efficiency: Amount | None = Field(description="As gpuEfficiency, because nothing else has a cost")
    raw_allocation_only: None
    lb_allocations: None
    gpu_allocation: GpuAllocation


class AllocationResponse(_OpenCostModel):
    """GET /allocation/compute: a set of allocations by name, for every step of the window."""

    code: Literal[200]
    status: Literal["success"]
    data: list[dict[str, OpenCostAllocation]]


_ZERO_FIELDS = dict.fromkeys(
    to_camel(name) for name, field in OpenCostAllocation.model_fields.items() if field.annotation is Decimal
)


def add_opencost_routes(app: APIGatewayHttpResolver, service: Callable[[], AllocationService]) -> None:
    """Register the route. The service is made on its first use."""

    @app.get(
        "/allocation/compute",
        summary="Allocations, compatible with OpenCost",
        tags=["opencost"],
        responses=describe_responses(AllocationResponse),
    )
    @open_to("bu")
    def compute_allocation(
        window: Window,
        aggregate: Aggregate = "",
        step: Step = None,
        filter_text: FilterText = "",
        accumulate: Accumulate = "false",
        include_idle: IncludeIdle = "false",
        share_idle: ShareIdle = "false",
        metadata: Metadata = "false",
        resolution: Resolution = None,
        idle_by_node: IdleByNode = "false",
        share_load_balancers: ShareLoadBalancers = "false",
        asset_costs: AssetCosts = "false",
    ) -> Response[str]:
        """Allocations as in OpenCost: GPU costs are exact, everything else is 0. Errors are problem documents.

        `gpuCost` and `totalCost` are allocated costs, used or not. The sets of a window add up to `/v1/costs`.
        """
        query = parse_query(service(), window, aggregate, step, filter_text, accumulate, include_idle, share_idle)
        sets = service().compute(query, scope=scope_of_caller(app))
        labels = metadata == "true"
        data = [
            {allocation.name: allocation_fields(allocation, labels=labels) for allocation in allocations}
            for allocations in sets
        ]
        return json_response({"code": 200, "status": "success", "data": data})


def parse_query(
    service: AllocationService,
    window: str,
    aggregate: str,
    step: str | None,
    filter_text: str,
    accumulate: Flag,
    include_idle: Flag,
    share_idle: Flag,
) -> AllocationQuery:
    """Parse and check the parameters.

    Raises:
        ParameterError: names the wrong parameter and what is allowed.
    """
    if share_idle == "true" and include_idle == "false":
        raise ParameterError("shareIdle", "requires includeIdle=true.")
    start, end = _parse_parameter("window", lambda: parse_window(window, service.now()))
    length = end - start
    if step is not None and accumulate == "false":
        length = _parse_parameter("step", lambda: parse_duration(step))
    labels = service.cost_labels()
    return AllocationQuery(
        start,
        end,
        length,
        _parse_parameter("aggregate", lambda: parse_aggregate(aggregate, labels)),
        _parse_parameter("filter", lambda: parse_filter(filter_text, labels)),
        include_idle == "true",
        share_idle == "true",
    )


def _parse_parameter(parameter: str, parse: Callable[[], Parsed]) -> Parsed:
    try:
        return parse()
    except (ValueError, OverflowError) as error:
        raise ParameterError(parameter, str(error)) from None


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
