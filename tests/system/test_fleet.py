"""Every scenario of the simulated fleet through the real Prometheus and the real command, against its own truth."""

import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import simplejson

from local.fleet import openmetrics, truth
from local.fleet.scenario import Scenario
from local.fleet.scenarios import all_scenarios
from local.fleet.truth import Amount, TrueLine
from local.prometheus import running_prometheus
from local.template import REPOSITORY

GPUCOST = REPOSITORY / ".venv" / "bin" / "gpucost"
BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
SCENARIOS = {scenario.name: scenario for scenario in all_scenarios()}
PRICE = 10
EXACT = Fraction(1, 10**9)
PARTS = ("effective", "waste", "unmeasured", "unallocated", "stranded", "unobserved", "host", "residual")
Hours = dict[tuple[str, int], Any]


@pytest.fixture(scope="module")
def attributed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hours]:
    """What the command says of every scenario's hours; one Prometheus holds all clusters."""
    folder = tmp_path_factory.mktemp("fleet")
    metrics = folder / "metrics.om"
    openmetrics.write(list(SCENARIOS.values()), BASE, metrics)
    groups: dict[tuple[str, tuple[int, ...]], list[Scenario]] = {}
    for scenario in SCENARIOS.values():
        groups.setdefault((scenario.settings, tuple(scenario.hours)), []).append(scenario)
    with running_prometheus(metrics) as url:
        found: Hours = {}
        for place, ((_, hours), scenarios) in enumerate(groups.items()):
            path = folder / f"settings-{place}.yaml"
            path.write_text(settings(scenarios, url))
            for hour in attribute(path, hours):
                number = round((datetime.fromisoformat(hour["hour"]) - BASE) / timedelta(hours=1))
                found[hour["cluster"], number] = hour
        yield found


def settings(scenarios: Sequence[Scenario], url: str) -> str:
    clusters = "".join(
        f'  - {{name: {one.name}, prometheus: {{url: "{url}"}}, selector: {{cluster: {one.name}}}}}\n'
        for one in scenarios
    )
    price = f"pricing: {{source: constant, gpu_hourly_usd: {PRICE}}}\n"
    own = scenarios[0].settings.replace("{base}", f"{BASE:%Y-%m-%dT%H:00:00Z}")
    return f"clusters:\n{clusters}{price}{own}"


def attribute(path: Path, hours: Sequence[int]) -> list[Any]:
    first = (BASE + timedelta(hours=min(hours))).strftime("%Y-%m-%dT%H:00:00Z")
    command = [str(GPUCOST), "attribute", "--settings", str(path), "--hour", first, "--format", "json"]
    done = subprocess.run([*command, "--hours", str(len(hours))], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: list[Any] = simplejson.loads(done.stdout, parse_float=Decimal, parse_int=Decimal)["hours"]
    return answer


CASES = [(name, hour) for name, scenario in SCENARIOS.items() for hour in scenario.hours]


def near(said: Any, amount: Amount, what: str) -> None:
    assert said is not None, f"{what} is unknown; it is {float(amount.value)}"
    off = abs(Fraction(said) - amount.value)
    assert off <= amount.tolerance + EXACT, (
        f"{what}: said {said}, truth {float(amount.value)}, off by {float(off)}, allowed {float(amount.tolerance)}"
    )


@pytest.mark.parametrize(("name", "number"), CASES)
def test_every_line_is_true(attributed: Hours, name: str, number: int) -> None:
    scenario, hour = SCENARIOS[name], attributed[name, number]
    assert hour["status"] == "complete", hour["notes"]
    expected = {(one.pod.id, one.resource): one for one in truth.hour(scenario, number).lines}
    said = {(line["uid"], in_metrics(line["resource"])): line for line in hour["lines"]}
    assert len(said) == len(hour["lines"])
    may_be_missing = {key for key, one in expected.items() if one.allocated.tolerance >= one.allocated.value}
    assert said.keys() <= expected.keys()
    assert expected.keys() - said.keys() <= may_be_missing
    for key, line in said.items():
        compare(scenario, line, expected[key])


def compare(scenario: Scenario, line: Any, true: TrueLine) -> None:
    pod = true.pod
    assert (line["namespace"], line["pod"], line["units"]) == (pod.namespace, pod.name, true.units)
    assert line["business_unit"] == scenario.units.get(pod.name, pod.namespace)
    workload = pod.owners[-1] if pod.owners else ("Pod", pod.name)
    assert (line["workload_kind"], line["workload"]) == workload
    near(line["gpu_share"], Amount(true.gpu_share, Fraction(1, 10**12)), f"{pod.name} gpu_share")
    near(line["allocated_gpu_hours"], true.allocated, f"{pod.name} allocated")
    if true.effective is None:
        assert line["utilization_source"] == "none"
        near(line["unmeasured_gpu_hours"], true.unmeasured, f"{pod.name} unmeasured")
        return
    if (
        true.effective.value + true.unmeasured.value <= true.effective.tolerance
        and line["utilization_source"] == "none"
    ):
        return  # too short for its use to be seen for sure
    assert line["utilization_source"] == true.source
    near(line["effective_gpu_hours"], true.effective, f"{pod.name} effective")
    near(line["unmeasured_gpu_hours"], true.unmeasured, f"{pod.name} unmeasured")


@pytest.mark.parametrize(("name", "number"), CASES)
def test_every_part_of_the_identity_is_true(attributed: Hours, name: str, number: int) -> None:
    scenario, hour = SCENARIOS[name], attributed[name, number]
    totals, true = hour["totals"], truth.hour(scenario, number)
    assert sum(totals[f"{part}_usd"] for part in PARTS) == totals["node_cost_usd"]
    assert totals["allocated_usd"] == totals["effective_usd"] + totals["waste_usd"] + totals["unmeasured_usd"]
    for part in ("capacity", "unallocated", "stranded", "unobserved"):
        near(totals[f"{part}_gpu_hours"], getattr(true, part), part)
    if scenario.residual:
        near(-totals["residual_usd"] / PRICE, true.excess, "residual")
        assert totals["residual_usd"] < 0
    else:
        assert totals["residual_usd"] == 0
    for line in hour["lines"]:
        parts = (line["effective_usd"] or 0, line["waste_usd"] or 0, line["unmeasured_usd"])
        assert sum(parts) == line["allocated_usd"]


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.notes])
def test_what_should_be_said_is_said(attributed: Hours, name: str) -> None:
    for note in SCENARIOS[name].notes:
        assert any(note in said for said in attributed[name, SCENARIOS[name].hours[0]]["notes"])


def in_metrics(resource: str) -> str:
    """A resource's name as kube-state-metrics writes it."""
    return "".join(letter if letter.isalnum() else "_" for letter in resource)
