"""Read units of one tick with 500 business units and 20 rules, as DynamoDB Local counts them."""

import pytest

from benchmarks import alerts
from gpucost.settings_document import parse_settings
from tests.conftest import DynamoTable


@pytest.mark.nightly
def test_tick_of_large_fleet_stays_within_its_read_units(table: DynamoTable) -> None:
    """In the second week of a month, two parts of the month are read again, as on every other day."""
    fleet = alerts.Fleet(table.client, table.name, days=13)
    assert len(parse_settings(alerts.document()).alerts.rules) == alerts.RULES
    fleet.tick(12)
    cost = fleet.tick(13)
    assert fleet.notifier.received > 10
    days = [day for day in fleet.days() if len(day.costs) == alerts.UNITS]
    assert len(days) == 14, "the measured month is too short"
    assert 50 < cost.read_units <= alerts.MAX_READ_UNITS
