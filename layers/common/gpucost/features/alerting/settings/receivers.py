"""Receivers of the settings' section `alerts`: who is told, and by which way (docs/alerts.md)."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from gpucost.settings.section import Address, SecretName, Section, Slug, matching_pattern

ReceiverName = Slug
HostName = Annotated[
    str, matching_pattern(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "a host's name in lower case, as chat.example.com")
]


class _Receiver(Section):
    """What all receivers share."""

    name: ReceiverName | None = None
    """What rules call it; its type where not given."""


class SlackReceiver(_Receiver):
    """A Slack incoming webhook; its address is the secret's value."""

    type: Literal["slack"]
    secret: SecretName
    host: HostName | None = None
    """Of the webhook, where another service than Slack takes it."""

    @property
    def key(self) -> str:
        """What outboxes call it."""
        return f"slack:{self.secret}"


class EmailReceiver(_Receiver):
    """The deployment's SNS email topic."""

    type: Literal["email"]

    @property
    def key(self) -> str:
        """What outboxes call it."""
        return "email"


class AlertmanagerReceiver(_Receiver):
    """An Alertmanager (API v2), for the routing that is there already: PagerDuty, Opsgenie, Teams."""

    type: Literal["alertmanager"]
    url: Address
    """Base address; `/api/v2/alerts` is added."""
    secret: SecretName | None = None
    """It holds a bearer token and the address that the token may be sent to."""

    @field_validator("url")
    @classmethod
    def _holds_no_credentials(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not hold credentials; use secret")
        return url

    @property
    def key(self) -> str:
        """What outboxes call it."""
        return f"alertmanager:{self.url}"


Receiver = Annotated[SlackReceiver | EmailReceiver | AlertmanagerReceiver, Field(discriminator="type")]
RECEIVER_TYPES = ("slack", "email", "alertmanager")
