"""A late delivery of a message does not overwrite the work that others did in the meantime."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gpucost.core.errors import ConflictError, MetricsUnavailableError
from gpucost.core.hours import HOUR as HOUR_LENGTH
from gpucost.core.metering.observations import Observation
from gpucost.core.pricing.prices import Price
from gpucost.pipeline.attribute import AttributeService
from gpucost.runtime.messages import HoursDue
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from tests.conftest import DynamoTable
from tests.pipeline.restated import NOW, OnePod, System, document
from tests.records import HOUR, amount


class InterleavedTable:
    """The real table, which runs a function before its first call of a name."""

    def __init__(self, table: Table, action: Callable[[], object], call: str) -> None:
        self._table, self._actions, self._call = table, [action], call

    def __getattr__(self, name: str) -> Any:
        if name == self._call and self._actions:
            self._actions.pop()()
        return getattr(self._table, name)


def interleaved(table: Table, action: Callable[[], object], call: str = "transact") -> Ledger:
    """A ledger that runs a function before its first transaction, or before its first call of another name."""
    interleaved_table: Any = InterleavedTable(table, action, call)
    return Ledger(interleaved_table)


def test_late_delivery_keeps_the_usage_that_later_versions_use(ledger_table: Table) -> None:
    system = System(ledger_table)
    system.push(20)

    def meanwhile() -> None:
        system.attribute()
        assert system.restate(version=2) == [2]

    system.attribute(ledger=interleaved(ledger_table, meanwhile))
    system.push(30)
    assert system.restate(version=3) == [3]
    assert system.line().allocated_usd == amount(30)


def test_late_restatement_keeps_the_chain_and_newer_settings(ledger_table: Table) -> None:
    system = System(ledger_table)
    system.attribute()
    system.push(20)

    def meanwhile() -> None:
        assert system.restate(version=2) == [2]
        system.push(30)
        assert system.restate(version=3) == [3]

    assert system.restate(version=2, ledger=interleaved(ledger_table, meanwhile)) == [3]
    assert system.restate(version=2) == [3], "delivered again"
    assert system.line().allocated_usd == amount(30)
    assert [
        restatement.after.costs.allocated_usd
        for restatement in system.ledger.restatements("demo", HOUR, HOUR + HOUR_LENGTH)
    ] == [amount(20), amount(30)]


def test_older_settings_do_not_replace_newer_ones_without_changes(ledger_table: Table) -> None:
    system = System(ledger_table)
    system.attribute()
    system.push(20)
    system.push(12)
    assert system.restate(version=3) == [2], "the same figures, now as version 3"
    assert system.restate(version=2) == [2], "it was received first and delivered last"
    assert system.line().allocated_usd == amount(12)
    assert system.ledger.restatements("demo", HOUR, HOUR + HOUR_LENGTH) == [], "nothing changed"
    system.push(20)
    assert system.restate(version=4) == [3]
    assert [restatement.version for restatement in system.ledger.restatements("demo", HOUR, HOUR + HOUR_LENGTH)] == [3]


def test_cached_settings_of_a_warm_function_do_not_replace_newer_ones(ledger_table: Table) -> None:
    system = System(ledger_table)
    system.attribute()
    system.push(20)
    assert system.store.current().version == 2
    others = SettingsDocumentStore(ledger_table, clock=lambda: NOW)
    others.push(document(12), author="me", now=NOW)
    assert system.store.current().version == 2, "less than a minute old"
    assert system.restate(version=2) == [2]
    assert system.line().allocated_usd == amount(12)


def test_later_price_is_rated_with_the_requested_settings(ledger_table: Table) -> None:
    system = System(ledger_table)
    system.metrics.instance_type = "p4d.24xlarge"
    system.metrics.labels = {"label_topology_kubernetes_io_region": "eu-west-1"}
    system.push(0, pricing={"source": "on-demand"})
    system.attribute(version=2)
    system.push(0, pricing={"source": "on-demand", "discounts": [{"percent": 30}]})
    assert system.restate(version=3) == [2], "there is no price yet"
    applies_to = {"instance_type": "p4d.24xlarge", "region": "eu-west-1"}
    price = Price("on-demand", "node-hour", Decimal(32), applies_to, "USD", HOUR - timedelta(days=1), None)
    system.book.merge_prices("on-demand", [price], rated_until=NOW, now=NOW)
    assert system.restate(version=None) == [3]
    assert system.line().allocated_usd == amount("2.8"), "an eighth of the node, with the discount"


def test_winning_restatement_of_two_with_the_same_figures_is_listed(ledger_table: Table) -> None:
    system = System(ledger_table)
    system.attribute()
    system.push(20)

    def meanwhile() -> None:
        assert system.restate(why="approved by finance") == [2]

    late = interleaved(ledger_table, meanwhile, "put_all")
    assert system.restate(why="just trying", ledger=late) == [2]
    (restatement,) = system.ledger.restatements("demo", HOUR, HOUR + HOUR_LENGTH)
    assert restatement.reason == "approved by finance"


class UnreachableMetrics(OnePod):
    """A metrics source that is unavailable."""

    def observe(self, hours: Sequence[datetime]) -> list[Observation]:
        raise MetricsUnavailableError("answered 503, 4 times")


def test_hour_is_tried_twice_with_the_shortest_look_back(ledger_table: Table) -> None:
    """At the first attempt an outage may continue into the next hour."""
    system = System(ledger_table)
    system.push(12, lookback_hours=1)
    system.metrics = UnreachableMetrics()
    work = HoursDue(cluster="demo", first_hour=HOUR, hours=1, settings_version=2, origin="schedule", correlation_id="c")
    for minutes, next_attempt in ((65, HOUR + 2 * HOUR_LENGTH), (125, None)):
        at = HOUR + timedelta(minutes=minutes)

        def clock(at: datetime = at) -> datetime:
            return at

        service = AttributeService(
            system.store, system.ledger, system.rollups, system.reader, system.bus, pricer=system.pricer, clock=clock
        )
        service.attribute(work)
        manifest = system.ledger.manifest("demo", HOUR)
        assert manifest is not None
        assert manifest.next_attempt_at == next_attempt


def test_figures_are_published_after_an_incomplete_concurrent_delivery(ledger_table: Table) -> None:
    system = System(ledger_table)
    reachable_metrics = system.metrics

    def meanwhile() -> None:
        system.metrics = UnreachableMetrics()
        system.attribute()

    class Slow(OnePod):
        def observe(self, hours: Sequence[datetime]) -> list[Observation]:
            meanwhile()
            return reachable_metrics.observe(hours)

    system.metrics = Slow()
    system.attribute()
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert (manifest.status, manifest.version, manifest.next_attempt_at) == ("complete", 2, None)
    assert system.line().allocated_usd == amount(12)


def test_hour_blocked_by_other_transactions_is_delivered_again(table: DynamoTable) -> None:
    system = System(DynamoDBTable(*table))
    reachable_metrics, system.metrics = system.metrics, UnreachableMetrics()
    system.attribute()
    system.metrics = reachable_metrics

    class Busy:
        def __getattr__(self, name: str) -> Any:
            return busy if name == "transact_write_items" else getattr(table.client, name)

    def busy(**_: Any) -> None:
        reasons = [{"Code": "TransactionConflict"}, {"Code": "None"}]
        response: Any = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
        raise ClientError(response, "TransactWriteItems")

    with pytest.raises(ConflictError):
        system.attribute(ledger=Ledger(DynamoDBTable(Busy(), table.name)), origin="backfill")
    system.attribute(origin="backfill")
    assert system.line().allocated_usd == amount(12)


def test_hour_records_that_a_backfill_requested_it_first(ledger_table: Table) -> None:
    system = System(ledger_table)
    system.attribute(origin="backfill")
    system.push(20)
    system.restate(version=2)
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert (manifest.version, manifest.is_backfilled) == (2, True)
