"""The metrics of kube-state-metrics that attribution reads."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpucost.core.hours import format_timestamp
from gpucost.core.metering.kubernetes_labels import NAMESPACE_LABELS_METRIC, NODE_LABELS_METRIC, POD_LABELS_METRIC
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Severity, Status, doctor_check
from gpucost_cli.doctor.facts import CLAIM_INFO, REQUESTS
from gpucost_cli.settings_notes import units_without_namespace

_ALLOW_LIST = NODE_LABELS_METRIC, NAMESPACE_LABELS_METRIC, POD_LABELS_METRIC
"""Metrics that kube-state-metrics exports only with a flag."""


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric that attribution reads."""

    metric: str
    severity: Severity
    consequence: str
    """What attribution lacks without it."""
    resource: str
    """The kind of object that kube-state-metrics must be allowed to collect."""
    is_needed: Callable[[CheckContext], bool] = lambda _: True
    settings_decide: bool = False
    """Whether the need depends on the settings alone."""


def _has_owners(kind: str) -> Callable[[CheckContext], bool]:
    return lambda context: kind in context.facts.owner_kinds or not context.facts.has_series_of_any("kube_pod_owner")


def _with_init_requests(context: CheckContext) -> bool:
    return context.facts.has_series_of_any("kube_pod_init_container_resource_requests")


def _has_pods_without_claims(context: CheckContext) -> bool:
    """Whether pods may hold GPUs without a claim, by which kube-state-metrics would know them, too."""
    facts = context.facts
    labeled = any(
        all(device.workload) and not device.claim and not facts.is_exporter_pod(device) for device in facts.devices
    )
    return labeled or _with_init_requests(context) or not facts.has_series_of_any(CLAIM_INFO)


METRIC_FAMILIES = (
    MetricFamily(REQUESTS, "required", "it is unknown which pods hold GPUs", "pods", _has_pods_without_claims),
    MetricFamily(
        "kube_pod_init_container_resource_requests",
        "optional",
        "GPUs of init containers are not counted",
        "pods",
        _with_init_requests,
    ),
    MetricFamily(
        "kube_pod_init_container_status_running",
        "optional",
        "GPUs that only an init container holds count for the pod's whole lifetime",
        "pods",
        _with_init_requests,
    ),
    MetricFamily(
        "kube_pod_status_phase",
        "recommended",
        "pods that pull their image count as running, and finished ones hold GPUs until kube_pod_completion_time; "
        "without that, too, pods of nodes where dcgm-exporter names any hold GPUs only while it names them",
        "pods",
    ),
    MetricFamily("kube_pod_owner", "recommended", "lines show pods, not the workloads that own them", "pods"),
    MetricFamily(
        "kube_replicaset_owner",
        "recommended",
        "Deployments appear as their ReplicaSets",
        "replicasets",
        _has_owners("ReplicaSet"),
    ),
    MetricFamily("kube_job_owner", "recommended", "CronJobs appear as their Jobs", "jobs", _has_owners("Job")),
    MetricFamily(
        "kube_pod_completion_time",
        "optional",
        "the end of a pod in a scrape gap is known only roughly",
        "pods",
        lambda context: context.facts.finished_pods > 0,
    ),
    MetricFamily(
        "kube_pod_status_scheduled_time", "optional", "the start of a pod in a scrape gap is known only roughly", "pods"
    ),
    MetricFamily(
        "kube_node_info", "recommended", "a node that is replaced by one of the same name is not noticed", "nodes"
    ),
    MetricFamily(
        "kube_node_status_capacity",
        "recommended",
        "unallocated GPUs and the shares of sliced and shared GPUs are unknown",
        "nodes",
    ),
    MetricFamily("kube_node_status_allocatable", "recommended", "unhealthy GPUs count as unallocated", "nodes"),
    MetricFamily(
        NODE_LABELS_METRIC,
        "recommended",
        "nodes have no pool, and other metrics stand in for their instance type, GPU model and zone, as far as they "
        "can. kube-state-metrics exports only labels that a flag lists, and kube-prometheus-stack sets no such flag",
        "nodes",
    ),
    MetricFamily(
        NAMESPACE_LABELS_METRIC,
        "recommended",
        "business units with namespace_labels get no pods",
        "namespaces",
        lambda context: bool(context.required_labels.of_namespaces),
        settings_decide=True,
    ),
    MetricFamily(
        POD_LABELS_METRIC,
        "recommended",
        "business units with pod_labels get no pods, and cost_labels are blank",
        "pods",
        lambda context: bool(context.required_labels.of_pods),
        settings_decide=True,
    ),
    MetricFamily(
        CLAIM_INFO,
        "recommended",
        "pods that hold GPUs through DRA claims have no owner and no labels",
        "pods",
        lambda context: any(device.claim for device in context.facts.devices),
    ),
)
KUBE_METRICS = tuple(needed.metric for needed in METRIC_FAMILIES)


@doctor_check("kube-state-metrics")
def check_metric_families(context: CheckContext) -> Iterable[Check]:
    """Check each metric. All that are missing are in one line to change, and labels of objects in another one."""
    facts = context.facts
    missing = [
        family
        for family in METRIC_FAMILIES
        if family.metric not in (*_ALLOW_LIST, CLAIM_INFO)
        and not facts.has_series_of_any(family.metric)
        and family.is_needed(context)
    ]
    return [_check_family(context, family, missing) for family in METRIC_FAMILIES]


def _check_family(context: CheckContext, family: MetricFamily, missing: Sequence[MetricFamily]) -> Check:
    """Check one metric.

    Args:
        context: the facts and settings of a cluster.
        family: the metric.
        missing: all metrics without series that kube-state-metrics exports without a flag.
    """
    facts, metric = context.facts, family.metric
    has_no_labels = metric == NODE_LABELS_METRIC and not any(node.labels for node in facts.nodes.values())
    if facts.has_series_of_any(metric) and not (has_no_labels and facts.gpu_nodes):
        return context.check(metric, metric, family.severity)
    if not family.is_needed(context):
        status: Status = "not needed" if family.settings_decide else context.status_without_need
        return context.check(metric, metric, family.severity, status=status, series=0)
    if not facts.has_kube_state_metrics:  # the check of kube-state-metrics itself has the finding
        return context.check(metric, metric, family.severity, status="missing", series=0)
    change = f"kube-state-metrics: {_allow_metrics(missing)}"
    explained_by: Sequence[str] = ()
    if metric in _ALLOW_LIST:
        change, explained_by = context.label_change, _families_of_absent_resource(context, family)
    elif metric == CLAIM_INFO:
        change = f"kube-state-metrics: version 2.20 or later, {_allow_metrics([family])}"
    lacks = "series" if not facts.has_series_of_any(metric) else "labels that attribution reads"
    fault = Fault(
        f"{metric} has no {lacks}: {family.consequence}",
        change,
        f"{metric}: {family.consequence}",
        explained_by=explained_by,
    )
    return context.check(metric, metric, family.severity, fault, status="missing", series=0)


def _families_of_absent_resource(context: CheckContext, family: MetricFamily) -> Sequence[str]:
    """The needed metrics of the family's kind of object, if none has series: such objects are not collected at all."""
    others = [other for other in METRIC_FAMILIES if other.resource == family.resource and other != family]
    metrics = [other.metric for other in others if other.metric not in _ALLOW_LIST]
    return () if context.facts.has_series_of_any(*metrics) else metrics


def _allow_metrics(families: Iterable[MetricFamily]) -> str:
    metrics, resources = [family.metric for family in families], dict.fromkeys(family.resource for family in families)
    return (
        f"--resources=…,{','.join(resources)} and --metric-allowlist=…,{','.join(metrics)} where these flags are set; "
        f"and metric_relabel_configs and write_relabel_configs: regex: …|{'|'.join(metrics)} if they keep metrics by "
        "name"
    )


@doctor_check("kube-state-metrics")
def check_labels_that_settings_need(context: CheckContext) -> Iterable[Check]:
    """Check whether series have the labels of namespaces and pods that the settings need."""
    for metric, keys in context.required_labels.by_metric().items():
        for key in keys:
            count = context.facts.label_counts.get((metric, key), 0)
            name = f"{metric.split('_')[1]} label {key}"
            if count:
                yield context.check(name, metric, "recommended", series=count)
                continue
            fault = Fault(
                f"no series of {metric} has the label {key}, which the settings need",
                context.label_change,
                f"the label {key}, which the settings need, is unknown",
            )
            has_cause = not context.facts.has_kube_state_metrics  # the check of kube-state-metrics has the finding
            yield context.check(name, metric, "recommended", None if has_cause else fault, status="missing", series=0)


@doctor_check(
    "kube-state-metrics",
    """
namespaces of business units (a note) | no pod with GPUs is now in a namespace that the unit's shell patterns match. The unit may have no pods at this time, or its patterns are wrong, for example regular expressions. Only with a single cluster in the settings, because the unit's pods may be in another one | `namespaces` of the unit in the settings
""",  # noqa: E501 - one line for each row
)
def check_namespaces_of_business_units(context: CheckContext) -> Iterable[Check]:
    """Note business units whose patterns match no namespace of pods with GPUs.

    With several clusters, a unit may have its pods in another one.
    """
    facts = context.facts
    namespaces = {holder.namespace for holder in facts.holders}
    if not namespaces or len(context.settings.clusters) > 1:
        return
    if units := units_without_namespace(context.settings, namespaces, facts.now):
        described = ", ".join(f"{unit.name} ({', '.join(unit.namespaces)})" for unit in units)
        note = (
            f"at {format_timestamp(facts.evaluated_at)}, no pod with GPUs is in the namespaces of the business units "
            f"{described}. If there are such pods, correct the shell patterns in the settings"
        )
        yield context.check("namespaces of business units", "", "optional", note=note, status="unknown")
