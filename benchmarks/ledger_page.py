"""Writes the cost tables of docs/contributing/ledger.md from measurements of `ledger` and `aws_cost` (`--write`)."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import aws_cost
from benchmarks.aws_cost import INFREQUENT_ACCESS, METRICS, PRICES, Fleet, Measured, monthly, stored_gb
from benchmarks.ledger import KEPT, Budget

PAGE = Path(__file__).parents[1] / "docs/contributing/ledger.md"
ACCESS, COST = "units of each access", "what it costs on AWS"
"""The comments that precede the tables on the page."""
FLEETS = {
    "10,000 pods in 3 clusters": (Fleet(scale=1 / 3), False, PRICES),
    "the same, with AWS's free tier": (Fleet(scale=1 / 3), True, PRICES),
    "the same at infrequent access": (Fleet(scale=1 / 3), False, INFREQUENT_ACCESS),
    "3 clusters of 10,000 pods": (Fleet(), False, PRICES),
    "at infrequent access": (Fleet(), False, INFREQUENT_ACCESS),
}


def access_table(kept: Sequence[Budget]) -> str:
    """The cost of each access with its budget."""
    rows = [
        f"| {budget.access} | {budget.units:,.0f} | {budget.most_units:,.0f} | {budget.requests} | "
        f"{budget.most_requests or ''} |"
        for budget in kept
    ]
    return "\n".join(
        ["| access | units | budget | requests | budget |", "| --- | ---: | ---: | ---: | ---: |", *rows, ""]
    )


def cost_table(measured: Measured) -> str:
    """Dollars per month and year.

    Args:
        measured: of one cluster of 10,000 pods.
    """
    costs = [monthly(fleet, measured, free=free, prices=prices) for fleet, free, prices in FLEETS.values()]
    gb = "; ".join(f"{stored_gb(fleet, measured):.0f} GB" for fleet in (Fleet(scale=1 / 3), Fleet()))
    alarms = aws_cost.used(Fleet(), measured)["alarm_month"]
    millions = measured.samples_an_hour / 1e6
    parts = {
        f"DynamoDB writes, {measured.write_units_an_hour:,.0f} units an hour and 10,000 pods": ("dynamodb_write",),
        "DynamoDB reads": ("dynamodb_read",),
        f"DynamoDB storage ({gb})": ("dynamodb_gb_month",),
        "point-in-time recovery of it": ("dynamodb_recovery_gb_month",),
        f"Lambda, {measured.seconds_an_hour:.0f} s at 1 GB an hour and 10,000 pods (assumed); daily functions": (
            "lambda_gb_second",
            "lambda_request",
        ),
        "SQS, mostly empty polls": ("sqs_request",),
        "SNS, Scheduler, API Gateway, logs": ("sns_publish", "scheduler_invocation", "http_api_request", "logs_gb"),
        f"CloudWatch metrics, {METRICS} series": ("metric_month",),
        f"CloudWatch alarms on {alarms:.0f} metrics": ("alarm_month",),
        f"AMP query samples, {millions:.1f} million an hour and 10,000 pods": ("amp_sample",),
        "S3, exports of 7 years": ("s3_gb_month", "s3_infrequent_gb_month", "s3_archive_gb_month", "s3_object_month"),
    }
    left_out = PRICES.keys() - {name for names in parts.values() for name in names}
    if left_out:
        raise AssertionError(f"no row has {', '.join(sorted(left_out))}")
    rows = [_row(part, [f"{sum(cost[name] for name in names):.2f}" for cost in costs]) for part, names in parts.items()]
    totals = [sum(cost.values()) for cost in costs]
    return "\n".join(
        [
            _row("USD a month", list(FLEETS)),
            "| --- |" + " ---: |" * len(FLEETS),
            *rows,
            _row("**a month**", [f"**{total:,.0f}**" for total in totals]),
            _row("**a year**", [f"**{12 * total:,.0f}**" for total in totals]),
            "",
        ]
    )


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"


def kept_budgets() -> list[Budget]:
    """The committed measurements."""
    return [Budget(**fields) for fields in json.loads(KEPT.read_text())]


def tables() -> dict[str, str]:
    """Both tables by their comment, from the committed measurements."""
    return {ACCESS: access_table(kept_budgets()), COST: cost_table(aws_cost.measured_units()[10_000])}


def on_page(page: str, name: str) -> str:
    """A table of the page, or "" if its comment is missing."""
    match = re.search(rf"(?<=<!-- {name} -->\n)(\|.*\n)+", page)
    return match.group(0) if match else ""


def filled(page: str, tables: Mapping[str, str]) -> str:
    """The page with its tables replaced."""
    for name, table in tables.items():
        page = page.replace(f"<!-- {name} -->\n{on_page(page, name)}", f"<!-- {name} -->\n{table}")
    return page


def write() -> None:
    """Write the tables to the page."""
    PAGE.write_text(filled(PAGE.read_text(), tables()))
