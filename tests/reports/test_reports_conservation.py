"""Whatever a report is parameters, its rows are what the raw lines say and add up to the fleet, to the last digit.

The truth is worked out from lines in fractions, by code that shares nothing with the product. More cases than CI runs:
`GPUCOST_REPORT_CASES=5000 python -m pytest tests/reports/test_reports_conservation.py`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucost.core.access import FULL_ACCESS
from gpucost.core.amounts import SCALE, CapacityCosts, Costs
from gpucost.core.errors import InvalidInputError
from gpucost.core.hour_record import Line
from gpucost.core.hours import DAY, HOUR
from gpucost.core.query.grouping import GroupRow
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.records import CostReport
from gpucost.reports.report_service import ReportService
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table
from tests.features.recommendations import small_fleets
from tests.features.recommendations.small_fleets import CLUSTERS, DAYS, FIRST, NAMES, NOW, TEAMS, SmallFleet

CASES = int(os.environ.get("GPUCOST_REPORT_CASES", "25"))
DIMENSIONS = (*NAMES, "cluster", "label:team")


@dataclass(frozen=True)
class Wanted:
    """A filter as a person means it: names, whether they are how names begin, and whether they are left out."""

    dimension: str
    names: tuple[tuple[str, bool, bool], ...]

    def text(self) -> str:
        return ",".join(
            ("team:" if self.dimension.startswith("label") else "") + "!" * is_out + _escaped(name) + "*" * is_prefix
            for name, is_prefix, is_out in self.names
        )

    def passes(self, name: str) -> bool:
        def is_meant(wanted: str, is_prefix: bool) -> bool:
            return (name != "" and name[: len(wanted)] == wanted) if is_prefix else name == wanted

        inside = [(wanted, is_prefix) for wanted, is_prefix, is_out in self.names if not is_out]
        outside = [(wanted, is_prefix) for wanted, is_prefix, is_out in self.names if is_out]
        return (not inside or any(is_meant(*pattern) for pattern in inside)) and not any(
            is_meant(*pattern) for pattern in outside
        )


def _escaped(name: str) -> str:
    for special in "\\,!*":
        name = name.replace(special, "\\" + special)
    return name


@st.composite
def filters(draw: st.DrawFn) -> Wanted:
    dimension = draw(
        st.sampled_from(["business_unit", *(dimension for dimension in DIMENSIONS if dimension != "cluster")])
    )
    candidates = [name for name in (TEAMS if dimension.startswith("label") else NAMES[dimension]) if name]
    names = draw(st.lists(st.tuples(st.sampled_from(candidates), st.booleans(), st.booleans()), min_size=1, max_size=3))
    shortened = tuple((name[:2] if is_prefix else name, is_prefix, is_out) for name, is_prefix, is_out in names)
    plain = tuple((name, False, False) for name, _, _ in names)
    return Wanted(dimension, draw(st.sampled_from([plain, shortened, (("", True, True),)])))


@dataclass(frozen=True)
class Case:
    start: datetime
    end: datetime
    granularity: Any
    group_by: tuple[str, ...]
    filters: tuple[Wanted, ...]
    idle: Any
    clusters: tuple[str, ...]
    limit: int

    def parameters(self, cursor: str | None = None) -> QueryParameters:
        return QueryParameters(
            start=f"{self.start:%Y-%m-%dT%H:%M:%SZ}",
            end=f"{self.end:%Y-%m-%dT%H:%M:%SZ}",
            granularity=self.granularity,
            group_by=",".join(self.group_by),
            filters={cost_filter.dimension.partition(":")[0]: cost_filter.text() for cost_filter in self.filters},
            cluster=",".join(self.clusters),
            idle=self.idle,
            limit=self.limit,
            cursor=cursor,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    first, last = sorted(draw(st.lists(st.integers(0, DAYS * 24), min_size=2, max_size=2, unique=True)))
    if draw(st.booleans()):
        first, last = first // 24 * 24, last // 24 * 24 + 24
    dimensions = draw(st.sampled_from([DIMENSIONS, ("business_unit", "cluster"), ("business_unit", "namespace")]))
    chosen = draw(st.lists(filters(), max_size=2, unique_by=lambda cost_filter: cost_filter.dimension))
    return Case(
        FIRST + first * HOUR,
        min(FIRST + last * HOUR, FIRST + DAYS * DAY),
        draw(st.sampled_from(["hour", "day", "week", "month", "total"])),
        tuple(draw(st.lists(st.sampled_from(dimensions), max_size=3, unique=True))),
        tuple(chosen),
        draw(st.sampled_from(["hidden", "separate", "shared-by-allocation", "shared-evenly"])),
        draw(st.sampled_from([CLUSTERS, CLUSTERS, CLUSTERS[:1]])),
        draw(st.sampled_from([7, 10_000])),
    )


@st.composite
def cases_of_days(draw: st.DrawFn) -> Case:
    """What whole days' sums alone answer: nothing else is read that they could be compared with."""
    first = draw(st.integers(0, DAYS - 1))
    return Case(
        FIRST + first * DAY,
        FIRST + draw(st.integers(first + 1, DAYS)) * DAY,
        draw(st.sampled_from(["day", "week", "month", "total"])),
        draw(st.sampled_from([("business_unit",), ("business_unit", "cluster"), ("cluster",)])),
        (),
        draw(st.sampled_from(["hidden", "separate", "shared-by-allocation"])),
        draw(st.sampled_from([CLUSTERS, CLUSTERS, CLUSTERS[:1]])),
        10_000,
    )


@pytest.fixture(scope="module")
def fleets(dynamodb_url: str) -> Iterator[list[SmallFleet]]:
    client = local_client("dynamodb", dynamodb_url)
    made = []
    for seed in range(2):
        table = f"reports-{uuid4()}"
        create_table(client, table)
        made.append(small_fleets.publish(small_fleets.make(seed), client, table))
    yield made


def service_of(fleet: SmallFleet) -> ReportService:
    return ReportService(fleet, fleet.ledger, fleet.rollups, clock=lambda: NOW, closed_months=lambda: ())  # type: ignore[arg-type]


def whole(fleet: SmallFleet, case: Case) -> tuple[list[GroupRow], CostReport]:
    """All pages."""

    service, rows, cursor = service_of(fleet), [], None
    while True:
        report = service.costs(case.parameters(cursor), scope=FULL_ACCESS)
        rows += report.rows
        assert len(report.rows) <= case.limit
        cursor = report.cursor_after(len(report.rows))
        if cursor is None:
            assert len(rows) == report.row_count
            return rows, report


def begin(case: Case, moment: datetime) -> datetime:
    """Start of a moment's row, clipped to the period."""
    day = datetime(moment.year, moment.month, moment.day, tzinfo=moment.tzinfo)
    starts = {
        "hour": moment,
        "day": day,
        "week": day - timedelta(days=day.isoweekday() - 1),
        "month": day.replace(day=1),
        "total": case.start,
    }[case.granularity]
    return max(starts, case.start)


Key = tuple[datetime, tuple[str, ...]]


def passes_filters(case: Case, line: Line, cluster: str) -> bool:
    return all(
        cost_filter.passes(small_fleets.value(line, cluster, cost_filter.dimension)) for cost_filter in case.filters
    )


def held(fleet: SmallFleet, case: Case) -> tuple[dict[Key, list[Line]], list[Line], list[Line]]:
    """Lines by row, those that the filters leave out, and all."""
    groups: dict[Key, list[Line]] = {}
    left, every = [], []
    for record in fleet.hours(case.start, case.end, case.clusters):
        for line in record.lines:
            every.append(line)
            if passes_filters(case, line, record.cluster):
                key = tuple(small_fleets.value(line, record.cluster, name) for name in case.group_by)
                groups.setdefault((begin(case, record.hour), key), []).append(line)
            else:
                left.append(line)
    return groups, left, every


def assert_equal(costs: Costs, lines: list[Line]) -> None:
    assert {name: Fraction(getattr(costs, name), SCALE) for name in Costs.names()} == small_fleets.sums(lines)


@pytest.mark.tools
@settings(max_examples=CASES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=cases(), number=st.integers(0, 1))
def test_rows_match_lines_and_add_up_to_the_fleet(fleets: list[SmallFleet], case: Case, number: int) -> None:
    check(fleets[number], case)


@pytest.mark.tools  # seconds
@settings(max_examples=CASES // 2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=cases_of_days(), number=st.integers(0, 1))
def test_sums_of_whole_days_match_lines(fleets: list[SmallFleet], case: Case, number: int) -> None:
    check(fleets[number], case)


def check(fleet: SmallFleet, case: Case) -> None:
    try:
        rows, report = whole(fleet, case)
    except InvalidInputError as error:
        assert "48" in str(error)
        assert case.end - case.start > timedelta(hours=48)
        return
    groups, left, every = held(fleet, case)

    rows_by_key = {(row.start, tuple(row.group.values())): row for row in rows if row.kind == "held"}
    named = {key: row for key, row in rows_by_key.items() if key in groups or row.costs != Costs()}
    # Grouped by nothing, an hour without a holder has a row: it is known to be nothing.
    assert set(named) == set(groups)
    for key, row in named.items():
        assert_equal(row.costs, groups[key])
        assert case.start <= row.start < row.end <= case.end

    hours = fleet.hours(case.start, case.end, case.clusters)
    assert (report.totals is None) == (not hours)
    if report.totals is None:
        return
    assert_equal(report.totals.costs, every)
    if case.filters:
        assert report.filtered_out is not None
        assert_equal(report.filtered_out.costs, left)
    else:
        assert report.filtered_out is None
    check_identity(report, hours)
    if case.idle != "hidden":
        check_idle(fleet, case, rows, report)


def check_identity(report: CostReport, hours: list[Any]) -> None:
    assert report.totals is not None
    has_capacity = all(hour.totals.capacity is not None for hour in hours)
    assert (report.totals.capacity is not None) == has_capacity
    if report.totals.capacity is not None:
        costs, capacity = report.totals.costs, report.totals.capacity
        parts = [costs.effective_usd, costs.waste_usd, costs.unmeasured_usd]
        parts += [getattr(capacity, name) for name in small_fleets.PARTS]
        assert sum(parts) == capacity.node_cost_usd
        for name in CapacityCosts.names():
            assert getattr(capacity, name) == sum(getattr(hour.totals.capacity, name) for hour in hours)


def check_idle(fleet: SmallFleet, case: Case, rows: list[GroupRow], report: CostReport) -> None:
    """Each row bears what it should to within the digits that splitting moves, and all of it is borne, exactly."""
    exact: dict[tuple[str, Key], Fraction | None] = {}

    def bear(kind: str, key: Key, amount: Fraction | None) -> None:
        before = exact.get((kind, key), Fraction(0))
        exact[kind, key] = None if amount is None or before is None else before + amount

    idle_passes = all(cost_filter.passes("") for cost_filter in case.filters)
    all_idle: Fraction | None = Fraction(0)
    slices: dict[tuple[datetime, str], list[Any]] = {}
    for record in fleet.hours(case.start, case.end, case.clusters):
        slices.setdefault((begin(case, record.hour), record.cluster), []).append(record)
    for (start, cluster), records in slices.items():
        amounts = [small_fleets.idle(record) for record in records]
        amount = None if None in amounts else sum((amount[1] for amount in amounts if amount is not None), Fraction(0))
        all_idle = None if amount is None or all_idle is None else all_idle + amount
        idle_row_key = ("idle", (start, tuple(cluster if name == "cluster" else "" for name in case.group_by)))
        lines = [line for record in records for line in record.lines]
        groups: dict[tuple[str, ...], list[Line]] = {}
        for line in lines:
            groups.setdefault(tuple(small_fleets.value(line, cluster, name) for name in case.group_by), []).append(line)
        if case.idle == "separate" or not lines:
            if idle_passes:
                bear(*idle_row_key, amount)
            continue
        by = "allocated_usd" if any(line.allocated_usd for line in lines) else "allocated_gpu_hours"
        whole_weight = sum(Fraction(getattr(line, by) or 0) for line in lines)
        for key, group_lines in groups.items():
            kept = [line for line in group_lines if passes_filters(case, line, cluster)]
            if not kept:
                continue
            weight = sum(Fraction(getattr(line, by) or 0) for line in group_lines)
            part = sum(Fraction(getattr(line, by) or 0) for line in kept)
            if case.idle == "shared-by-allocation":
                bear("held", (start, key), None if amount is None else amount * part / whole_weight)
            elif weight:
                bear("held", (start, key), None if amount is None else amount / len(groups) * part / weight)
            else:
                return  # shares among lines without a price are not checked
    rows_by_key: dict[tuple[str, Key], GroupRow] = {
        (row.kind, (row.start, tuple(row.group.values()))): row for row in rows
    }
    assert {key for key in rows_by_key if key[0] == "idle"} <= exact.keys()
    for row_key, amount in exact.items():
        row = rows_by_key.get(row_key)
        if row is None:  # an idle row of nothing is not shown where idle is shared
            assert row_key[0] == "idle"
            assert not amount
        elif amount is None:
            assert row.idle is None
        else:
            assert row.idle is not None
            assert abs(Fraction(row.idle.idle_usd, SCALE) - amount) <= Fraction(len(slices), SCALE)
    borne = [row.idle for row in [*rows, *([report.filtered_out] if report.filtered_out else [])]]
    if all_idle is not None:
        assert sum(Fraction(row.idle_usd, SCALE) for row in borne if row is not None) == all_idle
        if report.totals is not None and report.totals.capacity is not None and None not in borne:
            costs = [row.costs.allocated_usd for row in rows]
            costs += [report.filtered_out.costs.allocated_usd] if report.filtered_out else []
            spent = Fraction(sum(costs), SCALE) + all_idle
            assert spent == Fraction(report.totals.capacity.node_cost_usd, SCALE)
