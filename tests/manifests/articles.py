"""The workloads of the four articles as one simulated cluster: each has its own nodes and namespaces.

1. the proof of concept: three units hold 3, 2 and 2 slices of A100s
2. spot from zero: `cuda-vector-add` on nodes that exist only with their pods; one is interrupted within the hour
3. Karpenter: inference on spot, training on-demand, a server that pulls its image, Neuron
4. scheduling: a slice of 3g.20gb among others, a time-sliced notebook, training that ends within the hour
"""

from gpucost_devstack.fleet.builders import (
    gpu_node,
    mig_mixed_geometry,
    mig_single_geometry,
    neuron_node,
    time_sliced_geometry,
    whole_gpus_geometry,
)
from gpucost_devstack.fleet.scenario import GPU, Exporter, Interval, KubeStateMetrics, Node, Pod, Scenario, Use

NAME = "articles"
MEAN_SIGNAL = "0.04521998214285714"
"""Mean utilization that gives the published effective cost of $0.0023256, multiplied by 100."""
ARTICLES = {
    "gpu-cost-attribution-poc": ("bu-a", "bu-b", "bu-c"),
    "eks-gpu-cluster-spot": ("vector",),
    "karpenter-gpu-nodes": ("ml-serving", "ml-training", "inferentia"),
    "k8s-gpu-scheduling": ("team-a-ai", "notebooks", "night"),
}
"""Namespaces by article."""


def scenario() -> Scenario:
    """Return one hour of the articles' cluster, with the time around it."""
    nodes: list[Node] = []
    pods: list[Pod] = []
    for build in (_proof_of_concept, _spot, _karpenter, _scheduling):
        some_nodes, some_pods = build()
        nodes += some_nodes
        pods += some_pods
    # Labels as exporters expose them; the scrape changes them later.
    plain = Exporter(label_style="plain", signals={"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1, "DCGM_FI_DEV_GPU_UTIL": 100})
    return Scenario(NAME, nodes, pods, ksm=(KubeStateMetrics(pod_times=True),), dcgm=plain, start=-65, end=65)


def _labels(pool: str, capacity_type: str = "on-demand") -> dict[str, str]:
    return {
        "topology_kubernetes_io_zone": "us-east-1a",
        "karpenter_sh_nodepool": pool,
        "karpenter_sh_capacity_type": capacity_type,
    }


def _constant(use: str) -> Use:
    return ((-1e6, use),)


def _owners(kind: str, name: str) -> tuple[tuple[str, str], ...]:
    return {"Deployment": (("ReplicaSet", f"{name}-5d8c"), ("Deployment", name)), "Job": (("Job", name),)}[kind]


def _proof_of_concept() -> tuple[list[Node], list[Pod]]:
    n = gpu_node("poc-1", "a100-40", mig_single_geometry("a100-40", "1g.5gb", 7), labels=_labels("poc"))
    namespaces = [namespace for namespace, slices in (("bu-a", 3), ("bu-b", 2), ("bu-c", 2)) for _ in range(slices)]
    return [n], [
        Pod(
            f"slices-5d8c-{i}",
            n,
            [i],
            _constant(MEAN_SIGNAL),
            namespace=namespace,
            owners=_owners("Deployment", "slices"),
        )
        for i, namespace in enumerate(namespaces)
    ]


def _spot() -> tuple[list[Node], list[Pod]]:
    lifetimes: tuple[Interval, ...] = ((5, 65), (7, 40), (10, 65))
    nodes = [
        gpu_node(
            f"spot-{i}",
            "t4",
            whole_gpus_geometry("t4", lifetime),
            lifetime=lifetime,
            labels=_labels("gpu-spot", "spot"),
        )
        for i, lifetime in enumerate(lifetimes)
    ]
    return nodes, [
        Pod(
            f"cuda-vector-add-5d8c-{i}",
            n,
            [0],
            _constant("0.35"),
            namespace="vector",
            bound_at=n.lifetime[0] + 2,
            running_at=n.lifetime[0] + 4,
            deleted_at=n.lifetime[1] + 3,
            owners=_owners("Deployment", "cuda-vector-add"),
        )
        for i, n in enumerate(nodes)
    ]


def _karpenter() -> tuple[list[Node], list[Pod]]:
    serving = gpu_node("inference-1", "a10g", whole_gpus_geometry("a10g"), labels=_labels("gpu-inference", "spot"))
    training = gpu_node("training-1", "h100", whole_gpus_geometry("h100"), labels=_labels("gpu-training"))
    inf2 = neuron_node("neuron-1", "inf2.24xlarge", 6, 2, labels=_labels("neuron"))
    pods = [
        Pod(
            f"llm-inference-5d8c-{i}",
            serving,
            [i],
            _constant("0.7"),
            namespace="ml-serving",
            bound_at=12 if i == 2 else -1e6,
            running_at=21 if i == 2 else None,
            owners=_owners("Deployment", "llm-inference"),
        )
        for i in range(3)
    ]
    pods.append(
        Pod(
            "distributed-training-0",
            training,
            list(range(8)),
            _constant("0.85"),
            namespace="ml-training",
            requests={"trainer": {GPU: 8}},
            owners=_owners("Job", "distributed-training"),
        )
    )
    pods.append(Pod("llm-inference-5d8c-waiting", None, namespace="ml-serving", bound_at=-20))  # no node: holds nothing
    pods.append(
        Pod(
            "embedder",
            inf2,
            [0, 1],
            _constant("0.5"),
            namespace="inferentia",
            requests={"main": {"aws_amazon_com_neuron": 1}},
        )
    )
    return [serving, training, inf2], pods


def _scheduling() -> tuple[list[Node], list[Pod]]:
    layouts = [["2g.10gb", "2g.10gb", "3g.20gb"]] + [[]] * 7
    mixed = gpu_node("mixed-1", "a100-40", mig_mixed_geometry("a100-40", layouts), labels=_labels("gpu-general"))
    shared = gpu_node("shared-1", "t4", time_sliced_geometry("t4", 4), labels=_labels("gpu-general"))
    pods = [
        Pod(
            "mig-job",
            mixed,
            [2],
            _constant("0.6"),
            namespace="team-a-ai",
            requests={"training": {"nvidia_com_mig_3g_20gb": 1}},
        ),
        Pod(
            "night-training-1",
            mixed,
            [3, 4, 5, 6],
            _constant("0.9"),
            namespace="night",
            finished_at=25,
            deleted_at=60,
            requests={"training": {GPU: 4}},
            owners=(("Job", "night-training-1"), ("CronJob", "night-training")),
        ),
        *(Pod(f"notebook-{i}", shared, [0], _constant("0.1"), namespace="notebooks") for i in range(2)),
    ]
    return [mixed, shared], pods
