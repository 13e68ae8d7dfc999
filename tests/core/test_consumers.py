"""Tokens of servers are divided as a gateway counted those of each consumer, in figures that were computed by hand."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import CounterSeries, ServerCounters
from gpucost.core.metering.served_tokens import divide_among_consumers
from tests.core.single_node_cluster import MINUTE, START, observation

Count = int | None


def served(
    pod: str, prompt: Count, generated: Count, cached: Count, requests: Count, namespace: str = "team"
) -> ServedTokens:
    return ServedTokens(namespace, pod, "vllm", "m", prompt, generated, cached, requests)


def passed(
    consumer: str,
    prompt: Count,
    generated: Count,
    cached: Count,
    requests: Count,
    namespace: str = "team",
    model: str = "m",
) -> ServedTokens:
    return ServedTokens(namespace, "gateway", "g", model, prompt, generated, cached, requests, consumer)


def divided(*tokens: ServedTokens, by: list[ServedTokens]) -> dict[tuple[str, str], tuple[int | None, ...]]:
    """The counts by pod and consumer, without those of zeros."""
    return {
        (part.pod, part.consumer): (part.prompt, part.generated, part.cached, part.requests)
        for part in divide_among_consumers(tokens, by)
        if part.prompt or part.requests
    }


def test_each_kind_has_proportions_at_the_gateway() -> None:
    by = [passed("x", 300, 10, 0, 2), passed("y", 100, 30, 50, 6)]
    assert divided(served("p", 200, 20, 25, 4), served("q", 200, 20, 25, 4), by=by) == {
        ("p", "x"): (150, 5, 0, 1),
        ("p", "y"): (50, 15, 25, 3),
        ("q", "x"): (150, 5, 0, 1),
        ("q", "y"): (50, 15, 25, 3),
    }


def test_tokens_that_bypass_the_gateway_have_no_consumer() -> None:
    """The servers generated 100 tokens, the gateway counted 60 of them. Up to 2% are ignored."""
    assert divided(served("p", 1000, 100, 0, 10), by=[passed("x", 600, 60, 0, 6)]) == {
        ("p", "x"): (600, 60, 0, 6),
        ("p", ""): (400, 40, 0, 4),
    }
    assert divided(served("p", 1000, 100, 0, 10), by=[passed("x", 970, 98, 0, 9)]) == {("p", "x"): (1000, 100, 0, 10)}
    assert divided(served("p", 1000, 100, 0, 10), by=[passed("x", 970, 97, 0, 9)])["p", ""] == (30, 3, 0, 0)


def test_gateway_that_counts_more_than_the_servers_divides_all() -> None:
    by = [passed("x", 900, 90, 0, 9), passed("y", 900, 90, 0, 9)]
    assert divided(served("p", 1000, 100, 0, 10), by=by) == {("p", "x"): (500, 50, 0, 5), ("p", "y"): (500, 50, 0, 5)}


def test_kind_that_the_gateway_does_not_count_is_divided_like_another() -> None:
    by = [passed("x", 300, 40, None, None), passed("y", 100, 120, None, None)]
    assert divided(served("p", 400, 160, 80, 8), by=by) == {("p", "x"): (300, 40, 60, 2), ("p", "y"): (100, 120, 20, 6)}


def test_unknown_tokens_stay_unknown_for_each_consumer() -> None:
    by = [passed("x", 300, 40, 0, 2), passed("y", 100, 120, 0, 6)]
    assert divided(served("p", None, None, None, 8), by=by) == {
        ("p", "x"): (None, None, None, 2),
        ("p", "y"): (None, None, None, 6),
    }


def test_gateway_counts_for_the_servers_of_its_namespace() -> None:
    here, there = served("p", 100, 10, 0, 1), served("q", 100, 10, 0, 1, namespace="other")
    by = [passed("x", 100, 10, 0, 1)]
    assert divided(here, there, by=by) == {("p", "x"): (100, 10, 0, 1), ("q", ""): (100, 10, 0, 1)}
    elsewhere = [passed("x", 200, 20, 0, 2, namespace="gateways")]
    assert divided(here, there, by=elsewhere) == {("p", "x"): (100, 10, 0, 1), ("q", "x"): (100, 10, 0, 1)}
    assert divided(here, by=[passed("x", 1, 1, 0, 1, model="n")]) == {("p", ""): (100, 10, 0, 1)}


counts = st.integers(0, 10**9)


@given(
    st.lists(st.builds(served, st.sampled_from(["p", "q"]), counts, counts, counts, counts), max_size=4),
    st.lists(st.builds(passed, st.sampled_from(["", "x", "y"]), counts, counts, counts, counts), max_size=4),
)
def test_parts_add_up_to_the_servers(tokens: list[ServedTokens], by: list[ServedTokens]) -> None:
    parts = divide_among_consumers(tokens, by)
    for kind in ("prompt", "generated", "cached", "requests"):
        assert sum(getattr(part, kind) for part in parts) == sum(getattr(each, kind) for each in tokens)
        assert all(getattr(part, kind) >= 0 for part in parts)


def readings(pod: str, server: str, *samples: tuple[float, int], consumer: str = "") -> CounterSeries:
    """Requests of a server or gateway with (minute, value) samples."""
    times = tuple((START + round(minute * MINUTE), Decimal(count)) for minute, count in samples)
    target = f"job|/{pod}"
    return CounterSeries("team", pod, server, "m", "requests", pod, target, frozenset(), None, times, consumer)


def consumers_of(*of_gateways: CounterSeries) -> tuple[dict[str, int | None], list[str]]:
    """Requests by consumer, and the notes, of a server with 600 requests."""
    of_server = readings("p", "triton", (-1, 0), (59, 600))
    hour = replace(observation(), counters=ServerCounters((of_server,), {}, of_gateways))
    usage = meter(hour, MeteringRules())
    return {tokens.consumer: tokens.requests for tokens in usage.served if tokens.requests}, [
        note for note in usage.notes if "consumers" in note
    ]


def test_replaced_gateway_counts_with_both_pods() -> None:
    """Of pods without GPUs, the samples are the only lifetime."""
    before = readings("g-1", "gateway", (-1, 1000), (20, 1200), consumer="x")
    after = readings("g-2", "gateway", (22, 0), (59, 400), consumer="y")
    assert consumers_of(before, after) == ({"x": 200, "y": 400}, [])


def test_gateway_that_was_not_scraped_makes_consumers_unknown_and_no_tokens() -> None:
    gap = readings("g", "gateway", (-30, 1000), (20, 1200), (59, 1600), consumer="x")
    complete = readings("h", "gateway", (-1, 0), (59, 200), consumer="y")
    requests, notes = consumers_of(gap, complete)
    assert requests == {"": 600}
    assert notes == [
        "consumers of models are unknown: gateway team/g: its counters of gateway were not scraped around the hour's "
        "start"
    ]
