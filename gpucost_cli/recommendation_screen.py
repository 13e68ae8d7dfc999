"""Renders one recommendation as text: what to do, what it saves, and the evidence."""

import textwrap
from typing import TYPE_CHECKING

from gpucost.core.hours import format_timestamp
from gpucost_cli.rendering import money, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucost.features.recommendations.model import Recommendation

SCREEN_WIDTH = 100
"""Longer figures wrap; a manifest keeps its own lines."""
_LABEL_WIDTH = 14


def render_recommendation(recommendation: "Recommendation") -> list[str]:
    """Return the lines of all figures, then the manifest."""
    lines = [line for label, text in _figure_lines(recommendation) for line in _wrap(label, text)]
    patch = recommendation.content.patch.rstrip()
    return [*lines, "", *patch.splitlines()] if patch else lines


def _figure_lines(recommendation: "Recommendation") -> "Iterator[tuple[str, str]]":
    content = recommendation.content
    saving, evidence = content.saving, content.evidence
    low, high, usd = (money(amount, content.currency) for amount in (saving.low_usd, saving.high_usd, saving.usd))
    at_list_price, cash = money(saving.list_usd, content.currency), money(saving.cash_usd, content.currency)
    yield "id", f"{recommendation.id} ({recommendation.state} since {format_timestamp(recommendation.since)})"
    yield "recommendation", content.summary
    yield "monthly saving", f"{usd} ({low} to {high}), {saving.gpu_hours:,} GPU-hours"
    yield "", f"at list price {at_list_price}, cash {cash}"
    missing = f", {evidence.hours_unknown} without figures" if evidence.hours_unknown else ""
    yield "evidence", f"{evidence.hours_observed} hours from {format_timestamp(evidence.first_hour)}{missing}"
    if evidence.coverage is not None:
        yield "", f"utilization observed for {evidence.coverage:.1%} of the allocated GPU-hours"
    if evidence.mean_utilization is not None and evidence.peak_utilization is not None:
        yield "", f"utilization {evidence.mean_utilization:.1%} on average, {evidence.peak_utilization:.1%} at most"
    for name, fact in evidence.facts.items():
        yield "", f"{name}: {fact}"
    yield "confidence", f"{content.confidence}; effort {content.effort}"
    yield "risk", f"{content.risk}: {content.risk_note}"
    if recommendation.verified_usd is not None:
        yield "verified", f"{money(recommendation.verified_usd, content.currency)} a month"
    if recommendation.reason:
        yield "reason", f"{recommendation.reason} {recommendation.author}".strip()
    if content.worth_usd is not None:
        yield "worth", f"{money(content.worth_usd, content.currency)} a month"
    if recommendation.offer == "alternative":
        other = f"it contradicts {recommendation.alternative_to}" if recommendation.alternative_to else "it loses money"
        yield "not offered", f"{other}"
    if content.part_of:
        yield "part of", f"{content.part_of}, which already counts this saving"


def _wrap(label: str, text: str) -> list[str]:
    lines = textwrap.wrap(printable(text), SCREEN_WIDTH - _LABEL_WIDTH - 2, break_on_hyphens=False) or [""]
    return [f"{'' if index else label:<{_LABEL_WIDTH}}  {line}".rstrip() for index, line in enumerate(lines)]
