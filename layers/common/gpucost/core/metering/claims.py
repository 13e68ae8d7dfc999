"""GPUs that a DRA driver offers: those that claims can have, how pods share one, admin access, and pods' pieces."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace

from gpucost.core.hour_record import UTILIZATION_SOURCES
from gpucost.core.intervals import IntervalMs, enclosing_interval
from gpucost.core.metering.capacity import AdvertisedGpus, present_by_piece
from gpucost.core.metering.device_use import DeviceHour
from gpucost.core.metering.gpu_models import Partition, claimable_share, partition_of, profile_share
from gpucost.core.metering.gpu_shares import FRACTION, GpuNode, GpuShare
from gpucost.core.metering.holdings import NodeKey
from gpucost.core.metering.kubernetes_labels import ADMIN_ACCESS_LABEL
from gpucost.core.metering.nodes import NodeLifecycle, max_simultaneous_devices
from gpucost.core.metering.observations import ClaimedDevice, DeviceSeries
from gpucost.core.metering.unexplained import UNKNOWN_PREFIX
from gpucost.core.metering.usage import Holding, PodUsage, Use

ZERO = Fraction(0)
_MAX_NAME_BASE = 58
"""Characters before the random suffix of a name that the API server generates."""
_SAMPLES_WHILE_CLAIMED = 2
"""The most samples without a claim of a partition that was created for one: labels may come, or go, a scrape later."""


class OfferedTime(NamedTuple):
    """A device in a node's ResourceSlices, and when it was there."""

    name: str
    time: IntervalMs


def gpus_for_claims(
    lifecycles: Mapping[str, Sequence[NodeLifecycle]],
    devices: Iterable[DeviceHour],
    holdings: Iterable[Holding] = (),
    offered: Mapping[str, Sequence[OfferedTime]] | None = None,
) -> tuple[dict[NodeKey, Sequence[AdvertisedGpus]], list[str]]:
    """Return the nodes whose GPUs a DRA driver offers, with the GPUs that claims hold or can have, by time; and notes.

    A node offers its GPUs to claims if it advertises none, and a collector reports its ResourceSlices. Without a
    collector, the GPUs of its instance type are offered, if an exporter reports a claim on it or on a node of its
    instance type and node pool; of a type that is not in the catalog, as many as exporters report of any such node. Of
    a GPU with partitions, claims can have what further partitions can have.

    Args:
        lifecycles: the nodes by name.
        devices: all devices that exporters report.
        holdings: what pods hold.
        offered: by node, the devices in its ResourceSlices, and when they were.
    """
    silent = [
        lifecycle
        for of_name in lifecycles.values()
        for lifecycle in of_name
        if not any(state.capacity for _, state in lifecycle.states)
    ]
    if not silent:
        return {}, []
    on_node: dict[str, list[DeviceHour]] = {}
    for device in devices:
        on_node.setdefault(device.node, []).append(device)
    held: dict[NodeKey, list[Holding]] = {}
    for holding in holdings:
        if holding.pod.claimed_device is not None:
            held.setdefault((holding.node.name, holding.node.provider_id), []).append(holding)
    pools = {
        _pool(lifecycle.node)
        for lifecycle in silent
        if any(series.resource_claim for device in on_node.get(lifecycle.node.name, ()) for series in device.series)
    }
    most: dict[tuple[str, str], int] = {}
    for lifecycle in silent:
        pool, count = _pool(lifecycle.node), _reported_gpus(on_node.get(lifecycle.node.name, ()))
        most[pool] = max(count, most.get(pool, 0))
    gpus: dict[NodeKey, Sequence[AdvertisedGpus]] = {}
    hidden: dict[str, tuple[int, int]] = {}
    """How many GPUs exporters report of a node that has more, and how many it has."""
    for lifecycle in silent:
        node = lifecycle.node
        key = node.name, node.provider_id
        if offered and node.name in offered:
            gpus[key] = _gpus_in_slices(lifecycle, held.get(key, ()), offered[node.name])
        elif _pool(node) in pools and any(device.observed_times for device in on_node.get(node.name, ())):
            reported = _reported_gpus(on_node[node.name])
            count = max(reported, node.devices or most[_pool(node)])
            if count > reported:
                hidden[node.name] = reported, count
            gpus[key] = _gpus_of_exporter(lifecycle, held.get(key, ()), on_node[node.name], count)
    return gpus, _hidden_gpus_notes(hidden)


def _reported_gpus(devices: Iterable[DeviceHour]) -> int:
    """Return the most GPUs of a node that exporters report at one time."""
    return max_simultaneous_devices(series for device in devices for series in device.series)


def _pool(node: GpuNode) -> tuple[str, str]:
    return node.instance_type, node.node_pool


def _gpus_in_slices(
    lifecycle: NodeLifecycle, held: Sequence[Holding], offered: Sequence[OfferedTime]
) -> list[AdvertisedGpus]:
    """Return the GPUs of a node that claims hold, or that devices in its ResourceSlices let claims have."""
    gpus = []
    named = _named(held)
    for piece, (offered_indexes, held_indexes) in present_by_piece(
        lifecycle.present, [device.time for device in offered], [holding.held for holding, _ in named]
    ):
        names = {offered[index].name for index in offered_indexes}
        held_names = {named[index][1] for index in held_indexes}
        if names:
            partitions = _partitions_by_gpu(names)
            whole = {name for name in names | held_names if partition_of(name) is None}
            of_claims = _partitions_by_gpu(held_names)
            usable = (
                _held_or_claimable(
                    lifecycle.node, of_claims.get(gpu, set()), partitions.get(gpu, set()), is_offered_whole=gpu in whole
                )
                for gpu in whole | partitions.keys() | of_claims.keys()
            )
            total = sum(usable, ZERO) * lifecycle.node.gpu_fraction
            gpus.append(AdvertisedGpus(piece, total, total))
    return gpus


def _held_or_claimable(
    node: GpuNode, held: set[Partition], offered: set[Partition] | None, *, is_offered_whole: bool
) -> Fraction:
    """Return the part of a GPU that claims hold as partitions, or can have; all of it if that is unknown."""
    if is_offered_whole and not held:
        return Fraction(1)
    claimable = claimable_share(node.gpu_model, held, offered)
    if claimable is None:
        return Fraction(1)
    shares = (profile_share(partition.profile, node.gpu_model) or 0 for partition in held)
    return min(Fraction(1), claimable + sum(shares, ZERO))


def _gpus_of_exporter(
    lifecycle: NodeLifecycle, held: Sequence[Holding], devices: Sequence[DeviceHour], count: int
) -> list[AdvertisedGpus]:
    """Return the GPUs of a node, less what no claim can have of GPUs with partitions, while its exporter reports any.

    Args:
        lifecycle: the node.
        held: what pods hold on it.
        devices: those that its exporter reports.
        count: the number of its GPUs.
    """
    node = lifecycle.node
    observed = [time for device in devices for time in device.observed_times]
    reported = IntervalMs(min(time.start for time in observed), max(time.end for time in observed))
    reported = reported.overlap(lifecycle.present)
    series = [series for device in devices for series in device.series]
    gpus = Fraction(count)
    layouts = _static_layouts(series)
    for layout in layouts.values():
        shares = [profile_share(profile, node.gpu_model) for profile in layout]
        if None not in shares:
            gpus -= max(ZERO, 1 - sum((share or 0 for share in shares), ZERO))
    dynamic = [
        (holding, name)
        for holding, name in _named(held)
        if partition_of(name) and holding.pod.claimed_device and holding.pod.claimed_device.uuid not in layouts
    ]
    advertised = []
    for piece, (present,) in present_by_piece(reported, [holding.held for holding, _ in dynamic]):
        partitions = _partitions_by_gpu(dynamic[index][1] for index in present)
        usable = (_held_or_claimable(node, of_gpu, None, is_offered_whole=True) for of_gpu in partitions.values())
        total = (gpus - len(partitions) + sum(usable, ZERO)) * node.gpu_fraction
        advertised.append(AdvertisedGpus(piece, total, total))
    return advertised


def _static_layouts(series: Iterable[DeviceSeries]) -> dict[str, list[str]]:
    """Return the profiles of the partitions of GPUs whose partitions exist without claims, by UUID.

    Where the driver creates partitions for claims, none exists without one, except for a moment.
    """
    profiles: dict[tuple[str, str], str] = {}
    static: set[str] = set()
    for device in series:
        if device.mig_instance:
            profiles[device.uuid, device.mig_instance] = device.mig_profile
            samples = device.sample_count if device.samples is None else len(device.samples)
            if not device.resource_claim and samples > _SAMPLES_WHILE_CLAIMED:
                static.add(device.uuid)
    layouts: dict[str, list[str]] = {}
    for (uuid, _), profile in profiles.items():
        if uuid in static:
            layouts.setdefault(uuid, []).append(profile)
    return layouts


def _hidden_gpus_notes(hidden: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return a note if exporters report fewer GPUs than nodes have whose GPUs are for claims.

    dcgm-exporter's commit b77dab5 (pull request 570) reports GPUs without claims again; 4.4.2-4.7.0 is the first tag
    that contains it.
    """
    if not hidden:
        return []
    reported, total = (sum(numbers[position] for numbers in hidden.values()) for position in (0, 1))
    return [
        f"exporters report {reported} of {total} GPUs of {len(hidden)} nodes whose GPUs are for claims (the first is "
        f"{min(hidden)!r}): dcgm-exporter 4.3.1-4.4.0 to 4.4.1-4.6.0 hides those that no pod has. They count as "
        "unallocated. Update dcgm-exporter to 4.4.2-4.7.0 or later"
    ]


def _named(holdings: Iterable[Holding]) -> list[tuple[Holding, str]]:
    """Return what pods hold through claims, with the devices' names in ResourceSlices."""
    devices = ((holding, holding.pod.claimed_device) for holding in holdings)
    return [(holding, device.name) for holding, device in devices if device is not None and device.name]


def _partitions_by_gpu(names: Iterable[str]) -> dict[str, set[Partition]]:
    by_gpu: dict[str, set[Partition]] = {}
    for partition in map(partition_of, names):
        if partition is not None:
            by_gpu.setdefault(partition.gpu, set()).add(partition)
    return by_gpu


# How the pods that use one claim share its devices.


def share_claimed_devices(holdings: list[Holding]) -> list[Holding]:
    """Divide each claimed device equally among the pods that hold it at a time, and a GPU among its partitions.

    The shares of a GPU's partitions can add up to more than the GPU (3g+2g+1g with double memory is 29/28). They are
    scaled down while they do. A holding whose share changes is replaced by one for each time in which it does not. So
    a node's pods hold no more than its devices at any time.
    """
    on_gpu: dict[tuple[str, str, str], list[int]] = {}
    for index, holding in enumerate(holdings):
        if holding.pod.claimed_device is not None:
            key = holding.node.name, holding.node.provider_id, _gpu_of(holding.pod.claimed_device)
            on_gpu.setdefault(key, []).append(index)
    pieces: dict[int, list[Holding]] = {}
    for indexes in on_gpu.values():
        holders = [holdings[index] for index in indexes]
        if len(holders) > 1:
            pieces |= {indexes[position]: parts for position, parts in _pieces_of_holders(holders).items()}
    if not pieces:
        return holdings
    return [piece for index, holding in enumerate(holdings) for piece in pieces.get(index, [holding])]


# Claims that are no use of their own: of extended resources, and with admin access.


def is_claim_of_extended_resources(claim: str, pod: str) -> bool:
    """Whether the scheduler generated a claim for the extended resources that a pod requests.

    Source: Kubernetes, extendeddynamicresources.go of the scheduler's plugin for DRA, and the API server's generator of
    names, which cuts them.
    """
    base = f"{pod}-extended-resources-"[:_MAX_NAME_BASE]
    return claim.startswith(base) and len(claim) > len(base)


def without_admin_access(holdings: list[Holding], admin_namespaces: Container[str]) -> list[Holding]:
    """Drop claims with admin access: they look at devices that other claims hold, and hold none.

    No metric says which claims have it. A claim is taken for one if its namespace may have such claims, and another
    claim had one of its devices at the same scrape. The scheduler's claims for extended resources never have it.
    """
    of_admins = [holding for holding in holdings if _may_have_admin_access(holding, admin_namespaces)]
    if not of_admins:
        return holdings
    of_others: dict[tuple[str, str, str], list[Holding]] = {}
    for holding in holdings:
        if _is_claim(holding) and not _may_have_admin_access(holding, admin_namespaces):
            of_others.setdefault(_device_key(holding), []).append(holding)
    looks = {
        _claim_key(holding)
        for holding in of_admins
        if any(_are_simultaneous(holding, other) for other in of_others.get(_device_key(holding), ()))
    }
    return [holding for holding in holdings if not _is_claim(holding) or _claim_key(holding) not in looks]


def notes_on_admin_namespaces(holdings: Iterable[Holding], admin_namespaces: Container[str]) -> list[str]:
    """Return a note for each node whose devices only claims hold that may have admin access, which holds none."""
    devices = {_device_key(holding) for holding in holdings if _may_have_admin_access(holding, admin_namespaces)}
    return [
        f"{UNKNOWN_PREFIX}{count} devices of node {node!r} are allocated only to claims of namespaces with the label "
        f"{ADMIN_ACCESS_LABEL}. No metric says whether these claims have adminAccess, so they count as held"
        for node, count in sorted(Counter(node for node, _, _ in devices).items())
    ]


def _may_have_admin_access(holding: Holding, admin_namespaces: Container[str]) -> bool:
    pod = holding.pod
    return (
        pod.claimed_device is not None
        and pod.namespace in admin_namespaces
        and not is_claim_of_extended_resources(pod.claimed_device.claim, pod.pod)
    )


def notes_on_claimed_devices(holdings: Iterable[Holding], *, collects_admin_access: bool) -> list[str]:
    """Return a note for each node with devices that several claims hold at a time."""
    by_device: dict[tuple[str, str, str], list[Holding]] = {}
    for holding in holdings:
        if _is_claim(holding):
            by_device.setdefault(_device_key(holding), []).append(holding)
    devices = Counter(node for (node, _, _), holders in by_device.items() if _have_simultaneous_claims(holders))
    change = (
        ""
        if collects_admin_access
        else f". If one of them has adminAccess, set --metric-labels-allowlist=namespaces=[{ADMIN_ACCESS_LABEL}] in "
        "kube-state-metrics, which shows that it holds none"
    )
    return [
        f"{UNKNOWN_PREFIX}{count} devices of node {node!r} are each allocated to several claims, which hold equal parts"
        f"{change}"
        for node, count in sorted(devices.items())
    ]


def _have_simultaneous_claims(holders: Iterable[Holding]) -> bool:
    latest: Holding | None = None
    for holder in sorted(holders, key=lambda holder: holder.first_sample_ms):
        if latest and _claim_key(holder) != _claim_key(latest) and _are_simultaneous(holder, latest):
            return True
        if latest is None or holder.last_sample_ms > latest.last_sample_ms:
            latest = holder
    return False


def _is_claim(holding: Holding) -> bool:
    return holding.pod.claimed_device is not None


def _device_key(holding: Holding) -> tuple[str, str, str]:
    """Identify the device of a claim: a whole GPU, or a partition."""
    device = holding.pod.claimed_device
    name = (device.name or f"{device.uuid}/{device.mig_instance}") if device else ""
    return holding.node.name, holding.node.provider_id, name


def _claim_key(holding: Holding) -> tuple[str, str]:
    device = holding.pod.claimed_device
    return holding.pod.namespace, device.claim if device else ""


def _are_simultaneous(holding: Holding, other: Holding) -> bool:
    """Whether both have samples of the same time. One that follows the other has later samples."""
    first = max(holding.first_sample_ms, other.first_sample_ms)
    return first <= min(holding.last_sample_ms, other.last_sample_ms) and holding.held.overlap(other.held).length > 0


def _gpu_of(device: ClaimedDevice) -> str:
    partition = partition_of(device.name)
    return partition.gpu if partition else device.name or device.uuid


def _pieces_of_holders(holders: Sequence[Holding]) -> dict[int, list[Holding]]:
    """Cut the holders of one GPU wherever one starts or ends, and divide the GPU in each piece.

    Keys are positions of holders; those whose share never changes are left out.
    """
    times = [holder.held for holder in holders]
    pieces: list[list[tuple[IntervalMs, GpuShare]]] = [[] for _ in holders]
    for time, (indexes,) in present_by_piece(enclosing_interval(times), times):
        if not indexes:  # between two holders
            continue
        present = [holders[index] for index in indexes]
        pods_by_claim, scale = Counter(map(_claim_of, present)), _scale(present)
        for index, holder in zip(indexes, present, strict=True):
            pieces[index].append((time, _share_of_piece(holder, pods_by_claim[_claim_of(holder)], scale)))
    return {
        position: [holder.during(time, share) for time, share in pieces[position]]
        for position, holder in enumerate(holders)
        if any(share is not holder.share for _, share in pieces[position])
    }


def _share_of_piece(holder: Holding, count: int, scale: Fraction) -> GpuShare:
    """Return a holder's share while `count` pods, itself included, hold its claim.

    Returns the holder's own share object if nothing changes: the caller compares by identity.

    Args:
        holder: the holder.
        count: the number of pods.
        scale: the factor for all shares of the GPU.
    """
    share = holder.share
    if count > 1:
        return GpuShare(share.gpus_per_unit * scale / count, "sharing", count)
    return share if scale == 1 else GpuShare(share.gpus_per_unit * scale, share.source, share.replicas)


def _claim_of(holding: Holding) -> tuple[str, ClaimedDevice | None]:
    return holding.pod.namespace, holding.pod.claimed_device


def _scale(holders: Sequence[Holding]) -> Fraction:
    """Return the factor for the shares of a GPU's claims at a time, so that they hold no more than the GPU."""
    shares = {_claim_of(holder): holder.share.gpus_per_unit for holder in holders}
    total, gpu = sum(shares.values(), ZERO), holders[0].node.gpu_fraction
    return Fraction(1) if total <= gpu else gpu / total


# Pieces of a pod's usage, whose share changes when claims begin and end.


def merge_pieces(usages: list[PodUsage]) -> list[PodUsage]:
    """Merge what each pod holds of one resource through one claim or as a fraction: one line in the ledger for each.

    The share is the mean over the time held. GPU-milliseconds do not change.
    """
    pieces = [usage for usage in usages if usage.pod.claimed_device is not None or usage.share.source == FRACTION]
    if not pieces:
        return usages
    merged: dict[tuple[str, ...], list[PodUsage]] = {}
    for usage in pieces:
        pod, node = usage.pod, usage.node
        claim = pod.claimed_device.claim if pod.claimed_device is not None else ""
        key = (pod.namespace, pod.pod, pod.uid, node.name, node.provider_id, usage.resource, claim)
        merged.setdefault(key, []).append(usage)
    requested = [usage for usage in usages if usage.pod.claimed_device is None and usage.share.source != FRACTION]
    lines = requested + [parts[0] if len(parts) == 1 else _merge(parts) for parts in merged.values()]
    return sorted(lines, key=lambda line: (line.pod.namespace, line.pod.pod, line.pod.uid, line.pod.node))


def _merge(parts: Sequence[PodUsage]) -> PodUsage:
    first = parts[0]
    # It held from the first part's start to the last one's end, as much as the parts on average.
    held = IntervalMs(min(part.held.start for part in parts), max(part.held.end for part in parts))
    is_claim = first.pod.claimed_device is not None
    units = len({part.pod.claimed_device for part in parts}) if is_claim else first.units
    gpu_ms = sum((part.gpu_ms for part in parts), ZERO)
    share = next((part.share for part in parts if part.share.replicas > 1), first.share)
    running_parts = [part.running for part in parts if part.running.length]
    running = IntervalMs(
        min((time.start for time in running_parts), default=held.end),
        max((time.end for time in running_parts), default=held.end),
    )
    # Its observed time leaves as much GPU time unmeasured as the parts have; of several sources, the least precise.
    uses, energies = [part.use for part in parts], [part.energy for part in parts if part.energy is not None]
    unmeasured_gpu_ms = sum((Fraction(part.unmeasured_gpu_ms) for part in parts), ZERO)
    observed_ms = sum((Fraction(use.observed_ms) for use in uses if use.utilization is not None), ZERO)
    used_ms = sum((use.utilization * use.observed_ms for use in uses if use.utilization is not None), ZERO)
    return replace(
        first,
        units=units,
        share=replace(share, gpus_per_unit=gpu_ms / units / held.length),
        held=held,
        running=running,
        last_sample_ms=max(part.last_sample_ms for part in parts),
        first_sample_ms=min(part.first_sample_ms for part in parts),
        use=Use(
            max({use.source for use in uses} - {"none"}, key=UTILIZATION_SOURCES.index, default="none"),
            used_ms / observed_ms if observed_ms else None,
            running.length - unmeasured_gpu_ms * held.length / gpu_ms,
            sum((use.effective_gpu_ms for use in uses), ZERO),
            sum((use.beyond_allocation_gpu_ms for use in uses), ZERO),
        ),
        energy=sum(energies[1:], energies[0]) if energies else None,
    )
