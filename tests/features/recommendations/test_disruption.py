"""Karpenter's disruption metrics from a real Prometheus, and the evidence that they give recommendations."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest
import yaml

from gpucost.features.recommendations.history import KarpenterDisruption, LookBack
from gpucost.features.recommendations.kinds.base import ReviewedCluster
from gpucost.features.recommendations.kinds.consolidate import Consolidate
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.sources import PrometheusDisruption
from gpucost.settings_document import parse_settings
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of
from tests.features.recommendations.simulated_fleet import HOURS, SPREAD, loads_on
from tests.system.timeline import HOUR, Timeline

ELIGIBLE, ALLOWED = "karpenter_voluntary_disruption_eligible_nodes", "karpenter_nodepools_allowed_disruptions"


def test_weekly_maximum_is_reported_by_reason_and_pool(prometheus: Callable[[str], str]) -> None:
    metrics = Timeline(cluster="demo")
    for instance in ("a", "b"):  # the leader reports, the other replica exports 0
        for minute, value in ((0, 0), (30, 3), (60, 1)):
            metrics.add(
                ELIGIBLE, minute, minute + 30, value * (instance == "a"), reason="underutilized", instance=instance
            )
    metrics.add(ELIGIBLE, value=0, reason="empty")
    metrics.add(ELIGIBLE, value=9, reason="drifted")
    metrics.add(ALLOWED, value=0, nodepool="gpu", reason="Underutilized")
    metrics.add(ALLOWED, value=2, nodepool="gpu", reason="Empty")
    metrics.add(ALLOWED, value=5, nodepool="cpu", reason="underutilized")
    for invalid in ("NaN", "+Inf"):
        metrics.add(ALLOWED, value=invalid, nodepool=f"odd {invalid}", reason="empty")
    other_cluster = Timeline(cluster="other", families=metrics.families)
    other_cluster.add(ELIGIBLE, value=99, reason="underutilized")
    url = prometheus(metrics.text())
    settings = parse_settings(
        f'clusters: [{{name: demo, prometheus: {{url: "{url}"}}, selector: {{cluster: demo}}}}]\n'
        "pricing: {source: constant, gpu_hourly_usd: 1}\n"
    )
    reader = PrometheusDisruption(settings.clusters[0])
    assert reader.week(HOUR + 2 * timedelta(hours=1)) == KarpenterDisruption(
        {"underutilized": 3, "empty": 0},
        {("gpu", "underutilized"): 0, ("gpu", "empty"): 2, ("cpu", "underutilized"): 5},
    )
    assert reader.week(HOUR - timedelta(days=3)) == KarpenterDisruption({}, {})


@pytest.fixture(scope="module")
def look_back() -> LookBack:
    return look_back_of(list(sim.simulate(loads_on(SPREAD), HOURS)))


@pytest.mark.parametrize(
    ("eligible", "allowed", "reason", "has_budget"),
    [
        ({}, {}, "its metrics do not show why nodes were not removed", False),
        (
            {"underutilized": 0, "empty": 2},
            {},
            "no node of the cluster was eligible as underutilized in the last week, because of settings, pods or PDBs",
            False,
        ),
        (
            {"underutilized": 4},
            {("spread", "underutilized"): 0, ("spread", "empty"): 1},
            "up to 4 nodes of the cluster were eligible as underutilized in the last week; the pool's disruption "
            "budgets allow none at once",
            True,
        ),
        (
            {"underutilized": 4},
            {("spread", "underutilized"): 2, ("other", "underutilized"): 0},
            "up to 4 nodes of the cluster were eligible as underutilized in the last week; the pool's disruption "
            "budgets allow 2 at once",
            False,
        ),
    ],
    ids=["silent", "not eligible", "budgets", "slow"],
)
def test_evidence_shows_why_karpenter_kept_nodes(
    look_back: LookBack,
    eligible: Mapping[str, int],
    allowed: Mapping[tuple[str, str], int],
    reason: str,
    *,
    has_budget: bool,
) -> None:
    look_back.disruption = KarpenterDisruption(eligible, allowed)
    (recommendation,) = filter(None, Consolidate.recommend(ReviewedCluster(look_back, (), {})))
    command = "kubectl get nodepool spread -o jsonpath='{.spec.disruption}'"
    assert recommendation.evidence.facts["Karpenter"] == reason
    assert recommendation.evidence.facts["Karpenter's settings"] == f"not in its metrics; to print them: {command}"
    assert _disruption(recommendation) == {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "5m",
        **({"budgets": [{"nodes": "10%"}]} if has_budget else {}),
    }
    assert f"#   {command}\n" in recommendation.patch
    assert "karpenter\\.sh/do-not-disrupt" in recommendation.patch
    assert "allow-list" in recommendation.patch


def _disruption(recommendation: RecommendationContent) -> object:
    return yaml.safe_load(recommendation.patch)["spec"]["disruption"]
