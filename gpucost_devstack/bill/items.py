"""Line items of a bill, independent of an export's columns."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal

LineType = Literal[
    "Usage",
    "SavingsPlanCoveredUsage",
    "SavingsPlanNegation",
    "SavingsPlanRecurringFee",
    "DiscountedUsage",
    "RIFee",
    "Tax",
    "Credit",
    "EdpDiscount",
    "Refund",
]
CAPACITY_BLOCK: Final = "EC2 Capacity Block for ML"
ZERO = Decimal(0)
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class LineItem:
    """A line item of the bill."""

    line_type: LineType
    start: datetime
    usage_type: str
    """The usage type with its region prefix: `EUC1-BoxUsage:p5.48xlarge`."""
    resource: str
    quantity: Decimal = Decimal(1)
    """Hours, for instances."""
    on_demand_cost: Decimal = ZERO
    """The cost at the public on-demand price."""
    unblended_cost: Decimal = ZERO
    amortized_cost: Decimal = ZERO
    """The amortized cost before private discounts."""
    net_amortized_cost: Decimal | None = None
    """The amortized cost after private discounts. None if the account has none."""
    end: datetime | None = None
    """None means an hour after the start."""
    product: str = "AmazonEC2"
    operation: str = "RunInstances"
    account: str = "111122223333"
    zone: str = "eu-central-1a"
    commitment: str = ""
    """ARN of the Savings Plan or the Reserved Instances."""
    hourly_commitment: Decimal = ZERO
    """The Savings Plan's commitment in this hour."""
    used_commitment: Decimal = ZERO
    unused_reserved_hours: Decimal = ZERO
    """Unused hours of Reserved Instances in this period."""
    plan_family: str = ""
    """The instance family of an EC2 Instance Savings Plan. "" means a Compute Savings Plan."""
    capacity_reservation: str = ""
    capacity_status: Literal["", "Used", "Unused", "Reserved"] = ""
    capacity_type: Literal["", "ODCR", "EC2 Capacity Block for ML"] = ""
    is_correction: bool = False
    """Whether it corrects an earlier bill (FOCUS' ChargeClass)."""

    @property
    def end_or_next_hour(self) -> datetime:
        """The end of the usage."""
        return self.end or self.start + HOUR

    @property
    def month(self) -> datetime:
        """The start of its billing period."""
        return datetime(self.start.year, self.start.month, 1, tzinfo=UTC)

    @property
    def next_month(self) -> datetime:
        """The end of its billing period."""
        return (self.month + timedelta(days=32)).replace(day=1)

    @property
    def region(self) -> str:
        """The region of its zone."""
        return self.zone.rstrip("abcdef")

    @property
    def instance_type(self) -> str:
        """The instance type in the usage type, if there is one."""
        return self.usage_type.partition(":")[2]

    def launched_into(
        self, reservation: str, of_type: Literal["ODCR", "EC2 Capacity Block for ML"] = "ODCR"
    ) -> "LineItem":
        """The same instance, launched into a capacity reservation."""
        return replace(self, capacity_reservation=reservation, capacity_status="Used", capacity_type=of_type)


def usd(text: str | int | Decimal) -> Decimal:
    """Parse an amount."""
    return Decimal(text)


def on_demand(instance: str, of_type: str, start: datetime, amount: str, *, hours: str = "1") -> LineItem:
    """An instance at the public price."""
    cost = usd(amount)
    return LineItem(
        "Usage",
        start,
        f"EUC1-BoxUsage:{of_type}",
        instance,
        Decimal(hours),
        on_demand_cost=cost,
        unblended_cost=cost,
        amortized_cost=cost,
    )


def hyperpod(of_type: str, start: datetime, amount: str, *, resource: str, hours: str = "1") -> LineItem:
    """A node of SageMaker HyperPod at the public price, with a usage type as `USE1-Cluster:ml.p4d.24xlarge`."""
    return replace(
        on_demand(resource, of_type, start, amount, hours=hours),
        usage_type=f"USE1-Cluster:{of_type}",
        product="AmazonSageMaker",
        operation="RunInstance",
        zone="us-east-1a",
    )


def spot(instance: str, of_type: str, start: datetime, amount: str, *, hours: str = "1") -> LineItem:
    """A spot instance. The amount is 0 if AWS interrupted it in its first hour."""
    cost = usd(amount)
    return LineItem(
        "Usage",
        start,
        f"EUC1-SpotUsage:{of_type}",
        instance,
        Decimal(hours),
        on_demand_cost=cost,
        unblended_cost=cost,
        amortized_cost=cost,
        operation="RunInstances:SV001",
    )


def savings_plan_covered(
    instance: str, of_type: str, start: datetime, amount: str, *, listed: str, plan: str, hours: str = "1"
) -> list[LineItem]:
    """An instance covered by a Savings Plan: usage at the list price, and its negation."""
    usage = LineItem(
        "SavingsPlanCoveredUsage",
        start,
        f"EUC1-BoxUsage:{of_type}",
        instance,
        Decimal(hours),
        on_demand_cost=usd(listed),
        unblended_cost=usd(listed),
        amortized_cost=usd(amount),
        commitment=plan,
    )
    return [usage, replace(usage, line_type="SavingsPlanNegation", unblended_cost=-usd(listed), amortized_cost=ZERO)]


def reserved_instance(
    instance: str, of_type: str, start: datetime, amount: str, *, ri: str, hours: str = "1"
) -> LineItem:
    """An instance covered by Reserved Instances: unblended cost 0, amortized cost in its own column."""
    return LineItem(
        "DiscountedUsage",
        start,
        f"EUC1-BoxUsage:{of_type}",
        instance,
        Decimal(hours),
        on_demand_cost=usd(amount) * 2,
        amortized_cost=usd(amount),
        commitment=ri,
    )


def capacity_block(instance: str, of_type: str, start: datetime, reservation: str) -> LineItem:
    """An instance of a Capacity Block, whose hours have no cost and no list price."""
    return LineItem("Usage", start, f"EUC1-BoxUsage:{of_type}", instance).launched_into(reservation, CAPACITY_BLOCK)


def savings_plan_fee(plan: str, start: datetime, committed: str, used: str, *, family: str = "") -> LineItem:
    """A Savings Plan's commitment for an hour, used in part."""
    code = f"EUC1-EC2SP:{family}.3yrNoUpfront" if family else "ComputeSP:3yrNoUpfront"
    return LineItem(
        "SavingsPlanRecurringFee",
        start,
        code,
        plan,
        product="ComputeSavingsPlans",
        operation="None",
        unblended_cost=usd(committed),
        commitment=plan,
        hourly_commitment=usd(committed),
        used_commitment=usd(used),
        plan_family=family,
    )


def reserved_instance_fee(ri: str, of_type: str, month: datetime, *, unused: str, unused_hours: str) -> LineItem:
    """The monthly fee of Reserved Instances, part of which is unused."""
    following = (month + timedelta(days=32)).replace(day=1)
    return LineItem(
        "RIFee",
        month,
        f"EUC1-HeavyUsage:{of_type}",
        ri,
        Decimal(720),
        unblended_cost=usd(2000),
        amortized_cost=usd(unused),
        end=following,
        commitment=ri,
        unused_reserved_hours=Decimal(unused_hours),
    )


def unused_capacity_reservation(
    reservation: str, of_type: str, start: datetime, amount: str, *, hours: str = "1"
) -> list[LineItem]:
    """A partly unused On-Demand Capacity Reservation, and the row that only states the reservation."""
    cost = usd(amount)
    unused = LineItem(
        "Usage",
        start,
        f"EUC1-UnusedBox:{of_type}",
        reservation,
        Decimal(hours),
        on_demand_cost=cost,
        unblended_cost=cost,
        amortized_cost=cost,
        capacity_reservation=reservation,
        capacity_status="Unused",
        capacity_type="ODCR",
    )
    total = LineItem(
        "Usage",
        start,
        f"EUC1-Reservation:{of_type}",
        reservation,
        Decimal(4),
        capacity_reservation=reservation,
        capacity_status="Reserved",
        capacity_type="ODCR",
    )
    return [unused, total]


def other_charges(instance: str, of_type: str, start: datetime) -> list[LineItem]:
    """Line items for an instance that are not part of its price."""
    charge = LineItem("Usage", start, "", instance, amortized_cost=usd(7), unblended_cost=usd(7), on_demand_cost=usd(7))
    box = f"EUC1-BoxUsage:{of_type}"
    return [
        replace(charge, usage_type="EUC1-EBS:VolumeUsage.gp3", resource="vol-0a1b2c3d", operation="CreateVolume-Gp3"),
        replace(charge, usage_type="EUC1-DataTransfer-Out-Bytes", operation="RunInstances"),
        replace(charge, usage_type=f"EUC1-EBSOptimized:{of_type}"),
        replace(charge, usage_type=f"EUC1-HostBoxUsage:{of_type}", unblended_cost=ZERO, amortized_cost=ZERO),
        replace(charge, line_type="Tax", usage_type=box),
        replace(charge, line_type="Credit", usage_type=box, amortized_cost=usd(-5), unblended_cost=usd(-5)),
        replace(charge, line_type="EdpDiscount", usage_type=box, amortized_cost=usd(-1), unblended_cost=usd(-1)),
        replace(charge, line_type="Refund", usage_type=box, amortized_cost=usd(-3), unblended_cost=usd(-3)),
        replace(charge, usage_type="EUC1-BoxUsage:m5.large", resource="i-0ffffffffffffffff"),
        replace(
            charge,
            usage_type="EUC1-EKS-EC2-vCPU-Hours",
            product="AmazonEKS",
            resource="arn:aws:eks:eu-central-1:111122223333:pod/demo/bu-a/trainer/9c1f",
        ),
    ]
