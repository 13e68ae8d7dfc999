"""Time-sliced and MPS GPUs whose exporter reports the utilization of each pod's processes."""

import random
from collections.abc import Iterator
from dataclasses import replace

from gpucost_devstack.fleet.builders import gpu_node, time_sliced_geometry, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import GPU, Exporter, Interval, Node, Pod, Scenario
from gpucost_devstack.fleet.scenarios.mixes import random_cluster
from gpucost_devstack.fleet.scenarios.sharing import constant_use, container_request
from gpucost_devstack.fleet.scraping import Scraping

SEEDS = range(100, 106)
SIGNALS = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1, "DCGM_FI_DEV_GPU_UTIL": 100}


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _constant_sharers()
    yield from _changing_sharers()
    yield from _sources_and_signals()
    yield from (random_cluster_with_processes(seed) for seed in SEEDS)


def unequal_sharers(name: str = "processes-unequal", replicas: int = 2) -> Scenario:
    """Two pods that use 0.6 and 0.1 of the GPU that they share."""
    node = gpu_node("n1", "t4", time_sliced_geometry("t4", replicas))
    pods = [Pod("busy", node, [0], constant_use("0.6")), Pod("idle", node, [0], constant_use("0.1"))]
    return Scenario(name, [node], pods, dcgm=Exporter(signals=SIGNALS, per_process={"n1": True}))


def _constant_sharers() -> Iterator[Scenario]:
    yield unequal_sharers()
    yield unequal_sharers("processes-unequal-quarters", 4)
    unequal = unequal_sharers()
    exporter = unequal.dcgm or Exporter()
    yield replace(unequal, name="processes-overstated", dcgm=replace(exporter, gpu_util_factor="1.25"))
    yield replace(unequal, name="processes-and-others", unrequested_use={("n1", 0): "0.15"})
    yield replace(
        unequal,
        name="processes-unseen",
        dcgm=replace(exporter, per_process={"n1": False}),
        expected_notes=["set hostPID for dcgm-exporter"],
    )
    for style in ("plain", "honor", "blank"):
        yield replace(unequal, name=f"processes-{style}", dcgm=replace(exporter, label_style=style, pod_uid=True))
    n = gpu_node("n1", "a10g", time_sliced_geometry("a10g", 4))
    pods = [
        Pod("a", n, [0], constant_use("0.5")),
        Pod("b", n, [0], constant_use("0")),
        Pod("twice", n, [1, 1], constant_use("0.3"), requests=container_request(GPU, 2)),
        Pod("neighbor", n, [1], constant_use("0.6")),
        Pod("alone", n, [2], constant_use("0.9")),
        Pod(
            "apart",
            n,
            [0, 3],
            use_by_device=[constant_use("0.05"), constant_use("0.2")],
            requests=container_request(GPU, 2),
        ),
        Pod("contender", n, [3], constant_use("1.4")),
    ]
    yield Scenario("processes-several", [n], pods, dcgm=Exporter(signals=SIGNALS, per_process={"n1": True}))
    mps = gpu_node("n1", "t4", time_sliced_geometry("t4", 3, strategy="mps"))
    used = zip("abc", ("0.4", "0.02", "0"), strict=True)
    pods = [Pod(name, mps, [0], constant_use(use)) for name, use in used]
    yield Scenario("processes-mps", [mps], pods, dcgm=Exporter(signals=SIGNALS, per_process={"n1": True}))


def _changing_sharers() -> Iterator[Scenario]:
    n = gpu_node("n1", "t4", time_sliced_geometry("t4", 4))
    pods = [
        Pod("a", n, [0], ((-1e6, "0.06"), (25, "0.16"))),
        Pod("b", n, [0], constant_use("0.22"), bound_at=20, deleted_at=45),
        Pod("c", n, [0], constant_use("0.05"), bound_at=-10, finished_at=12, deleted_at=50),
    ]
    exporter = Exporter(signals=SIGNALS, per_process={"n1": True})
    changing = Scenario("processes-sharers-end", [n], pods, dcgm=exporter, hours=(0, 1))
    yield changing
    scraping = Scraping("dcgm-exporter", "", 30, 17)
    yield replace(changing, name="processes-unaligned", dcgm=replace(exporter, scraping=scraping))
    yield replace(changing, name="processes-restart", dcgm=replace(exporter, restarts=[(30, 33)]))
    yield replace(
        changing,
        name="processes-scrape-gap",
        dcgm=replace(exporter, scraping=replace(exporter.scraping, gaps=[(22, 40)])),
    )
    # It pulls its image from when no other pod runs until after the hour.
    pods = [
        Pod("ends", n, [0], constant_use("0.3"), finished_at=40),
        Pod("pulls", n, [0], constant_use("0.2"), bound_at=45, running_at=66),
    ]
    yield replace(changing, name="processes-image-pull", pods=pods)
    gap = {"a": [(30, 40)]}
    yield replace(changing, name="processes-uid-unknown", dcgm=replace(exporter, unknown_uids=gap))
    yield replace(
        changing, name="processes-uids-unknown", dcgm=replace(exporter, unknown_uids={"a": [(30, 40)], "b": [(35, 38)]})
    )
    unequal = unequal_sharers()
    yield replace(
        unequal,
        name="processes-uid-always-unknown",
        dcgm=replace(unequal.dcgm or exporter, unknown_uids={"idle": [(-1e6, 1e6)]}),
    )
    yield replace(
        changing,
        name="processes-gap-unmeasured",
        dcgm=replace(exporter, unknown_uids=gap),
        settings="utilization: {sources: [pod, process]}",
        sources=["pod", "process"],
    )


def _sources_and_signals() -> Iterator[Scenario]:
    unequal = unequal_sharers()
    exporter = unequal.dcgm or Exporter()
    yield replace(
        unequal,
        name="processes-after-replicas",
        settings="utilization: {sources: [pod, shared, process]}",
        sources=["pod", "shared"],
    )
    yield replace(unequal, name="processes-by-gpu-util", settings="utilization: {signal: DCGM_FI_DEV_GPU_UTIL}")
    only = {"DCGM_FI_DEV_GPU_UTIL": 100}
    yield replace(unequal, name="processes-fallback", dcgm=replace(exporter, signals=only))
    yield replace(
        unequal, name="processes-unseen-by-gpu-util", dcgm=replace(exporter, signals=only, per_process={"n1": False})
    )
    nodes = [
        gpu_node("new", "t4", time_sliced_geometry("t4", 2)),
        gpu_node("old", "t4", time_sliced_geometry("t4", 2)),
        gpu_node("whole", "a10g", whole_gpus_geometry("a10g")),
    ]
    yield Scenario(
        "processes-mixed-exporters",
        nodes,
        [
            *(
                Pod(f"{name}-{node.name}", node, [0], constant_use(use))
                for node in nodes[:2]
                for name, use in (("busy", "0.7"), ("idle", "0.02"))
            ),
            Pod("whole", nodes[2], [0], constant_use("0.3")),
        ],
        dcgm=replace(exporter, per_process={"new": True, "whole": True}, pod_uid=True),
    )


def random_cluster_with_processes(seed: int) -> Scenario:
    """The random cluster of a seed, with time-sliced nodes whose exporters report processes."""
    generator = random.Random(-seed)
    cluster = random_cluster(seed)
    exporter = cluster.dcgm or Exporter()
    shared = [node for node in cluster.nodes if any(geometry.replicas > 1 for geometry in node.geometries)]
    new = [_shared_node(generator, f"shared-{number}") for number in range(3 if not shared else 2)]
    pods = [pod for node in new for pod in _successive_sharers(generator, node)]
    outages = [*exporter.scraping.gaps, *exporter.restarts, *exporter.nan_intervals]
    unknown: dict[str, list[Interval]] = {}
    for pod in pods:
        start, minutes = generator.randint(5, 40), generator.choice([8, 15])
        around = (start - 5, start + minutes + 5)
        is_clear = (
            pod.bound_at < around[0]
            and around[1] < pod.deleted_at
            and not any(begin < around[1] and around[0] < end for begin, end in outages)
        )  # so that scrapes show for how long the uid is unknown
        if is_clear and generator.random() < 0.3:
            unknown[pod.name] = [(float(start), float(start + minutes))]
    return replace(
        cluster,
        name=f"mix-processes-{seed}",
        nodes=[*cluster.nodes, *new],
        pods=[*(_using_its_gpus(pod) if pod.node in shared else pod for pod in cluster.pods), *pods],
        dcgm=replace(
            exporter,
            signals={next(iter(exporter.signals)): 1, "DCGM_FI_DEV_GPU_UTIL": 100},
            label_style=generator.choice(["exported", "plain", "honor", "blank"]),
            shared_device_series="copies",
            per_process={node.name: True for node in new} | {node.name: False for node in shared},
            unknown_uids=unknown,
            gpu_util_factor=generator.choice(["1", "1.1"]),
        ),
    )


def _using_its_gpus(pod: Pod) -> Pod:
    """The pod with some use at all times: where a GPU is idle, no value of a process is needed to know who uses it."""
    curves = [tuple((since, max(use, "0.01")) for since, use in curve) for curve in pod.use_by_device]
    return replace(pod, use_by_device=curves)


def _shared_node(generator: random.Random, name: str) -> Node:
    model = generator.choice(["t4", "a10g"])
    return gpu_node(name, model, time_sliced_geometry(model, generator.choice([2, 3, 4])))


def _successive_sharers(generator: random.Random, node: Node) -> Iterator[Pod]:
    geometry = node.geometries[0]
    for index in range(len(geometry.devices)):
        for replica in range(geometry.replicas):
            start = generator.choice([-1e6, float(generator.randint(-40, 40))])
            # One sharer always uses its GPU, so that the values of processes account for the use at all times.
            use = f"0.{generator.randint(5 if not replica else 1, 22):02d}"
            ends = 1e6 if not replica else max(start, 0) + generator.randint(5, 80)
            yield Pod(
                f"s{index}-{replica}-{node.name}",
                node,
                [index],
                constant_use(use),
                namespace=f"team-{generator.choice('abc')}",
                bound_at=start if replica else -1e6,
                deleted_at=ends,
            )
