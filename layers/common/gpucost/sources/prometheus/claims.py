"""Pods that hold GPUs through ResourceClaims (DRA): in no request, told by dcgm-exporter's `dra_*` labels alone."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from gpucost.core.metering.gpu_shares import DRA_GPU, MIG_PREFIX
from gpucost.core.metering.observations import ContainerRequest, DeviceSeries, Instance, PodObservation, Sightings
from gpucost.sources.prometheus.tables import Labels, exported_label


def claiming_pods(series: Iterable[DeviceSeries], rows: Iterable[tuple[Labels, object]]) -> list[PodObservation]:
    """A pod for every claim that devices are labelled with: it holds them for as long as they are.

    Args:
        series: of the exporters.
        rows: `kube_pod_resourceclaim_info`, which tells uids.
    """
    uids = {(exported_label(labels, "namespace"), exported_label(labels, "pod")): labels.get("uid", "") for labels, _ in rows}
    by_claim: dict[tuple[str, str, str, str, str], list[DeviceSeries]] = {}
    for one in series:
        if one.claim:
            key = (one.namespace, one.pod, one.uid, one.node, _resource(one))
            by_claim.setdefault(key, []).append(one)
    return [
        PodObservation(
            namespace=namespace,
            pod=pod,
            uid=uid or uids.get((namespace, pod)) or f"{namespace}/{pod}",
            node=node,
            requests=(ContainerRequest("", "container", resource, Decimal(_devices(own))),),
            held=_sightings(own),
            running=_sightings(own),
            workload_kind="Pod",
            workload=pod,
        )
        for (namespace, pod, uid, node, resource), own in sorted(by_claim.items())
    ]


def unreported_claims(rows: Iterable[tuple[Labels, object]], pods: Sequence[PodObservation]) -> list[str]:
    """A note where pods have claims and no exporter tells what they hold."""
    known = {(pod.namespace, pod.pod) for pod in pods}
    names = sorted({(exported_label(labels, "namespace"), exported_label(labels, "pod")) for labels, _ in rows} - known)
    if not names:
        return []
    namespace, pod = names[0]
    return [
        f"{len(names)} pods have resource claims ({namespace}/{pod} is the first) of which no metric tells what GPUs "
        "they hold: these count as stranded (dcgm-exporter: KUBERNETES_ENABLE_DRA)"
    ]


def _resource(one: DeviceSeries) -> str:
    if not one.mig_profile:
        return DRA_GPU
    return MIG_PREFIX + one.mig_profile.lower().replace(".", "_").replace("+", "_")


def _devices(own: Iterable[DeviceSeries]) -> int:
    return len({(one.uuid, one.mig_instance) for one in own})


def _sightings(own: Sequence[DeviceSeries]) -> Sightings:
    if any(one.values is None for one in own):
        return None
    times: dict[Instance, set[int]] = {}
    for one in own:
        times.setdefault(one.instance, set()).update(at for at, _ in one.values or ())
    return {who: tuple(sorted(run)) for who, run in times.items() if run}
