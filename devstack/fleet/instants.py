"""What is true of a cluster at one instant, from its scenario alone: who holds what, who uses how much, what is left.

Between two edges (a pod binds, a scrape gap begins, …) nothing changes, so the truth about an hour is the sum of what
is true at the start of each piece times the piece's length. Amounts are physical GPUs, exact.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from devstack.fleet.scenario import Geometry, Minutes, Node, Pod, Scenario, Use

ZERO, ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True)
class Holding:
    """What a pod holds of one resource, from its binding to its end."""

    pod: Pod
    node: Node
    geometry: Geometry
    """The node's, when the pod was bound: a slice stays what it was."""
    resource: str
    units: int

    @property
    def share(self) -> Fraction:
        """Physical GPUs in one unit: slices of one profile may be of more than one size, on GPUs that had to shrink."""
        sizes = [shrinking(self.geometry, place) for place in self.places] or [ONE]
        return self.geometry.share[self.resource] * sum(sizes, ZERO) / len(sizes)

    @property
    def gpus(self) -> Fraction:
        """Physical GPUs held."""
        return self.units * self.share

    @property
    def begins(self) -> Minutes:
        """When it begins to hold: nothing is held on a node that is not there yet."""
        return max(self.pod.start, self.node.life[0])

    @property
    def runs(self) -> Minutes:
        """When it begins to run; never, where its image never arrives."""
        return max(self.pod.runs[0], self.node.life[0])

    @property
    def ends(self) -> Minutes:
        """When it ends to hold: finished, deleted, or its node is gone."""
        return min(self.pod.stops, self.node.life[1])

    @property
    def places(self) -> Sequence[int]:
        """Its devices of this resource, each once."""
        own = dict.fromkeys(self.pod.devices)
        return [place for place in own if _is_of(self.geometry, place, self.resource)]

    def is_held(self, at: Minutes) -> bool:
        """Whether it holds its units."""
        return self.begins <= at < self.ends

    def is_running(self, at: Minutes) -> bool:
        """Whether it runs: before, it pulls its image and wastes."""
        return self.runs <= at < self.ends


def holdings(scenario: Scenario) -> list[Holding]:
    """All that is ever held, in the scenario's order."""
    found = []
    for pod in scenario.pods:
        if pod.node is not None and pod.node.geometries:
            geometry = pod.node.at(max(pod.start, pod.node.life[0])) or pod.node.geometries[0]
            for resource, units in effective_request(pod).items():
                found.append(Holding(pod, pod.node, geometry, resource, units))
    return found


def effective_request(pod: Pod) -> dict[str, int]:
    """Units by resource as the scheduler counts them: `max(Σ containers and sidecars, largest init container)`.

    A sidecar is on beside the init containers that come after it; scenarios with both put sidecars last.
    """
    together: dict[str, int] = {}
    for units in (*pod.requests.values(), *pod.sidecars.values()):
        for resource, count in units.items():
            together[resource] = together.get(resource, 0) + count
    for units in pod.init.values():
        for resource, count in units.items():
            together[resource] = max(together.get(resource, 0), count)
    return {resource: count for resource, count in together.items() if count}


class Devices:
    """How busy devices are, and who makes them so."""

    def __init__(self, scenario: Scenario, held: Iterable[Holding]) -> None:
        self._ghosts = scenario.ghosts
        self._on_node: dict[int, list[Holding]] = {}
        for one in held:
            self._on_node.setdefault(id(one.node), []).append(one)

    def sharers(self, node: Node, place: int) -> list[Holding]:
        """All who ever hold a device, or a replica of it."""
        return [one for one in self._on_node.get(id(node), []) if place in one.pod.devices]

    def busy(self, node: Node, place: int, at: Minutes) -> Fraction:
        """A device's utilization, 0 to 1: what all who run on it ask of it, at most all of it."""
        wanted = Fraction(self._ghosts.get((node.name, place), "0"))
        pods = {one.pod.id: one for one in self.sharers(node, place) if one.is_running(at)}
        for one in pods.values():
            wanted += value_at(one.pod.use_of(list(one.pod.devices).index(place)), at)
        return min(wanted, ONE)

    def part(self, of: Holding, place: int, at: Minutes) -> Fraction:
        """Physical GPUs that a pod uses on a device: of a shared one, by the replicas that run on it then."""
        whole = gpus_of_device(of.geometry, place)
        if of.geometry.replicas == 1:
            return whole * self.busy(of.node, place, at)
        pods = {one.pod.id: one.pod for one in self.sharers(of.node, place) if one.is_running(at)}
        replicas = sum(list(pod.devices).count(place) for pod in pods.values())
        return whole * self.busy(of.node, place, at) * list(of.pod.devices).count(place) / replicas

    def allotted(self, of: Holding, place: int) -> Fraction:
        """Physical GPUs that a pod holds on one of its devices: it can use no more of it than that."""
        if of.geometry.replicas == 1:
            return gpus_of_device(of.geometry, place)
        return of.share * list(of.pod.devices).count(place)


@dataclass(frozen=True)
class Parts:
    """Where a node's physical GPUs are at an instant; they add up to all of them, `excess` apart."""

    held: Fraction = ZERO
    unallocated: Fraction = ZERO
    stranded: Fraction = ZERO
    unobserved: Fraction = ZERO
    excess: Fraction = ZERO
    """Held beyond what there is."""


def parts(node: Node, at: Minutes, held: Fraction, *, is_dark: bool, tells_capacity: bool) -> Parts:
    """A node's GPUs at an instant.

    Args:
        node: a node that is there.
        at: the instant.
        held: physical GPUs held by pods that somebody saw.
        is_dark: whether nobody saw for long who held what.
        tells_capacity: whether what the node advertises is exposed; else all of it counts as advertised.
    """
    gpus = Fraction(node.gpus)
    if held > gpus:
        return Parts(held=held, excess=held - gpus)
    geometry = node.at(at)
    if not tells_capacity:
        offered = healthy = gpus
    elif geometry is None:
        offered = healthy = ZERO
    else:
        offered = min(gpus, offer(geometry, geometry.units))
        healthy = min(gpus, offer(geometry, {**geometry.units, **(geometry.allocatable or {})}))
    free = max(ZERO, offered - held)
    sick = min(free, offered - healthy)
    if is_dark:
        return Parts(held=held, unobserved=free, stranded=gpus - held - free)
    return Parts(held=held, unallocated=free - sick, stranded=gpus - held - free + sick)


def offer(geometry: Geometry, units: Mapping[str, int]) -> Fraction:
    """Physical GPUs in what is advertised; Neuron devices and their cores are the same hardware, told twice."""
    if geometry.shrunk:
        return sum((gpus_of_device(geometry, place) for place in range(len(geometry.devices))), ZERO)
    amounts = {resource: geometry.share[resource] * count for resource, count in units.items()}
    neuron = {resource: amount for resource, amount in amounts.items() if "neuron" in resource}
    others = sum((amount for resource, amount in amounts.items() if resource not in neuron), ZERO)
    return others + max(neuron.values(), default=ZERO)


def gpus_of_device(geometry: Geometry, place: int) -> Fraction:
    """Physical GPUs that one device is: a whole one, a MIG slice, a Neuron core."""
    core = geometry.share.get("aws_amazon_com_neuroncore")
    if core is not None:
        return core
    profile = geometry.devices[place].profile
    if not profile:
        return ONE
    mixed = geometry.share.get(_resource_of(profile))
    if mixed is None:
        return geometry.share.get("nvidia_com_gpu", ONE)
    return mixed * shrinking(geometry, place)


def shrinking(geometry: Geometry, place: int) -> Fraction:
    """The factor on a slice's share where its GPU's slices add up to more than the GPU."""
    return geometry.shrunk.get(geometry.devices[place].gpu, ONE)


def value_at(curve: Use, at: Minutes) -> Fraction:
    """A curve's value at a time."""
    value = "0"
    for since, use in curve:
        if since > at:
            break
        value = use
    return Fraction(value)


def _is_of(geometry: Geometry, place: int, resource: str) -> bool:
    """Whether a device is one of those that a resource hands out."""
    if "neuron" in resource:
        return True
    profile = geometry.devices[place].profile
    is_mixed = bool(profile) and _resource_of(profile) in geometry.share
    return _resource_of(profile) == resource if is_mixed else not resource.startswith("nvidia_com_mig_")


def _resource_of(profile: str) -> str:
    return "nvidia_com_mig_" + profile.replace(".", "_").replace("+", "_")
