"""Devices of ResourceSlices, and the pods that hold some through claims, from a collector's series."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.accelerators import DRA_DRIVERS
from gpucost.core.metering.claims import is_claim_of_extended_resources
from gpucost.core.metering.gpu_shares import DRA_GPU_DRIVER, GPU, MIG_PREFIX
from gpucost.core.metering.mig_partitions import partition_of
from gpucost.core.metering.observations import (
    ClaimedDevice,
    ContainerRequest,
    OfferedDevice,
    PodObservation,
    SampleTimes,
    ScrapeTarget,
    Unexplained,
)
from gpucost.sources.prometheus.claim_collectors import CLAIM_COLLECTORS, ClaimCollector, DeviceLabels
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.queries import UNKNOWN_DRIVERS
from gpucost.sources.prometheus.tables import Labels, Rows, exported_label, scrape_target

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
