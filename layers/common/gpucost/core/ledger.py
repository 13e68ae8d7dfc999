"""What the ledger keeps of a cluster-hour, and which hours are due for work."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpucost.core.hours import HOUR, floor_hour, hours_between
from gpucost.core.model import Costs, Coverage, HourRecord, Status, Totals


@dataclass(frozen=True, slots=True)
class Retention:
    """How long records are kept, by level, from when they are written; each level at least as long as the one before.

    `lines` are pods, nodes and the usage that hours are rated again from; `hours` an hour's sums by business unit and
    namespace, and a unit's hours; `days` sums and facts of days, and which version of each hour is in force.
    """

    lines: timedelta = timedelta(days=400)
    hours: timedelta = timedelta(days=5 * 366)
    days: timedelta = timedelta(days=5 * 366)


DEFAULT_RETENTION = Retention()
MAX_DOUBLINGS = 12
"""Of the distance between attempts: 170 days, longer than any look-back."""
MIN_RETENTION = timedelta(days=35)
"""Of any level, as far as settings may go."""


@dataclass(frozen=True, slots=True)
class ClosedMonth:
    """A UTC month closed for chargeback: its figures stay, and what would change them is recorded beside them."""

    month: str
    """As `2026-10`."""
    closed_at: datetime
    author: str
    reason: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which version of a cluster-hour is in force: readers follow it, so they never see half an hour."""

    cluster: str
    hour: datetime
    status: Status
    version: int
    """Counts the publications of this hour, from 1."""
    run_id: str
    """Names the items of this version."""
    settings_version: int
    coverage: Coverage | None
    attempts: int
    """Tries so far that ended incomplete."""
    next_attempt_at: datetime | None
    """When an incomplete hour is to be tried again; None for the others, and for those that were given up."""
    published_at: datetime
    notes: tuple[str, ...] = ()
    usage_id: str = ""
    """Names the stored usage that its figures were rated from; "" where none is kept."""
    currency: str = "USD"
    is_adjustment: bool = False
    """Whether the version is recorded beside the one in force, because the hour's month is frozen."""
    backfilled: bool = False
    """Whether a backfill asked for the hour first: the schedule owes nothing before the first hour of its own."""
    figures_until: datetime | None = None
    """When its summary expires; None for an incomplete one."""

    @property
    def digest(self) -> str:
        """Of the content alone: two versions with the same one say the same."""
        return digest_of_run(self.run_id)

    def is_abandoned(self) -> bool:
        """Whether the hour is closed as incomplete: only a backfill tries it again."""
        return self.status == "incomplete" and self.next_attempt_at is None


@dataclass(frozen=True, slots=True)
class Restatement:
    """A version of an hour that replaced figures: what changed, and why."""

    cluster: str
    hour: datetime
    version: int
    restated_at: datetime
    settings_version: int
    reason: str
    before: Totals | None
    """None where a frozen hour had no figures."""
    after: Totals
    units: Mapping[str, tuple[Costs, Costs]]
    """Before and after, of each business unit whose costs changed."""
    currency: str = "USD"
    """Of what is after."""
    currency_before: str = "USD"
    is_adjustment: bool = False
    """Whether it is recorded beside a frozen month, and in no other figure."""


def changed_business_units(before: Mapping[tuple[str, str], Costs], record: HourRecord) -> dict[str, tuple[Costs, Costs]]:
    """Before and after of the business units whose costs a new version changes.

    Args:
        before: by (business unit, namespace), as the summary of the version in force has it.
        record: the new version.
    """
    units: dict[str, list[Costs]] = {}
    for (unit, _), costs in before.items():
        units.setdefault(unit, []).append(costs)
    old = {unit: Costs.total(parts) for unit, parts in units.items()}
    new = record.by_business_unit()
    return {
        unit: (old.get(unit, Costs()), new.get(unit, Costs()))
        for unit in sorted(old.keys() | new.keys())
        if old.get(unit) != new.get(unit)
    }


@dataclass(frozen=True, slots=True)
class HourSummary:
    """One published cluster-hour, summed by business unit and namespace: what reports and alerts read."""

    cluster: str
    hour: datetime
    status: Status
    version: int
    coverage: Coverage | None
    totals: Totals | None
    groups: Mapping[tuple[str, str], Costs]
    """By (business unit, namespace); empty for an incomplete hour."""
    currency: str = "USD"


def summarize(record: HourRecord, version: int) -> HourSummary:
    """The summary of a record as it is published under a version."""
    return HourSummary(
        record.cluster, record.hour, record.status, version, record.coverage, record.totals, record.by_namespace()
    )


def digest_of_run(run_id: str) -> str:
    """The digest in a run's id; empty where there is no run."""
    return run_id.split("-")[1]


def content_digest(record: HourRecord) -> str:
    """Of all that a version says."""
    content = (record.status, record.coverage, record.totals, record.lines, record.notes)
    more = (record.nodes, record.charges, record.currency)
    return hashlib.sha256(repr(content + more).encode()).hexdigest()[:16]


def next_attempt(attempts: int, now: datetime, last: datetime | None = None) -> datetime | None:
    """When to try an incomplete hour again: 1, 2, 4, 8 … hours after the hour in which the try was made.

    Counted from the full hour, so that the schedule's next tick, a few minutes past, finds it due.

    Args:
        attempts: tries so far.
        now: when the newest of them was made.
        last: the end of the look-back: tried once more then, whatever the distance; None for no end.

    Returns:
        None once `last` has come: the hour stays as it is.
    """
    if last is not None and now >= last:
        return None
    again = floor_hour(now) + timedelta(hours=2 ** min(attempts - 1, MAX_DOUBLINGS))
    return again if last is None else min(again, last)


def due_hours(known: Iterable[Manifest], since: datetime, newest: datetime, now: datetime) -> list[datetime]:
    """Which hours of one cluster are to be attributed now, oldest first.

    Hours without a record, the one just closed among them; incomplete ones whose next attempt has come.

    Args:
        known: the cluster's manifests; at least those of `[since, newest]`.
        since: the first hour that the schedule owes.
        newest: start of the hour just closed.
        now: the schedule's time.
    """
    manifests = {manifest.hour: manifest for manifest in known}
    missing = set(hours_between(since, newest + HOUR)) - manifests.keys()
    return sorted(missing.union(hours_to_retry(manifests.values(), now)))


def hours_to_retry(manifests: Iterable[Manifest], now: datetime) -> list[datetime]:
    """Incomplete hours whose next attempt has come, in the manifests' order."""
    return [one.hour for one in manifests if one.next_attempt_at is not None and one.next_attempt_at <= now]
