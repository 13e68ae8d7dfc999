"""Rules on simulated clusters, at a minute at which nothing changes, against what is true then (`devstack/fleet`)."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from devstack.fleet.scenario import Scenario
from devstack.fleet.scenarios import all_scenarios
from gpucost.settings_document import parse_settings
from gpucost_cli.rules import documents
from tests.dashboards import promtool
from tests.dashboards.steady_minutes import SteadyMinute, find_steady_minute

SCENARIOS = {scenario.name: scenario for scenario in all_scenarios()}
SAMPLE = (
    "mig-stranded", "mig-above-one", "mig-labels-old", "time-sliced-renamed", "mps", "sharer-of-two-devices",
    "shared-labels-honor", "ksm-sharded", "no-node-labels", "left-behind-for-hours", "signal-device-only",
)  # fmt: skip
"""One of each kind; `make heavy` looks at all."""
LIMITS = {
    "layouts that differ": ("mig-mixed-h100", "one-gpu-above-beside-others"),
    "sharers without labels": ("first-sharer-labelled", "sharer-labels-flip"),
    "sidecars": ("containers",),
    "slices of several profiles": ("two-profiles-in-a-pod",),
    "DRA claims": ("claims",),
    "only rungs node or cluster": ("rung-node",),
}
"""Clusters of which docs/grafana.md says that static rules cannot tell."""
UNMEASURED = (
    "above-a-gpu-without-dcgm", "renamed-not-mapped", "no-dcgm", "one-exporter-missing", "not-mapped",
    "shared-not-mapped", "gpu-util-on-mig-absent", "gpu-util-on-mig-zero", "signal-none",
)  # fmt: skip
"""Clusters where GPUs are used and nobody tells it, the ledger's metrics neither."""


def clusters_with_errors(scenarios: Iterable[Scenario], folder: Path) -> set[str]:
    """The clusters on which promtool finds allocated or effective GPUs of any pod wrong; it runs all at once."""
    groups: list[Any] = []
    series: list[dict[str, str]] = []
    expectations: list[dict[str, Any]] = []
    for scenario in scenarios:
        look = find_steady_minute(scenario)
        if look is not None:
            groups += _groups(scenario)
            series += look.series()
            expectations += _expectations(look)
    assert expectations
    found = promtool.run(folder, groups, series, expectations)
    wrong = set(re.findall(r'expr: .*cluster=\\"([^"\\]+)\\"', found))
    assert bool(found) == bool(wrong), found
    return wrong


def _groups(scenario: Scenario) -> documents.Groups:
    own = (
        f"{{name: {scenario.name}, prometheus: {{url: 'http://127.0.0.1:9'}}, selector: {{cluster: {scenario.name}}}}}"
    )
    text = f"clusters: [{own}]\npricing: {{source: constant, gpu_hourly_usd: 12}}\n{scenario.settings}"
    settings = parse_settings(text.replace("{base}", "2026-01-01T00:00:00Z"))
    (pods, _) = documents.recording_groups(settings, settings.clusters, datetime.now(UTC))
    return [pods]


def _expectations(look: SteadyMinute) -> list[dict[str, Any]]:
    cluster = f'cluster="{look.scenario.name}"'
    expected = []
    for metric, gpus in (("allocated", look.held()), ("effective", _visible_use(look))):
        rows = (({"pod": pod}, float(amount)) for pod, amount in gpus.items())
        by_pod = f"sum by (pod) (pod:gpucost_{metric}_gpus{{{cluster}}} > 0)"
        expected.append(promtool.expectation(by_pod, 1, *rows))
    return expected


def _visible_use(look: SteadyMinute) -> dict[str, Any]:
    """Use that rules can see: not of Neuron."""
    asked = {
        pod.name: "".join(resource for one in pod.requests.values() for resource in one) for pod in look.scenario.pods
    }
    return {pod: gpus for pod, gpus in look.used().items() if "neuron" not in asked[pod]}


def test_rules_say_what_is_true(tmp_path: Path) -> None:
    assert all(find_steady_minute(SCENARIOS[name]) for name in SAMPLE)
    assert clusters_with_errors([SCENARIOS[name] for name in SAMPLE], tmp_path) == set()


def test_what_rules_cannot_tell_is_documented_and_so() -> None:
    limited = {name for names in LIMITS.values() for name in names}
    assert limited <= SCENARIOS.keys()
    assert not limited & set(SAMPLE)


@pytest.mark.heavy
def test_rules_on_every_cluster(tmp_path: Path) -> None:
    """The limits are real: where they are said to be, and nowhere else, the rules differ from the truth."""
    looks = [scenario for scenario in SCENARIOS.values() if find_steady_minute(scenario)]
    assert len(looks) > 200
    assert clusters_with_errors(looks, tmp_path) - set(UNMEASURED) == {name for names in LIMITS.values() for name in names}
