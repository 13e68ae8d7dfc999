"""The demo's metrics: served only once Prometheus has every hour. An hour attributed earlier would be incomplete."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpucost.core.hours import HOUR
from gpucost_devstack.demo_metrics import DemoMetrics
from gpucost_devstack.metrics_segment import Segment
from gpucost_devstack.prometheus import running_prometheus

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
