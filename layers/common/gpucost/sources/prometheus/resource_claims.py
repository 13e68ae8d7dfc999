"""Pods that hold GPUs through ResourceClaims (DRA), from dcgm-exporter's `dra_*` labels."""

from collections.abc import Container, Iterable, Mapping, Sequence
from decimal import Decimal

from gpucost.core.metering.accelerators import NEURON, NVIDIA
from gpucost.core.metering.claims import is_claim_of_extended_resources
from gpucost.core.metering.gpu_shares import DRA_GPU_DRIVER, GPU, MIG_PREFIX
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.metering.kubernetes_labels import INSTANCE_TYPE_LABEL
from gpucost.core.metering.observations import (
    ClaimedDevice,
    ContainerRequest,
    DeviceSeries,
    NodeObservation,
    PodObservation,
    SampleTimes,
    ScrapeTarget,
    Unexplained,
)
from gpucost.sources.prometheus.queries import NO_STATISTIC_LABEL
from gpucost.sources.prometheus.tables import Labels, Rows, exported_label, pod_name


def claiming_pods(
    series: Iterable[DeviceSeries], rows: Sequence[tuple[Labels, object]], requesting: Iterable[PodObservation]
) -> list[PodObservation]:
    """A pod observation for every device that a pod holds through a claim, for the time in which it is labeled so.

    A request for an extended resource that a DeviceClass provides (KEP-5004) has a claim, too. It counts once, as the
    request. Where no request was scraped, the claim counts.

    Args:
        series: the exporters' series.
        rows: `kube_pod_resourceclaim_info`, which has the pods' uids and the claims of their specification.
        requesting: the pods with requests for GPUs.
    """
    uids = {pod_name(labels): labels.get("uid", "") for labels, _ in rows}
    specified = {(exported_label(labels, "namespace"), labels.get("resourceclaim_name", "")) for labels, _ in rows}
    pods_with_requests = {(pod.namespace, pod.pod) for pod in requesting}
    by_device: dict[tuple[str, str, str, str, ClaimedDevice], list[DeviceSeries]] = {}
    for device in series:
        if not device.resource_claim:
            continue
        is_extended = (device.namespace, device.resource_claim) not in specified and is_claim_of_extended_resources(
            device.resource_claim, device.pod
        )
        if is_extended and (device.namespace, device.pod) in pods_with_requests:
            continue
        claimed_device = ClaimedDevice(
            device.resource_claim, device.node, device.uuid, device.mig_instance, device.claimed_name, device.dra_driver
        )
        resource = GPU if is_extended and not device.mig_profile else _resource(device)
        key = (device.namespace, device.pod, device.uid, resource, claimed_device)
        by_device.setdefault(key, []).append(device)
    return [
        PodObservation(
            namespace=namespace,
            pod=pod,
            uid=uid or uids.get((namespace, pod)) or f"{namespace}/{pod}",
            node=claimed_device.node,
            requests=(ContainerRequest("", "container", resource, Decimal(1)),),
            held_samples=_sample_times(copies),
            running_samples=_sample_times(copies),
            claimed_device=claimed_device,
        )
        for (namespace, pod, uid, resource, claimed_device), copies in sorted(by_device.items())
    ]


def ended_pods_with_claims(rows: Mapping[str, Rows], except_uids: Container[str]) -> dict[str, tuple[str, str]]:
    """Pods with claims that do not exist at the hour's end: by uid, namespace and name.

    Args:
        rows: results of `Queries.owners`, by statistic. Every pod that exists has an owner, which may be `<none>`.
        except_uids: pods to leave out.
    """
    claiming = {labels.get("uid", ""): pod_name(labels) for labels, _ in rows.get("claim", [])}
    if not claiming:
        return {}
    existing = {pod_name(labels) for labels, _ in rows.get(NO_STATISTIC_LABEL, [])}
    return {uid: name for uid, name in claiming.items() if uid and uid not in except_uids and name not in existing}


def vendors_of_silent_nodes(nodes: Iterable[NodeObservation]) -> set[str]:
    """The vendors of the accelerators of nodes that advertise none, by their instance types."""
    types = {INSTANCE_TYPE_LABEL.value_in(node.labels) for node in nodes if not node.states}
    of_neuron = {NEURON.vendor} if not types.isdisjoint(NEURON_OF_INSTANCE) else set[str]()
    return of_neuron | ({NVIDIA} if not types.isdisjoint(GPUS_OF_INSTANCE) else set[str]())


def unreported_claims(
    rows: Iterable[tuple[Labels, object]], pods: Sequence[PodObservation], vendors: Container[str] = ()
) -> list[Unexplained]:
    """Pods with claims of which no metric says what they allocate; on nodes without free GPUs, they are no GPUs.

    Args:
        rows: `kube_pod_resourceclaim_info`.
        pods: those with claims that some metric explains.
        vendors: of the accelerators of nodes that advertise none.
    """
    reported = {(pod.namespace, pod.pod) for pod in pods}
    claiming = {pod_name(labels) for labels, _ in rows}
    names = sorted(claiming - reported)
    if not names:
        return []
    namespace, pod = names[0]
    return [
        Unexplained(
            "pods with ResourceClaims of which no metric says what they allocate, the first being",
            f"{namespace}/{pod}",
            Decimal(len(names)),
            change=CHANGE_FOR_NEURON if NEURON.vendor in vendors and NVIDIA not in vendors else _CHANGE_FOR_NVIDIA,
        )
    ]


_CHANGE_FOR_NVIDIA = "Set KUBERNETES_ENABLE_DRA in dcgm-exporter, or scrape kube-dra-exporter"
CHANGE_FOR_NEURON = f"Scrape kube-dra-exporter, which reports claims of {NEURON.dra_driver}; {NEURON.use_of_claims}"


def _resource(device: DeviceSeries) -> str:
    if not device.mig_profile:
        return DRA_GPU_DRIVER
    return MIG_PREFIX + device.mig_profile.lower().replace(".", "_").replace("+", "_")


def _sample_times(devices: Sequence[DeviceSeries]) -> SampleTimes:
    if any(device.samples is None for device in devices):
        return None
    times: dict[ScrapeTarget, set[int]] = {}
    for device in devices:
        times.setdefault(device.scrape_target, set()).update(time for time, _ in device.samples or ())
    return {target: tuple(sorted(target_times)) for target, target_times in times.items() if target_times}
