"""`/v1/prices` of the api function's real handler, over a price book in the real database engine."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from gpucost.container import Container
from gpucost.core.pricing.prices import Price
from gpucost.reports.pages import PriceBookListing, PricePage
from gpucost.runtime.process import Environment
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.price_book import PriceStore
from gpucost_devstack.template import REPOSITORY
from tests.conftest import DynamoTable
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import iam_caller, request_as, serving
from tests.functions.in_memory_hours import InMemoryHours

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
DAY = {"start": "2026-11-18T00:00:00Z", "end": "2026-11-19T00:00:00Z"}


@pytest.fixture
def container(table: DynamoTable, enforced: EnforcedAws) -> Iterator[Container]:
    client = enforced.client("dynamodb", "ApiFunction")
    environment = Environment(table=table.name)
    with serving(Container(environment, client=lambda _service: client, settings_store=InMemoryHours())) as container:
        yield container


@pytest.fixture
def book(table: DynamoTable, container: Container) -> PriceStore:
    store = PriceStore(DynamoDBTable(table.client, table.name))
    for kind, amount in (("g5.xlarge", "1.006"), ("p5.48xlarge", "55.04"), ("p5en.48xlarge", "63.296")):
        applies_to = {"instance_type": kind, "region": "us-east-1", "operating_system": "linux"}
        listed = Price("on-demand", "node-hour", Decimal(amount), applies_to, "USD", NOON - timedelta(9), None, NOON)
        store.merge_prices("on-demand", [listed], rated_until=NOON, now=NOON)
    by_hand = Price(
        "override", "gpu-hour", Decimal("2.5"), {"instance_type": "p5.*"}, "USD", NOON, None, NOON, "ann", "EDP"
    )
    store.set_override(by_hand, now=NOON)
    return store


def ask(**query: str) -> tuple[int, Any]:
    answer = request_as(iam_caller("arn:aws:iam::123456789012:user/finance"), "/v1/prices", query)
    return answer.status, json.loads(answer.body, parse_float=Decimal)


def shown(**query: str) -> list[tuple[str, str]]:
    status, answer = ask(**{**DAY, **query})
    assert status == 200, answer
    return [(row["applies_to"]["instance_type"], str(row["amount"])) for row in answer["rows"]]


@pytest.mark.usefixtures("book")
def test_prices_are_filtered_and_exact() -> None:
    listed = [("g5.xlarge", "1.006"), ("p5.48xlarge", "55.04"), ("p5en.48xlarge", "63.296")]
    assert shown() == [("p5.*", "2.5"), *listed]
    assert shown(source="on-demand") == listed
    assert shown(source="spot") == []
    assert shown(instance_type="p5.48xlarge") == [("p5.*", "2.5"), ("p5.48xlarge", "55.04")]
    assert shown(end="2026-11-18T12:00:00Z") == listed, "the override begins at noon"


@pytest.mark.usefixtures("book")
def test_response_matches_the_openapi_document() -> None:
    document = json.loads((REPOSITORY / "docs" / "reference" / "openapi.json").read_text())
    schema = document["paths"]["/v1/prices"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    _, answer = ask(**DAY)
    plain = json.loads(json.dumps(answer, default=float))
    jsonschema.validate(plain, {**schema, "components": document["components"]}, cls=jsonschema.Draft202012Validator)
    override = answer["rows"][0]
    assert override["id"]
    assert (override["from"], override["to"], override["author"]) == ("2026-11-18T12:00:00Z", None, "ann")
    assert answer["rows"][1]["id"] is None


@pytest.mark.usefixtures("book")
def test_pages_add_up_to_the_whole_listing(container: Container) -> None:
    class ShortPages(PriceBookListing):
        def page(self, *arguments: Any, **more: Any) -> PricePage:
            return super().page(*arguments, **{**more, "limit": 3})

    all_prices = shown()
    container.price_book_listing = ShortPages(container.price_book)
    rows, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        _, answer = ask(**DAY, **({"cursor": cursor} if cursor else {}))
        rows += [(row["applies_to"]["instance_type"], str(row["amount"])) for row in answer["rows"]]
        cursor, pages = answer["cursor"], pages + 1
    assert (rows, pages) == (all_prices, 2)


@pytest.mark.usefixtures("book")
@pytest.mark.parametrize(
    ("query", "parameter", "says"),
    [
        ({"end": "2027-11-19T00:00:00Z"}, "end", "at most 35 days after start"),
        ({"end": DAY["start"]}, "end", "must be after start"),
        ({"start": "noon"}, "start", "is not a UTC time"),
        ({"source": "wish"}, "source", "must be 'override'"),
        ({"cursor": "%%%"}, "cursor", "is invalid; pass the cursor of a previous response"),
        ({"kind": "x"}, "kind", "unknown parameter"),
    ],
)
def test_wrong_parameter_is_named(query: dict[str, str], parameter: str, says: str) -> None:
    status, answer = ask(**{**DAY, **query})
    assert status == 400
    assert answer["errors"][0]["parameter"] == parameter
    assert says in answer["errors"][0]["detail"]
