"""Rules of the settings' section `alerts`: their scopes, thresholds and notifications (docs/how-to/alerts.md)."""

from collections.abc import Iterable
from datetime import time
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gpucost.features.alerting.subjects import RuleKind, Severity, Subject, TokenKind
from gpucost.settings.section import BOUNDED_DIGITS, Name, Percent, Positive, Section, Slug, matching_pattern

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
        return _matches(self.clusters, name)

    def has_unit(self, name: str) -> bool:
        """Whether the rule applies to a business unit."""
        return _matches(self.business_units, name)

    def has_namespace(self, name: str) -> bool:
        """Whether the rule applies to a namespace."""
        return _matches(self.namespaces, name)

    def has_node_pool(self, name: str) -> bool:
        """Whether the rule applies to a node pool."""
        return _matches(self.node_pools, name)


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


class RuleSettings(Section):
    """The keys that all rules share."""

    kind: ClassVar[RuleKind]
    default_severity: ClassVar[Severity] = "warning"

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

    def _overrides(self) -> tuple[RuleOverride, ...]:
        overrides: tuple[RuleOverride, ...] = getattr(self, "overrides", ())
        return overrides


class WasteOverride(RuleOverride):
    """Other thresholds of a waste rule."""

    waste_usd_per_hour: Positive | None = None
    """The minimum waste in USD in an hour, in place of the rule's."""
    waste_percent: Percent | None = None
    """The minimum waste in percent of the allocated cost, in place of the rule's."""
    for_hours: DurationHours | None = None
    """Hours in a row, in place of the rule's."""


class WasteRule(RuleSettings):
    """Fires when a business unit wastes a minimum amount and a minimum part of what it holds."""

    kind = "waste"

    rule: Literal["waste"]
    """The kind of the rule."""
    waste_usd_per_hour: Positive
    """Fires if this much is wasted in an hour, and at least `waste_percent` of the allocated cost."""
    waste_percent: Percent
    """The minimum waste in percent of the allocated cost."""
    across_clusters: bool = False
    """Whether to sum clusters, in hours for which all of them have figures. Default: each cluster on its own."""
    overrides: tuple[WasteOverride, ...] = ()
    """Other thresholds for some business units or clusters. The first that matches is used."""


class IdleWorkloadOverride(RuleOverride):
    """Other thresholds of an idle-workload rule."""

    gpus: Positive | None = None
    """The fewest physical GPUs, in place of the rule's."""
    utilization_percent: Percent | None = None
    """The utilization in percent, in place of the rule's."""
    for_hours: DurationHours | None = None
    """Hours in a row, in place of the rule's."""


class IdleWorkloadRule(RuleSettings):
    """Fires when a workload holds a minimum number of GPUs below a utilization."""

    kind = "idle-workload"
    default_severity = "info"

    rule: Literal["idle-workload"]
    """The kind of the rule."""
    gpus: Positive = Decimal(1)
    """The fewest physical GPUs, on average over the hour, that the workload must hold."""
    utilization_percent: Percent = Decimal(10)
    """Fires if the mean utilization of these GPUs is lower."""
    overrides: tuple[IdleWorkloadOverride, ...] = ()
    """Other thresholds for some workloads. The first that matches is used."""


class UnallocatedOverride(RuleOverride):
    """Other thresholds of an unallocated rule."""

    usd_per_hour: Positive | None = None
    """The unallocated cost in USD in an hour, in place of the rule's."""
    for_hours: DurationHours | None = None
    """Hours in a row, in place of the rule's."""


class UnallocatedRule(RuleSettings):
    """Fires when a node pool has a minimum amount of unallocated capacity."""

    kind = "unallocated"

    rule: Literal["unallocated"]
    """The kind of the rule."""
    usd_per_hour: Positive
    """Fires if the unallocated cost of the pool's nodes in an hour reaches this amount."""
    overrides: tuple[UnallocatedOverride, ...] = ()
    """Other thresholds for some node pools. The first that matches is used."""


class TokenCostOverride(RuleOverride):
    """Another budget for some models."""

    model: NamePattern | None = None
    """Shell pattern of the model's name."""
    usd_per_million_tokens: Positive | None = None
    """The budget in USD, in place of the rule's."""
    for_hours: DurationHours | None = None
    """Hours in a row, in place of the rule's."""

    def matches(self, subject: Subject) -> bool:
        """Whether the override applies to a subject, whose detail is the model."""
        return super().matches(subject) and (self.model is None or fnmatchcase(subject.detail, self.model))

    def overridden_settings(self) -> dict[str, Any]:
        """Return the keys that the override replaces."""
        return {key: setting for key, setting in super().overridden_settings().items() if key != "model"}


class TokenCostRule(RuleSettings):
    """Fires when a million tokens of a model cost a business unit more than a budget. Requires `inference`."""

    kind = "token-cost"

    rule: Literal["token-cost"]
    """The kind of the rule."""
    usd_per_million_tokens: Positive
    """The budget: the most that a million tokens may cost, in USD."""
    tokens: TokenKind = "blended"
    """Which tokens: prompt and generated ones together (`blended`), or `prompt` or `generated` ones, to which the
    weights of `inference` divide the cost."""
    window_hours: Annotated[int, Field(ge=1, le=168)] = 24
    """In how many hours, up to the published one, costs and tokens are added up."""
    models: NamePatterns = ()
    """Shell patterns of models' names. Default: all."""
    overrides: tuple[TokenCostOverride, ...] = ()
    """Other budgets for some models, business units or clusters. The first that matches is used."""

    def covers(self, subject: Subject) -> bool:
        """Whether the rule applies to a subject, whose detail is the model."""
        return super().covers(subject) and _matches(self.models, subject.detail)


class BudgetOverride(RuleOverride):
    """Another budget."""

    monthly_usd: Positive | None = None
    """The budget for a calendar month in USD, in place of the rule's."""
    quarterly_usd: Positive | None = None
    """The budget for a calendar quarter in USD, in place of the rule's."""

    def overridden_settings(self) -> dict[str, Any]:
        """Return the keys that the override replaces; another monthly budget also removes the rule's quarterly one."""
        return ({} if self.monthly_usd is None else {"quarterly_usd": None}) | super().overridden_settings()


class BudgetRule(RuleSettings):
    """Fires when a business unit's month to date, or its projection, reaches percentages of a budget."""

    kind = "budget"

    rule: Literal["budget"]
    """The kind of the rule."""
    monthly_usd: Positive
    """The budget of each business unit in scope for a calendar month, in USD."""
    quarterly_usd: Positive | None = None
    """Used by quarterly forecasts. Default: three times the monthly budget. Alerts only use the monthly budget."""
    percents: Annotated[
        tuple[Annotated[Decimal, Field(gt=0, le=1000), BOUNDED_DIGITS], ...], Field(min_length=1, max_length=10)
    ] = (
        Decimal(50),
        Decimal(80),
        Decimal(100),
    )
    """The percentages of the budget at which an alert fires."""
    projection: bool = True
    """Whether to fire also when the projection for the whole month reaches the highest of `percents`."""
    overrides: tuple[BudgetOverride, ...] = ()
    """Other budgets for some business units. The first that matches is used."""


class SpendChangeOverride(RuleOverride):
    """Other thresholds of a spend-change rule."""

    percent: Annotated[Decimal, Field(gt=0, le=100_000), BOUNDED_DIGITS] | None = None
    """The difference in percent, in place of the rule's."""
    usd: Positive | None = None
    """The difference in USD, in place of the rule's."""


class SpendChangeRule(RuleSettings):
    """Fires when a business unit's day differs from the same hours of previous weeks."""

    kind = "spend-change"

    rule: Literal["spend-change"]
    """The kind of the rule."""
    percent: Annotated[Decimal, Field(gt=0, le=100_000), BOUNDED_DIGITS]
    """Fires if the difference is larger than this part of the previous weeks' median, and larger than `usd`."""
    usd: Positive
    """The minimum difference in USD."""
    weeks: Annotated[int, Field(ge=2, le=8)] = 4
    """How many previous weeks are compared."""
    overrides: tuple[SpendChangeOverride, ...] = ()
    """Other thresholds for some business units. The first that matches is used."""


class DataRule(RuleSettings):
    """Fires when figures are missing or not reliable, or when the service itself has problems."""

    kind = "data"
    default_severity = "critical"

    rule: Literal["data"]
    """The kind of the rule."""
    overdue_hours: Annotated[int, Field(ge=1, le=720)] | None = 2
    """Fires when at least this many hours of a cluster are missing or incomplete."""
    coverage: Annotated[Decimal, Field(gt=0, le=1), BOUNDED_DIGITS] | None = None
    """Fires when the newest published hour has less coverage."""
    price_age_hours: Annotated[int, Field(ge=1, le=8760)] | None = None
    """Fires when the newest fetched price is at least this old."""
    dead_letters: bool = True
    """Fires when there are messages in the dead-letter queue."""
    invalid_settings: bool = True
    """Fires when the newest settings document cannot be read, so that an older one is in force."""
    suspect_samples: bool = True
    """Fires when an hour published since the previous tick has samples that are contradictory or impossible."""


class DigestRule(RuleSettings):
    """Sends each business unit a summary of cost, waste and what to do."""

    kind = "digest"
    default_severity = "info"

    rule: Literal["digest"]
    """The kind of the rule."""
    every: Literal["week", "month"] = "week"
    """The period: a week from Monday to Sunday, or a calendar month, UTC. The digest is sent after it ended."""
    at: ClockTime = "08:00"
    """The earliest time to send it, in the rule's time zone, on the first day after the period."""


class ExternalRule(RuleSettings):
    """Forwards alerts of AMP's alerting rules: node pools and quotas near their limit, failed provisioning."""

    kind = "external"

    rule: Literal["external"]
    """The kind of the rule."""

    def covers(self, subject: Subject) -> bool:
        """Whether the rule applies to a subject; an empty field of the subject does not match a scope that sets it."""
        scope = self.scope
        patterns_and_names = (
            (scope.business_units, subject.business_unit),
            (scope.clusters, subject.cluster),
            (scope.namespaces, subject.namespace),
            (scope.node_pools, subject.node_pool),
        )
        return super().covers(subject) and all(name or not patterns for patterns, name in patterns_and_names)


AlertRule = Annotated[
    WasteRule
    | IdleWorkloadRule
    | UnallocatedRule
    | TokenCostRule
    | BudgetRule
    | SpendChangeRule
    | DataRule
    | DigestRule
    | ExternalRule,
    Field(discriminator="rule"),
]
RULE_KINDS = (
    "waste", "idle-workload", "unallocated", "token-cost", "budget", "spend-change", "data", "digest", "external",
)  # fmt: skip


def _matches(patterns: Iterable[str], name: str) -> bool:
    patterns = tuple(patterns)
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
