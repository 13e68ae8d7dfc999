"""Every panel's query, on the series that the rendered collector sends to a real Prometheus with the rules."""

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
from gpucost.core.metering.accelerators import ACCELERATORS
from gpucost.core.metering.fraction_schedulers import FRACTION_RESOURCES
from gpucost.core.metering.signals import SIGNALS, SUCCESSORS
from gpucost.settings import CoreSettings
from gpucost.settings_document import parse_settings
from gpucost_cli.manifests import dashboard_metrics, series
from gpucost_cli.manifests.parameters import parse_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.values import template_values
from gpucost_cli.rules import documents
from gpucost_devstack.fleet.scenario import Pod, Scenario
from gpucost_devstack.template import REPOSITORY
from tests.dashboards.small_cluster import NOW
from tests.manifests import articles
from tests.manifests.cluster import (
    local_configuration,
    query_instant,
    running_cluster,
    running_prometheus,
    running_server,
    wait_until,
)
from tests.manifests.exposition import targets
from tests.manifests.rendered import configuration, parameters_text

LIVE = ("fleet", "business-unit", "models", "node-pool", "pipeline")
USD = "12"
SETTINGS = (
    f"clusters: [{{name: {articles.NAME}, prometheus: {{url: 'http://127.0.0.1:9'}}, "
    f"selector: {{cluster: {articles.NAME}}}}}]\n"
    "pricing: {source: constant, gpu_hourly_usd: 12}\n"
    "business_units: [{name: research, namespaces: ['bu-*']}, {name: serving, namespaces: [ml-serving]}]\n"
    "inference: {enabled: true}\n"
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The articles' cluster, scraped by the rendered agent. Rules run every second instead of every minute."""
    settings = parse_settings(SETTINGS)
    recording = documents.recording_groups(settings, settings.clusters, NOW)
    groups = [
        {**target, "interval": "1s"} for target in (*recording, *documents.alerting_groups(include_template=True))
    ]
    rules = tmp_path_factory.mktemp("rules") / "rules.yaml"
    rules.write_text(documents.render_groups("prometheus", groups))
    exposed = targets(_scenario(), 30)
    for target in exposed:
        if target.exporter == "karpenter":
            target.add("karpenter_cloudprovider_instance_launch_failures_total", reason="InsufficientCapacity")
    with ExitStack() as stack:
        server = stack.enter_context(running_server(_InferenceServer()))
        scrape = {
            "job_name": "llm",
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "static_configs": [
                {
                    "targets": [f"127.0.0.1:{server}"],
                    "labels": {"cluster": articles.NAME, "namespace": "ml-serving", "pod": "llm-inference-5d8c-0"},
                }
            ],
        }
        receiver = stack.enter_context(
            running_prometheus(
                {"global": {}, "scrape_configs": [scrape], "rule_files": [str(rules)]},
                "--web.enable-remote-write-receiver",
            )
        )
        answers = [(target.exporter, target.node, _answer_always(target.text().encode())) for target in exposed]
        discovery = stack.enter_context(running_cluster(answers))
        block = configuration(_render_manifests(settings), "collection/prometheus-agent.yaml")
        stack.enter_context(
            running_prometheus(local_configuration(block, discovery, seconds=1, receiver=receiver), agent=True)
        )
        ran = (
            "count_over_time(cluster:gpucost_utilization:ratio[1m]) >= 3 "
            "and on (cluster) count_over_time(model:gpucost_gpus:sum[1m]) >= 3"
        )
        wait_until(lambda: query_instant(receiver, ran), "the rules to run")
        yield receiver


class _InferenceServer:
    """Answers scrapes as vLLM does, whose counters grow with each."""

    def __init__(self) -> None:
        self._scrapes = 0

    def __call__(self, _: str) -> bytes:
        self._scrapes += 1
        counts = {"prompt_tokens": 900, "prompt_tokens_cached": 300, "generation_tokens": 100, "request_success": 2}
        lines = [
            f'vllm:{name}_total{{engine="0",model_name="llama"}} {count * self._scrapes}'
            for name, count in counts.items()
        ]
        load = {
            "request_queue_time_seconds_sum": self._scrapes,
            "request_queue_time_seconds_count": 2 * self._scrapes,
            "num_requests_running": 5,
        }
        lines += [f'vllm:{name}{{engine="0",model_name="llama"}} {figure}' for name, figure in load.items()]
        return "\n".join(["# TYPE vllm:prompt_tokens_total counter", *lines, ""]).encode()


def _answer_always(content: bytes) -> Any:
    return lambda _: content


def _scenario() -> Scenario:
    """Return the articles' cluster with an additional pending pod."""
    scenario = articles.scenario()
    return Scenario(**{**vars(scenario), "pods": [*scenario.pods, Pod("later", None, namespace="bu-a")]})


def _render_manifests(settings: CoreSettings) -> Mapping[str, str]:
    """Render the collector's files; tests change the receiver later."""
    text = parameters_text().replace("cluster: gpu-cost-poc", f"cluster: {articles.NAME}")
    parameters = re.sub(r", business_unit: bu-.", "", text)
    amp = SETTINGS.replace(
        "url: 'http://127.0.0.1:9'",
        "url: 'https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1', auth: sigv4, region: us-east-1",
    )
    assert settings.clusters[0].name == articles.NAME
    return dict(render_files(template_values(parse_settings(amp), parse_parameters(parameters))))


def choose_variables(url: str, dashboard: Any) -> dict[str, str]:
    """Choose all values of every variable, as Grafana writes them into a regular expression."""
    chosen = {"usd": USD, "__rate_interval": "1m"}
    for variable in dashboard["templating"]["list"]:
        query = variable.get("query")
        if variable["type"] == "query" and isinstance(query, dict) and "query" in query:
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query["query"]).groups()  # type: ignore[union-attr]
            rows = query_instant(url, f"group by ({label}) ({fill_in(metric, chosen)})")
            names = sorted(labels.get(label, "") for labels, _ in rows)
            assert names, f"variable {variable['name']} has no values"
            chosen[variable["name"]] = f"({'|'.join(re.escape(name) for name in names)})".replace("\\", "\\\\")
    return chosen


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """Replace the names of variables by their values."""
    done = re.sub(r"\$\{?(__rate_interval|[a-z]\w*)\}?", lambda match: variables[match[1]], text)
    assert "$" not in done.replace('"$1"', "")
    return done


def test_every_query_returns_samples(workspace: str) -> None:
    empty_queries, query_count = [], 0
    for name in LIVE:
        dashboard = dashboard_metrics.dashboards()[name]
        variables = choose_variables(workspace, dashboard)
        for panel in dashboard_metrics.panels(dashboard):
            for target in panel.get("targets", ()):
                if "expr" not in target:
                    continue
                query_count += 1
                if not query_instant(workspace, fill_in(target["expr"], variables)):
                    empty_queries.append((name, panel["title"], target["expr"]))
    assert empty_queries == []
    assert query_count > 45


def test_parts_on_the_fleet_dashboard_sum_to_all_gpus(workspace: str) -> None:
    """The stack, the panel GPUs and the tables of instance types agree."""
    dashboard = dashboard_metrics.dashboards()["fleet"]
    variables = choose_variables(workspace, dashboard)
    expressions = {
        panel["title"]: panel["targets"][0]["expr"]
        for panel in dashboard_metrics.panels(dashboard)
        if panel.get("targets")
    }
    parts = query_instant(workspace, fill_in(expressions["GPUs by part"], variables))
    ((_, gpus),) = query_instant(workspace, fill_in(expressions["GPUs"], variables))
    existing_gpus = sum(node.gpus for node in _scenario().nodes if node.lifetime[0] <= 30 < node.lifetime[1])
    assert gpus == existing_gpus
    assert {labels["part"] for labels, _ in parts} == {"effective", "waste", "unmeasured", "unallocated", "stranded"}
    assert sum(value for _, value in parts) == pytest.approx(existing_gpus)
    (waste,) = (value for labels, value in parts if labels["part"] == "waste")
    ((_, usd),) = query_instant(workspace, fill_in(expressions["Waste per hour"], variables))
    assert usd == pytest.approx(waste * float(USD))


def test_no_rule_fails(workspace: str) -> None:
    answer = requests.get(f"{workspace}/api/v1/rules", timeout=10).json()["data"]["groups"]
    failing = {
        rule["name"]: rule.get("lastError") for group in answer for rule in group["rules"] if rule["health"] != "ok"
    }
    assert failing == {}
    assert len(answer) == 5


def test_collectors_keep_every_queried_metric() -> None:
    """This compares names; tests/manifests compares series. Exporters also read every shown counter."""
    kept = "|".join(
        (
            series.dcgm_exporter_pattern(dashboards=True),
            *(series.accelerator_pattern(accelerator, dashboards=True) for accelerator in ACCELERATORS),
            series.karpenter_pattern(),
            "kube_.+",
        )
    )
    assert dashboard_metrics.queried_metrics() >= {
        "DCGM_FI_DEV_FB_USED",
        "karpenter_nodepool_usage",
        "kube_resourcequota",
    }
    assert [name for name in dashboard_metrics.queried_metrics() if not re.fullmatch(kept, name)] == []
    shown = {name for name in dashboard_metrics.queried_metrics() if name.startswith("DCGM_") and name not in SIGNALS}
    assert shown <= {name for counter, _, _ in series.DCGM_COUNTERS for name in (counter, SUCCESSORS.get(counter))}


def test_committed_dashboards_are_current(tmp_path: Path) -> None:
    assert main(["--check"]) == 0
    assert sum(len(text) for text in files().values()) < 500_000
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "fleet.json").write_text("{}")
    assert main(["--check"], tmp_path) == 1
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0


def test_documented_and_shown_series_are_recorded() -> None:
    settings = parse_settings(SETTINGS)
    groups = documents.recording_groups(settings, settings.clusters, NOW)
    recorded = {rule["record"] for group in groups for rule in group["rules"]}
    text = (REPOSITORY / "docs" / "how-to" / "grafana.md").read_text()
    documented = set(re.findall(r"`([a-z_]+:gpucost_\w+(?::\w+)?)`", text))
    assert len(documented) > 10
    assert documented <= recorded
    shown = {
        name
        for dashboard in dashboard_metrics.dashboards().values()
        for text in dashboard_metrics.expressions(dashboard)
        for name in re.findall(r"[a-z_]+:gpucost_\w+(?::\w+)?", text)
    }
    assert shown <= recorded


def published_metrics() -> set[tuple[str, str]]:
    """Read the metrics that functions publish, with the function, from the code."""
    function_metrics = {
        (path.parent.name, name)
        for path in (REPOSITORY / "functions").glob("*/app.py")
        for name in re.findall(r'add_metric\("(\w+)"', path.read_text())
    }
    counted = (REPOSITORY / "layers/common/gpucost").rglob("*.py")
    return function_metrics | {
        ("attribute", name)
        for path in counted
        for name in re.findall(r'tally\.(?:add|timed)\("(\w+)"', path.read_text())
    }


def test_cloudwatch_panels_show_published_metrics() -> None:
    shown = set()
    for panel in dashboard_metrics.panels(dashboard_metrics.dashboards()["pipeline"]):
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


@pytest.mark.parametrize("name", sorted(dashboard_metrics.dashboards()))
def test_dashboards_are_valid(name: str) -> None:
    """Panels do not overlap, fit the grid and name a data source; titles and query ids are unique."""
    dashboard = dashboard_metrics.dashboards()[name]
    assert dashboard["uid"] == f"gpucost-{name}"
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    panels = [panel for panel in dashboard_metrics.panels(dashboard) if panel["type"] != "row"]
    assert len({panel["title"] for panel in panels}) == len(panels)
    occupied_cells: set[tuple[int, int]] = set()
    for panel in panels:
        position = panel["gridPos"]
        cells = {(position["x"] + dx, position["y"] + dy) for dx in range(position["w"]) for dy in range(position["h"])}
        assert position["x"] + position["w"] <= 24, panel["title"]
        assert not cells & occupied_cells, panel["title"]
        assert panel.get("options", {}) is not None, panel["title"]
        occupied_cells |= cells
        for target in panel.get("targets", ()):
            uid = target["datasource"]["uid"]
            assert uid.strip("${}") in variables
            assert target["refId"], panel["title"]
            assert len({query["refId"] for query in panel["targets"]}) == len(panel["targets"]), panel["title"]
            used: Sequence[str] = re.findall(r"\$\{?([a-z]\w*)\}?", json.dumps(target))
            assert set(used) <= variables


def test_amounts_are_marked_as_estimates() -> None:
    for name in LIVE:
        for panel in dashboard_metrics.panels(dashboard_metrics.dashboards()[name]):
            if any("$usd" in target.get("expr", "") for target in panel.get("targets", ())):
                assert "estimate" in json.dumps(panel).lower(), panel["title"]
        (variable,) = [
            usd_variable
            for usd_variable in dashboard_metrics.dashboards()[name]["templating"]["list"]
            if usd_variable["name"] == "usd"
        ] or [None]
        assert variable is None or ("estimate" in variable["label"] and variable["query"] == USD)


def test_template_loads_the_rules_of_the_quick_start() -> None:
    resources = yaml.safe_load(dashboard_metrics.RULES_FILE.read_text())["Resources"]
    groups = yaml.safe_load(resources["Rules"]["Properties"]["Data"])["groups"]
    assert groups[0]["name"].startswith("gpucost-gpu-cost-poc")


def test_parts_of_gpus_are_not_counted_as_requested_gpus() -> None:
    panels = json.loads((REPOSITORY / "dashboards/business-unit.json").read_text(encoding="utf-8"))
    queries = re.findall(r'resource=~\\"(.+?)\\"', json.dumps(panels))
    assert queries
    for pattern in queries:
        assert re.fullmatch(pattern, "nvidia_com_gpu")
        assert not [name for name in FRACTION_RESOURCES if re.fullmatch(pattern, name)]
