"""One look at a simulated cluster: what rules see of it, and what is true then."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from devstack.fleet import openmetrics
from devstack.fleet.instants import DeviceUse, Allocation, allocations
from devstack.fleet.scenario import Minutes, Scenario
from devstack.fleet.scraping import MINUTE_MS
from tests.dashboards import promtool

STALENESS = Fraction(5)
"""Minutes for which a sample is shown."""
STEADY_FOR = Fraction(8)
"""Minutes before a look in which nothing may change: labels of finished pods linger, and ends may not be marked."""


@dataclass(frozen=True)
class SteadyMinute:
    """A cluster at a minute at which nothing changes."""

    scenario: Scenario
    minute: Fraction

    def series(self) -> Iterator[dict[str, str]]:
        """What each instance told at its last scrape."""
        at = self.minute * MINUTE_MS
        found = [one for one in openmetrics.series(self.scenario) if one.metric.startswith(("kube_", "DCGM_", "dcgm_"))]
        last: dict[str, int] = {}
        for one in openmetrics.series(self.scenario):
            times = [time for time, _ in one.samples if at - STALENESS * MINUTE_MS < time <= at]
            if times and one.metric != "up":
                last[one.labels["instance"]] = max(*times, last.get(one.labels["instance"], 0))
        for one in found:
            value = dict(one.samples).get(last.get(one.labels["instance"], -1))
            if value is not None and not value.startswith("@"):
                yield promtool.series(one.metric, {"cluster": self.scenario.name, **one.labels}, f"{value} {value}")

    def held(self) -> Mapping[str, Fraction]:
        """Physical GPUs by pod, where it holds any."""
        found: dict[str, Fraction] = {}
        for one in self._holdings():
            found[one.pod.name] = found.get(one.pod.name, Fraction(0)) + one.gpus
        return {pod: gpus for pod, gpus in found.items() if gpus}

    def used(self) -> Mapping[str, Fraction]:
        """Physical GPUs by pod, where it uses any of what it holds."""
        devices = DeviceUse(self.scenario, allocations(self.scenario))
        found: dict[str, Fraction] = {}
        for one in self._holdings():
            if one.is_running(self.minute) and self.scenario.sources.get(one.pod.name) != "none":
                parts = (min(devices.used_gpus(one, at, self.minute), devices.allocated_gpus(one, at)) for at in one.device_indices)
                found[one.pod.name] = found.get(one.pod.name, Fraction(0)) + sum(parts, Fraction(0))
        return {pod: gpus for pod, gpus in found.items() if gpus}

    def _holdings(self) -> Iterator[Allocation]:
        yield from (one for one in allocations(self.scenario) if one.is_allocated(self.minute))


def find_steady_minute(scenario: Scenario) -> SteadyMinute | None:
    """A minute before which nothing changes for a while, and every source tells something; None where there is none."""
    edges = sorted(_change_times(scenario))
    dark = list(_outages(scenario))
    for number in range(int(scenario.start) + 10, min(int(scenario.end), 60)):
        minute = number + Fraction(3, 4)
        is_still = not any(minute - STEADY_FOR <= edge <= minute + 2 for edge in edges)
        if number >= 0 and is_still and not any(start <= minute < end for start, end in dark):
            return SteadyMinute(scenario, minute)
    return None


def _outages(scenario: Scenario) -> Iterator[tuple[Minutes, Minutes]]:
    """When some source tells nothing."""
    targets = [one.scraping for one in scenario.ksm]
    if scenario.dcgm is not None:
        targets += [scenario.dcgm.scraping, *scenario.dcgm.by_node.values()]
        yield from (*scenario.dcgm.blank, *scenario.dcgm.nan, *scenario.dcgm.restarts)
    for target in targets:
        yield from (*target.gaps, (-1e6, target.lifetime[0]), (target.lifetime[1], 1e6))


def _change_times(scenario: Scenario) -> Iterator[Minutes]:
    for one in allocations(scenario):
        yield from (one.start, one.running_from, one.end, one.pod.deleted)
        yield from (since for curve in (one.pod.uses or [one.pod.use]) for since, _ in curve)
    for node in scenario.nodes:
        yield from (*node.lifetime, node.labels_from, *(edge for geometry in node.geometries for edge in geometry.lifetime))
    targets = [one.scraping for one in scenario.ksm]
    if scenario.dcgm is not None:
        targets += [scenario.dcgm.scraping, *scenario.dcgm.by_node.values()]
        yield from (
            edge for life in (*scenario.dcgm.blank, *scenario.dcgm.nan, *scenario.dcgm.restarts) for edge in life
        )
        yield from () if scenario.dcgm.upgraded is None else (scenario.dcgm.upgraded[0],)
    for target in targets:
        yield from (edge for gap in (*target.gaps, target.lifetime) for edge in gap)
        yield from () if target.changed_interval is None else (target.changed_interval[0],)
