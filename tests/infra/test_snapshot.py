"""Lambda SnapStart for the API: which version is invoked, and when a new one is published."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpucost_devstack.template import REPOSITORY, transformed_template
from tests.infra.stacks import of_type


def version(**uploaded: str) -> str:
    """The logical ID of the API's version. CloudFormation publishes another version if it changes."""
    ((name, _),) = of_type(transformed_template(uploaded=uploaded), "AWS::Lambda::Version")
    return name


@pytest.mark.parametrize("changed", ["ApiFunction", "CommonLayer", "DependenciesLayer"])
def test_code_change_publishes_another_version(changed: str) -> None:
    assert version(**{changed: "another"}) != version()


def test_code_of_another_function_publishes_no_version() -> None:
    assert version(DispatchFunction="another", DuckDbLayer="another") == version()


def test_alias_is_invoked_where_snapshots_exist() -> None:
    resources = transformed_template()["Resources"]
    ((alias, body),) = of_type(transformed_template(), "AWS::Lambda::Alias")
    assert body["FunctionVersion"] == {"Fn::GetAtt": [version(), "Version"]}
    assert resources["HttpIntegration"]["Properties"]["IntegrationUri"] == {
        "Fn::If": ["WithApiSnapshot", {"Ref": alias}, {"Fn::GetAtt": ["ApiFunction", "Arn"]}]
    }
    assert resources["HttpPermission"]["Properties"]["FunctionName"] == {
        "Fn::If": ["WithApiSnapshot", {"Ref": alias}, {"Ref": "ApiFunction"}]
    }
    assert resources["ApiFunction"]["Properties"]["SnapStart"] == {
        "ApplyOn": {"Fn::If": ["WithApiSnapshot", "PublishedVersions", "None"]}
    }
    assert resources[version()]["DeletionPolicy"] == "Delete", "AWS charges for every version's snapshot"


def test_changed_parameter_replaces_the_version() -> None:
    """Lambda creates no version of an unchanged function."""
    resources = transformed_template()["Resources"]
    assert resources[version()]["Properties"]["Description"] == {"Fn::Sub": "snapshot ${ApiSnapshot}"}
    assert "${ApiSnapshot}" in resources["ApiFunction"]["Properties"]["Description"]["Fn::Sub"]


@pytest.mark.parametrize(("kind", "is_created"), [("snap-start", True), ("on-demand", False)])
def test_snapshot_contains_the_dynamodb_client_and_the_models_of_settings_and_parameters(
    kind: str, *, is_created: bool
) -> None:
    folders = [str(REPOSITORY / "functions" / "api"), str(REPOSITORY / "layers" / "common")]
    script = (
        f"import sys; sys.path[:0] = {folders!r}; import app, json; "
        "from gpucost.http.routes import all_routes; from gpucost.settings_document import SettingsDocument; "
        "built = {route._dependant is not None for route in all_routes(app.APP)}; "
        "print(json.dumps(['botocore.client' in sys.modules, SettingsDocument.__pydantic_complete__, *built]))"
    )
    environment = {
        "AWS_LAMBDA_INITIALIZATION_TYPE": kind,
        "GPUCOST_TABLE": "t",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "POWERTOOLS_SERVICE_NAME": "api",
        "POWERTOOLS_METRICS_NAMESPACE": "GpuCost",
        "PATH": os.environ["PATH"],
        "HOME": str(Path(sys.executable).parent),
    }
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout) == [is_created, is_created, is_created]
