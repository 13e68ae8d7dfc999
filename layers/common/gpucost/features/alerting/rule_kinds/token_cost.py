"""Token cost: what a business unit pays for a million tokens of a model, in a window of hours."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from msgspec import Struct
from pydantic import Field

from gpucost.core.costs_by_model import ModelSum, TokenWeights
from gpucost.core.hour_record import ModelHour
from gpucost.features.alerting.formatting import NOT_AVAILABLE, FigureFormatter, format_threshold, matching_exactly
from gpucost.features.alerting.rule_kinds.base import (
    DurationHours,
    Figure,
    Finding,
    HourRule,
    NamePattern,
    NamePatterns,
    RuleOverride,
    Subject,
    matches_any,
)
from gpucost.settings import CoreSettings
from gpucost.settings.section import Positive

if TYPE_CHECKING:
    from gpucost.features.alerting.evaluation import HourFigures
    from gpucost.features.alerting.model import Alert

TokenKind = Literal["blended", "prompt", "generated"]
"""The tokens whose unit cost a rule limits; blended: prompt and generated tokens together."""
UNIT_COST_NAMES: Mapping[TokenKind, str] = {
    "blended": "usd_per_million_tokens",
    "prompt": "usd_per_million_prompt_tokens",
    "generated": "usd_per_million_generated_tokens",
}
"""The names of the figures in reports."""
_TOKENS_BY_UNIT_COST = {
    "usd_per_million_tokens": "tokens",
    "usd_per_million_prompt_tokens": "prompt tokens",
    "usd_per_million_generated_tokens": "generated tokens",
}


class ModelWindow(Struct, frozen=True):
    """The costs and tokens of one business unit's model in a window."""

    total: ModelSum
    has_unknown_tokens: bool
    """Whether tokens of the model, or of an unknown model of the unit, are unknown."""

    def counted(self, kind: TokenKind) -> int:
        """Return the tokens of a kind that were counted; "blended" are prompt and generated tokens."""
        prompt, generated = self.total.prompt_tokens or 0, self.total.generated_tokens or 0
        return {"blended": prompt + generated, "prompt": prompt, "generated": generated}[kind]


class TokenCostOverride(RuleOverride):
    """Another budget for some models."""

    example = """
    model: "*-70B-*"
    usd_per_million_tokens: 6
    """

    model: NamePattern | None = None
    """Shell pattern of the model's name."""
    usd_per_million_tokens: Positive | None = None
    """The budget in USD, in place of the rule's."""
    for_hours: DurationHours | None = None
    """Hours in a row, in place of the rule's."""

    def matches(self, subject: Subject) -> bool:
        """Whether the override applies to a subject, whose detail is the model."""
        return super().matches(subject) and (self.model is None or fnmatchcase(subject.detail, self.model))

    def overridden_settings(self) -> dict[str, Any]:
        """Return the keys that the override replaces."""
        return {key: setting for key, setting in super().overridden_settings().items() if key != "model"}


class TokenCostRule(HourRule):
    """Fires when a million tokens of a model cost a business unit more than a budget. Requires `inference`."""

    kind = "token-cost"
    title = "Token cost alert"
    action = (
        "Compare the cost at full use: if it is much lower, the model waits for requests and fewer replicas "
        "may do. If not, compare other GPUs with `gpucost recommendations what-if-models`."
    )
    figures = (
        *(Figure(f"Per million {tokens}", name) for name, tokens in _TOKENS_BY_UNIT_COST.items()),
        *(Figure("At full use", f"{name}_at_full_use") for name in _TOKENS_BY_UNIT_COST),
        Figure("Budget", "budget_usd_per_million_tokens"),
        Figure("Prompt tokens", "prompt_tokens"),
        Figure("Generated tokens", "generated_tokens"),
    )
    needs_sentence = True
    is_inhibited_by_missing_data = True
    fires_when = (
        "a million `tokens` (`blended`, `prompt` or `generated`) of a model cost more than `usd_per_million_tokens` in "
        "the last `window_hours` hours (default: 24)"
    )
    subjects = "a model of a business unit in a cluster"
    example = """
    rule: token-cost
    usd_per_million_tokens: 2
    tokens: generated
    models: ["meta-llama/*"]
    """

    rule: Literal["token-cost"]
    """The kind of the rule."""
    usd_per_million_tokens: Positive
    """The budget: the most that a million tokens may cost, in USD."""
    tokens: TokenKind = "blended"
    """Which tokens: prompt and generated ones together (`blended`), or `prompt` or `generated` ones, to which the
    weights of `inference` divide the cost."""
    window_hours: Annotated[int, Field(ge=1, le=168)] = 24
    """In how many hours, up to the published one, costs and tokens are added up."""
    models: NamePatterns = ()
    """Shell patterns of models' names. Default: all."""
    overrides: tuple[TokenCostOverride, ...] = ()
    """Other budgets for some models, business units or clusters. The first that matches is used."""

    def covers(self, subject: Subject) -> bool:
        """Whether the rule applies to a subject, whose detail is the model."""
        return super().covers(subject) and matches_any(self.models, subject.detail)

    @classmethod
    def predicate(cls, figures: FigureFormatter, detail: str, *, is_resolved: bool) -> str:
        """Return what the sentence of a notification says about its subject; the detail is the model."""
        name = figures.first_of(_TOKENS_BY_UNIT_COST)
        cost, budget = figures.money(name), figures.money("budget_usd_per_million_tokens")
        if cost == NOT_AVAILABLE:
            return f"used no {_TOKENS_BY_UNIT_COST[name]} of {detail}"
        tokens = f"{cost} per million {_TOKENS_BY_UNIT_COST[name]} of {detail}"
        if is_resolved:
            return f"is within its budget of {budget} again: {tokens}"
        return f"pays {tokens}; its budget is {budget}"

    @classmethod
    def page_view(cls, subject: Subject) -> tuple[str, Mapping[str, str]]:
        """Return the page's view of a model, for the business unit."""
        if not subject.detail:
            return super().page_view(subject)
        filters = {"f.business_unit": matching_exactly(subject.business_unit)} if subject.business_unit else {}
        return f"model/{quote(subject.detail, safe='')}", filters

    def missing_settings(self, settings: CoreSettings) -> Iterator[str]:
        """Yield a sentence if no tokens are counted."""
        if not settings.inference.enabled:
            yield "token-cost requires inference: {enabled: true}, which counts tokens"

    def findings(self, hour: "HourFigures", active_alerts: "Sequence[Alert]") -> Iterator[Finding]:
        """Evaluate the window that ends with an hour, for every model of a business unit."""
        groups: dict[tuple[str, str], list[ModelHour]] = {}
        for row in hour.models(self.window_hours):
            if row.key.server and self.scope.has_namespace(row.key.namespace):  # others are pods without a server
                groups.setdefault((row.key.business_unit, row.key.model), []).append(row)
        watched = {(alert.subject.business_unit, alert.subject.detail) for alert in active_alerts}
        for unit, model in sorted(groups.keys() | watched):
            subject = Subject(hour.cluster, unit, detail=model)
            if not model or not self.covers(subject):  # the model of pods whose tokens are unknown is empty
                continue
            rule, rows = self.for_subject(subject), groups.get((unit, model), [])
            has_unknown_tokens = (unit, "") in groups or any(row.prompt_tokens is None for row in rows)
            window = ModelWindow(ModelSum.of(rows), has_unknown_tokens)
            yield Finding(
                subject,
                hour.hour,
                rule.is_exceeded_by(window, hour.token_weights),
                rule.threshold(hour.currency),
                rule.figures_of(window, hour.token_weights),
                hour.currency,
                rule.firing_policy,
                note="" if window.counted(self.tokens) else "no tokens",
            )

    def is_exceeded_by(self, window: ModelWindow, weights: TokenWeights) -> bool | None:
        """Whether tokens cost more; None if that is unknown.

        A model without such tokens, for example one that was not called, has no cost per token: it exceeds nothing.
        """
        if not window.counted(self.tokens):
            return None if window.has_unknown_tokens else False
        least = window.total.least_unit_costs(weights)[UNIT_COST_NAMES[self.tokens]]
        if least is not None and least > self.usd_per_million_tokens:
            return True
        return None if least is None or window.total.token_costs.unpriced_gpu_hours else False

    def threshold(self, currency: str) -> str:
        """Describe the condition in plain text."""
        hours = "1 hour" if self.window_hours == 1 else f"{self.window_hours} hours"
        budget = format_threshold(self.usd_per_million_tokens, currency)
        return f"more than {budget} per million {_TOKENS_BY_UNIT_COST[UNIT_COST_NAMES[self.tokens]]} in {hours}"

    def figures_of(self, window: ModelWindow, weights: TokenWeights) -> dict[str, Decimal | None]:
        """Return the figures of a notification on a model."""
        figures, name = window.total.figures(weights), UNIT_COST_NAMES[self.tokens]
        names = (name, f"{name}_at_full_use", "prompt_tokens", "generated_tokens", "allocated_usd")
        return {
            **{name: None if figures[name] is None else Decimal(figures[name] or 0) for name in names},
            "budget_usd_per_million_tokens": self.usd_per_million_tokens,
        }
