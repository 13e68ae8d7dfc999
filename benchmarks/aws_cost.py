"""What running the system costs on AWS a month and a year, from measured units and published prices (make bench).

Units of the ledger are what Amazon's DynamoDB Local says that an hour and a day of 10,000 pods consume and store;
samples and seconds come from the other benchmarks. Prices are AWS's for us-east-1 in US dollars, without free tiers.
"""

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Printed

from benchmarks import large_ledger
from benchmarks.figures import Figure
from benchmarks.ledger import Metered
from gpucost.core.hours import DAY, HOUR
from gpucost.core.ledger import DEFAULT_RETENTION
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb
from gpucost_devstack.template import transformed_template

HOURS = 730
"""Hours in a month, as in AWS's calculator."""
GB = 10**9
DEFAULT_EXPORT_DAYS = 2557
"""Days that exports are kept (parameter ExportDays)."""
METRICS = 20
"""Metric series of the functions, independent of the fleet (tests/functions/test_operations.py)."""

PRICES = {
    "dynamodb_write": 0.625e-6,
    "dynamodb_read": 0.125e-6,
    "dynamodb_gb_month": 0.25,
    "dynamodb_recovery_gb_month": 0.20,
    "lambda_gb_second": 0.0000133334,
    "lambda_request": 0.20e-6,
    "sqs_request": 0.40e-6,
    "sns_publish": 0.50e-6,
    "scheduler_invocation": 1.00e-6,
    "http_api_request": 1.00e-6,
    "logs_gb": 0.50,
    "metric_month": 0.30,
    "alarm_month": 0.10,
    "amp_sample": 0.10e-9,
    "s3_gb_month": 0.023,
    "s3_infrequent_gb_month": 0.0125,
    "s3_archive_gb_month": 0.004,
    "s3_object_month": 2.5e-6,
}
"""us-east-1, on-demand, arm64: the pricing pages of each service (`PAGES`), as published for 2025; DynamoDB's are those
since 1 November 2024."""
INFREQUENT_ACCESS = {**PRICES, "dynamodb_write": 0.78e-6, "dynamodb_read": 0.155e-6, "dynamodb_gb_month": 0.10}
"""The same with DynamoDB's Standard-Infrequent Access (parameter TableClass), of which no storage is free."""
PAGES = {
    "dynamodb": "dynamodb/pricing/on-demand",
    "lambda": "lambda/pricing",
    "sqs": "sqs/pricing",
    "sns": "sns/pricing",
    "scheduler": "eventbridge/pricing",
    "http_api": "api-gateway/pricing",
    "logs": "cloudwatch/pricing",
    "metric": "cloudwatch/pricing",
    "alarm": "cloudwatch/pricing",
    "amp": "prometheus/pricing",
    "s3": "s3/pricing",
}
"""Under https://aws.amazon.com/, by the first word of a price's name."""
GPU_HOURLY = (2.50, 4.00)
"""USD per GPU-hour, for the bill's share of the spend: roughly an H100, reserved and on demand."""
AIM = 0.0001
"""The largest allowed share of the GPU spend."""
SIZES = (100, 1_000, 10_000)
HERE = Path(__file__).parent
KEPT, PAGE = HERE / "cost.json", HERE / "cost.md"
"""Measured units, and the page that is written from them."""


FREE = {
    "dynamodb_gb_month": 25,
    "lambda_gb_second": 400_000,
    "lambda_request": 10**6,
    "sqs_request": 10**6,
    "sns_publish": 10**6,
    "scheduler_invocation": 14 * 10**6,
    "logs_gb": 5,
    "metric_month": 10,
    "alarm_month": 10,
    "amp_sample": 200 * 10**9,
}
"""The monthly free tier that does not end after the first year."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The fleet. `scale` is pods ÷ 10,000 of one cluster: units and bytes grow with them."""

    clusters: int = 3
    scale: float = 1.0
    reports_a_day: int = 100
    """Month-long reports of all units, and as many of one unit's hours."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Units and bytes measured for a cluster of 10,000 pods and 200 business units."""

    write_units_an_hour: float
    read_units_an_hour: float
    """Units of publishing, and of the dispatcher's look-back."""
    read_units_a_day: float
    """Units of closing a day, whose facts are summed from all lines."""
    write_units_a_day: float
    hour_bytes: Mapping[str, float]
    """Stored each hour, by level of retention."""
    day_bytes: Mapping[str, float]
    """Stored each day, by level."""
    seconds_an_hour: float = 20.0
    """Of the function's time at 1 GB: 0.58 of a processor, for some 8 s of one and waiting for answers."""
    samples_an_hour: float = 2_900_000
    log_bytes_an_hour: float = 8_000
    report_read_units: float = 120
    daily_gb_seconds: float = 0.0
    """Of the functions export and recommend."""
    export_bytes_a_day: float = 0.0


def _size(item: Mapping[str, Any]) -> int:
    """An item's size as DynamoDB bills storage: names and values, plus 100 bytes."""
    total = 100
    for name, value in item.items():
        ((kind, content),) = value.items()
        total += len(name) + (len(content) // 2 + 2 if kind == "N" else 1 if kind == "BOOL" else len(content))
    return total


def _by_level(items: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    levels = {"lines": "lines", "nodes": "lines", "usage": "lines", "summaries": "hours", "unit": "hours"}
    sizes = dict.fromkeys(("lines", "hours", "days"), 0.0)
    for item in items:
        kind = item["pk"]["S"].split("#")[2]
        sizes[levels.get(kind, "days")] += _size(item)
    return sizes


def measure(pods: int = large_ledger.PODS) -> Measured:
    """Publish one hour and close one day of the large ledger, with so many pods.

    Of the facts of a day, those of all 2,000 workloads are counted whatever the pods.
    """
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - 3 * DAY
    with running_dynamodb() as url:
        client, table = local_client("dynamodb", url), "ledger"
        create_table(client, table)
        lines = large_ledger.lines(pods=pods)
        large_ledger.fill(client, table, "large", day, 0)  # 23 hours of the day, without lines
        before = _items(client, table)
        hour = day + 23 * HOUR
        record, usage = large_ledger.record("large", hour, lines), large_ledger.usage("large", hour, lines)
        writes = Metered(client)
        Ledger(DynamoDBTable(writes, table)).publish(
            record, replacing=None, settings_version=1, now=hour + HOUR, usage=usage
        )
        after = _items(client, table)
        hour_bytes = _by_level(item for key, item in after.items() if key not in before)
        rolled = Metered(client)
        rolled.only_writes()
        RollupStore(DynamoDBTable(rolled, table)).roll_up(
            "large", day, hour + HOUR / 2
        )  # as at each hour of a day under way
        look_back = Metered(client)
        Ledger(DynamoDBTable(look_back, table)).manifests("large", day - 13 * DAY, day + DAY)
        reads = Metered(client)
        Ledger(DynamoDBTable(reads, table)).lines("large", hour)
        # Of the look-back's 336 hours 24 are there; the day's sums are read again from 24 hours in its last one.
        hourly_reads = writes.reads + rolled.reads + look_back.units * 14
        closing = Metered(client)
        closing.only_writes()
        RollupStore(DynamoDBTable(closing, table)).roll_up("large", day, hour + DAY)
        large = {key: item for key, item in _items(client, table).items() if key not in after}
        # The facts of the day are those of one hour's lines here; a day has more workloads.
        start = day - 40 * DAY
        large_ledger.fill(client, table, "facts", start, 1)
        facts = [item for key, item in _items(client, table).items() if key[0].startswith("C#facts#facts")]
        kept = [item for key, item in large.items() if not key[0].startswith("C#large#facts")]
        return Measured(
            write_units_an_hour=writes.units - writes.reads + rolled.units,
            read_units_an_hour=hourly_reads,
            read_units_a_day=24 * reads.units,
            write_units_a_day=closing.units + sum(-(-_size(item) // 1024) for item in facts),
            hour_bytes=hour_bytes,
            day_bytes=_by_level([*kept, *facts]),
            # A tenth of a second plus what benchmarks.export and .recommendations measured for 10,000 pods: 37 and 20
            # seconds of a processor at 2 GB, 30.5 MB of files.
            seconds_an_hour=3 + 17 * pods / 10_000,
            samples_an_hour=290 * pods,
            daily_gb_seconds=4 + 2 * 57 * pods / 10_000,
            export_bytes_a_day=30.5e6 * pods / 10_000,
        )


def _items(client: Any, table: str) -> dict[tuple[str, str], Any]:
    pages = client.get_paginator("scan").paginate(TableName=table)
    return {(item["pk"]["S"], item["sk"]["S"]): item for page in pages for item in page["Items"]}


def stored_gb(fleet: Fleet, measured: Measured) -> float:
    """In the long run, when expired data equals written data."""
    days = {name: getattr(DEFAULT_RETENTION, name).days for name in ("lines", "hours", "days")}
    each = sum((24 * measured.hour_bytes[level] + measured.day_bytes[level]) * days[level] for level in days)
    return float(fleet.clusters * fleet.scale * each / GB)


def used(fleet: Fleet, measured: Measured) -> dict[str, float]:
    """Consumption of a month, by price.

    Args:
        fleet: what is run.
        measured: of one cluster of 10,000 pods.
    """
    size, days = fleet.clusters * fleet.scale, HOURS / 24
    reports = 2 * days * fleet.reports_a_day
    reads = size * (HOURS * measured.read_units_an_hour + days * measured.read_units_a_day)
    gb = stored_gb(fleet, measured)
    polls = HOURS * 3600 / 20 * 5 * 2  # five long polls at a time on each of two queues, whether there is work or not
    # S3 Intelligent-Tiering moves objects without reads after 30 and 90 days.
    export_gb = size * measured.export_bytes_a_day / GB
    bodies = transformed_template()["Resources"].values()
    alarms = sum(_metrics(body["Properties"]) for body in bodies if body["Type"] == "AWS::CloudWatch::Alarm")
    return {
        "dynamodb_write": size * (HOURS * measured.write_units_an_hour + days * measured.write_units_a_day),
        "dynamodb_read": reads + reports * measured.report_read_units * fleet.clusters,
        "dynamodb_gb_month": gb,
        "dynamodb_recovery_gb_month": gb,
        "lambda_gb_second": size * HOURS * measured.seconds_an_hour
        + 3 * HOURS
        + reports  # 1 s a report
        + size * days * measured.daily_gb_seconds,
        "lambda_request": HOURS * (2 + 2 * fleet.clusters) + reports,  # dispatch, prices; attribute, alert; api
        "sqs_request": polls + 3 * HOURS * fleet.clusters,
        "sns_publish": HOURS * (1 + fleet.clusters),
        "scheduler_invocation": 2 * HOURS,
        "http_api_request": reports,
        "logs_gb": HOURS * fleet.clusters * measured.log_bytes_an_hour / GB,
        "metric_month": METRICS,
        "alarm_month": alarms,
        "amp_sample": size * HOURS * measured.samples_an_hour,
        "s3_gb_month": export_gb * 30,
        "s3_infrequent_gb_month": export_gb * 60,
        "s3_archive_gb_month": export_gb * (DEFAULT_EXPORT_DAYS - 90),
        "s3_object_month": 2 * fleet.clusters * DEFAULT_EXPORT_DAYS if export_gb else 0,
    }


def _metrics(alarm: Mapping[str, Any]) -> int:
    """Number of metrics of an alarm, which determines its price."""
    return max(1, sum("MetricStat" in metric for metric in alarm.get("Metrics", [])))


def monthly(
    fleet: Fleet, measured: Measured, *, free: bool = False, prices: Mapping[str, float] = PRICES
) -> dict[str, float]:
    """Dollars per month, by price.

    Args:
        fleet: what is run.
        measured: of one cluster of 10,000 pods.
        free: subtract the permanent monthly free tier, as if nothing else in the account used it.
        prices: `PRICES` or `INFREQUENT_ACCESS`.
    """
    return {
        name: max(0.0, amount - (FREE.get(name, 0) if free else 0)) * prices[name]
        for name, amount in used(fleet, measured).items()
    }


def measured_units() -> dict[int, Measured]:
    """The committed measurements."""
    return {int(gpus): Measured(**fields) for gpus, fields in json.loads(KEPT.read_text()).items()}


def share(gpus: int, measured: Measured, gpu_hourly: float) -> float:
    """The bill ÷ the cost of the GPUs."""
    return sum(monthly(Fleet(clusters=1), measured).values()) / (gpus * HOURS * gpu_hourly)


def page(measurements: Mapping[int, Measured]) -> str:
    """`cost.md`."""
    costs = {gpus: monthly(Fleet(clusters=1), measured) for gpus, measured in measurements.items()}
    head = " | ".join(f"{gpus:,} GPUs" for gpus in measurements)
    rows = [
        f"| {part.replace('_', ' ')} | {price:.10g} | "
        + " | ".join(f"{costs[g][part]:.2f}" for g in measurements)
        + " |"
        for part, price in PRICES.items()
    ]
    totals = {gpus: sum(parts.values()) for gpus, parts in costs.items()}
    shares = [
        f"| share of the GPU spend at ${price:.2f} a GPU-hour | | "
        + " | ".join(f"{share(gpus, measured, price):.4%}" for gpus, measured in measurements.items())
        + " |"
        for price in GPU_HOURLY
    ]
    pages = ", ".join(f"<https://aws.amazon.com/{price_page}/>" for price_page in sorted(set(PAGES.values())))
    units = [
        f"| {gpus:,} | {measured.write_units_an_hour:,.0f} | {measured.read_units_an_hour:,.0f} | "
        f"{measured.write_units_a_day:,.0f} | {measured.read_units_a_day:,.0f} | "
        f"{stored_gb(Fleet(clusters=1), measured):.1f} |"
        for gpus, measured in measurements.items()
    ]
    return "\n".join(
        [
            "# What it costs on AWS",
            "",
            "This page is for people who plan a deployment. `python -m benchmarks.aws_cost --write` writes it; do not "
            "edit it. The cost is in USD per month of 730 hours, for one cluster with one GPU per pod, 200 business "
            "units and 200 month-long reports a day. It is the cost in the long run, when as much data expires as "
            "is written, without AWS's free tier. Amazon's DynamoDB Local reports the units and bytes of an hour and a "
            "day of this size. All figures are random with twelve digits; real ones compress better. Seconds of "
            "Lambda and bytes of exports are scaled from measurements at 10,000 pods. Queries read 290 samples per "
            "pod and hour.",
            "",
            f"Prices are AWS's for us-east-1, on demand, arm64, as published for 2025: {pages}.",
            "",
            f"| USD a month | price per unit | {head} |",
            "| --- | ---: |" + " ---: |" * len(measurements),
            *rows,
            "| **a month** | | " + " | ".join(f"**{totals[gpus]:.2f}**" for gpus in measurements) + " |",
            *shares,
            "",
            f"The aim is less than {AIM:.2%} of the GPU spend.",
            "",
            "| GPUs | write units an hour | read units an hour | write units a day | read units a day | GB stored |",
            "| ---: | ---: | ---: | ---: | ---: | ---: |",
            *units,
            "",
        ]
    )


def figures(quick: bool) -> list[Figure]:
    """Measure the largest size again, and compute the bill of all committed sizes."""
    measurements = measured_units()
    measured_now = measure(1_000 if quick else 10_000)
    subject = "hour of 1,000 pods" if quick else "hour of 10,000 pods"
    bills = [
        Figure(
            f"AWS bill a month, {gpus:,} GPUs, ÷ GPU spend at $2.50 (%)",
            100 * share(gpus, measured, 2.5),
            "%",
            aim=100 * AIM,
        )
        for gpus, measured in measurements.items()
    ]
    return [Figure(f"{subject}: write units", measured_now.write_units_an_hour, aim=2_000), *bills]


def main() -> None:
    """Print a table, or JSON, or write the pages."""
    from benchmarks import ledger_page

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--write", action="store_true", help="measure again, write cost.json, cost.md and docs/contributing/ledger.md"
    )
    options = parser.parse_args()
    if options.write:
        KEPT.write_text(json.dumps({gpus: asdict(measure(gpus)) for gpus in SIZES}, indent=2) + "\n")
        PAGE.write_text(page(measured_units()))
        ledger_page.write()
        return
    measured = measure()
    fleets = ledger_page.FLEETS
    costs = {name: monthly(fleet, measured, free=free, prices=prices) for name, (fleet, free, prices) in fleets.items()}
    if options.json:
        print(json.dumps({"measured": asdict(measured), "monthly": costs}, indent=2))
        return
    table = Printed("USD a month", *fleets, title="AWS, us-east-1, in the long run")
    for part in PRICES:
        table.add_row(part, *(f"{costs[name][part]:.2f}" for name in fleets))
    table.add_section()
    table.add_row("a month", *(f"{sum(costs[name].values()):.2f}" for name in fleets))
    table.add_row("a year", *(f"{12 * sum(costs[name].values()):.0f}" for name in fleets))
    table.add_row("GB stored", *(f"{stored_gb(fleet, measured):.1f}" for fleet, *_ in fleets.values()))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
