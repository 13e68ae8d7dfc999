"""Items as earlier versions wrote them are read, and moved on while the table serves.

`formats/` holds items that the code of those commits wrote: of form 1, as the first version had it (before usage,
currencies and restatements), and as the last one did.
"""

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR as ONE_HOUR
from gpucost.core.model import Line
from gpucost.core.rollups import DAY
from gpucost.storage import compressed_documents as blobs
from gpucost.storage import keys
from gpucost.storage.ledger import DynamoLedger
from gpucost.storage.line_items import LINES_FORMAT, BeingMovedError, line_items, read_line_items
from gpucost.storage.migration import Migration, MigrationProgress
from gpucost.storage.rollups import DynamoRollups
from tests.conftest import DynamoTable
from tests.records import HOUR, line, record

RECORDED = datetime(2026, 11, 19, 11, 5, tzinfo=UTC)
FIRST, LAST = "format-1-at-7173ab4", "format-1-at-8d02ec3"
NOW = datetime.now(UTC).replace(microsecond=0)


class KilledError(BaseException):
    """The command is gone."""


def recorded(name: str) -> list[dict[str, Any]]:
    """Items as they were written, as if it had been just now."""
    items: list[dict[str, Any]] = json.loads((Path(__file__).parent / "formats" / f"{name}.json").read_text())
    for item in items:
        item["expires_at"] = {"N": str(int(item["expires_at"]["N"]) + int(time.time() - RECORDED.timestamp()))}
        for value in item.values():
            if "B" in value:
                value["B"] = base64.b64decode(value["B"])
    return items


def fill(table: DynamoTable, items: list[dict[str, Any]]) -> DynamoLedger:
    for item in items:
        table.client.put_item(TableName=table.name, Item=item)
    return DynamoLedger(table.client, table.name)


def form_1(lines: list[Line], run: str, hour: datetime, piece: int) -> list[dict[str, Any]]:
    """One unit's lines in form 1, in as small pieces as one likes."""
    names = list(Line._fields)
    data = b"".join(blobs.pack([[getattr(one, name) for name in names] for one in lines]))
    end = {"N": str(int(time.time()) + 10**6)}
    return [
        {
            "pk": {"S": f"C#demo#lines#{hour:%Y-%m-%dT%H}"},
            "sk": {"S": f"{run}#{keys.unit(lines[0].business_unit)}#{place:04d}"},
            "v": {"N": "1"},
            "b": {"B": data[at : at + piece]},
            "expires_at": end,
        }
        for place, at in enumerate(range(0, len(data), piece))
    ]


def forms(table: DynamoTable) -> set[int]:
    items = table.client.scan(TableName=table.name)["Items"]
    return {int(item["v"]["N"]) for item in items if "#lines#" in item["pk"]["S"]}


def figures(lines: list[Line]) -> list[tuple[Any, ...]]:
    return sorted(
        (one.pod, one.business_unit, str(one.allocated_usd), str(one.effective_usd), str(one.unmeasured_usd))
        for one in lines
    )


FIGURES = [
    ("n", "idle", "12.000000000001", "0", "0"),
    ("p1", "research", "1.714285714286", "0.428571428572", "0"),
    ("p2", "research", "1.714285714286", "None", "1.714285714286"),
]
"""What was put into the records, by hand."""


def all_that_is_read(ledger: DynamoLedger, table: DynamoTable) -> list[Any]:
    rollups = DynamoRollups(table.client, table.name)
    end = HOUR + 2 * ONE_HOUR
    return [
        ledger.manifests("demo", HOUR, end),
        ledger.notes_of(ledger.manifests("demo", HOUR, end)),
        ledger.summaries("demo", HOUR, end),
        ledger.lines("demo", HOUR),
        ledger.restatements("demo", HOUR, end),
        rollups.facts("demo", HOUR.replace(hour=0), HOUR.replace(hour=0) + DAY),
        ledger.usage(ledger.manifests("demo", HOUR, end)[0]),
    ]


def test_what_the_first_version_wrote_is_read(table: DynamoTable) -> None:
    ledger = fill(table, recorded(FIRST))
    assert figures(ledger.lines("demo", HOUR)) == FIGURES
    own = ledger.manifest("demo", HOUR)
    assert own is not None
    assert (own.version, own.settings_version, own.usage_id, own.currency, own.notes) == (1, 3, "", "USD", ("a note",))
    done, waiting = ledger.summaries("demo", HOUR, HOUR + 2 * ONE_HOUR)
    assert done.totals is not None
    assert done.totals.costs.allocated_usd == Decimal("15.428571428573")
    assert done.groups["research", "bu-a"].unmeasured_usd == Decimal("1.714285714286")
    assert (waiting.status, waiting.totals) == ("incomplete", None)
    assert DynamoRollups(table.client, table.name).roll_up("demo", HOUR.replace(hour=0), NOW)
    changed = ledger.publish(record([line()]), replacing=own, settings_version=4, now=NOW, why="goes on")
    assert changed.version == 2
    (restated,) = ledger.restatements("demo", HOUR, HOUR + ONE_HOUR)
    assert restated.before is not None
    assert restated.before.costs.allocated_usd == Decimal("15.428571428573")


def test_what_the_last_version_wrote_is_read(table: DynamoTable) -> None:
    ledger = fill(table, recorded(LAST))
    assert figures(ledger.lines("demo", HOUR)) == FIGURES[1:]
    first = replace(ledger.manifests("demo", HOUR, HOUR + ONE_HOUR)[0], run_id="1-03e424548072c1c8")
    (unpriced,) = (one for one in ledger.lines_of(first) if one.pod == "p3")
    assert (unpriced.allocated_usd, unpriced.gpu_hourly_usd, unpriced.shared_from) == (None, None, "platform")
    assert unpriced.used_beyond_allocation_gpu_hours == Decimal("0.5")
    (change,) = ledger.restatements("demo", HOUR, HOUR + ONE_HOUR)
    assert (change.why, change.currency_before, change.currency) == ("a deal", "USD", "EUR")


@pytest.mark.parametrize("name", [FIRST, LAST])
def test_moved_on_a_table_says_what_it_said(table: DynamoTable, name: str) -> None:
    ledger = fill(table, recorded(name))
    before, ends = all_that_is_read(ledger, table), expiries(table)
    assert forms(table) == {1}
    told: list[MigrationProgress] = []
    done = Migration(table.client, table.name, page=2).run(told.append)
    assert forms(table) == {LINES_FORMAT}
    assert all_that_is_read(ledger, table) == before
    assert expiries(table) == ends
    own_note = 1
    assert (done.seen, done.moved) == (len(recorded(name)) + own_note, 2 if name == FIRST else 3)
    assert [one.seen for one in told] == sorted(one.seen for one in told), "it says how far it got"
    assert len(told) > 2
    assert Migration(table.client, table.name).run().moved == 0


def expiries(table: DynamoTable) -> dict[str, str]:
    return {
        item["pk"]["S"] + item["sk"]["S"]: item["expires_at"]["N"]
        for item in table.client.scan(TableName=table.name)["Items"]
    }


def test_several_pieces_become_one_in_one_step(table: DynamoTable) -> None:
    many = [line(pod=f"p{i:03d}", usd=f"{i}.{i:012d}") for i in range(300)]
    ledger = DynamoLedger(table.client, table.name)
    own = ledger.publish(record(many), replacing=None, settings_version=1, now=NOW)
    for item in table.client.scan(TableName=table.name)["Items"]:
        if "#lines#" in item["pk"]["S"]:
            table.client.delete_item(TableName=table.name, Key={"pk": item["pk"], "sk": item["sk"]})
    old = form_1(many, own.run_id, HOUR, 900)
    assert len(old) > 5
    fill(table, old)
    assert ledger.lines("demo", HOUR) == many
    assert Migration(table.client, table.name).run().moved == 1
    assert ledger.lines("demo", HOUR) == many


class Crossing:
    """The real client; something else happens right before a call, or the command dies."""

    def __init__(self, client: Any, happens: Callable[[str, dict[str, Any]], None]) -> None:
        self._client, self._happens = client, happens

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self._happens(name, arguments)
            return getattr(self._client, name)(**arguments)

        return call


def test_killed_anywhere_it_goes_on_where_it_stood(table: DynamoTable) -> None:
    ledger = fill(
        table, recorded(FIRST) + [item for n in range(2, 6) for item in form_1([line(f"u{n}")], "1-x", HOUR, 10**6)]
    )
    before = all_that_is_read(ledger, table)
    calls = kills = 0
    while kills < 60:
        limit, calls = kills + 1, 0

        def die(name: str, arguments: dict[str, Any], limit: int = limit) -> None:
            nonlocal calls
            calls += 1
            if calls == limit:
                raise KilledError

        try:
            done = Migration(Crossing(table.client, die), table.name, page=3).run()
        except KilledError:
            kills += 1
            assert all_that_is_read(ledger, table) == before
        else:
            break
    assert kills > 5
    assert forms(table) == {LINES_FORMAT}
    assert all_that_is_read(ledger, table) == before
    assert done.seen >= len(recorded(FIRST))


def test_what_is_published_at_the_same_time_is_not_lost(table: DynamoTable) -> None:
    ledger = fill(table, recorded(FIRST))
    crossed: list[str] = []

    def publish(name: str, arguments: dict[str, Any]) -> None:
        if name == "transact_write_items" and not crossed:
            crossed.append(name)
            old = ledger.manifest("demo", HOUR)
            ledger.publish(record([line(pod="new")]), replacing=old, settings_version=2, now=NOW, why="crossing")

    Migration(Crossing(table.client, publish), table.name).run()
    assert [one.pod for one in ledger.lines("demo", HOUR)] == ["new"]
    soon = int(NOW.timestamp()) + 86_400
    items = table.client.scan(TableName=table.name)["Items"]
    superseded = [item for item in items if "#lines#" in item["pk"]["S"] and item["sk"]["S"].startswith("1-")]
    assert {int(item["expires_at"]["N"]) for item in superseded} == {soon}, "what was superseded still expires"
    assert {int(item["v"]["N"]) for item in superseded} == {LINES_FORMAT}


def test_readers_never_take_half_of_what_is_moved(table: DynamoTable) -> None:
    many = [line(pod=f"p{i:03d}", usd=f"{i}.{i:012d}") for i in range(40)]
    old = form_1(many, "1-x", HOUR, 600)
    new = line_items(old[0]["pk"]["S"], old[0]["sk"]["S"].rsplit("#", 1)[0], many, int(time.time()) + 9)
    assert read_line_items(old) == read_line_items(new) == many
    for mixed in (new + old[1:], old[:1], old[:-1]):
        with pytest.raises(BeingMovedError):
            read_line_items(mixed)
    with small_pieces(500):
        several = line_items(old[0]["pk"]["S"], "1-x#u", many, int(time.time()) + 9)
    assert len(several) > 1
    assert read_line_items(several) == many
    with pytest.raises(BeingMovedError):
        read_line_items(several[:-1])
    with pytest.raises(SourceError, match="format 3; this version reads up to 2"):
        read_line_items([{**new[0], "v": {"N": "3"}}])


@contextmanager
def small_pieces(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(blobs, "PIECE", size)
        yield


def test_fields_may_come_and_go_without_a_new_form() -> None:
    (item,) = line_items("C#demo#lines#2026-11-19T10", "1-x#u", [line(), line(pod="q")], 1)
    document: dict[str, Any] = blobs.unpack([item])
    del document["columns"]["shared_from"]
    document["columns"]["of_a_later_version"] = ["x", "y"]
    (changed,) = blobs.pack(document)
    assert read_line_items([{**item, "b": {"B": changed}}]) == [line(), line(pod="q")]


def test_every_digit_of_equal_amounts_is_kept() -> None:
    lines = [line()._replace(gpu_hourly_usd=Decimal("12.0")), line()._replace(gpu_hourly_usd=Decimal(12))]
    found = read_line_items(line_items("C#demo#lines#2026-11-19T10", "1-x#u", lines, 1))
    assert [str(one.gpu_hourly_usd) for one in found] == ["12.0", "12"]
