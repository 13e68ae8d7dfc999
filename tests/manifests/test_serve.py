"""`gpucost manifests render --for serve`: objects that Kubernetes accepts, with the settings, and no more rights."""

from pathlib import Path
from typing import Any

import click
import pytest

from gpucost.core.errors import InvalidInputError
from gpucost.settings_document import SettingsDocument, parse_settings
from gpucost_cli.main import cli
from gpucost_cli.manifests.parameters import parse_existing_cluster_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.serve import serve_values
from gpucost_cli.manifests.targets import SERVE, SERVE_FILE
from tests.gpucost_command import in_this_process
from tests.manifests.rendered import documents
from tests.manifests.schema_checks import check

IMAGE = "210987654321.dkr.ecr.us-east-1.amazonaws.com/gpucost:0.1.0"
SETTINGS = """
clusters:
  - {name: prod, prometheus: {url: "http://prometheus-operated.monitoring.svc:9090"}, selector: {cluster: prod}}
  - {name: other, prometheus: {url: "https://mimir.corp.internal/prometheus", headers: {X-Scope-OrgID: gpu}}}
pricing: {source: constant, gpu_hourly_usd: 12.5}
business_units: [{name: "größe: 1", namespaces: ["bu-*"]}]
"""


def rendered(parameters: str = "", settings: str = SETTINGS) -> dict[str, Any]:
    """The objects by kind."""
    document = parse_settings(settings)
    values = serve_values(document, parse_existing_cluster_parameters(parameters or f"serve: {{image: '{IMAGE}'}}"))
    ((name, text),) = render_files(values, target=SERVE)
    assert name == SERVE_FILE
    return {document["kind"]: document for document in documents(text)}


@pytest.mark.parametrize(
    "more", ["", ", storage_class: gp3, storage: 1Ti, namespace: costs, allowed_namespaces: [ingress-nginx, tools]"]
)
def test_objects_fit_their_schemas(more: str) -> None:
    objects = rendered(f"serve: {{image: '{IMAGE}'{more}}}\nsystem_nodes: {{workload: system}}")
    for kubernetes_object in objects.values():
        check(kubernetes_object)
    assert set(objects) == {
        "Namespace",
        "ServiceAccount",
        "ConfigMap",
        "PersistentVolumeClaim",
        "Deployment",
        "Service",
        "NetworkPolicy",
    }
    namespace = objects.pop("Namespace")["metadata"]["name"]
    assert {kubernetes_object["metadata"]["namespace"] for kubernetes_object in objects.values()} == {namespace}


def test_settings_are_those_of_the_file() -> None:
    text = rendered()["ConfigMap"]["data"]["settings.yaml"]
    assert parse_settings(text) == parse_settings(SETTINGS)
    assert isinstance(parse_settings(text), SettingsDocument)


def test_changed_settings_replace_the_pod() -> None:
    first, second = (
        rendered(settings=text)["Deployment"]["spec"]["template"]["metadata"]["annotations"]["gpucost/settings"]
        for text in (SETTINGS, SETTINGS.replace("12.5", "13"))
    )
    assert first != second


def test_service_and_policy_select_the_pod() -> None:
    objects = rendered()
    pod = objects["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"].items()
    assert objects["Service"]["spec"]["selector"].items() <= labels
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels
    assert objects["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels
    (container,) = pod["spec"]["containers"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    claim = objects["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["ledger"]["persistentVolumeClaim"]["claimName"] == claim
    assert volumes["settings"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert pod["spec"]["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"]


def test_policy_allows_the_ports_of_the_settings_and_no_other_pod() -> None:
    policy = rendered()["NetworkPolicy"]["spec"]
    assert policy["ingress"] == []
    ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert ports == {53, 443, 9090}
    allowed = rendered(f"serve: {{image: '{IMAGE}', allowed_namespaces: [tools]}}")["NetworkPolicy"]["spec"]["ingress"]
    (selector,) = [source["namespaceSelector"] for rule in allowed for source in rule["from"]]
    assert selector["matchExpressions"][0]["values"] == ["tools"]


def test_arguments_are_those_of_the_command() -> None:
    (container,) = rendered()["Deployment"]["spec"]["template"]["spec"]["containers"]
    name, *arguments = container["args"]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    values, rest, _ = command.make_parser(click.Context(command)).parse_args(arguments)
    assert (values["host"], rest) == ("0.0.0.0", [])
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert all(any(str(values[option]).startswith(mount) for mount in mounts) for option in ("path", "folder"))


@pytest.mark.parametrize(
    ("parameters", "settings", "sentence"),
    [
        (
            "{}",
            SETTINGS,
            "parameters: serve.image: required. Build the image from the Dockerfile, push it, and name it, for example "
            "serve: {image: 111122223333.dkr.ecr.us-east-1.amazonaws.com/gpucost:0.1.0}",
        ),
        (
            f"serve: {{image: '{IMAGE}'}}",
            SETTINGS.replace("prometheus-operated.monitoring.svc", "127.0.0.1"),
            "cluster prod: http://127.0.0.1:9090 is an address of the pod itself. Set prometheus.url to that of the "
            "Service, for example http://prometheus-operated.monitoring.svc:9090",
        ),
    ],
)
def test_missing_image_and_own_address_are_refused(parameters: str, settings: str, sentence: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        serve_values(parse_settings(settings), parse_existing_cluster_parameters(parameters))
    assert str(refused.value) == sentence


def test_command_writes_the_file_again(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    (tmp_path / "parameters.yaml").write_text(f"serve: {{image: '{IMAGE}'}}")
    for _ in range(2):
        result = in_this_process(
            "manifests",
            "render",
            "--for",
            "serve",
            "--settings",
            str(tmp_path / "settings.yaml"),
            "--params",
            str(tmp_path / "parameters.yaml"),
            "--out",
            str(tmp_path / "out"),
        )
        assert (result.returncode, result.stderr) == (0, f"1 files for cluster prod, other are in {tmp_path / 'out'}\n")
    assert (tmp_path / "out" / SERVE_FILE).is_file()
