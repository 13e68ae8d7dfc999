"""The simulated fleet writes the labels that a real cluster had, but for the listed ones."""

from pathlib import Path

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.scenarios import all_scenarios
from tests.recorded_hour.recording import read_series, unpack

OF_EVERY_GPU = {"DCGM_FI_DRIVER_VERSION", "pci_bus_id", "node"}
"""No query selects or groups by them; `node` is the target's, which only the rendered scrape configuration adds."""
OF_CLAIMS = {f"dra_{name}" for name in ("claim_name", "claim_namespace", "device_name", "driver_name", "pool_name")}
MISSING = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": OF_EVERY_GPU,
    # Clusters with claims have only the signal above, which counts first.
    "DCGM_FI_DEV_GPU_UTIL": OF_EVERY_GPU | OF_CLAIMS,
    # One cluster has it, whose only signal it is: it measures nothing. Recommendations have metrics of their own.
    "DCGM_FI_DEV_FB_USED": OF_EVERY_GPU | OF_CLAIMS | {"GPU_I_ID", "GPU_I_PROFILE", "pod_uid", "vgpu"},
    "DCGM_FI_DEV_POWER_USAGE": OF_EVERY_GPU,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": OF_EVERY_GPU,
    # The label is in hand-made clusters (tests/system/test_unknown_claims.py).
    "kube_namespace_labels": {"label_resource_kubernetes_io_admin_access"},
    # Versions are not read.
    "kube_node_info": {
        "container_runtime_version", "kernel_version", "kubelet_version", "kubeproxy_version", "os_image",
    },
    # Linux is the default, and the zone says the region.
    "kube_node_labels": {"label_kubernetes_io_os", "label_topology_kubernetes_io_region"},
    # Claims by template and by name are read alike.
    "kube_pod_resourceclaim_info": {"resourceclaim_template_name"},
    # Read only of nodes without labels, which the recorded hour has (test_stock_labels.py).
    "neuroncore_utilization_ratio": {"availability_zone", "instance_name", "node", "region", "subnet_id"},
    "up": {"node"},
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
