"""The text of notifications, shared by all notifiers. Figures are rounded only here."""

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from urllib.parse import quote, urlencode

from gpucost.core.hours import HOUR, format_timestamp
from gpucost.features.alerting.formatting import format_gpus, format_money
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.subjects import RuleKind, Subject

MAX_NAME_LENGTH = 200
MAX_WORKLOAD_NAME_LENGTH = 60
MAX_RULE_LENGTH = 500
HOURS_PER_MONTH = 730
"""As on AWS's price pages."""
NOT_AVAILABLE = "not available"
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
NameFormatter = Callable[[str], str]

_TITLES: dict[RuleKind, str] = {
    "waste": "GPU waste alert",
    "idle-workload": "Idle GPU workload",
    "unallocated": "Unallocated GPU capacity",
    "token-cost": "Token cost alert",
    "budget": "GPU budget alert",
    "spend-change": "GPU spend change",
    "data": "GPU cost data alert",
    "digest": "GPU cost digest",
    "external": "Cluster alert",
    "sample": "Test alert",
}
_TITLE_SUFFIXES = {"firing": "", "digest": "", "repeat": " (still firing)", "resolved": " resolved"}
_ACTIONS: dict[RuleKind, str] = {
    "waste": "Check the workloads listed: release unused GPUs, and share or slice GPUs with low utilization.",
    "idle-workload": "Stop the workload, scale it down, or move it to a shared GPU or a MIG slice. "
    "If the workload must stay idle, acknowledge the alert.",
    "unallocated": "Let Karpenter consolidate the node pool, lower its minimum size, or move pending workloads to it.",
    "token-cost": "Compare the cost at full use: if it is much lower, the model waits for requests and fewer replicas "
    "may do. If not, compare other GPUs with `gpucost recommendations what-if-models`.",
    "budget": "Stop idle workloads, or change the budget in the settings (alerts.rules).",
    "spend-change": "Compare today's workloads with last week's in the report.",
    "data": "See docs/how-to/runbook.md: figures of these hours are missing or not reliable.",
    "digest": "Start with the first workload listed: it has the most waste.",
    "external": "See the cluster's dashboards. The figures of the next hours will show the cost.",
    "sample": "No action is needed: this message tests the receiver.",
}
_DATA_PROBLEMS = {
    "overdue": "hours are missing or incomplete",
    "suspect-samples": "samples are contradictory or impossible, and no business unit is charged for them",
    "coverage": "too few scrapes arrived",
    "prices": "prices are out of date",
    "dead-letters": "messages that could not be processed are in the dead-letter queue",
    "settings": "the newest settings cannot be read, and the previous ones stay in force",
}


def single_line(name: str, max_length: int = MAX_NAME_LENGTH) -> str:
    """Make a name safe for one line: newlines, control and bidirectional characters become a space."""
    text = _UNPRINTABLE.sub(" ", name)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def headline(notification: Notification) -> str:
    """Return the title of a notification, which contains no names."""
    return _TITLES[notification.rule_kind] + _TITLE_SUFFIXES[notification.event]


def summary(notification: Notification, format_name: NameFormatter = single_line) -> str:
    """Return the whole notification in one sentence.

    Args:
        notification: what to describe.
        format_name: makes a name safe for the medium.
    """
    is_resolved, figures = notification.event == "resolved", _FigureFormatter(notification)
    subject = notification.subject
    if notification.rule_kind == "waste":
        verb = "is below its waste threshold again:" if is_resolved else "wastes"
        predicate = (
            f"{verb} {figures.money('waste_usd_per_hour')} per hour, "
            f"{figures.number('waste_percent')}% of the cost of its GPUs"
        )
    elif notification.rule_kind == "idle-workload":
        verb = "is no longer idle:" if is_resolved else "is idle:"
        gpus = format_gpus(figures.number("gpus"))
        predicate = f"{verb} {gpus} at {figures.number('utilization_percent')}% utilization"
    elif notification.rule_kind == "unallocated":
        verb = "is below its threshold again:" if is_resolved else "has"
        predicate = f"{verb} unallocated capacity of {figures.money('unallocated_usd_per_hour')} per hour"
    elif notification.rule_kind == "token-cost":
        predicate = _token_cost_predicate(figures, format_name(subject.detail), is_resolved=is_resolved)
    elif notification.rule_kind == "budget":
        verb = "is below its budget threshold again:" if is_resolved else "has"
        predicate = (
            f"{verb} spent {figures.money('spent_usd')} of {figures.money('budget_usd')} this month "
            f"({figures.number('spent_percent')}%), projected: {figures.money('projected_usd')}"
        )
    elif notification.rule_kind == "spend-change":
        verb = "spends as usual again:" if is_resolved else "spent"
        predicate = (
            f"{verb} {figures.money('today_usd')} today instead of the usual {figures.money('usual_usd')} "
            f"({figures.number('change_percent', signed=True)}%)"
        )
    elif notification.rule_kind == "data":
        problem = _DATA_PROBLEMS.get(subject.detail) or format_name(subject.detail)
        predicate = f"resolved: {problem}" if is_resolved else problem
    elif notification.rule_kind == "digest":
        cost = figures.money("allocated_usd")
        predicate = f"cost {cost}, of which {figures.money('waste_usd')} was wasted{figures.cost_trend()}"
    else:
        detail = format_name(subject.detail)
        predicate = f"resolved: {detail}" if is_resolved else detail
    return f"{_subject_name(subject, format_name)}{_cluster_phrase(subject, format_name)} {predicate}".strip()


def figure_fields(notification: Notification) -> list[tuple[str, str]]:
    """Return the figures as (title, text), without names."""
    figures = _FigureFormatter(notification)
    fields = [
        (title, figures.text(name))
        for title, name in _FIGURE_TITLES.get(notification.rule_kind, ())
        if name in notification.figures
    ]
    for title, name in _MONTHLY_TITLES.get(notification.rule_kind, ()):
        amount = notification.figures.get(name)
        if amount is not None and notification.event != "resolved":
            fields.append((title, currency_amount_text(amount * HOURS_PER_MONTH, notification.currency)))
    since = format_timestamp(notification.since)
    if notification.rule_kind == "digest":
        return [*fields, ("Period", f"{since} to {format_timestamp(notification.hour + HOUR)}")]
    fields.append(("Since", since))
    if notification.event == "resolved":
        fields.append(("Resolved in the hour", format_timestamp(notification.hour)))
    rule = f"{notification.rule}: {notification.threshold}" if notification.threshold else notification.rule
    return [*fields, ("Rule", single_line(f"{rule} ({notification.severity})", MAX_RULE_LENGTH))]


def top_waster_lines(notification: Notification) -> list[str]:
    """Return a line for each of the workloads with the most waste."""
    unit = "" if notification.rule_kind == "digest" else " per hour"
    lines = []
    for rank, workload in enumerate(notification.workloads, start=1):
        namespace = single_line(workload.namespace, MAX_WORKLOAD_NAME_LENGTH)
        name, kind = single_line(workload.name, MAX_WORKLOAD_NAME_LENGTH), single_line(workload.kind, 40)
        waste = currency_amount_text(workload.waste_usd, notification.currency)
        lines.append(f"{rank}. {namespace}/{name} ({kind}): wastes {waste}{unit}")
    return lines


def suggested_action(notification: Notification) -> str:
    """Return what to do; empty if the alert is resolved."""
    return "" if notification.event == "resolved" else _ACTIONS[notification.rule_kind]


def report_link(notification: Notification, public_url: str) -> str | None:
    """Return the address of the page's view of the alert's subject and hours; None without a public address."""
    if not public_url:
        return None
    days = 31 if notification.rule_kind in {"digest", "budget"} else 7
    start = max(notification.since, notification.hour - timedelta(days=days))
    view, filters = _view_of(notification)
    query = {"start": format_timestamp(start), "end": format_timestamp(notification.hour + HOUR), **filters}
    if notification.subject.cluster:
        query["cluster"] = _exactly(notification.subject.cluster)
    return f"{quote(public_url.rstrip('/'), safe=':/@[]')}/#/{view}?{urlencode(query)}"


def _view_of(notification: Notification) -> tuple[str, dict[str, str]]:
    """Return the page's view (web/src/route.ts) of an alert's subject, and its filters."""
    subject = notification.subject
    if notification.rule_kind == "data":
        return "health", {}
    if notification.rule_kind == "token-cost" and subject.detail:
        filters = {"f.business_unit": _exactly(subject.business_unit)} if subject.business_unit else {}
        return f"model/{quote(subject.detail, safe='')}", filters
    if subject.business_unit:
        return f"unit/{quote(subject.business_unit, safe='')}", {}
    return ("nodes", {"pool": subject.node_pool}) if subject.node_pool else ("overview", {})


def _exactly(name: str) -> str:
    """Return a filter that matches exactly this name, with special characters escaped."""
    return re.sub(r"([\\,!*])", r"\\\1", name)


def currency_amount_text(amount: Decimal | None, currency: str) -> str:
    """Format an amount in its currency."""
    return NOT_AVAILABLE if amount is None else format_money(amount, currency)


def subject_fields(subject: Subject) -> list[tuple[str, str]]:
    """Return the fields of a subject that are set, as (title, name)."""
    fields = (
        ("Business unit", subject.business_unit),
        ("Cluster", subject.cluster),
        ("Namespace", subject.namespace),
        (subject.workload_kind or "Workload", subject.workload),
        ("Node pool", subject.node_pool),
    )
    return [(single_line(title, 40), single_line(name)) for title, name in fields if name]


_TOKENS_BY_UNIT_COST = {
    "usd_per_million_tokens": "tokens",
    "usd_per_million_prompt_tokens": "prompt tokens",
    "usd_per_million_generated_tokens": "generated tokens",
}
_FIGURE_TITLES: dict[RuleKind, tuple[tuple[str, str], ...]] = {
    "waste": (("Wasted per hour", "waste_usd_per_hour"), ("Allocated per hour", "allocated_usd_per_hour")),
    "idle-workload": (
        ("GPUs held", "gpus"),
        ("Utilization", "utilization_percent"),
        ("Wasted per hour", "waste_usd_per_hour"),
    ),
    "unallocated": (
        ("Unallocated per hour", "unallocated_usd_per_hour"),
        ("Unallocated GPUs", "unallocated_gpus"),
        ("Nodes", "nodes"),
    ),
    "token-cost": (
        *((f"Per million {tokens}", name) for name, tokens in _TOKENS_BY_UNIT_COST.items()),
        *(("At full use", f"{name}_at_full_use") for name in _TOKENS_BY_UNIT_COST),
        ("Budget", "budget_usd_per_million_tokens"),
        ("Prompt tokens", "prompt_tokens"),
        ("Generated tokens", "generated_tokens"),
    ),
    "budget": (("Spent", "spent_usd"), ("Projected", "projected_usd"), ("Budget", "budget_usd")),
    "spend-change": (("Today so far", "today_usd"), ("Usual at this time", "usual_usd"), ("Change", "change_percent")),
    "data": (
        ("Hours", "hours"),
        ("Coverage", "coverage_percent"),
        ("Age in hours", "age_hours"),
        ("Messages", "count"),
        ("Suspect samples", "notes"),
    ),
    "digest": (
        ("Cost", "allocated_usd"),
        ("Wasted", "waste_usd"),
        ("Waste", "waste_percent"),
        ("Previous period", "previous_usd"),
        ("Hours without figures", "hours_unknown"),
    ),
}
_MONTHLY_TITLES: dict[RuleKind, tuple[tuple[str, str], ...]] = {
    "waste": (("Projected per month", "waste_usd_per_hour"),),
    "idle-workload": (("Projected per month", "waste_usd_per_hour"),),
    "unallocated": (("Projected per month", "unallocated_usd_per_hour"),),
}
_PERCENT_NAME_BY_AMOUNT = {
    "waste_usd_per_hour": "waste_percent", "spent_usd": "spent_percent", "projected_usd": "projected_percent",
}  # fmt: skip
"""Percentages that follow their amount in parentheses."""


class _FigureFormatter:
    """Formats the figures of a notification."""

    def __init__(self, notification: Notification) -> None:
        self._figures = notification.figures
        self._currency = notification.currency

    def money(self, name: str) -> str:
        amount = self._figures.get(name)
        if amount is not None and "per_million" in name:  # may be less than a cent
            return format_money(amount, self._currency, digits=4)
        return currency_amount_text(amount, self._currency)

    def first_of(self, names: Iterable[str]) -> str:
        """Return the first of some names that the notification has."""
        return next(name for name in names if name in self._figures)

    def number(self, name: str, *, signed: bool = False) -> str:
        number = self._figures.get(name)
        if number is None:
            return NOT_AVAILABLE
        has_decimals = number % 1 or name.endswith("percent")
        rounded = number.quantize(Decimal("0.1")) if has_decimals else number.quantize(Decimal(1))
        return f"{rounded:+,f}" if signed else f"{rounded:,f}"

    def text(self, name: str) -> str:
        """Format a figure by its name: a percentage, a number, or money with its percentage."""
        if name.endswith("percent"):
            is_available = self._figures.get(name) is not None
            return self.number(name, signed=name.startswith("change")) + ("%" if is_available else "")
        if "usd" not in name:
            return self.number(name)
        percent = _PERCENT_NAME_BY_AMOUNT.get(name)
        if percent is None or self._figures.get(percent) is None:
            return self.money(name)
        return f"{self.money(name)} ({self.number(percent)}%)"

    def cost_trend(self) -> str:
        cost, previous = self._figures.get("allocated_usd"), self._figures.get("previous_usd")
        if cost is None or not previous:
            return ""
        change = ((cost - previous) * 100 / previous).quantize(Decimal(1))
        return f"; cost {change:+f}% vs. the previous period"


def _token_cost_predicate(figures: _FigureFormatter, model: str, *, is_resolved: bool) -> str:
    name = figures.first_of(_TOKENS_BY_UNIT_COST)
    cost, budget = figures.money(name), figures.money("budget_usd_per_million_tokens")
    if cost == NOT_AVAILABLE:
        return f"used no {_TOKENS_BY_UNIT_COST[name]} of {model}"
    tokens = f"{cost} per million {_TOKENS_BY_UNIT_COST[name]} of {model}"
    return (
        f"is within its budget of {budget} again: {tokens}" if is_resolved else f"pays {tokens}; its budget is {budget}"
    )


def _subject_name(subject: Subject, format_name: NameFormatter) -> str:
    if subject.workload:
        return f"{format_name(subject.workload)} of {format_name(subject.business_unit)}"
    if subject.node_pool:
        return f"node pool {format_name(subject.node_pool)}"
    return format_name(subject.business_unit)


def _cluster_phrase(subject: Subject, format_name: NameFormatter) -> str:
    if not subject.cluster:
        return ""
    cluster = format_name(subject.cluster)
    return f" in cluster {cluster}" if _subject_name(subject, format_name) else f"cluster {cluster}:"
