"""The true energy of a scenario's hours, in kWh: of each line, idle, and what cannot be attributed.

A GPU's energy of a time belongs to those that hold a part of the GPU then, in proportion to what they hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gpucost_devstack.fleet.bounds import (
    ObservationBounds,
    Span,
    is_aligned_with_scrapes,
    minutes_in,
    overlap,
    split_at,
    subtract,
)
from gpucost_devstack.fleet.instants import ZERO, DeviceUse, PodAllocation, allocations
from gpucost_devstack.fleet.power import ENERGY_COUNTER, JOULES_COUNTER, GpuPower, gpu_powers
from gpucost_devstack.fleet.scenario import Exporter, Minutes, Node, Scenario
from gpucost_devstack.fleet.truth import ZERO_AMOUNT, ToleratedAmount

JOULES_PER_KWH = 3_600_000
_LOOKBACK_MINUTES = 5
"""How far before the hour the counter's last sample may be."""
LineKey = tuple[str, str]
"""The pod's id and the resource."""


@dataclass
class TrueEnergy:
    """The true energy of one cluster-hour."""

    lines: dict[LineKey, ToleratedAmount] = field(default_factory=dict)
    """Of lines whose energy is measured."""
    device: ToleratedAmount = ZERO_AMOUNT
    idle: ToleratedAmount = ZERO_AMOUNT
    unattributed: ToleratedAmount = ZERO_AMOUNT


def true_energy(scenario: Scenario, number: int) -> TrueEnergy:
    """The true energy of one hour, by its number from the base."""
    window = (Fraction(60 * number), Fraction(60 * number + 60))
    energy = TrueEnergy()
    exporter = scenario.dcgm
    if exporter is None or "enabled: false" in scenario.settings:
        return energy
    builder = _EnergyBuilder(scenario, exporter, window, energy)
    for node in scenario.nodes:
        for gpu, power in gpu_powers(scenario, exporter, node).items():
            builder.add_gpu(node, gpu, power)
    return energy


class _EnergyBuilder:
    def __init__(self, scenario: Scenario, exporter: Exporter, window: Span, energy: TrueEnergy) -> None:
        self._scenario = scenario
        self._exporter = exporter
        self._window = window
        self._energy = energy
        self._bounds = ObservationBounds(scenario, window)
        self._allocations = allocations(scenario)
        self._device_use = DeviceUse(scenario, self._allocations)

    def add_gpu(self, node: Node, gpu: int, power: GpuPower) -> None:
        """Add one GPU's energy of the hour."""
        on_node = [allocation for allocation in self._allocations if allocation.node is node]
        shares = {index: share for index, share in ((i, self._share(a, gpu)) for i, a in enumerate(on_node)) if share}
        edges = {edge for allocation in on_node for edge in (allocation.start, allocation.end)}
        spans = [overlap(node.lifetime, self._window)]
        if not self._is_counter():
            spans = subtract(spans[0], self._bounds.unobserved_use(node))
        tolerance = ToleratedAmount(ZERO, self._tolerance(node, power, [on_node[index] for index in shares]))
        energy = self._energy
        energy.device += tolerance
        energy.idle += tolerance
        energy.unattributed += tolerance
        for index in shares:
            key = on_node[index].pod.id, on_node[index].resource
            if self._has_labels(node):
                energy.lines[key] = energy.lines.get(key, ZERO_AMOUNT) + tolerance
        for start, end in (piece for span in spans for piece in split_at(span, edges)):
            drawn = ToleratedAmount(power.joules(start, end) / JOULES_PER_KWH)
            energy.device += drawn
            holders = {index: share for index, share in shares.items() if on_node[index].is_allocated(start)}
            if not self._has_labels(node) and any(allocation.is_allocated(start) for allocation in on_node):
                energy.unattributed += drawn
            elif not holders:
                energy.idle += drawn
            for index, share in holders.items() if self._has_labels(node) else ():
                key = on_node[index].pod.id, on_node[index].resource
                energy.lines[key] += ToleratedAmount(drawn.value * share / sum(holders.values()))

    def _has_labels(self, node: Node) -> bool:
        """Whether it is known which pod holds which GPU of a node."""
        return self._exporter.maps_pods or node.gpus == 1

    def _share(self, allocation: PodAllocation, gpu: int) -> Fraction:
        """The part of a GPU that an allocation holds."""
        devices = allocation.geometry.devices
        return sum(
            (
                self._device_use.allocated_gpus(allocation, index)
                for index in {*allocation.device_indices}
                if devices[index].gpu == gpu
            ),
            ZERO,
        )

    def _tolerance(self, node: Node, power: GpuPower, holders: Sequence[PodAllocation]) -> Fraction:
        """The most kWh by which scrapes may misplace a GPU's energy: full power in the time of every change."""
        interval = self._bounds.device_interval(node)
        near = (self._window[0] - max(interval, Fraction(_LOOKBACK_MINUTES)), self._window[1] + interval)
        minutes = ZERO
        for holder in holders:
            minutes += self._bounds.start_bound(holder) + self._bounds.end_bound(holder, interval)
        changes: list[Minutes] = [*power.change_times, *node.lifetime]
        if not is_aligned_with_scrapes(self._scenario):
            minutes += sum((2 * interval for at in changes if near[0] < at < near[1]), ZERO)
        minutes += sum((interval for at in self._exporter.driver_loads if near[0] < at < near[1]), ZERO)
        has_changes = any(near[0] < at < near[1] for at in changes)
        for gap in self._bounds.unobserved_use(node):
            common = overlap(gap, near)
            is_inside = self._window[0] < gap[0] and gap[1] < self._window[1]
            if minutes_in(common) and (has_changes or not is_inside or not self._is_counter()):
                minutes += minutes_in(common) + 2 * interval
        return self._exporter.full_watts * minutes * 60 / JOULES_PER_KWH

    def _is_counter(self) -> bool:
        return not {ENERGY_COUNTER, JOULES_COUNTER}.isdisjoint(self._exporter.energy_metrics)
