"""A small month, exported by the real handler from Amazon's DynamoDB engine to S3, read by DuckDB: the same sums as the
API's and as the ledger's lines, to the last digit.
"""

import csv
import gzip
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest
import requests
import sqlglot

from functions.export import app as export
from gpucost.container import Container
from gpucost.core.amounts import to_decimal
from gpucost.core.hours import format_timestamp
from gpucost.features.exports.focus_columns import COLUMNS
from gpucost_devstack.aws import local_client, running_aws
from gpucost_devstack.dynamodb_local import create_table
from gpucost_devstack.template import REPOSITORY
from tests.enforced_permissions import ANY_TABLE, enforcing
from tests.features.exports import exported_month, focus_rules
from tests.features.exports.exported_month import DAYS, START
from tests.functions.api_requests import Context, request_as, role_caller, serving

END = START + timedelta(days=DAYS)
NOW = END + timedelta(hours=2, minutes=40)
CLUSTERS = {"east": DAYS, "west.eu": 2}
USD = ("allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd")
HOURS = ("allocated_gpu_hours", "effective_gpu_hours", "unmeasured_gpu_hours")
IN_PARQUET = {
    "allocated_usd": "EffectiveCost", "effective_usd": "x_UsedCost", "waste_usd": "x_WasteCost",
    "unmeasured_usd": "x_UnmeasuredCost", "allocated_gpu_hours": "x_GpuHours",
    "effective_gpu_hours": "x_EffectiveGpuHours", "unmeasured_gpu_hours": "x_UnmeasuredGpuHours",
}  # fmt: skip
Sums = dict[tuple[str, ...], dict[str, Decimal]]


class Lambda(Context):
    def get_remaining_time_in_millis(self) -> int:
        return 900_000


@dataclass
class Exported:
    """The month in the ledger, in S3, and as files."""

    folder: Path
    answer: dict[str, Any]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.cursor(sql).fetchall()
        return rows

    def cursor(self, sql: str) -> Any:
        connection = duckdb.connect()
        files = f"read_parquet('{self.folder}/focus/**/*.parquet', hive_partitioning = true)"
        connection.execute(f"CREATE VIEW focus AS SELECT * FROM {files}")
        return connection.execute(sql)

    def rows(self) -> list[dict[str, Any]]:
        cursor = self.cursor(f"SELECT {', '.join(COLUMNS)} FROM focus ORDER BY x_Cluster, ChargePeriodStart")
        return [dict(zip(COLUMNS, row, strict=True)) for row in cursor.fetchall()]


def ask(path: str, **query: str) -> dict[str, Any]:
    answer = request_as(role_caller("finops"), path, query)
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json
    return body


@pytest.fixture(scope="module")
def exported(dynamodb_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    with ExitStack() as running:
        s3_url, patch = running.enter_context(running_aws()), running.enter_context(pytest.MonkeyPatch.context())
        table, bucket = f"ledger-{uuid4()}", f"exports-{uuid4()}"
        create_table(local_client("dynamodb", dynamodb_url), table)
        s3 = local_client("s3", s3_url)
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        variables = {
            "GPUCOST_TABLE": table, "GPUCOST_EXPORT_BUCKET": bucket, "GPUCOST_BILLING_ACCOUNT": "123456789012",
            "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_url, "AWS_ENDPOINT_URL_S3": s3_url, "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local", "AWS_DEFAULT_REGION": "eu-central-1",
        }  # fmt: skip
        for name, value in variables.items():
            patch.setenv(name, value)
        container = running.enter_context(serving(Container(clock=lambda: NOW)))
        now = datetime.now(UTC)
        container.settings_store.push(exported_month.SETTINGS, author="test", now=now)
        for cluster, days in CLUSTERS.items():
            for record in exported_month.month(cluster, days):
                container.ledger.publish(record, replacing=None, settings_version=1, now=now)
        policies = running.enter_context(
            enforcing(dynamodb_url, s3_url, parameters={**ANY_TABLE, "ExistingExportBucket": bucket})
        )
        for name, value in policies.environment("ExportFunction").items():
            patch.setenv(name, value)
        patch.delenv("AWS_ENDPOINT_URL_S3")
        deployed = running.enter_context(serving(Container(clock=lambda: NOW)))
        answer = export.handler({"version": 1, "scheduled_time": format_timestamp(NOW)}, Lambda(), container=deployed)
        folder = tmp_path_factory.mktemp("exported")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for content in page["Contents"]:
                target = folder / content["Key"]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(s3.get_object(Bucket=bucket, Key=content["Key"])["Body"].read())
        yield Exported(folder, answer)


def by_hand(key: Callable[[Any], tuple[str, ...]]) -> Sums:
    """The ledger's raw lines, added up without any of the product's own sums."""
    sums: Sums = defaultdict(lambda: dict.fromkeys((*USD, *HOURS), Decimal(0)))
    for cluster in CLUSTERS:
        for manifest in Container().ledger.manifests(cluster, START, END):
            for line in Container().ledger.lines_of(manifest):
                sums_of_key = sums[(f"{manifest.hour:%Y-%m-%d}", *key(line))]
                for name in (*USD, *HOURS):
                    sums_of_key[name] += to_decimal(getattr(line, name) or 0)
    return dict(sums)


def in_parquet(exported: Exported, *columns: str) -> Sums:
    sums = ", ".join(f"coalesce(sum({IN_PARQUET[name]}), 0)" for name in (*USD, *HOURS))
    grouped = ", ".join(["date::VARCHAR", *columns])
    rows = exported.query(f"SELECT {grouped}, {sums} FROM focus WHERE x_CostPart = 'allocated' GROUP BY {grouped}")
    width = len(columns) + 1
    return {row[:width]: dict(zip((*USD, *HOURS), row[width:], strict=True)) for row in rows}


def in_the_api(*dimensions: str) -> Sums:
    answer = ask("/v1/costs", start=format_timestamp(START), end=format_timestamp(END), granularity="day",
                 group_by=",".join(dimensions))  # fmt: skip
    return {
        (row["start"][:10], *(row["group"][name] for name in dimensions)): {
            # An amount without any price is null in the response, and missing in a sum.
            name: row[name] or Decimal(0) for name in (*USD, *HOURS)
        }
        for row in answer["rows"]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dimensions", "columns"),
    [
        (("business_unit",), ("x_BusinessUnit",)),
        (("namespace",), ("x_Namespace",)),
        (("business_unit", "namespace"), ("x_BusinessUnit", "x_Namespace")),
        ((), ()),
    ],
)
def test_export_ledger_and_api_have_the_same_sums(
    exported: Exported, dimensions: tuple[str, ...], columns: tuple[str, ...]
) -> None:
    lines = by_hand(lambda line: tuple(getattr(line, name) for name in dimensions))
    assert len({key[0] for key in lines}) == DAYS
    assert in_parquet(exported, *columns) == lines
    assert in_the_api(*dimensions) == lines


def test_all_rows_add_up_to_the_fleets_cost(exported: Exported) -> None:
    totals = ask("/v1/costs", start=format_timestamp(START), end=format_timestamp(END), granularity="day")["totals"]
    ((cost, hours),) = exported.query("SELECT sum(EffectiveCost), sum(x_GpuHours) FROM focus")
    assert (cost, hours) == (totals["node_cost_usd"], totals["capacity_gpu_hours"])
    parts = dict(exported.query("SELECT x_CostPart, sum(EffectiveCost) FROM focus GROUP BY 1"))
    assert parts == {
        "allocated": totals["allocated_usd"], "unallocated": totals["unallocated_usd"],
        "stranded": totals["stranded_usd"], "unobserved": totals["unobserved_usd"],
    }  # fmt: skip


def test_rows_of_each_node_add_up_to_its_cost(exported: Exported) -> None:
    exported_costs = {
        (cluster, resource, start.replace(tzinfo=UTC)): cost
        for cluster, resource, start, cost in exported.query(
            "SELECT x_Cluster, ResourceId, ChargePeriodStart, sum(EffectiveCost) FROM focus GROUP BY 1, 2, 3"
        )
    }
    ledger_costs = {
        (cluster, node.provider_id.rpartition("/")[2], manifest.hour): to_decimal(node.capacity.node_cost_usd)
        if node.price_source
        else None
        for cluster in CLUSTERS
        for manifest in Container().ledger.manifests(cluster, START, END)
        for node in Container().ledger.nodes_and_charges_of(manifest)[0]
    }
    assert len(ledger_costs) == 3 * (len(exported_month.HOURS_OF_A_DAY) * sum(CLUSTERS.values()) - 1)
    assert exported_costs == ledger_costs, "None without a price"


def test_rows_of_a_month_follow_focus_rules(exported: Exported) -> None:
    rows = exported.rows()
    assert focus_rules.columns_violated(list(rows[0])) == []
    priced = [row for row in rows if row["x_PriceSource"] is not None]
    assert focus_rules.violated(priced) == []
    # Unknown costs are null in provisional hours, which breaks this FOCUS rule on purpose.
    unpriced = [row for row in rows if row["x_PriceSource"] is None]
    broken = {violation.split()[0] for violation in focus_rules.violated(unpriced)}
    assert broken == {"ContractedCost", "EffectiveCost", "ListCost"}
    assert {row["x_HourStatus"] for row in unpriced} == {"provisional"}


def test_columns_have_the_types_of_the_athena_table(exported: Exported) -> None:
    types = {name: kind for name, kind, *_ in exported.query("DESCRIBE SELECT * FROM focus")}
    expected = {"text": "VARCHAR", "amount": "DECIMAL(38,12)", "whole": "BIGINT", "time": "TIMESTAMP"}
    assert {name: types[name] for name in COLUMNS} == {name: expected[kind] for name, kind in COLUMNS.items()}


def test_listing_has_exported_days_with_working_urls(exported: Exported) -> None:
    assert exported.answer["days_left"] == 0
    assert len(exported.answer["exported"]) == sum(CLUSTERS.values())
    answer = ask("/v1/exports", start=format_timestamp(START), end=format_timestamp(END))
    rows = answer["rows"]
    assert [(row["day"], row["cluster"]) for row in rows[:3]] == [
        ("2026-11-01T00:00:00Z", "east"), ("2026-11-01T00:00:00Z", "west.eu"), ("2026-11-02T00:00:00Z", "east"),
    ]  # fmt: skip
    assert len(rows) == sum(CLUSTERS.values())
    assert {(row["version"], row["status"], row["is_current"]) for row in rows} == {(1, "incomplete", True)}
    first = rows[0]
    parquet = requests.get(first["parquet_url"], timeout=10)
    path = exported.folder / "focus/billing_period=2026-11/cluster=east/date=2026-11-01/rows.parquet"
    assert parquet.content == path.read_bytes()
    assert len(parquet.content) == first["parquet_bytes"]
    assert parquet.headers["Content-Disposition"] == 'attachment; filename="east-2026-11-01.parquet"'
    assert "X-Amz-Expires=300" in first["parquet_url"]
    assert first["urls_expire_at"] == format_timestamp(NOW + timedelta(seconds=299))
    table = [*csv.reader(io.StringIO(gzip.decompress(requests.get(first["csv_url"], timeout=10).content).decode()))]
    assert len(table) == first["rows"] + 1


def test_csv_has_the_same_rows_and_no_formulas(exported: Exported) -> None:
    path = exported.folder / "csv/billing_period=2026-11/cluster=east/date=2026-11-02/rows.csv.gz"
    header, *table = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    assert header == [*COLUMNS]
    rows = [row for row in exported.rows() if row["x_Cluster"] == "east" and row["ChargePeriodStart"].day == 2]
    plain = [
        [
            "" if value is None
            else value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, datetime)
            else f"'{value}" if str(value).startswith("=")
            else str(value) if not isinstance(value, Decimal) else format(value, "f")
            for value in row.values()
        ]
        for row in rows
    ]  # fmt: skip
    assert sorted(table) == sorted(plain)
    assert any(cell == "'=assistant" for row in table for cell in row)
    assert not any(cell.startswith(("=", "+", "@", "\t")) for row in table for cell in row)


QUERIES = re.findall(r"```sql\n(.*?)```", (REPOSITORY / "docs/how-to/exports.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("sql", QUERIES, ids=[query.splitlines()[0].removeprefix("-- ") for query in QUERIES])
def test_documented_queries_return_rows(exported: Exported, sql: str) -> None:
    (translated,) = sqlglot.transpile(sql, read="athena", write="duckdb")
    assert exported.query(translated.replace("gpucost_dev.focus", "focus"))


def test_every_column_is_documented() -> None:
    text = (REPOSITORY / "docs/how-to/exports.md").read_text()
    assert [name for name in COLUMNS if f"`{name}`" not in text] == []
