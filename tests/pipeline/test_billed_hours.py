"""Hours rated at list price are rated again when their bill arrives."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from msgspec.structs import replace

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR as HOUR_LENGTH
from gpucost.core.pricing.bill import BillExtract, BillLine
from gpucost.pipeline.refresh_bill import BillRefreshService, LedgerNodePools
from gpucost.pipeline.refresh_prices import PriceRefreshService, PricesRefresh
from gpucost.pipeline.restate import PENDING_PERIOD, RepricingService, RestateService
from gpucost.runtime.messages import HoursDue, HoursToRestate, PricesDue
from gpucost.settings.pricing import CurSettings
from gpucost.sources.bill import AthenaBill
from gpucost.storage.ports import Table
from tests.pipeline.restated import NOW, System
from tests.records import HOUR, amount

SOON = HOUR + timedelta(days=10)
"""A time at which the month's bill is read."""
BILLED = BillLine(
    kind="instance",
    start=HOUR,
    end=HOUR + HOUR_LENGTH,
    account="1",
    region="us-east-1",
    resource_id="i-0",
    instance_type="g5.12xlarge",
    capacity_type="on-demand",
    operation="RunInstances",
    instance_hours=Fraction(1),
    amount=Decimal("6.40"),
    currency="USD",
    is_final=True,
)


class BilledSystem(System):
    """Nodes cost $10 by the settings until the bill arrives."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.push(
            1,
            pricing={
                "sources": ["cur", "rates"],
                "rates": [{"node_hourly_usd": 10}],
                "cur": {"database": "billing", "table": "bill"},
            },
        )
        self.lines: list[BillLine] = []
        self.fails = False
        self.sent: list[HoursToRestate] = []
        self.bill = BillRefreshService(
            self.export, self.bills, clock=lambda: SOON, node_pools=LedgerNodePools(self.store, self.ledger)
        )

    def export(self, cur: CurSettings) -> AthenaBill:
        return self  # type: ignore[return-value]  # a fake with the methods that the service uses

    def read(self, start: datetime, end: datetime) -> BillExtract:
        if self.fails:
            raise SourceError("Athena did not answer")
        return BillExtract(iter([line for line in self.lines if start <= line.start < end]), 1)

    def refresh(self, due: PricesDue) -> PricesRefresh:
        unused = None  # no price is fetched from EC2 or the price list here
        service = PriceRefreshService(
            self.store,
            self.ledger,
            self.book,
            spot=unused,  # type: ignore[arg-type]
            price_list=unused,  # type: ignore[arg-type]
            catalogue=unused,  # type: ignore[arg-type]
            bill=self.bill,
            fetched={"cur"},
            clock=lambda: NOW,
        )
        result = service.refresh(due)
        assert result is not None
        return result

    def send_due(self, messages: Sequence[HoursDue | HoursToRestate]) -> None:
        self.sent += [message for message in messages if isinstance(message, HoursToRestate)]

    def reprice(self) -> int:
        service = RepricingService(self.store, self.ledger, self.book, self.bills, self)  # type: ignore[arg-type]
        sent = service.send_hours_to_restate(NOW + PENDING_PERIOD, "c")
        restating = RestateService(
            self.store, self.ledger, self.rollups, self.bus, pricer=self.pricer, clock=lambda: NOW
        )
        for message in self.sent:
            restating.restate(message)
        self.sent = []
        return sent

    def status(self, hour: datetime = HOUR) -> tuple[str, int]:
        manifest = self.ledger.manifest("demo", hour)
        assert manifest is not None
        return manifest.status, manifest.version


@pytest.fixture
def billed(ledger_table: Table) -> BilledSystem:
    return BilledSystem(ledger_table)


def test_hour_is_provisional_until_its_bill_arrives(billed: BilledSystem) -> None:
    billed.attribute(hours=2, version=2)
    assert (billed.line().price_source, billed.line().allocated_usd) == ("rates", amount(5))
    assert billed.status() == ("provisional", 1)
    billed.lines = [BILLED]
    result = billed.refresh(PricesDue())
    assert [(refresh.source, refresh.past_prices_changed) for refresh in result.refreshed] == [("cur", 1)]
    assert billed.reprice() == 1
    assert (billed.line().price_source, billed.line().allocated_usd) == ("cur", amount("3.2"))
    assert billed.status() == ("complete", 2)
    assert billed.status(HOUR + HOUR_LENGTH) == ("provisional", 1)
    (restatement,) = billed.ledger.restatements("demo", HOUR, HOUR + 2 * HOUR_LENGTH)
    assert restatement.reason == f"the bill of {HOUR:%Y-%m-%d} is new or changed"


def test_second_refresh_and_repricing_change_nothing(billed: BilledSystem) -> None:
    billed.attribute(version=2)
    billed.lines = [BILLED]
    billed.refresh(PricesDue(source="cur"))
    billed.reprice()
    assert billed.refresh(PricesDue(source="cur")).refreshed[0].past_prices_changed == 0
    assert billed.reprice() == 0
    assert billed.status() == ("complete", 2)


def test_corrected_bill_adds_a_single_restatement(billed: BilledSystem) -> None:
    billed.attribute(version=2)
    billed.lines = [replace(BILLED, is_final=False)]
    billed.refresh(PricesDue())
    billed.reprice()
    assert billed.status() == ("provisional", 2)
    billed.lines = [replace(BILLED, amount=Decimal("6.00"))]
    billed.refresh(PricesDue())
    billed.reprice()
    assert (billed.status(), billed.line().allocated_usd) == (("complete", 3), amount(3))


def test_hourly_refresh_skips_the_bill_and_reports_failures(billed: BilledSystem) -> None:
    billed.fails = True
    assert billed.refresh(PricesDue(new_only=True)) == PricesRefresh()
    assert billed.refresh(PricesDue()).failures == ["the bill: Athena did not answer"]


def test_node_pools_are_those_of_the_ledger(billed: BilledSystem) -> None:
    billed.metrics.labels = {"label_karpenter_sh_nodepool": "gold"}
    billed.attribute(hours=3, version=2)
    pools = LedgerNodePools(billed.store, billed.ledger)
    assert pools(HOUR, HOUR + timedelta(days=2)) == {"i-0": "gold"}
    assert pools(HOUR + timedelta(days=1), HOUR + timedelta(days=2)) == {}


def test_hour_missing_from_a_closed_bill_is_final(billed: BilledSystem) -> None:
    billed.attribute(hours=2, version=2)
    billed.lines = [BILLED]
    month_after = (HOUR.replace(day=1) + timedelta(days=32)).replace(day=3)
    billed.bill = BillRefreshService(billed.export, billed.bills, clock=lambda: month_after)
    billed.refresh(PricesDue(months=(f"{HOUR:%Y-%m}",)))
    assert billed.bills.months() == {HOUR.replace(day=1, hour=0): True}
    assert billed.reprice() == 2 + 1  # the billed hour, and both hours with the month
    assert billed.status(HOUR) == ("complete", 2)
    assert billed.status(HOUR + HOUR_LENGTH) == ("complete", 2)
    billed.refresh(PricesDue(months=(f"{HOUR:%Y-%m}",)))
    assert billed.reprice() == 0
