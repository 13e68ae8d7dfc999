"""Matching pods to business units, fields of lines, and hours without figures."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction

import pytest
from msgspec.structs import replace

from benchmarks.core import instructions
from gpucost.core.attribution import (
    AttributionRules,
    BusinessUnit,
    BusinessUnitMatcher,
    build_record,
    business_units_at,
)
from gpucost.core.hour_record import Coverage, HourRecord
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode, GpuShare
from gpucost.core.metering.observations import PodObservation
from gpucost.core.metering.usage import UNMEASURED, PodUsage, Usage, Use
from gpucost.core.pricing.node_costs import Pricing
from tests.records import amount

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
PRICING = Pricing.constant(Decimal(10))
MINUTE = 60_000


def pod(
    namespace: str = "team", labels: dict[str, str] | None = None, of_namespace: dict[str, str] | None = None
) -> PodObservation:
    return PodObservation(
        namespace,
        "p",
        "u",
        "n",
        (),
        None,
        labels=labels or {},
        namespace_labels=of_namespace or {},
        workload_kind="Deployment",
        workload="web",
    )


def usage(
    *,
    held_minutes: int = 60,
    running_minutes: int = 60,
    coverage: str = "1",
    utilization_coverage: str | None = "1",
    use: Use = UNMEASURED,
) -> Usage:
    """Usage of one pod."""
    node = GpuNode("n", "i-1", "p5.48xlarge", "eu-central-1a", "euc1-az2", "spot", "pool", "H100")
    pod_usage = PodUsage(
        pod(labels={"label_app": "web", "label_other": "x"}),
        node,
        "nvidia_com_mig_1g_10gb",
        2,
        GpuShare(Fraction(1, 7), "mig-profile"),
        IntervalMs(0, held_minutes * MINUTE),
        IntervalMs((held_minutes - running_minutes) * MINUTE, held_minutes * MINUTE),
        0,
        use=use,
    )
    hour_coverage = Coverage(Decimal(coverage), None if utilization_coverage is None else Decimal(utilization_coverage))
    return Usage("c", HOUR, hour_coverage, (pod_usage,), None, ("a note",))


UNITS = (
    BusinessUnit("exact", ("chat",)),
    BusinessUnit("pattern", ("research-*", "lab")),
    BusinessUnit("by-namespace", namespace_labels={"label_owner": "x", "label_stage": "prod"}),
    BusinessUnit("by-pod", pod_labels={"label_team": "vision"}),
    BusinessUnit("late", ("chat", "research-a")),
)


@pytest.mark.parametrize(
    ("observed_pod", "unit"),
    [
        (pod("chat"), "exact"),
        (pod("research-a"), "pattern"),
        (pod("lab"), "pattern"),
        (pod("labs"), "labs"),
        (pod("x", of_namespace={"label_owner": "x", "label_stage": "prod", "label_more": "y"}), "by-namespace"),
        (pod("x", of_namespace={"label_owner": "x"}), "x"),
        (pod("x", {"label_team": "vision"}), "by-pod"),
        (pod("x", {"label_team": "audio"}), "x"),
        (pod("chat", {"label_team": "vision"}), "exact"),
        (pod("alone"), "alone"),
    ],
)
def test_first_matching_unit_gets_pod(observed_pod: PodObservation, unit: str) -> None:
    assert BusinessUnitMatcher(UNITS).business_unit_of(observed_pod) == unit
    assert BusinessUnitMatcher(()).business_unit_of(observed_pod) == observed_pod.namespace


@pytest.mark.parametrize(
    ("unit", "observed_pod"),
    [
        (BusinessUnit("labeled", namespace_labels={"label_a": "x"}), pod("n", of_namespace={"label_a": "x"})),
        (BusinessUnit("labeled", pod_labels={"label_a": "x"}), pod("n", {"label_a": "x"})),
    ],
    ids=["namespace", "pod"],
)
def test_labels_of_a_single_kind_suffice(unit: BusinessUnit, observed_pod: PodObservation) -> None:
    assert BusinessUnitMatcher([BusinessUnit("other", ("chat",)), unit]).business_unit_of(observed_pod) == "labeled"


def test_earlier_unit_matching_labels_wins_over_later_unit_matching_name() -> None:
    units = (BusinessUnit("labels", pod_labels={"label_a": "b"}), BusinessUnit("name", ("team",)))
    matcher = BusinessUnitMatcher(units)
    assert matcher.business_unit_of(pod(labels={"label_a": "b"})) == "labels"
    assert matcher.business_unit_of(pod()) == "name"


def test_names_and_patterns_match_in_order_of_settings() -> None:
    """Compares with a search of every unit for every namespace."""
    names = ["a", "b", "ab", "a-b", "a-*", "?", "[ab]", "[!a]*", "*"]
    generator = random.Random(5)
    for _ in range(300):
        units = [
            BusinessUnit(f"u{number}", tuple(generator.sample(names, generator.randrange(3)))) for number in range(5)
        ]
        matcher = BusinessUnitMatcher(units)
        for namespace in ("a", "b", "ab", "a-b", "a-c", "c", "[ab]"):
            first = (unit.name for unit in units if any(fnmatchcase(namespace, name) for name in unit.namespaces))
            assert matcher.business_unit_of(pod(namespace)) == next(first, namespace)


def test_labels_match_in_order_of_settings() -> None:
    """Compares with a search of every unit for every pod."""
    generator = random.Random(8)

    def some_labels(most: int) -> dict[str, str]:
        return {f"label_{name}": generator.choice("xy") for name in generator.sample("abcd", generator.randrange(most))}

    def has_all(labels: Mapping[str, str], required: Mapping[str, str]) -> bool:
        return required != {} and all(labels.get(name) == value for name, value in required.items())

    matched = 0
    for _ in range(300):
        units = [
            BusinessUnit(f"u{number}", generator.choice([(), ("team",)]), some_labels(3), some_labels(4))
            for number in range(6)
        ]
        matcher = BusinessUnitMatcher(units)
        for observed_pod in [pod(labels=some_labels(5), of_namespace=some_labels(5)) for _ in range(5)]:
            first = next(
                (
                    unit.name
                    for unit in units
                    if observed_pod.namespace in unit.namespaces
                    or has_all(observed_pod.namespace_labels, unit.namespace_labels)
                    or has_all(observed_pod.labels, unit.pod_labels)
                ),
                observed_pod.namespace,
            )
            assert matcher.business_unit_of(observed_pod) == first
            matched += first != observed_pod.namespace
    assert 300 < matched < 1_500


@pytest.mark.parametrize("shared", [{}, {"label_env": "prod"}], ids=["own labels", "and a label of all units"])
def test_units_with_labels_take_no_longer_if_there_are_more_of_them(shared: dict[str, str]) -> None:
    def run(units: int) -> int:
        matcher = BusinessUnitMatcher(
            [BusinessUnit(f"u{number}", pod_labels={**shared, "label_team": f"t{number}"}) for number in range(units)]
        )
        pods = [pod(labels={**shared, "label_team": f"t{number % 20}"}) for number in range(100)]
        return instructions(lambda: [matcher.business_unit_of(observed_pod) for observed_pod in pods])

    assert run(400) <= 1.05 * run(20)


def test_line_has_all_fields_of_pod_node_and_price() -> None:
    measured = usage(use=Use("pod", Fraction(1, 2), 60 * MINUTE, Fraction(60 * MINUTE, 7), Fraction(3_600)))
    rules = AttributionRules(PRICING, cost_labels={"app": "label_app", "gone": "label_gone"})
    (line,) = build_record(measured, rules).lines
    assert (line.business_unit, line.namespace, line.pod, line.uid) == ("team", "team", "p", "u")
    assert (line.workload_kind, line.workload, line.labels) == ("Deployment", "web", {"app": "web"})
    assert (line.node, line.node_pool, line.instance_type, line.zone) == ("n", "pool", "p5.48xlarge", "eu-central-1a")
    assert (line.capacity_type, line.gpu_model, line.resource) == ("spot", "H100", "nvidia.com/mig-1g.10gb")
    assert (line.units, line.gpu_share, line.gpu_share_source) == (2, Decimal("0.142857142857"), "mig-profile")
    assert line.allocated_gpu_hours == amount("0.285714285714")
    assert line.effective_gpu_hours == amount("0.142857142857")
    assert (line.utilization, line.utilization_source) == (Decimal("0.5"), "pod")
    assert line.unmeasured_gpu_hours == line.unmeasured_usd == 0
    assert line.allocated_usd == amount("2.857142857143")
    assert line.effective_usd is not None
    assert line.waste_usd is not None
    assert line.effective_usd + line.waste_usd == line.allocated_usd
    assert line.gpu_hourly_usd == 10
    assert (line.price_source, line.split_policy) == ("constant", "gpu-bears-all")
    assert line.used_beyond_allocation_gpu_hours == amount("0.001")
    assert line.shared_from == ""


def test_unmeasured_use_is_unknown_and_not_zero() -> None:
    (line,) = build_record(usage(), AttributionRules(PRICING)).lines
    assert (line.effective_gpu_hours, line.effective_usd, line.waste_usd, line.utilization) == (None, None, None, None)
    assert line.unmeasured_usd == line.allocated_usd
    assert line.unmeasured_gpu_hours == line.allocated_gpu_hours


def test_image_pull_is_waste_even_if_later_use_is_unmeasured() -> None:
    (line,) = build_record(usage(running_minutes=45), AttributionRules(PRICING)).lines
    assert line.effective_usd is None
    assert line.allocated_usd and line.waste_usd == pytest.approx(line.allocated_usd / 4)
    (line,) = build_record(usage(running_minutes=0), AttributionRules(PRICING)).lines
    assert line.effective_usd == line.unmeasured_usd == 0
    assert line.waste_usd == line.allocated_usd


@pytest.mark.parametrize(
    ("coverage", "utilization_coverage", "notes"),
    [
        ("0.4", "1", ["coverage of allocation is 40.0%, below the minimum of 50.0% in the settings"]),
        ("0", "1", ["Prometheus has no samples of kube-state-metrics in this hour"]),
        ("1", "0.1", ["coverage of utilization is 10.0%, below the minimum of 20.0% in the settings"]),
        ("1", "0", ["Prometheus has no samples of any GPU exporter in this hour"]),
        ("0.5", "0.2", []),
        ("0.9", None, []),
    ],
)
def test_hour_with_low_coverage_has_no_figures(
    coverage: str, utilization_coverage: str | None, notes: list[str]
) -> None:
    rules = AttributionRules(PRICING, min_allocation_coverage=Decimal("0.5"), min_utilization_coverage=Decimal("0.2"))
    record = build_record(usage(coverage=coverage, utilization_coverage=utilization_coverage), rules)
    assert record.notes == (*notes, "a note")
    assert (record.status, record.cluster, record.hour) == ("incomplete" if notes else "complete", "c", HOUR)
    assert (record.totals is None) == bool(notes)
    assert bool(record.lines) != bool(notes)
    assert record.coverage == Coverage(
        Decimal(coverage), None if utilization_coverage is None else Decimal(utilization_coverage)
    )


def test_hour_without_scrapes_has_no_figures_even_without_threshold() -> None:
    assert build_record(usage(coverage="0"), AttributionRules(PRICING)).status == "incomplete"


def test_hour_that_costs_more_than_is_plausible_has_no_figures_and_says_why() -> None:
    record = build_record(usage(), AttributionRules(Pricing.constant(Decimal(10**14))))
    reason = "suspect samples: figures exceed 1,000,000,000,000 USD or GPU-hours, so the hour has none"
    full_coverage = Coverage(Decimal(1), Decimal(1))
    assert record == HourRecord("c", HOUR, "incomplete", full_coverage, None, notes=(reason, "a note"))


def test_shared_unit_is_distributed_over_the_lines_of_other_units() -> None:
    platform = BusinessUnit("platform", ("operators",), distribute="even")
    (pod_usage,) = usage().pods
    pods = tuple(replace(pod_usage, pod=pod(namespace)) for namespace in ("operators", "chat", "lab"))
    record = build_record(replace(usage(), pods=pods), AttributionRules(PRICING, (platform,)))
    distributed = {(line.business_unit, line.shared_from): line.allocated_usd for line in record.lines}
    pod_usd = distributed["chat", ""]
    assert distributed["lab", ""] == pod_usd
    assert (distributed["chat", "platform"] or 0) + (distributed["lab", "platform"] or 0) == pod_usd
    assert ("platform", "") not in distributed
    assert record.totals is not None
    assert record.totals.costs.allocated_usd == sum(usd or 0 for usd in distributed.values())


def test_entries_with_the_same_first_hour_keep_the_first() -> None:
    entries = [BusinessUnit("a", ("x",), since=HOUR), BusinessUnit("a", ("y",), since=HOUR)]
    assert business_units_at(entries, HOUR) == entries[:1]


@pytest.mark.parametrize(("units", "status"), [(100_000, "complete"), (100_001, "incomplete")])
def test_most_units_that_a_pod_can_hold_are_plausible(units: int, status: str) -> None:
    (pod_usage,) = usage().pods
    hour = replace(usage(), pods=(replace(pod_usage, units=units),))
    assert build_record(hour, AttributionRules(PRICING)).status == status
