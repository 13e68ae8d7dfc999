"""What if a business unit moved GPUs to MIG slices, or a period's tokens were processed elsewhere."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any, NamedTuple

from msgspec import Struct

from gpucost.core.amounts import SCALE, CapacityCosts, Costs, quantize, to_decimal
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.costs_by_model import MILLION, ModelSum, TokenWeights, full_use_share
from gpucost.core.errors import InvalidInputError
from gpucost.core.hour_record import ModelHour
from gpucost.core.hours import DAY, floor_day
from gpucost.core.ledger import FactKey
from gpucost.core.metering.gpu_models import MIG_GPUS, profile_share
from gpucost.settings import CoreSettings
from gpucost.storage.ports import Clock, PublishedHours, Rollups, SettingsStore

# What if a business unit moved some of its GPUs to MIG slices: the ledger's figures with the move, exact to the digit.
#
# For each day and fact, a part of the whole GPU-hours that the unit held of a model is moved. A moved GPU-hour becomes
# a slice's share of a GPU-hour. Its use stays the same, up to what the slice has. Freed GPU-hours become unallocated,
# because nodes cost the same until they are removed. So the parts still add up:
#
#     effective + waste + unmeasured + unallocated + … = node cost

WHOLE_GPU = "nvidia.com/gpu"
_HOURS_PER_DAY = 24
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
        return quantize(Fraction(self.moved_gpu_hours, SCALE * _HOURS_PER_DAY * self.days))

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
        moved_share = min(Fraction(1), Fraction(move.gpus * _HOURS_PER_DAY * SCALE, held)) if held else Fraction(0)
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


# What if a period's tokens were bought from an API, or processed on another GPU: estimates, next to their actual cost.
#
# The price of the API is the caller's. The throughput of the other GPU is what the same model reached on it in the same
# period, in weighted tokens per GPU-hour, so that servers with longer prompts can be compared:
#
#     cost there = weighted tokens here × cost there ÷ weighted tokens there


class ApiPrice(NamedTuple):
    """What an API charges for a million tokens."""

    prompt: Decimal
    generated: Decimal
    cached: Decimal
    """A prompt token from a cache."""

    def cost(self, total: ModelSum) -> Decimal | None:
        """Return the price of a sum's tokens; None without tokens.

        Where a server does not count cached tokens, all prompt tokens have the price of others.
        """
        if total.prompt_tokens is None or total.generated_tokens is None:
            return None
        prices = TokenWeights(prompt=self.prompt, generated=self.generated, cached=self.cached)
        return quantize(total.weighted_tokens(prices) / MILLION)


class CostPair(NamedTuple):
    """A cost as it was, and without the time in which GPUs waited."""

    usd: Decimal | None
    usd_at_full_use: Decimal | None


class OtherGpuOutcome(Struct, frozen=True):
    """The tokens that a model processed on other GPUs than the named one, and what they would cost on it."""

    moved: CostPair
    """What they cost."""
    estimate: CostPair
    estimated_gpu_hours: Decimal | None
    """None: the model processed no tokens on the named GPU, so that its throughput is unknown."""
    measured_gpu_hours: Decimal
    """On which the estimate is based."""
    measured_tokens_per_gpu_second: Decimal | None


class ModelOutcome(Struct, frozen=True):
    """One model in a period, and what its tokens would cost elsewhere."""

    model: str
    total: ModelSum
    cost: CostPair
    api_usd: Decimal | None
    other_gpu: OtherGpuOutcome | None

    def figures(self) -> dict[str, Any]:
        """Return the outcome as it is published."""
        other = self.other_gpu
        return {
            "model": self.model,
            "prompt_tokens": self.total.prompt_tokens,
            "cached_tokens": self.total.cached_tokens,
            "generated_tokens": self.total.generated_tokens,
            **self.cost._asdict(),
            "api_usd": self.api_usd,
            "other_gpu": None
            if other is None
            else {
                "moved_usd": other.moved.usd,
                "moved_usd_at_full_use": other.moved.usd_at_full_use,
                "estimated_usd": other.estimate.usd,
                "estimated_usd_at_full_use": other.estimate.usd_at_full_use,
                "estimated_gpu_hours": other.estimated_gpu_hours,
                "measured_gpu_hours": other.measured_gpu_hours,
                "measured_tokens_per_gpu_second": other.measured_tokens_per_gpu_second,
            },
        }


def compare_models(
    rows: Sequence[ModelHour],
    everywhere: Iterable[ModelHour],
    weights: TokenWeights,
    api_price: ApiPrice | None,
    gpu_model: str | None,
) -> list[ModelOutcome]:
    """Compare what models cost with an API's price and with another GPU, the most expensive model first.

    Args:
        rows: the rows to compare. Those whose model is unknown are left out.
        everywhere: all rows of the period, from which throughput is measured.
        weights: what a token costs relative to others.
        api_price: the price of the API; None: not compared.
        gpu_model: whole words of the other GPU's name, such as H100; None: not compared.
    """
    by_model: dict[str, list[ModelHour]] = {}
    for row in rows:
        if row.key.model:
            by_model.setdefault(row.key.model, []).append(row)
    measured: dict[str, list[ModelHour]] = {}
    for row in everywhere if gpu_model is not None else ():
        if is_named_gpu(gpu_model or "", row.key.gpu_model):
            measured.setdefault(row.key.model, []).append(row)
    outcomes = []
    for model, of_model in by_model.items():
        total = ModelSum.of(of_model)
        other_gpu = None
        if gpu_model is not None:
            moved = ModelSum.of([row for row in of_model if not is_named_gpu(gpu_model, row.key.gpu_model)])
            other_gpu = _other_gpu(moved, ModelSum.of(measured.get(model, [])), weights)
        api_usd = None if api_price is None else api_price.cost(total)
        outcomes.append(ModelOutcome(model, total, _cost_pair(total.token_costs), api_usd, other_gpu))
    return sorted(outcomes, key=lambda outcome: (-outcome.total.token_costs.allocated_usd, outcome.model))


def _other_gpu(moved: ModelSum, there: ModelSum, weights: TokenWeights) -> OtherGpuOutcome:
    moved_tokens, tokens_there = moved.weighted_tokens(weights), there.weighted_tokens(weights)
    ratio = moved_tokens / tokens_there if tokens_there else None
    pair, hours = _cost_pair(there.token_costs), there.token_costs.allocated_gpu_hours
    speed = there.figures(weights)["tokens_per_gpu_second"] if tokens_there else None
    return OtherGpuOutcome(
        _cost_pair(moved.token_costs),
        CostPair(*(None if usd is None or ratio is None else quantize(Fraction(usd) * ratio) for usd in pair)),
        None if ratio is None else quantize(Fraction(hours, SCALE) * ratio),
        to_decimal(hours),
        None if speed is None else Decimal(speed),
    )


def _cost_pair(costs: Costs) -> CostPair:
    """Return the cost of rows with known tokens; None if a part has no price, or at full use without measured use."""
    if costs.unpriced_gpu_hours:
        return CostPair(None, None)
    share = full_use_share(costs)
    at_full_use = None if share is None else quantize(Fraction(costs.allocated_usd, SCALE) * share)
    return CostPair(to_decimal(costs.allocated_usd), at_full_use)


# The services: scenarios from the ledger's last whole days.


class WhatIfService:
    """Calculates what-if scenarios.

    Args:
        settings_store: names the clusters.
        rollups: reads days and their facts.
        clock: the current time.
    """

    def __init__(self, settings_store: SettingsStore, rollups: Rollups, *, clock: Clock) -> None:
        self._settings_store = settings_store
        self._rollups = rollups
        self._clock = clock

    def what_if(self, move: MoveToSlices, *, days: int, cluster: str | None = None) -> tuple[SliceMoveOutcome, str]:
        """The outcome of moving GPUs in the last whole UTC days, and its currency. Days without figures are left out.

        Raises:
            InvalidInputError: the cluster or profile is unknown, there are several currencies, or nothing to move.
        """
        settings = self._settings_store.current().settings
        names = _cluster_names(settings, cluster)
        end = floor_day(self._clock())
        currencies: set[str] = set()

        def read() -> Iterator[tuple[Mapping[FactKey, Costs], CapacityCosts]]:
            for day in (end - DAY * number for number in range(days, 0, -1)):
                capacities = []
                has_figures, all_facts = False, CostsByKey[FactKey]()
                for name in names:
                    for summary in self._rollups.days(name, day, day + DAY):
                        currencies.update(summary.currencies)
                        has_figures = has_figures or bool(summary.currencies)
                        if summary.totals is not None and summary.totals.capacity is not None:
                            capacities.append(summary.totals.capacity)
                    for _, facts in self._rollups.facts(name, day, day + DAY):
                        all_facts += facts
                if has_figures or all_facts:
                    yield all_facts, CapacityCosts.total(capacities)

        outcome = calculate_move(move, read())
        return outcome, _single_currency(currencies, settings)


class ModelsOutcome(Struct, frozen=True):
    """What models cost in a period, and what their tokens would cost elsewhere."""

    start: datetime
    end: datetime
    currency: str
    models: Sequence[ModelOutcome]
    unknown_tokens_usd: Decimal
    """The cost of inference servers whose tokens are unknown. No model has it."""


class ModelWhatIfService:
    """Compares what models cost with an API's price or with another GPU.

    Args:
        settings_store: names the clusters, and has the weights of tokens.
        ledger: reads costs by model.
        clock: the current time.
    """

    def __init__(self, settings_store: SettingsStore, ledger: PublishedHours, *, clock: Clock) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._clock = clock

    def compare(
        self,
        *,
        days: int,
        api_price: ApiPrice | None,
        gpu_model: str | None,
        cluster: str | None = None,
        business_unit: str | None = None,
        model: str = "*",
    ) -> ModelsOutcome:
        """Compare the last whole UTC days. Throughput on another GPU is measured in all clusters and business units.

        Args:
            days: number of days.
            api_price: the price of the API; None: not compared.
            gpu_model: whole words of the other GPU's name; None: not compared.
            cluster: only this cluster.
            business_unit: only this business unit.
            model: shell pattern of the models' names.

        Raises:
            InvalidInputError: nothing to compare with, an unknown cluster, several currencies, or no such model.
        """
        if api_price is None and gpu_model is None:
            raise InvalidInputError("pass the price of an API, another GPU model, or both")
        settings = self._settings_store.current().settings
        selected = _cluster_names(settings, cluster)
        end = floor_day(self._clock())
        start = end - DAY * days
        currencies: set[str] = set()
        rows: list[ModelHour] = []
        everywhere: list[ModelHour] = []
        for name in selected if gpu_model is None else _cluster_names(settings, None):
            manifests = self._ledger.manifests(name, start, end)
            currencies |= {manifest.currency for manifest in manifests if manifest.status != "incomplete"}
            models_by_hour = self._ledger.models_of(manifests)
            of_cluster = [row for hour in models_by_hour for row in models_by_hour[hour] if row.key.server]
            everywhere += of_cluster
            rows += [
                row
                for row in of_cluster
                if name in selected
                and business_unit in {None, row.key.business_unit}
                and (not row.key.model or fnmatchcase(row.key.model, model))
            ]
        currency = _single_currency(currencies, settings)
        outcomes = compare_models(rows, everywhere, settings.inference.rules().weights, api_price, gpu_model)
        if not outcomes:
            raise InvalidInputError(
                f"no model like {model!r} was served on these days. `gpucost report --inference` lists models"
            )
        unknown = ModelSum.of([row for row in rows if row.prompt_tokens is None]).costs
        return ModelsOutcome(start, end, currency, outcomes, to_decimal(unknown.allocated_usd))


def _cluster_names(settings: CoreSettings, cluster: str | None) -> list[str]:
    """Return the name of one cluster, or of all of them.

    Raises:
        InvalidInputError: the cluster is unknown.
    """
    names = [cluster_settings.name for cluster_settings in settings.clusters]
    if cluster is not None and cluster not in names:
        raise InvalidInputError(f"cluster {cluster!r} is not in the settings; allowed: {', '.join(names)}")
    return names if cluster is None else [cluster]


def _single_currency(currencies: set[str], settings: CoreSettings) -> str:
    if len(currencies) > 1:
        raise InvalidInputError(
            f"these days have several currencies: {', '.join(sorted(currencies))}. Choose days or a cluster with one"
        )
    return next(iter(currencies), settings.pricing.currency)
