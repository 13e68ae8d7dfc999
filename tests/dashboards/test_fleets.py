"""Rules on simulated clusters (`gpucost_devstack/fleet`) at a steady minute, compared with the true amounts."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpucost.settings_document import parse_settings
from gpucost_cli.rules import documents
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.scenarios import all_scenarios
from gpucost_devstack.template import REPOSITORY
from tests.dashboards import promtool
from tests.dashboards.rule_limits import COUNTED_OTHERWISE, as_counted_by_rules, pods_unknown_to_rules
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
    "processes-several",
    "hami-containers",
    "kai-several-gpus",
    "requests",
    "claims-shared",
    "claims-static-mig",
    "claims-dynamic-mig-without-labels",
)
"""One cluster of each kind; `make nightly` tests all of them."""
LIMITS = {
    "utilization from the sources `node` or `cluster` only": ("node-average",),
    "partitions of AMD GPUs named `amd.com/gpu`, without the label `amd.com/compute-memory-partition`": (
        "amd-cpx-single",
        "amd-qpx-single",
        "amd-dpx-single",
    ),
    "MIG devices of DRA claims": ("mix-partitions-5", "mix-partitions-8"),  # a 1g.10gb of an A100 with 40 GB is larger
    "vGPUs of HAMi on a node of an unknown instance type": ("hami-unknown-instance-type",),
    "a pod with slices of several profiles": ("two-profiles-in-a-pod",),
    "different MIG layouts in a node, with shares that sum to more than a GPU": (
        "mig-mixed-h100",
        "oversized-layout-and-others",
    ),
    "pods on a shared GPU without labels (no `KUBERNETES_VIRTUAL_GPUS`)": (
        "first-sharer-labelled",
        "sharer-labels-flip",
    ),
    "a pod alone on a node whose exporter labels no pods": ("renamed-not-mapped",),
}
"""Clusters on which the rules differ from the truth, by the case in docs/how-to/grafana.md.

The cases of `as_counted_by_rules` are not among them: there, the rules are compared with what that page says.
"""


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
    unknown = pods_unknown_to_rules(steady.scenario)
    counted = replace(steady, scenario=as_counted_by_rules(steady.scenario))
    expected = []
    for metric, gpus in (("allocated", counted.held()), ("effective", counted.used())):
        rows = (({"pod": pod}, float(amount)) for pod, amount in gpus.items() if pod not in unknown)
        by_pod = f"sum by (pod) (pod:gpucost_{metric}_gpus{{{cluster}}} > 0)"
        expected.append(promtool.expectation(by_pod, 1, *rows))
    return expected


def test_rules_are_exact_on_steady_clusters(tmp_path: Path) -> None:
    assert all(find_steady_minute(SCENARIOS[name]) for name in SAMPLE)
    assert clusters_with_errors([SCENARIOS[name] for name in SAMPLE], tmp_path) == set()


def test_limits_name_existing_clusters() -> None:
    limited = {name for names in LIMITS.values() for name in names}
    assert limited <= SCENARIOS.keys()
    assert not limited & set(SAMPLE)


def test_limits_are_documented() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "grafana.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| (.+?) \|", page.partition("### Limits of the rules")[2].partition("\n## ")[0], re.M)
    assert {*LIMITS, *COUNTED_OTHERWISE} <= set(documented)


@pytest.mark.nightly
def test_rules_are_exact_except_for_documented_limits(tmp_path: Path) -> None:
    """The rules are wrong on the clusters in LIMITS, and on no others."""
    steady_scenarios = [scenario for scenario in SCENARIOS.values() if find_steady_minute(scenario)]
    assert len(steady_scenarios) > 350
    assert clusters_with_errors(steady_scenarios, tmp_path) == {name for names in LIMITS.values() for name in names}
