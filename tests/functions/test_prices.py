"""The prices function's real handler with DynamoDB Local and a documented AWS."""

import json
from typing import Any

import pytest

from functions.prices import app as function
from gpucost.container import Container
from gpucost.core.errors import InvalidMessageError, SourceError
from tests.conftest import DynamoTable
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import Context
from tests.prices import HOUR, NOON, P5, PriceRefresh
from tests.sources.aws_prices import Aws, Offer, gpus

EVERYTHING = {"version": 1}


def run(container: Container, event: dict[str, Any]) -> Any:
    context: Any = Context()  # a reduced Lambda context
    return function.handler(event, context, container=container)


@pytest.fixture
def system(table: DynamoTable) -> PriceRefresh:
    aws = Aws()
    aws.offers = [Offer(P5, "eu-west-1", "60")]
    aws.shapes = {P5: gpus(8, 192, 2097152)}
    return PriceRefresh(table, aws, fetched="on-demand shapes")


@pytest.fixture
def container(table: DynamoTable, enforced: EnforcedAws, system: PriceRefresh) -> Container:
    client = enforced.client("dynamodb", "PricesFunction")
    return Container(prices_service=PriceRefresh(table, system.aws, client, fetched="on-demand shapes").service)


def counted(printed: str) -> dict[str, list[float]]:
    """Metrics in the embedded format that CloudWatch reads from the log."""
    (line,) = [splitline for splitline in map(json.loads, filter(None, printed.splitlines())) if "_aws" in splitline]
    return {name: line[name] for name in ("PricesChanged", "PastPricesChanged", "PriceSourcesFailed")}


def test_refresh_counts_changed_prices(
    system: PriceRefresh, container: Container, capsys: pytest.CaptureFixture[str]
) -> None:
    system.push()
    system.rated(NOON - 2 * HOUR, (P5, "eu-west-1a"))
    assert run(container, EVERYTHING) == {"refreshed": {"on-demand": 1, "shapes": 1}}
    assert counted(capsys.readouterr().out) == {
        "PricesChanged": [2.0],
        "PastPricesChanged": [2.0],
        "PriceSourcesFailed": [0.0],
    }
    assert run(container, {"version": 1, "new_only": True}) == {"refreshed": {"on-demand": 0, "shapes": 0}}


def test_a_failing_source_fails_the_call_and_leaves_the_others_refreshed(
    system: PriceRefresh, container: Container, capsys: pytest.CaptureFixture[str]
) -> None:
    system.push()
    system.rated(NOON - 2 * HOUR, (P5, "eu-west-1a"))
    system.aws.failing = {"GetProducts"}
    with pytest.raises(SourceError, match=r"on-demand prices of eu-west-1: pricing:GetProducts failed"):
        run(container, EVERYTHING)
    assert counted(capsys.readouterr().out)["PriceSourcesFailed"] == [1.0]
    assert system.book.in_force(NOON, NOON + HOUR).shapes[P5].gpus == 8


@pytest.mark.filterwarnings("ignore:No application metrics")
def test_before_the_first_push_it_does_nothing(system: PriceRefresh, container: Container) -> None:
    assert run(container, EVERYTHING) == {"refreshed": {}}
    assert system.aws.calls == []


@pytest.mark.filterwarnings("ignore:No application metrics")
@pytest.mark.parametrize("event", [{"source": "wish"}, {"version": 2}, {"sauce": "spot"}])
def test_invalid_event_is_rejected(container: Container, event: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageError, match="not a valid PricesDue"):
        run(container, event)
