"""The api function over prepared hours."""

from collections.abc import Iterator
from functools import partial

import pytest

from gpucost.container import Container
from tests.enforced_permissions import EnforcedAws
from tests.functions.asking import ask_as, serving
from tests.functions.prepared_hours import NASTY, NOW, SOMEBODY, Ask, Prepared, at, usd
from tests.functions.reported_hours import reported


@pytest.fixture(autouse=True)
def nothing_is_denied(request: pytest.FixtureRequest) -> Iterator[None]:
    """A function that is denied something fails its test, though it may hide it from who asks."""
    yield
    if "enforced" in request.fixturenames:
        request.getfixturevalue("enforced").authorizer.raise_denied()


@pytest.fixture
def prepared() -> Iterator[Prepared]:
    ledger = Prepared()
    with serving(Container(clock=lambda: NOW, ledger=ledger, rollups=ledger, settings_store=ledger)):
        yield ledger


@pytest.fixture
def ask(prepared: Prepared) -> Ask:
    return partial(ask_as, SOMEBODY)


@pytest.fixture
def day(prepared: Prepared) -> Prepared:
    """Two hours of two clusters, one incomplete hour, and twenty missing in each."""
    prepared.put("east", at(0), {("research", "r1"): usd("10"), ("research", "r2"): usd("0.000000000001")})
    prepared.put("east", at(1), {("research", "r1"): usd("5"), (NASTY, NASTY): usd("3.333333333333")})
    prepared.put("east", at(2), {}, status="incomplete")
    prepared.put("west", at(0), {("research", "r1"): usd("7")})
    prepared.put("west", at(1), {}, status="complete")
    return prepared


@pytest.fixture(scope="module")
def reported_hours(dynamodb_url: str, enforced: EnforcedAws) -> Iterator[None]:
    with reported(dynamodb_url, enforced):
        yield
