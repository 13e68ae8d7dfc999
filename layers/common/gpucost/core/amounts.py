"""Exact amounts of USD, GPU-hours, kWh and kg CO2e, and the records that consist of them.

Amounts are fixed-point: integers that count 1e-12 USD, GPU-hours, kWh or kg. An amount is rounded once, when it is
rated; sums are exact, and the parts of a split sum to the total. `Decimal` is for prices, ratios and what people read.
"""

from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from math import lcm
from operator import add, sub
from typing import Self

from msgspec import Struct
from msgspec.structs import astuple

SCALE = 10**12
"""One USD, or one GPU-hour."""
DIGITS = 12
"""Digits after the decimal point."""
MAX_AMOUNT = Decimal(10**12)
"""The largest USD or GPU-hours of one cluster-hour."""
MAX_FIXED_POINT = int(MAX_AMOUNT) * SCALE
_WIDE = Context(prec=60, rounding=ROUND_HALF_EVEN)


def to_fixed_point(number: Fraction | Decimal | int) -> int:
    """Round a number half-even to a fixed-point amount, the ledger's resolution."""
    if isinstance(number, Decimal):
        return int(number.scaleb(DIGITS, context=_WIDE).to_integral_value(ROUND_HALF_EVEN, context=_WIDE))
    amount, remainder = divmod(number.numerator * SCALE, number.denominator)
    twice = 2 * remainder
    is_rounded_up = twice > number.denominator or (twice == number.denominator and amount % 2 == 1)
    return amount + is_rounded_up


def to_decimal(amount: int) -> Decimal:
    """Convert a fixed-point amount to a decimal with 12 digits after the point, exactly."""
    return _WIDE.scaleb(amount, -DIGITS)


def quantize(number: Fraction | Decimal | int) -> Decimal:
    """Round a number half-even to 12 digits after the decimal point."""
    return to_decimal(to_fixed_point(number))


def is_amount(value: Decimal, limit: Decimal = MAX_AMOUNT) -> bool:
    """Whether a value is a number from `-limit` to `limit`."""
    return value.is_finite() and -limit <= value <= limit


def split(total: int, weights: Sequence[Fraction | int]) -> list[int]:
    """Split an amount by weights into parts that sum to it exactly (largest remainder method).

    Args:
        total: a fixed-point amount; may be negative.
        weights: non-negative, at least one positive unless `total` is zero.

    Returns:
        One part per weight, in order; a zero weight gets zero. Ties go to the earlier part.

    Raises:
        ValueError: a negative weight, or weights that are all zero for a total that is not zero.
    """
    return split_each([total], weights)[0]


def split_each(totals: Sequence[int], weights: Sequence[Fraction | int]) -> list[list[int]]:
    """Split several amounts by the same weights, each as `split` does."""
    # Integers keep the proportions and are far faster than fractions for the many lines of a fleet.
    ratios = [weight.as_integer_ratio() for weight in weights]
    common_denominator = lcm(*[denominator for _, denominator in ratios])
    shares = [numerator * (common_denominator // denominator) for numerator, denominator in ratios]
    if min(shares, default=0) < 0:
        raise ValueError("weights of a split must not be negative")
    return [_split(total, shares, sum(shares)) for total in totals]


def split_in_two(totals: Sequence[int], part: Fraction, whole: Fraction) -> list[tuple[int, int]]:
    """Split several amounts into a part of a whole and the rest, as `split_each` does by the weights of both.

    Args:
        totals: fixed-point amounts; may be negative.
        part: from 0 to `whole`.
        whole: more than 0.

    Raises:
        ValueError: the part is negative or exceeds the whole.
    """
    (share, part_denominator), (total_shares, whole_denominator) = part.as_integer_ratio(), whole.as_integer_ratio()
    share, total_shares = share * whole_denominator, total_shares * part_denominator
    if not 0 <= share <= total_shares:
        raise ValueError("weights of a split must not be negative")
    twice_share, twice_total = 2 * share, 2 * total_shares
    # Rounded half up, because the part comes first and so gets what remains if both remainders are equal.
    return [(of_part := (total * twice_share + total_shares) // twice_total, total - of_part) for total in totals]


def _split(total: int, shares: Sequence[int], total_shares: int) -> list[int]:
    if total_shares == 0:
        if total:
            raise ValueError(f"cannot split {to_decimal(total)} over weights that are all zero")
        return [0 for _ in shares]
    parts = [total * share // total_shares for share in shares]
    remaining = total - sum(parts)
    if remaining:
        remainders = [total * share % total_shares for share in shares]
        for index in sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)[:remaining]:
            parts[index] += 1
    return parts


class Amounts(Struct, frozen=True, gc=False):
    """Base class of records that consist of fixed-point amounts only and are added field by field."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the field names in their published order."""
        return cls.__struct_fields__

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Add records field by field."""
        records = [*parts]
        if len(records) == 1:  # most workloads have one pod
            return records[0]
        return cls(*map(sum, zip(*map(astuple, records), strict=True))) if records else cls()

    @classmethod
    def total_if_complete(cls, parts: Iterable[Self | None]) -> Self | None:
        """Add records field by field; None if any of them is unknown."""
        all_parts = [*parts]
        available = [part for part in all_parts if part is not None]
        return cls.total(available) if len(available) == len(all_parts) else None

    @classmethod
    def columns(cls, records: Iterable[Self]) -> list[list[int]]:
        """Return the amounts of records as columns, one for each field."""
        rows = [*map(astuple, records)]
        return [*map(list, zip(*rows, strict=True))] if rows else [[] for _ in cls.names()]

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*map(sub, astuple(self), astuple(other)))

    def are_plausible(self) -> bool:
        """Whether every amount is within the bounds of a cluster-hour."""
        largest: int = max(map(abs, astuple(self)))
        return largest <= MAX_FIXED_POINT

    def has_price(self) -> bool:
        """Whether the amounts of money are known."""
        return True

    def published_amounts(self) -> tuple[int | None, ...]:
        """Return the amounts as published, in order of `names()`: money is None without a price."""
        amounts: tuple[int, ...] = astuple(self)
        if self.has_price():
            return amounts
        return tuple(
            None if name.endswith("_usd") else amount for name, amount in zip(self.names(), amounts, strict=True)
        )

    def figures(self) -> dict[str, Decimal | None]:
        """Return the published amounts as decimals, by name."""
        amounts = [None if amount is None else to_decimal(amount) for amount in self.published_amounts()]
        return dict(zip(self.names(), amounts, strict=True))


class Costs(Amounts, frozen=True, gc=False):
    """The cost of allocated GPUs: `allocated = effective + waste + unmeasured`, exact."""

    allocated_gpu_hours: int = 0
    effective_gpu_hours: int = 0
    allocated_usd: int = 0
    effective_usd: int = 0
    waste_usd: int = 0
    unmeasured_usd: int = 0
    unmeasured_gpu_hours: int = 0
    unpriced_gpu_hours: int = 0
    """Allocated on nodes without a price: not part of any amount of money."""
    energy_kwh: int = 0
    """What the GPUs drew while they were allocated, as far as it was measured."""
    energy_gpu_hours: int = 0
    """Allocated GPU-hours whose energy was measured; 0 where the energy is unknown."""
    unused_energy_kwh: int = 0
    """The energy of lines without any use in their hour: of GPUs that were held and idle all the time."""
    co2e_kg: int = 0
    """Location-based emissions of this energy."""
    energy_without_factor_kwh: int = 0
    """Energy in regions without an emission factor: not part of `co2e_kg`."""

    def has_price(self) -> bool:
        """Whether any allocated GPU-hour has a price."""
        return not 0 < self.unpriced_gpu_hours == self.allocated_gpu_hours

    def published_amounts(self) -> tuple[int | None, ...]:
        """Return the amounts as published: money is None without a price, and energy where it was not measured."""
        amounts = super().published_amounts()
        if not self.energy_gpu_hours:
            return amounts[:-5] + (None,) * 5
        if 0 < self.energy_without_factor_kwh == self.energy_kwh:
            return (*amounts[:-2], None, amounts[-1])
        return amounts


class CapacityCosts(Amounts, frozen=True, gc=False):
    """The cost of nodes that no pod's line carries.

    Together with `Costs` it adds up to the nodes' cost:
    `effective + waste + unmeasured + unallocated + stranded + unobserved + host + residual = node cost`.
    """

    capacity_gpu_hours: int = 0
    unallocated_gpu_hours: int = 0
    stranded_gpu_hours: int = 0
    unobserved_gpu_hours: int = 0
    node_cost_usd: int = 0
    unallocated_usd: int = 0
    stranded_usd: int = 0
    unobserved_usd: int = 0
    host_usd: int = 0
    residual_usd: int = 0
    unpriced_capacity_gpu_hours: int = 0
    """Of nodes without a price: not part of any amount of money."""
    device_energy_kwh: int = 0
    """What all GPUs drew, as far as it was measured: `energy of lines + idle + unattributed`."""
    idle_energy_kwh: int = 0
    """Drawn by GPUs while no pod held any part of them."""
    unattributed_energy_kwh: int = 0
    """Drawn while it is not known which pod held the GPU."""
    device_energy_gpu_hours: int = 0
    """GPU-hours whose energy was measured, held or not; 0 where the energy is unknown."""
    device_co2e_kg: int = 0
    """Emissions of the energy of all GPUs: those of lines + idle + unattributed."""
    idle_co2e_kg: int = 0
    unattributed_co2e_kg: int = 0
    device_energy_without_factor_kwh: int = 0
    """Energy in regions without an emission factor: not part of any emissions."""

    def has_price(self) -> bool:
        """Whether any capacity has a price."""
        return bool(self.node_cost_usd) or not 0 < self.unpriced_capacity_gpu_hours == self.capacity_gpu_hours

    def published_amounts(self) -> tuple[int | None, ...]:
        """Return the amounts as published: money is None without a price, and energy where it was not measured."""
        amounts = super().published_amounts()
        if not self.device_energy_gpu_hours:
            return (*amounts[:-8], *[None] * 8)
        if 0 < self.device_energy_without_factor_kwh == self.device_energy_kwh:
            return (*amounts[:-4], None, None, None, amounts[-1])
        return amounts

    def idle(self) -> "Idle":
        """Return the idle part: all costs that no pod's line carries."""
        return Idle(
            self.unallocated_gpu_hours + self.stranded_gpu_hours + self.unobserved_gpu_hours,
            self.unallocated_usd + self.stranded_usd + self.unobserved_usd + self.host_usd + self.residual_usd,
        )


class Idle(Amounts, frozen=True, gc=False):
    """Idle GPU-hours and idle cost, or a share of them."""

    idle_gpu_hours: int = 0
    idle_usd: int = 0


class Totals(Struct, frozen=True):
    """The amounts of a cluster-hour or of a period; `capacity` is None where it is unknown."""

    costs: Costs
    capacity: CapacityCosts | None

    @classmethod
    def total(cls, parts: Iterable["Totals"]) -> "Totals | None":
        """Add totals; None without any. The capacity is None if that of any part is."""
        totals = [*parts]
        if not totals:
            return None
        capacity = CapacityCosts.total_if_complete(part.capacity for part in totals)
        return cls(Costs.total(part.costs for part in totals), capacity)

    def are_plausible(self) -> bool:
        """Whether every amount is within the bounds of a cluster-hour."""
        return self.costs.are_plausible() and (self.capacity is None or self.capacity.are_plausible())
