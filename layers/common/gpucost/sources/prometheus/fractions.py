"""Fractions of GPUs: what schedulers of the catalog report of them, and pods on GPUs that KAI Scheduler reserves.

After a scrape without `honorLabels`, labels that collide with the target's are named `exported_…`.

KAI Scheduler (and Run:ai) 0.12: pkg/binder/binding/resourcereservation/resource_reservation.go and
pkg/common/constants/constants.go. A reservation pod requests the whole GPU. It and the pods on the GPU have the label
`runai-gpu-group` from their binding on, or `runai-gpu-group/GROUP` if a pod is on several GPUs. These pods request no
GPU: their annotations say what they get. kube-state-metrics exports both with its allow-lists only.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpucost.core.decimals import parse_decimal
from gpucost.core.metering.fraction_schedulers import (
    FRACTION_RESOURCES,
    FRACTION_SCHEDULERS,
    VGPU_SIGNALS,
    fraction_gpu,
)
from gpucost.core.metering.gpu_shares import GPU
from gpucost.core.metering.kubernetes_labels import GPU_GROUP_LABEL
from gpucost.core.metering.observations import DeviceSeries, GpuFraction, GpuLimits, VirtualGpus
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.devices import DeviceTable, read_device_samples
from gpucost.sources.prometheus.families import (
    ClusterMetrics,
    Family,
    HourReading,
    PartialHourPods,
    Query,
    RowsByStatistic,
    SeriesByQuery,
    chunks,
)
from gpucost.sources.prometheus.queries import POD_LABELS, REQUESTS, PodMatcher
from gpucost.sources.prometheus.tables import Labels, Rows, exported_label

if TYPE_CHECKING:
    from gpucost.sources.prometheus.pods import Pods, PodTable

_CONTAINER, _NAME_PREFIX = "resource-reservation", "gpu-reservation"
_MIB = Decimal(2**20)
PodName = tuple[str, str]


class Fractions(Family):
    """Fractions of GPUs; nothing is queried where no pod requests any."""

    def __init__(self, metrics: ClusterMetrics, pods: "Pods") -> None:
        super().__init__(metrics)
        self._of_containers = metrics.with_queries(metrics.queries.of_containers())
        self._pods = pods

    def further_queries(self, results: SeriesByQuery, hours_with_gaps: Container[int]) -> Mapping[str, Query]:
        """What schedulers and their monitors report, if pods request fractions or reserve GPUs for them."""
        queries: dict[str, Query] = {}
        if has_fractions(results["requests"]):
            queries["vgpus"] = Query(lambda queries: queries.vgpus())
            queries["containers"] = Query(lambda queries: queries.of_containers().devices(0))
            queries["container counts"] = Query(lambda queries: queries.of_containers().device_counts(0))
        if has_reservations(results["requests"]):
            queries["sharers"] = Query(lambda queries: queries.sharers(), "fractions of reserved GPUs are unknown")
        return queries

    def read(self, reading: HourReading) -> None:
        """Read pods on reserved GPUs, which request none, and the use of GPUs by containers."""
        if "sharers" in reading.rows:
            reading.partial += self._read_sharers(reading.pods, reading.rows["sharers"], reading.hour)
        if "vgpus" in reading.rows:
            table = DeviceTable(0, VGPU_SIGNALS, {**reading.rows["containers"], **reading.rows["container counts"]}, {})
            scrapes = self._of_containers.scrape_times.rank_scrapes(
                0, table.densest_series(), [reading.hour], self._metrics.clock()
            )
            partial = PartialHourPods(reading.pods.names(reading.partial))
            read_device_samples(self._of_containers, table, scrapes, partial, reading.hour)
            reading.vgpus = virtual_gpus(reading.rows["vgpus"], tuple(table.series()), reading.pods.nodes_by_name())
            reading.scrapes |= scrapes

    def _read_sharers(self, pods: "PodTable", rows: RowsByStatistic, hour: datetime) -> list[str]:
        """Add pods with fractions of reserved GPUs; returns their uids and those of the reservation pods."""
        groups = groups_of_pods(rows)
        reservations = pods.reservations()
        pods.reserved_groups = {uid: group for uid in reservations for group in groups.get(uid, ())}
        node_of_group = {group: reservations[uid] for uid, group in pods.reserved_groups.items()}
        sharing = {
            uid: names for uid, names in groups.items() if uid not in reservations and names & node_of_group.keys()
        }
        fractions = fractions_of_pods(rows, sharing)
        for uids in chunks(sorted(fractions)):
            selector = self._metrics.queries.pod_metrics(PodMatcher("uid", tuple(uids)), labels=True)
            with self._metrics.raw_samples_around(selector, hour) as series:
                requests = as_requests(series, fractions, node_of_group)
                with_samples = {request.labels["uid"] for request in requests}
                pods.add_raw_samples(with_samples, [*series, *requests])
            pods.fractions |= {uid: fractions[uid] for uid in with_samples}
        self._pods.read_missing_owners(pods, pods.names(pods.fractions), hour)
        return [*pods.fractions, *reservations]


def has_fractions(requests: Iterable[Series]) -> bool:
    """Whether any pod requests a fraction of a GPU (the result of `Queries.requests`)."""
    return any(series.labels.get("resource") in FRACTION_RESOURCES for series in requests)


def virtual_gpus(rows: Mapping[str, Rows], use: Sequence[DeviceSeries], nodes: Mapping[PodName, str]) -> VirtualGpus:
    """Combine the schedulers' metrics of one hour.

    Args:
        rows: results of `Queries.vgpus`, by statistic.
        use: the series of containers, without nodes.
        nodes: names of pods' nodes, by namespace and name.
    """
    gpus: dict[PodName, set[str]] = {}
    for labels, _ in rows.get("allocated", []):
        gpus.setdefault(_pod(labels), set()).add(fraction_gpu(labels))
    for series in use:
        gpus.setdefault((series.namespace, series.pod), set()).add(series.uuid)
    memory, cores = _smallest_by_node(rows.get("memory", [])), _smallest_by_node(rows.get("cores", []))
    return VirtualGpus(
        {pod: frozenset(uuids) for pod, uuids in gpus.items()},
        {
            node: GpuLimits(cores.get(node, Decimal(100)) or Decimal(100), limit / _MIB)
            for node, limit in memory.items()
            if limit > 0
        },
        tuple(
            replace(series, node=nodes[series.namespace, series.pod])
            for series in use
            if (series.namespace, series.pod) in nodes
        ),
    )


def _pod(labels: Labels) -> PodName:
    for namespace, name in (scheduler.pod_labels for scheduler in FRACTION_SCHEDULERS):
        if name in labels:
            return labels.get(namespace, ""), labels[name]
    return exported_label(labels, "namespace"), exported_label(labels, "pod")


def _smallest_by_node(rows: Rows) -> dict[str, Decimal]:
    """The smallest value of a node's GPUs."""
    smallest: dict[str, Decimal] = {}
    for labels, limit in rows:
        of_schedulers = (labels.get(scheduler.node_label) for scheduler in FRACTION_SCHEDULERS)
        node = next(filter(None, of_schedulers), "") or exported_label(labels, "node")
        if limit.is_finite():
            smallest[node] = min(limit, smallest.get(node, limit))
    return smallest


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
