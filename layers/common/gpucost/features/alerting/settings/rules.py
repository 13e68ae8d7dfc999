"""Rules of the settings' section `alerts`: what each looks at, from when it fires, how it is told (docs/alerts.md)."""

from collections.abc import Iterable
from datetime import time
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gpucost.features.alerting.model import Kind, Severity, Subject
from gpucost.settings.section import Name, Percent, Positive, Section, Slug, matching_pattern

RuleName = Slug
ZoneName = Annotated[str, matching_pattern(r"[A-Za-z0-9+_/-]{1,64}", "a time zone, as Europe/Berlin or UTC")]
ClockTime = Annotated[
    str, matching_pattern(r"([01]\d|2[0-3]):[0-5]\d", "a time of the day from 00:00 to 23:59, as 22:30")
]
Hours = Annotated[int, Field(ge=1, le=168)]
Patterns = tuple[Name, ...]


class Scope(Section):
    """What a rule looks at: patterns as in a shell; an empty list is everything."""

    business_units: Patterns = ()
    clusters: Patterns = ()
    namespaces: Patterns = ()
    node_pools: Patterns = ()

    def has_cluster(self, name: str) -> bool:
        """Whether a cluster is in it."""
        return _matches(self.clusters, name)

    def has_unit(self, name: str) -> bool:
        """Whether a business unit is in it."""
        return _matches(self.business_units, name)

    def has_namespace(self, name: str) -> bool:
        """Whether a namespace is in it."""
        return _matches(self.namespaces, name)

    def has_node_pool(self, name: str) -> bool:
        """Whether a node pool is in it."""
        return _matches(self.node_pools, name)


class QuietHoursSettings(Section):
    """When nobody is disturbed; what is still true afterwards is told then."""

    begin: Annotated[ClockTime, Field(alias="from")]
    end: Annotated[ClockTime, Field(alias="to")]
    weekends: bool = False

    @model_validator(mode="after")
    def _is_a_time(self) -> Self:
        if self.begin == self.end:
            raise ValueError(
                f"from and to are both {self.begin}, which is no time at all; a whole day is 00:00 to 23:59"
            )
        return self

    def times(self) -> tuple[time, time]:
        """Begin and end."""
        return time.fromisoformat(self.begin), time.fromisoformat(self.end)


class Override(Section):
    """Other thresholds for some of what a rule looks at: every name given must match."""

    business_unit: Name | None = None
    cluster: Name | None = None
    namespace: Name | None = None
    node_pool: Name | None = None

    def matches(self, subject: Subject) -> bool:
        """Whether it applies."""
        wanted = (
            (self.business_unit, subject.business_unit),
            (self.cluster, subject.cluster),
            (self.namespace, subject.namespace),
            (self.node_pool, subject.node_pool),
        )
        return all(pattern is None or fnmatchcase(name, pattern) for pattern, name in wanted)

    def changes(self) -> dict[str, Any]:
        """What it replaces."""
        names = set(Override.model_fields)
        return {name: getattr(self, name) for name in self.model_fields_set - names if getattr(self, name) is not None}


class RuleSettings(Section):
    """What all rules share."""

    kind: ClassVar[Kind]
    default_severity: ClassVar[Severity] = "warning"

    name: RuleName | None = None
    """Stable: what the rule remembers is kept under it. Needed where several rules are of one kind."""
    scope: Scope = Scope()
    severity: Severity | None = None
    receivers: tuple[Name, ...] | None = None
    """Names of receivers; all where not given."""
    time_zone: ZoneName | None = None
    quiet_hours: QuietHoursSettings | None = None
    repeat_hours: Annotated[int, Field(ge=0, le=720)] | None = None
    """Said again after so many hours while it fires; 0: never."""
    for_hours: Hours = 1
    keep_firing_hours: Annotated[int, Field(ge=0, le=168)] = 0

    @property
    def effective_severity(self) -> Severity:
        """How urgent it is."""
        return self.severity or self.default_severity

    @property
    def max_for_hours(self) -> int:
        """The longest patience of the rule and its overrides, in hours."""
        return max(self.for_hours, *(int(one.changes().get("for_hours", 1)) for one in self._overrides()), 1)

    def for_subject(self, subject: Subject) -> Self:
        """The rule with a subject's own thresholds: the first override that applies."""
        override = next((one for one in self._overrides() if one.matches(subject)), None)
        return self if override is None else self.model_copy(update=override.changes())

    def covers(self, subject: Subject) -> bool:
        """Whether a subject is in the rule's scope, as far as it says."""
        checks = (
            (subject.business_unit, self.scope.has_unit),
            (subject.cluster, self.scope.has_cluster),
            (subject.namespace, self.scope.has_namespace),
            (subject.node_pool, self.scope.has_node_pool),
        )
        return all(not name or is_in(name) for name, is_in in checks)

    def _overrides(self) -> tuple[Override, ...]:
        found: tuple[Override, ...] = getattr(self, "overrides", ())
        return found


class WasteOverride(Override):
    """Other thresholds of a waste rule."""

    waste_usd_per_hour: Positive | None = None
    waste_percent: Percent | None = None
    for_hours: Hours | None = None


class WasteRule(RuleSettings):
    """Fires when a unit wastes at least so much money, and so much of what it holds, for so many hours on end."""

    kind = "waste"

    rule: Literal["waste"]
    waste_usd_per_hour: Positive
    waste_percent: Percent
    across_clusters: bool = False
    """A unit's clusters together, in hours that all of them know; otherwise each cluster for itself."""
    overrides: tuple[WasteOverride, ...] = ()


class IdleOverride(Override):
    """Other thresholds of an idle-workload rule."""

    gpus: Positive | None = None
    utilization_percent: Percent | None = None
    for_hours: Hours | None = None


class IdleWorkloadRule(RuleSettings):
    """Fires when a workload holds so many GPUs at less than so much utilization."""

    kind = "idle-workload"
    default_severity = "info"

    rule: Literal["idle-workload"]
    gpus: Positive = Decimal(1)
    utilization_percent: Percent = Decimal(10)
    overrides: tuple[IdleOverride, ...] = ()


class UnallocatedOverride(Override):
    """Other thresholds of an unallocated rule."""

    usd_per_hour: Positive | None = None
    for_hours: Hours | None = None


class UnallocatedRule(RuleSettings):
    """Fires when nobody holds so much paid capacity of a node pool."""

    kind = "unallocated"

    rule: Literal["unallocated"]
    usd_per_hour: Positive
    overrides: tuple[UnallocatedOverride, ...] = ()


class BudgetOverride(Override):
    """Another budget."""

    monthly_usd: Positive | None = None
    quarterly_usd: Positive | None = None

    def changes(self) -> dict[str, Any]:
        """What it replaces; a month of its own is not followed by everybody's quarter."""
        return ({} if self.monthly_usd is None else {"quarterly_usd": None}) | super().changes()


class BudgetRule(RuleSettings):
    """Fires when a unit's month, or its projection, passes parts of a budget."""

    kind = "budget"

    rule: Literal["budget"]
    monthly_usd: Positive
    quarterly_usd: Positive | None = None
    """Of forecasts of a quarter; three months' where there is none. Alerts are about months."""
    percents: Annotated[tuple[Annotated[Decimal, Field(gt=0, le=1000)], ...], Field(min_length=1, max_length=10)] = (
        Decimal(50),
        Decimal(80),
        Decimal(100),
    )
    projection: bool = True
    overrides: tuple[BudgetOverride, ...] = ()


class SpendOverride(Override):
    """Other thresholds of a spend-change rule."""

    percent: Annotated[Decimal, Field(gt=0, le=100_000)] | None = None
    usd: Positive | None = None


class SpendChangeRule(RuleSettings):
    """Fires when a unit's day differs from the same hours of the last weeks."""

    kind = "spend-change"

    rule: Literal["spend-change"]
    percent: Annotated[Decimal, Field(gt=0, le=100_000)]
    usd: Positive
    weeks: Annotated[int, Field(ge=2, le=8)] = 4
    overrides: tuple[SpendOverride, ...] = ()


class DataRule(RuleSettings):
    """Fires when figures cannot be trusted, or the service itself is in trouble."""

    kind = "data"
    default_severity = "critical"

    rule: Literal["data"]
    overdue_hours: Annotated[int, Field(ge=1, le=720)] | None = 2
    """So many hours of a cluster are missing or incomplete that should not be."""
    coverage: Annotated[Decimal, Field(gt=0, le=1)] | None = None
    """The newest published hour saw less of its scrapes."""
    price_age_hours: Annotated[int, Field(ge=1, le=8760)] | None = None
    """The newest fetched price is older."""
    dead_letters: bool = True
    invalid_settings: bool = True
    suspect_samples: bool = True
    """An hour published since the tick before has samples that contradict each other or reason."""


class DigestRule(RuleSettings):
    """Tells each business unit regularly what its GPUs cost and wasted, and what to do."""

    kind = "digest"
    default_severity = "info"

    rule: Literal["digest"]
    every: Literal["week", "month"] = "week"
    """A week from Monday to Sunday, or a calendar month, UTC; told after it ended."""
    at: ClockTime = "08:00"
    """Not before, in the rule's time zone, on the first day after the period."""


class ExternalRule(RuleSettings):
    """Passes on what AMP's alerting rules say: node pools near their limit, quotas, failed provisioning."""

    kind = "external"

    rule: Literal["external"]

    def covers(self, subject: Subject) -> bool:
        """As for other rules, but what the alert does not name is outside of a scope that names it."""
        scope = self.scope
        wanted = (
            (scope.business_units, subject.business_unit),
            (scope.clusters, subject.cluster),
            (scope.namespaces, subject.namespace),
            (scope.node_pools, subject.node_pool),
        )
        return super().covers(subject) and all(name or not patterns for patterns, name in wanted)


Rule = Annotated[
    WasteRule
    | IdleWorkloadRule
    | UnallocatedRule
    | BudgetRule
    | SpendChangeRule
    | DataRule
    | DigestRule
    | ExternalRule,
    Field(discriminator="rule"),
]
RULE_KINDS = (
    "waste", "idle-workload", "unallocated", "budget", "spend-change", "data", "digest", "external",
)  # fmt: skip


def _matches(patterns: Iterable[str], name: str) -> bool:
    patterns = tuple(patterns)
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
