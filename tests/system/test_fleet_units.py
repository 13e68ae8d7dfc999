"""Shared business units and hours below their coverage threshold, through a real Prometheus."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from gpucost_devstack.fleet import openmetrics, truth
from gpucost_devstack.fleet.scenarios.lifetimes import mixed_lifetimes
from gpucost_devstack.fleet.scenarios.outages import with_scrape_gap
from gpucost_devstack.fleet.scenarios.units import clusters_with_shared_units
from gpucost_devstack.prometheus import running_prometheus
from tests.system.fleet_truth import PRICE, Hours, ask, assert_identity, near

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
SHARED = {shared.scenario.name: shared for shared in clusters_with_shared_units()}
UNSEEN = {
    "nothing-seen": with_scrape_gap(mixed_lifetimes("nothing-seen", hours=(0,)), "allocation", [(-10, 70)]),
    "hardly-seen": with_scrape_gap(mixed_lifetimes("hardly-seen", hours=(0,)), "allocation", [(3, 70)]),
}
UNITS = {"gpu-operator": "platform", "monitoring": "platform", "research-nlp": "research"}
AMOUNTS = ("allocated_gpu_hours", "effective_gpu_hours", "unmeasured_gpu_hours", "allocated_usd", "effective_usd",
           "waste_usd", "unmeasured_usd")  # fmt: skip


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hours]:
    folder = tmp_path_factory.mktemp("fleet-units")
    scenarios = [*(shared.scenario for shared in SHARED.values()), *UNSEEN.values()]
    openmetrics.write(scenarios, BASE, folder / "metrics.om")
    with running_prometheus(folder / "metrics.om") as url:
        yield ask(scenarios, url, BASE, folder)


@pytest.mark.parametrize("name", SHARED)
def test_shared_unit_cost_is_distributed_to_the_others(attributed: Hours, name: str) -> None:
    shared, hour = SHARED[name], attributed[name, 0]
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


@pytest.mark.parametrize("name", SHARED)
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
