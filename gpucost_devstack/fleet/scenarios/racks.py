"""NVLink domains (racks such as GB200 NVL72) in which no whole job fits."""

import random
from collections.abc import Iterator, Sequence

from gpucost_devstack.fleet.builders import gpu_node, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import (
    FOREVER,
    GPU,
    Geometry,
    Interval,
    KubeStateMetrics,
    Minutes,
    Node,
    Pod,
    Scenario,
)
from gpucost_devstack.fleet.scenarios.sharing import constant_use
from gpucost_devstack.fleet.scraping import Scraping

CLUSTER_UUID = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31"
"""The example of k8s-device-plugin 0.20, docs/gpu-feature-discovery/README.md."""
SMALLEST_JOB = 36
SETTINGS = f"nvlink_domains: [{{minimum_job_gpus: {SMALLEST_JOB}}}]\n"
RANDOM_SEEDS = range(6)


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _rack_scenarios()
    yield from (random_racks(seed) for seed in RANDOM_SEEDS)


def rack_node(
    rack: int, number: int, geometries: Sequence[Geometry] | None = None, lifetime: Interval = FOREVER
) -> Node:
    """A compute tray of a rack, with four GPUs."""
    return gpu_node(
        f"r{rack}n{number}",
        "gb200",
        geometries or (whole_gpus_geometry("gb200"),),
        lifetime=lifetime,
        labels={"nvidia_com_gpu_clique": f"{CLUSTER_UUID}.{rack}", "eks_amazonaws_com_nodegroup": "gb200"},
    )


def job(name: str, nodes: Sequence[Node], start: Minutes = FOREVER[0], end: Minutes = FOREVER[1]) -> list[Pod]:
    """A job with a pod on each node that holds all of its GPUs."""
    return [
        Pod(
            f"{name}-{number}",
            node,
            range(4),
            constant_use("0.8"),
            requests={"main": {GPU: 4}},
            namespace="training",
            bound_at=start,
            deleted_at=end,
            owners=(("Job", name),),
        )
        for number, node in enumerate(nodes)
    ]


def _rack_scenarios() -> Iterator[Scenario]:
    def cluster(name: str, nodes: Sequence[Node], pods: Sequence[Pod], **attributes: object) -> Scenario:
        return Scenario(
            name,
            nodes,
            pods,
            settings=SETTINGS,
            minimum_job_gpus=SMALLEST_JOB,
            **attributes,  # type: ignore[arg-type]
        )

    rack = [rack_node(1, number) for number in range(18)]
    yield cluster("rack-half-used", rack, job("half", rack[:9]))
    # Ten trays are held, so 32 GPUs are free: less than a job of 36.
    yield cluster("rack-half-of-a-job-free", rack, job("ten", rack[:10]), expected_notes=("of NVLink domain",))
    yield cluster("rack-idle", rack, [])
    # From minute 15 to 45, a job of one tray more leaves too few GPUs.
    yield cluster("rack-half-for-a-while", rack, [*job("half", rack[:9]), *job("short", rack[9:10], 15, 45)])
    # A tray failed at minute 30: it is still paid for, and what is left does not suffice for a job.
    failed = rack_node(1, 17, (whole_gpus_geometry("gb200", lifetime=(-1e6, 30)),))
    yield cluster("rack-with-failed-tray", [*rack[:17], failed], job("half", rack[:9]))
    other = [rack_node(2, number) for number in range(18)]
    # Together both racks have 64 free GPUs, but no job spans two racks.
    yield cluster("two-racks-half-used", [*rack, *other], [*job("a", rack[:10]), *job("b", other[:10])])
    # The setting is for another node pool. A node without clique is in no domain.
    yield Scenario(
        "rack-of-another-pool",
        [*rack, gpu_node("solo", "gb200", whole_gpus_geometry("gb200"))],
        job("ten", rack[:10]),
        settings=SETTINGS.replace("{", "{node_pool: inference-*, "),
    )


def random_racks(seed: int) -> Scenario:
    """Jobs of random sizes and times in two racks; every second cluster changes only at scrapes."""
    generator = random.Random(f"racks {seed}")
    is_exact = seed % 2 == 0

    def minute(low: int, high: int) -> float:
        return generator.randint(low, high) if is_exact else round(generator.uniform(low, high), 2)

    nodes, pods = [], []
    for rack in (1, 2):
        trays = []
        for number in range(18):
            geometry = whole_gpus_geometry("gb200")
            if generator.random() < 0.1:
                geometry = whole_gpus_geometry("gb200", allocatable={GPU: 3})
            leaves = minute(5, 90) if generator.random() < 0.05 else FOREVER[1]
            trays.append(rack_node(rack, number, (geometry,), (FOREVER[0], leaves)))
        free = [tray for tray in trays if tray.geometries[0].allocatable is None]
        for number in range(generator.randint(2, 4)):
            size = min(generator.choice([2, 4, 9, 12]), len(free))
            taken, free = free[:size], free[size:]
            start = FOREVER[0] if generator.random() < 0.5 else minute(-50, 55)
            end = FOREVER[1] if generator.random() < 0.5 else max(start, -50) + minute(5, 90)
            pods += job(f"job-{rack}-{number}", taken, start, end)
        nodes += trays
    offset = 0 if is_exact else generator.randint(0, 59)
    source = KubeStateMetrics(Scraping("kube-state-metrics", "a:8080", 60, offset))
    return Scenario(f"mix-racks-{seed}", nodes, pods, [source], settings=SETTINGS, minimum_job_gpus=SMALLEST_JOB)
