"""Exact amounts of USD, GPU-hours, kWh and kg CO2e, and the records that consist of them.

Each amount is described here, where it is a field of `Costs`, `CapacityCosts` or `Idle`.

Amounts are fixed-point: integers that count 1e-12 USD, GPU-hours, kWh or kg. An amount is rounded once, when it is
rated; sums are exact, and the parts of a split sum to the total. `Decimal` is for prices, ratios and what people read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import cache
from math import lcm
from operator import add, attrgetter, itemgetter, sub
from typing import Annotated, Any, Literal, Self, get_type_hints

from msgspec import Struct
from msgspec.structs import astuple

SCALE = 10**12
"""One USD, or one GPU-hour."""
DIGITS = 12
"""Digits after the decimal point."""
MAX_AMOUNT = Decimal(10**12)
"""The largest USD or GPU-hours of one cluster-hour."""
MAX_FIXED_POINT = int(MAX_AMOUNT) * SCALE
Need = Literal["nothing", "price", "energy", "emission factor"]
"""What must be known for an amount to be known: a price, measured energy, or an emission factor of this energy."""
_UNITS = {"_gpu_hours": "GPU-hours", "_usd": "USD", "_kwh": "kWh", "co2e_kg": "kg CO2e"}
"""By the ending of the names of amounts. USD stands for the currency of the response."""
WIDE_CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)
"""Has enough digits for any sum or product of amounts."""


def to_fixed_point(number: Fraction | Decimal | int) -> int:
    """Round a number half-even to a fixed-point amount, the ledger's resolution."""
    if isinstance(number, Decimal):
        return int(number.scaleb(DIGITS, context=WIDE_CONTEXT).to_integral_value(ROUND_HALF_EVEN, context=WIDE_CONTEXT))
    amount, remainder = divmod(number.numerator * SCALE, number.denominator)
    twice = 2 * remainder
    is_rounded_up = twice > number.denominator or (twice == number.denominator and amount % 2 == 1)
    return amount + is_rounded_up


def to_decimal(amount: int) -> Decimal:
    """Convert a fixed-point amount to a decimal with 12 digits after the point, exactly."""
    return WIDE_CONTEXT.scaleb(amount, -DIGITS)


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
    if not total:
        return [0] * len(shares)
    if total_shares == 0:
        raise ValueError(f"cannot split {to_decimal(total)} over weights that are all zero")
    parts = [total * share // total_shares for share in shares]
    remaining = total - sum(parts)
    if remaining:
        remainders = [total * share % total_shares for share in shares]
        for index in sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)[:remaining]:
            parts[index] += 1
    return parts


# Records of amounts: each field says its unit, when it is unknown, and its column of the exports.


def unit_of(name: str) -> str:
    """Return the unit of an amount, with which its name ends.

    Raises:
        TypeError: its name ends with no unit.
    """
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return unit
    raise TypeError(f"the name of the amount {name} does not end with a unit; units: {', '.join(_UNITS)}")


class AmountField(Struct, frozen=True):
    """Describes an amount. What publishes amounts derives from it; a field of a record is `int` annotated with it."""

    meaning: str
    """The API's description."""
    needs: Need
    """What must be known of the record for the amount to be known. Otherwise it is published as None, never as 0."""
    title: str = ""
    """What the page, the command line and documents call it within a sentence; "" if they do not show it on its own."""
    column: str = ""
    """The column of the exports; "" if they do not have the amount."""


class Amounts(Struct, frozen=True, gc=False):
    """Base class of records that consist of described fixed-point amounts only and are added field by field.

    Each field's name ends with its unit. The ledger stores amounts by their position: new fields stand at the end.
    """

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the field names in their published order."""
        return cls.__struct_fields__

    @classmethod
    @cache
    def fields(cls) -> Mapping[str, AmountField]:
        """Return the descriptions by name, in order.

        Raises:
            TypeError: a field is not described.
        """
        fields = described_fields(get_type_hints(cls, include_extras=True))
        if undescribed := set(cls.names()) - fields.keys():
            raise TypeError(f"the amount {min(undescribed)} is not described; annotate it with an AmountField")
        return fields

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

    def missing(self) -> tuple[Need, ...]:
        """Return what is not known of the record, so that amounts that need it are not known either."""
        return ()

    def published_amounts(self) -> tuple[int | None, ...]:
        """Return the amounts as published, in order of `names()`: None if what they need is missing."""
        amounts: tuple[int, ...] = astuple(self)
        missing = self.missing()
        if not missing:
            return amounts
        return _mask(type(self), missing)((*amounts, None))

    def figures(self) -> dict[str, Decimal | None]:
        """Return the published amounts as decimals, by name."""
        amounts = [None if amount is None else to_decimal(amount) for amount in self.published_amounts()]
        return dict(zip(self.names(), amounts, strict=True))


def described_fields(annotations: Mapping[str, Any]) -> dict[str, AmountField]:
    """Return the descriptions of the fields that are amounts, by name, from a class's annotations."""
    return {
        name: description
        for name, annotation in annotations.items()
        for description in getattr(annotation, "__metadata__", ())
        if isinstance(description, AmountField)
    }


@cache
def _mask(
    record: type[Amounts], missing: tuple[Need, ...]
) -> Callable[[tuple[int | None, ...]], tuple[int | None, ...]]:
    """Return a function that replaces the amounts that need what is missing by the last element, which follows them.

    It selects by position in C, because reports have thousands of rows; the positions follow from the fields' needs.
    """
    positions = [-1 if field.needs in missing else position for position, field in enumerate(record.fields().values())]
    return itemgetter(*positions)


class Costs(Amounts, frozen=True, gc=False):
    """The cost of allocated GPUs: `allocated = effective + waste + unmeasured`, exact."""

    allocated_gpu_hours: Annotated[
        int, AmountField("GPU-hours allocated to pods", needs="nothing", title="GPU-hours", column="x_GpuHours")
    ] = 0
    effective_gpu_hours: Annotated[
        int,
        AmountField(
            "Allocated GPU-hours × utilization, where utilization was measured",
            needs="nothing",
            title="effective GPU-hours",
            column="x_EffectiveGpuHours",
        ),
    ] = 0
    allocated_usd: Annotated[
        int,
        AmountField("Cost of the allocated GPU-hours", needs="price", title="allocated cost", column="EffectiveCost"),
    ] = 0
    effective_usd: Annotated[
        int,
        AmountField(
            "Part of the allocated cost that was used", needs="price", title="effective cost", column="x_UsedCost"
        ),
    ] = 0
    waste_usd: Annotated[
        int,
        AmountField(
            "Part of the allocated cost that was measured and not used",
            needs="price",
            title="waste",
            column="x_WasteCost",
        ),
    ] = 0
    unmeasured_usd: Annotated[
        int,
        AmountField(
            "Part of the allocated cost without a utilization measurement",
            needs="price",
            title="unmeasured cost",
            column="x_UnmeasuredCost",
        ),
    ] = 0
    unmeasured_gpu_hours: Annotated[
        int,
        AmountField(
            "Allocated GPU-hours without a utilization measurement", needs="nothing", column="x_UnmeasuredGpuHours"
        ),
    ] = 0
    unpriced_gpu_hours: Annotated[
        int,
        AmountField(
            "Allocated GPU-hours on nodes without a price. No amount includes them. Amounts are null if these are all "
            "allocated GPU-hours",
            needs="nothing",
            column="x_UnpricedGpuHours",
        ),
    ] = 0
    energy_kwh: Annotated[
        int,
        AmountField(
            "Energy that the GPUs drew while pods held them, as far as it was measured; null if it was not",
            needs="energy",
            title="energy",
            column="x_EnergyKwh",
        ),
    ] = 0
    energy_gpu_hours: Annotated[
        int, AmountField("Allocated GPU-hours whose energy was measured", needs="energy", column="x_EnergyGpuHours")
    ] = 0
    unused_energy_kwh: Annotated[
        int, AmountField("Energy of pods that used their GPUs at no time of the hour", needs="energy")
    ] = 0
    co2e_kg: Annotated[
        int,
        AmountField(
            "Location-based emissions of the energy in kg CO2e; null if energy or emission factor are unknown",
            needs="emission factor",
            title="emissions",
            column="x_Co2eKg",
        ),
    ] = 0
    energy_without_factor_kwh: Annotated[
        int, AmountField("Energy in regions without an emission factor. No emissions include it", needs="energy")
    ] = 0

    def split(self, weights: Sequence[Fraction | int]) -> list["Costs"]:
        """Split a line's costs by weights as `split_each` does; in each part, allocated is the sum of its parts.

        The price of a line is known or not, so all or none of its GPU-hours are unpriced.
        """
        waste_hours = self.allocated_gpu_hours - self.effective_gpu_hours - self.unmeasured_gpu_hours
        split_amounts = split_each([waste_hours, *_split_costs(self)], weights)
        has_price = self.has_price()
        parts = []
        for waste_hours, *amounts in zip(*split_amounts, strict=True):
            part: dict[str, int] = dict(zip(_SPLIT_COSTS, amounts, strict=True))
            allocated_hours = part["effective_gpu_hours"] + waste_hours + part["unmeasured_gpu_hours"]
            allocated_usd = part["effective_usd"] + part["waste_usd"] + part["unmeasured_usd"]
            unpriced_hours = 0 if has_price else allocated_hours
            parts.append(
                Costs(
                    allocated_gpu_hours=allocated_hours,
                    allocated_usd=allocated_usd,
                    unpriced_gpu_hours=unpriced_hours,
                    **part,
                )
            )
        return parts

    def has_price(self) -> bool:
        """Whether any allocated GPU-hour has a price."""
        return not 0 < self.unpriced_gpu_hours == self.allocated_gpu_hours

    def missing(self) -> tuple[Need, ...]:
        """Return whether a price, all energy or all emissions are missing."""
        of_energy = _missing_of_energy(self.energy_gpu_hours, self.energy_kwh, self.energy_without_factor_kwh)
        return of_energy if self.has_price() else ("price", *of_energy)


_SPLIT_COSTS = tuple(
    name for name in Costs.names() if name not in {"allocated_gpu_hours", "allocated_usd", "unpriced_gpu_hours"}
)
"""The costs of a line that are split; the others follow from them."""
_split_costs: Callable[[Costs], tuple[int, ...]] = attrgetter(*_SPLIT_COSTS)


class CapacityCosts(Amounts, frozen=True, gc=False):
    """The cost of nodes that no pod's line carries.

    Together with `Costs` it adds up to the nodes' cost:
    `effective + waste + unmeasured + unallocated + stranded + unobserved + host + residual = node cost`.
    """

    capacity_gpu_hours: Annotated[int, AmountField("GPU-hours that the nodes had", needs="nothing")] = 0
    unallocated_gpu_hours: Annotated[
        int, AmountField("GPU-hours that nodes offered and no pod held", needs="nothing")
    ] = 0
    stranded_gpu_hours: Annotated[int, AmountField("GPU-hours that no pod could hold", needs="nothing")] = 0
    unobserved_gpu_hours: Annotated[
        int, AmountField("GPU-hours for which no metrics say who held them", needs="nothing")
    ] = 0
    node_cost_usd: Annotated[
        int, AmountField("Cost of the nodes; all parts add up to it", needs="price", title="node cost")
    ] = 0
    unallocated_usd: Annotated[
        int, AmountField("Cost of the unallocated GPU-hours", needs="price", title="unallocated cost")
    ] = 0
    stranded_usd: Annotated[
        int, AmountField("Cost of the stranded GPU-hours", needs="price", title="stranded cost")
    ] = 0
    unobserved_usd: Annotated[
        int, AmountField("Cost of the unobserved GPU-hours", needs="price", title="unobserved cost")
    ] = 0
    host_usd: Annotated[
        int,
        AmountField(
            "Part of the nodes' price that the split policy gives to CPU and memory", needs="price", title="host cost"
        ),
    ] = 0
    residual_usd: Annotated[
        int,
        AmountField(
            "Node cost minus all other parts: 0 unless metrics contradict each other",
            needs="price",
            title="residual cost",
        ),
    ] = 0
    unpriced_capacity_gpu_hours: Annotated[
        int, AmountField("GPU-hours of nodes without a price. No amount includes them", needs="nothing")
    ] = 0
    device_energy_kwh: Annotated[
        int,
        AmountField(
            "Energy of all GPUs, as far as it was measured: energy of pods + idle + unattributed; null if it was not "
            "measured",
            needs="energy",
        ),
    ] = 0
    idle_energy_kwh: Annotated[int, AmountField("Energy of GPUs of which no pod held any part", needs="energy")] = 0
    unattributed_energy_kwh: Annotated[
        int, AmountField("Energy of GPUs of which it is not known which pods held them", needs="energy")
    ] = 0
    device_energy_gpu_hours: Annotated[
        int, AmountField("GPU-hours whose energy was measured, held or not", needs="energy")
    ] = 0
    device_co2e_kg: Annotated[
        int, AmountField("Location-based emissions of the energy of all GPUs, in kg CO2e", needs="emission factor")
    ] = 0
    idle_co2e_kg: Annotated[
        int, AmountField("Location-based emissions of the idle energy, in kg CO2e", needs="emission factor")
    ] = 0
    unattributed_co2e_kg: Annotated[
        int, AmountField("Location-based emissions of the unattributed energy, in kg CO2e", needs="emission factor")
    ] = 0
    device_energy_without_factor_kwh: Annotated[
        int, AmountField("Energy of all GPUs in regions without an emission factor", needs="energy")
    ] = 0

    def has_price(self) -> bool:
        """Whether any capacity has a price."""
        return bool(self.node_cost_usd) or not 0 < self.unpriced_capacity_gpu_hours == self.capacity_gpu_hours

    def missing(self) -> tuple[Need, ...]:
        """Return whether a price, all energy or all emissions are missing."""
        of_energy = _missing_of_energy(
            self.device_energy_gpu_hours, self.device_energy_kwh, self.device_energy_without_factor_kwh
        )
        return of_energy if self.has_price() else ("price", *of_energy)

    def idle(self) -> "Idle":
        """Return the idle part: all costs that no pod's line carries."""
        return Idle(
            self.unallocated_gpu_hours + self.stranded_gpu_hours + self.unobserved_gpu_hours,
            self.unallocated_usd + self.stranded_usd + self.unobserved_usd + self.host_usd + self.residual_usd,
        )


def _missing_of_energy(measured_gpu_hours: int, kwh: int, without_factor_kwh: int) -> tuple[Need, ...]:
    """Return what is missing of energy and emissions. Without any energy, there are no emissions either."""
    if not measured_gpu_hours:
        return ("energy", "emission factor")
    return ("emission factor",) if 0 < without_factor_kwh == kwh else ()


class Idle(Amounts, frozen=True, gc=False):
    """Idle GPU-hours and idle cost, or a share of them."""

    idle_gpu_hours: Annotated[int, AmountField("Share of idle GPU-hours; null if not known", needs="nothing")] = 0
    idle_usd: Annotated[
        int,
        AmountField("Share of unallocated + stranded + unobserved + host + residual; null if not known", needs="price"),
    ] = 0


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
