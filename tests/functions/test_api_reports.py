"""Reports through the real handler and a real ledger, compared with manual results or the raw lines."""

import csv
import io
import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from gpucost.core.hours import DAY
from gpucost_cli.manifests.dashboard_metrics import dashboards, panels
from tests.functions.api_requests import ApiResponse
from tests.functions.published_hours import FIRST, PERIOD, ask

pytestmark = pytest.mark.usefixtures("published_hours")


def test_costs_by_workload_and_day_come_from_facts_and_from_lines_at_the_edges() -> None:
    answer = ask(
        "/v1/costs", {**PERIOD, "granularity": "day", "group_by": "workload,label:team", "cluster": "east"}
    ).json
    assert [
        (row["start"][8:10], row["end"][8:13], *row["group"].values(), row["allocated_usd"]) for row in answer["rows"]
    ] == [
        ("16", "17T00", "job", "", 6),
        ("16", "17T00", "train", "x", 60),
        ("17", "18T00", "train", "x", 60),
        ("18", "19T00", "train", "x", 60),
        ("19", "19T02", "train", "x", 20),
    ]
    assert (answer["totals"]["allocated_usd"], answer["totals"]["node_cost_usd"]) == (206, 206 + 20 * 5)
    assert (answer["row_count"], answer["cursor"], answer["filtered_out"]) == (5, None, None)


def test_filtered_out_and_rows_add_up_to_totals() -> None:
    query = {**PERIOD, "granularity": "total", "group_by": "cluster"}
    plain = ask("/v1/costs", query).json
    answer = ask("/v1/costs", {**query, "workload": "!train", "label": "team:!*,team:x"}).json
    assert {row["group"]["cluster"]: row["allocated_usd"] for row in answer["rows"]} == {"east": 6, "west": 6}
    assert answer["filtered_out"]["allocated_usd"] == 200
    assert answer["totals"] == plain["totals"]
    nothing = ask("/v1/costs", {**query, "business_unit": "nowhere"}).json
    assert (nothing["rows"], nothing["filtered_out"]["allocated_usd"]) == ([], 212)
    hourly = ask("/v1/costs", {**PERIOD, "business_unit": "=w"}).json
    assert (len(hourly["rows"]), hourly["filtered_out"]["allocated_usd"]) == (6, 206)
    assert hourly["totals"] == plain["totals"]


@pytest.mark.parametrize(
    ("idle", "research", "other", "unused"),
    [
        ("separate", (60, 0), (6, 0), (0, 30)),
        ("shared-by-allocation", (60, Decimal("27.272727272727")), (6, Decimal("2.727272727273")), None),
        ("shared-evenly", (60, 15), (6, 15), None),
    ],
)
def test_idle(idle: str, research: Any, other: Any, unused: Any) -> None:
    day = {"start": "2026-11-16", "end": "2026-11-17", "granularity": "day", "group_by": "business_unit"}
    answer = ask("/v1/costs", {**day, "cluster": "east", "idle": idle}).json
    costs_by_unit = {
        row["group"]["business_unit"] or row["kind"]: (row["allocated_usd"], row["idle_usd"]) for row in answer["rows"]
    }
    assert costs_by_unit == {"research": research, "=w": other, **({"idle": unused} if unused else {})}
    assert sum(row["cost_usd"] for row in answer["rows"]) == answer["totals"]["node_cost_usd"] == 96
    assert sum(row["idle_gpu_hours"] for row in answer["rows"]) == 12


def test_pages_are_in_order_and_totals_are_of_all_pages() -> None:
    query = {**PERIOD, "group_by": "business_unit", "sort": "-waste_usd,start", "limit": "8"}
    rows, cursor, answers = [], None, []
    while cursor != "":
        answer = ask("/v1/costs", query | ({"cursor": cursor} if cursor else {})).json
        answers.append((answer["totals"], answer["coverage"], answer["row_count"]))
        rows += answer["rows"]
        cursor = answer["cursor"] or ""
    full_response = ask("/v1/costs", {**query, "limit": "10000"}).json
    assert (len(answers), len(rows)) == (4, 26)
    assert rows == full_response["rows"]
    assert all(response == (full_response["totals"], full_response["coverage"], 26) for response in answers)
    wastes = [row["waste_usd"] for row in rows]
    assert wastes == sorted(wastes, reverse=True)
    assert wastes[0] == Decimal("4.5")


def test_json_lines_and_csv_have_the_same_rows_and_cursor() -> None:
    query = {**PERIOD, "granularity": "day", "group_by": "business_unit", "idle": "separate"}
    plain = ask("/v1/costs", query).json
    lines = ask("/v1/costs", {**query, "format": "jsonl"})
    head, *rows = [
        json.loads(splitline, parse_float=Decimal, parse_int=Decimal) for splitline in lines.body.splitlines()
    ]
    assert rows == plain["rows"]
    assert head == {name: value for name, value in plain.items() if name != "rows"}
    table = list(csv.DictReader(io.StringIO(ask("/v1/costs", {**query, "format": "csv"}).body, newline="")))
    assert [Decimal(row["cost_usd"]) for row in table] == [row["cost_usd"] for row in plain["rows"]]
    assert {row["business_unit"] for row in table} == {"", "research", "'=w"}


def test_business_unit_with_workloads_and_trend() -> None:
    path = "/v1/business-units/research"
    unit = ask(path, PERIOD, route="/v1/business-units/{name}").json
    assert [(row["start"][8:10], row["allocated_usd"], row["waste_usd"]) for row in unit["rows"]] == [
        ("16", 62, Decimal("0.5")),
        ("17", 62, Decimal("24.5")),
        ("18", 60, 24),
        ("19", 22, Decimal("8.5")),
    ]
    assert unit["totals"]["allocated_usd"] == 206 == sum(row["allocated_usd"] for row in unit["rows"])
    assert unit["coverage"]["hours_complete"] == 23
    hourly = ask(path, {**PERIOD, "granularity": "hour"}, route="/v1/business-units/{name}").json
    assert (len(hourly["rows"]), hourly["totals"]) == (20, unit["totals"])

    workloads = ask(f"{path}/workloads", PERIOD, route="/v1/business-units/{name}/workloads").json
    assert [(row["cluster"], row["workload"], row["allocated_usd"]) for row in workloads["rows"]] == [
        ("east", "train", 200),
        ("west", "serve", 6),
    ]
    assert workloads["totals"] == unit["totals"]

    route = "/v1/business-units/{name}/trend"
    trend = ask(f"{path}/trend", {"start": "2026-11-17", "end": "2026-11-18"}, route=route).json
    assert (trend["current"]["costs"]["waste_usd"], trend["previous"]["costs"]["waste_usd"]) == (
        Decimal("24.5"),
        Decimal("0.5"),
    )
    assert (trend["change"]["waste_usd"], trend["percent"]["waste_usd"]) == (24, 4800)
    assert (trend["change"]["allocated_usd"], trend["percent"]["allocated_usd"]) == (0, 0)
    first = ask(f"{path}/trend", {"start": "2026-11-16", "end": "2026-11-17"}, route=route).json
    assert set(first["previous"]["costs"].values()) == {None} == set(first["percent"].values())
    other = ask("/v1/business-units/=w/trend", {"start": "2026-11-17", "end": "2026-11-18"}, route=route).json
    assert (other["current"]["costs"]["waste_usd"], other["percent"]["waste_usd"]) == (0, -100)
    zero = ask("/v1/business-units/unused/trend", {"start": "2026-11-18", "end": "2026-11-19"}, route=route).json
    assert (zero["change"]["waste_usd"], zero["percent"]["waste_usd"]) == (0, None)
    part = ask("/v1/business-units/part/trend", {"start": "2026-11-13", "end": "2026-11-14"}, route=route).json
    assert part["current"]["costs"]["allocated_usd"] == part["previous"]["costs"]["allocated_usd"] == 4
    assert {name: value for name, value in part["change"].items() if name.endswith("_usd")} == dict.fromkeys(
        name for name in part["change"] if name.endswith("_usd")
    ), "half of it has no price"
    assert part["change"]["allocated_gpu_hours"] == part["previous"]["costs"]["allocated_gpu_hours"]
    assert part["percent"]["allocated_gpu_hours"] == 100


def test_trend_in_two_currencies_is_rejected() -> None:
    path, route = "/v1/business-units/abroad/trend", "/v1/business-units/{name}/trend"

    def trend(day: int) -> ApiResponse:
        start = FIRST + day * DAY
        return ask(path, {"start": f"{start:%Y-%m-%d}", "end": f"{start + DAY:%Y-%m-%d}"}, route=route)

    assert trend(-40).json["currency"] == "JPY", "the day before has no figures"
    refused = trend(-39)
    assert refused.status == 400
    assert "the previous one have amounts in JPY and USD, which cannot be compared" in refused.json["detail"]
    assert trend(-41).json["currency"] == "JPY", "the day itself has no figures"


@pytest.mark.parametrize("more", ["", "/workloads"])
def test_unit_in_two_currencies_is_answered_before_and_after_the_change(more: str) -> None:
    path, route = f"/v1/business-units/abroad{more}", "/v1/business-units/{name}" + more

    def of_days(first: int, count: int) -> ApiResponse:
        start, end = FIRST + first * DAY, FIRST + (first + count) * DAY
        return ask(path, {"start": f"{start:%Y-%m-%d}", "end": f"{end:%Y-%m-%d}"}, route=route)

    refused = of_days(-40, 2)
    assert refused.status == 400
    assert "or a period before or after the change of currency" in refused.json["detail"]
    assert [of_days(day, 1).json["currency"] for day in (-40, -39)] == ["JPY", "USD"]


@pytest.mark.parametrize("more", ["", "/workloads", "/trend"])
def test_unknown_unit_returns_404_and_unused_unit_is_empty(more: str) -> None:
    route = "/v1/business-units/{name}" + more
    missing = ask(f"/v1/business-units/nowhere{more}", PERIOD, route=route)
    assert missing.status == 404
    assert "no such business unit in the settings or in the hours of the period" in missing.json["detail"]
    assert ask(f"/v1/business-units/unused{more}", PERIOD, route=route).status == 200
    odd = ask(f"/v1/business-units/R&D 🚀 #1 50%41{more}", PERIOD, route=route)  # decoded, as HTTP APIs give it
    assert (odd.status, odd.json["business_unit"]) == (200, "R&D 🚀 #1 50%41")
    wrong = ask(f"/v1/business-units/R&D 🚀 #1 50A{more}", PERIOD, route=route)
    assert "no such business unit" in wrong.json["detail"]


def test_waste_lists_top_wasters_with_start_and_pods() -> None:
    answer = ask("/v1/waste", PERIOD).json
    assert [(row["cluster"], row["workload"], row["waste_usd"], row["since"]) for row in answer["rows"]] == [
        ("east", "train", 56, "2026-11-17T00:00:00Z"),
        ("east", "job", 6, "2026-11-16T00:00:00Z"),
        ("west", "serve", Decimal("1.5"), "2026-11-19T00:00:00Z"),
    ]
    train, job, serve = answer["rows"]
    assert (train["hour"], [pod["pod"] for pod in train["pods"]]) == ("2026-11-19T01:00:00Z", ["train-73"])
    assert train["pods"][0]["waste_usd"] == 4
    assert job["pods"] == []
    assert [pod["pod"] for pod in serve["pods"]] == ["serve-73"]
    first = ask("/v1/waste", {**PERIOD, "limit": "1"}).json
    assert (len(first["rows"]), first["row_count"]) == (1, 3)
    rest = ask("/v1/waste", {**PERIOD, "limit": "1", "cursor": first["cursor"]}).json
    assert [row["workload"] for row in rest["rows"]] == ["job"]
    only = ask("/v1/waste", {**PERIOD, "namespace": "ns-=w"}).json
    assert [row["workload"] for row in only["rows"]] == ["job"]


def test_waste_begins_within_the_period() -> None:
    answer = ask("/v1/waste", {**PERIOD, "start": "2026-11-17T04:00:00Z"}).json
    since = {row["workload"]: row["since"] for row in answer["rows"]}
    assert since == {"train": "2026-11-17T04:00:00Z", "serve": "2026-11-19T00:00:00Z"}


def test_node_holders_and_parts_add_up_to_node_cost() -> None:
    query = {"start": "2026-11-16T00:00:00Z", "end": "2026-11-16T08:00:00Z", "cluster": "east"}
    answer = ask("/v1/nodes", query).json
    assert [(row["hour"][11:13], row["node"], len(row["holders"])) for row in answer["rows"]] == [
        ("00", "n1", 2),
        ("00", "n2", 0),
        ("04", "n1", 2),
        ("04", "n2", 0),
    ]
    for row in answer["rows"]:
        parts = ("effective", "waste", "unmeasured", "unallocated", "stranded", "unobserved", "host", "residual")
        assert sum(row[f"{name}_usd"] for name in parts) == row["node_cost_usd"]
        assert sum(holder["allocated_usd"] for holder in row["holders"]) == row["allocated_usd"]
    seen, cursor = [], None
    while cursor != "":
        page = ask("/v1/nodes", {**query, "limit": "3"} | ({"cursor": cursor} if cursor else {})).json
        seen += page["rows"]
        cursor = page["cursor"] or ""
    assert seen == answer["rows"]


def test_holders_are_null_for_two_nodes_of_the_same_name() -> None:
    query = {"start": "2026-11-19T00:00:00Z", "end": "2026-11-19T01:00:00Z", "cluster": "east"}
    rows = ask("/v1/nodes", query).json["rows"]
    assert [(row["provider_id"], row["holders"], row["waste_usd"]) for row in rows] == [
        ("aws:///a/i-1", None, None),
        ("aws:///a/i-2", None, None),
    ]


def test_node_pools_and_quotas_report_limits_and_use() -> None:
    day = {"start": "2026-11-16", "end": "2026-11-17"}
    pools = ask("/v1/nodepools", day).json["rows"]
    assert [(row["node_pool"], row["used"], row["limit"], row["percent"]) for row in pools] == [
        ("gpu", 6, 8, 75),
        ("free", 2, None, None),
    ]
    quotas = ask("/v1/quotas", day).json["rows"]
    # Research holds one unit, a seventh of a GPU, for the whole hour, and used a quarter of it.
    names = ("namespace", "quota", "hard", "requested", "held", "used")
    assert [tuple(row[name] for name in names) for row in quotas] == [
        ("ns-research", "gpus", 4, 3, 1, Decimal("0.249999999998")),
        ("ns-empty", "gpus", 4, None, 0, 0),
        ("ns-research", "mig", 7, 0, 0, 0),
    ]
    assert ask("/v1/quotas", {**day, "cluster": "west"}).json["rows"] == []
    for path in ("/v1/nodepools", "/v1/quotas"):
        assert "more than 48 hours" in ask(path, PERIOD).json["detail"]


def _selected(row: Any, selector: str) -> Any:
    for name in selector.split("."):
        row = row[name]
    return row


@pytest.mark.parametrize("window", ["7d", "24h"])
def test_grafana_ledger_dashboards_request_valid_queries(window: str) -> None:
    """Every Infinity query of the dashboard: path, parameters, and the fields of its columns."""
    targets = [target for panel in panels(dashboards()["ledger"]) for target in panel.get("targets", ())]
    assert len(targets) == 7
    kinds: dict[str, tuple[type, ...]] = {"number": (Decimal, type(None)), "string": (str,), "timestamp": (str,)}
    for target in targets:
        query = {param["key"]: param["value"].replace("${window}", window) for param in target["url_options"]["params"]}
        answer = ask(target["url"], query)
        assert answer.status == 200, answer.body
        rows = answer.json[target["root_selector"]]
        assert rows, target["url"]
        for row in rows:
            for column in target["columns"]:
                value: Any = _selected(row, column["selector"])
                is_unknown_model = value is None and column["selector"] == "group.model"
                assert is_unknown_model or isinstance(value, kinds[column["type"]]), column
                if column["type"] == "timestamp":
                    assert datetime.fromisoformat(str(value)).tzinfo is not None
