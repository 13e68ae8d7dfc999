"""The settings' section `alerts`: which rules, for whom, how patient, told where (docs/alerts.md)."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Self
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from gpucost.core.errors import SettingsError
from gpucost.features.alerting.model import FLEET_SCOPE
from gpucost.features.alerting.settings.receivers import RECEIVER_TYPES, AlertmanagerReceiver, Receiver
from gpucost.features.alerting.settings.rules import RULE_KINDS, QuietHoursSettings, Rule, RuleSettings, ZoneName
from gpucost.settings import Settings
from gpucost.settings.section import Section, duplicates


class AlertSettings(Section):
    """When to speak up, and to whom."""

    rules: tuple[Rule, ...] = ()
    receivers: tuple[Receiver, ...] = ()
    time_zone: ZoneName = "UTC"
    """Of quiet hours and digests, where a rule has none of its own; and of schedules that are advised."""
    quiet_hours: QuietHoursSettings | None = None
    repeat_hours: Annotated[int, Field(ge=0, le=720)] = 24

    @field_validator("rules")
    @classmethod
    def _rules_of_one_kind_have_names(cls, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        for kind in RULE_KINDS:
            of_kind = [rule for rule in rules if rule.rule == kind]
            if len(of_kind) > 1 and any(rule.name is None for rule in of_kind):
                raise ValueError(f"{len(of_kind)} rules of kind {kind}: each needs a name")
        return rules

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for what, names in (
            ("rules", [rule.name for rule in self.rules if rule.name]),
            ("receivers", [receiver.name for receiver in self.receivers if receiver.name]),
        ):
            if repeated := duplicates(names):
                raise ValueError(f"{what}: {min(repeated)!r} is named twice")
        return self

    @model_validator(mode="after")
    def _receivers_are_known(self) -> Self:
        known = {receiver.name or receiver.type for receiver in self.receivers}
        for rule in self.rules:
            if unknown := sorted(set(rule.receivers or ()) - known):
                raise ValueError(f"rules: {unknown[0]!r} is no receiver; there are: {', '.join(sorted(known))}")
        return self

    def named_rules(self) -> dict[str, "RuleSettings"]:
        """Rules by name; the single rule of a kind may have none, and is named after its kind."""
        return {rule.name or rule.kind: rule for rule in self.rules}

    def unknown_zones(self) -> list[str]:
        """Time zones that this machine does not know."""
        names = {self.time_zone, *(rule.time_zone for rule in self.rules if rule.time_zone)}
        return sorted(name for name in names if not _is_zone(name))

    def receiver_keys(self, rule: RuleSettings) -> list[str]:
        """Which receivers a rule tells, by their outboxes' names."""
        wanted = rule.receivers
        return sorted({one.key for one in self.receivers if wanted is None or (one.name or one.type) in wanted})


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return False
    return name != FLEET_SCOPE


class AlertingSettings(Settings):
    """The settings document with the section of this feature."""

    tagged_lists: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {
        "rules": ("rule", RULE_KINDS),
        "receivers": ("type", RECEIVER_TYPES),
    }
    alerts: AlertSettings = AlertSettings()

    def check_new(self) -> None:
        """Check what a document that is pushed must fulfil beyond one that is already stored.

        Raises:
            SettingsError: a time zone does not exist, or credentials would go to an address without TLS.
        """
        if unknown := self.alerts.unknown_zones():
            raise SettingsError(f"settings: alerts: time_zone {unknown[0]!r} is not known; use one like Europe/Berlin")
        super().check_new()

    def addresses_with_credentials(self) -> Iterator[tuple[str, str]]:
        """Keys and values of the addresses to which credentials are sent."""
        yield from super().addresses_with_credentials()
        for index, receiver in enumerate(self.alerts.receivers):
            if isinstance(receiver, AlertmanagerReceiver) and receiver.secret is not None:
                yield f"alerts.receivers[{index}].url", receiver.url
