"""Pods that hold GPUs through ResourceClaims (DRA): they have no request, only dcgm-exporter's `dra_*` labels."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from gpucost.core.metering.gpu_shares import DRA_GPU_DRIVER, MIG_PREFIX
from gpucost.core.metering.observations import ContainerRequest, DeviceSeries, PodObservation, SampleTimes, ScrapeTarget
from gpucost.sources.prometheus.tables import Labels, exported_label


def claiming_pods(series: Iterable[DeviceSeries], rows: Iterable[tuple[Labels, object]]) -> list[PodObservation]:
    """A pod observation for every claim that devices are labeled with, for the time in which they are.

    Args:
        series: the exporters' series.
        rows: `kube_pod_resourceclaim_info`, which has the pods' uids.
    """
    uids = {
        (exported_label(labels, "namespace"), exported_label(labels, "pod")): labels.get("uid", "")
        for labels, _ in rows
    }
    by_claim: dict[tuple[str, str, str, str, str], list[DeviceSeries]] = {}
    for device in series:
        if device.resource_claim:
            key = (device.namespace, device.pod, device.uid, device.node, _resource(device))
            by_claim.setdefault(key, []).append(device)
    return [
        PodObservation(
            namespace=namespace,
            pod=pod,
            uid=uid or uids.get((namespace, pod)) or f"{namespace}/{pod}",
            node=node,
            requests=(ContainerRequest("", "container", resource, Decimal(_device_count(claimed))),),
            held_samples=_sample_times(claimed),
            running_samples=_sample_times(claimed),
            workload_kind="Pod",
            workload=pod,
        )
        for (namespace, pod, uid, node, resource), claimed in sorted(by_claim.items())
    ]


def unreported_claims(rows: Iterable[tuple[Labels, object]], pods: Sequence[PodObservation]) -> list[str]:
    """A note if pods have claims and no exporter reports which GPUs they hold."""
    reported = {(pod.namespace, pod.pod) for pod in pods}
    claiming = {(exported_label(labels, "namespace"), exported_label(labels, "pod")) for labels, _ in rows}
    names = sorted(claiming - reported)
    if not names:
        return []
    namespace, pod = names[0]
    return [
        f"{len(names)} pods have resource claims (the first is {namespace}/{pod}), and no metric says which GPUs they "
        "hold. These GPUs count as stranded; set KUBERNETES_ENABLE_DRA in dcgm-exporter"
    ]


def _resource(device: DeviceSeries) -> str:
    if not device.mig_profile:
        return DRA_GPU_DRIVER
    return MIG_PREFIX + device.mig_profile.lower().replace(".", "_").replace("+", "_")


def _device_count(devices: Iterable[DeviceSeries]) -> int:
    return len({(device.uuid, device.mig_instance) for device in devices})


def _sample_times(devices: Sequence[DeviceSeries]) -> SampleTimes:
    if any(device.samples is None for device in devices):
        return None
    times: dict[ScrapeTarget, set[int]] = {}
    for device in devices:
        times.setdefault(device.scrape_target, set()).update(time for time, _ in device.samples or ())
    return {target: tuple(sorted(target_times)) for target, target_times in times.items() if target_times}
