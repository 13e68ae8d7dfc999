"""`/v1/inference` through the real handler and a real ledger, compared with manual results."""

import csv
import io
from decimal import Decimal
from typing import Any

import pytest

from tests.functions.published_hours import PERIOD, ask

pytestmark = pytest.mark.usefixtures("published_hours")
WEST = {**PERIOD, "cluster": "west", "granularity": "total"}


def test_models_have_costs_tokens_and_unit_costs() -> None:
    """Three hours at 2 USD, of which 0.5 are waste, are split between two models of equal tokens.

    Each has 900,000 prompt and 120,000 generated tokens: 900,000 + 5 × 120,000 = 1,500,000 weighted ones for 3 USD.
    """
    answer = ask("/v1/inference", {**WEST, "group_by": "model"}).json
    first, second = answer["rows"]
    assert [row["group"] for row in (first, second)] == [{"model": "llama"}, {"model": "llama-sql"}]
    assert (first["allocated_usd"], first["effective_usd"], first["waste_usd"]) == (3, Decimal("2.25"), Decimal("0.75"))
    assert (first["prompt_tokens"], first["generated_tokens"], first["cached_tokens"]) == (900_000, 120_000, 0)
    assert first["requests"] == 1_500
    assert first["usd_per_million_prompt_tokens"] == 2
    assert first["usd_per_million_generated_tokens"] == 10
    assert first["usd_per_million_generated_tokens_at_full_use"] == Decimal("7.5")
    assert first["usd_per_million_tokens"] == Decimal("2.941176470588")
    assert first["usd_per_request"] == Decimal("0.002")
    assert (first["unknown_tokens_usd"], first["tokens_per_kwh"]) == (0, None)
    assert answer["totals"]["allocated_usd"] == 6
    assert answer["totals"]["requests"] == 3_000
    assert (answer["hours_with_servers"], answer["row_count"], answer["filtered_out"]) == (3, 2, None)


def test_percentiles_of_the_load_are_those_of_hours() -> None:
    """Each hour has 1,020,000 tokens of each model's half of 1/7 GPU."""
    query = {**WEST, "group_by": "model"}
    (hours, total) = (ask("/v1/inference", {**query, "granularity": text}).json["rows"] for text in ("hour", "total"))
    loads = sorted(row["tokens_per_gpu_second"] for row in hours if row["group"]["model"] == "llama")
    assert len(loads) == 3
    assert total[0]["tokens_per_gpu_second_p50"] == loads[1]
    assert total[0]["tokens_per_gpu_second_p95"] == loads[2]
    assert all(row["tokens_per_gpu_second_p95"] == row["tokens_per_gpu_second"] for row in hours)
    everything = ask("/v1/inference", {**WEST, "model": "llama*"}).json["rows"][0]
    both = ask("/v1/inference", {**WEST, "granularity": "hour", "model": "llama*"}).json["rows"]
    assert everything["tokens_per_gpu_second_p50"] == sorted(row["tokens_per_gpu_second"] for row in both)[1]


def test_rows_and_filtered_out_add_up_to_the_costs_of_the_same_hours() -> None:
    query = {**WEST, "group_by": "model,business_unit"}
    everything = ask("/v1/inference", query).json
    filtered = ask("/v1/inference", {**query, "model": "llama"}).json
    costs = ask("/v1/costs", WEST).json
    assert everything["totals"]["allocated_usd"] == costs["totals"]["allocated_usd"]
    assert sum(row["allocated_usd"] for row in everything["rows"]) == everything["totals"]["allocated_usd"]
    assert filtered["totals"] == everything["totals"]
    for name in ("allocated_usd", "prompt_tokens", "requests"):
        assert filtered["rows"][0][name] + filtered["filtered_out"][name] == everything["totals"][name]
    assert filtered["coverage"] == costs["coverage"]


def test_pages_cursors_and_formats_are_those_of_costs() -> None:
    query = {**WEST, "granularity": "hour", "group_by": "model", "sort": "-model,start"}
    full = ask("/v1/inference", query).json
    rows: list[Any] = []
    cursor: str | None = None
    while not rows or cursor:
        page = ask("/v1/inference", {**query, "limit": "4"} | ({"cursor": cursor} if cursor else {})).json
        rows += page["rows"]
        cursor = page["cursor"]
    assert rows == full["rows"]
    assert [row["group"]["model"] for row in rows] == ["llama-sql"] * 3 + ["llama"] * 3
    table = list(csv.DictReader(io.StringIO(ask("/v1/inference", {**query, "format": "csv"}).body)))
    assert [(row["model"], Decimal(row["allocated_usd"])) for row in table] == [
        (row["group"]["model"], row["allocated_usd"]) for row in rows
    ]


def test_period_without_servers_has_no_totals() -> None:
    answer = ask("/v1/inference", {**PERIOD, "cluster": "east"}).json
    assert (answer["rows"], answer["totals"], answer["hours_with_servers"]) == ([], None, 0)
    assert ask("/v1/inference", {**PERIOD, "cluster": "east", "model": "x"}).json["filtered_out"] is None


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"group_by": "pod"}, "is not a dimension"),
        ({"sort": "model"}, "is not sortable"),
        ({"sort": "-idle_usd"}, "is not sortable"),
    ],
)
def test_wrong_parameters_are_refused(query: dict[str, str], detail: str) -> None:
    answer = ask("/v1/inference", {**PERIOD, **query})
    assert answer.status == 400
    assert detail in answer.body
