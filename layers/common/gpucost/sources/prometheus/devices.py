"""Device series of the utilization signals in one hour, with the pod that each is labelled with."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from gpucost.core.intervals import Interval, Scrapes
from gpucost.core.metering.device_use import NEURON_MODEL
from gpucost.core.metering.implausible_samples import is_amount
from gpucost.core.metering.observations import DeviceSeries, Instance
from gpucost.core.metering.signals import NEURON, Signal
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.device_counts import uniform_counts
from gpucost.sources.prometheus.queries import STAT, UNLABELED
from gpucost.sources.prometheus.tables import Labels, Rows, instance, number, sample_count

DeviceKey = tuple[str, str, str]
_SeriesKey = tuple[str, frozenset[tuple[str, str]]]
_LEAD_MS = 300_000
"""Samples from this long before the hour speak for its first moments."""
_NODE_LABELS = ("Hostname", "hostname", "node", "kubernetes_node", "nodename")


@dataclass(slots=True)
class _Row:
    signal: Signal
    labels: Labels
    key: DeviceKey
    instance: Instance
    workload: tuple[str, str]
    samples: int = 0
    total: Decimal = Decimal(0)
    peaked: bool = False
    values: tuple[tuple[int, Decimal], ...] | None = None


class DeviceTable:
    """Collects series of signals, and tells which must be looked at sample by sample.

    Args:
        rank: of the signals.
        signals: the rank's.
        rows: answers to `Queries.devices`, and to `Queries.device_counts` as far as it was asked, by statistic.
        nodes: names of nodes by what else their devices may be known by (instance ids).
    """

    def __init__(
        self, rank: int, signals: Sequence[Signal], rows: Mapping[str, Rows], nodes: Mapping[str, str]
    ) -> None:
        self.rank = rank
        self._signals = {signal.name: signal for signal in signals}
        self._nodes = nodes
        self._rows: list[_Row] = []
        self._by_labels: dict[_SeriesKey, _Row] = {}
        alike = uniform_counts(rows)
        for name in self._signals:
            sums = rows.get(UNLABELED if name == signals[0].name else f"sum {name}", [])
            for labels, value in sums:
                if self._is_reported(name, labels):
                    row = self._add(name, labels)
                    row.total = value
                    row.samples = alike.get((name, row.instance), 0)
            for labels, value in rows.get(f"count {name}", []):
                if self._is_reported(name, labels):
                    self._row(name, labels).samples = sample_count(value)
            for labels, _ in rows.get(f"peak {name}", []):
                if self._is_reported(name, labels):
                    self._row(name, labels).peaked = True

    @property
    def labels(self) -> list[Labels]:
        """Of every series."""
        return [row.labels for row in self._rows]

    def nodes(self) -> set[str]:
        """Names of nodes with devices."""
        return {row.key[0] for row in self._rows}

    def nodes_with(self, pods: Container[tuple[str, str]]) -> set[str]:
        """Names of nodes of which a device is labelled with one of some pods."""
        return {row.key[0] for row in self._rows if row.workload in pods}

    def keep_nodes(self, nodes: Container[str]) -> None:
        """Forget devices of other nodes."""
        self._rows = [row for row in self._rows if row.key[0] in nodes]

    def signal_names(self) -> str:
        """The signals that have series."""
        return ", ".join(sorted({row.signal.name for row in self._rows}))

    def densest(self) -> dict[Instance, Labels]:
        """The series with most samples of each exporter."""
        best: dict[Instance, _Row] = {}
        for row in self._rows:
            if row.instance not in best or row.samples > best[row.instance].samples:
                best[row.instance] = row
        return {who: row.labels for who, row in best.items()}

    def needing_raw_samples(
        self,
        beats: Mapping[Instance, Scrapes],
        hour: Interval,
        passing: Container[tuple[str, str]],
        whole_nodes: Container[str] = (),
    ) -> dict[str, dict[str, int]]:
        """Devices whose sums and counts do not tell all, by the label that names them, each with its samples.

        Those are: not seen at every scrape of their exporter; scraped at an interval that changed; labelled with a
        passing pod, which was not there all hour; with values above full use, or that are no numbers; unlabelled, on
        nodes that a passing pod may hold whole.
        """
        expected = {who: len(run.within(hour)) for who, run in beats.items()}
        keys: set[DeviceKey] = set()
        told_by: dict[tuple[DeviceKey, str], Instance] = {}
        for row in self._rows:
            who = row.instance
            if told_by.setdefault((row.key, who.split("/", 1)[0]), who) != who:
                keys.add(row.key)  # one instance followed another: each tells of a part of the hour
            whole = row.samples >= expected.get(who, 0) > 0 and beats[who].is_regular
            odd = row.peaked or not is_amount(row.total) or row.total < 0
            if not whole or odd or row.workload in passing or row.key[0] in whole_nodes:
                keys.add(row.key)
        found: dict[str, dict[str, int]] = {}
        for row in self._rows:
            if row.key in keys:
                label, value = device_matcher(row.labels)
                names = found.setdefault(label, {})
                names[value] = names.get(value, 0) + row.samples
        return found

    def add_raw_samples(self, series: Iterable[Series], hour: Interval) -> None:
        """Take in raw samples."""
        for one in series:
            name = one.labels["__name__"]
            if not self._is_reported(name, one.labels):
                continue
            row = self._row(name, one.labels)
            reach = Interval(hour.start - _LEAD_MS, hour.end)
            row.values = tuple((at, number(value)) for at, value in one.samples if reach.contains(at))

    def series(self) -> Iterable[DeviceSeries]:
        """What metering reads; devices looked at closely by their samples alone."""
        closely = {row.key for row in self._rows if row.values is not None}
        for row in self._rows:
            if row.values is not None or row.key not in closely:
                yield self._series(row)

    def _is_reported(self, name: str, labels: Labels) -> bool:
        """Whether a series says anything: some signals are absent or 0 under MIG, whatever runs there."""
        return not labels.get("GPU_I_ID") or self._signals[name].works_under_mig

    def _row(self, name: str, labels: Labels) -> _Row:
        if not self._by_labels:  # few are looked for, in most hours none
            self._by_labels = {_series_key(row.signal.name, row.labels): row for row in self._rows}
        return self._by_labels.get(_series_key(name, labels)) or self._add(name, labels)

    def _add(self, name: str, labels: Labels) -> _Row:
        device = (self._node(labels), _uuid(labels), labels.get("GPU_I_ID", ""))
        row = _Row(self._signals[name], labels, device, instance(labels), workload(labels))
        self._rows.append(row)
        if self._by_labels:
            self._by_labels[_series_key(name, labels)] = row
        return row

    def _node(self, labels: Labels) -> str:
        if labels.get("instance_id"):
            return self._nodes.get(labels["instance_id"], labels["instance_id"])
        told = [labels[name] for name in _NODE_LABELS if labels.get(name)]
        return next((name for name in told if name in self._nodes), told[0] if told else "")

    def _series(self, row: _Row) -> DeviceSeries:
        node, uuid, mig_instance = row.key
        namespace, pod = row.workload
        return DeviceSeries(
            node=node,
            uuid=uuid,
            mig_instance=mig_instance,
            mig_profile=row.labels.get("GPU_I_PROFILE") or row.labels.get("dra_mig_profile", ""),
            model=NEURON_MODEL if row.signal == NEURON else row.labels.get("modelName", ""),
            namespace=namespace,
            pod=pod,
            uid=row.labels.get("pod_uid", "") if pod else "",
            slot=row.labels.get("vgpu", ""),
            resource_claim=row.labels.get("dra_claim_name", "") if pod else "",
            instance=row.instance,
            scale=row.signal.scale,
            rank=self.rank,
            sample_count=row.samples,
            total=row.total,
            samples=row.values,
        )


def _series_key(name: str, labels: Labels) -> _SeriesKey:
    """A series, whatever else an answer says of it: the answer about its sum has no name, the one about samples has."""
    return name, frozenset((label, value) for label, value in labels.items() if label not in {STAT, "__name__"})


def workload(labels: Labels) -> tuple[str, str]:
    """(namespace, pod) that holds the device, or blanks.

    Where the scrape's own labels won (`honorLabels: false`), `pod` is the exporter's and the workload's is
    `exported_pod`; where the exporter's won, an idle GPU still gets the exporter's own pod from the scrape, which
    requests no GPU and so claims none.
    """
    if "exported_pod" in labels or "exported_namespace" in labels:
        return labels.get("exported_namespace", ""), labels.get("exported_pod", "")
    pod = labels.get("pod") or labels.get("pod_name", "")
    return labels.get("namespace") or labels.get("pod_namespace", ""), pod


def device_matcher(labels: Labels) -> tuple[str, str]:
    """The label by which a device's series can be asked for, and its value."""
    for name in ("UUID", "uuid", "instance"):
        if labels.get(name):
            return name, labels[name]
    return "instance", ""


def batches_of_names(samples: Mapping[str, int], most: int, names: int) -> Iterable[Sequence[str]]:
    """Names in batches that bring at most so many samples, and are at most so many."""
    batch: list[str] = []
    total = 0
    for name, count in samples.items():
        if batch and (total + count > most or len(batch) == names):
            yield batch
            batch, total = [], 0
        batch.append(name)
        total += count
    if batch:
        yield batch


def _uuid(labels: Labels) -> str:
    core = labels.get("neuroncore")
    if core is not None:
        return f"neuroncore-{core}"
    told = labels.get("UUID") or labels.get("uuid")
    return told or f"{instance(labels)}/{labels.get('gpu', '')}/{labels.get('device', '')}"
