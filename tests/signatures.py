"""Verifies signatures like API Gateway, with botocore."""

from collections.abc import Mapping

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

CREDENTIALS = Credentials("AKIDEXAMPLE", "secret", "session-token")
REGION = "eu-central-1"


def is_signed(method: str, url: str, headers: Mapping[str, str]) -> bool:
    """Recompute a request's signature with the caller's secret, and compare it."""
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return False
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    signed = parts["SignedHeaders"].split(";")
    if not {"host", "x-amz-date", "x-amz-security-token"} <= set(signed):
        return False
    request = AWSRequest(method, url, headers={name: headers[name] for name in signed})
    request.context["timestamp"] = headers["x-amz-date"]
    check = SigV4Auth(CREDENTIALS, "execute-api", REGION)
    text = check.string_to_sign(request, check.canonical_request(request))
    return bool(check.signature(text, request) == parts["Signature"])
