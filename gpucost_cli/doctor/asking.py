"""Asks one cluster's Prometheus for the facts: some fifteen queries, whatever the cluster's size."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from statistics import median_low

from gpucost.core.errors import MetricsResponseError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.sources.prometheus.client import PrometheusClient, Series
from gpucost.sources.prometheus.queries import STAT
from gpucost.sources.prometheus.source_selectors import Sources
from gpucost_cli.doctor import reading, signals
from gpucost_cli.doctor.checks.jobs import JOB_METRICS
from gpucost_cli.doctor.checks.metrics import KUBE_METRICS
from gpucost_cli.doctor.facts import REQUESTS, Device, Facts, Target
from gpucost_cli.doctor.labels import RequiredLabels
from gpucost_cli.doctor.queries import NODE_INFO, Queries, outside_selector

STEP = timedelta(minutes=10)
"""Distance of the times that are looked at; what lived shorter may go unseen."""
MAX_INTERVAL_TARGETS = 20
"""Exporters whose scrape interval is read."""
LONG_QUERY_LENGTH = 110_000
"""Characters: 400 uids, named in each selector of the query about phases, are as many."""
MAX_TARGETS_WITHOUT_UP = 3
"""Of those without `up`, exporters of which a series of their own is read."""


class FactsCollector:
    """Asks one cluster.

    Args:
        client: asks the cluster's Prometheus.
        selector: the cluster's matchers.
        need: labels of namespaces and pods that the settings ask for.
        ranks: signals that attribution would read, best first.
        sources: label matchers of the series that each source is trusted for.
    """

    def __init__(
        self,
        client: PrometheusClient,
        selector: Mapping[str, str],
        required_labels: RequiredLabels,
        ranks: Sequence[Sequence[signals.Signal]],
        sources: Sources | None = None,
    ) -> None:
        self._client = client
        self._queries = Queries(selector, sources or Sources())
        self._selector = selector
        self._required_labels = required_labels
        self._ranks = ranks

    def collect(self, now: datetime) -> Facts:
        """Everything of the last full hour, up to now.

        Raises:
            MetricsUnavailableError, MetricsResponseError: as the client.
        """
        start = floor_hour(now) - HOUR
        first = now - STEP * ((now - start) // STEP)
        counts = self._client.query_range(self._queries.counts(KUBE_METRICS), first, now, STEP)
        of_devices = self._queries.device_counts(signals.all_names())
        series = reading.max_counts(counts) | reading.max_counts(self._client.query_range(of_devices, first, now, STEP))
        resources = self._client.query_range(self._queries.resources(), first, now, STEP)
        moment = _last_time([resources, counts], now)
        names = [signal.name for rank in self._ranks for signal in rank]
        by_rank = [*([signal.name for signal in rank] for rank in self._ranks), [signals.NEURON.name]]
        highest = self._client.query_range(self._queries.max_values(names), first, now, STEP)
        devices = reading.devices(self._client.query(self._queries.devices(by_rank), moment))
        nodes = self._client.query(self._queries.nodes(), moment)
        requests = reading.holders(self._client.query(self._queries.holders(), moment))
        holders = reading.without_gone_pods(requests, reading.nodes(nodes), devices)
        tallies = self._client.query(self._queries.label_counts(self._required_labels.by_metric()), moment)
        exporters = reading.exporters(counts)
        runs = self._scrapes(exporters, devices, nodes, start, now)
        return Facts(
            now=now,
            evaluated_at=moment,
            series=series,
            exporters=exporters,
            resources=reading.max_counts(resources, "resource"),
            holders=holders,
            nodes=reading.nodes(nodes, holders),
            devices=devices,
            max_values={one.labels["__name__"]: reading.max_value(one) for one in highest},
            cluster_labels=reading.values_by_label(self._client.query(self._queries.cluster_labels(), moment)),
            label_counts=reading.label_counts(tallies),
            owner_kinds=reading.max_counts(self._client.query(self._queries.owners(), moment), "owner_kind"),
            finished_pods=reading.max_counts(tallies, STAT).get("finished", 0),
            intervals={source: interval for source, run in runs.items() if (interval := _interval(run)) is not None},
            jobs_with_up=self._with_up,
            labels_outside_selector=self._elsewhere(series, names, moment),
            accepts_long_queries=self._takes_long_queries(now),
            jobs=reading.jobs(self._client.query(self._queries.jobs(JOB_METRICS), moment)),
        )

    def _takes_long_queries(self, now: datetime) -> bool:
        """Whether a query is answered that is as long as those about hundreds of pods that come and go."""
        try:
            self._client.query("vector(1)".ljust(LONG_QUERY_LENGTH), now)
        except MetricsResponseError:
            return False
        return True

    def _scrapes(
        self,
        exporters: Iterable[Target],
        devices: Sequence[Device],
        nodes: Sequence[Series],
        start: datetime,
        now: datetime,
    ) -> dict[Target, list[int]]:
        """When some processes were scraped, in ms: by `up` where it is kept, else by a series of theirs."""
        kube = sorted(exporters, key=_order)[:MAX_INTERVAL_TARGETS]
        by_source = {one.target: one for one in reversed(devices)}
        looked_at = [*kube, *sorted(by_source, key=_order)[:MAX_INTERVAL_TARGETS]]
        self._with_up: frozenset[str] = frozenset()
        runs: dict[Target, list[int]] = {}
        named = [source for source in looked_at if source.instance]
        if named:
            up = [
                (reading.target(one.labels), one)
                for one in self._client.raw_samples(self._queries.up(named), start, now)
            ]
            self._with_up = frozenset(source.job for source, _ in up)
            runs = {source: [at for at, value in one.samples if value == "1"] for source, one in up}
        info = {reading.target(one.labels): one.labels for one in nodes if one.labels.get(STAT) == "info"}
        without = [source for source in looked_at if source not in runs]
        for source in [*[s for s in without if s in info][:MAX_TARGETS_WITHOUT_UP], *[s for s in without if s in by_source][:MAX_TARGETS_WITHOUT_UP]]:
            metric = NODE_INFO if source in info else by_source[source].signal
            labels = reading.series_labels(info[source] if source in info else by_source[source].labels)
            found = self._client.raw_samples(self._queries.one_series(metric, labels), start, now)
            runs[source] = sorted({at for one in found for at, _ in one.samples})
        return runs

    def _elsewhere(
        self, series: Mapping[str, int], names: Sequence[str], moment: datetime
    ) -> dict[str, list[Mapping[str, str]]]:
        """Labels of what the selector leaves out, where it leaves nothing of a kind."""
        wanted = [] if series.get(REQUESTS) else [REQUESTS]
        wanted += [] if any(series.get(name) for name in names) else names
        if not self._selector or not wanted:  # what sources leave out is told by their jobs
            return {}
        found: dict[str, list[Mapping[str, str]]] = {}
        for one in self._client.query(outside_selector(wanted, self._selector), moment):
            found.setdefault(one.labels["__name__"], []).append(
                {name: value for name, value in one.labels.items() if name != "__name__"}
            )
        return found


def _last_time(answers: Iterable[Sequence[Series]], now: datetime) -> datetime:
    """The last time at which the first answer that has anything has it."""
    for series in answers:
        times = [one.samples[-1][0] for one in series if one.samples]
        if times:
            return datetime.fromtimestamp(max(times) / 1000, UTC)
    return now


def _interval(times: Sequence[int]) -> Decimal | None:
    """Seconds between scrapes, to a tenth: the median, which neither gaps nor jitter move."""
    distances = [after - before for before, after in pairwise(sorted(times)) if after > before]
    return round(Decimal(median_low(distances)) / 1000, 1).normalize() if distances else None


def _order(source: Target) -> tuple[str, str, str]:
    return source.job, source.instance, source.replica
