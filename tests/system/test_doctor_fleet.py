"""The utilization sources that `gpucost doctor` predicts for the simulated fleet are those of the attributed lines."""

from collections import defaultdict
from datetime import timedelta
from decimal import Decimal

import pytest

from gpucost.settings_document import parse_settings
from gpucost_cli.doctor import ClusterReport, examine_cluster
from gpucost_devstack.fleet.scenario import Scenario
from tests.system.fleet_blocks import BASE, SCENARIOS
from tests.system.fleet_truth import Hours, settings

MINUTE = 45
"""Minute of the first hour at which the doctor runs."""
EXCLUDED = {
    "dcgm-gone-half-way",  # the exporter is gone when the doctor runs
    "claims",  # GPUs held through DRA have no request, and the doctor counts requests
    "processes-uid-always-unknown",  # the doctor asks of each GPU, not of each pod, whether processes are seen
    "containers",  # the doctor does not distinguish sidecars from other init containers
}


FRACTIONS = ("hami-", "kai-", "runai-")
"""Names of clusters with fractions of GPUs begin like this. The doctor has checks of its own for them."""


def _is_steady(scenario: Scenario) -> bool:
    """Whether every pod runs for the whole hour, so that one time represents the hour."""
    return bool(scenario.pods) and all(pod.run_interval[0] <= 0 and pod.run_interval[1] >= 60 for pod in scenario.pods)


STEADY = {
    scenario.name: scenario
    for scenario in SCENARIOS.values()
    if _is_steady(scenario)
    and scenario.name not in EXCLUDED
    and not scenario.name.startswith(FRACTIONS)
    and 0 in scenario.hours
}


def _examined(scenario: Scenario, url: str) -> ClusterReport:
    document = parse_settings(settings([scenario], url, BASE))
    return examine_cluster(document.clusters[0], document, BASE + timedelta(minutes=MINUTE))


@pytest.mark.parametrize("name", STEADY)
def test_predicted_sources_are_those_of_the_lines(fleet_url: str, fleet_hours: Hours, name: str) -> None:
    report, hour = _examined(STEADY[name], fleet_url), fleet_hours[name, 0]
    lines: dict[str, Decimal] = defaultdict(Decimal)
    for line in hour["lines"]:
        lines[line["utilization_source"]] += line["gpu_share"] * line["units"]
    predicted: dict[str, Decimal] = defaultdict(Decimal)
    for held in report.utilization:
        predicted[held.source] += held.gpus
    assert report.attribution != "impossible"
    assert {source: round(gpus, 3) for source, gpus in predicted.items()} == {
        source: round(gpus, 3) for source, gpus in lines.items()
    }


def test_most_of_the_fleet_is_compared() -> None:
    assert len(STEADY) >= 30
