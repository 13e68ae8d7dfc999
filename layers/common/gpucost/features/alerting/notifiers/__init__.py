"""Notifiers for the receivers that the settings name."""

from collections.abc import Callable, Mapping
from typing import Any

from gpucost.features.alerting.notifiers.alertmanager import AlertmanagerNotifier
from gpucost.features.alerting.notifiers.email import EmailNotifier
from gpucost.features.alerting.notifiers.slack import SlackNotifier
from gpucost.features.alerting.ports import Notifier
from gpucost.features.alerting.settings import AlertmanagerReceiver, Receiver, SettingsDocument, SlackReceiver


def make_notifiers(
    settings: SettingsDocument,
    *,
    email_topic_arn: str,
    public_url: str,
    client: Callable[[str], Any],
    secret_value: Callable[[str], str],
) -> Mapping[str, Notifier]:
    """Make the notifiers of a document by receiver key. None of them connects before its first message.

    Args:
        settings: the document.
        email_topic_arn: SNS topic of the email receivers.
        public_url: address of the page, for links.
        client: makes the client of a service.
        secret_value: reads a secret.
    """

    def notifier(receiver: Receiver) -> Notifier:
        if isinstance(receiver, SlackReceiver):
            return SlackNotifier(receiver.secret, secret_value=secret_value, host=receiver.host, public_url=public_url)
        if isinstance(receiver, AlertmanagerReceiver):
            return AlertmanagerNotifier(
                receiver.url, secret=receiver.secret, secret_value=secret_value, public_url=public_url
            )
        return EmailNotifier(email_topic_arn, client=lambda: client("sns"), public_url=public_url)

    return {receiver.key: notifier(receiver) for receiver in settings.alerts.receivers}
