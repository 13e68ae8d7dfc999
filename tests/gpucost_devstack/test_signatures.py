"""Signatures are verified as AWS verifies them, whoever made them."""

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from requests_aws4auth import AWS4Auth

from gpucost.sources.prometheus.client import SAMPLES_LIMIT_PARAMETER
from gpucost.sources.prometheus.connection import sigv4
from gpucost_cli.signing_proxy import encoded_target, signer
from gpucost_devstack.http import serving_api
from gpucost_devstack.iam.authorizer import ADMINISTRATOR, SECRET_KEY
from gpucost_devstack.prometheus import free_port
from gpucost_devstack.signatures import HttpRequest, SignatureError, SigningKey, verify
from gpucost_devstack.template import REGION as LOCAL_REGION
from tests.signatures import CREDENTIALS, REGION, check_signature

VECTORS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("sigv4_vectors.json").read_text())
"""The requests and signatures of AWS's own test suite: awslabs/aws-c-auth at 495329c, tests/aws-signing-test-suite/v4.
Those with a session token are in `TOKEN_SIGNATURES`."""
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SIGNED_AT = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
CREDENTIAL = "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
TOKEN = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"
TOKEN_SIGNATURES = (
    "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
    "7ff2b50b376cb4d151970630573d6291dc128cc5c2a12ffb237f73cc53f67b6c",
)
"""Of `get-vanilla-with-session-token`: in the header and in the query."""

HOST = "a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com"
TARGETS = [
    "/v1/costs?window=7d&granularity=day&group_by=namespace,workload",
    "/v1/costs?window=7d&label=team:search,env:!dev",
    "/v1/costs?start=2026-11-18T00:00:00Z&end=2026-11-19T00:00:00+01:00",
    "/v1/costs?window=7d&namespace=bu-*&namespace=!kube-*",
    "/v1/costs?business_unit=my+unit&window=7d",
    "/v1/costs?business_unit=my%20unit&window=7d",
    "/v1/business-units/my%20unit/workloads?window=7d",
    "/v1/business-units/%e7%a0%94%E7%A9%B6/workloads?window=24h",
    "/v1/business-units/a:b,c(d)~e'f/workloads?window=24h",
    "/v1/business-units/a%2Fb/workloads?window=24h",
    "/allocation/compute?window=7d&aggregate=namespace,label:team&filter=namespace:%22a%22%2Bpod!:%22b%22",
    '/allocation/compute?window=lastweek&filter=namespace:"a"|label[team]:"x y"',
    "/v1/lines?cursor=a%2Bb%2F%3D%3D&empty=&empty",
    "/?b=2&a=2&a=1&A=3&b-c=4",
    "/",
]


def vector_request(vector: Mapping[str, Any], *, presigned: bool, token: str = "") -> HttpRequest:
    headers: dict[str, str] = {"host": "example.amazonaws.com"}
    for name, text in vector.get("headers", ()):
        lower = name.lower()
        headers[lower] = f"{headers[lower]},{text}" if lower in headers else text
    target, body = vector["target"], vector.get("body", "").encode()
    if presigned:
        parameters = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": CREDENTIAL.replace("/", "%2F"),
            "X-Amz-Date": "20150830T123600Z",
            "X-Amz-SignedHeaders": "%3B".join(sorted(headers)),
            "X-Amz-Expires": "3600",
            **({"X-Amz-Security-Token": token} if token else {}),
            "X-Amz-Signature": vector["presigned"],
        }
        query = "&".join(map("=".join, parameters.items()))
        return HttpRequest(vector["method"], f"{target}{'&' if '?' in target else '?'}{query}", headers, body)
    headers["x-amz-date"] = "20150830T123600Z"
    if token:
        headers["x-amz-security-token"] = token
    if vector.get("signs_checksum"):
        headers["x-amz-content-sha256"] = "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e"
    names = ";".join(sorted(headers))
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={CREDENTIAL}, SignedHeaders={names}, Signature={vector['signature']}"
    )
    return HttpRequest(vector["method"], target, headers, body)


def verify_vector(
    request: HttpRequest,
    *,
    token: str | None = None,
    normalizes_path: bool = True,
    now: datetime = SIGNED_AT,
    region: str = "us-east-1",
    service: str = "service",
) -> None:
    keys = {"AKIDEXAMPLE": SigningKey(SECRET, token)}
    verify(request, keys.get, now, service=service, region=region, normalizes_path=normalizes_path)


@pytest.mark.parametrize("presigned", [False, True])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_signatures_of_awss_test_suite_are_valid(vector: dict[str, Any], presigned: bool) -> None:
    request = vector_request(vector, presigned=presigned)
    verify_vector(request, normalizes_path=not vector["name"].endswith("-unnormalized"))
    with pytest.raises(SignatureError, match="does not match the signature you provided"):
        verify_vector(request._replace(method="PUT"))


@pytest.mark.parametrize("presigned", [False, True])
def test_session_tokens_of_awss_test_suite_are_verified(presigned: bool) -> None:
    vector = dict(zip(("signature", "presigned"), TOKEN_SIGNATURES, strict=True))
    request = vector_request({"method": "GET", "target": "/", **vector}, presigned=presigned, token=TOKEN)
    verify_vector(request, token=TOKEN)
    for expected in (None, "another"):
        with pytest.raises(SignatureError, match="The security token included in the request is invalid"):
            verify_vector(request, token=expected)


VANILLA = next(vector for vector in VECTORS if vector["name"] == "get-vanilla")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"now": SIGNED_AT + timedelta(minutes=15, seconds=1)}, "Signature expired: 20150830T123600Z is now earlier"),
        ({"now": SIGNED_AT - timedelta(minutes=15, seconds=1)}, "Signature not yet current: 20150830T123600Z is still"),
        ({"region": "eu-central-1"}, "valid region, not 'us-east-1'"),
        ({"service": "execute-api"}, "correct service: 'execute-api'"),
    ],
)
def test_scope_and_time_are_verified(options: dict[str, Any], message: str) -> None:
    request = vector_request(VANILLA, presigned=False)
    with pytest.raises(SignatureError, match=message):
        verify_vector(request, **options)


@pytest.mark.parametrize("minutes", [-15, 15])
def test_clocks_may_differ_by_15_minutes(minutes: int) -> None:
    verify_vector(vector_request(VANILLA, presigned=False), now=SIGNED_AT + timedelta(minutes=minutes))


def test_presigned_url_expires() -> None:
    request = vector_request(VANILLA, presigned=True)
    verify_vector(request, now=SIGNED_AT + timedelta(hours=1))
    with pytest.raises(SignatureError, match="Signature expired"):
        verify_vector(request, now=SIGNED_AT + timedelta(hours=1, seconds=1))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("Credential=AKIDEXAMPLE", "Credential=AKIDSTRANGER"), "UnrecognizedClientException"),
        (("/20150830/", "/20150829/"), "InvalidSignatureException"),
        (("host;x-amz-date", "x-amz-date"), "InvalidSignatureException"),
        (("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"), "IncompleteSignatureException"),
        (("Signature=", "Sign="), "IncompleteSignatureException"),
        (("/aws4_request", ""), "IncompleteSignatureException"),
    ],
)
def test_malformed_authorization_is_refused(change: tuple[str, str], code: str) -> None:
    request = vector_request(VANILLA, presigned=False)
    headers = {**request.headers, "authorization": request.headers["authorization"].replace(*change)}
    with pytest.raises(SignatureError) as refused:
        verify_vector(request._replace(headers=headers))
    assert refused.value.code == code


def test_changed_body_is_refused() -> None:
    vector = next(vector for vector in VECTORS if vector["name"] == "post-x-www-form-urlencoded")
    request = vector_request(vector, presigned=False)
    with pytest.raises(SignatureError, match="does not match"):
        verify_vector(request._replace(body=b"Param1=value2"))


def request_to(target: str, headers: Mapping[str, Any]) -> HttpRequest:
    lower = {name.lower(): str(text) for name, text in headers.items()}
    return HttpRequest("GET", target, {"host": HOST, **lower})


def sent_by_requests(target: str, auth: requests.auth.AuthBase | None = None) -> requests.PreparedRequest:
    return requests.Request("GET", f"https://{HOST}{target}", auth=auth).prepare()


def arrived(prepared: requests.PreparedRequest) -> HttpRequest:
    address = urlsplit(str(prepared.url))
    return request_to(f"{address.path}{'?' if address.query else ''}{address.query}", prepared.headers)


def signed_by_proxy(target: str) -> HttpRequest:
    prepared = sent_by_requests(encoded_target(target))
    prepared.headers.update(signer(CREDENTIALS, REGION)(str(prepared.url)))
    return arrived(prepared)


def signed_by_requests_aws4auth(target: str) -> HttpRequest:
    keys = CREDENTIALS.get_frozen_credentials()
    auth = AWS4Auth(keys.access_key, keys.secret_key, REGION, "execute-api", session_token=keys.token)
    return arrived(sent_by_requests(target, auth))


def signed_by_botocore(target: str) -> HttpRequest:
    request = AWSRequest("GET", f"https://{HOST}{target}")
    SigV4Auth(CREDENTIALS, "execute-api", REGION).add_auth(request)
    return request_to(target, dict(request.headers.items()))


def is_accepted(request: HttpRequest) -> bool:
    try:
        check_signature(request)
    except SignatureError:
        return False
    return True


@pytest.mark.parametrize("sign", [signed_by_proxy, signed_by_requests_aws4auth])
@pytest.mark.parametrize("target", TARGETS)
def test_aws_accepts_signed_requests(sign: Callable[[str], HttpRequest], target: str) -> None:
    assert is_accepted(sign(target))


@pytest.mark.parametrize("target", TARGETS)
def test_aws_accepts_botocores_signature_of_encoded_queries(target: str) -> None:
    assert is_accepted(signed_by_botocore(encoded_target(target)))


@pytest.mark.parametrize(
    "query", ["a=b,c", "a=team:x", "a=*", 'a="x"', "a=my+unit", "a=(b)", "a=2026-11-18T00:00:00Z", "a=%2c"]
)
def test_aws_refuses_botocores_signature_of_other_queries(query: str) -> None:
    """botocore signs the query of a URL as it is (botocore 1.44)."""
    assert not is_accepted(signed_by_botocore(f"/v1/costs?{query}"))


@pytest.mark.parametrize("target", TARGETS)
def test_encoding_keeps_path_and_parameters(target: str) -> None:
    path, _, query = target.partition("?")
    encoded_path, _, encoded_query = encoded_target(target).partition("?")
    assert [unquote(part) for part in encoded_path.split("/")] == [unquote(part) for part in path.split("/")]
    assert parse_qsl(encoded_query, keep_blank_values=True) == parse_qsl(query, keep_blank_values=True)


FORM = {"query": 'sum(rate(x{a="b+c d",e=~"f|ü%"}[5m])) > 1', "start": "1795082400.000", "step": "3600"}


@pytest.mark.parametrize("token", [None, "session-token/with+signs=="])
@pytest.mark.parametrize("params", [{}, {SAMPLES_LIMIT_PARAMETER: "500000000"}, {"match[]": 'up{job="a b"}'}])
def test_aws_accepts_queries_of_amp(token: str | None, params: dict[str, str]) -> None:
    host, path = "aps-workspaces.eu-central-1.amazonaws.com", "/workspaces/ws-1/api/v1/query_range"
    auth = sigv4(Credentials("AKIDEXAMPLE", "secret/key+with=signs", token), REGION)
    prepared = requests.Request("POST", f"https://{host}{path}", params=params, data=FORM, auth=auth).prepare()
    address = urlsplit(str(prepared.url))
    headers = {"host": host, **{name.lower(): str(text) for name, text in prepared.headers.items()}}
    body = prepared.body if isinstance(prepared.body, bytes) else str(prepared.body).encode()
    request = HttpRequest("POST", f"{address.path}{'?' if address.query else ''}{address.query}", headers, body)
    keys = {"AKIDEXAMPLE": SigningKey("secret/key+with=signs", token)}
    verify(request, keys.get, datetime.now(UTC), service="aps", region=REGION)
    with pytest.raises(SignatureError, match="does not match"):
        verify(request._replace(body=body + b"0"), keys.get, datetime.now(UTC), service="aps", region=REGION)


@pytest.fixture(scope="module")
def local_api() -> Iterator[str]:
    port = free_port()
    with serving_api(lambda event: {"statusCode": 200, "body": event["rawPath"]}, ["GET /v1/costs"], port):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("query", "secret_key", "status"),
    [
        ("?group_by=namespace%2Cworkload", SECRET_KEY, 200),
        ("?group_by=namespace,workload", SECRET_KEY, 403),
        ("?group_by=namespace%2Cworkload", "another", 403),
        ("?group_by=namespace,workload", None, 200),
    ],
)
def test_local_api_verifies_signatures_that_requests_carry(
    local_api: str, query: str, secret_key: str | None, status: int
) -> None:
    request = AWSRequest("GET", f"{local_api}/v1/costs{query}")
    if secret_key is not None:
        SigV4Auth(Credentials(ADMINISTRATOR, secret_key), "execute-api", LOCAL_REGION).add_auth(request)
    connection = http.client.HTTPConnection(local_api.removeprefix("http://"), timeout=10)
    connection.request("GET", f"/v1/costs{query}", headers=dict(request.headers.items()))
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    assert (answer.status, body) == (status, "/v1/costs" if status == 200 else '{"message":"Forbidden"}')
