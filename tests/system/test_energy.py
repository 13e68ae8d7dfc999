"""The energy of the simulated fleet through a real Prometheus, compared with the truth; and what it costs to read."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.power import ENERGY_COUNTER
from gpucost_devstack.fleet.scenarios.energy import scenarios
from gpucost_devstack.prometheus import running_prometheus
from tests.system.fleet_truth import Hours, ask, assert_energy
from tests.system.limited import limited
from tests.system.test_economy import attribute, cluster
from tests.system.timeline import Timeline

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
SCENARIOS = {scenario.name: scenario for scenario in scenarios()}
CASES = [(name, hour) for name, scenario in SCENARIOS.items() for hour in scenario.hours]
OFF = "energy: {enabled: false}"


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hours]:
    folder = tmp_path_factory.mktemp("energy")
    metrics = folder / "metrics.om"
    openmetrics.write(list(SCENARIOS.values()), BASE, metrics)
    with running_prometheus(metrics) as url:
        yield ask(list(SCENARIOS.values()), url, BASE, folder)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_energy_matches_the_truth(attributed: Hours, name: str, number: int) -> None:
    assert_energy(SCENARIOS[name], number, attributed[name, number])


def test_emissions_are_those_of_the_grid_and_the_data_center(attributed: Hours) -> None:
    """0.285 kWh in Ireland: 0.2786 kg/kWh × 1.135."""
    lines = {line["pod"]: line for line in attributed["energy", 0]["lines"]}
    assert str(lines["steady-n1"]["co2e_kg"]) == "0.090120135"


def test_hours_of_a_driver_that_was_not_loaded_add_up_to_its_counter(attributed: Hours) -> None:
    """300 W, over two hours with a gap around the edge between them."""
    lines = [
        line
        for number in (0, 1)
        for line in attributed["energy-gap-56-counter", number]["lines"]
        if line["pod"] == "steady-n1"
    ]
    assert float(sum(line["energy_kwh"] for line in lines)) == pytest.approx(2 * 0.285, abs=1e-9)


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
