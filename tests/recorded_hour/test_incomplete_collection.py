"""The recorded hour without something that real sites lack, or with something that they have otherwise.

All variants are in one Prometheus, each as a cluster. Its storage has no markers of ended series.
"""

from collections.abc import Iterable, Iterator, Mapping

import pytest

from gpucost.core.amounts import SCALE, CapacityCosts
from gpucost.core.hours import HOUR_MS
from gpucost.pipeline.attribute import AttributedHour
from tests.recorded_hour.recording import (
    SCRAPE,
    RecordedSeries,
    Transform,
    attribute,
    gpu_hours,
    nodes_of,
    read_series,
    running_variants,
    true_pods,
    unpack,
    wrong_pods,
)
from tests.system.metered_hours import assert_identity

KSM, DCGM, NEURON = "kube-state-metrics", "dcgm-exporter", "neuron-monitor"
READ = (
    "kube_pod_container_resource_requests", "kube_pod_init_container", "kube_pod_status_phase", "kube_pod_owner",
    "kube_pod_resourceclaim_info", "kube_pod_completion_time", "kube_pod_status_scheduled_time", "kube_node",
    "kube_replicaset_owner", "kube_job_owner", "kube_namespace_labels", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "neuroncore_",
    "up",
)  # fmt: skip


def without_families(*names: str) -> Transform:
    return lambda series: [] if series.name in names else [series]


def without_labels(*names: str) -> Transform:
    return lambda series: [series.without(*names)]


def with_exported_labels(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """As with `honorLabels: false`: the target's own labels take the names."""
    of_target = {"namespace": "monitoring", "pod": "exporter-0", "node": "elsewhere", "container": "exporter"}
    if series.name == "up":
        return [series.relabeled(**of_target)]
    exported = {f"exported_{name}": series.labels[name] for name in of_target if name in series.labels}
    return [series.relabeled(**of_target, **exported)]


def with_other_jobs(series: RecordedSeries) -> Iterable[RecordedSeries]:
    return [series.relabeled(job=f"monitoring/{series.labels['job']}-0")]


def every_minute(series: RecordedSeries) -> Iterable[RecordedSeries]:
    return [series.during(lambda minute: minute % 1 < 0.5)]


def of_two_instances(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """Two instances of kube-state-metrics, each scraped once a minute, 30 seconds apart."""
    if series.labels["job"] != KSM:
        return [series]
    first, second = _divided(series)
    return [first, second.relabeled(instance="10.0.0.2:8080")]


def moved(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """At minute 25, kube-state-metrics moves to another address, with a gap of two minutes."""
    if series.labels["job"] != KSM:
        return [series]
    successor = series.relabeled(instance="10.0.0.2:8080")
    return [series.during(lambda minute: minute < 24), successor.during(lambda minute: minute >= 26)]


def of_two_replicas(series: RecordedSeries) -> Iterable[RecordedSeries]:
    first, second = _divided(series)
    return [first.relabeled(prometheus_replica="a"), second.relabeled(prometheus_replica="b")]


def _divided(series: RecordedSeries) -> tuple[RecordedSeries, RecordedSeries]:
    """Every other sample, and the rest."""
    return series.during(lambda minute: minute % 1 < 0.5), series.during(lambda minute: minute % 1 >= 0.5)


def with_gap_of(job: str) -> Transform:
    def transform(series: RecordedSeries) -> Iterable[RecordedSeries]:
        if series.labels["job"] != job:
            return [series]
        return [series.during(lambda minute: not 30 <= minute < 40)]

    return transform


def without_slots(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """No labels or sizes of nodes, and an exporter without virtual GPUs: a shared GPU has the label of one pod."""
    is_size = series.labels.get("resource") in {"cpu", "memory"} and series.name == "kube_node_status_capacity"
    if series.name == "kube_node_labels" or is_size or series.labels.get("vgpu", "0") != "0":
        return []
    return [series.without("vgpu")]


def without_watched_pods(series: RecordedSeries) -> Iterable[RecordedSeries]:
    """The GPUs that the admin claim sees are all idle."""
    return [] if series.labels.get("pod", "").startswith("dra-watched") else [series]


RIGHT: Mapping[str, Transform] = {
    "as-recorded": lambda series: [series],
    "exported-labels": with_exported_labels,
    "other-jobs": with_other_jobs,
    "no-claim-info": without_families("kube_pod_resourceclaim_info"),
    "no-times": without_families("kube_pod_completion_time", "kube_pod_status_scheduled_time"),
    "no-up": without_families("up"),
    "two-instances": of_two_instances,
    "two-replicas": of_two_replicas,
}
"""What changes no pod's GPU-hours."""
CHANGED: Mapping[str, Transform] = {
    "no-uids": without_labels("uid", "pod_uid"),
    "every-minute": every_minute,
    "moved": moved,
    "gap-of-allocation": with_gap_of(KSM),
    "gap-of-utilization": with_gap_of(DCGM),
    "no-node-labels": without_families("kube_node_labels"),
    "no-node-labels-no-slots": without_slots,
    "no-claim-labels": without_labels(
        "dra_claim_name", "dra_claim_namespace", "dra_device_name", "dra_driver_name", "dra_pool_name"
    ),
    "no-phases": without_families("kube_pod_status_phase"),
    "only-admin-claims": without_watched_pods,
    "no-admin-label": without_labels("label_resource_kubernetes_io_admin_access"),
}
VARIANTS = {**RIGHT, **CHANGED}


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, AttributedHour]]:
    recorded = read_series(unpack(tmp_path_factory.mktemp("variants")), (KSM, DCGM, NEURON))
    with running_variants((series for series in recorded if series.name.startswith(READ)), VARIANTS) as url:
        yield {variant: attribute(url, variant) for variant in VARIANTS}


@pytest.fixture
def hour(hours: dict[str, AttributedHour], request: pytest.FixtureRequest) -> AttributedHour:
    return hours[request.param]


def variant(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("hour", [name], indirect=True)


def wrong_names(hour: AttributedHour, scrape: float = SCRAPE) -> set[str]:
    pods = true_pods()
    return {pods[uid].pod if uid in pods else uid for uid in wrong_pods(hour, scrape)}


def capacity_of(hour: AttributedHour, node: str) -> dict[str, float]:
    """GPU-hours of a node by part."""
    usage = nodes_of(hour)[node]
    parts = ("unallocated", "stranded", "unobserved", "excess")
    return {part: round(float(getattr(usage, f"{part}_gpu_ms") / HOUR_MS), 3) for part in parts}


def capacity(hour: AttributedHour) -> CapacityCosts:
    assert hour.record.totals is not None
    assert hour.record.totals.capacity is not None
    return hour.record.totals.capacity


def unknown(hour: AttributedHour) -> list[str]:
    return [note for note in hour.record.notes if note.startswith("unknown: ")]


@pytest.mark.parametrize("hour", [name for name in VARIANTS if name != "no-uids"], indirect=True)
def test_parts_add_up_and_no_sample_is_suspect(hour: AttributedHour) -> None:
    assert_identity(hour.record)
    assert hour.record.status == "complete"
    assert not [note for note in hour.record.notes if note.startswith("suspect")]
    assert not any(usage.excess_gpu_ms for usage in nodes_of(hour).values())


@pytest.mark.parametrize("hour", RIGHT, indirect=True)
def test_every_pod_holds_what_it_held(hour: AttributedHour) -> None:
    assert wrong_names(hour) == set()
    assert unknown(hour) == []


@variant("no-uids")
def test_pods_without_uids_are_known_by_name(hour: AttributedHour) -> None:
    """Three pods named desk-0 are on three nodes: what they hold is unobserved with a note."""
    assert_identity(hour.record)
    assert [note for note in hour.record.notes if "desk-0" in note]
    by_name: dict[str, float] = {}
    for line in hour.record.lines:
        name = f"{line.namespace}/{line.pod}"
        by_name[name] = by_name.get(name, 0) + line.allocated_gpu_hours / SCALE
    for truth in true_pods().values():
        if truth.pod != "desk-0":
            tolerance = truth.gpus * truth.edges * SCRAPE + 1e-5
            assert by_name.get(f"{truth.namespace}/{truth.pod}", 0) == pytest.approx(truth.gpu_hours, abs=tolerance)


@variant("every-minute")
def test_scrapes_once_a_minute_are_right_to_a_minute(hour: AttributedHour) -> None:
    assert wrong_names(hour, scrape=1 / 60) == set()


@variant("moved")
def test_instance_that_moves_is_right_to_its_gap(hour: AttributedHour) -> None:
    assert wrong_names(hour, scrape=2.5 / 60) == set()


@variant("gap-of-allocation")
def test_ten_minutes_without_allocation_are_unobserved_with_a_note(hour: AttributedHour) -> None:
    assert capacity(hour).unobserved_usd > 0
    assert any("no scrapes from" in note for note in hour.record.notes)
    assert wrong_names(hour, scrape=10 / 60) == set()


@variant("gap-of-utilization")
def test_ten_minutes_without_utilization_are_unmeasured(hour: AttributedHour) -> None:
    unmeasured = sum(line.unmeasured_gpu_hours for line in hour.record.lines) / SCALE
    assert unmeasured > sum(gpu_hours(hour).values()) / 8


@variant("no-node-labels")
def test_shared_gpus_without_node_labels_are_those_of_the_exporter(hour: AttributedHour) -> None:
    """The exporter reports 4 devices for the 16 units that the node advertises."""
    on_node = {line.pod: line for line in hour.record.lines if line.node == "al-ts-1"}
    assert len(on_node) == 8
    assert all(line.gpu_share * 4 == 1 for line in on_node.values())
    assert not wrong_names(hour) & set(on_node)


@variant("no-node-labels-no-slots")
def test_shared_gpus_without_node_labels_and_slots_are_those_of_the_exporter(hour: AttributedHour) -> None:
    on_node = {line.pod: line for line in hour.record.lines if line.node == "al-ts-1"}
    assert len(on_node) == 8
    assert all(line.gpu_share * 4 == 1 for line in on_node.values())
    assert not wrong_names(hour) & set(on_node)
    assert any("the first is 'al-ts-1': 16 and 4). They count as shared" in note for note in hour.record.notes)


@variant("no-claim-labels")
def test_gpus_that_claims_may_hold_are_unobserved(hour: AttributedHour) -> None:
    assert capacity_of(hour, "al-dra-2") == {"unallocated": 0, "stranded": 0, "unobserved": 8, "excess": 0}
    assert capacity_of(hour, "al-dra-1") == {"unallocated": 0, "stranded": 0, "unobserved": 7, "excess": 0}
    (note,) = unknown(hour)
    assert "pods with ResourceClaims of which no metric says what they allocate" in note
    assert "KUBERNETES_ENABLE_DRA" in note
    assert all(name.startswith(("dra-", "claims-")) for name in wrong_names(hour))


@variant("no-phases")
def test_pods_without_phases_end_when_they_completed(hour: AttributedHour) -> None:
    assert wrong_names(hour) == set()
    (note,) = unknown(hour)
    assert "pods without samples of kube_pod_status_phase" in note


@variant("only-admin-claims")
def test_gpus_that_only_claims_with_the_label_have_are_held_with_a_note(hour: AttributedHour) -> None:
    """The namespace may also have ordinary claims, whose cost must not be lost."""
    (line,) = [line for line in hour.record.lines if line.node == "al-dra-2"]
    assert (line.namespace, line.allocated_gpu_hours) == ("al-infra", 8 * SCALE)
    assert unknown(hour) == [
        "unknown: 8 devices of node 'al-dra-2' are allocated only to claims of namespaces with the label "
        "resource.kubernetes.io/admin-access. No metric says whether these claims have adminAccess, so they count as "
        "held"
    ]


@variant("no-admin-label")
def test_claims_on_one_device_hold_no_more_than_it_and_the_note_names_the_label(hour: AttributedHour) -> None:
    """The monitor has half of each GPU that another claim has, and the others whole."""
    (note,) = unknown(hour)
    assert "3 devices of node 'al-dra-2' are each allocated to several claims" in note
    assert "resource.kubernetes.io/admin-access" in note
    held = [line.allocated_gpu_hours / SCALE for line in hour.record.lines if line.node == "al-dra-2"]
    assert sorted(held) == pytest.approx([0.5, 0.5, 0.5, 6.5])
