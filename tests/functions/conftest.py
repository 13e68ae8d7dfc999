"""Fixtures: the api function with in-memory or published hours."""

from collections.abc import Iterator
from functools import partial

import pytest

from gpucost.container import Container
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import request_as, serving
from tests.functions.in_memory_hours import FINANCE, INJECTION, NOW, Ask, InMemoryHours, at, usd
from tests.functions.published_hours import api_with_hours


@pytest.fixture(autouse=True)
def nothing_is_denied(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test if a permission was denied, even if the function hides it from its caller."""
    yield
    if "enforced" in request.fixturenames:
        request.getfixturevalue("enforced").authorizer.raise_denied()


@pytest.fixture
def prepared() -> Iterator[InMemoryHours]:
    ledger = InMemoryHours()
    with serving(Container(clock=lambda: NOW, ledger=ledger, rollups=ledger, settings_store=ledger)):
        yield ledger


@pytest.fixture
def ask(prepared: InMemoryHours) -> Ask:
    return partial(request_as, FINANCE)


@pytest.fixture
def day(prepared: InMemoryHours) -> InMemoryHours:
    """Two hours of two clusters, one incomplete hour, and twenty missing hours in each."""
    prepared.put("east", at(0), {("research", "r1"): usd("10"), ("research", "r2"): usd("0.000000000001")})
    prepared.put("east", at(1), {("research", "r1"): usd("5"), (INJECTION, INJECTION): usd("3.333333333333")})
    prepared.put("east", at(2), {}, status="incomplete")
    prepared.put("west", at(0), {("research", "r1"): usd("7")})
    prepared.put("west", at(1), {}, status="complete")
    return prepared


@pytest.fixture(scope="module")
def published_hours(dynamodb_url: str, enforced: EnforcedAws) -> Iterator[None]:
    with api_with_hours(dynamodb_url, enforced):
        yield
