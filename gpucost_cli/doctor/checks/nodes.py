"""Nodes: their labels, whether every pod's node is known, and what slices are."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpucost.core.metering.gpu_models import GPUS_OF_INSTANCE, profile_share
from gpucost.core.metering.kubernetes_labels import (
    CAPACITY_TYPE,
    GPU_COUNT,
    GPU_PRODUCT,
    GPU_REPLICAS,
    GPU_SHARING,
    INSTANCE_TYPE,
    NODE_LABELS_METRIC,
    NODE_POOL,
    OPERATING_SYSTEM,
    REGION,
    RESERVATION_ID,
    ZONE,
    ZONE_ID,
    NodeLabel,
    mig_replicas,
)
from gpucost.core.metering.nodes import capacity_type
from gpucost_cli.doctor import sharing
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Severity, Status, first_few
from gpucost_cli.doctor.facts import MIG, REQUESTS, Node, shared_mig_profiles


def _always(_: CheckContext, __: Node) -> bool:
    return True


def _needs_zone_id(context: CheckContext, node: Node) -> bool:
    return "spot" in context.settings.pricing.ordered_sources and capacity_type(node.labels) == "spot"


def _needs_region(context: CheckContext, node: Node) -> bool:
    return not node.label(ZONE) and {"spot", "on-demand"} & {*context.settings.pricing.ordered_sources} != set()


def _needs_operating_system(context: CheckContext, _: Node) -> bool:
    return "windows" in context.settings.pricing.operating_systems


def _needs_reservation_id(context: CheckContext, node: Node) -> bool:
    """Return whether a node may belong to one of the cluster's Capacity Blocks that are running now."""
    types = {
        block.instance_type
        for block in context.settings.pricing.capacity_blocks
        if block.cluster in {None, context.cluster.name} and block.since <= context.facts.evaluated_at < block.until
    }
    return node.label(INSTANCE_TYPE) in types and capacity_type(node.labels) not in {"spot", "on-demand"}


@dataclass(frozen=True, slots=True)
class _WantedLabel:
    """A label of GPU nodes, and which nodes must have it."""

    label: NodeLabel
    severity: Severity
    is_needed: Callable[[CheckContext, Node], bool] = _always
    is_from_discovery: bool = False
    """Whether NVIDIA's GPU feature discovery writes it."""


_WANTED_LABELS = (
    _WantedLabel(INSTANCE_TYPE, "recommended"),
    _WantedLabel(CAPACITY_TYPE, "recommended"),
    _WantedLabel(ZONE, "optional"),
    _WantedLabel(ZONE_ID, "recommended", _needs_zone_id),
    _WantedLabel(REGION, "recommended", _needs_region),
    _WantedLabel(OPERATING_SYSTEM, "recommended", _needs_operating_system),
    _WantedLabel(RESERVATION_ID, "recommended", _needs_reservation_id),
    _WantedLabel(NODE_POOL, "optional"),
    _WantedLabel(GPU_PRODUCT, "recommended", is_from_discovery=True),
    _WantedLabel(
        GPU_COUNT, "recommended",
        lambda _, node: node.label(INSTANCE_TYPE) not in GPUS_OF_INSTANCE, is_from_discovery=True,
    ),
    _WantedLabel(
        GPU_REPLICAS, "recommended", lambda context, node: sharing.is_shared(context.facts, node), is_from_discovery=True
    ),
    _WantedLabel(
        GPU_SHARING, "optional", lambda context, node: sharing.is_shared(context.facts, node), is_from_discovery=True
    ),
)  # fmt: skip


def labels(context: CheckContext) -> Iterable[Check]:
    """Labels of the GPU nodes, each with the nodes that have it."""
    yield from (_label(context, wanted) for wanted in _WANTED_LABELS)
    profiles = {one for node in context.facts.gpu_nodes.values() for one in shared_mig_profiles(node)}
    for profile in sorted(profiles):
        yield _label(context, _shared_slices(profile))


def _shared_slices(profile: str) -> _WantedLabel:
    return _WantedLabel(
        mig_replicas(profile), "recommended", lambda _, node: profile in shared_mig_profiles(node),
        is_from_discovery=True,
    )  # fmt: skip


def _label(context: CheckContext, wanted: _WantedLabel) -> Check:
    gpu_nodes = context.facts.gpu_nodes.values()
    nodes = [node for node in gpu_nodes if wanted.is_needed(context, node)]
    without = [node.name for node in nodes if not node.label(wanted.label)]
    name = f"node label {' or '.join(wanted.label.keys)}"
    if not nodes:
        count = sum(bool(node.label(wanted.label)) for node in gpu_nodes)
        status: Status = "found" if count else "not needed"
        return context.check(name, NODE_LABELS_METRIC, wanted.severity, status=status, series=count)
    if not without:
        return context.check(name, NODE_LABELS_METRIC, wanted.severity, series=len(nodes))
    change = f"kube-state-metrics: {context.allow_list}"
    if wanted.is_from_discovery:
        change += "; the label itself is written by NVIDIA's device plugin: gfd.enabled=true"
    fault = Fault(
        f"{len(without)} of {len(nodes)} GPU nodes tell no {wanted.label.fact} ({first_few(without)}): "
        f"{wanted.label.effect_if_missing}",
        change,
    )
    series = len(nodes) - len(without)
    return context.check(name, NODE_LABELS_METRIC, wanted.severity, fault, status="missing", series=series)


def nodes_of_pods(context: CheckContext) -> Iterable[Check]:
    """Pods that hold GPUs of nodes of which no metric tells."""
    facts = context.facts
    if not facts.holders:
        return
    for metric, has in (
        ("kube_node_info", lambda node: node.has_info),
        ("kube_node_status_capacity", lambda node: bool(node.capacity)),
    ):
        without = {one.node for one in facts.holders if one.node not in facts.nodes or not has(facts.nodes[one.node])}
        if not facts.has(metric) or not without:
            continue
        fault = Fault(
            f"pods hold GPUs on nodes of which {metric} tells nothing ({first_few(without)}): their capacity is unknown",
            "kube-state-metrics: --resources=…,nodes in every shard, all of --total-shards=N scraped, and no "
            "relabelling that drops nodes",
        )
        yield context.check("nodes of pods", metric, "recommended", fault)


def profiles(context: CheckContext) -> Iterable[Check]:
    """MIG profiles whose share of a GPU no table knows."""
    facts = context.facts
    seen: set[tuple[str, str]] = set()
    for node in facts.gpu_nodes.values():
        model, _, profile = node.label(GPU_PRODUCT).removesuffix("-SHARED").partition("-MIG-")
        model = model or next((device.model for device in facts.devices_on.get(node.name, ()) if device.model), "")
        own = {name.removeprefix(MIG).removesuffix("_shared").replace("_", ".") for name in _slices(node)}
        seen.update((one, model) for one in ({profile} | own) - {""})
    seen.update((device.profile, device.model) for device in facts.gpu_devices if device.profile)
    for holder in facts.gpu_holders:
        if holder.resource.startswith(MIG) and holder.node not in facts.gpu_nodes:
            seen.add((holder.resource.removeprefix(MIG).removesuffix("_shared").replace("_", "."), ""))
    if not seen:
        return
    unknown = [f"{one} of {model or 'an unknown GPU'}" for one, model in seen if profile_share(one, model) is None]
    fault = None
    if unknown:
        fault = Fault(
            f"no table knows the share of {first_few(unknown)}: it is taken from the profile's compute slices, if any",
            "gpucost, core/metering/gpu_models.py: MIG_GPUS, a line for the profile; where the GPU is unknown, "
            "kube-state-metrics: --metric-labels-allowlist=nodes=[nvidia.com/gpu.product]; where it reads INVALID, "
            "the same MIG geometry on all GPUs of the node",
        )
    yield context.check("MIG profiles", REQUESTS, "recommended", fault, series=len(seen))


def _slices(node: Node) -> Iterable[str]:
    return (name for name in node.capacity if name.startswith(MIG))
