"""Utilization and devices through a real Prometheus, with figures computed by hand."""

from decimal import Decimal

import pytest

from gpucost.core.amounts import SCALE
from gpucost.core.hour_record import HourRecord
from tests.records import amount
from tests.system.metered_hours import Attribute, fleet, hours, line
from tests.system.timeline import HOUR, Timeline


def test_use_is_measured_per_pod_over_its_devices(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("p", units=2)
    timeline.device(0.5, gpu=10, exported_pod="p", exported_namespace="team")
    timeline.device(0.1, gpu=11, exported_pod="p", exported_namespace="team")
    (record,) = attribute(timeline)
    pod_line = line(record, "p")
    assert (pod_line.utilization, pod_line.utilization_source) == (Decimal("0.3"), "pod")
    assert pod_line.effective_gpu_hours == amount("0.6")
    assert pod_line.effective_usd == amount(6)


def test_unobserved_use_is_unmeasured_not_waste(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("seen")
    timeline.pod("unseen")
    timeline.pod("half")
    timeline.device(0.25, gpu=10, exported_pod="seen", exported_namespace="team")
    timeline.device(0.5, -65, 30, gpu=11, exported_pod="half", exported_namespace="team")
    (record,) = attribute(timeline)
    assert line(record, "seen").effective_gpu_hours == amount("0.25")
    unseen = line(record, "unseen")
    assert unseen.effective_usd is None
    assert unseen.waste_usd is None
    assert unseen.unmeasured_usd == amount(10)
    assert unseen.utilization_source == "none"
    shared_line = line(record, "half")
    assert (shared_line.unmeasured_usd or 0) / SCALE == pytest.approx(5, abs=0.2)
    assert shared_line.effective_usd is not None
    assert shared_line.effective_usd / SCALE == pytest.approx(2.5, abs=0.2)


def test_values_above_1_are_capped_and_nan_is_not_a_measurement(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("busy")
    timeline.pod("broken")
    timeline.device(1.7, gpu=10, exported_pod="busy", exported_namespace="team")
    timeline.device("NaN", gpu=11, exported_pod="broken", exported_namespace="team")
    (record,) = attribute(timeline)
    assert line(record, "busy").effective_gpu_hours == amount(1)
    assert line(record, "broken").effective_gpu_hours is None
    assert any("broken" in note for note in record.notes)


@pytest.mark.parametrize(
    "labels",
    [
        {"exported_pod": "p", "exported_namespace": "team", "pod": "dcgm-exporter-x", "namespace": "gpu-operator"},
        {"pod": "p", "namespace": "team"},
        {"pod": "p", "namespace": "team", "pod_uid": "uid-p"},
    ],
)
def test_workload_is_recognized_under_all_scrape_labels(attribute: Attribute, labels: dict[str, str]) -> None:
    timeline = fleet()
    timeline.pod("p")
    timeline.device(0.4, gpu=10, **labels)
    timeline.device(0.9, gpu=11, pod="dcgm-exporter-x", namespace="gpu-operator")
    (record,) = attribute(timeline)
    assert line(record, "p").effective_gpu_hours == amount("0.4")


def test_sharers_split_the_utilization_of_their_device(attribute: Attribute) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 4}, labels={"nvidia_com_gpu_replicas": "4", "nvidia_com_gpu_count": "1"})
    for name in ("a", "b"):
        timeline.pod(name)
        timeline.device(0.3, exported_pod=name, exported_namespace="team")
    (record,) = attribute(timeline)
    assert hours(record) == {"a": 0.25, "b": 0.25}
    assert [line(record, name).effective_gpu_hours for name in "ab"] == [amount("0.15")] * 2
    assert line(record, "a").utilization_source == "shared"


def test_successive_pods_on_a_gpu_are_not_sharing(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("first", -65, 30)
    timeline.pod("then", 30, 125)
    timeline.device(0.2, -65, 30, gpu=10, exported_pod="first", exported_namespace="team")
    timeline.device(0.8, 30, 125, gpu=10, exported_pod="then", exported_namespace="team")
    (record,) = attribute(timeline)
    assert {line.utilization_source for line in record.lines} == {"pod"}
    assert (line(record, "then").effective_gpu_hours or 0) / SCALE == pytest.approx(0.4, abs=0.02)


def test_gpus_missing_in_the_exporter_do_not_change_the_cost_of_others(attribute: Attribute) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 8})
    for i in range(4):
        timeline.pod(f"p{i}")
        timeline.device(0.5, gpu=i, exported_pod=f"p{i}", exported_namespace="team")
    (record,) = attribute(timeline)
    assert set(hours(record).values()) == {1.0}
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert record.totals.capacity.unallocated_gpu_hours == amount(4)


def test_device_replaced_within_the_hour_counts_as_the_same_device(attribute: Attribute) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 1})
    timeline.pod("p")
    timeline.device(0.4, -65, 30, gpu=0, exported_pod="p", exported_namespace="team")
    timeline.device(0.4, 30, 125, gpu=1, exported_pod="p", exported_namespace="team")
    (record,) = attribute(timeline)
    assert (line(record, "p").effective_gpu_hours or 0) / SCALE == pytest.approx(0.4, abs=0.01)
    assert line(record, "p").unmeasured_gpu_hours == 0


def test_device_scraped_by_two_jobs_counts_once(attribute: Attribute) -> None:
    timeline = fleet()
    timeline.pod("p")
    for job in ("a", "b"):
        labels = {"UUID": "GPU-x", "Hostname": "n1", "job": job, "instance": "n1:9400", "gpu": "9"}
        workload = {"exported_pod": "p", "exported_namespace": "team"}
        timeline.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", -65, 30, 0.8, **labels, **workload)
    (record,) = attribute(timeline)
    assert (line(record, "p").effective_gpu_hours or 0) / SCALE == pytest.approx(0.4, abs=0.02)
    assert line(record, "p").unmeasured_gpu_hours / SCALE == pytest.approx(0.5, abs=0.02)


def test_prometheus_replicas_do_not_shorten_the_interval(attribute: Attribute) -> None:
    timeline = Timeline()
    for replica, phase in (("r0", 0.0), ("r1", 20.0)):
        timeline.phase = phase
        ksm = {"prometheus_replica": replica}
        timeline.add("up", job="kube-state-metrics", instance="10.0.0.1:8080", **ksm)
        timeline.pod("p", -65, 30, **ksm)
        timeline.device(0.5, -65, 30, exported_pod="p", exported_namespace="team", **ksm)
        timeline.add("up", job="dcgm-exporter", instance="n1:9400", **ksm)
    (record,) = attribute(timeline)
    assert record.coverage is not None
    assert record.coverage.allocation == 1
    assert (line(record, "p").effective_gpu_hours or 0) / SCALE == pytest.approx(0.25, abs=0.02)


def test_overwritten_labels_are_read_under_exported_names(attribute: Attribute) -> None:
    timeline = Timeline()
    timeline.up()
    scrape = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080", "namespace": "monitoring", "pod": "ksm-0"}
    container_labels = {
        "container": "ksm",
        "node": "ksm-node",
        "resource": "nvidia_com_gpu",
        "unit": "integer",
        **scrape,
    }
    for pod, start, end in (("x", -65, 30), ("y", 30, 125)):
        workload = {"exported_namespace": "team", "exported_pod": pod, "exported_node": "n1"}
        timeline.add("kube_pod_container_resource_requests", start, end, 1, **container_labels, **workload)
        timeline.add("kube_pod_status_phase", start, end, 1, phase="Running", **scrape, **workload)
    waiting = {"exported_namespace": "team", "exported_pod": "waiting"}
    timeline.add("kube_pod_container_resource_requests", -65, 125, 1, **container_labels, **waiting)
    (record,) = attribute(timeline)
    assert hours(record) == {"x": pytest.approx(0.5, abs=0.02), "y": pytest.approx(0.5, abs=0.02)}
    assert {line.node for line in record.lines} == {"n1"}


def test_unknown_mig_profile_is_charged_by_compute_slices_with_a_note(attribute: Attribute) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_mig_2g_99gb": 3}, labels={"nvidia_com_gpu_product": "NVIDIA-X900"})
    timeline.pod("p", resource="nvidia_com_mig_2g_99gb")
    (record,) = attribute(timeline)
    assert hours(record)["p"] == pytest.approx(2 / 7, rel=1e-9)
    assert line(record, "p").gpu_share_source == "mig-compute-slices"
    assert any("estimated" in note for note in record.notes)


def test_partly_observed_sharer_is_credited_at_most_its_allocation(attribute: Attribute) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 4}, labels={"nvidia_com_gpu_replicas": "4", "nvidia_com_gpu_count": "1"})
    timeline.pod("greedy")
    timeline.device(1.0, -65, 30, exported_pod="greedy", exported_namespace="team")
    (record,) = attribute(timeline)
    pod_line = line(record, "greedy")
    assert (pod_line.effective_gpu_hours or 0) / SCALE == pytest.approx(0.125, abs=0.01)
    assert pod_line.unmeasured_gpu_hours / SCALE == pytest.approx(0.125, abs=0.01)


def test_signal_is_chosen_for_each_device_of_a_node(attribute: Attribute) -> None:
    """A card without profiling counters next to one that has them, as a consumer card or a part of an L4."""
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    for gpu, name in enumerate(("profiled", "plain")):
        timeline.pod(name)
        labels = {"exported_pod": name, "exported_namespace": "team"}
        timeline.device(90, gpu=gpu, signal="DCGM_FI_DEV_GPU_UTIL", **labels)
    timeline.device(0.25, gpu=0, exported_pod="profiled", exported_namespace="team")
    (record,) = attribute(timeline)
    assert (line(record, "profiled").utilization, line(record, "plain").utilization) == (
        Decimal("0.25"),
        Decimal("0.9"),
    )
    assert record.totals is not None
    assert record.totals.costs.unmeasured_usd == 0
    assert notes_of(record) == (
        "utilization of 1 GPUs of node 'n1' is from DCGM_FI_DEV_GPU_UTIL, because they have no "
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE, which other GPUs of the same node have",
    )


def test_processes_of_a_node_with_different_cards_divide_both(attribute: Attribute) -> None:
    """The signal of processes is a lower rank: its table lacks the card that has a better signal."""
    timeline = Timeline()
    timeline.up()
    timeline.node(
        capacity={"nvidia_com_gpu": 4},
        labels={"nvidia_com_gpu_replicas": "2", "nvidia_com_gpu_count": "2", "nvidia_com_gpu_sharing_strategy": "mps"},
    )
    for number in range(4):
        name, gpu, slot = f"p{number}", number // 2, str(number % 2)
        timeline.pod(name)
        labels = {"exported_pod": name, "exported_namespace": "team", "pod_uid": f"uid-{name}", "vgpu": slot}
        timeline.device(60 if slot == "0" else 20, gpu=gpu, signal="DCGM_FI_DEV_GPU_UTIL", **labels)
        if gpu == 0:
            timeline.device(0.8, gpu=0, exported_pod=name, exported_namespace="team", vgpu=slot)
    for gpu in range(2):
        timeline.device(80, gpu=gpu, signal="DCGM_FI_DEV_GPU_UTIL")
    (record,) = attribute(timeline)
    lines = [line(record, f"p{number}") for number in range(4)]
    assert {pod_line.utilization_source for pod_line in lines} == {"process"}
    assert [pod_line.effective_gpu_hours for pod_line in lines] == [
        amount("0.5"),
        amount("0.2"),
        amount("0.5"),
        amount("0.2"),
    ]


BUSY_DEVICE, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
MEASURED_BY_DEVICE = "utilization: {on_contradiction: device}"


def idle_by_profiling(*, busy: float, watts: tuple[float, float] = (70, 70)) -> Timeline:
    """A node whose two held GPUs have a profiling signal of 0; another signal, and power before and in the hour."""
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    for gpu in range(2):
        timeline.pod(f"p{gpu}")
        labels = {"exported_pod": f"p{gpu}", "exported_namespace": "team"}
        timeline.device(0, gpu=gpu, **labels)
        timeline.device(busy, gpu=gpu, signal=BUSY_DEVICE, **labels)
        timeline.device(watts[0], -65, 0, gpu=gpu, signal=POWER, **labels)
        timeline.device(watts[1], 0, gpu=gpu, signal=POWER, **labels)
    return timeline


@pytest.mark.parametrize(
    ("timeline", "statement"),
    [
        (idle_by_profiling(busy=99), "DCGM_FI_DEV_GPU_UTIL says that they are in use"),
        (
            idle_by_profiling(busy=0, watts=(70, 300)),
            "they draw at least twice the power of their lowest hour of the day",
        ),
    ],
    ids=["device utilization", "power"],
)
def test_signal_of_zero_that_a_witness_contradicts_is_unmeasured(
    attribute: Attribute, timeline: Timeline, statement: str
) -> None:
    (record,) = attribute(timeline)
    assert record.totals is not None
    costs = record.totals.costs
    assert (costs.allocated_usd, costs.unmeasured_usd, costs.waste_usd) == (amount(20), amount(20), 0)
    (note,) = notes_of(record)
    assert note.startswith(f"the utilization signal of 2 GPUs of node 'n1' is 0 all hour, although {statement}: their ")
    assert record.status == "complete"


def test_gpu_that_is_idle_for_every_witness_stays_waste(attribute: Attribute) -> None:
    (record,) = attribute(idle_by_profiling(busy=3, watts=(70, 80)))
    assert record.totals is not None
    assert (record.totals.costs.waste_usd, record.totals.costs.unmeasured_usd) == (amount(20), 0)
    assert notes_of(record) == ()


def test_settings_let_the_witness_measure(attribute: Attribute) -> None:
    (record,) = attribute(idle_by_profiling(busy=60), more=MEASURED_BY_DEVICE)
    assert [pod_line.utilization for pod_line in record.lines] == [Decimal("0.6"), Decimal("0.6")]
    assert record.totals is not None
    assert record.totals.costs.unmeasured_usd == 0
    (note,) = notes_of(record)
    assert "DCGM_FI_DEV_GPU_UTIL says that they are in use: they are measured by the latter" in note


OTHER_VENDORS = pytest.mark.parametrize(
    ("resource", "signal", "power", "device", "labels"),
    [
        (
            "amd_com_gpu",
            "gpu_gfx_activity",
            "gpu_package_power",
            {"serial_number": "1", "gpu_id": "0"},
            {"exported_pod": "p", "exported_namespace": "team"},
        ),
        (
            "amd_com_gpu",
            "amd_gpu_gfx_activity",
            "amd_gpu_power_usage",
            {"serial_number": "1", "gpu_id": "0"},
            {"exported_pod": "p", "exported_namespace": "team"},
        ),
        (
            "habana_ai_gaudi",
            "habanalabs_utilization",
            "habanalabs_power_mW",
            {"UUID": "g-0"},
            {"pod_name": "p", "pod_namespace": "team"},
        ),
        ("gpu_intel_com_xe", "hw_gpu_utilization_ratio", "hw_power_watts", {"pci_bdf": "0000:03:00.0"}, {}),
    ],
    ids=["AMD", "AMD with a prefix", "Gaudi", "Intel"],
)


@OTHER_VENDORS
@pytest.mark.parametrize(("factor", "is_contradiction"), [(3, True), (1.5, False)])
def test_power_is_the_witness_of_other_vendors(
    attribute: Attribute,
    resource: str,
    signal: str,
    power: str,
    device: dict[str, str],
    labels: dict[str, str],
    factor: float,
    is_contradiction: bool,
) -> None:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={resource: 1})
    timeline.pod("p", resource=resource)
    of_node = {**device, **labels, "node": "n1", "job": "exporter", "instance": "n1:5000"}
    task = {"hw_gpu_task": "all"} if "hw_" in signal else {}
    timeline.add(signal, value=0, **of_node, **task)
    timeline.add(power, -185, 0, 90, **of_node)
    timeline.add(power, value=90 * factor, start=0, **of_node)
    (record,) = attribute(timeline)
    assert (record.lines[0].utilization_source == "none") is is_contradiction
    assert record.lines[0].waste_usd == (None if is_contradiction else amount(10))
    assert any("twice the power" in note and "Restart" in note for note in record.notes) is is_contradiction


def test_signal_is_not_stuck_while_any_held_gpu_of_the_node_has_some_use(attribute: Attribute) -> None:
    """One busy GPU shows that the node's counters work: the other is idle, whatever its coarse signal says."""
    timeline = idle_by_profiling(busy=99)
    timeline.pod("p2")
    timeline.device(0.5, gpu=2, exported_pod="p2", exported_namespace="team")
    (record,) = attribute(timeline)
    assert line(record, "p0").waste_usd == amount(10)
    assert not any("is 0 all hour" in note for note in record.notes)


@pytest.mark.parametrize(
    ("lowest_hour", "is_contradiction"), [(-22, True), (-30, False)], ids=["within the day", "earlier"]
)
def test_power_is_compared_with_the_lowest_hour_of_the_day(
    attribute: Attribute, lowest_hour: int, is_contradiction: bool
) -> None:
    """80 W in the hour and all day, except for an hour of 40 W."""
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 1})
    timeline.pod("p")
    labels = {"exported_pod": "p", "exported_namespace": "team"}
    timeline.device(0, **labels)
    timeline.device(80, -26 * 60, signal=POWER, **labels)
    end = lowest_hour * 60 + 60
    timeline.device(40, lowest_hour * 60, end, signal="DCGM_FI_DEV_BOARD_POWER_WATTS", **labels)
    timeline.families[POWER] = [line for line in timeline.families[POWER] if not lowest_hour * 60 <= minute(line) < end]
    (record,) = attribute(timeline)
    assert (record.lines[0].utilization_source == "none") is is_contradiction


def notes_of(record: HourRecord) -> tuple[str, ...]:
    """The notes of an hour, but that nodes have no labels."""
    return tuple(note for note in record.notes if not note.startswith("the instance type of"))


def minute(line: str) -> float:
    """The minute after the hour's start of a line in OpenMetrics."""
    return (float(line.rsplit(maxsplit=1)[-1]) - HOUR.timestamp()) / 60


@pytest.mark.parametrize(
    ("counter", "joules"), [("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1000), ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1)]
)
def test_energy_is_a_witness_where_power_is_not_collected(attribute: Attribute, counter: str, joules: int) -> None:
    """70 W before the hour, and 300 W in it."""
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 1})
    timeline.pod("p")
    labels = {"exported_pod": "p", "exported_namespace": "team"}
    timeline.device(0, **labels)
    for at in range(-180, 61):
        watt_minutes = 70 * at if at < 0 else 300 * at
        timeline.device((10**6 + watt_minutes * 60) * joules, at, at + 1, signal=counter, **labels)
    (record,) = attribute(timeline)
    assert record.lines[0].utilization_source == "none"
    assert any("twice the power of their lowest hour" in note for note in record.notes)
