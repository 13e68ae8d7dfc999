"""Rules on simulated clusters (`gpucost_devstack/fleet`) at a steady minute, compared with the true amounts."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpucost.settings_document import parse_settings
from gpucost_cli.rules import documents
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.scenarios import all_scenarios
from tests.dashboards import promtool
from tests.dashboards.steady_minutes import SteadyMinute, find_steady_minute

SCENARIOS = {scenario.name: scenario for scenario in all_scenarios()}
SAMPLE = (
    "mig-stranded",
    "mig-above-one",
    "mig-labels-old",
    "parts-of-a-gpu",
    "time-sliced-renamed",
    "mps",
    "sharer-of-two-devices",
    "shared-labels-honor",
    "ksm-sharded",
    "no-node-labels",
    "left-behind-for-hours",
    "signal-device-only",
    "amd-whole",
    "amd-cpx-mixed",
    "amd-cpx-labeled",
    "amd-whole-and-partitions",
    "mixed-vendors",
)
"""One cluster of each kind; `make nightly` tests all of them."""
LIMITS = {
    "layouts that differ": ("mig-mixed-h100", "oversized-layout-and-others"),
    "sharers without labels": ("first-sharer-labelled", "sharer-labels-flip"),
    "sidecars": ("containers",),
    "slices of several profiles": ("two-profiles-in-a-pod",),
    "DRA claims": ("claims",),
    "only sources node or cluster": ("node-average",),
    "partitions named amd.com/gpu": ("amd-cpx-single", "amd-qpx-single", "amd-dpx-single"),
}
"""Clusters that static rules cannot measure exactly, by the limit in docs/how-to/grafana.md."""
UNMEASURED = (
    "oversized-without-dcgm",
    "renamed-not-mapped",
    "no-dcgm",
    "one-exporter-missing",
    "not-mapped",
    "shared-not-mapped",
    "gpu-util-on-mig-absent",
    "gpu-util-on-mig-zero",
    "signal-none",
)
"""Clusters with used GPUs for which no metrics exist, so the ledger has no utilization either."""


def clusters_with_errors(scenarios: Iterable[Scenario], folder: Path) -> set[str]:
    """Return the clusters for which promtool reports wrong allocated or effective GPUs of a pod."""
    groups: list[Any] = []
    series: list[dict[str, str]] = []
    expectations: list[dict[str, Any]] = []
    for scenario in scenarios:
        steady = find_steady_minute(scenario)
        if steady is not None:
            groups += _groups(scenario)
            series += steady.series()
            expectations += _expectations(steady)
    assert expectations
    output = promtool.run(folder, groups, series, expectations)
    wrong_clusters = set(re.findall(r'expr: .*cluster=\\"([^"\\]+)\\"', output))
    assert bool(output) == bool(wrong_clusters), output
    return wrong_clusters


def _groups(scenario: Scenario) -> documents.Groups:
    cluster_settings = (
        f"{{name: {scenario.name}, prometheus: {{url: 'http://127.0.0.1:9'}}, selector: {{cluster: {scenario.name}}}}}"
    )
    text = f"clusters: [{cluster_settings}]\npricing: {{source: constant, gpu_hourly_usd: 12}}\n{scenario.settings}"
    settings = parse_settings(text.replace("{base}", "2026-01-01T00:00:00Z"))
    (pods, _) = documents.recording_groups(settings, settings.clusters, datetime.now(UTC))
    return [pods]


def _expectations(steady: SteadyMinute) -> list[dict[str, Any]]:
    cluster = f'cluster="{steady.scenario.name}"'
    expected = []
    for metric, gpus in (("allocated", steady.held()), ("effective", _visible_use(steady))):
        rows = (({"pod": pod}, float(amount)) for pod, amount in gpus.items())
        by_pod = f"sum by (pod) (pod:gpucost_{metric}_gpus{{{cluster}}} > 0)"
        expected.append(promtool.expectation(by_pod, 1, *rows))
    return expected


def _visible_use(look: SteadyMinute) -> dict[str, Any]:
    """Return the used GPUs that rules can measure: only NVIDIA's."""
    resources = {
        pod.name: "".join(resource for container in pod.requests.values() for resource in container)
        for pod in look.scenario.pods
    }
    return {pod: gpus for pod, gpus in look.used().items() if resources[pod].startswith(("nvidia", "gpu_nvidia"))}


def test_rules_are_exact_on_steady_clusters(tmp_path: Path) -> None:
    assert all(find_steady_minute(SCENARIOS[name]) for name in SAMPLE)
    assert clusters_with_errors([SCENARIOS[name] for name in SAMPLE], tmp_path) == set()


def test_limits_name_existing_clusters() -> None:
    limited = {name for names in LIMITS.values() for name in names}
    assert limited <= SCENARIOS.keys()
    assert not limited & set(SAMPLE)


@pytest.mark.nightly
def test_rules_are_exact_except_for_documented_limits(tmp_path: Path) -> None:
    """The rules are wrong on the clusters in LIMITS, and on no others. One cluster stands for all with DRA claims."""
    steady_scenarios = [
        scenario
        for name, scenario in SCENARIOS.items()
        if find_steady_minute(scenario)
        and (name in LIMITS["DRA claims"] or not any(pod.claims for pod in scenario.pods))
    ]
    assert len(steady_scenarios) > 200
    assert clusters_with_errors(steady_scenarios, tmp_path) - set(UNMEASURED) == {
        name for names in LIMITS.values() for name in names
    }
