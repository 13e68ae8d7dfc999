"""Metering: from an hour's observation to who held how much GPU for how long, and how much of it was used."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from gpucost.domain.capacity import Disputed, Offer, account, offers
from gpucost.domain.claims import find_claims, scaled_to_gpus
from gpucost.domain.device_use import DeviceHour, DeviceKey, device_hours
from gpucost.domain.exporters import contradictory_devices, notes_on, surplus_claims, surplus_devices, without
from gpucost.domain.holdings import HoldingReader, NodeKey
from gpucost.domain.hours import HOUR_MS, format_ms, to_ms
from gpucost.domain.intervals import Interval, gaps, overlap_length, union
from gpucost.domain.model import Coverage, UtilizationSource
from gpucost.domain.money import quantize
from gpucost.domain.nodes import NodeLife, describe, is_gpu_node
from gpucost.domain.observations import DeviceSeries, NodeObservation, Observation
from gpucost.domain.spans import DEFAULT_INTERVAL_MS, SpanReader
from gpucost.domain.suspicion import SUSPECT, is_utilization, short
from gpucost.domain.usage import Holding, NodeUsage, PodUsage, Usage
from gpucost.domain.utilization import Ladder

LONGEST_BRIDGE_MS = 300_000
"""Gaps up to this long (Prometheus' own look-back) leave free capacity unallocated; longer ones, unobserved."""
NOTEWORTHY_GPU_MS = 36_000
"""Use that nobody requested is reported from a hundredth of a GPU-hour on."""


@dataclass(frozen=True, slots=True)
class MeteringRules:
    """What settings say about metering."""

    ladder: tuple[UtilizationSource, ...] = ("pod", "shared")
    slices_per_gpu: int | None = None


def meter(observation: Observation, rules: MeteringRules, window: Interval | None = None) -> Usage:
    """Meter one cluster-hour.

    Args:
        observation: what was seen.
        rules: what settings say.
        window: a part of the hour; the whole where not given.

    Returns:
        Usage with coverage; without any scrape of the allocation source coverage is 0 and nothing is concluded.
    """
    start = to_ms(observation.hour)
    window = window or Interval(start, start + HOUR_MS)
    notes = list(observation.notes)
    spans = SpanReader(observation.allocation, window, observation.utilization)
    covered = union(
        piece for run in observation.allocation.values() for piece in run.coverage(window, DEFAULT_INTERVAL_MS)
    )
    blind = gaps(covered, window, LONGEST_BRIDGE_MS)
    notes += [_says(gap, window) for gap in blind]
    lives = _lives(observation, spans)
    devices, suspect = _trusted_devices(observation, lives, window)
    reader = HoldingReader(
        spans, lives, rules.slices_per_gpu, observation.nodes_are_kept, notes, _advertised(observation.nodes),
        {node.name: node.contradiction for node in observation.nodes if node.contradiction},
    )  # fmt: skip
    holdings = reader.read(observation.pods)
    claims = find_claims(holdings, devices, window, {name for name, _ in reader.disputed})
    surplus = surplus_claims(holdings, claims, window)
    if surplus:
        devices, suspect = without(devices, surplus), suspect | surplus
        claims = find_claims(holdings, devices, window, {name for name, _, _ in surplus})
    notes += notes_on(suspect)
    holdings = scaled_to_gpus(holdings, claims)
    ladder = Ladder(holdings, devices, claims, rules.ladder, window)
    measured = ladder.measure()
    notes += _utilization_notes(observation, ladder)
    return Usage(
        cluster=observation.cluster,
        hour=observation.hour,
        coverage=Coverage(
            allocation=quantize(Fraction(overlap_length(covered, window), window.length)),
            utilization=_device_coverage(devices, lives, holdings, window),
        ),
        pods=tuple(PodUsage(holding, measurement) for holding, measurement in zip(holdings, measured, strict=True)),
        nodes=_capacity(observation, lives, holdings, reader.disputed, blind, rules, notes),
        notes=suspect_first(notes),
    )


def _trusted_devices(
    observation: Observation, lives: Mapping[str, Sequence[NodeLife]], window: Interval
) -> tuple[list[DeviceHour], dict[DeviceKey, tuple[str, str]]]:
    """Devices that exporters agree about; and the others, with two exporters that contradict each other."""
    pods = {(pod.namespace, pod.pod) for pod in observation.pods}
    suspect = contradictory_devices(observation.devices, window, pods)
    surplus = surplus_devices(lives, observation.devices, window)
    devices = device_hours(observation.devices, observation.utilization, window)
    suspect |= {device.key: surplus[device.node] for device in devices if device.node in surplus}
    return without(devices, suspect), suspect


def _advertised(nodes: Iterable[NodeObservation]) -> dict[str, dict[str, Decimal]]:
    """By node, the most units of each resource that it was seen to advertise."""
    found: dict[str, dict[str, Decimal]] = {}
    for node in nodes:
        units = found.setdefault(node.name, {})
        for state in node.states:
            for resource, count in state.capacity.items():
                units[resource] = max(count, units.get(resource, count))
    return found


def suspect_first(notes: Iterable[str]) -> tuple[str, ...]:
    """Notes, each once; those about suspect samples first, because the ledger keeps a thousand."""
    return tuple(sorted(dict.fromkeys(notes), key=lambda note: not note.startswith(SUSPECT)))


def _lives(observation: Observation, spans: SpanReader) -> dict[str, list[NodeLife]]:
    """All nodes by name; those that replaced each other under one name in order of time."""
    devices: dict[str, list[DeviceSeries]] = {}
    for device in observation.devices:
        devices.setdefault(device.node, []).append(device)
    scheduled: dict[str, list[int]] = {}
    for pod in observation.pods:
        if pod.scheduled_at is not None:
            scheduled.setdefault(pod.node, []).append(pod.scheduled_at)
    found: dict[str, list[NodeLife]] = {}
    for seen in observation.nodes:
        present = _present(seen, scheduled.get(seen.name, ()), spans)
        lives = found.setdefault(seen.name, [])  # empty: known, and not there in the hour
        if present.length:
            lives.append(_life(seen, present, devices.get(seen.name, ()), spans))
    for name, lives in found.items():
        lives.sort(key=lambda life: (life.present, life.node.provider_id))
        # The one that was replaced ends where its successor begins: two nodes of one name are never there at once.
        found[name] = [
            NodeLife(life.node, Interval(life.present.start, min(life.present.end, after.present.start)), life.states)
            for life, after in pairwise(lives)
        ] + lives[-1:]
    return found


def _present(seen: NodeObservation, scheduled: Sequence[int], spans: SpanReader) -> Interval:
    """When a node was there; one that joined in a gap was there at the latest when the first pod came to it."""
    present = spans.span(seen.present).time
    gap = spans.gap_before(seen.present)
    start = min((time for time in scheduled if gap.holds(time)), default=present.start)
    return Interval(min(start, present.start), present.end).overlap(spans.window) if present.length else present


def _life(seen: NodeObservation, present: Interval, devices: Sequence[DeviceSeries], spans: SpanReader) -> NodeLife:
    own = [device for device in devices if _was_there(device, present)]
    states = []
    ends = [spans.span(state.seen).time for state in seen.states]
    for place, state in enumerate(seen.states):
        start = ends[place].start
        if place == 0 and spans.gap_before(state.seen).holds(present.start):
            start = present.start  # pods were on it by then, so that it advertised
        time = Interval(start, ends[place].end).overlap(present)
        if time.length:
            then = [device for device in own if _was_there(device, time)]
            states.append((time, describe(seen, state.labels, then, state.capacity, state.allocatable)))
    node = describe(seen, seen.labels, own, seen.states[-1].capacity if seen.states else {}, {})
    return NodeLife(node, present, tuple(states))


def _was_there(device: DeviceSeries, present: Interval) -> bool:
    """Whether a device's series is of this node and not of another that had the same name in the hour."""
    return device.values is None or any(present.holds(time) for time, _ in device.values)


def _capacity(
    observation: Observation,
    lives: Mapping[str, Sequence[NodeLife]],
    holdings: Sequence[Holding],
    disputed: Mapping[NodeKey, Sequence[Disputed]],
    blind: Sequence[Interval],
    rules: MeteringRules,
    notes: list[str],
) -> tuple[NodeUsage, ...] | None:
    """Every GPU node's account; None where pods hold GPUs on a node of which nothing tells what it has."""
    on_node: dict[NodeKey, list[Holding]] = {}
    for holding in holdings:
        on_node.setdefault((holding.node.name, holding.node.provider_id), []).append(holding)
    is_kept = observation.capacity_is_kept or any(seen.states for seen in observation.nodes)
    accounts: list[NodeUsage] = []
    for name in sorted(lives):
        for life in lives[name]:
            if is_gpu_node(life):
                key = name, life.node.provider_id
                own = on_node.pop(key, [])
                offer: Sequence[Offer] = offers(life, rules.slices_per_gpu, capacity_is_kept=is_kept)
                accounts.append(account(life, offer, own, blind, rules.slices_per_gpu, disputed.get(key, ())))
                excess = accounts[-1].excess_gpu_ms
                if excess >= NOTEWORTHY_GPU_MS:
                    notes.append(
                        f"{SUSPECT}pods hold {float(excess / HOUR_MS):.3f} GPU-hours more of node {name!r} than it "
                        "has; its residual is negative"
                    )
    if on_node:
        name, _ = min(on_node)
        notes.append(f"nothing tells how many GPUs node {name!r} has: capacity is not known")
        return None
    return tuple(accounts)


def _device_coverage(
    devices: Sequence[DeviceHour],
    lives: Mapping[str, Sequence[NodeLife]],
    holdings: Sequence[Holding],
    window: Interval,
) -> Decimal | None:
    """Time in which devices were seen ÷ time in which they were there; None for a cluster without GPUs."""
    nodes = [life for name in sorted(lives) for life in lives[name] if is_gpu_node(life)]
    if not nodes and not holdings:
        return None
    on_node: dict[str, list[DeviceHour]] = {}
    for device in devices:
        on_node.setdefault(device.node, []).append(device)
    expected, seen = 0, 0
    for life in nodes:
        own = [device for device in on_node.pop(life.node.name, []) if overlap_length(device.covered, life.present)]
        expected += life.present.length * (len(own) or life.node.devices or 1)
        for device in own:
            observed, present = overlap_length(device.covered, life.present), life.present.length
            seen += present if 2 * (present - observed) <= 3 * device.interval else observed
    for others in on_node.values():
        expected += window.length * len(others)
        seen += sum(overlap_length(device.covered, window) for device in others)
    return quantize(Fraction(seen, expected)) if expected else Decimal(0)


def _utilization_notes(observation: Observation, ladder: Ladder) -> list[str]:
    odd: dict[str, str] = {}
    for device in observation.devices:
        for _, value in device.values or ((0, device.total),):
            name = device.pod or device.node
            if not value.is_finite():
                odd.setdefault(name, f"utilization of {name!r} holds values that are no numbers")
            elif device.values and not is_utilization(value, device.scale):
                odd[name] = f"{SUSPECT}utilization of {name!r} holds {short(value)}, where {device.scale} is full use"
    notes = [f"{odd[name]}; they count as not observed" for name in sorted(odd)]
    for node, used in sorted(ladder.unclaimed().items()):
        if used >= NOTEWORTHY_GPU_MS:
            notes.append(f"{float(used / HOUR_MS):.3f} GPU-hours were used on node {node!r} that no pod had requested")
    for node, count in sorted(ladder.unlabelled_sharers().items()):
        notes.append(
            f"nothing tells on which GPU of node {node!r} {count} of the pods that share them are: their use, and that "
            "of those beside them, is not known (dcgm-exporter: KUBERNETES_VIRTUAL_GPUS)"
        )
    return notes


def _says(gap: Interval, window: Interval) -> str:
    gap = gap.overlap(window)
    return (
        f"nobody saw who held GPUs from {format_ms(gap.start)} to {format_ms(gap.end)}: "
        "what came and went within that time is not known"
    )
