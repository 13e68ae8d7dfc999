"""Email by the deployment's SNS topic: plain text, and a subject that SNS takes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from gpucost.core.errors import SourceError
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.notifiers.formatting import (
    detail_fields,
    headline,
    one_line,
    report_link,
    subject_fields,
    suggested_action,
    summary,
    top_waster_lines,
)

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient

MAX_SUBJECT_LENGTH = 99
_FIRST, _LAST = " ", "~"
_RULER = "-" * 40


class EmailNotifier:
    """Publishes to one SNS topic; a topic that sends email knows no key by which it would take a message once only.

    Args:
        topic_arn: the email topic; "" where the deployment has none.
        client: makes or finds the SNS client.
        public_url: the API's address, or "" for messages without links.
    """

    max_batch_size = 20
    needs_resend = False

    def __init__(self, topic_arn: str, *, client: Callable[[], "SNSClient"], public_url: str = "") -> None:
        self._topic_arn = topic_arn
        self._client = client
        self._public_url = public_url

    def send(self, notifications: Sequence[Notification]) -> None:
        """Publish them as one message.

        Raises:
            SourceError: not published.
        """
        if not self._topic_arn:
            raise SourceError("settings name an email receiver, but this deployment has no email topic")
        try:
            self._client().publish(
                TopicArn=self._topic_arn,
                Subject=subject(notifications),
                Message=text(notifications, self._public_url),
            )
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "unknown error")
            raise SourceError(f"the email topic refused the message: {code}") from error
        except BotoCoreError as error:
            raise SourceError(f"the email topic could not be reached ({type(error).__name__})") from error


def subject(news: Sequence[Notification]) -> str:
    """At most 99 printable ASCII characters, as SNS asks."""
    first = news[0]
    who = " in ".join(one_line(name) for name in (first.subject.business_unit, first.subject.cluster) if name)
    line = f"{headline(first)}: {who}" if who else headline(first)
    if len(news) > 1:
        line = f"{len(news)} GPU cost alerts: {who or 'all clusters'}"
    return "".join(char if _FIRST <= char <= _LAST else "?" for char in line)[:MAX_SUBJECT_LENGTH]


def text(news: Sequence[Notification], public_url: str = "") -> str:
    """The body, one part for each alert."""
    return f"\n{_RULER}\n\n".join(_part(one, public_url) for one in news)


def _part(news: Notification, public_url: str) -> str:
    lines = [summary(news) + ".", ""]
    lines += [f"{title}: {value}" for title, value in [*subject_fields(news.subject), *detail_fields(news)]]
    if worst := top_waster_lines(news):
        lines += ["", "Workloads that waste most:", *worst]
    if news.note:
        lines += ["", f"Note: {one_line(news.note, 500)}."]
    if what := suggested_action(news):
        lines += ["", what]
    link = report_link(news, public_url)
    if link is not None:
        lines += ["", f"Report: {link}"]
    return "\n".join(lines) + "\n"
