"""Builds the API: routes, problem documents and the OpenAPI document."""

import json
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin
from urllib.parse import parse_qsl

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from msgspec import Struct
from pydantic import BaseModel

from gpucost.api.html_pages import (
    CONTENT_SECURITY_POLICY,
    HTML_CONTENT_TYPE,
    DashboardPage,
    SignIn,
    add_page_routes,
    documentation_page,
)
from gpucost.api.report_routes import (
    add_cost_routes,
    add_fleet_and_line_routes,
    add_hour_and_node_routes,
    add_inference_routes,
    add_pool_and_quota_routes,
    add_price_routes,
)
from gpucost.core.errors import ParameterError, did_you_mean
from gpucost.core.query.dimensions import check_parameter_text
from gpucost.features.alerting.month_budgets import BudgetService
from gpucost.features.alerting.queries import AlertQueries
from gpucost.features.alerting.routes import add_alert_routes
from gpucost.features.exports.listing import ExportListing
from gpucost.features.exports.routes import add_export_routes
from gpucost.features.opencost.allocation_service import AllocationService, AssetService
from gpucost.features.opencost.routes import OpenCostServices, add_opencost_routes
from gpucost.features.recommendations.forecasts import FleetForecastService, ForecastService
from gpucost.features.recommendations.queries import RecommendationQueries
from gpucost.features.recommendations.routes import add_forecast_routes, add_recommendation_routes
from gpucost.features.split_policies.routes import add_split_policy_routes
from gpucost.http.responses import (
    JSON_CONTENT_TYPE,
    PROBLEM_JSON,
    SECURITY_HEADERS,
    add_problem_handlers,
    describe_ok_response,
    json_response,
)
from gpucost.http.routes import (
    all_routes,
    are_unknown_parameters_ignored,
    authorize,
    current_route,
    open_to,
    required_role,
)
from gpucost.http.schemas import Health
from gpucost.reports.limit_reports import LimitReports
from gpucost.reports.pages import PriceBookListing
from gpucost.reports.report_service import ReportService
from gpucost.reports.scoped import AccessPolicy
from gpucost.runtime.process import gc_paused

if TYPE_CHECKING:
    from gpucost.features.split_policies.comparison import SplitComparer

API_VERSION = "1.0.0"
_SHOWN_NAME_LENGTH = 60
"""Most characters of an unknown parameter's name that a problem document repeats."""
PROBLEM_SCHEMA = {"$ref": "#/components/schemas/Problem"}
DESCRIPTION = (
    "GPU costs of Amazon EKS clusters by business unit, namespace and workload: allocated, effective, wasted and idle. "
    "The API is read-only. Times are UTC. Amounts are exact decimals, written as JSON numbers: parse them with a "
    "decimal type. Unknown figures are null, never zero. Errors are RFC 9457 problem documents."
)
SECURITY_SCHEMES = {
    "iam": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "AWS Signature Version 4, service execute-api. `gpucost dashboard` signs requests of a browser",
        "x-amazon-apigateway-authtype": "awsSigv4",
    },
    "jwt": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "If the deployment has a JwtIssuer. docs/how-to/access.md says what a caller may see",
    },
}
"""A deployment has one of the two."""


class Services(Struct, frozen=True, kw_only=True):
    """Factories of the services that routes call. Each service is made on its first use."""

    reports: Callable[[], ReportService]
    prices: Callable[[], PriceBookListing]
    allocations: Callable[[], AllocationService]
    assets: Callable[[], AssetService]
    exports: Callable[[], ExportListing]
    limits: Callable[[], LimitReports]
    alerts: Callable[[], AlertQueries]
    budgets: Callable[[], BudgetService]
    recommendations: Callable[[], RecommendationQueries]
    forecasts: Callable[[], ForecastService]
    fleet_forecasts: Callable[[], FleetForecastService]
    split_policies: "Callable[[], SplitComparer]"
    access: Callable[[], AccessPolicy]
    sign_in: Callable[[], SignIn | None]


def build_app(services: Services, page_folder: Path) -> APIGatewayHttpResolver:
    """Build the API.

    Args:
        services: the services that routes call.
        page_folder: folder of the built dashboard page.
    """
    app = APIGatewayHttpResolver(enable_validation=True, response_validation_error_http_code=500)
    app.use(middlewares=[authorize(services.access), reject_unknown_parameters, pause_garbage_collector])
    add_problem_handlers(app)
    add_cost_routes(app, services.reports)
    add_inference_routes(app, services.reports)
    add_hour_and_node_routes(app, services.reports)
    _add_health_route(app)
    add_fleet_and_line_routes(app, services.reports)
    add_pool_and_quota_routes(app, services.limits)
    add_price_routes(app, services.prices)
    add_opencost_routes(app, OpenCostServices(services.allocations, services.assets))
    add_export_routes(app, services.exports)
    add_alert_routes(app, services.alerts, services.budgets)
    add_recommendation_routes(app, services.recommendations)
    add_forecast_routes(app, services.forecasts, services.fleet_forecasts)
    add_split_policy_routes(app, services.split_policies)
    add_page_routes(app, DashboardPage(page_folder), services.sign_in)

    @cache
    def document() -> str:
        return json.dumps(openapi_document(app), ensure_ascii=False)

    @app.get("/openapi.json", include_in_schema=False)
    @open_to("public")
    def openapi() -> Response[str]:
        return Response(200, JSON_CONTENT_TYPE, document(), headers=dict(SECURITY_HEADERS))

    @cache
    def documentation() -> str:
        return documentation_page(openapi_document(app))

    @app.get("/docs", include_in_schema=False)
    @open_to("public")
    def docs() -> Response[str]:
        headers = {**SECURITY_HEADERS, "Content-Security-Policy": CONTENT_SECURITY_POLICY}
        return Response(200, HTML_CONTENT_TYPE, documentation(), headers=headers)

    return app


def _add_health_route(app: APIGatewayHttpResolver) -> None:
    responses: dict[int, Any] = {int(HTTPStatus.OK): describe_ok_response(Health)}

    @app.get("/health", summary="Whether the function runs", tags=["service"], responses=responses)
    @open_to("public")
    def health() -> Response[str]:
        """Returns ok if the function runs. Public; the database is not checked."""
        return json_response({"status": "ok"})


def reject_unknown_parameters(app: APIGatewayHttpResolver, next_middleware: NextMiddleware) -> Response[Any]:
    """Reject unknown parameters. If they were ignored, a misspelled filter would return wrong figures."""
    route = current_route(app)
    if route is None or are_unknown_parameters_ignored(route.func):
        return next_middleware(app)
    allowed = [parameter.alias for parameter in route.dependant.query_params]
    event = app.current_event.raw_event
    # The raw text as sent, and the parameters that API Gateway parsed from it: routes read the latter.
    sent_parameters = [*parse_qsl(event["rawQueryString"], True), *(event["queryStringParameters"] or {}).items()]
    for name, value in sent_parameters:
        if name not in allowed:
            hint = f"Allowed: {', '.join(allowed)}" if allowed else "This route has no parameters."
            meant = did_you_mean(name[:_SHOWN_NAME_LENGTH], allowed)
            raise ParameterError(name[:_SHOWN_NAME_LENGTH], " ".join(filter(None, ("unknown parameter.", meant, hint))))
        check_parameter_text(name, value)
    return next_middleware(app)


def pause_garbage_collector(app: APIGatewayHttpResolver, next_middleware: NextMiddleware) -> Response[Any]:
    """Pause the garbage collector during a request: reports have many objects and no reference cycles."""
    with gc_paused():
        return next_middleware(app)


def openapi_document(app: APIGatewayHttpResolver) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document, without Powertools' validation responses, which the API never sends."""
    document: dict[str, Any] = json.loads(
        app.get_openapi_json_schema(
            title="GPU cost attribution", version=API_VERSION, openapi_version="3.1.0", description=DESCRIPTION
        )
    )
    functions = {(route.openapi_path, route.method.lower()): route.func for route in all_routes(app)}
    server_error = {
        "description": "Internal error. Details are in the function's log",
        "content": {PROBLEM_JSON: {"schema": PROBLEM_SCHEMA}},
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            role = required_role(functions[path, method])
            operation["operationId"] = functions[path, method].__name__  # the name in generated clients
            operation["x-required-role"] = role
            operation["security"] = [] if role == "public" else [{name: []} for name in SECURITY_SCHEMES]
            operation["responses"].pop("422", None)
            examples = _examples_of_models(functions[path, method])
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in examples:
                    parameter["schema"]["examples"] = examples[parameter["name"]]
            operation["responses"]["500"] = server_error
    document["components"]["securitySchemes"] = SECURITY_SCHEMES
    for name in ("HTTPValidationError", "ResponseValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    return document


def _examples_of_models(route: Callable[..., Any]) -> dict[str, list[Any]]:
    """Return the examples of a route's parameters that are fields of a model, where Powertools leaves them out."""
    hints = [parameter.annotation for parameter in signature(route).parameters.values()]
    models = [get_args(hint)[0] for hint in hints if get_origin(hint) is Annotated]
    return {
        field.alias or name: field.examples
        for model in models
        if isinstance(model, type) and issubclass(model, BaseModel)
        for name, field in model.model_fields.items()
        if field.examples is not None
    }
