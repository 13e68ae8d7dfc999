"""Reads observations from Prometheus: six queries for a plain hour, a closer look only where something came or went."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Literal

from gpucost.adapters.prometheus import beats as heartbeats
from gpucost.adapters.prometheus import tables
from gpucost.adapters.prometheus.client import PrometheusClient, Series
from gpucost.adapters.prometheus.devices import devices
from gpucost.adapters.prometheus.nodes import CAPACITY, INFO, NodeTable
from gpucost.adapters.prometheus.pods import PodTable
from gpucost.adapters.prometheus.queries import STAT, PodNames, Queries
from gpucost.domain.hours import HOUR, format_instant, to_ms
from gpucost.domain.observations import Heartbeat, Instance, Observation
from gpucost.errors import MetricsAnswerError

LOOK_AROUND = timedelta(hours=1)
"""How far beyond an hour's edges samples are looked for: gaps up to this long are bridged."""
NAMES_PER_QUERY = 200
QUERIES_AT_ONCE = 2
"""One is read while the next is worked on; more would only press on the workspace."""

Answers = Mapping[str, Sequence[Series]]
Rows = Mapping[str, tables.Rows]


class PrometheusReader:
    """Fulfils `ports.MetricsReader` for one cluster.

    Args:
        client: asks the cluster's Prometheus.
        queries: the cluster's queries.
        cluster: its name.
        clock: the time now; nothing is asked of the future.
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
        pod_labels: bool = False,
        namespace_labels: bool = False,
    ) -> None:
        self._client = client
        self._queries = queries
        self._cluster = cluster
        self._clock = clock
        self._pod_labels = pod_labels
        self._namespace_labels = namespace_labels

    def retention(self) -> timedelta | None:
        """How long the server keeps samples, where it tells."""
        return self._client.retention()

    def observe(self, hours: Sequence[datetime]) -> list[Observation]:
        """The observations of consecutive hours: one set of range queries for all of them.

        Raises:
            MetricsUnavailableError, MetricsAnswerError: as the client; nothing is concluded from half an answer.
        """
        try:
            return self._observe(hours)
        except (ValueError, OverflowError) as error:
            since = format_instant(hours[0])
            raise MetricsAnswerError(
                f"cluster {self._cluster}: Prometheus answered something unusable for {since} on: {error}"
            ) from error

    def _observe(self, hours: Sequence[datetime]) -> list[Observation]:
        first, last = hours[0] + HOUR, hours[-1] + HOUR
        queries = {
            "requests": self._queries.requests(),
            "phases": self._queries.phases(),
            "nodes": self._queries.nodes(),
            "owners": self._queries.owners(),
            "devices": self._queries.devices(),
            "labels": self._queries.labels(of_pods=self._pod_labels, of_namespaces=self._namespace_labels),
        }
        asked = {name: query for name, query in queries.items() if query}
        with ThreadPoolExecutor(QUERIES_AT_ONCE) as pool:
            results = pool.map(lambda query: self._client.query_range(query, first, last), asked.values())
            answers = dict(zip(asked, results, strict=True))
        start, end = hours[0] - LOOK_AROUND, self._look_end(hours[-1])
        allocation = self._scrapes([*answers["requests"], *answers["nodes"]], self._beat_of_allocation, start, end)
        utilization = self._scrapes(_densest(answers["devices"]), self._beat_of_device, start, end)
        return [
            self._hour(
                {name: tables.at_hour(series, to_ms(hour + HOUR)) for name, series in answers.items()},
                heartbeats.around(allocation, hour),
                heartbeats.around(utilization, hour),
            )
            for hour in hours
        ]

    def _hour(
        self, rows: Mapping[str, Rows], allocation: heartbeats.HourBeats, utilization: heartbeats.HourBeats
    ) -> Observation:
        hour = allocation.hour
        seen_devices = devices(rows["devices"])
        pods = PodTable(rows["requests"], rows["phases"].get("", []))
        nodes = NodeTable(rows["nodes"], {device.node for device in seen_devices})
        pods.add_owners(rows["owners"])
        pods.add_labels(rows.get("labels", {}))
        uncertain = pods.uncertain(allocation.is_whole)
        for uids in _chunks([uid for uid in uncertain if "/" not in uid]):
            self._look_at_pods(pods, uids, PodNames("uid", tuple(uids)), hour)
        for uids in _chunks([uid for uid in uncertain if "/" in uid]):
            label: Literal["pod", "exported_pod"] = "pod" if pods.name_label == "pod" else "exported_pod"
            self._look_at_pods(pods, uids, PodNames(label, tuple(uid.split("/")[1] for uid in uids)), hour)
        for metric, names in nodes.uncertain(allocation.is_whole).items():
            for some in _chunks(names):
                nodes.look_closer(metric, self._raw(self._queries.nodes_of(some, metric, nodes.name_label), hour))
        return Observation(
            cluster=self._cluster,
            hour=hour,
            heartbeat=Heartbeat(allocation.scrapes),
            pods=pods.pods(),
            nodes=nodes.nodes(),
            devices=seen_devices,
            device_scrapes=utilization.scrapes,
        )

    def _look_at_pods(self, pods: PodTable, uids: Sequence[str], names: PodNames, hour: datetime) -> None:
        requests = {init: self._raw(self._queries.requests_of(names, init=init), hour) for init in (False, True)}
        pods.look_closer(uids, requests, self._raw(self._queries.phases_of(names), hour))
        pods.add_owners({"pod": _as_rows(self._raw(self._queries.owners_of(names), hour))})
        if self._pod_labels:
            pods.add_labels({"pod": _as_rows(self._raw(self._queries.labels_of(names), hour))})

    def _scrapes(
        self,
        series: Sequence[Series],
        beat: Callable[[Sequence[Series]], str],
        start: datetime,
        end: datetime,
    ) -> dict[Instance, tuple[int, ...]]:
        """Scrape times of the instances that series are from: `up` where it is kept, else their densest series."""
        by_instance: dict[Instance, list[Series]] = {}
        for one in series:
            by_instance.setdefault(tables.instance(one.labels), []).append(one)
        named = [runs[0].labels for runs in by_instance.values() if runs[0].labels.get("instance")]
        found: dict[Instance, tuple[int, ...]] = {}
        if named:
            up = self._queries.up({labels.get("job", "") for labels in named}, {labels["instance"] for labels in named})
            answer = self._client.raw_samples(up, start, end)
            found = heartbeats.merge(
                (tables.instance(one.labels), [at for at, value in one.samples if value == "1"]) for one in answer
            )
        for who, runs in by_instance.items():
            if who not in found:
                answer = self._client.raw_samples(beat(runs), start, end)
                own = [one for one in answer if tables.instance(one.labels) == who]
                found |= heartbeats.merge((who, [at for at, _ in one.samples]) for one in own)
        return {who: times for who, times in found.items() if who in by_instance}

    def _beat_of_allocation(self, series: Sequence[Series]) -> str:
        densest = _densest(series)[0].labels
        metric = {"info": INFO, "advertised": CAPACITY}.get(densest.get(STAT, ""))
        if metric:
            label = tables.label_of([densest], "node")
            return self._queries.nodes_of([densest.get(label, "")], metric, label)
        uid = densest.get("uid")
        return self._queries.one_pod(
            PodNames("uid", (uid,)) if uid else PodNames("pod", (tables.told(densest, "pod"),))
        )

    def _beat_of_device(self, series: Sequence[Series]) -> str:
        labels = _densest(series)[0].labels
        return self._queries.one_device({name: value for name, value in labels.items() if name != STAT})

    def _raw(self, selector: str, hour: datetime) -> list[Series]:
        return self._client.raw_samples(selector, hour - LOOK_AROUND, self._look_end(hour))

    def _look_end(self, hour: datetime) -> datetime:
        return max(hour + HOUR, min(hour + HOUR + LOOK_AROUND, self._clock()))


def _densest(series: Iterable[Series]) -> list[Series]:
    """The series that counts most samples, as a list of at most one."""
    counted = [one for one in series if one.labels.get(STAT, "") in {"count", "init-count", "info", "advertised"}]
    best = max(counted, key=lambda one: sum(float(value) for _, value in one.samples), default=None)
    return [] if best is None else [best]


def _as_rows(series: Iterable[Series]) -> tables.Rows:
    return [(one.labels, tables.number(one.samples[-1][1])) for one in series]


def _chunks(names: Sequence[str]) -> Iterable[list[str]]:
    return (list(names[at : at + NAMES_PER_QUERY]) for at in range(0, len(names), NAMES_PER_QUERY))
