"""What a second witness says of GPUs whose signal is 0: other signals, and power in each hour of the day."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from gpucost.core.hours import HOUR_MS
from gpucost.core.metering.accelerators import accelerator_of_power
from gpucost.core.metering.observations import DeviceSeries
from gpucost.core.metering.signals import Signal
from gpucost.core.metering.stuck_signals import Gpu, PowerByHour
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.devices import DeviceTable, gpu_uuid, node_name
from gpucost.sources.prometheus.queries import NO_STATISTIC_LABEL, POWER
from gpucost.sources.prometheus.tables import rows_at

HOURS_OF_DAY = 24
"""The hours in which the lowest power is searched, the last of which is the hour itself."""


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
