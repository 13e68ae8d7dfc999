"""Inference servers of the simulated fleet through a real Prometheus, compared with the truth; and what it costs."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpucost_devstack.fleet.inference_servers import KINDS, TrueKey, true_models
from gpucost_devstack.fleet.scenarios.inference import scenarios
from tests.system.fleet_truth import Hours, ask, assert_identity, assert_lines, near
from tests.system.limited import limited
from tests.system.metered_hours import attribute, cluster
from tests.system.remote_write import running_scenarios
from tests.system.timeline import Timeline

BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
SCENARIOS = {scenario.name: scenario for scenario in scenarios()}
CASES = [(name, hour) for name, scenario in SCENARIOS.items() for hour in scenario.hours]
COSTS = ("allocated", "effective", "unmeasured")


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hours]:
    with running_scenarios(SCENARIOS.values(), BASE) as url:
        yield ask(list(SCENARIOS.values()), url, BASE, tmp_path_factory.mktemp("inference"))


@pytest.mark.parametrize(("name", "number"), CASES)
def test_models_match_the_truth(attributed: Hours, name: str, number: int) -> None:
    rows: dict[TrueKey, list[Any]] = {}
    hour = attributed[name, number]
    for row in hour.get("models", []):
        key = (row["namespace"], row["workload"], row["server"] or "", row["model"] or "", row["consumer"] or "")
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


def queries_of(prometheus: Callable[[str], str], timeline: Timeline, more: str = "") -> list[str]:
    with limited(prometheus(timeline.text()), 10**9) as (url, traffic):
        attribute(url, more=more)
    return sorted(traffic.queries)


def test_servers_take_a_query_only_where_they_are_read(prometheus: Callable[[str], str]) -> None:
    without = queries_of(prometheus, cluster(8))
    servers = cluster(8)
    for index in range(8):
        for metric in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"):
            servers.add(metric, value=7, job="s", instance=f"10.1.0.{index}:8000", namespace="team", pod=f"p{index}")
    assert queries_of(prometheus, servers) == without  # two are evaluated at once, in any order
    with_servers = queries_of(prometheus, servers, "inference: {enabled: true}")
    assert len(with_servers) == len(without) + 1
    with_gateway = queries_of(prometheus, servers, "inference: {enabled: true, gateway: {name: llm-d-router}}")
    assert len(with_gateway) == len(with_servers)
    assert not any("llm_d_epp" in query for query in with_servers)


def test_large_answers_are_read_in_parts(prometheus: Callable[[str], str]) -> None:
    """As other queries: an answer that is too large is divided by the last character of the pod's name."""
    timeline = cluster(40)
    for index in range(40):
        for model in range(8):
            labels = {"job": "s", "instance": f"10.1.0.{index}:8000", "namespace": "team", "pod": f"p{index}"}
            for metric in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"):
                timeline.add(metric, -65, 30, 0, model_name=f"m{model}", **labels)
                timeline.add(metric, 30, 125, 9, model_name=f"m{model}", **labels)
    with limited(prometheus(timeline.text()), 60_000) as (url, traffic):
        (record,) = attribute(url, more="inference: {enabled: true}")
    assert sum("vllm" in query for query in traffic.queries) > 1
    assert sum(row.prompt_tokens or 0 for row in record.models) == 40 * 8 * 9


def test_counters_without_a_pod_label_are_a_note(prometheus: Callable[[str], str]) -> None:
    timeline = cluster(4)
    timeline.add("vllm:prompt_tokens_total", value=7, job="s", instance="10.1.0.1:8000")
    (record,) = attribute(prometheus(timeline.text()), more="inference: {enabled: true}")
    assert record.models == ()
    assert any("no labels namespace and pod" in note for note in record.notes)
