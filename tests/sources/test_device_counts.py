"""Samples of exporters' series: told once where all have as many, asked for where they differ."""

import pytest

from gpucost.core.metering.signals import NEURON, SIGNALS
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.device_counts import instances_with_uneven_counts, uniform_counts
from gpucost.sources.prometheus.queries import COUNTS, SAMPLES, STAT, Queries
from gpucost.sources.prometheus.shards import make_shards
from gpucost.sources.prometheus.tables import at_hour

AT, LATER = 3_600_000, 7_200_000
BUSY, OTHER = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "dcgm_fi_prof_gr_engine_active"


def told(instance: str, samples: str, *at: int, signal: str = BUSY, **more: str) -> Series:
    labels = {"job": "dcgm", "instance": instance, SAMPLES: samples, STAT: f"{COUNTS} {signal}", **more}
    return Series(labels, tuple((one, "8") for one in at or (AT,)))


def test_an_exporter_whose_series_have_all_as_many_samples_tells_it_once() -> None:
    series = [told("n1:9400", "60"), told("n2:9400", "240"), told("n2:9400", "120"), told("n2:9400", "9", signal=OTHER)]
    found = uniform_counts(at_hour(series, AT))
    assert found == {(BUSY, "dcgm|/n1:9400"): 60, (OTHER, "dcgm|/n2:9400"): 9}
    assert instances_with_uneven_counts(series) == {"n2:9400"}


def test_each_hour_is_told_apart() -> None:
    series = [told("n1:9400", "60", AT), told("n1:9400", "59", LATER), told("n2:9400", "60", AT, LATER)]
    assert instances_with_uneven_counts(series) == set()
    assert uniform_counts(at_hour(series, LATER)) == {(BUSY, "dcgm|/n1:9400"): 59, (BUSY, "dcgm|/n2:9400"): 60}


def test_each_of_several_equal_servers_is_told_apart() -> None:
    series = [told("n1:9400", "60", prometheus_replica="a"), told("n1:9400", "58", prometheus_replica="b")]
    assert instances_with_uneven_counts(series) == set()
    assert uniform_counts(at_hour(series, AT)) == {(BUSY, "dcgm|a/n1:9400"): 60, (BUSY, "dcgm|b/n1:9400"): 58}


def test_parts_of_an_answer_that_say_the_same_are_no_difference() -> None:
    series = [told("n1:9400", "60"), told("n1:9400", "60")]
    assert instances_with_uneven_counts(series) == set()
    assert uniform_counts(at_hour(series, AT)) == {(BUSY, "dcgm|/n1:9400"): 60}


def test_a_count_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="'many'"):
        uniform_counts(at_hour([told("n1:9400", "many")], AT))


def test_signals_that_no_label_divides_are_asked_for_in_one_part() -> None:
    queries = Queries({}, [[SIGNALS[BUSY], NEURON]])
    asked = [queries.for_shard(part).devices(0) for part in make_shards(4)]
    assert [BUSY in query for query in asked] == [True] * 4
    assert [NEURON.name in query for query in asked] == [False, False, False, True]
    assert sum(query.count("sum_over_time") for query in asked) == 5
