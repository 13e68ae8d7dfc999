"""Responses to a caller who may see some business units never contain other units' names or amounts.

The routes and their parameters are read from the OpenAPI document, so that a new one is tested as soon as it is there.
"""

import json
import os
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.container import Container
from gpucost.core.amounts import to_decimal
from gpucost.features.alerting.storage import AlertHistory
from gpucost.runtime.process import Environment
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table
from gpucost_devstack.template import REPOSITORY
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import ApiResponse, request_as, role_caller, serving
from tests.functions.distinct_fleet import HOUR, DistinctFleet

NOW = datetime(2026, 11, 20, 5, 5, tzinfo=UTC)
DAYS = [datetime(2026, 11, day, tzinfo=UTC) for day in (17, 18, 19)]
CASES = int(os.environ.get("GPUCOST_SCOPE_CASES", "80"))
DOCUMENT = json.loads((REPOSITORY / "docs" / "reference" / "openapi.json").read_text())
ROUTES = sorted(DOCUMENT["paths"])
SEEN = {"only-a": "a", "a-and-b": "ab"}


@dataclass(frozen=True)
class Published:
    """A fleet in the real ledger."""

    fleet: DistinctFleet
    table: Any
    secrets: Mapping[str, frozenset[str]]
    client: Any

    @property
    def container(self) -> Container:
        """The container of a new execution environment of the api function."""
        environment = Environment(table=self.table)
        return Container(environment, clock=lambda: NOW, client=lambda _service: self.client, settings_store=self)

    @cached_property
    def settings(self) -> StoredSettings:
        return StoredSettings(1, "", parse_settings(self.document()), "test", NOW)

    def current(self) -> StoredSettings:
        """A settings store with this fleet's document."""
        return self.settings

    def ask(self, role: str, path: str, query: Mapping[str, str]) -> ApiResponse:
        with serving(self.container):
            return request_as(role_caller(role), path, query)

    def document(self) -> str:
        units = self.fleet.units
        grants = [
            {
                "principal": f"arn:aws:iam::123456789012:role/{role}",
                "roles": [f"bu:{units[letter]}" for letter in letters],
            }
            for role, letters in SEEN.items()
        ]
        grants.append({"principal": "arn:aws:iam::123456789012:role/admins", "roles": ["admin"]})
        return json.dumps(
            {
                "clusters": [
                    {"name": name, "prometheus": {"url": "http://127.0.0.1:9"}} for name in self.fleet.clusters
                ],
                "pricing": {"source": "constant", "gpu_hourly_usd": 12},
                "business_units": [{"name": name, "namespaces": ["none"]} for name in units.values()],
                "cost_labels": ["team"],
                "access": grants,
            }
        )


@pytest.fixture(scope="module")
def fleets(dynamodb_url: str, enforced: EnforcedAws) -> Iterator[list[Published]]:
    api = enforced.client("dynamodb", "ApiFunction")
    client = local_client("dynamodb", dynamodb_url)
    published = []
    for seed, day in enumerate(DAYS):
        fleet = DistinctFleet(day, random.Random(seed))
        table = f"scope-{uuid4()}"
        create_table(client, table)
        ledger = Ledger(DynamoDBTable(client, table))
        for record in fleet.records:
            is_restated = record is fleet.records[0]  # the previous version is another secret
            before = replace(record, notes=("first",)) if is_restated else record
            first = ledger.publish(before, replacing=None, settings_version=1, now=NOW)
            if is_restated:
                ledger.publish(record, replacing=first, settings_version=1, now=NOW, reason=fleet.units["c"])
        for notification in fleet.notifications():
            AlertHistory(DynamoDBTable(client, table)).add(notification.subject.cluster, [notification])
        for cluster in fleet.clusters:
            RollupStore(DynamoDBTable(client, table)).roll_up(cluster, day, NOW)
        secrets = {role: frozenset(fleet.secrets(*letters)) for role, letters in SEEN.items()}
        published.append(Published(fleet, table, secrets, api))
    yield published


def instants(fleet: DistinctFleet) -> list[str]:
    return [f"{fleet.first + HOUR * number:%Y-%m-%dT%H:%M:%SZ}" for number in (0, 1, 2, 3, 24)]


DIMENSIONS = (
    "business_unit",
    "cluster",
    "namespace",
    "workload_kind",
    "workload",
    "node_pool",
    "instance_type",
    "capacity_type",
    "gpu_model",
    "resource",
    "zone",
    "label:team",
    "pod",
    "node",
)
ALLOCATED_BY = ("all", "cluster", "node", "namespace", "pod", "controller", "controllerKind", "label:team")


def values_of(parameter: Mapping[str, Any], names: list[str]) -> st.SearchStrategy[str]:
    """Values of a parameter: mostly valid ones, sometimes any name of the fleet."""
    if parameter["name"] in ("group_by", "aggregate"):
        dimensions = DIMENSIONS if parameter["name"] == "group_by" else ALLOCATED_BY
        return st.lists(st.sampled_from(dimensions), min_size=1, max_size=3, unique=True).map(",".join)
    if parameter["name"] == "filter":
        return st.sampled_from(names).map(lambda name: f'namespace!:"{name}"')
    if parameter["name"] == "label":
        return st.sampled_from(["team:*", "team:team*", "!team:x"])
    schema = parameter["schema"]
    taken = [str(example) for example in (*enumerated(schema), *schema.get("examples", []))]
    if enumerated(schema) or any(each.get("type") == "integer" for each in (schema, *schema.get("anyOf", []))):
        return st.sampled_from(taken)
    return st.sampled_from([*taken, "*", "!x", *names])


@st.composite
def queries(draw: st.DrawFn, route: str, fleet: DistinctFleet) -> dict[str, str]:
    """Parameters of a route: the required ones and up to three others."""
    first, last = sorted(draw(st.lists(st.sampled_from(instants(fleet)), min_size=2, max_size=2, unique=True)))
    names = [*fleet.units.values(), *fleet.clusters, *sorted({held.namespace for held in fleet.records[0].lines})]
    parameters = {
        parameter["name"]: parameter
        for parameter in DOCUMENT["paths"][route]["get"].get("parameters", [])
        if parameter["in"] == "query"
    }
    period = {name: moment for name, moment in (("start", first), ("end", last)) if name in parameters}
    for name in draw(st.lists(st.sampled_from(sorted(parameters)), max_size=3, unique=True)) if parameters else ():
        if name not in ("start", "end"):
            period[name] = draw(values_of(parameters[name], names))
    if route.startswith(("/allocation", "/assets")):
        return {**period, "window": f"{first},{last}"}
    return {name: value for name, value in period.items() if "window" not in period or name not in ("start", "end")}


def enumerated(schema: Mapping[str, Any]) -> list[Any]:
    return [*schema.get("enum", []), *(value for option in schema.get("anyOf", []) for value in enumerated(option))]


def leaked(answer: ApiResponse, secrets: frozenset[str], request: str) -> set[str]:
    """Secrets in a response, without those in the request."""
    words = set(re.findall(r"[A-Za-z0-9.]+", answer.body + json.dumps(answer.headers)))
    return {secret for secret in secrets if (secret in words or secret in answer.body) and secret not in request}


@settings(max_examples=CASES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_response_contains_names_or_amounts_of_other_units(fleets: list[Published], data: st.DataObject) -> None:
    published = data.draw(st.sampled_from(fleets))
    role = data.draw(st.sampled_from(sorted(SEEN)))
    route = data.draw(st.sampled_from(ROUTES))
    query = data.draw(queries(route, published.fleet))
    name = data.draw(st.sampled_from(sorted(published.fleet.units.values())))
    answer = published.ask(role, route.replace("{name}", name), query)
    event(f"{route} {answer.status}")
    assert answer.status < 500, answer.body
    assert not leaked(answer, published.secrets[role], json.dumps([name, query]))
    if "{name}" in route and name not in {published.fleet.units[letter] for letter in SEEN[role]}:
        assert answer.status in {400, 403}, "hidden and missing units get the same error"


@pytest.mark.parametrize("role", SEEN)
def test_leak_detection_works_and_visible_units_are_included(fleets: list[Published], role: str) -> None:
    fleet, secrets = fleets[0].fleet, fleets[0].secrets[role]
    start, *_, end = instants(fleet)
    for query in ({"group_by": "namespace"}, {"group_by": "business_unit", "granularity": "day"}, {"format": "csv"}):
        full_response = fleets[0].ask("admins", "/v1/costs", {"start": start, "end": end, **query})
        part = fleets[0].ask(role, "/v1/costs", {"start": start, "end": end, **query})
        assert (full_response.status, part.status) == (200, 200)
        assert len(leaked(full_response, secrets, "")) >= 3
        assert not leaked(part, secrets, "")
        sums = sum(row["allocated_usd"] for row in part.json["rows"]) if "format" not in query else None
        visible_lines = [
            held
            for record in fleet.records
            for held in record.lines
            if held.business_unit in {fleet.units[letter] for letter in SEEN[role]}
        ]
        if sums is not None:
            assert (
                sums
                == to_decimal(sum(held.allocated_usd or 0 for held in visible_lines))
                == part.json["totals"]["allocated_usd"]
            )
    for path in ("/v1/hours", "/v1/nodes", "/v1/restatements", "/v1/alerts"):
        assert leaked(fleets[0].ask("admins", path, {"start": start, "end": end}), secrets, ""), path
