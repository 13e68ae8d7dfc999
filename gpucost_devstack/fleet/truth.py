"""The true figures of a scenario's hours. They are computed without series and without code of `gpucost`.

Amounts are GPU-hours of physical GPUs, exact, as the sum over instants (`instants`). Each has a
tolerance: how far off an observer may be who only sees scrapes (`bounds`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction

from gpucost_devstack.fleet.bounds import ObservationBounds, Span, minutes_in, overlap, split_at, subtract
from gpucost_devstack.fleet.instants import (
    ZERO,
    DeviceUse,
    GpusByState,
    PodAllocation,
    allocations,
    gpus_by_state,
    model_of,
    stranded_of_partitions,
)
from gpucost_devstack.fleet.scenario import Minutes, Node, Pod, Scenario


@dataclass(frozen=True)
class ToleratedAmount:
    """An exact amount, and the tolerance for a measured one."""

    value: Fraction
    tolerance: Fraction = ZERO

    def __add__(self, other: "ToleratedAmount") -> "ToleratedAmount":
        return ToleratedAmount(self.value + other.value, self.tolerance + other.tolerance)


ZERO_AMOUNT = ToleratedAmount(ZERO)


@dataclass(frozen=True)
class TrueLine:
    """The true usage of one pod and resource in an hour."""

    pod: Pod
    resource: str
    units: int
    gpu_share: ToleratedAmount
    """The mean over the time held."""
    utilization_source: str
    allocated_gpu_hours: ToleratedAmount
    effective_gpu_hours: ToleratedAmount | None
    """None if no scrape shows any use."""
    unmeasured_gpu_hours: ToleratedAmount
    observed_gpu_hours: Fraction = ZERO
    """Held while scrapes show its use."""

    @property
    def may_be_missing(self) -> bool:
        """Whether the allocation is so short that scrapes may miss it."""
        return self.allocated_gpu_hours.value <= self.allocated_gpu_hours.tolerance


@dataclass
class TrueHour:
    """The true figures of one cluster-hour."""

    lines: list[TrueLine] = field(default_factory=list)
    capacity: ToleratedAmount = ZERO_AMOUNT
    unallocated: ToleratedAmount = ZERO_AMOUNT
    stranded: ToleratedAmount = ZERO_AMOUNT
    unobserved: ToleratedAmount = ZERO_AMOUNT
    excess: ToleratedAmount = ZERO_AMOUNT
    """Held beyond the GPUs that exist."""


def true_hour(scenario: Scenario, number: int) -> TrueHour:
    """The true figures of one hour, by its number from the base."""
    return _TrueHourBuilder(scenario, number).compute()


class _TrueHourBuilder:
    def __init__(self, scenario: Scenario, number: int) -> None:
        self._scenario = scenario
        self._window: Span = (Fraction(60 * number), Fraction(60 * number + 60))
        self._bounds = ObservationBounds(scenario, self._window)
        allocated = allocations(scenario)
        self._device_use = DeviceUse(scenario, allocated)
        self._visible = [allocation for allocation in allocated if not self._bounds.is_invisible(allocation)]
        self._shows_fractions = all(instance.pod_annotations and instance.pod_labels for instance in scenario.ksm)
        self._shows_groups = all(instance.pod_labels for instance in scenario.ksm)
        self._exposes_capacity = any(instance.capacity for instance in scenario.ksm)

    def compute(self) -> TrueHour:
        of_pods = [allocation for allocation in self._visible if not allocation.pod.reserves]
        if not self._shows_fractions:
            of_pods = [allocation for allocation in of_pods if not allocation.is_fraction]
        totals = TrueHour(lines=[line for line in map(self._line, of_pods) if line is not None])
        domains: dict[str, list[Node]] = {}
        for node in self._scenario.nodes:
            is_in_domain = node.clique and self._scenario.minimum_job_gpus
            domains.setdefault(f"domain {node.clique}" if is_in_domain else f"node {id(node)}", []).append(node)
        for nodes in domains.values():
            self._add_nodes(nodes, totals)
        return totals

    # Pods

    def _line(self, allocation: PodAllocation) -> TrueLine | None:
        span = overlap((allocation.start, allocation.end), self._window)
        edge_minutes = sum(
            (self._bounds.start_bound(sharer) + self._bounds.end_bound(sharer) for sharer in self._sharers(allocation)),
            ZERO,
        )
        bound = allocation.gpus * edge_minutes / 60
        if not minutes_in(span) and (not bound or allocation.start >= allocation.end):
            return None
        held_minutes = self._gpu_minutes(allocation, span)
        allocated = ToleratedAmount(held_minutes / 60, bound)
        share = ToleratedAmount(allocation.share)
        if held_minutes != allocation.gpus * minutes_in(span):
            mean = held_minutes / allocation.units / minutes_in(span)
            share = ToleratedAmount(mean, edge_minutes / minutes_in(span))
        running = overlap((allocation.running_from, allocation.end), self._window)
        source = self._utilization_source(allocation)
        bound = allocation.gpus * self._use_bound(allocation) / 60
        unobserved = self._bounds.unobserved_use(allocation.node)
        if source == "process":
            unobserved += self._bounds.unknown_uid_times(allocation.pod)
        observed_spans = subtract(running, unobserved) if source != "none" else []
        if not observed_spans:
            unmeasured = ToleratedAmount(self._gpu_minutes(allocation, running) / 60, bound)
            return TrueLine(
                allocation.pod, allocation.resource, allocation.units, share, "none", allocated, None, unmeasured
            )
        observed = sum(map(minutes_in, observed_spans), ZERO)
        used = sum(
            (self._observed_use(allocation, index, observed_spans, observed) for index in allocation.device_indices),
            ZERO,
        )
        observed_gpu_minutes = sum((self._gpu_minutes(allocation, piece) for piece in observed_spans), ZERO)
        unmeasured = ToleratedAmount((self._gpu_minutes(allocation, running) - observed_gpu_minutes) / 60, bound)
        return TrueLine(
            allocation.pod,
            allocation.resource,
            allocation.units,
            share,
            source,
            allocated,
            ToleratedAmount(used / 60, max(bound, self._highest_use(allocation) * self._use_bound(allocation) / 60)),
            unmeasured,
            observed_gpu_hours=observed_gpu_minutes / 60,
        )

    def _gpu_minutes(self, allocation: PodAllocation, span: Span) -> Fraction:
        """GPU-minutes that a pod holds in a span."""
        sharers = self._sharers(allocation)
        edges = {edge for sharer in sharers for edge in (sharer.start, sharer.end)}
        return sum(
            (self._device_use.held_gpus(allocation, start) * (end - start) for start, end in split_at(span, edges)),
            ZERO,
        )

    def _sharers(self, allocation: PodAllocation) -> list[PodAllocation]:
        """The allocations that change what a pod holds: of its claim, and of a GPU's partitions that exceed the GPU."""
        neighbors = self._device_use.partition_neighbors(allocation)
        edges = {edge for neighbor in neighbors for edge in (neighbor.start, neighbor.end)}
        exceeds = any(self._device_use.partition_factor(allocation, edge) < 1 for edge in edges)
        return neighbors if exceeds else self._device_use.claim_sharers(allocation)

    def _utilization_source(self, allocation: PodAllocation) -> str:
        expected = self._scenario.utilization_source_by_pod.get(allocation.pod.name)
        exporters = self._scenario.dcgm if allocation.node.has_dcgm else self._scenario.accelerators
        has_no_exporter = exporters is None and allocation.node.vendor != "neuron"
        if expected or has_no_exporter or not allocation.device_indices:
            return expected or "none"
        if allocation.is_fraction:
            return "shared"
        if allocation.geometry.vgpus_per_gpu:
            if self._device_use.is_measured_by_container(allocation) or allocation.share == 1:
                return "pod"
            return "shared" if self._scenario.hami is not None or allocation.node.gpus == 1 else "none"
        is_claim_shared = any(
            minutes_in(overlap((allocation.start, allocation.end), (sharer.start, sharer.end), self._window))
            for sharer in self._device_use.claim_sharers(allocation)
            if sharer is not allocation
        )
        if allocation.geometry.replicas == 1:
            return "shared" if is_claim_shared else "pod"
        running = overlap((allocation.running_from, allocation.end), self._window)
        measured = [
            piece
            for piece in split_at(running, self._use_change_times(allocation))
            if self._device_use.is_measured_by_process(allocation, piece[0])
        ]
        is_whole = sum(map(minutes_in, measured), ZERO) == minutes_in(running)
        return "process" if measured and (is_whole or "shared" not in self._scenario.sources) else "shared"

    def _observed_use(
        self, allocation: PodAllocation, device_index: int, observed_spans: Iterable[Span], observed: Fraction
    ) -> Fraction:
        """GPU-minutes used of one device in the time that scrapes cover, at most the GPUs that the pod holds of it."""
        changes = self._use_change_times(allocation)
        spans = [piece for span in observed_spans for piece in split_at(span, changes)]
        used = sum(
            (self._device_use.used_gpus(allocation, device_index, start) * (end - start) for start, end in spans), ZERO
        )
        return min(used, self._device_use.allocated_gpus(allocation, device_index) * observed)

    def _highest_use(self, allocation: PodAllocation) -> Fraction:
        """The most that a pod with fractions uses at once: its part of a GPU's use may exceed what it holds of it."""
        if not allocation.is_fraction and not allocation.geometry.vgpus_per_gpu:
            return ZERO
        times = {Fraction(at) for at in self._use_change_times(allocation)} | {self._window[0]}
        uses = (
            sum((self._device_use.used_gpus(allocation, index, at) for index in allocation.device_indices), ZERO)
            for at in times
            if allocation.is_running(at)
        )
        return max(uses, default=ZERO)

    def _use_change_times(self, allocation: PodAllocation) -> set[Minutes]:
        """Times at which the use of a pod's devices may change."""
        changes: set[Minutes] = set()
        for sharer in {
            id(sharer): sharer
            for index in allocation.device_indices
            for sharer in self._device_use.allocations_of_device(allocation.node, index)
        }.values():
            changes |= {sharer.running_from, sharer.end}
            changes |= {since for curve in (sharer.pod.use_by_device or [sharer.pod.use]) for since, _ in curve}
            changes |= {edge for unknown in self._bounds.unknown_uid_times(sharer.pod) for edge in unknown}
        for sharer in self._sharers(allocation):
            changes |= {sharer.start, sharer.end}
        return changes

    def _use_bound(self, allocation: PodAllocation) -> Fraction:
        """Minutes by which a pod's measured use may be off: the bounds of all edges, and of the exporter's outages."""
        interval = self._bounds.device_interval(allocation.node)
        running = overlap((allocation.running_from, allocation.end), self._window)
        bound = self._bounds.running_bound(allocation, interval) + self._bounds.end_bound(allocation, interval)
        for at in self._use_change_times(allocation) - {allocation.running_from, allocation.end}:
            if allocation.running_from < at < allocation.end:
                bound += self._bounds.edge_bound(at, interval=interval)
        bound += sum(
            (self._unseen_sharer_bound(allocation, other) for other in self._visible if other is not allocation), ZERO
        )
        return bound + self._bounds.outage_bound(allocation.node, running)

    def _unseen_sharer_bound(self, allocation: PodAllocation, other: PodAllocation) -> Fraction:
        """Minutes of a sharer that ran too briefly for any scrape to show on which device."""
        if (
            (allocation.geometry.replicas == 1 and not allocation.is_fraction)
            or other.node is not allocation.node
            or not minutes_in((other.running_from, other.end))
        ):
            return ZERO
        running = overlap((other.running_from, other.end), self._window)
        observed = sum(map(minutes_in, subtract(running, self._bounds.unobserved_use(allocation.node))), ZERO)
        if observed > self._bounds.device_interval(allocation.node) or (minutes_in(running) and not observed):
            return ZERO
        return observed + self._bounds.edge_bound(other.running_from) + self._bounds.edge_bound(other.end)

    # Nodes

    def _add_nodes(self, nodes: Sequence[Node], totals: TrueHour) -> None:
        """Add a node, or all nodes of an NVLink domain, whose free GPUs count together."""
        allocated = [allocation for allocation in self._visible if any(allocation.node is node for node in nodes)]
        changes = sorted({Fraction(at) for node in nodes for at in self._allocation_change_times(node, allocated)})
        amounts = dict.fromkeys(_STATES, ZERO)
        for start, end in split_at(self._window, changes):
            instant_parts = self._state_at(nodes, allocated, start)
            for part in _STATES:
                amounts[part] += getattr(instant_parts, part) * (end - start) / 60
        bounds = self._state_bounds(nodes, allocated, changes)
        if not amounts["excess"]:
            bounds["excess"] = ZERO  # without a contradiction there is no residual, however short a handover is
        for part in _STATES:
            if part != "held":
                setattr(totals, part, getattr(totals, part) + ToleratedAmount(amounts[part], bounds[part] / 60))
        for node in nodes:
            gpus, lifetime = Fraction(node.gpus), overlap(node.lifetime, self._window)
            lifetime_bound = sum((self._bounds.edge_bound(at) for at in node.lifetime), ZERO) if gpus else ZERO
            totals.capacity += ToleratedAmount(gpus * minutes_in(lifetime) / 60, gpus * lifetime_bound / 60)

    def _allocation_change_times(self, node: Node, allocated: Sequence[PodAllocation]) -> Iterator[Minutes]:
        yield from (edge for allocation in allocated for edge in (allocation.start, allocation.end))
        yield from (edge for gap in self._bounds.long_gaps for edge in gap)
        yield from (edge for geometry in node.geometries for edge in geometry.lifetime)
        yield from node.lifetime

    def _state_at(
        self,
        nodes: Sequence[Node],
        allocated: Iterable[PodAllocation],
        at: Fraction,
        *,
        toggled: PodAllocation | None = None,
    ) -> GpusByState:
        """The parts of some nodes at an instant; with `toggled`, as if one pod's allocation were reversed."""
        states = [
            self._gpus_by_state_at(node, [held for held in allocated if held.node is node], at, toggled=toggled)
            for node in nodes
        ]
        total = {part: sum((getattr(state, part) for state in states), ZERO) for part in _STATES}
        minimum = self._scenario.minimum_job_gpus
        if nodes[0].clique and minimum and total["unallocated"] < minimum:
            total |= {"unallocated": ZERO, "stranded": total["stranded"] + total["unallocated"]}
        return GpusByState(**total)

    def _gpus_by_state_at(
        self, node: Node, allocated: Iterable[PodAllocation], at: Fraction, *, toggled: PodAllocation | None = None
    ) -> GpusByState:
        """A node's parts at an instant, apart from its NVLink domain's rule."""
        if not node.lifetime[0] <= at < node.lifetime[1]:
            return GpusByState()
        holding = [allocation for allocation in allocated if allocation.is_allocated(at) != (allocation is toggled)]
        held_gpus = ZERO
        disputed_gpus = ZERO
        for allocation in holding:
            if allocation.pod.reserves:
                disputed_gpus += allocation.gpus if self._is_disputed(allocation, holding) else ZERO
            elif self._shows_fractions or not allocation.is_fraction:
                held_gpus += self._device_use.held_gpus_among(allocation, holding)
        geometry = node.geometry_at(at)
        has_partitions = geometry is not None and geometry.serves_claims and any(d.profile for d in geometry.devices)
        stranded = stranded_of_partitions(model_of(node), geometry, holding) if geometry and has_partitions else ZERO
        return gpus_by_state(
            node,
            at,
            held_gpus,
            is_unobserved=self._bounds.is_unobserved(at),
            exposes_capacity=self._exposes_capacity,
            stranded_of_partitions=stranded,
            disputed=disputed_gpus,
        )

    def _is_disputed(self, reservation: PodAllocation, holding: Iterable[PodAllocation]) -> bool:
        """Whether pods may hold a GPU in unknown parts: nothing shows its pods, or nothing shows their fractions."""
        if self._shows_fractions or not self._shows_groups:
            return not self._shows_fractions
        return any(other.is_fraction and other.pod.groups == reservation.pod.groups for other in holding)

    def _state_bounds(
        self, nodes: Sequence[Node], allocated: Sequence[PodAllocation], changes: Sequence[Fraction]
    ) -> dict[str, Fraction]:
        """GPU-minutes by which each part may be off: the height of every step times the bound of its time.

        In an NVLink domain, changes that are observed in another order may move all free GPUs between two parts.
        """
        is_domain = bool(nodes[0].clique and self._scenario.minimum_job_gpus)
        bounds = dict.fromkeys(_STATES, ZERO)
        instant = Fraction(1, 10**6)
        for at in changes:
            before, after = (self._state_at(nodes, allocated, side) for side in (at - instant, at))
            if is_domain:
                free = max(state.unallocated + state.stranded for state in (before, after)) + sum(
                    (allocation.gpus for allocation in allocated if at in (allocation.start, allocation.end)), ZERO
                )
                for part in ("unallocated", "stranded"):
                    bounds[part] += free * self._bounds.edge_bound(at)
            changed = {
                id(allocation): allocation for allocation in allocated if at in (allocation.start, allocation.end)
            }
            for allocation in changed.values():
                minutes = (
                    self._bounds.start_bound(allocation)
                    if at == allocation.start
                    else self._bounds.end_bound(allocation)
                )
                if not minutes:
                    continue
                reversed_states = [
                    (state, self._state_at(nodes, allocated, side, toggled=allocation))
                    for side, state in ((at - instant, before), (at, after))
                ]
                for part in _STATES:
                    height = max(abs(getattr(other, part) - getattr(state, part)) for state, other in reversed_states)
                    bounds[part] += height * minutes
            if not changed or at in {
                Fraction(edge) for node in nodes for edge in self._allocation_change_times(node, ())
            }:
                for part in _STATES:
                    bounds[part] += abs(getattr(after, part) - getattr(before, part)) * self._bounds.edge_bound(at)
        return bounds


_STATES = tuple(part.name for part in fields(GpusByState))
