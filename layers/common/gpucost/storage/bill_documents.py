"""Writes a day of the bill as one document: by instance, with one row for consecutive hours of the same figures.

Instance ids hardly compress, and figures rarely change from hour to hour, so a day is little larger than an hour.
"""

from collections.abc import Mapping
from typing import Any

from gpucost.core.hour_record import ClusterCharge
from gpucost.core.pricing.bill import Bill, BilledHour

BillsOfDay = Mapping[int, Bill]
"""Bills by hour of the day."""


def bill_day_document(day: BillsOfDay) -> dict[str, Any]:
    """Return a day as JSON types."""
    instances: dict[str, dict[int, tuple[Any, ...]]] = {}
    charges: dict[tuple[str, str, str, str], dict[int, tuple[Any, ...]]] = {}
    for hour, bill in sorted(day.items()):
        for instance_id, billed in bill.instances.items():
            figures: tuple[Any, ...] = (
                billed.amount,
                billed.currency,
                billed.billed_ms,
                int(billed.is_final),
                billed.unblended_amount,
            )
            if billed.is_block_fee:
                figures += (1,)
            instances.setdefault(instance_id, {})[hour] = figures
        for cluster, cluster_charges in bill.charges.items():
            for charge in cluster_charges:
                key = (cluster, charge.kind, charge.reference, charge.currency)
                charges.setdefault(key, {})[hour] = (charge.amount, charge.gpu_hours)
    return {
        "hours": {str(hour): int(bill.is_final) for hour, bill in sorted(day.items())},
        "instances": {instance_id: _runs_of_hours(rows) for instance_id, rows in sorted(instances.items())},
        "charges": [[*key, _runs_of_hours(rows)] for key, rows in sorted(charges.items())],
    }


def read_bill_day(document: Mapping[str, Any]) -> dict[int, Bill]:
    """Read what `bill_day_document` returned. Charges are in order of cluster, kind, reference and currency."""
    instances: dict[int, dict[str, BilledHour]] = {int(hour): {} for hour in document["hours"]}
    charges: dict[int, dict[str, list[ClusterCharge]]] = {int(hour): {} for hour in document["hours"]}
    for instance_id, runs in document["instances"].items():
        for first, count, amount, currency, billed_ms, is_final, unblended, *is_block_fee in runs:
            billed = BilledHour(amount, currency, billed_ms, bool(is_final), unblended, bool(is_block_fee))
            for hour in range(first, first + count):
                instances[hour][instance_id] = billed
    for cluster, kind, reference, currency, runs in document["charges"]:
        for first, count, amount, gpu_hours in runs:
            charge = ClusterCharge(kind, reference, amount, currency, gpu_hours)
            for hour in range(first, first + count):
                charges[hour].setdefault(cluster, []).append(charge)
    return {
        int(hour): Bill(instances[int(hour)], charges[int(hour)], bool(is_final))
        for hour, is_final in document["hours"].items()
    }


def _runs_of_hours(by_hour: Mapping[int, tuple[Any, ...]]) -> list[list[Any]]:
    """Return rows of first hour, number of hours, and the figures that these hours share."""
    runs: list[list[Any]] = []
    for hour, figures in sorted(by_hour.items()):
        if runs and hour == runs[-1][0] + runs[-1][1] and tuple(runs[-1][2:]) == figures:
            runs[-1][1] += 1
        else:
            runs.append([hour, 1, *figures])
    return runs
