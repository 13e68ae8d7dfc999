"""Pods that share a GPU which KAI Scheduler (and Run:ai) reserves with a pod of its own.

Sources: KAI Scheduler 0.12, pkg/binder/binding/resourcereservation/resource_reservation.go and
pkg/common/constants/constants.go. A reservation pod requests the whole GPU. It and the pods on the GPU have the label
`runai-gpu-group` from their binding on, or `runai-gpu-group/GROUP` if a pod is on several GPUs. These pods request no
GPU: their annotations say what they get. kube-state-metrics exports both with its allow-lists only.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from gpucost.core.decimals import parse_decimal
from gpucost.core.metering.gpu_shares import GPU
from gpucost.core.metering.kubernetes_labels import GPU_GROUP_LABEL
from gpucost.core.metering.observations import GpuFraction
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.queries import POD_LABELS, REQUESTS
from gpucost.sources.prometheus.tables import Labels, Rows, exported_label

_CONTAINER, _NAME_PREFIX = "resource-reservation", "gpu-reservation"


def is_reservation(labels: Labels) -> bool:
    """Whether a request is that of a reservation pod."""
    if _CONTAINER not in labels.values():
        return False
    return exported_label(labels, "container") == _CONTAINER and exported_label(labels, "pod").startswith(_NAME_PREFIX)


def has_reservations(requests: Iterable[Series]) -> bool:
    """Whether any GPU is reserved for fractions (the result of `Queries.requests`)."""
    return any(is_reservation(series.labels) for series in requests)


def groups_of_pods(rows: Mapping[str, Rows]) -> dict[str, frozenset[str]]:
    """The groups in the labels of reservation pods and of pods on their GPUs, by uid.

    Args:
        rows: results of `Queries.sharers`, by statistic.
    """
    groups: dict[str, set[str]] = {}
    for labels, _ in rows.get("groups", []):
        groups.setdefault(labels.get("uid", ""), set()).update(_groups(labels))
    return {uid: frozenset(names) for uid, names in groups.items() if uid and names}


def fractions_of_pods(rows: Mapping[str, Rows], groups: Mapping[str, frozenset[str]]) -> dict[str, GpuFraction]:
    """What the pods of some groups get of each of their GPUs, by uid; without annotations, it is unknown."""
    fractions = {uid: GpuFraction(None, None, names) for uid, names in groups.items()}
    for labels, _ in rows.get("annotations", []):
        uid = labels.get("uid", "")
        if uid in fractions:
            share = _positive(labels.get("annotation_gpu_fraction", ""))
            fractions[uid] = fractions[uid]._replace(
                share=share if share is None or share < 1 else None,
                memory_mib=_positive(labels.get("annotation_gpu_memory", "")),
            )
    return fractions


def as_requests(
    series: Iterable[Series], fractions: Mapping[str, GpuFraction], node_of_group: Mapping[str, str]
) -> list[Series]:
    """Requests for the GPUs that pods share, for as long as the pods have the label of a group.

    Args:
        series: raw samples of all metrics of the pods.
        fractions: by uid.
        node_of_group: the node of each group's GPU.
    """
    requests = []
    for labels, samples in series:
        if labels.get("__name__") != POD_LABELS or not _groups(labels):
            continue
        groups = fractions[labels["uid"]].groups
        node = next(node_of_group[group] for group in sorted(groups) if group in node_of_group)
        request = {
            **{name: text for name, text in labels.items() if not name.startswith("label_")},
            "__name__": REQUESTS,
            "container": "",
            "exported_container": "",
            "resource": GPU,
            "node": node,
            "exported_node": node,
        }
        requests.append(Series(request, tuple((time, str(len(groups))) for time, _ in samples)))
    return requests


def _groups(labels: Labels) -> set[str]:
    return {group for name, group in labels.items() if name.startswith(GPU_GROUP_LABEL) and group}


def _positive(text: str) -> Decimal | None:
    try:
        number = parse_decimal(text)
    except ValueError:
        return None
    return number if number.is_finite() and number > 0 else None
