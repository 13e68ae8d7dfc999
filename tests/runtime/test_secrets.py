"""Reading secrets: what is missing is named."""

from typing import Any

import boto3
import pytest

from gpucost.core.errors import CredentialsError
from gpucost.runtime.secrets import Secrets


def test_missing_region_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")

    def client(service: str) -> Any:
        return boto3.session.Session().client(service)  # type: ignore[call-overload]

    with pytest.raises(CredentialsError, match="no AWS region to read secret 'gpucost/x' in"):
        Secrets(client).value("gpucost/x")
