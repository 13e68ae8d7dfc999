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
from gpucost.features.exports.focus import COLUMNS, INFERENCE_COLUMNS
from gpucost_devstack.aws import local_client, running_aws
from gpucost_devstack.dynamodb_local import create_table
from gpucost_devstack.template import REPOSITORY
from tests.enforced_permissions import ANY_TABLE, enforcing
from tests.features.exports import exported_month, focus_rules
from tests.features.exports.documented_queries import EXPECTED
from tests.features.exports.exported_month import DAYS, START
from tests.functions.api_requests import Context, request_as, role_caller, serving

pytestmark = pytest.mark.tools

END = START + timedelta(days=DAYS)
NOW = END + timedelta(hours=2, minutes=40)
CLUSTERS = {"east": DAYS, "west.eu": 2}
USD = ("allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd")
HOURS = ("allocated_gpu_hours", "effective_gpu_hours", "unmeasured_gpu_hours")
IN_PARQUET = {
    "allocated_usd": "EffectiveCost",
    "effective_usd": "x_UsedCost",
    "waste_usd": "x_WasteCost",
    "unmeasured_usd": "x_UnmeasuredCost",
    "allocated_gpu_hours": "x_GpuHours",
    "effective_gpu_hours": "x_EffectiveGpuHours",
    "unmeasured_gpu_hours": "x_UnmeasuredGpuHours",
}
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
        for table in ("focus", "inference"):
            files = f"read_parquet('{self.folder}/{table}/**/*.parquet', hive_partitioning = true)"
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM {files}")
        return connection.execute(sql)

    def rows(self, table: str = "focus") -> list[dict[str, Any]]:
        columns = {"focus": COLUMNS, "inference": INFERENCE_COLUMNS}[table]
        cursor = self.cursor(f"SELECT {', '.join(columns)} FROM {table} ORDER BY x_Cluster, ChargePeriodStart")
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


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
            "GPUCOST_TABLE": table,
            "GPUCOST_EXPORT_BUCKET": bucket,
            "GPUCOST_BILLING_ACCOUNT": "123456789012",
            "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_url,
            "AWS_ENDPOINT_URL_S3": s3_url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_DEFAULT_REGION": "eu-central-1",
        }
        for name, value in variables.items():
            patch.setenv(name, value)
        container = running.enter_context(serving(Container(clock=lambda: NOW)))
        now = datetime.now(UTC)
        container.settings_store.push(exported_month.SETTINGS, author="test", now=now)
        for cluster, days in CLUSTERS.items():
            for record in exported_month.month(cluster, days):
                container.ledger.publish(record, replacing=None, settings_version=1, now=now)
        restated = exported_month.restated_hour()
        original = container.ledger.manifest("east", restated.hour)
        container.ledger.publish(restated, replacing=original, settings_version=1, now=now)
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
    ledger = Container().ledger
    for cluster in CLUSTERS:
        for manifest in ledger.manifests(cluster, START, END):
            for line in ledger.lines_of(manifest):
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
    answer = ask(
        "/v1/costs",
        start=format_timestamp(START),
        end=format_timestamp(END),
        granularity="day",
        group_by=",".join(dimensions),
    )
    return {
        (row["start"][:10], *(row["group"][name] for name in dimensions)): {
            # An amount without any price is null in the response, and missing in a sum.
            name: row[name] or Decimal(0)
            for name in (*USD, *HOURS)
        }
        for row in answer["rows"]
    }


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
        "allocated": totals["allocated_usd"],
        "unallocated": totals["unallocated_usd"],
        "stranded": totals["stranded_usd"],
        "unobserved": totals["unobserved_usd"],
    }


def test_rows_of_each_node_add_up_to_its_cost(exported: Exported) -> None:
    exported_costs = {
        (cluster, resource, start.replace(tzinfo=UTC)): cost
        for cluster, resource, start, cost in exported.query(
            "SELECT x_Cluster, ResourceId, ChargePeriodStart, sum(EffectiveCost) FROM focus GROUP BY 1, 2, 3"
        )
    }
    ledger = Container().ledger
    ledger_costs = {
        (cluster, node.provider_id.rpartition("/")[2], manifest.hour): to_decimal(node.capacity.node_cost_usd)
        if node.price_source
        else None
        for cluster in CLUSTERS
        for manifest in ledger.manifests(cluster, START, END)
        for node in ledger.nodes_and_charges_of(manifest)[0]
    }
    assert len(ledger_costs) == 3 * (len(exported_month.HOURS_OF_A_DAY) * sum(CLUSTERS.values()) - 1)
    assert exported_costs == ledger_costs, "None without a price"


MODEL_KEYS = {
    "cluster": "x_Cluster",
    "business_unit": "x_BusinessUnit",
    "namespace": "x_Namespace",
    "workload_kind": "x_WorkloadKind",
    "workload": "x_Workload",
    "gpu_model": "x_GpuModel",
    "server": "x_InferenceServer",
    "model": "x_Model",
}
MODEL_FIGURES = {
    "allocated_usd": "EffectiveCost",
    "effective_usd": "x_UsedCost",
    "waste_usd": "x_WasteCost",
    "unmeasured_usd": "x_UnmeasuredCost",
    "unknown_tokens_usd": "x_UnknownTokensCost",
    "allocated_gpu_hours": "x_GpuHours",
    "effective_gpu_hours": "x_EffectiveGpuHours",
    "unmeasured_gpu_hours": "x_UnmeasuredGpuHours",
    "unpriced_gpu_hours": "x_UnpricedGpuHours",
    "energy_kwh": "x_EnergyKwh",
    "energy_gpu_hours": "x_EnergyGpuHours",
    "co2e_kg": "x_Co2eKg",
    "prompt_tokens": "x_PromptTokens",
    "generated_tokens": "x_GeneratedTokens",
    "cached_tokens": "x_CachedTokens",
    "requests": "x_Requests",
    "usd_per_million_tokens": "x_CostPerMillionTokens",
    "usd_per_million_prompt_tokens": "x_CostPerMillionPromptTokens",
    "usd_per_million_generated_tokens": "x_CostPerMillionGeneratedTokens",
    "usd_per_million_cached_tokens": "x_CostPerMillionCachedTokens",
    "usd_per_request": "x_CostPerRequest",
}
RESTATED = START + timedelta(days=3)


def models_in_parquet(exported: Exported, *columns: str) -> list[tuple[Any, ...]]:
    return exported.query(
        f"SELECT ChargePeriodStart, {', '.join([*MODEL_KEYS.values(), *columns])} FROM inference ORDER BY ALL"
    )


def test_every_figure_of_a_model_is_that_of_the_api(exported: Exported) -> None:
    query = {
        "start": format_timestamp(START),
        "end": format_timestamp(END),
        "granularity": "hour",
        "group_by": ",".join(MODEL_KEYS),
    }
    rows: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = ask("/v1/inference", **query, **({"cursor": cursor} if cursor else {}))
        rows, cursor = rows + page["rows"], page["cursor"]
    from_api = {
        (row["start"], *(row["group"][name] for name in MODEL_KEYS)): [row[name] for name in MODEL_FIGURES]
        for row in rows
    }
    from_parquet = {
        (format_timestamp(row[0].replace(tzinfo=UTC)), *row[1:9]): [*row[9:]]
        for row in models_in_parquet(exported, *MODEL_FIGURES.values())
    }
    assert len(from_parquet) > 200
    assert from_parquet == from_api
    assert {type(figure) for figures in from_parquet.values() for figure in figures} == {Decimal, int, type(None)}


def test_models_of_each_workload_add_up_to_the_lines(exported: Exported) -> None:
    """Also in the hour that was restated, whose lines in force are those of its second version."""
    lines: dict[tuple[Any, ...], dict[str, Decimal]] = {}
    ledger = Container().ledger
    for cluster in CLUSTERS:
        for manifest in ledger.manifests(cluster, START, END):
            hour_lines = ledger.lines_of(manifest)
            if exported_month.has_servers(manifest.hour):
                for line in hour_lines:
                    key = manifest.hour, cluster, line.business_unit, line.namespace, line.workload, manifest.version
                    sums = lines.setdefault(key, dict.fromkeys((*USD, *HOURS), Decimal(0)))
                    for name in (*USD, *HOURS):
                        sums[name] += to_decimal(getattr(line, name) or 0)
    columns = ", ".join(f"coalesce(sum({MODEL_FIGURES[name]}), 0)" for name in (*USD, *HOURS))
    names = "ChargePeriodStart, x_Cluster, x_BusinessUnit, x_Namespace, x_Workload, x_HourVersion"
    models = {
        (row[0].replace(tzinfo=UTC), *row[1:6]): dict(zip((*USD, *HOURS), row[6:], strict=True))
        for row in exported.query(f"SELECT {names}, {columns} FROM inference GROUP BY {names}")
    }
    assert models == lines
    assert {key[0] for key in models if key[-1] == 2} == {RESTATED}


def test_line_of_a_single_model_names_it_in_focus(exported: Exported) -> None:
    key = "ChargePeriodStart, x_Cluster, x_BusinessUnit, x_Namespace, x_Workload"
    by_model = f"SELECT {key}, sum(EffectiveCost), sum(x_GpuHours) FROM {{}} WHERE x_Model = 'mistral' GROUP BY ALL"
    in_focus, in_models = (set(exported.query(by_model.format(table))) for table in ("focus", "inference"))
    assert in_focus == in_models
    assert in_focus
    names = exported.query("SELECT DISTINCT x_Namespace, x_InferenceServer, x_Model FROM focus")
    assert {row for row in names if row[1] == "vllm"} == {("bu-a", "vllm", None), ("chat", "vllm", None)}
    assert {row[2] for row in names} == {"mistral", None}


def test_models_have_their_weighted_part_of_a_pods_cost(exported: Exported) -> None:
    """The parts of the two models of each pod are computed from its FOCUS row and the counters, by hand."""
    rows = models_in_parquet(exported, "EffectiveCost", "x_WeightedTokens", "x_CostPerMillionGeneratedTokens")
    pod_costs = {
        row[:3]: row[3]
        for row in exported.query(
            "SELECT ChargePeriodStart, x_Cluster, x_BusinessUnit, sum(EffectiveCost) FROM focus "
            "WHERE x_Namespace = 'chat' GROUP BY ALL"
        )
    }
    count = 0
    for start, cluster, unit, namespace, _, _, _, _, model, cost, weighted, unit_cost in rows:
        if namespace != "chat" or model is None:
            continue
        seed = exported_month.seed_of(start.replace(tzinfo=UTC))
        called = seed % 5
        expected = {
            "llama": 699_001 + Decimal("0.1") * 1_000 + 5 * (90_000 + seed),
            "llama-sql": Decimal(13 * seed * called + 5 * 11 * called),
        }
        assert weighted == expected[model]
        part = pod_costs[start, cluster, unit] * expected[model] / sum(expected.values())
        assert abs(cost - part) <= Decimal("1e-11")
        if called or model == "llama":
            assert abs(unit_cost - 5 * cost * 10**6 / weighted) <= Decimal("1e-12")
        else:
            assert unit_cost is None
        count += 1
    assert count > 50


def test_unknown_tokens_are_null_and_never_zero(exported: Exported) -> None:
    columns = (
        "PromptTokens",
        "GeneratedTokens",
        "CachedTokens",
        "Requests",
        "WeightedTokens",
        "CostPerMillionTokens",
        "CostPerMillionPromptTokens",
        "CostPerRequest",
    )
    rows = exported.query(
        f"SELECT {', '.join(f'x_{name}' for name in columns)} FROM inference WHERE x_Model IS NULL "
        "AND x_InferenceServer = 'vllm'"
    )
    assert len(rows) > 20
    assert {figure for row in rows for figure in row} == {None}
    assert exported.query(
        "SELECT count(*) FROM inference WHERE x_Model IS NULL AND x_UnknownTokensCost IS DISTINCT FROM EffectiveCost"
    ) == [(0,)]
    adapters = exported.query(
        "SELECT DISTINCT x_CachedTokens, x_CostPerMillionCachedTokens FROM inference WHERE x_Model = 'llama-sql'"
    )
    assert adapters == [(None, None)], "the server does not count them"
    idle = exported.query(
        "SELECT DISTINCT x_PromptTokens, x_CostPerMillionTokens FROM inference WHERE x_Model = 'llama-sql' "
        "AND x_PromptTokens = 0"
    )
    assert idle == [(0, None)], "a model that was not called has 0 tokens and no unit cost"


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


def test_columns_have_the_types_of_the_athena_tables(exported: Exported) -> None:
    expected = {"text": "VARCHAR", "amount": "DECIMAL(38,12)", "whole": "BIGINT", "time": "TIMESTAMP"}
    for table, columns in (("focus", COLUMNS), ("inference", INFERENCE_COLUMNS)):
        types = {name: kind for name, kind, *_ in exported.query(f"DESCRIBE SELECT * FROM {table}")}
        assert {name: types[name] for name in columns} == {name: expected[kind] for name, kind in columns.items()}


def test_listing_has_exported_days_with_working_urls(exported: Exported) -> None:
    assert exported.answer["days_left"] == 0
    assert len(exported.answer["exported"]) == sum(CLUSTERS.values())
    answer = ask("/v1/exports", start=format_timestamp(START), end=format_timestamp(END))
    rows = answer["rows"]
    assert [(row["day"], row["cluster"]) for row in rows[:3]] == [
        ("2026-11-01T00:00:00Z", "east"),
        ("2026-11-01T00:00:00Z", "west.eu"),
        ("2026-11-02T00:00:00Z", "east"),
    ]
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
    models = requests.get(first["inference_url"], timeout=10)
    assert (
        models.content
        == (exported.folder / "inference/billing_period=2026-11/cluster=east/date=2026-11-01/rows.parquet").read_bytes()
    )
    assert models.headers["Content-Disposition"] == 'attachment; filename="east-2026-11-01-inference.parquet"'
    assert len(models.content) == first["inference_bytes"]
    ((day_rows,),) = exported.query("SELECT count(*) FROM inference WHERE x_Cluster = 'east' AND date = '2026-11-01'")
    assert first["inference_rows"] == day_rows > 0


def test_csv_has_the_same_rows_and_no_formulas(exported: Exported) -> None:
    path = exported.folder / "csv/billing_period=2026-11/cluster=east/date=2026-11-02/rows.csv.gz"
    header, *table = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    assert header == [*COLUMNS]
    rows = [row for row in exported.rows() if row["x_Cluster"] == "east" and row["ChargePeriodStart"].day == 2]
    plain = [
        [
            ""
            if value is None
            else value.strftime("%Y-%m-%dT%H:%M:%SZ")
            if isinstance(value, datetime)
            else f"'{value}"
            if str(value).startswith("=")
            else str(value)
            if not isinstance(value, Decimal)
            else format(value, "f")
            for value in row.values()
        ]
        for row in rows
    ]
    assert sorted(table) == sorted(plain)
    assert any(cell == "'=assistant" for row in table for cell in row)
    assert not any(cell.startswith(("=", "+", "@", "\t")) for row in table for cell in row)


PAGE = (REPOSITORY / "docs/how-to/exports.md").read_text()
STATEMENTS = re.findall(r"^ *```sql\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
(STATEMENT_OF_DEPLOY,) = re.findall(r"`(SELECT [^`]*)`", (REPOSITORY / "docs/how-to/deploy.md").read_text())
QUERIES = {"deploy": STATEMENT_OF_DEPLOY, **{sql.partition("\n")[0].removeprefix("-- "): sql for sql in STATEMENTS}}


def in_duckdb(sql: str) -> str:
    (translated,) = sqlglot.transpile(sql, read="athena", write="duckdb")
    return str(translated).replace("gpucost_dev.", "")


def comparable(answer: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows in an order of their own, with nine significant digits of floating-point numbers, also in text."""

    def shown(cell: Any) -> Any:
        is_number = isinstance(cell, float) or (isinstance(cell, str) and re.fullmatch(r"[0-9.]+(e-[0-9]+)?", cell))
        return f"{float(cell):.9g}" if is_number else cell

    return sorted((tuple(map(shown, row)) for row in answer), key=repr)


@pytest.mark.parametrize("title", sorted({*QUERIES, *EXPECTED}))
def test_documented_query_returns_the_sums_of_the_rows(exported: Exported, title: str) -> None:
    table, expected = EXPECTED[title]
    rows = expected(exported.rows(table))
    assert rows
    assert comparable(exported.query(in_duckdb(QUERIES[title]))) == comparable(rows)


CLUSTERS_OF_A_MONTH = """
CREATE TABLE focus (billing_period VARCHAR, x_Cluster VARCHAR, x_BusinessUnit VARCHAR, x_CostPart VARCHAR,
                    EffectiveCost DECIMAL(38,12), x_GpuHours DECIMAL(38,12));
INSERT INTO focus VALUES
  ('2026-11', 'both', 'chat', 'allocated', 75, 5), ('2026-11', 'both', 'train', 'allocated', 25, 5),
  ('2026-11', 'both', NULL, 'unallocated', 20, 2), ('2026-11', 'both', NULL, 'host', 30, 0),
  ('2026-11', 'full', 'chat', 'allocated', 250, 25),
  ('2026-11', 'idle', NULL, 'unallocated', 320, 32),
  ('2026-10', 'idle', 'chat', 'allocated', 999, 99);
"""


def test_chargeback_has_clusters_without_idle_costs_and_without_held_gpus() -> None:
    """$150 of one cluster, $250 of one that is always full, and $320 of one that is idle all month."""
    (sql,) = (sql for title, sql in QUERIES.items() if title.startswith("Chargeback"))
    connection = duckdb.connect()
    connection.execute(CLUSTERS_OF_A_MONTH)
    rows = connection.execute(in_duckdb(sql)).fetchall()
    assert rows == [
        ("both", "chat", 75, 37.5),
        ("both", "train", 25, 12.5),
        ("full", "chat", 250, 0),
        ("idle", None, None, 320),
    ]
    assert sum(float(cost or 0) + passed_on for _, _, cost, passed_on in rows) == 720
    connection.execute("UPDATE focus SET EffectiveCost = NULL WHERE x_CostPart = 'allocated' AND x_Cluster = 'both'")
    assert sorted(connection.execute(in_duckdb(sql)).fetchall()[:2]) == [
        ("both", "chat", None, 25),
        ("both", "train", None, 25),
    ], "the pods have no price: their GPU-hours decide"


def test_every_column_is_documented() -> None:
    pages = PAGE + (REPOSITORY / "docs/reference/amounts.md").read_text()
    assert [name for name in {**COLUMNS, **INFERENCE_COLUMNS} if f"`{name}`" not in pages] == []
