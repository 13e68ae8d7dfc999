"""The rendered scrape configuration, run by a real Prometheus against exporters that expose everything.

Prometheus in agent mode discovers pods, scrapes, relabels and writes to a second Prometheus that stands for the
workspace. The queries that metering, recommendations and `gpucost doctor` send define which series are needed.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from gpucost.core.hours import floor_day, floor_hour
from gpucost.core.pricing.list_price_table import HOURLY_PRICES
from gpucost.features.recommendations.sources import PrometheusGpuMemory, PrometheusWaitingPods
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost_cli.doctor import examine_cluster
from gpucost_cli.manifests import dashboard_metrics
from gpucost_cli.manifests.parameters import parse_existing_cluster_parameters, parse_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.values import existing_cluster_values, template_values
from gpucost_devstack.fleet import dcgm_exporter, kube_state_metrics, neuron_monitor
from gpucost_devstack.fleet.series import SimulatedSeries
from gpucost_devstack.template import REPOSITORY
from tests.kernel_clock import gpucost, kernel_time
from tests.manifests import articles, prometheus_operator
from tests.manifests.cluster import (
    local_configuration,
    query_instant,
    running_cluster,
    running_prometheus,
    scraped_twice,
    wait_until,
)
from tests.manifests.exposition import Target, answer_first_scrapes, targets
from tests.manifests.rendered import configuration, parameters_text
from tests.prometheus_clients import SentQuery, recording_client
from tests.system import fleet_truth

PRICE = 12
BASE = floor_hour(kernel_time()) - timedelta(hours=3)
"""The articles' hour."""
OTHER_PODS = 200
KIND_LABELS = {"__name__", "resource", "phase", "cluster"}
"""Labels whose matchers select a kind of series. Other labels name single pods, nodes and exporters."""
EXPORTERS = ("kube-state-metrics", "dcgm-exporter", "neuron-monitor", "karpenter")
SCRAPE_METRICS = re.compile(r"up|scrape_.*")
Key = tuple[tuple[str, str], ...]


def document(url: str = "", *, more: str = "") -> str:
    """Return settings of the articles' cluster, in its workspace or in a Prometheus with an address."""
    workspace = "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-articles"
    where = f'{{url: "{url}"}}' if url else f"{{url: {workspace}, auth: sigv4, region: us-east-1}}"
    return (
        f"clusters: [{{name: {articles.NAME}, prometheus: {where}, selector: {{cluster: {articles.NAME}}}}}]\n"
        f"pricing: {{source: constant, gpu_hourly_usd: {PRICE}}}\n{more}"
    )


def parameters_of_articles(*, dashboards: bool) -> str:
    parameters = parameters_text().replace("cluster: gpu-cost-poc", f"cluster: {articles.NAME}")
    parameters = re.sub(r", business_unit: bu-.", "", parameters)
    return parameters.replace("dashboards: true", f"dashboards: {str(dashboards).lower()}")


def render_manifests(*, dashboards: bool) -> Mapping[str, str]:
    parameters = parse_parameters(parameters_of_articles(dashboards=dashboards))
    return dict(render_files(template_values(parse_settings(document()), parameters)))


@dataclass(frozen=True)
class SentQueries:
    """The queries that attribution, recommendations and the doctor send."""

    queries: Sequence[str]
    results: dict[tuple[object, ...], bool] = field(default_factory=dict)

    def selectors(self) -> Iterator[Sequence[tuple[str, str, str]]]:
        """Yield the matchers of every selector (label, operator, value) without those of single pods and nodes.

        A count by name only lists families, so it needs no series. Pods are queried by uid only after they were seen on
        a node.
        """
        for query in self.queries:
            if query.startswith("count by (__name__"):
                continue
            for name, inside in re.findall(r'([A-Za-z_:][\w:]*)?\{((?:[^{}"]|"(?:[^"\\]|\\.)*")*)\}', query):
                matcher_texts = re.findall(r'(\w+)(=~|!=|=)("(?:[^"\\]|\\.)*")', inside)
                matchers = [(label, operator, json.loads(value)) for label, operator, value in matcher_texts]
                matchers += [("__name__", "=", name)] if name else []
                if "uid" in {label for label, _, _ in matchers} and "resource" in {label for label, _, _ in matchers}:
                    yield [*matchers_of_kind(matchers), ("resource", "=", "")]
                    matchers.append(("node", "!=", ""))
                yield [
                    matcher
                    for matcher in matchers
                    if matcher[0] in {"__name__", "resource", "phase", "cluster"} or matcher[1] == "!="
                ]

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether any selector matches a series."""
        kind = (*(labels.get(name, "") for name in sorted(KIND_LABELS)), bool(labels.get("node")))
        if kind not in self.results:
            self.results[kind] = any(
                all(_matches(labels.get(label, ""), operator, value) for label, operator, value in matchers)
                for matchers in self.selectors()
            )
        return self.results[kind]


def matchers_of_kind(matchers: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    return [matcher for matcher in matchers if matcher[0] in KIND_LABELS or matcher[1] == "!="]


def _matches(value: str, operator: str, wanted: str) -> bool:
    match operator:
        case "=":
            return value == wanted
        case "!=":
            return value != wanted
        case _:
            return re.fullmatch(wanted, value) is not None


@dataclass
class ScrapeRun:
    """Exposed and received series of one run of the collector."""

    exposed: Sequence[Target]
    scraped: Sequence[Target]
    receiver: str
    agent: str

    def expected(self, keeps: Callable[[Mapping[str, str]], bool]) -> set[Key]:
        """Return the series that must arrive, with all labels except `instance`."""
        series_keys: set[Key] = set()
        for target in self.exposed:
            node = {} if target.exporter in {"kube-state-metrics", "karpenter"} else {"node": target.node}
            for metric, labels, _ in target.exposed:
                all_labels = {"cluster": articles.NAME, "job": target.exporter, **node, "__name__": metric, **labels}
                if keeps(all_labels):
                    series_keys.add(_key(all_labels))
        return series_keys

    def arrived(self) -> set[Key]:
        """Return the series in the workspace, without `instance`."""
        series = [labels for labels, _ in query_instant(self.receiver, '{__name__!=""}')]
        return {_key(labels) for labels in series if not SCRAPE_METRICS.fullmatch(labels["__name__"])}


def _key(labels: Mapping[str, str]) -> Key:
    return tuple(sorted((name, value) for name, value in labels.items() if value and name != "instance"))


@dataclass(frozen=True)
class RunningServers:
    """All Prometheus servers of this module, started together because each waits five seconds before discovery."""

    history: str
    runs: Mapping[bool, ScrapeRun]
    """By whether the series of dashboards are kept."""
    stack: str
    """The workspace to which kube-prometheus-stack writes."""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningServers]:
    with ExitStack() as stack:
        history, is_done = _scrape_history(stack)
        runs, checks = {}, [is_done]
        for dashboards in (True, False):
            runs[dashboards], check = _scrape_live(stack, dashboards=dashboards)
            checks.append(check)
        workspace, check = _scrape_with_kube_prometheus_stack(stack)
        checks.append(check)
        for check in checks:
            wait_until(check, "all targets to be scraped")
        yield RunningServers(history, runs, workspace)


def _scrape_history(stack: ExitStack) -> tuple[str, Callable[[], object]]:
    """Start a Prometheus that scrapes the articles' hours with the rendered configuration and original timestamps."""
    scenario = articles.scenario()
    by_instance: dict[tuple[str, str], list[SimulatedSeries]] = {}
    for exporter, series in (
        ("kube-state-metrics", kube_state_metrics.series(scenario)),
        ("dcgm-exporter", dcgm_exporter.series(scenario)),
        ("neuron-monitor", neuron_monitor.series(scenario)),
    ):
        for single_series in series:
            if single_series.metric != "up":
                by_instance.setdefault((exporter, single_series.labels["instance"]), []).append(single_series)
    answers = [
        (exporter, instance.rpartition(":")[0], answer_first_scrapes(instance_series, BASE))
        for (exporter, instance), instance_series in by_instance.items()
    ]
    block = configuration(render_manifests(dashboards=False), "collection/prometheus-agent.yaml")
    changed = local_configuration(block, stack.enter_context(running_cluster(answers)), seconds=2)
    _add_operator_labels(changed)
    changed["storage"] = {"tsdb": {"out_of_order_time_window": "12h"}}
    url = stack.enter_context(running_prometheus(changed))
    return url, lambda: query_instant(url, scraped_twice(len(answers)))


def _add_operator_labels(configuration: Any) -> None:
    """Add target labels as the Prometheus operator does; labels of series must take precedence over them."""
    (job,) = (
        scrape_config
        for scrape_config in configuration["scrape_configs"]
        if scrape_config["job_name"] == "kube-state-metrics"
    )
    for label in ("namespace", "pod"):
        source = "__meta_kubernetes_namespace" if label == "namespace" else "__meta_kubernetes_pod_name"
        job["relabel_configs"].append({"source_labels": [source], "target_label": label})


@pytest.fixture(scope="module")
def sent(history: str) -> SentQueries:
    """All queries of a metered hour, of a day's recommendations and of the doctor.

    The query about nodes without labels is left out: the rendered collectors keep the labels.
    """
    queries: list[SentQuery] = []
    client = recording_client(queries)
    settings = parse_settings(document(history))
    metrics_reader(settings.clusters[0], settings, make_client=client).observe([BASE])
    PrometheusGpuMemory(settings.clusters[0], client=client).peaks(floor_day(BASE))
    PrometheusWaitingPods(settings.clusters[0], client=client).waits(floor_day(BASE))
    examine_cluster(settings.clusters[0], settings, kernel_time(), client=client)
    return SentQueries(sorted({form["query"] for _, form in queries if '"gpu-memory"' not in form["query"]}))


def _scrape_live(stack: ExitStack, *, dashboards: bool) -> tuple[ScrapeRun, Callable[[], object]]:
    """Start the live cluster and the agent, which scrapes it every other second and writes to the workspace."""
    exposed = targets(articles.scenario(), 30, pods_without_gpus=OTHER_PODS)
    scraped = [target for target in exposed if dashboards or target.exporter != "karpenter"]
    block = configuration(render_manifests(dashboards=dashboards), "collection/prometheus-agent.yaml")
    receiver = stack.enter_context(running_prometheus({"global": {}}, "--web.enable-remote-write-receiver"))
    answers = [(target.exporter, target.node, _answer_always(target.text().encode())) for target in exposed]
    discovery = stack.enter_context(running_cluster(answers))
    agent = stack.enter_context(
        running_prometheus(local_configuration(block, discovery, seconds=2, receiver=receiver), agent=True)
    )
    enough = f"count(sum_over_time(up[1m]) >= 2) == {len(scraped)}"
    return ScrapeRun(exposed, scraped, receiver, agent), lambda: query_instant(receiver, enough)


def _scrape_with_kube_prometheus_stack(stack: ExitStack) -> tuple[str, Callable[[], object]]:
    """Start the live cluster, and a Prometheus that the Prometheus operator configures from the rendered values."""
    parameters = parse_existing_cluster_parameters(parameters_of_articles(dashboards=True))
    target = "kube-prometheus-stack"
    files = dict(render_files(existing_cluster_values(parse_settings(document()), parameters, target), target=target))
    values = yaml.safe_load(files["helm/kube-prometheus-stack.yaml"])
    exposed = targets(articles.scenario(), 30, pods_without_gpus=OTHER_PODS)
    receiver = stack.enter_context(running_prometheus({"global": {}}, "--web.enable-remote-write-receiver"))
    answers = [(target.exporter, target.node, _answer_always(target.text().encode())) for target in exposed]
    discovery = stack.enter_context(running_cluster(answers))
    stack.enter_context(running_prometheus(prometheus_operator.configuration(values, discovery, receiver, seconds=2)))
    enough = f"count(sum_over_time(up[1m]) >= 2) == {len(exposed)}"
    return receiver, lambda: query_instant(receiver, enough)


@pytest.fixture(scope="module")
def history(running: RunningServers) -> str:
    return running.history


@pytest.fixture(params=[True, False], ids=["dashboards", "metering only"])
def run(request: pytest.FixtureRequest, running: RunningServers) -> ScrapeRun:
    return running.runs[request.param]


def _answer_always(content: bytes) -> Callable[[str], bytes]:
    return lambda _: content


@cache
def dashboard_metric_names() -> frozenset[str]:
    """Return the exporters' metrics that dashboards and alerting rules query."""
    return frozenset(name for name in dashboard_metrics.queried_metrics() if not name.startswith("kube_"))


def test_only_pods_of_exporters_are_scraped(run: ScrapeRun) -> None:
    active = requests.get(f"{run.agent}/api/v1/targets", params={"state": "active"}, timeout=10).json()
    jobs = [target["labels"]["job"] for target in active["data"]["activeTargets"]]
    assert sorted(jobs) == sorted(target.exporter for target in run.scraped)
    assert {target["health"] for target in active["data"]["activeTargets"]} == {"up"}


def test_exactly_the_queried_series_arrive(run: ScrapeRun, sent: SentQueries) -> None:
    """Every label is compared: honored labels belong to the workload, and each series has the cluster's name."""
    with_dashboards = len(run.scraped) == len(run.exposed)

    def keeps(labels: Mapping[str, str]) -> bool:
        if sent.selects(labels):
            return True
        is_shown = labels["__name__"] in dashboard_metric_names()
        is_quota = labels["__name__"] == "kube_resourcequota" and "nvidia" in labels["resource"]
        return with_dashboards and (is_shown or is_quota)

    expected, arrived = run.expected(keeps), run.arrived()
    assert len(expected) > 500
    assert sorted(arrived - expected)[:5] == []
    assert sorted(expected - arrived)[:5] == []
    everything = {_key(labels) for labels, _ in query_instant(run.receiver, '{__name__!="",cluster="articles"}')}
    assert len(everything) == len(query_instant(run.receiver, '{__name__!=""}')), (
        "up and all other series have the cluster's label"
    )


def test_kube_prometheus_stack_writes_the_same_series(running: RunningServers) -> None:
    """Its operator adds labels; those of the series themselves take precedence, as in the other collectors."""
    of_prometheus = {"prometheus": prometheus_operator.PROMETHEUS, "__replica__": prometheus_operator.REPLICA}
    of_the_pod = {
        "namespace": "kube-system",
        "pod": "kube-state-metrics-0",
        "container": "main",
        "endpoint": "http",
        "service": "kube-prometheus-stack-kube-state-metrics",
    }
    expected = set()
    for key in running.runs[True].arrived():
        labels = dict(key)
        added = of_the_pod if labels["job"] == "kube-state-metrics" else {}
        expected.add(_key({**of_prometheus, **added, **labels}))
    series = [labels for labels, _ in query_instant(running.stack, '{__name__!=""}')]
    arrived = {_key(labels) for labels in series if labels["__name__"] != "up"}
    assert sorted(arrived - expected)[:5] == []
    assert sorted(expected - arrived)[:5] == []
    settings = parse_settings(document(running.stack))
    report = examine_cluster(settings.clusters[0], settings, kernel_time())
    assert report.possible
    assert [(check.name, check.finding, check.change) for check in report.checks if check.change] == []


def test_labels_of_workloads_are_kept(run: ScrapeRun) -> None:
    (device,) = [
        labels
        for labels, _ in query_instant(
            run.receiver, 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod="distributed-training-0",gpu="3"}'
        )
    ]
    assert (device["namespace"], device["node"], device["cluster"]) == ("ml-training", "training-1", "articles")
    requests_of = [labels for labels, _ in query_instant(run.receiver, "kube_pod_container_resource_requests")]
    assert {labels["namespace"] for labels in requests_of} >= {"bu-a", "bu-b", "bu-c", "ml-serving"}
    assert not query_instant(run.receiver, '{exported_pod!=""} or {exported_namespace!=""} or {exported_node!=""}')


def test_labels_of_series_take_precedence_over_target_labels(history: str) -> None:
    """Target labels for namespace and pod, as the Prometheus operator adds them, do not replace those of series."""
    assert query_instant(history, 'count_over_time(up{namespace="kube-system"}[1m])')
    assert not query_instant(
        history, 'count_over_time({exported_namespace!=""}[12h]) or count_over_time({exported_pod!=""}[12h])'
    )
    assert query_instant(history, 'count_over_time(kube_pod_container_resource_requests{namespace="bu-a"}[12h])')


def test_doctor_reports_no_change(run: ScrapeRun) -> None:
    settings = parse_settings(document(run.receiver))
    report = examine_cluster(settings.clusters[0], settings, kernel_time())
    assert report.possible
    assert [(check.name, check.finding, check.change) for check in report.checks if check.change] == []
    assert {row.source for row in report.utilization} == {"pod", "shared"}


def test_documented_saving_is_measured(run: ScrapeRun) -> None:
    """Prometheus' counts of each scrape agree with the table of docs/how-to/existing-cluster.md."""

    def per_scrape(metric: str) -> dict[str, int]:
        return {labels["job"]: int(value) for labels, value in query_instant(run.receiver, f"sum by (job) ({metric})")}

    scraped, kept = per_scrape("scrape_samples_scraped"), per_scrape("scrape_samples_post_metric_relabeling")
    text = (
        (REPOSITORY / "docs/how-to/existing-cluster.md")
        .read_text()
        .partition("## Which series are kept")[2]
        .partition("\n## ")[0]
    )
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    documented = {row[0]: [int(cell.replace(",", "")) for cell in row[1:]] for row in rows if row[0] in EXPORTERS}
    column_index = 1 if len(run.scraped) == len(run.exposed) else 2
    assert {job: documented[job][0] for job in scraped} == scraped
    assert {job: documented[job][column_index] for job in documented} == dict.fromkeys(documented, 0) | kept
    scraped_total, kept_total = (sum(row[column] for row in documented.values()) for column in (0, column_index))
    assert f"{100 * kept_total / scraped_total:.1f}%" in text
    a_month = 60 * 24 * 30
    assert f"{scraped_total * a_month / 1e6:.0f} million" in text
    assert f"{kept_total * a_month / 1e6:.0f} million" in text


def attribute_hour(url: str, folder: Path, more: str) -> Any:
    path = folder / "settings.yaml"
    path.write_text(document(url, more=more))
    (hour,) = fleet_truth.attribute(path, BASE, 1, gpucost)
    return hour


@pytest.fixture(scope="module")
def hour(history: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The articles' hour, attributed from the series that the rendered configuration kept."""
    return attribute_hour(history, tmp_path_factory.mktemp("hour"), "")


def test_hour_of_the_four_articles_is_attributed_exactly(hour: Any) -> None:
    """Every line and the sum of the fleet agree with the simulated fleet."""
    scenario = articles.scenario()
    fleet_truth.assert_lines(scenario, 0, hour)
    fleet_truth.assert_identity(scenario, 0, hour)
    namespaces = {line["namespace"] for line in hour["lines"]}
    assert namespaces == {
        namespace for article_namespaces in articles.ARTICLES.values() for namespace in article_namespaces
    }
    assert {line["utilization_source"] for line in hour["lines"]} == {"pod", "shared"}


def test_costs_of_the_proof_of_concept_are_the_published_ones(hour: Any, history: str, tmp_path: Path) -> None:
    """Allocated cost is $5.142857 and twice $3.428571; effective cost is as published at scale 100."""

    def costs(of: Any, part: str) -> dict[str, float]:
        return {
            unit["business_unit"]: float(unit[part])
            for unit in of["business_units"]
            if unit["business_unit"][:3] == "bu-"
        }

    assert costs(hour, "allocated_usd") == pytest.approx({"bu-a": 36 / 7, "bu-b": 24 / 7, "bu-c": 24 / 7}, rel=1e-9)
    right = {"bu-a": 0.2325599081632653, "bu-b": 0.1550399387755102, "bu-c": 0.1550399387755102}
    assert costs(hour, "effective_usd") == pytest.approx(right, rel=1e-9)
    text = (REPOSITORY / "docs/tutorials/quickstart-eks.md").read_text()
    price = float(HOURLY_PRICES["us-east-1"]["g4dn.xlarge"])
    for name, gpu_hours in costs(hour, "allocated_gpu_hours").items():
        assert f"| {name} | {gpu_hours:.6f} | ${gpu_hours * price:.6f} |" in text
    published = {"bu-a": 0.002325599081632653, "bu-b": 0.0015503993877551022, "bu-c": 0.0015503993877551022}
    more = "utilization: {signal: DCGM_FI_PROF_GR_ENGINE_ACTIVE, scale: 100}\n"
    assert costs(attribute_hour(history, tmp_path, more), "effective_usd") == pytest.approx(published, rel=1e-9)


def test_spot_pods_cost_only_while_their_nodes_exist(hour: Any) -> None:
    """The three nodes exist for 53 + 33 + 50 minutes of the hour."""
    spot = [line for line in hour["lines"] if line["namespace"] == "vector"]
    assert {line["capacity_type"] for line in spot} == {"spot"}
    minutes = sum(line["allocated_gpu_hours"] for line in spot) * 60
    assert abs(minutes - Decimal(60 - 7 + 40 - 9 + 60 - 12)) < 4
