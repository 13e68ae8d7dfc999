"""Who sends a request to the one-machine stack, as API Gateway's authorizers would tell the function.

Nothing is verified here: the stack listens on the loopback address, for whoever runs it. Without anything said, that is
the IAM user `local`; with a header one can be somebody else, to try the roles of a settings document:

    curl -H 'X-Act-As: arn:aws:sts::000000000000:assumed-role/research/me' http://127.0.0.1:8080/v1/costs?…
    curl -H 'Authorization: Bearer <header>.<claims>.<signature>' …
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

LOCAL_USER = "arn:aws:iam::000000000000:user/local"
ACT_AS = "x-act-as"


def authorizer_of(_target: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """`requestContext.authorizer` of a request, whatever it asks for; headers by their names in lower case."""
    authorization = headers.get("authorization", "")
    if ACT_AS not in headers and authorization.lower().startswith("bearer "):
        return {"jwt": {"claims": _claims(authorization), "scopes": None}}
    arn = headers.get(ACT_AS, LOCAL_USER)
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
    """A token's claims as an HTTP API passes them on: every value as text, a list in brackets without commas."""
    try:
        payload = authorization.rpartition(" ")[2].split(".")[1]
        found = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError):
        return {}
    return {name: _text(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _text(value: object) -> str:
    if isinstance(value, list):
        return f"[{' '.join(_text(one) for one in value)}]"
    return value if isinstance(value, str) else json.dumps(value)
