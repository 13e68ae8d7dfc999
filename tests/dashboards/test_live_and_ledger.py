"""Live figures and the ledger differ by at most the bound of docs/explanation/live-and-ledger.md, in a simulated hour.

The same series go to Prometheus' rule engine, which evaluates every minute, and to attribution, which counts seconds.
The bound comes from the scenario alone: each change is seen late by at most a scrape and an evaluation.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from gpucost.core.amounts import SCALE
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import floor_hour
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost_cli.rules import documents
from gpucost_cli.rules.documents import Groups
from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.instants import PodAllocation, allocations
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.scraping import MINUTE_MS
from gpucost_devstack.fleet.series import SimulatedSeries
from gpucost_devstack.prometheus import running_prometheus
from tests.dashboards import promtool
from tests.manifests import articles

PHASE = 30
"""Seconds between the full minute, when rules are evaluated, and the scrapes."""
LAG_MINUTES = 2
"""A scrape and an evaluation, each once a minute; promtool runs the group of sums at the same time."""
UNMARKED_LAG_MINUTES = LAG_MINUTES + 5
"""Without a staleness marker, Prometheus returns the last sample of a series for five more minutes."""
FIRST = -8
"""Minute, relative to the hour, at which the rules start to run."""
READ = ("kube_", "DCGM_")
BASE = floor_hour(datetime.now(UTC)) - timedelta(hours=3)
UNITS = (
    "business_units: [{name: research, namespaces: ['bu-*']}, {name: serving, namespaces: [ml-serving, notebooks]}]\n"
)


@dataclass(frozen=True)
class Hour:
    """An hour's scenario, its record in the ledger and its rules."""

    scenario: Scenario
    ledger: HourRecord
    groups: Groups

    def units(self) -> dict[str, tuple[Fraction, Fraction, Fraction]]:
        """Sum allocated, effective and unmeasured GPU-hours by business unit."""
        gpu_hours: dict[str, tuple[Fraction, Fraction, Fraction]] = {}
        for line in self.ledger.lines:
            allocated, effective, unmeasured = gpu_hours.get(line.business_unit, (Fraction(0),) * 3)
            gpu_hours[line.business_unit] = (
                allocated + Fraction(line.allocated_gpu_hours, SCALE),
                effective + Fraction(line.effective_gpu_hours or 0, SCALE),
                unmeasured + Fraction(line.unmeasured_gpu_hours, SCALE),
            )
        return gpu_hours


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hour]:
    scenario = articles.scenario().with_scraping(offset_seconds=PHASE)
    path = tmp_path_factory.mktemp("live") / "metrics.om"
    openmetrics.write([scenario], BASE, path)
    with ExitStack() as stack:
        url = stack.enter_context(running_prometheus(path))
        cluster_of = f"{{name: {scenario.name}, prometheus: {{url: '{url}'}}, selector: {{cluster: {scenario.name}}}}}"
        pricing = "pricing: {source: constant, gpu_hourly_usd: 12}\n"
        settings = parse_settings(f"clusters: [{cluster_of}]\n{pricing}{UNITS}")
        cluster = settings.clusters[0]
        now = datetime.now(UTC)
        (ledger,) = attribute_hours(metrics_reader(cluster, settings), cluster, settings, [BASE], now=now)
        yield Hour(scenario, ledger, documents.recording_groups(settings, [cluster], now))


def promtool_series(scenario: Scenario, *, marked: bool) -> list[dict[str, str]]:
    """Return the scenario's series from minute FIRST on in promtool's notation, with two steps a minute.

    Args:
        scenario: the simulated cluster.
        marked: whether a staleness marker ends a series, as scrapers write it when a target no longer exposes it.
    """
    step, notations = MINUTE_MS // 2, []
    for series in openmetrics.series(scenario):
        if not series.metric.startswith(READ):
            continue
        samples = {at // step - 2 * FIRST: value for at, value in series.samples if at >= FIRST * MINUTE_MS}
        labels = {"cluster": scenario.name, **series.labels}
        if samples and all(not value.startswith("@") for value in samples.values()):
            notations.append(promtool.series(series.metric, labels, _values(series, samples, marked=marked)))
    return notations


def _values(series: SimulatedSeries, samples: Mapping[int, str], *, marked: bool) -> str:
    last = 2 * (61 - FIRST)
    values, has_sample = [], False
    for step in range(last):
        ends = has_sample and step % 2 == 1 and step not in samples  # scrapes are at half minutes
        values.append(samples.get(step, "stale" if ends and marked else "_"))
        has_sample = step in samples or (has_sample and step % 2 == 0)
    assert series.samples
    return " ".join(values)


def test_mean_of_live_gpus_is_within_the_bound_of_the_ledger(hour: Hour, tmp_path: Path) -> None:
    """Allocated, effective and unmeasured GPUs of business units; exact where nothing changes in the hour."""
    units, allowed = hour.units(), allowed_deviations(hour, ends=LAG_MINUTES)
    assert len(units) == 7
    assert sum(not held for held, _ in allowed.values()) >= 3
    evaluations = "sum_over_time(business_unit:gpucost_allocated_gpus:sum[59m30s])"
    expectations = [promtool.expectation(f"count({evaluations})", 59 - FIRST, ({}, len(units)))]
    for unit, (allocated, effective, unmeasured) in units.items():
        held, used = allowed[unit]
        expectations.append(within_bound(_held(unit), allocated, held))
        live = {"effective": effective, "unmeasured": unmeasured}
        if unit == "inferentia":  # rules do not measure Neuron, so it is unmeasured live
            assert unmeasured == 0 < effective
            live = {"effective": Fraction(0), "unmeasured": allocated}
        for part, gpu_hours in live.items():
            gpus = f'business_unit:gpucost_gpus:sum{{business_unit="{unit}",part="{part}"}}'
            expectations.append(within_bound(gpus, gpu_hours, used))
    # The bound is needed: pods that start and end in the hour deviate.
    expectations.append(within_bound(_held("vector"), units["vector"][0], Fraction(0), is_within=False))
    series = promtool_series(hour.scenario, marked=True)
    read = "device|node|pod|namespace:gpucost_business|business_unit:gpucost_(allocated_)?gpus"
    assert promtool.run(tmp_path, filter_rules(hour.groups, read), series, expectations, interval="30s") == ""


def test_without_staleness_markers_ends_are_seen_five_minutes_later(hour: Hour, tmp_path: Path) -> None:
    """The smaller bound does not hold for the spot pod whose node is interrupted."""
    units, allowed = hour.units(), allowed_deviations(hour, ends=UNMARKED_LAG_MINUTES)
    expectations = [within_bound(_held(unit), gpus[0], allowed[unit][0]) for unit, gpus in units.items()]
    (interrupted,) = (line for line in hour.ledger.lines if line.pod == "cuda-vector-add-5d8c-1")
    pod, gpu_hours = (
        f'pod:gpucost_allocated_gpus{{pod="{interrupted.pod}"}}',
        Fraction(interrupted.allocated_gpu_hours, SCALE),
    )
    expectations.append(within_bound(pod, gpu_hours, Fraction(LAG_MINUTES, 60), is_within=False))
    series = [
        notation for notation in promtool_series(hour.scenario, marked=False) if notation["series"].startswith("kube_")
    ]
    held = "node|namespace:gpucost_business|pod:gpucost_(units|allocated)|business_unit:gpucost_allocated"
    assert promtool.run(tmp_path, filter_rules(hour.groups, held), series, expectations, interval="30s") == ""


def filter_rules(groups: Groups, records: str) -> Groups:
    """Keep the rules whose records match, because the others only take time."""
    return [
        {**group, "rules": [rule for rule in group["rules"] if re.match(records, rule["record"])]} for group in groups
    ]


def allowed_deviations(hour: Hour, *, ends: int) -> Mapping[str, tuple[Fraction, Fraction]]:
    """Return the allowed deviations of allocated and used GPU-hours, by business unit.

    Args:
        ends: maximum minutes until the end of a pod is seen.
    """
    deviations: dict[str, tuple[Fraction, Fraction]] = {}
    owners = {line.pod: line.business_unit for line in hour.ledger.lines}
    for allocation in allocations(hour.scenario):
        held, used = deviations.get(owners[allocation.pod.name], (Fraction(0), Fraction(0)))
        end = deviation(allocation, allocation.end, ends)
        deviations[owners[allocation.pod.name]] = (
            held + deviation(allocation, allocation.start, LAG_MINUTES) + end,
            used + deviation(allocation, allocation.running_from, LAG_MINUTES) + end,
        )
    return deviations


def deviation(holding: PodAllocation, edge: float | Fraction, minutes: int) -> Fraction:
    """Return the GPU-hours that a change of an allocation in the hour, or shortly before, may cause."""
    return holding.gpus * minutes / 60 if -minutes <= edge < 60 else Fraction(0)


def _held(unit: str) -> str:
    return f'business_unit:gpucost_allocated_gpus:sum{{business_unit="{unit}"}}'


def within_bound(series: str, gpu_hours: Fraction, allowed: Fraction, *, is_within: bool = True) -> dict[str, object]:
    """Expect that the mean of sixty evaluations is within a bound of GPU-hours, or a millionth if it is 0."""
    mean = f"((sum(sum_over_time({series}[59m30s])) or vector(0)) / 60)"
    bound = float(allowed) + 1e-6
    difference = f"abs({mean} - {float(gpu_hours)!r}) <= bool {bound!r}"
    return promtool.expectation(difference, 59 - FIRST, ({}, int(is_within)))


def test_ledger_is_exact_to_the_minute(hour: Hour) -> None:
    """Three spot pods hold a GPU from binding until their node ends: 53, 31 and 48 minutes of the hour."""
    lifetimes = [
        (allocation.start, min(allocation.end, 60))
        for allocation in allocations(hour.scenario)
        if allocation.pod.namespace == "vector"
    ]
    assert [end - begin for begin, end in lifetimes] == [53, 31, 48]
    allocated, _, _ = hour.units()["vector"]
    assert abs(allocated * 60 - (53 + 31 + 48)) <= 1
