"""Secrets are sent to the origin that they name, over TLS, and never to the target of a redirect."""

import json
import socket
from datetime import UTC, datetime
from typing import Any

import pytest
import requests

from gpucost.core.errors import SettingsError, SourceError
from gpucost.features.alerting.notifiers.alertmanager import AlertmanagerNotifier
from gpucost.features.alerting.notifiers.slack import SlackNotifier
from gpucost.runtime.bounded_http import REQUEST_ERRORS, HttpResponse, post_json
from gpucost.runtime.secrets import BearerAuth, origin_of
from gpucost.settings.section import protects_secrets
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost.sources.prometheus.connection import SerializedSigner, authenticator, connect
from tests.features.alerting.sample_notifications import notification
from tests.recording_server import Received, recording_server

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)


def tokens(received: Received) -> list[str | None]:
    """The Authorization header of each request."""
    return [headers.get("authorization") for _, headers in received]


def secret_for(url: str) -> str:
    return json.dumps({"url": url, "token": "topsecret"})


def prometheus(url: str, secret: str) -> PrometheusClient:
    return PrometheusClient(
        url, cluster="demo", auth=BearerAuth("gpucost/x", lambda _: secret), sleep=lambda _: None, timeout=5
    )


def test_token_goes_to_the_origin_that_its_secret_names() -> None:
    with recording_server() as (url, received):
        prometheus(url, secret_for(url + "/any/path")).query("up", NOON)
        AlertmanagerNotifier(url, secret="gpucost/x", secret_value=lambda _: secret_for(url)).send([notification()])
    assert tokens(received) == ["Bearer topsecret", "Bearer topsecret"]


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        (
            secret_for("https://am.example.com"),
            "may be sent to https://am.example.com only, and the settings use it for",
        ),
        (secret_for("http://127.0.0.1:1"), "may be sent to http://127.0.0.1:1 only"),
        (secret_for("https://127.0.0.1:{port}"), "may be sent to https://127.0.0.1:"),
        (secret_for("http://localhost:{port}"), "may be sent to http://localhost:"),
        (secret_for("ftp://x"), "has no https address and token"),
        ('{"url": "{url}", "token": " "}', "has no https address and token"),
        ('{"url": "{url}", "token": "a\\nb"}', "has no https address and token"),
        ('{"url": 5, "token": "topsecret"}', "has no https address and token"),
        ("topsecret", 'does not say where its token may be sent: store {"url": "https://host.example.com", "token"'),
        ("https://hooks.slack.com/services/T/B/topsecret", "does not say where its token may be sent"),
        ('{"token": "topsecret"}', "does not say where its token may be sent"),
        ('["topsecret"]', "does not say where its token may be sent"),
        ('{"url": "{url}", "token": 5}', "does not say where its token may be sent"),
        ("[" * 100_000, "does not say where its token may be sent"),
    ],
)
def test_secret_of_another_address_is_not_sent(secret: str, says: str) -> None:
    with recording_server() as (url, received):
        value = secret.replace("{url}", url).replace("{port}", url.rpartition(":")[2])
        receiver = AlertmanagerNotifier(url, secret="gpucost/x", secret_value=lambda _: value)
        for send in (lambda: prometheus(url, value).query("up", NOON), lambda: receiver.send([notification()])):
            with pytest.raises(SourceError) as failure:
                send()
            assert says in str(failure.value)
            assert "topsecret" not in str(failure.value)
    assert tokens(received) == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_with_a_token(status: int) -> None:
    with (
        recording_server() as (target, reached),
        recording_server(status, location=target + "/elsewhere") as (url, received),
    ):
        client = prometheus(url, secret_for(url))
        with pytest.raises(SourceError, match=f"redirects to '{target}/elsewhere', which is not followed"):
            client.query("up", NOON)
        assert client.retention() is None
        receiver = AlertmanagerNotifier(url, secret="gpucost/x", secret_value=lambda _: secret_for(url))
        with pytest.raises(SourceError):
            receiver.send([notification()])
    assert tokens(received) == ["Bearer topsecret"] * 3
    assert reached == []


def test_no_redirect_is_followed_with_a_signature() -> None:
    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["X-Amz-Security-Token"] = "topsecret"
        return request

    with recording_server() as (target, reached), recording_server(307, location=target) as (url, _):
        client = PrometheusClient(url, cluster="demo", auth=SerializedSigner(sign), timeout=5)  # type: ignore[arg-type]
        with pytest.raises(SourceError, match="which is not followed"):
            client.query("up", NOON)
    assert reached == []


@pytest.mark.parametrize("auth", [BearerAuth("gpucost/x", lambda _: secret_for("http://prometheus.example"))])
def test_credentials_never_leave_without_tls(auth: BearerAuth) -> None:
    for signer in (auth, SerializedSigner(lambda request: request)):  # type: ignore[arg-type]
        with pytest.raises(SourceError, match="has no TLS, and credentials are sent over https"):
            requests.Request("GET", "http://prometheus.example", auth=signer).prepare()


def test_settings_connect_with_the_secret_that_they_name() -> None:
    with recording_server() as (url, received):
        settings = parse_settings(document(f'{{url: "{url}", auth: bearer, secret: gpucost/prometheus}}'))
        secrets = {"gpucost/prometheus": secret_for(url)}
        connect(settings.clusters[0], secret_value=secrets.__getitem__).query("up", NOON)
    assert tokens(received) == ["Bearer topsecret"]
    assert isinstance(authenticator(settings.clusters[0].prometheus), BearerAuth)


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("https://AM.Example.com/x?y#z", ("https", "am.example.com", 443)),
        ("https://am.example.com:8443", ("https", "am.example.com", 8443)),
        ("http://[::1]:9090", ("http", "::1", 9090)),
        ("https://bücher.example", ("https", "xn--bcher-kva.example", 443)),
        ("https://user:password@am.example.com", ("https", "am.example.com", 443)),
        ("ftp://x", None),
        ("//x", None),
        ("https://", None),
        ("https://[::1", None),
        ("https://x:99999", None),
        ("", None),
        ("\ud800", None),
    ],
)
def test_origin_is_read_as_requests_connects(address: str, origin: Any) -> None:
    assert origin_of(address) == origin


@pytest.mark.parametrize(
    ("trick", "host", "port"),
    [
        ("https://a.example\\@b.example", "a.example", 443),
        ("https://a.example\\x.b.example", "a.example", 443),
        ("https://a.example#@b.example", "a.example", 443),
        ("https://a.example?@b.example", "a.example", 443),
        ("https://a.example@b.example", "b.example", 443),
        ("https://faß.example", "xn--fa-hia.example", 443),  # Python's resolver reads fass.example
        ("http://localhost\\x.b.example", "localhost", 80),
        ("https://[::1]", "::1", 443),
    ],
)
def test_connection_goes_to_the_origin_that_secrets_are_checked_against(
    monkeypatch: pytest.MonkeyPatch, trick: str, host: str, port: int
) -> None:
    resolved: list[tuple[Any, Any]] = []

    def resolve(host_name: Any, port_number: Any, *_: Any, **__: Any) -> Any:
        resolved.append((host_name, port_number))
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(REQUEST_ERRORS):
        post_json(trick, {}, seconds=20)
    assert resolved == [(host, port)]
    origin = origin_of(trick)
    assert origin is not None
    assert (origin.host, origin.port) == (host, port)


def test_address_without_origin_opens_no_connection() -> None:
    with pytest.raises(REQUEST_ERRORS):
        post_json("https://", {}, seconds=20)


@pytest.mark.parametrize(
    ("address", "is_safe"),
    [
        ("https://am.example.com", True),
        ("http://127.0.0.1:9090", True),
        ("http://127.1.2.3", True),
        ("http://localhost:9090", True),
        ("http://[::1]:9090", True),
        ("http://am.example.com", False),
        ("http://10.0.0.1", False),
        ("http://127.0.0.1.example.com", False),
        ("http://localhost.example.com", False),
        ("http://127.0.0.1@am.example.com", False),
    ],
)
def test_plain_http_is_allowed_to_this_machine_only(address: str, is_safe: bool) -> None:
    assert protects_secrets(address) is is_safe
    origin = origin_of(address)
    assert origin is not None
    assert origin.protects_secrets is is_safe


def document(prometheus: str = '{url: "http://127.0.0.1:9090"}', receivers: str = "[]") -> str:
    return (
        f"clusters: [{{name: demo, prometheus: {prometheus}}}]\n"
        "pricing: {source: constant, gpu_hourly_usd: 12}\n"
        f"alerts: {{receivers: {receivers}}}\n"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            document('{url: "http://prometheus.example", auth: bearer, secret: gpucost/x}'),
            "settings: clusters[0].prometheus.url: http://prometheus.example has no TLS, and credentials are sent to",
        ),
        (
            document('{url: "http://aps.example", auth: sigv4, region: eu-central-1}'),
            "settings: clusters[0].prometheus.url: http://aps.example has no TLS",
        ),
        (
            document(receivers='[{type: email}, {type: alertmanager, url: "http://am.example", secret: gpucost/x}]'),
            "settings: alerts.receivers[1].url: http://am.example has no TLS",
        ),
    ],
)
def test_push_refuses_credentials_over_plain_http(text: str, says: str) -> None:
    settings = parse_settings(text)  # a secret that was stored earlier is still valid
    with pytest.raises(SettingsError) as refused:
        settings.check_new_document()
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        document('{url: "http://prometheus.monitoring:9090"}'),
        document('{url: "http://localhost:9090", auth: bearer, secret: gpucost/x}'),
        document(receivers='[{type: alertmanager, url: "http://am.monitoring:9093"}]'),
        document(receivers='[{type: alertmanager, url: "https://am.example", secret: gpucost/x}]'),
    ],
)
def test_push_accepts_plain_http_without_credentials(text: str) -> None:
    parse_settings(text).check_new_document()


def test_slack_webhook_must_be_slacks_or_of_the_host_in_the_settings() -> None:
    posted: list[str] = []

    def post(url: str, *_: Any, **__: Any) -> HttpResponse:
        posted.append(url)
        return HttpResponse(200, "OK", {}, b"ok")

    def send(value: str, host: str | None = None) -> None:
        SlackNotifier("gpucost/slack", secret_value=lambda _: value, host=host, post=post).send([notification()])

    for value, says in (
        ("http://hooks.slack.com/services/topsecret", "contains an http:// URL; a webhook must be https://"),
        (
            "https://topsecret.example.com/x",
            "another host than hooks.slack-gov.com or hooks.slack.com; for a Slack-compatible",
        ),
        ("https://hooks.slack.com.evil.example/topsecret", "another host than hooks.slack-gov.com or hooks.slack.com"),
        ("https://hooks.slack.com@evil.example/topsecret", "another host than hooks.slack-gov.com or hooks.slack.com"),
        (secret_for("https://hooks.slack.com"), "does not contain a webhook's URL"),
    ):
        with pytest.raises(SourceError) as failure:
            send(value)
        assert says in str(failure.value)
        assert "topsecret" not in str(failure.value)
    with pytest.raises(SourceError, match=r"another host than chat\.example\.com"):
        send("https://hooks.slack.com/services/T/B/x", host="chat.example.com")
    assert posted == []
    send("https://hooks.slack.com/services/T/B/x")
    send("https://hooks.slack-gov.com/services/T/B/x")
    send("https://chat.example.com/hooks/x", host="chat.example.com")
    assert len(posted) == 3
