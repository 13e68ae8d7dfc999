"""Every period that the page offers is answered for fleets of any size, with the sums of its hours.

The periods are read from the page's own list. The requests are those that its views send.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpucost.container import Container
from gpucost.core.access import FULL_ACCESS
from gpucost.core.costs_by_model import InferenceRules, costs_by_model
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import DAY, HOUR, floor_day, format_timestamp
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.core.query.grouping import GroupRow
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.report_service import ReportService
from gpucost.settings_document import parse_settings
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import ClusterDeparture, StoredSettings
from gpucost.storage.rollups import RollupStore
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_devstack.template import REPOSITORY
from tests.functions.api_requests import iam_caller, request_as, serving
from tests.records import line, record

pytestmark = pytest.mark.tools  # seconds

NOW = datetime(2026, 11, 20, 6, 5, tzinfo=UTC)
LEFT = NOW - 20 * DAY
"""When the last cluster left the settings."""
CLUSTERS = [f"c{number}" for number in range(8)]
ADMIN = iam_caller("arn:aws:iam::123456789012:user/x")
LONGEST = "90d"
WINDOWS = re.findall(r'^  "?(\w+)"?: "', (REPOSITORY / "web" / "src" / "periods.ts").read_text(), re.MULTILINE)


def hours_of(cluster: str) -> Iterator[HourRecord]:
    """An hour of every third day of half a year, and the newest ones; a business unit trains, another one serves."""
    number = CLUSTERS.index(cluster)
    past = [floor_day(NOW) - DAY * days + HOUR * (days % 24) for days in range(3, 190, 3)]
    newest = [NOW.replace(minute=0) - HOUR * hours for hours in (1, 2, 30)]
    for hour in sorted({*past, *newest}):
        if cluster == CLUSTERS[-1] and hour >= LEFT:
            continue
        age = (NOW - hour) // HOUR
        lines = [
            line("research", "bu-a", f"train-{age % 5}", f"{number + 1}.{age:012}")._replace(
                workload=f"train-{age % 5}"
            ),
            line("serving", "bu-b", "llama-0", f"0.{age:06}{number:06}")._replace(workload="llama"),
        ]
        served = [ServedTokens("bu-b", "llama-0", "vllm", "llama", 300_000 + age, 40_000, 0, 500)]
        models = tuple(costs_by_model(lines, served, InferenceRules()))
        yield replace(record(lines, hour=hour, cluster=cluster), models=models)


class Store:
    """Settings of some clusters, of which the last one has left if there are several."""

    def __init__(self, count: int) -> None:
        self.clusters = [*CLUSTERS[: count - 1], CLUSTERS[-1]] if count > 1 else CLUSTERS[:1]
        present = self.clusters[:-1] if count > 1 else self.clusters
        text = "\n".join(
            [
                "clusters:",
                *(f'  - {{name: {name}, prometheus: {{url: "http://127.0.0.1:9090"}}}}' for name in present),
                "pricing: {source: constant, gpu_hourly_usd: 12}",
                'business_units: [{name: research, namespaces: ["bu-a"]}, {name: serving, namespaces: ["bu-b"]}]',
            ]
        )
        departed = {CLUSTERS[-1]: ClusterDeparture(LEFT, 1)} if count > 1 else {}
        self.stored = StoredSettings(1, text, parse_settings(text), "test", NOW, departed_clusters=departed)

    def current(self) -> StoredSettings:
        return self.stored


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SqliteTable, list[HourRecord]]]:
    folder: Path = tmp_path_factory.mktemp("ledger")
    with SqliteTable(folder) as table:
        records = [hour for cluster in CLUSTERS for hour in hours_of(cluster)]
        for hour in records:
            Ledger(table).publish(hour, replacing=None, settings_version=1, now=NOW)
        for cluster, day in {(hour.cluster, floor_day(hour.hour)) for hour in records}:
            RollupStore(table).roll_up(cluster, day, NOW)
        yield table, records


def pages(path: str, query: Mapping[str, str]) -> tuple[list[Any], Any]:
    """The rows of all pages, and the first page."""
    rows: list[Any] = []
    first: Any = None
    cursor: str | None = None
    while True:
        answer = request_as(ADMIN, path, {**query, **({} if cursor is None else {"cursor": cursor})})
        assert answer.status == 200, (path, query, answer.body[:500])
        first = first or answer.json
        rows += answer.json["rows"]
        cursor = answer.json.get("cursor")
        if cursor is None:
            return rows, first


def spent(records: Sequence[HourRecord], unit: str = "") -> Decimal:
    """The cost of hours, from the text of their lines' amounts."""
    amounts = [pod.allocated_usd or 0 for hour in records for pod in hour.lines if unit in {"", pod.business_unit}]
    return sum((Decimal(usd).scaleb(-12) for usd in amounts), Decimal(0))


def costs_of_views(days: int, cluster: str | None) -> Iterator[tuple[str, dict[str, str], str]]:
    """What the views ask of costs, and the business unit that it is about."""
    filters = {} if cluster is None else {"cluster": cluster}
    total = {**filters, "granularity": "total"}
    grain = {**filters, "granularity": "hour" if days <= 14 else "day"}
    yield "overview", {**total, "group_by": "business_unit", "sort": "-waste_usd"}, ""
    yield "overview", {**grain, "group_by": "business_unit"}, ""
    yield "overview", {**total, "group_by": "business_unit,cluster"}, ""
    yield "overview", {**total, "group_by": "namespace,workload_kind,workload", "business_unit": "research"}, "research"
    yield "unit", {**grain, "business_unit": "serving"}, "serving"
    yield (
        "unit",
        {**total, "business_unit": "serving", "group_by": "cluster,namespace,workload_kind,workload"},
        "serving",
    )
    yield "unit", {**total, "business_unit": "serving", "group_by": "gpu_model,node_pool,capacity_type"}, "serving"
    yield "health", {**total, "group_by": "cluster,business_unit,namespace,workload"}, ""
    yield "health", {**total, "group_by": "cluster,node_pool,instance_type,capacity_type"}, ""
    yield "health", {**filters, "granularity": "hour" if days <= 35 else "day", "group_by": "cluster"}, ""
    yield "nodes", {**total}, ""
    chart = "hour" if days <= 2 else "day"
    for by in ("workload", "node_pool"):
        yield "explore", {**total, "group_by": by}, ""
        yield "explore", {**total, "group_by": by, "idle": "shared-by-allocation"}, ""
        yield "explore", {**filters, "granularity": chart, "group_by": by}, ""
    yield "explore", {**total, "group_by": "workload_kind,workload"}, ""


@pytest.mark.parametrize(
    ("count", "window"),
    [
        pytest.param(*case, marks=() if case[0] == 8 or case[1] == LONGEST else pytest.mark.nightly)
        for case in product((1, 3, 4, 8), WINDOWS)
    ],
)
def test_every_offered_period_is_answered_in_every_view(
    published: tuple[SqliteTable, list[HourRecord]], count: int, window: str
) -> None:
    table, records = published
    store = Store(count)
    with serving(Container(clock=lambda: NOW, table=table, settings_store=store)):
        _, whole = pages("/v1/costs", {"window": window, "granularity": "total"})
        period = {"start": whole["start"], "end": whole["end"]}
        start, end = (datetime.fromisoformat(period[name]) for name in ("start", "end"))
        earlier = {"start": format_timestamp(start - (end - start)), "end": period["start"]}
        hours = [hour for hour in records if hour.cluster in store.clusters and start <= hour.hour < end]
        days = (end - start) / timedelta(days=1)
        for view, query, unit in costs_of_views(int(days), None):
            rows, _ = pages("/v1/costs", {**period, **query})
            assert sum((row["allocated_usd"] for row in rows), Decimal(0)) == spent(hours, unit), (view, query)
            if query.get("group_by") == "workload" and query["granularity"] == "total":  # the page compares it
                pages("/v1/costs", {**earlier, **query})
        listed, _ = pages("/v1/hours", period)
        ended = (end - start) // HOUR
        of_departed = sum(hour.cluster == CLUSTERS[-1] for hour in hours) if count > 1 else 0
        assert len(listed) == ended * (count - (count > 1)) + of_departed
        assert sum(row["status"] == "complete" for row in listed) == len(hours)
        assert pages("/v1/restatements", period)[0] == []
        for by in ("", "model", "consumer"):
            rows, _ = pages(
                "/v1/inference",
                {**period, "granularity": "total", "group_by": by} if by else {**period, "granularity": "total"},
            )
            assert sum((row["allocated_usd"] for row in rows), Decimal(0)) == spent(hours)
        pages("/v1/waste", period)
        pages("/v1/fleet", {**period, "granularity": "hour" if days <= 14 else "day"})
        pages("/v1/split-policies", {**period, "start": format_timestamp(max(start, end - 7 * DAY))})  # as the page


def test_hours_of_all_pages_are_those_of_one(published: tuple[SqliteTable, list[HourRecord]]) -> None:
    table, _ = published
    query = {"start": "2026-11-01", "end": "2026-11-08"}
    with serving(Container(clock=lambda: NOW, table=table, settings_store=Store(4))):
        rows, first = pages("/v1/hours", query)
        assert first["cursor"] is None
        paged, first = pages("/v1/hours", {**query, "limit": "100"})
        assert (paged, len(first["rows"])) == (rows, 100)
        other = request_as(
            ADMIN, "/v1/hours", {**query, "end": "2026-11-09", "limit": "100", "cursor": first["cursor"]}
        )
        assert (other.status, "is of another query" in other.body) == (400, True)


@pytest.mark.parametrize(
    ("group_by", "granularity", "idle", "filters"),
    [
        ("workload", "total", "hidden", {}),
        ("workload", "week", "hidden", {"namespace": "bu-a"}),
        ("namespace,workload", "day", "hidden", {}),
        ("cluster,workload", "total", "hidden", {"workload": "train-*"}),
        ("workload", "total", "shared-by-allocation", {}),
        ("workload", "month", "separate", {"workload": "!llama"}),
    ],
)
def test_parts_of_a_large_report_add_up_to_it(
    published: tuple[SqliteTable, list[HourRecord]], group_by: str, granularity: Any, idle: Any, filters: dict[str, str]
) -> None:
    table, _ = published
    ledger = Ledger(table)

    def read(max_part_work: int, limit: int) -> tuple[dict[tuple[object, ...], list[GroupRow]], list[Any], int]:
        """The rows by group, what the filters exclude, and the number of parts."""
        rollups = RollupStore(table)
        service = ReportService(Store(4), ledger, rollups, lambda: NOW, lambda: (), max_part_work=max_part_work)  # type: ignore[arg-type]
        rows: dict[tuple[object, ...], list[GroupRow]] = {}
        excluded, parts, cursor = [], set(), None
        while True:
            report = service.costs(
                QueryParameters(
                    start="2026-09-01",
                    end="2026-11-20T06:00:00Z",
                    granularity=granularity,
                    group_by=group_by,
                    filters=filters,
                    idle=idle,
                    limit=limit,
                    cursor=cursor,
                ),
                scope=FULL_ACCESS,
            )
            for row in report.rows:
                rows.setdefault((row.start, row.kind, *row.group.values()), []).append(row)
            if report.offset // 1_000_000 not in parts:
                excluded.append(report.filtered_out)
                parts.add(report.offset // 1_000_000)
            assert report.has_parts() == (max_part_work == 1)
            cursor = report.cursor_after(len(report.rows))
            if cursor is None:
                return rows, excluded, len(parts)

    def sums(rows: Sequence[GroupRow | None]) -> tuple[Any, Any]:
        present = [row for row in rows if row is not None]
        costs = [row.costs for row in present]
        idles = [row.idle for row in present if row.idle is not None]
        return type(costs[0]).total(costs) if costs else None, type(idles[0]).total(idles) if idles else None

    at_once, excluded, count = read(10**9, 10_000)
    assert count == 1
    in_parts, excluded_of_parts, count = read(1, 3)
    assert count == 4 if idle != "hidden" else count > 4 * 10
    assert {key: sums(rows) for key, rows in at_once.items()} == {key: sums(rows) for key, rows in in_parts.items()}
    assert sums(excluded) == sums(excluded_of_parts)
