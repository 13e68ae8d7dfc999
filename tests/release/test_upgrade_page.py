"""docs/how-to/upgrade.md agrees with the files that its facts come from."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from samtranslator.yaml_helper import yaml_parse

from gpucost_devstack.template import REPOSITORY

PAGE = REPOSITORY / "docs" / "how-to" / "upgrade.md"
VERSIONS: dict[str, Any] = yaml.safe_load((REPOSITORY / "cluster" / "versions.yaml").read_text())


def rows(text: str, heading: str) -> Iterator[list[str]]:
    """Cells of the table under a heading, without its first two lines."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


MATRIX = {component: versions for component, versions, _ in rows(PAGE.read_text(), "Compatibility")}


def test_servers_are_those_of_make_compat() -> None:
    text = (REPOSITORY / "docs" / "how-to" / "existing-cluster.md").read_text()
    tested = {server: version for server, version, _ in rows(text, "Works with")}
    assert tested
    assert {name: MATRIX.get(name) for name in tested} == tested


def test_pythons_are_those_of_the_package_and_the_functions() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    supported = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    assert MATRIX["Python of the command line"] == ", ".join(supported)
    function = yaml_parse((REPOSITORY / "template.yaml").read_text())["Globals"]["Function"]
    (architecture,) = function["Architectures"]
    version = function["Runtime"].removeprefix("python")
    assert MATRIX["Python of the functions"] == f"{version}, on {architecture}"


def test_sam_is_the_locked_version() -> None:
    lock = (REPOSITORY / "requirements" / "sam.txt").read_text()
    locked = re.search(r"^aws-sam-cli==(\S+)", lock, re.MULTILINE)
    assert locked
    assert MATRIX["SAM CLI"] == locked[1]


def test_kubernetes_is_the_version_that_objects_are_checked_against() -> None:
    parameters = yaml.safe_load((REPOSITORY / "cluster" / "parameters.yaml").read_text())
    assert MATRIX["Kubernetes"] == parameters["kubernetes_version"]


@pytest.mark.parametrize(
    ("component", "versions"),
    [
        ("eksctl", VERSIONS["eksctl"]["version"]),
        ("Karpenter", VERSIONS["charts"]["karpenter"]["version"]),
        ("NVIDIA GPU Operator", VERSIONS["charts"]["gpu_operator"]["version"]),
        (
            "dcgm-exporter",
            f"{VERSIONS['images']['dcgm_exporter']['tag']} (chart {VERSIONS['charts']['dcgm_exporter']['version']})",
        ),
        ("kube-state-metrics", f"chart {VERSIONS['charts']['kube_state_metrics']['version']}"),
        ("OpenTelemetry collector", VERSIONS["images"]["opentelemetry_collector"]["image"].rpartition(":")[2]),
        ("Prometheus agent", VERSIONS["images"]["prometheus"]["image"].rpartition(":")[2]),
    ],
)
def test_version_is_rendered(component: str, versions: str) -> None:
    assert MATRIX[component] == versions


def test_every_retained_resource_is_listed() -> None:
    """The stack's resources, and those of its nested stacks, that CloudFormation keeps."""
    listed = {identifier.strip("`") for _, identifier, _, _ in rows(PAGE.read_text(), "Uninstall")}
    template = yaml_parse((REPOSITORY / "template.yaml").read_text())
    retained = set(retained_resources(template))
    for body in template["Resources"].values():
        if body["Type"] == "AWS::CloudFormation::Stack":
            retained |= set(
                retained_resources(yaml_parse((REPOSITORY / body["Properties"]["TemplateURL"]).read_text()))
            )
    assert listed == retained


def retained_resources(template: dict[str, Any]) -> Iterator[str]:
    for name, body in template["Resources"].items():
        if body.get("DeletionPolicy", "Delete") != "Delete":
            yield name


def test_outputs_and_parameters_exist() -> None:
    template = yaml_parse((REPOSITORY / "template.yaml").read_text())
    nested = yaml_parse((REPOSITORY / "cluster" / "aws" / "observability.yaml").read_text())
    outputs = {output.strip("`").partition("`")[0] for _, _, output, _ in rows(PAGE.read_text(), "Uninstall")}
    assert outputs <= template["Outputs"].keys() | nested["Outputs"].keys()
    assert {"ExistingTableName", "ExistingExportBucket", "CreateWorkspace"} <= template["Parameters"].keys()


def test_quoted_error_is_shown_by_a_rollback() -> None:
    quoted = re.search(
        r"\*(this release reads up to) ….\s(Deploy the release that wrote it, or a newer one)\*", PAGE.read_text()
    )
    assert quoted
    source = (REPOSITORY / "layers" / "common" / "gpucost" / "storage" / "table.py").read_text()
    assert all(part in source for part in quoted.groups())


def test_links_resolve() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE.read_text()):
        path, _, anchor = target.partition("#")
        linked = (PAGE.parent / path).resolve() if path else PAGE
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked.read_text()), target


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
