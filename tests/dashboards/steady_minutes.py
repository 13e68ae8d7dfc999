"""A simulated cluster at a minute: the series that rules evaluate, and the true GPU amounts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.instants import DeviceUse, PodAllocation, allocations
from gpucost_devstack.fleet.scenario import Minutes, Scenario
from gpucost_devstack.fleet.scraping import MINUTE_MS
from tests.dashboards import promtool

STALENESS = Fraction(5)
"""Minutes for which Prometheus returns a sample."""
STEADY_FOR = Fraction(8)
"""Minutes without a change before a steady minute, because ends of series may be seen late."""


@dataclass(frozen=True)
class SteadyMinute:
    """A cluster at a minute at which nothing changes."""

    scenario: Scenario
    minute: Fraction

    def series(self) -> Iterator[dict[str, str]]:
        """Yield the samples of each instance's last scrape, in promtool's notation."""
        time_ms = self.minute * MINUTE_MS
        metrics = [
            series
            for series in openmetrics.series(self.scenario)
            if series.metric.startswith(("kube_", "DCGM_", "dcgm_"))
        ]
        last_scrapes: dict[str, int] = {}
        for series in openmetrics.series(self.scenario):
            times = [time for time, _ in series.samples if time_ms - STALENESS * MINUTE_MS < time <= time_ms]
            if times and series.metric != "up":
                instance = series.labels["instance"]
                last_scrapes[instance] = max(*times, last_scrapes.get(instance, times[0]))
        for series in metrics:
            last_scrape = last_scrapes.get(series.labels["instance"])
            value = None if last_scrape is None else dict(series.samples).get(last_scrape)
            if value is not None and not value.startswith("@"):
                yield promtool.series(
                    series.metric, {"cluster": self.scenario.name, **series.labels}, f"{value} {value}"
                )

    def held(self) -> Mapping[str, Fraction]:
        """Return the allocated physical GPUs by pod, without zeros."""
        devices = DeviceUse(self.scenario, allocations(self.scenario))
        gpus_by_pod: dict[str, Fraction] = {}
        for allocation in self._allocations():
            gpus = devices.held_gpus(allocation, self.minute)
            gpus_by_pod[allocation.pod.name] = gpus_by_pod.get(allocation.pod.name, Fraction(0)) + gpus
        return {pod: gpus for pod, gpus in gpus_by_pod.items() if gpus}

    def used(self) -> Mapping[str, Fraction]:
        """Return the used physical GPUs by pod, at most what it holds, without zeros."""
        devices = DeviceUse(self.scenario, allocations(self.scenario))
        gpus_by_pod: dict[str, Fraction] = {}
        for allocation in self._allocations():
            if (
                allocation.is_running(self.minute)
                and self.scenario.utilization_source_by_pod.get(allocation.pod.name) != "none"
            ):
                parts = (
                    min(devices.used_gpus(allocation, at, self.minute), devices.allocated_gpus(allocation, at))
                    for at in allocation.device_indices
                )
                gpus_by_pod[allocation.pod.name] = gpus_by_pod.get(allocation.pod.name, Fraction(0)) + sum(
                    parts, Fraction(0)
                )
        return {pod: gpus for pod, gpus in gpus_by_pod.items() if gpus}

    def _allocations(self) -> Iterator[PodAllocation]:
        yield from (allocation for allocation in allocations(self.scenario) if allocation.is_allocated(self.minute))


def find_steady_minute(scenario: Scenario) -> SteadyMinute | None:
    """Return a minute without outages and without changes shortly before it, or None."""
    change_times = sorted(_change_times(scenario))
    outages = list(_outages(scenario))
    for number in range(int(scenario.start) + 10, min(int(scenario.end), 60)):
        minute = number + Fraction(3, 4)
        is_steady = not any(minute - STEADY_FOR <= change <= minute + 2 for change in change_times)
        if number >= 0 and is_steady and not any(start <= minute < end for start, end in outages):
            return SteadyMinute(scenario, minute)
    return None


def _outages(scenario: Scenario) -> Iterator[tuple[Minutes, Minutes]]:
    """Yield the times in which a metrics source has no samples."""
    targets = [instance.scraping for instance in scenario.ksm]
    if scenario.dcgm is not None:
        targets += [scenario.dcgm.scraping, *scenario.dcgm.scraping_by_node.values()]
        yield from (*scenario.dcgm.intervals_without_devices, *scenario.dcgm.nan_intervals, *scenario.dcgm.restarts)
    for target in targets:
        yield from (*target.gaps, (-1e6, target.lifetime[0]), (target.lifetime[1], 1e6))


def _change_times(scenario: Scenario) -> Iterator[Minutes]:
    for allocation in allocations(scenario):
        yield from (allocation.start, allocation.running_from, allocation.end, allocation.pod.deleted_at)
        yield from (since for curve in (allocation.pod.use_by_device or [allocation.pod.use]) for since, _ in curve)
    for node in scenario.nodes:
        yield from (
            *node.lifetime,
            node.labels_from,
            *(edge for geometry in node.geometries for edge in geometry.lifetime),
        )
    targets = [instance.scraping for instance in scenario.ksm]
    if scenario.dcgm is not None:
        targets += [scenario.dcgm.scraping, *scenario.dcgm.scraping_by_node.values()]
        yield from (
            edge
            for life in (
                *scenario.dcgm.intervals_without_devices,
                *scenario.dcgm.nan_intervals,
                *scenario.dcgm.restarts,
            )
            for edge in life
        )
        yield from () if scenario.dcgm.upgrade is None else (scenario.dcgm.upgrade[0],)
    for target in targets:
        yield from (edge for gap in (*target.gaps, target.lifetime) for edge in gap)
        yield from () if target.changed_interval is None else (target.changed_interval[0],)
