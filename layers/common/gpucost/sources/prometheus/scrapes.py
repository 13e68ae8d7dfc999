"""When targets were scraped around an hour: the number of samples that every series is expected to have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, field

from gpucost.core.hours import HOUR, to_epoch_ms
from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.fraction_schedulers import GPU_LABELS
from gpucost.core.metering.observations import LOOK_AROUND_MS, MARGIN_BEFORE_HOUR_MS, ScrapeTarget
from gpucost.core.metering.spans import DEFAULT_INTERVAL_MS
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.metrics_sources import MetricsSource, metrics_source_of
from gpucost.sources.prometheus.queries import (
    CAPACITY,
    NO_STATISTIC_LABEL,
    NODE_INFO,
    STATISTIC_LABEL,
    PodMatcher,
    Queries,
    Window,
)
from gpucost.sources.prometheus.sharding import ShardedClient

ScrapesByTarget = Mapping[ScrapeTarget, Scrapes]


class HourScrapes(Struct, frozen=True):
    """The scrapes around one hour, to compare the sample counts of series with."""

    hour: datetime
    scrapes: ScrapesByTarget
    """From `LOOK_AROUND_MS` before the hour to `LOOK_AROUND_MS` after it."""
    window: IntervalMs
    """The time in which samples were counted: the hour and a margin at its edges."""
    expected: Mapping[ScrapeTarget, int]
    """Scrapes in the window, by instance."""
    reaches_edges: Mapping[ScrapeTarget, tuple[bool, bool]]
    """Whether an instance was scraped before the hour began, and up to its end."""
    _covers_hour: dict[tuple[tuple[ScrapeTarget, int], ...], bool] = field(default_factory=dict)
    """Results of `covers_hour`, because nearly all objects have the same sample counts."""

    def covers_hour(self, counts: Mapping[ScrapeTarget, int]) -> bool:
        """Whether an object with these sample counts, by instance, existed for the whole hour."""
        key = tuple(counts.items())
        if key not in self._covers_hour:
            self._covers_hour[key] = self._existed_all_hour(counts)
        return self._covers_hour[key]

    def _existed_all_hour(self, counts: Mapping[ScrapeTarget, int]) -> bool:
        if not counts or any(count < self.expected.get(target, 1) for target, count in counts.items()):
            return False
        edges = [self.reaches_edges.get(target, (False, False)) for target in counts]
        return any(before for before, _ in edges) and any(after for _, after in edges)

    def wider_window(self, look_end: int) -> tuple[int, Window] | None:
        """The evaluation time (ms) and window that span scrape gaps at the hour's edges.

        Args:
            look_end: the last time to consider, in milliseconds.

        Returns:
            None if no gap touches an edge of the hour, or if there are no scrapes beyond it.
        """
        start, end = to_epoch_ms(self.hour), to_epoch_ms(self.hour + HOUR)
        times = [time for target_scrapes in self.scrapes.values() for time in target_scrapes.times]
        before, after = start, end
        if not any(reaches_start for reaches_start, _ in self.reaches_edges.values()):
            before = max((time for time in times if time <= start), default=start)
        if not any(reaches_end for _, reaches_end in self.reaches_edges.values()):
            after = min((time + 1 for time in times if end <= time < look_end), default=end)
        if before == start and after == end:
            return None
        return after, Window(length=after - min(before, start - MARGIN_BEFORE_HOUR_MS), start=after - before)


def hour_scrapes(scrapes: ScrapesByTarget, hour: datetime, window: IntervalMs | None = None) -> HourScrapes:
    """Select the scrapes around one hour and count them.

    Args:
        scrapes: all scrapes, by instance.
        hour: the start of the hour.
        window: where samples were counted; by default the hour and `MARGIN_BEFORE_HOUR_MS` before it.
    """
    start, end = to_epoch_ms(hour), to_epoch_ms(hour + HOUR)
    nearby = {
        target: target_scrapes
        for target, target_scrapes in scrapes_near(scrapes, hour, timedelta(milliseconds=LOOK_AROUND_MS)).items()
        if target_scrapes.times
    }
    window = window or IntervalMs(start - MARGIN_BEFORE_HOUR_MS, end)
    times_in_window = {target: target_scrapes.within(window) for target, target_scrapes in nearby.items()}
    return HourScrapes(
        hour=hour,
        scrapes=nearby,
        window=window,
        expected={target: len(times) for target, times in times_in_window.items()},
        reaches_edges={
            target: (
                times[0] <= start,
                2 * (end - times[-1]) <= 3 * (nearby[target].typical_interval or DEFAULT_INTERVAL_MS),
            )
            for target, times in times_in_window.items()
            if times
        },
    )


def scrapes_near(scrapes: ScrapesByTarget, hour: datetime, edge: timedelta) -> dict[ScrapeTarget, Scrapes]:
    """The scrapes in an hour and up to `edge` before and after it."""
    window = IntervalMs(to_epoch_ms(hour - edge), to_epoch_ms(hour + HOUR + edge) + 1)
    return {target: Scrapes(target_scrapes.within(window)) for target, target_scrapes in scrapes.items()}


def merge_scrapes(runs: Iterable[tuple[ScrapeTarget, Iterable[int]]]) -> dict[ScrapeTarget, Scrapes]:
    """Merge scrape times by instance: sorted, without duplicates."""
    times: dict[ScrapeTarget, set[int]] = {}
    for target, target_times in runs:
        times.setdefault(target, set()).update(target_times)
    return {target: Scrapes(tuple(sorted(target_times))) for target, target_times in times.items() if target_times}


# When targets were scraped: read from `up` if it is kept, else from the series of each target with most samples.

SCRAPE_MARGIN = timedelta(minutes=5)
"""Exporters' scrapes are read this long before and after an hour, to know the scrape interval at its edges."""
INSTANCES_PER_QUERY = 2500
INSTANCE_HOURS_PER_QUERY = 2500
"""About 15 MB of response at a scrape interval of 15 seconds."""

SELECTABLE_LABELS = ("UUID", "uuid", *GPU_LABELS, "instance")
"""Labels by which single samples of devices are selected, the most selective first."""

DensestSeries = Mapping[ScrapeTarget, tables.Labels]
"""By target, the labels of the series with most samples."""


class ScrapeTimesReader:
    """Reads scrape times of targets."""

    def __init__(self, client: ShardedClient, queries: Queries) -> None:
        self._client = client
        self._queries = queries

    def allocation_scrapes(
        self, series: Iterable[Series], start: datetime, end: datetime
    ) -> dict[ScrapeTarget, Scrapes]:
        """Scrapes of the targets that report requests and nodes."""
        densest = densest_series(series, _samples_of_allocation)
        return self._read(
            densest, lambda chunk: [self._pod_or_node_selector(chunk)], start, end, lambda _: "kube_state_metrics"
        )

    def collector_scrapes(
        self, densest: DensestSeries, metric: str, start: datetime, end: datetime
    ) -> dict[ScrapeTarget, Scrapes]:
        """Scrapes of collectors of claims. Where `up` is not kept, they are those of the metric's densest series."""
        instances = {labels.get("instance", "") for labels in densest.values()}
        source = metrics_source_of(metric) or "kube_state_metrics"
        return self._read(
            densest,
            lambda _: [self._queries.claim_object_metrics(metric, "instance", instances)],
            start,
            end,
            lambda _: source,
        )

    def exporter_scrapes(self, series: Iterable[Series], hours: Sequence[datetime], now: datetime) -> "ExporterScrapes":
        """Scrapes of the exporters of the best signals, over consecutive hours."""
        densest = densest_series(series, _samples_of_device)
        return ExporterScrapes(lambda some_hours: self.rank_scrapes(0, densest, some_hours, now), hours, len(densest))

    def rank_scrapes(
        self, rank: int, densest: DensestSeries, hours: Sequence[datetime], now: datetime
    ) -> dict[ScrapeTarget, Scrapes]:
        """Scrapes of the exporters of one rank's signals, over consecutive hours."""

        def device_series(chunk: DensestSeries) -> list[str]:
            for label in SELECTABLE_LABELS:
                if all(labels.get(label) for labels in chunk.values()):
                    return self._queries.device_selectors(rank, label, {labels[label] for labels in chunk.values()})
            return self._queries.device_selectors(rank, "instance", {""})

        last = min(hours[-1] + HOUR + SCRAPE_MARGIN, max(now, hours[-1] + HOUR))
        return self._read(densest, device_series, hours[0] - SCRAPE_MARGIN, last, _exporter_of)

    def _read(
        self,
        densest: DensestSeries,
        series_selectors: Callable[[DensestSeries], list[str]],
        start: datetime,
        end: datetime,
        metrics_source_of_series: Callable[[tables.Labels], MetricsSource | None],
    ) -> dict[ScrapeTarget, Scrapes]:
        scrapes: dict[ScrapeTarget, Scrapes] = {}
        targets: dict[MetricsSource | None, list[ScrapeTarget]] = {}
        for target, labels in densest.items():
            if labels.get("instance"):
                metrics_source = (
                    metrics_source_of_series(labels)
                    if self._queries.trusted_series.matchers_by_source
                    else "kube_state_metrics"
                )
                targets.setdefault(metrics_source, []).append(target)
        for metrics_source, chunk in ((source, chunk) for source, names in targets.items() for chunk in _chunks(names)):
            jobs = {densest[target].get("job", "") for target in chunk}
            instances = {densest[target]["instance"] for target in chunk}
            up = self._queries.up(sorted(jobs), sorted(instances), metrics_source)
            with self._client.temporary_samples(up, start, end) as up_series:
                scrapes |= merge_scrapes(
                    (tables.scrape_target(labels), [time for time, value in samples if value == "1"])
                    for labels, samples in up_series
                )
            self._client.check_scrapes(sum(len(target_scrapes.times) for target_scrapes in scrapes.values()))
        without_up: dict[str, list[ScrapeTarget]] = {}
        for target, labels in densest.items():
            if target not in scrapes:
                without_up.setdefault(labels.get(STATISTIC_LABEL, ""), []).append(target)
        for chunk in (chunk for names in without_up.values() for chunk in _chunks(names)):
            for selector in series_selectors({target: densest[target] for target in chunk}):
                with self._client.temporary_samples(selector, start, end) as raw_series:
                    scrapes |= merge_scrapes(
                        (tables.scrape_target(labels), [time for time, _ in samples])
                        for labels, samples in raw_series
                        if tables.scrape_target(labels) in chunk
                    )
                self._client.check_scrapes(sum(len(target_scrapes.times) for target_scrapes in scrapes.values()))
        return {target: target_scrapes for target, target_scrapes in scrapes.items() if target in densest}

    def _pod_or_node_selector(self, densest: DensestSeries) -> str:
        labels = next(iter(densest.values()))
        metric = {"info": NODE_INFO, "capacity-sum": CAPACITY}.get(labels.get(STATISTIC_LABEL, ""))
        if metric:
            label = tables.exported_label_name([labels], "node")
            nodes = {node_labels.get(label, "") for node_labels in densest.values()}
            return self._queries.node_metrics(nodes, [metric], label)
        uids = tuple(sorted({pod_labels["uid"] for pod_labels in densest.values() if pod_labels.get("uid")}))
        names = tuple(sorted({tables.exported_label(pod_labels, "pod") for pod_labels in densest.values()}))
        return self._queries.pod_requests(PodMatcher("uid", uids) if uids else PodMatcher("pod", names))


class ExporterScrapes:
    """Scrapes of many exporters over many hours, read some hours at a time: a large fleet's do not fit into memory.

    Args:
        read: reads the scrapes over some consecutive hours.
        hours: all hours, in the order in which they will be requested.
        exporters: the number of exporters.
    """

    def __init__(
        self,
        read: Callable[[Sequence[datetime]], dict[ScrapeTarget, Scrapes]],
        hours: Sequence[datetime],
        exporters: int,
    ) -> None:
        self._read = read
        self._hours = list(hours)
        self._hours_per_query = max(1, INSTANCE_HOURS_PER_QUERY // max(1, exporters))
        self._loaded: list[datetime] = []
        self._scrapes: Mapping[ScrapeTarget, Scrapes] = {}

    def around_hour(self, hour: datetime) -> Mapping[ScrapeTarget, Scrapes]:
        """The scrapes around one hour."""
        if hour not in self._loaded:
            index = self._hours.index(hour)
            self._loaded = self._hours[index : index + self._hours_per_query]
            self._scrapes = self._read(self._loaded)
        nearby = scrapes_near(self._scrapes, hour, SCRAPE_MARGIN)
        return {target: target_scrapes for target, target_scrapes in nearby.items() if target_scrapes.times}


def densest_series(series: Iterable[Series], samples: Callable[[str, Series], float | None]) -> DensestSeries:
    """Find the series with most samples of each target.

    Args:
        series: results of `Queries`.
        samples: the number of samples of a series with a given statistic; None for series to ignore.
    """
    densest: dict[ScrapeTarget, tuple[float, tables.Labels]] = {}
    for candidate in series:
        count = samples(candidate.labels.get(STATISTIC_LABEL, NO_STATISTIC_LABEL), candidate)
        if count is not None:
            target = tables.scrape_target(candidate.labels)
            if target not in densest or count > densest[target][0]:
                densest[target] = (count, candidate.labels)
    return {target: labels for target, (_, labels) in densest.items()}


def _exporter_of(labels: tables.Labels) -> MetricsSource | None:
    _, _, signal = labels.get(STATISTIC_LABEL, NO_STATISTIC_LABEL).partition(" ")
    return metrics_source_of(signal) or "dcgm_exporter"


def _samples_of_allocation(stat: str, series: Series) -> float | None:
    """The number of samples; 0 for capacity sums, which are used only if a target has no other series."""
    if stat == "capacity-sum":
        return 0
    return _total(series) if stat in {NO_STATISTIC_LABEL, "init-count", "info"} else None


def _samples_of_device(stat: str, series: Series) -> float | None:
    """The number of samples if an exporter's series differ in it; else the number of hours."""
    if stat.startswith("count "):
        return _total(series)
    return len(series.samples) if stat == NO_STATISTIC_LABEL or stat.startswith("sum ") else None


def _total(series: Series) -> float:
    return sum([float(value) for _, value in series.samples])


def _chunks(names: Sequence[ScrapeTarget]) -> Iterable[Sequence[ScrapeTarget]]:
    return (names[first : first + INSTANCES_PER_QUERY] for first in range(0, len(names), INSTANCES_PER_QUERY))
