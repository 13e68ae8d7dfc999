"""The settings' section `alerts`: rules, receivers, and when to notify (docs/how-to/alerts.md)."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from gpucost.features.alerting.rule_kinds import RULES, AlertRule
from gpucost.features.alerting.rule_kinds.base import (
    CROSS_CLUSTER_WASTE_SCOPE,
    FLEET_SCOPE,
    QuietHoursSettings,
    Rule,
    TimeZoneName,
)
from gpucost.features.alerting.rule_kinds.external import ExternalRule
from gpucost.settings import CoreSettings
from gpucost.settings.section import Address, SecretName, Section, Slug, duplicates, matching_pattern

DEFAULT_EXTERNAL_RULE_NAME = "external"
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


class AlertSettings(Section):
    """Alert rules and the receivers of their notifications."""

    rules: tuple[AlertRule, ...] = ()
    """The conditions that fire alerts, and the digests."""
    receivers: tuple[Receiver, ...] = ()
    """Where notifications are sent."""
    time_zone: TimeZoneName = "UTC"
    """Used for quiet hours and digests of rules without a time zone, and for recommended schedules."""
    quiet_hours: QuietHoursSettings | None = None
    """When notifications of rules without quiet hours are muted."""
    repeat_hours: Annotated[int, Field(ge=0, le=720)] = 24
    """While an alert fires, its notification is repeated after this many hours; 0: never."""

    @field_validator("rules")
    @classmethod
    def _rules_of_same_kind_have_names(cls, rules: tuple[AlertRule, ...]) -> tuple[AlertRule, ...]:
        for kind in RULES:
            of_kind = [rule for rule in rules if isinstance(rule, kind)]
            if len(of_kind) > 1 and any(rule.name is None for rule in of_kind):
                raise ValueError(f"{len(of_kind)} rules of kind {kind.kind}: each needs a name")
        return rules

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for key, names in (
            ("rules", [rule.name for rule in self.rules if rule.name]),
            ("receivers", [receiver.name for receiver in self.receivers if receiver.name]),
        ):
            if repeated := duplicates(names):
                raise ValueError(f"{key}: {min(repeated)!r} is named twice")
        return self

    @model_validator(mode="after")
    def _receivers_exist(self) -> Self:
        names = {receiver.name or receiver.type for receiver in self.receivers}
        for index, rule in enumerate(self.rules):
            if unknown := sorted(set(rule.receivers or ()) - names):
                allowed = ", ".join(sorted(names)) or "none, because alerts.receivers is empty"
                raise ValueError(f"rules[{index}].receivers: unknown receiver {unknown[0]!r}; allowed: {allowed}")
        return self

    def rules_by_name(self) -> dict[str, Rule]:
        """Return rules by name. A rule without a name is the only one of its kind, and its kind is its name."""
        return {rule.name or rule.kind: rule for rule in self.rules}

    def unknown_time_zones(self) -> list[str]:
        """Return the time zones that do not exist on this machine."""
        names = {self.time_zone, *(rule.time_zone for rule in self.rules if rule.time_zone)}
        return sorted(name for name in names if not _is_time_zone(name))

    def receiver_keys(self, rule: Rule) -> list[str]:
        """Return the keys of the receivers of a rule's notifications."""
        names = rule.receivers
        return sorted(
            {receiver.key for receiver in self.receivers if names is None or (receiver.name or receiver.type) in names}
        )


def _is_time_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return False
    return True


class SettingsDocument(CoreSettings):
    """The settings document: the sections of the core (`CoreSettings`) and of alerting, the only feature with one."""

    tagged_lists: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {
        "rules": ("rule", tuple(rule.kind for rule in RULES)),
        "receivers": ("type", RECEIVER_TYPES),
    }
    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("budget", "budgets"), "Budgets are rules: alerts: {rules: [{rule: budget, monthly_usd: 50000}]}"
    )
    alerts: AlertSettings = AlertSettings.model_construct()
    """Alert rules and the receivers of their notifications."""

    def new_document_faults(self) -> Iterator[str]:
        """Yield a sentence for each unknown time zone, rule without what it needs, and address without TLS."""
        for name in self.alerts.unknown_time_zones():
            yield f"settings: alerts: unknown time_zone {name!r}; use an IANA name, for example Europe/Berlin"
        for sentence in dict.fromkeys(fault for rule in self.alerts.rules for fault in rule.missing_settings(self)):
            yield f"settings: alerts.rules: {sentence}"
        yield from super().new_document_faults()

    def addresses_with_credentials(self) -> Iterator[tuple[str, str]]:
        """Yield keys and values of the addresses to which credentials are sent."""
        yield from super().addresses_with_credentials()
        for index, receiver in enumerate(self.alerts.receivers):
            if isinstance(receiver, AlertmanagerReceiver) and receiver.secret is not None:
                yield f"alerts.receivers[{index}].url", receiver.url


def alert_scopes(settings: SettingsDocument) -> list[str]:
    """Return every scope that may have alert states."""
    return [FLEET_SCOPE, CROSS_CLUSTER_WASTE_SCOPE, *(cluster.name for cluster in settings.clusters)]


def rules_of_scope(settings: SettingsDocument, scope: str) -> dict[str, Rule]:
    """Return the rules that are evaluated in a scope, with a default rule for AMP's alerts if none is set."""
    rules = {name: rule for name, rule in settings.alerts.rules_by_name().items() if rule.is_evaluated_in(scope)}
    if scope == FLEET_SCOPE and not any(isinstance(rule, ExternalRule) for rule in rules.values()):
        rules[DEFAULT_EXTERNAL_RULE_NAME] = ExternalRule(rule="external")
    return rules
