"""Nodes: their labels, whether every pod's node is known, and what slices are."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpucost.domain.devices import GPUS_OF_INSTANCE, profile_share
from local.doctor import sharing
from local.doctor.checks.model import Case, Check, Fault, Severity, Status, some
from local.doctor.facts import MIG, REQUESTS, Facts, Node
from local.doctor.labels import (
    CAPACITY_TYPE,
    COUNT,
    INSTANCE_TYPE,
    MIG_STRATEGY,
    NODE_POOL,
    PRODUCT,
    REPLICAS,
    SHARING,
    ZONE,
    NodeLabel,
    allow_list,
    current_keys,
)

_METRIC = "kube_node_labels"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A fact about GPU nodes that a label tells, and which nodes must tell it."""

    label: NodeLabel
    severity: Severity
    of: Callable[[Facts, Node], bool] = lambda _, __: True
    is_from_discovery: bool = False
    """Whether NVIDIA's GPU feature discovery writes it."""


WANTED = (
    _Wanted(INSTANCE_TYPE, "recommended"),
    _Wanted(CAPACITY_TYPE, "recommended"),
    _Wanted(ZONE, "optional"),
    _Wanted(NODE_POOL, "optional"),
    _Wanted(PRODUCT, "recommended", is_from_discovery=True),
    _Wanted(
        COUNT, "recommended",
        lambda _, node: node.label(INSTANCE_TYPE) not in GPUS_OF_INSTANCE, is_from_discovery=True,
    ),
    _Wanted(REPLICAS, "recommended", sharing.is_shared, is_from_discovery=True),
    _Wanted(SHARING, "optional", sharing.is_shared, is_from_discovery=True),
    _Wanted(MIG_STRATEGY, "optional", sharing.is_sliced, is_from_discovery=True),
)  # fmt: skip


def labels(case: Case) -> Iterable[Check]:
    """Labels of the GPU nodes, each with the nodes that have it."""
    facts = case.facts
    for wanted in WANTED:
        nodes = [node for node in facts.gpu_nodes.values() if wanted.of(facts, node)]
        without = [node.name for node in nodes if not node.label(wanted.label)]
        name = f"node label {' or '.join(current_keys(wanted.label))}"
        if not nodes:
            count = sum(bool(node.label(wanted.label)) for node in facts.gpu_nodes.values())
            status: Status = "found" if count else "not needed"
            yield case.check(name, _METRIC, wanted.severity, status=status, series=count)
        elif not without:
            yield case.check(name, _METRIC, wanted.severity, series=len(nodes))
        else:
            where = f"{len(without)} of {len(nodes)} GPU nodes tell no {wanted.label.fact} ({some(without)})"
            change = f"kube-state-metrics: {allow_list(case.need)}"
            if wanted.is_from_discovery:
                change += "; the label itself is written by NVIDIA's device plugin: gfd.enabled=true"
            fault = Fault(f"{where}: {wanted.label.lost}", change)
            series = len(nodes) - len(without)
            yield case.check(name, _METRIC, wanted.severity, fault, status="missing", series=series)


def known(case: Case) -> Iterable[Check]:
    """Pods that hold GPUs of nodes of which no metric tells."""
    facts = case.facts
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
            f"pods hold GPUs on nodes of which {metric} tells nothing ({some(without)}): their capacity is unknown",
            "kube-state-metrics: --resources=…,nodes in every shard, all of --total-shards=N scraped, and no "
            "relabelling that drops nodes",
        )
        yield case.check("nodes of pods", metric, "recommended", fault)


def profiles(case: Case) -> Iterable[Check]:
    """MIG profiles whose share of a GPU no table knows."""
    facts = case.facts
    seen: set[tuple[str, str]] = set()
    for node in facts.gpu_nodes.values():
        model, _, profile = node.label(PRODUCT).removesuffix("-SHARED").partition("-MIG-")
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
            f"no table knows the share of {some(unknown)}: it is taken from the profile's compute slices, if any",
            "gpucost, domain/devices.py: MIG_GPUS, a line for the profile; where the GPU is unknown, "
            "kube-state-metrics: --metric-labels-allowlist=nodes=[nvidia.com/gpu.product]; where it reads INVALID, "
            "the same MIG geometry on all GPUs of the node",
        )
    yield case.check("MIG profiles", REQUESTS, "recommended", fault, series=len(seen))


def _slices(node: Node) -> Iterable[str]:
    return (name for name in node.capacity if name.startswith(MIG))
