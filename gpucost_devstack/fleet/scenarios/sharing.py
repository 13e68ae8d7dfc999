"""All ways to allocate GPUs: whole, MIG, time-slicing, MPS, Neuron, and several containers."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from gpucost_devstack.fleet.builders import (
    gpu_node,
    mig_mixed_geometry,
    mig_single_geometry,
    neuron_node,
    time_sliced_geometry,
    whole_gpus_geometry,
)
from gpucost_devstack.fleet.hardware import resource_of_profile
from gpucost_devstack.fleet.scenario import GPU, Exporter, Geometry, KubeStateMetrics, Node, Pod, Scenario, Use

START = -1e6


def constant_use(use: str) -> Use:
    """Constant use."""
    return ((START, use),)


def container_request(resource: str, units: int = 1) -> dict[str, dict[str, int]]:
    """The request of a pod with one container."""
    return {"main": {resource: units}}


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _whole_gpu_scenarios()
    yield from _mig_scenarios()
    yield from _time_slicing_scenarios()
    yield from _neuron_scenarios()
    yield from _several_container_scenarios()


def _whole_gpu_scenarios() -> Iterator[Scenario]:
    n = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"), labels={"karpenter_sh_nodepool": "gpu"})
    yield Scenario(
        "whole",
        [n],
        [
            Pod("one", n, [0], constant_use("0.75")),
            Pod(
                "two",
                n,
                [1, 2],
                use_by_device=[constant_use("0.9"), constant_use("0.1")],
                requests=container_request(GPU, 2),
            ),
        ],
    )
    idle = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"))
    yield Scenario("whole-idle", [idle])
    unhealthy = gpu_node("n1", "h100", whole_gpus_geometry("h100", allocatable={GPU: 7}))
    yield Scenario("unhealthy", [unhealthy], [Pod("p", unhealthy, [0], constant_use("0.5"))])


def _mig_scenarios() -> Iterator[Scenario]:
    n = gpu_node("n1", "h100-one", mig_single_geometry("h100-one", "1g.10gb", 7))
    yield Scenario(
        "mig-single",
        [n],
        [Pod(f"p{i}", n, [i], constant_use("0.31"), namespace=f"bu-{'abc'[i % 3]}") for i in range(6)],
    )
    stranded = gpu_node("n1", "a100-40", mig_single_geometry("a100-40", "2g.10gb", 3))
    yield Scenario("mig-stranded", [stranded], [Pod(f"p{i}", stranded, [i], constant_use("0.2")) for i in range(20)])
    for model, layouts in {
        "a100-40": [["3g.20gb", "3g.20gb"], ["1g.5gb"] * 7, ["1g.10gb"] * 4, ["7g.40gb"], [], [], [], []],
        "a100-80": [["4g.40gb", "2g.20gb", "1g.10gb"], *[["1g.20gb"] * 4] * 7],
        "h100": [["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"], *[["1g.10gb"] * 7] * 7],
        "h200": [["3g.71gb", "3g.71gb"], *[["1g.18gb"] * 7] * 7],
        "b200": [["2g.45gb"] * 3, *[["7g.180gb"]] * 7],
        "a30": [["1g.6gb", "1g.6gb", "2g.12gb"], ["4g.24gb"]],
    }.items():
        yield _mig_mixed_scenario(f"mig-mixed-{model}", model, layouts)
    # Dominant shares above a GPU: 3g + 2g + 1g + 1g is 15/14.
    yield _mig_mixed_scenario("mig-above-one", "a100-40", [["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]] * 8)
    yield _mig_mixed_scenario("mig-above-one-h100", "h100", [["3g.40gb", "1g.20gb", "1g.20gb", "1g.10gb"]] * 8)
    yield _mig_mixed_scenario("mig-me", "a100-40", [["1g.5gb+me", "1g.5gb", "1g.5gb", "4g.20gb"], *[[]] * 7])


def _mig_mixed_scenario(name: str, model: str, layouts: list[list[str]]) -> Scenario:
    n = gpu_node("n1", model, mig_mixed_geometry(model, layouts))
    pods = []
    for index, device in enumerate(n.geometries[0].devices):
        if index % 3 < 2:
            resource = resource_of_profile(device.profile) if device.profile else GPU
            pods.append(
                Pod(f"p{index}", n, [index], constant_use(f"0.{index + 1:02d}"), requests=container_request(resource))
            )
    return Scenario(name, [n], pods)


def _time_slicing_scenarios() -> Iterator[Scenario]:
    n = gpu_node("n1", "a10g", time_sliced_geometry("a10g", 4))
    pods = [
        Pod("a", n, [0], constant_use("0.2")),
        Pod("b", n, [0], constant_use("0.1")),
        Pod("twice", n, [1, 1], constant_use("0.3"), requests=container_request(GPU, 2)),
        Pod("neighbor", n, [1], constant_use("0.6")),
        Pod("alone", n, [2], constant_use("0.9")),  # holds one of four replicas, so at most a quarter counts as its use
        Pod("apart", n, [0, 3], constant_use("0.1"), requests=container_request(GPU, 2)),
    ]
    yield Scenario("time-sliced", [n], pods)
    yield Scenario("time-sliced-device-too", [n], pods, dcgm=Exporter(shared_device_series="copies+device"))
    renamed = gpu_node("n1", "a10g", time_sliced_geometry("a10g", 4, renamed=True))
    yield Scenario(
        "time-sliced-renamed",
        [renamed],
        [
            Pod(f"p{i}", renamed, [i], constant_use("0.2"), requests=container_request("nvidia_com_gpu_shared"))
            for i in range(3)
        ],
    )
    mps = gpu_node("n1", "t4", time_sliced_geometry("t4", 3, strategy="mps"))
    yield Scenario("mps", [mps], [Pod("a", mps, [0], constant_use("0.4")), Pod("b", mps, [0], constant_use("0.2"))])
    t4 = gpu_node("n1", "t4", time_sliced_geometry("t4", 4))
    sharers = [Pod(name, t4, [0], constant_use(use)) for name, use in (("a", "0.2"), ("b", "0.15"), ("c", "0.1"))]
    yield Scenario("first-sharer-labelled", [t4], sharers, dcgm=Exporter(shared_device_series="first"))
    yield Scenario("sharer-labels-flip", [t4], sharers, dcgm=Exporter(shared_device_series="flip"))
    coming = [
        Pod("a", t4, [0], constant_use("0.4")),
        Pod("b", t4, [0], constant_use("0.3"), bound_at=20, deleted_at=45),
    ]
    yield Scenario("sharer-comes-and-goes", [t4], coming)


def _neuron_scenarios() -> Iterator[Scenario]:
    for name, kind, devices, cores in (
        ("trn1", "trn1.32xlarge", 16, 2),
        ("inf2", "inf2.48xlarge", 12, 2),
        ("trn2", "trn2.48xlarge", 16, 8),
        ("inf1", "inf1.xlarge", 1, 4),
    ):
        n = neuron_node("n1", kind, devices, cores)
        pods = [
            Pod(
                "core",
                n,
                [cores * devices - 1],
                constant_use("0.5"),
                requests=container_request("aws_amazon_com_neuroncore"),
            )
        ]
        if devices > 1:
            whole_device = container_request("aws_amazon_com_neuron")
            pods.append(Pod("device", n, list(range(cores)), constant_use("0.25"), requests=whole_device))
        yield Scenario(f"neuron-{name}", [n], pods)


def _several_container_scenarios() -> Iterator[Scenario]:
    n = gpu_node("n1", "h100", whole_gpus_geometry("h100"))
    yield Scenario(
        "containers",
        [n],
        [
            Pod("several", n, [0, 1], constant_use("0.5"), requests={"a": {GPU: 1}, "b": {GPU: 1}, "c": {}}),
            Pod(
                "init",
                n,
                [2, 3],
                constant_use("0.5"),
                requests=container_request(GPU, 2),
                init_requests={"prepare": {GPU: 1}},
            ),
            Pod(
                "sidecar",
                n,
                [4, 5],
                constant_use("0.5"),
                requests=container_request(GPU),
                sidecar_requests={"cache": {GPU: 1}},
            ),
        ],
    )
    sliced = replace(
        mig_single_geometry("h100", "1g.10gb", 7), labels={}, allocatable={GPU: 49}
    )  # without product labels, a slice's share is physical GPUs ÷ capacity, not ÷ allocatable units
    unhealthy = gpu_node("n1", "h100", sliced)
    yield Scenario(
        "unhealthy-slices",
        [unhealthy],
        [Pod("p", unhealthy, [0], constant_use("0.5")), Pod("q", unhealthy, [9], constant_use("0.25"))],
    )
    partly = Node(
        "n1", "", 4, "NVIDIA A10G", (Geometry({GPU: 4}, {GPU: Fraction(1)}, whole_gpus_geometry("a10g").devices),)
    )
    ksm = KubeStateMetrics(node_labels=False)
    yield Scenario("no-node-labels", [partly], [Pod("p", partly, [0], constant_use("0.5"))], ksm=[ksm])
