"""Names of models and consumers are bounded, and what has no name of its own counts among others."""

from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.amounts import Costs
from gpucost.core.costs_by_model import (
    InferenceRules,
    ModelSum,
    TokenWeights,
    condensed,
    costs_by_model,
    with_bounded_names,
)
from gpucost.core.hour_record import ModelHour
from gpucost.core.metering.inference_servers import (
    MAX_LENGTH,
    MAX_NAMES_OF_POD,
    MAX_NAMES_OF_UNIT,
    OTHERS,
    ServedTokens,
    bounded_names,
)
from gpucost.core.metering.observations import CounterSeries
from tests.core.single_node_cluster import counter, tokens_of
from tests.records import line


def of_model(model: str, tokens: int) -> CounterSeries:
    return counter((-1, 0), (0, 0), (59, tokens))._replace(model=model)


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9))), st.integers(1, 5))
def test_names_with_the_largest_weights_are_kept(weights: list[tuple[str, int]], count: int) -> None:
    names = bounded_names(weights, count)
    distinct = {name for name, _ in weights}
    if names is None:
        assert len(distinct) <= count
        return
    kept = {name for name, counted_as in names.items() if counted_as == name}
    assert names.keys() == distinct
    assert len(kept - {OTHERS}) <= count
    sums = {name: sum(weight for other, weight in weights if other == name) for name in distinct}
    assert min(sums[name] for name in kept) >= max(sums[name] for name in distinct - kept)


def test_pod_with_too_many_or_too_long_names_has_others() -> None:
    many = [of_model(f"m{number:03}", 1000 + number) for number in range(MAX_NAMES_OF_POD + 10)]
    served, notes = tokens_of(*many, of_model("x" * (MAX_LENGTH + 1), 9000))
    names = {tokens.model: tokens.prompt for tokens in served}
    assert len(names) == MAX_NAMES_OF_POD + 1
    assert names[OTHERS] == sum(range(1000, 1010)) + 9000
    assert sum(prompt or 0 for prompt in names.values()) == sum(1000 + number for number in range(60)) + 9000
    (note,) = notes
    assert note.startswith(
        f"tokens of some models or consumers of 1 pod(s), such as team/p, count together as {OTHERS}: "
    )


def rows(models: int) -> list[ModelHour]:
    lines = [line("a", pod=f"p{number}") for number in range(models)]
    served = [ServedTokens(part.namespace, part.pod, "vllm", f"m-{part.pod}", 10, 20, 0, 3) for part in lines]
    honest = line("b", "bu-b", "honest")
    served.append(ServedTokens(honest.namespace, "honest", "vllm", "chat", 1, 2, 0, 4))
    return costs_by_model([*lines, honest], served, InferenceRules())


def test_unit_with_too_many_models_has_others_and_other_units_keep_theirs() -> None:
    hours = rows(MAX_NAMES_OF_UNIT + 7)
    bounded, notes = with_bounded_names(hours)
    assert notes == [f"7 models of business unit a count together as {OTHERS}"]
    of_unit = {hour.key.model for hour in bounded if hour.key.business_unit == "a"}
    assert len(of_unit) == MAX_NAMES_OF_UNIT + 1
    assert [hour for hour in bounded if hour.key.business_unit == "b"] == [
        hour for hour in hours if hour.key.business_unit == "b"
    ]
    assert Costs.total(hour.costs for hour in bounded) == Costs.total(hour.costs for hour in hours)
    assert ModelSum.of(bounded).figures(TokenWeights()) == ModelSum.of(hours).figures(TokenWeights())


def test_few_models_stay_as_they_are() -> None:
    hours = rows(3)
    assert with_bounded_names(hours) == (hours, [])


def test_condensed_rows_have_the_same_sums() -> None:
    hours = rows(9)
    hours += [hour._replace(prompt_tokens=None) for hour in hours[:3]]
    hours += [hour._replace(cached_tokens=None) for hour in hours[:3]]
    few = condensed(hours)
    assert len(few) < len(hours)
    assert ModelSum.of(few).figures(TokenWeights()) == ModelSum.of(hours).figures(TokenWeights())
