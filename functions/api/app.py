"""Api: answers what API Gateway (HTTP API, payload 2.0) asks."""

import os
from pathlib import Path
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.api.app import build_app
from gpucost.api.events import handle_event
from gpucost.container import api_services
from gpucost.runtime.observability import logger

app = build_app(api_services(), Path(__file__).parent / "page")
if os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") == "snap-start":
    api_services().reports()  # the client that the first request would make is part of the snapshot instead


@logger.inject_lambda_context(clear_state=True, correlation_id_path="requestContext.requestId")
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one HTTP request."""
    return handle_event(app, event, context)
