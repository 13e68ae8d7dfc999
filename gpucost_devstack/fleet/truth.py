"""The true figures of a scenario's hours. They are computed without series and without code of `gpucost`.

Amounts are GPU-hours of physical GPUs, exact, as the sum over instants (`instants`). Each has a
tolerance: how far off an observer may be who only sees scrapes (`bounds`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction

from gpucost_devstack.fleet.bounds import ObservationBounds, Span, minutes_in, overlap, split_at, subtract
from gpucost_devstack.fleet.instants import ZERO, DeviceUse, GpusByState, PodAllocation, allocations, gpus_by_state
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
        self._exposes_capacity = any(instance.capacity for instance in scenario.ksm)

    def compute(self) -> TrueHour:
        totals = TrueHour(lines=[line for line in map(self._line, self._visible) if line is not None])
        for node in self._scenario.nodes:
            self._add_node(node, totals)
        return totals

    # Pods

    def _line(self, allocation: PodAllocation) -> TrueLine | None:
        span = overlap((allocation.start, allocation.end), self._window)
        edge_minutes = sum(
            (
                self._bounds.start_bound(sharer) + self._bounds.end_bound(sharer)
                for sharer in self._device_use.claim_sharers(allocation)
            ),
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
        observed_spans = subtract(running, self._bounds.unobserved_use(allocation.node)) if source != "none" else []
        if not observed_spans:
            unmeasured = ToleratedAmount(self._gpu_minutes(allocation, running) / 60, bound)
            return TrueLine(
                allocation.pod,
                allocation.resource,
                allocation.units,
                share,
                "none",
                allocated,
                None,
                unmeasured,
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
            ToleratedAmount(used / 60, bound),
            unmeasured,
            observed_gpu_hours=observed_gpu_minutes / 60,
        )

    def _gpu_minutes(self, allocation: PodAllocation, span: Span) -> Fraction:
        """GPU-minutes that a pod holds in a span."""
        sharers = self._device_use.claim_sharers(allocation)
        edges = {edge for sharer in sharers for edge in (sharer.start, sharer.end)}
        return sum(
            (self._device_use.held_gpus(allocation, start) * (end - start) for start, end in split_at(span, edges)),
            ZERO,
        )

    def _utilization_source(self, allocation: PodAllocation) -> str:
        expected = self._scenario.utilization_source_by_pod.get(allocation.pod.name)
        exporters = self._scenario.dcgm if allocation.node.has_dcgm else self._scenario.accelerators
        has_no_exporter = exporters is None and allocation.node.vendor != "neuron"
        if expected or has_no_exporter or not allocation.device_indices:
            return expected or "none"
        is_claim_shared = any(
            minutes_in(overlap((allocation.start, allocation.end), (sharer.start, sharer.end), self._window))
            for sharer in self._device_use.claim_sharers(allocation)
            if sharer is not allocation
        )
        return "shared" if allocation.geometry.replicas > 1 or is_claim_shared else "pod"

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
            allocation.geometry.replicas == 1
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

    def _add_node(self, node: Node, totals: TrueHour) -> None:
        lifetime = overlap(node.lifetime, self._window)
        allocated = [allocation for allocation in self._visible if allocation.node is node]
        changes = sorted({Fraction(at) for at in self._allocation_change_times(node, allocated)})
        amounts = dict.fromkeys(_STATES, ZERO)
        for start, end in split_at(lifetime, changes):
            instant_parts = self._gpus_by_state_at(node, allocated, start)
            for part in _STATES:
                amounts[part] += getattr(instant_parts, part) * (end - start) / 60
        bounds = self._state_bounds(node, allocated, changes)
        if not amounts["excess"]:
            bounds["excess"] = ZERO  # without a contradiction there is no residual, however short a handover is
        for part in _STATES:
            if part != "held":
                setattr(totals, part, getattr(totals, part) + ToleratedAmount(amounts[part], bounds[part] / 60))
        lifetime_bound = sum((self._bounds.edge_bound(at) for at in node.lifetime), ZERO) if node.gpus else ZERO
        totals.capacity += ToleratedAmount(node.gpus * minutes_in(lifetime) / 60, node.gpus * lifetime_bound / 60)

    def _allocation_change_times(self, node: Node, allocated: Sequence[PodAllocation]) -> Iterator[Minutes]:
        yield from (edge for allocation in allocated for edge in (allocation.start, allocation.end))
        yield from (edge for gap in self._bounds.long_gaps for edge in gap)
        yield from (edge for geometry in node.geometries for edge in geometry.lifetime)
        yield from node.lifetime

    def _gpus_by_state_at(
        self, node: Node, allocated: Iterable[PodAllocation], at: Fraction, *, toggled: PodAllocation | None = None
    ) -> GpusByState:
        """A node's parts at an instant; with `toggled`, as if one pod's allocation were reversed."""
        if not node.lifetime[0] <= at < node.lifetime[1]:
            return GpusByState()
        holding = [allocation for allocation in allocated if allocation.is_allocated(at) != (allocation is toggled)]
        held_gpus = ZERO
        for allocation in holding:
            sharers = self._device_use.claim_sharers(allocation)
            held_gpus += allocation.gpus / sum(other in sharers for other in holding)
        return gpus_by_state(
            node, at, held_gpus, is_unobserved=self._bounds.is_unobserved(at), exposes_capacity=self._exposes_capacity
        )

    def _state_bounds(
        self, node: Node, allocated: Sequence[PodAllocation], changes: Sequence[Fraction]
    ) -> dict[str, Fraction]:
        """GPU-minutes by which each part may be off: the height of every step times the bound of its time."""
        bounds = dict.fromkeys(_STATES, ZERO)
        instant = Fraction(1, 10**6)
        for at in changes:
            before, after = (self._gpus_by_state_at(node, allocated, side) for side in (at - instant, at))
            changed = {
                id(allocation): allocation for allocation in allocated if at in (allocation.start, allocation.end)
            }
            for allocation in changed.values():
                minutes = (
                    self._bounds.start_bound(allocation)
                    if at == allocation.start
                    else self._bounds.end_bound(allocation)
                )
                for part in _STATES:
                    heights = (
                        abs(
                            getattr(self._gpus_by_state_at(node, allocated, side, toggled=allocation), part)
                            - getattr(parts_then, part)
                        )
                        for side, parts_then in ((at - instant, before), (at, after))
                    )
                    bounds[part] += max(heights) * minutes
            if not changed or at in {Fraction(edge) for edge in self._allocation_change_times(node, ())}:
                for part in _STATES:
                    bounds[part] += abs(getattr(after, part) - getattr(before, part)) * self._bounds.edge_bound(at)
        return bounds


_STATES = tuple(part.name for part in fields(GpusByState))
