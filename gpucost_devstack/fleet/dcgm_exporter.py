"""Metrics of dcgm-exporter for a scenario: one series per device and mapped pod."""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from gpucost_devstack.fleet.power import gpu_powers, readers
from gpucost_devstack.fleet.scenario import Device, Exporter, Minutes, Node, Pod, Scenario
from gpucost_devstack.fleet.scraping import MINUTE_MS, Scraping
from gpucost_devstack.fleet.series import SimulatedSeries

Labels = dict[str, str]
_WHOLE_GPUS_ONLY = {
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "dcgm_fi_dev_gpu_util",
    "dcgm_gpu_utilization",
}
_OLD_LABELS = {"pod": "pod_name", "namespace": "pod_namespace", "container": "container_name"}


def targets(scenario: Scenario) -> Iterator[tuple[Node, Scraping]]:
    """The successive exporter instances of each node with NVIDIA GPUs."""
    for node in scenario.nodes:
        if scenario.dcgm is not None and node.model:
            scraping = scenario.dcgm.scraping_by_node.get(node.name, scenario.dcgm.scraping)
            first, last = max(scraping.lifetime[0], node.lifetime[0]), min(scraping.lifetime[1], node.lifetime[1])
            pauses = [(first, first), *scenario.dcgm.restarts, (last, last)]
            for number, ((_, begins), (ends, _)) in enumerate(itertools.pairwise(pauses)):
                instance = scraping.instance or f"{node.name}{f'-{number}' * (number > 0)}:9400"
                yield node, replace(scraping, instance=instance, lifetime=(max(first, begins), min(last, ends)))


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
        for scrape_range in _constant_ranges(times, _edges(exporter, node, pods)):
            minute = Fraction(times[scrape_range[0]], MINUTE_MS)
            geometry = node.geometry_at(minute)
            if geometry is None or any(a <= minute < b for a, b in exporter.intervals_without_devices):
                continue
            is_nan = any(a <= minute < b for a, b in exporter.nan_intervals)
            for device_index, device in enumerate(geometry.devices):
                holders = [pod for pod in pods if _is_mapped(pod, device_index, minute, exporter)]
                use = demand(scenario, node, device_index, minute, pods)
                use = min(use, Fraction(1)) if exporter.clamps_to_full_use else use
                meters = readers(exporter, powers.get(device.gpu))
                full_values = _exposed_signals(exporter, node, device, minute).items()
                values = {signal: "NaN" if is_nan else _text(use * full) for signal, full in full_values}
                for scrapes, label_sets in _label_sets(exporter, node, device, holders, scraping, scrape_range):
                    for labels in label_sets:
                        for signal, value in values.items():
                            key = (("__name__", signal), *sorted(labels.items()))
                            samples_by_series.setdefault(key, []).extend((times[number], value) for number in scrapes)
                        for metric, read in meters.items():
                            key = (("__name__", metric), *sorted(labels.items()))
                            samples_by_series.setdefault(key, []).extend(
                                (times[number], read(Fraction(times[number], MINUTE_MS))) for number in scrapes
                            )
        for key, samples in samples_by_series.items():
            labels = dict(key)
            yield SimulatedSeries(labels.pop("__name__"), labels, samples)


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
    for pod in pods:
        yield from (pod.bound_at, *pod.run_interval, pod.run_interval[1] + exporter.label_linger_minutes)
        yield from (since for curve in (pod.use_by_device or [pod.use]) for since, _ in curve)


def _constant_ranges(times: Sequence[int], edges: Iterable[Minutes]) -> Iterator[range]:
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
    total = Fraction(scenario.unrequested_use.get((node.name, device_index), "0"))
    for pod in scenario.pods if pods is None else pods:
        if pod.node is node and device_index in pod.devices and pod.run_interval[0] <= minute < pod.run_interval[1]:
            curve = pod.use_of(list(pod.devices).index(device_index))
            position = bisect_right(curve, minute, key=_start_of_step)
            total += Fraction(curve[position - 1][1]) if position else 0
    return total


def _start_of_step(step: tuple[Minutes, str]) -> Fraction:
    return Fraction(step[0])


def _is_mapped(pod: Pod, device_index: int, minute: Fraction, exporter: Exporter) -> bool:
    """Whether the exporter maps a device to a pod: from when it runs, for as long as the kubelet says so."""
    begin = pod.bound_at if exporter.labels_pending_pods else pod.run_interval[0]
    end = pod.run_interval[1] + exporter.label_linger_minutes
    return device_index in pod.devices and begin <= minute < end and not pod.never_starts


def _label_sets(
    exporter: Exporter, node: Node, device: Device, holders: Sequence[Pod], scraping: Scraping, scrape_range: range
) -> Iterator[tuple[range, list[Labels]]]:
    """The label sets of a device's series, and the scrapes in which each appears."""
    base = _device_labels(exporter, node, device, scraping)
    idle = {**base, **_idle_labels(exporter, node)}
    mapped = list(holders) if exporter.maps_pods else []
    if not mapped:
        yield scrape_range, [idle]
        return
    if exporter.shared_device_series == "flip":
        for number, pod in enumerate(mapped):
            first = scrape_range.start + (number - scrape_range.start) % len(mapped)
            yield range(first, scrape_range.stop, len(mapped)), [{**base, **_pod_labels(exporter, node, pod)}]
        return
    label_sets = [idle] if exporter.shared_device_series == "copies+device" else []
    for pod in mapped[:1] if exporter.shared_device_series == "first" else mapped:
        slots = [{"vgpu": str(slot)} for slot in range(pod.devices.count(_device_index(node, device)))]
        has_slots = len(holders) > 1 and exporter.shared_device_series.startswith("copies") and not pod.device_claims
        for slot in slots if has_slots else [{}]:
            label_sets.append({**base, **_pod_labels(exporter, node, pod), **slot})
    yield scrape_range, label_sets


def _device_index(node: Node, device: Device) -> int:
    return next(list(geometry.devices).index(device) for geometry in node.geometries if device in geometry.devices)


def _device_labels(exporter: Exporter, node: Node, device: Device, scraping: Scraping) -> Labels:
    old = exporter.label_style == "old"
    labels = {
        "gpu": str(device.gpu),
        "uuid" if old else "UUID": f"GPU-{node.provider_id}{node.name}-{device.gpu}",
        "device": f"nvidia{device.gpu}",
        "modelName": node.model,
        exporter.hostname: _exporter_labels(node)["pod"] if exporter.hostname_is_pod else node.name,
        "job": scraping.job,
        "instance": scraping.instance,
    }
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
    if pod.device_claims and exporter.labels_claims:
        labels |= {
            "dra_claim_name": pod.device_claims[0],
            "dra_claim_namespace": pod.namespace,
            "dra_driver_name": "gpu.nvidia.com",
            "dra_pool_name": node.name,
        }
    return labels | ({"pod_uid": pod.id} if exporter.pod_uid else {})


def _text(value: Fraction) -> str:
    return str(float(value)) if value.denominator > 1 else str(value.numerator)
