"""How far live figures may be off what the ledger says, on one simulated hour: docs/live-and-ledger.md's bound.

The same series go to Prometheus' rule engine, which looks every minute, and to attribution, which counts seconds. The
bound comes from the scenario alone: whatever changes is seen late by at most a scrape and an evaluation.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from devstack.fleet import openmetrics
from devstack.fleet.instants import Allocation, allocations
from devstack.fleet.scenario import Scenario
from devstack.fleet.scraping import MINUTE_MS
from devstack.fleet.series import Series
from devstack.prometheus import running_prometheus
from gpucost.core.hours import floor_hour
from gpucost.core.model import HourRecord
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost_cli.rules import documents
from gpucost_cli.rules.documents import Groups
from tests.dashboards import promtool
from tests.manifests import articles

PHASE = 30
"""Seconds by which scrapes come after the full minute, at which rules are evaluated."""
LAG_MINUTES = 2
"""A scrape and an evaluation, each once a minute; promtool runs the group of sums at the same time."""
UNMARKED_LAG_MINUTES = LAG_MINUTES + 5
"""Where a series' end is not marked, Prometheus takes its last sample for five minutes more."""
FIRST = -8
"""Minutes before the hour from which on the rules run."""
READ = ("kube_", "DCGM_")
BASE = floor_hour(datetime.now(UTC)) - timedelta(hours=3)
UNITS = (
    "business_units: [{name: research, namespaces: ['bu-*']}, {name: serving, namespaces: [ml-serving, notebooks]}]\n"
)


@dataclass(frozen=True)
class Hour:
    """An hour's series, and what attribution says of it."""

    scenario: Scenario
    ledger: HourRecord
    groups: Groups

    def units(self) -> dict[str, tuple[Fraction, Fraction, Fraction]]:
        """Allocated, effective and unmeasured GPU-hours by business unit."""
        found: dict[str, tuple[Fraction, Fraction, Fraction]] = {}
        for line in self.ledger.lines:
            allocated, effective, unmeasured = found.get(line.business_unit, (Fraction(0),) * 3)
            found[line.business_unit] = (
                allocated + Fraction(line.allocated_gpu_hours),
                effective + Fraction(line.effective_gpu_hours or 0),
                unmeasured + Fraction(line.unmeasured_gpu_hours),
            )
        return found


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
    """The scenario's series from minute FIRST on, two steps a minute, in promtool's notation.

    Args:
        scenario: which.
        marked: whether the end of a series is marked, as a scraper does when a target no longer tells it.
    """
    step, found = MINUTE_MS // 2, []
    for one in openmetrics.series(scenario):
        if not one.metric.startswith(READ):
            continue
        told = {at // step - 2 * FIRST: value for at, value in one.samples if at >= FIRST * MINUTE_MS}
        labels = {"cluster": scenario.name, **one.labels}
        if told and all(not value.startswith("@") for value in told.values()):
            found.append(promtool.series(one.metric, labels, _values(one, told, marked=marked)))
    return found


def _values(one: Series, told: Mapping[int, str], *, marked: bool) -> str:
    last = 2 * (61 - FIRST)
    words, before = [], False
    for step in range(last):
        ends = before and step % 2 == 1 and step not in told  # scrapes are at half minutes
        words.append(told.get(step, "stale" if ends and marked else "_"))
        before = step in told or (before and step % 2 == 0)
    assert one.samples
    return " ".join(words)


def test_an_hours_mean_of_live_gpus_is_near_the_ledger(hour: Hour, tmp_path: Path) -> None:
    """By business unit, what is held, used and unmeasured; where nothing changes within the hour, exactly."""
    units, allowed = hour.units(), allowed_deviations(hour, ends=LAG_MINUTES)
    assert len(units) == 7
    assert sum(not held for held, _ in allowed.values()) >= 3
    looks = "sum_over_time(business_unit:gpucost_allocated_gpus:sum[59m30s])"
    expectations = [promtool.expectation(f"count({looks})", 59 - FIRST, ({}, len(units)))]
    for unit, (allocated, effective, unmeasured) in units.items():
        held, used = allowed[unit]
        expectations.append(within_bound(_held(unit), allocated, held))
        live = {"effective": effective, "unmeasured": unmeasured}
        if unit == "inferentia":  # rules read no use of Neuron: what the ledger measures is unmeasured live
            assert unmeasured == 0 < effective
            live = {"effective": Fraction(0), "unmeasured": allocated}
        for part, gpu_hours in live.items():
            gpus = f'business_unit:gpucost_gpus:sum{{business_unit="{unit}",part="{part}"}}'
            expectations.append(within_bound(gpus, gpu_hours, used))
    # The bound is not there for nothing: what comes and goes within the hour is off.
    expectations.append(within_bound(_held("vector"), units["vector"][0], Fraction(0), is_so=False))
    series = promtool_series(hour.scenario, marked=True)
    read = "device|node|pod|namespace:gpucost_business|business_unit:gpucost_(allocated_)?gpus"
    assert promtool.run(tmp_path, filter_rules(hour.groups, read), series, expectations, interval="30s") == ""


def test_where_ends_are_not_marked_they_are_seen_five_minutes_later(hour: Hour, tmp_path: Path) -> None:
    """And not earlier: of the spot pod whose node is taken back, the marked hour's bound does not hold."""
    units, allowed = hour.units(), allowed_deviations(hour, ends=UNMARKED_LAG_MINUTES)
    expectations = [within_bound(_held(unit), gpus[0], allowed[unit][0]) for unit, gpus in units.items()]
    (taken,) = (line for line in hour.ledger.lines if line.pod == "cuda-vector-add-5d8c-1")
    pod, gpu_hours = f'pod:gpucost_allocated_gpus{{pod="{taken.pod}"}}', Fraction(taken.allocated_gpu_hours)
    expectations.append(within_bound(pod, gpu_hours, Fraction(LAG_MINUTES, 60), is_so=False))
    series = [one for one in promtool_series(hour.scenario, marked=False) if one["series"].startswith("kube_")]
    held = "node|namespace:gpucost_business|pod:gpucost_(units|allocated)|business_unit:gpucost_allocated"
    assert promtool.run(tmp_path, filter_rules(hour.groups, held), series, expectations, interval="30s") == ""


def filter_rules(groups: Groups, records: str) -> Groups:
    """Rules whose records begin so; the others take time, and nothing reads them here."""
    return [{**group, "rules": [one for one in group["rules"] if re.match(records, one["record"])]} for group in groups]


def allowed_deviations(hour: Hour, *, ends: int) -> Mapping[str, tuple[Fraction, Fraction]]:
    """By business unit, how far off what is held and what is used may be, in GPU-hours.

    Args:
        ends: minutes after which an end is seen at the latest.
    """
    found: dict[str, tuple[Fraction, Fraction]] = {}
    owners = {line.pod: line.business_unit for line in hour.ledger.lines}
    for one in allocations(hour.scenario):
        held, used = found.get(owners[one.pod.name], (Fraction(0), Fraction(0)))
        end = deviation(one, one.end, ends)
        found[owners[one.pod.name]] = (
            held + deviation(one, one.start, LAG_MINUTES) + end,
            used + deviation(one, one.running_from, LAG_MINUTES) + end,
        )
    return found


def deviation(holding: Allocation, edge: float | Fraction, minutes: int) -> Fraction:
    """GPU-hours by which looks may be off about a holding, where it changes in the hour or shortly before."""
    return holding.gpus * minutes / 60 if -minutes <= edge < 60 else Fraction(0)


def _held(unit: str) -> str:
    return f'business_unit:gpucost_allocated_gpus:sum{{business_unit="{unit}"}}'


def within_bound(series: str, gpu_hours: Fraction, allowed: Fraction, *, is_so: bool = True) -> dict[str, object]:
    """Sixty looks, one a minute, add up to GPU-hours within a bound; to a millionth, where that is 0."""
    mean = f"((sum(sum_over_time({series}[59m30s])) or vector(0)) / 60)"
    bound = float(allowed) + 1e-6
    difference = f"abs({mean} - {float(gpu_hours)!r}) <= bool {bound!r}"
    return promtool.expectation(difference, 59 - FIRST, ({}, int(is_so)))


def test_the_ledger_is_the_one_that_is_exact(hour: Hour) -> None:
    """Three spot pods hold a GPU from their binding until their nodes are gone: 53, 31 and 48 of the hour's minutes."""
    lives = [(one.start, min(one.end, 60)) for one in allocations(hour.scenario) if one.pod.namespace == "vector"]
    assert [end - begin for begin, end in lives] == [53, 31, 48]
    allocated, _, _ = hour.units()["vector"]
    assert abs(allocated * 60 - (53 + 31 + 48)) <= 1
