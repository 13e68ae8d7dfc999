"""Problem documents of rejected requests, and of responses that are too large."""

import json
from urllib.parse import urlencode

import pytest

from gpucost.container import Container
from gpucost.core.errors import ConflictError, GpuCostError, NotFoundError, SettingsMissingError, SourceError
from gpucost.core.hour_record import Line
from gpucost.core.ledger import Manifest
from gpucost.reports.cost_reader import MAX_CELLS, MAX_LINES
from tests.functions.api_requests import request_as, serving
from tests.functions.in_memory_hours import DAY, FINANCE, NOW, Ask, InMemoryHours, at, usd
from tests.records import line


@pytest.mark.parametrize(
    ("query", "parameter", "says"),
    [
        ({"start": DAY["start"]}, "end", "required with start; pass start and end, or window: 24h"),
        ({**DAY, "start": "yesterday"}, "start", "'yesterday' is not a UTC time like"),
        ({**DAY, "start": "2026-11-19T00:00:00"}, "start", "is not a UTC time like"),
        ({**DAY, "start": "0001-01-01T00:00:00+23:00"}, "start", "of 1971 to 9998"),
        ({**DAY, "end": "9999-12-31T23:00:00Z"}, "end", "of 1971 to 9998"),
        ({**DAY, "start": "2026-11-19T00:30:00Z"}, "start", "2026-11-19T00:30:00Z is not on a full UTC hour"),
        ({**DAY, "end": DAY["start"]}, "end", "must be after start"),
        ({**DAY, "granularity": "year"}, "granularity", "must be 'hour', 'day', 'week', 'month' or 'total'"),
        ({**DAY, "group_by": "team"}, "group_by", "'team' is not a dimension; allowed: business_unit, cluster, "),
        ({**DAY, "group_by": "namespace,namespace"}, "group_by", "named twice"),
        ({**DAY, "cluster": "north"}, "cluster", "'north' is not in the settings; allowed: east, west"),
        ({**DAY, "format": "xml"}, "format", "must be 'json', 'csv' or 'jsonl'"),
        (
            {**DAY, "groupby": "namespace"},
            "groupby",
            "unknown parameter. Did you mean group_by? Allowed: start, end, window, granularity, group_by",
        ),
        ({**DAY, "start": "2026-01-01T00:00:00Z"}, "end", "at most 35 days; granularity=day allows 100"),
        (urlencode(DAY) + "&start=2026-11-18T00:00:00Z", "start", "sent more than once. Send it once."),
    ],
)
def test_wrong_parameter_is_named_with_allowed_values(
    ask: Ask, query: dict[str, str] | str, parameter: str, says: str
) -> None:
    answer = ask("/v1/costs", query)

    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = json.loads(answer.body)
    assert {key: problem[key] for key in ("type", "title", "status", "instance")} == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "instance": "/v1/costs",
    }
    (error,) = problem["errors"]
    assert error["parameter"] == parameter
    assert says in error["detail"]
    assert says in problem["detail"]


@pytest.mark.parametrize(
    ("failure", "status", "detail"),
    [
        (SettingsMissingError("no settings have been pushed yet"), 503, "no settings have been pushed yet"),
        (NotFoundError("there is no version 7"), 404, "there is no version 7"),
        (ConflictError("somebody else wrote first"), 409, "somebody else wrote first"),
        (
            SourceError("secret"),
            502,
            "a record could not be read. Details are in the api function's log, request ID 'request-1'.",
        ),
        (GpuCostError("secret"), 500, "internal error. Details are in the function's log."),
        (KeyError("secret"), 500, "internal error. Details are in the function's log."),
    ],
)
def test_every_failure_is_a_problem_document_without_internals(
    ask: Ask, prepared: InMemoryHours, failure: Exception, status: int, detail: str
) -> None:
    prepared.failure = failure
    answer = ask("/v1/costs", DAY)

    assert (answer.status, json.loads(answer.body)["detail"]) == (status, detail)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "secret" not in answer.body


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", "/v2/costs", "there is no GET /v2/costs. /openapi.json lists all routes."),
        ("GET", "/v1/costs/", "no slash at the end"),
        ("POST", "/v1/costs", "there is no POST /v1/costs"),
    ],
)
def test_missing_resource_is_a_problem_document(ask: Ask, method: str, path: str, says: str) -> None:
    answer = ask(path, method=method)

    assert answer.status == 404
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert says in json.loads(answer.body)["detail"]


@pytest.mark.tools  # seconds
def test_too_long_response_error_says_how_to_narrow_it(ask: Ask, prepared: InMemoryHours) -> None:
    groups = {(f"unit-{unit}", "n"): usd("1") for unit in range(MAX_CELLS // 4 + 1)}
    for hour in range(4):
        prepared.put("east", at(hour), groups)
    query = {**DAY, "group_by": "business_unit"}
    assert ask("/v1/costs", {**query, "granularity": "day"}).status == 200
    answer = ask("/v1/costs", query)
    assert answer.status == 400
    assert "more than 100,000 rows. Shorten the period, use" in answer.json["detail"]


def test_hours_of_many_clusters_have_pages(ask: Ask, prepared: InMemoryHours) -> None:
    days = {"start": "2026-10-16T00:00:00Z", "end": "2026-11-20T00:00:00Z"}
    clusters = [{"name": f"c{number}", "prometheus": {"url": "http://127.0.0.1:9090"}} for number in range(12)]
    prepared.document = json.dumps({"clusters": clusters, "pricing": {"source": "constant", "gpu_hourly_usd": 12}})
    hours: set[tuple[str, str]] = set()
    cursor: dict[str, str] = {}
    while True:
        answer = ask("/v1/hours", {**days, **cursor})
        assert answer.status == 200
        rows = {(row["cluster"], row["hour"]) for row in answer.json["rows"]}
        assert hours.isdisjoint(rows)
        hours |= rows
        if answer.json["cursor"] is None:
            break
        cursor = {"cursor": answer.json["cursor"]}
    assert len(hours) == 12 * 35 * 24 > 10_000


@pytest.mark.tools  # seconds
def test_query_of_too_many_pods_says_how_to_narrow_it() -> None:
    class Crowded(InMemoryHours):
        def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
            return [line()] * (MAX_LINES // 2 + 1)

    hours = Crowded()
    for hour in range(2):
        hours.put("east", at(hour), {("research", "n"): usd("1")})
    with serving(Container(clock=lambda: NOW, ledger=hours, rollups=hours, settings_store=hours)):
        answer = request_as(FINANCE, "/v1/costs", {**DAY, "group_by": "workload"})
    assert answer.status == 400
    assert "more than 500,000 pod-hours" in answer.json["detail"]


@pytest.mark.tools  # seconds
def test_long_names_do_not_break_lambdas_limit(ask: Ask, prepared: InMemoryHours) -> None:
    groups = {(f"{unit:05}" + "研" * 195, "n"): usd("1") for unit in range(4_900)}
    prepared.put("east", at(0), groups)
    query = {**DAY, "group_by": "business_unit"}
    first = ask("/v1/costs", query)

    assert len(first.body.encode()) < 6_000_000
    assert 0 < len(first.json["rows"]) < 4_900
    rest = ask("/v1/costs", {**query, "cursor": first.json["cursor"]}).json
    names = [row["group"]["business_unit"] for row in first.json["rows"] + rest["rows"]]
    assert names == sorted(name for name, _ in groups)
    assert rest["cursor"] is None
    assert rest["totals"] == first.json["totals"]
    for form in ("jsonl", "csv"):
        lines, cursor = 0, ""
        while lines == 0 or cursor:
            answer = ask("/v1/costs", {**query, "format": form} | ({"cursor": cursor} if cursor else {}))
            assert len(answer.body.encode()) < 6_000_000
            cursor = answer.headers.get("X-Next-Cursor", "")
            lines += answer.body.count("\n") - 1
        assert lines == 4_900, form
