"""The api function: handles requests from API Gateway (HTTP API, payload 2.0)."""

import os
from pathlib import Path
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.api.app import build_app
from gpucost.api.events import handle_event
from gpucost.container import Container
from gpucost.runtime.observability import logger

PAGE_FOLDER = Path(__file__).parent / "page"

CONTAINER = Container()
APP = build_app(CONTAINER.api_services, PAGE_FOLDER)
if os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") == "snap-start":
    from gpucost.http.routes import all_routes
    from gpucost.settings_document import SettingsDocument

    # Do what the first request would otherwise do, so that the snapshot contains the result.
    CONTAINER.api_services.reports()  # creates the DynamoDB client
    _ = [route.dependant for route in all_routes(APP)]  # builds the validators of parameters
    SettingsDocument.model_rebuild()  # builds the validators that `Section` defers


@logger.inject_lambda_context(clear_state=True, correlation_id_path="requestContext.requestId")
def handler(event: dict[str, Any], context: LambdaContext, app: APIGatewayHttpResolver = APP) -> dict[str, Any]:
    """Handle one HTTP request."""
    return handle_event(app, event, context)
