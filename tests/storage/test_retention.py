"""Each level is kept as long as the settings say, and what is gone is unknown, never zero."""

import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from gpucost.core.errors import ConflictError, SettingsError
from gpucost.core.hours import DAY, HOUR
from gpucost.core.ledger import Retention
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import MAX_ATTEMPTS, DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.rollups import RollupStore
from tests.conftest import DynamoTable
from tests.records import line, record

NOW = datetime.now(UTC).replace(microsecond=0)
LAST = NOW.replace(hour=0, minute=0, second=0) - DAY
LEVELS = Retention(timedelta(days=40), timedelta(days=50), timedelta(days=60))
DOCUMENT = (
    '{"clusters": [{"name": "c", "prometheus": {"url": "http://x"}}], '
    '"pricing": {"source": "constant", "gpu_hourly_usd": 1}, "retention": %s}'
)


def fill(table: DynamoTable) -> Ledger:
    """Two hours of a day, rolled up; one with a note, one restated."""
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    for hour in (LAST, LAST + HOUR):
        hour_record = record([line(), line("other", "ns", "q")], hour=hour, notes=("note",))
        first = ledger.publish(hour_record, replacing=None, settings_version=1, now=NOW, retention=LEVELS)
    again = record([line(usd="7")], hour=LAST + HOUR)
    ledger.publish(again, replacing=first, settings_version=1, now=NOW, reason="w", retention=LEVELS)
    RollupStore(DynamoDBTable(table.client, table.name)).roll_up("demo", LAST, NOW, LEVELS)
    return ledger


def expire(table: DynamoTable, *kinds: str) -> None:
    """As if their time had come, before DynamoDB removes them."""
    for item in table.client.scan(TableName=table.name)["Items"]:
        if item["pk"]["S"].split("#")[2] in kinds:
            old = {**item, "expires_at": {"N": str(int(time.time()) - 1)}}
            table.client.put_item(TableName=table.name, Item=old)
        if item["pk"]["S"].endswith("#hours") and "summaries" in kinds:  # a manifest says when its summary ends
            expired = {**item, "e": {"N": str(int(time.time()) - 1)}}
            table.client.put_item(TableName=table.name, Item=expired)


def test_each_retention_level_expires_as_configured(table: DynamoTable) -> None:
    fill(table)
    ends: dict[str, set[int]] = defaultdict(set)
    for item in table.client.scan(TableName=table.name)["Items"]:
        days = (int(item["expires_at"]["N"]) - NOW.timestamp()) / 86_400
        ends[item["pk"]["S"].split("#")[2]].add(round(days))
    superseded = 1
    assert ends == {
        "lines": {40, superseded},
        "summaries": {50, superseded},
        "unit": {50},
        "notes": {50, superseded},
        "hours": {60},
        "days": {60},
        "facts": {60},
        "rollups": {60},
        "restatements": {60},
    }


def test_expired_details_are_missing_and_their_sums_stay(table: DynamoTable) -> None:
    ledger, rollups = fill(table), RollupStore(DynamoDBTable(table.client, table.name))
    day, facts = rollups.days("demo", LAST, LAST + DAY), rollups.facts("demo", LAST, LAST + DAY)
    assert [summary.totals is not None for summary in day] == [True]
    expire(table, "lines")
    assert ledger.lines("demo", LAST) == []
    assert rollups.facts("demo", LAST, LAST + DAY) == facts, "summed before"
    expire(table, "lines", "summaries", "unit")
    head = table.client.get_item(TableName=table.name, Key=_key("rollups"))["Item"]
    table.client.put_item(TableName=table.name, Item={**head, "u": {"N": str(int(time.time()) - 1)}})
    assert [costs for _, costs in rollups.unit_hours("demo", "research", LAST, LAST + DAY)] == [None, None]
    assert [summary.totals for summary in ledger.summaries("demo", LAST, LAST + DAY)] == [None, None]
    (outlived,) = rollups.days("demo", LAST, LAST + DAY)
    assert [(outlived.totals, outlived.costs)] == [(summary.totals, summary.costs) for summary in day], (
        "a day outlives its hours"
    )
    expire(table, "days", "facts", "rollups")
    assert rollups.facts("demo", LAST, LAST + DAY) == [], "no sum of lines that are gone"
    (gone,) = rollups.days("demo", LAST, LAST + DAY)
    assert (gone.totals, gone.manifests) == (None, ()), "and such hours do not count as covered"


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ('{"pods": 400, "hourly": 300}', "pods must not be longer than hourly"),
        ('{"hourly": 1000, "daily": 999}', "nor hourly longer than daily"),
        ('{"pods": 34}', "greater than or equal to 35"),
    ],
)
def test_retention_of_sums_must_not_be_shorter_than_of_details(section: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        parse_settings(DOCUMENT % section)


def test_retention_follows_the_settings() -> None:
    settings = parse_settings(DOCUMENT % '{"pods": 40, "hourly": 50, "daily": 60}')
    assert settings.retention.periods() == LEVELS
    assert parse_settings(DOCUMENT % "{}").retention.periods() == Retention()


def test_transaction_is_retried_after_a_collision_but_not_after_a_failed_condition() -> None:
    client: Any = boto3.client("dynamodb", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")
    stub, waits = Stubber(client), list[float]()

    def refuse(code: str) -> None:
        stub.add_client_error(
            "transact_write_items",
            "TransactionCanceledException",
            modeled_fields={"CancellationReasons": [{"Code": "None"}, {"Code": code}]},
        )

    refuse("TransactionConflict")
    stub.add_response("transact_write_items", {})
    refuse("ConditionalCheckFailed")
    for _ in range(MAX_ATTEMPTS):
        refuse("TransactionConflict")
    table = DynamoDBTable(client, "t", sleep=waits.append)
    with stub:
        table.transact([({"pk": {"S": "p"}, "sk": {"S": "s"}}, None)])
        assert len(waits) == 1
        for more in (0, MAX_ATTEMPTS - 1):
            with pytest.raises(ConflictError):
                table.transact([({"pk": {"S": "p"}, "sk": {"S": "s"}}, None)])
            assert len(waits) == 1 + more
        stub.assert_no_pending_responses()


def _key(kind: str) -> dict[str, Any]:
    return {"pk": {"S": f"C#demo#{kind}"}, "sk": {"S": f"{LAST:%Y-%m-%d}"}}
