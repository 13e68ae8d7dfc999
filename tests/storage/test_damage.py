"""Truncated or missing items are named in an error, and restating the hour writes them again."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from gpucost.core.errors import DataExpiredError, IntegrityError, SourceError
from gpucost.core.hour_record import ClusterCharge
from gpucost.core.hours import DAY, HOUR
from gpucost.core.ledger import Limits
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.features.recommendations.storage import DailyItems
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.limits_store import LimitsStore
from gpucost.storage.rollups import RollupStore
from tests.conftest import DynamoTable
from tests.core.single_node_cluster import observation
from tests.records import amount, line, record

NOW = datetime.now(UTC).replace(microsecond=0)
DAY_1 = NOW.replace(hour=0, minute=0, second=0) - 3 * DAY
CHARGE = ClusterCharge("reservation", "r-1", amount(1), "USD", None)
Item = dict[str, Any]


class StoredHour:
    """A day of one hour, which was restated once, and all that is kept of it."""

    def __init__(self, table: DynamoTable) -> None:
        self._table = table
        self.ledger = Ledger(DynamoDBTable(table.client, table.name))
        self.rollups = RollupStore(DynamoDBTable(table.client, table.name))
        self.limits = LimitsStore(DynamoDBTable(table.client, table.name))
        self.days = DailyItems(DynamoDBTable(table.client, table.name), "memory")
        self.publish("2")
        self.publish("3", why="another price")
        self.rollups.roll_up("demo", DAY_1, NOW)
        self.limits.put(Limits("demo", DAY_1, (), ()), NOW + DAY)
        self.days.put("demo", DAY_1, [["row"]], NOW + DAY)

    def publish(self, usd: str, why: str = "") -> None:
        lines = [line("research", "bu-a", "p", usd)]
        hour_record = replace(record(lines, hour=DAY_1, notes=("a note",)), charges=(CHARGE,))
        usage = meter(observation(), MeteringRules())
        old = self.ledger.newest_version_of_hour("demo", DAY_1)
        self.ledger.publish(hour_record, replacing=old, settings_version=1, now=NOW, usage=usage, reason=why)

    def newest(self, kind: str) -> Item:
        """The item of a kind; of the hour's newest version, where it has several."""
        items = [
            item
            for item in self._table.client.scan(TableName=self._table.name)["Items"]
            if item["pk"]["S"].split("#")[2] == kind
        ]
        return max(items, key=lambda item: str(item["sk"]["S"]))

    def cut(self, kind: str) -> Item:
        item = self.newest(kind)
        content = item["b"]["B"]
        self.put({**item, "b": {"B": content[: len(content) // 2]}})
        return item

    def lose(self, kind: str) -> None:
        item = self.newest(kind)
        self._table.client.delete_item(TableName=self._table.name, Key={"pk": item["pk"], "sk": item["sk"]})

    def put(self, item: Item) -> None:
        self._table.client.put_item(TableName=self._table.name, Item=item)


@pytest.fixture
def stored_hour(table: DynamoTable) -> StoredHour:
    return StoredHour(table)


READERS: dict[str, Callable[[StoredHour], object]] = {
    "summaries": lambda stored_hour: [
        dict(summary.costs) for summary in stored_hour.ledger.summaries("demo", DAY_1, DAY_1 + DAY)
    ],
    "lines": lambda stored_hour: stored_hour.ledger.lines("demo", DAY_1),
    "nodes": lambda stored_hour: stored_hour.ledger.nodes_and_charges("demo", DAY_1)[1],
    "notes": lambda stored_hour: stored_hour.ledger.notes_of(stored_hour.ledger.manifests("demo", DAY_1, DAY_1 + DAY)),
    "usage": lambda stored_hour: [
        stored_hour.ledger.usage(manifest) for manifest in stored_hour.ledger.manifests("demo", DAY_1, DAY_1 + HOUR)
    ],
    "restatements": lambda stored_hour: stored_hour.ledger.restatements("demo", DAY_1, DAY_1 + DAY),
    "days": lambda stored_hour: stored_hour.rollups.days("demo", DAY_1, DAY_1 + DAY),
    "unit": lambda stored_hour: stored_hour.rollups.unit_hours("demo", "research", DAY_1, DAY_1 + DAY),
    "facts": lambda stored_hour: stored_hour.rollups.facts("demo", DAY_1, DAY_1 + DAY),
    "limits": lambda stored_hour: stored_hour.limits.limits_between("demo", DAY_1, DAY_1 + DAY),
    "memory": lambda stored_hour: stored_hour.days.read("demo", DAY_1, DAY_1 + DAY),
}


@pytest.mark.tools
@pytest.mark.parametrize("kind", READERS)
def test_truncated_item_is_named_in_the_error(stored_hour: StoredHour, kind: str) -> None:
    assert READERS[kind](stored_hour)
    item = stored_hour.cut(kind)
    with pytest.raises(SourceError) as raised:
        READERS[kind](stored_hour)
    if kind == "lines":  # read again before they count as damaged
        assert str(raised.value) == f"lines {item['pk']['S']!r} are damaged"
    else:
        assert str(raised.value).startswith(f"the ledger's item {item['pk']['S']} {item['sk']['S']} is damaged: ")


@pytest.mark.tools
@pytest.mark.parametrize("kind", ["summaries", "days", "unit", "facts", "nodes", "lines", "usage"])
def test_damaged_item_is_repaired_by_restating_its_hour(stored_hour: StoredHour, kind: str) -> None:
    stored_hour.cut(kind)
    stored_hour.publish("5", why="it was damaged")
    stored_hour.rollups.roll_up("demo", DAY_1, NOW)
    for read in READERS.values():
        assert read(stored_hour)
    (day,) = stored_hour.rollups.days("demo", DAY_1, DAY_1 + DAY)
    assert {unit: costs.allocated_usd for unit, costs in day.costs.items()} == {"research": amount(5)}
    restatements = [
        (
            restatement.before.costs.allocated_usd if restatement.before else None,
            restatement.after.costs.allocated_usd,
            set(restatement.changed_units),
        )
        for restatement in stored_hour.ledger.restatements("demo", DAY_1, DAY_1 + DAY)
    ]
    expected = [(amount(2), amount(3), {"research"}), (amount(3), amount(5), {"research"})]
    assert restatements == expected, "what was damaged is known from its lines"


@pytest.mark.parametrize("kind", ["days", "unit", "facts"])
def test_day_whose_head_is_deleted_is_summed_again(stored_hour: StoredHour, kind: str) -> None:
    """As the runbook says."""
    sound = READERS[kind](stored_hour)
    stored_hour.cut(kind)
    stored_hour.lose("rollups")
    assert stored_hour.rollups.roll_up("demo", DAY_1, NOW)
    assert READERS[kind](stored_hour) == sound


def test_missing_summary_does_not_count_as_zero(stored_hour: StoredHour) -> None:
    """Unless its time has come: a manifest says when."""
    stored_hour.lose("summaries")
    with pytest.raises(IntegrityError, match=rf"^the figures of demo {DAY_1:%Y-%m-%dT%H} are missing from the ledger"):
        READERS["summaries"](stored_hour)
    head = stored_hour.newest("rollups")
    stored_hour.put({**head, "h": {"B": bytes(len(head["h"]["B"]))}})
    with pytest.raises(DataExpiredError, match="cannot be summed: the figures of demo"):
        stored_hour.rollups.roll_up("demo", DAY_1, NOW)
    manifest = stored_hour.newest("hours")
    stored_hour.put({**manifest, "e": {"N": str(int(time.time()))}})
    assert READERS["summaries"](stored_hour) == [{}], "expired"
    stored_hour.put({name: value for name, value in manifest.items() if name != "e"})
    with pytest.raises(IntegrityError):
        READERS["summaries"](stored_hour)


def test_missing_summary_is_written_again_by_restating_its_hour(stored_hour: StoredHour) -> None:
    stored_hour.lose("summaries")
    stored_hour.publish("5", why="it was lost")
    (summary,) = stored_hour.ledger.summaries("demo", DAY_1, DAY_1 + DAY)
    assert summary.totals is not None
    assert summary.totals.costs.allocated_usd == amount(5)
