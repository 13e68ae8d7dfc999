"""Checks of nodes: their labels, whether every pod's node is reported, and MIG profiles."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gpucost.core.metering.gpu_models import profile_share
from gpucost.core.metering.kubernetes_labels import (
    CAPACITY_TYPE_LABEL,
    GPU_CLIQUE_LABEL,
    GPU_COUNT_LABEL,
    GPU_PRODUCT_LABEL,
    GPU_REPLICAS_LABEL,
    GPU_SHARING_LABEL,
    INSTANCE_TYPE_LABEL,
    NODE_LABELS_METRIC,
    NODE_POOL_LABEL,
    OPERATING_SYSTEM_LABEL,
    REGION_LABEL,
    RESERVATION_ID_LABEL,
    ZONE_ID_LABEL,
    ZONE_LABEL,
    NodeLabel,
    mig_replicas,
)
from gpucost.core.metering.nodes import capacity_type
from gpucost_cli.doctor import sharing
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Severity, Status, doctor_check, first_few
from gpucost_cli.doctor.facts import MIG, REQUESTS, ObservedNode, shared_mig_profiles


def _needs_label_on_every_node(_: CheckContext, __: ObservedNode) -> bool:
    return True


def _needs_zone_id(context: CheckContext, node: ObservedNode) -> bool:
    return "spot" in context.settings.pricing.ordered_sources and capacity_type(node.labels) == "spot"


def _needs_region(context: CheckContext, node: ObservedNode) -> bool:
    sources = {*context.settings.pricing.ordered_sources}
    has_zone = node.label(ZONE_LABEL) or any(node.zone_of_provider_id)
    return not has_zone and not sources.isdisjoint(("spot", "on-demand", "list-price"))


def _needs_operating_system(context: CheckContext, _: ObservedNode) -> bool:
    return "windows" in context.settings.pricing.operating_systems


def _needs_reservation_id(context: CheckContext, node: ObservedNode) -> bool:
    """Whether a node may belong to one of the cluster's active Capacity Blocks."""
    types = {
        block.instance_type
        for block in context.settings.pricing.capacity_blocks
        if block.cluster in {None, context.cluster.name} and block.since <= context.facts.evaluated_at < block.until
    }
    return node.label(INSTANCE_TYPE_LABEL) in types and capacity_type(node.labels) not in {"spot", "on-demand"}


def _needs_clique(context: CheckContext, node: ObservedNode) -> bool:
    """Whether `nvlink_domains` of the settings names the node's pool, and its instance type is one of UltraServers."""
    is_in_ultra_server = node.label(INSTANCE_TYPE_LABEL).startswith("p6e-")
    jobs = context.settings.minimum_jobs(context.cluster.name)
    return is_in_ultra_server and any(fnmatchcase(node.label(NODE_POOL_LABEL), job.node_pool) for job in jobs)


@dataclass(frozen=True, slots=True)
class _RequiredLabel:
    """A label of GPU nodes, and the nodes that must have it."""

    label: NodeLabel
    severity: Severity
    is_needed: Callable[[CheckContext, ObservedNode], bool] = _needs_label_on_every_node
    is_from_discovery: bool = False
    """Whether NVIDIA's GPU feature discovery writes it."""


_REQUIRED_LABELS = (
    _RequiredLabel(INSTANCE_TYPE_LABEL, "recommended"),
    _RequiredLabel(CAPACITY_TYPE_LABEL, "recommended"),
    _RequiredLabel(ZONE_LABEL, "optional"),
    _RequiredLabel(ZONE_ID_LABEL, "recommended", _needs_zone_id),
    _RequiredLabel(REGION_LABEL, "recommended", _needs_region),
    _RequiredLabel(OPERATING_SYSTEM_LABEL, "recommended", _needs_operating_system),
    _RequiredLabel(RESERVATION_ID_LABEL, "recommended", _needs_reservation_id),
    _RequiredLabel(NODE_POOL_LABEL, "optional"),
    _RequiredLabel(GPU_PRODUCT_LABEL, "recommended", is_from_discovery=True),
    _RequiredLabel(
        GPU_COUNT_LABEL,
        "recommended",
        lambda context, node: node.label(INSTANCE_TYPE_LABEL) not in context.settings.gpus_by_instance_type(),
        is_from_discovery=True,
    ),
    _RequiredLabel(
        GPU_REPLICAS_LABEL,
        "recommended",
        lambda context, node: sharing.is_shared(context.facts, node),
        is_from_discovery=True,
    ),
    _RequiredLabel(
        GPU_SHARING_LABEL,
        "optional",
        lambda context, node: sharing.is_shared(context.facts, node),
        is_from_discovery=True,
    ),
)

_CLIQUE_LABEL = _RequiredLabel(GPU_CLIQUE_LABEL, "recommended", _needs_clique, is_from_discovery=True)


@doctor_check("kube-state-metrics")
def check_node_labels(context: CheckContext) -> Iterable[Check]:
    """Check the labels of GPU nodes."""
    required = [*_REQUIRED_LABELS, *([_CLIQUE_LABEL] if context.settings.nvlink_domains else [])]
    profiles = {profile for node in context.facts.gpu_nodes.values() for profile in shared_mig_profiles(node)}
    required += [_label_of_shared_slices(profile) for profile in sorted(profiles)]
    change = context.label_change
    if any(label.is_from_discovery and _nodes_without(context, label) for label in required):
        change += "; NVIDIA's device plugin creates the labels nvidia.com/…: gfd.enabled=true"
    return [_check_label(context, label, change) for label in required]


def _nodes_without(context: CheckContext, required: _RequiredLabel) -> list[str]:
    nodes = (node for node in context.facts.gpu_nodes.values() if required.is_needed(context, node))
    return [node.name for node in nodes if not node.label(required.label)]


def _label_of_shared_slices(profile: str) -> _RequiredLabel:
    return _RequiredLabel(
        mig_replicas(profile),
        "recommended",
        lambda _, node: profile in shared_mig_profiles(node),
        is_from_discovery=True,
    )


def _check_label(context: CheckContext, required: _RequiredLabel, change: str) -> Check:
    gpu_nodes = context.facts.gpu_nodes.values()
    nodes = [node for node in gpu_nodes if required.is_needed(context, node)]
    without = _nodes_without(context, required)
    name = f"node label {' or '.join(required.label.keys)}"
    if not nodes:
        count = sum(bool(node.label(required.label)) for node in gpu_nodes)
        status: Status = "found" if count else context.status_without_need
        return context.check(name, NODE_LABELS_METRIC, required.severity, status=status, series=count)
    if not without:
        return context.check(name, NODE_LABELS_METRIC, required.severity, series=len(nodes))
    attribute, effect = required.label.attribute, required.label.effect_if_missing
    fault = Fault(
        f"{len(without)} of {len(nodes)} GPU nodes have no label for the {attribute} ({first_few(without)}): {effect}",
        change,
        f"{attribute} of {len(without)} GPU nodes: {effect}",
    )
    series = len(nodes) - len(without)
    return context.check(name, NODE_LABELS_METRIC, required.severity, fault, status="missing", series=series)


@doctor_check(
    "kube-state-metrics",
    """
nodes of pods | pods hold GPUs on nodes that are missing from the node metrics. Either a shard of kube-state-metrics is not scraped, or relabeling drops nodes. If the nodes have `kube_node_info`, relabeling drops the capacity of some resources, such as that of CPUs. A pod can also remain after its node is removed, for example after a spot interruption. Its node then has no metrics, and the pod counts as holding no GPUs | `--resources=…,nodes` in every shard, all of which are scraped, and relabeling that keeps nodes and the capacity of all resources
""",  # noqa: E501 - one line for each row
)
def check_nodes_of_pods(context: CheckContext) -> Iterable[Check]:
    """Check whether the nodes of all pods with GPUs are reported."""
    facts = context.facts
    if not facts.holders:
        return
    with_info = {name for name, node in facts.nodes.items() if node.has_info}
    with_capacity = {name for name, node in facts.nodes.items() if node.reports_capacity}
    for metric, reported in (("kube_node_info", with_info), ("kube_node_status_capacity", with_capacity)):
        without = {holder.node for holder in facts.holders} - reported
        if not facts.has_series_of_any(metric) or not without:
            continue
        change = (
            "kube-state-metrics: --resources=…,nodes in every shard, all of --total-shards=N scraped, and no "
            "relabeling that drops nodes"
        )
        if without <= with_info:  # a node with GPUs that claims hold advertises no GPUs, but always CPUs
            change = (
                f"metric_relabel_configs and write_relabel_configs: keep {metric} of all resources; a rule drops "
                'those with resource="cpu"'
            )
        fault = Fault(
            f"pods hold GPUs on nodes without {metric} ({first_few(without)}): the nodes' capacity is unknown", change
        )
        yield context.check("nodes of pods", metric, "recommended", fault)


@doctor_check(
    "kube-state-metrics",
    """
MIG profiles | the profile's share of a GPU is not in the tables of `core/metering/gpu_models.py`, or the GPU's model is unknown | a line for the profile in `MIG_GPUS`; the label `nvidia.com/gpu.product`; or the same MIG geometry on all GPUs of a node
""",  # noqa: E501 - one line for each row
)
def check_mig_profiles(context: CheckContext) -> Iterable[Check]:
    """Check whether the share of a GPU is known for all MIG profiles."""
    facts = context.facts
    reported: set[tuple[str, str]] = set()
    for node in facts.gpu_nodes.values():
        model, _, profile = node.label(GPU_PRODUCT_LABEL).removesuffix("-SHARED").partition("-MIG-")
        model = model or next((device.model for device in facts.devices_by_node.get(node.name, ()) if device.model), "")
        in_capacity = {name.removeprefix(MIG).removesuffix("_shared").replace("_", ".") for name in _slices(node)}
        reported.update((name, model) for name in ({profile} | in_capacity) - {""})
    reported.update((device.profile, device.model) for device in facts.gpu_devices if device.profile)
    for holder in facts.gpu_holders:
        if holder.resource.startswith(MIG) and holder.node not in facts.gpu_nodes:
            reported.add((holder.resource.removeprefix(MIG).removesuffix("_shared").replace("_", "."), ""))
    if not reported:
        return
    unknown = [
        f"{profile} of {model or 'an unknown GPU'}"
        for profile, model in reported
        if profile_share(profile, model) is None
    ]
    fault = None
    if unknown:
        fault = Fault(
            f"the GPU share of {first_few(unknown)} is not in the table: it is derived from the profile's compute "
            "slices, if it has any",
            "gpucost, core/metering/gpu_models.py: MIG_GPUS, a line for the profile; if the GPU is unknown, "
            "kube-state-metrics: --metric-labels-allowlist=nodes=[nvidia.com/gpu.product]; if its label is INVALID, "
            "the same MIG geometry on all GPUs of the node",
        )
    yield context.check("MIG profiles", REQUESTS, "recommended", fault, series=len(reported))


def _slices(node: ObservedNode) -> Iterable[str]:
    return (name for name in node.capacity if name.startswith(MIG))
