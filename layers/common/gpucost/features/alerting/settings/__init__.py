"""The settings' section `alerts`: rules, receivers, and when to notify (docs/how-to/alerts.md)."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from gpucost.features.alerting.settings.receivers import RECEIVER_TYPES, AlertmanagerReceiver, Receiver
from gpucost.features.alerting.settings.rules import (
    RULE_KINDS,
    AlertRule,
    QuietHoursSettings,
    RuleSettings,
    TimeZoneName,
)
from gpucost.features.alerting.subjects import CROSS_CLUSTER_WASTE_SCOPE, FLEET_SCOPE
from gpucost.settings import CoreSettings
from gpucost.settings.section import Section, duplicates


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
        for kind in RULE_KINDS:
            of_kind = [rule for rule in rules if rule.rule == kind]
            if len(of_kind) > 1 and any(rule.name is None for rule in of_kind):
                raise ValueError(f"{len(of_kind)} rules of kind {kind}: each needs a name")
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

    def rules_by_name(self) -> dict[str, "RuleSettings"]:
        """Return rules by name. A rule without a name is the only one of its kind, and its kind is its name."""
        return {rule.name or rule.kind: rule for rule in self.rules}

    def unknown_time_zones(self) -> list[str]:
        """Return the time zones that do not exist on this machine."""
        names = {self.time_zone, *(rule.time_zone for rule in self.rules if rule.time_zone)}
        return sorted(name for name in names if not _is_time_zone(name))

    def receiver_keys(self, rule: RuleSettings) -> list[str]:
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
    return name != FLEET_SCOPE


class SettingsWithAlerts(CoreSettings):
    """The settings document with the section of this feature."""

    tagged_lists: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {
        "rules": ("rule", RULE_KINDS),
        "receivers": ("type", RECEIVER_TYPES),
    }
    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("budget", "budgets"), "Budgets are rules: alerts: {rules: [{rule: budget, monthly_usd: 50000}]}"
    )
    alerts: AlertSettings = AlertSettings.model_construct()
    """Alert rules and the receivers of their notifications."""

    def new_document_faults(self) -> Iterator[str]:
        """Yield a sentence for each unknown time zone, rule without tokens, and address without TLS for credentials."""
        for name in self.alerts.unknown_time_zones():
            yield f"settings: alerts: unknown time_zone {name!r}; use an IANA name, for example Europe/Berlin"
        if not self.inference.enabled and any(rule.rule == "token-cost" for rule in self.alerts.rules):
            yield "settings: alerts.rules: token-cost requires inference: {enabled: true}, which counts tokens"
        yield from super().new_document_faults()

    def addresses_with_credentials(self) -> Iterator[tuple[str, str]]:
        """Yield keys and values of the addresses to which credentials are sent."""
        yield from super().addresses_with_credentials()
        for index, receiver in enumerate(self.alerts.receivers):
            if isinstance(receiver, AlertmanagerReceiver) and receiver.secret is not None:
                yield f"alerts.receivers[{index}].url", receiver.url


def alert_scopes(settings: SettingsWithAlerts) -> list[str]:
    """Return every scope that may have alert states."""
    return [FLEET_SCOPE, CROSS_CLUSTER_WASTE_SCOPE, *(cluster.name for cluster in settings.clusters)]
