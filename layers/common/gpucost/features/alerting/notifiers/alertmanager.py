"""Sends alerts to Alertmanager's API v2, for its existing routes to PagerDuty, Opsgenie or Teams.

Labels identify an alert there, so that a repeated alert is never a duplicate. Alertmanager resolves an alert at its
`endsAt` unless it is sent again. Firing alerts are sent again on every tick, and last a day without ticks.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import requests

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR, format_timestamp
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.notification_text import (
    figure_fields,
    headline,
    report_link,
    single_line,
    suggested_action,
    summary,
    top_waster_lines,
)
from gpucost.features.alerting.ports import RefusedMessageError, is_refusal
from gpucost.runtime.bounded_http import REQUEST_ERRORS, ResponseTooLargeError, connection_problem, post_json
from gpucost.runtime.secrets import BearerAuth

FIRING_ALERT_LIFETIME = timedelta(hours=25)
TIMEOUT_SECONDS = 13.0
MAX_LABEL_LENGTH = 500
MAX_ALERTS_PER_REQUEST = 100


def _now() -> datetime:
    return datetime.now(UTC)


class AlertmanagerNotifier:
    """Sends notifications to one Alertmanager.

    Args:
        url: its base URL.
        secret: name of the secret with a bearer token and the URL that it is for; None to send no token.
        secret_value: reads a secret.
        public_url: the page's address; empty for alerts without links.
        clock: the time now.
    """

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

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        """Return how many notifications fit into a request (`Notifier`)."""
        return min(len(notifications), MAX_ALERTS_PER_REQUEST)

    def send(self, notifications: Sequence[Notification]) -> None:
        """Post alerts; digests are left out, because they are not alerts.

        Raises:
            RefusedMessageError: Alertmanager refuses these alerts for good.
            SourceError: not delivered. The message never contains the token.
        """
        now = self._clock()
        body = [
            alertmanager_alert(notification, now, self._public_url)
            for notification in notifications
            if notification.event != "digest"
        ]
        if not body:
            return
        try:
            response = post_json(self._url, body, seconds=self._timeout, auth=self._auth)
        except (*REQUEST_ERRORS, ResponseTooLargeError, ValueError) as error:
            raise SourceError(f"Alertmanager could not be reached: {connection_problem(error)}") from error
        if response.status != requests.codes.ok:
            failure = RefusedMessageError if is_refusal(response.status) else SourceError
            raise failure(f"Alertmanager refused the alerts: HTTP {response.status} {single_line(response.text(80))}")


def alertmanager_alert(notification: Notification, now: datetime, public_url: str = "") -> dict[str, Any]:
    """Convert a notification to an alert of the API: the labels identify it, the annotations describe it."""
    subject = {name: field for name, field in notification.subject._asdict().items() if field}
    labels = {
        "alertname": f"gpucost-{notification.rule_kind}",
        "rule": notification.rule,
        "severity": notification.severity,
        **subject,
    }
    fields = [f"{title}: {text}" for title, text in figure_fields(notification)]
    annotations = {
        "summary": f"{headline(notification)}: {summary(notification)}",
        "description": "\n".join([*fields, *top_waster_lines(notification)]),
        "action": suggested_action(notification),
        "note": notification.note,
    }
    is_resolved = notification.event == "resolved"
    ends_at = min(notification.hour + HOUR, now) if is_resolved else now + FIRING_ALERT_LIFETIME
    api_alert: dict[str, Any] = {
        "labels": {name: label[:MAX_LABEL_LENGTH] for name, label in labels.items()},
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": format_timestamp(notification.since),
        "endsAt": format_timestamp(ends_at),
    }
    link = report_link(notification, public_url)
    if link is not None:
        api_alert["generatorURL"] = link
    return api_alert
