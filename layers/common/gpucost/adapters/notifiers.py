"""The receivers that the settings name, as things that can be told."""

from gpucost.adapters import aws
from gpucost.adapters.email import EmailNotifier
from gpucost.adapters.secrets import secret_value
from gpucost.adapters.slack import SlackNotifier
from gpucost.ports import Notifier
from gpucost.settings import Settings, SlackReceiver


def notifiers(settings: Settings, *, email_topic_arn: str, public_url: str) -> dict[str, Notifier]:
    """By names that outboxes keep: `slack:<secret>` and `email`. Nothing is connected to before the first message."""
    found: dict[str, Notifier] = {}
    for receiver in settings.alerts.receivers:
        if isinstance(receiver, SlackReceiver):
            found[f"slack:{receiver.secret}"] = SlackNotifier(
                receiver.secret, secret_value=secret_value, public_url=public_url
            )
        else:
            found["email"] = EmailNotifier(email_topic_arn, client=lambda: aws.client("sns"), public_url=public_url)
    return found
