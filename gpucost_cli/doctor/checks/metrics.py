"""kube-state-metrics' families that attribution reads: a catalogue, one record each."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpucost.core.metering.kubernetes_labels import NAMESPACE_LABELS_METRIC, NODE_LABELS_METRIC, POD_LABELS_METRIC
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Severity
from gpucost_cli.doctor.facts import CLAIM_INFO, REQUESTS

_ALLOW_LIST = NODE_LABELS_METRIC, NAMESPACE_LABELS_METRIC, POD_LABELS_METRIC
"""Families that are empty unless a flag fills them."""


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One family."""

    metric: str
    severity: Severity
    consequence: str
    """What attribution cannot do without it."""
    resource: str
    """The kind of object that kube-state-metrics must be allowed to collect."""
    is_needed: Callable[[CheckContext], bool] = lambda _: True


def _owned_by(kind: str) -> Callable[[CheckContext], bool]:
    return lambda context: kind in context.facts.owner_kinds or not context.facts.has("kube_pod_owner")


def _with_init_requests(context: CheckContext) -> bool:
    return context.facts.has("kube_pod_init_container_resource_requests")


METRIC_FAMILIES = (
    MetricFamily(
        REQUESTS, "required", "nothing tells which pods hold GPUs", "pods",
        lambda context: not context.facts.has(CLAIM_INFO),
    ),
    MetricFamily(
        "kube_pod_init_container_resource_requests", "optional", "GPUs of init containers are not seen", "pods",
        _with_init_requests,
    ),
    MetricFamily(
        "kube_pod_init_container_status_running", "optional",
        "GPUs that only an init container holds count for the pod's whole time", "pods", _with_init_requests,
    ),
    MetricFamily(
        "kube_pod_status_phase", "recommended",
        "pods that finished or pull their image cannot be told from running ones, and go on costing", "pods",
    ),
    MetricFamily("kube_pod_owner", "recommended", "lines name pods, not the workloads that own them", "pods"),
    MetricFamily(
        "kube_replicaset_owner", "recommended", "Deployments show as their ReplicaSets", "replicasets",
        _owned_by("ReplicaSet"),
    ),
    MetricFamily("kube_job_owner", "recommended", "CronJobs show as their Jobs", "jobs", _owned_by("Job")),
    MetricFamily(
        "kube_pod_completion_time", "optional", "a finish within a gap of the scrapes is known to the gap only", "pods",
        lambda context: context.facts.finished_pods > 0,
    ),
    MetricFamily(
        "kube_pod_status_scheduled_time", "optional", "a start within a gap of the scrapes is known to the gap only",
        "pods",
    ),
    MetricFamily("kube_node_info", "recommended", "a node that is replaced under its name is not noticed", "nodes"),
    MetricFamily(
        "kube_node_status_capacity", "recommended",
        "what nobody held is unknown, and so are shares of sliced and shared GPUs", "nodes",
    ),
    MetricFamily(
        "kube_node_status_allocatable", "recommended", "unhealthy GPUs cannot be told from free ones", "nodes",
    ),
    MetricFamily(NODE_LABELS_METRIC, "recommended", "nodes have no instance type, GPU model, pool and zone", "nodes"),
    MetricFamily(
        NAMESPACE_LABELS_METRIC, "recommended", "business units that are told by namespace labels own nothing",
        "namespaces",        lambda context: bool(context.required_labels.of_namespaces),
    ),
    MetricFamily(
        POD_LABELS_METRIC, "recommended", "business units and cost_labels that are told by pod labels stay blank",
        "pods",        lambda context: bool(context.required_labels.of_pods),
    ),
    MetricFamily(
        CLAIM_INFO, "recommended", "pods that hold GPUs through DRA claims are not seen",
        "pods", lambda context: any(device.claim for device in context.facts.devices),
    ),
)  # fmt: skip
KUBE_METRICS = tuple(needed.metric for needed in METRIC_FAMILIES)


def families(context: CheckContext) -> Iterable[Check]:
    """One check per family."""
    return [_family(context, needed) for needed in METRIC_FAMILIES]


def _family(context: CheckContext, needed: MetricFamily) -> Check:
    metric = needed.metric
    if context.facts.has(metric):
        return context.check(metric, metric, needed.severity)
    if not needed.is_needed(context):
        return context.check(metric, metric, needed.severity, status="not needed", series=0)
    if not context.facts.has_kube_state_metrics:  # said once, of kube-state-metrics itself
        return context.check(metric, metric, needed.severity, status="missing", series=0)
    change = _let_through(needed)
    if metric in _ALLOW_LIST:
        change = context.allow_list
    elif metric == CLAIM_INFO:
        change = f"version 2.20 or later, {change}"
    fault = Fault(f"{metric} has no series: {needed.consequence}", f"kube-state-metrics: {change}")
    return context.check(metric, metric, needed.severity, fault, status="missing", series=0)


def _let_through(needed: MetricFamily) -> str:
    return (
        f"--resources=…,{needed.resource} and --metric-allowlist=…,{needed.metric} where these flags are set; "
        f"and metric_relabel_configs and write_relabel_configs: regex: …|{needed.metric} where they keep by name"
    )


def needed_labels(context: CheckContext) -> Iterable[Check]:
    """Labels of namespaces and pods that the settings ask for: whether any series carries them."""
    for metric, keys in context.required_labels.by_metric().items():
        for key in keys:
            count = context.facts.label_counts.get((metric, key), 0)
            name = f"{metric.split('_')[1]} label {key}"
            if count:
                yield context.check(name, metric, "recommended", series=count)
                continue
            fault = Fault(
                f"no series of {metric} carries the label {key} that the settings ask for",
                f"kube-state-metrics: {context.allow_list}",
            )
            told = context.facts.has(metric)  # otherwise it is said of the family
            yield context.check(name, metric, "recommended", fault if told else None, status="missing", series=0)
