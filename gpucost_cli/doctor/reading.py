"""Turns Prometheus' answers into facts."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.queries import STAT
from gpucost.sources.prometheus.source_selectors import source_of
from gpucost.sources.prometheus.tables import exported_label, number, object_labels
from gpucost_cli.doctor.facts import Device, Holder, Node, Target
from gpucost_cli.doctor.signals import NEURON

Labels = Mapping[str, str]
_NODE_NAMES = ("Hostname", "hostname", "node", "kubernetes_node", "nodename")


def target(labels: Labels) -> Target:
    """Which process a series was scraped from, and by which of several equal Prometheus servers."""
    replica = labels.get("prometheus_replica") or labels.get("__replica__", "")
    return Target(labels.get("job", ""), labels.get("instance", ""), replica)


def max_counts(series: Iterable[Series], label: str = "__name__") -> dict[str, int]:
    """Sums of counts by a label, at the time at which each is highest."""
    sums: dict[str, dict[int, int]] = {}
    for one in series:
        by_time = sums.setdefault(one.labels.get(label, ""), {})
        for at, value in one.samples:
            by_time[at] = by_time.get(at, 0) + int(number(value))
    return {name: max(by_time.values()) for name, by_time in sums.items() if by_time}


def max_value(series: Series) -> Decimal:
    """The highest value; NaN says nothing."""
    values = [value for _, text in series.samples if (value := number(text)).is_finite()]
    return max(values, default=Decimal(0))


def exporters(series: Iterable[Series]) -> dict[Target, frozenset[int]]:
    """The times at which anything of each process was there."""
    times: dict[Target, set[int]] = {}
    for one in series:
        times.setdefault(target(one.labels), set()).update(at for at, _ in one.samples)
    return {who: frozenset(seen) for who, seen in times.items()}


def holders(series: Iterable[Series]) -> list[Holder]:
    """Pods with their effective request: the larger of their containers together and their largest init container."""
    units: dict[tuple[str, str, str, str, str], dict[tuple[bool, str], int]] = {}
    seen: dict[tuple[str, str, str, str, str], set[Target]] = {}
    for one in series:
        labels = one.labels
        pod = (
            exported_label(labels, "namespace"), exported_label(labels, "pod"), labels.get("uid", ""), exported_label(labels, "node"),
            labels.get("resource", ""),
        )  # fmt: skip
        container = labels.get(STAT) == "init", exported_label(labels, "container")
        units.setdefault(pod, {})[container] = int(number(one.samples[-1][1]))
        seen.setdefault(pod, set()).add(target(labels))
    return [
        Holder(*pod, units=effective, targets=frozenset(seen[pod]))
        for pod, requests in units.items()
        if (effective := _effective(requests)) > 0
    ]


def nodes(series: Iterable[Series], holders: Iterable[Holder] = ()) -> dict[str, Node]:
    """Nodes by name, those included of which only the pods on them tell."""
    by_name: dict[str, list[Series]] = {one.node: [] for one in holders}
    for one in series:
        by_name.setdefault(exported_label(one.labels, "node"), []).append(one)
    return {name: _node(name, rows) for name, rows in by_name.items() if name}


def without_gone_pods(holders: Sequence[Holder], nodes: Mapping[str, Node], devices: Iterable[Device]) -> Sequence[Holder]:
    """Leave out pods whose objects outlived their node, as after a spot reclaim: they hold nothing.

    A node that neither kube-state-metrics nor an exporter tells of is gone, unless nodes are not told of at all.
    """
    kept = any(node.has_info for node in nodes.values())
    there = {*nodes, *(name for device in devices for name in device.node_names)}
    left = [one for one in holders if one.node in there]
    return left if left or kept else holders


def devices(series: Iterable[Series]) -> list[Device]:
    """Device series."""
    return [_device(one.labels) for one in series]


def values_by_label(series: Iterable[Series]) -> dict[str, list[str]]:
    """Every label with its values, sorted."""
    found: dict[str, set[str]] = {}
    for one in series:
        for name, value in one.labels.items():
            found.setdefault(name, set()).add(value)
    return {name: sorted(values) for name, values in found.items()}


def jobs(series: Iterable[Series]) -> dict[str, dict[str, int]]:
    """Series by source and job."""
    found: dict[str, dict[str, int]] = {}
    for one in series:
        by_job = found.setdefault(source_of(one.labels["__name__"]) or "", {})
        job = one.labels.get("job", "")
        by_job[job] = by_job.get(job, 0) + int(number(one.samples[-1][1]))
    return found


def label_counts(series: Sequence[Series]) -> dict[tuple[str, str], int]:
    """Tallies of series by metric and Kubernetes label."""
    tallies = max_counts(series, STAT)
    split = ((name.partition(" "), count) for name, count in tallies.items())
    return {(metric, key): count for (metric, _, key), count in split if key}


def series_labels(labels: Labels) -> dict[str, str]:
    """Labels by which a series is asked for again."""
    return {name: value for name, value in labels.items() if name not in {STAT, "__name__"}}


def _effective(requests: Mapping[tuple[bool, str], int]) -> int:
    running = sum(units for (init, _), units in requests.items() if not init)
    return max(running, max((units for (init, _), units in requests.items() if init), default=0))


def _node(name: str, rows: Sequence[Series]) -> Node:
    stats: dict[str, list[Series]] = {}
    for row in rows:
        stats.setdefault(row.labels.get(STAT, ""), []).append(row)
    info = stats.get("info", [])
    return Node(
        name=name,
        instance_id=next((exported_label(row.labels, "provider_id").rsplit("/", 1)[-1] for row in info), ""),
        has_info=bool(info),
        labels={key: value for row in stats.get("labels", []) for key, value in object_labels(row.labels).items()},
        capacity=_units(stats.get("capacity", [])),
        allocatable=_units(stats.get("allocatable", [])),
        targets=frozenset(target(row.labels) for row in info),
    )


def _units(rows: Iterable[Series]) -> dict[str, int]:
    units = {row.labels.get("resource", ""): int(number(row.samples[-1][1])) for row in rows}
    return {resource: count for resource, count in units.items() if count}


def _device(labels: Labels) -> Device:
    is_neuron = labels["__name__"] == NEURON.name
    is_renamed = "exported_pod" in labels or "exported_namespace" in labels
    namespace, pod = (
        (labels.get("exported_namespace", ""), labels.get("exported_pod", ""))
        if is_renamed
        else (
            labels.get("namespace") or labels.get("pod_namespace", ""),
            labels.get("pod") or labels.get("pod_name", ""),
        )
    )
    index = f"{labels.get('gpu', '')}/{labels.get('device', '')}{labels.get('neuroncore', '')}"
    named = ("instance_id",) if is_neuron else _NODE_NAMES
    return Device(
        signal=labels["__name__"],
        target=target(labels),
        uuid=labels.get("UUID") or labels.get("uuid") or index,
        mig_id=labels.get("GPU_I_ID", ""),
        profile=labels.get("GPU_I_PROFILE", ""),
        model=labels.get("modelName", ""),
        node_names=[labels[name] for name in named if labels.get(name)],
        workload=(namespace, pod),
        has_exported_labels=is_renamed,
        target_pod=labels.get("pod", ""),
        slot=labels.get("vgpu", ""),
        claim=labels.get("dra_claim_name", ""),
        labels=labels,
    )
