"""The caller of a request to the local stack, as API Gateway's authorizers pass it to the function.

The stack only listens on the loopback address, so requests need no signature. A signature that a request carries is
verified, with the access key of the embedded AWS (`local`), as API Gateway verifies it; bearer tokens are not verified.
By default the caller is the IAM user `local`. Headers select another caller, for example to try the roles of a settings
document:

    curl -H 'X-Act-As: arn:aws:sts::000000000000:assumed-role/research/me' http://127.0.0.1:8080/v1/costs?…
    curl -H 'Authorization: Bearer <header>.<claims>.<signature>' …
"""

import json
from base64 import urlsafe_b64decode
from datetime import UTC, datetime
from typing import Any

from gpucost_devstack.iam.authorizer import ADMINISTRATOR, LOCAL_KEY
from gpucost_devstack.signatures import HttpRequest, is_signed, verify
from gpucost_devstack.template import REGION

API_SERVICE = "execute-api"
LOCAL_USER = "arn:aws:iam::000000000000:user/local"
ACT_AS_HEADER = "x-act-as"


def authorizer_of(request: HttpRequest) -> dict[str, Any]:
    """`requestContext.authorizer` of a request.

    Raises:
        SignatureError: the request is signed, and API Gateway would refuse it.
    """
    headers = request.headers
    if is_signed(request):
        keys = {ADMINISTRATOR: LOCAL_KEY}
        verify(request, keys.get, datetime.now(UTC), service=API_SERVICE, region=REGION)
    authorization = headers.get("authorization", "")
    if ACT_AS_HEADER not in headers and authorization.lower().startswith("bearer "):
        return {"jwt": {"claims": _claims(authorization), "scopes": None}}
    arn = headers.get(ACT_AS_HEADER, LOCAL_USER)
    account = arn.split(":")[4] if arn.count(":") > 4 else ""
    return {
        "iam": {
            "accessKey": "LOCAL",
            "accountId": account,
            "callerId": "LOCAL",
            "cognitoIdentity": None,
            "principalOrgId": None,
            "userArn": arn,
            "userId": "LOCAL",
        }
    }


def _claims(authorization: str) -> dict[str, str]:
    """A token's claims as an HTTP API passes them: values as text, lists in brackets without commas."""
    try:
        payload = authorization.rpartition(" ")[2].split(".")[1]
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError):
        return {}
    return {name: _claim_text(value) for name, value in claims.items()} if isinstance(claims, dict) else {}


def _claim_text(value: object) -> str:
    if isinstance(value, list):
        return f"[{' '.join(_claim_text(element) for element in value)}]"
    return value if isinstance(value, str) else json.dumps(value)
