"""Rules of FOCUS 1.3 for Cost and Usage rows, written from the specification, in its terms.

The well-kept validator (`focus-validator`) brings the rules of 1.2 alone and loads those of 1.3 from the network; what
these rows are described in docs/decisions/0034.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

Row = Mapping[str, Any]


def _names(text: str) -> list[str]:
    return text.split()


NEVER_NULL = _names("""
BilledCost BillingAccountId BillingCurrency BillingPeriodEnd BillingPeriodStart ChargeCategory ChargeFrequency
ChargePeriodEnd ChargePeriodStart ContractedCost EffectiveCost HostProviderName InvoiceIssuerName ListCost ProviderName
PublisherName ServiceCategory ServiceName ServiceProviderName ServiceSubcategory
""")
MANDATORY = [*NEVER_NULL, "BillingAccountName", "ChargeClass", "ChargeDescription", "PricingQuantity", "PricingUnit"]
SPLIT = _names("AllocatedMethodDetails AllocatedMethodId AllocatedResourceId AllocatedResourceName AllocatedTags")
FOCUS_COLUMNS = {
    *MANDATORY,
    *SPLIT,
    "AvailabilityZone",
    "BillingAccountType",
    "CapacityReservationId",
    "CapacityReservationStatus",
    "CommitmentDiscountCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountName",
    "CommitmentDiscountQuantity",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "CommitmentDiscountUnit",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractApplied",
    "ContractedUnitPrice",
    "InvoiceId",
    "ListUnitPrice",
    "PricingCategory",
    "PricingCurrency",
    "PricingCurrencyContractedUnitPrice",
    "PricingCurrencyEffectiveCost",
    "PricingCurrencyListUnitPrice",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "SubAccountType",
    "Tags",
}
"""All columns of the dataset."""
ALLOWED = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "CapacityReservationStatus": {"Used", "Unused"},
    "CommitmentDiscountCategory": {"Spend", "Usage"},
    "CommitmentDiscountStatus": {"Used", "Unused"},
}
TOGETHER = (
    ("CapacityReservationId", "CapacityReservationStatus"),
    ("CommitmentDiscountId", "CommitmentDiscountCategory"),
    ("CommitmentDiscountId", "CommitmentDiscountStatus"),
    ("CommitmentDiscountId", "CommitmentDiscountType"),
    ("CommitmentDiscountQuantity", "CommitmentDiscountUnit"),
    ("ConsumedQuantity", "ConsumedUnit"),
    ("PricingQuantity", "PricingUnit"),
    ("RegionId", "RegionName"),
    ("ResourceId", "ResourceType"),
)
"""Both null, or neither (where the charge is of usage)."""
OF_THE_ORIGIN = (
    "BillingAccountId",
    "BillingCurrency",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargeCategory",
    "ChargePeriodEnd",
    "ConsumedUnit",
    "PricingUnit",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "Tags",
)


def columns_violated(names: Sequence[str]) -> list[str]:
    """Errors in the set of columns."""
    violations = [f"{name} MUST be present" for name in [*MANDATORY, *SPLIT] if name not in names]
    for name in names:
        if name not in FOCUS_COLUMNS and not re.fullmatch(r"x_[A-Z][A-Za-z0-9]*", name):
            violations.append(f"{name} is no column of FOCUS and MUST be prefixed with x_, in PascalCase")
    return violations


def violated(rows: Sequence[Row]) -> list[str]:
    """Errors in rows, each with its count."""
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        for violation in _of_row(row):
            counts[violation] += 1
    for of_split in _of_splits(rows):
        counts[of_split] += 1
    return [f"{violation} ({times} times)" for violation, times in sorted(counts.items())]


def _of_row(row: Row) -> Iterator[str]:
    for name in NEVER_NULL:
        if row[name] is None:
            yield f"{name} MUST NOT be null"
    for name, allowed in ALLOWED.items():
        if row[name] is not None and row[name] not in allowed:
            yield f"{name} MUST be one of the allowed values"
    for first, other in TOGETHER:
        if (row[first] is None) != (row[other] is None):
            yield f"{other} MUST be null exactly where {first} is"
    for name, value in row.items():
        if not name.startswith("x_"):
            yield from _of_value(name, value)
    if not re.fullmatch(r"[A-Z]{3}", row["BillingCurrency"] or ""):
        yield "BillingCurrency MUST be an ISO 4217 code"
    if row["BilledCost"]:
        yield "BilledCost MUST be 0 in charges of who does not invoice them"
    if row["ChargeCategory"] == "Usage" and row["PricingQuantity"] is None:
        yield "PricingQuantity MUST NOT be null for usage"
    unused = row["CommitmentDiscountStatus"] == "Unused"
    if unused != (row["ConsumedQuantity"] is None):
        yield "ConsumedQuantity MUST be null exactly for the unused part of a commitment"
    if row["ResourceName"] is not None and row["ResourceName"] == row["ResourceId"]:
        yield "ResourceName MUST NOT duplicate ResourceId"
    yield from _of_times(row)
    yield from _of_split_row(row)


def _of_value(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value == "":
            yield f"{name} MUST be null and not empty"
        if not value.isascii() and name in {"BillingAccountId", "ChargeDescription", "ResourceId", "ServiceName"}:
            yield f"{name} MUST contain ASCII characters only"
        if value != value.strip():
            yield f"{name} MUST NOT begin or end with a space"
    elif isinstance(value, datetime):
        if value.utcoffset() not in (None, timedelta(0)):
            yield f"{name} MUST be in UTC"
    elif value is not None and not isinstance(value, Decimal):
        yield f"{name} MUST be a decimal"


def _of_times(row: Row) -> Iterator[str]:
    start, end = row["BillingPeriodStart"], row["BillingPeriodEnd"]
    if (start.day, start.hour, end.day, end.hour) != (1, 0, 1, 0) or not start < end <= start + timedelta(days=31):
        yield "a billing period MUST be a month, its end exclusive"
    if not start <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= end:
        yield "a charge period MUST lie in its billing period, its end exclusive"


def _of_split_row(row: Row) -> Iterator[str]:
    if row["AllocatedMethodId"] is None:
        for name in SPLIT:
            if row[name] is not None:
                yield f"{name} MUST be null where nothing is split"
        return
    if (row["AllocatedResourceId"] is None) != (row["AllocatedResourceName"] is None):
        yield "AllocatedResourceName MUST be null where AllocatedResourceId is"
    if row["AllocatedTags"] is not None:
        tags = json.loads(row["AllocatedTags"])
        if not all(isinstance(value, str | int | bool) for value in tags.values()):
            yield "AllocatedTags MUST be keys and plain values"
        if row["AllocatedResourceId"] is None:
            yield "AllocatedTags are of an allocated resource"
    if row["AllocatedMethodDetails"] is not None:
        details = json.loads(row["AllocatedMethodDetails"])
        for element in details["Elements"]:
            focus_keys = {key for key in element if not key.startswith("x_")}
            if not {"AllocatedRatio"} <= focus_keys <= {"AllocatedRatio", "UsageUnit", "UsageQuantity"}:
                yield "an element of AllocatedMethodDetails MUST have AllocatedRatio and FOCUS's keys"
            if "UsageQuantity" in focus_keys and "UsageUnit" not in focus_keys:
                yield "UsageUnit MUST be present with UsageQuantity"


def origins(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """The rows of each origin charge: a resource in a charge period."""
    rows_by_origin: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["AllocatedMethodId"] is not None:
            rows_by_origin[row["x_Cluster"], row["ResourceId"], row["ChargePeriodStart"]].append(row)
    return rows_by_origin


def _of_splits(rows: Sequence[Row]) -> Iterator[str]:
    for parts in origins(rows).values():
        for name in OF_THE_ORIGIN:
            if len({part[name] for part in parts}) > 1:
                yield f"{name} MUST be the origin charge's in all of its allocated charges"
        ratios = [
            Decimal(str(element["AllocatedRatio"]))
            for part in parts
            if part["AllocatedMethodDetails"] is not None
            for element in json.loads(part["AllocatedMethodDetails"], parse_float=Decimal)["Elements"]
        ]
        if ratios and sum(ratios) != 1:
            yield "AllocatedRatio MUST sum to 1 over an origin charge"
