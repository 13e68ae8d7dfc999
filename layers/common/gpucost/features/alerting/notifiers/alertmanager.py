"""Alertmanager's API v2: takes our alerts, so that the routing to PagerDuty, Opsgenie or Teams that is there works.

The same alert again is the same alert there: its labels are its identity, so that nothing is ever doubled. An alert
that is not sent again counts as over at its `endsAt`: firing ones are sent again on every tick, and outlive a day
without any.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import requests

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR, format_timestamp
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.notifiers.formatting import (
    detail_fields,
    headline,
    one_line,
    report_link,
    suggested_action,
    summary,
    top_waster_lines,
)
from gpucost.runtime.bearer import BearerAuth
from gpucost.runtime.bounded_http import FAILURES, ResponseTooLargeError, post_json

FIRING_ALERT_LIFETIME = timedelta(hours=25)
TIMEOUT_SECONDS = 13.0
MAX_VALUE_LENGTH = 500


def _now() -> datetime:
    return datetime.now(UTC)


class AlertmanagerNotifier:
    """Posts to one Alertmanager.

    Args:
        url: its base address.
        secret: name of the secret that holds a bearer token and the address for it; None to send none.
        secret_value: reads a secret.
        public_url: the API's address, or "" for alerts without links.
        clock: the time now.
    """

    max_batch_size = 100
    needs_resend = True

    def __init__(
        self,
        url: str,
        *,
        secret: str | None = None,
        secret_value: Callable[[str], str],
        public_url: str = "",
        clock: Callable[[], datetime] = _now,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._url = url.rstrip("/") + "/api/v2/alerts"
        self._auth = None if secret is None else BearerAuth(secret, secret_value)
        self._public_url = public_url
        self._clock = clock
        self._timeout = timeout

    def send(self, notifications: Sequence[Notification]) -> None:
        """Post them; digests are no alerts, and are left out.

        Raises:
            SourceError: not taken; the sentence never holds the token.
        """
        now = self._clock()
        body = [alert(one, now, self._public_url) for one in notifications if one.event != "digest"]
        if not body:
            return
        try:
            answer = post_json(self._url, body, seconds=self._timeout, auth=self._auth)
        except (*FAILURES, ResponseTooLargeError, ValueError) as error:
            raise SourceError(f"Alertmanager could not be reached ({type(error).__name__})") from error
        if answer.status != requests.codes.ok:
            raise SourceError(f"Alertmanager refused the alerts: HTTP {answer.status} {one_line(answer.text(80))}")


def alert(news: Notification, now: datetime, public_url: str = "") -> dict[str, Any]:
    """One alert as the API takes it: labels that tell it from all others, annotations that say what is the matter."""
    subject = {name: value for name, value in news.subject._asdict().items() if value}
    labels = {"alertname": f"gpucost-{news.kind}", "rule": news.rule, "severity": news.severity, **subject}
    told = {
        "summary": f"{headline(news)}: {summary(news)}",
        "description": "\n".join(
            [*(f"{title}: {value}" for title, value in detail_fields(news)), *top_waster_lines(news)]
        ),
        "action": suggested_action(news),
        "note": news.note,
    }
    ends = news.hour + HOUR if news.event == "resolved" else now + FIRING_ALERT_LIFETIME
    found: dict[str, Any] = {
        "labels": {name: value[:MAX_VALUE_LENGTH] for name, value in labels.items()},
        "annotations": {name: value for name, value in told.items() if value},
        "startsAt": format_timestamp(news.since),
        "endsAt": format_timestamp(min(ends, now) if news.event == "resolved" else ends),
    }
    link = report_link(news, public_url)
    if link is not None:
        found["generatorURL"] = link
    return found
