"""What if a business unit moved some of its GPUs to MIG slices: the ledger's figures with the move, exact to the digit.

For each day and fact, a part of the whole GPU-hours that the unit held of a model is moved. A moved GPU-hour becomes a
slice's share of a GPU-hour. Its use stays the same, up to what the slice has. Freed GPU-hours become unallocated,
because nodes cost the same until they are removed. So the parts still add up:

    effective + waste + unmeasured + unallocated + … = node cost
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from msgspec import Struct

from gpucost.core.amounts import SCALE, CapacityCosts, Costs, quantize, to_decimal
from gpucost.core.errors import InvalidInputError
from gpucost.core.metering.gpu_models import MIG_GPUS, profile_share
from gpucost.core.rollups import FactKey

WHOLE_GPU = "nvidia.com/gpu"
_HOURS = 24
_WORD_PATTERN = re.compile(r"[a-z0-9]+")


def is_named_gpu(name: str, gpu_model: str) -> bool:
    """Whether a GPU model has all words of a name, such as A100. An A10 is neither an A100 nor an A10G."""
    words = set(_WORD_PATTERN.findall(name.lower()))
    return bool(words) and words <= set(_WORD_PATTERN.findall(gpu_model.lower()))


@dataclass(frozen=True, slots=True)
class MoveToSlices:
    """A move of a business unit from whole GPUs to MIG slices of one profile."""

    business_unit: str
    gpus: int
    model: str
    """Whole words of the GPU model's name, such as A100. An A10 is neither an A100 nor an A10G."""
    profile: str
    """MIG profile, such as 3g.20gb. Each GPU becomes one slice."""

    def includes(self, key: FactKey) -> bool:
        """Whether the GPUs of a fact can be moved."""
        return (
            key.business_unit == self.business_unit
            and key.resource == WHOLE_GPU
            and is_named_gpu(self.model, key.gpu_model)
        )


class SliceMoveOutcome(Struct, frozen=True):
    """The figures of some days, before and after the move."""

    costs_before: Costs
    """The unit's costs."""
    costs_after: Costs
    capacity_before: CapacityCosts
    """The fleet's capacity."""
    capacity_after: CapacityCosts
    other_units_costs: Costs
    """The other units' costs, the same before and after."""
    moved_gpu_hours: int
    slice_utilization: Decimal | None
    """Use of the moved GPUs ÷ the slices' compute. Above 1, the slices would not suffice."""
    days: int

    @property
    def moved_gpus(self) -> Decimal:
        """GPUs moved on average; fewer than requested if the unit held fewer."""
        return quantize(Fraction(self.moved_gpu_hours, SCALE * _HOURS * self.days))

    @property
    def freed_gpu_hours(self) -> Decimal:
        """Physical GPU-hours that become unallocated."""
        return to_decimal(self.costs_before.allocated_gpu_hours - self.costs_after.allocated_gpu_hours)

    @property
    def freed_usd(self) -> Decimal:
        """Their cost: unallocated at first, saved when their nodes are removed."""
        return to_decimal(self.costs_before.allocated_usd - self.costs_after.allocated_usd)

    @property
    def is_conserved(self) -> bool:
        """Whether the parts still add up to the node cost, to the last digit."""
        return _residual_usd(self.costs_before, self.other_units_costs, self.capacity_before) == _residual_usd(
            self.costs_after, self.other_units_costs, self.capacity_after
        )


def calculate_move(
    move: MoveToSlices, days: Iterable[tuple[Mapping[FactKey, Costs], CapacityCosts]]
) -> SliceMoveOutcome:
    """Calculate the outcome of a move.

    Args:
        move: the move.
        days: the facts of all units and the capacity of each day.

    Raises:
        InvalidInputError: the GPU model has no such profile, or the unit held no such GPUs.
    """
    before, after, others, capacities, freed = [], [], [], [], []
    moved_gpu_hours, used, slice_capacity = Fraction(0), Fraction(0), Fraction(0)
    day_count = 0
    for facts, capacity in days:
        day_count += 1
        capacities.append(capacity)
        movable = {key: costs for key, costs in facts.items() if move.includes(key)}
        others += [costs for key, costs in facts.items() if key.business_unit != move.business_unit]
        kept = [costs for key, costs in facts.items() if key.business_unit == move.business_unit and key not in movable]
        held = sum(costs.allocated_gpu_hours for costs in movable.values())
        moved_share = min(Fraction(1), Fraction(move.gpus * _HOURS * SCALE, held)) if held else Fraction(0)
        before += [*movable.values(), *kept]
        after += kept
        models = sorted({key.gpu_model for key in movable})
        for key, costs in movable.items():
            share, compute = _slice_shares(move, key, models)
            moved_costs = _costs_after_move(costs, moved_share, share)
            after.append(moved_costs)
            freed.append(costs - moved_costs)
            moved_gpu_hours += moved_share * costs.allocated_gpu_hours
            observed = moved_share * (costs.allocated_gpu_hours - costs.unmeasured_gpu_hours)
            used += moved_share * costs.effective_gpu_hours
            slice_capacity += observed * compute
    if not moved_gpu_hours:
        raise InvalidInputError(
            f"business unit {move.business_unit!r} held no whole GPU of a model like {move.model!r} on these days"
        )
    capacity = CapacityCosts.total(capacities)
    freed_costs = Costs.total(freed)
    unallocated = CapacityCosts(
        unallocated_gpu_hours=freed_costs.allocated_gpu_hours, unallocated_usd=freed_costs.allocated_usd
    )
    return SliceMoveOutcome(
        Costs.total(before),
        Costs.total(after),
        capacity,
        capacity + unallocated,
        Costs.total(others),
        round(moved_gpu_hours),
        quantize(used / slice_capacity) if slice_capacity else None,
        day_count,
    )


def _slice_shares(move: MoveToSlices, key: FactKey, models: Sequence[str]) -> tuple[Fraction, Fraction]:
    """A slice's dominant share of a GPU and its part of the compute slices; `models` are all that the move matches."""
    share = profile_share(move.profile, key.gpu_model)
    gpu = next(
        (mig_gpu for mig_gpu in MIG_GPUS if all(part in key.gpu_model.lower() for part in mig_gpu.model_name_parts)),
        None,
    )
    if share is None or gpu is None:
        profiles = sorted(gpu.memory_slices_by_name) if gpu else []
        allowed = f"it has {', '.join(profiles)}" if profiles else "its profiles are not known"
        several = f". {move.model!r} matches {' and '.join(models)}; name one of them" if len(models) > 1 else ""
        raise InvalidInputError(
            f"{move.profile!r} is not a MIG profile of {key.gpu_model or 'an unknown GPU'}; {allowed}{several}"
        )
    return share, Fraction(int(move.profile[0]), gpu.compute_slices)


def _costs_after_move(costs: Costs, moved_share: Fraction, share: Fraction) -> Costs:
    """A fact's costs with a part of it on slices.

    Amounts follow GPU-hours at the fact's rate. Each figure is rounded once, and waste is the remainder.
    """
    kept_share = 1 - moved_share * (1 - share)

    def scaled(amount: int) -> int:
        return round(amount * kept_share)

    allocated, unmeasured = scaled(costs.allocated_gpu_hours), scaled(costs.unmeasured_gpu_hours)
    usd, unmeasured_usd = scaled(costs.allocated_usd), scaled(costs.unmeasured_usd)
    observed = costs.allocated_gpu_hours - costs.unmeasured_gpu_hours
    utilization = Fraction(costs.effective_gpu_hours, observed) if observed else Fraction(0)
    fitting_share = 1 if utilization <= share else share / utilization  # utilization is limited by the slice
    effective_share = 1 - moved_share + moved_share * fitting_share
    effective = min(round(costs.effective_gpu_hours * effective_share), allocated - unmeasured)
    effective_usd = min(round(costs.effective_usd * effective_share), usd - unmeasured_usd)
    return Costs(
        allocated_gpu_hours=allocated,
        effective_gpu_hours=effective,
        allocated_usd=usd,
        effective_usd=effective_usd,
        waste_usd=usd - effective_usd - unmeasured_usd,
        unmeasured_usd=unmeasured_usd,
        unmeasured_gpu_hours=unmeasured,
        unpriced_gpu_hours=scaled(costs.unpriced_gpu_hours),
    )


def _residual_usd(unit: Costs, others: Costs, capacity: CapacityCosts) -> int:
    """Return the residual: node cost minus all its other parts, and minus the residual before the move."""
    allocated = sum(costs.effective_usd + costs.waste_usd + costs.unmeasured_usd for costs in (unit, others))
    return capacity.node_cost_usd - allocated - capacity.idle().idle_usd
