"""Edge cases of slices and replicas: oversized MIG layouts, several profiles in a pod, sharers of several devices."""

from collections.abc import Iterator
from dataclasses import replace

from gpucost_devstack.fleet.builders import (
    gpu_node,
    mig_mixed_geometry,
    mig_single_geometry,
    neuron_node,
    time_sliced_geometry,
    whole_gpus_geometry,
)
from gpucost_devstack.fleet.hardware import resource_of_profile
from gpucost_devstack.fleet.scenario import GPU, Exporter, Node, Pod, Scenario
from gpucost_devstack.fleet.scenarios.sharing import constant_use, container_request

CORE, DEVICE = "aws_amazon_com_neuroncore", "aws_amazon_com_neuron"
OVERSIZED = ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]
"""Dominant shares of 15/14."""


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _parts_of_a_gpu_scenarios()
    yield from _oversized_layout_scenarios()
    yield from _mig_edge_cases()
    yield from _shared_device_edge_cases()
    yield from _neuron_edge_cases()
    yield from _request_edge_cases()
    yield from _estimated_utilization_scenarios()


def _oversized_layout_scenarios() -> Iterator[Scenario]:
    """If the slices of one GPU add up to more than the GPU, only these are scaled down."""
    among_whole_gpus = gpu_node("n1", "a100-40", mig_mixed_geometry("a100-40", [OVERSIZED, *[[]] * 7]))
    yield _pods_on_every_device("oversized-layout-and-whole-gpus", among_whole_gpus)
    among_slices = gpu_node("n1", "a100-40", mig_mixed_geometry("a100-40", [OVERSIZED, *[["2g.10gb"] * 3] * 7]))
    yield _pods_on_every_device("oversized-layout-and-others", among_slices)
    # Without an exporter nothing shows the layout of each GPU. Here all are alike, so the node's capacity shows it.
    without_exporter = _pods_on_every_device(
        "oversized-without-dcgm", gpu_node("n1", "a100-40", mig_mixed_geometry("a100-40", [OVERSIZED] * 8))
    )
    yield replace(
        without_exporter, dcgm=None, utilization_source_by_pod={pod.name: "none" for pod in without_exporter.pods}
    )


def _pods_on_every_device(name: str, on: Node) -> Scenario:
    """A pod on every device of a node."""
    pods = []
    for index, device in enumerate(on.geometries[0].devices):
        requests = container_request(resource_of_profile(device.profile) if device.profile else GPU)
        pods.append(Pod(f"p{index}", on, [index], constant_use("0.25"), requests=requests))
    return Scenario(name, [on], pods)


def _mig_edge_cases() -> Iterator[Scenario]:
    mixed = gpu_node("n1", "a30", mig_mixed_geometry("a30", [["1g.6gb", "1g.6gb", "2g.12gb"], ["4g.24gb"]]))
    two_kinds = {"main": {"nvidia_com_mig_1g_6gb": 1}, "other": {"nvidia_com_mig_2g_12gb": 1}}
    yield Scenario(
        "two-profiles-in-a-pod",
        [mixed],
        [Pod("p", mixed, [0, 2], use_by_device=[constant_use("0.8"), constant_use("0.4")], requests=two_kinds)],
    )
    yield _pods_on_every_device(
        "mig-every-slice", gpu_node("n1", "h200", mig_mixed_geometry("h200", [["1g.18gb"] * 7, *[["3g.71gb"] * 2] * 7]))
    )
    fours = gpu_node("n1", "a100-40", mig_single_geometry("a100-40", "1g.10gb", 4))
    yield _pods_on_every_single_slice("mig-single-double-memory", fours)
    sevens = gpu_node("n1", "b200", mig_single_geometry("b200", "7g.180gb", 1))
    yield _pods_on_every_single_slice("mig-single-whole", sevens)
    for dialect in ("plain", "honor", "old"):
        n = gpu_node("n1", "h100-one", mig_single_geometry("h100-one", "1g.10gb", 7))
        pods = [
            Pod("p", n, [0], constant_use("0.5"), bound_at=10),
            Pod("q", n, [3, 4], constant_use("0.25"), requests=container_request(GPU, 2)),
        ]
        signal = "dcgm_fi_prof_gr_engine_active" if dialect == "old" else "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
        yield Scenario(f"mig-labels-{dialect}", [n], pods, dcgm=Exporter(label_style=dialect, signals={signal: 1}))


def _pods_on_every_single_slice(name: str, on: Node) -> Scenario:
    indices = range(0, len(on.geometries[0].devices), 3)
    return Scenario(name, [on], [Pod(f"p{index}", on, [index], constant_use("0.25")) for index in indices])


def _shared_device_edge_cases() -> Iterator[Scenario]:
    n = gpu_node("n1", "a10g", time_sliced_geometry("a10g", 4))
    # The first GPU is used little, the second nearly fully. On each, only the held replicas count.
    uneven = [
        Pod(
            "both",
            n,
            [0, 1],
            use_by_device=[constant_use("0.1"), constant_use("0.9")],
            requests=container_request(GPU, 2),
        ),
        Pod("first", n, [0], constant_use("0.1")),
    ]
    yield Scenario("sharer-of-two-devices", [n], uneven)
    two_replicas = Pod("half", n, [2, 2], ((-1e6, "0.2"), (30, "0.4")), requests=container_request(GPU, 2))
    yield Scenario(
        "replicas-of-one-device",
        [n],
        [two_replicas, Pod("one", n, [2], constant_use("0.1"), bound_at=15, deleted_at=45)],
    )
    for dialect in ("plain", "honor", "old"):
        signal = "dcgm_fi_prof_gr_engine_active" if dialect == "old" else "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
        exporter = Exporter(label_style=dialect, signals={signal: 1}, shared_device_series="copies+device")
        sharers = [Pod("a", n, [0], constant_use("0.2")), Pod("b", n, [0], constant_use("0.1"), bound_at=20)]
        yield Scenario(f"shared-labels-{dialect}", [n], sharers, dcgm=exporter)
    t4 = gpu_node("n1", "t4", time_sliced_geometry("t4", 10))
    crowd = [Pod(f"p{i}", t4, [0], constant_use("0.09"), bound_at=-60 + 7 * i) for i in range(10)]
    yield Scenario("a-crowd-on-one-gpu", [t4], crowd)
    for labelled in ("first", "flip"):
        coming = [
            Pod("a", t4, [0], constant_use("0.2")),
            Pod("b", t4, [0], constant_use("0.1"), bound_at=20, deleted_at=45),
        ]
        yield Scenario(f"label-of-one-{labelled}", [t4], coming, dcgm=Exporter(shared_device_series=labelled))
    renamed = gpu_node("n1", "t4", time_sliced_geometry("t4", 2, renamed=True))
    # By default dcgm-exporter does not map nvidia.com/gpu.shared, so it only shows the device.
    yield Scenario(
        "renamed-not-mapped",
        [renamed],
        [Pod("p", renamed, [0], constant_use("0.2"), requests=container_request("nvidia_com_gpu_shared"))],
        dcgm=Exporter(maps_pods=False),
    )


def _neuron_edge_cases() -> Iterator[Scenario]:
    for name, kind, devices, cores in (
        ("trn1-small", "trn1.2xlarge", 1, 2),
        ("inf2-small", "inf2.xlarge", 1, 2),
        ("inf1-large", "inf1.24xlarge", 16, 4),
    ):
        n = neuron_node("n1", kind, devices, cores)
        pods = [
            Pod("always", n, [0], constant_use("0.5"), requests=container_request(CORE)),
            Pod(
                "comes",
                n,
                [1],
                constant_use("0.25"),
                requests=container_request(CORE),
                bound_at=20,
                running_at=24,
                deleted_at=50,
            ),
        ]
        yield Scenario(f"neuron-{name}", [n], pods)
    big = neuron_node("n1", "trn1.32xlarge", 16, 2)
    pods = [
        Pod("four-devices", big, range(8), constant_use("0.8"), requests=container_request(DEVICE, 4)),
        Pod(
            "three-cores",
            big,
            [8, 9, 10],
            use_by_device=[constant_use("0.9"), constant_use("0.3"), constant_use("0")],
            requests=container_request(CORE, 3),
        ),
    ]
    yield Scenario("neuron-several", [big], pods)
    gpus = gpu_node("n2", "a10g", whole_gpus_geometry("a10g"))
    with_gpu_pod = [*pods, Pod("gpu", gpus, [0], constant_use("0.5"))]
    yield Scenario("neuron-and-gpus", [big, gpus], with_gpu_pod)
    unmapped = {pod.name: "none" for pod in pods}
    yield Scenario("neuron-not-mapped", [big], pods, neuron_labels=False, utilization_source_by_pod=unmapped)
    yield Scenario("neuron-idle", [big])


def _request_edge_cases() -> Iterator[Scenario]:
    n = gpu_node("n1", "h100", whole_gpus_geometry("h100"))
    pods = [
        Pod("init-only", n, [0], constant_use("0.5"), requests={"main": {}}, init_requests={"prepare": {GPU: 1}}),
        Pod(
            "init-larger",
            n,
            [1, 2],
            constant_use("0.5"),
            requests=container_request(GPU),
            init_requests={"a": {GPU: 2}, "b": {GPU: 1}},
        ),
        Pod("none", n, [], requests={"main": {}}),
        Pod("same", n, [3], constant_use("0.2"), namespace="red"),
        Pod("same", n, [4], constant_use("0.8"), namespace="blue"),
    ]
    yield Scenario("requests", [n], pods)
    brief = [Pod(f"p{i}", n, [i], constant_use("0.5"), bound_at=10 + i / 5, deleted_at=10.5 + i / 5) for i in range(8)]
    yield Scenario("shorter-than-a-scrape", [n], brief)
    yield replace(Scenario("shorter-than-a-scrape-15", [n], brief).with_scraping(interval_seconds=15), hours=(0,))


def _estimated_utilization_scenarios() -> Iterator[Scenario]:
    """Utilization sources `node` and `cluster`: means over unmapped devices, here all equally busy."""
    n1, n2 = gpu_node("n1", "a10g", whole_gpus_geometry("a10g")), gpu_node("n2", "a10g", whole_gpus_geometry("a10g"))
    pods = [Pod(f"p{i}", n1, [i], constant_use("0.5")) for i in range(4)]
    unmapped = Exporter(maps_pods=False)
    by_node = {pod.name: "node" for pod in pods}
    settings = "utilization: {sources: [pod, shared, node, cluster]}\n"
    yield Scenario("node-average", [n1], pods, dcgm=unmapped, settings=settings, utilization_source_by_pod=by_node)
    all_pods = [*pods, *(Pod(f"q{i}", n2, [i], constant_use("0.5")) for i in range(4))]
    yield Scenario(
        "averages-not-allowed",
        [n1, n2],
        all_pods,
        dcgm=unmapped,
        utilization_source_by_pod={pod.name: "none" for pod in all_pods},
    )


def _parts_of_a_gpu_scenarios() -> Iterator[Scenario]:
    """Instances with a part of an L4. Four with a quarter have as much as one GPU."""
    quarters = [gpu_node(f"q{number}", "l4-quarter", whole_gpus_geometry("l4-quarter")) for number in range(4)]
    others = [gpu_node(model, model, whole_gpus_geometry(model)) for model in ("l4-eighth", "l4-half", "l4")]
    pods = [Pod(f"p{number}", node, [0], constant_use("0.5")) for number, node in enumerate([*quarters[:3], *others])]
    yield Scenario("parts-of-a-gpu", [*quarters, *others], pods)
    yield Scenario(
        "four-quarters-of-a-gpu", quarters, [Pod(f"p{node.name}", node, [0], constant_use("0.6")) for node in quarters]
    )
