"""Rules of kind `data` fire on hours with contradictory or impossible samples."""

from decimal import Decimal

from gpucost.core.hours import HOUR
from gpucost.core.metering.implausible_samples import SUSPECT_PREFIX
from gpucost.storage.sqlite_table import SqliteTable
from tests.features.alerting.fleet import START, Fleet, settings_with_rules
from tests.records import line, record

NOTE = f"{SUSPECT_PREFIX}pod team/p requests 9 of nvidia.com/gpu, and node n1 has 4; what it holds is unobserved"


def publish(fleet: Fleet, number: int, *notes: str) -> None:
    hour_record = record([line()], hour=START + number * HOUR, notes=notes)
    fleet.ledger.publish(hour_record, replacing=None, settings_version=1, now=START + (number + 1) * HOUR)


def test_suspect_samples_fire_once_and_resolve(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: data, overdue_hours: null, repeat_hours: 0"))
    publish(fleet, 0, "utilization of 1 nodes is read off another signal")
    assert fleet.tick(1) == []
    publish(fleet, 1, NOTE, "another note")
    fleet.service().handle_tick(fleet.tick_message(2))
    (notification,) = fleet.email.notifications
    assert (notification.note, notification.figures["notes"], notification.subject.cluster) == (
        NOTE,
        Decimal(1),
        "demo",
    )
    assert fleet.email.take() == ["firing data suspect-samples"]
    publish(fleet, 2, NOTE)
    assert fleet.tick(3) == []
    publish(fleet, 3)
    assert fleet.tick(4) == ["resolved data suspect-samples"]


def test_hour_that_was_published_late_fires_as_well(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: data, overdue_hours: null, repeat_hours: 0"))
    publish(fleet, 2)
    hour_record = record([line()], hour=START + HOUR, notes=(NOTE,))
    fleet.ledger.publish(hour_record, replacing=None, settings_version=1, now=START + 3 * HOUR)
    assert fleet.tick(3) == ["firing data suspect-samples"]


def test_rule_can_leave_suspect_samples_out(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: data, overdue_hours: null, suspect_samples: false"))
    publish(fleet, 0, NOTE)
    assert fleet.tick(1) == []
