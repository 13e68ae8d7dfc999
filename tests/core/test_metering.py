"""Metering: coverage, notes, and effects of settings and missing labels."""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

import pytest
from msgspec.structs import replace

from gpucost.core.hours import HOUR_MS
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import ContainerRequest, DeviceSeries, NodeObservation, NodeState, Observation
from tests.core.single_node_cluster import ALWAYS, GPU, HOUR, MINUTE, START, device, minutes, node, observation, pod


def test_usage_has_cluster_and_keeps_earlier_notes() -> None:
    usage = meter(replace(observation(), pods=(pod(), replace(pod(), uid="v", node="n9"))), MeteringRules())
    assert (usage.cluster, usage.hour) == ("c", HOUR)
    assert usage.notes == ("first", "the number of GPUs of node 'n9' is unknown, so the capacity is unknown")
    assert usage.nodes is None


@pytest.mark.parametrize("invalid", ["NaN", "Infinity", "-Infinity"])
def test_values_that_are_not_numbers_are_unobserved(invalid: str) -> None:
    """They count neither as full use nor as none."""
    samples = tuple((START + minute * MINUTE, Decimal(invalid if minute >= 30 else "0.5")) for minute in range(60))
    usage = meter(observation(devices=(replace(device(), samples=samples),)), MeteringRules())
    (measured,) = usage.pods
    assert measured.use.utilization == Fraction(1, 2)
    assert measured.use.observed_ms == 30 * MINUTE
    assert usage.coverage.utilization == Decimal("0.5")


def test_values_above_full_use_count_as_full_use() -> None:
    """MIG devices exceed it at times, by whole hours or by a sample."""
    samples = tuple((START + minute * MINUTE, Decimal("1.2")) for minute in range(60))
    for exceeding in (device(total="72"), replace(device(), samples=samples)):
        (measured,) = meter(observation(devices=(exceeding,)), MeteringRules()).pods
        assert (measured.use.utilization, measured.effective_gpu_ms) == (Fraction(1), Fraction(HOUR_MS))


def test_notes_on_invalid_values_name_pod_or_node() -> None:
    invalid = replace(device(), samples=((START, Decimal("NaN")),))
    unlabeled = replace(device(labeled=False, total="NaN"), uuid="GPU-1")
    usage = meter(observation(devices=(device(), invalid, unlabeled)), MeteringRules())
    assert usage.notes[:3] == (
        "first",
        "utilization of 'n1' has values that are not numbers; they count as unmeasured",
        "utilization of 'p' has values that are not numbers; they count as unmeasured",
    )


def test_use_without_request_is_noted_in_gpu_hours() -> None:
    usage = meter(replace(observation(devices=(device(labeled=False),)), pods=()), MeteringRules())
    assert usage.notes == ("first", "0.500 GPU-hours were used on node 'n1' that no pod had requested")


def test_use_on_a_node_that_no_other_metric_has_is_noted() -> None:
    elsewhere = replace(device(labeled=False), node="elsewhere")
    usage = meter(observation(devices=(device(), elsewhere)), MeteringRules())
    assert "0.500 GPU-hours were used on node 'elsewhere' that no pod had requested" in usage.notes


@pytest.mark.parametrize(("total", "notes"), [("0.6", 1), ("0.59", 0)])
def test_use_without_request_is_noted_from_a_hundredth_of_a_gpu_hour_on(total: str, notes: int) -> None:
    """The mean of the sixty samples is 0.01 for a sum of 0.6."""
    usage = meter(replace(observation(devices=(device(total=total, labeled=False),)), pods=()), MeteringRules())
    note = "0.010 GPU-hours were used on node 'n1' that no pod had requested"
    assert usage.notes == ("first", *[note] * notes)


@pytest.mark.parametrize(("seconds", "notes"), [(36, 1), (35, 0)])
def test_excess_is_noted_from_a_hundredth_of_a_gpu_hour_on(seconds: int, notes: int) -> None:
    """A second pod has a single sample on a node of one GPU, so it holds the GPU for one scrape interval."""
    step = seconds * 1000
    scrapes = Scrapes(tuple(range(START - 100 * step, START + 200 * step, step)))
    second = replace(pod(), pod="q", uid="q", held_samples={"k": (START + step,)})
    crowded = replace(observation(nodes=(node(1),)), allocation_scrapes={"k": scrapes}, pods=(pod(), second))
    usage = meter(crowded, MeteringRules())
    (usage_of_node,) = usage.nodes or ()
    assert usage_of_node.excess_gpu_ms == step
    note = "suspect samples: pods hold 0.010 GPU-hours more of node 'n1' than it has; its residual is negative"
    assert usage.notes == (*[note] * notes, "first")


def test_use_after_pod_ended_is_noted_as_not_requested() -> None:
    scrapes = {"k": tuple(START + minute * MINUTE for minute in range(-60, 30))}
    gone = replace(pod(), held_samples=scrapes, running_samples=scrapes)
    usage = meter(replace(observation(devices=(device(),)), pods=(gone,)), MeteringRules())
    assert usage.notes == ("first", "0.250 GPU-hours were used on node 'n1' that no pod had requested")
    assert usage.pods[0].held.length == 30 * MINUTE


def test_device_is_observed_while_any_of_its_exporters_is_scraped() -> None:
    thirty_minutes = Scrapes(minutes(0, 30))
    both = (device(), replace(device(sample_count=30, total="15"), scrape_target="e"))
    for order in (both, both[::-1]):
        usage = meter(
            replace(observation(devices=order), utilization_scrapes={"d": ALWAYS, "e": thirty_minutes}), MeteringRules()
        )
        assert usage.pods[0].use.observed_ms == HOUR_MS


def sampled_device(uuid: str, use: str, *labeled: tuple[int, int], until: int = 60) -> tuple[DeviceSeries, ...]:
    """A device's samples, labeled with the pod in some minutes and unlabeled in the others."""
    labeled_minutes = {minute for first, last in labeled for minute in minutes(first, last)}
    samples = [(minute, Decimal(use)) for minute in minutes(-5, until)]
    return tuple(
        replace(
            device(labeled=is_labeled),
            uuid=uuid,
            samples=tuple(sample for sample in samples if (sample[0] in labeled_minutes) == is_labeled),
        )
        for is_labeled in (True, False)
    )


def test_node_average_uses_only_devices_without_pod() -> None:
    pods = (pod(), replace(pod(), pod="q", uid="q"))
    devices = (device(), replace(device(total="6", labeled=False), uuid="GPU-1"))
    usage = meter(replace(observation(devices=devices), pods=pods), MeteringRules(("pod", "node")))
    uses = [(pod_usage.use.source, pod_usage.use.utilization) for pod_usage in usage.pods]
    assert uses == [("pod", Fraction(1, 2)), ("node", Fraction(1, 10))]


def test_device_of_pod_measured_by_average_stays_in_averages() -> None:
    late = replace(pod(), held_samples={"k": minutes(30, 60)}, running_samples={"k": minutes(30, 60)})
    elsewhere = replace(pod(), pod="q", uid="q", node="n2")
    nodes = (node(), replace(node(), name="n2", provider_id="i-2"))
    devices = sampled_device(
        "GPU-0", "0.25", (0, 20), until=25
    )  # labeled with the pod before it ran, without samples after it
    observed = replace(observation(devices=devices, nodes=nodes), pods=(late, elsewhere))
    usage = meter(observed, MeteringRules(("pod", "node", "cluster")))
    uses = [(pod_usage.use.source, pod_usage.use.utilization) for pod_usage in usage.pods]
    assert uses == [("node", Fraction(1, 4)), ("cluster", Fraction(1, 4))]


def test_lingering_label_does_not_count_for_new_pod_of_same_name() -> None:
    first = replace(pod(), uid="u1", held_samples={"k": minutes(-60, 30)}, running_samples={"k": minutes(-60, 30)})
    second = replace(pod(), uid="u2", held_samples={"k": minutes(30, 60)}, running_samples={"k": minutes(30, 60)})
    devices = (*sampled_device("GPU-0", "0.75", (0, 40)), *sampled_device("GPU-1", "0.25", (30, 60)))
    usage = meter(replace(observation(devices=devices), pods=(first, second)), MeteringRules())
    utilizations = [(pod_usage.pod.uid, pod_usage.use.utilization) for pod_usage in usage.pods]
    assert utilizations == [("u1", Fraction(3, 4)), ("u2", Fraction(1, 4))]


def test_pods_without_label_on_shared_gpus_are_noted() -> None:
    shared = {"label_nvidia_com_gpu_replicas": "4", "label_nvidia_com_gpu_count": "2"}
    pods = (pod(), replace(pod(), pod="q", uid="q"))
    devices = (device(), replace(device(labeled=False), uuid="GPU-1"))
    usage = meter(replace(observation(devices=devices, nodes=(node(8, shared),)), pods=pods), MeteringRules())
    assert any(
        "no label says which GPU of node 'n1' each of 1 pods with shared GPUs is on" in note for note in usage.notes
    )


def test_use_of_shared_gpus_is_credited_up_to_the_part_held_of_each() -> None:
    """A quarter of a busy GPU and a quarter of an idle one: the idle quarter does not cover the busy one's use."""
    labels = {"label_nvidia_com_gpu_replicas": "4", "label_nvidia_com_gpu_count": "2"}
    devices = (device(total="60"), replace(device(total="0"), uuid="GPU-1"))
    observed = replace(observation(devices=devices, nodes=(node(8, labels),)), pods=(pod(2),))
    (measured,) = meter(observed, MeteringRules(("pod", "shared"))).pods
    assert measured.gpu_ms == HOUR_MS // 2
    assert measured.effective_gpu_ms == HOUR_MS // 4
    assert measured.use.beyond_allocation_gpu_ms == 3 * HOUR_MS // 4


@pytest.mark.parametrize("text", ["²", "٣", "-1", "1e3", "", "9" * 5000])
def test_malformed_count_and_replicas_labels_are_ignored(text: str) -> None:
    labels = {"label_nvidia_com_gpu_replicas": text, "label_nvidia_com_gpu_count": text}
    samples = meter(replace(observation(nodes=(node(2, labels),)), pods=(pod(),)), MeteringRules())
    missing = meter(replace(observation(nodes=(node(2, {}),)), pods=(pod(),)), MeteringRules())
    assert [pod_usage.share for pod_usage in samples.pods] == [pod_usage.share for pod_usage in missing.pods]
    assert [usage.node.replicas for usage in samples.nodes or ()] == [1]


def test_pods_on_missing_node_are_noted_once() -> None:
    pods = (replace(pod(), node="n9"), replace(pod(), node="n9", uid="v"))
    usage = meter(replace(observation(), pods=pods, collects_nodes=True), MeteringRules())
    assert usage.pods == ()
    assert usage.notes == ("first", "node 'n9' does not exist: pods that are still bound to it hold nothing")


def test_gap_is_noted_with_its_times() -> None:
    scrapes = Scrapes(
        tuple(minute for minute in ALWAYS.times if not START + 10 * MINUTE <= minute < START + 25 * MINUTE)
    )
    usage = meter(replace(observation(), allocation_scrapes={"k": scrapes}), MeteringRules())
    assert usage.coverage.allocation == Decimal("0.75")
    assert usage.notes == (
        "first",
        "no scrapes from 2026-11-19T10:10:00Z to 2026-11-19T10:25:00Z: pods that started and ended within that time "
        "are unknown",
    )


@pytest.mark.parametrize(
    ("scheduled_at", "counted"),
    [
        (None, "what pods held before is in no figure"),
        (START - 60 * MINUTE, "before, only pods that were scheduled earlier and still ran then are counted"),
    ],
)
def test_hour_in_which_samples_begin_is_noted_as_partial(scheduled_at: int | None, counted: str) -> None:
    """A Prometheus was installed at 10:20. No gap between samples is noted, because there are no earlier samples."""
    after = minutes(20, 120)
    seen = replace(node(), sample_times={"k": after}, states=(replace(node().states[0], sample_times={"k": after}),))
    held = replace(pod(), held_samples={"k": after}, scheduled_at=scheduled_at)
    fresh = replace(observation(nodes=(seen,)), allocation_scrapes={"k": Scrapes(after)}, pods=(held,))
    usage = meter(fresh, MeteringRules())
    assert usage.notes == (
        "first",
        f"partial hour: there are samples of 40 minutes, from 2026-11-19T10:20:00Z on; {counted}",
    )
    (pod_usage,) = usage.pods
    assert pod_usage.held.length == (40 if scheduled_at is None else 60) * MINUTE


@pytest.mark.parametrize(("first", "notes"), [(3, 0), (4, 1), (60, 0)])
def test_hour_is_partial_if_samples_begin_more_than_three_minutes_after_its_start(first: int, notes: int) -> None:
    """If they begin after its end, it has no figures, and another reason says so."""
    after = minutes(first, 120)
    fresh = replace(observation(), allocation_scrapes={"k": Scrapes(after)}, pods=())
    assert sum(note.startswith("partial hour: ") for note in meter(fresh, MeteringRules()).notes) == notes


def test_single_scrape_covers_a_minute() -> None:
    usage = meter(replace(observation(), allocation_scrapes={"k": Scrapes((START,))}), MeteringRules())
    assert usage.coverage.allocation == Decimal("0.016666666667")


def test_pod_ends_an_interval_of_its_last_source_after_its_last_sample() -> None:
    """A source scraped every minute is replaced by one scraped every half minute, which ends at 10:29:30."""
    before = tuple(range(START - 10 * MINUTE, START + 10 * MINUTE, MINUTE))
    after = tuple(range(START + 10 * MINUTE, START + 30 * MINUTE, MINUTE // 2))
    scrapes = {"old": Scrapes(before), "new": Scrapes(after), "k": ALWAYS}
    seen = replace(pod(), held_samples={"old": before, "new": after})
    (held,) = meter(replace(observation(), allocation_scrapes=scrapes, pods=(seen,)), MeteringRules()).pods
    assert held.held.length == 30 * MINUTE


def test_slices_per_gpu_setting_applies_to_pods_and_nodes() -> None:
    usage = meter(observation(), MeteringRules(slices_per_gpu=7))
    assert usage.nodes is not None
    assert usage.nodes[0].total_gpu_ms == HOUR_MS
    assert usage.nodes[0].unallocated_gpu_ms == Fraction(6 * HOUR_MS, 7)
    assert usage.pods[0].gpu_ms == Fraction(HOUR_MS, 7)
    (measured,) = meter(observation(devices=(device(),)), MeteringRules(slices_per_gpu=7)).pods
    assert measured.gpu_ms == Fraction(HOUR_MS, 7)
    plain = meter(observation(), MeteringRules())
    assert plain.nodes is not None
    assert plain.nodes[0].total_gpu_ms == 7 * HOUR_MS


def test_utilization_coverage_is_share_of_observed_devices() -> None:
    assert meter(observation(devices=(device(),)), MeteringRules()).coverage.utilization == 1
    assert meter(observation(), MeteringRules()).coverage.utilization == 0
    thirty_minutes = replace(device(), samples=tuple((START + minute * MINUTE, Decimal(1)) for minute in range(30)))
    assert meter(observation(devices=(thirty_minutes,)), MeteringRules()).coverage.utilization == Decimal("0.5")
    elsewhere = replace(device(labeled=False), node="n7")
    assert meter(observation(devices=(elsewhere,)), MeteringRules()).coverage.utilization == Decimal("0.5")
    assert meter(observation(devices=(device(), elsewhere)), MeteringRules()).coverage.utilization == 1
    second = replace(thirty_minutes, uuid="GPU-1", pod="", namespace="")
    assert meter(observation(devices=(device(), second)), MeteringRules()).coverage.utilization == Decimal("0.75")


def test_missing_devices_do_not_lower_coverage_but_nodes_without_devices_do() -> None:
    eight = {"label_node_kubernetes_io_instance_type": "p4d.24xlarge"}
    nodes = (node(8, eight), replace(node(), name="n2", provider_id="i-2"))
    first_node = observation(devices=(device(),), nodes=nodes[:1])
    assert meter(first_node, MeteringRules()).coverage.utilization == 1
    both_nodes = observation(devices=(device(),), nodes=nodes)
    assert meter(both_nodes, MeteringRules()).coverage.utilization == Decimal("0.5")


@pytest.mark.parametrize(("late", "coverage"), [(75, "1"), (90, "1"), (105, "0.970833333333")])
def test_device_sampled_up_to_90_seconds_late_is_fully_covered(late: int, coverage: str) -> None:
    samples = tuple((START + late * 1000 + minute * MINUTE, Decimal(1)) for minute in range(60))
    scrapes = {"d": Scrapes(tuple(time for time, _ in samples))}
    devices = (replace(device(), samples=tuple(sample for sample in samples if sample[0] < START + HOUR_MS)),)
    usage = meter(replace(observation(devices=devices), utilization_scrapes=scrapes), MeteringRules())
    assert usage.coverage.utilization == Decimal(coverage)


def test_pods_on_unknown_nodes_count_for_utilization_coverage() -> None:
    lost = replace(observation(), nodes=(), pods=(replace(pod(), node="n9"),))
    assert meter(lost, MeteringRules()).coverage.utilization == 0


def test_resource_claim_from_exporter_ends_at_its_next_scrape() -> None:
    halves = Scrapes(tuple(START + minute * MINUTE // 2 for minute in range(-120, 240)))
    times = tuple(time for time in halves.times if START <= time < START + 30 * MINUTE)
    samples = replace(pod(), held_samples={"d": times})
    (held,) = meter(replace(observation(), pods=(samples,), utilization_scrapes={"d": halves}), MeteringRules()).pods
    assert held.held.length == 30 * MINUTE


def test_node_that_joined_in_gap_advertises_from_first_pod_on() -> None:
    after = tuple(time for time in ALWAYS.times if time >= START + 25 * MINUTE)
    scrapes = Scrapes(tuple(time for time in ALWAYS.times if time < START + 10 * MINUTE) + after)
    eight = {"label_node_kubernetes_io_instance_type": "p4d.24xlarge"}
    joined = replace(
        node(7, eight),
        sample_times={"k": after},
        states=(replace(node(7, eight).states[0], sample_times={"k": after}),),
    )
    came = replace(pod(), held_samples={"k": after}, scheduled_at=START + 12 * MINUTE)
    usage = meter(Observation("c", HOUR, {"k": scrapes}, (came,), (joined,), ()), MeteringRules())
    assert usage.nodes is not None
    assert usage.nodes[0].present.start == START + 12 * MINUTE
    assert usage.nodes[0].not_ready_gpu_ms == 0
    # It advertised seven of its eight GPUs for as long as it existed; the gap hides only who held them.
    assert usage.nodes[0].geometry_gpu_ms == 48 * MINUTE


def test_node_that_joined_in_gap_beyond_hour_exists_from_first_pod_on() -> None:
    """Scrapes stop at 10:40 and return at 11:20; the pod was scheduled to the new node at 10:50."""
    after = minutes(80, 120)
    scrapes = Scrapes(minutes(-60, 40) + after)
    joined = replace(node(), sample_times={"k": after}, states=(replace(node().states[0], sample_times={"k": after}),))
    came = replace(pod(), held_samples={"k": after}, scheduled_at=START + 50 * MINUTE)
    usage = meter(Observation("c", HOUR, {"k": scrapes}, (came,), (joined,), ()), MeteringRules())
    (held,), (usage_of_node,) = usage.pods, usage.nodes or ()
    assert held.gpu_ms == 10 * MINUTE
    assert usage_of_node.total_gpu_ms == 7 * 10 * MINUTE
    assert not any("does not exist" in note for note in usage.notes)
    unscheduled = replace(came, held_samples={"k": minutes(90, 120)}, scheduled_at=None)
    later = meter(Observation("c", HOUR, {"k": scrapes}, (unscheduled,), (joined,), ()), MeteringRules())
    assert (later.pods, later.nodes) == ((), ())


def test_pod_on_node_that_stopped_advertising_keeps_its_share() -> None:
    four = {"label_node_kubernetes_io_instance_type": "g5.12xlarge"}
    before = tuple(time for time in ALWAYS.times if time < START + 30 * MINUTE)
    shared = replace(node(28, four), states=(replace(node(28, four).states[0], sample_times={"k": before}),))
    later = replace(pod(), held_samples={"k": tuple(time for time in ALWAYS.times if time >= START + 40 * MINUTE)})
    (held,) = meter(replace(observation(nodes=(shared,)), pods=(later,)), MeteringRules()).pods
    assert held.gpu_ms == Fraction(20 * MINUTE, 7)


def test_cluster_without_gpus_has_no_utilization_coverage() -> None:
    cpu = NodeObservation("cpu", "i-2", None, {}, ())
    empty = replace(observation(nodes=(cpu,)), pods=())
    assert meter(empty, MeteringRules()).coverage.utilization is None
    assert meter(empty, MeteringRules()).nodes == ()
    idle = replace(observation(nodes=(node(),)), pods=())
    assert meter(idle, MeteringRules()).coverage.utilization == 0


@pytest.mark.parametrize("first", [-60, 20])
def test_mean_over_hour_measures_single_pod_only_if_it_ran_all_hour(first: int) -> None:
    """A pod that started within the hour is measured by single samples, if there are any."""
    scrapes = {"k": minutes(first, 120)}
    lone = replace(pod(), held_samples=scrapes, running_samples=scrapes)
    whole = node(1, {"label_nvidia_com_gpu_count": "1"})
    alone = replace(observation(devices=(device(labeled=False),), nodes=(whole,)), pods=(lone,))
    (measured,) = meter(alone, MeteringRules()).pods
    assert measured.use.source == ("pod" if first < 0 else "none")
    samples = replace(device(labeled=False), samples=tuple((minute, Decimal("0.5")) for minute in minutes(-5, 60)))
    (measured,) = meter(replace(alone, devices=(samples,)), MeteringRules()).pods
    assert (measured.use.source, measured.use.utilization) == ("pod", Fraction(1, 2))


def held_seconds(sampled: Mapping[str, range], gpus: int) -> dict[str, int]:
    """Seconds that each pod held a GPU of a node, by the seconds of the pods' samples."""
    pods = tuple(
        replace(pod(), pod=name, uid=name, held_samples=samples, running_samples=samples)
        for name, seconds in sampled.items()
        if (samples := {"k": tuple(START + 1000 * second for second in seconds)})
    )
    usage = meter(replace(observation(nodes=(node(units=gpus),)), pods=pods), MeteringRules())
    return {holding.pod.pod: holding.held.length // 1000 for holding in usage.pods}


def test_holding_ends_with_a_later_successor_and_not_with_a_pod_of_the_same_scrape() -> None:
    """Pods of a node with one GPU. In the same scrape, both existed: they contradict each other, and nothing ends."""

    def held(first: int, second: int) -> list[int]:
        """Seconds of each pod, with the last sample of one and the first of the other, in seconds."""
        return [*held_seconds({"a": range(0, first + 1, 60), "b": range(second, 3600, 60)}, gpus=1).values()]

    assert held(600, 630) == [630, 2970], "within the interval after the last sample"
    assert held(600, 660) == [660, 2940]
    assert held(600, 600) == [660, 3000], "in the same scrape"


def test_each_successor_ends_a_single_holding_for_good() -> None:
    """Two GPUs change hands one after the other, between two scrapes."""
    sampled = {"a": range(0, 601, 60), "b": range(0, 601, 60), "c": range(630, 3600, 60), "d": range(640, 3600, 60)}
    assert held_seconds(sampled, gpus=2) == {"a": 630, "b": 640, "c": 2970, "d": 2960}


def test_devices_sampled_before_the_node_advertised_gpus_have_a_model() -> None:
    """Its only state is not the whole hour."""
    plain = node(2, {})
    late = replace(plain, states=(replace(plain.states[0], sample_times={"k": minutes(30, 120)}),))
    early = replace(device(), samples=tuple((minute, Decimal("0.5")) for minute in minutes(0, 20)))
    usage = meter(replace(observation(devices=(early,), nodes=(late,)), pods=()), MeteringRules())
    assert [each.node.gpu_model for each in usage.nodes or ()] == ["NVIDIA-H100"]


def test_node_is_described_by_its_latest_labels() -> None:
    """Labels may appear when what the node advertises no longer changes."""
    labeled = replace(node(2, {}), labels={"label_nvidia_com_gpu_product": "NVIDIA-A100"})
    usage = meter(replace(observation(nodes=(labeled,)), pods=()), MeteringRules())
    assert [each.node.gpu_model for each in usage.nodes or ()] == ["NVIDIA-A100"]


def test_node_is_described_by_the_devices_of_the_same_time() -> None:
    """It is cut into slices after 30 minutes. The pod held a whole GPU before."""
    whole, sliced = node(2), node(14)
    states = tuple(
        replace(part.states[0], sample_times={"k": times})
        for part, times in ((whole, minutes(-60, 30)), (sliced, minutes(30, 120)))
    )
    utilization = Decimal("0.5")
    gpu = replace(device(), samples=tuple((minute, utilization) for minute in minutes(-5, 29)))
    gpu_slice = replace(
        device(), mig_profile="1g.10gb", samples=tuple((minute, utilization) for minute in minutes(31, 60))
    )
    devices = (gpu, *(replace(gpu_slice, mig_instance=str(number)) for number in range(7)))
    held = replace(pod(), held_samples={"k": minutes(-60, 25)})
    changed = replace(observation(devices=devices, nodes=(replace(whole, states=states),)), pods=(held,))
    assert [each.share.source for each in meter(changed, MeteringRules()).pods] == ["whole"]


def test_model_of_a_neuron_node_does_not_depend_on_running_pods() -> None:
    """Its exporter has series only while a runtime uses the cores; recommendations group nodes by model."""
    state = NodeState(None, {"aws_amazon_com_neuron": Decimal(2)}, {}, {})
    neuron = replace(node(), states=(state,))
    used = replace(device(), model="NeuronCore", vendor="neuron")
    for devices in [(), (used,)]:
        usage = meter(replace(observation(devices=devices, nodes=(neuron,)), pods=()), MeteringRules())
        assert [each.node.gpu_model for each in usage.nodes or ()] == ["NeuronCore"]


def test_device_with_two_labels_of_a_pod_counts_once() -> None:
    """Exporters of processes report a GPU with the pod's uid, and once more without it."""
    usage = meter(observation(devices=(device(), replace(device(), uid="u"))), MeteringRules(("pod",)))
    (line,) = usage.pods
    assert line.effective_gpu_ms == HOUR_MS // 2


def test_pod_that_is_pending_until_the_end_of_the_hour_has_no_use() -> None:
    """It runs from after the hour on. Two devices have its label, so that only samples with the label count."""
    last_scrape = START + HOUR_MS - 10_000
    series = [
        replace(
            device(), uuid=uuid, samples=tuple((last_scrape - i * MINUTE, Decimal("0.5")) for i in range(60, -1, -1))
        )
        for uuid in ("GPU-0", "GPU-1")
    ]
    held = (START + HOUR_MS - 2 * MINUTE, START + HOUR_MS - MINUTE)
    pending = replace(
        pod(), held_samples={"k": (*held, START + HOUR_MS)}, running_samples={"k": (START + HOUR_MS + 35_000,)}
    )
    (measured,) = meter(replace(observation(devices=tuple(series)), pods=(pending,)), MeteringRules()).pods
    assert measured.held.length == 2 * MINUTE
    assert measured.use.observed_ms == 0
    assert measured.effective_gpu_ms == 0


def test_pod_that_ran_after_its_gpus_were_taken_back_shares_none_of_their_use() -> None:
    """Six pods hold two GPUs of three replicas for a minute. One is reported as running two minutes later only."""
    labels = {"label_nvidia_com_gpu_replicas": "3", "label_nvidia_com_gpu_count": "2"}
    pods = tuple(
        replace(
            pod(),
            pod=f"p{number}",
            uid=f"u{number}",
            held_samples={"k": minutes(0, 2 if number == 0 else 1)},
            running_samples={"k": minutes(2, 3) if number == 3 else minutes(0, 1)},
        )
        for number in range(6)
    )
    shared = replace(device(1, "0.5"), pod="p0")
    hour = replace(observation(devices=(shared,), nodes=(node(0, labels),)), pods=pods)
    usage = meter(hour, MeteringRules(utilization_sources=("pod", "shared")))
    assert len(usage.pods) == 6


def gpu_hours(hour: Observation, rules: MeteringRules) -> tuple[Fraction, ...]:
    """What the only pod holds, and of the only node all and what is unallocated."""
    usage = meter(hour, rules)
    (held,), (of_node,) = usage.pods, usage.nodes or ()
    return tuple(
        time / HOUR_MS for time in (held.gpus * held.held.length, of_node.total_gpu_ms, of_node.unallocated_gpu_ms)
    )


def test_vgpus_of_a_node_with_only_a_model_are_parts_of_its_devices() -> None:
    labels = {"label_nvidia_com_gpu_product": "NVIDIA-A30"}
    parts = {GPU: 1, "nvidia_com_gpucores": 50, "nvidia_com_gpumem_percentage": 50}
    requests = tuple(ContainerRequest("main", "container", name, Decimal(count)) for name, count in parts.items())
    devices = tuple(replace(device(labeled=False), uuid=uuid) for uuid in ("GPU-0", "GPU-1"))
    hour = observation(devices=devices, nodes=(node(8, labels),))
    hour = replace(hour, pods=(replace(pod(), requests=requests),))
    assert gpu_hours(hour, MeteringRules()) == (Fraction(1, 2), Fraction(2), Fraction(3, 2))


def test_units_of_a_resource_are_the_parts_of_a_gpu_that_the_settings_name() -> None:
    resource = "example_com_gpu"
    state = NodeState(None, {resource: Decimal(8)}, {}, {})
    requests = (ContainerRequest("main", "container", resource, Decimal(2)),)
    hour = observation(nodes=(NodeObservation("n1", "i-1", None, {}, (state,)),))
    hour = replace(hour, pods=(replace(pod(), requests=requests),))
    rules = MeteringRules(gpus_per_unit={resource: Fraction(1, 4)})
    assert gpu_hours(hour, rules) == (Fraction(1, 2), Fraction(2), Fraction(3, 2))


def test_use_of_gpus_that_no_node_advertises_is_noted_and_leaves_them_unobserved() -> None:
    """Pods may have them through claims that no metric reports."""
    hour = observation(devices=(device(total="30.123", labeled=False),), nodes=(node(0),))
    usage = meter(replace(hour, pods=(), collects_capacity=True), MeteringRules())
    (note,) = (note for note in usage.notes if note.startswith("unknown: "))
    assert note.startswith("unknown: 0.502 used GPU-hours of GPUs that no node advertises and no pod requested on n1; ")
    assert note.endswith("and keep kube_pod_resourceclaim_info of kube-state-metrics")
    (of_node,) = usage.nodes or ()
    assert of_node.unobserved_gpu_ms == of_node.total_gpu_ms == HOUR_MS
