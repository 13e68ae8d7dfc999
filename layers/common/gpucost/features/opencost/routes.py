"""The routes of the OpenCost API with their parameters and responses, for tools that read OpenCost or Kubecost.

Names and meanings are those of OpenCost's source and API document: core/pkg/opencost/allocation_json.go and
docs/swagger.json at 5f65333 (October 2024); parameters are those of 2026. Responses of 2025 have `gpuAllocation` in
place of `gpuRequestAverage` and `gpuUsageAverage`; both are returned. CPU, memory, disks and network are 0, as OpenCost
reports resources that it does not see. Unknown amounts are null. See docs/how-to/opencost.md.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from http import HTTPStatus
from typing import Annotated, Any, Generic, Literal, TypeVar

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gpucost.core.amounts import SCALE, quantize, to_decimal
from gpucost.core.errors import ParameterError
from gpucost.core.hours import DAY, HOUR, floor_day
from gpucost.core.query.dimensions import check_parameter_text
from gpucost.features.opencost.allocation_service import (
    ASSET_FIELDS,
    CATEGORY,
    NARROWER_QUERY,
    NODE_TYPE,
    PROVIDER,
    Allocation,
    AllocationQuery,
    AllocationService,
    Asset,
    AssetQuery,
    AssetService,
    CalendarUnit,
)
from gpucost.features.opencost.parameters import (
    WINDOW_FORMATS,
    all_of,
    parse_filter,
    parse_list_filters,
    parse_step,
    parse_window,
)
from gpucost.features.opencost.properties import AGGREGATIONS, Properties, parse_aggregate
from gpucost.http.responses import describe_responses, json_response, problem_response
from gpucost.http.routes import ignores_unknown_parameters, open_to, scope_of_caller
from gpucost.http.schemas import Amount, Instant

# Parses the parameters of OpenCost's routes, as OpenCost's handlers read them (pkg/costmodel/allocation.go, 2026).
#
# Parameters that OpenCost ignores are ignored. Those that it answers and the ledger cannot answer are refused.

Parsed = TypeVar("Parsed")
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False", "")
BOOLEANS = (*_TRUE, *_FALSE)
"""The booleans of Go (strconv), and an empty parameter."""
_CALENDAR_UNITS: dict[str, CalendarUnit] = {
    "day": "day",
    "week": "week",
    "weeknow": "week",
    "month": "month",
    "quarter": "quarter",
}
ACCUMULATIONS = ("true", "false", "all", "none", "hour", *_CALENDAR_UNITS)


def parse_flag(parameters: Mapping[str, str], name: str) -> bool:
    """Parse a boolean parameter as Go does; false if it was not sent.

    Raises:
        ParameterError: not a boolean.
    """
    text = parameters.get(name, "")
    if text not in BOOLEANS:
        raise ParameterError(name, f"{text[:20]!r} is neither true nor false. Use {name}=true or {name}=false.")
    return text in _TRUE


def parse_allocation_query(parameters: Mapping[str, str], service: AllocationService) -> AllocationQuery:
    """Parse and check the parameters of an allocation query.

    Raises:
        ParameterError: names the wrong parameter and what is allowed.
    """
    for name in ("idleByNode", "includeProportionalAssetResourceCosts"):
        if parse_flag(parameters, name):
            raise ParameterError(name, f"only false is supported. Leave it out, or use {name}=false.")
    include_idle = parse_flag(parameters, "idle" if "idle" in parameters else "includeIdle")
    share_idle = parse_flag(parameters, "shareIdle")
    if share_idle and not include_idle:
        raise ParameterError("shareIdle", "requires includeIdle=true.")
    labels = service.cost_labels()
    start, end = _parse(
        "window", lambda: parse_window(parameters.get("window", ""), service.now(), service.published_until)
    )
    filters = [_parse("filter", lambda: parse_filter(parameters.get("filter", ""), labels))]
    unit = _accumulation(parameters)
    step = end - start
    if unit is None and parameters.get("step"):
        step = _parse("step", lambda: parse_step(parameters["step"]))
    elif unit == "hour" or (unit == "day" and floor_day(start) == start):
        step = HOUR if unit == "hour" else DAY
    return AllocationQuery(
        start,
        end,
        step,
        _parse("aggregate", lambda: parse_aggregate(parameters.get("aggregate", ""), labels)),
        all_of([*filters, *parse_list_filters(parameters, labels)]),
        include_idle,
        share_idle,
        _CALENDAR_UNITS.get(unit or "") if step == end - start else None,
    )


def parse_asset_query(parameters: Mapping[str, str], service: AllocationService) -> AssetQuery:
    """Parse and check the parameters of a query of assets.

    Raises:
        ParameterError: names the wrong parameter and what is allowed.
    """
    start, end = _parse(
        "window", lambda: parse_window(parameters.get("window", ""), service.now(), service.published_until)
    )
    filters = [_parse("filter", lambda: parse_filter(parameters.get("filter", ""), (), ASSET_FIELDS))]
    return AssetQuery(start, end, all_of([*filters, *parse_list_filters(parameters, (), ASSET_FIELDS)]))


def _accumulation(parameters: Mapping[str, str]) -> str | None:
    """Return `hour`, a calendar unit or `all`, or None for sets of the length `step`. `accumulateBy` comes first."""
    name = "accumulateBy" if parameters.get("accumulateBy", "").strip() else "accumulate"
    text = parameters.get(name, "").strip()
    if text in _FALSE or text.lower() == "none":
        return None
    if text in _TRUE or text.lower() == "all":
        return "all"
    if text.lower() not in ("hour", *_CALENDAR_UNITS):
        raise ParameterError(name, f"{text[:20]!r} is not supported; allowed: {', '.join(ACCUMULATIONS)}")
    return text.lower()


def _parse(parameter: str, parse: Callable[[], Parsed]) -> Parsed:
    try:
        return parse()
    except (ValueError, OverflowError) as error:
        raise ParameterError(parameter, str(error)) from None


WINDOW = Field(
    description=f"Period, in full UTC hours, at most 35 days: {WINDOW_FORMATS} (RFC 3339, or Unix seconds). As in "
    "OpenCost, 7d ends with today, and weeks start on Sunday. Every window ends with the newest published hour",
    examples=["7d", "lastmonth", "2026-11-18T00:00:00Z,2026-11-19T00:00:00Z", "1795046400,1795132800"],
)
_FLAG = "true or false; also 1, t, T, TRUE, True and 0, f, F, FALSE, False"
_EMPTY = "Older filter by a property that is not stored; only empty"
_LIST = "Older filter: a comma-separated list; * at the end of a value matches any rest"


class _Parameters(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, defer_build=True)

    def texts(self) -> dict[str, str]:
        """Return the parameters that were sent, by their names in the query.

        Raises:
            ParameterError: text that cannot be a name.
        """
        texts = self.model_dump(by_alias=True, exclude_unset=True)
        for name, text in texts.items():
            check_parameter_text(name, text)
        return texts


class AllocationParameters(_Parameters):
    """The parameters that OpenCost reads."""

    window: str = WINDOW
    aggregate: str = Field(
        default="",
        description=f"Comma-separated: {', '.join(AGGREGATIONS)}. Labels must be listed in the settings' cost_labels. "
        "Default: cluster,node,namespace,pod. By node or pod at most 48 hours",
        examples=["namespace", "cluster,controller", "label:team"],
    )
    step: str = Field(
        default="",
        description="Length of a set: full hours, or hour, day, week. Default: the whole window",
        examples=["1d", "12h", "day"],
    )
    accumulate: str = Field(
        default="",
        description=f"{', '.join(ACCUMULATIONS)}. true and all: one set. hour, day, week, month and quarter: a set for "
        "each, in the calendar (UTC), in place of step",
        examples=["true", "day"],
    )
    accumulate_by: str = Field(default="", description="As accumulate, and comes first", examples=["day", "all"])
    include_idle: str = Field(
        default="", description=f"Add `__idle__`: node costs that no pod held. {_FLAG}", examples=["true"]
    )
    idle: str = Field(default="", description="The older name of includeIdle; comes first", examples=["true"])
    share_idle: str = Field(
        default="",
        description="Share idle costs among the cluster's allocations by cost. Requires includeIdle=true",
        examples=["false"],
    )
    filter: str = Field(
        default="",
        description="OpenCost's filter language, version 2, over cluster, node, namespace, controllerName, "
        "controllerKind, pod and label[name]",
        examples=['namespace:"bu-a","bu-b"+controllerKind!:"job"'],
    )
    filter_clusters: str = Field(default="", description=_LIST, examples=["prod-*"])
    filter_nodes: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_namespaces: str = Field(default="", description=_LIST, examples=["bu-a,bu-*"])
    filter_controller_kinds: str = Field(default="", description=_LIST, examples=["deployment"])
    filter_controllers: str = Field(default="", description=f"{_LIST}; with or without a kind", examples=["job:train"])
    filter_pods: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_labels: str = Field(default="", description=f"{_LIST}, of label:value", examples=["team:search"])
    filter_departments: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_environments: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_owners: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_products: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_teams: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_containers: str = Field(default="", description=_EMPTY, examples=[""])
    filter_services: str = Field(default="", description=_EMPTY, examples=[""])
    filter_annotations: str = Field(default="", description=_EMPTY, examples=[""])
    include_aggregated_metadata: str = Field(
        default="", description="Add the labels that all pods of an allocation have in common", examples=["true"]
    )
    idle_by_node: str = Field(
        default="", description="Only false is supported: idle costs are computed by cluster", examples=["false"]
    )
    include_proportional_asset_resource_costs: str = Field(
        default="", description="Only false is supported", examples=["false"]
    )


class AssetParameters(_Parameters):
    """The parameters of assets. Others, such as aggregate and accumulate, are ignored, as in OpenCost."""

    window: str = WINDOW
    filter: str = Field(
        default="",
        description="OpenCost's filter language over type, name, cluster, category, provider and providerID",
        examples=['type:"Node"+cluster:"prod-eu"'],
    )
    filter_types: str = Field(
        default="",
        description="Older filter. With it, the response is a list of one set, as Kubecost's",
        examples=["Node"],
    )
    filter_clusters: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_names: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_categories: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_providers: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_provider_ids: str = Field(default="", alias="filterProviderIDs", description=_LIST, examples=["a,b-*"])
    filter_accounts: str = Field(default="", description=_EMPTY, examples=[""])
    filter_labels: str = Field(default="", description=_EMPTY, examples=[""])
    filter_projects: str = Field(default="", description=_EMPTY, examples=[""])
    filter_regions: str = Field(default="", description=_EMPTY, examples=[""])
    filter_services: str = Field(default="", description=_EMPTY, examples=[""])


# The responses of OpenCost's routes, for the OpenAPI document.

Answer = TypeVar("Answer")


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


class _Response(_OpenCostModel, Generic[Answer]):
    code: Literal[200]
    status: Literal["success"]
    data: Answer


class AllocationResponse(_Response[list[dict[str, OpenCostAllocation]]]):
    """GET /allocation/compute and /allocation: a set of allocations by name, for every step of the window."""


class AllocationSummary(_OpenCostModel):
    """The figures of an allocation that OpenCost's summary has."""

    name: str
    start: Instant
    end: Instant
    cpu_core_request_average: Amount
    cpu_core_usage_average: Amount
    cpu_cost: Amount
    cpu_cost_idle: Amount
    gpu_request_average: Amount | None
    gpu_usage_average: Amount | None
    gpu_cost: Amount | None
    gpu_cost_idle: Amount | None
    network_cost: Amount
    load_balancer_cost: Amount
    pv_cost: Amount
    ram_byte_request_average: Amount
    ram_byte_usage_average: Amount
    ram_cost: Amount
    ram_cost_idle: Amount
    shared_cost: Amount
    external_cost: Amount
    total_efficiency: Amount | None
    total_cost: Amount | None


class SummarySet(_OpenCostModel):
    """The summaries of one step."""

    allocations: dict[str, AllocationSummary]
    window: AllocationWindow


class SummaryRange(_OpenCostModel):
    """The summaries of a window."""

    step: int = Field(description="Nanoseconds; always 0, because steps of the calendar differ in length")
    sets: list[SummarySet]
    window: AllocationWindow


class SummaryResponse(_Response[SummaryRange]):
    """GET /allocation/summary."""


class AssetProperties(_OpenCostModel):
    """What identifies a node."""

    category: str
    provider: str
    service: str
    cluster: str
    name: str
    provider_id: str = Field(alias="providerID")


class OpenCostAsset(_OpenCostModel):
    """A GPU node. Its CPUs and memory are 0; their cost is part of totalCost."""

    type: Literal["Node"]
    properties: AssetProperties
    labels: dict[str, str]
    window: AllocationWindow
    start: Instant
    end: Instant
    minutes: Amount = Field(description="Of the hours in which the node is recorded")
    node_type: str = Field(description="Instance type", examples=["p4d.24xlarge"])
    pool: str
    cpu_cores: Amount
    ram_bytes: Amount
    cpu_core_hours: Amount
    ram_byte_hours: Amount
    gpu_hours: Amount = Field(alias="GPUHours", description="Capacity in physical GPUs")
    gpu_count: Amount
    preemptible: Amount = Field(description="1 for spot instances")
    discount: Amount
    cpu_cost: Amount
    gpu_cost: Amount | None = Field(description="As totalCost; null without a price")
    ram_cost: Amount
    adjustment: Amount
    total_cost: Amount | None = Field(description="The node's cost; null without a price")


class AssetResponse(_Response[dict[str, OpenCostAsset] | list[dict[str, OpenCostAsset]]]):
    """GET /assets: nodes by key; with filterTypes a list with one set, as in Kubecost."""


class Configs(_OpenCostModel):
    """The part of OpenCost's configuration that clients read."""

    currency_code: str = Field(examples=["USD"])


class ConfigsResponse(_Response[Configs]):
    """GET /getConfigs."""


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


# The routes.

NOT_STORED = {
    "/cloudCost": "cloud costs",
    "/cloudCost/.+": "cloud costs",
    "/customCost/.+": "external costs",
    "/savings/.+": "savings of CPU and memory requests",
    "/prediction/.+": "cost predictions",
    "/clusterInfo": "the cluster of cost predictions",
    "/allocation/autocomplete": "suggestions for filters",
    "/assets/autocomplete": "suggestions for filters",
}
"""What clients of OpenCost and Kubecost ask for that the ledger does not have, by route."""


MODEL_PREFIX = "/model"
"""Where Kubecost, and the web server of OpenCost's UI, have OpenCost's API."""


def without_model_prefix(path: str) -> str:
    """Return the path of a request without the prefix of OpenCost's API."""
    prefix = f"{MODEL_PREFIX}/"
    return path.removeprefix(MODEL_PREFIX) if path.startswith(prefix) and path != prefix else path


class OpenCostServices(Struct, frozen=True):
    """Factories of the services that the routes call. Each service is made on its first use."""

    allocations: Callable[[], AllocationService]
    assets: Callable[[], AssetService]


def add_opencost_routes(app: APIGatewayHttpResolver, services: OpenCostServices) -> None:
    """Register the routes of allocations, assets and the currency, and those that are refused."""
    _add_allocation_routes(app, services)
    _add_summary_routes(app, services)

    @app.get(
        "/assets",
        summary="GPU nodes, compatible with OpenCost",
        tags=["opencost"],
        responses=describe_responses(AssetResponse),
    )
    @open_to("viewer")
    @ignores_unknown_parameters
    def assets(parameters: Annotated[AssetParameters, Query()]) -> Response[str]:
        """GPU nodes and their costs. Aggregation, accumulation and steps are ignored, as in OpenCost."""
        texts = parameters.texts()
        query = parse_asset_query(texts, services.allocations())
        nodes = {
            asset.key: asset_fields(asset, query.start, query.end)
            for asset in services.assets().compute(query, scope=scope_of_caller(app))
        }
        return _success([nodes] if "filterTypes" in texts else nodes)

    @app.get(
        "/getConfigs",
        summary="Currency, compatible with OpenCost",
        tags=["opencost"],
        responses=describe_responses(ConfigsResponse),
    )
    @open_to("bu")
    @ignores_unknown_parameters
    def get_configs() -> Response[str]:
        """The currency of the settings. OpenCost's other values do not apply."""
        return _success({"currencyCode": services.allocations().currency()})

    for route, subject in NOT_STORED.items():
        _add_refusal(app, route, subject)


def _add_refusal(app: APIGatewayHttpResolver, route: str, subject: str) -> None:
    @app.get(route, include_in_schema=False)
    @open_to("bu")
    @ignores_unknown_parameters
    def refuse() -> Response[str]:
        detail = (
            f"gpucost has no {subject}. Of OpenCost's API it answers allocations, assets (GPU nodes) and getConfigs."
        )
        return problem_response(HTTPStatus.NOT_FOUND, detail, instance=app.current_event.path)


def _add_allocation_routes(app: APIGatewayHttpResolver, services: OpenCostServices) -> None:
    def respond(parameters: AllocationParameters) -> Response[str]:
        texts = parameters.texts()
        labels = parse_flag(texts, "includeAggregatedMetadata")
        query = parse_allocation_query(texts, services.allocations())
        sets = services.allocations().compute(query, scope=scope_of_caller(app))
        return _success([{each.name: allocation_fields(each, labels=labels) for each in members} for members in sets])

    @app.get(
        "/allocation/compute",
        summary="Allocations, compatible with OpenCost",
        tags=["opencost"],
        responses=describe_responses(AllocationResponse),
    )
    @open_to("bu")
    @ignores_unknown_parameters
    def compute_allocation(parameters: Annotated[AllocationParameters, Query()]) -> Response[str]:
        """Allocations as in OpenCost: GPU costs are exact, everything else is 0. Errors are problem documents.

        `gpuCost` and `totalCost` are allocated costs, used or not. The sets of a window add up to `/v1/costs`.
        """
        return respond(parameters)

    @app.get(
        "/allocation",
        summary="Allocations, compatible with Kubecost",
        tags=["opencost"],
        responses=describe_responses(AllocationResponse),
    )
    @open_to("bu")
    @ignores_unknown_parameters
    def allocation(parameters: Annotated[AllocationParameters, Query()]) -> Response[str]:
        """As `/allocation/compute`."""
        return respond(parameters)


def _add_summary_routes(app: APIGatewayHttpResolver, services: OpenCostServices) -> None:
    def respond(parameters: AllocationParameters) -> Response[str]:
        query = parse_allocation_query(parameters.texts(), services.allocations())
        sets = services.allocations().compute(query, scope=scope_of_caller(app))
        summaries = [
            {
                "allocations": {each.name: summary_fields(each) for each in members},
                "window": {"start": period.start, "end": period.end},
            }
            for period, members in zip(query.steps(), sets, strict=True)
        ]
        return _success({"step": 0, "sets": summaries, "window": {"start": query.start, "end": query.end}})

    @app.get(
        "/allocation/summary",
        summary="Fewer figures of allocations, compatible with Kubecost",
        tags=["opencost"],
        responses=describe_responses(SummaryResponse),
    )
    @open_to("bu")
    @ignores_unknown_parameters
    def allocation_summary(parameters: Annotated[AllocationParameters, Query()]) -> Response[str]:
        """The figures of `/allocation/compute` that OpenCost's summary has."""
        return respond(parameters)

    @app.get(
        "/allocation/compute/summary",
        summary="Fewer figures of allocations, compatible with OpenCost",
        tags=["opencost"],
        responses=describe_responses(SummaryResponse),
    )
    @open_to("bu")
    @ignores_unknown_parameters
    def compute_allocation_summary(parameters: Annotated[AllocationParameters, Query()]) -> Response[str]:
        """As `/allocation/summary`."""
        return respond(parameters)


def _success(data: object) -> Response[str]:
    return json_response({"code": 200, "status": "success", "data": data}, remedy=NARROWER_QUERY)


_ZERO_FIELDS = dict.fromkeys(
    to_camel(name) for name, field in OpenCostAllocation.model_fields.items() if field.annotation is Decimal
)
_SUMMARY_FIELDS = tuple(map(to_camel, AllocationSummary.model_fields))
