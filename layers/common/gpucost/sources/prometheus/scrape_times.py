"""When sources were scraped: asks `up` where it is kept, else takes each instance's densest series for it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from gpucost.core.hours import HOUR
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.observations import Instance
from gpucost.sources.prometheus import scrapes as heartbeats
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.queries import CAPACITY, NODE_INFO, STAT, UNLABELED, PodMatcher, Queries
from gpucost.sources.prometheus.sharding import ShardedClient
from gpucost.sources.prometheus.source_selectors import SourceName

EDGE = timedelta(minutes=5)
"""How far beyond an hour exporters' scrapes are looked at: they tell the interval in force at its edges."""
INSTANCES_PER_QUERY = 2500
INSTANCE_HOURS_PER_QUERY = 2500
"""Some 15 MB of answer at a scrape a quarter of a minute."""

DensestSeries = Mapping[Instance, tables.Labels]
"""The labels of each instance's series with most samples."""


class ScrapeTimes:
    """Finds scrape times of sources."""

    def __init__(self, client: ShardedClient, queries: Queries) -> None:
        self._client = client
        self._queries = queries

    def allocation_scrapes(self, series: Iterable[Series], start: datetime, end: datetime) -> dict[Instance, Scrapes]:
        """Scrapes of the instances that requests and nodes are told by."""
        found = densest_series(series, _samples_of_allocation)
        return self._of(found, lambda some: [self._pod_or_node(some)], start, end, lambda _: "kube_state_metrics")

    def exporter_scrapes(self, series: Iterable[Series], hours: Sequence[datetime], now: datetime) -> "ExporterScrapes":
        """Scrapes of the exporters of the best signals, over consecutive hours."""
        found = densest_series(series, _samples_of_device)
        return ExporterScrapes(lambda some: self.rank_scrapes(0, found, some, now), hours, len(found))

    def rank_scrapes(self, rank: int, found: DensestSeries, hours: Sequence[datetime], now: datetime) -> dict[Instance, Scrapes]:
        """Scrapes of the exporters of one rank's signals, over consecutive hours."""

        def device(some: DensestSeries) -> list[str]:
            for label in ("UUID", "uuid", "instance"):
                if all(labels.get(label) for labels in some.values()):
                    return self._queries.device_selectors(rank, label, {labels[label] for labels in some.values()})
            return self._queries.device_selectors(rank, "instance", {""})

        last = min(hours[-1] + HOUR + EDGE, max(now, hours[-1] + HOUR))
        return self._of(found, device, hours[0] - EDGE, last, _exporter)

    def _of(
        self,
        found: DensestSeries,
        beat: Callable[[DensestSeries], list[str]],
        start: datetime,
        end: datetime,
        source: Callable[[tables.Labels], SourceName],
    ) -> dict[Instance, Scrapes]:
        scrapes: dict[Instance, Scrapes] = {}
        targets: dict[SourceName, list[Instance]] = {}
        for who, labels in found.items():
            if labels.get("instance"):
                kind = source(labels) if self._queries.sources.labels else "kube_state_metrics"
                targets.setdefault(kind, []).append(who)
        for kind, some in ((kind, chunk) for kind, names in targets.items() for chunk in _chunks(names)):
            named = [found[who] for who in some]
            jobs, instances = {labels.get("job", "") for labels in named}, {labels["instance"] for labels in named}
            up = self._queries.up(sorted(jobs), sorted(instances), kind)
            with self._client.temporary_samples(up, start, end) as answer:
                scrapes |= heartbeats.merge_scrapes(
                    (tables.instance(one.labels), [at for at, value in one.samples if value == "1"]) for one in answer
                )
            self._client.check_scrapes(sum(len(run.times) for run in scrapes.values()))
        by_kind: dict[str, list[Instance]] = {}
        for who in found:
            if who not in scrapes:
                by_kind.setdefault(found[who].get(STAT, ""), []).append(who)
        for some in (chunk for silent in by_kind.values() for chunk in _chunks(silent)):
            for selector in beat({who: found[who] for who in some}):
                with self._client.temporary_samples(selector, start, end) as answer:
                    scrapes |= heartbeats.merge_scrapes(
                        (tables.instance(one.labels), [at for at, _ in one.samples])
                        for one in answer
                        if tables.instance(one.labels) in some
                    )
                self._client.check_scrapes(sum(len(run.times) for run in scrapes.values()))
        return {who: run for who, run in scrapes.items() if who in found}

    def _pod_or_node(self, found: DensestSeries) -> str:
        labels = next(iter(found.values()))
        metric = {"info": NODE_INFO, "capacity-sum": CAPACITY}.get(labels.get(STAT, ""))
        if metric:
            label = tables.label_name([labels], "node")
            return self._queries.node_metrics({one.get(label, "") for one in found.values()}, [metric], label)
        uids = tuple(sorted({one["uid"] for one in found.values() if one.get("uid")}))
        names = tuple(sorted({tables.exported_label(one, "pod") for one in found.values()}))
        return self._queries.pod_requests(PodMatcher("uid", uids) if uids else PodMatcher("pod", names))


class ExporterScrapes:
    """Scrapes of many exporters over many hours, some hours at a time: a large fleet's would not fit into memory.

    Args:
        ask: the scrapes over some consecutive hours.
        hours: all hours, asked for in this order.
        exporters: how many there are.
    """

    def __init__(
        self, ask: Callable[[Sequence[datetime]], dict[Instance, Scrapes]], hours: Sequence[datetime], exporters: int
    ) -> None:
        self._ask = ask
        self._hours = list(hours)
        self._at_once = max(1, INSTANCE_HOURS_PER_QUERY // max(1, exporters))
        self._known: list[datetime] = []
        self._scrapes: Mapping[Instance, Scrapes] = {}

    def around_hour(self, hour: datetime) -> Mapping[Instance, Scrapes]:
        """The scrapes around one hour."""
        if hour not in self._known:
            place = self._hours.index(hour)
            self._known = self._hours[place : place + self._at_once]
            self._scrapes = self._ask(self._known)
        return {who: run for who, run in heartbeats.scrapes_near(self._scrapes, hour, EDGE).items() if run.times}


def densest_series(series: Iterable[Series], samples: Callable[[str, Series], float | None]) -> DensestSeries:
    """The series with most samples of each instance.

    Args:
        series: answers.
        samples: how many samples a series of a statistic has; None where it does not count.
    """
    best: dict[Instance, tuple[float, tables.Labels]] = {}
    for one in series:
        weight = samples(one.labels.get(STAT, UNLABELED), one)
        if weight is not None:
            who = tables.instance(one.labels)
            if who not in best or weight > best[who][0]:
                best[who] = (weight, one.labels)
    return {who: labels for who, (_, labels) in best.items()}


def _exporter(labels: tables.Labels) -> SourceName:
    return "neuron_monitor" if "neuroncore" in labels else "dcgm_exporter"


def _samples_of_allocation(stat: str, one: Series) -> float | None:
    """As counted; capacity, of which sums are told, only where nothing else is."""
    if stat == "capacity-sum":
        return 0
    return _total(one) if stat in {UNLABELED, "init-count", "info"} else None


def _samples_of_device(stat: str, one: Series) -> float | None:
    """As counted, where an exporter's series differ; else one in each hour is as good as all."""
    if stat.startswith("count "):
        return _total(one)
    return len(one.samples) if stat == UNLABELED or stat.startswith("sum ") else None


def _total(one: Series) -> float:
    return sum(float(value) for _, value in one.samples)


def _chunks(names: Sequence[Instance]) -> Iterable[Sequence[Instance]]:
    return (names[at : at + INSTANCES_PER_QUERY] for at in range(0, len(names), INSTANCES_PER_QUERY))
