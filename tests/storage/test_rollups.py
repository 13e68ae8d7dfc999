"""Days on Amazon's own DynamoDB engine: always the sum of the hours in force, and cheap to read."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from gpucost.core.amounts import Costs
from gpucost.core.errors import DataExpiredError
from gpucost.core.hour_record import HourRecord, Line
from gpucost.core.hours import DAY, HOUR
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.rollups import BUCKETS, RollupStore, _bucket
from gpucost.storage.table import lines_partition_key
from tests.conftest import DynamoTable
from tests.metered_client import MeteredClient
from tests.records import line, record

pytestmark = pytest.mark.tools  # seconds

DAY_1 = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - 10 * DAY
OVER = DAY_1 + 9 * DAY
FIELDS = (
    "business_unit",
    "namespace",
    "workload_kind",
    "workload",
    "node_pool",
    "instance_type",
    "capacity_type",
    "gpu_model",
    "resource",
    "zone",
)


class RolledUpDay:
    """A ledger, and the published records in a dictionary, to compare with."""

    def __init__(self, table: DynamoTable) -> None:
        self.table = table
        self.ledger = Ledger(DynamoDBTable(table.client, table.name))
        self.rollups = RollupStore(DynamoDBTable(table.client, table.name))
        self.records: dict[datetime, HourRecord] = {}

    def publish(self, number: int, *lines: Line, status: Any = "complete") -> None:
        hour_record = record(lines, hour=DAY_1 + HOUR * number, status=status)
        old = self.ledger.manifest("demo", hour_record.hour)
        self.ledger.publish(hour_record, replacing=old, settings_version=1, now=datetime.now(UTC))
        self.records[hour_record.hour] = hour_record

    def check(self, rollups: RollupStore | None = None) -> None:
        """Everything read equals what adding up all lines by hand gives."""
        rollups = rollups or self.rollups
        days = rollups.days("demo", DAY_1, DAY_1 + 3 * DAY)
        assert [summary.start for summary in days] == sorted({hour.replace(hour=0) for hour in self.records})
        facts = dict(rollups.facts("demo", DAY_1, DAY_1 + 3 * DAY))
        unit_facts = dict(rollups.facts("demo", DAY_1, DAY_1 + 3 * DAY, "research"))
        for day in days:
            hours = [hour_record for hour, hour_record in self.records.items() if hour.replace(hour=0) == day.start]
            lines = [hour_line for hour_record in hours for hour_line in hour_record.lines]
            assert len(day.manifests) == len(hours)
            assert day.costs == by_hand(lines, lambda hour_line: hour_line.business_unit)
            totals = [hour_record.totals for hour_record in hours if hour_record.totals]
            assert (day.totals is None) == (not totals)
            if day.totals and day.totals.capacity:
                node_cost = sum(hour_totals.capacity.node_cost_usd for hour_totals in totals if hour_totals.capacity)
                assert day.totals.capacity.node_cost_usd == node_cost
                assert day.totals.costs == Costs.total(hour_line.costs() for hour_line in lines)
            expected = by_hand(
                lines, lambda hour_line: (*(getattr(hour_line, name) for name in FIELDS), str(hour_line.labels))
            )
            assert {(*key[:-1], str(dict(key.labels))): costs for key, costs in facts[day.start].items()} == expected
            assert unit_facts[day.start] == {
                key: costs for key, costs in facts[day.start].items() if key.business_unit == "research"
            }
        for unit in ("research", "idle", "absent"):
            unit_hours = rollups.unit_hours("demo", unit, DAY_1, DAY_1 + 3 * DAY)
            assert {manifest.hour: costs for manifest, costs in unit_hours} == {
                hour: None
                if hour_record.status == "incomplete"
                else by_hand(hour_record.lines, lambda hour_line: hour_line.business_unit).get(unit, Costs())
                for hour, hour_record in sorted(self.records.items())
            }


def by_hand(lines: Any, key: Callable[[Line], Any]) -> dict[Any, Costs]:
    """Sums without any of the product's own."""
    sums: dict[Any, dict[str, int]] = {}
    for summed_line in lines:
        sum_of_key = sums.setdefault(key(summed_line), dict.fromkeys(Costs.names(), 0))
        for name in Costs.names():
            if name in Line._fields:
                sum_of_key[name] += getattr(summed_line, name) or 0
    return {name: Costs(**amounts) for name, amounts in sums.items()}


@pytest.fixture
def day(table: DynamoTable) -> RolledUpDay:
    return RolledUpDay(table)


def random_lines(seed: int) -> list[Line]:
    """A few lines of several units, workloads and zones, different in each hour."""
    return [
        line("research", "bu-a", f"p{seed}", f"1.{seed:012d}"),
        line("research", "bu-b", "q", "0.000000000001")._replace(zone="b", labels={"team": "y", "tier": "x"}),
        line("research", "bu-a", f"r{seed}", "2")._replace(workload=f"job-{seed % 3}"),
        *([line("idle", "notebooks", "n", "12")] if seed % 2 else []),
    ]


def test_days_without_rollups_are_summed_from_hours(day: RolledUpDay) -> None:
    assert day.rollups.days("demo", DAY_1, DAY_1 + DAY) == []
    for number in (0, 5, 23, 24, 40):
        day.publish(number, *random_lines(number))
    day.publish(6, status="incomplete")
    day.check()


def test_rollups_are_read_instead_of_hours(day: RolledUpDay) -> None:
    for number in range(30):
        day.publish(number, *random_lines(number))
    assert day.rollups.roll_up("demo", DAY_1, OVER)
    assert not day.rollups.roll_up("demo", DAY_1, OVER), "nothing to do"
    day.check()
    for read, most in ((day.rollups.days, 2), (day.rollups.facts, 2 + BUCKETS)):
        watched = MeteredClient(day.table.client)
        getattr(RollupStore(DynamoDBTable(watched, day.table.name)), read.__name__)("demo", DAY_1, DAY_1 + DAY)
        assert len(watched.calls) <= most
    watched = MeteredClient(day.table.client)
    RollupStore(DynamoDBTable(watched, day.table.name)).unit_hours("demo", "research", DAY_1, DAY_1 + DAY)
    assert len(watched.calls) == 3


def test_facts_are_summed_after_the_day_has_ended(day: RolledUpDay) -> None:
    day.publish(3, *random_lines(3))
    assert day.rollups.roll_up("demo", DAY_1, DAY_1 + 5 * HOUR)
    assert not day.rollups.roll_up("demo", DAY_1, DAY_1 + 5 * HOUR)
    day.check()
    assert not any("#facts#" in item["pk"]["S"] for item in items(day))
    assert day.rollups.roll_up("demo", DAY_1, OVER)
    assert any("#facts#" in item["pk"]["S"] for item in items(day))
    day.check()


def test_restated_hour_counts_immediately_and_a_removed_unit_disappears(day: RolledUpDay) -> None:
    for number in range(4):
        day.publish(number, *random_lines(number))
    day.rollups.roll_up("demo", DAY_1, OVER)
    day.publish(1, line("else", "ns", "p"))
    day.publish(2, *random_lines(17))
    day.publish(3, line("else", "ns", "p"))
    day.check()
    day.rollups.roll_up("demo", DAY_1, OVER)
    day.check()


def test_late_hours_are_added_without_reading_the_lines_of_other_hours(day: RolledUpDay) -> None:
    """Also if they were attempted in vain before, and incomplete when the day was summed."""
    for number in range(20):
        day.publish(number, *random_lines(number))
    for number in (21, 22):
        day.publish(number, status="incomplete")
    day.rollups.roll_up("demo", DAY_1, OVER)
    for number in (20, 21, 22, 23):
        day.publish(number, *random_lines(number))
        day.check()
        watched = RecordingPartitions(day.table.client)
        assert RollupStore(DynamoDBTable(watched, day.table.name)).roll_up("demo", DAY_1, OVER)
        assert {pk for pk in watched.partitions if "#lines#" in pk} == {
            lines_partition_key("demo", DAY_1 + number * HOUR)
        }
        day.check()
    without_lines(day)
    day.check()


class RecordingPartitions:
    """The real client, which records the partitions that are queried."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.partitions: list[str] = []

    def query(self, **arguments: Any) -> Any:
        self.partitions.append(arguments["ExpressionAttributeValues"][":pk"]["S"])
        return self._client.query(**arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@pytest.mark.parametrize("call", range(1, 30))
def test_late_hours_published_at_once_are_both_added(day: RolledUpDay, call: int) -> None:
    """The second arrives at any moment while the first is added, or its sums are written halfway."""
    for number in range(3):
        day.publish(number, *random_lines(number))
    day.rollups.roll_up("demo", DAY_1, OVER)
    day.publish(3, *random_lines(3))

    def another() -> None:
        day.publish(4, *random_lines(5))
        day.rollups.roll_up("demo", DAY_1, OVER)

    slow = InterleavedClient(day.table.client, call, another)
    RollupStore(DynamoDBTable(slow, day.table.name)).roll_up("demo", DAY_1, OVER)
    day.check()
    day.rollups.roll_up("demo", DAY_1, OVER)
    without_lines(day)
    day.check()


def without_lines(day: RolledUpDay) -> None:
    """As once they have expired."""
    for item in items(day):
        if "#lines#" in item["pk"]["S"]:
            day.table.client.delete_item(TableName=day.table.name, Key={"pk": item["pk"], "sk": item["sk"]})


def test_renamed_unit_leaves_no_items_that_affect_its_day(day: RolledUpDay) -> None:
    """What is left in its bucket is of other versions: the day is believed without it, and needs no lines."""
    assert len({_bucket(unit) for unit in ("research", "science", "chat")}) == 3
    for number in (0, 1):
        day.publish(number, line("research", "bu-a", "p"), line("chat", "ns", "q"))
    day.rollups.roll_up("demo", DAY_1, OVER)
    for number in (0, 1):
        day.publish(number, line("science", "bu-a", "p"), line("chat", "ns", "q"))
    day.rollups.roll_up("demo", DAY_1, OVER)
    day.check()
    without_lines(day)
    day.check()
    watched = MeteredClient(day.table.client)
    RollupStore(DynamoDBTable(watched, day.table.name)).facts("demo", DAY_1, DAY_1 + DAY)
    assert len(watched.calls) == 2 + BUCKETS + 1, "and the day's sums once, to see that it is left over"


def test_bucket_of_other_versions_is_empty_only_if_the_days_sums_name_none_of_its_units(day: RolledUpDay) -> None:
    """A head that is current, whatever else is there: a stale sum is never read, nor a missing one taken for none."""
    day.publish(0, line("research", "bu-a", "p"), line("chat", "ns", "q"))
    day.rollups.roll_up("demo", DAY_1, OVER)
    old = {item["pk"]["S"]: item for item in items(day)}
    day.publish(0, line("research", "bu-a", "p", "7"))
    day.rollups.roll_up("demo", DAY_1, OVER)
    for kind in (f"facts#{_bucket('research'):02d}", "days"):
        day.table.client.put_item(TableName=day.table.name, Item=old[f"C#demo#{kind}"])
        day.check()
    without_lines(day)
    assert day.rollups.facts("demo", DAY_1, DAY_1 + DAY) == [], "unknown, and no older sum"


def test_slow_writer_does_not_overwrite_newer_facts(day: RolledUpDay) -> None:
    """Nothing would ever write them again: the day's head is current."""
    day.publish(0, line("research", "bu-a", "p"))
    slow = MeteredClient(day.table.client)
    RollupStore(DynamoDBTable(slow, day.table.name)).roll_up("demo", DAY_1, OVER)
    its_facts = len(slow.calls) - 1  # the head is last
    day.publish(0, line("research", "bu-a", "p", "5"))

    def another() -> None:
        day.publish(0, line("research", "bu-a", "p", "7"))
        day.rollups.roll_up("demo", DAY_1, OVER)

    RollupStore(DynamoDBTable(InterleavedClient(day.table.client, its_facts, another), day.table.name)).roll_up(
        "demo", DAY_1, OVER
    )
    without_lines(day)
    day.check()


@pytest.mark.tools
def test_readers_see_the_hours_after_a_crash_at_any_call_of_the_roll_up(day: RolledUpDay) -> None:
    for number in (0, 1):
        day.publish(number, *random_lines(number))
    day.rollups.roll_up("demo", DAY_1, OVER)
    day.publish(1, *random_lines(5))
    before = items(day)
    watched = MeteredClient(day.table.client)
    RollupStore(DynamoDBTable(watched, day.table.name)).roll_up("demo", DAY_1, OVER)
    assert len(watched.calls) >= 8
    for k in range(1, len(watched.calls) + 1):
        for item in before:
            day.table.client.put_item(TableName=day.table.name, Item=item)
        with pytest.raises(KeyboardInterrupt):
            RollupStore(DynamoDBTable(MeteredClient(day.table.client, fail_at=k), day.table.name)).roll_up(
                "demo", DAY_1, OVER
            )
        day.check()
        day.rollups.roll_up("demo", DAY_1, OVER)
        day.check()


class InterleavedClient(MeteredClient):
    """Lets something else happen before a call."""

    def __init__(self, client: Any, meddle_at: int, meddle: Callable[[], None]) -> None:
        super().__init__(client)
        self._meddle_at, self._meddle = meddle_at, meddle

    def __getattr__(self, name: str) -> Callable[..., Any]:
        inner = super().__getattr__(name)

        def call(**arguments: Any) -> Any:
            if len(self.calls) + 1 == self._meddle_at:
                self._meddle_at = 0
                self._meddle()
            return inner(**arguments)

        return call


@pytest.mark.parametrize("call", range(1, 16))
def test_hour_published_while_its_day_is_summed_is_not_lost(day: RolledUpDay, call: int) -> None:
    """Two hours of a day close at once: the slow one, whose sums are older, writes last."""
    day.publish(0, *random_lines(0))
    day.publish(1, *random_lines(1))
    meddled: list[int] = []

    def another() -> None:
        meddled.append(call)
        day.publish(1, line("else", "ns", "p"))
        day.publish(2, *random_lines(3))
        day.rollups.roll_up("demo", DAY_1, OVER)

    slow = InterleavedClient(day.table.client, call, another)
    RollupStore(DynamoDBTable(slow, day.table.name)).roll_up("demo", DAY_1, OVER)
    assert meddled or call > len(slow.calls)
    day.check()
    day.rollups.roll_up("demo", DAY_1, OVER)
    day.check()


def test_slow_writer_does_not_overwrite_newer_sums(day: RolledUpDay) -> None:
    day.publish(0, *random_lines(0))

    def another() -> None:
        day.publish(1, *random_lines(1))
        day.rollups.roll_up("demo", DAY_1, OVER)

    before_its_write = 4  # manifests, head, summaries
    RollupStore(DynamoDBTable(InterleavedClient(day.table.client, before_its_write, another), day.table.name)).roll_up(
        "demo", DAY_1, OVER
    )
    watched = MeteredClient(day.table.client)
    RollupStore(DynamoDBTable(watched, day.table.name)).days("demo", DAY_1, DAY_1 + DAY)
    assert len(watched.calls) == 2, "the day itself, not its hours"


@pytest.mark.parametrize("call", range(1, 8))
@pytest.mark.parametrize("rolled_up", [False, True])
def test_concurrent_reader_sees_the_old_or_the_new_day_and_no_mixture(
    day: RolledUpDay, call: int, rolled_up: bool
) -> None:
    for number in (0, 1):
        day.publish(number, *random_lines(number))
    if rolled_up:
        day.rollups.roll_up("demo", DAY_1, OVER)

    def seen(rollups: RollupStore) -> Any:
        (only,) = rollups.days("demo", DAY_1, DAY_1 + DAY)
        ((_, facts),) = rollups.facts("demo", DAY_1, DAY_1 + DAY)
        return (
            only.costs,
            [manifest.version for manifest in only.manifests],
            facts,
            rollups.unit_hours("demo", "idle", DAY_1, DAY_1 + DAY),
        )

    before = seen(day.rollups)

    def another() -> None:
        day.publish(1, line("idle", "notebooks", "n", "3"))
        day.rollups.roll_up("demo", DAY_1, OVER)

    between = seen(RollupStore(DynamoDBTable(InterleavedClient(day.table.client, call, another), day.table.name)))
    after = seen(day.rollups)
    assert all(during in pair for during, *pair in zip(between, before, after, strict=True))
    assert between[:2] in (before[:2], after[:2])


def test_hour_published_again_after_deletion_differs_from_the_deleted_version(day: RolledUpDay) -> None:
    day.publish(0, *random_lines(0))
    day.rollups.roll_up("demo", DAY_1, OVER)
    for item in items(day):
        if item["pk"]["S"].endswith("#hours"):
            day.table.client.delete_item(TableName=day.table.name, Key={"pk": item["pk"], "sk": item["sk"]})
    day.publish(0, *random_lines(1))
    day.check()


def test_day_with_expired_figures_is_not_summed_again(day: RolledUpDay) -> None:
    day.publish(0, *random_lines(0))
    for item in items(day):
        if "#summaries" in item["pk"]["S"]:
            day.table.client.delete_item(TableName=day.table.name, Key={"pk": item["pk"], "sk": item["sk"]})
    with pytest.raises(DataExpiredError, match=r"cannot be summed: the figures of demo .* are missing"):
        day.rollups.roll_up("demo", DAY_1, OVER)


def test_facts_larger_than_an_item_are_stored_in_chunks(day: RolledUpDay) -> None:
    chance = random.Random(1)
    workloads = [chance.randbytes(7_000).hex() for _ in range(60)]
    lines = [
        line("one", "ns", f"p{i}", f"{i}.{i * 7919:012d}")._replace(workload=workload)
        for i, workload in enumerate(workloads)
    ]
    day.publish(0, *lines)
    day.rollups.roll_up("demo", DAY_1, OVER)
    assert sum("#facts#" in item["pk"]["S"] for item in items(day)) > 1
    day.check()
    day.publish(0, line("one", "ns", "p"))
    day.rollups.roll_up("demo", DAY_1, OVER)
    day.check()


def items(day: RolledUpDay) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = day.table.client.scan(TableName=day.table.name)["Items"]
    return items
