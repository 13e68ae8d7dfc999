"""Prices of the price book, and its refresh from a simulated AWS."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from gpucost.core.amounts import CapacityCosts
from gpucost.core.hour_record import NodeHour
from gpucost.core.pricing.prices import Price
from gpucost.pipeline.refresh_bill import BillRefreshService
from gpucost.pipeline.refresh_prices import PriceRefreshService, PricesRefresh
from gpucost.runtime.messages import PricesDue
from gpucost.settings.pricing import CurSettings
from gpucost.settings_document import SettingsDocumentStore
from gpucost.sources.aws_prices import AwsPriceList, Ec2InstanceTypes, Ec2SpotHistory
from gpucost.sources.bill import AthenaBill
from gpucost.storage.bill_store import BillStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.price_book import PriceStore
from tests.conftest import DynamoTable
from tests.records import amount, record
from tests.sources.aws_prices import Aws

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MINUTE = timedelta(minutes=1)
G5, P5 = "g5.xlarge", "p5.48xlarge"
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
NOW = NOON + timedelta(minutes=2)
RATED = NOON - HOUR
"""At 12:02 the hour that ended at 12:00 was not rated yet."""


def spot(kind: str, start: datetime, end: datetime, amount: str, zone: str = "use1-az1", at: datetime = NOW) -> Price:
    applies_to = {"instance_type": kind, "zone_id": zone, "capacity_type": "spot", "operating_system": "linux"}
    return Price("spot", "node-hour", Decimal(amount), applies_to, "USD", start, end, at)


def listed(kind: str, start: datetime, amount: str, at: datetime = NOW) -> Price:
    applies_to = {"instance_type": kind, "region": "us-east-1", "operating_system": "linux"}
    return Price("on-demand", "node-hour", Decimal(amount), applies_to, "USD", start, None, at)


def no_bill(cur: CurSettings) -> AthenaBill:
    raise AssertionError("these settings do not name the bill")


class PriceRefresh:
    """A price refresh with a real table. `client` may record its calls; `aws` has AWS's prices."""

    def __init__(
        self, table: DynamoTable, aws: Aws, client: Any = None, *, fetched: str = "spot on-demand shapes"
    ) -> None:
        self.aws, self.now = aws, NOON + MINUTE
        client = client or table.client
        self.store = SettingsDocumentStore(DynamoDBTable(client, table.name), clock=lambda: self.now)
        self.ledger = Ledger(DynamoDBTable(client, table.name))
        self.book = PriceStore(DynamoDBTable(client, table.name))
        store = BillStore(DynamoDBTable(client, table.name), clock=lambda: self.now)
        bill = BillRefreshService(no_bill, store, clock=lambda: self.now)
        self.service = PriceRefreshService(
            self.store,
            self.ledger,
            self.book,
            spot=Ec2SpotHistory(aws.client),
            price_list=AwsPriceList(aws.client),
            catalogue=Ec2InstanceTypes(aws.client),
            bill=bill,
            fetched=frozenset(fetched.split()),
            clock=lambda: self.now,
        )

    def push(self, clusters: tuple[str, ...] = ("demo",)) -> None:
        document = {
            "clusters": [{"name": name, "prometheus": {"url": "http://127.0.0.1:1"}} for name in clusters],
            "pricing": {"sources": ["spot", "on-demand"]},
        }
        self.store.push(json.dumps(document), author="me", now=self.now)

    def rated(self, hour: datetime, *uses: tuple[str, str], cluster: str = "demo") -> None:
        """Publish an hour with nodes of these (instance type, zone), which may be idle."""
        nodes = tuple(
            NodeHour(f"n{number}", "", "", kind, "", zone, "", "", "", None, amount(0), CapacityCosts())
            for number, (kind, zone) in enumerate(uses)
        )
        self.ledger.publish(
            replace(record(cluster=cluster, hour=hour), nodes=nodes),
            replacing=self.ledger.manifest(cluster, hour),
            settings_version=1,
            now=datetime.now(UTC),
        )

    def refresh(self, source: Any = None, *, new_only: bool = False) -> PricesRefresh:
        result = self.service.refresh(PricesDue(source=source, new_only=new_only))
        assert result is not None
        return result

    def amounts(self, at: datetime) -> set[tuple[str, str, str]]:
        prices = self.book.in_force(at, at + MINUTE).prices
        return {(price.source, price.applies_to["instance_type"], str(price.amount)) for price in prices}
