"""Metrics of HAMi's scheduler and vGPU monitors for a scenario, with the names and labels of versions 2.8 and 2.9."""

from collections.abc import Iterator
from dataclasses import replace

from gpucost_devstack.fleet.dcgm_exporter import device_uuid
from gpucost_devstack.fleet.scenario import CORES, MEMORY, MEMORY_PERCENTAGE, Hami, Node, Pod, Scenario
from gpucost_devstack.fleet.scraping import Scraping
from gpucost_devstack.fleet.series import Minutes, SimulatedSeries, constant

_MIB = 2**20
_OLD_NAMES = {
    "hami_vgpu_memory_allocated_bytes": "vGPUMemoryAllocated",
    "hami_gpu_memory_limit_bytes": "GPUDeviceMemoryLimit",
    "hami_gpu_core_limit_ratio": "GPUDeviceCoreLimit",
    "hami_container_device_utilization_ratio": "Device_utilization_desc_of_container",
}
_OLD_LABELS = {
    "namespace": "podnamespace",
    "pod": "podname",
    "container": "ctrname",
    "container_index": "containeridx",
    "vdevice_index": "vdeviceid",
    "device_uuid": "deviceuuid",
    "device_index": "deviceidx",
}
_TARGET_LABELS = {"namespace": "kube-system", "pod": "hami-0", "container": "hami"}


def targets(scenario: Scenario) -> Iterator[tuple[Node | None, Scraping]]:
    """The scheduler, which is of no node, and the monitor of each node."""
    if scenario.hami is None:
        return
    if scenario.hami.exposes_scheduler:
        yield None, replace(scenario.hami.scraping, job="hami-scheduler", instance="10.0.0.30:9395")
    if scenario.hami.exposes_monitors:
        for node in scenario.nodes:
            lifetime = node.lifetime
            yield (
                node,
                replace(
                    scenario.hami.scraping, job="hami-vgpu-monitor", instance=f"{node.name}:9394", lifetime=lifetime
                ),
            )


def series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """All series of all targets."""
    for node, scraping in targets(scenario):
        if scenario.hami is not None:
            target = _Target(scenario.hami, scraping, scraping.successful_times(scenario.start, scenario.end))
            yield from target.scheduler(scenario) if node is None else target.monitor(scenario, node)


class _Target:
    def __init__(self, hami: Hami, scraping: Scraping, times: list[int]) -> None:
        self._hami, self._scraping, self._times = hami, scraping, times

    def scheduler(self, scenario: Scenario) -> Iterator[SimulatedSeries]:
        """What is divided of each GPU, and what containers got of it, until they end."""
        for node in scenario.nodes:
            for geometry in node.geometries:
                for gpu in range(int(node.gpus) if geometry.vgpus_per_gpu else 0):
                    start, end = (
                        max(node.lifetime[0], geometry.lifetime[0]),
                        min(node.lifetime[1], geometry.lifetime[1]),
                    )
                    labels = {
                        self._node_label(of_pod=False): node.name,
                        "device_uuid": device_uuid(node, gpu),
                        "device_index": str(gpu),
                    }
                    limits = {"memory_limit_bytes": geometry.memory_mib * _MIB, "core_limit_ratio": geometry.cores}
                    for name, limit in limits.items():
                        yield self._series(f"hami_gpu_{name}", labels, start, end, limit)
        for pod in scenario.pods:
            if pod.node is None or not pod.node.geometries[0].vgpus_per_gpu:
                continue
            memory = pod.node.geometries[0].memory_mib
            for container, _, gpu in _vgpus(pod):
                units = pod.requests[container]
                mib = units.get(MEMORY) or memory * units.get(MEMORY_PERCENTAGE, 100) // 100
                labels = {
                    "namespace": pod.namespace,
                    "pod": pod.name,
                    self._node_label(of_pod=True): pod.node.name,
                    "container_index": str(list(pod.requests).index(container)),
                    "device_uuid": device_uuid(pod.node, gpu),
                }
                yield self._series(
                    "hami_vgpu_memory_allocated_bytes", labels, pod.bound_at, pod.released_at, mib * _MIB
                )

    def monitor(self, scenario: Scenario, node: Node) -> Iterator[SimulatedSeries]:
        """The use of a node's GPUs by containers, in percent. Without a limit of cores, it is always 0."""
        for pod in scenario.pods:
            if pod.node is not node or not node.geometries[0].vgpus_per_gpu:
                continue
            begin, stop = pod.run_interval
            for position, (container, index, gpu) in enumerate(_vgpus(pod)):
                labels = {
                    "namespace": pod.namespace,
                    "pod": pod.name,
                    "container": container,
                    "vdevice_index": str(index),
                    "device_uuid": device_uuid(node, gpu),
                }
                steps = [(max(begin, since), use) for since, use in pod.use_of(position)]
                ends = [*(since for since, _ in steps[1:]), stop]
                samples: list[tuple[int, str]] = []
                for (since, use), until in zip(steps, ends, strict=True):
                    percent = round(float(use) * 100) if pod.requests[container].get(CORES) else 0
                    samples += constant(self._times, since, max(since, min(until, stop)), percent)
                yield self._labeled("hami_container_device_utilization_ratio", labels, samples)

    def _node_label(self, *, of_pod: bool) -> str:
        return ("nodename" if of_pod else "nodeid") if self._hami.version == "2.8" else "node"

    def _series(
        self, metric: str, labels: dict[str, str], start: Minutes, end: Minutes, amount: object
    ) -> SimulatedSeries:
        return self._labeled(metric, labels, constant(self._times, start, end, amount))

    def _labeled(self, metric: str, labels: dict[str, str], samples: list[tuple[int, str]]) -> SimulatedSeries:
        if self._hami.version == "2.8":
            metric = _OLD_NAMES[metric]
            labels = {_OLD_LABELS.get(name, name): text for name, text in labels.items()} | _TARGET_LABELS
        else:
            labels = {f"exported_{name}" if name in _TARGET_LABELS else name: text for name, text in labels.items()}
            labels |= _TARGET_LABELS
        target = {"job": self._scraping.job, "instance": self._scraping.instance, "zone": "vGPU"}
        return SimulatedSeries(metric, {**labels, **target}, samples)


def _vgpus(pod: Pod) -> Iterator[tuple[str, int, int]]:
    """The container, its index of the vGPU, and the GPU of each of a pod's vGPUs, in the order of its devices."""
    gpus = iter(pod.devices)
    for container, units in pod.requests.items():
        for index in range(units.get("nvidia_com_gpu", 0)):
            yield container, index, next(gpus)
