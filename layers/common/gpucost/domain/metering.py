"""Metering: from an hour's observation to who held how much GPU for how long, and how much of it was used.

Allocation is a span (design §3): one uid holds its GPUs for one contiguous time, from its first to its last held
sample plus one scrape interval, so gaps in scraping, restarted and doubled sources change nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from gpucost.domain.capacity import NodeTime, account, offer
from gpucost.domain.hours import HOUR_MS, to_ms
from gpucost.domain.intervals import Interval, gaps, scrape_interval, span
from gpucost.domain.model import Coverage, UtilizationSource
from gpucost.domain.money import quantize
from gpucost.domain.observations import (
    DeviceObservation,
    NodeObservation,
    Observation,
    PodObservation,
    Presence,
)
from gpucost.domain.shares import GpuNode, Share, describe, kubernetes_resource
from gpucost.domain.usage import Holding, NodeUsage, PodUsage, Usage
from gpucost.domain.utilization import Ladder

DEFAULT_INTERVAL_MS = 60_000
"""Taken only where a source was scraped less than twice, so that no distance can be read off it."""
LONGEST_BRIDGE_MS = 300_000
"""Gaps up to this long (Prometheus' own look-back) leave free capacity unallocated; longer ones, unobserved."""


@dataclass(frozen=True, slots=True)
class MeteringRules:
    """What settings say about metering."""

    full_scale: Decimal = Decimal(1)
    ladder: tuple[UtilizationSource, ...] = ("pod", "shared")
    slices_per_gpu: int | None = None


@dataclass(slots=True)
class _Hour:
    """What is the same for everything metered in one hour."""

    observation: Observation
    rules: MeteringRules
    window: Interval
    interval: int
    notes: list[str] = field(default_factory=list)
    shares: dict[tuple[str, str], Share | None] = field(default_factory=dict)
    """By node and resource: worked out once for all pods of a node."""

    def share_of(self, node: GpuNode, resource: str) -> Share | None:
        """What one unit of a resource is on a node; None where that is not known."""
        key = (node.name, resource)
        if key not in self.shares:
            self.shares[key] = node.share(resource, self.rules.slices_per_gpu)
        return self.shares[key]

    @property
    def capacity_is_kept(self) -> bool:
        """Whether any node's GPU capacity is among the metrics."""
        return any(node.capacity for node in self.observation.nodes)

    def span_of(self, presence: Presence) -> Interval:
        """When something was there, clipped to the hour."""
        if presence.times is None:
            return self.window
        return span(presence.times, self.interval).overlap(self.window)


def meter(observation: Observation, rules: MeteringRules) -> Usage:
    """Meter one cluster-hour.

    Returns:
        Usage with coverage; without any scrape of the allocation source coverage is 0 and nothing is concluded.
    """
    start = to_ms(observation.hour)
    window = Interval(start, start + HOUR_MS)
    scrapes = observation.heartbeat.scrapes
    interval = scrape_interval(scrapes.values()) or DEFAULT_INTERVAL_MS
    hour = _Hour(observation, rules, window, interval, list(observation.notes))
    blind = gaps(sorted({time for times in scrapes.values() for time in times}), interval, window, interval // 2)
    nodes = _gpu_nodes(observation)
    times = {name: _life(hour, seen) for name, (seen, _) in nodes.items()}
    holdings = _holdings(hour, nodes, times)
    device_interval = scrape_interval(observation.device_scrapes.values()) or interval
    ladder = Ladder(holdings, observation.devices, rules.full_scale, rules.ladder, device_interval)
    for name in sorted({d.pod or d.node for d in observation.devices if not d.total.is_finite()}):
        hour.notes.append(f"utilization of {name!r} holds values that are no numbers; left out")
    return Usage(
        cluster=observation.cluster,
        hour=observation.hour,
        coverage=Coverage(
            allocation=quantize(1 - Fraction(sum(gap.length for gap in blind), HOUR_MS)),
            utilization=_device_coverage(observation, nodes, times, device_interval, has_pods=bool(holdings)),
        ),
        pods=tuple(PodUsage(holding, ladder.measure(holding)) for holding in holdings),
        nodes=_capacity(hour, nodes, times, holdings, [gap for gap in blind if gap.length > LONGEST_BRIDGE_MS]),
        notes=tuple(dict.fromkeys(hour.notes)),
    )


def _gpu_nodes(observation: Observation) -> dict[str, tuple[NodeObservation, GpuNode]]:
    """Nodes that have GPUs by instance type, by DCGM or by what they advertise, by name."""
    devices: dict[str, list[DeviceObservation]] = {}
    for device in observation.devices:
        devices.setdefault(device.node, []).append(device)
    found: dict[str, tuple[NodeObservation, GpuNode]] = {}
    for seen in observation.nodes:
        own = devices.get(seen.name, [])
        node = describe(seen, own)
        if node.physical or seen.capacity:
            found[seen.name] = (seen, node)
    return found


def _life(hour: _Hour, seen: NodeObservation) -> NodeTime:
    present = hour.span_of(seen.present)
    if not hour.capacity_is_kept:
        return NodeTime(present, present)
    if seen.advertised is None:
        return NodeTime(present, Interval(present.start, present.start))
    return NodeTime(present, hour.span_of(seen.advertised).overlap(present))


def _holdings(
    hour: _Hour, nodes: Mapping[str, tuple[NodeObservation, GpuNode]], times: Mapping[str, NodeTime]
) -> list[Holding]:
    known_nodes = {node.name for node in hour.observation.nodes}
    found: list[Holding] = []
    for pod in sorted(hour.observation.pods, key=lambda pod: (pod.namespace, pod.pod, pod.uid)):
        held = hour.span_of(pod.held)
        node = nodes[pod.node][1] if pod.node in nodes else GpuNode(pod.node)
        if pod.node in nodes:
            # A spot node that is gone leaves its pod objects behind for a while: they hold nothing any more.
            held = held.overlap(times[pod.node].present)
        elif pod.node in known_nodes:
            hour.notes.append(f"pod {pod.namespace}/{pod.pod} requests GPUs on {pod.node!r}, which has none")
        if not held.length:
            continue
        running = held if pod.running is None else _running(hour, pod, held)
        for resource, units in _effective_requests(pod).items():
            share = hour.share_of(node, resource)
            if share is None:
                name = kubernetes_resource(resource)
                hour.notes.append(f"pod {pod.namespace}/{pod.pod}: share of {name} on {node.gpu_model!r} is not known")
                continue
            if share.source == "mig-compute-slices":
                name = f"{kubernetes_resource(resource)} on {node.gpu_model or 'an unknown GPU model'}"
                hour.notes.append(f"the share of {name} is estimated from its compute slices")
            found.append(Holding(pod, node, resource, units, share, held, running))
    return found


def _running(hour: _Hour, pod: PodObservation, held: Interval) -> Interval:
    running = pod.running
    if running is None or running.times == ():
        return Interval(held.end, held.end)
    return hour.span_of(running).overlap(held)


def _effective_requests(pod: PodObservation) -> dict[str, int]:
    """Units per resource as the scheduler counts them: `max(Σ containers, largest init container)`."""
    running: dict[str, int] = {}
    largest_init: dict[str, int] = {}
    for request in pod.requests:
        units = int(request.units)
        if request.init:
            largest_init[request.resource] = max(largest_init.get(request.resource, 0), units)
        else:
            running[request.resource] = running.get(request.resource, 0) + units
    resources = sorted(running.keys() | largest_init.keys())
    units_of = {name: max(running.get(name, 0), largest_init.get(name, 0)) for name in resources}
    return {name: units for name, units in units_of.items() if units > 0}


def _capacity(
    hour: _Hour,
    nodes: Mapping[str, tuple[NodeObservation, GpuNode]],
    times: Mapping[str, NodeTime],
    holdings: Sequence[Holding],
    blind: Sequence[Interval],
) -> tuple[NodeUsage, ...] | None:
    """Every GPU node's account; None where pods hold GPUs on a node of which nothing tells what it has."""
    on_node: dict[str, list[Holding]] = {}
    for holding in holdings:
        on_node.setdefault(holding.node.name, []).append(holding)
    unknown = sorted(on_node.keys() - nodes.keys())
    if unknown:
        hour.notes.append(f"nothing tells how many GPUs node {unknown[0]!r} has: capacity is not known")
        return None
    kept, slices = hour.capacity_is_kept, hour.rules.slices_per_gpu
    return tuple(
        account(
            node,
            seen.provider_id,
            times[name],
            offer(node, seen, slices, capacity_is_kept=kept),
            on_node.get(name, []),
            blind,
        )
        for name, (seen, node) in sorted(nodes.items())
    )


def _device_coverage(
    observation: Observation,
    nodes: Mapping[str, tuple[NodeObservation, GpuNode]],
    times: Mapping[str, NodeTime],
    interval: int,
    *,
    has_pods: bool,
) -> Decimal | None:
    """Time in which devices were seen ÷ time in which they were there; None for a cluster without GPUs."""
    if not nodes and not has_pods:
        return None
    expected, seen = Fraction(0), Fraction(0)
    samples: dict[tuple[str, str, str], int] = {}
    for device in observation.devices:
        key = (device.node, device.uuid, device.mig_instance)
        samples[key] = max(samples.get(key, 0), device.samples)
    on_node: dict[str, list[int]] = {}
    for (node, _, _), count in samples.items():
        on_node.setdefault(node, []).append(count)
    for name in on_node.keys() | nodes.keys():
        counts = on_node.get(name, [])
        present = times[name].present.length if name in times else HOUR_MS
        silent = 0 if counts or name not in nodes else (nodes[name][1].physical or 1)
        expected += present * (len(counts) + silent)
        seen += sum(
            min(present, count * interval) if present - count * interval > interval * 3 / 2 else present
            for count in counts
        )
    return quantize(seen / expected) if expected else Decimal(0)
