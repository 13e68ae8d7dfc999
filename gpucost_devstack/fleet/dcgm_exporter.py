"""Metrics of dcgm-exporter for a scenario: one series per device and mapped pod."""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from operator import itemgetter

from gpucost_devstack.fleet.power import gpu_powers, readers
from gpucost_devstack.fleet.scenario import Device, Exporter, Geometry, Minutes, Node, Pod, Scenario
from gpucost_devstack.fleet.scraping import MINUTE_MS, Scraping
from gpucost_devstack.fleet.series import SimulatedSeries

Labels = dict[str, str]
_WHOLE_GPUS_ONLY = {
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "dcgm_fi_dev_gpu_util",
    "dcgm_gpu_utilization",
}
_PER_PROCESS = "DCGM_FI_DEV_GPU_UTIL"
_DRIVER_VERSION = "580.95.05"
_OLD_LABELS = {"pod": "pod_name", "namespace": "pod_namespace", "container": "container_name"}


def targets(scenario: Scenario) -> Iterator[tuple[Node, Scraping]]:
    """The successive exporter instances of each node with NVIDIA GPUs."""
    for node in scenario.nodes:
        if scenario.dcgm is not None and node.has_dcgm:
            scraping = scenario.dcgm.scraping_by_node.get(node.name, scenario.dcgm.scraping)
            first, last = max(scraping.lifetime[0], node.lifetime[0]), min(scraping.lifetime[1], node.lifetime[1])
            pauses = [(first, first), *scenario.dcgm.restarts, (last, last)]
            for number, ((_, begins), (ends, _)) in enumerate(itertools.pairwise(pauses)):
                instance = scraping.instance or f"{node.name}{f'-{number}' * (number > 0)}:9400"
                yield (
                    node,
                    replace(
                        scraping,
                        instance=instance,
                        node=node.name if scenario.dcgm.targets_have_node else "",
                        lifetime=(max(first, begins), min(last, ends)),
                    ),
                )


def series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """Series of all devices of all nodes."""
    pods_of = pods_by_node(scenario)
    for node, scraping in targets(scenario):
        exporter = scenario.dcgm
        if exporter is None:
            continue
        pods = pods_of.get(id(node), [])
        powers = gpu_powers(scenario, exporter, node)
        samples_by_series: dict[tuple[tuple[str, str], ...], list[tuple[int, str]]] = {}
        times = scraping.successful_times(scenario.start, scenario.end)
        for scrape_range in constant_ranges(times, _edges(exporter, node, pods)):
            minute = Fraction(times[scrape_range[0]], MINUTE_MS)
            geometry = node.geometry_at(minute)
            if geometry is None or any(a <= minute < b for a, b in exporter.intervals_without_devices):
                continue
            is_nan = any(a <= minute < b for a, b in exporter.nan_intervals)
            for device_index, device in enumerate(geometry.devices):
                if geometry.is_dynamic and not _exists(geometry, device_index, minute, pods):
                    continue
                holders = [pod for pod in pods if _is_mapped(pod, device_index, minute, exporter)]
                if geometry.is_dynamic and device.profile and not exporter.labels_partitions:
                    holders = []
                use = demand(scenario, node, device_index, minute, pods)
                use = min(use, Fraction(1)) if exporter.clamps_to_full_use else use
                base = _device_labels(exporter, node, device, scraping)
                copies = [
                    (scrapes, {**base, **labels}, use)
                    for scrapes, label_sets in _label_sets(
                        exporter, node, (device_index, device), holders, scrape_range
                    )
                    for labels in label_sets
                ]
                by_process = [
                    (scrape_range, {**base, **labels}, utilization_by_process)
                    for labels, utilization_by_process in _process_values(
                        scenario, exporter, node, device_index, minute, holders
                    )
                ]
                for signal, full in _exposed_signals(exporter, node, device, minute).items():
                    full_use = full * (Fraction(exporter.gpu_util_factor) if signal in _WHOLE_GPUS_ONLY else 1)
                    for scrapes, labels, labeled_use in (by_process if signal == _PER_PROCESS else []) or copies:
                        text = "NaN" if is_nan else _text(labeled_use * full_use)
                        key = (("__name__", signal), *sorted(labels.items()))
                        samples_by_series.setdefault(key, []).extend((times[number], text) for number in scrapes)
                for metric, read in readers(exporter, powers.get(device.gpu)).items():
                    for scrapes, labels, _ in copies:
                        key = (("__name__", metric), *sorted(labels.items()))
                        samples_by_series.setdefault(key, []).extend(
                            (times[number], read(Fraction(times[number], MINUTE_MS))) for number in scrapes
                        )
        for key, samples in samples_by_series.items():
            labels = dict(key)
            yield SimulatedSeries(labels.pop("__name__"), labels, samples)


def _exists(geometry: Geometry, device_index: int, minute: Fraction, pods: Iterable[Pod]) -> bool:
    """Whether a device exists where the DRA driver creates MIG devices: a GPU is whole while it has none."""
    used = {index for pod in pods if pod.bound_at <= minute < pod.released_at for index in pod.devices}
    if geometry.devices[device_index].profile:
        return device_index in used
    gpu = geometry.devices[device_index].gpu
    return not any(geometry.devices[index].profile and geometry.devices[index].gpu == gpu for index in used)


def _exposed_signals(exporter: Exporter, node: Node, device: Device, minute: Fraction) -> Mapping[str, int]:
    """The signals that an exporter exposes for a device, with the value that means full use."""
    signals = exporter.signals_by_node.get(node.name, exporter.signals)
    if exporter.upgrade is not None and minute >= exporter.upgrade[0]:
        signals = exporter.upgrade[1]
    if not device.profile:
        return signals
    gpu_signals = {signal: 0 for signal in signals if signal in _WHOLE_GPUS_ONLY and exporter.mig_gpu_util == "zero"}
    return {signal: full for signal, full in signals.items() if signal not in _WHOLE_GPUS_ONLY} | gpu_signals


def _edges(exporter: Exporter, node: Node, pods: Sequence[Pod]) -> Iterator[Minutes]:
    """Times at which anything that a node's exporter exposes may change."""
    yield from (
        edge for interval in (*exporter.intervals_without_devices, *exporter.nan_intervals) for edge in interval
    )
    yield from (edge for geometry in node.geometries for edge in geometry.lifetime)
    yield from () if exporter.upgrade is None else (exporter.upgrade[0],)
    yield from (edge for unknown in exporter.unknown_uids.values() for interval in unknown for edge in interval)
    yield from edges_of_pods(pods)
    for pod in pods:
        yield from (pod.bound_at, pod.run_interval[1] + exporter.label_linger_minutes)


def edges_of_pods(pods: Iterable[Pod]) -> Iterator[Minutes]:
    """Times at which what pods demand of their devices may change."""
    for pod in pods:
        yield from pod.run_interval
        yield from (since for curve in (pod.use_by_device or [pod.use]) for since, _ in curve)


def constant_ranges(times: Sequence[int], edges: Iterable[Minutes]) -> Iterator[range]:
    """Ranges of scrape numbers in which nothing changes."""
    cuts = sorted({0, len(times), *(bisect_left(times, Fraction(edge) * MINUTE_MS) for edge in edges)})
    yield from (range(first, after) for first, after in itertools.pairwise(cuts))


def pods_by_node(scenario: Scenario) -> dict[int, list[Pod]]:
    """The pods of each node, by the node's identity: names may recur."""
    pods: dict[int, list[Pod]] = {}
    for pod in scenario.pods:
        if pod.node is not None:
            pods.setdefault(id(pod.node), []).append(pod)
    return pods


def utilization(
    scenario: Scenario, node: Node, device_index: int, minute: Fraction, pods: Iterable[Pod] | None = None
) -> Fraction:
    """A device's utilization at a time: the demand of its pods, at most 1."""
    return min(demand(scenario, node, device_index, minute, pods), Fraction(1))


def demand(
    scenario: Scenario, node: Node, device_index: int, minute: Fraction, pods: Iterable[Pod] | None = None
) -> Fraction:
    """The sum of what the running pods demand of a device. It may exceed 1.

    Args:
        scenario: the cluster.
        node: the device's node.
        device_index: the device.
        minute: the time.
        pods: the pods of the node, if the caller has them.
    """
    unrequested = Fraction(scenario.unrequested_use.get((node.name, device_index), "0"))
    of_node = (pod for pod in (scenario.pods if pods is None else pods) if pod.node is node)
    return sum((demand_of_pod(pod, device_index, minute) for pod in of_node), unrequested)


def demand_of_pod(pod: Pod, device_index: int, minute: Fraction) -> Fraction:
    """What a pod demands of a device of its node."""
    if device_index not in pod.devices or not pod.run_interval[0] <= minute < pod.run_interval[1]:
        return Fraction(0)
    curve = pod.use_of(list(pod.devices).index(device_index))
    position = bisect_right(curve, minute, key=itemgetter(0))
    return _fraction(curve[position - 1][1]) if position else Fraction(0)


@lru_cache(maxsize=4096)
def _fraction(text: str) -> Fraction:
    return Fraction(text)


def _is_mapped(pod: Pod, device_index: int, minute: Fraction, exporter: Exporter) -> bool:
    """Whether the exporter maps a device to a pod: from when it runs, for as long as the kubelet says so."""
    begin = pod.bound_at if exporter.labels_pending_pods else pod.run_interval[0]
    end = pod.run_interval[1] + exporter.label_linger_minutes
    # The kubelet knows only the pods that reserve GPUs, not those with fractions of them.
    has_device = device_index in pod.devices and (pod.reserves or not pod.groups)
    return has_device and begin <= minute < end and not pod.never_starts


def _process_values(
    scenario: Scenario, exporter: Exporter, node: Node, device_index: int, minute: Fraction, holders: Sequence[Pod]
) -> Iterator[tuple[Labels, Fraction]]:
    """The labels and values of a device's own series and of each pod's processes.

    As in dcgm-exporter 4.5.3-4.8.2 (createPerProcessMetrics), a pod's value is repeated for each replica. It is 0
    for a pod without processes, and for one whose processes or uid the exporter does not know.
    """
    if not holders or node.name not in exporter.per_process:
        return
    total = demand(scenario, node, device_index, minute)
    yield _idle_labels(exporter, node), min(total, Fraction(1))
    for pod in holders:
        has_uid = not any(start <= minute < end for start, end in exporter.unknown_uids.get(pod.name, ()))
        is_seen = has_uid and exporter.per_process[node.name]
        used = demand_of_pod(pod, device_index, minute) / max(total, Fraction(1))
        labels = _pod_labels(replace(exporter, pod_uid=has_uid), node, pod)
        for slot in _slots(device_index, pod) if _reports_replicas(exporter, node) else [{}]:
            yield {**labels, **slot}, used if is_seen else Fraction(0)


def _reports_replicas(exporter: Exporter, node: Node) -> bool:
    return node.name in exporter.per_process and any(geometry.replicas > 1 for geometry in node.geometries)


def _slots(device_index: int, pod: Pod) -> list[Labels]:
    """The labels of a pod's replicas of a device."""
    return [{"vgpu": str(slot)} for slot in range(pod.devices.count(device_index))]


def _label_sets(
    exporter: Exporter, node: Node, indexed_device: tuple[int, Device], holders: Sequence[Pod], scrape_range: range
) -> Iterator[tuple[range, list[Labels]]]:
    """The label sets of a device's series, and the scrapes in which each appears."""
    idle = _idle_labels(exporter, node)
    device_index, device = indexed_device
    # HAMi's device IDs are not UUIDs, and it chooses other GPUs than the kubelet, so vGPUs are not mapped.
    has_vgpus = any(geometry.vgpus_per_gpu for geometry in node.geometries)
    mapped = list(holders) if exporter.maps_pods and not has_vgpus else []
    if not mapped:
        yield scrape_range, [idle]
        return
    if exporter.shared_device_series == "flip":
        for number, pod in enumerate(mapped):
            first = scrape_range.start + (number - scrape_range.start) % len(mapped)
            yield (
                range(first, scrape_range.stop, len(mapped)),
                [{**_pod_labels(exporter, node, pod), **_claim_labels(exporter, node, device, pod)}],
            )
        return
    label_sets = [idle] if exporter.shared_device_series == "copies+device" else []
    for pod in mapped[:1] if exporter.shared_device_series == "first" else mapped:
        shares = (len(holders) > 1 or _reports_replicas(exporter, node)) and not pod.device_claims
        has_slots = shares and exporter.shared_device_series.startswith("copies")
        for slot in _slots(device_index, pod) if has_slots else [{}]:
            label_sets.append(
                {**_pod_labels(exporter, node, pod), **_claim_labels(exporter, node, device, pod), **slot}
            )
    yield scrape_range, label_sets


def device_uuid(node: Node, gpu: int) -> str:
    """The UUID of one of a node's GPUs."""
    return f"GPU-{node.provider_id}{node.name}-{gpu}"


def _device_labels(exporter: Exporter, node: Node, device: Device, scraping: Scraping) -> Labels:
    old = exporter.label_style == "old"
    labels = {
        "gpu": str(device.gpu),
        "uuid" if old else "UUID": device_uuid(node, device.gpu),
        "device": f"nvidia{device.gpu}",
        "modelName": node.model,
        exporter.hostname: _exporter_labels(node)["pod"] if exporter.hostname_is_pod else node.name,
        **scraping.target_labels,
    }
    if not old:
        labels |= {"DCGM_FI_DRIVER_VERSION": _DRIVER_VERSION, "pci_bus_id": f"00000000:{device.gpu:02X}:00.0"}
    if device.profile:
        labels |= {"GPU_I_PROFILE": device.profile, "GPU_I_ID": str(device.mig_id)}
    return labels


def _exporter_labels(node: Node) -> Labels:
    return {"namespace": "gpu-operator", "pod": f"nvidia-dcgm-exporter-{node.name}", "container": "exporter"}


def _idle_labels(exporter: Exporter, node: Node) -> Labels:
    match exporter.label_style:
        case "exported" | "honor":
            return _exporter_labels(node)
        case "blank":
            return {"pod": "", "namespace": "", "container": ""}
        case _:
            return {}


def _pod_labels(exporter: Exporter, node: Node, pod: Pod) -> Labels:
    container = next(iter(pod.requests), "main")
    labels = {"pod": pod.name, "namespace": pod.namespace, "container": container}
    match exporter.label_style:
        case "exported":
            labels = {f"exported_{name}": value for name, value in labels.items()} | _exporter_labels(node)
        case "old":
            labels = {_OLD_LABELS[name]: value for name, value in labels.items()}
    return labels | ({"pod_uid": pod.id} if exporter.pod_uid else {})


def _claim_labels(exporter: Exporter, node: Node, device: Device, pod: Pod) -> Labels:
    """The labels of a claim as of 4.6.0-4.8.3, which labels MIG devices, too (NVIDIA/dcgm-exporter#664).

    That version has no labels for MIG devices that are created for claims (NVIDIA/dcgm-exporter#714).
    """
    if not pod.device_claims or not exporter.labels_claims:
        return {}
    labels = {
        "dra_claim_name": pod.device_claims[0],
        "dra_claim_namespace": pod.namespace,
        "dra_device_name": device.name,
        "dra_driver_name": "gpu.nvidia.com",
        "dra_pool_name": node.name,
    }
    uuid = f"MIG-{node.name}-{device.gpu}-{device.mig_id}-{pod.device_claims[0]}"
    return labels | ({"dra_mig_profile": device.profile, "dra_mig_device_uuid": uuid} if device.profile else {})


def _text(value: Fraction) -> str:
    return str(float(value)) if value.denominator > 1 else str(value.numerator)
