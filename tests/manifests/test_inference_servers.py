"""The rendered scrape of inference servers: which pods, which counters, and whose labels they get."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpucost.core.metering.inference_servers import INFERENCE_SERVERS, load_metrics
from gpucost.settings_document import parse_settings
from gpucost_cli.manifests.parameters import parse_existing_cluster_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.targets import TARGETS
from gpucost_cli.manifests.values import existing_cluster_values
from tests.manifests import prometheus_operator
from tests.manifests.cluster import (
    Pod,
    local_configuration,
    query_instant,
    running_prometheus,
    running_server,
    wait_until,
)
from tests.manifests.rendered import ACCOUNT, COLLECTORS, configuration, settings_text
from tests.manifests.schema_checks import unknown_fields

ADDED_SERVER = (
    "{name: added, prompt_tokens: my_prompt_total, generated_tokens: my_generated_total, queue_time: my_queue_seconds}"
)
INFERENCE = f"inference: {{enabled: true, servers: [{ADDED_SERVER}]}}\n"
STACK = "kube-prometheus-stack"
VLLM = (
    b'vllm:prompt_tokens_total{model_name="chat",namespace="victim",pod="other"} 7\n'
    b'vllm:num_requests_running{model_name="chat"} 1\nvllm:num_requests_waiting{model_name="chat"} 6\n'
    b'kube_node_info{node="n1"} 1\nmy_prompt_total 5\n'
    b'vllm:e2e_request_latency_seconds_bucket{le="1.0"} 2\nvllm:e2e_request_latency_seconds_bucket{le="+Inf"} 3\n'
    b"vllm:e2e_request_latency_seconds_count 3\nvllm:e2e_request_latency_seconds_sum 4\n"
    b'my_queue_seconds_bucket{le="1.0"} 2\nmy_queue_seconds_bucket{le="+Inf"} 3\n'
    b"my_queue_seconds_count 3\nmy_queue_seconds_sum 9\n"
)
QUEUE_BUCKET = "vllm:request_queue_time_seconds_bucket"
"""Of which only +Inf is kept, for the OpenTelemetry collector."""
TGI = (
    b"# TYPE tgi_request_input_length histogram\n"
    b'tgi_request_input_length_bucket{le="1"} 1\ntgi_request_input_length_bucket{le="+Inf"} 2\n'
    b"tgi_request_input_length_sum 30\ntgi_request_input_length_count 2\ntgi_request_success 2\n"
)


def files(target: str, inference: str = INFERENCE, parameters: str = "") -> Mapping[str, str]:
    settings = parse_settings(settings_text() + inference)
    read = parse_existing_cluster_parameters(f'account_id: "{ACCOUNT}"\n{parameters}')
    return dict(render_files(existing_cluster_values(settings, read, target), target=target))


def scrape_configs(target: str, inference: str = INFERENCE) -> list[Any]:
    """The jobs of a collector, wherever its file has them."""
    rendered = files(target, inference)
    (name,) = [name for name in rendered if name.startswith("collection/") and "access" not in name]
    document = configuration(rendered, name) if name in COLLECTORS else yaml.safe_load(rendered[name])
    if target == "otel-collector":
        document = document["receivers"]["prometheus"]["config"]
    jobs: list[Any] = document["scrape_configs"]
    return jobs


@contextmanager
def discovered(vllm: bytes = VLLM) -> Iterator[tuple[str, int]]:
    """The address at which pods are discovered, and the number of those to scrape."""
    with ExitStack() as running:
        paths = {"/metrics": vllm, "/v1/metrics": TGI}
        server = running.enter_context(running_server(lambda path: paths[path]))
        closed = 9
        scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(server)}
        pods = [
            # Ports that are declared need not be those of the metrics.
            Pod("chat-0", "n1", {}, [("http", closed), ("grpc", closed + 1)], namespace="ml", annotations=scraped),
            Pod(
                "tgi-0",
                "n1",
                {},
                [("http", server)],
                namespace="search",
                annotations={**scraped, "prometheus.io/path": "/v1/metrics"},
            ),
            Pod("batch-0", "n1", {}, [("http", server)], "Succeeded", "ml", scraped),
            Pod("web-0", "n1", {}, [("http", server)], namespace="ml"),
            Pod(
                "quiet-0",
                "n1",
                {},
                [("http", server)],
                namespace="ml",
                annotations={**scraped, "prometheus.io/scrape": "false"},
            ),
        ]
        body = json.dumps([target for pod in pods for target in pod.targets()]).encode()
        port = running.enter_context(running_server(lambda _: body, "application/json"))
        yield f"http://127.0.0.1:{port}", 2


@pytest.mark.parametrize("target", ["prometheus", STACK])
def test_counters_have_the_namespace_and_pod_of_the_scraped_server(target: str) -> None:
    with discovered() as (discovery, servers):
        if target == STACK:
            values = yaml.safe_load(files(STACK)["helm/kube-prometheus-stack.yaml"])
            assert unknown_fields(values) == []
            changed = prometheus_operator.configuration(values, discovery, "http://127.0.0.1:9", seconds=1)
            (rule,) = changed.pop("remote_write")[0]["write_relabel_configs"]
        else:
            changed = local_configuration({"scrape_configs": scrape_configs(target)}, discovery, seconds=1)
        with running_prometheus(changed) as url:
            job = '{job="inference-servers"}'
            wait_until(lambda: query_instant(url, f"count(up{job} == 1) == {servers}"), "the servers to be scraped")
            kept = {
                (labels["namespace"], labels["pod"], labels["__name__"], labels.get("le", ""), sample)
                for labels, sample in query_instant(url, '{job="inference-servers",__name__=~"(vllm|tgi|my|kube).*"}')
            }
            assert len(query_instant(url, f"up{job}")) == servers
    assert kept == {
        ("ml", "chat-0", "vllm:prompt_tokens_total", "", 7),
        ("ml", "chat-0", "vllm:num_requests_running", "", 1),
        ("ml", "chat-0", "my_prompt_total", "", 5),
        ("ml", "chat-0", "my_queue_seconds_bucket", "+Inf", 3),
        ("ml", "chat-0", "my_queue_seconds_count", "", 3),
        ("ml", "chat-0", "my_queue_seconds_sum", "", 9),
        ("ml", "chat-0", "vllm:e2e_request_latency_seconds_bucket", "1.0", 2),
        ("ml", "chat-0", "vllm:e2e_request_latency_seconds_bucket", "+Inf", 3),
        ("ml", "chat-0", "vllm:e2e_request_latency_seconds_count", "", 3),
        ("search", "tgi-0", "tgi_request_input_length_sum", "", 30),
        ("search", "tgi-0", "tgi_request_input_length_count", "", 2),
        ("search", "tgi-0", "tgi_request_input_length_bucket", "+Inf", 2),
        ("search", "tgi-0", "tgi_request_success", "", 2),
    }
    if target == STACK:
        written = re.compile(rule["regex"])
        assert written.fullmatch("inference-servers;vllm:prompt_tokens_total;;;")
        assert written.fullmatch("inference-servers;vllm:num_requests_running;;;")
        assert written.fullmatch("inference-servers;up;;;")


HOSTILE = {
    "/many": b"".join(b'vllm:prompt_tokens_total{model_name="m%d"} 1\n' % number for number in range(5001)),
    "/long": b'vllm:prompt_tokens_total{model_name="%s"} 1\n' % (b"x" * 5_000_000),
    "/labels": b"vllm:prompt_tokens_total{%s} 1\n" % b",".join(b'a%d="b"' % number for number in range(50)),
    "/label": b'vllm:prompt_tokens_total{%s="b"} 1\n' % (b"x" * 200),
}


@pytest.mark.parametrize("target", ["prometheus", STACK])
def test_pod_beyond_a_limit_is_not_scraped_and_others_are(target: str) -> None:
    pages = {**HOSTILE, "/metrics": VLLM, "/big": b"#" * 21_000_000 + b"\n" + VLLM}
    if target == STACK:
        del pages["/big"]  # the chart passes on no limit of the size
    with ExitStack() as running:
        port = running.enter_context(running_server(lambda path: pages[path]))
        pods = [
            Pod(
                f"pod{path.replace('/', '-')}",
                "n1",
                {},
                [("http", port)],
                namespace="ml",
                annotations={
                    "prometheus.io/scrape": "true",
                    "prometheus.io/port": str(port),
                    "prometheus.io/path": path,
                },
            )
            for path in pages
        ]
        body = json.dumps([target for pod in pods for target in pod.targets()]).encode()
        discovery = f"http://127.0.0.1:{running.enter_context(running_server(lambda _: body, 'application/json'))}"
        if target == STACK:
            values = yaml.safe_load(files(STACK)["helm/kube-prometheus-stack.yaml"])
            changed = prometheus_operator.configuration(values, discovery, "http://127.0.0.1:9", seconds=2)
            del changed["remote_write"]
        else:
            changed = local_configuration({"scrape_configs": scrape_configs(target)}, discovery, seconds=2)
        with running_prometheus(changed) as url:
            job = '{job="inference-servers"}'
            wait_until(lambda: query_instant(url, f"count(up{job}) == {len(pages)}"), "every pod to be tried")
            scraped = {labels["pod"] for labels, up in query_instant(url, f"up{job}") if up == 1}
            counted = {labels["pod"] for labels, _ in query_instant(url, "vllm:prompt_tokens_total")}
    assert scraped == counted == {"pod-metrics"}


def test_every_counter_of_vllm_is_kept_from_its_exposition() -> None:
    """The text is what prometheus_client 0.26 writes for the definitions in vLLM's `v1/metrics/loggers.py`, 2026."""
    (vllm,) = [server for server in INFERENCE_SERVERS if server.name == "vllm"]
    with discovered((Path(__file__).parent / "expositions" / "vllm.txt").read_bytes()) as (discovery, servers):
        changed = local_configuration({"scrape_configs": scrape_configs("prometheus")}, discovery, seconds=1)
        with running_prometheus(changed) as url:
            wait_until(lambda: query_instant(url, f"count(up == 1) == {servers}"), "the servers to be scraped")
            pod = '{pod="chat-0",__name__=~"vllm.*"}'
            sums = query_instant(url, f"sum by (__name__, namespace, {vllm.model_label}) ({pod})")
    model = "meta-llama/Llama-3.1-8B-Instruct"
    assert {(labels["namespace"], labels[vllm.model_label]) for labels, _ in sums} == {("ml", model)}
    kept = {labels["__name__"]: total for labels, total in sums}
    counts = {vllm.kind_of(metric): total for metric, total in kept.items() if vllm.kind_of(metric)}
    assert counts == {"prompt": 51234, "cached": 18432, "generated": 9876, "requests": 140 + 11 + 2}
    others = {f"{vllm.latency}_bucket", f"{vllm.latency}_count", *load_metrics([vllm]), QUEUE_BUCKET}
    assert kept.keys() - vllm.counters.values() == others
    assert kept[f"{vllm.latency}_count"] == 153
    assert [kept[metric] for metric in load_metrics([vllm])] == [51 * 1.25 + 102 * 0.25, 153, 3]


@pytest.mark.parametrize("target", [target for target in TARGETS if target != STACK])
def test_every_collector_scrapes_inference_servers_if_the_settings_enable_it(target: str) -> None:
    (job,) = [job for job in scrape_configs(target) if job["job_name"] == "inference-servers"]
    assert {"target_label": "namespace", "source_labels": ["__meta_kubernetes_namespace"]} in job["relabel_configs"]
    assert "my_generated_total" in job["metric_relabel_configs"][0]["regex"]
    assert "$" not in json.dumps(job)
    assert not [job for job in scrape_configs(target, "") if job["job_name"] == "inference-servers"]


def test_labels_are_those_that_the_settings_read() -> None:
    inference = "inference: {enabled: true, namespace_label: kubernetes_namespace, pod_label: kubernetes_pod}\n"
    (job,) = [job for job in scrape_configs("prometheus", inference) if job["job_name"] == "inference-servers"]
    targets = {rule.get("target_label") for rule in job["relabel_configs"]}
    assert {"kubernetes_namespace", "kubernetes_pod"} <= targets
    assert not {"namespace", "pod"} & targets


def test_namespaces_of_inference_servers_can_be_limited() -> None:
    parameters = "collection: {inference_namespaces: [ml, search]}\n"
    scraped = yaml.safe_load(files("prometheus", parameters=parameters)["collection/scrape-configs.yaml"])
    assert {"source_labels": ["__meta_kubernetes_namespace"], "regex": "ml|search", "action": "keep"} in (
        scraped["scrape_configs"][-1]["relabel_configs"]
    )
    values = yaml.safe_load(files(STACK, parameters=parameters)["helm/kube-prometheus-stack.yaml"])
    assert values["prometheus"]["additionalPodMonitors"][-1]["namespaceSelector"] == {"matchNames": ["ml", "search"]}
    values = yaml.safe_load(files(STACK)["helm/kube-prometheus-stack.yaml"])
    assert values["prometheus"]["additionalPodMonitors"][-1]["namespaceSelector"] == {"any": True}
