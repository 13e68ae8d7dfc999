"""The catalog of schedulers that give pods fractions of GPUs: resources, metrics with their labels, and exporters.

A scheduler is one entry. Its pods request `nvidia.com/gpu`, of which each is a part of another GPU, and cores or memory
of each. Sources: HAMi 2.9, pkg/device/nvidia/device.go, cmd/scheduler/metrics.go and cmd/vGPUmonitor/metrics.go, at
2.7 to 2.9. From 2.9 on, names begin with hami_, and the earlier ones need `--legacy-metrics`.
"""

from collections.abc import Mapping
from itertools import chain

from msgspec import Struct

from gpucost.core.metering.signals import SIGNALS, Exporter, Signal

_PERCENT = SIGNALS["DCGM_FI_DEV_GPU_UTIL"].scale


class FractionScheduler(Struct, frozen=True):
    """A scheduler of fractions, in Kubernetes and in Prometheus."""

    name: str
    """Its name in messages."""
    cores: str
    """The resource of a part of each GPU's cores in percent, as kube-state-metrics writes it."""
    memory: str
    """The resource of a part of each GPU's memory in MiB."""
    memory_percentage: str | None
    """The resource of a part of each GPU's memory in percent; None without one."""
    allocated: tuple[str, ...]
    """Metrics with a series for each GPU of a pod; their values are not read."""
    memory_limits: tuple[str, ...]
    """Metrics of the bytes of each GPU that are divided."""
    core_limits: tuple[str, ...]
    """Metrics of the percent of each GPU's cores that are divided."""
    use: tuple[Signal, ...]
    """The use of a GPU by one container."""
    gpu_labels: tuple[str, ...]
    """Labels of the GPU's UUID: for each signal of `use`, the one of its series."""
    container_label: str
    """The container's label, where it is not `container` or `exported_container`."""
    pod_labels: tuple[str, str]
    """The labels of a pod's namespace and name, where they are not `namespace` and `pod`, or `exported_…` of both."""
    node_label: str
    """The node's label, where it is not `node` or `exported_node`."""
    exporters: tuple[Exporter, ...]
    """Of allocations first, then of use."""
    how_to_scrape: tuple[str, str]
    """What to scrape, and what to change for it, so that there are series of each of them."""

    @property
    def resources(self) -> frozenset[str]:
        """The resources of parts of a GPU."""
        return frozenset(filter(None, (self.cores, self.memory, self.memory_percentage)))

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that are read."""
        return (*self.allocated, *self.memory_limits, *self.core_limits, *(signal.name for signal in self.use))


HAMI = FractionScheduler(
    name="HAMi",
    cores="nvidia_com_gpucores",
    memory="nvidia_com_gpumem",
    memory_percentage="nvidia_com_gpumem_percentage",
    allocated=("hami_vgpu_memory_allocated_bytes", "vGPUMemoryAllocated"),
    memory_limits=("hami_gpu_memory_limit_bytes", "GPUDeviceMemoryLimit"),
    core_limits=("hami_gpu_core_limit_ratio", "GPUDeviceCoreLimit"),
    use=(
        Signal(
            "hami_container_device_utilization_ratio",
            "container",
            _PERCENT,
            works_under_mig=True,
            exporter_versions="HAMi 2.9+",
        ),
        Signal(
            "Device_utilization_desc_of_container",
            "container",
            _PERCENT,
            works_under_mig=True,
            exporter_versions="HAMi up to 2.8, and later with --legacy-metrics",
        ),
    ),
    gpu_labels=("device_uuid", "deviceuuid"),
    container_label="ctrname",
    pod_labels=("podnamespace", "podname"),
    node_label="nodeid",
    exporters=(
        Exporter(
            source="hami_scheduler",
            series="HAMi's scheduler (`hami_vgpu_*`, `hami_gpu_*`)",
            namespaces=("kube-system",),
            # Before 2.9, its metrics have no common prefix.
            metric_prefixes=("hami_", "vgpumemoryallocated", "gpudevicememorylimit", "gpudevicecorelimit"),
            discovery_labels=("pod_label_app_kubernetes_io_component", "pod_container_port_name"),
            discovery_values="hami-scheduler;metrics",
        ),
        Exporter(
            source="hami_vgpu_monitor",
            series="HAMi's vGPU monitors (`hami_container_*`)",
            namespaces=("kube-system",),
            metric_prefixes=("hami_container_", "device_utilization_desc_of_container"),
            discovery_labels=("pod_label_app_kubernetes_io_component", "pod_container_port_name"),
            discovery_values="hami-device-plugin;metrics",
        ),
    ),
    how_to_scrape=(
        "scrape HAMi's scheduler: Service hami-scheduler, port monitor; HAMi Helm values: prometheus: {enabled: true}",
        "scrape HAMi's vGPU monitors: Service hami-device-plugin-monitor, port monitorport; HAMi Helm values: "
        "prometheus: {enabled: true}",
    ),
)
FRACTION_SCHEDULERS = (HAMI,)
CORE_RESOURCES = frozenset(scheduler.cores for scheduler in FRACTION_SCHEDULERS)
MEMORY_RESOURCES = frozenset(scheduler.memory for scheduler in FRACTION_SCHEDULERS)
FRACTION_RESOURCES = frozenset(chain.from_iterable(scheduler.resources for scheduler in FRACTION_SCHEDULERS))
"""The resources of which a container requests a part; `nvidia_com_gpu` is then its number of vGPUs."""
VGPU_SIGNALS = tuple(signal for scheduler in FRACTION_SCHEDULERS for signal in scheduler.use)
VGPU_METRICS: Mapping[str, tuple[str, ...]] = {
    "allocated": tuple(chain.from_iterable(scheduler.allocated for scheduler in FRACTION_SCHEDULERS)),
    "memory": tuple(chain.from_iterable(scheduler.memory_limits for scheduler in FRACTION_SCHEDULERS)),
    "cores": tuple(chain.from_iterable(scheduler.core_limits for scheduler in FRACTION_SCHEDULERS)),
}
"""Metrics of all schedulers by what they say."""
GPU_LABEL_OF_SIGNAL = {
    signal.name: label
    for scheduler in FRACTION_SCHEDULERS
    for signal, label in zip(scheduler.use, scheduler.gpu_labels, strict=True)
}
GPU_LABELS = tuple(dict.fromkeys(GPU_LABEL_OF_SIGNAL.values()))
SCHEDULER_NAMES = " or ".join(scheduler.name for scheduler in FRACTION_SCHEDULERS)


def fraction_gpu(labels: Mapping[str, str]) -> str:
    """Return the UUID of the GPU in the labels of a scheduler's metrics; "" in other exporters' labels."""
    return next((labels[name] for name in GPU_LABELS if labels.get(name)), "")
