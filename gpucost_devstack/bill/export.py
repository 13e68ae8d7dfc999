"""Writes line items as the Parquet files of a Data Export."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from gpucost_devstack.bill.columns import CUR2, FOCUS_1_0, FOCUS_1_2
from gpucost_devstack.bill.items import LineItem

ExportFormat = Literal["cur2", "focus-1.0", "focus-1.2"]
SCHEMAS: dict[ExportFormat, pa.Schema] = {"cur2": CUR2, "focus-1.0": FOCUS_1_0, "focus-1.2": FOCUS_1_2}
_Row = dict[str, Any]


def write_export(
    folder: Path, items: Iterable[LineItem], *, form: ExportFormat = "cur2", currency: str = "USD", invoice: str = ""
) -> None:
    """Write a bill with one Parquet file per month. Existing files of these months are replaced.

    Args:
        folder: the export's `data` folder.
        items: line items of any months.
        form: the export's format.
        currency: currency of all amounts.
        invoice: invoice ID, or "" while the bill is open.
    """
    months: dict[str, list[_Row]] = {}
    for item in items:
        rows = (
            [_cur2_row(item, currency, invoice)]
            if form == "cur2"
            else _focus_row_of_version(item, form, currency, invoice)
        )
        months.setdefault(f"{item.month:%Y-%m}", []).extend(rows)
    for month, rows in months.items():
        path = folder / f"BILLING_PERIOD={month}"
        path.mkdir(parents=True, exist_ok=True)
        names = set(SCHEMAS[form].names)
        if unknown := {name for row in rows for name in row} - names:
            raise ValueError(f"{form} has no columns {sorted(unknown)}")
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS[form]), path / "bill-00001.snappy.parquet")


def _cur2_row(item: LineItem, currency: str, invoice: str) -> _Row:
    is_plan, is_ri = item.line_type.startswith("SavingsPlan"), item.line_type in {"DiscountedUsage", "RIFee"}
    net = None if item.net_amortized_cost is None else float(item.net_amortized_cost)
    row: _Row = {
        "bill_bill_type": "Refund" if item.line_type == "Refund" else "Anniversary",
        "bill_billing_entity": "AWS",
        "bill_billing_period_start_date": _without_time_zone(item.month),
        "bill_billing_period_end_date": _without_time_zone(item.next_month),
        "bill_invoice_id": invoice or None,
        "bill_payer_account_id": "999988887777",
        "identity_line_item_id": "line",
        "line_item_availability_zone": item.zone,
        "line_item_currency_code": currency,
        "line_item_line_item_type": item.line_type,
        "line_item_operation": item.operation,
        "line_item_product_code": item.product,
        "line_item_resource_id": item.resource,
        "line_item_unblended_cost": float(item.unblended_cost),
        "line_item_net_unblended_cost": net if not (is_plan or is_ri) else None,
        "line_item_usage_account_id": item.account,
        "line_item_usage_amount": float(item.quantity),
        "line_item_usage_start_date": _without_time_zone(item.start),
        "line_item_usage_end_date": _without_time_zone(item.end_or_next_hour),
        "line_item_usage_type": item.usage_type,
        "pricing_public_on_demand_cost": float(item.on_demand_cost),
        "product": {"region": item.region, "instance_type": item.instance_type},
        "product_instance_type": item.instance_type or None,
        "product_region_code": item.region,
        "capacity_reservation_capacity_reservation_arn": item.capacity_reservation or None,
        "capacity_reservation_capacity_reservation_status": item.capacity_status or None,
        "capacity_reservation_capacity_reservation_type": item.capacity_type or None,
        "discount": {},
        "resource_tags": {"user_team": "research"},
        "cost_category": {},
        "tags": {},
    }
    if is_plan:
        row |= {
            "savings_plan_savings_plan_a_r_n": item.commitment,
            "savings_plan_offering_type": "EC2InstanceSavingsPlans" if item.plan_family else "ComputeSavingsPlans",
            "savings_plan_instance_type_family": item.plan_family or None,
        }
    if item.line_type == "SavingsPlanCoveredUsage":
        row |= {
            "savings_plan_savings_plan_effective_cost": float(item.amortized_cost),
            "savings_plan_net_savings_plan_effective_cost": net,
        }
    if item.line_type == "SavingsPlanRecurringFee":
        row |= {
            "savings_plan_total_commitment_to_date": float(item.hourly_commitment),
            "savings_plan_used_commitment": float(item.used_commitment),
            "savings_plan_recurring_commitment_for_billing_period": float(item.hourly_commitment),
            "savings_plan_net_recurring_commitment_for_billing_period": net,
        }
    if is_ri:
        row["reservation_reservation_a_r_n"] = item.commitment
    if item.line_type == "DiscountedUsage":
        row |= {"reservation_effective_cost": float(item.amortized_cost), "reservation_net_effective_cost": net}
    if item.line_type == "RIFee":
        # Partial upfront: a quarter of the unused amount is the amortized upfront fee.
        upfront = item.amortized_cost / 4
        row |= {
            "reservation_unused_quantity": float(item.unused_reserved_hours),
            "reservation_unused_amortized_upfront_fee_for_billing_period": float(upfront),
            "reservation_unused_recurring_fee": float(item.amortized_cost - upfront),
            "reservation_net_unused_amortized_upfront_fee_for_billing_period": None if net is None else net / 4,
            "reservation_net_unused_recurring_fee": None if net is None else net * 3 / 4,
        }
    return row


def _focus_row_of_version(item: LineItem, form: ExportFormat, currency: str, invoice: str) -> list[_Row]:
    if item.line_type in {"SavingsPlanNegation", "EdpDiscount"}:
        return []
    category = {"Tax": "Tax", "Credit": "Credit", "Refund": "Credit"}.get(item.line_type, "Usage")
    effective = item.amortized_cost if item.net_amortized_cost is None else item.net_amortized_cost
    row = _focus_row(item, form, currency, invoice) | {
        "ChargeCategory": category,
        "EffectiveCost": float(effective),
        "CommitmentDiscountId": item.commitment or None,
        "CommitmentDiscountStatus": "Used" if item.commitment else None,
    }
    if item.line_type not in {"SavingsPlanRecurringFee", "RIFee"}:
        return [row]
    # The fee is a purchase. Its effective cost is in the usage that it covers. The unused part has its own row.
    unused = item.hourly_commitment - item.used_commitment if item.hourly_commitment else effective
    if item.hourly_commitment and item.net_amortized_cost is not None:
        unused = unused * item.net_amortized_cost / item.hourly_commitment
    return [
        row | {"ChargeCategory": "Purchase", "EffectiveCost": 0.0, "CommitmentDiscountStatus": None},
        row | {"EffectiveCost": float(unused), "CommitmentDiscountStatus": "Unused", "ConsumedQuantity": None},
    ]


def _focus_row(item: LineItem, form: ExportFormat, currency: str, invoice: str) -> _Row:
    is_plan = item.line_type.startswith("SavingsPlan")
    is_spot = "SpotUsage" in item.usage_type
    row: _Row = {
        "AvailabilityZone": item.zone,
        "BilledCost": float(item.unblended_cost),
        "BillingAccountId": "999988887777",
        "BillingCurrency": currency,
        "BillingPeriodStart": _without_time_zone(item.month),
        "BillingPeriodEnd": _without_time_zone(item.next_month),
        "ChargeClass": "Correction" if item.is_correction else None,
        "ChargePeriodStart": _without_time_zone(item.start),
        "ChargePeriodEnd": _without_time_zone(item.end_or_next_hour),
        "CommitmentDiscountCategory": ("Spend" if is_plan else "Usage") if item.commitment else None,
        "ConsumedQuantity": float(item.quantity),
        "ConsumedUnit": "Hours",
        "ListCost": float(item.on_demand_cost),
        "PricingCategory": "Dynamic" if is_spot else "Committed" if item.commitment else "Standard",
        "PricingQuantity": float(item.quantity),
        "ProviderName": "AWS",
        "RegionId": item.region,
        "ResourceId": item.resource,
        "ServiceName": "Amazon Elastic Compute Cloud",
        "SubAccountId": item.account,
        "Tags": {"user:team": "research"},
        "x_Operation": item.operation,
        "x_ServiceCode": item.product,
    }
    if form == "focus-1.0":
        return row | {"x_UsageType": item.usage_type}
    # FOCUS has no status "Reserved", so the row that only states the reservation has none.
    status = item.capacity_status if item.capacity_status != "Reserved" else ""
    return row | {
        "SkuMeter": item.usage_type,
        "InvoiceId": invoice or None,
        "CapacityReservationId": (item.capacity_reservation or None) if status else None,
        "CapacityReservationStatus": status or None,
    }


def _without_time_zone(moment: Any) -> Any:
    return moment.replace(tzinfo=None)
