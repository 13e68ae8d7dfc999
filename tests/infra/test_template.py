"""The transformed template declares what the product needs."""

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from samtranslator.yaml_helper import yaml_parse

from gpucost.pipeline.refresh_prices import RATING_DELAY
from gpucost.runtime.messages import (
    HoursDue,
    PricesDue,
    ScheduledTick,
    read_alert_input,
    read_external_alerts,
    read_message,
)
from gpucost.runtime.process import Environment
from gpucost_devstack.template import REPOSITORY, transformed_template
from tests.infra.stacks import Stack, Template, of_type

PAGES = {"GET /openapi.json", "GET /docs", "GET /", "GET /assets/{file}", "GET /config.json"}
PUBLIC = PAGES | {"GET /health"}
NOT_STORED = {
    "GET /allocation/autocomplete",
    "GET /assets/autocomplete",
    "GET /cloudCost",
    "GET /cloudCost/{path+}",
    "GET /customCost/{path+}",
}
"""What clients of OpenCost ask for and the function refuses in a sentence."""
MODEL = {"GET /model/{path+}"}
"""All routes of OpenCost with its prefix."""
WILDCARD_REASONS = {
    "QueryMetrics": "workspaces are named by settings, after deployment, unless QueryWorkspaceArns names them",
    "AssumeQueryRoles": "roles of member accounts, by their fixed prefix, unless QueryRoleArns names them",
    "ReadBearerTokens": "secrets are named by settings, under their fixed prefix",
    "ReadWebhooks": "secrets are named by settings, under their fixed prefix",
    "LeaveSecretsOfReceivers": "denies",
    "LeaveSecretsOfMetrics": "denies",
    "WriteExports": "objects under the two folders of the exports",
    "SignDownloads": "objects under the two folders of the exports",
}
NOW = datetime(2026, 11, 20, tzinfo=UTC)
EVENTS = {path.stem: json.loads(path.read_text()) for path in (REPOSITORY / "events").glob("*.json")}


def statements(template: Template, role: str) -> list[dict[str, Any]]:
    """The inline statements of a function's role."""
    policies = template["Resources"][role]["Properties"].get("Policies", [])
    return [statement for policy in policies for statement in as_list(policy["PolicyDocument"]["Statement"])]


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def actions(template: Template, role: str) -> set[str]:
    return {action for statement in statements(template, role) for action in as_list(statement["Action"])}


def test_cfn_lint_finds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "template.json"
    path.write_text(
        json.dumps(transformed_template(Tracing="Active"))
    )  # without, the transform leaves that parameter unused
    done = subprocess.run([REPOSITORY / ".venv/bin/cfn-lint", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_checkov_finds_nothing(template: Template, tmp_path: Path) -> None:
    path = tmp_path / "template.json"
    path.write_text(json.dumps(template))
    checkov = REPOSITORY / ".tools/checkov/bin/checkov"
    assert checkov.exists(), "checkov is missing; install it with: make setup"
    done = subprocess.run(
        [checkov, "--config-file", REPOSITORY / "lint/checkov.yaml", "-f", path, "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    findings = json.loads(done.stdout)
    assert findings["summary"]["passed"] > 10
    assert [failed["check_id"] for failed in findings["results"]["failed_checks"]] == []


def test_every_suppression_says_why() -> None:
    lines = (REPOSITORY / "lint/checkov.yaml").read_text().splitlines()
    for number, text in enumerate(lines):
        if text.strip().startswith("- CKV"):
            assert lines[number - 1].strip().startswith("# "), text


def test_every_function_runs_on_arm_with_a_retained_log_group(template: Template) -> None:
    names = []
    for name, function in of_type(template, "AWS::Lambda::Function"):
        names.append(name)
        assert (function["Runtime"], function["Architectures"]) == ("python3.13", ["arm64"])
        group = function["LoggingConfig"]["LogGroup"]["Ref"]
        assert template["Resources"][group]["Properties"]["RetentionInDays"] == {"Ref": "LogRetentionDays"}
    assert sorted(names) == [
        "AlertFunction",
        "ApiFunction",
        "AttributeFunction",
        "DispatchFunction",
        "ExportFunction",
        "PricesFunction",
        "RecommendFunction",
    ]


def test_queues_retry_single_messages_and_end_in_the_dead_letter_queue(template: Template) -> None:
    sources = dict(of_type(template, "AWS::Lambda::EventSourceMapping"))
    assert len(sources) == 2
    bounds = {}
    for source in sources.values():
        assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        name = source["EventSourceArn"]["Fn::GetAtt"][0]
        bounds[name] = source["ScalingConfig"]["MaximumConcurrency"]["Ref"]
        queue = template["Resources"][name]["Properties"]
        function = template["Resources"][source["FunctionName"]["Ref"]]["Properties"]
        assert queue["VisibilityTimeout"] >= 6 * function["Timeout"]
        assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
    assert bounds == {"HoursQueue": "HoursConcurrency", "BackfillQueue": "BackfillConcurrency"}
    fresh, past = (template["Parameters"][bounds[name]]["Default"] for name in ("HoursQueue", "BackfillQueue"))
    assert fresh > past, "a backfill leaves room for fresh hours"


def test_schedule_passes_its_time_and_failures_become_dead_letters(template: Template) -> None:
    (schedule,) = [
        properties
        for _, properties in of_type(template, "AWS::Scheduler::Schedule")
        if properties["Target"]["Arn"] == {"Fn::GetAtt": ["DispatchFunction", "Arn"]}
    ]
    event = schedule["Target"]["Input"].replace("<aws.scheduler.scheduled-time>", "2026-11-19T11:05:00Z")
    assert read_message(ScheduledTick, event, NOW) == ScheduledTick.model_validate(EVENTS["schedule"])
    assert (schedule["ScheduleExpression"], schedule["ScheduleExpressionTimezone"]) == ("cron(5 * * * ? *)", "UTC")
    assert schedule["Target"]["Arn"] == {"Fn::GetAtt": ["DispatchFunction", "Arn"]}
    assert schedule["Target"]["DeadLetterConfig"]["Arn"] == {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
    role = template["Resources"][schedule["Target"]["RoleArn"]["Fn::GetAtt"][0]]
    granted = {
        action
        for policy in role["Properties"]["Policies"]
        for s in policy["PolicyDocument"]["Statement"]
        for action in as_list(s["Action"])
    }
    assert granted == {"lambda:InvokeFunction", "sqs:SendMessage"}


def test_prices_are_refreshed_before_dispatch_if_a_source_is_enabled(template: Template) -> None:
    schedules = {
        name: properties
        for name, properties in of_type(template, "AWS::Scheduler::Schedule")
        if properties["Target"]["Arn"] == {"Fn::GetAtt": ["PricesFunction", "Arn"]}
    }
    assert {name: schedule["ScheduleExpression"] for name, schedule in schedules.items()} == {
        "PricesHourly": "cron(1 * * * ? *)",
        "PricesDaily": "cron(31 3 * * ? *)",
    }
    for name, schedule in schedules.items():
        assert template["Resources"][name]["Condition"] == "WithPrices"
        assert read_message(PricesDue, schedule["Target"]["Input"], NOW).source is None
        assert schedule["Target"]["DeadLetterConfig"]["Arn"] == {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
    assert read_message(PricesDue, schedules["PricesHourly"]["Target"]["Input"], NOW) == PricesDue.model_validate(
        EVENTS["prices"]
    )
    # dispatch fires at minute 5: an hour counts as rated from a minute before.
    assert timedelta(minutes=1) < RATING_DELAY < timedelta(minutes=5)


def test_page_names_the_time_of_the_reviews(template: Template) -> None:
    (schedule,) = [
        body["ScheduleExpression"]
        for _, body in of_type(template, "AWS::Scheduler::Schedule")
        if body["Target"]["Arn"] == {"Fn::GetAtt": ["RecommendFunction", "Arn"]}
    ]
    time_of_day = re.fullmatch(r"cron\((\d+) (\d+) \* \* \? \*\)", schedule)
    assert time_of_day is not None, schedule
    minute, hour = time_of_day.groups()
    page = (REPOSITORY / "web" / "src" / "savings.ts").read_text()
    assert f"const REVIEWED = ({hour} * 60 + {minute}) * 60_000;" in page


def test_price_sources_add_their_permissions(template: Template) -> None:
    granted: dict[str, set[str]] = {}
    for name, policy in of_type(template, "AWS::IAM::Policy"):
        if name.endswith(("KeyPolicy", "KeyReadPolicy", "KeyWritePolicy")):
            continue  # tests/infra/test_encryption.py
        assert policy["Roles"] == [{"Ref": "PricesFunctionRole"}]
        for statement in policy["PolicyDocument"]["Statement"]:
            narrow = {"QueryBill", "ReadBillTable", "ReadExport", "WriteResults", "AssumeQueryRoles"}
            # The other actions do not support resource-level permissions.
            assert (statement["Resource"] == "*") == (statement["Sid"] not in narrow)
            granted.setdefault(template["Resources"][name]["Condition"], set()).update(as_list(statement["Action"]))
    assert granted == {
        "WithSpotPrices": {"ec2:DescribeSpotPriceHistory", "ec2:DescribeAvailabilityZones"},
        "WithOnDemandPrices": {"pricing:GetProducts"},
        "WithPrices": {"ec2:DescribeInstanceTypes"},
        "WithBill": {"sts:AssumeRole"},
        "WithOwnBill": {
            "athena:GetQueryExecution",
            "athena:GetQueryResults",
            "athena:StartQueryExecution",
            "athena:StopQueryExecution",
            "glue:GetDatabase",
            "glue:GetPartition",
            "glue:GetPartitions",
            "glue:GetTable",
            "s3:AbortMultipartUpload",
            "s3:GetBucketLocation",
            "s3:GetObject",
            "s3:ListBucket",
            "s3:ListMultipartUploadParts",
            "s3:PutObject",
        },
    }
    for switch in ("SpotPrices", "OnDemandPrices", "InstanceShapes", "BillPrices"):
        assert template["Parameters"][switch]["Default"] == "false"


def test_failures_of_asynchronous_functions_become_dead_letters(template: Template) -> None:
    configured = {body["FunctionName"]["Ref"] for _, body in of_type(template, "AWS::Lambda::EventInvokeConfig")}
    assert configured == {"RecommendFunction", "DispatchFunction", "AlertFunction", "PricesFunction", "ExportFunction"}
    for _, body in of_type(template, "AWS::Lambda::EventInvokeConfig"):
        assert body["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}


def test_undeliverable_events_become_dead_letters(template: Template) -> None:
    subscriptions = [body for _, body in of_type(template, "AWS::SNS::Subscription") if body["Protocol"] == "lambda"]
    assert [subscription["RedrivePolicy"]["deadLetterTargetArn"] for subscription in subscriptions] == [
        {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
    ] * 2
    # Without this policy SNS drops them, because a redrive policy grants no permission.
    policy = template["Resources"]["DeadLetterPolicy"]["Properties"]
    assert policy["Queues"] == [{"Ref": "DeadLetterQueue"}]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert (statement["Principal"], statement["Action"]) == ({"Service": "sns.amazonaws.com"}, "sqs:SendMessage")
    assert statement["Condition"] == {
        "ArnEquals": {"aws:SourceArn": [subscription["TopicArn"] for subscription in subscriptions]}
    }


def test_ledger_is_retained_when_the_stack_is_deleted(template: Template) -> None:
    table = template["Resources"]["Table"]
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert table["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["Properties"]["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert table["Condition"] == "NewTable"


def test_policies_are_narrow(template: Template) -> None:
    roles = [name for name, _ in of_type(template, "AWS::IAM::Role") if name.endswith("FunctionRole")]
    assert len(roles) == 7
    for role in roles:
        for statement in statements(template, role):
            for action in as_list(statement["Action"]):
                assert "*" not in action
                assert action != "dynamodb:Scan"
            if "*" in json.dumps(statement["Resource"]):
                assert statement["Sid"] in WILDCARD_REASONS, statement


def test_functions_have_exactly_the_permissions_they_need(template: Template) -> None:
    read = {"dynamodb:GetItem", "dynamodb:Query"}
    assert actions(template, "ApiFunctionRole") == read | {"s3:GetObject"}
    assert actions(template, "DispatchFunctionRole") == read | {
        "dynamodb:BatchWriteItem",
        "dynamodb:DeleteItem",
        "dynamodb:PutItem",
        "sqs:SendMessage",
        "sns:Publish",
    }
    assert actions(template, "PricesFunctionRole") == read | {
        "dynamodb:BatchWriteItem",
        "dynamodb:DeleteItem",
        "dynamodb:PutItem",
        "sqs:SendMessage",
    }
    assert actions(template, "ExportFunctionRole") == read | {
        "dynamodb:PutItem",
        "s3:GetObject",
        "s3:ListBucket",
        "s3:PutObject",
        "sqs:SendMessage",
    }
    assert actions(template, "RecommendFunctionRole") == read | {
        "dynamodb:BatchWriteItem",
        "dynamodb:DeleteItem",
        "dynamodb:PutItem",
        "sqs:SendMessage",
        "aps:QueryMetrics",
        "sts:AssumeRole",
        "secretsmanager:GetSecretValue",
    }
    assert actions(template, "AlertFunctionRole") == read | {
        "dynamodb:BatchWriteItem",
        "dynamodb:PutItem",
        "sns:Publish",
        "sqs:GetQueueAttributes",
        "sqs:SendMessage",
        "secretsmanager:GetSecretValue",
    }
    assert actions(template, "AttributeFunctionRole") == read | {
        "dynamodb:BatchWriteItem",
        "dynamodb:ConditionCheckItem",
        "dynamodb:PutItem",
        "sns:Publish",
        "sqs:SendMessage",
        "secretsmanager:GetSecretValue",
        "aps:QueryMetrics",
        "sts:AssumeRole",
    }


def test_every_route_except_public_ones_requires_authorization(template: Template) -> None:
    routes = {body["RouteKey"]: body for _, body in of_type(template, "AWS::ApiGatewayV2::Route")}
    assert routes.keys() >= PUBLIC | {"GET /v1/costs", "GET /v1/business-units", "GET /v1/hours"}
    for key, route in routes.items():
        if key in PUBLIC:
            assert route["AuthorizationType"] == "NONE"
        else:
            assert route["AuthorizationType"] == {"Fn::If": ["WithJwt", "JWT", "AWS_IAM"]}
            assert route["AuthorizerId"]["Fn::If"][:2] == ["WithJwt", {"Ref": "JwtAuthorizer"}]
        assert route["Target"] == {"Fn::Sub": "integrations/${HttpIntegration}"}
    integration = template["Resources"]["HttpIntegration"]["Properties"]
    assert integration["IntegrationUri"]["Fn::If"][2] == {"Fn::GetAtt": ["ApiFunction", "Arn"]}
    permitted = template["Resources"]["HttpPermission"]["Properties"]["FunctionName"]
    assert permitted["Fn::If"][2] == {"Ref": "ApiFunction"}
    documented = json.loads((REPOSITORY / "docs/reference/openapi.json").read_text())["paths"]
    documented_routes = {f"{method.upper()} {path}" for path, methods in documented.items() for method in methods}
    assert documented_routes | PAGES | NOT_STORED | MODEL == routes.keys()


def test_public_routes_have_a_separate_throttle(template: Template) -> None:
    """Otherwise a flood of requests for the public page would throttle the reports."""
    stage = template["Resources"]["HttpStage"]
    routes = {
        logical: body["RouteKey"]
        for logical, body in of_type(template, "AWS::ApiGatewayV2::Route")
        if body["AuthorizationType"] == "NONE"
    }
    assert stage["Properties"]["RouteSettings"].keys() == set(routes.values())
    assert set(stage["DependsOn"]) == routes.keys(), "API Gateway refuses settings of routes that do not exist yet"
    for settings in (stage["Properties"]["DefaultRouteSettings"], *stage["Properties"]["RouteSettings"].values()):
        assert settings["ThrottlingBurstLimit"] >= settings["ThrottlingRateLimit"] > 0


def test_throttles_need_no_higher_quota(template: Template) -> None:
    """Smaller regions allow an account 2,500 requests per second, and new accounts ten concurrent executions."""
    stage = template["Resources"]["HttpStage"]["Properties"]
    limits = [stage["DefaultRouteSettings"], *stage["RouteSettings"].values()]
    assert sum(settings["ThrottlingRateLimit"] for settings in limits) <= 2500
    assert sum(settings["ThrottlingBurstLimit"] for settings in limits) <= 1250
    for parameters, expected in ({}, {}), ({"ApiConcurrency": 5}, {"ApiFunction": 5}):
        reserved = {
            logical: properties["ReservedConcurrentExecutions"]
            for logical, kind, properties in Stack("gpucost-dev", template, parameters).resources()
            if kind == "AWS::Lambda::Function" and "ReservedConcurrentExecutions" in properties
        }
        assert reserved == expected


def test_functions_receive_exactly_the_variables_they_read(template: Template) -> None:
    needed = {
        "DispatchFunction": {"table", "hours_queue_url", "backfill_queue_url", "events_topic_arn"},
        "AttributeFunction": {
            "table",
            "hours_queue_url",
            "backfill_queue_url",
            "dead_letter_queue_url",
            "events_topic_arn",
        },
        "AlertFunction": {"table", "dead_letter_queue_url", "alerts_topic_arn", "email_topic_arn", "public_url"},
        "ApiFunction": {
            "table",
            "export_bucket",
            "sign_in_issuer",
            "sign_in_client",
            "sign_in_scopes",
            "sign_in_hosts",
        },
        "ExportFunction": {"table", "export_bucket", "export_days", "billing_account"},
        "RecommendFunction": {"table"},
        "PricesFunction": {"table", "price_sources"},
    }
    for name, function in of_type(template, "AWS::Lambda::Function"):
        variables = {
            key.removeprefix("GPUCOST_").lower()
            for key in function["Environment"]["Variables"]
            if key.startswith("GPUCOST_")
        }
        assert variables == needed[name] | {"stack"}
        assert variables <= set(Environment.__struct_fields__)


def test_every_parameter_is_described() -> None:
    source = yaml_parse((REPOSITORY / "template.yaml").read_text())
    grouped = [
        name
        for group in source["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
        for name in group["Parameters"]
    ]
    assert sorted(grouped) == sorted(source["Parameters"])
    for name, parameter in source["Parameters"].items():
        assert parameter["Description"], name
        assert "AllowedPattern" not in parameter or "ConstraintDescription" in parameter, name


def test_no_alias_that_cloudformation_would_refuse() -> None:
    """CloudFormation refuses YAML anchors and merges, although SAM's parser accepts them."""
    for number, text in enumerate((REPOSITORY / "template.yaml").read_text().splitlines(), start=1):
        assert "<<:" not in text, number
        assert not text.strip().startswith("*"), number


@pytest.mark.parametrize("name", ["hours", "backfill"])
def test_recorded_work_is_read(name: str) -> None:
    for record in EVENTS[name]["Records"]:
        message = read_message(HoursDue, record["body"], NOW)
        assert message.origin == {"hours": "schedule", "backfill": "backfill"}[name]


@pytest.mark.parametrize("name", ["hour-published", "tick"])
def test_recorded_events_are_parsed(name: str) -> None:
    for record in EVENTS[name]["Records"]:
        assert "-InternalEventsTopic-" in record["Sns"]["TopicArn"]
        assert read_alert_input(record["Sns"]["Message"], NOW).kind == name


def test_recorded_alerts_are_parsed() -> None:
    for record in EVENTS["amp-alerts"]["Records"]:
        assert "-EventsTopic-" in record["Sns"]["TopicArn"]
        assert read_external_alerts(record["Sns"]["Message"], NOW).check(NOW).reasons == []


def test_alert_managers_publish_only_on_the_topic_of_alerts(template: Template) -> None:
    policies = dict(of_type(template, "AWS::SNS::TopicPolicy"))
    statements_of_services = [
        statement for policy in policies.values() for statement in policy["PolicyDocument"]["Statement"]
    ]
    (alerts,) = [
        statement for statement in statements_of_services if statement["Principal"] == {"Service": "aps.amazonaws.com"}
    ]
    assert alerts["Resource"] == {"Ref": "EventsTopic"}
    assert {"Ref": "InternalEventsTopic"} not in [statement["Resource"] for statement in statements_of_services]
    variables = template["Resources"]["AlertFunction"]["Properties"]["Environment"]["Variables"]
    assert variables["GPUCOST_ALERTS_TOPIC_ARN"] == {"Ref": "EventsTopic"}
    for function in ("DispatchFunction", "AttributeFunction"):
        variables = template["Resources"][function]["Properties"]["Environment"]["Variables"]
        assert variables["GPUCOST_EVENTS_TOPIC_ARN"] == {"Ref": "InternalEventsTopic"}
        topics = [
            statement["Resource"]
            for statement in statements(template, f"{function}Role")
            if statement["Action"] == "sns:Publish"
        ]
        assert topics == [{"Ref": "InternalEventsTopic"}]


def test_every_trigger_has_a_recorded_event(template: Template) -> None:
    """Each names its source, like real events, so that events and triggers correspond."""
    queues = {
        source["EventSourceArn"]["Fn::GetAtt"][0] for _, source in of_type(template, "AWS::Lambda::EventSourceMapping")
    }
    topics = {
        body["TopicArn"]["Ref"]
        for _, body in of_type(template, "AWS::SNS::Subscription")
        if body["Protocol"] == "lambda"
    }
    recorded = [record for event in EVENTS.values() for record in event.get("Records", [])]
    arns = [record["eventSourceARN"] for record in recorded if "eventSourceARN" in record]
    assert sorted(arn.split("-")[-2] for arn in arns) == sorted(queues)
    assert {record["Sns"]["TopicArn"].split("-")[-2] for record in recorded if "Sns" in record} == topics
    routes = {body["RouteKey"] for _, body in of_type(template, "AWS::ApiGatewayV2::Route")}
    assert {event["routeKey"] for event in EVENTS.values() if "routeKey" in event} <= routes
    assert set(EVENTS) == {
        "schedule",
        "hours",
        "backfill",
        "hour-published",
        "tick",
        "api-costs",
        "prices",
        "export",
        "recommend",
        "amp-alerts",
    }


def test_traces_are_sent_if_enabled(template: Template) -> None:
    def traced(transformed: Template) -> set[tuple[bool, bool]]:
        return {
            (
                body.get("TracingConfig") == {"Mode": {"Ref": "Tracing"}},
                any(
                    "AWSXray" in arn
                    for arn in transformed["Resources"][f"{name}Role"]["Properties"]["ManagedPolicyArns"]
                ),
            )
            for name, body in of_type(transformed, "AWS::Lambda::Function")
        }

    assert traced(template) == {(False, False)}
    assert traced(transformed_template(Tracing="Active")) == {(True, True)}


def test_recording_rules_are_loaded_if_enabled(template: Template) -> None:
    """Off by default, and only together with the alerts. The nested template has exactly the passed parameters."""
    nested = template["Resources"]["AmpRecordingRules"]
    condition = {"Fn::Equals": [{"Ref": "RecordingRules"}, "true"]}
    assert template["Conditions"][nested["Condition"]] == {"Fn::And": [{"Condition": "WithAmpRules"}, condition]}
    assert template["Parameters"]["RecordingRules"]["Default"] == "false"
    nested_template = yaml_parse((REPOSITORY / nested["Properties"]["TemplateURL"]).read_text())
    assert nested_template["Parameters"].keys() == nested["Properties"]["Parameters"].keys()
    parameters = {"AmpWorkspaceArn": "arn:aws:aps:eu-central-1:1:workspace/ws-1", "RecordingRules": "true"}
    stack = Stack("gpucost-dev", template, parameters)
    names = {nested.properties("Rules")["Name"] for nested in stack.nested()}
    assert len(names) == 2, "both are in one workspace"
