"""Outages that continue when the schedule fires, on a real Prometheus. The hour waits for their end."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from gpucost.core.amounts import SCALE
from gpucost.core.hour_record import HourRecord
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from tests.system.metered_hours import assert_identity, hours
from tests.system.timeline import HOUR, Timeline

At = Callable[..., HourRecord]
TICK, AGAIN = 65.0, 125.0
"""Minutes after the hour's start at which it is attributed, and tried again."""
OTHER = {"job": "kube-state-metrics", "instance": "10.0.0.2:8080"}


@pytest.fixture
def attributed(prometheus: Callable[[str], str]) -> At:
    def run(timeline: Timeline, minute: float) -> HourRecord:
        text = f'clusters: [{{name: test, prometheus: {{url: "{prometheus(timeline.text())}"}}}}]\n'
        settings = parse_settings(text + "pricing: {source: constant, gpu_hourly_usd: 10}")
        cluster, now = settings.clusters[0], HOUR + timedelta(minutes=minute)
        reader = metrics_reader(cluster, settings, clock=lambda: now)
        (record,) = attribute_hours(reader, cluster, settings, [HOUR], now=now)
        assert_identity(record)
        return record

    return run


def fleet(end: float = 125, **settings: object) -> Timeline:
    """Eight GPUs, held by two pods all the time."""
    timeline = Timeline(**settings)
    timeline.up(end=end)
    timeline.node(end=end, capacity={"nvidia_com_gpu": 8})
    for name in ("a", "b"):
        timeline.pod(name, end=end, units=4)
    return timeline


def cost(record: HourRecord) -> float | None:
    return record.totals.costs.allocated_usd / SCALE if record.totals else None


@pytest.mark.parametrize("step", [15.0, 60.0])
@pytest.mark.parametrize("gap", [(20, 70), (40, 70), (52, 66), (56, 100)])
def test_hour_waits_for_the_end_of_an_outage(attributed: At, gap: tuple[float, float], step: float) -> None:
    timeline = fleet(gaps=[gap], step=step)
    fresh = attributed(timeline, TICK)
    assert (fresh.status, cost(fresh)) == ("incomplete", None)
    assert fresh.notes[0].startswith(f"no samples since {HOUR:%Y-%m-%dT%H}:{gap[0] - 1}")
    later = attributed(timeline, AGAIN)
    assert (later.status, cost(later)) == ("complete", 80)


@pytest.mark.parametrize("gap", [(50, 64), (30, 55), (58, 60)])
def test_ended_outage_delays_nothing(attributed: At, gap: tuple[float, float]) -> None:
    record = attributed(fleet(gaps=[gap]), TICK)
    assert (record.status, cost(record)) == ("complete", 80)


def test_late_scrapes_are_no_outage(attributed: At) -> None:
    record = attributed(fleet(gaps=[(59, 70)]), TICK)
    assert record.status == "complete"


def test_ended_cluster_is_attributed_up_to_its_last_samples(attributed: At) -> None:
    timeline = fleet(end=20)
    assert attributed(timeline, TICK).status == "incomplete"
    last = attributed(timeline, AGAIN)
    assert last.status == "complete"
    assert cost(last) == pytest.approx(80 * 20 / 60)


@pytest.mark.parametrize("began", [17, 25, 58])
def test_replacement_instance_is_no_outage(attributed: At, began: float) -> None:
    """Although a pod ended at the same time."""
    timeline = fleet(end=20)
    timeline.up(began, **OTHER)
    timeline.node(start=began, capacity={"nvidia_com_gpu": 8}, ksm=OTHER)
    timeline.pod("a", began, units=4, **OTHER)
    record = attributed(timeline, TICK)
    assert record.status == "complete"
    assert hours(record) == {"a": 4, "b": pytest.approx(4 * 20 / 60, abs=4 / 60)}


def test_hour_waits_for_replacement_instance(attributed: At) -> None:
    timeline = fleet(end=40)
    timeline.up(64, **OTHER)
    timeline.node(start=64, capacity={"nvidia_com_gpu": 8}, ksm=OTHER)
    for name in ("a", "b"):
        timeline.pod(name, 64, units=4, **OTHER)
    assert attributed(timeline, TICK).status == "incomplete"
    later = attributed(timeline, AGAIN)
    assert (later.status, cost(later)) == ("complete", 80)


def test_new_instance_replaces_only_its_predecessor(attributed: At) -> None:
    """Two shards on a drained node: one returns at once under a new address, the other later."""
    timeline = Timeline()
    for start, end, labels, pod, node in (
        (-65, 20, "10.0.0.1:8080", "a", "n1"),
        (25, 125, "10.0.0.3:8080", "a", "n1"),
        (-65, 20, "10.0.0.2:8080", "b", "n2"),
        (70, 125, "10.0.0.4:8080", "b", "n2"),
    ):
        ksm = {"job": "kube-state-metrics", "instance": labels}
        timeline.up(start, end, **ksm)
        timeline.node(node, start, end, capacity={"nvidia_com_gpu": 8}, ksm=ksm)
        timeline.pod(pod, start, end, units=8, node=node, **ksm)
    assert attributed(timeline, TICK).status == "incomplete"
    later = attributed(timeline, AGAIN)
    assert (later.status, cost(later)) == ("complete", 160)


def test_silent_replica_delays_nothing(attributed: At) -> None:
    timeline = fleet()
    timeline.up(end=40, **OTHER)
    timeline.node(end=40, capacity={"nvidia_com_gpu": 8}, ksm=OTHER)
    timeline.node("n2", 30, capacity={"nvidia_com_gpu": 8})
    timeline.node("n2", 30, 40, capacity={"nvidia_com_gpu": 8}, ksm=OTHER)
    timeline.pod("c", 30, node="n2", units=8)
    timeline.pod("c", 30, 40, node="n2", units=8, **OTHER)
    record = attributed(timeline, TICK)
    assert (record.status, cost(record)) == ("complete", 80 + 40)


def test_silent_shard_is_an_outage_of_its_objects(attributed: At) -> None:
    timeline = fleet()
    for start, end in ((-65, 40), (70, 125)):
        timeline.up(start, end, **OTHER)
        timeline.node("n2", start, end, capacity={"nvidia_com_gpu": 8}, ksm=OTHER)
        timeline.pod("c", start, end, units=8, node="n2", **OTHER)
    assert attributed(timeline, TICK).status == "incomplete"
    later = attributed(timeline, AGAIN)
    assert (later.status, cost(later)) == ("complete", 160)
