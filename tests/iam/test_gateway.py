"""The gateway evaluates and denies requests like AWS."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import boto3
import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from gpucost_devstack.aws import ACCOUNT, local_client, running_aws
from gpucost_devstack.dynamodb_local import create_table
from gpucost_devstack.iam.authorizer import SECRET_KEY, Authorizer, PermissionDeniedError
from gpucost_devstack.iam.gateway import running_authorizing_proxy
from gpucost_devstack.iam.policies import Policies, Statement
from gpucost_devstack.template import REGION

ROLE = f"arn:aws:iam::{ACCOUNT}:role/function"
OTHER_ROLE = "arn:aws:iam::210987654321:role/gpucost-query-x"
KEY = "LOCALfunction"


@dataclass
class Front:
    """The embedded AWS behind a test's policies."""

    authorizer: Authorizer
    aws: str
    dynamodb: str
    table: str

    def allow(self, action: str, resource: str = "*", condition: dict[str, Any] | None = None) -> None:
        body = {"Effect": "Allow", "Action": action, "Resource": resource}
        self._add(Statement(ROLE, f"allow-{uuid4()}", body | ({"Condition": condition} if condition else {})))

    def trust(self, external_id: str) -> None:
        body = {
            "Effect": "Allow",
            "Action": "sts:AssumeRole",
            "Resource": OTHER_ROLE,
            "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
            "Condition": {"StringEquals": {"sts:ExternalId": external_id}},
        }
        self._add(Statement(OTHER_ROLE, "trust", body, is_resource_policy=True))

    def _add(self, statement: Statement) -> None:
        self.authorizer.add(Policies((statement,)))

    def client(self, service: str, access_key: str = KEY, **more: str) -> Any:
        address = self.dynamodb if service == "dynamodb" else self.aws
        keys = {"aws_access_key_id": access_key, "aws_secret_access_key": SECRET_KEY, "region_name": REGION, **more}
        return boto3.client(service, endpoint_url=address, **keys)  # type: ignore[call-overload]  # any service

    def is_allowed(self, call: Callable[[], Any]) -> bool:
        """Whether a call is forwarded, whatever its result."""
        try:
            call()
        except ClientError as error:
            return error.response["Error"]["Code"] not in ("AccessDeniedException", "AccessDenied")
        return True


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    with running_aws() as url:
        yield url


@pytest.fixture
def front(aws: str, dynamodb_url: str) -> Iterator[Front]:
    authorizer = Authorizer(Policies(()))
    authorizer.register(KEY, ROLE)
    table = f"iam-{uuid4()}"
    create_table(local_client("dynamodb", dynamodb_url), table)
    with (
        running_authorizing_proxy(aws, authorizer) as moto,
        running_authorizing_proxy(dynamodb_url, authorizer) as engine,
    ):
        yield Front(authorizer, moto, engine, table)


def item(pk: str) -> dict[str, Any]:
    return {"pk": {"S": pk}, "sk": {"S": "s"}}


QUEUE, TOPIC = f"http://x/{ACCOUNT}/q", f"arn:aws:sns:{REGION}:{ACCOUNT}:t"
SECRET = {"SecretId": "gpucost/x"}
DENIALS = [
    ("dynamodb", "get_item", {"TableName": "t", "Key": item("p")}, "AccessDeniedException", "dynamodb:GetItem"),
    ("sqs", "send_message", {"QueueUrl": QUEUE, "MessageBody": "x"}, "AccessDenied", "sqs:SendMessage"),
    ("sns", "publish", {"TopicArn": TOPIC, "Message": "x"}, "AuthorizationError", "sns:Publish"),
    ("s3", "get_object", {"Bucket": "b", "Key": "k"}, "AccessDenied", "s3:GetObject"),
    ("sts", "assume_role", {"RoleArn": OTHER_ROLE, "RoleSessionName": "gpucost"}, "AccessDenied", "sts:AssumeRole"),
    ("secretsmanager", "get_secret_value", SECRET, "AccessDeniedException", "secretsmanager:GetSecretValue"),
    ("ec2", "describe_instance_types", {}, "UnauthorizedOperation", "ec2:DescribeInstanceTypes"),
    ("pricing", "get_products", {"ServiceCode": "AmazonEC2"}, "AccessDeniedException", "pricing:GetProducts"),
    ("athena", "get_query_execution", {"QueryExecutionId": "q"}, "AccessDeniedException", "athena:GetQueryExecution"),
    (
        "ce",
        "get_dimension_values",
        {"TimePeriod": {"Start": "2026-01-01", "End": "2026-01-02"}, "Dimension": "AZ"},
        "AccessDeniedException",
        "ce:GetDimensionValues",
    ),
]


@pytest.mark.parametrize(("service", "operation", "arguments", "code", "action"), DENIALS)
def test_denials_have_the_format_of_each_service(
    front: Front, service: str, operation: str, arguments: dict[str, Any], code: str, action: str
) -> None:
    with pytest.raises(ClientError) as denied:
        getattr(front.client(service), operation)(**arguments)
    error = denied.value.response["Error"]
    assert error["Code"] in (code, f"{code}Exception")
    assert f"User: {ROLE} is not authorized to perform: {action} on resource:" in error["Message"]
    with pytest.raises(PermissionDeniedError, match=f"access denied: {ROLE} may not call {action} on "):
        front.authorizer.raise_denied()


@pytest.mark.parametrize("path", ["query", "query_range"])
def test_queries_of_a_workspace_are_signed_and_denied(front: Front, path: str) -> None:
    url = f"{front.aws}/workspaces/ws-1/api/v1/{path}"
    request = AWSRequest("POST", url, data="query=up")
    SigV4Auth(Credentials(KEY, SECRET_KEY), "aps", REGION).add_auth(request)
    answer = requests.post(url, data="query=up", headers=dict(request.headers), timeout=10)
    workspace = f"arn:aws:aps:{REGION}:{ACCOUNT}:workspace/ws-1"
    assert answer.status_code == 403
    assert f"aps:QueryMetrics on resource: {workspace} because" in answer.json()["message"]
    front.allow("aps:QueryMetrics", workspace)
    assert requests.post(url, data="query=up", headers=dict(request.headers), timeout=10).status_code != 403


@pytest.mark.parametrize(("query", "secret"), [("down", SECRET_KEY), ("up", "another")])
def test_wrongly_signed_queries_of_a_workspace_are_refused(front: Front, query: str, secret: str) -> None:
    front.allow("aps:QueryMetrics", f"arn:aws:aps:{REGION}:{ACCOUNT}:workspace/ws-1")
    url = f"{front.aws}/workspaces/ws-1/api/v1/query"
    request = AWSRequest("POST", url, data="query=up")
    SigV4Auth(Credentials(KEY, secret), "aps", REGION).add_auth(request)
    answer = requests.post(url, data=f"query={query}", headers=dict(request.headers), timeout=10)
    assert answer.status_code == 403
    assert "The request signature we calculated does not match" in answer.json()["message"]


def test_leading_keys_hold_for_every_item_of_a_batch(front: Front) -> None:
    condition = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["C#*#recommendations"]}}
    front.allow("dynamodb:BatchWriteItem", f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{front.table}", condition)

    def write(*partitions: str) -> bool:
        puts = [{"PutRequest": {"Item": item(pk)}} for pk in partitions]
        return front.is_allowed(lambda: front.client("dynamodb").batch_write_item(RequestItems={front.table: puts}))

    assert write("C#a#recommendations", "C#b#recommendations")
    assert not write("C#a#recommendations", "C#a#waiting")
    assert not front.is_allowed(
        lambda: front.client("dynamodb").put_item(TableName=front.table, Item=item("C#a#recommendations"))
    )


def test_parts_of_a_transaction_need_separate_permissions(front: Front) -> None:
    parts = {
        "dynamodb:PutItem": {"Put": {"TableName": front.table, "Item": item("a")}},
        "dynamodb:DeleteItem": {"Delete": {"TableName": front.table, "Key": item("b")}},
        "dynamodb:ConditionCheckItem": {
            "ConditionCheck": {
                "TableName": front.table,
                "Key": item("c"),
                "ConditionExpression": "attribute_not_exists(pk)",
            }
        },
    }

    def transact() -> bool:
        steps = list(parts.values())
        return front.is_allowed(lambda: front.client("dynamodb").transact_write_items(TransactItems=steps))

    for action in parts:
        assert not transact()
        front.allow(action)
        front.authorizer.denials.clear()
    assert transact()


def test_missing_object_is_hidden_without_list_permission(front: Front) -> None:
    bucket = f"bucket-{uuid4()}"
    constraint: Any = {"LocationConstraint": REGION}
    local_client("s3", front.aws).create_bucket(Bucket=bucket, CreateBucketConfiguration=constraint)
    front.allow("s3:GetObject", f"arn:aws:s3:::{bucket}/*")
    codes = []
    for _ in range(2):
        with pytest.raises(ClientError) as missing:
            front.client("s3").get_object(Bucket=bucket, Key="k")
        codes.append(missing.value.response["Error"]["Code"])
        front.allow("s3:ListBucket", f"arn:aws:s3:::{bucket}")
    assert codes == ["AccessDenied", "NoSuchKey"]
    assert not front.authorizer.denials, "no access was denied"


def test_replacing_an_object_needs_to_read_it(front: Front) -> None:
    front.allow("s3:PutObject")

    def put(**condition: str) -> bool:
        return front.is_allowed(lambda: front.client("s3").put_object(Bucket="none", Key="k", Body=b"x", **condition))

    assert put(IfNoneMatch="*")
    assert not put(IfMatch='"etag"')
    front.allow("s3:GetObject")
    assert put(IfMatch='"etag"')


def test_listing_is_allowed_by_prefix(front: Front) -> None:
    front.allow("s3:ListBucket", "*", {"StringLike": {"s3:prefix": ["focus/*"]}})
    client = front.client("s3")
    assert front.is_allowed(lambda: client.list_objects_v2(Bucket="none", Prefix="focus/a"))
    assert not front.is_allowed(lambda: client.list_objects_v2(Bucket="none", Prefix="csv/a"))
    assert not front.is_allowed(lambda: client.list_objects_v2(Bucket="none"))


def test_assumed_role_has_its_permissions(front: Front) -> None:
    front.allow("sts:AssumeRole", "arn:aws:iam::*:role/gpucost-query-*")
    front.allow("sqs:GetQueueUrl")
    front.trust(external_id="e-1")
    sts = front.client("sts")
    request = {"RoleArn": OTHER_ROLE, "RoleSessionName": "gpucost"}
    assert not front.is_allowed(lambda: sts.assume_role(**request))
    assert not front.is_allowed(lambda: sts.assume_role(**request, ExternalId="e-2"))
    keys = sts.assume_role(**request, ExternalId="e-1")["Credentials"]
    assumed = front.client(
        "sqs",
        keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )
    with pytest.raises(ClientError, match=f"User: {OTHER_ROLE} is not authorized to perform: sqs:ListQueues"):
        assumed.list_queues()


def test_secret_is_matched_with_the_suffix_of_its_arn(front: Front) -> None:
    secrets = front.client("secretsmanager")
    front.allow("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:gpucost/a")
    assert not front.is_allowed(lambda: secrets.get_secret_value(SecretId="gpucost/a"))
    front.allow("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:gpucost/*")
    assert front.is_allowed(lambda: secrets.get_secret_value(SecretId="gpucost/a"))
    assert not front.is_allowed(lambda: secrets.get_secret_value(SecretId="other/a"))


def test_encrypted_queue_needs_the_key_through_sqs(front: Front) -> None:
    key = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k"
    front.authorizer.keys[f"arn:aws:sqs:{REGION}:{ACCOUNT}:q"] = key
    body = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "kms:*", "Resource": key}
    sqs = front.client("sqs")
    front.allow("sqs:*")

    def send() -> bool:
        return front.is_allowed(lambda: sqs.send_message(QueueUrl=QUEUE, MessageBody="x"))

    def allow_key(service: str, *actions: str) -> None:
        for action in actions:
            front.allow(action, key, {"StringEquals": {"kms:ViaService": f"{service}.{REGION}.amazonaws.com"}})

    allow_key("sqs", "kms:Decrypt")
    allow_key("sns", "kms:GenerateDataKey")
    assert not send(), "the key has no policy"
    front.authorizer.add(Policies((Statement(key, "key", body, is_resource_policy=True),)))
    with pytest.raises(ClientError, match=f"not authorized to perform: kms:GenerateDataKey on resource: {key}"):
        sqs.send_message(QueueUrl=QUEUE, MessageBody="x")
    allow_key("sqs", "kms:GenerateDataKey")
    assert send()


def test_action_without_declared_key_permissions_is_refused(front: Front) -> None:
    front.allow("sqs:*")
    front.authorizer.keys[f"arn:aws:sqs:{REGION}:{ACCOUNT}:q"] = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k"
    with pytest.raises(ClientError, match=r"sqs:PurgeQueue on arn:.*:q: .* add it to KEY_ACTIONS"):
        front.client("sqs").purge_queue(QueueUrl=QUEUE)


@pytest.mark.parametrize(
    ("service", "operation", "code"),
    [
        ("sqs", "list_queues", "InvalidSignatureException"),
        ("sts", "get_caller_identity", "SignatureDoesNotMatch"),
        ("s3", "list_buckets", "SignatureDoesNotMatch"),
    ],
)
def test_wrong_signatures_are_refused(front: Front, service: str, operation: str, code: str) -> None:
    front.allow(f"{service}:*")
    client = front.client(service, aws_secret_access_key="another")
    with pytest.raises(ClientError, match="request signature we calculated does not match") as refused:
        getattr(client, operation)()
    assert refused.value.response["Error"]["Code"] == code


def test_unknown_access_keys_are_refused(front: Front) -> None:
    with pytest.raises(ClientError, match="the access key AKIASTRANGER1234 is unknown"):
        front.client("sqs", "AKIASTRANGER1234").list_queues()
    assert requests.get(f"{front.aws}/bucket/key", timeout=10).status_code == 403


def test_unmapped_request_is_refused(front: Front) -> None:
    front.allow("s3:*")
    with pytest.raises(ClientError, match="no permissions declared for GET /b\\?policy of S3"):
        front.client("s3").get_bucket_policy(Bucket="b")


def test_unknown_action_is_an_error_and_not_a_denial(front: Front) -> None:
    front.allow("sqs:*")
    body = json.dumps({"QueueUrl": f"http://x/{ACCOUNT}/q"})
    headers = {"X-Amz-Target": "AmazonSQS.MakeCoffee", "Content-Type": "application/x-amz-json-1.0"}
    request = AWSRequest("POST", front.aws, data=body, headers=headers)
    SigV4Auth(Credentials(KEY, SECRET_KEY), "sqs", REGION).add_auth(request)
    answer = requests.post(front.aws, data=body, headers=dict(request.headers), timeout=10)
    assert answer.status_code == 501
    assert "sqs:MakeCoffee" in answer.text
    assert not front.authorizer.denials
