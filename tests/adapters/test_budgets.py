"""What each access costs, in the units that DynamoDB Local says it consumed; a full month is `make bench`'s."""

from datetime import UTC, datetime

from benchmarks import large_ledger
from benchmarks.ledger import measure
from gpucost.adapters.dynamodb.rollups import DynamoRollups
from gpucost.domain.rollups import DAY
from tests.conftest import DynamoTable

DAYS = 3


def test_every_access_of_a_large_fleet_keeps_its_budget(table: DynamoTable) -> None:
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - (DAYS + 2) * DAY
    large_ledger.fill(table.client, table.name, "large", start, DAYS)
    days = DynamoRollups(table.client, table.name).days("large", start, start + DAYS * DAY)
    assert [len(day.units) for day in days] == [large_ledger.UNITS] * DAYS, "measured on what it is about"
    found = list(measure(table.client, table.name, "large", start, DAYS))
    assert len(found) == 7
    assert [budget for budget in found if not budget.is_kept()] == []
    assert min(budget.units for budget in found) >= 1
