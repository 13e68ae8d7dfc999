"""The Athena client: moto for the calls' order and the rows, botocore's Stubber for what moto never answers."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate, chain, count, takewhile
from pathlib import Path
from typing import Any

import pytest
import requests
from botocore.exceptions import EndpointConnectionError
from botocore.stub import ANY, Stubber

from devstack.aws import credentials, local_client, running_aws
from devstack.bill.export import write_export
from devstack.bill.items import on_demand, plan_fee, spot
from gpucost.core.errors import SourceError
from gpucost.settings.bill import CurSettings
from gpucost.sources.bill.athena import QUERY_TIMEOUT_SECONDS, AthenaBill, athena_client
from gpucost.sources.bill.statements import COLUMNS, statement
from tests.bill_export import NOW, DuckDbBill, athena_rows, cur_settings, run

NOVEMBER, DECEMBER = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
ROW = (
    "instance", "2026-11-19T10:00:00Z", "2026-11-19T11:00:00Z", "111122223333", "eu-central-1", "i-0a", "p5.48xlarge",
    "on-demand", "RunInstances", "1.000000000000", "55.040000000000", "USD", "0",
)  # fmt: skip
LOCATION = "s3://billing-results/athena/"


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    with running_aws() as url:
        yield url


class Waits(list[float]):
    """Records the waiting times instead of waiting."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


class Stubbed:
    """Athena's answers in the order of the calls."""

    def __init__(self, cur: CurSettings | None = None) -> None:
        client = local_client("athena", "http://127.0.0.1:9")
        self.stub = Stubber(client)
        self.stub.activate()
        self.waits = Waits()
        self.bill = AthenaBill(
            client, cur or cur_settings(output_location=LOCATION), clock=lambda: NOW, sleep=self.waits
        )

    def start(self, expected: dict[str, Any] | None = None) -> None:
        self.stub.add_response("start_query_execution", {"QueryExecutionId": "q" * 36}, expected)

    def look(self, state: str, **status: Any) -> None:
        execution = {"Status": {"State": state, **status}, "Statistics": {"DataScannedInBytes": 123_456_789}}
        self.stub.add_response("get_query_execution", {"QueryExecution": execution}, {"QueryExecutionId": "q" * 36})

    def page(self, rows: Sequence[dict[str, Any]], token: str = "", asked: str = "") -> None:
        expected = {"QueryExecutionId": "q" * 36, "MaxResults": 1000} | ({"NextToken": asked} if asked else {})
        answer = {"ResultSet": {"Rows": rows}} | ({"NextToken": token} if token else {})
        self.stub.add_response("get_query_results", answer, expected)


def test_what_duckdb_answers_comes_through_athenas_calls(aws: str, tmp_path: Path) -> None:
    """moto hands out, as Athena would, the rows that the very statement finds in the export."""
    items = [
        on_demand("i-0a", "p5.48xlarge", HOUR, "55.04"),
        spot("i-0b", "g5.xlarge", HOUR, "0.31", hours="0.3333333333"),
        plan_fee("arn:plan", HOUR, "100", "80.5"),
    ]
    write_export(tmp_path, items)
    cur = cur_settings(output_location=LOCATION)
    rows = run(statement(cur, NOVEMBER, DECEMBER, now=NOW), tmp_path)
    local_client("s3", aws).create_bucket(
        Bucket="billing-results", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    queued = {"rows": athena_rows(rows), "column_info": [{"Name": name, "Type": "varchar"} for name in COLUMNS]}
    answer = requests.post(
        f"{aws}/moto-api/static/athena/query-results", json={"region": "eu-central-1", "results": [queued]}, timeout=10
    )
    assert answer.status_code == 201
    client = local_client("athena", aws)
    extract = AthenaBill(client, cur, clock=lambda: NOW, sleep=lambda _: None).read(NOVEMBER, DECEMBER)
    assert list(extract.lines) == DuckDbBill(tmp_path, cur).lines(NOVEMBER, DECEMBER)
    (query_id,) = client.list_query_executions(WorkGroup="primary")["QueryExecutionIds"]
    asked = client.get_query_execution(QueryExecutionId=query_id)["QueryExecution"]
    assert asked["Query"] == statement(cur, NOVEMBER, DECEMBER, now=NOW)
    assert asked["QueryExecutionContext"] == {"Database": "billing"}
    assert asked["ResultConfiguration"]["OutputLocation"].startswith(LOCATION)


def test_it_waits_then_turns_the_pages() -> None:
    athena = Stubbed()
    athena.start(
        {
            "QueryString": ANY,
            "QueryExecutionContext": {"Database": "billing"},
            "WorkGroup": "primary",
            "ResultConfiguration": {"OutputLocation": LOCATION},
        }
    )
    athena.look("QUEUED")
    athena.look("RUNNING")
    athena.look("SUCCEEDED")
    extract = athena.bill.read(NOVEMBER, DECEMBER)
    assert extract.bytes_scanned == 123_456_789
    assert athena.waits == [0.5, 1.0]
    header, *rows = athena_rows([(*ROW[:5], f"i-{number:03x}", *ROW[6:]) for number in range(5)])
    athena.page([header, *rows[:2]], token="second")
    athena.page(rows[2:4], token="third", asked="second")
    athena.page(rows[4:], asked="third")
    assert [line.resource for line in extract.lines] == ["i-000", "i-001", "i-002", "i-003", "i-004"]
    athena.stub.assert_no_pending_responses()


def test_a_workgroup_with_its_own_place_for_results() -> None:
    athena = Stubbed(cur_settings(workgroup="finops"))
    athena.start(
        {"QueryString": ANY, "QueryExecutionContext": {"Database": "billing"}, "WorkGroup": "finops"},
    )
    athena.look("SUCCEEDED")
    athena.bill.read(NOVEMBER, DECEMBER)
    athena.stub.assert_no_pending_responses()


def test_an_empty_bill_has_no_lines() -> None:
    athena = Stubbed()
    athena.start()
    athena.look("SUCCEEDED")
    athena.page(athena_rows([]))
    assert list(athena.bill.read(NOVEMBER, DECEMBER).lines) == []


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
def test_a_query_that_fails_says_why(state: str) -> None:
    athena = Stubbed()
    athena.start()
    reason = "COLUMN_NOT_FOUND: line 20:12: Column 'capacity_reservation_capacity_reservation_arn' cannot be resolved"
    athena.look(state, StateChangeReason=reason)
    with pytest.raises(SourceError, match=r"billing\.bill: COLUMN_NOT_FOUND.*cannot be resolved"):
        athena.bill.read(NOVEMBER, DECEMBER)


def test_a_query_that_takes_too_long_is_stopped() -> None:
    athena = Stubbed()
    athena.start()
    waits = accumulate(min(5.0, 0.5 * 2**number) for number in count())
    for _ in takewhile(lambda waited: waited < QUERY_TIMEOUT_SECONDS, chain([0.0], waits)):
        athena.look("RUNNING")
    athena.look("RUNNING")
    athena.stub.add_response("stop_query_execution", {}, {"QueryExecutionId": "q" * 36})
    with pytest.raises(SourceError, match="within 480 s"):
        athena.bill.read(NOVEMBER, DECEMBER)
    assert QUERY_TIMEOUT_SECONDS <= sum(athena.waits) <= QUERY_TIMEOUT_SECONDS + 5
    athena.stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("start_query_execution", "start the query"),
        ("get_query_execution", "get the query's status"),
        ("get_query_results", "fetch the rows"),
    ],
)
def test_what_athena_refuses_is_one_sentence(call: str, what: str) -> None:
    athena = Stubbed()
    if call != "start_query_execution":
        athena.start()
    if call == "get_query_results":
        athena.look("SUCCEEDED")
    athena.stub.add_client_error(call, "AccessDeniedException", "not authorized to perform athena:Something")
    with pytest.raises(SourceError, match=rf"could not {what} for the bill in billing\.bill: AccessDenied.*not auth"):
        list(athena.bill.read(NOVEMBER, DECEMBER).lines)


def test_an_answer_with_other_columns_is_refused() -> None:
    athena = Stubbed()
    athena.start()
    athena.look("SUCCEEDED")
    header, row = athena_rows([ROW])
    athena.page([{"Data": header["Data"][::-1]}, row])
    with pytest.raises(SourceError, match="instead of"):
        list(athena.bill.read(NOVEMBER, DECEMBER).lines)


def test_athena_cannot_be_reached() -> None:
    class Unreachable:
        def start_query_execution(self, **_: Any) -> None:
            raise EndpointConnectionError(endpoint_url="https://athena.eu-central-1.amazonaws.com")

    bill = AthenaBill(Unreachable(), cur_settings(), clock=lambda: NOW)
    with pytest.raises(SourceError, match=r"start the query for the bill in billing\.bill: EndpointConnectionError"):
        bill.read(NOVEMBER, DECEMBER)


def test_the_bill_of_another_account_is_read_under_a_role_in_its_region(
    aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in credentials(aws).items():
        monkeypatch.setenv(name, value)
    from gpucost.runtime.aws import client

    client.cache_clear()
    own = athena_client(cur_settings())
    assert own.meta.region_name == credentials(aws)["AWS_REGION"]
    other = athena_client(
        cur_settings(region="us-east-1", role_arn="arn:aws:iam::999988887777:role/gpucost-query-billing")
    )
    assert other.meta.region_name == "us-east-1"
    signer = other._request_signer._credentials
    assert signer.token, "temporary credentials"
    assert signer.access_key != own._request_signer._credentials.access_key
    client.cache_clear()


ROLE = "arn:aws:iam::999988887777:role/gpucost-query-billing"


@pytest.mark.parametrize("external_id", [None, "a-1+=,.@:/_"])
def test_role_of_the_bill_is_assumed_with_the_external_id(
    aws: str, monkeypatch: pytest.MonkeyPatch, external_id: str | None
) -> None:
    for name, value in credentials(aws).items():
        monkeypatch.setenv(name, value)
    from gpucost.runtime.aws import client

    client.cache_clear()
    sent: list[dict[str, Any]] = []
    client("sts").meta.events.register("provide-client-params.sts.AssumeRole", lambda params, **_: sent.append(params))
    athena_client(cur_settings(role_arn=ROLE, external_id=external_id))
    condition = {"ExternalId": external_id} if external_id else {}
    assert sent == [{"RoleArn": ROLE, "RoleSessionName": "gpucost", **condition}]
    client.cache_clear()


def test_role_of_the_bill_that_cannot_be_assumed_is_named(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in credentials(aws).items():
        monkeypatch.setenv(name, value)
    from gpucost.runtime.aws import client

    client.cache_clear()
    with Stubber(client("sts")) as sts:
        sts.add_client_error("assume_role", "AccessDenied", "not authorized to perform: sts:AssumeRole")
        with pytest.raises(SourceError, match=rf"the role {ROLE} could not be assumed: .*AccessDenied.*not authorized"):
            athena_client(cur_settings(role_arn=ROLE))
    client.cache_clear()
