"""What dcgm-exporter exposes of a scenario: a series per device and pod that it is mapped to."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from local.fleet.scenario import Device, Exporter, Node, Pod, Scenario
from local.fleet.scraping import MINUTE_MS, Scraping
from local.fleet.series import Series

Labels = dict[str, str]
_OLD = {"pod": "pod_name", "namespace": "pod_namespace", "container": "container_name"}


def targets(scenario: Scenario) -> Iterator[tuple[Node, Scraping]]:
    """The exporter of each node with NVIDIA GPUs."""
    for node in scenario.nodes:
        if scenario.dcgm is not None and node.model:
            own = scenario.dcgm.by_node.get(node.name, scenario.dcgm.scraping)
            life = (max(own.life[0], node.life[0]), min(own.life[1], node.life[1]))
            yield node, replace(own, instance=own.instance or f"{node.name}:9400", life=life)


def series(scenario: Scenario) -> Iterator[Series]:
    """Series of all devices of all nodes."""
    for node, scraping in targets(scenario):
        exporter = scenario.dcgm
        if exporter is None:
            continue
        found: dict[tuple[tuple[str, str], ...], list[tuple[int, str]]] = {}
        for turn, at in enumerate(scraping.answered(scenario.start, scenario.end)):
            minute = Fraction(at, MINUTE_MS)
            geometry = node.at(minute)
            if geometry is None or any(a <= minute < b for a, b in exporter.blank):
                continue
            for place, device in enumerate(geometry.devices):
                holders = [pod for pod in scenario.pods if pod.node is node and _holds(pod, place, minute, exporter)]
                use = demanded(scenario, node, place, minute)
                use = min(use, Fraction(1)) if exporter.clamps else use
                is_nan = any(a <= minute < b for a, b in exporter.nan)
                for labels in _copies(exporter, node, device, holders, scraping, turn):
                    for signal, full in exporter.signals.items():
                        key = (("__name__", signal), *sorted(labels.items()))
                        found.setdefault(key, []).append((at, "NaN" if is_nan else _text(use * full)))
        for key, samples in found.items():
            labels = dict(key)
            yield Series(labels.pop("__name__"), labels, samples)


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
    exporter: Exporter, node: Node, device: Device, holders: Sequence[Pod], scraping: Scraping, turn: int
) -> Iterator[Labels]:
    base = _device(exporter, node, device, scraping)
    mapped = list(holders) if exporter.mapping else []
    if not mapped:
        yield {**base, **_idle(exporter, node)}
        return
    if exporter.sharers == "first":
        mapped = mapped[:1]
    elif exporter.sharers == "flip":
        mapped = [mapped[turn % len(mapped)]]
    for pod in mapped:
        slots = [{"vgpu": str(slot)} for slot in range(pod.devices.count(_place(node, device)))]
        for slot in slots if len(holders) > 1 and exporter.sharers.startswith("copies") else [{}]:
            yield {**base, **_workload(exporter, node, pod), **slot}
    if exporter.sharers == "copies+device":
        yield {**base, **_idle(exporter, node)}


def _place(node: Node, device: Device) -> int:
    return next(list(one.devices).index(device) for one in node.geometries if device in one.devices)


def _device(exporter: Exporter, node: Node, device: Device, scraping: Scraping) -> Labels:
    old = exporter.dialect == "old"
    labels = {
        "gpu": str(device.gpu),
        "uuid" if old else "UUID": f"GPU-{node.provider_id}{node.name}-{device.gpu}",
        "device": f"nvidia{device.gpu}",
        "modelName": node.model,
        exporter.hostname: node.name,
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
