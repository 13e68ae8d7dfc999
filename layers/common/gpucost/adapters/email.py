"""Email by the deployment's SNS topic: plain text, and a subject that SNS takes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from gpucost.adapters.wording import facts, headline, one_line, report_link, sentence
from gpucost.domain.alerting import Notification
from gpucost.errors import SourceError

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient

LONGEST_SUBJECT = 99
_FIRST, _LAST = " ", "~"


class EmailNotifier:
    """Publishes to one SNS topic.

    Args:
        topic_arn: the email topic; "" where the deployment has none.
        client: makes or finds the SNS client.
        public_url: the API's address, or "" for messages without links.
    """

    def __init__(self, topic_arn: str, *, client: Callable[[], "SNSClient"], public_url: str = "") -> None:
        self._topic_arn = topic_arn
        self._client = client
        self._public_url = public_url

    def send(self, notification: Notification) -> None:
        """Publish it.

        Raises:
            SourceError: not published.
        """
        if not self._topic_arn:
            raise SourceError("settings name an email receiver, but this deployment has no email topic")
        try:
            self._client().publish(
                TopicArn=self._topic_arn, Subject=subject(notification), Message=text(notification, self._public_url)
            )
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "unknown error")
            raise SourceError(f"the email topic refused the message: {code}") from error
        except BotoCoreError as error:
            raise SourceError(f"the email topic could not be reached ({type(error).__name__})") from error


def subject(notification: Notification) -> str:
    """At most 99 printable ASCII characters, as SNS asks."""
    line = f"{headline(notification)}: {one_line(notification.business_unit)} in {one_line(notification.cluster)}"
    return "".join(char if _FIRST <= char <= _LAST else "?" for char in line)[:LONGEST_SUBJECT]


def text(notification: Notification, public_url: str = "") -> str:
    """The body."""
    unit, cluster = one_line(notification.business_unit), one_line(notification.cluster)
    lines = [sentence(notification, unit, cluster) + ".", ""]
    lines += [f"{title}: {value}" for title, value in facts(notification)]
    link = report_link(notification, public_url)
    if link is not None:
        lines += ["", f"Report: {link}"]
    return "\n".join(lines) + "\n"
