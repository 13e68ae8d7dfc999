"""What alerting costs on a large fleet: 500 business units, 20 rules, 10,000 pods (make bench).

One tick and one closed hour of the alert function's own services, on Amazon's DynamoDB Local, which counts read units
as the service does, and in a process of its own, whose memory is looked at. Fails where a budget is broken.
"""

import json
import logging
import random
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from benchmarks import large_ledger
from benchmarks.figures import Figure
from benchmarks.ledger import Metered
from devstack.aws import local_client
from devstack.dynamodb_local import create_table, running_dynamodb
from gpucost.core.hours import HOUR, month_bounds
from gpucost.core.ledger import HourSummary, Manifest
from gpucost.core.model import Capacity, Costs, Coverage, Line, Totals
from gpucost.core.rollups import DAY, DaySummary
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.ports import AlertSources, ClusterDayToDate, Notifier
from gpucost.features.alerting.rules.spend_change import DayToDate
from gpucost.features.alerting.service import AlertService
from gpucost.features.alerting.spend import pricing_fingerprint
from gpucost.features.alerting.storage.history import AlertHistory, SilenceStore
from gpucost.features.alerting.storage.spend import DynamoSpendStore
from gpucost.features.alerting.storage.states import DynamoAlertStates
from gpucost.runtime.messages import ClusterState, HourClosed, Tick
from gpucost.settings import Settings
from gpucost.settings_document import DocumentStore, parse_settings
from gpucost.storage.ledger import Ledger
from gpucost.storage.manifests import write_manifest
from gpucost.storage.rollups import RollupStore
from gpucost.storage.table import Table

UNITS, PODS, RULES = 500, 10_000, 20
MAX_READ_UNITS, MAX_MEGABYTES = 120, 256
CLUSTER = "large"
START = month_bounds(month_bounds(datetime.now(UTC))[0] - timedelta(days=1))[0]
"""The first moment of last month."""
DAYS = 27
"""The tick is of that many days later: four parts of a month are known, the newest is nearly full."""


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one call of the service took."""

    read_units: float
    seconds: float
    notifications: int


class CountingNotifier:
    """Counts what it is told."""

    max_batch_size = 10
    needs_resend = False

    def __init__(self) -> None:
        self.told = 0

    def send(self, notifications: Sequence[Notification]) -> None:
        """Take it."""
        self.told += len(notifications)


def document() -> str:
    """Twenty rules of all kinds, with budgets, changes and waste that one unit in fifty or so reaches."""
    overrides = [{"business_unit": unit_name(i), "monthly_usd": 10**8} for i in range(UNITS) if i % 50]
    rules: list[dict[str, Any]] = [
        {"rule": "budget", "monthly_usd": 20_000 * (one + 1), "overrides": overrides} for one in range(5)
    ]
    rules += [{"rule": "spend-change", "percent": 50, "usd": 100 * (one + 1), "weeks": 4} for one in range(4)]
    rules += [{"rule": "waste", "waste_usd_per_hour": 54, "waste_percent": 10 * one} for one in range(1, 4)]
    rules += [
        {"rule": "waste", "waste_usd_per_hour": 54, "waste_percent": 10 * one, "across_clusters": True}
        for one in range(1, 4)
    ]
    rules += [{"rule": "idle-workload", "gpus": gpus, "utilization_percent": 10} for gpus in (4, 8)]
    rules += [{"rule": "unallocated", "usd_per_hour": 500}, {"rule": "data", "coverage": 0.5}, {"rule": "digest"}]
    return json.dumps({
        "clusters": [{"name": CLUSTER, "prometheus": {"url": "http://127.0.0.1:9"}}],
        "pricing": {"source": "constant", "gpu_hourly_usd": 12},
        "business_units": [{"name": unit_name(i), "namespaces": [f"team-{i:03d}-*"]} for i in range(UNITS)],
        "alerts": {
            "rules": [{"name": f"rule-{number}", **rule} for number, rule in enumerate(rules)],
            "receivers": [{"type": "email"}],
        },
    })  # fmt: skip


def unit_name(number: int) -> str:
    """As companies name them."""
    return large_ledger.unit_name(number)


def lines() -> list[Line]:
    """One hour's pods, twenty of each unit."""
    return [
        line._replace(business_unit=unit_name(place % UNITS), namespace=f"team-{place % UNITS:03d}-prod")
        for place, line in enumerate(large_ledger.lines(pods=PODS))
    ]


def fill(client: Any, table: str, days: int) -> None:
    """A month's days as they are rolled up, the last hour in full, and four weeks' sums of this weekday.

    Only what is read is written: 500 units in each day's item, and the manifests of its hours.
    """
    ledger = Table(client, table)
    end = START + days * DAY
    for day in (START + DAY * number for number in range(days + 1)):
        hours = [day + HOUR * hour for hour in range(24 if day < end else 12)]
        manifests = [_manifest(hour) for hour in hours]
        ledger.put_all([write_manifest(one, one.hour + 1000 * DAY) for one in manifests])
        groups = write_day(client, table, day, manifests)
    spend, words = DynamoSpendStore(client, table), pricing_fingerprint(parse_settings(document()))
    for weeks in range(1, 5):
        for hour in range(10, 15):
            units = {
                unit: _usual(costs, is_odd=place % 50 == 0) for place, ((unit, _), costs) in enumerate(groups.items())
            }
            spend.put_day_to_date(CLUSTER, end + HOUR * hour - 7 * DAY * weeks, ClusterDayToDate(units, words))


def write_day(client: Any, table: str, day: datetime, manifests: Sequence[Manifest]) -> dict[tuple[str, str], Costs]:
    """A day's sums, as if its hours had come to them."""
    chance = random.Random(str(day))
    groups = {(unit_name(i), f"team-{i:03d}-prod"): large_ledger.costs(chance, 24 * 20) for i in range(UNITS)}
    totals = Totals(Costs.total(groups.values()), Capacity())
    whole = HourSummary(CLUSTER, day, "complete", 1, Coverage(Decimal(1), None), totals, groups)
    _Days(client, table).write_day(CLUSTER, day, manifests, [whole])
    return groups


class _Days(RollupStore):
    """Writes a day's item, and no unit's hours, which no rule reads."""

    def __init__(self, client: Any, table: str) -> None:
        super().__init__(client, table)
        self._table.put_all = lambda items: None  # type: ignore[method-assign]


def _manifest(hour: datetime) -> Manifest:
    run = f"1-{random.Random(str(hour)).randrange(16**16):016x}"
    return Manifest(
        CLUSTER, hour, "complete", 1, run, 1, Coverage(Decimal(1), Decimal("0.987654321")), 0, None, hour + HOUR
    )


def _usual(today: Costs, *, is_odd: bool) -> DayToDate:
    """What a unit had by now in other weeks: what it has today, or a third of that."""
    usd, gpu_hours = today.allocated_usd, today.allocated_gpu_hours
    return DayToDate(usd / 3, gpu_hours / 3) if is_odd else DayToDate(usd, gpu_hours)


class Fleet:
    """The service over a filled table."""

    def __init__(self, client: Any, table: str, days: int = DAYS) -> None:
        self.client, self.table, self.end = client, table, START + days * DAY
        fill(client, table, days)
        self.notifier = CountingNotifier()
        self.now = self.end
        DocumentStore(client, table, clock=lambda: self.now).push(document(), author="benchmark", now=self.now)

    def days(self) -> list[DaySummary]:
        """What budgets are summed from."""
        return RollupStore(self.client, self.table).days(CLUSTER, START, self.end + DAY)

    def publish(self, number: int, own: list[Line]) -> None:
        """An hour of the day under way, in full; the day is rolled up."""
        hour = self.end + HOUR * number
        ledger = Ledger(self.client, self.table)
        record = large_ledger.record(CLUSTER, hour, own)
        before = ledger.manifest(CLUSTER, hour)
        ledger.publish(record, replacing=before, settings_version=1, now=hour + HOUR)
        write_day(self.client, self.table, self.end, ledger.manifests(CLUSTER, self.end, hour + HOUR))

    def close_hour(self, number: int) -> CallCost:
        """Announce an hour."""
        hour = self.end + HOUR * number
        message = HourClosed(
            cluster=CLUSTER, hour=hour, status="complete", record_version=1, settings_version=1, origin="schedule",
            correlation_id="b",
        )  # fmt: skip
        return self._spent(lambda service: service.hour_closed(message), hour + HOUR)

    def tick(self, number: int) -> CallCost:
        """The schedule fires at the beginning of an hour."""
        at = self.end + HOUR * number + timedelta(minutes=5)
        state = ClusterState(cluster=CLUSTER, last_complete_hour=None, hours_overdue=0)
        message = Tick(scheduled_time=at, clusters=(state,), correlation_id="b")
        return self._spent(lambda service: service.tick(message), at)

    def _spent(self, run: Any, now: datetime) -> CallCost:
        self.now = now
        metered, told, began = Metered(self.client), self.notifier.told, time.perf_counter()
        own = (metered, self.table)
        sources = AlertSources(Ledger(*own), RollupStore(*own), DynamoSpendStore(*own), lambda: None, lambda: 0)
        service = AlertService(
            DocumentStore(*own, clock=lambda: self.now), sources, DynamoAlertStates(*own),
            AlertHistory(*own), SilenceStore(*own), self._receivers, clock=lambda: self.now,
        )  # fmt: skip
        metered.only_reads()
        run(service)
        return CallCost(metered.units, time.perf_counter() - began, self.notifier.told - told)

    def _receivers(self, settings: Settings) -> Mapping[str, Notifier]:
        return {"email": self.notifier}


def measure() -> tuple[dict[str, CallCost], dict[str, CallCost], float]:
    """Ticks, hours closed, and the peak of this process's memory in megabytes."""
    logging.disable(logging.INFO)  # a line for each alert would drown them
    with running_dynamodb() as url:
        client = local_client("dynamodb", url)
        create_table(client, "ledger")
        fleet, own = Fleet(client, "ledger"), lines()
        ticks, hours = {}, {}
        for number in range(12, 14):
            ticks[f"tick {number - 11} of a new installation"] = fleet.tick(number)
            fleet.publish(number, own)
        hours["an hour closes, units begin to waste"] = fleet.close_hour(13)
        ticks["a newer hour is there already"] = fleet.tick(14)
        ticks["the tick after"] = fleet.tick(15)
        fleet.publish(14, own)
        hours["an hour closes, they still do"] = fleet.close_hour(14)
    return ticks, hours, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def figures(quick: bool) -> list[Figure]:
    """Units and seconds of ticks and hours; the same whether quick or not."""
    ticks, hours, megabytes = measure()
    found = [Figure(f"{name}: read units", one.read_units, aim=MAX_READ_UNITS) for name, one in ticks.items()]
    found += [Figure(f"{name}: read units", one.read_units) for name, one in hours.items()]
    found += [Figure(f"{name}: time", one.seconds, "s") for name, one in (ticks | hours).items()]
    return [*found, Figure("alerts: peak memory, what fills the table included", megabytes, "MiB", aim=MAX_MEGABYTES)]


def main() -> None:
    """Print the figures."""
    ticks, hours, megabytes = measure()
    for what, spent in (ticks | hours).items():
        print(
            f"{what:<44}{spent.read_units:8.1f} read units{spent.seconds:8.2f} s{spent.notifications:8} notifications"
        )
    print(f"{'memory, all of it':<44}{megabytes:8.0f} MB")
    is_kept = all(one.read_units <= MAX_READ_UNITS for one in ticks.values()) and megabytes <= MAX_MEGABYTES
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
