"""A local OIDC issuer: authorization code with PKCE, signed tokens, and a page to choose a user.

Like a real issuer, it checks client, redirect URI, response type, and S256 challenge and verifier. Codes work once.
"""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, RSAKey

CLIENT, AUDIENCE, SCOPES = "page", "gpucost", "openid api"


@dataclass
class Issuer:
    """The issuer's state, which tests read and change."""

    people: Mapping[str, Mapping[str, Any]]
    """Claims by user."""
    address: str = ""
    redirect: str = ""
    """The registered redirect URI."""
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "1"}))
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    sign_ins: list[str] = field(default_factory=list)

    def token(self, user: str, audience: str) -> str:
        now = int(time.time())
        claims = {"iss": self.address, "aud": audience, "sub": user, "iat": now, "exp": now + 600, **self.people[user]}
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.key)

    def claims(self, authorization: str) -> dict[str, Any] | None:
        """The authorizer context of an Authorization header. None unless it is this issuer's token for this API."""
        try:
            claims = jwt.decode(authorization.removeprefix("Bearer "), self.key, algorithms=["RS256"]).claims
        except JoseError:
            return None
        good = claims["iss"] == self.address and claims["aud"] == AUDIENCE and claims["exp"] > time.time()
        return dict(claims) if good else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    issuer: Issuer


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        address, issuer = urlsplit(self.path), self.server.issuer
        query = dict(parse_qsl(address.query))
        if address.path == "/.well-known/openid-configuration":
            paths = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
            self._json({"issuer": issuer.address, **{name: issuer.address + path for name, path in paths.items()}})
        elif address.path == "/keys":
            self._json(KeySet([issuer.key]).as_dict(private=False))
        elif address.path == "/authorize":
            self._authorize(query)
        else:
            self._send(204 if address.path == "/favicon.ico" else 404, "text/plain", b"")

    def do_POST(self) -> None:
        issuer = self.server.issuer
        form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        authorization = issuer.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        expected = {"grant_type": "authorization_code", "client_id": CLIENT, "redirect_uri": issuer.redirect}
        if (
            authorization is None
            or challenge != authorization["code_challenge"]
            or not expected.items() <= form.items()
        ):
            self._json({"error": "invalid_grant"}, 400)
            return
        user = authorization["who"]
        issuer.sign_ins.append(user)
        tokens = {"access_token": issuer.token(user, AUDIENCE), "id_token": issuer.token(user, CLIENT)}
        self._json({**tokens, "token_type": "Bearer", "expires_in": 600, "scope": SCOPES})

    def _authorize(self, query: dict[str, str]) -> None:
        issuer = self.server.issuer
        expected = {
            "client_id": CLIENT,
            "redirect_uri": issuer.redirect,
            "response_type": "code",
            "scope": SCOPES,
            "code_challenge_method": "S256",
        }
        if not expected.items() <= query.items() or not query.get("state") or not query.get("code_challenge"):
            self._send(400, "text/plain", f"not as registered: {query}".encode())
            return
        links = [self._back({"error": "access_denied", "state": query["state"]}, "cancel")]
        for user in issuer.people:
            code = secrets.token_urlsafe()
            issuer.codes[code] = {**query, "who": user}
            links.append(self._back({"code": code, "state": query["state"]}, user))
        self._send(200, "text/html", f"<title>Who are you?</title>{' '.join(links)}".encode())

    def _back(self, answer: dict[str, str], user: str) -> str:
        return f'<a href="{escape(self.server.issuer.redirect)}?{escape(urlencode(answer))}">{escape(user)}</a>'

    def _json(self, body: Any, status: int = 200) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep the terminal quiet."""


@contextmanager
def running_issuer(people: Mapping[str, Mapping[str, Any]]) -> Iterator[Issuer]:
    """Serve on a free port."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.issuer = Issuer(people, f"http://127.0.0.1:{server.server_address[1]}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
