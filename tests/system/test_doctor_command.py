"""`gpucost doctor` through the command line."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpucost.settings import PrometheusSettings
from gpucost_cli.doctor import _check_address
from gpucost_devstack.template import REPOSITORY
from tests.gpucost_command import GPUCOST, gpucost
from tests.system.doctor_cluster import Recent, healthy, shared
from tests.system.doctor_findings import GR, document


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return str(path)


def test_json_has_checks_and_utilization(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    url = prometheus(healthy().text())
    done = gpucost("doctor", "--settings", write(tmp_path, document(url)), "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    (cluster,) = json.loads(done.stdout)["clusters"]
    assert (cluster["cluster"], cluster["possible"]) == ("demo", True)
    assert cluster["utilization"] == [{"signal": GR, "source": "pod", "gpus": 2}]
    checks = {check["name"]: check for check in cluster["checks"]}
    assert checks["kube_node_info"] == {
        "name": "kube_node_info",
        "metric": "kube_node_info",
        "status": "found",
        "severity": "recommended",
        "series": 1,
        "scrape_interval_seconds": 60,
        "finding": None,
        "change": None,
        "effect": None,
        "explained_by": [],
    }


def test_table_shows_checks_and_changes(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    path = write(tmp_path, document(prometheus(healthy().text())))
    done = gpucost("doctor", "--settings", path, COLUMNS="100")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "demo: attribution is possible\n"
        "  GPUs held: 2 pods hold 2 GPUs on 1 node now\n"
        f"  use:       measured for 2 of 2 held GPUs, by {GR}\n"
        "  price:     known for 1 node, from the settings\n"
    ), done.stdout
    assert "nothing to change" in done.stdout
    assert "kube_pod_status_phase" not in done.stdout
    verbose = gpucost("doctor", "--settings", path, "--verbose", COLUMNS="140")
    assert re.search(r"kube_pod_status_phase +found +recommended +\d+ +60 s", verbose.stdout)

    url = prometheus(shared().text())
    done = gpucost("doctor", "--settings", write(tmp_path, document(url)), COLUMNS="140")
    assert done.returncode == 0
    assert "→ dcgm-exporter with helm/dcgm-exporter-shared.yaml of gpucost manifests render" in done.stdout


def test_clusters_without_an_answer_come_first_and_each_begins_with_its_verdict(
    tmp_path: Path, prometheus: Callable[[str], str], refused_url: str
) -> None:
    urls = {"good": prometheus(healthy().text()), "shared": prometheus(shared().text()), "bad": refused_url}
    clusters = ", ".join(f'{{name: {name}, prometheus: {{url: "{url}"}}}}' for name, url in urls.items())
    done = gpucost("doctor", "--settings", write(tmp_path, document("", clusters=f"[{clusters}]")), COLUMNS="140")
    starts = [
        "bad: attribution is impossible",
        "good: attribution is possible",
        "utilization of held GPUs of good",
        "shared: attribution is possible",
        "utilization of held GPUs of shared",
    ]
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert [line for line in lines if line in starts] == starts


def test_only_the_unreachable_cluster_is_impossible(
    tmp_path: Path, prometheus: Callable[[str], str], refused_url: str
) -> None:
    good, bad = prometheus(healthy().text()), refused_url
    two = f'[{{name: good, prometheus: {{url: "{good}"}}}}, {{name: bad, prometheus: {{url: "{bad}"}}}}]'
    done = gpucost("doctor", "--settings", write(tmp_path, document("", clusters=two)), "--format", "json")
    assert done.returncode == 1
    assert [cluster["possible"] for cluster in json.loads(done.stdout)["clusters"]] == [True, False]
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("gpucost: attribution is impossible: cluster bad: ")
    assert "could not be reached" in done.stderr
    assert "good" not in done.stderr


def test_addresses_of_another_service_name_the_part_that_is_wrong(
    tmp_path: Path, prometheus: Callable[[str], str]
) -> None:
    url = prometheus(healthy().text())
    for wrong, change in (
        (f"{url}/graph", "Write its base URL, without a page such as /graph, and check the port"),
        (url.replace("http:", "https:"), "the server did not answer in TLS. If it has none, write http://"),
        ("http://prometheus.monitoring.invalid:9090", "correct the host name. Names of Services resolve only in"),
    ):
        done = gpucost("doctor", "--settings", write(tmp_path, document(wrong)), "--format", "json")
        ((check,),) = [cluster["checks"] for cluster in json.loads(done.stdout)["clusters"]]
        assert change in check["change"], check


def test_certificate_of_a_private_authority_names_what_is_trusted() -> None:
    finding = "Prometheus at https://mimir.corp could not be reached: its TLS certificate is not trusted, 4 times"
    change = _check_address(finding, PrometheusSettings(url="https://mimir.corp"))
    assert "add that authority's certificate as ca_certificates" in change


def test_empty_prometheus_exits_with_status_1(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    done = gpucost("doctor", "--settings", write(tmp_path, document(prometheus(Recent().text()))), COLUMNS="140")
    assert done.returncode == 1
    assert "demo: attribution is impossible" in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "there are no series of kube-state-metrics" in done.stdout
    assert done.stderr == "gpucost: attribution is impossible for cluster demo\n"


@pytest.mark.parametrize("clusters", [["demo"], ["demo", "other"]])
def test_commands_that_install_exporters_can_be_pasted(
    tmp_path: Path, prometheus: Callable[[str], str], clusters: list[str]
) -> None:
    url = prometheus(Recent().text())
    entries = ", ".join(f'{{name: {name}, prometheus: {{url: "{url}"}}}}' for name in clusters)
    settings = tmp_path / "my cluster.yaml"
    settings.write_text(document("", clusters=f"[{entries}]"))
    done = gpucost("doctor", "--settings", str(settings))
    commands = re.findall(r"    → .*?: (gpucost manifests render .*)", done.stdout)
    assert len(commands) == 2 * len(clusters)
    helm = tmp_path / "helm"
    helm.write_text('#!/bin/sh\necho "$@"\n')
    helm.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(GPUCOST).parent), os.environ["PATH"]])
    charts = yaml.safe_load((REPOSITORY / "cluster" / "versions.yaml").read_text())["charts"]
    for command in commands:
        pasted = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert pasted.returncode == 0, pasted.stderr
        arguments = pasted.stdout.split()
        chart = charts[arguments[3].replace("-", "_")]
        assert arguments[arguments.index("--repo") + 1] == chart["repository"]
        assert arguments[arguments.index("--version") + 1] == chart["version"]
        values = yaml.safe_load((tmp_path / arguments[-1]).read_text())
        assert "metricLabelsAllowlist" in values or "affinity" in values


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("clusters: []", [], "clusters"),
        (document("http://x"), ["--format", "csv"], "'table', 'json'"),
        (None, [], "cannot be read"),
    ],
)
def test_invalid_input_exits_with_status_2(tmp_path: Path, text: str | None, arguments: list[str], says: str) -> None:
    path = write(tmp_path, text) if text is not None else "/nowhere"
    done = gpucost("doctor", "--settings", path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
