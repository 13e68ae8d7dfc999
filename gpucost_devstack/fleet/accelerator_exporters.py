"""Metrics of AMD's exporter for a scenario, with the labels of its version 1.5.2.

The label sets follow the exporters' sources: `populateLabelsFromGPU` in ROCm/device-metrics-exporter's
`pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go`. Prometheus drops blank labels, so they are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from gpucost_devstack.fleet.dcgm_exporter import pods_by_node, utilization
from gpucost_devstack.fleet.scenario import AcceleratorExporter, Device, Node, Pod, Scenario
from gpucost_devstack.fleet.scraping import MINUTE_MS, Scraping
from gpucost_devstack.fleet.series import SimulatedSeries

Labels = dict[str, str]
JOBS = {"amd": ("amd-device-metrics-exporter", 5000)}
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
        for at in scraping.successful_times(scenario.start, scenario.end):
            minute = Fraction(at, MINUTE_MS)
            geometry = node.geometry_at(minute)
            uses = [
                utilization(scenario, node, index, minute, pods)
                for index in range(len(geometry.devices) if geometry else 0)
            ]
            for index, device in enumerate(geometry.devices if geometry else ()):
                holder = next((pod for pod in pods if _holds(pod, index, minute)), None)
                for metric, labels, value in _amd_samples(exporter, node, index, device, uses, geometry.devices, holder):
                    key = (("__name__", metric), *sorted({**labels, **target}.items()))
                    samples_by_series.setdefault(key, []).append((at, str(float(value))))
        for key, samples in samples_by_series.items():
            labels = dict(key)
            yield SimulatedSeries(labels.pop("__name__"), labels, samples)
        times = scraping.times(scenario.start, scenario.end)
        yield SimulatedSeries("up", target, [(at, str(int(scraping.succeeds(at)))) for at in times])


def _holds(pod: Pod, index: int, minute: Fraction) -> bool:
    """Whether the kubelet assigns a device to a pod that runs."""
    return index in pod.devices and pod.run_interval[0] <= minute < pod.run_interval[1] and not pod.never_starts


def _amd_samples(
    exporter: AcceleratorExporter, node: Node, index: int, device: Device, uses: Sequence[Fraction],
    devices: Sequence[Device], holder: Pod | None,
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
    for die, value in enumerate(_busy_dies(uses[index], _COMPUTE_DIES[compute])):
        yield f"{exporter.prefix}gpu_gfx_busy_instantaneous", {**labels, "xcc_index": str(die)}, value


_COMPUTE_DIES = {"spx": 8, "dpx": 4, "qpx": 2, "cpx": 1}
"""Compute dies of a partition of an MI300X."""


def _busy_dies(use: Fraction, dies: int) -> Sequence[Fraction]:
    """The activity of each die in percent: unequal, with the use as the mean. That of a whole GPU is another sample."""
    if dies == 8:
        return [Fraction(0)] * dies
    spread = min(use, 1 - use) / 2 if dies > 1 else Fraction(0)
    return [100 * (use + (spread if die % 2 else -spread)) for die in range(dies)]


def _pod_labels(exporter: AcceleratorExporter, node: Node, holder: Pod | None, name: str) -> Labels:
    own = {"namespace": "kube-amd-gpu", "pod": f"{name}-{node.name}", "container": "exporter"}
    if holder is None:
        return own
    labels = {"pod": holder.name, "namespace": holder.namespace, "container": next(iter(holder.requests), "main")}
    if exporter.label_style == "exported":
        return own | {f"exported_{label}": value for label, value in labels.items()}
    return labels
