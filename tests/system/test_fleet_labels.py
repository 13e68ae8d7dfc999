"""The simulated fleet writes the labels that a real cluster had, but for the listed ones."""

from pathlib import Path

import requests

from gpucost.core.hours import DAY
from tests.recorded_hour.recording import read_series, unpack
from tests.system.fleet_blocks import BASE, SCENARIOS

OF_CLAIMS = {f"dra_{name}" for name in ("claim_name", "claim_namespace", "device_name", "driver_name", "pool_name")}
MISSING = {
    # Clusters with claims have only the signal above, which counts first.
    "DCGM_FI_DEV_GPU_UTIL": OF_CLAIMS,
    # One cluster has it, whose only signal it is: it measures nothing. Recommendations have metrics of their own.
    "DCGM_FI_DEV_FB_USED": OF_CLAIMS | {"GPU_I_ID", "GPU_I_PROFILE", "vgpu"},
    # The label is in hand-made clusters (tests/system/test_unknown_claims.py).
    "kube_namespace_labels": {"label_resource_kubernetes_io_admin_access"},
}
"""Labels of the recorded cluster that no simulated one has, by metric, and why."""
JOBS = ("kube-state-metrics", "dcgm-exporter", "neuron-monitor")


def test_fleet_lacks_only_the_listed_labels_of_the_recorded_cluster(tmp_path: Path, fleet_url: str) -> None:
    recorded: dict[str, set[str]] = {}
    for series in read_series(unpack(tmp_path), JOBS):
        recorded.setdefault(series.name, set()).update(series.labels)
    simulated: dict[str, set[str]] = {}
    # VictoriaMetrics needs a period, and answers with at most 30,000 series.
    period = {"start": str(BASE.timestamp()), "end": str((BASE + DAY).timestamp())}
    for metric in recorded:
        answer = requests.get(f"{fleet_url}/api/v1/series", params={"match[]": metric, **period}, timeout=120)
        for labels in answer.json()["data"]:
            if labels.get("cluster") in SCENARIOS:
                simulated.setdefault(metric, set()).update(labels)
    assert {
        metric: labels - simulated[metric]
        for metric, labels in recorded.items()
        if metric in simulated and labels - simulated[metric]
    } == MISSING
    assert recorded.keys() <= simulated.keys()
