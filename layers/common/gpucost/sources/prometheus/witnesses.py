"""What a second witness says of GPUs whose signal is 0: other signals, and power in each hour of the day."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain

from gpucost.core.hours import HOUR, HOUR_MS, to_epoch_ms
from gpucost.core.metering.accelerators import accelerator_of_power
from gpucost.core.metering.observations import DeviceSeries
from gpucost.core.metering.signals import Signal
from gpucost.core.metering.stuck_signals import (
    Gpu,
    PowerByHour,
    contradicted_gpus,
    gpus_at_zero,
    says_in_use,
    stuck_signal_notes,
)
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.devices import DeviceTable, gpu_uuid, node_name, read_device_samples
from gpucost.sources.prometheus.families import NAMES_PER_QUERY, ClusterMetrics, Family, HourReading, RowsByStatistic
from gpucost.sources.prometheus.queries import NO_STATISTIC_LABEL, POWER
from gpucost.sources.prometheus.tables import first_common_label_name, rows_at

HOURS_OF_DAY = 24
"""The hours in which the lowest power is searched, the last of which is the hour itself."""


class ContradictedSignals(Family):
    """GPUs whose signal is 0 while other signals, or their power, say that they are in use.

    Args:
        measures_contradicted: whether another signal measures GPUs whose signal of 0 it contradicts.
    """

    def __init__(self, metrics: ClusterMetrics, *, measures_contradicted: bool) -> None:
        super().__init__(metrics)
        self._measures_contradicted = measures_contradicted

    def read(self, reading: HourReading) -> None:
        """Compare GPUs whose signal is 0 with other witnesses, and replace their series where another signal counts."""
        at_zero = gpus_at_zero(reading.devices, (*reading.pod_observations, *reading.claiming))
        if not at_zero:
            return
        nodes, label = sorted({node for node, _ in at_zero}), _host_label(reading.rows["devices"])
        only = nodes if label and len(nodes) <= NAMES_PER_QUERY else []
        day = [reading.hour - number * HOUR for number in reversed(range(HOURS_OF_DAY))]
        build = {"witnesses": lambda queries: queries.witnesses({*at_zero.values()}, only, label)}
        (series,) = self._metrics.query_hours(build, day).values()
        signals, names = self._metrics.queries.signals, reading.nodes.by_instance_id()
        witnesses = Witnesses(series, to_epoch_ms(reading.hour + HOUR), signals, names)
        contradicted = contradicted_gpus(at_zero.keys(), witnesses.series(), witnesses.power())
        measured: dict[Gpu, list[DeviceSeries]] = {}
        for table in witnesses.tables if self._measures_contradicted and contradicted else ():
            of_table = {(device.node, device.uuid) for device in table.series() if says_in_use(device)}
            table.keep_gpus((of_table & contradicted.keys()) - measured.keys())
            read_device_samples(self._metrics, table, reading.scrapes, reading.partial_pods, reading.hour)
            for device in table.series():
                measured.setdefault((device.node, device.uuid), []).append(device)
        if measured:
            others = (device for device in reading.devices if (device.node, device.uuid) not in measured)
            reading.devices = (*others, *chain.from_iterable(measured.values()))
        reading.contradicted_gpus = contradicted.keys() - measured.keys()
        reading.device_notes += stuck_signal_notes(contradicted, measured, at_zero)

    def notes(self, reading: HourReading) -> Iterable[str]:
        """All notes on devices, after those on pods and nodes."""
        return reading.device_notes


def _host_label(devices: RowsByStatistic) -> str:
    """The label that holds nodes' names in the series of NVIDIA's GPUs; "" if they have none in common."""
    of_gpus = (labels for labels, _ in chain.from_iterable(devices.values()) if "UUID" in labels)
    return first_common_label_name(of_gpus, ("Hostname", "hostname"))


class Witnesses:
    """Reads the results of `Queries.witnesses`.

    Args:
        series: the result at the ends of the hours of a day.
        end_ms: the end of the hour.
        signals: of all ranks, the best first.
        nodes: names of nodes, by name and by EC2 instance id.
    """

    def __init__(
        self, series: Sequence[Series], end_ms: int, signals: Sequence[Sequence[Signal]], nodes: Mapping[str, str]
    ) -> None:
        self._series = series
        self._end_ms = end_ms
        self._nodes = nodes
        rows = rows_at(series, end_ms)
        self.tables: list[DeviceTable] = []
        """The GPUs by the signals of each lower rank."""
        for rank in range(1, len(signals)):
            first = f"sum {signals[rank][0].name}"
            of_rank = {NO_STATISTIC_LABEL if name == first else name: some for name, some in rows.items()}
            self.tables.append(DeviceTable(rank, signals[rank], of_rank, nodes))

    def series(self) -> Iterable[tuple[str, DeviceSeries]]:
        """The series of the other signals, each with its signal's name, those of better signals first."""
        for table in self.tables:
            name = table.signal_names()
            yield from ((name, device) for device in table.series())

    def power(self) -> dict[Gpu, PowerByHour]:
        """The power of each GPU that has some in the hour and in another one of the day."""
        watts: dict[Gpu, dict[int, Decimal]] = {}
        for number in range(HOURS_OF_DAY):
            end_ms = self._end_ms - number * HOUR_MS
            for statistic, rows in rows_at(self._series, end_ms).items():
                kind, _, metric = statistic.partition(" ")
                if kind != POWER:
                    continue
                accelerator = accelerator_of_power(metric)
                for labels, mean in rows:
                    if mean.is_finite() and mean > 0:
                        uuid = gpu_uuid(labels) if accelerator is None else accelerator.labels.identify(labels).uuid
                        gpu = node_name(labels, self._nodes), uuid
                        by_hour = watts.setdefault(gpu, {})
                        by_hour[end_ms] = max(mean, by_hour.get(end_ms, mean))
        return {
            gpu: PowerByHour(by_hour[self._end_ms], min(by_hour.values()))
            for gpu, by_hour in watts.items()
            if self._end_ms in by_hour and len(by_hour) > 1
        }
