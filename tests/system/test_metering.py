"""Metering through a real Prometheus, with GPU-hours computed by hand."""

from decimal import Decimal
from fractions import Fraction

import pytest

from gpucost.core.amounts import SCALE
from tests.records import amount
from tests.system.metered_hours import Attribute, fleet, hours, line
from tests.system.timeline import HOUR, Timeline


def test_pod_that_exists_all_hour_holds_its_units_all_hour(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("p", units=3)
    (record,) = attribute(timeline)
    assert line(record, "p").allocated_gpu_hours == amount(3)
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert record.totals.capacity.unallocated_gpu_hours == amount(1)
    assert record.totals.capacity.node_cost_usd == amount(40)


@pytest.mark.parametrize("step", [15.0, 30.0, 60.0, 70.0])
@pytest.mark.parametrize(("start", "end"), [(10, 16), (-20, 16), (50, 80), (0, 60)])
def test_short_lifetimes_are_accurate_to_an_interval_per_edge(
    attribute: Attribute, step: float, start: float, end: float
) -> None:
    timeline = fleet(step=step, phase=7.0)
    timeline.pod("p", start, end)
    (record,) = attribute(timeline)
    truth = (min(end, 60) - max(start, 0)) / 60
    assert hours(record)["p"] == pytest.approx(truth, abs=2 * step / 3600)


def test_consecutive_hours_add_up_to_a_pods_lifetime(attribute: Attribute) -> None:
    timeline = fleet(phase=13.0)
    timeline.pod("p", 25, 95)
    together = attribute(timeline, hours=2)
    separate = [*attribute(timeline), *attribute(timeline, start=1)]
    assert [hours(record) for record in together] == [hours(record) for record in separate]
    assert sum(hours(record)["p"] for record in together) == pytest.approx(70 / 60, abs=2 / 60)


def test_gap_between_samples_of_a_pod_is_bridged(attribute: Attribute) -> None:
    timeline = fleet(gaps=[(20, 30)])
    timeline.pod("p", units=4)
    (record,) = attribute(timeline)
    assert line(record, "p").allocated_gpu_hours == amount(4)
    assert record.coverage is not None
    assert record.coverage.allocation == pytest.approx(Decimal(50) / 60, abs=Decimal("0.02"))


@pytest.mark.parametrize("gap", [(-10, 12), (50, 75)])
def test_gap_across_the_hours_edge_is_bridged(attribute: Attribute, gap: tuple[float, float]) -> None:
    timeline = fleet(gaps=[gap])
    timeline.pod("p", units=2)
    (record,) = attribute(timeline)
    assert line(record, "p").allocated_gpu_hours == amount(2)


def test_free_gpus_in_a_long_gap_are_unobserved(attribute: Attribute) -> None:
    timeline = fleet(gaps=[(20, 40)])
    timeline.pod("p", units=1)
    (record,) = attribute(timeline)
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert record.totals.capacity.unobserved_gpu_hours / SCALE == pytest.approx(3 * 20 / 60, abs=3 / 60)


def test_node_replaced_in_gap_across_the_hours_end_is_billed_from_first_pod_on(attribute: Attribute) -> None:
    """Nothing is scraped from minute 40 to 70; a pod was scheduled to the second node of the name at minute 50."""
    timeline = fleet(gaps=[(40, 70)])
    ksm = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}
    timeline.node("n2", capacity={"nvidia_com_gpu": 4})
    timeline.families["kube_node_info"] = [row for row in timeline.families["kube_node_info"] if "i-n2" not in row]
    timeline.add("kube_node_info", -65, 40, node="n2", provider_id="aws:///us-west-2a/i-first", **ksm)
    timeline.add("kube_node_info", 70, 125, node="n2", provider_id="aws:///us-west-2a/i-second", **ksm)
    timeline.pod("p", 70, units=4, node="n2")
    pod_labels = {"namespace": "team", "pod": "p", "uid": "uid-p"}
    scheduled_at = HOUR.timestamp() + 50 * 60
    timeline.add("kube_pod_status_scheduled_time", 70, 125, scheduled_at, **pod_labels, **ksm)
    first, second = attribute(timeline, hours=2)
    # Four GPUs for ten minutes, and then all hour.
    assert line(first, "p").allocated_gpu_hours / SCALE == pytest.approx(4 * 10 / 60)
    assert line(second, "p").allocated_gpu_hours == amount(4)


def test_node_that_joins_in_gap_across_the_hours_end_is_billed_from_first_pod_on(attribute: Attribute) -> None:
    """Nothing is scraped from minute 40 to 70, the node's first sample; its pod was scheduled at minute 50."""
    timeline = fleet(gaps=[(40, 70)])
    timeline.node("n2", capacity={"nvidia_com_gpu": 4}, start=70)
    timeline.pod("p", 70, units=4, node="n2")
    ksm = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}
    scheduled_at = HOUR.timestamp() + 50 * 60
    timeline.add("kube_pod_status_scheduled_time", 70, 125, scheduled_at, namespace="team", pod="p", uid="uid-p", **ksm)
    first, second = attribute(timeline, hours=2)
    # Four GPUs for ten minutes, and then all hour.
    assert line(first, "p").allocated_gpu_hours / SCALE == pytest.approx(4 * 10 / 60)
    assert first.totals is not None and first.totals.capacity is not None
    assert first.totals.capacity.capacity_gpu_hours == amount(4) + line(first, "p").allocated_gpu_hours
    assert line(second, "p").allocated_gpu_hours == amount(4)


def test_restart_of_kube_state_metrics_under_another_instance_is_bridged(attribute: Attribute) -> None:
    timeline = Timeline()
    for instance, (a, b) in {"a:8080": (-65, 30), "b:8080": (30, 125)}.items():
        ksm = {"job": "kube-state-metrics", "instance": instance}
        timeline.up(a, b, instance=instance)
        timeline.node("n1", a, b, capacity={"nvidia_com_gpu": 4}, ksm=ksm)
        timeline.pod("p", a, b, units=4, **ksm)
    (record,) = attribute(timeline)
    assert hours(record) == {"p": 4.0}
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert record.totals.capacity.node_cost_usd == amount(40)


def test_restart_of_a_replica_doubles_nothing(attribute: Attribute) -> None:
    timeline = Timeline()
    for instance, (a, b) in {"a:8080": (-65, 125), "b:8080": (-65, 20), "c:8080": (22, 125)}.items():
        ksm = {"job": "kube-state-metrics", "instance": instance}
        timeline.up(a, b, instance=instance)
        timeline.node("n1", a, b, capacity={"nvidia_com_gpu": 4}, ksm=ksm)
        timeline.pod("p", a, b, **ksm)
        timeline.pod("short", max(a, 10), min(b, 40), **ksm)
    (record,) = attribute(timeline)
    assert hours(record)["p"] == 1.0
    assert hours(record)["short"] == pytest.approx(30 / 60, abs=2 / 60)


def test_image_pull_counts_as_allocated_waste(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("p", 10, pending=15)
    timeline.device(0.8, 25, gpu=9, exported_pod="p", exported_namespace="team")
    (record,) = attribute(timeline)
    pod_line = line(record, "p")
    assert pod_line.allocated_gpu_hours / SCALE == pytest.approx(50 / 60, abs=2 / 60)
    assert pod_line.effective_gpu_hours is not None
    assert pod_line.effective_gpu_hours / SCALE == pytest.approx(0.8 * 35 / 60, abs=2 / 60)
    assert pod_line.unmeasured_usd == 0


def test_finished_pods_that_remain_hold_nothing(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("done-before", finished_at=-10)
    timeline.pod("done-within", finished_at=20)
    timeline.pod("failed", finished_at=45, phase_end="Failed")
    (record,) = attribute(timeline)
    assert hours(record) == {
        "done-within": pytest.approx(20 / 60, abs=1 / 60),
        "failed": pytest.approx(45 / 60, abs=1 / 60),
    }


def test_unscheduled_pods_hold_nothing(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("waiting", node="")
    (record,) = attribute(timeline)
    assert record.lines == ()


def test_reused_pod_name_is_two_pods(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("p", -65, 20, uid="first")
    timeline.pod("p", 30, 125, uid="second")
    (record,) = attribute(timeline)
    by_uid = {line.uid: line.allocated_gpu_hours / SCALE for line in record.lines}
    assert by_uid == {"first": pytest.approx(20 / 60, abs=1 / 60), "second": pytest.approx(30 / 60, abs=1 / 60)}


def test_nothing_is_held_on_a_node_that_is_gone(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.node("spot", -65, 25, capacity={"nvidia_com_gpu": 1}, labels={"karpenter_sh_capacity_type": "spot"})
    timeline.pod("p", -65, 50, node="spot")
    (record,) = attribute(timeline)
    assert hours(record)["p"] == pytest.approx(25 / 60, abs=1 / 60)
    assert line(record, "p").capacity_type == "spot"


def test_a_booting_node_is_stranded_until_it_advertises(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.node(
        "new",
        10,
        advertised_from=25,
        capacity={"nvidia_com_gpu": 8},
        labels={"node_kubernetes_io_instance_type": "p4d.24xlarge"},
    )
    (record,) = attribute(timeline)
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert record.totals.capacity.stranded_gpu_hours / SCALE == pytest.approx(8 * 15 / 60, abs=16 / 60)
    assert record.totals.capacity.capacity_gpu_hours / SCALE == pytest.approx(4 + 8 * 50 / 60, abs=8 / 60)


MIG = {"node_kubernetes_io_instance_type": "p4d.24xlarge", "nvidia_com_gpu_product": "NVIDIA-A100-SXM4-40GB"}


@pytest.mark.parametrize(
    ("resource", "capacity", "labels", "share"),
    [
        ("nvidia_com_gpu", 56, MIG | {"nvidia_com_gpu_product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, Fraction(1, 7)),
        ("nvidia_com_mig_3g_20gb", 16, MIG, Fraction(1, 2)),
        ("nvidia_com_mig_1g_10gb", 32, MIG, Fraction(1, 4)),
        ("nvidia_com_gpu", 32, MIG | {"nvidia_com_gpu_replicas": "4"}, Fraction(1, 4)),
        ("nvidia_com_gpu_shared", 80, MIG | {"nvidia_com_gpu_replicas": "10"}, Fraction(1, 10)),
        ("nvidia_com_gpu", 8, MIG, Fraction(1)),
        ("nvidia_com_gpu", 56, {"node_kubernetes_io_instance_type": "p4d.24xlarge"}, Fraction(1, 7)),
    ],
)
def test_gpu_share_of_a_unit(
    attribute: Attribute, resource: str, capacity: int, labels: dict[str, str], share: Fraction
) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={resource: capacity}, labels=labels)
    timeline.pod("p", units=2, resource=resource)
    (record,) = attribute(timeline)
    assert line(record, "p").allocated_gpu_hours / SCALE == pytest.approx(float(2 * share), rel=1e-11)
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert record.totals.capacity.node_cost_usd == amount(80)


def test_largest_init_container_counts_if_it_requests_more(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("p", units=1)
    pod_labels = {
        "namespace": "team",
        "pod": "p",
        "uid": "uid-p",
        "job": "kube-state-metrics",
        "instance": "10.0.0.1:8080",
    }
    more = {"node": "n1", "resource": "nvidia_com_gpu", "unit": "integer"}
    timeline.add("kube_pod_container_resource_requests", container="second", value=1, **pod_labels, **more)
    timeline.add("kube_pod_init_container_resource_requests", container="warm-up", value=3, **pod_labels, **more)
    (record,) = attribute(timeline)
    assert hours(record) == {"p": 3.0}


def test_clusters_in_the_same_workspace_do_not_mix(attribute: Attribute) -> None:
    timeline = fleet(cluster="mine")
    timeline.pod("p")
    other = fleet(cluster="other")
    other.pod("q", units=4)
    for metric, rows in other.families.items():
        timeline.families[metric] += rows
    (record,) = attribute(timeline, cluster="selector: {cluster: mine}")
    assert hours(record) == {"p": 1.0}


def test_without_up_the_densest_series_is_the_heartbeat(attribute: Attribute) -> None:
    timeline = Timeline()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.pod("p")
    timeline.pod("short", 10, 20)
    (record,) = attribute(timeline)
    assert hours(record) == {"p": 1.0, "short": pytest.approx(10 / 60, abs=1 / 60)}


def test_a_cluster_scaled_to_zero_is_complete_and_costs_nothing(attribute: Attribute) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.node("cpu-only")
    (record,) = attribute(timeline)
    assert record.status == "complete"
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert record.totals.capacity.node_cost_usd == 0
    assert record.coverage is not None
    assert record.coverage.utilization is None


def test_hour_without_samples_is_incomplete_and_has_no_figures(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("p")
    (record,) = attribute(timeline, start=-3)
    assert (record.status, record.totals, record.lines) == ("incomplete", None, ())
    assert record.notes == ("Prometheus has no samples of kube-state-metrics in this hour",)


def test_allocation_above_capacity_shows_as_residual(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("p", units=3)
    timeline.pod("q", units=3)
    (record,) = attribute(timeline)
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert line(record, "p").allocated_usd == amount(30)
    assert record.totals.capacity.residual_usd == amount(-20)
    note = "suspect samples: pods hold 2.000 GPU-hours more of node 'n1' than it has; its residual is negative"
    assert note in record.notes


def test_business_units_by_pattern_and_label(attribute: Attribute) -> None:
    timeline = fleet()
    names = {"research-1": "p1", "labelled": "p2", "neither": "p3"}
    for namespace, pod in names.items():
        timeline.pod(pod, namespace=namespace)
    timeline.add("kube_namespace_labels", namespace="labelled", label_team="vision", job="k", instance="10.0.0.1:8080")
    (record,) = attribute(
        timeline,
        "business_units: [{name: research, namespaces: ['research-*']},"
        " {name: vision, namespace_labels: {team: vision}}]",
    )
    assert {line.pod: line.business_unit for line in record.lines} == {
        "p1": "research",
        "p2": "vision",
        "p3": "neither",
    }


def test_workloads_are_named_after_the_top_owner(attribute: Attribute) -> None:
    timeline = fleet()
    ksm = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}
    for pod, end in (("web-1", 125), ("train-1", 30)):
        timeline.pod(pod, -65, end)
    timeline.add(
        "kube_pod_owner",
        namespace="team",
        pod="web-1",
        uid="uid-web-1",
        owner_kind="ReplicaSet",
        owner_name="web-7d9",
        **ksm,
    )
    timeline.add(
        "kube_replicaset_owner",
        namespace="team",
        replicaset="web-7d9",
        owner_kind="Deployment",
        owner_name="web",
        **ksm,
    )
    timeline.add(
        "kube_pod_owner",
        -65,
        30,
        namespace="team",
        pod="train-1",
        uid="uid-train-1",
        owner_kind="Job",
        owner_name="train",
        **ksm,
    )
    (record,) = attribute(timeline)
    assert {(line.workload_kind, line.workload) for line in record.lines} == {("Deployment", "web"), ("Job", "train")}


def test_special_characters_in_names_are_escaped(attribute: Attribute) -> None:
    odd = 'a"b\\c\n<script>{}'
    timeline = fleet(cluster=odd)
    timeline.pod("p", 10, 20, uid=f"uid {odd}", namespace=odd)
    (record,) = attribute(timeline, cluster='selector: {cluster: "a\\"b\\\\c\\n<script>{}"}')
    assert [(line.namespace, line.uid) for line in record.lines] == [(odd, f"uid {odd}")]
    assert hours(record)["p"] == pytest.approx(10 / 60, abs=1 / 60)


@pytest.mark.parametrize("odd", ["NaN", "-1", "1.5", "+Inf"])
def test_invalid_request_only_affects_its_line(attribute: Attribute, odd: str) -> None:
    timeline = fleet()
    timeline.pod("p")
    pod_labels = {
        "namespace": "team",
        "pod": "q",
        "uid": "uid-q",
        "job": "kube-state-metrics",
        "instance": "10.0.0.1:8080",
    }
    request = {"container": "main", "node": "n1", "resource": "nvidia_com_gpu", "unit": "integer"}
    timeline.add("kube_pod_container_resource_requests", value=odd, **pod_labels, **request)
    (record,) = attribute(timeline)
    assert hours(record) == {"p": 1.0}
    assert any("container main of pod team/q requests" in note for note in record.notes)
