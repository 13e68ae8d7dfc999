"""The two HTML pages: the dashboard that Vite builds from `web/`, and the API's documentation."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from msgspec import Struct

from gpucost.core.errors import NotFoundError
from gpucost.http.responses import SECURITY_HEADERS
from gpucost.http.routes import ignores_unknown_parameters, open_to
from gpucost.runtime.json_text import dumps

# Serves the dashboard page that Vite builds from `web/`, and the configuration it needs before sign-in.

_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_CACHE_FOREVER = "public, max-age=31536000, immutable"
"""For assets, whose names contain a digest of their contents."""


class SignIn(Struct, frozen=True):
    """Sign-in configuration: authorization code with PKCE."""

    issuer: str
    client_id: str
    scopes: str
    extra_origins: tuple[str, ...] = ()
    """Further origins that the page calls during sign-in."""


class DashboardPage:
    """The files of the built page.

    Args:
        folder: contains `index.html` and `assets/`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def files(self) -> Mapping[str, tuple[str, str]]:
        """Content type and text of every file by name, read once. Requested names never reach the file system."""
        paths = [path for path in (self._folder / "index.html", *self._folder.glob("assets/*")) if path.is_file()]
        return {
            path.name: (_CONTENT_TYPES[path.suffix], path.read_text())
            for path in paths
            if path.suffix in _CONTENT_TYPES
        }


def add_page_routes(app: APIGatewayHttpResolver, page: DashboardPage, sign_in: Callable[[], SignIn | None]) -> None:
    """Register the page's routes. They are public: the page requests all figures as the signed-in caller."""

    @app.get("/", include_in_schema=False)
    @ignores_unknown_parameters  # the issuer chooses the parameters with which it redirects after sign-in
    @open_to("public")
    def index() -> Response[str]:
        policy = {
            "Content-Security-Policy": content_security_policy(sign_in()),
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        return _file_response(page, "index.html", {"Cache-Control": "no-cache", **policy})

    @app.get("/assets/<file>", include_in_schema=False)
    @open_to("public")
    def asset(file: str) -> Response[str]:
        return _file_response(page, file, {"Cache-Control": _CACHE_FOREVER})

    @app.get("/config.json", include_in_schema=False)
    @open_to("public")
    def config() -> Response[str]:
        settings = sign_in()
        fields = settings and {"issuer": settings.issuer, "client_id": settings.client_id, "scopes": settings.scopes}
        return Response(HTTPStatus.OK, "application/json", dumps({"sign_in": fields}), headers=dict(SECURITY_HEADERS))


def content_security_policy(sign_in: SignIn | None) -> str:
    """Return the page's Content-Security-Policy, which allows its own files, this API and the sign-in issuer."""
    origins = [] if sign_in is None else [_origin(sign_in.issuer), *map(_origin, sign_in.extra_origins)]
    connect_sources = " ".join(dict.fromkeys(["'self'", *origins]))
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            f"connect-src {connect_sources}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def _file_response(page: DashboardPage, name: str, headers: Mapping[str, str]) -> Response[str]:
    file = page.files.get(name)
    if file is None:
        raise NotFoundError("no such file. The page is built with: make web")
    content_type, text = file
    all_headers: dict[str, str | list[str]] = {**SECURITY_HEADERS, **headers, "Vary": "Accept-Encoding"}
    return Response(HTTPStatus.OK, content_type, text, headers=all_headers, compress=True)


# Renders the OpenAPI document as HTML for `/docs`, without scripts or other hosts.

HTML_CONTENT_TYPE = "text/html; charset=utf-8"
_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:0 auto;padding:1rem}
h2{margin:2.5rem 0 .5rem;border-top:1px solid #8886;padding-top:1rem}
code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;margin:.5rem 0}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid #8884}
.role{border:1px solid #8886;border-radius:.5rem;padding:0 .5rem;font-size:.85em}
summary{cursor:pointer;margin:.5rem 0}
nav li{margin:.15rem 0}
.wide{overflow-x:auto}
"""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; "
    f"style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's Content-Security-Policy, which allows only its own style sheet."""
_ROLE_TEXTS = {
    "public": "public",
    "bu": "any role; bu roles see their business units only",
    "viewer": "viewer or admin",
    "admin": "admin",
}


def documentation_page(document: Mapping[str, Any]) -> str:
    """Render an OpenAPI 3.1 document as an HTML page."""
    info = document["info"]
    operations = [
        (f"{method.upper()} {path}", path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    links = "".join(
        f'<li><a href="#{_anchor(name)}"><code>{escape(name)}</code></a> {escape(operation["summary"])}</li>'
        for name, _, operation in operations
    )
    schemas = "".join(_schema_section(name, schema) for name, schema in document["components"]["schemas"].items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}: API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])}</h1><p>{escape(info['description'])}</p>"
        f'<p>Version {escape(info["version"])}. OpenAPI document: <a href="openapi.json">openapi.json</a>.</p>'
        f"<nav><ul>{links}</ul></nav>"
        f"{''.join(_operation(*operation) for operation in operations)}"
        f"<h2>Schemas</h2>{schemas}</body></html>"
    )


def _operation(name: str, path: str, operation: Mapping[str, Any]) -> str:
    parameters = operation.get("parameters", [])
    rows = "".join(_parameter(parameter) for parameter in parameters)
    table = _table(("parameter", "type", "description", "examples"), rows) if rows else "<p>No parameters.</p>"
    responses = "".join(_response(status, response) for status, response in operation["responses"].items())
    role = operation.get("x-required-role", "")
    return (
        f'<h2 id="{_anchor(name)}"><code>{escape(name)}</code></h2><p>{escape(operation["summary"])}. '
        f'<span class="role">{escape(_ROLE_TEXTS.get(role, role))}</span></p>'
        f"<p>{escape(_description(operation))}</p>{table}{_example(path, parameters)}"
        f"<details><summary>Responses</summary>{_table(('status', 'description', 'schema'), responses)}</details>"
    )


def _description(operation: Mapping[str, Any]) -> str:
    return " ".join(str(operation.get("description", "")).split())


def _parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter["schema"]
    requirement = "required" if parameter.get("required") else "optional"
    type_and_default = f"{_type(schema)}, {requirement}"
    if schema.get("default") not in (None, ""):
        type_and_default += f"; default: <code>{escape(str(schema['default']))}</code>"
    examples = " ".join(f"<code>{escape(_text(value))}</code>" for value in _examples(parameter))
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{type_and_default}</td>"
        f"<td>{escape(parameter.get('description', ''))}</td><td>{examples}</td></tr>"
    )


def _examples(parameter: Mapping[str, Any]) -> Sequence[Any]:
    examples: Sequence[Any] = parameter["schema"].get("examples", [])
    return examples


def _example(path: str, parameters: Sequence[Mapping[str, Any]]) -> str:
    """Return an example request with all required parameters; "" if one has no example."""
    required = [parameter for parameter in parameters if parameter.get("required")]
    if any(not _examples(parameter) for parameter in required):
        return ""
    examples = {parameter["name"]: _text(_examples(parameter)[0]) for parameter in required}
    for parameter in required:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", examples[parameter["name"]])
    in_query = {parameter["name"] for parameter in required if parameter["in"] == "query"}
    query = urlencode({name: example for name, example in examples.items() if name in in_query}, safe=":,")
    return f"<p>Example: <code>GET {escape(path + ('?' + query if query else ''))}</code></p>"


def _response(status: str, response: Mapping[str, Any]) -> str:
    schemas = " or ".join(
        f"{_type(content.get('schema', {}))} <code>{escape(kind)}</code>"
        for kind, content in response.get("content", {}).items()
    )
    return f"<tr><td>{escape(status)}</td><td>{escape(response['description'])}</td><td>{schemas}</td></tr>"


def _schema_section(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td>"
        f"<td>{_type(property_schema)}{'' if field in required else ', optional'}</td>"
        f"<td>{escape(property_schema.get('description', ''))}</td></tr>"
        for field, property_schema in schema.get("properties", {}).items()
    )
    description = escape(" ".join(schema.get("description", "").split()))
    table = _table(("field", "type", "description"), rows)
    summary = f"<summary><code>{escape(name)}</code></summary>"
    return f'<details id="{_anchor(name)}">{summary}<p>{description}</p>{table}</details>'


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f'<a href="#{_anchor(name)}">{escape(name)}</a>'
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " or ".join(dict.fromkeys(_type(option) for option in schema[keyword]))
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed:
        return " or ".join(f"<code>{escape(_text(value))}</code>" for value in allowed)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return escape(" ".join(str(schema[key]) for key in ("type", "format") if key in schema)) or "anything"


def _table(headings: Sequence[str], rows: str) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _anchor(name: str) -> str:
    return escape("".join(letter if letter.isalnum() else "-" for letter in name).strip("-"))
