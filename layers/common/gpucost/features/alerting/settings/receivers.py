"""Receivers of the settings' section `alerts`: where notifications are sent (docs/how-to/alerts.md)."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from gpucost.settings.section import Address, SecretName, Section, Slug, matching_pattern

ReceiverName = Slug
HostName = Annotated[
    str,
    matching_pattern(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "a lower-case host name, for example chat.example.com"),
]


class _Receiver(Section):
    """The keys that all receivers share."""

    name: ReceiverName | None = None
    """How rules refer to it. Default: its type."""


class SlackReceiver(_Receiver):
    """A Slack incoming webhook. Its URL is the value of a secret."""

    type: Literal["slack"]
    """The type of the receiver."""
    secret: SecretName
    """Name of the secret whose text is the webhook's URL. The webhook determines the channel."""
    host: HostName | None = None
    """The host of the webhook, if it belongs to a Slack-compatible service."""

    @property
    def key(self) -> str:
        """Identifies the receiver in outboxes."""
        return f"slack:{self.secret}"


class EmailReceiver(_Receiver):
    """The deployment's SNS email topic."""

    type: Literal["email"]
    """The type of the receiver."""

    @property
    def key(self) -> str:
        """Identifies the receiver in outboxes."""
        return "email"


class AlertmanagerReceiver(_Receiver):
    """An Alertmanager (API v2), for existing routes to PagerDuty, Opsgenie or Teams."""

    type: Literal["alertmanager"]
    """The type of the receiver."""
    url: Address
    """Base URL; `/api/v2/alerts` is appended."""
    secret: SecretName | None = None
    """Name of the secret with a bearer token and the URL to which the token may be sent."""

    @field_validator("url")
    @classmethod
    def _has_no_credentials(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not contain credentials; store them in a secret and set its name as secret")
        return url

    @property
    def key(self) -> str:
        """Identifies the receiver in outboxes."""
        return f"alertmanager:{self.url}"


Receiver = Annotated[SlackReceiver | EmailReceiver | AlertmanagerReceiver, Field(discriminator="type")]
RECEIVER_TYPES = ("slack", "email", "alertmanager")
