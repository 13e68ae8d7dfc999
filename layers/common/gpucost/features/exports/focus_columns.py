"""Columns of the export: those of FOCUS 1.3 (Cost and Usage dataset) and custom ones, which start with `x_`.

docs/how-to/exports.md describes each column.
"""

from typing import Literal

ColumnType = Literal["text", "amount", "whole", "time"]
"""`amount` is DECIMAL(38,12), `time` a UTC timestamp."""


def _split_names(text: str) -> list[str]:
    return text.split()


_TEXT = _split_names("""
AllocatedMethodDetails AllocatedMethodId AllocatedResourceId AllocatedResourceName AllocatedTags AvailabilityZone
BillingAccountId BillingAccountName BillingCurrency CapacityReservationId CapacityReservationStatus ChargeCategory
ChargeClass ChargeDescription ChargeFrequency CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName
CommitmentDiscountStatus CommitmentDiscountType CommitmentDiscountUnit ConsumedUnit HostProviderName InvoiceId
InvoiceIssuerName PricingUnit ProviderName PublisherName RegionId RegionName ResourceId ResourceName ResourceType
ServiceCategory ServiceName ServiceProviderName ServiceSubcategory Tags
x_BusinessUnit x_CapacityType x_Cluster x_CostPart x_GpuModel x_GpuResource x_GpuShareSource x_HourStatus x_InstanceType
x_Namespace x_NodePool x_Pod x_PriceSource x_SharedFrom x_SplitPolicy x_UtilizationSource x_Workload x_WorkloadKind
""")
_AMOUNTS = _split_names("""
BilledCost CommitmentDiscountQuantity ConsumedQuantity ContractedCost EffectiveCost ListCost PricingQuantity
x_AllocationCoverage x_Co2eKg x_EffectiveGpuHours x_EnergyGpuHours x_EnergyKwh x_GpuHourlyPrice x_GpuHours
x_GpuShare x_UnmeasuredCost x_UnmeasuredGpuHours x_UsedBeyondAllocationGpuHours x_UsedCost x_Utilization
x_UtilizationCoverage x_WasteCost
""")
_WHOLE = _split_names("x_GpuUnits x_HourVersion x_SettingsVersion")
_TIMES = _split_names("BillingPeriodEnd BillingPeriodStart ChargePeriodEnd ChargePeriodStart")


def _column_types() -> dict[str, ColumnType]:
    types: dict[str, ColumnType] = {}
    types |= dict.fromkeys(_TEXT, "text")
    types |= dict.fromkeys(_AMOUNTS, "amount")
    types |= dict.fromkeys(_WHOLE, "whole")
    types |= dict.fromkeys(_TIMES, "time")
    return dict(sorted(types.items()))


COLUMNS = _column_types()
"""Type of each column, in the order of the columns: FOCUS columns first, then custom columns."""
