"""Reads the AWS bill with Athena."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from gpucost.core.errors import SourceError
from gpucost.core.pricing.bill_lines import BillExtract, BillLine
from gpucost.runtime.aws import AwsClients
from gpucost.settings.bill import CurSettings
from gpucost.sources.bill.statements import COLUMNS, parse_bill_line, sql_statement

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
