"""GPUs that a DRA driver offers: those that claims can have, and how the pods that use one claim share it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from gpucost.core.hour_record import UtilizationSource
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.capacity import AdvertisedGpus, cut_at_interval_edges
from gpucost.core.metering.device_use import DeviceHour
from gpucost.core.metering.gpu_shares import GpuNode, GpuShare
from gpucost.core.metering.holdings import NodeKey
from gpucost.core.metering.nodes import NodeLifecycle, max_simultaneous_devices
from gpucost.core.metering.observations import ClaimedDevice
from gpucost.core.metering.usage import PodUsage

_MOST_PRECISE_FIRST: tuple[UtilizationSource, ...] = ("pod", "shared", "node", "cluster")


def gpus_for_claims(
    lifecycles: Mapping[str, Sequence[NodeLifecycle]], devices: Iterable[DeviceHour]
) -> dict[NodeKey, AdvertisedGpus]:
    """Return the nodes whose GPUs a DRA driver offers, with the GPUs that their exporters report.

    No metric has a node's ResourceSlices. A node offers its GPUs to claims if it advertises none, and an exporter
    reports a claim on it or on a node of its instance type and node pool.
    """
    silent = [
        lifecycle
        for of_name in lifecycles.values()
        for lifecycle in of_name
        if not any(state.capacity for _, state in lifecycle.states)
    ]
    if not silent:
        return {}
    on_node: dict[str, list[DeviceHour]] = {}
    for device in devices:
        on_node.setdefault(device.node, []).append(device)
    pools = {
        _pool(lifecycle.node)
        for lifecycle in silent
        if any(series.resource_claim for device in on_node.get(lifecycle.node.name, ()) for series in device.series)
    }
    offered: dict[NodeKey, AdvertisedGpus] = {}
    for lifecycle in silent:
        node = lifecycle.node
        times = [time for device in on_node.get(node.name, ()) for time in device.observed_times]
        if _pool(node) in pools and times:
            reported = IntervalMs(min(time.start for time in times), max(time.end for time in times))
            series = [series for device in on_node[node.name] for series in device.series]
            gpus = max_simultaneous_devices(series) * node.gpu_fraction
            offered[node.name, node.provider_id] = AdvertisedGpus(reported.overlap(lifecycle.present), gpus, gpus)
    return offered


def _pool(node: GpuNode) -> tuple[str, str]:
    return node.instance_type, node.node_pool


def share_claimed_devices(holdings: list[PodUsage]) -> list[PodUsage]:
    """Divide each claimed device equally among the pods that hold it at a time.

    A holding whose device is shared is replaced by one for each time in which the same pods share it. So a node's pods
    hold no more than its devices at any time.
    """
    by_device: dict[tuple[str, ClaimedDevice], list[PodUsage]] = {}
    for holding in holdings:
        if holding.pod.claimed_device is not None:
            by_device.setdefault((holding.pod.namespace, holding.pod.claimed_device), []).append(holding)
    pieces: dict[int, list[PodUsage]] = {}
    for sharers in by_device.values():
        if len(sharers) > 1:
            for sharer in sharers:
                pieces[id(sharer)] = list(_pieces(sharer, sharers))
    return [piece for holding in holdings for piece in pieces.get(id(holding), [holding])] if pieces else holdings


def _pieces(holding: PodUsage, sharers: Sequence[PodUsage]) -> Iterable[PodUsage]:
    for time in cut_at_interval_edges(holding.held, [sharer.held for sharer in sharers]):
        count = sum(sharer.held.contains(time.start) for sharer in sharers)
        share = holding.share
        yield replace(
            holding,
            share=share if count == 1 else GpuShare(share.gpus_per_unit / count, "sharing", count),
            held=time,
            running=holding.running.overlap(time),
            last_sample_ms=min(holding.last_sample_ms, time.end),
            first_sample_ms=max(holding.first_sample_ms, time.start),
        )


def merge_claimed_devices(holdings: list[PodUsage]) -> list[PodUsage]:
    """Merge what each pod holds of one resource through claims, so that it has one line in the ledger.

    The share is the mean over the time held. GPU-milliseconds do not change.
    """
    merged: dict[tuple[str, ...], list[PodUsage]] = {}
    for holding in holdings:
        if holding.pod.claimed_device is not None:
            pod, node = holding.pod, holding.node
            key = (pod.namespace, pod.pod, pod.uid, node.name, node.provider_id, holding.resource)
            merged.setdefault(key, []).append(holding)
    if not merged:
        return holdings
    requested = [holding for holding in holdings if holding.pod.claimed_device is None]
    lines = requested + [parts[0] if len(parts) == 1 else _merge(parts) for parts in merged.values()]
    return sorted(lines, key=lambda line: (line.pod.namespace, line.pod.pod, line.pod.uid, line.pod.node))


def _merge(parts: Sequence[PodUsage]) -> PodUsage:
    held = IntervalMs(min(part.held.start for part in parts), max(part.held.end for part in parts))
    running_parts = [part.running for part in parts if part.running.length]
    running = IntervalMs(
        min((time.start for time in running_parts), default=held.end),
        max((time.end for time in running_parts), default=held.end),
    )
    units = len({part.pod.claimed_device for part in parts})
    gpu_ms = sum((part.gpu_ms for part in parts), Fraction(0))
    share = next((part.share for part in parts if part.share.replicas > 1), parts[0].share)
    observed = [part for part in parts if part.utilization is not None]
    observed_ms = sum((Fraction(part.observed_ms) for part in observed), Fraction(0))
    merged = replace(
        parts[0],
        units=units,
        share=replace(share, gpus_per_unit=gpu_ms / units / held.length),
        held=held,
        running=running,
        last_sample_ms=max(part.last_sample_ms for part in parts),
        first_sample_ms=min(part.first_sample_ms for part in parts),
    )
    unmeasured_gpu_ms = sum((Fraction(part.unmeasured_gpu_ms) for part in parts), Fraction(0))
    sources = {part.utilization_source for part in parts} - {"none"}
    merged.set_use(
        max(sources, key=_MOST_PRECISE_FIRST.index, default="none"),
        sum((part.utilization * part.observed_ms for part in observed if part.utilization is not None), Fraction(0))
        / observed_ms
        if observed_ms
        else None,
        running.length - unmeasured_gpu_ms / merged.gpus,
        sum((part.effective_gpu_ms for part in parts), Fraction(0)),
        sum((part.used_beyond_allocation_gpu_ms for part in parts), Fraction(0)),
    )
    for part in parts[1:]:  # `merged` is a copy of the first part
        if part.energy_joules is not None:
            merged.add_energy(part.energy_joules, part.energy_gpu_ms)
    return merged
