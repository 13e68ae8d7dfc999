"""The cost of alerting on a large fleet: 500 business units, 20 rules, 10,000 pods (make bench).

Runs ticks and published hours with the alert function's services on Amazon's DynamoDB Local, which counts read units as
the service does, in a separate process, whose memory is measured. Fails if a limit is exceeded.
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
from gpucost.core.amounts import CapacityCosts, Costs, Totals
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.hour_record import Coverage, Line
from gpucost.core.hours import DAY, HOUR, month_bounds
from gpucost.core.ledger import DaySummary, HourSummary, Manifest
from gpucost.features.alerting.alert_service import AlertService
from gpucost.features.alerting.evaluation import estimates_check
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.ports import DayToDateSpend, Notifier, RuleInputs
from gpucost.features.alerting.storage import AlertHistory, DynamoAlertStateStore, DynamoSpendStore, SilenceStore
from gpucost.features.alerting.tick_figures import pricing_fingerprint
from gpucost.runtime.messages import AlertTick, ClusterState, HourPublished
from gpucost.settings import CoreSettings
from gpucost.settings_document import SettingsDocumentStore, parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.hour_versions import manifest_item
from gpucost.storage.ledger import Ledger
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb

UNITS, PODS, RULES = 500, 10_000, 20
MAX_READ_UNITS, MAX_MEGABYTES = 120, 256
CLUSTER = "large"
START = month_bounds(month_bounds(datetime.now(UTC))[0] - timedelta(days=1))[0]
"""Start of last month."""
DAYS = 27
"""The tick is this many days later: four parts of a month are stored, and the newest is nearly complete."""


@dataclass(frozen=True, slots=True)
class CallCost:
    """The cost of one call of the service."""

    read_units: float
    seconds: float
    notifications: int


class CountingNotifier:
    """Counts notifications."""

    needs_resend = False

    def __init__(self) -> None:
        self.received = 0

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        """Put ten notifications into a message."""
        return min(len(notifications), 10)

    def send(self, notifications: Sequence[Notification]) -> None:
        """Count the notifications."""
        self.received += len(notifications)


def document() -> str:
    """Return settings with twenty rules of all kinds, whose thresholds about one business unit in fifty reaches."""
    overrides = [{"business_unit": unit_name(i), "monthly_usd": 10**8} for i in range(UNITS) if i % 50]
    rules: list[dict[str, Any]] = [
        {"rule": "budget", "monthly_usd": 20_000 * factor, "overrides": overrides} for factor in range(1, 6)
    ]
    rules += [{"rule": "spend-change", "percent": 50, "usd": 100 * factor, "weeks": 4} for factor in range(1, 5)]
    rules += [{"rule": "waste", "waste_usd_per_hour": 54, "waste_percent": percent} for percent in (10, 20, 30)]
    rules += [
        {"rule": "waste", "waste_usd_per_hour": 54, "waste_percent": percent, "across_clusters": True}
        for percent in (10, 20, 30)
    ]
    rules += [{"rule": "idle-workload", "gpus": gpus, "utilization_percent": 10} for gpus in (4, 8)]
    rules += [{"rule": "unallocated", "usd_per_hour": 500}, {"rule": "data", "coverage": 0.5}, {"rule": "digest"}]
    return json.dumps(
        {
            "clusters": [{"name": CLUSTER, "prometheus": {"url": "http://127.0.0.1:9"}}],
            "pricing": {"source": "constant", "gpu_hourly_usd": 12},
            "business_units": [{"name": unit_name(i), "namespaces": [f"team-{i:03d}-*"]} for i in range(UNITS)],
            "alerts": {
                "rules": [{"name": f"rule-{number}", **rule} for number, rule in enumerate(rules)],
                "receivers": [{"type": "email"}],
            },
        }
    )


def unit_name(number: int) -> str:
    """Return a realistic name of a business unit."""
    return large_ledger.unit_name(number)


def lines() -> list[Line]:
    """Return the lines of one hour, twenty pods for each business unit."""
    return [
        line._replace(business_unit=unit_name(index % UNITS), namespace=f"team-{index % UNITS:03d}-prod")
        for index, line in enumerate(large_ledger.lines(pods=PODS))
    ]


def fill(client: Any, table: str, days: int) -> None:
    """A month's days as they are rolled up, the last hour in full, and four weeks' sums of this weekday.

    Only what is read is written: 500 units in each day's item, and the manifests of its hours.
    """
    ledger = DynamoDBTable(client, table)
    end = START + days * DAY
    for day in (START + DAY * number for number in range(days + 1)):
        hours = [day + HOUR * hour for hour in range(24 if day < end else 12)]
        manifests = [_manifest(hour) for hour in hours]
        ledger.put_all([manifest_item(manifest, manifest.hour + 1000 * DAY) for manifest in manifests])
        groups = write_day(client, table, day, manifests)
    spend, fingerprint = DynamoSpendStore(DynamoDBTable(client, table)), pricing_fingerprint(parse_settings(document()))
    for weeks in range(1, 5):
        for hour in range(10, 15):
            units = {
                unit: _usual(costs, is_unusual=index % 50 == 0)
                for index, ((unit, _), costs) in enumerate(groups.items())
            }
            spend.put_day_to_date(CLUSTER, end + HOUR * hour - 7 * DAY * weeks, DayToDateSpend(units, fingerprint))


def write_day(client: Any, table: str, day: datetime, manifests: Sequence[Manifest]) -> dict[tuple[str, str], Costs]:
    """Write a day's sums, as if they were the sums of its hours."""
    chance = random.Random(str(day))
    groups = {(unit_name(i), f"team-{i:03d}-prod"): large_ledger.costs(chance, 24 * 20) for i in range(UNITS)}
    totals = Totals(Costs.total(groups.values()), CapacityCosts())
    first, *others = manifests  # the first hour has all costs of the day
    empty = Totals(Costs(), CapacityCosts())
    summaries = [
        HourSummary(CLUSTER, day, (first,), totals, CostsByKey.of(groups)),
        *(HourSummary(CLUSTER, manifest.hour, (manifest,), empty, CostsByKey()) for manifest in others),
    ]
    _Days(DynamoDBTable(client, table)).write_day(CLUSTER, day, manifests, summaries)
    return groups


class _Days(RollupStore):
    """Writes a day's item without the hours of business units, which no rule reads."""

    def __init__(self, table: DynamoDBTable) -> None:
        super().__init__(table)
        self._table.put_all = lambda items: None  # type: ignore[method-assign]


def _manifest(hour: datetime) -> Manifest:
    run = f"1-{random.Random(str(hour)).randrange(16**16):016x}"
    return Manifest(
        CLUSTER,
        hour,
        "complete",
        1,
        run,
        1,
        Coverage(Decimal(1), Decimal("0.987654321")),
        0,
        None,
        hour + HOUR,
        summary_expires_at=hour + HOUR,  # the sums of past hours are read from the days only
    )


def _usual(today: Costs, *, is_unusual: bool) -> Costs:
    """Return a business unit's reference of other weeks: today's spend, or a third of it."""
    if not is_unusual:
        return today
    return Costs(allocated_usd=today.allocated_usd // 3, allocated_gpu_hours=today.allocated_gpu_hours // 3)


class Fleet:
    """The alert service over a filled table."""

    def __init__(self, client: Any, table: str, days: int = DAYS) -> None:
        self.client, self.table, self.end = client, table, START + days * DAY
        fill(client, table, days)
        self.notifier = CountingNotifier()
        self.now = self.end
        SettingsDocumentStore(DynamoDBTable(client, table), clock=lambda: self.now).push(
            document(), author="benchmark", now=self.now
        )

    def days(self) -> list[DaySummary]:
        """Return the days that budgets are summed from."""
        return RollupStore(DynamoDBTable(self.client, self.table)).days(CLUSTER, START, self.end + DAY)

    def publish(self, number: int, lines: list[Line]) -> None:
        """Publish an hour of the current day with all lines, and roll up the day."""
        hour = self.end + HOUR * number
        ledger = Ledger(DynamoDBTable(self.client, self.table))
        record = large_ledger.record(CLUSTER, hour, lines)
        previous = ledger.manifest(CLUSTER, hour)
        ledger.publish(record, replacing=previous, settings_version=1, now=hour + HOUR)
        write_day(self.client, self.table, self.end, ledger.manifests(CLUSTER, self.end, hour + HOUR))

    def close_hour(self, number: int) -> CallCost:
        """Send the message that an hour is published."""
        hour = self.end + HOUR * number
        message = HourPublished(
            cluster=CLUSTER,
            hour=hour,
            status="complete",
            record_version=1,
            settings_version=1,
            origin="schedule",
            correlation_id="b",
        )
        return self._measure(lambda service: service.handle_hour_published(message), hour + HOUR)

    def tick(self, number: int) -> CallCost:
        """Send the tick at the beginning of an hour."""
        at = self.end + HOUR * number + timedelta(minutes=5)
        state = ClusterState(cluster=CLUSTER, last_complete_hour=None, hours_overdue=0)
        message = AlertTick(scheduled_time=at, clusters=(state,), correlation_id="b")
        return self._measure(lambda service: service.handle_tick(message), at)

    def _measure(self, run: Any, now: datetime) -> CallCost:
        self.now = now
        metered, received, started_at = Metered(self.client), self.notifier.received, time.perf_counter()
        table = (metered, self.table)
        settings_store = SettingsDocumentStore(DynamoDBTable(*table), clock=lambda: self.now)
        rule_inputs = RuleInputs(
            Ledger(DynamoDBTable(*table)),
            RollupStore(DynamoDBTable(*table)),
            DynamoSpendStore(DynamoDBTable(*table)),
            lambda: None,
            lambda: 0,
            estimates_check(settings_store),
        )
        service = AlertService(
            settings_store,
            rule_inputs,
            DynamoAlertStateStore(DynamoDBTable(*table)),
            AlertHistory(DynamoDBTable(*table)),
            SilenceStore(DynamoDBTable(*table)),
            self._receivers,
            self._refuse_dead_letter,
            clock=lambda: self.now,
        )
        metered.only_reads()
        run(service)
        return CallCost(metered.units, time.perf_counter() - started_at, self.notifier.received - received)

    def _refuse_dead_letter(self, body: str, reason: str) -> None:
        raise AssertionError(f"dead letter: {reason}: {body}")

    def _receivers(self, settings: CoreSettings) -> Mapping[str, Notifier]:
        return {"email": self.notifier}


def measure() -> tuple[dict[str, CallCost], dict[str, CallCost], float]:
    """Return the cost of ticks and of published hours, and the peak of this process's memory in megabytes."""
    logging.disable(logging.INFO)  # there would be a line for each alert
    with running_dynamodb() as url:
        client = local_client("dynamodb", url)
        create_table(client, "ledger")
        fleet, hour_lines = Fleet(client, "ledger"), lines()
        ticks, hours = {}, {}
        for number in range(12, 14):
            ticks[f"tick {number - 11} of a new installation"] = fleet.tick(number)
            fleet.publish(number, hour_lines)
        hours["hour in which business units begin to waste"] = fleet.close_hour(13)
        ticks["tick with a newer hour published"] = fleet.tick(14)
        ticks["next tick"] = fleet.tick(15)
        fleet.publish(14, hour_lines)
        hours["hour in which they still waste"] = fleet.close_hour(14)
    return ticks, hours, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def figures(quick: bool) -> list[Figure]:
    """Return read units and seconds of ticks and hours; the same whether quick or not."""
    ticks, hours, megabytes = measure()
    return [
        *(Figure(f"{name}: read units", cost.read_units, aim=MAX_READ_UNITS) for name, cost in ticks.items()),
        *(Figure(f"{name}: read units", cost.read_units) for name, cost in hours.items()),
        *(Figure(f"{name}: time", cost.seconds, "s") for name, cost in (ticks | hours).items()),
        Figure("alerts: peak memory, including that of filling the table", megabytes, "MiB", aim=MAX_MEGABYTES),
    ]


def main() -> None:
    """Print the figures; exit with status 1 if a limit is exceeded."""
    ticks, hours, megabytes = measure()
    for name, cost in (ticks | hours).items():
        print(f"{name:<44}{cost.read_units:8.1f} read units{cost.seconds:8.2f} s{cost.notifications:8} notifications")
    print(f"{'peak memory':<44}{megabytes:8.0f} MB")
    is_within_limits = all(cost.read_units <= MAX_READ_UNITS for cost in ticks.values()) and megabytes <= MAX_MEGABYTES
    sys.exit(0 if is_within_limits else 1)


if __name__ == "__main__":
    main()
