"""Reads the AWS bill with Athena."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, get_args

from gpucost.core.amounts import is_amount
from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR
from gpucost.core.pricing.bill import BillExtract, BillLine, LineKind
from gpucost.runtime.aws import AwsClients
from gpucost.settings.pricing import CurSettings

QUERY_TIMEOUT_SECONDS = 480.0
"""How long a query may take; a function has 15 minutes for all months."""
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.5, 5.0


class AthenaBill:
    """Reads one Data Export.

    Args:
        client: a client of Athena.
        cur: the export's settings.
        clock: the time now.
        sleep: waits between two requests for the query's status.
    """

    def __init__(
        self,
        client: Any,
        cur: CurSettings,
        *,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._cur = cur
        self._clock = clock
        self._sleep = sleep

    def read(self, start: datetime, end: datetime) -> BillExtract:
        """Read the lines that begin in `[start, end)`. The query is complete on return; rows are fetched page by page.

        Raises:
            SourceError: Athena refused the query, failed, or took too long.
        """
        query_id = self._start_query(sql_statement(self._cur, start, end, now=self._clock()))
        statistics = self._wait_for_query(query_id)
        return BillExtract(self._fetch_lines(query_id), int(statistics.get("DataScannedInBytes", 0)))

    def _start_query(self, sql: str) -> str:
        location = self._cur.output_location
        result_configuration = {"ResultConfiguration": {"OutputLocation": location}} if location else {}
        with self._map_aws_errors("start the query"):
            response = self._client.start_query_execution(
                QueryString=sql,
                QueryExecutionContext={"Database": self._cur.database},
                WorkGroup=self._cur.workgroup,
                **result_configuration,
            )
        return str(response["QueryExecutionId"])

    def _wait_for_query(self, query_id: str) -> Mapping[str, Any]:
        waited, wait = 0.0, FIRST_WAIT_SECONDS
        while True:
            with self._map_aws_errors("get the query's status"):
                execution = self._client.get_query_execution(QueryExecutionId=query_id)["QueryExecution"]
            status = execution["Status"]
            if status["State"] == "SUCCEEDED":
                statistics: Mapping[str, Any] = execution.get("Statistics", {})
                return statistics
            if status["State"] in {"FAILED", "CANCELLED"}:
                reason = status.get("StateChangeReason") or "no reason given"
                raise SourceError(f"Athena could not read the bill in {self._table_name}: {reason}")
            if waited >= QUERY_TIMEOUT_SECONDS:
                self._stop_query(query_id)
                raise SourceError(
                    f"Athena did not read the bill in {self._table_name} within {QUERY_TIMEOUT_SECONDS:.0f} s"
                )
            self._sleep(wait)
            waited += wait
            wait = min(MAX_WAIT_SECONDS, wait * 2)

    def _stop_query(self, query_id: str) -> None:
        with self._map_aws_errors("stop the query"):
            self._client.stop_query_execution(QueryExecutionId=query_id)

    def _fetch_lines(self, query_id: str) -> Iterator[BillLine]:
        arguments = {"QueryExecutionId": query_id, "MaxResults": 1000}
        is_header = True
        while True:
            with self._map_aws_errors("fetch the rows"):
                page = self._client.get_query_results(**arguments)
            for row in page["ResultSet"]["Rows"]:
                cells = [datum.get("VarCharValue") for datum in row["Data"]]
                if not is_header:
                    yield parse_bill_line(cells)
                elif tuple(cells) != COLUMNS:
                    raise SourceError(f"Athena returned the columns {cells} instead of {list(COLUMNS)}")
                is_header = False
            if not page.get("NextToken"):
                return
            arguments["NextToken"] = page["NextToken"]

    @property
    def _table_name(self) -> str:
        return f"{self._cur.database}.{self._cur.table}"

    @contextmanager
    def _map_aws_errors(self, action: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            details = error.response.get("Error", {})
            raise SourceError(
                f"Athena could not {action} for the bill in {self._table_name}: "
                f"{details.get('Code', 'unknown')}: {details.get('Message', '')}"
            ) from error
        except BotoCoreError as error:
            raise SourceError(
                f"Athena could not {action} for the bill in {self._table_name}: {type(error).__name__}"
            ) from error


def bill_reader(cur: CurSettings, clients: AwsClients) -> AthenaBill:
    """Create the reader of one export, in the export's region and with the role that may read the bill.

    Raises:
        SourceError: the role cannot be assumed.
    """
    client = clients.client_in_role("athena", region=cur.region, role_arn=cur.role_arn, external_id=cur.external_id)
    return AthenaBill(client, cur, clock=lambda: datetime.now(UTC))


COLUMNS = (
    "kind",
    "usage_start",
    "usage_end",
    "account",
    "region",
    "resource",
    "instance_type",
    "capacity_type",
    "operation",
    "hours",
    "amount",
    "currency",
    "is_final",
    "reservation",
)
"""The columns of every statement, in this order."""
ACCELERATED_FAMILIES_PATTERN = "^(ml[.])?(p|g|gr|inf|trn|dl|vt)[0-9]"
"""Instance families of EC2 and SageMaker with accelerators, including future ones, as a regular expression that all
engines support."""
BILL_CLOSED_AFTER = timedelta(days=14)
"""FOCUS 1.0 does not say when a bill is closed; AWS closes them within the first days of the next month."""
_STATEMENTS_FOLDER = Path(__file__).parent / "statements"
_LINE_KINDS = get_args(LineKind)


def sql_template_name(cur: CurSettings) -> str:
    """The name of the statement for an export's format."""
    if cur.format == "cur2":
        return "cur2" if cur.amount == "amortized" else "cur2_net"
    return cur.format.replace("-", "_").replace(".", "_")


def sql_statement(cur: CurSettings, start: datetime, end: datetime, *, now: datetime) -> str:
    """The statement that reads the bill's lines of `[start, end)`.

    Only timestamps, months and the validated table name are inserted, so nothing needs escaping.
    """
    return _sql_template(sql_template_name(cur)).substitute(
        table=f'"{cur.table}"',
        first_period=f"{start:%Y-%m}",
        last_period=f"{end - timedelta(microseconds=1):%Y-%m}",
        start=f"{start.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        end=f"{end.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        accelerated=ACCELERATED_FAMILIES_PATTERN,
        closed_before=f"{(now - BILL_CLOSED_AFTER).astimezone(UTC):%Y-%m-%d %H:%M:%S}",
    )


@cache
def _sql_template(name: str) -> Template:
    return Template((_STATEMENTS_FOLDER / f"{name}.sql").read_text(encoding="utf-8"))


def parse_bill_line(row: Sequence[str | None]) -> BillLine:
    """Parse a row of a statement's result.

    Raises:
        SourceError: the row does not have the statement's format, or the export is not hourly.
    """
    cells: Mapping[str, str | None] = dict(zip(COLUMNS, row, strict=True))
    try:
        line = BillLine(
            kind=_parse_line_kind(_text(cells, "kind")),
            start=datetime.fromisoformat(_text(cells, "usage_start")),
            end=datetime.fromisoformat(_text(cells, "usage_end")),
            account=_text(cells, "account"),
            region=cells["region"] or "",
            resource_id=_text(cells, "resource"),
            instance_type=cells["instance_type"] or "",
            capacity_type=_text(cells, "capacity_type"),
            operation=cells["operation"] or "",
            reservation_id=(cells["reservation"] or "").rpartition("/")[2],
            instance_hours=None if cells["hours"] is None else Fraction(_number(cells["hours"])),
            amount=_number(_text(cells, "amount")),
            currency=_text(cells, "currency"),
            is_final=_text(cells, "is_final") == "1",
        )
    except ValueError as error:
        raise SourceError(f"the bill has a row that cannot be read ({error}): {row}") from error
    if line.kind == "instance" and line.end - line.start > HOUR:
        raise SourceError(
            f"the bill's export is not hourly: instance {line.resource_id} has a line from {line.start} to {line.end}; "
            "see docs/how-to/bill.md for how the export is set up"
        )
    return line


def _text(cells: Mapping[str, str | None], name: str) -> str:
    text = cells[name]
    if not text:
        raise ValueError(f"{name} is empty")
    return text


def _number(text: str) -> Decimal:
    value = parse_decimal(text)
    if not is_amount(value):
        raise ValueError(f"{text} is not a plausible amount")
    return value


def _parse_line_kind(text: str) -> LineKind:
    kind: LineKind | None = next((kind for kind in _LINE_KINDS if kind == text), None)
    if kind is None:
        raise ValueError(f"unknown kind {text!r}")
    return kind
