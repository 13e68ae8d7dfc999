"""`gpucost doctor` names the collector and the server that it sees, and never guesses."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from gpucost.settings import PrometheusSettings
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost_cli.doctor import ClusterReport, examine_cluster
from gpucost_cli.doctor.findings import group_by_cause
from gpucost_cli.doctor.setup import CollectionSetup, examine_setup
from gpucost_devstack.prometheus import VICTORIA_METRICS_VARIABLE
from gpucost_devstack.template import REPOSITORY
from tests.gpucost_command import gpucost
from tests.system.doctor_cluster import Recent, healthy
from tests.system.doctor_findings import document

BUILD = {"revision": "abc", "branch": "HEAD", "buildUser": "ci", "buildDate": "20260101", "goVersion": "go1.25.0"}


def with_labels(labels: str, metrics: str = "kube_|DCGM_") -> Recent:
    """The healthy cluster, with labels on the series of the exporters."""
    cluster = healthy()
    for metric, lines in cluster.families.items():
        if re.match(metrics, metric):
            cluster.families[metric] = [line.replace("{", "{" + labels + ",", 1) for line in lines]
    return cluster


def examined(prometheus: Callable[[str], str], cluster: Recent) -> ClusterReport:
    settings = parse_settings(document(prometheus(cluster.text())))
    return examine_cluster(settings.clusters[0], settings, cluster.now)


@pytest.mark.parametrize(
    ("labels", "collectors", "page"),
    [
        ('gpucost_collector="amp-scraper"', ["amp-scraper"], "clusters/amp-scraper.md"),
        ('gpucost_collector="otel-collector"', ["otel-collector"], "clusters/opentelemetry.md"),
        ('gpucost_collector="prometheus-agent"', ["prometheus-agent"], "existing-cluster.md"),
        ('otel_scope_name="prometheusreceiver"', ["otel-collector"], "clusters/opentelemetry.md"),
        (
            'prometheus="monitoring/kube-prometheus-stack-prometheus"',
            ["kube-prometheus-stack"],
            "clusters/kube-prometheus-stack.md",
        ),
        (
            'endpoint="http",service="prom-kube-prometheus-kube-state-metrics"',
            ["kube-prometheus-stack"],
            "clusters/kube-prometheus-stack.md",
        ),
        ('prometheus="monitoring/k8s"', ["Prometheus operator"], "clusters/kube-prometheus-stack.md"),
        ('gpucost_collector="another"', [], None),
        ('prometheus="eu"', [], None),
        ('endpoint="http"', [], None),
    ],
)
def test_collector_is_recognized_by_labels(
    prometheus: Callable[[str], str], labels: str, collectors: list[str], page: str | None
) -> None:
    report = examined(prometheus, with_labels(labels))
    assert report.possible
    assert [check.finding for check in report.checks if check.change] == []
    assert report.setup is not None
    assert report.setup.collectors == collectors
    assert (f"docs/how-to/{page}" in report.setup.pages) == (page is not None)


def test_labels_of_kube_prometheus_stack_are_values_of_its_chart(prometheus: Callable[[str], str]) -> None:
    cluster = with_labels('prometheus="monitoring/kube-prometheus-stack-prometheus"').without("kube_node_labels")
    (finding,) = [finding for finding in group_by_cause(examined(prometheus, cluster).checks) if finding.cause.change]
    assert finding.cause.name == "kube_node_labels"
    of_chart, _, values = (finding.cause.change or "").partition(": ")
    assert of_chart == "values of kube-prometheus-stack"
    of_nodes, of_namespaces = yaml.safe_load(values)["kube-state-metrics"]["metricLabelsAllowlist"]
    assert of_nodes.startswith("nodes=[node.kubernetes.io/instance-type,")
    assert of_namespaces == "namespaces=[resource.kubernetes.io/admin-access]"


def test_two_collectors_are_both_named(prometheus: Callable[[str], str]) -> None:
    cluster = with_labels('gpucost_collector="amp-scraper"', "kube_")
    for metric, lines in with_labels('otel_scope_name="x"', "DCGM_").families.items():
        if metric.startswith("DCGM_"):
            cluster.families[metric] = lines
    report = examined(prometheus, cluster)
    assert report.setup is not None
    assert report.setup.collectors == ["amp-scraper", "otel-collector"]


def test_table_and_json_show_collector_server_and_page(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(document(prometheus(healthy().text())))
    is_victoria_metrics = bool(os.environ.get(VICTORIA_METRICS_VARIABLE))
    expected = "VictoriaMetrics" if is_victoria_metrics else r"Prometheus \d+\.\d+\.\d+"
    page = "other-servers" if is_victoria_metrics else "prometheus"
    table = gpucost("doctor", "--settings", str(settings), COLUMNS="140")
    assert re.search(
        rf"^collector: unknown; server: {expected}\S* \(docs/how-to/clusters/{page}\.md\)$", table.stdout, re.M
    )
    done = gpucost("doctor", "--settings", str(settings), "--format", "json")
    (cluster,) = json.loads(done.stdout)["clusters"]
    setup = cluster["setup"]
    assert re.match(expected, setup["server"])
    assert (setup["collectors"], setup["pages"]) == ([], [f"docs/how-to/clusters/{page}.md"])


def test_unreachable_server_has_no_setup(tmp_path: Path, refused_url: str) -> None:
    (tmp_path / "settings.yaml").write_text(document(refused_url))
    done = gpucost("doctor", "--settings", str(tmp_path / "settings.yaml"), "--format", "json")
    (cluster,) = json.loads(done.stdout)["clusters"]
    assert cluster["setup"] is None


@contextmanager
def scripted_server(answers: Mapping[str, Any]) -> Iterator[str]:
    """A server that answers some paths below `/api/v1` with data, and 404 otherwise."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path.removeprefix("/api/v1/")
            body = json.dumps({"status": "success", "data": answers.get(path)}).encode()
            self.send_response(200 if path in answers else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{web.server_port}"
        finally:
            web.shutdown()
            thread.join()


def setup_of(url: str, settings_url: str = "") -> CollectionSetup:
    return examine_setup(PrometheusClient(url, cluster="demo"), PrometheusSettings(url=settings_url or url), [])


@pytest.mark.parametrize(
    ("answers", "server", "page"),
    [
        (
            {"status/buildinfo": {**BUILD, "version": "3.14.0"}, "status/runtimeinfo": {"storageRetention": "15d"}},
            "Prometheus 3.14.0",
            "clusters/prometheus.md",
        ),
        (
            {"status/buildinfo": {**BUILD, "application": "Grafana Mimir", "version": "3.1.1", "features": {}}},
            "Grafana Mimir 3.1.1",
            "clusters/other-servers.md",
        ),
        (
            {
                "status/buildinfo": {**BUILD, "version": "0.40.1"},
                "stores": {"query": []},
                "status/runtimeinfo": {"GOGC": "75"},
            },
            "Thanos 0.40.1",
            "clusters/other-servers.md",
        ),
        (
            {"status/buildinfo": {"version": "2.24.0"}, "status/active_queries": []},
            "VictoriaMetrics",
            "clusters/other-servers.md",
        ),
        ({"status/buildinfo": {"version": "2.24.0"}}, None, "existing-cluster.md"),
        ({"status/buildinfo": {**BUILD, "version": "1.0"}}, None, "existing-cluster.md"),
        ({"status/buildinfo": ["odd"]}, None, "existing-cluster.md"),
        ({}, None, "existing-cluster.md"),
    ],
)
def test_server_is_recognized_by_its_responses(answers: Mapping[str, Any], server: str | None, page: str) -> None:
    """The responses are those of the servers' own sources."""
    with scripted_server(answers) as url:
        setup = setup_of(url)
    assert (setup.server, setup.pages) == (server, [f"docs/how-to/{page}"])


def test_amp_is_recognized_by_its_address_without_a_request(refused_url: str) -> None:
    setup = setup_of(refused_url, "https://aps-workspaces.eu-central-1.amazonaws.com/workspaces/ws-1")
    assert (setup.server, setup.pages) == ("Amazon Managed Service for Prometheus", ["docs/how-to/existing-cluster.md"])
    other = setup_of(refused_url, "https://aps-workspaces.eu-central-1.amazonaws.com.example.org/workspaces/ws-1")
    assert other.server is None


def test_pages_exist() -> None:
    source = (REPOSITORY / "gpucost_cli/doctor/setup.py").read_text()
    pages = set(re.findall(r'"((?:clusters/)?[a-z-]+\.md)"', source))
    assert len(pages) == 6
    assert [page for page in pages if not (REPOSITORY / "docs/how-to" / page).is_file()] == []
