"""Shared business units and hours below their coverage threshold, through a real Prometheus."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from gpucost_devstack.fleet import truth
from tests.system.fleet_blocks import BASE, SHARED_UNITS, UNSEEN
from tests.system.fleet_truth import PRICE, Hours, ask, assert_identity, near

UNITS = {"gpu-operator": "platform", "monitoring": "platform", "research-nlp": "research"}
AMOUNTS = (
    "allocated_gpu_hours",
    "effective_gpu_hours",
    "unmeasured_gpu_hours",
    "allocated_usd",
    "effective_usd",
    "waste_usd",
    "unmeasured_usd",
)


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory, fleet_url: str) -> Hours:
    scenarios = [*(shared.scenario for shared in SHARED_UNITS.values()), *UNSEEN.values()]
    return ask(scenarios, fleet_url, BASE, tmp_path_factory.mktemp("fleet-units"))


@pytest.mark.parametrize("name", SHARED_UNITS)
def test_shared_unit_cost_is_distributed_to_the_others(attributed: Hours, name: str) -> None:
    shared, hour = SHARED_UNITS[name], attributed[name, 0]
    assert_identity(shared.scenario, 0, hour)
    for true in truth.true_hour(shared.scenario, 0).lines:
        pod_lines = [line for line in hour["lines"] if line["uid"] == true.pod.id]
        unit = UNITS.get(true.pod.namespace, true.pod.namespace)
        passed_on = unit == "platform" and bool(shared.allocation_shares)
        payers = shared.allocation_shares if passed_on else {unit: Fraction(1)}
        assert sorted(line["business_unit"] for line in pod_lines) == sorted(payers)
        for line in pod_lines:
            assert (line.get("shared_from") or "") == ("platform" if passed_on else "")
            part = payers[line["business_unit"]]
            assert_part(line, true, part)
        if not shared.allocation_shares:
            continue
        (whole,) = [line for line in attributed["shared-not", 0]["lines"] if line["uid"] == true.pod.id]
        for amount in AMOUNTS:
            assert sum(line[amount] for line in pod_lines) == whole[amount], (
                f"{true.pod.name} {amount} is not split exactly"
            )


def assert_part(line: Any, true: truth.TrueLine, part: Fraction) -> None:
    """Check a unit's share of every amount, up to the last stored digit."""
    assert true.effective_gpu_hours is not None
    used, held, unseen = true.effective_gpu_hours.value, true.allocated_gpu_hours.value, true.unmeasured_gpu_hours.value
    expected = dict(zip(AMOUNTS, (held, used, unseen, held, used, held - used - unseen, unseen), strict=True))
    for name, amount in expected.items():
        price = PRICE if name.endswith("_usd") else 1
        near(line[name], truth.ToleratedAmount(amount * price * part), f"{true.pod.name} {name}")


@pytest.mark.parametrize("name", SHARED_UNITS)
def test_business_units_add_up_to_the_total(attributed: Hours, name: str) -> None:
    hour = attributed[name, 0]
    for amount in AMOUNTS:
        total = sum(unit[amount] for unit in hour["business_units"])
        assert total == hour["totals"][amount]
        assert total == sum(line[amount] or 0 for line in hour["lines"])


@pytest.mark.parametrize("name", UNSEEN)
def test_hour_below_coverage_has_no_figures(attributed: Hours, name: str) -> None:
    """Figures are null, not zero, because coverage is below its threshold."""
    hour = attributed[name, 0]
    assert hour["status"] == "incomplete"
    assert hour["lines"] == []
    assert set(hour["totals"].values()) == {None}
    coverage = hour["coverage"]["allocation"]
    assert coverage is None or coverage < Decimal("0.1")
