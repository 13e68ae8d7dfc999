"""What it costs to read the energy of GPUs, and energy of a GPU whose holder changes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.power import ENERGY_COUNTER, JOULES_COUNTER
from gpucost_devstack.fleet.scenarios.energy import pods_in_turn
from gpucost_devstack.fleet.scenarios.energy import scenarios as energy_scenarios
from gpucost_devstack.prometheus import running_prometheus
from tests.system.fleet_truth import ask, assert_energy
from tests.system.limited import limited
from tests.system.metered_hours import attribute, cluster
from tests.system.timeline import Timeline

OFF = "energy: {enabled: false}"


def queries_of(prometheus: Callable[[str], str], timeline: Timeline, more: str = "") -> list[str]:
    with limited(prometheus(timeline.text()), 10**9) as (url, traffic):
        attribute(url, more=more)
    return list(traffic.queries)


def test_energy_takes_no_further_query(prometheus: Callable[[str], str]) -> None:
    """Counters that were in every scrape are read with the devices, and clusters without them have no further query."""
    without = queries_of(prometheus, cluster(8))
    with_counter = cluster(8)
    for i in range(8):
        pod_labels = {"exported_pod": f"p{i}", "exported_namespace": "team"}
        with_counter.device(7e9, -65, node=f"n{i // 4}", gpu=i % 4, signal=ENERGY_COUNTER, **pod_labels)
    assert len(queries_of(prometheus, with_counter)) == len(without)
    assert len(queries_of(prometheus, cluster(8), OFF)) == len(without)


def test_energy_that_is_off_is_not_queried(prometheus: Callable[[str], str]) -> None:
    assert not any(ENERGY_COUNTER in query for query in queries_of(prometheus, cluster(4), OFF))
    assert any(ENERGY_COUNTER in query for query in queries_of(prometheus, cluster(4)))


def test_pods_that_hold_a_gpu_in_turn_have_the_energy_of_their_time(tmp_path: Path) -> None:
    scenario, base = pods_in_turn(), datetime(2026, 11, 19, 10, tzinfo=UTC)
    openmetrics.write([scenario], base, tmp_path / "metrics.om")
    with running_prometheus(tmp_path / "metrics.om") as url:
        hour = ask([scenario], url, base, tmp_path)[scenario.name, 0]
    assert_energy(scenario, 0, hour)
    assert {line["pod"]: float(line["energy_kwh"]) for line in hour["lines"]} == {"ended": 0.077, "started": 0.105}


def test_energy_of_the_counter_in_joules_is_that_of_the_one_in_millijoules(tmp_path: Path) -> None:
    """dcgm-exporter 4.9 has another counter. It counts whole joules: a 3,600,000th of a kWh for each GPU."""
    base = datetime(2026, 11, 19, 10, tzinfo=UTC)
    old = next(scenario for scenario in energy_scenarios() if scenario.name == "energy")
    assert old.dcgm is not None
    new = replace(
        old, name="renamed", dcgm=replace(old.dcgm, energy_metrics=(JOULES_COUNTER, "DCGM_FI_DEV_BOARD_POWER_WATTS"))
    )
    openmetrics.write([old, new], base, tmp_path / "metrics.om")
    with running_prometheus(tmp_path / "metrics.om") as url:
        hours = ask([old, new], url, base, tmp_path)
    of_old, of_new = (
        {line["pod"]: line["energy_kwh"] for line in hours[name, 0]["lines"]} for name in (old.name, new.name)
    )
    assert of_old.keys() == of_new.keys()
    assert max(abs(of_new[pod] - of_old[pod]) for pod in of_old) <= 4 / Decimal(3_600_000)
