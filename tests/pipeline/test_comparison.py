"""Comparisons of split policies: the same node price, split differently, from stored usage."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest

from gpucost.core.amounts import SCALE
from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR as HOUR_LENGTH
from gpucost.core.pricing.price_split import InstanceShape
from gpucost.pipeline.split_comparison import SplitComparer
from gpucost.storage.ports import Table
from gpucost_cli import hours_commands
from tests.pipeline.restated import System
from tests.records import HOUR, amount

NOW = datetime.now(UTC).replace(microsecond=0)
DOCUMENT = {
    "clusters": [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9"}}],
    "pricing": {"source": "rates", "rates": [{"node_hourly_usd": 10}], "split": {"gpu": 3, "vcpu": 0.5, "gib": 0.25}},
}


@pytest.fixture
def system(ledger_table: Table) -> System:
    system = System(ledger_table)
    system.metrics.instance_type = "g5.2gpus"
    system.store.push(json.dumps(DOCUMENT), author="me", now=NOW)
    system.book.update_shapes([InstanceShape("g5.2gpus", 2, 8, 32 * 1024)], rated_until=HOUR, now=NOW)
    return system


def test_every_policy_sums_to_the_same_node_cost(system: System) -> None:
    system.attribute(hours=3, version=2)
    comparison = SplitComparer(system.store, system.ledger, system.pricer).compare(
        ["demo"], HOUR, HOUR + 3 * HOUR_LENGTH
    )
    # One of two GPUs is held: half of the GPUs' part of $10, three times. By hand: scad 18 / (18 + 7.2 + 3.2), opencost
    # 1.9 / (1.9 + 0.252888 + 0.135584), own 6 / (6 + 4 + 8).
    parts = {
        "gpu-bears-all": Fraction(1),
        "scad": Fraction(180, 284),
        "opencost": Fraction(1900000, 2288472),
        "datadog": Fraction(95, 100),
        "own": Fraction(1, 3),
    }
    assert {sums.policy_name for sums in comparison} == parts.keys()
    for sums in comparison:
        assert abs(Fraction(sums.costs_by_unit["a"].allocated_usd, SCALE) - 15 * parts[sums.policy_name]) <= Fraction(
            3, 10**12
        )
        assert sums.capacity is not None
        assert (sums.hour_count, sums.capacity.node_cost_usd, sums.notes) == (3, amount(30), {})
        assert sums.capacity.host_usd == amount(30) - 3 * amount(10 * parts[sums.policy_name])


def test_comparison_changes_nothing_and_skips_hours_without_usage(system: System) -> None:
    system.attribute(hours=1, version=2)
    before = system.ledger.manifests("demo", HOUR, HOUR + 5 * HOUR_LENGTH)
    comparison = SplitComparer(system.store, system.ledger, system.pricer).compare(
        ["demo"], HOUR, HOUR + 5 * HOUR_LENGTH
    )
    assert {sums.hour_count for sums in comparison} == {1}
    assert system.ledger.manifests("demo", HOUR, HOUR + 5 * HOUR_LENGTH) == before


def test_missing_price_under_a_policy_is_null_with_a_note(system: System) -> None:
    system.metrics.instance_type = "x9.unheard-of"
    system.attribute(hours=1, version=2)
    comparison = SplitComparer(system.store, system.ledger, system.pricer).compare(["demo"], HOUR, HOUR + HOUR_LENGTH)
    shown = {sums.policy_name: sums.costs_by_unit["a"].figures()["allocated_usd"] for sums in comparison}
    assert shown == {"gpu-bears-all": 5, "datadog": Decimal("4.75"), "scad": None, "opencost": None, "own": None}
    assert hours_commands.amounts_by_policy(comparison, "a") == [*shown.values()]
    for sums in comparison:
        assert bool(sums.notes) == (shown[sums.policy_name] is None)
        assert sums.capacity is not None
        assert (sums.capacity.figures()["node_cost_usd"] is None) == (shown[sums.policy_name] is None)


def test_hours_in_two_currencies_are_not_added(system: System) -> None:
    system.attribute(hours=2, version=2)
    pricing = {**DOCUMENT["pricing"], "currency": "EUR"}  # type: ignore[dict-item]
    system.store.push(json.dumps({**DOCUMENT, "pricing": pricing}), author="me", now=NOW)
    system.restate(version=3)
    comparison = SplitComparer(system.store, system.ledger, system.pricer)
    assert {sums.currency for sums in comparison.compare(["demo"], HOUR, HOUR + HOUR_LENGTH)} == {"EUR"}
    with pytest.raises(InvalidInputError, match="the hours are in EUR and USD, which cannot be added up"):
        comparison.compare(["demo"], HOUR, HOUR + 2 * HOUR_LENGTH)
