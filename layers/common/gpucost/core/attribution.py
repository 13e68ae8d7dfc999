"""Attribution: from metered usage to the hour's record, with a business unit for each line.

The cost of shared business units (operators, validators, monitoring) is distributed among the other units. Each line of
a shared unit becomes one line per receiving unit, so that every report adds up to the same total.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.amounts import MAX_AMOUNT, split_each
from gpucost.core.costs_by_model import InferenceRules, costs_by_model, with_bounded_names
from gpucost.core.hour_record import LINE_AMOUNTS, HourRecord, Line
from gpucost.core.metering.implausible_samples import MAX_UNITS, SUSPECT_PREFIX
from gpucost.core.metering.observations import PodObservation
from gpucost.core.metering.usage import Usage
from gpucost.core.pricing.emissions import Emissions
from gpucost.core.pricing.node_costs import Pricing
from gpucost.core.pricing.rating import rate_usage

_WILDCARDS = frozenset("*?[")


DistributionPolicy = Literal["proportional", "even"]
"""In proportion to the cost of the receivers' lines in the hour, or in equal parts."""
_SPLIT_AMOUNTS = tuple(name for name in LINE_AMOUNTS if name not in {"allocated_gpu_hours", "allocated_usd"})
"""The amounts of a line that are split; allocated is the sum of its parts."""
_split_amounts: Callable[[Line], tuple[int | None, ...]] = attrgetter(*_SPLIT_AMOUNTS)


def distribute_lines(lines: Sequence[Line], policies: Mapping[str, DistributionPolicy]) -> list[Line]:
    """Distribute the lines of shared units among the other units that have lines in the hour.

    Without such a unit, the shared units keep their lines.

    Args:
        lines: all lines of a cluster-hour.
        policies: by the names of the shared units.

    Returns:
        Lines whose amounts have the same sums, to the last digit.
    """
    if not policies:
        return list(lines)
    costs: dict[str, int] = {}
    for line in lines:
        if line.business_unit not in policies:
            costs[line.business_unit] = costs.get(line.business_unit, 0) + (line.allocated_usd or 0)
    receivers = sorted(costs)
    if not receivers:
        return list(lines)
    by_cost = [costs[unit] for unit in receivers]
    evenly = [1] * len(receivers)
    weights = {"even": evenly, "proportional": by_cost if any(by_cost) else evenly}
    distributed: list[Line] = []
    for line in lines:
        if line.business_unit in policies:
            distributed.extend(_parts_of_line(line, receivers, weights[policies[line.business_unit]]))
        else:
            distributed.append(line)
    return distributed


def _parts_of_line(line: Line, receivers: Sequence[str], weights: Sequence[int]) -> list[Line]:
    """Split a line into parts; each part's `allocated` is the sum of its effective, waste and unmeasured."""
    amounts = dict(zip(_SPLIT_AMOUNTS, _split_amounts(line), strict=True))
    waste_hours = line.allocated_gpu_hours - (line.effective_gpu_hours or 0) - line.unmeasured_gpu_hours
    columns = split_each([waste_hours, *(amount or 0 for amount in amounts.values())], weights)
    distributed = []
    for unit, (waste_hours, *parts) in zip(receivers, zip(*columns, strict=True), strict=True):
        part = dict(zip(_SPLIT_AMOUNTS, parts, strict=True))
        allocated_usd = part["effective_usd"] + part["waste_usd"] + part["unmeasured_usd"]
        other_amounts: dict[str, Any] = {
            name: None if amounts[name] is None else amount for name, amount in part.items()
        }
        distributed.append(
            line._replace(
                business_unit=unit,
                shared_from=line.business_unit,
                allocated_gpu_hours=part["effective_gpu_hours"] + waste_hours + part["unmeasured_gpu_hours"],
                allocated_usd=None if line.allocated_usd is None else allocated_usd,
                **other_amounts,
            )
        )
    return distributed


class BusinessUnit(Struct, frozen=True):
    """A business unit and the rules that match its pods; a pod belongs to it if any rule matches."""

    name: str
    namespaces: tuple[str, ...] = ()
    """Shell patterns."""
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that a namespace must all have, named as kube-state-metrics exports them (`label_team`)."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    consumers: tuple[str, ...] = ()
    """Shell patterns of the names by which inference servers know the unit's requests."""
    since: datetime | None = None
    """The first hour of this entry, which replaces earlier entries of the same name; None for all hours."""
    distribute: DistributionPolicy | None = None
    """How its cost is distributed among the other units; None if it pays for its cost."""


class _LabelIndex:
    """Finds the first of several sets of required labels that an object has all of.

    Only sets with a label of the object are compared. Each is found by its label that the fewest other sets require.

    Args:
        required_labels: sets of at least one label, by their index.
        count: the result for an object without all labels of any set.
    """

    def __init__(self, required_labels: Mapping[int, Mapping[str, str]], count: int) -> None:
        self._count = count
        uses = Counter(label for required in required_labels.values() for label in required.items())
        self._sets_by_label: dict[tuple[str, str], list[tuple[int, Mapping[str, str]]]] = {}
        for index, required in required_labels.items():
            rarest = min(required.items(), key=uses.__getitem__)
            self._sets_by_label.setdefault(rarest, []).append((index, required))

    def first_match(self, labels: Mapping[str, str]) -> int:
        """Return the index of the first set; `count` if there is none."""
        return min(
            (
                index
                for label in labels.items()
                for index, required in self._sets_by_label.get(label, ())
                if required.items() <= labels.items()
            ),
            default=self._count,
        )


class BusinessUnitMatcher:
    """Finds the business unit of a pod: the first that matches, otherwise one named like the pod's namespace."""

    def __init__(self, units: Sequence[BusinessUnit]) -> None:
        self._units = units
        namespace_labels = {index: unit.namespace_labels for index, unit in enumerate(units) if unit.namespace_labels}
        pod_labels = {index: unit.pod_labels for index, unit in enumerate(units) if unit.pod_labels}
        self._has_labels = bool(namespace_labels or pod_labels)
        self._by_namespace_labels = _LabelIndex(namespace_labels, len(units))
        self._by_pod_labels = _LabelIndex(pod_labels, len(units))
        self._index_by_name: dict[str, int] = {}
        """Namespaces named in full, as most are, and the index of the first unit that names them."""
        self._patterns: list[tuple[int, str]] = []
        for index, unit in enumerate(units):
            for name in unit.namespaces:
                if _WILDCARDS.isdisjoint(name):
                    self._index_by_name.setdefault(name, index)
                else:
                    self._patterns.append((index, name))
        self._index_by_namespace: dict[str, int] = {}
        self._unit_by_consumer: dict[str, str] = {}

    def business_unit_of(self, pod: PodObservation) -> str:
        """Return the name of a pod's business unit."""
        index = self._index_by_name_or_pattern(pod.namespace)
        if self._has_labels:
            index = min(
                index,
                self._by_namespace_labels.first_match(pod.namespace_labels),
                self._by_pod_labels.first_match(pod.labels),
            )
        return self._units[index].name if index < len(self._units) else pod.namespace

    def business_unit_of_consumer(self, consumer: str) -> str:
        """Return the business unit that sent requests: the first that matches, otherwise one of the same name."""
        if consumer not in self._unit_by_consumer:
            matching = (
                unit.name for unit in self._units if any(fnmatchcase(consumer, pattern) for pattern in unit.consumers)
            )
            self._unit_by_consumer[consumer] = next(matching, consumer)
        return self._unit_by_consumer[consumer]

    def _index_by_name_or_pattern(self, namespace: str) -> int:
        if namespace not in self._index_by_namespace:
            exact = self._index_by_name.get(namespace, len(self._units))
            matching = (index for index, pattern in self._patterns if fnmatchcase(namespace, pattern))
            self._index_by_namespace[namespace] = min(exact, next(matching, exact))
        return self._index_by_namespace[namespace]


def business_units_at(units: Sequence[BusinessUnit], hour: datetime) -> list[BusinessUnit]:
    """Return the entries that apply in an hour, in their order: for each name the latest that has begun."""
    begun = [unit for unit in units if unit.since is None or unit.since <= hour]
    if len({unit.name for unit in begun}) == len(begun):
        return begun
    latest: dict[str, BusinessUnit] = {}
    for unit in begun:
        earlier = latest.get(unit.name)
        if earlier is None or earlier.since is None or (unit.since is not None and unit.since > earlier.since):
            latest[unit.name] = unit
    return [unit for unit in begun if latest[unit.name] is unit]


class AttributionRules(Struct, frozen=True):
    """The settings that attribution needs."""

    pricing: Pricing
    business_units: tuple[BusinessUnit, ...] = ()
    cost_labels: Mapping[str, str] = field(default_factory=dict)
    """Name on the line → label as kube-state-metrics exports it."""
    min_allocation_coverage: Decimal = Decimal(0)
    min_utilization_coverage: Decimal = Decimal(0)
    emissions: Emissions | None = None
    """The emission factors; None if emissions are not computed."""
    inference: InferenceRules = field(default_factory=InferenceRules)
    """How costs go to the models that inference servers serve."""


def build_record(usage: Usage, rules: AttributionRules) -> HourRecord:
    """Build the record of a metered hour.

    The hour is *incomplete* and has no figures where a source's coverage is too low. It is *provisional* where a node
    has no price, or a price that a preferred source will replace.
    """
    shortfall = _coverage_shortfalls(usage, rules)
    if shortfall:
        notes = (*shortfall, *usage.notes)
        return HourRecord(usage.cluster, usage.hour, "incomplete", usage.coverage, None, notes=notes)
    if any(pod.units > MAX_UNITS for pod in usage.pods):
        return _implausible_record(usage, usage.notes)
    try:
        return _rated_record(usage, rules)
    except ArithmeticError:  # an amount has more digits than the precision allows
        return _implausible_record(usage, usage.notes)


def _rated_record(usage: Usage, rules: AttributionRules) -> HourRecord:
    units = business_units_at(rules.business_units, usage.hour)
    matcher = BusinessUnitMatcher(units)

    def charge_to(pod: PodObservation) -> tuple[str, dict[str, str]]:
        labels = {name: pod.labels[label] for name, label in rules.cost_labels.items() if label in pod.labels}
        return matcher.business_unit_of(pod), labels

    record = rate_usage(usage, rules.pricing, charge_to, rules.emissions)
    if record.totals is None or not record.totals.are_plausible():
        return _implausible_record(usage, record.notes)
    policies = {unit.name: unit.distribute for unit in units if unit.distribute}
    lines = tuple(distribute_lines(record.lines, policies))
    unit_of_consumer = matcher.business_unit_of_consumer
    if not usage.served:
        return replace(record, lines=lines)
    models, notes = with_bounded_names(costs_by_model(lines, usage.served, rules.inference, unit_of_consumer))
    return replace(record, lines=lines, models=tuple(models), notes=(*record.notes, *notes))


def _implausible_record(usage: Usage, notes: Sequence[str]) -> HourRecord:
    note = f"{SUSPECT_PREFIX}figures exceed {MAX_AMOUNT:,} USD or GPU-hours, so the hour has none"
    return HourRecord(usage.cluster, usage.hour, "incomplete", usage.coverage, None, notes=(note, *notes))


def _coverage_shortfalls(usage: Usage, rules: AttributionRules) -> list[str]:
    shortfalls = []
    if not usage.coverage.allocation or usage.coverage.allocation < rules.min_allocation_coverage:
        shortfalls.append(_low_coverage_note("allocation", usage.coverage.allocation, rules.min_allocation_coverage))
    utilization = usage.coverage.utilization
    if utilization is not None and utilization < rules.min_utilization_coverage:
        shortfalls.append(_low_coverage_note("utilization", utilization, rules.min_utilization_coverage))
    return shortfalls


def _low_coverage_note(source: str, coverage: Decimal, minimum: Decimal) -> str:
    if not coverage:
        exporter = "kube-state-metrics" if source == "allocation" else "any GPU exporter"
        return f"Prometheus has no samples of {exporter} in this hour"
    return f"coverage of {source} is {coverage:.1%}, below the minimum of {minimum:.1%} in the settings"
