"""The transformed template's resources for exports: a private bucket, a table for Athena, a daily schedule."""

import json
import re
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, get_args

import pytest

from gpucost.features.exports.exported_days import FileFormat, object_key
from gpucost.features.exports.focus import COLUMNS, INFERENCE_COLUMNS, ColumnTypes
from gpucost.runtime.messages import ExportDue, read_message
from gpucost.storage.table import partition_key
from gpucost_devstack.template import REPOSITORY

Template = dict[str, Any]
IN_ATHENA = {"text": "string", "amount": "decimal(38,12)", "whole": "bigint", "time": "timestamp"}
DAY = datetime(2026, 11, 19, tzinfo=UTC)


def properties(template: Template, name: str) -> dict[str, Any]:
    resource_properties: dict[str, Any] = template["Resources"][name]["Properties"]
    return resource_properties


def test_schedule_passes_its_time_and_failures_become_dead_letters(template: Template) -> None:
    schedule = properties(template, "ExportFunctionDaily")
    event = schedule["Target"]["Input"].replace("<aws.scheduler.scheduled-time>", "2026-11-19T02:40:00Z")
    recorded = json.loads((REPOSITORY / "events/export.json").read_text())
    assert read_message(ExportDue, event, DAY.replace(day=20)) == ExportDue.model_validate(recorded)
    assert (schedule["ScheduleExpression"], schedule["ScheduleExpressionTimezone"]) == ("cron(40 2 * * ? *)", "UTC")
    assert schedule["Target"]["DeadLetterConfig"]["Arn"] == {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}


TABLES: dict[str, tuple[FileFormat, ColumnTypes]] = {
    "ExportGlueTable": ("parquet", COLUMNS),
    "ExportInferenceGlueTable": ("inference", INFERENCE_COLUMNS),
}


@pytest.mark.parametrize("name", TABLES)
def test_athena_tables_have_the_exported_columns(template: Template, name: str) -> None:
    table = properties(template, name)["TableInput"]
    declared = {column["Name"]: column["Type"] for column in table["StorageDescriptor"]["Columns"]}
    assert declared == {column.lower(): IN_ATHENA[kind] for column, kind in TABLES[name][1].items()}


@pytest.mark.parametrize("name", TABLES)
def test_athena_derives_partition_folders_without_a_crawler(template: Template, name: str) -> None:
    table, file_format = properties(template, name)["TableInput"], TABLES[name][0]
    parameters = table["Parameters"]
    (key,) = table["PartitionKeys"]
    assert (key["Name"], parameters["projection.enabled"]) == ("billing_period", "true")
    assert parameters["projection.billing_period.format"] == "yyyy-MM"
    # `Fn::Sub` turns `${!name}` into `${name}`, which Athena replaces.
    location = parameters["storage.location.template"]["Fn::Sub"][0].replace("${Bucket}", "b").replace("${!", "${")
    month = location.replace("${billing_period}", "2026-11")
    assert re.match(r"^s3://b/\w+/billing_period=2026-11/$", month)
    # Each table has a folder of its own, because Athena reads all files in it.
    in_folder = [
        other for other in get_args(FileFormat) if f"s3://b/{object_key('demo', DAY, other)}".startswith(month)
    ]
    assert in_folder == [file_format]


def test_bucket_is_private_encrypted_and_retained(template: Template) -> None:
    bucket = template["Resources"]["ExportBucket"]
    assert (bucket["DeletionPolicy"], bucket["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["Properties"]["BucketEncryption"]
    (rule,) = bucket["Properties"]["LifecycleConfiguration"]["Rules"]
    assert rule["ExpirationInDays"] == {"Ref": "ExportDays"}
    assert rule["Transitions"] == [{"StorageClass": "INTELLIGENT_TIERING", "TransitionInDays": 0}]
    (statement,) = properties(template, "ExportBucketPolicy")["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_exports_are_written_where_functions_have_access(template: Template) -> None:
    for role, sid in (("ExportFunctionRole", "WriteExports"), ("ApiFunctionRole", "SignDownloads")):
        (statement,) = [
            statement
            for policy in properties(template, role)["Policies"]
            for statement in policy["PolicyDocument"]["Statement"]
            if statement.get("Sid") == sid
        ]
        folders = [resource_arn["Fn::Sub"][0].rpartition("${Bucket}/")[2] for resource_arn in statement["Resource"]]
        assert folders == ["focus/*", "csv/*", "inference/*"]
        for file_format in get_args(FileFormat):
            key = object_key("demo", DAY, file_format)
            assert any(key.startswith(folder.removesuffix("*")) for folder in folders)


def test_export_may_only_write_its_items_of_the_ledger(template: Template) -> None:
    statements = [
        statement
        for policy in properties(template, "ExportFunctionRole")["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        if statement.get("Action") == "dynamodb:PutItem"
    ]
    (pattern,) = statements[0]["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
    assert len(statements) == 1
    assert fnmatchcase(partition_key("demo", "exports"), pattern)
    assert not any(fnmatchcase(partition_key("demo", kind), pattern) for kind in ("hours", "days", "rollups"))


def test_only_export_contains_duckdb(template: Template) -> None:
    with_it = [
        name
        for name, body in template["Resources"].items()
        if body["Type"] == "AWS::Lambda::Function" and "DuckDbLayer" in json.dumps(body["Properties"]["Layers"])
    ]
    assert with_it == ["ExportFunction"]
