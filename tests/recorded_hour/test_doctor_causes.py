"""`gpucost doctor` on the recorded hour without something: one finding for each cause, and the line to change.

What is expected is written by hand, from what was taken away.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest

from gpucost.settings_document import parse_settings
from gpucost_cli.doctor import ClusterReport, examine_cluster
from gpucost_cli.doctor.findings import Finding, group_by_cause
from tests.recorded_hour.recording import (
    HOUR_END,
    RecordedSeries,
    Transform,
    read_series,
    running_variants,
    settings,
    unpack,
)
from tests.recorded_hour.transforms import CHANGED, DCGM, KSM, NEURON, READ, RIGHT, STOCK, without_families

OF_PODS = ("namespace", "pod", "container", "pod_uid")
PROFILING, DEVICE_USE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"


def without_job(job: str) -> Transform:
    return lambda series: [] if series.labels["job"] == job else [series]


def until(minute: int, job: str) -> Transform:
    return lambda series: [series.during(lambda at: at < minute)] if series.labels["job"] == job else [series]


def without_pods_of_devices(series: RecordedSeries) -> Iterable[RecordedSeries]:
    return [series.without(*OF_PODS) if series.name.startswith("DCGM_") else series]


def without_names_of_hosts(series: RecordedSeries) -> Iterable[RecordedSeries]:
    return [series.relabeled(Hostname="dcgm-exporter-x", node="") if series.name.startswith("DCGM_") else series]


def without_node_labels_beginning_with(prefix: str) -> Transform:
    def transform(series: RecordedSeries) -> Iterable[RecordedSeries]:
        if series.name != "kube_node_labels":
            return [series]
        return [series.without(*(name for name in series.labels if name.startswith(prefix)))]

    return transform


def without_objects(kind: str) -> Transform:
    return lambda series: [] if series.name.startswith(f"kube_{kind}_") else [series]


def every_five_minutes(series: RecordedSeries) -> Iterable[RecordedSeries]:
    return [series.during(lambda minute: minute % 5 < 0.5)]


def without_all_claims(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """No metric says that there are ResourceClaims."""
    if series.name == "kube_pod_resourceclaim_info":
        return []
    return CHANGED["no-claim-labels"](series)


TAKEN_AWAY: Mapping[str, Transform] = {
    **RIGHT,
    **CHANGED,
    **{f"stock-{name}": transform for name, transform in STOCK.items()},
    "no-requests": without_families("kube_pod_container_resource_requests"),
    "no-capacity": without_families("kube_node_status_capacity"),
    "no-owners": without_families("kube_pod_owner", "kube_replicaset_owner", "kube_job_owner"),
    "no-nodes": without_objects("node"),
    "no-namespace-labels": without_families("kube_namespace_labels"),
    "blank-node-labels": without_node_labels_beginning_with("label_"),
    "no-gpu-labels": without_node_labels_beginning_with("label_nvidia_"),
    "no-kube-state-metrics": without_job(KSM),
    "no-gpu-exporter": without_job(DCGM),
    "no-neuron-monitor": without_job(NEURON),
    "no-profiling": without_families(PROFILING),
    "no-pods-of-devices": without_pods_of_devices,
    "no-host-names": without_names_of_hosts,
    "kube-state-metrics-stops": until(45, KSM),
    "gpu-exporter-stops": until(45, DCGM),
    "every-five-minutes": every_five_minutes,
    "no-claims": without_all_claims,
    "no-ends": without_families("kube_pod_status_phase", "kube_pod_completion_time", "kube_pod_status_scheduled_time"),
}


class Cause(NamedTuple):
    """What the first finding says that the untouched hour does not have."""

    finding: str
    change: str
    further: Sequence[str] = ()
    """What further findings say, if more than one thing was taken away."""


NODE_LABELS = Cause("kube_node_labels has no series", "--metric-labels-allowlist=nodes=[node.kubernetes.io/instance")
CAPACITY_OF_CPUS = "nodes without kube_node_status_capacity (al-dra-1)"
CAUSES: Mapping[str, Cause | None] = {
    "as-recorded": None,
    "exported-labels": None,
    "other-jobs": None,
    "no-claim-info": Cause("kube_pod_resourceclaim_info has no series", "version 2.20"),
    "no-times": Cause("kube_pod_completion_time has no series", "kube_pod_status_scheduled_time"),
    "no-up": Cause("up of job kube-state-metrics is not kept", "regex: up|…"),
    "two-instances": None,
    "two-replicas": None,
    "no-uids": Cause("requests have no uid", "no labeldrop of uid"),
    "every-minute": None,
    "moved": None,
    "gap-of-allocation": Cause(
        "kube-state-metrics was not scraped from 2026-11-28T13:29:34Z to 2026-11-28T13:40:04Z", "kubectl describe pod"
    ),
    "gap-of-utilization": Cause("GPU exporter was not scraped from 2026-11-28T13:29", "kubectl describe pod"),
    "no-node-labels": NODE_LABELS,
    "no-node-labels-no-slots": NODE_LABELS._replace(further=[CAPACITY_OF_CPUS, "only the last one is"]),
    "no-claim-labels": Cause("their exporter reports no claims", "KUBERNETES_ENABLE_DRA=true"),
    "no-phases": Cause("kube_pod_status_phase has no series", "--metric-allowlist=…,kube_pod_status_phase"),
    "only-admin-claims": None,
    "no-admin-label": Cause("each allocated to several claims", "resource.kubernetes.io/admin-access"),
    "stock-stock": NODE_LABELS,
    "stock-without-memory": NODE_LABELS,
    "stock-with-karpenter": NODE_LABELS,
    "stock-ambiguous": NODE_LABELS._replace(further=["neuroncore_utilization_ratio has no series"]),
    "stock-without-cpus": NODE_LABELS._replace(further=[CAPACITY_OF_CPUS]),
    "no-requests": Cause(
        "kube_pod_container_resource_requests has no series", "…|kube_pod_container_resource_requests if"
    ),
    "no-capacity": Cause("kube_node_status_capacity has no series", "…,kube_node_status_capacity where"),
    "no-owners": Cause("kube_pod_owner has no series", "kube_pod_owner,kube_replicaset_owner,kube_job_owner"),
    "no-nodes": Cause("kube_node_info has no series", "--resources=…,nodes"),
    "no-namespace-labels": Cause("each allocated to several claims", "resource.kubernetes.io/admin-access"),
    "blank-node-labels": Cause("kube_node_labels has no labels", "--metric-labels-allowlist=nodes=["),
    "no-gpu-labels": Cause("no label for the GPU model", "gfd.enabled=true"),
    "no-kube-state-metrics": Cause("matches no series of kube_pod_container_resource_requests", "selector: {cluster:"),
    "no-gpu-exporter": Cause("all other signals have no series", "helm upgrade --install dcgm-exporter"),
    "no-neuron-monitor": Cause("neuroncore_utilization_ratio has no series", "install neuron-monitor"),
    "no-profiling": Cause(f"{DEVICE_USE} is used instead", f"customMetrics): {PROFILING}"),
    "no-pods-of-devices": Cause("no device series is labeled with any of them", "DCGM_EXPORTER_KUBERNETES=true"),
    "no-host-names": Cause("name no node of kube-state-metrics (Hostname dcgm-exporter-x)", "spec.nodeName"),
    "kube-state-metrics-stops": Cause("the last samples of kube-state-metrics are from", "kubectl rollout status"),
    "gpu-exporter-stops": Cause(f"{PROFILING} had series earlier", "dcgm-exporter: kubectl rollout status"),
    "every-five-minutes": Cause("kube-state-metrics is scraped every 300 s", "scrape_interval: 60s"),
    "no-claims": Cause(
        "dra2 (al-dra-2) advertise no GPUs, and kube_pod_resourceclaim_info", "kube_pod_resourceclaim_info"
    ),
    "no-ends": Cause("kube_pod_status_phase has no series", "kube_pod_status_phase,kube_pod_status_scheduled_time"),
}
"""By variant: its only finding. None means that nothing is missing."""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ClusterReport]]:
    recorded = read_series(unpack(tmp_path_factory.mktemp("causes")), (KSM, DCGM, NEURON))
    read = (*READ, DEVICE_USE, "DCGM_FI_DEV_TOTAL_ENERGY")
    with running_variants((series for series in recorded if series.name.startswith(read)), TAKEN_AWAY) as url:
        examined = {}
        for variant in TAKEN_AWAY:
            document = parse_settings(settings(url, variant))
            examined[variant] = examine_cluster(document.clusters[0], document, HOUR_END)
        yield examined


def to_change(report: ClusterReport) -> list[Finding]:
    return [finding for finding in group_by_cause(report.checks) if finding.cause.change]


def further(reports: dict[str, ClusterReport], variant: str) -> list[Finding]:
    """The findings that the untouched hour does not have."""
    recorded = {finding.cause.finding for finding in to_change(reports["as-recorded"])}
    return [finding for finding in to_change(reports[variant]) if finding.cause.finding not in recorded]


def test_every_variant_has_an_expectation() -> None:
    assert CAUSES.keys() == TAKEN_AWAY.keys()


@pytest.mark.parametrize("variant", CAUSES)
def test_each_cause_is_one_finding_with_its_line(reports: dict[str, ClusterReport], variant: str) -> None:
    cause, findings = CAUSES[variant], further(reports, variant)
    if cause is None:
        assert findings == []
        return
    first, *others = findings
    assert cause.finding in (first.cause.finding or "")
    assert cause.change in (first.cause.change or "")
    assert len(others) == len(cause.further), [finding.cause.finding for finding in others]
    for text, finding in zip(cause.further, others, strict=True):
        assert text in (finding.cause.finding or "")


def test_labels_of_nodes_that_are_missing_follow_from_the_missing_metric(reports: dict[str, ClusterReport]) -> None:
    (finding,) = further(reports, "no-node-labels")
    labels = {check.name.removeprefix("node label ").partition(" or ")[0] for check in finding.consequences}
    assert labels == {
        "node.kubernetes.io/instance-type",
        "karpenter.sh/capacity-type",
        "topology.kubernetes.io/zone",
        "karpenter.sh/nodepool",
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.replicas",
        "nvidia.com/gpu.sharing-strategy",
    }


def test_pods_without_phases_hold_no_gpus_after_they_completed(reports: dict[str, ClusterReport]) -> None:
    recorded, without_phases = reports["as-recorded"].summary, reports["no-phases"].summary
    assert recorded is not None and without_phases is not None
    assert without_phases.holding == recorded.holding


def test_pods_whose_ends_no_metric_reports_hold_gpus_while_an_exporter_names_them(
    reports: dict[str, ClusterReport],
) -> None:
    """Pods of Neuron devices are named by none."""
    without_ends = reports["no-ends"].summary
    assert without_ends is not None
    assert without_ends.holding.startswith("32 pods hold 38.04 GPUs on 10 nodes now")


def test_claims_that_may_have_admin_access_are_noted_where_they_hold(reports: dict[str, ClusterReport]) -> None:
    notes = [check.finding or "" for check in reports["only-admin-claims"].checks if not check.change]
    (note,) = [note for note in notes if "claims" in note]
    assert note.startswith("8 devices of node pool dra2 (al-dra-2) are allocated only to claims of namespaces with")
    assert not [check.finding for check in reports["as-recorded"].checks if "allocated only" in (check.finding or "")]
