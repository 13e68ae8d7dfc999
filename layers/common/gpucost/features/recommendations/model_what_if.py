"""What if a period's tokens were bought from an API, or processed on another GPU: estimates, next to their actual cost.

The price of the API is the caller's. The throughput of the other GPU is what the same model reached on it in the same
period, in weighted tokens per GPU-hour, so that servers with longer prompts can be compared:

    cost there = weighted tokens here × cost there ÷ weighted tokens there
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from msgspec import Struct

from gpucost.core.amounts import SCALE, Costs, quantize, to_decimal
from gpucost.core.costs_by_model import MILLION, ModelSum, TokenWeights, full_use_share
from gpucost.core.hour_record import ModelHour
from gpucost.features.recommendations.what_if import is_named_gpu


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
