"""What each statement of docs/how-to/exports.md and deploy.md must return, added up row by row in Python."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

Row = dict[str, Any]
Answer = list[tuple[Any, ...]]
NOVEMBER = "2026-11"
FIRST_DAY, LAST_DAY = date(2026, 11, 16), date(2026, 11, 22)


def groups(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by the values of some columns."""
    by_key: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        by_key[tuple(row[column] for column in columns)].append(row)
    return by_key


def total(rows: Iterable[Row], column: str) -> Any:
    """The sum of a column; None if no row has a value."""
    values = [row[column] for row in rows if row[column] is not None]
    return sum(values) if values else None


def held(rows: Iterable[Row]) -> list[Row]:
    """The rows of GPUs that pods held."""
    return [row for row in rows if row["x_CostPart"] == "allocated"]


def sums(rows: Iterable[Row], keys: Iterable[str], *columns: str) -> Answer:
    """A row for each group, with the sums of some columns."""
    return [(*key, *(total(group, column) for column in columns)) for key, group in groups(rows, *keys).items()]


def by_unit_and_month(rows: list[Row]) -> Answer:
    """What each business unit cost, by month, over all clusters."""
    return [
        (NOVEMBER, *row) for row in sums(held(rows), ["x_BusinessUnit"], "EffectiveCost", "x_UsedCost", "x_WasteCost")
    ]


def by_part(rows: list[Row]) -> Answer:
    """Each cluster's cost by part."""
    return sums(rows, ["x_Cluster", "x_CostPart"], "EffectiveCost", "x_GpuHours")


def top_wasters(rows: list[Row]) -> Answer:
    """The workloads with the most waste in the third week."""
    week = [row for row in held(rows) if FIRST_DAY <= row["ChargePeriodStart"].date() <= LAST_DAY]
    names = ["x_Cluster", "x_Namespace", "x_WorkloadKind", "x_Workload"]
    return [
        (*key, total(group, "x_WasteCost"), float(total(group, "x_EffectiveGpuHours") / total(group, "x_GpuHours")))
        for key, group in groups(week, *names).items()
    ]


def chargeback(rows: list[Row]) -> Answer:
    """Each business unit's cost, and its part of its cluster's idle cost."""
    answer: Answer = []
    for (cluster,), of_cluster in groups(rows, "x_Cluster").items():
        holders = groups(held(of_cluster), "x_BusinessUnit")
        idle_rows = [row for row in of_cluster if row["x_CostPart"] != "allocated"]
        idle = total(idle_rows, "EffectiveCost") if idle_rows else Decimal(0)
        costs = {unit: Fraction(total(group, "EffectiveCost") or 0) for (unit,), group in holders.items()}
        hours = {unit: Fraction(total(group, "x_GpuHours")) for (unit,), group in holders.items()}
        weights = costs if any(costs.values()) else hours
        for unit, weight in weights.items():
            share = None if idle is None else float(Fraction(idle) * weight / sum(weights.values()))
            answer.append((cluster, unit, total(holders[(unit,)], "EffectiveCost"), share))
        if not holders:
            answer.append((cluster, None, None, float(idle)))
    return answer


def by_label(rows: list[Row]) -> Answer:
    """The cost of each value of a label."""
    labeled = [{**row, "team": json.loads(row["AllocatedTags"] or "{}").get("team")} for row in held(rows)]
    return sums(labeled, ["team"], "EffectiveCost")


def node_hours(rows: list[Row]) -> Answer:
    """All rows of a node, each with its ratio."""
    return [
        (
            row["ChargePeriodStart"],
            row["AllocatedResourceName"],
            row["x_CostPart"],
            row["EffectiveCost"],
            str(json.loads(row["AllocatedMethodDetails"], parse_float=str)["Elements"][0]["AllocatedRatio"]),
        )
        for row in rows
        if row["ResourceName"] == "n0"
    ]


def unpriced(rows: list[Row]) -> Answer:
    """The GPU-hours without a price, by instance type."""
    without = [row for row in rows if row["EffectiveCost"] is None]
    return [
        (*key, len(group), total(group, "x_GpuHours"))
        for key, group in groups(without, "x_Cluster", "x_InstanceType").items()
    ]


def utilization(rows: list[Row]) -> Answer:
    """The utilization of each GPU model, where it was measured."""
    measured = [row for row in held(rows) if row["x_UtilizationSource"] in ("pod", "process", "shared")]
    return [
        (
            *key,
            float(
                total(group, "x_EffectiveGpuHours")
                / (total(group, "x_GpuHours") - (total(group, "x_UnmeasuredGpuHours") or 0))
            ),
        )
        for key, group in groups(measured, "x_GpuModel").items()
    ]


def tokens_by_month(rows: list[Row]) -> Answer:
    """What a million tokens of each model cost."""
    priced = [row for row in rows if row["x_Model"] is not None and row["x_UnpricedGpuHours"] == 0]
    return [
        (
            NOVEMBER,
            *key,
            total(group, "EffectiveCost"),
            total(group, "x_WasteCost"),
            float(
                10**6
                * Fraction(_cost_with_tokens(group))
                / (total(group, "x_PromptTokens") + total(group, "x_GeneratedTokens"))
            ),
        )
        for key, group in groups(priced, "x_Model").items()
    ]


def tokens_by_kind(rows: list[Row]) -> Answer:
    """What a million prompt tokens and a million generated tokens cost."""
    answer: Answer = []
    for key, group in groups((row for row in rows if row["x_UnpricedGpuHours"] == 0), "x_Model").items():
        weighted = total(group, "x_WeightedTokens")
        if weighted:
            prompt = float(10**6 * Fraction(_cost_with_tokens(group)) / Fraction(weighted))
            answer.append((*key, prompt, 5 * prompt))
    return answer


def _cost_with_tokens(rows: Iterable[Row]) -> Any:
    return sum(row["EffectiveCost"] - row["x_UnknownTokensCost"] for row in rows)


def of_readme(rows: list[Row]) -> Answer:
    """What each business unit cost."""
    return sums(held(rows), ["x_BusinessUnit"], "EffectiveCost")


EXPECTED: dict[str, tuple[str, Callable[[list[Row]], Answer]]] = {
    "What each business unit cost, by month, over all clusters": ("focus", by_unit_and_month),
    "Each cluster's cost by part: these rows add up to its node cost": ("focus", by_part),
    "Top wasters of a week": ("focus", top_wasters),
    "Chargeback: idle costs shared among the cluster's business units by allocated cost": ("focus", chargeback),
    "By a label of the pods": ("focus", by_label),
    "One node's hours: who held it, each with its part of the node's cost": ("focus", node_hours),
    "GPU-hours that still have no price, by instance type": ("focus", unpriced),
    "Utilization of each GPU model, where it was measured": ("focus", utilization),
    "What a million tokens of each model cost, by month, and which part of it was waiting": (
        "inference",
        tokens_by_month,
    ),
    "What a million prompt tokens and a million generated tokens cost, with the default weights 1 and 5": (
        "inference",
        tokens_by_kind,
    ),
    "deploy": ("focus", of_readme),
}
"""The table and the answer of each statement, by its first line."""
