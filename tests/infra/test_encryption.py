"""A customer managed key encrypts every resource of the stack, and each role has the permissions that it needs."""

import json
import re
from collections import defaultdict
from typing import Any

import pytest

from gpucost_devstack.template import REGION, REPOSITORY
from tests.infra.conftest import Template
from tests.infra.stacks import ACCOUNT, Stack

KEYS = {
    name: f"arn:aws:kms:eu-central-1:{ACCOUNT}:key/{name}"
    for name in ("KmsKeyArn", "LogsKmsKeyArn", "SecretsKmsKeyArn", "BillKmsKeyArn")
}
OPTIONS = {
    "SpotPrices": "true",
    "BillPrices": "true",
    "BillDatabase": "bill",
    "BillBucket": "bill-data",
    "BillResultsBucket": "bill-results",
    "AmpWorkspaceArn": f"arn:aws:aps:eu-central-1:{ACCOUNT}:workspace/ws-1",
}
READ = {"kms:Decrypt"}
SEND = {"kms:Decrypt", "kms:GenerateDataKey"}
READ_TABLE = {"kms:Decrypt", "kms:DescribeKey"}
WRITE_TABLE = READ_TABLE | {"kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo"}
NEEDS = {
    "dynamodb:GetItem": READ_TABLE,
    "dynamodb:Query": READ_TABLE,
    "dynamodb:PutItem": WRITE_TABLE,
    "dynamodb:DeleteItem": WRITE_TABLE,
    "dynamodb:BatchWriteItem": WRITE_TABLE,
    "dynamodb:ConditionCheckItem": READ_TABLE,
    "sqs:SendMessage": SEND,
    "sqs:ReceiveMessage": READ,
    "sqs:DeleteMessage": set(),
    "sqs:GetQueueAttributes": set(),
    "sns:Publish": SEND,
    "s3:GetObject": READ,
    "s3:PutObject": SEND,
    "s3:ListBucket": set(),
    "s3:GetBucketLocation": set(),
    "s3:AbortMultipartUpload": set(),
    "s3:ListMultipartUploadParts": set(),
    "secretsmanager:GetSecretValue": READ,
}
"""Key permissions that a caller of each action needs, as documented by AWS."""


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def statements(stack: Stack) -> dict[str, list[dict[str, Any]]]:
    """The statements of each role, by logical ID."""
    statements: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for logical, kind, properties in stack.resources():
        if kind == "AWS::IAM::Role":
            for policy in properties.get("Policies", []):
                statements[logical] += as_list(policy["PolicyDocument"]["Statement"])
        if kind == "AWS::IAM::Policy":
            for role in properties["Roles"]:
                statements[role.removeprefix(f"<{stack.name}/").removesuffix(">")] += properties["PolicyDocument"][
                    "Statement"
                ]
    return statements


def grants(stack: Stack) -> dict[tuple[str, str, str], set[str]]:
    """Key actions by role, key and service. All regions of S3 count as one service."""
    actions_by_target: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for role, of_role in statements(stack).items():
        for statement in of_role:
            actions = [action for action in as_list(statement["Action"]) if action.startswith("kms:")]
            if actions:
                via = statement["Condition"]["StringLike"]["kms:ViaService"]
                assert via.endswith(f".{stack.region}.*") or via == "s3.*", "one service, in the stack's region"
                actions_by_target[role, statement["Resource"].rpartition("/")[2], via.split(".")[0]] |= set(actions)
    return dict(actions_by_target)


def needs(stack: Stack) -> dict[tuple[str, str, str], set[str]]:
    """Key actions that each role needs, from its statements and its triggers."""
    actions_by_target: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for role, of_role in statements(stack).items():
        for statement in of_role:
            for action in as_list(statement["Action"]):
                service = action.split(":")[0]
                if service in {"dynamodb", "sqs", "sns", "s3", "secretsmanager"}:
                    is_of_bill = "bill-" in json.dumps(statement["Resource"])
                    key = "SecretsKmsKeyArn" if service == "secretsmanager" else "KmsKeyArn"
                    actions_by_target[role, "BillKmsKeyArn" if is_of_bill else key, service] |= NEEDS[action]
    return {target: actions for target, actions in actions_by_target.items() if actions}


def test_resources_use_aws_encryption_by_default(template: Template) -> None:
    stack = Stack("gpucost-dev", template, OPTIONS)
    assert stack.properties("Table")["SSESpecification"] == {"SSEEnabled": True}
    (rule,) = stack.properties("ExportBucket")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    for _, kind, properties in stack.resources():
        if kind in {"AWS::SQS::Queue", "AWS::SNS::Topic"}:
            assert "KmsMasterKeyId" not in properties
            assert kind != "AWS::SQS::Queue" or properties["SqsManagedSseEnabled"] is True
        assert kind != "AWS::Logs::LogGroup" or "KmsKeyId" not in properties
    assert grants(stack) == {}


def test_key_encrypts_every_table_bucket_queue_topic_and_log_group(template: Template) -> None:
    stack = Stack("gpucost-dev", template, {**OPTIONS, **KEYS})
    encrypted = []
    for logical, kind, properties in stack.resources():
        match kind:
            case "AWS::DynamoDB::Table":
                assert properties["SSESpecification"] == {
                    "SSEEnabled": True,
                    "SSEType": "KMS",
                    "KMSMasterKeyId": KEYS["KmsKeyArn"],
                }, logical
            case "AWS::S3::Bucket":
                (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
                default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEYS["KmsKeyArn"]}
                assert rule == {"ServerSideEncryptionByDefault": default, "BucketKeyEnabled": True}, logical
            case "AWS::SQS::Queue" | "AWS::SNS::Topic":
                assert properties["KmsMasterKeyId"] == KEYS["KmsKeyArn"], logical
                assert "SqsManagedSseEnabled" not in properties, "SQS accepts only one of them"
            case "AWS::Logs::LogGroup":
                assert properties["KmsKeyId"] == KEYS["LogsKmsKeyArn"], logical
            case _:
                continue
        encrypted.append(logical)
    assert len(encrypted) == 17


@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["defaults", "with prices and bill"])
def test_roles_have_exactly_the_key_permissions_that_their_calls_need(
    template: Template, options: dict[str, str]
) -> None:
    keys = KEYS if options else {name: value for name, value in KEYS.items() if name != "BillKmsKeyArn"}
    stack = Stack("gpucost-dev", template, {**options, **keys})
    expected = needs(stack)
    # Lambda polls queues and sends failed events to the dead-letter queue with the function's role.
    for _, kind, properties in stack.resources():
        if kind == "AWS::Lambda::EventSourceMapping":
            role = properties["FunctionName"].removeprefix("<gpucost-dev/").removesuffix(">") + "Role"
            expected[role, "KmsKeyArn", "sqs"] |= READ
    assert grants(stack) == expected


@pytest.mark.parametrize("key", sorted(KEYS.keys() - {"LogsKmsKeyArn"}))
def test_each_key_is_granted_separately(template: Template, key: str) -> None:
    stack = Stack("gpucost-dev", template, {**OPTIONS, key: KEYS[key]})
    assert {name for _, name, _ in grants(stack)} == {key}


def test_kms_statement_ids_are_unique(template: Template) -> None:
    names = [
        statement["Sid"]
        for _, kind, properties in Stack("gpucost-dev", template, {**OPTIONS, **KEYS}).resources()
        if kind == "AWS::IAM::Policy"
        for statement in properties["PolicyDocument"]["Statement"]
        if any(action.startswith("kms:") for action in as_list(statement["Action"]))
    ]
    assert len(set(names)) == len(names) == 8


def key_policy() -> list[dict[str, Any]]:
    """The statements of the documented key policy."""
    (text,) = re.findall(r"```json\n(.*?)```", (REPOSITORY / "docs/how-to/encryption.md").read_text(), re.DOTALL)
    documented: list[dict[str, Any]] = json.loads(text)["Statement"]
    return documented


def test_documented_key_policy_allows_services_that_use_encrypted_resources(template: Template) -> None:
    """Services that act as themselves are granted by the key's policy alone."""
    documented = {
        service: set(as_list(statement["Action"]))
        for statement in key_policy()
        for service in as_list(statement["Principal"].get("Service", []))
    }
    assert documented.pop(f"logs.{REGION}.amazonaws.com") == {
        "kms:Decrypt",
        "kms:DescribeKey",
        "kms:Encrypt",
        "kms:GenerateDataKey*",
        "kms:ReEncrypt*",
    }
    needed = {
        statement["Principal"]["Service"]
        for _, kind, properties in Stack("gpucost-dev", template, OPTIONS).resources()
        if kind in {"AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy"}
        for statement in properties["PolicyDocument"]["Statement"]
    }
    assert documented == dict.fromkeys(needed, SEND)


def test_services_use_a_key_only_for_resources_of_the_stack() -> None:
    """A service's own principal is the same in every account."""
    for statement in key_policy():
        if "Service" in statement["Principal"]:
            ((key, arns),) = statement["Condition"]["ArnLike"].items()
            assert key in {"aws:SourceArn", "kms:EncryptionContext:aws:logs:arn"}
            for arn in as_list(arns):
                _, _, service, region, account, resource = arn.split(":", 5)
                assert (region, account) == (REGION, ACCOUNT)
                assert "gpucost-dev-" in resource or (service, resource) == ("aps", "workspace/*")


def test_key_parameter_must_be_a_key_arn(template: Template) -> None:
    for name in KEYS:
        pattern = template["Parameters"][name]["AllowedPattern"]
        assert re.fullmatch(pattern, "")
        assert re.fullmatch(pattern, f"arn:aws-us-gov:kms:us-gov-west-1:{ACCOUNT}:key/mrk-0a")
        assert not re.fullmatch(pattern, f"arn:aws:kms:eu-central-1:{ACCOUNT}:alias/gpucost"), "IAM accepts no alias"
