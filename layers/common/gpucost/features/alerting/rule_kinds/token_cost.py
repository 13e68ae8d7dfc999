"""Token cost: what a business unit pays for a million tokens of a model, in a window of hours."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from gpucost.core.hour_record import ModelHour
from gpucost.core.inference import ModelSum, TokenWeights
from gpucost.features.alerting.formatting import format_threshold
from gpucost.features.alerting.subjects import TokenKind

ModelOfUnit = tuple[str, str]
"""Business unit and model."""
UNIT_COST_NAMES: Mapping[TokenKind, str] = {
    "blended": "usd_per_million_tokens",
    "prompt": "usd_per_million_prompt_tokens",
    "generated": "usd_per_million_generated_tokens",
}
"""The names of the figures in reports."""


class ModelWindow(Struct, frozen=True):
    """The costs and tokens of one business unit's model in a window."""

    total: ModelSum
    has_unknown_tokens: bool
    """Whether tokens of the model, or of an unknown model of the unit, are unknown."""

    def counted(self, kind: TokenKind) -> int:
        """Return the tokens of a kind that were counted; "blended" are prompt and generated tokens."""
        prompt, generated = self.total.prompt_tokens or 0, self.total.generated_tokens or 0
        return {"blended": prompt + generated, "prompt": prompt, "generated": generated}[kind]


class TokenBudget(Struct, frozen=True):
    """The most that a million tokens may cost."""

    usd_per_million_tokens: Decimal
    tokens: TokenKind
    window_hours: int

    def exceeded_by(self, window: ModelWindow, weights: TokenWeights) -> bool | None:
        """Whether tokens cost more; None if that is unknown.

        A model without such tokens, for example one that was not called, has no cost per token: it exceeds nothing.
        """
        if not window.counted(self.tokens):
            return None if window.has_unknown_tokens else False
        least = window.total.least_unit_costs(weights)[UNIT_COST_NAMES[self.tokens]]
        if least is not None and least > self.usd_per_million_tokens:
            return True
        return None if least is None or window.total.token_costs.unpriced_gpu_hours else False

    def describe(self, currency: str) -> str:
        """Describe the condition in plain text."""
        kind = "" if self.tokens == "blended" else f"{self.tokens} "
        hours = "1 hour" if self.window_hours == 1 else f"{self.window_hours} hours"
        budget = format_threshold(self.usd_per_million_tokens, currency)
        return f"more than {budget} per million {kind}tokens in {hours}"

    def notification_figures(self, window: ModelWindow, weights: TokenWeights) -> dict[str, Decimal | None]:
        """Return the figures of a notification on a model."""
        figures, name = window.total.figures(weights), UNIT_COST_NAMES[self.tokens]
        names = (name, f"{name}_at_full_use", "prompt_tokens", "generated_tokens", "allocated_usd")
        return {
            **{name: None if figures[name] is None else Decimal(figures[name] or 0) for name in names},
            "budget_usd_per_million_tokens": self.usd_per_million_tokens,
        }


def models_of_units(rows: Iterable[ModelHour]) -> dict[ModelOfUnit, list[ModelHour]]:
    """Group rows by business unit and model; the model of pods whose tokens are unknown is empty."""
    groups: dict[ModelOfUnit, list[ModelHour]] = {}
    for row in rows:
        if row.key.server:  # others are pods without an inference server
            groups.setdefault((row.key.business_unit, row.key.model), []).append(row)
    return groups


def model_window(groups: Mapping[ModelOfUnit, Sequence[ModelHour]], unit: str, model: str) -> ModelWindow:
    """Return the sum of a business unit's model; one without rows has no tokens."""
    rows = groups.get((unit, model), ())
    has_unknown_tokens = (unit, "") in groups or any(row.prompt_tokens is None for row in rows)
    return ModelWindow(ModelSum.of(rows), has_unknown_tokens)
