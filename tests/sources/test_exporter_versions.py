"""dcgm-exporter renames metrics: every version's label set is read, and every name that is read has its successor.

`dcgm_exporter.json` has the label set of one GPU as each version from 3.1 on renders it, and the metrics of its
counters files that anything reads. Sources are named with each version.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest

from authoring.reference.vendors import MEASUREMENTS
from gpucost.core.hours import to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.accelerators import ACCELERATORS, NVIDIA
from gpucost.core.metering.energy import ENERGY_COUNTERS, gpu_energies
from gpucost.core.metering.signals import SIGNALS, SUCCESSORS, signals_by_preference
from gpucost.features.recommendations.sources import GPU_MEMORY_METRICS, PrometheusGpuMemory
from gpucost.settings import ClusterSettings
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus.client import PrometheusClient, Series
from gpucost.sources.prometheus.devices import DeviceTable, EnergyTable
from gpucost.sources.prometheus.queries import ENERGY, NO_STATISTIC_LABEL, STATISTIC_LABEL, Queries
from gpucost_cli.manifests import dashboard_metrics, series
from gpucost_devstack.template import REPOSITORY

VERSIONS: Sequence[dict[str, Any]] = json.loads(Path(__file__).with_name("dcgm_exporter.json").read_text("utf-8"))
BUSY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
START = datetime(2026, 11, 19, 10, tzinfo=UTC)
MINUTE = 60_000
TARGET = {"job": "dcgm", "instance": "n:9400"}
BEFORE_RENAMES, RENAMED = VERSIONS[-2], VERSIONS[-1]
_METRIC = re.compile(r"DCGM_FI_(?:DEV|PROF)_[A-Z0-9_]+")
each_version = pytest.mark.parametrize("version", VERSIONS, ids=[version["version"] for version in VERSIONS])


def metric_of(version: Mapping[str, Any], name: str) -> str:
    """The name that a version has for a metric of 4.8."""
    (available,) = {name, SUCCESSORS[name]} & {*version["metrics"]}
    return available


@each_version
def test_utilization_of_every_version_is_read_with_node_and_pod(version: Mapping[str, Any]) -> None:
    labels = {**TARGET, **version["labels"]}
    for name in (BUSY, "DCGM_FI_DEV_GPU_UTIL"):
        (rank,) = signals_by_preference(name, None)[:1]
        available = metric_of(version, name)
        statistic = NO_STATISTIC_LABEL if available == rank[0].name else f"sum {available}"
        table = DeviceTable(0, rank, {statistic: [(labels, 60 * SIGNALS[available].scale)]}, {"node-1": "node-1"})
        (device,) = table.series()
        assert (device.node, device.uuid, device.model) == ("node-1", labels["UUID"], "NVIDIA H100 80GB HBM3")
        assert (device.namespace, device.pod) == ("team", "train-0")
        assert device.sample_sum / device.scale == Decimal(60)


@each_version
def test_energy_and_memory_of_every_version_are_read_in_their_unit(version: Mapping[str, Any]) -> None:
    labels = {**TARGET, **version["labels"]}
    counter = metric_of(version, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    in_unit = {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 360_000_000}.get(counter, 360_000)
    table = EnergyTable({f"{ENERGY} {counter}": [(labels, Decimal(in_unit))]}, {"node-1": "node-1"})
    assert [gpu.increase for gpu in table.series()] == [360_000], "0.1 kWh"
    memory = metric_of(version, "DCGM_FI_DEV_FB_USED")
    used = {"DCGM_FI_DEV_FB_USED": "512"}.get(memory, str(512 * 2**20))
    answer = Series({**labels, STATISTIC_LABEL: memory}, ((0, used),))
    reader = PrometheusGpuMemory(cluster(), client=lambda *_, **__: cast(PrometheusClient, AnsweringClient([answer])))
    assert reader.peaks(START) == {("team", "train-0"): 512 * 2**20}


def test_counter_continues_when_an_upgrade_renames_it() -> None:
    """100 W all hour: counted in millijoules by the old exporter, then in whole joules by the new one."""
    table = EnergyTable({}, {"node-1": "node-1"})
    start = to_epoch_ms(START)
    for version, name, unit, minutes in (
        (BEFORE_RENAMES, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1000, range(-1, 30)),
        (RENAMED, "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1, range(31, 61)),
    ):
        samples = tuple((start + minute * MINUTE, str((7_000_000 + minute * 6000) * unit)) for minute in minutes)
        table.add_raw_samples([Series({**TARGET, **version["labels"], "__name__": name}, samples)])
    (energy,) = gpu_energies(table.series(), {}, IntervalMs(start, start + 60 * MINUTE)).values()
    joules, measured_ms = energy.during(IntervalMs(start, start + 60 * MINUTE))
    assert joules == Fraction(360_000)
    assert measured_ms == 60 * MINUTE


def test_successors_are_the_renames_of_the_recorded_versions() -> None:
    gone = {*BEFORE_RENAMES["metrics"]} - {*RENAMED["metrics"]}
    assert {SUCCESSORS[name] for name in gone} <= {*RENAMED["metrics"]}
    assert SUCCESSORS.keys() - gone == {"DCGM_FI_PROF_SM_ACTIVE"}, "in no counters file; go-dcgm b7fa315 renames it"


def queries_by_reader() -> Iterator[tuple[str, str]]:
    """Every text by which anything reads dcgm-exporter's metrics: queries, relabeling, templates of manifests."""
    for signal in SIGNALS:
        queries = Queries({}, signals_by_preference(signal, None), measures_energy=True)
        for rank in range(len(queries.signals)):
            yield f"devices {signal}, rank {rank}", queries.devices(rank)
            yield f"raw samples {signal}, rank {rank}", " ".join(queries.device_selectors(rank, "UUID", ["GPU-0"]))
        yield "energy", queries.energy_selector("UUID", ["GPU-0"])
    for name, dashboard in dashboard_metrics.dashboards().items():
        for expression in dashboard_metrics.expressions(dashboard):
            yield f"dashboard {name}", expression
    yield "rules", dashboard_metrics.RULES_FILE.read_text("utf-8")
    yield "relabeling", series.dcgm_exporter_pattern(dashboards=True)
    yield "memory", " ".join(GPU_MEMORY_METRICS)
    for path in (REPOSITORY / "cluster" / "workloads").glob("*.yaml"):
        yield f"workload {path.name}", path.read_text("utf-8")


def test_every_name_that_is_read_is_read_with_its_successor() -> None:
    lacking = {
        f"{reader}: {name} without {SUCCESSORS.get(name, 'an entry in SUCCESSORS')}"
        for reader, text in queries_by_reader()
        for name in {*_METRIC.findall(text)} - {*SUCCESSORS.values()}
        if SUCCESSORS.get(name) not in _METRIC.findall(text)
    }
    assert not lacking


def test_no_code_reads_a_name_without_an_entry() -> None:
    """Also code that builds queries in other ways than those above."""
    read: set[str] = set()
    for folder in ("layers/common/gpucost", "gpucost_cli", "authoring/grafana"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            read |= {*_METRIC.findall(path.read_text("utf-8"))}
    assert read - {*SUCCESSORS, *SUCCESSORS.values()} == set()


def test_vendor_table_has_every_vendor_and_the_versions_of_the_fixture() -> None:
    assert MEASUREMENTS.keys() == {NVIDIA, *(accelerator.vendor for accelerator in ACCELERATORS)}
    first, last = (version["version"].partition("-")[0] for version in (VERSIONS[0], VERSIONS[-1]))
    assert MEASUREMENTS[NVIDIA].versions == f"{first} to {last}"


def test_every_unit_that_changes_is_converted() -> None:
    assert [str(joules) for joules in ENERGY_COUNTERS.values()] == ["0.001", "1"]
    assert [*GPU_MEMORY_METRICS.values()] == [2**20, 1]
    scales = {name: SIGNALS[name].scale / SIGNALS[SUCCESSORS[name]].scale for name in SUCCESSORS if name in SIGNALS}
    assert scales == {BUSY: 1, "DCGM_FI_PROF_SM_ACTIVE": 1, "DCGM_FI_DEV_GPU_UTIL": 100}


def cluster() -> ClusterSettings:
    return parse_settings("clusters: [{name: demo, prometheus: {url: 'http://127.0.0.1:9'}}]").clusters[0]


class AnsweringClient:
    """A client whose queries all have the same answer."""

    def __init__(self, answer: Sequence[Series]) -> None:
        self._answer = answer

    def query(self, query: str, at: datetime) -> Sequence[Series]:
        assert at - START == timedelta(days=1)
        assert query
        return self._answer
