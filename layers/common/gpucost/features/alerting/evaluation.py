"""What the rules on closed hours find in one hour: waste, idle workloads, unallocated capacity."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from gpucost.core.ledger import HourSummary
from gpucost.core.model import Costs, Line, NodeHour
from gpucost.features.alerting.model import Alert, Subject, TopWaster
from gpucost.features.alerting.ports import AlertLedger
from gpucost.features.alerting.rules import idle_workload as idle
from gpucost.features.alerting.rules import unallocated, waste
from gpucost.features.alerting.rules.idle_workload import MEASURED_SOURCES, IdleThresholds
from gpucost.features.alerting.rules.unallocated import UnallocatedThreshold
from gpucost.features.alerting.rules.waste import WasteThresholds
from gpucost.features.alerting.scope_update import Finding
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.settings.rules import IdleWorkloadRule, RuleSettings, UnallocatedRule, WasteRule
from gpucost.features.alerting.state_machine import FiringPolicy

MAX_SINGLE_UNIT_READS = 50
"""Units whose lines are read one by one: each costs a read unit, and all of a large cluster's together some 240."""


class HourFacts:
    """One hour of one cluster, or of several together, as rules see it; what costs more is read when it is asked for.

    Args:
        ledger: published hours.
        summaries: of the hour, one or more clusters'.
        cluster: its name; "" for several.
    """

    def __init__(self, ledger: PublishedHours, summaries: Sequence[HourSummary], cluster: str) -> None:
        self._ledger = ledger
        self._summaries = summaries
        self.cluster = cluster
        self.hour = summaries[0].hour
        self.currency = summaries[0].currency
        groups: dict[tuple[str, str], Costs] = {}
        for summary in summaries:
            for key, costs in summary.groups.items():
                groups[key] = Costs.total((groups[key], costs)) if key in groups else costs
        self.groups: Mapping[tuple[str, str], Costs] = groups
        self._lines: dict[str, Sequence[Line]] = {}
        self._all_lines: Mapping[str, Sequence[Line]] | None = None

    @cached_property
    def units(self) -> Mapping[str, Costs]:
        """Costs by business unit."""
        return sum_by_business_unit(self.groups, lambda _: True)

    @cached_property
    def nodes(self) -> Sequence[NodeHour]:
        """Every node."""
        return [node for one in self._summaries for node in self._ledger.nodes(one.cluster, self.hour)[0]]

    def lines(self, unit: str) -> Sequence[Line]:
        """A unit's lines."""
        if self._all_lines is not None:
            return self._all_lines.get(unit, ())
        if unit not in self._lines:
            self._lines[unit] = [
                line for one in self._summaries for line in self._ledger.lines(one.cluster, self.hour, unit)
            ]
        return self._lines[unit]

    def prefetch_lines(self, units: int) -> None:
        """Of many units, all lines together cost less than one by one."""
        if units <= MAX_SINGLE_UNIT_READS or self._all_lines is not None:
            return
        found: dict[str, list[Line]] = {}
        for one in self._summaries:
            for line in self._ledger.lines(one.cluster, self.hour):
                found.setdefault(line.business_unit, []).append(line)
        self._all_lines = found


def find_breaches(
    rule: RuleSettings, settings: AlertingSettings, facts: HourFacts, active: Sequence[Alert]
) -> Iterator[Finding]:
    """What a rule finds in an hour, of every subject that breaches or that it watches already.

    Thresholds in money say nothing of hours in another currency, from before the settings changed for instance.
    """
    if isinstance(rule, IdleWorkloadRule):
        yield from _idle(rule, facts, active)
    elif facts.currency != settings.pricing.currency:
        return
    elif isinstance(rule, WasteRule):
        yield from _waste(rule, settings, facts, active)
    elif isinstance(rule, UnallocatedRule):
        yield from _unallocated(rule, facts, active)


def sum_by_business_unit(
    groups: Mapping[tuple[str, str], Costs], has_namespace: Callable[[str], bool]
) -> dict[str, Costs]:
    """Costs by business unit, of some namespaces."""
    parts: dict[str, list[Costs]] = {}
    for (unit, namespace), costs in groups.items():
        if has_namespace(namespace):
            parts.setdefault(unit, []).append(costs)
    return {unit: Costs.total(own) for unit, own in parts.items()}


def firing_policy(rule: RuleSettings) -> FiringPolicy:
    """A rule's patience."""
    return FiringPolicy(rule.for_hours, rule.keep_firing_hours)


def _waste(rule: WasteRule, settings: AlertingSettings, facts: HourFacts, active: Sequence[Alert]) -> Iterator[Finding]:
    units = sum_by_business_unit(facts.groups, rule.scope.has_namespace) if rule.scope.namespaces else facts.units
    guesses = not set(settings.utilization.sources) <= MEASURED_SOURCES
    for unit in _watched(units, active):
        if not rule.scope.has_unit(unit):
            continue
        subject = Subject(facts.cluster, unit)
        own, costs = rule.for_subject(subject), units.get(unit, Costs())
        thresholds = WasteThresholds(own.waste_usd_per_hour, own.waste_percent)
        breaches = thresholds.breached_by(costs)
        if breaches and guesses:
            costs = _observed_only(line for line in facts.lines(unit) if rule.scope.has_namespace(line.namespace))
            breaches = thresholds.breached_by(costs)
        yield Finding(
            subject, facts.hour, breaches, thresholds.describe(own.for_hours, facts.currency), waste.figures(costs),
            facts.currency, firing_policy(own), _worst_of(facts, unit, rule.scope.has_namespace),
        )  # fmt: skip


def _idle(rule: IdleWorkloadRule, facts: HourFacts, active: Sequence[Alert]) -> Iterator[Finding]:
    watched: dict[str, set[idle.WorkloadKey]] = {}
    for alert in active:
        watched.setdefault(alert.subject.business_unit, set()).add(alert.subject[2:5])
    own = (rule, *(rule.model_copy(update=one.changes()) for one in rule.overrides))
    thresholds = [IdleThresholds(one.gpus, one.utilization_percent) for one in own]
    units = [unit for unit in _watched(facts.units, active) if rule.scope.has_unit(unit)]
    could = {
        unit for unit in units if any(one.can_be_breached_by(facts.units.get(unit, Costs())) for one in thresholds)
    }
    facts.prefetch_lines(len(could))
    for unit in units:
        workloads = idle.by_workload(facts.lines(unit)) if unit in could else {}
        for key in sorted(workloads.keys() | watched.get(unit, set())):
            found = _idle_workload(rule, facts, idle.subject(facts.cluster, unit, key), workloads.get(key, Costs()))
            if found.is_breach is not False or key in watched.get(unit, set()):
                yield found


def _idle_workload(rule: IdleWorkloadRule, facts: HourFacts, subject: Subject, costs: Costs) -> Finding:
    own = rule.for_subject(subject)
    thresholds = IdleThresholds(own.gpus, own.utilization_percent)
    is_in = rule.scope.has_namespace(subject.namespace)
    return Finding(
        subject, facts.hour, thresholds.breached_by(costs) if is_in else False, thresholds.describe(own.for_hours),
        idle.figures(costs), facts.currency, firing_policy(own),
    )  # fmt: skip


def _unallocated(rule: UnallocatedRule, facts: HourFacts, active: Sequence[Alert]) -> Iterator[Finding]:
    pools = unallocated.by_node_pool(facts.nodes)
    for name in sorted(pools.keys() | {alert.subject.node_pool for alert in active}):
        if not rule.scope.has_node_pool(name):
            continue
        subject = Subject(facts.cluster, node_pool=name)
        own, pool = rule.for_subject(subject), pools.get(name, unallocated.NodePoolHour())
        threshold = UnallocatedThreshold(own.usd_per_hour)
        yield Finding(
            subject, facts.hour, threshold.breached_by(pool), threshold.describe(own.for_hours, facts.currency),
            unallocated.figures(pool), facts.currency, firing_policy(own),
        )  # fmt: skip


def _watched(units: Iterable[str], active: Sequence[Alert]) -> list[str]:
    return sorted({*units, *(alert.subject.business_unit for alert in active)})


def _observed_only(lines: Iterable[Line]) -> Costs:
    """Where settings allow guessed utilization, only what was observed counts as waste (design §3)."""
    return Costs.total(costs for costs in idle.by_workload(lines).values())


def _worst_of(facts: HourFacts, unit: str, has_namespace: Callable[[str], bool]) -> Callable[[], tuple[TopWaster, ...]]:
    return lambda: idle.top_wasters(line for line in facts.lines(unit) if has_namespace(line.namespace))
