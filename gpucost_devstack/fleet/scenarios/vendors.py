"""Accelerators of AMD and Intel: whole and partitioned, in mixed clusters, without an exporter."""

from collections.abc import Iterator
from dataclasses import replace

from gpucost_devstack.fleet.builders import amd_node, gpu_node, neuron_node, whole_device_node, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import AcceleratorExporter, Pod, Scenario
from gpucost_devstack.fleet.scenarios.sharing import constant_use, container_request

AMD_GPU, GAUDI, INTEL_GPU = "amd_com_gpu", "habana_ai_gaudi", "gpu_intel_com_xe"


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    yield from _amd_whole_gpu_scenarios()
    yield from _amd_partition_scenarios()
    yield from _gaudi_scenarios()
    yield from _intel_gpu_scenarios()
    yield from _mixed_cluster_scenarios()


def _amd_whole_gpu_scenarios() -> Iterator[Scenario]:
    node = amd_node("n1", 8)
    pods = [
        Pod("one", node, [0], constant_use("0.75"), requests=container_request(AMD_GPU)),
        Pod(
            "two",
            node,
            [1, 2],
            use_by_device=[constant_use("0.9"), constant_use("0.1")],
            requests=container_request(AMD_GPU, 2),
        ),
        Pod(
            "comes",
            node,
            [3],
            ((-1e6, "0.2"), (40, "0.6")),
            requests=container_request(AMD_GPU),
            bound_at=20,
            running_at=24,
            deleted_at=50,
        ),
    ]
    whole = Scenario("amd-whole", [node], pods)
    yield whole
    yield replace(whole, name="amd-honor-labels", accelerators=AcceleratorExporter(label_style="honor"))
    yield replace(whole, name="amd-prefix", accelerators=AcceleratorExporter(prefix="amd_"))
    yield replace(whole, name="amd-virtual-machine", accelerators=AcceleratorExporter(has_serial_numbers=False))
    yield replace(whole, name="amd-exporter-gap", accelerators=AcceleratorExporter(gaps=[(30, 42)]))
    yield replace(whole, name="amd-without-exporter", accelerators=None)
    on_ec2 = amd_node("n1", 4, instance_type="g4ad.16xlarge")
    yield Scenario(
        "amd-g4ad", [on_ec2], [Pod("p", on_ec2, [0], constant_use("0.5"), requests=container_request(AMD_GPU))]
    )
    unhealthy = amd_node("n1", 8, allocatable={AMD_GPU: 7})
    yield Scenario(
        "amd-unhealthy",
        [unhealthy],
        [Pod("p", unhealthy, [0], constant_use("0.5"), requests=container_request(AMD_GPU))],
    )
    yield Scenario("amd-idle", [node])


def _amd_partition_scenarios() -> Iterator[Scenario]:
    for naming in ("single", "mixed"):
        for mode, parts in (("cpx_nps4", 8), ("qpx_nps4", 4), ("dpx_nps1", 2)):
            node = amd_node("n1", 8, [mode] * 8, naming=naming)
            resource = AMD_GPU if naming == "single" else f"amd_com_{mode}"
            pods = [
                Pod("always", node, [0], constant_use("0.5"), requests=container_request(resource)),
                Pod("neighbor", node, [1], constant_use("0.9"), requests=container_request(resource), bound_at=12),
                Pod(
                    "several",
                    node,
                    range(parts, 2 * parts),
                    constant_use("0.25"),
                    requests=container_request(resource, parts),
                ),
            ]
            yield Scenario(f"amd-{mode.partition('_')[0]}-{naming}", [node], pods)
    node = amd_node("n1", 8, ["spx_nps1"] * 5 + ["cpx_nps1"] * 3, naming="mixed")
    pods = [
        Pod("whole", node, [1], constant_use("0.75"), requests=container_request("amd_com_spx_nps1")),
        Pod("part", node, [6], constant_use("0.5"), requests=container_request("amd_com_cpx_nps1")),
        Pod("parts", node, [13, 14], constant_use("0.2"), requests=container_request("amd_com_cpx_nps1", 2)),
    ]
    yield Scenario("amd-whole-and-partitions", [node], pods)
    cpx = amd_node(
        "n1", 8, ["cpx_nps4"] * 8, naming="mixed", labels={"amd_com_gpu_product_name": "AMD_Instinct_MI300X"}
    )
    unmeasured = [Pod("p", cpx, [0], constant_use("0.5"), requests=container_request("amd_com_cpx_nps4"))]
    yield Scenario("amd-cpx-without-exporter", [cpx], unmeasured, accelerators=None)
    labels = {"amd_com_gpu_product_name": "AMD_Instinct_MI300X", "amd_com_compute_memory_partition": "cpx_nps4"}
    labeled = amd_node("n1", 8, ["cpx_nps4"] * 8, labels=labels)
    unmeasured = [Pod("p", labeled, [0], constant_use("0.5"), requests=container_request(AMD_GPU))]
    yield Scenario("amd-cpx-labeled", [labeled], unmeasured, accelerators=None)


def _gaudi_scenarios() -> Iterator[Scenario]:
    node = whole_device_node("n1", "gaudi", GAUDI, 8, instance_type="dl1.24xlarge")
    pods = [
        Pod("one", node, [0], constant_use("0.75"), requests=container_request(GAUDI)),
        Pod("four", node, range(4, 8), constant_use("0.5"), requests=container_request(GAUDI, 4), bound_at=-30),
        Pod("comes", node, [1], constant_use("0.25"), requests=container_request(GAUDI), bound_at=20, deleted_at=50),
    ]
    gaudi = Scenario("gaudi", [node], pods)
    yield gaudi
    yield replace(gaudi, name="gaudi-honor-labels", accelerators=AcceleratorExporter(label_style="honor"))
    yield replace(gaudi, name="gaudi-without-exporter", accelerators=None)


def _intel_gpu_scenarios() -> Iterator[Scenario]:
    """xpumd names no pods: only a pod that holds all GPUs of a node is measured."""
    shared, whole = (whole_device_node(name, "intel", INTEL_GPU, 2) for name in ("n1", "n2"))
    pods = [
        Pod("one-of-two", shared, [0], constant_use("0.75"), requests=container_request(INTEL_GPU)),
        Pod("all", whole, [0, 1], constant_use("0.5"), requests=container_request(INTEL_GPU, 2)),
    ]
    yield Scenario("intel-gpu", [shared, whole], pods, utilization_source_by_pod={"one-of-two": "none"})


def _mixed_cluster_scenarios() -> Iterator[Scenario]:
    nvidia, amd = gpu_node("n1", "a10g", whole_gpus_geometry("a10g")), amd_node("n2", 8)
    neuron = neuron_node("n3", "inf2.48xlarge", 12, 2)
    gaudi = whole_device_node("n4", "gaudi", GAUDI, 8, instance_type="dl1.24xlarge")
    pods = [
        Pod("nvidia", nvidia, [0], constant_use("0.75")),
        Pod("amd", amd, [5], constant_use("0.5"), requests=container_request(AMD_GPU)),
        Pod("neuron", neuron, [3], constant_use("0.25"), requests=container_request("aws_amazon_com_neuroncore")),
        Pod("gaudi", gaudi, [2], constant_use("0.6"), requests=container_request(GAUDI)),
    ]
    mixed = Scenario("mixed-vendors", [nvidia, amd, neuron, gaudi], pods)
    yield mixed
    yield replace(mixed, name="mixed-vendors-exporter-missing", accelerators=None)
