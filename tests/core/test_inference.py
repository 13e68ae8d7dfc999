"""Tokens from counters, and the split of costs between models, in figures that were computed by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.amounts import SCALE, Costs
from gpucost.core.attribution import AttributionRules, BusinessUnit, BusinessUnitMatcher, build_record
from gpucost.core.costs_by_model import (
    InferenceRules,
    ModelSum,
    TokenLoad,
    TokenWeights,
    costs_by_model,
    load_percentiles,
)
from gpucost.core.hour_record import Line, ModelHour
from gpucost.core.ledger import content_digest
from gpucost.core.metering.inference_servers import CounterKind, ServedTokens
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import ServerCounters
from gpucost.core.pricing.node_costs import Pricing
from gpucost.core.pricing.prices import Price, PriceBook
from gpucost.storage import compressed_documents
from gpucost.storage.usage_documents import read_usage, usage_document
from tests.core.single_node_cluster import counter, observation, tokens_of
from tests.records import HOUR, amount, line, record

GAP = 5


def prompt_of(*readings: tuple[float, int], **more: object) -> int | None:
    served, _ = tokens_of(counter(*readings), **more)  # type: ignore[arg-type]
    (tokens,) = served
    return tokens.prompt


def test_increase_is_from_the_last_value_before_the_hour_to_the_last_in_it() -> None:
    assert prompt_of((-2, 70), (-1, 100), (0, 110), (30, 400), (59, 1000), (60, 5000)) == 900


def test_reset_counts_from_zero_even_if_the_counter_ends_higher() -> None:
    assert prompt_of((-1, 100), (10, 250), (12, 30), (59, 900)) == 150 + 900


def test_counter_that_begins_with_its_pod_begins_at_zero() -> None:
    assert prompt_of((15, 40), (59, 900), held=(14, 120)) == 900


def test_counter_that_begins_between_two_scrapes_begins_at_zero() -> None:
    assert prompt_of((20, 500), (59, 900), scrapes={18: True, 19: True, 20: True}) == 900


def test_server_that_was_already_running_when_scraping_began_is_unknown() -> None:
    served, notes = tokens_of(counter((20, 500), (59, 900)))
    assert served == (ServedTokens("team", "p", "vllm", ""),)
    assert notes == (
        "tokens of pod team/p are unknown: its counters of vllm were not scraped before, and it ran already",
    )


def test_server_that_was_tried_in_vain_for_as_long_as_was_read_is_unknown() -> None:
    tried = dict.fromkeys(map(float, range(-60, 20)), False)
    assert prompt_of((20, 500), (59, 900), scrapes=tried) is None
    assert prompt_of((20, 500), (59, 900), scrapes={minute: False for minute in tried if minute > -30}) == 900


@pytest.mark.parametrize(("age", "expected"), [(GAP, 400), (GAP + 1, None)])
def test_gap_at_the_start_is_bridged_up_to_five_minutes(age: int, expected: int | None) -> None:
    assert prompt_of((-age, 100), (7, 200), (59, 500)) == expected


@pytest.mark.parametrize(("last", "expected"), [(60 - GAP, 400), (60 - GAP - 1, None)])
def test_gap_at_the_end_is_bridged_up_to_five_minutes(last: int, expected: int | None) -> None:
    assert prompt_of((-1, 100), (last, 500), (70, 600)) == expected


def test_gap_in_which_nothing_was_counted_is_no_gap() -> None:
    assert prompt_of((-30, 100), (7, 100), (40, 300), (80, 300)) == 200


def test_gap_within_the_hour_loses_nothing() -> None:
    assert prompt_of((-1, 100), (5, 200), (55, 800), (59, 900)) == 800


def test_counter_of_a_pod_that_ended_ends_with_it() -> None:
    assert prompt_of((-1, 100), (30, 500), held=(-10, 32)) == 400


def test_counter_that_vanishes_while_its_server_is_scraped_has_ended() -> None:
    assert prompt_of((-1, 100), (30, 500), scrapes={59: True}) == 400
    assert prompt_of((-1, 100), (30, 500), scrapes={59: False}) is None


def test_two_jobs_that_scrape_a_server_count_once_by_the_complete_series() -> None:
    partial = counter((20, 300), (59, 500), target="a|/10.0.0.1:8000")
    complete = counter((-1, 100), (59.5, 520))
    assert [tokens.prompt for tokens in tokens_of(partial, complete)[0]] == [420]


def test_impossible_values_are_unknown_and_not_negative() -> None:
    hour = replace(
        observation(), counters=ServerCounters((counter((0, 1))._replace(samples=None, increase=Decimal(-5)),))
    )
    assert meter(hour, MeteringRules()).served == (ServedTokens("team", "p", "vllm", ""),)


def served(pod: str, *models: tuple[str, int, int, int, int], server: str = "vllm") -> list[ServedTokens]:
    return [ServedTokens("bu-a", pod, server, *counts) for counts in models]


def costs(rows: list[ModelHour]) -> dict[str, tuple[int, int, int]]:
    """Allocated, effective and waste by model, in dollars."""
    return {row.key.model: (row.costs.allocated_usd, row.costs.effective_usd, row.costs.waste_usd) for row in rows}


def test_costs_go_to_models_by_weighted_tokens() -> None:
    """100 prompt tokens, 50 of them cached, and 10 generated: 50 + 5 + 50 = 105; 595 generated: 2,975 of 3,080."""
    rows = costs_by_model(
        [line(usd="30.8")], served("p", ("small", 100, 10, 50, 1), ("large", 0, 595, 0, 1)), InferenceRules()
    )
    assert costs(rows) == {
        "large": (amount("29.75"), amount("7.4375"), amount("22.3125")),
        "small": (amount("1.05"), amount("0.2625"), amount("0.7875")),
    }


def test_model_that_was_not_called_gets_costs_only_if_it_is_alone() -> None:
    busy, idle = ("busy", 100, 10, 0, 1), ("idle", 0, 0, 0, 0)
    assert costs(costs_by_model([line(usd="8")], served("p", busy, idle), InferenceRules()))["idle"] == (0, 0, 0)
    (alone,) = costs_by_model([line(usd="8")], served("p", idle), InferenceRules())
    assert (alone.costs.allocated_usd, alone.prompt_tokens, alone.requests) == (amount(8), 0, 0)


def test_pod_with_unknown_tokens_has_no_model() -> None:
    tokens = [ServedTokens("bu-a", "p", "vllm", ""), *served("q", ("m", 100, 10, 0, 1))]
    unknown, complete = costs_by_model([line(usd="2"), line(pod="q", usd="3")], tokens, InferenceRules())
    assert (unknown.key.server, unknown.key.model, unknown.prompt_tokens) == ("vllm", "", None)
    assert (complete.key.model, complete.costs.allocated_usd) == ("m", amount(3))


def used(pod: str, consumer: str, *models: tuple[str, int, int, int, int]) -> list[ServedTokens]:
    return [replace(tokens, consumer=consumer) for tokens in served(pod, *models)]


def test_costs_of_a_model_go_to_its_consumers_and_the_unit_of_its_pods_stays() -> None:
    """8 USD for 100 + 5 × 60 = 400 weighted tokens: 1 USD for 50 of them, 7 USD for 350."""
    tokens = [*used("p", "x", ("m", 50, 0, 0, 1)), *used("p", "y", ("m", 50, 60, 0, 2))]
    rows = costs_by_model([line("platform", usd="8")], tokens, InferenceRules())
    assert [(row.key.business_unit, row.key.consumer, row.key.model) for row in rows] == [
        ("platform", "x", "m"),
        ("platform", "y", "m"),
    ]
    amounts = [(row.costs.allocated_usd, row.costs.effective_usd, row.costs.waste_usd) for row in rows]
    assert amounts == [(amount(1), amount("0.25"), amount("0.75")), (amount(7), amount("1.75"), amount("5.25"))]
    assert [(row.prompt_tokens, row.generated_tokens, row.requests) for row in rows] == [(50, 0, 1), (50, 60, 2)]


def test_names_of_a_unit_are_added_up() -> None:
    tokens = [*used("p", "x-1", ("m", 10, 0, 0, 1)), *used("p", "x-2", ("m", 30, 0, 0, 1))]
    matcher = BusinessUnitMatcher([BusinessUnit("first", consumers=("x-*",)), BusinessUnit("x-2", consumers=("x-2",))])
    (row,) = costs_by_model([line(usd="8")], tokens, InferenceRules(), matcher.business_unit_of_consumer)
    assert (row.key.consumer, row.costs.allocated_usd, row.prompt_tokens) == ("first", amount(8), 40)
    assert matcher.business_unit_of_consumer("y") == "y"


def test_model_without_requests_waits_for_no_consumer() -> None:
    nothing = ("m", 0, 0, 0, 0)
    idle = [*used("p", "x", nothing), *used("p", "y", nothing)]
    (row,) = costs_by_model([line(usd="8")], idle, InferenceRules())
    assert (row.key.consumer, row.costs.allocated_usd, row.prompt_tokens) == ("", amount(8), 0)
    (busy,) = costs_by_model([line(usd="8")], [*idle, *used("p", "z", ("m", 1, 0, 0, 0))], InferenceRules())
    assert (busy.key.consumer, busy.costs.allocated_usd) == ("z", amount(8))


def test_requests_without_a_consumer_have_their_costs() -> None:
    tokens = [*used("p", "x", ("m", 30, 0, 0, 1)), *served("p", ("m", 10, 0, 0, 1))]
    rows = costs_by_model([line(usd="8")], tokens, InferenceRules())
    assert [(row.key.consumer, row.costs.allocated_usd) for row in rows] == [("", amount(2)), ("x", amount(6))]


def test_counters_that_a_consumer_has_not_begun_are_zero() -> None:
    """Only x has cached tokens; y and the requests without a name have none. Unknown kinds stay unknown."""
    began: dict[tuple[str, CounterKind], int] = {
        ("x", "prompt"): 9,
        ("x", "generated"): 8,
        ("x", "cached"): 7,
        ("y", "prompt"): 6,
        ("", "generated"): 1,
    }
    counters = [
        counter((-1, 0), (59, count))._replace(kind=kind, consumer=consumer)
        for (consumer, kind), count in began.items()
    ]
    assert tokens_of(*counters)[0] == (
        ServedTokens("team", "p", "vllm", "m", 0, 1, 0),
        ServedTokens("team", "p", "vllm", "m", 9, 8, 7, consumer="x"),
        ServedTokens("team", "p", "vllm", "m", 6, 0, 0, consumer="y"),
    )


def test_stored_usage_has_consumers_only_where_there_are_some() -> None:
    usage = meter(observation(), MeteringRules())
    tokens = (
        ServedTokens("team", "p", "vllm", "m", 1, 2, 3, 4),
        ServedTokens("team", "p", "vllm", "m", 5, 6, 7, 8, "x"),
    )
    for stored, columns in ((tokens[:1], 8), (tokens, 9)):
        document = usage_document(replace(usage, served=stored))
        assert len(document["served"]) == columns
        assert read_usage("c", usage.hour, document).served == stored


def test_hour_without_servers_has_no_rows() -> None:
    assert costs_by_model([line()], [], InferenceRules()) == []


def test_workers_without_counters_share_the_tokens_of_their_workload() -> None:
    """3 pods of one RayCluster, of which the head counts for all: 9 USD and 300 tokens."""
    lines = [line(pod=pod, usd="3")._replace(workload_kind="RayCluster", workload="r") for pod in ("head", "w0", "w1")]
    (row,) = costs_by_model(lines, served("head", ("m", 200, 100, 0, 3)), InferenceRules())
    assert (row.costs.allocated_usd, row.prompt_tokens, row.generated_tokens) == (amount(9), 200, 100)


def test_workers_of_a_leader_worker_set_belong_to_their_leader() -> None:
    lines = [
        line(pod=pod, usd="3")._replace(workload_kind="StatefulSet", workload=owner)
        for pod, owner in (("llm-0", "llm"), ("llm-0-1", "llm-0"), ("llm-1", "llm"))
    ]
    tokens = [*served("llm-0", ("a", 100, 0, 0, 1)), *served("llm-1", ("b", 100, 0, 0, 1))]
    by_model: dict[str, int] = {}
    for row in costs_by_model(lines, tokens, InferenceRules()):
        by_model[row.key.model] = by_model.get(row.key.model, 0) + row.costs.allocated_usd
    assert by_model == {"a": amount(6), "b": amount(3)}


@pytest.mark.parametrize(("side", "prompt"), [("decode", 1000), ("prefill", 1010)])
def test_prompt_tokens_of_a_split_count_once(side: str, prompt: int) -> None:
    """The decode side counts every prompt again (vLLM issue 33289), and as cached what it received."""
    lines = [line(pod=pod, usd="3")._replace(workload=f"llama-{pod}") for pod in ("prefill", "decode")]
    tokens = [*served("prefill", ("m", 1010, 7, 300, 7)), *served("decode", ("m", 1000, 500, 990, 6))]
    rules = InferenceRules(prompt_side=side)  # type: ignore[arg-type]
    total = ModelSum.of(costs_by_model(lines, tokens, rules))
    assert (total.prompt_tokens, total.generated_tokens, total.cached_tokens, total.requests) == (prompt, 500, 300, 6)
    assert total.costs.allocated_usd == amount(6)


def test_decode_side_of_a_leader_worker_set_is_that_of_its_leader() -> None:
    """The worker, whose workload is the leader's pod, comes first."""
    lines = [
        line(pod="llama-decode-0-1", usd="3")._replace(workload_kind="StatefulSet", workload="llama-decode-0"),
        line(pod="llama-decode-0", usd="3")._replace(workload_kind="StatefulSet", workload="llama-decode"),
        line(pod="llama-prefill-0", usd="3")._replace(workload="llama-prefill"),
    ]
    tokens = [*served("llama-prefill-0", ("m", 1010, 7, 300, 7)), *served("llama-decode-0", ("m", 1000, 500, 990, 6))]
    total = ModelSum.of(costs_by_model(lines, tokens, InferenceRules()))
    assert (total.prompt_tokens, total.generated_tokens, total.cached_tokens, total.requests) == (1000, 500, 300, 6)


def test_decode_workload_without_a_prefill_side_counts_its_prompts() -> None:
    lines = [line()._replace(workload="llama-decode")]
    (row,) = costs_by_model(lines, served("p", ("m", 1000, 500, 10, 6)), InferenceRules())
    assert (row.prompt_tokens, row.cached_tokens) == (1000, 10)


def test_server_that_counts_only_requests_has_costs_per_request() -> None:
    tokens = [ServedTokens("bu-a", "p", "triton", model, requests=count) for model, count in (("x", 30), ("y", 10))]
    rows = costs_by_model([line(usd="8")], tokens, InferenceRules())
    assert [(row.key.model, row.costs.allocated_usd, row.prompt_tokens) for row in rows] == [
        ("x", amount(6), None),
        ("y", amount(2), None),
    ]
    figures = ModelSum.of(rows[:1]).figures(TokenWeights())
    assert (figures["usd_per_request"], figures["usd_per_million_tokens"]) == (Decimal("0.2"), None)


def test_kinds_of_tokens_that_a_model_does_not_have_have_no_unit_cost() -> None:
    """10 USD for 2,000,000 prompt tokens of a model for embeddings."""
    rows = costs_by_model([line(usd="10")], served("p", ("embed", 2_000_000, 0, 0, 4)), InferenceRules())
    figures = ModelSum.of(rows).figures(TokenWeights())
    assert figures["usd_per_million_tokens"] == figures["usd_per_million_prompt_tokens"] == 5
    for kind in ("generated", "cached"):
        assert figures[f"usd_per_million_{kind}_tokens"] is None
        assert figures[f"usd_per_million_{kind}_tokens_at_full_use"] is None


def test_unit_costs_leave_out_pods_with_unknown_tokens() -> None:
    """4 USD for 1,000,000 tokens, and 6 USD of a pod whose tokens are unknown."""
    tokens = [ServedTokens("bu-a", "p", "vllm", ""), *served("q", ("m", 900_000, 100_000, 0, 1))]
    rows = costs_by_model([line(usd="6"), line(pod="q", usd="4")], tokens, InferenceRules())
    figures = ModelSum.of(rows).figures(TokenWeights())
    assert figures["usd_per_million_tokens"] == 4
    assert figures["usd_per_million_tokens_at_full_use"] == 1
    assert (figures["allocated_usd"], figures["unknown_tokens_usd"]) == (10, 6)


def test_unpriced_lines_have_tokens_and_no_money() -> None:
    nothing = dict.fromkeys(("gpu_hourly_usd", "allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd"))
    rows = costs_by_model(
        [line()._replace(**nothing)],  # type: ignore[arg-type]
        served("p", ("a", 100, 7, 0, 1), ("b", 50, 3, 0, 1)),
        InferenceRules(),
    )
    figures = ModelSum.of(rows[:1]).figures(TokenWeights())
    assert (figures["allocated_usd"], figures["usd_per_million_tokens"], figures["prompt_tokens"]) == (None, None, 100)


def test_tokens_of_hours_without_a_price_make_the_others_no_cheaper() -> None:
    nothing = dict.fromkeys(("gpu_hourly_usd", "allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd"))
    processed, rules = served("p", ("m", 900_000, 100_000, 0, 10)), InferenceRules()
    rows = [
        *costs_by_model([line(usd="4")], processed, rules),
        *costs_by_model([line()._replace(**nothing)], processed, rules),  # type: ignore[arg-type]
    ]
    figures = ModelSum.of(rows).figures(TokenWeights())
    assert (figures["prompt_tokens"], figures["requests"]) == (1_800_000, 20)
    assert (figures["usd_per_million_tokens"], figures["usd_per_request"]) == (4, Decimal("0.4"))


counts = st.none() | st.integers(0, 10**12)
money = st.integers(0, 10**18)


@st.composite
def lines_with_amounts(draw: st.DrawFn) -> Line:
    effective, waste, unmeasured, hours, used_hours, unmeasured_hours, energy = (draw(money) for _ in range(7))
    has_price, has_energy = draw(st.booleans()), draw(st.booleans())
    pod, workload = draw(st.sampled_from(["a", "b", "c", "d-0", "d-0-1"])), draw(st.sampled_from(["w", "v", "d-0"]))
    return line(draw(st.sampled_from(["x", "y"])), pod=pod)._replace(
        workload=workload,
        workload_kind=draw(st.sampled_from(["Deployment", "StatefulSet"])),
        allocated_gpu_hours=hours + used_hours + unmeasured_hours,
        effective_gpu_hours=used_hours,
        unmeasured_gpu_hours=unmeasured_hours,
        allocated_usd=effective + waste + unmeasured if has_price else None,
        effective_usd=effective if has_price else None,
        waste_usd=waste if has_price else None,
        unmeasured_usd=unmeasured if has_price else None,
        energy_kwh=energy if has_energy else None,
        energy_gpu_hours=hours if has_energy else None,
        co2e_kg=energy // 3 if has_energy else None,
    )


tokens_of_pods = st.lists(
    st.builds(
        ServedTokens,
        st.just("bu-a"),
        st.sampled_from(["a", "b", "d-0"]),
        st.sampled_from(["vllm", "tgi"]),
        st.sampled_from(["m", "n", ""]),
        counts,
        counts,
        counts,
        counts,
        st.sampled_from(["", "a", "b"]),
    ),
    min_size=1,
    max_size=8,
)


@given(st.lists(lines_with_amounts(), max_size=8), tokens_of_pods)
def test_models_add_up_to_the_lines(lines: list[Line], tokens: list[ServedTokens]) -> None:
    rows = costs_by_model(lines, tokens, InferenceRules())
    assert Costs.total(row.costs for row in rows) == Costs.total(each.costs() for each in lines)
    for row in rows:
        each = row.costs
        assert each.allocated_usd == each.effective_usd + each.waste_usd + each.unmeasured_usd
        assert each.has_price() == (not 0 < each.unpriced_gpu_hours == each.allocated_gpu_hours)
    for unit in ("x", "y"):
        of_unit = [each.costs() for each in lines if each.business_unit == unit]
        assert Costs.total(row.costs for row in rows if row.key.business_unit == unit) == Costs.total(of_unit)


@given(st.lists(lines_with_amounts(), min_size=1, max_size=8), tokens_of_pods)
def test_rows_have_all_tokens_of_their_pods(lines: list[Line], tokens: list[ServedTokens]) -> None:
    """Without workloads of several pods, all known tokens are in the rows of their pods."""
    alone = [each._replace(workload=each.pod, workload_kind="Pod") for each in lines]
    rows = costs_by_model(alone, tokens, InferenceRules(prefill_workloads=(), decode_workloads=()))
    for pod in {each.pod for each in alone}:
        of_pod = [each for each in tokens if each.pod == pod]
        if of_pod and all(each.has_tokens for each in of_pod):
            expected = sum(each.prompt or 0 for each in of_pod)
            assert sum(row.prompt_tokens or 0 for row in rows if row.key.workload == pod) == expected


def test_stored_usage_and_models_are_read_unchanged() -> None:
    hour = replace(observation(), counters=ServerCounters((counter((-1, 0), (59, 900)),)))
    usage = meter(hour, MeteringRules())
    rules = AttributionRules(Pricing(PriceBook([Price("constant", "gpu-hour", Decimal(12), {})]), ("constant",)))
    document: Any = compressed_documents.unpack(
        [{"b": {"B": piece}} for piece in compressed_documents.pack(usage_document(usage))]
    )
    stored = read_usage("c", datetime(2026, 11, 19, 10, tzinfo=UTC), document)
    assert build_record(stored, rules).models == build_record(usage, rules).models != ()
    models = build_record(usage, rules).models
    assert compressed_documents.read_models(compressed_documents.models_document(models)) == models


def test_hour_with_servers_keeps_its_lines_and_notes_and_has_the_units_of_consumers() -> None:
    hour = replace(observation(), counters=ServerCounters((counter((-1, 0), (59, 900)),)))
    usage = replace(meter(hour, MeteringRules()), notes=("a note",))
    served = tuple(replace(tokens, generated=0, requests=1, consumer="key-1") for tokens in usage.served)
    rules = AttributionRules(Pricing.constant(Decimal(12)), (BusinessUnit("search", consumers=("key-*",)),))
    record_of_hour = build_record(replace(usage, served=served), rules)
    without_tokens = build_record(replace(usage, served=()), rules)
    assert record_of_hour.lines == without_tokens.lines != ()
    assert record_of_hour.notes == without_tokens.notes == ("a note",)
    assert {row.key.consumer for row in record_of_hour.models} == {"search"}


def test_hour_without_servers_keeps_its_digest_and_size() -> None:
    """Restating it publishes nothing new, and stored usage takes no more space."""
    plain = record([line()], hour=HOUR)
    models = costs_by_model([line()], served("p", ("m", 1, 1, 0, 1)), InferenceRules())
    assert content_digest(plain) != content_digest(replace(plain, models=tuple(models)))
    assert "served" not in usage_document(meter(observation(), MeteringRules()))


def test_weights_may_leave_out_a_kind() -> None:
    weights = TokenWeights(Decimal(0), Decimal(2), Decimal(0))
    assert weights.weigh(ServedTokens("n", "p", "s", "m", 100, 7, 3)) == Fraction(14)


@pytest.mark.parametrize(
    ("rates", "median", "high"),
    [
        ([], None, None),
        ([7], 7, 7),
        ([4, 1], 1, 4),
        ([3, 1, 2], 2, 3),
        (range(1, 21), 10, 19),
        (range(1, 22), 11, 20),
        ([*[0] * 12, *[100] * 12], 0, 100),
    ],
)
def test_percentiles_of_the_load_are_loads_of_hours(rates: Sequence[int], median: int | None, high: int | None) -> None:
    """Nearest rank: the 10th and the 19th of 20 hours, the 11th and the 20th of 21."""
    loads = [TokenLoad(rate * 3600, SCALE) for rate in rates]
    assert load_percentiles(loads) == {"tokens_per_gpu_second_p50": median, "tokens_per_gpu_second_p95": high}


def test_hours_without_gpus_have_no_load() -> None:
    assert load_percentiles([TokenLoad(5, 0), TokenLoad(7200, 2 * SCALE)])["tokens_per_gpu_second_p50"] == 1
