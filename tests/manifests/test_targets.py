"""`gpucost manifests render --for`: the files of each way to connect an existing cluster."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpucost.core.errors import InvalidInputError
from gpucost.settings_document import parse_settings
from gpucost_cli.manifests.gpu_exporters import GPU_EXPORTERS
from gpucost_cli.manifests.parameters import parse_existing_cluster_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.targets import QUERY_ROLE, TARGETS
from gpucost_cli.manifests.values import existing_cluster_values
from tests.gpucost_command import in_this_process
from tests.kernel_clock import kernel_time
from tests.manifests.rendered import (
    ACCOUNT,
    CLUSTER,
    configuration,
    documents,
    example_files,
    parameters_text,
    settings_text,
    target_files,
)
from tests.manifests.schema_checks import CHARTS, check, foreign_keys, unknown_fields

LOCAL_SETTINGS = """
clusters:
  - {name: lab, prometheus: {url: "http://127.0.0.1:9090"}}
pricing: {source: constant, gpu_hourly_usd: 1}
business_units: [{name: vision, namespace_labels: {org/unit: vision}}]
cost_labels: [project]
"""


def stack_values() -> Any:
    return yaml.safe_load(target_files("kube-prometheus-stack")["helm/kube-prometheus-stack.yaml"])


def test_values_have_only_keys_of_the_chart_and_its_crds() -> None:
    values = stack_values()
    assert unknown_fields(values) == []
    assert len(values["prometheus"]["additionalPodMonitors"]) == 9
    for path, name in (
        (("prometheus", "prometheusSpec"), "externalLabel"),
        (("prometheus", "prometheusSpec", "remoteWrite", 0), "write_relabel_configs"),
        (("prometheus", "additionalPodMonitors", 0, "podMetricsEndpoints", 0), "honor_labels"),
        (("prometheus", "additionalPodMonitors", 0, "podMetricsEndpoints", 0, "relabelings", 0), "source_labels"),
        (("kube-state-metrics",), "metricLabelsAllowList"),
        (("kube-state-metrics", "prometheus", "monitor", "http"), "honor_labels"),
    ):
        wrong = deepcopy(values)
        section = wrong
        for key in path:
            section = section[key]
        section[name] = {}
        assert [unknown.rpartition(".")[2] for unknown in unknown_fields(wrong)] == [name]


def test_stack_keeps_its_metrics_and_sends_only_those_that_are_queried() -> None:
    values = stack_values()
    assert "metricAllowlist" not in values["kube-state-metrics"], "the dashboards of the stack query other metrics"
    assert "collectors" not in values["kube-state-metrics"]
    rendered = yaml.safe_load(example_files()["helm/kube-state-metrics.yaml"])
    assert values["kube-state-metrics"]["metricLabelsAllowlist"] == rendered["metricLabelsAllowlist"]
    (remote_write,) = values["prometheus"]["prometheusSpec"]["remoteWrite"]
    (rule,) = remote_write["writeRelabelConfigs"]
    kept = [
        "kube-state-metrics;kube_node_info;;;n1",
        "kube-state-metrics;up;;;",
        "dcgm-exporter;DCGM_FI_DEV_FB_USED;;;n1",
        "kube-state-metrics;kube_pod_container_resource_requests;nvidia_com_gpu;;n1",
    ]
    dropped = [
        "kubelet;up;;;",
        "node-exporter;node_cpu_seconds_total;;;",
        "kube-state-metrics;kube_service_info;;;",
        "tenant;kube_node_info;;;n1",
        "kube-state-metrics;kube_pod_container_resource_requests;cpu;;n1",
    ]
    assert [text for text in kept + dropped if re.fullmatch(rule["regex"], text)] == kept
    assert values["prometheus"]["prometheusSpec"]["externalLabels"] == {"cluster": "gpu-cost-poc"}


@pytest.mark.parametrize("has_role", [True, False])
def test_command_writes_only_the_files_of_the_target(tmp_path: Path, *, has_role: bool) -> None:
    """A second run for another target replaces them. The role to query is written if the settings name one."""
    settings, parameters, out = tmp_path / "settings.yaml", tmp_path / "parameters.yaml", tmp_path / "manifests"
    role = f"region: us-east-1\n      role_arn: arn:aws:iam::{ACCOUNT}:role/gpucost-query-gpu-cost-poc"
    settings.write_text(settings_text().replace("region: us-east-1", role if has_role else "region: us-east-1"))
    parameters.write_text(f'account_id: "{ACCOUNT}"\ndeployment_account_id: "210987654322"\n')
    for target, all_names in TARGETS.items():
        names = [name for name in all_names if has_role or name not in QUERY_ROLE]
        arguments = ("--settings", str(settings), "--params", str(parameters), "--out", str(out))
        done = in_this_process("manifests", "render", "--for", target, *arguments)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        written = {str(path.relative_to(out)): path.read_text() for path in out.rglob("*") if path.is_file()}
        assert written.keys() == set(names)
        assert f"{len(names)} files for cluster gpu-cost-poc are in {out}" in done.stderr
        assert not [name for name, text in written.items() if "{{" in text]
        if has_role and QUERY_ROLE[1] in names:
            entries = json.loads(written[QUERY_ROLE[1]])
            role_parameters = {entry["ParameterKey"]: entry["ParameterValue"] for entry in entries}
            assert role_parameters["RoleName"] == "gpucost-query-gpu-cost-poc"
            assert role_parameters["DeploymentAccountId"] == "210987654322"


def test_prometheus_without_aws_needs_no_parameters(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(LOCAL_SETTINGS)
    arguments = ("--settings", str(tmp_path / "settings.yaml"), "--out", str(tmp_path / "manifests"))
    for target in ("prometheus", "other-servers"):
        done = in_this_process("manifests", "render", "--for", target, *arguments)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    labels = yaml.safe_load((tmp_path / "manifests/helm/kube-state-metrics.yaml").read_text())["metricLabelsAllowlist"]
    assert labels[1:] == ["namespaces=[org/unit,resource.kubernetes.io/admin-access]", "pods=[project]"]
    environment = (tmp_path / "manifests/env.sh").read_text()
    assert set(re.findall(r"(\w+)_VERSION=", environment)) == {"DCGM_EXPORTER", "KUBE_STATE_METRICS"}
    assert "AWS_" not in environment
    assert "AMP_" not in environment
    refused = in_this_process("manifests", "render", *arguments)
    assert refused.returncode == 2
    assert refused.stderr == (
        "gpucost: --params: required for a new cluster. Copy cluster/parameters.yaml, edit the copy, and name it\n"
    )


def test_stack_without_amp_needs_only_labels_and_pod_monitors() -> None:
    """The settings query the Prometheus of the stack; nothing is written, so there is no role."""
    target = "kube-prometheus-stack"
    local = existing_cluster_values(parse_settings(LOCAL_SETTINGS), parse_existing_cluster_parameters(""), target)
    files = dict(render_files(local, target=target))
    assert files.keys() == {name for name in TARGETS[target] if not name.startswith("aws/")}
    values = yaml.safe_load(files["helm/kube-prometheus-stack.yaml"])
    assert values["prometheus"].keys() == {"additionalPodMonitors"}
    assert values["prometheus"]["additionalPodMonitors"] == stack_values()["prometheus"]["additionalPodMonitors"]
    assert values["kube-state-metrics"]["metricLabelsAllowlist"][1:] == [
        "namespaces=[org/unit,resource.kubernetes.io/admin-access]",
        "pods=[project]",
    ]


def test_collection_is_the_same_for_new_and_existing_clusters() -> None:
    """Only the nodes on which collectors run differ: existing clusters have no label for them by default."""
    parameters = parameters_text()  # keys of new clusters are ignored
    for target, names in TARGETS.items():
        files = target_files(target, parameters)
        for name in names:
            if name in example_files() and name != "env.sh" and name not in QUERY_ROLE:
                assert files[name] == example_files()[name], (target, name)
    anywhere = target_files("otel-collector")
    (deployment,) = [
        document
        for document in documents(anywhere["collection/otel-collector.yaml"])
        if document["kind"] == "Deployment"
    ]
    assert deployment["spec"]["template"]["spec"]["nodeSelector"] == {}


@pytest.mark.parametrize("target", TARGETS)
def test_objects_and_chart_values_are_valid(target: str) -> None:
    charts = {
        "helm/kube-state-metrics.yaml": "kube-state-metrics",
        "helm/gpu-operator-exporter.yaml": "gpu-operator",
        **{exporter.values_file: "dcgm-exporter" for exporter in GPU_EXPORTERS},
    }
    files = target_files(target)
    for name, text in files.items():
        if name in charts:
            assert foreign_keys(CHARTS[charts[name]], yaml.safe_load(text)) == [], name
        for document in _objects(name, text):
            check(document)


def _objects(name: str, text: str) -> Iterator[Any]:
    if name.startswith("collection/"):
        yield from (document for document in documents(text) if "kind" in document)


@pytest.mark.parametrize("target", ["amp-scraper", "otel-collector", "prometheus-agent"])
def test_collectors_name_themselves_and_write_the_jobs_of_the_scrape_configuration(target: str) -> None:
    files = target_files(target)
    block = yaml.safe_load(example_files()["collection/scrape-configs.yaml"])["scrape_configs"]
    if target == "amp-scraper":
        scraper = yaml.safe_load(files["collection/amp-scraper.yaml"])
        assert set(scraper) == {"global", "scrape_configs"}, "AMP's scraper refuses other sections"
        labels, jobs = scraper["global"]["external_labels"], scraper["scrape_configs"]
    elif target == "otel-collector":
        otel = configuration(files, "collection/otel-collector.yaml")
        labels = otel["exporters"]["prometheusremotewrite"]["external_labels"]
        jobs = otel["receivers"]["prometheus"]["config"]["scrape_configs"]
    else:
        agent = configuration(files, "collection/prometheus-agent.yaml")
        labels, jobs = agent["global"]["external_labels"], agent["scrape_configs"]
    assert (labels, jobs) == ({"gpucost_collector": target}, block)


@pytest.mark.parametrize(
    ("settings", "parameters", "target", "says"),
    [
        (
            LOCAL_SETTINGS,
            f'account_id: "{ACCOUNT}"',
            "otel-collector",
            "cluster lab: the manifests write to Amazon Managed Service for Prometheus. Set prometheus: ",
        ),
        (settings_text(), "", "amp-scraper", "parameters: account_id: required, because the collector writes to"),
        (settings_text(), "account_id: 1", "amp-scraper", "parameters: account_id: must be text. Put it in quotes"),
        (settings_text(), "acount_id: '1'", "amp-scraper", "parameters: unknown key 'acount_id'"),
        (settings_text(), "cluster: other", "prometheus", "cluster 'other' is not in the settings. Clusters there"),
        (settings_text(), "collector_role: {trust: irsa}", "otel-collector", "oidc_provider is required with trust"),
        (
            settings_text(),
            "collector_role: {trust: irsa, oidc_provider: 'https://oidc.eks.a.amazonaws.com/id/A'}",
            "otel-collector",
            "parameters: collector_role.oidc_provider: must be the cluster's OIDC issuer without https",
        ),
        (
            LOCAL_SETTINGS.replace("  - {", "  - {name: two, prometheus: {url: 'http://127.0.0.1:9'}}\n  - {"),
            "",
            "prometheus",
            "cluster: required, because the settings have several clusters. Set it to one of two, lab",
        ),
    ],
)
def test_unusable_input_is_refused_in_a_single_sentence(settings: str, parameters: str, target: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        values = existing_cluster_values(
            parse_settings(settings), parse_existing_cluster_parameters(parameters), target
        )
        dict(render_files(values, target=target))
    assert says in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_every_version_has_the_date_of_its_source() -> None:
    versions = yaml.safe_load((CLUSTER / "versions.yaml").read_text())
    entries = {"eksctl": versions["eksctl"], **versions["charts"], **versions["images"]}
    assert len(entries) > 10
    for name, entry in entries.items():
        assert type(entry.get("checked")) is date, f"{name} needs checked: YYYY-MM-DD, the date of the source"
        assert entry["checked"] <= kernel_time().date(), name
