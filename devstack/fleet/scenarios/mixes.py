"""Clusters put together by chance from everything that a scenario can be, the same ones each time for the same seed.

They ask what no hand thinks of: a restart of one of a pair while a slice is handed on, beside a gap, at 15 seconds.
What they are made of is possible: no two hold a device at once, nothing is bound to a node that is not there.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from devstack.fleet.builders import mig_mixed, mig_single, neuron, node, time_sliced, whole
from devstack.fleet.hardware import resource_of
from devstack.fleet.scenario import FOREVER, GPU, Exporter, Geometry, KubeStateMetrics, Life, Node, Pod, Scenario, Use
from devstack.fleet.scraping import Scraping

SEEDS = range(24)
_WAYS = ("whole", "single", "mixed", "sliced", "renamed", "mps", "neuron")
CORE = "aws_amazon_com_neuroncore"
_UPS = ("kept", "kept", "kept", "absent in gaps", "dropped")
_MIXED = [["3g.40gb", "2g.20gb", "1g.10gb"], ["1g.10gb"] * 7, ["3g.40gb"] * 2, ["1g.20gb"] * 4, [], [], ["7g.80gb"], []]


def scenarios() -> Iterator[Scenario]:
    """All of this room."""
    yield from (mix(seed) for seed in SEEDS)


def mix(seed: int) -> Scenario:
    """One cluster."""
    chance = random.Random(seed)
    nodes = [_node(chance, f"n{number}") for number in range(chance.randint(1, 4))]
    pods = [pod for one in nodes for pod in _Filling(chance, one).pods()]
    scenario = Scenario(
        f"mix-{seed}",
        [*nodes, Node("cpu", "m7g.large", 0, "", ())],  # kube-state-metrics itself runs somewhere
        pods,
        _kube_state_metrics(chance),
        _exporter(chance),
        hours=(0, 1) if seed % 3 else (0,),
    )
    outages = [replace(one, scraping=replace(one.scraping, gaps=[])) for one in scenario.ksm]
    if chance.random() < 0.5:
        gap = [_life(chance, -20, 70, chance.choice([1.5, 3, 9, 14]))]
        outages = [replace(one, scraping=replace(one.scraping, gaps=gap)) for one in scenario.ksm]
    return replace(scenario, ksm=outages)


def _node(chance: random.Random, name: str) -> Node:
    life: Life = FOREVER
    if chance.random() < 0.3:
        life = chance.choice([(-1e6, _minute(chance, 5, 90)), (_minute(chance, -30, 55), 1e6)])
    ready = life[0] + (_minute(chance, 1, 6) if life[0] > FOREVER[0] else 0)
    way = chance.choice(_WAYS)
    if way == "neuron":
        return neuron(name, "trn1.32xlarge", 16, 2, life=life, provider_id=f"aws:///eu-central-1a/i-{name}")
    geometry = _geometry(way)
    slices = sum(bool(device.profile) for device in geometry.devices)
    model = {0: "a10g", 7: "h100-one"}.get(slices, "h100")
    geometry = replace(geometry, life=(ready, 1e6))
    if "nvidia_com_gpu" in geometry.units and geometry.replicas == 1 and model == "a10g" and chance.random() < 0.2:
        geometry = replace(geometry, allocatable={GPU: geometry.units[GPU] - 1})
    return node(name, model, geometry, life=life, provider_id=f"aws:///eu-central-1a/i-{name}")


def _geometry(way: str) -> Geometry:
    match way:
        case "whole":
            return whole("a10g")
        case "single":
            return mig_single("h100-one", "1g.10gb", 7)
        case "mixed":
            return mig_mixed("h100", _MIXED)
        case "mps":
            return time_sliced("a10g", 3, strategy="mps")
        case _:
            return time_sliced("a10g", 4, renamed=way == "renamed")


@dataclass
class _Filling:
    """Fills a node's devices, replica by replica, with one pod after the other."""

    chance: random.Random
    node: Node

    def pods(self) -> Iterator[Pod]:
        geometry = self.node.geometries[0]
        usable = len(geometry.devices)
        if geometry.allocatable:
            usable -= 1
        place = 0
        while place < min(usable, 10):
            several = 2 if geometry.replicas == 1 and place + 1 < usable and self.chance.random() < 0.2 else 1
            places = list(range(place, place + several))
            if several == 2 and len({geometry.devices[one].profile for one in places}) > 1:
                places = places[:1]
            for replica in range(self.chance.randint(0, geometry.replicas)):
                yield from self._chain(geometry, places, replica)
            place += len(places)

    def _chain(self, geometry: Geometry, places: Sequence[int], replica: int) -> Iterator[Pod]:
        ready = max(geometry.life[0], self.node.life[0])
        at = ready + self.chance.choice([0, 0, _minute(self.chance, 1, 30)]) if ready > -1e5 else -1e6
        if at < -1e5 and self.chance.random() < 0.5:
            at = _minute(self.chance, -60, 40)
        for turn in range(4):
            if at > min(100, self.node.life[1] - 1):
                return
            lasts = self.chance.choice([2e6, _minute(self.chance, 1, 8), _minute(self.chance, 10, 70)])
            ends = max(at, -60) + lasts
            yield self._pod(geometry, places, f"p{places[0]}-{replica}-{turn}", at, ends)
            at = ends + self.chance.choice([0, _minute(self.chance, 0, 4), _minute(self.chance, 5, 25)])

    def _pod(self, geometry: Geometry, places: Sequence[int], name: str, start: float, ends: float) -> Pod:
        profile = geometry.devices[places[0]].profile
        resource = resource_of(profile) if resource_of(profile) in geometry.units else next(iter(geometry.units))
        if not profile and GPU in geometry.units:
            resource = GPU
        if CORE in geometry.units:
            resource = CORE
        fate = self.chance.random()
        pulls = _minute(self.chance, 0.5, 12) if self.chance.random() < 0.3 and start > -1e5 else 0
        return Pod(
            f"{name}-{self.node.name}", self.node, list(places),
            uses=[self._use() for _ in places],
            requests={"main": {resource: len(places)}},
            namespace=f"team-{self.chance.choice('abc')}",
            start=start,
            running=start + pulls if start + pulls < ends else start,
            finished=ends if fate < 0.4 and ends < 1e5 else None,
            deleted=ends + (_minute(self.chance, 0, 30) if fate < 0.4 else 0),
            phase_at_end=self.chance.choice(["Succeeded", "Failed"]),
            owners=self.chance.choice([(), (("Job", f"{name}-{self.node.name}"),)]),
        )  # fmt: skip

    def _use(self) -> Use:
        # Four sharers together stay below a whole device, so that nobody's wish is cut.
        tenths = [f"0.{self.chance.randint(0, 24):02d}" for _ in range(2)]
        if self.chance.random() < 0.7:
            return ((-1e6, tenths[0]),)
        return ((-1e6, tenths[0]), (_minute(self.chance, 0, 60), tenths[1]))


def _kube_state_metrics(chance: random.Random) -> list[KubeStateMetrics]:
    seconds = chance.choice([15, 30, 60, 60, 70])
    base = Scraping("kube-state-metrics", "a:8080", seconds, chance.randint(0, 59), chance.choice([0, 0, 700]))
    base = replace(base, up=chance.choice(_UPS))
    if chance.random() < 0.15:
        base = replace(base, then=(_minute(chance, 5, 55), chance.choice([15, 30, 60])))
    other = replace(base, instance="b:8080", phase=chance.randint(0, 59))
    tells = chance.random() < 0.4
    break_at = _minute(chance, 5, 55)
    match chance.choice(["one", "one", "restarted", "pair", "pair-restarted", "sharded"]):
        case "restarted":
            found = [replace(base, life=(-1e6, break_at)), replace(other, life=(break_at + 1, 1e6))]
        case "pair":
            found = [base, other]
        case "pair-restarted":
            again = replace(other, instance="c:8080", life=(break_at + 2, 1e6))
            found = [base, replace(other, life=(-1e6, break_at)), again]
        case "sharded":
            shards = [replace(base, instance=f"s{i}:8080", phase=11 * i) for i in range(2)]
            return [KubeStateMetrics(one, shard=(i, 2), times=tells) for i, one in enumerate(shards)]
        case _:
            found = [base]
    return [KubeStateMetrics(one, times=tells) for one in found]


def _exporter(chance: random.Random) -> Exporter:
    dialect = chance.choice(["exported", "plain", "honor", "blank", "old"])
    name = "dcgm_fi_prof_gr_engine_active" if dialect == "old" else "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    signals = chance.choice([{name: 1}, {name: 1}, {"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": 1}])
    scraping = Scraping("dcgm-exporter", "", chance.choice([15, 30, 60]), chance.randint(0, 59))
    scraping = replace(scraping, up=chance.choice(_UPS))
    if chance.random() < 0.4:
        scraping = replace(scraping, gaps=[_life(chance, -10, 60, chance.choice([3, 10, 25]))])
    restart = _minute(chance, 5, 55)
    return Exporter(
        scraping,
        restarts=[(restart, restart + chance.choice([0.5, 3]))] if chance.random() < 0.25 else [],
        nan=[_life(chance, -10, 60, 4)] if chance.random() < 0.1 else [],
        lingers=chance.choice([0, 0, 0, 1.5]),
        early=chance.random() < 0.2,
        signals=signals,
        dialect=dialect,
        hostname=chance.choice(["Hostname", "hostname"]),
        pod_uid=chance.random() < 0.4,
        sharers=chance.choice(["copies", "copies+device"]),
    )


def _life(chance: random.Random, first: float, last: float, minutes: float) -> Life:
    start = _minute(chance, first, last)
    return (start, start + minutes)


def _minute(chance: random.Random, first: float, last: float) -> float:
    """A time to the tenth of a minute, so that fractions stay small."""
    return float(Fraction(chance.randint(round(first * 10), round(last * 10)), 10))
