"""Clusters generated from random seeds out of everything that a scenario supports. A seed always gives the same one.

They cover combinations that hand-written scenarios miss, such as a restart of one replica during a gap.
They are valid: no device is held twice at a time, and no pod is bound to a node that does not exist.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from gpucost_devstack.fleet.builders import (
    amd_node,
    gpu_node,
    mig_mixed_geometry,
    mig_single_geometry,
    neuron_node,
    time_sliced_geometry,
    whole_device_node,
    whole_gpus_geometry,
)
from gpucost_devstack.fleet.hardware import resource_of_profile
from gpucost_devstack.fleet.power import ENERGY_COUNTER, POWER_GAUGE
from gpucost_devstack.fleet.scenario import (
    FOREVER,
    GPU,
    AcceleratorExporter,
    Exporter,
    Geometry,
    Interval,
    KubeStateMetrics,
    Node,
    Pod,
    Scenario,
    Use,
)
from gpucost_devstack.fleet.scraping import Scraping

SEEDS = range(24)
_GPU_SHARING_CHOICES = ("whole", "single", "mixed", "sliced", "renamed", "mps", "neuron")
_VENDOR_CHOICES = ("amd", "amd", "cpx", "qpx", "partly", "gaudi", "intel", "neuron", "whole")
NEURON_CORE = "aws_amazon_com_neuroncore"
CLAIMED_GPU = "gpu_nvidia_com"
"""GPUs of the DRA driver `gpu.nvidia.com`, in the spelling of kube-state-metrics."""
_AMD_MODES = {
    "amd": ["spx_nps1"] * 8,
    "cpx": ["cpx_nps4"] * 8,
    "qpx": ["qpx_nps1"] * 8,
    "partly": ["cpx_nps1", *["spx_nps1"] * 7],
}
"""Partition modes of the GPUs of an AMD node."""
_UP_SERIES_CHOICES = ("kept", "kept", "kept", "absent in gaps", "dropped")
_MIG_LAYOUT_CHOICES = [
    ["3g.40gb", "2g.20gb", "1g.10gb"],
    ["1g.10gb"] * 7,
    ["3g.40gb"] * 2,
    ["1g.20gb"] * 4,
    [],
    [],
    ["7g.80gb"],
    [],
]


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from (random_cluster(seed) for seed in SEEDS)
    yield from (random_cluster_with_claims(seed) for seed in SEEDS[::4])
    yield from (random_cluster_of_vendors(seed) for seed in SEEDS[::3])


def random_cluster(seed: int) -> Scenario:
    """The cluster of a seed."""
    return _random_cluster(random.Random(seed), f"mix-{seed}", seed, _GPU_SHARING_CHOICES)


def random_cluster_of_vendors(seed: int) -> Scenario:
    """The cluster of a seed with nodes of several vendors. Intel's exporter names no pods, so theirs are unmeasured."""
    generator = random.Random(f"vendors {seed}")
    scenario = _random_cluster(generator, f"mix-vendors-{seed}", seed, _VENDOR_CHOICES)
    gaps = [_random_interval(generator, -10, 60, generator.choice([3, 10, 25]))] if generator.random() < 0.4 else []
    exporter = AcceleratorExporter(gaps, generator.choice(["exported", "honor"]), generator.choice(["", "amd_"]))
    unmapped = {pod.name: "none" for pod in scenario.pods if pod.node is not None and pod.node.vendor == "intel"}
    return replace(scenario, accelerators=exporter, utilization_source_by_pod=unmapped)


def _random_cluster(generator: random.Random, name: str, seed: int, choices: Sequence[str]) -> Scenario:
    nodes = [_random_node(generator, f"n{number}", choices) for number in range(generator.randint(1, 4))]
    pods = [pod for gpu_node in nodes for pod in _PodGenerator(generator, gpu_node).pods()]
    scenario = Scenario(
        name,
        [*nodes, Node("cpu", "m7g.large", 0, "", ())],  # kube-state-metrics itself runs somewhere
        pods,
        _random_kube_state_metrics(generator),
        _random_exporter(generator),
        hours=(0, 1) if seed % 3 else (0,),
    )
    instances = [replace(instance, scraping=replace(instance.scraping, gaps=[])) for instance in scenario.ksm]
    if generator.random() < 0.5:
        gap = [_random_interval(generator, -20, 70, generator.choice([1.5, 3, 9, 14]))]
        instances = [replace(instance, scraping=replace(instance.scraping, gaps=gap)) for instance in scenario.ksm]
    return _with_random_energy(replace(scenario, ksm=instances), seed)


def _with_random_energy(scenario: Scenario, seed: int) -> Scenario:
    """A cluster whose exporter may expose energy or power. It is otherwise the same."""
    generator = random.Random(f"energy {seed}")
    metrics = generator.choice([(), (ENERGY_COUNTER,), (ENERGY_COUNTER, POWER_GAUGE), (POWER_GAUGE,)])
    loads = [_random_minute(generator, -10, 70)] if generator.random() < 0.3 else []
    if scenario.dcgm is None or scenario.dcgm.label_style == "old":
        return scenario
    return replace(scenario, dcgm=replace(scenario.dcgm, energy_metrics=metrics, driver_loads=loads))


def random_cluster_with_claims(seed: int) -> Scenario:
    """The cluster of a seed whose GPUs a DRA driver offers: claims of one pod, shared claims, extended resources."""
    generator = random.Random(f"claims {seed}")
    devices = whole_gpus_geometry("h100").devices
    offered = Geometry({}, {CLAIMED_GPU: Fraction(1), GPU: Fraction(1)}, devices, serves_claims=True)
    nodes = [gpu_node(f"n{number}", "h100", offered) for number in range(generator.randint(1, 3))]
    pods = [pod for node in nodes for pod in _pods_with_claims(generator, node)]
    exporter = replace(
        _random_exporter(generator),
        restarts=[],
        nan_intervals=[],
        label_linger_minutes=0,
        shared_device_series="copies",
    )
    exporter = replace(exporter, scraping=replace(exporter.scraping, gaps=[]))
    source = KubeStateMetrics(Scraping("kube-state-metrics", "a:8080", 60, generator.randint(0, 59)))
    scenario = Scenario(f"mix-claims-{seed}", nodes, pods, [source], exporter, hours=(0, 1))
    return _with_random_energy(scenario, seed)


def _pods_with_claims(generator: random.Random, node: Node) -> Iterator[Pod]:
    index = 0
    while index < 8:
        indices = list(range(index, min(8, index + generator.choice([1, 1, 2]))))
        kind = generator.choice(["claim", "claim", "shared", "shared", "extended", "free"])
        for number in range({"free": 0, "shared": generator.randint(2, 4)}.get(kind, 1)):
            start = generator.choice([-1e6, _random_minute(generator, -50, 60)])
            yield Pod(
                f"{kind}-{index}-{number}-{node.name}",
                node,
                indices,
                ((-1e6, f"0.{generator.randint(0, 24):02d}"),),
                requests={"main": {GPU if kind == "extended" else CLAIMED_GPU: len(indices)}},
                namespace=f"team-{generator.choice('abc') if kind != 'shared' else 'a'}",
                bound_at=start,
                deleted_at=generator.choice([1e6, max(start, -50) + _random_minute(generator, 5, 80)]),
                owners=generator.choice([(), (("Job", f"job-{index}"),)]),
                claims=() if kind == "extended" else (f"claim-{index}-{node.name}",),
                claim_template="gpu" if kind == "claim" else "",
                is_extended=kind == "extended",
            )
        index += len(indices)


def _random_node(generator: random.Random, name: str, choices: Sequence[str]) -> Node:
    lifetime: Interval = FOREVER
    if generator.random() < 0.3:
        lifetime = generator.choice(
            [(-1e6, _random_minute(generator, 5, 90)), (_random_minute(generator, -30, 55), 1e6)]
        )
    ready = lifetime[0] + (_random_minute(generator, 1, 6) if lifetime[0] > FOREVER[0] else 0)
    sharing = generator.choice(choices)
    if sharing in _AMD_MODES:
        naming = generator.choice(["single", "mixed"]) if sharing != "partly" else "mixed"
        # The node labeller names the partitions, which nothing else does while the exporter is not scraped.
        labels = {"amd_com_gpu_product_name": "AMD_Instinct_MI300X_OAM"}
        if sharing != "partly":
            labels["amd_com_compute_memory_partition"] = _AMD_MODES[sharing][0]
        return amd_node(
            name,
            8,
            _AMD_MODES[sharing],
            naming=naming,
            advertised=(ready, 1e6),
            lifetime=lifetime,
            labels=labels,
            provider_id=f"aws:///eu-central-1a/i-{name}",
        )
    if sharing in {"gaudi", "intel"}:
        resource = {"gaudi": "habana_ai_gaudi", "intel": "gpu_intel_com_i915"}[sharing]
        return whole_device_node(
            name, sharing, resource, 8, lifetime=lifetime, provider_id=f"aws:///eu-central-1a/i-{name}"
        )
    if sharing == "neuron":
        return neuron_node(
            name, "trn1.32xlarge", 16, 2, lifetime=lifetime, provider_id=f"aws:///eu-central-1a/i-{name}"
        )
    geometry = _random_geometry(sharing)
    slices = sum(bool(device.profile) for device in geometry.devices)
    model = {0: "a10g", 7: "h100-one"}.get(slices, "h100")
    geometry = replace(geometry, lifetime=(ready, 1e6))
    if "nvidia_com_gpu" in geometry.units and geometry.replicas == 1 and model == "a10g" and generator.random() < 0.2:
        geometry = replace(geometry, allocatable={GPU: geometry.units[GPU] - 1})
    return gpu_node(name, model, geometry, lifetime=lifetime, provider_id=f"aws:///eu-central-1a/i-{name}")


def _random_geometry(sharing: str) -> Geometry:
    match sharing:
        case "whole":
            return whole_gpus_geometry("a10g")
        case "single":
            return mig_single_geometry("h100-one", "1g.10gb", 7)
        case "mixed":
            return mig_mixed_geometry("h100", _MIG_LAYOUT_CHOICES)
        case "mps":
            return time_sliced_geometry("a10g", 3, strategy="mps")
        case _:
            return time_sliced_geometry("a10g", 4, renamed=sharing == "renamed")


@dataclass
class _PodGenerator:
    """Generates successive pods for each replica of a node's devices."""

    generator: random.Random
    node: Node

    def pods(self) -> Iterator[Pod]:
        geometry = self.node.geometries[0]
        usable = len(geometry.devices)
        if geometry.allocatable:
            usable -= 1
        index = 0
        while index < min(usable, 10):
            count = 2 if geometry.replicas == 1 and index + 1 < usable and self.generator.random() < 0.2 else 1
            indices = list(range(index, index + count))
            if count == 2 and len({geometry.devices[device_index].profile for device_index in indices}) > 1:
                indices = indices[:1]
            for replica in range(self.generator.randint(0, geometry.replicas)):
                yield from self._successive_pods(geometry, indices, replica)
            index += len(indices)

    def _successive_pods(self, geometry: Geometry, indices: Sequence[int], replica: int) -> Iterator[Pod]:
        ready = max(geometry.lifetime[0], self.node.lifetime[0])
        at = ready + self.generator.choice([0, 0, _random_minute(self.generator, 1, 30)]) if ready > -1e5 else -1e6
        if at < -1e5 and self.generator.random() < 0.5:
            at = _random_minute(self.generator, -60, 40)
        for number in range(4):
            if at > min(100, self.node.lifetime[1] - 1):
                return
            minutes = self.generator.choice(
                [2e6, _random_minute(self.generator, 1, 8), _random_minute(self.generator, 10, 70)]
            )
            ends = max(at, -60) + minutes
            yield self._pod(geometry, indices, f"p{indices[0]}-{replica}-{number}", at, ends)
            at = ends + self.generator.choice(
                [0, _random_minute(self.generator, 0, 4), _random_minute(self.generator, 5, 25)]
            )

    def _pod(self, geometry: Geometry, indices: Sequence[int], name: str, start: float, ends: float) -> Pod:
        profile = geometry.devices[indices[0]].profile
        resource = (
            resource_of_profile(profile)
            if resource_of_profile(profile) in geometry.units
            else next(iter(geometry.units))
        )
        if f"amd_com_{profile}" in geometry.units:
            resource = f"amd_com_{profile}"
        if not profile and GPU in geometry.units:
            resource = GPU
        if NEURON_CORE in geometry.units:
            resource = NEURON_CORE
        finish_draw = self.generator.random()
        pull_minutes = _random_minute(self.generator, 0.5, 12) if self.generator.random() < 0.3 and start > -1e5 else 0
        return Pod(
            f"{name}-{self.node.name}",
            self.node,
            list(indices),
            use_by_device=[self._use() for _ in indices],
            requests={"main": {resource: len(indices)}},
            namespace=f"team-{self.generator.choice('abc')}",
            bound_at=start,
            running_at=start + pull_minutes if start + pull_minutes < ends else start,
            finished_at=ends if finish_draw < 0.4 and ends < 1e5 else None,
            deleted_at=ends + (_random_minute(self.generator, 0, 30) if finish_draw < 0.4 else 0),
            phase_at_end=self.generator.choice(["Succeeded", "Failed"]),
            owners=self.generator.choice([(), (("Job", f"{name}-{self.node.name}"),)]),
        )

    def _use(self) -> Use:
        # Four sharers together stay below a whole device, so no demand is cut.
        utilizations = [f"0.{self.generator.randint(0, 24):02d}" for _ in range(2)]
        if self.generator.random() < 0.7:
            return ((-1e6, utilizations[0]),)
        return ((-1e6, utilizations[0]), (_random_minute(self.generator, 0, 60), utilizations[1]))


def _random_kube_state_metrics(generator: random.Random) -> list[KubeStateMetrics]:
    seconds = generator.choice([15, 30, 60, 60, 70])
    base = Scraping("kube-state-metrics", "a:8080", seconds, generator.randint(0, 59), generator.choice([0, 0, 700]))
    base = replace(base, up=generator.choice(_UP_SERIES_CHOICES))
    if generator.random() < 0.15:
        base = replace(base, changed_interval=(_random_minute(generator, 5, 55), generator.choice([15, 30, 60])))
    other = replace(base, instance="b:8080", offset_seconds=generator.randint(0, 59))
    has_pod_times = generator.random() < 0.4
    break_at = _random_minute(generator, 5, 55)
    match generator.choice(["one", "one", "restarted", "pair", "pair-restarted", "sharded"]):
        case "restarted":
            targets = [replace(base, lifetime=(-1e6, break_at)), replace(other, lifetime=(break_at + 1, 1e6))]
        case "pair":
            targets = [base, other]
        case "pair-restarted":
            restarted = replace(other, instance="c:8080", lifetime=(break_at + 2, 1e6))
            targets = [base, replace(other, lifetime=(-1e6, break_at)), restarted]
        case "sharded":
            shards = [replace(base, instance=f"s{i}:8080", offset_seconds=11 * i) for i in range(2)]
            return [KubeStateMetrics(shard, shard=(i, 2), pod_times=has_pod_times) for i, shard in enumerate(shards)]
        case _:
            targets = [base]
    return [KubeStateMetrics(target, pod_times=has_pod_times) for target in targets]


def _random_exporter(generator: random.Random) -> Exporter:
    dialect = generator.choice(["exported", "plain", "honor", "blank", "old"])
    name = "dcgm_fi_prof_gr_engine_active" if dialect == "old" else "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    signals = generator.choice([{name: 1}, {name: 1}, {"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": 1}])
    scraping = Scraping("dcgm-exporter", "", generator.choice([15, 30, 60]), generator.randint(0, 59))
    scraping = replace(scraping, up=generator.choice(_UP_SERIES_CHOICES))
    if generator.random() < 0.4:
        scraping = replace(scraping, gaps=[_random_interval(generator, -10, 60, generator.choice([3, 10, 25]))])
    restart = _random_minute(generator, 5, 55)
    return Exporter(
        scraping,
        restarts=[(restart, restart + generator.choice([0.5, 3]))] if generator.random() < 0.25 else [],
        nan_intervals=[_random_interval(generator, -10, 60, 4)] if generator.random() < 0.1 else [],
        label_linger_minutes=generator.choice([0, 0, 0, 1.5]),
        labels_pending_pods=generator.random() < 0.2,
        signals=signals,
        label_style=dialect,
        hostname=generator.choice(["Hostname", "hostname"]),
        pod_uid=generator.random() < 0.4,
        shared_device_series=generator.choice(["copies", "copies+device"]),
    )


def _random_interval(generator: random.Random, first: float, last: float, minutes: float) -> Interval:
    start = _random_minute(generator, first, last)
    return (start, start + minutes)


def _random_minute(generator: random.Random, first: float, last: float) -> float:
    """A time to the tenth of a minute, so that fractions stay small."""
    return float(Fraction(generator.randint(round(first * 10), round(last * 10)), 10))
