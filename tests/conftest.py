"""Fixtures with real services for several kinds of tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb
from gpucost_devstack.prometheus import refusing_url, running_prometheus
from tests.enforced_permissions import EnforcedAws, enforcing

# A property test must not fail on a busy machine because of a deadline or slow generation.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


class DynamoTable(NamedTuple):
    """A new table in DynamoDB Local."""

    client: Any
    name: str


@pytest.fixture(scope="session")
def dynamodb_url() -> Iterator[str]:
    """Amazon's DynamoDB Local, shared by all tests."""
    with running_dynamodb() as url:
        yield url


@pytest.fixture(scope="session")
def enforced(dynamodb_url: str) -> Iterator[EnforcedAws]:
    """DynamoDB Local behind the template's policies, which treat every table as the ledger."""
    with enforcing(dynamodb_url) as aws:
        yield aws


@pytest.fixture
def table(dynamodb_url: str) -> DynamoTable:
    """A new table with the template's keys."""
    client = local_client("dynamodb", dynamodb_url)
    name = f"ledger-{uuid4()}"
    create_table(client, name)
    return DynamoTable(client, name)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """A function that serves OpenMetrics text from a real Prometheus and returns its URL."""
    with ExitStack() as running:

        def serve(openmetrics: str) -> str:
            path = tmp_path / f"metrics-{len(list(tmp_path.iterdir()))}.om"
            path.write_text(openmetrics)
            return running.enter_context(running_prometheus(path))

        yield serve


@pytest.fixture
def refused_url() -> Iterator[str]:
    """A URL that refuses connections during the whole test."""
    with refusing_url() as url:
        yield url
