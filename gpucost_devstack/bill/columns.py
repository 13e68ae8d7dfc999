"""The exports' columns and types, as AWS documents them (Data Exports table dictionary).

CUR 2.0 is exported with INCLUDE_RESOURCES, INCLUDE_CAPACITY_RESERVATION_DATA and INCLUDE_SPLIT_COST_ALLOCATION_DATA.
"""

import pyarrow as pa


def _split_names(text: str) -> list[str]:
    return text.split()


_DOUBLES = _split_names("""
discount_bundled_discount discount_total_discount line_item_blended_cost line_item_net_unblended_cost
line_item_normalization_factor line_item_normalized_usage_amount line_item_unblended_cost line_item_usage_amount
pricing_public_on_demand_cost reservation_amortized_upfront_cost_for_usage
reservation_amortized_upfront_fee_for_billing_period reservation_effective_cost
reservation_net_amortized_upfront_cost_for_usage reservation_net_amortized_upfront_fee_for_billing_period
reservation_net_effective_cost reservation_net_recurring_fee_for_usage
reservation_net_unused_amortized_upfront_fee_for_billing_period reservation_net_unused_recurring_fee
reservation_net_upfront_value reservation_recurring_fee_for_usage
reservation_unused_amortized_upfront_fee_for_billing_period reservation_unused_normalized_unit_quantity
reservation_unused_quantity reservation_unused_recurring_fee reservation_upfront_value
savings_plan_amortized_upfront_commitment_for_billing_period
savings_plan_net_amortized_upfront_commitment_for_billing_period
savings_plan_net_recurring_commitment_for_billing_period savings_plan_net_savings_plan_effective_cost
savings_plan_recurring_commitment_for_billing_period savings_plan_savings_plan_effective_cost
savings_plan_savings_plan_rate savings_plan_total_commitment_to_date savings_plan_used_commitment
split_line_item_actual_usage split_line_item_net_split_cost split_line_item_net_unused_cost
split_line_item_public_on_demand_split_cost split_line_item_public_on_demand_unused_cost
split_line_item_reserved_usage split_line_item_split_cost split_line_item_split_usage
split_line_item_split_usage_ratio split_line_item_unused_cost
""")
_STRINGS = _split_names("""
bill_bill_type bill_billing_entity bill_invoice_id bill_invoicing_entity bill_payer_account_id bill_payer_account_name
capacity_reservation_capacity_reservation_arn capacity_reservation_capacity_reservation_status
capacity_reservation_capacity_reservation_type identity_line_item_id identity_time_interval
line_item_availability_zone line_item_blended_rate line_item_currency_code line_item_legal_entity
line_item_line_item_description line_item_line_item_type line_item_net_unblended_rate line_item_operation
line_item_product_code line_item_resource_id line_item_tax_type line_item_unblended_rate line_item_usage_account_id
line_item_usage_account_name line_item_usage_type line_item_user_identifier pricing_currency
pricing_lease_contract_length
pricing_offering_class pricing_public_on_demand_rate pricing_purchase_option pricing_rate_code pricing_rate_id
pricing_term pricing_unit product_comment product_fee_code product_fee_description product_from_location
product_from_location_type product_from_region_code product_instance_family product_instance_type product_instancesku
product_location product_location_type product_operation product_pricing_unit product_product_family
product_region_code product_servicecode product_sku product_to_location product_to_location_type
product_to_region_code product_usagetype reservation_availability_zone reservation_end_time
reservation_modification_status reservation_normalized_units_per_reservation reservation_number_of_reservations
reservation_reservation_a_r_n reservation_start_time reservation_subscription_id
reservation_total_reserved_normalized_units reservation_total_reserved_units reservation_units_per_reservation
savings_plan_end_time savings_plan_instance_type_family savings_plan_offering_type savings_plan_payment_option
savings_plan_purchase_term savings_plan_region savings_plan_savings_plan_a_r_n savings_plan_start_time
split_line_item_parent_resource_id
""")
_TIMES = _split_names("""
bill_billing_period_end_date bill_billing_period_start_date line_item_usage_end_date line_item_usage_start_date
""")
_MAP = pa.map_(pa.string(), pa.string())
_AMOUNTS = pa.map_(pa.string(), pa.float64())

_FOCUS_STRINGS = _split_names("""
AvailabilityZone BillingAccountId BillingAccountName BillingCurrency ChargeCategory ChargeClass ChargeDescription
ChargeFrequency CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName CommitmentDiscountStatus
CommitmentDiscountType ConsumedUnit InvoiceIssuerName PricingCategory PricingUnit ProviderName PublisherName RegionId
RegionName ResourceId ResourceName ResourceType ServiceCategory ServiceName SkuId SkuPriceId SubAccountId
SubAccountName x_Operation x_ServiceCode
""")
_FOCUS_DOUBLES = _split_names("""
BilledCost ConsumedQuantity ContractedCost ContractedUnitPrice EffectiveCost ListCost ListUnitPrice PricingQuantity
""")
_FOCUS_TIMES = _split_names("BillingPeriodEnd BillingPeriodStart ChargePeriodEnd ChargePeriodStart")
_FOCUS_1_2_STRINGS = _split_names("""
BillingAccountType CapacityReservationId CapacityReservationStatus CommitmentDiscountUnit InvoiceId PricingCurrency
ServiceSubcategory SkuMeter SubAccountType
""")
_FOCUS_1_2_DOUBLES = _split_names("""
CommitmentDiscountQuantity PricingCurrencyContractedUnitPrice PricingCurrencyEffectiveCost PricingCurrencyListUnitPrice
""")


def _schema(fields: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema(sorted(fields.items()))


def _fields_of_type(names: list[str], of_type: pa.DataType) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, of_type)


_TIME = pa.timestamp("ms")
_FOCUS = {
    **_fields_of_type(_FOCUS_STRINGS, pa.string()),
    **_fields_of_type(_FOCUS_DOUBLES, pa.float64()),
    **_fields_of_type(_FOCUS_TIMES, _TIME),
    "Tags": _MAP,
    "x_Discounts": _AMOUNTS,
}

CUR2 = _schema(
    {
        **_fields_of_type(_STRINGS, pa.string()),
        **_fields_of_type(_DOUBLES, pa.float64()),
        **_fields_of_type(_TIMES, _TIME),
        **_fields_of_type(["cost_category", "product", "resource_tags", "tags"], _MAP),
        "discount": _AMOUNTS,
    }
)
FOCUS_1_0 = _schema({**_FOCUS, "x_CostCategories": _MAP, "x_UsageType": pa.string()})
FOCUS_1_2 = _schema(
    {
        **_FOCUS,
        **_fields_of_type(_FOCUS_1_2_STRINGS, pa.string()),
        **_fields_of_type(_FOCUS_1_2_DOUBLES, pa.float64()),
        "SkuPriceDetails": _MAP,
    }
)
