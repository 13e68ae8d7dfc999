"""Energy: what each pod's GPUs drew while it held them, from the energy counters or the power of GPUs.

No exporter measures the power of a pod or of a MIG device: each series is that of the whole GPU. So a GPU's
energy of a time is divided among those that hold a part of it at that time, in proportion to what they hold.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from msgspec import Struct

from gpucost.core.intervals import IntervalMs, Scrapes, overlapping, union
from gpucost.core.metering.capacity import DisputedHolding, present_by_piece
from gpucost.core.metering.device_use import (
    DeviceAssignments,
    DeviceHour,
    devices_expected,
    is_shared_resource,
    labeled_pods_of_holding,
    replicas_held,
)
from gpucost.core.metering.holdings import NodeKey
from gpucost.core.metering.nodes import NodeLifecycle
from gpucost.core.metering.observations import EnergySeries, ScrapeTarget
from gpucost.core.metering.signals import SUCCESSORS
from gpucost.core.metering.spans import DEFAULT_INTERVAL_MS
from gpucost.core.metering.usage import Energy, Holding, NodeEnergy

ENERGY_COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
ENERGY_COUNTERS: Mapping[str, Decimal] = {ENERGY_COUNTER: Decimal("0.001"), SUCCESSORS[ENERGY_COUNTER]: Decimal(1)}
"""Joules in a count of each counter of the energy since the driver was loaded (DCGM 4.7, dcgm_fields.h). DCGM reads it
of the GPU only. In MIG mode, dcgm-exporter 4.6.0 copies a GPU's figure to each MIG device (its issues 257 and 317), and
under virtual GPUs to each sharer."""
POWER_GAUGES = ("DCGM_FI_DEV_POWER_USAGE", SUCCESSORS["DCGM_FI_DEV_POWER_USAGE"])
"""Watts, of the GPU only."""
JOULES_PER_KWH = 3_600_000
MAX_WATTS = 10_000
"""More than any GPU draws. What exceeds it is not energy: exporters read a counter at different times, or a
sample is wrong."""
ZERO = Fraction(0)
GpuKey = tuple[str, str]
"""Node and UUID of a physical GPU."""


class _Draw(Struct, frozen=True):
    """Energy drawn evenly during some time."""

    time: IntervalMs
    joules: Fraction


class GpuEnergy:
    """The measured energy of one GPU in one hour: constant power between samples, unknown where there are none."""

    def __init__(self, draws: Sequence[_Draw]) -> None:
        self._draws = draws

    def during(self, time: IntervalMs) -> tuple[Fraction, int]:
        """Return the energy drawn in some time in joules, and the milliseconds of it that were measured."""
        joules, measured_ms = ZERO, 0
        for draw in overlapping(self._draws, time, lambda draw: draw.time):
            length = draw.time.overlap(time).length
            joules += draw.joules if length == draw.time.length else draw.joules * length / draw.time.length
            measured_ms += length
        return joules, measured_ms


def gpu_energies(
    series: Iterable[EnergySeries], scrapes: Mapping[ScrapeTarget, Scrapes], window: IntervalMs
) -> dict[GpuKey, GpuEnergy]:
    """Return the energy of each GPU: from its counter, otherwise from its power.

    An hour starts at the counter's last sample before it and ends at its last sample in it, so that consecutive hours
    add up to the counter. As with Prometheus' `increase`, a gap between two samples of a counter loses nothing, and a
    counter that is lower than before started again at 0.
    """
    copies: dict[GpuKey, list[EnergySeries]] = {}
    for gpu_series in series:
        copies.setdefault((gpu_series.node, gpu_series.uuid), []).append(gpu_series)
    energies = {}
    for key, gpu_copies in copies.items():
        counters = [copy for copy in gpu_copies if copy.is_counter]
        increases = [copy.increase for copy in counters if copy.increase is not None and _is_plausible(copy, window)]
        if any(copy.samples is not None for copy in counters):
            draws = _draws_of_counter(_joined_samples(counters), window)
        elif increases:
            draws = [_Draw(window, Fraction(max(increases)))]
        else:
            gauges = [copy for copy in gpu_copies if not copy.is_counter]
            interval = max((_interval(copy, scrapes) for copy in gauges), default=DEFAULT_INTERVAL_MS)
            draws = _draws_of_power(_joined_samples(gauges), interval, window)
        if draws:
            energies[key] = GpuEnergy(draws)
    return energies


def _is_plausible(copy: EnergySeries, window: IntervalMs) -> bool:
    return copy.increase is not None and 0 <= copy.increase <= MAX_WATTS * window.length // 1000


def _interval(copy: EnergySeries, scrapes: Mapping[ScrapeTarget, Scrapes]) -> int:
    return scrapes[copy.scrape_target].typical_interval if copy.scrape_target in scrapes else 0


def _joined_samples(copies: Sequence[EnergySeries]) -> list[tuple[int, Fraction]]:
    """Return the samples of the job with the most samples, whose instances succeed each other.

    Two jobs read the counter at different times, so that their samples together would seem to fall.
    """
    by_source: dict[str, dict[int, Fraction]] = {}
    for copy in copies:
        samples = by_source.setdefault(copy.scrape_target.split("/", 1)[0], {})
        for time, reading in copy.samples or ():
            if reading.is_finite() and reading >= 0:
                samples[time] = max(samples.get(time, ZERO), Fraction(reading))
    return sorted(max((by_source[source] for source in sorted(by_source)), key=len, default={}).items())


def _draws_of_counter(samples: Sequence[tuple[int, Fraction]], window: IntervalMs) -> list[_Draw]:
    draws: list[_Draw] = []
    lengths = sorted(later - time for (time, _), (later, _) in pairwise(samples))
    for (time, joules_then), (later_time, later_joules) in pairwise(samples):
        if not window.start < later_time <= window.end:
            continue
        joules = later_joules - joules_then if later_joules >= joules_then else later_joules
        if 1000 * joules <= MAX_WATTS * (later_time - time):
            draws.append(_Draw(IntervalMs(max(time, window.start), later_time), joules))
    if draws and 2 * (window.end - draws[-1].time.end) <= 3 * lengths[len(lengths) // 2]:
        draws[-1] = _Draw(IntervalMs(draws[-1].time.start, window.end), draws[-1].joules)
    return draws


def _draws_of_power(samples: Sequence[tuple[int, Fraction]], interval: int, window: IntervalMs) -> list[_Draw]:
    """Return the energy of each sample's time: until the next sample, or for one scrape interval before a gap."""
    interval = interval or DEFAULT_INTERVAL_MS
    draws = []
    for (time, watts), (next_time, _) in pairwise([*samples, (window.end, ZERO)]):
        end = next_time if 2 * (next_time - time) <= 5 * interval else time + interval
        covered = IntervalMs(time, end).overlap(window)
        if covered.length and watts <= MAX_WATTS:
            draws.append(_Draw(covered, watts * covered.length / 1000))
    return draws


def attribute_energy(
    energies: Mapping[GpuKey, GpuEnergy],
    holdings: Sequence[Holding],
    assignments: DeviceAssignments,
    lifecycles: Mapping[str, Sequence[NodeLifecycle]],
    unknown_holders: Mapping[NodeKey, Sequence[IntervalMs]],
    window: IntervalMs,
) -> tuple[dict[int, Energy], dict[NodeKey, NodeEnergy]]:
    """Return the energy of holdings, by their index, and of nodes.

    A GPU's energy is idle while no pod holds it, if the devices of all pods on the node are clear then.

    Args:
        energies: of every GPU.
        holdings: all holdings of the hour.
        assignments: the devices of each holding.
        lifecycles: the nodes by name.
        unknown_holders: by node, the times in which others may have held its GPUs.
        window: the hour.
    """
    holders_of: dict[GpuKey, list[_Holder]] = {}
    for index, devices in assignments.devices_of.items():
        for device in devices:
            holders_of.setdefault(device.key[:2], []).append(_holder(index, holdings[index], device, devices))
    of_holdings: dict[int, Energy] = {}
    nodes: dict[NodeKey, NodeEnergy] = {}
    for gpu, energy in energies.items():
        name = _node_of_gpu(gpu, holders_of.get(gpu, ()), lifecycles)
        holders = [holder for holder in holders_of.get(gpu, ()) if holder.node == name]
        presences = [(lifecycle.node.provider_id, lifecycle.present) for lifecycle in lifecycles.get(name, ())]
        for provider_id, present in presences or [("", window)]:
            key = name, provider_id
            node = nodes.setdefault(key, NodeEnergy())
            for index, part in _attribute(energy, holders, present, unknown_holders.get(key, ()), node):
                of_holdings[index] = of_holdings[index] + part if index in of_holdings else part
    return of_holdings, {key: node for key, node in nodes.items() if node.measured_gpu_ms}


class _Holder(Struct, frozen=True):
    """A holding of a GPU or of a part of it."""

    index: int
    node: str
    gpus: Fraction
    """What it holds of this GPU."""
    times: Sequence[IntervalMs]


def _holder(index: int, holding: Holding, device: DeviceHour, devices: Sequence[DeviceHour]) -> _Holder:
    gpus = replicas_held(holding, device, len(devices)) * holding.share.gpus_per_unit
    if is_shared_resource(holding) or len(devices) <= devices_expected(holding):
        return _Holder(index, holding.node.name, gpus, (holding.held,))
    # More devices than units were held in succession, so each counts only while it had the pod's label.
    labels = set(labeled_pods_of_holding(holding, device))
    labeled = union(sample.time for sample in device.samples if not labels.isdisjoint(sample.labels))
    times = [time.overlap(holding.held) for time in labeled]
    return _Holder(index, holding.node.name, holding.share.gpus_per_unit, times)


def _node_of_gpu(gpu: GpuKey, holders: Sequence[_Holder], lifecycles: Mapping[str, Sequence[NodeLifecycle]]) -> str:
    """Return the name of a GPU's node; that of its pods if its exporter does not name a node."""
    names = {holder.node for holder in holders}
    return names.pop() if gpu[0] not in lifecycles and len(names) == 1 else gpu[0]


def _attribute(
    energy: GpuEnergy,
    holders: Sequence[_Holder],
    time: IntervalMs,
    unknown_holders: Sequence[IntervalMs],
    node: NodeEnergy,
) -> Iterator[tuple[int, Energy]]:
    """Yield the energy of holdings, by index; add that of the GPU to the node's energy."""
    held_by = [(held, holder) for holder in holders for held in holder.times]
    for piece, (indexes, unknown) in present_by_piece(time, [held for held, _ in held_by], unknown_holders):
        joules, measured_ms = energy.during(piece)
        if not measured_ms:
            continue
        node.joules += joules
        node.measured_gpu_ms += measured_ms
        present = [held_by[index][1] for index in indexes]
        held_gpus = sum((holder.gpus for holder in present), ZERO)
        if held_gpus < 1 and unknown:
            continue  # another pod may hold the rest of the GPU
        for holder in present:
            yield holder.index, Energy(joules * holder.gpus / held_gpus, holder.gpus * measured_ms)
        if not present:
            node.idle_joules += joules


def times_of_unknown_holders(
    holdings: Sequence[Holding],
    assignments: DeviceAssignments,
    disputed: Mapping[NodeKey, Sequence[DisputedHolding]],
    lifecycles: Mapping[str, Sequence[NodeLifecycle]],
    unobserved: Sequence[IntervalMs],
) -> dict[NodeKey, list[IntervalMs]]:
    """Return, by node, when it is not known which of its GPUs are held."""
    times = {
        (name, lifecycle.node.provider_id): list(unobserved)
        for name, node_lifecycles in lifecycles.items()
        for lifecycle in node_lifecycles
    }
    for key, node_holdings in disputed.items():
        times.setdefault(key, []).extend(holding.time for holding in node_holdings)
    for index, holding in enumerate(holdings):
        if index not in assignments.devices_of:
            times.setdefault((holding.node.name, holding.node.provider_id), []).append(holding.held)
    return times
