"""Alarms: each watches a different metric that a function emits, and has a section in the runbook."""

import json
import re

from gpucost_devstack.template import REPOSITORY
from tests.infra.stacks import Template, of_type

WATCHED = {
    "DeadLetterAlarm": ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "Maximum", 0),
    "HoursOverdueAlarm": ("GpuCost", "HoursOverdue", "Maximum", 0),
    "HoursGivenUpAlarm": ("GpuCost", "HoursGivenUp", "Sum", 0),
    "SettingsVersionsUnreadableAlarm": ("GpuCost", "SettingsVersionsUnreadable", "Maximum", 0),
    "ClustersFailedAlarm": ("GpuCost", "ClustersFailed", "Maximum", 0),
    "ExportDaysLeftAlarm": ("GpuCost", "ExportDaysLeft", "Maximum", 0),
    "ScheduleSilentAlarm": ("AWS/Lambda", "Invocations", "Sum", 1),
}


def test_alarms_watch_distinct_metrics(template: Template) -> None:
    expected = dict(WATCHED)
    alarms = dict(of_type(template, "AWS::CloudWatch::Alarm"))
    del alarms["CapacityUnitsAlarm"]  # below
    for function, _ in of_type(template, "AWS::Lambda::Function"):
        name = f"{function.removesuffix('Function')}ErrorsAlarm"
        expected[name] = ("AWS/Lambda", "Errors", "Sum", 0)
        assert alarms[name]["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": function}}]
    metrics = {
        name: (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"], alarm["Threshold"])
        for name, alarm in alarms.items()
    }
    assert metrics == expected
    assert alarms["DeadLetterAlarm"]["Dimensions"] == [
        {"Name": "QueueName", "Value": {"Fn::GetAtt": ["DeadLetterQueue", "QueueName"]}}
    ]
    rising = {name for name, alarm in alarms.items() if alarm["ComparisonOperator"] == "GreaterThanThreshold"}
    assert rising == alarms.keys() - {"ScheduleSilentAlarm"}


def test_table_alarm_watches_all_operations(template: Template) -> None:
    alarm = template["Resources"]["CapacityUnitsAlarm"]["Properties"]
    total, *parts = alarm["Metrics"]
    assert (total["Expression"], "ReturnData" in total) == ("FILL(reads, 0) + FILL(writes, 0)", False)
    table = {"Fn::If": ["NewTable", {"Ref": "Table"}, {"Ref": "ExistingTableName"}]}
    assert {part["Id"]: part["MetricStat"] for part in parts} == {
        name: {
            "Metric": {
                "Namespace": "AWS/DynamoDB",
                "MetricName": metric,
                "Dimensions": [{"Name": "TableName", "Value": table}],
            },
            "Period": 3600,
            "Stat": "Sum",
        }
        for name, metric in (("reads", "ConsumedReadCapacityUnits"), ("writes", "ConsumedWriteCapacityUnits"))
    }
    assert not any(part["ReturnData"] for part in parts)
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (
        {"Ref": "CapacityUnitsPerHour"},
        "GreaterThanThreshold",
    )


def test_alarms_reach_operations_and_treat_missing_data_as_documented(template: Template) -> None:
    alarms = dict(of_type(template, "AWS::CloudWatch::Alarm"))
    for name, alarm in alarms.items():
        assert alarm["AlarmActions"] == [{"Ref": "OperationsTopic"}]
        assert alarm["TreatMissingData"] == ("breaching" if name == "ScheduleSilentAlarm" else "notBreaching")
    silence = alarms["ScheduleSilentAlarm"]  # it must detect missing data, because nothing is counted if nothing runs
    assert silence["ComparisonOperator"] == "LessThanThreshold"
    assert silence["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": "DispatchFunction"}}]
    assert alarms["HoursOverdueAlarm"]["EvaluationPeriods"] == 2
    (policy,) = template["Resources"]["OperationsTopicPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert policy["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    stack_alarms = "arn:${AWS::Partition}:cloudwatch:${AWS::Region}:${AWS::AccountId}:alarm:${AWS::StackName}-*"
    assert policy["Condition"] == {
        "ArnLike": {"aws:SourceArn": {"Fn::Sub": stack_alarms}},
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
    }
    assert not any("AlarmName" in alarm for alarm in alarms.values()), "names begin with the stack's"


def test_every_alarm_has_a_runbook_section(template: Template) -> None:
    pages = [
        line for line in (REPOSITORY / "docs/how-to/runbook.md").read_text().splitlines() if line.startswith("## ")
    ]
    for name, _ in of_type(template, "AWS::CloudWatch::Alarm"):
        page = name if not name.endswith("ErrorsAlarm") or name == "PricesErrorsAlarm" else "…ErrorsAlarm"
        assert sum(f"(`{page}`)" in title for title in pages) == 1, name


def test_watched_metrics_are_emitted_and_series_are_few(template: Template) -> None:
    """A series per metric and function, independent of the fleet. Alarms and dashboard use no others."""
    counted = {
        (path.parent.name, name)
        for path in (REPOSITORY / "functions").glob("*/app.py")
        for name in re.findall(r'add_metric\("(\w+)"', path.read_text())
    }
    counted |= {
        ("attribute", name)
        for path in (REPOSITORY / "layers/common/gpucost").rglob("*.py")
        for name in re.findall(r'tally\.(?:add|timed)\("(\w+)"', path.read_text())
    }
    assert len(counted) <= 20
    (dashboard,) = [body for _, body in of_type(template, "AWS::CloudWatch::Dashboard")]
    metrics = set()
    for widget in json.loads(dashboard["DashboardBody"]["Fn::Sub"])["widgets"]:
        before: list[str] = []
        for metric in widget["properties"]["metrics"]:
            parts = [part for part in metric if isinstance(part, str)]
            before = [before[index] if part == "." else part for index, part in enumerate(parts)]
            if before[0] == "GpuCost":
                metrics.add((before[3], before[1]))
    assert metrics <= counted
    assert {name for _, name in metrics} >= {"HoursPublished", "HoursOverdue", "LagSeconds", "Queries", "CapacityUnits"}
    for _, alarm in of_type(template, "AWS::CloudWatch::Alarm"):
        if alarm.get("Namespace") == "GpuCost":
            assert (alarm["Dimensions"][0]["Value"], alarm["MetricName"]) in counted
