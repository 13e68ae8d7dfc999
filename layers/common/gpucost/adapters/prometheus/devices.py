"""Device series of the utilization signal, with the pod that each is labelled with."""

from collections.abc import Mapping
from decimal import Decimal

from gpucost.adapters.prometheus.queries import STAT
from gpucost.adapters.prometheus.tables import Labels, Rows, instance
from gpucost.domain.observations import DeviceObservation

Identity = frozenset[tuple[str, str]]


def devices(rows: Mapping[str, Rows]) -> tuple[DeviceObservation, ...]:
    """The series of one hour, from their sums and counts."""
    counts = {_identity(labels): int(value) for labels, value in rows.get("count", [])}
    return tuple(_device(labels, counts.get(_identity(labels), 0), total) for labels, total in rows.get("sum", []))


def _device(labels: Labels, samples: int, total: Decimal) -> DeviceObservation:
    namespace, pod = _workload(labels)
    gpu = f"{instance(labels)}/{labels.get('gpu', '')}/{labels.get('device', '')}"
    return DeviceObservation(
        node=labels.get("Hostname") or labels.get("hostname", ""),
        uuid=labels.get("UUID") or labels.get("uuid") or gpu,
        mig_instance=labels.get("GPU_I_ID", ""),
        mig_profile=labels.get("GPU_I_PROFILE", ""),
        model=labels.get("modelName", ""),
        namespace=namespace,
        pod=pod,
        uid=labels.get("pod_uid", "") if pod else "",
        samples=samples,
        total=total,
        instance=instance(labels),
    )


def _workload(labels: Labels) -> tuple[str, str]:
    """(namespace, pod) that holds the device, or blanks.

    Where the scrape's own labels won (`honorLabels: false`), `pod` is the exporter's and the workload's is
    `exported_pod`; where the exporter's won, an idle GPU still gets the exporter's own pod from the scrape, which
    requests no GPU and so claims none.
    """
    if "exported_pod" in labels or "exported_namespace" in labels:
        return labels.get("exported_namespace", ""), labels.get("exported_pod", "")
    pod = labels.get("pod") or labels.get("pod_name", "")
    return labels.get("namespace") or labels.get("pod_namespace", ""), pod


def _identity(labels: Labels) -> Identity:
    return frozenset(item for item in labels.items() if item[0] != STAT)
