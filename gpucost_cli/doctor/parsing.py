"""Converts results of Prometheus queries to facts."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise

from gpucost.core.metering.accelerators import NEURON, NVIDIA, Accelerator, accelerator_of_signal
from gpucost.core.metering.fraction_schedulers import FRACTION_RESOURCES, FRACTION_SCHEDULERS
from gpucost.core.metering.instance_types import instance_id_of, zone_of_provider_id
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.metrics_sources import metrics_source_of
from gpucost.sources.prometheus.queries import STATISTIC_LABEL
from gpucost.sources.prometheus.tables import exported_label, object_labels, parse_number
from gpucost_cli.doctor.facts import GpuHolder, ObservedDevice, ObservedNode, Target
from gpucost_cli.doctor.queries import AT_ZERO, NODE_NAME_LABELS

Labels = Mapping[str, str]
_NODE_NAMES = tuple(name for name in NODE_NAME_LABELS if name != "instance_id")


def parse_target(labels: Labels) -> Target:
    """The target that a series was scraped from, and the replica of Prometheus that scraped it."""
    replica = labels.get("prometheus_replica") or labels.get("__replica__", "")
    return Target(labels.get("job", ""), labels.get("instance", ""), replica)


def max_counts(series: Iterable[Series], label: str = "__name__") -> dict[str, int]:
    """The largest sum of counts at any time, by a label's value."""
    sums: dict[str, dict[int, int]] = {}
    for labels, samples in series:
        by_time = sums.setdefault(labels.get(label, ""), {})
        for time, value in samples:
            by_time[time] = by_time.get(time, 0) + int(parse_number(value))
    return {name: max(by_time.values()) for name, by_time in sums.items() if by_time}


def max_value(series: Series) -> Decimal:
    """The largest value, ignoring NaN; 0 if there is none."""
    values = [value for _, text in series.samples if (value := parse_number(text)).is_finite()]
    return max(values, default=Decimal(0))


def scrape_times_by_exporter(series: Iterable[Series]) -> dict[Target, frozenset[int]]:
    """The times at which each target had series."""
    times: dict[Target, set[int]] = {}
    for labels, samples in series:
        times.setdefault(parse_target(labels), set()).update(time for time, _ in samples)
    return {exporter: frozenset(exporter_times) for exporter, exporter_times in times.items()}


def parse_gpu_holders(series: Iterable[Series]) -> list[GpuHolder]:
    """Pods with their effective request: the sum of their containers, or their largest init container if larger."""
    units: dict[tuple[str, str, str, str, str], dict[tuple[bool, str], int]] = {}
    targets: dict[tuple[str, str, str, str, str], set[Target]] = {}
    for pod_series in series:
        labels = pod_series.labels
        if labels.get("resource") in FRACTION_RESOURCES:
            continue  # a part of what the pod's nvidia.com/gpu stand for
        pod = (
            exported_label(labels, "namespace"),
            exported_label(labels, "pod"),
            labels.get("uid", ""),
            exported_label(labels, "node"),
            labels.get("resource", ""),
        )
        container = labels.get(STATISTIC_LABEL) == "init", exported_label(labels, "container")
        units.setdefault(pod, {})[container] = int(parse_number(pod_series.samples[-1][1]))
        targets.setdefault(pod, set()).add(parse_target(labels))
    return [
        GpuHolder(*pod, units=effective, targets=frozenset(targets[pod]))
        for pod, requests in units.items()
        if (effective := _effective_request(requests)) > 0
    ]


def nodes_by_scheduler(requests: Sequence[Series]) -> dict[str, frozenset[str]]:
    """Names of nodes on which pods request fractions of GPUs, by the scheduler whose resources they are."""
    return {
        scheduler.name: frozenset(
            exported_label(labels, "node") for labels, _ in requests if labels.get("resource") in scheduler.resources
        )
        for scheduler in FRACTION_SCHEDULERS
    }


def parse_nodes(series: Iterable[Series], holders: Iterable[GpuHolder] = ()) -> dict[str, ObservedNode]:
    """Nodes by name, including nodes that are known only from the pods on them."""
    by_name: dict[str, list[Series]] = {holder.node: [] for holder in holders}
    for node_series in series:
        by_name.setdefault(exported_label(node_series.labels, "node"), []).append(node_series)
    return {name: _parse_node(name, rows) for name, rows in by_name.items() if name}


def without_gone_pods(
    holders: Sequence[GpuHolder], nodes: Mapping[str, ObservedNode], devices: Iterable[ObservedDevice]
) -> Sequence[GpuHolder]:
    """Leave out pods whose objects outlived their node, for example after a spot interruption: they hold no GPUs.

    A node is gone if neither kube-state-metrics nor an exporter reports it, unless no nodes are reported at all.
    """
    has_node_info = any(node.has_info for node in nodes.values())
    reported = {*nodes, *(name for device in devices for name in device.node_names)}
    remaining = [holder for holder in holders if holder.node in reported]
    return remaining if remaining or has_node_info else holders


def without_unnamed_pods(holders: Sequence[GpuHolder], devices: Iterable[ObservedDevice]) -> list[GpuHolder]:
    """Leave out pods that no exporter names, on nodes where exporters name others: they may be finished.

    Metering does so where no metric says when pods finish.
    """
    named = {device.workload for device in devices}
    nodes = {holder.node for holder in holders if holder.name in named}
    return [holder for holder in holders if holder.name in named or holder.node not in nodes]


def parse_devices(series: Iterable[Series]) -> list[ObservedDevice]:
    """Devices, one for each series."""
    return [_parse_device(labels, is_zero=parse_number(samples[-1][1]) == 0) for labels, samples in series]


def nodes_in_turn(series: Iterable[Series]) -> dict[Target, frozenset[str]]:
    """Targets that report other nodes at other times, and back again; with the names of the nodes."""
    names = (*NODE_NAME_LABELS, "exported_node")
    by_target: dict[Target, dict[int, set[str]]] = {}
    for labels, samples in series:
        times = by_target.setdefault(parse_target(labels), {})
        node = next((labels[name] for name in reversed(names) if labels.get(name)), "")
        for time, _ in samples:
            times.setdefault(time, set()).add(node)
    in_turn: dict[Target, frozenset[str]] = {}
    for target, times in by_target.items():
        changes = sum(times[before].isdisjoint(times[after]) for before, after in pairwise(sorted(times)))
        if changes > 1:  # an address that a pod of another node took over changes once
            in_turn[target] = frozenset[str]().union(*times.values())
    return in_turn


def contradicted_devices(series: Iterable[Series], accelerator: Accelerator, uuids: Iterable[str]) -> dict[str, str]:
    """The devices, of some, whose signals are 0 and whose power says that they are in use: the metric by UUID."""
    metrics: dict[str, set[str]] = {}
    for labels, _ in series:
        metrics.setdefault(accelerator.labels.identify(labels).uuid, set()).add(labels.get(STATISTIC_LABEL, ""))
    return {
        uuid: min(metrics[uuid] - {AT_ZERO})
        for uuid in uuids
        if AT_ZERO in metrics.get(uuid, ()) and len(metrics[uuid]) > 1
    }


def first_statistics(series: Iterable[Series], label: str) -> dict[str, str]:
    """By a label's text, the first statistic that has it."""
    first: dict[str, str] = {}
    for labels, _ in series:
        first.setdefault(labels.get(label, ""), labels.get(STATISTIC_LABEL, ""))
    return first


def values_by_label(series: Iterable[Series]) -> dict[str, list[str]]:
    """The sorted values of every label."""
    values_by_name: dict[str, set[str]] = {}
    for labels, _ in series:
        for name, value in labels.items():
            values_by_name.setdefault(name, set()).add(value)
    return {name: sorted(values) for name, values in values_by_name.items()}


def count_series_by_job(series: Iterable[Series]) -> dict[str, dict[str, int]]:
    """Counts of series by source and job."""
    by_source: dict[str, dict[str, int]] = {}
    for labels, samples in series:
        by_job = by_source.setdefault(metrics_source_of(labels["__name__"]) or "", {})
        job = labels.get("job", "")
        by_job[job] = by_job.get(job, 0) + int(parse_number(samples[-1][1]))
    return by_source


def count_series_by_label(series: Sequence[Series]) -> dict[tuple[str, str], int]:
    """Counts of series by metric and Kubernetes label."""
    counts = max_counts(series, STATISTIC_LABEL)
    parts = ((name.partition(" "), count) for name, count in counts.items())
    return {(metric, key): count for (metric, _, key), count in parts if key}


def sums_by_device(series: Iterable[Series]) -> dict[str, dict[str, Decimal]]:
    """The sum of samples by UUID and statistic."""
    sums: dict[str, dict[str, Decimal]] = {}
    for labels, samples in series:
        total = sum((parse_number(number) for _, number in samples), Decimal(0))
        sums.setdefault(labels.get("UUID", ""), {})[labels.get(STATISTIC_LABEL, "")] = total
    return sums


def labels_that_select(labels: Labels) -> dict[str, str]:
    """Labels that select a series."""
    return {name: value for name, value in labels.items() if name not in {STATISTIC_LABEL, "__name__"}}


def _effective_request(requests: Mapping[tuple[bool, str], int]) -> int:
    running = sum(units for (init, _), units in requests.items() if not init)
    return max(running, max((units for (init, _), units in requests.items() if init), default=0))


def _parse_node(name: str, rows: Sequence[Series]) -> ObservedNode:
    stats: dict[str, list[Series]] = {}
    for row in rows:
        stats.setdefault(row.labels.get(STATISTIC_LABEL, ""), []).append(row)
    info, capacity = stats.get("info", []), _units_by_resource(stats.get("capacity", []))
    provider_id = next((exported_label(row.labels, "provider_id") for row in info), "")
    return ObservedNode(
        name=name,
        instance_id=instance_id_of(provider_id),
        zone_of_provider_id=zone_of_provider_id(provider_id),
        has_info=bool(info),
        labels={key: value for row in stats.get("labels", []) for key, value in object_labels(row.labels).items()},
        capacity=capacity,
        allocatable=_units_by_resource(stats.get("allocatable", [])),
        targets=frozenset(parse_target(row.labels) for row in info),
        reports_capacity="reports" in stats or bool(capacity),
    )


def _units_by_resource(rows: Iterable[Series]) -> dict[str, int]:
    units = {row.labels.get("resource", ""): int(parse_number(row.samples[-1][1])) for row in rows}
    return {resource: count for resource, count in units.items() if count}


def _parse_device(labels: Labels, *, is_zero: bool) -> ObservedDevice:
    accelerator = accelerator_of_signal(labels["__name__"])
    device = accelerator.labels.identify(labels) if accelerator is not None else None
    has_exported_labels = "exported_pod" in labels or "exported_namespace" in labels
    namespace, pod = (
        (labels.get("exported_namespace", ""), labels.get("exported_pod", ""))
        if has_exported_labels
        else (
            labels.get("namespace") or labels.get("pod_namespace", ""),
            labels.get("pod") or labels.get("pod_name", ""),
        )
    )
    if accelerator is not None and accelerator.labels.pod is not None:
        has_exported_labels = False
        namespace, pod = (labels.get(name, "") for name in accelerator.labels.pod)
    index = f"{labels.get('gpu', '')}/{labels.get('device', '')}"
    node_labels = ("instance_id",) if accelerator is NEURON else _NODE_NAMES
    return ObservedDevice(
        signal=labels["__name__"],
        target=parse_target(labels),
        uuid=(device.uuid if device is not None else labels.get("UUID") or labels.get("uuid")) or index,
        mig_id=device.partition if device is not None else labels.get("GPU_I_ID", ""),
        profile=device.profile if device is not None else labels.get("GPU_I_PROFILE", ""),
        model=device.model if device is not None else labels.get("modelName", ""),
        node_names=[labels[name] for name in node_labels if labels.get(name)],
        workload=(namespace, pod),
        has_exported_labels=has_exported_labels,
        target_pod=labels.get("pod", ""),
        slot=labels.get("vgpu", ""),
        claim=labels.get("dra_claim_name", ""),
        is_zero=is_zero,
        labels=labels,
        vendor=NVIDIA if accelerator is None else accelerator.vendor,
    )
