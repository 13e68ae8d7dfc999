"""How pods divide the use of a shared GPU, by the utilization that dcgm-exporter reports of their processes.

In virtual-GPU mode, dcgm-exporter 4.5.3-4.8.2 and later (pull request 594) reports `DCGM_FI_DEV_GPU_UTIL` of a GPU
several times: the device's own value, without pod, and for each pod on it the sum of its processes' values, with
`pod_uid`. A pod without processes gets 0. So does a pod whose processes the exporter cannot see (no `hostPID`), and a
pod whose uid it does not know, then without `pod_uid`. Such zeros are not measurements.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct, field

from gpucost.core.intervals import IntervalMs, union
from gpucost.core.metering.device_use import DeviceHour
from gpucost.core.metering.usage import Holding

ZERO = Fraction(0)


class ProcessShares(Struct, frozen=True):
    """The pods' parts of a device's use in times in which the same pods have values; their sum is at most 1."""

    times: Sequence[IntervalMs]
    by_uid: Mapping[str, Fraction]


class ProcessUse(Struct, frozen=True):
    """What the processes' values say about one device."""

    shares: Sequence[ProcessShares] = ()
    unexplained_ms: Fraction = ZERO
    """Use of the device in the times in which the processes' values do not account for it."""


class _Values(Struct):
    """The values of the times in which the same pods run and the same pods have values, each × time."""

    times: list[IntervalMs] = field(default_factory=list)
    device_ms: Fraction = ZERO
    pod_ms: dict[str, Fraction] = field(default_factory=dict)


def process_use(values: DeviceHour, device: DeviceHour, holdings: Iterable[Holding]) -> ProcessUse:
    """Compute how pods divide a device's use, from what its processes use.

    Only proportions are taken from the values: they are one snapshot per scrape, and `GPU_UTIL` overstates use. What
    the device's own value exceeds the pods' sum by belongs to processes of no pod on the device.

    Args:
        values: the device by the signal that exporters report per process.
        device: the device by its best signal.
        holdings: all holdings that include the device.
    """
    shares: list[ProcessShares] = []
    unexplained_ms = ZERO
    for running, observed in _values_by_pods(values, list(holdings)):
        times = union(observed.times)
        total = max(observed.device_ms, sum(observed.pod_ms.values(), ZERO))
        used_ms = sum((device.use_during(time).used_ms for time in times), ZERO)
        if total and _accounts_for_use(observed, has_all_pods=running <= observed.pod_ms.keys()):
            shares.append(ProcessShares(times, {uid: pod_ms / total for uid, pod_ms in observed.pod_ms.items()}))
        elif not used_ms:
            shares.append(ProcessShares(times, dict.fromkeys(observed.pod_ms, ZERO)))
        else:
            unexplained_ms += used_ms
    return ProcessUse(shares, unexplained_ms)


def _values_by_pods(values: DeviceHour, holders: Sequence[Holding]) -> Iterable[tuple[frozenset[str], _Values]]:
    """Return values of scrapes that have some of the device and of pods, with the uids of the pods that run then."""
    by_pods: dict[tuple[frozenset[str], frozenset[str]], _Values] = {}
    for times, by_label in values.readings():
        device = max((utilization for (_, _, uid), utilization in by_label.items() if not uid), default=None)
        # A pod's value is repeated for each of its containers and replicas, so labels of a uid differ in no value.
        pods = {uid: utilization for (_, _, uid), utilization in by_label.items() if uid}
        if device is not None and pods:
            running = frozenset(
                holder.pod.uid for holder in holders if any(holder.running.contains(time.start) for time in times)
            )
            observed = by_pods.setdefault((running, frozenset(pods)), _Values())
            length = sum(time.length for time in times)
            observed.times += times
            observed.device_ms += device * length
            for uid, utilization in pods.items():
                observed.pod_ms[uid] = observed.pod_ms.get(uid, ZERO) + utilization * length
    return [(running, observed) for (running, _), observed in by_pods.items()]


def _accounts_for_use(values: _Values, *, has_all_pods: bool) -> bool:
    """Whether the exporter sees the pods' processes, so that a 0 means no use.

    Values add up to about the device's own. They may be less where other processes use the device, and by chance,
    because both are snapshots; so half is enough. Where a pod has no value, any value above 0 has to do.
    """
    pods_ms = sum(values.pod_ms.values(), ZERO)
    return 2 * pods_ms >= values.device_ms if has_all_pods else pods_ms > 0
