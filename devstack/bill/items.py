"""What AWS charges for in an hour, in the bill's own terms, before any export's columns."""

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
class Item:
    """One line item."""

    line_type: LineType
    start: datetime
    usage_type: str
    """With its region's prefix: `EUC1-BoxUsage:p5.48xlarge`."""
    resource: str
    quantity: Decimal = Decimal(1)
    """Hours, for instances."""
    listed: Decimal = ZERO
    """What it costs at the public on-demand price."""
    unblended: Decimal = ZERO
    effective: Decimal = ZERO
    """Amortized, before private discounts."""
    net: Decimal | None = None
    """Amortized, after them; None where the account has none."""
    end: datetime | None = None
    """None: an hour after its start."""
    product: str = "AmazonEC2"
    operation: str = "RunInstances"
    account: str = "111122223333"
    zone: str = "eu-central-1a"
    commitment: str = ""
    """ARN of the Savings Plan or the Reserved Instances."""
    committed: Decimal = ZERO
    """Of a Savings Plan, in this hour."""
    used: Decimal = ZERO
    unused_hours: Decimal = ZERO
    """Of Reserved Instances, in this period."""
    plan_family: str = ""
    """Of an EC2 Instance Savings Plan; "" is a Compute Savings Plan."""
    capacity_reservation: str = ""
    capacity_status: Literal["", "Used", "Unused", "Reserved"] = ""
    capacity_type: Literal["", "ODCR", "EC2 Capacity Block for ML"] = ""
    corrects: bool = False
    """Whether it corrects an earlier bill, as FOCUS tells."""

    @property
    def until(self) -> datetime:
        """Its end."""
        return self.end or self.start + HOUR

    @property
    def month(self) -> datetime:
        """The first moment of its billing period."""
        return datetime(self.start.year, self.start.month, 1, tzinfo=UTC)

    @property
    def next_month(self) -> datetime:
        """The end of its billing period."""
        return (self.month + timedelta(days=32)).replace(day=1)

    @property
    def region(self) -> str:
        """Of its zone."""
        return self.zone.rstrip("abcdef")

    @property
    def instance_type(self) -> str:
        """As far as it is one's."""
        return self.usage_type.partition(":")[2]

    def into(self, reservation: str, of_type: Literal["ODCR", "EC2 Capacity Block for ML"] = "ODCR") -> "Item":
        """The same instance, launched into a capacity reservation."""
        return replace(self, capacity_reservation=reservation, capacity_status="Used", capacity_type=of_type)


def money(text: str | int | Decimal) -> Decimal:
    """An amount."""
    return Decimal(text)


def on_demand(instance: str, of_type: str, start: datetime, amount: str, *, hours: str = "1") -> Item:
    """An instance at the public price."""
    cost = money(amount)
    return Item(
        "Usage",
        start,
        f"EUC1-BoxUsage:{of_type}",
        instance,
        Decimal(hours),
        listed=cost,
        unblended=cost,
        effective=cost,
    )


def spot(instance: str, of_type: str, start: datetime, amount: str, *, hours: str = "1") -> Item:
    """A spot instance; amount 0 where AWS interrupted it in its first hour."""
    cost = money(amount)
    return Item(
        "Usage", start, f"EUC1-SpotUsage:{of_type}", instance, Decimal(hours), listed=cost, unblended=cost,
        effective=cost, operation="RunInstances:SV001",
    )  # fmt: skip


def covered(
    instance: str, of_type: str, start: datetime, amount: str, *, listed: str, plan: str, hours: str = "1"
) -> list[Item]:
    """An instance covered by a Savings Plan: usage at the list price, and its negation."""
    usage = Item(
        "SavingsPlanCoveredUsage", start, f"EUC1-BoxUsage:{of_type}", instance, Decimal(hours), listed=money(listed),
        unblended=money(listed), effective=money(amount), commitment=plan,
    )  # fmt: skip
    return [usage, replace(usage, line_type="SavingsPlanNegation", unblended=-money(listed), effective=ZERO)]


def reserved(instance: str, of_type: str, start: datetime, amount: str, *, ri: str, hours: str = "1") -> Item:
    """An instance to which Reserved Instances apply: free in its line, its amortized cost beside."""
    return Item(
        "DiscountedUsage", start, f"EUC1-BoxUsage:{of_type}", instance, Decimal(hours), listed=money(amount) * 2,
        effective=money(amount), commitment=ri,
    )  # fmt: skip


def block(instance: str, of_type: str, start: datetime, reservation: str) -> Item:
    """An instance of a Capacity Block: neither paid nor listed in its hours."""
    return Item("Usage", start, f"EUC1-BoxUsage:{of_type}", instance).into(reservation, BLOCK)


def plan_fee(plan: str, start: datetime, committed: str, used: str, *, family: str = "") -> Item:
    """A Savings Plan's commitment for an hour, used in part."""
    code = f"EUC1-EC2SP:{family}.3yrNoUpfront" if family else "ComputeSP:3yrNoUpfront"
    return Item(
        "SavingsPlanRecurringFee", start, code, plan, product="ComputeSavingsPlans", operation="None",
        unblended=money(committed), commitment=plan, committed=money(committed), used=money(used), plan_family=family,
    )  # fmt: skip


def ri_fee(ri: str, of_type: str, month: datetime, *, unused: str, unused_hours: str) -> Item:
    """Reserved Instances' fee of a month, of which a part was paid for in vain."""
    following = (month + timedelta(days=32)).replace(day=1)
    return Item(
        "RIFee", month, f"EUC1-HeavyUsage:{of_type}", ri, Decimal(720), unblended=money(2000),
        effective=money(unused), end=following, commitment=ri, unused_hours=Decimal(unused_hours),
    )  # fmt: skip


def unused_capacity(reservation: str, of_type: str, start: datetime, amount: str, *, hours: str = "1") -> list[Item]:
    """An On-Demand Capacity Reservation of which a part is unused, and the row that only says it is reserved."""
    cost = money(amount)
    unused = Item(
        "Usage", start, f"EUC1-UnusedBox:{of_type}", reservation, Decimal(hours), listed=cost, unblended=cost,
        effective=cost, capacity_reservation=reservation, capacity_status="Unused", capacity_type="ODCR",
    )  # fmt: skip
    total = Item(
        "Usage", start, f"EUC1-Reservation:{of_type}", reservation, Decimal(4),
        capacity_reservation=reservation, capacity_status="Reserved", capacity_type="ODCR",
    )  # fmt: skip
    return [unused, total]


def beside(instance: str, of_type: str, start: datetime) -> list[Item]:
    """What is on the bill around an instance and is not its price."""
    one = Item("Usage", start, "", instance, effective=money(7), unblended=money(7), listed=money(7))
    box = f"EUC1-BoxUsage:{of_type}"
    return [
        replace(one, usage_type="EUC1-EBS:VolumeUsage.gp3", resource="vol-0a1b2c3d", operation="CreateVolume-Gp3"),
        replace(one, usage_type="EUC1-DataTransfer-Out-Bytes", operation="RunInstances"),
        replace(one, usage_type=f"EUC1-EBSOptimized:{of_type}"),
        replace(one, usage_type=f"EUC1-HostBoxUsage:{of_type}", unblended=ZERO, effective=ZERO),
        replace(one, line_type="Tax", usage_type=box),
        replace(one, line_type="Credit", usage_type=box, effective=money(-5), unblended=money(-5)),
        replace(one, line_type="EdpDiscount", usage_type=box, effective=money(-1), unblended=money(-1)),
        replace(one, line_type="Refund", usage_type=box, effective=money(-3), unblended=money(-3)),
        replace(one, usage_type="EUC1-BoxUsage:m5.large", resource="i-0ffffffffffffffff"),
        replace(
            one, usage_type="EUC1-EKS-EC2-vCPU-Hours", product="AmazonEKS",
            resource="arn:aws:eks:eu-central-1:111122223333:pod/demo/bu-a/trainer/9c1f",
        ),
    ]  # fmt: skip
