"""One recommendation on one screen: what to do, what it saves, on what it rests. A person decides in a minute."""

import textwrap
from typing import TYPE_CHECKING

from gpucost.core.hours import format_timestamp
from gpucost_cli.rendering import money, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucost.features.recommendations.model import Recommendation

LINES, COLUMNS = 24, 100
"""A terminal as small as they come, a little wider."""
_NAMES = 14
_LONGEST = 3
"""Lines of one figure: names of workloads can be long, and many."""


def screen(one: "Recommendation") -> list[str]:
    """The lines; the manifest is among them where it fits, else the command that prints it."""
    found = [line for name, value in _rows(one) for line in _wrapped(name, value)]
    patch = one.content.patch.rstrip().splitlines()
    if patch and len(found) + 1 + len(patch) <= LINES and max(map(len, patch)) <= COLUMNS:
        return [*found, "", *patch]
    if patch:
        found += _wrapped("manifest", f"{len(patch)} lines: gpucost advise show {one.id} --patch")
    return found


def _rows(one: "Recommendation") -> "Iterator[tuple[str, str]]":
    advice, saving, evidence = one.content, one.content.saving, one.content.evidence
    low, high, usd = (money(amount, advice.currency) for amount in (saving.low_usd, saving.high_usd, saving.usd))
    listed, cash = money(saving.list_usd, advice.currency), money(saving.cash_usd, advice.currency)
    yield "recommendation", f"{one.id} ({one.state} since {format_timestamp(one.since)})"
    yield "what to do", advice.summary
    yield "saves a month", f"{usd} ({low} to {high}), {saving.gpu_hours:,} GPU-hours"
    yield "", f"at list price {listed}, cash {cash}"
    unknown = f", {evidence.hours_unknown} without figures" if evidence.hours_unknown else ""
    yield "evidence", f"{evidence.hours_observed} hours from {format_timestamp(evidence.first_hour)}{unknown}"
    if evidence.coverage is not None:
        yield "", f"use observed for {evidence.coverage:.1%} of what was held"
    if evidence.mean_utilization is not None and evidence.peak_utilization is not None:
        yield "", f"used {evidence.mean_utilization:.1%} on average, {evidence.peak_utilization:.1%} at most"
    for name, value in evidence.facts.items():
        yield "", f"{name}: {value}"
    yield "confidence", f"{advice.confidence}; effort {advice.effort}"
    yield "risk", f"{advice.risk}: {advice.risk_note}"
    if one.verified_usd is not None:
        yield "verified", f"{money(one.verified_usd, advice.currency)} a month"
    if one.reason:
        yield "reason", f"{one.reason} {one.author}".strip()
    if advice.part_of:
        yield "part of", f"{advice.part_of}, which counts this saving too"


def _wrapped(name: str, value: str) -> list[str]:
    margin = _NAMES + 2
    lines = textwrap.wrap(
        printable(value), COLUMNS - margin, max_lines=_LONGEST, placeholder=" …", break_on_hyphens=False
    )
    return [f"{name if not place else '':<{_NAMES}}  {line}".rstrip() for place, line in enumerate(lines or [""])]
