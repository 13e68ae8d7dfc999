"""A Prometheus with samples of ten minutes has figures of ten minutes, and says when its first whole hour ends."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpucost.core.amounts import SCALE
from gpucost.core.hours import format_timestamp
from gpucost.pipeline.attribute import attribute_so_far
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.local_service import LocalService
from gpucost_cli.usage_tables import first_whole_hour_sentence
from tests.system.test_cli import gpucost
from tests.system.timeline import HOUR, Timeline


def ten_minutes(base: datetime) -> Timeline:
    """A node with two GPUs, of which a pod holds one and uses a quarter of it, every 30 s for ten minutes."""
    timeline = Timeline(base=base, step=30)
    timeline.up(0, 10)
    timeline.up(0, 10, job="dcgm-exporter", instance="n1:9400")
    timeline.node(start=0, end=10, capacity={"nvidia_com_gpu": 2})
    timeline.pod("a-0", 0, 10, namespace="bu-a")
    timeline.device(0.25, 0, 10, exported_pod="a-0", exported_namespace="bu-a")
    timeline.device(0, 0, 10, gpu=1)
    return timeline


def document(url: str) -> str:
    pricing = {"source": "constant", "gpu_hourly_usd": 12}
    return json.dumps({"clusters": [{"name": "demo", "prometheus": {"url": url}}], "pricing": pricing})


@pytest.mark.parametrize("minute", [0, 20, 55])
def test_samples_of_ten_minutes_are_figures_of_ten_minutes(prometheus: Callable[[str], str], minute: int) -> None:
    """Also if these are the first of the hour, or the hour ends in them."""
    first = HOUR + timedelta(minutes=minute)
    settings = parse_settings(document(prometheus(ten_minutes(first).text())))
    now = first + timedelta(minutes=10)
    reader = metrics_reader(settings.clusters[0], settings, clock=lambda: now)
    so_far = attribute_so_far(reader, settings.clusters[0], settings, now=now)
    assert so_far is not None
    record, time = so_far
    assert (time.length, record.status) == (600_000, "complete"), record.notes
    assert record.totals is not None
    costs, capacity = record.totals.costs, record.totals.capacity
    sixth = SCALE / 6
    assert costs.allocated_gpu_hours == pytest.approx(sixth, abs=10)
    assert costs.effective_gpu_hours == pytest.approx(sixth / 4, abs=10)
    assert costs.allocated_usd == pytest.approx(12 * sixth, abs=100)
    assert capacity is not None
    assert capacity.unallocated_gpu_hours == pytest.approx(sixth, abs=10)


def test_prometheus_without_samples_has_no_figures_so_far(prometheus: Callable[[str], str]) -> None:
    settings = parse_settings(document(prometheus(ten_minutes(HOUR).text())))
    now = HOUR + timedelta(hours=3)
    reader = metrics_reader(settings.clusters[0], settings, clock=lambda: now)
    assert attribute_so_far(reader, settings.clusters[0], settings, now=now) is None


def test_prometheus_with_an_hour_of_samples_has_no_figures_so_far(prometheus: Callable[[str], str]) -> None:
    """It has older samples, too: that its hours lack figures has another reason."""
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 1})
    settings = parse_settings(document(prometheus(timeline.text())))
    now = HOUR + timedelta(minutes=59)
    reader = metrics_reader(settings.clusters[0], settings, clock=lambda: now)
    assert attribute_so_far(reader, settings.clusters[0], settings, now=now) is None


def test_serve_has_figures_so_far_until_an_hour_has_some(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    first = HOUR + timedelta(minutes=50)
    url = prometheus(ten_minutes(first).text())
    with SqliteTable(tmp_path) as table:
        service = LocalService(
            table, document(url), author="me", clock=lambda: first + timedelta(minutes=12), secret_value=str
        )
        assert len(list(service.attribute_newest(2))) == 2
        ((record, time),) = service.so_far()
    assert record.totals is not None
    assert time.length == 720_000
    assert first_whole_hour_sentence("demo", time) == (
        "cluster demo has samples of 12 minutes, which are no whole hour yet. The first one ends at "
        f"{format_timestamp(HOUR + timedelta(hours=2))}"
    )


def test_attribute_shows_a_fresh_prometheus_and_does_not_send_to_doctor(
    tmp_path: Path, prometheus: Callable[[str], str]
) -> None:
    first = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=10)
    path = tmp_path / "settings.yaml"
    path.write_text(document(prometheus(ten_minutes(first).text())))
    done = gpucost("attribute", "--settings", str(path), COLUMNS="100")
    assert done.returncode == 0, done.stderr
    title, *rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
    assert title[:2] == ["demo", format_timestamp(first)]
    assert title[-2:] == ["so", "far"]
    (row,) = [row for row in rows if row[0] == "bu-a"]
    assert float(row[1]) == pytest.approx(1 / 6, abs=0.03)  # the command runs some seconds after the last sample
    end = (first + timedelta(hours=2) - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0)
    assert "which are no whole hour yet. The first one ends at" in done.stderr
    assert done.stderr.endswith(f" {format_timestamp(end)}\n")
    assert "doctor" not in done.stderr
    as_json = gpucost("attribute", "--settings", str(path), "--format", "json")
    assert as_json.returncode == 1, "JSON has whole hours only"
