"""Holdings: which pod held how many units of a GPU resource, on which node and when."""

from collections.abc import Container, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.capacity import DisputedHolding, is_overcommitted, present_by_piece
from gpucost.core.metering.device_use import DeviceHour
from gpucost.core.metering.fraction_schedulers import FRACTION_RESOURCES, FRACTION_SCHEDULERS, MEMORY_RESOURCES
from gpucost.core.metering.gpu_fractions import (
    MAX_MEMORY_MIB,
    ReservedTime,
    disputed_parts_of_reserved_gpus,
    fraction_share,
    limits_of,
    requested_gpus,
    share_of_reserved_gpu,
)
from gpucost.core.metering.gpu_shares import FRACTION, GPU, GpuNode, GpuShare, to_kubernetes_resource
from gpucost.core.metering.implausible_samples import MAX_UNITS, SUSPECT_PREFIX, format_sample_value, is_count
from gpucost.core.metering.nodes import NodeLifecycle
from gpucost.core.metering.observations import ContainerRequest, NodeObservation, Observation, PodObservation
from gpucost.core.metering.spans import Span, SpanReader
from gpucost.core.metering.usage import Holding

ZERO = Fraction(0)
_NEVER = IntervalMs(0, 0)
NodeKey = tuple[str, str]
"""A node's name and provider id."""


class HeldGpus(Struct, frozen=True):
    """What pods hold, and what they may hold."""

    holdings: list[Holding]
    disputed: Mapping[NodeKey, Sequence[DisputedHolding]]
    """What pods may have held according to implausible samples; no business unit pays for it."""
    notes: Sequence[str] = ()


def read_holdings(
    observation: Observation,
    spans: SpanReader,
    lifecycles: Mapping[str, Sequence[NodeLifecycle]],
    nodes_with_vgpus: Container[str] = (),
    slices_per_gpu: int | None = None,
) -> HeldGpus:
    """Derive what pods hold from their requests and from devices of claims.

    Args:
        observation: of the hour.
        spans: derives spans from sample times.
        lifecycles: the nodes of the hour by name; nodes that replaced each other are in order of time.
        nodes_with_vgpus: names of nodes whose GPUs a scheduler divides by cores and memory.
        slices_per_gpu: from the settings, for nodes whose labels do not say it.

    Returns:
        All holdings of the hour, in the order of namespaces, pods and uids.
    """
    reader = _HoldingReader(observation, spans, lifecycles, nodes_with_vgpus, slices_per_gpu)
    holdings: list[Holding] = []
    for pod in sorted(observation.pods, key=lambda pod: (pod.namespace, pod.pod, pod.uid, pod.node)):
        holdings.extend(reader.holdings_of_pod(pod))
    reader.dispute_reserved_gpus(holdings)
    return HeldGpus(_trim_handovers(holdings), reader.disputed, reader.notes)


def end_at_last_labels(held: HeldGpus, devices: Iterable[DeviceHour]) -> HeldGpus:
    """Let holdings end when exporters stop naming their pods, where no other metric says when pods finish.

    Exporters name the pods that the kubelet runs. After that, and without a name, a pod may hold its GPUs or not.
    On nodes of which no exporter names a pod, pods hold until they are deleted.
    """
    last_labels: dict[tuple[str, str, str], IntervalMs] = {}
    for device in devices:
        for namespace, pod in device.labeled_pods_by_name:
            key = device.node, namespace, pod
            last = device.last_label((namespace, pod))
            last_labels[key] = max(last, last_labels.get(key, last), key=lambda time: time.end)
    nodes_with_names = {node for node, _, _ in last_labels}
    kept: list[Holding] = []
    disputed = {node: [*of_node] for node, of_node in held.disputed.items()}
    for holding in held.holdings:
        # A claim's device has the exporter's samples already.
        if holding.pod.claimed_device is not None or holding.node.name not in nodes_with_names:
            kept.append(holding)
            continue
        last = last_labels.get((holding.node.name, holding.pod.namespace, holding.pod.pod), _NEVER)
        if holding.held.end - last.end <= last.length:
            kept.append(holding)
            continue
        end = max(last.end, holding.held.start)
        after = IntervalMs(end, holding.held.end)
        key_of_node = holding.node.name, holding.node.provider_id
        disputed.setdefault(key_of_node, []).append(DisputedHolding(after, holding.gpus))
        named = holding.during(IntervalMs(holding.held.start, end), holding.share)
        kept.append(replace(named, last_sample_ms=min(last.start, end)))
    holdings = _trim_handovers([holding for holding in kept if holding.held.length])
    return HeldGpus(holdings, disputed, held.notes)


class _HoldingReader:
    """Derives the holdings of one pod after the other; arguments as of `read_holdings`."""

    def __init__(
        self,
        observation: Observation,
        spans: SpanReader,
        lifecycles: Mapping[str, Sequence[NodeLifecycle]],
        nodes_with_vgpus: Container[str],
        slices_per_gpu: int | None,
    ) -> None:
        self._spans = spans
        self._lifecycles = lifecycles
        self._nodes_with_vgpus = nodes_with_vgpus
        self._slices_per_gpu = slices_per_gpu
        self._collects_nodes = observation.collects_nodes
        self._vgpu_limits = observation.vgpus.limits
        self._max_advertised_units = _max_advertised_units(observation.nodes)
        self._node_contradictions = {node.name: node.contradiction for node in observation.nodes if node.contradiction}
        self.notes: list[str] = []
        self.disputed: dict[NodeKey, list[DisputedHolding]] = {}
        self._reserved: list[ReservedTime] = []
        """Times in which pods reserved GPUs for others."""
        self._unknown_fractions: list[ReservedTime] = []
        """Times in which pods held unknown fractions of reserved GPUs."""
        # Most pods of an hour request the same, and have a sample at every scrape: what follows of that is kept.
        self._units_of_requests: dict[tuple[ContainerRequest, ...], dict[str, int]] = {}
        """The valid results of `_effective_requests`."""
        self._full_hour_placements: dict[str, tuple[Span, GpuNode | None]] = {}
        """By node, the span and node of pods that have a sample at every scrape."""
        self._units_of_full_hour: dict[tuple[str, tuple[ContainerRequest, ...]], list[tuple[str, int, GpuShare]]] = {}
        """By node and requests, what `_held_units` returned, for pods there all hour that hold no fraction of a GPU."""

    def dispute_reserved_gpus(self, holdings: Sequence[Holding]) -> None:
        """Note which reserved GPUs pods hold in unknown parts, so that these count as unobserved."""
        disputed = disputed_parts_of_reserved_gpus(self._reserved, self._unknown_fractions, holdings)
        nodes = set()
        for node, part in disputed:
            self.disputed.setdefault((node.name, node.provider_id), []).append(part)
            nodes.add(node.name)
        for name in sorted(nodes):
            self.notes.append(
                f"pods share GPUs of node {name!r} that a scheduler reserves, and their fractions are unknown; what "
                "they hold is unobserved. Set --metric-annotations-allowlist=pods=[gpu-fraction,gpu-memory,"
                "gpu-fraction-num-devices] and --metric-labels-allowlist=pods=[runai-gpu-group] in kube-state-metrics"
            )

    def holdings_of_pod(self, pod: PodObservation) -> list[Holding]:
        if pod.held_samples is None:
            if pod.node not in self._full_hour_placements:
                self._full_hour_placements[pod.node] = self._placement(pod)
            span, node = self._full_hour_placements[pod.node]
        else:
            span, node = self._placement(pod)
        if node is None or not span.time.length:
            return []
        if pod.reserved_group is not None:
            self._reserved.append(ReservedTime(frozenset({pod.reserved_group}), node, span.time))
            return []
        key = pod.node, pod.requests
        # What such pods hold depends on nothing but their node and requests.
        is_cacheable = pod.held_samples is None and pod.fraction is None and not pod.contradiction
        held_units = self._units_of_full_hour.get(key) if is_cacheable else None
        if not held_units:  # never computed, or nothing: then each pod adds its own note and disputed time
            held_units = self._held_units(pod, node, span.time)
            if is_cacheable:
                self._units_of_full_hour[key] = held_units
        running = self._spans.running_time(pod, span)
        return [
            Holding(pod, node, resource, units, share, span.time, running, span.last_sample_ms, span.first_sample_ms)
            for resource, units, share in held_units
        ]

    def _held_units(self, pod: PodObservation, node: GpuNode, time: IntervalMs) -> list[tuple[str, int, GpuShare]]:
        """Return the resources, units and shares that a pod holds.

        If they are unknown or disputed, it returns nothing and adds a note and disputed time.
        """
        requests = self._units_of_requests.get(pod.requests)
        if requests is None:
            requests = self._effective_requests(pod)
            if requests is not None:
                self._units_of_requests[pod.requests] = requests
        contradiction, gpus = self._implausibility(pod, node, requests)
        if contradiction:
            self.notes.append(f"{SUSPECT_PREFIX}{contradiction}; what it holds is unobserved")
            disputed = self.disputed.setdefault((node.name, node.provider_id), [])
            disputed.append(DisputedHolding(time, gpus))
            return []
        shares: dict[str, GpuShare] = {}
        if pod.fraction is not None and requests:
            share = share_of_reserved_gpu(pod.fraction, limits_of(node, None))
            if share is None:
                self._unknown_fractions.append(ReservedTime(pod.fraction.groups, node, time))
                return []
            shares[GPU] = fraction_share(share * requests[GPU], requests[GPU], node)
        elif pod.node in self._nodes_with_vgpus and requests and GPU in requests:
            share_of_vgpus = self._share_of_vgpus(pod, node, requests[GPU])
            if share_of_vgpus is None:
                most = requests[GPU] * node.gpu_fraction
                disputed = self.disputed.setdefault((node.name, node.provider_id), [])
                disputed.append(DisputedHolding(time, most))
                return []
            shares[GPU] = share_of_vgpus
        return [
            (resource, units, shares.get(resource) or self._share(node, resource))
            for resource, units in (requests or {}).items()
        ]

    def _share_of_vgpus(self, pod: PodObservation, node: GpuNode, units: int) -> GpuShare | None:
        """Return the share of a GPU that each of a pod's vGPUs is; None, with a note, if it is unknown."""
        gpus = requested_gpus(pod.requests, limits_of(node, self._vgpu_limits.get(node.name)))
        if gpus is None:
            metrics = " or ".join(
                f"{scheduler.name}'s {scheduler.memory_limits[0]}" for scheduler in FRACTION_SCHEDULERS
            )
            self.notes.append(
                f"pods on node {node.name!r} request memory of GPUs whose memory is unknown; what they hold is "
                f"unobserved. Keep {metrics}, or the node label nvidia.com/gpu.memory"
            )
            return None
        return fraction_share(gpus, units, node)

    def _implausibility(
        self, pod: PodObservation, node: GpuNode, requests: Mapping[str, int] | None
    ) -> tuple[str, Fraction | None]:
        """Return why a pod's samples are implausible and the GPUs that it requests; "" and None if they are plausible.

        A request is implausible if it exceeds both what the node ever advertised and its physical GPUs. Pods keep
        their GPUs while a node advertises less, for example after a GPU failed.
        """
        if requests is None:
            return f"{_pod_label(pod)} requests an implausible number of GPUs", None
        if pod.node in self._node_contradictions:
            return f"{self._node_contradictions[pod.node]}, with {_pod_label(pod)} on it", None
        if pod.contradiction:
            return f"{_pod_label(pod)}: {pod.contradiction}", self._requested_gpus(pod, node, requests)
        max_advertised = self._max_advertised_units.get(pod.node, {})
        for resource, units in requests.items():
            advertised = max_advertised.get(resource)
            if advertised is not None and units <= advertised:
                continue
            bounds = [] if advertised is None else [Fraction(advertised)]
            if node.physical_gpus is not None:
                bounds.append(node.physical_gpus / self._share(node, resource).gpus_per_unit)
            if bounds and units > max(bounds):
                requested = f"{_pod_label(pod)} requests {units} of {to_kubernetes_resource(resource)}"
                reason = f"{requested}, and node {node.name} has {float(max(bounds)):g}"
                return reason, self._requested_gpus(pod, node, requests)
        return "", None

    def _requested_gpus(self, pod: PodObservation, node: GpuNode, requests: Mapping[str, int]) -> Fraction:
        return sum((units * self._share(node, resource).gpus_per_unit for resource, units in requests.items()), ZERO)

    def _placement(self, pod: PodObservation) -> tuple[Span, GpuNode | None]:
        """Return when a pod held GPUs, and its node's state then; None for a node that did not exist."""
        span = self._spans.held_span(pod)
        if not span.time.length:
            return span, None
        lifecycle = _lifecycle_during(self._lifecycles.get(pod.node, ()), span.time)
        if lifecycle is not None:
            # The pod objects of a terminated spot node remain for a while, but they hold nothing any more.
            span = Span(
                span.time.overlap(lifecycle.present),
                min(span.last_sample_ms, lifecycle.present.end),
                span.first_sample_ms,
            )
            return span, lifecycle.state_during(span.time)
        if self._collects_nodes or pod.node in self._lifecycles:
            self.notes.append(f"node {pod.node!r} does not exist: pods that are still bound to it hold nothing")
            return span, None
        return span, GpuNode(pod.node)

    def _share(self, node: GpuNode, resource: str) -> GpuShare:
        share = node.share(resource, self._slices_per_gpu)
        if share.is_estimate:
            name, model = to_kubernetes_resource(resource), node.gpu_model or "an unknown GPU model"
            basis = "its compute slices" if share.source == "mig-compute-slices" else "what its node advertises"
            self.notes.append(f"the share of {name} on {model} is not in the catalog; estimated from {basis}")
        return share

    def _effective_requests(self, pod: PodObservation) -> dict[str, int] | None:
        """Return units by resource as the scheduler counts them: `max(Σ containers and sidecars, largest init)`.

        Source: Kubernetes, "Init containers" and "Sidecar containers", resource sharing within containers.

        Returns:
            None if a container's request is not a valid number of units.
        """
        together: dict[str, Decimal] = {}
        largest_init: dict[str, Decimal] = {}
        for request in pod.requests:
            if not self._has_valid_units(pod, request):
                return None
            if request.resource in FRACTION_RESOURCES:
                continue  # a part of what the container's nvidia_com_gpu stand for
            if request.kind == "init":
                largest_init[request.resource] = max(largest_init.get(request.resource, Decimal(0)), request.units)
            else:
                together[request.resource] = together.get(request.resource, Decimal(0)) + request.units
        zero = Decimal(0)
        resources = sorted(together.keys() | largest_init.keys())
        units_of = {name: int(max(together.get(name, zero), largest_init.get(name, zero))) for name in resources}
        return {name: units for name, units in units_of.items() if units > 0}

    def _has_valid_units(self, pod: PodObservation, request: ContainerRequest) -> bool:
        """Whether a request is a whole number of units, the only requests that Kubernetes accepts."""
        if is_count(request.units):
            return True
        maximum = MAX_MEMORY_MIB if request.resource in MEMORY_RESOURCES else MAX_UNITS
        if is_count(request.units, maximum):
            return True
        container = f"container {request.container} of pod {pod.namespace}/{pod.pod}"
        resource = to_kubernetes_resource(request.resource)
        self.notes.append(
            f"{SUSPECT_PREFIX}{container} requests {format_sample_value(request.units)} of {resource}, "
            f"which is not a whole number from 0 to {maximum}"
        )
        return False


def _pod_label(pod: PodObservation) -> str:
    return f"pod {pod.namespace}/{pod.pod}"


def _max_advertised_units(nodes: Iterable[NodeObservation]) -> dict[str, dict[str, Decimal]]:
    """Return, by node, the most units of each resource that it advertised."""
    advertised: dict[str, dict[str, Decimal]] = {}
    for node in nodes:
        units = advertised.setdefault(node.name, {})
        for state in node.states:
            for resource, count in state.capacity.items():
                units[resource] = max(count, units.get(resource, count))
    return advertised


def _lifecycle_during(lifecycles: Sequence[NodeLifecycle], time: IntervalMs) -> NodeLifecycle | None:
    """Return the first of the nodes of one name that existed during a pod's time; pods do not move to a successor."""
    return next((lifecycle for lifecycle in lifecycles if lifecycle.present.overlap(time).length), None)


def _trim_handovers(holdings: list[Holding]) -> list[Holding]:
    """Let a pod's holding end when its GPU's next pod starts, if the GPU changed hands between two scrapes.

    A holding extends one scrape interval beyond the pod's last sample. If the next pod's first sample falls within
    that interval (from another instance, or because scrapes jitter), the holding must have ended by then.
    """
    on_node: dict[NodeKey, list[int]] = {}
    for index, holding in enumerate(holdings):
        if holding.share.source == FRACTION:
            continue  # fractions of a GPU may add up to more than it, and are then scaled down
        on_node.setdefault((holding.node.name, holding.node.provider_id), []).append(index)
    trimmed = [*holdings]
    for indexes in on_node.values():
        of_node = [holdings[index] for index in indexes]
        for index, end in _ends_at_handovers(of_node).items():
            holding = of_node[index]
            cut = IntervalMs(holding.held.start, end)
            trimmed[indexes[index]] = replace(holding, held=cut, running=holding.running.overlap(cut))
    return [holding for holding in trimmed if holding.held.length]


def _ends_at_handovers(holdings: Sequence[Holding]) -> dict[int, int]:
    """When the holdings of a node end that its GPUs' next pods cut short, by index."""
    uncertain = [holding for holding in holdings if holding.last_sample_ms < holding.held.end]
    if not uncertain:
        return {}
    window = IntervalMs(
        min(holding.last_sample_ms for holding in uncertain), max(holding.held.end for holding in uncertain)
    )
    ends: dict[int, int] = {}
    for piece, (present,) in present_by_piece(window, [holding.held for holding in holdings]):
        remaining = [index for index in present if index not in ends]
        for index in sorted(remaining, key=lambda index: holdings[index].last_sample_ms):
            if not is_overcommitted(holdings[index].node, [holdings[other] for other in remaining]):
                break
            # Only a successor ends a holding: pods that the same scrape shows existed together. An excess without a
            # successor is a contradiction and remains visible.
            last_sample = holdings[index].last_sample_ms
            if any(holdings[other].first_sample_ms > last_sample for other in remaining if other != index):
                ends[index] = piece.start
                remaining.remove(index)
    return ends
