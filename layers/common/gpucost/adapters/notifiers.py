"""The receivers that the settings name, as things that can be told."""

from collections.abc import Mapping

from gpucost.adapters import aws
from gpucost.adapters.alertmanager import AlertmanagerNotifier
from gpucost.adapters.email import EmailNotifier
from gpucost.adapters.secrets import secret_value
from gpucost.adapters.slack import SlackNotifier
from gpucost.alert_ports import Notifier
from gpucost.settings import Settings
from gpucost.settings.alert_receivers import AlertmanagerReceiver, Receiver, SlackReceiver


def notifiers(settings: Settings, *, email_topic_arn: str, public_url: str) -> Mapping[str, Notifier]:
    """By the names that outboxes keep. Nothing is connected to before the first message."""
    return {receiver.key: _notifier(receiver, email_topic_arn, public_url) for receiver in settings.alerts.receivers}


def _notifier(receiver: Receiver, email_topic_arn: str, public_url: str) -> Notifier:
    if isinstance(receiver, SlackReceiver):
        return SlackNotifier(receiver.secret, secret_value=secret_value, host=receiver.host, public_url=public_url)
    if isinstance(receiver, AlertmanagerReceiver):
        return AlertmanagerNotifier(
            receiver.url, secret=receiver.secret, secret_value=secret_value, public_url=public_url
        )
    return EmailNotifier(email_topic_arn, client=lambda: aws.client("sns"), public_url=public_url)
