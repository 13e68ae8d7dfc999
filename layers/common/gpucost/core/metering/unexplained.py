"""What metering does not understand: it is named with its amount in a note of the hour, and by `gpucost doctor`.

Every reader reports it with one line: `Unexplained("advertised units of", "example_com_gpu", Decimal(4), "n1")`.
GPUs that it may stand for, and that nothing else explains, are unobserved: not stranded, wasted or free of charge.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from gpucost.core.metering.accelerators import may_name_gpus
from gpucost.core.metering.holdings import NodeKey
from gpucost.core.metering.nodes import NodeLifecycle, is_gpu_node
from gpucost.core.metering.observations import Unexplained

UNKNOWN_PREFIX = "unknown: "
"""The prefix of notes about what is not understood."""
_MAX_NODES_LISTED = 3


class UnexplainedGroup(NamedTuple):
    """The same unexplained thing on all nodes."""

    name: str
    finding: str
    effect: str
    change: str


def group_unexplained(things: Iterable[Unexplained]) -> list[UnexplainedGroup]:
    """Add up the same things of all nodes, and describe each."""
    groups: dict[Unexplained, list[Unexplained]] = {}
    for unexplained in things:
        groups.setdefault(unexplained._replace(amount=Decimal(0), node=""), []).append(unexplained)
    return [UnexplainedGroup(key.name, _finding(key, groups[key]), _effect(key), key.change) for key in sorted(groups)]


def unexplained_notes(things: Iterable[Unexplained]) -> list[str]:
    """Return a note for each unexplained thing, with its amount and the line to change."""
    return [
        f"{UNKNOWN_PREFIX}{group.finding}{group.effect}. {group.change}".rstrip(". ")
        for group in group_unexplained(things)
    ]


def _finding(key: Unexplained, things: Sequence[Unexplained]) -> str:
    amount = sum((unexplained.amount for unexplained in things), Decimal(0))
    nodes = sorted({unexplained.node for unexplained in things if unexplained.node})
    more = f" and {len(nodes) - _MAX_NODES_LISTED} more" if len(nodes) > _MAX_NODES_LISTED else ""
    where = f" on {', '.join(nodes[:_MAX_NODES_LISTED])}{more}" if nodes else ""
    return f"{amount:f} {key.description} {key.name}{where}"


def _effect(key: Unexplained) -> str:
    return "; GPUs that nothing else explains are unobserved" if key.may_be_gpus else ""


def relevant_things(
    things: Iterable[Unexplained], lifecycles: Mapping[str, Sequence[NodeLifecycle]], explained: Container[NodeKey]
) -> tuple[list[Unexplained], set[NodeKey]]:
    """Return the things that matter in an hour, and the nodes with GPUs that they may stand for.

    Args:
        things: all of them.
        lifecycles: the nodes by name.
        explained: nodes whose GPUs a DRA driver is known to offer.
    """
    relevant: list[Unexplained] = []
    nodes: set[NodeKey] = set()
    for unexplained in things:
        if not unexplained.may_be_gpus:
            relevant.append(unexplained)
            continue
        on_nodes = (
            _gpu_nodes(lifecycles.get(unexplained.node, ()))
            if unexplained.node
            else _silent_nodes(lifecycles, explained)
        )
        if on_nodes or (unexplained.node and may_name_gpus(unexplained.name)):
            relevant.append(unexplained)
            nodes |= on_nodes
    return relevant, nodes


def _gpu_nodes(lifecycles: Iterable[NodeLifecycle]) -> set[NodeKey]:
    return {(lifecycle.node.name, lifecycle.node.provider_id) for lifecycle in lifecycles if is_gpu_node(lifecycle)}


def _silent_nodes(lifecycles: Mapping[str, Sequence[NodeLifecycle]], explained: Container[NodeKey]) -> set[NodeKey]:
    """Return the GPU nodes that advertised nothing, and whose GPUs nothing explains.

    If other nodes of a pool advertised GPUs, those that did not were not ready. Nodes without labels are of no known
    pool, even if other metrics say their type: the one may advertise its GPUs, and a DRA driver offer the other's.
    """
    of_name = [lifecycle for each in lifecycles.values() for lifecycle in each]
    advertising = {_pool(lifecycle) for lifecycle in of_name if lifecycle.states and _has_pool(lifecycle)}
    silent = [lifecycle for lifecycle in of_name if not lifecycle.states and _pool(lifecycle) not in advertising]
    return _gpu_nodes(silent) - {key for key in _gpu_nodes(silent) if key in explained}


def _has_pool(lifecycle: NodeLifecycle) -> bool:
    node = lifecycle.node
    return bool(node.node_pool or (node.instance_type and not node.instance_type_source))


def _pool(lifecycle: NodeLifecycle) -> tuple[str, str]:
    return lifecycle.node.instance_type, lifecycle.node.node_pool
