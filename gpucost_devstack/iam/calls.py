"""Maps requests to the permissions that AWS checks: actions, resources and context keys of each service.

A service that is not listed checks its operation on `*`. Permissions that a service uses on its caller's behalf (Athena
reads the table and the bucket as its caller) also belong here. Add a function to `CALLS_BY_SERVICE`. Those on keys
are derived from the calls (`encryption.py`).
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote

from gpucost.core.errors import GpuCostError
from gpucost_devstack.iam.intrinsics import partition_of

SECRET_SUFFIX = "-AbCdEf"
"""A placeholder for the six random characters at the end of a secret's ARN."""
ACTION_PREFIXES = {"monitoring": "cloudwatch"}
"""IAM prefixes of services whose signing name differs."""
TRANSACTION_ACTIONS = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
    "Get": "GetItem",
}
"""DynamoDB's actions by operation of a transaction."""
ATHENA_RESULT_ACTIONS = ("s3:AbortMultipartUpload", "s3:GetObject", "s3:ListMultipartUploadParts", "s3:PutObject")
GLUE_TABLE_ACTIONS = ("glue:GetTable", "glue:GetPartition", "glue:GetPartitions")
AMP_QUERY_ACTIONS = {"labels": "GetLabels", "metadata": "GetMetricMetadata", "series": "GetSeries"}
_PARTITION_KEY = re.compile(r"(#?\w+)\s*=\s*(:\w+)")


@dataclass(frozen=True, slots=True)
class PermissionNeeded:
    """A permission that AWS checks.

    Attributes:
        action: such as `dynamodb:PutItem`.
        resource: an ARN, or `*`.
        context: condition keys and their values.
    """

    action: str
    resource: str
    context: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class AthenaState:
    """State on which the permissions of Athena queries depend, in addition to the request.

    Attributes:
        table_location: where a table's data is (`s3://…`), by database and table.
        workgroups: workgroups of started queries, by query ID.
    """

    table_location: Callable[[str, str], str]
    workgroups: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AwsRequest:
    """A signed request as received.

    Attributes:
        service: service name in the signature.
        region: region in the signature.
        account: the caller's account.
        method: HTTP method.
        path: path as sent, percent-encoded.
        query: the URL's query string.
        headers: headers, with names in lower case.
        body: the request body.
        athena: state of Athena's queries.
    """

    service: str
    region: str
    account: str
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    athena: AthenaState

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the JSON and form protocols."""
        if "x-amz-target" in self.headers:
            return dict(json.loads(self.body or b"{}"))
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True)) | dict(
            parse_qsl(self.query, keep_blank_values=True)
        )

    @cached_property
    def operation(self) -> str:
        """The API operation, or "" if only method and path identify it."""
        target = self.headers.get("x-amz-target", "")
        return target.rpartition(".")[2] or str(self.parameters.get("Action", ""))

    def arn(self, resource: str, *, service: str = "") -> str:
        """An ARN of this request's region and account."""
        return f"arn:{partition_of(self.region)}:{service or self.service}:{self.region}:{self.account}:{resource}"


def calls_of(request: AwsRequest) -> list[PermissionNeeded]:
    """All permissions that a request needs.

    Raises:
        GpuCostError: the permissions of this request are not declared here.
    """
    mapping = CALLS_BY_SERVICE.get(request.service, _calls_named_as_operation)
    return list(mapping(request))


def _calls_named_as_operation(request: AwsRequest) -> Iterator[PermissionNeeded]:
    if not request.operation:
        raise GpuCostError(
            f"no permissions declared for {request.method} {request.path} of {request.service}; add it to {__name__}"
        )
    yield PermissionNeeded(f"{ACTION_PREFIXES.get(request.service, request.service)}:{request.operation}", "*")


def _dynamodb(request: AwsRequest) -> Iterator[PermissionNeeded]:
    """Transactions need the permissions of their parts. Batches have their own permission."""
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    parameters = request.parameters
    enclosing: tuple[tuple[str, tuple[str, ...]], ...] = ()
    if request.operation in ("BatchWriteItem", "BatchGetItem"):
        for table, parts in parameters["RequestItems"].items():
            items = parts if isinstance(parts, list) else [{"GetRequest": {"Key": key}} for key in parts["Keys"]]
            for item in items:
                ((_, part),) = item.items()
                keys[request.operation, table].add(_partition_of_item(part.get("Item") or part["Key"]))
    elif request.operation in ("TransactWriteItems", "TransactGetItems"):
        enclosing = (("dynamodb:EnclosingOperation", (request.operation,)),)
        for item in parameters["TransactItems"]:
            ((kind, part),) = item.items()
            keys[TRANSACTION_ACTIONS[kind], part["TableName"]].add(_partition_of_item(part.get("Item") or part["Key"]))
    elif request.operation == "Query":
        keys[request.operation, parameters["TableName"]].add(_partition_in_key_condition(parameters))
    elif "Item" in parameters or "Key" in parameters:
        keys[request.operation, parameters["TableName"]].add(
            _partition_of_item(parameters.get("Item") or parameters["Key"])
        )
    elif "TableName" in parameters:
        keys[request.operation, parameters["TableName"]] = set()
    else:
        yield from _calls_named_as_operation(request)
    for (action, table), partitions in keys.items():
        leading = (("dynamodb:LeadingKeys", tuple(sorted(partitions))),) if partitions else ()
        yield PermissionNeeded(f"dynamodb:{action}", request.arn(f"table/{table}"), leading + enclosing)


def _partition_of_item(item: Mapping[str, Mapping[str, str]]) -> str:
    (value,) = item["pk"].values()
    return value


def _partition_in_key_condition(parameters: Mapping[str, Any]) -> str:
    for name, placeholder in _PARTITION_KEY.findall(parameters["KeyConditionExpression"]):
        if parameters.get("ExpressionAttributeNames", {}).get(name, name) == "pk":
            (value,) = parameters["ExpressionAttributeValues"][placeholder].values()
            return str(value)
    raise GpuCostError(f"a query without a partition key: {parameters['KeyConditionExpression']}")


def _sqs(request: AwsRequest) -> Iterator[PermissionNeeded]:
    if "QueueUrl" not in request.parameters:
        yield from _calls_named_as_operation(request)
        return
    account, name = request.parameters["QueueUrl"].split("/")[-2:]
    arn = f"arn:{partition_of(request.region)}:sqs:{request.region}:{account}:{name}"
    yield PermissionNeeded(f"sqs:{request.operation.removesuffix('Batch')}", arn)


def _sns(request: AwsRequest) -> Iterator[PermissionNeeded]:
    arn = request.parameters.get("TopicArn") or request.parameters.get("TargetArn")
    if arn is None:
        yield from _calls_named_as_operation(request)
        return
    yield PermissionNeeded(f"sns:{request.operation.removesuffix('Batch')}", arn)


def _sts(request: AwsRequest) -> Iterator[PermissionNeeded]:
    if request.operation == "GetCallerIdentity":
        return  # allowed for every principal
    if request.operation != "AssumeRole":
        yield from _calls_named_as_operation(request)
        return
    parameters = request.parameters
    context = [("sts:RoleSessionName", (parameters["RoleSessionName"],))]
    if "ExternalId" in parameters:
        context.append(("sts:ExternalId", (parameters["ExternalId"],)))
    yield PermissionNeeded("sts:AssumeRole", parameters["RoleArn"], tuple(context))


def _secretsmanager(request: AwsRequest) -> Iterator[PermissionNeeded]:
    name = request.parameters.get("SecretId")
    if name is None:
        yield from _calls_named_as_operation(request)
        return
    arn = name if name.startswith("arn:") else request.arn(f"secret:{name}{SECRET_SUFFIX}")
    yield PermissionNeeded(f"secretsmanager:{request.operation}", arn)


def _s3(request: AwsRequest) -> Iterator[PermissionNeeded]:
    bucket, _, key = unquote(request.path).removeprefix("/").partition("/")
    query = dict(parse_qsl(request.query, keep_blank_values=True))
    arn = f"arn:{partition_of(request.region)}:s3:::{bucket}"
    if not key and request.method in ("GET", "HEAD") and not query.keys() - _LISTING:
        prefix = (("s3:prefix", (query["prefix"],)),) if "prefix" in query else ()
        yield PermissionNeeded("s3:ListBucket", arn, prefix)
    elif key and request.method in ("GET", "HEAD"):
        yield PermissionNeeded("s3:GetObject", f"{arn}/{key}")
    elif key and request.method == "PUT" and "uploadId" not in query:
        yield PermissionNeeded("s3:PutObject", f"{arn}/{key}")
        if "if-match" in request.headers:  # S3 reads the object to compare its ETag
            yield PermissionNeeded("s3:GetObject", f"{arn}/{key}")
    else:
        raise GpuCostError(
            f"no permissions declared for {request.method} {request.path}?{request.query} of S3; add it to {__name__}"
        )


_LISTING = {"list-type", "prefix", "max-keys", "encoding-type", "continuation-token", "start-after", "delimiter"}


def _athena(request: AwsRequest) -> Iterator[PermissionNeeded]:
    """A query reads Glue's catalog and S3, and writes its results, with the caller's permissions."""
    parameters = request.parameters
    group = parameters.get("WorkGroup") or request.athena.workgroups.get(
        parameters.get("QueryExecutionId", ""), "primary"
    )
    yield PermissionNeeded(f"athena:{request.operation}", request.arn(f"workgroup/{group}"))
    if request.operation != "StartQueryExecution":
        return
    database = parameters["QueryExecutionContext"]["Database"]
    catalog = ["catalog", f"database/{database}"]
    yield from _glue_calls(request, ("glue:GetDatabase",), catalog)
    for table in _tables_in_sql(parameters["QueryString"]):
        yield from _glue_calls(request, GLUE_TABLE_ACTIONS, [*catalog, f"table/{database}/{table}"])
        bucket, prefix = _bucket_and_prefix(request.athena.table_location(database, table), request.region)
        yield PermissionNeeded("s3:ListBucket", bucket, (("s3:prefix", (prefix,)),))
        yield PermissionNeeded("s3:GetObject", f"{bucket}/{prefix}data.parquet")
    if "ResultConfiguration" in parameters:
        bucket, prefix = _bucket_and_prefix(parameters["ResultConfiguration"]["OutputLocation"], request.region)
        yield PermissionNeeded("s3:GetBucketLocation", bucket)
        yield PermissionNeeded("s3:ListBucket", bucket, (("s3:prefix", (prefix,)),))
        for action in ATHENA_RESULT_ACTIONS:
            yield PermissionNeeded(action, f"{bucket}/{prefix}results.csv")


def _tables_in_sql(sql: str) -> list[str]:
    """The tables that a query reads, without its common table expressions."""
    import sqlglot
    from sqlglot import expressions

    query = sqlglot.parse_one(sql, dialect="athena")
    defined = {part.alias for part in query.find_all(expressions.CTE)}
    return sorted({table.name for table in query.find_all(expressions.Table)} - defined)


def _glue_calls(request: AwsRequest, actions: Sequence[str], resources: Sequence[str]) -> Iterator[PermissionNeeded]:
    """Glue checks each action on the table, its database and its catalog."""
    for action in actions:
        for resource in resources:
            yield PermissionNeeded(action, request.arn(resource, service="glue"))


def _bucket_and_prefix(address: str, region: str) -> tuple[str, str]:
    """(bucket ARN, prefix) of `s3://bucket/prefix/`."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    return f"arn:{partition_of(region)}:s3:::{bucket}", prefix.rstrip("/") + "/" if prefix.strip("/") else ""


def _cloudformation(request: AwsRequest) -> Iterator[PermissionNeeded]:
    name = request.parameters["StackName"]
    arn = name if name.startswith("arn:") else request.arn(f"stack/{name}/1")
    yield PermissionNeeded(f"cloudformation:{request.operation}", arn)


def _execute_api(request: AwsRequest) -> Iterator[PermissionNeeded]:
    """The first label of an API's host name is its ID."""
    api = request.headers["host"].partition(".")[0]
    yield PermissionNeeded("execute-api:Invoke", request.arn(f"{api}/$default/{request.method}{request.path}"))


def _lambda(request: AwsRequest) -> Iterator[PermissionNeeded]:
    *_, name, operation = request.path.split("/")
    if operation != "invocations":
        raise GpuCostError(f"no permissions declared for {request.method} {request.path} of Lambda")
    yield PermissionNeeded("lambda:InvokeFunction", request.arn(f"function:{unquote(name)}"))


def _aps(request: AwsRequest) -> Iterator[PermissionNeeded]:
    _, workspaces, workspace, *_, operation = request.path.split("/")
    if workspaces != "workspaces":
        raise GpuCostError(f"{request.path} is not a path of an AMP workspace")
    action = AMP_QUERY_ACTIONS.get(operation, "QueryMetrics")
    yield PermissionNeeded(f"aps:{action}", request.arn(f"workspace/{workspace}"))


CALLS_BY_SERVICE: dict[str, Callable[[AwsRequest], Iterator[PermissionNeeded]]] = {
    "aps": _aps,
    "athena": _athena,
    "cloudformation": _cloudformation,
    "dynamodb": _dynamodb,
    "execute-api": _execute_api,
    "lambda": _lambda,
    "s3": _s3,
    "secretsmanager": _secretsmanager,
    "sns": _sns,
    "sqs": _sqs,
    "sts": _sts,
}
