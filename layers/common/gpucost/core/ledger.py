"""The ledger's records of a cluster-hour and of a day's sums, a cluster's limits, and which hours are due."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from operator import attrgetter, itemgetter
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from gpucost.core.amounts import Costs, Totals
from gpucost.core.costs_by_key import CostsByKey, sum_by_key
from gpucost.core.hour_record import Coverage, HourRecord, Line, Status
from gpucost.core.hours import HOUR, floor_day, floor_hour, hours_between

# The ledger's records of a cluster-hour, and which hours are due.

K = TypeVar("K")


class Retention(Struct, frozen=True):
    """How long records are kept after they are written; each level is kept at least as long as the one before it.

    `lines`: pods, nodes and the usage from which hours are rated again. `hours`: the sums of hours by business unit and
    namespace. `days`: the sums and facts of days, and the manifests of hours.
    """

    lines: timedelta = timedelta(days=400)
    hours: timedelta = timedelta(days=5 * 366)
    days: timedelta = timedelta(days=5 * 366)


DEFAULT_RETENTION = Retention()
MAX_RETRY_DOUBLINGS = 12
"""How often the delay between attempts doubles: to 170 days, which is longer than any look-back."""
MIN_RETENTION = timedelta(days=35)
"""The shortest retention that settings may choose for any level."""


class ClosedMonth(Struct, frozen=True):
    """A UTC month closed for chargeback: its figures stay, and later changes are recorded as adjustments."""

    month: str
    """As `2026-10`."""
    closed_at: datetime
    author: str
    reason: str


class Manifest(Struct, frozen=True):
    """Names the current version of a cluster-hour; readers follow it, so they never see a partly written hour."""

    cluster: str
    hour: datetime
    status: Status
    version: int
    """The number of times that this hour was published, from 1."""
    run_id: str
    """Names the items of this version."""
    settings_version: int
    coverage: Coverage | None
    attempts: int
    """The attempts so far that ended incomplete."""
    next_attempt_at: datetime | None
    """When an incomplete hour is retried; None for other hours, and for hours that are not retried any more."""
    published_at: datetime
    notes: tuple[str, ...] = ()
    usage_id: str = ""
    """Names the stored usage from which the figures were rated; "" where none is kept."""
    currency: str = "USD"
    is_adjustment: bool = False
    """Whether the version is an adjustment: the hour's month is closed, so that the current version stays."""
    is_backfilled: bool = False
    """Whether a backfill requested the hour first. The schedule starts with the first hour that was not backfilled."""
    summary_expires_at: datetime | None = None
    """When the hour's summary expires; None for an incomplete hour."""

    @property
    def content_digest(self) -> str:
        """The digest of the content: versions with equal digests have equal content."""
        return digest_in_run_id(self.run_id)

    def is_abandoned(self) -> bool:
        """Whether the hour stays incomplete: the schedule does not retry it, only a backfill does."""
        return self.status == "incomplete" and self.next_attempt_at is None


class Restatement(Struct, frozen=True):
    """A new version of an hour that had figures before: what changed, and why."""

    cluster: str
    hour: datetime
    version: int
    restated_at: datetime
    settings_version: int
    reason: str
    before: Totals | None
    """None where an hour of a closed month had no figures."""
    after: Totals
    changed_units: Mapping[str, tuple[Costs, Costs]]
    """The costs before and after, for each business unit whose costs changed."""
    currency: str = "USD"
    """The currency of `after`."""
    currency_before: str = "USD"
    is_adjustment: bool = False
    """Whether it is an adjustment of a closed month, which no other figure includes."""


def changed_business_units(before: CostsByKey[tuple[str, str]], record: HourRecord) -> dict[str, tuple[Costs, Costs]]:
    """Return the costs before and after of each business unit whose costs a new version changes.

    Args:
        before: by (business unit, namespace), from the summary of the current version.
        record: the new version.
    """
    previous_costs, current_costs = before.group_by(itemgetter(0)), record.by_business_unit()
    return {
        unit: (previous_costs.get(unit, Costs()), current_costs.get(unit, Costs()))
        for unit in sorted(previous_costs.keys() | current_costs.keys())
        if previous_costs.get(unit) != current_costs.get(unit)
    }


class CostSummary(Struct, Generic[K], frozen=True):
    """The sums of one cluster's hour or UTC day, as reports and alerts read them."""

    cluster: str
    start: datetime
    manifests: tuple[Manifest, ...]
    """The published hours that it sums, in order, including incomplete ones."""
    totals: Totals | None
    """None if no hour has figures. The capacity is None if that of any hour is."""
    costs: CostsByKey[K]

    @property
    def manifest(self) -> Manifest:
        """The manifest of an hour's summary, which has only this one."""
        return self.manifests[0]

    @property
    def currencies(self) -> set[str]:
        """The currencies of the hours that are not incomplete."""
        return {manifest.currency for manifest in self.manifests if manifest.status != "incomplete"}


HourSummary = CostSummary[tuple[str, str]]
"""An hour, summed by (business unit, namespace)."""
DaySummary = CostSummary[str]
"""A UTC day, summed by business unit over the hours that have figures."""


def digest_in_run_id(run_id: str) -> str:
    """Return the content digest that a run id contains."""
    return run_id.split("-")[1]


def content_digest(record: HourRecord) -> str:
    """Return the digest of everything that a version publishes."""
    content = (record.status, record.coverage, record.totals, record.lines, record.notes)
    nodes_and_charges = (record.nodes, record.charges, record.currency)
    models = (record.models,) if record.models else ()
    return hashlib.sha256(repr(content + nodes_and_charges + models).encode()).hexdigest()[:16]


def next_attempt(attempts: int, now: datetime, until: datetime | None = None) -> datetime | None:
    """Return when to retry an incomplete hour: 1, 2, 4, 8 … hours after the hour of the latest attempt.

    The delay counts from the full hour, so that the hour is due at the schedule's next run, a few minutes later.

    Args:
        attempts: the number of attempts so far.
        now: the time of the latest attempt.
        until: the end of the look-back, at which the last attempt is made; None for no end.

    Returns:
        None from `until` on: the hour stays incomplete.
    """
    if until is not None and now >= until:
        return None
    retry_at = floor_hour(now) + timedelta(hours=2 ** min(attempts - 1, MAX_RETRY_DOUBLINGS))
    return retry_at if until is None else min(retry_at, until)


def due_hours(manifests: Iterable[Manifest], since: datetime, newest: datetime, now: datetime) -> list[datetime]:
    """Return the hours of one cluster that are due, oldest first.

    Due are hours without a record, including the one that just ended, and incomplete hours whose next attempt is due.

    Args:
        manifests: the cluster's manifests; at least those of `[since, newest]`.
        since: the first hour that the schedule attributes.
        newest: start of the hour that just ended.
        now: the schedule's time.
    """
    by_hour = {manifest.hour: manifest for manifest in manifests}
    missing = set(hours_between(since, newest + HOUR)) - by_hour.keys()
    return sorted(missing.union(hours_to_retry(by_hour.values(), now)))


def hours_to_retry(manifests: Iterable[Manifest], now: datetime) -> list[datetime]:
    """Return the incomplete hours whose next attempt is due, in the order of the manifests."""
    return [
        manifest.hour
        for manifest in manifests
        if manifest.next_attempt_at is not None and manifest.next_attempt_at <= now
    ]


# Rollups: stored sums of a day's hours, by business unit and by all dimensions of a line.
#
# A rollup names the versions of the hours that it sums. A reader compares them with the current manifests, hour by
# hour, and sums again where they differ. No reader relies on a rollup being up to date.


class FactKey(NamedTuple):
    """The dimensions by which a day's lines are summed."""

    business_unit: str
    namespace: str
    workload_kind: str
    workload: str
    node_pool: str
    instance_type: str
    capacity_type: str
    gpu_model: str
    resource: str
    zone: str
    labels: tuple[tuple[str, str], ...]
    """The pods' labels that the settings list in `cost_labels`, in order of name."""


_fields_but_labels: Callable[[Line], tuple[str, ...]] = attrgetter(*FactKey._fields[:-1])


def days_with_hours(hours: Iterable[datetime]) -> list[datetime]:
    """Return the UTC days of some hours, in order."""
    return sorted({floor_day(hour) for hour in hours})


def costs_by_unit(summary: HourSummary) -> CostsByKey[str]:
    """Sum an hour's costs by business unit."""
    return summary.costs.group_by(itemgetter(0))


def sum_day(cluster: str, day: datetime, summaries: Sequence[HourSummary]) -> DaySummary:
    """Sum a day from the summaries of its hours."""
    manifests = tuple(summary.manifest for summary in summaries)
    totals = Totals.total(summary.totals for summary in summaries if summary.totals is not None)
    units = sum_by_key((unit, costs) for summary in summaries for (unit, _), costs in summary.costs.items())
    return DaySummary(cluster, day, manifests, totals, units.select(sorted(units)))


def sum_lines(lines: Iterable[Line]) -> CostsByKey[FactKey]:
    """Sum lines by all their dimensions."""
    return sum_by_key((_fact_key(line), line.costs()) for line in lines)


def merge_facts(parts: Iterable[Mapping[FactKey, Costs]]) -> CostsByKey[FactKey]:
    """Add up the facts of several hours, in order of their keys."""
    facts = sum_by_key(fact for part in parts for fact in part.items())
    return facts.select(sorted(facts))


def _fact_key(line: Line) -> FactKey:
    return FactKey._make((*_fields_but_labels(line), tuple(sorted(line.labels.items()))))


# A cluster's limits: those of Karpenter's node pools, and the resource quotas of namespaces.
#
# They are recorded at the end of each hour. The hour's figures never depend on them.


class PoolLimit(Struct, frozen=True):
    """The limit of one node pool for one resource, in units of the resource."""

    node_pool: str
    resource: str
    """As Kubernetes names it: `nvidia.com/gpu`."""
    used: Decimal | None
    """The sum over the pool's nodes, allocated or not; None where Karpenter does not report it."""
    limit: Decimal | None
    """None where the pool has no limit."""


class Quota(Struct, frozen=True):
    """One resource of one ResourceQuota, in units of the resource."""

    namespace: str
    name: str
    resource: str
    """As Kubernetes names it, without `requests.`: `nvidia.com/gpu`."""
    hard: Decimal | None
    used: Decimal | None
    """What pods of the namespace request at that time, as the quota counts it, including pending pods."""


class Limits(Struct, frozen=True):
    """The limits and quotas at the end of one cluster-hour."""

    cluster: str
    hour: datetime
    pools: tuple[PoolLimit, ...] = ()
    quotas: tuple[Quota, ...] = ()
