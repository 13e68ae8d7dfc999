"""Device series in one hour: utilization signals with the pod in their labels, energy counters and power."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from msgspec import Struct

from gpucost.core.amounts import is_amount
from gpucost.core.hours import HOUR, to_epoch_ms
from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.accelerators import NVIDIA, Accelerator, accelerator_of_signal, accelerator_of_vendor
from gpucost.core.metering.contradictions import exporter_of
from gpucost.core.metering.energy import ENERGY_COUNTERS
from gpucost.core.metering.fraction_schedulers import FRACTION_SCHEDULERS, fraction_gpu
from gpucost.core.metering.observations import DeviceSeries, EnergySeries, ScrapeTarget
from gpucost.core.metering.signals import PROCESS_FAMILY, SIGNALS, Signal
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.families import (
    NAMES_PER_QUERY,
    SAMPLES_PER_QUERY,
    ClusterMetrics,
    Family,
    HourReading,
    PartialHourPods,
    Query,
    SeriesByQuery,
)
from gpucost.sources.prometheus.memory_budget import device_samples_size
from gpucost.sources.prometheus.queries import (
    COUNTS,
    ENERGY,
    ENERGY_SAMPLES,
    NO_STATISTIC_LABEL,
    SAMPLES,
    STATISTIC_LABEL,
    Queries,
)
from gpucost.sources.prometheus.scrapes import SCRAPE_MARGIN, SELECTABLE_LABELS
from gpucost.sources.prometheus.tables import (
    Labels,
    Rows,
    exported_label,
    first_common_label_name,
    parse_number,
    rows_at,
    scrape_target,
    take_turns,
    to_sample_count,
)

DeviceKey = tuple[str, str, str]
_SeriesKey = tuple[str, frozenset[tuple[str, str]]]
_LOOKBACK_DELTA_MS = 300_000
"""Samples from this long before the hour apply to its first moments."""
_NODE_LABELS = ("Hostname", "hostname", "node", "kubernetes_node", "nodename")


class Devices(Family):
    """Devices by their best signal, and by the next best where they have none of it.

    Args:
        per_process: whether the settings need the utilization of processes on shared GPUs.
    """

    def __init__(self, metrics: ClusterMetrics, *, per_process: bool) -> None:
        super().__init__(metrics)
        self._signals = metrics.queries.signals
        self._per_process = per_process

    def queries(self) -> Mapping[str, Query]:
        """The devices with the best signal."""
        return {"devices": Query(lambda queries: queries.devices(0))}

    def further_queries(self, results: SeriesByQuery, hours_with_gaps: Container[int]) -> Mapping[str, Query]:
        """Sample counts of exporters whose series differ in them."""
        counts = _counts_query(0, results["devices"])
        return {"device counts": Query(counts)} if counts else {}

    def read(self, reading: HourReading) -> None:
        """Read the devices, with single samples where pods held them for a part of the hour."""
        pods, nodes = reading.pods, reading.nodes
        gpus_of_pod = reading.vgpus.gpus_of_pod
        fully_held_nodes = pods.fully_held_nodes(reading.partial, nodes.advertised_units)
        fully_held_nodes |= pods.nodes_with_fractions(reading.partial, except_names=gpus_of_pod)
        partial = reading.partial_pods = PartialHourPods(
            pods.names(reading.partial),
            fully_held_nodes,
            pods.names(pods.uids()) if fully_held_nodes else set(),
            {uuid for name in pods.names(reading.partial) for uuid in gpus_of_pod.get(name, ())},
        )
        exporters = dict(reading.exporters.around_hour(reading.hour))
        names = nodes.by_instance_id()
        rows = {**reading.rows["devices"], **reading.rows.get("device counts", {})}
        table = DeviceTable(0, self._signals[0], rows, names)
        gpus_by_node = table.gpus_by_node()
        label = first_common_label_name(table.labels, ("Hostname", "hostname"))
        read_device_samples(self._metrics, table, exporters, partial, reading.hour)
        series = [*table.series()]
        reading.device_notes += _notes_on_services(table)
        by_rank = {0: table}
        for rank in range(1, len(self._signals)):
            without = nodes.with_missing_gpus(gpus_by_node)
            if not without:
                break
            has_names = label and gpus_by_node and len(without) <= NAMES_PER_QUERY
            table = self._table_of_rank(rank, sorted(without) if has_names else [], label, names, reading.hour)
            table.keep_missing_gpus(without, gpus_by_node)
            exporters |= self._metrics.scrape_times.rank_scrapes(
                rank, table.densest_series(), [reading.hour], self._metrics.clock()
            )
            read_device_samples(self._metrics, table, exporters, partial, reading.hour)
            series.extend(table.series())
            reading.device_notes += _fallback_notes(table, gpus_by_node, self._signals[0][0].name)
            by_rank[rank] = table
            for node, gpus in table.gpus_by_node().items():
                gpus_by_node.setdefault(node, set()).update(gpus)
        reading.process_devices = tuple(self._of_processes(by_rank, label, names, reading, exporters))
        reading.devices = tuple(series)
        reading.scrapes = exporters | reading.scrapes

    def _of_processes(
        self,
        by_rank: Mapping[int, "DeviceTable"],
        label: str,
        names: Mapping[str, str],
        reading: HourReading,
        exporters: Mapping[ScrapeTarget, Scrapes],
    ) -> Iterable[DeviceSeries]:
        """Series of the signal that exporters report per process, of nodes with shared GPUs."""
        hosts: dict[str, str] = {}
        for table in by_rank.values() if self._per_process else ():
            hosts |= table.hosts_with_slots(label)
        if not hosts:
            return
        rank = next(
            rank
            for rank, signals in enumerate(self._signals)
            if any(signal.family == PROCESS_FAMILY and signal.name in SIGNALS for signal in signals)
        )
        # A table of a lower rank lacks the devices that have a better signal.
        of_better_ranks = {node for better in by_rank if better < rank for node in by_rank[better].nodes()}
        whole = by_rank[rank].nodes() - of_better_ranks if rank in by_rank else set[str]()
        if whole:
            yield from by_rank[rank].series(whole & hosts.keys())
        others = hosts.keys() - whole
        if others:
            only = sorted({hosts[node] for node in others}) if label and len(others) <= NAMES_PER_QUERY else []
            table = self._table_of_rank(rank, only, label, names, reading.hour)
            table.keep_nodes(others)
            read_device_samples(self._metrics, table, exporters, reading.partial_pods, reading.hour)
            yield from table.series()

    def _table_of_rank(
        self, rank: int, only: Sequence[str], label: str, names: Mapping[str, str], hour: datetime
    ) -> "DeviceTable":
        """Devices by a signal of a lower rank, of some nodes or of all."""
        name = f"devices {rank}"
        devices = self._metrics.query_hours({name: lambda queries: queries.devices(rank, only, label)}, [hour])[name]
        counts = _counts_query(rank, devices)
        if counts:
            name = f"device counts {rank}"
            devices = [*devices, *self._metrics.query_hours({name: counts}, [hour])[name]]
        return DeviceTable(rank, self._signals[rank], rows_at(devices, to_epoch_ms(hour + HOUR)), names)


def _counts_query(rank: int, devices: Iterable[Series]) -> Callable[[Queries], str] | None:
    """A query for the sample counts of exporters whose series differ in them; None if no exporter does."""
    uneven = instances_with_uneven_counts(devices)
    instances = sorted(uneven) if len(uneven) <= NAMES_PER_QUERY else []
    return (lambda queries: queries.device_counts(rank, instances)) if uneven else None


def read_device_samples(
    metrics: ClusterMetrics,
    table: "DeviceTable",
    exporters: Mapping[ScrapeTarget, Scrapes],
    partial: PartialHourPods,
    hour: datetime,
) -> None:
    """Add raw samples of devices whose sums and counts are not enough."""
    window = IntervalMs(to_epoch_ms(hour), to_epoch_ms(hour + HOUR))
    unlabeled_nodes = partial.fully_held_nodes - table.nodes_with_pods(partial.all_gpu_pods)
    needed = table.needing_raw_samples(exporters, window, partial.names, unlabeled_nodes, partial.gpus)
    for label, samples in needed.items():
        for names in batches_of_label_values(samples, SAMPLES_PER_QUERY, NAMES_PER_QUERY):
            for selector in metrics.queries.device_selectors(table.rank, label, names):
                with metrics.raw_samples(selector, hour - SCRAPE_MARGIN, hour + HOUR, device_samples_size) as series:
                    table.add_raw_samples(series, window)


def _notes_on_services(table: "DeviceTable") -> list[str]:
    """A note for each target whose scrapes are answered by the exporters of several nodes in turn."""
    return [
        f"one target ({exporter_of(target)}) reports the devices of {len(nodes)} nodes in turn (the first is "
        f"{min(nodes)!r}), so that most of their use is unmeasured: its Service sends each scrape to another pod. "
        "Scrape the exporter's pods (PodMonitor, or kubernetes_sd_configs with role: pod), not the Service's address"
        for target, nodes in sorted(table.nodes_in_turn().items())
    ]


def _fallback_notes(table: "DeviceTable", better: Mapping[str, Container[str]], signal: str) -> list[str]:
    """Which nodes and devices are measured by another signal.

    Args:
        table: the devices of the other signal.
        better: the GPUs that have a better signal, by node.
        signal: the signal that the settings name.
    """
    gpus = table.gpus_by_node()
    whole = [node for node in gpus if node not in better]
    parts = {node: len(gpus[node]) for node in gpus if node in better}
    notes = []
    if whole:
        notes.append(f"utilization of {len(whole)} nodes is from {table.signal_names()}, because they have no {signal}")
    if parts:
        first = min(parts)
        others = f" and {len(parts) - 1} other nodes" if len(parts) > 1 else ""
        notes.append(
            f"utilization of {sum(parts.values())} GPUs of node {first!r}{others} is from {table.signal_names()}, "
            f"because they have no {signal}, which other GPUs of the same node have"
        )
    return notes


class _DeviceSeriesRow(Struct):
    signal: Signal
    labels: Labels
    key: DeviceKey
    target: ScrapeTarget
    pod: tuple[str, str]
    profile: str
    model: str
    vendor: str = NVIDIA
    sample_count: int = 0
    sample_sum: Decimal = Decimal(0)
    has_implausible_peak: bool = False
    raw_samples: tuple[tuple[int, Decimal], ...] | None = None


class DeviceTable:
    """Collects series of signals, and determines of which devices the raw samples are needed.

    Args:
        rank: the signals' rank.
        signals: the signals of the rank.
        rows: results of `Queries.devices` and, where it was queried, `Queries.device_counts`, by statistic.
        nodes: names of nodes, by name and by EC2 instance id.
    """

    def __init__(
        self, rank: int, signals: Sequence[Signal], rows: Mapping[str, Rows], nodes: Mapping[str, str]
    ) -> None:
        self.rank = rank
        self._signals = {signal.name: signal for signal in signals}
        self._nodes = nodes
        self._rows: list[_DeviceSeriesRow] = []
        self._by_labels: dict[_SeriesKey, _DeviceSeriesRow] = {}
        counts = uniform_counts(rows)
        for name in self._signals:
            sums = rows.get(NO_STATISTIC_LABEL if name == signals[0].name else f"sum {name}", [])
            for labels, value in sums:
                if self._is_meaningful(name, labels):
                    row = self._add_row(name, labels)
                    row.sample_sum = value
                    row.sample_count = counts.get((name, row.target), 0)
            for labels, value in rows.get(f"count {name}", []):
                if self._is_meaningful(name, labels):
                    self._find_or_add_row(name, labels).sample_count = to_sample_count(value)
            for labels, _ in rows.get(f"peak {name}", []):
                if self._is_meaningful(name, labels):
                    self._find_or_add_row(name, labels).has_implausible_peak = True

    @property
    def labels(self) -> list[Labels]:
        """The labels of every series."""
        return [row.labels for row in self._rows]

    def nodes(self) -> set[str]:
        """Names of nodes with devices."""
        return {row.key[0] for row in self._rows}

    def nodes_with_pods(self, pods: Container[tuple[str, str]]) -> set[str]:
        """Names of nodes with a device that is labeled with one of some pods."""
        return {row.key[0] for row in self._rows if row.pod in pods}

    def hosts_with_slots(self, label: str) -> dict[str, str]:
        """Nodes with replicas of shared devices, which exporters in virtual-GPU mode report one by one.

        Args:
            label: the label whose value is returned for each node.
        """
        return {row.key[0]: row.labels.get(label, "") for row in self._rows if row.labels.get("vgpu")}

    def gpus_by_node(self) -> dict[str, set[str]]:
        """UUIDs of the devices of each node. Partitions of a GPU have its UUID."""
        gpus: dict[str, set[str]] = defaultdict(set)
        for row in self._rows:
            key = row.key
            gpus[key[0]].add(key[1])
        return gpus

    def keep_nodes(self, nodes: Container[str]) -> None:
        """Remove devices of other nodes."""
        self._rows = [row for row in self._rows if row.key[0] in nodes]

    def keep_gpus(self, gpus: Container[tuple[str, str]]) -> None:
        """Remove devices of other GPUs than some (node, UUID)."""
        self._rows = [row for row in self._rows if row.key[:2] in gpus]

    def keep_missing_gpus(self, nodes: Container[str], others: Mapping[str, Container[str]]) -> None:
        """Remove devices of other nodes, and those that another signal measures.

        Args:
            nodes: names of nodes.
            others: UUIDs of the devices that another signal measures, by node.
        """
        self._rows = [row for row in self._rows if row.key[0] in nodes and row.key[1] not in others.get(row.key[0], ())]

    def signal_names(self) -> str:
        """The signals that have series."""
        return ", ".join(sorted({row.signal.name for row in self._rows}))

    def nodes_in_turn(self) -> dict[ScrapeTarget, set[str]]:
        """Targets whose scrapes are answered by the exporters of several nodes in turn, with the nodes.

        A Service sends each scrape to another pod. So no scrape has devices of two nodes, and their times overlap.
        """
        pairs = {(row.target, row.key[0]) for row in self._rows}
        nodes = Counter(target for target, _ in pairs)
        if len(nodes) == len(pairs):
            return {}
        times: dict[ScrapeTarget, dict[str, set[int]]] = {}
        for row in self._rows:
            if nodes[row.target] > 1 and row.raw_samples:  # every device of such a target lacks samples
                of_target = times.setdefault(row.target, {})
                of_target.setdefault(row.key[0], set()).update(time for time, _ in row.raw_samples)
        return {target: set(by_node) for target, by_node in times.items() if take_turns([*by_node.values()])}

    def densest_series(self) -> dict[ScrapeTarget, Labels]:
        """By exporter, the labels of the series with most samples."""
        densest: dict[ScrapeTarget, _DeviceSeriesRow] = {}
        for row in self._rows:
            if row.target not in densest or row.sample_count > densest[row.target].sample_count:
                densest[row.target] = row
        return {exporter: row.labels for exporter, row in densest.items()}

    def needing_raw_samples(
        self,
        scrapes: Mapping[ScrapeTarget, Scrapes],
        hour: IntervalMs,
        partial_pods: Container[tuple[str, str]],
        fully_held_nodes: Container[str] = (),
        partial_gpus: Container[str] = (),
    ) -> dict[str, dict[str, int]]:
        """Devices whose sums and counts are not enough, by label name and label value, each with its sample count.

        These are devices that are not in every scrape of their exporter; whose scrape interval changed; that are
        labeled with a pod that existed for a part of the hour, or `partial_gpus`, on which one had a fraction; with
        values above full use or that are not numbers; or that are on nodes that such a pod may hold whole.
        """
        expected = {exporter: len(run.within(hour)) for exporter, run in scrapes.items()}
        keys = self._keys_with_successive_exporters()
        for row in self._rows:
            exporter = row.target
            is_complete = row.sample_count >= expected.get(exporter, 0) > 0 and scrapes[exporter].is_regular
            is_implausible = row.has_implausible_peak or not is_amount(row.sample_sum) or row.sample_sum < 0
            is_partial = row.pod in partial_pods or row.key[0] in fully_held_nodes or row.key[1] in partial_gpus
            if not is_complete or is_implausible or is_partial:
                keys.add(row.key)
        samples: dict[str, dict[str, int]] = {}
        for row in self._rows:
            if row.key in keys:
                label, value = device_matcher(row.labels)
                by_value = samples.setdefault(label, {})
                by_value[value] = by_value.get(value, 0) + row.sample_count
        return samples

    def _keys_with_successive_exporters(self) -> set[DeviceKey]:
        """Devices of which one exporter replaced another, so that each reports a part of the hour."""
        if len({row.key for row in self._rows}) == len(self._rows):  # nearly always
            return set()
        exporters: dict[tuple[DeviceKey, str], ScrapeTarget] = {}
        return {
            row.key
            for row in self._rows
            if exporters.setdefault((row.key, row.target.partition("/")[0]), row.target) != row.target
        }

    def add_raw_samples(self, series: Iterable[Series], hour: IntervalMs) -> None:
        """Add raw samples; all series of a device's parts together."""
        start, end = hour.start - _LOOKBACK_DELTA_MS, hour.end
        parts: dict[int, list[tuple[tuple[int, Decimal], ...]]] = {}
        for labels, samples in series:
            name = labels["__name__"]
            if self._is_meaningful(name, labels):
                in_window = tuple([(time, parse_number(value)) for time, value in samples if start <= time < end])
                averaged_over = self._signals[name].averaged_over
                if not averaged_over:
                    self._find_or_add_row(name, labels).raw_samples = in_window
                    continue
                of_device = {label: labels[label] for label in labels if label != averaged_over}
                row = self._find_or_add_row(name, of_device)
                parts.setdefault(id(row), []).append(in_window)
                row.raw_samples = _mean_of_parts(parts[id(row)])

    def series(self, nodes: Container[str] | None = None) -> Iterable[DeviceSeries]:
        """The series for metering, of some nodes or of all. Of devices with raw samples, only series that have them."""
        with_raw_samples = {row.key for row in self._rows if row.raw_samples is not None}
        for row in self._rows:
            if nodes is not None and row.key[0] not in nodes:
                continue
            if row.raw_samples is not None or row.key not in with_raw_samples:
                yield self._series(row)

    def _is_meaningful(self, name: str, labels: Labels) -> bool:
        """Whether a series is meaningful: some signals are absent, always 0 or another device's on partitions."""
        accelerator = accelerator_of_signal(name)
        if accelerator is None:
            return not labels.get("GPU_I_ID") or self._signals[name].works_under_mig
        signal = self._signals[name]
        is_partition = accelerator.labels.identify(labels).partition != ""
        return (signal.works_under_mig if is_partition else signal.works_on_whole_gpus) and all(
            labels.get(label, "") == expected for label, expected in signal.matchers
        )

    def _find_or_add_row(self, name: str, labels: Labels) -> _DeviceSeriesRow:
        if not self._by_labels:  # built when needed: in most hours no row is looked up
            self._by_labels = {_series_key(row.signal.name, row.labels): row for row in self._rows}
        return self._by_labels.get(_series_key(name, labels)) or self._add_row(name, labels)

    def _add_row(self, name: str, labels: Labels) -> _DeviceSeriesRow:
        accelerator = accelerator_of_signal(name)
        if accelerator is None:
            row = _DeviceSeriesRow(
                self._signals[name],
                labels,
                (node_name(labels, self._nodes), gpu_uuid(labels), labels.get("GPU_I_ID", "")),
                scrape_target(labels),
                labeled_pod(labels),
                labels.get("GPU_I_PROFILE") or labels.get("dra_mig_profile", ""),
                labels.get("modelName", ""),
            )
        else:
            row = self._row_of(accelerator, name, labels)
        self._rows.append(row)
        if self._by_labels:
            self._by_labels[_series_key(name, labels)] = row
        return row

    def _row_of(self, accelerator: Accelerator, name: str, labels: Labels) -> _DeviceSeriesRow:
        device, pod_labels = accelerator.labels.identify(labels), accelerator.labels.pod
        return _DeviceSeriesRow(
            self._signals[name],
            labels,
            (node_name(labels, self._nodes), device.uuid, device.partition),
            scrape_target(labels),
            labeled_pod(labels)
            if pod_labels is None
            else (labels.get(pod_labels[0], ""), labels.get(pod_labels[1], "")),
            device.profile,
            device.model or accelerator.model,
            accelerator.vendor,
        )

    def _series(self, row: _DeviceSeriesRow) -> DeviceSeries:
        node, uuid, mig_instance = row.key
        namespace, pod = row.pod
        claim = row.labels.get("dra_claim_name", "") if pod else ""
        accelerator = accelerator_of_vendor(row.vendor) if row.vendor != NVIDIA else None
        uid_label = "pod_uid" if accelerator is None else accelerator.labels.pod_uid
        return DeviceSeries(
            node,
            uuid,
            mig_instance,
            row.profile,
            row.model,
            namespace,
            pod,
            row.labels.get(uid_label, "") if pod else "",
            row.labels.get("vgpu") or _container_name(row.labels),
            claim,
            row.target,
            row.signal.scale,
            self.rank,
            row.sample_count,
            row.sample_sum,
            row.raw_samples if row.raw_samples is not None or row.sample_count else (),  # a sum of how many is unknown
            claimed_name=row.labels.get("dra_device_name", "") if claim else "",
            dra_driver=row.labels.get("dra_driver_name", "") if claim else "",
            vendor=row.vendor,
        )


# Labels and sample counts of device series.


def _series_key(name: str, labels: Labels) -> _SeriesKey:
    """Identifies a series in all results: sums have no metric name and counts have a statistic label."""
    return name, frozenset(
        (label, value) for label, value in labels.items() if label not in {STATISTIC_LABEL, "__name__"}
    )


def _mean_of_parts(parts: Sequence[Sequence[tuple[int, Decimal]]]) -> tuple[tuple[int, Decimal], ...]:
    """The mean of the samples of a device's parts, by the time of their scrape."""
    by_time: dict[int, list[Decimal]] = {}
    for samples in parts:
        for time, utilization in samples:
            by_time.setdefault(time, []).append(utilization)
    return tuple((time, sum(by_time[time], Decimal(0)) / len(by_time[time])) for time in sorted(by_time))


def labeled_pod(labels: Labels) -> tuple[str, str]:
    """The namespace and name of the pod that holds a device, or blanks.

    With `honorLabels: false`, `pod` is the exporter's own pod and `exported_pod` is the workload. With `honorLabels:
    true`, an idle GPU still has the exporter's own pod, which requests no GPU and so is ignored.
    """
    if "exported_pod" in labels or "exported_namespace" in labels:
        return labels.get("exported_namespace", ""), labels.get("exported_pod", "")
    for scheduler in FRACTION_SCHEDULERS:
        namespace, name = scheduler.pod_labels
        if name in labels:
            return labels.get(namespace, ""), labels[name]
    pod = labels.get("pod") or labels.get("pod_name", "")
    return labels.get("namespace") or labels.get("pod_namespace", ""), pod


def device_matcher(labels: Labels) -> tuple[str, str]:
    """The label that selects a device's series, and its value."""
    for name in SELECTABLE_LABELS:
        if labels.get(name):
            return name, labels[name]
    return "instance", ""


def batches_of_label_values(samples: Mapping[str, int], max_samples: int, max_names: int) -> Iterable[Sequence[str]]:
    """Divide values of a label into batches that one query can read.

    Args:
        samples: the number of samples of the series with each value.
        max_samples: the most samples of a batch.
        max_names: the most values of a batch.
    """
    batch: list[str] = []
    total = 0
    for name, count in samples.items():
        if batch and (total + count > max_samples or len(batch) == max_names):
            yield batch
            batch, total = [], 0
        batch.append(name)
        total += count
    if batch:
        yield batch


def node_name(labels: Labels, nodes: Mapping[str, str]) -> str:
    """The name of a device's node.

    Args:
        labels: of the device's series.
        nodes: names of nodes, by name and by EC2 instance id.
    """
    if instance_id := labels.get("instance_id"):
        return nodes.get(instance_id, instance_id)
    for label in _NODE_LABELS:
        if (name := labels.get(label)) and name in nodes:
            return name
    return next((labels[label] for label in _NODE_LABELS if labels.get(label)), "")


def gpu_uuid(labels: Labels) -> str:
    """What identifies an NVIDIA GPU on its node."""
    uuid = labels.get("UUID") or labels.get("uuid") or fraction_gpu(labels)
    return uuid or f"{scrape_target(labels)}/{labels.get('gpu', '')}/{labels.get('device', '')}"


def _container_name(labels: Labels) -> str:
    """The container in the labels of a fraction scheduler's monitor; "" in other exporters' labels."""
    if not fraction_gpu(labels):
        return ""
    of_schedulers = (labels.get(scheduler.container_label) for scheduler in FRACTION_SCHEDULERS)
    return next(filter(None, of_schedulers), "") or exported_label(labels, "container")


def uniform_counts(rows: Mapping[str, Rows]) -> dict[tuple[str, ScrapeTarget], int]:
    """The number of samples of each series, by signal and exporter, where all series have the same number.

    Args:
        rows: results of `Queries.devices` for one hour, by statistic.

    Raises:
        ValueError: a count is not a number.
    """
    counts: dict[tuple[str, ScrapeTarget], set[str]] = {}
    for name, labels in _labels_of_counts(rows):
        counts.setdefault((name, scrape_target(labels)), set()).add(labels[SAMPLES])
    return {key: to_sample_count(parse_number(*distinct)) for key, distinct in counts.items() if len(distinct) == 1}


def instances_with_uneven_counts(series: Iterable[Series]) -> set[str]:
    """The `instance` labels of exporters whose series differ in their number of samples, in any of several hours.

    Args:
        series: the result of `Queries.devices`.
    """
    counts: dict[tuple[str, ScrapeTarget, int], set[str]] = {}
    uneven: set[str] = set()
    for labels, samples in series:
        if labels.get(STATISTIC_LABEL, "").startswith(COUNTS):
            for time, _ in samples:
                distinct = counts.setdefault((labels[STATISTIC_LABEL], scrape_target(labels), time), set())
                distinct.add(labels[SAMPLES])
                if len(distinct) > 1:
                    uneven.add(labels.get("instance", ""))
    return uneven


def _labels_of_counts(rows: Mapping[str, Rows]) -> Iterator[tuple[str, Labels]]:
    for stat, stat_rows in rows.items():
        kind, _, name = stat.partition(" ")
        if kind == COUNTS:
            yield from ((name, labels) for labels, _ in stat_rows)


# Series of GPUs' energy counters in one hour, and of their power where there is no counter.

_USUAL_SAMPLES = 240
"""The samples of a series in an hour at a scrape interval of 15 seconds."""
_GpuKey = tuple[str, str]


class Energy(Family):
    """The energy of GPUs; nothing more is queried where no exporter measures it."""

    def read(self, reading: HourReading) -> None:
        """Read what the query of devices returned of energy, with single samples where the increase is not enough."""
        table = EnergyTable(reading.rows["devices"], reading.nodes.by_instance_id())
        for label, samples in table.needing_raw_samples(reading.devices).items():
            for values in batches_of_label_values(samples, SAMPLES_PER_QUERY, NAMES_PER_QUERY):
                selector = self._metrics.queries.energy_selector(label, values)
                # A sample at the very start counts. Ranges are left-open from Prometheus 3 on, and in VictoriaMetrics.
                start, end = reading.hour - SCRAPE_MARGIN - timedelta(milliseconds=1), reading.hour + HOUR
                with self._metrics.raw_samples(selector, start, end) as series:
                    table.add_raw_samples(series)
        reading.energy = tuple(table.series())


class EnergyTable:
    """Collects the energy of GPUs, and determines of which the raw samples are needed.

    Args:
        rows: results of `Queries.devices`, by statistic.
        nodes: names of nodes, by name and by EC2 instance id.
    """

    def __init__(self, rows: Mapping[str, Rows], nodes: Mapping[str, str]) -> None:
        self._nodes = nodes
        self._increases: list[tuple[_GpuKey, Labels, Decimal]] = []
        self._sample_counts: list[tuple[_GpuKey, Labels, int]] = []
        self._raw: dict[_GpuKey, list[EnergySeries]] = {}
        for name, joules in ENERGY_COUNTERS.items():
            increases = rows.get(f"{ENERGY} {name}", ())
            self._increases += [(self._key(labels), labels, count * joules) for labels, count in increases]
        for statistic, counts in rows.items():
            if statistic.partition(" ")[0] == ENERGY_SAMPLES:
                self._sample_counts += [(self._key(labels), labels, to_sample_count(count)) for labels, count in counts]

    def needing_raw_samples(self, devices: Iterable[DeviceSeries]) -> dict[str, dict[str, int]]:
        """GPUs whose increase is not enough, by label name and label value, each with its sample count.

        These are GPUs with a series that has no increase, and those whose holders may change within the hour: single
        samples of their utilization are read, too.
        """
        if not self._increases and not self._sample_counts:
            return {}
        keys = {key for key, _, _ in self._sample_counts}
        keys |= {(device.node, device.uuid) for device in devices if device.samples is not None}
        samples: dict[str, dict[str, int]] = {}
        usual = ((key, labels, _USUAL_SAMPLES) for key, labels, _ in self._increases)
        for key, labels, count in (*self._sample_counts, *usual):
            if key in keys:
                label, name = device_matcher(labels)
                by_name = samples.setdefault(label, {})
                by_name[name] = by_name.get(name, 0) + count
        return samples

    def add_raw_samples(self, series: Iterable[Series]) -> None:
        """Add raw samples."""
        for labels, samples in series:
            joules = ENERGY_COUNTERS.get(labels["__name__"])
            factor = Decimal(1) if joules is None else joules
            readings = tuple((time, parse_number(text) * factor) for time, text in samples)
            key = self._key(labels)
            self._raw.setdefault(key, []).append(
                EnergySeries(*key, scrape_target(labels), joules is not None, increase=None, samples=readings)
            )

    def series(self) -> Sequence[EnergySeries]:
        """The series for metering. Of GPUs with raw samples, only series that have them."""
        increases = [
            EnergySeries(*key, scrape_target(labels), is_counter=True, increase=joules)
            for key, labels, joules in self._increases
            if key not in self._raw
        ]
        return [*increases, *(copy for copies in self._raw.values() for copy in copies)]

    def _key(self, labels: Labels) -> _GpuKey:
        return node_name(labels, self._nodes), gpu_uuid(labels)
