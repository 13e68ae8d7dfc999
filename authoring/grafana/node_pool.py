"""A node pool: its GPUs and devices, and what Karpenter does with its nodes, in the names of all its versions."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders.dashboard import Dashboard

from authoring.grafana.building import (
    ESTIMATE,
    GPUS,
    IN_CLUSTER,
    PART,
    USD,
    Panel,
    choice,
    live_variables,
    new,
    number,
    of_parts,
    over_time,
    query,
    rows_of,
    wide,
    with_panels,
)
from authoring.grafana.live import Level, course

_OWN = f'{IN_CLUSTER},node_pool=~"$pool"'
_POOL = Level("node_pool", _OWN)
_NODES = f"on (cluster, node) group_left (node_pool) node:gpucost_info{{{_OWN}}}"
_GPU_TYPES = 'resource_type=~"nvidia.com/.*|aws.amazon.com/neuron.*"'
_KARPENTER = f'{IN_CLUSTER},nodepool=~"$pool"'
_DEVICE = "{{Hostname}}{{hostname}} {{gpu}} {{GPU_I_PROFILE}}"


def dashboard() -> Dashboard:
    """For SREs."""
    pools = f"label_values(node_pool:gpucost_capacity_gpus:sum{{{IN_CLUSTER}}}, node_pool)"
    return with_panels(
        new("GPU node pool", "gpucost-node-pool", "What a node pool's GPUs do, live."),
        [*live_variables(), choice("pool", "Node pool", pools)],
        [
            ("Now", _now()),
            ("GPUs", _gpus()),
            ("Devices", _devices()),
            ("Karpenter", _karpenter()),
            ("Quotas", _quotas()),
            ("Neuron", _neuron()),
        ],
    )


def _now() -> Sequence[Panel]:
    capacity, allocated = _POOL.sum("capacity_gpus:sum"), _POOL.sum("allocated_gpus:sum")
    figures = [
        number("GPUs", GPUS, capacity),
        number("Allocated", PART, f"{allocated} / {capacity}"),
        number("Unallocated per hour", USD, f"{_POOL.part('unallocated')} * $usd", ESTIMATE),
        number("Nodes", GPUS, f"count(node:gpucost_info{{{_OWN}}})"),
    ]
    return [wide(panel, 6, 5) for panel in figures]


def _gpus() -> Sequence[Panel]:
    by = "cluster, node_pool, node"
    nodes = [
        ("GPUs", f"sum by ({by}) (node:gpucost_capacity_gpus{{{IN_CLUSTER}}} * {_NODES})", GPUS),
        ("Allocated", f"sum by ({by}) (pod:gpucost_allocated_gpus{{{_OWN}}})", GPUS),
        ("Unallocated", f"sum by ({by}) (node:gpucost_unallocated_gpus{{{IN_CLUSTER}}} * {_NODES})", GPUS),
        ("Stranded", f"sum by ({by}) (node:gpucost_stranded_gpus{{{IN_CLUSTER}}} * {_NODES})", GPUS),
    ]
    use = f"max by (cluster, node, UUID, GPU_I_ID) (device:gpucost_use:ratio{{{IN_CLUSTER}}})"
    return [
        wide(
            of_parts(
                "Every GPU of the pool", _POOL.sum("gpus:sum", "part"), "The stack's height is how many there are."
            ),
            24,
            9,
        ),
        wide(rows_of("By node", "Physical GPUs.", nodes, ["cluster", "node_pool", "node"]), 12, 10),
        course(
            "Use of each device",
            PART,
            f"{use} * {_NODES}",
            "{{node}} {{UUID}} {{GPU_I_ID}}",
            "GPUs and MIG devices, held or not.",
            height=10,
            most=1,
        ),
    ]


def _devices() -> Sequence[Panel]:
    """As exporters up to 4.8 name them; by node only where the scrape or the exporter labels the node."""

    def own(name: str) -> str:
        return f"{name}{{{IN_CLUSTER}}}"

    used, free = own("DCGM_FI_DEV_FB_USED"), own("DCGM_FI_DEV_FB_FREE")
    return [
        course("Memory in use", PART, f"{used} / ({used} + {free})", _DEVICE, width=8, most=1),
        course("Power", "watt", f"max by (cluster, UUID) ({own('DCGM_FI_DEV_POWER_USAGE')})", width=8),
        course("Temperature", "celsius", own("DCGM_FI_DEV_GPU_TEMP"), _DEVICE, width=8),
        course("Tensor pipe", PART, own("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), _DEVICE, width=8),
        course("Memory interface", PART, own("DCGM_FI_PROF_DRAM_ACTIVE"), _DEVICE, width=8),
        course(
            "Last XID error",
            "none",
            own("DCGM_FI_DEV_XID_ERRORS"),
            _DEVICE,
            "0: none. The number's meaning is in NVIDIA's list of XID errors.",
            width=8,
        ),
    ]


def _karpenter() -> Sequence[Panel]:
    """Plural names since 1.0, singular from 0.32 on, `provisioner` before; its labels call a pool `nodepool`."""
    provisioner = f'{IN_CLUSTER},provisioner=~"$pool"'

    def of_pools(what: str) -> str:
        return (
            f"sum by (cluster, nodepool) (karpenter_nodepools_{what}{{{_KARPENTER},{_GPU_TYPES}}} or "
            f"karpenter_nodepool_{what}{{{_KARPENTER},{_GPU_TYPES}}} or "
            f'label_replace(karpenter_provisioner_{what}{{{provisioner},{_GPU_TYPES}}}, "nodepool", "$1", '
            '"provisioner", "(.*)"))'
        )

    def events(what: str, *labels: str) -> str:
        by = ", ".join(("cluster", *labels))
        return f"sum by ({by}) (increase({what}{{{IN_CLUSTER}}}[$__rate_interval]))"

    limits = over_time("GPUs against the pool's limit", GPUS, "As Karpenter counts them: what nodes advertise.")
    failed = over_time("Nodes that could not be made", GPUS, "By what the cloud provider answered.")
    nodes = over_time("Nodes made, disrupted, ended", GPUS)
    pending = over_time("What holds Karpenter up", GPUS, "Pods that fit no pool; disruptions that budgets allow.")
    return [
        wide(
            limits.with_target(query(of_pools("usage"), "{{nodepool}}")).with_target(
                query(of_pools("limit"), "{{nodepool}} limit").ref_id("B")
            ),
            12,
        ),
        wide(
            nodes.with_target(
                query(events("karpenter_nodeclaims_created_total", "nodepool", "reason"), "made {{reason}}")
            )
            .with_target(
                query(
                    events("karpenter_nodeclaims_disrupted_total", "nodepool", "reason"), "disrupted {{reason}}"
                ).ref_id("B")
            )
            .with_target(query(events("karpenter_nodeclaims_terminated_total", "nodepool"), "ended").ref_id("C")),
            12,
        ),
        wide(
            failed.with_target(
                query(events("karpenter_cloudprovider_errors_total", "error"), "error {{error}}")
            ).with_target(
                query(
                    events("karpenter_cloudprovider_instance_launch_failures_total", "reason"), "launch {{reason}}"
                ).ref_id("B")
            ),
            12,
        ),
        wide(
            pending.with_target(
                query(
                    f"sum by (cluster) (karpenter_scheduler_unschedulable_pods_count{{{IN_CLUSTER}}})", "waiting pods"
                )
            )
            .with_target(
                query(
                    f"sum by (cluster, nodepool) (karpenter_nodepools_allowed_disruptions{{{_KARPENTER}}})",
                    "{{nodepool}} allowed disruptions",
                ).ref_id("B")
            )
            .with_target(
                query(
                    f"sum by (cluster) (karpenter_voluntary_disruption_eligible_nodes{{{IN_CLUSTER}}})",
                    "eligible nodes",
                ).ref_id("C")
            ),
            12,
        ),
    ]


def _quotas() -> Sequence[Panel]:
    resources = 'resource=~"requests.(nvidia.com/.+|aws.amazon.com/neuron.*)"'
    hard = f'max by (cluster, namespace, resource) (kube_resourcequota{{{IN_CLUSTER},{resources},type="hard"}})'
    used = f'max by (cluster, namespace, resource) (kube_resourcequota{{{IN_CLUSTER},{resources},type="used"}})'
    return [
        course(
            "GPU quotas in use",
            PART,
            f"{used} / ({hard} > 0)",
            "{{namespace}} {{resource}}",
            "Requested, of what the namespace may request.",
            width=24,
        )
    ]


def _neuron() -> Sequence[Panel]:
    cores = f"neuroncore_utilization_ratio{{{IN_CLUSTER}}}"
    memory = f"sum by (cluster, instance) (neuron_runtime_memory_used_bytes{{{IN_CLUSTER}}})"
    errors = f"sum by (cluster, error_type) (increase(execution_errors_total{{{IN_CLUSTER}}}[$__rate_interval]))"
    return [
        course("Use of NeuronCores", PART, cores, "{{instance}} {{neuroncore}}", width=8),
        course("Memory of runtimes", "bytes", memory, "{{instance}}", width=8),
        course("Execution errors", GPUS, errors, "{{error_type}}", width=8),
    ]
