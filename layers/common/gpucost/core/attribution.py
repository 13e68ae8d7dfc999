"""Attribution: rated usage to the hour's record, with the business unit that answers for each line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction

from gpucost.core.hours import HOUR_MS
from gpucost.core.metering.gpu_shares import kubernetes_resource
from gpucost.core.metering.implausible_samples import MAX_AMOUNT, MAX_UNITS, SUSPECT
from gpucost.core.metering.observations import PodObservation
from gpucost.core.metering.usage import Usage
from gpucost.core.model import Costs, HourRecord, Line, Totals
from gpucost.core.money import ZERO, quantize
from gpucost.core.pricing.node_prices import NodePrice, Pricing
from gpucost.core.pricing.rating import RatedPod, rate_usage
from gpucost.core.shared_units import DistributionPolicy, distribute_lines

_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class BusinessUnit:
    """Who owns what any of these matches."""

    name: str
    namespaces: tuple[str, ...] = ()
    """Shell patterns."""
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """All of them must be there, under their names as kube-state-metrics writes them (`label_team`)."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    """The first hour of this entry; it stands in place of earlier ones of the same name. None: from the beginning."""
    distribute: DistributionPolicy | None = None
    """How its cost is passed on to the other units; None where it pays itself."""

    def matches_labels(self, pod: PodObservation) -> bool:
        """Whether a pod is this unit's by its own labels or its namespace's."""
        return _has_all(pod.namespace_labels, self.namespace_labels) or _has_all(pod.labels, self.pod_labels)


class BusinessUnitMatcher:
    """Finds the unit that answers for a pod: the first that matches; a namespace that nothing matches is its own."""

    def __init__(self, units: Sequence[BusinessUnit]) -> None:
        self._units = units
        self._by_labels = [
            (place, unit) for place, unit in enumerate(units) if unit.namespace_labels or unit.pod_labels
        ]
        self._by_name: dict[str, int] = {}
        """Namespaces named in full, and the place of the first unit that names them: most are."""
        self._patterns: list[tuple[int, str]] = []
        for place, unit in enumerate(units):
            for name in unit.namespaces:
                if _WILDCARDS.isdisjoint(name):
                    self._by_name.setdefault(name, place)
                else:
                    self._patterns.append((place, name))
        self._asked: dict[str, int] = {}

    def business_unit_of(self, pod: PodObservation) -> str:
        """The unit's name."""
        by_labels = next((place for place, unit in self._by_labels if unit.matches_labels(pod)), len(self._units))
        place = min(by_labels, self._named(pod.namespace))
        return self._units[place].name if place < len(self._units) else pod.namespace

    def _named(self, namespace: str) -> int:
        if namespace not in self._asked:
            named = self._by_name.get(namespace, len(self._units))
            matching = (place for place, pattern in self._patterns if fnmatchcase(namespace, pattern))
            self._asked[namespace] = min(named, next(matching, named))
        return self._asked[namespace]


def units_at(units: Sequence[BusinessUnit], hour: datetime) -> list[BusinessUnit]:
    """The entries that count in an hour, in their order: of each name the latest that has begun."""
    begun = [unit for unit in units if unit.since is None or unit.since <= hour]
    latest: dict[str, BusinessUnit] = {}
    for unit in begun:
        before = latest.get(unit.name)
        if before is None or before.since is None or (unit.since is not None and unit.since > before.since):
            latest[unit.name] = unit
    return [unit for unit in begun if latest[unit.name] is unit]


@dataclass(frozen=True, slots=True)
class AttributionRules:
    """What settings say about who pays."""

    pricing: Pricing
    business_units: tuple[BusinessUnit, ...] = ()
    cost_labels: Mapping[str, str] = field(default_factory=dict)
    """Name on the line → label as kube-state-metrics writes it."""
    min_allocation_coverage: Decimal = Decimal(0)
    min_utilization_coverage: Decimal = Decimal(0)


def attribute(usage: Usage, rules: AttributionRules) -> HourRecord:
    """The record of a metered hour.

    *Incomplete* and without figures where a source's coverage is too low; *provisional* where a node has no price, or
    one that a better source will replace.
    """
    shortfall = _shortfall(usage, rules)
    if shortfall:
        notes = (*shortfall, *usage.notes)
        return HourRecord(usage.cluster, usage.hour, "incomplete", usage.coverage, None, notes=notes)
    if any(pod.holding.units > MAX_UNITS for pod in usage.pods):  # stored before requests had bounds
        return _beyond_reason(usage, usage.notes)
    try:
        return _rated(usage, rules)
    except ArithmeticError:  # more digits than any amount has
        return _beyond_reason(usage, usage.notes)


def _rated(usage: Usage, rules: AttributionRules) -> HourRecord:
    rated = rate_usage(usage, rules.pricing)
    units = units_at(rules.business_units, usage.hour)
    owners = BusinessUnitMatcher(units)
    own = [_line(pod, owners.business_unit_of(pod.usage.holding.pod), rules) for pod in rated.pods]
    lines = tuple(distribute_lines(own, {unit.name: unit.distribute for unit in units if unit.distribute}))
    totals = Totals(Costs.total(line.costs() for line in lines), rated.capacity)
    if not totals.are_reasonable():
        return _beyond_reason(usage, (*usage.notes, *rated.notes))
    return HourRecord(
        cluster=usage.cluster,
        hour=usage.hour,
        status="complete" if rated.is_final else "provisional",
        coverage=usage.coverage,
        totals=totals,
        lines=lines,
        notes=(*usage.notes, *rated.notes),
        nodes=tuple(rated.nodes),
        charges=tuple(rated.charges),
        currency=rules.pricing.currency,
    )


def _beyond_reason(usage: Usage, notes: Sequence[str]) -> HourRecord:
    beyond = f"{SUSPECT}figures are beyond {MAX_AMOUNT:,} USD or GPU-hours; the hour is left without figures"
    return HourRecord(usage.cluster, usage.hour, "incomplete", usage.coverage, None, notes=(beyond, *notes))


def _shortfall(usage: Usage, rules: AttributionRules) -> list[str]:
    found = []
    if not usage.coverage.allocation or usage.coverage.allocation < rules.min_allocation_coverage:
        found.append(_too_low("allocation", usage.coverage.allocation, rules.min_allocation_coverage))
    measured = usage.coverage.utilization
    if measured is not None and measured < rules.min_utilization_coverage:
        found.append(_too_low("utilization", measured, rules.min_utilization_coverage))
    return found


def _too_low(source: str, seen: Decimal, least: Decimal) -> str:
    if not seen:
        return f"no scrape of the {source} source was seen in this hour"
    return f"coverage of {source} is {seen:.1%}, below the {least:.1%} that settings ask for"


def _line(rated: RatedPod, business_unit: str, rules: AttributionRules) -> Line:
    holding, measured = rated.usage.holding, rated.usage.measurement
    pod, node = holding.pod, holding.node
    price = rated.price if isinstance(rated.price, NodePrice) else None
    unknown = measured.source == "none" and holding.running.length > 0
    return Line(
        business_unit=business_unit,
        namespace=pod.namespace,
        workload_kind=pod.workload_kind,
        workload=pod.workload,
        pod=pod.pod,
        uid=pod.uid,
        node=node.name,
        node_pool=node.node_pool,
        instance_type=node.instance_type,
        capacity_type=node.capacity_type,
        zone=node.zone,
        gpu_model=node.gpu_model,
        resource=kubernetes_resource(holding.resource),
        units=holding.units,
        gpu_share=holding.share.rounded,
        gpu_share_source=holding.share.source,
        labels={name: pod.labels[label] for name, label in rules.cost_labels.items() if label in pod.labels},
        split_policy=price.split_policy if price else "",
        allocated_gpu_hours=rated.allocated_gpu_hours,
        effective_gpu_hours=None if unknown else rated.effective_gpu_hours,
        utilization=None if measured.utilization is None else quantize(measured.utilization),
        utilization_source=measured.source,
        unmeasured_gpu_hours=rated.unmeasured_gpu_hours,
        gpu_hourly_usd=rated.gpu_hourly_usd,
        price_source=price.source if price else "",
        allocated_usd=rated.allocated_usd,
        effective_usd=None if unknown else rated.effective_usd,
        waste_usd=None if unknown and not rated.waste_usd else rated.waste_usd,
        unmeasured_usd=rated.unmeasured_usd,
        used_beyond_allocation_gpu_hours=quantize(Fraction(measured.used_beyond_allocation_gpu_ms, HOUR_MS))
        if measured.used_beyond_allocation_gpu_ms
        else ZERO,
    )


def _has_all(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return bool(wanted) and all(labels.get(name) == value for name, value in wanted.items())
