"""The look-back: each workload's and node pool's figures by hour, from the ledger, in compact arrays.

Figures are means of an hour: a peak is the mean of the busiest hour, and shorter peaks are not visible. They are
floats of 8 bytes, because recommendations are estimates: 1,000 workloads over 30 days need 30 MB.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from gpucost.core.amounts import SCALE
from gpucost.core.hour_record import MEASURED_SOURCES, CompactLine, NodeHour
from gpucost.core.hours import HOUR, floor_day
from gpucost.core.metering.kubernetes_labels import INTERRUPTIBLE_LABEL
from gpucost.core.pricing.prices import region_of

_AVOIDABLE_PRICE_SOURCES = frozenset({"constant", "rates", "on-demand", "list-price", "spot", "override"})
"""Price sources that show what an hour costs in cash. A bill's amortized amounts may include commitments."""
_LIST_PRICE_SOURCES = frozenset({"constant", "rates", "on-demand", "list-price"})
"""Price sources that are price lists."""
_COMMITMENT_SOURCES = frozenset({"cur", "rates", "override"})
"""Price sources that change when a commitment is bought. Price lists and constants do not."""
COMMITTED_CAPACITY = frozenset({"reserved", "capacity-block"})
"""Capacity types that are paid for in advance."""


class SpotPrice(NamedTuple):
    """Spot price of an instance type over the look-back in USD per node-hour, in the most expensive zone on average."""

    usd: float
    """Mean over time."""
    low: float
    high: float


class ReservedPrice(NamedTuple):
    """The price of an instance type with a commitment."""

    usd: float
    """USD per node-hour."""
    scope: str
    """The commitment's scope: the instance type, or its family such as `g5.*`."""
    basis: str = ""
    """The percentage of a built-in list price that it is, with the price's day and region."""


class PodWait(NamedTuple):
    """How long a pod waited on a UTC day before it was bound to a node."""

    namespace: str
    pod: str
    uid: str
    resource: str
    """The resource name as in Kubernetes, for example `nvidia.com/gpu`."""
    units: int
    hours: tuple[tuple[int, float], ...]
    """(hour of the day, part of that hour in which the pod waited)."""


class PodLatency(NamedTuple):
    """The latency of a pod's requests on a UTC day."""

    namespace: str
    pod: str
    hours: tuple[tuple[int, float, float], ...]
    """(hour of the day, requests, their p95 latency in seconds), of hours with requests."""


class KarpenterDisruption(NamedTuple):
    """Karpenter's view of the last week: the maximum of nodes by reason (`underutilized`, `empty`)."""

    eligible_nodes: Mapping[str, int]
    """Nodes of the whole cluster that it could have removed, by reason."""
    allowed_disruptions: Mapping[tuple[str, str], int]
    """Nodes that a pool's disruption budgets allow to remove at once, by (node pool, reason)."""


class WorkloadKey(NamedTuple):
    """A workload and the resource it requests. A pod without an owner is a workload of its own."""

    business_unit: str
    namespace: str
    kind: str
    name: str
    resource: str
    gpu_model: str


class PoolKey(NamedTuple):
    """Nodes of one pool, instance type, capacity type and GPU model."""

    node_pool: str
    instance_type: str
    capacity_type: str
    gpu_model: str


def _zero_per_hour(hours: int) -> "array[float]":
    return array("d", bytes(8 * hours))


class SpendByAvoidability(Struct):
    """A cost in USD, by whether the AWS bill would be lower without the GPUs."""

    avoidable: float = 0.0
    committed: float = 0.0
    """Paid anyway: Capacity Blocks and other reserved capacity."""
    unknown: float = 0.0
    """Under a price source that does not say it."""
    at_list_price: float = 0.0
    """The part of all that was charged at list prices."""

    @property
    def is_all_at_list_price(self) -> bool:
        """Whether everything was charged at list prices."""
        return self.at_list_price >= (1 - 1e-9) * (self.avoidable + self.committed + self.unknown)

    def add(self, usd: float, capacity_type: str, price_source: str) -> None:
        """Add an amount."""
        if price_source in _LIST_PRICE_SOURCES:
            self.at_list_price += usd
        if capacity_type in COMMITTED_CAPACITY or price_source == "capacity-block":
            self.committed += usd
        elif price_source in _AVOIDABLE_PRICE_SOURCES:
            self.avoidable += usd
        else:
            self.unknown += usd

    def avoidable_share(self) -> float | None:
        """The part of the cost that is avoidable; None if a part of it is unknown."""
        total = self.avoidable + self.committed + self.unknown
        return None if self.unknown or not total else self.avoidable / total


class WorkloadHourlySeries(Struct):
    """One workload. Each array has a figure for every hour of the look-back."""

    key: WorkloadKey
    held_gpu_hours: "array[float]"
    """Physical GPU-hours that its pods held."""
    observed_gpu_hours: "array[float]"
    """The GPU-hours with observed utilization."""
    used_gpu_hours: "array[float]"
    """The part of the observed GPU-hours that was used."""
    cost_usd: "array[float]"
    """Cost of the held GPU-hours."""
    non_spot_gpu_hours: "array[float]"
    """Physical GPU-hours held on anything but spot."""
    pod_counts: "array[int]"
    """Pods that held GPUs in the hour, for any time."""
    busiest_pod_utilization: "array[float]"
    """Mean utilization of its busiest pod in the hour; -1 without samples."""
    gpus_per_pod: float = 0.0
    """The largest number of physical GPUs that any of its pods held."""
    units_per_pod: int = 0
    gpu_share: float = 1.0
    """Physical GPUs per unit."""
    is_unpriced: "array[int]" = field(default_factory=lambda: array("b"))
    """1 for hours in which a part of it has no price. Amounts leave them out."""
    unpriced_gpu_hours: float = 0.0
    spend: SpendByAvoidability = field(default_factory=SpendByAvoidability)
    memory_peak_bytes: float = 0.0
    """The largest GPU memory that any of its pods used, in bytes, as far as it was observed."""
    interruptible_gpu_hours: float = 0.0
    """GPU-hours of pods with the label `gpucost/interruptible: "true"`."""
    uninterruptible_gpu_hours: float = 0.0
    """GPU-hours of pods with the label `gpucost/interruptible: "false"`."""
    memory_observed_gpu_hours: float = 0.0
    """GPU-hours of pods with observed GPU memory on that day."""
    gpu_millihours_by_pool: Counter[PoolKey] = field(default_factory=Counter)
    """Thousandths of GPU-hours by pool."""
    last_held_index: int = 0
    """Index of the newest hour in which it held GPUs."""
    latencies: dict[int, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """(Requests, p95 latency in seconds) of its pods by name, by hour; only of pods with requests."""

    def max_concurrent_pods(self) -> int:
        """The largest number of pods at one time. `pod_counts` counts a pod and its replacement in one hour as two."""
        if not self.gpus_per_pod:
            return max(self.pod_counts)
        return max(1, min(max(self.pod_counts), max(round(held / self.gpus_per_pod) for held in self.held_gpu_hours)))


class PoolHourlySeries(Struct):
    """One pool of equal nodes. Each array has a figure for every hour of the look-back."""

    key: PoolKey
    node_counts: "array[int]"
    capacity_gpu_hours: "array[float]"
    """Physical GPU-hours."""
    unallocated_gpu_hours: "array[float]"
    cost_usd: "array[float]"
    """USD of the whole nodes."""
    busy_nodes: "array[int]"
    """Nodes on which a pod held GPUs, for any time."""
    pod_sizes: list[tuple[tuple[float, int], ...]]
    """By hour: (physical GPUs of a pod, number of such pods), largest first."""
    is_unpriced: "array[int]"
    """1 for hours in which one of its nodes has no price. Amounts leave them out."""
    is_billed: "array[int]"
    """1 for hours whose price comes from the bill."""
    could_show_commitment: "array[int]"
    """1 for hours whose price would show a commitment."""
    spend: SpendByAvoidability = field(default_factory=SpendByAvoidability)


class LookBack:
    """Collects the hours of one cluster.

    Args:
        cluster: the cluster's name.
        start: the first hour.
        hours: number of hours.
    """

    def __init__(self, cluster: str, start: datetime, hours: int) -> None:
        self.cluster = cluster
        self.start = start
        self.hours = hours
        self.has_figures = array("b", bytes(hours))
        """1 for hours that have figures."""
        self.workloads: dict[WorkloadKey, WorkloadHourlySeries] = {}
        self.pools: dict[PoolKey, PoolHourlySeries] = {}
        self.list_prices: dict[str, float] = {}
        """USD per node-hour by instance type, as far as a price list is known."""
        self.built_in_price_regions: dict[str, set[str]] = {}
        """Regions of the nodes that were charged at the built-in list prices, by instance type."""
        self.spot_prices: dict[str, SpotPrice] = {}
        """Spot prices of these hours by instance type, as far as they were fetched."""
        self.reserved_prices: dict[str, ReservedPrice] = {}
        """Prices of reserved capacity by instance type, from the settings' rates."""
        self.memory_peaks: dict[datetime, Mapping[tuple[str, str], float]] = {}
        """GPU memory peaks in bytes by UTC day and pod (namespace, name). Set them before adding hours."""
        self.currencies: set[str] = set()
        self.disruption = KarpenterDisruption({}, {})
        self.time_zone: ZoneInfo | None = None
        """The time zone of schedules; None for UTC."""
        self.waits: dict[datetime, Sequence[PodWait]] = {}
        """Waits by UTC day, for days with metrics."""
        self.latencies: dict[datetime, dict[tuple[str, str], tuple[float, float]]] = {}
        """(Requests, p95 latency in seconds) by hour and pod (namespace, name)."""
        self.is_part_of_server: Callable[[str], bool] = lambda _: False
        """Whether a workload, by its name, only computes prompts or generates tokens for others."""
        self.run_hours: dict[str, float] = {}
        """Hours for which pods that had waited then held their GPUs, by uid."""

    def priced_hour_indexes(self, unpriced: Sequence[int], first: int = 0) -> list[int]:
        """Indexes of the hours that have figures and are completely priced. All amounts are based on them.

        Args:
            unpriced: 1 for hours in which a part of the subject has no price.
            first: index of the first hour that counts.
        """
        return [index for index in range(first, self.hours) if self.has_figures[index] and not unpriced[index]]

    def hour_at(self, index: int) -> datetime:
        """The start of the hour with an index."""
        return self.start + HOUR * index

    def add_waits(self, waits: Mapping[datetime, Sequence[PodWait]]) -> None:
        """Add the pods that waited. Call it before adding hours, which then show how long each pod ran."""
        self.waits.update(waits)
        self.run_hours.update((wait.uid, 0.0) for day in waits.values() for wait in day)

    def add_latencies(self, days: Mapping[datetime, Sequence[PodLatency]]) -> None:
        """Add the latency of requests. Call it before adding hours, which then assign it to workloads."""
        for day, pods in days.items():
            for pod in pods:
                for hour, requests, p95 in pod.hours:
                    self.latencies.setdefault(day + HOUR * hour, {})[pod.namespace, pod.pod] = requests, p95

    def add_hour(self, hour: datetime, lines: Iterable[CompactLine], nodes: Iterable[NodeHour], currency: str) -> None:
        """Add an hour that has figures."""
        index = (hour - self.start) // HOUR
        self.has_figures[index] = 1
        self.currencies.add(currency)
        lines, pool_of = list(lines), {}
        for node in nodes:
            pool_of[node.node] = self._add_node(index, node)
        uids: dict[WorkloadKey, set[str]] = {}
        memory = self.memory_peaks.get(floor_day(hour), {})
        latencies = self.latencies.pop(hour, {})
        held: dict[PoolKey, Counter[float]] = {}
        for node_name in {line.node for line in lines}:
            if node_name in pool_of:
                pool_of[node_name].busy_nodes[index] += 1
        for line in lines:
            history = self._workload(line)
            self._add_line(index, history, line)
            peak = memory.get((line.namespace, line.pod))
            if peak is not None:
                history.memory_peak_bytes = max(history.memory_peak_bytes, peak)
                history.memory_observed_gpu_hours += line.allocated_gpu_hours
            if latencies and (latency := latencies.get((line.namespace, line.pod))) is not None:
                history.latencies.setdefault(index, {})[line.pod] = latency
            seen_uids = uids.setdefault(history.key, set())
            pool = pool_of.get(line.node)
            if pool is not None:
                history.gpu_millihours_by_pool[pool.key] += round(1000 * line.allocated_gpu_hours)
                if line.uid not in seen_uids:
                    held.setdefault(pool.key, Counter())[round(line.units * line.gpu_share, 6)] += 1
            seen_uids.add(line.uid)
            if line.uid in self.run_hours and line.units * line.gpu_share > 0:
                self.run_hours[line.uid] += line.allocated_gpu_hours / (line.units * line.gpu_share)
        for key, pod_uids in uids.items():
            self.workloads[key].pod_counts[index] = len(pod_uids)
        for pool_key, sizes in held.items():
            self.pools[pool_key].pod_sizes[index] = tuple(sorted(sizes.items(), reverse=True))

    def drop_oldest_workloads(self, limit: int) -> int:
        """Drop a quarter of the workloads, those that ended longest ago, if there are more than `limit`.

        Each workload needs the same memory, however short it ran. Where every pod is a workload of its own, there are
        thousands per day. Ended workloads get no recommendation.

        Returns:
            The number of workloads that were dropped.
        """
        if len(self.workloads) <= limit:
            return 0
        oldest = sorted(self.workloads, key=lambda key: (self.workloads[key].last_held_index, key))
        dropped = oldest[: len(oldest) - limit * 3 // 4]
        for key in dropped:
            del self.workloads[key]
        return len(dropped)

    def _workload(self, line: CompactLine) -> WorkloadHourlySeries:
        key = WorkloadKey(
            line.shared_from or line.business_unit,
            line.namespace,
            line.workload_kind or "Pod",
            line.workload or line.pod,
            line.resource,
            line.gpu_model,
        )
        history = self.workloads.get(key)
        if history is None:
            hours = self.hours
            history = self.workloads[key] = WorkloadHourlySeries(
                key,
                _zero_per_hour(hours),
                _zero_per_hour(hours),
                _zero_per_hour(hours),
                _zero_per_hour(hours),
                _zero_per_hour(hours),
                array("l", bytes(array("l").itemsize * hours)),
                array("d", [-1.0]) * hours,
                is_unpriced=array("b", bytes(hours)),
            )
        return history

    def _add_line(self, index: int, history: WorkloadHourlySeries, line: CompactLine) -> None:
        held = line.allocated_gpu_hours
        history.held_gpu_hours[index] += held
        history.last_held_index = index
        if line.utilization_source in MEASURED_SOURCES:  # others are averages over a node or cluster
            history.observed_gpu_hours[index] += held - line.unmeasured_gpu_hours
            history.used_gpu_hours[index] += line.effective_gpu_hours or 0.0
            if line.utilization is not None:
                history.busiest_pod_utilization[index] = max(history.busiest_pod_utilization[index], line.utilization)
        if line.capacity_type != "spot":
            history.non_spot_gpu_hours[index] += held
        if line.labels and isinstance(line.labels, Mapping):
            interruptible_label = line.labels.get(INTERRUPTIBLE_LABEL, "").lower()
            history.interruptible_gpu_hours += held if interruptible_label == "true" else 0.0
            history.uninterruptible_gpu_hours += held if interruptible_label == "false" else 0.0
        history.gpu_share = line.gpu_share
        if line.units * history.gpu_share > history.gpus_per_pod:
            history.gpus_per_pod, history.units_per_pod = line.units * history.gpu_share, line.units
        if line.allocated_usd is None:
            history.is_unpriced[index] = 1
            history.unpriced_gpu_hours += held
        else:
            history.cost_usd[index] += line.allocated_usd
            history.spend.add(line.allocated_usd, line.capacity_type, line.price_source)

    def _add_node(self, index: int, node: NodeHour) -> PoolHourlySeries:
        key = PoolKey(node.node_pool, node.instance_type, node.capacity_type, node.gpu_model)
        history = self.pools.get(key)
        if history is None:
            hours = self.hours
            history = self.pools[key] = PoolHourlySeries(
                key,
                array("l", bytes(array("l").itemsize * hours)),
                _zero_per_hour(hours),
                _zero_per_hour(hours),
                _zero_per_hour(hours),
                array("l", bytes(array("l").itemsize * hours)),
                [()] * hours,
                array("b", bytes(hours)),
                array("b", bytes(hours)),
                array("b", bytes(hours)),
            )
        history.node_counts[index] += 1
        history.capacity_gpu_hours[index] += node.capacity.capacity_gpu_hours / SCALE
        history.unallocated_gpu_hours[index] += node.capacity.unallocated_gpu_hours / SCALE
        cost = node.capacity.node_cost_usd / SCALE
        history.cost_usd[index] += cost
        history.spend.add(cost, node.capacity_type, node.price_source)
        if node.price_source == "list-price":
            self.built_in_price_regions.setdefault(node.instance_type, set()).add(region_of(node.zone))
        history.is_unpriced[index] |= not node.price_source
        history.is_billed[index] |= node.price_source == "cur"
        history.could_show_commitment[index] |= node.price_source in _COMMITMENT_SOURCES
        return history


def first_and_last_positive(figures: Sequence[float]) -> tuple[int, int] | None:
    """The first and last index with a figure above 0; None if there is none."""
    first = next((index for index, figure in enumerate(figures) if figure > 0), None)
    if first is None:
        return None
    last = next(index for index in range(len(figures) - 1, -1, -1) if figures[index] > 0)
    return first, last
