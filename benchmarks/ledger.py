"""Cost of each access to the ledger of a large fleet, in DynamoDB units (make bench).

Runs on Amazon's DynamoDB Local, which counts units as the service does (`ReturnConsumedCapacity`). Prints a line per
access with its budget, and fails if a budget is exceeded.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import large_ledger
from benchmarks.figures import Figure
from gpucost.core.hours import DAY, HOUR
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb

MONTH = 31
DAYS, CLUSTERS = 35, 3
"""Days that are filled before a month of a cluster is read."""
KEPT = Path(__file__).parent / "ledger.json"
"""Committed measurements, for docs/contributing/ledger.md."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One access, with its budget and its measured cost."""

    access: str
    most_units: float
    most_requests: int | None
    units: float
    requests: int

    def is_within_budget(self) -> bool:
        """Whether both are within their bounds."""
        return self.units <= self.most_units and (self.most_requests is None or self.requests <= self.most_requests)


class Metered:
    """The real client, counting requests and the units they consume."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.requests = 0
        self.units = 0.0
        self.reads = 0.0
        """Units of reads, whether counted in `units` or not."""
        self._ignored: set[str] = set()

    def only_writes(self) -> None:
        """Stop counting reads."""
        self._ignored = {"get_item", "query"}

    def only_reads(self) -> None:
        """Stop counting writes."""
        self._ignored = {"put_item", "batch_write_item", "update_item", "transact_write_items"}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            answer = getattr(self._client, name)(**arguments, ReturnConsumedCapacity="TOTAL")
            capacity = answer.get("ConsumedCapacity", [])
            self.requests += 1
            units = sum(
                consumed["CapacityUnits"] for consumed in (capacity if isinstance(capacity, list) else [capacity])
            )
            self.reads += units if name in {"get_item", "query"} else 0.0
            self.units += 0.0 if name in self._ignored else units
            return answer

        return call


def measure(client: Any, table: str, cluster: str, start: datetime, days: int = MONTH) -> Iterator[Budget]:
    """Run every access once on a ledger that `large_ledger.fill` wrote from `start` on.

    Where it holds fewer days than a month, those budgets shrink with it.
    """

    def measure_access(access: str, most: float, requests: int | None, run: Callable[[Any], object]) -> Budget:
        metered = Metered(client)
        run(metered)
        if access.endswith("one month") and days < MONTH:
            most = most * days / MONTH + metered.requests  # each rounds up by less than one unit
        return Budget(access, most, requests, metered.units, metered.requests)

    end = start + days * DAY
    last = end + 23 * HOUR
    unit = large_ledger.unit_name(7)
    lines = large_ledger.lines()

    def write(metered: Any) -> None:
        record, usage = large_ledger.record(cluster, last, lines), large_ledger.usage(cluster, last, lines)
        Ledger(DynamoDBTable(metered, table)).publish(
            record, replacing=None, settings_version=1, now=last + HOUR, usage=usage
        )
        metered.only_writes()
        RollupStore(DynamoDBTable(metered, table)).roll_up(cluster, end, last)

    yield measure_access(
        "all units, by day, one month",
        100,
        10,
        lambda to: RollupStore(DynamoDBTable(to, table)).days(cluster, start, end),
    )
    yield measure_access(
        "one unit, by hour, one month",
        60,
        5,
        lambda to: RollupStore(DynamoDBTable(to, table)).unit_hours(cluster, unit, start, end),
    )
    yield measure_access(
        "all day facts, one month",
        600,
        None,
        lambda to: RollupStore(DynamoDBTable(to, table)).facts(cluster, start, end),
    )
    yield measure_access(
        "one unit's day facts, one month",
        100,
        5,
        lambda to: RollupStore(DynamoDBTable(to, table)).facts(cluster, start, end, unit),
    )
    yield measure_access(
        "which hours are missing or due, 7 days",
        10,
        1,
        lambda to: Ledger(DynamoDBTable(to, table)).manifests(cluster, end - 7 * DAY, end),
    )
    yield measure_access(
        "writing a day's last hour, 10,000 pods: lines, usage, nodes, the day's sums", 2_000, None, write
    )
    yield measure_access(
        "one unit, one hour, down to 50 pods",
        4,
        3,
        lambda to: Ledger(DynamoDBTable(to, table)).lines(cluster, last, unit),
    )


def filled_and_measured(days: int, clusters: int) -> list[Budget]:
    """Fill a new table, and measure one of its clusters."""
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - days * DAY
    with running_dynamodb() as url:
        client = local_client("dynamodb", url)
        create_table(client, "ledger")
        for number in range(clusters):
            large_ledger.fill(client, "ledger", f"cluster-{number}", start, days, seed=number)
        newest = min(days, MONTH)
        return list(measure(client, "ledger", "cluster-0", start + (days - newest) * DAY, newest))


def figures(quick: bool) -> list[Figure]:
    """Units and requests of every access."""
    figures = []
    for budget in filled_and_measured(7, 1) if quick else filled_and_measured(DAYS, CLUSTERS):
        figures.append(Figure(f"{budget.access}: units", budget.units, aim=budget.most_units))
        if budget.most_requests is not None:
            figures.append(Figure(f"{budget.access}: requests", budget.requests, aim=budget.most_requests))
    return figures


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--clusters", type=int, default=CLUSTERS)
    parser.add_argument(
        "--write", action="store_true", help="write ledger.json and the table of docs/contributing/ledger.md, too"
    )
    options = parser.parse_args()
    console = Console()
    with console.status("filling"):
        budgets = filled_and_measured(options.days, options.clusters)
    table = Table("access", "units", "budget", "requests", "budget")
    for budget in budgets:
        most = "" if budget.most_requests is None else str(budget.most_requests)
        table.add_row(budget.access, f"{budget.units:.1f}", f"{budget.most_units:g}", str(budget.requests), most)
    console.print(table)
    if options.write:
        from benchmarks import ledger_page

        KEPT.write_text(json.dumps([asdict(budget) for budget in budgets], indent=2) + "\n")
        ledger_page.write()
    sys.exit(0 if all(budget.is_within_budget() for budget in budgets) else 1)


if __name__ == "__main__":
    main()
