"""The service of the recommend function with its price lists and its cache: review each cluster's hours.

A second run with the same hours changes no figure and opens nothing twice. A cluster that fails does not delay the
others. The cluster with the oldest review comes first, so that every cluster gets its turn if time is short.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import cache
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from gpucost.core.errors import ConflictError, InvalidInputError, SettingsMissingError, SourceError
from gpucost.core.hours import DAY, HOUR, floor_day, floor_hour
from gpucost.core.pricing.list_price_table import HOURLY_PRICES
from gpucost.core.pricing.list_prices import list_price_label
from gpucost.core.pricing.prices import Price, PriceSource
from gpucost.features.recommendations.history import LookBack, PodLatency, PodWait, PoolKey, ReservedPrice, SpotPrice
from gpucost.features.recommendations.kinds import KINDS_BY_NAME
from gpucost.features.recommendations.lifecycle import update_recommendations
from gpucost.features.recommendations.measuring import SubjectHour
from gpucost.features.recommendations.model import RecommendationContent, Review
from gpucost.features.recommendations.pools import gpus_per_node
from gpucost.features.recommendations.ports import (
    DisruptionReaders,
    MemoryReaderFactory,
    RecommendationStore,
    WaitingPodsReaderFactory,
)
from gpucost.features.recommendations.review import review_cluster
from gpucost.features.recommendations.sources import latency_reader
from gpucost.features.recommendations.storage import DynamoGpuMemory, DynamoRequestLatency, DynamoWaitingPods
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.messages import RecommendationsDue
from gpucost.runtime.observability import logger
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost.settings.inference import InferenceSettings
from gpucost.settings.pricing import RateSettings
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Clock, SettingsStore
from gpucost.storage.price_book import PricesInForce

# List prices and spot prices of nodes from the price book, in USD, the currency of AWS's price lists.

_FAMILY_PATTERN = re.compile(r"[a-z0-9-]+\.\*")
"""A pattern of instance types that matches all sizes of one family."""


class PriceBookReader(Protocol):
    """Reads the prices that recommendations need from the price book."""

    def newest(self, source: Literal["spot", "on-demand"]) -> list[Price]:
        """The newest prices of a source."""
        ...

    def in_force(
        self, start: datetime, end: datetime, *, sources: Collection[PriceSource] | None = None
    ) -> PricesInForce:
        """The prices that were valid at any time of `[start, end)`."""
        ...


class NodePrices(NamedTuple):
    """Prices of nodes by instance type, in USD per node-hour."""

    on_demand: Mapping[str, float]
    spot: Mapping[str, SpotPrice]


def node_list_prices(price_book: PriceBookReader) -> dict[str, float]:
    """On-demand prices by instance type in USD per node-hour, without types whose price differs by region."""
    prices_by_type: dict[str, set[float]] = {}
    for price in _node_prices_in_usd(price_book.newest("on-demand")):
        if price.valid_to is None:
            prices_by_type.setdefault(price.applies_to["instance_type"], set()).add(float(price.amount))
    return {name: prices.pop() for name, prices in prices_by_type.items() if len(prices) == 1}


def built_in_list_prices(look_back: LookBack) -> dict[str, float]:
    """The built-in list prices in USD per node-hour of the instance types that were charged at them in one region."""
    prices = {}
    for instance_type, regions in look_back.built_in_price_regions.items():
        amounts = [HOURLY_PRICES.get(region, {}).get(instance_type) for region in regions]
        if len(amounts) == 1 and amounts[0] is not None:
            prices[instance_type] = float(amounts[0])
    return prices


def node_spot_prices(price_book: PriceBookReader, start: datetime, end: datetime) -> dict[str, SpotPrice]:
    """Spot prices of a period by instance type, in the most expensive zone on average.

    Raises:
        SourceError: the price book could not be read.
    """
    zones: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for price in _node_prices_in_usd(price_book.in_force(start, end, sources={"spot"}).prices):
        since, until = max(price.valid_from or start, start), min(price.valid_to or end, end)
        if price.source == "spot" and since < until:
            facts = price.applies_to
            key = facts["instance_type"], facts.get("region", ""), facts.get("zone", "")
            zones.setdefault(key, []).append(((until - since).total_seconds(), float(price.amount)))
    prices_by_type: dict[str, SpotPrice] = {}
    for (name, _, _), parts in zones.items():
        mean = sum(seconds * usd for seconds, usd in parts) / sum(seconds for seconds, _ in parts)
        if name not in prices_by_type or mean > prices_by_type[name].usd:
            prices_by_type[name] = SpotPrice(mean, min(usd for _, usd in parts), max(usd for _, usd in parts))
    return prices_by_type


def reserved_prices(settings: CoreSettings, look_back: LookBack, at: datetime) -> dict[str, ReservedPrice]:
    """Prices of reserved capacity by instance type: the first matching rate of the settings.

    A rate for a family (`instance_type: "g5.*"`) is that of a Savings Plan, which covers all sizes. Rates for single
    pools, regions or zones are left out, because a commitment is not bought for one of them.

    Args:
        settings: the settings; only rates with `capacity_type: reserved` count.
        look_back: has the instance types and their list prices.
        at: the time at which the rates are valid.
    """
    prices: dict[str, ReservedPrice] = {}
    built_in = built_in_list_prices(look_back)
    for key in sorted(look_back.pools):
        gpus, list_price = gpus_per_node(look_back.pools[key]), look_back.list_prices.get(key.instance_type)
        for rate in settings.pricing.rates:
            if key.instance_type in prices or not _is_reserved_rate_for(rate, look_back.cluster, key, at):
                continue
            usd, basis = None, ""
            if rate.node_hourly_usd is not None:
                usd = float(rate.node_hourly_usd)
            elif rate.gpu_hourly_usd is not None:
                usd = float(rate.gpu_hourly_usd) * gpus
            elif rate.percent_of_on_demand is not None and list_price is not None:
                usd = float(rate.percent_of_on_demand) / 100 * list_price
                if built_in.get(key.instance_type) == list_price:
                    (region,) = look_back.built_in_price_regions[key.instance_type]
                    basis = f"{rate.percent_of_on_demand.normalize():f}% of the {list_price_label(region)}"
            if usd:
                pattern = rate.instance_type or ""
                scope = pattern if _FAMILY_PATTERN.fullmatch(pattern) else key.instance_type
                prices[key.instance_type] = ReservedPrice(usd, scope, basis)
    return prices


def _is_reserved_rate_for(rate: RateSettings, cluster: str, key: PoolKey, at: datetime) -> bool:
    facts = rate.attribute_patterns()
    is_valid = (rate.since is None or rate.since <= at) and (rate.until is None or at < rate.until)
    return (
        is_valid
        and facts.get("capacity_type") == "reserved"
        and not facts.keys() & {"node_pool", "region", "zone"}
        and fnmatchcase(cluster, facts.get("cluster", "*"))
        and fnmatchcase(key.instance_type, facts.get("instance_type", "*"))
        and fnmatchcase(key.gpu_model, facts.get("gpu_model", "*"))
    )


def _node_prices_in_usd(prices: Iterable[Price]) -> list[Price]:
    return [
        price
        for price in prices
        if price.unit == "node-hour" and price.currency == "USD" and "instance_type" in price.applies_to
    ]


# Caches metrics that the ledger does not hold, by whole UTC days.
#
# These are GPU memory of pods, pods that waited for GPUs, and the latency of inference servers' requests. Each day is
# queried once and stored. Recommendations do without days that are not available.

CACHE_RETENTION = 40 * DAY
"""A little longer than the look-back."""
MAX_ROWS_OF_DAY = 30_000
"""Rows of a day that are kept. A look-back of 30 such days takes 270 MB; clusters have fewer GPU pods a day."""
DayMetrics = TypeVar("DayMetrics", bound=Sized)


class DailyMetricsCache(Generic[DayMetrics]):
    """Queries the days that are not stored yet.

    Args:
        metric_name: the name of the metric in logs.
        reader: makes the function that queries a cluster's metrics for a day.
        load: the stored days in `[start, end)` of a cluster, by its name.
        save: stores a cluster's day until a time.
        clock: the current time.
    """

    def __init__(
        self,
        metric_name: str,
        reader: Callable[[ClusterSettings, Deadline | None], Callable[[datetime], DayMetrics]],
        load: Callable[[str, datetime, datetime], dict[datetime, DayMetrics]],
        save: Callable[[str, datetime, DayMetrics, datetime], None],
        *,
        clock: Clock,
    ) -> None:
        self._metric_name = metric_name
        self._reader = reader
        self._load = load
        self._save = save
        self._clock = clock

    def days(
        self, cluster: ClusterSettings, start: datetime, end: datetime, deadline: Deadline | None = None
    ) -> dict[datetime, DayMetrics]:
        """The whole UTC days of `[start, end)`, without those that are not available.

        Days are queried newest first. The first failure ends it, because older days would most likely fail too. A day
        with more than `MAX_ROWS_OF_DAY` rows is left out: its samples cannot be trusted and would fill the memory.

        Raises:
            SourceError: the store failed.
        """
        first, last = floor_day(start), floor_day(end)
        if first < start:
            first += DAY
        days = self._load(cluster.name, first, last)
        read_day = self._reader(cluster, deadline)
        day = last - DAY
        while day >= first:
            if day not in days:
                try:
                    rows = read_day(day)
                except SourceError as error:
                    self._warn(cluster, str(error))
                    break
                if len(rows) <= MAX_ROWS_OF_DAY:
                    days[day] = rows
                    self._save(cluster.name, day, rows, self._clock() + CACHE_RETENTION)
                else:
                    self._warn(cluster, f"{day:%Y-%m-%d} has {len(rows)} rows; at most {MAX_ROWS_OF_DAY} are kept")
            day -= DAY
        return days

    def _warn(self, cluster: ClusterSettings, reason: str) -> None:
        logger.warning("a metric is not available", metric=self._metric_name, cluster=cluster.name, reason=reason)


def gpu_memory_cache(
    create_reader: MemoryReaderFactory, store: DynamoGpuMemory, *, clock: Clock
) -> DailyMetricsCache[dict[tuple[str, str], float]]:
    """The cache of GPU memory peaks by pod."""

    def peaks(
        cluster: ClusterSettings, deadline: Deadline | None
    ) -> Callable[[datetime], dict[tuple[str, str], float]]:
        return create_reader(cluster, deadline).peaks

    return DailyMetricsCache("GPU memory", peaks, store.memory, store.put_memory, clock=clock)


def waiting_pods_cache(
    create_reader: WaitingPodsReaderFactory, store: DynamoWaitingPods, *, clock: Clock
) -> DailyMetricsCache[list[PodWait]]:
    """The cache of pods that waited for GPUs."""

    def waits(cluster: ClusterSettings, deadline: Deadline | None) -> Callable[[datetime], list[PodWait]]:
        return create_reader(cluster, deadline).waits

    return DailyMetricsCache("pods waiting for GPUs", waits, store.waits, store.put_waits, clock=clock)


def request_latency_cache(
    inference: InferenceSettings, store: DynamoRequestLatency, *, clock: Clock
) -> DailyMetricsCache[list[PodLatency]]:
    """The cache of the latency of inference servers' requests."""
    reader = latency_reader(inference)
    return DailyMetricsCache("request latency", reader, store.latencies, store.put_latencies, clock=clock)


# The service: it reviews each cluster's hours and updates its recommendations.

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
