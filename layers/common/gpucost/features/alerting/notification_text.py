"""The text of notifications, shared by all notifiers. Figures are rounded only here."""

import re
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import quote, urlencode

from gpucost.core.hours import HOUR, HOURS_PER_MONTH, format_timestamp
from gpucost.features.alerting.formatting import FigureFormatter, currency_amount_text, format_money, matching_exactly
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.rule_kinds import KINDS_BY_NAME
from gpucost.features.alerting.rule_kinds.base import AlertKind, Subject

MAX_NAME_LENGTH = 200
MAX_WORKLOAD_NAME_LENGTH = 60
MAX_RULE_LENGTH = 500
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
NameFormatter = Callable[[str], str]

_TITLE_SUFFIXES = {"firing": "", "digest": "", "repeat": " (still firing)", "resolved": " resolved"}


def single_line(name: str, max_length: int = MAX_NAME_LENGTH) -> str:
    """Make a name safe for one line: newlines, control and bidirectional characters become a space."""
    text = _UNPRINTABLE.sub(" ", name)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def headline(notification: Notification) -> str:
    """Return the title of a notification, which contains no names."""
    return _kind_of(notification).title + _TITLE_SUFFIXES[notification.event]


def summary(notification: Notification, format_name: NameFormatter = single_line) -> str:
    """Return the whole notification in one sentence.

    Args:
        notification: what to describe.
        format_name: makes a name safe for the medium.
    """
    subject, figures = notification.subject, FigureFormatter(notification.figures, notification.currency)
    is_resolved = notification.event == "resolved"
    predicate = _kind_of(notification).predicate(figures, format_name(subject.detail), is_resolved=is_resolved)
    return f"{_subject_name(subject, format_name)}{_cluster_phrase(subject, format_name)} {predicate}".strip()


def figure_fields(notification: Notification) -> list[tuple[str, str]]:
    """Return the figures as (title, text), without names."""
    kind, figures = _kind_of(notification), FigureFormatter(notification.figures, notification.currency)
    fields = [
        (figure.title, figures.text(figure.name, figure.percent_name))
        for figure in kind.figures
        if figure.name in notification.figures
    ]
    amount = figures.amount(kind.amount_per_hour)
    if amount is not None and notification.event != "resolved":
        fields.append(("Projected per month", format_money(amount * HOURS_PER_MONTH, notification.currency)))
    since = format_timestamp(notification.since)
    if notification.event == "digest":
        return [*fields, ("Period", f"{since} to {format_timestamp(notification.hour + HOUR)}")]
    fields.append(("Since", since))
    if notification.event == "resolved":
        fields.append(("Resolved in the hour", format_timestamp(notification.hour)))
    rule = f"{notification.rule}: {notification.threshold}" if notification.threshold else notification.rule
    return [*fields, ("Rule", single_line(f"{rule} ({notification.severity})", MAX_RULE_LENGTH))]


def top_waster_lines(notification: Notification) -> list[str]:
    """Return a line for each of the workloads with the most waste."""
    unit = "" if notification.event == "digest" else " per hour"
    lines = []
    for rank, workload in enumerate(notification.workloads, start=1):
        namespace = single_line(workload.namespace, MAX_WORKLOAD_NAME_LENGTH)
        name, kind = single_line(workload.name, MAX_WORKLOAD_NAME_LENGTH), single_line(workload.kind, 40)
        waste = currency_amount_text(workload.waste_usd, notification.currency)
        lines.append(f"{rank}. {namespace}/{name} ({kind}): wastes {waste}{unit}")
    return lines


def suggested_action(notification: Notification) -> str:
    """Return what to do; empty if the alert is resolved."""
    return "" if notification.event == "resolved" else _kind_of(notification).action


def report_link(notification: Notification, public_url: str) -> str | None:
    """Return the address of the page's view of the alert's subject and hours; None without a public address."""
    if not public_url:
        return None
    kind = _kind_of(notification)
    start = max(notification.since, notification.hour - timedelta(days=kind.days_in_link))
    view, filters = kind.page_view(notification.subject)
    query = {"start": format_timestamp(start), "end": format_timestamp(notification.hour + HOUR), **filters}
    if notification.subject.cluster:
        query["cluster"] = matching_exactly(notification.subject.cluster)
    return f"{quote(public_url.rstrip('/'), safe=':/@[]')}/#/{view}?{urlencode(query)}"


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


def needs_sentence(notification: Notification) -> bool:
    """Whether a message of fields also has the sentence, because the fields do not name the cause."""
    return _kind_of(notification).needs_sentence


def _kind_of(notification: Notification) -> type[AlertKind]:
    return KINDS_BY_NAME[notification.rule_kind]


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
