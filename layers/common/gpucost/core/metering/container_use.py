"""The use of GPUs by containers, which the monitors of fraction schedulers measure by process.

Source: HAMi-core, src/multiprocess/multiprocess_utilization_watcher.c: it reads use only in containers whose
cores are limited. The value of other containers is always 0, and does not count.
"""

from collections.abc import Iterable, Mapping, Sequence

from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.device_assignment import GpusOfPod, uuids_of_fractions
from gpucost.core.metering.device_use import DeviceHour, continuous_times_of
from gpucost.core.metering.fraction_schedulers import CORE_RESOURCES
from gpucost.core.metering.gpu_shares import FRACTION
from gpucost.core.metering.observations import DeviceSeries, ScrapeTarget
from gpucost.core.metering.usage import Holding

PodName = tuple[str, str]


def devices_of_containers(
    series: Iterable[DeviceSeries], scrapes: Mapping[ScrapeTarget, Scrapes], window: IntervalMs
) -> dict[PodName, list[DeviceHour]]:
    """Return the use of each GPU by each container, by namespace and name of the pod."""
    copies: dict[tuple[str, str, str, str, str], list[DeviceSeries]] = {}
    for use in series:
        copies.setdefault((use.namespace, use.pod, use.slot, use.node, use.uuid), []).append(use)
    if not copies:
        return {}
    times = continuous_times_of(scrapes, window)
    by_pod: dict[PodName, list[DeviceHour]] = {}
    for (namespace, pod, _, node, uuid), device_copies in sorted(copies.items()):
        device = DeviceHour((node, uuid, ""), device_copies, scrapes, window, times)
        by_pod.setdefault((namespace, pod), []).append(device)
    return by_pod


def pods_measured_by_container(
    holdings: Sequence[Holding], containers: Mapping[PodName, list[DeviceHour]], gpus_of_pod: GpusOfPod
) -> dict[PodName, list[DeviceHour]]:
    """Return the containers of pods that are measured by them: of GPUs on which every pod is.

    If a pod of a GPU is not, the GPU's use is divided among all of them. Otherwise the use of some would count twice.
    """
    if not containers:
        return {}
    measured: set[PodName] = set()
    gpus_with_others: set[str] = set()
    for holding in holdings:
        if holding.share.source != FRACTION:
            continue
        name = holding.pod.namespace, holding.pod.pod
        if name in containers and _limits_cores(holding) and len(containers[name]) <= holding.units:
            measured.add(name)
        else:
            gpus_with_others |= uuids_of_fractions(holding, gpus_of_pod)
    return {
        name: containers[name]
        for name in measured
        if not any(container.key[1] in gpus_with_others for container in containers[name])
    }


def _limits_cores(holding: Holding) -> bool:
    """Whether every container with a vGPU requests cores."""
    with_gpus = {request.container for request in holding.pod.requests if request.resource == holding.resource}
    with_cores = {
        request.container for request in holding.pod.requests if request.resource in CORE_RESOURCES and request.units
    }
    return with_gpus <= with_cores
