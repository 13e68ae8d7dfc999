"""The dashboard of a node pool: its GPUs and devices, and Karpenter's metrics in the names of all its versions."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders.dashboard import Dashboard

from authoring.grafana.building import (
    ESTIMATE,
    GPUS,
    IN_CLUSTER,
    RATIO,
    USD,
    Panel,
    cost_parts_panel,
    empty_dashboard,
    label_variable,
    live_variables,
    promql_query,
    stat_panel,
    table_panel,
    time_series_panel,
    with_panels,
    with_size,
)
from authoring.grafana.live import Level, query_panel
from gpucost.core.metering.signals import SUCCESSORS
from gpucost.sources.prometheus.node_pool_limits import KUBERNETES_GPU_RESOURCES

_IN_POOL = f'{IN_CLUSTER},node_pool=~"$pool"'
_POOL = Level("node_pool", _IN_POOL)
_NODES = f"on (cluster, node) group_left (node_pool) node:gpucost_info{{{_IN_POOL}}}"
_GPU_TYPES = f'resource_type=~"{KUBERNETES_GPU_RESOURCES}"'
_KARPENTER = f'{IN_CLUSTER},nodepool=~"$pool"'
_DEVICE = "{{Hostname}}{{hostname}} {{gpu}} {{GPU_I_PROFILE}}"


def dashboard() -> Dashboard:
    """Build the dashboard of one node pool, for SREs."""
    pools = f"label_values(node_pool:gpucost_capacity_gpus:sum{{{IN_CLUSTER}}}, node_pool)"
    return with_panels(
        empty_dashboard("GPU node pool", "gpucost-node-pool", "GPUs of a node pool, live."),
        [*live_variables(), label_variable("pool", "Node pool", pools)],
        [
            ("Now", _current_state_panels()),
            ("GPUs", _gpus()),
            ("Devices", _devices()),
            ("Karpenter", _karpenter()),
            ("Quotas", _quotas()),
            ("Neuron", _neuron()),
        ],
    )


def _current_state_panels() -> Sequence[Panel]:
    capacity, allocated = _POOL.sum("capacity_gpus:sum"), _POOL.sum("allocated_gpus:sum")
    figures = [
        stat_panel("GPUs", GPUS, capacity),
        stat_panel("Allocated", RATIO, f"{allocated} / {capacity}"),
        stat_panel("Unallocated per hour", USD, f"{_POOL.part('unallocated')} * $usd", ESTIMATE),
        stat_panel("Nodes", GPUS, f"count(node:gpucost_info{{{_IN_POOL}}})"),
    ]
    return [with_size(panel, 6, 5) for panel in figures]


def _gpus() -> Sequence[Panel]:
    by = "cluster, node_pool, node"
    nodes = [
        ("GPUs", f"sum by ({by}) (node:gpucost_capacity_gpus{{{IN_CLUSTER}}} * {_NODES})", GPUS),
        ("Allocated", f"sum by ({by}) (pod:gpucost_allocated_gpus{{{_IN_POOL}}})", GPUS),
        ("Unallocated", f"sum by ({by}) (node:gpucost_unallocated_gpus{{{IN_CLUSTER}}} * {_NODES})", GPUS),
        ("Stranded", f"sum by ({by}) (node:gpucost_stranded_gpus{{{IN_CLUSTER}}} * {_NODES})", GPUS),
    ]
    use = f"max by (cluster, node, UUID, GPU_I_ID) (device:gpucost_use:ratio{{{IN_CLUSTER}}})"
    return [
        with_size(
            cost_parts_panel(
                "GPUs by part", _POOL.sum("gpus:sum", "part"), "The height of the stack is the number of GPUs."
            ),
            24,
            9,
        ),
        with_size(table_panel("By node", "Physical GPUs.", nodes, ["cluster", "node_pool", "node"]), 12, 10),
        query_panel(
            "Utilization of each device",
            RATIO,
            f"{use} * {_NODES}",
            "{{node}} {{UUID}} {{GPU_I_ID}}",
            "GPUs and MIG devices, allocated or not.",
            height=10,
            maximum=1,
        ),
    ]


def _devices() -> Sequence[Panel]:
    """Build panels with the metric names of dcgm-exporter up to 4.8 and later; not every exporter labels the node."""

    def metric(name: str) -> str:
        return " or ".join(f"{version}{{{IN_CLUSTER}}}" for version in (name, SUCCESSORS[name]))

    names = [("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE")]
    names += [(SUCCESSORS[used], SUCCESSORS[free]) for used, free in names]
    memory = " or ".join(
        f"{used}{{{IN_CLUSTER}}} / ({used}{{{IN_CLUSTER}}} + {free}{{{IN_CLUSTER}}})" for used, free in names
    )
    return [
        query_panel("Memory in use", RATIO, memory, _DEVICE, width=8, maximum=1),
        query_panel("Power", "watt", f"max by (cluster, UUID) ({metric('DCGM_FI_DEV_POWER_USAGE')})", width=8),
        query_panel("Temperature", "celsius", metric("DCGM_FI_DEV_GPU_TEMP"), _DEVICE, width=8),
        query_panel("Tensor pipe", RATIO, metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), _DEVICE, width=8),
        query_panel("Memory interface", RATIO, metric("DCGM_FI_PROF_DRAM_ACTIVE"), _DEVICE, width=8),
        query_panel(
            "Last XID error",
            "none",
            metric("DCGM_FI_DEV_XID_ERRORS"),
            _DEVICE,
            "0 means none. NVIDIA's list of XID errors explains the numbers.",
            width=8,
        ),
    ]


def _karpenter() -> Sequence[Panel]:
    """Build panels of Karpenter: plural names since 1.0, singular since 0.32, `provisioner` before."""
    provisioner = f'{IN_CLUSTER},provisioner=~"$pool"'

    def of_pools(name: str) -> str:
        return (
            f"sum by (cluster, nodepool) (karpenter_nodepools_{name}{{{_KARPENTER},{_GPU_TYPES}}} or "
            f"karpenter_nodepool_{name}{{{_KARPENTER},{_GPU_TYPES}}} or "
            f'label_replace(karpenter_provisioner_{name}{{{provisioner},{_GPU_TYPES}}}, "nodepool", "$1", '
            '"provisioner", "(.*)"))'
        )

    def events(name: str, *labels: str) -> str:
        by = ", ".join(("cluster", *labels))
        return f"sum by ({by}) (increase({name}{{{IN_CLUSTER}}}[$__rate_interval]))"

    limits = time_series_panel(
        "GPUs and the limit of the pool", GPUS, "Karpenter counts the GPUs that nodes advertise."
    )
    failed = time_series_panel("Failed node launches", GPUS, "By the error of the cloud provider.")
    nodes = time_series_panel("Nodes created, disrupted and terminated", GPUS)
    pending = time_series_panel(
        "Unschedulable pods and disruption budgets", GPUS, "Pods that fit no pool, and disruptions that budgets allow."
    )
    return [
        with_size(
            limits.with_target(promql_query(of_pools("usage"), "{{nodepool}}")).with_target(
                promql_query(of_pools("limit"), "{{nodepool}} limit").ref_id("B")
            ),
            12,
        ),
        with_size(
            nodes.with_target(
                promql_query(events("karpenter_nodeclaims_created_total", "nodepool", "reason"), "created {{reason}}")
            )
            .with_target(
                promql_query(
                    events("karpenter_nodeclaims_disrupted_total", "nodepool", "reason"), "disrupted {{reason}}"
                ).ref_id("B")
            )
            .with_target(
                promql_query(events("karpenter_nodeclaims_terminated_total", "nodepool"), "terminated").ref_id("C")
            ),
            12,
        ),
        with_size(
            failed.with_target(
                promql_query(events("karpenter_cloudprovider_errors_total", "error"), "error {{error}}")
            ).with_target(
                promql_query(
                    events("karpenter_cloudprovider_instance_launch_failures_total", "reason"), "launch {{reason}}"
                ).ref_id("B")
            ),
            12,
        ),
        with_size(
            pending.with_target(
                promql_query(
                    f"sum by (cluster) (karpenter_scheduler_unschedulable_pods_count{{{IN_CLUSTER}}})",
                    "unschedulable pods",
                )
            )
            .with_target(
                promql_query(
                    f"sum by (cluster, nodepool) (karpenter_nodepools_allowed_disruptions{{{_KARPENTER}}})",
                    "{{nodepool}} allowed disruptions",
                ).ref_id("B")
            )
            .with_target(
                promql_query(
                    f"sum by (cluster) (karpenter_voluntary_disruption_eligible_nodes{{{IN_CLUSTER}}})",
                    "eligible nodes",
                ).ref_id("C")
            ),
            12,
        ),
    ]


def _quotas() -> Sequence[Panel]:
    resources = f'resource=~"requests.({KUBERNETES_GPU_RESOURCES})"'
    hard = f'max by (cluster, namespace, resource) (kube_resourcequota{{{IN_CLUSTER},{resources},type="hard"}})'
    used = f'max by (cluster, namespace, resource) (kube_resourcequota{{{IN_CLUSTER},{resources},type="used"}})'
    return [
        query_panel(
            "GPU quotas in use",
            RATIO,
            f"{used} / ({hard} > 0)",
            "{{namespace}} {{resource}}",
            "Requested ÷ quota of the namespace.",
            width=24,
        )
    ]


def _neuron() -> Sequence[Panel]:
    cores = f"neuroncore_utilization_ratio{{{IN_CLUSTER}}}"
    memory = f"sum by (cluster, instance) (neuron_runtime_memory_used_bytes{{{IN_CLUSTER}}})"
    errors = f"sum by (cluster, error_type) (increase(execution_errors_total{{{IN_CLUSTER}}}[$__rate_interval]))"
    return [
        query_panel("Utilization of NeuronCores", RATIO, cores, "{{instance}} {{neuroncore}}", width=8),
        query_panel("Memory of Neuron runtimes", "bytes", memory, "{{instance}}", width=8),
        query_panel("Execution errors", GPUS, errors, "{{error_type}}", width=8),
    ]
