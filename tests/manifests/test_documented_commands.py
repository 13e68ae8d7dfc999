"""Commands on the pages about clusters: `gpucost` runs as written, and the AWS CLI has the commands and options."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import botocore.session
import pytest
import yaml
from botocore import xform_name

from gpucost_devstack.template import REPOSITORY
from tests.manifests.test_documentation import PAGES, TARGET_OF_PAGE, blocks, page
from tests.system.doctor_cluster import healthy

GLOBAL_OPTIONS = {"query", "output", "region", "profile"}
AWS = botocore.session.Session()


def aws_commands(name: str) -> Iterator[list[str]]:
    """Yield the words of every `aws` command in the blocks and in the inline code of a page."""
    text = page(name).replace("\\\n", " ")
    for command in re.findall(r"(?:^|`|\$\()(aws [a-z0-9-]+ [^`\n]*)", text, re.MULTILINE):
        words = re.split(r"\s+", command.strip())
        if len(words) > 2 and re.fullmatch("[a-z-]+", words[2].rstrip(')"`,')):
            yield words


def test_aws_commands_are_collected() -> None:
    operations = {words[2].rstrip(")") for words in aws_commands("how-to/clusters/amp-scraper.md")}
    assert operations >= {
        "create-workspace", "describe-cluster", "update-cluster-config", "create-scraper", "wait", "update-scraper",
        "modify-vpc-attribute", "list-scrapers", "delete-scraper", "delete-workspace",
    }  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_aws_commands_exist(name: str) -> None:
    for words in aws_commands(name):
        service, operation = words[1], words[2].rstrip(')"`,')
        options = {word[2:].partition("=")[0].rstrip(')"`,.') for word in words[3:] if word.startswith("--")}
        if service in {"s3", "configure", "sso"} or (service, operation) == ("cloudformation", "deploy"):
            continue  # written by hand in the AWS CLI
        model = AWS.get_service_model(service.removesuffix("api"))  # the AWS CLI's s3api is the service s3
        if operation == "wait":
            operation = xform_name(_waiters(service)[words[3]]["operation"], "-")
        operations = {xform_name(operation_name, "-"): operation_name for operation_name in model.operation_names}
        assert operation in operations, f"aws {service} {operation}"
        shape = model.operation_model(operations[operation]).input_shape
        allowed = {xform_name(member, "-") for member in (shape.members if shape else ())}
        assert options <= allowed | GLOBAL_OPTIONS, f"aws {service} {operation}: {options - allowed - GLOBAL_OPTIONS}"


def _waiters(service: str) -> dict[str, dict[str, str]]:
    waiters = AWS.get_component("data_loader").load_service_model(service, "waiters-2")["waiters"]
    return {xform_name(name, "-"): waiter for name, waiter in waiters.items()}


def write_documents(name: str, folder: Path, url: str = "") -> None:
    """Write the settings and all parameters of a page, with values in place of placeholders."""
    parameters: dict[str, object] = {}
    for block in reversed(blocks(f"how-to/clusters/{name}.md", "yaml")):
        document = yaml.safe_load(block.replace('"…"', '"210987654321"'))
        if "clusters" in document:
            text = block.replace("ws-…", "ws-1").replace("example.net", "corp.test")
            text = re.sub(r"https?://(127\.0\.0\.1:9090|mimir[^\s\"]*)", url, text) if url else text
            (folder / "settings.yaml").write_text(text)  # the first one remains
        else:
            parameters |= document
    (folder / "params.yaml").write_text(yaml.safe_dump(parameters))


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{REPOSITORY / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
    without_aws = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    environment = {**without_aws, "PATH": path, "COLUMNS": "140", "AWS_EC2_METADATA_DISABLED": "true"}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def gpucost_commands(name: str) -> list[str]:
    text = "\n".join(blocks(f"how-to/clusters/{name}.md")).replace("cd .. && ", "")
    return re.findall(r"^gpucost .*$", text, re.MULTILINE)


@pytest.mark.parametrize("name", TARGET_OF_PAGE)
def test_render_command_runs_as_written(name: str, tmp_path: Path) -> None:
    write_documents(name, tmp_path)
    (command,) = [command for command in gpucost_commands(name) if shlex.split(command)[1] == "manifests"]
    done = run(command, tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.strip() in page(f"how-to/clusters/{name}.md")


@pytest.mark.parametrize("name", ["prometheus", "other-servers"])
def test_doctor_and_first_hour_run_as_written(name: str, tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    """Against a real Prometheus, which ignores the header with a tenant."""
    cluster = healthy(cluster="prod-eu")
    write_documents(name, tmp_path, url=prometheus(cluster.text()))
    commands = [command for command in gpucost_commands(name) if "manifests" not in command]
    assert {shlex.split(command.partition("$")[0].rstrip('"'))[1] for command in commands} == {"doctor", "attribute"}
    for command in commands:
        done = run(command, tmp_path)
        assert done.returncode == 0, done.stderr
        shown = ["prod-eu: attribution is possible", "nothing to change"] if " doctor " in command else ["team"]
        assert all(text in done.stdout for text in shown), done.stdout
