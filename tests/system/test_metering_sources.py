"""Other scrape configurations in a real Prometheus: with and without honor_labels, `up`, and replicas."""

import re
from collections.abc import Callable

import pytest

from gpucost.core.amounts import SCALE
from tests.records import amount
from tests.system.metered_hours import Attribute, fleet, hours, line
from tests.system.timeline import Timeline

SHARED = {"node_kubernetes_io_instance_type": "p4d.24xlarge", "nvidia_com_gpu_product": "NVIDIA-A100-SXM4-40GB"}


def changed(timeline: Timeline, change: Callable[[str], str]) -> Timeline:
    """Rewrite every sample as from another source."""
    for metric, rows in timeline.families.items():
        timeline.families[metric] = [change(row) for row in rows]
    return timeline


def test_source_without_uids_is_matched_by_name(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("steady")
    timeline.pod("done", finished_at=-30)
    timeline.pod("ends", finished_at=30)
    (record,) = attribute(changed(timeline, lambda row: re.sub(r',uid="[^"]*"', "", row)))
    gpu_hours = hours(record)
    assert gpu_hours.pop("ends") == pytest.approx(0.5, abs=1 / 60)
    assert gpu_hours == {"steady": 1.0}


def test_change_of_the_collector_within_the_hour_changes_no_figure(attribute: Attribute) -> None:
    """Collectors write the same series with different labels of their own, such as `gpucost_collector`."""
    names = {"gpucost_collector": "amp-scraper", "prometheus": "monitoring/kube-prometheus-stack-prometheus"}

    def cluster() -> Timeline:
        timeline = fleet()
        timeline.pod("steady")
        timeline.pod("ends", finished_at=40)
        timeline.device(0.4, gpu=0, exported_namespace="team", exported_pod="steady")
        return timeline

    def after_the_change(row: str) -> bool:
        return float(row.rsplit(maxsplit=1)[-1]) >= timeline.base.timestamp() + 25 * 60

    (expected,) = attribute(cluster())
    timeline = cluster()
    for name, value in names.items():
        changed(timeline, lambda row: row.replace("{", f'{{{name}="{value}",', 1) if after_the_change(row) else row)  # noqa: B023 - called at once
    (record,) = attribute(timeline)
    assert record.lines == expected.lines
    assert record.totals == expected.totals


def owned(timeline: Timeline, pod: str, kind: str, name: str, *, controller: bool = True) -> None:
    ksm = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}
    timeline.add(
        "kube_pod_owner",
        namespace="team",
        pod=pod,
        uid=f"uid-{pod}",
        owner_kind=kind,
        owner_name=name,
        owner_is_controller=str(controller).lower(),
        **ksm,
    )


@pytest.mark.parametrize("label", ["pod", "namespace"])
def test_scrape_labels_do_not_hide_exporter_labels(attribute: Attribute, label: str) -> None:
    timeline = fleet()
    timeline.pod("p")
    owned(timeline, "p", "StatefulSet", "trainer")
    exporter_label = {"pod": "kube-state-metrics-5c9", "namespace": "monitoring"}[label]
    relabeled = changed(
        timeline, lambda row: re.sub(rf'([{{,])({label}="[^"]*")', rf'\1exported_\2,{label}="{exporter_label}"', row)
    )
    (record,) = attribute(relabeled)
    pod_line = line(record, "p")
    assert (pod_line.namespace, pod_line.workload_kind, pod_line.workload) == ("team", "StatefulSet", "trainer")
    assert pod_line.allocated_gpu_hours == amount(1)


@pytest.mark.parametrize("names", [("a", "z"), ("z", "a")])
def test_controller_is_chosen_among_several_owners(attribute: Attribute, names: tuple[str, str]) -> None:
    timeline = fleet()
    timeline.pod("p")
    for name in names:
        owned(timeline, "p", "PodGroup" if name == names[1] else "MPIJob", name, controller=name == names[0])
    (record,) = attribute(timeline)
    assert (line(record, "p").workload_kind, line(record, "p").workload) == ("MPIJob", names[0])


@pytest.mark.parametrize(("minute", "share"), [(10, 0.5), (50, 0.25)])
def test_longest_lasting_labels_count_under_constant_capacity(attribute: Attribute, minute: int, share: float) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 8})
    ksm = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}
    for start, end, replicas in ((-65, minute, "4"), (minute, 125, "2")):
        labels = {f"label_{name}": value for name, value in SHARED.items()}
        timeline.add("kube_node_labels", start, end, node="n1", label_nvidia_com_gpu_replicas=replicas, **labels, **ksm)
    timeline.pod("p")
    (record,) = attribute(timeline)
    assert line(record, "p").allocated_gpu_hours / SCALE == share


@pytest.mark.parametrize("briefly", [0, 1])
def test_densest_series_replaces_missing_up_of_an_exporter(attribute: Attribute, briefly: int) -> None:
    timeline = Timeline()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.pod("p")
    timeline.device(0.5, gpu=1 - briefly, exported_pod="p", exported_namespace="team")
    timeline.device(0.5, 10, 20, gpu=briefly)
    (record,) = attribute(timeline)
    assert line(record, "p").effective_usd == amount(5)
    assert line(record, "p").unmeasured_usd == 0
