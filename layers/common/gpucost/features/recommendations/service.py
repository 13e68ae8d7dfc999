"""The advise function's job: look back over each cluster's hours, advise, and carry on the life of what was advised.

Running again with the same hours changes no figure and opens nothing twice. A cluster that fails does not hold up the
others; clusters are taken in the order in which they were reviewed last, so that none is starved where time is short.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

from gpucost.core.errors import ConflictError, InvalidInputError, SettingsMissingError, SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.features.recommendations.daily_cache import DailyCache
from gpucost.features.recommendations.history import LookBack, PoolHistory, PoolKey, Wait, WorkloadHistory, WorkloadKey
from gpucost.features.recommendations.lifecycle import update_recommendations
from gpucost.features.recommendations.look_back import LOOK_BACK, read_look_back
from gpucost.features.recommendations.model import RecommendationContent, Review
from gpucost.features.recommendations.ports import DisruptionReaders, LedgerHours, RecommendationStore
from gpucost.features.recommendations.price_lists import (
    NodePrices,
    PriceLists,
    node_list_prices,
    node_spot_prices,
    reserved_prices,
)
from gpucost.features.recommendations.review import review_cluster
from gpucost.features.recommendations.rules.coverage import committed_hours, uncovered_nodes
from gpucost.features.recommendations.rules.rightsizing import IDLE
from gpucost.features.recommendations.verification import SubjectHour
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.messages import RecommendationsDue
from gpucost.runtime.observability import logger
from gpucost.settings import ClusterSettings, Settings
from gpucost.storage.ports import Clock, SettingsStore

METRICS_SECONDS = 240.0
"""For all queries of one cluster, which shares the run's time with the others."""
LEAST_METRICS_SECONDS = 10.0
SPARE_SECONDS = 240.0
"""No further cluster is begun with less time left: 30 days of 10,000 pods take about four minutes."""
_DAY, _WEEK = 24, 168
_MOVED = 6
"""Hours without anything after which advice could count as applied: what holds it elsewhere must be known by then."""
_NEVER = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class ReviewResult:
    """What a run did."""

    reviewed: list[Review] = field(default_factory=list)
    changed: int = 0
    """Recommendations that were written."""
    failures: list[str] = field(default_factory=list)
    clusters_left: int = 0


class RecommendationService:
    """Reviews clusters.

    Args:
        settings_store: names the clusters.
        ledger: the hours.
        store: recommendations.
        prices: the price book.
        memory: of GPUs, by pod and day.
        waiting: pods that waited for GPUs, by day.
        disruption: what Karpenter says of nodes that it could have let go.
        time_zone: the name of the time zone in which schedules are recommended.
        clock: the time now.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: LedgerHours,
        store: RecommendationStore,
        prices: PriceLists,
        memory: DailyCache[dict[tuple[str, str], float]],
        waiting: DailyCache[list[Wait]],
        disruption: DisruptionReaders,
        *,
        clock: Clock,
        time_zone: Callable[[], str] = lambda: "UTC",
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._store = store
        self._prices = prices
        self._memory = memory
        self._waiting = waiting
        self._disruption = disruption
        self._clock = clock
        self._time_zone = time_zone

    def review_clusters(self, due: RecommendationsDue, seconds_left: Callable[[], float]) -> ReviewResult | None:
        """Review the cluster asked for, or all as long as there is time.

        Returns:
            None where no settings have been pushed yet.

        Raises:
            InvalidInputError: a cluster that the settings do not know.
        """
        try:
            settings = self._settings_store.current().settings
        except SettingsMissingError:
            return None
        by_name = {cluster.name: cluster for cluster in settings.clusters}
        names = list(by_name)
        if due.cluster is not None and due.cluster not in names:
            raise InvalidInputError(f"cluster {due.cluster!r} is not in the settings; there are: {', '.join(names)}")
        result = ReviewResult()
        end = floor_hour(due.scheduled_time)

        @cache
        def prices() -> NodePrices:
            """Of every region, and as much for one cluster as for hundreds: read once."""
            return NodePrices(node_list_prices(self._prices), node_spot_prices(self._prices, end - LOOK_BACK, end))

        work = self._oldest_first(names if due.cluster is None else [due.cluster])
        for index, name in enumerate(work):
            if index and seconds_left() < SPARE_SECONDS:
                result.clusters_left = len(work) - index
                break
            try:
                self._review(settings, by_name[name], end, prices(), result, seconds_left)
            except (ConflictError, SourceError) as error:
                result.failures.append(f"{name}: {error}")
        return result

    def _oldest_first(self, names: Sequence[str]) -> list[str]:
        if len(names) == 1:
            return list(names)
        known = {name: self._store.review(name) for name in names}
        last = {name: found.reviewed_at if found else _NEVER for name, found in known.items()}
        return sorted(names, key=lambda name: (last[name], name))

    def _review(
        self,
        settings: Settings,
        cluster: ClusterSettings,
        end: datetime,
        prices: NodePrices,
        result: ReviewResult,
        seconds_left: Callable[[], float],
    ) -> None:
        now = self._clock().replace(microsecond=0)
        if self._ledger.latest(cluster.name) is None:
            return
        deadline = _deadline(seconds_left)
        try:
            disruption = self._disruption(cluster, deadline).week(end)
        except SourceError as error:
            logger.warning("metrics do not tell", what="Karpenter", cluster=cluster.name, reason=str(error))
            disruption = None
        waits = self._waiting.days(cluster, end - LOOK_BACK, end, deadline)
        memory = self._memory.days(cluster, end - LOOK_BACK, end, deadline)  # last, because it is the slowest
        look_back = read_look_back(
            self._ledger, cluster.name, end, list_prices=prices.listed, spot_prices=prices.spot,
            memory=memory, waits=waits,
        )  # fmt: skip
        if not any(look_back.has_figures):
            return
        if look_back.currencies == {"USD"}:
            look_back.reserved_prices.update(reserved_prices(settings, look_back, end))
        look_back.time_zone = _zone(self._time_zone())
        if disruption is not None:
            look_back.disruption = disruption
        known = self._store.recommendations(cluster.name)
        since = {
            one.id: (one.applied_at - look_back.start) // HOUR
            for one in known
            if one.applied_at is not None and one.applied_at > look_back.start
        }
        found = review_cluster(look_back, now, since)
        advice, standings = {one.id: one for one in found.recommendations}, {one.subject: one.reason for one in found.assessments}
        if len(look_back.currencies) > 1:
            why = f"hours of the look-back are in {' and '.join(sorted(look_back.currencies))}, which are never added up"
            standings = {one.content.subject: why for one in known}
        for one in update_recommendations(known, advice, _Subjects(look_back), now, standings):
            self._store.put(one)
            result.changed += 1
        self._store.put_review(found)
        result.reviewed.append(found)


@dataclass(frozen=True, slots=True)
class _Subjects:
    """Fulfils `life.Subjects`."""

    look_back: LookBack

    @property
    def start(self) -> datetime:
        return self.look_back.start

    def gpus(self, advice: RecommendationContent) -> list[float | None] | None:
        if advice.kind == "commitment":
            return uncovered_nodes(self.look_back, advice)
        held = self._of(advice, "held", "nodes")
        if held is None or not any(held) or (not any(held[-_MOVED:]) and self._is_elsewhere(advice)):
            return None
        if advice.kind == "off-hours":
            return self._weekly(held)
        if advice.kind == "spot":
            return self._known(self._of(advice, "off_spot", "nodes") or held) if any(held[-_DAY:]) else None
        return self._known(held)

    def _is_elsewhere(self, advice: RecommendationContent) -> bool:
        """Whether the very object goes on under another business unit, or as idle on another GPU model or resource."""
        subject, newest = advice.subject, range(max(0, self.look_back.hours - _MOVED), self.look_back.hours)
        return subject.is_workload and any(
            key[1:4] == (subject.namespace, subject.workload_kind, subject.workload)
            and any(one.held[-_MOVED:])
            and (
                key.business_unit != subject.business_unit
                or all(one.used[index] < IDLE * one.held[index] for index in newest if one.held[index])
            )
            for key, one in self.look_back.workloads.items()
        )

    def _weekly(self, held: Sequence[float]) -> list[float | None]:
        """The mean of the week that ends with each hour: what stops at night holds less of a week, not of an hour."""
        found: list[float | None] = []
        week: deque[float] = deque(maxlen=_WEEK)
        for value, known in zip(held, self.look_back.has_figures, strict=True):
            if known:
                week.append(value)
            found.append(sum(week) / _WEEK if known and len(week) == _WEEK else None)
        return found

    def hours(self, advice: RecommendationContent) -> list[SubjectHour | None]:
        """Without a cost where a part has no price, or where the look-back has several currencies."""
        one_currency = self.look_back.currencies <= {advice.currency}
        if advice.kind == "commitment" and one_currency:
            return committed_hours(self.look_back, advice)
        if advice.subject.is_workload:
            found = [self._workload_hours(one) for key, one in self.look_back.workloads.items() if _is_of(key, advice)]
        else:
            found = [
                self._pool_hours(one, by_gpus=advice.kind == "consolidate")
                for key, one in self.look_back.pools.items()
                if key == _pool_of(advice)
            ]
        hours: list[SubjectHour | None] = []
        for index, known in enumerate(self.look_back.has_figures):
            own = [one[index] for one in found]
            usd = [one.usd for one in own if one.usd is not None]
            is_priced = one_currency and len(usd) == len(own)
            hours.append(
                SubjectHour(
                    sum(one.held for one in own), sum(usd) if is_priced else None, sum(one.work for one in own),
                    sum(one.used for one in own),
                ) if known else None
            )  # fmt: skip
        return hours

    def _workload_hours(self, one: WorkloadHistory) -> list[SubjectHour]:
        columns = zip(one.held, one.usd, one.unpriced, one.pods, one.used, strict=True)
        return [SubjectHour(held, None if gap else usd, pods, used) for held, usd, gap, pods, used in columns]

    def _pool_hours(self, one: PoolHistory, *, by_gpus: bool) -> list[SubjectHour]:
        columns = zip(one.nodes, one.cost, one.unpriced, one.pods, strict=True)
        return [
            SubjectHour(nodes, None if gap else usd, sum((size if by_gpus else 1) * count for size, count in pods), 0.0)
            for nodes, usd, gap, pods in columns
        ]

    def _of(self, advice: RecommendationContent, of_workload: str, of_pool: str) -> Sequence[float] | None:
        subject = advice.subject
        if subject.is_workload:
            # A workload that took a slice requests another resource.
            own = [getattr(one, of_workload) for key, one in self.look_back.workloads.items() if _is_of(key, advice)]
        else:
            own = [getattr(one, of_pool) for key, one in self.look_back.pools.items() if key == _pool_of(advice)]
        return [sum(hour) for hour in zip(*own, strict=True)] if own else None

    def _known(self, values: Sequence[float]) -> list[float | None]:
        return [value if known else None for value, known in zip(values, self.look_back.has_figures, strict=True)]


def _deadline(seconds_left: Callable[[], float]) -> Deadline:
    """For a cluster's queries: slow ones must not take the time of the review, nor of other clusters."""
    return Deadline(max(LEAST_METRICS_SECONDS, min(METRICS_SECONDS, seconds_left() - SPARE_SECONDS)))


def _zone(name: str) -> ZoneInfo | None:
    """A time zone; None for UTC, and where this machine does not know it."""
    if name == "UTC":
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        logger.warning("a time zone is not known here; UTC is taken", time_zone=name)
        return None


def _pool_of(advice: RecommendationContent) -> PoolKey:
    subject = advice.subject
    return PoolKey(subject.node_pool, subject.instance_type, subject.capacity_type, subject.gpu_model)


def _is_of(key: WorkloadKey, advice: RecommendationContent) -> bool:
    subject = advice.subject
    same = key[:4] == (subject.business_unit, subject.namespace, subject.workload_kind, subject.workload)
    return same and (key[4:] == (subject.resource, subject.gpu_model) or advice.kind == "mig-slice")
