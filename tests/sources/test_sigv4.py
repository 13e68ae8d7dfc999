"""Requests to AMP are signed exactly as botocore signs them."""

from datetime import UTC, datetime, timedelta

import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, RefreshableCredentials

from gpucost.sources.prometheus.client import SAMPLES_LIMIT_PARAMETER
from gpucost.sources.prometheus.connection import sigv4

URL = "https://aps-workspaces.eu-central-1.amazonaws.com/workspaces/ws-1/api/v1/query_range"
FORM = {"query": 'sum(rate(x{a="b+c d",e=~"f|ü%"}[5m])) > 1', "start": "1795082400.000", "step": "3600"}


@pytest.mark.parametrize("token", [None, "session-token/with+signs=="])
@pytest.mark.parametrize("params", [{}, {SAMPLES_LIMIT_PARAMETER: "500000000"}])
def test_signature_equals_botocores(token: str | None, params: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = Credentials("AKIDEXAMPLE", "secret/key+with=signs", token)
    ours = requests.Request("POST", URL, params=params, data=FORM, auth=sigv4(credentials, "eu-central-1")).prepare()

    signed = dict(part.split("=", 1) for part in ours.headers["Authorization"].split(" ", 1)[1].split(", "))
    names = signed["SignedHeaders"].split(";")
    moment = datetime.strptime(ours.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda **_: moment)
    set_by_botocore = {"host", "x-amz-date", "x-amz-security-token"}
    same = {name: value for name, value in ours.headers.items() if name.lower() in set(names) - set_by_botocore}
    theirs = AWSRequest("POST", URL, params=params, data=ours.body, headers=same)
    SigV4Auth(credentials, "aps", "eu-central-1").add_auth(theirs)

    assert ours.headers["Authorization"] == theirs.headers["Authorization"]
    assert {"host", "x-amz-date", "x-amz-content-sha256", "content-type"} <= set(names)
    assert ("x-amz-security-token" in names) == (token is not None)


def test_credentials_refresh_themselves() -> None:
    sessions = ["FIRST", "SECOND"]

    def refresh() -> dict[str, str]:
        # Valid, and old enough to be refreshed at the next use.
        soon = datetime.now(UTC) + timedelta(minutes=5)
        return {"access_key": sessions.pop(0), "secret_key": "s", "token": "t", "expiry_time": soon.isoformat()}

    credentials = RefreshableCredentials.create_from_metadata(refresh(), refresh, "assume-role")
    request = requests.Request("POST", URL, data=FORM, auth=sigv4(credentials, "eu-central-1")).prepare()
    assert "Credential=SECOND/" in request.headers["Authorization"]
