"""The fault table: what AWS, Prometheus, clocks and people do, each beside an undisturbed run."""

import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gpucost.core.errors import ConflictError
from gpucost.core.hours import HOUR
from gpucost.features.alerting.model import AlertGroup
from gpucost.runtime.messages import HoursDue
from gpucost.settings_document import DocumentStore
from tests.chaos.bench import Bench, Faulty
from tests.chaos.crash import Undisturbed, compare
from tests.chaos.external_calls import Fault, KilledError
from tests.chaos.real_metrics import killed_between_queries, prometheus_troubles
from tests.chaos.script import ScriptedReader, document
from tests.chaos.world import World
from tests.records import line, record

LAST = 4
"""Ticks of the ordinary run, which goes over midnight: 0 to 4."""


def everything_twice(bench: Bench) -> None:
    """Every message is delivered twice."""
    with bench.world() as quiet, bench.world(deliveries=2) as disturbed:
        for world in (quiet, disturbed):
            world.run(*range(LAST + 1))
        bench.expect("every message twice", disturbed, quiet)


def work_in_reverse(bench: Bench) -> None:
    """Work arrives hours late and in reverse."""
    with bench.world() as quiet, bench.world() as disturbed:
        quiet.run(*range(LAST + 1))
        with disturbed.active():
            for number in range(LAST + 1):
                disturbed.tick(number)
            disturbed.deliver("hours", disturbed.take("hours")[::-1])
            disturbed.drain()
        disturbed.run(LAST + 1)
        quiet.run(LAST + 1)
        bench.expect_figures("work late and in reverse", disturbed, quiet)


def news_in_reverse(bench: Bench) -> None:
    """Closed hours are told of late and in reverse."""
    with bench.world() as quiet, bench.world() as disturbed:
        quiet.run(*range(LAST + 1))
        disturbed.run(0)
        with disturbed.active():
            for number in range(1, LAST + 1):
                disturbed.tick(number)
                disturbed.deliver("hours", disturbed.take("hours"))
            disturbed.deliver("events", disturbed.take("events")[::-1])
        bench.expect("news late and in reverse", disturbed, quiet, since_alerts_began)


def since_alerts_began(world: World) -> dict[str, Any]:
    """What is seen, without the quiet hours before an alert: which was the last one heard of depends on the order."""
    found = world.seen()
    for name, book in found.items():
        if isinstance(book, AlertGroup):
            alerts = tuple(
                replace(
                    alert, evaluations=tuple(verdict for verdict in alert.evaluations if verdict.hour >= alert.since)
                )
                for alert in book.alerts
            )
            found[name] = replace(book, alerts=alerts)
    return found


def schedule_twice(bench: Bench) -> None:
    """The schedule fires twice for each hour."""
    with bench.world() as quiet, bench.world() as disturbed:
        quiet.run(*range(LAST + 1))
        disturbed.run(*range(LAST + 1), fired=2)
        bench.expect("schedule twice", disturbed, quiet)


def schedule_skips(bench: Bench) -> None:
    """The schedule skips three hours."""
    with bench.world() as quiet, bench.world() as disturbed:
        quiet.run(*range(LAST + 2))
        disturbed.run(0, 1, LAST + 1)
        bench.expect("schedule skips three hours", disturbed, quiet)


def two_workers(bench: Bench, every: int = 1) -> None:
    """Another worker takes the same hour, from start to end, before the k-th call of the first, for every such k."""
    with bench.world(clusters=("west",)) as quiet, bench.world(clusters=("west",)) as disturbed:
        quiet.run(0)
        before = quiet.saved()
        quiet.restore(before)
        quiet.run(1, 2)
        expected = Undisturbed(before, (), quiet.seen(), {*quiet.messages()}, quiet.notifications())
        k, was_there = 1, True
        while was_there:
            disturbed.restore(before)
            was_there = _second_worker(disturbed, k)
            if was_there:
                compare(bench.verdict, f"two workers, at call {k}", disturbed, expected)
            k += every
        bench.check("two workers met", holds=k > 10)


def _second_worker(world: World, k: int) -> bool:
    """Run ticks 1 and 2; False where the first worker makes fewer than k calls."""
    from functions.attribute import app

    with world.active():
        world.tick(1)
        (message,) = world.take("hours")
        work = HoursDue.model_validate_json(message["Body"])
        met: list[int] = []

        def another() -> None:
            met.append(k)
            world.container.attribute_service.attribute(work)

        world.outside.before = (len(world.outside.calls) + k, another)
        with world.acting_as(app.handler):
            world.container.attribute_service.attribute(work)
        world.outside.before = None
        world.drain()
    world.run(2)
    return bool(met)


def clocks(bench: Bench) -> None:
    """A function's clock is five minutes off, either way."""
    with bench.world() as quiet:
        quiet.run(*range(3))
        for minutes in (-5, 5):
            with bench.world(skew=timedelta(minutes=minutes)) as disturbed:
                disturbed.run(*range(3))
                bench.expect(f"clock {minutes:+} minutes", disturbed, quiet)


def schedule_late(bench: Bench) -> None:
    """Each call of the schedule arrives an hour late, or where the clock is five minutes before the full hour.

    The hour is the schedule's own, whatever the clock says. West's trouble would be over an hour late: it is left out.
    """
    with bench.world(clusters=("east",)) as quiet:
        quiet.run(*range(3))
        for minutes in (60, -10):
            with bench.world(clusters=("east",)) as disturbed, disturbed.active():
                for number in range(3):
                    disturbed.skew = timedelta(minutes=minutes)
                    disturbed.tick(number)
                    disturbed.skew = max(disturbed.skew, timedelta(0))  # what follows a late call is late
                    disturbed.drain()
                bench.expect(f"schedule met at {minutes:+} minutes", disturbed, quiet)


def calendars(bench: Bench) -> None:
    """Leap days, year's ends, and the nights when clocks change elsewhere."""
    with bench.world() as quiet:
        quiet.run(*range(LAST + 1))
        expected = _in_order(quiet)
    for day in ((2028, 2, 28), (2028, 2, 29), (2027, 2, 28), (2026, 12, 31), (2027, 3, 27), (2027, 10, 30)):
        with bench.world(first=datetime(*day, 21, tzinfo=UTC)) as other:
            other.run(*range(LAST + 1))
            bench.check(f"calendar {day}", holds=_in_order(other) == expected)


def _in_order(world: World) -> list[Any]:
    end = world.first + 2 * timedelta(days=1)
    found: list[Any] = []
    for cluster in world.clusters:
        found += [(one.status, one.totals, one.groups) for one in world.ledger.summaries(cluster, world.first, end)]
        midnight = world.first.replace(hour=0)
        found += [(one.totals, one.units) for one in world.rollups.days(cluster, midnight, end.replace(hour=0))]
    return found


def one_cluster_away(bench: Bench) -> None:
    """The table refuses everything about one cluster for an hour."""

    def refuse(_name: str, arguments: Any) -> Fault | None:
        return "throttled" if "C#east#" in str(arguments) else None

    with bench.world() as quiet, bench.world() as disturbed:
        quiet.run(*range(3))
        disturbed.run(0)
        disturbed.outside.rule = refuse
        disturbed.run(1)
        closed = {cluster for cluster, hour, _ in disturbed.messages() if hour == bench.start + HOUR}
        bench.check("one cluster's trouble delays only itself", holds=closed == {"west"})
        disturbed.outside.rule = None
        disturbed.dead.clear()
        disturbed.run(2)
        bench.expect_figures("one cluster away for an hour", disturbed, quiet)


def deadly_hour(bench: Bench) -> None:
    """An hour kills whatever works on it; the others of its message are closed, and it waits among the dead."""
    deadly = bench.start + 2 * HOUR
    is_mended = False

    class Deadly(ScriptedReader):
        def observe(self, hours: Any) -> Any:
            if deadly in hours and not is_mended:
                raise KilledError
            return super().observe(hours)

    with bench.world(clusters=("east",)) as quiet, bench.world(clusters=("east",)) as disturbed:
        disturbed.readers = lambda cluster, _: Deadly(cluster.name, bench.start, lambda: disturbed.now)
        quiet.run(*range(LAST + 1))
        disturbed.run(0, LAST)
        (letter,) = {HoursDue.model_validate_json(body).model_dump_json() for body in disturbed.dead}
        named = HoursDue.model_validate_json(letter)
        bench.check("a deadly hour is alone among the dead", holds=(named.first_hour, named.hours) == (deadly, 1))
        closed = {hour for _, hour, _ in disturbed.messages()}
        others = {bench.start + HOUR * number for number in range(LAST + 1)} - {deadly}
        bench.check("a deadly hour holds up no other", holds=closed == others)
        is_mended = True
        disturbed.dead.clear()
        disturbed.sqs.send_message(QueueUrl=disturbed.queues["hours"], MessageBody=letter)
        with disturbed.active():
            disturbed.drain()
        bench.expect_figures("a deadly hour, sent again", disturbed, quiet)


def large_item(bench: Bench) -> None:
    """200 units, and 1,000 pods with long names in one namespace: no item bursts."""
    with bench.world() as world:
        lines = [line(f"unit-{i}", f"ns-{i}", f"pod-{i}") for i in range(200)]
        for i in range(1000):
            labels = {f"label-{n}": zlib.crc32(f"{i}{n}".encode()).to_bytes(4, "big").hex() * 12 for n in range(5)}
            lines.append(line("big", "one", f"{i:04d}-" + "p" * 240, f"{i}.{i:012d}")._replace(labels=labels))
        big = record(lines, hour=bench.start, cluster="east")
        world.ledger.publish(big, replacing=None, settings_version=1, now=world.now)
        world.rollups.roll_up("east", bench.start.replace(hour=0), bench.start + timedelta(days=2))
        found = world.ledger.lines("east", bench.start)
        bench.check("an item near 400 KB", holds=sorted(one.pod for one in found) == sorted(one.pod for one in lines))
        ((_, facts),) = world.rollups.facts("east", bench.start.replace(hour=0), bench.start + timedelta(hours=3))
        total = sum((costs.allocated_usd for costs in facts.values()), Decimal(0))
        bench.check("its facts", holds=total == sum((one.allocated_usd or 0 for one in lines), Decimal(0)))


def settings_damaged(bench: Bench) -> None:
    """A newer settings document is rubbish, or of a later version's form."""
    damages: dict[str, dict[str, Any]] = {
        "damaged": {"b": {"B": b"rubbish"}},
        "newer": {"v": {"N": "99"}},
        "invalid": {"b": {"B": zlib.compress(b"clusters: []")}},
    }
    for what, damage in damages.items():
        with bench.world() as quiet, bench.world() as disturbed:
            quiet.run(*range(3))
            disturbed.run(0)
            (item,) = disturbed.dynamodb.query(
                TableName=disturbed.table, KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues={":pk": {"S": "SETTINGS"}},
            )["Items"]  # fmt: skip
            newer = {**item, "sk": {"S": "00000002"}, "n": {"N": "2"}, **damage}
            disturbed.dynamodb.put_item(TableName=disturbed.table, Item=newer)
            disturbed.run(1, 2)
            bench.expect(f"settings {what}", disturbed, quiet)


def two_pushes(bench: Bench) -> None:
    """Two people push settings at once: one wins, the other is told."""
    with bench.world() as world:
        text = document(("east",))

        def other() -> None:
            DocumentStore(world.dynamodb, world.table, clock=lambda: world.now).push(
                text, author="other", now=world.now
            )

        world.outside.before = (2, other)
        store = DocumentStore(world.outside.wrap(world.dynamodb), world.table, clock=lambda: world.now)
        try:
            store.push(text, author="me", now=world.now)
            told = False
        except ConflictError:
            told = True
        authors = [one.author for one in store.history()]
        bench.check("two pushes at once", holds=told and authors == ["other", "chaos"])


TABLE: tuple[Faulty, ...] = (
    everything_twice, work_in_reverse, news_in_reverse, schedule_twice, schedule_skips, two_workers, clocks,
    schedule_late, calendars, one_cluster_away, deadly_hour, large_item, settings_damaged, two_pushes,
    prometheus_troubles, killed_between_queries,
)  # fmt: skip
