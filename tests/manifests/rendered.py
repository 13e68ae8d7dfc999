"""The files that `gpucost manifests render` writes, for tests."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from gpucost.settings import CoreSettings
from gpucost.settings_document import parse_settings
from gpucost_cli.manifests.parameters import Parameters, parse_existing_cluster_parameters, parse_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.values import existing_cluster_values, template_values
from gpucost_devstack.template import REPOSITORY

CLUSTER = REPOSITORY / "cluster"
COLLECTORS = {"collection/otel-collector.yaml": "collector.yaml", "collection/prometheus-agent.yaml": "prometheus.yml"}
"""Files with a collector's configuration in a ConfigMap, and its key there."""


ACCOUNT, WORKSPACE = "210987654321", "ws-1a2b3c4d-5e6f-7081-92a3-b4c5d6e7f809"


def settings_text() -> str:
    """Return the example settings with a workspace, as docs/tutorials/quickstart-eks.md describes."""
    return (CLUSTER / "settings.yaml").read_text().replace("ws-00000000-0000-0000-0000-000000000000", WORKSPACE)


def parameters_text() -> str:
    """Return the example parameters with an account."""
    return (CLUSTER / "parameters.yaml").read_text().replace("111122223333", ACCOUNT)


def example_settings() -> CoreSettings:
    return parse_settings(settings_text())


def example_parameters() -> Parameters:
    return parse_parameters(parameters_text())


@cache
def example_files() -> Mapping[str, str]:
    """The files of the example settings and parameters."""
    return dict(render_files(template_values(example_settings(), example_parameters())))


@cache
def target_files(target: str, parameters: str = f'account_id: "{ACCOUNT}"\n') -> Mapping[str, str]:
    """The files of `--for`, with the example settings."""
    values = existing_cluster_values(example_settings(), parse_existing_cluster_parameters(parameters), target)
    return dict(render_files(values, target=target))


def documents(text: str) -> list[Any]:
    return [
        document for document in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if document
    ]


def configuration(files: Mapping[str, str], name: str) -> Any:
    """The configuration in a collector's ConfigMap."""
    config_map = next(document for document in documents(files[name]) if document["kind"] == "ConfigMap")
    return yaml.safe_load(config_map["data"][COLLECTORS[name]])


def objects(files: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Every object that is given to Kubernetes or eksctl, with its file."""
    for name, text in files.items():
        if name.startswith(("eksctl/", "workloads/", "collection/")) or name.startswith("karpenter/node"):
            yield from ((name, document) for document in documents(text) if "kind" in document)


OTHER_SETTINGS = """
clusters:
  - {name: elsewhere, prometheus: {url: "http://127.0.0.1:9090"}}
  - name: frankfurt
    prometheus:
      url: https://aps-workspaces.eu-central-1.amazonaws.com/workspaces/ws-abc
      auth: sigv4
      region: eu-central-1
      role_arn: arn:aws:iam::999999999999:role/gpucost-query-frankfurt
      external_id: other
    selector: {cluster: fra, stage: prod}
pricing: {source: constant, gpu_hourly_usd: 1}
utilization: {signal: DCGM_FI_PROF_SM_ACTIVE}
business_units:
  - {name: vision, namespace_labels: {org/unit: vision}, pod_labels: {squad: v}}
cost_labels: [project]
"""
OTHER_PARAMETERS = """
cluster: frankfurt
account_id: "999999999999"
deployment_account_id: "888888888888"
deployment_stack: costs
kubernetes_version: "1.35"
zones: [eu-central-1a, eu-central-1b]
environment: staging
collection: {scrape_interval_seconds: 30, dashboards: false}
gpu_group: {instance_type: p5.48xlarge, nodes: 2, mig_geometry: all-1g.10gb}
spot_instance_types: [g5.xlarge, g6.xlarge]
system_nodes: {purpose: tools}
tenants: [{namespace: seeing, business_unit: vision, pods: 4, gpu_quota: 9, labels: {project: eyes}}]
"""


@cache
def render_other(settings: str = OTHER_SETTINGS, parameters: str = OTHER_PARAMETERS) -> dict[str, str]:
    return dict(render_files(template_values(parse_settings(settings), parse_parameters(parameters))))
