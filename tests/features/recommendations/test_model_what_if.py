"""What tokens would cost from an API or on another GPU: by hand, from a real ledger, and with the command."""

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.container import Container
from gpucost.core.amounts import to_decimal
from gpucost.core.costs_by_model import InferenceRules, TokenWeights, costs_by_model
from gpucost.core.hour_record import Line, ModelHour
from gpucost.core.hours import HOUR, floor_day
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.features.recommendations.what_if import ApiPrice, CostPair, ModelOutcome, compare_models
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost_cli.main import main
from tests.features.alerting.fleet import START, pod
from tests.records import record

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
WEIGHTS = TokenWeights()
PRICE = ApiPrice(Decimal(3), Decimal(15), Decimal("0.3"))
CHAT = pod("research", "chat", gpus=2, use="0.5")._replace(gpu_model=A100)
"""Two GPUs at $12 for the hour, of which half is used."""
FAST = pod("research", "fast", gpus=1, use="0.8")._replace(gpu_model=H100)
LATE = pod("vision", "late", gpus=1, use="1")._replace(gpu_model=H100)


def served(
    line: Line, model: str = "llama", prompt: int = 0, generated: int = 0, cached: int | None = 0
) -> ServedTokens:
    return ServedTokens(line.namespace, line.pod, "vllm", model, prompt, generated, cached, 1)


def rows_of(*served_by: ServedTokens, lines: tuple[Line, ...] = (CHAT, FAST, LATE)) -> list[ModelHour]:
    return costs_by_model(lines, served_by, InferenceRules())


def compare(rows: list[ModelHour], **options: Any) -> dict[str, ModelOutcome]:
    arguments: dict[str, Any] = {"api_price": None, "gpu_model": None, "everywhere": rows, **options}
    return {outcome.model: outcome for outcome in compare_models(rows, weights=WEIGHTS, **arguments)}


def pair(usd: int | str, at_full_use: int | str) -> CostPair:
    return CostPair(Decimal(usd), Decimal(at_full_use))


def test_tokens_at_the_price_of_an_api() -> None:
    outcome = compare(rows_of(served(CHAT, "llama", 3_000_000, 200_000, 1_000_000)), api_price=PRICE)["llama"]
    # By hand: 2 million × $3 + 1 million × $0.30 + 0.2 million × $15.
    assert outcome.api_usd == Decimal("9.3")
    assert outcome.cost == pair(24, 12)
    assert outcome.other_gpu is None


def test_uncounted_cached_tokens_have_the_price_of_others() -> None:
    outcome = compare(rows_of(served(CHAT, "llama", 3_000_000, 200_000, None)), api_price=PRICE)["llama"]
    assert outcome.api_usd == 12


def test_tokens_on_another_gpu_by_measured_throughput() -> None:
    rows = rows_of(served(CHAT, "llama", 4_000_000, 400_000), served(FAST, "llama", 1_000_000, 300_000))
    (outcome,) = compare(rows, gpu_model="h100").values()
    assert outcome.other_gpu is not None
    # By hand, with weights 1 and 5: 6 million weighted tokens on A100 for $24, and 2.5 million in an hour of an H100
    # for $12. So the same tokens need 2.4 hours of it: $28.80, and at 80% use $23.04.
    assert outcome.other_gpu.moved == pair(24, 12)
    assert outcome.other_gpu.estimate == pair("28.8", "23.04")
    assert outcome.other_gpu.estimated_gpu_hours == Decimal("2.4")
    assert outcome.other_gpu.measured_gpu_hours == 1
    # 1.3 million tokens in 3,600 GPU-seconds
    assert outcome.other_gpu.measured_tokens_per_gpu_second == Decimal("361.111111111111")
    assert outcome.cost == pair(36, "21.6"), "of all GPUs: 21.6 of 36 was used"


def test_throughput_of_another_model_or_gpu_is_not_used() -> None:
    of_other_model = rows_of(served(CHAT, "llama", 1000, 10), served(FAST, "mistral", 1000, 10))
    on_h100 = rows_of(served(CHAT, "llama", 1000, 10), served(FAST, "llama", 1000, 10))
    for rows, gpu_model in ((of_other_model, "H100"), (on_h100, "H1"), (on_h100, "GH100")):
        other = compare(rows, gpu_model=gpu_model)["llama"].other_gpu
        assert other is not None
        assert other.estimate == (None, None)
        assert other.estimated_gpu_hours is None


def test_throughput_is_measured_in_all_business_units() -> None:
    everywhere = rows_of(served(CHAT, "llama", 1_000_000), served(LATE, "llama", 2_000_000))
    of_unit = [row for row in everywhere if row.key.business_unit == "research"]
    other = compare(of_unit, gpu_model="H100", everywhere=everywhere)["llama"].other_gpu
    assert other is not None
    assert other.estimate == pair(6, 6), "half an hour at $12"


def test_unknown_tokens_and_prices_give_no_estimate() -> None:
    unpriced = FAST._replace(
        allocated_usd=None, effective_usd=None, waste_usd=None, unmeasured_usd=None, gpu_hourly_usd=None
    )
    rows = rows_of(
        served(CHAT, "llama", 1_000, 10),
        served(unpriced, "llama", 1_000, 10),
        ServedTokens("vision-ns", "late-0", "vllm", ""),
        lines=(CHAT, unpriced, LATE),
    )
    outcomes = compare(rows, api_price=PRICE, gpu_model="H100")
    assert outcomes.keys() == {"llama"}, "no model has the cost of unknown tokens"
    other = outcomes["llama"].other_gpu
    assert other is not None
    assert other.estimate == (None, None)
    assert outcomes["llama"].cost == (None, None)
    assert outcomes["llama"].api_usd == Decimal("0.0063")
    requests_only = [ServedTokens(CHAT.namespace, CHAT.pod, "triton", "resnet", requests=5)]
    assert compare(rows_of(*requests_only), api_price=PRICE)["resnet"].api_usd is None


COUNTS = st.integers(0, 10**9)


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.integers(1, 5))
def test_equal_throughput_and_price_cost_the_same(
    prompt: int, generated: int, cached: int, hours: int, factor: int
) -> None:
    """A model with `factor` times the GPUs and tokens there costs here what it costs there."""
    here = replace_gpus(CHAT, 1)
    there = replace_gpus(FAST, factor)
    counts = prompt + 1, generated, min(cached, prompt)
    rows = rows_of(
        served(here, "m", *counts), served(there, "m", *(count * factor for count in counts)), lines=(here, there)
    )
    other = compare(rows, gpu_model="H100")["m"].other_gpu
    assert other is not None
    assert other.estimate.usd == other.moved.usd == 12
    assert other.estimated_gpu_hours == 1


def replace_gpus(line: Line, gpus: int) -> Line:
    return pod(line.business_unit, line.workload, gpus=gpus, use="0.5")._replace(gpu_model=line.gpu_model)


SETTINGS = """
clusters:
  - {name: demo, prometheus: {url: "http://127.0.0.1:9"}}
  - {name: far, prometheus: {url: "http://127.0.0.1:9"}}
inference: {enabled: true}
"""


@pytest.fixture
def command(ledger_table: Table, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The command on a ledger in which `demo` serves on A100, and `far` on H100."""
    ledger, store = Ledger(ledger_table), SettingsDocumentStore(ledger_table, clock=lambda: START)
    store.push(SETTINGS, author="test", now=START)
    day = floor_day(START)

    def publish(cluster: str, hour: int, line: Line, tokens: ServedTokens, currency: str = "USD") -> None:
        published = record([line], hour=day + hour * HOUR, cluster=cluster)
        models = tuple(costs_by_model([line], [tokens], InferenceRules()))
        ledger.publish(
            replace(published, models=models, currency=currency), replacing=None, settings_version=1, now=START
        )

    for hour in range(2):
        publish("demo", hour, CHAT, served(CHAT, "llama", 2_000_000, 200_000))
    publish("demo", 2, CHAT, ServedTokens(CHAT.namespace, CHAT.pod, "vllm", ""))
    publish("far", 5, LATE, served(LATE, "llama", 1_000_000, 300_000))
    publish("demo", 24, CHAT, served(CHAT, "llama", 7_000_000, 7_000_000), currency="EUR")
    container = Container(settings_store=store, ledger=ledger, clock=lambda: day + timedelta(days=1, hours=3))

    def run(*arguments: str, fails: int = 0) -> str:
        command = ["recommendations", "what-if-models", *arguments, "--stack", "test", "--days", "1"]
        if fails:
            with pytest.raises(SystemExit) as end:
                main(command, container)
            assert end.value.code == fails
        else:
            main(command, container)
        out, err = capsys.readouterr()
        return err if fails else out

    return run


def test_command_compares_a_period_of_the_ledger(command: Callable[..., str]) -> None:
    options = ("--prompt-price", "3", "--generated-price", "15", "--gpu-model", "H100", "--cluster", "demo")
    document = json.loads(command(*options, "--format", "json"), parse_float=Decimal)
    # By hand: 4 million prompt and 0.4 million generated tokens are 6 million weighted ones for $48. The H100 of the
    # other cluster processed 2.5 million for $12, so that they would cost $28.80 there.
    (llama,) = document["models"]
    assert (llama["usd"], llama["usd_at_full_use"], llama["api_usd"]) == (48, 24, 18)
    assert llama["other_gpu"]["estimated_usd"] == Decimal("28.8")
    assert document["unknown_tokens_usd"] == 24
    assert document["currency"] == "USD", "the day of another currency is not over yet"
    table = command(*options)
    for text in ("$48.00", "$24.00", "$18.00", "$28.80", "estimate", "left out: $24.00"):
        assert text in table


def test_command_filters_models_and_business_units(command: Callable[..., str]) -> None:
    price = ("--prompt-price", "3", "--generated-price", "15", "--cached-price", "0.3", "--format", "json")
    document = json.loads(command(*price, "--business-unit", "vision"))
    assert document["models"][0]["prompt_tokens"] == 1_000_000
    assert document["unknown_tokens_usd"] == 0
    assert json.loads(command(*price, "--model", "l*"))["models"][0]["prompt_tokens"] == 5_000_000
    assert "no model like 'gpt*' was served" in command(*price, "--model", "gpt*", fails=2)


def test_command_without_a_comparison_is_refused(command: Callable[..., str]) -> None:
    assert "pass the price of an API" in command(fails=2)
    assert "are required together" in command("--prompt-price", "3", fails=2)
    assert "are required together" in command("--gpu-model", "H100", "--cached-price", "3", fails=2)
    assert "'-3' is not an amount" in command("--prompt-price", "-3", "--generated-price", "1", fails=2)
    assert "cluster 'x' is not in the settings" in command("--gpu-model", "H100", "--cluster", "x", fails=2)


def test_cost_at_full_use_is_unknown_without_measured_use() -> None:
    unseen = CHAT._replace(
        effective_gpu_hours=None,
        utilization=None,
        effective_usd=None,
        waste_usd=None,
        unmeasured_gpu_hours=CHAT.allocated_gpu_hours,
        unmeasured_usd=CHAT.allocated_usd,
    )
    outcome = compare(rows_of(served(unseen, "llama", 10, 1), lines=(unseen,)), api_price=PRICE)["llama"]
    assert outcome.cost == (to_decimal(CHAT.allocated_usd or 0), None)
