"""Invalid report queries: errors name the parameter and the allowed values, or say how to narrow the query."""

import json

import pytest

from tests.functions.api_requests import iam_caller, request_as
from tests.functions.published_hours import PERIOD, SCHEMAS, ask

pytestmark = pytest.mark.usefixtures("published_hours")

HUGE = "x" * 10_240
ODD = [
    "a\0b",
    "\u202ea",
    "a\u200f",
    "a\x1b[2J",
    b"a\xff\xfe".decode("utf-8", "replace"),
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace") + "\0",
]


@pytest.mark.parametrize("route", sorted(path for path in SCHEMAS["paths"] if path.startswith("/v1/")))
def test_every_parameter_rejects_invalid_values(route: str) -> None:
    path = route.replace("{name}", "research")
    parameters = SCHEMAS["paths"][route]["get"].get("parameters", [])
    right = {"start": "2026-11-16T00:00:00Z", "end": "2026-11-17T00:00:00Z"}
    right |= {
        parameter["name"]: parameter["schema"]["examples"][0]
        for parameter in parameters
        if parameter["required"] and parameter["in"] == "query"
    }
    base = {parameter["name"]: right[parameter["name"]] for parameter in parameters if parameter["name"] in right}
    for parameter in parameters:
        if parameter["in"] != "query":
            continue
        name = parameter["name"]
        for wrong in (HUGE, "", *ODD):
            query = {name: wrong} if name == "window" else {**base, name: wrong}
            answer = request_as(iam_caller("arn:aws:iam::123456789012:user/x"), path, query)
            if wrong == "" and name in {"group_by", "sort", "source", "instance_type"}:
                continue  # these have no invalid value
            assert answer.status == 400, (name, wrong[:10], answer.body[:300])
            assert answer.json["errors"][0]["parameter"] == name, (name, answer.body[:300])
            assert len(answer.body) < 2_000
        twice = "&".join([*(f"{parameter}={value}" for parameter, value in base.items()), f"{name}=a&{name}=b"])
        answer = request_as(iam_caller("arn:aws:iam::123456789012:user/x"), path, twice)
        assert answer.status == 400, name
        assert name in {error["parameter"] for error in answer.json["errors"]}, (name, answer.body)


@pytest.mark.parametrize(
    ("query", "parameter", "says"),
    [
        ({"start": "2026-11-17", "end": "2026-11-16"}, "end", "must be after start"),
        ({"start": "2020-01-01", "end": "2026-11-16"}, "end", "at most 35 days; granularity=day"),
        ({"start": "2020-01-01", "end": "2026-11-16", "granularity": "month"}, "end", "at most 731 days"),
        ({"window": "fortnight"}, "window", "allowed: 24h, 7d"),
        ({"window": "9999d"}, "window", "at most 35 days; granularity=day"),
        ({**PERIOD, "group_by": "label:app"}, "group_by", "label:team"),
        ({**PERIOD, "group_by": "pod"}, "group_by", "at most 48 hours; shorten the period, or"),
        ({**PERIOD, "node": "n1"}, "node", "GET /v1/exports"),
        ({**PERIOD, "label": "app:x"}, "label", "allowed: team"),
        ({**PERIOD, "cluster": "north,east"}, "cluster", "'north' is not in the settings; allowed: east, west"),
        ({**PERIOD, "cluster": "!east,!west"}, "cluster", "matches no cluster in the settings"),
        ({**PERIOD, "sort": "cost_usd"}, "sort", "is not sortable; allowed, with a leading -"),
        ({**PERIOD, "limit": "0"}, "limit", "greater than or equal to 1"),
        ({**PERIOD, "limit": "10001"}, "limit", "less than or equal to 10000"),
        ({**PERIOD, "limit": "many"}, "limit", "valid integer"),
        ({**PERIOD, "idle": "shared"}, "idle", "must be 'hidden', 'separate', 'shared-by-allocation' or"),
        ({**PERIOD, "cursor": "x"}, "cursor", "is invalid; pass the cursor of a previous response"),
        ({**PERIOD, HUGE: "x"}, "x" * 60, "unknown parameter"),
    ],
)
def test_invalid_query_error_names_allowed_values(query: dict[str, str], parameter: str, says: str) -> None:
    answer = ask("/v1/costs", query)
    assert answer.status == 400
    (error,) = answer.json["errors"]
    assert error["parameter"] == parameter
    assert says in error["detail"]
    for secret in ("reports-", "arn:", "Traceback", "C#", "DynamoDB"):
        assert secret not in answer.body


OF_A_PERIOD = sorted(
    path
    for path, methods in SCHEMAS["paths"].items()
    if path.startswith("/v1/") and "window" in {parameter["name"] for parameter in methods["get"].get("parameters", [])}
)


@pytest.mark.parametrize("route", OF_A_PERIOD)
def test_report_without_window_covers_last_24_hours_and_says_so(route: str) -> None:
    path = route.replace("{name}", "research")
    answer, windowed = ask(path, {}, route=route).json, ask(path, {"window": "24h"}, route=route).json
    assert (answer.pop("default_window"), windowed.pop("default_window")) == ("24h", None)
    assert answer == windowed
    period = answer["current"] if route.endswith("/trend") else answer
    assert (period["start"], period["end"]) == ("2026-11-18T02:00:00Z", "2026-11-19T02:00:00Z")
    between = ask(path, {"start": "2026-11-18", "end": "2026-11-19"}, route=route).json
    assert between["default_window"] is None


def test_csv_without_window_says_so_in_a_header() -> None:
    answer, windowed = ask("/v1/costs", {"format": "csv"}), ask("/v1/costs", {"format": "csv", "window": "24h"})
    assert answer.body == windowed.body
    assert answer.headers["X-Default-Window"] == "24h"
    assert "X-Default-Window" not in windowed.headers
    assert json.loads(ask("/v1/costs", {"format": "jsonl"}).body.partition("\n")[0])["default_window"] == "24h"


def test_report_routes_are_the_routes_with_a_period() -> None:
    assert {"/v1/costs", "/v1/business-units", "/v1/waste", "/v1/nodes", "/v1/lines", "/v1/alerts"} < {*OF_A_PERIOD}
    assert len(OF_A_PERIOD) == 16


@pytest.mark.parametrize("path", ["/v1/nodes", "/v1/nodepools", "/v1/quotas"])
def test_too_long_window_is_rejected(path: str) -> None:
    (error,) = ask(path, {"window": "3d"}).json["errors"]
    assert error["parameter"] == "window"


def test_unknown_path_returns_404_with_any_parameters() -> None:
    # no route serves it, so it has no schema
    answer = request_as(iam_caller("arn:aws:iam::123456789012:user/x"), "/v1/business-units/a/b", {"window": "24h"})
    assert answer.status == 404
    assert "not a parameter" not in answer.body


def test_cursor_is_rejected_for_other_queries_and_routes() -> None:
    query = {**PERIOD, "group_by": "business_unit", "limit": "10"}
    cursor = ask("/v1/costs", query).json["cursor"]
    assert ask("/v1/costs", {**query, "cursor": cursor}).status == 200
    for other in (
        {"limit": "11"},
        {"group_by": "namespace"},
        {"cluster": "east"},
        {"sort": "-waste_usd"},
        {"business_unit": "!x"},
        {"end": "2026-11-19T01:00:00Z"},
        {"idle": "separate"},
    ):
        answer = ask("/v1/costs", {**query, **other, "cursor": cursor})
        assert answer.status == 400, other
        assert "is of another query" in answer.json["detail"]
    assert ask("/v1/waste", {**PERIOD, "limit": "10", "cursor": cursor}).status == 400


def test_too_large_query_error_says_how_to_narrow_it() -> None:
    def detail(query: dict[str, str]) -> str:
        answer = ask("/v1/costs", query)
        assert answer.status == 400
        return str(answer.json["detail"])

    assert "48 is the maximum. Use granularity=day" in detail({**PERIOD, "group_by": "workload"})
    months = {"start": "2026-04-01", "end": "2026-07-31"}
    with_idle = {**months, "group_by": "workload", "granularity": "total", "idle": "separate"}
    assert "reads 121 days of a cluster at once, and 105 is the maximum. Shorten" in detail(with_idle)
    for wider in ({"idle": "hidden"}, {"end": "2026-06-30"}, {"business_unit": "research"}):
        assert ask("/v1/costs", {**with_idle, **wider}).status == 200
    answer = ask("/v1/waste", months)
    assert answer.status == 400
    assert answer.json["detail"].endswith("Shorten the period, or select one business_unit.")
    for narrower in ({"end": "2026-06-08"}, {"business_unit": "research"}):
        assert ask("/v1/waste", {**months, **narrower}).status == 200
