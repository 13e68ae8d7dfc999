"""Every rule on the real ledger with prepared hours: what fires, and when it is notified."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpucost.core.hour_record import Line
from gpucost.features.alerting.muting import Silence
from gpucost.features.alerting.notification_text import summary
from gpucost.storage.sqlite_table import SqliteTable
from tests.features.alerting.fleet import START, Fleet, node, pod, settings_with_rules

WASTE = "rule: waste, waste_usd_per_hour: 10, waste_percent: 50, for_hours: 2"
IDLE_POD = pod(gpus=2, use="0.05")
BUSY = pod(gpus=2, use="0.9")


def test_waste_lists_top_wasters_and_keeps_firing(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(WASTE + ", keep_firing_hours: 2"))
    small = pod(name="notebook", gpus=1, use="0")
    assert fleet.publish_and_close(0, IDLE_POD, small) == []
    fleet.publish(1, IDLE_POD, small)
    fleet.close_hour(1)
    ((notification,),) = fleet.email.messages
    assert fleet.email.take() == ["firing waste research"]
    # By hand: 2 GPUs × $12 × 95% and 1 × $12 × 100%, of 3 × $12.
    assert notification.figures["waste_usd_per_hour"] == Decimal("34.8")
    assert notification.figures["waste_percent"] == Decimal("96.7")
    assert [(workload.name, workload.waste_usd) for workload in notification.workloads] == [
        ("train", Decimal("22.8")),
        ("notebook", 12),
    ]
    assert fleet.publish_and_close(2, BUSY) == []
    assert fleet.publish_and_close(3, IDLE_POD) == []
    assert fleet.publish_and_close(4, BUSY) == []
    assert fleet.publish_and_close(5, BUSY) == ["resolved waste research"]
    assert fleet.alert_states.load("demo").groups[0].is_empty


def test_estimated_utilization_does_not_fire(sqlite_table: SqliteTable) -> None:
    text = (
        settings_with_rules(WASTE.replace("percent: 50, for_hours: 2", "percent: 40"), "rule: idle-workload, gpus: 2")
        + "utilization: {sources: [pod, cluster]}\n"
    )
    fleet = Fleet(sqlite_table, text)
    estimated = pod(gpus=4, use="0", utilization_source="cluster")
    assert fleet.publish_and_close(0, estimated) == []
    both = ["firing waste research", "firing idle-workload research seen"]
    assert fleet.publish_and_close(1, estimated, pod(name="seen", gpus=4, use="0.01")) == both


def test_estimates_of_earlier_settings_do_not_fire(sqlite_table: SqliteTable) -> None:
    measuring = settings_with_rules(WASTE.replace("for_hours: 2", "for_hours: 1"))
    fleet = Fleet(sqlite_table, measuring + "utilization: {sources: [pod, cluster]}\n")
    fleet.push(measuring)
    estimated = pod(gpus=4, use="0", utilization_source="cluster")
    assert fleet.publish_and_close(0, estimated, settings_version=1) == []
    fleet.publish(1, estimated, settings_version=1)
    assert fleet.publish_and_close(1, estimated, settings_version=2) == []  # restated: measured with version 1
    measured = pod(gpus=4, use="0")
    assert fleet.publish_and_close(2, measured, settings_version=1) == ["firing waste research"]


def test_scope_overrides_and_severity(sqlite_table: SqliteTable) -> None:
    rule = (
        WASTE.replace("for_hours: 2", "for_hours: 1, severity: critical, scope: {namespaces: [r*, p*]}")
        + ", overrides: [{business_unit: p*, waste_usd_per_hour: 100}]"
    )
    fleet = Fleet(sqlite_table, settings_with_rules(rule))
    others = [pod(unit, gpus=2, use="0") for unit in ("research", "patient", "outside")]
    fleet.publish(0, *others)
    fleet.close_hour(0)
    assert [(sent.subject.business_unit, sent.severity) for sent in fleet.email.notifications] == [
        ("research", "critical")
    ]


def test_idle_workloads_are_separate_alerts_in_the_same_message(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: idle-workload, gpus: 2, utilization_percent: 10"))
    fleet.publish(
        0,
        pod(name="a", gpus=2, use="0.05"),
        pod(name="b", gpus=2, use="0.099"),
        pod(name="busy", gpus=4, use="0.1"),
        pod(name="small", gpus=1, use="0"),
        # Its utilization was not measured: it may be busy.
        pod(
            name="dark",
            gpus=4,
            use="0",
            utilization_source="none",
            effective_gpu_hours=None,
            utilization=None,
            unmeasured_gpu_hours=Decimal(4),
            effective_usd=None,
            waste_usd=None,
            unmeasured_usd=Decimal(48),
        ),
    )
    fleet.close_hour(0)
    (message,) = fleet.email.messages
    assert [notification.subject.workload for notification in message] == ["a", "b"]
    assert [notification.figures["utilization_percent"] for notification in message] == [Decimal("5.0"), Decimal("9.9")]
    fleet.email.take()
    # One is busy, one is gone, one is not measured any more: only the measured one resolves.
    unseen: dict[str, Any] = {
        "effective_gpu_hours": None,
        "utilization": None,
        "effective_usd": None,
        "waste_usd": None,
    }
    unmeasured: dict[str, Any] = {
        "unmeasured_gpu_hours": Decimal(2),
        "unmeasured_usd": Decimal(24),
        "utilization_source": "none",
    }
    dark = pod(name="b", gpus=2, use="0", **unseen, **unmeasured)
    assert fleet.publish_and_close(1, dark) == ["resolved idle-workload research a"]
    assert fleet.publish_and_close(2, pod(name="b", gpus=2, use="0.5")) == ["resolved idle-workload research b"]


def partly_measured(name: str, measured: str, used: str) -> Line:
    """A pod that holds 4 GPUs, of which these GPU-hours were measured and used."""
    measured_hours, used_hours = Decimal(measured), Decimal(used)
    return pod(
        name=name,
        gpus=4,
        use="0",
        effective_gpu_hours=used_hours,
        utilization=used_hours / measured_hours,
        unmeasured_gpu_hours=4 - measured_hours,
        effective_usd=used_hours * 12,
        waste_usd=(measured_hours - used_hours) * 12,
        unmeasured_usd=(4 - measured_hours) * 12,
    )


def test_mostly_unmeasured_hours_are_not_idle(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: idle-workload, gpus: 1, utilization_percent: 10"))
    startup_only = partly_measured("physics", "0.1", "0")
    assert fleet.publish_and_close(0, startup_only, partly_measured("edge", "1.99", "0")) == []
    fleet.publish(1, startup_only, partly_measured("edge", "2", "0.18"))
    fleet.close_hour(1)
    (notification,) = fleet.email.notifications
    assert notification.subject.workload == "edge"
    assert notification.figures["utilization_percent"] == 9  # of the measured half
    assert fleet.email.take() == ["firing idle-workload research edge"]
    # Little is measured: less use leaves the alert as it is; 0.4 of 4 GPU-hours are 10%, whatever the rest was.
    assert fleet.publish_and_close(2, partly_measured("edge", "1", "0.39")) == []
    assert fleet.publish_and_close(3, partly_measured("edge", "1", "0.4")) == ["resolved idle-workload research edge"]


def test_a_single_gpu_is_singular(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: idle-workload, gpus: 1, utilization_percent: 10"))
    fleet.publish(0, pod(gpus=1, use="0"))
    fleet.close_hour(0)
    (notification,) = fleet.email.notifications
    assert notification.threshold == "≥ 1 GPU with utilization < 10%, for 1 hour"
    assert "is idle: 1 GPU at 0.0% utilization" in summary(notification)


def test_unallocated_capacity_by_node_pool(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(
        sqlite_table,
        settings_with_rules("rule: unallocated, usd_per_hour: 24, overrides: [{node_pool: big, usd_per_hour: 90}]"),
    )
    nodes = [node("small", "12", "n1"), node("small", "12", "n2"), node("big", "60", "n3"), node("full", "0", "n4")]
    assert fleet.publish_and_close(0, BUSY, nodes=nodes) == ["firing unallocated small"]
    assert fleet.publish_and_close(1, BUSY, nodes=[node("big", "96")]) == [
        "firing unallocated big",
        "resolved unallocated small",
    ]


def test_restated_hour_is_notified_with_the_next_hour_and_a_note(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(WASTE))
    fleet.publish_and_close(0, IDLE_POD)
    assert fleet.publish_and_close(1, IDLE_POD) == ["firing waste research"]
    fleet.publish(1, BUSY)
    fleet.close_hour(1, origin="backfill")
    assert fleet.email.take() == []
    fleet.publish(2, status="incomplete")
    fleet.close_hour(2)
    (resolved,) = fleet.email.notifications
    assert (resolved.event, resolved.note) == ("resolved", f"the hour {resolved.hour:%Y-%m-%dT%H:00:00Z} was restated")
    fleet.email.take()
    # The reverse: an hour without waste is restated with waste.
    fleet.publish(1, IDLE_POD)
    assert fleet.publish_and_close(3, IDLE_POD) == ["firing waste research"]


def test_partial_sum_over_clusters_never_fires(sqlite_table: SqliteTable) -> None:
    rule = "rule: waste, waste_usd_per_hour: 20, waste_percent: 50, across_clusters: true"
    fleet = Fleet(sqlite_table, settings_with_rules(rule, clusters=("east", "west")))
    for number in range(4):
        assert fleet.publish_and_close(number, IDLE_POD, cluster="east") == []
    fleet.publish(0, pod(gpus=8, use="0.9"), cluster="west")
    assert fleet.tick(2) == []  # together: $32.4 of $120
    fleet.publish(1, pod(gpus=1, use="0"), cluster="west")
    assert fleet.tick(3) == ["firing waste research"]  # $22.8 + $12 of $36
    assert fleet.tick(4) == []  # west's hour 2 is not there: it neither fires nor resolves
    fleet.publish(2, pod(gpus=8, use="1"), cluster="west")
    assert fleet.tick(5) == ["resolved waste research"]


def test_thresholds_in_money_do_not_apply_to_hours_in_another_currency(sqlite_table: SqliteTable) -> None:
    """22.80 USD cannot be compared with 10 EUR. Idle workloads need no currency."""
    idle = "rule: idle-workload, gpus: 1, utilization_percent: 10"
    text = settings_with_rules(WASTE, idle).replace("pricing: {source", "pricing: {currency: EUR, source")
    fleet = Fleet(sqlite_table, text)
    assert [fleet.publish_and_close(number, IDLE_POD, currency="USD") for number in range(3)] == [
        ["firing idle-workload research train"],
        [],
        [],
    ]
    assert [fleet.publish_and_close(number, IDLE_POD, currency="EUR") for number in (3, 4)] == [
        [],
        ["firing waste research"],
    ]


QUIET = '  quiet_hours: {from: "22:00", to: "09:30"}\n  time_zone: Asia/Kolkata\n'
"""Until 04:00 UTC."""


@pytest.mark.parametrize(("over_by", "expected"), [(None, ["firing waste research"]), (2, [])])
def test_quiet_hours_delay_firing_alerts_and_drop_resolved_ones(
    sqlite_table: SqliteTable, over_by: int | None, expected: list[str]
) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(WASTE, alert_keys=QUIET))
    for number in range(3):
        assert fleet.publish_and_close(number, BUSY if over_by is not None and number >= over_by else IDLE_POD) == []
    assert [fleet.tick(number) for number in (3, 4, 5)] == [[], expected, []]
    history = fleet.history.between("demo", START, START + timedelta(days=1))
    assert [f"{event.event} {event.hour.hour}" for event in history] == ["firing 1"] + (
        [] if over_by is None else [f"resolved {over_by}"]
    )


def test_muted_alert_is_in_the_history_at_once(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(WASTE, alert_keys=QUIET))
    assert [fleet.publish_and_close(number, IDLE_POD) for number in range(2)] == [[], []]
    assert [event.event for event in fleet.history.between("demo", START, START + timedelta(days=1))] == ["firing"]


def test_quiet_hours_do_not_delay_critical_alerts(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(WASTE + ", severity: critical", alert_keys=QUIET))
    fleet.publish_and_close(0, IDLE_POD)
    assert fleet.publish_and_close(1, IDLE_POD) == ["firing waste research"]


def test_alert_is_sent_when_its_silence_ends(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(WASTE))
    begin = START + timedelta(hours=1)
    fleet.silences.put(
        Silence("s1", "alice", "load test", begin, begin + timedelta(hours=3), {"business_unit": "res*"})
    )
    other = pod("other", gpus=2, use="0")
    fleet.publish_and_close(0, IDLE_POD, other)
    assert fleet.publish_and_close(1, IDLE_POD, other) == ["firing waste other"]
    assert fleet.tick(3) == []
    assert fleet.tick(4) == ["firing waste research"]


def test_missing_data_inhibits_alerts_computed_from_it(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(WASTE + ", repeat_hours: 3", "rule: data, overdue_hours: 2"))
    fleet.publish_and_close(0, IDLE_POD)
    assert fleet.publish_and_close(1, IDLE_POD) == ["firing waste research"]
    assert fleet.tick(4, demo=2) == ["firing data overdue"]
    assert fleet.tick(5, demo=3) == []  # a repetition is due, and inhibited
    assert fleet.tick(6, demo=0) == ["resolved data overdue", "repeat waste research"]
    assert fleet.tick(7, demo=0) == []


def test_firing_alert_is_repeated_until_it_is_acknowledged(sqlite_table: SqliteTable) -> None:
    from gpucost.features.alerting.queries import AlertQueries

    fleet = Fleet(sqlite_table, settings_with_rules(WASTE + ", repeat_hours: 6"))
    fleet.publish_and_close(0, IDLE_POD)
    fleet.publish_and_close(1, IDLE_POD)
    descriptions = [fleet.tick(number) for number in range(3, 16)]
    assert [number for number, sent in enumerate(descriptions, start=3) if sent] == [8, 14]
    assert descriptions[5] == ["repeat waste research"]
    assert fleet.tick(14) == []  # the same tick again
    queries = AlertQueries(
        fleet.settings_store, fleet.alert_states, fleet.history, fleet.silences, clock=lambda: fleet.now
    )
    (active,) = queries.active_alerts()
    queries.acknowledge(active.id, author="alice")
    assert [fleet.tick(number) for number in range(20, 40, 6)] == [[]] * 4
    fleet.publish_and_close(2, BUSY)
    assert queries.active_alerts() == []
