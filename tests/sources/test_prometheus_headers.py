"""Headers of the settings are sent with every query; those that are secrets only to the address of their secret."""

import json
import re
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from gpucost.core.errors import GpuCostError, SettingsError, SourceError
from gpucost.settings import CoreSettings
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.connection import connect
from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader
from gpucost_cli.doctor import examine_cluster
from tests.recording_server import recording_server

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
EMPTY = b'{"status": "success", "data": {"resultType": "matrix", "result": [], "stats": {}}}'


def settings(url: str, **prometheus: object) -> CoreSettings:
    cluster = {"name": "blue", "prometheus": {"url": url, **prometheus}}
    return parse_settings(json.dumps({"clusters": [cluster], "pricing": {"source": "constant", "gpu_hourly_usd": 12}}))


def test_every_query_has_the_headers_of_the_settings() -> None:
    """Attribution, readers of other features, the retention and the doctor send them."""
    with recording_server() as (url, received):
        document = settings(url, headers={"X-Scope-OrgID": "team-a|team-b", "X-Trace": "gpu cost"})
        (cluster,) = document.clusters
        numbers = []
        for send in (
            lambda: metrics_reader(cluster, document).observe([HOUR]),
            lambda: NodePoolLimitsReader(cluster).read([HOUR]),
            lambda: connect(cluster).retention(),
            lambda: examine_cluster(cluster, document, HOUR),
        ):
            with suppress(GpuCostError):
                send()
            numbers.append(len(received))
    assert 0 < numbers[0] < numbers[1] < numbers[2] < numbers[3]
    assert {method for method, _ in received} == {"GET", "POST"}
    for _, headers in received:
        assert (headers["x-scope-orgid"], headers["x-trace"]) == ("team-a|team-b", "gpu cost")
        assert headers["user-agent"] == "gpucost"
        assert "authorization" not in headers


@pytest.mark.parametrize("auth", [{}, {"auth": "bearer", "secret": "gpucost/token"}])
def test_secret_headers_are_sent_with_and_without_a_bearer_token(auth: dict[str, str]) -> None:
    with recording_server() as (url, received):
        values = {
            name: json.dumps({"url": url, "token": name[8:] + "-value"}) for name in ("gpucost/key", "gpucost/token")
        }
        document = settings(url, headers={"X-Scope-OrgID": "a"}, secret_headers={"X-Api-Key": "gpucost/key"}, **auth)
        with suppress(GpuCostError):
            connect(document.clusters[0], secret_value=values.__getitem__).query("up", HOUR)
    ((_, headers),) = received
    assert (headers["x-scope-orgid"], headers["x-api-key"]) == ("a", "key-value")
    assert headers.get("authorization") == ("Bearer token-value" if auth else None)


def test_secret_header_of_another_address_is_not_sent() -> None:
    with recording_server() as (url, received):
        document = settings(url, secret_headers={"X-Api-Key": "gpucost/key"})
        secret = json.dumps({"url": "https://mimir.example.com", "token": "never-shown"})
        with pytest.raises(SourceError, match=re.escape("may be sent to https://mimir.example.com only")) as refused:
            connect(document.clusters[0], secret_value=lambda _: secret).query("up", HOUR)
    assert received == []
    assert "never-shown" not in str(refused.value)


def test_secret_headers_need_tls() -> None:
    with pytest.raises(SettingsError, match=r"clusters\[0\].prometheus.url: http://mimir.example.com has no TLS"):
        settings("http://mimir.example.com", secret_headers={"X-Api-Key": "gpucost/key"}).check_new_document()
    settings("http://mimir.example.com", headers={"X-Scope-OrgID": "a"}).check_new_document()


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"Host": "a"}, "clusters[0].prometheus.headers.Host: Host is not allowed, because gpucost sets it itself"),
        ({"content-type": "a"}, "content-type is not allowed, because gpucost sets it itself; remove it"),
        ({"Content-Length": "1"}, "Content-Length is not allowed"),
        ({"X-Amz-Date": "a"}, "X-Amz-Date is not allowed"),
        ({"Authorization": "Bearer a"}, "Authorization is not allowed; use auth: bearer with a secret"),
        ({"X Scope": "a"}, "must be a header's name without spaces or colons"),
        ({"X-Scope:": "a"}, "must be a header's name without spaces or colons"),
        ({"": "a"}, "must be a header's name without spaces or colons"),
        ({"X-Scope-OrgID": ""}, "must be 1 to 1000 printable ASCII characters"),
        ({"X-Scope-OrgID": "a\r\nX-Other: b"}, "must be 1 to 1000 printable ASCII characters"),
        ({"X-Scope-OrgID": " a"}, "must be 1 to 1000 printable ASCII characters"),
        ({"X-Scope-OrgID": "é"}, "must be 1 to 1000 printable ASCII characters"),
        ({"X-Scope-OrgID": "a", "x-scope-orgid": "b"}, "header 'x-scope-orgid' is named twice"),
        ({"X-Api-Key": "a"}, "headers.X-Api-Key: the value of this header is a secret. Store it in Secrets Manager"),
        ({"Cookie": "a"}, "the value of this header is a secret"),
    ],
)
def test_invalid_headers_are_refused_in_a_single_sentence(headers: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        settings("http://127.0.0.1:9090", headers=headers)
    assert says in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"X-Api-Key": "my-key"}, "must be the name of a secret that begins with gpucost/, never its value"),
        ({"Authorization": "gpucost/key"}, "Authorization is not allowed; use auth: bearer with a secret"),
        ({"X-Scope-OrgID": "gpucost/key"}, "header 'x-scope-orgid' is named twice"),
    ],
)
def test_invalid_secret_headers_are_refused(headers: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        settings("http://127.0.0.1:9090", headers={"X-Scope-OrgID": "a"}, secret_headers=headers)
    assert says in str(refused.value)


def test_doctor_names_the_header_that_a_server_with_tenants_needs() -> None:
    """Mimir refuses queries without a tenant with 401 and the text `no org id`."""
    with recording_server(401, b"no org id\n") as (url, _):
        document = settings(url)
        report = examine_cluster(document.clusters[0], document, HOUR)
    (check,) = report.checks
    assert "401 Unauthorized: no org id" in (check.finding or "")
    assert "headers: {X-Scope-OrgID: …}" in (check.change or "")
