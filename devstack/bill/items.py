"""Line items of a bill, independent of an export's columns."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal

LineType = Literal[
    "Usage", "SavingsPlanCoveredUsage", "SavingsPlanNegation", "SavingsPlanRecurringFee", "DiscountedUsage", "RIFee",
    "Tax", "Credit", "EdpDiscount", "Refund",
]  # fmt: skip
BLOCK: Final = "EC2 Capacity Block for ML"
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
    listed: Decimal = ZERO
    """The cost at the public on-demand price."""
    unblended: Decimal = ZERO
    effective: Decimal = ZERO
    """The amortized cost before private discounts."""
    net: Decimal | None = None
    """The amortized cost after private discounts. None if the account has none."""
    end: datetime | None = None
    """None means an hour after the start."""
    product: str = "AmazonEC2"
    operation: str = "RunInstances"
    account: str = "111122223333"
    zone: str = "eu-central-1a"
    commitment: str = ""
    """ARN of the Savings Plan or the Reserved Instances."""
    committed: Decimal = ZERO
    """The Savings Plan's commitment in this hour."""
    used: Decimal = ZERO
    unused_hours: Decimal = ZERO
    """Unused hours of Reserved Instances in this period."""
    plan_family: str = ""
    """The instance family of an EC2 Instance Savings Plan. "" means a Compute Savings Plan."""
    capacity_reservation: str = ""
    capacity_status: Literal["", "Used", "Unused", "Reserved"] = ""
    capacity_type: Literal["", "ODCR", "EC2 Capacity Block for ML"] = ""
    corrects: bool = False
    """Whether it corrects an earlier bill (FOCUS' ChargeClass)."""

    @property
    def until(self) -> datetime:
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

    def into(self, reservation: str, of_type: Literal["ODCR", "EC2 Capacity Block for ML"] = "ODCR") -> "LineItem":
        """The same instance, launched into a capacity reservation."""
        return replace(self, capacity_reservation=reservation, capacity_status="Used", capacity_type=of_type)


def money(text: str | int | Decimal) -> Decimal:
    """Parse an amount."""
    return Decimal(text)


def on_demand(instance: str, of_type: str, start: datetime, amount: str, *, hours: str = "1") -> LineItem:
    """An instance at the public price."""
    cost = money(amount)
    return LineItem(
        "Usage",
        start,
        f"EUC1-BoxUsage:{of_type}",
        instance,
        Decimal(hours),
        listed=cost,
        unblended=cost,
        effective=cost,
    )


def spot(instance: str, of_type: str, start: datetime, amount: str, *, hours: str = "1") -> LineItem:
    """A spot instance. The amount is 0 if AWS interrupted it in its first hour."""
    cost = money(amount)
    return LineItem(
        "Usage", start, f"EUC1-SpotUsage:{of_type}", instance, Decimal(hours), listed=cost, unblended=cost,
        effective=cost, operation="RunInstances:SV001",
    )  # fmt: skip


def covered(
    instance: str, of_type: str, start: datetime, amount: str, *, listed: str, plan: str, hours: str = "1"
) -> list[LineItem]:
    """An instance covered by a Savings Plan: usage at the list price, and its negation."""
    usage = LineItem(
        "SavingsPlanCoveredUsage", start, f"EUC1-BoxUsage:{of_type}", instance, Decimal(hours), listed=money(listed),
        unblended=money(listed), effective=money(amount), commitment=plan,
    )  # fmt: skip
    return [usage, replace(usage, line_type="SavingsPlanNegation", unblended=-money(listed), effective=ZERO)]


def reserved(instance: str, of_type: str, start: datetime, amount: str, *, ri: str, hours: str = "1") -> LineItem:
    """An instance covered by Reserved Instances: unblended cost 0, amortized cost in its own column."""
    return LineItem(
        "DiscountedUsage", start, f"EUC1-BoxUsage:{of_type}", instance, Decimal(hours), listed=money(amount) * 2,
        effective=money(amount), commitment=ri,
    )  # fmt: skip


def block(instance: str, of_type: str, start: datetime, reservation: str) -> LineItem:
    """An instance of a Capacity Block, whose hours have no cost and no list price."""
    return LineItem("Usage", start, f"EUC1-BoxUsage:{of_type}", instance).into(reservation, BLOCK)


def plan_fee(plan: str, start: datetime, committed: str, used: str, *, family: str = "") -> LineItem:
    """A Savings Plan's commitment for an hour, used in part."""
    code = f"EUC1-EC2SP:{family}.3yrNoUpfront" if family else "ComputeSP:3yrNoUpfront"
    return LineItem(
        "SavingsPlanRecurringFee", start, code, plan, product="ComputeSavingsPlans", operation="None",
        unblended=money(committed), commitment=plan, committed=money(committed), used=money(used), plan_family=family,
    )  # fmt: skip


def ri_fee(ri: str, of_type: str, month: datetime, *, unused: str, unused_hours: str) -> LineItem:
    """The monthly fee of Reserved Instances, part of which is unused."""
    following = (month + timedelta(days=32)).replace(day=1)
    return LineItem(
        "RIFee", month, f"EUC1-HeavyUsage:{of_type}", ri, Decimal(720), unblended=money(2000),
        effective=money(unused), end=following, commitment=ri, unused_hours=Decimal(unused_hours),
    )  # fmt: skip


def unused_capacity(
    reservation: str, of_type: str, start: datetime, amount: str, *, hours: str = "1"
) -> list[LineItem]:
    """A partly unused On-Demand Capacity Reservation, and the row that only states the reservation."""
    cost = money(amount)
    unused = LineItem(
        "Usage", start, f"EUC1-UnusedBox:{of_type}", reservation, Decimal(hours), listed=cost, unblended=cost,
        effective=cost, capacity_reservation=reservation, capacity_status="Unused", capacity_type="ODCR",
    )  # fmt: skip
    total = LineItem(
        "Usage", start, f"EUC1-Reservation:{of_type}", reservation, Decimal(4),
        capacity_reservation=reservation, capacity_status="Reserved", capacity_type="ODCR",
    )  # fmt: skip
    return [unused, total]


def other_charges(instance: str, of_type: str, start: datetime) -> list[LineItem]:
    """Line items for an instance that are not part of its price."""
    charge = LineItem("Usage", start, "", instance, effective=money(7), unblended=money(7), listed=money(7))
    box = f"EUC1-BoxUsage:{of_type}"
    return [
        replace(charge, usage_type="EUC1-EBS:VolumeUsage.gp3", resource="vol-0a1b2c3d", operation="CreateVolume-Gp3"),
        replace(charge, usage_type="EUC1-DataTransfer-Out-Bytes", operation="RunInstances"),
        replace(charge, usage_type=f"EUC1-EBSOptimized:{of_type}"),
        replace(charge, usage_type=f"EUC1-HostBoxUsage:{of_type}", unblended=ZERO, effective=ZERO),
        replace(charge, line_type="Tax", usage_type=box),
        replace(charge, line_type="Credit", usage_type=box, effective=money(-5), unblended=money(-5)),
        replace(charge, line_type="EdpDiscount", usage_type=box, effective=money(-1), unblended=money(-1)),
        replace(charge, line_type="Refund", usage_type=box, effective=money(-3), unblended=money(-3)),
        replace(charge, usage_type="EUC1-BoxUsage:m5.large", resource="i-0ffffffffffffffff"),
        replace(
            charge, usage_type="EUC1-EKS-EC2-vCPU-Hours", product="AmazonEKS",
            resource="arn:aws:eks:eu-central-1:111122223333:pod/demo/bu-a/trainer/9c1f",
        ),
    ]  # fmt: skip
