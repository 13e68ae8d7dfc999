"""What attribution does not understand: named with its amount, and with the line to change."""

from collections.abc import Iterable

from gpucost.core.metering.accelerators import may_name_gpus
from gpucost.core.metering.unexplained import UnexplainedGroup, group_unexplained
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, doctor_check


@doctor_check(
    "the cluster and its exporters",
    """
unknown … | something that attribution does not understand, with its amount: a resource under another name that nodes advertise or pods request, or a DRA driver with its devices. GPUs that nothing else explains are unobserved | the line in the finding: for a resource, `units` of the cluster in the settings, with the GPUs of a unit, or 0
""",  # noqa: E501 - one line for each row
)
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
    by_name: dict[str, list[UnexplainedGroup]] = {}
    for group in group_unexplained(things):
        by_name.setdefault(group.name, []).append(group)
    for name, groups in by_name.items():
        findings, last = " and ".join(group.finding for group in groups), groups[-1]
        yield context.check(f"unknown {name}", "", "recommended", Fault(f"{findings}{last.effect}", last.change))
