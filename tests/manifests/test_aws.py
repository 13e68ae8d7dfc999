"""The CloudFormation templates of `cluster/aws`: they pass the linter and grant only what is needed."""

import json
from pathlib import Path
from typing import Any

import pytest
from cfnlint.api import lint_file
from cfnlint.decode import decode
from samtranslator.yaml_helper import yaml_parse

from gpucost_devstack.template import REPOSITORY
from tests.manifests.rendered import CLUSTER, example_files, render_other, target_files

TEMPLATES = sorted((CLUSTER / "aws").glob("*.yaml"))


def template(name: str) -> Any:
    document, problems = decode(str(CLUSTER / "aws" / name))
    assert not problems
    return document


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_cfn_lint_finds_nothing(path: Path) -> None:
    assert [str(match) for match in lint_file(path)] == []


def test_manifests_have_the_templates_unchanged() -> None:
    assert {path.name for path in TEMPLATES} == {"query-role.yaml", "observability.yaml", "collector-role.yaml"}
    for path in TEMPLATES:
        files = target_files("otel-collector") if path.name == "collector-role.yaml" else example_files()
        assert files[f"aws/{path.name}"] == path.read_text()


def test_only_the_service_may_assume_the_query_role() -> None:
    role = template("query-role.yaml")["Resources"]["QueryRole"]["Properties"]
    (policy,) = role["Policies"]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert (statement["Action"], statement["Resource"]) == ("aps:QueryMetrics", {"Ref": "WorkspaceArn"})
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Action"] == "sts:AssumeRole"
    names = trust["Condition"]["ArnLike"]["aws:PrincipalArn"]["Fn::Sub"]
    assert names.endswith(":iam::${DeploymentAccountId}:role/${DeploymentStackName}-*")


def test_parameter_files_name_the_templates_parameters() -> None:
    """The service assumes a role where the settings name one; the example's runs in the workspace's account."""
    assert "aws/query-role.parameters.json" not in example_files()
    parameter_names = {
        parameter["ParameterKey"] for parameter in json.loads(render_other()["aws/query-role.parameters.json"])
    }
    assert parameter_names == set(template("query-role.yaml")["Parameters"])


def test_the_deployments_template_nests_it() -> None:
    """It is off by default, and passes all parameters that the nested template requires."""
    deployment = yaml_parse((REPOSITORY / "template.yaml").read_text())
    nested = deployment["Resources"]["Observability"]
    assert deployment["Conditions"][nested["Condition"]] == {"Fn::Equals": [{"Ref": "CreateWorkspace"}, "true"]}
    assert deployment["Parameters"]["CreateWorkspace"]["Default"] == "false"
    parameters = template("observability.yaml")["Parameters"]
    needed = {name for name, parameter in parameters.items() if "Default" not in parameter}
    assert needed <= nested["Properties"]["Parameters"].keys() <= parameters.keys()
    assert (REPOSITORY / nested["Properties"]["TemplateURL"]) == CLUSTER / "aws/observability.yaml"


def test_created_workspace_is_retained_and_existing_workspace_is_used() -> None:
    resources = template("observability.yaml")["Resources"]
    assert resources["Workspace"]["DeletionPolicy"] == resources["Workspace"]["UpdateReplacePolicy"] == "Retain"
    assert {name: resource["Condition"] for name, resource in resources.items()} == {
        "Workspace": "CreateWorkspace",
        "GrafanaRole": "CreateGrafana",
        "GrafanaWorkspace": "CreateGrafana",
    }
    read = resources["GrafanaRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"][0]["Resource"]
    assert read["Fn::If"][0] == "CreateWorkspace"
