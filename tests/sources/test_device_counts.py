"""Sample counts of exporters' series, which are queried per series only if they differ."""

import pytest

from gpucost.core.metering.accelerators import NEURON_SIGNAL
from gpucost.core.metering.signals import SIGNALS
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.devices import instances_with_uneven_counts, uniform_counts
from gpucost.sources.prometheus.queries import COUNTS, SAMPLES, STATISTIC_LABEL, Queries, make_shards
from gpucost.sources.prometheus.tables import rows_at

AT, LATER = 3_600_000, 7_200_000
BUSY, OTHER = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "dcgm_fi_prof_gr_engine_active"


def counted(instance: str, samples: str, *times: int, signal: str = BUSY, **more: str) -> Series:
    labels = {"job": "dcgm", "instance": instance, SAMPLES: samples, STATISTIC_LABEL: f"{COUNTS} {signal}", **more}
    return Series(labels, tuple((time, "8") for time in times or (AT,)))


def test_equal_counts_of_an_exporter_are_read_once() -> None:
    series = [
        counted("n1:9400", "60"),
        counted("n2:9400", "240"),
        counted("n2:9400", "120"),
        counted("n2:9400", "9", signal=OTHER),
    ]
    counts = uniform_counts(rows_at(series, AT))
    assert counts == {(BUSY, "dcgm|/n1:9400"): 60, (OTHER, "dcgm|/n2:9400"): 9}
    assert instances_with_uneven_counts(series) == {"n2:9400"}


def test_counts_are_compared_within_each_hour() -> None:
    series = [counted("n1:9400", "60", AT), counted("n1:9400", "59", LATER), counted("n2:9400", "60", AT, LATER)]
    assert instances_with_uneven_counts(series) == set()
    assert uniform_counts(rows_at(series, LATER)) == {(BUSY, "dcgm|/n1:9400"): 59, (BUSY, "dcgm|/n2:9400"): 60}


def test_counts_are_compared_within_each_prometheus_replica() -> None:
    series = [counted("n1:9400", "60", prometheus_replica="a"), counted("n1:9400", "58", prometheus_replica="b")]
    assert instances_with_uneven_counts(series) == set()
    assert uniform_counts(rows_at(series, AT)) == {(BUSY, "dcgm|a/n1:9400"): 60, (BUSY, "dcgm|b/n1:9400"): 58}


def test_equal_counts_of_several_shards_do_not_differ() -> None:
    series = [counted("n1:9400", "60"), counted("n1:9400", "60")]
    assert instances_with_uneven_counts(series) == set()
    assert uniform_counts(rows_at(series, AT)) == {(BUSY, "dcgm|/n1:9400"): 60}


def test_count_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="'many'"):
        uniform_counts(rows_at([counted("n1:9400", "many")], AT))


def test_signals_without_distributed_labels_are_in_a_single_shard() -> None:
    queries = Queries({}, [[SIGNALS[BUSY], NEURON_SIGNAL]])
    by_shard = [queries.for_shard(shard).devices(0) for shard in make_shards(4)]
    assert [BUSY in query for query in by_shard] == [True] * 4
    assert [NEURON_SIGNAL.name in query for query in by_shard] == [False, False, False, True]
    assert sum(query.count("sum_over_time") for query in by_shard) == 5
