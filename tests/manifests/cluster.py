"""A cluster as a collector sees it: what discovery tells of its pods, and pods that answer scrapes.

Debian builds Prometheus without discovery by Kubernetes. The labels that it would find are documented
(prometheus.io/docs, `kubernetes_sd_config`, role `pod`), and are handed over by HTTP discovery instead.
"""

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import requests
import yaml

from devstack.prometheus import executable, free_port

LABELS = {
    "kube-state-metrics": ("app.kubernetes.io/name", "kube-state-metrics", "http"),
    "dcgm-exporter": ("app", "nvidia-dcgm-exporter", "metrics"),
    "neuron-monitor": ("app", "neuron-monitor", "prometheus"),
    "karpenter": ("app.kubernetes.io/name", "karpenter", "http-metrics"),
}
"""How the charts label an exporter's pods, and what they call the port of its metrics."""
NAMESPACES = {
    "kube-state-metrics": "kube-system",
    "dcgm-exporter": "gpu-operator",
    "neuron-monitor": "neuron-monitor",
    "karpenter": "kube-system",
}
"""Where the charts put them."""


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
        """Say nothing."""


@contextmanager
def serving(answer: Callable[[str], bytes], kind: str = _Handler.kind) -> Iterator[int]:
    """Answer every GET on a free port of the loopback; yields the port."""
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
    """A pod that discovery tells of."""

    name: str
    node: str
    labels: Mapping[str, str]
    ports: Sequence[tuple[str, int]]
    phase: str = "Running"
    namespace: str = "somewhere"

    def targets(self) -> Iterator[Any]:
        """One for every port that a container declares, as of role `pod`."""
        own = {
            f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', key)}": one for key, one in self.labels.items()
        }
        for port, number in self.ports:
            yield {
                "targets": [f"127.0.0.1:{number}"],
                "labels": own
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
def cluster(exporters: Sequence[tuple[str, str, Callable[[str], bytes]]]) -> Iterator[str]:
    """Pods of some exporters (which, on which node, what it answers), among others that nobody asked for.

    Yields where discovery asks for them.
    """
    with ExitStack() as running:
        telemetry = running.enter_context(serving(lambda _: b"telemetry 1\n"))
        key, value, _ = LABELS["kube-state-metrics"]
        pods = [
            Pod("gone", "system-1", {key: value}, [("http", telemetry)], "Succeeded", "kube-system"),
            *(
                Pod(f"forged-{exporter}", "general-1", {label: name}, [(port, telemetry)], namespace="tenant")
                for exporter, (label, name, port) in LABELS.items()
            ),
            Pod("web", "general-1", {"app": "web"}, [("metrics", telemetry)]),
        ]
        for number, (exporter, node, answer) in enumerate(exporters):
            key, value, port = LABELS[exporter]
            own = running.enter_context(serving(answer))
            beside = [("metrics", telemetry)] if exporter == "kube-state-metrics" else []  # its telemetry port
            ports = [(port, own), *beside]
            pods.append(Pod(f"{exporter}-{number}", node, {key: value}, ports, namespace=NAMESPACES[exporter]))
        body = json.dumps([target for one in pods for target in one.targets()]).encode()
        place = running.enter_context(serving(lambda _: body, "application/json"))
        yield f"http://127.0.0.1:{place}"


def here(configuration: Any, discovery: str, *, seconds: int, receiver: str = "") -> Any:
    """A collector's configuration, changed in who tells of pods, where it writes to and how often it scrapes; the rules
    stay as they are."""
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
def prometheus(configuration: Any, *flags: str, agent: bool = False) -> Iterator[str]:
    """The real Prometheus with a configuration; yields its address."""
    with tempfile.TemporaryDirectory(prefix="gpucost-kit-") as folder:
        home, port = Path(folder), free_port()
        (home / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        storage = [f"--storage.agent.path={home / 'data'}"] if agent else [f"--storage.tsdb.path={home / 'data'}"]
        command = [executable("prometheus"), f"--config.file={home / 'prometheus.yml'}", *storage, *flags]
        command += [f"--web.listen-address=127.0.0.1:{port}", *([_agent_flag()] if agent else [])]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        url = f"http://127.0.0.1:{port}"
        try:
            until(lambda: process.poll() is not None or _is_ready(url), "Prometheus to start")
            assert process.poll() is None, (home / "log").read_text()[-500:]
            yield url
        finally:
            process.terminate()
            process.wait()


@cache
def _agent_flag() -> str:
    """The flag of Prometheus' agent mode, which version 3 renamed."""
    shown = subprocess.run([executable("prometheus"), "--version"], capture_output=True, text=True, check=True)
    return "--enable-feature=agent" if "version 2." in shown.stdout + shown.stderr else "--agent"


def _is_ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=1).ok
    except requests.RequestException:
        return False


def until(is_so: Callable[[], object], what: str, seconds: float = 30) -> None:
    """Wait."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def ask(url: str, query: str) -> list[tuple[dict[str, str], float]]:
    """An instant query's answer."""
    answer = requests.post(f"{url}/api/v1/query", data={"query": query}, timeout=10).json()
    assert answer["status"] == "success", answer
    return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]
