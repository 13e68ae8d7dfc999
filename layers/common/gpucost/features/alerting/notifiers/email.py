"""Sends plain-text email through the deployment's SNS topic."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from gpucost.core.errors import SourceError
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.notification_text import (
    figure_fields,
    headline,
    report_link,
    single_line,
    subject_fields,
    suggested_action,
    summary,
    top_waster_lines,
)
from gpucost.features.alerting.ports import RefusedMessageError
from gpucost.runtime.bounded_http import connection_problem

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient

MAX_SUBJECT_LENGTH = 99
MAX_ALERTS_PER_EMAIL = 20
REFUSED_CODES = {"InvalidParameter", "InvalidParameterValue", "ParameterValueInvalid"}
"""Errors of SNS about the message. Others, such as a missing permission, are about the topic."""
_FIRST_PRINTABLE, _LAST_PRINTABLE = " ", "~"
_SEPARATOR_LINE = "-" * 40


class EmailNotifier:
    """Publishes to one SNS topic. SNS has no key to deduplicate email.

    Args:
        topic_arn: the email topic; empty if the deployment has none.
        client: returns the SNS client.
        public_url: the page's address; empty for messages without links.
    """

    needs_resend = False

    def __init__(self, topic_arn: str, *, client: Callable[[], "SNSClient"], public_url: str = "") -> None:
        self._topic_arn = topic_arn
        self._client = client
        self._public_url = public_url

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        """Return how many notifications fit into an email (`Notifier`)."""
        return min(len(notifications), MAX_ALERTS_PER_EMAIL)

    def send(self, notifications: Sequence[Notification]) -> None:
        """Publish notifications as one message.

        Raises:
            RefusedMessageError: SNS refuses this message for good.
            SourceError: not published.
        """
        if not self._topic_arn:
            raise SourceError(
                "the settings have an email receiver, but this deployment has no email topic. "
                "Remove the receiver, or deploy the topic of template.yaml"
            )
        try:
            self._client().publish(
                TopicArn=self._topic_arn,
                Subject=email_subject(notifications),
                Message=email_body(notifications, self._public_url),
            )
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "unknown error")
            failure = RefusedMessageError if code in REFUSED_CODES else SourceError
            raise failure(f"the email topic refused the message: {code}") from error
        except BotoCoreError as error:
            raise SourceError(f"the email topic could not be reached: {connection_problem(error)}") from error


def email_subject(notifications: Sequence[Notification]) -> str:
    """Return an email subject of at most 99 printable ASCII characters, as SNS requires."""
    first = notifications[0]
    names = " in ".join(single_line(name) for name in (first.subject.business_unit, first.subject.cluster) if name)
    line = f"{headline(first)}: {names}" if names else headline(first)
    if len(notifications) > 1:
        line = f"{len(notifications)} GPU cost alerts: {names or 'all clusters'}"
    return "".join(char if _FIRST_PRINTABLE <= char <= _LAST_PRINTABLE else "?" for char in line)[:MAX_SUBJECT_LENGTH]


def email_body(notifications: Sequence[Notification], public_url: str = "") -> str:
    """Return the body of an email, with a part for each notification."""
    return f"\n{_SEPARATOR_LINE}\n\n".join(
        _notification_text(notification, public_url) for notification in notifications
    )


def _notification_text(notification: Notification, public_url: str) -> str:
    fields = [*subject_fields(notification.subject), *figure_fields(notification)]
    lines = [summary(notification) + ".", "", *(f"{title}: {field}" for title, field in fields)]
    if workloads := top_waster_lines(notification):
        lines += ["", "Workloads with the most waste:", *workloads]
    if notification.note:
        lines += ["", f"Note: {single_line(notification.note, 500)}."]
    if action := suggested_action(notification):
        lines += ["", action]
    link = report_link(notification, public_url)
    if link is not None:
        lines += ["", f"Report: {link}"]
    return "\n".join(lines) + "\n"
