"""Metering: from an hour's observation to the GPU time that each pod held and used."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from itertools import pairwise

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.amounts import quantize
from gpucost.core.hour_record import MEASURED_SOURCES, Coverage, UtilizationSource
from gpucost.core.hours import HOUR_MS, format_epoch_ms, to_epoch_ms
from gpucost.core.intervals import IntervalMs, Scrapes, gaps, overlap_length, union
from gpucost.core.metering.capacity import AdvertisedGpus, DisputedHolding, advertised_gpus, split_node_time
from gpucost.core.metering.claims import (
    OfferedTime,
    gpus_for_claims,
    merge_pieces,
    notes_on_admin_namespaces,
    notes_on_claimed_devices,
    share_claimed_devices,
    without_admin_access,
)
from gpucost.core.metering.contradictions import (
    contradiction_notes,
    contradictory_devices,
    exclude_suspect_devices,
    nodes_with_surplus_devices,
    surplus_assigned_devices,
)
from gpucost.core.metering.device_use import (
    DeviceAssignments,
    DeviceHour,
    DeviceKey,
    GpusOfPod,
    assign_devices,
    device_hours,
    group_by_device,
    scale_mig_shares,
)
from gpucost.core.metering.energy import attribute_energy, gpu_energies, times_of_unknown_holders
from gpucost.core.metering.fraction_schedulers import SCHEDULER_NAMES
from gpucost.core.metering.gpu_fractions import gpus_of_groups, limit_to_gpus, nodes_with_vgpus
from gpucost.core.metering.holdings import HeldGpus, NodeKey, end_at_last_labels, read_holdings
from gpucost.core.metering.implausible_samples import (
    SUSPECT_PREFIX,
    are_utilizations,
    format_sample_value,
    is_utilization,
)
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE
from gpucost.core.metering.nodes import NodeLifecycle, describe_node, is_gpu_node, unlabeled_gpus_notes
from gpucost.core.metering.nvlink_domains import FreeGpus, MinimumJob, minimum_job_gpus, strand_free_gpus
from gpucost.core.metering.observations import (
    DeviceSeries,
    NodeObservation,
    Observation,
    PodObservation,
    ScrapeTarget,
    Unexplained,
)
from gpucost.core.metering.served_tokens import served_tokens
from gpucost.core.metering.spans import DEFAULT_INTERVAL_MS, SpanReader
from gpucost.core.metering.unexplained import UNKNOWN_PREFIX, relevant_things, unexplained_notes
from gpucost.core.metering.usage import Energy, Holding, NodeEnergy, NodeUsage, PodUsage, Usage
from gpucost.core.metering.utilization import (
    UtilizationResolver,
    devices_of_containers,
    pods_measured_by_container,
    unlabeled_pods_notes,
)

MAX_BRIDGED_GAP_MS = 300_000
"""Free GPUs count as unallocated during gaps up to this long (Prometheus' look-back), otherwise as unobserved."""
LATEST_FIRST_SCRAPE_MS = 180_000
"""Samples of an hour that begin later are those of a part of it."""
PARTIAL_HOUR_PREFIX = "partial hour: "
"""Notes on hours with samples of only a part begin with it."""
NOTEWORTHY_GPU_MS = 36_000
"""Deviations of at least a hundredth of a GPU-hour are reported in notes."""
_WITHOUT_PODS = "GPUs that no node advertises and no pod requested"
_REPORT_CLAIMS = (
    "If pods have them through ResourceClaims: set KUBERNETES_ENABLE_DRA in dcgm-exporter, and keep "
    "kube_pod_resourceclaim_info of kube-state-metrics"
)


class MeteringRules(Struct, frozen=True):
    """The settings that metering needs."""

    utilization_sources: tuple[UtilizationSource, ...] = MEASURED_SOURCES
    slices_per_gpu: int | None = None
    gpus_by_instance_type: Mapping[str, int | Fraction] = field(default_factory=lambda: GPUS_OF_INSTANCE)
    minimum_jobs: tuple[MinimumJob, ...] = ()
    """The smallest jobs of NVLink domains, by node pool."""
    gpus_per_unit: Mapping[str, Fraction] = field(default_factory=dict)
    """Physical GPUs per unit of resources that the catalog does not have."""


def meter(observation: Observation, rules: MeteringRules, window: IntervalMs | None = None) -> Usage:
    """Meter one cluster-hour.

    Args:
        observation: the hour's samples.
        rules: the settings.
        window: a part of the hour; None for all of it.

    Returns:
        The usage with its coverage, which is 0 without any scrape of the allocation source.
    """
    start = to_epoch_ms(observation.hour)
    window = window or IntervalMs(start, start + HOUR_MS)

    # When the allocation source was scraped. What pods held on both sides of a gap, they held in it; free GPUs are
    # unobserved in it if it is long.
    spans = SpanReader(observation.allocation_scrapes, window, observation.utilization_scrapes)
    covered = union(
        time
        for scrapes in observation.allocation_scrapes.values()
        for time in scrapes.coverage(window, DEFAULT_INTERVAL_MS)
    )
    unobserved = gaps(covered, window, MAX_BRIDGED_GAP_MS)
    before_samples = _time_before_samples(observation.allocation_scrapes, window)

    # The nodes, and the devices about which exporters do not contradict each other. A device that several exporters
    # describe differently has no use, rather than that of either.
    vgpu_nodes = nodes_with_vgpus(observation)
    lifecycles = _node_lifecycles(observation, spans, rules, vgpu_nodes)
    all_devices, suspect = _trusted_devices(observation, lifecycles, window)

    # What pods held: whole units first, then the parts of devices of claims, and of GPUs with fractions, that several
    # pods held at a time.
    held = read_holdings(observation, spans, lifecycles, vgpu_nodes, rules.slices_per_gpu)
    if observation.lacks_ends_of_pods:
        held = end_at_last_labels(held, all_devices)
    holdings, claim_notes = _share_claims(held.holdings, observation.admin_namespaces)
    gpus_of_pod = gpus_of_groups(observation.pods, all_devices, observation.vgpus.gpus_of_pod)
    if vgpu_nodes or gpus_of_pod:
        holdings = limit_to_gpus(holdings, gpus_of_pod)

    # On which devices the pods were. A MIG slice's share depends on the GPU on which it is.
    devices, assignments, surplus = _assign_devices(holdings, all_devices, window, held.disputed, gpus_of_pod)
    holdings = scale_mig_shares(holdings, assignments)

    # How the pods used them, and what they drew.
    containers = devices_of_containers(observation.vgpus.use, observation.utilization_scrapes, window)
    resolver = UtilizationResolver(
        holdings,
        devices,
        assignments,
        rules.utilization_sources,
        window,
        device_hours(group_by_device(observation.process_devices), observation.utilization_scrapes, window),
        pods_measured_by_container(holdings, containers, gpus_of_pod),
    )
    use_without_pods = _use_without_pods(resolver, held.disputed)
    energy_of_holdings, energy_of_nodes = _energy(
        observation, holdings, assignments, lifecycles, held, unobserved, window
    )
    energies = map(energy_of_holdings.get, range(len(holdings)))
    usages = list(map(PodUsage.of, holdings, resolver.uses, energies))
    served, token_notes = served_tokens(observation.counters, holdings, window)

    # What is left of each node. GPUs that something unknown may hold are unobserved instead of stranded.
    for_claims, hidden_notes = gpus_for_claims(lifecycles, devices, holdings, _offered_times(observation, spans))
    unexplained, notes_on_unexplained = _nodes_with_unexplained(observation, use_without_pods, lifecycles, for_claims)
    nodes, node_notes = _split_nodes(
        observation, vgpu_nodes, lifecycles, holdings, held.disputed, unobserved, for_claims, rules
    )
    return Usage(
        cluster=observation.cluster,
        hour=observation.hour,
        coverage=Coverage(
            allocation=quantize(Fraction(overlap_length(covered, window), window.length)),
            utilization=_device_coverage(devices, lifecycles, holdings, window),
        ),
        pods=tuple(merge_pieces(usages)),
        nodes=None if nodes is None else tuple(_completed(node, energy_of_nodes, unexplained) for node in nodes),
        notes=suspect_first(
            [
                *observation.notes,
                *_scrape_gap_notes(covered, unobserved, before_samples, window),
                *unlabeled_gpus_notes(lifecycle for of_name in lifecycles.values() for lifecycle in of_name),
                *held.notes,
                *claim_notes,
                *contradiction_notes(suspect | surplus),
                *_partial_hour_notes(before_samples, window, holdings),
                *_unusable_utilization_notes(observation, resolver),
                *token_notes,
                *hidden_notes,
                *notes_on_unexplained,
                *node_notes,
            ]
        ),
        served=served,
    )


def _share_claims(
    holdings: list[Holding], admin_namespaces: Container[str] | None
) -> tuple[list[Holding], Sequence[str]]:
    """Divide devices of claims among the pods that hold them; return notes about those that may hold none, too.

    Args:
        holdings: what pods hold.
        admin_namespaces: those whose claims may have admin access; None if no pod has a claim.
    """
    if admin_namespaces is None:
        return share_claimed_devices(holdings), ()
    holdings = without_admin_access(holdings, admin_namespaces)
    notes = [
        *notes_on_admin_namespaces(holdings, admin_namespaces),
        *notes_on_claimed_devices(holdings, collects_admin_access=bool(admin_namespaces)),
    ]
    return share_claimed_devices(holdings), notes


def _assign_devices(
    holdings: Sequence[Holding],
    devices: list[DeviceHour],
    window: IntervalMs,
    disputed: Iterable[NodeKey],
    gpus_of_pod: GpusOfPod,
) -> tuple[list[DeviceHour], DeviceAssignments, dict[DeviceKey, tuple[str, str]]]:
    """Assign devices to holdings, without those by which several exporters give a pod more than it requests.

    Returns:
        The remaining devices, their assignments, and the others with two of their exporters.
    """
    assignments = assign_devices(holdings, devices, window, {name for name, _ in disputed}, gpus_of_pod)
    surplus = surplus_assigned_devices(holdings, assignments, window)
    if surplus:
        devices = exclude_suspect_devices(devices, surplus)
        assignments = assign_devices(holdings, devices, window, {name for name, _, _ in surplus}, gpus_of_pod)
    return devices, assignments, surplus


def _energy(
    observation: Observation,
    holdings: Sequence[Holding],
    assignments: DeviceAssignments,
    lifecycles: Mapping[str, Sequence[NodeLifecycle]],
    held: HeldGpus,
    unobserved: Sequence[IntervalMs],
    window: IntervalMs,
) -> tuple[Mapping[int, Energy], Mapping[NodeKey, NodeEnergy]]:
    """Return the energy of holdings, by their index, and of nodes; none where no exporter measures it."""
    if not observation.energy:
        return {}, {}
    return attribute_energy(
        gpu_energies(observation.energy, observation.utilization_scrapes, window),
        holdings,
        assignments,
        lifecycles,
        times_of_unknown_holders(holdings, assignments, held.disputed, lifecycles, unobserved),
        window,
    )


def _completed(node: NodeUsage, energies: Mapping[NodeKey, NodeEnergy], unexplained: Container[NodeKey]) -> NodeUsage:
    """Return a node with its energy; GPUs that something unknown may hold are unobserved."""
    key = node.node.name, node.provider_id
    if key in unexplained:
        node = node.with_unexplained_as_unobserved()
    return replace(node, energy=energies[key]) if key in energies else node


def _offered_times(observation: Observation, spans: SpanReader) -> dict[str, list[OfferedTime]]:
    """Return, by node, the devices in ResourceSlices and when they were there."""
    offered: dict[str, list[OfferedTime]] = {}
    for device in observation.offered_devices:
        time = spans.span(device.sample_times).time
        if time.length:
            offered.setdefault(device.node, []).append(OfferedTime(device.name, time))
    return offered


def _trusted_devices(
    observation: Observation, lifecycles: Mapping[str, Sequence[NodeLifecycle]], window: IntervalMs
) -> tuple[list[DeviceHour], dict[DeviceKey, tuple[str, str]]]:
    """Return the devices without contradictory exporters, and the others with two contradictory exporters each."""
    pods = {(pod.namespace, pod.pod) for pod in observation.pods}
    series_by_device = group_by_device(observation.devices)
    suspect = contradictory_devices(series_by_device, window, pods)
    surplus = nodes_with_surplus_devices(lifecycles, observation.devices, window)
    devices = device_hours(series_by_device, observation.utilization_scrapes, window)
    if observation.contradicted_gpus:
        for device in devices:
            device.is_contradicted = device.key[:2] in observation.contradicted_gpus
    suspect |= {device.key: surplus[device.node] for device in devices if device.node in surplus}
    return exclude_suspect_devices(devices, suspect), suspect


def suspect_first(notes: Iterable[str]) -> tuple[str, ...]:
    """Deduplicate notes. Those about suspect samples and unknown things are first: the ledger keeps only a thousand."""
    return tuple(sorted(dict.fromkeys(notes), key=lambda note: not note.startswith((SUSPECT_PREFIX, UNKNOWN_PREFIX))))


def _node_lifecycles(
    observation: Observation, spans: SpanReader, rules: MeteringRules, vgpu_nodes: Container[str]
) -> dict[str, list[NodeLifecycle]]:
    """Return all nodes by name; nodes that replaced each other under one name are in order of time."""
    devices: dict[str, list[DeviceSeries]] = {}
    for device in observation.devices:
        devices.setdefault(device.node, []).append(device)
    scheduled: dict[str, list[int]] = {}
    for pod in observation.pods:
        if pod.scheduled_at is not None:
            scheduled.setdefault(pod.node, []).append(pod.scheduled_at)
    lifecycles_by_name: dict[str, list[NodeLifecycle]] = {}
    holders = _HoldersByNode(observation.pods)
    for node in observation.nodes:
        present = _presence_of_node(node, scheduled.get(node.name, ()), spans)
        lifecycles = lifecycles_by_name.setdefault(
            node.name, []
        )  # stays empty for a node that did not exist in the hour
        if present.length:
            has_vgpus = node.name in vgpu_nodes
            of_node = devices.get(node.name, ())
            lifecycles.append(_node_lifecycle(node, present, of_node, spans, rules, holders, has_vgpus=has_vgpus))
    for name, lifecycles in lifecycles_by_name.items():
        lifecycles.sort(key=lambda lifecycle: (lifecycle.present, lifecycle.node.provider_id))
        # A node ends where its successor begins, because two nodes of one name never exist at the same time.
        lifecycles_by_name[name] = [
            NodeLifecycle(
                lifecycle.node,
                IntervalMs(lifecycle.present.start, min(lifecycle.present.end, successor.present.start)),
                lifecycle.states,
            )
            for lifecycle, successor in pairwise(lifecycles)
        ] + lifecycles[-1:]
    return lifecycles_by_name


class _HoldersByNode:
    """The pods that request GPUs on each node, with the units that they hold all hour; grouped if any node needs it."""

    def __init__(self, pods: Sequence[PodObservation]) -> None:
        self._pods = pods

    def __call__(self, node: str) -> Mapping[tuple[str, str], Decimal]:
        return self._by_node.get(node, {})

    @cached_property
    def _by_node(self) -> dict[str, dict[tuple[str, str], Decimal]]:
        by_node: dict[str, dict[tuple[str, str], Decimal]] = {}
        for pod in self._pods:
            units = sum((request.units for request in pod.requests if request.kind == "container"), Decimal(0))
            all_hour = units if pod.held_samples is None else Decimal(0)
            by_node.setdefault(pod.node, {})[pod.namespace, pod.pod] = all_hour
        return by_node


def _presence_of_node(node: NodeObservation, scheduled: Sequence[int], spans: SpanReader) -> IntervalMs:
    """Return when a node existed; one that joined during a gap existed when its first pod was scheduled."""
    present = spans.span(node.sample_times).time
    gap = spans.gap_before(node.sample_times)
    start = min((time for time in scheduled if gap.contains(time)), default=present.start)
    return IntervalMs(min(start, present.start), present.end).overlap(spans.window)


def _node_lifecycle(
    observed: NodeObservation,
    present: IntervalMs,
    devices: Sequence[DeviceSeries],
    spans: SpanReader,
    rules: MeteringRules,
    holders: "_HoldersByNode",
    *,
    has_vgpus: bool,
) -> NodeLifecycle:
    series_of_node = [device for device in devices if _has_samples_within(device, present)]
    changing = [device for device in series_of_node if device.samples is not None]  # of most nodes none
    describe = partial(
        describe_node,
        gpus_by_instance_type=rules.gpus_by_instance_type,
        gpus_per_unit=rules.gpus_per_unit,
        has_vgpus=has_vgpus,
        holders=None if rules.slices_per_gpu else holders,
    )
    states = []
    times = [spans.span(state.sample_times).time for state in observed.states]
    for index, state in enumerate(observed.states):
        start = times[index].start
        if index == 0 and spans.gap_before(state.sample_times).contains(present.start):
            start = present.start  # pods were scheduled to it, so it advertised GPUs by then
        time = IntervalMs(start, times[index].end).overlap(present)
        if time.length:
            series = series_of_node
            if changing:
                series = [device for device in series_of_node if _has_samples_within(device, time)]
            states.append((time, describe(observed, state.labels, series, state.capacity, state.allocatable)))
    if len(observed.states) == len(states) == 1:
        ((time, node),) = states
        # Nearly all nodes. The description of the whole hour would have the same labels, capacity and devices.
        if node.labels == observed.labels and all(_has_samples_within(device, time) for device in changing):
            return NodeLifecycle(node, present, tuple(states))
    latest_capacity = observed.states[-1].capacity if observed.states else {}
    node = describe(observed, observed.labels, series_of_node, latest_capacity, {})
    return NodeLifecycle(node, present, tuple(states))


def _has_samples_within(device: DeviceSeries, present: IntervalMs) -> bool:
    """Whether a device's series belongs to this node and not to another of the same name in the hour."""
    return device.samples is None or any(present.contains(time) for time, _ in device.samples)


def _split_nodes(
    observation: Observation,
    vgpu_nodes: Container[str],
    lifecycles: Mapping[str, Sequence[NodeLifecycle]],
    holdings: Iterable[Holding],
    disputed: Mapping[NodeKey, Sequence[DisputedHolding]],
    unobserved: Sequence[IntervalMs],
    for_claims: Mapping[NodeKey, Sequence[AdvertisedGpus]],
    rules: MeteringRules,
) -> tuple[Sequence[NodeUsage] | None, list[str]]:
    """Split the time of every GPU node, and return notes; None if pods hold GPUs on a node of unknown capacity."""
    on_node: dict[NodeKey, list[Holding]] = {}
    for holding in holdings:
        on_node.setdefault((holding.node.name, holding.node.provider_id), []).append(holding)
    collects_capacity = observation.collects_capacity or any(node.states for node in observation.nodes)
    usages: list[NodeUsage] = []
    free_in_domains: list[tuple[NodeUsage, list[FreeGpus]]] = []
    notes: list[str] = []
    for lifecycle in (lifecycle for name in sorted(lifecycles) for lifecycle in lifecycles[name]):
        if not is_gpu_node(lifecycle):
            continue
        node = lifecycle.node
        if node.name in vgpu_nodes and node.physical_gpus is None and not rules.slices_per_gpu:
            reason = "advertises vGPUs, and the number of its GPUs is unknown, so the capacity is unknown"
            return None, [*notes, f"node {node.name!r} {reason}"]
        # What pods held of what the node advertised, or a DRA driver offered.
        key = node.name, node.provider_id
        advertised = for_claims.get(key)
        if advertised is None:
            advertised = advertised_gpus(lifecycle, rules.slices_per_gpu, collects_capacity=collects_capacity)
        free: list[FreeGpus] | None = None if minimum_job_gpus(node, rules.minimum_jobs) is None else []
        of_node = on_node.pop(key, [])
        usage = split_node_time(
            lifecycle, advertised, of_node, unobserved, rules.slices_per_gpu, disputed.get(key, ()), free
        )
        usages.append(usage)
        if free is not None:
            free_in_domains.append((usage, free))
        if usage.excess_gpu_ms >= NOTEWORTHY_GPU_MS:
            notes.append(
                f"{SUSPECT_PREFIX}pods hold {float(usage.excess_gpu_ms / HOUR_MS):.3f} GPU-hours more of node "
                f"{node.name!r} than it has; its residual is negative"
            )
    if on_node:  # what they hold is of no node that is known to have GPUs
        name, _ = min(on_node)
        return None, [*notes, f"the number of GPUs of node {name!r} is unknown, so the capacity is unknown"]
    # Free GPUs of an NVLink domain are stranded while they are too few for any job.
    notes += [
        f"{float(domain.gpu_ms / HOUR_MS):.3f} free GPU-hours of NVLink domain {domain.clique!r} are stranded: fewer "
        f"than {domain.minimum_gpus} of its GPUs were free (nvlink_domains of the settings)"
        for domain in strand_free_gpus(free_in_domains, rules.minimum_jobs)
    ]
    return usages, notes


def _device_coverage(
    devices: Sequence[DeviceHour],
    lifecycles: Mapping[str, Sequence[NodeLifecycle]],
    holdings: Sequence[Holding],
    window: IntervalMs,
) -> Decimal | None:
    """Return the time in which devices were observed ÷ the time in which they existed; None without GPUs."""
    nodes = [lifecycle for name in sorted(lifecycles) for lifecycle in lifecycles[name] if is_gpu_node(lifecycle)]
    if not nodes and not holdings:
        return None
    on_node: dict[str, list[DeviceHour]] = {}
    for device in devices:
        on_node.setdefault(device.node, []).append(device)
    expected_ms, observed_ms = 0, 0
    for lifecycle in nodes:
        present, present_ms = lifecycle.present, lifecycle.present.length
        node_devices = on_node.pop(lifecycle.node.name, [])
        # A DRA driver may create and remove partitions, so each of its GPUs counts once.
        groups = [[device] for device in node_devices] if lifecycle.states else _group_by_gpu(node_devices, present)
        observed_groups = [(group, _observed_ms(group, present)) for group in groups]
        observed_count = sum([group_ms > 0 for _, group_ms in observed_groups])
        expected_ms += present_ms * (observed_count or lifecycle.node.devices or 1)
        for group, group_ms in observed_groups:
            missing_ms = present_ms - group_ms
            is_complete = not missing_ms or 2 * missing_ms <= 3 * max(device.interval for device in group)
            observed_ms += present_ms if group_ms and is_complete else group_ms
    for others in on_node.values():
        expected_ms += window.length * len(others)
        observed_ms += sum(overlap_length(device.observed_times, window) for device in others)
    return quantize(Fraction(observed_ms, expected_ms)) if expected_ms else Decimal(0)


def _group_by_gpu(devices: Iterable[DeviceHour], time: IntervalMs) -> list[list[DeviceHour]]:
    """Return the devices that were observed during a time, grouped by their GPU."""
    by_uuid: dict[str, list[DeviceHour]] = {}
    for device in devices:
        if overlap_length(device.observed_times, time):
            by_uuid.setdefault(device.key[1], []).append(device)
    return [*by_uuid.values()]


def _observed_ms(devices: Sequence[DeviceHour], time: IntervalMs) -> int:
    """Return how many milliseconds of a time any of the devices was observed."""
    if len(devices) == 1:
        return overlap_length(devices[0].observed_times, time)
    return overlap_length(union(observed for device in devices for observed in device.observed_times), time)


def _use_without_pods(resolver: UtilizationResolver, disputed: Iterable[NodeKey]) -> dict[str, Fraction]:
    """Return, by node, the use of GPUs that no pod held; where disputed pods may have held them, it is theirs."""
    disputed_names = {name for name, _ in disputed}
    return {
        node: used
        for node, used in sorted(resolver.use_while_unallocated().items())
        if used >= NOTEWORTHY_GPU_MS and node not in disputed_names
    }


def _nodes_with_unexplained(
    observation: Observation,
    use_without_pods: Mapping[str, Fraction],
    lifecycles: Mapping[str, Sequence[NodeLifecycle]],
    for_claims: Mapping[NodeKey, object],
) -> tuple[set[NodeKey], list[str]]:
    """Return the nodes whose GPUs something may hold that is not understood, and notes about it.

    Nodes that advertise no GPUs, and whose GPUs are in use, have claims that no metric reports.

    Args:
        observation: with what the reader did not understand.
        use_without_pods: by node, the use of GPUs that no pod held.
        lifecycles: the nodes by name.
        for_claims: nodes whose GPUs a DRA driver is known to offer.
    """
    relevant, nodes = relevant_things(observation.unexplained, lifecycles, for_claims)
    notes = unexplained_notes(relevant)
    explained = for_claims.keys() | nodes
    used: list[Unexplained] = []
    for node, gpu_ms in use_without_pods.items():
        of_name = lifecycles.get(node, ())
        if not of_name or any(each.states or (node, each.node.provider_id) in explained for each in of_name):
            notes.append(
                f"{float(gpu_ms / HOUR_MS):.3f} GPU-hours were used on node {node!r} that no pod had requested"
            )
        else:
            gpu_hours = round(quantize(gpu_ms / HOUR_MS), 3)
            used.append(Unexplained("used GPU-hours of", _WITHOUT_PODS, gpu_hours, node, _REPORT_CLAIMS))
    relevant, nodes_in_use = relevant_things(used, lifecycles, explained)
    notes += unexplained_notes(relevant)
    return nodes | nodes_in_use, notes


def _unusable_utilization_notes(observation: Observation, resolver: UtilizationResolver) -> list[str]:
    implausible: dict[str, str] = {}
    for device in observation.devices:
        name = device.pod or device.node
        readings = [reading for _, reading in device.samples] if device.samples else [device.sample_sum]
        if device.samples and are_utilizations(readings, device.scale):  # those of nearly all devices
            continue
        for reading in readings:
            if not reading.is_finite():
                implausible.setdefault(name, f"utilization of {name!r} has values that are not numbers")
            elif device.samples and not is_utilization(reading, device.scale):
                implausible[name] = (
                    f"{SUSPECT_PREFIX}utilization of {name!r} is {format_sample_value(reading)}, "
                    f"where {device.scale} is full use"
                )
    notes = [f"{implausible[name]}; they count as unmeasured" for name in sorted(implausible)]
    for node, unexplained in sorted(resolver.unexplained_process_use().items()):
        if unexplained >= NOTEWORTHY_GPU_MS:
            notes.append(
                f"utilization per process of node {node!r} does not account for {float(unexplained / HOUR_MS):.3f} "
                "GPU-hours of use and is ignored for this time (set hostPID for dcgm-exporter)"
            )
    for node, count in sorted(resolver.fractions_without_gpu().items()):
        notes.append(
            f"no metric says which GPU of node {node!r} each of {count} pods with a fraction of one is on; their use "
            f"is unknown (scrape {SCHEDULER_NAMES}'s scheduler and its vGPU monitors; for KAI Scheduler, set "
            "DCGM_EXPORTER_KUBERNETES in dcgm-exporter)"
        )
    notes += unlabeled_pods_notes(resolver.pods_without_labels())
    for node, count in sorted(resolver.unlabeled_sharers().items()):
        notes.append(
            f"no label says which GPU of node {node!r} each of {count} pods with shared GPUs is on; the use of these "
            "pods, and of pods on the same GPUs, is unknown (set KUBERNETES_VIRTUAL_GPUS in dcgm-exporter)"
        )
    return notes


def _time_before_samples(scrapes: Mapping[ScrapeTarget, Scrapes], window: IntervalMs) -> IntervalMs:
    """Return the time from the window's start to the first sample of all; empty if it is short, or without samples.

    Unlike in a gap between two samples, no sample shows what held GPUs in it. The first hour of a Prometheus has it.
    """
    first = min((target_scrapes.times[0] for target_scrapes in scrapes.values() if target_scrapes.times), default=0)
    is_partial = window.start + LATEST_FIRST_SCRAPE_MS < first < window.end
    return IntervalMs(window.start, first if is_partial else window.start)


def _partial_hour_notes(before_samples: IntervalMs, window: IntervalMs, holdings: Iterable[Holding]) -> Iterator[str]:
    """Say of how many minutes there are samples, and what counts in the time before them."""
    if not before_samples.length:
        return
    minutes, begin = (window.end - before_samples.end) // 60_000, format_epoch_ms(before_samples.end)
    before = (
        "before, only pods that were scheduled earlier and still ran then are counted"
        if any(holding.held.start < before_samples.end for holding in holdings)
        else "what pods held before is in no figure"
    )
    yield f"{PARTIAL_HOUR_PREFIX}there are samples of {minutes} minutes, from {begin} on; {before}"


def _scrape_gap_notes(
    covered: Sequence[IntervalMs], unobserved: Iterable[IntervalMs], before_samples: IntervalMs, window: IntervalMs
) -> Iterator[str]:
    """Name the gaps between scrapes. An hour without any has no figures, and its reason says so."""
    for gap in unobserved if covered else ():
        if gap.start >= before_samples.end:
            times = gap.overlap(window)
            yield (
                f"no scrapes from {format_epoch_ms(times.start)} to {format_epoch_ms(times.end)}: "
                "pods that started and ended within that time are unknown"
            )
