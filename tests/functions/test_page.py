"""The page is served to everyone, compressed, and with a strict content security policy."""

import base64
import gzip
import re
from collections.abc import Iterator
from typing import Any

import pytest

from functions.api import app as function
from gpucost.api.app import build_app
from gpucost.container import Container
from gpucost_devstack.template import REPOSITORY
from tests.functions.api_requests import Context

pytestmark = pytest.mark.tools

BUILT = REPOSITORY / "functions" / "api" / "page"
ALL_BYTES = 300_000
FIRST_BYTES = 106_000


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment without an issuer and without caches."""
    monkeypatch.setenv("GPUCOST_TABLE", "none is asked")
    for name in ("ISSUER", "CLIENT", "SCOPES", "HOSTS"):
        monkeypatch.delenv(f"GPUCOST_SIGN_IN_{name}", raising=False)
    yield monkeypatch


def ask(path: str, query: str = "", accept: str = "gzip, deflate, br") -> dict[str, Any]:
    event = {
        "version": "2.0",
        "routeKey": f"GET {path}",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {"host": "x", "accept-encoding": accept},
        "requestContext": {"http": {"method": "GET", "path": path}, "requestId": "1", "stage": "$default"},
        "isBase64Encoded": False,
    }
    app = build_app(Container().api_services, function.PAGE_FOLDER)
    return function.handler(event, Context(), app=app)  # type: ignore[arg-type]  # a reduced Lambda context


def policy(answer: dict[str, Any]) -> dict[str, str]:
    parts = answer["headers"]["Content-Security-Policy"].split("; ")
    return dict(part.split(" ", 1) for part in parts)


def test_every_file_is_served_as_it_was_built_compressed_and_plain() -> None:
    assets = sorted((BUILT / "assets").iterdir())
    assert {path.suffix for path in assets} == {".js", ".css", ".svg"}
    for path, file in [("/", BUILT / "index.html"), *((f"/assets/{asset.name}", asset) for asset in assets)]:
        answer = ask(path)
        assert (answer["statusCode"], answer["isBase64Encoded"]) == (200, True)
        assert answer["headers"]["Content-Encoding"] == "gzip"
        assert gzip.decompress(base64.b64decode(answer["body"])) == file.read_bytes()
        plain = ask(path, accept="identity")
        assert (plain["isBase64Encoded"], plain["body"].encode()) == (False, file.read_bytes())
        assert "Content-Encoding" not in plain["headers"]
        for response in (answer, plain):
            assert response["headers"]["Vary"] == "Accept-Encoding"
            assert response["headers"]["X-Content-Type-Options"] == "nosniff"


def test_assets_are_cached_and_the_page_is_revalidated() -> None:
    script = next((BUILT / "assets").glob("index-*.js"))
    assert ask(f"/assets/{script.name}")["headers"]["Cache-Control"] == "public, max-age=31536000, immutable"
    assert ask("/")["headers"]["Cache-Control"] == "no-cache"
    assert ask("/config.json")["headers"]["Cache-Control"] == "no-store"


def test_page_is_small() -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in BUILT.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < ALL_BYTES
    first = re.findall(r"assets/([\w.-]+)", (BUILT / "index.html").read_text())
    assert len(first) >= 3
    assert sum(sizes[name] for name in first) < FIRST_BYTES


def test_policy_allows_only_files_and_host_of_the_page() -> None:
    assert policy(ask("/")) == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self'",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    page = (BUILT / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|https?://", page)


def test_issuer_is_configured_and_allowed(plain: pytest.MonkeyPatch) -> None:
    assert ask("/config.json")["body"] == '{"sign_in": null}'
    plain.setenv("GPUCOST_SIGN_IN_ISSUER", "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_x")
    assert ask("/config.json")["body"] == '{"sign_in": null}', "tokens are accepted, but there is no sign-in"
    plain.setenv("GPUCOST_SIGN_IN_CLIENT", "abc")
    plain.setenv("GPUCOST_SIGN_IN_SCOPES", "openid api")
    plain.setenv("GPUCOST_SIGN_IN_HOSTS", "https://me.auth.eu-west-1.amazoncognito.com")
    issuer = '"issuer": "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_x"'
    assert ask("/config.json")["body"] == f'{{"sign_in": {{{issuer}, "client_id": "abc", "scopes": "openid api"}}}}'
    hosts = "'self' https://cognito-idp.eu-west-1.amazonaws.com https://me.auth.eu-west-1.amazoncognito.com"
    assert policy(ask("/"))["connect-src"] == hosts


@pytest.mark.parametrize(
    "path",
    ["/assets/nothing.js", "/assets/..%2Findex.html", "/assets/../../app.py", "/assets/.made-from", "/index.html"],
)
def test_nothing_else_is_served(path: str) -> None:
    answer = ask(path)
    assert (answer["statusCode"], answer["headers"]["Content-Type"]) == (404, "application/problem+json")


def test_sign_in_redirect_may_have_parameters() -> None:
    assert ask("/", "code=a&state=b&session_state=c&iss=https%3A%2F%2Fx")["statusCode"] == 200
    assert ask("/config.json", "code=a")["statusCode"] == 400
