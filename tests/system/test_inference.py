"""Inference servers of the simulated fleet through a real Prometheus, compared with the truth; and what it costs."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.inference_servers import KINDS, true_models
from gpucost_devstack.fleet.scenarios.inference import scenarios
from gpucost_devstack.prometheus import running_prometheus
from tests.system.fleet_truth import Hours, ask, assert_identity, assert_lines, near

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
SCENARIOS = {scenario.name: scenario for scenario in scenarios()}
CASES = [(name, hour) for name, scenario in SCENARIOS.items() for hour in scenario.hours]
COSTS = ("allocated", "effective", "unmeasured")


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hours]:
    folder = tmp_path_factory.mktemp("inference")
    metrics = folder / "metrics.om"
    openmetrics.write(list(SCENARIOS.values()), BASE, metrics)
    with running_prometheus(metrics) as url:
        yield ask(list(SCENARIOS.values()), url, BASE, folder)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_models_match_the_truth(attributed: Hours, name: str, number: int) -> None:
    rows: dict[tuple[str, str, str, str], list[Any]] = {}
    hour = attributed[name, number]
    for row in hour.get("models", []):
        key = (row["namespace"], row["workload"], row["server"] or "", row["model"] or "")
        rows.setdefault(key, []).append(row)
    expected = true_models(SCENARIOS[name], number)
    assert rows.keys() == expected.keys(), hour["notes"]
    for key, of_model in rows.items():
        truth = expected[key]
        near(sum(row["allocated_gpu_hours"] for row in of_model), truth.gpu_hours, f"{key} GPU-hours")
        for kind in KINDS:
            name_of_count = kind if kind == "requests" else f"{kind}_tokens"
            counts, count = [row[name_of_count] for row in of_model], truth.counts.get(kind)
            if count is None:
                assert counts == [None] * len(counts), f"{key} {kind}"
            else:
                near(sum(counts), count, f"{key} {kind}")


@pytest.mark.parametrize(("name", "number"), CASES)
def test_models_add_up_to_the_lines(attributed: Hours, name: str, number: int) -> None:
    hour = attributed[name, number]
    if "models" not in hour:
        return
    for part in COSTS:
        for unit in ("usd", "gpu_hours"):
            field = f"{part}_{unit}"
            assert sum(row[field] for row in hour["models"]) == sum(line[field] or 0 for line in hour["lines"]), field
    assert sum(row["waste_usd"] for row in hour["models"]) == sum(line["waste_usd"] or 0 for line in hour["lines"])


@pytest.mark.parametrize(("name", "number"), CASES)
def test_lines_match_the_truth(attributed: Hours, name: str, number: int) -> None:
    assert_lines(SCENARIOS[name], number, attributed[name, number])
    assert_identity(SCENARIOS[name], number, attributed[name, number])
