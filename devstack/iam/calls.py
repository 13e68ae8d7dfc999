"""Which permissions AWS checks for a request: actions, resources and context keys, service by service.

A service that is not listed checks its operation on `*`. Permissions that a service uses on its caller's behalf (Athena
reads the table and the bucket as whoever asks) belong here, too: add a function to `MAPPINGS`. Permissions on keys
follow from the calls (`encryption.py`).
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote

from devstack.iam.intrinsics import partition_of
from gpucost.core.errors import GpuCostError

SECRET_SUFFIX = "-AbCdEf"
"""Stands for the six random characters that end a secret's ARN."""
PREFIXES = {"monitoring": "cloudwatch"}
"""IAM's names of services that are signed for by other names."""
TRANSACTED = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
    "Get": "GetItem",
}
RESULT_ACTIONS = ("s3:AbortMultipartUpload", "s3:GetObject", "s3:ListMultipartUploadParts", "s3:PutObject")
TABLE_ACTIONS = ("glue:GetTable", "glue:GetPartition", "glue:GetPartitions")
METRIC_ACTIONS = {"labels": "GetLabels", "metadata": "GetMetricMetadata", "series": "GetSeries"}
_PARTITION_KEY = re.compile(r"(#?\w+)\s*=\s*(:\w+)")


@dataclass(frozen=True, slots=True)
class Call:
    """One permission that is checked.

    Attributes:
        action: such as `dynamodb:PutItem`.
        resource: an ARN, or `*`.
        context: condition keys and their values.
    """

    action: str
    resource: str
    context: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Athena:
    """What permissions of queries depend on, beside the request.

    Attributes:
        table_location: where a table's data is (`s3://…`), by database and table.
        workgroups: of the queries that were started, by their ids.
    """

    table_location: Callable[[str, str], str]
    workgroups: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AwsRequest:
    """A signed request as it arrives.

    Attributes:
        service: that it is signed for.
        region: likewise.
        account: of who sends it.
        method: of HTTP.
        path: as it was sent, percent-encoded.
        query: the part of the address after the question mark.
        headers: by names in lower case.
        body: whole.
        athena: what is known of the queries that it runs.
    """

    service: str
    region: str
    account: str
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    athena: Athena

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Of the JSON and form protocols."""
        if "x-amz-target" in self.headers:
            return dict(json.loads(self.body or b"{}"))
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True)) | dict(
            parse_qsl(self.query, keep_blank_values=True)
        )

    @cached_property
    def operation(self) -> str:
        """The API's name of it; "" where method and path tell."""
        target = self.headers.get("x-amz-target", "")
        return target.rpartition(".")[2] or str(self.parameters.get("Action", ""))

    def arn(self, resource: str, *, service: str = "") -> str:
        """An ARN of this request's region and account."""
        return f"arn:{partition_of(self.region)}:{service or self.service}:{self.region}:{self.account}:{resource}"


def calls_of(request: AwsRequest) -> list[Call]:
    """The permissions that a request needs, all of them.

    Raises:
        GpuCostError: it is not known what this request needs.
    """
    mapping = MAPPINGS.get(request.service, _by_name)
    return list(mapping(request))


def _by_name(request: AwsRequest) -> Iterator[Call]:
    if not request.operation:
        raise GpuCostError(
            f"it is not known what {request.method} {request.path} of {request.service} needs; add it to {__name__}"
        )
    yield Call(f"{PREFIXES.get(request.service, request.service)}:{request.operation}", "*")


def _dynamodb(request: AwsRequest) -> Iterator[Call]:
    """Transactions need the permissions of their parts; batches have one of their own."""
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    asked = request.parameters
    enclosing: tuple[tuple[str, tuple[str, ...]], ...] = ()
    if request.operation in ("BatchWriteItem", "BatchGetItem"):
        for table, parts in asked["RequestItems"].items():
            items = parts if isinstance(parts, list) else [{"GetRequest": {"Key": key}} for key in parts["Keys"]]
            for item in items:
                ((_, part),) = item.items()
                keys[request.operation, table].add(_partition(part.get("Item") or part["Key"]))
    elif request.operation in ("TransactWriteItems", "TransactGetItems"):
        enclosing = (("dynamodb:EnclosingOperation", (request.operation,)),)
        for item in asked["TransactItems"]:
            ((kind, part),) = item.items()
            keys[TRANSACTED[kind], part["TableName"]].add(_partition(part.get("Item") or part["Key"]))
    elif request.operation == "Query":
        keys[request.operation, asked["TableName"]].add(_queried(asked))
    elif "Item" in asked or "Key" in asked:
        keys[request.operation, asked["TableName"]].add(_partition(asked.get("Item") or asked["Key"]))
    elif "TableName" in asked:
        keys[request.operation, asked["TableName"]] = set()
    else:
        yield from _by_name(request)
    for (action, table), partitions in keys.items():
        leading = (("dynamodb:LeadingKeys", tuple(sorted(partitions))),) if partitions else ()
        yield Call(f"dynamodb:{action}", request.arn(f"table/{table}"), leading + enclosing)


def _partition(item: Mapping[str, Mapping[str, str]]) -> str:
    (value,) = item["pk"].values()
    return value


def _queried(asked: Mapping[str, Any]) -> str:
    for name, placeholder in _PARTITION_KEY.findall(asked["KeyConditionExpression"]):
        if asked.get("ExpressionAttributeNames", {}).get(name, name) == "pk":
            (value,) = asked["ExpressionAttributeValues"][placeholder].values()
            return str(value)
    raise GpuCostError(f"a query without a partition key: {asked['KeyConditionExpression']}")


def _sqs(request: AwsRequest) -> Iterator[Call]:
    if "QueueUrl" not in request.parameters:
        yield from _by_name(request)
        return
    account, name = request.parameters["QueueUrl"].split("/")[-2:]
    arn = f"arn:{partition_of(request.region)}:sqs:{request.region}:{account}:{name}"
    yield Call(f"sqs:{request.operation.removesuffix('Batch')}", arn)


def _sns(request: AwsRequest) -> Iterator[Call]:
    arn = request.parameters.get("TopicArn") or request.parameters.get("TargetArn")
    if arn is None:
        yield from _by_name(request)
        return
    yield Call(f"sns:{request.operation.removesuffix('Batch')}", arn)


def _sts(request: AwsRequest) -> Iterator[Call]:
    if request.operation == "GetCallerIdentity":
        return  # allowed to everybody
    if request.operation != "AssumeRole":
        yield from _by_name(request)
        return
    asked = request.parameters
    context = [("sts:RoleSessionName", (asked["RoleSessionName"],))]
    if "ExternalId" in asked:
        context.append(("sts:ExternalId", (asked["ExternalId"],)))
    yield Call("sts:AssumeRole", asked["RoleArn"], tuple(context))


def _secretsmanager(request: AwsRequest) -> Iterator[Call]:
    name = request.parameters.get("SecretId")
    if name is None:
        yield from _by_name(request)
        return
    arn = name if name.startswith("arn:") else request.arn(f"secret:{name}{SECRET_SUFFIX}")
    yield Call(f"secretsmanager:{request.operation}", arn)


def _s3(request: AwsRequest) -> Iterator[Call]:
    bucket, _, key = unquote(request.path).removeprefix("/").partition("/")
    query = dict(parse_qsl(request.query, keep_blank_values=True))
    arn = f"arn:{partition_of(request.region)}:s3:::{bucket}"
    if not key and request.method in ("GET", "HEAD") and not query.keys() - _LISTING:
        prefix = (("s3:prefix", (query["prefix"],)),) if "prefix" in query else ()
        yield Call("s3:ListBucket", arn, prefix)
    elif key and request.method in ("GET", "HEAD"):
        yield Call("s3:GetObject", f"{arn}/{key}")
    elif key and request.method == "PUT" and "uploadId" not in query:
        yield Call("s3:PutObject", f"{arn}/{key}")
        if "if-match" in request.headers:  # to be compared with what is there
            yield Call("s3:GetObject", f"{arn}/{key}")
    else:
        raise GpuCostError(
            f"it is not known what {request.method} {request.path}?{request.query} of S3 needs; add it to {__name__}"
        )


_LISTING = {"list-type", "prefix", "max-keys", "encoding-type", "continuation-token", "start-after", "delimiter"}


def _athena(request: AwsRequest) -> Iterator[Call]:
    """A query reads Glue's catalog and S3, and writes its results, with its caller's permissions."""
    asked = request.parameters
    group = asked.get("WorkGroup") or request.athena.workgroups.get(asked.get("QueryExecutionId", ""), "primary")
    yield Call(f"athena:{request.operation}", request.arn(f"workgroup/{group}"))
    if request.operation != "StartQueryExecution":
        return
    database = asked["QueryExecutionContext"]["Database"]
    catalog = ["catalog", f"database/{database}"]
    yield from _on(request, ("glue:GetDatabase",), catalog)
    for table in _tables(asked["QueryString"]):
        yield from _on(request, TABLE_ACTIONS, [*catalog, f"table/{database}/{table}"])
        bucket, prefix = _location(request.athena.table_location(database, table), request.region)
        yield Call("s3:ListBucket", bucket, (("s3:prefix", (prefix,)),))
        yield Call("s3:GetObject", f"{bucket}/{prefix}data.parquet")
    if "ResultConfiguration" in asked:
        bucket, prefix = _location(asked["ResultConfiguration"]["OutputLocation"], request.region)
        yield Call("s3:GetBucketLocation", bucket)
        yield Call("s3:ListBucket", bucket, (("s3:prefix", (prefix,)),))
        for action in RESULT_ACTIONS:
            yield Call(action, f"{bucket}/{prefix}results.csv")


def _tables(sql: str) -> list[str]:
    """The tables that a query reads, without those that it defines itself."""
    import sqlglot
    from sqlglot import expressions

    query = sqlglot.parse_one(sql, dialect="athena")
    own = {part.alias for part in query.find_all(expressions.CTE)}
    return sorted({table.name for table in query.find_all(expressions.Table)} - own)


def _on(request: AwsRequest, actions: Sequence[str], resources: Sequence[str]) -> Iterator[Call]:
    """Glue checks an action on the table and on all that it is part of."""
    for action in actions:
        for resource in resources:
            yield Call(action, request.arn(resource, service="glue"))


def _location(address: str, region: str) -> tuple[str, str]:
    """ARN of the bucket, and the prefix, of `s3://bucket/prefix/`."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    return f"arn:{partition_of(region)}:s3:::{bucket}", prefix.rstrip("/") + "/" if prefix.strip("/") else ""


def _aps(request: AwsRequest) -> Iterator[Call]:
    _, workspaces, workspace, *_, operation = request.path.split("/")
    if workspaces != "workspaces":
        raise GpuCostError(f"{request.path} is not an address of a workspace")
    action = METRIC_ACTIONS.get(operation, "QueryMetrics")
    yield Call(f"aps:{action}", request.arn(f"workspace/{workspace}"))


MAPPINGS: dict[str, Callable[[AwsRequest], Iterator[Call]]] = {
    "aps": _aps,
    "athena": _athena,
    "dynamodb": _dynamodb,
    "s3": _s3,
    "secretsmanager": _secretsmanager,
    "sns": _sns,
    "sqs": _sqs,
    "sts": _sts,
}
