"""How many samples each exporter's series have in an hour: nearly always the same number for all of them."""

from collections.abc import Iterable, Iterator, Mapping

from gpucost.core.metering.observations import ScrapeTarget
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.queries import COUNTS, SAMPLES, STATISTIC_LABEL
from gpucost.sources.prometheus.tables import Labels, Rows, parse_number, scrape_target, to_sample_count


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
