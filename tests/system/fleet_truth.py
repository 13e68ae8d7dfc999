"""What the command says of a scenario's hours, beside the scenario's own truth."""

import subprocess
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import simplejson

from devstack.fleet import truth
from devstack.fleet.scenario import Scenario
from devstack.fleet.truth import Amount, TrueLine
from devstack.template import REPOSITORY

GPUCOST = REPOSITORY / ".venv" / "bin" / "gpucost"
PRICE = 10
EXACT = Fraction(1, 10**9)
PARTS = ("effective", "waste", "unmeasured", "unallocated", "stranded", "unobserved", "host", "residual")
Hours = dict[tuple[str, int], Any]


def ask(scenarios: Sequence[Scenario], url: str, base: datetime, folder: Path) -> Hours:
    """What the command says of every scenario's hours; scenarios of the same settings and hours in one call."""
    groups: dict[tuple[str, tuple[int, ...]], list[Scenario]] = {}
    for scenario in scenarios:
        groups.setdefault((scenario.settings, tuple(scenario.hours)), []).append(scenario)
    found: Hours = {}
    for place, ((_, hours), some) in enumerate(groups.items()):
        path = folder / f"settings-{place}.yaml"
        path.write_text(settings(some, url, base))
        for hour in attribute(path, base + timedelta(hours=min(hours)), len(hours)):
            number = round((datetime.fromisoformat(hour["hour"]) - base) / timedelta(hours=1))
            found[hour["cluster"], number] = hour
    return found


def settings(scenarios: Sequence[Scenario], url: str, base: datetime) -> str:
    """A document for some clusters in one Prometheus."""
    clusters = "".join(
        f'  - {{name: {one.name}, prometheus: {{url: "{url}"}}, selector: {{cluster: {one.name}}}}}\n'
        for one in scenarios
    )
    price = f"pricing: {{source: constant, gpu_hourly_usd: {PRICE}}}\n"
    own = scenarios[0].settings.replace("{base}", f"{base:%Y-%m-%dT%H:00:00Z}")
    return f"clusters:\n{clusters}{price}{own}"


def attribute(path: Path, first: datetime, hours: int) -> list[Any]:
    """The command's answer, numbers as they stand."""
    command = [str(GPUCOST), "attribute", "--settings", str(path), "--hour", f"{first:%Y-%m-%dT%H:00:00Z}"]
    command += ["--hours", str(hours), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer: list[Any] = simplejson.loads(done.stdout, parse_float=Decimal, parse_int=Decimal)["hours"]
    has_no_figures = all(hour["totals"]["allocated_usd"] is None for hour in answer)
    assert done.returncode == int(has_no_figures), done.stderr
    return answer


def assert_lines(scenario: Scenario, number: int, hour: Any) -> None:
    """Every line is there, none is too many, and each is true."""
    assert hour["status"] == "complete", hour["notes"]
    expected = {(one.pod.id, one.resource): one for one in truth.hour(scenario, number).lines}
    said = {(line["uid"], in_metrics(line["resource"])): line for line in hour["lines"]}
    assert len(said) == len(hour["lines"])
    may_be_missing = {key for key, one in expected.items() if one.may_be_missing}
    assert said.keys() <= expected.keys(), f"lines too many: {sorted(said.keys() - expected.keys())}"
    missing = expected.keys() - said.keys() - may_be_missing
    assert not missing, f"lines missing: {sorted(missing)}"
    for key, line in said.items():
        compare(scenario, line, expected[key])


def compare(scenario: Scenario, line: Any, true: TrueLine) -> None:
    pod = true.pod
    assert (line["namespace"], line["pod"], line["units"]) == (pod.namespace, pod.name, true.units)
    assert line["business_unit"] == scenario.business_units.get(pod.name, pod.namespace)
    workload = pod.owners[-1] if pod.owners else ("Pod", pod.name)
    owner = (line["workload_kind"], line["workload"])
    assert owner == workload, f"{pod.name} is of {owner}, not of {workload}"
    near(line["gpu_share"], Amount(true.gpu_share, Fraction(1, 10**12)), f"{pod.name} gpu_share")
    near(line["allocated_gpu_hours"], true.allocated, f"{pod.name} allocated")
    compare_use(line, true)


def compare_use(line: Any, true: TrueLine) -> None:
    """Use, and what nobody saw of it; what was seen for less than the bound may have been seen or not."""
    what, by = true.pod.name, line["utilization_source"]
    slack = true.unmeasured.tolerance
    if by == "none" and true.observed <= slack:
        near(line["unmeasured_gpu_hours"], true.unmeasured + Amount(Fraction(0), true.observed), f"{what} unmeasured")
        return
    if true.effective is None and by != "none":
        assert slack, f"{what} is measured by {by}, though nobody could see its use"
    elif true.effective is not None:
        assert by == true.source, f"{what} is measured by {by}, not by {true.source}"
    effective = true.effective or Amount(Fraction(0), slack)
    near(line["effective_gpu_hours"] or 0, effective, f"{what} effective")
    near(line["unmeasured_gpu_hours"], true.unmeasured, f"{what} unmeasured")


def assert_identity(scenario: Scenario, number: int, hour: Any) -> None:
    """Every part of the identity is true, and they sum up to the last digit."""
    totals, true = hour["totals"], truth.hour(scenario, number)
    assert totals["node_cost_usd"] is not None, f"the totals are unknown: {hour['notes']}"
    assert sum(totals[f"{part}_usd"] for part in PARTS) == totals["node_cost_usd"]
    assert totals["allocated_usd"] == totals["effective_usd"] + totals["waste_usd"] + totals["unmeasured_usd"]
    for part in ("capacity", "unallocated", "stranded", "unobserved"):
        near(totals[f"{part}_gpu_hours"], getattr(true, part), part)
    if scenario.residual:
        near(-totals["residual_usd"] / PRICE, true.excess, "residual")
        assert totals["residual_usd"] < 0
    else:
        assert totals["residual_usd"] == 0, f"a residual of {totals['residual_usd']}"
    for line in hour["lines"]:
        parts = (line["effective_usd"] or 0, line["waste_usd"] or 0, line["unmeasured_usd"])
        assert sum(parts) == line["allocated_usd"]


def near(said: Any, amount: Amount, what: str) -> None:
    """Within what the truth allows."""
    assert said is not None, f"{what} is unknown; it is {float(amount.value)}"
    off = abs(Fraction(said) - amount.value)
    assert off <= amount.tolerance + EXACT, (
        f"{what}: said {said}, truth {float(amount.value)}, off by {float(off)}, allowed {float(amount.tolerance)}"
    )


def in_metrics(resource: str) -> str:
    """A resource's name as kube-state-metrics writes it."""
    return "".join(letter if letter.isalnum() else "_" for letter in resource)
