"""What a metrics source saw of one cluster in one hour, before anything is concluded from it.

Adapters fill these records from raw samples; `domain.metering` reads them. Times are integer milliseconds since the
epoch, Prometheus' own resolution. "In the window" means `[hour - EDGE_MS, hour + 1h)`: one look past the hour's first
edge shows whether a pod was there already.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

EDGE_MS = 300_000
"""How far before the hour the window starts: more than any scrape interval in use (15 to 120 s)."""

Instance = str
"""One scraped process of a source (`job` and `instance` of its series)."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """When a source was scraped with success, over the look-around of the hour, by its instances."""

    scrapes: Mapping[Instance, tuple[int, ...]]
    """Sorted times of successful scrapes per instance."""


class ContainerRequest(NamedTuple):
    """A container's request of a GPU resource, on a node."""

    namespace: str
    pod: str
    uid: str
    node: str
    container: str
    init: bool
    resource: str
    """As kube-state-metrics writes it: `nvidia_com_gpu`, `nvidia_com_mig_1g_5gb`."""
    units: Decimal


class Presence(NamedTuple):
    """How often something was seen in the window, and, where that is not every scrape, exactly when.

    `seen` counts samples per instance in the window. `times` are the sample times over the look-around, only for what
    was not seen at every scrape of its instances; None otherwise.
    """

    seen: Mapping[Instance, int]
    times: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class PodObservation:
    """A pod with GPU requests that was bound to a node in the window."""

    namespace: str
    pod: str
    uid: str
    node: str
    requests: tuple[ContainerRequest, ...]
    held: Presence
    """Samples in which the request stood on a node and the pod was not Succeeded or Failed."""
    running: Presence | None
    """Samples in phase Running; None where phases are not kept (then holding is taken for running)."""
    workload_kind: str = ""
    workload: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeObservation:
    """A node, known by name and provider id."""

    name: str
    provider_id: str
    present: Presence
    labels: Mapping[str, str]
    """As kube-state-metrics writes them: `label_node_kubernetes_io_instance_type`."""
    capacity: Mapping[str, Decimal]
    """Advertised units per GPU resource."""
    allocatable: Mapping[str, Decimal]
    advertised: Presence | None
    """Samples in which GPU capacity was advertised; None where it never was."""


class DeviceObservation(NamedTuple):
    """One series of the utilization signal: a GPU or MIG device, with the pod it is labelled with, if any."""

    node: str
    uuid: str
    mig_instance: str
    mig_profile: str
    model: str
    namespace: str
    pod: str
    uid: str
    samples: int
    total: Decimal
    """Sum of the samples' raw values in the hour."""
    instance: Instance


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything seen of one cluster-hour."""

    cluster: str
    hour: datetime
    heartbeat: Heartbeat
    pods: tuple[PodObservation, ...]
    nodes: tuple[NodeObservation, ...]
    devices: tuple[DeviceObservation, ...]
    device_scrapes: Mapping[Instance, tuple[int, ...]] = field(default_factory=dict)
    """Scrape times of the utilization source; of its densest instance at least."""
    notes: tuple[str, ...] = ()
