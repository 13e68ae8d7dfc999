"""Closed months on DynamoDB Local: their figures stay, and later versions become adjustments, in every race."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpucost.core.access import FULL_ACCESS
from gpucost.core.amounts import to_decimal
from gpucost.core.errors import ConflictError, InvalidInputError, NotFoundError
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import DAY, HOUR, format_timestamp, hours_between, month_bounds, month_of
from gpucost.core.ledger import Manifest, Restatement
from gpucost.core.query.periods import Granularity
from gpucost.features.opencost.allocation_service import AllocationQuery, AllocationService
from gpucost.features.opencost.parameters import Filter
from gpucost.pipeline.dispatch import Backfill
from gpucost.pipeline.months import Adjustments, MonthService
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.records import HourRow
from gpucost.reports.report_service import ReportService
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import CLOSED_MONTH_REASON, Ledger
from gpucost.storage.ports import Table
from gpucost.storage.rollups import RollupStore
from gpucost.storage.sqlite_table import SqliteTable
from gpucost.storage.table import key
from gpucost_cli.month_commands import adjustments_csv, adjustments_json
from tests.conftest import DynamoTable
from tests.records import amount, line, record

MONTH = "2026-10"
START, END = datetime(2026, 10, 30, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
FIRST = END - 4 * HOUR
"""The cluster has four hours of the month, and two of the next."""
NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)


class Interleaved:
    """The real table or client, which runs a function before its n-th call of a name."""

    def __init__(self, real: Any, name: str, action: Callable[[], object], at: int = 1) -> None:
        self._real, self._name, self._action, self._left = real, name, action, at

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if name == self._name or not self._name:
                self._left -= 1
                if self._left == 0:
                    self._action()
            return getattr(self._real, name)(*arguments, **named)

        return call


class System:
    """A cluster whose ledger begins four hours before the end of October and ends with November's second hour."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.ledger = Ledger(table)
        self.rollups = RollupStore(table)
        self.store = store = SettingsDocumentStore(table, clock=lambda: NOW)
        self.push("demo")
        self.reports = ReportService(store, self.ledger, self.rollups, lambda: NOW, self.ledger.versions.closed_months)
        self.month_service = MonthService(store, self.ledger, self.ledger.versions, self.rollups, lambda: NOW)
        hour = FIRST
        while hour < END + 2 * HOUR:
            hour_record = record([line(usd="10")], hour=hour)
            self.ledger.publish(hour_record, replacing=None, settings_version=1, now=NOW)
            hour += HOUR
        self.rollups.roll_up("demo", END - DAY, NOW)
        self.rollups.roll_up("demo", END, NOW)

    def push(self, *clusters: str) -> None:
        """Settings with these clusters."""
        document = {
            "clusters": [{"name": name, "prometheus": {"url": "http://127.0.0.1:9"}} for name in clusters],
            "pricing": {"source": "constant", "gpu_hourly_usd": 12},
        }
        self.store.push(json.dumps(document), author="me", now=NOW)

    def publish(self, hour: datetime, usd: str, why: str = "", table: Any = None) -> Manifest:
        """An hour in which one pod has this cost."""
        return self.put(Ledger(table or self.table), record([line(usd=usd)], hour=hour), why)

    def put(self, ledger: Ledger, hour_record: HourRecord, why: str = "") -> Manifest:
        old = ledger.newest_version_of_hour(hour_record.cluster, hour_record.hour)
        done = ledger.publish(hour_record, replacing=old, settings_version=1, now=NOW, reason=why)
        self.rollups.roll_up("demo", hour_record.hour.replace(hour=0), NOW)
        return done

    def close(self) -> None:
        self.month_service.close(MONTH, author="me", reason="chargeback", force=True)

    def answers(self) -> list[Any]:
        """All reports of October by hour and by day, and the records that they read."""
        return [
            self.reports.costs(parameters("hour", "business_unit,namespace"), scope=FULL_ACCESS),
            self.reports.costs(parameters("day", "business_unit"), scope=FULL_ACCESS),
            self.reports.business_units(parameters(), scope=FULL_ACCESS),
            [(row.hour, row.manifest and row.manifest.run_id) for row in self.rows()],
            self.rollups.unit_hours("demo", "research", START, END),
            self.rollups.facts("demo", START, END),
            [self.ledger.lines("demo", FIRST + n * HOUR) for n in range(-2, 4)],
        ]

    def month(self, end: datetime = END) -> Decimal:
        """Cost of the days until then."""
        totals = self.reports.costs(parameters("day", end=end), scope=FULL_ACCESS).totals
        return to_decimal(totals.costs.allocated_usd) if totals else Decimal(0)

    def clusters(self, end: datetime = END) -> dict[str, Decimal]:
        """Cost of each cluster until then."""
        report = self.reports.costs(parameters("total", "cluster", end), scope=FULL_ACCESS)
        return {row.group["cluster"]: to_decimal(row.costs.allocated_usd) for row in report.rows}

    def opencost(self) -> dict[str, Decimal | None]:
        """The same of the month's last day, through OpenCost's API."""
        service = AllocationService(self.store, self.ledger, self.rollups, lambda: NOW)
        (allocations,) = service.compute(
            AllocationQuery(END - DAY, END, DAY, ("cluster",), Filter()), scope=FULL_ACCESS
        )
        return {allocation.name: to_decimal(allocation.costs.allocated_usd) for allocation in allocations}

    def rows(self) -> list[HourRow]:
        """The status of every hour."""
        return self.reports.hours(parameters(), scope=FULL_ACCESS)[1].rows

    def restatements(self) -> list[Restatement]:
        """Restatements, pending adjustments included."""
        return self.reports.restatements(parameters(), scope=FULL_ACCESS)[1].rows


def parameters(granularity: Granularity = "hour", group_by: str = "", end: datetime = END) -> QueryParameters:
    """The query of a report about the two days."""
    return QueryParameters(
        start=format_timestamp(START), end=format_timestamp(end), granularity=granularity, group_by=group_by
    )


@pytest.fixture
def system(ledger_table: Table) -> System:
    return System(ledger_table)


def test_closed_month_keeps_its_figures_and_later_versions_are_adjustments(system: System) -> None:
    system.close()
    before = system.answers()
    assert system.month() == 40
    assert system.publish(FIRST, "13", "spot price corrected").is_adjustment
    assert system.publish(FIRST, "14", "again").version == 3
    assert system.publish(FIRST + HOUR, "7", "bill").is_adjustment
    assert system.answers() == before
    restatements = [
        (restatement.hour, restatement.version, restatement.reason, restatement.is_adjustment)
        for restatement in system.restatements()
    ]
    assert restatements == [
        (FIRST, 2, "spot price corrected", True),
        (FIRST, 3, "again", True),
        (FIRST + HOUR, 2, "bill", True),
    ]
    adjustments = system.month_service.adjustments(MONTH)
    assert adjustments.hour_count == 2
    assert closed_and_now(adjustments) == [20, 21]
    assert json.loads(adjustments_json(adjustments))["rows"][0]["now"]["allocated_usd"] == 21
    assert adjustments_csv(adjustments).splitlines()[1].startswith("2026-10,demo,research,USD,0.285714285714,")
    assert not system.publish(END, "11", "November is open").is_adjustment
    assert system.month(END + DAY) == 40 + 11 + 10


def test_reopened_month_applies_its_adjustments(system: System) -> None:
    system.close()
    system.publish(FIRST, "13", "one")
    system.publish(FIRST, "14", "two")
    system.publish(FIRST + HOUR, "9", "three")
    assert system.month_service.reopen(MONTH) == 2
    assert system.month() == 2 * 10 + 14 + 9
    assert [restatement.is_adjustment for restatement in system.restatements()] == [False] * 3
    assert system.publish(FIRST, "15", "open again").version == 4
    with pytest.raises(NotFoundError, match="2026-10 is not closed"):
        system.month_service.adjustments(MONTH)
    system.close()
    assert system.month_service.adjustments(MONTH).hour_count == 0, (
        "the adjustment no longer belongs to the current version"
    )
    assert system.publish(FIRST, "16", "closed again").is_adjustment
    assert system.month() == 2 * 10 + 15 + 9


@pytest.mark.tools
def test_month_closed_before_any_call_of_a_publication_rejects_it(system: System, table: DynamoTable) -> None:
    before, crossed = system.answers(), 0
    for at in range(1, 30):
        closing = DynamoDBTable(Interleaved(table.client, "", system.close, at), table.name)
        done = system.publish(FIRST, f"{10 + at}", "why", closing)
        if not done.is_adjustment:
            break
        assert system.answers() == before, f"closed before call {at}"
        crossed += 1
        system.ledger.versions.reopen_month(MONTH)
        system.publish(FIRST, "10", "back")
        before = system.answers()
    assert crossed > 6
    assert system.ledger.versions.closed_month(MONTH) is not None, (
        "closed after the version was written, so the month has it"
    )
    assert system.month() == 30 + 10 + at


def test_month_closed_just_before_the_transaction_is_respected(system: System) -> None:
    before = system.answers()
    done = system.publish(FIRST, "13", "why", Interleaved(system.table, "transact", system.close))
    assert done.is_adjustment
    assert system.answers() == before
    opened = Interleaved(system.table, "transact", lambda: system.ledger.versions.reopen_month(MONTH))
    assert not system.publish(FIRST, "17", "opened meanwhile", opened).is_adjustment
    system.close()
    system.publish(FIRST, "18", "adjustment")
    opened = Interleaved(system.table, "transact", lambda: system.month_service.reopen(MONTH))
    with pytest.raises(ConflictError):
        system.publish(FIRST, "19", "the adjustment was applied meanwhile", opened)
    assert system.month() == 30 + 18
    assert not system.publish(FIRST, "17", "tried again").is_adjustment
    assert system.month() == 3 * 10 + 17


def test_adjustment_recorded_while_a_month_was_briefly_closed_is_not_skipped(system: System) -> None:
    """A publication reads that there is no adjustment; then one is recorded, and the month is reopened."""

    def close_and_reopen() -> None:
        system.close()
        system.publish(FIRST, "13", "newer")
        system.ledger.versions.reopen_month(MONTH)

    opened = Interleaved(system.table, "transact", close_and_reopen)
    with pytest.raises(ConflictError):
        system.publish(FIRST, "11", "older", opened)
    assert system.month_service.reopen(MONTH) == 1
    assert system.month() == 30 + 13
    assert [restatement.reason for restatement in system.restatements()] == ["newer"]


def test_report_of_hours_says_which_are_in_a_closed_month(system: System) -> None:
    """A missing hour of a closed month is not one that will be computed."""

    def closed_hours() -> set[tuple[str, bool]]:
        period = QueryParameters(start="2026-10-31T22:00:00Z", end="2026-11-01T02:00:00Z")
        rows = system.reports.hours(period, scope=FULL_ACCESS)[1].rows
        return {(f"{row.hour:%m-%dT%H}", row.is_closed) for row in rows}

    hours = ("10-31T22", "10-31T23", "11-01T00", "11-01T01")
    assert closed_hours() == {(hour, False) for hour in hours}
    system.close()
    assert closed_hours() == {(hour, hour.startswith("10")) for hour in hours}
    system.month_service.reopen(MONTH)
    assert closed_hours() == {(hour, False) for hour in hours}


def test_late_figures_of_a_missing_hour_in_a_closed_month_are_an_adjustment(system: System) -> None:
    gap, never = record(hour=FIRST - HOUR, status="incomplete"), FIRST - 2 * HOUR
    system.put(system.ledger, gap)
    system.month_service.close(MONTH, author="me", reason="late", force=True)
    before = system.answers()

    class Queue:
        sent = 0

        def send_due(self, messages: Sequence[Any]) -> None:
            self.sent += sum(message.hours for message in messages)

    queue = Queue()
    work = Backfill(system.ledger, queue, ["demo"], never, FIRST + HOUR, lambda: NOW)  # type: ignore[arg-type]
    assert work.send(1, "why") == 2
    assert system.publish(gap.hour, "5").is_adjustment
    assert system.publish(never, "6").is_adjustment
    assert system.answers() == before
    assert [(restatement.hour, restatement.before, restatement.reason) for restatement in system.restatements()] == [
        (never, None, CLOSED_MONTH_REASON),
        (gap.hour, None, CLOSED_MONTH_REASON),
    ]
    assert work.send(1, "why") == 0, "a backfill skips hours whose adjustment has figures"
    assert work.progress().done == 3
    assert closed_and_now(system.month_service.adjustments(MONTH)) == [0, 11]
    assert system.month_service.reopen(MONTH) == 2
    assert system.month() == 51


def test_only_the_first_of_two_concurrent_adjustments_is_stored(system: System) -> None:
    system.close()
    old = system.ledger.newest_version_of_hour("demo", FIRST)
    for usd, why in (("13", "first"), ("13", "the same"), ("14", "another")):
        if why == "first":
            system.ledger.publish(
                record([line(usd=usd)], hour=FIRST), replacing=old, settings_version=1, now=NOW, reason=why
            )
            continue
        with pytest.raises(ConflictError):
            system.ledger.publish(
                record([line(usd=usd)], hour=FIRST), replacing=old, settings_version=1, now=NOW, reason=why
            )
    assert closed_and_now(system.month_service.adjustments(MONTH)) == [10, 13]
    newest = system.ledger.newest_version_of_hour("demo", FIRST)
    assert newest is not None
    assert [hour_line.allocated_usd for hour_line in system.ledger.lines_of(newest)] == [amount(13)]


def test_departed_cluster_stays_in_closed_months_and_is_reopened_with_them(system: System) -> None:
    system.push("demo", "west")
    system.put(system.ledger, record([line(usd="7")], cluster="west", hour=FIRST))
    system.month_service.close(MONTH, author="me", reason="chargeback", force=True)
    system.put(system.ledger, record([line(usd="8")], cluster="west", hour=FIRST))
    system.push("demo")
    assert system.clusters() == system.opencost() == {"demo": 40, "west": 7}
    assert system.clusters(END + 2 * HOUR) == {"demo": 60, "west": 7}, "the sum of its months"
    assert closed_and_now(system.month_service.adjustments(MONTH)) == [7, 8]
    with pytest.MonkeyPatch.context() as patch:  # killed once the month is open
        patch.setattr(system.ledger, "adjustments", killed)
        with pytest.raises(KeyboardInterrupt):
            system.month_service.reopen(MONTH)
    assert [system.month_service.reopen(MONTH) for _ in range(2)] == [1, 0]
    in_force = system.ledger.manifest("west", FIRST)
    assert in_force is not None
    assert in_force.version == 2
    assert system.clusters() == system.opencost() == {"demo": 40, "west": 8}


def test_interrupted_reopening_is_continued(system: System) -> None:
    system.push("demo", "west")
    system.put(system.ledger, record([line(usd="7")], cluster="west", hour=FIRST))
    system.month_service.close(MONTH, author="me", reason="chargeback", force=True)
    system.publish(FIRST, "13")
    system.put(system.ledger, record([line(usd="8")], cluster="west", hour=FIRST))
    system.push("demo")
    with pytest.MonkeyPatch.context() as patch:  # killed between a cluster's hours and its days
        patch.setattr(system.rollups, "roll_up", killed)
        with pytest.raises(KeyboardInterrupt):
            system.month_service.reopen(MONTH)
    system.month_service.close(MONTH, author="me", reason="again", force=True)
    assert system.month_service.reopen(MONTH) == 1, "of west, which is no longer in the settings"
    assert not system.rollups.roll_up("demo", END - DAY, NOW), "its day is summed"


def killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.tools
def test_run_again_after_a_crash_at_any_call_leads_to_the_same_bill(table: DynamoTable) -> None:
    class KilledError(BaseException):
        pass

    def kill() -> None:
        raise KilledError

    system, kills = System(DynamoDBTable(*table)), 0
    system.close()
    before = system.answers()
    for at in range(1, 40):
        hour = FIRST + (at % 4) * HOUR
        try:
            killed_table = DynamoDBTable(Interleaved(table.client, "", kill, at), table.name)
            system.publish(hour, f"{10 + at}", "why", killed_table)
        except KilledError:
            kills += 1
            assert system.answers()[:5] == before[:5]
            system.publish(hour, f"{10 + at}", "why")
        else:
            break
    assert kills > 5
    late = system.month_service.adjustments(MONTH).hour_count
    for at in range(1, 60):
        killed = MonthService(
            system.month_service._settings_store,
            Ledger(DynamoDBTable(Interleaved(table.client, "", kill, at), table.name)),
            system.ledger.versions,
            system.rollups,
            lambda: NOW,
        )
        try:
            killed.reopen(MONTH)
        except KilledError:
            continue
        break
    assert system.ledger.adjustments("demo", START, END) == []
    changed = sum(row.manifest is not None and row.manifest.version > 1 for row in system.rows())
    assert changed == late


def test_month_that_may_still_change_is_not_closed(system: System) -> None:
    for month, why in (("2026-11", "not over yet"), ("2026-13", "not a month like 2026-10")):
        with pytest.raises(InvalidInputError, match=why):
            system.month_service.close(month, author="me", reason="x")
    system.put(system.ledger, record(hour=FIRST - 3 * HOUR, status="incomplete"))
    system.put(system.ledger, record([line(usd="12")], hour=FIRST - HOUR, status="provisional"))
    # Of October's 744 hours, the cluster has the last seven: four, a provisional, a missing and an incomplete one.
    with pytest.raises(InvalidInputError) as refused:
        system.month_service.close(MONTH, author="me", reason="x")
    assert str(refused.value).startswith(
        "2026-10 is not complete: 5 hours have figures (52.00 USD allocated), 1 are missing, 1 are incomplete and will "
        "be tried again, 1 are provisional, 737 were before or after all clusters. In a closed month, figures that "
        "arrive later are adjustments"
    )
    assert system.ledger.versions.closed_months() == []
    _, coverage = system.month_service.close(MONTH, author="me", reason="x", force=True)
    assert (coverage.missing, coverage.unrecorded) == (1, 737)
    with pytest.raises(ConflictError, match="closed already"):
        system.month_service.close(MONTH, author="me", reason="x", force=True)
    assert [closed.month for closed in system.ledger.versions.closed_months()] == [MONTH]


def test_month_without_any_hour_is_not_closed(system: System) -> None:
    with pytest.raises(InvalidInputError, match="2026-08 is not complete: no hours have figures"):
        system.month_service.close("2026-08", author="me", reason="x")


def test_month_is_not_closed_with_an_abandoned_hour(sqlite_table: SqliteTable) -> None:
    """The other hours are complete, and cost $10 each; without the abandoned hour, the month closes."""
    ledger, rollups = Ledger(sqlite_table), RollupStore(sqlite_table)
    store = SettingsDocumentStore(sqlite_table, clock=lambda: NOW)
    clusters = [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9"}}]
    pricing = {"source": "constant", "gpu_hourly_usd": 12}
    store.push(json.dumps({"clusters": clusters, "pricing": pricing}), author="me", now=NOW)
    service = MonthService(store, ledger, ledger.versions, rollups, lambda: NOW)
    hours = hours_between(*month_bounds(START))
    abandoned_hour = hours[5]
    for hour in hours:
        is_abandoned = hour == abandoned_hour
        hour_record = record(hour=hour, status="incomplete") if is_abandoned else record([line(usd="10")], hour=hour)
        ledger.publish(hour_record, replacing=None, settings_version=1, now=NOW, last_attempt=START)
    with pytest.raises(InvalidInputError, match=r"743 hours have figures .*, 1 are incomplete for good. In a"):
        service.close(MONTH, author="me", reason="x")
    old = ledger.newest_version_of_hour("demo", abandoned_hour)
    ledger.publish(record([line(usd="10")], hour=abandoned_hour), replacing=old, settings_version=1, now=NOW)
    _, coverage = service.close(MONTH, author="me", reason="x")
    assert str(coverage) == "744 hours have figures (7,440.00 USD allocated)"


def test_hours_at_the_start_of_a_month_are_missing_if_the_cluster_existed(system: System) -> None:
    ended = END + 40 * DAY
    month_service = MonthService(
        system.month_service._settings_store, system.ledger, system.ledger.versions, system.rollups, lambda: ended
    )
    for hour in (END, END + HOUR):
        system.table.delete_all([key("C#demo#hours", f"{hour:%Y-%m-%dT%H}")])
    with pytest.raises(InvalidInputError, match="720 are missing"):
        month_service.close("2026-11", author="me", reason="x")
    system.publish(END + 5 * HOUR, "10")
    assert month_service.coverage(END, END + 6 * HOUR).missing == 5
    assert month_service.coverage(START, END).missing == 0, "the cluster did not exist before October's last hours"


def closed_and_now(adjustments: Adjustments) -> list[Decimal]:
    """The only business unit's cost as closed, and as it would be now."""
    (row,) = adjustments.rows
    return [to_decimal(row.closed_costs.allocated_usd), to_decimal(row.current_costs.allocated_usd)]


def test_months_are_utc() -> None:
    eastern = datetime(2026, 10, 31, 22, tzinfo=UTC).astimezone(UTC) + timedelta(hours=3)
    assert month_of(eastern) == "2026-11"
