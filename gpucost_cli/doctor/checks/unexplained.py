"""What attribution does not understand: named with its amount, and with the line to change."""

from collections.abc import Iterable

from gpucost.core.metering.resource_names import may_name_gpus
from gpucost.core.metering.unexplained import group_unexplained
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault


def check_unexplained(context: CheckContext) -> Iterable[Check]:
    """Name what is not understood on GPU nodes, and what may be GPUs elsewhere."""
    facts = context.facts
    things = [
        unexplained
        for unexplained in facts.unexplained
        if not unexplained.node
        or unexplained.node in facts.gpu_nodes
        or may_name_gpus(unexplained.name)
        or not unexplained.may_be_gpus
    ]
    by_name: dict[str, Fault] = {}
    for group in group_unexplained(things):
        earlier = f"{by_name[group.name].finding}, and " if group.name in by_name else ""
        by_name[group.name] = Fault(f"{earlier}{group.finding}", group.change)
    for name, fault in by_name.items():
        yield context.check(f"unknown {name}", "", "recommended", fault)
