"""Pods whose GPUs a DRA driver gave them, in a cluster in which none of them exists at the hour's end."""

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.builders import gpu_node, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import Geometry, Pod, Scenario
from gpucost_devstack.fleet.scenarios.mixes import CLAIMED_GPU
from gpucost_devstack.fleet.scenarios.sharing import constant_use
from gpucost_devstack.prometheus import running_prometheus
from tests.system.fleet_truth import ask, assert_identity, assert_lines


def test_jobs_that_all_ended_have_their_costs(tmp_path: Path) -> None:
    """kube-state-metrics has no pod at the hour's end, so that owners come from samples within the hour."""
    offered = Geometry({}, {CLAIMED_GPU: Fraction(1)}, whole_gpus_geometry("h100").devices, serves_claims=True)
    node = gpu_node("n1", "h100", offered)
    pods = [
        Pod(
            f"train-{number}",
            node,
            [number],
            constant_use("0.5"),
            requests={"main": {CLAIMED_GPU: 1}},
            deleted_at=end,
            owners=(("Job", "train"),),
            claims=(f"claim-{number}",),
        )
        for number, end in enumerate((20, 45))
    ]
    scenario, base = Scenario("claims-ended", [node], pods), datetime(2026, 11, 19, 10, tzinfo=UTC)
    openmetrics.write([scenario], base, tmp_path / "metrics.om")
    with running_prometheus(tmp_path / "metrics.om") as url:
        hour = ask([scenario], url, base, tmp_path)[scenario.name, 0]
    assert {(line["workload_kind"], line["workload"]) for line in hour["lines"]} == {("Job", "train")}
    assert_lines(scenario, 0, hour)
    assert_identity(scenario, 0, hour)
