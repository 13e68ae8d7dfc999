"""Series of GPUs' energy counters in one hour, and of their power where there is no counter."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from gpucost.core.hours import HOUR
from gpucost.core.metering.energy import ENERGY_COUNTERS
from gpucost.core.metering.observations import DeviceSeries, EnergySeries
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.devices import batches_of_label_values, device_matcher, gpu_uuid, node_name
from gpucost.sources.prometheus.families import NAMES_PER_QUERY, SAMPLES_PER_QUERY, Family, HourReading
from gpucost.sources.prometheus.queries import ENERGY, ENERGY_SAMPLES
from gpucost.sources.prometheus.scrape_times import SCRAPE_MARGIN
from gpucost.sources.prometheus.tables import Labels, Rows, parse_number, scrape_target, to_sample_count

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
                start, end = reading.hour - SCRAPE_MARGIN, reading.hour + HOUR
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
