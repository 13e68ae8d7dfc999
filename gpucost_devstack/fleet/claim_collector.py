"""Metrics of collectors of ResourceSlices and ResourceClaims, for a scenario whose cluster has one."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from gpucost_devstack.fleet.hardware import slice_of_gpu
from gpucost_devstack.fleet.instants import model_of, offered_partitions
from gpucost_devstack.fleet.scenario import Device, Node, Scenario
from gpucost_devstack.fleet.scraping import Scraping
from gpucost_devstack.fleet.series import SimulatedSeries, constant

DRIVER = "gpu.nvidia.com"


def targets(scenario: Scenario) -> list[Scraping]:
    """The scrape target of the collector, unless it is that of kube-state-metrics."""
    collector = scenario.claim_collector
    is_other = collector and all(collector.scraping.instance != source.scraping.instance for source in scenario.ksm)
    return [collector.scraping] if collector and is_other else []


def series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """The devices of all slices, the devices of all claims, and the pods that have reserved the claims."""
    collector = scenario.claim_collector
    if collector is None:
        return
    times = collector.scraping.successful_times(scenario.start, scenario.end)
    target = {"job": collector.scraping.job, "instance": collector.scraping.instance}
    is_exporter = collector.kind == "kube-dra-exporter"
    yield from _claims(scenario, times, target, is_exporter=is_exporter)
    for node in scenario.nodes:
        for geometry in node.geometries:
            if geometry.serves_claims:
                begin, end = (max(node.lifetime[0], geometry.lifetime[0]), min(node.lifetime[1], geometry.lifetime[1]))
                devices = [
                    device
                    for device in geometry.devices
                    if (geometry.offers_whole_gpus if not device.profile else not geometry.is_dynamic)
                ]
                if geometry.is_dynamic:
                    devices += offered_partitions(node, geometry)
                for device in devices:
                    metric, labels, capacity = _device(node, device) if is_exporter else _device_info(node, device)
                    yield SimulatedSeries(metric, {**labels, **target}, constant(times, begin, end, capacity))


def _claims(
    scenario: Scenario, times: Sequence[int], target: Mapping[str, str], *, is_exporter: bool
) -> Iterator[SimulatedSeries]:
    """The pods that have reserved claims, and the devices of the claims."""
    claims: dict[tuple[str, str, str, str], tuple[Fraction, Fraction]] = {}
    for pod in scenario.pods:
        if pod.node is None:
            continue
        geometry = pod.node.geometry_at(max(pod.bound_at, pod.node.lifetime[0])) or pod.node.geometries[0]
        for claim in pod.device_claims:
            names = {"namespace": pod.namespace, "resourceclaim_name" if is_exporter else "resourceclaim": claim}
            holder = (
                {"pod_name": pod.name, "uid": pod.id}
                if is_exporter
                else {
                    "consumer_apigroup": "",
                    "consumer_resource": "pods",
                    "consumer_name": pod.name,
                    "consumer_uid": pod.id,
                }
            )
            metric = f"kube_resourceclaim_status_reserved_for{'_pod' if is_exporter else ''}"
            reserved = constant(times, pod.bound_at, pod.released_at, 1)
            yield SimulatedSeries(metric, {**names, **holder, **target}, reserved)
            for index in dict.fromkeys(pod.devices):
                key = pod.namespace, claim, pod.node.name, geometry.devices[index].name
                first, last = claims.get(key, (Fraction(pod.bound_at), Fraction(pod.released_at)))
                claims[key] = min(first, Fraction(pod.bound_at)), max(last, Fraction(pod.released_at))
    for (namespace, claim, node_name, device_name), (first, last) in claims.items():
        if is_exporter:
            metric = "kube_resourceclaim_status_allocated_device"
            labels = {"resourceclaim_name": claim, "device_name": device_name}
        else:
            metric = "kube_resourceclaim_allocation_device_info"
            labels = {"resourceclaim": claim, "device": device_name, "request": "gpu"}
        labels |= {"namespace": namespace, "driver": DRIVER, "pool": node_name, **target}
        yield SimulatedSeries(metric, labels, constant(times, first, last, 1))


def _device(node: Node, device: Device) -> tuple[str, dict[str, str], object]:
    """A device's memory, as of Gradiant/kube-dra-exporter 0.1.0 (main.go)."""
    labels = {
        "resourceslice_name": f"{node.name}-gpu.nvidia.com-x7k2p",
        "device_name": device.name,
        "driver": DRIVER,
        "pool": node.name,
        "node_name": node.name,
        "type": "mig" if device.profile else "gpu",
        "product_name": node.model,
        "parent_uuid": f"GPU-{node.name}-{device.gpu}" if device.profile else "",
    }
    share = slice_of_gpu(model_of(node), device.profile) if device.profile else Fraction(1)
    return "kube_resourceslice_device_capacity_memory_bytes", labels, int(80 * 2**30 * share)


def _device_info(node: Node, device: Device) -> tuple[str, dict[str, str], object]:
    """A device, as in kubernetes/kube-state-metrics#3020 (resourceslice.go)."""
    labels = {
        "resourceslice": f"{node.name}-gpu.nvidia.com-x7k2p",
        "driver": DRIVER,
        "pool_name": node.name,
        "node_name": node.name,
        "device_name": device.name,
    }
    return "kube_resourceslice_device_info", labels, 1
