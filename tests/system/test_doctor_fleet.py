"""What `gpucost doctor` foretells of the simulated fleet, beside what attribution then does with it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from devstack.fleet import openmetrics
from devstack.fleet.scenario import Scenario
from devstack.fleet.scenarios import all_scenarios
from devstack.prometheus import running_prometheus
from gpucost.settings_document import parse_settings
from gpucost_cli.doctor import Report, examine
from tests.system.fleet_truth import ask, settings

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
MINUTE = 45
"""Of the first hour, at which the doctor looks."""
BEYOND = {
    "dcgm-gone-half-way",  # the doctor looks when it is gone
    "claims",  # GPUs held through DRA are in no request, and the doctor counts requests
    "containers",  # nor does it tell sidecars from other init containers
}


def _is_steady(scenario: Scenario) -> bool:
    """Whether every pod runs all hour: what is seen at one moment then holds for the hour."""
    return bool(scenario.pods) and all(pod.run_interval[0] <= 0 and pod.run_interval[1] >= 60 for pod in scenario.pods)


STEADY = {one.name: one for one in all_scenarios() if _is_steady(one) and one.name not in BEYOND and 0 in one.hours}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, tuple[Report, Any]]]:
    """What the doctor says of each cluster, and its hour as attributed."""
    folder = tmp_path_factory.mktemp("fleet")
    metrics = folder / "metrics.om"
    openmetrics.write(list(STEADY.values()), BASE, metrics)
    with running_prometheus(metrics) as url:
        hours = ask(list(STEADY.values()), url, BASE, folder)
        yield {name: (_examined(one, url), hours[name, 0]) for name, one in STEADY.items()}


def _examined(scenario: Scenario, url: str) -> Report:
    document = parse_settings(settings([scenario], url, BASE))
    return examine(document.clusters[0], document, BASE + timedelta(minutes=MINUTE))


@pytest.mark.parametrize("name", STEADY)
def test_the_rungs_foretold_are_those_on_the_lines(told: Mapping[str, tuple[Report, Any]], name: str) -> None:
    report, hour = told[name]
    lines: dict[str, Decimal] = defaultdict(Decimal)
    for line in hour["lines"]:
        lines[line["utilization_source"]] += line["gpu_share"] * line["units"]
    foretold: dict[str, Decimal] = defaultdict(Decimal)
    for one in report.utilization:
        foretold[one.source] += one.gpus
    assert report.attribution != "impossible"
    assert {rung: round(gpus, 3) for rung, gpus in foretold.items()} == {
        rung: round(gpus, 3) for rung, gpus in lines.items()
    }


def test_there_are_enough_of_them() -> None:
    assert len(STEADY) >= 30
