"""The service of the recommend function: review each cluster's hours and update its recommendations.

A second run with the same hours changes no figure and opens nothing twice. A cluster that fails does not delay the
others. The cluster with the oldest review comes first, so that every cluster gets its turn if time is short.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from gpucost.core.errors import ConflictError, InvalidInputError, SettingsMissingError, SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.features.recommendations.daily_cache import DailyMetricsCache
from gpucost.features.recommendations.history import LookBack, PodLatency, PodWait, SpotPrice
from gpucost.features.recommendations.kinds import KINDS_BY_NAME
from gpucost.features.recommendations.lifecycle import update_recommendations
from gpucost.features.recommendations.model import RecommendationContent, Review
from gpucost.features.recommendations.ports import DisruptionReaders, RecommendationStore
from gpucost.features.recommendations.price_lists import (
    NodePrices,
    PriceBookReader,
    built_in_list_prices,
    node_list_prices,
    node_spot_prices,
    reserved_prices,
)
from gpucost.features.recommendations.review import review_cluster
from gpucost.features.recommendations.subject_hours import SubjectHour
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.messages import RecommendationsDue
from gpucost.runtime.observability import logger
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost.settings.inference import InferenceSettings
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Clock, SettingsStore

METRICS_SECONDS = 240.0
"""For all queries of one cluster, because clusters share the time of the run."""
MIN_METRICS_SECONDS = 10.0
SPARE_SECONDS = 240.0
"""With less time left, no further cluster is started: 30 days of 10,000 pods take about four minutes."""
_NEVER = datetime(1, 1, 1, tzinfo=UTC)


LOOK_BACK = timedelta(days=30)
MAX_WORKLOADS = 20_000
"""Per cluster; each needs 43 KB for 30 days. Beyond it, those that ended longest ago are dropped."""


def read_look_back(
    ledger: Ledger,
    cluster: str,
    end: datetime,
    *,
    list_prices: Mapping[str, float],
    spot_prices: Mapping[str, SpotPrice],
    memory: Mapping[datetime, Mapping[tuple[str, str], float]],
    waits: Mapping[datetime, Sequence[PodWait]],
    latencies: Mapping[datetime, Sequence[PodLatency]] | None = None,
    length: timedelta = LOOK_BACK,
    max_workloads: int = MAX_WORKLOADS,
) -> LookBack:
    """Read the hours before `end` from the ledger.

    Args:
        ledger: reads the hours.
        cluster: the cluster's name.
        end: a full hour, exclusive.
        list_prices: USD per node-hour by instance type, as far as they are known.
        spot_prices: spot prices of these hours by instance type, as far as they are known.
        memory: GPU memory peaks in bytes by UTC day and pod, as far as they are known.
        waits: pods that waited for GPUs by UTC day, as far as they are known.
        latencies: latency of inference servers' requests by UTC day, as far as it is known.
        length: length of the look-back.
        max_workloads: number of workloads that are kept.

    Raises:
        SourceError: the ledger could not be read.
    """
    start = end - length
    look_back = LookBack(cluster, start, length // HOUR)
    look_back.memory_peaks.update(memory)
    look_back.add_waits(waits)
    look_back.add_latencies(latencies or {})
    dropped = 0
    for manifest in ledger.manifests(cluster, start, end):
        if manifest.status != "incomplete":
            nodes, _ = ledger.nodes_and_charges_of(manifest)
            look_back.add_hour(manifest.hour, ledger.compact_lines_of(manifest), nodes, manifest.currency)
            dropped += look_back.drop_oldest_workloads(max_workloads)
    if dropped:
        logger.warning("dropped the workloads that ended longest ago", cluster=cluster, workloads=dropped)
    if look_back.currencies == {"USD"}:  # AWS lists no other currency
        look_back.list_prices.update(built_in_list_prices(look_back) | {**list_prices})
        look_back.spot_prices.update(spot_prices)
    return look_back


class ReviewResult(Struct):
    """The result of a run."""

    reviewed: list[Review] = field(default_factory=list)
    changed: int = 0
    """Number of recommendations that were written."""
    failures: list[str] = field(default_factory=list)
    clusters_left: int = 0


class ReviewService:
    """Reviews clusters and stores what the reviews recommend.

    Args:
        settings_store: names the clusters.
        ledger: reads the hours.
        store: stores recommendations.
        prices: the price book.
        memory: GPU memory peaks by day and pod.
        waiting: pods that waited for GPUs, by day.
        disruption: reads the nodes that Karpenter could have removed.
        latency: makes the latency of inference servers' requests by pod and day, with the settings of `inference`.
            It is only read where these are enabled.
        time_zone: the name of the time zone of recommended schedules.
        clock: the current time.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: Ledger,
        store: RecommendationStore,
        prices: PriceBookReader,
        memory: DailyMetricsCache[dict[tuple[str, str], float]],
        waiting: DailyMetricsCache[list[PodWait]],
        disruption: DisruptionReaders,
        *,
        clock: Clock,
        latency: Callable[[InferenceSettings], DailyMetricsCache[list[PodLatency]]] | None = None,
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
        self._latency = latency
        self._time_zone = time_zone

    def review_clusters(self, due: RecommendationsDue, seconds_left: Callable[[], float]) -> ReviewResult | None:
        """Review the requested cluster, or all clusters as long as there is time.

        Returns:
            None if no settings have been pushed yet.

        Raises:
            InvalidInputError: the cluster is not in the settings.
        """
        try:
            settings = self._settings_store.current().settings
        except SettingsMissingError:
            return None
        by_name = {cluster.name: cluster for cluster in settings.clusters}
        names = list(by_name)
        if due.cluster is not None and due.cluster not in names:
            raise InvalidInputError(f"cluster {due.cluster!r} is not in the settings; allowed: {', '.join(names)}")
        result = ReviewResult()
        end = floor_hour(due.scheduled_time)

        @cache
        def prices() -> NodePrices:
            """The prices of all regions. They are the same for all clusters, so they are read once."""
            return NodePrices(node_list_prices(self._prices), node_spot_prices(self._prices, end - LOOK_BACK, end))

        queue = self._oldest_first(names if due.cluster is None else [due.cluster])
        for index, name in enumerate(queue):
            if index and seconds_left() < SPARE_SECONDS:
                result.clusters_left = len(queue) - index
                break
            try:
                self._review(settings, by_name[name], end, prices(), result, seconds_left)
            except (ConflictError, SourceError) as error:
                result.failures.append(f"{name}: {error}")
            except Exception as error:  # other clusters must still be reviewed
                logger.exception("a cluster could not be reviewed", cluster=name)
                result.failures.append(f"{name}: {type(error).__name__}: {error}")
        return result

    def _oldest_first(self, names: Sequence[str]) -> list[str]:
        if len(names) == 1:
            return list(names)
        reviews = {name: self._store.review(name) for name in names}
        reviewed_at = {name: review.reviewed_at if review else _NEVER for name, review in reviews.items()}
        return sorted(names, key=lambda name: (reviewed_at[name], name))

    def _review(
        self,
        settings: CoreSettings,
        cluster: ClusterSettings,
        end: datetime,
        prices: NodePrices,
        result: ReviewResult,
        seconds_left: Callable[[], float],
    ) -> None:
        now = self._clock().replace(microsecond=0)
        if self._ledger.newest_published_hour(cluster.name) is None:
            return
        deadline = _deadline(seconds_left)
        try:
            disruption = self._disruption(cluster, deadline).week(end)
        except SourceError as error:
            logger.warning(
                "a metric is not available", metric="Karpenter disruption", cluster=cluster.name, reason=str(error)
            )
            disruption = None
        waits = self._waiting.days(cluster, end - LOOK_BACK, end, deadline)
        latencies = {}
        if settings.inference.enabled and self._latency is not None:
            latencies = self._latency(settings.inference).days(cluster, end - LOOK_BACK, end, deadline)
        memory = self._memory.days(cluster, end - LOOK_BACK, end, deadline)  # last, because it is the slowest
        look_back = read_look_back(
            self._ledger,
            cluster.name,
            end,
            list_prices=prices.on_demand,
            spot_prices=prices.spot,
            memory=memory,
            waits=waits,
            latencies=latencies,
        )
        if not any(look_back.has_figures):
            return
        if look_back.currencies == {"USD"}:
            look_back.reserved_prices.update(reserved_prices(settings, look_back, end))
        inference_rules = settings.inference.rules()
        look_back.is_part_of_server = lambda workload: bool(inference_rules.side_of(workload))
        look_back.time_zone = _load_time_zone(self._time_zone())
        if disruption is not None:
            look_back.disruption = disruption
        stored = self._store.recommendations(cluster.name)
        since = {
            recommendation.id: (recommendation.applied_at - look_back.start) // HOUR
            for recommendation in stored
            if recommendation.applied_at is not None and recommendation.applied_at > look_back.start
        }
        review = review_cluster(look_back, now, since)
        contents = {content.id: content for content in review.recommendations}
        findings = {assessment.subject: assessment.reason for assessment in review.assessments}
        if len(look_back.currencies) > 1:
            reason = (
                f"hours of the look-back are in {' and '.join(sorted(look_back.currencies))}, which cannot be added up"
            )
            findings = {recommendation.content.subject: reason for recommendation in stored}
        for recommendation in update_recommendations(
            stored, contents, _LookBackSubjectHistories(look_back), now, findings
        ):
            self._store.put(recommendation)
            result.changed += 1
        self._store.put_review(review)
        result.reviewed.append(review)


class _LookBackSubjectHistories(Struct, frozen=True):
    """The subjects of recommendations in a look-back."""

    look_back: LookBack

    @property
    def start(self) -> datetime:
        return self.look_back.start

    def hourly_gpus(self, content: RecommendationContent) -> Sequence[float | None] | None:
        return KINDS_BY_NAME[content.kind].hourly_gpus(self.look_back, content)

    def hourly_use_and_cost(self, content: RecommendationContent) -> Sequence[SubjectHour | None]:
        return KINDS_BY_NAME[content.kind].hourly_use_and_cost(self.look_back, content)


def _deadline(seconds_left: Callable[[], float]) -> Deadline:
    """The deadline of a cluster's queries: slow ones must not use up the time of the review or of other clusters."""
    return Deadline(max(MIN_METRICS_SECONDS, min(METRICS_SECONDS, seconds_left() - SPARE_SECONDS)))


def _load_time_zone(name: str) -> ZoneInfo | None:
    """Load a time zone; None for UTC and for an unknown one."""
    if name == "UTC":
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        logger.warning("the time zone is unknown; UTC is used", time_zone=name)
        return None
