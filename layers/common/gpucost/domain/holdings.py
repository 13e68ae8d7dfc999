"""Who held which units of which GPU resource, and when: pods' requests over their spans, on their nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction

from gpucost.domain.capacity import Disputed, overcommitted, pieces
from gpucost.domain.intervals import Interval
from gpucost.domain.nodes import NodeLife
from gpucost.domain.observations import ContainerRequest, PodObservation
from gpucost.domain.shares import GpuNode, Share, kubernetes_resource
from gpucost.domain.spans import Span, SpanReader
from gpucost.domain.suspicion import MOST_UNITS, SUSPECT, is_count, short
from gpucost.domain.usage import Holding

ZERO = Fraction(0)
NodeKey = tuple[str, str]
"""A node's name and provider id."""


@dataclass(slots=True)
class HoldingReader:
    """Reads holdings off pods.

    Args:
        spans: reads spans off sightings.
        lives: the nodes of the hour, by name, those that replaced each other in order.
        slices_per_gpu: the settings' word for nodes that say nothing.
        nodes_are_kept: whether a node that is not among them is not there.
        notes: takes what a reader of the hour should know.
    """

    spans: SpanReader
    lives: Mapping[str, Sequence[NodeLife]]
    slices_per_gpu: int | None
    nodes_are_kept: bool = False
    notes: list[str] = field(default_factory=list)
    advertised: Mapping[str, Mapping[str, Decimal]] = field(default_factory=dict)
    """By node, the most units of each resource that it was seen to advertise."""
    suspect_nodes: Mapping[str, str] = field(default_factory=dict)
    """By node, how sources contradict each other about what it advertises."""
    disputed: dict[NodeKey, list[Disputed]] = field(default_factory=dict)
    """What pods may have held of which the samples cannot be true: on nobody's bill."""
    _shares: dict[tuple[int, str], Share] = field(default_factory=dict)
    _all_hour: dict[str, tuple[Span, GpuNode | None]] = field(default_factory=dict)
    """By node: where and when those held that were seen at every scrape, which most are."""

    def read(self, pods: Sequence[PodObservation]) -> list[Holding]:
        """All holdings of the hour, in the order of namespaces, pods and uids."""
        found: list[Holding] = []
        for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.pod, pod.uid, pod.node)):
            found.extend(self._of_pod(pod))
        return _hand_over(found)

    def _of_pod(self, pod: PodObservation) -> list[Holding]:
        if pod.held is None:
            if pod.node not in self._all_hour:
                self._all_hour[pod.node] = self._placed(pod)
            span, node = self._all_hour[pod.node]
        else:
            span, node = self._placed(pod)
        if node is None or not span.time.length:
            return []
        requests = self._effective_requests(pod)
        suspicion, gpus = self._suspicion(pod, node, requests)
        if suspicion:
            self.notes.append(f"{SUSPECT}{suspicion}; what it holds is unobserved")
            disputed = self.disputed.setdefault((node.name, node.provider_id), [])
            disputed.append(Disputed(span.time, gpus))
            return []
        running = self.spans.running(pod, span)
        return [
            Holding(
                pod,
                node,
                resource,
                units,
                self._share(pod, node, resource),
                span.time,
                running,
                span.sure_until,
                span.since,
            )
            for resource, units in (requests or {}).items()
        ]

    def _suspicion(
        self, pod: PodObservation, node: GpuNode, requests: Mapping[str, int] | None
    ) -> tuple[str, Fraction | None]:
        """Why a pod's samples cannot be true, and the GPUs that they claim; "" and None where they can be.

        A request is impossible where it is more than the node ever advertised and more than its physical GPUs: pods
        keep what they hold while a node advertises less, because a GPU failed for instance.
        """
        name = f"pod {pod.namespace}/{pod.pod}"
        if requests is None:
            return f"{name} requests no number of GPUs that can be", None
        if pod.node in self.suspect_nodes:
            return f"{self.suspect_nodes[pod.node]}, with {name} on it", None
        if pod.contradiction:
            return f"{name}: {pod.contradiction}", self._gpus(pod, node, requests)
        for resource, units in requests.items():
            advertised = self.advertised.get(pod.node, {}).get(resource)
            if advertised is not None and units <= advertised:
                continue
            bounds = [] if advertised is None else [Fraction(advertised)]
            if node.physical is not None:
                bounds.append(node.physical / self._share(pod, node, resource).of_gpu)
            if bounds and units > max(bounds):
                what = kubernetes_resource(resource)
                reason = f"{name} requests {units} of {what}, and node {node.name} has {float(max(bounds)):g}"
                return reason, self._gpus(pod, node, requests)
        return "", None

    def _gpus(self, pod: PodObservation, node: GpuNode, requests: Mapping[str, int]) -> Fraction:
        return sum((units * self._share(pod, node, resource).of_gpu for resource, units in requests.items()), ZERO)

    def _placed(self, pod: PodObservation) -> tuple[Span, GpuNode | None]:
        """When a pod held, and its node as it was then; no node where that is not there."""
        span = self.spans.held(pod)
        if not span.time.length:
            return span, None
        life = _life(self.lives.get(pod.node, ()), span.time)
        if life is not None:
            # A spot node that is gone leaves its pod objects behind for a while: they hold nothing any more.
            span = Span(span.time.overlap(life.present), min(span.sure_until, life.present.end), span.since)
            return span, life.at(span.time)
        if self.nodes_are_kept or pod.node in self.lives:
            self.notes.append(f"node {pod.node!r} is not there: pods that are still listed on it hold nothing")
            return span, None
        return span, GpuNode(pod.node)

    def _share(self, pod: PodObservation, node: GpuNode, resource: str) -> Share:
        key = (id(node), resource) if node.labels or node.capacity else (0, resource)
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = node.share(resource, self.slices_per_gpu)
        if share.is_estimate:
            name, model = kubernetes_resource(resource), node.gpu_model or "an unknown GPU model"
            how = "its compute slices" if share.source == "mig-compute-slices" else "what its node advertises"
            self.notes.append(f"the share of {name} on {model} is in no table; estimated from {how}")
        return share

    def _effective_requests(self, pod: PodObservation) -> dict[str, int] | None:
        """Units per resource as the scheduler counts them: `max(Σ containers and sidecars, largest init container)`.

        Source: Kubernetes, "Init containers" and "Sidecar containers", resource sharing within containers.

        Returns:
            None where a container's request is no number of units.
        """
        together: dict[str, Decimal] = {}
        largest_init: dict[str, Decimal] = {}
        for request in pod.requests:
            if not self._is_units(pod, request):
                return None
            if request.kind == "init":
                largest_init[request.resource] = max(largest_init.get(request.resource, Decimal(0)), request.units)
            else:
                together[request.resource] = together.get(request.resource, Decimal(0)) + request.units
        zero = Decimal(0)
        resources = sorted(together.keys() | largest_init.keys())
        units_of = {name: int(max(together.get(name, zero), largest_init.get(name, zero))) for name in resources}
        return {name: units for name, units in units_of.items() if units > 0}

    def _is_units(self, pod: PodObservation, request: ContainerRequest) -> bool:
        """Whether a request is a count of units; Kubernetes takes whole numbers only for such resources."""
        if is_count(request.units):
            return True
        what = f"container {request.container} of pod {pod.namespace}/{pod.pod}"
        resource = kubernetes_resource(request.resource)
        self.notes.append(
            f"{SUSPECT}{what} requests {short(request.units)} of {resource}, which is no whole number from 0 to "
            f"{MOST_UNITS}"
        )
        return False


def _life(lives: Sequence[NodeLife], time: Interval) -> NodeLife | None:
    """Which of the nodes of one name a pod was on: the one on which it began; it does not move on to a successor."""
    return next((life for life in lives if life.present.overlap(time).length), None)


def _hand_over(holdings: list[Holding]) -> list[Holding]:
    """Where a GPU passes from one pod to the next between two scrapes, let the first end as the second begins.

    After its last sample a pod is given one interval more, in which it may have ended at any moment; where the next
    one was there already (another instance saw it first, or scrapes jitter), that moment is known.
    """
    on_node: dict[NodeKey, list[int]] = {}
    for place, one in enumerate(holdings):
        on_node.setdefault((one.node.name, one.node.provider_id), []).append(place)
    for places in on_node.values():
        if any(holdings[place].sure_until < holdings[place].held.end for place in places):
            _settle(holdings, places)
    return [one for one in holdings if one.held.length]


def _settle(holdings: list[Holding], places: Sequence[int]) -> None:
    guessed = [place for place in places if holdings[place].sure_until < holdings[place].held.end]
    first = min(holdings[place].sure_until for place in guessed)
    last = max(holdings[place].held.end for place in guessed)
    for piece in pieces(Interval(first, last), [holdings[place].held for place in places]):
        there = [place for place in places if holdings[place].held.holds(piece.start)]
        for place in sorted(there, key=lambda place: holdings[place].sure_until):
            one = holdings[place]
            if not overcommitted(one.node, [holdings[other] for other in there]):
                break
            # Only a successor tells: what is too much all along is a contradiction, and stays one.
            if any(holdings[other].since >= one.sure_until for other in there if other != place):
                cut = Interval(one.held.start, piece.start)
                holdings[place] = replace(one, held=cut, running=one.running.overlap(cut))
                there.remove(place)
