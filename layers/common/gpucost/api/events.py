"""Validates API Gateway events (HTTP API, payload format 2.0) before anything reads them.

API Gateway sends well-formed events, but the function does not rely on it. An event of format 1.0, or with text that
is not valid Unicode, gets a 400 problem document.
"""

from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.utilities.typing import LambdaContext
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gpucost.core.errors import InvalidInputError
from gpucost.features.opencost.routes import without_model_prefix
from gpucost.http.responses import problem_response

PAYLOAD_FORMAT = "2.0"
_NOT_UNICODE = "is not valid Unicode: it contains an unpaired surrogate. Send UTF-8, percent-encoded."


def _check_unicode(text: str) -> str:
    """Reject unpaired surrogates, which Python strings can contain and UTF-8 cannot encode."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(_NOT_UNICODE)
    return text


UnicodeText = Annotated[str, AfterValidator(_check_unicode)]


class _EventModel(BaseModel):
    """Strict, so that numbers and lists are not accepted as text. Undeclared fields are dropped."""

    model_config = ConfigDict(strict=True, extra="ignore")


class _Iam(_EventModel):
    userArn: UnicodeText | None = None  # noqa: N815 - API Gateway's name, as all below


class _Jwt(_EventModel):
    claims: dict[UnicodeText, Any] | None = None


class _Authorizer(_EventModel):
    iam: _Iam | None = None
    jwt: _Jwt | None = None


class _Http(_EventModel):
    method: UnicodeText = Field(min_length=1)


class _RequestContext(_EventModel):
    http: _Http
    stage: UnicodeText = "$default"
    requestId: UnicodeText = ""  # noqa: N815
    authorizer: _Authorizer | None = None


class _Event(_EventModel):
    version: Literal["2.0"]
    rawPath: UnicodeText = Field(pattern="^/")  # noqa: N815
    rawQueryString: UnicodeText = ""  # noqa: N815
    headers: dict[UnicodeText, UnicodeText] | None = None
    queryStringParameters: dict[UnicodeText, UnicodeText] | None = None  # noqa: N815
    requestContext: _RequestContext  # noqa: N815
    body: UnicodeText | None = None
    isBase64Encoded: bool = False  # noqa: N815


def handle_event(app: APIGatewayHttpResolver, event: object, context: LambdaContext) -> dict[str, Any]:
    """Handle one HTTP request and return the Lambda response."""
    try:
        request = validate_event(event)
    except InvalidInputError as error:
        response = problem_response(HTTPStatus.BAD_REQUEST, str(error), instance="/")
        headers = {"Content-Type": response.content_type, **response.headers}
        return {
            "statusCode": response.status_code,
            "headers": headers,
            "body": response.body,
            "cookies": [],
            "isBase64Encoded": False,
        }
    return app.resolve(request, context)


def validate_event(event: object) -> dict[str, Any]:
    """Return the validated fields of an event, with the path percent-encoded again.

    HTTP APIs decode `rawPath`, and Powertools matches path parameters of few characters only. Without the encoding, a
    business unit with an emoji or a # in its name would not be found. A slash in a name, and everything from a question
    mark on, cannot be restored, because the HTTP API has already lost it.

    Raises:
        InvalidInputError: the event has another format, a field has the wrong type, or text is not valid Unicode.
    """
    if isinstance(event, dict) and event.get("version", "1.0") != PAYLOAD_FORMAT:
        raise InvalidInputError(
            f"the event has payload format {str(event.get('version', '1.0'))[:20]!a}; only {PAYLOAD_FORMAT} of HTTP "
            'APIs is supported. Set PayloadFormatVersion: "2.0" on the integration.'
        )
    try:
        checked = _Event.model_validate(event).model_dump()
    except ValidationError as error:
        raise InvalidInputError(_describe_error(error)) from error
    return {
        **checked,
        "rawPath": quote(without_model_prefix(checked["rawPath"]), safe="/-._~!$&'()*+,;=:@"),
        "headers": _lower_case_names(checked["headers"] or {}),
    }


def _lower_case_names(headers: dict[str, str]) -> dict[str, str]:
    """Return headers by lower-case name. Repeated headers are joined with commas, as API Gateway does."""
    joined: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        joined[lower] = f"{joined[lower]},{value}" if lower in joined else value
    return joined


def _describe_error(error: ValidationError) -> str:
    finding = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part).encode("ascii", "replace").decode()[:60] for part in finding["loc"]) or "the event"
    if finding["type"] in {"value_error", "string_unicode"}:  # string_unicode comes from pydantic's constraints
        return f"{field}: {_NOT_UNICODE}"
    reason = "is missing" if finding["type"] == "missing" else finding["msg"][:1].lower() + finding["msg"][1:]
    return f"{field}: {reason}. Events must come from an API Gateway HTTP API, payload format {PAYLOAD_FORMAT}."
