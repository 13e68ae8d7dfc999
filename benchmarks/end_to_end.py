"""An hour from Prometheus into the ledger, and a backfill, compared with their floor (make bench).

The floor: the same queries, read to the last byte and thrown away, and the same bytes written by plain batch calls of
the very items that were stored. Both in turns, so that a drifting machine moves both. At 1×, 4× and 16×, so that a
growth that is more than linear shows.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests
from rich.console import Console
from rich.table import Table as Printed

from benchmarks import large_cluster
from benchmarks.figures import Figure, called
from benchmarks.hour import settings_for
from benchmarks.ledger import Metered
from gpucost.core.hours import DAY, HOUR, floor_day, floor_hour
from gpucost.pipeline.attribute import AttributeService
from gpucost.pipeline.dispatch import Backfill
from gpucost.pipeline.pricing import Pricer
from gpucost.runtime.messages import AlertTick, HourPublished, HoursDue
from gpucost.settings_document import SettingsDocumentStore
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost.storage.bill_store import BillStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.price_book import PriceStore
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb
from gpucost_devstack.prometheus import running_prometheus
from tests.prometheus_clients import PrometheusClients, SentQuery, recording_client

ROUNDS = 3
STEP = 60
"""Seconds between two scrapes."""


class Queue:
    """A bus that records messages without delivering them."""

    def __init__(self) -> None:
        self.work: list[HoursDue] = []

    def send_due(self, messages: Sequence[HoursDue]) -> None:
        """Record messages."""
        self.work += messages

    def publish(self, message: HourPublished | AlertTick) -> None:
        """Do nothing."""

    def send_to_dead_letter_queue(self, body: str, reason: str) -> None:
        """Fail: no message may be sent to the dead-letter queue here."""
        raise AssertionError(reason)


@dataclass
class BenchmarkSystem:
    """A new table with the cluster's settings, and the service on it."""

    client: Any
    url: str
    prometheus_client: PrometheusClients = PrometheusClient

    def __post_init__(self) -> None:
        self.table = f"ledger-{uuid4()}"
        create_table(self.client, self.table)
        self.metered = Metered(self.client)
        self.metered.only_writes()
        now = datetime.now(UTC)
        store = SettingsDocumentStore(DynamoDBTable(self.client, self.table), clock=lambda: now)
        store.push(settings_for(self.url).model_dump_json(exclude_none=True), author="benchmark", now=now)
        self.queue = Queue()
        self.ledger = Ledger(DynamoDBTable(self.metered, self.table))
        pricer = Pricer(
            PriceStore(DynamoDBTable(self.client, self.table)),
            BillStore(DynamoDBTable(self.client, self.table), clock=lambda: now),
        )
        reader = partial(metrics_reader, make_client=self.prometheus_client)
        self.service = AttributeService(
            store,
            self.ledger,
            RollupStore(DynamoDBTable(self.metered, self.table)),
            reader,
            self.queue,  # type: ignore[arg-type]
            pricer=pricer,
            clock=lambda: now,
        )

    def attribute(self, start: datetime, end: datetime) -> None:
        """All hours, through the messages of a backfill."""
        now = datetime.now(UTC)
        Backfill(self.ledger, self.queue, ["large"], start, end, lambda: now).send(1, "benchmark")  # type: ignore[arg-type]
        while self.queue.work:
            self.service.attribute(self.queue.work.pop(0))


class Keeping:
    """The real client, which records what it stores. DynamoDB Local takes minutes to scan a large table."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.stored: dict[tuple[str, str], Any] = {}

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def kept(**arguments: Any) -> Any:
            answer = call(**arguments)
            for item in _put_by(name, arguments):
                self.stored[item["pk"]["S"], item["sk"]["S"]] = item
            return answer

        return kept if name in {"put_item", "batch_write_item", "transact_write_items"} else call


def _put_by(name: str, arguments: Mapping[str, Any]) -> Iterator[Any]:
    """The items that a call puts."""
    if name == "put_item":
        yield arguments["Item"]
    elif name == "batch_write_item":
        requests = [request for table_requests in arguments["RequestItems"].values() for request in table_requests]
        yield from (request["PutRequest"]["Item"] for request in requests if "PutRequest" in request)
    else:
        yield from (request["Put"]["Item"] for request in arguments["TransactItems"] if "Put" in request)


def cpu_seconds() -> float:
    """Processor seconds of this process and its engines, without other work on the machine."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == os.getpid():
            ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def send_bare(url: str, queries: Sequence[SentQuery]) -> None:
    """Send the same queries and discard the responses."""
    session = requests.Session()
    session.trust_env = False
    for path, form in queries:
        session.post(f"{url}/api/v1/{path}", data={**form, "stats": "true"}, timeout=300).raise_for_status()


def write_bare(client: Any, items: Sequence[Any]) -> None:
    """Write the same items, 25 at a time, into a new table."""
    name = f"bare-{uuid4()}"
    create_table(client, name)
    for at in range(0, len(items), 25):
        left = [{"PutRequest": {"Item": item}} for item in items[at : at + 25]]
        while left:
            left = client.batch_write_item(RequestItems={name: left})["UnprocessedItems"].get(name, [])
    client.delete_table(TableName=name)


def compare(client: Any, url: str, start: datetime, end: datetime, rounds: int = ROUNDS) -> dict[str, float]:
    """Measure our code and the floor in turns."""
    queries: list[SentQuery] = []
    keeping = Keeping(client)
    first = BenchmarkSystem(keeping, url, recording_client(queries))
    first.attribute(start, end)
    items = [*keeping.stored.values()]
    ours, bare, query_counts, written, worked, worked_bare = [], [], [], [], [], []
    for _ in range(rounds):
        began, work = time.perf_counter(), cpu_seconds()
        send_bare(url, queries)
        middle = time.perf_counter()
        write_bare(client, items)
        done = time.perf_counter()
        query_counts.append(middle - began)
        written.append(done - middle)
        bare.append(done - began)
        worked_bare.append(cpu_seconds() - work)
        again = BenchmarkSystem(client, url)
        began, work = time.perf_counter(), cpu_seconds()
        again.attribute(start, end)
        ours.append(time.perf_counter() - began)
        worked.append(cpu_seconds() - work)
        client.delete_table(TableName=again.table)
    client.delete_table(TableName=first.table)
    hours = (end - start) // HOUR
    return {
        "hours": hours,
        "queries": len(queries),
        "bare_queries_seconds": statistics.median(query_counts),
        "bare_writes_seconds": statistics.median(written),
        "seconds": statistics.median(ours),
        "hours_per_second": hours / statistics.median(ours),
        "ratio": statistics.median(a / b for a, b in zip(ours, bare, strict=True)),
        "cpu_seconds": statistics.median(worked),
        "cpu_ratio": statistics.median(a / b for a, b in zip(worked, worked_bare, strict=True)),
        "ratio_to_queries": statistics.median(a / b for a, b in zip(ours, query_counts, strict=True)),
        "write_units_per_hour": first.metered.units / hours,
    }


@contextmanager
def metrics(pods: int, start: datetime, end: datetime, step: int = STEP) -> Any:
    """A Prometheus with a cluster of some pods, from ten minutes before until ten minutes after."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_prometheus(_days(Path(folder) / "metrics.om", pods, start, end, step)) as url,
    ):
        yield url


def _days(path: Path, pods: int, start: datetime, end: datetime, step: int) -> Iterator[Path]:
    """A file for each UTC day, because promtool reads a whole file for each of its days."""
    margin = timedelta(minutes=10)
    begin = start - margin
    while begin < end + margin:
        until = min(floor_day(begin) + DAY, end + margin)
        large_cluster.write(path, pods, int(begin.timestamp()), int(until.timestamp()), step)
        yield path
        begin = until


def peak_memory_mib(dynamodb: str, url: str, hour: datetime) -> float:
    """Peak resident memory of a separate process that runs the hour end to end."""
    return called("benchmarks.sizes:attribute", dynamodb, url, hour.isoformat()).peak_mib


def hours(client: Any, dynamodb: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """One hour end to end for each cluster size: the newest complete hour of an open day."""
    start = floor_hour(datetime.now(UTC) - timedelta(minutes=10)) - HOUR
    runs = []
    for pods in sizes:
        with metrics(pods, start, start + HOUR) as url:
            measured = compare(client, url, start, start + HOUR)
            runs.append({"pods": pods, **measured, "peak_memory_mib": peak_memory_mib(dynamodb, url, start)})
    return runs


def backfills(client: Any, pods: int, days: Sequence[int], step: int, rounds: int) -> list[dict[str, Any]]:
    """Backfills of some days."""
    runs = []
    for number in days:
        start = floor_day(datetime.now(UTC)) - number * DAY
        with metrics(pods, start, start + number * DAY, step) as url:
            measured = compare(client, url, start, start + number * DAY, rounds)
            runs.append({"pods": pods, "days": number, **measured})
    return runs


def figures(quick: bool) -> list[Figure]:
    """Single hours, and a backfill of a day."""
    results = []
    with running_dynamodb() as dynamodb:
        client = local_client("dynamodb", dynamodb)
        for run in hours(client, dynamodb, (625,) if quick else (625, 2_500, 10_000)):
            subject = f"hour of {run['pods']:,} pods, end to end"
            seconds, worked = run["seconds"], run["cpu_seconds"]
            results += [
                Figure(f"{subject}: time, ÷ the same queries and writes", seconds, "s", seconds / run["ratio"], 1.5),
                Figure(f"{subject}: processor time, ÷ theirs", worked, "s", worked / run["cpu_ratio"]),
                Figure(f"{subject}: write units", run["write_units_per_hour"], aim=2_000),
                Figure(f"{subject}: peak memory", run["peak_memory_mib"], "MiB", aim=400),
            ]
        for run in backfills(client, 100, (1,), 300, 1) if quick else backfills(client, 100, (1, 4), 300, 2):
            worked = run["cpu_seconds"] / run["hours"]
            subject = f"backfill of {run['days']} days of {run['pods']} pods, an hour of it"
            seconds = run["seconds"] / run["hours"]
            results += [
                Figure(f"{subject}: processor time, ÷ floor's", worked, "s", worked / run["cpu_ratio"]),
                Figure(f"{subject}: time, ÷ the same queries alone", seconds, "s", seconds / run["ratio_to_queries"]),
                Figure(f"{subject}: write units", run["write_units_per_hour"]),
                Figure(
                    f"backfill of {run['days']} days of {run['pods']} pods", run["hours_per_second"], "hours a second"
                ),
            ]
    return results


def main() -> None:
    """Print tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, nargs="*", default=[625, 2_500, 10_000])
    parser.add_argument("--days", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--backfill-pods", type=int, default=100)
    parser.add_argument("--step", type=int, default=300, help="seconds between scrapes of the backfilled cluster")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each backfill and its floor")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with running_dynamodb() as dynamodb:
        client = local_client("dynamodb", dynamodb)
        single = hours(client, dynamodb, options.pods)
        many = backfills(client, options.backfill_pods, options.days, options.step, options.rounds)
    if options.json:
        print(json.dumps({"hours": single, "backfills": many}, indent=2))
        return
    for title, rows in (("one hour, end to end", single), ("backfill", many)):
        if rows:
            table = Printed(*rows[0], title=title)
            for row in rows:
                table.add_row(
                    *(f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for value in row.values())
                )
            Console(width=200).print(table)


if __name__ == "__main__":
    main()
