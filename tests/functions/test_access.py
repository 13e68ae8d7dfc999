"""Access of every role to every route, and the roles of callers."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aws_lambda_powertools.event_handler import Response
from msgspec.structs import replace

from gpucost.api.app import build_app
from gpucost.container import Container
from gpucost.core.access import FULL_ACCESS, IamCaller, Scope, TokenCaller, principal_of, scope_of_roles
from gpucost.core.costs_by_model import InferenceRules, costs_by_model
from gpucost.core.errors import SettingsError
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.features.opencost.routes import NOT_STORED
from gpucost.http.routes import all_routes, caller_of, required_role
from gpucost.runtime.process import Environment
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from gpucost_devstack.identity import authorizer_of
from gpucost_devstack.signatures import HttpRequest
from gpucost_devstack.template import REPOSITORY
from tests.conftest import DynamoTable
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import (
    APP,
    ApiResponse,
    Caller,
    iam_caller,
    request_as,
    role_caller,
    serving,
    token_caller,
)
from tests.records import line, record

NOW = datetime(2026, 11, 20, 0, 5, tzinfo=UTC)
DAY = {"start": "2026-11-19T00:00:00Z", "end": "2026-11-20T00:00:00Z"}
PLAIN = """
clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9090"}}]
pricing: {source: constant, gpu_hourly_usd: 12}
business_units: [{name: research, namespaces: ["bu-a"]}, {name: assistant, namespaces: ["bu-b"]}]
"""
GRANTS = """
access:
  - {principal: "arn:aws:iam::123456789012:role/finops", roles: [admin]}
  - {principal: "arn:aws:iam::123456789012:role/aws-reserved/sso.amazonaws.com/eu-west-1/viewers", roles: [viewer]}
  - {principal: "arn:aws:iam::123456789012:user/team/ann", roles: ["bu:research"]}
  - {principal: "arn:aws:iam::123456789012:role/leads", roles: ["bu:research", "bu:assistant"]}
  - {claim: {name: groups, value: gpu-viewers}, roles: [viewer]}
  - {claim: {name: groups, value: research}, roles: ["bu:research"]}
  - {claim: {name: groups, value: "the assistant [team]"}, roles: ["bu:assistant"]}
  - {claim: {name: "custom:team", value: research}, roles: ["bu:research"]}
  - {claim: {name: level, value: "7"}, roles: ["bu:research"]}
  - {claim: {name: lead, value: "true"}, roles: ["bu:research"]}
  - {principal: "arn:aws:iam::123456789012:role/nothing-there", roles: ["bu:nothing"]}
"""
OPENCOST_DAY = "2026-11-19T00:00:00Z,2026-11-20T00:00:00Z"
MATRIX: dict[str, tuple[str, dict[str, str]]] = {
    "/v1/costs": ("bu", DAY),
    "/v1/inference": ("bu", DAY),
    "/v1/business-units": ("bu", DAY),
    "/v1/business-units/{name}": ("bu", DAY),
    "/v1/business-units/{name}/workloads": ("bu", DAY),
    "/v1/business-units/{name}/trend": ("bu", DAY),
    "/v1/waste": ("bu", DAY),
    "/v1/fleet": ("bu", DAY),
    "/v1/lines": ("bu", DAY),
    "/v1/nodepools": ("viewer", DAY),
    "/v1/quotas": ("viewer", DAY),
    "/v1/hours": ("viewer", DAY),
    "/v1/nodes": ("viewer", DAY),
    "/v1/restatements": ("viewer", DAY),
    "/v1/exports": ("viewer", DAY),
    "/v1/recommendations": ("bu", {}),
    "/v1/forecasts": ("bu", {"business_unit": "research"}),
    "/v1/prices": ("admin", DAY),
    "/v1/split-policies": ("viewer", DAY),
    "/v1/alerts": ("bu", DAY),
    "/v1/budgets": ("bu", {}),
    "/v1/silences": ("viewer", {}),
    **dict.fromkeys(
        ("/allocation", "/allocation/compute", "/allocation/summary", "/allocation/compute/summary"),
        ("bu", {"window": OPENCOST_DAY}),
    ),
    "/assets": ("viewer", {"window": OPENCOST_DAY}),
    "/getConfigs": ("bu", {}),
    "/health": ("public", {}),
    "/openapi.json": ("public", {}),
    "/docs": ("public", {}),
    "/": ("public", {}),
    "/assets/{file}": ("public", {}),
    "/config.json": ("public", {}),
}
"""Every route, the role that it requires, and parameters. A route that is missing here fails."""
ANN = iam_caller("arn:aws:iam::123456789012:user/team/ann")
CALLERS: dict[str, tuple[Caller | None, set[str]]] = {
    "anonymous": (None, {"public"}),
    "an authorizer that says nothing": (Caller({}), {"public"}),
    "a stranger": (role_caller("stranger"), {"public"}),
    "a user named like a role": (iam_caller("arn:aws:iam::123456789012:user/finops"), {"public"}),
    "a role of another account": (iam_caller("arn:aws:sts::999999999999:assumed-role/finops/x"), {"public"}),
    "the account itself": (iam_caller("arn:aws:iam::123456789012:root"), {"public"}),
    "a token without groups": (token_caller({"sub": "x"}), {"public"}),
    "bu": (ANN, {"public", "bu"}),
    "bu by token": (token_caller({"sub": "x", "groups": ["a", "research"]}), {"public", "bu"}),
    "two bus": (role_caller("leads"), {"public", "bu"}),
    "viewer": (role_caller("viewers"), {"public", "bu", "viewer"}),
    "viewer by token": (token_caller({"groups": ["research", "gpu-viewers"]}), {"public", "bu", "viewer"}),
    "admin": (role_caller("finops"), {"public", "bu", "viewer", "admin"}),
}


def test_page_has_the_roles_of_the_routes_that_it_requests() -> None:
    sources = {path.name: path.read_text() for path in (REPOSITORY / "web" / "src").rglob("*.ts*")}
    sources.pop("api-types.ts", None)  # made from the API's document, with all routes
    requested = {f"/{route}" for text in sources.values() for route in re.findall(r'"(v1/[a-z-]+)"', text)}
    known = dict(re.findall(r'"(v1/[a-z-]+)": "(viewer|admin)"', sources["api.ts"]))
    restricted = {route: role for route, (role, _) in MATRIX.items() if role in ("viewer", "admin")}
    assert known == {route[1:]: role for route, role in restricted.items() if route in requested}


class Document:
    """A settings store with one document."""

    def __init__(self) -> None:
        self.text = PLAIN + GRANTS

    def current(self) -> StoredSettings:
        return StoredSettings(1, self.text, parse_settings(self.text), "test", NOW)


@pytest.fixture(scope="module")
def filled(dynamodb_url: str) -> DynamoTable:
    from uuid import uuid4

    from gpucost_devstack.aws import local_client
    from gpucost_devstack.dynamodb_local import create_table

    table = DynamoTable(local_client("dynamodb", dynamodb_url), f"access-{uuid4()}")
    create_table(table.client, table.name)
    lines = [line("research", "bu-a", "p1"), line("assistant", "bu-b", "p2", "3.25"), line("other", "bu-c", "p3", "5")]
    hour = datetime(2026, 11, 19, 10, tzinfo=UTC)
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    served = [
        ServedTokens(
            pod_line.namespace, pod_line.pod, "vllm", f"{pod_line.business_unit}-chat", 10**6, 10**5, 0, 9, consumer
        )
        for pod_line in lines
        for consumer in (("research", "assistant") if pod_line.business_unit == "other" else ("",))
    ]
    models = tuple(costs_by_model(lines, served, InferenceRules()))
    hour_record = replace(record(lines, hour=hour, notes=("pod p3 of other",)), models=models)
    ledger.publish(hour_record, replacing=None, settings_version=1, now=NOW)
    return table


@pytest.fixture(autouse=True)
def document(filled: DynamoTable, enforced: EnforcedAws) -> Iterator[Document]:
    settings_store = Document()
    client = enforced.client("dynamodb", "ApiFunction")
    environment = Environment(table=filled.name)
    with serving(
        Container(environment, clock=lambda: NOW, client=lambda _service: client, settings_store=settings_store)
    ):
        yield settings_store


def routes() -> dict[str, Any]:
    """All routes but those of OpenCost's API that are refused (tests/features/opencost)."""
    every_route = {route.openapi_path: route.func for route in all_routes(APP)}
    return {path: route for path, route in every_route.items() if path not in NOT_STORED}


def path_of(route: str) -> str:
    script = next((REPOSITORY / "functions" / "api" / "page" / "assets").glob("*.js"))
    return route.replace("{name}", "research").replace("{file}", script.name)


def test_every_route_declares_a_role_and_is_in_the_matrix() -> None:
    assert {path: required_role(route) for path, route in routes().items()} == {
        path: need for path, (need, _) in MATRIX.items()
    }


@pytest.mark.parametrize("caller_name", CALLERS)
@pytest.mark.parametrize("route", MATRIX)
def test_every_route_allows_only_its_roles(route: str, caller_name: str) -> None:
    need, query = MATRIX[route]
    caller, may = CALLERS[caller_name]
    answer = request_as(caller, path_of(route), query)
    assert answer.status == (200 if need in may else 403), answer.body
    if need != "public" and need in may:
        widest = max(may & {"bu", "viewer", "admin"}, key=["bu", "viewer", "admin"].index)
        assert answer.headers["X-Role"] == widest, "the page requests nothing that needs a wider role"
    if need not in may:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert set(answer.json) == {"type", "title", "status", "detail", "instance"}
        for secret in ("arn:", "123456789012", "research", "assistant", "demo", "finops", "ledger", "access-"):
            assert secret not in answer.body.replace("section access", "").replace(path_of(route), "")


@pytest.mark.parametrize("route", MATRIX)
def test_without_access_section_iam_sees_all_and_tokens_nothing(route: str, document: Document) -> None:
    document.text = PLAIN
    need, query = MATRIX[route]
    for caller in (role_caller("stranger"), iam_caller("arn:aws:iam::123456789012:root")):
        assert request_as(caller, path_of(route), query).status == 200
    token = request_as(token_caller({"sub": "x", "groups": ["admin"]}), path_of(route), query)
    assert token.status == (200 if need == "public" else 403)
    if need != "public":
        assert "the settings have no access section" in token.json["detail"]
    assert request_as(None, path_of(route), query).status == (200 if need == "public" else 403)


def test_empty_access_section_denies_all(document: Document) -> None:
    document.text = PLAIN + "\naccess: []\n"
    assert request_as(role_caller("finops"), "/v1/costs", DAY).status == 403


def test_route_without_role_is_denied(document: Document, tmp_path: Path) -> None:
    app = build_app(Container(settings_store=document).api_services, tmp_path)

    @app.get("/v1/forgotten")
    def forgotten() -> Response[str]:
        return Response(200, "text/plain", "everything")

    assert required_role(forgotten) is None
    for caller, _ in CALLERS.values():
        answer = request_as(caller, "/v1/forgotten", app=app)
        assert (answer.status, "everything" in answer.body) == (403, False)
    assert request_as(role_caller("finops"), "/v1/nowhere", app=app).status == 404


def test_bu_role_sees_its_rows_and_totals() -> None:
    answer = request_as(ANN, "/v1/costs", {**DAY, "group_by": "business_unit,namespace"}).json
    (row,) = answer["rows"]
    assert row["group"] == {"business_unit": "research", "namespace": "bu-a"}
    totals = answer["totals"]
    assert totals["allocated_usd"] == Decimal("1.714285714286") == row["allocated_usd"]
    assert totals["allocated_usd"] == totals["effective_usd"] + totals["waste_usd"] + totals["unmeasured_usd"]
    for name in ("capacity_gpu_hours", "unallocated_usd", "node_cost_usd", "residual_usd", "host_usd"):
        assert totals[name] is None
    assert answer["coverage"]["hours_complete"] == 1


def test_bu_role_sees_its_models_and_totals() -> None:
    """Rows, totals and what filters exclude are those of its own models, in each format."""
    query = {**DAY, "granularity": "total", "group_by": "business_unit,model"}
    answer = request_as(ANN, "/v1/inference", query).json
    (row,) = answer["rows"]
    assert row["group"] == {"business_unit": "research", "model": "research-chat"}
    for figures in (row, answer["totals"]):
        assert (figures["allocated_usd"], figures["requests"]) == (Decimal("1.714285714286"), 9)
        assert (figures["prompt_tokens"], figures["generated_tokens"]) == (10**6, 10**5)
    others = request_as(ANN, "/v1/inference", {**query, "model": "assistant-chat"}).json
    assert (others["rows"], others["totals"]) == ([], answer["totals"])
    assert others["filtered_out"] == answer["totals"]
    assert len(request_as(role_caller("viewers"), "/v1/inference", query).json["rows"]) == 3
    for export_format in ("json", "csv", "jsonl"):
        body = request_as(ANN, "/v1/inference", {**query, "format": export_format}).body
        assert "research-chat" in body
        assert not any(name in body for name in ("assistant", "other-chat", "3.25"))
    assert request_as(ANN, "/v1/exports", DAY).status == 403


def test_bu_role_sees_its_use_of_others_only_by_consumer() -> None:
    """Research used half of the model of `other`, which costs 5 USD. Its own model names no consumer."""
    query = {**DAY, "granularity": "total", "group_by": "business_unit,model,consumer"}
    answer = request_as(ANN, "/v1/inference", {**query, "consumer": "*"}).json
    (row,) = answer["rows"]
    assert row["group"] == {"business_unit": "other", "model": "other-chat", "consumer": "research"}
    for figures in (row, answer["totals"]):
        assert (figures["allocated_usd"], figures["requests"]) == (Decimal("2.5"), 9)
    assert request_as(ANN, "/v1/inference", {**query, "consumer": "assistant"}).json["rows"] == []
    (of_its_pods,) = request_as(ANN, "/v1/inference", query).json["rows"]
    assert of_its_pods["group"] == {"business_unit": "research", "model": "research-chat", "consumer": None}
    everything = request_as(role_caller("viewers"), "/v1/inference", query).json
    assert [row["group"]["consumer"] for row in everything["rows"]] == [None, "assistant", "research", None]
    assert everything["totals"]["allocated_usd"] == sum(row["allocated_usd"] for row in everything["rows"])


def test_several_bu_roles_see_their_union() -> None:
    def units(caller: Caller, path: str = "/v1/business-units") -> dict[str, Decimal]:
        rows = request_as(caller, path, DAY).json["rows"]
        return {row["business_unit"]: row["allocated_usd"] for row in rows}

    both = {"research": Decimal("1.714285714286"), "assistant": Decimal("3.25")}
    assert units(ANN) == {"research": both["research"]}
    assert units(role_caller("leads")) == both
    assert units(role_caller("viewers")) == {**both, "other": 5}
    assert units(role_caller("nothing-there")) == {}
    day = {**DAY, "granularity": "day"}
    assert request_as(role_caller("leads"), "/v1/costs", day).json["totals"]["allocated_usd"] == sum(both.values())
    assert request_as(role_caller("nothing-there"), "/v1/costs", day).json["totals"]["allocated_usd"] == 0


def test_unknown_cluster_error_lists_clusters_only_to_fleet_viewers() -> None:
    def detail(caller: Caller) -> str:
        answer: ApiResponse = request_as(caller, "/v1/costs", {**DAY, "cluster": "x"})
        assert answer.status == 400
        return str(answer.json["detail"])

    assert detail(ANN) == "cluster: 'x' is not in the settings"
    assert detail(role_caller("viewers")) == "cluster: 'x' is not in the settings; allowed: demo"


@pytest.mark.parametrize(
    ("caller", "sees"),
    [
        (token_caller({"groups": ["research"]}), {"research"}),
        (token_caller({"groups": "research"}), {"research"}),
        (token_caller({"custom:team": "research"}), {"research"}),
        (token_caller({"custom:team": "Research"}), set()),
        (token_caller({"groups": ["a", "the assistant [team]"]}), {"assistant"}),
        (token_caller({"groups": "the assistant [team]"}), {"assistant"}),
        # A group whose name API Gateway formats like two groups, or like a list.
        (token_caller({"groups": ["research team"]}), set()),
        (token_caller({"groups": ["x gpu-viewers", "y"]}), set()),
        (token_caller({"groups": "[research]"}), set()),
        (token_caller({"groups": ["[research]"]}), set()),
        (token_caller({"groups": [["research"]]}, written={"groups": "[[research]]"}), set()),
        (token_caller({"groups": []}), set()),
        (token_caller({"level": "7"}), {"research"}),
        (token_caller({"level": 7}, written={"level": "7"}), set()),
        (token_caller({"level": [7]}, written={"level": "[7]"}), set()),
        (token_caller({"level": ["7", 7]}, written={"level": "[7 7]"}), set()),
        (token_caller({"lead": "true"}), {"research"}),
        (token_caller({"lead": True}, written={"lead": "true"}), set()),
        (token_caller({"groups": {"research": 1}}, written={"groups": "research"}), set()),
        (token_caller({"groups": "guests"}, written={"groups": "research"}), set()),
        (Caller({"jwt": {"claims": {"groups": "research"}}}, ""), set()),
        # The verified claims and the header differ, so the claim has no values.
        (token_caller({"groups": ["research"]}, written={"groups": "[guests]"}), set()),
        (Caller({"jwt": {"claims": {"groups": "[research]"}}}, ""), set()),
        (Caller({"jwt": {"claims": {"groups": "[research]"}}}, "Bearer x.y.z"), set()),
        (Caller({"jwt": {"claims": {"groups": "[research]"}}}, "Bearer e30.W10.x"), set()),
    ],
)
def test_group_claim_matches_exactly_not_by_list_notation(caller: Caller, sees: set[str]) -> None:
    answer = request_as(caller, "/v1/business-units", DAY)
    assert answer.status == (200 if sees else 403)
    assert {row["business_unit"] for row in answer.json.get("rows", [])} == sees


def test_principals_are_compared_without_path_and_session() -> None:
    role = "arn:aws-cn:iam::123456789012:role/x"
    assert principal_of("arn:aws-cn:sts::123456789012:assumed-role/x/me@example.com") == role
    assert principal_of("arn:aws-cn:iam::123456789012:role/a/b/x") == role
    assert principal_of("arn:aws:iam::123456789012:user/a/x") == "arn:aws:iam::123456789012:user/x"
    for other in ("arn:aws:iam::123456789012:root", "arn:aws:sts::123456789012:federated-user/x", "x"):
        assert principal_of(other) == other


def test_roles_add_up() -> None:
    assert scope_of_roles([]) is None
    assert scope_of_roles(["bu:a", "bu:b"]) == Scope(frozenset({"a", "b"}))
    assert scope_of_roles(["bu:a", "viewer"]) == Scope(None)
    assert scope_of_roles(["viewer", "admin"]) == FULL_ACCESS
    assert scope_of_roles(["bu:bu:a"]) == Scope(frozenset({"bu:a"}))


@pytest.mark.parametrize(
    ("access", "says"),
    [
        ("", "access: must be a list of grants; omit the key"),
        ("{}", "access: must be a list"),
        ("[{roles: [admin]}]", "access[0]: either principal or claim is required"),
        ('[{principal: "arn:aws:iam::123456789012:role/x", claim: {name: a, value: b}, roles: [admin]}]', "either"),
        ('[{principal: "arn:aws:iam::123456789012:role/*", roles: [admin]}]', "access[0].principal"),
        ('[{principal: "arn:aws:sts::123456789012:assumed-role/x/y", roles: [admin]}]', "access[0].principal"),
        ('[{principal: "arn:aws:iam::123456789012:role/x", roles: []}]', "access[0].roles"),
        ('[{principal: "arn:aws:iam::123456789012:role/x", roles: [owner]}]', "access[0].roles[0]"),
        ('[{principal: "arn:aws:iam::123456789012:role/x", roles: ["bu:"]}]', "access[0].roles[0]"),
        ('[{principal: "arn:aws:iam::123456789012:role/x", role: admin}]', "unknown key 'access[0].role'; allowed"),
        ("[{claim: {name: groups}, roles: [viewer]}]", "access[0].claim.value"),
    ],
)
def test_invalid_access_section_is_rejected(access: str, says: str) -> None:
    with pytest.raises(SettingsError, match=None) as refused:
        parse_settings(f"{PLAIN}\naccess: {access}\n")
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("headers", "caller"),
    [
        ({}, IamCaller("arn:aws:iam::000000000000:user/local")),
        ({"x-act-as": "arn:aws:sts::000000000000:assumed-role/x/me"}, IamCaller("arn:aws:iam::000000000000:role/x")),
        (
            {"authorization": token_caller({"groups": ["a b", "c"], "sub": "x", "exp": 5}).authorization},
            TokenCaller({"groups": ("a b", "c"), "sub": ("x",), "exp": ()}),
        ),
        ({"authorization": "Bearer nonsense"}, None),
    ],
)
def test_local_stack_identifies_callers_as_api_gateway_does(headers: dict[str, str], caller: object) -> None:
    event = {
        "headers": headers,
        "requestContext": {"authorizer": authorizer_of(HttpRequest("GET", "/v1/costs", headers))},
    }
    assert caller_of(event) == caller
