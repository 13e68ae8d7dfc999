"""Serves the dashboard page that Vite builds from `web/`, and the configuration it needs before sign-in."""

from collections.abc import Callable, Mapping
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from msgspec import Struct

from gpucost.core.errors import NotFoundError
from gpucost.http.access import open_to
from gpucost.http.parameters import ignores_unknown_parameters
from gpucost.http.problems import SECURITY_HEADERS
from gpucost.runtime.json_text import dumps

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
