"""Exports with DynamoDB Local and S3 leave a single version of a day after crashes and concurrent writes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import duckdb
import pyarrow.parquet
import pytest
from msgspec import structs

from gpucost.core.amounts import Costs, Totals
from gpucost.core.costs_by_model import InferenceRules, costs_by_model
from gpucost.core.errors import (
    ConflictError,
    InvalidInputError,
    InvalidMessageError,
    SettingsError,
    SettingsMissingError,
    SourceError,
)
from gpucost.core.hour_record import HourRecord, Line
from gpucost.core.hours import HOUR
from gpucost.core.ledger import ClosedMonth, Manifest
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.features.exports.export_service import MAX_ATTEMPTS, MIN_SECONDS_PER_DAY, ExportRunResult, ExportService
from gpucost.features.exports.exported_days import ExportedDay, object_key
from gpucost.features.exports.files import DuckDbFiles
from gpucost.features.exports.storage import DynamoExports, S3Bucket
from gpucost.runtime.messages import ExportDue, read_event
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import ClusterDeparture, StoredSettings, Table
from gpucost.storage.table import key_of
from gpucost_devstack.aws import local_client, running_aws
from tests.records import amount, line, record

DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=10)
NEXT = DAY + timedelta(days=1)
SETTINGS = """
clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9090"}}]
pricing: {source: constant, gpu_hourly_usd: 12}
"""
KEY, CSV_KEY, MODELS_KEY = (object_key("demo", DAY, form) for form in ("parquet", "csv", "inference"))
KEYS = [CSV_KEY, KEY, MODELS_KEY]


class Settings:
    """A settings store with one document, or none."""

    text: str | None = SETTINGS
    departed: Mapping[str, ClusterDeparture] = {}
    readable_versions: tuple[int, ...] = (1,)

    def current(self) -> StoredSettings:
        if self.text is None:
            raise SettingsMissingError("nothing was pushed")
        return StoredSettings(1, self.text, parse_settings(self.text), "test", DAY, departed_clusters=self.departed)

    def version(self, number: int) -> StoredSettings:
        if number not in self.readable_versions:
            raise SettingsError(f"version {number} names a removed key")
        return self.current()


class Calls:
    """Counts external calls, and raises at one of them."""

    def __init__(self, die_at: int = 0) -> None:
        self.count = 0
        self.die_at = die_at
        self.on_put: Callable[[], None] = lambda: None

    def client(self, real: Any) -> Any:
        calls = self

        class Client:
            def __getattr__(self, name: str) -> Any:
                def call(**arguments: Any) -> Any:
                    calls.count += 1
                    if calls.count == calls.die_at:
                        raise KeyboardInterrupt("killed")
                    if name == "put_object":
                        calls.on_put()
                    return getattr(real, name)(**arguments)

                return call

        return Client()

    def table(self, real: Table) -> Table:
        """The table, by a client whose calls are counted. SQLite has none."""
        return DynamoDBTable(self.client(real._client), real._name) if isinstance(real, DynamoDBTable) else real


class ExportEnvironment(NamedTuple):
    """A ledger and a bucket."""

    table: Table
    s3: Any
    bucket: str
    settings: Settings

    def service(
        self,
        calls: Calls | None = None,
        kept: int = 400,
        ledger: type[Ledger] = Ledger,
        bucket: type[S3Bucket] = S3Bucket,
    ) -> ExportService:
        recorded_calls = calls or Calls()
        table = recorded_calls.table(self.table)
        return ExportService(
            self.settings,  # type: ignore[arg-type]  # a stub with the method it calls
            ledger(table),
            DynamoExports(table, timedelta(days=kept)),
            bucket(recorded_calls.client(self.s3), self.bucket),
            DuckDbFiles(),
            account="123456789012",
            retention=timedelta(days=kept),
            clock=lambda: datetime.now(UTC),
        )

    def run(self, calls: Calls | None = None, at: datetime = NEXT + 3 * HOUR, **message_fields: Any) -> ExportRunResult:
        result = self.service(calls).export(ExportDue(scheduled_time=at, **message_fields), lambda: 900.0)
        assert result is not None
        return result

    def publish(self, hour_record: HourRecord) -> None:
        ledger = Ledger(self.table)
        old = ledger.manifest(hour_record.cluster, hour_record.hour)
        ledger.publish(hour_record, replacing=old, settings_version=1, now=datetime.now(UTC))

    def listed(self) -> list[ExportedDay]:
        catalogue = DynamoExports(self.table, timedelta(days=400))
        return catalogue.days("demo", DAY - timedelta(days=30), DAY + timedelta(days=30))

    def keys(self) -> list[str]:
        return [
            listed_object["Key"] for listed_object in self.s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        ]

    def read(self, folder: Path, day: datetime = DAY) -> dict[str, Decimal]:
        """The cost of each pod in the Parquet file."""
        path = folder / f"{uuid4()}.parquet"
        path.write_bytes(self.s3.get_object(Bucket=self.bucket, Key=object_key("demo", day))["Body"].read())
        with duckdb.connect() as connection:
            rows = connection.execute(f"SELECT x_Pod, sum(EffectiveCost) FROM '{path}' GROUP BY 1").fetchall()
        return dict(rows)

    def models(self) -> list[tuple[Any, ...]]:
        """Return model, cost, prompt and weighted tokens, and unit costs of prompt and generated tokens, by row."""
        content = self.s3.get_object(Bucket=self.bucket, Key=MODELS_KEY)["Body"].read()
        names = [
            "x_Model",
            "EffectiveCost",
            "x_PromptTokens",
            "x_WeightedTokens",
            "x_CostPerMillionPromptTokens",
            "x_CostPerMillionGeneratedTokens",
        ]
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(content), columns=names)
        rows = [tuple(row[name] for name in names) for row in table.to_pylist()]
        return sorted(rows, key=lambda row: row[0] or "")


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with running_aws() as url:
        yield local_client("s3", url)


@pytest.fixture
def environment(ledger_table: Table, s3: Any) -> ExportEnvironment:
    bucket = f"exports-{uuid4()}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    return ExportEnvironment(ledger_table, s3, bucket, Settings())


def hour(number: int, usd: str = "3", **more: Any) -> HourRecord:
    return record([line(pod="p", usd=usd), line("idle", "notebooks", "q", "1")], hour=DAY + HOUR * number, **more)


def test_last_day_of_a_removed_cluster_is_exported(environment: ExportEnvironment) -> None:
    environment.publish(hour(3))
    environment.settings.text = SETTINGS.replace("demo", "other")
    environment.settings.departed = {"demo": ClusterDeparture(DAY + 5 * HOUR, 1)}
    assert [(exported_day.cluster, exported_day.day) for exported_day in environment.run().exported_days] == [
        ("demo", DAY)
    ]


def test_a_day_is_exported_once_and_again_when_its_hours_change(environment: ExportEnvironment, tmp_path: Path) -> None:
    environment.publish(hour(0))
    (first,) = environment.run().exported_days
    assert (first.export_version, first.status, first.row_count) == (1, "incomplete", 2)
    assert environment.run().exported_days == [], "nothing changed"
    assert sorted(environment.keys()) == KEYS

    environment.publish(hour(1))
    assert [exported_day.export_version for exported_day in environment.run().exported_days] == [2], "an hour came late"
    environment.publish(hour(0, "5"))
    (third,) = environment.run().exported_days
    assert environment.read(tmp_path) == {"p": 8, "q": 2}, "restated"
    assert environment.listed() == [third]
    assert sorted(environment.keys()) == KEYS, "under the same keys"
    assert environment.run().exported_days == []


def serving(number: int, usd: str = "3", models: Sequence[str] = ("a", "b")) -> HourRecord:
    """An hour in which the pod p served these models: 1,000 prompt and 200 generated tokens each."""
    record_without_models = hour(number, usd)
    served = [ServedTokens("bu-a", "p", "vllm", model, 1_000, 200, None, 4) for model in models]
    models_of_hour = costs_by_model(record_without_models.lines, served, InferenceRules())
    return structs.replace(record_without_models, models=tuple(models_of_hour))


def test_models_are_exported_and_replaced_when_their_hour_is_restated(environment: ExportEnvironment) -> None:
    """Each model has half of the pod's 3 USD for 1,000 + 5 × 200 weighted tokens."""
    environment.publish(serving(0))
    (first,) = environment.run().exported_days
    assert environment.models() == [
        (None, 1, None, None, None, None),
        ("a", Decimal("1.5"), 1_000, 2_000, 750, 3_750),
        ("b", Decimal("1.5"), 1_000, 2_000, 750, 3_750),
    ]
    assert (first.row_count, first.inference_row_count) == (2, 3)
    environment.publish(serving(0, "6", ["a"]))
    (second,) = environment.run().exported_days
    assert environment.models() == [(None, 1, None, None, None, None), ("a", 6, 1_000, 2_000, 3_000, 15_000)]
    assert environment.listed() == [second]
    environment.publish(hour(0))
    environment.run()
    assert environment.models() == [], "no server was seen in the version in force"
    assert sorted(environment.keys()) == KEYS


def test_closed_month_keeps_its_exported_models(environment: ExportEnvironment) -> None:
    environment.publish(serving(0, models=["a"]))
    environment.run()
    exported_models = environment.models()
    versions = Ledger(environment.table).versions
    versions.close_month(ClosedMonth(f"{DAY:%Y-%m}", datetime.now(UTC), "me", "chargeback"))
    environment.publish(serving(0, "6"))
    assert environment.run().exported_days == [], "the restatement is a pending adjustment"
    assert len(environment.run(first_day=DAY).exported_days) == 1
    assert environment.models() == exported_models


def test_models_of_unreadable_settings_have_no_weighted_figures(environment: ExportEnvironment) -> None:
    environment.settings.readable_versions = ()
    environment.publish(serving(0, models=["a"]))
    (exported,) = environment.run().exported_days
    assert exported.row_count == 2
    assert environment.models() == [(None, 1, None, None, None, None), ("a", 3, 1_000, None, None, None)]


def test_models_are_weighted_by_the_settings_of_their_hour(environment: ExportEnvironment) -> None:
    assert environment.settings.text is not None
    environment.settings.text += "inference: {enabled: true, weights: {prompt: 2, generated: 10}}\n"
    environment.publish(serving(0, models=["a"]))
    environment.run()
    assert environment.models()[1:] == [("a", 3, 1_000, 4_000, 1_500, 7_500)]


def test_models_that_do_not_add_up_to_the_hour_are_not_exported(environment: ExportEnvironment) -> None:
    damaged = serving(0)
    environment.publish(structs.replace(damaged, models=damaged.models[:-1]))
    result = environment.run()
    assert result.exported_days == []
    assert "the models of" in result.failures[0]
    assert environment.keys() == []


def test_models_of_days_exported_before_are_unknown(environment: ExportEnvironment) -> None:
    environment.publish(hour(0))
    (exported,) = environment.run().exported_days
    earlier = replace(exported, inference_row_count=None, inference_bytes=None)
    DynamoExports(environment.table, timedelta(days=400)).put(earlier)
    assert environment.listed() == [earlier]


def test_day_is_due_after_its_end_and_exportable_before(environment: ExportEnvironment, tmp_path: Path) -> None:
    environment.publish(hour(0))
    assert environment.run(at=NEXT - HOUR).exported_days == []
    assert len(environment.run(at=NEXT - HOUR, first_day=DAY).exported_days) == 1
    assert len(environment.run(at=NEXT - HOUR, first_day=DAY).exported_days) == 1, (
        "written again, though nothing changed"
    )
    assert environment.run(first_day=DAY + timedelta(days=5), days=3).exported_days == [], "days without hours"
    assert environment.keys() == KEYS


def test_day_in_which_the_look_back_begins_is_exported_once(environment: ExportEnvironment) -> None:
    for number in (0, 5):
        environment.publish(hour(number))
    message = ExportDue(scheduled_time=DAY + timedelta(days=9, hours=3))
    results = [environment.service(kept=9).export(message, lambda: 900.0) for _ in range(2)]
    assert [result and len(result.exported_days) for result in results] == [1, 0]


def test_export_of_a_day_of_another_zone_is_refused() -> None:
    event = {"scheduled_time": "2026-11-20T03:00:00Z", "first_day": "2026-11-19T00:00:00+02:00"}
    with pytest.raises(InvalidMessageError, match="must be the start of a UTC day"):
        read_event(ExportDue, event, DAY + timedelta(days=9))


def test_an_hour_without_figures_adds_no_rows(environment: ExportEnvironment) -> None:
    environment.publish(hour(0))
    environment.publish(hour(1, status="incomplete"))
    (exported,) = environment.run().exported_days
    assert (exported.status, exported.row_count) == ("incomplete", 2)
    environment.publish(hour(1, status="provisional"))
    assert [exported_day.row_count for exported_day in environment.run().exported_days] == [4]


def test_implausible_hour_is_exported_as_incomplete(environment: ExportEnvironment, tmp_path: Path) -> None:
    environment.publish(hour(0))
    huge = amount("1E+308")
    lines = (line(pod="huge")._replace(allocated_usd=huge, waste_usd=huge),)
    costs = Costs(allocated_gpu_hours=amount(1), allocated_usd=huge, waste_usd=huge)
    environment.publish(structs.replace(hour(1), lines=lines, totals=Totals(costs, None)))
    result = environment.run()
    assert (result.failures, result.expired_days) == ([], [])
    assert [(exported_day.status, exported_day.row_count) for exported_day in result.exported_days] == [
        ("incomplete", 2)
    ]
    assert environment.read(tmp_path) == {"p": 3, "q": 1}
    assert environment.run().exported_days == [], "nothing changed"


def test_unexpected_error_of_a_day_does_not_stop_others(environment: ExportEnvironment) -> None:
    environment.publish(hour(0))
    environment.publish(hour(24))

    class FaultyLedger(Ledger):
        def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
            if manifest.hour >= NEXT:
                raise ArithmeticError("a figure of that day")
            return super().lines_of(manifest, business_unit)

    due = ExportDue(scheduled_time=NEXT + timedelta(days=1, hours=3))
    result = environment.service(ledger=FaultyLedger).export(due, lambda: 900.0)
    assert result is not None
    assert [exported_day.day for exported_day in result.exported_days] == [DAY]
    assert result.failures == [f"demo {NEXT:%Y-%m-%d}: ArithmeticError: a figure of that day"]


def calls_of_an_export(environment: ExportEnvironment) -> int:
    calls = Calls()
    environment.run(calls)
    return calls.count


@pytest.mark.tools
def test_crash_at_any_call_and_rerun_leave_a_single_version(environment: ExportEnvironment, tmp_path: Path) -> None:
    """A kill before a call equals a kill after the previous call, whether or not its response arrived."""
    environment.publish(hour(0))
    calls = calls_of_an_export(environment)
    assert calls >= 10
    for at in range(1, calls + 1):
        environment.publish(hour(0, usd := str(at + 3)))
        with pytest.raises(KeyboardInterrupt):
            environment.run(Calls(at))
        before = environment.read(tmp_path)
        assert before in ({"p": Decimal(usd) - 1, "q": 1}, {"p": Decimal(usd), "q": 1}), (
            "a complete version, old or new"
        )
        environment.run()
        assert environment.read(tmp_path) == {"p": Decimal(usd), "q": 1}
        assert sorted(environment.keys()) == KEYS
        (listed,) = environment.listed()
        sizes = {
            content["Key"]: content["Size"]
            for content in environment.s3.list_objects_v2(Bucket=environment.bucket)["Contents"]
        }
        assert (listed.parquet_bytes, listed.csv_bytes, listed.inference_bytes) == (
            sizes[KEY],
            sizes[CSV_KEY],
            sizes[MODELS_KEY],
        )
        assert environment.run().exported_days == []


def test_concurrent_export_of_older_hours_fails(environment: ExportEnvironment, tmp_path: Path) -> None:
    for is_exported in (False, True):  # the first export of a day, and a second export that replaces it
        environment.publish(hour(0, "3"))
        slow = Calls()

        def meanwhile(slow: Calls = slow) -> None:
            slow.on_put = lambda: None
            environment.publish(hour(0, "7"))
            environment.run()

        slow.on_put = meanwhile
        environment.run(slow)
        assert environment.read(tmp_path) == {"p": 7, "q": 1}, is_exported
        assert environment.run().exported_days == [], "the catalogue names the stored files"
        assert sorted(environment.keys()) == KEYS


def test_repeated_conflicts_end_with_an_error(environment: ExportEnvironment) -> None:
    environment.publish(hour(0))
    environment.run()
    calls = Calls()
    losses = 0

    def changed() -> None:
        nonlocal losses
        losses += 1
        for key in KEYS:
            environment.s3.put_object(Bucket=environment.bucket, Key=key, Body=f"{losses}".encode())

    calls.on_put = changed
    result = environment.run(calls, first_day=DAY)
    assert losses == MAX_ATTEMPTS
    assert [failure.split(":")[0] for failure in result.failures] == [f"demo {DAY:%Y-%m-%d}"]


def test_older_catalogue_entry_never_replaces_a_newer_entry(environment: ExportEnvironment) -> None:
    environment.publish(hour(0))
    (old,) = environment.run().exported_days
    environment.publish(hour(0, "9"))
    (new,) = environment.run().exported_days
    DynamoExports(environment.table, timedelta(days=400)).put(old)
    assert environment.listed() == [new]


def test_expired_lines_leave_the_last_export(environment: ExportEnvironment, tmp_path: Path) -> None:
    environment.publish(hour(0))
    environment.run()
    environment.publish(hour(1))
    lines = list(environment.table.query(f"C#demo#lines#{DAY:%Y-%m-%d}T00"))
    assert lines
    environment.table.delete_all(map(key_of, lines))
    result = environment.run()
    assert (result.exported_days, result.failures, len(result.expired_days)) == ([], [], 1)
    assert "have expired" in result.expired_days[0]
    assert "have expired" in environment.run(first_day=DAY).failures[0], "a requested day is a failure"
    assert environment.read(tmp_path) == {"p": 3, "q": 1}


def test_days_about_to_expire_are_not_exported(environment: ExportEnvironment) -> None:
    environment.publish(hour(0))
    environment.settings.text = SETTINGS + "retention: {pods: 35}\n"
    assert environment.run(at=DAY + timedelta(days=35)).exported_days == []
    assert len(environment.run(at=DAY + timedelta(days=33)).exported_days) == 1


def test_remaining_days_wait_for_the_next_run_newest_first(environment: ExportEnvironment) -> None:
    for day in (0, 1, 2):
        environment.publish(record([line()], hour=DAY + timedelta(days=day)))
    left = iter([MIN_SECONDS_PER_DAY, MIN_SECONDS_PER_DAY - 1])
    due = ExportDue(scheduled_time=DAY + timedelta(days=3))
    result = environment.service().export(due, lambda: next(left))
    assert result is not None
    assert ([exported_day.day for exported_day in result.exported_days], result.days_left) == (
        [DAY + timedelta(days=2)],
        2,
    )
    assert [exported_day.day for exported_day in environment.run(at=due.scheduled_time).exported_days] == [NEXT, DAY]


def test_failing_day_does_not_stop_others(environment: ExportEnvironment) -> None:
    for day in (0, 1):
        environment.publish(record([line()], hour=DAY + timedelta(days=day)))

    class RefusingBucket(S3Bucket):
        def put(self, key: str, path: Path, *, if_match: str | None) -> None:
            if f"date={NEXT:%Y-%m-%d}" in key:
                raise SourceError("S3 refuses")
            super().put(key, path, if_match=if_match)

    due = ExportDue(scheduled_time=DAY + timedelta(days=2))
    result = environment.service(bucket=RefusingBucket).export(due, lambda: 900.0)
    assert result is not None
    assert [exported_day.day for exported_day in result.exported_days] == [DAY]
    assert result.failures == [f"demo {NEXT:%Y-%m-%d}: S3 refuses"]


def test_no_settings_export_nothing_and_unknown_clusters_are_errors(environment: ExportEnvironment) -> None:
    with pytest.raises(InvalidInputError, match="'nowhere' is not in the settings; allowed: demo"):
        environment.run(cluster="nowhere")
    environment.settings.text = None
    assert environment.service().export(ExportDue(scheduled_time=NEXT), lambda: 900.0) is None


def test_bucket_errors_do_not_contain_its_name(environment: ExportEnvironment, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    bucket = S3Bucket(environment.s3, environment.bucket)
    assert bucket.etag("focus/x") is None
    with pytest.raises(ConflictError):
        bucket.put("focus/x", path, if_match='"0123"')
    bucket.put("focus/x", path, if_match=None)
    with pytest.raises(ConflictError):
        bucket.put("focus/x", path, if_match=None)
    assert bucket.etag("focus/") is None, "a prefix of other keys is not an object"
    bucket.put("focus/x", path, if_match=bucket.etag("focus/x"))
    with pytest.raises(SourceError, match="NoSuchBucket") as raised:
        S3Bucket(environment.s3, "nothing-here").etag("focus/x")
    assert "nothing-here" not in str(raised.value)
