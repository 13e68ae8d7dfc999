"""Pods with fractions of GPUs through a real Prometheus and the real command, compared with the truth."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.scenarios import gpu_fractions
from gpucost_devstack.prometheus import running_prometheus
from tests.system.fleet_truth import Hours, ask, assert_identity, assert_lines

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
SCENARIOS = {scenario.name: scenario for scenario in gpu_fractions.scenarios()}
CASES = [(name, hour) for name, scenario in SCENARIOS.items() for hour in scenario.hours]


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hours]:
    folder = tmp_path_factory.mktemp("fractions")
    openmetrics.write(list(SCENARIOS.values()), BASE, folder / "metrics.om")
    with running_prometheus(folder / "metrics.om") as url:
        yield ask(list(SCENARIOS.values()), url, BASE, folder)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_every_line_matches_the_truth(attributed: Hours, name: str, number: int) -> None:
    assert_lines(SCENARIOS[name], number, attributed[name, number])


@pytest.mark.parametrize(("name", "number"), CASES)
def test_every_part_of_the_identity_matches_the_truth(attributed: Hours, name: str, number: int) -> None:
    assert_identity(SCENARIOS[name], number, attributed[name, number])


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.expected_notes])
def test_expected_notes_are_present(attributed: Hours, name: str) -> None:
    for note in SCENARIOS[name].expected_notes:
        assert any(note in text for text in attributed[name, 0]["notes"])


def test_four_quarters_cost_a_gpu(attributed: Hours) -> None:
    """At $10 per GPU-hour: four pods of $2.50, of which 0.25, 0.1, 0.2 and 0.05 GPUs worked."""
    hour = attributed["hami-quarters", 0]
    lines = {line["pod"]: (line["allocated_usd"], line["effective_usd"], line["waste_usd"]) for line in hour["lines"]}
    assert lines == {"p0": (2.5, 2.5, 0), "p1": (2.5, 1, 1.5), "p2": (2.5, 2, 0.5), "p3": (2.5, 0.5, 2)}
    assert (hour["totals"]["unallocated_usd"], hour["totals"]["node_cost_usd"]) == (30, 40)
