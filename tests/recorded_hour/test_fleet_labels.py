"""The simulated fleet writes the labels that a real cluster had, but for the listed ones."""

from pathlib import Path

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.scenarios import all_scenarios
from tests.recorded_hour.recording import read_series, unpack

OF_CLAIMS = {f"dra_{name}" for name in ("claim_name", "claim_namespace", "device_name", "driver_name", "pool_name")}
MISSING = {
    # Clusters with claims have only the signal above, which counts first.
    "DCGM_FI_DEV_GPU_UTIL": OF_CLAIMS,
    # One cluster has it, whose only signal it is: it measures nothing. Recommendations have metrics of their own.
    "DCGM_FI_DEV_FB_USED": OF_CLAIMS | {"GPU_I_ID", "GPU_I_PROFILE", "vgpu"},
    # The label is in hand-made clusters (tests/system/test_unknown_claims.py).
    "kube_namespace_labels": {"label_resource_kubernetes_io_admin_access"},
}  # fmt: skip
"""Labels of the recorded cluster that no simulated one has, by metric, and why."""
JOBS = ("kube-state-metrics", "dcgm-exporter", "neuron-monitor")


def test_fleet_lacks_only_the_listed_labels_of_the_recorded_cluster(tmp_path: Path) -> None:
    recorded: dict[str, set[str]] = {}
    for series in read_series(unpack(tmp_path), JOBS):
        recorded.setdefault(series.name, set()).update(series.labels)
    simulated: dict[str, set[str]] = {}
    for scenario in all_scenarios():
        for each in openmetrics.series(scenario):
            simulated.setdefault(each.metric, set()).update(name for name, text in each.labels.items() if text)
    always = {"__name__", "cluster"}
    assert {
        metric: labels - simulated[metric] - always
        for metric, labels in recorded.items()
        if metric in simulated and labels - simulated[metric] - always
    } == MISSING
    assert recorded.keys() <= simulated.keys()
