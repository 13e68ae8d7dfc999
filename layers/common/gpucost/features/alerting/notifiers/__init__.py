"""Notifiers for the receivers that the settings name."""

from collections.abc import Mapping

from gpucost.features.alerting.notifiers.alertmanager import AlertmanagerNotifier
from gpucost.features.alerting.notifiers.email import EmailNotifier
from gpucost.features.alerting.notifiers.slack import SlackNotifier
from gpucost.features.alerting.ports import Notifier
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.settings.receivers import AlertmanagerReceiver, Receiver, SlackReceiver
from gpucost.runtime import aws
from gpucost.runtime.secrets import secret_value


def notifiers(settings: AlertingSettings, *, email_topic_arn: str, public_url: str) -> Mapping[str, Notifier]:
    """Make the notifiers of a document by receiver key. None of them connects before its first message."""
    return {receiver.key: _notifier(receiver, email_topic_arn, public_url) for receiver in settings.alerts.receivers}


def _notifier(receiver: Receiver, email_topic_arn: str, public_url: str) -> Notifier:
    if isinstance(receiver, SlackReceiver):
        return SlackNotifier(receiver.secret, secret_value=secret_value, host=receiver.host, public_url=public_url)
    if isinstance(receiver, AlertmanagerReceiver):
        return AlertmanagerNotifier(
            receiver.url, secret=receiver.secret, secret_value=secret_value, public_url=public_url
        )
    return EmailNotifier(email_topic_arn, client=lambda: aws.client("sns"), public_url=public_url)
