"""What HAMi reports about the fractions of GPUs that it allocates to containers.

Sources: HAMi, cmd/scheduler/metrics.go and cmd/vGPUmonitor/metrics.go, at 2.7 to 2.9. From 2.9 on, names begin with
hami_, and the earlier ones need `--legacy-metrics`. After a scrape without `honorLabels`, labels that collide with
the target's are named `exported_…`.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from msgspec.structs import replace

from gpucost.core.metering.gpu_fractions import FRACTION_RESOURCES
from gpucost.core.metering.observations import DeviceSeries, GpuLimits, VirtualGpus
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.tables import Labels, Rows, exported_label

_MIB = Decimal(2**20)
PodName = tuple[str, str]


def has_fractions(requests: Iterable[Series]) -> bool:
    """Whether any pod requests a fraction of a GPU (the result of `Queries.requests`)."""
    return any(series.labels.get("resource") in FRACTION_RESOURCES for series in requests)


def virtual_gpus(rows: Mapping[str, Rows], use: Sequence[DeviceSeries], nodes: Mapping[PodName, str]) -> VirtualGpus:
    """Combine HAMi's metrics of one hour.

    Args:
        rows: results of `Queries.vgpus`, by statistic.
        use: the series of containers, without nodes.
        nodes: names of pods' nodes, by namespace and name.
    """
    gpus: dict[PodName, set[str]] = {}
    for labels, _ in rows.get("allocated", []):
        gpus.setdefault(_pod(labels), set()).add(vgpu_uuid(labels))
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


def vgpu_uuid(labels: Labels) -> str:
    """The GPU in the labels of HAMi's metrics; "" in other exporters' labels."""
    return labels.get("device_uuid") or labels.get("deviceuuid", "")


def container_name(labels: Labels) -> str:
    """The container in the labels of HAMi's metrics; "" in other exporters' labels."""
    return (labels.get("ctrname") or exported_label(labels, "container")) if vgpu_uuid(labels) else ""


def _pod(labels: Labels) -> PodName:
    if "podname" in labels:
        return labels.get("podnamespace", ""), labels["podname"]
    return exported_label(labels, "namespace"), exported_label(labels, "pod")


def _smallest_by_node(rows: Rows) -> dict[str, Decimal]:
    """The smallest value of a node's GPUs."""
    smallest: dict[str, Decimal] = {}
    for labels, limit in rows:
        node = labels.get("nodeid") or exported_label(labels, "node")
        if limit.is_finite():
            smallest[node] = min(limit, smallest.get(node, limit))
    return smallest
