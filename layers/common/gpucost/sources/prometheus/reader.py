"""Reads observations from Prometheus: six queries for a plain hour, a closer look only where something came or went."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from gpucost.core.errors import MetricsResponseError
from gpucost.core.hours import HOUR, format_timestamp, to_epoch_ms
from gpucost.core.intervals import Interval, Scrapes
from gpucost.core.metering.observations import LOOK_AROUND_MS, DeviceSeries, Instance, Observation
from gpucost.sources.prometheus import scrapes as heartbeats
from gpucost.sources.prometheus import tables
from gpucost.sources.prometheus.claims import claiming_pods, unreported_claims
from gpucost.sources.prometheus.client import PrometheusClient, Series
from gpucost.sources.prometheus.device_counts import instances_with_uneven_counts
from gpucost.sources.prometheus.devices import DeviceTable, batches_of_names
from gpucost.sources.prometheus.memory_budget import MemoryBudget
from gpucost.sources.prometheus.multiple_jobs import notes_on_missing_objects
from gpucost.sources.prometheus.nodes import METRICS, NodeTable
from gpucost.sources.prometheus.pods import PodTable, pods_not_running
from gpucost.sources.prometheus.queries import HOUR_WINDOW, UNLABELED, PodMatcher, Queries, Window
from gpucost.sources.prometheus.scrape_times import EDGE, ExporterScrapes, ScrapeTimes
from gpucost.sources.prometheus.sharding import ShardedClient

LOOK_AROUND = timedelta(milliseconds=LOOK_AROUND_MS)
NAMES_PER_QUERY = 400
SAMPLES_PER_QUERY = 400_000
"""Some 10 MB of answer: far below AMP's 50 MB, and little memory."""

Rows = Mapping[str, tables.Rows]
QueryBuilders = dict[str, Callable[[Queries], str]]
"""Queries by name."""


class PartialHourPods(NamedTuple):
    """Pods that were not there all hour."""

    names: set[tuple[str, str]]
    """Namespace and name."""
    whole_nodes: set[str]
    """Nodes of which one of them may hold all GPUs."""
    holders: set[tuple[str, str]]
    """All pods that request GPUs, the others too; where there are such nodes."""


class PrometheusReader:
    """Fulfils `ports.MetricsReader` for one cluster.

    Args:
        client: asks the cluster's Prometheus.
        queries: the cluster's queries.
        cluster: its name.
        clock: the time now; nothing is asked of the future.
        budget: the client's, for the answers about hours that are asked for together.
        pod_labels: whether anything in the settings needs pods' labels.
        namespace_labels: likewise namespaces'.
    """

    def __init__(
        self,
        client: PrometheusClient,
        queries: Queries,
        *,
        cluster: str,
        clock: Callable[[], datetime],
        budget: MemoryBudget,
        pod_labels: bool = False,
        namespace_labels: bool = False,
    ) -> None:
        self._client = ShardedClient(client, queries, budget)
        self._budget = budget
        self._retention = client.retention
        self._scrape_times = ScrapeTimes(self._client, queries)
        self._queries = queries
        self._cluster = cluster
        self._clock = clock
        self._pod_labels = pod_labels
        self._namespace_labels = namespace_labels

    def retention(self) -> timedelta | None:
        """How long the server keeps samples, where it tells."""
        return self._retention()

    def observe(self, hours: Sequence[datetime]) -> list[Observation]:
        """The observations of consecutive hours: one set of range queries for all of them.

        Raises:
            MetricsUnavailableError, MetricsResponseError: as the client; nothing is concluded from half an answer.
        """
        self._budget.reset()
        try:
            return self._observe(hours)
        except (ValueError, ArithmeticError, KeyError) as error:
            since = format_timestamp(hours[0])
            raise MetricsResponseError(
                f"cluster {self._cluster}: Prometheus answered something unusable for {since} on: {error}"
            ) from error

    def _observe(self, hours: Sequence[datetime]) -> list[Observation]:
        asked: QueryBuilders = {  # the longest first: two are asked at once
            "devices": lambda queries: queries.devices(0),
            "requests": lambda queries: queries.requests(),
            "owners": lambda queries: queries.owners(),
            "running": lambda queries: queries.running(),
            "nodes": lambda queries: queries.nodes(),
        }
        if self._pod_labels or self._namespace_labels:
            asked["labels"] = self._labels
        answers = self._client.query_hours(asked, hours)
        scrapes = self._scrape_times.allocation_scrapes(
            [*answers["requests"], *answers["nodes"]], hours[0] - LOOK_AROUND, self._look_end(hours[-1])
        )
        allocation = [heartbeats.hour_scrapes(scrapes, hour) for hour in hours]
        cut = {to_epoch_ms(one.hour + HOUR) for one in allocation if self._wider(one)}
        closer = self._of_others(answers, cut) | self._of_uneven(0, answers["devices"], "device counts")
        answers |= self._client.query_hours(closer, hours)
        devices = [*answers["devices"], *answers.get("device counts", [])]
        exporters = self._scrape_times.exporter_scrapes(devices, hours, self._clock())
        return [
            self._hour(
                {name: tables.at_hour(series, to_epoch_ms(one.hour + HOUR)) for name, series in answers.items()},
                one,
                exporters,
            )
            for one in allocation
        ]

    def _hour(self, rows: dict[str, Rows], allocation: heartbeats.HourScrapes, exporters: ExporterScrapes) -> Observation:
        hour = allocation.hour
        nodes = NodeTable(rows["nodes"], _nodes_named(rows["devices"], rows["requests"]))
        self._look_at_nodes(nodes, allocation)
        allocation, rows = self._look_across_edges(allocation, rows)
        pods = PodTable(
            rows["requests"], (labels for labels, _ in rows["running"].get(UNLABELED, [])), rows.get("phases", {})
        )
        pods.add_owners(rows["owners"])
        pods.labels.add(rows.get("labels", {}))
        passing = self._look_at_pods(pods, allocation)
        whole = pods.nodes_held_whole(passing, nodes.advertised)
        devices, scrapes, device_notes = self._devices(
            {**rows["devices"], **rows.get("device counts", {})},
            nodes,
            PartialHourPods(pods.names(passing), whole, pods.names(pods.uids()) if whole else set()),
            hour,
            dict(exporters.around_hour(hour)),
        )
        claiming = claiming_pods(devices, rows["owners"].get("claim", []))
        device_notes += unreported_claims(rows["owners"].get("claim", []), claiming)
        found, node_observations = pods.pods(), nodes.nodes()
        suspect = [*pods.labels.notes]
        if not self._queries.sources.has_matchers("kube_state_metrics"):
            suspect += notes_on_missing_objects(nodes, pods, allocation)
        return Observation(
            cluster=self._cluster,
            hour=hour,
            allocation=allocation.scrapes,
            pods=(*found, *claiming),
            nodes=node_observations,
            devices=devices,
            utilization=scrapes,
            collects_nodes=bool(rows["nodes"].get("info")),
            collects_capacity=bool(rows["nodes"].get("kept")),
            notes=tuple(dict.fromkeys([*suspect, *nodes.notes, *_mixed(rows["nodes"]), *device_notes])),
        )

    def _look_across_edges(
        self, allocation: heartbeats.HourScrapes, rows: dict[str, Rows]
    ) -> tuple[heartbeats.HourScrapes, dict[str, Rows]]:
        """Where scrapes end short of an edge of the hour, count up to the next ones beyond it: two queries for all
        pods instead of a closer look at each, and two more where nothing stands at the hour's end."""
        wider = self._wider(allocation)
        if wider is None:
            return allocation, rows
        at, window = wider
        asked: QueryBuilders = {
            "requests": lambda queries: queries.requests(window),
            "running": lambda queries: queries.running(window),
        }
        if at > to_epoch_ms(allocation.hour + HOUR):
            asked["owners"] = lambda queries: queries.owners()
            if "labels" in rows:
                asked["labels"] = self._labels
        answers = self._client.query_at(asked, at)
        answers |= self._client.query_at(self._of_others(answers, set(), window), at)
        allocation = heartbeats.hour_scrapes(allocation.scrapes, allocation.hour, Interval(at - window.length, at))
        return allocation, rows | {name: tables.at_hour(series, at) for name, series in answers.items()}

    def _wider(self, allocation: heartbeats.HourScrapes) -> tuple[int, Window] | None:
        return allocation.wider_window(to_epoch_ms(self._look_end(allocation.hour)))

    def _of_others(
        self, answers: Mapping[str, Sequence[Series]], but: Container[int], window: Window = HOUR_WINDOW
    ) -> QueryBuilders:
        """The phases of pods that are not told to run at both ends, where there are any; `but` as in `not_running`."""
        others = pods_not_running(answers["requests"], answers["running"], but)
        by_uid = others if len(others) <= NAMES_PER_QUERY and not any("/" in uid for uid in others) else set()
        return {"phases": lambda queries: queries.phases(window, sorted(by_uid))} if others else {}

    def _of_uneven(self, rank: int, devices: Iterable[Series], name: str) -> QueryBuilders:
        """The samples of each series of exporters whose series have not all as many, where there are any."""
        found = instances_with_uneven_counts(devices)
        named = sorted(found) if len(found) <= NAMES_PER_QUERY else []
        return {name: lambda queries: queries.device_counts(rank, named)} if found else {}

    def _labels(self, queries: Queries) -> str:
        return queries.labels(of_pods=self._pod_labels, of_namespaces=self._namespace_labels) or ""

    def _look_at_nodes(self, nodes: NodeTable, allocation: heartbeats.HourScrapes) -> None:
        for names in _chunks(nodes.needing_raw_samples(allocation.covers_hour, allocation.expected)):
            queries = [self._queries.node_metrics(names, METRICS, label) for label in nodes.name_labels]
            nodes.add_raw_samples(names, [one for query in queries for one in self._raw(query, allocation.hour)])

    def _look_at_pods(self, pods: PodTable, allocation: heartbeats.HourScrapes) -> Sequence[str]:
        """Look at pods that were not there all hour; returns their uids."""
        uncertain = pods.needing_raw_samples(allocation.covers_hour)
        for uids in _chunks([uid for uid in uncertain if "/" not in uid]):
            self._look_at_some(pods, uids, PodMatcher("uid", tuple(uids)), allocation.hour)
        for uids in _chunks([uid for uid in uncertain if "/" in uid]):
            label: Literal["pod", "exported_pod"] = "pod" if pods.name_label == "pod" else "exported_pod"
            names = PodMatcher(label, tuple(uid.split("/")[1] for uid in uids))
            self._look_at_some(pods, uids, names, allocation.hour)
        for kind, owners in pods.missing_owners(uncertain).items():
            stat: Literal["replicaset", "job"] = "replicaset" if kind == "replicaset" else "job"
            for some in _chunks(sorted(owners)):
                answer = self._raw(self._queries.owner_metrics(stat, some), allocation.hour)
                pods.add_owners({stat: [(one.labels, tables.number("1")) for one in answer]})
        return uncertain

    def _look_at_some(self, pods: PodTable, uids: Sequence[str], names: PodMatcher, hour: datetime) -> None:
        pods.add_raw_samples(uids, self._raw(self._queries.pod_metrics(names, labels=self._pod_labels), hour))

    def _devices(
        self,
        rows: Rows,
        nodes: NodeTable,
        passing: "PartialHourPods",
        hour: datetime,
        exporters: dict[Instance, Scrapes],
    ) -> tuple[tuple[DeviceSeries, ...], dict[Instance, Scrapes], list[str]]:
        """Series of the best signal, and of the next best for nodes that do not tell that; and their exporters."""
        series: list[DeviceSeries] = []
        notes: list[str] = []
        names = nodes.by_instance_id()
        table = DeviceTable(0, self._queries.signals[0], rows, names)
        told = table.nodes()
        label = tables.common_label(table.labels, ("Hostname", "hostname"))
        self._look_at_devices(table, exporters, passing, hour)
        series.extend(table.series())
        for rank in range(1, len(self._queries.signals)):
            silent = sorted(nodes.with_gpus() - told)
            if not silent:
                break
            table = self._next_best(rank, silent[:NAMES_PER_QUERY] if label and told else [], label, names, hour)
            table.keep_nodes(set(silent))
            told |= table.nodes()
            exporters |= self._scrape_times.rank_scrapes(table.rank, table.densest(), [hour], self._clock())
            self._look_at_devices(table, exporters, passing, hour)
            series.extend(table.series())
            if table.labels:
                notes.append(
                    f"utilization of {len(table.nodes())} nodes is read off {table.signal_names()}: they do not tell "
                    f"{self._queries.signals[0][0].name}"
                )
        return tuple(series), exporters, notes

    def _next_best(
        self, rank: int, only: Sequence[str], label: str, names: Mapping[str, str], hour: datetime
    ) -> DeviceTable:
        asked: QueryBuilders = {f"devices {rank}": lambda queries: queries.devices(rank, only, label)}
        (answer,) = self._client.query_hours(asked, [hour]).values()
        counts = self._client.query_hours(self._of_uneven(rank, answer, f"device counts {rank}"), [hour])
        told = [one for some in (answer, *counts.values()) for one in some]
        return DeviceTable(rank, self._queries.signals[rank], tables.at_hour(told, to_epoch_ms(hour + HOUR)), names)

    def _look_at_devices(
        self, table: DeviceTable, exporters: Mapping[Instance, Scrapes], passing: "PartialHourPods", hour: datetime
    ) -> None:
        window = Interval(to_epoch_ms(hour), to_epoch_ms(hour + HOUR))
        unlabelled = passing.whole_nodes - table.nodes_with(passing.holders)
        for label, samples in table.needing_raw_samples(exporters, window, passing.names, unlabelled).items():
            for names in batches_of_names(samples, SAMPLES_PER_QUERY, NAMES_PER_QUERY):
                for query in self._queries.device_selectors(table.rank, label, names):
                    table.add_raw_samples(self._client.raw_samples(query, hour - EDGE, hour + HOUR), window)

    def _raw(self, selector: str, hour: datetime) -> list[Series]:
        return self._client.raw_samples(selector, hour - LOOK_AROUND, self._look_end(hour))

    def _look_end(self, hour: datetime) -> datetime:
        return max(hour + HOUR, min(hour + HOUR + LOOK_AROUND, self._clock()))


def _nodes_named(devices: Rows, requests: Rows) -> set[str]:
    """Nodes that exporters saw GPUs on, or on which pods request some."""
    named = {labels.get("Hostname") or labels.get("hostname", "") for labels, _ in _any(devices)}
    return named | {tables.exported_label(labels, "node") for labels, _ in _any(requests)}


def _any(rows: Rows) -> Iterable[tuple[tables.Labels, object]]:
    return (row for some in rows.values() for row in some)


def _mixed(rows: Rows) -> list[str]:
    """A warning where several clusters' series came in answer."""
    for label in ("cluster", "cluster_name", "k8s_cluster", "eks_cluster"):
        names = sorted({labels[label] for labels, _ in _any(rows) if labels.get(label)})
        if len(names) > 1:
            shown = ", ".join(names[:3])
            return [f"series of several clusters ({label}: {shown}) are taken for one: set selector to tell them apart"]
    return []


def _chunks(names: Sequence[str], most: int = NAMES_PER_QUERY) -> Iterable[list[str]]:
    return (list(names[at : at + most]) for at in range(0, len(names), most))
