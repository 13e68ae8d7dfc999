"""Every panel's query, on what the kit's collector brings to a real Prometheus that runs the rules."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from authoring.grafana.__main__ import files, main
from devstack.fleet.scenario import Pod, Scenario
from devstack.template import REPOSITORY
from gpucost.core.metering.signals import SIGNALS
from gpucost.settings import Settings
from gpucost.settings_document import parse_settings
from gpucost_cli.manifests import dashboard_metrics as committed
from gpucost_cli.manifests import series
from gpucost_cli.manifests.parameters import parse_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.values import template_values
from gpucost_cli.rules import documents
from tests.dashboards.test_rules import NOW
from tests.manifests import articles
from tests.manifests.cluster import query_instant, running_cluster, local_configuration, running_prometheus, wait_until
from tests.manifests.exposition import targets
from tests.manifests.rendered import configuration, parameters_text

LIVE = ("fleet", "business-unit", "node-pool", "pipeline")
USD = "12"
SETTINGS = (
    f"clusters: [{{name: {articles.NAME}, prometheus: {{url: 'http://127.0.0.1:9'}}, "
    f"selector: {{cluster: {articles.NAME}}}}}]\n"
    "pricing: {source: constant, gpu_hourly_usd: 12}\n"
    "business_units: [{name: research, namespaces: ['bu-*']}, {name: serving, namespaces: [ml-serving]}]\n"
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The articles' cluster, scraped by the kit's agent; rules run every second, which is a minute elsewhere."""
    settings = parse_settings(SETTINGS)
    recording = documents.recording_groups(settings, settings.clusters, NOW)
    groups = [{**one, "interval": "1s"} for one in (*recording, *documents.alerting_groups(include_template=True))]
    rules = tmp_path_factory.mktemp("rules") / "rules.yaml"
    rules.write_text(documents.render_groups("prometheus", groups))
    exposed = targets(_scenario(), 30)
    for one in exposed:
        if one.exporter == "karpenter":
            one.add("karpenter_cloudprovider_instance_launch_failures_total", reason="InsufficientCapacity")
    with ExitStack() as stack:
        receiver = stack.enter_context(
            running_prometheus({"global": {}, "rule_files": [str(rules)]}, "--web.enable-remote-write-receiver")
        )
        answers = [(one.exporter, one.node, _answer_always(one.text().encode())) for one in exposed]
        discovery = stack.enter_context(running_cluster(answers))
        block = configuration(_render_manifests(settings), "collection/prometheus-agent.yaml")
        stack.enter_context(running_prometheus(local_configuration(block, discovery, seconds=1, receiver=receiver), agent=True))
        wait_until(lambda: query_instant(receiver, "count_over_time(cluster:gpucost_utilization:ratio[1m]) >= 3"), "the rules to run")
        yield receiver


def _answer_always(content: bytes) -> Any:
    return lambda _: content


def _scenario() -> Scenario:
    """The articles' cluster, and a pod that waits for a node."""
    scenario = articles.scenario()
    return Scenario(**{**vars(scenario), "pods": [*scenario.pods, Pod("later", None, namespace="bu-a")]})


def _render_manifests(settings: Settings) -> Mapping[str, str]:
    """The collector's files: where the metrics go is changed later."""
    text = parameters_text().replace("cluster: gpu-cost-poc", f"cluster: {articles.NAME}")
    parameters = re.sub(r", business_unit: bu-.", "", text)
    amp = SETTINGS.replace(
        "url: 'http://127.0.0.1:9'",
        "url: 'https://aps-workspaces.us-west-2.amazonaws.com/workspaces/ws-1', auth: sigv4, region: us-west-2",
    )
    assert settings.clusters[0].name == articles.NAME
    return dict(render_files(template_values(parse_settings(amp), parse_parameters(parameters))))


def choose_variables(url: str, dashboard: Any) -> dict[str, str]:
    """Every variable with all the values that its own query finds, as Grafana writes them into a regular expression."""
    found = {"usd": USD, "__rate_interval": "1m"}
    for variable in dashboard["templating"]["list"]:
        query = variable.get("query")
        if variable["type"] == "query" and isinstance(query, dict) and "query" in query:
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query["query"]).groups()  # type: ignore[union-attr]
            rows = query_instant(url, f"group by ({label}) ({fill_in(metric, found)})")
            names = sorted(labels.get(label, "") for labels, _ in rows)
            assert names, f"nothing to choose from for {variable['name']}"
            found[variable["name"]] = f"({'|'.join(re.escape(name) for name in names)})".replace("\\", "\\\\")
    return found


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """With variables in place of their names."""
    done = re.sub(r"\$\{?(__rate_interval|[a-z]\w*)\}?", lambda match: variables[match[1]], text)
    assert "$" not in done.replace('"$1"', "")
    return done


def test_every_query_of_every_panel_finds_something(workspace: str) -> None:
    silent, several = [], 0
    for name in LIVE:
        dashboard = committed.dashboards()[name]
        variables = choose_variables(workspace, dashboard)
        for panel in committed.panels(dashboard):
            for target in panel.get("targets", ()):
                if "expr" not in target:
                    continue
                several += 1
                if not query_instant(workspace, fill_in(target["expr"], variables)):
                    silent.append((name, panel["title"], target["expr"]))
    assert silent == []
    assert several > 45


def test_the_parts_on_the_fleet_dashboard_are_all_gpus(workspace: str) -> None:
    """The stack is as high as the figure above it says, and as the instance types' tables say."""
    dashboard = committed.dashboards()["fleet"]
    variables = choose_variables(workspace, dashboard)
    expressions = {one["title"]: one["targets"][0]["expr"] for one in committed.panels(dashboard) if one.get("targets")}
    parts = query_instant(workspace, fill_in(expressions["What became of them"], variables))
    ((_, gpus),) = query_instant(workspace, fill_in(expressions["GPUs"], variables))
    there = sum(node.gpus for node in _scenario().nodes if node.lifetime[0] <= 30 < node.lifetime[1])
    assert gpus == there
    assert {labels["part"] for labels, _ in parts} == {"effective", "waste", "unmeasured", "unallocated", "stranded"}
    assert sum(value for _, value in parts) == pytest.approx(there)
    (waste,) = (value for labels, value in parts if labels["part"] == "waste")
    ((_, usd),) = query_instant(workspace, fill_in(expressions["Waste per hour"], variables))
    assert usd == pytest.approx(waste * float(USD))


def test_no_rule_fails(workspace: str) -> None:
    answer = requests.get(f"{workspace}/api/v1/rules", timeout=10).json()["data"]["groups"]
    failing = {
        rule["name"]: rule.get("lastError") for group in answer for rule in group["rules"] if rule["health"] != "ok"
    }
    assert failing == {}
    assert len(answer) == 4


def test_collectors_keep_what_dashboards_and_rules_ask_for() -> None:
    """By name; tests/manifests shows the same series by series. Exporters are told to read what is shown."""
    kept = "|".join(
        (series.dcgm_exporter_pattern(dashboards=True), series.neuron_monitor_pattern(dashboards=True), series.karpenter_pattern(), "kube_.+")
    )
    assert committed.queried_metrics() >= {"DCGM_FI_DEV_FB_USED", "karpenter_nodepool_usage", "kube_resourcequota"}
    assert [name for name in committed.queried_metrics() if not re.fullmatch(kept, name)] == []
    shown = {name for name in committed.queried_metrics() if name.startswith("DCGM_") and name not in SIGNALS}
    assert shown <= {name for name, _, _ in series.COUNTERS}


def test_what_is_committed_is_what_the_code_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--check"]) == 0
    assert sum(len(text) for text in files().values()) < 500_000
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("authoring.grafana.__main__.FOLDER", tmp_path)
    (tmp_path / "fleet.json").write_text("{}")
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_the_documentation_names_what_is_recorded() -> None:
    settings = parse_settings(SETTINGS)
    groups = documents.recording_groups(settings, settings.clusters, NOW)
    recorded = {rule["record"] for group in groups for rule in group["rules"]}
    text = (REPOSITORY / "docs" / "grafana.md").read_text()
    named = set(re.findall(r"`([a-z_]+:gpucost_\w+(?::\w+)?)`", text))
    assert len(named) > 10
    assert named <= recorded
    shown = {name for one in committed.dashboards().values() for text in committed.expressions(one)
             for name in re.findall(r"[a-z_]+:gpucost_\w+(?::\w+)?", text)}  # fmt: skip
    assert shown <= recorded


def published_metrics() -> set[tuple[str, str]]:
    """Metrics that the functions publish, with the function, read off their code."""
    found = {
        (path.parent.name, name)
        for path in (REPOSITORY / "functions").glob("*/app.py")
        for name in re.findall(r'add_metric\("(\w+)"', path.read_text())
    }
    counted = (REPOSITORY / "layers/common/gpucost").rglob("*.py")
    return found | {
        ("attribute", name)
        for path in counted
        for name in re.findall(r'tally\.(?:add|timed)\("(\w+)"', path.read_text())
    }


def test_cloudwatch_panels_show_metrics_that_are_published() -> None:
    shown = set()
    for panel in committed.panels(committed.dashboards()["pipeline"]):
        for target in panel.get("targets", ()):
            if target["datasource"]["type"] == "cloudwatch":
                assert target["datasource"] == panel["datasource"]
                if target["namespace"] == "GpuCost":
                    (service,) = target["dimensions"]["service"]
                    assert target["dimensions"]["stack"] == ["$stack"]
                    shown.add((service, target["metricName"]))
                else:
                    assert (target["namespace"], target["metricName"]) == (
                        "AWS/SQS",
                        "ApproximateNumberOfMessagesVisible",
                    )
    assert shown <= published_metrics()
    assert len(shown) > 12


@pytest.mark.parametrize("name", sorted(committed.dashboards()))
def test_dashboards_are_whole(name: str) -> None:
    """Panels lie beside each other within the grid, and say which data source they ask; units and ids are theirs."""
    dashboard = committed.dashboards()[name]
    assert dashboard["uid"] == f"gpucost-{name}"
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    panels = [panel for panel in committed.panels(dashboard) if panel["type"] != "row"]
    assert len({panel["title"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        assert panel.get("options", {}) is not None, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            uid = target["datasource"]["uid"]
            assert uid.strip("${}") in variables
            assert target["refId"], panel["title"]
            assert len({one["refId"] for one in panel["targets"]}) == len(panel["targets"]), panel["title"]
            used: Sequence[str] = re.findall(r"\$\{?([a-z]\w*)\}?", json.dumps(target))
            assert set(used) <= variables


def test_money_is_marked_as_an_estimate() -> None:
    for name in LIVE:
        for panel in committed.panels(committed.dashboards()[name]):
            if any("$usd" in target.get("expr", "") for target in panel.get("targets", ())):
                assert "estimate" in json.dumps(panel).lower(), panel["title"]
        (variable,) = [one for one in committed.dashboards()[name]["templating"]["list"] if one["name"] == "usd"] or [
            None
        ]
        assert variable is None or ("estimate" in variable["label"] and variable["query"] == USD)


def test_the_rules_that_the_template_loads_are_the_quick_starts() -> None:
    resources = yaml.safe_load(committed.RULES.read_text())["Resources"]
    groups = yaml.safe_load(resources["Rules"]["Properties"]["Data"])["groups"]
    assert groups[0]["name"].startswith("gpucost-gpu-cost-poc")
