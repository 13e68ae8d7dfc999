"""The recorded hour without something that real sites lack, or with something that they have otherwise.

All variants are in one Prometheus, each as a cluster. Its storage has no markers of ended series.
"""

from collections.abc import Iterator

import pytest

from gpucost.core.amounts import SCALE, CapacityCosts
from gpucost.core.hours import HOUR_MS
from gpucost.pipeline.attribute import AttributedHour
from tests.recorded_hour.recording import (
    SCRAPE,
    attribute,
    gpu_hours,
    nodes_of,
    read_series,
    running_variants,
    true_pods,
    unpack,
    wrong_pods,
)
from tests.recorded_hour.transforms import CHANGED, DCGM, KSM, NEURON, READ, RIGHT
from tests.system.metered_hours import assert_identity

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
