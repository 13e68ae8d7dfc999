"""The power of a scenario's GPUs, and what dcgm-exporter exposes of it.

As in dcgm-exporter 4.6.0, the energy counter counts millijoules since the driver was loaded, power is in watts, and
both are those of the whole GPU: each MIG device and each copy of a shared device's series has the same value. From 4.9
on, another counter counts joules.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise

from gpucost_devstack.fleet.instants import DeviceUse, allocations
from gpucost_devstack.fleet.scenario import Exporter, Minutes, Node, Scenario

ENERGY_COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
JOULES_COUNTER = "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"
POWER_GAUGE = "DCGM_FI_DEV_POWER_USAGE"
_COUNTED_BEFORE = 7_000_000_123
"""Millijoules that a driver had counted before the scenario starts."""
_MINUTES_BEFORE = 10


class GpuPower:
    """The power of one GPU over a scenario: idle power, and a part in proportion to the mean use of its devices."""

    def __init__(self, scenario: Scenario, exporter: Exporter, node: Node, gpu: int) -> None:
        start, end = Fraction(scenario.start) - _MINUTES_BEFORE, Fraction(scenario.end)
        device_use = DeviceUse(scenario, allocations(scenario))
        edges = {start, end}
        for pod in (pod for pod in scenario.pods if pod.node is node):
            times = [*pod.run_interval, *(since for curve in (pod.use_by_device or [pod.use]) for since, _ in curve)]
            edges |= {Fraction(time) for time in times if start < time < end}
        edges |= {Fraction(time) for geometry in node.geometries for time in geometry.lifetime if start < time < end}
        self._starts: list[Fraction] = []
        self._watts: list[Fraction] = []
        self._joules: list[Fraction] = []
        """Drawn from the first start to each start."""
        total = Fraction(0)
        for since, until in pairwise(sorted(edges)):
            geometry = node.geometry_at(since)
            devices = [index for index, device in enumerate(geometry.devices if geometry else ()) if device.gpu == gpu]
            use = sum((device_use.utilization(node, index, since) for index in devices), Fraction(0))
            watts = exporter.idle_watts + (exporter.full_watts - exporter.idle_watts) * use / max(1, len(devices))
            self._starts.append(since)
            self._watts.append(watts)
            self._joules.append(total)
            total += watts * (until - since) * 60

    @property
    def start(self) -> Fraction:
        """The first time at which the power is known."""
        return self._starts[0]

    @property
    def change_times(self) -> list[Fraction]:
        """The times at which the power may change."""
        return self._starts[1:]

    def watts_at(self, at: Minutes) -> Fraction:
        """The power at a time."""
        return self._watts[bisect_right(self._starts, at) - 1]

    def joules(self, start: Minutes, end: Minutes) -> Fraction:
        """The energy drawn between two times."""
        return self._drawn_until(end) - self._drawn_until(start)

    def _drawn_until(self, at: Minutes) -> Fraction:
        index = bisect_right(self._starts, at) - 1
        return self._joules[index] + self._watts[index] * (Fraction(at) - self._starts[index]) * 60


def gpu_powers(scenario: Scenario, exporter: Exporter, node: Node) -> dict[int, GpuPower]:
    """The power of each GPU of which the DCGM exporter exposes the energy or the power."""
    if not exporter.energy_metrics or not node.has_dcgm or node.name in exporter.nodes_without_energy:
        return {}
    gpus = {device.gpu for geometry in node.geometries for device in geometry.devices}
    return {gpu: GpuPower(scenario, exporter, node, gpu) for gpu in gpus}


def readers(exporter: Exporter, gpu: GpuPower | None) -> Mapping[str, Callable[[Fraction], str]]:
    """The exposed metrics of a GPU, each with the value at a time."""
    if gpu is None:
        return {}

    def millijoules(at: Fraction) -> int:
        return round(1000 * gpu.joules(*_counted_interval(exporter, gpu, at))) + _base(exporter, at)

    of_metric: Mapping[str, Callable[[Fraction], str]] = {
        ENERGY_COUNTER: lambda at: str(millijoules(at)),
        JOULES_COUNTER: lambda at: str(millijoules(at) // 1000),
        "DCGM_FI_DEV_BOARD_POWER_WATTS": lambda at: f"{float(gpu.watts_at(at)):.6f}",
        POWER_GAUGE: lambda at: f"{float(gpu.watts_at(at)):.6f}",
    }
    return {metric: of_metric[metric] for metric in exporter.energy_metrics}


def _counted_interval(exporter: Exporter, gpu: GpuPower, at: Fraction) -> tuple[Fraction, Fraction]:
    return max([gpu.start, *(Fraction(load) for load in exporter.driver_loads if load <= at)]), at


def _base(exporter: Exporter, at: Fraction) -> int:
    return 0 if any(load <= at for load in exporter.driver_loads) else _COUNTED_BEFORE
