"""Comparisons of split policies: the same node price, split differently, from stored usage."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import jsonschema
import pytest
from msgspec.structs import replace

from gpucost.container import Container
from gpucost.core.access import FULL_ACCESS
from gpucost.core.amounts import SCALE, CapacityCosts
from gpucost.core.errors import InvalidInputError, ParameterError
from gpucost.core.hour_record import Coverage, HourRecord
from gpucost.core.hours import DAY, format_timestamp
from gpucost.core.hours import HOUR as HOUR_LENGTH
from gpucost.core.ledger import Manifest
from gpucost.core.metering.usage import Usage
from gpucost.core.pricing.prices import InstanceShape
from gpucost.features.split_policies.comparison import MAX_PAGE_PODS, PODS_PER_HOUR, SplitComparer
from gpucost.reports.parameters import QueryParameters
from gpucost.runtime.process import Environment
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost_cli import hours_commands
from gpucost_devstack.template import REPOSITORY
from tests.functions.api_requests import iam_caller, request_as, serving
from tests.pipeline.restated import System
from tests.records import HOUR, amount

NOW = datetime.now(UTC).replace(microsecond=0)
DOCUMENT = {
    "clusters": [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9"}}],
    "pricing": {"source": "rates", "rates": [{"node_hourly_usd": 10}], "split": {"gpu": 3, "vcpu": 0.5, "gib": 0.25}},
}

ADMIN = iam_caller("arn:aws:iam::123456789012:user/finance")


@pytest.fixture
def system(ledger_table: Table) -> System:
    system = System(ledger_table)
    system.metrics.instance_type = "g5.2gpus"
    system.store.push(json.dumps(DOCUMENT), author="me", now=NOW)
    system.book.update_shapes([InstanceShape("g5.2gpus", 2, 8, 32 * 1024)], rated_until=HOUR, now=NOW)
    return system


def comparer(system: System, max_page_pods: int = MAX_PAGE_PODS) -> SplitComparer:
    return SplitComparer(system.store, system.ledger, system.pricer, lambda: NOW, max_page_pods=max_page_pods)


def test_every_policy_sums_to_the_same_node_cost(system: System) -> None:
    system.attribute(hours=3, version=2)
    comparison = comparer(system).compare(["demo"], HOUR, HOUR + 3 * HOUR_LENGTH)
    # One of two GPUs is held: half of the GPUs' part of $10, three times. By hand: scad 18 / (18 + 7.2 + 3.2), opencost
    # 1.9 / (1.9 + 0.252888 + 0.135584), own 6 / (6 + 4 + 8).
    parts = {
        "gpu-bears-all": Fraction(1),
        "scad": Fraction(180, 284),
        "opencost": Fraction(1900000, 2288472),
        "datadog": Fraction(95, 100),
        "own": Fraction(1, 3),
    }
    assert {sums.policy_name for sums in comparison} == parts.keys()
    for sums in comparison:
        assert abs(Fraction(sums.costs_by_unit["a"].allocated_usd, SCALE) - 15 * parts[sums.policy_name]) <= Fraction(
            3, 10**12
        )
        assert sums.capacity is not None
        assert (sums.hour_count, sums.capacity.node_cost_usd, sums.notes) == (3, amount(30), {})
        assert sums.capacity.host_usd == amount(30) - 3 * amount(10 * parts[sums.policy_name])


def test_comparison_changes_nothing_and_skips_hours_without_usage(system: System) -> None:
    system.attribute(hours=1, version=2)
    before = system.ledger.manifests("demo", HOUR, HOUR + 5 * HOUR_LENGTH)
    comparison = comparer(system).compare(["demo"], HOUR, HOUR + 5 * HOUR_LENGTH)
    assert {sums.hour_count for sums in comparison} == {1}
    assert system.ledger.manifests("demo", HOUR, HOUR + 5 * HOUR_LENGTH) == before


def test_hour_whose_usage_has_expired_is_skipped(system: System) -> None:
    class ExpiredUsage(Ledger):
        def usage(self, manifest: Manifest) -> Usage | None:
            return None if manifest.hour == HOUR + HOUR_LENGTH else super().usage(manifest)

    system.attribute(hours=3, version=2)
    split_comparer = SplitComparer(system.store, ExpiredUsage(system.table), system.pricer, lambda: NOW)
    sums = split_comparer.compare(["demo"], HOUR, HOUR + 3 * HOUR_LENGTH)
    assert {of_policy.hour_count for of_policy in sums} == {2}


def test_missing_price_under_a_policy_is_null_with_a_note(system: System) -> None:
    system.metrics.instance_type = "x9.unheard-of"
    system.attribute(hours=1, version=2)
    comparison = comparer(system).compare(["demo"], HOUR, HOUR + HOUR_LENGTH)
    shown = {sums.policy_name: sums.costs_by_unit["a"].figures()["allocated_usd"] for sums in comparison}
    assert shown == {"gpu-bears-all": 5, "datadog": Decimal("4.75"), "scad": None, "opencost": None, "own": None}
    assert hours_commands.amounts_by_policy(comparison, "a") == [*shown.values()]
    for sums in comparison:
        assert bool(sums.notes) == (shown[sums.policy_name] is None)
        assert sums.capacity is not None
        assert (sums.capacity.figures()["node_cost_usd"] is None) == (shown[sums.policy_name] is None)


def test_hours_in_two_currencies_are_not_added(system: System) -> None:
    system.attribute(hours=2, version=2)
    pricing = {**DOCUMENT["pricing"], "currency": "EUR"}  # type: ignore[dict-item]
    system.store.push(json.dumps({**DOCUMENT, "pricing": pricing}), author="me", now=NOW)
    system.restate(version=3)
    comparison = comparer(system)
    assert {sums.currency for sums in comparison.compare(["demo"], HOUR, HOUR + HOUR_LENGTH)} == {"EUR"}
    with pytest.raises(InvalidInputError, match="the hours are in EUR and USD, which cannot be added up"):
        comparison.compare(["demo"], HOUR, HOUR + 2 * HOUR_LENGTH)


def test_pages_add_up_to_the_period(system: System) -> None:
    system.attribute(hours=5, version=2)
    period = QueryParameters(start=format_timestamp(HOUR), end=format_timestamp(HOUR + 5 * HOUR_LENGTH))
    whole = comparer(system).page(period, scope=FULL_ACCESS)
    assert (whole.cursor, whole.in_force, {sums.hour_count for sums in whole.policies}) == (None, "own", {5})
    pages = [comparer(system, max_page_pods=2 * (PODS_PER_HOUR + 1)).page(period, scope=FULL_ACCESS)]
    while pages[-1].cursor is not None:
        assert len(pages) < 5
        following = replace(period, cursor=pages[-1].cursor)
        pages.append(comparer(system, max_page_pods=2 * (PODS_PER_HOUR + 1)).page(following, scope=FULL_ACCESS))
    assert [page.policies[0].hour_count for page in pages] == [2, 2, 1], "an hour has one pod"
    for index, sums in enumerate(whole.policies):
        of_pages = [page.policies[index] for page in pages]
        assert {of_page.policy_name for of_page in of_pages} == {sums.policy_name}
        assert sum(of_page.costs_by_unit["a"].allocated_usd for of_page in of_pages) == (
            sums.costs_by_unit["a"].allocated_usd
        )
        assert CapacityCosts.total_if_complete(of_page.capacity for of_page in of_pages) == sums.capacity


def test_policy_in_force_charges_what_was_published(system: System) -> None:
    system.attribute(hours=3, version=2)
    page = comparer(system).page(
        QueryParameters(start=format_timestamp(HOUR), end=format_timestamp(HOUR + 3 * HOUR_LENGTH)), scope=FULL_ACCESS
    )
    (in_force,) = (sums for sums in page.policies if sums.policy_name == page.in_force)
    lines = [line for i in range(3) for line in system.ledger.lines("demo", HOUR + i * HOUR_LENGTH)]
    assert in_force.costs_by_unit["a"].allocated_usd == sum(line.allocated_usd or 0 for line in lines) > 0


def test_cursor_of_restated_hours_is_refused(system: System) -> None:
    system.attribute(hours=3, version=2)
    period = QueryParameters(start=format_timestamp(HOUR), end=format_timestamp(HOUR + 3 * HOUR_LENGTH))
    cursor = comparer(system, max_page_pods=1).page(period, scope=FULL_ACCESS).cursor
    system.store.push(json.dumps({**DOCUMENT, "business_units": []}), author="me", now=NOW)
    system.restate(version=3)
    with pytest.raises(ParameterError, match="figures of the period have changed since"):
        comparer(system).page(replace(period, cursor=cursor), scope=FULL_ACCESS)


def test_long_period_is_refused(system: System) -> None:
    period = QueryParameters(start=format_timestamp(HOUR - 32 * DAY), end=format_timestamp(HOUR))
    with pytest.raises(ParameterError, match="at most 31 days; shorten the period"):
        comparer(system).page(period, scope=FULL_ACCESS)


def test_hour_without_figures_hides_no_other_hour(system: System) -> None:
    system.attribute(hours=1, version=2)
    sums = comparer(system).compare(["demo"], HOUR, HOUR + HOUR_LENGTH)[0]
    before = sums.fields()
    sums.add(HourRecord("demo", HOUR + HOUR_LENGTH, "incomplete", Coverage(Decimal(1), None), None))
    assert sums.fields() == before
    assert sums.hour_count == 1


def test_route_answers_in_pages_with_the_described_fields(system: System) -> None:
    system.attribute(hours=3, version=2)
    split_comparer = comparer(system, max_page_pods=2 * (PODS_PER_HOUR + 1))
    container = Container(
        Environment(table="unused"), settings_store=system.store, split_comparer=split_comparer, clock=lambda: NOW
    )
    period = {"start": format_timestamp(HOUR), "end": format_timestamp(HOUR + 3 * HOUR_LENGTH)}
    with serving(container):
        first = request_as(ADMIN, "/v1/split-policies", period)
        second = request_as(ADMIN, "/v1/split-policies", {**period, "cursor": json.loads(first.body)["cursor"]})
    openapi = json.loads((REPOSITORY / "docs/reference/openapi.json").read_text(encoding="utf-8"))
    schema = openapi["paths"]["/v1/split-policies"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    for answer in (first, second):
        document = {**schema, "components": openapi["components"]}
        jsonschema.validate(json.loads(answer.body), document, cls=jsonschema.Draft202012Validator)
    rows = [json.loads(answer.body, parse_float=Decimal)["rows"] for answer in (first, second)]
    assert [row["is_in_force"] for row in rows[0]] == [row["split_policy"] == "own" for row in rows[0]]
    assert [row["hours"] for row in (rows[0][0], rows[1][0])] == [2, 1]
    # One of two GPUs of a node for $10 is held: $5 an hour where GPUs bear the whole price.
    assert [row["business_units"][0]["allocated_usd"] for row in (rows[0][0], rows[1][0])] == [10, 5]
    assert {row["capacity"]["node_cost_usd"] for row in rows[0]} == {20}
    assert json.loads(second.body)["cursor"] is None
