"""Reads through the decoder return what botocore returns, for every type of attribute and every kind of answer."""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError

from benchmarks.core import instructions
from gpucost.runtime.aws import client_config, register_read_decoder
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.table import key
from gpucost_devstack.aws import local_client
from tests.conftest import DynamoTable

ITEMS = 200
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "a": {"S": "ü€\n"},
    "n": {"N": "0.50"},
    "B": {"B": b"\x00\xff"},
    "t": {"BOOL": True},
}
ATTRIBUTES_OF_EVERY_TYPE: dict[str, dict[str, Any]] = {
    **ATTRIBUTES,
    "none": {"NULL": True},
    "texts": {"SS": ["a", "b"]},
    "numbers": {"NS": ["1"]},
    "bytes": {"BS": [b"", b"\x01"]},
    "list": {"L": [{"M": {"B": {"B": b"deep"}}}, {"L": []}]},
    "empty": {"B": b""},
}


@pytest.fixture
def clients(table: DynamoTable, dynamodb_url: str) -> tuple[Any, Any]:
    """A client with the decoder, and one without."""
    decoding = local_client("dynamodb", dynamodb_url)
    register_read_decoder(decoding)
    DynamoDBTable(table.client, table.name).put_all(
        [
            {**key("p", f"{number:04}"), **(ATTRIBUTES if number else ATTRIBUTES_OF_EVERY_TYPE)}
            for number in range(ITEMS)
        ]
    )
    return decoding, table.client


def answers(client: Any, table: str) -> Iterator[dict[str, Any]]:
    """The answers to reads of one item, none, and pages, without what differs in every response."""
    more = {"TableName": table, "ReturnConsumedCapacity": "TOTAL"}
    for sk in ("0000", "0001", "missing"):
        yield client.get_item(Key={"pk": {"S": "p"}, "sk": {"S": sk}}, **more)
    page = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": {"S": "p"}}, "Limit": 90, **more}
    while True:
        answer = client.query(**page, ProjectionExpression="sk, a, #B, n", ExpressionAttributeNames={"#B": "B"})
        yield answer
        if "LastEvaluatedKey" not in answer:
            break
        page["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    del page["ExclusiveStartKey"]
    yield client.query(**page | {"Select": "COUNT", "Limit": 7})


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    metadata = answer["ResponseMetadata"]
    headers = metadata["HTTPHeaders"].keys()
    return {**answer, "ResponseMetadata": {**metadata, "RequestId": len(metadata["RequestId"]), "HTTPHeaders": headers}}


def test_answers_equal_those_of_botocore(clients: tuple[Any, Any], table: DynamoTable) -> None:
    decoded, parsed = ([comparable(answer) for answer in answers(client, table.name)] for client in clients)
    assert decoded == parsed
    assert [answer.get("Count") for answer in decoded] == [None, None, None, 90, 90, 20, 7]
    assert decoded[0]["Item"]["list"] == ATTRIBUTES_OF_EVERY_TYPE["list"]


@pytest.mark.tools
def test_items_take_no_instructions(clients: tuple[Any, Any], table: DynamoTable) -> None:
    """This fails if a release of botocore no longer lets responses be decoded here. Then it parses them itself."""

    def instructions_of_items(client: Any) -> int:
        def read(limit: int) -> None:
            values = {":p": {"S": "p"}}
            condition = {"KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": values}
            client.query(TableName=table.name, Limit=limit, **condition)

        read(1)
        return instructions(lambda: read(ITEMS)) - instructions(lambda: read(1))

    decoding, plain = clients
    assert instructions_of_items(decoding) <= 500
    assert instructions_of_items(plain) >= 500 * ITEMS


class Body(BytesIO):
    """The body of a response."""

    def stream(self) -> Iterator[bytes]:
        yield self.read()


def read_answered_with(*responses: tuple[int, bytes], decodes: bool = True) -> dict[str, Any]:
    """Read an item with a client that gets these responses, one after the other."""
    client: Any = boto3.client(
        "dynamodb", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b", config=client_config()
    )
    if decodes:
        register_read_decoder(client)
    remaining = iter(responses)

    def respond(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        status, body = next(remaining)
        return AWSResponse(request.url, status, HTTPHeaders.from_dict({"x-amzn-requestid": "r"}), Body(body))

    client.meta.events.register("before-send.dynamodb.GetItem", respond)
    answer: dict[str, Any] = client.get_item(TableName="t", Key={"pk": {"S": "p"}, "sk": {"S": "s"}})
    return answer


THROTTLED = b'{"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "message": "slow"}'


def test_throttled_reads_are_retried_and_then_fail() -> None:
    answer = read_answered_with((400, THROTTLED), (500, b""), (200, b'{"Item": {"a": {"B": "AQ=="}}}'))
    assert answer["Item"] == {"a": {"B": b"\x01"}}
    assert answer["ResponseMetadata"]["RetryAttempts"] == 2
    with pytest.raises(ClientError) as failed:
        read_answered_with(*[(400, THROTTLED)] * 4)
    assert failed.value.response["Error"] == {"Code": "ProvisionedThroughputExceededException", "Message": "slow"}


@pytest.mark.parametrize(
    "body", [b'{"Item": {"a": {"S": null}}, "Later": 1}', b'{"Item": {"a": {"N": 1}}}', b"{}", b""]
)
def test_unexpected_bodies_are_left_to_botocore(body: bytes) -> None:
    decoded, parsed = (read_answered_with((200, body), decodes=decodes) for decodes in (True, False))
    assert decoded == parsed
