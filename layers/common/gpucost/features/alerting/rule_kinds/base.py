"""What all kinds of alerts have: findings, shared keys of rules, their evaluation, and what notifications say."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self
from urllib.parse import quote

from msgspec import Struct
from pydantic import Field, model_validator

from gpucost.features.alerting.formatting import FigureFormatter
from gpucost.settings import CoreSettings
from gpucost.settings.section import Name, Section, Slug, matching_pattern

if TYPE_CHECKING:
    from gpucost.features.alerting.evaluation import HourFigures
    from gpucost.features.alerting.model import Alert
    from gpucost.features.alerting.tick_figures import TickFigures

# What rules find about a subject: the records that the kinds of rules share with the states and notifications.
#
# They are not in `model`, so that settings do not import the records.

Severity = Literal["info", "warning", "critical"]

FLEET_SCOPE = "*"
"""The scope of rules that are evaluated on the schedule, over all clusters. No cluster can have this name."""
CROSS_CLUSTER_WASTE_SCOPE = "*hours"
"""The scope of waste rules over several clusters. No cluster can have this name."""


class Subject(NamedTuple):
    """What an alert is about. Fields that a rule does not use are empty."""

    cluster: str = ""
    """Empty for all clusters together."""
    business_unit: str = ""
    namespace: str = ""
    workload_kind: str = ""
    workload: str = ""
    node_pool: str = ""
    detail: str = ""
    """Distinguishes alerts of one rule on the same subject: `2026-11 spent 80`, `coverage`, the name of a model."""


class WastefulWorkload(NamedTuple):
    """One of the workloads with the most waste in the evaluated hour."""

    namespace: str
    kind: str
    name: str
    gpu_hours: Decimal
    waste_usd: Decimal
    """Per hour. In a digest: over its period."""


class FiringPolicy(Struct, frozen=True):
    """How long a condition must hold before an alert fires, and be over before it resolves."""

    for_hours: int = 1
    keep_firing_hours: int = 0

    @property
    def evaluations_to_keep(self) -> int:
        """How many evaluations are kept: a run that fires an alert, a run that resolves it, and the hour before."""
        return self.for_hours + max(1, self.keep_firing_hours) + 1


class Finding(Struct, frozen=True):
    """What a rule found for one subject in one hour."""

    subject: Subject
    hour: datetime
    is_breach: bool | None
    threshold: str
    figures: dict[str, Decimal | None]
    currency: str
    firing_policy: FiringPolicy
    read_top_wasters: Callable[[], tuple[WastefulWorkload, ...]] = lambda: ()
    """Reads the workloads with the most waste; called only for a notification, because it costs reads."""
    note: str = ""
    is_history_only: bool = False
    """Recorded in the history and sent to no one, because an alert of a higher threshold covers it."""


class Digest(Struct, frozen=True):
    """A digest of a business unit that is due."""

    period: str
    subject: Subject
    start: datetime
    newest_hour: datetime
    figures: dict[str, Decimal | None]
    currency: str
    workloads: tuple[WastefulWorkload, ...]
    note: str


# Kinds and rules.

RuleName = Slug
TimeZoneName = Annotated[
    str, matching_pattern(r"[A-Za-z0-9+_/-]{1,64}", "a time zone, for example Europe/Berlin or UTC")
]
ClockTime = Annotated[
    str, matching_pattern(r"([01]\d|2[0-3]):[0-5]\d", "a time of day from 00:00 to 23:59, for example 22:30")
]
DurationHours = Annotated[int, Field(ge=1, le=168)]
NamePattern = Name
"""A shell pattern of names."""
NamePatterns = tuple[NamePattern, ...]


class Figure(NamedTuple):
    """A figure in notifications."""

    title: str
    name: str
    percent_name: str = ""
    """A percentage that follows the amount in parentheses."""


class AlertKind(Section):
    """What notifications say about the alerts of a kind, and what mutes them. `Rule` adds how they are found."""

    kind: ClassVar[str]
    """Its name in settings, in notifications and in the API."""
    title: ClassVar[str]
    action: ClassVar[str]
    """What to do about an alert that fires."""
    figures: ClassVar[tuple[Figure, ...]] = ()
    """The figures that messages show, of those that a notification has."""
    amount_per_hour: ClassVar[str] = ""
    """The figure that messages also project to a month."""
    needs_sentence: ClassVar[bool] = False
    """Whether a message of fields also has the sentence, because the fields do not name the cause."""
    is_inhibited_by_missing_data: ClassVar[bool] = False
    """Whether missing hours of a cluster mute its alerts, because they are computed from these hours."""
    details_of_missing_data: ClassVar[frozenset[str]] = frozenset()
    """Details of firing alerts of this kind that mean that hours of their cluster are missing."""
    days_in_link: ClassVar[int] = 7
    """The period of the page's view to which notifications link, at most."""

    @classmethod
    def predicate(cls, figures: FigureFormatter, detail: str, *, is_resolved: bool) -> str:
        """Return what the sentence of a notification says about its subject."""
        return f"resolved: {detail}" if is_resolved else detail

    @classmethod
    def page_view(cls, subject: Subject) -> tuple[str, Mapping[str, str]]:
        """Return the page's view (web/src/route.ts) of a subject, and its filters."""
        if subject.business_unit:
            return f"unit/{quote(subject.business_unit, safe='')}", {}
        return ("nodes", {"pool": subject.node_pool}) if subject.node_pool else ("overview", {})


class RuleScope(Section):
    """What a rule applies to: shell patterns; an empty list matches everything."""

    business_units: NamePatterns = ()
    """Shell patterns of business units' names."""
    clusters: NamePatterns = ()
    """Shell patterns of clusters' names."""
    namespaces: NamePatterns = ()
    """Shell patterns of namespaces."""
    node_pools: NamePatterns = ()
    """Shell patterns of node pools' names."""

    def has_cluster(self, name: str) -> bool:
        """Whether the rule applies to a cluster."""
        return matches_any(self.clusters, name)

    def has_unit(self, name: str) -> bool:
        """Whether the rule applies to a business unit."""
        return matches_any(self.business_units, name)

    def has_namespace(self, name: str) -> bool:
        """Whether the rule applies to a namespace."""
        return matches_any(self.namespaces, name)

    def has_node_pool(self, name: str) -> bool:
        """Whether the rule applies to a node pool."""
        return matches_any(self.node_pools, name)


class QuietHoursSettings(Section):
    """When notifications are muted. Alerts that still fire afterwards are sent then."""

    begin: Annotated[ClockTime, Field(alias="from")]
    """The time of day at which the quiet hours begin, in the rule's time zone."""
    end: Annotated[ClockTime, Field(alias="to")]
    """The time of day at which the quiet hours end. It may be earlier than `from`: the next day."""
    weekends: bool = False
    """Whether whole Saturdays and Sundays are quiet, too."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if self.begin == self.end:
            raise ValueError(f"from and to are both {self.begin}: an empty period; for a whole day, use 00:00 to 23:59")
        return self

    def times(self) -> tuple[time, time]:
        """Return begin and end."""
        return time.fromisoformat(self.begin), time.fromisoformat(self.end)


class RuleOverride(Section):
    """Other thresholds for some subjects of a rule. All patterns that are set must match."""

    example: ClassVar[str]
    """An example in YAML, for the reference."""

    business_unit: NamePattern | None = None
    """Shell pattern of the business unit's name."""
    cluster: NamePattern | None = None
    """Shell pattern of the cluster's name."""
    namespace: NamePattern | None = None
    """Shell pattern of the namespace."""
    node_pool: NamePattern | None = None
    """Shell pattern of the node pool's name."""

    def matches(self, subject: Subject) -> bool:
        """Whether the override applies to a subject."""
        patterns_and_names = (
            (self.business_unit, subject.business_unit),
            (self.cluster, subject.cluster),
            (self.namespace, subject.namespace),
            (self.node_pool, subject.node_pool),
        )
        return all(pattern is None or fnmatchcase(name, pattern) for pattern, name in patterns_and_names)

    def overridden_settings(self) -> dict[str, Any]:
        """Return the keys that the override replaces."""
        keys = self.model_fields_set - set(RuleOverride.model_fields)
        return {key: getattr(self, key) for key in keys if getattr(self, key) is not None}


class Rule(AlertKind):
    """The keys that all rules share."""

    default_severity: ClassVar[Severity] = "warning"
    example: ClassVar[str]
    """An example in YAML, for the reference."""
    fires_when: ClassVar[str]
    """The condition, for the table of docs/how-to/alerts.md; so are the next two."""
    subjects: ClassVar[str]
    severity_text: ClassVar[str] = ""
    """If it is not the default severity."""

    name: RuleName | None = None
    """Alert states are stored under this name. Required if several rules are of one kind; default: the kind."""
    scope: RuleScope = RuleScope.model_construct()
    """The business units, clusters, namespaces and node pools to which the rule applies. Default: all."""
    severity: Severity | None = None
    """The severity of the rule's alerts. Default: that of the kind."""
    receivers: tuple[Name, ...] | None = None
    """Names of receivers. Default: all."""
    time_zone: TimeZoneName | None = None
    """Time zone of quiet hours and digests. Default: `time_zone` of `alerts`."""
    quiet_hours: QuietHoursSettings | None = None
    """When notifications are muted. Default: `quiet_hours` of `alerts`."""
    repeat_hours: Annotated[int, Field(ge=0, le=720)] | None = None
    """While an alert fires, its notification is repeated after this many hours; 0: never."""
    for_hours: DurationHours = 1
    """For how many hours in a row the condition must be true before the alert fires."""
    keep_firing_hours: Annotated[int, Field(ge=0, le=168)] = 0
    """For how many hours the alert keeps firing after the condition was last true."""

    @property
    def effective_severity(self) -> Severity:
        """The severity that is set, or the default of the kind."""
        return self.severity or self.default_severity

    @property
    def firing_policy(self) -> FiringPolicy:
        """For how long the condition must hold before an alert fires, and be over before it resolves."""
        return FiringPolicy(self.for_hours, self.keep_firing_hours)

    @property
    def max_for_hours(self) -> int:
        """The longest `for_hours` of the rule and its overrides."""
        return max(
            self.for_hours,
            *(int(override.overridden_settings().get("for_hours", 1)) for override in self._overrides()),
            1,
        )

    def for_subject(self, subject: Subject) -> Self:
        """Return the rule with the thresholds for a subject: those of the first override that matches."""
        override = next((override for override in self._overrides() if override.matches(subject)), None)
        return self if override is None else self.model_copy(update=override.overridden_settings())

    def covers(self, subject: Subject) -> bool:
        """Whether the rule applies to a subject; empty fields of the subject match any scope."""
        checks = (
            (subject.business_unit, self.scope.has_unit),
            (subject.cluster, self.scope.has_cluster),
            (subject.namespace, self.scope.has_namespace),
            (subject.node_pool, self.scope.has_node_pool),
        )
        return all(not name or is_in(name) for name, is_in in checks)

    def is_evaluated_in(self, alert_scope: str) -> bool:
        """Whether the rule is evaluated in a scope of alerts: a cluster, or one of the scopes over several clusters."""
        raise NotImplementedError

    def missing_settings(self, settings: CoreSettings) -> Iterator[str]:
        """Yield a sentence for each setting of another section without which the rule never fires."""
        yield from ()

    def _overrides(self) -> tuple[RuleOverride, ...]:
        overrides: tuple[RuleOverride, ...] = getattr(self, "overrides", ())
        return overrides


class HourRule(Rule):
    """A rule on a published hour of a cluster, or of several clusters together."""

    has_amounts: ClassVar[bool] = True
    """Whether thresholds are amounts. They do not apply to hours in another currency, from before a change of it."""

    def is_evaluated_in(self, alert_scope: str) -> bool:
        """Whether the rule is evaluated in a scope: in each of its clusters."""
        is_cluster = alert_scope not in {FLEET_SCOPE, CROSS_CLUSTER_WASTE_SCOPE}
        return is_cluster and self.scope.has_cluster(alert_scope)

    def findings(self, hour: "HourFigures", active_alerts: "Sequence[Alert]") -> Iterator[Finding]:
        """Evaluate an hour, for every subject that breaches the rule or that has an active alert."""
        raise NotImplementedError


class TickRule(Rule):
    """A rule that needs more than one published hour, and is evaluated on the hourly tick."""

    def is_evaluated_in(self, alert_scope: str) -> bool:
        """Whether the rule is evaluated in a scope: over all clusters."""
        return alert_scope == FLEET_SCOPE

    def findings(self, tick: "TickFigures", active_alerts: "Sequence[Alert]") -> Iterator[Finding]:
        """Evaluate a tick, for every subject."""
        yield from ()

    def is_over(self, alert: "Alert", tick: "TickFigures") -> bool:
        """Whether an alert ends without a notification, because its period is over."""
        return False

    def digests(self, tick: "TickFigures", reported_period: Callable[[str], str | None]) -> Iterator[Digest]:
        """Make the digests that are due and were not sent yet.

        Args:
            tick: the tick.
            reported_period: returns the last period that a business unit got.
        """
        yield from ()


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Whether a name matches one of several shell patterns, or there are none."""
    patterns = tuple(patterns)
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
