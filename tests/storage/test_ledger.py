"""The ledger on Amazon's own DynamoDB engine: atomic, idempotent, exact, cheap."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from msgspec.structs import replace

from gpucost.core.amounts import SCALE, Totals
from gpucost.core.errors import ConflictError, IntegrityError, SourceError
from gpucost.core.hour_record import HourRecord, Line
from gpucost.core.hours import HOUR as ONE_HOUR
from gpucost.core.ledger import HourSummary, next_attempt
from gpucost.storage.dynamodb_table import MAX_ATTEMPTS, DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from tests.conftest import DynamoTable
from tests.metered_client import MeteredClient
from tests.records import HOUR, amount, line, record

NOW = datetime.now(UTC).replace(microsecond=0)
FIGURES = [line(pod="p1"), line(pod="p2", usd="0.000000000001"), line("idle", "notebooks", "n", "12")]


def read_all(ledger: Ledger) -> tuple[list[HourSummary], list[Line]]:
    """What every reader sees of the day."""
    lines = ledger.lines("demo", HOUR)
    return ledger.summaries("demo", HOUR, HOUR + 5 * ONE_HOUR), sorted(lines, key=lambda line: line.pod)


def publish(ledger: Ledger, hour_record: HourRecord) -> None:
    ledger.publish(
        hour_record, replacing=ledger.manifest(hour_record.cluster, hour_record.hour), settings_version=1, now=NOW
    )


def test_published_records_are_read_unchanged(table: DynamoTable) -> None:
    ledger = Ledger(DynamoDBTable(MeteredClient(table.client), table.name))
    published = record(FIGURES, notes=("a note",))
    manifest = ledger.publish(published, replacing=None, settings_version=3, now=NOW)
    assert (manifest.version, manifest.settings_version, manifest.attempts) == (1, 3, 0)
    assert ledger.manifest("demo", HOUR) == manifest
    (summary,) = ledger.summaries("demo", HOUR, HOUR + ONE_HOUR)
    assert (summary.cluster, summary.start, summary.totals) == ("demo", HOUR, published.totals)
    assert (summary.manifests, summary.costs) == ((replace(manifest, notes=()),), published.by_namespace())
    assert read_all(ledger)[1] == sorted(FIGURES, key=lambda line: line.pod)
    assert ledger.lines("demo", HOUR, "idle") == [FIGURES[2]]
    assert ledger.lines("demo", HOUR, "absent") == []
    assert ledger.notes_of(ledger.manifests("demo", HOUR, HOUR + ONE_HOUR)) == {HOUR: ("a note",)}


def test_totals_are_read_without_groups(table: DynamoTable) -> None:
    """Even where these are damaged; a summary without its totals is damaged."""
    ledger, hour_record = Ledger(DynamoDBTable(table.client, table.name)), record()
    ledger.publish(hour_record, replacing=None, settings_version=1, now=NOW)
    (item,) = [
        scanned for scanned in table.client.scan(TableName=table.name)["Items"] if "#summaries" in scanned["pk"]["S"]
    ]
    without = {name: value for name, value in item.items() if name != "t"}
    table.client.put_item(TableName=table.name, Item=without)
    with pytest.raises(IntegrityError):
        read_totals(ledger)
    table.client.put_item(TableName=table.name, Item={**item, "b": {"B": b"damaged"}})
    assert read_totals(ledger) == hour_record.totals


def read_totals(ledger: Ledger) -> Totals | None:
    (summary,) = ledger.summaries("demo", HOUR, HOUR + ONE_HOUR)
    return summary.totals


def test_only_hours_within_the_range_are_read(ledger_table: Table) -> None:
    ledger = Ledger(ledger_table)
    for hours in (0, 1, 2, 3):
        publish(ledger, record(FIGURES, hour=HOUR + hours * ONE_HOUR))
    publish(ledger, record(FIGURES, cluster="demo-2"))
    summaries = ledger.summaries("demo", HOUR + ONE_HOUR, HOUR + 3 * ONE_HOUR)
    assert [summary.start for summary in summaries] == [HOUR + ONE_HOUR, HOUR + 2 * ONE_HOUR]


@pytest.mark.parametrize("name", ['a"b', "line\nbreak", "hash#hash", "ü" * 200, "<script>", "=1+1", "~", ""])
def test_business_unit_may_have_any_name(ledger_table: Table, name: str) -> None:
    ledger = Ledger(ledger_table)
    publish(ledger, record([line(name, "n"), line("other", "n")]))
    assert [read_line.business_unit for read_line in ledger.lines("demo", HOUR, name)] == [name]


@pytest.mark.tools
def test_readers_see_the_same_after_a_crash_at_any_call_and_a_second_run(dynamodb_url: str, table: DynamoTable) -> None:
    first, second = record([line(pod="old")]), record(FIGURES, notes=("new",))

    def run(client: Any) -> None:
        publish(Ledger(DynamoDBTable(client, table.name)), second)

    def start_over() -> Ledger:
        table.client.delete_table(TableName=table.name)
        from gpucost_devstack.dynamodb_local import create_table

        create_table(table.client, table.name)
        ledger = Ledger(DynamoDBTable(table.client, table.name))
        publish(ledger, first)
        return ledger

    ledger = start_over()
    before = read_all(ledger)
    watched = MeteredClient(table.client)
    run(watched)
    after = read_all(ledger)
    assert len(watched.calls) > 5
    for k in range(1, len(watched.calls) + 1):
        ledger = start_over()
        with pytest.raises(KeyboardInterrupt):
            run(MeteredClient(table.client, fail_at=k))
        assert read_all(ledger) in (before, after), f"half an hour was seen after call {k}"
        if read_all(ledger) == before:
            run(table.client)
        assert read_all(ledger) == after, f"call {k}"


def test_one_of_two_concurrent_writers_wins_and_the_other_is_never_seen(table: DynamoTable) -> None:
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    winner, loser = record([line(pod="winner")]), record([line(pod="loser")])
    ledger.publish(winner, replacing=None, settings_version=1, now=NOW)
    with pytest.raises(ConflictError):
        ledger.publish(loser, replacing=None, settings_version=1, now=NOW)
    assert [read_line.pod for read_line in ledger.lines("demo", HOUR)] == ["winner"]
    assert [summary.costs for summary in ledger.summaries("demo", HOUR, HOUR + ONE_HOUR)] == [winner.by_namespace()]
    items = table.client.scan(TableName=table.name)["Items"]
    assert all("expires_at" in item for item in items), "what the other wrote goes in time"
    assert len(items) == 5, "and not before: a third writer of its figures may be about to put them in force"


def test_items_shared_by_two_writers_survive_the_loser(ledger_table: Table) -> None:
    ledger = Ledger(ledger_table)
    ledger.publish(record(FIGURES), replacing=None, settings_version=1, now=NOW)
    with pytest.raises(ConflictError):
        ledger.publish(record(FIGURES), replacing=None, settings_version=1, now=NOW)
    assert len(ledger.lines("demo", HOUR)) == 3


def test_superseded_items_expire_and_are_not_seen(table: DynamoTable) -> None:
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    publish(ledger, record([line(pod="old")]))
    publish(ledger, record([line(pod="new")]))
    assert [read_line.pod for read_line in ledger.lines("demo", HOUR)] == ["new"]
    (summary,) = ledger.summaries("demo", HOUR, HOUR + ONE_HOUR)
    assert summary.manifest.version == 2
    ends = sorted(int(item["expires_at"]["N"]) for item in table.client.scan(TableName=table.name)["Items"])
    soon = int((NOW + timedelta(days=1)).timestamp())
    assert [end == soon for end in ends] == [True, True, False, False, False]


def test_expired_items_are_not_read_before_their_deletion(table: DynamoTable) -> None:
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    publish(ledger, record(FIGURES))
    for item in table.client.scan(TableName=table.name)["Items"]:
        table.client.put_item(TableName=table.name, Item={**item, "expires_at": {"N": "1"}})
    assert ledger.summaries("demo", HOUR, HOUR + ONE_HOUR) == []
    assert ledger.lines("demo", HOUR) == []


def test_item_with_a_newer_schema_version_is_refused(table: DynamoTable) -> None:
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    publish(ledger, record(FIGURES))
    for item in table.client.scan(TableName=table.name)["Items"]:
        table.client.put_item(TableName=table.name, Item={**item, "v": {"N": "99"}})
    with pytest.raises(SourceError, match="schema version 99"):
        ledger.summaries("demo", HOUR, HOUR + ONE_HOUR)


def test_incomplete_attempts_are_counted_and_wait_longer_each_time(ledger_table: Table) -> None:
    ledger = Ledger(ledger_table)
    waits = []
    for _ in range(4):
        publish(ledger, record(status="incomplete"))
        manifest = ledger.manifest("demo", HOUR)
        assert manifest is not None
        assert manifest.next_attempt_at is not None
        waits.append(manifest.next_attempt_at - NOW.replace(minute=0, second=0))
        assert manifest.notes == ("no scrape was seen",)
    assert waits == [timedelta(hours=n) for n in (1, 2, 4, 8)]
    (summary,) = ledger.summaries("demo", HOUR, HOUR + ONE_HOUR)
    assert (summary.manifest.status, summary.totals, dict(summary.costs)) == ("incomplete", None, {})


@pytest.mark.tools
def test_number_of_failed_attempts_is_unlimited(ledger_table: Table) -> None:
    """A backfill is run again and again while a cluster's Prometheus is away."""
    ledger = Ledger(ledger_table)
    end = HOUR + timedelta(days=30)
    for at in range(70):
        hour_record = record(hour=HOUR, status="incomplete", notes=(f"attempt {at}",))
        ledger.publish(
            hour_record,
            replacing=ledger.newest_version_of_hour("demo", HOUR),
            settings_version=1,
            now=HOUR + (2 + at) * ONE_HOUR,
            last_attempt=end,
        )
    manifest = ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert (manifest.attempts, manifest.next_attempt_at) == (70, end)


@pytest.mark.parametrize("attempts", [11, 28, 64, 10_000])
def test_time_between_attempts_is_limited_but_exceeds_the_longest_look_back(attempts: int) -> None:
    longest = timedelta(hours=720)
    assert next_attempt(attempts, NOW, NOW + longest) == NOW + longest
    alone = next_attempt(attempts, NOW)
    assert alone is not None
    assert alone > NOW + longest


def test_incomplete_attempt_never_replaces_figures(ledger_table: Table) -> None:
    ledger = Ledger(ledger_table)
    publish(ledger, record(FIGURES))
    before = read_all(ledger)
    with pytest.raises(ConflictError):
        publish(ledger, record(status="incomplete"))
    assert read_all(ledger) == before


@pytest.mark.tools
def test_week_of_manifests_is_one_cheap_query(table: DynamoTable) -> None:
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    for hours in range(168):
        hour_record = record(
            hour=HOUR + hours * ONE_HOUR, status="incomplete" if hours % 3 else "complete", notes=("x" * 300,)
        )
        publish(ledger, hour_record)
    watched = MeteredClient(table.client)
    manifests = Ledger(DynamoDBTable(watched, table.name)).manifests("demo", HOUR, HOUR + 168 * ONE_HOUR)
    assert len(manifests) == 168
    assert watched.calls == ["query"]
    assert watched.units["query"] <= 10


@pytest.mark.tools  # the engine counts the units
def test_large_hour_stays_within_its_write_budget(table: DynamoTable) -> None:
    lines = [line(f"unit-{i % 200}", f"team-{i % 200}", f"workload-{i // 7}-{i:05d}") for i in range(10_000)]
    watched = MeteredClient(table.client)
    ledger = Ledger(DynamoDBTable(watched, table.name))
    ledger.publish(record(lines), replacing=None, settings_version=1, now=NOW)
    assert sum(watched.units.values()) <= 2_000
    again = MeteredClient(table.client)
    assert len(Ledger(DynamoDBTable(again, table.name)).lines("demo", HOUR, "unit-7")) == 50
    assert again.units["query"] + again.units["get_item"] <= 4
    assert len(again.calls) <= 3


@pytest.mark.tools
def test_thousands_of_pods_in_one_unit_are_stored_in_chunks(table: DynamoTable) -> None:
    import hashlib

    names = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(12_000)]
    lines = [line("one", "ns", name, f"1.{int(name[:8], 16):012d}"[:14]) for name in names]
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    publish(ledger, record(lines))
    assert len(ledger.lines("demo", HOUR, "one")) == 12_000
    sizes = [len(item["b"]["B"]) for item in table.client.scan(TableName=table.name)["Items"] if "b" in item]
    assert len(sizes) > 3


def test_restatement_names_the_currencies_before_and_after(ledger_table: Table) -> None:
    ledger = Ledger(ledger_table)
    publish(ledger, record(FIGURES))
    ledger.publish(
        replace(record(FIGURES), currency="EUR"),
        replacing=ledger.manifest("demo", HOUR),
        settings_version=2,
        now=NOW,
        reason="billed in EUR",
    )
    (restatement,) = ledger.restatements("demo", HOUR, HOUR + ONE_HOUR)
    assert (restatement.currency_before, restatement.currency) == ("USD", "EUR")


@pytest.mark.tools  # seconds
def test_restatement_of_more_units_than_an_item_holds_is_complete(table: DynamoTable) -> None:
    """Every namespace may be a business unit of its own; here names are long, so that few are enough."""
    chance = random.Random(1)
    units = [chance.randbytes(8_000).hex() for _ in range(50)]
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    for usd in ("1", "2", "3"):
        lines = [line(unit, "n", "p", usd) for unit in units]
        manifest = ledger.manifest("demo", HOUR)
        ledger.publish(record(lines), replacing=manifest, settings_version=1, now=NOW, reason="prices changed")
    restatements = ledger.restatements("demo", HOUR, HOUR + ONE_HOUR)
    assert [restatement.version for restatement in restatements] == [2, 3]
    assert [(unit, after) for unit, (_, after) in sorted(restatements[1].changed_units.items())] == sorted(
        (hour_line.business_unit, hour_line.costs()) for hour_line in lines
    )
    chunks = table.client.query(
        TableName=table.name,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": "C#demo#restatements"}},
    )["Items"]
    assert len(chunks) > 2


@pytest.mark.tools  # seconds
def test_the_largest_items_of_a_crowded_namespace_stay_below_400_kb(table: DynamoTable) -> None:
    """200 units share a namespace, 1,000 pods in it each, by names that nothing compresses; here five of the units."""
    chance = random.Random(1)

    def noise(length: int) -> str:
        return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))

    lines = [
        line(f"unit-{i % 5}", "shared", noise(63), f"{chance.randrange(100)}.{chance.randrange(10**12):012d}")._replace(
            uid=noise(36), workload=noise(63), node=noise(40), labels={noise(20): noise(63) for _ in range(3)}
        )
        for i in range(5_000)
    ]
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    hour_record = record(lines, notes=tuple(noise(999) for _ in range(1_000)))
    ledger.publish(hour_record, replacing=None, settings_version=1, now=NOW)
    pages = table.client.get_paginator("scan").paginate(TableName=table.name)
    sizes = [_size(item) for page in pages for item in page["Items"]]
    assert 290_000 < max(sizes) < 310_000
    assert sorted(ledger.lines("demo", HOUR), key=lambda read_line: read_line.uid) == sorted(
        lines, key=lambda original: original.uid
    )
    assert len(ledger.lines("demo", HOUR, "unit-3")) == 1_000
    manifest = ledger.manifest("demo", HOUR)
    assert manifest is not None
    *kept, last = manifest.notes
    assert tuple(kept) == hour_record.notes[: len(kept)]
    assert (len(kept) >= 250, last) == (True, f"and {1_000 - len(kept)} more notes")


def _size(item: dict[str, Any]) -> int:
    """As DynamoDB counts: names and values (a number takes a byte for two digits, and one more)."""
    total = 0
    for name, value in item.items():
        ((kind, content),) = value.items()
        total += len(name) + (len(content) // 2 + 2 if kind == "N" else len(content))
    return total


def stubbed() -> tuple[Any, Stubber]:
    client = boto3.client("dynamodb", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")
    return client, Stubber(client)


def test_unprocessed_items_are_written_again() -> None:
    client, stub = stubbed()
    items = [{"pk": {"S": "p"}, "sk": {"S": str(i)}} for i in range(3)]
    requests = [{"PutRequest": {"Item": item}} for item in items]
    stub.add_response("batch_write_item", {"UnprocessedItems": {"t": requests[1:]}}, {"RequestItems": {"t": requests}})
    stub.add_response("batch_write_item", {"UnprocessedItems": {}}, {"RequestItems": {"t": requests[1:]}})
    waits: list[float] = []
    with stub:
        DynamoDBTable(client, "t", sleep=waits.append).put_all(items)
        stub.assert_no_pending_responses()
    assert len(waits) == 1


def test_lasting_throttling_raises_an_error() -> None:
    client, stub = stubbed()
    items = [{"pk": {"S": "p"}, "sk": {"S": "s"}}]
    for _ in range(MAX_ATTEMPTS):
        stub.add_response("batch_write_item", {"UnprocessedItems": {"t": [{"PutRequest": {"Item": items[0]}}]}})
    with stub, pytest.raises(SourceError, match="throttled: 1 items"):
        DynamoDBTable(client, "t", sleep=lambda _: None).put_all(items)


@pytest.mark.parametrize("name", ["allocated_gpu_hours", "allocated_usd"])
def test_lines_are_not_read_if_an_amount_is_implausibly_large(ledger_table: Table, name: str) -> None:
    ledger = Ledger(ledger_table)

    def with_amount(figure: int) -> HourRecord:
        amounts: Any = {name: figure * SCALE}
        return record([line(), line(pod="huge")._replace(**amounts)])

    manifest = ledger.publish(with_amount(2 * 10**12), replacing=None, settings_version=1, now=NOW)
    assert [read(manifest) for read in (ledger.lines_of, ledger.compact_lines_of)] == [[], []]
    manifest = ledger.publish(with_amount(10**12), replacing=manifest, settings_version=1, now=NOW)
    assert [len(read(manifest)) for read in (ledger.lines_of, ledger.compact_lines_of)] == [2, 2]


def test_amounts_keep_all_digits(ledger_table: Table) -> None:
    ledger = Ledger(ledger_table)
    usd = "987654321098.123456789012"
    publish(ledger, record([line(usd=usd)]))
    (read_line,) = ledger.lines("demo", HOUR)
    assert str(read_line.figures()["allocated_usd"]) == usd
    (summary,) = ledger.summaries("demo", HOUR, HOUR + ONE_HOUR)
    assert summary.costs["research", "bu-a"].allocated_usd == amount(usd)
    assert amount(usd) == 987_654_321_098_123_456_789_012
