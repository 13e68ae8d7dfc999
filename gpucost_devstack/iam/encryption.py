"""Permissions on customer managed KMS keys that a call needs, in addition to those on the encrypted resource.

Most services use a key on behalf of their caller. The caller needs the permissions, and the condition key
`kms:ViaService` names the service. Services that act on their own (alarms, SNS) need them from the key policy.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucost.core.errors import GpuCostError
from gpucost_devstack.iam.calls import PermissionNeeded
from gpucost_devstack.iam.intrinsics import Resolver

DECRYPT = ("kms:Decrypt",)
DECRYPT_AND_GENERATE = ("kms:Decrypt", "kms:GenerateDataKey")
TABLE_READ_ACTIONS = ("kms:Decrypt", "kms:DescribeKey")
TABLE_WRITE_ACTIONS = (
    *TABLE_READ_ACTIONS,
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
KEY_ACTIONS: dict[str, tuple[str, ...]] = {
    "dynamodb:BatchGetItem": TABLE_READ_ACTIONS,
    "dynamodb:BatchWriteItem": TABLE_WRITE_ACTIONS,
    "dynamodb:ConditionCheckItem": TABLE_READ_ACTIONS,
    "dynamodb:DeleteItem": TABLE_WRITE_ACTIONS,
    "dynamodb:GetItem": TABLE_READ_ACTIONS,
    "dynamodb:PutItem": TABLE_WRITE_ACTIONS,
    "dynamodb:Query": TABLE_READ_ACTIONS,
    "dynamodb:UpdateItem": TABLE_WRITE_ACTIONS,
    "s3:AbortMultipartUpload": (),
    "s3:GetBucketLocation": (),
    "s3:GetObject": DECRYPT,
    "s3:ListBucket": (),
    "s3:ListMultipartUploadParts": DECRYPT,
    "s3:PutObject": DECRYPT_AND_GENERATE,
    "secretsmanager:GetSecretValue": DECRYPT,
    "sns:Publish": DECRYPT_AND_GENERATE,
    "sqs:ChangeMessageVisibility": (),
    "sqs:DeleteMessage": (),
    "sqs:GetQueueAttributes": (),
    "sqs:ReceiveMessage": DECRYPT,
    "sqs:SendMessage": DECRYPT_AND_GENERATE,
}
"""Key permissions by action on an encrypted resource, as each service documents them."""
SOURCE_KEYS = ("aws:SourceAccount", "aws:SourceArn")
"""Condition keys of a service's call that its use of a key has, too."""


def encryption_keys(template: Mapping[str, Any], resolver: Resolver) -> dict[str, str]:
    """The ARN of the customer managed key of each resource that a transformed template encrypts, by resource ARN."""
    keys = {}
    for logical, resource in template["Resources"].items():
        if resolver.is_condition_true(resource.get("Condition")):
            raw = resource.get("Properties", {})
            properties = resolver.resolve({name: raw[name] for name in _KEY_PROPERTIES if name in raw})
            key = _key_of(resource["Type"], properties)
            if key:
                keys[resolver.arn(logical)] = str(key)
    return keys


_KEY_PROPERTIES = ("BucketEncryption", "KmsMasterKeyId", "SSESpecification")
"""Only these properties are resolved. Others use intrinsic functions that the resolver lacks."""


def _key_of(kind: str, properties: Mapping[str, Any]) -> Any:
    match kind:
        case "AWS::DynamoDB::Table":
            return properties.get("SSESpecification", {}).get("KMSMasterKeyId")
        case "AWS::S3::Bucket":
            rules = properties.get("BucketEncryption", {}).get("ServerSideEncryptionConfiguration", [{}])
            return rules[0].get("ServerSideEncryptionByDefault", {}).get("KMSMasterKeyID")
        case "AWS::SNS::Topic" | "AWS::SQS::Queue":
            return properties.get("KmsMasterKeyId")
    return None


def key_calls(call: PermissionNeeded, keys: Mapping[str, str]) -> Iterator[PermissionNeeded]:
    """The permissions on a key that a call needs.

    Args:
        call: a call on any resource.
        keys: key ARNs by the ARNs of the tables, queues, topics, buckets and secrets that they encrypt.

    Raises:
        GpuCostError: the resource is encrypted, and KEY_ACTIONS lacks the action.
    """
    service = call.action.partition(":")[0]
    resource = call.resource.partition("/")[0] if service == "s3" else call.resource
    key = keys.get(resource)
    if key is None:
        return
    if call.action not in KEY_ACTIONS:
        raise GpuCostError(
            f"{call.action} on {resource}: the resource is encrypted with {key}, and {__name__} does not say which "
            "permissions the action needs on the key; add it to KEY_ACTIONS"
        )
    _, partition, _, region, *_ = key.split(":")
    suffix = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
    source = tuple((name, values) for name, values in call.context if name in SOURCE_KEYS)
    for action in KEY_ACTIONS[call.action]:
        yield PermissionNeeded(action, key, (("kms:ViaService", (f"{service}.{region}.{suffix}",)), *source))
