"""What reading and refreshing the price book costs, by DynamoDB's own count, for a large fleet."""

import random
from datetime import datetime, timedelta

import pytest

from gpucost.core.hours import floor_hour
from gpucost.core.pricing.price_history import key_of
from gpucost.core.pricing.prices import InstanceShape, Price
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.price_book import PriceStore
from tests.conftest import DynamoTable
from tests.metered_client import MeteredClient
from tests.prices import DAY, HOUR, NOON, NOW, RATED, listed, spot

pytestmark = pytest.mark.tools


def fleet_history(days: int, now: datetime) -> list[Price]:
    """50 instance types in 6 zones, 300 pools, whose prices change by chance, six times a day on the average."""
    prices = []
    for kind in range(50):
        for zone in range(6):
            chance = random.Random(f"{kind} {zone}")
            amount, start = 1 + kind / 7, NOON - days * DAY - timedelta(minutes=chance.randrange(240))
            while start < now:
                amount *= 1 + chance.choice((-1, 1)) * chance.uniform(0.005, 0.03)
                end = start + timedelta(seconds=chance.randrange(3600, 7 * 3600))
                ends = end if end < now else floor_hour(now).replace(hour=0) + 2 * DAY
                prices.append(spot(f"g{kind}.xlarge", start, ends, f"{amount:.4f}", f"use1-az{zone}", at=now))
                start = end
    return prices


def test_hour_needs_few_requests_and_units(table: DynamoTable) -> None:
    """What an hour reads does not depend on how many days are held."""
    book = PriceStore(DynamoDBTable(table.client, table.name))
    year = fleet_history(60, NOW)
    book.merge_prices("spot", year, since=NOON - 60 * DAY, rated_until=RATED, now=NOW)
    prices = [listed(f"g{kind}.xlarge", NOON - 9 * DAY, f"{kind + 1}.5") for kind in range(50)]
    book.merge_prices("on-demand", prices, rated_until=RATED, now=NOW)
    book.update_shapes([InstanceShape(f"g{kind}", 1, 4, 16384) for kind in range(50)], rated_until=RATED, now=NOW)
    for hours, units in ((1, 10), (24, 15)):
        watched = MeteredClient(table.client)
        start = NOON - 30 * HOUR
        in_force = PriceStore(DynamoDBTable(watched, table.name)).in_force(start, start + hours * HOUR).prices
        wanted = [
            price
            for price in year
            if price.valid_from
            and price.valid_from < start + hours * HOUR
            and price.valid_to
            and price.valid_to > start
        ]
        shown = {(key_of(price), price.amount, price.valid_from) for price in in_force if price.source == "spot"}
        assert shown == {(key_of(price), price.amount, price.valid_from) for price in wanted}
        assert len(watched.calls) == 2
        assert watched.units["query"] <= units, watched.units
    items = table.client.scan(TableName=table.name, ConsistentRead=True)["Items"]
    assert max(len(item["b"]["B"]) for item in items) < 300_000


def test_refresh_reads_and_writes_little(table: DynamoTable) -> None:
    book = PriceStore(DynamoDBTable(table.client, table.name))
    book.merge_prices("spot", fleet_history(5, NOW), since=NOON - 5 * DAY, rated_until=RATED, now=NOW)
    watched, later = MeteredClient(table.client), NOW + HOUR
    since = NOON - 2 * HOUR
    fresh = [price for price in fleet_history(5, later) if price.valid_to and price.valid_to > since]
    made = PriceStore(DynamoDBTable(watched, table.name)).merge_prices(
        "spot", fresh, since=since, rated_until=RATED + HOUR, now=later
    )
    assert 0 < made.changed_count < 150
    assert made.changes == (), "new prices are in the hour that is not rated yet"
    assert watched.calls == ["query", "query", "transact_write_items"]
    assert watched.units["query"] <= 8
    assert watched.units["transact_write_items"] <= 50
