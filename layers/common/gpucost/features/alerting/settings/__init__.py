"""The settings' section `alerts`: which rules, for whom, how patient, told where (docs/alerts.md)."""

from collections.abc import Iterable
from typing import Annotated, Self
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from gpucost.features.alerting.model import FLEET
from gpucost.features.alerting.settings.receivers import Receiver
from gpucost.features.alerting.settings.rules import RULE_KINDS, QuietHoursSettings, Rule, RuleSettings, ZoneName
from gpucost.settings.section import Section, duplicates


class AlertSettings(Section):
    """When to speak up, and to whom."""

    rules: tuple[Rule, ...] = ()
    receivers: tuple[Receiver, ...] = ()
    time_zone: ZoneName = "UTC"
    """Of quiet hours and digests, where a rule has none of its own; and of schedules that are advised."""
    quiet_hours: QuietHoursSettings | None = None
    repeat_hours: Annotated[int, Field(ge=0, le=720)] = 24

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
        """Rules by their stable names: the given one, else the kind.

        Documents from before rules had names may hold several of a kind without: the second is called `waste-2`, as it
        was then. New ones are refused (`unstable_names`).
        """
        found: dict[str, RuleSettings] = {}
        for name, rule in zip(legacy_names(self.rules), self.rules, strict=True):
            found[rule.name or name] = rule
        return found

    def unstable_names(self) -> str | None:
        """A sentence if a rule would be told from another by its place alone."""
        for kind in RULE_KINDS:
            own = [rule for rule in self.rules if rule.rule == kind]
            if len(own) > 1 and any(rule.name is None for rule in own):
                return f"settings: alerts.rules: {len(own)} rules of kind {kind}: each needs a name"
        return None

    def unknown_zones(self) -> list[str]:
        """Time zones that this machine does not know."""
        names = {self.time_zone, *(rule.time_zone for rule in self.rules if rule.time_zone)}
        return sorted(name for name in names if not _is_zone(name))

    def receiver_keys(self, rule: RuleSettings) -> list[str]:
        """Which receivers a rule tells, by their outboxes' names."""
        wanted = rule.receivers
        return sorted({one.key for one in self.receivers if wanted is None or (one.name or one.type) in wanted})


def legacy_names(rules: Iterable[RuleSettings]) -> list[str]:
    """What rules were called before they had names: by kind and place among the whole list."""
    found: list[str] = []
    taken: dict[str, int] = {}
    for rule in rules:
        taken[rule.kind] = number = taken.get(rule.kind, 0) + 1
        found.append(rule.kind if number == 1 else f"{rule.kind}-{number}")
    return found


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return False
    return name != FLEET
