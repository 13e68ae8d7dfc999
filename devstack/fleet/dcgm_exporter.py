"""What dcgm-exporter exposes of a scenario: a series per device and pod that it is mapped to."""

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from devstack.fleet.scenario import Device, Exporter, Minutes, Node, Pod, Scenario
from devstack.fleet.scraping import MINUTE_MS, Scraping
from devstack.fleet.series import Series

Labels = dict[str, str]
_WHOLE_GPUS_ONLY = {
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "dcgm_fi_dev_gpu_util",
    "dcgm_gpu_utilization",
}
_OLD = {"pod": "pod_name", "namespace": "pod_namespace", "container": "container_name"}


def targets(scenario: Scenario) -> Iterator[tuple[Node, Scraping]]:
    """The exporters of each node with NVIDIA GPUs, one after the other."""
    for node in scenario.nodes:
        if scenario.dcgm is not None and node.model:
            own = scenario.dcgm.by_node.get(node.name, scenario.dcgm.scraping)
            first, last = max(own.life[0], node.life[0]), min(own.life[1], node.life[1])
            pauses = [(first, first), *scenario.dcgm.restarts, (last, last)]
            for number, ((_, begins), (ends, _)) in enumerate(itertools.pairwise(pauses)):
                instance = own.instance or f"{node.name}{f'-{number}' * (number > 0)}:9400"
                yield node, replace(own, instance=instance, life=(max(first, begins), min(last, ends)))


def series(scenario: Scenario) -> Iterator[Series]:
    """Series of all devices of all nodes."""
    for node, scraping in targets(scenario):
        exporter = scenario.dcgm
        if exporter is None:
            continue
        pods = [pod for pod in scenario.pods if pod.node is node]
        found: dict[tuple[tuple[str, str], ...], list[tuple[int, str]]] = {}
        times = scraping.answered(scenario.start, scenario.end)
        for turns in _still(times, _edges(exporter, node, pods)):
            minute = Fraction(times[turns[0]], MINUTE_MS)
            geometry = node.at(minute)
            if geometry is None or any(a <= minute < b for a, b in exporter.blank):
                continue
            is_nan = any(a <= minute < b for a, b in exporter.nan)
            for place, device in enumerate(geometry.devices):
                holders = [pod for pod in pods if _holds(pod, place, minute, exporter)]
                use = demanded(scenario, node, place, minute)
                use = min(use, Fraction(1)) if exporter.clamps else use
                told = _told(exporter, node, device, minute).items()
                values = {signal: "NaN" if is_nan else _text(use * full) for signal, full in told}
                for some, copies in _copies(exporter, node, device, holders, scraping, turns):
                    for labels in copies:
                        for signal, value in values.items():
                            key = (("__name__", signal), *sorted(labels.items()))
                            found.setdefault(key, []).extend((times[turn], value) for turn in some)
        for key, samples in found.items():
            labels = dict(key)
            yield Series(labels.pop("__name__"), labels, samples)


def _told(exporter: Exporter, node: Node, device: Device, minute: Fraction) -> Mapping[str, int]:
    """The signals that an exporter tells of a device, and the value that means full use."""
    signals = exporter.signals_by_node.get(node.name, exporter.signals)
    if exporter.upgraded is not None and minute >= exporter.upgraded[0]:
        signals = exporter.upgraded[1]
    if not device.profile:
        return signals
    of_gpu = {signal: 0 for signal in signals if signal in _WHOLE_GPUS_ONLY and exporter.mig_gpu_util == "zero"}
    return {signal: full for signal, full in signals.items() if signal not in _WHOLE_GPUS_ONLY} | of_gpu


def _edges(exporter: Exporter, node: Node, pods: Sequence[Pod]) -> Iterator[Minutes]:
    """Times at which anything that a node's exporter tells may change."""
    yield from (edge for life in (*exporter.blank, *exporter.nan) for edge in life)
    yield from (edge for one in node.geometries for edge in one.life)
    yield from () if exporter.upgraded is None else (exporter.upgraded[0],)
    for pod in pods:
        yield from (pod.start, *pod.runs, pod.runs[1] + exporter.lingers)
        yield from (since for curve in (pod.uses or [pod.use]) for since, _ in curve)


def _still(times: Sequence[int], edges: Iterable[Minutes]) -> Iterator[range]:
    """Runs of scrapes between which nothing changes, by their numbers."""
    cuts = sorted({0, len(times), *(bisect_left(times, Fraction(edge) * MINUTE_MS) for edge in edges)})
    yield from (range(first, after) for first, after in itertools.pairwise(cuts))


def used(scenario: Scenario, node: Node, place: int, minute: Fraction) -> Fraction:
    """What a device does at a time: what those who run on it make it do, at most all."""
    return min(demanded(scenario, node, place, minute), Fraction(1))


def demanded(scenario: Scenario, node: Node, place: int, minute: Fraction) -> Fraction:
    """What those who run on a device want of it."""
    total = Fraction(scenario.ghosts.get((node.name, place), "0"))
    for pod in scenario.pods:
        if pod.node is node and place in pod.devices and pod.runs[0] <= minute < pod.runs[1]:
            curve = pod.use_of(list(pod.devices).index(place))
            total += next((Fraction(value) for since, value in reversed(curve) if since <= minute), Fraction(0))
    return total


def _holds(pod: Pod, place: int, minute: Fraction, exporter: Exporter) -> bool:
    """Whether the exporter maps a device to a pod: from when it runs, for as long as the kubelet says so."""
    begin = pod.start if exporter.early else pod.runs[0]
    return place in pod.devices and begin <= minute < pod.runs[1] + exporter.lingers and not pod.never_runs


def _copies(
    exporter: Exporter, node: Node, device: Device, holders: Sequence[Pod], scraping: Scraping, turns: range
) -> Iterator[tuple[range, list[Labels]]]:
    """The label sets under which a device's value is told, and at which of some scrapes."""
    base = _device(exporter, node, device, scraping)
    idle = {**base, **_idle(exporter, node)}
    mapped = list(holders) if exporter.mapping else []
    if not mapped:
        yield turns, [idle]
        return
    if exporter.sharers == "flip":
        for number, pod in enumerate(mapped):
            first = turns.start + (number - turns.start) % len(mapped)
            yield range(first, turns.stop, len(mapped)), [{**base, **_workload(exporter, node, pod)}]
        return
    found = [idle] if exporter.sharers == "copies+device" else []
    for pod in mapped[:1] if exporter.sharers == "first" else mapped:
        slots = [{"vgpu": str(slot)} for slot in range(pod.devices.count(_place(node, device)))]
        for slot in slots if len(holders) > 1 and exporter.sharers.startswith("copies") else [{}]:
            found.append({**base, **_workload(exporter, node, pod), **slot})
    yield turns, found


def _place(node: Node, device: Device) -> int:
    return next(list(one.devices).index(device) for one in node.geometries if device in one.devices)


def _device(exporter: Exporter, node: Node, device: Device, scraping: Scraping) -> Labels:
    old = exporter.dialect == "old"
    labels = {
        "gpu": str(device.gpu),
        "uuid" if old else "UUID": f"GPU-{node.provider_id}{node.name}-{device.gpu}",
        "device": f"nvidia{device.gpu}",
        "modelName": node.model,
        exporter.hostname: _own(node)["pod"] if exporter.hostname_is_pod else node.name,
        "job": scraping.job,
        "instance": scraping.instance,
    }
    if device.profile:
        labels |= {"GPU_I_PROFILE": device.profile, "GPU_I_ID": str(device.mig_id)}
    return labels


def _own(node: Node) -> Labels:
    return {"namespace": "gpu-operator", "pod": f"nvidia-dcgm-exporter-{node.name}", "container": "exporter"}


def _idle(exporter: Exporter, node: Node) -> Labels:
    match exporter.dialect:
        case "exported" | "honor":
            return _own(node)
        case "blank":
            return {"pod": "", "namespace": "", "container": ""}
        case _:
            return {}


def _workload(exporter: Exporter, node: Node, pod: Pod) -> Labels:
    container = next(iter(pod.requests), "main")
    told = {"pod": pod.name, "namespace": pod.namespace, "container": container}
    match exporter.dialect:
        case "exported":
            told = {f"exported_{name}": value for name, value in told.items()} | _own(node)
        case "old":
            told = {_OLD[name]: value for name, value in told.items()}
    if pod.claims and exporter.tells_claims:
        told |= {"dra_claim_name": pod.claims[0], "dra_driver_name": "gpu.nvidia.com", "dra_pool_name": node.name}
    return told | ({"pod_uid": pod.id} if exporter.pod_uid else {})


def _text(value: Fraction) -> str:
    return str(float(value)) if value.denominator > 1 else str(value.numerator)
