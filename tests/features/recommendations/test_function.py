"""The recommend function's real handler with Amazon's DynamoDB engine, and the API's answers to each caller."""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import jsonschema
import pytest

from functions.recommend import app as recommend
from gpucost.container import Container
from gpucost.core.errors import ConflictError, InvalidInputError, InvalidMessageError, NotFoundError
from gpucost.core.hours import HOUR, format_timestamp
from gpucost.features.recommendations.what_if import MoveToSlices, WhatIfService
from gpucost.runtime.observability import tally
from gpucost.settings_document import SettingsDocumentStore
from gpucost.shared_parts import utc_now
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost_cli.main import main
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table
from gpucost_devstack.prometheus import running_prometheus
from gpucost_devstack.template import REPOSITORY
from tests.conftest import DynamoTable
from tests.enforced_permissions import EnforcedAws
from tests.features.recommendations import simulated_fleet as sim
from tests.functions.api_requests import Caller, Context, iam_caller, request_as, role_caller, serving
from tests.records import amount

HOURS = 168
"""Recommendations need a week of hours."""
END = sim.START + HOUR * HOURS
SETTINGS = """
clusters:
  - {name: demo, prometheus: {url: "PROMETHEUS"}, selector: {cluster: demo}}
  - {name: empty, prometheus: {url: "http://127.0.0.1:9"}}
pricing: {source: constant, gpu_hourly_usd: 1.5}
inference: {enabled: true}
alerts: {rules: [{rule: budget, monthly_usd: 9000}]}
access:
  - {principal: "arn:aws:iam::123456789012:role/finops", roles: [admin]}
  - {principal: "arn:aws:iam::123456789012:user/team/ann", roles: ["bu:research"]}
"""
ANN = iam_caller("arn:aws:iam::123456789012:user/team/ann")
FINOPS = role_caller("finops")
CHAT = sim.Load("chat", lambda hour: 0.9 if 8 <= hour % 24 < 20 else 0.3, lambda hour: 6 if hour < HOURS else 2)
LOADS = [
    CHAT,
    sim.Load("notebook", lambda _: 0.0, lambda _: 1, kind="StatefulSet"),
    sim.Load("render", lambda _: 0.0, lambda _: 2, unit="vision"),
    sim.Load("serve", lambda _: 1.0, lambda _: 2, unit="vision"),
    sim.Load(
        "mini",
        lambda _: 0.15,
        lambda _: 3,
        kind="Job",
        unit="speech",
        memory_gib=3.0,
        pool=sim.Pool("h100", "p5.4xlarge", 1, Decimal(7), model="NVIDIA H100 80GB HBM3"),
    ),
]
DEVICE = 'cluster="demo",UUID="GPU-1",namespace="monitoring",pod="dcgm-exporter-1"'


class Lambda(Context):
    def get_remaining_time_in_millis(self) -> int:
        return 900_000


def publish(table: DynamoTable, first: int, last: int) -> None:
    records = list(sim.simulate(LOADS, last, sums=True))
    for record in records[first:]:
        Ledger(DynamoDBTable(*table)).publish(record, replacing=None, settings_version=1, now=utc_now())


def metrics() -> str:
    """GPU memory in MiB from dcgm-exporter, with a short peak, and a pod that waited from eight to ten."""
    lines = ["# TYPE DCGM_FI_DEV_FB_USED gauge"]
    for number in range(3):
        labels = f'{DEVICE},exported_namespace="speech-ns",exported_pod="mini-{number}"'
        for minute in range(0, 60 * HOURS, 15):
            at = int(sim.START.timestamp()) + 60 * minute
            lines.append(f"DCGM_FI_DEV_FB_USED{{{labels}}} {3072 if minute % 1440 == 300 else 512} {at}")
    lines.append(f"DCGM_FI_DEV_FB_USED{{{DEVICE.replace('demo', 'other')}}} 70000 {int(sim.START.timestamp())}")
    lines.append("# TYPE kube_node_info gauge")
    quarters = [int(sim.START.timestamp()) + 900 * quarter for quarter in range(4 * HOURS)]
    lines += [f'kube_node_info{{cluster="demo",node="h100-00001"}} 1 {at}' for at in quarters]
    lines.append("# TYPE kube_pod_container_resource_requests gauge")
    for day in (0, 3):
        pod = f'namespace="speech-ns",pod="late-{day}",uid="u-{day}"'
        waits = f'{pod},container="main",node="",resource="nvidia_com_gpu"'
        waiting = quarters[96 * day + 32 : 96 * day + 40]
        lines += [f'kube_pod_container_resource_requests{{cluster="demo",{waits}}} 1 {at}' for at in waiting]
    return "\n".join([*lines, "# EOF", ""])


def run(at_hour: int, **more: Any) -> dict[str, Any]:
    scheduled = format_timestamp(sim.START + HOUR * at_hour)
    answer: dict[str, Any] = recommend.handler(
        {"version": 1, "scheduled_time": scheduled, **more},
        Lambda(),  # type: ignore[arg-type]  # a reduced Lambda context
        container=Container(),
    )
    return answer


def ask(caller: Caller = FINOPS, **query: str) -> dict[str, Any]:
    answer = request_as(caller, "/v1/recommendations", query)
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json
    return body


@pytest.fixture(scope="module")
def stored(dynamodb_url: str, enforced: EnforcedAws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoTable]:
    path = tmp_path_factory.mktemp("metrics") / "memory.om"
    path.write_text(metrics())
    with running_prometheus(path) as prometheus, pytest.MonkeyPatch.context() as patch:
        table = DynamoTable(local_client("dynamodb", dynamodb_url), f"recommendations-{uuid4()}")
        create_table(*table)
        variables = {"GPUCOST_TABLE": table.name, **enforced.environment("RecommendFunction")}
        for name, value in variables.items():
            patch.setenv(name, value)
        SettingsDocumentStore(DynamoDBTable(*table), clock=utc_now).push(
            SETTINGS.replace("PROMETHEUS", prometheus), author="test", now=utc_now()
        )
        publish(table, 0, HOURS)
        assert run(HOURS) == {
            "reviewed": [{"cluster": "demo", "recommendations": 6, "workloads": 5}],
            "clusters_left": 0,
        }
        with serving(Container()):
            yield table


pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("stored")]


def test_response_has_saving_and_evidence() -> None:
    answer = ask()
    assert [(row["kind"], row["subject"]["workload"]) for row in answer["rows"]] == [
        ("mig-slice", "mini"),
        ("mig-geometry", None),
        ("fewer-gpus", "chat"),
        ("idle", "render"),
        ("idle", "notebook"),
        ("pending", None),
    ]
    chat = answer["rows"][2]
    assert chat["saving"] == {
        "usd": 4 * Decimal("1.5") * 730,
        "low_usd": 4380,
        "high_usd": 4380,
        "list_usd": 4380,
        "cash_usd": 4380,
        "gpu_hours": 2920,
    }
    assert (chat["current_gpus"], chat["recommended_gpus"], chat["state"]) == (6, 2, "open")
    assert (chat["evidence"]["hours_observed"], chat["evidence"]["coverage"]) == (HOURS, 1)
    assert chat["evidence"]["peak_utilization"] == Decimal("0.15")
    assert chat["patch"] == (
        'apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: "chat"\n  namespace: "research-ns"\n'
        "spec:\n  replicas: 2\n"
    )
    slices, geometry = answer["rows"][:2]
    assert slices["evidence"]["facts"]["GPU memory"] == "3.0 GiB at most", "a short peak, from Prometheus"
    assert slices["evidence"]["facts"]["profile"] == "1g.10gb, 0.143 of a GPU"
    assert slices["part_of"] == geometry["id"]
    assert geometry["saving"]["usd"] == 2 * 7 * 730, "three GPUs' work fits one"
    waiting = answer["rows"][5]
    assert waiting["summary"] == (
        "Add 1 p5.4xlarge node to node pool h100: 2 pods waited 4.0 GPU-hours for nvidia.com/gpu, worth $122 a month, "
        "less than the nodes cost"
    ), "4 GPU-hours at $7 in 7 observed days"
    assert waiting["evidence"]["facts"]["longest wait"] == "2.0 hours (speech-ns/late-0)", "from Prometheus"
    assert (waiting["saving"]["usd"], waiting["subject"]["node_pool"]) == (-7 * 730, "h100")
    assert waiting["worth_usd"] == Decimal("121.67"), "4 × $7 × 730 ÷ 168"
    assert (waiting["offer"], waiting["alternative_to"]) == ("alternative", geometry["id"]), "it loses money"
    assert [row["offer"] for row in answer["rows"]] == ["plan"] * 5 + ["alternative"]
    saved = dict.fromkeys(("usd", "list_usd", "cash_usd"), 4380 + 2190 + 1095 + 10220)
    assert answer["totals"] == {**saved, "savings": saved, "costs": dict.fromkeys(saved, 0)}, (
        "the pool's plan includes the slices; a node for waiting pods is not offered"
    )
    (reviewed,) = answer["reviews"]
    assert reviewed["workloads"] == {"healthy": 1, "idle": 2, "low": 2}
    assert {row["subject"]["workload"]: row["finding"] for row in answer["findings"]}["serve"] == "healthy"


def test_response_matches_its_schema() -> None:
    document = json.loads((REPOSITORY / "docs/reference/openapi.json").read_text())
    answer = request_as(FINOPS, "/v1/recommendations", {"state": "all"})
    schema = {"$ref": "#/components/schemas/RecommendationsResponse", "components": document["components"]}
    jsonschema.validate(json.loads(answer.body), schema)


def test_filters_select_rows_and_reject_unknown_values() -> None:
    assert [row["subject"]["workload"] for row in ask(kind="idle")["rows"]] == ["render", "notebook"]
    slices = ask(kind="mig-slice")
    assert len(slices["rows"]) == 1
    assert slices["totals"]["usd"] == 0, "a slice saves nothing without its plan, which is filtered out"
    vision = ask(business_unit="vision")
    assert [row["subject"]["workload"] for row in vision["rows"]] == ["render"]
    assert {row["subject"]["business_unit"] for row in vision["findings"]} == {"vision"}
    assert ask(state="applied")["rows"] == []
    assert [row["subject"]["workload"] for row in ask(business_unit="vis*,none")["rows"]] == ["render"]
    assert ask(cluster="em*")["rows"] == []
    assert ask(cluster="empty")["rows"] == []
    for query in ({"cluster": "nowhere"}, {"kind": "magic"}, {"state": "done"}):
        assert request_as(FINOPS, "/v1/recommendations", query).status == 400


def test_business_unit_sees_only_its_workloads() -> None:
    answer = ask(ANN)
    assert {row["subject"]["workload"] for row in answer["rows"]} == {"chat", "notebook"}
    assert "vision" not in json.dumps(answer, default=str)
    assert answer["reviews"][0]["workloads"] == {"idle": 1, "low": 1}
    assert request_as(ANN, "/v1/recommendations", {"business_unit": "vision"}).status == 403


def test_second_run_changes_nothing() -> None:
    before = ask()
    requested = tally.drain()
    run(HOURS)
    assert tally.drain()["Queries"] == 2, (
        f"one for the day before, which has no samples, and one for Karpenter; {requested}"
    )
    after = ask()
    for row in (*before["rows"], *after["rows"]):
        row["last_recommended"] = None
    assert after["rows"] == before["rows"]


def test_invalid_event_is_rejected() -> None:
    with pytest.raises(InvalidMessageError, match="scheduled_time"):
        recommend.handler({"version": 1}, Lambda(), container=Container())  # type: ignore[arg-type]  # a reduced Lambda context
    with pytest.raises(InvalidInputError, match="nowhere"):
        run(HOURS, cluster="nowhere")


def test_dismissal_and_review_do_not_overwrite_each_other() -> None:
    (row,) = ask(business_unit="vision")["rows"]
    before = Container().recommendation_queries.find(row["id"])
    Container().recommendation_queries.dismiss(row["id"], author="ann", reason="kept for a demo")
    with pytest.raises(ConflictError):
        Container().recommendation_store.put(before)
    run(HOURS)
    (dismissed,) = ask(state="dismissed")["rows"]
    assert (dismissed["id"], dismissed["reason"], dismissed["author"]) == (row["id"], "kept for a demo", "ann")
    Container().recommendation_queries.reopen(row["id"])
    assert [row["id"] for row in ask(business_unit="vision")["rows"]] == [row["id"]]
    with pytest.raises(NotFoundError):
        Container().recommendation_queries.find("idle-000000000000")


def test_forecast_with_a_week_has_spent_cost_and_no_projection() -> None:
    with serving(Container(clock=lambda: END + HOUR)):  # the newest hour is still computed
        answer = request_as(ANN, "/v1/forecasts", {"business_unit": "research"})
        unknown = request_as(FINOPS, "/v1/forecasts", {"business_unit": "reserch"})
    assert (unknown.status, unknown.json["title"]) == (404, "Not Found")
    assert "no such business unit" in unknown.json["detail"]
    assert answer.status == 200, answer.body
    forecast = answer.json
    assert forecast["spent_usd"] == HOURS * 7 * Decimal("1.5"), "six replicas and a notebook"
    assert (forecast["hours_known"], forecast["hours_unknown"]) == (HOURS, 24), (
        "the first of November is not in the ledger"
    )
    assert (forecast["projected_usd"], forecast["backtest"]) == (None, None)
    assert forecast["budget_usd"] == 9000
    document = json.loads((REPOSITORY / "docs/reference/openapi.json").read_text())
    schema = {"$ref": "#/components/schemas/ForecastResponse", "components": document["components"]}
    jsonschema.validate(json.loads(answer.body), schema)
    assert request_as(ANN, "/v1/forecasts", {"business_unit": "vision"}).status == 403
    assert request_as(ANN, "/v1/forecasts", {}).status == 403, "of the whole fleet"
    for query in ({"period": "year"}, {"group_by": "cluster"}):
        assert request_as(ANN, "/v1/forecasts", {"business_unit": "research", **query}).status == 400


def test_fleet_forecast_has_the_costs_of_units_and_pools() -> None:
    document = json.loads((REPOSITORY / "docs/reference/openapi.json").read_text())
    schema = {"$ref": "#/components/schemas/ForecastResponse", "components": document["components"]}
    spent = {}
    with serving(Container(clock=lambda: END + HOUR)):
        period = {"start": "2026-11-01", "end": f"{END:%Y-%m-%dT%H:00:00Z}", "granularity": "total"}
        costs = request_as(FINOPS, "/v1/costs", period).json
        for group_by in ("business_unit", "cluster", "node_pool"):
            answer = request_as(FINOPS, "/v1/forecasts", {"group_by": group_by})
            assert answer.status == 200, answer.body
            jsonschema.validate(json.loads(answer.body), schema)
            assert answer.json["business_unit"] is None
            assert answer.json["spent_usd"] == costs["totals"]["node_cost_usd"]
            spent[group_by] = sum(row["spent_usd"] for row in answer.json["rows"])
    allocated = costs["totals"]["allocated_usd"]
    assert spent == {"business_unit": allocated, "cluster": costs["totals"]["node_cost_usd"], "node_pool": allocated}


@pytest.fixture
def gpucost(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The command line, with this table as the stack's, an hour after the newest one."""
    monkeypatch.setenv("COLUMNS", "200")  # a narrow table breaks its texts into lines
    container = Container(clock=lambda: END + HOUR)

    def run_command(*arguments: str, fails: int = 0) -> str:
        if fails:
            with pytest.raises(SystemExit) as end:
                main([*arguments, "--stack", "test"], container)
            assert end.value.code == fails
        else:
            main([*arguments, "--stack", "test"], container)
        out, err = capsys.readouterr()
        return err if fails else out

    return run_command


def test_commands_list_show_dismiss_and_reopen(gpucost: Callable[..., str]) -> None:
    listed = json.loads(gpucost("recommendations", "list", "--format", "json"))
    assert [row["id"] for row in listed["rows"]] == [row["id"] for row in ask()["rows"]]
    table = gpucost("recommendations", "list", "--kind", "idle")
    assert "$2,190.00" in table
    assert "open recommendations save $3,285.00 a month (cash $3,285.00); without commitments" in table
    everything = gpucost("recommendations", "list")
    assert "save $17,885.00 a month (cash $17,885.00); without commitments" in everything
    assert "not offered" in everything
    assert "recommendations save" not in gpucost("recommendations", "list", "--kind", "mig-slice")
    assert (
        "demo: 1 healthy, 2 idle, 2 low (healthy is 30 to 70% utilization), 168 hours to 2026-11-09T00:00:00Z" in table
    )
    chat = next(row["id"] for row in listed["rows"] if row["subject"]["workload"] == "chat")
    screen = gpucost("recommendations", "show", chat)
    assert "$4,380.00 ($4,380.00 to $4,380.00), 2,920.00 GPU-hours" in screen
    assert "replicas: 2" in screen
    assert json.loads(gpucost("recommendations", "show", chat, "--format", "json"))["id"] == chat
    patch = next(row["patch"] for row in listed["rows"] if row["id"] == chat)
    assert gpucost("recommendations", "show", chat, "--patch").rstrip() == patch.rstrip()
    waits = next(row["id"] for row in listed["rows"] if row["kind"] == "pending")
    assert "has no manifest" in gpucost("recommendations", "show", waits, "--patch", fails=2)
    assert "reason: required" in gpucost("recommendations", "dismiss", chat, "--reason", " ", fails=2)
    assert gpucost("recommendations", "dismiss", chat, "--reason", "a launch").strip() == f"{chat} is dismissed"
    assert "a launch" in gpucost("recommendations", "show", chat)
    assert gpucost("recommendations", "reopen", chat).strip() == f"{chat} is open"
    assert "there is no recommendation" in gpucost("recommendations", "show", "idle-0", fails=1)


def test_analysis_of_a_move_uses_days_of_the_ledger(gpucost: Callable[..., str]) -> None:
    outcome, currency = WhatIfService(
        Container().settings_store, Container().rollups, clock=lambda: END + HOUR
    ).what_if(MoveToSlices("speech", 2, "h100", "1g.10gb"), days=1)
    assert currency == "USD"
    assert float(outcome.freed_usd) == pytest.approx(2 * 6 / 7 * 7 * 24)
    assert outcome.moved_gpu_hours == amount(2 * 24)
    assert outcome.is_conserved
    more, _ = WhatIfService(Container().settings_store, Container().rollups, clock=lambda: END + HOUR).what_if(
        MoveToSlices("speech", 2, "h100", "1g.10gb"), days=30
    )
    assert more.days == HOURS // 24, "days without figures do not count as days without GPUs"
    assert more.moved_gpus == 2
    requested = (
        "recommendations",
        "what-if",
        "--business-unit",
        "speech",
        "--move",
        "2 H100 to 1g.10gb",
        "--days",
        "1",
    )
    message = gpucost(*requested)
    assert "freed: 1.71 GPUs, $8,760.00 a month when their nodes are removed" in message
    assert "35% utilized" in message
    assert "moved:" not in message
    more_than_held = gpucost(*requested[:5], "50 H100 to 1g.10gb", "--days", "1")
    assert "moved: 3.00 GPUs on average instead of 50" in more_than_held
    assert "the parts add up" in message
    assert json.loads(gpucost(*requested, "--format", "json"), parse_float=Decimal)["freed_usd"] == outcome.freed_usd
    assert "is invalid; write it like" in gpucost(
        "recommendations", "what-if", "--business-unit", "a", "--move", "some", fails=2
    )
    assert "held no whole GPU" in gpucost(
        "recommendations", "what-if", "--business-unit", "a", "--move", "1 H100 to 1g.10gb", fails=2
    )


def test_lower_cost_of_a_move_is_a_negative_difference(gpucost: Callable[..., str]) -> None:
    """Two H100 at $7 for 24 hours, of which a slice leaves 6/7: $288."""
    move = ("--business-unit", "speech", "--move", "2 H100 to 1g.10gb", "--days", "1")
    message = gpucost("recommendations", "what-if", *move)
    assert re.search(r"allocated +\$[\d,.]+ +\$[\d,.]+ +\$-288\.00", message), message


def test_applied_recommendation_is_visible_in_the_figures(stored: DynamoTable) -> None:
    publish(stored, HOURS, HOURS + 8)
    run(HOURS + 8)
    (row,) = ask(state="applied")["rows"]
    assert (row["subject"]["workload"], row["applied_at"]) == ("chat", format_timestamp(END))
    assert "chat" not in {row["subject"]["workload"] for row in ask()["rows"]}
