"""Rows of /v1/costs written from fixed-point amounts equal rows written from decimals."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.api.report_routes import cost_rows_json
from gpucost.api.report_schemas import CostRow
from gpucost.core.amounts import SCALE, Costs, Idle
from gpucost.core.hours import DAY
from gpucost.core.query.grouping import GroupRow
from gpucost.runtime.json_text import dumps
from tests.records import unknown_costs

START = datetime(2026, 11, 1, tzinfo=UTC)
AMOUNTS = st.integers(-(10**27), 10**27) | st.sampled_from([0, SCALE])
GROUPS = st.tuples(st.text(max_size=3), st.sampled_from(["", "100%", '"\\'])).map(
    lambda names: dict(zip(("business_unit", "label:%s"), names, strict=True))
)
"""The rows of a response, which all have the same dimensions in the same order."""
ROWS = st.lists(
    st.tuples(
        st.integers(0, 3),
        GROUPS,
        st.builds(Costs, *(AMOUNTS for _ in Costs.names())),
        st.sampled_from(["held", "idle"]),
        st.none() | st.builds(Idle, AMOUNTS, AMOUNTS),
    ),
    max_size=6,
)


def written(rows: list[GroupRow], idle: str) -> list[str]:
    report: Any = SimpleNamespace(rows=rows, query=SimpleNamespace(idle=idle))
    return list(cost_rows_json(report))


@pytest.mark.parametrize("idle", ["hidden", "separate"])
@given(row_cases=ROWS)
def test_json_rows_match_costs(idle: str, row_cases: list[Any]) -> None:
    made = [
        GroupRow(START + day * DAY, START + (day + 1) * DAY, group, costs, kind, idle_share)
        for day, group, costs, kind, idle_share in row_cases
    ]

    for text, (day, group, costs, kind, idle_share) in zip(written(made, idle), row_cases, strict=True):
        unknown = unknown_costs(costs)
        expected: dict[str, Any] = {
            "start": START + day * DAY,
            "end": START + (day + 1) * DAY,
            "group": group,
            **({} if idle == "hidden" else {"kind": kind}),
            **{name: None if name in unknown else Decimal(getattr(costs, name)) / SCALE for name in Costs.names()},
        }
        if idle != "hidden":
            held = expected["allocated_usd"]
            gpu_hours = None if idle_share is None else Decimal(idle_share.idle_gpu_hours) / SCALE
            idle_usd = None if idle_share is None else Decimal(idle_share.idle_usd) / SCALE
            expected |= {"idle_gpu_hours": gpu_hours, "idle_usd": idle_usd}
            expected["cost_usd"] = None if held is None or idle_usd is None else held + idle_usd
        assert text == dumps(expected)
        says = json.loads(text, parse_float=Fraction, parse_int=Fraction)
        amounts = {name: value for name, value in expected.items() if isinstance(value, Decimal)}
        assert {name: says[name] for name in amounts} == {name: Fraction(value) for name, value in amounts.items()}
        CostRow.model_validate_json(text)
