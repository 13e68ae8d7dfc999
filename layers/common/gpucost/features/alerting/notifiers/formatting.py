"""What an alert says, in words shared by every way of telling it; only here are figures rounded."""

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from urllib.parse import quote, urlencode

from gpucost.core.hours import HOUR, format_timestamp
from gpucost.features.alerting.formatting import money as money_words
from gpucost.features.alerting.model import Kind, Notification, Subject

MAX_NAME_LENGTH = 200
MAX_WORKLOAD_LENGTH = 60
HOURS_PER_MONTH = 730
"""As AWS's own price pages count."""
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
Name = Callable[[str], str]

_TITLES: dict[Kind, str] = {
    "waste": "GPU waste alert",
    "idle-workload": "Idle GPU workload",
    "unallocated": "Unallocated GPU capacity",
    "budget": "GPU budget alert",
    "spend-change": "GPU spend changed",
    "data": "GPU cost data alert",
    "digest": "GPU cost digest",
    "external": "Cluster alert",
    "sample": "Sample alert",
}
_ACTIONS: dict[Kind, str] = {
    "waste": "Look at the workloads named here: give back GPUs that wait, share or slice those that are little used.",
    "idle-workload": "Stop it, scale it down, or move it to a shared or MIG slice; ack the alert if it must wait.",
    "unallocated": "Let Karpenter consolidate the node pool, lower its minimum, or move pending work onto it.",
    "budget": "Stop what is idle, or agree on another budget: alerts.rules in the settings.",
    "spend-change": "Compare today's workloads with last week's in the report.",
    "data": "See docs/runbook.md: figures of these hours are missing or cannot be trusted.",
    "digest": "Begin with the first workload named: it wastes most.",
    "external": "See the cluster's own dashboards; figures come with the next hours.",
    "sample": "Nothing to do: somebody tried whether messages arrive.",
}
_DATA = {
    "overdue": "hours are missing or incomplete",
    "suspect-samples": "samples contradict each other or reason: what they say is on no bill",
    "coverage": "too few scrapes were seen",
    "prices": "prices are old",
    "dead-letters": "messages that nobody could handle wait in the dead-letter queue",
    "settings": "the newest settings cannot be read; older ones are in force",
}


def one_line(name: str, most: int = MAX_NAME_LENGTH) -> str:
    """A name on one line: newlines, control and direction-changing characters become a space; cut to 200."""
    text = _UNPRINTABLE.sub(" ", name)
    return text if len(text) <= most else text[: most - 1] + "…"


def headline(news: Notification) -> str:
    """What happened, without any name in it."""
    ends = {"firing": "", "digest": "", "repeat": ", still", "resolved": " resolved"}
    return _TITLES[news.kind] + ends[news.event]


def summary(news: Notification, name: Name = one_line) -> str:
    """The whole alert in one sentence.

    Args:
        news: what to say.
        name: makes a name fit for the medium.
    """
    resolved, say = news.event == "resolved", _Figures(news)
    who, where = _who(news.subject, name), _where(news.subject, name)
    if news.kind == "waste":
        verb = "no longer wastes too much:" if resolved else "wastes"
        what = f"{verb} {say.money('waste_usd_per_hour')} per hour, {say.number('waste_percent')}% of the GPUs it holds"
    elif news.kind == "idle-workload":
        verb = "is no longer idle:" if resolved else "is idle:"
        what = f"{verb} {say.number('gpus')} GPUs at {say.number('utilization_percent')}% utilization"
    elif news.kind == "unallocated":
        verb = "no longer has too much" if resolved else "has"
        what = f"{verb} unallocated capacity of {say.money('unallocated_usd_per_hour')} per hour"
    elif news.kind == "budget":
        verb = "is no longer above its threshold:" if resolved else "has"
        what = (
            f"{verb} spent {say.money('spent_usd')} of {say.money('budget_usd')} this month "
            f"({say.number('spent_percent')}%), projected {say.money('projected_usd')}"
        )
    elif news.kind == "spend-change":
        verb = "spends as usual again:" if resolved else "spends unlike usual:"
        what = (
            f"{verb} {say.money('today_usd')} today instead of {say.money('usual_usd')} "
            f"({say.number('change_percent', signed=True)}%)"
        )
    elif news.kind == "data":
        what = ("all right again: " if resolved else "") + _DATA.get(news.subject.detail, news.subject.detail)
    elif news.kind == "digest":
        what = f"cost {say.money('cost_usd')}, wasted {say.money('waste_usd')}{say.trend()}"
    else:
        what = ("over: " if resolved else "") + name(news.subject.detail)
    return f"{who}{where} {what}".strip()


def detail_fields(news: Notification) -> list[tuple[str, str]]:
    """The figures, as (title, value); names are not in them."""
    say = _Figures(news)
    found = [(title, say.figure(key)) for title, key in _FIGURES.get(news.kind, ()) if key in news.figures]
    for title, key in _PER_MONTH.get(news.kind, ()):
        amount = news.figures.get(key)
        if amount is not None and news.event != "resolved":
            found.append((title, money(amount * HOURS_PER_MONTH, news.currency)))
    if news.kind == "digest":
        return [*found, ("Period", f"{format_timestamp(news.since)} to {format_timestamp(news.hour + HOUR)}")]
    ended = [("Resolved with the hour", format_timestamp(news.hour))] if news.event == "resolved" else []
    rule = f"{news.rule}: {news.threshold}" if news.threshold else news.rule
    return [*found, ("Since", format_timestamp(news.since)), *ended, ("Rule", f"{rule} ({news.severity})")]


def top_waster_lines(news: Notification) -> list[str]:
    """The worst workloads, a line each."""
    unit = "" if news.kind == "digest" else " per hour"
    return [
        f"{place}. {one_line(one.namespace, MAX_WORKLOAD_LENGTH)}/{one_line(one.name, MAX_WORKLOAD_LENGTH)} "
        f"({one_line(one.kind, 40)}): wastes {money(one.waste_usd, news.currency)}{unit}"
        for place, one in enumerate(news.workloads, start=1)
    ]


def suggested_action(news: Notification) -> str:
    """What to do; nothing where it is over."""
    return "" if news.event == "resolved" else _ACTIONS[news.kind]


def report_link(news: Notification, public_url: str) -> str | None:
    """Where the hours in question can be read; None without a public address."""
    if not public_url:
        return None
    start = max(news.since, news.hour - timedelta(days=31 if news.kind in {"digest", "budget"} else 7))
    query = {
        "start": format_timestamp(start),
        "end": format_timestamp(news.hour + HOUR),
        "granularity": "hour",
        "group_by": "business_unit",
    }
    if news.subject.cluster:
        query["cluster"] = news.subject.cluster
    return f"{quote(public_url.rstrip('/'), safe=':/@[]')}/v1/costs?{urlencode(query)}"


def money(amount: Decimal | None, currency: str) -> str:
    """Dollars and cents, or another currency's; what nobody knows is called so."""
    return "unknown" if amount is None else money_words(amount, currency)


def subject_fields(subject: Subject) -> list[tuple[str, str]]:
    """What an alert is about, as (title, name), as far as it is told."""
    titles = (
        ("Business unit", subject.business_unit),
        ("Cluster", subject.cluster),
        ("Namespace", subject.namespace),
        (subject.workload_kind or "Workload", subject.workload),
        ("Node pool", subject.node_pool),
    )
    return [(one_line(title, 40), one_line(name)) for title, name in titles if name]


_FIGURES: dict[Kind, tuple[tuple[str, str], ...]] = {
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
    "budget": (("Spent", "spent_usd"), ("Projected", "projected_usd"), ("Budget", "budget_usd")),
    "spend-change": (("Today so far", "today_usd"), ("Usual by now", "usual_usd"), ("Change", "change_percent")),
    "data": (
        ("Hours", "hours"),
        ("Coverage", "coverage_percent"),
        ("Age in hours", "age_hours"),
        ("Messages", "count"),
        ("Suspect samples", "notes"),
    ),
    "digest": (
        ("Cost", "cost_usd"),
        ("Wasted", "waste_usd"),
        ("Waste", "waste_percent"),
        ("Period before", "before_usd"),
        ("Hours unknown", "hours_unknown"),
    ),
}
_PER_MONTH: dict[Kind, tuple[tuple[str, str], ...]] = {
    "waste": (("Projected per month", "waste_usd_per_hour"),),
    "idle-workload": (("Projected per month", "waste_usd_per_hour"),),
    "unallocated": (("Projected per month", "unallocated_usd_per_hour"),),
}
_OF = {
    "waste_usd_per_hour": "waste_percent", "spent_usd": "spent_percent", "projected_usd": "projected_percent",
}  # fmt: skip
"""Percentages that are said beside their amount."""


class _Figures:
    """A notification's figures in words."""

    def __init__(self, news: Notification) -> None:
        self._news = news

    def money(self, name: str) -> str:
        return money(self._news.figures.get(name), self._news.currency)

    def number(self, name: str, *, signed: bool = False) -> str:
        value = self._news.figures.get(name)
        if value is None:
            return "unknown"
        rounded = (
            value.quantize(Decimal("0.1")) if value % 1 or name.endswith("percent") else value.quantize(Decimal(1))
        )
        return f"{rounded:+,f}" if signed else f"{rounded:,f}"

    def figure(self, name: str) -> str:
        if name.endswith("percent"):
            known = self._news.figures.get(name) is not None
            return self.number(name, signed=name.startswith("change")) + ("%" if known else "")
        if "_usd" not in name:
            return self.number(name)
        beside = _OF.get(name)
        if beside is None or self._news.figures.get(beside) is None:
            return self.money(name)
        return f"{self.money(name)} ({self.number(beside)}%)"

    def trend(self) -> str:
        now, before = self._news.figures.get("cost_usd"), self._news.figures.get("before_usd")
        if now is None or not before:
            return ""
        change = ((now - before) * 100 / before).quantize(Decimal(1))
        return f"; cost {change:+f}% against the period before"


def _who(subject: Subject, name: Name) -> str:
    if subject.workload:
        return f"{name(subject.workload)} of {name(subject.business_unit)}"
    if subject.node_pool:
        return f"node pool {name(subject.node_pool)}"
    return name(subject.business_unit)


def _where(subject: Subject, name: Name) -> str:
    if not subject.cluster:
        return ""
    return f" in cluster {name(subject.cluster)}" if _who(subject, name) else f"cluster {name(subject.cluster)}:"
