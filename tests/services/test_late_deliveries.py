"""Two deliveries of one piece of work, of which one comes late: it takes nothing from what others did meanwhile."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gpucost.adapters.dynamodb.ledger import DynamoLedger
from gpucost.domain.hours import HOUR as ONE_HOUR
from gpucost.domain.observations import Observation
from gpucost.errors import ConflictError, MetricsUnavailableError
from tests.conftest import DynamoTable
from tests.records import HOUR
from tests.services.test_restate import OnePod, System


class Meanwhile:
    """The real client; something else happens right before its first transaction."""

    def __init__(self, client: Any, what: Callable[[], object]) -> None:
        self._client, self._what = client, [what]

    def __getattr__(self, name: str) -> Any:
        if name == "transact_write_items" and self._what:
            self._what.pop()()
        return getattr(self._client, name)


def test_a_late_delivery_leaves_the_usage_that_later_versions_stand_on(table: DynamoTable) -> None:
    system = System(table)
    system.push(20)

    def meanwhile() -> None:
        system.attribute()
        assert system.restate(version=2) == [2]

    system.attribute(ledger=DynamoLedger(Meanwhile(table.client, meanwhile), table.name))
    system.push(30)
    assert system.restate(version=3) == [3]
    assert system.line().allocated_usd == 30


def test_a_late_restatement_leaves_the_chain_and_newer_settings_as_they_are(table: DynamoTable) -> None:
    system = System(table)
    system.attribute()
    system.push(20)

    def meanwhile() -> None:
        assert system.restate(version=2) == [2]
        system.push(30)
        assert system.restate(version=3) == [3]

    assert system.restate(version=2, ledger=DynamoLedger(Meanwhile(table.client, meanwhile), table.name)) == [3]
    assert system.restate(version=2) == [3], "delivered again"
    assert system.line().allocated_usd == 30
    assert [one.after.costs.allocated_usd for one in system.ledger.restatements("demo", HOUR, HOUR + ONE_HOUR)] == [
        20,
        30,
    ]


def test_newer_settings_under_which_nothing_changes_are_not_undone_by_older_ones(table: DynamoTable) -> None:
    system = System(table)
    system.attribute()
    system.push(20)
    system.push(12)
    assert system.restate(version=3) == [1], "it comes out as it was"
    assert system.restate(version=2) == [1], "which had come first, and is delivered last"
    assert system.line().allocated_usd == 12


class Away(OnePod):
    """A metrics source that does not answer."""

    def observe(self, hours: Sequence[datetime]) -> list[Observation]:
        raise MetricsUnavailableError("answered 503, 4 times")


def test_figures_come_in_force_though_another_delivery_found_none_first(table: DynamoTable) -> None:
    system = System(table)
    there = system.metrics

    def meanwhile() -> None:
        system.metrics = Away()
        system.attribute()

    class Slow(OnePod):
        def observe(self, hours: Sequence[datetime]) -> list[Observation]:
            meanwhile()
            return there.observe(hours)

    system.metrics = Slow()
    system.attribute()
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert (manifest.status, manifest.version, manifest.next_attempt_at) == ("complete", 2, None)
    assert system.line().allocated_usd == 12


def test_figures_that_others_transactions_keep_from_trying_are_delivered_again(table: DynamoTable) -> None:
    system = System(table)
    there, system.metrics = system.metrics, Away()
    system.attribute()
    system.metrics = there

    class Busy:
        def __getattr__(self, name: str) -> Any:
            return busy if name == "transact_write_items" else getattr(table.client, name)

    def busy(**_: Any) -> None:
        reasons = [{"Code": "TransactionConflict"}, {"Code": "None"}]
        response: Any = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
        raise ClientError(response, "TransactWriteItems")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(ConflictError):
        patch.setattr("gpucost.adapters.dynamodb.table.ROUNDS", 2)
        system.attribute(ledger=DynamoLedger(Busy(), table.name), origin="backfill")
    system.attribute(origin="backfill")
    assert system.line().allocated_usd == 12


def test_an_hour_remembers_that_a_backfill_asked_for_it_first(table: DynamoTable) -> None:
    system = System(table)
    system.attribute(origin="backfill")
    system.push(20)
    system.restate(version=2)
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert (manifest.version, manifest.backfilled) == (2, True)
