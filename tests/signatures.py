"""Credentials of tests that sign requests to the API, and the check that API Gateway does."""

from datetime import UTC, datetime

from botocore.credentials import Credentials

from gpucost_devstack.identity import API_SERVICE
from gpucost_devstack.signatures import HttpRequest, SigningKey, verify

CREDENTIALS = Credentials("AKIDEXAMPLE", "secret", "session-token")
REGION = "eu-central-1"


def check_signature(request: HttpRequest, now: datetime | None = None) -> None:
    """Verify a request that is signed with `CREDENTIALS`.

    Raises:
        SignatureError: API Gateway would refuse the request.
    """
    keys = {"AKIDEXAMPLE": SigningKey("secret", "session-token")}
    verify(request, keys.get, now or datetime.now(UTC), service=API_SERVICE, region=REGION)
