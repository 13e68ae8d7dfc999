"""Restatements from stored usage, each written once, completely, and with its reason."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from gpucost.core.amounts import Costs, Totals, to_decimal
from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR as HOUR_LENGTH
from gpucost.core.ledger import Restatement
from gpucost.runtime.messages import HoursToRestate
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost.storage.table import key_of
from tests.conftest import DynamoTable
from tests.pipeline.restated import NOW, System
from tests.records import HOUR, amount, record


class KilledClient:
    """The real client, which raises at a call as if the process was killed."""

    def __init__(self, client: Any, at: int) -> None:
        self._client = client
        self._left = at

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def counted(**arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt("killed")
            return call(**arguments)

        return counted


def allocated(change: Restatement) -> dict[str, tuple[int, int]]:
    """Before and after by business unit, in whole dollars."""
    return {
        unit: (int(to_decimal(old.allocated_usd)), int(to_decimal(new.allocated_usd)))
        for unit, (old, new) in change.changed_units.items()
    }


@pytest.fixture
def system(ledger_table: Table) -> System:
    return System(ledger_table)


def test_new_price_restates_the_hour_from_stored_usage(system: System) -> None:
    system.attribute()
    system.push(20)
    assert system.restate() == [2]
    assert system.metrics.queries == 1
    assert system.line().allocated_usd == amount(20)
    (summary,) = system.ledger.summaries("demo", HOUR, HOUR + HOUR_LENGTH)
    assert summary.totals is not None
    assert summary.totals.capacity is not None
    assert (summary.manifest.version, summary.totals.capacity.node_cost_usd) == (2, amount(40))
    assert [(event.record_version, event.origin) for event in system.bus.closed] == [(1, "schedule"), (2, "backfill")]


def test_implausibly_large_hour_becomes_incomplete_and_is_tried_again(system: System) -> None:
    """Costs of a request for 1e308 units."""
    system.attribute(hours=2)
    before = system.ledger.newest_version_of_hour("demo", HOUR)
    assert before is not None
    usage = system.ledger.usage(before)
    assert usage is not None
    (pod,) = usage.pods
    forged = replace(usage, pods=(replace(pod, units=10**308),))
    costs = Costs(allocated_gpu_hours=amount("1e308"), allocated_usd=amount("1e308"), waste_usd=amount("1e308"))
    absurd = replace(record(hour=HOUR), status="complete", totals=Totals(costs, None))
    system.ledger.publish(absurd, replacing=before, settings_version=1, now=NOW, usage=forged)
    system.push(20)
    assert system.restate(hours=2) == [3, 2], "the next hour is restated nevertheless"
    after = system.ledger.newest_version_of_hour("demo", HOUR)
    assert after is not None
    assert (after.status, after.next_attempt_at is not None) == ("incomplete", True)
    assert after.notes[0].startswith("suspect samples: figures exceed 1,000,000,000,000 USD or GPU-hours")
    system.attribute(version=2, origin="backfill")
    assert system.line().allocated_usd == amount(20)


def test_changes_and_reason_are_stored_with_the_hour(system: System) -> None:
    system.attribute()
    assert system.ledger.restatements("demo", HOUR, HOUR + HOUR_LENGTH) == []
    system.push(20)
    system.restate()
    system.push(6)
    system.restate(version=3)
    first, second = system.ledger.restatements("demo", HOUR, HOUR + HOUR_LENGTH)
    assert (first.version, first.reason, first.settings_version) == (2, "new price", 2)
    assert first.before is not None
    assert second.before is not None
    assert (first.before.costs.allocated_usd, first.after.costs.allocated_usd) == (amount(12), amount(20))
    assert (second.before.costs.allocated_usd, second.after.costs.allocated_usd) == (amount(20), amount(6))
    assert allocated(second) == {"a": (20, 6)}


def test_departed_cluster_is_restated_with_new_units_and_its_last_prices(system: System) -> None:
    """Its Capacity Blocks were removed with it. Blocks that name no cluster belong to other clusters now."""
    system.metrics.instance_type = "p5.48xlarge"
    clusters = [{"name": name, "prometheus": {"url": "http://127.0.0.1:9"}} for name in ("demo", "west")]
    block = {
        "reservation_id": "cr-1",
        "instance_type": "p5.48xlarge",
        "instances": 1,
        "fee_usd": 240,
        "from": (HOUR - timedelta(hours=12)).isoformat(),
        "until": (HOUR + timedelta(hours=12)).isoformat(),
        "cluster": "demo",
    }
    pricing = {"gpu_hourly_usd": 12}
    system.push(
        0, clusters=clusters, pricing={**pricing, "sources": ["capacity-block", "constant"], "capacity_blocks": [block]}
    )
    system.attribute(version=2)
    before = system.ledger.summaries("demo", HOUR, HOUR + HOUR_LENGTH)[0].totals
    units = [{"name": "research", "namespaces": ["a"]}]
    system.push(0, clusters=clusters[1:], pricing={"source": "constant", "gpu_hourly_usd": 99}, business_units=units)
    assert system.restate(version=3) == [2]
    (after,) = system.ledger.summaries("demo", HOUR, HOUR + HOUR_LENGTH)
    assert after.totals == before
    assert {unit for unit, _ in after.costs} == {"research"}
    assert after.totals is not None
    assert after.totals.capacity is not None
    assert after.totals.capacity.node_cost_usd > 0


@pytest.mark.parametrize(
    ("kind", "damage"), [("summaries", {"b": {"B": b"cut"}}), ("summaries", None), ("nodes", {"b": {"B": b"cut"}})]
)
def test_damaged_or_missing_figures_are_written_again_unchanged(
    system: System, kind: str, damage: dict[str, Any] | None
) -> None:
    system.attribute()
    sound = dict(system.ledger.summaries("demo", HOUR, HOUR + HOUR_LENGTH)[0].costs)
    nodes = system.ledger.nodes_and_charges("demo", HOUR)
    (item,) = system.table.query(f"C#demo#{kind}")
    system.table.delete_all([key_of(item)])
    if damage:
        system.table.put_all([{**item, **damage}])
    assert system.restate(version=None) == [2]
    (summary,) = system.ledger.summaries("demo", HOUR, HOUR + HOUR_LENGTH)
    assert (dict(summary.costs), system.ledger.nodes_and_charges("demo", HOUR)) == (sound, nodes)
    assert system.restate(version=None) == [2], "listed once"


def test_unchanged_figures_keep_their_version(system: System) -> None:
    system.attribute()
    assert system.restate(version=None) == [1]
    system.push(20)
    assert system.restate() == [2]
    assert system.restate() == [2]
    assert len(system.ledger.restatements("demo", HOUR, HOUR + HOUR_LENGTH)) == 1


def test_business_units_can_be_reorganized_for_past_hours(system: System) -> None:
    system.attribute()
    system.push(12, business_units=[{"name": "reds", "pod_labels": {"team": "red"}}])
    system.restate()
    assert system.line().business_unit == "reds"
    (change,) = system.ledger.restatements("demo", HOUR, HOUR + HOUR_LENGTH)
    assert allocated(change) == {"a": (12, 0), "reds": (0, 12)}


def test_hours_without_figures_or_usage_are_skipped(system: System) -> None:
    incomplete = record(hour=HOUR + HOUR_LENGTH, status="incomplete")
    system.ledger.publish(incomplete, replacing=None, settings_version=1, now=NOW)
    unkept = record(hour=HOUR + 2 * HOUR_LENGTH)
    system.ledger.publish(unkept, replacing=None, settings_version=1, now=NOW)
    system.push(20)
    assert system.restate(hours=4) == []
    manifests = system.ledger.manifests("demo", HOUR, HOUR + 4 * HOUR_LENGTH)
    assert [(manifest.status, manifest.version) for manifest in manifests] == [("incomplete", 1), ("complete", 1)]


def test_cluster_that_was_never_in_the_settings_is_refused(system: System) -> None:
    message = HoursToRestate(
        cluster="other", first_hour=HOUR, hours=1, settings_version=1, reason="new price", correlation_id="c"
    )
    with pytest.raises(InvalidInputError, match="cluster 'other' is not in version 1 of the settings"):
        system.restating(system.ledger).restate(message)


@pytest.mark.tools
def test_run_again_after_a_crash_at_any_call_leads_to_the_same_bill(system: System, table: DynamoTable) -> None:
    system.attribute(hours=24)
    system.push(20)
    hours = 0
    for hours in range(24):
        start = HOUR + hours * HOUR_LENGTH
        message = HoursToRestate(
            cluster="demo", first_hour=start, hours=1, settings_version=2, reason="new price", correlation_id="c"
        )
        killed = Ledger(DynamoDBTable(KilledClient(table.client, hours + 1), table.name))
        try:
            system.restating(killed).restate(message)
        except KeyboardInterrupt:
            system.restating(system.ledger).restate(message)
        else:
            break
    else:
        raise AssertionError("there is always one more call")
    assert hours > 8
    restated = system.ledger.restatements("demo", HOUR, HOUR + hours * HOUR_LENGTH)
    assert [(restatement.hour, restatement.version) for restatement in restated] == [
        (HOUR + at * HOUR_LENGTH, 2) for at in range(hours)
    ]
    assert {restatement.after.costs.allocated_usd for restatement in restated} == {amount(20)}
    for at in range(hours):
        (line,) = system.ledger.lines("demo", HOUR + at * HOUR_LENGTH)
        assert line.allocated_usd == amount(20)
