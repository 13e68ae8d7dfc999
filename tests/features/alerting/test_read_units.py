"""What one tick reads with 500 business units and 20 rules, in the units that DynamoDB Local says it consumed."""

import pytest

from benchmarks import alerts
from gpucost.settings_document import parse_settings
from tests.conftest import DynamoTable


@pytest.mark.heavy
def test_a_tick_of_a_large_fleet_keeps_its_budget(table: DynamoTable) -> None:
    """On a day under way in a month's second week: two parts are read anew, as on every other day."""
    fleet = alerts.Fleet(table.client, table.name, days=13)
    assert len(parse_settings(alerts.document()).alerts.rules) == alerts.RULES
    fleet.tick(12)
    spent = fleet.tick(13)
    assert fleet.notifier.told > 10
    days = [day for day in fleet.days() if len(day.units) == alerts.UNITS]
    assert len(days) == 14, "measured on what it is about"
    assert 50 < spent.read_units <= alerts.MAX_READ_UNITS
