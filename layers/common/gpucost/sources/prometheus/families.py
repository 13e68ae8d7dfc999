"""Families of series: what the reader asks of pods, nodes, devices, claims, fractions, energy and counters.

A family says which queries it needs, and reads its part of an hour from their results. Another exporter of a known kind
changes its family, or an entry of a catalog.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpucost.core.hours import HOUR, to_epoch_ms
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.observations import (
    LOOK_AROUND_MS,
    DeviceSeries,
    EnergySeries,
    NodeObservation,
    Observation,
    OfferedDevice,
    PodObservation,
    ScrapeTarget,
    Unexplained,
    VirtualGpus,
)
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.memory_budget import raw_samples_size
from gpucost.sources.prometheus.queries import Queries, Window
from gpucost.sources.prometheus.scrapes import ScrapeTimesReader
from gpucost.sources.prometheus.sharding import KeptSize, ShardedClient

if TYPE_CHECKING:
    from gpucost.sources.prometheus.nodes import NodeTable
    from gpucost.sources.prometheus.pods import PodTable
    from gpucost.sources.prometheus.scrapes import ExporterScrapes, HourScrapes

LOOK_AROUND = timedelta(milliseconds=LOOK_AROUND_MS)
NAMES_PER_QUERY = 400
SAMPLES_PER_QUERY = 400_000
"""About 10 MB of response: far below AMP's limit of 50 MB, and little memory."""

RowsByStatistic = Mapping[str, tables.Rows]
SeriesByQuery = Mapping[str, Sequence[Series]]


class Query(NamedTuple):
    """A query that is evaluated at the ends of all hours."""

    build: Callable[[Queries], str]
    unknown_without: str = ""
    """What is unknown without its response, which may be too large because of what tenants write; "" if it is vital."""


class ClusterMetrics:
    """The metrics of one cluster.

    Args:
        client: evaluates queries.
        queries: the cluster's queries.
        cluster: the cluster's name.
        clock: the time now; queries never ask for the future.
    """

    def __init__(self, client: ShardedClient, queries: Queries, cluster: str, clock: Callable[[], datetime]) -> None:
        self.queries = queries
        self.cluster = cluster
        self.clock = clock
        self.scrape_times = ScrapeTimesReader(client, queries)
        self._client = client
        self.query_hours = client.query_hours
        self.query_at = client.query_at
        self.raw_samples = client.raw_samples

    def with_queries(self, queries: Queries) -> "ClusterMetrics":
        """The same metrics for other queries."""
        return ClusterMetrics(self._client, queries, self.cluster, self.clock)

    def rows(self, name: str, build: Callable[[Queries], str], hour: datetime) -> dict[str, tables.Rows]:
        """The result of a query at the end of one hour, by statistic."""
        (series,) = self.query_hours({name: build}, [hour]).values()
        return tables.rows_at(series, to_epoch_ms(hour + HOUR))

    def raw_samples_around(
        self, selector: str, hour: datetime, kept_size: KeptSize = raw_samples_size
    ) -> AbstractContextManager[list[Series]]:
        """Read the raw samples of an hour and of the time around it (`LOOK_AROUND`), as in `ShardedClient`."""
        return self.raw_samples(selector, hour - LOOK_AROUND, self.look_end(hour), kept_size)

    def look_end(self, hour: datetime) -> datetime:
        """The end of the time around an hour, as far as it is over."""
        return max(hour + HOUR, min(hour + HOUR + LOOK_AROUND, self.clock()))

    def wider_window(self, allocation: "HourScrapes") -> tuple[int, Window] | None:
        """The time and the window in which samples are counted if a scrape gap touches an edge of an hour."""
        return allocation.wider_window(to_epoch_ms(self.look_end(allocation.hour)))


class PartialHourPods(NamedTuple):
    """Pods that held GPUs for a part of the hour only."""

    names: set[tuple[str, str]]
    """Namespace and name."""
    fully_held_nodes: Set[str] = frozenset()
    """Nodes on which one of them may hold all GPUs."""
    all_gpu_pods: Set[tuple[str, str]] = frozenset()
    """All pods that request GPUs; empty if there are no such nodes."""
    gpus: Set[str] = frozenset()
    """UUIDs of GPUs on which one of them had a fraction."""


class HourReading:
    """What is read of one hour. Each family adds its part, and may use those of the families before it.

    Args:
        hour: the hour.
        rows: the results of all queries at the hour's end, by query and statistic.
        allocation: when the allocation source was scraped.
        exporters: when the exporters of the best signals were scraped.
    """

    # From the family of pods:
    pods: "PodTable"
    pod_rows: Mapping[str, RowsByStatistic]
    """The rows about pods: `rows`, or those of a wider time if a scrape gap touches an edge of the hour."""
    partial: list[str]
    """Uids of pods that held GPUs for a part of the hour; those with fractions are among them."""
    # Of nodes:
    nodes: "NodeTable"
    described_nodes: tuple[NodeObservation, ...]
    """With what other sources say about nodes whose labels are not exported."""
    mixed_clusters: tuple[Sequence[str], Sequence[Unexplained]]
    """Notes on labels that divide the nodes like several clusters, and what else does."""
    # Of devices:
    devices: tuple[DeviceSeries, ...]
    partial_pods: PartialHourPods

    def __init__(
        self,
        hour: datetime,
        rows: Mapping[str, RowsByStatistic],
        allocation: "HourScrapes",
        exporters: "ExporterScrapes",
    ) -> None:
        self.hour = hour
        self.rows = rows
        self.covered = allocation
        self.allocation = allocation
        """Spans gaps at the hour's edges, once pods are read."""
        self.exporters = exporters
        self.type_notes: Sequence[str] = ()
        self.device_notes: list[str] = []
        self.scrapes: dict[ScrapeTarget, Scrapes] = {}
        """Of exporters and of collectors of claims."""
        self.vgpus = VirtualGpus()
        self.process_devices: tuple[DeviceSeries, ...] = ()
        self.energy: tuple[EnergySeries, ...] = ()
        self.claiming: list[PodObservation] = []
        self.unexplained_claims: list[Unexplained] = []
        self.admin_namespaces: frozenset[str] | None = None
        self.offered_devices: tuple[OfferedDevice, ...] = ()
        self.contradicted_gpus: Set[tuple[str, str]] = frozenset()

    @cached_property
    def pod_observations(self) -> tuple[PodObservation, ...]:
        """Pods that request GPUs, once all of their samples are read."""
        return self.pods.pods()

    def observation(self, cluster: str, notes: Iterable[str], unexplained: Iterable[Unexplained]) -> Observation:
        """The observation, once all families are read."""
        return Observation(
            cluster=cluster,
            hour=self.hour,
            allocation_scrapes=self.allocation.scrapes,
            pods=(*self.pod_observations, *self.claiming),
            nodes=self.described_nodes,
            devices=self.devices,
            utilization_scrapes=self.scrapes,
            vgpus=self.vgpus,
            collects_nodes=bool(self.rows["nodes"].get("info")),
            collects_capacity=bool(self.rows["nodes"].get("kept")),
            lacks_ends_of_pods=self.pods.lacks_ends,
            contradicted_gpus=frozenset(self.contradicted_gpus),
            process_devices=self.process_devices,
            notes=tuple(dict.fromkeys(notes)),
            unexplained=tuple(unexplained),
            admin_namespaces=self.admin_namespaces if self.claiming else None,
            offered_devices=self.offered_devices,
            energy=self.energy,
        )


class Family:
    """A family of series. Most need only some of these methods."""

    def __init__(self, metrics: ClusterMetrics) -> None:
        self._metrics = metrics

    def queries(self) -> Mapping[str, Query]:
        """Queries that are evaluated in any case, by name."""
        return {}

    def further_queries(self, results: SeriesByQuery, hours_with_gaps: Container[int]) -> Mapping[str, Query]:
        """Queries that the results so far call for. Those that are evaluated already are ignored.

        Args:
            results: for all hours, by query.
            hours_with_gaps: ends of hours in which a scrape gap touches an edge, in milliseconds.
        """
        return {}

    def read(self, reading: HourReading) -> None:
        """Add its part of an hour, with raw samples where the results of queries are not enough."""

    def notes(self, reading: HourReading) -> Iterable[str]:
        """Notes on an hour that all families have read."""
        return ()

    def unexplained(self, reading: HourReading) -> Iterable[Unexplained]:
        """What is not understood in an hour that all families have read."""
        return ()


def chunks(names: Sequence[str], size: int = NAMES_PER_QUERY) -> Iterable[list[str]]:
    """Divide names into lists that one query can select."""
    return (list(names[first : first + size]) for first in range(0, len(names), size))
