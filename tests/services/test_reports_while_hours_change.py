"""An hour that is replaced while a report reads it: the answer is of one version, never of two."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from gpucost.adapters.dynamodb.ledger import DynamoLedger
from gpucost.adapters.dynamodb.rollups import DynamoRollups
from gpucost.domain.access import EVERYTHING
from gpucost.domain.hours import HOUR as ONE
from gpucost.domain.model import Line
from gpucost.domain.quanta import costs_of
from gpucost.domain.reporting.periods import Period
from gpucost.domain.reporting.question import Question
from gpucost.errors import SourceError
from gpucost.services.reports.reading import Reader
from tests.conftest import DynamoTable
from tests.records import HOUR, line, record

QUESTION = Question(Period(HOUR, HOUR + ONE), "hour", ("workload",))


class Restless(DynamoLedger):
    """The real ledger, in which somebody else replaces the hour whenever its lines are about to be read."""

    def __init__(self, table: DynamoTable, times: int) -> None:
        super().__init__(table.client, table.name)
        self.times = times
        self.price = Decimal(1)
        self.replace()

    def replace(self) -> None:
        self.price += 1
        dearer = line(usd=str(self.price))._replace(waste_usd=self.price - 1, effective_usd=Decimal(1))
        now = HOUR + ONE
        self.publish(record([dearer]), replacing=self.manifest("demo", HOUR), settings_version=1, now=now)

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        if self.times:
            self.times -= 1
            self.replace()
        return super().lines(cluster, hour, business_unit)


def read(table: DynamoTable, times: int) -> Any:
    ledger = Restless(table, times)
    return Reader(ledger, DynamoRollups(table.client, table.name), EVERYTHING).read(QUESTION, ["demo"])


@pytest.mark.parametrize("times", [0, 1, 2])
def test_the_answer_is_of_one_version(table: DynamoTable, times: int) -> None:
    found, known = read(table, times)
    (costs,) = costs_of([*found.cells.values()])
    assert costs.allocated_usd == known.totals().costs.allocated_usd == 2 + times


def test_an_hour_that_never_rests_is_not_answered(table: DynamoTable) -> None:
    with pytest.raises(SourceError, match="do not agree: its hours are being replaced"):
        read(table, 99)
