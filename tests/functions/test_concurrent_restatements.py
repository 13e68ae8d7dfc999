"""An hour is restated before the n-th call of a request. The response has either all old or all new figures."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from gpucost.container import Container
from gpucost.core.amounts import CapacityCosts, Totals
from gpucost.core.hour_record import HourRecord, Line, NodeHour
from gpucost.core.hours import DAY, HOUR, floor_day, format_timestamp
from gpucost.runtime.process import Environment
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from gpucost.storage.rollups import RollupStore
from tests.conftest import DynamoTable
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import ApiResponse, request_as, role_caller, serving
from tests.records import amount, line, record

NOW = datetime.now(UTC).replace(microsecond=0)
"""Close to DynamoDB Local's clock, which deletes replaced items after a day."""
FIRST = floor_day(NOW) - 2 * DAY
RESTATED = FIRST + 6 * HOUR
PUBLISHED = (RESTATED, RESTATED + HOUR, FIRST + DAY)
"""Two hours of a day that is over, and the first of the next."""
ROLE = "arn:aws:iam::123456789012:role/"
DOCUMENT = json.dumps(
    {
        "clusters": [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9"}}],
        "pricing": {"source": "constant", "gpu_hourly_usd": 12},
        "business_units": [{"name": "research", "namespaces": ["r"]}, {"name": "chat", "namespaces": ["c"]}],
        "access": [
            {"principal": f"{ROLE}admins", "roles": ["admin"]},
            {"principal": f"{ROLE}two", "roles": ["bu:research", "bu:chat"]},
        ],
    }
)
BOTH = {"start": format_timestamp(FIRST), "end": format_timestamp(FIRST + DAY + HOUR)}
WHOLE_DAY = {**BOTH, "end": format_timestamp(FIRST + DAY)}
TWO_HOURS = {"start": format_timestamp(RESTATED), "end": format_timestamp(RESTATED + 2 * HOUR)}
A_DAY_OF_OPENCOST = {"window": f"{WHOLE_DAY['start']},{WHOLE_DAY['end']}"}
WITH_AN_HOUR = {"window": f"{BOTH['start']},{BOTH['end']}"}
UNIT = "/v1/business-units/research"
BY_WORKLOAD = {**BOTH, "granularity": "day", "group_by": "business_unit,workload"}
BY_POD = {**TWO_HOURS, "granularity": "hour", "group_by": "business_unit,pod"}
BOTH_UNITS = {**TWO_HOURS, "business_unit": "research,chat"}
IDLE = {"includeIdle": "true"}
OF_DAYS: list[tuple[str, str, dict[str, str]]] = [
    ("admins", "/v1/costs", BY_WORKLOAD),
    ("admins", "/v1/fleet", {**BOTH, "granularity": "day"}),
    ("admins", "/allocation/compute", {**A_DAY_OF_OPENCOST, "aggregate": "controller", **IDLE}),
    ("admins", "/allocation/compute", {**WITH_AN_HOUR, "aggregate": "controller", **IDLE, "shareIdle": "true"}),
    ("two", "/v1/costs", BY_WORKLOAD),
    ("two", "/v1/costs", {**BOTH, "granularity": "hour", "group_by": "business_unit"}),
    ("two", UNIT, {**BOTH, "granularity": "day"}),
    ("two", f"{UNIT}/workloads", BOTH),
    ("two", "/allocation/compute", {**WITH_AN_HOUR, "aggregate": "controller"}),
]
"""Queries that are answered from rollups."""
OF_HOURS: list[tuple[str, str, dict[str, str]]] = [
    ("admins", "/v1/costs", BY_POD),
    ("admins", "/v1/waste", TWO_HOURS),
    ("admins", "/v1/lines", TWO_HOURS),
    ("admins", "/v1/lines", BOTH_UNITS),
    ("admins", "/v1/nodes", TWO_HOURS),
    ("admins", "/allocation/compute", {**A_DAY_OF_OPENCOST, "aggregate": "pod", **IDLE}),
    ("two", "/v1/costs", BY_POD),
    ("two", "/v1/waste", TWO_HOURS),
    ("two", "/v1/lines", TWO_HOURS),
    ("two", "/v1/lines", BOTH_UNITS),
    ("two", "/allocation/compute", {**A_DAY_OF_OPENCOST, "aggregate": "namespace"}),
    ("two", "/allocation/compute", {**A_DAY_OF_OPENCOST, "aggregate": "pod"}),
]


def hour_of(moment: datetime, *, is_restated: bool = False, note: str = "") -> HourRecord:
    """A pod on each of two nodes, and an unallocated node.

    After the restatement, one is more expensive, and one is cheaper and belongs to another unit, so that their sum is
    the same. Idle costs more.
    """
    costs = ("15", "9") if is_restated else ("12", "12")
    units = ("research", "research" if is_restated else "chat")
    lines: list[Line] = [
        line(unit, namespace, f"pod-{namespace}", usd)._replace(node=node, workload=f"w-{namespace}")
        for usd, unit, namespace, node in zip(costs, units, "rc", ("n1", "n2"), strict=True)
    ]
    hour_record = record(lines, hour=moment, notes=(note,) if note else ())
    assert hour_record.totals is not None
    idle = amount(8 if is_restated else 5)
    free = CapacityCosts(unallocated_gpu_hours=amount(2), unallocated_usd=idle, node_cost_usd=idle)
    facts = ("pool", "p4d.24xlarge", "spot", "a", "A100", "spot", "scad", None)
    nodes = [
        NodeHour(f"n{number}", f"aws:///a/i-{number}", *facts, held, capacity)
        for number, held, capacity in [
            *((number, amount(usd), CapacityCosts(node_cost_usd=amount(usd))) for number, usd in enumerate(costs, 1)),
            (3, 0, free),
        ]
    ]
    total_capacity = CapacityCosts.total(node.capacity for node in nodes)
    return replace(hour_record, totals=Totals(hour_record.totals.costs, total_capacity), nodes=tuple(nodes))


class Store:
    """A settings store of one document."""

    settings = StoredSettings(1, DOCUMENT, parse_settings(DOCUMENT), "test", NOW)

    def current(self) -> StoredSettings:
        return self.settings


class Crossed:
    """A ledger that runs a function before one of the api's calls."""

    def __init__(self, table: DynamoTable, api_client: Any) -> None:
        self._client = api_client
        self._ledger = Ledger(DynamoDBTable(*table))
        self._rollups = RollupStore(DynamoDBTable(*table))
        self._calls_left = 0
        self._then: Callable[[], None] | None = None
        for hour in PUBLISHED:
            self._ledger.publish(hour_of(hour), replacing=None, settings_version=1, now=NOW)
        for day in (FIRST, FIRST + DAY):
            self._rollups.roll_up("demo", day, NOW)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def counted(**arguments: Any) -> Any:
            self._calls_left -= 1
            if self._calls_left == 0 and self._then is not None:
                then, self._then = self._then, None
                then()
            return call(**arguments)

        return counted

    def restate(self) -> None:
        """Restate the hour, and back."""
        in_force = self._ledger.manifest("demo", RESTATED)
        assert in_force is not None
        made = hour_of(RESTATED, is_restated=in_force.version % 2 == 1, note=f"version {in_force.version + 1}")
        self._ledger.publish(made, replacing=in_force, settings_version=1, now=NOW)

    def roll_up(self) -> None:
        self._rollups.roll_up("demo", FIRST, NOW)

    def restate_and_roll_up(self) -> None:
        self.restate()
        self.roll_up()

    def ask_while(
        self, number: int, then: Callable[[], None], question: tuple[str, str, dict[str, str]]
    ) -> ApiResponse:
        """The response if a function runs before a call. `was_crossed` says whether there was such a call."""
        self._calls_left, self._then = number, then
        return ask(question)

    def was_crossed(self) -> bool:
        was_crossed, self._then = self._then is None, None
        return was_crossed


def ask(question: tuple[str, str, dict[str, str]]) -> ApiResponse:
    role, path, query = question
    return request_as(role_caller(role), path, query)


@pytest.fixture
def crossed(table: DynamoTable, enforced: EnforcedAws) -> Iterator[Crossed]:
    made = Crossed(table, enforced.client("dynamodb", "ApiFunction"))
    environment = Environment(table=table.name)
    with serving(Container(environment, clock=lambda: NOW, client=lambda _service: made, settings_store=Store())):
        yield made


def bodies(crossed: Crossed, questions: Sequence[tuple[str, str, dict[str, str]]]) -> list[set[str]]:
    """The responses to each query before and after the restatement."""
    answers: list[list[str]] = []
    for _ in range(2):
        answers.append([ask(question).body for question in questions])
        crossed.restate_and_roll_up()
    return [{*pair} for pair in zip(*answers, strict=True)]


def crossings(
    crossed: Crossed, question: tuple[str, str, dict[str, str]], restate: Callable[[], None]
) -> Iterator[ApiResponse]:
    """Responses with a restatement before each of their calls in turn."""
    number = 1
    while True:
        answer = crossed.ask_while(number, restate, question)
        if not crossed.was_crossed():
            break
        yield answer
        number += 1
    assert number > 2


def mixed(
    crossed: Crossed, questions: Sequence[tuple[str, str, dict[str, str]]], restate: Callable[[], None]
) -> list[tuple[tuple[str, str, dict[str, str]], int]]:
    """Queries and calls for which a restatement causes a response with mixed versions."""
    answers = []
    for question, allowed in zip(questions, bodies(crossed, questions), strict=True):
        assert len(allowed) == 2
        for number, answer in enumerate(crossings(crossed, question, restate), 1):
            if answer.body not in allowed:
                answers.append((question, number))
            crossed.roll_up()
    return answers


def test_report_from_hours_is_of_versions_before_or_after_restatement(crossed: Crossed) -> None:
    assert mixed(crossed, OF_HOURS, crossed.restate) == []


def test_report_from_days_is_of_versions_before_or_after_restatement(crossed: Crossed) -> None:
    assert mixed(crossed, OF_DAYS, crossed.restate_and_roll_up) == []


def test_report_from_outdated_rollups_is_of_a_single_set_of_versions(crossed: Crossed) -> None:
    assert mixed(crossed, [of_day for of_day in OF_DAYS if of_day[0] == "two"], crossed.restate) == []


@pytest.mark.parametrize("path", ["/v1/lines", "/v1/nodes", "/v1/costs"])
def test_pages_are_of_a_single_version_or_rejected(crossed: Crossed, path: str) -> None:
    query = {**(BY_POD if path == "/v1/costs" else TWO_HOURS), "limit": "1"}
    whole = [json.loads(body)["rows"] for body in bodies(crossed, [("admins", path, {**query, "limit": "100"})])[0]]

    def second(first: ApiResponse) -> tuple[str, str, dict[str, str]]:
        return "admins", path, {**query, "cursor": json.loads(first.body)["cursor"]}

    joined = [(first, ask(second(first))) for first in crossings(crossed, ("admins", path, query), crossed.restate)]
    for number in (1, 2, 3):
        first = ask(("admins", path, query))
        joined.append((first, crossed.ask_while(number, crossed.restate, second(first))))
    assert {last.status for _, last in joined} == {200, 400}
    for page, last in joined:
        if last.status == 200:
            assert [*json.loads(page.body)["rows"], *json.loads(last.body)["rows"]] in [rows[:2] for rows in whole]


def test_an_hour_is_shown_with_the_notes_of_its_version(crossed: Crossed) -> None:
    crossed.restate()
    for answer in crossings(crossed, ("admins", "/v1/hours", TWO_HOURS), crossed.restate):
        row = answer.json["rows"][0]
        assert row["notes"] == [f"version {row['version']}"]
