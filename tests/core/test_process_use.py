"""How the processes of pods divide the use of a shared GPU."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.hour_record import UtilizationSource
from gpucost.core.hours import HOUR_MS
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.device_use import device_hours, group_by_device
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import DeviceSeries, Observation
from gpucost.core.metering.usage import PodUsage, Usage
from gpucost.settings import UtilizationSettings
from tests.core.single_node_cluster import ALWAYS, MINUTE, START, device, minutes, node, observation, pod

Utilization = TypeVar("Utilization")
REPLICAS = 4
DEFAULT: tuple[UtilizationSource, ...] = ("pod", "process", "shared")
LABELS = {"label_nvidia_com_gpu_replicas": str(REPLICAS), "label_nvidia_com_gpu_count": "1"}


class Sharer(NamedTuple):
    """A pod on the GPU: the minutes in which it runs, and its processes' value at each, in percent."""

    first: int
    after: int
    values: Mapping[int, int | None]
    """By minute; None where the exporter does not know the pod's uid."""


def shared_gpu(
    sharers: Sequence[Sharer], use: Mapping[int, str], device_values: Mapping[int, int], *, knows_uids: bool = True
) -> Observation:
    """A GPU with its use and its own value per process, both by minute."""
    base = replace(device(), scale=Decimal(100), signal_rank=1)
    pods, copies, processes = [], [], [labeled(base, device_values)]
    for number, sharer in enumerate(sharers):
        running = None if (sharer.first, sharer.after) == (0, 60) else {"k": minutes(sharer.first, sharer.after)}
        name, uid = f"p{number}", f"u{number}"
        pods.append(replace(pod(), pod=name, uid=uid, held_samples=running, running_samples=running))
        label = replace(device(), namespace="team", pod=name, slot="0")
        run = range(sharer.first, sharer.after)
        copies.append(labeled(label, {minute: use[minute] for minute in run}))
        label = replace(label, scale=Decimal(100), signal_rank=1)
        with_uid = {minute: percent for minute in run if (percent := sharer.values[minute]) is not None}
        processes.append(labeled(replace(label, uid=uid if knows_uids else ""), with_uid))
        processes.append(labeled(label, dict.fromkeys(run - with_uid.keys(), 0)))
    idle = [minute for minute in range(60) if not any(sharer.first <= minute < sharer.after for sharer in sharers)]
    copies.append(labeled(device(labeled=False), {minute: use[minute] for minute in idle}))
    return replace(
        observation(devices=tuple(copies), nodes=(node(REPLICAS, LABELS),)),
        pods=tuple(pods),
        process_devices=tuple(series for series in processes if series.samples),
    )


def labeled(series: DeviceSeries, utilizations: Mapping[int, str] | Mapping[int, int]) -> DeviceSeries:
    """The series with a utilization at each minute; without pod, unless it is of a replica."""
    samples = tuple((START + minute * MINUTE, Decimal(str(used))) for minute, used in sorted(utilizations.items()))
    return replace(series, samples=samples) if series.slot else replace(series, samples=samples, namespace="", pod="")


def constant(utilization: Utilization) -> dict[int, Utilization]:
    return dict.fromkeys(range(60), utilization)


def measured(observed: Observation, sources: tuple[UtilizationSource, ...] = DEFAULT) -> Usage:
    return meter(observed, MeteringRules(sources))


def gpu_hours(usage: PodUsage) -> Fraction:
    return usage.effective_gpu_ms / HOUR_MS


def test_values_per_process_divide_the_use_of_the_better_signal() -> None:
    """`GPU_UTIL` says 90% and 10%, but the GPU was used at 0.5: the pods used 0.45 and 0.05 of it."""
    sharers = [Sharer(0, 60, constant(90)), Sharer(0, 60, constant(10))]
    busy, idle = measured(shared_gpu(sharers, constant("0.5"), constant(100))).pods
    assert (busy.use.source, idle.use.source) == ("process", "process")
    assert gpu_hours(busy) == Fraction(1, 4), "the quarter that it holds"
    assert busy.use.beyond_allocation_gpu_ms == Fraction(2, 10) * HOUR_MS
    assert (gpu_hours(idle), idle.use.utilization) == (Fraction(5, 100), Fraction(2, 10))


def test_use_of_other_processes_belongs_to_no_pod() -> None:
    sharers = [Sharer(0, 60, constant(15)), Sharer(0, 60, constant(5))]
    usages = measured(shared_gpu(sharers, constant("0.4"), constant(40))).pods
    assert [gpu_hours(usage) for usage in usages] == [Fraction(15, 100), Fraction(5, 100)]


@pytest.mark.parametrize("knows_uids", [True, False], ids=["no hostPID", "no uids"])
def test_zeros_of_an_exporter_that_sees_no_processes_are_no_measurement(knows_uids: bool) -> None:
    sharers = [Sharer(0, 60, constant(0)), Sharer(0, 60, constant(0))]
    unseen = shared_gpu(sharers, constant("0.4"), constant(40), knows_uids=knows_uids)
    usage = measured(unseen)
    assert [(pod.use.source, gpu_hours(pod)) for pod in usage.pods] == [("shared", Fraction(2, 10))] * 2
    assert any("hostPID" in note for note in usage.notes) == knows_uids
    for unmeasured in measured(unseen, ("pod", "process")).pods:
        assert (unmeasured.use.source, unmeasured.unmeasured_gpu_ms) == ("none", HOUR_MS / REPLICAS)


def test_idle_gpu_is_measured_as_idle() -> None:
    sharers = [Sharer(0, 60, constant(0)), Sharer(0, 60, constant(0))]
    for usage in measured(shared_gpu(sharers, constant("0"), constant(0)), ("pod", "process")).pods:
        assert usage.use.source == "process"
        assert usage.effective_gpu_ms == usage.unmeasured_gpu_ms == 0


def test_copies_of_an_older_exporter_are_not_values_per_process() -> None:
    """Without the device's own series, equal values of pods with uids are its copies."""
    sharers = [Sharer(0, 60, constant(40)), Sharer(0, 60, constant(40))]
    copied = shared_gpu(sharers, constant("0.4"), constant(40))
    copies = tuple(series for series in copied.process_devices if series.pod)
    usages = measured(replace(copied, process_devices=copies)).pods
    assert {usage.use.source for usage in usages} == {"shared"}


def test_replicas_split_the_rest_while_a_pod_has_no_value() -> None:
    """For half of the hour, the second pod has no value: it gets what the first did not use."""
    values = {minute: 10 if minute < 30 else None for minute in range(60)}
    gap = shared_gpu([Sharer(0, 60, constant(20)), Sharer(0, 60, values)], constant("0.3"), constant(30))
    first, second = measured(gap).pods
    assert (first.use.source, gpu_hours(first)) == ("process", Fraction(2, 10))
    assert (second.use.source, gpu_hours(second)) == ("shared", Fraction(1, 10))
    _, partly = measured(gap, ("pod", "process")).pods
    assert (partly.use.source, partly.use.observed_ms) == ("process", HOUR_MS // 2)
    assert gpu_hours(partly) == Fraction(5, 100)
    assert partly.waste_gpu_ms + partly.effective_gpu_ms == partly.unmeasured_gpu_ms == Fraction(HOUR_MS, 8)


def test_order_of_sources_decides() -> None:
    assert UtilizationSettings().sources == DEFAULT
    observed = shared_gpu([Sharer(0, 60, constant(20)), Sharer(0, 60, constant(0))], constant("0.2"), constant(20))
    assert [gpu_hours(pod) for pod in measured(observed, ("pod", "shared", "process")).pods] == [Fraction(1, 10)] * 2
    assert [gpu_hours(pod) for pod in measured(observed).pods] == [Fraction(2, 10), 0]


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Up to four sharers that come and go, with any values, some missing, and any use."""
    percent = st.integers(0, 100)
    sharers = []
    for _ in range(draw(st.integers(1, REPLICAS))):
        first, after = sorted(draw(st.lists(st.integers(0, 60), min_size=2, max_size=2, unique=True)))
        sharers.append(Sharer(first, after, draw(changing(st.none() | percent))))
    use = {minute: str(Decimal(at_minute) / 100) for minute, at_minute in draw(changing(percent)).items()}
    return shared_gpu(sharers, use, draw(changing(percent)))


def changing(utilizations: st.SearchStrategy[Utilization]) -> st.SearchStrategy[dict[int, Utilization]]:
    """A utilization at each minute, with a few changes."""
    changes = st.dictionaries(st.integers(1, 59), utilizations, max_size=4)
    return st.tuples(utilizations, changes).map(lambda drawn: _steps({0: drawn[0], **drawn[1]}))


def _steps(changes: Mapping[int, Utilization]) -> dict[int, Utilization]:
    by_minute: dict[int, Utilization] = {}
    for since in sorted(changes):
        by_minute |= dict.fromkeys(range(since, 60), changes[since])
    return by_minute


@given(observations(), st.sampled_from([DEFAULT, ("pod", "process"), ("shared", "process")]))
def test_sharers_never_use_more_than_their_gpu(observed: Observation, sources: tuple[UtilizationSource, ...]) -> None:
    """Neither in all, nor more than they hold; and held time is used, wasted or unmeasured."""
    use_at = {time: used for series in observed.devices for time, used in series.samples or ()}
    device_ms = sum(Fraction(used) * MINUTE for used in use_at.values())
    pods = measured(observed, sources).pods
    assert sum(pod.effective_gpu_ms + pod.use.beyond_allocation_gpu_ms for pod in pods) <= device_ms
    for pod_usage in pods:
        assert pod_usage.effective_gpu_ms <= pod_usage.gpu_ms
        assert pod_usage.waste_gpu_ms >= 0
        parts = pod_usage.effective_gpu_ms + pod_usage.waste_gpu_ms + pod_usage.unmeasured_gpu_ms
        assert parts == pod_usage.gpu_ms


def test_device_value_counts_before_larger_values_of_processes() -> None:
    """Both are snapshots. A process's value counts only at a scrape without a value of the device."""
    window = IntervalMs(START, START + HOUR_MS)
    of_device = labeled(device(labeled=False), dict.fromkeys(range(30), "0.3"))
    of_process = labeled(replace(device(), uid="u", slot="0"), dict.fromkeys(range(60), "0.5"))
    (gpu,) = device_hours(group_by_device([of_process, of_device]), {"d": ALWAYS}, window)
    length = 30 * MINUTE
    assert gpu.use_during(IntervalMs(START, START + length)).used_ms == Fraction(3, 10) * length
    assert gpu.use_during(IntervalMs(START + length, window.end)).used_ms == Fraction(1, 2) * length
