"""The demo's metrics: served only once Prometheus has every hour. An hour attributed earlier would be incomplete."""

from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep

import pytest

from gpucost.core.hours import HOUR
from gpucost_devstack.demo_metrics import DemoMetrics
from gpucost_devstack.metrics_segment import Segment, SegmentProcess
from gpucost_devstack.prometheus import running_prometheus
from tests.listening_addresses import process_tree

BEGIN = datetime(2026, 11, 18, 2, tzinfo=UTC)
"""A Wednesday. The second hour has the outage of one cluster."""
HOURS = [Segment(BEGIN + i * HOUR, BEGIN + (i + 1) * HOUR) for i in range(3)]


@pytest.mark.parametrize(
    ("simulated", "is_served"),
    [(HOURS, True), (HOURS[1:], False), (HOURS[:2], False), (HOURS[::2], False), ([], False)],
)
def test_segment_is_served_once_each_of_its_hours_has_samples(
    tmp_path: Path, simulated: list[Segment], *, is_served: bool
) -> None:
    work, storage = tmp_path / "work", tmp_path / "storage"
    for folder in (work, storage):
        folder.mkdir()
    metrics = DemoMetrics(storage, work, None, scale=1)
    metrics.simulate(simulated)
    with running_prometheus(storage=storage) as metrics.url:
        assert metrics.are_served(Segment(HOURS[0].start, HOURS[-1].end)) == is_served
        assert all(metrics.are_served(segment) == (segment in simulated) for segment in HOURS)


def test_stopped_simulation_leaves_neither_files_nor_processes(tmp_path: Path) -> None:
    simulation = SegmentProcess(tmp_path / "segment", Segment(BEGIN, BEGIN + 24 * HOUR), scale=1)
    deadline = monotonic() + 60
    while not (promtool := [process for process in process_tree(simulation.pid) if process != simulation.pid]):
        assert not simulation.is_done()
        assert monotonic() < deadline
        sleep(0.01)
    simulation.stop()
    assert not any(Path("/proc", str(process), "exe").exists() for process in promtool)
    assert not [*tmp_path.iterdir()]
