"""The fault table: faults of AWS, Prometheus, clocks and users, each compared with an undisturbed run."""

import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gpucost.core.errors import ConflictError
from gpucost.core.hours import HOUR
from gpucost.features.alerting.model import AlertGroup
from gpucost.runtime.messages import HoursDue
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from tests.chaos.bench import Bench, FaultCase
from tests.chaos.crash import Baseline, compare
from tests.chaos.external_calls import Fault, KilledError
from tests.chaos.real_metrics import killed_between_queries, prometheus_failures
from tests.chaos.script import ScriptedReader, document
from tests.chaos.simulated_deployment import SimulatedDeployment
from tests.records import line, record

LAST = 4
"""The last tick of the usual run, which passes midnight."""


def everything_twice(bench: Bench) -> None:
    """Every message is delivered twice."""
    with bench.deployment() as undisturbed, bench.deployment(deliveries=2) as disturbed:
        for deployment in (undisturbed, disturbed):
            deployment.run(*range(LAST + 1))
        bench.expect("every message twice", disturbed, undisturbed)


def work_in_reverse(bench: Bench) -> None:
    """Work arrives hours late and in reverse."""
    with bench.deployment() as undisturbed, bench.deployment() as disturbed:
        undisturbed.run(*range(LAST + 1))
        with disturbed.active():
            for number in range(LAST + 1):
                disturbed.tick(number)
            disturbed.deliver("hours", disturbed.take("hours")[::-1])
            disturbed.drain()
        disturbed.run(LAST + 1)
        undisturbed.run(LAST + 1)
        bench.expect_figures("work late and in reverse", disturbed, undisturbed)


def messages_in_reverse(bench: Bench) -> None:
    """Messages about published hours arrive late and in reverse."""
    with bench.deployment() as undisturbed, bench.deployment() as disturbed:
        undisturbed.run(*range(LAST + 1))
        disturbed.run(0)
        with disturbed.active():
            for number in range(1, LAST + 1):
                disturbed.tick(number)
                disturbed.deliver("hours", disturbed.take("hours"))
            disturbed.deliver("events", disturbed.take("events")[::-1])
        bench.expect("messages late and in reverse", disturbed, undisturbed, since_alerts_began)


def since_alerts_began(deployment: SimulatedDeployment) -> dict[str, Any]:
    """Visible state without the evaluations before an alert, which depend on the order of messages."""
    state = deployment.visible_state()
    for name, book in state.items():
        if isinstance(book, AlertGroup):
            alerts = tuple(
                replace(
                    alert,
                    evaluations=tuple(evaluation for evaluation in alert.evaluations if evaluation.hour >= alert.since),
                )
                for alert in book.alerts
            )
            state[name] = replace(book, alerts=alerts)
    return state


def schedule_twice(bench: Bench) -> None:
    """The schedule fires twice for each hour."""
    with bench.deployment() as undisturbed, bench.deployment() as disturbed:
        undisturbed.run(*range(LAST + 1))
        disturbed.run(*range(LAST + 1), fired=2)
        bench.expect("schedule twice", disturbed, undisturbed)


def schedule_skips(bench: Bench) -> None:
    """The schedule skips three hours."""
    with bench.deployment() as undisturbed, bench.deployment() as disturbed:
        undisturbed.run(*range(LAST + 2))
        disturbed.run(0, 1, LAST + 1)
        bench.expect("schedule skips three hours", disturbed, undisturbed)


def two_workers(bench: Bench, every: int = 1) -> None:
    """Another worker processes the same hour completely before the k-th call of the first, for every k."""
    with bench.deployment(clusters=("west",)) as undisturbed, bench.deployment(clusters=("west",)) as disturbed:
        undisturbed.run(0)
        before = undisturbed.save()
        undisturbed.restore(before)
        undisturbed.run(1, 2)
        expected = Baseline(
            before, (), undisturbed.visible_state(), {*undisturbed.messages()}, undisturbed.notifications()
        )
        k, was_there = 1, True
        while was_there:
            disturbed.restore(before)
            was_there = _second_worker(disturbed, k)
            if was_there:
                compare(bench.report, f"two workers, at call {k}", disturbed, expected)
            k += every
        bench.check("two workers met", holds=k > 10)


def _second_worker(deployment: SimulatedDeployment, k: int) -> bool:
    """Run ticks 1 and 2. False if the first worker makes fewer than k calls."""
    from functions.attribute import app

    with deployment.active():
        deployment.tick(1)
        (message,) = deployment.take("hours")
        work = HoursDue.model_validate_json(message["Body"])
        met: list[int] = []

        def another() -> None:
            met.append(k)
            deployment.container.attribute_service.attribute(work)

        deployment.external_calls.before = (len(deployment.external_calls.calls) + k, another)
        with deployment.acting_as(app.handler):
            deployment.container.attribute_service.attribute(work)
        deployment.external_calls.before = None
        deployment.drain()
    deployment.run(2)
    return bool(met)


def clocks(bench: Bench) -> None:
    """A function's clock is five minutes fast or slow."""
    with bench.deployment() as undisturbed:
        undisturbed.run(*range(3))
        for minutes in (-5, 5):
            with bench.deployment(skew=timedelta(minutes=minutes)) as disturbed:
                disturbed.run(*range(3))
                bench.expect(f"clock {minutes:+} minutes", disturbed, undisturbed)


def schedule_late(bench: Bench) -> None:
    """Each schedule event arrives an hour late, or while the clock is five minutes before the full hour.

    The schedule event determines the hour, whatever the clock says. Cluster west is left out, as its outage would end.
    """
    with bench.deployment(clusters=("east",)) as undisturbed:
        undisturbed.run(*range(3))
        for minutes in (60, -10):
            with bench.deployment(clusters=("east",)) as disturbed, disturbed.active():
                for number in range(3):
                    disturbed.skew = timedelta(minutes=minutes)
                    disturbed.tick(number)
                    disturbed.skew = max(disturbed.skew, timedelta(0))  # what follows a late event is late
                    disturbed.drain()
                bench.expect(f"schedule met at {minutes:+} minutes", disturbed, undisturbed)


def calendars(bench: Bench) -> None:
    """Leap days, ends of years, and nights with a clock change."""
    with bench.deployment() as undisturbed:
        undisturbed.run(*range(LAST + 1))
        expected = _in_order(undisturbed)
    for day in ((2028, 2, 28), (2028, 2, 29), (2027, 2, 28), (2026, 12, 31), (2027, 3, 27), (2027, 10, 30)):
        with bench.deployment(first=datetime(*day, 21, tzinfo=UTC)) as other:
            other.run(*range(LAST + 1))
            bench.check(f"calendar {day}", holds=_in_order(other) == expected)


def _in_order(deployment: SimulatedDeployment) -> list[Any]:
    end = deployment.first + 2 * timedelta(days=1)
    figures: list[Any] = []
    for cluster in deployment.clusters:
        figures += [
            (summary.manifest.status, summary.totals, summary.costs)
            for summary in deployment.ledger.summaries(cluster, deployment.first, end)
        ]
        midnight = deployment.first.replace(hour=0)
        figures += [(day.totals, day.costs) for day in deployment.rollups.days(cluster, midnight, end.replace(hour=0))]
    return figures


def unreachable_cluster(bench: Bench) -> None:
    """The table refuses all requests for one cluster for an hour."""

    def refuse(_name: str, arguments: Any) -> Fault | None:
        return "throttled" if "C#east#" in str(arguments) else None

    with bench.deployment() as undisturbed, bench.deployment() as disturbed:
        undisturbed.run(*range(3))
        disturbed.run(0)
        disturbed.external_calls.rule = refuse
        disturbed.run(1)
        closed = {cluster for cluster, hour, _ in disturbed.messages() if hour == bench.start + HOUR}
        bench.check("an unreachable cluster delays only itself", holds=closed == {"west"})
        disturbed.external_calls.rule = None
        disturbed.dead.clear()
        disturbed.run(2)
        bench.expect_figures("one cluster away for an hour", disturbed, undisturbed)


def killing_hour(bench: Bench) -> None:
    """An hour kills every function that processes it. The other hours of its message close, and it becomes a dead letter."""
    killing = bench.start + 2 * HOUR
    is_fixed = False

    class Deadly(ScriptedReader):
        def observe(self, hours: Any) -> Any:
            if killing in hours and not is_fixed:
                raise KilledError
            return super().observe(hours)

    with bench.deployment(clusters=("east",)) as undisturbed, bench.deployment(clusters=("east",)) as disturbed:
        disturbed.readers = lambda cluster, _: Deadly(cluster.name, bench.start, lambda: disturbed.now)
        undisturbed.run(*range(LAST + 1))
        disturbed.run(0, LAST)
        (letter,) = {HoursDue.model_validate_json(body).model_dump_json() for body in disturbed.dead}
        dead_letter = HoursDue.model_validate_json(letter)
        bench.check(
            "the killing hour is the only dead letter",
            holds=(dead_letter.first_hour, dead_letter.hours) == (killing, 1),
        )
        closed = {hour for _, hour, _ in disturbed.messages()}
        others = {bench.start + HOUR * number for number in range(LAST + 1)} - {killing}
        bench.check("the killing hour delays no other hour", holds=closed == others)
        is_fixed = True
        disturbed.dead.clear()
        disturbed.sqs.send_message(QueueUrl=disturbed.queues["hours"], MessageBody=letter)
        with disturbed.active():
            disturbed.drain()
        bench.expect_figures("the killing hour, redriven", disturbed, undisturbed)


def large_item(bench: Bench) -> None:
    """200 business units, and 1,000 pods with long names in one namespace: no item exceeds its limit."""
    with bench.deployment() as deployment:
        lines = [line(f"unit-{i}", f"ns-{i}", f"pod-{i}") for i in range(200)]
        for i in range(1000):
            labels = {f"label-{n}": zlib.crc32(f"{i}{n}".encode()).to_bytes(4, "big").hex() * 12 for n in range(5)}
            lines.append(line("big", "one", f"{i:04d}-" + "p" * 240, f"{i}.{i:012d}")._replace(labels=labels))
        big = record(lines, hour=bench.start, cluster="east")
        deployment.ledger.publish(big, replacing=None, settings_version=1, now=deployment.now)
        deployment.rollups.roll_up("east", bench.start.replace(hour=0), bench.start + timedelta(days=2))
        stored = deployment.ledger.lines("east", bench.start)
        bench.check(
            "an item near 400 KB",
            holds=sorted(pod_line.pod for pod_line in stored) == sorted(pod_line.pod for pod_line in lines),
        )
        ((_, facts),) = deployment.rollups.facts("east", bench.start.replace(hour=0), bench.start + timedelta(hours=3))
        total = sum((costs.allocated_usd for costs in facts.values()), Decimal(0))
        bench.check("its facts", holds=total == sum((pod_line.allocated_usd or 0 for pod_line in lines), Decimal(0)))


def settings_damaged(bench: Bench) -> None:
    """A newer settings document is damaged, or in the format of a later version."""
    damages: dict[str, dict[str, Any]] = {
        "damaged": {"b": {"B": b"rubbish"}},
        "newer": {"v": {"N": "99"}},
        "invalid": {"b": {"B": zlib.compress(b"clusters: []")}},
    }
    for name, damage in damages.items():
        with bench.deployment() as undisturbed, bench.deployment() as disturbed:
            undisturbed.run(*range(3))
            disturbed.run(0)
            (item,) = disturbed.dynamodb.query(
                TableName=disturbed.table,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues={":pk": {"S": "SETTINGS"}},
            )["Items"]
            newer = {**item, "sk": {"S": "00000002"}, "n": {"N": "2"}, **damage}
            disturbed.dynamodb.put_item(TableName=disturbed.table, Item=newer)
            disturbed.run(1, 2)
            bench.expect(f"settings {name}", disturbed, undisturbed)


def two_pushes(bench: Bench) -> None:
    """Two users push settings at once. One succeeds, the other gets an error."""
    with bench.deployment() as deployment:
        text = document(("east",))

        def other() -> None:
            SettingsDocumentStore(
                DynamoDBTable(deployment.dynamodb, deployment.table), clock=lambda: deployment.now
            ).push(text, author="other", now=deployment.now)

        deployment.external_calls.before = (2, other)
        store = SettingsDocumentStore(
            DynamoDBTable(deployment.external_calls.wrap(deployment.dynamodb), deployment.table),
            clock=lambda: deployment.now,
        )
        try:
            store.push(text, author="me", now=deployment.now)
            is_refused = False
        except ConflictError:
            is_refused = True
        authors = [version.author for version in store.history()]
        bench.check("two pushes at once", holds=is_refused and authors == ["other", "chaos"])


TABLE: tuple[FaultCase, ...] = (
    everything_twice,
    work_in_reverse,
    messages_in_reverse,
    schedule_twice,
    schedule_skips,
    two_workers,
    clocks,
    schedule_late,
    calendars,
    unreachable_cluster,
    killing_hour,
    large_item,
    settings_damaged,
    two_pushes,
    prometheus_failures,
    killed_between_queries,
)
