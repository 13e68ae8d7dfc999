"""An hour that is replaced while a report reads it: the answer is of the version that was in force first."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpucost.core.access import FULL_ACCESS
from gpucost.core.errors import SourceError
from gpucost.core.hour_record import Line
from gpucost.core.hours import HOUR, floor_hour
from gpucost.core.ledger import Manifest
from gpucost.core.query.cost_query import CostQuery
from gpucost.core.query.periods import Period
from gpucost.reports.cost_reader import CostReader
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.rollups import RollupStore
from tests.conftest import DynamoTable
from tests.records import amount, line, record

NOW = floor_hour(datetime.now(UTC))
PERIOD = Period(NOW - HOUR, NOW)
QUESTION = CostQuery(PERIOD, "hour", ("workload",))


class Restless(Ledger):
    """The real ledger, in which somebody else replaces the hour whenever its lines are about to be read."""

    def __init__(self, table: DynamoTable) -> None:
        super().__init__(DynamoDBTable(*table))
        self.price = 1
        self.replace()

    def replace(self) -> None:
        self.price += 1
        restated_line = line(usd=str(self.price))._replace(waste_usd=amount(self.price - 1), effective_usd=amount(1))
        made = record([restated_line], hour=PERIOD.start)
        replacing = self.manifest("demo", PERIOD.start)
        self.publish(made, replacing=replacing, settings_version=1, now=datetime.now(UTC))

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        self.replace()
        return super().lines_of(manifest, business_unit)


class Bare(Ledger):
    """The real ledger, whose lines have expired."""

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        return []


def read(table: DynamoTable, ledger: Ledger, question: CostQuery = QUESTION) -> Any:
    return CostReader(ledger, RollupStore(DynamoDBTable(table.client, table.name)), FULL_ACCESS).read(
        question, ["demo"]
    )


def test_repeatedly_restated_hour_is_reported_as_first_read(table: DynamoTable) -> None:
    ledger = Restless(table)
    for price in (2, 3, 4):
        period_costs = read(table, ledger)
        (costs,) = period_costs.cells.values()
        assert costs.allocated_usd == period_costs.totals().costs.allocated_usd == amount(price)


def test_rows_that_differ_from_sums_are_an_error(table: DynamoTable) -> None:
    Restless(table)
    with pytest.raises(SourceError, match="do not add up to its sums, because lines of its hours have expired"):
        read(table, Bare(DynamoDBTable(*table)))
    period_costs = read(table, Bare(DynamoDBTable(*table)), CostQuery(PERIOD, "hour", ("business_unit", "namespace")))
    assert period_costs.totals() is not None, "the remedy: group by business_unit and namespace only"
