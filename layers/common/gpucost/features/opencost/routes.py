"""The routes of the OpenCost API, for tools that read OpenCost or Kubecost.

Names and meanings are those of OpenCost's source and API document: core/pkg/opencost/allocation_json.go and
docs/swagger.json at 5f65333 (October 2024); parameters are those of 2026. Responses of 2025 have `gpuAllocation` in
place of `gpuRequestAverage` and `gpuUsageAverage`; both are returned. CPU, memory, disks and network are 0, as OpenCost
reports resources that it does not see. Unknown amounts are null. See docs/how-to/opencost.md.
"""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from http import HTTPStatus
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gpucost.core.amounts import SCALE, quantize, to_decimal
from gpucost.core.hours import HOUR
from gpucost.core.query.filters import check_parameter_text
from gpucost.features.opencost.allocation_service import NARROWER_QUERY, Allocation, AllocationService
from gpucost.features.opencost.assets import CATEGORY, NODE_TYPE, PROVIDER, Asset, AssetService
from gpucost.features.opencost.properties import AGGREGATIONS, Properties
from gpucost.features.opencost.queries import ACCUMULATIONS, parse_allocation_query, parse_asset_query, parse_flag
from gpucost.features.opencost.schemas import (
    AllocationResponse,
    AllocationSummary,
    AssetResponse,
    ConfigsResponse,
    OpenCostAllocation,
    SummaryResponse,
)
from gpucost.features.opencost.windows import WINDOW_FORMATS
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.parameters import ignores_unknown_parameters
from gpucost.http.problems import problem_response
from gpucost.http.responses import describe_responses, json_response

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


WINDOW = Field(
    description=f"Period, in full UTC hours, at most 35 days: {WINDOW_FORMATS} (RFC 3339, or Unix seconds). As in "
    "OpenCost, 7d ends with today, and weeks start on Sunday. Every window ends with the newest published hour",
    examples=["7d", "lastmonth", "2026-11-18T00:00:00Z,2026-11-19T00:00:00Z", "1795046400,1795132800"],
)
_FLAG = "true or false; also 1, t, T, TRUE, True and 0, f, F, FALSE, False"
_EMPTY = "Older filter by a property that is not stored; only empty"
_LIST = "Older filter: a comma-separated list; * at the end of a value matches any rest"


class _Parameters(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

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
