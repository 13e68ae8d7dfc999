"""Compares the command's figures for a scenario's hours with the true ones."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import simplejson

from gpucost_devstack.fleet import energy_truth, truth
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.truth import ToleratedAmount, TrueHour, TrueLine
from tests.gpucost_command import gpucost

PRICE = 10
EXACT = Fraction(1, 10**9)
PARTS = ("effective", "waste", "unmeasured", "unallocated", "stranded", "unobserved", "host", "residual")
Hours = dict[tuple[str, int], Any]


def ask(scenarios: Sequence[Scenario], url: str, base: datetime, folder: Path) -> Hours:
    """The command's answers for all hours. Scenarios with the same settings and hours share a call."""
    groups: dict[tuple[str, tuple[int, ...]], list[Scenario]] = {}
    for scenario in scenarios:
        groups.setdefault((scenario.settings, tuple(scenario.hours)), []).append(scenario)
    hours_by_cluster: Hours = {}
    for group_number, ((_, hours), members) in enumerate(groups.items()):
        path = folder / f"settings-{group_number}.yaml"
        path.write_text(settings(members, url, base))
        for hour in attribute(path, base + timedelta(hours=min(hours)), len(hours)):
            number = round((datetime.fromisoformat(hour["hour"]) - base) / timedelta(hours=1))
            hours_by_cluster[hour["cluster"], number] = hour
    return hours_by_cluster


def settings(scenarios: Sequence[Scenario], url: str, base: datetime) -> str:
    """A settings document for some clusters in the same Prometheus."""
    clusters = "".join(
        f'  - {{name: {scenario.name}, prometheus: {{url: "{url}"}}, selector: {{cluster: {scenario.name}}}}}\n'
        for scenario in scenarios
    )
    price = f"pricing: {{source: constant, gpu_hourly_usd: {PRICE}}}\n"
    scenario_settings = scenarios[0].settings.replace("{base}", f"{base:%Y-%m-%dT%H:00:00Z}")
    return f"clusters:\n{clusters}{price}{scenario_settings}"


def attribute(
    path: Path, first: datetime, hours: int, run: Callable[..., "CompletedProcess[str]"] = gpucost
) -> list[Any]:
    """The hours of the command's answer, with exact numbers."""
    command = ["attribute", "--settings", str(path), "--hour", f"{first:%Y-%m-%dT%H:00:00Z}"]
    done = run(*command, "--hours", str(hours), "--format", "json")
    answer: list[Any] = simplejson.loads(done.stdout, parse_float=Decimal, parse_int=Decimal)["hours"]
    has_no_figures = all(hour["totals"]["allocated_usd"] is None for hour in answer)
    assert done.returncode == int(has_no_figures), done.stderr
    return answer


_true_hours: dict[tuple[int, int], tuple[Scenario, TrueHour]] = {}
"""By the identity of the scenario, which is kept here so that it stays unique. Scenarios have no hash."""


def true_hour(scenario: Scenario, number: int) -> TrueHour:
    """The true figures of an hour, which several tests compare. Computing them takes up to a second."""
    key = id(scenario), number
    if key not in _true_hours:
        _true_hours[key] = scenario, truth.true_hour(scenario, number)
    return _true_hours[key][1]


def assert_lines(scenario: Scenario, number: int, hour: Any) -> None:
    """Check that the lines are exactly the expected ones, with true figures."""
    assert hour["status"] == "complete", hour["notes"]
    expected = {(true_line.pod.id, true_line.resource): true_line for true_line in true_hour(scenario, number).lines}
    lines = {(line["uid"], in_metrics(line["resource"])): line for line in hour["lines"]}
    assert len(lines) == len(hour["lines"])
    may_be_missing = {key for key, true_line in expected.items() if true_line.may_be_missing}
    assert lines.keys() <= expected.keys(), f"lines too many: {sorted(lines.keys() - expected.keys())}"
    missing = expected.keys() - lines.keys() - may_be_missing
    assert not missing, f"lines missing: {sorted(missing)}"
    for key, line in lines.items():
        compare(scenario, line, expected[key])


def compare(scenario: Scenario, line: Any, true: TrueLine) -> None:
    pod = true.pod
    assert (line["namespace"], line["pod"], line["units"]) == (pod.namespace, pod.name, true.units)
    assert line["business_unit"] == scenario.business_unit_by_pod.get(pod.name, pod.namespace)
    workload = pod.owners[-1] if pod.owners else ("Pod", pod.name)
    owner = (line["workload_kind"], line["workload"])
    assert owner == workload, f"{pod.name} is of {owner}, not of {workload}"
    rounding = ToleratedAmount(Fraction(0), Fraction(1, 10**12))
    near(line["gpu_share"], true.gpu_share + rounding, f"{pod.name} gpu_share")
    near(line["allocated_gpu_hours"], true.allocated_gpu_hours, f"{pod.name} allocated")
    compare_use(line, true)


def compare_use(line: Any, true: TrueLine) -> None:
    """Check effective and unmeasured GPU-hours. Use observed for less than the bound may be missing.

    The source of a pod that seems not to run in the hour is not compared: it uses nothing, whatever would measure it.
    """
    pod_name, by = true.pod.name, line["utilization_source"]
    slack = true.unmeasured_gpu_hours.tolerance
    if by == "none" and true.observed_gpu_hours <= slack:
        near(
            line["unmeasured_gpu_hours"],
            true.unmeasured_gpu_hours + ToleratedAmount(Fraction(0), true.observed_gpu_hours),
            f"{pod_name} unmeasured",
        )
        return
    if true.effective_gpu_hours is None and by != "none":
        does_not_run = not true.unmeasured_gpu_hours.value
        assert slack or does_not_run, f"{pod_name} is measured by {by}, though no scrape shows its use"
    elif true.effective_gpu_hours is not None and true.observed_gpu_hours > slack:
        assert by == true.utilization_source, f"{pod_name} is measured by {by}, not by {true.utilization_source}"
    effective = true.effective_gpu_hours or ToleratedAmount(Fraction(0), slack)
    near(line["effective_gpu_hours"] or 0, effective, f"{pod_name} effective")
    near(line["unmeasured_gpu_hours"], true.unmeasured_gpu_hours, f"{pod_name} unmeasured")


def assert_identity(scenario: Scenario, number: int, hour: Any) -> None:
    """Check that every part of the cost identity is true, and that they add up to the last digit."""
    totals, true = hour["totals"], true_hour(scenario, number)
    assert totals["node_cost_usd"] is not None, f"the totals are unknown: {hour['notes']}"
    assert sum(totals[f"{part}_usd"] for part in PARTS) == totals["node_cost_usd"]
    assert totals["allocated_usd"] == totals["effective_usd"] + totals["waste_usd"] + totals["unmeasured_usd"]
    for part in ("capacity", "unallocated", "stranded", "unobserved"):
        near(totals[f"{part}_gpu_hours"], getattr(true, part), part)
    if scenario.allows_residual:
        near(-totals["residual_usd"] / PRICE, true.excess, "residual")
        assert totals["residual_usd"] < 0
    else:
        assert totals["residual_usd"] == 0, f"a residual of {totals['residual_usd']}"
    for line in hour["lines"]:
        parts = (line["effective_usd"] or 0, line["waste_usd"] or 0, line["unmeasured_usd"])
        assert sum(parts) == line["allocated_usd"]


def assert_energy(scenario: Scenario, number: int, hour: Any) -> None:
    """Check that the energy of lines and nodes is true, unknown where it is not measured, and adds up exactly.

    In random clusters, GPUs may be held by pods of which no scrape shows the device, so that energy of others with the
    same GPU is not attributed. It is never more than the true energy.
    """
    true, totals = energy_truth.true_energy(scenario, number), hour["totals"]
    is_random = scenario.name.startswith("mix-")
    for line in hour["lines"]:
        name, key = f"{line['pod']} energy", (line["uid"], in_metrics(line["resource"]))
        assert (line["energy_kwh"] is None) == (line["energy_gpu_hours"] is None)
        if key not in true.lines:
            assert line["energy_kwh"] is None, f"{name} is {line['energy_kwh']}, and not measured"
        elif not is_random:
            near(line["energy_kwh"], true.lines[key], name)
        else:
            amount = true.lines[key]
            assert Fraction(line["energy_kwh"] or 0) <= amount.value + amount.tolerance + EXACT, name
    if totals["device_energy_kwh"] is None:
        assert true.device.value <= true.device.tolerance, f"no energy; it is {float(true.device.value)}"
        return
    near(totals["device_energy_kwh"], true.device, "energy")
    if not is_random:
        near(totals["idle_energy_kwh"], true.idle, "idle energy")
        near(totals["unattributed_energy_kwh"], true.unattributed, "energy that is not attributed")
    parts = [line["energy_kwh"] or 0 for line in hour["lines"]]
    parts += [totals["idle_energy_kwh"], totals["unattributed_energy_kwh"]]
    assert sum(parts) == totals["device_energy_kwh"]


def near(text: Any, amount: ToleratedAmount, label: str) -> None:
    """Check that a figure is within the tolerance of the true amount."""
    assert text is not None, f"{label} is unknown; it is {float(amount.value)}"
    off = abs(Fraction(text) - amount.value)
    assert off <= amount.tolerance + EXACT, (
        f"{label}: {text}, truth {float(amount.value)}, off by {float(off)}, allowed {float(amount.tolerance)}"
    )


def in_metrics(resource: str) -> str:
    """A resource's name in the spelling of kube-state-metrics."""
    return "".join(letter if letter.isalnum() else "_" for letter in resource)
