"""Records of a cluster stay after it is removed from the settings. The tests use DynamoDB Local."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from gpucost.core.access import FULL_ACCESS, Scope
from gpucost.core.amounts import to_decimal
from gpucost.core.errors import AccessDeniedError, ParameterError
from gpucost.core.hours import DAY, HOUR, format_timestamp
from gpucost.features.exports.exported_days import ExportedDay
from gpucost.features.exports.listing import ExportListing
from gpucost.pipeline.months import MonthService
from gpucost.pipeline.refresh_bill import LedgerNodePools
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.report_service import ReportService
from gpucost.settings_document import SettingsDocument, SettingsDocumentStore
from gpucost.storage import settings_store
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import ClusterDeparture, StoredSettings, Table
from gpucost.storage.rollups import RollupStore
from tests.records import amount, line, record

SEPTEMBER, OCTOBER, NOVEMBER = (datetime(2026, month, 1, tzinfo=UTC) for month in (9, 10, 11))
LEFT = datetime(2026, 10, 5, 7, 20, tzinfo=UTC)
NOW = datetime(2026, 11, 1, 0, 30, tzinfo=UTC)


class Fleet:
    """`east` and `west` in September; `west` leaves in October, after it cost a dollar in each of three hours."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.ledger = Ledger(table)
        self.push(SEPTEMBER, "east", "west")
        for hour in (OCTOBER - HOUR, OCTOBER, OCTOBER + HOUR):
            for cluster, usd in (("east", "10"), ("west", "1")):
                hour_record = record([line(usd=usd)], cluster=cluster, hour=hour)
                self.ledger.publish(hour_record, replacing=None, settings_version=1, now=LEFT)
        self.push(LEFT, "east")

    def push(self, at: datetime, *clusters: str) -> StoredSettings:
        """Settings with these clusters."""
        document = {
            "clusters": [{"name": name, "prometheus": {"url": "http://127.0.0.1:9"}} for name in clusters],
            "pricing": {"source": "constant", "gpu_hourly_usd": 12},
        }
        return self.store().push(json.dumps(document), author="me", now=at)

    def store(self) -> SettingsDocumentStore:
        return SettingsDocumentStore(self.table, clock=lambda: NOW)

    def change(self, version: int, **attributes: dict[str, Any]) -> None:
        """Damage a version."""
        item = self.table.get("SETTINGS", f"{version:08d}")
        assert item is not None
        self.table.put_all([{**item, **attributes}])

    def reports(self) -> ReportService:
        rollups = RollupStore(self.table)
        return ReportService(self.store(), self.ledger, rollups, lambda: NOW, self.ledger.versions.closed_months)

    def costs(self, start: datetime, end: datetime) -> dict[str, Decimal]:
        report = self.reports().costs(parameters(start, end, group_by="cluster"), scope=FULL_ACCESS)
        assert report.totals is not None
        costs = {row.group["cluster"]: to_decimal(row.costs.allocated_usd) for row in report.rows}
        assert sum(costs.values()) == to_decimal(report.totals.costs.allocated_usd)
        return costs


def parameters(start: datetime, end: datetime, group_by: str = "", cluster: str | None = None) -> QueryParameters:
    return QueryParameters(
        start=format_timestamp(start),
        end=format_timestamp(end),
        granularity="total",
        group_by=group_by,
        cluster=cluster,
    )


@pytest.fixture
def fleet(ledger_table: Table) -> Fleet:
    return Fleet(ledger_table)


def test_past_of_a_departed_cluster_stays_and_months_add_up_to_their_quarter(fleet: Fleet) -> None:
    assert fleet.costs(SEPTEMBER, OCTOBER) == {"east": 10, "west": 1}
    assert fleet.costs(OCTOBER, NOVEMBER) == {"east": 20, "west": 2}
    assert fleet.costs(SEPTEMBER, NOVEMBER) == {"east": 30, "west": 3}
    only = fleet.reports().costs(parameters(OCTOBER, OCTOBER + DAY, cluster="west"), scope=FULL_ACCESS)
    assert only.totals is not None
    assert only.totals.costs.allocated_usd == amount(2)


def test_no_further_hours_of_a_departed_cluster_are_expected(fleet: Fleet) -> None:
    report = fleet.reports().costs(parameters(OCTOBER, OCTOBER + DAY), scope=FULL_ACCESS)
    assert (report.coverage.hours_complete, report.coverage.hours_expected) == (4, 24 + 2)
    _, page, coverage = fleet.reports().hours(parameters(OCTOBER, OCTOBER + DAY), scope=FULL_ACCESS)
    assert [row.cluster for row in page.rows].count("west") == 2
    assert (coverage.hours_complete, coverage.hours_expected) == (4, len(page.rows))


def test_hours_of_a_departed_cluster_are_missing_up_to_its_departure(fleet: Fleet) -> None:
    rollups = RollupStore(fleet.table)
    month_service = MonthService(fleet.store(), fleet.ledger, fleet.ledger.versions, rollups, lambda: NOW)
    end = LEFT.replace(minute=0) + 3 * HOUR
    east, west = 4 * 24 + 10 - 2, 4 * 24 + 8 - 2
    assert month_service.coverage(OCTOBER, end).missing == east + west


def test_departed_cluster_is_not_in_later_responses(fleet: Fleet) -> None:
    with pytest.raises(ParameterError, match="'west' is not in the settings; allowed: east"):
        fleet.reports().costs(parameters(LEFT.replace(hour=8, minute=0), NOVEMBER, cluster="west"), scope=FULL_ACCESS)
    report = fleet.reports().costs(parameters(OCTOBER + 10 * DAY, OCTOBER + 11 * DAY), scope=FULL_ACCESS)
    assert report.coverage.hours_expected == 24


def test_scoped_caller_sees_only_its_units_of_a_departed_cluster(fleet: Fleet) -> None:
    unit = line().business_unit
    report = fleet.reports().business_unit(unit, parameters(SEPTEMBER, NOVEMBER), scope=Scope(frozenset({unit})))
    assert report.totals is not None
    assert report.totals.costs.allocated_usd == amount(33)
    with pytest.raises(AccessDeniedError):
        fleet.reports().business_unit(unit, parameters(SEPTEMBER, NOVEMBER), scope=Scope(frozenset({"others"})))


def test_settings_record_when_clusters_left(fleet: Fleet) -> None:
    assert fleet.store().current().departed_clusters == {"west": ClusterDeparture(LEFT, 1)}
    assert fleet.push(LEFT + DAY, "east", "north").departed_clusters == {"west": ClusterDeparture(LEFT, 1)}
    departure = ClusterDeparture(LEFT + 2 * DAY, 3)
    assert fleet.push(LEFT + 2 * DAY, "west").departed_clusters == {"east": departure, "north": departure}
    last = fleet.push(LEFT + 3 * DAY, "east")
    assert last.departed_clusters == {"north": departure, "west": ClusterDeparture(LEFT + 3 * DAY, 4)}
    assert fleet.store().current() == last
    assert (last.clusters(OCTOBER), last.clusters(NOVEMBER)) == (["east", "north", "west"], ["east"])


def test_departure_with_a_damaged_version_is_recorded(fleet: Fleet) -> None:
    fleet.change(2, b={"B": b"cut"})
    assert fleet.store().current().settings.cluster("west") is not None, "the last valid version is in force"
    assert fleet.push(LEFT + DAY, "north").departed_clusters == {
        "west": ClusterDeparture(LEFT, 1),
        "east": ClusterDeparture(LEFT + DAY, 1),
    }


@pytest.mark.parametrize("damage", [{"S": "x"}, {"M": {"west": {"N": "7"}}}])
def test_departures_are_reconstructed_from_the_history(fleet: Fleet, damage: dict[str, Any]) -> None:
    fleet.change(2, l=damage)
    assert fleet.store().current().version == 1
    assert "west" in fleet.push(LEFT + DAY, "east").departed_clusters


def test_number_of_recorded_departures_is_limited(fleet: Fleet) -> None:
    length = 60
    fitting = settings_store.MAX_DEPARTURES_BYTES // (settings_store.DEPARTURE_BYTES + length)
    clusters = [f"{number:0{length}d}" for number in range(fitting)]
    fleet.push(LEFT + DAY, *clusters)
    newest = fleet.push(LEFT + 2 * DAY, "a")
    assert newest.departed_clusters.keys() == set(clusters), "those that left first are no longer recorded"


def test_push_reads_only_the_newest_version(fleet: Fleet) -> None:
    class StoreWithoutHistory(SettingsDocumentStore):
        def history(self) -> Sequence[StoredSettings[SettingsDocument]]:
            raise AssertionError("all versions were read")

    store = StoreWithoutHistory(fleet.table, clock=lambda: NOW)
    assert "west" in store.push(store.current().text, author="me", now=LEFT + DAY).departed_clusters


class ExportedDays:
    """A catalogue in which each cluster has one day, and a bucket that signs URLs."""

    def days(self, cluster: str, start: datetime, end: datetime) -> list[ExportedDay]:
        exported = ExportedDay(cluster, OCTOBER, 1, "complete", 1, 1, 1, "USD", NOW, "f", 1)
        return [exported] if start <= OCTOBER < end else []

    def url(self, key: str, **_: object) -> str:
        return key


def test_exports_of_a_departed_cluster_are_listed(fleet: Fleet) -> None:
    exported = ExportedDays()
    listing = ExportListing(fleet.store(), fleet.ledger, exported, exported, clock=lambda: NOW)  # type: ignore[arg-type]
    exports = listing.exports(SEPTEMBER, NOVEMBER)
    assert [listed.exported_day.cluster for listed in exports] == ["east", "west"]
    with pytest.raises(ParameterError, match="allowed: east"):
        listing.exports(OCTOBER + 10 * DAY, NOVEMBER, "west")


def test_nodes_of_its_past_have_their_pools(fleet: Fleet) -> None:
    class Nodes:
        def all_nodes(self, cluster: str, start: datetime, end: datetime) -> list[Any]:
            return [SimpleNamespace(provider_id=f"aws:///z/i-{cluster}", node_pool=f"pool of {cluster}")]

    pools = LedgerNodePools(fleet.store(), Nodes())  # type: ignore[arg-type]
    assert pools(SEPTEMBER, NOVEMBER) == {"i-east": "pool of east", "i-west": "pool of west"}
    assert pools(NOVEMBER, NOW) == {"i-east": "pool of east"}


def test_month_is_not_closed_while_its_last_hours_are_retried(fleet: Fleet) -> None:
    rollups = RollupStore(fleet.table)
    month_service = MonthService(fleet.store(), fleet.ledger, fleet.ledger.versions, rollups, lambda: NOW)
    before = month_service.coverage(OCTOBER, OCTOBER + 2 * HOUR)
    assert (before.missing, before.awaiting_retry) == (0, 0)
    hour_record = record(cluster="west", hour=OCTOBER + 2 * HOUR, status="incomplete")
    fleet.ledger.publish(hour_record, replacing=None, settings_version=1, now=LEFT)
    assert month_service.coverage(OCTOBER + HOUR, OCTOBER + 3 * HOUR).awaiting_retry == 1
