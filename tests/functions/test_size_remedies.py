"""A query that is refused for its size succeeds when it does what the refusal says, on stores that are too large."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpucost.container import Container
from gpucost.core.amounts import Costs
from gpucost.core.hour_record import Line
from gpucost.core.ledger import Limits, Manifest, Quota
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.muting import Silence
from gpucost.features.alerting.rule_kinds.base import Subject
from gpucost.features.alerting.storage import AlertHistory, SilenceStore
from gpucost.features.exports.exported_days import ExportedDay
from gpucost.features.exports.storage import DynamoExports
from gpucost.features.recommendations.kinds import KindName
from gpucost.features.recommendations.model import Recommendation, RecommendationSubject
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.reports.cost_reader import MAX_CELLS, MAX_LINES
from gpucost.storage.limits_store import LimitsStore
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.main import main
from tests.features.recommendations.sample_recommendations import PROPOSED
from tests.functions.api_requests import ApiResponse, request_as, serving
from tests.functions.in_memory_hours import DAY, FINANCE, NOW, InMemoryHours, at, usd
from tests.records import line

pytestmark = pytest.mark.tools  # seconds

Query = dict[str, str]
FIRST_HOUR = {"start": "2026-11-19T00:00:00Z", "end": "2026-11-19T01:00:00Z"}
MONTHS = {"start": "2026-07-01", "end": "2026-11-01", "granularity": "total"}


class LargeHours(InMemoryHours):
    """Hours in which one unit has as many lines, and each hour as long a note, as a test needs."""

    line_count = note_length = 0

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        return [line()] * (self.line_count if business_unit in {None, "research"} else 0)

    def notes_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[str, ...]]:
        return {manifest.hour: ("x" * self.note_length,) for manifest in manifests}


@pytest.fixture
def hours() -> Iterator[LargeHours]:
    hours = LargeHours()
    with serving(Container(clock=lambda: NOW, ledger=hours, rollups=hours, settings_store=hours)):
        yield hours


@pytest.fixture
def stored(sqlite_table: SqliteTable) -> Iterator[SqliteTable]:
    """A deployment with settings of two clusters, on a table."""
    with serving(Container(clock=lambda: NOW, table=sqlite_table, settings_store=InMemoryHours())):
        yield sqlite_table


def ask(route: str, query: Query) -> ApiResponse:
    return request_as(FINANCE, route, query)


def follow(route: str, refused: Query, remedy: str, *followed: Query) -> None:
    """Check that a query is refused with this remedy, and that each query that follows it succeeds."""
    answer = ask(route, refused)
    assert answer.status == 400, answer.body[:500]
    assert remedy in answer.json["detail"]
    for query in followed:
        answer = ask(route, query)
        assert answer.status == 200, (query, answer.body[:500])


# ---------------------------------------------------------------- costs


def test_report_with_too_many_rows_has_fewer_by_each_remedy(hours: LargeHours) -> None:
    groups = {(f"unit-{unit}", "n"): usd("1") for unit in range(MAX_CELLS // 4 + 1)}
    for cluster in ("east", "west"):
        for hour in range(2):
            hours.put(cluster, at(hour), groups)
    query = {**DAY, "granularity": "hour", "group_by": "cluster,business_unit", "limit": "10"}
    follow(
        "/v1/costs",
        query,
        "Shorten the period, use granularity=day or total, group by fewer dimensions, or select one cluster.",
        {**query, **FIRST_HOUR},
        {**query, "granularity": "day"},
        {**query, "granularity": "total"},
        {**query, "group_by": "business_unit"},
        {**query, "cluster": "west"},
    )


def test_pods_of_too_many_hours_are_reported_by_each_remedy(hours: LargeHours) -> None:
    hours.line_count = 1
    hours.put("east", at(0), {("research", "bu-a"): line().costs()})
    query = {"start": "2026-11-16", "end": "2026-11-20", "granularity": "hour", "group_by": "workload"}
    follow(
        "/v1/costs",
        query,
        "Use granularity=day, group and filter by business_unit and namespace only, or shorten the period.",
        {**query, "granularity": "day"},
        {**query, "group_by": "namespace"},
        {**query, "group_by": "business_unit", "namespace": "bu-a"},
        {**query, "start": "2026-11-19"},
    )


@pytest.mark.parametrize(
    ("route", "remedy", "ways"),
    [
        (
            "/v1/costs",
            "Shorten the period, select one business_unit, or group and filter by business_unit and cluster only.",
            ({"idle": "hidden"}, {"group_by": "cluster,business_unit"}),
        ),
        ("/v1/waste", "Shorten the period, or select one business_unit.", ()),
    ],
)
def test_too_many_days_are_read_by_each_remedy(
    hours: LargeHours, route: str, remedy: str, ways: tuple[Query, ...]
) -> None:
    period = {"start": MONTHS["start"], "end": MONTHS["end"]}
    query = {**MONTHS, "group_by": "workload", "idle": "separate"} if route == "/v1/costs" else period
    follow(
        route,
        query,
        remedy,
        {**query, "start": "2026-10-01"},
        {**query, "business_unit": "research"},
        *({**query, **way} for way in ways),
    )


def test_too_many_pods_are_read_by_each_remedy(hours: LargeHours) -> None:
    hours.line_count = MAX_LINES // 2 + 1
    costs = Costs.total([line().costs()] * hours.line_count)
    for hour in range(2):
        hours.put("east", at(hour), {("research", "bu-a"): costs})
    query = {**DAY, "group_by": "resource", "granularity": "hour"}
    follow(
        "/v1/costs",
        query,
        "Shorten the period, or select one cluster or one business_unit.",
        {**query, **FIRST_HOUR},
        {**query, "cluster": "west"},
        {**query, "business_unit": "idle"},
    )


def test_many_hours_are_listed_page_by_page(hours: LargeHours) -> None:
    clusters = [{"name": f"c{number:02}", "prometheus": {"url": "http://127.0.0.1:9090"}} for number in range(12)]
    hours.document = json.dumps({"clusters": clusters, "pricing": {"source": "constant", "gpu_hourly_usd": 12}})
    query = {"start": "2026-10-16", "end": "2026-11-20"}
    first = ask("/v1/hours", query).json
    second = ask("/v1/hours", {**query, "cursor": first["cursor"]}).json
    assert (len(first["rows"]), second["cursor"]) == (10_000, None)
    listed = [(row["hour"], row["cluster"]) for row in [*first["rows"], *second["rows"]]]
    assert (len(listed), listed) == (35 * 24 * 12, sorted({*listed}))


def test_long_notes_fill_several_pages(hours: LargeHours) -> None:
    hours.note_length = 1_500_000
    for cluster in ("east", "west"):
        for hour in range(2):
            hours.put(cluster, at(hour), {("research", "bu-a"): usd("1")})
    first = ask("/v1/hours", {**DAY, "end": "2026-11-19T02:00:00Z"}).json
    second = ask("/v1/hours", {**DAY, "end": "2026-11-19T02:00:00Z", "cursor": first["cursor"]}).json
    assert [len(page["rows"]) for page in (first, second)] == [2, 2]


# ---------------------------------------------------------------- other stores


def test_too_many_quotas_are_listed_by_each_remedy(stored: SqliteTable) -> None:
    quotas = tuple(Quota(f"n{number}", "gpus", "nvidia.com/gpu", Decimal(1), None) for number in range(2_501))
    for cluster in ("east", "west"):
        for hour in range(2):
            LimitsStore(stored).put(Limits(cluster, at(hour), (), quotas), NOW + timedelta(days=100_000))
    follow("/v1/quotas", DAY, "Shorten the period, or select one cluster.", FIRST_HOUR, {**DAY, "cluster": "west"})


def test_too_many_notifications_are_listed_in_a_shorter_period(stored: SqliteTable) -> None:
    def notification(number: int) -> Notification:
        hour = at(number % 2)
        subject = Subject("east", detail=f"{number}")
        return Notification(f"{number}", "firing", "waste", "waste", "info", subject, hour, hour, "研" * 600, {})

    AlertHistory(stored).add("east", [notification(number) for number in range(2_000)])
    follow("/v1/alerts", DAY, "Shorten the period.", FIRST_HOUR)


def test_too_many_silences_are_listed_by_the_command(stored: SqliteTable, capsys: pytest.CaptureFixture[str]) -> None:
    store = SilenceStore(stored)
    for number in range(4_000):
        store.put(Silence(f"{number:012}", "me", "研" * 500, NOW, NOW + timedelta(days=10_000), {"rule": "waste"}))
    answer = ask("/v1/silences", {})
    assert (answer.status, "List them with `gpucost alerts silence list`." in answer.body) == (400, True)
    main(["alerts", "silence", "list", "--stack", "test"], Container(clock=lambda: NOW, table=stored))
    assert len(capsys.readouterr().out.splitlines()) == 4_000


class Bucket:
    """A bucket that signs URLs."""

    def url(self, key: str, *, name: str, seconds: int) -> str:
        return f"https://exports.internal/{key}?{name}&{seconds}"


def test_too_many_exported_days_are_listed_by_each_remedy(sqlite_table: SqliteTable) -> None:
    hours = InMemoryHours()
    clusters = [{"name": f"c{number}", "prometheus": {"url": "http://127.0.0.1:9090"}} for number in range(5)]
    hours.document = json.dumps({"clusters": clusters, "pricing": {"source": "constant", "gpu_hourly_usd": 12}})
    exports = DynamoExports(sqlite_table, timedelta(days=100_000))
    for number in range(5):
        for days in range(81):
            day = at(0) - timedelta(days=days)
            exports.put(ExportedDay(f"c{number}", day, 1, "complete", 1, 1, 1, "USD", NOW, "", 1))
    query = {"start": "2026-08-31", "end": "2026-11-20"}
    parts: dict[str, Any] = {"exports": exports, "export_bucket": Bucket(), "ledger": hours, "settings_store": hours}
    with serving(Container(clock=lambda: NOW, **parts)):
        follow(
            "/v1/exports",
            query,
            "Shorten the period, or select one cluster.",
            {**query, "start": "2026-10-01"},
            {**query, "cluster": "c3"},
        )


def test_too_long_recommendations_are_listed_by_each_remedy(stored: SqliteTable) -> None:
    store = DynamoRecommendations(stored)
    kinds: tuple[KindName, ...] = ("idle", "spot")
    for number, kind in enumerate(kinds):
        for cluster in ("east", "west"):
            subject = RecommendationSubject(cluster, ("research", "idle")[number], "n", "Deployment", kind)
            content = replace(PROPOSED, kind=kind, subject=subject, patch="x" * 2_000_000)
            store.put(Recommendation(content, "open", NOW, NOW, NOW))
    follow(
        "/v1/recommendations",
        {},
        "Select one cluster, business_unit or kind.",
        {"cluster": "west"},
        {"business_unit": "research"},
        {"kind": "idle"},
    )
