"""Pods of clusters that do not collect kube_pod_status_phase."""

import pytest

from gpucost.core.amounts import SCALE
from tests.system.metered_hours import Attribute, fleet, hours
from tests.system.timeline import Timeline


def without_phases(timeline: Timeline) -> Timeline:
    del timeline.families["kube_pod_status_phase"]
    return timeline


def test_pod_within_the_hour_has_phases_that_neither_its_start_nor_its_end_shows(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("short", 10, 25)
    (record,) = attribute(timeline)
    assert hours(record) == {"short": pytest.approx(0.25, abs=1 / 60)}
    assert not [note for note in record.notes if note.startswith("unknown")]


def test_pod_that_no_exporter_names_is_unobserved_where_it_names_another(attribute: Attribute) -> None:
    """No metric says whether `silent` is finished. No pod of n2 is named: `other` holds until it is deleted."""
    timeline = fleet()
    timeline.node("n2", capacity={"nvidia_com_gpu": 1})
    for name, node in (("named", "n1"), ("silent", "n1"), ("other", "n2")):
        timeline.pod(name, node=node)
    timeline.device(0.5, exported_namespace="team", exported_pod="named")
    (record,) = attribute(without_phases(timeline))
    assert hours(record) == {"named": 1, "other": 1}
    assert record.totals is not None and record.totals.capacity is not None
    assert record.totals.capacity.unobserved_gpu_hours == SCALE


def test_pod_that_completed_and_remains_holds_its_gpus_until_then(attribute: Attribute) -> None:
    """It was there before the hour, and it is after it, so no sample of its request says that it ended."""
    timeline = fleet()
    completed = timeline.base.timestamp() + 15 * 60
    for name in ("done", "runs"):
        timeline.pod(name)
    timeline.add(
        "kube_pod_completion_time",
        start=15,
        value=completed,
        namespace="team",
        pod="done",
        uid="uid-done",
        job="kube-state-metrics",
        instance="10.0.0.1:8080",
    )
    (record,) = attribute(without_phases(timeline))
    assert hours(record) == {"done": 0.25, "runs": 1}
    (note,) = [note for note in record.notes if note.startswith("unknown")]
    assert "2 pods without samples of kube_pod_status_phase" in note
