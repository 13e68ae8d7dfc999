"""`make deploy` asks four questions at most, and `sam deploy` and the template accept what it writes."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpucost_cli.questions import PatternOption
from gpucost_cli.samconfig import EMAIL, HEADER, JWT_ISSUER, StackParameters, has_environment, section_of
from gpucost_devstack.template import REPOSITORY
from tests import terminal
from tests.infra.conftest import Template
from tests.infra.stacks import Stack

SAM = """#!/bin/sh
echo "$@" >> sam-calls
"""
SAM_WITHOUT_AWS = """
import inspect, json
from samcli.cli.main import cli
from samcli.commands.deploy import command

signature = inspect.signature(command.do_cli)

def print_parameters(*arguments, **named):
    print(json.dumps(signature.bind(*arguments, **named).arguments, default=str))

command.do_cli = print_parameters
cli()
"""
"""SAM, which prints how it understands its arguments and samconfig.toml instead of deploying."""
SAMCONFIG = (REPOSITORY / "samconfig.toml").read_text()
QUESTIONS = [
    ("AWS region of the stack:", "eu-central-1"),
    ("Name of the stack [gpucost-dev]:", ""),
    ("Email address for cost alerts", "finops@example.com"),
    ("API access", ""),
]
MAX_TERRAFORM_TEMPLATE_BYTES = 460_800
"""Of `template_url`, by the documentation of Terraform's AWS provider."""
WITH_ALL = StackParameters("gpucost-dev", "eu-central-1", "finops@example.com", "https://issuer.example.com", "gpucost")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The parts of a clone that `make deploy` needs, with a stand-in for SAM that records its arguments."""
    (tmp_path / "Makefile").write_text((REPOSITORY / "Makefile").read_text())
    (tmp_path / "samconfig.toml").write_text(SAMCONFIG)
    (tmp_path / ".venv").symlink_to(REPOSITORY / ".venv")
    for path, text in ((tmp_path / ".tools/sam/bin/sam", SAM), (tmp_path / "scripts/setup.sh", "#!/bin/sh\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    return tmp_path


def make() -> str:
    path = shutil.which("make")
    assert path is not None
    return path


def deploy(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [make(), "deploy", *arguments], cwd=clone, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def sam_calls(clone: Path) -> list[str]:
    path = clone / "sam-calls"
    return path.read_text().splitlines() if path.exists() else []


def deploy_parameters(clone: Path, environment: str = "dev") -> dict[str, Any]:
    document = tomllib.loads((clone / "samconfig.toml").read_text())
    parameters: dict[str, Any] = document[environment]["deploy"]["parameters"]
    return parameters


def test_first_deployment_asks_four_questions(clone: Path) -> None:
    status, text = terminal.converse([make(), "deploy"], QUESTIONS, env=dict(os.environ), cwd=clone)
    assert status == 0, text
    assert sam_calls(clone) == ["build", "deploy --config-env dev"]
    parameters = deploy_parameters(clone)
    assert (parameters["stack_name"], parameters["region"]) == ("gpucost-dev", "eu-central-1")
    assert "AlertEmail=finops@example.com" in parameters["parameter_overrides"]
    assert (clone / "samconfig.toml").read_text().startswith(SAMCONFIG)


def test_next_deployment_asks_nothing(clone: Path) -> None:
    (clone / "samconfig.toml").write_text(HEADER + section_of("dev", WITH_ALL))
    before = (clone / "samconfig.toml").read_text()
    assert deploy(clone).returncode == 0
    assert (clone / "samconfig.toml").read_text() == before
    assert sam_calls(clone)[-1] == "deploy --config-env dev"


def test_environment_is_added_to_the_file(clone: Path) -> None:
    (clone / "samconfig.toml").write_text(HEADER + section_of("dev", WITH_ALL))
    development = deploy_parameters(clone)
    result = deploy(clone, "ENV=prod", "MORE=--region eu-west-1 --yes")
    assert result.returncode == 0, result.stderr
    assert sam_calls(clone)[-1] == "deploy --config-env prod"
    assert deploy_parameters(clone) == development
    production = deploy_parameters(clone, "prod")
    assert (production["stack_name"], production["region"]) == ("gpucost-prod", "eu-west-1")
    assert (production["confirm_changeset"], development["confirm_changeset"]) == (True, False)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("", "--region is missing, and there is no terminal"),
        ("", 'make takes options as MORE, for example: make deploy MORE="--region REGION --yes"'),
        ("--region eu-central-1", "--stack-name is missing, and there is no terminal"),
        ("--region europe", "'europe' must be an AWS region"),
        ("--region eu-central-1 --yes --jwt-issuer https://issuer.example.com", "--jwt-audience is missing"),
        ("--region eu-central-1 --yes --jwt-audience gpucost", "--jwt-audience needs --jwt-issuer"),
    ],
)
def test_missing_or_invalid_answer_deploys_and_writes_nothing(clone: Path, more: str, sentence: str) -> None:
    result = deploy(clone, f"MORE={more}")
    assert result.returncode != 0
    assert sentence in result.stderr
    assert sam_calls(clone) == []
    assert (clone / "samconfig.toml").read_text() == SAMCONFIG


def test_file_that_is_not_toml_is_kept(clone: Path) -> None:
    (clone / "samconfig.toml").write_text("[dev")
    result = deploy(clone, "MORE=--region eu-central-1 --yes")
    assert "samconfig.toml is not TOML" in result.stderr
    assert (sam_calls(clone), (clone / "samconfig.toml").read_text()) == ([], "[dev")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[dev.deploy.parameters]\nregion = "eu-central-1"\n', False),
        ("dev = 1\n", False),
        (section_of("dev", WITH_ALL), True),
    ],
)
def test_only_a_section_with_a_stack_counts(tmp_path: Path, text: str, expected: bool) -> None:
    path = tmp_path / "samconfig.toml"
    assert not has_environment(path, "dev")
    path.write_text(text)
    assert has_environment(path, "dev") is expected


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_sam_and_template_accept_the_written_parameters(template: Template, tmp_path: Path, environment: str) -> None:
    """SAM's own code reads the file; the template's patterns, values and rules check the parameters."""
    (tmp_path / "samconfig.toml").write_text(HEADER + section_of(environment, WITH_ALL))
    result = subprocess.run(
        [
            REPOSITORY / ".tools/sam/bin/python",
            "-c",
            SAM_WITHOUT_AWS,
            "deploy",
            "--config-env",
            environment,
            "--config-file",
            tmp_path / "samconfig.toml",
            "--template",
            REPOSITORY / "template.yaml",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SAM_CLI_TELEMETRY": "0"},
    )
    assert result.returncode == 0, result.stderr
    read = json.loads(result.stdout.splitlines()[-1])
    assert (read["stack_name"], read["region"], read["resolve_s3"]) == ("gpucost-dev", "eu-central-1", True)
    assert read["tags"] == {"app": "gpucost", "env": environment}
    overrides = read["parameter_overrides"]
    assert overrides["JwtIssuer"] == WITH_ALL.jwt_issuer
    assert len(overrides) == len(WITH_ALL.overrides(environment))
    for name, text in overrides.items():
        declared = template["Parameters"][name]
        assert re.search(declared.get("AllowedPattern", ""), text)
        assert text in [str(allowed) for allowed in declared.get("AllowedValues", [text])]
    assert Stack("gpucost-dev", template, overrides).refusals() == []


def test_every_parameter_of_the_template_has_an_allowed_default(template: Template) -> None:
    for name, declared in template["Parameters"].items():
        assert "Default" in declared, name
        default = str(declared["Default"])
        assert re.search(declared.get("AllowedPattern", ""), default), name
        assert default in [str(allowed) for allowed in declared.get("AllowedValues", [default])], name
    assert Stack("gpucost-dev", template).refusals() == []


@pytest.mark.parametrize(
    ("option", "parameter", "texts"),
    [
        (EMAIL, "AlertEmail", ["", "a@b.c", "a@b", "a b@c.de", "a@b@c.de", "@b.c", "a@b.c\n", "a@b.c,d@e.f"]),
        (JWT_ISSUER, "JwtIssuer", ["", "https://issuer", "http://issuer", "https://", "https://a b", "issuer"]),
    ],
)
def test_questions_and_template_allow_the_same_texts(
    template: Template, option: PatternOption, parameter: str, texts: list[str]
) -> None:
    pattern = template["Parameters"][parameter]["AllowedPattern"]
    assert [bool(re.fullmatch(option.pattern, text)) for text in texts] == [
        bool(re.fullmatch(f"(?:{pattern})", text)) for text in texts
    ]


def test_every_role_has_the_permissions_boundary(template: Template) -> None:
    boundary = "arn:aws:iam::111122223333:policy/boundary"
    everything = {"CreateWorkspace": "true", "CreateGrafana": "true", "SpotPrices": "true"}
    for passed, expected in (({}, {None}), ({"PermissionsBoundary": boundary}, {boundary})):
        stack = Stack("gpucost-dev", template, {**everything, **passed})
        roles = [
            properties
            for part in (stack, *stack.nested())
            for _, kind, properties in part.resources()
            if kind == "AWS::IAM::Role"
        ]
        assert (
            len(roles) == len([body for body in template["Resources"].values() if body["Type"] == "AWS::IAM::Role"]) + 1
        )
        assert {role.get("PermissionsBoundary") for role in roles} == expected


def test_terraform_example_passes_parameters_of_the_template(template: Template) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "deploy.md").read_text()
    example = page.partition("```hcl\n")[2].partition("```")[0]
    block = example.partition("parameters = {")[2].partition("}")[0]
    assert set(re.findall(r"^ +(\w+) +=", block, re.MULTILINE)) <= set(template["Parameters"])
    assert re.findall(r'outputs\["(\w+)"\]', example)[0] in template["Outputs"]
    assert set(re.findall(r"CAPABILITY_\w+", example)) == {"CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"}
    assert (REPOSITORY / "template.yaml").stat().st_size < MAX_TERRAFORM_TEMPLATE_BYTES


def test_documented_parameters_exist(template: Template) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "deploy.md").read_text()
    table = page.partition("## Parameters")[2].partition("\n## ")[0]
    names = set(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    assert {name.strip("`") for cell in names for name in cell.split(", ")} <= set(template["Parameters"])


def test_documented_commands_exist() -> None:
    """`gpucost init` and the commands of SAM take the options that the page shows."""
    page = (REPOSITORY / "docs" / "how-to" / "deploy.md").read_text()
    sam = REPOSITORY / ".tools" / "sam" / "bin" / "sam"
    for command in ("package", "deploy", "delete"):
        line = next(line for line in page.splitlines() if line.startswith(f"sam {command} "))
        text = subprocess.run([sam, command, "--help"], capture_output=True, text=True, check=True).stdout
        for option in re.findall(r"--[a-z0-9-]+", line):
            assert option in text, line
