"""How many samples exporters' series have in an hour: nearly always all of one exporter as many, and told once."""

from collections.abc import Iterable, Iterator, Mapping

from gpucost.core.metering.observations import Instance
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.queries import COUNTS, SAMPLES, STAT
from gpucost.sources.prometheus.tables import Labels, Rows, instance, number, sample_count


def uniform_counts(rows: Mapping[str, Rows]) -> dict[tuple[str, Instance], int]:
    """The samples that each series of a signal and an exporter has, where all of them have as many.

    Args:
        rows: answers to `Queries.devices` about one hour, by statistic.

    Raises:
        ValueError: a count that is no number.
    """
    found: dict[tuple[str, Instance], set[str]] = {}
    for name, labels in _counts(rows):
        found.setdefault((name, instance(labels)), set()).add(labels[SAMPLES])
    return {key: sample_count(number(*counts)) for key, counts in found.items() if len(counts) == 1}


def instances_with_uneven_counts(series: Iterable[Series]) -> set[str]:
    """The label `instance` of exporters whose series have not all as many samples, in any of some hours.

    Args:
        series: the answer to `Queries.devices`.
    """
    found: dict[tuple[str, Instance, int], set[str]] = {}
    names: set[str] = set()
    for one in series:
        if one.labels.get(STAT, "").startswith(COUNTS):
            for at, _ in one.samples:
                counts = found.setdefault((one.labels[STAT], instance(one.labels), at), set())
                counts.add(one.labels[SAMPLES])
                if len(counts) > 1:
                    names.add(one.labels.get("instance", ""))
    return names


def _counts(rows: Mapping[str, Rows]) -> Iterator[tuple[str, Labels]]:
    for stat, some in rows.items():
        what, _, name = stat.partition(" ")
        if what == COUNTS:
            yield from ((name, labels) for labels, _ in some)
