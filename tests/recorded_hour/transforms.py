"""What other scrape configurations, versions and outages make of the recorded series."""

from collections.abc import Iterable, Mapping

from tests.recorded_hour.recording import RecordedSeries, Transform, true_nodes

KSM, DCGM, NEURON = "kube-state-metrics", "dcgm-exporter", "neuron-monitor"
READ = (
    "kube_pod_container_resource_requests",
    "kube_pod_init_container",
    "kube_pod_status_phase",
    "kube_pod_owner",
    "kube_pod_resourceclaim_info",
    "kube_pod_completion_time",
    "kube_pod_status_scheduled_time",
    "kube_node",
    "kube_replicaset_owner",
    "kube_job_owner",
    "kube_namespace_labels",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "neuroncore_",
    "up",
)


def without_families(*names: str) -> Transform:
    return lambda series: [] if series.name in names else [series]


def without_labels(*names: str) -> Transform:
    return lambda series: [series.without(*names)]


def with_exported_labels(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """As with `honorLabels: false`: the target's own labels take the names."""
    of_target = {"namespace": "monitoring", "pod": "exporter-0", "node": "elsewhere", "container": "exporter"}
    if series.name == "up":
        return [series.relabeled(**of_target)]
    exported = {f"exported_{name}": series.labels[name] for name in of_target if name in series.labels}
    return [series.relabeled(**of_target, **exported)]


def with_other_jobs(series: RecordedSeries) -> Iterable[RecordedSeries]:
    return [series.relabeled(job=f"monitoring/{series.labels['job']}-0")]


def every_minute(series: RecordedSeries) -> Iterable[RecordedSeries]:
    return [series.during(lambda minute: minute % 1 < 0.5)]


def of_two_instances(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """Two instances of kube-state-metrics, each scraped once a minute, 30 seconds apart."""
    if series.labels["job"] != KSM:
        return [series]
    first, second = _divided(series)
    return [first, second.relabeled(instance="10.0.0.2:8080")]


def moved(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """At minute 25, kube-state-metrics moves to another address, with a gap of two minutes."""
    if series.labels["job"] != KSM:
        return [series]
    successor = series.relabeled(instance="10.0.0.2:8080")
    return [series.during(lambda minute: minute < 24), successor.during(lambda minute: minute >= 26)]


def of_two_replicas(series: RecordedSeries) -> Iterable[RecordedSeries]:
    first, second = _divided(series)
    return [first.relabeled(prometheus_replica="a"), second.relabeled(prometheus_replica="b")]


def _divided(series: RecordedSeries) -> tuple[RecordedSeries, RecordedSeries]:
    """Every other sample, and the rest."""
    return series.during(lambda minute: minute % 1 < 0.5), series.during(lambda minute: minute % 1 >= 0.5)


def with_gap_of(job: str) -> Transform:
    def transform(series: RecordedSeries) -> Iterable[RecordedSeries]:
        if series.labels["job"] != job:
            return [series]
        return [series.during(lambda minute: not 30 <= minute < 40)]

    return transform


def without_slots(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """No labels or sizes of nodes, and an exporter without virtual GPUs: a shared GPU has the label of one pod."""
    is_size = series.labels.get("resource") in {"cpu", "memory"} and series.name == "kube_node_status_capacity"
    if series.name == "kube_node_labels" or is_size or series.labels.get("vgpu", "0") != "0":
        return []
    return [series.without("vgpu")]


def without_watched_pods(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """The GPUs that the admin claim sees are all idle."""
    return [] if series.labels.get("pod", "").startswith("dra-watched") else [series]


RIGHT: Mapping[str, Transform] = {
    "as-recorded": lambda series: [series],
    "exported-labels": with_exported_labels,
    "other-jobs": with_other_jobs,
    "no-claim-info": without_families("kube_pod_resourceclaim_info"),
    "no-times": without_families("kube_pod_completion_time", "kube_pod_status_scheduled_time"),
    "no-up": without_families("up"),
    "two-instances": of_two_instances,
    "two-replicas": of_two_replicas,
}
"""What changes no pod's GPU-hours."""
CHANGED: Mapping[str, Transform] = {
    "no-uids": without_labels("uid", "pod_uid"),
    "every-minute": every_minute,
    "moved": moved,
    "gap-of-allocation": with_gap_of(KSM),
    "gap-of-utilization": with_gap_of(DCGM),
    "no-node-labels": without_families("kube_node_labels"),
    "no-node-labels-no-slots": without_slots,
    "no-claim-labels": without_labels(
        "dra_claim_name", "dra_claim_namespace", "dra_device_name", "dra_driver_name", "dra_pool_name"
    ),
    "no-phases": without_families("kube_pod_status_phase"),
    "only-admin-claims": without_watched_pods,
    "no-admin-label": without_labels("label_resource_kubernetes_io_admin_access"),
}


CPUS = {"p5.48xlarge": 192, "p4d.24xlarge": 96, "g5.12xlarge": 48, "trn2.48xlarge": 192, "m7i.4xlarge": 16}
GIBIBYTES = {"p5.48xlarge": 2048, "p4d.24xlarge": 1152, "g5.12xlarge": 192, "trn2.48xlarge": 2048, "m7i.4xlarge": 64}
NODES = true_nodes()
GPU_NODES = {name: instance_type for name, (instance_type, _, _) in NODES.items() if not instance_type.startswith("m7")}


def stock(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """Without labels of nodes, with true CPUs and the memory that a kubelet reports."""
    if series.name == "kube_node_labels":
        return []
    if series.name == "kube_node_status_capacity" and series.labels["resource"] == "cpu":
        instance_type, _, _ = NODES[series.labels["node"]]
        memory = series.relabeled(resource="memory", unit="byte").of(str(int(GIBIBYTES[instance_type] * 2**30 * 0.96)))
        return [series.of(str(CPUS[instance_type])), memory]
    return [series]


SPOT = {"al-g5-1", "al-g5-2", "al-g5-3"}


def without_memory(series: RecordedSeries) -> Iterable[RecordedSeries]:
    return [each for each in stock(series) if each.labels.get("resource") != "memory"]


def with_karpenter(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """With Karpenter's metrics, and without true CPUs: what Karpenter says needs no hardware."""
    if series.name == "kube_node_labels":
        return []
    if series.name != "kube_node_status_capacity" or series.labels["resource"] != "cpu":
        return [series]
    name = series.labels["node"]
    instance_type, _, _ = NODES[name]
    karpenter = RecordedSeries(
        {
            "__name__": "karpenter_nodes_allocatable",
            "job": "karpenter",
            "instance": "karpenter:8080",
            "node_name": name,
            "instance_type": instance_type,
            "capacity_type": "spot" if name in SPOT else "on-demand",
            "zone": "us-west-2a",
            "nodepool": "pool",
            "resource_type": "cpu",
        },
        series.samples,
    )
    return [series, karpenter]


def ambiguous(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """The p5 nodes have H200, which two types have, and no exporter reports the type of the Trainium node."""
    if series.labels["job"] == NEURON:
        return []
    return [
        each.relabeled(modelName="NVIDIA H200") if "H100" in each.labels.get("modelName", "") else each
        for each in stock(series)
    ]


def without_capacity_of_cpus(series: RecordedSeries) -> Iterable[RecordedSeries]:
    return [each for each in without_memory(series) if each.labels.get("resource") != "cpu"]


STOCK: Mapping[str, Transform] = {
    "stock": stock,
    "without-memory": without_memory,
    "with-karpenter": with_karpenter,
    "ambiguous": ambiguous,
    "without-cpus": without_capacity_of_cpus,
}
