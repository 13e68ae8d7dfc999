"""Columns of the export: those of FOCUS 1.3 (Cost and Usage dataset) and custom ones, which start with `x_`.

docs/how-to/exports.md describes each column.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Literal

from gpucost.core.hour_record import LINE_FIELDS

ColumnType = Literal["text", "amount", "whole", "time"]
"""`amount` is DECIMAL(38,12), `time` a UTC timestamp."""
ColumnTypes = Mapping[str, ColumnType]
"""By name, in the order of the columns."""
ColumnValue = str | Decimal | int | datetime | None
Row = dict[str, ColumnValue]
"""A missing column is null."""


def column_types(*, text: str, amounts: str, whole: str, times: str) -> ColumnTypes:
    """Return the type of each column by name, from the names of each type; FOCUS columns first, then custom ones."""
    types: dict[str, ColumnType] = {}
    types |= dict.fromkeys(text.split(), "text")
    types |= dict.fromkeys(amounts.split(), "amount")
    types |= dict.fromkeys(whole.split(), "whole")
    types |= dict.fromkeys(times.split(), "time")
    return dict(sorted(types.items()))


COLUMN_OF_LINE_AMOUNT = {name: field.column for name, field in LINE_FIELDS.items() if field.column}
"""By name of the line's field."""
COLUMNS = column_types(
    text="""
AllocatedMethodDetails AllocatedMethodId AllocatedResourceId AllocatedResourceName AllocatedTags AvailabilityZone
BillingAccountId BillingAccountName BillingCurrency CapacityReservationId CapacityReservationStatus ChargeCategory
ChargeClass ChargeDescription ChargeFrequency CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName
CommitmentDiscountStatus CommitmentDiscountType CommitmentDiscountUnit ConsumedUnit HostProviderName InvoiceId
InvoiceIssuerName PricingUnit ProviderName PublisherName RegionId RegionName ResourceId ResourceName ResourceType
ServiceCategory ServiceName ServiceProviderName ServiceSubcategory Tags
x_BusinessUnit x_CapacityType x_Cluster x_CostPart x_GpuModel x_GpuResource x_GpuShareSource x_HourStatus
x_InferenceServer x_InstanceType x_Model x_Namespace x_NodePool x_Pod x_PriceSource x_SharedFrom x_SplitPolicy
x_UtilizationSource x_Workload x_WorkloadKind
""",
    amounts="""
BilledCost CommitmentDiscountQuantity ConsumedQuantity ContractedCost ListCost PricingQuantity
x_AllocationCoverage x_GpuHourlyPrice x_GpuShare x_Utilization x_UtilizationCoverage
"""
    + " ".join(COLUMN_OF_LINE_AMOUNT.values()),
    whole="x_GpuUnits x_HourVersion x_SettingsVersion",
    times="BillingPeriodEnd BillingPeriodStart ChargePeriodEnd ChargePeriodStart",
)
"""Type of each column, in the order of the columns."""
