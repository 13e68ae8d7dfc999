"""Every command of the documentation runs, or its arguments are those of the program that it names."""

import copy
import hashlib
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qsl, urlsplit

import botocore.session
import click
import pytest
from botocore import xform_name

from gpucost.core.hours import HOUR
from gpucost_cli.main import cli
from gpucost_devstack.prometheus import running_prometheus
from gpucost_devstack.template import REPOSITORY
from tests.documentation.shell_commands import HOST, PAGES, Call, claims, has_commands, run_page, script, tokens
from tests.system.doctor_cluster import healthy

USAGE = re.compile(r"\[OPTIONS\]|COMMAND|  ")
"""Usage lines and tables of output, which may begin with a program's name, too."""
AWS = botocore.session.Session()
AWS_OPTIONS = {"query", "output", "region", "profile"}
WRITTEN_BY_HAND = {"cloudformation deploy"}
"""Commands of the AWS CLI that are no operation of a service."""
PATHS = json.loads((REPOSITORY / "docs/reference/openapi.json").read_text())["paths"]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
MAKEFILE = (REPOSITORY / "Makefile").read_text()
SAM_PARSER = """
import json, sys
import click
from samcli.cli.context import Context
from samcli.cli.main import cli

context = click.Context(cli, obj=Context())
for line in sys.stdin:
    name, *arguments = json.loads(line)
    try:
        command = cli.get_command(context, name)
        assert command, f"no command {name}"
        _, rest, _ = command.make_parser(context).parse_args(arguments)
        print(f"unknown: {rest}" if rest else "", flush=True)
    except (AssertionError, click.ClickException) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
"""
"""Parses commands of `sam` with its own options, and runs nothing. Prints a line for each: its error, if any."""
KUBECTL = {"apply", "delete", "describe", "exec", "get", "logs", "port-forward", "rollout", "scale"}
HELM = {"get", "history", "list", "repo", "rollback", "uninstall", "upgrade"}
EKSCTL = {
    "create accessentry",
    "create cluster",
    "create podidentityassociation",
    "delete cluster",
    "get cluster",
    "get podidentityassociation",
    "utils associate-iam-oidc-provider",
    "utils describe-cluster-versions",
}

OPTIONS = {
    "kubectl": {"-A", "-L", "-c", "-f", "-l", "-n", "-o", "--all", "--raw", "--replicas"},
    "helm": {"-A", "-f", "-n", "-o", "--create-namespace", "--install", "--reuse-values", "--version", "--wait"},
    "eksctl": {
        "-f",
        "--cluster",
        "--disable-nodegroup-eviction",
        "--install-nvidia-plugin",
        "--name",
        "--namespace",
        "--permission-policy-arns",
        "--principal-arn",
        "--region",
        "--service-account-name",
        "--type",
        "--wait",
    },
}
"""Options that pages may use, by program: a typing error in another one is a fault."""


@pytest.fixture(scope="module")
def prometheus_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with a healthy cluster, of which there are samples for another hour."""
    path = tmp_path_factory.mktemp("healthy") / "metrics.om"
    text = healthy(cluster="prod-eu", lead=HOUR).text()
    path.write_text(text.replace("us-west-2a", "us-east-1a"))  # where the built-in list prices have its nodes
    with running_prometheus(path) as url:
        yield url


@pytest.mark.parametrize("page", [page for page in PAGES if has_commands(page)])
def test_commands_of_the_page_run_from_top_to_bottom(page: str, tmp_path: Path, prometheus_url: str) -> None:
    run = run_page(page, tmp_path, prometheus_url)
    assert run.calls
    for call in run.calls:
        assert call.missing == [], f"{page}: {call}"
        assert "" not in call.arguments, f"{page}: {call}: a variable is not set"
        CHECKS[call.program](call)
    ran = [(call.line, call.arguments[0]) for call in run.calls if call.ran]
    assert page not in MEASURING or {command for _, command in ran} >= {"doctor", "attribute"}
    for line, command in ran:
        for claim in (*ALWAYS.get(command, ()), *claims(page).get(line, ())):
            pattern = ".*".join(map(re.escape, claim.split("…")))
            assert claim in OF_OTHER_SERVERS or re.search(pattern, run.printed[line]), (
                f"{page}, line {line}: no {claim!r} in {run.printed[line]}"
            )


MEASURING = {
    "README.md",
    "docs/index.md",
    "docs/how-to/clusters/other-servers.md",
    "docs/how-to/clusters/prometheus.md",
}
"""Pages on which `doctor` and `attribute` must read the real Prometheus, in place of the address in their settings."""
ALWAYS = {"attribute": ("business unit", "team"), "doctor": ("attribution is possible",)}
"""What commands print about a healthy cluster in which the namespace `team` holds GPUs."""
OF_OTHER_SERVERS = {"server: VictoriaMetrics", "server: Grafana Mimir …", "server: Thanos …"}
"""Claims about servers in whose place a Prometheus runs."""


def check_gpucost(call: Call) -> None:
    """The real command parses the arguments."""
    command: click.Command = cli
    context = click.Context(cli, info_name="gpucost")
    arguments = list(call.arguments)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        subcommand = command.get_command(context, arguments[0])
        assert subcommand is not None, f"{call}: no command {arguments[0]}"
        command, arguments = subcommand, arguments[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    if "--help" in arguments or (arguments == ["--version"] and command is cli):
        return
    command = copy.copy(command)
    command.params = [copy.copy(parameter) for parameter in command.params]
    for parameter in command.params:  # files of the reader, which a parser would look for
        if isinstance(parameter.type, click.Path):
            parameter.type = click.Path()
    command.make_context(command.name, arguments, parent=context.parent)


def check_make(call: Call) -> None:
    targets = [argument for argument in call.arguments if "=" not in argument]
    assert all(re.search(rf"^{re.escape(target)}:", MAKEFILE, re.MULTILINE) for target in targets), str(call)
    for argument in call.arguments:
        name, is_set, _ = argument.partition("=")
        assert not is_set or f"$({name}" in MAKEFILE, f"{call}: no variable {name}"
    subprocess.run(["make", "-n", *call.arguments], cwd=REPOSITORY, check=True, capture_output=True)


def check_aws(call: Call) -> None:
    """Botocore's models have the operation and its parameters."""
    service, operation, *rest = call.arguments
    if f"{service} {operation}" in WRITTEN_BY_HAND:
        return
    service = service.replace("s3api", "s3")
    model = AWS.get_service_model(service)
    if operation == "wait":
        waiters = AWS.get_component("data_loader").load_service_model(service, "waiters-2")["waiters"]
        named = {xform_name(name, "-"): waiter["operation"] for name, waiter in waiters.items()}
        assert rest[0] in named, str(call)
        operation = xform_name(named[rest[0]], "-")
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    assert operation in operations, str(call)
    shape = model.operation_model(operations[operation]).input_shape
    allowed = {xform_name(member, "-") for member in (shape.members if shape else ())} | AWS_OPTIONS
    options = {argument[2:].partition("=")[0] for argument in rest if argument.startswith("--")}
    assert options <= allowed, f"{call}: {options - allowed}"


def check_request(call: Call) -> None:
    """The API has the path and takes the parameters."""
    fields = [after for option, after in zip(call.arguments, call.arguments[1:], strict=False) if option == "-d"]
    for argument in call.arguments:
        if match := HOST.match(argument):
            parts = urlsplit(argument)
            path = "/" + argument[match.end() :].partition("?")[0]
            template = next((t for t in PATHS if re.fullmatch(re.sub(r"\{.*?\}", "[^/]+", t), path)), None)
            assert template is not None, f"{call}: the API has no {path}"
            allowed = {parameter["name"] for parameter in PATHS[template]["get"].get("parameters", ())}
            sent = {name for name, _ in parse_qsl("&".join([parts.query, *fields]))}
            assert sent <= allowed, f"{call}: {sent - allowed}"


def check_sam(call: Call) -> None:
    assert (error := _sam_error(call.arguments)) == "", f"{call}: {error}"


def _sam_error(arguments: Sequence[str]) -> str:
    parser = _sam_parser()
    assert parser.stdin is not None and parser.stdout is not None
    parser.stdin.write(json.dumps([*arguments]) + "\n")
    parser.stdin.flush()
    return parser.stdout.readline().removesuffix("\n")


@cache
def _sam_parser() -> "subprocess.Popen[str]":
    """One process for all commands, because its imports take a second."""
    python = REPOSITORY / ".tools/sam/bin/python"
    return subprocess.Popen(
        [python, "-c", SAM_PARSER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


@pytest.fixture(scope="module", autouse=True)
def _end_of_sam_parser() -> Iterator[None]:
    yield
    if _sam_parser.cache_info().currsize:
        with _sam_parser() as parser:
            assert parser.stdin is not None
            parser.stdin.close()
        _sam_parser.cache_clear()


def test_sam_refuses_unknown_commands_and_options() -> None:
    assert _sam_error(["deploy", "--guided"]) == ""
    assert "no command deply" in _sam_error(["deply"])
    assert "--guide-me" in _sam_error(["deploy", "--guide-me"])


def check_options(call: Call) -> None:
    options = {argument.partition("=")[0] for argument in call.arguments if argument.startswith("-")}
    assert options <= OPTIONS[call.program], f"{call}: {options - OPTIONS[call.program]}"


def check_kubectl(call: Call) -> None:
    check_options(call)
    verbs = [argument for argument in call.arguments if argument in KUBECTL]
    assert verbs, str(call)


def check_eksctl(call: Call) -> None:
    check_options(call)
    assert " ".join(call.arguments[:2]) in EKSCTL, str(call)


def check_helm(call: Call) -> None:
    """Charts are installed in a version that cluster/versions.yaml has."""
    check_options(call)
    words = call.arguments
    assert words[0] in HELM, str(call)
    versions = (REPOSITORY / "cluster/versions.yaml").read_text()
    if "--version" in words:
        version = words[words.index("--version") + 1]
        assert version == "YOUR_VERSION" or f"version: {version}," in versions, str(call)


def check_package(call: Call) -> None:
    """The package is ours, with extras that exist."""
    named = [argument for argument in call.arguments if "gpucost" in argument]
    assert named, str(call)
    for argument in named:
        for extra in re.findall(r"\[(\w+)\]", argument):
            assert extra in PROJECT["optional-dependencies"], str(call)


def check_git(call: Call) -> None:
    """Pages check out, make and push the tag of a version."""
    verb, *_, tag = call.arguments
    assert verb in {"checkout", "push", "tag"}, str(call)
    assert re.fullmatch(r"v\d+\.\d+\.\d+", tag), str(call)
    assert verb != "checkout" or tag == f"v{VERSION}", f"{call}: this is version {VERSION}"


def check_npm(call: Call) -> None:
    """The package has the script."""
    prefix, folder, *words = call.arguments
    assert prefix == "--prefix", str(call)
    scripts = json.loads((REPOSITORY / folder / "package.json").read_text())["scripts"]
    assert words[-1] in scripts, f"{call}: no script {words[-1]}"
    assert words[:-1] == ["run"] or words == ["test"], str(call)


def check_unzip(call: Call) -> None:
    """The archive has the name that a release gives it, with a version that the reader replaces or this one."""
    archive, option, folder = call.arguments
    assert archive in {f"gpucost-{version}-sam.zip" for version in ("VERSION", VERSION)}, str(call)
    assert option == "-d", str(call)
    assert folder, str(call)


def check_checksums(call: Call) -> None:
    """The real program takes the arguments, and accepts a release's checksums of one downloaded file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"gpucost-{VERSION}-sam.zip"
        path.write_text("archive")
        digest = hashlib.sha256(b"archive").hexdigest()
        (path.parent / "SHA256SUMS").write_text(f"{digest}  {path.name}\n{digest}  other\n")
        subprocess.run([call.program, *call.arguments], cwd=folder, check=True, capture_output=True)
        path.write_text("damaged")
        assert subprocess.run([call.program, *call.arguments], cwd=folder, check=False, capture_output=True).returncode


CHECKS: dict[str, Callable[[Call], None]] = {
    "aws": check_aws,
    "awscurl": check_request,
    "curl": check_request,
    "eksctl": check_eksctl,
    "git": check_git,
    "gpucost": check_gpucost,
    "helm": check_helm,
    "kubectl": check_kubectl,
    "make": check_make,
    "npm": check_npm,
    "pipx": check_package,
    "sam": check_sam,
    "sha256sum": check_checksums,
    "shasum": check_checksums,
    "unzip": check_unzip,
    "uv": check_package,
    "uvx": check_package,
}


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_a_language(page: str) -> None:
    """So that no command can be left out. Output and sketches are `text`."""
    for token in tokens(page):
        if token.type in ("fence", "code_block"):
            assert token.info in {"sh", "text", "yaml", "json", "sql", "hcl", "mermaid"}, (
                f"{page}: {token.content[:80]}"
            )
            if token.info == "text":
                is_command = token.content.split(maxsplit=1)[0] in CHECKS and not USAGE.search(token.content)
                assert not is_command, f"{page}: {token.content[:80]} is a command"


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_exist(page: str) -> None:
    for token in tokens(page):
        if token.type != "code_inline":
            continue
        command = re.split(r" \| | && | -- ", token.content)[0]
        program, _, rest = command.partition(" ")
        if program.rpartition("/")[2] == "gpucost" and rest:
            _check_mention(rest.split(), f"{page}: {command}")
        elif program.startswith("gpucost["):
            check_package(Call("pipx", [program], ran=False, missing=[]))
        elif rest and program in CHECKS:
            arguments = shlex.split(rest.replace("…", "x"))
            if program != "sam" or "--" in rest:
                CHECKS[program](Call(program, arguments, ran=False, missing=[]))


def _check_mention(words: Sequence[str], where: str) -> None:
    """A command in a sentence may leave arguments out, but what it has exists."""
    command: click.Command = cli
    for word in words:
        if isinstance(command, click.Group) and re.fullmatch("[a-z-]+", word) and not word.startswith("-"):
            context = click.Context(command)
            subcommand = command.get_command(context, word)
            assert subcommand is not None, f"{where}: no command {word}"
            command = subcommand
        elif word.startswith("--"):
            allowed = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
            option = word.partition("=")[0]
            assert option in allowed | {"--help", "--version", "--stack"}, f"{where}: no option {option}"


def test_the_api_page_has_an_example_of_every_route() -> None:
    """docs/tutorials/demo.md says so."""
    text = script("docs/reference/api.md")
    routes = [re.sub(r"\{.*?\}", "[^/?']+", path) for path in PATHS if path.startswith("/v1/")]
    assert len(routes) > 15
    assert [route for route in routes if not re.search(rf"curl 'http://127.0.0.1:8080{route}[?']", text)] == []


def test_no_allowed_command_is_unused() -> None:
    texts = [script(page) for page in PAGES]
    texts += [token.content for page in PAGES for token in tokens(page) if token.type == "code_inline"]
    text = "\n".join(texts)
    allowed = [
        *(f"aws {command}" for command in WRITTEN_BY_HAND),
        *(f"eksctl {command}" for command in EKSCTL),
        *(f"helm {verb}" for verb in HELM),
        *(rf"kubectl\b(?: -n \S+)? {verb}" for verb in KUBECTL),
        *(rf"{program}\b(?:.|\\\n)* {option}" for program, options in OPTIONS.items() for option in options),
        *(rf"(?:^|[ (]){program}" for program in CHECKS),
    ]
    assert [command for command in allowed if not re.search(rf"{command}(?![\w-])", text, re.MULTILINE)] == []


def test_the_scripts_contain_the_commands_that_readers_see() -> None:
    assert "gpucost attribute --prometheus http://127.0.0.1:9090" in script("README.md")
    assert len(script("docs/tutorials/quickstart-eks.md").split("helm upgrade")) > 4
