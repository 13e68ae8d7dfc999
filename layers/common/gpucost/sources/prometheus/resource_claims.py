"""Devices of ResourceSlices, and pods that hold GPUs through ResourceClaims (DRA)."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING

from gpucost.core.hours import HOUR, to_epoch_ms
from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.accelerators import DRA_DRIVERS, NEURON, NVIDIA
from gpucost.core.metering.claims import is_claim_of_extended_resources
from gpucost.core.metering.gpu_models import partition_of
from gpucost.core.metering.gpu_shares import DRA_GPU_DRIVER, GPU, MIG_PREFIX
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.metering.kubernetes_labels import INSTANCE_TYPE_LABEL
from gpucost.core.metering.observations import (
    ClaimedDevice,
    ContainerRequest,
    DeviceSeries,
    NodeObservation,
    OfferedDevice,
    PodObservation,
    SampleTimes,
    ScrapeTarget,
    Unexplained,
)
from gpucost.sources.prometheus.claim_collectors import CLAIM_COLLECTORS, ClaimCollector, DeviceLabels
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.families import LOOK_AROUND, ClusterMetrics, Family, HourReading, chunks
from gpucost.sources.prometheus.queries import (
    ADMIN_NAMESPACES,
    HOUR_WINDOW,
    NO_STATISTIC_LABEL,
    UNKNOWN_DRIVERS,
    PodMatcher,
    Queries,
)
from gpucost.sources.prometheus.tables import Labels, Rows, exported_label, pod_name, scrape_target

if TYPE_CHECKING:
    from gpucost.sources.prometheus.pods import Pods

# Devices of ResourceSlices, and the pods that hold some through claims, from a collector's series.

_DeviceName = tuple[str, str, str]
"""Driver, pool and name of a device."""


def devices_of_unknown_drivers(rows: Rows, node: str) -> list[Unexplained]:
    """What is not understood: the devices of DRA drivers that are not in the catalog.

    Args:
        rows: the number of devices by driver and node.
        node: the label of the node.
    """
    return [
        Unexplained(
            "devices in ResourceSlices of the DRA driver",
            labels.get("driver", ""),
            count,
            labels.get(node, ""),
            "It is not in the catalog of vendors: who holds its devices is unknown",
        )
        for labels, count in rows
    ]


class ClaimTable:
    """Collects the series of one collector.

    Args:
        rows: results of `Queries.claim_objects`, by statistic.
    """

    def __init__(self, rows: Mapping[str, Rows]) -> None:
        self.collector = next(
            (
                collector
                for collector in CLAIM_COLLECTORS
                if rows.get(collector.devices) or rows.get(f"{UNKNOWN_DRIVERS} {collector.devices}")
            ),
            CLAIM_COLLECTORS[0],
        )
        self._counts: dict[str, list[tuple[Labels, Decimal]]] = {
            metric: rows.get(metric, [])
            for metric in (self.collector.devices, self.collector.allocations, self.collector.reservations)
        }
        self._unknown = rows.get(f"{UNKNOWN_DRIVERS} {self.collector.devices}", [])
        self.scrapes: Mapping[ScrapeTarget, Scrapes] = {}
        """Scrapes of the targets."""
        self._expected: Mapping[ScrapeTarget, int] = {}
        self._samples: dict[tuple[str, str], dict[ScrapeTarget, set[int]]] = {}

    def __bool__(self) -> bool:
        return any(self._counts.values()) or bool(self._unknown)

    def densest_series(self) -> dict[ScrapeTarget, Labels]:
        """By target, the series with most samples."""
        densest: dict[ScrapeTarget, tuple[Decimal, Labels]] = {}
        for labels, count in (row for metric_rows in self._counts.values() for row in metric_rows):
            target = scrape_target(labels)
            if target not in densest or count > densest[target][0]:
                densest[target] = count, labels
        return {target: labels for target, (_, labels) in densest.items()}

    def set_scrapes(self, scrapes: Mapping[ScrapeTarget, Scrapes], window: IntervalMs) -> None:
        """Set the scrapes of the targets.

        Args:
            scrapes: all of them.
            window: that of `Queries.claim_objects`.
        """
        self.scrapes = scrapes
        self._expected = {target: len(of_target.within(window)) for target, of_target in scrapes.items()}

    def _is_complete(self, labels: Labels, count: Decimal) -> bool:
        """Whether a series was in every scrape."""
        return count >= self._expected.get(scrape_target(labels), 0) > 0

    def needing_raw_samples(self) -> dict[tuple[str, str], list[str]]:
        """Series that were not in every scrape: by metric and label, the label's values."""
        changed: dict[tuple[str, str], set[str]] = {}
        labels_by_metric = {
            self.collector.devices: self.collector.node,
            self.collector.allocations: self.collector.claim,
            self.collector.reservations: self.collector.claim,
        }
        for metric, label in labels_by_metric.items():
            for labels, count in self._counts[metric]:
                if not self._is_complete(labels, count) and labels.get(label):
                    changed.setdefault((metric, label), set()).add(labels[label])
        return {key: sorted(values) for key, values in changed.items()}

    def add_raw_samples(self, metric: str, series: Iterable[Series]) -> None:
        """Add the raw samples of one metric."""
        for labels, samples in series:
            key = metric, self._identity(metric, labels)
            self._samples.setdefault(key, {}).setdefault(scrape_target(labels), set()).update(at for at, _ in samples)

    def offered_devices(self) -> tuple[OfferedDevice, ...]:
        """The devices in ResourceSlices, each with the scrapes in which it was there."""
        collector = self.collector
        return tuple(
            OfferedDevice(labels[collector.node], _device(labels, collector.device_labels)[2], times)
            for labels, times in self._distinct(collector.devices)
            if labels.get(collector.node)
        )

    def unknown_drivers(self) -> list[Unexplained]:
        """The devices of drivers that are not in the catalog, by node."""
        return devices_of_unknown_drivers(self._unknown, self.collector.node)

    def claiming_pods(
        self,
        specified: Iterable[tuple[str, str]],
        reported: Iterable[PodObservation],
        requesting: Iterable[PodObservation],
    ) -> list[PodObservation]:
        """A pod observation for every device that a pod has reserved and that no exporter reports with the pod.

        Args:
            specified: namespaces and names of the claims in pods' specifications.
            reported: pods whose claims exporters report.
            requesting: the pods with requests for GPUs, which count as their requests.
        """
        collector = self.collector
        nodes = {
            _device(labels, collector.device_labels): labels.get(collector.node, "")
            for labels, _ in self._counts[collector.devices]
        }
        of_claim: dict[tuple[str, str], set[_DeviceName]] = {}
        for labels, _ in self._counts[collector.allocations]:
            of_claim.setdefault(self._claim(labels), set()).add(_device(labels, collector.allocation_labels))
        in_exporters = {
            (pod.namespace, pod.pod, pod.claimed_device.claim, pod.claimed_device.name)
            for pod in reported
            if pod.claimed_device
        }
        in_specifications = set(specified)
        with_requests = {(pod.namespace, pod.pod) for pod in requesting}
        pods = []
        for labels, times in self._distinct(collector.reservations):
            namespace, claim = self._claim(labels)
            pod, uid = labels.get(collector.pod, ""), labels.get(collector.uid, "")
            is_extended = (namespace, claim) not in in_specifications and is_claim_of_extended_resources(claim, pod)
            if is_extended and (namespace, pod) in with_requests:
                continue
            for driver, pool, name in sorted(of_claim.get((namespace, claim), ())):
                if not in_exporters.isdisjoint((namespace, pod, claim, reported_name) for reported_name in ("", name)):
                    continue
                node = nodes.get((driver, pool, name), "") or pool  # drivers name their pools after nodes
                partition = partition_of(name) if driver == DRA_GPU_DRIVER else None
                resource = DRA_DRIVERS[driver]
                if is_extended and driver == DRA_GPU_DRIVER:
                    resource = GPU
                if partition:
                    resource = MIG_PREFIX + partition.profile.replace(".", "_")
                device = ClaimedDevice(claim, node, name, "", name, driver)
                request = ContainerRequest("", "container", resource, Decimal(1))
                pods.append(PodObservation(namespace, pod, uid, node, (request,), times, times, claimed_device=device))
        return pods

    def _distinct(self, metric: str) -> list[tuple[Labels, SampleTimes]]:
        """Each object of a metric's series once, with its samples; None if it was in every scrape."""
        objects: dict[str, tuple[Labels, SampleTimes]] = {}
        for labels, count in self._counts[metric]:
            identity = self._identity(metric, labels)
            if self._is_complete(labels, count):
                objects[identity] = labels, None
            elif identity not in objects:
                samples = self._samples.get((metric, identity), {})
                objects[identity] = labels, {target: tuple(sorted(times)) for target, times in samples.items()}
        return list(objects.values())

    def _identity(self, metric: str, labels: Labels) -> str:
        """Identifies an object of a metric's series, whichever target, slice or replica the series is of."""
        collector: ClaimCollector = self.collector
        if metric == collector.devices:
            return f"{labels.get(collector.node, '')}/{'/'.join(_device(labels, collector.device_labels))}"
        if metric == collector.reservations:
            return f"{'/'.join(self._claim(labels))}/{labels.get(collector.uid, '')}/{labels.get(collector.pod, '')}"
        return "/".join((*self._claim(labels), *_device(labels, collector.allocation_labels)))

    def _claim(self, labels: Labels) -> tuple[str, str]:
        return exported_label(labels, "namespace"), labels.get(self.collector.claim, "")


def _device(labels: Labels, names: DeviceLabels) -> _DeviceName:
    return labels.get(names.driver, ""), labels.get(names.pool, ""), labels.get(names.device, "")


# Pods that hold GPUs through ResourceClaims (DRA), from dcgm-exporter's `dra_*` labels.


class Claims(Family):
    """Pods that hold devices through ResourceClaims, from exporters' labels, and from a collector if there is any."""

    def __init__(self, metrics: ClusterMetrics, pods: "Pods") -> None:
        super().__init__(metrics)
        self._pods = pods

    def read(self, reading: HourReading) -> None:
        """Read pods with claims, devices in ResourceSlices, and namespaces whose claims may have admin access."""
        owners = reading.pod_rows["owners"]
        claims = owners.get("claim", [])
        # Owners and labels of pods that held GPUs through claims and do not exist at the hour's end.
        ended = ended_pods_with_claims(owners, reading.pods.uids())
        for uids in chunks(list(ended)):
            self._pods.read_samples(reading.pods, (), PodMatcher("uid", tuple(uids)), reading.hour)
        self._pods.read_missing_owners(reading.pods, ended.values(), reading.hour)

        reading.claiming = claiming_pods(reading.devices, claims, reading.pod_observations)
        has_capacity = reading.rows["nodes"].get("kept")
        silent_nodes = _silent_nodes(reading.described_nodes, reading.devices) if has_capacity else set()
        collected, reading.admin_namespaces = self._read_objects(claims, silent_nodes, reading.hour)
        if collected:
            of_claims = {
                (exported_label(labels, "namespace"), labels.get("resourceclaim_name", "")) for labels, _ in claims
            }
            reading.claiming += collected.claiming_pods(of_claims, reading.claiming, reading.pod_observations)
            reading.scrapes |= collected.scrapes
            reading.offered_devices = collected.offered_devices()
        reading.claiming = [reading.pods.with_owner_and_labels(pod) for pod in reading.claiming]
        if reading.claiming and reading.admin_namespaces is None:  # only the exporter's labels name claims
            rows = self._metrics.rows("namespaces", Queries.admin_namespaces, reading.hour)
            reading.admin_namespaces = _namespaces(chain.from_iterable(rows.values()))

        # What claims or drivers there are of which no pod, or no resource, is known.
        vendors = vendors_of_silent_nodes(reading.described_nodes) if claims else set()
        reading.unexplained_claims = unreported_claims(claims, reading.claiming, vendors)
        reading.unexplained_claims += collected.unknown_drivers() if collected else []

    def unexplained(self, reading: HourReading) -> Iterable[Unexplained]:
        """Claims and drivers that are not understood."""
        return reading.unexplained_claims

    def _read_objects(
        self, claims: Rows, silent_nodes: Collection[str], hour: datetime
    ) -> tuple[ClaimTable | None, frozenset[str] | None]:
        """ResourceSlices and claims, if there is a collector, and the namespaces whose claims may have admin access.

        Most clusters have no DRA driver, so neither claims nor nodes with GPUs that advertise none: they need no query.
        """
        if not claims and not silent_nodes:
            return None, None
        rows = self._metrics.rows("claims", Queries.claim_objects, hour)
        admin_namespaces = _namespaces(rows.get(ADMIN_NAMESPACES, ()))
        table = ClaimTable(rows)
        if not table:
            return None, admin_namespaces
        scrapes = self._metrics.scrape_times.collector_scrapes(
            table.densest_series(), table.collector.devices, hour - LOOK_AROUND, self._metrics.look_end(hour)
        )
        end = to_epoch_ms(hour + HOUR)
        table.set_scrapes(scrapes, IntervalMs(end - HOUR_WINDOW.length, end))
        for (metric, label), values in table.needing_raw_samples().items():
            for some in chunks(values):
                selector = self._metrics.queries.claim_object_metrics(metric, label, some)
                with self._metrics.raw_samples_around(selector, hour) as series:
                    table.add_raw_samples(metric, series)
        return table, admin_namespaces


def _namespaces(rows: Iterable[tuple[Labels, object]]) -> frozenset[str]:
    return frozenset(exported_label(labels, "namespace") for labels, _ in rows)


def _silent_nodes(nodes: Iterable[NodeObservation], devices: Iterable[DeviceSeries]) -> set[str]:
    """Names of nodes that existed all hour and advertise nothing, although they have devices.

    These are nodes whose GPUs an exporter reports, and those with Neuron devices: their exporter reports none.
    """
    silent = [node for node in nodes if node.sample_times is None and not node.states]
    if not silent:
        return set()
    reported = {device.node for device in devices}
    return {
        node.name
        for node in silent
        if node.name in reported
        or (INSTANCE_TYPE_LABEL.value_in(node.labels) or node.unlabeled.instance_type) in NEURON_OF_INSTANCE
    }


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
