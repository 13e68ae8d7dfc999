"""The remedies that refusals name: each is one that the route has, and following it succeeds."""

import ast
import inspect
import re
from collections.abc import Iterator

import pytest

from gpucost.http.responses import json_response
from gpucost_devstack.template import REPOSITORY
from tests.functions.api_requests import ApiResponse, iam_caller, request_as
from tests.functions.published_hours import PERIOD, SCHEMAS

pytestmark = pytest.mark.usefixtures("published_hours")

PARAMETERS = {
    route: {parameter["name"]: parameter for parameter in methods["get"].get("parameters", [])}
    for route, methods in SCHEMAS["paths"].items()
}


def ask(route: str, **query: str) -> ApiResponse:
    path = route.replace("{name}", "research")
    return request_as(iam_caller("arn:aws:iam::123456789012:user/x"), path, query)


def size_remedies() -> Iterator[tuple[str, str]]:
    """Routes, and what their functions say about a response that is too large for Lambda."""
    default = inspect.signature(json_response).parameters["remedy"].default
    for file in sorted((REPOSITORY / "layers" / "common" / "gpucost").rglob("*routes.py")):
        for function in ast.walk(ast.parse(file.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            paths = [
                decorator.args[0].value
                for decorator in function.decorator_list
                if isinstance(decorator, ast.Call) and decorator.args and isinstance(decorator.args[0], ast.Constant)
            ]
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "json_response":
                    texts = [ast.literal_eval(each.value) for each in call.keywords if each.arg == "remedy" and paths]
                    yield from ((str(path), [default, *texts][-1]) for path in paths if str(path).startswith("/v1/"))


@pytest.mark.parametrize(("route", "remedy"), sorted(set(size_remedies())))
def test_too_large_response_names_only_parameters_of_its_route(route: str, remedy: str) -> None:
    """Long responses are made in test_api_refusals.py. Here, no route names a parameter that it does not have."""
    parameters = PARAMETERS[re.sub("<(.*?)>", r"{\1}", route)].keys()
    for other, name in re.findall(r"(/v1/[a-z]+) has the [a-z]+ of a ([a-z_]+)", remedy):
        assert name in PARAMETERS[other]
    for name in re.findall(r"\b(period|cluster|business_unit|kind|source|instance_type)\b", remedy):
        assert remedy.startswith("/v1/") or parameters & ({"window", "start", "period"} if name == "period" else {name})


def test_size_remedies_of_all_routes_are_checked() -> None:
    routes = {route for route, _ in size_remedies()}
    assert {"/v1/silences", "/v1/budgets", "/v1/forecasts", "/v1/recommendations", "/v1/prices"} < routes
    assert len(routes) > 10


DAY = {"start": "2026-11-18", "end": "2026-11-19"}
LONG = {"window": "90d", "granularity": "day"}
OPENCOST = "/allocation/compute"
REMEDIES: list[tuple[str, dict[str, str], str, dict[str, str]]] = [
    ("/v1/costs", {**PERIOD, "group_by": "pod"}, "shorten the period", {**DAY, "group_by": "pod"}),
    ("/v1/costs", {**PERIOD, "group_by": "pod"}, "GET /v1/exports", {**PERIOD, "group_by": "namespace"}),
    ("/v1/costs", {"start": "2026-11-18"}, "pass start and end, or window", DAY),
    ("/v1/costs", {"end": "2026-11-18"}, "pass start and end, or window", {"window": "24h"}),
    ("/v1/costs", {**DAY, "window": "24h"}, "pass either start and end, or window", {"window": "24h"}),
    ("/v1/costs", {**DAY, "end": DAY["start"]}, "pass a later end", DAY),
    ("/v1/costs", {"window": "fortnight"}, "allowed: 24h, 7d", {"window": "7d"}),
    ("/v1/costs", {"window": "90d"}, "granularity=day allows 100", {**LONG, "cluster": "west"}),
    ("/v1/costs", LONG, "Select one cluster", {**LONG, "cluster": "west"}),
    ("/v1/costs", {**DAY, "cluster": "north"}, "allowed: east, west", {**DAY, "cluster": "west"}),
    ("/v1/costs", {**DAY, "label": "app:x"}, "allowed: team", {**DAY, "label": "team:x"}),
    ("/v1/costs", {**DAY, "business_unit": ""}, "pass names, or omit the parameter", DAY),
    ("/v1/costs", {**DAY, "cursor": "x"}, "pass the cursor of a previous response", DAY),
    ("/v1/nodes", {"window": "3d"}, "Shorten the period", {"window": "24h"}),
    ("/v1/lines", {"window": "3d"}, "Shorten the period", {"window": "24h"}),
    ("/v1/nodepools", {"window": "3d"}, "Shorten the period", {"window": "24h"}),
    ("/v1/quotas", {"window": "3d"}, "Shorten the period", {"window": "24h"}),
    ("/v1/alerts", {**DAY, "end": DAY["start"]}, "pass a later end", DAY),
    ("/v1/exports", {**DAY, "end": DAY["start"]}, "pass a later end", DAY),
    (OPENCOST, {"window": "60d"}, "Shorten it", {"window": "7d", "aggregate": "namespace"}),
    (OPENCOST, {"window": "3d", "aggregate": "pod"}, "Shorten it", {"window": "48h", "aggregate": "pod"}),
    (
        OPENCOST,
        {"window": "24h", "includeIdle": "maybe"},
        "Use includeIdle=true",
        {"window": "24h", "includeIdle": "true"},
    ),
    (OPENCOST, {"window": "24h", "idleByNode": "true"}, "Leave it out", {"window": "24h"}),
    (OPENCOST, {"window": "24h", "step": "soon"}, "Use for example 1h", {"window": "24h", "step": "1h"}),
    (
        OPENCOST,
        {"window": "24h", "aggregate": "service"},
        "allowed: all, cluster",
        {"window": "24h", "aggregate": "cluster"},
    ),
]
"""Refused queries, the remedy that the refusal names, and the query that follows it."""


@pytest.mark.parametrize(("route", "query", "remedy", "followed"), REMEDIES)
def test_remedy_of_a_refusal_succeeds(route: str, query: dict[str, str], remedy: str, followed: dict[str, str]) -> None:
    refused = ask(route, **query)
    assert refused.status == 400, refused.body
    assert remedy in refused.json["detail"]
    answer = ask(route, **followed)
    assert answer.status == 200, answer.body
