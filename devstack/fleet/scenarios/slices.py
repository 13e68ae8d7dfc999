"""Edge cases of slices and replicas: oversized MIG layouts, several profiles in a pod, sharers of several devices."""

from collections.abc import Iterator
from dataclasses import replace

from devstack.fleet.builders import mig_mixed, mig_single, neuron, node, time_sliced, whole
from devstack.fleet.hardware import resource_of
from devstack.fleet.scenario import GPU, Exporter, Node, Pod, Scenario
from devstack.fleet.scenarios.sharing import flat, request

CORE, DEVICE = "aws_amazon_com_neuroncore", "aws_amazon_com_neuron"
OVERSIZED = ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]
"""Dominant shares of 15/14."""


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _above_a_gpu()
    yield from _mig()
    yield from _shared()
    yield from _neuron()
    yield from _requests()
    yield from _estimated()


def _above_a_gpu() -> Iterator[Scenario]:
    """If the slices of one GPU add up to more than the GPU, only these are scaled down."""
    among_whole_gpus = node("n1", "a100-40", mig_mixed("a100-40", [OVERSIZED, *[[]] * 7]))
    yield _filled("oversized-layout-and-whole-gpus", among_whole_gpus)
    among_slices = node("n1", "a100-40", mig_mixed("a100-40", [OVERSIZED, *[["2g.10gb"] * 3] * 7]))
    yield _filled("oversized-layout-and-others", among_slices)
    # Without an exporter nothing shows the layout of each GPU. Here all are alike, so the node's capacity shows it.
    without_exporter = _filled("oversized-without-dcgm", node("n1", "a100-40", mig_mixed("a100-40", [OVERSIZED] * 8)))
    yield replace(without_exporter, dcgm=None, utilization_sources={pod.name: "none" for pod in without_exporter.pods})


def _filled(name: str, on: Node) -> Scenario:
    """A pod on every device of a node."""
    pods = []
    for index, device in enumerate(on.geometries[0].devices):
        requests = request(resource_of(device.profile) if device.profile else GPU)
        pods.append(Pod(f"p{index}", on, [index], flat("0.25"), requests=requests))
    return Scenario(name, [on], pods)


def _mig() -> Iterator[Scenario]:
    mixed = node("n1", "a30", mig_mixed("a30", [["1g.6gb", "1g.6gb", "2g.12gb"], ["4g.24gb"]]))
    two_kinds = {"main": {"nvidia_com_mig_1g_6gb": 1}, "other": {"nvidia_com_mig_2g_12gb": 1}}
    yield Scenario(
        "two-profiles-in-a-pod",
        [mixed],
        [Pod("p", mixed, [0, 2], uses=[flat("0.8"), flat("0.4")], requests=two_kinds)],
    )
    yield _filled("mig-every-slice", node("n1", "h200", mig_mixed("h200", [["1g.18gb"] * 7, *[["3g.71gb"] * 2] * 7])))
    fours = node("n1", "a100-40", mig_single("a100-40", "1g.10gb", 4))
    yield _filled_single("mig-single-double-memory", fours)
    sevens = node("n1", "b200", mig_single("b200", "7g.180gb", 1))
    yield _filled_single("mig-single-whole", sevens)
    for dialect in ("plain", "honor", "old"):
        n = node("n1", "h100-one", mig_single("h100-one", "1g.10gb", 7))
        pods = [Pod("p", n, [0], flat("0.5"), start=10), Pod("q", n, [3, 4], flat("0.25"), requests=request(GPU, 2))]
        signal = "dcgm_fi_prof_gr_engine_active" if dialect == "old" else "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
        yield Scenario(f"mig-labels-{dialect}", [n], pods, dcgm=Exporter(dialect=dialect, signals={signal: 1}))


def _filled_single(name: str, on: Node) -> Scenario:
    indices = range(0, len(on.geometries[0].devices), 3)
    return Scenario(name, [on], [Pod(f"p{index}", on, [index], flat("0.25")) for index in indices])


def _shared() -> Iterator[Scenario]:
    n = node("n1", "a10g", time_sliced("a10g", 4))
    # The first GPU is used little, the second nearly fully. On each, only the held replicas count.
    uneven = [
        Pod("both", n, [0, 1], uses=[flat("0.1"), flat("0.9")], requests=request(GPU, 2)),
        Pod("first", n, [0], flat("0.1")),
    ]
    yield Scenario("sharer-of-two-devices", [n], uneven)
    two_replicas = Pod("half", n, [2, 2], ((-1e6, "0.2"), (30, "0.4")), requests=request(GPU, 2))
    yield Scenario("replicas-of-one-device", [n], [two_replicas, Pod("one", n, [2], flat("0.1"), start=15, deleted=45)])
    for dialect in ("plain", "honor", "old"):
        signal = "dcgm_fi_prof_gr_engine_active" if dialect == "old" else "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
        exporter = Exporter(dialect=dialect, signals={signal: 1}, sharers="copies+device")
        sharers = [Pod("a", n, [0], flat("0.2")), Pod("b", n, [0], flat("0.1"), start=20)]
        yield Scenario(f"shared-labels-{dialect}", [n], sharers, dcgm=exporter)
    t4 = node("n1", "t4", time_sliced("t4", 10))
    crowd = [Pod(f"p{i}", t4, [0], flat("0.09"), start=-60 + 7 * i) for i in range(10)]
    yield Scenario("a-crowd-on-one-gpu", [t4], crowd)
    for labelled in ("first", "flip"):
        coming = [Pod("a", t4, [0], flat("0.2")), Pod("b", t4, [0], flat("0.1"), start=20, deleted=45)]
        yield Scenario(f"label-of-one-{labelled}", [t4], coming, dcgm=Exporter(sharers=labelled))
    renamed = node("n1", "t4", time_sliced("t4", 2, renamed=True))
    # By default dcgm-exporter does not map nvidia.com/gpu.shared, so it only shows the device.
    yield Scenario(
        "renamed-not-mapped",
        [renamed],
        [Pod("p", renamed, [0], flat("0.2"), requests=request("nvidia_com_gpu_shared"))],
        dcgm=Exporter(mapping=False),
    )


def _neuron() -> Iterator[Scenario]:
    for name, kind, devices, cores in (
        ("trn1-small", "trn1.2xlarge", 1, 2),
        ("inf2-small", "inf2.xlarge", 1, 2),
        ("inf1-large", "inf1.24xlarge", 16, 4),
    ):
        n = neuron("n1", kind, devices, cores)
        pods = [
            Pod("always", n, [0], flat("0.5"), requests=request(CORE)),
            Pod("comes", n, [1], flat("0.25"), requests=request(CORE), start=20, running=24, deleted=50),
        ]
        yield Scenario(f"neuron-{name}", [n], pods)
    big = neuron("n1", "trn1.32xlarge", 16, 2)
    pods = [
        Pod("four-devices", big, range(8), flat("0.8"), requests=request(DEVICE, 4)),
        Pod("three-cores", big, [8, 9, 10], uses=[flat("0.9"), flat("0.3"), flat("0")], requests=request(CORE, 3)),
    ]
    yield Scenario("neuron-several", [big], pods)
    gpus = node("n2", "a10g", whole("a10g"))
    with_gpu_pod = [*pods, Pod("gpu", gpus, [0], flat("0.5"))]
    yield Scenario("neuron-and-gpus", [big, gpus], with_gpu_pod)
    unmapped = {pod.name: "none" for pod in pods}
    yield Scenario("neuron-not-mapped", [big], pods, neuron_labels=False, utilization_sources=unmapped)
    yield Scenario("neuron-idle", [big])


def _requests() -> Iterator[Scenario]:
    n = node("n1", "h100", whole("h100"))
    pods = [
        Pod("init-only", n, [0], flat("0.5"), requests={"main": {}}, init={"prepare": {GPU: 1}}),
        Pod("init-larger", n, [1, 2], flat("0.5"), requests=request(GPU), init={"a": {GPU: 2}, "b": {GPU: 1}}),
        Pod("none", n, [], requests={"main": {}}),
        Pod("same", n, [3], flat("0.2"), namespace="red"),
        Pod("same", n, [4], flat("0.8"), namespace="blue"),
    ]
    yield Scenario("requests", [n], pods)
    brief = [Pod(f"p{i}", n, [i], flat("0.5"), start=10 + i / 5, deleted=10.5 + i / 5) for i in range(8)]
    yield Scenario("shorter-than-a-scrape", [n], brief)
    yield replace(Scenario("shorter-than-a-scrape-15", [n], brief).with_scraping(interval_seconds=15), hours=(0,))


def _estimated() -> Iterator[Scenario]:
    """Utilization sources `node` and `cluster`: means over unmapped devices, here all equally busy."""
    n1, n2 = node("n1", "a10g", whole("a10g")), node("n2", "a10g", whole("a10g"))
    pods = [Pod(f"p{i}", n1, [i], flat("0.5")) for i in range(4)]
    unmapped = Exporter(mapping=False)
    by_node = {pod.name: "node" for pod in pods}
    settings = "utilization: {sources: [pod, shared, node, cluster]}\n"
    yield Scenario("node-average", [n1], pods, dcgm=unmapped, settings=settings, utilization_sources=by_node)
    all_pods = [*pods, *(Pod(f"q{i}", n2, [i], flat("0.5")) for i in range(4))]
    yield Scenario(
        "averages-not-allowed",
        [n1, n2],
        all_pods,
        dcgm=unmapped,
        utilization_sources={pod.name: "none" for pod in all_pods},
    )
