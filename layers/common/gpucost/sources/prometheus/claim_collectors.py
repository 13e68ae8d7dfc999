"""Collectors of ResourceSlices and ResourceClaims, with the names of their metrics and labels."""

from typing import NamedTuple


class DeviceLabels(NamedTuple):
    """Labels that name a device."""

    driver: str
    pool: str
    device: str


class ClaimCollector(NamedTuple):
    """A collector's metrics: a series for each device of a slice, device of a claim, and pod of a claim."""

    devices: str
    device_labels: DeviceLabels
    node: str
    """The label of the node that has the device."""
    allocations: str
    allocation_labels: DeviceLabels
    claim: str
    """The label of the claim's name, for `allocations` and `reservations`."""
    reservations: str
    pod: str
    uid: str


KUBE_DRA_EXPORTER = ClaimCollector(
    # Gradiant/kube-dra-exporter 0.1.0, main.go.
    devices="kube_resourceslice_device_capacity_memory_bytes",
    device_labels=DeviceLabels("driver", "pool", "device_name"),
    node="node_name",
    allocations="kube_resourceclaim_status_allocated_device",
    allocation_labels=DeviceLabels("driver", "pool", "device_name"),
    claim="resourceclaim_name",
    reservations="kube_resourceclaim_status_reserved_for_pod",
    pod="pod_name",
    uid="uid",
)
CLAIM_COLLECTORS = (
    KUBE_DRA_EXPORTER,
    # kubernetes/kube-state-metrics#3020, resourceslice.go and resourceclaim.go. No release has it yet.
    ClaimCollector(
        devices="kube_resourceslice_device_info",
        device_labels=DeviceLabels("driver", "pool_name", "device_name"),
        node="node_name",
        allocations="kube_resourceclaim_allocation_device_info",
        allocation_labels=DeviceLabels("driver", "pool", "device"),
        claim="resourceclaim",
        reservations="kube_resourceclaim_status_reserved_for",
        pod="consumer_name",
        uid="consumer_uid",
    ),
)
