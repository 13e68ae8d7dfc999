"""Decisions on the page of `gpucost serve`: recommendations are dismissed and reopened, alerts are acknowledged.

On AWS the API only reads. Here it answers only this machine, so whoever opens the page may decide, as with the command
line. A page of another site, which a browser on this machine also shows, may not. So a request must name the server as
this machine (`Host`, against DNS rebinding), come from this server's page (`Origin`), and contain JSON, which browsers
let other sites send only after asking.
"""

from urllib.parse import urlsplit

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpucost.container import Container
from gpucost.core.errors import AccessDeniedError, ParameterError
from gpucost.http.routes import open_to

LOOPBACK_NAMES = {"127.0.0.1", "localhost"}
JSON = "application/json"
MAX_REASON = 1000


class Dismissal(BaseModel):
    """Why a recommendation is dismissed."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    reason: str = Field(min_length=1, max_length=MAX_REASON)


def add_decision_routes(app: APIGatewayHttpResolver, container: Container, author: str) -> None:
    """Register the routes. `author` is stored with each decision."""

    @app.post("/serve/recommendations/<recommendation_id>/dismiss", include_in_schema=False)
    @open_to("admin")
    def dismiss(recommendation_id: str) -> dict[str, str]:
        _check_origin(app)
        reason = _read_reason(app.current_event.decoded_body)
        queries = container.recommendation_queries
        return {"state": queries.dismiss(recommendation_id, author=author, reason=reason).state}

    @app.post("/serve/recommendations/<recommendation_id>/reopen", include_in_schema=False)
    @open_to("admin")
    def reopen(recommendation_id: str) -> dict[str, str]:
        _check_origin(app)
        return {"state": container.recommendation_queries.reopen(recommendation_id).state}

    @app.post("/serve/alerts/<alert_id>/acknowledge", include_in_schema=False)
    @open_to("admin")
    def acknowledge(alert_id: str) -> dict[str, str | None]:
        _check_origin(app)
        acknowledged = container.alert_queries.acknowledge(alert_id, author=author)
        return {"acknowledged_by": acknowledged.alert.acknowledged_by}


def _read_reason(body: str | None) -> str:
    try:
        return Dismissal.model_validate_json(body or "").reason
    except ValidationError as error:
        raise ParameterError(
            "reason", f'required: why it is dismissed, 1 to {MAX_REASON} characters, as {{"reason": "…"}}'
        ) from error


def _check_origin(app: APIGatewayHttpResolver) -> None:
    """Refuse what the page itself did not send.

    Raises:
        AccessDeniedError: names the header.
    """
    headers = {name.lower(): text for name, text in app.current_event.headers.items()}
    host, origin = headers.get("host", ""), headers.get("origin", "")
    if urlsplit(f"//{host}").hostname not in LOOPBACK_NAMES:
        raise AccessDeniedError(f"Host: {host!r} is not this machine. Open the page at 127.0.0.1 or localhost")
    if origin != f"http://{host}":
        raise AccessDeniedError(f"Origin: {origin!r} is not this page, http://{host}")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise AccessDeniedError(f"Content-Type: must be {JSON}")
