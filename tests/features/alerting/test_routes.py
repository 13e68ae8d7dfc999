"""`/v1/alerts` and `/v1/silences` of the real API handler, after evaluations of the alert service."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpucost.container import Container
from gpucost.core.hours import HOUR, format_timestamp
from gpucost.features.alerting.queries import AlertQueries
from gpucost.runtime.process import Environment
from tests.conftest import DynamoTable
from tests.enforced_permissions import EnforcedAws
from tests.features.alerting.fleet import START, Fleet, node, pod, settings_with_rules
from tests.functions.api_requests import iam_caller, request_as, serving

ACCESS = 'access: [{principal: "arn:aws:iam::123456789012:user/ann", roles: ["bu:research"]},\n' + (
    '  {principal: "arn:aws:iam::123456789012:user/fin", roles: [admin]}]\n'
)
PERIOD = {"start": format_timestamp(START), "end": format_timestamp(START + 24 * HOUR)}
IDLE = pod(gpus=2, use="0.05")


@pytest.fixture
def fleet(table: DynamoTable, enforced: EnforcedAws) -> Iterator[Fleet]:
    rules = ("rule: waste, waste_usd_per_hour: 10, waste_percent: 50", "rule: unallocated, usd_per_hour: 10")
    alert_fleet = Fleet(table, settings_with_rules(*rules) + ACCESS)
    client = enforced.client("dynamodb", "ApiFunction")
    with serving(
        Container(Environment(table=table.name), clock=lambda: alert_fleet.now, client=lambda _service: client)
    ):
        yield alert_fleet


def ask(path: str, user: str, **query: str) -> tuple[int, Any]:
    answer = request_as(iam_caller(f"arn:aws:iam::123456789012:user/{user}"), path, query)
    return answer.status, json.loads(answer.body, parse_float=Decimal)


def test_active_alerts_history_and_silences_are_listed(fleet: Fleet) -> None:
    fleet.publish_and_close(0, IDLE, nodes=[node("gpu", "24")])
    queries = AlertQueries(
        fleet.settings_store, fleet.alert_states, fleet.history, fleet.silences, clock=lambda: fleet.now
    )
    (waste,) = [listed for listed in queries.active_alerts() if listed.alert.rule == "waste"]
    queries.acknowledge(waste.id, author="alice")
    silence = queries.add_silence({"node_pool": "g*"}, author="bob", comment="being drained", hours=2)

    status, answer = ask("/v1/alerts", "fin", **PERIOD)
    assert status == 200
    rows = {row["rule"]: row for row in answer["active"]}
    assert rows["waste"]["acknowledged_by"] == "alice"
    assert rows["waste"]["subject"]["business_unit"] == "research"
    assert rows["unallocated"]["silenced_by"] == [silence.id]
    assert {row["rule"]: row["event"] for row in answer["history"]} == {"waste": "firing", "unallocated": "firing"}
    fleet.publish_and_close(1, pod(use="1"))
    _, later = ask("/v1/alerts", "fin", **PERIOD)
    assert later["active"] == []
    assert [row["event"] for row in later["history"] if row["rule"] == "waste"] == ["firing", "resolved"]
    _, silences = ask("/v1/silences", "fin")
    (row,) = silences["rows"]
    assert (row["author"], row["comment"], row["matchers"], row["active"]) == (
        "bob",
        "being drained",
        {"node_pool": "g*"},
        True,
    )
    schemas = json.loads(Path("docs/reference/openapi.json").read_text())
    for path, body in (("/v1/alerts", answer), ("/v1/alerts", later), ("/v1/silences", silences)):
        schema = schemas["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(body, {**schema, "components": schemas["components"]})


def test_role_of_a_business_unit_sees_only_its_alerts(fleet: Fleet) -> None:
    fleet.publish_and_close(0, IDLE, pod("other", gpus=2, use="0"), nodes=[node("gpu", "24")])
    for key in ("active", "history"):
        _, answer = ask("/v1/alerts", "ann", **PERIOD)
        assert [row["subject"]["business_unit"] for row in answer[key]] == ["research"]
    assert ask("/v1/silences", "ann")[0] == 403


@pytest.mark.parametrize(("start", "end"), [("yesterday", PERIOD["end"]), (PERIOD["end"], PERIOD["start"])])
def test_invalid_period_is_rejected(fleet: Fleet, start: str, end: str) -> None:
    assert ask("/v1/alerts", "fin", start=start, end=end)[0] == 400
