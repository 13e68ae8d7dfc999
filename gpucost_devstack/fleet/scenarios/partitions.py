"""MIG partitions that a DRA driver offers: created for claims, or there all the time."""

import random
from collections.abc import Iterator
from dataclasses import replace

from gpucost_devstack.fleet.builders import gpu_node, partitions_geometry
from gpucost_devstack.fleet.hardware import placements, resource_of_profile
from gpucost_devstack.fleet.scenario import (
    ClaimCollector,
    Device,
    Exporter,
    KubeStateMetrics,
    Minutes,
    Node,
    Pod,
    Scenario,
)
from gpucost_devstack.fleet.scenarios.sharing import constant_use
from gpucost_devstack.fleet.scraping import Scraping

SEEDS = range(12)


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield _dynamic()
    yield _on_premises()
    yield _static()
    yield from _collected()
    yield from (random_cluster_with_partitions(seed) for seed in SEEDS)


def _dynamic() -> Scenario:
    """Partitions that come and go: with a part that fits none, with reused instance IDs, after a whole GPU, shared."""
    devices = [
        Device(0, "3g.40gb", 1),
        Device(0, "1g.10gb", 9, 6),
        Device(0, "2g.20gb", 5, 4),
        Device(1, "2g.20gb", 1),
        Device(1, "3g.40gb", 1, 4),
        Device(2, "4g.40gb", 1),
        Device(3, "3g.40gb", 1),
        Device(3, "2g.20gb", 5, 4),
        Device(3, "1g.20gb", 9, 6),
        Device(4, "1g.10gb", 7),
    ]
    geometry = partitions_geometry("h100", devices, gpus=8)
    n = gpu_node("n1", "h100", geometry)
    pods = [
        _pod("three", n, 0, "0.9"),
        _pod("one", n, 1, "0.4", 10, 40),
        _pod("two", n, 2, "0.6", 20, 50),
        _pod("first-with-id", n, 3, "0.8", -30, 15),
        _pod("second-with-id", n, 4, "0.3", 20, 75),
        Pod(
            "whole",
            n,
            [2],
            constant_use("0.7"),
            requests={"main": {"gpu_nvidia_com": 1}},
            claims=["whole"],
            deleted_at=30,
        ),
        _pod("then-four", n, 5, "0.5", 35, 95),
        _pod("wide", n, 6, "1"),
        _pod("middle", n, 7, "0.5", 10, 50),
        _pod("memory", n, 8, "0.25", 20, 60),
        _pod("sharer", n, 9, "0.3", claim="shared"),
        _pod("other-sharer", n, 9, "0.2", 30, 100, claim="shared"),
    ]
    return Scenario("claims-dynamic-mig", [n], pods, hours=(0, 1))


def _on_premises() -> Scenario:
    """A node whose GPUs no catalog has: they are counted by UUID, whole or in partitions."""
    devices = [Device(0, "3g.40gb", 2), Device(0, "1g.10gb", 9, 6), Device(1, "7g.80gb", 0)]
    geometry = partitions_geometry("a100-80", devices, gpus=2)
    n = gpu_node("n1", "a100-80", geometry, instance_type="", gpus=2)
    pods = [_pod("three", n, 0, "0.5", 5, 45), _pod("one", n, 1, "0.5", 15, 30), _pod("seven", n, 2, "0.5", 20)]
    return Scenario("claims-dynamic-mig-on-premises", [n], pods)


def _static() -> Scenario:
    """Partitions that exist without claims: 3 of 2g leave a seventh of their GPU unused."""
    devices = [Device(gpu, "2g.20gb", 3 + number, 2 * number) for gpu in range(2) for number in range(3)]
    n = gpu_node("n1", "h100", partitions_geometry("h100", devices, gpus=6, is_dynamic=False))
    pods = [
        _pod("all-hour", n, 0, "0.5"),
        _pod("comes", n, 1, "0.5", 20),
        _pod("goes", n, 2, "0.5", -1e6, 40),
        Pod("whole", n, [0], constant_use("0.7"), requests={"main": {"gpu_nvidia_com": 1}}, claims=["whole"]),
    ]
    return Scenario("claims-static-mig", [n], pods)


def _collected() -> Iterator[Scenario]:
    """Clusters with a collector of ResourceSlices and ResourceClaims."""
    exporter = ClaimCollector(scraping=Scraping("kube-dra-exporter", "10.0.0.30:8080", 30))
    state_metrics = ClaimCollector("kube-state-metrics", Scraping("kube-state-metrics", "10.0.0.10:8080"))
    yield replace(_dynamic(), name="claims-dynamic-mig-with-collector", claim_collector=exporter)
    yield replace(_static(), name="claims-static-mig-with-collector", claim_collector=state_metrics)
    # Up to dcgm-exporter 4.6.0-4.8.3, partitions that are created for claims have no labels of pods.
    unlabeled = _dynamic()
    yield replace(
        unlabeled,
        name="claims-dynamic-mig-without-labels",
        claim_collector=exporter,
        dcgm=Exporter(labels_partitions=False),
        utilization_source_by_pod={pod.name: "none" for pod in unlabeled.pods if pod.name != "whole"},
    )
    few = [Device(0, "3g.40gb", 1), Device(1, "3g.40gb", 1), Device(1, "3g.40gb", 2, 4)]
    geometry = partitions_geometry("h100", few, gpus=8)
    n = gpu_node("n1", "h100", replace(geometry, offered_profiles=["3g.40gb"], offers_whole_gpus=False))
    pods = [_pod("half", n, 0, "0.5", 10, 40), _pod("left", n, 1, "0.5"), _pod("right", n, 2, "0.5", 0, 30)]
    yield Scenario("claims-of-few-profiles", [n], pods, claim_collector=state_metrics)
    narrow = [Device(0, "2g.20gb", 3, 2), Device(0, "2g.20gb", 5, 4)]
    geometry = partitions_geometry("h100", narrow, gpus=8)
    n = gpu_node("n1", "h100", replace(geometry, offered_profiles=["2g.20gb"], offers_whole_gpus=False))
    pods = [_pod("middle", n, 0, "0.5", 15), _pod("last", n, 1, "0.5", 20, 50)]
    yield Scenario("claims-of-partitions-only", [n], pods, claim_collector=exporter)
    yield Scenario(
        "free-gpus-of-claims",
        [gpu_node("n1", "h100", partitions_geometry("h100", [], gpus=8))],
        [],
        claim_collector=exporter,
    )
    ready_late = replace(partitions_geometry("h100", [], gpus=8), lifetime=(20, 1e6))
    yield Scenario("claims-after-driver-start", [gpu_node("n1", "h100", ready_late)], [], claim_collector=exporter)


def _pod(
    name: str, node: Node, partition: int, use: str, start: Minutes = -1e6, end: Minutes = 1e6, claim: str = ""
) -> Pod:
    """A pod with a claim of one partition.

    Args:
        name: of the pod.
        node: of the pod.
        partition: its number among the partitions of the node's geometry, which whole GPUs precede.
        use: of the partition.
        start: when the pod is bound.
        end: when it is deleted.
        claim: several pods may name the same.
    """
    geometry = node.geometries[0]
    whole = sum(not device.profile for device in geometry.devices)
    resource = resource_of_profile(geometry.devices[whole + partition].profile)
    return Pod(
        name,
        node,
        [whole + partition],
        constant_use(use),
        requests={"main": {resource: 1}},
        bound_at=start,
        deleted_at=end,
        claims=[claim or f"claim-{name}"],
    )


def random_cluster_with_partitions(seed: int) -> Scenario:
    """The cluster of a seed whose DRA driver creates partitions for claims, at every place that a GPU has."""
    generator = random.Random(f"partitions {seed}")
    model = generator.choice(["h100", "a100-40", "a100-80", "h200", "b200"])
    nodes, pods = [], []
    for number in range(generator.randint(1, 3)):
        partitions, times = _random_partitions(generator, model)
        node = gpu_node(f"n{number}", model, partitions_geometry(model, partitions, gpus=8))
        nodes.append(node)
        for index, (start, end) in enumerate(times):
            sharers = generator.choice([1, 1, 1, 2])
            for sharer in range(sharers):
                late = start if sharer == 0 else min(end - 1, max(start, -60) + generator.randint(1, 30))
                name = f"p{index}-{sharer}-n{number}"
                use = f"0.{generator.randint(0, 49):02d}"
                pods.append(_pod(name, node, index, use, late, end, claim=f"claim-{index}-n{number}"))
    interval, offset = generator.choice([(30, 0), (15, 0), (60, 0), (30, generator.randint(1, 29))])
    exporter = Exporter(Scraping("dcgm-exporter", "", interval, offset), pod_uid=generator.choice([True, False]))
    source = KubeStateMetrics(Scraping("kube-state-metrics", "a:8080", 60, generator.randint(0, 59)))
    collector = generator.choice([None, None, "kube-dra-exporter", "kube-state-metrics"])
    scraping = Scraping(collector or "", "10.0.0.30:8080", generator.choice([30, 60]), generator.randint(0, 29))
    return Scenario(
        f"mix-partitions-{seed}",
        nodes,
        pods,
        [source],
        exporter,
        hours=(0, 1),
        claim_collector=ClaimCollector(collector, scraping) if collector else None,
    )


def _random_partitions(generator: random.Random, model: str) -> tuple[list[Device], list[tuple[Minutes, Minutes]]]:
    """Partitions of some GPUs that never overlap in memory at a time, and when claims have them."""
    choices = sorted(placements(model).items(), key=lambda choice: choice[0])
    devices: list[Device] = []
    times: list[tuple[Minutes, Minutes]] = []
    for gpu in range(generator.randint(1, 4)):
        taken: list[tuple[frozenset[int], Minutes, Minutes]] = []
        for _ in range(generator.randint(4, 40)):
            (profile, first), slices = generator.choice(choices)
            start = generator.choice([-1e6, generator.randint(-50, 110)])
            end = generator.choice([1e6, max(start, -50) + generator.randint(4, 70)])
            if all(not slices & other or end <= begins or ends <= start for other, begins, ends in taken):
                taken.append((slices, start, end))
                mig_id = {1: 7, 2: 3, 4: 1, 8: 0}[len(slices)] + first // len(slices)
                devices.append(Device(gpu, profile, mig_id, first))
                times.append((start, end))
    return devices, times
