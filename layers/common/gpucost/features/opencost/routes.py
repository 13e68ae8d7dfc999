"""The routes of the OpenCost API, for tools that read OpenCost or Kubecost.

Names and meanings are those of OpenCost's source and API document: core/pkg/opencost/allocation_json.go and
docs/swagger.json at 5f65333 (October 2024); parameters are those of 2026. Responses of 2025 have `gpuAllocation` in
place of `gpuRequestAverage` and `gpuUsageAverage`; both are returned. CPU, memory, disks and network are 0, as OpenCost
reports resources that it does not see. Unknown amounts are null. See docs/how-to/opencost.md.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from msgspec import Struct

from gpucost.features.opencost.allocation_service import NARROWER_QUERY, AllocationService
from gpucost.features.opencost.assets import AssetService
from gpucost.features.opencost.parameters import AllocationParameters, AssetParameters
from gpucost.features.opencost.queries import parse_allocation_query, parse_asset_query, parse_flag
from gpucost.features.opencost.responses import allocation_fields, asset_fields, summary_fields
from gpucost.features.opencost.schemas import AllocationResponse, AssetResponse, ConfigsResponse, SummaryResponse
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
