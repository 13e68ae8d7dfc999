"""The five most common reports, and two large ones, compared with bare DynamoDB calls for the same items (make bench).

200 business units, 35 days, 3 clusters on Amazon's DynamoDB Local. A report is the function's whole answer to an API
Gateway event: parsing, reading, sums, JSON. The floor is the very requests that it made, made again with a plain
client, which parses responses as botocore does. Prints p50 and p95 of both, their ratio, the ratio of this process'
processor times, units and the answer's size, and fails where a ratio of the p50 is above its aim, or a budget of the
design is broken.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from rich.console import Console
from rich.table import Table

from benchmarks import large_ledger
from benchmarks.figures import Figure, against
from gpucost.core.hours import DAY, HOUR, format_timestamp
from gpucost.runtime.aws import AwsClients
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost_devstack.aws import client_environment, local_client
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb

RATIO, NODES_RATIO = 2.0, 4.0
HOUR_WITH_LINES = 23 * HOUR
"""The hour of the last day with nodes and lines, after the period of the other reports."""
TABLE = "ledger"
UNIT = large_ledger.unit_name(7)


@dataclass(frozen=True, slots=True)
class Report:
    """A report, with the read units that it may use per cluster."""

    name: str
    path: str
    query: dict[str, str]
    most_units: float | None
    """Allowed read units per cluster for a month."""
    most_ratio: float | None = RATIO


@dataclass(frozen=True, slots=True)
class Measured:
    """Time and units of a report."""

    report: Report
    seconds: list[float]
    floor: list[float]
    processor_seconds: list[float]
    """Of this process, without the database."""
    processor_floor: list[float]
    units: float
    requests: int
    size: int

    def ratio(self) -> float:
        """The ratio of the medians."""
        return statistics.median(self.seconds) / statistics.median(self.floor)

    def processor_ratio(self) -> float:
        """The ratio of the medians of processor time."""
        return statistics.median(self.processor_seconds) / statistics.median(self.processor_floor)


class Recording:
    """The real client, which records requests and consumed units."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.units = 0.0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            self.calls.append((name, dict(arguments)))
            answer = getattr(self._client, name)(**arguments, ReturnConsumedCapacity="TOTAL")
            self.units += answer["ConsumedCapacity"]["CapacityUnits"]
            return answer

        return call


def reports(start: datetime, days: int) -> list[Report]:
    """The five reports, and two whose rows take longer to write than to fetch: 4,800 of units, and 500 nodes."""
    month = {"start": format_timestamp(start), "end": format_timestamp(start + days * DAY)}
    last = {"start": format_timestamp(start + (days - 1) * DAY), "end": month["end"]}
    by_unit = {"group_by": "business_unit"}
    with_lines = start + days * DAY + HOUR_WITH_LINES
    nodes = {"start": format_timestamp(with_lines), "end": format_timestamp(with_lines + HOUR), "cluster": "cluster-0"}
    scale = days / 31
    return [
        Report("all units by day", "/v1/costs", {**month, **by_unit, "granularity": "day"}, 100 * scale),
        Report("all units, sums", "/v1/business-units", month, 100 * scale),
        Report("one unit by hour", f"/v1/business-units/{UNIT}", {**month, "granularity": "hour"}, 60 * scale),
        Report("one unit's workloads", f"/v1/business-units/{UNIT}/workloads", month, 100 * scale),
        Report("the fleet by hour, one day", "/v1/costs", last, None),
        Report("all units by hour, one day", "/v1/costs", {**last, **by_unit}, None, None),
        Report("500 nodes, one hour of 10,000 pods", "/v1/nodes", nodes, None, NODES_RATIO),
    ]


def measure(client: Any, plain: Any, report: Report, runs: int) -> Measured:
    """Measure a report with the function's client, and its floor with a plain one, in turns."""
    from functions.api.app import PAGE_FOLDER, handler
    from gpucost.api.app import build_app
    from gpucost.container import Container

    event = _event(report)

    def app_with(dynamodb: Any) -> Any:
        return build_app(Container(client=lambda _service: dynamodb).api_services, PAGE_FOLDER)

    def through(app: Any) -> str:
        answer = handler(event, _Context(), app=app)  # type: ignore[arg-type]  # a reduced Lambda context
        if answer["statusCode"] != 200:
            raise SystemExit(f"{report.path} answered {answer['statusCode']}: {answer['body'][:500]}")
        return str(answer["body"])

    recording = Recording(plain)
    body = through(app_with(recording))
    app = app_with(client)
    through(app)

    def call_bare() -> None:
        for name, arguments in recording.calls:
            getattr(plain, name)(**arguments)

    seconds, floor, worked, worked_bare = list[float](), list[float](), list[float](), list[float]()
    for _ in range(runs):
        for run, took, processed in ((partial(through, app), seconds, worked), (call_bare, floor, worked_bare)):
            began, work = time.perf_counter(), time.process_time()
            run()
            took.append(time.perf_counter() - began)
            processed.append(time.process_time() - work)
    size = len(body.encode())
    return Measured(report, seconds, floor, worked, worked_bare, recording.units, len(recording.calls), size)


class _Context:
    function_name = "api"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:api"
    aws_request_id = "1"


def _event(report: Report) -> dict[str, Any]:
    http = {"method": "GET", "path": report.path, "protocol": "HTTP/1.1"}
    caller = {"iam": {"userArn": "arn:aws:iam::123456789012:user/bench"}}
    return {
        "version": "2.0",
        "routeKey": f"GET {report.path}",
        "rawPath": report.path,
        "headers": {"host": "bench"},
        "rawQueryString": urlencode(report.query),
        "queryStringParameters": report.query,
        "isBase64Encoded": False,
        "requestContext": {"http": http, "requestId": "1", "stage": "$default", "authorizer": caller},
    }


def push_settings(client: Any, clusters: int) -> None:
    """A settings document with the clusters."""
    from gpucost.settings_document import SettingsDocumentStore

    document = {
        "clusters": [{"name": f"cluster-{n}", "prometheus": {"url": "http://127.0.0.1:9"}} for n in range(clusters)],
        "pricing": {"source": "constant", "gpu_hourly_usd": 12},
        "cost_labels": ["app", "team"],
    }
    store = SettingsDocumentStore(DynamoDBTable(client, TABLE), clock=lambda: datetime.now(UTC))
    store.push(json.dumps(document), author="bench", now=datetime.now(UTC))


def _ms(seconds: list[float], percent: int) -> str:
    ordered = sorted(seconds)
    return f"{1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]:.0f}"


def filled_and_measured(days: int, clusters: int, runs: int) -> list[Measured]:
    """Fill a new table, and run every report."""
    os.environ["GPUCOST_TABLE"] = TABLE
    os.environ["POWERTOOLS_LOG_LEVEL"] = "CRITICAL"
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - (days + 1) * DAY
    with running_dynamodb() as url:
        client = local_client("dynamodb", url)
        create_table(client, TABLE)
        push_settings(client, clusters)
        for number in range(clusters):
            large_ledger.fill(client, TABLE, f"cluster-{number}", start, days, seed=number)
        hour = start + days * DAY + HOUR_WITH_LINES
        record = large_ledger.record("cluster-0", hour, large_ledger.lines())
        Ledger(DynamoDBTable(client, TABLE)).publish(record, replacing=None, settings_version=1, now=hour + HOUR)
        os.environ.update(client_environment(url))
        function_client = AwsClients()("dynamodb")
        return [measure(function_client, client, report, runs) for report in reports(start, days)]


def figures(quick: bool) -> list[Figure]:
    """Time and units of every report."""
    clusters = 1 if quick else 3
    figures = []
    for report in filled_and_measured(7 if quick else 35, clusters, 5 if quick else 20):
        name = f"{report.report.name}, ÷ its bare calls"
        figures.append(against(name, report.seconds, report.floor, report.report.most_ratio))
        name = f"{report.report.name}: our processor time, ÷ that of its bare calls"
        figures.append(against(name, report.processor_seconds, report.processor_floor, None))
        most = None if report.report.most_units is None else report.report.most_units * clusters
        figures.append(Figure(f"{report.report.name}: read units", report.units, aim=most))
    return figures


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=35)
    parser.add_argument("--clusters", type=int, default=3)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    console = Console(width=120)
    with console.status("filling and measuring"):
        reports = filled_and_measured(options.days, options.clusters, options.runs)
    table = Table(
        "report",
        "p50 ms",
        "p95 ms",
        "floor p50",
        "floor p95",
        "ratio",
        "processor",
        "requests",
        "units",
        "budget",
        "KB",
    )
    are_aims_met = True
    for report in reports:
        most = None if report.report.most_units is None else report.report.most_units * options.clusters
        most_ratio = report.report.most_ratio
        are_aims_met &= most_ratio is None or report.ratio() <= most_ratio
        are_aims_met &= most is None or report.units <= most
        table.add_row(
            report.report.name,
            _ms(report.seconds, 50),
            _ms(report.seconds, 95),
            _ms(report.floor, 50),
            _ms(report.floor, 95),
            f"{report.ratio():.2f}",
            f"{report.processor_ratio():.2f}",
            str(report.requests),
            f"{report.units:.0f}",
            "" if most is None else f"{most:.0f}",
            f"{report.size / 1000:.0f}",
        )
    console.print(table)
    sys.exit(0 if are_aims_met else 1)


if __name__ == "__main__":
    main()
