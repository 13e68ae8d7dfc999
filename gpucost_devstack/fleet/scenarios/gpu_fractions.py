"""Pods that hold fractions of GPUs: through HAMi, and through KAI Scheduler, which reserves GPUs with pods."""

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from gpucost_devstack.fleet.builders import gpu_node, vgpu_geometry, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import (
    CORES,
    GPU,
    MEMORY,
    MEMORY_PERCENTAGE,
    Hami,
    KubeStateMetrics,
    Node,
    Pod,
    Scenario,
)
from gpucost_devstack.fleet.scenarios.sharing import START, constant_use
from gpucost_devstack.fleet.scraping import Scraping

A10G_MIB, A30_MIB, H100_MIB = 23028, 24576, 81559
"""What NVML reports."""
Requests = dict[str, int]


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _hami_scenarios()
    yield from _kai_scenarios()
    yield from (random_cluster_with_reservations(seed) for seed in range(4))
    yield from (random_cluster_with_vgpus(seed) for seed in range(8))


def vgpu(units: int = 1, *, cores: int | None = None, mib: int | None = None, percent: int | None = None) -> Requests:
    """What a container requests of HAMi."""
    parts = {CORES: cores, MEMORY: mib, MEMORY_PERCENTAGE: percent}
    return {GPU: units} | {name: part for name, part in parts.items() if part is not None}


def _pod(name: str, node: Node, gpus: list[int], use: str, request: Requests, **overrides: object) -> Pod:
    return Pod(name, node, gpus, constant_use(use), requests={"main": request}, **overrides)  # type: ignore[arg-type]


def _hami_scenarios() -> Iterator[Scenario]:
    n = gpu_node("n1", "a10g", vgpu_geometry("a10g", A10G_MIB))
    quarter = vgpu(cores=25, percent=25)
    quarters = [_pod(f"p{i}", n, [0], use, quarter) for i, use in enumerate(("0.25", "0.1", "0.2", "0.05"))]
    yield Scenario("hami-quarters", [n], quarters, hami=Hami())
    # The first has most of the cores and the second most of the memory: together they hold one GPU, not 1.4.
    dominance = [
        _pod("computes", n, [1], "0.2", vgpu(cores=60, mib=2000)),
        _pod("remembers", n, [1], "0.1", vgpu(cores=10, mib=18000), bound_at=20),
        _pod("guest", n, [1], "0.05", vgpu(cores=20, percent=5), bound_at=30, deleted_at=45),
        _pod("alone", n, [2], "0.5", vgpu(cores=50, mib=4000)),
    ]
    yield Scenario("hami-dominance", [n], dominance, hami=Hami())
    # Without a limit of cores, HAMi measures nothing, so the use of the GPU is divided by what they hold.
    by_memory = [
        _pod("small", n, [0], "0.3", vgpu(percent=20)),
        _pod("large", n, [0], "0.1", vgpu(percent=60), deleted_at=40),
        _pod("limited", n, [0], "0.1", vgpu(cores=20, percent=10)),
        _pod("cores-only", n, [1], "0.6", vgpu(cores=30)),
        _pod("whole", n, [2, 3], "0.7", vgpu(2)),
    ]
    yield Scenario("hami-memory-only", [n], by_memory, hami=Hami())
    yield Scenario("hami-old-names", [n], by_memory, hami=Hami("2.8"))
    yield Scenario("hami-old-names-with-cores", [n], [*quarters, *dominance[:2]], hami=Hami("2.8"))
    yield Scenario("hami-without-scheduler", [n], [*quarters, dominance[3]], hami=Hami(exposes_scheduler=False))
    yield Scenario("hami-without-monitors", [n], [*quarters, *dominance], hami=Hami(exposes_monitors=False))
    yield Scenario(
        "hami-without-metrics",
        [n],
        [*quarters, dominance[3]],
        expected_notes=["no metric says which GPU of node 'n1' each of 5 pods"],
    )
    single = gpu_node("n1", "a10g-one", vgpu_geometry("a10g-one", A10G_MIB))
    yield Scenario(
        "hami-one-gpu-without-metrics",
        [single],
        [_pod(name, single, [0], use, vgpu(percent=part)) for name, use, part in (("a", "0.3", 25), ("b", "0.1", 50))],
    )
    containers = {"first": vgpu(cores=25, percent=10), "second": vgpu(cores=20, percent=50), "third": {}}
    init = {"loads": vgpu(cores=100, percent=100)}
    yield Scenario(
        "hami-containers",
        [n],
        [
            Pod("two", n, [0, 1], constant_use("0.2"), requests=containers),
            Pod("init", n, [2], constant_use("0.3"), requests={"main": vgpu(cores=50, percent=50)}, init_requests=init),
            _pod("pair", n, [0, 1], "0.1", vgpu(2, cores=25, mib=5757)),
        ],
        hami=Hami(),
    )
    unlabeled = replace(vgpu_geometry("a30", A30_MIB, split=4), labels={})
    on_premises = gpu_node("n1", "a30", unlabeled)
    yield Scenario(
        "hami-unknown-instance-type", [on_premises], [_pod("p", on_premises, [1], "0.4", quarter)], hami=Hami()
    )
    scaled = gpu_node("n1", "a10g", vgpu_geometry("a10g", 2 * A10G_MIB, cores=150))
    oversold = [_pod(f"p{i}", scaled, [0], "0.2", vgpu(cores=50, mib=A10G_MIB // 2)) for i in range(3)]
    yield Scenario("hami-scaled-memory-and-cores", [scaled], oversold, hami=Hami())
    unhealthy = gpu_node("n1", "a10g", replace(vgpu_geometry("a10g", A10G_MIB), allocatable={GPU: 30}))
    yield Scenario("hami-unhealthy", [unhealthy], [_pod("p", unhealthy, [0], "0.2", quarter)], hami=Hami())
    late = gpu_node("n1", "a10g", vgpu_geometry("a10g", A10G_MIB, (12, 1e6)), lifetime=(8, 1e6))
    lives = [
        _pod("starts", late, [0], "0.2", quarter, bound_at=15, running_at=21),
        _pod("ends", late, [0], "0.1", quarter, bound_at=13, finished_at=35, deleted_at=50),
        _pod("brief", late, [0], "0.25", quarter, bound_at=40, deleted_at=44),
    ]
    yield Scenario("hami-lifetimes", [late], lives, hami=Hami())


def reservation(node: Node, gpu: int, **overrides: object) -> Pod:
    """The pod with which KAI Scheduler reserves a GPU."""
    return Pod(
        f"gpu-reservation-{node.name}-x7k{gpu}p",
        node,
        [gpu],
        requests={"resource-reservation": {GPU: 1}},
        namespace="kai-resource-reservation",
        reserves=True,
        groups=[group_of(node, gpu)],
        **overrides,  # type: ignore[arg-type]
    )


def group_of(node: Node, gpu: int) -> str:
    """KAI Scheduler's name of a GPU. The real ones are UUIDs."""
    return f"{node.name}-group-{gpu}"


def _sharer(name: str, node: Node, gpus: list[int], use: str, fraction: str = "", **overrides: object) -> Pod:
    groups = [group_of(node, gpu) for gpu in gpus]
    return Pod(name, node, gpus, constant_use(use), requests={}, fraction=fraction, groups=groups, **overrides)  # type: ignore[arg-type]


def _kai_scenarios() -> Iterator[Scenario]:
    whole = whole_gpus_geometry("a10g")
    n = gpu_node(
        "n1",
        "a10g",
        replace(whole, memory_mib=A10G_MIB, labels={**whole.labels, "nvidia_com_gpu_memory": str(A10G_MIB)}),
    )
    quarters = [_sharer(f"p{i}", n, [0], use, "0.25") for i, use in enumerate(("0.2", "0.1", "0.3", "0.05"))]
    yield Scenario("kai-quarters", [n], [reservation(n, 0), *quarters])
    # The reservation starts before its sharers and ends after them; the GPU is then unallocated.
    lives = [
        reservation(n, 1, bound_at=10, running_at=11, deleted_at=50),
        _sharer("first", n, [1], "0.2", "0.5", bound_at=12, running_at=15, finished_at=40, deleted_at=55),
        _sharer("second", n, [1], "0.3", "0.3", bound_at=20, deleted_at=45, owners=(("Job", "train"),)),
        _sharer("by-memory", n, [1], "0.1", fraction_mib=2300, bound_at=25, deleted_at=30),
        Pod("whole", n, [2], constant_use("0.6")),
    ]
    yield Scenario("kai-lifetimes", [n], lives)
    several = [
        reservation(n, 2),
        reservation(n, 3),
        _sharer("two", n, [2, 3], "0.25", "0.4"),
        _sharer("one", n, [3], "0.1", "0.6"),
    ]
    yield Scenario("kai-several-gpus", [n], several)
    old = replace(reservation(n, 0), namespace="runai-reservation")
    yield Scenario("runai-reservation", [n], [old, *quarters[:3]])
    unknown = ["their fractions are unknown; what they hold is unobserved. Set --metric-annotations-allowlist"]
    sources = {"annotations": KubeStateMetrics(pod_annotations=False), "labels": KubeStateMetrics(pod_labels=False)}
    for missing, source in sources.items():
        pods = [reservation(n, 0), *quarters, *lives]
        yield Scenario(f"kai-without-{missing}", [n], pods, [source], expected_notes=unknown)


def random_cluster_with_reservations(seed: int) -> Scenario:
    """The cluster of a seed in which KAI Scheduler divides GPUs."""
    generator = random.Random(f"reservations {seed}")
    nodes = [gpu_node(f"n{number}", "a10g", whole_gpus_geometry("a10g")) for number in range(generator.randint(1, 3))]
    pods = [pod for node in nodes for gpu in range(4) for pod in _sharers_of_gpu(generator, node, gpu)]
    source = KubeStateMetrics(Scraping("kube-state-metrics", "a:8080", 60, generator.randint(0, 59)))
    return Scenario(f"mix-reservations-{seed}", nodes, pods, [source], hours=(0, 1))


def _sharers_of_gpu(generator: random.Random, node: Node, gpu: int) -> Iterator[Pod]:
    left, starts, ends = 100, list[float](), list[float]()
    for number in range(generator.randint(0, 4)):
        percent = generator.randint(5, 60)
        if percent > left:
            break
        left -= percent
        starts.append(generator.choice([START, float(Fraction(generator.randint(-500, 600), 10))]))
        ends.append(max(starts[-1], -60) + generator.choice([2e6, float(Fraction(generator.randint(50, 800), 10))]))
        use = f"0.{generator.randint(0, 20):02}"
        yield _sharer(
            f"p{gpu}-{number}-{node.name}",
            node,
            [gpu],
            use,
            f"0.{percent:02}",
            bound_at=starts[-1],
            deleted_at=ends[-1],
            namespace=f"team-{generator.choice('abc')}",
        )
    if starts:
        yield reservation(node, gpu, bound_at=min(starts) - 1, deleted_at=max(ends) + generator.choice([0, 2, 7]))
    elif generator.random() < 0.5:
        yield Pod(f"whole-{gpu}-{node.name}", node, [gpu], constant_use("0.5"))


def random_cluster_with_vgpus(seed: int) -> Scenario:
    """The cluster of a seed whose GPUs HAMi divides."""
    generator = random.Random(f"vgpus {seed}")
    model, mib = generator.choice([("a10g", A10G_MIB), ("h100", H100_MIB), ("a10g-one", A10G_MIB)])
    geometry = vgpu_geometry(model, mib, split=generator.choice([4, 10]))
    nodes = [gpu_node(f"n{number}", model, geometry) for number in range(generator.randint(1, 3))]
    pods = [pod for node in nodes for gpu in range(int(node.gpus)) for pod in _pods_on_gpu(generator, node, gpu, mib)]
    kind = generator.choice(["2.9", "2.9", "2.8", "no monitors"])
    scraping = Scraping("", "", generator.choice([15, 30, 60]), generator.randint(0, 59))
    hami = Hami("2.9" if kind == "no monitors" else kind, exposes_monitors=kind != "no monitors", scraping=scraping)
    source = KubeStateMetrics(Scraping("kube-state-metrics", "a:8080", 60, generator.randint(0, 59)))
    return Scenario(f"mix-vgpus-{seed}", nodes, pods, [source], hami=hami, hours=(0, 1))


def _pods_on_gpu(generator: random.Random, node: Node, gpu: int, mib: int) -> Iterator[Pod]:
    """Pods that fit on one GPU together by cores and by memory, though their larger shares may not."""
    cores, memory = 100, mib
    limits_cores = generator.random() < 0.7
    for number in range(generator.randint(0, 4)):
        core_part, memory_part = generator.randint(5, 40), generator.randint(mib // 20, mib // 3)
        if core_part > cores or memory_part > memory:
            return
        cores, memory = cores - core_part, memory - memory_part
        start = generator.choice([START, float(Fraction(generator.randint(-500, 600), 10))])
        minutes = generator.choice([2e6, float(Fraction(generator.randint(50, 800), 10))])
        use = f"0.0{generator.randint(0, 5)}"
        request = vgpu(cores=core_part if limits_cores else None, mib=memory_part)
        yield _pod(
            f"p{gpu}-{number}-{node.name}",
            node,
            [gpu],
            use,
            request,
            bound_at=start,
            deleted_at=max(start, -60) + minutes,
            namespace=f"team-{generator.choice('abc')}",
        )
