"""Series of GPUs' energy counters in one hour, and of their power where there is no counter."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from gpucost.core.metering.energy import ENERGY_COUNTER, JOULES_PER_COUNT
from gpucost.core.metering.observations import DeviceSeries, EnergySeries
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.devices import device_matcher, gpu_uuid, node_name
from gpucost.sources.prometheus.queries import ENERGY
from gpucost.sources.prometheus.tables import Labels, Rows, parse_number, scrape_target, to_sample_count

_USUAL_SAMPLES = 240
"""The samples of a series in an hour at a scrape interval of 15 seconds."""
_GpuKey = tuple[str, str]


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
        for statistic, statistic_rows in rows.items():
            if statistic == ENERGY:
                self._increases += [(self._key(labels), labels, increase) for labels, increase in statistic_rows]
            elif statistic.startswith(f"{ENERGY} "):
                self._sample_counts += [
                    (self._key(labels), labels, to_sample_count(count)) for labels, count in statistic_rows
                ]

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
            is_counter = labels["__name__"] == ENERGY_COUNTER
            factor = JOULES_PER_COUNT if is_counter else Decimal(1)
            readings = tuple((time, parse_number(text) * factor) for time, text in samples)
            key = self._key(labels)
            self._raw.setdefault(key, []).append(
                EnergySeries(*key, scrape_target(labels), is_counter, increase=None, samples=readings)
            )

    def series(self) -> Sequence[EnergySeries]:
        """The series for metering. Of GPUs with raw samples, only series that have them."""
        increases = [
            EnergySeries(*key, scrape_target(labels), is_counter=True, increase=increase * JOULES_PER_COUNT)
            for key, labels, increase in self._increases
            if key not in self._raw
        ]
        return [*increases, *(copy for copies in self._raw.values() for copy in copies)]

    def _key(self, labels: Labels) -> _GpuKey:
        return node_name(labels, self._nodes), gpu_uuid(labels)
