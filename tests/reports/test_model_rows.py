"""A report on models keeps the rows that match its filters, and counts only these against its limit."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpucost.core.costs_by_model import InferenceRules, ModelSum, TokenWeights, costs_by_model
from gpucost.core.errors import InvalidInputError
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.reports.model_costs import parse_inference_query, read_models
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.records import PeriodCosts
from tests.records import line

HOUR = datetime(2026, 11, 18, 10, tzinfo=UTC)


def models() -> list[Any]:
    lines = [line("hostile", pod=f"p{number}") for number in range(300)]
    lines.append(line("honest", "bu-b", "chat"))
    served = [ServedTokens(part.namespace, part.pod, "vllm", part.pod, 10, 20, 0, 3) for part in lines]
    return costs_by_model(lines, served, InferenceRules())


class Hours:
    """Published hours, of which one has models, in each cluster."""

    def manifests(self, *_: object) -> list[Any]:
        return []

    def models_of(self, _: object) -> dict[datetime, list[Any]]:
        return {HOUR: models()}


def read(max_rows: int, *clusters: str, **filters: str) -> Any:
    parameters = QueryParameters(
        start="2026-11-18T00:00:00Z", end="2026-11-19T00:00:00Z", granularity="day", group_by="model", filters=filters
    )
    query = parse_inference_query(parameters, HOUR)
    ledger: Any = Hours()
    return read_models(query, clusters or ["demo"], ledger, PeriodCosts(), max_rows).rows(query, TokenWeights())


def test_filters_exclude_before_rows_are_counted() -> None:
    rows, everything, excluded = read(10, business_unit="honest")
    assert [row.group for row in rows] == [{"model": "chat"}]
    assert len(everything) < 10
    weights = TokenWeights()
    assert ModelSum.of(everything).figures(weights) == ModelSum.of(models()).figures(weights)
    others = [model for model in models() if model.key.business_unit != "honest"]
    assert ModelSum.of(excluded).figures(weights) == ModelSum.of(others).figures(weights)


def test_too_many_matching_rows_are_refused() -> None:
    with pytest.raises(
        InvalidInputError, match=r"more than 10 rows\. Shorten the period, select one cluster, or filter"
    ):
        read(10)


@pytest.mark.parametrize(
    ("clusters", "filters"),
    [
        (["a", "b"], {"business_unit": "honest"}),
        (["a", "b"], {"namespace": "bu-b"}),
        (["a", "b"], {"model": "chat"}),
        (["a"], {}),
    ],
    ids=["business-unit", "namespace", "model", "cluster"],
)
def test_too_many_rows_are_summed_by_each_remedy(clusters: list[str], filters: dict[str, str]) -> None:
    """Each cluster has 301 rows, so that two of them have too many."""
    remedy = "Shorten the period, select one cluster, or filter by business unit, namespace or model"
    with pytest.raises(InvalidInputError, match=remedy):
        read(400, "a", "b")
    rows, _, _ = read(400, *clusters, **filters)
    assert rows
