"""The kit's scrape configuration, run by a real Prometheus against exporters that expose everything they have.

Prometheus in agent mode finds pods among others, scrapes, relabels and writes to a second Prometheus that
stands for the workspace. What is needed is told by the queries that metering, advice and `gpucost doctor` really send.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import requests

from devstack.fleet import dcgm_exporter, kube_state_metrics, neuron_monitor
from devstack.fleet.series import Series
from devstack.template import REPOSITORY
from gpucost.core.hours import floor_day, floor_hour
from gpucost.features.recommendations.sources.gpu_memory import PrometheusGpuMemory
from gpucost.features.recommendations.sources.waiting_pods import PrometheusWaitingPods
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost_cli.doctor import examine
from gpucost_cli.manifests import dashboard_metrics
from gpucost_cli.manifests.parameters import parse_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.values import template_values
from tests.manifests import articles
from tests.manifests.cluster import ask, cluster, here, prometheus, until
from tests.manifests.exposition import Target, own, targets
from tests.manifests.rendered import configuration, parameters_text
from tests.system import fleet_truth

PRICE = 12
BASE = floor_hour(datetime.now(UTC)) - timedelta(hours=3)
"""The articles' hour."""
OTHER_PODS = 200
GENERAL = {"__name__", "resource", "phase", "cluster"}
"""Labels whose matchers say what kind of series is asked for; others name single pods, nodes and exporters."""
EXPORTERS = ("kube-state-metrics", "dcgm-exporter", "neuron-monitor", "karpenter")
SCRAPERS_OWN = re.compile(r"up|scrape_.*")
Key = tuple[tuple[str, str], ...]


def document(url: str = "", *, more: str = "") -> str:
    """Settings of the articles' cluster, in its workspace or, given an address, in a Prometheus here."""
    workspace = "https://aps-workspaces.us-west-2.amazonaws.com/workspaces/ws-articles"
    where = f'{{url: "{url}"}}' if url else f"{{url: {workspace}, auth: sigv4, region: us-west-2}}"
    return (
        f"clusters: [{{name: {articles.NAME}, prometheus: {where}, selector: {{cluster: {articles.NAME}}}}}]\n"
        f"pricing: {{source: constant, gpu_hourly_usd: {PRICE}}}\n{more}"
    )


def kit(*, dashboards: bool) -> Mapping[str, str]:
    parameters = parameters_text().replace("cluster: gpu-cost-poc", f"cluster: {articles.NAME}")
    parameters = re.sub(r", business_unit: bu-.", "", parameters)
    parameters = parameters.replace("dashboards: true", f"dashboards: {str(dashboards).lower()}")
    return dict(render_files(template_values(parse_settings(document()), parse_parameters(parameters))))


@dataclass(frozen=True)
class Sent:
    """The queries that attribution, advice and the doctor send."""

    queries: Sequence[str]
    known: dict[tuple[object, ...], bool] = field(default_factory=dict)

    def selectors(self) -> Iterator[Sequence[tuple[str, str, str]]]:
        """Matchers of every selector: label, operator, value. Those that name single things are left out.

        A count by name asks which families there are, and not for all of them. Pods are looked up by uid only after
        they were seen on a node.
        """
        for query in self.queries:
            if query.startswith("count by (__name__"):
                continue
            for name, inside in re.findall(r'([A-Za-z_:][\w:]*)?\{((?:[^{}"]|"(?:[^"\\]|\\.)*")*)\}', query):
                found = re.findall(r'(\w+)(=~|!=|=)("(?:[^"\\]|\\.)*")', inside)
                matchers = [(label, operator, json.loads(value)) for label, operator, value in found]
                matchers += [("__name__", "=", name)] if name else []
                if "uid" in {label for label, _, _ in matchers} and "resource" in {label for label, _, _ in matchers}:
                    yield [*matchers_of_kind(matchers), ("resource", "=", "")]
                    matchers.append(("node", "!=", ""))
                yield [
                    one for one in matchers if one[0] in {"__name__", "resource", "phase", "cluster"} or one[1] == "!="
                ]

    def asks_for(self, labels: Mapping[str, str]) -> bool:
        """Whether any selector takes a series."""
        kind = (*(labels.get(name, "") for name in sorted(GENERAL)), bool(labels.get("node")))
        if kind not in self.known:
            self.known[kind] = any(
                all(_fits(labels.get(label, ""), operator, value) for label, operator, value in matchers)
                for matchers in self.selectors()
            )
        return self.known[kind]


def matchers_of_kind(matchers: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    return [one for one in matchers if one[0] in GENERAL or one[1] == "!="]


def _fits(value: str, operator: str, wanted: str) -> bool:
    match operator:
        case "=":
            return value == wanted
        case "!=":
            return value != wanted
        case _:
            return re.fullmatch(wanted, value) is not None


@dataclass
class Run:
    """What was exposed, and what arrived."""

    exposed: Sequence[Target]
    scraped: Sequence[Target]
    receiver: str
    agent: str

    def expected(self, keeps: Callable[[Mapping[str, str]], bool]) -> set[Key]:
        """Series that ought to arrive, with all their labels but the scrape's own."""
        found: set[Key] = set()
        for target in self.exposed:
            node = {} if target.exporter in {"kube-state-metrics", "karpenter"} else {"node": target.node}
            for metric, labels, _ in target.exposed:
                all_labels = {"cluster": articles.NAME, "job": target.exporter, **node, "__name__": metric, **labels}
                if keeps(all_labels):
                    found.add(_key(all_labels))
        return found

    def arrived(self) -> set[Key]:
        """Series in the workspace, without their instance."""
        series = [labels for labels, _ in ask(self.receiver, '{__name__!=""}')]
        return {_key(labels) for labels in series if not SCRAPERS_OWN.fullmatch(labels["__name__"])}


def _key(labels: Mapping[str, str]) -> Key:
    return tuple(sorted((name, value) for name, value in labels.items() if value and name != "instance"))


@dataclass(frozen=True)
class Running:
    """Every Prometheus of this module: started together, since each waits five seconds before it first discovers."""

    history: str
    runs: Mapping[bool, Run]
    """With and without what dashboards show."""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with ExitStack() as stack:
        history, is_done = _scrape_history(stack)
        runs, checks = {}, [is_done]
        for dashboards in (True, False):
            runs[dashboards], check = _scrape_live(stack, dashboards=dashboards)
            checks.append(check)
        for check in checks:
            until(check, "all targets to be scraped")
        yield Running(history, runs)


def _scrape_history(stack: ExitStack) -> tuple[str, Callable[[], object]]:
    """A Prometheus that scrapes the articles' hours by the kit's configuration, each sample with its own time."""
    scenario = articles.scenario()
    by_instance: dict[tuple[str, str], list[Series]] = {}
    for exporter, series in (
        ("kube-state-metrics", kube_state_metrics.series(scenario)),
        ("dcgm-exporter", dcgm_exporter.series(scenario)),
        ("neuron-monitor", neuron_monitor.series(scenario)),
    ):
        for one in series:
            if one.metric != "up":
                by_instance.setdefault((exporter, one.labels["instance"]), []).append(one)
    answers = [(exporter, place.rpartition(":")[0], _once(some)) for (exporter, place), some in by_instance.items()]
    block = configuration(kit(dashboards=False), "collection/prometheus-agent.yaml")
    changed = here(block, stack.enter_context(cluster(answers)), seconds=2)
    _add_own_labels(changed)
    changed["storage"] = {"tsdb": {"out_of_order_time_window": "12h"}}
    url = stack.enter_context(prometheus(changed))
    return url, lambda: ask(url, f"count(max_over_time(scrape_samples_scraped[1m]) > 0) == {len(answers)}")


def _add_own_labels(configuration: Any) -> None:
    """What a Prometheus operator adds to every target, and what series' own labels must win over."""
    (job,) = (one for one in configuration["scrape_configs"] if one["job_name"] == "kube-state-metrics")
    for label in ("namespace", "pod"):
        source = "__meta_kubernetes_namespace" if label == "namespace" else "__meta_kubernetes_pod_name"
        job["relabel_configs"].append({"source_labels": [source], "target_label": label})


def _once(series: Sequence[Series]) -> Callable[[str], bytes]:
    """All samples of some series at the first scrape, nothing from then on."""
    zero = int(BASE.timestamp() * 1000)
    lines = []
    for one in series:
        labels = ",".join(f'{name}="{value}"' for name, value in own(one).items())
        for at, value in one.samples:
            told = zero // 1000 + int(value[1:]) if value.startswith("@") else value
            lines.append(f"{one.metric}{{{labels}}} {told} {zero + at}\n")
    left = ["".join(lines).encode()]
    return lambda _: left.pop() if left else b""


@pytest.fixture(scope="module")
def sent(history: str) -> Sent:
    """Every query of a metered hour, of what advice asks of a day, and of a doctor's visit."""
    found: list[str] = []
    ask_as_ever = PrometheusClient._send_query

    def record(self: PrometheusClient, path: str, form: Mapping[str, str]) -> Any:
        found.append(form["query"])
        return ask_as_ever(self, path, form)

    settings = parse_settings(document(history))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrometheusClient, "_ask", record)
        metrics_reader(settings.clusters[0], settings).observe([BASE])
        PrometheusGpuMemory(settings.clusters[0]).peaks(floor_day(BASE))
        PrometheusWaitingPods(settings.clusters[0]).waits(floor_day(BASE))
        examine(settings.clusters[0], settings, datetime.now(UTC))
    return Sent(sorted(set(found)))


def _scrape_live(stack: ExitStack, *, dashboards: bool) -> tuple[Run, Callable[[], object]]:
    """The live cluster, scraped every other second by the kit's agent, which writes to the workspace."""
    exposed = targets(articles.scenario(), 30, others=OTHER_PODS)
    scraped = [one for one in exposed if dashboards or one.exporter != "karpenter"]
    block = configuration(kit(dashboards=dashboards), "collection/prometheus-agent.yaml")
    receiver = stack.enter_context(prometheus({"global": {}}, "--web.enable-remote-write-receiver"))
    answers = [(one.exporter, one.node, _always(one.text().encode())) for one in exposed]
    discovery = stack.enter_context(cluster(answers))
    agent = stack.enter_context(prometheus(here(block, discovery, seconds=2, receiver=receiver), agent=True))
    enough = f"count(sum_over_time(up[1m]) >= 2) == {len(scraped)}"
    return Run(exposed, scraped, receiver, agent), lambda: ask(receiver, enough)


@pytest.fixture(scope="module")
def history(running: Running) -> str:
    return running.history


@pytest.fixture(params=[True, False], ids=["dashboards", "metering only"])
def run(request: pytest.FixtureRequest, running: Running) -> Run:
    return running.runs[request.param]


def _always(content: bytes) -> Callable[[str], bytes]:
    return lambda _: content


@cache
def shown() -> frozenset[str]:
    """What dashboards and alerting rules read beside; their own queries tell, and tests/dashboards runs them."""
    return frozenset(name for name in dashboard_metrics.queried_metrics() if not name.startswith("kube_"))


def test_the_exporters_pods_are_scraped_and_no_others(run: Run) -> None:
    active = requests.get(f"{run.agent}/api/v1/targets", params={"state": "active"}, timeout=10).json()
    found = [one["labels"]["job"] for one in active["data"]["activeTargets"]]
    assert sorted(found) == sorted(one.exporter for one in run.scraped)
    assert {one["health"] for one in active["data"]["activeTargets"]} == {"up"}


def test_what_arrives_is_exactly_what_is_asked_for(run: Run, sent: Sent) -> None:
    """Series by series, with all labels: honoured ones are the workload's, and the cluster's name is on each."""
    with_dashboards = len(run.scraped) == len(run.exposed)

    def keeps(labels: Mapping[str, str]) -> bool:
        if sent.asks_for(labels):
            return True
        is_shown = labels["__name__"] in shown()
        is_quota = labels["__name__"] == "kube_resourcequota" and "nvidia" in labels["resource"]
        return with_dashboards and (is_shown or is_quota)

    expected, arrived = run.expected(keeps), run.arrived()
    assert len(expected) > 500
    assert sorted(arrived - expected)[:5] == []
    assert sorted(expected - arrived)[:5] == []
    everything = {_key(labels) for labels, _ in ask(run.receiver, '{__name__!="",cluster="articles"}')}
    assert len(everything) == len(ask(run.receiver, '{__name__!=""}')), "up and all others carry the cluster's label"


def test_workloads_keep_their_own_labels(run: Run) -> None:
    (device,) = [
        labels for labels, _ in ask(run.receiver, 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod="distributed-training-0",gpu="3"}')
    ]
    assert (device["namespace"], device["node"], device["cluster"]) == ("ml-training", "training-1", "articles")
    requests_of = [labels for labels, _ in ask(run.receiver, "kube_pod_container_resource_requests")]
    assert {labels["namespace"] for labels in requests_of} >= {"bu-a", "bu-b", "bu-c", "ml-serving"}
    assert not ask(run.receiver, '{exported_pod!=""} or {exported_namespace!=""} or {exported_node!=""}')


def test_labels_are_honoured(history: str) -> None:
    """Where the collector adds a namespace and a pod of its own, as an operator's does, a series' own stay its own."""
    assert ask(history, 'count_over_time(up{namespace="kube-system"}[1m])')
    assert not ask(
        history, 'count_over_time({exported_namespace!=""}[12h]) or count_over_time({exported_pod!=""}[12h])'
    )
    assert ask(history, 'count_over_time(kube_pod_container_resource_requests{namespace="bu-a"}[12h])')


def test_the_doctor_finds_nothing_to_change(run: Run) -> None:
    settings = parse_settings(document(run.receiver))
    report = examine(settings.clusters[0], settings, datetime.now(UTC))
    assert report.possible
    assert [(check.name, check.finding, check.change) for check in report.checks if check.change] == []
    assert {one.source for one in report.utilization} == {"pod", "shared"}


def test_the_saving_is_as_documented(run: Run) -> None:
    """docs/existing-cluster.md's table, by what Prometheus itself counts of each scrape."""

    def per_scrape(metric: str) -> dict[str, int]:
        return {labels["job"]: int(value) for labels, value in ask(run.receiver, f"sum by (job) ({metric})")}

    scraped, kept = per_scrape("scrape_samples_scraped"), per_scrape("scrape_samples_post_metric_relabeling")
    text = (REPOSITORY / "docs/existing-cluster.md").read_text().partition("## What is kept")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    said = {row[0]: [int(cell.replace(",", "")) for cell in row[1:]] for row in rows if row[0] in EXPORTERS}
    place = 1 if len(run.scraped) == len(run.exposed) else 2
    assert {job: said[job][0] for job in scraped} == scraped
    assert {job: said[job][place] for job in said} == dict.fromkeys(said, 0) | kept
    all_of_it, left = (sum(row[column] for row in said.values()) for column in (0, place))
    assert f"{100 * left / all_of_it:.1f}%" in text
    a_month = 60 * 24 * 30
    assert f"{all_of_it * a_month / 1e6:.0f} million" in text
    assert f"{left * a_month / 1e6:.0f} million" in text


def attributed(url: str, folder: Path, more: str) -> Any:
    path = folder / "settings.yaml"
    path.write_text(document(url, more=more))
    (hour,) = fleet_truth.attribute(path, BASE, 1)
    return hour


@pytest.fixture(scope="module")
def hour(history: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The articles' hour, attributed from what the kit's configuration kept."""
    return attributed(history, tmp_path_factory.mktemp("hour"), "")


def test_the_four_articles_attribute_end_to_end(hour: Any) -> None:
    """Every line, and the whole fleet's sum, against the simulated fleet's own truth."""
    scenario = articles.scenario()
    fleet_truth.assert_lines(scenario, 0, hour)
    fleet_truth.assert_identity(scenario, 0, hour)
    told = {line["namespace"] for line in hour["lines"]}
    assert told == {namespace for some in articles.ARTICLES.values() for namespace in some}
    assert {line["utilization_source"] for line in hour["lines"]} == {"pod", "shared"}


def test_the_proof_of_concepts_table(hour: Any, history: str, tmp_path: Path) -> None:
    """$5.142857 and twice $3.428571, as published; the published effective cost with its hundredth, and without."""

    def costs(of: Any, part: str) -> dict[str, float]:
        return {
            unit["business_unit"]: float(unit[part])
            for unit in of["business_units"]
            if unit["business_unit"][:3] == "bu-"
        }

    assert costs(hour, "allocated_usd") == pytest.approx({"bu-a": 36 / 7, "bu-b": 24 / 7, "bu-c": 24 / 7}, rel=1e-9)
    right = {"bu-a": 0.2325599081632653, "bu-b": 0.1550399387755102, "bu-c": 0.1550399387755102}
    assert costs(hour, "effective_usd") == pytest.approx(right, rel=1e-9)
    text = (REPOSITORY / "docs/quickstart-eks.md").read_text()
    hours = costs(hour, "allocated_gpu_hours")
    for name, usd in costs(hour, "allocated_usd").items():
        assert f"| {name} | {hours[name]:.6f} | ${usd:.6f} |" in text
    published = {"bu-a": 0.002325599081632653, "bu-b": 0.0015503993877551022, "bu-c": 0.0015503993877551022}
    more = "utilization: {signal: DCGM_FI_PROF_GR_ENGINE_ACTIVE, scale: 100}\n"
    assert costs(attributed(history, tmp_path, more), "effective_usd") == pytest.approx(published, rel=1e-9)


def test_no_money_is_lost_between_the_pools(hour: Any) -> None:
    """Spot nodes cost only for as long as they were there: 53 + 33 + 50 minutes of one GPU within the hour."""
    spot = [line for line in hour["lines"] if line["namespace"] == "vector"]
    assert {line["capacity_type"] for line in spot} == {"spot"}
    minutes = sum(line["allocated_gpu_hours"] for line in spot) * 60
    assert abs(minutes - Decimal(60 - 7 + 40 - 9 + 60 - 12)) < 4
