"""A cluster as a collector sees it: pods that are discovered, and pods that answer scrapes.

Debian builds Prometheus without Kubernetes discovery. The labels that it would discover are documented
(prometheus.io/docs, `kubernetes_sd_config`, role `pod`). HTTP discovery provides them instead.
"""

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import requests
import yaml

from gpucost_devstack.installation import find_program
from gpucost_devstack.prometheus import free_port

LABELS = {
    "kube-state-metrics": ("app.kubernetes.io/name", "kube-state-metrics", "http"),
    "dcgm-exporter": ("app", "nvidia-dcgm-exporter", "metrics"),
    "neuron-monitor": ("app", "neuron-monitor", "prometheus"),
    "amd-device-metrics-exporter": ("app.kubernetes.io/name", "metrics-exporter", ""),
    "gaudi-metric-exporter": ("app.kubernetes.io/name", "metric-exporter-ds", "habana-metrics"),
    "xpumd": ("app.kubernetes.io/name", "xpumd", "http"),
    "kube-dra-exporter": ("app", "kube-dra-exporter", "http"),
    "hami-scheduler": ("app.kubernetes.io/component", "hami-scheduler", "metrics"),
    "hami-vgpu-monitor": ("app.kubernetes.io/component", "hami-device-plugin", "metrics"),
    "karpenter": ("app.kubernetes.io/name", "karpenter", "http-metrics"),
}
"""Label, its value, and port name of each exporter's pods in its chart."""
NAMESPACES = {
    "kube-state-metrics": "kube-system",
    "dcgm-exporter": "gpu-operator",
    "neuron-monitor": "neuron-monitor",
    "amd-device-metrics-exporter": "kube-amd-gpu",
    "gaudi-metric-exporter": "monitoring",
    "xpumd": "xpumd",
    "kube-dra-exporter": "monitoring",
    "hami-scheduler": "kube-system",
    "hami-vgpu-monitor": "kube-system",
    "karpenter": "kube-system",
}
"""Namespace of each exporter in its chart."""


class _Handler(BaseHTTPRequestHandler):
    answer: Callable[[str], bytes]
    kind = "text/plain; version=0.0.4"

    def do_GET(self) -> None:
        content = type(self).answer(self.path)
        self.send_response(200)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep the test's output clean."""


@contextmanager
def running_server(answer: Callable[[str], bytes], kind: str = _Handler.kind) -> Iterator[int]:
    """Answer every GET request on a free loopback port, and yield the port."""
    handler = type("Handler", (_Handler,), {"answer": staticmethod(answer), "kind": kind})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Pod:
    """A pod that is discovered."""

    name: str
    node: str
    labels: Mapping[str, str]
    ports: Sequence[tuple[str, int]]
    phase: str = "Running"
    namespace: str = "somewhere"
    annotations: Mapping[str, str] = field(default_factory=dict)

    def targets(self) -> Iterator[Any]:
        """Yield a target for every declared container port, as Prometheus' role `pod` does."""
        pod_labels = {
            f"__meta_kubernetes_pod_{kind}_{re.sub('[^a-zA-Z0-9_]', '_', key)}": text
            for kind, texts in (("label", self.labels), ("annotation", self.annotations))
            for key, text in texts.items()
        }
        for port, number in self.ports:
            yield {
                "targets": [f"127.0.0.1:{number}"],
                "labels": pod_labels
                | {
                    "__meta_kubernetes_namespace": self.namespace,
                    "__meta_kubernetes_pod_name": self.name,
                    "__meta_kubernetes_pod_uid": f"uid-{self.name}",
                    "__meta_kubernetes_pod_ip": "127.0.0.1",
                    "__meta_kubernetes_pod_node_name": self.node,
                    "__meta_kubernetes_pod_phase": self.phase,
                    "__meta_kubernetes_pod_ready": "true",
                    "__meta_kubernetes_pod_container_name": "main",
                    "__meta_kubernetes_pod_container_port_name": port,
                    "__meta_kubernetes_pod_container_port_number": str(number),
                    "__meta_kubernetes_pod_container_port_protocol": "TCP",
                },
            }


@contextmanager
def running_cluster(exporters: Sequence[tuple[str, str, Callable[[str], bytes]]]) -> Iterator[str]:
    """Run pods of exporters among pods that must not be scraped, and yield the address of their discovery.

    Args:
        exporters: name, node, and the function that answers its scrapes.
    """
    with ExitStack() as running:
        telemetry = running.enter_context(running_server(lambda _: b"telemetry 1\n"))
        key, name, _ = LABELS["kube-state-metrics"]
        pods = [
            Pod("gone", "system-1", {key: name}, [("http", telemetry)], "Succeeded", "kube-system"),
            *(
                Pod(f"forged-{exporter}", "general-1", {label: name}, [(port, telemetry)], namespace="tenant")
                for exporter, (label, name, port) in LABELS.items()
            ),
            Pod("web", "general-1", {"app": "web"}, [("metrics", telemetry)]),
        ]
        for number, (exporter, node, answer) in enumerate(exporters):
            key, name, port = LABELS[exporter]
            exporter_port = running.enter_context(running_server(answer))
            telemetry_ports = [("metrics", telemetry)] if exporter == "kube-state-metrics" else []  # its telemetry port
            ports = [(port, exporter_port), *telemetry_ports]
            pods.append(Pod(f"{exporter}-{number}", node, {key: name}, ports, namespace=NAMESPACES[exporter]))
        body = json.dumps([target for pod in pods for target in pod.targets()]).encode()
        discovery_port = running.enter_context(running_server(lambda _: body, "application/json"))
        yield f"http://127.0.0.1:{discovery_port}"


def local_configuration(configuration: Any, discovery: str, *, seconds: int, receiver: str = "") -> Any:
    """Change discovery, scrape interval and receiver of a collector's configuration; its relabeling rules stay."""
    changed: Any = yaml.safe_load(yaml.safe_dump(configuration))
    changed["global"] = {"scrape_interval": f"{seconds}s", "scrape_timeout": f"{seconds}s"}
    if receiver:
        del changed["remote_write"][0]["sigv4"]
        changed["remote_write"][0]["url"] = f"{receiver}/api/v1/write"
        changed["remote_write"][0]["queue_config"]["batch_send_deadline"] = "200ms"
    else:
        changed.pop("remote_write", None)
    for job in changed["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
        job["http_sd_configs"] = [{"url": discovery}]
    return changed


@contextmanager
def running_prometheus(configuration: Any, *flags: str, agent: bool = False) -> Iterator[str]:
    """Run a real Prometheus with a configuration, and yield its address."""
    with tempfile.TemporaryDirectory(prefix="gpucost-manifests-") as folder:
        home, port = Path(folder), free_port()
        (home / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        storage = [f"--storage.agent.path={home / 'data'}"] if agent else [f"--storage.tsdb.path={home / 'data'}"]
        command = [find_program("prometheus"), f"--config.file={home / 'prometheus.yml'}", *storage, *flags]
        command += [f"--web.listen-address=127.0.0.1:{port}", *([_agent_flag()] if agent else [])]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: process.poll() is not None or _is_ready(url), "Prometheus to start")
            assert process.poll() is None, (home / "log").read_text()[-500:]
            yield url
        finally:
            process.terminate()
            process.wait()


@cache
def _agent_flag() -> str:
    """Return the flag of Prometheus' agent mode, which version 3 renamed."""
    shown = subprocess.run([find_program("prometheus"), "--version"], capture_output=True, text=True, check=True)
    return "--enable-feature=agent" if "version 2." in shown.stdout + shown.stderr else "--agent"


def _is_ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=1).ok
    except requests.RequestException:
        return False


def wait_until(is_met: Callable[[], object], description: str, seconds: float = 30) -> None:
    """Wait until a condition is met; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not is_met():
        assert time.monotonic() < deadline, f"waited {seconds} s for {description}"
        time.sleep(0.05)


def scraped_twice(targets: int) -> str:
    """The query that answers once two scrapes of each target had samples."""
    samples = "scrape_samples_scraped[1m]"
    return f"count((sum_over_time({samples}) >= 2 * max_over_time({samples})) > 0) == {targets}"


def query_instant(url: str, query: str) -> list[tuple[dict[str, str], float]]:
    """Run an instant query and return labels and value of each sample."""
    answer = requests.post(f"{url}/api/v1/query", data={"query": query}, timeout=10).json()
    assert answer["status"] == "success", answer
    return [(sample["metric"], float(sample["value"][1])) for sample in answer["data"]["result"]]
