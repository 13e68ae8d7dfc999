"""A day of the bill as one document: by instance, consecutive hours of the same figures as one row.

Ids hardly compress and figures mostly stay from hour to hour, so a day takes little more than an hour would.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from gpucost.core.model import ClusterCharge
from gpucost.core.pricing.bill import Bill, BilledHour

Day = Mapping[int, Bill]
"""Bills by hour of the day."""


def day_document(day: Day) -> dict[str, Any]:
    """A day in types that JSON has; decimals as text, exact."""
    instances: dict[str, dict[int, tuple[Any, ...]]] = {}
    charges: dict[tuple[str, str, str, str], dict[int, tuple[Any, ...]]] = {}
    for hour, bill in sorted(day.items()):
        for instance_id, one in bill.instances.items():
            figures = (_text(one.amount), one.currency, one.billed_ms, int(one.is_final), _text(one.unblended))
            instances.setdefault(instance_id, {})[hour] = figures
        for cluster, of_cluster in bill.charges.items():
            for charge in of_cluster:
                key = (cluster, charge.kind, charge.reference, charge.currency)
                charges.setdefault(key, {})[hour] = (_text(charge.amount), _text(charge.gpu_hours))
    return {
        "hours": {str(hour): int(bill.is_final) for hour, bill in sorted(day.items())},
        "instances": {instance_id: _runs(rows) for instance_id, rows in sorted(instances.items())},
        "charges": [[*key, _runs(rows)] for key, rows in sorted(charges.items())],
    }


def read_day(document: Mapping[str, Any]) -> dict[int, Bill]:
    """Back from `day_document`; charges in order of cluster, kind, reference and currency."""
    instances: dict[int, dict[str, BilledHour]] = {int(hour): {} for hour in document["hours"]}
    charges: dict[int, dict[str, list[ClusterCharge]]] = {int(hour): {} for hour in document["hours"]}
    for instance_id, runs in document["instances"].items():
        for first, count, amount, currency, billed_ms, is_final, unblended in runs:
            one = BilledHour(Decimal(amount), currency, billed_ms, bool(is_final), _decimal(unblended))
            for hour in range(first, first + count):
                instances[hour][instance_id] = one
    for cluster, kind, reference, currency, runs in document["charges"]:
        for first, count, amount, gpu_hours in runs:
            charge = ClusterCharge(kind, reference, Decimal(amount), currency, _decimal(gpu_hours))
            for hour in range(first, first + count):
                charges[hour].setdefault(cluster, []).append(charge)
    return {
        int(hour): Bill(instances[int(hour)], charges[int(hour)], bool(is_final))
        for hour, is_final in document["hours"].items()
    }


def _runs(by_hour: Mapping[int, tuple[Any, ...]]) -> list[list[Any]]:
    """First hour, how many, and the figures that they share."""
    runs: list[list[Any]] = []
    for hour, figures in sorted(by_hour.items()):
        if runs and hour == runs[-1][0] + runs[-1][1] and tuple(runs[-1][2:]) == figures:
            runs[-1][1] += 1
        else:
            runs.append([hour, 1, *figures])
    return runs


def _text(value: Decimal | None) -> str | None:
    return None if value is None else format(value, "f")


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
