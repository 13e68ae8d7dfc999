"""What an alert says, in words shared by every way of telling it; only here are figures rounded."""

import re
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from urllib.parse import quote, urlencode

from gpucost.domain.alerting import Notification
from gpucost.domain.hours import HOUR, format_instant

LONGEST_NAME = 200
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")


def one_line(name: str) -> str:
    """A name on one line: newlines, control and direction-changing characters become a space; cut to 200."""
    text = _UNPRINTABLE.sub(" ", name)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def headline(notification: Notification) -> str:
    """What happened, without any name in it."""
    return "GPU waste alert" if notification.event == "firing" else "GPU waste alert resolved"


def sentence(notification: Notification, unit: str, cluster: str) -> str:
    """The whole alert in one sentence, with names as the medium needs them escaped."""
    verb = "wastes" if notification.event == "firing" else "no longer wastes too much:"
    return (
        f"{unit} in cluster {cluster} {verb} {usd(notification.waste_usd_per_hour)} per hour, "
        f"{notification.waste_percent:f}% of the GPUs it holds"
    )


def facts(notification: Notification) -> list[tuple[str, str]]:
    """The figures, as (title, value); names are not in them."""
    ended = [] if notification.event == "firing" else [("Resolved with the hour", format_instant(notification.hour))]
    return [
        ("Wasted per hour", f"{usd(notification.waste_usd_per_hour)} ({notification.waste_percent:f}%)"),
        ("Allocated per hour", usd(notification.allocated_usd_per_hour)),
        ("Since", format_instant(notification.since)),
        *ended,
        ("Rule", f"{notification.rule}: {notification.threshold}"),
    ]


def report_link(notification: Notification, public_url: str) -> str | None:
    """Where the hours in question can be read; None without a public address."""
    if not public_url:
        return None
    start = max(notification.since, notification.hour - timedelta(days=7))
    query = {
        "start": format_instant(start),
        "end": format_instant(notification.hour + HOUR),
        "granularity": "hour",
        "group_by": "business_unit",
        "cluster": notification.cluster,
    }
    return f"{quote(public_url.rstrip('/'), safe=':/@[]')}/v1/costs?{urlencode(query)}"


def usd(amount: Decimal) -> str:
    """Dollars and cents."""
    return f"${amount.quantize(Decimal('0.01'), rounding=ROUND_HALF_EVEN):,}"
