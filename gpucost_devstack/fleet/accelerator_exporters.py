"""Metrics of the exporters of AMD's GPUs, Intel's Gaudi and Intel's GPUs for a scenario.

The label sets follow the exporters' sources: pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go of
ROCm/device-metrics-exporter 1.5.2, exporter.go of HabanaAI/gaudi-metric-exporter 1.24.0-1007, and
xpumd/receiver/intelxpu/sysman/engine.go of intel/xpumanager 2.0.0. Prometheus drops blank labels, so they are left out.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from gpucost_devstack.fleet.dcgm_exporter import constant_ranges, edges_of_pods, pods_by_node, utilization
from gpucost_devstack.fleet.scenario import AcceleratorExporter, Device, Node, Pod, Scenario
from gpucost_devstack.fleet.scraping import MINUTE_MS, Scraping
from gpucost_devstack.fleet.series import SimulatedSeries

Labels = dict[str, str]
JOBS = {
    "amd": ("amd-device-metrics-exporter", 5000),
    "gaudi": ("gaudi-metric-exporter", 41611),
    "intel": ("xpumd", 8080),
}
"""Job and port of each vendor's exporter."""
VENDORS = frozenset(JOBS)


def series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """Series of all devices of these vendors."""
    exporter = scenario.accelerators
    if exporter is None:
        return
    pods_of = pods_by_node(scenario)
    for node in scenario.nodes:
        if node.vendor not in JOBS:
            continue
        job, port = JOBS[node.vendor]
        scraping = Scraping(job, f"{node.name}:{port}", lifetime=node.lifetime, gaps=exporter.gaps)
        target = {"job": scraping.job, "instance": scraping.instance}
        pods = pods_of.get(id(node), [])
        samples_by_series: dict[tuple[tuple[str, str], ...], list[tuple[int, str]]] = {}
        times = scraping.successful_times(scenario.start, scenario.end)
        edges = [edge for geometry in node.geometries for edge in geometry.lifetime]
        for scrape_range in constant_ranges(times, (*edges, *edges_of_pods(pods))):
            minute = Fraction(times[scrape_range.start], MINUTE_MS)
            geometry = node.geometry_at(minute)
            devices = geometry.devices if geometry is not None else ()
            uses = [utilization(scenario, node, index, minute, pods) for index in range(len(devices))]
            for index, device in enumerate(devices):
                holder = next((pod for pod in pods if _holds(pod, index, minute)), None)
                match node.vendor:
                    case "amd":
                        exposed = _amd_samples(exporter, node, index, device, uses, devices, holder)
                    case "gaudi":
                        exposed = _gaudi_samples(exporter, node, index, uses[index], holder)
                    case _:
                        exposed = _intel_samples(node, index, uses[index])
                for metric, labels, sample in exposed:
                    key = (("__name__", metric), *sorted({**labels, **target}.items()))
                    text = str(float(sample))
                    samples_by_series.setdefault(key, []).extend((times[number], text) for number in scrape_range)
        for key, samples in samples_by_series.items():
            labels = dict(key)
            yield SimulatedSeries(labels.pop("__name__"), labels, samples)
        times = scraping.times(scenario.start, scenario.end)
        yield SimulatedSeries("up", target, [(at, str(int(scraping.succeeds(at)))) for at in times])


def _holds(pod: Pod, index: int, minute: Fraction) -> bool:
    """Whether the kubelet assigns a device to a pod that runs."""
    return index in pod.devices and pod.run_interval[0] <= minute < pod.run_interval[1] and not pod.never_starts


def _amd_samples(
    exporter: AcceleratorExporter,
    node: Node,
    index: int,
    device: Device,
    uses: Sequence[Fraction],
    devices: Sequence[Device],
    holder: Pod | None,
) -> Iterator[tuple[str, Labels, Fraction]]:
    """Activity of a GPU or a partition. On partitioned GPUs, partition 0 has the activity of the whole GPU."""
    compute, _, memory = device.profile.partition("_")
    labels = {
        "gpu_id": str(index),
        "card_model": node.model,
        "gpu_partition_id": str(device.mig_id),
        "gpu_compute_partition_type": compute,
        "gpu_memory_partition_type": memory,
        "deployment_mode": "baremetal",
        "hostname": node.name,
        **_pod_labels(exporter, node, holder, "amd-metrics-exporter"),
    }
    if exporter.has_serial_numbers:
        labels["serial_number"] = f"69224800{device.gpu:04d}"
    if device.mig_id == 0:
        of_gpu = [use for use, other in zip(uses, devices, strict=True) if other.gpu == device.gpu]
        yield f"{exporter.prefix}gpu_gfx_activity", labels, 100 * sum(of_gpu, Fraction(0)) / len(of_gpu)
    for die, activity in enumerate(_busy_dies(uses[index], _COMPUTE_DIES[compute])):
        yield f"{exporter.prefix}gpu_gfx_busy_instantaneous", {**labels, "xcc_index": str(die)}, activity


_COMPUTE_DIES = {"spx": 8, "dpx": 4, "qpx": 2, "cpx": 1}
"""Compute dies of a partition of an MI300X."""


def _busy_dies(use: Fraction, dies: int) -> Sequence[Fraction]:
    """The activity of each die in percent: unequal, with the use as the mean. That of a whole GPU is another sample."""
    if dies == 8:
        return [Fraction(0)] * dies
    spread = min(use, 1 - use) / 2 if dies > 1 else Fraction(0)
    return [100 * (use + (spread if die % 2 else -spread)) for die in range(dies)]


def _gaudi_samples(
    exporter: AcceleratorExporter, node: Node, index: int, use: Fraction, holder: Pod | None
) -> Iterator[tuple[str, Labels, Fraction]]:
    """The exporter does not name the node. The scrape configuration adds it; an operator adds the exporter's pod."""
    labels = {
        "Serial": f"AM{index:08d}",
        "UUID": f"01P0-HL2080A0-15-{node.name}-{index:02d}",
        "device": f"AM{index:08d}",
        "id": str(index),
        "driver": "1.24.0-1007",
        "node": node.name,
    }
    if exporter.label_style == "exported":
        labels |= {"namespace": "monitoring", "pod": f"metric-exporter-ds-{node.name}", "container": "metric-exporter"}
    if holder is not None:
        labels |= {"pod_name": holder.name, "pod_namespace": holder.namespace}
    yield "habanalabs_utilization", labels, 100 * use


def _intel_samples(node: Node, index: int, use: Fraction) -> Iterator[tuple[str, Labels, Fraction]]:
    """Groups of engines. Their labels name no pod; the chart's ServiceMonitor adds the node and xpumd's pod."""
    labels = {
        "hw_id": f"00000000-0000-{index:04d}-0000-56c08086",
        "pci_bdf": f"0000:{index + 3:02x}:00.0",
        "node": node.name,
        "namespace": "monitoring",
        "pod": f"xpumd-{node.name}",
        "container": "xpumd",
    }
    for number, (task, activity) in enumerate((("all", use), ("compute-all", use), ("copy-all", Fraction(1)))):
        engine = {"hw_gpu_task": task, "hw_name": f"engine-{number + 1}-{task}"}
        yield "hw_gpu_utilization_ratio", {**labels, **engine}, activity
    yield "hw_gpu_utilization_ratio", {**labels, "hw_gpu_task": "all", "com_intel_subdevice_id": "0"}, Fraction(1)


def _pod_labels(exporter: AcceleratorExporter, node: Node, holder: Pod | None, name: str) -> Labels:
    of_exporter = {"namespace": "kube-amd-gpu", "pod": f"{name}-{node.name}", "container": "exporter"}
    if holder is None:
        return of_exporter
    labels = {"pod": holder.name, "namespace": holder.namespace, "container": next(iter(holder.requests), "main")}
    if exporter.label_style == "exported":
        return of_exporter | {f"exported_{label}": labels[label] for label in labels}
    return labels
