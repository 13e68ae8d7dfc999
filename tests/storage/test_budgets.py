"""What each access costs, in the units that DynamoDB Local says it consumed; a full month is `make bench`'s."""

from datetime import UTC, datetime

import pytest

from benchmarks import large_ledger, ledger_page
from benchmarks.ledger import MONTH, measure
from gpucost.core.hours import DAY
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.rollups import RollupStore
from tests.conftest import DynamoTable

pytestmark = pytest.mark.tools

DAYS = 3


def test_every_access_of_a_large_fleet_stays_within_its_budget(table: DynamoTable) -> None:
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - (DAYS + 2) * DAY
    large_ledger.fill(table.client, table.name, "large", start, DAYS)
    days = RollupStore(DynamoDBTable(table.client, table.name)).days("large", start, start + DAYS * DAY)
    assert [len(day.costs) for day in days] == [large_ledger.UNITS] * DAYS, "measured on what it is about"
    measurements = list(measure(table.client, table.name, "large", start, DAYS))
    assert len(measurements) == 7
    assert [budget for budget in measurements if not budget.is_within_budget()] == []
    assert min(budget.units for budget in measurements) >= 1
    kept = {budget.access: budget for budget in ledger_page.kept_budgets()}
    assert [*kept] == [budget.access for budget in measurements]
    for budget in measurements:
        of_a_month = budget.access.endswith("one month")
        most = (budget.most_units - budget.requests) * MONTH / DAYS if of_a_month else budget.most_units
        assert kept[budget.access].most_units == pytest.approx(most)
        assert kept[budget.access].most_requests == budget.most_requests


def test_ledger_page_matches_the_measurements() -> None:
    assert all(budget.is_within_budget() for budget in ledger_page.kept_budgets())
    published = ledger_page.on_page(ledger_page.PAGE.read_text(), ledger_page.ACCESS)
    assert published == ledger_page.access_table(ledger_page.kept_budgets()), "python -m benchmarks.ledger --write"
