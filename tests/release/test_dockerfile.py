"""The Dockerfile: a linter accepts it, its user is not root, and what it runs exists."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from gpucost_cli.main import cli
from gpucost_devstack.template import REPOSITORY

DOCKERFILE = REPOSITORY / "Dockerfile"
HADOLINT = REPOSITORY / ".tools" / "release" / "bin" / "hadolint"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
DEPLOYMENT = REPOSITORY / "cluster" / "serve" / "serve.yaml"


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, arguments) of each, with continued lines joined and comments removed."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", lines)
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def last_stage() -> list[tuple[str, str]]:
    steps = instructions(DOCKERFILE.read_text())
    first = max(number for number, (name, _) in enumerate(steps) if name == "FROM")
    return steps[first:]


def arguments_of(instruction: str) -> str:
    (arguments,) = [rest for name, rest in last_stage() if name == instruction]
    return arguments


def hadolint(path: Path) -> list[str]:
    done = subprocess.run([HADOLINT, "-f", "json", path], capture_output=True, text=True, check=False, timeout=60)
    return [f"{fault['code']}: {fault['message']}" for fault in json.loads(done.stdout)]


def test_linter_accepts_the_dockerfile() -> None:
    assert hadolint(DOCKERFILE) == []


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("USER 10001:10001", "USER root", "DL3002"),
        ("python:3.13-slim-trixie AS", "python AS", "DL3006"),
        ("3.13-slim-trixie AS", "latest AS", "DL3007"),
        ('["gpucost"]', "gpucost", "DL3025"),
    ],
)
def test_linter_refuses_planted_faults(old: str, new: str, code: str, tmp_path: Path) -> None:
    text = DOCKERFILE.read_text()
    assert old in text
    changed = tmp_path / "Dockerfile"
    changed.write_text(text.replace(old, new))
    assert code in {fault.partition(":")[0] for fault in hadolint(changed)}


def test_user_is_the_one_of_the_manifest() -> None:
    """A number, so that Kubernetes can check runAsNonRoot."""
    user, group = arguments_of("USER").split(":")
    assert int(user) > 0
    assert set(re.findall(r"runAs(?:User|Group): (\d+)", DEPLOYMENT.read_text())) == {user, group}
    created = next(rest for name, rest in last_stage() if name == "RUN" and "useradd" in rest)
    assert f"--uid {user} " in created


def test_only_the_volume_is_written_to() -> None:
    volume = arguments_of("VOLUME")
    environment = dict(pair.split("=", 1) for name, rest in last_stage() if name == "ENV" for pair in shlex.split(rest))
    assert environment["HOME"] == environment["TMPDIR"] == arguments_of("WORKDIR") == volume
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert f"mountPath: {volume}\n" in DEPLOYMENT.read_text()
    assert "readOnlyRootFilesystem: true" in DEPLOYMENT.read_text()


def test_default_command_parses() -> None:
    assert json.loads(arguments_of("ENTRYPOINT")) == ["gpucost"]
    name, *arguments = json.loads(arguments_of("CMD"))
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    parsed, rest, _ = command.make_parser(click.Context(command)).parse_args(arguments)
    assert (parsed["host"], rest) == ("0.0.0.0", [])
    assert str(parsed["folder"]).startswith(f"{arguments_of('VOLUME')}/")


def test_documented_command_parses() -> None:
    """The page's `docker run` names this version, and what follows it is a command of gpucost."""
    page = (REPOSITORY / "docs/how-to/in-cluster.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("docker run ")]
    options, image, rest = line.rpartition(" gpucost:")
    version, name, *arguments = shlex.split(rest)
    assert (version, name) == (PROJECT["version"], "serve")
    assert image and "--read-only" in options
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    parsed, extra, _ = command.make_parser(click.Context(command)).parse_args(arguments)
    assert (parsed["host"], extra) == ("0.0.0.0", [])


def test_health_check_asks_the_port_and_a_route_of_the_api() -> None:
    port, path = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", arguments_of("HEALTHCHECK"))[0]
    assert port == arguments_of("EXPOSE")
    assert path in json.loads((REPOSITORY / "docs/reference/openapi.json").read_text())["paths"]
    probes = re.findall(r"httpGet: (\{.*\})", DEPLOYMENT.read_text())
    assert {yaml.safe_load(probe)["path"] for probe in probes} == {path}
    assert re.findall(r"containerPort: (\d+)", DEPLOYMENT.read_text()) == [port]


def test_context_has_only_the_wheel() -> None:
    copied = [rest.split()[0] for name, rest in instructions(DOCKERFILE.read_text()) if name == "COPY"]
    from_context = [source for source in copied if not source.startswith("--from")]
    ignored = (REPOSITORY / ".dockerignore").read_text().split()
    assert ignored == ["*", *(f"!{source}" for source in from_context)]
    assert from_context == ["dist/gpucost-*.whl"]
