"""Unallocated capacity by node pool: GPUs that are paid for and that no pod holds."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from gpucost.core.amounts import CapacityCosts, to_decimal
from gpucost.features.alerting.formatting import FigureFormatter, format_for_hours, format_threshold
from gpucost.features.alerting.rule_kinds.base import DurationHours, Figure, Finding, HourRule, RuleOverride, Subject
from gpucost.settings.section import Positive

if TYPE_CHECKING:
    from gpucost.features.alerting.evaluation import HourFigures
    from gpucost.features.alerting.model import Alert


class UnallocatedOverride(RuleOverride):
    """Other thresholds of an unallocated rule."""

    example = """
    node_pool: training
    usd_per_hour: 200
    """

    usd_per_hour: Positive | None = None
    """The unallocated cost in USD in an hour, in place of the rule's."""
    for_hours: DurationHours | None = None
    """Hours in a row, in place of the rule's."""


class UnallocatedRule(HourRule):
    """Fires when a node pool has a minimum amount of unallocated capacity."""

    kind = "unallocated"
    title = "Unallocated GPU capacity"
    action = "Let Karpenter consolidate the node pool, lower its minimum size, or move pending workloads to it."
    figures = (
        Figure("Unallocated per hour", "unallocated_usd_per_hour"),
        Figure("Unallocated GPUs", "unallocated_gpus"),
        Figure("Nodes", "nodes"),
    )
    amount_per_hour = "unallocated_usd_per_hour"
    is_inhibited_by_missing_data = True
    fires_when = "a node pool's unallocated capacity costs ≥ `usd_per_hour`"
    subjects = "a node pool"
    example = """
    rule: unallocated
    usd_per_hour: 50
    """

    rule: Literal["unallocated"]
    """The kind of the rule."""
    usd_per_hour: Positive
    """Fires if the unallocated cost of the pool's nodes in an hour reaches this amount."""
    overrides: tuple[UnallocatedOverride, ...] = ()
    """Other thresholds for some node pools. The first that matches is used."""

    @classmethod
    def predicate(cls, figures: FigureFormatter, detail: str, *, is_resolved: bool) -> str:
        """Return what the sentence of a notification says about its subject."""
        verb = "is below its threshold again:" if is_resolved else "has"
        return f"{verb} unallocated capacity of {figures.money('unallocated_usd_per_hour')} per hour"

    def findings(self, hour: "HourFigures", active_alerts: "Sequence[Alert]") -> Iterator[Finding]:
        """Evaluate an hour, for every node pool. The name of the pool of nodes without one is empty."""
        pools: dict[str, list[CapacityCosts]] = {alert.subject.node_pool: [] for alert in active_alerts}
        for node in hour.nodes:
            pools.setdefault(node.node_pool, []).append(node.capacity)
        for name, nodes in sorted(pools.items()):
            if not self.scope.has_node_pool(name):
                continue
            subject, capacity = Subject(hour.cluster, node_pool=name), CapacityCosts.total(nodes)
            rule = self.for_subject(subject)
            usd_per_hour = format_threshold(rule.usd_per_hour, hour.currency)
            yield Finding(
                subject,
                hour.hour,
                rule.is_breached_by(capacity),
                f"unallocated ≥ {usd_per_hour} per hour, {format_for_hours(rule.for_hours)}",
                {
                    "unallocated_usd_per_hour": to_decimal(capacity.unallocated_usd),
                    "unallocated_gpus": to_decimal(capacity.unallocated_gpu_hours),
                    "nodes": Decimal(len(nodes)),
                },
                hour.currency,
                rule.firing_policy,
            )

    def is_breached_by(self, capacity: CapacityCosts) -> bool | None:
        """Whether a pool's hour reaches the threshold; None if it does not, but some nodes have no price."""
        if to_decimal(capacity.unallocated_usd) >= self.usd_per_hour:
            return True
        return None if capacity.unpriced_capacity_gpu_hours else False
