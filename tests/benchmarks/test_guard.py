"""Figures that repeat exactly, so that `make test` detects a more expensive hour. Times are for `make bench`.

Other guards are next to the code they protect: units and requests of each access to the ledger
(tests/storage/test_budgets.py, test_read_units.py, test_price_book_costs.py, test_bill_store.py), modules and bytes of
each function (tests/infra/test_built.py), the cost on AWS (tests/system/test_aws_cost.py).
"""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import pytest

from benchmarks.core import fractions_in_turn, hour_of, hour_of_turns, instructions
from benchmarks.figures import exponent
from benchmarks.hour import attribute, cluster, raw_samples, recorded_queries, samples_processed, settings_for
from gpucost.pipeline.attribute import attribute_hours
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.memory_budget import MIB, MemoryBudget

PODS, UNITS = 200, 20
INSTRUCTIONS = {(3, 11): 4_010, (3, 13): 3_520}
"""Instructions of the core per pod, for 100 pods, by Python version. Other versions may use the largest."""
TOKENS = {(3, 11): 1.112, (3, 13): 1.085}
"""Instructions of an hour in which every tenth of 200 pods serves a model, ÷ without its tokens, by Python version."""
MARGIN = 1.02
REPLACED_MIB = 20
"""Memory that is counted for an hour in which a fifth of 300 pods is replaced, with a sample every 15 seconds."""
REPLACED_INSTRUCTIONS = {(3, 11): 41_750, (3, 13): 35_530}
"""Instructions for such an hour per pod, for 200 pods, by Python version."""
READER_INSTRUCTIONS = 7_120
"""Instructions of an hour of 200 pods with its queries, per pod. Other versions of Python take up to a fifth more."""
QUERIES = 7
SAMPLES_A_POD = 286


@pytest.fixture(scope="module")
def small() -> Iterator[tuple[str, datetime]]:
    with cluster(PODS, units=UNITS) as url_and_hour:
        yield url_and_hour


def test_hour_needs_no_more_queries_and_samples_than_recorded(small: tuple[str, datetime]) -> None:
    url, hour = small
    assert attribute(url, hour) == PODS
    queries = recorded_queries(url, hour)
    assert len(queries) == QUERIES
    processed = samples_processed(url, queries)
    assert processed <= MARGIN * SAMPLES_A_POD * PODS
    assert processed <= 0.6 * raw_samples(url, hour)


def test_hour_executes_no_more_instructions_than_recorded(small: tuple[str, datetime]) -> None:
    run = partial(attribute, *small, units=UNITS)
    assert run() == PODS
    bound = READER_INSTRUCTIONS * (1 if sys.version_info[:2] == (3, 13) else 1.2)
    assert instructions(run) <= MARGIN * PODS * bound


def test_core_executes_no_more_instructions_than_recorded() -> None:
    run = hour_of(100, UNITS)
    assert len(run().lines) == 100
    bound = INSTRUCTIONS.get(sys.version_info[:2], max(INSTRUCTIONS.values()))
    assert instructions(run) <= MARGIN * 100 * bound


def test_instructions_grow_linearly_with_pods_and_little_with_business_units() -> None:
    by_pods = exponent((pods, instructions(hour_of(pods, UNITS))) for pods in (50, 200))
    assert by_pods <= 1.02
    by_units = exponent((units, instructions(hour_of(100, units))) for units in (20, 200))
    assert by_units <= 0.016
    by_label = exponent((units, instructions(hour_of(100, units, by_label=True))) for units in (20, 200))
    assert by_label <= 0.021


def test_memory_of_replaced_pods_is_no_more_than_recorded() -> None:
    """A function has 416 MiB for it, whatever the number of samples."""
    with cluster(300, units=UNITS, step=15, replaced=20) as (url, hour):
        settings = settings_for(url, UNITS)
        budget = MemoryBudget(REPLACED_MIB * MIB)
        reader = metrics_reader(settings.clusters[0], settings, budget=budget)
        (record,) = attribute_hours(reader, settings.clusters[0], settings, [hour], now=datetime.now(UTC))
    assert len(record.lines) == 300 + 60


def test_instructions_for_replaced_pods_are_no_more_than_recorded() -> None:
    with cluster(PODS, units=UNITS, step=15, replaced=20) as (url, hour):
        executed = instructions(partial(attribute, url, hour, units=UNITS))
    bound = REPLACED_INSTRUCTIONS.get(sys.version_info[:2], max(REPLACED_INSTRUCTIONS.values()))
    assert executed <= MARGIN * PODS * bound


@pytest.mark.parametrize("by_claim", [False, True], ids=["requests", "claims"])
def test_instructions_grow_linearly_with_pods_that_take_turns(*, by_claim: bool) -> None:
    """Each pod more takes as many instructions; the samples of the node's devices are the same for all."""
    of_64, of_128, of_256 = (instructions(hour_of_turns(pods, UNITS, by_claim=by_claim)) for pods in (64, 128, 256))
    assert of_256 - of_128 <= 2**1.15 * (of_128 - of_64)


def test_instructions_grow_linearly_with_fractions_of_a_gpu_in_turn() -> None:
    """One pod has its fraction all hour, so its share changes with every other pod."""
    by_pods = exponent((pods, instructions(fractions_in_turn(pods))) for pods in (64, 256))
    assert by_pods <= 1.03


def test_instructions_grow_linearly_with_lines_of_shared_units() -> None:
    by_pods = exponent((pods, instructions(hour_of(pods, UNITS, shared=1))) for pods in (60, 240))
    assert by_pods <= 1.02


def test_tokens_of_models_cost_another_query_and_few_instructions() -> None:
    """Every tenth pod serves a model."""
    with cluster(PODS, units=UNITS, servers=PODS // 10) as (url, hour):
        queries, queries_without = (len(recorded_queries(url, hour, inference=enabled)) for enabled in (True, False))
        assert queries == queries_without + 1
        executed, without = (
            instructions(partial(attribute, url, hour, units=UNITS, inference=enabled)) for enabled in (True, False)
        )
    assert executed <= TOKENS.get(sys.version_info[:2], max(TOKENS.values())) * without
