"""An hour is restated right before the n-th call of an answer, for every n: the answer is the one before or after."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gpucost import bootstrap
from gpucost.adapters.dynamodb.ledger import DynamoLedger
from gpucost.adapters.dynamodb.rollups import DynamoRollups
from gpucost.domain.hours import HOUR, floor_day, format_instant
from gpucost.domain.model import Capacity, HourRecord, Line, NodeHour, Totals
from gpucost.domain.rollups import DAY
from gpucost.ports import StoredSettings
from gpucost.settings import parse_settings
from tests.conftest import DynamoTable
from tests.functions.asking import Answer, ask_as, by_role
from tests.records import line, record
from tests.sandbox import forget

NOW = datetime.now(UTC).replace(microsecond=0)
"""By the engine's clock, too: what is superseded is gone once a day has passed."""
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
BOTH = {"start": format_instant(FIRST), "end": format_instant(FIRST + DAY + HOUR)}
WHOLE_DAY = {**BOTH, "end": format_instant(FIRST + DAY)}
TWO_HOURS = {"start": format_instant(RESTATED), "end": format_instant(RESTATED + 2 * HOUR)}
A_DAY_OF_OPENCOST = {"window": f"{WHOLE_DAY['start']},{WHOLE_DAY['end']}"}
WITH_AN_HOUR = {"window": f"{BOTH['start']},{BOTH['end']}"}
UNIT = "/v1/business-units/research"
OF_EVERYBODY: list[tuple[str, dict[str, str]]] = [
    ("/v1/costs", {**BOTH, "granularity": "day", "group_by": "business_unit"}),
    ("/v1/costs", {**BOTH, "granularity": "day", "group_by": "business_unit,workload"}),
    ("/v1/costs", {**BOTH, "granularity": "hour", "group_by": "business_unit"}),
    ("/v1/costs", {**TWO_HOURS, "granularity": "hour", "group_by": "business_unit,pod"}),
    ("/v1/fleet", {**BOTH, "granularity": "day"}),
    ("/v1/waste", TWO_HOURS),
    ("/v1/lines", {**TWO_HOURS, "business_unit": "research,chat"}),
    ("/allocation/compute", {**A_DAY_OF_OPENCOST, "aggregate": "namespace"}),
    ("/allocation/compute", {**WITH_AN_HOUR, "aggregate": "controller"}),
    ("/allocation/compute", {**A_DAY_OF_OPENCOST, "aggregate": "pod"}),
]
OF_ADMINS: list[tuple[str, dict[str, str]]] = [
    ("/v1/costs", {**BOTH, "granularity": "day", "group_by": "workload", "idle": "shared-evenly"}),
    ("/v1/nodes", TWO_HOURS),
    ("/v1/lines", TWO_HOURS),
    ("/allocation/compute", {**A_DAY_OF_OPENCOST, "aggregate": "controller", "includeIdle": "true"}),
    ("/allocation/compute", {**A_DAY_OF_OPENCOST, "aggregate": "pod", "includeIdle": "true"}),
    ("/allocation/compute", {**WITH_AN_HOUR, "aggregate": "controller", "includeIdle": "true", "shareIdle": "true"}),
]
OF_TWO: list[tuple[str, dict[str, str]]] = [
    ("/v1/lines", TWO_HOURS),
    (UNIT, {**BOTH, "granularity": "day"}),
    (f"{UNIT}/workloads", BOTH),
]
QUESTIONS = [
    *(("admins", *question) for question in (*OF_EVERYBODY, *OF_ADMINS)),
    *(("two", *question) for question in (*OF_EVERYBODY, *OF_TWO)),
]


def hour_of(moment: datetime, usd: str = "12", unit: str = "chat", note: str = "") -> HourRecord:
    """Two pods on a node each, and 5 USD of which nobody held."""
    pods = [("research", "r", "n1"), (unit, "c", "n2")]
    lines: list[Line] = [
        line(own, namespace, f"pod-{namespace}", usd)._replace(node=node, workload=f"w-{namespace}")
        for own, namespace, node in pods
    ]
    made = record(lines, hour=moment, notes=(note,) if note else ())
    assert made.totals is not None
    free = Capacity(unallocated_gpu_hours=Decimal(2), unallocated_usd=Decimal(5))
    facts = ("pool", "p4d.24xlarge", "spot", "a", "A100", "spot", "scad", None)
    nodes = [
        NodeHour(f"n{number}", f"aws:///a/i-{number}", *facts, cost, capacity)
        for number, cost, capacity in [
            (1, Decimal(usd), Capacity(node_cost_usd=Decimal(usd))),
            (2, Decimal(usd), Capacity(node_cost_usd=Decimal(usd))),
            (3, Decimal(0), Capacity.total([free, Capacity(node_cost_usd=Decimal(5))])),
        ]
    ]
    whole = Capacity.total(one.capacity for one in nodes)
    return replace(made, totals=Totals(made.totals.costs, whole), nodes=tuple(nodes))


class Store:
    """A settings store of one document."""

    settings = StoredSettings(1, DOCUMENT, parse_settings(DOCUMENT), "test", NOW)

    def current(self) -> StoredSettings:
        return self.settings


class Crossed:
    """A ledger whose api is held up before one of its calls, while something else happens."""

    def __init__(self, table: DynamoTable) -> None:
        self._client = table.client
        self._ledger = DynamoLedger(*table)
        self._rollups = DynamoRollups(*table)
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

    def restate(self, **changed: str) -> None:
        in_force = self._ledger.manifest("demo", RESTATED)
        assert in_force is not None
        note = f"version {in_force.version + 1}"
        self._ledger.publish(hour_of(RESTATED, **changed, note=note), replacing=in_force, settings_version=1, now=NOW)

    def roll_up(self) -> None:
        self._rollups.roll_up("demo", FIRST, NOW)

    def ask_while(self, number: int, then: Callable[[], None], question: tuple[str, str, dict[str, str]]) -> Answer:
        """What is answered where something happens before a call; `was_crossed` tells whether there was that call."""
        self._calls_left, self._then = number, then
        return ask(question)

    def was_crossed(self) -> bool:
        was_crossed, self._then = self._then is None, None
        return was_crossed


def ask(question: tuple[str, str, dict[str, str]]) -> Answer:
    role, path, query = question
    answer = ask_as(by_role(role), path, query)
    assert answer.status == 200, answer.body
    return answer


@pytest.fixture
def crossed(table: DynamoTable) -> Iterator[Crossed]:
    made = Crossed(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCOST_TABLE", table.name)
        patch.setattr("gpucost.adapters.aws.client", lambda _service: made)
        patch.setattr(bootstrap, "settings_store", Store)
        patch.setattr(bootstrap, "utc_now", lambda: NOW)
        forget()
        yield made
        forget()


@pytest.mark.parametrize("is_rolled_up_at_once", [True, False])
@pytest.mark.parametrize("changed", [{"usd": "15"}, {"unit": "research"}], ids=["dearer", "re-organised"])
def test_an_answer_is_the_one_before_or_the_one_after(
    crossed: Crossed, changed: dict[str, str], is_rolled_up_at_once: bool
) -> None:
    """A re-organised hour costs what it did: nothing that only adds up can tell that it is another one."""
    is_changed, mixed = False, []

    def restate() -> None:
        nonlocal is_changed
        is_changed = not is_changed
        crossed.restate(**(changed if is_changed else {}))
        if is_rolled_up_at_once:
            crossed.roll_up()

    def of_both() -> list[set[str]]:
        told: list[list[str]] = []
        for _ in range(2):
            told.append([ask(question).body for question in QUESTIONS])
            restate()
            crossed.roll_up()
        return [{*pair} for pair in zip(*told, strict=True)]

    for question, allowed in zip(QUESTIONS, of_both(), strict=True):
        number = 1
        while True:
            answer = crossed.ask_while(number, restate, question)
            if not crossed.was_crossed():
                break
            if answer.body not in allowed:
                mixed.append((question, number))
            crossed.roll_up()
            number += 1
        assert number > 2
    assert mixed == []
