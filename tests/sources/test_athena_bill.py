"""The Athena client: with moto for the order of calls and rows, with botocore's Stubber for errors."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate, chain, count, takewhile
from pathlib import Path
from typing import Any

import pytest
import requests
from botocore.exceptions import EndpointConnectionError
from botocore.stub import ANY, Stubber

from gpucost.core.errors import SourceError
from gpucost.runtime.aws import AwsClients
from gpucost.settings.pricing import CurSettings
from gpucost.sources.bill import COLUMNS, QUERY_TIMEOUT_SECONDS, AthenaBill, bill_reader, sql_statement
from gpucost_devstack.aws import client_environment, local_client, running_aws
from gpucost_devstack.bill.export import write_export
from gpucost_devstack.bill.items import on_demand, savings_plan_fee, spot
from tests.bill_export import NOW, DuckDbBill, athena_rows, cur_settings, run

NOVEMBER, DECEMBER = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
ROW = (
    "instance",
    "2026-11-19T10:00:00Z",
    "2026-11-19T11:00:00Z",
    "111122223333",
    "eu-central-1",
    "i-0a",
    "p5.48xlarge",
    "on-demand",
    "RunInstances",
    "1.000000000000",
    "55.040000000000",
    "USD",
    "0",
    "",
)
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
    """A bill reader with stubbed responses of Athena, in the order of the calls."""

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

    def status(self, state: str, **details: Any) -> None:
        execution = {"Status": {"State": state, **details}, "Statistics": {"DataScannedInBytes": 123_456_789}}
        self.stub.add_response("get_query_execution", {"QueryExecution": execution}, {"QueryExecutionId": "q" * 36})

    def page(self, rows: Sequence[dict[str, Any]], token: str = "", after: str = "") -> None:
        expected = {"QueryExecutionId": "q" * 36, "MaxResults": 1000} | ({"NextToken": after} if after else {})
        response = {"ResultSet": {"Rows": rows}} | ({"NextToken": token} if token else {})
        self.stub.add_response("get_query_results", response, expected)


def test_rows_of_the_statement_are_read_through_athenas_api(aws: str, tmp_path: Path) -> None:
    """moto returns, as Athena would, the rows that DuckDB reads from the export with the same statement."""
    items = [
        on_demand("i-0a", "p5.48xlarge", HOUR, "55.04"),
        spot("i-0b", "g5.xlarge", HOUR, "0.31", hours="0.3333333333"),
        savings_plan_fee("arn:plan", HOUR, "100", "80.5"),
    ]
    write_export(tmp_path, items)
    cur = cur_settings(output_location=LOCATION)
    rows = run(sql_statement(cur, NOVEMBER, DECEMBER, now=NOW), tmp_path)
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
    execution = client.get_query_execution(QueryExecutionId=query_id)["QueryExecution"]
    assert execution["Query"] == sql_statement(cur, NOVEMBER, DECEMBER, now=NOW)
    assert execution["QueryExecutionContext"] == {"Database": "billing"}
    assert execution["ResultConfiguration"]["OutputLocation"].startswith(LOCATION)


def test_reader_waits_for_the_query_and_reads_all_pages() -> None:
    athena = Stubbed()
    athena.start(
        {
            "QueryString": ANY,
            "QueryExecutionContext": {"Database": "billing"},
            "WorkGroup": "primary",
            "ResultConfiguration": {"OutputLocation": LOCATION},
        }
    )
    athena.status("QUEUED")
    athena.status("RUNNING")
    athena.status("SUCCEEDED")
    extract = athena.bill.read(NOVEMBER, DECEMBER)
    assert extract.bytes_scanned == 123_456_789
    assert athena.waits == [0.5, 1.0]
    header, *rows = athena_rows([(*ROW[:5], f"i-{number:03x}", *ROW[6:]) for number in range(5)])
    athena.page([header, *rows[:2]], token="second")
    athena.page(rows[2:4], token="third", after="second")
    athena.page(rows[4:], after="third")
    assert [line.resource_id for line in extract.lines] == ["i-000", "i-001", "i-002", "i-003", "i-004"]
    athena.stub.assert_no_pending_responses()


def test_output_location_may_come_from_the_workgroup() -> None:
    athena = Stubbed(cur_settings(workgroup="finops"))
    athena.start({"QueryString": ANY, "QueryExecutionContext": {"Database": "billing"}, "WorkGroup": "finops"})
    athena.status("SUCCEEDED")
    athena.bill.read(NOVEMBER, DECEMBER)
    athena.stub.assert_no_pending_responses()


def test_empty_bill_has_no_lines() -> None:
    athena = Stubbed()
    athena.start()
    athena.status("SUCCEEDED")
    athena.page(athena_rows([]))
    assert list(athena.bill.read(NOVEMBER, DECEMBER).lines) == []


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
def test_failed_query_reports_its_reason(state: str) -> None:
    athena = Stubbed()
    athena.start()
    reason = "COLUMN_NOT_FOUND: line 20:12: Column 'capacity_reservation_capacity_reservation_arn' cannot be resolved"
    athena.status(state, StateChangeReason=reason)
    with pytest.raises(SourceError, match=r"billing\.bill: COLUMN_NOT_FOUND.*cannot be resolved"):
        athena.bill.read(NOVEMBER, DECEMBER)


def test_query_is_stopped_at_the_timeout() -> None:
    athena = Stubbed()
    athena.start()
    waits = accumulate(min(5.0, 0.5 * 2**number) for number in count())
    for _ in takewhile(lambda waited: waited < QUERY_TIMEOUT_SECONDS, chain([0.0], waits)):
        athena.status("RUNNING")
    athena.status("RUNNING")
    athena.stub.add_response("stop_query_execution", {}, {"QueryExecutionId": "q" * 36})
    with pytest.raises(SourceError, match="within 480 s"):
        athena.bill.read(NOVEMBER, DECEMBER)
    assert QUERY_TIMEOUT_SECONDS <= sum(athena.waits) <= QUERY_TIMEOUT_SECONDS + 5
    athena.stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("call", "action"),
    [
        ("start_query_execution", "start the query"),
        ("get_query_execution", "get the query's status"),
        ("get_query_results", "fetch the rows"),
    ],
)
def test_refused_request_names_the_action(call: str, action: str) -> None:
    athena = Stubbed()
    if call != "start_query_execution":
        athena.start()
    if call == "get_query_results":
        athena.status("SUCCEEDED")
    athena.stub.add_client_error(call, "AccessDeniedException", "not authorized to perform athena:Something")
    with pytest.raises(SourceError, match=rf"could not {action} for the bill in billing\.bill: AccessDenied.*not auth"):
        list(athena.bill.read(NOVEMBER, DECEMBER).lines)


def test_result_with_other_columns_is_refused() -> None:
    athena = Stubbed()
    athena.start()
    athena.status("SUCCEEDED")
    header, row = athena_rows([ROW])
    athena.page([{"Data": header["Data"][::-1]}, row])
    with pytest.raises(SourceError, match="instead of"):
        list(athena.bill.read(NOVEMBER, DECEMBER).lines)


def test_unreachable_athena_is_an_error() -> None:
    class Unreachable:
        def start_query_execution(self, **_: Any) -> None:
            raise EndpointConnectionError(endpoint_url="https://athena.eu-central-1.amazonaws.com")

    bill = AthenaBill(Unreachable(), cur_settings(), clock=lambda: NOW)
    with pytest.raises(SourceError, match=r"start the query for the bill in billing\.bill: EndpointConnectionError"):
        bill.read(NOVEMBER, DECEMBER)


def test_bill_of_another_account_is_read_with_a_role_in_its_region(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in client_environment(aws).items():
        monkeypatch.setenv(name, value)
    clients = AwsClients()
    default = clients.client_in_role("athena", region=None, role_arn=None)
    assert default.meta.region_name == client_environment(aws)["AWS_REGION"]
    settings = cur_settings(region="us-east-1", role_arn="arn:aws:iam::999988887777:role/gpucost-query-billing")
    other = bill_reader(settings, clients)._client
    assert other.meta.region_name == "us-east-1"
    signer = other._request_signer._credentials
    assert signer.token, "temporary credentials"
    assert signer.access_key != default._request_signer._credentials.access_key


ROLE = "arn:aws:iam::999988887777:role/gpucost-query-billing"


@pytest.mark.parametrize("external_id", [None, "a-1+=,.@:/_"])
def test_role_of_the_bill_is_assumed_with_the_external_id(
    aws: str, monkeypatch: pytest.MonkeyPatch, external_id: str | None
) -> None:
    for name, value in client_environment(aws).items():
        monkeypatch.setenv(name, value)
    clients = AwsClients()
    sent: list[dict[str, Any]] = []
    clients("sts").meta.events.register("provide-client-params.sts.AssumeRole", lambda params, **_: sent.append(params))
    bill_reader(cur_settings(role_arn=ROLE, external_id=external_id), clients)
    condition = {"ExternalId": external_id} if external_id else {}
    assert sent == [{"RoleArn": ROLE, "RoleSessionName": "gpucost", **condition}]


def test_role_that_cannot_be_assumed_is_named(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in client_environment(aws).items():
        monkeypatch.setenv(name, value)
    clients = AwsClients()
    with Stubber(clients("sts")) as sts:
        sts.add_client_error("assume_role", "AccessDenied", "not authorized to perform: sts:AssumeRole")
        with pytest.raises(SourceError, match=rf"the role {ROLE} could not be assumed: .*AccessDenied.*not authorized"):
            bill_reader(cur_settings(role_arn=ROLE), clients)
