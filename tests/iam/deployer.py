"""The permissions that CloudFormation needs to create, read, update and delete the template's resources.

The resource providers' schemas name them for each type, whatever its properties are. Those that only a property needs
which the template does not set are left out.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from gpucost_devstack.iam.authorizer import PermissionUse, evaluate
from gpucost_devstack.iam.calls import PermissionNeeded
from gpucost_devstack.iam.policies import Policies, Statement
from gpucost_devstack.iam.simulator import FOLDER
from gpucost_devstack.template import REGION, REPOSITORY
from tests.infra.stacks import ACCOUNT, Stack, read_template

TEMPLATES = (
    "template.yaml",
    "cluster/aws/observability.yaml",
    "dashboards/amp-alerts.yaml",
    "dashboards/amp-rules.yaml",
)
"""The template, and those that it nests."""
HANDLERS = ("create", "read", "update", "delete")

ONLY_FOR: Mapping[tuple[str, str], str] = {
    ("AWS::APS::Workspace", "aps:*AlertManagerDefinition"): "AlertManagerDefinition",
    ("AWS::APS::Workspace", "aps:*LoggingConfiguration"): "LoggingConfiguration",
    ("AWS::APS::Workspace", "logs:"): "LoggingConfiguration",
    ("AWS::APS::Workspace", "kms:"): "KmsKeyArn",
    ("AWS::ApiGatewayV2::Api", "s3:"): "BodyS3Location",
    ("AWS::ApiGatewayV2::Authorizer", "iam:PassRole"): "AuthorizerCredentialsArn",
    ("AWS::ApiGatewayV2::DomainName", "s3:"): "MutualTlsAuthentication",
    ("AWS::ApiGatewayV2::Integration", "iam:PassRole"): "CredentialsArn",
    ("AWS::CloudFormation::Stack", "iam:PassRole"): "RoleARN",
    ("AWS::CloudFormation::Stack", "cloudformation:SetStackPolicy"): "StackPolicyBody",
    ("AWS::CloudFormation::Stack", "cloudformation:UpdateTerminationProtection"): "EnableTerminationProtection",
    ("AWS::DynamoDB::Table", "dynamodb:*Import*"): "ImportSourceSpecification",
    ("AWS::DynamoDB::Table", "s3:"): "ImportSourceSpecification",
    ("AWS::DynamoDB::Table", "logs:"): "ImportSourceSpecification",
    ("AWS::DynamoDB::Table", "dynamodb:*ableKinesisStreamingDestination"): "KinesisStreamSpecification",
    ("AWS::DynamoDB::Table", "dynamodb:UpdateKinesisStreamingDestination"): "KinesisStreamSpecification",
    ("AWS::DynamoDB::Table", "kinesis:"): "KinesisStreamSpecification",
    ("AWS::DynamoDB::Table", "dynamodb:UpdateContributorInsights"): "ContributorInsightsSpecification",
    ("AWS::DynamoDB::Table", "dynamodb:PutResourcePolicy"): "ResourcePolicy",
    ("AWS::DynamoDB::Table", "dynamodb:DeleteResourcePolicy"): "ResourcePolicy",
    ("AWS::DynamoDB::Table", "dynamodb:*TableReplica"): "Replicas",
    ("AWS::DynamoDB::Table", "dynamodb:*Item"): "Replicas",
    ("AWS::DynamoDB::Table", "dynamodb:Scan"): "Replicas",
    ("AWS::DynamoDB::Table", "dynamodb:Query"): "Replicas",
    ("AWS::DynamoDB::Table", "iam:CreateServiceLinkedRole"): "Replicas",
    ("AWS::Glue::Database", "glue:*Connection"): "FederatedDatabase",
    ("AWS::Glue::Table", "glue:PassConnection"): "OpenTableFormatInput",
    ("AWS::Glue::Table", "iam:PassRole"): "OpenTableFormatInput",
    ("AWS::Glue::Table", "s3:"): "OpenTableFormatInput",
    ("AWS::Glue::Table", "glue:GetSchemaVersion"): "SchemaReference",
    ("AWS::Grafana::Workspace", "ec2:"): "VpcConfiguration",
    ("AWS::IAM::Policy", "iam:*User*"): "Users",
    ("AWS::IAM::Policy", "iam:*Group*"): "Groups",
    ("AWS::Lambda::Alias", "codedeploy:"): "UpdatePolicy",
    ("AWS::Lambda::Alias", "lambda:PutProvisionedConcurrencyConfig"): "ProvisionedConcurrencyConfig",
    ("AWS::Lambda::Alias", "lambda:DeleteProvisionedConcurrencyConfig"): "ProvisionedConcurrencyConfig",
    ("AWS::Lambda::EventSourceMapping", "kms:"): "KmsKeyArn",
    ("AWS::Lambda::Function", "elasticfilesystem:"): "FileSystemConfigs",
    ("AWS::Lambda::Function", "s3files:"): "FileSystemConfigs",
    ("AWS::Lambda::Function", "kms:"): "KmsKeyArn",
    ("AWS::Lambda::Function", "lambda:GetCodeSigningConfig"): "CodeSigningConfigArn",
    ("AWS::Lambda::Function", "lambda:PutFunctionCodeSigningConfig"): "CodeSigningConfigArn",
    ("AWS::Lambda::Function", "lambda:DeleteFunctionCodeSigningConfig"): "CodeSigningConfigArn",
    ("AWS::Lambda::Function", "lambda:PutRuntimeManagementConfig"): "RuntimeManagementConfig",
    ("AWS::Lambda::Function", "lambda:PutFunctionRecursionConfig"): "RecursiveLoop",
    ("AWS::Lambda::Function", "lambda:PutFunctionScalingConfig"): "FunctionScalingConfig",
    ("AWS::Lambda::Function", "lambda:PassCapacityProvider"): "CapacityProviderConfig",
    ("AWS::Lambda::Version", "lambda:PutProvisionedConcurrencyConfig"): "ProvisionedConcurrencyConfig",
    ("AWS::Lambda::Version", "lambda:PutRuntimeManagementConfig"): "RuntimePolicy",
    ("AWS::Lambda::Version", "lambda:PutFunctionScalingConfig"): "FunctionScalingConfig",
    ("AWS::Logs::LogGroup", "logs:PutDataProtectionPolicy"): "DataProtectionPolicy",
    ("AWS::Logs::LogGroup", "logs:DeleteDataProtectionPolicy"): "DataProtectionPolicy",
    ("AWS::Logs::LogGroup", "logs:CreateLogDelivery"): "DataProtectionPolicy",
    ("AWS::Logs::LogGroup", "firehose:"): "DataProtectionPolicy",
    ("AWS::Logs::LogGroup", "logs:PutResourcePolicy"): "ResourcePolicyDocument",
    ("AWS::Logs::LogGroup", "logs:DeleteResourcePolicy"): "ResourcePolicyDocument",
    ("AWS::Logs::LogGroup", "logs:PutIndexPolicy"): "FieldIndexPolicies",
    ("AWS::Logs::LogGroup", "logs:DeleteIndexPolicy"): "FieldIndexPolicies",
    ("AWS::Logs::LogGroup", "logs:PutLogGroupDeletionProtection"): "DeletionProtectionEnabled",
    ("AWS::Logs::LogGroup", "logs:PutBearerTokenAuthentication"): "BearerTokenAuthenticationEnabled",
    ("AWS::S3::Bucket", "s3:*Analytics*"): "AnalyticsConfigurations",
    ("AWS::S3::Bucket", "s3:*BucketCORS"): "CorsConfiguration",
    ("AWS::S3::Bucket", "s3:*InventoryConfiguration"): "InventoryConfigurations",
    ("AWS::S3::Bucket", "s3:*MetricsConfiguration"): "MetricsConfigurations",
    ("AWS::S3::Bucket", "s3:*BucketNotification"): "NotificationConfiguration",
    ("AWS::S3::Bucket", "s3:*Replication*"): "ReplicationConfiguration",
    ("AWS::S3::Bucket", "iam:PassRole"): "ReplicationConfiguration",
    ("AWS::S3::Bucket", "s3:*BucketWebsite"): "WebsiteConfiguration",
    ("AWS::S3::Bucket", "s3:*AccelerateConfiguration"): "AccelerateConfiguration",
    ("AWS::S3::Bucket", "s3:*Acl"): "AccessControl",
    ("AWS::S3::Bucket", "s3:*ObjectLockConfiguration"): "ObjectLockConfiguration",
    ("AWS::S3::Bucket", "s3:DeleteObject"): "ObjectLockConfiguration",
    ("AWS::S3::Bucket", "s3:*BucketLogging"): "LoggingConfiguration",
    ("AWS::S3::Bucket", "s3:*IntelligentTieringConfiguration"): "IntelligentTieringConfigurations",
    ("AWS::S3::Bucket", "s3:*Metadata*"): "MetadataConfiguration",
    ("AWS::S3::Bucket", "s3tables:"): "MetadataConfiguration",
    ("AWS::S3::Bucket", "s3:*BucketAbac"): "AbacStatus",
    ("AWS::SNS::Subscription", "iam:"): "SubscriptionRoleArn",
    ("AWS::SNS::Topic", "iam:"): "DeliveryStatusLogging",
    ("AWS::SNS::Topic", "sns:PutDataProtectionPolicy"): "DataProtectionPolicy",
}
"""The property (or attribute) that needs some permissions of a type, by type and pattern of the actions."""

NOT_IN_IAM = {
    "apigateway:TagResource",
    "apigateway:UntagResource",
    "lakeformation:CreateTable",
    "lambda:AssociateRuntimeAlias",
    "s3:DeleteBucketCors",
    "s3:DeleteBucketEncryption",
    "s3:DeleteBucketLifecycle",
    "s3:DeleteBucketTagging",
    "s3:REST.PUT.OBJECT",
}
"""Names in the schemas that are no actions of IAM: other actions authorize these calls."""
WITHHELD = {"iam:DeleteRolePermissionsBoundary"}
"""Actions that the deployer must not have: they would remove a permissions boundary."""

STACK = "gpucost-dev"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/deployer"
POLICY = REPOSITORY / "docs" / "how-to" / "deployer-policy.yaml"
WORKSPACE_ID = "ws-0123"
MANAGED_POLICY = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
SAM_STACK = "aws-sam-cli-managed-default"
_OF = f"{REGION}:{ACCOUNT}"

RESOURCES: Mapping[str, Sequence[str]] = {
    "AWS::APS::RuleGroupsNamespace": [f"aps:{_OF}:rulegroupsnamespace/{WORKSPACE_ID}/gpucost-recording-1"],
    "AWS::APS::Workspace": [f"aps:{_OF}:workspace/{WORKSPACE_ID}"],
    "AWS::ApiGatewayV2::Api": [f"apigateway:{REGION}::/apis", f"apigateway:{REGION}::/apis/a1"],
    "AWS::ApiGatewayV2::ApiMapping": [f"apigateway:{REGION}::/domainnames/gpucost.example.com/apimappings"],
    "AWS::ApiGatewayV2::Authorizer": [f"apigateway:{REGION}::/apis/a1/authorizers"],
    "AWS::ApiGatewayV2::DomainName": [
        f"apigateway:{REGION}::/domainnames",
        f"apigateway:{REGION}::/domainnames/gpucost.example.com",
    ],
    "AWS::ApiGatewayV2::Integration": [f"apigateway:{REGION}::/apis/a1/integrations"],
    "AWS::ApiGatewayV2::Route": [f"apigateway:{REGION}::/apis/a1/routes/r1"],
    "AWS::ApiGatewayV2::Stage": [
        f"apigateway:{REGION}::/apis/a1/stages/$default",
        f"apigateway:{REGION}::/tags/apis%2Fa1%2Fstages",
    ],
    "AWS::CloudFormation::Stack": [f"cloudformation:{_OF}:stack/{{stack}}-AmpRules-1/1"],
    "AWS::CloudWatch::Alarm": [f"cloudwatch:{_OF}:alarm:{{stack}}-Alarm-1"],
    "AWS::CloudWatch::Dashboard": [f"cloudwatch::{ACCOUNT}:dashboard/{{stack}}-{REGION}"],
    "AWS::DynamoDB::Table": [f"dynamodb:{_OF}:table/{{stack}}-Table-1"],
    "AWS::Glue::Database": [
        f"glue:{_OF}:catalog",
        f"glue:{_OF}:database/{{database}}",
        f"glue:{_OF}:userDefinedFunction/{{database}}/f",
    ],
    "AWS::Glue::Table": [
        f"glue:{_OF}:catalog",
        f"glue:{_OF}:database/{{database}}",
        f"glue:{_OF}:table/{{database}}/focus",
    ],
    "AWS::Grafana::Workspace": [f"grafana:{_OF}:/workspaces/g-1"],
    "AWS::IAM::Policy": [f"iam::{ACCOUNT}:role/{{stack}}-AttributeFunctionRole-1"],
    "AWS::IAM::Role": [f"iam::{ACCOUNT}:role/{{stack}}-AttributeFunctionRole-1"],
    "AWS::Lambda::Alias": [f"lambda:{_OF}:function:{{stack}}-ApiFunction-1:live"],
    "AWS::Lambda::EventInvokeConfig": [f"lambda:{_OF}:function:{{stack}}-ApiFunction-1"],
    "AWS::Lambda::EventSourceMapping": [f"lambda:{_OF}:event-source-mapping:0123"],
    "AWS::Lambda::Function": [f"lambda:{_OF}:function:{{stack}}-ApiFunction-1"],
    "AWS::Lambda::LayerVersion": [f"lambda:{_OF}:layer:{{stack}}-common", f"lambda:{_OF}:layer:{{stack}}-common:1"],
    "AWS::Lambda::Permission": [f"lambda:{_OF}:function:{{stack}}-ApiFunction-1"],
    "AWS::Lambda::Version": [f"lambda:{_OF}:function:{{stack}}-ApiFunction-1:1"],
    "AWS::Logs::LogGroup": [f"logs:{_OF}:log-group:{{stack}}-ApiLogs-1", f"logs:{_OF}:log-group:{{stack}}-ApiLogs-1:*"],
    "AWS::S3::Bucket": ["s3:::{stack}-exportbucket-1", f"s3:::{SAM_STACK}-samclisourcebucket-1"],
    "AWS::S3::BucketPolicy": ["s3:::{stack}-exportbucket-1", f"s3:::{SAM_STACK}-samclisourcebucket-1"],
    "AWS::SNS::Subscription": [f"sns:{_OF}:{{stack}}-EmailTopic-1"],
    "AWS::SNS::Topic": [f"sns:{_OF}:{{stack}}-EmailTopic-1"],
    "AWS::SNS::TopicPolicy": [f"sns:{_OF}:{{stack}}-EmailTopic-1"],
    "AWS::SQS::Queue": [f"sqs:{_OF}:{{stack}}-HoursQueue-1"],
    "AWS::SQS::QueuePolicy": [f"sqs:{_OF}:{{stack}}-HoursQueue-1"],
    "AWS::Scheduler::Schedule": [f"scheduler:{_OF}:schedule/default/{{stack}}-PricesDaily-1"],
}
"""Resources of each type, as CloudFormation names them, without `arn:aws:`."""
OTHER_SERVICES: Mapping[str, str] = {
    "iam:CreateServiceLinkedRole": f"iam::{ACCOUNT}:role/aws-service-role/grafana.amazonaws.com/Grafana",
    "iam:PassRole": f"iam::{ACCOUNT}:role/{{stack}}-AttributeFunctionRole-1",
    "kms:": f"kms:{_OF}:key/0123",
    "lambda:GetLayerVersion": f"lambda:{_OF}:layer:{{stack}}-common:1",
    "s3:GetObject": f"s3:::{SAM_STACK}-samclisourcebucket-1/gpucost/0123.template",
}
"""Resources of a type's actions that concern another resource."""
PASSED_TO = {
    "AWS::Lambda::Function": "lambda.amazonaws.com",
    "AWS::Scheduler::Schedule": "scheduler.amazonaws.com",
    "AWS::Grafana::Workspace": "grafana.amazonaws.com",
}
SAM_CALLS = {
    f"cloudformation:{_OF}:stack/{{stack}}/1": [
        "CreateChangeSet",
        "DeleteStack",
        "DescribeChangeSet",
        "DescribeStackEvents",
        "DescribeStacks",
        "ExecuteChangeSet",
        "GetTemplate",
        "ListChangeSets",
        "TagResource",
        "UntagResource",
    ],
    f"cloudformation:{_OF}:stack/{SAM_STACK}/1": [
        "CreateChangeSet",
        "DescribeChangeSet",
        "DescribeStacks",
        "ExecuteChangeSet",
    ],
    f"cloudformation:{REGION}:aws:transform/Serverless-2016-10-31": ["CreateChangeSet"],
    "cloudformation:*": ["GetTemplateSummary", "ValidateTemplate"],
    f"s3:::{SAM_STACK}-samclisourcebucket-1": ["GetBucketVersioning", "ListBucket"],
    f"s3:::{SAM_STACK}-samclisourcebucket-1/gpucost/0123.template": ["DeleteObject", "GetObject", "PutObject"],
    "logs:*": [
        "CreateLogDelivery",
        "DeleteLogDelivery",
        "DescribeResourcePolicies",
        "GetLogDelivery",
        "ListLogDeliveries",
        "PutResourcePolicy",
        "UpdateLogDelivery",
    ],
}
"""What `sam deploy` and `sam delete` call themselves, and what API Gateway's guide demands for access logs of HTTP APIs
(docs.aws.amazon.com/apigateway/latest/developerguide/http-api-logging.html)."""


def _is_simulated(action: str, resource: str = "") -> bool:
    """Whether the simulator can evaluate an action.

    Its reference has no HTTP APIs and transforms, and takes a function's version for an alias, too.
    """
    return not (
        action.startswith("apigateway:")
        or action == "lambda:GetProvisionedConcurrencyConfig"
        or ":transform/" in resource
    )


def simulated(uses: Sequence[PermissionUse]) -> list[PermissionUse]:
    """The permissions that the simulator can evaluate."""
    return [use for use in uses if _is_simulated(use.call.action, use.call.resource)]


def decide(policies: Policies, uses: Sequence[PermissionUse]) -> list[bool]:
    """Whether each permission is allowed: by the simulator, or else by the statements' patterns alone."""
    evaluated = simulated(uses)
    decisions = dict(zip(evaluated, evaluate(policies, evaluated), strict=True))
    return [decisions[use] if use in decisions else _matches_a_statement(policies, use) for use in uses]


def _matches_a_statement(policies: Policies, use: PermissionUse) -> bool:
    return any(
        any(fnmatchcase(use.call.action, pattern) for pattern in _listed(statement.body["Action"]))
        and any(fnmatchcase(use.call.resource, pattern) for pattern in _listed(statement.body["Resource"]))
        for statement in policies.statements
        if "Condition" not in statement.body
    )


def _listed(patterns: str | Sequence[str]) -> Sequence[str]:
    return [patterns] if isinstance(patterns, str) else patterns


def required_permissions(stack: str = STACK) -> Iterator[PermissionUse]:
    """The permissions that deploying, updating and deleting the template take.

    Args:
        stack: whose resources are concerned.
    """
    for kind, names in _resources_by_type().items():
        for action in sorted(_handler_actions(kind)):
            if action not in NOT_IN_IAM | WITHHELD and not is_only_for_unset_property(kind, action, names):
                for resource in _resources_of(kind, action):
                    yield _use(action, _arn(resource, stack), _context(kind, action, stack))
    for resource, actions in SAM_CALLS.items():
        service = resource.partition(":")[0]
        for action in actions:
            yield _use(f"{service}:{action}", "*" if resource.endswith(":*") else _arn(resource, stack), ())


def is_only_for_unset_property(kind: str, action: str, names: frozenset[str]) -> bool:
    """Whether only properties need an action that the template does not set on any resource of a type.

    Args:
        names: all keys in the resources of the type.
    """
    properties = [name for (of, pattern), name in ONLY_FOR.items() if of == kind and is_matched(action, pattern)]
    return bool(properties) and not names.intersection(properties)


def is_matched(action: str, pattern: str) -> bool:
    """Whether an action matches a pattern, or belongs to the service that the pattern names."""
    return fnmatchcase(action, f"{pattern}*" if pattern.endswith(":") else pattern)


def deployer_policies(**parameters: str) -> Policies:
    """The statements of the deployer's policies, with the template's parameters."""
    stack = Stack("gpucost-deployer", read_template(POLICY), {"StackName": STACK, **parameters})
    statements = [
        Statement(ROLE, f"{logical}/{statement['Sid']}", statement)
        for logical, _, properties in stack.resources()
        for statement in properties["PolicyDocument"]["Statement"]
    ]
    key_policy = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "kms:*"}
    key = f"arn:aws:{OTHER_SERVICES['kms:']}"
    return Policies((*statements, Statement(key, "key policy", {**key_policy, "Resource": "*"}, True)))


def iam_action(action: str) -> Mapping[str, Any] | None:
    """An action in IAM's service authorization reference, or None if IAM does not have it."""
    service, _, name = action.partition(":")
    reference: Mapping[str, Any] | None = _reference("actions", service).get(name.lower())
    return reference


@cache
def _reference(kind: str, service: str) -> Any:
    path = FOLDER / "node_modules" / "@cloud-copilot" / "iam-data" / "data" / kind / f"{service}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _has_resource(action: str, resource: str) -> bool:
    """Whether an action can concern a resource, by the forms of its resource types' ARNs."""
    reference = iam_action(action) or {}
    service = action.partition(":")[0]
    types = _reference("resourceTypes", service)
    forms = [
        form.removeprefix("arn:${Partition}:")
        for named in reference["resourceTypes"]
        for form in types[named["name"].lower()]["arn"].split(", ")
    ]
    return any(re.fullmatch(re.sub(r"\\\$\\\{\w+\\\}", ".*", re.escape(form)), resource) for form in forms)


@cache
def _resources_by_type() -> Mapping[str, frozenset[str]]:
    """All keys in the templates' resources, by type."""
    names: dict[str, frozenset[str]] = {}
    for path in TEMPLATES:
        for resource in read_template(REPOSITORY / path)["Resources"].values():
            kind = resource["Type"]
            names[kind] = names.get(kind, frozenset()) | frozenset(_keys(resource))
    return names


def _keys(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, inner in part.items():
            yield key
            yield from _keys(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _keys(inner)


def _handler_actions(kind: str) -> set[str]:
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, kind).schema
    handlers = schema["handlers"]
    permissions = {action for name in HANDLERS for action in handlers.get(name, {}).get("permissions", ())}
    return permissions | set(schema.get("tagging", {}).get("permissions", ()))


def _resources_of(kind: str, action: str) -> Sequence[str]:
    reference = iam_action(action)
    if reference is None:
        raise AssertionError(f"{action} of {kind} is no action of IAM: add it to NOT_IN_IAM")
    if not reference["resourceTypes"]:
        return ["*"]
    others = [resource for pattern, resource in OTHER_SERVICES.items() if action.startswith(pattern)]
    named = [
        resource
        for resource in others or RESOURCES[kind]
        if not _is_simulated(action) or _has_resource(action, resource)
    ]
    if not named:
        raise AssertionError(f"none of the resources of {kind} is one of {action}: add it to RESOURCES")
    return named


def _arn(resource: str, stack: str) -> str:
    if resource == "*":
        return resource
    return "arn:aws:" + resource.replace("{stack}", stack).replace("{database}", stack.replace("-", "_"))


def _context(kind: str, action: str, stack: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if action == "iam:PassRole":
        return (("iam:PassedToService", (PASSED_TO[kind],)),)
    if action in {"iam:AttachRolePolicy", "iam:DetachRolePolicy"}:
        return (("iam:PolicyARN", (MANAGED_POLICY,)),)
    if action == "iam:CreateServiceLinkedRole":
        return (("iam:AWSServiceName", ("grafana.amazonaws.com",)),)
    if action.startswith("kms:"):
        return (("kms:ViaService", (f"dynamodb.{REGION}.amazonaws.com",)),)
    if "EventSourceMapping" in action and not action.startswith("lambda:Get"):
        return (("lambda:FunctionArn", (f"arn:aws:lambda:{_OF}:function:{stack}-AttributeFunction-1",)),)
    return ()


def _use(action: str, resource: str, context: tuple[tuple[str, tuple[str, ...]], ...]) -> PermissionUse:
    return PermissionUse(ROLE, PermissionNeeded(action, resource, context))
